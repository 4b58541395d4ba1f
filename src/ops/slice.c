/* Parts of tensors, and tensors put together. */
#include "ops/alias.h"
#include "ops/families.h"
#include "ops/view.h"

#include <string.h>

/* ---- the region that begin, end, stride and the masks select ---- */
typedef struct slice_params { /* indices into the operator's row */
    uint32_t begin, end, stride, begin_mask, end_mask, squeeze_mask;
} slice_params;

static const slice_params of_slice_by_index = {
    P_slice_by_index_begin,      P_slice_by_index_end,      P_slice_by_index_stride,
    P_slice_by_index_begin_mask, P_slice_by_index_end_mask, P_slice_by_index_squeeze_mask,
};
static const slice_params of_slice_update = {
    P_slice_update_begin,      P_slice_update_end,      P_slice_update_stride,
    P_slice_update_begin_mask, P_slice_update_end_mask, P_slice_update_squeeze_mask,
};

/* The selected part of x, squeezed axes dropped: shape, strides, dtype and data of *part. */
static pome_status select_part(const pome_run *r, const slice_params *p, const pome_tensor *x, pome_tensor *part,
                               pome_error *err)
{
    pome_slice_axis sel[POME_MAX_RANK];
    bool is_squeezed[POME_MAX_RANK] = {false};
    POME_TRY(pome_slice_resolve(r->op, pome_in(r, p->begin), pome_in(r, p->end), pome_in(r, p->stride),
                                pome_in(r, p->begin_mask), pome_in(r, p->end_mask), pome_in(r, p->squeeze_mask),
                                x->rank, x->shape, sel, is_squeezed, err));
    memset(part, 0, sizeof *part);
    int64_t offset = 0;
    bool is_empty = false;
    for (int32_t d = 0; d < x->rank; d++) {
        int64_t n = x->shape[d], length = sel[d].length;
        if (length < 0 || (length > 0 && (sel[d].begin < 0 || sel[d].begin >= n)))
            return pome_op_fail(r->op, err, POME_ERR_ARG, "axis %d: begin %lld is outside the axis of size %lld",
                                (int)d, (long long)sel[d].begin, (long long)n);
        is_empty |= length == 0;
        offset += length > 0 ? sel[d].begin * x->stride[d] : 0;
        if (is_squeezed[d])
            continue;
        part->shape[part->rank] = length;
        part->stride[part->rank++] = length > 1 ? x->stride[d] * sel[d].step : x->stride[d]; /* |step| < n */
    }
    part->dtype = x->dtype;
    part->data = is_empty ? x->data : pome_elem_at(x, offset);
    return POME_OK;
}

static bool has_shape(const pome_tensor *t, const pome_tensor *like)
{
    if (t->rank != like->rank)
        return false;
    for (int32_t d = 0; d < t->rank; d++)
        if (t->shape[d] != like->shape[d])
            return false;
    return true;
}

static bool view_slice_by_index(const pome_run *r)
{
    pome_tensor part, *out = &r->out[0];
    if (select_part(r, &of_slice_by_index, r->in[0], &part, NULL) != POME_OK || !has_shape(&part, out))
        return false;
    out->dtype = part.dtype;
    out->data = part.data;
    memcpy(out->stride, part.stride, sizeof part.stride);
    return true;
}

static pome_status run_slice_by_index(const pome_run *r, pome_error *err)
{
    pome_tensor part;
    POME_TRY(select_part(r, &of_slice_by_index, r->in[0], &part, err));
    if (!has_shape(&part, &r->out[0]))
        return pome_view_misfit(r, err);
    pome_strided_copy(&r->out[0], &part, r->pool, r->kernels);
    return POME_OK;
}

static bool view_slice_by_size(const pome_run *r)
{
    const pome_tensor *x = r->in[0], *begin = pome_in(r, P_slice_by_size_begin),
                      *size = pome_in(r, P_slice_by_size_size);
    pome_tensor *out = &r->out[0];
    if (pome_tensor_count(begin) != x->rank || pome_tensor_count(size) != x->rank || out->rank != x->rank)
        return false;
    int64_t offset = 0;
    for (int32_t d = 0; d < x->rank; d++) {
        int64_t n = x->shape[d], b = pome_tensor_int_at(begin, d), len = pome_tensor_int_at(size, d);
        b = b < 0 ? b + n : b;
        if (b < 0 || b > n)
            return false;
        len = len == -1 ? n - b : len;
        if (len < 0 || len > n - b || len != out->shape[d])
            return false;
        offset += b * x->stride[d];
        out->stride[d] = x->stride[d];
    }
    pome_view_take(out, x, offset);
    return true;
}

static pome_status run_slice_by_size(const pome_run *r, pome_error *err)
{
    return pome_view_run(r, view_slice_by_size, err);
}

/* ---- slice_update ---- */
static size_t scratch_slice_update(const pome_run *r)
{
    return pome_alias_scratch(pome_op_arg(r->op, P_slice_update_x), true,
                              pome_op_arg(r->op, P_slice_update_update), pome_in(r, P_slice_update_update));
}

