/* Half, int8 and 4-bit weights for AVX2 + FMA + F16C: decoding, and products with one row of activations that decode
 * in registers. The values are exactly those of the definition, half(scale * code), so a fused product equals
 * decoding and multiplying.
 *
 * int4 with one scale per block: only sixteen values are possible in a block. They are computed once as halves and
 * kept as two byte tables (low and high bytes); a byte shuffle then looks up 16 codes at a time. Shuffles are what
 * bounds it, so they are counted. Four rows go together, because one row's sum is one chain of dependent
 * multiply-adds. */
#include "base/f16.h"
#include "kernels/x86/avx2.h"

typedef struct half_table { /* sixteen halves by code */
    __m128i low, high;
} half_table;

static inline __m256 broadcast_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_set1_epi16((short)*p));
}

/* Rounding is symmetric: the halves of 1 to 8 times the scale give those of -8 to -1. (Code 0 gives +0.) */
static inline half_table table_int4(__m256 scale)
{
    __m128i m = _mm256_cvtps_ph(_mm256_mul_ps(scale, _mm256_setr_ps(1, 2, 3, 4, 5, 6, 7, 8)), 0);
    __m128i low = _mm_shuffle_epi8(m, _mm_setr_epi8(-1, 0, 2, 4, 6, 8, 10, 12, 14, 12, 10, 8, 6, 4, 2, 0));
    __m128i high = _mm_shuffle_epi8(m, _mm_setr_epi8(-1, 1, 3, 5, 7, 9, 11, 13, 15, 13, 11, 9, 7, 5, 3, 1));
    return (half_table){low, _mm_xor_si128(high, _mm_setr_epi32(0, 0, (int)0x80808080u, (int)0x80808080u))};
}

/* 16 bytes of nibbles, low first, to 32 values in order. 128-bit shuffles: crossing lanes costs more. */
static inline void lookup32(__m256 v[4], half_table t, const uint8_t *codes)
{
    __m128i c = _mm_loadu_si128((const __m128i *)codes), mask = _mm_set1_epi8(15);
    __m128i even = _mm_and_si128(c, mask), odd = _mm_and_si128(_mm_srli_epi16(c, 4), mask);
    __m128i first = _mm_unpacklo_epi8(even, odd), second = _mm_unpackhi_epi8(even, odd);
    __m128i low = _mm_shuffle_epi8(t.low, first), high = _mm_shuffle_epi8(t.high, first);
    v[0] = _mm256_cvtph_ps(_mm_unpacklo_epi8(low, high));
    v[1] = _mm256_cvtph_ps(_mm_unpackhi_epi8(low, high));
    low = _mm_shuffle_epi8(t.low, second);
    high = _mm_shuffle_epi8(t.high, second);
    v[2] = _mm256_cvtph_ps(_mm_unpacklo_epi8(low, high));
    v[3] = _mm256_cvtph_ps(_mm_unpackhi_epi8(low, high));
}

static inline __m256 dot32(__m256 acc, const __m256 v[4], const float *x)
{
    for (size_t i = 0; i < 4; i++)
        acc = _mm256_fmadd_ps(_mm256_loadu_ps(x + 8 * i), v[i], acc);
    return acc;
}

/* The sums of `rows` (1 or 4) rows over columns [p, end), both multiples of 32. A table is used for 64 columns at
 * most, even if its block goes on: keeping four of them would cost more registers than there are. */
