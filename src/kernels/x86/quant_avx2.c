/* Half, int8 and 4-bit weights for AVX2 + FMA + F16C: decoding, and products with one row of activations that decode
 * in registers. The values are exactly those of the definition, half(scale * code), so a fused product equals
 * decoding and multiplying.
 *
 * int4 with one scale per block: only sixteen values are possible in a block. They are computed once as halves and
 * kept as two byte tables (low and high bytes); a byte shuffle then looks up 32 codes at a time. Four rows go
 * together, because one row's sum is one chain of dependent multiply-adds. */
#include "base/f16.h"
#include "kernels/x86/avx2.h"

typedef struct half_table { /* sixteen halves by code, in both 128-bit lanes */
    __m256i low, high;
} half_table;

static inline half_table table_int4(uint16_t scale_f16)
{
    __m256 scale = _mm256_set1_ps(pome_f16_to_f32(scale_f16));
    __m128i pos = _mm256_cvtps_ph(_mm256_mul_ps(scale, _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7)), 0);
    __m128i neg = _mm256_cvtps_ph(_mm256_mul_ps(scale, _mm256_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1)), 0);
    __m128i low = _mm_packus_epi16(_mm_and_si128(pos, _mm_set1_epi16(0xff)), _mm_and_si128(neg, _mm_set1_epi16(0xff)));
    __m128i high = _mm_packus_epi16(_mm_srli_epi16(pos, 8), _mm_srli_epi16(neg, 8));
    return (half_table){_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high)};
}

/* 16 bytes to 32 codes in order, one a byte. */
static inline __m256i spread_nibbles(const uint8_t *codes)
{
    __m256i w = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)codes));
    return _mm256_and_si256(_mm256_or_si256(w, _mm256_slli_epi16(w, 4)), _mm256_set1_epi8(15));
}

static inline void lookup32(__m256 v[4], half_table t, __m256i codes)
{
    __m256i low = _mm256_shuffle_epi8(t.low, codes), high = _mm256_shuffle_epi8(t.high, codes);
    __m256i even = _mm256_unpacklo_epi8(low, high), odd = _mm256_unpackhi_epi8(low, high); /* 0-7 16-23, 8-15 24-31 */
    v[0] = _mm256_cvtph_ps(_mm256_castsi256_si128(even));
    v[1] = _mm256_cvtph_ps(_mm256_castsi256_si128(odd));
    v[2] = _mm256_cvtph_ps(_mm256_extracti128_si256(even, 1));
    v[3] = _mm256_cvtph_ps(_mm256_extracti128_si256(odd, 1));
}

static inline __m256 dot32(__m256 acc, const __m256 v[4], const float *x)
{
    for (size_t i = 0; i < 4; i++)
        acc = _mm256_fmadd_ps(_mm256_loadu_ps(x + 8 * i), v[i], acc);
    return acc;
}

/* The sums of `rows` (1 or 4) rows over columns [p, end), both multiples of 32. */
static inline __attribute__((always_inline)) void int4_rows(__m256 acc[4], const float *x, const uint8_t *codes,
                                                            const uint16_t *scale, size_t k, size_t block, size_t p,
                                                            size_t end, size_t rows)
{
    size_t n_scales = k / block;
    half_table t[4] = {{_mm256_setzero_si256(), _mm256_setzero_si256()}};
    for (size_t r = 0; r < rows; r++)
        acc[r] = _mm256_setzero_ps();
    for (size_t at = p / block; p < end; at++) {
        size_t stop = (at + 1) * block < end ? (at + 1) * block : end;
        for (size_t r = 0; r < rows; r++)
            t[r] = table_int4(scale[r * n_scales + at]);
        for (; p < stop; p += 32)
            for (size_t r = 0; r < rows; r++) {
                __m256 v[4];
                _mm_prefetch((const char *)(codes + (r * k + p) / 2) + 1024, _MM_HINT_T0);
                lookup32(v, t[r], spread_nibbles(codes + (r * k + p) / 2));
                acc[r] = dot32(acc[r], v, x + p);
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
            s[r] = _mm256_set1_ps(pome_f16_to_f32(scale[r * (k / block) + at]));
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

void pome_decode_int4_block_avx2(float *dst, const uint8_t *codes, const uint16_t *scale_f16, size_t n, size_t block)
{
    for (size_t i = 0; i < n; scale_f16++) {
        size_t end = n - i < block ? n : i + block;
        half_table t = table_int4(*scale_f16);
        for (; i + 32 <= end; i += 32) {
            __m256 v[4];
            lookup32(v, t, spread_nibbles(codes + i / 2));
            for (size_t j = 0; j < 4; j++)
                _mm256_storeu_ps(dst + i + 8 * j, v[j]);
        }
        if (i < end) {
            uint8_t tail[16] = {0};
            float out[32];
            __m256 v[4];
            memcpy(tail, codes + i / 2, (end - i + 1) / 2);
            lookup32(v, t, spread_nibbles(tail));
            for (size_t j = 0; j < 4; j++)
                _mm256_storeu_ps(out + 8 * j, v[j]);
            memcpy(dst + i, out, (end - i) * sizeof *dst);
            i = end;
        }
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
