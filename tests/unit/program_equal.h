/* Whether two programs are the same: structure, names, types and the bytes of constants. */
#ifndef POME_TESTS_PROGRAM_EQUAL_H
#define POME_TESTS_PROGRAM_EQUAL_H

#include "mil/program.h"

#define SAME(what, condition)                                                                                         \
    do {                                                                                                              \
        if (!(condition))                                                                                             \
            fail_msg("%s differs: %s", what, #condition);                                                             \
    } while (0)

static void same_value(const char *where, const pome_value *a, const pome_value *b);

static void same_type(const char *where, const pome_type *a, const pome_type *b)
{
    SAME(where, a->kind == b->kind && a->dtype == b->dtype && a->rank == b->rank);
    for (int32_t i = 0; i < a->rank; i++)
        SAME(where, a->dim[i] < 0 ? b->dim[i] < 0 : a->dim[i] == b->dim[i]);
}

static void same_const(const char *where, const pome_const *a, const pome_const *b)
{
    SAME(where, a->t.dtype == b->t.dtype && a->t.rank == b->t.rank && !a->encoded_by == !b->encoded_by);
    for (int32_t i = 0; i < a->t.rank; i++)
        SAME(where, a->t.shape[i] == b->t.shape[i]);
    SAME(where, !a->file == !b->file);
    if (a->file)
        SAME(where, strcmp(a->file, b->file) == 0 && a->file_offset == b->file_offset);
    if (a->encoded_by) {
        SAME(where, a->encoded_by->def == b->encoded_by->def && a->encoded_by->n_in == b->encoded_by->n_in);
    } else if (a->strings) {
        for (int64_t i = 0; i < pome_tensor_count(&a->t); i++)
            SAME(where, strcmp(a->strings[i], b->strings[i]) == 0);
    } else {
        SAME(where, a->size_bytes == b->size_bytes && memcmp(a->t.data, b->t.data, a->size_bytes) == 0);
    }
}

static void same_op(const pome_op *a, const pome_op *b);

static void same_value(const char *where, const pome_value *a, const pome_value *b)
{
    bool is_const = a->konst && !a->def; /* those of nested blocks may have new names */
    SAME(where, is_const || strcmp(a->name, b->name) == 0);
    SAME(where, !a->konst == !b->konst);
    same_type(where, &a->type, &b->type);
    if (a->konst)
        same_const(where, a->konst, b->konst);
}

static void same_block(const char *where, const pome_block *a, const pome_block *b)
{
    SAME(where, a->n_inputs == b->n_inputs && a->n_ops == b->n_ops && a->n_outputs == b->n_outputs);
    for (uint32_t i = 0; i < a->n_inputs; i++)
        same_value(where, a->inputs[i], b->inputs[i]);
    for (uint32_t i = 0; i < a->n_ops; i++)
        same_op(a->ops[i], b->ops[i]);
    for (uint32_t i = 0; i < a->n_outputs; i++)
        same_value(where, a->outputs[i], b->outputs[i]);
}

static void same_op(const pome_op *a, const pome_op *b)
{
    SAME(a->name, strcmp(a->name, b->name) == 0 && a->def == b->def);
    SAME(a->name, a->n_in == b->n_in && a->n_out == b->n_out && a->n_blocks == b->n_blocks);
    for (uint32_t p = 0; p < a->def->n_params; p++)
        SAME(a->name, a->args[p].count == b->args[p].count);
    for (uint32_t i = 0; i < a->n_in; i++)
        same_value(a->name, a->in[i], b->in[i]);
    for (uint32_t i = 0; i < a->n_out; i++)
        same_value(a->name, a->out[i], b->out[i]);
    for (uint32_t i = 0; i < a->n_blocks; i++)
        same_block(a->name, a->blocks[i], b->blocks[i]);
}

static void same_program(const pome_program *a, const pome_program *b)
{
    SAME("the program", a->n_functions == b->n_functions);
    for (uint32_t i = 0; i < a->n_functions; i++) {
        const pome_function *f = a->functions[i], *g = b->functions[i];
        SAME(f->name, strcmp(f->name, g->name) == 0 && f->opset == g->opset && f->n_inputs == g->n_inputs);
        for (uint32_t k = 0; k < f->n_inputs; k++)
            same_value(f->name, f->inputs[k], g->inputs[k]);
        same_block(f->name, f->body, g->body);
    }
}

#endif
