#include "passes/columns.h"

#include <string.h>

#include "mil/infer.h"
#include "passes/match.h"

/* A value's elements in row-major order are [before, window, after]: that says where the window is whatever the shape,
 * so that reshapes need no rule of their own. window 0: the value has no columns. */
typedef struct spread {
    int64_t window, before, after;
} spread;

/* The same in a shape: the axis is [outer, window, inner], or the window's two factors are axis and axis + 1. */
typedef struct place {
    int32_t axis;
    bool is_pair;
    int64_t outer, inner;
} place;

typedef struct narrowing {
    pome_function *fn;
    pome_arena *arena;
    const pome_columns *columns;
    int64_t n;
    spread *at;             /* [n_room] by value id; values made here have no entry and no columns */
    uint32_t n_room;
    pome_op **ops;          /* [n_ops] the new body */
    uint32_t n_ops;
    pome_value *first;      /* the added input */
    pome_value **states;    /* [n_caches] */
    bool *is_used;          /* [n_caches] */
    int64_t symbol;         /* the size that the window becomes */
    pome_error *err;
} narrowing;

static pome_status mixes(const narrowing *z, const pome_op *op)
{
    return pome_fail(z->err, POME_ERR_UNSUPPORTED, "%s (%s) mixes the columns of the window", op->name, op->def->name);
}

static pome_status no_memory(const narrowing *z)
{
    return pome_fail_nomem(z->err, 0, "a narrowed program");
}

static spread of(const narrowing *z, const pome_value *v)
{
    return v->id < z->n_room ? z->at[v->id] : (spread){0};
}

static int64_t product(const int64_t *dim, int32_t from, int32_t to)
{
    int64_t n = 1;
    for (int32_t i = from; i < to; i++)
        n *= dim[i];
    return n;
}

/* Finds the window in a shape; false if it straddles axes otherwise. */
static bool locate(const spread *s, const pome_type *t, place *out)
{
    for (int32_t j = 0; j < t->rank; j++) {
        int64_t prefix = product(t->dim, 0, j), suffix = product(t->dim, j + 1, t->rank);
        if (prefix <= 0 || s->before % prefix || suffix <= 0 || s->after % suffix)
            continue;
        place p = {.axis = j, .outer = s->before / prefix, .inner = s->after / suffix};
        if (p.outer * s->window * p.inner == t->dim[j]) {
            *out = p;
            return true;
        }
    }
    for (int32_t j = 0; j + 1 < t->rank; j++)
        if (product(t->dim, 0, j) == s->before && t->dim[j] * t->dim[j + 1] == s->window &&
            product(t->dim, j + 2, t->rank) == s->after) {
            *out = (place){.axis = j, .is_pair = true, .outer = 1, .inner = 1};
            return true;
        }
    return false;
}

static spread spread_at(const place *p, int64_t window, const pome_type *t)
{
    return (spread){window, product(t->dim, 0, p->axis) * p->outer,
                    p->inner * product(t->dim, p->axis + (p->is_pair ? 2 : 1), t->rank)};
}

static bool touches(const place *p, int32_t axis)
{
    return axis == p->axis || (p->is_pair && axis == p->axis + 1);
}

static bool is_same(const place *a, const place *b)
{
    return a->axis == b->axis && a->is_pair == b->is_pair && a->outer == b->outer && a->inner == b->inner;
}

/* ---- constants ---- */

static const pome_tensor *const_of(const pome_op *op, uint32_t param)
{
    const pome_value *v = pome_op_arg(op, param);
    return v && v->konst && v->konst->t.data ? &v->konst->t : NULL;
}

static pome_value *ints(const narrowing *z, pome_dtype dtype, const int32_t *v, int32_t n)
{
    return pome_value_create_ints(z->fn, z->arena, dtype, 1, v, (uint32_t)n);
}

static bool append(narrowing *z, pome_op *op)
{
    if (op)
        z->ops[z->n_ops++] = op;
    return op != NULL;
}

/* ---- rules: each says where the window is in the result, and replaces what fixes its size ---- */