static pome_status run_slice_update(const pome_run *r, pome_error *err)
{
    const pome_tensor *x = pome_in(r, P_slice_update_x), *update = pome_in(r, P_slice_update_update);
    const pome_tensor *out = &r->out[0];
    pome_tensor region;
    POME_TRY(select_part(r, &of_slice_update, out, &region, err));
    if (!has_shape(x, out))
        return pome_view_misfit(r, err);
    if (!has_shape(&region, update)) {
        char want[200], found[200];
        return pome_op_fail(r->op, err, POME_ERR_ARG, "update has shape %s, the slice has %s",
                            pome_shape_text(found, sizeof found, update), pome_shape_text(want, sizeof want, &region));
    }
    if (out->data != x->data)
        POME_TRY(pome_alias_copy(r, out, x, err));
    return pome_alias_copy(r, &region, update, err);
}

/* ---- split ---- */
static int32_t split_axis(const pome_run *r)
{
    const pome_tensor *x = r->in[0];
    int32_t axis = pome_axis_wrap(pome_in_int(r, P_split_axis, 0), x->rank);
    int64_t total = 0;
    for (uint32_t i = 0; i < r->op->n_out && axis >= 0; i++) {
        if (r->out[i].rank != x->rank)
            return -1;
        for (int32_t d = 0; d < x->rank; d++)
            if (d != axis && r->out[i].shape[d] != x->shape[d])
                return -1;
        total += r->out[i].shape[axis];
    }
    return axis >= 0 && total == x->shape[axis] ? axis : -1;
}

static bool view_split(const pome_run *r)
{
    const pome_tensor *x = r->in[0];
    int32_t axis = split_axis(r);
    if (axis < 0)
        return false;
    int64_t at = 0;
    for (uint32_t i = 0; i < r->op->n_out; i++) {
        pome_tensor *out = &r->out[i];
        memcpy(out->stride, x->stride, sizeof x->stride);
        pome_view_take(out, x, at * x->stride[axis]);
        at += out->shape[axis];
    }
    return true;
}

static pome_status run_split(const pome_run *r, pome_error *err)
{
    const pome_tensor *x = r->in[0];
    int32_t axis = split_axis(r);
    if (axis < 0)
        return pome_view_misfit(r, err);
    int64_t at = 0;
    for (uint32_t i = 0; i < r->op->n_out; i++) {
        pome_tensor part = r->out[i];
        memcpy(part.stride, x->stride, sizeof x->stride);
        pome_view_take(&part, x, at * x->stride[axis]);
        pome_strided_copy(&r->out[i], &part, r->pool, r->kernels);
        at += part.shape[axis];
    }
    return POME_OK;
}

/* ---- concat, stack ---- */
/* The part of out that value i fills: `at` along axis, every `step`-th element, of x's shape. Rank-0 values count as
 * one element; with `is_new_axis` the axis does not exist in x. False if x does not fit. */
static bool joined_part(const pome_tensor *out, const pome_tensor *x, int32_t axis, int64_t at, int64_t step,
                        bool is_new_axis, pome_tensor *part)
{
    int32_t n_before = is_new_axis || x->rank == 0 ? 1 : 0; /* axes of out that x lacks */
    if (x->rank + n_before != out->rank)
        return false;
    *part = *x;
    part->dtype = out->dtype;
    for (int32_t d = 0, i = 0; d < out->rank; d++) {
        if (d == axis && n_before) {
            if (at + 1 > out->shape[d])
                return false;
            continue;
        }
        int64_t n = x->shape[i];
        if (d == axis ? n > 0 && at + (n - 1) * step >= out->shape[d] : n != out->shape[d])
            return false;
        part->stride[i++] = d == axis ? out->stride[d] * step : out->stride[d];
    }
    part->data = pome_tensor_count(part) == 0 ? out->data : pome_elem_at(out, at * out->stride[axis]);
    return true;
}

static pome_status join(const pome_run *r, uint32_t values, int64_t axis_given, bool is_interleaved, bool is_new_axis,
                        pome_error *err)
{
    const pome_tensor *out = &r->out[0];
    uint32_t n = pome_in_count(r, values);
    int32_t axis = pome_axis_wrap(axis_given, out->rank);
    if (axis < 0)
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "axis %lld is outside rank %d", (long long)axis_given,
                            (int)out->rank);
    int64_t at = 0, filled = 0;
    for (uint32_t i = 0; i < n; i++) {
        const pome_tensor *x = pome_in_at(r, values, i);
        pome_tensor part;
        int64_t length = is_new_axis || x->rank == 0 ? 1 : axis < x->rank ? x->shape[axis] : 0;
        bool fits = is_interleaved ? length * n == out->shape[axis] : length <= out->shape[axis] - at;
        if (!fits || !joined_part(out, x, axis, at, is_interleaved ? n : 1, is_new_axis, &part)) {
            char found[200], want[200];
            return pome_op_fail(r->op, err, POME_ERR_ARG, "value %u has shape %s, which does not fit the output %s",
                                (unsigned)i, pome_shape_text(found, sizeof found, x),
                                pome_shape_text(want, sizeof want, out));
        }
        pome_strided_copy(&part, x, r->pool, r->kernels);
        at += is_interleaved ? 1 : length;
        filled += length;
    }
    if (filled != out->shape[axis])
        return pome_op_fail(r->op, err, POME_ERR_ARG, "the values fill %lld of %lld along axis %d", (long long)filled,
                            (long long)out->shape[axis], (int)axis);
    return POME_OK;
}

