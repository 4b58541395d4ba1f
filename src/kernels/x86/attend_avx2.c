/* Products with a half-precision matrix as it lies in a cache, for the few query rows of a decoding step (AVX2, FMA,
 * F16C). A vector of the cache is converted once and used for up to three rows; sums have the order of
 * kernels/kernels.h, so that a row comes out as from the fp32 products.
 *
 * nt: tiles of up to 3 x 4 results, an accumulator each. nn: tiles of up to 3 rows x 32 columns. Tails of k (nt) and
 * of columns (nn) are loaded through a small buffer or by mask; nothing is read beyond them. */
#include "kernels/x86/avx2.h"

/* Rows come from memory in decoding, and the hardware finds their pattern late: lines are asked for this many rows
 * ahead (2 to 4 KB for heads of 64 to 128). Tried: 8 to 64. */
enum { AHEAD = 16 };

static inline void prefetch_row(const uint16_t *row, size_t n)
{
    for (size_t i = 0; i < n; i += 32)
        _mm_prefetch((const char *)(row + i), _MM_HINT_T0);
}

static inline __attribute__((always_inline)) void nt_step(__m256 acc[3][4], const float *a, size_t lda,
                                                          const uint16_t *const *b, size_t p, size_t rows, size_t left)
{
    __m256 x[3];
    for (size_t i = 0; i < rows; i++)
        x[i] = left >= 8 ? _mm256_loadu_ps(a + i * lda + p) : avx2_load_part(a + i * lda + p, left);
    for (size_t j = 0; j < 4; j++) {
        __m256 y = left >= 8 ? avx2_load_f16(b[j] + p) : avx2_load_f16_part(b[j] + p, left);
        for (size_t i = 0; i < rows; i++)
            acc[i][j] = _mm256_fmadd_ps(x[i], y, acc[i][j]);
    }
}

static inline __attribute__((always_inline)) void nt_tile(float *c, size_t ldc, const float *a, size_t lda,
                                                          const uint16_t *const *b, size_t k, size_t rows,
                                                          size_t columns, bool add)
{
    __m256 acc[3][4];
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < 4; j++)
            acc[i][j] = _mm256_setzero_ps();
    size_t p = 0;
    for (; p + 8 <= k; p += 8)
        nt_step(acc, a, lda, b, p, rows, 8);
    if (p < k)
        nt_step(acc, a, lda, b, p, rows, k - p);
    for (size_t i = 0; i < rows; i++) {
        float sum[4];
        _mm_storeu_ps(sum, avx2_sum4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]));
        for (size_t j = 0; j < columns; j++)
            c[i * ldc + j] = add ? c[i * ldc + j] + sum[j] : sum[j];
    }
}

static void nt_rows(float *c, size_t ldc, const float *a, size_t lda, const uint16_t *const *b, size_t k, size_t rows,
                    size_t columns, bool add)
{
    if (rows == 3)
        nt_tile(c, ldc, a, lda, b, k, 3, columns, add);
    else if (rows == 2)
        nt_tile(c, ldc, a, lda, b, k, 2, columns, add);
    else
        nt_tile(c, ldc, a, lda, b, k, 1, columns, add);
}

/* 4 rows are 2 + 2, not 3 + 1: a row alone waits for its own multiply-adds. */
static size_t rows_at_once(size_t left)
{
    return left == 4 || left == 2 ? 2 : left < 3 ? left : 3;
}

