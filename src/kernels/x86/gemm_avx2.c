/* Matrix products for AVX2 + FMA.
 *
 * nt: both operands have k innermost. A tile of up to 3 x 4 results keeps one vector accumulator each (12 of the 16
 * registers; 7 loads feed 12 multiply-adds), so nothing is packed and each result is summed in the same order in
 * every tile size. Blocks of KC = 512 keep three rows of a and four of b (14 KB) in the first-level cache; MC = 48
 * rows of a (96 KB) stay in the second while the rows of b pass.
 *
 * nn: columns are the vector axis, k is taken in turn; tiles of 4 x 16, or 1 x 64 for the last rows, where eight
 * accumulators are needed to hide the latency of the multiply-add. */
#include "kernels/x86/avx2.h"

enum { MC = 48 };

/* One 8-wide step for rows 0..2 of a and 0..3 of b through load macro L(pointer). */
#define NT_STEP3(L)                                                                                                    \
    do {                                                                                                               \
        __m256 a0 = L(a + p), a1 = L(a + lda + p), a2 = L(a + 2 * lda + p), bv;                                        \
        bv = L(b + p);                                                                                                 \
        c00 = _mm256_fmadd_ps(a0, bv, c00), c10 = _mm256_fmadd_ps(a1, bv, c10), c20 = _mm256_fmadd_ps(a2, bv, c20);    \
        bv = L(b + ldb + p);                                                                                           \
        c01 = _mm256_fmadd_ps(a0, bv, c01), c11 = _mm256_fmadd_ps(a1, bv, c11), c21 = _mm256_fmadd_ps(a2, bv, c21);    \
        bv = L(b + 2 * ldb + p);                                                                                       \
        c02 = _mm256_fmadd_ps(a0, bv, c02), c12 = _mm256_fmadd_ps(a1, bv, c12), c22 = _mm256_fmadd_ps(a2, bv, c22);    \
        bv = L(b + 3 * ldb + p);                                                                                       \
        c03 = _mm256_fmadd_ps(a0, bv, c03), c13 = _mm256_fmadd_ps(a1, bv, c13), c23 = _mm256_fmadd_ps(a2, bv, c23);    \
    } while (0)
#define NT_STEP1(L)                                                                                                    \
    do {                                                                                                               \
        __m256 a0 = L(a + p);                                                                                          \
        c00 = _mm256_fmadd_ps(a0, L(b + p), c00);                                                                      \
        c01 = _mm256_fmadd_ps(a0, L(b + ldb + p), c01);                                                                \
        c02 = _mm256_fmadd_ps(a0, L(b + 2 * ldb + p), c02);                                                            \
        c03 = _mm256_fmadd_ps(a0, L(b + 3 * ldb + p), c03);                                                            \
    } while (0)
#define LOAD_PART(ptr) _mm256_maskload_ps((ptr), part)

static void put4(float *c, __m128 sum, bool add)
{
    _mm_storeu_ps(c, add ? _mm_add_ps(_mm_loadu_ps(c), sum) : sum);
}

static void nt_3x4(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t k, bool add)
{
    __m256 c00 = _mm256_setzero_ps(), c01 = c00, c02 = c00, c03 = c00, c10 = c00, c11 = c00, c12 = c00, c13 = c00,
           c20 = c00, c21 = c00, c22 = c00, c23 = c00;
    size_t p = 0;
    for (; p + 8 <= k; p += 8)
        NT_STEP3(_mm256_loadu_ps);
    if (p < k) {
        __m256i part = avx2_mask(k - p);
        NT_STEP3(LOAD_PART);
    }
    put4(c, avx2_sum4(c00, c01, c02, c03), add);
    put4(c + ldc, avx2_sum4(c10, c11, c12, c13), add);
    put4(c + 2 * ldc, avx2_sum4(c20, c21, c22, c23), add);
}

static void nt_1x4(float *c, const float *a, const float *b, size_t ldb, size_t k, bool add)
{
    __m256 c00 = _mm256_setzero_ps(), c01 = c00, c02 = c00, c03 = c00;
    size_t p = 0;
    for (; p + 8 <= k; p += 8)
        NT_STEP1(_mm256_loadu_ps);
    if (p < k) {
        __m256i part = avx2_mask(k - p);
        NT_STEP1(LOAD_PART);
    }
    put4(c, avx2_sum4(c00, c01, c02, c03), add);
}

/* Up to four rows of a against one row of b: the same product with the roles changed. */
static void nt_4x1(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t k, size_t m, bool add)
{
    float sum[4];
    if (m == 4) {
        nt_1x4(sum, b, a, lda, k, false);
    } else {
        for (size_t i = 0; i < m; i++) {
            __m256 acc = _mm256_setzero_ps();
            size_t p = 0;
            for (; p + 8 <= k; p += 8)
                acc = _mm256_fmadd_ps(_mm256_loadu_ps(a + i * lda + p), _mm256_loadu_ps(b + p), acc);
            if (p < k)
                acc = _mm256_fmadd_ps(avx2_load_part(a + i * lda + p, k - p), avx2_load_part(b + p, k - p), acc);
            sum[i] = avx2_sum(acc);
        }
    }
    for (size_t i = 0; i < m; i++)
        c[i * ldc] = add ? c[i * ldc] + sum[i] : sum[i];
}

