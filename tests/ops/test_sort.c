/* argsort and topk against an insertion sort, cumsum against sums of prefixes. */
#include "op_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const pome_dtype types[] = {POME_DTYPE_F32, POME_DTYPE_I32, POME_DTYPE_I8,  POME_DTYPE_U8,
                                   POME_DTYPE_I16, POME_DTYPE_U16, POME_DTYPE_U32};
enum { N_TYPES = sizeof types / sizeof types[0] };

/* Few distinct values, so that many are equal, and the extremes; floats with NaN, infinities and both zeros. */
static pome_tensor material(pome_dtype dtype, int32_t rank, const int64_t *shape)
{
    static const double special[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0};
    double range = op_test_random_int(0, 1) ? 3 : 5e9;
    pome_tensor x = op_test_tensor(dtype, rank, shape, -range, range);
    for (int64_t i = 0; i < pome_tensor_count(&x); i++) {
        if (dtype == POME_DTYPE_F32 && range < 10)
            op_test_set(&x, i, floor(op_test_at(&x, i)));
        if (dtype == POME_DTYPE_F32 && op_test_random_int(0, 4) == 0)
            op_test_set(&x, i, special[op_test_random_int(0, 4)]);
    }
    return x;
}

/* NaN last, then by value, equal ones by index. */
static bool comes_before(double a, int64_t ia, double b, int64_t ib, bool ascending)
{
    if (a != a || b != b)
        return a == a || (b != b && ia < ib);
    if (a != b)
        return ascending ? a < b : a > b;
    return ia < ib;
}

/* The indices of one row, sorted. */
static void sort_row(int64_t *order, const pome_tensor *x, int64_t base, int64_t stride, int64_t n, bool ascending)
{
    for (int64_t i = 0; i < n; i++) {
        int64_t to = i;
        for (; to > 0 && comes_before(op_test_at(x, base + i * stride), i, op_test_at(x, base + order[to - 1] * stride),
                                      order[to - 1], ascending);
             to--)
            order[to] = order[to - 1];
        order[to] = i;
    }
}

/* indices and values of the first k along axis */
static void reference(const pome_tensor *x, int32_t axis, int64_t k, bool ascending, double *indices, double *values)
{
    int64_t n = x->shape[axis], inner = 1, order[128];
    for (int32_t d = axis + 1; d < x->rank; d++)
        inner *= x->shape[d];
    for (int64_t row = 0; n && row < pome_tensor_count(x) / n; row++) {
        int64_t base = row / inner * n * inner + row % inner, to = row / inner * k * inner + row % inner;
        sort_row(order, x, base, inner, n, ascending);
        for (int64_t i = 0; i < k; i++) {
            indices[to + i * inner] = (double)order[i];
            values[to + i * inner] = op_test_at(x, base + order[i] * inner);
        }
    }
}

