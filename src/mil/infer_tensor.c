/* Inference of operators that join, split, repeat, fill and make tensors. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/f16.h"
#include "mil/infer.h"

static void set_vector(pome_type *t, pome_dtype dtype, int64_t n)
{
    *t = (pome_type){.kind = POME_TYPE_TENSOR, .dtype = dtype, .rank = 1, .dim = {n}};
}

/* ---- joining ---- */

/* All values of a list parameter must have the first one's dtype and rank. */
static pome_status check_alike(pome_infer *c, pome_arg values, pome_error *err)
{
    if (values.count == 0)
        return pome_infer_fail(c, err, "has no values");
    const pome_type *first = c->in[values.first];
    for (uint32_t i = 1; i < values.count; i++) {
        const pome_type *t = c->in[values.first + i];
        if (t->dtype != first->dtype)
            return pome_infer_fail(c, err, "value %" PRIu32 " is %s, the first %s", i, pome_dtype_name(t->dtype),
                                   pome_dtype_name(first->dtype));
        if (t->rank != first->rank)
            return pome_infer_fail(c, err, "value %" PRIu32 " has rank %" PRId32 ", the first %" PRId32, i, t->rank,
                                   first->rank);
    }
    return POME_OK;
}

/* Meets sizes that must be equal, axis `skip` (or -1) apart: the known ones win. */
static pome_status meet_sizes(pome_infer *c, pome_type *out, const pome_type *t, int32_t skip, uint32_t i,
                              pome_error *err)
{
    for (int32_t a = 0; a < out->rank; a++) {
        if (a == skip)
            continue;
        if (!pome_dim_may_equal(out->dim[a], t->dim[a]))
            return pome_infer_fail(c, err, "value %" PRIu32 " has size %" PRId64 " on axis %" PRId32 ", others %" PRId64, i,
                                   t->dim[a], a, out->dim[a]);
        if (out->dim[a] < 0)
            out->dim[a] = t->dim[a];
    }
    return POME_OK;
}

/* Scalars become a vector. */
pome_status pome_infer_concat(pome_infer *c, pome_error *err)
{
    const pome_arg values = c->op->args[P_concat_values];
    POME_TRY(check_alike(c, values, err));
    const pome_type *first = c->in[values.first];
    if (first->rank == 0) {
        set_vector(&c->out[0], first->dtype, values.count);
        return POME_OK;
    }
    int32_t axis = 0;
    bool interleave = false;
    POME_TRY(pome_infer_axis_param(c, P_concat_axis, 0, first->rank, &axis, err));
    POME_TRY(pome_infer_bool(c, P_concat_interleave, false, &interleave, err));
    pome_type *out = &c->out[0];
    *out = *first;
    int64_t known = first->dim[axis] < 0 ? 0 : first->dim[axis], unknown = first->dim[axis] < 0 ? first->dim[axis] : 0;
    for (uint32_t i = 1; i < values.count; i++) {
        const pome_type *t = c->in[values.first + i];
        POME_TRY(meet_sizes(c, out, t, interleave ? -1 : axis, i, err));
        if (t->dim[axis] >= 0)
            POME_TRY(pome_infer_add(c, known, t->dim[axis], &known, err));
        else
            unknown = unknown ? INT64_MIN : t->dim[axis]; /* INT64_MIN: more than one */
    }
    if (unknown == 0)
        out->dim[axis] = known;
    else
        out->dim[axis] = unknown != INT64_MIN && known == 0 ? unknown : pome_infer_symbol(c);
    return POME_OK;
}

pome_status pome_infer_stack(pome_infer *c, pome_error *err)
{
    const pome_arg values = c->op->args[P_stack_values];
    POME_TRY(check_alike(c, values, err));
    pome_type all = *c->in[values.first];
    int32_t axis = 0;
    if (all.rank == POME_MAX_RANK)
        return pome_infer_fail(c, err, "the result's rank is more than %d", POME_MAX_RANK);
    POME_TRY(pome_infer_axis_param(c, P_stack_axis, 0, all.rank + 1, &axis, err));
    for (uint32_t i = 1; i < values.count; i++)
        POME_TRY(meet_sizes(c, &all, c->in[values.first + i], -1, i, err));
    c->out[0] = all;
    c->out[0].rank = all.rank + 1;
    c->out[0].dim[axis] = values.count;
    for (int32_t a = axis; a < all.rank; a++)
        c->out[0].dim[a + 1] = all.dim[a];
    return POME_OK;
}

