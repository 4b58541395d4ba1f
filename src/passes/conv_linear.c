/* Language models written as convolutions keep activations in channels, [B, C, 1, S] or [B, C, 8, 8]. Here convolutions with
 * kernels of one element become linear layers over rows, [B, S, C], and so does what lies between them: norms,
 * activations, sums, rotary embeddings, heads as parts of channels. A value in channels is made only where something else
 * wants it. Every element is computed as before, apart from norms, whose squares are summed in another order.
 *
 * A value [B, c.., s..] whose channel axes c.. and spatial axes s.. are known has rows [B, S, c..]. Backwards it is found
 * which values convolutions want in rows; forwards operators are rewritten when they are wanted so or begin so. */
#include <string.h>

#include "passes/match.h"

typedef struct column {
    pome_value *rows;   /* [B, S, c..]; NULL: none yet */
    int32_t n_channels; /* channel axes of the value */
    bool is_hidden;     /* the value itself is not computed (yet) */
} column;

typedef struct rewriting {
    pome_function *fn;
    pome_pass_ctx *ctx;
    uint32_t n_known;   /* values when it began */
    column *column;     /* [n_known] */
    bool *is_wanted;    /* [n_known] */
    pome_value **table; /* [n_known] what table_rows made */
    pome_op **ops;
    uint32_t n_ops, room;
    bool out_of_memory;
} rewriting;

static column *column_of(const rewriting *r, const pome_value *v)
{
    return v && v->id < r->n_known && r->column[v->id].rows ? &r->column[v->id] : NULL;
}

static bool wants(const rewriting *r, const pome_value *v)
{
    return v && v->id < r->n_known && r->is_wanted[v->id];
}

static int64_t product(const int64_t *dim, int32_t from, int32_t to)
{
    int64_t n = 1;
    for (int32_t d = from; d < to; d++)
        n *= dim[d];
    return n;
}

static bool is_static(const pome_value *v)
{
    for (int32_t d = 0; d < v->type.rank; d++)
        if (v->type.dim[d] <= 0 || v->type.dim[d] > INT32_MAX)
            return false;
    return pome_dtype_is_float(v->type.dtype);
}

/* ---- making operators ---- */

static pome_op *append(rewriting *r, pome_op *op)
{
    if (!op || r->n_ops == r->room)
        r->out_of_memory = true;
    else
        r->ops[r->n_ops++] = op;
    return r->out_of_memory ? NULL : op;
}

static pome_value *new_value(rewriting *r, const pome_value *like, int32_t rank, const int64_t *dim)
{
    pome_type type = like->type;
    type.rank = rank;
    memcpy(type.dim, dim, (size_t)rank * sizeof *dim);
    pome_value *v = pome_value_create(r->fn, "", &type);
    r->out_of_memory = r->out_of_memory || !v;
    return v;
}

static pome_value *reshape(rewriting *r, const pome_op *like, pome_value *v, int32_t rank, const int64_t *dim)
{
    if (v->type.rank == rank && memcmp(v->type.dim, dim, (size_t)rank * sizeof *dim) == 0)
        return v;
    pome_value *out = new_value(r, v, rank, dim);
    return out && append(r, pome_rewrite_reshape(r->fn, r->ctx->arena, like, v, out)) ? out : NULL;
}

static pome_value *transpose(rewriting *r, const pome_op *like, pome_value *v, const int32_t *perm, pome_value *out)
{
    pome_op *op = append(r, pome_rewrite_transpose(r->fn, r->ctx->arena, like, v, perm, v->type.rank, out));
    return op ? op->out[0] : NULL;
}

