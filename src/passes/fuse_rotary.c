/* Rotary position embedding, as graphs write it over the halves a, b of x:
 *
 *   - x * cos + concat(-b, a) * sin;
 *   - x * cos + concat(b, a) * sin, the sign being in the table;
 *   - concat(a * cos - b * sin, b * cos + a * sin), with tables of half the width.
 *
 * Halves are slices or a split along one axis, the last or another. All give the same bits as the one operator. */
#include "passes/match.h"

typedef struct half {
    pome_value *x;
    int32_t axis;
    bool is_second, is_negative;
} half;

typedef struct rotary {
    pome_value *x, *cos, *sin;
    int32_t axis;
    bool negate;
} rotary;

static bool from_split(const pome_value *v, half *h)
{
    pome_op *op = pome_match_op(v, POME_OP_split);
    if (!op || op->n_out != 2 || !pome_match_axis(pome_op_arg(op, P_split_axis), op->in[0]->type.rank, &h->axis))
        return false;
    h->x = pome_match_source(op->in[0]);
    h->is_second = v == op->out[1];
    int64_t n = h->x->type.dim[h->axis];
    return n > 0 && op->out[0]->type.dim[h->axis] == n / 2 && op->out[1]->type.dim[h->axis] == n / 2 && n % 2 == 0;
}

static bool from_slice(const pome_value *v, half *h)
{
    int64_t begin, end;
    pome_op *op = pome_match_op(v, POME_OP_slice_by_index);
    if (!op || !pome_match_slice(op, &h->axis, &begin, &end))
        return false;
    h->x = pome_match_source(op->in[0]);
    int64_t n = h->x->type.dim[h->axis];
    h->is_second = begin > 0;
    return n % 2 == 0 && end - begin == n / 2 && (begin == 0 || begin == n / 2);
}

/* v is half of something, or minus half of it */
static bool match_half(pome_value *v, half *h)
{
    double factor;
    *h = (half){0};
    v = pome_match_source(v);
    pome_op *op = pome_match_op(v, POME_OP_mul);
    for (int k = 0; op && k < 2; k++)
        if (pome_match_scalar(op->in[k], &factor) && factor == -1) {
            h->is_negative = true;
            v = pome_match_source(op->in[1 - k]);
            break;
        }
    op = pome_match_op(v, POME_OP_sub);
    if (op && pome_match_scalar(op->in[0], &factor) && factor == 0) {
        h->is_negative = true;
        v = pome_match_source(op->in[1]);
    }
    return from_slice(v, h) || from_split(v, h);
}

static pome_op *match_pair(pome_value *v, int32_t *axis)
{
    pome_op *op = pome_match_op(pome_match_source(v), POME_OP_concat);
    const pome_value *interleave = op ? pome_op_arg(op, P_concat_interleave) : NULL;
    if (!op || op->args[P_concat_values].count != 2 ||
        (interleave && (!interleave->konst || pome_tensor_int_at(&interleave->konst->t, 0))) ||
        !pome_match_axis(pome_op_arg(op, P_concat_axis), op->out[0]->type.rank, axis))
        return NULL;
    return op;
}

/* v = concat(b, a) or concat(-b, a) of x */
static bool match_swapped(pome_value *v, rotary *r)
{
    half b, a;
    pome_op *pair = match_pair(v, &r->axis);
    if (!pair || !match_half(pair->in[pair->args[P_concat_values].first], &b) ||
        !match_half(pair->in[pair->args[P_concat_values].first + 1], &a))
        return false;
    r->x = a.x;
    r->negate = b.is_negative;
    return a.x == b.x && a.axis == r->axis && b.axis == r->axis && b.is_second && !a.is_second && !a.is_negative;
}

/* `t` may be broadcast to x without making it larger, as far as sizes are known; the operator refuses another at run
 * time. Along the turned axis it has `wide` elements. */
static bool is_table(const pome_value *t, const pome_value *x, int32_t axis, int64_t wide)
{
    int32_t shift = x->type.rank - t->type.rank;
    if (shift < 0 || axis < shift || !pome_dim_may_equal(t->type.dim[axis - shift], wide))
        return false;
    for (int32_t d = shift; d < x->type.rank; d++) {
        int64_t n = t->type.dim[d - shift], m = x->type.dim[d];
        if (d != axis && n != 1 && n >= 0 && m >= 0 && n != m)
            return false;
    }
    return true;
}

