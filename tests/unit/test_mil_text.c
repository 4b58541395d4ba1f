/* The text of compiled models: both spellings, every type, errors with line and column, and that what is printed is
 * read as the same program. Texts of the first kind are spelled as the samples that are public. */
#include <dirent.h>
#include <float.h>
#include <math.h>

#include "unit/spec_builder.h"

#include "formats/mil_lexer.h"
#include "formats/mil_text.h"
#include "formats/mlmodelc.h"
#include "mil/print.h"
#include "unit/program_equal.h"

static pome_bytes bytes_of(const char *text)
{
    return (pome_bytes){(const uint8_t *)text, strlen(text)};
}

/* Reads text as a compiled model without side files; a program that was checked. */
static pome_status open_text(pome_mlpackage **package, pome_program **program, const char *text, const char *model_dir,
                             pome_error *err)
{
    const pome_mlmodelc_parts parts = {.text = bytes_of(text)};
    *program = NULL;
    *package = NULL;
    pome_status status = pome_mlpackage_open_compiled(package, &parts, model_dir, NULL, err);
    if (status == POME_OK)
        status = pome_program_load(program, *package, NULL, err);
    if (status == POME_OK)
        status = pome_program_verify(*program, err);
    return status;
}

#define HEAD "program(1.3)\n{\n    func main<ios18>(tensor<fp32, [2, 3]> x) {\n"
#define TAIL "        } -> (y);\n}\n"
#define BODY(statements) HEAD statements TAIL

/* ---- spellings ---- */

static void test_spellings_are_equal(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "program(1.0)\n"
        "[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{\"coremlc-version\", \"1\"}, {\"a\", \"b\"}})]\n"
        "{\n"
        "    func main<ios16>(tensor<fp16, [2, 3]> x) {\n"
        "            tensor<int32, []> axis = const()[name = tensor<string, []>(\"axis\"), val = tensor<int32, []>(-1)];\n"
        "            tensor<fp16, [2, 6]> y = concat(axis = axis, interleave = tensor<bool, []>(false), values = (x, x))"
        "[name = tensor<string, []>(\"joined\")];\n"
        "            tensor<fp16, [2, 6]> z = mul(x = y, y = tensor<fp16, []>(0x1.8p+1))[name = tensor<string, []>(\"z\")];\n"
        "        } -> (z);\n"
        "}\n",
        "program(1.3) { func main<ios16>(tensor<fp16, [2, 3]> x) {\n"
        "int32 axis = const()[val = int32(-1)];\n"
        "tensor<fp16, [2, 6]> y = concat(axis = axis, interleave = bool(false), values = (x, x))[name = string(\"joined\")];\n"
        "tensor<fp16,[2,6]>z=mul(x=y,y=fp16(0x1.8p+1));}->(z);}",
        "// by hand\nprogram(1)[buildInfo = dict<string, string>({})] { // {\n func main<CoreML6>(tensor<fp16, [2, 3]> x)[] {\n"
        "tensor<int32, []> axis = const()[val = int32(-1)];\n"
        "tensor<fp16, [2, 6]> y = concat(values = (x, x), interleave = tensor<bool, []>(false), axis = axis)[name = string(\"joined\")];\n"
        "tensor<fp16, [2, 6]> \"z\" = mul(x = \"y\", y = fp16(3.0));} -> (\"z\");}",
    };
    pome_program *p[3];
    pome_mlpackage *package[3];
    pome_error err;
    for (size_t i = 0; i < 3; i++)
        if (open_text(&package[i], &p[i], texts[i], "", &err) != POME_OK)
            fail_msg("%zu: %s", i, err.message);
    assert_int_equal(p[0]->functions[0]->opset, POME_OPSET_IOS16);
    assert_int_equal(package[0]->info.specification_version, 7);
    assert_string_equal(p[0]->functions[0]->body->ops[0]->name, "joined");
    assert_int_equal(p[0]->functions[0]->body->ops[1]->n_in, 2);
    same_program(p[0], p[1]);
    same_program(p[0], p[2]);
    for (size_t i = 0; i < 3; i++) {
        pome_program_destroy(&p[i]);
        pome_mlpackage_close(&package[i]);
    }
}

/* ---- numbers ---- */

