/* Inference of operators that rearrange elements without changing their number. */
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "mil/infer.h"

static void set_tensor(pome_infer *c, pome_dtype dtype, int32_t rank)
{
    c->out[0].kind = POME_TYPE_TENSOR;
    c->out[0].dtype = dtype;
    c->out[0].rank = rank;
}

/* ---- reshape ---- */

/* A number of elements as a known factor and the symbols it is multiplied by. */
typedef struct volume {
    int64_t known;
    int32_t n;
    int64_t symbol[POME_MAX_RANK];
} volume;

static pome_status volume_times(pome_infer *c, volume *v, int64_t dim, pome_error *err)
{
    if (dim < 0)
        v->symbol[v->n++] = dim;
    else if (!pome_mul_i64(v->known, dim, &v->known))
        return pome_infer_fail(c, err, "the shape has too many elements");
    return POME_OK;
}

/* Drops the symbols that both have. */
static void volume_cancel(volume *a, volume *b)
{
    for (int32_t i = 0; i < a->n; i++) {
        for (int32_t j = 0; j < b->n; j++) {
            if (a->symbol[i] == b->symbol[j]) {
                a->symbol[i--] = a->symbol[--a->n];
                b->symbol[j] = b->symbol[--b->n];
                break;
            }
        }
    }
}

/* Fits `to` (rank n, at `hole` one size to be found, or hole -1) to the elements of x. */
static pome_status fit(pome_infer *c, const pome_type *x, int64_t *to, int32_t n, int32_t hole, pome_error *err)
{
    volume from = {1, 0, {0}}, rest = {1, 0, {0}};
    for (int32_t i = 0; i < x->rank; i++)
        POME_TRY(volume_times(c, &from, x->dim[i], err));
    for (int32_t i = 0; i < n; i++)
        if (i != hole)
            POME_TRY(volume_times(c, &rest, to[i], err));
    volume_cancel(&from, &rest);
    bool known = from.n == 0 && rest.n == 0;
    if (hole >= 0) {
        if (rest.known == 0)
            return pome_infer_fail(c, err, "-1 in the shape is ambiguous: the other sizes contain 0");
        if (known) {
            if (from.known % rest.known != 0)
                return pome_infer_fail(c, err, "%" PRId64 " elements do not divide by %" PRId64, from.known, rest.known);
            to[hole] = from.known / rest.known;
        } else if (rest.n == 0 && from.n == 1 && from.known == rest.known) {
            to[hole] = from.symbol[0];
        } else {
            to[hole] = pome_infer_symbol(c);
        }
    } else if (known && from.known != rest.known) {
        char buf[160];
        pome_type t = pome_type_tensor(x->dtype, n, to);
        return pome_infer_fail(c, err, "%" PRId64 " elements do not fit %s", from.known,
                               pome_type_print(&t, buf, sizeof buf));
    }
    return POME_OK;
}

/* Size 0 in a shape copies a size of x: before iOS 17 the one at the same place, since then counted from the right. */
static pome_status copied_size(pome_infer *c, const pome_type *x, int32_t i, int32_t n, int64_t *out, pome_error *err)
{
    if (c->opset < POME_OPSET_IOS17) {
        if (n != x->rank)
            return pome_infer_fail(c, err, "0 in the shape, but %" PRId32 " sizes for rank %" PRId32, n, x->rank);
        *out = x->dim[i];
    } else {
        int32_t from_right = n - 1 - i;
        *out = from_right < x->rank ? x->dim[x->rank - 1 - from_right] : 1;
    }
    return POME_OK;
}

pome_status pome_infer_reshape(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_reshape_x);
    int64_t *to = c->out[0].dim;
    int32_t n, hole = -1;
    bool known;
    POME_TRY(pome_infer_ints(c, P_reshape_shape, to, &n, &known, err));
    set_tensor(c, x->dtype, n);
    for (int32_t i = 0; i < n; i++) {
        if (!known) {
            to[i] = pome_infer_symbol(c);
        } else if (to[i] == -1 && hole < 0) {
            hole = i;
        } else if (to[i] < 0) {
            return pome_infer_fail(c, err, "the shape holds %" PRId64 "%s", to[i], to[i] == -1 ? " twice" : "");
        } else if (to[i] == 0) {
            POME_TRY(copied_size(c, x, i, n, &to[i], err));
        }
    }
    return known ? fit(c, x, to, n, hole, err) : POME_OK;
}

