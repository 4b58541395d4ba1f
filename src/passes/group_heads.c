/* Grouped-query attention. Graphs repeat each key/value head for its group of query heads:
 *
 *     x [B, K, S, D] -> expand_dims [B, K, 1, S, D] -> tile [1, 1, G, 1, 1] -> reshape [B, K*G, S, D] -> attention
 *
 * The repeat is dropped and the attention told its group count. The proof that the tile repeats only the new axis
 * and that the reshape merges it with the heads comes from the symbolic values, since traced graphs compute both
 * from shapes. */
#include <string.h>

#include "mil/infer.h"
#include "passes/pass.h"
#include "mil/infer.h"
#include "passes/symbolic.h"

static pome_op *def_of(const pome_value *v, pome_op_id id)
{
    return v && v->def && v->def->def->id == id ? v->def : NULL;
}

/* Through operators that leave the contents as they are. */
static pome_value *past_copies(pome_value *v)
{
    while (v && v->def && (v->def->def->id == POME_OP_identity || v->def->def->id == POME_OP_cast) &&
           pome_dtype_is_float(v->type.dtype) && v->type.dtype == v->def->in[0]->type.dtype)
        v = v->def->in[0];
    return v;
}

/* The un-repeated value and the group size, or NULL. */
static pome_value *unrepeat(pome_value *v, const pome_sym_vector *sym, int64_t *group)
{
    pome_op *reshape = def_of(past_copies(v), POME_OP_reshape);
    pome_op *tile = reshape ? def_of(past_copies(pome_op_arg(reshape, P_reshape_x)), POME_OP_tile) : NULL;
    pome_op *expand = tile ? def_of(past_copies(pome_op_arg(tile, P_tile_x)), POME_OP_expand_dims) : NULL;
    if (!expand)
        return NULL;
    pome_value *x = pome_op_arg(expand, P_expand_dims_x);
    const pome_value *axes = pome_op_arg(expand, P_expand_dims_axes);
    if (x->type.rank != 4 || !axes->konst || pome_tensor_count(&axes->konst->t) != 1)
        return NULL;
    int64_t axis = pome_tensor_int_at(&axes->konst->t, 0);
    const pome_sym_vector *reps = &sym[pome_op_arg(tile, P_tile_reps)->id];
    const pome_sym_vector *shape = &sym[pome_op_arg(reshape, P_reshape_shape)->id];
    if ((axis != 2 && axis != -3) || !reps->known || reps->n != 5 || !shape->known || shape->n != 4)
        return NULL;
    for (int i = 0; i < 5; i++)
        if (reps->e[i].kind != POME_SYM_NUMBER || reps->e[i].v < 1 || (i != 2 && reps->e[i].v != 1))
            return NULL;
    *group = reps->e[2].v;
    /* Batch, heads and depth fixed and as expected: then the remaining axis can only be S. */
    const int64_t *d = x->type.dim;
    bool fits = d[0] >= 0 && d[1] >= 0 && d[3] > 0 && shape->e[0].kind == POME_SYM_NUMBER && shape->e[0].v == d[0] &&
                shape->e[1].kind == POME_SYM_NUMBER && shape->e[1].v == d[1] * *group &&
                shape->e[3].kind == POME_SYM_NUMBER && shape->e[3].v == d[3];
    return fits ? x : NULL;
}

static pome_status regroup(pome_function *fn, pome_pass_ctx *ctx, pome_op **slot, const pome_sym_vector *sym,
                           pome_error *err)
{
    pome_op *op = *slot;
    int64_t group_k = 0, group_v = 0;
    pome_value *k = unrepeat(pome_op_arg(op, P_scaled_dot_product_attention_key), sym, &group_k);
    pome_value *v = unrepeat(pome_op_arg(op, P_scaled_dot_product_attention_value), sym, &group_v);
    pome_value *q = pome_op_arg(op, P_scaled_dot_product_attention_query);
    pome_value *mask = pome_op_arg(op, P_scaled_dot_product_attention_attn_mask);
    if (!k || !v || group_k != group_v || group_k < 2 || q->type.rank != 4 || k->type.dim[1] != v->type.dim[1])
        return POME_OK;
    int32_t g = (int32_t)group_k;
    pome_value *groups = pome_value_create_ints(fn, ctx->arena, POME_DTYPE_I32, 0, &g, 1);
    if (!groups)
        return pome_fail_nomem(err, sizeof *groups, op->name);
    const pome_opdef *def = pome_opdef_get(POME_OP_pome_grouped_attention);
    pome_value *const *in[8] = {0};
    uint32_t counts[8] = {0};
    pome_value **values[] = {&q, &k, &v, &mask, &groups};
    const int params[] = {P_pome_grouped_attention_query, P_pome_grouped_attention_key, P_pome_grouped_attention_value,
                          P_pome_grouped_attention_attn_mask, P_pome_grouped_attention_groups};
    for (int i = 0; i < 5; i++)
        if (*values[i]) {
            in[params[i]] = values[i];
            counts[params[i]] = 1;
        }
    pome_op *made = pome_op_create_over(fn, def, op->name, in, counts, op->out, 1);
    if (!made)
        return pome_fail_nomem(err, sizeof *made, op->name);
    made->position = op->position;
    *slot = made;
    return POME_OK;
}

pome_status pome_pass_group_heads(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    pome_sym_vector *sym = NULL;
    for (uint32_t i = 0; i < fn->body->n_ops; i++) {
        if (fn->body->ops[i]->def->id != POME_OP_scaled_dot_product_attention)
            continue;
        if (!sym)
            POME_TRY(pome_symbolic_analyze(fn, ctx->arena, &sym, err));
        POME_TRY(regroup(fn, ctx, &fn->body->ops[i], sym, err));
    }
    return POME_OK;
}