static void test_numbers(void **state)
{
    (void)state;
    const struct {
        const char *text;
        double value;
    } cases[] = {
        {"0x1p+0", 1}, {"-0x1p+0", -1}, {"0x0p+0", 0}, {"0x1.f0a3d8p-1", 0x1.f0a3d8p-1}, {"0x1p-149", 0x1p-149},
        {"0x1.fffffffffffffp+1023", DBL_MAX}, {"0x1p-1074", 0x1p-1074}, {"0x.8p+1", 1}, {"0X1P3", 8}, {"0x10", 16},
        {"0x1.00000000000008p+0", 1}, {"0x1.000000000000080000000001p+0", 0x1.0000000000001p+0}, /* ties to even; above */
        {"1.5", 1.5}, {"-2", -2}, {"1e-3", 1e-3}, {"12.25E+1", 122.5}, {"+4", 4}, {".5", 0.5}, {"1e400", (double)INFINITY},
        {"inf", (double)INFINITY}, {"-INF", (double)-INFINITY}, {"infinity", (double)INFINITY}, {"0x1p+999999999999", (double)INFINITY},
        {"0x1p-999999999999", 0},
    };
    static const char *const wrong[] = {"", "-", "0x", "0xp+1", "1.2.3", "1e", "0x1p", "0x1g", "infinite", "e5", "1f", "0x1p+1.5"};
    double v;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (!pome_mil_float(pome_str_of(cases[i].text), &v))
            fail_msg("%s is no number", cases[i].text);
        if (memcmp(&v, &cases[i].value, sizeof v) != 0)
            fail_msg("%s gives %a, wanted %a", cases[i].text, v, cases[i].value);
    }
    assert_true(pome_mil_float(pome_str_of("-nan"), &v) && isnan(v));
    assert_true(pome_mil_float(pome_str_of("-0x0p+0"), &v) && signbit(v));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (pome_mil_float(pome_str_of(wrong[i]), &v))
            fail_msg("%s gives %a", wrong[i], v);
}

/* The constant called `name`, which the first operation of a program takes. */
static const pome_const *const_named(const pome_program *p, const char *name)
{
    const pome_block *b = p->functions[0]->body;
    for (uint32_t i = 0; i < b->n_ops; i++)
        for (uint32_t k = 0; k < b->ops[i]->n_in; k++)
            if (strcmp(b->ops[i]->in[k]->name, name) == 0)
                return b->ops[i]->in[k]->konst;
    fail_msg("%s is not used", name);
    return NULL;
}

