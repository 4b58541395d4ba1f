/* Programs from packages. What must come out was written down by coremltools (tests/golden) or follows from the
 * format. */
#include "unit/spec_builder.h"

#include <inttypes.h>

#include "base/f16.h"

static pome_status load_file(pome_program **out, const char *path, pome_error *err)
{
    pome_mlpackage *p = NULL;
    pome_status status = pome_mlpackage_open(&p, path, NULL, err);
    if (status == POME_OK)
        status = pome_program_load(out, p, NULL, err);
    pome_mlpackage_close(&p);
    return status;
}

static pome_program *golden(const char *name)
{
    char path[512];
    pome_program *p = NULL;
    pome_error err = {0};
    snprintf(path, sizeof path, GOLDEN "%s.mlpackage", name);
    if (load_file(&p, path, &err) != POME_OK)
        fail_msg("%s", err.message);
    return p;
}

/* A named value among the inputs of a block's operators. */
static const pome_value *find_value(const pome_block *b, const char *name)
{
    for (uint32_t i = 0; i < b->n_ops; i++) {
        for (uint32_t k = 0; k < b->ops[i]->n_in; k++)
            if (strcmp(b->ops[i]->in[k]->name, name) == 0)
                return b->ops[i]->in[k];
        for (uint32_t k = 0; k < b->ops[i]->n_blocks; k++) {
            const pome_value *v = find_value(b->ops[i]->blocks[k], name);
            if (v)
                return v;
        }
    }
    return NULL;
}

static const pome_op *find_op(const pome_function *fn, pome_op_id id)
{
    for (uint32_t i = 0; i < fn->body->n_ops; i++)
        if (fn->body->ops[i]->def->id == id)
            return fn->body->ops[i];
    return NULL;
}

/* ---- element types, against the values that were written ---- */

static uint64_t raw_at(const pome_tensor *t, size_t i)
{
    uint32_t width = pome_dtype_bits(t->dtype);
    const uint8_t *data = t->data;
    uint64_t v = 0;
    for (uint32_t k = 0; k < width; k++) {
        size_t bit = i * width + k;
        v |= (uint64_t)((data[bit >> 3] >> (bit & 7)) & 1) << k;
    }
    return v;
}

static uint64_t raw_of_text(pome_dtype dtype, const char *text)
{
    uint32_t width = pome_dtype_bits(dtype);
    uint64_t v;
    double d = pome_dtype_is_float(dtype) ? strtod(text, NULL) : 0;
    if (dtype == POME_DTYPE_F64)
        memcpy(&v, &d, sizeof v);
    else if (dtype == POME_DTYPE_F32)
        v = pome_f32_bits((float)d);
    else if (dtype == POME_DTYPE_F16)
        v = pome_f32_to_f16((float)d);
    else
        v = text[0] == '-' ? (uint64_t)strtoll(text, NULL, 10) : strtoull(text, NULL, 10);
    return width == 64 ? v : v & ((UINT64_C(1) << width) - 1);
}

static void check_constant(const pome_block *body, char *line)
{
    char *rest = NULL;
    const char *name = strtok_r(line, " ", &rest), *dtype = strtok_r(NULL, " ", &rest);
    const char *shape = strtok_r(NULL, " ", &rest);
    const pome_value *v = find_value(body, name);
    if (!v || !v->konst)
        fail_msg("no constant %s", name);
    const pome_tensor *t = &v->konst->t;
    assert_string_equal(pome_dtype_name(t->dtype), dtype);
    assert_null(v->def);
    assert_int_equal(v->type.dtype, t->dtype);
    bool is_blob = strncmp(name, "blob", 4) == 0;
    assert_string_equal(shape, is_blob ? "1x13" : "13");
    assert_int_equal(t->rank, is_blob ? 2 : 1);
    assert_int_equal(t->shape[t->rank - 1], 13);
    assert_int_equal(v->konst->size_bytes, (13 * pome_dtype_bits(t->dtype) + 7) / 8);
    if (is_blob)
        assert_string_equal(v->konst->file, "@model_path/weights/weight.bin");
    else
        assert_null(v->konst->file);
    size_t n = 0;
    for (const char *text; (text = strtok_r(NULL, " \n", &rest)); n++)
        if (raw_at(t, n) != raw_of_text(t->dtype, text))
            fail_msg("%s[%zu] is %" PRIx64 ", wanted %s", name, n, raw_at(t, n), text);
    assert_int_equal(n, 13);
}

