/* The verifier: what can be said of a program without its types, then types (infer_function.c). */
#include "mil/verify.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"

/* Where a value stands while a function is walked in order of execution. */
enum { NOT_YET, VISIBLE, GONE };

typedef struct walker {
    pome_function *fn;
    const pome_value **by_id; /* [n_values] what was defined under an id */
    uint8_t *standing;        /* [n_values] */
} walker;

static pome_status op_fail(const pome_op *op, pome_error *err, pome_status code, const char *what, const char *name)
{
    return pome_fail(err, code, "%s (%s, #%" PRIu32 "): %s%s", op->name, op->def->name, op->position, what, name);
}

/* ---- scopes ---- */

static pome_status define(walker *w, const pome_value *v, pome_error *err)
{
    if (v->id >= w->fn->n_values)
        return pome_fail(err, POME_ERR_FORMAT, "value %s has id %" PRIu32 " of %" PRIu32, v->name, v->id, w->fn->n_values);
    if (w->standing[v->id] != NOT_YET)
        return pome_fail(err, POME_ERR_FORMAT, "value %s is defined a second time", v->name);
    w->standing[v->id] = VISIBLE;
    w->by_id[v->id] = v;
    return POME_OK;
}

static void undefine(walker *w, pome_value *const *values, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        w->standing[values[i]->id] = GONE;
}

/* NULL if the value may be used here, else why not. Constants may be used anywhere. */
static const char *obstacle(const walker *w, const pome_value *v)
{
    if (v->konst)
        return NULL;
    if (v->id >= w->fn->n_values || w->standing[v->id] == NOT_YET || w->by_id[v->id] != v)
        return "uses before it is defined: ";
    return w->standing[v->id] == GONE ? "uses outside of the block that defines it: " : NULL;
}

/* ---- operators ---- */

static bool is_constant(const pome_value *v)
{
    return v->konst || (v->def && v->def->def->flags & POME_OP_CONSTEXPR);
}

static pome_status check_param(const walker *w, const pome_op *op, uint32_t p, pome_error *err)
{
    const pome_param *param = &op->def->params[p];
    const pome_arg arg = op->args[p];
    bool exists = param->since <= w->fn->opset && (!param->until || (int)w->fn->opset <= param->until);
    if (arg.count && !exists)
        return op_fail(op, err, POME_ERR_FORMAT, "the function's opset has no parameter ", param->name);
    if (!arg.count && exists && !(param->flags & (POME_P_OPTIONAL | POME_P_LIST)))
        return op_fail(op, err, POME_ERR_FORMAT, "lacks parameter ", param->name);
    if (arg.count > 1 && !(param->flags & POME_P_LIST))
        return op_fail(op, err, POME_ERR_FORMAT, "takes one value as parameter ", param->name);
    for (uint32_t i = 0; i < arg.count; i++) {
        const pome_value *v = op->in[arg.first + i];
        const char *why = obstacle(w, v);
        if (why)
            return op_fail(op, err, POME_ERR_FORMAT, why, v->name);
        if (param->flags & POME_P_CONST && !is_constant(v))
            return op_fail(op, err, POME_ERR_FORMAT, "needs a constant as parameter ", param->name);
    }
    return POME_OK;
}

static pome_status walk_block(walker *w, const pome_block *b, uint32_t depth, pome_error *err);

static pome_status check_blocks(walker *w, const pome_op *op, uint32_t depth, pome_error *err)
{
    bool has = op->def->flags & POME_OP_BLOCKS;
    if (op->n_blocks != (has ? 2u : 0u))
        return op_fail(op, err, POME_ERR_FORMAT, has ? "does not have two blocks" : "has blocks", "");
    if (depth >= POME_BLOCK_DEPTH_MAX)
        return op_fail(op, err, POME_ERR_LIMIT, "blocks are nested too deep", "");
    if (op->def->id == POME_OP_while_loop) {
        const pome_block *cond = op->blocks[0], *body = op->blocks[1];
        uint32_t n = op->args[P_while_loop_loop_vars].count;
        if (cond->n_inputs != n || body->n_inputs != n || body->n_outputs != n || op->n_out != n)
            return op_fail(op, err, POME_ERR_FORMAT, "its blocks and outputs do not fit its loop variables", "");
    }
    for (uint32_t i = 0; i < op->n_blocks; i++)
        POME_TRY(walk_block(w, op->blocks[i], depth + 1, err));
    return POME_OK;
}