/* ---- splitting ---- */

static pome_status split_evenly(pome_infer *c, const pome_type *x, int32_t axis, int64_t n, pome_error *err)
{
    int64_t size = x->dim[axis];
    if (n < 1 || n > UINT32_MAX)
        return pome_infer_fail(c, err, "num_splits is %" PRId64, n);
    POME_TRY(pome_infer_outputs(c, (uint32_t)n, err));
    if (size >= 0 && size % n != 0)
        return pome_infer_fail(c, err, "axis of size %" PRId64 " does not split into %" PRId64, size, n);
    size = size >= 0 ? size / n : n == 1 ? size : pome_infer_symbol(c);
    for (uint32_t i = 0; i < c->op->n_out; i++) {
        c->out[i] = *x;
        c->out[i].dim[axis] = size;
    }
    return POME_OK;
}

pome_status pome_infer_split(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_split_x);
    const pome_tensor *sizes = pome_infer_value(c, P_split_split_sizes);
    int64_t n = 0, sum = 0;
    int32_t axis = 0;
    POME_TRY(pome_infer_axis_param(c, P_split_axis, 0, x->rank, &axis, err));
    POME_TRY(pome_infer_int(c, P_split_num_splits, 0, &n, err));
    if (!pome_infer_has(c, P_split_split_sizes)) {
        if (!pome_infer_has(c, P_split_num_splits))
            return pome_infer_fail(c, err, "neither num_splits nor split_sizes is given");
        return split_evenly(c, x, axis, n, err);
    }
    if (!sizes || sizes->rank != 1)
        return pome_infer_fail(c, err, "split_sizes must be a constant vector");
    if (n && n != sizes->shape[0])
        return pome_infer_fail(c, err, "num_splits is %" PRId64 ", split_sizes has %" PRId64 " elements", n,
                               sizes->shape[0]);
    if (sizes->shape[0] != (int64_t)c->op->n_out)
        return pome_infer_fail(c, err, "has %" PRIu32 " outputs, but %" PRId64 " split_sizes", c->op->n_out,
                               sizes->shape[0]);
    for (uint32_t i = 0; i < c->op->n_out; i++) {
        int64_t size = pome_tensor_int_at(sizes, i);
        if (size < 0)
            return pome_infer_fail(c, err, "split_sizes holds %" PRId64, size);
        POME_TRY(pome_infer_add(c, sum, size, &sum, err));
        c->out[i] = *x;
        c->out[i].dim[axis] = size;
    }
    if (!pome_dim_may_equal(sum, x->dim[axis]))
        return pome_infer_fail(c, err, "split_sizes add up to %" PRId64 ", the axis has %" PRId64, sum, x->dim[axis]);
    return POME_OK;
}

/* ---- repeating, padding ---- */

pome_status pome_infer_tile(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_tile_x);
    int64_t reps[POME_MAX_RANK];
    int32_t n = 0;
    bool known = false;
    POME_TRY(pome_infer_ints(c, P_tile_reps, reps, &n, &known, err));
    if (n >= 0 && n != x->rank)
        return pome_infer_fail(c, err, "reps has %" PRId32 " elements for rank %" PRId32, n, x->rank);
    c->out[0] = *x;
    for (int32_t i = 0; i < x->rank; i++) {
        if (known && reps[i] < 0)
            return pome_infer_fail(c, err, "reps holds %" PRId64, reps[i]);
        if (known)
            POME_TRY(pome_infer_mul(c, x->dim[i], reps[i], &c->out[0].dim[i], err));
        else
            c->out[0].dim[i] = pome_infer_symbol(c);
    }
    return POME_OK;
}

static pome_status pad_axis(pome_infer *c, int64_t before, int64_t after, bool reflect, int64_t *dim, pome_error *err)
{
    if (before < 0 || after < 0)
        return pome_infer_fail(c, err, "pad holds %" PRId64, before < 0 ? before : after);
    if (reflect && *dim >= 0 && (before > 0 || after > 0) && (before >= *dim || after >= *dim))
        return pome_infer_fail(c, err, "reflection by %" PRId64 " needs more than %" PRId64 " elements",
                               before > after ? before : after, *dim);
    POME_TRY(pome_infer_add(c, *dim, before, dim, err));
    return pome_infer_add(c, *dim, after, dim, err);
}

