/* Compressed constants built by hand, for tests of the operators that read them. */
#ifndef POME_TESTS_ENCODED_TEST_H
#define POME_TESTS_ENCODED_TEST_H

#include "op_test.h"
#include "ops/encoded.h"

/* A constexpr operator under construction. Its memory is the arena's; tensors given are borrowed. */
typedef struct encoded_test {
    pome_arena *arena;
    const pome_opdef *def;
    pome_op *op;
    pome_const *konst[16];
    pome_value *value[16]; /* by parameter */
} encoded_test;

static inline encoded_test encoded_test_begin(pome_arena *arena, pome_op_id id)
{
    encoded_test t = {.arena = arena, .def = pome_opdef_get(id), .op = POME_NEW(arena, pome_op)};
    return t;
}

/* data NULL and `from`: output `output` of another constexpr operator */
static inline void encoded_test_input(encoded_test *t, uint32_t param, pome_dtype dtype, int32_t rank,
                                      const int64_t *shape, const void *data, size_t size_bytes, pome_op *from,
                                      uint32_t output)
{
    pome_const *k = POME_NEW(t->arena, pome_const);
    pome_value *v = POME_NEW(t->arena, pome_value);
    k->t = pome_tensor_borrow(NULL, dtype, rank, shape);
    k->t.data = (void *)(uintptr_t)data;
    k->size_bytes = size_bytes;
    k->encoded_by = from;
    k->encoded_output = output;
    v->konst = k;
    v->name = t->def->params[param].name;
    t->konst[param] = k;
    t->value[param] = v;
}
static inline void encoded_test_tensor(encoded_test *t, uint32_t param, const pome_tensor *x)
{
    encoded_test_input(t, param, x->dtype, x->rank, x->shape, x->data, pome_tensor_size_bytes(x), NULL, 0);
}
static inline void encoded_test_int(encoded_test *t, uint32_t param, int32_t value)
{
    int32_t *p = POME_NEW(t->arena, int32_t);
    *p = value;
    encoded_test_input(t, param, POME_DTYPE_I32, 0, NULL, p, sizeof *p, NULL, 0);
}
static inline void encoded_test_str(encoded_test *t, uint32_t param, const char *value)
{
    const char **p = POME_NEW(t->arena, const char *);
    *p = value;
    encoded_test_input(t, param, POME_DTYPE_STRING, 0, NULL, p, sizeof *p, NULL, 0);
    t->konst[param]->strings = p;
}

static inline pome_op *encoded_test_op(encoded_test *t)
{
    pome_op *op = t->op;
    uint32_t n = t->def->n_params;
    op->def = t->def;
    op->name = "weight";
    op->position = 3;
    op->args = POME_NEW_ARRAY(t->arena, pome_arg, n);
    op->in = POME_NEW_ARRAY(t->arena, pome_value *, n);
    op->n_out = (uint32_t)t->def->n_out;
    for (uint32_t p = 0; p < n; p++)
        if (t->value[p]) {
            op->args[p] = (pome_arg){op->n_in, 1};
            op->in[op->n_in++] = t->value[p];
        }
    return op;
}

static inline const pome_encoded *encoded_test_end(encoded_test *t, uint32_t output)
{
    const pome_encoded *e = NULL;
    pome_error err = {0};
    if (pome_encoded_create(&e, encoded_test_op(t), output, t->arena, &err) != POME_OK)
        fail_msg("%s", err.message);
    return e;
}

/* blockwise_shift_scale without offset: codes of `dtype` and fp16 scales [n, k / block]. */
static inline const pome_encoded *encoded_test_blocks(pome_arena *arena, const pome_tensor *codes,
                                                      const pome_tensor *scales)
{
    encoded_test t = encoded_test_begin(arena, POME_OP_constexpr_blockwise_shift_scale);
    encoded_test_tensor(&t, P_constexpr_blockwise_shift_scale_data, codes);
    encoded_test_tensor(&t, P_constexpr_blockwise_shift_scale_scale, scales);
    return encoded_test_end(&t, 0);
}

#endif
