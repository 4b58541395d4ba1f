/* Lists against arrays of tensors kept by the test. */
#include "op_test.h"

#include <string.h>

static op_test *begin(pome_op_id id)
{
    return op_test_begin(id, POME_OPSET_IOS15);
}

static void run_and_expect(op_test *t, int32_t rank, const int64_t *shape, const double *want)
{
    if (op_test_run(t) != POME_OK)
        fail_msg("%s", op_test_error(t)->message);
    op_test_expect_shape(t, 0, rank, shape);
    op_test_expect(t, 0, want, 0, 0);
    op_test_end(t);
}

static void make_list_gives_zeros(void **state)
{
    (void)state;
    static const char *const names[] = {"fp32", "fp16", "int32", "bool"};
    for (int i = 0; i < 4; i++) {
        op_test *t = begin(POME_OP_make_list);
        op_test_const_int(t, "init_length", 3);
        op_test_const_bool(t, "dynamic_length", true);
        op_test_const_int(t, "elem_shape", 2);
        op_test_const_int(t, "elem_shape", 2);
        op_test_const_str(t, "dtype", names[i]);
        double want[12] = {0};
        run_and_expect(t, 3, (int64_t[]){3, 2, 2}, want);
    }
}

static void write_replaces_and_grows(void **state)
{
    (void)state;
    pome_dtype dtypes[] = {POME_DTYPE_F32, POME_DTYPE_I32, POME_DTYPE_BOOL, POME_DTYPE_F16};
    for (int i = 0; i < 4; i++)
        for (int32_t index = 0; index < 6; index++) {
            int64_t shape[2] = {3, 2};
            pome_tensor list = op_test_tensor(dtypes[i], 2, shape, 0, 9),
                        value = op_test_tensor(dtypes[i], 1, shape + 1, 0, 9);
            pome_tensor at = op_test_tensor_of(POME_DTYPE_I32, 0, NULL, (double[]){index});
            double want[12] = {0};
            for (int k = 0; k < 6; k++)
                want[k] = op_test_at(&list, k);
            want[2 * index] = op_test_at(&value, 0);
            want[2 * index + 1] = op_test_at(&value, 1);
            op_test *t = begin(POME_OP_list_write);
            op_test_in_kind(t, "ls", &list, POME_TYPE_LIST, 3);
            op_test_in(t, "index", &at);
            op_test_in(t, "value", &value);
            run_and_expect(t, 2, (int64_t[]){index < 3 ? 3 : index + 1, 2}, want);
            pome_tensor_reset(&list);
            pome_tensor_reset(&value);
            pome_tensor_reset(&at);
        }
}

/* A list whose elements have no shape yet takes it from the first write. */
static void first_write_gives_the_shape(void **state)
{
    (void)state;
    int64_t none[2] = {2, 0}, shape[1] = {3};
    pome_tensor list = op_test_tensor(POME_DTYPE_F32, 2, none, 0, 0);
    pome_tensor value = op_test_tensor_of(POME_DTYPE_F32, 1, shape, (double[]){4, 5, 6});
    pome_tensor at = op_test_tensor_of(POME_DTYPE_I32, 0, NULL, (double[]){1});
    op_test *t = begin(POME_OP_list_write);
    op_test_in_kind(t, "ls", &list, POME_TYPE_LIST, 2);
    op_test_in(t, "index", &at);
    op_test_in(t, "value", &value);
    run_and_expect(t, 2, (int64_t[]){2, 3}, (double[]){0, 0, 0, 4, 5, 6});
    pome_tensor_reset(&list);
    pome_tensor_reset(&value);
    pome_tensor_reset(&at);
}

