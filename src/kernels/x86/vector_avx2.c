/* Conversions, inner products and the softmax pieces for AVX2 + FMA + F16C, and this level's table. Any alignment;
 * tails by masked loads. */
#include <math.h>

#include "base/f16.h"
#include "kernels/x86/coded_avx2.h"

void pome_f16_to_f32_avx2(float *dst, const uint16_t *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(dst + i, avx2_load_f16(src + i));
    for (; i < n; i++)
        dst[i] = pome_f16_to_f32(src[i]);
}

void pome_f32_to_f16_avx2(uint16_t *dst, const float *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(dst + i), _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++)
        dst[i] = pome_f32_to_f16(src[i]);
}

void pome_f16_round_avx2(float *x, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(x + i, avx2_round_f16(_mm256_loadu_ps(x + i)));
    for (; i < n; i++)
        x[i] = pome_f16_round(x[i]);
}

float pome_dot_f32_avx2(const float *a, const float *b, size_t n)
{
    float sum;
    pome_gemm_nt_f32_avx2(&sum, 1, a, n, b, n, 1, 1, n, false);
    return sum;
}

float pome_dot_f32_f16_avx2(const float *a, const uint16_t *b, size_t n)
{
    float sum;
    pome_gemv_f16_avx2(&sum, a, b, n, 1, n);
    return sum;
}

void pome_axpy_f32_avx2(float *y, float s, const float *x, size_t n)
{
    size_t i = 0;
    __m256 factor = _mm256_set1_ps(s);
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_fmadd_ps(factor, _mm256_loadu_ps(x + i), _mm256_loadu_ps(y + i)));
    if (i < n)
        avx2_store_part(y + i, _mm256_fmadd_ps(factor, avx2_load_part(x + i, n - i), avx2_load_part(y + i, n - i)),
                        n - i);
}

void pome_axpy_f32_f16_avx2(float *y, float s, const uint16_t *x, size_t n)
{
    size_t i = 0;
    __m256 factor = _mm256_set1_ps(s);
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(y + i, _mm256_fmadd_ps(factor, avx2_load_f16(x + i), _mm256_loadu_ps(y + i)));
    if (i < n)
        avx2_store_part(y + i, _mm256_fmadd_ps(factor, avx2_load_f16_part(x + i, n - i), avx2_load_part(y + i, n - i)),
                        n - i);
}

float pome_max_f32_avx2(const float *x, size_t n)
{
    __m256 acc = _mm256_set1_ps(-INFINITY);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) /* of (NaN, acc) the instruction takes the second */
        acc = _mm256_max_ps(_mm256_loadu_ps(x + i), acc);
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(acc), _mm256_extractf128_ps(acc, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    float max = _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
    for (; i < n; i++)
        if (x[i] > max)
            max = x[i];
    return max;
}

/* exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= 0.347: Taylor to r^7 is within 2^-27. 2^n is applied as two
 * factors so that subnormal results come out. Below -104 the result rounds to 0, above 89 it is infinite. */
static __m256 exp_avx2(__m256 x)
{
    x = _mm256_min_ps(_mm256_set1_ps(89.0f), _mm256_max_ps(_mm256_set1_ps(-104.0f), x)); /* NaN passes */
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145752f), x); /* ln 2, high part: 16 bits */
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860677e-6f), r);
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    __m256i e = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(e, 1), bias = _mm256_set1_epi32(127);
    __m256i rest = _mm256_sub_epi32(e, half);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
}

float pome_exp_sum_f32_avx2(float *x, float max, size_t n)
{
    __m256 sum = _mm256_setzero_ps(), shift = _mm256_set1_ps(max);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 e = exp_avx2(_mm256_sub_ps(_mm256_loadu_ps(x + i), shift));
        _mm256_storeu_ps(x + i, e);
        sum = _mm256_add_ps(sum, e);
    }
    if (i < n) {
        __m256 e = exp_avx2(_mm256_sub_ps(avx2_load_part(x + i, n - i), shift));
        avx2_store_part(x + i, e, n - i);
        sum = _mm256_add_ps(sum, _mm256_and_ps(e, _mm256_castsi256_ps(avx2_mask(n - i))));
    }
    return avx2_sum(sum);
}

void pome_kernels_fill_avx2(pome_kernels *k)
{
    k->f16_to_f32 = pome_f16_to_f32_avx2;
    k->f32_to_f16 = pome_f32_to_f16_avx2;
    k->f16_round = pome_f16_round_avx2;
    k->dot_f32 = pome_dot_f32_avx2;
    k->dot_f32_f16 = pome_dot_f32_f16_avx2;
    k->axpy_f32 = pome_axpy_f32_avx2;
    k->axpy_f32_f16 = pome_axpy_f32_f16_avx2;
    k->max_f32 = pome_max_f32_avx2;
    k->exp_sum_f32 = pome_exp_sum_f32_avx2;
    k->gemm_nt_f32 = pome_gemm_nt_f32_avx2;
    k->gemm_nn_f32 = pome_gemm_nn_f32_avx2;
    k->gemm_panel_f32 = pome_gemm_panel_f32_avx2;
    k->gemm_at_f32 = pome_gemm_at_f32_avx2;
    k->winograd_in_f32 = pome_winograd_in_f32_avx2;
    k->winograd_out_f32 = pome_winograd_out_f32_avx2;
    k->unfold_panel_f32 = pome_unfold_panel_f32_avx2;
    k->conv_plane_f32 = pome_conv_plane_f32_avx2;
    k->silu_mul_f32 = pome_silu_mul_f32_avx2;
    k->gemm_nt_f16 = pome_gemm_nt_f16_avx2;
    k->gemm_nn_f16 = pome_gemm_nn_f16_avx2;
    k->gemv_f16 = pome_gemv_f16_avx2;
    k->gemv_int4_block = pome_gemv_int4_block_avx2;
    k->gemv_int8_block = pome_gemv_int8_block_avx2;
    k->gemv_uint4_shift_block = pome_gemv_uint4_shift_block_avx2;
    k->decode_int4_block = pome_decode_int4_block_avx2;
    k->decode_uint4_shift_block = pome_decode_uint4_shift_block_avx2;
    k->decode_int8_block = pome_decode_int8_block_avx2;
    k->decode_lut4 = pome_decode_lut4_avx2;
    k->widen_indices = pome_widen_indices_avx2;
    k->gemv_sparse_f16 = pome_gemv_sparse_f16_avx2;
    k->decode_sparse_f16 = pome_decode_sparse_f16_avx2;
    pome_coded_fill_nibbles_avx2(k);
    pome_coded_fill_words_avx2(k);
}
