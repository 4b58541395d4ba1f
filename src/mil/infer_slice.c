/* Slicing: numpy's rules, worked out once for inference and for the operators. */
#include <inttypes.h>

#include "mil/infer.h"

static bool mask_at(const pome_tensor *mask, int32_t i)
{
    if (!mask)
        return false;
    if (mask->dtype == POME_DTYPE_BOOL && mask->rank == 1)
        return ((const uint8_t *)mask->data)[i * mask->stride[0]] != 0;
    return pome_tensor_int_at(mask, i) != 0;
}

static pome_status slice_fail(const pome_op *op, pome_error *err, const char *what, int64_t found, int32_t axis)
{
    return pome_fail(err, POME_ERR_FORMAT, "%s (%s, #%" PRIu32 "): %s %" PRId64 " (axis %" PRId32 ")", op->name,
                     op->def->name, op->position, what, found, axis);
}

/* begin:end:step of numpy on an axis of size n. */
static void resolve_axis(int64_t n, bool has_begin, int64_t begin, bool has_end, int64_t end, int64_t step,
                         pome_slice_axis *out)
{
    int64_t lo = step > 0 ? 0 : -1, hi = step > 0 ? n : n - 1;
    if (!has_begin)
        begin = step > 0 ? lo : hi;
    else if (begin < 0)
        begin += n;
    if (!has_end)
        end = step > 0 ? hi : lo;
    else if (end < 0)
        end += n;
    begin = begin < lo ? lo : begin > hi ? hi : begin;
    end = end < lo ? lo : end > hi ? hi : end;
    int64_t span = step > 0 ? end - begin : begin - end, stride = step > 0 ? step : -step;
    out->begin = begin;
    out->step = step;
    out->length = span <= 0 ? 0 : stride == 1 ? span : 1 + (span - 1) / stride;
}

pome_status pome_slice_resolve(const pome_op *op, const pome_tensor *begin, const pome_tensor *end,
                               const pome_tensor *stride, const pome_tensor *begin_mask, const pome_tensor *end_mask,
                               const pome_tensor *squeeze_mask, int32_t rank, const int64_t *dim,
                               pome_slice_axis *sel, bool *squeezed, pome_error *err)
{
    for (int32_t i = 0; i < rank; i++) {
        int64_t step = stride ? pome_tensor_int_at(stride, i) : 1;
        bool has_begin = !mask_at(begin_mask, i), has_end = !mask_at(end_mask, i);
        int64_t first = pome_tensor_int_at(begin, i);
        squeezed[i] = mask_at(squeeze_mask, i);
        if (squeezed[i]) { /* the one element at begin, whatever end and stride say */
            first = !has_begin ? 0 : first >= 0 ? first : first + dim[i] > 0 ? first + dim[i] : 0;
            if (first >= dim[i])
                return slice_fail(op, err, "begin is past the end:", first, i);
            sel[i] = (pome_slice_axis){first, 1, 1};
            continue;
        }
        if (step == 0 || step < -INT32_MAX || step > INT32_MAX)
            return slice_fail(op, err, "stride is", step, i);
        resolve_axis(dim[i], has_begin, first, has_end, pome_tensor_int_at(end, i), step, &sel[i]);
    }
    return POME_OK;
}

/* ---- inference ---- */

/* The parameters of slice_by_index and slice_update. */
typedef struct slice_params {
    const pome_tensor *begin, *end; /* NULL: not known */
    const pome_tensor *stride, *begin_mask, *end_mask, *squeeze_mask; /* NULL: absent */
} slice_params;