static void test_every_element_type(void **state)
{
    (void)state;
    pome_program *p = golden("loader/constants");
    FILE *f = fopen(GOLDEN "loader/constants.txt", "r");
    char line[2048];
    int n_lines = 0;
    assert_non_null(f);
    for (; fgets(line, sizeof line, f); n_lines++)
        check_constant(p->functions[0]->body, line);
    fclose(f);
    assert_int_equal(n_lines, 32); /* 18 immediate, 14 in the file */
    assert_int_equal(p->n_mappings, 1);
    assert_int_equal(p->weights_bytes, 1844);
    pome_program_destroy(&p);
    assert_null(p);
}

/* A blob of every dtype is a view of the mapped file. */
static void test_weights_are_views(void **state)
{
    (void)state;
    pome_program *p = golden("loader/constants");
    pome_bytes file = pome_mapping_bytes(p->mappings[0]);
    const pome_const *k = find_value(p->functions[0]->body, "blob_float16")->konst;
    assert_int_equal(k->file_offset, 64);
    assert_ptr_equal(k->t.data, file.ptr + 128);
    pome_program_destroy(&p);
}

/* ---- whole programs: counts by coremltools' protobuf classes ---- */

static void test_golden_programs(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        pome_opset opset;
        uint32_t n_ops, n_constexpr;
    } cases[] = {
        {"apple/int4-block32", POME_OPSET_IOS18, 849 - 451, 26},
        {"apple/layer1-lut4-vector2", POME_OPSET_IOS18, 270 - 147, 9},
        {"apple/layer1-sparse50-int8", POME_OPSET_IOS18, 279 - 147, 18},
        {"chunks-lut4-split/tiny-llama_chunk4", POME_OPSET_IOS17, 35 - 20, 2},
        {"chunks-lut4-split/logit-processor", POME_OPSET_IOS17, 7 - 5, 0},
        {"nocache/layer1-logits-fixed64-lut6", POME_OPSET_IOS16, 152 - 73, 9},
        {"nocache/scores-range-fp32-tied", POME_OPSET_IOS15, 554 - 279, 0},
        {"snake/shift-fp16", POME_OPSET_IOS18, 1087 - 641, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pome_program *p = golden(cases[i].name);
        const pome_function *fn = p->functions[0];
        uint32_t n_constexpr = 0;
        assert_string_equal(fn->name, "main");
        assert_int_equal(fn->opset, cases[i].opset);
        assert_int_equal(fn->body->n_ops, cases[i].n_ops);
        for (uint32_t k = 0; k < fn->body->n_ops; k++) {
            const pome_op *op = fn->body->ops[k];
            n_constexpr += (op->def->flags & POME_OP_CONSTEXPR) != 0;
            for (uint32_t o = 0; o < op->n_out; o++) {
                assert_ptr_equal(op->out[o]->def, op);
                assert_int_equal(op->out[o]->def_output, o);
                assert_true(op->out[o]->id < fn->n_values);
            }
        }
        assert_int_equal(n_constexpr, cases[i].n_constexpr);
        pome_program_destroy(&p);
    }
}