/* A transpose that is a copy: rows that several operators read. */
static pome_value *transposed_copy(rewriting *r, const pome_op *like, pome_value *v, const int32_t *perm)
{
    int64_t dim[POME_MAX_RANK];
    for (int32_t d = 0; d < v->type.rank; d++)
        dim[d] = v->type.dim[perm[d]];
    pome_value *out = new_value(r, v, v->type.rank, dim);
    const pome_rewrite_arg args[] = {
        {P_pome_transposed_x, v},
        {P_pome_transposed_perm,
         pome_value_create_ints(r->fn, r->ctx->arena, POME_DTYPE_I32, 1, perm, (uint32_t)v->type.rank)}};
    pome_op *op = out && args[1].value ? pome_rewrite_op(r->fn, POME_OP_pome_transposed, like, args, 2, &out, 1) : NULL;
    return append(r, op) ? out : NULL;
}

/* [B, S, c..] for a value with n_channels channel axes. */
static void rows_shape(const pome_value *v, int32_t n_channels, int64_t *dim)
{
    dim[0] = v->type.dim[0];
    dim[1] = product(v->type.dim, 1 + n_channels, v->type.rank);
    memcpy(dim + 2, v->type.dim + 1, (size_t)n_channels * sizeof *dim);
}

static pome_value *rows_of(rewriting *r, const pome_op *like, pome_value *v, int32_t n_channels)
{
    static const int32_t perm[3] = {0, 2, 1};
    int64_t dim[POME_MAX_RANK];
    column *c = column_of(r, v);
    rows_shape(v, n_channels, dim);
    if (c)
        return reshape(r, like, c->rows, n_channels + 2, dim);
    const int64_t flat[3] = {dim[0], product(v->type.dim, 1, 1 + n_channels), dim[1]};
    pome_value *rows = reshape(r, like, v, 3, flat);
    rows = rows ? transposed_copy(r, like, rows, perm) : NULL;
    rows = rows ? reshape(r, like, rows, n_channels + 2, dim) : NULL;
    if (v->id < r->n_known)
        r->column[v->id] = (column){rows, n_channels, false};
    return rows;
}

static void set_rows(rewriting *r, pome_value *v, pome_value *rows, int32_t n_channels)
{
    r->column[v->id] = (column){rows, n_channels, true};
}

/* The value itself, from its rows. */
static void show(rewriting *r, const pome_op *like, pome_value *v)
{
    static const int32_t perm[3] = {0, 2, 1};
    column *c = column_of(r, v);
    if (!c || !c->is_hidden)
        return;
    c->is_hidden = false;
    const int64_t *dim = c->rows->type.dim;
    const int64_t flat[3] = {dim[0], dim[1], product(dim, 2, c->rows->type.rank)};
    pome_value *rows = reshape(r, like, c->rows, 3, flat);
    bool is_flat = v->type.rank == 3 && v->type.dim[1] == flat[2];
    pome_value *turned = rows ? transpose(r, like, rows, perm, is_flat ? v : NULL) : NULL;
    if (turned && !is_flat)
        append(r, pome_rewrite_reshape(r->fn, r->ctx->arena, like, turned, v));
}

/* ---- what can be rewritten ---- */

static bool all_equal(const pome_value *v, int64_t want)
{
    if (v && (!v->konst || !v->konst->t.data))
        return false;
    for (int64_t i = 0; v && i < pome_tensor_count(&v->konst->t); i++)
        if (pome_tensor_int_at(&v->konst->t, i) != want)
            return false;
    return true;
}

static bool is_pointwise_conv(const pome_op *op)
{
    if (op->def->id != POME_OP_conv)
        return false;
    const pome_value *x = pome_op_arg(op, P_conv_x), *w = pome_op_arg(op, P_conv_weight), *b = pome_op_arg(op, P_conv_bias);
    if (!w->konst || (b && !b->konst) || x->type.rank < 3 || w->type.rank != x->type.rank || !is_static(x) ||
        !pome_dtype_is_float(w->type.dtype) || w->type.dim[1] != x->type.dim[1] || !is_static(op->out[0]))
        return false;
    for (int32_t d = 2; d < w->type.rank; d++)
        if (w->type.dim[d] != 1 || x->type.dim[d] != op->out[0]->type.dim[d])
            return false;
    return all_equal(pome_op_arg(op, P_conv_strides), 1) && all_equal(pome_op_arg(op, P_conv_pad), 0) &&
           all_equal(pome_op_arg(op, P_conv_groups), 1);
}

