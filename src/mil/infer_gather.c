/* Inference of gather, scatter and reductions along axes. */
#include <inttypes.h>

#include "mil/infer.h"

static pome_status too_deep(pome_infer *c, pome_error *err)
{
    return pome_infer_fail(c, err, "the result's rank is more than %d", POME_MAX_RANK);
}

/* t := t + part's sizes [from, to). */
static pome_status append(pome_infer *c, pome_type *t, const pome_type *part, int32_t from, int32_t to, pome_error *err)
{
    for (int32_t i = from; i < to; i++) {
        if (t->rank == POME_MAX_RANK)
            return too_deep(c, err);
        t->dim[t->rank++] = part->dim[i];
    }
    return POME_OK;
}

static pome_status want(pome_infer *c, const pome_type *found, const pome_type *wanted, const char *what,
                        pome_error *err)
{
    bool fits = found->rank == wanted->rank;
    for (int32_t i = 0; fits && i < found->rank; i++)
        fits = pome_dim_may_equal(found->dim[i], wanted->dim[i]);
    if (fits)
        return POME_OK;
    char a[160], b[160];
    return pome_infer_fail(c, err, "%s is %s, but the others ask for %s", what, pome_type_print(found, a, sizeof a),
                           pome_type_print(wanted, b, sizeof b));
}

static pome_status batch_dims(pome_infer *c, uint32_t param, const pome_type *x, const pome_type *indices, int32_t *out,
                              pome_error *err)
{
    int64_t n = 0;
    POME_TRY(pome_infer_int(c, param, 0, &n, err));
    if (n < 0 || n >= x->rank + (n == 0) || n > indices->rank)
        return pome_infer_fail(c, err, "batch_dims %" PRId64 " does not fit ranks %" PRId32 " and %" PRId32, n, x->rank,
                               indices->rank);
    for (int32_t i = 0; i < n; i++)
        if (!pome_dim_may_equal(x->dim[i], indices->dim[i]))
            return pome_infer_fail(c, err, "batch axis %" PRId32 " is %" PRId64 " in x, %" PRId64 " in indices", i,
                                   x->dim[i], indices->dim[i]);
    *out = (int32_t)n;
    return POME_OK;
}

/* x[:axis] + indices[batch_dims:] + x[axis+1:] */
pome_status pome_infer_gather(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_gather_x), *indices = pome_infer_type(c, P_gather_indices);
    pome_type *out = &c->out[0];
    int32_t axis = 0, batch = 0;
    POME_TRY(pome_infer_axis_param(c, P_gather_axis, 0, x->rank, &axis, err));
    POME_TRY(batch_dims(c, P_gather_batch_dims, x, indices, &batch, err));
    if (axis < batch)
        return pome_infer_fail(c, err, "axis %" PRId32 " is among the %" PRId32 " batch axes", axis, batch);
    out->kind = POME_TYPE_TENSOR;
    out->dtype = x->dtype;
    POME_TRY(append(c, out, x, 0, axis, err));
    POME_TRY(append(c, out, indices, batch, indices->rank, err));
    return append(c, out, x, axis + 1, x->rank, err);
}

pome_status pome_infer_gather_along_axis(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_gather_along_axis_x);
    const pome_type *indices = pome_infer_type(c, P_gather_along_axis_indices);
    pome_type wanted = *x;
    int32_t axis = 0;
    POME_TRY(pome_infer_axis_param(c, P_gather_along_axis_axis, 0, x->rank, &axis, err));
    if (indices->rank == x->rank)
        wanted.dim[axis] = indices->dim[axis];
    POME_TRY(want(c, indices, &wanted, "indices", err));
    c->out[0] = *indices;
    c->out[0].dtype = x->dtype;
    return POME_OK;
}

/* indices[:-1] + x[batch_dims + K:], K = indices[-1]. Its rank is not known unless K is. */
static pome_status nd_shape(pome_infer *c, const pome_type *x, const pome_type *indices, int32_t batch, pome_type *out,
                            pome_error *err)
{
    out->kind = POME_TYPE_TENSOR;
    out->dtype = x->dtype;
    out->rank = 0;
    if (indices->rank < 1)
        return pome_infer_fail(c, err, "indices must have rank 1 or more");
    int64_t depth = indices->dim[indices->rank - 1];
    if (depth < 0) {
        out->rank = -1;
        return POME_OK;
    }
    if (depth > x->rank - batch)
        return pome_infer_fail(c, err, "indices address %" PRId64 " axes of %" PRId32, depth, x->rank - batch);
    POME_TRY(append(c, out, indices, 0, indices->rank - 1, err));
    return append(c, out, x, batch + (int32_t)depth, x->rank, err);
}

pome_status pome_infer_gather_nd(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_gather_nd_x), *indices = pome_infer_type(c, P_gather_nd_indices);
    int32_t batch = 0;
    POME_TRY(batch_dims(c, P_gather_nd_batch_dims, x, indices, &batch, err));
    if (batch && batch >= indices->rank)
        return pome_infer_fail(c, err, "batch_dims %" PRId32 " leaves indices no axis", batch);
    return nd_shape(c, x, indices, batch, &c->out[0], err);
}