static pome_status keep(narrowing *z, pome_op *op)
{
    z->at[op->out[0]->id] = of(z, op->in[0]);
    return append(z, op) ? POME_OK : no_memory(z);
}

/* Operands are aligned at the right; each has the window where the others have it, or one element there. */
static pome_status elementwise(narrowing *z, pome_op *op)
{
    const pome_type *out = &op->out[0]->type;
    place found = {0};
    bool has_found = false;
    for (uint32_t k = 0; k < op->n_in; k++) {
        spread s = of(z, op->in[k]);
        place p;
        if (!s.window)
            continue;
        if (!locate(&s, &op->in[k]->type, &p))
            return mixes(z, op);
        p.axis += out->rank - op->in[k]->type.rank;
        if (has_found && !is_same(&p, &found))
            return mixes(z, op);
        found = p;
        has_found = true;
    }
    for (uint32_t k = 0; k < op->n_in; k++) {
        int32_t shift = out->rank - op->in[k]->type.rank;
        for (int32_t i = 0; !of(z, op->in[k]).window && i < (found.is_pair ? 2 : 1); i++)
            if (found.axis + i >= shift && op->in[k]->type.dim[found.axis + i - shift] != 1)
                return mixes(z, op);
    }
    z->at[op->out[0]->id] = spread_at(&found, z->n, out);
    return append(z, op) ? POME_OK : no_memory(z);
}

/* The window is in an axis of x that the operator goes along without looking, and keeps its place. */
static pome_status along(narrowing *z, pome_op *op, int32_t axis)
{
    spread s = of(z, op->in[0]);
    place p;
    axis = axis < 0 ? axis + op->in[0]->type.rank : axis;
    if (!locate(&s, &op->in[0]->type, &p) || touches(&p, axis))
        return mixes(z, op);
    for (uint32_t k = 1; k < op->n_in; k++)
        if (of(z, op->in[k]).window)
            return mixes(z, op);
    for (uint32_t o = 0; o < op->n_out; o++)
        z->at[op->out[o]->id] = spread_at(&p, z->n, &op->out[o]->type);
    return append(z, op) ? POME_OK : no_memory(z);
}

/* Axes that are looked at; those that vanish move the window down. */
static pome_status reduce(narrowing *z, pome_op *op, uint32_t axes_param, bool keeps_rank)
{
    const pome_tensor *axes = const_of(op, axes_param);
    spread s = of(z, op->in[0]);
    place p;
    if (!axes || !locate(&s, &op->in[0]->type, &p))
        return mixes(z, op);
    int32_t n_before = 0;
    for (int64_t i = 0; i < pome_tensor_count(axes); i++) {
        int32_t a = (int32_t)pome_tensor_int_at(axes, i);
        a = a < 0 ? a + op->in[0]->type.rank : a;
        if (touches(&p, a))
            return mixes(z, op);
        n_before += a < p.axis;
    }
    p.axis -= keeps_rank ? 0 : n_before;
    z->at[op->out[0]->id] = spread_at(&p, z->n, &op->out[0]->type);
    return append(z, op) ? POME_OK : no_memory(z);
}

static pome_status reduce_kept(narrowing *z, pome_op *op, uint32_t axes_param, uint32_t keep_param)
{
    const pome_tensor *keeps = const_of(op, keep_param);
    return reduce(z, op, axes_param, keeps && pome_tensor_int_at(keeps, 0));
}

static pome_status convolve(narrowing *z, pome_op *op)
{
    const pome_type *w = &pome_op_arg(op, P_conv_weight)->type, *x = &op->in[0]->type;
    const pome_tensor *strides = const_of(op, P_conv_strides), *pad = const_of(op, P_conv_pad);
    spread s = of(z, op->in[0]);
    place p;
    bool is_pointwise = product(w->dim, 2, w->rank) == 1;
    for (int64_t i = 0; strides && i < pome_tensor_count(strides); i++)
        is_pointwise = is_pointwise && pome_tensor_int_at(strides, i) == 1;
    for (int64_t i = 0; pad && i < pome_tensor_count(pad); i++)
        is_pointwise = is_pointwise && pome_tensor_int_at(pad, i) == 0;
    if (!is_pointwise || !locate(&s, x, &p) || p.axis < 2 || of(z, pome_op_arg(op, P_conv_weight)).window)
        return mixes(z, op);
    z->at[op->out[0]->id] = spread_at(&p, z->n, &op->out[0]->type);
    return append(z, op) ? POME_OK : no_memory(z);
}