static void test_literals(void **state)
{
    (void)state;
    static const char text[] =
        "program(1.3)\n{ func main<ios18>(tensor<fp32, [2]> x) {\n"
        "tensor<fp16, [5]> h = const()[val = tensor<fp16, [5]>([0x1p-24, -0x1.ffcp+15, inf, -inf, 0x1.004p+0])];\n"
        "tensor<int8, [2, 2]> c = const()[val = tensor<int8, [2, 2]>([[-128, 127], [0, -1]])];\n"
        "tensor<uint64, [1]> u = const()[val = tensor<uint64, [1]>([18446744073709551615])];\n"
        "tensor<int4, [3]> n = const()[val = tensor<int4, [3]>([-8, 7, -1])];\n"
        "tensor<uint3, [3]> t = const()[val = tensor<uint3, [3]>([5, 0, 7])];\n"
        "tensor<fp64, [1]> d = const()[val = tensor<fp64, [1]>([0x1.fffffffffffffp+1023])];\n"
        "tensor<bf16, [2]> b = const()[val = tensor<bf16, [2]>([0x1.fep+127, 0x1p-133])];\n"
        "tensor<fp8e4m3fn, [3]> e = const()[val = tensor<fp8e4m3fn, [3]>([448, -0x1p-9, nan])];\n"
        "tensor<fp8e5m2, [2]> f = const()[val = tensor<fp8e5m2, [2]>([57344, -inf])];\n"
        "tensor<bool, [2]> v = const()[val = tensor<bool, [2]>([true, false])];\n"
        "string s = const()[val = string(\"a \\\"quoted\\\" \\\\ \\n\\t\\r é\")];\n"
        "tensor<int32, [0, 2]> z = const()[val = tensor<int32, [0, 2]>([])];\n"
        "tensor<int16, [2]> i = const()[val = tensor<int16, [?]>([-32768, 32767])];\n"
        "list<string, 2> l = const()[val = list<string, 2>([\"one\", \"two\"])];\n"
        "tensor<fp32, [2]> y = relu(x = x);\n} -> (y);\n}";
    static const char *const names[] = {"h", "c", "u", "n", "t", "d", "b", "e", "f", "v", "s", "z", "i", "l"};
    const uint16_t halves[] = {1, 0xfbff, 0x7c00, 0xfc00, 0x3c01}, brains[] = {0x7f7f, 1};
    const struct {
        size_t size;
        const void *data;
    } wanted[] = {
        {10, halves}, {4, (uint8_t[]){0x80, 0x7f, 0, 0xff}}, {8, (uint64_t[]){UINT64_MAX}}, {2, (uint8_t[]){0x78, 0x0f}},
        {2, (uint8_t[]){0xc5, 0x01}}, {8, (double[]){DBL_MAX}}, {4, brains}, {3, (uint8_t[]){0x7e, 0x81, 0x7f}},
        {2, (uint8_t[]){0x7b, 0xfc}}, {2, (uint8_t[]){1, 0}}, {0, NULL}, {0, NULL}, {4, (int16_t[]){INT16_MIN, INT16_MAX}},
    };
    const pome_mlmodelc_parts parts = {.text = bytes_of(text)};
    pome_mlpackage *package = NULL;
    pome_error err;
    if (pome_mlpackage_open_compiled(&package, &parts, "", NULL, &err) != POME_OK)
        fail_msg("%s", err.message);
    /* No operator takes all these types: the constants are looked at as the loader would see them. */
    const Pome__Spec__Block *b = package->spec->mlprogram->functions[0]->value->block_specializations[0]->value;
    pome_arena *arena = pome_arena_create(0);
    pome_program *p = pome_program_create(0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const Pome__Spec__Operation *op = b->operations[i];
        assert_string_equal(op->outputs[0]->name, names[i]);
        Pome__Spec__Value *value = op->attributes[0]->value;
        if (i == 13) {
            assert_int_equal(value->immediatevalue->list->n_values, 2);
            continue;
        }
        Pome__Spec__TensorValue *v = value->immediatevalue->tensor;
        const void *data = NULL;
        size_t size = 0;
        int16_t shorts[2];
        uint8_t truths[2];
        switch (v->value_case) {
        case POME__SPEC__TENSOR_VALUE__VALUE_BYTES: data = v->bytes->values.data; size = v->bytes->values.len; break;
        case POME__SPEC__TENSOR_VALUE__VALUE_DOUBLES: data = v->doubles->values; size = 8 * v->doubles->n_values; break;
        case POME__SPEC__TENSOR_VALUE__VALUE_LONG_INTS: data = v->longints->values; size = 8 * v->longints->n_values; break;
        case POME__SPEC__TENSOR_VALUE__VALUE_BOOLS:
            for (int k = 0; k < 2; k++)
                truths[k] = v->bools->values[k] != 0;
            data = truths;
            size = v->bools->n_values;
            break;
        case POME__SPEC__TENSOR_VALUE__VALUE_INTS:
            size = 2 * v->ints->n_values;
            for (size_t k = 0; k < v->ints->n_values; k++)
                shorts[k] = (int16_t)v->ints->values[k];
            data = shorts;
            break;
        default:
            assert_int_equal(v->value_case, POME__SPEC__TENSOR_VALUE__VALUE_STRINGS);
            assert_string_equal(v->strings->values[0], "a \"quoted\" \\ \n\t\r é");
        }
        if (size != wanted[i].size || (size && memcmp(data, wanted[i].data, size) != 0))
            fail_msg("%s holds other bytes (%zu)", names[i], size);
    }
    pome_program_destroy(&p);
    pome_arena_destroy(&arena);
    pome_mlpackage_close(&package);
}

