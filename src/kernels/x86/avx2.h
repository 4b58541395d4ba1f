/* What the AVX2 files share: loads of short tails and the fixed order of a horizontal sum. */
#ifndef POME_KERNELS_X86_AVX2_H
#define POME_KERNELS_X86_AVX2_H

#if !defined(__AVX2__) || !defined(__FMA__) || !defined(__F16C__)
#error "needs -mavx2 -mfma -mf16c"
#endif

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/kernels.h"

/* Before loops of at most 12 rounds over sums that are to stay in registers. */
#if defined(__clang__)
#define AVX2_UNROLL _Pragma("clang loop unroll(full)")
#else
#define AVX2_UNROLL _Pragma("GCC unroll 12")
#endif

static inline __m256i avx2_mask(size_t n) /* the first n < 8 lanes */
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline __m256 avx2_load_part(const float *p, size_t n) /* n < 8, the rest zero */
{
    return _mm256_maskload_ps(p, avx2_mask(n));
}
static inline void avx2_store_part(float *p, __m256 v, size_t n)
{
    _mm256_maskstore_ps(p, avx2_mask(n), v);
}
static inline __m256 avx2_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
static inline __m256 avx2_load_f16_part(const uint16_t *p, size_t n)
{
    uint16_t tail[8] = {0};
    memcpy(tail, p, n * sizeof *p);
    return avx2_load_f16(tail);
}
static inline __m256 avx2_round_f16(__m256 v)
{
    return _mm256_cvtph_ps(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}
static inline __m128 avx2_fold(__m256 v) /* lanes j + lanes j + 4 */
{
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}
/* ((0+4)+(1+5)) + ((2+6)+(3+7)) of each of four accumulators */
static inline __m128 avx2_sum4(__m256 a, __m256 b, __m256 c, __m256 d)
{
    return _mm_hadd_ps(_mm_hadd_ps(avx2_fold(a), avx2_fold(b)), _mm_hadd_ps(avx2_fold(c), avx2_fold(d)));
}
static inline float avx2_sum(__m256 a)
{
    __m128 s = _mm_hadd_ps(avx2_fold(a), avx2_fold(a));
    return _mm_cvtss_f32(_mm_hadd_ps(s, s));
}

void pome_f16_to_f32_avx2(float *dst, const uint16_t *src, size_t n);
void pome_f32_to_f16_avx2(uint16_t *dst, const float *src, size_t n);
void pome_f16_round_avx2(float *x, size_t n);
float pome_dot_f32_avx2(const float *a, const float *b, size_t n);
float pome_dot_f32_f16_avx2(const float *a, const uint16_t *b, size_t n);
void pome_axpy_f32_avx2(float *y, float s, const float *x, size_t n);
void pome_axpy_f32_f16_avx2(float *y, float s, const uint16_t *x, size_t n);
float pome_max_f32_avx2(const float *x, size_t n);
float pome_exp_sum_f32_avx2(float *x, float max, size_t n);
void pome_gemm_nt_f32_avx2(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t m,
                           size_t n, size_t k, bool accumulate);
void pome_gemm_nn_f32_avx2(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t m,
                           size_t n, size_t k, bool accumulate);
void pome_gemm_panel_f32_avx2(float *c, size_t ldc, const float *a, size_t lda, size_t step, const float *b, size_t ldb, size_t m,
                              size_t n, size_t k, bool accumulate, const pome_panel_end *end);
void pome_gemm_at_f32_avx2(float *c, size_t ldc, const float *a, size_t lda, const float *b, const size_t *at, size_t m, size_t n,
                           size_t k, const pome_panel_end *end);
void pome_unfold_panel_f32_avx2(float *panel, size_t ld, const float *x, size_t ldx, size_t m, const pome_panel_run *runs,
                                size_t n_runs, size_t stride);
void pome_winograd_in_f32_avx2(float *v, size_t apart, const float *x, size_t ldx, size_t width, size_t n);
bool pome_winograd_out_f32_avx2(float *y, size_t ldy, size_t rows, size_t cols, const float *m, size_t apart, const pome_panel_end *end);
void pome_conv_plane_f32_avx2(float *y, size_t rows, size_t cols, const pome_conv_plane *p);
void pome_silu_mul_f32_avx2(float *out, const float *gate, const float *up, size_t n);
void pome_gemm_nt_f16_avx2(float *c, size_t ldc, const float *a, size_t lda, const uint16_t *b, size_t ldb, size_t m,
                           size_t n, size_t k, bool accumulate);
void pome_gemm_nn_f16_avx2(float *c, size_t ldc, const float *a, size_t lda, const uint16_t *b, size_t ldb, size_t m,
                           size_t n, size_t k, bool accumulate);
void pome_gemv_f16_avx2(float *y, const float *x, const uint16_t *w, size_t ldw, size_t n, size_t k);
void pome_gemv_int4_block_avx2(float *y, const float *x, const uint8_t *codes, const uint16_t *scale_f16, size_t n,
                               size_t k, size_t block);
void pome_gemv_int8_block_avx2(float *y, const float *x, const int8_t *codes, const uint16_t *scale_f16, size_t n,
                               size_t k, size_t block);
void pome_gemv_uint4_shift_block_avx2(float *y, const float *x, const uint8_t *codes, const uint16_t *scale_f16,
                                      const uint16_t *offset_f16, size_t n, size_t k, size_t block);
void pome_decode_uint4_shift_block_avx2(float *dst, const uint8_t *codes, const uint16_t *scale_f16,
                                        const uint16_t *offset_f16, size_t n, size_t block);
void pome_decode_int4_block_avx2(float *dst, const uint8_t *codes, const uint16_t *scale_f16, size_t n, size_t block);
void pome_decode_int8_block_avx2(float *dst, const int8_t *codes, const uint16_t *scale_f16, size_t n, size_t block);
void pome_decode_sparse_f16_avx2(float *dst, const uint8_t *bits, const uint16_t *values, size_t n);
void pome_gemv_sparse_f16_avx2(float *y, const float *x, const uint8_t *bits, const uint16_t *values, size_t n,
                               size_t k);
void pome_widen_indices_avx2(uint8_t *nibbles, const uint8_t *bits, uint32_t n_bits, size_t n);
void pome_decode_lut4_avx2(float *dst, const uint8_t *codes, const float *table, size_t n);

#endif
