/* Conversions, the softmax pieces, activations and sparse weights in 512-bit vectors. Sums keep the order of eight lanes: a
 * vector's halves are added one after the other, so every result has the bits of AVX2's. Tails go to the AVX2
 * functions or through masks. */
#include "base/f16.h"
#include "kernels/vecmath.h"
#include "kernels/x86/avx2.h"

#ifdef POME_EMULATE_AVX512 /* tests on machines without it */
#include POME_EMULATE_AVX512
#endif

static inline __m512 load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

static void f16_to_f32(float *dst, const uint16_t *src, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(dst + i, load_f16(src + i));
    pome_f16_to_f32_avx2(dst + i, src + i, n - i);
}

static void f32_to_f16(uint16_t *dst, const float *src, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(void *)(dst + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    pome_f32_to_f16_avx2(dst + i, src + i, n - i);
}

static void f16_round(float *x, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(x + i, _mm512_cvtph_ps(_mm512_cvtps_ph(_mm512_loadu_ps(x + i), _MM_FROUND_TO_NEAREST_INT)));
    pome_f16_round_avx2(x + i, n - i);
}

static void axpy_f32(float *y, float s, const float *x, size_t n)
{
    size_t i = 0;
    __m512 factor = _mm512_set1_ps(s);
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(y + i, _mm512_fmadd_ps(factor, _mm512_loadu_ps(x + i), _mm512_loadu_ps(y + i)));
    pome_axpy_f32_avx2(y + i, s, x + i, n - i);
}

static void axpy_f32_f16(float *y, float s, const uint16_t *x, size_t n)
{
    size_t i = 0;
    __m512 factor = _mm512_set1_ps(s);
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(y + i, _mm512_fmadd_ps(factor, load_f16(x + i), _mm512_loadu_ps(y + i)));
    pome_axpy_f32_f16_avx2(y + i, s, x + i, n - i);
}

static float max_f32(const float *x, size_t n)
{
    __m512 acc = _mm512_set1_ps(-INFINITY);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) /* of (NaN, acc) the instruction takes the second */
        acc = _mm512_max_ps(_mm512_loadu_ps(x + i), acc);
    float lane[16], max = pome_max_f32_avx2(x + i, n - i), rest;
    _mm512_storeu_ps(lane, acc);
    rest = pome_max_f32_avx2(lane, 16);
    return rest > max ? rest : max;
}

/* The steps of AVX2's. */
static inline __m512 exp_16(__m512 x)
{
    x = _mm512_min_ps(_mm512_set1_ps(89.0f), _mm512_max_ps(_mm512_set1_ps(-104.0f), x)); /* NaN passes */
    __m512i e = _mm512_cvtps_epi32(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)));
    __m512 n = _mm512_cvtepi32_ps(e);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752f), x); /* ln 2, high part: 16 bits */
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6f), r);
    __m512 p = _mm512_set1_ps(1.0f / 5040);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 720));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f));
    __m512i half = _mm512_srai_epi32(e, 1), bias = _mm512_set1_epi32(127), rest = _mm512_sub_epi32(e, half);
    p = _mm512_mul_ps(p, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(half, bias), 23)));
    return _mm512_mul_ps(p, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(rest, bias), 23)));
}

static float exp_sum_f32(float *x, float max, size_t n)
{
    __m256 sum = _mm256_setzero_ps();
    __m512 shift = _mm512_set1_ps(max);
    for (size_t i = 0; i < n; i += 16) {
        size_t left = n - i;
        __mmask16 mask = left >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << left) - 1);
        __m512 e = exp_16(_mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + i), shift));
        _mm512_mask_storeu_ps(x + i, mask, e);
        e = _mm512_maskz_mov_ps(mask, e);
        sum = _mm256_add_ps(sum, _mm512_castps512_ps256(e));
        if (left > 8)
            sum = _mm256_add_ps(sum, _mm512_extractf32x8_ps(e, 1));
    }
    return avx2_sum(sum);
}

