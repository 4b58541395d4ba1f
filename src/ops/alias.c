#include "ops/alias.h"

#include "ops/strided.h"

/* The first input of an operator whose result may be a view of it. `is_whole`: all of it, in the same order. */
static const pome_value *viewed(const pome_value *value, bool is_whole)
{
    const pome_op *op = value->def;
    if (!op || op->n_in == 0)
        return NULL;
    switch (op->def->id) {
    case POME_OP_read_state:
    case POME_OP_slice_update: /* in place it returns its x */
    case POME_OP_identity:
    case POME_OP_reshape:
    case POME_OP_reshape_like:
    case POME_OP_expand_dims:
    case POME_OP_squeeze:
    case POME_OP_flatten2d:
        return op->in[0];
    case POME_OP_transpose:
    case POME_OP_reverse:
    case POME_OP_sliding_windows:
    case POME_OP_crop:
    case POME_OP_slice_by_index:
    case POME_OP_slice_by_size:
    case POME_OP_split:
    case POME_OP_tile:
        return is_whole ? NULL : op->in[0];
    default:
        return NULL;
    }
}

/* The value at the end of the chain of views: the state, if it is one of a state. */
static const pome_value *root_of(const pome_value *value, bool is_whole)
{
    for (const pome_value *next; value && (next = viewed(value, is_whole)) != NULL; value = next)
        ;
    return value;
}

size_t pome_alias_scratch(const pome_value *target, bool is_part, const pome_value *value, const pome_tensor *t)
{
    if (!target || !value || root_of(target, false) != root_of(value, false))
        return 0;
    if (!is_part && root_of(target, true) == root_of(value, true)) /* the same memory in the same order */
        return 0;
    pome_dtype dtype = t->dtype == POME_DTYPE_F16 ? POME_DTYPE_F32 : t->dtype;
    return (size_t)(pome_tensor_count(t) * pome_elem_size(dtype));
}

pome_status pome_alias_copy(const pome_run *r, const pome_tensor *dst, const pome_tensor *src, pome_error *err)
{
    if (pome_strided_same(dst, src))
        return POME_OK;
    if (!pome_strided_overlap(dst, src)) {
        pome_strided_copy(dst, src, r->pool, r->kernels);
        return POME_OK;
    }
    if (!r->scratch)
        return pome_op_fail(r->op, err, POME_ERR_STATE, "a value that shows a state's memory is written into it");
    pome_tensor aside = *src;
    aside.data = r->scratch;
    pome_stride_row_major(&aside);
    pome_strided_copy(&aside, src, r->pool, r->kernels);
    pome_strided_copy(dst, &aside, r->pool, r->kernels);
    return POME_OK;
}
