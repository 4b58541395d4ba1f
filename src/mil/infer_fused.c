/* Inference of the operators that passes make (pome_*). */
#include "mil/infer.h"

static pome_status check_norm(pome_infer *c, uint32_t gamma, uint32_t axis, const pome_type *x, pome_error *err)
{
    int64_t at = -1;
    POME_TRY(pome_infer_int(c, axis, -1, &at, err));
    at = at < 0 ? at + x->rank : at;
    if (at < 0 || at >= x->rank)
        return pome_infer_fail(c, err, "axis %lld of rank %d", (long long)at, (int)x->rank);
    return pome_infer_has(c, gamma) ? pome_infer_vector(c, gamma, x->dim[at], err) : POME_OK;
}

pome_status pome_infer_pome_rms_norm(pome_infer *c, pome_error *err)
{
    POME_TRY(check_norm(c, P_pome_rms_norm_gamma, P_pome_rms_norm_axis, pome_infer_type(c, P_pome_rms_norm_x), err));
    return pome_infer_same(c, err);
}

pome_status pome_infer_pome_add_rms_norm(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_pome_add_rms_norm_x), *y = pome_infer_type(c, P_pome_add_rms_norm_y);
    POME_TRY(pome_infer_broadcast(c, x, y, &c->out[0], err));
    c->out[0].dtype = x->dtype;
    c->out[1] = c->out[0];
    return check_norm(c, P_pome_add_rms_norm_gamma, P_pome_add_rms_norm_axis, &c->out[1], err);
}

pome_status pome_infer_pome_rotary(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_pome_rotary_x);
    int64_t axis = 0;
    POME_TRY(pome_infer_int(c, P_pome_rotary_axis, -1, &axis, err));
    if (axis < 0 || axis >= x->rank || x->dim[axis] % 2)
        return pome_infer_fail(c, err, "axis %lld does not halve", (long long)axis);
    return pome_infer_same(c, err);
}

pome_status pome_infer_pome_gated(pome_infer *c, pome_error *err)
{
    const pome_type *gate = pome_infer_type(c, P_pome_gated_gate);
    POME_TRY(pome_infer_broadcast(c, gate, pome_infer_type(c, P_pome_gated_up), &c->out[0], err));
    c->out[0].dtype = gate->dtype;
    return POME_OK;
}

static pome_status infer_product(pome_infer *c, const pome_type *x, const pome_type *weight, pome_type *out, pome_error *err)
{
    if (x->rank < 1 || weight->rank != 2 || !pome_dim_may_equal(x->dim[x->rank - 1], weight->dim[1]))
        return pome_infer_fail(c, err, "x and weight do not fit");
    *out = *x;
    out->dim[x->rank - 1] = weight->dim[0];
    return POME_OK;
}

pome_status pome_infer_pome_linears(pome_infer *c, pome_error *err)
{
    const pome_arg *weights = &c->op->args[P_pome_linears_weights];
    POME_TRY(pome_infer_outputs(c, weights->count, err));
    for (uint32_t i = 0; i < weights->count; i++)
        POME_TRY(infer_product(c, pome_infer_type(c, P_pome_linears_x), c->in[weights->first + i], &c->out[i], err));
    return POME_OK;
}

pome_status pome_infer_pome_gated_linear(pome_infer *c, pome_error *err)
{
    return infer_product(c, pome_infer_type(c, P_pome_gated_linear_x), pome_infer_type(c, P_pome_gated_linear_gate),
                         &c->out[0], err);
}
