/* What the loader must refuse: each case changes one thing of a good program or of its weight file. */
#include "unit/spec_builder.h"

static void test_unknown_operators_are_all_listed(void **state)
{
    (void)state;
    spec_model m = spec_model_create();
    pome_program *p = NULL;
    pome_error err;
    spec_unary(m.arena, m.block, "frobnicate", "x", "a");
    spec_unary(m.arena, m.block, "relu", "a", "b");
    spec_unary(m.arena, m.block, "twiddle", "b", "c");
    spec_unary(m.arena, m.block, "frobnicate", "c", "d");
    EXPECT_ERROR(load_built(&p, &m, "", NULL, &err), POME_ERR_UNSUPPORTED, err, "2 operators are not known: ");
    assert_non_null(strstr(err.message, "frobnicate (CoreML8, function main, #0 and 1 more)"));
    assert_non_null(strstr(err.message, "twiddle (CoreML8, function main, #2)"));

    m = spec_model_create();
    for (int i = 0; i < 500; i++)
        spec_unary(m.arena, m.block, pome_arena_printf(m.arena, "unknown_operator_number_%d", i), "x", "y");
    EXPECT_ERROR(load_built(&p, &m, "", NULL, &err), POME_ERR_UNSUPPORTED, err, "500 operators are not known: ");
    assert_non_null(strstr(err.message, " more"));
}

/* ---- weight files ---- */

static void put_weights(const char *dir, uint32_t code, uint64_t size, uint64_t start)
{
    uint8_t bytes[192] = {0};
    const uint64_t record[3] = {UINT64_C(0xDEADBEEF) | (uint64_t)code << 32, size, start};
    bytes[0] = 1;
    bytes[4] = 2;
    memcpy(bytes + 64, record, sizeof record); /* tests run on little-endian machines */
    put_file(dir, "weights/weight.bin", bytes, sizeof bytes);
}

static void test_lying_weights(void **state)
{
    (void)state;
    static const struct {
        uint32_t code;
        uint64_t size, start, offset;
        int32_t dtype;
        int64_t count;
        pome_status status;
        const char *message;
    } cases[] = {
        {2, 16, 128, 64, SPEC_F32, 4, POME_OK, NULL},
        {2, 16, 128, 64, SPEC_F32, 3, POME_ERR_FORMAT, "holds 4 elements, the program says 3"},
        {2, 16, 128, 64, SPEC_F32, 5, POME_ERR_FORMAT, "holds 4 elements, the program says 5"},
        {2, 16, 128, 64, SPEC_F16, 8, POME_ERR_FORMAT, "holds fp32, the program says fp16"},
        {1, 16, 128, 64, SPEC_F32, 4, POME_ERR_FORMAT, "holds fp16, the program says fp32"},
        {2, 16, 128, 0, SPEC_F32, 4, POME_ERR_FORMAT, "no blob can be at 0x0"},
        {2, 16, 128, 128, SPEC_F32, 4, POME_ERR_FORMAT, "found 0x00000000, wanted 0xdeadbeef"},
        {2, 16, 128, 192, SPEC_F32, 4, POME_ERR_FORMAT, "file ends after 192"},
        {2, 16, 128, UINT64_MAX, SPEC_F32, 4, POME_ERR_FORMAT, "no blob can be"},
        {2, 80, 128, 64, SPEC_F32, 20, POME_ERR_FORMAT, "needs 80 bytes"},
        {2, 16, UINT64_MAX - 8, 64, SPEC_F32, 4, POME_ERR_FORMAT, "needs 16 bytes"},
        {2, 16, 128, 64, SPEC_STRING, 4, POME_ERR_FORMAT, "holds fp32, the program says string"},
    };
    char dir[64];
    temp_dir(dir);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        spec_model m = spec_model_create();
        pome_program *p = NULL;
        pome_error err;
        put_weights(dir, cases[i].code, cases[i].size, cases[i].start);
        spec_const(m.arena, m.block, "w",
                   spec_blob(m.arena, cases[i].dtype, 1, &cases[i].count, "@model_path/weights/weight.bin",
                             cases[i].offset));
        pome_status status = load_built(&p, &m, dir, NULL, &err);
        if (cases[i].status == POME_OK)
            assert_int_equal(status, POME_OK);
        else
            EXPECT_ERROR(status, cases[i].status, err, cases[i].message);
        pome_program_destroy(&p);
    }
    temp_remove(dir);
}

