/* Normalization by the root mean square, y = x / sqrt(mean(x^2) + epsilon) * gamma, as graphs write it:
 *
 *   - traced: the square (pow, mul, square), reduce_mean, add, rsqrt (or sqrt and real_div, or pow -0.5), mul;
 *   - safe for fp16: layer_norm of concat(x, -x), whose mean is 0, and the first half of the result;
 *
 * A scaled x (x * c, so that the squares of halves do not overflow) is an x like any other.
 * The multiplication by a constant gamma follows in any of them. */
#include <math.h>

#include "passes/match.h"

typedef struct norm {
    pome_value *x;
    int32_t axis;
    double epsilon;
} norm;

/* v = u^2 */
static pome_value *squared(pome_value *v)
{
    double exponent;
    pome_op *op = pome_match_op(v, POME_OP_mul);
    if (op && pome_match_source(op->in[0]) == pome_match_source(op->in[1]))
        return pome_match_source(op->in[0]);
    if ((op = pome_match_op(v, POME_OP_square)) != NULL)
        return pome_match_source(op->in[0]);
    op = pome_match_op(v, POME_OP_pow);
    if (op && pome_match_scalar(op->in[1], &exponent) && exponent == 2)
        return pome_match_source(op->in[0]);
    return NULL;
}

static bool keeps_dims(const pome_op *op, uint32_t param)
{
    const pome_value *v = pome_op_arg(op, param);
    return v && v->konst && pome_tensor_int_at(&v->konst->t, 0) != 0;
}

/* v = mean(u^2) over one axis whose size is known */
static pome_value *mean_of_squares(pome_value *v, int32_t *axis)
{
    double factor;
    pome_op *op = pome_match_op(v, POME_OP_reduce_mean);
    if (op && keeps_dims(op, P_reduce_mean_keep_dims) &&
        pome_match_axis(pome_op_arg(op, P_reduce_mean_axes), op->in[0]->type.rank, axis))
        return squared(pome_match_source(op->in[0]));
    op = pome_match_op(v, POME_OP_mul); /* sum * (1 / n) */
    if (!op)
        return NULL;
    for (int k = 0; k < 2; k++) {
        pome_op *sum = pome_match_op(pome_match_source(op->in[k]), POME_OP_reduce_sum_square);
        if (!sum || !pome_match_scalar(op->in[1 - k], &factor) || !keeps_dims(sum, P_reduce_sum_square_keep_dims) ||
            !pome_match_axis(pome_op_arg(sum, P_reduce_sum_square_axes), sum->in[0]->type.rank, axis))
            continue;
        int64_t n = sum->in[0]->type.dim[*axis];
        if (n > 0 && fabs(factor * (double)n - 1) < 1e-3) /* as near as half precision holds 1 / n */
            return pome_match_source(sum->in[0]);
    }
    return NULL;
}

/* v = mean(u^2) + epsilon */
static pome_value *mean_and_epsilon(pome_value *v, int32_t *axis, double *epsilon)
{
    double more = 0;
    pome_op *add = pome_match_op(v, POME_OP_add);
    for (int k = 0; add && k < 2; k++)
        if (pome_match_scalar(add->in[1 - k], &more)) {
            *epsilon += more;
            return mean_of_squares(pome_match_source(add->in[k]), axis);
        }
    return mean_of_squares(v, axis);
}

/* v = 1 / sqrt(mean(u^2) + epsilon), or without the inverse if that is asked for */
static pome_value *root(pome_value *v, bool inverse, int32_t *axis, double *epsilon)
{
    double exponent;
    pome_op *op = pome_match_op(v, inverse ? POME_OP_rsqrt : POME_OP_sqrt);
    *epsilon = 0;
    if (op && inverse) {
        *epsilon = 1e-12; /* the operator's own */
        pome_value *own = pome_op_arg(op, P_rsqrt_epsilon);
        if (own && !pome_match_scalar(own, epsilon))
            return NULL;
        if (!own && op->in[0]->type.dtype == POME_DTYPE_F16)
            *epsilon = 0;
    }
    if (op)
        return mean_and_epsilon(pome_match_source(op->in[0]), axis, epsilon);
    op = pome_match_op(v, POME_OP_pow);
    if (op && pome_match_scalar(op->in[1], &exponent) && exponent == (inverse ? -0.5 : 0.5))
        return mean_and_epsilon(pome_match_source(op->in[0]), axis, epsilon);
    return NULL;
}

static bool from_root(const pome_op *op, norm *n)
{
    if (op->def->id == POME_OP_mul)
        for (int k = 0; k < 2; k++) {
            pome_value *u = root(pome_match_source(op->in[k]), true, &n->axis, &n->epsilon);
            if (u && u == pome_match_source(op->in[1 - k])) {
                n->x = op->in[1 - k];
                return true;
            }
        }
    if (op->def->id != POME_OP_real_div)
        return false;
    n->x = op->in[0];
    pome_value *u = root(pome_match_source(op->in[1]), false, &n->axis, &n->epsilon);
    return u && u == pome_match_source(op->in[0]);
}

