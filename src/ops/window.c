#include "ops/window.h"

#include <string.h>

/* Sizes and strides beyond this cannot be meant, and positions stay far from overflow. */
static const int64_t limit = (int64_t)1 << 31;

static pome_status int_list(const pome_run *r, uint32_t param, int64_t n, int64_t low, const pome_tensor **out,
                            pome_error *err)
{
    const char *name = r->op->def->params[param].name;
    *out = pome_in(r, param);
    if (!*out)
        return POME_OK;
    if (pome_tensor_count(*out) != n)
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "%s has %lld elements, must have %lld", name,
                            (long long)pome_tensor_count(*out), (long long)n);
    for (int64_t i = 0; i < n; i++)
        if (pome_tensor_int_at(*out, i) < low || pome_tensor_int_at(*out, i) > limit)
            return pome_op_fail(r->op, err, POME_ERR_FORMAT, "%s has the value %lld", name,
                                (long long)pome_tensor_int_at(*out, i));
    return POME_OK;
}

/* total = max(0, s * ceil(i / s) - i + keff - s); the odd one goes to the end, or to the start for same_lower */
static void pad_same(pome_window *w, int d, bool lower)
{
    int64_t reach = (w->kernel[d] - 1) * w->dilation[d] + 1, s = w->stride[d];
    int64_t total = (w->in[d] + s - 1) / s * s - w->in[d] + reach - s;
    total = total < 0 ? 0 : total;
    w->before[d] = lower ? total - total / 2 : total / 2;
    w->after[d] = total - w->before[d];
}

pome_status pome_window_init(pome_window *w, const pome_run *r, const pome_window_params *params, const pome_tensor *in,
                             const pome_tensor *out, const int64_t *kernel, pome_error *err)
{
    const pome_tensor *strides, *pad, *dilations = NULL;
    const char *type = pome_op_str(r->op, params->pad_type, "valid");
    int32_t n = in->rank - 2;
    *w = (pome_window){.n_in = 1, .n_out = 1, .n_kernel = 1};
    if (n < 1 || n > 3 || out->rank != in->rank)
        return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "x has rank %d, 3 to 5 are supported", (int)in->rank);
    POME_TRY(int_list(r, params->strides, n, 1, &strides, err));
    POME_TRY(int_list(r, params->pad, 2 * n, 0, &pad, err));
    if (params->dilations >= 0)
        POME_TRY(int_list(r, (uint32_t)params->dilations, n, 1, &dilations, err));
    bool custom = strcmp(type, "custom") == 0, same = strcmp(type, "same") == 0, lower = strcmp(type, "same_lower") == 0;
    if (!custom && !same && !lower && strcmp(type, "valid") != 0)
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "pad_type is '%s'", type);
    for (int d = 0; d < 3; d++) {
        int32_t axis = d - (3 - n);
        w->in[d] = axis < 0 ? 1 : in->shape[2 + axis];
        w->out[d] = axis < 0 ? 1 : out->shape[2 + axis];
        w->kernel[d] = axis < 0 ? 1 : kernel[axis];
        w->stride[d] = axis < 0 || !strides ? 1 : pome_tensor_int_at(strides, axis);
        w->dilation[d] = axis < 0 || !dilations ? 1 : pome_tensor_int_at(dilations, axis);
        if (w->kernel[d] < 1 || w->kernel[d] > limit)
            return pome_op_fail(r->op, err, POME_ERR_FORMAT, "the kernel has size %lld", (long long)w->kernel[d]);
        if (axis >= 0 && (same || lower))
            pad_same(w, d, lower);
        if (axis >= 0 && custom && pad) {
            w->before[d] = pome_tensor_int_at(pad, 2 * axis);
            w->after[d] = pome_tensor_int_at(pad, 2 * axis + 1);
        }
        w->n_in *= (size_t)w->in[d];
        w->n_out *= (size_t)w->out[d];
        w->n_kernel *= (size_t)w->kernel[d];
    }
    return POME_OK;
}
