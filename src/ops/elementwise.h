/* The loop that every elementwise operator runs in: operands are broadcast to the output as in numpy, axes that lie
 * one after another in all of them are merged, and what remains is cut into rows and shared by the pool's threads. */
#ifndef POME_OPS_ELEMENTWISE_H
#define POME_OPS_ELEMENTWISE_H

#include "ops/op.h"

enum { POME_ELEMENTWISE_MAX_IN = 3 };

/* Computes out[i] for i in [0, n) from in[k][i * stride[k]]; out is contiguous, strides count elements and are 0
 * where an operand is broadcast. */
typedef void pome_row_fn(void *out, const void *const *in, const ptrdiff_t *stride, size_t n, const void *param);

/* in[k]: any strides, any shape that broadcasts to out's (ARG otherwise). `cost` is about how many additions one
 * element is worth, for sizing the chunks. `param` is handed to fn. */
pome_status pome_elementwise_run(const pome_run *r, pome_row_fn *fn, const pome_tensor *const *in, uint32_t n_in,
                                 const void *param, size_t cost, pome_error *err);

#endif