/* ---- errors ---- */

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "line 1, column 1: the text ends (cut short?), wanted program"},
        {"programme(1.0)", "line 1, column 1: found programme, wanted program"},
        {"program(2.0)", "line 1, column 9: found 2.0, wanted a version 1.N of the text format"},
        {"program(1.3)\n{\n  é", "line 3, column 3: found é, wanted func"},
        {"program(1.3) {} / x", "line 1, column 17: character / has no meaning here"},
        {"program(10.0)", "line 1, column 9: found 10.0, wanted a version"},
        {"program(1.3) {} x", "line 1, column 17: found x, wanted the end of the text"},
        {"program(1.3) {}", "the program has no function"},
        {"program(1.3) { \"\x80\"", "line 1, column 17: byte 0x80 is no UTF-8 text"},
        {"program(1.3) { func \"main", "line 1, column 21: the string that begins here has no end"},
        {"program(1.3) { func main<ios18>(tensor<fp17, [1]> x)", "line 1, column 40: found fp17, wanted an element type"},
        {"program(1.3) { func main<ios18>(tensor<fp16, [-1]> x)", "line 1, column 47: found -1, wanted a size or ?"},
        {"program(1.3) { func main<ios18>(tensr<fp16, [1]> x)", "line 1, column 33: found tensr, wanted a type"},
        {"program(1.3) { func main<ios18>(int32 x int32 y)", "line 1, column 41: found int32, wanted , or ) after an input"},
        {"program(1.3) { func main<ios18>(dict<int32> x)", "line 1, column 43: found >, wanted ,"},
        {BODY("  y = relu(x = x);\n"), "line 4, column 3: found y, wanted a type"},
        {BODY("  int32 y relu(x = x);\n"), "line 4, column 11: found relu, wanted ="},
        {BODY("  int32 y = relu(x x);\n"), "line 4, column 20: found x, wanted ="},
        {BODY("  int32 y = relu(x = x)\n"), "line 5, column 9: found }, wanted ; or a block after the operation"},
        {BODY("  int32 y = relu(x = 3);\n"), "line 4, column 22: found 3, wanted a name or a typed value"},
        {BODY("  int32 y = relu(x = (x, x);\n"), "line 4, column 28: found ;, wanted , or ) after an argument"},
        {BODY("  int32 y = const()[val = int32(\"3\")];\n"), "line 4, column 33: found the string \"3\", wanted an integer of type int32"},
        {BODY("  int8 y = const()[val = int8(128)];\n"), "line 4, column 31: found 128, wanted an integer of type int8"},
        {BODY("  uint4 y = const()[val = uint4(-1)];\n"), "line 4, column 33: found -1, wanted an integer of type uint4"},
        {BODY("  int32 y = const()[val = int32(0x1p+0)];\n"), "line 4, column 33: found 0x1p+0, wanted an integer"},
        {BODY("  fp16 y = const()[val = fp16(0x1p+16)];\n"), "line 4, column 31: found 0x1p+16, wanted a number of type fp16"},
        {BODY("  fp16 y = const()[val = fp16(one)];\n"), "line 4, column 31: found one, wanted a number of type fp16"},
        {BODY("  bool y = const()[val = bool(1)];\n"), "line 4, column 31: found 1, wanted true or false"},
        {BODY("  string y = const()[val = string(x)];\n"), "line 4, column 35: found x, wanted a string"},
        {BODY("  int32 y = const()[val = tensor<int32, [2]>([1, 2, 3])];\n"),
         "line 4, column 46: 3 values in the list of axis 0, its type says 2"},
        {BODY("  int32 y = const()[val = tensor<int32, [2, 2]>([[1, 2], [3]])];\n"),
         "line 4, column 58: 1 values in the list of axis 1, its type says 2"},
        {BODY("  int32 y = const()[val = tensor<int32, [2]>(1)];\n"), "line 4, column 46: found 1, wanted ["},
        {BODY("  int32 y = const()[val = tensor<int32, [*?]>(1)];\n"), "wanted a type of known rank for a literal"},
        {BODY("  int32 y = const()[val = list<int32, 2>([1])];\n"), "line 4, column 42: 1 values in a list, its type says 2"},
        {BODY("  int32 y = const()[val = tensor<fp16, [2]>(BLOBFILE(path = string(\"w\")))];\n"),
         "line 4, column 72: found ), wanted offset = ... too"},
        {BODY("  int32 y = const()[val = tensor<fp16, [2]>(BLOBFILE(file = string(\"w\")))];\n"),
         "line 4, column 54: found file, wanted path or offset"},
        {BODY("  int32 y = const()[val = tensor<fp16, [2]>(BLOBFILE(path = string(BLOBFILE(path = string(\"w\"), offset = "
              "uint64(64))), offset = uint64(64)))];\n"),
         "line 4, column 61: wanted a path"},
        {BODY("  int32 y = const()[val = tensor<fp16, [2]>(BLOBFILE(path = int32(3), offset = int32(1)))];\n"),
         "line 4, column 61: wanted a string, the path of a weight file"},
        {BODY("  int32 y = const()[val = tensor<fp16, [2]>(BLOBFILE(path = string(\"w\"), offset = int32(-64)))];\n"),
         "line 4, column 83: wanted an offset"},
        {BODY("  int32 y = const()[val = state<tensor<fp16, [2]>>([1, 2])];\n"), "wanted no value of this type"},
        {BODY("  int32 y = const()[name];\n"), "line 4, column 25: found ], wanted ="},
        {BODY("  int32 y ? const()\n"), "line 4, column 11: found ?, wanted ="},
        {BODY("  int32 y = &;\n"), "line 4, column 13: character & has no meaning here"},
        {HEAD "  int32 y = relu(x = x);\n", "line 5, column 1: the text ends (cut short?), wanted a statement or }"},
        {HEAD "} (y);\n}", "line 4, column 3: found (, wanted ->"},
        {"program(1.3) { func main<ios18>(tensor<fp32, [2]> x) { } -> (y); }", "function main: output y is not defined"},
        {"program(1.3) { func main<ios99>(tensor<fp32, [2]> x) { } -> (x); }", "opset \"ios99\", known are"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pome_mlpackage *package = NULL;
        pome_program *p = NULL;
        pome_error err = {0};
        pome_status status = open_text(&package, &p, cases[i].text, "", &err);
        if (status == POME_OK || status != err.code)
            fail_msg("%s: no error", cases[i].text);
        if (!strstr(err.message, cases[i].message))
            fail_msg("wanted: %s\ngot:    %s", cases[i].message, err.message);
        pome_program_destroy(&p);
        pome_mlpackage_close(&package);
    }
}