static pome_status reshape(narrowing *z, pome_op *op)
{
    const pome_type *t = &op->out[0]->type;
    spread s = of(z, op->in[0]);
    place p;
    int32_t shape[POME_MAX_RANK];
    if (!const_of(op, P_reshape_shape) || !locate(&s, t, &p))
        return mixes(z, op);
    for (int32_t i = 0; i < t->rank; i++)
        shape[i] = (int32_t)t->dim[i];
    shape[p.axis] = p.is_pair ? 1 : -1;
    if (p.is_pair)
        shape[p.axis + 1] = -1;
    pome_value *v = ints(z, POME_DTYPE_I32, shape, t->rank);
    if (!v)
        return no_memory(z);
    op->in[op->args[P_reshape_shape].first] = v;
    z->at[op->out[0]->id] = s;
    return append(z, op) ? POME_OK : no_memory(z);
}

static pome_status transpose(narrowing *z, pome_op *op)
{
    const pome_tensor *perm = const_of(op, P_transpose_perm);
    const int32_t rank = op->in[0]->type.rank;
    spread s = of(z, op->in[0]);
    place p, to = {.axis = -1};
    if (!perm || !locate(&s, &op->in[0]->type, &p))
        return mixes(z, op);
    for (int32_t i = 0; i < rank; i++) {
        int32_t from = (int32_t)pome_tensor_int_at(perm, i);
        from = from < 0 ? from + rank : from;
        if (from == p.axis)
            to = (place){i, p.is_pair, p.outer, p.inner};
        else if (p.is_pair && from == p.axis + 1 && to.axis != i - 1)
            return mixes(z, op);
    }
    z->at[op->out[0]->id] = spread_at(&to, z->n, &op->out[0]->type);
    return append(z, op) ? POME_OK : no_memory(z);
}

static pome_status expand(narrowing *z, pome_op *op)
{
    z->at[op->out[0]->id] = of(z, op->in[0]); /* axes of one element change no order */
    return append(z, op) ? POME_OK : no_memory(z);
}

static pome_status squeeze(narrowing *z, pome_op *op)
{
    if (!const_of(op, P_squeeze_axes)) /* all of one element: that may become the window's */
        return mixes(z, op);
    return expand(z, op);
}

static pome_status tile(narrowing *z, pome_op *op)
{
    const pome_tensor *reps = const_of(op, P_tile_reps);
    spread s = of(z, op->in[0]);
    place p;
    if (!reps || !locate(&s, &op->in[0]->type, &p))
        return mixes(z, op);
    for (int32_t i = 0; i < (p.is_pair ? 2 : 1); i++)
        if (pome_tensor_int_at(reps, p.axis + i) != 1)
            return mixes(z, op);
    z->at[op->out[0]->id] = spread_at(&p, z->n, &op->out[0]->type);
    return append(z, op) ? POME_OK : no_memory(z);
}

static pome_status matmul(narrowing *z, pome_op *op)
{
    const pome_tensor *flip[2] = {const_of(op, P_matmul_transpose_x), const_of(op, P_matmul_transpose_y)};
    const pome_type *out = &op->out[0]->type;
    bool is_right = of(z, pome_op_arg(op, P_matmul_y)).window != 0;
    pome_value *v = pome_op_arg(op, is_right ? P_matmul_y : P_matmul_x);
    spread s = of(z, v);
    place p;
    bool is_flipped = flip[is_right] && pome_tensor_int_at(flip[is_right], 0);
    if ((is_right && of(z, pome_op_arg(op, P_matmul_x)).window) || v->type.rank < 2 ||
        pome_op_arg(op, is_right ? P_matmul_x : P_matmul_y)->type.rank < 2 || !locate(&s, &v->type, &p) || p.is_pair)
        return mixes(z, op);
    if (p.axis != v->type.rank - (is_right == is_flipped ? 2 : 1))
        return mixes(z, op);
    p.axis = out->rank - (is_right ? 1 : 2);
    z->at[op->out[0]->id] = spread_at(&p, z->n, out);
    return append(z, op) ? POME_OK : no_memory(z);
}