/* The generic loop; the compiler knows the wider vectors. */
static void silu_mul_f32(float *out, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = gate[i] * pome_sigmoidf(gate[i]) * up[i];
}

/* ---- sparse weights: the expanding move puts values where bits are ---- */

static inline size_t ones_of(uint64_t bits)
{
    return (size_t)_mm_popcnt_u64(bits);
}

static inline __m512 expand(const uint16_t *values, size_t n_left, uint32_t mask)
{
    uint16_t tail[16] = {0};
    if (n_left < 16) {
        memcpy(tail, values, (n_left < ones_of(mask) ? n_left : ones_of(mask)) * sizeof *tail);
        values = tail;
    }
    return _mm512_maskz_expand_ps((__mmask16)mask, load_f16(values));
}

static size_t count_ones(const uint8_t *bits, size_t n_bytes)
{
    size_t ones = 0, i = 0;
    for (; i + 8 <= n_bytes; i += 8) {
        uint64_t word;
        memcpy(&word, bits + i, sizeof word);
        ones += ones_of(word);
    }
    for (; i < n_bytes; i++)
        ones += ones_of(bits[i]);
    return ones;
}

static inline uint32_t mask_of(const uint8_t *bits, size_t n_bytes) /* 1 or 2 bytes */
{
    return n_bytes > 1 ? (uint32_t)bits[0] | (uint32_t)bits[1] << 8 : bits[0];
}

static void decode_sparse_f16(float *dst, const uint8_t *bits, const uint16_t *values, size_t n)
{
    size_t i = 0, left = count_ones(bits, n / 16 * 2);
    for (; i + 16 <= n; i += 16) {
        uint32_t mask = mask_of(bits + i / 8, 2);
        _mm512_storeu_ps(dst + i, expand(values, left, mask));
        values += ones_of(mask);
        left -= ones_of(mask);
    }
    pome_decode_sparse_f16_avx2(dst + i, bits + i / 8, values, n - i);
}

/* Lines are asked for ahead as in sparse_avx2.c. */
static void gemv_sparse_f16(float *y, const float *x, const uint8_t *bits, const uint16_t *values, size_t n, size_t k)
{
    enum { AHEAD_BYTES = 8192 };
    size_t left = count_ones(bits, n * (k / 8));
    for (size_t j = 0; j < n; j++, bits += k / 8) {
        float sum = 0;
        for (size_t begin = 0; begin < k; begin += POME_KERNEL_KC) {
            size_t end = k - begin < POME_KERNEL_KC ? k : begin + POME_KERNEL_KC;
            __m256 acc = _mm256_setzero_ps();
            for (size_t p = begin; p < end; p += 16) {
                size_t width = end - p < 16 ? end - p : 16;
                uint32_t mask = mask_of(bits + p / 8, width / 8);
                __m512 v = expand(values, left, mask);
                _mm_prefetch((const char *)values + AHEAD_BYTES, _MM_HINT_T0);
                acc = _mm256_fmadd_ps(_mm256_loadu_ps(x + p), _mm512_castps512_ps256(v), acc);
                if (width == 16)
                    acc = _mm256_fmadd_ps(_mm256_loadu_ps(x + p + 8), _mm512_extractf32x8_ps(v, 1), acc);
                values += ones_of(mask);
                left -= ones_of(mask);
            }
            sum += avx2_sum(acc);
        }
        y[j] = sum;
    }
}

void pome_kernels_fill_vector_avx512(pome_kernels *k)
{
    k->f16_to_f32 = f16_to_f32;
    k->f32_to_f16 = f32_to_f16;
    k->f16_round = f16_round;
    k->axpy_f32 = axpy_f32;
    k->axpy_f32_f16 = axpy_f32_f16;
    k->max_f32 = max_f32;
    k->exp_sum_f32 = exp_sum_f32;
    k->silu_mul_f32 = silu_mul_f32;
    k->gemv_sparse_f16 = gemv_sparse_f16;
    k->decode_sparse_f16 = decode_sparse_f16;
}
