/* Convolutions in vectors of four, in the order of sums of the other levels: the same bits as AVX2's. */
#include <arm_neon.h>
#include <stdbool.h>
#include <string.h>

#include "kernels/kernels.h"
#include "kernels/panel_part.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { ROWS = 6, VECTORS = POME_PANEL / 4 };

/* NaN stays, as vmax would have it, but 0 and -0 are equal here. */
ALWAYS_INLINE float32x4_t limited(float32x4_t v, float low, float high)
{
    const float32x4_t l = vdupq_n_f32(low), h = vdupq_n_f32(high);
    v = vbslq_f32(vcltq_f32(v, l), l, v);
    return vbslq_f32(vcgtq_f32(v, h), h, v);
}

/* ---- products with a packed operand ---- */

/* n_rows (constant where it is called) by all columns of the panel. at NULL: row p of b lies at p * ldb. */
ALWAYS_INLINE void tile(float *c, size_t ldc, const float *a, size_t lda, size_t step, const float *b, size_t ldb, const size_t *at,
                        size_t k, bool add, const pome_panel_end *end, size_t n_rows)
{
    float32x4_t acc[ROWS][VECTORS];
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < VECTORS; j++)
            acc[i][j] = add ? vld1q_f32(c + i * ldc + 4 * j) : vdupq_n_f32(0);
    for (size_t p = 0; p < k; p++) {
        const float *row = b + (at ? at[p] : p * ldb);
        const float32x4_t b0 = vld1q_f32(row), b1 = vld1q_f32(row + 4), b2 = vld1q_f32(row + 8), b3 = vld1q_f32(row + 12);
        for (size_t i = 0; i < n_rows; i++) {
            const float32x4_t s = vld1q_dup_f32(a + i * lda + p * step);
            acc[i][0] = vfmaq_f32(acc[i][0], s, b0);
            acc[i][1] = vfmaq_f32(acc[i][1], s, b1);
            acc[i][2] = vfmaq_f32(acc[i][2], s, b2);
            acc[i][3] = vfmaq_f32(acc[i][3], s, b3);
        }
    }
    for (size_t i = 0; i < n_rows; i++)
        for (size_t j = 0; j < VECTORS; j++) {
            float32x4_t v = acc[i][j];
            if (end && end->bias)
                v = vaddq_f32(v, vdupq_n_f32(end->bias[i]));
            if (end && end->addend)
                v = vaddq_f32(v, vld1q_f32(end->addend + i * ldc + 4 * j));
            vst1q_f32(c + i * ldc + 4 * j, end ? limited(v, end->low, end->high) : v);
        }
}

/* All columns, whatever n is. */
static void tile_of(float *c, size_t ldc, const float *a, size_t lda, size_t step, const float *b, size_t ldb, const size_t *at,
                    size_t k, bool add, const pome_panel_end *end, size_t n_rows, size_t n)
{
    (void)n;
    if (n_rows == ROWS)
        tile(c, ldc, a, lda, step, b, ldb, at, k, add, end, ROWS);
    else if (n_rows == 4)
        tile(c, ldc, a, lda, step, b, ldb, at, k, add, end, 4);
    else if (n_rows == 2)
        tile(c, ldc, a, lda, step, b, ldb, at, k, add, end, 2);
    else
        tile(c, ldc, a, lda, step, b, ldb, at, k, add, end, 1);
}

static void tiles(float *c, size_t ldc, const float *a, size_t lda, size_t step, const float *b, size_t ldb, const size_t *at,
                  size_t m, size_t n, size_t k, bool accumulate, const pome_panel_end *end)
{
    for (size_t i = 0, rows; i < m; i += rows) {
        pome_panel_end here;
        const pome_panel_end *last = end ? &here : NULL;
        rows = m - i >= ROWS ? ROWS : m - i >= 4 ? 4 : m - i >= 2 ? 2 : 1;
        if (end) {
            here = *end;
            here.bias = end->bias ? end->bias + i : NULL;
            here.addend = end->addend ? end->addend + i * ldc : NULL;
        }
        if (n == POME_PANEL)
            tile_of(c + i * ldc, ldc, a + i * lda, lda, step, b, ldb, at, k, accumulate, last, rows, n);
        else
            pome_panel_part(tile_of, c + i * ldc, ldc, a + i * lda, lda, step, b, ldb, at, k, accumulate, last, rows, n);
    }
}