static void test_missing_weights(void **state)
{
    (void)state;
    static const struct {
        const char *file, *message;
    } cases[] = {
        {"@model_path/weights/weight.bin", "main: w (const, #0): "},
        {"@model_path/weights/weight.bin", "the weight file is missing"},
        {"@model_path/../../weight.bin", "leaves the package"},
        {"/etc/passwd", "leaves the package"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        spec_model m = spec_model_create();
        pome_program *p = NULL;
        pome_error err;
        spec_const(m.arena, m.block, "w", spec_blob(m.arena, SPEC_F32, 1, (int64_t[]){4}, cases[i].file, 64));
        EXPECT_ERROR(load_built(&p, &m, "/nonexistent", NULL, &err), POME_ERR_FORMAT, err, cases[i].message);
    }
}

static void test_weights_cut_at_every_record(void **state)
{
    (void)state;
    char dir[64];
    pome_bytes model = get_file(GOLDEN "loader/constants.mlpackage/Data/com.apple.CoreML/model.mlmodel");
    pome_bytes weights = get_file(GOLDEN "loader/constants.mlpackage/Data/com.apple.CoreML/weights/weight.bin");
    temp_dir(dir);
    for (size_t len = 0; len < weights.len; len += len % 64 == 63 || len % 64 == 0 ? 1 : 31) {
        pome_mlpackage *package = NULL;
        pome_program *p = NULL;
        pome_error err = {0};
        put_file(dir, "weights/weight.bin", weights.ptr, len);
        assert_int_equal(pome_mlpackage_open_bytes(&package, model, dir, NULL, &err), POME_OK);
        EXPECT_ERROR(pome_program_load(&p, package, NULL, &err), POME_ERR_FORMAT, err, "download incomplete?");
        pome_mlpackage_close(&package);
    }
    temp_remove(dir);
    free((void *)(uintptr_t)model.ptr);
    free((void *)(uintptr_t)weights.ptr);
}

/* ---- one thing wrong ---- */

typedef void spoil_fn(spec_model *m);

static void wrong_version(spec_model *m) { m->model->mlprogram->version = 2; }
static void wrong_opset(spec_model *m)
{
    m->function->opset = m->function->block_specializations[0]->key = (char *)(uintptr_t) "CoreML99";
}
static void no_block(spec_model *m) { m->function->opset = (char *)(uintptr_t) "CoreML7"; }
static void empty_function(spec_model *m) { m->model->mlprogram->functions[0]->value = NULL; }
static void function_twice(spec_model *m) { spec_function(m, "main", "CoreML8"); }
static void block_inputs(spec_model *m)
{
    SPEC_ADD(m->arena, m->block, inputs, spec_named(m->arena, "z", spec_tensor_type(m->arena, SPEC_F32, 0, NULL)));
}
static void undefined_output(spec_model *m) { m->block->outputs[0] = (char *)(uintptr_t) "nowhere"; }
static void undefined_input(spec_model *m) { spec_unary(m->arena, m->block, "relu", "nowhere", "y"); }
static void used_before(spec_model *m)
{
    spec_unary(m->arena, m->block, "relu", "b", "a");
    spec_unary(m->arena, m->block, "relu", "a", "b");
}
static void used_by_itself(spec_model *m) { spec_unary(m->arena, m->block, "relu", "a", "a"); }
static void defined_twice(spec_model *m)
{
    spec_unary(m->arena, m->block, "relu", "x", "a");
    spec_unary(m->arena, m->block, "relu", "x", "a");
}
static void input_redefined(spec_model *m) { spec_unary(m->arena, m->block, "relu", "x", "x"); }
static void const_redefined(spec_model *m)
{
    for (int i = 0; i < 2; i++)
        spec_const(m->arena, m->block, "k", spec_ints(m->arena, SPEC_I32, 0, NULL, 1, (int32_t[]){i}));
}
static void nameless_result(spec_model *m) { spec_unary(m->arena, m->block, "relu", "x", ""); }
static void unknown_parameter(spec_model *m)
{
    Pome__Spec__Operation *op = spec_unary(m->arena, m->block, "relu", "x", "y");
    spec_bind_name(m->arena, spec_argument(m->arena, op, "slope"), "x");
}
static void parameter_twice(spec_model *m)
{
    Pome__Spec__Operation *op = spec_unary(m->arena, m->block, "relu", "x", "y");
    spec_bind_name(m->arena, spec_argument(m->arena, op, "x"), "x");
}
static void two_values(spec_model *m)
{
    Pome__Spec__Operation *op = spec_unary(m->arena, m->block, "relu", "x", "y");
    spec_bind_name(m->arena, op->inputs[0]->value, "x");
}
static void empty_binding(spec_model *m)
{
    Pome__Spec__Operation *op = spec_unary(m->arena, m->block, "relu", "x", "y");
    op->inputs[0]->value->arguments[0]->binding_case = POME__SPEC__BINDING__BINDING__NOT_SET;
}
static void blocks_of_relu(spec_model *m)
{
    Pome__Spec__Operation *op = spec_unary(m->arena, m->block, "relu", "x", "y");
    SPEC_ADD(m->arena, op, blocks, SPEC_NEW(m->arena, Pome__Spec__Block, block));
}
static Pome__Spec__Operation *add_cond(spec_model *m)
{
    Pome__Spec__Operation *op = spec_op(m->arena, m->block, "cond");
    for (int i = 0; i < 2; i++) {
        Pome__Spec__Block *b = SPEC_NEW(m->arena, Pome__Spec__Block, block);
        spec_unary(m->arena, b, "relu", "x", "inner");
        SPEC_ADD(m->arena, b, outputs, (char *)(uintptr_t) "inner");
        SPEC_ADD(m->arena, op, blocks, b);
    }
    SPEC_ADD(m->arena, op, outputs,
             spec_named(m->arena, "c", spec_tensor_type(m->arena, SPEC_F32, 1, (int64_t[]){2})));
    return op;
}
static void inner_value_outside(spec_model *m)
{
    add_cond(m);
    spec_unary(m->arena, m->block, "relu", "inner", "y");
}
static void shadowed(spec_model *m)
{
    spec_unary(m->arena, m->block, "relu", "x", "inner");
    add_cond(m);
}
static void result_in_own_block(spec_model *m)
{
    Pome__Spec__Operation *op = add_cond(m);
    op->blocks[1]->operations[0]->inputs[0]->value->arguments[0]->name = (char *)(uintptr_t) "c";
}
static void rank_and_dimensions(spec_model *m)
{
    Pome__Spec__Operation *op = spec_unary(m->arena, m->block, "relu", "x", "y");
    op->outputs[0]->type->tensortype->rank = 3;
}
static void high_rank(spec_model *m)
{
    Pome__Spec__Operation *op = spec_unary(m->arena, m->block, "relu", "x", "y");
    op->outputs[0]->type = spec_tensor_type(m->arena, SPEC_F32, 9, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1});
}
static void huge_size(spec_model *m)
{
    Pome__Spec__Operation *op = spec_unary(m->arena, m->block, "relu", "x", "y");
    op->outputs[0]->type->tensortype->dimensions[0]->constant->size = UINT64_MAX;
}
static void no_size(spec_model *m)
{
    Pome__Spec__Operation *op = spec_unary(m->arena, m->block, "relu", "x", "y");
    op->outputs[0]->type->tensortype->dimensions[0]->dimension_case = POME__SPEC__DIMENSION__DIMENSION__NOT_SET;
}
static void unknown_dtype(spec_model *m)
{
    Pome__Spec__Operation *op = spec_unary(m->arena, m->block, "relu", "x", "y");
    op->outputs[0]->type->tensortype->datatype = 99;
}
static void no_type(spec_model *m)
{
    Pome__Spec__Operation *op = spec_unary(m->arena, m->block, "relu", "x", "y");
    op->outputs[0]->type = NULL;
}
static void no_val(spec_model *m)
{
    Pome__Spec__Operation *op = spec_const(m->arena, m->block, "k", spec_text(m->arena, "t"));
    op->n_attributes = 0;
}
static void count_too_small(spec_model *m)
{
    spec_const(m->arena, m->block, "k", spec_ints(m->arena, SPEC_I32, 1, (int64_t[]){4}, 3, (int32_t[]){1, 2, 3}));
}
static void count_too_large(spec_model *m)
{
    spec_const(m->arena, m->block, "k", spec_ints(m->arena, SPEC_I32, 0, NULL, 2, (int32_t[]){1, 2}));
}
static void count_overflows(spec_model *m)
{
    spec_const(m->arena, m->block, "k",
               spec_ints(m->arena, SPEC_I32, 2, (int64_t[]){INT64_C(1) << 40, INT64_C(1) << 40}, 1, (int32_t[]){1}));
}
static void strides_overflow(spec_model *m)
{
    spec_const(m->arena, m->block, "k",
               spec_tensor(m->arena, SPEC_I32, 3, (int64_t[]){0, INT64_C(1) << 62, INT64_C(1) << 62}));
}
static void bytes_too_few(spec_model *m)
{
    spec_const(m->arena, m->block, "k", spec_bytes(m->arena, SPEC_I4, 1, (int64_t[]){3}, 1, "\x21"));
}
static void wrong_field(spec_model *m)
{
    spec_const(m->arena, m->block, "k", spec_floats(m->arena, SPEC_I32, 0, NULL, 1, (float[]){1}));
}
static void fp16_in_floats(spec_model *m)
{
    spec_const(m->arena, m->block, "k", spec_floats(m->arena, SPEC_F16, 0, NULL, 1, (float[]){1}));
}
static void int16_too_large(spec_model *m)
{
    spec_const(m->arena, m->block, "k", spec_ints(m->arena, SPEC_I16, 0, NULL, 1, (int32_t[]){32768}));
}
static void unknown_size_of_const(spec_model *m)
{
    spec_const(m->arena, m->block, "k", spec_ints(m->arena, SPEC_I32, 1, (int64_t[]){-1}, 1, (int32_t[]){1}));
}
static void const_of_other_shape(spec_model *m)
{
    Pome__Spec__Operation *op =
        spec_const(m->arena, m->block, "k", spec_ints(m->arena, SPEC_I32, 1, (int64_t[]){2}, 2, (int32_t[]){1, 2}));
    op->outputs[0]->type = spec_tensor_type(m->arena, SPEC_I32, 1, (int64_t[]){3});
}
static void const_of_other_type(spec_model *m)
{
    Pome__Spec__Operation *op =
        spec_const(m->arena, m->block, "k", spec_ints(m->arena, SPEC_I32, 0, NULL, 1, (int32_t[]){1}));
    op->outputs[0]->type = spec_tensor_type(m->arena, SPEC_F32, 0, NULL);
}
static void empty_scalar(spec_model *m)
{
    spec_const(m->arena, m->block, "k", spec_tensor(m->arena, SPEC_F32, 0, NULL));
}
static void list_of_other_length(spec_model *m)
{
    Pome__Spec__Value *v = spec_text_list(m->arena, 2, (const char *const[]){"a", "b"});
    v->type->listtype->length->constant->size = 3;
    spec_classify(m, v);
}
static void list_of_other_type(spec_model *m)
{
    Pome__Spec__Value *v = spec_text_list(m->arena, 2, (const char *const[]){"a", "b"});
    v->immediatevalue->list->values[1] = spec_ints(m->arena, SPEC_I32, 0, NULL, 1, (int32_t[]){1});
    spec_classify(m, v);
}
static void constexpr_of_input(spec_model *m)
{
    Pome__Spec__Operation *op = spec_op(m->arena, m->block, "constexpr_cast");
    spec_bind_name(m->arena, spec_argument(m->arena, op, "source_val"), "x");
    SPEC_ADD(m->arena, op, outputs,
             spec_named(m->arena, "y", spec_tensor_type(m->arena, SPEC_F32, 1, (int64_t[]){2})));
}
static void constexpr_attribute(spec_model *m)
{
    Pome__Spec__Operation *op = spec_op(m->arena, m->block, "constexpr_cast");
    spec_attribute(m->arena, op, "source_value", spec_text(m->arena, "t"));
}
static void constexpr_without_shape(spec_model *m)
{
    Pome__Spec__Operation *op = spec_op(m->arena, m->block, "constexpr_cast");
    SPEC_ADD(m->arena, op, outputs,
             spec_named(m->arena, "y", spec_tensor_type(m->arena, SPEC_F32, 1, (int64_t[]){-1})));
}
static void input_not_described(spec_model *m)
{
    SPEC_ADD(m->arena, m->function, inputs,
             spec_named(m->arena, "z", spec_tensor_type(m->arena, SPEC_F32, 0, NULL)));
}
static void described_by_other_name(spec_model *m)
{
    m->model->description->input[0]->name = (char *)(uintptr_t) "z";
}
static void described_as_result(spec_model *m)
{
    described_by_other_name(m);
    spec_unary(m->arena, m->block, "relu", "x", "z");
}
static void state_described_as_input(spec_model *m)
{
    Pome__Spec__ValueType *state = SPEC_NEW(m->arena, Pome__Spec__ValueType, value_type);
    state->type_case = POME__SPEC__VALUE_TYPE__TYPE_STATE_TYPE;
    state->statetype = SPEC_NEW(m->arena, Pome__Spec__StateType, state_type);
    state->statetype->wrappedtype = m->function->inputs[0]->type;
    m->function->inputs[0]->type = state;
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        spoil_fn *spoil;
        pome_status status;
        const char *message;
    } cases[] = {
        {wrong_version, POME_ERR_UNSUPPORTED, "program version 2"},
        {wrong_opset, POME_ERR_UNSUPPORTED, "function main: opset \"CoreML99\""},
        {no_block, POME_ERR_FORMAT, "function main says opset \"CoreML7\", but none of its 1 blocks is for it"},
        {empty_function, POME_ERR_FORMAT, "function main is empty"},
        {function_twice, POME_ERR_FORMAT, "function main: defined twice"},
        {block_inputs, POME_ERR_FORMAT, "its block has inputs of its own"},
        {undefined_output, POME_ERR_FORMAT, "\"nowhere\" is not defined"},
        {undefined_input, POME_ERR_FORMAT, "function main: y (relu, #0): parameter x: \"nowhere\" is not defined"},
        {used_before, POME_ERR_FORMAT, "\"b\" is not defined before its use"},
        {used_by_itself, POME_ERR_FORMAT, "\"a\" is not defined before its use"},
        {defined_twice, POME_ERR_FORMAT, "function main: a (relu, #1): a is defined a second time"},
        {input_redefined, POME_ERR_FORMAT, "x is defined a second time"},
        {const_redefined, POME_ERR_FORMAT, "k is defined a second time"},
        {nameless_result, POME_ERR_FORMAT, "a result without a name"},
        {unknown_parameter, POME_ERR_FORMAT, "y (relu, #0): relu has no parameter \"slope\""},
        {parameter_twice, POME_ERR_FORMAT, "parameter x is given twice"},
        {two_values, POME_ERR_FORMAT, "parameter x is given 2 values, wanted one"},
        {empty_binding, POME_ERR_FORMAT, "neither a name nor a value"},
        {blocks_of_relu, POME_ERR_FORMAT, "1 nested blocks, wanted none"},
        {inner_value_outside, POME_ERR_FORMAT, "inner is used outside of the block that defines it"},
        {shadowed, POME_ERR_FORMAT, "inner is defined a second time"},
        {result_in_own_block, POME_ERR_FORMAT, "\"c\" is not defined before its use"},
        {rank_and_dimensions, POME_ERR_FORMAT, "rank 3 with 1 sizes"},
        {high_rank, POME_ERR_UNSUPPORTED, "rank 9, at most 8"},
        {huge_size, POME_ERR_FORMAT, "size 18446744073709551615 of an axis"},
        {no_size, POME_ERR_FORMAT, "an axis without a size"},
        {unknown_dtype, POME_ERR_FORMAT, "element type 99 is not known"},
        {no_type, POME_ERR_FORMAT, "a value without a type"},
        {no_val, POME_ERR_FORMAT, "no value (attribute val)"},
        {count_too_small, POME_ERR_FORMAT, "3 ints of an immediate int32 value, its type needs 4"},
        {count_too_large, POME_ERR_FORMAT, "2 ints of an immediate int32 value, its type needs 1"},
        {count_overflows, POME_ERR_FORMAT, "more elements than 64 bits can count"},
        {strides_overflow, POME_ERR_FORMAT, "more elements than 64 bits can count"},
        {bytes_too_few, POME_ERR_FORMAT, "1 bytes of an immediate int4 value, its type needs 2"},
        {wrong_field, POME_ERR_FORMAT, "a int32 value in floats, wanted in ints"},
        {fp16_in_floats, POME_ERR_FORMAT, "a fp16 value in floats, wanted in bytes"},
        {int16_too_large, POME_ERR_FORMAT, "32768 in an int16 value"},
        {unknown_size_of_const, POME_ERR_FORMAT, "a constant with an axis of unknown size"},
        {const_of_other_shape, POME_ERR_FORMAT, "axis 0 of its value has size 2, its type says 3"},
        {const_of_other_type, POME_ERR_FORMAT, "its value is int32 of rank 0, its type says fp32"},
        {empty_scalar, POME_ERR_FORMAT, "a fp32 value in no field"},
        {list_of_other_length, POME_ERR_FORMAT, "a list of 2 elements"},
        {list_of_other_type, POME_ERR_FORMAT, "element 1 of a list has another type"},
        {constexpr_of_input, POME_ERR_FORMAT, "its input x is no constant"},
        {constexpr_attribute, POME_ERR_FORMAT, "has no parameter \"source_value\""},
        {constexpr_without_shape, POME_ERR_FORMAT, "the shape of its result y is not given"},
        {input_not_described, POME_ERR_FORMAT, "2 inputs and states, the description 1 and 0"},
        {described_by_other_name, POME_ERR_FORMAT, "z is described as an input, but the program has no input"},
        {described_as_result, POME_ERR_FORMAT, "z is described as an input, but the program has no input"},
        {state_described_as_input, POME_ERR_FORMAT, "input x is a state to the program, a tensor in the description"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        spec_model m = spec_model_create();
        pome_program *p = NULL;
        pome_error err;
        cases[i].spoil(&m);
        EXPECT_ERROR(load_built(&p, &m, "", NULL, &err), cases[i].status, err, cases[i].message);
        assert_null(p);
    }
}