static pome_status run_concat(const pome_run *r, pome_error *err)
{
    return join(r, P_concat_values, pome_in_int(r, P_concat_axis, 0), pome_in_bool(r, P_concat_interleave, false),
                false, err);
}

static pome_status run_stack(const pome_run *r, pome_error *err)
{
    return join(r, P_stack_values, pome_in_int(r, P_stack_axis, 0), false, true, err);
}

/* ---- tile ---- */
static bool tile_fits(const pome_run *r)
{
    const pome_tensor *x = r->in[0], *reps = pome_in(r, P_tile_reps), *out = &r->out[0];
    if (pome_tensor_count(reps) != x->rank || out->rank != x->rank)
        return false;
    for (int32_t d = 0; d < x->rank; d++) {
        int64_t total, times = pome_tensor_int_at(reps, d);
        if (times < 0 || __builtin_mul_overflow(x->shape[d], times, &total) || total != out->shape[d])
            return false;
    }
    return true;
}

static bool view_tile(const pome_run *r)
{
    const pome_tensor *x = r->in[0];
    pome_tensor *out = &r->out[0];
    if (!tile_fits(r))
        return false;
    for (int32_t d = 0; d < x->rank; d++)
        if (out->shape[d] != x->shape[d] && x->shape[d] != 1)
            return false;
    for (int32_t d = 0; d < x->rank; d++)
        out->stride[d] = out->shape[d] == x->shape[d] ? x->stride[d] : 0;
    pome_view_take(out, x, 0);
    return true;
}

static pome_status run_tile(const pome_run *r, pome_error *err)
{
    const pome_tensor *x = r->in[0], *out = &r->out[0];
    if (!tile_fits(r))
        return pome_view_misfit(r, err);
    int64_t shape[2 * POME_MAX_RANK], dst[2 * POME_MAX_RANK], src[2 * POME_MAX_RANK];
    if (pome_tensor_count(out) == 0)
        return POME_OK;
    for (int32_t d = 0; d < x->rank; d++) { /* every axis as [repetition, element] */
        shape[2 * d] = out->shape[d] / x->shape[d];
        dst[2 * d] = out->stride[d] * x->shape[d];
        src[2 * d] = 0;
        shape[2 * d + 1] = x->shape[d];
        dst[2 * d + 1] = out->stride[d];
        src[2 * d + 1] = x->stride[d];
    }
    pome_copy c;
    pome_copy_init(&c, out->dtype, x->dtype, 2 * x->rank, shape, dst, src);
    pome_copy_run(&c, out->data, x->data, r->pool, r->kernels);
    return POME_OK;
}

#define BIT2(a, b) (POME_BIT(a) | POME_BIT(b))

const pome_op_impl pome_ops_slice[] = {
    {.id = POME_OP_slice_by_index,
     .f16_ok = POME_BIT(P_slice_by_index_x),
     .strided_ok = POME_BIT(P_slice_by_index_x),
     .view = view_slice_by_index,
     .run = run_slice_by_index},
    {.id = POME_OP_slice_by_size,
     .f16_ok = POME_BIT(P_slice_by_size_x),
     .strided_ok = POME_BIT(P_slice_by_size_x),
     .view = view_slice_by_size,
     .run = run_slice_by_size},
    {.id = POME_OP_slice_update,
     .f16_ok = BIT2(P_slice_update_x, P_slice_update_update),
     .strided_ok = BIT2(P_slice_update_x, P_slice_update_update),
     .scratch = scratch_slice_update,
     .run = run_slice_update},
    {.id = POME_OP_split,
     .f16_ok = POME_BIT(P_split_x),
     .strided_ok = POME_BIT(P_split_x),
     .view = view_split,
     .run = run_split},
    {.id = POME_OP_concat,
     .f16_ok = POME_BIT(P_concat_values),
     .strided_ok = POME_BIT(P_concat_values),
     .run = run_concat},
    {.id = POME_OP_stack,
     .f16_ok = POME_BIT(P_stack_values),
     .strided_ok = POME_BIT(P_stack_values),
     .run = run_stack},
    {.id = POME_OP_tile,
     .f16_ok = POME_BIT(P_tile_x),
     .strided_ok = POME_BIT(P_tile_x),
     .view = view_tile,
     .run = run_tile},
};
POME_FAMILY_COUNT(slice)