/* pad: before, after for each of the last axes. */
pome_status pome_infer_pad(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_pad_x), *type = pome_infer_type(c, P_pad_pad);
    const pome_tensor *pad = pome_infer_value(c, P_pad_pad);
    bool reflect = strcmp(pome_op_str(c->op, P_pad_mode, "constant"), "reflect") == 0;
    POME_TRY(pome_infer_word(c, P_pad_mode, "constant|reflect|replicate", err));
    if (type->rank != 1)
        return pome_infer_fail(c, err, "pad has rank %" PRId32 ", not 1", type->rank);
    int64_t n = pad ? pome_tensor_count(pad) : type->dim[0];
    n = n < 0 ? 2 * (int64_t)x->rank : n;
    if (n % 2 != 0 || n > 2 * (int64_t)x->rank || (!pad && n != 2 * (int64_t)x->rank))
        return pome_infer_fail(c, err, "pad has %" PRId64 " elements for rank %" PRId32, n, x->rank);
    c->out[0] = *x;
    int32_t first = x->rank - (int32_t)(n / 2);
    for (int32_t i = first; i < x->rank; i++) {
        int64_t *dim = &c->out[0].dim[i];
        if (!pad)
            *dim = pome_infer_symbol(c);
        else
            POME_TRY(pad_axis(c, pome_tensor_int_at(pad, 2 * (i - first)), pome_tensor_int_at(pad, 2 * (i - first) + 1),
                              reflect, dim, err));
    }
    return POME_OK;
}

pome_status pome_infer_sliding_windows(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_sliding_windows_x);
    int32_t axis = 0;
    int64_t size = 1, stride = 1;
    POME_TRY(pome_infer_axis_param(c, P_sliding_windows_axis, 0, x->rank, &axis, err));
    POME_TRY(pome_infer_int(c, P_sliding_windows_size, 1, &size, err));
    POME_TRY(pome_infer_int(c, P_sliding_windows_stride, 1, &stride, err));
    if (x->rank == POME_MAX_RANK)
        return pome_infer_fail(c, err, "the result's rank is more than %d", POME_MAX_RANK);
    int64_t n = x->dim[axis];
    if (size < 1 || stride < 1 || (n >= 0 && n < size))
        return pome_infer_fail(c, err, "windows of %" PRId64 " every %" PRId64 " do not fit %" PRId64, size, stride, n);
    c->out[0] = *x;
    c->out[0].rank = x->rank + 1;
    c->out[0].dim[axis] = n >= 0 ? (n - size) / stride + 1 : size == 1 && stride == 1 ? n : pome_infer_symbol(c);
    c->out[0].dim[axis + 1] = size;
    for (int32_t a = axis + 1; a < x->rank; a++)
        c->out[0].dim[a + 1] = x->dim[a];
    return POME_OK;
}

/* ---- making ---- */

/* The shape is the contents of a vector parameter. */
static pome_status shape_from(pome_infer *c, uint32_t param, pome_dtype dtype, pome_error *err)
{
    pome_type *out = &c->out[0];
    bool known = false;
    POME_TRY(pome_infer_ints(c, param, out->dim, &out->rank, &known, err));
    out->kind = POME_TYPE_TENSOR;
    out->dtype = dtype;
    for (int32_t i = 0; i < out->rank; i++) {
        if (!known)
            out->dim[i] = pome_infer_symbol(c);
        else if (out->dim[i] < 0)
            return pome_infer_fail(c, err, "the shape holds %" PRId64, out->dim[i]);
    }
    return POME_OK;
}

static pome_dtype dtype_of(const pome_infer *c, uint32_t param, pome_dtype dflt)
{
    return pome_infer_has(c, param) ? pome_infer_type(c, param)->dtype : dflt;
}

pome_status pome_infer_fill(pome_infer *c, pome_error *err)
{
    return shape_from(c, P_fill_shape, dtype_of(c, P_fill_value, POME_DTYPE_F32), err);
}

pome_status pome_infer_fill_like(pome_infer *c, pome_error *err)
{
    (void)err;
    c->out[0] = *pome_infer_type(c, P_fill_like_ref_tensor);
    c->out[0].dtype = dtype_of(c, P_fill_like_value, POME_DTYPE_F32);
    return POME_OK;
}