/* Types, literals and blocks in each other, as deep as is allowed and then deeper. */
static void test_nesting(void **state)
{
    (void)state;
    enum { N = 5000 };
    char *text = malloc((size_t)N * 40 + 1000), *to = text;
    pome_mlpackage *package = NULL;
    pome_program *p = NULL;
    pome_error err = {0};
    to += sprintf(to, "program(1.3) { func main<ios18>(");
    for (int i = 0; i < N; i++)
        to += sprintf(to, "state<");
    assert_int_equal(open_text(&package, &p, text, "", &err), POME_ERR_LIMIT);
    assert_non_null(strstr(err.message, "nested more than 100 deep"));
    to = text + sprintf(text, HEAD);
    for (int i = 0; i < N; i++)
        to += sprintf(to, "int32 y = cond(pred = x)\n() {\n");
    assert_int_equal(open_text(&package, &p, text, "", &err), POME_ERR_LIMIT);
    if (!strstr(err.message, "line 203, column 1: nested more than 100 deep"))
        fail_msg("%s", err.message);
    free(text);
}

/* ---- interface ---- */

static void test_flexible_shapes(void **state)
{
    (void)state;
    static const char text[] =
        "program(1.3) {\n"
        "func first<ios18>(tensor<fp32, [?, 4]> b, tensor<fp32, [?, 4]> a) [FlexibleShapeInformation = tuple<tuple<string, "
        "dict<string, tensor<int32, [?]>>>, tuple<string, dict<string, list<tensor<int32, [2]>, ?>>>>(((\"DefaultShapes\", "
        "{{\"a\", [2, 4]}, {\"b\", [2, 4]}}), (\"RangeDims\", {{\"a\", [[0, 8], [4, 4]]}, {\"b\", [[1, -1], [4, 4]]}})))] {\n"
        "  tensor<fp32, [?, 4]> y = add(x = a, y = b); } -> (y);\n"
        "func second<ios18>(tensor<int32, [1, ?]> ids, state<tensor<fp16, [2, 3]>> kv) [FlexibleShapeInformation = tuple<tuple<"
        "string, dict<string, tensor<int32, [?]>>>, tuple<string, dict<string, dict<string, tensor<int32, [?]>>>>>(((\"DefaultShapes\", "
        "{{\"ids\", [1, 8]}}), (\"EnumeratedShapes\", {{\"0a\", {{\"ids\", [1, 1]}}}, {\"0b\", {{\"ids\", [1, 8]}}}})))] {\n"
        "  tensor<fp16, [2, 3]> z = read_state(input = kv); } -> (z);\n"
        "func third<ios18>(tensor<int32, [?]> n) { tensor<int32, [?]> m = add(x = n, y = n); } -> (m);\n}";
    pome_mlpackage *package;
    pome_program *p;
    pome_error err;
    if (open_text(&package, &p, text, "", &err) != POME_OK)
        fail_msg("%s", err.message);
    const pome_model_info *info = &package->info;
    assert_int_equal(info->n_functions, 3);
    const pome_feature *b = &info->functions[0].inputs[0], *a = &info->functions[0].inputs[1];
    assert_string_equal(b->name, "b");
    assert_true(a->is_ranged && a->range[0].min == 0 && a->range[0].max == 8 && a->shape[0] == 2);
    assert_true(b->range[0].min == 1 && b->range[0].max == -1 && b->range[1].max == 4);
    assert_int_equal(info->functions[0].outputs[0].rank, -1);
    const pome_feature *ids = &info->functions[1].inputs[0], *kv = &info->functions[1].states[0];
    assert_int_equal(info->functions[1].n_states, 1);
    assert_true(ids->n_enumerated == 2 && ids->enumerated[1] == 8 && ids->enumerated[3] == 1);
    assert_true(kv->rank == 2 && kv->dtype == POME_DTYPE_F16 && kv->shape[1] == 3);
    const pome_feature *n = &info->functions[2].inputs[0];
    assert_true(n->is_ranged && n->range[0].min == 1 && n->range[0].max == -1);
    pome_program_destroy(&p);
    pome_mlpackage_close(&package);
}