static inline __attribute__((always_inline)) void int4_rows(__m256 acc[4], const float *x, const uint8_t *codes,
                                                            const uint16_t *scale, size_t k, size_t block, size_t p,
                                                            size_t end, size_t rows)
{
    enum { SCALES = POME_KERNEL_KC / 32 + 8 };
    float s[4][SCALES];
    size_t at = p / block, n_scales = (end - 1) / block + 1 - at, block_end = (at + 1) * block;
    for (size_t r = 0; r < rows; r++) {
        pome_f16_to_f32_avx2(s[r], scale + r * (k / block) + at, n_scales);
        acc[r] = _mm256_setzero_ps();
    }
    for (at = 0; p < end;) {
        size_t len = p + 64 <= end && p + 64 <= block_end ? 64 : 32;
        for (size_t r = 0; r < rows; r++) {
            const uint8_t *c = codes + (r * k + p) / 2;
            half_table t = table_int4(_mm256_broadcast_ss(&s[r][at]));
            __m256 v[4];
            _mm_prefetch((const char *)c + 512, _MM_HINT_T0);
            lookup32(v, t, c);
            acc[r] = dot32(acc[r], v, x + p);
            if (len == 64) {
                lookup32(v, t, c + 16);
                acc[r] = dot32(acc[r], v, x + p + 32);
            }
        }
        p += len;
        if (p == block_end) {
            at++;
            block_end += block;
        }
    }
}

void pome_gemv_int4_block_avx2(float *y, const float *x, const uint8_t *codes, const uint16_t *scale_f16, size_t n,
                               size_t k, size_t block)
{
    size_t j = 0;
    __m256 acc[4];
    for (; j + 4 <= n; j += 4, codes += 2 * k, scale_f16 += 4 * (k / block)) {
        __m128 sum = _mm_setzero_ps();
        for (size_t p = 0; p < k; p += POME_KERNEL_KC) {
            int4_rows(acc, x, codes, scale_f16, k, block, p, k - p < POME_KERNEL_KC ? k : p + POME_KERNEL_KC, 4);
            sum = _mm_add_ps(sum, avx2_sum4(acc[0], acc[1], acc[2], acc[3]));
        }
        _mm_storeu_ps(y + j, sum);
    }
    for (; j < n; j++, codes += k / 2, scale_f16 += k / block) {
        y[j] = 0;
        for (size_t p = 0; p < k; p += POME_KERNEL_KC) {
            int4_rows(acc, x, codes, scale_f16, k, block, p, k - p < POME_KERNEL_KC ? k : p + POME_KERNEL_KC, 1);
            y[j] += avx2_sum(acc[0]);
        }
    }
}

static inline __m256 load_int8(const int8_t *codes, __m256 scale)
{
    __m256i c = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)codes));
    return avx2_round_f16(_mm256_mul_ps(scale, _mm256_cvtepi32_ps(c)));
}

static inline __attribute__((always_inline)) void int8_rows(__m256 acc[4], const float *x, const int8_t *codes,
                                                            const uint16_t *scale, size_t k, size_t block, size_t p,
                                                            size_t end, size_t rows)
{
    __m256 s[4] = {_mm256_setzero_ps()};
    for (size_t r = 0; r < rows; r++)
        acc[r] = _mm256_setzero_ps();
    for (size_t at = p / block; p < end; at++) {
        size_t stop = (at + 1) * block < end ? (at + 1) * block : end;
        for (size_t r = 0; r < rows; r++)
            s[r] = broadcast_f16(&scale[r * (k / block) + at]);
        for (; p < stop; p += 8)
            for (size_t r = 0; r < rows; r++)
                acc[r] = _mm256_fmadd_ps(_mm256_loadu_ps(x + p), load_int8(codes + r * k + p, s[r]), acc[r]);
    }
}

void pome_gemv_int8_block_avx2(float *y, const float *x, const int8_t *codes, const uint16_t *scale_f16, size_t n,
                               size_t k, size_t block)
{
    size_t j = 0;
    __m256 acc[4];
    for (; j + 4 <= n; j += 4, codes += 4 * k, scale_f16 += 4 * (k / block)) {
        __m128 sum = _mm_setzero_ps();
        for (size_t p = 0; p < k; p += POME_KERNEL_KC) {
            int8_rows(acc, x, codes, scale_f16, k, block, p, k - p < POME_KERNEL_KC ? k : p + POME_KERNEL_KC, 4);
            sum = _mm_add_ps(sum, avx2_sum4(acc[0], acc[1], acc[2], acc[3]));
        }
        _mm_storeu_ps(y + j, sum);
    }
    for (; j < n; j++, codes += k, scale_f16 += k / block) {
        y[j] = 0;
        for (size_t p = 0; p < k; p += POME_KERNEL_KC) {
            int8_rows(acc, x, codes, scale_f16, k, block, p, k - p < POME_KERNEL_KC ? k : p + POME_KERNEL_KC, 1);
            y[j] += avx2_sum(acc[0]);
        }
    }
}