static void nt_block(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t m, size_t n,
                     size_t k, bool add)
{
    size_t j = 0;
    for (; j + 4 <= n; j += 4) {
        size_t i = 0;
        for (; i + 3 <= m; i += 3)
            nt_3x4(c + i * ldc + j, ldc, a + i * lda, lda, b + j * ldb, ldb, k, add);
        for (; i < m; i++)
            nt_1x4(c + i * ldc + j, a + i * lda, b + j * ldb, ldb, k, add);
    }
    for (; j < n; j++)
        for (size_t i = 0; i < m; i += 4)
            nt_4x1(c + i * ldc + j, ldc, a + i * lda, lda, b + j * ldb, k, m - i < 4 ? m - i : 4, add);
}

void pome_gemm_nt_f32_avx2(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t m,
                           size_t n, size_t k, bool accumulate)
{
    if (k == 0 && !accumulate)
        for (size_t i = 0; i < m; i++)
            memset(c + i * ldc, 0, n * sizeof *c);
    for (size_t p = 0; p < k; p += POME_KERNEL_KC)
        for (size_t i = 0; i < m; i += MC)
            nt_block(c + i * ldc, ldc, a + i * lda + p, lda, b + p, ldb, m - i < MC ? m - i : MC, n,
                     k - p < POME_KERNEL_KC ? k - p : POME_KERNEL_KC, accumulate || p > 0);
}

enum { NN_ROWS = 6 };

/* n_rows by 16; n_rows is a constant where it is called, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void nn_tile(float *c, size_t ldc, const float *a, size_t lda, const float *b,
                                                          size_t ldb, size_t k, bool add, size_t n_rows)
{
    __m256 acc[NN_ROWS][2];
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < 2; j++)
            acc[i][j] = add ? _mm256_loadu_ps(c + i * ldc + 8 * j) : _mm256_setzero_ps();
    for (size_t p = 0; p < k; p++) {
        __m256 b0 = _mm256_loadu_ps(b + p * ldb), b1 = _mm256_loadu_ps(b + p * ldb + 8);
        for (size_t i = 0; i < n_rows; i++) {
            __m256 s = _mm256_set1_ps(a[i * lda + p]);
            acc[i][0] = _mm256_fmadd_ps(s, b0, acc[i][0]);
            acc[i][1] = _mm256_fmadd_ps(s, b1, acc[i][1]);
        }
    }
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < 2; j++)
            _mm256_storeu_ps(c + i * ldc + 8 * j, acc[i][j]);
}

static void nn_rows(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t k, bool add,
                    size_t n_rows)
{
    switch (n_rows) {
    case 2: nn_tile(c, ldc, a, lda, b, ldb, k, add, 2); break;
    case 3: nn_tile(c, ldc, a, lda, b, ldb, k, add, 3); break;
    case 4: nn_tile(c, ldc, a, lda, b, ldb, k, add, 4); break;
    case 5: nn_tile(c, ldc, a, lda, b, ldb, k, add, 5); break;
    default: nn_tile(c, ldc, a, lda, b, ldb, k, add, 6); break;
    }
}

static void nn_1x64(float *c, const float *a, const float *b, size_t ldb, size_t k, bool add)
{
    __m256 acc[8];
    for (size_t j = 0; j < 8; j++)
        acc[j] = add ? _mm256_loadu_ps(c + 8 * j) : _mm256_setzero_ps();
    for (size_t p = 0; p < k; p++) {
        __m256 s = _mm256_set1_ps(a[p]);
        for (size_t j = 0; j < 8; j++)
            acc[j] = _mm256_fmadd_ps(s, _mm256_loadu_ps(b + p * ldb + 8 * j), acc[j]);
    }
    for (size_t j = 0; j < 8; j++)
        _mm256_storeu_ps(c + 8 * j, acc[j]);
}

static void nn_1x8(float *c, const float *a, const float *b, size_t ldb, size_t k, size_t n /* 1..8 */, bool add)
{
    __m256i part = avx2_mask(n);
    __m256 acc = add ? _mm256_maskload_ps(c, part) : _mm256_setzero_ps();
    for (size_t p = 0; p < k; p++)
        acc = _mm256_fmadd_ps(_mm256_set1_ps(a[p]), _mm256_maskload_ps(b + p * ldb, part), acc);
    _mm256_maskstore_ps(c, part, acc);
}

static void nn_row(float *c, const float *a, const float *b, size_t ldb, size_t n, size_t k, bool add)
{
    size_t j = 0;
    for (; j + 64 <= n; j += 64)
        nn_1x64(c + j, a, b + j, ldb, k, add);
    for (; j < n; j += 8)
        nn_1x8(c + j, a, b + j, ldb, k, n - j < 8 ? n - j : 8, add);
}

void pome_gemm_nn_f32_avx2(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t m,
                           size_t n, size_t k, bool accumulate)
{
    for (size_t i = 0; i < m; i += NN_ROWS) {
        size_t rows = m - i < NN_ROWS ? m - i : NN_ROWS, j = 0;
        for (; rows > 1 && j + 16 <= n; j += 16)
            nn_rows(c + i * ldc + j, ldc, a + i * lda, lda, b + j, ldb, k, accumulate, rows);
        for (size_t r = i; r < i + rows && j < n; r++)
            nn_row(c + r * ldc + j, a + r * lda, b + j, ldb, n - j, k, accumulate);
    }
}