static bool is_unary(const pome_op *op)
{
    switch (op->def->id) {
    case POME_OP_identity:
    case POME_OP_silu:
    case POME_OP_sigmoid:
    case POME_OP_gelu:
    case POME_OP_relu:
    case POME_OP_tanh: return true;
    case POME_OP_cast: return pome_dtype_is_float(op->out[0]->type.dtype);
    default: return false;
    }
}

static bool is_binary(const pome_op *op)
{
    switch (op->def->id) {
    case POME_OP_add:
    case POME_OP_sub:
    case POME_OP_mul:
    case POME_OP_real_div:
    case POME_OP_maximum:
    case POME_OP_minimum:
    case POME_OP_pome_gated: return true;
    default: return false;
    }
}

static bool same_shape(const pome_value *a, const pome_value *b)
{
    return a->type.rank == b->type.rank &&
           memcmp(a->type.dim, b->type.dim, (size_t)a->type.rank * sizeof a->type.dim[0]) == 0;
}

/* An operand that means the same beside rows: a number; a constant along axis 1, which becomes a vector. */
static bool is_number_or_channels(const pome_value *v, const pome_value *out)
{
    if (!v->konst || !v->konst->t.data)
        return false;
    return pome_tensor_count(&v->konst->t) == 1 ||
           pome_match_is_along(&v->konst->t, out->type.rank, 1, out->type.dim[1]);
}

static int32_t axis_of(const pome_op *op, uint32_t param, int32_t rank)
{
    int32_t axis;
    return pome_match_axis(pome_op_arg(op, param), rank, &axis) ? axis : -1;
}

/* Channel axes of a reshape's result if only channels, or spatial axes, are split and joined; else 0. */
static int32_t channels_after(const pome_value *x, int32_t n_channels, const pome_value *out)
{
    int64_t c = product(x->type.dim, 1, 1 + n_channels), s = product(x->type.dim, 1 + n_channels, x->type.rank);
    if (!is_static(x) || !is_static(out) || x->type.dim[0] != out->type.dim[0])
        return 0;
    for (int32_t n = 1; n + 1 < out->type.rank; n++)
        if (product(out->type.dim, 1, 1 + n) == c && product(out->type.dim, 1 + n, out->type.rank) == s)
            return n;
    return 0;
}

static bool is_reshape(const pome_op *op)
{
    return op->def->id == POME_OP_reshape || op->def->id == POME_OP_expand_dims || op->def->id == POME_OP_squeeze;
}

static bool read_perm(const pome_op *op, int32_t *perm)
{
    const pome_value *v = pome_op_arg(op, P_transpose_perm);
    int32_t rank = op->in[0]->type.rank;
    if (!v || !v->konst || pome_tensor_count(&v->konst->t) != rank)
        return false;
    for (int32_t d = 0; d < rank; d++) {
        int64_t from = pome_tensor_int_at(&v->konst->t, d);
        perm[d] = (int32_t)(from < 0 ? from + rank : from);
        if (perm[d] < 0 || perm[d] >= rank)
            return false;
    }
    return true;
}

/* out [B, c.., S] is a transpose of rows [B, S, c..], through any number of transposes; or [B, E, 1, S] of [B, S, 1, E]. */
static pome_value *rows_before(const pome_op *op, int32_t *n_channels)
{
    int32_t perm[POME_MAX_RANK], outer[POME_MAX_RANK], rank = op->out[0]->type.rank;
    pome_value *x = NULL;
    for (int32_t d = 0; d < rank; d++)
        outer[d] = d;
    while (op && op->def->id == POME_OP_transpose && read_perm(op, perm)) {
        for (int32_t d = 0; d < rank; d++)
            outer[d] = perm[outer[d]];
        x = op->in[0];
        op = pome_match_op(x, POME_OP_transpose);
        bool is_rows = rank >= 3 && outer[0] == 0 && outer[rank - 1] == 1;
        for (int32_t d = 1; d + 1 < rank; d++)
            is_rows = is_rows && outer[d] == d + 1;
        *n_channels = rank - 2;
        bool is_one = rank == 4 && outer[0] == 0 && outer[1] == 3 && outer[2] == 2 && outer[3] == 1 && x->type.dim[2] == 1;
        if (is_one)
            *n_channels = 1;
        if ((is_rows || is_one) && is_static(x) && !x->konst)
            return x;
    }
    return NULL;
}

