#include "ops/axes.h"

static void append(pome_axis_group *g, int64_t size, int64_t stride)
{
    g->count *= size;
    if (size == 1)
        return;
    if (g->n > 0 && g->stride[g->n - 1] == size * stride) {
        g->size[g->n - 1] *= size;
        g->stride[g->n - 1] = stride;
        return;
    }
    g->size[g->n] = size;
    g->stride[g->n++] = stride;
}

void pome_axes_split(pome_axes *out, const pome_tensor *x, uint32_t mask)
{
    *out = (pome_axes){.kept.count = 1, .reduced.count = 1};
    int64_t stride[POME_MAX_RANK], at = 1;
    for (int32_t d = x->rank - 1; d >= 0; d--) {
        stride[d] = at;
        at *= x->shape[d];
    }
    for (int32_t d = 0; d < x->rank; d++)
        append(mask >> d & 1 ? &out->reduced : &out->kept, x->shape[d], stride[d]);
    const pome_axis_group *g = &out->reduced;
    out->is_inner_reduced = out->kept.n == 0 || (g->n > 0 && g->stride[g->n - 1] == 1);
}

pome_status pome_axis_get(const pome_run *r, int64_t axis, int32_t rank, int32_t *out, pome_error *err)
{
    if (axis < -(int64_t)rank || axis >= rank)
        return pome_op_fail(r->op, err, POME_ERR_ARG, "axis %lld is outside [-%d, %d)", (long long)axis, (int)rank,
                            (int)rank);
    *out = (int32_t)(axis < 0 ? axis + rank : axis);
    return POME_OK;
}

pome_status pome_axes_mask(const pome_run *r, const pome_tensor *axes, int32_t rank, uint32_t *mask, pome_error *err)
{
    if (!axes) {
        *mask = (1u << rank) - 1;
        return POME_OK;
    }
    *mask = 0;
    for (int64_t i = 0; i < pome_tensor_count(axes); i++) {
        int32_t axis = 0;
        POME_TRY(pome_axis_get(r, pome_tensor_int_at(axes, i), rank, &axis, err));
        *mask |= 1u << axis;
    }
    return POME_OK;
}

int64_t pome_axis_offset(const pome_axis_group *g, int64_t i)
{
    int64_t offset = 0;
    for (int32_t d = g->n - 1; d >= 0; d--) {
        offset += i % g->size[d] * g->stride[d];
        i /= g->size[d];
    }
    return offset;
}

pome_axis_view pome_axis_view_of(const pome_tensor *x, int32_t axis)
{
    pome_axis_view v = {1, x->shape[axis], 1};
    for (int32_t d = 0; d < axis; d++)
        v.outer *= x->shape[d];
    for (int32_t d = axis + 1; d < x->rank; d++)
        v.inner *= x->shape[d];
    return v;
}
