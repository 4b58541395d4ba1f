/* Matrix products in 512-bit vectors, in the order of sums that kernels.h prescribes: the same bits as AVX2's.
 *
 * nt: a vector holds eight lanes of two rows of b; 6 x 4 results keep 12 accumulators (6 loads of a, 2 of pairs of b feed
 * 12 multiply-adds). Blocks of KC keep six rows of a and four of b (20 KB) in the first-level cache.
 *
 * nn: columns are the vector axis; tiles of 6 x 32, or 1 x 128 for a single row. */
#include "kernels/x86/avx2.h"

#ifdef POME_EMULATE_AVX512 /* tests on machines without it */
#include POME_EMULATE_AVX512
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { MC = 96, NT_ROWS = 6, NN_ROWS = 6, NN_WIDE = 8 };

ALWAYS_INLINE __m512 both(__m256 low, __m256 high)
{
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

/* n_rows (1 to 6) x 4 results over k <= KC. */
ALWAYS_INLINE void nt_tile(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t k, bool add,
                           size_t n_rows)
{
    __m512 acc[NT_ROWS][2];
    size_t p = 0;
    for (size_t i = 0; i < n_rows; i++)
        acc[i][0] = acc[i][1] = _mm512_setzero_ps();
    for (; p + 8 <= k; p += 8) {
        __m512 b0 = both(_mm256_loadu_ps(b + p), _mm256_loadu_ps(b + ldb + p));
        __m512 b1 = both(_mm256_loadu_ps(b + 2 * ldb + p), _mm256_loadu_ps(b + 3 * ldb + p));
        for (size_t i = 0; i < n_rows; i++) {
            __m512 av = _mm512_broadcast_f32x8(_mm256_loadu_ps(a + i * lda + p));
            acc[i][0] = _mm512_fmadd_ps(av, b0, acc[i][0]);
            acc[i][1] = _mm512_fmadd_ps(av, b1, acc[i][1]);
        }
    }
    if (p < k) {
        size_t left = k - p;
        __m512 b0 = both(avx2_load_part(b + p, left), avx2_load_part(b + ldb + p, left));
        __m512 b1 = both(avx2_load_part(b + 2 * ldb + p, left), avx2_load_part(b + 3 * ldb + p, left));
        for (size_t i = 0; i < n_rows; i++) {
            __m512 av = _mm512_broadcast_f32x8(avx2_load_part(a + i * lda + p, left));
            acc[i][0] = _mm512_fmadd_ps(av, b0, acc[i][0]);
            acc[i][1] = _mm512_fmadd_ps(av, b1, acc[i][1]);
        }
    }
    for (size_t i = 0; i < n_rows; i++) {
        float *to = c + i * ldc;
        __m128 sum = avx2_sum4(_mm512_castps512_ps256(acc[i][0]), _mm512_extractf32x8_ps(acc[i][0], 1),
                               _mm512_castps512_ps256(acc[i][1]), _mm512_extractf32x8_ps(acc[i][1], 1));
        _mm_storeu_ps(to, add ? _mm_add_ps(_mm_loadu_ps(to), sum) : sum);
    }
}

static void nt_rows(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t k, bool add,
                    size_t n_rows)
{
    switch (n_rows) {
    case 1: nt_tile(c, ldc, a, lda, b, ldb, k, add, 1); break;
    case 2: nt_tile(c, ldc, a, lda, b, ldb, k, add, 2); break;
    case 3: nt_tile(c, ldc, a, lda, b, ldb, k, add, 3); break;
    case 4: nt_tile(c, ldc, a, lda, b, ldb, k, add, 4); break;
    case 5: nt_tile(c, ldc, a, lda, b, ldb, k, add, 5); break;
    default: nt_tile(c, ldc, a, lda, b, ldb, k, add, 6); break;
    }
}

static void gemm_nt(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t m, size_t n,
                    size_t k, bool accumulate)
{
    size_t whole = n / 4 * 4;
    if (k == 0 && !accumulate)
        for (size_t i = 0; i < m; i++)
            memset(c + i * ldc, 0, n * sizeof *c);
    for (size_t p = 0; p < k; p += POME_KERNEL_KC) {
        size_t len = k - p < POME_KERNEL_KC ? k - p : POME_KERNEL_KC;
        for (size_t first = 0; first < m; first += MC) {
            size_t end = m - first < MC ? m : first + MC;
            for (size_t j = 0; j < whole; j += 4)
                for (size_t i = first; i < end; i += NT_ROWS)
                    nt_rows(c + i * ldc + j, ldc, a + i * lda + p, lda, b + j * ldb + p, ldb, len, accumulate || p > 0,
                            end - i < NT_ROWS ? end - i : NT_ROWS);
        }
    }
    if (k && whole < n)
        pome_gemm_nt_f32_avx2(c + whole, ldc, a, lda, b + whole * ldb, ldb, m, n - whole, k, accumulate);
}

ALWAYS_INLINE __mmask16 lanes(size_t n)
{
    return n >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}

/* n_rows rows by n_vectors vectors of columns, n columns in all. */
ALWAYS_INLINE void nn_tile(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t n,
                           size_t k, bool add, size_t n_rows, size_t n_vectors)
{
    __m512 acc[NN_ROWS][NN_WIDE];
    __mmask16 mask[NN_WIDE];
    for (size_t j = 0; j < n_vectors; j++)
        mask[j] = lanes(n > 16 * j ? n - 16 * j : 0);
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < n_vectors; j++)
            acc[i][j] = add ? _mm512_maskz_loadu_ps(mask[j], c + i * ldc + 16 * j) : _mm512_setzero_ps();
    for (size_t p = 0; p < k; p++) {
        __m512 bv[NN_WIDE];
        for (size_t j = 0; j < n_vectors; j++)
            bv[j] = _mm512_maskz_loadu_ps(mask[j], b + p * ldb + 16 * j);
        for (size_t i = 0; i < n_rows; i++) {
            __m512 s = _mm512_set1_ps(a[i * lda + p]);
            for (size_t j = 0; j < n_vectors; j++)
                acc[i][j] = _mm512_fmadd_ps(s, bv[j], acc[i][j]);
        }
    }
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < n_vectors; j++)
            _mm512_mask_storeu_ps(c + i * ldc + 16 * j, mask[j], acc[i][j]);
}

static void gemm_nn(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t m, size_t n,
                    size_t k, bool accumulate)
{
    size_t i = 0;
    for (; i + NN_ROWS <= m; i += NN_ROWS)
        for (size_t j = 0; j < n; j += 32)
            nn_tile(c + i * ldc + j, ldc, a + i * lda, lda, b + j, ldb, n - j, k, accumulate, NN_ROWS, 2);
    for (; i + 2 <= m; i += 2)
        for (size_t j = 0; j < n; j += 64)
            nn_tile(c + i * ldc + j, ldc, a + i * lda, lda, b + j, ldb, n - j, k, accumulate, 2, 4);
    for (; i < m; i++)
        for (size_t j = 0; j < n; j += 128)
            nn_tile(c + i * ldc + j, ldc, a + i * lda, lda, b + j, ldb, n - j, k, accumulate, 1, NN_WIDE);
}

void pome_kernels_fill_gemm_avx512(pome_kernels *k)
{
    k->gemm_nt_f32 = gemm_nt;
    k->gemm_nn_f32 = gemm_nn;
}