static void test_states_and_symbols(void **state)
{
    (void)state;
    pome_program *p = golden("apple/int4-block32");
    const pome_function *fn = p->functions[0];
    static const char *const names[] = {"inputIds", "causalMask", "keyCache", "valueCache"};
    assert_int_equal(fn->n_inputs, 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(fn->inputs[i]->name, names[i]);
        assert_int_equal(fn->inputs[i]->type.kind, i < 2 ? POME_TYPE_TENSOR : POME_TYPE_STATE);
    }
    const pome_type *ids = &fn->inputs[0]->type, *mask = &fn->inputs[1]->type, *cache = &fn->inputs[2]->type;
    assert_int_equal(ids->dtype, POME_DTYPE_I32);
    assert_int_equal(ids->rank, 2);
    assert_int_equal(ids->dim[0], 1);
    assert_true(ids->dim[1] < -1 && mask->dim[2] < -1 && mask->dim[3] < -1); /* unknown, each its own */
    assert_true(ids->dim[1] != mask->dim[2] && mask->dim[2] != mask->dim[3]);
    assert_int_equal(cache->rank, 5);
    assert_int_equal(cache->dim[3], 128);
    assert_true(fn->next_symbol < mask->dim[3] && fn->next_symbol < ids->dim[1]);
    const pome_op *read = find_op(fn, POME_OP_read_state);
    const pome_op *write = find_op(fn, POME_OP_write_state);
    assert_non_null(read);
    assert_ptr_equal(pome_op_arg(read, P_read_state_input), fn->inputs[2]);
    assert_non_null(write);
    assert_int_equal(write->n_out, 0);
    pome_program_destroy(&p);
}

/* Functions of one file share its constants, compressed ones too. */
static void test_multifunction_shares_weights(void **state)
{
    (void)state;
    pome_program *p = golden("multifunction/int4-block32");
    assert_int_equal(p->n_functions, 2);
    assert_int_equal(p->n_mappings, 1);
    const pome_function *base = pome_program_find(p, "base"), *adapter = pome_program_find(p, "adapter");
    assert_non_null(base);
    assert_non_null(adapter);
    assert_null(pome_program_find(p, "main"));
    uint32_t n_shared = 0;
    for (uint32_t i = 0; i < base->body->n_ops; i++) {
        const pome_op *a = base->body->ops[i];
        if (!(a->def->flags & POME_OP_CONSTEXPR))
            continue;
        for (uint32_t k = 0; k < adapter->body->n_ops; k++) {
            const pome_op *b = adapter->body->ops[k];
            if (b->def != a->def || pome_op_arg(a, 0)->konst->file_offset != pome_op_arg(b, 0)->konst->file_offset)
                continue;
            assert_ptr_equal(pome_op_arg(a, 0)->konst, pome_op_arg(b, 0)->konst);
            assert_ptr_equal(a->out[0]->konst, b->out[0]->konst);
            n_shared++;
        }
    }
    assert_int_equal(n_shared, 26);
    pome_program_destroy(&p);
}

/* Operators of iOS 16 carry their constants as attributes; here they are arguments like any other. */
static void test_attribute_form(void **state)
{
    (void)state;
    pome_program *p = golden("chunks-lut4-split/tiny-llama_chunk4");
    const pome_op *op = find_op(p->functions[0], POME_OP_constexpr_lut_to_dense);
    assert_non_null(op);
    const pome_value *indices = pome_op_arg(op, P_constexpr_lut_to_dense_indices);
    const pome_value *lut = pome_op_arg(op, P_constexpr_lut_to_dense_lut);
    const pome_value *shape = pome_op_arg(op, P_constexpr_lut_to_dense_shape);
    assert_int_equal(indices->konst->t.dtype, POME_DTYPE_U8);
    assert_int_equal(indices->konst->t.shape[0], 8192); /* 256 x 64 indices of 4 bits */
    assert_int_equal(lut->konst->t.shape[0], 16);
    static const uint32_t expected[] = {256, 64, 1, 1};
    assert_int_equal(shape->konst->t.dtype, POME_DTYPE_U32);
    assert_memory_equal(shape->konst->t.data, expected, sizeof expected);
    assert_string_equal(indices->name, "");
    assert_int_equal(op->out[0]->konst->t.rank, 4);
    assert_null(op->out[0]->konst->t.data);
    assert_ptr_equal(op->out[0]->konst->encoded_by, op);
    pome_program_destroy(&p);
}