/* The shape is put together from slices of the shapes of the references. */
pome_status pome_infer_reshape_like(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_reshape_like_x);
    const pome_arg *args = c->op->args;
    uint32_t n_ref = args[P_reshape_like_ref_tensors].count;
    int32_t rank = 0;
    if (args[P_reshape_like_begins].count != n_ref || args[P_reshape_like_ends].count != n_ref ||
        args[P_reshape_like_end_masks].count != n_ref)
        return pome_infer_fail(c, err, "ref_tensors, begins, ends and end_masks differ in length");
    for (uint32_t i = 0; i < n_ref; i++) {
        const pome_type *ref = c->in[args[P_reshape_like_ref_tensors].first + i];
        const pome_tensor *begin = c->value[args[P_reshape_like_begins].first + i];
        const pome_tensor *end = c->value[args[P_reshape_like_ends].first + i];
        const pome_tensor *mask = c->value[args[P_reshape_like_end_masks].first + i];
        if (!begin || !end || !mask || pome_tensor_count(begin) != 1 || pome_tensor_count(end) != 1 ||
            pome_tensor_count(mask) != 1)
            return pome_infer_fail(c, err, "begins, ends and end_masks must be constant scalars");
        int64_t b = pome_tensor_int_at(begin, 0), n = ref->rank;
        int64_t e = pome_tensor_int_at(mask, 0) ? n : pome_tensor_int_at(end, 0);
        b = b < 0 ? (b < -n ? 0 : b + n) : b;
        e = e < 0 ? e + n : e > n ? n : e;
        for (; b < e; b++) {
            if (rank == POME_MAX_RANK)
                return pome_infer_fail(c, err, "the result's rank is more than %d", POME_MAX_RANK);
            c->out[0].dim[rank++] = ref->dim[b];
        }
    }
    set_tensor(c, x->dtype, rank);
    return fit(c, x, c->out[0].dim, rank, -1, err);
}

pome_status pome_infer_flatten2d(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_flatten2d_x);
    int64_t axis = 1, *dim = c->out[0].dim;
    POME_TRY(pome_infer_int(c, P_flatten2d_axis, 1, &axis, err));
    if (axis < -x->rank || axis > x->rank)
        return pome_infer_fail(c, err, "axis %" PRId64 " is out of range for rank %" PRId32, axis, x->rank);
    axis = axis < 0 ? axis + x->rank : axis;
    set_tensor(c, x->dtype, 2);
    dim[0] = dim[1] = 1;
    for (int32_t i = 0; i < x->rank; i++)
        POME_TRY(pome_infer_mul(c, dim[i >= axis], x->dim[i], &dim[i >= axis], err));
    return POME_OK;
}

/* ---- axes of size 1 ---- */

/* axes count in the result; inserted in ascending order. */
pome_status pome_infer_expand_dims(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_expand_dims_x);
    int64_t axes[POME_MAX_RANK];
    uint32_t is_new = 0;
    int32_t n, axis = 0;
    bool known;
    POME_TRY(pome_infer_ints(c, P_expand_dims_axes, axes, &n, &known, err));
    if (!known)
        return pome_infer_fail(c, err, "axes must be a constant");
    int32_t rank = x->rank + n;
    if (rank > POME_MAX_RANK)
        return pome_infer_fail(c, err, "the result's rank %" PRId32 " is more than %d", rank, POME_MAX_RANK);
    for (int32_t i = 0; i < n; i++) {
        POME_TRY(pome_infer_axis(c, axes[i], rank, &axis, err));
        if (is_new >> axis & 1)
            return pome_infer_fail(c, err, "axis %" PRId64 " is named twice", axes[i]);
        is_new |= 1u << axis;
    }
    set_tensor(c, x->dtype, rank);
    for (int32_t i = 0, j = 0; i < rank; i++)
        c->out[0].dim[i] = is_new >> i & 1 ? 1 : x->dim[j++];
    return POME_OK;
}

