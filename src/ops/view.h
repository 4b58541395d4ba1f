/* Operators that only look at memory in another way: each states its view once; where a copy is wanted after all
 * (constant folding, a declined view), the copy is made from the same statement. */
#ifndef POME_OPS_VIEW_H
#define POME_OPS_VIEW_H

#include "ops/op.h"
#include "ops/strided.h"

typedef bool pome_view_fn(const pome_run *r);

/* Copies what `view` shows of the first input's memory into output 0, which is contiguous. FORMAT error if the
 * view does not fit the output's shape. */
pome_status pome_view_run(const pome_run *r, pome_view_fn *view, pome_error *err);
/* out shows `in` from `offset` elements on (ignored if out is empty); strides are the caller's. */
static inline void pome_view_take(pome_tensor *out, const pome_tensor *in, int64_t offset)
{
    out->dtype = in->dtype;
    out->data = pome_tensor_count(out) == 0 ? in->data : pome_elem_at(in, offset);
}
/* Axis in [-rank, rank) as [0, rank), or -1 if outside. */
static inline int32_t pome_axis_wrap(int64_t axis, int32_t rank)
{
    axis = axis < 0 ? axis + rank : axis;
    return axis >= 0 && axis < rank ? (int32_t)axis : -1;
}
/* "x has shape [2, 3], not what the output's shape [2, 4] needs". */
pome_status pome_view_misfit(const pome_run *r, pome_error *err);
/* A shape as "[2, 3]" in buf. */
const char *pome_shape_text(char *buf, size_t size, const pome_tensor *t);

#endif
