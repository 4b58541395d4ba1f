/* A sum that is normalized next, as between the layers of a transformer: add and pome_rms_norm become one step with two
 * results, at the place of the sum. */
#include "passes/match.h"

static bool is_sum(const pome_op *norm)
{
    const pome_op *add = pome_match_op(norm->in[0], POME_OP_add);
    if (!add || !pome_dtype_is_float(add->out[0]->type.dtype))
        return false;
    return add->in[0]->type.rank == add->in[1]->type.rank && !add->in[0]->konst && !add->in[1]->konst;
}

static pome_op *make(pome_function *fn, const pome_op *norm)
{
    const pome_op *add = norm->in[0]->def;
    pome_value *out[2] = {add->out[0], norm->out[0]};
    const pome_rewrite_arg args[] = {{P_pome_add_rms_norm_x, add->in[0]},
                                     {P_pome_add_rms_norm_y, add->in[1]},
                                     {P_pome_add_rms_norm_gamma, pome_op_arg(norm, P_pome_rms_norm_gamma)},
                                     {P_pome_add_rms_norm_epsilon, pome_op_arg(norm, P_pome_rms_norm_epsilon)},
                                     {P_pome_add_rms_norm_axis, pome_op_arg(norm, P_pome_rms_norm_axis)}};
    return pome_rewrite_op(fn, POME_OP_pome_add_rms_norm, add, args, 5, out, 2);
}

pome_status pome_pass_fuse_residual(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    pome_block *b = fn->body;
    for (uint32_t i = 0; i < b->n_ops; i++) {
        pome_op *norm = b->ops[i];
        if (!norm || norm->def->id != POME_OP_pome_rms_norm || !is_sum(norm))
            continue;
        uint32_t at = i; /* the sum comes before */
        while (at > 0 && b->ops[at] != norm->in[0]->def)
            at--;
        if (b->ops[at] != norm->in[0]->def)
            continue;
        pome_op *made = make(fn, norm);
        if (!made)
            return pome_fail_nomem(err, sizeof *made, "normalized sum");
        b->ops[at] = made;
        b->ops[i] = NULL;
        ctx->n_fused[POME_FUSION_RESIDUAL]++;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_ops; i++)
        if (b->ops[i])
            b->ops[n++] = b->ops[i];
    b->n_ops = n;
    return POME_OK;
}