void pome_gemv_f16_avx2(float *y, const float *x, const uint16_t *w, size_t ldw, size_t n, size_t k)
{
    for (size_t j = 0; j < n; j += 4) {
        size_t rows = n - j < 4 ? n - j : 4;
        const uint16_t *row[4]; /* missing rows repeat the last one */
        __m128 sum = _mm_setzero_ps();
        for (size_t r = 0; r < 4; r++)
            row[r] = w + (j + (r < rows ? r : rows - 1)) * ldw;
        for (size_t p = 0; p < k;) {
            size_t end = k - p < POME_KERNEL_KC ? k : p + POME_KERNEL_KC;
            __m256 a0 = _mm256_setzero_ps(), a1 = a0, a2 = a0, a3 = a0;
            for (; p + 8 <= end; p += 8) {
                __m256 xv = _mm256_loadu_ps(x + p);
                a0 = _mm256_fmadd_ps(xv, avx2_load_f16(row[0] + p), a0);
                a1 = _mm256_fmadd_ps(xv, avx2_load_f16(row[1] + p), a1);
                a2 = _mm256_fmadd_ps(xv, avx2_load_f16(row[2] + p), a2);
                a3 = _mm256_fmadd_ps(xv, avx2_load_f16(row[3] + p), a3);
            }
            if (p < end) {
                size_t left = end - p;
                __m256 xv = avx2_load_part(x + p, left);
                a0 = _mm256_fmadd_ps(xv, avx2_load_f16_part(row[0] + p, left), a0);
                a1 = _mm256_fmadd_ps(xv, avx2_load_f16_part(row[1] + p, left), a1);
                a2 = _mm256_fmadd_ps(xv, avx2_load_f16_part(row[2] + p, left), a2);
                a3 = _mm256_fmadd_ps(xv, avx2_load_f16_part(row[3] + p, left), a3);
                p = end;
            }
            sum = _mm_add_ps(sum, avx2_sum4(a0, a1, a2, a3));
        }
        float out[4];
        _mm_storeu_ps(out, sum);
        memcpy(y + j, out, rows * sizeof *y);
    }
}

void pome_decode_lut4_avx2(float *dst, const uint8_t *codes, const float *table, size_t n)
{
    __m256 first = _mm256_loadu_ps(table), second = _mm256_loadu_ps(table + 8);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) { /* lane j takes bits 4j..4j+3 of one word: permutes look at three, blend at one */
        int32_t word;
        memcpy(&word, codes + i / 2, sizeof word);
        __m256i c = _mm256_srlv_epi32(_mm256_set1_epi32(word), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
        __m256 lo = _mm256_permutevar8x32_ps(first, c), hi = _mm256_permutevar8x32_ps(second, c);
        _mm256_storeu_ps(dst + i, _mm256_blendv_ps(lo, hi, _mm256_castsi256_ps(_mm256_slli_epi32(c, 28))));
    }
    for (; i < n; i++)
        dst[i] = table[codes[i / 2] >> (i % 2 * 4) & 15];
}

/* scale * 0 is -0 for a negative scale and NaN for an infinite one, which the table does not know. (In a sum neither
 * shows: the -0 vanishes, and beside the NaN there are infinities.) */
static void fix_zeros(float *dst, const uint8_t *codes, size_t n, float zero)
{
    for (size_t i = 0; i < n; i++)
        if ((codes[i / 2] >> (i % 2 * 4) & 15) == 0)
            dst[i] = zero;
}

