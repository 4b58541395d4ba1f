/* Programs as MIL text. The spelling is that of compilers' output (program(1.3)). */
#include "unit/spec_builder.h"

#include "mil/print.h"

static char *text_of(const char *name)
{
    char path[512], *text = NULL;
    size_t len = 0;
    pome_mlpackage *package = NULL;
    pome_program *p = NULL;
    pome_error err = {0};
    snprintf(path, sizeof path, GOLDEN "%s.mlpackage", name);
    assert_int_equal(pome_mlpackage_open(&package, path, NULL, &err), POME_OK);
    assert_int_equal(pome_program_load(&p, package, NULL, &err), POME_OK);
    assert_int_equal(pome_program_text(&text, &len, p, &err), POME_OK);
    assert_int_equal(strlen(text), len);
    pome_program_destroy(&p);
    pome_mlpackage_close(&package);
    return text;
}

static void test_whole_text(void **state)
{
    (void)state;
    spec_model m = spec_model_create();
    pome_program *p = NULL;
    pome_error err;
    char *text = NULL;
    pome_arena *a = m.arena;
    spec_const(a, m.block, "unused", spec_text(a, "no one asks for it"));
    spec_const(a, m.block, "axis", spec_ints(a, SPEC_I32, 0, NULL, 1, (int32_t[]){-1}));
    Pome__Spec__Operation *op = spec_op(a, m.block, "concat");
    Pome__Spec__Argument *values = spec_argument(a, op, "values");
    spec_bind_name(a, values, "x");
    spec_bind_value(a, values,
                    spec_floats(a, SPEC_F32, 2, (int64_t[]){2, 2}, 4, (float[]){0.5f, -1e30f, 0x1p-149f, 0}));
    spec_bind_name(a, spec_argument(a, op, "axis"), "axis");
    spec_attribute(a, op, "name", spec_text(a, "a \"joined\" one\n"));
    SPEC_ADD(a, op, outputs, spec_named(a, "y", spec_tensor_type(a, SPEC_F32, 1, (int64_t[]){-1})));
    spec_bind_name(a, spec_argument(a, spec_unary(a, m.block, "softmax", "y", "z"), "axis"), "axis"); /* again */
    m.block->outputs[0] = (char *)(uintptr_t) "z";
    if (load_built(&p, &m, "", NULL, &err) != POME_OK)
        fail_msg("%s", err.message);
    assert_int_equal(pome_program_text(&text, NULL, p, &err), POME_OK);
    assert_string_equal(text,
                        "program(1.3)\n"
                        "{\n"
                        "    func main<ios18>(tensor<fp32, [2]> x) {\n"
                        "            int32 axis = const()[name = string(\"axis\"), val = int32(-1)];\n"
                        "            tensor<fp32, [?]> y = concat(axis = axis, values = (x, tensor<fp32, [2, 2]>("
                        "[[0x1p-1, -0x1.93e594p+99], [0x1p-149, 0x0p+0]])))"
                        "[name = string(\"a \\\"joined\\\" one\\n\")];\n"
                        "            tensor<fp32, [2]> z = softmax(axis = axis, x = y);\n"
                        "        } -> (z);\n"
                        "}\n");
    free(text);
    pome_program_destroy(&p);
}

static void test_constants(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "tensor<fp16, [13]> imm_float16 = const()[name = string(\"imm_float16\"), val = tensor<fp16, [13]>("
        "[0x1.ffcp+15, 0x1p-24, ",
        "tensor<fp64, [13]>([0x1.fffffffffffffp+1023, 0x1p-1074, ",
        "tensor<int4, [13]> imm_int4 = const()[name = string(\"imm_int4\"), val = tensor<int4, [13]>("
        "[-8, 7, -7, -5, 0, 2, -2, -2, 7, 3, -3, 6, 0])];",
        "tensor<uint3, [13]>([0, 7, 5, 0, 4, 1, 1, 0, 0, 6, 0, 0, 1])];",
        "tensor<bool, [13]>([true, false, false, false, true, ",
        "tensor<int64, [13]>([-9223372036854775808, 9223372036854775807, ",
        "tensor<uint64, [13]>([0, 18446744073709551615, ",
        "tensor<fp16, [1, 13]> blob_float16 = const()[name = string(\"blob_float16\"), val = tensor<fp16, [1, 13]>("
        "BLOBFILE(path = string(\"@model_path/weights/weight.bin\"), offset = uint64(64)))];",
    };
    char *text = text_of("loader/constants");
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        if (!strstr(text, lines[i]))
            fail_msg("no line has: %s", lines[i]);
    free(text);
}

static void test_blocks_states_literals(void **state)
{
    (void)state;
    static const struct {
        const char *package, *line;
    } cases[] = {
        {"loader/control_flow", "tensor<fp32, [2, 3]> out = cond(pred = greater_0)\n            () {\n"
                                "                tensor<fp32, [2, 3]> relu_0 = relu(x = while_loop_0_1);\n"
                                "            } -> (relu_0)\n            () {\n"
                                "                tensor<fp32, [2, 3]> abs_0 = abs(x = while_loop_0_1);\n"
                                "            } -> (abs_0);\n"},
        {"loader/control_flow", "func main<ios17>(tensor<int32, [1]> n, tensor<fp32, [2, 3]> x) {\n"},
        {"apple/int4-block32", "func main<ios18>(tensor<fp16, [1, 1, ?, ?]> causalMask, tensor<int32, [1, ?]> inputIds, "
                               "state<tensor<fp16, [4, 1, 2, 128, 16]>> keyCache, "},
        {"apple/int4-block32", "            write_state(data = "},
        {"chunks-lut4-split/tiny-llama_chunk4", "val = fp16(0x1.5p-17)];\n"},
        {"chunks-lut4-split/tiny-llama_chunk4",
         "constexpr_lut_to_dense()[indices = tensor<uint8, [8192]>(BLOBFILE(path = "
         "string(\"@model_path/weights/weight.bin\"), offset = uint64(256))), lut = tensor<fp16, [16]>(BLOBFILE("},
        {"chunks-lut4-split/tiny-llama_chunk4", "shape = tensor<uint32, [4]>([256, 64, 1, 1])];\n"},
        {"multifunction/int4-block32", "    func adapter<ios18>("},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *text = text_of(cases[i].package);
        if (!strstr(text, cases[i].line))
            fail_msg("%s lacks: %s", cases[i].package, cases[i].line);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_text),
        cmocka_unit_test(test_constants),
        cmocka_unit_test(test_blocks_states_literals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
