/* What inference functions use. */
#ifndef POME_MIL_INFER_H
#define POME_MIL_INFER_H

#include "base/error.h"
#include "mil/opdef.h"
#include "mil/program.h"

static inline bool pome_infer_has(const pome_infer *c, uint32_t param)
{
    return c->op->args[param].count != 0;
}
static inline const pome_type *pome_infer_type(const pome_infer *c, uint32_t param) /* NULL if absent */
{
    return pome_infer_has(c, param) ? c->in[c->op->args[param].first] : NULL;
}
static inline const pome_tensor *pome_infer_value(const pome_infer *c, uint32_t param) /* NULL: absent or unknown */
{
    return pome_infer_has(c, param) ? c->value[c->op->args[param].first] : NULL;
}
int64_t pome_infer_symbol(pome_infer *c); /* a fresh one */
/* Integer i of a known integer or bool tensor (any integer dtype). */
int64_t pome_tensor_int_at(const pome_tensor *t, int64_t i);
double pome_tensor_float_at(const pome_tensor *t, int64_t i);
/* A scalar parameter's value, or dflt when absent. FORMAT error names op and parameter. */
pome_status pome_infer_int(pome_infer *c, uint32_t param, int64_t dflt, int64_t *out, pome_error *err);
pome_status pome_infer_bool(pome_infer *c, uint32_t param, bool dflt, bool *out, pome_error *err);
const char *pome_op_str(const pome_op *op, uint32_t param, const char *dflt); /* a constant string */
/* axis in [-rank, rank) -> [0, rank). */
pome_status pome_infer_axis(pome_infer *c, int64_t axis, int32_t rank, int32_t *out, pome_error *err);
/* numpy broadcasting of shapes with symbols. */
pome_status pome_infer_broadcast(pome_infer *c, const pome_type *a, const pome_type *b, pome_type *out, pome_error *err);
/* "op_name (gather, #117): text" */
pome_status pome_infer_fail(pome_infer *c, pome_error *err, const char *fmt, ...) POME_PRINTF(3, 4);

/* What slice_by_index and slice_update select on one axis of size n (mil-ops: numpy slicing rules). */
typedef struct pome_slice_axis {
    int64_t begin, step, length;
} pome_slice_axis;
/* Masks may be NULL tensors. Fills sel[rank] and the squeezed axes. All of begin, end must be known. */
pome_status pome_slice_resolve(const pome_op *op, const pome_tensor *begin, const pome_tensor *end,
                               const pome_tensor *stride, const pome_tensor *begin_mask, const pome_tensor *end_mask,
                               const pome_tensor *squeeze_mask, int32_t rank, const int64_t *dim,
                               pome_slice_axis *sel, bool *squeezed, pome_error *err);

#endif
