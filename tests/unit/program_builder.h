/* Small programs made by hand. Everything lives in the program's arena; a failed allocation fails the test. */
#ifndef POME_TEST_PROGRAM_BUILDER_H
#define POME_TEST_PROGRAM_BUILDER_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <string.h>

#include <cmocka.h>

#include "mil/infer.h"
#include "mil/program.h"

#define DIMS(...) ((const int64_t[]){__VA_ARGS__})

static inline pome_function *make_function(pome_program **program, pome_opset opset)
{
    *program = pome_program_create(0);
    assert_non_null(*program);
    pome_function *fn = pome_function_create(*program, "main", opset);
    assert_non_null(fn);
    return fn;
}

static inline pome_value *make_value(pome_function *fn, const char *name, pome_type_kind kind, pome_dtype dtype,
                                     int32_t rank, const int64_t *dim)
{
    pome_type type = {.kind = kind, .dtype = dtype, .rank = rank};
    for (int32_t i = 0; i < rank; i++)
        type.dim[i] = dim[i];
    pome_value *v = pome_value_create(fn, name, &type);
    assert_non_null(v);
    return v;
}

static inline void append_value(pome_arena *arena, pome_value ***list, uint32_t *n, pome_value *v)
{
    pome_value **longer = POME_NEW_ARRAY(arena, pome_value *, *n + 1u);
    assert_non_null(longer);
    if (*n)
        memcpy(longer, *list, *n * sizeof *longer);
    longer[(*n)++] = v;
    *list = longer;
}

static inline pome_value *make_input(pome_function *fn, const char *name, pome_dtype dtype, int32_t rank,
                                     const int64_t *dim)
{
    pome_value *v = make_value(fn, name, POME_TYPE_TENSOR, dtype, rank, dim);
    append_value(fn->arena, &fn->inputs, &fn->n_inputs, v);
    return v;
}

/* A literal whose elements are `values` (NULL: zeros), converted to dtype. Sub-byte types are zeros. */
static inline pome_value *make_const(pome_function *fn, pome_dtype dtype, int32_t rank, const int64_t *dim,
                                     const double *values)
{
    int64_t n = 1;
    for (int32_t i = 0; i < rank; i++)
        n *= dim[i];
    pome_const *k = POME_NEW(fn->arena, pome_const);
    double *wide = POME_NEW_ARRAY(fn->arena, double, (size_t)n + 1);
    uint8_t *data = pome_arena_alloc(fn->arena, (size_t)n * 8 + 1);
    assert_true(k && wide && data);
    if (values)
        memcpy(wide, values, (size_t)n * sizeof *wide);
    k->t = pome_tensor_borrow(data, dtype, rank, dim);
    k->size_bytes = pome_tensor_size_bytes(&k->t);
    if (values && pome_dtype_bits(dtype) >= 8) {
        pome_tensor from = pome_tensor_borrow(wide, POME_DTYPE_F64, rank, dim);
        assert_int_equal(pome_tensor_copy(&k->t, &from, NULL), POME_OK);
    }
    pome_value *v = pome_value_create_const(fn, "", k);
    assert_non_null(v);
    return v;
}

static inline pome_value *make_int(pome_function *fn, int64_t value)
{
    return make_const(fn, POME_DTYPE_I32, 0, NULL, (const double[]){(double)value});
}
static inline pome_value *make_float(pome_function *fn, double value)
{
    return make_const(fn, POME_DTYPE_F32, 0, NULL, &value);
}
static inline pome_value *make_bool(pome_function *fn, bool value)
{
    return make_const(fn, POME_DTYPE_BOOL, 0, NULL, (const double[]){value});
}

static inline pome_value *make_ints(pome_function *fn, int64_t n, const int64_t *values)
{
    double wide[64];
    assert_true(n <= 64);
    for (int64_t i = 0; i < n; i++)
        wide[i] = (double)values[i];
    return make_const(fn, POME_DTYPE_I32, 1, &n, wide);
}

static inline pome_value *make_string(pome_function *fn, const char *text)
{
    pome_const *k = POME_NEW(fn->arena, pome_const);
    const char **strings = POME_NEW(fn->arena, const char *);
    assert_true(k && strings);
    strings[0] = pome_arena_strndup(fn->arena, text, strlen(text));
    assert_non_null(strings[0]);
    k->t.dtype = POME_DTYPE_STRING;
    k->strings = strings;
    pome_value *v = pome_value_create_const(fn, "", k);
    assert_non_null(v);
    return v;
}

enum { TEST_PARAMS_MAX = 24, TEST_LIST_MAX = 16 };

typedef struct op_args {
    pome_value *value[TEST_PARAMS_MAX][TEST_LIST_MAX];
    uint32_t count[TEST_PARAMS_MAX];
} op_args;

static inline void add_arg(op_args *a, const pome_opdef *def, const char *param, pome_value *v)
{
    int p = pome_opdef_param(def, param);
    assert_true(p >= 0 && p < TEST_PARAMS_MAX && a->count[p] < TEST_LIST_MAX);
    a->value[p][a->count[p]++] = v;
}

/* An operator whose results are of unknown type. */
static inline pome_op *make_op_from(pome_function *fn, pome_block *block, const pome_opdef *def, const op_args *a,
                                    uint32_t n_out)
{
    pome_value *const *in[TEST_PARAMS_MAX];
    for (int p = 0; p < TEST_PARAMS_MAX; p++)
        in[p] = a->value[p];
    pome_op *op = pome_op_create(fn, def, def->name, in, a->count, n_out);
    assert_non_null(op);
    op->position = block->n_ops;
    assert_true(pome_block_append(fn->program, block, op));
    return op;
}

/* Pairs of parameter name and value, then NULL; a name given again adds to its list. */
static inline pome_op *make_op(pome_function *fn, pome_block *block, const char *name, uint32_t n_out, ...)
{
    const pome_opdef *def = pome_opdef_find(name);
    op_args a = {0};
    va_list ap;
    assert_non_null(def);
    va_start(ap, n_out);
    for (const char *param; (param = va_arg(ap, const char *));)
        add_arg(&a, def, param, va_arg(ap, pome_value *));
    va_end(ap);
    return make_op_from(fn, block, def, &a, n_out);
}

static inline pome_block *make_block(pome_function *fn, pome_op *owner)
{
    pome_block *b = POME_NEW(fn->arena, pome_block);
    pome_block **longer = POME_NEW_ARRAY(fn->arena, pome_block *, owner->n_blocks + 1u);
    assert_true(b && longer);
    if (owner->n_blocks)
        memcpy(longer, owner->blocks, owner->n_blocks * sizeof *longer);
    longer[owner->n_blocks++] = b;
    owner->blocks = longer;
    b->owner = owner;
    return b;
}

static inline pome_value *block_input(pome_function *fn, pome_block *b, const char *name)
{
    pome_value *v = make_value(fn, name, POME_TYPE_TENSOR, POME_DTYPE_NONE, -1, NULL);
    append_value(fn->arena, &b->inputs, &b->n_inputs, v);
    return v;
}

static inline void block_output(pome_function *fn, pome_block *b, pome_value *v)
{
    append_value(fn->arena, &b->outputs, &b->n_outputs, v);
}

#endif
