#include "mil/program.h"

#include <assert.h>

pome_program *pome_program_create(size_t limit_bytes)
{
    pome_arena *arena = pome_arena_create(limit_bytes);
    if (!arena)
        return NULL;
    pome_program *program = POME_NEW(arena, pome_program);
    if (!program) {
        pome_arena_destroy(&arena);
        return NULL;
    }
    program->arena = arena;
    return program;
}

void pome_program_destroy(pome_program **program)
{
    if (!program || !*program)
        return;
    pome_arena *arena = (*program)->arena;
    for (uint32_t i = 0; i < (*program)->n_mappings; i++)
        pome_mapping_release(&(*program)->mappings[i]);
    *program = NULL;
    pome_arena_destroy(&arena); /* the program itself lies in it */
}

static char *copy_name(pome_arena *arena, const char *name)
{
    return pome_arena_strndup(arena, name, strlen(name));
}

pome_function *pome_function_create(pome_program *program, const char *name, pome_opset opset)
{
    pome_function **list = POME_NEW_ARRAY(program->arena, pome_function *, program->n_functions + 1u);
    pome_function *fn = POME_NEW(program->arena, pome_function);
    pome_block *body = POME_NEW(program->arena, pome_block);
    char *copy = copy_name(program->arena, name);
    if (!list || !fn || !body || !copy)
        return NULL;
    *fn = (pome_function){.name = copy, .opset = opset, .program = program, .arena = program->arena, .body = body,
                          .next_symbol = -2};
    if (program->n_functions)
        memcpy(list, program->functions, program->n_functions * sizeof *list);
    list[program->n_functions++] = fn;
    program->functions = list;
    return fn;
}

pome_value *pome_value_create(pome_function *fn, const char *name, const pome_type *type)
{
    pome_value *v = POME_NEW(fn->arena, pome_value);
    const char *copy = name[0] ? copy_name(fn->arena, name) : "";
    if (!v || !copy)
        return NULL;
    *v = (pome_value){.id = fn->n_values++, .name = copy, .type = *type};
    return v;
}

pome_value *pome_value_create_const(pome_function *fn, const char *name, const pome_const *k)
{
    pome_type type = {.kind = POME_TYPE_TENSOR, .dtype = k->t.dtype, .rank = k->t.rank};
    memcpy(type.dim, k->t.shape, sizeof type.dim);
    pome_value *v = pome_value_create(fn, name, &type);
    if (v)
        v->konst = k;
    return v;
}

/* An operator with its inputs set and room for its outputs. */
static pome_op *op_with_inputs(pome_function *fn, const pome_opdef *def, const char *name,
                               pome_value *const *const *in, const uint32_t *counts, uint32_t n_out)
{
    pome_arena *arena = fn->arena;
    uint32_t n_in = 0;
    for (uint32_t p = 0; p < def->n_params; p++)
        n_in += in[p] ? counts[p] : 0;
    pome_op *op = POME_NEW(arena, pome_op);
    pome_arg *args = POME_NEW_ARRAY(arena, pome_arg, def->n_params);
    pome_value **ins = POME_NEW_ARRAY(arena, pome_value *, n_in);
    pome_value **outs = POME_NEW_ARRAY(arena, pome_value *, n_out);
    char *copy = copy_name(arena, name);
    if (!op || !args || !ins || !outs || !copy)
        return NULL;
    uint32_t at = 0;
    for (uint32_t p = 0; p < def->n_params; p++) {
        args[p] = (pome_arg){at, in[p] ? counts[p] : 0};
        if (args[p].count)
            memcpy(ins + at, in[p], args[p].count * sizeof *ins);
        at += args[p].count;
    }
    *op = (pome_op){.def = def, .name = copy, .args = args, .in = ins, .n_in = n_in, .out = outs, .n_out = n_out};
    return op;
}

pome_op *pome_op_create_over(pome_function *fn, const pome_opdef *def, const char *name,
                             pome_value *const *const *in, const uint32_t *counts, pome_value *const *out,
                             uint32_t n_out)
{
    pome_op *op = op_with_inputs(fn, def, name, in, counts, n_out);
    for (uint32_t i = 0; op && i < n_out; i++) {
        op->out[i] = out[i];
        out[i]->def = op;
        out[i]->def_output = i;
    }
    return op;
}

pome_op *pome_op_create(pome_function *fn, const pome_opdef *def, const char *name, pome_value *const *const *in,
                        const uint32_t *counts, uint32_t n_out)
{
    const pome_type unknown = {.rank = -1};
    pome_op *op = op_with_inputs(fn, def, name, in, counts, n_out);
    if (!op)
        return NULL;
    for (uint32_t i = 0; i < n_out; i++) {
        const char *out_name = i ? pome_arena_printf(fn->arena, "%s_%u", name, i) : name;
        pome_value *v = out_name ? pome_value_create(fn, out_name, &unknown) : NULL;
        if (!v)
            return NULL;
        v->def = op;
        v->def_output = i;
        op->out[i] = v;
    }
    return op;
}

