/* Attention gives [B, heads, L, E]; what follows wants the heads of a row side by side, [B, L, heads, E], and asks for it
 * by a transpose, which a reshape then makes a copy of. Here attention writes that order itself. One that writes rows
 * already, and is turned back, writes heads first again. */
#include "passes/match.h"

static bool swaps_heads(const pome_op *op)
{
    static const int64_t want[4] = {0, 2, 1, 3};
    const pome_value *perm = pome_op_arg(op, P_transpose_perm);
    if (op->in[0]->type.rank != 4 || !perm || !perm->konst || pome_tensor_count(&perm->konst->t) != 4)
        return false;
    for (int i = 0; i < 4; i++) {
        int64_t p = pome_tensor_int_at(&perm->konst->t, i);
        if ((p < 0 ? p + 4 : p) != want[i])
            return false;
    }
    return true;
}

static pome_op *make(pome_function *fn, pome_arena *arena, const pome_op *attention, pome_value *out)
{
    bool is_grouped = attention->def->id == POME_OP_pome_grouped_attention;
    pome_value *groups = is_grouped ? pome_op_arg(attention, P_pome_grouped_attention_groups)
                                    : pome_rewrite_int(fn, arena, 1);
    const pome_value *was = is_grouped ? pome_op_arg(attention, P_pome_grouped_attention_rows_first) : NULL;
    pome_value *rows_first = pome_rewrite_bool(fn, arena, !was || pome_tensor_int_at(&was->konst->t, 0) == 0);
    pome_value *scale = is_grouped ? pome_op_arg(attention, P_pome_grouped_attention_scale) : NULL;
    /* The first four parameters of both operators have the same indices. */
    const pome_rewrite_arg args[] = {
        {P_pome_grouped_attention_query, pome_op_arg(attention, P_pome_grouped_attention_query)},
        {P_pome_grouped_attention_key, pome_op_arg(attention, P_pome_grouped_attention_key)},
        {P_pome_grouped_attention_value, pome_op_arg(attention, P_pome_grouped_attention_value)},
        {P_pome_grouped_attention_attn_mask, pome_op_arg(attention, P_pome_grouped_attention_attn_mask)},
        {P_pome_grouped_attention_groups, groups},
        {P_pome_grouped_attention_rows_first, rows_first},
        {P_pome_grouped_attention_scale, scale}};
    return groups && rows_first ? pome_rewrite_op(fn, POME_OP_pome_grouped_attention, attention, args, 7, &out, 1) : NULL;
}

pome_status pome_pass_attention_rows(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    uint32_t *n_uses = pome_count_uses(fn, ctx->arena), n = 0;
    pome_block *b = fn->body;
    if (!n_uses)
        return pome_fail_nomem(err, fn->n_values * sizeof *n_uses, "use counts");
    for (uint32_t i = 0; i < b->n_ops; i++) {
        pome_op *op = b->ops[i], *attention = NULL;
        if (op->def->id == POME_OP_transpose && n_uses[op->in[0]->id] == 1 && swaps_heads(op)) {
            attention = pome_match_op(op->in[0], POME_OP_pome_grouped_attention);
            attention = attention ? attention : pome_match_op(op->in[0], POME_OP_scaled_dot_product_attention);
        }
        uint32_t at = n;
        while (attention && at > 0 && b->ops[at - 1] != attention)
            at--;
        if (!attention || at == 0) {
            b->ops[n++] = op;
            continue;
        }
        pome_op *made = make(fn, ctx->arena, attention, op->out[0]);
        if (!made)
            return pome_fail_nomem(err, sizeof *made, "attention");
        b->ops[at - 1] = made;
        ctx->n_fused[POME_FUSION_ROWS]++;
    }
    b->n_ops = n;
    return POME_OK;
}