static void gemm_panel_f32_neon(float *c, size_t ldc, const float *a, size_t lda, size_t step, const float *b, size_t ldb, size_t m,
                                size_t n, size_t k, bool accumulate, const pome_panel_end *end)
{
    tiles(c, ldc, a, lda, step, b, ldb, NULL, m, n, k, accumulate, end);
}

static void gemm_at_f32_neon(float *c, size_t ldc, const float *a, size_t lda, const float *b, const size_t *at, size_t m, size_t n,
                             size_t k, const pome_panel_end *end)
{
    tiles(c, ldc, a, lda, 1, b, 0, at, m, n, k, false, end);
}

/* ---- planes ---- */

/* x[0], x[s], x[2 s], x[3 s] */
ALWAYS_INLINE float32x4_t take(const float *x, size_t s)
{
    if (s == 1)
        return vld1q_f32(x);
    if (s == 2)
        return vuzp1q_f32(vld1q_f32(x), vld1q_f32(x + 4));
    const float four[4] = {x[0], x[s], x[2 * s], x[3 * s]};
    return vld1q_f32(four);
}

/* n_rows rows of four results from column j on. */
ALWAYS_INLINE void columns(float *y, size_t cols, size_t j, const float *x, const pome_conv_plane *p, size_t n_rows, size_t kh,
                           size_t kw, size_t sx)
{
    for (size_t i = 0; i < n_rows; i++) {
        const float *from = x + i * p->sy * p->ldx + j * sx;
        float32x4_t sum = vdupq_n_f32(0);
        for (size_t ky = 0; ky < kh; ky++)
            for (size_t kx = 0; kx < kw; kx++)
                sum = vfmaq_f32(sum, vld1q_dup_f32(p->w + ky * kw + kx), take(from + ky * p->dy * p->ldx + kx * p->dx, sx));
        sum = limited(vaddq_f32(sum, vdupq_n_f32(p->bias)), p->low, p->high);
        if (j + 4 <= cols) {
            vst1q_f32(y + i * cols + j, sum);
        } else {
            float four[4];
            vst1q_f32(four, sum);
            memcpy(y + i * cols + j, four, (cols - j) * sizeof *four);
        }
    }
}

/* Four rows of results at a time have four sums that do not wait for each other. */
ALWAYS_INLINE void plane(float *y, size_t rows, size_t cols, const pome_conv_plane *p, size_t kh, size_t kw, size_t sx)
{
    size_t i = 0;
    for (; i + 4 <= rows; i += 4)
        for (size_t j = 0; j < cols; j += 4)
            columns(y + i * cols, cols, j, p->x + i * p->sy * p->ldx, p, 4, kh, kw, sx);
    for (; i < rows; i++)
        for (size_t j = 0; j < cols; j += 4)
            columns(y + i * cols, cols, j, p->x + i * p->sy * p->ldx, p, 1, kh, kw, sx);
}

static void conv_plane_f32_neon(float *y, size_t rows, size_t cols, const pome_conv_plane *p)
{
    if (p->kh == 3 && p->kw == 3 && p->sx == 1)
        plane(y, rows, cols, p, 3, 3, 1);
    else if (p->kh == 3 && p->kw == 3 && p->sx == 2)
        plane(y, rows, cols, p, 3, 3, 2);
    else if (p->sx == 1)
        plane(y, rows, cols, p, p->kh, p->kw, 1);
    else
        plane(y, rows, cols, p, p->kh, p->kw, p->sx);
}

void pome_kernels_fill_conv_neon(pome_kernels *k)
{
    k->gemm_panel_f32 = gemm_panel_f32_neon;
    k->gemm_at_f32 = gemm_at_f32_neon;
    k->conv_plane_f32 = conv_plane_f32_neon;
}