/* Each given parameter must be a vector of x's rank. After the first two they are constants: once is enough. */
static pome_status check_params(pome_infer *c, const uint32_t *param, int n, int32_t rank, pome_error *err)
{
    for (int i = 0; i < (pome_infer_at_load(c) ? n : 2); i++) {
        POME_TRY(pome_infer_vector(c, param[i], rank, err));
        const pome_tensor *t = pome_infer_value(c, param[i]);
        if (t && pome_tensor_count(t) != rank)
            return pome_infer_fail(c, err, "'%s' has %" PRId64 " elements for rank %" PRId32,
                                   c->op->def->params[param[i]].name, pome_tensor_count(t), rank);
        if (i >= 2 && pome_infer_has(c, param[i]) && !t)
            return pome_infer_fail(c, err, "'%s' must be a constant", c->op->def->params[param[i]].name);
    }
    return POME_OK;
}

/* The length selected on axis i of size n when n, begin or end may be unknown. */
static pome_status symbolic_length(pome_infer *c, const slice_params *p, int32_t i, int64_t n, int64_t *out,
                                   pome_error *err)
{
    int64_t step = p->stride ? pome_tensor_int_at(p->stride, i) : 1;
    bool has_begin = !mask_at(p->begin_mask, i), has_end = !mask_at(p->end_mask, i);
    int64_t begin = p->begin ? pome_tensor_int_at(p->begin, i) : 0, end = p->end ? pome_tensor_int_at(p->end, i) : 0;
    if (step == 0 || step < -INT32_MAX || step > INT32_MAX)
        return slice_fail(c->op, err, "stride is", step, i);
    if (n >= 0 && (!has_begin || p->begin) && (!has_end || p->end)) {
        pome_slice_axis sel;
        resolve_axis(n, has_begin, begin, has_end, end, step, &sel);
        *out = sel.length;
        return POME_OK;
    }
    bool whole = (!has_begin || (p->begin && begin == 0 && step > 0)) && !has_end;
    bool both = has_begin && has_end && p->begin && p->end && begin >= 0 && end >= 0 && step > 0;
    bool one = has_begin && !has_end && p->begin && ((begin == 0 && step < 0) || (begin == -1 && step > 0));
    if (whole && (step == 1 || step == -1))
        *out = n;
    else if (both && end <= begin)
        *out = 0;
    else if ((both && begin == 0 && end <= step) || one)
        *out = 1; /* if there is any element at all, which an axis of unknown size is taken to have */
    else
        *out = pome_infer_symbol(c);
    return POME_OK;
}

/* Shape of x[slice], squeezed axes dropped. */
static pome_status slice_shape(pome_infer *c, const pome_type *x, const slice_params *p, pome_type *out, pome_error *err)
{
    pome_slice_axis sel[POME_MAX_RANK];
    bool squeezed[POME_MAX_RANK];
    out->kind = POME_TYPE_TENSOR;
    out->dtype = x->dtype;
    out->rank = 0;
    if (p->begin && p->end && !pome_infer_at_load(c)) {
        POME_TRY(pome_slice_resolve(c->op, p->begin, p->end, p->stride, p->begin_mask, p->end_mask, p->squeeze_mask,
                                    x->rank, x->dim, sel, squeezed, err));
        for (int32_t i = 0; i < x->rank; i++)
            if (!squeezed[i])
                out->dim[out->rank++] = sel[i].length;
        return POME_OK;
    }
    for (int32_t i = 0; i < x->rank; i++) {
        if (mask_at(p->squeeze_mask, i)) {
            int64_t begin = p->begin && !mask_at(p->begin_mask, i) ? pome_tensor_int_at(p->begin, i) : 0;
            if (x->dim[i] == 0 || (x->dim[i] > 0 && begin >= x->dim[i]))
                return slice_fail(c->op, err, "begin is past the end:", begin, i);
            continue;
        }
        POME_TRY(symbolic_length(c, p, i, x->dim[i], &out->dim[out->rank], err));
        out->rank++;
    }
    return POME_OK;
}

