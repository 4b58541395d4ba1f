/* Padding: the input in the middle, then one axis after the other is filled from what is already there. */
#include "ops/families.h"
#include "ops/index.h"
#include "ops/view.h"

#include <string.h>

typedef enum pad_mode { CONSTANT, REFLECT, REPLICATE } pad_mode;

typedef struct pad_axis {
    int64_t before, after, n; /* n: elements of x */
} pad_axis;

/* The amounts of all axes; `pad` names those of the last ones, a pair each. */
static pome_status pad_amounts(const pome_run *r, pad_mode mode, pad_axis *axes, pome_error *err)
{
    const pome_tensor *x = pome_in(r, P_pad_x), *pad = pome_in(r, P_pad_pad), *out = &r->out[0];
    int64_t n_padded = pome_tensor_count(pad) / 2;
    if (pome_tensor_count(pad) % 2 != 0 || n_padded > x->rank || out->rank != x->rank)
        return pome_view_misfit(r, err);
    for (int32_t d = 0; d < x->rank; d++) {
        int64_t i = d - (x->rank - n_padded);
        pad_axis *a = &axes[d];
        *a = (pad_axis){i < 0 ? 0 : pome_tensor_int_at(pad, 2 * i), i < 0 ? 0 : pome_tensor_int_at(pad, 2 * i + 1),
                        x->shape[d]};
        if (a->before < 0 || a->after < 0 || a->before > INT32_MAX || a->after > INT32_MAX)
            return pome_op_fail(r->op, err, POME_ERR_ARG, "axis %d: padding of %lld and %lld, expected 0 or more",
                                (int)d, (long long)a->before, (long long)a->after);
        if (a->before + a->n + a->after != out->shape[d])
            return pome_view_misfit(r, err);
        int64_t larger = a->before > a->after ? a->before : a->after;
        if (larger > 0 && ((mode == REFLECT && larger >= a->n) || (mode == REPLICATE && a->n == 0)))
            return pome_op_fail(r->op, err, POME_ERR_ARG, "axis %d of size %lld cannot be padded by %lld in mode %s",
                                (int)d, (long long)a->n, (long long)larger, mode == REFLECT ? "reflect" : "replicate");
    }
    return POME_OK;
}

/* out[to .. to + n) along axis = out[from], out[from + step], ..; `box` is the part of out that is filled so far. */
static void fill_margin(const pome_run *r, const pome_tensor *box, int32_t axis, int64_t to, int64_t n, int64_t from,
                        int64_t step)
{
    if (n == 0)
        return;
    pome_tensor dst = *box, src = *box;
    dst.shape[axis] = src.shape[axis] = n;
    dst.data = pome_elem_at(box, to * box->stride[axis]);
    src.data = pome_elem_at(box, from * box->stride[axis]);
    src.stride[axis] = step * box->stride[axis];
    pome_strided_copy(&dst, &src, r->pool, r->kernels);
}

static pome_status run_pad(const pome_run *r, pome_error *err)
{
    const pome_tensor *x = pome_in(r, P_pad_x), *out = &r->out[0];
    const char *name = pome_op_str(r->op, P_pad_mode, "constant");
    pad_mode mode = strcmp(name, "reflect") == 0 ? REFLECT : strcmp(name, "replicate") == 0 ? REPLICATE : CONSTANT;
    if (mode == CONSTANT && strcmp(name, "constant") != 0)
        return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "mode is '%s', expected constant, reflect or replicate",
                            name);
    pad_axis axes[POME_MAX_RANK];
    POME_TRY(pad_amounts(r, mode, axes, err));
    pome_tensor box = *out; /* where x goes */
    int64_t offset = 0;
    for (int32_t d = 0; d < x->rank; d++) {
        box.shape[d] = axes[d].n;
        offset += axes[d].before * box.stride[d];
    }
    box.data = pome_tensor_count(out) == 0 ? out->data : pome_elem_at(out, offset);
    if (mode == CONSTANT) {
        uint64_t element;
        pome_element_from(&element, out->dtype, pome_in(r, P_pad_constant_val), 0);
        if (pome_tensor_count(&box) != pome_tensor_count(out))
            pome_strided_fill(out, &element, r->pool);
    }
    if (pome_tensor_count(&box) == 0)
        return POME_OK;
    pome_strided_copy(&box, x, r->pool, r->kernels);
    for (int32_t d = x->rank - 1; d >= 0 && mode != CONSTANT; d--) {
        const pad_axis *a = &axes[d];
        int64_t step = mode == REFLECT ? -1 : 0, edge = mode == REFLECT ? 1 : 0;
        fill_margin(r, &box, d, -a->before, a->before, mode == REFLECT ? a->before : 0, step);
        fill_margin(r, &box, d, a->n, a->after, a->n - 1 - edge, step);
        box.data = pome_elem_at(&box, -a->before * box.stride[d]);
        box.shape[d] = out->shape[d];
    }
    return POME_OK;
}

const pome_op_impl pome_ops_pad[] = {
    {.id = POME_OP_pad, .f16_ok = POME_BIT(P_pad_x), .strided_ok = POME_BIT(P_pad_x), .run = run_pad},
};
POME_FAMILY_COUNT(pad)
