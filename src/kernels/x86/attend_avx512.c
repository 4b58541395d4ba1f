/* Products with a half-precision matrix in 512-bit vectors: the few query rows of a decoding step over a cache as it lies.
 * The same order of sums, and so the same bits, as the fp32 products (gemm_avx512.c).
 *
 * nt: eight halves of two rows of b fill a vector; up to 3 x 4 results, the halves converted once for all rows of a.
 * nn: columns are the vector axis, up to 3 rows x 64 columns. Ends of rows are loaded through a small buffer, and
 * nothing is read beyond them. */
#include "kernels/x86/avx2.h"

#ifdef POME_EMULATE_AVX512 /* tests on machines without it */
#include POME_EMULATE_AVX512
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { ROWS = 3, WIDE = 4, AHEAD = 16 /* rows of b, see attend_avx2.c */ };

static inline void prefetch_row(const uint16_t *row, size_t n)
{
    for (size_t i = 0; i < n; i += 32)
        _mm_prefetch((const char *)(row + i), _MM_HINT_T0);
}

ALWAYS_INLINE __m128i halves(const uint16_t *p, size_t n)
{
    uint16_t tail[8] = {0};
    if (n >= 8)
        return _mm_loadu_si128((const __m128i *)(const void *)p);
    memcpy(tail, p, n * sizeof *p);
    return _mm_loadu_si128((const __m128i *)(const void *)tail);
}

ALWAYS_INLINE __m512 two_rows(const uint16_t *a, const uint16_t *b, size_t n)
{
    return _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(halves(a, n)), halves(b, n), 1));
}

ALWAYS_INLINE void nt_tile(float *c, size_t ldc, const float *a, size_t lda, const uint16_t *const *b, size_t k, size_t rows,
                           size_t columns, bool add)
{
    __m512 acc[ROWS][2];
    for (size_t i = 0; i < rows; i++)
        acc[i][0] = acc[i][1] = _mm512_setzero_ps();
    for (size_t p = 0; p < k; p += 8) {
        size_t left = k - p < 8 ? k - p : 8;
        __m512 b0 = two_rows(b[0] + p, b[1] + p, left), b1 = two_rows(b[2] + p, b[3] + p, left);
        for (size_t i = 0; i < rows; i++) {
            const float *row = a + i * lda + p;
            __m512 av = _mm512_broadcast_f32x8(left == 8 ? _mm256_loadu_ps(row) : avx2_load_part(row, left));
            acc[i][0] = _mm512_fmadd_ps(av, b0, acc[i][0]);
            acc[i][1] = _mm512_fmadd_ps(av, b1, acc[i][1]);
        }
    }
    for (size_t i = 0; i < rows; i++) {
        float sum[4];
        _mm_storeu_ps(sum, avx2_sum4(_mm512_castps512_ps256(acc[i][0]), _mm512_extractf32x8_ps(acc[i][0], 1),
                                     _mm512_castps512_ps256(acc[i][1]), _mm512_extractf32x8_ps(acc[i][1], 1)));
        for (size_t j = 0; j < columns; j++)
            c[i * ldc + j] = add ? c[i * ldc + j] + sum[j] : sum[j];
    }
}

static size_t rows_at_once(size_t left)
{
    return left == 4 || left == 2 ? 2 : left < 3 ? left : 3;
}

static void gemm_nt_f16(float *c, size_t ldc, const float *a, size_t lda, const uint16_t *b, size_t ldb, size_t m, size_t n,
                        size_t k, bool accumulate)
{
    for (size_t i = 0; k == 0 && !accumulate && i < m; i++)
        memset(c + i * ldc, 0, n * sizeof *c);
    for (size_t p = 0; p < k; p += POME_KERNEL_KC) {
        size_t len = k - p < POME_KERNEL_KC ? k - p : POME_KERNEL_KC;
        bool add = accumulate || p > 0;
        for (size_t j = 0; j < n; j += 4) {
            size_t columns = n - j < 4 ? n - j : 4;
            const uint16_t *y[4];
            for (size_t t = 0; t < 4; t++)
                y[t] = b + (j + (t < columns ? t : 0)) * ldb + p;
            for (size_t t = 0; t < 4 && j + AHEAD + t < n; t++)
                prefetch_row(b + (j + AHEAD + t) * ldb + p, len);
            for (size_t i = 0, rows; i < m; i += rows) {
                float *to = c + i * ldc + j;
                rows = rows_at_once(m - i);
                if (rows == 3)
                    nt_tile(to, ldc, a + i * lda + p, lda, y, len, 3, columns, add);
                else if (rows == 2)
                    nt_tile(to, ldc, a + i * lda + p, lda, y, len, 2, columns, add);
                else
                    nt_tile(to, ldc, a + i * lda + p, lda, y, len, 1, columns, add);
            }
        }
    }
}

ALWAYS_INLINE __mmask16 lanes(size_t n)
{
    return n >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}

ALWAYS_INLINE __m512 sixteen(const uint16_t *p, size_t n)
{
    uint16_t tail[16] = {0};
    if (n >= 16)
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
    memcpy(tail, p, n * sizeof *p);
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)tail));
}

/* rows x n columns, n <= 16 * vectors */
ALWAYS_INLINE void nn_tile(float *c, size_t ldc, const float *a, size_t lda, const uint16_t *b, size_t ldb, size_t n, size_t k,
                           size_t rows, size_t vectors, size_t fetch, bool add)
{
    __m512 acc[ROWS][WIDE];
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < vectors; j++)
            acc[i][j] = add ? _mm512_maskz_loadu_ps(lanes(n - 16 * j), c + i * ldc + 16 * j) : _mm512_setzero_ps();
    for (size_t p = 0; p < k; p++) {
        __m512 s[ROWS];
        if (fetch && p + AHEAD < k)
            prefetch_row(b + (p + AHEAD) * ldb, fetch);
        for (size_t i = 0; i < rows; i++)
            s[i] = _mm512_set1_ps(a[i * lda + p]);
        for (size_t j = 0; j < vectors; j++) {
            __m512 y = sixteen(b + p * ldb + 16 * j, n - 16 * j);
            for (size_t i = 0; i < rows; i++)
                acc[i][j] = _mm512_fmadd_ps(s[i], y, acc[i][j]);
        }
    }
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < vectors; j++)
            _mm512_mask_storeu_ps(c + i * ldc + 16 * j, lanes(n - 16 * j), acc[i][j]);
}

ALWAYS_INLINE void nn_rows(float *c, size_t ldc, const float *a, size_t lda, const uint16_t *b, size_t ldb, size_t n, size_t k,
                           size_t rows, bool add, bool first)
{
    size_t j = 0;
    for (; j + 64 <= n; j += 64)
        nn_tile(c + j, ldc, a, lda, b + j, ldb, 64, k, rows, WIDE, j == 0 && first ? n : 0, add);
    for (; j < n; j += 16)
        nn_tile(c + j, ldc, a, lda, b + j, ldb, n - j, k, rows, 1, 0, add);
}

static void gemm_nn_f16(float *c, size_t ldc, const float *a, size_t lda, const uint16_t *b, size_t ldb, size_t m, size_t n,
                        size_t k, bool accumulate)
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

void pome_kernels_fill_attend_avx512(pome_kernels *k)
{
    k->gemm_nt_f16 = gemm_nt_f16;
    k->gemm_nn_f16 = gemm_nn_f16;
}
