/* The operator table against coremltools' definitions (data/op_table.json, made by tests/oracle/make_op_table.py). */
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "mil/opdef.h"

static const char *table_path = POME_SOURCE_DIR "/tests/unit/data/op_table.json";

static bool is_member(const pome_param *p, int opset)
{
    return p->since <= opset && (!p->until || opset <= p->until);
}

static uint32_t bit_of(const char *name)
{
    name = strcmp(name, "str") == 0 ? "string" : name;
    for (int d = 1; d < POME_DTYPE_COUNT; d++)
        if (strcmp(pome_dtype_name((pome_dtype)d), name) == 0)
            return pome_opdef_type_bit((pome_dtype)d);
    fail_msg("no dtype %s", name);
    return 0;
}

/* Ours may take more dtypes, never fewer; the rest must be the same. */
static int check_param(const pome_opdef *def, int opset, const char *name, const json_t *want)
{
    int n_wrong = 0, p = pome_opdef_param(def, name);
    const char *kind = json_string_value(json_object_get(want, "kind"));
    size_t i;
    json_t *dtype;
    if (p < 0 || !is_member(&def->params[p], opset)) {
        print_error("%s (%d) lacks %s\n", def->name, opset, name);
        return 1;
    }
    const pome_param *param = &def->params[p];
    bool optional = param->flags & POME_P_OPTIONAL, list = param->flags & POME_P_LIST;
    bool is_const = param->flags & POME_P_CONST;
    if (optional != json_is_true(json_object_get(want, "optional")) || list != (strcmp(kind, "tuple") == 0) ||
        ((param->flags & POME_P_TLIST) != 0) != (strcmp(kind, "list") == 0) ||
        ((param->flags & POME_P_STATE) != 0) != (strcmp(kind, "state") == 0)) {
        print_error("%s.%s (%d): kind or optional differs\n", def->name, name, opset);
        n_wrong++;
    }
    /* Constant at some opset and free at a later one: the table has one flag, and takes both. */
    if (is_const && !json_is_true(json_object_get(want, "const")) && !list) {
        print_error("%s.%s (%d) need not be constant\n", def->name, name, opset);
        n_wrong++;
    }
    json_array_foreach(json_object_get(want, "dtypes"), i, dtype)
        if (!(param->types & bit_of(json_string_value(dtype)))) {
            print_error("%s.%s (%d) does not take %s\n", def->name, name, opset, json_string_value(dtype));
            n_wrong++;
        }
    return n_wrong;
}

static int check_row(const json_t *row)
{
    int opset = (int)json_integer_value(json_object_get(row, "opset")), n_wrong = 0;
    const char *op = json_string_value(json_object_get(row, "op")), *name;
    json_t *params = json_object_get(row, "params"), *want;
    const pome_opdef *def = pome_opdef_find(op);
    if (!def || def->since > opset) {
        print_error("%s is not there at %d\n", op, opset);
        return 1;
    }
    json_object_foreach(params, name, want)
        n_wrong += check_param(def, opset, name, want);
    for (int p = 0; p < def->n_params; p++)
        if (is_member(&def->params[p], opset) && !json_object_get(params, def->params[p].name)) {
            print_error("%s (%d) has %s\n", op, opset, def->params[p].name);
            n_wrong++;
        }
    return n_wrong;
}

static void test_agrees_with_coremltools(void **state)
{
    (void)state;
    json_error_t error;
    json_t *rows = json_load_file(table_path, 0, &error), *row;
    size_t i;
    int n_wrong = 0;
    assert_non_null(rows);
    assert_true(json_array_size(rows) > 200);
    json_array_foreach(rows, i, row)
        n_wrong += check_row(row);
    json_decref(rows);
    assert_int_equal(n_wrong, 0);
}

/* Made by passes only: files must not have them. */
static bool is_internal(const pome_opdef *def)
{
    return strncmp(def->name, "pome_", 5) == 0;
}

