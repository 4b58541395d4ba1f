/* Attention written out, softmax(q k^T * scale + mask) v, as graphs without an operator for it have it:
 *
 *   - matmul, softmax over keys, matmul; keys and values in rows [.., S, E] or in columns [.., E, S], the result in rows
 *     or, from matmul(v, weights^T), in columns;
 *   - products per head in channel-first order, einsum "bkhc,bchq->bkhq", softmax over axis 1, einsum "bchk,bkhq->bchq".
 *
 * Query heads share keys either because these are repeated (repeats.h) or because a reshape puts the heads of a group side
 * by side: q [B, K*G, L, E] to [B, K, G*L, E]. The scale, a constant, may be at the query or at the scores, the mask after
 * it. What goes in and out are transposes, which are views. */
#include <math.h>
#include <string.h>

#include "passes/match.h"
#include "passes/repeats.h"

typedef struct attention {
    pome_value *q, *k, *v, *mask; /* in the order that the perms bring to [B, H, L, E], [B, K, S, E], [B, 1 or H, L, S] */
    const int32_t *q_perm, *k_perm, *v_perm, *mask_perm; /* NULL: in that order already */
    int64_t groups;
    double scale;
    bool is_grouped;              /* scores were computed as [B, K, G*L, S] */
    const pome_op *last;          /* whose result is attention's */
    const int32_t *out_perm;      /* from [B, L, H, E] to it */
} attention;

static const int32_t swap_last[4] = {0, 1, 3, 2}, swap_middle[4] = {0, 2, 1, 3}, first_last[4] = {0, 2, 3, 1},
                     channels_back[4] = {0, 3, 2, 1};

static bool flag(const pome_op *op, uint32_t param, bool *known)
{
    const pome_value *v = pome_op_arg(op, param);
    *known = *known && (!v || (v->konst && v->konst->t.data));
    return v && v->konst && v->konst->t.data && pome_tensor_int_at(&v->konst->t, 0);
}

/* v = u * c or u / c, in any depth: u, with c taken into *scale. */
static pome_value *unscale(pome_value *v, double *scale)
{
    double c;
    for (;;) {
        pome_value *next = NULL;
        pome_op *mul = pome_match_op(v, POME_OP_mul), *div = pome_match_op(v, POME_OP_real_div);
        for (int i = 0; mul && i < 2 && !next; i++)
            if (pome_match_scalar(mul->in[i], &c) && mul->in[1 - i]->type.rank == v->type.rank) {
                next = mul->in[1 - i];
                *scale *= c;
            }
        if (div && pome_match_scalar(div->in[1], &c) && c != 0 && div->in[0]->type.rank == v->type.rank) {
            next = div->in[0];
            *scale /= c;
        }
        if (!next)
            return v;
        v = pome_match_source(next);
    }
}

/* v is a reshape of heads [B, H, L, n] to groups [B, K, H/K*L, n], or back: what was reshaped, else NULL. */
static pome_value *reshaped(pome_value *v, bool is_back)
{
    pome_op *op = pome_match_op(v, POME_OP_reshape);
    pome_value *u = op ? pome_match_source(pome_op_arg(op, P_reshape_x)) : NULL;
    if (!u || u->type.rank != 4 || v->type.rank != 4)
        return NULL;
    const int64_t *heads = is_back ? v->type.dim : u->type.dim, *groups = is_back ? u->type.dim : v->type.dim;
    for (int i = 0; i < 4; i++)
        if (heads[i] <= 0 || groups[i] <= 0)
            return NULL;
    return heads[0] == groups[0] && heads[3] == groups[3] && heads[1] % groups[1] == 0 &&
                   heads[2] * (heads[1] / groups[1]) == groups[2]
               ? u
               : NULL;
}

static bool is_used_once(const pome_value *v, const uint32_t *n_uses)
{
    return n_uses[v->id] == 1;
}