void pome_gemm_nt_f16_avx2(float *c, size_t ldc, const float *a, size_t lda, const uint16_t *b, size_t ldb, size_t m,
                           size_t n, size_t k, bool accumulate)
{
    for (size_t i = 0; k == 0 && !accumulate && i < m; i++)
        memset(c + i * ldc, 0, n * sizeof *c);
    for (size_t p = 0; p < k; p += POME_KERNEL_KC) {
        size_t len = k - p < POME_KERNEL_KC ? k - p : POME_KERNEL_KC;
        for (size_t j = 0; j < n; j += 4) {
            size_t columns = n - j < 4 ? n - j : 4;
            const uint16_t *y[4];
            for (size_t t = 0; t < 4; t++)
                y[t] = b + (j + (t < columns ? t : 0)) * ldb + p;
            for (size_t t = 0; t < 4 && j + AHEAD + t < n; t++)
                prefetch_row(b + (j + AHEAD + t) * ldb + p, len);
            for (size_t i = 0, rows; i < m; i += rows) {
                rows = rows_at_once(m - i);
                nt_rows(c + i * ldc + j, ldc, a + i * lda + p, lda, y, len, rows, columns, accumulate || p > 0);
            }
        }
    }
}

/* rows x 8 * vectors columns; `fetch` columns of later rows are asked for on the way */
static inline __attribute__((always_inline)) void nn_tile(float *c, size_t ldc, const float *a, size_t lda,
                                                          const uint16_t *b, size_t ldb, size_t k, size_t rows,
                                                          size_t vectors, size_t fetch, bool add)
{
    __m256 acc[3][4];
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < vectors; j++)
            acc[i][j] = add ? _mm256_loadu_ps(c + i * ldc + 8 * j) : _mm256_setzero_ps();
    for (size_t p = 0; p < k; p++) {
        __m256 s[3];
        if (fetch && p + AHEAD < k)
            prefetch_row(b + (p + AHEAD) * ldb, fetch);
        for (size_t i = 0; i < rows; i++)
            s[i] = _mm256_set1_ps(a[i * lda + p]);
        for (size_t j = 0; j < vectors; j++) {
            __m256 y = avx2_load_f16(b + p * ldb + 8 * j);
            for (size_t i = 0; i < rows; i++)
                acc[i][j] = _mm256_fmadd_ps(s[i], y, acc[i][j]);
        }
    }
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < vectors; j++)
            _mm256_storeu_ps(c + i * ldc + 8 * j, acc[i][j]);
}

static void nn_last(float *c, const float *a, const uint16_t *b, size_t ldb, size_t k, size_t n /* < 8 */, bool add)
{
    __m256 acc = add ? avx2_load_part(c, n) : _mm256_setzero_ps();
    for (size_t p = 0; p < k; p++)
        acc = _mm256_fmadd_ps(_mm256_set1_ps(a[p]), avx2_load_f16_part(b + p * ldb, n), acc);
    avx2_store_part(c, acc, n);
}

static inline __attribute__((always_inline)) void nn_rows(float *c, size_t ldc, const float *a, size_t lda,
                                                          const uint16_t *b, size_t ldb, size_t n, size_t k,
                                                          size_t rows, bool add, bool first)
{
    size_t j = 0;
    for (; j + 32 <= n; j += 32)
        nn_tile(c + j, ldc, a, lda, b + j, ldb, k, rows, 4, j == 0 && first ? n : 0, add);
    for (; j + 8 <= n; j += 8)
        nn_tile(c + j, ldc, a, lda, b + j, ldb, k, rows, 1, 0, add);
    for (size_t i = 0; i < rows && j < n; i++)
        nn_last(c + i * ldc + j, a + i * lda, b + j, ldb, k, n - j, add);
}

void pome_gemm_nn_f16_avx2(float *c, size_t ldc, const float *a, size_t lda, const uint16_t *b, size_t ldb, size_t m,
                           size_t n, size_t k, bool accumulate)
{
    for (size_t i = 0, rows; i < m; i += rows) {
        rows = rows_at_once(m - i);
        if (rows == 3)
            nn_rows(c + i * ldc, ldc, a + i * lda, lda, b, ldb, n, k, 3, accumulate, i == 0);
        else if (rows == 2)
            nn_rows(c + i * ldc, ldc, a + i * lda, lda, b, ldb, n, k, 2, accumulate, i == 0);
        else
            nn_rows(c + i * ldc, ldc, a + i * lda, lda, b, ldb, n, k, 1, accumulate, i == 0);
    }
}
