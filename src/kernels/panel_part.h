/* Products with a packed operand of which only some columns are wanted, for levels whose tiles store whole vectors. */
#ifndef POME_KERNELS_PANEL_PART_H
#define POME_KERNELS_PANEL_PART_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kernels.h"

enum { POME_PANEL_PART_ROWS = 12 /* at most */ };

/* Rows of a product as gemm_panel_f32 has it, or gemm_at_f32 unless `at` is NULL; may store more than n columns, up to POME_PANEL. */
typedef void pome_panel_rows_fn(float *c, size_t ldc, const float *a, size_t lda, size_t step, const float *b, size_t ldb,
                                const size_t *at, size_t k, bool add, const pome_panel_end *end, size_t n_rows, size_t n);

static inline void pome_panel_copy(float *to, size_t ld_to, const float *from, size_t ld_from, size_t m, size_t n)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            to[i * ld_to + j] = from[i * ld_from + j];
}

/* Through a tile of its own, so that nothing behind column n is touched. */
static inline void pome_panel_part(pome_panel_rows_fn *rows_of, float *c, size_t ldc, const float *a, size_t lda, size_t step, const float *b,
                                   size_t ldb, const size_t *at, size_t k, bool add, const pome_panel_end *end, size_t n_rows,
                                   size_t n)
{
    float sums[POME_PANEL_PART_ROWS * POME_PANEL] = {0}, addend[POME_PANEL_PART_ROWS * POME_PANEL] = {0};
    pome_panel_end last;
    if (add)
        pome_panel_copy(sums, POME_PANEL, c, ldc, n_rows, n);
    if (end && end->addend) {
        pome_panel_copy(addend, POME_PANEL, end->addend, ldc, n_rows, n);
        last = *end;
        last.addend = addend;
        end = &last;
    }
    rows_of(sums, POME_PANEL, a, lda, step, b, ldb, at, k, add, end, n_rows, n);
    pome_panel_copy(c, ldc, sums, POME_PANEL, n_rows, n);
}

#endif