/* Weights [B, H, L, S]: gives what the softmax's scores are the product of, and their mask. */
static pome_op *scores_of(pome_value *weights, int32_t axis, const uint32_t *n_uses, attention *a)
{
    int32_t at;
    pome_op *softmax = pome_match_op(weights, POME_OP_softmax);
    if (!softmax || weights->type.rank != 4 || !is_used_once(weights, n_uses) ||
        !pome_match_axis(pome_op_arg(softmax, P_softmax_axis), 4, &at) || at != axis)
        return NULL;
    pome_value *s = pome_match_source(pome_op_arg(softmax, P_softmax_x));
    a->scale = 1;
    for (int tries = 0; tries < 2; tries++) { /* the mask is either operand */
        pome_op *add = pome_match_op(s, POME_OP_add);
        pome_value *rest = add ? pome_match_source(add->in[tries]) : s;
        double scale = 1;
        pome_value *product = unscale(rest, &scale);
        pome_value *grouped = reshaped(product, true);
        product = grouped ? unscale(grouped, &scale) : product;
        if (!product->def || (product->def->def->id != POME_OP_matmul && product->def->def->id != POME_OP_einsum) ||
            !is_used_once(product, n_uses))
            continue;
        a->mask = add ? add->in[1 - tries] : NULL;
        a->scale = scale;
        a->is_grouped = grouped != NULL;
        if (!a->mask || (a->mask->type.rank <= 4 && rest->type.rank == 4))
            return product->def;
    }
    return NULL;
}

/* Keys or values [B, H, S, E], or [B, H, E, S] if is_columns, freed from repeats. */
static pome_value *source_of(pome_value *v, bool is_columns, int64_t *repeat, const int32_t **perm)
{
    bool swapped = false;
    pome_value *base = pome_unrepeat_heads(v, repeat, &swapped);
    *perm = is_columns != swapped ? swap_last : NULL;
    return base ? base : v;
}

/* H query heads over K of keys, as far as it is known that they fit. */
static bool heads_fit(const attention *a, const pome_value *q, int32_t q_axis, int32_t kv_axis)
{
    int64_t heads = q->type.dim[q_axis], keys = a->k->type.dim[kv_axis];
    if (a->groups > 1)
        return heads > 0 && keys > 0 && keys * a->groups == heads && a->v->type.dim[kv_axis] == keys;
    return a->q->type.dim[0] == a->k->type.dim[0] && heads == keys && a->v->type.dim[kv_axis] == keys && heads != 0;
}

static bool from_matmuls(pome_op *op, const uint32_t *n_uses, attention *a)
{
    bool known = true, tx = flag(op, P_matmul_transpose_x, &known), ty = flag(op, P_matmul_transpose_y, &known);
    pome_value *x = pome_match_source(pome_op_arg(op, P_matmul_x)), *y = pome_match_source(pome_op_arg(op, P_matmul_y));
    if (op->out[0]->type.rank != 4 || !known || op->out[0]->konst)
        return false;
    for (int side = 0; side < 2; side++) { /* weights on the left; on the right, transposed */
        pome_value *weights = side ? y : x, *values = side ? x : y;
        if ((side ? !ty : tx) || values->type.rank != 4)
            continue;
        pome_value *heads = side || !is_used_once(weights, n_uses) ? NULL : reshaped(weights, false);
        bool is_grouped = heads != NULL;
        pome_op *product = scores_of(is_grouped ? heads : weights, 3, n_uses, a);
        if (!product || product->def->id != POME_OP_matmul || a->is_grouped != is_grouped)
            continue;
        bool plain = true, qx = flag(product, P_matmul_transpose_x, &plain), ky = flag(product, P_matmul_transpose_y, &plain);
        pome_value *q = pome_match_source(pome_op_arg(product, P_matmul_x));
        pome_value *k = pome_match_source(pome_op_arg(product, P_matmul_y));
        int64_t repeat_k = 1, repeat_v = 1;
        if (!plain || q->type.rank != 4 || k->type.rank != 4 || (is_grouped && qx))
            continue;
        q = unscale(q, &a->scale);
        int64_t kv_heads = k->type.dim[1];
        if (is_grouped) {
            q = reshaped(q, false);
            if (!q || product->out[0]->type.dim[1] != kv_heads)
                continue;
            q = unscale(q, &a->scale);
        }
        a->k = source_of(k, !ky, &repeat_k, &a->k_perm);
        a->v = source_of(values, side ? !tx : ty, &repeat_v, &a->v_perm);
        if (repeat_k != repeat_v || (is_grouped && repeat_k != 1))
            continue;
        a->q = q;
        a->q_perm = qx ? swap_last : NULL;
        a->groups = is_grouped ? q->type.dim[1] / kv_heads : repeat_k;
        a->mask_perm = NULL;
        a->out_perm = side ? first_last : swap_middle;
        a->last = op;
        return heads_fit(a, q, 1, 1);
    }
    return false;
}