static bool from_sum(const pome_op *op, rotary *r)
{
    if (op->def->id != POME_OP_add)
        return false;
    for (int k = 0; k < 2; k++) {
        pome_op *straight = pome_match_op(pome_match_source(op->in[k]), POME_OP_mul);
        pome_op *crossed = pome_match_op(pome_match_source(op->in[1 - k]), POME_OP_mul);
        for (int j = 0; straight && crossed && j < 2; j++) {
            if (!match_swapped(crossed->in[j], r))
                continue;
            r->sin = crossed->in[1 - j];
            for (int i = 0; i < 2; i++)
                if (pome_match_source(straight->in[i]) == r->x) {
                    int64_t n = r->x->type.dim[r->axis];
                    r->x = straight->in[i];
                    r->cos = straight->in[1 - i];
                    return is_table(r->cos, r->x, r->axis, n) && is_table(r->sin, r->x, r->axis, n);
                }
        }
    }
    return false;
}

/* v = half * table: gives both. */
static bool match_product(pome_value *v, half *h, pome_value **table)
{
    pome_op *op = pome_match_op(pome_match_source(v), POME_OP_mul);
    for (int k = 0; op && k < 2; k++)
        if (match_half(op->in[k], h) && !h->is_negative) {
            *table = op->in[1 - k];
            return true;
        }
    return false;
}

static bool from_halves(const pome_op *op, rotary *r)
{
    half a0, b0, b1, a1;
    pome_value *cos0, *cos1, *sin0, *sin1;
    pome_op *pair = op->def->id == POME_OP_concat ? match_pair(op->out[0], &r->axis) : NULL;
    pome_op *lo = pair ? pome_match_op(pome_match_source(op->in[op->args[P_concat_values].first]), POME_OP_sub) : NULL;
    pome_op *hi = pair ? pome_match_op(pome_match_source(op->in[op->args[P_concat_values].first + 1]), POME_OP_add) : NULL;
    if (!lo || !hi || !match_product(lo->in[0], &a0, &cos0) || !match_product(lo->in[1], &b0, &sin0) ||
        !match_product(hi->in[0], &b1, &cos1) || !match_product(hi->in[1], &a1, &sin1))
        return false;
    if (b1.is_second == false) { /* a * sin + b * cos */
        half h = b1;
        pome_value *t = cos1;
        b1 = a1, cos1 = sin1;
        a1 = h, sin1 = t;
    }
    *r = (rotary){.x = a0.x, .cos = cos0, .sin = sin0, .axis = r->axis, .negate = true};
    bool is_same = a0.x == b0.x && a0.x == a1.x && a0.x == b1.x && cos0 == cos1 && sin0 == sin1;
    bool in_place = !a0.is_second && b0.is_second && b1.is_second && !a1.is_second && a0.axis == r->axis &&
                    b0.axis == r->axis && a1.axis == r->axis && b1.axis == r->axis;
    int64_t n = is_same && in_place ? r->x->type.dim[r->axis] : 0;
    return n > 0 && is_table(cos0, r->x, r->axis, n / 2) && is_table(sin0, r->x, r->axis, n / 2);
}

pome_status pome_pass_fuse_rotary(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    for (uint32_t i = 0; i < fn->body->n_ops; i++) {
        pome_op **op = &fn->body->ops[i];
        rotary r = {0};
        if ((!from_sum(*op, &r) && !from_halves(*op, &r)) || !pome_dtype_is_float(r.x->type.dtype))
            continue;
        const pome_rewrite_arg args[] = {{P_pome_rotary_x, r.x},
                                         {P_pome_rotary_cos, r.cos},
                                         {P_pome_rotary_sin, r.sin},
                                         {P_pome_rotary_axis, pome_rewrite_int(fn, ctx->arena, r.axis)},
                                         {P_pome_rotary_negate, pome_rewrite_bool(fn, ctx->arena, r.negate)}};
        pome_op *made = args[3].value && args[4].value
                            ? pome_rewrite_op(fn, POME_OP_pome_rotary, *op, args, 5, (*op)->out, 1)
                            : NULL;
        if (!made)
            return pome_fail_nomem(err, sizeof *made, "rotary embedding");
        *op = made;
        ctx->n_fused[POME_FUSION_ROTARY]++;
    }
    return POME_OK;
}