static pome_status attention(narrowing *z, pome_op *op)
{
    enum { QUERY = P_scaled_dot_product_attention_query, MASK = P_scaled_dot_product_attention_attn_mask };
    const pome_value *mask = pome_op_arg(op, MASK), *q = pome_op_arg(op, QUERY);
    spread s = of(z, q), of_mask = mask ? of(z, mask) : (spread){0};
    place p, at_mask;
    bool has_rows = mask && mask->type.rank >= 2 && mask->type.dim[mask->type.rank - 2] != 1;
    if (!s.window || of(z, pome_op_arg(op, P_scaled_dot_product_attention_key)).window ||
        of(z, pome_op_arg(op, P_scaled_dot_product_attention_value)).window || !locate(&s, &q->type, &p) || p.is_pair ||
        p.axis != q->type.rank - 2 || has_rows != (of_mask.window != 0) ||
        (has_rows && (!locate(&of_mask, &mask->type, &at_mask) || at_mask.is_pair || at_mask.outer != p.outer ||
                      at_mask.inner != p.inner || at_mask.axis != mask->type.rank - 2)))
        return mixes(z, op);
    z->at[op->out[0]->id] = spread_at(&p, z->n, &op->out[0]->type);
    return append(z, op) ? POME_OK : no_memory(z);
}

/* The whole window, part of the rest. */
static pome_status slice(narrowing *z, pome_op *op)
{
    enum { N_PARAMS = 7 };
    static const uint32_t params[N_PARAMS] = {P_slice_by_index_x,          P_slice_by_index_begin,
                                              P_slice_by_index_end,        P_slice_by_index_stride,
                                              P_slice_by_index_begin_mask, P_slice_by_index_end_mask,
                                              P_slice_by_index_squeeze_mask};
    const pome_type *x = &op->in[0]->type;
    const pome_tensor *c[N_PARAMS] = {0};
    pome_rewrite_arg args[N_PARAMS];
    pome_slice_axis sel[POME_MAX_RANK];
    bool squeezed[POME_MAX_RANK];
    spread s = of(z, op->in[0]);
    place p;
    for (int i = 0; i < N_PARAMS; i++) {
        args[i] = (pome_rewrite_arg){params[i], pome_op_arg(op, params[i])};
        if (i && args[i].value && !(c[i] = const_of(op, params[i])))
            return mixes(z, op);
    }
    if (!locate(&s, x, &p) || !c[1] || !c[2] ||
        pome_slice_resolve(op, c[1], c[2], c[3], c[4], c[5], c[6], x->rank, x->dim, sel, squeezed, NULL) != POME_OK)
        return mixes(z, op);
    int32_t masks[2][POME_MAX_RANK] = {{0}}, n_squeezed = 0;
    for (int32_t i = 0; i < x->rank; i++) {
        bool is_whole = !squeezed[i] && sel[i].step == 1 && sel[i].begin == 0 && sel[i].length == x->dim[i];
        if (touches(&p, i) && !is_whole)
            return mixes(z, op);
        n_squeezed += squeezed[i] && i < p.axis;
        for (int k = 0; k < 2; k++)
            masks[k][i] = touches(&p, i) || (c[4 + k] && pome_tensor_int_at(c[4 + k], i));
    }
    args[4].value = ints(z, POME_DTYPE_BOOL, masks[0], x->rank);
    args[5].value = ints(z, POME_DTYPE_BOOL, masks[1], x->rank);
    pome_op *made = args[4].value && args[5].value
                        ? pome_rewrite_op(z->fn, op->def->id, op, args, N_PARAMS, op->out, 1)
                        : NULL;
    p.axis -= n_squeezed;
    z->at[op->out[0]->id] = spread_at(&p, z->n, &op->out[0]->type);
    return append(z, made) ? POME_OK : no_memory(z);
}

