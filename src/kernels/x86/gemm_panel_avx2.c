/* Products with a packed operand of 16 columns, as convolutions have them. A tile is 6 rows by two vectors or, where only half of the
 * panel is used, 12 rows by one: twelve sums, which hide the latency of the multiply-add. The loops over a tile are unrolled, so
 * that its sums stay in registers from the first load to the last store: of short products those are a good part. */
#include "kernels/x86/avx2.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { ROWS_WIDE = 6, ROWS_NARROW = 12 };

/* What is the same for all tiles of a product. */
typedef struct product {
    size_t ldc, lda, step, ldb, k;
    const float *b;
    const size_t *at; /* NULL: row p lies at p * ldb */
    const pome_panel_end *end;
    __m256i mask; /* of the last vector of columns */
} product;

ALWAYS_INLINE __m256 load(const float *p, __m256i mask, bool whole)
{
    return whole ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, mask);
}

/* How operands lie: `a` by rows or by columns (lda is 1, so that rows are at constant distances), b's rows evenly or at places. */
typedef enum order { BY_ROWS, BY_COLUMNS, AT_PLACES } order;

/* Rows from `first` on. lies, add, n_rows, n_vectors and whole (whether the last vector is) are constants where it is called. */
ALWAYS_INLINE void tile(const product *t, float *c, const float *a, size_t first, order lies, bool add, size_t n_rows,
                        size_t n_vectors, bool whole)
{
    const pome_panel_end *end = t->end;
    const size_t ldc = t->ldc, lda = lies == BY_COLUMNS ? 1 : t->lda, step = t->step, ldb = t->ldb, k = t->k;
    const float *b = t->b;
    const __m256i mask = t->mask;
    __m256 acc[ROWS_NARROW][2];
    c += first * ldc;
    a += first * lda;
    const bool is_at = lies == AT_PLACES;
    AVX2_UNROLL
    for (size_t i = 0; i < n_rows; i++)
        AVX2_UNROLL
        for (size_t j = 0; j < n_vectors; j++)
            acc[i][j] = add ? load(c + i * ldc + 8 * j, mask, whole || j + 1 < n_vectors) : _mm256_setzero_ps();
    for (size_t p = 0; p < k; p++) {
        const float *row = is_at ? b + t->at[p] : b;
        __m256 bv[2];
        AVX2_UNROLL
        for (size_t j = 0; j < n_vectors; j++)
            bv[j] = _mm256_loadu_ps(row + 8 * j);
        AVX2_UNROLL
        for (size_t i = 0; i < n_rows; i++) {
            __m256 s = _mm256_set1_ps(a[i * lda]);
            AVX2_UNROLL
            for (size_t j = 0; j < n_vectors; j++)
                acc[i][j] = _mm256_fmadd_ps(s, bv[j], acc[i][j]);
        }
        a += step;
        b = is_at ? b : b + ldb;
    }
    if (end && end->bias)
        AVX2_UNROLL
        for (size_t i = 0; i < n_rows; i++) {
            const __m256 bias = _mm256_set1_ps(end->bias[first + i]);
            AVX2_UNROLL
            for (size_t j = 0; j < n_vectors; j++)
                acc[i][j] = _mm256_add_ps(acc[i][j], bias);
        }
    if (end && end->addend)
        AVX2_UNROLL
        for (size_t i = 0; i < n_rows; i++)
            AVX2_UNROLL
            for (size_t j = 0; j < n_vectors; j++)
                acc[i][j] = _mm256_add_ps(acc[i][j], load(end->addend + (first + i) * ldc + 8 * j, mask, whole || j + 1 < n_vectors));
    if (end) {
        const __m256 low = _mm256_set1_ps(end->low), high = _mm256_set1_ps(end->high);
        AVX2_UNROLL
        for (size_t i = 0; i < n_rows; i++)
            AVX2_UNROLL
            for (size_t j = 0; j < n_vectors; j++) /* the second operand if one is NaN */
                acc[i][j] = _mm256_min_ps(high, _mm256_max_ps(low, acc[i][j]));
    }
    AVX2_UNROLL
    for (size_t i = 0; i < n_rows; i++)
        AVX2_UNROLL
        for (size_t j = 0; j < n_vectors; j++) {
            if (whole || j + 1 < n_vectors)
                _mm256_storeu_ps(c + i * ldc + 8 * j, acc[i][j]);
            else
                _mm256_maskstore_ps(c + i * ldc + 8 * j, mask, acc[i][j]);
        }
}

#define TILE(rows, vectors) tile(t, c, a, i, lies, add, rows, vectors, whole)

ALWAYS_INLINE void wide(const product *t, float *c, const float *a, size_t m, order lies, bool add, bool whole)
{
    size_t i = 0;
    for (; i + ROWS_WIDE <= m; i += ROWS_WIDE)
        TILE(ROWS_WIDE, 2);
    switch (m - i) {
    case 1: TILE(1, 2); break;
    case 2: TILE(2, 2); break;
    case 3: TILE(3, 2); break;
    case 4: TILE(4, 2); break;
    case 5: TILE(5, 2); break;
    default: break;
    }
}

ALWAYS_INLINE void narrow(const product *t, float *c, const float *a, size_t m, order lies, bool add, bool whole)
{
    size_t i = 0;
    for (; i + ROWS_NARROW <= m; i += ROWS_NARROW)
        TILE(ROWS_NARROW, 1);
    for (; i + 4 <= m; i += 4)
        TILE(4, 1);
    switch (m - i) {
    case 1: TILE(1, 1); break;
    case 2: TILE(2, 1); break;
    case 3: TILE(3, 1); break;
    default: break;
    }
}

ALWAYS_INLINE void columns(const product *t, float *c, const float *a, size_t m, size_t n, order lies, bool add)
{
    if (n == POME_PANEL && add)
        wide(t, c, a, m, lies, true, true);
    else if (n == POME_PANEL)
        wide(t, c, a, m, lies, false, true);
    else if (n > 8)
        wide(t, c, a, m, lies, add, false);
    else
        narrow(t, c, a, m, lies, add, n == 8);
}

void pome_gemm_panel_f32_avx2(float *c, size_t ldc, const float *a, size_t lda, size_t step, const float *b, size_t ldb, size_t m,
                              size_t n, size_t k, bool accumulate, const pome_panel_end *end)
{
    const product t = {.ldc = ldc, .lda = lda, .step = step, .ldb = ldb, .k = k, .b = b, .end = end, .mask = avx2_mask(n % 8)};
    if (lda == 1)
        columns(&t, c, a, m, n, BY_COLUMNS, accumulate);
    else
        columns(&t, c, a, m, n, BY_ROWS, accumulate);
}

void pome_gemm_at_f32_avx2(float *c, size_t ldc, const float *a, size_t lda, const float *b, const size_t *at, size_t m, size_t n,
                           size_t k, const pome_panel_end *end)
{
    const product t = {.ldc = ldc, .lda = lda, .step = 1, .k = k, .b = b, .at = at, .end = end, .mask = avx2_mask(n % 8)};
    columns(&t, c, a, m, n, AT_PLACES, false);
}