/* The first half of layer_norm(concat(x, -x)). */
static bool from_pair(const pome_op *op, norm *n)
{
    int32_t axis;
    int64_t begin, end;
    double minus;
    if (op->def->id != POME_OP_slice_by_index || !pome_match_slice(op, &axis, &begin, &end) || begin != 0)
        return false;
    pome_op *ln = pome_match_op(pome_match_source(op->in[0]), POME_OP_layer_norm);
    if (!ln || pome_op_arg(ln, P_layer_norm_gamma) || pome_op_arg(ln, P_layer_norm_beta) ||
        !pome_match_axis(pome_op_arg(ln, P_layer_norm_axes), ln->in[0]->type.rank, &n->axis) || n->axis != axis)
        return false;
    pome_op *pair = pome_match_op(pome_match_source(ln->in[0]), POME_OP_concat);
    const pome_value *interleave = pair ? pome_op_arg(pair, P_concat_interleave) : NULL;
    if (!pair || pair->args[P_concat_values].count != 2 ||
        (interleave && (!interleave->konst || pome_tensor_int_at(&interleave->konst->t, 0))) ||
        !pome_match_axis(pome_op_arg(pair, P_concat_axis), ln->in[0]->type.rank, &axis) || axis != n->axis)
        return false;
    n->x = pair->in[pair->args[P_concat_values].first];
    pome_op *neg = pome_match_op(pome_match_source(pair->in[pair->args[P_concat_values].first + 1]), POME_OP_mul);
    pome_value *factor = neg ? pome_match_other(neg, n->x) : NULL;
    if (!factor || !pome_match_scalar(factor, &minus) || minus != -1 || n->x->type.dim[axis] != end)
        return false;
    const pome_value *epsilon = pome_op_arg(ln, P_layer_norm_epsilon);
    n->epsilon = ln->in[0]->type.dtype == POME_DTYPE_F16 ? 1.0013580322265625e-5 : (double)1e-5f;
    return !epsilon || pome_match_scalar(epsilon, &n->epsilon);
}

/* gamma for a norm that was just made: a constant that varies along the axis alone. */
static bool scale_of(pome_function *fn, pome_pass_ctx *ctx, const pome_op *op, pome_op **core, pome_value **gamma)
{
    int32_t axis;
    if (op->def->id != POME_OP_mul)
        return false;
    for (int k = 0; k < 2; k++) {
        *core = pome_match_op(pome_match_source(op->in[k]), POME_OP_pome_rms_norm);
        const pome_value *g = op->in[1 - k];
        if (!*core || pome_op_arg(*core, P_pome_rms_norm_gamma) || !g->konst)
            continue;
        const pome_value *x = (*core)->in[0];
        int32_t rank = x->type.rank;
        pome_match_axis(pome_op_arg(*core, P_pome_rms_norm_axis), rank, &axis);
        if (!pome_match_is_along(&g->konst->t, rank, axis, x->type.dim[axis]))
            continue;
        pome_const *flat = POME_NEW(ctx->arena, pome_const);
        int64_t n = x->type.dim[axis];
        if (!flat)
            return false;
        *flat = *g->konst;
        flat->t = pome_tensor_borrow(g->konst->t.data, g->konst->t.dtype, 1, &n);
        *gamma = pome_value_create_const(fn, g->name, flat);
        return *gamma != NULL;
    }
    return false;
}

static pome_op *make(pome_function *fn, pome_pass_ctx *ctx, const pome_op *like, const norm *n, pome_value *gamma)
{
    const pome_rewrite_arg args[] = {{P_pome_rms_norm_x, n->x},
                                     {P_pome_rms_norm_gamma, gamma},
                                     {P_pome_rms_norm_epsilon, pome_rewrite_float(fn, ctx->arena, (float)n->epsilon)},
                                     {P_pome_rms_norm_axis, pome_rewrite_int(fn, ctx->arena, n->axis)}};
    return args[2].value && args[3].value ? pome_rewrite_op(fn, POME_OP_pome_rms_norm, like, args, 4, like->out, 1) : NULL;
}

pome_status pome_pass_fuse_rms_norm(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    for (uint32_t i = 0; i < fn->body->n_ops; i++) {
        pome_op **op = &fn->body->ops[i], *core = NULL, *made = NULL;
        pome_value *gamma = NULL;
        norm n = {0};
        if (from_root(*op, &n) || from_pair(*op, &n)) {
            if (n.x->type.rank < 1 || n.x->type.dim[n.axis] <= 0)
                continue;
            made = make(fn, ctx, *op, &n, NULL);
            ctx->n_fused[POME_FUSION_RMS_NORM]++;
        } else if (scale_of(fn, ctx, *op, &core, &gamma)) {
            n.x = core->in[0];
            pome_match_axis(pome_op_arg(core, P_pome_rms_norm_axis), n.x->type.rank, &n.axis);
            pome_match_scalar(pome_op_arg(core, P_pome_rms_norm_epsilon), &n.epsilon);
            made = make(fn, ctx, *op, &n, gamma);
        } else {
            continue;
        }
        if (!made)
            return pome_fail_nomem(err, sizeof *made, "normalization");
        *op = made;
    }
    return POME_OK;
}