/* shape, then the distribution's parameters: the same places in each row. */
pome_status pome_infer_random_shape(pome_infer *c, pome_error *err)
{
    pome_dtype dtype = dtype_of(c, P_random_normal_mean, POME_DTYPE_NONE);
    if (c->op->def->id != POME_OP_random_bernoulli) {
        pome_dtype second = dtype_of(c, P_random_normal_stddev, dtype);
        if (dtype != POME_DTYPE_NONE && dtype != second)
            return pome_infer_fail(c, err, "the parameters are %s and %s", pome_dtype_name(dtype),
                                   pome_dtype_name(second));
        dtype = second;
    }
    return shape_from(c, P_random_normal_shape, dtype == POME_DTYPE_NONE ? POME_DTYPE_F32 : dtype, err);
}

pome_status pome_infer_random_categorical(pome_infer *c, pome_error *err)
{
    int64_t size = 1;
    POME_TRY(pome_infer_word(c, P_random_categorical_mode, "logits|probs", err));
    POME_TRY(pome_infer_rank(c, P_random_categorical_x, 1, POME_MAX_RANK, err));
    POME_TRY(pome_infer_int(c, P_random_categorical_size, 1, &size, err));
    if (size < 0)
        return pome_infer_fail(c, err, "size is %" PRId64, size);
    c->out[0] = *pome_infer_type(c, P_random_categorical_x);
    c->out[0].dim[c->out[0].rank - 1] = size;
    return POME_OK;
}

/* ceil((end - start) / step), rounded step by step in the operands' dtype as numpy does. */
static double float_length(pome_dtype dtype, double start, double end, double step)
{
    float span = (float)end - (float)start;
    span = dtype == POME_DTYPE_F16 ? pome_f16_round(span) : span;
    float n = span / (float)step;
    return ceil((double)(dtype == POME_DTYPE_F16 ? pome_f16_round(n) : n));
}

pome_status pome_infer_range_1d(pome_infer *c, pome_error *err)
{
    const pome_tensor *start = pome_infer_value(c, P_range_1d_start), *end = pome_infer_value(c, P_range_1d_end);
    const pome_tensor *step = pome_infer_value(c, P_range_1d_step);
    pome_dtype dtype = pome_infer_type(c, P_range_1d_start)->dtype;
    if (dtype != pome_infer_type(c, P_range_1d_end)->dtype || dtype != pome_infer_type(c, P_range_1d_step)->dtype)
        return pome_infer_fail(c, err, "start, end and step differ in type");
    if (step && pome_tensor_float_at(step, 0) == 0)
        return pome_infer_fail(c, err, "step is 0");
    int64_t n;
    if (!start || !end || !step) {
        n = pome_infer_symbol(c);
    } else if (pome_dtype_is_float(dtype)) {
        double d = float_length(dtype, pome_tensor_float_at(start, 0), pome_tensor_float_at(end, 0),
                                pome_tensor_float_at(step, 0));
        if (!(d <= (double)POME_MAX_ELEMENTS)) /* NaN too */
            return pome_infer_fail(c, err, "the range has %g elements", d);
        n = d > 0 ? (int64_t)d : 0;
    } else { /* at most 32 bits each: nothing overflows */
        int64_t s = pome_tensor_int_at(step, 0), span = pome_tensor_int_at(end, 0) - pome_tensor_int_at(start, 0);
        span = s > 0 ? span : -span;
        s = s > 0 ? s : -s;
        n = span <= 0 ? 0 : 1 + (span - 1) / s;
    }
    set_vector(&c->out[0], dtype, n);
    return POME_OK;
}

pome_status pome_infer_one_hot(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_one_hot_indices);
    pome_dtype on = dtype_of(c, P_one_hot_on_value, POME_DTYPE_NONE), off = dtype_of(c, P_one_hot_off_value, on);
    int32_t axis = 0;
    int64_t depth = 0;
    if (on != POME_DTYPE_NONE && on != off)
        return pome_infer_fail(c, err, "on_value is %s, off_value %s", pome_dtype_name(on), pome_dtype_name(off));
    if (x->rank == POME_MAX_RANK)
        return pome_infer_fail(c, err, "the result's rank is more than %d", POME_MAX_RANK);
    POME_TRY(pome_infer_axis_param(c, P_one_hot_axis, -1, x->rank + 1, &axis, err));
    if (pome_infer_value(c, P_one_hot_one_hot_vector_size)) {
        POME_TRY(pome_infer_int(c, P_one_hot_one_hot_vector_size, 0, &depth, err));
        if (depth < 0)
            return pome_infer_fail(c, err, "one_hot_vector_size is %" PRId64, depth);
    } else {
        depth = pome_infer_symbol(c);
    }
    c->out[0] = *x;
    c->out[0].dtype = off == POME_DTYPE_NONE ? POME_DTYPE_I32 : off;
    c->out[0].rank = x->rank + 1;
    c->out[0].dim[axis] = depth;
    for (int32_t a = axis; a < x->rank; a++)
        c->out[0].dim[a + 1] = x->dim[a];
    return POME_OK;
}