/* op takes a range of axis 1. */
static bool is_part_of_channels(const pome_op *op)
{
    int32_t axis;
    int64_t begin, end;
    if (op->def->id == POME_OP_slice_by_index)
        return is_static(op->in[0]) && is_static(op->out[0]) && op->out[0]->type.rank == op->in[0]->type.rank &&
               pome_match_slice(op, &axis, &begin, &end) && axis == 1;
    return op->def->id == POME_OP_split && is_static(op->in[0]) && axis_of(op, P_split_axis, op->in[0]->type.rank) == 1;
}

static bool is_concat_of_channels(const pome_op *op)
{
    if (op->def->id != POME_OP_concat || !is_static(op->out[0]) || op->out[0]->type.rank < 3)
        return false;
    const pome_value *interleave = pome_op_arg(op, P_concat_interleave);
    for (uint32_t i = 0; i < op->args[P_concat_values].count; i++)
        if (op->in[op->args[P_concat_values].first + i]->konst)
            return false;
    return axis_of(op, P_concat_axis, op->out[0]->type.rank) == 1 && all_equal(interleave, 0);
}

/* ---- backwards: values that convolutions want in rows ---- */

static void want(rewriting *r, const pome_value *v)
{
    if (v && v->id < r->n_known && !v->konst && is_static(v) && v->type.rank >= 3)
        r->is_wanted[v->id] = true;
}

/* Whether the graph has rows to gain: a norm over channels, or rows turned to channels. */
static bool find_wanted(rewriting *r)
{
    const pome_block *b = r->fn->body;
    bool is_gain = false;
    int32_t n_channels;
    for (uint32_t i = b->n_ops; i-- > 0;) {
        const pome_op *op = b->ops[i];
        if (is_pointwise_conv(op)) {
            want(r, pome_op_arg(op, P_conv_x));
            continue;
        }
        bool is_wanted = false;
        for (uint32_t o = 0; o < op->n_out; o++)
            is_wanted = is_wanted || wants(r, op->out[o]);
        if (!is_wanted)
            continue;
        if (op->def->id == POME_OP_pome_rms_norm && axis_of(op, P_pome_rms_norm_axis, op->in[0]->type.rank) == 1) {
            is_gain = true;
            want(r, op->in[0]);
        } else if (op->def->id == POME_OP_transpose) {
            is_gain = is_gain || rows_before(op, &n_channels);
        } else if (is_unary(op) || is_reshape(op) || is_part_of_channels(op)) {
            want(r, op->in[0]);
        } else if (is_binary(op)) {
            for (int k = 0; k < 2; k++)
                if (same_shape(op->in[k], op->out[0]))
                    want(r, op->in[k]);
        } else if (is_concat_of_channels(op)) {
            for (uint32_t k = 0; k < op->args[P_concat_values].count; k++)
                want(r, op->in[op->args[P_concat_values].first + k]);
        }
    }
    return is_gain;
}

/* ---- forwards ---- */

static pome_value *with_shape(rewriting *r, const pome_value *v, int32_t rank, const int64_t *dim)
{
    pome_const *k = POME_NEW(r->ctx->arena, pome_const);
    if (!k) {
        r->out_of_memory = true;
        return NULL;
    }
    *k = *v->konst;
    k->t = pome_tensor_borrow(v->konst->t.data, v->konst->t.dtype, rank, dim);
    pome_value *made = pome_value_create_const(r->fn, v->name, k);
    r->out_of_memory = r->out_of_memory || !made;
    return made;
}