/* ---- caches ---- */

static pome_op *make(narrowing *z, pome_op_id id, const pome_op *like, const pome_rewrite_arg *args, int n_args,
                     pome_value *out)
{
    pome_op *op = pome_rewrite_op(z->fn, id, like, args, n_args, &out, out ? 1 : 0);
    return append(z, op) ? op : NULL;
}

static pome_value *value_like(const narrowing *z, const char *name, const pome_type *type)
{
    return pome_value_create(z->fn, name, type);
}

/* A vector that is `v` at `axis` and 0 elsewhere. */
static pome_value *vector_at(narrowing *z, const pome_op *like, pome_value *v, int32_t axis, int32_t rank)
{
    static const int32_t zeros[POME_MAX_RANK] = {0};
    pome_type type = {.dtype = POME_DTYPE_I32, .rank = 1, .dim = {rank}};
    pome_value *parts[3], *out = value_like(z, "columns", &type), *zero = pome_rewrite_int(z->fn, z->arena, 0);
    pome_value *no = pome_rewrite_bool(z->fn, z->arena, false);
    uint32_t n = 0;
    if (axis > 0)
        parts[n++] = ints(z, POME_DTYPE_I32, zeros, axis);
    parts[n++] = v;
    if (axis + 1 < rank)
        parts[n++] = ints(z, POME_DTYPE_I32, zeros, rank - axis - 1);
    if (!out || !zero || !no || !parts[0] || !parts[n - 1])
        return NULL;
    pome_value *const *in[3] = {0};
    uint32_t counts[3] = {0};
    in[P_concat_values] = parts, counts[P_concat_values] = n;
    in[P_concat_axis] = &zero, counts[P_concat_axis] = 1;
    in[P_concat_interleave] = &no, counts[P_concat_interleave] = 1;
    pome_op *op = pome_op_create_over(z->fn, pome_opdef_get(POME_OP_concat), like->name, in, counts, &out, 1);
    return append(z, op) ? out : NULL;
}

/* Declared as what the program has there; between operators both are fp32. */
static pome_value *as_dtype(narrowing *z, const pome_op *like, pome_value *v, pome_dtype dtype, pome_value *out)
{
    pome_type type = v->type;
    type.dtype = dtype;
    if (!out)
        out = value_like(z, "columns_cast", &type);
    const pome_rewrite_arg args[] = {{P_cast_x, v},
                                     {P_cast_dtype, pome_rewrite_text(z->fn, z->arena, pome_dtype_name(dtype))}};
    return out && args[1].value && make(z, POME_OP_cast, like, args, 2, out) ? out : NULL;
}

/* first + the number of new columns. */
static pome_value *end_of(narrowing *z, const pome_op *like, pome_value *new_columns, int32_t axis)
{
    pome_type all = {.dtype = POME_DTYPE_I32, .rank = 1, .dim = {new_columns->type.rank}};
    pome_type one = {.dtype = POME_DTYPE_I32, .rank = 1, .dim = {1}};
    const int32_t from = axis, to = axis + 1;
    pome_value *shape = value_like(z, "columns_shape", &all), *n = value_like(z, "columns_count", &one);
    pome_value *end = value_like(z, "columns_end", &one), *begin = ints(z, POME_DTYPE_I32, &from, 1);
    pome_value *stop = ints(z, POME_DTYPE_I32, &to, 1);
    const pome_rewrite_arg of_shape[] = {{P_shape_x, new_columns}};
    const pome_rewrite_arg of_slice[] = {{P_slice_by_index_x, shape}, {P_slice_by_index_begin, begin},
                                         {P_slice_by_index_end, stop}};
    const pome_rewrite_arg of_add[] = {{P_add_x, z->first}, {P_add_y, n}};
    bool ok = shape && n && end && begin && stop && make(z, POME_OP_shape, like, of_shape, 1, shape) &&
              make(z, POME_OP_slice_by_index, like, of_slice, 3, n) && make(z, POME_OP_add, like, of_add, 2, end);
    return ok ? end : NULL;
}