static pome_status check_op(walker *w, const pome_op *op, uint32_t depth, pome_error *err)
{
    uint32_t n_in = 0;
    if (op->def->since > w->fn->opset)
        return pome_fail(err, POME_ERR_FORMAT, "%s (%s, #%" PRIu32 "): exists since iOS %d, the function is for iOS %d",
                         op->name, op->def->name, op->position, op->def->since, (int)w->fn->opset);
    for (uint32_t p = 0; p < op->def->n_params; p++) {
        POME_TRY(check_param(w, op, p, err));
        n_in += op->args[p].count;
    }
    if (n_in != op->n_in)
        return op_fail(op, err, POME_ERR_FORMAT, "has inputs without a parameter", "");
    if (op->def->n_out >= 0 && op->n_out != (uint32_t)op->def->n_out)
        return pome_fail(err, POME_ERR_FORMAT, "%s (%s, #%" PRIu32 "): has %" PRIu32 " outputs, not %d", op->name,
                         op->def->name, op->position, op->n_out, op->def->n_out);
    POME_TRY(check_blocks(w, op, depth, err));
    for (uint32_t i = 0; i < op->n_out; i++)
        POME_TRY(define(w, op->out[i], err));
    return POME_OK;
}

static pome_status walk_block(walker *w, const pome_block *b, uint32_t depth, pome_error *err)
{
    for (uint32_t i = 0; i < b->n_inputs; i++)
        POME_TRY(define(w, b->inputs[i], err));
    for (uint32_t i = 0; i < b->n_ops; i++)
        POME_TRY(check_op(w, b->ops[i], depth, err));
    for (uint32_t i = 0; i < b->n_outputs; i++) {
        const char *why = obstacle(w, b->outputs[i]);
        if (why)
            return pome_fail(err, POME_ERR_FORMAT, "a block %s%s", why, b->outputs[i]->name);
    }
    if (b->owner) {
        undefine(w, b->inputs, b->n_inputs);
        for (uint32_t i = 0; i < b->n_ops; i++)
            undefine(w, b->ops[i]->out, b->ops[i]->n_out);
    }
    return POME_OK;
}

/* ---- functions ---- */

static pome_status walk_function(walker *w, pome_error *err)
{
    w->by_id = calloc(w->fn->n_values + 1u, sizeof *w->by_id);
    w->standing = calloc(w->fn->n_values + 1u, sizeof *w->standing);
    if (!w->by_id || !w->standing)
        return pome_fail_nomem(err, w->fn->n_values * (sizeof *w->by_id + 1u), "checking the program");
    for (uint32_t i = 0; i < w->fn->n_inputs; i++)
        POME_TRY(define(w, w->fn->inputs[i], err));
    return walk_block(w, w->fn->body, 0, err);
}

/* States are places, not values: they enter a function and go nowhere but into read_state and write_state. */
static pome_status check_outputs(const pome_function *fn, pome_error *err)
{
    for (uint32_t i = 0; i < fn->body->n_outputs; i++)
        if (fn->body->outputs[i]->type.kind == POME_TYPE_STATE)
            return pome_fail(err, POME_ERR_FORMAT, "state %s is an output", fn->body->outputs[i]->name);
    return POME_OK;
}

static pome_status verify_function(pome_function *fn, pome_error *err)
{
    walker w = {.fn = fn};
    pome_status status = walk_function(&w, err);
    free((void *)w.by_id);
    free(w.standing);
    POME_TRY(status);
    POME_TRY(pome_function_check_types(fn, err));
    return check_outputs(fn, err);
}

pome_status pome_program_verify(pome_program *program, pome_error *err)
{
    for (uint32_t i = 0; i < program->n_functions; i++) {
        pome_status status = verify_function(program->functions[i], err);
        if (status != POME_OK)
            return pome_fail_prefix(err, status, "function %s", program->functions[i]->name);
    }
    return POME_OK;
}

/* ---- listing ---- */

static pome_status list_block(pome_function *fn, const pome_block *b, pome_op_visit_fn *visit, void *arg,
                              pome_error *err)
{
    for (uint32_t i = 0; i < b->n_ops; i++) {
        pome_op *op = b->ops[i];
        POME_TRY(visit(arg, fn, op, err));
        for (uint32_t k = 0; k < op->n_blocks; k++)
            POME_TRY(list_block(fn, op->blocks[k], visit, arg, err));
    }
    return POME_OK;
}

pome_status pome_function_list_ops(pome_function *fn, pome_op_visit_fn *visit, void *arg, pome_error *err)
{
    return list_block(fn, fn->body, visit, arg, err);
}

pome_status pome_program_list_ops(pome_program *program, pome_op_visit_fn *visit, void *arg, pome_error *err)
{
    for (uint32_t i = 0; i < program->n_functions; i++)
        POME_TRY(pome_function_list_ops(program->functions[i], visit, arg, err));
    return POME_OK;
}