/* "nchw,nwhu->nchu" under any letters: Core ML's one product per head, left [n, c, h, w] times right [n, w, h, u]. Or with
 * the operands the other way round. */
static bool is_head_product(const pome_op *op, pome_value **left, pome_value **right)
{
    static const char *const want[2] = {"abcd,adce->abce", "abcd,aecb->aecd"};
    const char *s = pome_op_str(op, P_einsum_equation, "");
    char name[256] = {0}, text[16], next = 'a';
    size_t n = 0;
    for (; *s; s++) {
        if (*s == ' ')
            continue;
        if (n == sizeof text - 1)
            return false;
        bool is_letter = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z');
        if (is_letter && !name[(unsigned char)*s])
            name[(unsigned char)*s] = next++;
        text[n++] = is_letter ? name[(unsigned char)*s] : *s;
    }
    text[n] = 0;
    for (int i = 0; i < 2; i++)
        if (strcmp(text, want[i]) == 0 && op->args[P_einsum_values].count == 2) {
            *left = pome_match_source(op->in[op->args[P_einsum_values].first + (uint32_t)i]);
            *right = pome_match_source(op->in[op->args[P_einsum_values].first + 1 - (uint32_t)i]);
            return true;
        }
    return false;
}

static bool from_einsums(pome_op *op, const uint32_t *n_uses, attention *a)
{
    pome_value *weights; /* [B, S, H, L] */
    if (op->def->id != POME_OP_einsum || !is_head_product(op, &a->v, &weights)) /* v: [B, E, H, S] */
        return false;
    pome_op *product = scores_of(weights, 1, n_uses, a);
    if (!product || product->def->id != POME_OP_einsum || a->is_grouped || !is_head_product(product, &a->k, &a->q))
        return false;
    a->q = unscale(a->q, &a->scale); /* [B, E, H, L]; k is [B, S, H, E] */
    a->q_perm = a->v_perm = a->mask_perm = first_last;
    a->k_perm = swap_middle;
    a->out_perm = channels_back;
    a->groups = 1;
    a->last = op;
    return (!a->mask || a->mask->type.rank == 4) && a->k->type.dim[0] == a->q->type.dim[0] &&
           a->k->type.dim[2] == a->q->type.dim[2] && a->v->type.dim[2] == a->q->type.dim[2];
}

/* Operators that are made, in their order. */
typedef struct made_ops {
    pome_function *fn;
    pome_arena *arena;
    const pome_op *like;
    pome_op *op[8];
    int n;
} made_ops;

static pome_value *turned(made_ops *m, pome_value *v, const int32_t *perm)
{
    if (!v || !perm)
        return v;
    pome_op *op = pome_rewrite_transpose(m->fn, m->arena, m->like, v, perm, 4, NULL);
    if (!op)
        return NULL;
    m->op[m->n++] = op;
    return op->out[0];
}