static void argsort(void **state)
{
    (void)state;
    for (int round = 0; round < 140; round++) {
        int64_t shape[POME_MAX_RANK];
        int32_t rank = (int32_t)op_test_random_int(1, 5), axis = (int32_t)op_test_random_int(0, rank - 1);
        op_test_shape(shape, rank, 5, true);
        shape[axis] = op_test_random_int(round % 10 ? 1 : 0, 40);
        bool ascending = round & 1;
        pome_tensor x = material(types[round % N_TYPES], rank, shape);
        op_test *t = op_test_begin(POME_OP_argsort, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        if (axis != rank - 1 || round % 3)
            op_test_const_int(t, "axis", round % 2 ? axis : axis - rank);
        if (ascending || round % 3)
            op_test_const_bool(t, "ascending", ascending);
        if (op_test_run(t) != POME_OK)
            fail_msg("%s", op_test_error(t)->message);
        op_test_expect_shape(t, 0, rank, shape);
        assert_int_equal(op_test_out(t, 0)->dtype, POME_DTYPE_I32);
        size_t n = (size_t)pome_tensor_count(&x) + 1;
        double *indices = calloc(n, sizeof *indices), *values = calloc(n, sizeof *values);
        reference(&x, axis, shape[axis], ascending, indices, values);
        op_test_expect(t, 0, indices, 0, 0);
        free(indices);
        free(values);
        op_test_end(t);
        pome_tensor_reset(&x);
    }
}

static void topk(void **state)
{
    (void)state;
    for (int round = 0; round < 210; round++) {
        int64_t shape[POME_MAX_RANK];
        int32_t rank = (int32_t)op_test_random_int(1, 5), axis = (int32_t)op_test_random_int(0, rank - 1);
        op_test_shape(shape, rank, 5, false);
        shape[axis] = op_test_random_int(1, 40);
        bool ascending = round & 1, has_indices = round % 5 != 0, is_u16 = round % 3 == 0, is_all = round % 7 == 0;
        int64_t k = is_all ? shape[axis] : op_test_random_int(1, shape[axis]);
        pome_tensor x = material(types[round % N_TYPES], rank, shape);
        op_test *t = op_test_begin(POME_OP_topk, POME_OPSET_IOS17);
        op_test_outputs(t, has_indices ? 2 : 1);
        op_test_in(t, "x", &x);
        if (k != 1 || round % 2)
            op_test_const_int(t, "k", is_all ? -1 : (int32_t)k);
        if (axis != rank - 1 || round % 2)
            op_test_const_int(t, "axis", round % 4 ? axis : axis - rank);
        if (ascending)
            op_test_const_bool(t, "ascending", true);
        if (!has_indices)
            op_test_const_bool(t, "return_indices", false);
        if (is_u16)
            op_test_const_str(t, "output_indices_dtype", "uint16");
        if (op_test_run(t) != POME_OK)
            fail_msg("%s", op_test_error(t)->message);
        size_t n = (size_t)pome_tensor_count(&x) + 1;
        double *indices = calloc(n, sizeof *indices), *values = calloc(n, sizeof *values);
        reference(&x, axis, k, ascending, indices, values);
        shape[axis] = k;
        op_test_expect_shape(t, 0, rank, shape);
        op_test_expect(t, 0, values, 0, 0);
        if (has_indices) {
            assert_int_equal(op_test_out(t, 1)->dtype, is_u16 ? POME_DTYPE_U16 : POME_DTYPE_I32);
            op_test_expect_shape(t, 1, rank, shape);
            op_test_expect(t, 1, indices, 0, 0);
        }
        free(indices);
        free(values);
        op_test_end(t);
        pome_tensor_reset(&x);
    }
}

static void topk_of_too_many(void **state)
{
    (void)state;
    int64_t shape[1] = {3};
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, 1, shape, 0, 1);
    op_test *t = op_test_begin(POME_OP_topk, POME_OPSET_IOS17);
    op_test_outputs(t, 2);
    op_test_in(t, "x", &x);
    op_test_const_int(t, "k", 4);
    assert_int_not_equal(op_test_run(t), POME_OK);
    op_test_end(t);
    pome_tensor_reset(&x);
}

static double wrap(pome_dtype dtype, double value)
{
    double modulus = ldexp(1, (int)pome_dtype_bits(dtype)), v = value - modulus * floor(value / modulus);
    bool is_signed = dtype == POME_DTYPE_I8 || dtype == POME_DTYPE_I16 || dtype == POME_DTYPE_I32;
    return is_signed && v >= modulus / 2 ? v - modulus : v;
}

static void cumsum(void **state)
{
    (void)state;
    for (int round = 0; round < 140; round++) {
        int64_t shape[POME_MAX_RANK], inner = 1;
        int32_t rank = (int32_t)op_test_random_int(1, 5), axis = (int32_t)op_test_random_int(0, rank - 1);
        op_test_shape(shape, rank, 6, true);
        pome_dtype dtype = types[round % N_TYPES];
        bool exclusive = round & 1, reverse = round & 2;
        double range = dtype == POME_DTYPE_F32 ? 10 : 4e9;
        pome_tensor x = op_test_tensor(dtype, rank, shape, -range, range);
        op_test *t = op_test_begin(POME_OP_cumsum, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        if (axis || round % 3)
            op_test_const_int(t, "axis", axis == rank - 1 && round % 3 == 0 ? -1 : axis);
        if (exclusive)
            op_test_const_bool(t, "exclusive", true);
        if (reverse)
            op_test_const_bool(t, "reverse", true);
        if (op_test_run(t) != POME_OK)
            fail_msg("%s", op_test_error(t)->message);
        for (int32_t d = axis + 1; d < rank; d++)
            inner *= shape[d];
        double *want = calloc((size_t)pome_tensor_count(&x) + 1, sizeof *want);
        for (int64_t i = 0; i < pome_tensor_count(&x); i++) {
            int64_t place = i / inner % shape[axis], start = i - place * inner;
            for (int64_t k = 0; k < shape[axis]; k++)
                if (reverse ? k > place : k < place)
                    want[i] += op_test_at(&x, start + k * inner);
            want[i] += exclusive ? 0 : op_test_at(&x, i);
            want[i] = dtype == POME_DTYPE_F32 ? want[i] : wrap(dtype, want[i]);
        }
        op_test_expect(t, 0, want, 1e-6, 1e-6);
        free(want);
        op_test_end(t);
        pome_tensor_reset(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(argsort), cmocka_unit_test(topk), cmocka_unit_test(topk_of_too_many),
        cmocka_unit_test(cumsum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
