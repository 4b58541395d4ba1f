/* Type inference: against coremltools' (data/infer_cases.json, made by tests/oracle/make_infer_cases.py), and where
 * we decide ourselves. */
#include "program_builder.h"

#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

/* ---- coremltools' cases ---- */

static pome_dtype dtype_named(const char *name)
{
    if (strcmp(name, "str") == 0)
        name = "string";
    for (int d = 0; d < POME_DTYPE_COUNT; d++)
        if (strcmp(pome_dtype_name((pome_dtype)d), name) == 0)
            return (pome_dtype)d;
    fail_msg("no dtype %s", name);
    return POME_DTYPE_NONE;
}

static int32_t read_shape(const json_t *spec, int64_t *dim)
{
    const json_t *shape = json_object_get(spec, "shape");
    for (size_t i = 0; i < json_array_size(shape); i++)
        dim[i] = json_integer_value(json_array_get(shape, i));
    return (int32_t)json_array_size(shape);
}

static double number(const json_t *v)
{
    return json_is_boolean(v) ? (double)json_is_true(v) : json_number_value(v);
}

static pome_value *value_from(pome_function *fn, const json_t *spec)
{
    int64_t dim[16];
    double values[64];
    int32_t rank = read_shape(spec, dim);
    pome_dtype dtype = dtype_named(json_string_value(json_object_get(spec, "dtype")));
    const json_t *value = json_object_get(spec, "value");
    if (dtype == POME_DTYPE_STRING)
        return make_string(fn, json_string_value(json_array_get(value, 0)));
    assert_true(json_array_size(value) <= 64);
    for (size_t i = 0; i < json_array_size(value); i++)
        values[i] = number(json_array_get(value, i));
    if (value || json_object_get(spec, "const"))
        return make_const(fn, dtype, rank, dim, value ? values : NULL);
    return make_input(fn, "in", dtype, rank, dim);
}

static bool is_given(const json_t *c, const char *name)
{
    size_t i;
    json_t *given;
    json_array_foreach(json_object_get(c, "given"), i, given)
        if (strcmp(json_string_value(given), name) == 0)
            return true;
    return false;
}

static pome_op *op_from(pome_function *fn, json_t *c, bool all)
{
    const pome_opdef *def = pome_opdef_find(json_string_value(json_object_get(c, "op")));
    op_args args = {0};
    const char *name;
    json_t *values, *value;
    size_t i;
    assert_non_null(def);
    json_object_foreach(json_object_get(c, "inputs"), name, values) {
        if (!all && !is_given(c, name))
            continue;
        json_array_foreach(values, i, value)
            add_arg(&args, def, name, value_from(fn, value));
    }
    fn->next_symbol = -100; /* below those of the cases */
    uint32_t n_out = json_object_get(c, "out") ? (uint32_t)json_array_size(json_object_get(c, "out"))
                     : def->n_out >= 0         ? (uint32_t)def->n_out
                                               : 2;
    return make_op_from(fn, fn->body, def, &args, n_out);
}

/* Numbers and symbols of the inputs must be the same; a symbol that coremltools made may be known to us. */
static bool type_matches(const json_t *want, const pome_type *t)
{
    const json_t *shape = json_object_get(want, "shape");
    if (t->dtype != dtype_named(json_string_value(json_object_get(want, "dtype"))) ||
        t->rank != (int32_t)json_array_size(shape))
        return false;
    for (int32_t i = 0; i < t->rank; i++) {
        const json_t *d = json_array_get(shape, (size_t)i);
        if (json_is_null(d) ? t->dim[i] >= 0 : t->dim[i] != json_integer_value(d))
            return false;
    }
    return true;
}

static bool outputs_match(const json_t *c, const pome_op *op, const char *how)
{
    for (uint32_t i = 0; i < op->n_out; i++) {
        json_t *want = json_array_get(json_object_get(c, "out"), i);
        if (!type_matches(want, &op->out[i]->type)) {
            char buf[200], *text = json_dumps(c, JSON_COMPACT);
            print_error("%s: output %u is %s in %s\n", how, i, pome_type_print(&op->out[i]->type, buf, sizeof buf), text);
            free(text);
            return false;
        }
    }
    return true;
}

/* As at run time: no symbols to give, all sizes known. The types must come out as at load. */
static bool agrees_at_run_time(const json_t *c, const pome_function *fn, pome_op *op)
{
    const pome_type *types[64];
    const pome_tensor *values[64];
    pome_type out[16] = {0};
    pome_error err;
    for (uint32_t i = 0; i < op->n_in; i++) {
        const pome_const *k = op->in[i]->konst;
        types[i] = &op->in[i]->type;
        values[i] = k && !k->strings ? &k->t : NULL;
        for (int32_t d = 0; d < types[i]->rank; d++)
            if (types[i]->dim[d] < 0)
                return true;
        uint32_t p = 0;
        while (op->args[p].first + op->args[p].count <= i)
            p++;
        if (op->def->params[p].flags & POME_P_VALUE && !k)
            return true;
    }
    if (op->def->flags & POME_OP_DATA_SHAPE)
        return true;
    pome_infer infer = {.op = op, .opset = fn->opset, .in = types, .value = values, .out = out};
    if (pome_infer_op(&infer, &err) != POME_OK) {
        print_error("at run time: %s\n", err.message);
        return false;
    }
    for (uint32_t i = 0; i < op->n_out; i++)
        if (!type_matches(json_array_get(json_object_get(c, "out"), i), &out[i]))
            return false;
    return true;
}