static void read_length_gather(void **state)
{
    (void)state;
    int64_t shape[3] = {4, 2, 3}, two = 2;
    pome_tensor list = op_test_tensor(POME_DTYPE_F32, 3, shape, -9, 9);
    double all[24];
    for (int k = 0; k < 24; k++)
        all[k] = op_test_at(&list, k);
    op_test *t = begin(POME_OP_list_length);
    op_test_in_kind(t, "ls", &list, POME_TYPE_LIST, 4);
    run_and_expect(t, 0, NULL, (double[]){4});
    for (int index = 0; index < 4; index++) {
        pome_tensor at = op_test_tensor_of(POME_DTYPE_I32, 0, NULL, (double[]){index});
        t = begin(POME_OP_list_read);
        op_test_in_kind(t, "ls", &list, POME_TYPE_LIST, 4);
        op_test_in(t, "index", &at);
        run_and_expect(t, 2, shape + 1, all + 6 * index);
        pome_tensor_reset(&at);
    }
    pome_tensor picks = op_test_tensor_of(POME_DTYPE_I32, 1, &two, (double[]){3, 1});
    double want[12];
    memcpy(want, all + 18, 6 * sizeof *all);
    memcpy(want + 6, all + 6, 6 * sizeof *all);
    t = begin(POME_OP_list_gather);
    op_test_in_kind(t, "ls", &list, POME_TYPE_LIST, 4);
    op_test_in(t, "indices", &picks);
    run_and_expect(t, 3, (int64_t[]){2, 2, 3}, want);
    pome_tensor_reset(&picks);
    pome_tensor_reset(&list);
}

static void scatter_replaces_and_grows(void **state)
{
    (void)state;
    int64_t shape[2] = {2, 2}, three = 3, values_shape[2] = {3, 2};
    pome_tensor list = op_test_tensor_of(POME_DTYPE_I32, 2, shape, (double[]){1, 2, 3, 4});
    pome_tensor value = op_test_tensor_of(POME_DTYPE_I32, 2, values_shape, (double[]){10, 11, 20, 21, 30, 31});
    pome_tensor at = op_test_tensor_of(POME_DTYPE_I32, 1, &three, (double[]){4, 0, 4});
    op_test *t = begin(POME_OP_list_scatter);
    op_test_in_kind(t, "ls", &list, POME_TYPE_LIST, 2);
    op_test_in(t, "indices", &at);
    op_test_in(t, "value", &value);
    run_and_expect(t, 2, (int64_t[]){5, 2}, (double[]){20, 21, 3, 4, 0, 0, 0, 0, 30, 31});
    pome_tensor_reset(&list);
    pome_tensor_reset(&value);
    pome_tensor_reset(&at);
}

static void index_outside_is_refused(void **state)
{
    (void)state;
    int64_t shape[2] = {2, 2}, one = 1;
    pome_tensor list = op_test_tensor(POME_DTYPE_I32, 2, shape, 0, 9),
                value = op_test_tensor(POME_DTYPE_I32, 1, shape, 0, 9);
    static const double bad[] = {-1, 2, 2147483647, -2147483648.0};
    for (int i = 0; i < 4; i++) {
        pome_tensor at = op_test_tensor_of(POME_DTYPE_I32, 0, NULL, &bad[i]);
        pome_tensor vector = op_test_tensor_of(POME_DTYPE_I32, 1, &one, &bad[i]);
        op_test *t = begin(POME_OP_list_read);
        op_test_in_kind(t, "ls", &list, POME_TYPE_LIST, 2);
        op_test_in(t, "index", &at);
        op_test_expect_failure(t, POME_ERR_ARG, "outside [0, 2)");
        op_test_end(t);
        t = begin(POME_OP_list_gather);
        op_test_in_kind(t, "ls", &list, POME_TYPE_LIST, 2);
        op_test_in(t, "indices", &vector);
        op_test_expect_failure(t, POME_ERR_ARG, "outside [0, 2)");
        op_test_end(t);
        if (bad[i] < 0) {
            t = begin(POME_OP_list_write);
            op_test_in_kind(t, "ls", &list, POME_TYPE_LIST, 2);
            op_test_in(t, "index", &at);
            op_test_in(t, "value", &value);
            assert_int_not_equal(op_test_run(t), POME_OK);
            op_test_end(t);
        }
        pome_tensor_reset(&at);
        pome_tensor_reset(&vector);
    }
    pome_tensor_reset(&list);
    pome_tensor_reset(&value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(make_list_gives_zeros),       cmocka_unit_test(write_replaces_and_grows),
        cmocka_unit_test(first_write_gives_the_shape), cmocka_unit_test(read_length_gather),
        cmocka_unit_test(scatter_replaces_and_grows),  cmocka_unit_test(index_outside_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