/* coremldata.bin and metadata.json against a program whose inputs are sorted otherwise. */
static void test_side_files(void **state)
{
    (void)state;
    static const char text[] = "program(1.0) { func main<ios16>(tensor<fp16, [1, 10]> x, tensor<fp16, [1, 10]> y) {\n"
                               "tensor<fp16, [1, 10]> var_3 = mul(x = x, y = y); } -> (var_3); }";
    static const char metadata[] =
        "[{\"specificationVersion\" : 8, \"author\" : \"me\", \"license\" : 3, \"userDefinedMetadata\" : {\"k\" : \"v\"},\n"
        "\"inputSchema\" : [{\"name\" : \"y\", \"isOptional\" : \"1\", \"dataType\" : \"Float32\"}, {\"name\" : \"q\"}, 7]}]";
    /* The description of the published sample: inputs x and y, output var_3, all fp16 [1, 10]. */
    static const uint8_t description[] = {
        0x0a, 0x0f, 0x0a, 0x01, 'y',  0x1a, 0x0a, 0x2a, 0x08, 0x0a, 0x02, 0x01, 0x0a, 0x10, 0x90, 0x80, 0x04,
        0x0a, 0x0f, 0x0a, 0x01, 'x',  0x1a, 0x0a, 0x2a, 0x08, 0x0a, 0x02, 0x01, 0x0a, 0x10, 0x90, 0x80, 0x04,
        0x52, 0x13, 0x0a, 0x05, 'v',  'a',  'r',  '_',  '3',  0x1a, 0x0a, 0x2a, 0x08, 0x0a, 0x02, 0x01, 0x0a,
        0x10, 0x90, 0x80, 0x04};
    pome_arena *arena = pome_arena_create(0);
    size_t len = 0;
    uint8_t *binary = pome_mlmodelc_make_binary(&len, (pome_bytes){description, sizeof description}, 7, 1, arena);
    assert_int_equal(len, 83 + sizeof description + 16);
    pome_mlmodelc_parts parts = {.text = bytes_of(text)};
    for (int round = 0; round < 4; round++) {
        pome_mlpackage *package = NULL;
        pome_error err;
        parts.metadata = round & 1 ? bytes_of(metadata) : (pome_bytes){0};
        parts.binary = round & 2 ? (pome_bytes){binary, len} : (pome_bytes){0};
        if (pome_mlpackage_open_compiled(&package, &parts, "", NULL, &err) != POME_OK)
            fail_msg("%s", err.message);
        const pome_function_info *f = &package->info.functions[0];
        assert_int_equal(package->info.specification_version, round & 1 ? 8 : 7);
        assert_string_equal(f->inputs[0].name, round ? "y" : "x");
        assert_int_equal(f->inputs[0].dtype, round == 1 ? POME_DTYPE_F32 : POME_DTYPE_F16);
        assert_int_equal(f->inputs[0].is_optional, round == 1);
        assert_string_equal(package->info.author, round & 1 ? "me" : "");
        assert_string_equal(package->info.license, "");
        assert_int_equal(package->info.n_metadata, round & 1);
        pome_mlpackage_close(&package);
    }
    /* Cut anywhere, it is no description any more, and nothing is read beyond the end. */
    for (size_t n = 0; n < 83 + sizeof description; n++) {
        uint8_t *cut = malloc(n ? n : 1);
        memcpy(cut, binary, n);
        assert_null(pome_mlmodelc_find_description((pome_bytes){cut, n}, arena, 20));
        free(cut);
    }
    /* A header of another length is no obstacle. */
    assert_non_null(pome_mlmodelc_find_description((pome_bytes){binary + 33, len - 33}, arena, 20));
    pome_arena_destroy(&arena);
}