/* Others may have put an array of their own in block->ops, of exactly n_ops; only `room` is known to have more. */
bool pome_block_append(pome_program *program, pome_block *block, pome_op *op)
{
    if (!block->room || block->ops != block->room || block->n_ops == block->n_room) {
        uint32_t n_room = block->n_ops < 8 ? 16 : block->n_ops * 2;
        pome_op **room = POME_NEW_ARRAY(program->arena, pome_op *, n_room);
        if (!room)
            return false;
        if (block->n_ops)
            memcpy(room, block->ops, block->n_ops * sizeof *room);
        block->ops = block->room = room;
        block->n_room = n_room;
    }
    block->ops[block->n_ops++] = op;
    return true;
}

pome_function *pome_program_find(const pome_program *program, const char *name)
{
    for (uint32_t i = 0; i < program->n_functions; i++)
        if (strcmp(program->functions[i]->name, name) == 0)
            return program->functions[i];
    return NULL;
}

/* ---- copying a function ---- */

typedef struct cloner {
    pome_arena *arena;
    pome_value **values; /* [n_values] copies by id, NULL where not yet met */
    uint32_t n_values;
} cloner;

static pome_value *clone_value(cloner *c, const pome_value *v)
{
    assert(v->id < c->n_values);
    if (!c->values[v->id]) {
        pome_value *copy = POME_NEW(c->arena, pome_value);
        if (!copy)
            return NULL;
        *copy = *v;
        copy->def = NULL; /* set when its operator is copied */
        c->values[v->id] = copy;
    }
    return c->values[v->id];
}

static bool clone_values(cloner *c, pome_value ***out, pome_value *const *list, uint32_t n)
{
    pome_value **copy = POME_NEW_ARRAY(c->arena, pome_value *, n);
    if (!copy)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!(copy[i] = clone_value(c, list[i])))
            return false;
    *out = copy;
    return true;
}

static pome_block *clone_block(cloner *c, const pome_block *block, pome_op *owner);

static pome_op *clone_op(cloner *c, const pome_op *op)
{
    pome_op *copy = POME_NEW(c->arena, pome_op);
    pome_arg *args = POME_NEW_ARRAY(c->arena, pome_arg, op->def->n_params);
    pome_block **blocks = POME_NEW_ARRAY(c->arena, pome_block *, op->n_blocks);
    if (!copy || !args || !blocks)
        return NULL;
    *copy = *op;
    if (op->def->n_params)
        memcpy(args, op->args, op->def->n_params * sizeof *args);
    copy->args = args;
    copy->blocks = blocks;
    if (!clone_values(c, &copy->in, op->in, op->n_in) || !clone_values(c, &copy->out, op->out, op->n_out))
        return NULL;
    for (uint32_t i = 0; i < op->n_out; i++)
        copy->out[i]->def = copy;
    for (uint32_t i = 0; i < op->n_blocks; i++)
        if (!(blocks[i] = clone_block(c, op->blocks[i], copy)))
            return NULL;
    return copy;
}

static pome_block *clone_block(cloner *c, const pome_block *block, pome_op *owner)
{
    pome_block *copy = POME_NEW(c->arena, pome_block);
    pome_op **ops = POME_NEW_ARRAY(c->arena, pome_op *, block->n_ops);
    if (!copy || !ops)
        return NULL;
    *copy = (pome_block){.ops = ops, .n_ops = block->n_ops, .owner = owner,
                         .n_inputs = block->n_inputs, .n_outputs = block->n_outputs};
    if (!clone_values(c, &copy->inputs, block->inputs, block->n_inputs))
        return NULL;
    for (uint32_t i = 0; i < block->n_ops; i++)
        if (!(ops[i] = clone_op(c, block->ops[i])))
            return NULL;
    if (!clone_values(c, &copy->outputs, block->outputs, block->n_outputs))
        return NULL;
    return copy;
}

pome_function *pome_function_clone(const pome_function *fn, pome_arena *arena)
{
    cloner c = {arena, POME_NEW_ARRAY(arena, pome_value *, fn->n_values), fn->n_values};
    pome_function *copy = POME_NEW(arena, pome_function);
    if (!c.values || !copy)
        return NULL;
    *copy = *fn;
    copy->arena = arena;
    if (!clone_values(&c, &copy->inputs, fn->inputs, fn->n_inputs))
        return NULL;
    copy->body = clone_block(&c, fn->body, NULL);
    return copy->body ? copy : NULL;
}