/* concat(cache, new columns) becomes: the columns go into the state, which is read. */
static pome_status through_state(narrowing *z, const pome_op *op, uint32_t cache, pome_value *new_columns, int32_t axis)
{
    pome_type type = op->out[0]->type;
    int32_t rank = type.rank, open[POME_MAX_RANK];
    for (int32_t i = 0; i < rank; i++)
        open[i] = i != axis;
    pome_value *state = z->states[cache], *old = value_like(z, "columns_old", &type);
    pome_value *updated = value_like(z, "columns_updated", &type), *masks = ints(z, POME_DTYPE_BOOL, open, rank);
    pome_value *end = end_of(z, op, new_columns, axis), *from = vector_at(z, op, z->first, axis, rank);
    pome_value *to = end ? vector_at(z, op, end, axis, rank) : NULL, *joined = op->out[0];
    bool is_other = z->columns->cache_dtype != type.dtype;
    if (is_other) {
        new_columns = as_dtype(z, op, new_columns, z->columns->cache_dtype, NULL);
        joined = value_like(z, "columns_joined", &type);
    }
    state->type = type;
    state->type.kind = POME_TYPE_STATE;
    state->type.dtype = z->columns->cache_dtype;
    if (!old || !updated || !masks || !from || !to || !joined || !new_columns)
        return no_memory(z);
    old->type.dtype = updated->type.dtype = joined->type.dtype = z->columns->cache_dtype;
    const pome_rewrite_arg read[] = {{P_read_state_input, state}};
    const pome_rewrite_arg update[] = {{P_slice_update_x, old},      {P_slice_update_update, new_columns},
                                       {P_slice_update_begin, from}, {P_slice_update_end, to},
                                       {P_slice_update_begin_mask, masks}, {P_slice_update_end_mask, masks}};
    const pome_rewrite_arg write[] = {{P_write_state_input, state}, {P_write_state_data, updated}};
    bool ok = make(z, POME_OP_read_state, op, read, 1, old) && make(z, POME_OP_slice_update, op, update, 6, updated) &&
              make(z, POME_OP_write_state, op, write, 2, NULL) && make(z, POME_OP_read_state, op, read, 1, joined) &&
              (!is_other || as_dtype(z, op, joined, type.dtype, op->out[0]));
    z->is_used[cache] = true;
    return ok ? POME_OK : no_memory(z);
}

static int cache_of(const narrowing *z, const pome_value *v)
{
    for (uint32_t i = 0; i < z->columns->n_caches; i++)
        if (v == z->fn->inputs[z->columns->caches[i].input])
            return (int)i;
    return -1;
}

static pome_status concat(narrowing *z, pome_op *op)
{
    const pome_tensor *axis = const_of(op, P_concat_axis), *interleave = const_of(op, P_concat_interleave);
    pome_value **in = op->in + op->args[P_concat_values].first;
    uint32_t n = op->args[P_concat_values].count;
    place p = {0}, first = {0};
    int32_t a = axis ? (int32_t)pome_tensor_int_at(axis, 0) : 0;
    a = a < 0 ? a + op->out[0]->type.rank : a;
    if (!axis || (interleave && pome_tensor_int_at(interleave, 0)))
        return mixes(z, op);
    int cache = n == 2 ? cache_of(z, in[0]) : -1;
    if (cache >= 0) {
        spread s = of(z, in[1]);
        pome_value *kept = z->fn->body->outputs[z->columns->caches[cache].output];
        if (!s.window || !locate(&s, &in[1]->type, &p) || p.axis != a || p.is_pair || p.outer != 1 || p.inner != 1 ||
            pome_match_source(kept) != pome_match_source(in[1]) || z->is_used[cache])
            return mixes(z, op);
        return through_state(z, op, (uint32_t)cache, in[1], a);
    }
    for (uint32_t k = 0; k < n; k++) {
        spread s = of(z, in[k]);
        if (!s.window || !locate(&s, &in[k]->type, &p) || touches(&p, a) || (k && !is_same(&p, &first)))
            return mixes(z, op);
        first = p;
    }
    z->at[op->out[0]->id] = spread_at(&first, z->n, &op->out[0]->type);
    return append(z, op) ? POME_OK : no_memory(z);
}

