/* Type inference over a function, and with it the checks that need types. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "mil/infer.h"
#include "mil/verify.h"

enum { MAX_WARNINGS = 10, LAST_ROUND = POME_LOOP_ROUNDS_MAX - 1 };

typedef struct inferrer {
    pome_function *fn;
    bool check;               /* inputs against the table */
    bool warn;                /* differences between declared and inferred types */
    uint32_t n_warnings;
    uint32_t n_in, n_out;     /* room below */
    const pome_type **types;
    const pome_tensor **values;
    pome_type *out;
} inferrer;

/* ---- inputs against the table ---- */

static pome_status input_fail(const pome_op *op, uint32_t param, const char *what, const pome_value *v, pome_error *err)
{
    char buf[200];
    return pome_fail(err, POME_ERR_FORMAT, "%s (%s, #%" PRIu32 "): parameter '%s' %s: %s is %s", op->name, op->def->name,
                     op->position, op->def->params[param].name, what, v->name[0] ? v->name : "the literal",
                     pome_type_print(&v->type, buf, sizeof buf));
}

static pome_status check_input(const pome_op *op, uint32_t p, const pome_value *v, pome_error *err)
{
    const pome_param *param = &op->def->params[p];
    const pome_type *t = &v->type;
    bool any = param->types == POME_T_ANY;
    if (param->flags & POME_P_STATE)
        return t->kind == POME_TYPE_STATE ? POME_OK : input_fail(op, p, "must be a state", v, err);
    if (t->kind == POME_TYPE_STATE)
        return input_fail(op, p, "cannot be a state", v, err);
    if (param->flags & POME_P_TLIST)
        return t->kind == POME_TYPE_LIST || v->konst ? POME_OK : input_fail(op, p, "must be a list", v, err);
    if (t->kind != POME_TYPE_TENSOR)
        return any ? POME_OK : input_fail(op, p, "must be a tensor", v, err);
    if (!(pome_opdef_type_bit(t->dtype) & param->types))
        return input_fail(op, p, "has a type that is not possible here", v, err);
    if (param->flags & POME_P_SCALAR) {
        int64_t n = 1;
        for (int32_t i = 0; i < t->rank; i++)
            n = t->dim[i] == 1 || t->dim[i] < 0 ? n : 0;
        if (n == 0)
            return input_fail(op, p, "must be a scalar", v, err);
    }
    return POME_OK;
}

static pome_status check_inputs(const pome_op *op, pome_error *err)
{
    for (uint32_t p = 0; p < op->def->n_params; p++)
        for (uint32_t i = 0; i < op->args[p].count; i++)
            POME_TRY(check_input(op, p, op->in[op->args[p].first + i], err));
    return POME_OK;
}

/* ---- results ---- */

/* Whether a declared type can be true of what was inferred; what either leaves open agrees with anything. */
static bool agrees(const pome_type *declared, const pome_type *t)
{
    if (declared->dtype == POME_DTYPE_NONE)
        return true;
    if (declared->kind != t->kind || declared->dtype != t->dtype)
        return false;
    if (t->kind == POME_TYPE_DICT || declared->rank < 0)
        return true;
    if (declared->rank != t->rank)
        return false;
    for (int32_t i = 0; i < t->rank; i++)
        if (!pome_dim_may_equal(declared->dim[i], t->dim[i]))
            return false;
    return true;
}

/* A rank may stay unknown until inputs have their shapes, as that of fill with an input for its shape, if the value only
 * goes through operators that leave the shape alone, and out of the function. */
static pome_status rank_fail(const pome_op *op, pome_error *err)
{
    return pome_fail(err, POME_ERR_FORMAT, "%s (%s, #%" PRIu32 "): the rank of its result is neither declared nor follows "
                     "from its inputs", op->name, op->def->name, op->position);
}

static bool has_open_rank(const pome_value *v)
{
    return v->type.kind == POME_TYPE_TENSOR && v->type.rank < 0 && v->def;
}

static pome_status check_ranks(const pome_op *op, pome_error *err)
{
    bool any_rank = op->def->infer == pome_infer_same || op->def->infer == pome_infer_cast;
    for (uint32_t i = 0; i < op->n_in && !any_rank; i++)
        if (has_open_rank(op->in[i]))
            return rank_fail(op->in[i]->def, err);
    return POME_OK;
}