/* A copy of op over other inputs with one new result, of the shape of rows. */
static pome_value *copy_over(rewriting *r, const pome_op *op, pome_value **in, int32_t rank, const int64_t *dim)
{
    enum { MAX_PARAMS = 16 };
    pome_value *const *lists[MAX_PARAMS] = {0};
    uint32_t counts[MAX_PARAMS] = {0};
    for (uint32_t p = 0; p < op->def->n_params && p < MAX_PARAMS; p++) {
        lists[p] = in + op->args[p].first;
        counts[p] = op->args[p].count;
    }
    pome_value *out = new_value(r, op->out[0], rank, dim);
    pome_op *made = out ? pome_op_create_over(r->fn, op->def, op->name, lists, counts, &out, 1) : NULL;
    if (made)
        made->position = op->position;
    return append(r, made) ? out : NULL;
}

static void rewrite_conv(rewriting *r, const pome_op *op)
{
    const pome_value *w = pome_op_arg(op, P_conv_weight), *x = pome_op_arg(op, P_conv_x);
    pome_value *rows = rows_of(r, op, pome_op_arg(op, P_conv_x), 1);
    const int64_t dim[3] = {x->type.dim[0], product(x->type.dim, 2, x->type.rank), w->type.dim[0]};
    pome_value *weight = with_shape(r, w, 2, w->type.dim), *out = new_value(r, op->out[0], 3, dim);
    if (!rows || !weight || !out)
        return;
    const pome_rewrite_arg args[] = {
        {P_linear_x, rows}, {P_linear_weight, weight}, {P_linear_bias, pome_op_arg(op, P_conv_bias)}};
    if (append(r, pome_rewrite_op(r->fn, POME_OP_linear, op, args, 3, &out, 1)))
        set_rows(r, op->out[0], out, 1);
    r->ctx->n_fused[POME_FUSION_CONV_LINEAR]++;
}

enum { INPUTS_MAX = 64 };

/* Operators of one operand, and norms: a copy over rows. */
static bool rewrite_unary(rewriting *r, const pome_op *op)
{
    const column *c = column_of(r, op->in[0]);
    bool is_norm = op->def->id == POME_OP_pome_rms_norm;
    int32_t rank = op->in[0]->type.rank, n_channels = c ? c->n_channels : 1;
    pome_value *in[INPUTS_MAX];
    if ((!c && !wants(r, op->out[0])) || op->in[0]->konst || op->n_in > INPUTS_MAX || !is_static(op->in[0]) || rank < 3 ||
        (is_norm && (axis_of(op, P_pome_rms_norm_axis, rank) != 1 || n_channels != 1)))
        return false;
    memcpy(in, op->in, op->n_in * sizeof *in);
    in[0] = rows_of(r, op, op->in[0], n_channels);
    if (is_norm)
        in[op->args[P_pome_rms_norm_axis].first] = pome_rewrite_int(r->fn, r->ctx->arena, 2);
    if (!in[0] || (is_norm && !in[op->args[P_pome_rms_norm_axis].first])) {
        r->out_of_memory = true;
        return true;
    }
    pome_value *out = copy_over(r, op, in, in[0]->type.rank, in[0]->type.dim);
    if (out)
        set_rows(r, op->out[0], out, n_channels);
    return true;
}