static bool case_passes(json_t *c, bool all)
{
    pome_program *program;
    pome_error err = {0};
    pome_function *fn = make_function(&program, (pome_opset)json_integer_value(json_object_get(c, "opset")));
    pome_op *op = op_from(fn, c, all);
    pome_status status = pome_program_verify(program, &err);
    bool wanted = !json_is_true(json_object_get(c, "reject")), passes = (status == POME_OK) == wanted;
    if (!passes) {
        char *text = json_dumps(c, JSON_COMPACT);
        print_error("%s in %s\n", status == POME_OK ? "accepted" : err.message, text);
        free(text);
    } else if (wanted) {
        passes = outputs_match(c, op, all ? "all inputs" : "given inputs") && agrees_at_run_time(c, fn, op);
    }
    pome_program_destroy(&program);
    return passes;
}

static void test_coremltools_cases(void **state)
{
    (void)state;
    json_error_t error;
    json_t *cases = json_load_file(POME_SOURCE_DIR "/tests/unit/data/infer_cases.json", 0, &error), *c;
    size_t i, n_failed = 0;
    assert_non_null(cases);
    assert_true(json_array_size(cases) >= 800);
    json_array_foreach(cases, i, c)
        n_failed += !case_passes(c, true) || !case_passes(c, false);
    json_decref(cases);
    assert_int_equal(n_failed, 0);
}

/* ---- contents ---- */

static void test_int_at(void **state)
{
    (void)state;
    const int8_t i8[] = {-1, 2};
    const uint8_t u8[] = {255, 2}, flags[] = {0, 7};
    const int16_t i16[] = {-300, 2};
    const uint16_t u16[] = {65535, 2};
    const int32_t i32[] = {INT32_MIN, 2, 3, 4, 5, 6};
    const uint32_t u32[] = {UINT32_MAX, 2};
    const int64_t i64[] = {INT64_MIN, 2}, n = 2;
    const uint64_t u64[] = {UINT64_MAX, 2};
    const float f32[] = {-1.75f, 2.5f}, big[] = {1e30f, -1e30f};
    const struct {
        const void *data;
        pome_dtype dtype;
        int64_t first, second;
    } cases[] = {
        {i8, POME_DTYPE_I8, -1, 2},         {u8, POME_DTYPE_U8, 255, 2},         {flags, POME_DTYPE_BOOL, 0, 1},
        {i16, POME_DTYPE_I16, -300, 2},     {u16, POME_DTYPE_U16, 65535, 2},     {i32, POME_DTYPE_I32, INT32_MIN, 2},
        {u32, POME_DTYPE_U32, UINT32_MAX, 2}, {i64, POME_DTYPE_I64, INT64_MIN, 2}, {u64, POME_DTYPE_U64, INT64_MAX, 2},
        {f32, POME_DTYPE_F32, -1, 2},       {big, POME_DTYPE_F32, INT64_MAX, INT64_MIN},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pome_tensor t = pome_tensor_borrow((void *)(uintptr_t)cases[i].data, cases[i].dtype, 1, &n);
        assert_int_equal(pome_tensor_int_at(&t, 0), cases[i].first);
        assert_int_equal(pome_tensor_int_at(&t, 1), cases[i].second);
    }
    pome_tensor t = pome_tensor_borrow((void *)(uintptr_t)i32, POME_DTYPE_I32, 2, DIMS(2, 3)), turned;
    assert_int_equal(pome_tensor_transpose(&turned, &t, (const int32_t[]){1, 0}, NULL), POME_OK);
    assert_int_equal(pome_tensor_int_at(&t, 4), 5);
    assert_int_equal(pome_tensor_int_at(&turned, 1), 4); /* [1, 4], [2, 5], [3, 6] */
    assert_int_equal(pome_tensor_int_at(&turned, 4), 3);
    t = pome_tensor_borrow((void *)(uintptr_t)i32, POME_DTYPE_I32, 0, NULL);
    assert_int_equal(pome_tensor_int_at(&t, 0), INT32_MIN);
}

