#include "passes/match.h"

#include <string.h>

pome_op *pome_match_op(const pome_value *v, pome_op_id id)
{
    return v && v->def && v->def->def->id == id ? v->def : NULL;
}

pome_value *pome_match_source(pome_value *v)
{
    while (v && v->def && (v->def->def->id == POME_OP_identity || v->def->def->id == POME_OP_cast) &&
           pome_dtype_is_float(v->type.dtype) && pome_dtype_is_float(v->def->in[0]->type.dtype))
        v = v->def->in[0];
    return v;
}

bool pome_match_scalar(const pome_value *v, double *out)
{
    if (!v || !v->konst || !v->konst->t.data || v->konst->t.dtype == POME_DTYPE_STRING ||
        pome_tensor_count(&v->konst->t) != 1)
        return false;
    *out = pome_tensor_float_at(&v->konst->t, 0);
    return true;
}

pome_value *pome_match_other(const pome_op *op, const pome_value *x)
{
    if (op->n_in != 2)
        return NULL;
    return op->in[0] == x ? op->in[1] : op->in[1] == x ? op->in[0] : NULL;
}

bool pome_match_axis(const pome_value *axes, int32_t rank, int32_t *axis)
{
    if (!axes || !axes->konst || !axes->konst->t.data || pome_tensor_count(&axes->konst->t) != 1)
        return false;
    int64_t a = pome_tensor_int_at(&axes->konst->t, 0);
    a = a < 0 ? a + rank : a;
    *axis = (int32_t)a;
    return a >= 0 && a < rank;
}

bool pome_match_is_along(const pome_tensor *t, int32_t rank, int32_t axis, int64_t size)
{
    int32_t own = axis - (rank - t->rank);
    return t->data && t->rank <= rank && own >= 0 && t->shape[own] == size && pome_tensor_count(t) == size;
}

bool pome_match_slice(const pome_op *op, int32_t *axis, int64_t *begin, int64_t *end)
{
    enum { UNKNOWN = 1 << 20 }; /* stands for a size that is not known */
    const pome_value *x = pome_op_arg(op, P_slice_by_index_x);
    const pome_tensor *c[6] = {0};
    const uint32_t params[6] = {P_slice_by_index_begin,      P_slice_by_index_end,      P_slice_by_index_stride,
                                P_slice_by_index_begin_mask, P_slice_by_index_end_mask, P_slice_by_index_squeeze_mask};
    int64_t dim[POME_MAX_RANK];
    pome_slice_axis sel[POME_MAX_RANK];
    bool squeezed[POME_MAX_RANK];
    for (int i = 0; i < 6; i++) {
        const pome_value *v = pome_op_arg(op, params[i]);
        if (v && !v->konst)
            return false;
        c[i] = v ? &v->konst->t : NULL;
    }
    if (!x || x->type.rank < 1 || !c[0] || !c[1])
        return false;
    for (int32_t d = 0; d < x->type.rank; d++)
        dim[d] = x->type.dim[d] < 0 ? UNKNOWN : x->type.dim[d];
    if (pome_slice_resolve(op, c[0], c[1], c[2], c[3], c[4], c[5], x->type.rank, dim, sel, squeezed, NULL) != POME_OK)
        return false;
    *axis = -1;
    for (int32_t d = 0; d < x->type.rank; d++) {
        if (squeezed[d] || sel[d].step != 1)
            return false;
        if (sel[d].begin == 0 && sel[d].length == dim[d])
            continue;
        if (*axis >= 0 || x->type.dim[d] < 0)
            return false;
        *axis = d;
        *begin = sel[d].begin;
        *end = sel[d].begin + sel[d].length;
    }
    return *axis >= 0;
}

/* ---- making ---- */

pome_op *pome_rewrite_op(pome_function *fn, pome_op_id id, const pome_op *like, const pome_rewrite_arg *args, int n_args,
                         pome_value *const *out, uint32_t n_out)
{
    enum { MAX_PARAMS = 16 };
    pome_value *const *in[MAX_PARAMS] = {0};
    uint32_t counts[MAX_PARAMS] = {0};
    for (int i = 0; i < n_args; i++)
        if (args[i].value) {
            in[args[i].param] = &args[i].value;
            counts[args[i].param] = 1;
        }
    pome_op *op = pome_op_create_over(fn, pome_opdef_get(id), like->name, in, counts, out, n_out);
    if (op)
        op->position = like->position;
    return op;
}

pome_op *pome_rewrite_transpose(pome_function *fn, pome_arena *arena, const pome_op *like, pome_value *v,
                                const int32_t *perm, int32_t rank, pome_value *out)
{
    pome_type type = v->type;
    for (int32_t d = 0; d < rank; d++)
        type.dim[d] = v->type.dim[perm[d]];
    out = out ? out : pome_value_create(fn, "", &type);
    const pome_rewrite_arg args[] = {
        {P_transpose_x, v}, {P_transpose_perm, pome_value_create_ints(fn, arena, POME_DTYPE_I32, 1, perm, (uint32_t)rank)}};
    return out && args[1].value ? pome_rewrite_op(fn, POME_OP_transpose, like, args, 2, &out, 1) : NULL;
}

pome_op *pome_rewrite_reshape(pome_function *fn, pome_arena *arena, const pome_op *like, pome_value *v, pome_value *out)
{
    int32_t shape[POME_MAX_RANK];
    for (int32_t d = 0; d < out->type.rank; d++)
        shape[d] = (int32_t)out->type.dim[d];
    const pome_rewrite_arg args[] = {
        {P_reshape_x, v},
        {P_reshape_shape, pome_value_create_ints(fn, arena, POME_DTYPE_I32, 1, shape, (uint32_t)out->type.rank)}};
    return args[1].value ? pome_rewrite_op(fn, POME_OP_reshape, like, args, 2, &out, 1) : NULL;
}

pome_value *pome_rewrite_int(pome_function *fn, pome_arena *arena, int32_t v)
{
    return pome_value_create_ints(fn, arena, POME_DTYPE_I32, 0, &v, 1);
}

pome_value *pome_rewrite_bool(pome_function *fn, pome_arena *arena, bool v)
{
    int32_t n = v;
    return pome_value_create_ints(fn, arena, POME_DTYPE_BOOL, 0, &n, 1);
}

pome_value *pome_rewrite_float(pome_function *fn, pome_arena *arena, float v)
{
    pome_const *k = POME_NEW(arena, pome_const);
    float *data = POME_NEW(arena, float);
    if (!k || !data)
        return NULL;
    *data = v;
    k->t = pome_tensor_borrow(data, POME_DTYPE_F32, 0, NULL);
    k->size_bytes = sizeof *data;
    return pome_value_create_const(fn, "", k);
}

pome_value *pome_rewrite_text(pome_function *fn, pome_arena *arena, const char *v)
{
    pome_const *k = POME_NEW(arena, pome_const);
    const char **text = POME_NEW(arena, const char *);
    if (!k || !text)
        return NULL;
    *text = v;
    k->t = pome_tensor_borrow(NULL, POME_DTYPE_STRING, 0, NULL);
    k->strings = text;
    return pome_value_create_const(fn, "", k);
}