/* ---- the walk ---- */

static pome_status scalar_axis(narrowing *z, pome_op *op, uint32_t param, int32_t otherwise)
{
    const pome_tensor *axis = const_of(op, param);
    if (pome_op_arg(op, param) && !axis)
        return mixes(z, op);
    return along(z, op, axis ? (int32_t)pome_tensor_int_at(axis, 0) : otherwise);
}

static pome_status narrow_op(narrowing *z, pome_op *op)
{
    bool has_columns = false;
    for (uint32_t k = 0; k < op->n_in; k++) {
        has_columns = has_columns || of(z, op->in[k]).window;
        if (cache_of(z, op->in[k]) >= 0 && op->def->id != POME_OP_concat)
            return pome_fail(z->err, POME_ERR_UNSUPPORTED, "%s (%s) reads a cache without the new columns", op->name,
                             op->def->name);
    }
    if (!has_columns && op->def->id == POME_OP_concat && cache_of(z, op->in[op->args[P_concat_values].first]) >= 0)
        return mixes(z, op);
    if (!has_columns)
        return append(z, op) ? POME_OK : no_memory(z);
    for (uint32_t o = 0; o < op->n_out; o++)
        for (int32_t i = 0; i < op->out[o]->type.rank; i++)
            if (op->out[o]->type.dim[i] < 1)
                return mixes(z, op);
    switch (op->def->id) {
    case POME_OP_add: case POME_OP_sub: case POME_OP_mul: case POME_OP_real_div: case POME_OP_maximum:
    case POME_OP_minimum: case POME_OP_pow: case POME_OP_select: return elementwise(z, op);
    case POME_OP_silu: case POME_OP_sigmoid: case POME_OP_tanh: case POME_OP_gelu: case POME_OP_relu: case POME_OP_exp:
    case POME_OP_rsqrt: case POME_OP_sqrt: case POME_OP_square: case POME_OP_abs: case POME_OP_cast: case POME_OP_erf:
    case POME_OP_identity: case POME_OP_inverse: case POME_OP_clip: return keep(z, op);
    case POME_OP_conv: return convolve(z, op);
    case POME_OP_linear: return along(z, op, -1);
    case POME_OP_softmax: return scalar_axis(z, op, P_softmax_axis, -1);
    case POME_OP_split: return scalar_axis(z, op, P_split_axis, 0);
    case POME_OP_layer_norm: return reduce(z, op, P_layer_norm_axes, true);
    case POME_OP_reduce_mean: return reduce_kept(z, op, P_reduce_mean_axes, P_reduce_mean_keep_dims);
    case POME_OP_reduce_sum: return reduce_kept(z, op, P_reduce_sum_axes, P_reduce_sum_keep_dims);
    case POME_OP_reduce_max: return reduce_kept(z, op, P_reduce_max_axes, P_reduce_max_keep_dims);
    case POME_OP_reduce_sum_square: return reduce_kept(z, op, P_reduce_sum_square_axes, P_reduce_sum_square_keep_dims);
    case POME_OP_reduce_l2_norm: return reduce_kept(z, op, P_reduce_l2_norm_axes, P_reduce_l2_norm_keep_dims);
    case POME_OP_reshape: return reshape(z, op);
    case POME_OP_transpose: return transpose(z, op);
    case POME_OP_expand_dims: return expand(z, op);
    case POME_OP_squeeze: return squeeze(z, op);
    case POME_OP_tile: return tile(z, op);
    case POME_OP_slice_by_index: return slice(z, op);
    case POME_OP_concat: return concat(z, op);
    case POME_OP_matmul: return matmul(z, op);
    case POME_OP_scaled_dot_product_attention: return attention(z, op);
    default: return mixes(z, op);
    }
}

/* Marks the window in an input and takes its size out of the type. */
static pome_status open_input(narrowing *z, const pome_columns_input *in)
{
    pome_value *v = z->fn->inputs[in->input];
    place p = {in->axis, in->is_pair, 1, 1};
    z->at[v->id] = spread_at(&p, z->n, &v->type);
    return POME_OK;
}

