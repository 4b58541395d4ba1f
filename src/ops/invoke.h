/* Running one operator on tensors as they come: infers the outputs, converts what the implementation does not
 * accept, runs, rounds in fp16 mode. For constant folding, for operators whose shapes depend on data and for nested
 * blocks; the planned path (runtime/exec.c) does the same work ahead of time. */
#ifndef POME_OPS_INVOKE_H
#define POME_OPS_INVOKE_H

#include "ops/op.h"

typedef struct pome_invoke {
    const pome_op *op;
    const pome_op_impl *impl;
    pome_opset opset;
    pome_numerics numerics;
    pome_pool *pool;
    const pome_kernels *kernels;
    void *prepared;
    const pome_tensor *const *in; /* [n_in] dense ones have data; strings and encoded constants have none */
    pome_tensor *out;             /* [n_out] filled in: contiguous, fp32 for floats */
    /* Memory for buffer `slot` (outputs 0..n_out-1, then converted inputs, then scratch), 64-byte aligned, contents
     * undefined, valid as long as the caller wants. NULL when memory is short. */
    void *(*alloc)(void *arg, uint32_t slot, size_t size);
    void *alloc_arg;
} pome_invoke;

pome_status pome_op_invoke(const pome_invoke *v, pome_error *err);

/* Parameter index of each flattened input, and what the implementation takes for it. */
uint32_t pome_op_param_of(const pome_op *op, uint32_t input);
bool pome_op_accepts(const pome_op_impl *impl, uint32_t param, const pome_tensor *t);
/* How a value of this dtype is held between operators: fp32 for every float, else as declared. */
pome_dtype pome_storage_dtype(pome_dtype declared);
/* The tensor an inferred type describes, without memory. */
pome_status pome_tensor_of_type(pome_tensor *out, const pome_type *type, const pome_op *op, pome_error *err);

#endif