/* ---- round trips ---- */

static void round_trip(const char *name, const pome_mlpackage *package, pome_program *p, bool is_long)
{
    char *text = NULL, *again = NULL;
    pome_mlpackage *read_package = NULL;
    pome_program *q = NULL;
    pome_error err = {0};
    size_t len = 0;
    static const char *const build_info[] = {"k", "v", NULL};
    const pome_print_opts opts = {.is_long = is_long, .info = &package->info, .build_info = build_info};
    assert_int_equal(pome_program_text_as(&text, &len, p, &opts, &err), POME_OK);
    assert_non_null(strstr(text, is_long ? "program(1.0)\n[buildInfo = dict<tensor<string, []>, tensor<string, []>>({{\"k\", \"v\"}})]\n{\n"
                                         : "program(1.3)\n[buildInfo = dict<string, string>({{\"k\", \"v\"}})]\n{\n"));
    assert_true(!strstr(text, "string(\"") || !is_long);
    if (open_text(&read_package, &q, text, package->model_dir, &err) != POME_OK)
        fail_msg("%s: %s", name, err.message);
    /* The interface that follows from the text has its inputs sorted; the program's are compared in that order. */
    for (uint32_t i = 0; i < p->n_functions; i++) {
        pome_function *f = p->functions[i], *g = q->functions[i];
        for (uint32_t k = 0; k < f->n_inputs; k++)
            for (uint32_t at = k; at < f->n_inputs; at++)
                if (strcmp(f->inputs[at]->name, g->inputs[k]->name) == 0) {
                    pome_value *v = f->inputs[at];
                    f->inputs[at] = f->inputs[k];
                    f->inputs[k] = v;
                }
    }
    same_program(p, q);
    assert_int_equal(pome_program_text_as(&again, NULL, q, &opts, &err), POME_OK);
    assert_string_equal(again, text);
    free(text);
    free(again);
    pome_program_destroy(&q);
    pome_mlpackage_close(&read_package);
}

static void round_trips(const char *name, pome_mlpackage *package)
{
    pome_program *p = NULL;
    pome_error err = {0};
    if (pome_program_load(&p, package, NULL, &err) != POME_OK || pome_program_verify(p, &err) != POME_OK)
        fail_msg("%s: %s", name, err.message);
    round_trip(name, package, p, false);
    round_trip(name, package, p, true);
    pome_program_destroy(&p);
    pome_mlpackage_close(&package);
}