pome_status pome_infer_slice_by_index(pome_infer *c, pome_error *err)
{
    static const uint32_t params[] = {
        P_slice_by_index_begin,      P_slice_by_index_end,      P_slice_by_index_stride,
        P_slice_by_index_begin_mask, P_slice_by_index_end_mask, P_slice_by_index_squeeze_mask,
    };
    const pome_type *x = pome_infer_type(c, P_slice_by_index_x);
    POME_TRY(check_params(c, params, 6, x->rank, err));
    slice_params p = {
        pome_infer_value(c, params[0]), pome_infer_value(c, params[1]), pome_infer_value(c, params[2]),
        pome_infer_value(c, params[3]), pome_infer_value(c, params[4]), pome_infer_value(c, params[5]),
    };
    return slice_shape(c, x, &p, &c->out[0], err);
}

pome_status pome_infer_slice_update(pome_infer *c, pome_error *err)
{
    static const uint32_t params[] = {
        P_slice_update_begin,      P_slice_update_end,      P_slice_update_stride,
        P_slice_update_begin_mask, P_slice_update_end_mask, P_slice_update_squeeze_mask,
    };
    const pome_type *x = pome_infer_type(c, P_slice_update_x), *update = pome_infer_type(c, P_slice_update_update);
    POME_TRY(check_params(c, params, 6, x->rank, err));
    slice_params p = {
        pome_infer_value(c, params[0]), pome_infer_value(c, params[1]), pome_infer_value(c, params[2]),
        pome_infer_value(c, params[3]), pome_infer_value(c, params[4]), pome_infer_value(c, params[5]),
    };
    pome_type slice = {0};
    POME_TRY(slice_shape(c, x, &p, &slice, err));
    if (update->rank == 0)
        return pome_infer_fail(c, err, "a scalar update is not supported");
    if (!pome_type_compatible(update, &slice)) {
        char a[160], b[160];
        return pome_infer_fail(c, err, "update is %s, the slice %s", pome_type_print(update, a, sizeof a),
                               pome_type_print(&slice, b, sizeof b));
    }
    c->out[0] = *x;
    return POME_OK;
}

/* size -1: to the end. A negative begin counts from the end. */
static pome_status sized_length(pome_infer *c, int32_t i, int64_t n, bool begin_known, int64_t begin, int64_t size,
                                int64_t *out, pome_error *err)
{
    if (size < -1)
        return slice_fail(c->op, err, "size is", size, i);
    if (begin < 0 && n >= 0)
        begin += n;
    if (begin_known && n >= 0 && (begin < 0 || begin > n || size > n - begin))
        return pome_infer_fail(c, err, "begin %" PRId64 " and size %" PRId64 " do not fit axis %" PRId32 " of size %" PRId64,
                               begin, size, i, n);
    if (size >= 0)
        *out = size;
    else if (begin_known && n >= 0)
        *out = n - begin;
    else if (begin_known && begin == 0)
        *out = n;
    else
        *out = begin_known && begin < 0 ? -begin : pome_infer_symbol(c);
    return POME_OK;
}

pome_status pome_infer_slice_by_size(pome_infer *c, pome_error *err)
{
    static const uint32_t params[] = {P_slice_by_size_begin, P_slice_by_size_size};
    const pome_type *x = pome_infer_type(c, P_slice_by_size_x);
    POME_TRY(check_params(c, params, 2, x->rank, err));
    const pome_tensor *begin = pome_infer_value(c, params[0]), *size = pome_infer_value(c, params[1]);
    c->out[0].kind = POME_TYPE_TENSOR;
    c->out[0].dtype = x->dtype;
    c->out[0].rank = x->rank;
    for (int32_t i = 0; i < x->rank; i++) {
        if (!size)
            c->out[0].dim[i] = pome_infer_symbol(c);
        else
            POME_TRY(sized_length(c, i, x->dim[i], begin != NULL, begin ? pome_tensor_int_at(begin, i) : 0,
                                  pome_tensor_int_at(size, i), &c->out[0].dim[i], err));
    }
    return POME_OK;
}