/* Which of the named axes squeeze removes. Those that are not 1 are kept. Whether an unknown size is 1 would decide
 * the rank; the result's rank as it was declared settles it: so many are removed, known ones first. */
static uint32_t axes_to_drop(const pome_type *x, uint32_t axes, int32_t wanted)
{
    uint32_t drop = 0, unknown = 0;
    int32_t n_missing = wanted >= 0 ? x->rank - wanted : 0, n_unknown = 0;
    for (int32_t i = 0; i < x->rank; i++) {
        if (!(axes >> i & 1))
            continue;
        if (x->dim[i] == 1)
            drop |= 1u << i, n_missing--;
        else if (x->dim[i] < 0)
            unknown |= 1u << i, n_unknown++;
    }
    if (n_missing > n_unknown)
        return drop; /* the declaration is wrong */
    for (int32_t i = 0; i < x->rank && n_missing > 0; i++)
        if (unknown >> i & 1)
            drop |= 1u << i, n_missing--;
    return drop;
}

/* At run time the axes are those of the types at load, lest the rank change with the sizes. */
pome_status pome_infer_squeeze(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_squeeze_x), *seen = x;
    uint32_t axes = (1u << x->rank) - 1;
    int32_t wanted = c->op->out[0]->type.rank, rank = 0;
    if (pome_infer_has(c, P_squeeze_axes))
        POME_TRY(pome_infer_axes(c, P_squeeze_axes, x->rank, &axes, err));
    if (!pome_infer_at_load(c) && wanted >= 0 && pome_op_arg(c->op, P_squeeze_x)->type.rank == x->rank)
        seen = &pome_op_arg(c->op, P_squeeze_x)->type;
    uint32_t drop = axes_to_drop(seen, axes, wanted);
    for (int32_t i = 0; i < x->rank; i++) {
        if (!(drop >> i & 1))
            c->out[0].dim[rank++] = x->dim[i];
        else if (x->dim[i] >= 0 && x->dim[i] != 1)
            return pome_infer_fail(c, err, "axis %" PRId32 " to be removed has size %" PRId64, i, x->dim[i]);
    }
    set_tensor(c, x->dtype, rank);
    return POME_OK;
}

pome_status pome_infer_transpose(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_transpose_x);
    int64_t perm[POME_MAX_RANK];
    uint32_t seen = 0;
    int32_t n, axis = 0;
    bool known;
    POME_TRY(pome_infer_ints(c, P_transpose_perm, perm, &n, &known, err));
    if (!known)
        return pome_infer_fail(c, err, "perm must be a constant");
    if (n != x->rank)
        return pome_infer_fail(c, err, "perm has %" PRId32 " elements for rank %" PRId32, n, x->rank);
    set_tensor(c, x->dtype, n);
    for (int32_t i = 0; i < n; i++) {
        POME_TRY(pome_infer_axis(c, perm[i], n, &axis, err));
        if (seen >> axis & 1)
            return pome_infer_fail(c, err, "perm names axis %" PRId32 " twice", axis);
        seen |= 1u << axis;
        c->out[0].dim[i] = x->dim[axis];
    }
    return POME_OK;
}

/* ---- blocks of an image ---- */

static pome_status divide(pome_infer *c, int64_t a, int64_t by, int64_t *out, pome_error *err)
{
    if (a >= 0 && a % by != 0)
        return pome_infer_fail(c, err, "size %" PRId64 " does not divide by %" PRId64, a, by);
    *out = a >= 0 ? a / by : by == 1 ? a : pome_infer_symbol(c);
    return POME_OK;
}

static pome_status block_of(pome_infer *c, int64_t *block, pome_error *err)
{
    POME_TRY(pome_infer_rank(c, 0, 4, 4, err));
    POME_TRY(pome_infer_int(c, 1, 1, block, err));
    if (*block < 1 || *block > INT32_MAX)
        return pome_infer_fail(c, err, "%s %" PRId64 " is not positive", c->op->def->params[1].name, *block);
    return POME_OK;
}