static bool rewrite_binary(rewriting *r, const pome_op *op)
{
    pome_value *out = op->out[0], *in[INPUTS_MAX], *rows = NULL;
    const column *known = NULL;
    if (!is_static(out) || out->type.rank < 3 || op->n_in > INPUTS_MAX)
        return false;
    for (int k = 0; k < 2; k++) {
        const column *c = column_of(r, op->in[k]);
        if (same_shape(op->in[k], out) && !op->in[k]->konst)
            known = c ? c : known;
        else if (!is_number_or_channels(op->in[k], out))
            return false;
    }
    int32_t n_channels = known ? known->n_channels : 1;
    if ((!known && !wants(r, out)) || (op->in[0]->konst && op->in[1]->konst))
        return false;
    for (int k = 0; k < 2; k++) {
        const column *c = column_of(r, op->in[k]);
        bool is_vector = op->in[k]->konst && pome_tensor_count(&op->in[k]->konst->t) != 1;
        if ((c && c->n_channels != n_channels) || (is_vector && n_channels != 1))
            return false;
    }
    memcpy(in, op->in, op->n_in * sizeof *in);
    for (int k = 0; k < 2; k++) {
        if (!op->in[k]->konst) {
            in[k] = rows = rows_of(r, op, op->in[k], n_channels);
        } else {
            int64_t n = pome_tensor_count(&op->in[k]->konst->t);
            in[k] = with_shape(r, op->in[k], n == 1 ? 0 : 1, &n);
        }
        if (!in[k])
            return true;
    }
    pome_value *made = copy_over(r, op, in, rows->type.rank, rows->type.dim);
    if (made)
        set_rows(r, out, made, n_channels);
    return true;
}

static bool rewrite_reshape(rewriting *r, pome_op *op)
{
    column *c = column_of(r, op->in[0]);
    pome_value *x = op->in[0], *out = op->out[0];
    int32_t n = channels_after(x, c ? c->n_channels : 1, out);
    int64_t dim[POME_MAX_RANK];
    if (n == 0 || x->konst || out->type.rank < 3 || x->type.rank < 3 || (!c && !wants(r, out)))
        return false;
    pome_value *rows = rows_of(r, op, x, c ? c->n_channels : 1);
    rows_shape(out, n, dim);
    rows = rows ? reshape(r, op, rows, n + 2, dim) : NULL;
    if (rows)
        set_rows(r, out, rows, n);
    return true;
}

/* A transpose that makes channels of rows, or one of a value in rows. */
static bool rewrite_transpose(rewriting *r, pome_op *op)
{
    int32_t perm[POME_MAX_RANK], n_channels = 0;
    pome_value *rows = wants(r, op->out[0]) ? rows_before(op, &n_channels) : NULL;
    if (rows) {
        int64_t dim[POME_MAX_RANK];
        rows_shape(op->out[0], n_channels, dim);
        show(r, op, rows);
        rows = reshape(r, op, rows, n_channels + 2, dim);
        if (rows)
            set_rows(r, op->out[0], rows, n_channels);
        return true;
    }
    const column *c = column_of(r, op->in[0]);
    int32_t rank = op->in[0]->type.rank, from[POME_MAX_RANK];
    if (!c || !c->is_hidden || c->n_channels != rank - 2 || !read_perm(op, perm))
        return false;
    for (int32_t d = 0; d < rank; d++)
        from[d] = perm[d] == 0 ? 0 : perm[d] == rank - 1 ? 1 : perm[d] + 1;
    transpose(r, op, c->rows, from, op->out[0]);
    return true;
}

/* cos and sin [.., n, S], broadcast to [B, H, D, S], as [1, S, 1, n]. */
static pome_value *table_rows(rewriting *r, const pome_op *op, pome_value *t)
{
    static const int32_t perm[4] = {0, 3, 1, 2};
    int64_t dim[4] = {1, 1, 1, 1};
    if (t->type.rank < 1 || t->type.rank > 4)
        return NULL;
    memcpy(dim + 4 - t->type.rank, t->type.dim, (size_t)t->type.rank * sizeof *dim);
    if (t->id < r->n_known && r->table[t->id])
        return r->table[t->id];
    show(r, op, t);
    pome_value *wide = reshape(r, op, t, 4, dim);
    pome_value *turned = wide ? transposed_copy(r, op, wide, perm) : NULL;
    if (t->id < r->n_known)
        r->table[t->id] = turned; /* for the next layer */
    return turned;
}

