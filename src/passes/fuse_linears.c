/* Linear layers that read the same value: query, key and value; gate and up. They become one step at the place of the
 * first; all they need besides the value is constant. */
#include "passes/match.h"

enum { MAX_PARTS = 8 };

static bool is_candidate(const pome_op *op)
{
    if (op->def->id != POME_OP_linear)
        return false;
    const pome_value *bias = pome_op_arg(op, P_linear_bias);
    return pome_dtype_is_float(op->in[0]->type.dtype) && !op->in[0]->konst && pome_op_arg(op, P_linear_weight)->konst &&
           (!bias || bias->konst);
}

static pome_op *make(pome_function *fn, pome_op *const *ops, uint32_t n)
{
    pome_value *weights[MAX_PARTS], *biases[MAX_PARTS], *out[MAX_PARTS], *x = ops[0]->in[0];
    pome_value *const *in[4] = {0};
    uint32_t counts[4] = {0};
    for (uint32_t i = 0; i < n; i++) {
        weights[i] = pome_op_arg(ops[i], P_linear_weight);
        biases[i] = pome_op_arg(ops[i], P_linear_bias);
        out[i] = ops[i]->out[0];
    }
    in[P_pome_linears_x] = &x;
    in[P_pome_linears_weights] = weights;
    in[P_pome_linears_biases] = biases;
    counts[P_pome_linears_x] = 1;
    counts[P_pome_linears_weights] = n;
    counts[P_pome_linears_biases] = biases[0] ? n : 0;
    pome_op *op = pome_op_create_over(fn, pome_opdef_get(POME_OP_pome_linears), ops[0]->name, in, counts, out, n);
    if (op)
        op->position = ops[0]->position;
    return op;
}

pome_status pome_pass_fuse_linears(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    pome_block *b = fn->body;
    for (uint32_t i = 0; i < b->n_ops; i++) {
        pome_op *group[MAX_PARTS];
        uint32_t at[MAX_PARTS], n = 0;
        if (!b->ops[i] || !is_candidate(b->ops[i]))
            continue;
        bool has_bias = pome_op_arg(b->ops[i], P_linear_bias) != NULL;
        for (uint32_t k = i; k < b->n_ops && n < MAX_PARTS; k++)
            if (b->ops[k] && is_candidate(b->ops[k]) && b->ops[k]->in[0] == b->ops[i]->in[0] &&
                (pome_op_arg(b->ops[k], P_linear_bias) != NULL) == has_bias) {
                group[n] = b->ops[k];
                at[n++] = k;
            }
        if (n < 2)
            continue;
        pome_op *made = make(fn, group, n);
        if (!made)
            return pome_fail_nomem(err, sizeof *made, "linear layers");
        b->ops[i] = made;
        for (uint32_t k = 1; k < n; k++)
            b->ops[at[k]] = NULL;
        ctx->n_fused[POME_FUSION_LINEARS]++;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_ops; i++)
        if (b->ops[i])
            b->ops[n++] = b->ops[i];
    b->n_ops = n;
    return POME_OK;
}
