#include "passes/symbolic.h"

#include <string.h>

#include "mil/infer.h"

static pome_sym number(int64_t v)
{
    return (pome_sym){POME_SYM_NUMBER, v};
}
static bool is_number(pome_sym s, int64_t v)
{
    return s.kind == POME_SYM_NUMBER && s.v == v;
}
static bool same_symbol(pome_sym a, pome_sym b)
{
    return a.kind == POME_SYM_SYMBOL && b.kind == POME_SYM_SYMBOL && a.v == b.v;
}

static pome_sym_vector of_const(const pome_tensor *t)
{
    pome_sym_vector r = {0};
    int64_t n = pome_tensor_count(t);
    bool integral = pome_dtype_is_int(t->dtype) || t->dtype == POME_DTYPE_BOOL;
    if (!t->data || t->rank > 1 || n > POME_SYM_MAX || !integral)
        return r;
    r = (pome_sym_vector){.known = true, .is_scalar = t->rank == 0, .n = (int32_t)n};
    for (int32_t i = 0; i < r.n; i++)
        r.e[i] = number(pome_tensor_int_at(t, i));
    return r;
}

/* A value of which only the length is known, from its type. */
static pome_sym_vector of_type(const pome_type *t)
{
    pome_sym_vector r = {0};
    bool integral = pome_dtype_is_int(t->dtype) || t->dtype == POME_DTYPE_BOOL;
    if (t->kind != POME_TYPE_TENSOR || !integral || t->rank < 0 || t->rank > 1)
        return r;
    if (t->rank == 1 && (t->dim[0] < 0 || t->dim[0] > POME_SYM_MAX))
        return r;
    return (pome_sym_vector){.known = true, .is_scalar = t->rank == 0, .n = t->rank ? (int32_t)t->dim[0] : 1};
}

typedef struct analysis {
    pome_sym_vector *at; /* by value id */
} analysis;

static const pome_sym_vector *arg(const analysis *a, const pome_op *op, uint32_t param)
{
    const pome_value *v = pome_op_arg(op, param);
    return v && a->at[v->id].known ? &a->at[v->id] : NULL;
}

static pome_sym_vector shape_of(const pome_type *t)
{
    pome_sym_vector r = {.known = t->kind == POME_TYPE_TENSOR && t->rank >= 0 && t->rank <= POME_SYM_MAX, .n = t->rank};
    for (int32_t i = 0; r.known && i < t->rank; i++)
        r.e[i] = t->dim[i] >= 0 ? number(t->dim[i]) : (pome_sym){POME_SYM_SYMBOL, t->dim[i]};
    return r;
}

/* Sizes are never negative: that decides comparisons of a symbol with a negative number or zero. */
static pome_sym compare(pome_op_id id, pome_sym a, pome_sym b)
{
    if (a.kind == POME_SYM_NUMBER && b.kind == POME_SYM_NUMBER)
        switch (id) {
        case POME_OP_equal: return number(a.v == b.v);
        case POME_OP_not_equal: return number(a.v != b.v);
        case POME_OP_less: return number(a.v < b.v);
        case POME_OP_less_equal: return number(a.v <= b.v);
        case POME_OP_greater: return number(a.v > b.v);
        default: return number(a.v >= b.v);
        }
    if (same_symbol(a, b))
        return number(id == POME_OP_equal || id == POME_OP_less_equal || id == POME_OP_greater_equal);
    bool negative = a.kind == POME_SYM_SYMBOL && b.kind == POME_SYM_NUMBER && b.v < 0;
    bool zero = a.kind == POME_SYM_SYMBOL && is_number(b, 0);
    if (negative)
        return number(id == POME_OP_not_equal || id == POME_OP_greater || id == POME_OP_greater_equal);
    if (zero && (id == POME_OP_greater_equal || id == POME_OP_less))
        return number(id == POME_OP_greater_equal);
    return (pome_sym){0};
}