static void resize(const narrowing *z, pome_value *v, const pome_columns_input *in)
{
    v->type.dim[in->axis] = in->is_pair ? 1 : z->symbol;
    if (in->is_pair)
        v->type.dim[in->axis + 1] = z->symbol;
}

static pome_status begin(narrowing *z)
{
    const pome_columns *c = z->columns;
    pome_type one = {.dtype = POME_DTYPE_I32, .rank = 1, .dim = {1}};
    z->n_room = z->fn->n_values;
    z->at = POME_NEW_ARRAY(z->arena, spread, z->n_room);
    z->ops = POME_NEW_ARRAY(z->arena, pome_op *, (size_t)z->fn->body->n_ops + 12 * (size_t)c->n_caches);
    z->states = POME_NEW_ARRAY(z->arena, pome_value *, c->n_caches);
    z->is_used = POME_NEW_ARRAY(z->arena, bool, c->n_caches);
    z->first = value_like(z, "first_column", &one);
    if (!z->at || !z->ops || !z->states || !z->is_used || !z->first)
        return no_memory(z);
    for (uint32_t i = 0; i < c->n_caches; i++) {
        const pome_value *v = z->fn->inputs[c->caches[i].input];
        z->states[i] = value_like(z, v->name, &v->type);
        if (!z->states[i])
            return no_memory(z);
    }
    for (uint32_t i = 0; i < c->n_inputs; i++)
        POME_TRY(open_input(z, &c->inputs[i]));
    return POME_OK;
}

/* The new lists of inputs and outputs. */
static pome_status finish(narrowing *z)
{
    const pome_columns *c = z->columns;
    pome_block *body = z->fn->body;
    pome_value **inputs = POME_NEW_ARRAY(z->arena, pome_value *, (size_t)c->n_inputs + c->n_caches + 1u);
    pome_value **outputs = POME_NEW_ARRAY(z->arena, pome_value *, body->n_outputs);
    uint32_t n = 0, n_out = 0;
    if (!inputs || !outputs)
        return no_memory(z);
    for (uint32_t i = 0; i < c->n_caches; i++)
        if (!z->is_used[i])
            return pome_fail(z->err, POME_ERR_UNSUPPORTED, "cache %s is not joined with new columns",
                             z->fn->inputs[c->caches[i].input]->name);
    for (uint32_t i = 0; i < c->n_inputs; i++) {
        inputs[n] = z->fn->inputs[c->inputs[i].input];
        resize(z, inputs[n++], &c->inputs[i]);
    }
    if (c->n_caches > 0)
        inputs[n++] = z->first;
    for (uint32_t i = 0; i < c->n_caches; i++)
        inputs[n++] = z->states[i];
    for (uint32_t o = 0; o < body->n_outputs; o++) {
        bool is_cache = false;
        for (uint32_t i = 0; i < c->n_caches; i++)
            is_cache = is_cache || c->caches[i].output == o;
        if (is_cache)
            continue;
        if (!of(z, body->outputs[o]).window)
            return pome_fail(z->err, POME_ERR_UNSUPPORTED, "output %s has no columns", body->outputs[o]->name);
        outputs[n_out++] = body->outputs[o];
    }
    z->fn->inputs = inputs;
    z->fn->n_inputs = n;
    body->ops = z->ops;
    body->n_ops = z->n_ops;
    body->outputs = outputs;
    body->n_outputs = n_out;
    return POME_OK;
}

pome_status pome_columns_narrow(pome_function *fn, const pome_columns *columns, pome_error *err)
{
    narrowing z = {.fn = fn, .arena = fn->arena, .columns = columns, .n = columns->n_window, .err = err,
                   .symbol = columns->n_columns ? columns->n_columns : fn->next_symbol--};
    POME_TRY(begin(&z));
    for (uint32_t i = 0; i < fn->body->n_ops; i++)
        POME_TRY(narrow_op(&z, fn->body->ops[i]));
    POME_TRY(finish(&z));
    return pome_function_infer(fn, err);
}