void pome_decode_int4_block_avx2(float *dst, const uint8_t *codes, const uint16_t *scale_f16, size_t n, size_t block)
{
    for (size_t i = 0; i < n; scale_f16++) {
        size_t first = i, end = n - i < block ? n : i + block;
        half_table t = table_int4(broadcast_f16(scale_f16));
        for (; i + 32 <= end; i += 32) {
            __m256 v[4];
            lookup32(v, t, codes + i / 2);
            for (size_t j = 0; j < 4; j++)
                _mm256_storeu_ps(dst + i + 8 * j, v[j]);
        }
        if (i < end) {
            uint8_t tail[16] = {0};
            float out[32];
            __m256 v[4];
            memcpy(tail, codes + i / 2, (end - i + 1) / 2);
            lookup32(v, t, tail);
            for (size_t j = 0; j < 4; j++)
                _mm256_storeu_ps(out + 8 * j, v[j]);
            memcpy(dst + i, out, (end - i) * sizeof *dst);
            i = end;
        }
        if (*scale_f16 >= 0x7c00)
            fix_zeros(dst + first, codes + first / 2, end - first, pome_f16_to_f32(*scale_f16) * 0.0f);
    }
}

void pome_decode_int8_block_avx2(float *dst, const int8_t *codes, const uint16_t *scale_f16, size_t n, size_t block)
{
    for (size_t i = 0; i < n; scale_f16++) {
        size_t end = n - i < block ? n : i + block;
        float s = pome_f16_to_f32(*scale_f16);
        for (; i + 8 <= end; i += 8)
            _mm256_storeu_ps(dst + i, load_int8(codes + i, _mm256_set1_ps(s)));
        for (; i < end; i++)
            dst[i] = pome_f16_round(s * (float)codes[i]);
    }
}

/* ---- unsigned 4-bit codes with an offset ---- */

static inline half_table table_uint4(__m256 scale, __m256 offset)
{
    __m256 a = avx2_round_f16(_mm256_sub_ps(_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7), offset));
    __m256 b = avx2_round_f16(_mm256_sub_ps(_mm256_setr_ps(8, 9, 10, 11, 12, 13, 14, 15), offset));
    __m128i first = _mm256_cvtps_ph(_mm256_mul_ps(scale, a), 0), second = _mm256_cvtps_ph(_mm256_mul_ps(scale, b), 0);
    __m128i mask = _mm_set1_epi16(0xff);
    return (half_table){_mm_packus_epi16(_mm_and_si128(first, mask), _mm_and_si128(second, mask)),
                        _mm_packus_epi16(_mm_srli_epi16(first, 8), _mm_srli_epi16(second, 8))};
}

/* The sums of `rows` (1 or 4) rows over columns [p, end), both multiples of 32. */
static inline __attribute__((always_inline)) void uint4_rows(__m256 acc[4], const float *x, const uint8_t *codes,
                                                             const uint16_t *scale, const uint16_t *offset, size_t k,
                                                             size_t block, size_t p, size_t end, size_t rows)
{
    for (size_t r = 0; r < rows; r++)
        acc[r] = _mm256_setzero_ps();
    for (; p < end; p += 32)
        for (size_t r = 0; r < rows; r++) {
            const uint8_t *c = codes + (r * k + p) / 2;
            size_t at = r * (k / block) + p / block;
            __m256 v[4];
            _mm_prefetch((const char *)c + 512, _MM_HINT_T0);
            lookup32(v, table_uint4(broadcast_f16(&scale[at]), broadcast_f16(&offset[at])), c);
            acc[r] = dot32(acc[r], v, x + p);
        }
}