/* [n, c, h, w] -> [n, c / b^2, h * b, w * b] */
pome_status pome_infer_depth_to_space(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, 0);
    int64_t block = 1, *dim = c->out[0].dim;
    POME_TRY(block_of(c, &block, err));
    set_tensor(c, x->dtype, 4);
    dim[0] = x->dim[0];
    POME_TRY(divide(c, x->dim[1], block * block, &dim[1], err));
    POME_TRY(pome_infer_mul(c, x->dim[2], block, &dim[2], err));
    return pome_infer_mul(c, x->dim[3], block, &dim[3], err);
}

/* [n, c, h, w] -> [n, c * b^2, h / b, w / b] */
pome_status pome_infer_space_to_depth(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, 0);
    int64_t block = 1, *dim = c->out[0].dim;
    POME_TRY(block_of(c, &block, err));
    set_tensor(c, x->dtype, 4);
    dim[0] = x->dim[0];
    POME_TRY(pome_infer_mul(c, x->dim[1], block * block, &dim[1], err));
    POME_TRY(divide(c, x->dim[2], block, &dim[2], err));
    return divide(c, x->dim[3], block, &dim[3], err);
}

/* block[2] and margins[2][2] of space_to_batch (paddings) and batch_to_space (crops). */
static pome_status batch_block(pome_infer *c, int64_t *block, int64_t *margin, pome_error *err)
{
    const pome_tensor *b = pome_infer_value(c, 1), *m = pome_infer_value(c, 2);
    POME_TRY(pome_infer_rank(c, 0, 4, 4, err));
    if (!b || !m || b->rank != 1 || b->shape[0] != 2 || m->rank != 2 || m->shape[0] != 2 || m->shape[1] != 2)
        return pome_infer_fail(c, err, "block_shape must be a constant of shape [2], %s one of shape [2, 2]",
                               c->op->def->params[2].name);
    for (int i = 0; i < 2; i++) {
        block[i] = pome_tensor_int_at(b, i);
        if (block[i] < 1 || block[i] > INT32_MAX)
            return pome_infer_fail(c, err, "block_shape %" PRId64 " is not positive", block[i]);
    }
    for (int i = 0; i < 4; i++) {
        margin[i] = pome_tensor_int_at(m, i);
        if (margin[i] < 0 || margin[i] > INT32_MAX)
            return pome_infer_fail(c, err, "%s holds %" PRId64, c->op->def->params[2].name, margin[i]);
    }
    return POME_OK;
}

pome_status pome_infer_space_to_batch(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, 0);
    int64_t block[2] = {1, 1}, margin[4] = {0}, padded = 0, *dim = c->out[0].dim;
    POME_TRY(batch_block(c, block, margin, err));
    set_tensor(c, x->dtype, 4);
    POME_TRY(pome_infer_mul(c, x->dim[0], block[0] * block[1], &dim[0], err));
    dim[1] = x->dim[1];
    for (int i = 0; i < 2; i++) {
        POME_TRY(pome_infer_add(c, x->dim[2 + i], margin[2 * i] + margin[2 * i + 1], &padded, err));
        POME_TRY(divide(c, padded, block[i], &dim[2 + i], err));
    }
    return POME_OK;
}

pome_status pome_infer_batch_to_space(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, 0);
    int64_t block[2] = {1, 1}, margin[4] = {0}, grown = 0, *dim = c->out[0].dim;
    POME_TRY(batch_block(c, block, margin, err));
    set_tensor(c, x->dtype, 4);
    POME_TRY(divide(c, x->dim[0], block[0] * block[1], &dim[0], err));
    dim[1] = x->dim[1];
    for (int i = 0; i < 2; i++) {
        int64_t cut = margin[2 * i] + margin[2 * i + 1];
        POME_TRY(pome_infer_mul(c, x->dim[2 + i], block[i], &grown, err));
        if (grown >= 0 && grown < cut)
            return pome_infer_fail(c, err, "crops take %" PRId64 " of %" PRId64, cut, grown);
        dim[2 + i] = grown >= 0 ? grown - cut : cut == 0 ? grown : pome_infer_symbol(c);
    }
    return POME_OK;
}
