/* A matrix [n, k] of weights or other operands, row by row: fp32 or fp16 in memory, or an encoded constant. It is
 * multiplied without ever being fp32 as a whole: a thread decodes pieces of a few rows by POME_KERNEL_KC columns
 * into its own scratch. */
#ifndef POME_OPS_ROWS_H
#define POME_OPS_ROWS_H

#include "kernels/kernels.h"
#include "ops/encoded.h"
#include "pome/tensor.h"

typedef struct pome_rows {
    pome_dtype dtype;      /* F32 or F16; NONE: encoded */
    const void *data;
    size_t stride;         /* elements from row to row */
    const pome_encoded *encoded;
    pome_encoded_blocks blocks; /* blocks.block 0: no fused kernel */
    size_t first;          /* encoded: element at which row 0 begins */
    size_t k;
} pome_rows;

enum { POME_ROWS_TILE = 32 }; /* rows a thread decodes at once */

/* Floats of scratch that one thread needs for pome_rows_times_*. */
static inline size_t pome_rows_scratch(void)
{
    return (size_t)POME_ROWS_TILE * POME_KERNEL_KC;
}

/* Rows follow each other; change stride (fp32, fp16) or first (encoded) afterwards. */
void pome_rows_init(pome_rows *w, pome_dtype dtype, const void *data, const pome_encoded *encoded, size_t k);

/* Rows [first, first + n), n <= POME_ROWS_TILE, columns [p, p + len), len <= POME_KERNEL_KC, as fp32: in place, or
 * decoded to scratch; rows *ld apart. */
const float *pome_rows_piece(const pome_rows *w, const pome_kernels *kernels, size_t first, size_t n, size_t p,
                             size_t len, float *scratch, size_t *ld);
/* c[m][j] = sum_k x[m][k] * w[first + j][k] for j < n; c's rows are ldc apart, x's ldx. scratch: as above. */
void pome_rows_times(const pome_rows *w, const pome_kernels *kernels, size_t first, size_t n, const float *x, size_t ldx,
                     size_t m, float *c, size_t ldc, float *scratch);
/* The transpose of the same: c[j][m], bit for bit. */
void pome_rows_times_t(const pome_rows *w, const pome_kernels *kernels, size_t first, size_t n, const float *x,
                       size_t ldx, size_t m, float *c, size_t ldc, float *scratch);

/* Elements [first, first + n) of a bias: fp32, fp16 or encoded. */
void pome_vector_piece(const pome_tensor *t, const pome_encoded *encoded, const pome_kernels *kernels, size_t first,
                       size_t n, float *dst);

#endif
