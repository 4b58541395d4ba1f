/* A convolution whose result is only added to another value of its shape, or only limited (relu, relu6, clip), or both in
 * this order: one step, at the place of the last. */
#include <assert.h>
#include <math.h>

#include "passes/match.h"

enum { REACH = 64 /* operators between a value and its use, at most */ };

typedef struct fused {
    uint32_t at[3]; /* of the operators in the block, conv first */
    int n;
    pome_value *result, *addend;
    float low, high;
} fused;

/* The one operator that reads v, if v may be computed as late as there: *at, else false. */
static bool only_use(const pome_block *b, const uint32_t *n_uses, const pome_value *v, uint32_t from, uint32_t *at)
{
    if (n_uses[v->id] != 1)
        return false;
    for (uint32_t i = from + 1; i < b->n_ops && i <= from + REACH; i++) {
        const pome_op *op = b->ops[i];
        for (uint32_t k = 0; op && k < op->n_in; k++)
            if (op->in[k] == v) {
                *at = i;
                return true;
            }
        if (op && !(op->def->flags & POME_OP_FOLDABLE)) /* it may write what conv reads */
            return false;
    }
    return false;
}

static bool is_like(const pome_value *a, const pome_value *b)
{
    bool same = !a->konst && a->type.rank == b->type.rank && a->type.dtype == b->type.dtype;
    for (int32_t d = 0; same && d < a->type.rank; d++)
        same = a->type.dim[d] > 0 && a->type.dim[d] == b->type.dim[d];
    return same;
}

static bool is_sum(const pome_op *op, fused *f)
{
    if (op->def->id != POME_OP_add)
        return false;
    pome_value *other = pome_match_other(op, f->result);
    if (!other || !is_like(other, f->result))
        return false;
    f->addend = other;
    return true;
}

static bool is_limit(const pome_op *op, fused *f)
{
    double low = 0, high = op->def->id == POME_OP_relu6 ? 6 : INFINITY;
    if (op->def->id == POME_OP_clip) {
        if (!pome_match_scalar(pome_op_arg(op, P_clip_alpha), &low) || !pome_match_scalar(pome_op_arg(op, P_clip_beta), &high))
            return false;
    } else if (op->def->id != POME_OP_relu && op->def->id != POME_OP_relu6) {
        return false;
    }
    if (op->in[0] != f->result || !(low <= high))
        return false;
    f->low = (float)low;
    f->high = (float)high;
    return true;
}

static void add(fused *f, const pome_block *b, uint32_t at)
{
    f->at[f->n++] = at;
    f->result = b->ops[at]->out[0];
}

static fused find(const pome_block *b, const uint32_t *n_uses, uint32_t conv)
{
    fused f = {.low = -INFINITY, .high = INFINITY};
    uint32_t at;
    add(&f, b, conv);
    if (only_use(b, n_uses, f.result, conv, &at) && is_sum(b->ops[at], &f))
        add(&f, b, at);
    if (only_use(b, n_uses, f.result, f.at[f.n - 1], &at) && is_limit(b->ops[at], &f))
        add(&f, b, at);
    return f;
}

static pome_op *make(pome_function *fn, pome_arena *arena, const pome_op *conv, const fused *f)
{
    enum { N_CONV = P_conv_groups + 1 };
    pome_rewrite_arg args[N_CONV + 3];
    for (uint32_t p = 0; p < N_CONV; p++)
        args[p] = (pome_rewrite_arg){p, pome_op_arg(conv, p)};
    args[N_CONV] = (pome_rewrite_arg){P_pome_conv_addend, f->addend};
    args[N_CONV + 1] = (pome_rewrite_arg){P_pome_conv_low, pome_rewrite_float(fn, arena, f->low)};
    args[N_CONV + 2] = (pome_rewrite_arg){P_pome_conv_high, pome_rewrite_float(fn, arena, f->high)};
    pome_value *out[1] = {f->result};
    return args[N_CONV + 1].value && args[N_CONV + 2].value
               ? pome_rewrite_op(fn, POME_OP_pome_conv, conv, args, N_CONV + 3, out, 1)
               : NULL;
}

pome_status pome_pass_fuse_conv(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    static_assert((int)P_pome_conv_x == (int)P_conv_x && (int)P_pome_conv_groups == (int)P_conv_groups, "parameters of conv");
    pome_block *b = fn->body;
    uint32_t *n_uses = pome_count_uses(fn, ctx->arena), n = 0;
    if (!n_uses)
        return pome_fail_nomem(err, fn->n_values * sizeof *n_uses, "use counts");
    for (uint32_t i = 0; i < b->n_ops; i++) {
        if (!b->ops[i] || b->ops[i]->def->id != POME_OP_conv)
            continue;
        const fused f = find(b, n_uses, i);
        if (f.n == 1)
            continue;
        pome_op *made = make(fn, ctx->arena, b->ops[i], &f);
        if (!made)
            return pome_fail_nomem(err, sizeof *made, "fused convolution");
        for (int k = 0; k < f.n; k++)
            b->ops[f.at[k]] = NULL;
        b->ops[f.at[f.n - 1]] = made;
        ctx->n_fused[POME_FUSION_CONV]++;
    }
    for (uint32_t i = 0; i < b->n_ops; i++)
        if (b->ops[i])
            b->ops[n++] = b->ops[i];
    b->n_ops = n;
    return POME_OK;
}