/* Bit streams, least significant bit first. */
static void test_int_at_sub_byte(void **state)
{
    (void)state;
    uint8_t bytes[] = {0xb4, 0x5e, 0x93}; /* 0101 1110 1011 0100 from the high bit, then 1001 0011 */
    const struct {
        pome_dtype dtype;
        int64_t want[6];
    } cases[] = {
        {POME_DTYPE_U1, {0, 0, 1, 0, 1, 1}}, {POME_DTYPE_U2, {0, 1, 3, 2, 2, 3}}, {POME_DTYPE_U3, {4, 6, 2, 7, 5, 6}},
        {POME_DTYPE_U4, {4, 11, 14, 5, 3, 9}}, {POME_DTYPE_I4, {4, -5, -2, 5, 3, -7}}, {POME_DTYPE_U6, {52, 58, 53, 36, -1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pome_tensor t = pome_tensor_borrow(bytes, cases[i].dtype, 1, DIMS(cases[i].dtype == POME_DTYPE_U6 ? 4 : 6));
        for (int64_t k = 0; k < t.shape[0]; k++)
            assert_int_equal(pome_tensor_int_at(&t, k), cases[i].want[k]);
    }
}

static void test_float_at(void **state)
{
    (void)state;
    const uint16_t f16[] = {0x3c00, 0xc100}, bf16[] = {0x3f80, 0xc020};
    const float f32[] = {1, -2.5f};
    const double f64[] = {1, -2.5};
    const uint8_t e4m3[] = {0x38, 0xc2}, e5m2[] = {0x3c, 0xc1}, u8[] = {1, 200};
    const struct {
        const void *data;
        pome_dtype dtype;
        double second;
    } cases[] = {
        {f16, POME_DTYPE_F16, -2.5},     {bf16, POME_DTYPE_BF16, -2.5},    {f32, POME_DTYPE_F32, -2.5},
        {f64, POME_DTYPE_F64, -2.5},     {e4m3, POME_DTYPE_F8E4M3FN, -2.5}, {e5m2, POME_DTYPE_F8E5M2, -2.5},
        {u8, POME_DTYPE_U8, 200},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pome_tensor t = pome_tensor_borrow((void *)(uintptr_t)cases[i].data, cases[i].dtype, 1, DIMS(2));
        assert_true(pome_tensor_float_at(&t, 0) == 1);
        assert_true(pome_tensor_float_at(&t, 1) == cases[i].second);
    }
}

/* ---- slicing ---- */

static void test_slices_as_python_has_them(void **state)
{
    (void)state;
    FILE *f = fopen(POME_SOURCE_DIR "/tests/unit/data/slice_cases.txt", "r");
    pome_program *program;
    pome_function *fn = make_function(&program, POME_OPSET_IOS17);
    pome_value *none = make_ints(fn, 0, NULL);
    pome_op *op = make_op(fn, fn->body, "slice_by_index", 1, "x", none, "begin", none, "end", none, NULL);
    long long n, step, length, first, last;
    char b[16], e[16];
    int n_cases = 0;
    assert_non_null(f);
    for (; fscanf(f, "%lld %15s %15s %lld %lld %lld %lld", &n, b, e, &step, &length, &first, &last) == 7; n_cases++) {
        int32_t begin = (int32_t)strtol(b, NULL, 10), end = (int32_t)strtol(e, NULL, 10), stride = (int32_t)step;
        bool no_begin = b[0] == 'x', no_end = e[0] == 'x', squeezed;
        int64_t one = 1, dim = n;
        pome_tensor tb = pome_tensor_borrow(&begin, POME_DTYPE_I32, 1, &one);
        pome_tensor te = pome_tensor_borrow(&end, POME_DTYPE_I32, 1, &one);
        pome_tensor ts = pome_tensor_borrow(&stride, POME_DTYPE_I32, 1, &one);
        pome_tensor mb = pome_tensor_borrow(&no_begin, POME_DTYPE_BOOL, 1, &one);
        pome_tensor me = pome_tensor_borrow(&no_end, POME_DTYPE_BOOL, 1, &one);
        pome_slice_axis sel;
        assert_int_equal(pome_slice_resolve(op, &tb, &te, &ts, &mb, &me, NULL, 1, &dim, &sel, &squeezed, NULL), POME_OK);
        assert_false(squeezed);
        assert_int_equal(sel.length, length);
        if (length) {
            assert_int_equal(sel.begin, first);
            assert_int_equal(sel.begin + (sel.length - 1) * sel.step, last);
        }
    }
    fclose(f);
    assert_int_equal(n_cases, 1200);
    pome_program_destroy(&program);
}

static void test_squeezed_slices(void **state)
{
    (void)state;
    pome_program *program;
    pome_function *fn = make_function(&program, POME_OPSET_IOS17);
    pome_value *none = make_ints(fn, 0, NULL);
    pome_op *op = make_op(fn, fn->body, "slice_by_index", 1, "x", none, "begin", none, "end", none, NULL);
    int32_t begin, end = 0, zero = 0;
    bool yes = true, squeezed;
    int64_t one = 1, dim = 3;
    pome_tensor tb = pome_tensor_borrow(&begin, POME_DTYPE_I32, 1, &one), te = tb, ts = tb;
    pome_tensor mask = pome_tensor_borrow(&yes, POME_DTYPE_BOOL, 1, &one);
    pome_slice_axis sel;
    pome_error err;
    te.data = &end;
    ts.data = &zero;
    const struct {
        int32_t begin;
        int64_t want; /* -1: refused */
    } cases[] = {{0, 0}, {2, 2}, {-1, 2}, {-3, 0}, {-9, 0}, {3, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin = cases[i].begin;
        pome_status status = pome_slice_resolve(op, &tb, &te, &ts, NULL, NULL, &mask, 1, &dim, &sel, &squeezed, &err);
        assert_int_equal(status, cases[i].want < 0 ? POME_ERR_FORMAT : POME_OK);
        if (status == POME_OK) {
            assert_true(squeezed && sel.length == 1);
            assert_int_equal(sel.begin, cases[i].want);
        }
    }
    begin = 1; /* begin masked: element 0 */
    assert_int_equal(pome_slice_resolve(op, &tb, &te, &ts, &mask, NULL, &mask, 1, &dim, &sel, &squeezed, &err), POME_OK);
    assert_int_equal(sel.begin, 0);
    assert_int_equal(pome_slice_resolve(op, &tb, &te, &ts, NULL, NULL, NULL, 1, &dim, &sel, &squeezed, &err),
                     POME_ERR_FORMAT); /* stride 0 */
    assert_non_null(strstr(err.message, "stride"));
    pome_program_destroy(&program);
}

/* ---- what we decide ourselves ---- */

enum { S = -2, U = -3 }; /* symbols */

typedef struct fixture {
    pome_program *program;
    pome_function *fn;
    pome_error err;
} fixture;

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->fn = make_function(&f->program, POME_OPSET_IOS18);
    f->fn->next_symbol = -10;
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    pome_program_destroy(&f->program);
    free(f);
    return 0;
}

static pome_value *tensor(fixture *f, pome_dtype dtype, int32_t rank, const int64_t *dim)
{
    return make_input(f->fn, "t", dtype, rank, dim);
}

/* The operator's first result must have this shape; a size below -9 wants any fresh symbol. */
static void expect(fixture *f, const pome_op *op, int32_t rank, const int64_t *dim)
{
    assert_int_equal(pome_program_verify(f->program, &f->err), POME_OK);
    const pome_type *t = &op->out[0]->type;
    assert_int_equal(t->rank, rank);
    for (int32_t i = 0; i < rank; i++) {
        if (dim[i] < -9)
            assert_true(t->dim[i] < -9);
        else
            assert_int_equal(t->dim[i], dim[i]);
    }
}

static void expect_refusal(fixture *f, const char *part)
{
    assert_int_equal(pome_program_verify(f->program, &f->err), POME_ERR_FORMAT);
    if (!strstr(f->err.message, part))
        fail_msg("\"%s\" does not say \"%s\"", f->err.message, part);
}

static void test_known_sizes_win(void **state)
{
    fixture *f = *state;
    pome_value *a = tensor(f, POME_DTYPE_F32, 2, DIMS(2, S)), *b = tensor(f, POME_DTYPE_F32, 2, DIMS(2, 3));
    pome_value *empty = tensor(f, POME_DTYPE_F32, 2, DIMS(0, 3));
    pome_op *op = make_op(f->fn, f->fn->body, "concat", 1, "values", a, "values", b, "axis", make_int(f->fn, 0), NULL);
    expect(f, op, 2, DIMS(4, 3));
    op = make_op(f->fn, f->fn->body, "concat", 1, "values", a, "values", b, "axis", make_int(f->fn, 1), NULL);
    expect(f, op, 2, DIMS(2, -99));
    pome_value *c = tensor(f, POME_DTYPE_F32, 2, DIMS(U, 3));
    op = make_op(f->fn, f->fn->body, "concat", 1, "values", c, "values", empty, "axis", make_int(f->fn, 0), NULL);
    expect(f, op, 2, DIMS(U, 3));
}

static void test_reshape_keeps_symbols(void **state)
{
    fixture *f = *state;
    pome_value *x = tensor(f, POME_DTYPE_F16, 3, DIMS(1, S, 12));
    pome_op *op = make_op(f->fn, f->fn->body, "reshape", 1, "x", x, "shape", make_ints(f->fn, 4, DIMS(1, -1, 3, 4)), NULL);
    expect(f, op, 4, DIMS(1, S, 3, 4));
    op = make_op(f->fn, f->fn->body, "reshape", 1, "x", x, "shape", make_ints(f->fn, 3, DIMS(0, 0, -1)), NULL);
    expect(f, op, 3, DIMS(1, S, 12));
}

static void test_reshape_zero_counts_from_the_right(void **state)
{
    fixture *f = *state;
    pome_value *x = tensor(f, POME_DTYPE_F16, 3, DIMS(1, S, 12));
    pome_op *op = make_op(f->fn, f->fn->body, "reshape", 1, "x", x, "shape", make_ints(f->fn, 4, DIMS(0, 0, 0, 0)), NULL);
    expect(f, op, 4, DIMS(1, 1, S, 12));
}

static void test_reshape_before_17_copies_in_place(void **state)
{
    fixture *f = *state;
    f->fn->opset = POME_OPSET_IOS16;
    pome_value *x = tensor(f, POME_DTYPE_F16, 3, DIMS(2, S, 12));
    pome_op *op = make_op(f->fn, f->fn->body, "reshape", 1, "x", x, "shape", make_ints(f->fn, 3, DIMS(0, -1, 6)), NULL);
    expect(f, op, 3, DIMS(2, -99, 6));
    op = make_op(f->fn, f->fn->body, "reshape", 1, "x", x, "shape", make_ints(f->fn, 2, DIMS(0, -1)), NULL);
    expect_refusal(f, "2 sizes for rank 3");
}

static void test_squeeze_of_unknown_size(void **state)
{
    fixture *f = *state;
    pome_value *x = tensor(f, POME_DTYPE_F16, 3, DIMS(1, S, 4));
    pome_op *op = make_op(f->fn, f->fn->body, "squeeze", 1, "x", x, "axes", make_ints(f->fn, 2, DIMS(0, 1)), NULL);
    expect(f, op, 2, DIMS(S, 4)); /* no declaration: kept */
    op = make_op(f->fn, f->fn->body, "squeeze", 1, "x", x, "axes", make_ints(f->fn, 2, DIMS(0, 1)), NULL);
    op->out[0]->type = pome_type_tensor(POME_DTYPE_F16, 1, DIMS(4));
    expect(f, op, 1, DIMS(4)); /* declared to be removed */

    /* At run time the rank stays what it was. */
    pome_type in = pome_type_tensor(POME_DTYPE_F16, 3, DIMS(1, 1, 4)), out = {0};
    const pome_type *types[] = {&in, &op->in[1]->type};
    const pome_tensor *values[] = {NULL, &op->in[1]->konst->t};
    pome_infer c = {.op = op, .opset = f->fn->opset, .in = types, .value = values, .out = &out};
    assert_int_equal(pome_infer_op(&c, &f->err), POME_OK);
    assert_int_equal(out.rank, 1);
    op->out[0]->type.rank = 2;
    assert_int_equal(pome_infer_op(&c, &f->err), POME_OK);
    assert_true(out.rank == 2 && out.dim[0] == 1 && out.dim[1] == 4);
    op->out[0]->type.rank = 1;
    in.dim[1] = 5;
    assert_int_equal(pome_infer_op(&c, &f->err), POME_ERR_FORMAT);
}

static void test_vector_operands_of_matmul(void **state)
{
    fixture *f = *state;
    pome_value *m = tensor(f, POME_DTYPE_F32, 3, DIMS(5, 2, 3)), *v = tensor(f, POME_DTYPE_F32, 1, DIMS(3));
    expect(f, make_op(f->fn, f->fn->body, "matmul", 1, "x", m, "y", v, NULL), 2, DIMS(5, 2));
    expect(f, make_op(f->fn, f->fn->body, "matmul", 1, "x", v, "y", v, NULL), 0, NULL);
}

static void test_select_broadcasts_cond(void **state)
{
    fixture *f = *state;
    pome_value *cond = tensor(f, POME_DTYPE_BOOL, 2, DIMS(4, 1)), *a = tensor(f, POME_DTYPE_F16, 1, DIMS(3));
    expect(f, make_op(f->fn, f->fn->body, "select", 1, "cond", cond, "a", a, "b", a, NULL), 2, DIMS(4, 3));
}

static void test_empty_broadcast(void **state)
{
    fixture *f = *state;
    pome_value *a = tensor(f, POME_DTYPE_F32, 2, DIMS(0, 3)), *b = tensor(f, POME_DTYPE_F32, 2, DIMS(1, 1));
    expect(f, make_op(f->fn, f->fn->body, "add", 1, "x", a, "y", b, NULL), 2, DIMS(0, 3));
    make_op(f->fn, f->fn->body, "add", 1, "x", a, "y", tensor(f, POME_DTYPE_F32, 2, DIMS(2, 3)), NULL);
    expect_refusal(f, "cannot be broadcast");
}

static void test_topk_of_all(void **state)
{
    fixture *f = *state;
    pome_value *x = tensor(f, POME_DTYPE_F32, 2, DIMS(4, S));
    expect(f, make_op(f->fn, f->fn->body, "topk", 2, "x", x, "k", make_int(f->fn, -1), NULL), 2, DIMS(4, S));
    make_op(f->fn, f->fn->body, "topk", 2, "x", x, "k", make_int(f->fn, 0), NULL);
    expect_refusal(f, "k is 0");
}

static void test_split_of_unknown_size(void **state)
{
    fixture *f = *state;
    pome_value *x = tensor(f, POME_DTYPE_F32, 2, DIMS(S, 6));
    pome_op *op = make_op(f->fn, f->fn->body, "split", 2, "x", x, "num_splits", make_int(f->fn, 2), "axis",
                          make_int(f->fn, 0), NULL);
    expect(f, op, 2, DIMS(-99, 6));
    assert_int_equal(op->out[0]->type.dim[0], op->out[1]->type.dim[0]);
    make_op(f->fn, f->fn->body, "split", 2, "x", x, "num_splits", make_int(f->fn, 2), "split_sizes",
            make_ints(f->fn, 2, DIMS(1, 4)), "axis", make_int(f->fn, 1), NULL);
    expect_refusal(f, "add up to 5");
}

static void test_even_split(void **state)
{
    fixture *f = *state;
    make_op(f->fn, f->fn->body, "split", 4, "x", tensor(f, POME_DTYPE_F32, 1, DIMS(6)), "num_splits",
            make_int(f->fn, 4), "axis", make_int(f->fn, 0), NULL);
    expect_refusal(f, "does not split into 4");
}

static void test_reflection_is_bounded(void **state)
{
    fixture *f = *state;
    pome_value *x = tensor(f, POME_DTYPE_F32, 1, DIMS(3)), *mode = make_string(f->fn, "reflect");
    expect(f, make_op(f->fn, f->fn->body, "pad", 1, "x", x, "pad", make_ints(f->fn, 2, DIMS(2, 2)), "mode", mode, NULL),
           1, DIMS(7));
    make_op(f->fn, f->fn->body, "pad", 1, "x", x, "pad", make_ints(f->fn, 2, DIMS(3, 0)), "mode", mode, NULL);
    expect_refusal(f, "reflection by 3");
}

static void test_scatter_refuses_unknown_modes(void **state)
{
    fixture *f = *state;
    pome_value *x = tensor(f, POME_DTYPE_F32, 1, DIMS(3)), *i = tensor(f, POME_DTYPE_I32, 1, DIMS(3));
    make_op(f->fn, f->fn->body, "scatter", 1, "data", x, "indices", i, "updates", x, "mode", make_string(f->fn, "ad"), NULL);
    expect_refusal(f, "'ad'");
}

static void test_mixed_types_are_refused(void **state)
{
    fixture *f = *state;
    pome_value *x = tensor(f, POME_DTYPE_F32, 1, DIMS(3)), *h = tensor(f, POME_DTYPE_F16, 1, DIMS(3));
    pome_op *op = make_op(f->fn, f->fn->body, "add", 1, "x", h, "y", x, NULL);
    expect(f, op, 1, DIMS(3));
    assert_int_equal(op->out[0]->type.dtype, POME_DTYPE_F32);
    make_op(f->fn, f->fn->body, "add", 1, "x", x, "y", tensor(f, POME_DTYPE_I32, 1, DIMS(3)), NULL);
    expect_refusal(f, "fp32 and int32 are mixed");
}

static void test_constants_of_another_type(void **state)
{
    fixture *f = *state;
    const pome_opset opset = f->fn->opset;
    pome_value *x = tensor(f, POME_DTYPE_F16, 2, DIMS(2, 3)), *i = tensor(f, POME_DTYPE_I32, 2, DIMS(2, 3));
    pome_value *weight = make_const(f->fn, POME_DTYPE_I32, 2, DIMS(4, 3), NULL), *k = make_const(f->fn, POME_DTYPE_F32, 2, DIMS(3, 4), NULL);
    pome_op *linear = make_op(f->fn, f->fn->body, "linear", 1, "x", x, "weight", weight, NULL);
    pome_op *right = make_op(f->fn, f->fn->body, "matmul", 1, "x", i, "y", k, NULL);
    pome_op *left = make_op(f->fn, f->fn->body, "matmul", 1, "x", weight, "y", tensor(f, POME_DTYPE_F32, 2, DIMS(3, 5)), NULL);
    f->fn->opset = POME_OPSET_IOS17;
    expect(f, linear, 2, DIMS(2, 4));
    expect(f, right, 2, DIMS(2, 4));
    expect(f, left, 2, DIMS(4, 5));
    assert_int_equal(linear->out[0]->type.dtype, POME_DTYPE_F16);
    assert_int_equal(right->out[0]->type.dtype, POME_DTYPE_I32);
    assert_int_equal(left->out[0]->type.dtype, POME_DTYPE_F32);
    f->fn->opset = POME_OPSET_IOS16;
    expect_refusal(f, "fp16 and int32 are mixed");
    f->fn->opset = opset;
    make_op(f->fn, f->fn->body, "matmul", 1, "x", x, "y", tensor(f, POME_DTYPE_I32, 2, DIMS(3, 4)), NULL);
    expect_refusal(f, "fp16 and int32 are mixed");
}

static void test_absurd_sizes_are_refused(void **state)
{
    fixture *f = *state;
    pome_value *x = tensor(f, POME_DTYPE_F32, 2, DIMS(1 << 20, 1 << 10));
    make_op(f->fn, f->fn->body, "tile", 1, "x", x, "reps", make_ints(f->fn, 2, DIMS(1 << 20, 1)), NULL);
    expect_refusal(f, "too large");
    f->fn->body->n_ops = 0;
    make_op(f->fn, f->fn->body, "tile", 1, "x", x, "reps", make_ints(f->fn, 2, DIMS(INT32_MAX, INT32_MAX)), NULL);
    expect_refusal(f, "too large");
    f->fn->body->n_ops = 0;
    make_op(f->fn, f->fn->body, "fill", 1, "shape", make_ints(f->fn, 3, DIMS(INT32_MAX, INT32_MAX, 0)), NULL);
    expect_refusal(f, "too large");
    f->fn->body->n_ops = 0;
    make_op(f->fn, f->fn->body, "fill", 1, "shape", make_ints(f->fn, 2, DIMS(4, -1)), NULL);
    expect_refusal(f, "holds -1");
    f->fn->body->n_ops = 0;
    make_op(f->fn, f->fn->body, "reshape", 1, "x", x, "shape", make_ints(f->fn, 4, DIMS(1 << 30, 1 << 30, 1 << 30, 2)), NULL);
    expect_refusal(f, "too many elements");
}

static void test_non_zero_is_bounded_at_run_time(void **state)
{
    fixture *f = *state;
    pome_op *op = make_op(f->fn, f->fn->body, "non_zero", 1, "x", tensor(f, POME_DTYPE_F32, 2, DIMS(2, 3)), NULL);
    expect(f, op, 2, DIMS(-99, 2));
    pome_type out = {0};
    const pome_type *types[] = {&op->in[0]->type};
    const pome_tensor *values[] = {NULL};
    pome_infer c = {.op = op, .opset = f->fn->opset, .in = types, .value = values, .out = &out};
    assert_int_equal(pome_infer_op(&c, &f->err), POME_OK);
    assert_true(out.rank == 2 && out.dim[0] == 6 && out.dim[1] == 2);
}

/* What must be known at run time and is not gives an error, never a symbol. */
static void test_no_symbols_at_run_time(void **state)
{
    fixture *f = *state;
    pome_op *op = make_op(f->fn, f->fn->body, "fill", 1, "shape", tensor(f, POME_DTYPE_I32, 1, DIMS(2)), NULL);
    expect(f, op, 2, DIMS(-99, -99));
    pome_type out = {0};
    const pome_type *types[] = {&op->in[0]->type};
    const pome_tensor *values[] = {NULL};
    pome_infer c = {.op = op, .opset = f->fn->opset, .in = types, .value = values, .out = &out};
    assert_int_equal(pome_infer_op(&c, &f->err), POME_ERR_FORMAT);
}

static void test_gather_rank_limit(void **state)
{
    fixture *f = *state;
    pome_value *x = tensor(f, POME_DTYPE_F32, 5, DIMS(2, 2, 2, 2, 2)), *i = tensor(f, POME_DTYPE_I32, 5, DIMS(2, 2, 2, 2, 2));
    make_op(f->fn, f->fn->body, "gather", 1, "x", x, "indices", i, NULL);
    expect_refusal(f, "more than 8");
}

static void test_batch_axes_must_agree(void **state)
{
    fixture *f = *state;
    pome_value *x = tensor(f, POME_DTYPE_F32, 2, DIMS(2, 5)), *i = tensor(f, POME_DTYPE_I32, 2, DIMS(3, 4));
    make_op(f->fn, f->fn->body, "gather", 1, "x", x, "indices", i, "axis", make_int(f->fn, 1), "batch_dims",
            make_int(f->fn, 1), NULL);
    expect_refusal(f, "batch axis 0");
}

/* A depth that is not known leaves the rank to the declaration. */
static void test_gather_nd_of_unknown_depth(void **state)
{
    fixture *f = *state;
    pome_value *x = tensor(f, POME_DTYPE_F32, 2, DIMS(2, 5)), *i = tensor(f, POME_DTYPE_I32, 2, DIMS(3, S));
    pome_op *op = make_op(f->fn, f->fn->body, "gather_nd", 1, "x", x, "indices", i, NULL);
    pome_op *positive = make_op(f->fn, f->fn->body, "relu", 1, "x", op->out[0], NULL);
    assert_int_equal(pome_program_verify(f->program, &(pome_error){0}), POME_OK);
    assert_int_equal(positive->out[0]->type.rank, -1); /* until it runs */
    assert_int_equal(positive->out[0]->type.dtype, POME_DTYPE_F32);
    make_op(f->fn, f->fn->body, "add", 1, "x", positive->out[0], "y", x, NULL);
    expect_refusal(f, "rank");
    f->fn->body->n_ops--;
    op->out[0]->type = pome_type_tensor(POME_DTYPE_F32, 1, DIMS(3));
    expect(f, op, 1, DIMS(-99));
}

static void test_lists(void **state)
{
    fixture *f = *state;
    pome_block *b = f->fn->body;
    pome_value *at = tensor(f, POME_DTYPE_I32, 0, NULL), *x = tensor(f, POME_DTYPE_F32, 2, DIMS(4, 5));
    pome_op *list = make_op(f->fn, b, "make_list", 1, "init_length", make_int(f->fn, 3), "elem_shape", make_int(f->fn, 4),
                            "elem_shape", make_string(f->fn, "is1"), NULL);
    pome_op *first = make_op(f->fn, b, "list_write", 1, "ls", list->out[0], "index", make_int(f->fn, 6), "value", x, NULL);
    pome_op *second = make_op(f->fn, b, "list_write", 1, "ls", first->out[0], "index", at, "value", x, NULL);
    pome_op *read = make_op(f->fn, b, "list_read", 1, "ls", second->out[0], "index", at, NULL);
    pome_op *some = make_op(f->fn, b, "list_gather", 1, "ls", second->out[0], "indices",
                            tensor(f, POME_DTYPE_I32, 1, DIMS(S)), NULL);
    pome_op *length = make_op(f->fn, b, "list_length", 1, "ls", second->out[0], NULL);
    expect(f, read, 2, DIMS(4, 5));
    expect(f, some, 3, DIMS(S, 4, 5));
    expect(f, length, 0, NULL);
    const pome_type *t = &list->out[0]->type;
    assert_true(t->kind == POME_TYPE_LIST && t->dtype == POME_DTYPE_F32 && t->list_length == 3 && t->dim[1] < 0);
    t = &first->out[0]->type;
    assert_true(t->kind == POME_TYPE_LIST && t->list_length == 7 && t->dim[1] == 5);
    assert_int_equal(second->out[0]->type.list_length, -1);
    make_op(f->fn, b, "list_write", 1, "ls", second->out[0], "index", at, "value",
            tensor(f, POME_DTYPE_F32, 2, DIMS(3, 5)), NULL);
    expect_refusal(f, "cannot write fp32[3, 5]");
}

static void test_list_scatter(void **state)
{
    fixture *f = *state;
    pome_op *list = make_op(f->fn, f->fn->body, "make_list", 1, "elem_shape", make_int(f->fn, 4), NULL);
    pome_op *op = make_op(f->fn, f->fn->body, "list_scatter", 1, "ls", list->out[0], "indices",
                          make_ints(f->fn, 3, DIMS(1, 4, 2)), "value", tensor(f, POME_DTYPE_F32, 2, DIMS(3, 4)), NULL);
    expect(f, op, 1, DIMS(4));
    assert_int_equal(op->out[0]->type.list_length, 5);
    make_op(f->fn, f->fn->body, "list_scatter", 1, "ls", list->out[0], "indices", make_ints(f->fn, 2, DIMS(1, 4)),
            "value", tensor(f, POME_DTYPE_F32, 2, DIMS(3, 4)), NULL);
    expect_refusal(f, "not a vector of 3");
}

static void test_classify(void **state)
{
    fixture *f = *state;
    pome_value *classes = make_const(f->fn, POME_DTYPE_I64, 1, DIMS(3), NULL);
    pome_op *op = make_op(f->fn, f->fn->body, "classify", 2, "probabilities", tensor(f, POME_DTYPE_F32, 2, DIMS(1, 3)),
                          "classes", classes, NULL);
    expect(f, op, 0, NULL);
    assert_int_equal(op->out[0]->type.dtype, POME_DTYPE_I64);
    assert_int_equal(op->out[1]->type.kind, POME_TYPE_DICT);
    make_op(f->fn, f->fn->body, "classify", 2, "probabilities", tensor(f, POME_DTYPE_F32, 1, DIMS(4)), "classes",
            classes, NULL);
    expect_refusal(f, "4 probabilities for 3 classes");
}

static void test_einsum_of_other_letters(void **state)
{
    fixture *f = *state;
    pome_value *x = tensor(f, POME_DTYPE_F32, 2, DIMS(S, 3)), *y = tensor(f, POME_DTYPE_F32, 3, DIMS(2, 4, 3));
    expect(f, make_op(f->fn, f->fn->body, "einsum", 1, "values", x, "values", y, "equation",
                      make_string(f->fn, "ik, bjk -> bij"), NULL), 3, DIMS(2, S, 4));
    make_op(f->fn, f->fn->body, "einsum", 1, "values", x, "values", y, "equation", make_string(f->fn, "ik,bjk->biz"), NULL);
    expect_refusal(f, "invents 'z'");
}

#define WITH_FIXTURE(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_coremltools_cases),
        cmocka_unit_test(test_int_at),
        cmocka_unit_test(test_int_at_sub_byte),
        cmocka_unit_test(test_float_at),
        cmocka_unit_test(test_slices_as_python_has_them),
        cmocka_unit_test(test_squeezed_slices),
        WITH_FIXTURE(test_known_sizes_win),
        WITH_FIXTURE(test_reshape_keeps_symbols),
        WITH_FIXTURE(test_reshape_zero_counts_from_the_right),
        WITH_FIXTURE(test_reshape_before_17_copies_in_place),
        WITH_FIXTURE(test_squeeze_of_unknown_size),
        WITH_FIXTURE(test_vector_operands_of_matmul),
        WITH_FIXTURE(test_select_broadcasts_cond),
        WITH_FIXTURE(test_empty_broadcast),
        WITH_FIXTURE(test_topk_of_all),
        WITH_FIXTURE(test_split_of_unknown_size),
        WITH_FIXTURE(test_even_split),
        WITH_FIXTURE(test_reflection_is_bounded),
        WITH_FIXTURE(test_scatter_refuses_unknown_modes),
        WITH_FIXTURE(test_mixed_types_are_refused),
        WITH_FIXTURE(test_constants_of_another_type),
        WITH_FIXTURE(test_absurd_sizes_are_refused),
        WITH_FIXTURE(test_non_zero_is_bounded_at_run_time),
        WITH_FIXTURE(test_no_symbols_at_run_time),
        WITH_FIXTURE(test_gather_rank_limit),
        WITH_FIXTURE(test_batch_axes_must_agree),
        WITH_FIXTURE(test_gather_nd_of_unknown_depth),
        WITH_FIXTURE(test_lists),
        WITH_FIXTURE(test_list_scatter),
        WITH_FIXTURE(test_classify),
        WITH_FIXTURE(test_einsum_of_other_letters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