void pome_gemv_uint4_shift_block_avx2(float *y, const float *x, const uint8_t *codes, const uint16_t *scale_f16,
                                      const uint16_t *offset_f16, size_t n, size_t k, size_t block)
{
    size_t j = 0, n_scales = k / block;
    __m256 acc[4];
    for (; j + 4 <= n; j += 4, codes += 2 * k, scale_f16 += 4 * n_scales, offset_f16 += 4 * n_scales) {
        __m128 sum = _mm_setzero_ps();
        for (size_t p = 0; p < k; p += POME_KERNEL_KC) {
            size_t end = k - p < POME_KERNEL_KC ? k : p + POME_KERNEL_KC;
            uint4_rows(acc, x, codes, scale_f16, offset_f16, k, block, p, end, 4);
            sum = _mm_add_ps(sum, avx2_sum4(acc[0], acc[1], acc[2], acc[3]));
        }
        _mm_storeu_ps(y + j, sum);
    }
    for (; j < n; j++, codes += k / 2, scale_f16 += n_scales, offset_f16 += n_scales) {
        y[j] = 0;
        for (size_t p = 0; p < k; p += POME_KERNEL_KC) {
            size_t end = k - p < POME_KERNEL_KC ? k : p + POME_KERNEL_KC;
            uint4_rows(acc, x, codes, scale_f16, offset_f16, k, block, p, end, 1);
            y[j] += avx2_sum(acc[0]);
        }
    }
}

void pome_decode_uint4_shift_block_avx2(float *dst, const uint8_t *codes, const uint16_t *scale_f16,
                                        const uint16_t *offset_f16, size_t n, size_t block)
{
    for (size_t i = 0; i < n; scale_f16++, offset_f16++) {
        size_t end = n - i < block ? n : i + block;
        half_table t = table_uint4(broadcast_f16(scale_f16), broadcast_f16(offset_f16));
        for (size_t len; i < end; i += len) {
            uint8_t piece[16] = {0};
            float out[32];
            __m256 v[4];
            len = end - i < 32 ? end - i : 32;
            memcpy(piece, codes + i / 2, (len + 1) / 2);
            lookup32(v, t, piece);
            for (size_t j = 0; j < 4; j++)
                _mm256_storeu_ps(len == 32 ? dst + i + 8 * j : out + 8 * j, v[j]);
            if (len < 32)
                memcpy(dst + i, out, len * sizeof *dst);
        }
    }
}

/* Sixteen nibble pairs at a time: a window of 16 bits for each pair, moved up so that what follows falls out, then down. */
void pome_widen_indices_avx2(uint8_t *nibbles, const uint8_t *bits, uint32_t n_bits, size_t n)
{
    uint8_t place[32];
    uint16_t factor[16];
    size_t i = 0;
    for (uint32_t j = 0; j < 16; j++) {
        uint32_t at = 2 * n_bits * j;
        place[2 * j] = (uint8_t)(at / 8);
        place[2 * j + 1] = (uint8_t)(at / 8 + 1);
        factor[j] = (uint16_t)(1u << (16 - 2 * n_bits - at % 8));
    }
    const __m256i places = _mm256_loadu_si256((const __m256i *)(const void *)place);
    const __m256i factors = _mm256_loadu_si256((const __m256i *)(const void *)factor);
    const __m256i low = _mm256_set1_epi16((short)((1 << n_bits) - 1)), high = _mm256_slli_epi16(low, 4);
    const __m128i down = _mm_cvtsi32_si128((int)(16 - 2 * n_bits)), apart = _mm_cvtsi32_si128((int)(4 - n_bits));
    for (; (n - i) / 8 * n_bits >= 16; i += 32, bits += 4 * n_bits, nibbles += 16) {
        __m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)bits));
        v = _mm256_srl_epi16(_mm256_mullo_epi16(_mm256_shuffle_epi8(v, places), factors), down);
        v = _mm256_or_si256(_mm256_and_si256(v, low), _mm256_and_si256(_mm256_sll_epi16(v, apart), high));
        v = _mm256_permute4x64_epi64(_mm256_packus_epi16(v, v), 0x08);
        _mm_storeu_si128((__m128i *)(void *)nibbles, _mm256_castsi256_si128(v));
    }
    pome_widen_indices_generic(nibbles, bits, n_bits, n - i);
}
