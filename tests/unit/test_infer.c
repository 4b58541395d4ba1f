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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_coremltools_cases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