static void test_round_trips(void **state)
{
    (void)state;
    static const char *const names[] = {
        "apple/int4-block32", "apple/layer1-lut4-vector2", "apple/layer1-sparse50-int8", "apple/layer1-uint4-block32-asym",
        "chunks-lut4-split/logit-processor", "chunks-lut4-split/tiny-llama_chunk4", "enumerated/stateful-int4",
        "explicit-kv/static-int4", "loader/constants", "loader/control_flow", "multifunction/int4-block32",
        "nocache/layer1-logits-fixed64-lut6", "nocache/scores-range-fp32-tied", "snake/shift-fp16",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[512];
        pome_mlpackage *package = NULL;
        pome_error err = {0};
        snprintf(path, sizeof path, GOLDEN "%s.mlpackage", names[i]);
        if (pome_mlpackage_open(&package, path, NULL, &err) != POME_OK)
            fail_msg("%s: %s", names[i], err.message);
        round_trips(names[i], package);
    }
}

/* The seeds of fuzz_run: models of coremltools' builder, one for every operator. */
static void test_every_operator(void **state)
{
    (void)state;
    static const char folder[] = POME_SOURCE_DIR "/tests/fuzz/corpus/run";
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *e; (e = readdir(dir));) {
        char path[512], *data = NULL;
        size_t len = 0;
        pome_mlpackage *package = NULL;
        pome_error err = {0};
        snprintf(path, sizeof path, "%s/%.200s", folder, e->d_name);
        if (e->d_name[0] == '.' || pome_file_read(path, 1 << 20, &data, &len, &err) != POME_OK)
            continue;
        if (pome_mlpackage_open_bytes(&package, (pome_bytes){(const uint8_t *)data, len}, "", NULL, &err) == POME_OK) {
            pome_program *p = NULL; /* former crashes are among them: those that cannot be loaded */
            bool is_good = pome_program_load(&p, package, NULL, &err) == POME_OK && pome_program_verify(p, &err) == POME_OK;
            pome_program_destroy(&p);
            if (is_good)
                round_trips(e->d_name, package);
            else
                pome_mlpackage_close(&package);
            n += is_good;
        }
        free(data);
    }
    closedir(dir);
    assert_true(n > 100);
}

/* Constants of sibling blocks with one name, and a name that is no identifier. */
static void test_names_in_blocks(void **state)
{
    (void)state;
    static const char text[] =
        "program(1.3)\n{ func main<ios18>(bool p, tensor<fp32, [2]> x) {\n"
        "tensor<fp32, [2]> y = cond(pred = p)\n"
        "() { fp32 c = const()[val = fp32(0x1p+0)]; tensor<fp32, [2]> \"a b\" = add(x = x, y = c); } -> (\"a b\")\n"
        "() { fp32 c = const()[val = fp32(0x1p+1)]; tensor<fp32, [2]> d = add(x = x, y = c); } -> (d);\n"
        "fp32 d = const()[val = fp32(0x1p+2)];\n"
        "tensor<fp32, [2]> z = mul(x = y, y = d);\n} -> (z);\n}";
    static const char *const parts[] = {
        "fp32 c = const()[name = string(\"c\"), val = fp32(0x1p+0)];", "fp32 c_1 = const()[name = string(\"c_1\"), val = fp32(0x1p+1)];",
        "fp32 d_1 = const()[name = string(\"d_1\"), val = fp32(0x1p+2)];", "tensor<fp32, [2]> \"a b\" = add(x = x, y = c)",
        "} -> (\"a b\")", "mul(x = y, y = d_1)"};
    pome_mlpackage *package, *again_package;
    pome_program *p, *q;
    pome_error err;
    char *printed = NULL;
    if (open_text(&package, &p, text, "", &err) != POME_OK)
        fail_msg("%s", err.message);
    assert_int_equal(const_named(p, "d")->size_bytes, 4);
    assert_int_equal(pome_program_text(&printed, NULL, p, &err), POME_OK);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (!strstr(printed, parts[i]))
            fail_msg("no %s in:\n%s", parts[i], printed);
    if (open_text(&again_package, &q, printed, "", &err) != POME_OK)
        fail_msg("%s", err.message);
    same_program(p, q);
    free(printed);
    pome_program_destroy(&p);
    pome_program_destroy(&q);
    pome_mlpackage_close(&package);
    pome_mlpackage_close(&again_package);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spellings_are_equal), cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_literals),            cmocka_unit_test(test_errors),
        cmocka_unit_test(test_nesting),             cmocka_unit_test(test_flexible_shapes),
        cmocka_unit_test(test_side_files),          cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_names_in_blocks),
        cmocka_unit_test(test_every_operator),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
