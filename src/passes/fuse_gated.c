/* An activation times a second value, as gated feed-forward layers have it: act(gate) * up, with act silu (as one
 * operator, or as x * sigmoid(x)) or gelu. */
#include "passes/match.h"

typedef struct gated {
    pome_value *gate, *up;
    const char *activation;
} gated;

static const char *gelu_of(const pome_op *op)
{
    const char *mode = pome_op_str(op, P_gelu_mode, "EXACT");
    return mode[0] == 'E' ? "gelu" : mode[0] == 'T' ? "gelu_tanh" : mode[0] == 'S' ? "gelu_sigmoid" : NULL;
}

static bool is_activation(pome_value *v, gated *g)
{
    pome_op *op = pome_match_op(v, POME_OP_silu);
    g->activation = "silu";
    if (op) {
        g->gate = op->in[0];
        return true;
    }
    op = pome_match_op(v, POME_OP_mul);
    for (int k = 0; op && k < 2; k++) {
        pome_op *sigmoid = pome_match_op(pome_match_source(op->in[k]), POME_OP_sigmoid);
        if (sigmoid && pome_match_source(sigmoid->in[0]) == pome_match_source(op->in[1 - k])) {
            g->gate = op->in[1 - k];
            return true;
        }
    }
    op = pome_match_op(v, POME_OP_gelu);
    g->activation = op ? gelu_of(op) : NULL;
    g->gate = op ? op->in[0] : NULL;
    return g->activation != NULL;
}

static pome_value *make_text(pome_function *fn, pome_arena *arena, const char *text)
{
    pome_const *k = POME_NEW(arena, pome_const);
    const char **strings = POME_NEW(arena, const char *);
    if (!k || !strings)
        return NULL;
    *strings = text;
    k->t = pome_tensor_borrow(NULL, POME_DTYPE_STRING, 0, NULL);
    k->strings = strings;
    return pome_value_create_const(fn, "", k);
}

pome_status pome_pass_fuse_gated(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    uint32_t *n_uses = pome_count_uses(fn, ctx->arena);
    if (!n_uses)
        return pome_fail_nomem(err, fn->n_values * sizeof *n_uses, "use counts");
    for (uint32_t i = 0; i < fn->body->n_ops; i++) {
        pome_op **op = &fn->body->ops[i];
        gated g = {0};
        if ((*op)->def->id != POME_OP_mul || !pome_dtype_is_float((*op)->out[0]->type.dtype))
            continue;
        for (int k = 0; k < 2 && !g.up; k++)
            if (n_uses[(*op)->in[k]->id] == 1 && is_activation(pome_match_source((*op)->in[k]), &g) &&
                !(*op)->in[1 - k]->konst)
                g.up = (*op)->in[1 - k];
        if (!g.up)
            continue;
        const pome_rewrite_arg args[] = {{P_pome_gated_gate, g.gate},
                                         {P_pome_gated_up, g.up},
                                         {P_pome_gated_activation, make_text(fn, ctx->arena, g.activation)}};
        pome_op *made = args[2].value ? pome_rewrite_op(fn, POME_OP_pome_gated, *op, args, 3, (*op)->out, 1) : NULL;
        if (!made)
            return pome_fail_nomem(err, sizeof *made, "gated activation");
        *op = made;
        ctx->n_fused[POME_FUSION_GATED]++;
    }
    return POME_OK;
}