static bool rewrite_rotary(rewriting *r, const pome_op *op)
{
    pome_value *x = pome_op_arg(op, P_pome_rotary_x), *in[INPUTS_MAX];
    pome_value *cos = pome_op_arg(op, P_pome_rotary_cos), *sin = pome_op_arg(op, P_pome_rotary_sin);
    const column *c = column_of(r, x);
    if (!c || c->n_channels != 2 || x->type.rank != 4 || axis_of(op, P_pome_rotary_axis, 4) != 2 || op->n_in > INPUTS_MAX ||
        !is_static(cos) || !is_static(sin) || cos->type.rank > 4 || sin->type.rank > 4)
        return false;
    memcpy(in, op->in, op->n_in * sizeof *in);
    pome_value *rows = c->rows;
    in[op->args[P_pome_rotary_x].first] = rows;
    in[op->args[P_pome_rotary_cos].first] = table_rows(r, op, cos);
    in[op->args[P_pome_rotary_sin].first] = table_rows(r, op, sin);
    in[op->args[P_pome_rotary_axis].first] = pome_rewrite_int(r->fn, r->ctx->arena, 3);
    for (uint32_t k = 0; k < op->n_in; k++)
        if (!in[k]) {
            r->out_of_memory = true;
            return true;
        }
    pome_value *out = copy_over(r, op, in, 4, rows->type.dim);
    if (out)
        set_rows(r, op->out[0], out, 2);
    return true;
}

/* Parts of channels: slices and split of rows along the last axis. */
static bool rewrite_parts(rewriting *r, const pome_op *op)
{
    const column *c = column_of(r, op->in[0]);
    if (!c || c->n_channels != 1 || !c->is_hidden || !is_part_of_channels(op))
        return false;
    int32_t begin[3] = {0}, end[3], axis;
    int64_t first = 0, last = 0, at = 0;
    for (uint32_t o = 0; o < op->n_out; o++) {
        pome_value *part = op->out[o];
        if (op->def->id == POME_OP_slice_by_index)
            (void)pome_match_slice(op, &axis, &first, &last);
        else
            first = at, last = at = at + part->type.dim[1];
        int64_t dim[3] = {c->rows->type.dim[0], c->rows->type.dim[1], last - first};
        begin[2] = (int32_t)first;
        for (int d = 0; d < 3; d++)
            end[d] = (int32_t)(d == 2 ? last : dim[d]);
        pome_value *out = new_value(r, part, 3, dim);
        const pome_rewrite_arg args[] = {
            {P_slice_by_index_x, c->rows},
            {P_slice_by_index_begin, pome_value_create_ints(r->fn, r->ctx->arena, POME_DTYPE_I32, 1, begin, 3)},
            {P_slice_by_index_end, pome_value_create_ints(r->fn, r->ctx->arena, POME_DTYPE_I32, 1, end, 3)}};
        pome_op *made = out && args[1].value && args[2].value
                            ? pome_rewrite_op(r->fn, POME_OP_slice_by_index, op, args, 3, &out, 1)
                            : NULL;
        if (append(r, made))
            set_rows(r, part, out, 1);
    }
    return true;
}

static bool rewrite_concat(rewriting *r, const pome_op *op)
{
    pome_value *in[INPUTS_MAX], *out = op->out[0];
    const pome_arg *values = &op->args[P_concat_values];
    bool begins_so = wants(r, out);
    for (uint32_t k = 0; k < values->count; k++) {
        const column *c = column_of(r, op->in[values->first + k]);
        if (c && c->n_channels != 1)
            return false;
    }
    if (!begins_so || op->n_in > INPUTS_MAX || !is_concat_of_channels(op))
        return false;
    memcpy(in, op->in, op->n_in * sizeof *in);
    for (uint32_t k = 0; k < values->count; k++)
        if (!(in[values->first + k] = rows_of(r, op, op->in[values->first + k], 1)))
            return true;
    in[op->args[P_concat_axis].first] = pome_rewrite_int(r->fn, r->ctx->arena, 2);
    if (!in[op->args[P_concat_axis].first]) {
        r->out_of_memory = true;
        return true;
    }
    const int64_t dim[3] = {out->type.dim[0], product(out->type.dim, 2, out->type.rank), out->type.dim[1]};
    pome_value *made = copy_over(r, op, in, 3, dim);
    if (made)
        set_rows(r, out, made, 1);
    return true;
}