#define SCATTER_MODES "update|add|sub|mul|div|max|min"

pome_status pome_infer_scatter(pome_infer *c, pome_error *err)
{
    const pome_type *data = pome_infer_type(c, P_scatter_data), *indices = pome_infer_type(c, P_scatter_indices);
    pome_type wanted = {.dtype = data->dtype};
    int32_t axis = 0;
    POME_TRY(pome_infer_word(c, P_scatter_mode, SCATTER_MODES, err));
    POME_TRY(pome_infer_axis_param(c, P_scatter_axis, 0, data->rank, &axis, err));
    POME_TRY(append(c, &wanted, data, 0, axis, err));
    POME_TRY(append(c, &wanted, indices, 0, indices->rank, err));
    POME_TRY(append(c, &wanted, data, axis + 1, data->rank, err));
    POME_TRY(want(c, pome_infer_type(c, P_scatter_updates), &wanted, "updates", err));
    POME_TRY(pome_infer_same_dtype(c, data, pome_infer_type(c, P_scatter_updates), err));
    c->out[0] = *data;
    return POME_OK;
}

pome_status pome_infer_scatter_along_axis(pome_infer *c, pome_error *err)
{
    const pome_type *data = pome_infer_type(c, P_scatter_along_axis_data);
    const pome_type *indices = pome_infer_type(c, P_scatter_along_axis_indices);
    pome_type wanted = *data;
    int32_t axis = 0;
    POME_TRY(pome_infer_word(c, P_scatter_along_axis_mode, SCATTER_MODES, err));
    POME_TRY(pome_infer_axis_param(c, P_scatter_along_axis_axis, 0, data->rank, &axis, err));
    if (indices->rank == data->rank)
        wanted.dim[axis] = indices->dim[axis];
    POME_TRY(want(c, indices, &wanted, "indices", err));
    POME_TRY(want(c, pome_infer_type(c, P_scatter_along_axis_updates), indices, "updates", err));
    POME_TRY(pome_infer_same_dtype(c, data, pome_infer_type(c, P_scatter_along_axis_updates), err));
    c->out[0] = *data;
    return POME_OK;
}

pome_status pome_infer_scatter_nd(pome_infer *c, pome_error *err)
{
    const pome_type *data = pome_infer_type(c, P_scatter_nd_data), *indices = pome_infer_type(c, P_scatter_nd_indices);
    pome_type wanted = {0};
    POME_TRY(pome_infer_word(c, P_scatter_nd_mode, SCATTER_MODES, err));
    POME_TRY(nd_shape(c, data, indices, 0, &wanted, err));
    if (wanted.rank >= 0)
        POME_TRY(want(c, pome_infer_type(c, P_scatter_nd_updates), &wanted, "updates", err));
    POME_TRY(pome_infer_same_dtype(c, data, pome_infer_type(c, P_scatter_nd_updates), err));
    c->out[0] = *data;
    return POME_OK;
}

/* ---- reductions ---- */

static void reduced(const pome_type *x, uint32_t axes, bool keep_dims, pome_type *out)
{
    out->kind = POME_TYPE_TENSOR;
    out->dtype = x->dtype;
    out->rank = 0;
    for (int32_t i = 0; i < x->rank; i++) {
        if (!(axes >> i & 1))
            out->dim[out->rank++] = x->dim[i];
        else if (keep_dims)
            out->dim[out->rank++] = 1;
    }
}

/* x, axes (absent: all), keep_dims: the same places in every reduce_* row. */
pome_status pome_infer_reduce(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_reduce_sum_x);
    uint32_t axes = (1u << x->rank) - 1;
    bool keep_dims = false;
    if (pome_infer_has(c, P_reduce_sum_axes))
        POME_TRY(pome_infer_axes(c, P_reduce_sum_axes, x->rank, &axes, err));
    POME_TRY(pome_infer_bool(c, P_reduce_sum_keep_dims, false, &keep_dims, err));
    reduced(x, axes, keep_dims, &c->out[0]);
    return POME_OK;
}

pome_status pome_infer_reduce_arg(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_reduce_argmax_x);
    int32_t axis = 0;
    bool keep_dims = false;
    pome_dtype dtype = POME_DTYPE_I32;
    POME_TRY(pome_infer_axis_param(c, P_reduce_argmax_axis, -1, x->rank, &axis, err));
    POME_TRY(pome_infer_bool(c, P_reduce_argmax_keep_dims, false, &keep_dims, err));
    POME_TRY(pome_infer_dtype(c, P_reduce_argmax_output_dtype, POME_DTYPE_I32, POME_T_I32 | POME_T_U16, &dtype, err));
    if (x->dim[axis] == 0)
        return pome_infer_fail(c, err, "axis %" PRId32 " is empty", axis);
    reduced(x, 1u << axis, keep_dims, &c->out[0]);
    c->out[0].dtype = dtype;
    return POME_OK;
}
