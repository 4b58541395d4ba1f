/* Products with a packed operand of 16 columns, as convolutions have them. A tile is 6 rows by two vectors or, where only half of the
 * panel is used, 12 rows by one: twelve sums, which hide the latency of the multiply-add. */
#include "kernels/panel_part.h"
#include "kernels/x86/avx2.h"

enum { ROWS_WIDE = 6, ROWS_NARROW = POME_PANEL_PART_ROWS };

/* n_rows and n_vectors are constants where it is called, so that the sums stay in registers. */
static inline __attribute__((always_inline)) void tile(float *c, size_t ldc, const float *a, size_t lda, const float *b,
                                                       size_t k, bool add, const pome_panel_end *end, size_t n_rows,
                                                       size_t n_vectors)
{
    __m256 acc[ROWS_NARROW][2];
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < n_vectors; j++)
            acc[i][j] = add ? _mm256_loadu_ps(c + i * ldc + 8 * j) : _mm256_setzero_ps();
    for (size_t p = 0; p < k; p++, b += POME_PANEL) {
        __m256 bv[2];
        for (size_t j = 0; j < n_vectors; j++)
            bv[j] = _mm256_loadu_ps(b + 8 * j);
        for (size_t i = 0; i < n_rows; i++) {
            __m256 s = _mm256_set1_ps(a[i * lda + p]);
            for (size_t j = 0; j < n_vectors; j++)
                acc[i][j] = _mm256_fmadd_ps(s, bv[j], acc[i][j]);
        }
    }
    if (end) {
        const __m256 low = _mm256_set1_ps(end->low), high = _mm256_set1_ps(end->high);
        for (size_t i = 0; i < n_rows; i++)
            for (size_t j = 0; j < n_vectors; j++) {
                __m256 v = acc[i][j];
                if (end->bias)
                    v = _mm256_add_ps(v, _mm256_set1_ps(end->bias[i]));
                if (end->addend)
                    v = _mm256_add_ps(v, _mm256_loadu_ps(end->addend + i * ldc + 8 * j));
                v = _mm256_max_ps(low, v); /* the second operand if one is NaN */
                acc[i][j] = _mm256_min_ps(high, v);
            }
    }
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < n_vectors; j++)
            _mm256_storeu_ps(c + i * ldc + 8 * j, acc[i][j]);
}

#define TILE(rows, vectors) tile(c, ldc, a, lda, b, k, add, end, rows, vectors)

static void wide(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t k, bool add,
                 const pome_panel_end *end, size_t n_rows)
{
    switch (n_rows) {
    case 1: TILE(1, 2); break;
    case 2: TILE(2, 2); break;
    case 3: TILE(3, 2); break;
    case 4: TILE(4, 2); break;
    case 5: TILE(5, 2); break;
    default: TILE(6, 2); break;
    }
}

static void narrow(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t k, bool add,
                   const pome_panel_end *end, size_t n_rows)
{
    switch (n_rows) {
    case 1: TILE(1, 1); break;
    case 2: TILE(2, 1); break;
    case 3: TILE(3, 1); break;
    case 4: TILE(4, 1); break;
    case 6: TILE(6, 1); break;
    default: TILE(12, 1); break;
    }
}

/* Rows that the tile for a rest may have. */
static size_t narrow_rows(size_t left)
{
    return left >= 12 ? 12 : left >= 6 ? 6 : left >= 4 ? 4 : left;
}

static void rows_of(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t k, bool add,
                    const pome_panel_end *end, size_t n_rows, size_t n)
{
    if (n > 8)
        wide(c, ldc, a, lda, b, k, add, end, n_rows);
    else
        narrow(c, ldc, a, lda, b, k, add, end, n_rows);
}

void pome_gemm_panel_f32_avx2(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t m, size_t n, size_t k,
                              bool accumulate, const pome_panel_end *end)
{
    for (size_t i = 0, rows; i < m; i += rows) {
        pome_panel_end here;
        const pome_panel_end *last = end ? &here : NULL;
        rows = n <= 8 ? narrow_rows(m - i) : m - i < ROWS_WIDE ? m - i : ROWS_WIDE;
        if (end) {
            here = *end;
            here.bias = end->bias ? end->bias + i : NULL;
            here.addend = end->addend ? end->addend + i * ldc : NULL;
        }
        if (n % 8 == 0)
            rows_of(c + i * ldc, ldc, a + i * lda, lda, b, k, accumulate, last, rows, n);
        else
            pome_panel_part(rows_of, c + i * ldc, ldc, a + i * lda, lda, b, k, accumulate, last, rows, n);
    }
}