static bool rewrite(rewriting *r, pome_op *op)
{
    if (is_pointwise_conv(op)) {
        rewrite_conv(r, op);
        return true;
    }
    if (is_unary(op) || op->def->id == POME_OP_pome_rms_norm)
        return rewrite_unary(r, op);
    if (is_binary(op))
        return rewrite_binary(r, op);
    if (is_reshape(op))
        return rewrite_reshape(r, op);
    switch (op->def->id) {
    case POME_OP_transpose: return rewrite_transpose(r, op);
    case POME_OP_pome_rotary: return rewrite_rotary(r, op);
    case POME_OP_slice_by_index:
    case POME_OP_split: return rewrite_parts(r, op);
    case POME_OP_concat: return rewrite_concat(r, op);
    default: return false;
    }
}

/* Values that nested blocks read from outside. */
static void show_captured(rewriting *r, const pome_op *like, const pome_block *b)
{
    for (uint32_t i = 0; i < b->n_ops; i++) {
        for (uint32_t k = 0; k < b->ops[i]->n_in; k++)
            show(r, like, b->ops[i]->in[k]);
        for (uint32_t k = 0; k < b->ops[i]->n_blocks; k++)
            show_captured(r, like, b->ops[i]->blocks[k]);
    }
    for (uint32_t i = 0; i < b->n_outputs; i++)
        show(r, like, b->outputs[i]);
}

pome_status pome_pass_conv_linear(pome_function *fn, pome_pass_ctx *ctx, pome_error *err)
{
    pome_block *b = fn->body;
    rewriting r = {.fn = fn, .ctx = ctx, .n_known = fn->n_values};
    r.column = POME_NEW_ARRAY(ctx->arena, column, fn->n_values);
    r.is_wanted = POME_NEW_ARRAY(ctx->arena, bool, fn->n_values);
    r.table = POME_NEW_ARRAY(ctx->arena, pome_value *, fn->n_values);
    if (!r.column || !r.is_wanted || !r.table)
        return pome_fail_nomem(err, fn->n_values * sizeof *r.column, "values in rows");
    if (b->n_ops == 0 || !find_wanted(&r))
        return POME_OK;
    uint32_t n_operands = b->n_outputs;
    for (uint32_t i = 0; i < b->n_ops; i++)
        n_operands += b->ops[i]->n_in + b->ops[i]->n_out;
    r.room = 4 * n_operands + 4 * fn->n_values + b->n_ops; /* each is shown, and turned to rows, once */
    r.ops = POME_NEW_ARRAY(ctx->arena, pome_op *, r.room);
    if (!r.ops)
        return pome_fail_nomem(err, r.room * sizeof *r.ops, "operators");
    for (uint32_t i = 0; i < b->n_ops && !r.out_of_memory; i++) {
        pome_op *op = b->ops[i];
        if (rewrite(&r, op))
            continue;
        for (uint32_t k = 0; k < op->n_in; k++)
            show(&r, op, op->in[k]);
        for (uint32_t k = 0; k < op->n_blocks; k++)
            show_captured(&r, op, op->blocks[k]);
        append(&r, op);
    }
    for (uint32_t i = 0; i < b->n_outputs && !r.out_of_memory; i++)
        show(&r, b->ops[b->n_ops - 1], b->outputs[i]);
    if (r.out_of_memory)
        return pome_fail_nomem(err, r.room * sizeof *r.ops, "operators over rows");
    b->ops = r.ops;
    b->n_ops = r.n_ops;
    return POME_OK;
}