static void test_nested_blocks(void **state)
{
    (void)state;
    pome_program *p = golden("loader/control_flow");
    const pome_function *fn = p->functions[0];
    const pome_op *loop = find_op(fn, POME_OP_while_loop), *cond = find_op(fn, POME_OP_cond);
    assert_string_equal(fn->inputs[0]->name, "x"); /* as described, though the program says n first */
    assert_string_equal(fn->inputs[1]->name, "n");
    assert_non_null(loop);
    assert_int_equal(loop->n_in, 2);
    assert_int_equal(loop->n_out, 2);
    assert_int_equal(loop->n_blocks, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(loop->blocks[i]->n_inputs, 2);
        assert_ptr_equal(loop->blocks[i]->owner, loop);
    }
    assert_int_equal(loop->blocks[0]->n_outputs, 1);
    assert_int_equal(loop->blocks[1]->n_outputs, 2);
    /* Both blocks call their inputs the same; they are different values. */
    assert_string_equal(loop->blocks[0]->inputs[0]->name, loop->blocks[1]->inputs[0]->name);
    assert_ptr_not_equal(loop->blocks[0]->inputs[0], loop->blocks[1]->inputs[0]);
    const pome_op *less = loop->blocks[0]->ops[0];
    assert_int_equal(less->def->id, POME_OP_less);
    assert_ptr_equal(pome_op_arg(less, P_less_x), loop->blocks[0]->inputs[0]);
    assert_ptr_equal(pome_op_arg(less, P_less_y), find_op(fn, POME_OP_squeeze)->out[0]); /* from outside */
    assert_non_null(cond);
    assert_int_equal(cond->n_blocks, 2);
    assert_int_equal(cond->blocks[0]->ops[0]->def->id, POME_OP_relu);
    assert_int_equal(cond->blocks[1]->ops[0]->def->id, POME_OP_abs);
    assert_ptr_equal(fn->body->outputs[0], cond->out[0]);
    pome_program_destroy(&p);
}

static void test_clone(void **state)
{
    (void)state;
    pome_program *p = golden("loader/control_flow");
    pome_arena *arena = pome_arena_create(0);
    const pome_function *fn = p->functions[0];
    pome_function *copy = pome_function_clone(fn, arena);
    assert_non_null(copy);
    assert_int_equal(copy->n_values, fn->n_values);
    assert_int_equal(copy->body->n_ops, fn->body->n_ops);
    assert_ptr_not_equal(copy->body->ops[0], fn->body->ops[0]);
    const pome_op *loop = find_op(copy, POME_OP_while_loop), *original = find_op(fn, POME_OP_while_loop);
    assert_ptr_not_equal(loop, original);
    assert_ptr_equal(loop->blocks[1]->owner, loop);
    assert_ptr_equal(pome_op_arg(loop->blocks[0]->ops[0], P_less_x), loop->blocks[0]->inputs[0]);
    assert_ptr_equal(pome_op_arg(loop->blocks[0]->ops[0], P_less_y), find_op(copy, POME_OP_squeeze)->out[0]);
    assert_ptr_equal(loop->in[0]->konst, original->in[0]->konst);
    assert_ptr_equal(copy->body->outputs[0]->def, find_op(copy, POME_OP_cond));
    assert_int_equal(copy->body->outputs[0]->id, fn->body->outputs[0]->id);
    /* The copy grows on its own. */
    pome_op *op = pome_op_create(copy, pome_opdef_find("relu"), "extra",
                                 (pome_value *const *const[]){(pome_value *const[]){copy->inputs[0]}}, (uint32_t[]){1}, 1);
    assert_non_null(op);
    assert_int_equal(op->out[0]->id, fn->n_values);
    assert_string_equal(op->out[0]->name, "extra");
    for (uint32_t i = 0; i < 40; i++)
        assert_true(pome_block_append(p, copy->body, op));
    assert_int_equal(copy->body->n_ops, fn->body->n_ops + 40);
    assert_ptr_equal(copy->body->ops[copy->body->n_ops - 1], op);
    assert_ptr_equal(copy->body->ops[fn->body->n_ops - 1], find_op(copy, POME_OP_cond));
    pome_arena_destroy(&arena);
    pome_program_destroy(&p);
}

