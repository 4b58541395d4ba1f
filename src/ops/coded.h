/* Weights that fast mode multiplies by int8 activations as they lie: an encoded matrix [n, k] of a form that
 * pome_coded_kernels take. The steps of a product: set (activations to int8, once for all weights of the same kind of
 * codes), then times for ranges of rows, from any thread. */
#ifndef POME_OPS_CODED_H
#define POME_OPS_CODED_H

#include "ops/encoded.h"
#include "ops/op.h"

typedef struct pome_coded {
    pome_codes codes;
    const pome_coded_kernels *kernels;
    void (*widen)(uint8_t *nibbles, const uint8_t *bits, uint32_t n_bits, size_t n);
    pome_coded_rows rows;
    size_t n, row_bytes, per_row; /* bytes and scales of a row */
    size_t table_rows;            /* palettes: rows that share a table */
    uint32_t index_bits;          /* palettes: below 4, indices are widened and tables filled up a few rows at a time */
} pome_coded;

/* Elements [first, first + n * k) of e as n rows. False: not in fast mode, or not of such a form. */
bool pome_coded_init(pome_coded *w, const pome_run *r, const pome_encoded *e, size_t first, size_t n, size_t k);
/* n rows of dense weights (F16 or F32). False: not in fast mode, or the CPU level multiplies such weights as exact mode does. */
bool pome_coded_init_dense(pome_coded *w, const pome_run *r, pome_dtype dtype, const void *data, size_t n, size_t k);
/* Two weights take the same activations. */
static inline bool pome_coded_same_activations(const pome_coded *a, const pome_coded *b)
{
    return a->kernels == b->kernels && a->rows.k == b->rows.k;
}

/* Bytes for m rows of activations, and for one thread's scratch; both multiples of 64. */
size_t pome_coded_activation_bytes(const pome_coded *w, size_t m);
size_t pome_coded_thread_bytes(const pome_coded *w, size_t m);
/* x [m, k], rows ldx apart, to q8 (aligned to 64); runs on the pool. */
void pome_coded_set(const pome_coded *w, pome_pool *pool, void *q8, const float *x, size_t ldx, size_t m);
/* y[i][j] = x[i] times row first + j, j < n; y's rows are ldy apart. thread_scratch: aligned to 64. */
void pome_coded_times(const pome_coded *w, const void *q8, size_t m, size_t first, size_t n, float *y, size_t ldy,
                      void *thread_scratch);
/* Rows for a thread to take at a time. */
size_t pome_coded_grain(const pome_coded *w, size_t m);

#endif