static void test_limits(void **state)
{
    (void)state;
    pome_program *p = NULL;
    pome_error err;
    spec_model m = spec_model_create();
    for (int i = 0; i < 20; i++)
        spec_unary(m.arena, m.block, "relu", "x", pome_arena_printf(m.arena, "y%d", i));
    const pome_load_limits few_ops = {.n_ops = 19};
    EXPECT_ERROR(load_built(&p, &m, "", &few_ops, &err), POME_ERR_LIMIT, err, "more than 19 operations");

    m = spec_model_create();
    Pome__Spec__Block *b = m.block;
    for (int i = 0; i < 6; i++) {
        Pome__Spec__Operation *op = spec_op(m.arena, b, "cond");
        b = SPEC_NEW(m.arena, Pome__Spec__Block, block);
        SPEC_ADD(m.arena, op, blocks, b);
    }
    const pome_load_limits shallow = {.block_depth = 5};
    EXPECT_ERROR(load_built(&p, &m, "", &shallow, &err), POME_ERR_LIMIT, err, "nested more than 5 deep");

    m = spec_model_create();
    spec_unary(m.arena, m.block, "relu", "x", "y");
    const pome_load_limits small = {.arena_bytes = 64};
    EXPECT_ERROR(load_built(&p, &m, "", &small, &err), POME_ERR_NOMEM, err, "out of memory, or more than the limit");
    assert_null(p);
}