static pome_status settle(inferrer *f, const pome_op *op, uint32_t i, pome_error *err)
{
    pome_value *v = op->out[i];
    pome_type *t = &f->out[i];
    char a[200], b[200];
    if (t->rank < 0 && v->type.rank >= 0) { /* only the declaration tells the rank */
        t->rank = v->type.rank;
        for (int32_t d = 0; d < t->rank; d++)
            t->dim[d] = f->fn->next_symbol--;
    }
    if (!agrees(&v->type, t)) {
        if (op->def->flags & POME_OP_CONSTEXPR)
            return pome_fail(err, POME_ERR_FORMAT, "%s (%s, #%" PRIu32 "): is declared %s, but its inputs give %s",
                             op->name, op->def->name, op->position, pome_type_print(&v->type, a, sizeof a),
                             pome_type_print(t, b, sizeof b));
        if (f->warn && f->n_warnings++ < MAX_WARNINGS)
            pome_log(POME_LOG_WARN, "function %s: %s (%s, #%" PRIu32 ") is declared %s, but is %s", f->fn->name, op->name,
                     op->def->name, op->position, pome_type_print(&v->type, a, sizeof a),
                     pome_type_print(t, b, sizeof b));
    }
    v->type = *t;
    return POME_OK;
}

static pome_status infer_block(inferrer *f, pome_block *b, uint32_t loops, pome_error *err);
static pome_status infer_loop(inferrer *f, pome_op *op, uint32_t loops, pome_error *err);

static pome_status infer_one(inferrer *f, pome_op *op, uint32_t loops, pome_error *err)
{
    if (op->def->id == POME_OP_while_loop)
        POME_TRY(infer_loop(f, op, loops + 1, err));
    else
        for (uint32_t i = 0; i < op->n_blocks; i++)
            POME_TRY(infer_block(f, op->blocks[i], loops, err));
    if (f->check)
        POME_TRY(check_inputs(op, err));
    POME_TRY(check_ranks(op, err));
    for (uint32_t i = 0; i < op->n_in; i++) {
        const pome_const *k = op->in[i]->konst;
        f->types[i] = &op->in[i]->type;
        f->values[i] = k && !k->encoded_by && !k->strings ? &k->t : NULL;
    }
    if (op->n_out)
        memset(f->out, 0, op->n_out * sizeof *f->out);
    pome_infer c = {.op = op, .opset = f->fn->opset, .in = f->types, .value = f->values, .out = f->out,
                    .next_symbol = &f->fn->next_symbol};
    POME_TRY(pome_infer_op(&c, err));
    for (uint32_t i = 0; i < op->n_out; i++)
        POME_TRY(settle(f, op, i, err));
    return POME_OK;
}

static pome_status infer_block(inferrer *f, pome_block *b, uint32_t loops, pome_error *err)
{
    for (uint32_t i = 0; i < b->n_ops; i++)
        POME_TRY(infer_one(f, b->ops[i], loops, err));
    for (uint32_t i = 0; b->owner && i < b->n_outputs; i++)
        if (has_open_rank(b->outputs[i]))
            return rank_fail(b->outputs[i]->def, err);
    return POME_OK;
}

/* ---- loops ---- */

static bool is_open(const pome_type *t, const pome_type *start, int32_t d)
{
    return t->dim[d] != start->dim[d];
}

/* Whether the body leaves variable i with a size that the type in the loop, unless open, does not admit. */
static pome_status compare_var(const pome_op *op, uint32_t i, bool *changed, pome_error *err)
{
    const pome_type *start = &op->in[op->args[P_while_loop_loop_vars].first + i]->type;
    const pome_type *t = &op->blocks[1]->inputs[i]->type, *end = &op->blocks[1]->outputs[i]->type;
    char a[200], b[200];
    if (end->kind != start->kind || end->dtype != start->dtype || end->rank != start->rank)
        return pome_fail(err, POME_ERR_FORMAT, "%s (while_loop, #%" PRIu32 "): loop variable %" PRIu32
                         " is %s, but the body makes it %s", op->name, op->position, i,
                         pome_type_print(start, a, sizeof a), pome_type_print(end, b, sizeof b));
    for (int32_t d = 0; d < t->rank; d++)
        if (!is_open(t, start, d) && end->dim[d] != t->dim[d])
            *changed = true;
    if (t->list_length != -1 && end->list_length != t->list_length)
        *changed = true;
    return POME_OK;
}

