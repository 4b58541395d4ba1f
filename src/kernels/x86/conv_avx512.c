/* Convolutions in 512-bit vectors: the same bits as AVX2's. */
#include "kernels/x86/avx2.h"

#ifdef POME_EMULATE_AVX512 /* tests on machines without it */
#include POME_EMULATE_AVX512
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { ROWS = 12 }; /* by one vector: twelve sums hide the latency of the multiply-add */

ALWAYS_INLINE __mmask16 lanes(size_t n)
{
    return n >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}

ALWAYS_INLINE __m512 limited(__m512 v, float low, float high)
{
    return _mm512_min_ps(_mm512_set1_ps(high), _mm512_max_ps(_mm512_set1_ps(low), v)); /* the second operand if one is NaN */
}

/* at NULL: row p of b lies at p * ldb. n_rows is a constant where it is called, and whether `at` is NULL. */
ALWAYS_INLINE void panel_tile(float *c, size_t ldc, const float *a, size_t lda, size_t step, const float *b, size_t ldb,
                              const size_t *at, __mmask16 columns, size_t k, bool add, const pome_panel_end *end, size_t first, size_t n_rows)
{
    __m512 acc[ROWS];
    for (size_t i = 0; i < n_rows; i++)
        acc[i] = add ? _mm512_maskz_loadu_ps(columns, c + i * ldc) : _mm512_setzero_ps();
    for (size_t p = 0; p < k; p++) {
        __m512 bv = _mm512_loadu_ps(b + (at ? at[p] : p * ldb));
        for (size_t i = 0; i < n_rows; i++)
            acc[i] = _mm512_fmadd_ps(_mm512_set1_ps(a[i * lda + p * step]), bv, acc[i]);
    }
    for (size_t i = 0; i < n_rows; i++) {
        __m512 v = acc[i];
        if (end && end->bias)
            v = _mm512_add_ps(v, _mm512_set1_ps(end->bias[first + i]));
        if (end && end->addend)
            v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(columns, end->addend + (first + i) * ldc));
        if (end)
            v = limited(v, end->low, end->high);
        _mm512_mask_storeu_ps(c + i * ldc, columns, v);
    }
}

ALWAYS_INLINE void tiles(float *c, size_t ldc, const float *a, size_t lda, size_t step, const float *b, size_t ldb, const size_t *at,
                         size_t m, size_t n, size_t k, bool accumulate, const pome_panel_end *end)
{
    const __mmask16 columns = lanes(n);
    size_t i = 0;
    for (; i + ROWS <= m; i += ROWS)
        panel_tile(c + i * ldc, ldc, a + i * lda, lda, step, b, ldb, at, columns, k, accumulate, end, i, ROWS);
    for (; i + 4 <= m; i += 4)
        panel_tile(c + i * ldc, ldc, a + i * lda, lda, step, b, ldb, at, columns, k, accumulate, end, i, 4);
    for (; i < m; i++)
        panel_tile(c + i * ldc, ldc, a + i * lda, lda, step, b, ldb, at, columns, k, accumulate, end, i, 1);
}

static void gemm_panel(float *c, size_t ldc, const float *a, size_t lda, size_t step, const float *b, size_t ldb, size_t m,
                       size_t n, size_t k, bool accumulate, const pome_panel_end *end)
{
    tiles(c, ldc, a, lda, step, b, ldb, NULL, m, n, k, accumulate, end);
}

static void gemm_at(float *c, size_t ldc, const float *a, size_t lda, const float *b, const size_t *at, size_t m, size_t n,
                    size_t k, const pome_panel_end *end)
{
    tiles(c, ldc, a, lda, 1, b, 0, at, m, n, k, false, end);
}

void pome_kernels_fill_conv_avx512(pome_kernels *k)
{
    k->gemm_panel_f32 = gemm_panel;
    k->gemm_at_f32 = gemm_at;
}