/* ---- looking ---- */

pome_status pome_infer_shape(pome_infer *c, pome_error *err)
{
    (void)err;
    set_vector(&c->out[0], POME_DTYPE_I32, pome_infer_type(c, P_shape_x)->rank);
    return POME_OK;
}

/* How many are not zero is known only after looking: at run time the bound is all of them. */
pome_status pome_infer_non_zero(pome_infer *c, pome_error *err)
{
    (void)err;
    const pome_type *x = pome_infer_type(c, P_non_zero_x);
    int64_t n = pome_infer_at_load(c) ? pome_infer_symbol(c) : pome_type_count(x);
    c->out[0] = (pome_type){.kind = POME_TYPE_TENSOR, .dtype = POME_DTYPE_I32, .rank = 2, .dim = {n, x->rank}};
    return POME_OK;
}

pome_status pome_infer_topk(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_topk_x);
    int64_t k = 1;
    int32_t axis = 0;
    bool with_indices = true;
    pome_dtype dtype = POME_DTYPE_I32;
    POME_TRY(pome_infer_int(c, P_topk_k, 1, &k, err));
    POME_TRY(pome_infer_axis_param(c, P_topk_axis, -1, x->rank, &axis, err));
    POME_TRY(pome_infer_bool(c, P_topk_return_indices, true, &with_indices, err));
    POME_TRY(pome_infer_dtype(c, P_topk_output_indices_dtype, POME_DTYPE_I32, POME_T_I32 | POME_T_U16 | POME_T_I16,
                              &dtype, err));
    POME_TRY(pome_infer_outputs(c, with_indices ? 2 : 1, err));
    if (k < -1 || k == 0 || (x->dim[axis] >= 0 && k > x->dim[axis]))
        return pome_infer_fail(c, err, "k is %" PRId64 " on an axis of size %" PRId64, k, x->dim[axis]);
    c->out[0] = *x;
    if (k > 0) /* -1: all */
        c->out[0].dim[axis] = k;
    if (with_indices) {
        c->out[1] = c->out[0];
        c->out[1].dtype = dtype;
    }
    return POME_OK;
}

/* boxes [n, B, 4], scores [n, B, K] (since iOS 17: [n, 4, B], [n, K, B]). The results are padded to max_boxes. */
pome_status pome_infer_non_maximum_suppression(pome_infer *c, pome_error *err)
{
    const pome_type *boxes = pome_infer_type(c, P_non_maximum_suppression_boxes);
    const pome_type *scores = pome_infer_type(c, P_non_maximum_suppression_scores);
    bool last = c->opset < POME_OPSET_IOS17; /* coordinates and classes are the last axis */
    int box_axis = last ? 1 : 2, class_axis = last ? 2 : 1;
    int64_t n = 0;
    POME_TRY(pome_infer_rank(c, P_non_maximum_suppression_boxes, 3, 3, err));
    POME_TRY(pome_infer_rank(c, P_non_maximum_suppression_scores, 3, 3, err));
    POME_TRY(pome_infer_int(c, P_non_maximum_suppression_max_boxes, 0, &n, err));
    POME_TRY(pome_infer_outputs(c, last ? 4 : 3, err));
    if (!pome_dim_may_equal(boxes->dim[0], scores->dim[0]) || !pome_dim_may_equal(boxes->dim[class_axis], 4) ||
        !pome_dim_may_equal(boxes->dim[box_axis], scores->dim[box_axis]))
        return pome_infer_fail(c, err, "boxes and scores do not fit");
    if (n < 1)
        return pome_infer_fail(c, err, "max_boxes is %" PRId64, n);
    c->out[0] = *boxes;
    c->out[0].dim[class_axis] = 4;
    c->out[1] = *scores;
    c->out[0].dim[box_axis] = c->out[1].dim[box_axis] = n;
    c->out[2] = (pome_type){.kind = POME_TYPE_TENSOR, .dtype = POME_DTYPE_I32, .rank = 2, .dim = {scores->dim[0], n}};
    if (last)
        set_vector(&c->out[3], POME_DTYPE_I32, scores->dim[0]);
    return POME_OK;
}