/* Makes sizes that the body changes (`all`: every size) symbols of their own within the loop. */
static void open_var(inferrer *f, pome_op *op, uint32_t i, bool all)
{
    const pome_type *start = &op->in[op->args[P_while_loop_loop_vars].first + i]->type;
    const pome_type *end = &op->blocks[1]->outputs[i]->type;
    pome_type *t = &op->blocks[1]->inputs[i]->type;
    for (int32_t d = 0; d < t->rank; d++)
        if (!is_open(t, start, d) && (all || end->dim[d] != t->dim[d]))
            t->dim[d] = f->fn->next_symbol--;
    if (t->kind == POME_TYPE_LIST && (all || end->list_length != t->list_length))
        t->list_length = -1;
    op->blocks[0]->inputs[i]->type = *t;
}

/* The variables' types within the loop must hold in every round: sizes that the body changes become symbols, and the
 * body is inferred again, as one variable may depend on another. At last all sizes are opened: that must hold. */
static pome_status infer_loop(inferrer *f, pome_op *op, uint32_t loops, pome_error *err)
{
    pome_block *cond = op->blocks[0], *body = op->blocks[1];
    const pome_arg vars = op->args[P_while_loop_loop_vars];
    bool changed = true, warn = f->warn;
    if (loops > POME_LOOP_DEPTH_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "%s (while_loop, #%" PRIu32 "): loops are nested more than %d deep", op->name,
                         op->position, POME_LOOP_DEPTH_MAX);
    for (uint32_t i = 0; i < vars.count; i++)
        body->inputs[i]->type = cond->inputs[i]->type = op->in[vars.first + i]->type;
    for (int round = 0; changed; round++) {
        POME_TRY(infer_block(f, body, loops, err));
        changed = false;
        for (uint32_t i = 0; i < vars.count; i++)
            POME_TRY(compare_var(op, i, &changed, err));
        for (uint32_t i = 0; changed && i < vars.count; i++)
            open_var(f, op, i, round >= LAST_ROUND - 1);
        f->warn = false; /* what was declared is overwritten by now */
    }
    f->warn = warn;
    return infer_block(f, cond, loops, err);
}

/* ---- functions ---- */

static pome_status prepare_inputs(inferrer *f, pome_error *err)
{
    for (uint32_t i = 0; i < f->fn->n_inputs; i++) {
        pome_value *v = f->fn->inputs[i];
        if (v->type.rank < 0 || v->type.rank > POME_MAX_RANK || v->type.dtype == POME_DTYPE_NONE)
            return pome_fail(err, POME_ERR_FORMAT, "input %s has no type of known rank", v->name);
        for (int32_t d = 0; d < v->type.rank; d++) {
            if (v->type.kind == POME_TYPE_STATE && v->type.dim[d] < 0)
                return pome_fail(err, POME_ERR_FORMAT, "state %s has a size that is not fixed", v->name);
            if (v->type.dim[d] == -1)
                v->type.dim[d] = f->fn->next_symbol--;
        }
    }
    return POME_OK;
}

static void find_room(inferrer *f, const pome_block *b)
{
    for (uint32_t i = 0; i < b->n_ops; i++) {
        const pome_op *op = b->ops[i];
        f->n_in = op->n_in > f->n_in ? op->n_in : f->n_in;
        f->n_out = op->n_out > f->n_out ? op->n_out : f->n_out;
        for (uint32_t k = 0; k < op->n_blocks; k++)
            find_room(f, op->blocks[k]);
    }
}

static pome_status infer_all(inferrer *f, pome_error *err)
{
    f->n_in = f->n_out = 1;
    find_room(f, f->fn->body);
    f->types = calloc(f->n_in, sizeof *f->types);
    f->values = calloc(f->n_in, sizeof *f->values);
    f->out = calloc(f->n_out, sizeof *f->out);
    if (!f->types || !f->values || !f->out)
        return pome_fail_nomem(err, f->n_in * sizeof *f->types + f->n_out * sizeof *f->out, "type inference");
    POME_TRY(prepare_inputs(f, err));
    return infer_block(f, f->fn->body, 0, err);
}

static pome_status infer_function(inferrer *f, pome_error *err)
{
    pome_status status = infer_all(f, err);
    free((void *)f->types);
    free((void *)f->values);
    free(f->out);
    if (f->n_warnings > MAX_WARNINGS)
        pome_log(POME_LOG_WARN, "function %s: %" PRIu32 " more results are not as declared", f->fn->name,
                 f->n_warnings - MAX_WARNINGS);
    return status;
}

pome_status pome_function_infer(pome_function *fn, pome_error *err)
{
    inferrer f = {.fn = fn};
    return infer_function(&f, err);
}

pome_status pome_function_check_types(pome_function *fn, pome_error *err)
{
    inferrer f = {.fn = fn, .check = true, .warn = true};
    return infer_function(&f, err);
}