static int64_t floor_div(int64_t a, int64_t b)
{
    int64_t q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

static pome_sym on_numbers(pome_op_id id, int64_t a, int64_t b)
{
    int64_t r = 0;
    bool bad = false;
    switch (id) {
    case POME_OP_add: bad = __builtin_add_overflow(a, b, &r); break;
    case POME_OP_sub: bad = __builtin_sub_overflow(a, b, &r); break;
    case POME_OP_mul: bad = __builtin_mul_overflow(a, b, &r); break;
    case POME_OP_maximum: r = a > b ? a : b; break;
    case POME_OP_minimum: r = a < b ? a : b; break;
    case POME_OP_real_div: bad = b <= 0 || a < 0 || a % b; r = bad ? 0 : a / b; break;
    case POME_OP_floor_div: bad = b <= 0; r = bad ? 0 : floor_div(a, b); break;
    default: bad = b <= 0; r = bad ? 0 : a - floor_div(a, b) * b; break; /* mod */
    }
    return bad || r > INT32_MAX || r < INT32_MIN ? (pome_sym){0} : number(r);
}

static pome_sym arithmetic(pome_op_id id, pome_sym a, pome_sym b)
{
    bool division = id == POME_OP_real_div || id == POME_OP_floor_div;
    if (a.kind == POME_SYM_NUMBER && b.kind == POME_SYM_NUMBER)
        return on_numbers(id, a.v, b.v);
    if (division && same_symbol(a, b))
        return number(1); /* a tile count: an axis that is 0 has nothing to tile */
    if ((id == POME_OP_add || id == POME_OP_sub) && is_number(b, 0))
        return a;
    if ((id == POME_OP_mul || division) && is_number(b, 1))
        return a;
    if (id == POME_OP_add && is_number(a, 0))
        return b;
    if (id == POME_OP_mul && is_number(a, 1))
        return b;
    return (pome_sym){0};
}

static pome_sym pick(const pome_sym_vector *v, int32_t i)
{
    return v->e[v->n == 1 ? 0 : i];
}

static pome_sym_vector elementwise(pome_op_id id, const pome_sym_vector *a, const pome_sym_vector *b)
{
    pome_sym_vector r = {0};
    if (!a || !b || (a->n != b->n && a->n != 1 && b->n != 1))
        return r;
    bool comparison = id == POME_OP_equal || id == POME_OP_not_equal || id == POME_OP_less || id == POME_OP_less_equal ||
                      id == POME_OP_greater || id == POME_OP_greater_equal;
    r = (pome_sym_vector){.known = true, .is_scalar = a->is_scalar && b->is_scalar, .n = a->n > b->n ? a->n : b->n};
    for (int32_t i = 0; i < r.n; i++)
        r.e[i] = comparison ? compare(id, pick(a, i), pick(b, i)) : arithmetic(id, pick(a, i), pick(b, i));
    return r;
}

static pome_sym_vector select_of(const pome_sym_vector *c, const pome_sym_vector *a, const pome_sym_vector *b)
{
    pome_sym_vector r = {0};
    if (!c || !a || !b)
        return r;
    int32_t n = c->n > a->n ? c->n : a->n;
    n = b->n > n ? b->n : n;
    r = (pome_sym_vector){.known = true, .is_scalar = c->is_scalar && a->is_scalar && b->is_scalar, .n = n};
    for (int32_t i = 0; i < n; i++) {
        pome_sym s = pick(c, i), x = pick(a, i), y = pick(b, i);
        if (s.kind == POME_SYM_NUMBER)
            r.e[i] = s.v ? x : y;
        else if (x.kind == y.kind && x.v == y.v)
            r.e[i] = x;
    }
    return r;
}

static pome_sym_vector concat_of(const analysis *a, const pome_op *op, const pome_arg *values)
{
    pome_sym_vector r = {.known = true};
    for (uint32_t i = 0; i < values->count; i++) {
        const pome_sym_vector *v = &a->at[op->in[values->first + i]->id];
        if (!v->known || r.n + v->n > POME_SYM_MAX)
            return (pome_sym_vector){0};
        memcpy(r.e + r.n, v->e, (size_t)v->n * sizeof v->e[0]);
        r.n += v->n;
    }
    return r;
}

static pome_sym_vector gather_of(const analysis *a, const pome_op *op)
{
    const pome_sym_vector *x = arg(a, op, P_gather_x), *i = arg(a, op, P_gather_indices);
    pome_sym_vector r = {0};
    if (!x || !i || x->is_scalar)
        return r;
    r = (pome_sym_vector){.known = true, .is_scalar = i->is_scalar, .n = i->n};
    for (int32_t k = 0; k < i->n; k++) {
        int64_t at = i->e[k].v < 0 ? i->e[k].v + x->n : i->e[k].v;
        if (i->e[k].kind == POME_SYM_NUMBER && at >= 0 && at < x->n)
            r.e[k] = x->e[at];
    }
    return r;
}

static const pome_tensor *constant(const pome_op *op, uint32_t param)
{
    const pome_value *v = pome_op_arg(op, param);
    return v && v->konst ? &v->konst->t : NULL;
}

static pome_sym_vector slice_of(const analysis *a, const pome_op *op)
{
    const pome_sym_vector *x = arg(a, op, P_slice_by_index_x);
    const pome_tensor *begin = constant(op, P_slice_by_index_begin), *end = constant(op, P_slice_by_index_end);
    pome_sym_vector r = {0};
    pome_slice_axis sel[POME_MAX_RANK];
    bool squeezed[POME_MAX_RANK];
    if (!x || x->is_scalar || !begin || !end)
        return r;
    int64_t dim[1] = {x->n};
    if (pome_slice_resolve(op, begin, end, constant(op, P_slice_by_index_stride),
                           constant(op, P_slice_by_index_begin_mask), constant(op, P_slice_by_index_end_mask),
                           constant(op, P_slice_by_index_squeeze_mask), 1, dim, sel, squeezed, NULL) != POME_OK)
        return r;
    r = (pome_sym_vector){.known = true, .is_scalar = squeezed[0], .n = squeezed[0] ? 1 : (int32_t)sel[0].length};
    for (int32_t i = 0; i < r.n; i++)
        r.e[i] = x->e[sel[0].begin + i * sel[0].step];
    return r;
}

/* An operator that only changes how a vector of one element is written. */
static pome_sym_vector relabel(const analysis *a, const pome_op *op)
{
    const pome_sym_vector *x = arg(a, op, 0);
    const pome_type *t = &op->out[0]->type;
    pome_sym_vector r = of_type(t);
    if (!x || !r.known || r.n != x->n)
        return (pome_sym_vector){0};
    memcpy(r.e, x->e, sizeof r.e);
    return r;
}

static pome_sym_vector visit(const analysis *a, const pome_op *op)
{
    pome_op_id id = op->def->id;
    switch (id) {
    case POME_OP_shape: return shape_of(&op->in[0]->type);
    case POME_OP_gather: return gather_of(a, op);
    case POME_OP_slice_by_index: return slice_of(a, op);
    case POME_OP_concat: return concat_of(a, op, &op->args[P_concat_values]);
    case POME_OP_stack: return concat_of(a, op, &op->args[P_stack_values]);
    case POME_OP_select: return select_of(arg(a, op, P_select_cond), arg(a, op, P_select_a), arg(a, op, P_select_b));
    case POME_OP_cast:
    case POME_OP_identity:
    case POME_OP_expand_dims:
    case POME_OP_squeeze:
    case POME_OP_reshape: return relabel(a, op);
    case POME_OP_add:
    case POME_OP_sub:
    case POME_OP_mul:
    case POME_OP_real_div:
    case POME_OP_floor_div:
    case POME_OP_mod:
    case POME_OP_maximum:
    case POME_OP_minimum:
    case POME_OP_equal:
    case POME_OP_not_equal:
    case POME_OP_less:
    case POME_OP_less_equal:
    case POME_OP_greater:
    case POME_OP_greater_equal: return elementwise(id, arg(a, op, 0), arg(a, op, 1));
    default: return (pome_sym_vector){0};
    }
}

static void note_constants(analysis *a, const pome_op *op)
{
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i]->konst)
            a->at[op->in[i]->id] = of_const(&op->in[i]->konst->t);
}

pome_status pome_symbolic_analyze(const pome_function *fn, pome_arena *arena, pome_sym_vector **out, pome_error *err)
{
    analysis a = {POME_NEW_ARRAY(arena, pome_sym_vector, fn->n_values)};
    if (!a.at)
        return pome_fail_nomem(err, fn->n_values * sizeof *a.at, "symbolic values");
    for (uint32_t i = 0; i < fn->body->n_ops; i++) {
        const pome_op *op = fn->body->ops[i];
        note_constants(&a, op);
        for (uint32_t o = 0; o < op->n_out; o++)
            a.at[op->out[o]->id] = of_type(&op->out[o]->type);
        pome_sym_vector r = op->n_out == 1 ? visit(&a, op) : (pome_sym_vector){0};
        if (r.known && (!op->out[0]->type.rank) == r.is_scalar)
            a.at[op->out[0]->id] = r;
    }
    *out = a.at;
    return POME_OK;
}
