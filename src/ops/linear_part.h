/* One weight of a linear layer as threads multiply by it: x [m, k] times rows of the weight, plus bias, in whatever way
 * the weight's form and the numerics mode allow. A row of the result does not depend on what is computed beside it. */
#ifndef POME_OPS_LINEAR_PART_H
#define POME_OPS_LINEAR_PART_H

#include "ops/coded.h"
#include "ops/rows.h"

typedef struct pome_linear_part {
    const pome_kernels *kernels;
    size_t n, k;
    pome_rows rows;
    bool is_coded; /* by int8 activations */
    pome_coded coded;
    const pome_tensor *bias; /* NULL: none */
    const pome_encoded *bias_encoded;
} pome_linear_part;

/* `weight` and `bias` (-1: none) are indices into r->op->in. FORMAT error if they do not fit x's last axis. */
pome_status pome_linear_part_init(pome_linear_part *p, const pome_run *r, const pome_tensor *x, uint32_t weight,
                                  int64_t bias, pome_error *err);
/* Bytes of one thread's scratch for m rows, a multiple of 64. */
size_t pome_linear_part_scratch(const pome_linear_part *p, size_t m);
/* y[i][j] for rows first + j of the weight, j < n; y's rows are ldy apart. q8: the activations that p->coded set. */
void pome_linear_part_times(const pome_linear_part *p, const float *x, const void *q8, size_t m, size_t first, size_t n,
                            float *y, size_t ldy, void *thread_scratch);
/* Rows for a thread to take at a time. */
size_t pome_linear_part_grain(const pome_linear_part *p, size_t m);
/* Rows of x: the product of all axes but the last. */
size_t pome_linear_n_rows(const pome_tensor *x);

#endif