/* Every byte of a program changed: an error or a program, nothing else. */
static void test_flipped_bytes(void **state)
{
    (void)state;
    pome_bytes file = get_file(GOLDEN "loader/control_flow.mlpackage/Data/com.apple.CoreML/model.mlmodel");
    uint8_t *bytes = (uint8_t *)(uintptr_t)file.ptr;
    uint32_t n_loaded = 0;
    for (size_t i = 0; i < file.len; i++) {
        for (int bit = 0; bit < 8; bit += 3) {
            pome_mlpackage *package = NULL;
            pome_program *p = NULL;
            pome_error err = {0};
            bytes[i] ^= (uint8_t)(1 << bit);
            if (pome_mlpackage_open_bytes(&package, file, "", NULL, &err) == POME_OK &&
                pome_program_load(&p, package, NULL, &err) == POME_OK)
                n_loaded++;
            else
                assert_true(err.code != POME_OK && err.message[0]);
            pome_program_destroy(&p);
            pome_mlpackage_close(&package);
            bytes[i] ^= (uint8_t)(1 << bit);
        }
    }
    assert_true(n_loaded > 0); /* docstrings and names may change */
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_operators_are_all_listed),
        cmocka_unit_test(test_lying_weights),
        cmocka_unit_test(test_missing_weights),
        cmocka_unit_test(test_weights_cut_at_every_record),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_flipped_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
