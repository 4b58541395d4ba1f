/* Dead code: walks each block backwards, so that one walk is enough. Operators with effects or nested blocks stay. */
#include "passes/pass.h"

static bool is_needed(const pome_op *op, const uint32_t *n_uses)
{
    if ((op->def->flags & (POME_OP_EFFECT | POME_OP_BLOCKS)) && op->def->id != POME_OP_read_state)
        return true;
    for (uint32_t k = 0; k < op->n_out; k++)
        if (n_uses[op->out[k]->id])
            return true;
    return false;
}

pome_status pome_pass_dce(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    uint32_t *n_uses = pome_count_uses(fn, ctx->arena);
    if (!n_uses)
        return pome_fail_nomem(err, fn->n_values * sizeof *n_uses, "use counts");
    pome_block *b = fn->body;
    for (uint32_t i = b->n_ops; i-- > 0;) {
        pome_op *op = b->ops[i];
        if (is_needed(op, n_uses))
            continue;
        for (uint32_t k = 0; k < op->n_in; k++)
            n_uses[op->in[k]->id]--;
        b->ops[i] = NULL;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < b->n_ops; i++)
        if (b->ops[i])
            b->ops[n++] = b->ops[i];
    b->n_ops = n;
    return POME_OK;
}