/* ---- small programs ---- */

static void test_literals(void **state)
{
    (void)state;
    spec_model m = spec_model_create();
    pome_arena *a = m.arena;
    pome_program *p = NULL;
    pome_error err;
    Pome__Spec__Operation *op = spec_op(a, m.block, "concat");
    spec_attribute(a, op, "name", spec_text(a, "joined"));
    spec_attribute(a, op, "note", spec_text(a, "attributes that are no parameters are ignored"));
    Pome__Spec__Argument *values = spec_argument(a, op, "values");
    spec_bind_name(a, values, "x");
    spec_bind_value(a, values, spec_floats(a, SPEC_F32, 1, (int64_t[]){2}, 2, (float[]){1.5f, -2}));
    spec_bind_value(a, spec_argument(a, op, "axis"), spec_ints(a, SPEC_I32, 0, NULL, 1, (int32_t[]){0}));
    spec_bind_value(a, spec_argument(a, op, "interleave"), spec_tensor(a, SPEC_BOOL, 0, NULL));
    Pome__Spec__Value *flag = op->inputs[2]->value->arguments[0]->value;
    static protobuf_c_boolean yes[] = {1};
    static Pome__Spec__Bools bools;
    pome__spec__bools__init(&bools);
    bools.n_values = 1;
    bools.values = yes;
    flag->immediatevalue->tensor->value_case = POME__SPEC__TENSOR_VALUE__VALUE_BOOLS;
    flag->immediatevalue->tensor->bools = &bools;
    SPEC_ADD(a, op, outputs, spec_named(a, "y", spec_tensor_type(a, SPEC_F32, 1, (int64_t[]){4})));
    if (load_built(&p, &m, "", NULL, &err) != POME_OK)
        fail_msg("%s", err.message);
    const pome_op *got = p->functions[0]->body->ops[0];
    assert_string_equal(got->name, "joined");
    assert_int_equal(got->args[P_concat_values].count, 2);
    assert_ptr_equal(pome_op_arg(got, P_concat_values), p->functions[0]->inputs[0]);
    const pome_value *second = got->in[got->args[P_concat_values].first + 1];
    assert_true(((const float *)second->konst->t.data)[1] == -2);
    assert_int_equal(*(const uint8_t *)pome_op_arg(got, P_concat_interleave)->konst->t.data, 1);
    pome_program_destroy(&p);
}

static void test_list_literal(void **state)
{
    (void)state;
    spec_model m = spec_model_create();
    pome_program *p = NULL;
    pome_error err;
    spec_classify(&m, spec_text_list(m.arena, 2, (const char *const[]){"cat", "dog"}));
    if (load_built(&p, &m, "", NULL, &err) != POME_OK)
        fail_msg("%s", err.message);
    const pome_op *op = p->functions[0]->body->ops[0];
    const pome_value *v = pome_op_arg(op, P_classify_classes);
    assert_int_equal(v->type.kind, POME_TYPE_LIST);
    assert_int_equal(v->type.list_length, 2);
    assert_int_equal(v->konst->t.shape[0], 2);
    assert_string_equal(v->konst->strings[0], "cat");
    assert_string_equal(v->konst->strings[1], "dog");
    pome_program_destroy(&p);
}

