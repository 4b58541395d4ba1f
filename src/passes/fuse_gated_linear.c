/* act(x gate^T) * (x up^T): a gated activation (pome_gated) whose operands are linear layers of one value that nobody
 * else reads. */
#include "passes/match.h"

static bool is_wanted(const pome_op *op, const uint32_t *n_uses)
{
    if (op->def->id != POME_OP_pome_gated)
        return false;
    const pome_op *gate = pome_match_op(pome_op_arg(op, P_pome_gated_gate), POME_OP_linear);
    const pome_op *up = pome_match_op(pome_op_arg(op, P_pome_gated_up), POME_OP_linear);
    if (!gate || !up || gate == up || gate->in[0] != up->in[0] || n_uses[gate->out[0]->id] != 1 ||
        n_uses[up->out[0]->id] != 1)
        return false;
    const pome_value *wg = pome_op_arg(gate, P_linear_weight), *wu = pome_op_arg(up, P_linear_weight);
    const pome_value *bg = pome_op_arg(gate, P_linear_bias), *bu = pome_op_arg(up, P_linear_bias);
    return wg->konst && wu->konst && wg->type.dim[0] == wu->type.dim[0] && (!bg || bg->konst) && (!bu || bu->konst);
}

pome_status pome_pass_fuse_gated_linear(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    uint32_t *n_uses = pome_count_uses(fn, ctx->arena);
    if (!n_uses)
        return pome_fail_nomem(err, fn->n_values * sizeof *n_uses, "use counts");
    for (uint32_t i = 0; i < fn->body->n_ops; i++) {
        pome_op *op = fn->body->ops[i];
        if (!is_wanted(op, n_uses))
            continue;
        const pome_op *gate = pome_op_arg(op, P_pome_gated_gate)->def, *up = pome_op_arg(op, P_pome_gated_up)->def;
        const pome_rewrite_arg args[] = {{P_pome_gated_linear_x, gate->in[0]},
                                         {P_pome_gated_linear_gate, pome_op_arg(gate, P_linear_weight)},
                                         {P_pome_gated_linear_up, pome_op_arg(up, P_linear_weight)},
                                         {P_pome_gated_linear_gate_bias, pome_op_arg(gate, P_linear_bias)},
                                         {P_pome_gated_linear_up_bias, pome_op_arg(up, P_linear_bias)},
                                         {P_pome_gated_linear_activation, pome_op_arg(op, P_pome_gated_activation)}};
        pome_op *made = pome_rewrite_op(fn, POME_OP_pome_gated_linear, op, args, 6, op->out, 1);
        if (!made)
            return pome_fail_nomem(err, sizeof *made, "gated linear layers");
        fn->body->ops[i] = made;
        ctx->n_fused[POME_FUSION_GATED_LINEAR]++;
    }
    return POME_OK;
}