/* Nothing else is in the table that coremltools does not have, but for these. */
static void test_invents_nothing(void **state)
{
    (void)state;
    static const char *const ours[] = {"const", "write_state", "custom_layer"};
    json_error_t error;
    json_t *rows = json_load_file(table_path, 0, &error), *row;
    assert_non_null(rows);
    for (int id = 0; id < POME_OP_COUNT; id++) {
        const pome_opdef *def = pome_opdef_get((pome_op_id)id);
        bool known = is_internal(def);
        size_t i;
        int first = 99;
        for (size_t k = 0; k < sizeof ours / sizeof ours[0]; k++)
            known = known || strcmp(ours[k], def->name) == 0;
        json_array_foreach(rows, i, row) {
            if (strcmp(json_string_value(json_object_get(row, "op")), def->name) != 0)
                continue;
            int opset = (int)json_integer_value(json_object_get(row, "opset"));
            first = opset < first ? opset : first;
        }
        if (!known)
            assert_int_equal(def->since, first);
    }
    json_decref(rows);
}

static void test_get_find_param(void **state)
{
    (void)state;
    for (int id = 0; id < POME_OP_COUNT; id++) {
        const pome_opdef *def = pome_opdef_get((pome_op_id)id);
        assert_int_equal(def->id, id);
        assert_ptr_equal(pome_opdef_find(def->name), is_internal(def) ? NULL : def);
        assert_true(def->infer != NULL);
        for (int p = 0; p < def->n_params; p++)
            assert_int_equal(pome_opdef_param(def, def->params[p].name), p);
    }
    assert_null(pome_opdef_get(POME_OP_COUNT));
    assert_null(pome_opdef_find("complex_fft"));
    assert_null(pome_opdef_find(""));
    assert_int_equal(pome_opdef_param(pome_opdef_get(POME_OP_gather), "axes"), -1);
    assert_int_equal(pome_opdef_get(POME_OP_lstm)->n_params, 17);
    assert_string_equal(pome_opdef_get(POME_OP_slice_update)->params[P_slice_update_end].name, "end");
    assert_int_equal(pome_opdef_get(POME_OP_custom_layer)->n_params, 0);
}

/* Shared inference functions rely on parameters lying at the same places. */
static void test_shared_places(void **state)
{
    (void)state;
    assert_int_equal(P_reduce_max_axes, P_reduce_sum_axes);
    assert_int_equal(P_reduce_l2_norm_keep_dims, P_reduce_sum_keep_dims);
    assert_int_equal(P_reduce_argmin_output_dtype, P_reduce_argmax_output_dtype);
    assert_int_equal(P_random_uniform_high, P_random_normal_stddev);
    assert_int_equal(P_random_bernoulli_prob, P_random_normal_mean);
    assert_int_equal(P_upsample_nearest_neighbor_scale_factor_width, P_upsample_bilinear_scale_factor_width);
    assert_int_equal(P_resize_nearest_neighbor_target_size_width, P_resize_bilinear_target_size_width);
    assert_int_equal(P_gru_output_sequence, P_rnn_output_sequence);
    assert_int_equal(P_gru_bias, P_rnn_bias);
    assert_int_equal(P_avg_pool_ceil_mode - P_avg_pool_x, P_max_pool_ceil_mode);
    assert_int_equal(P_l2_pool_pad, P_max_pool_pad);
    assert_int_equal(P_space_to_batch_paddings, P_batch_to_space_crops);
}

static void test_every_dtype_has_a_bit(void **state)
{
    (void)state;
    uint32_t all = 0;
    for (int d = POME_DTYPE_BOOL; d < POME_DTYPE_COUNT; d++) {
        uint32_t bit = pome_opdef_type_bit((pome_dtype)d);
        assert_true(bit && !(bit & (bit - 1)) && (bit & POME_T_ANY));
        assert_true(bit == POME_T_OTHER || !(all & bit));
        all |= bit;
    }
    assert_int_equal(all, POME_T_ANY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agrees_with_coremltools), cmocka_unit_test(test_invents_nothing),
        cmocka_unit_test(test_get_find_param),          cmocka_unit_test(test_shared_places),
        cmocka_unit_test(test_every_dtype_has_a_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