static bool make(made_ops *m, const attention *a)
{
    pome_value *q = turned(m, a->q, a->q_perm), *k = turned(m, a->k, a->k_perm), *v = turned(m, a->v, a->v_perm);
    pome_value *mask = turned(m, a->mask, a->mask_perm);
    pome_value *groups = pome_rewrite_int(m->fn, m->arena, (int32_t)a->groups), *yes = pome_rewrite_bool(m->fn, m->arena, true);
    pome_value *scale = pome_rewrite_float(m->fn, m->arena, (float)a->scale);
    pome_type type = a->last->out[0]->type;
    if (!q || !k || !v || (a->mask && !mask) || !groups || !yes || !scale)
        return false;
    for (int i = 0; i < 4; i++)
        type.dim[a->out_perm[i]] = a->last->out[0]->type.dim[i];
    pome_value *rows = pome_value_create(m->fn, "", &type);
    const pome_rewrite_arg args[] = {{P_pome_grouped_attention_query, q},       {P_pome_grouped_attention_key, k},
                                     {P_pome_grouped_attention_value, v},       {P_pome_grouped_attention_attn_mask, mask},
                                     {P_pome_grouped_attention_groups, groups}, {P_pome_grouped_attention_rows_first, yes},
                                     {P_pome_grouped_attention_scale, scale}};
    pome_op *op = rows ? pome_rewrite_op(m->fn, POME_OP_pome_grouped_attention, m->like, args, 7, &rows, 1) : NULL;
    pome_op *back = op ? pome_rewrite_transpose(m->fn, m->arena, m->like, rows, a->out_perm, 4, a->last->out[0]) : NULL;
    if (!back)
        return false;
    m->op[m->n++] = op;
    m->op[m->n++] = back;
    return true;
}

/* The grouped form gives [B, K, G*L, E]; the reshape to [B, H, L, E] after it becomes the last operator. */
static const pome_op *last_of(pome_function *fn, const attention *a, uint32_t at, const uint32_t *n_uses, uint32_t *place)
{
    const pome_value *out = a->last->out[0];
    *place = at;
    if (a->q->type.dim[1] == out->type.dim[1] || a->out_perm != swap_middle)
        return a->last;
    for (uint32_t i = at + 1; i < fn->body->n_ops && n_uses[out->id] == 1; i++) {
        const pome_op *op = fn->body->ops[i];
        if (op && op->def->id == POME_OP_reshape && pome_op_arg(op, P_reshape_x) == out && op->out[0]->type.rank == 4 &&
            reshaped(op->out[0], true) && op->out[0]->type.dim[1] == a->q->type.dim[1]) {
            *place = i;
            return op;
        }
    }
    return NULL;
}

pome_status pome_pass_fuse_attention(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    pome_block *b = fn->body;
    uint32_t *n_uses = pome_count_uses(fn, ctx->arena), n = 0;
    pome_op **ops = NULL;
    if (!n_uses)
        return pome_fail_nomem(err, fn->n_values * sizeof *n_uses, "use counts");
    for (uint32_t i = 0; i < b->n_ops; i++) {
        attention a = {0};
        made_ops m = {.fn = fn, .arena = ctx->arena, .like = b->ops[i]};
        uint32_t place = i;
        pome_op *op = b->ops[i];
        if (!op)
            continue;
        bool is_found = op->def->id == POME_OP_matmul    ? from_matmuls(op, n_uses, &a)
                        : op->def->id == POME_OP_einsum ? from_einsums(op, n_uses, &a)
                                                        : false;
        if (is_found && isfinite(a.scale) && a.scale != 0 && (a.last = last_of(fn, &a, i, n_uses, &place)) != NULL) {
            if (!ops && !(ops = POME_NEW_ARRAY(ctx->arena, pome_op *, (size_t)b->n_ops * 7)))
                return pome_fail_nomem(err, b->n_ops * 7 * sizeof *ops, "operators");
            if (n == 0)
                for (; n < i; n++)
                    ops[n] = b->ops[n];
            if (!make(&m, &a))
                return pome_fail_nomem(err, sizeof a, "attention");
            b->ops[place] = NULL;
            for (int k = 0; k < m.n; k++)
                ops[n++] = m.op[k];
            ctx->n_fused[POME_FUSION_ATTENTION]++;
        } else if (ops) {
            ops[n++] = op;
        }
    }
    if (ops) {
        b->ops = ops;
        b->n_ops = n;
    }
    return POME_OK;
}