/* A literal tuple stands for the bindings of a list parameter. */
static void test_tuple_literal(void **state)
{
    (void)state;
    spec_model m = spec_model_create();
    pome_program *p = NULL;
    pome_error err;
    Pome__Spec__Value *tuple = spec_text_list(m.arena, 2, (const char *const[]){"a", "b"});
    tuple->immediatevalue->value_case = POME__SPEC__IMMEDIATE_VALUE__VALUE_TUPLE;
    tuple->immediatevalue->tuple = tuple->immediatevalue->list;
    Pome__Spec__Operation *op = spec_op(m.arena, m.block, "make_list");
    spec_bind_value(m.arena, spec_argument(m.arena, op, "elem_shape"), tuple);
    SPEC_ADD(m.arena, op, outputs, spec_named(m.arena, "l", spec_text_list(m.arena, 0, NULL)->type));
    if (load_built(&p, &m, "", NULL, &err) != POME_OK)
        fail_msg("%s", err.message);
    const pome_op *got = p->functions[0]->body->ops[0];
    assert_int_equal(got->args[P_make_list_elem_shape].count, 2);
    assert_string_equal(got->in[got->args[P_make_list_elem_shape].first + 1]->konst->strings[0], "b");
    pome_program_destroy(&p);
}

static void test_empty_tensor(void **state)
{
    (void)state;
    spec_model m = spec_model_create();
    pome_program *p = NULL;
    pome_error err;
    spec_const(m.arena, m.block, "none", spec_tensor(m.arena, SPEC_F32, 2, (int64_t[]){3, 0}));
    spec_unary(m.arena, m.block, "relu", "none", "y");
    if (load_built(&p, &m, "", NULL, &err) != POME_OK)
        fail_msg("%s", err.message);
    const pome_const *k = p->functions[0]->body->ops[0]->in[0]->konst;
    assert_int_equal(pome_tensor_count(&k->t), 0);
    assert_non_null(k->t.data);
    pome_program_destroy(&p);
}

/* The specialization for the function's opset is the one that is read. */
static void test_specializations(void **state)
{
    (void)state;
    spec_model m = spec_model_create();
    pome_program *p = NULL;
    pome_error err;
    Pome__Spec__BlockEntry *other = SPEC_NEW(m.arena, Pome__Spec__BlockEntry, block_entry);
    other->key = (char *)(uintptr_t) "CoreML7";
    other->value = SPEC_NEW(m.arena, Pome__Spec__Block, block);
    spec_unary(m.arena, other->value, "no_such_operator", "x", "y");
    SPEC_ADD(m.arena, m.function, block_specializations, other);
    Pome__Spec__BlockEntry *first = m.function->block_specializations[0];
    m.function->block_specializations[0] = m.function->block_specializations[1];
    m.function->block_specializations[1] = first;
    spec_unary(m.arena, m.block, "relu", "x", "y");
    if (load_built(&p, &m, "", NULL, &err) != POME_OK)
        fail_msg("%s", err.message);
    assert_int_equal(p->functions[0]->body->n_ops, 1);
    pome_program_destroy(&p);
}

static void test_opset_names(void **state)
{
    (void)state;
    static const char *const names[] = {"CoreML5", "CoreML6", "CoreML7", "CoreML8", "CoreML9"};
    static const pome_opset opsets[] = {15, 16, 17, 18, 26};
    pome_opset got;
    for (int i = 0; i < 5; i++) {
        assert_true(pome_opset_parse(names[i], &got));
        assert_int_equal(got, opsets[i]);
        assert_string_equal(pome_opset_name(opsets[i]), names[i]);
    }
    assert_false(pome_opset_parse("CoreML", &got));
    assert_null(pome_opset_name((pome_opset)19));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_element_type),
        cmocka_unit_test(test_weights_are_views),
        cmocka_unit_test(test_golden_programs),
        cmocka_unit_test(test_states_and_symbols),
        cmocka_unit_test(test_multifunction_shares_weights),
        cmocka_unit_test(test_attribute_form),
        cmocka_unit_test(test_nested_blocks),
        cmocka_unit_test(test_clone),
        cmocka_unit_test(test_literals),
        cmocka_unit_test(test_list_literal),
        cmocka_unit_test(test_tuple_literal),
        cmocka_unit_test(test_empty_tensor),
        cmocka_unit_test(test_specializations),
        cmocka_unit_test(test_opset_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
