/* Operators that passes make, against plain loops in double; where their arithmetic is that of the operators they stand
 * for, element by element in float. */
#include <math.h>
#include <string.h>

#include "ops/op_test.h"

enum { MAX = 40000 };
static double want[MAX];

static int64_t offset_of(const int64_t *index, const pome_tensor *t, int32_t rank) /* broadcast, contiguous */
{
    int64_t at = 0;
    for (int32_t d = 0; d < t->rank; d++)
        at = at * t->shape[d] + (t->shape[d] == 1 ? 0 : index[d + rank - t->rank]);
    return at;
}

static void norm_reference(const pome_tensor *x, const pome_tensor *gamma, int32_t axis, double epsilon, double *y)
{
    int64_t n = x->shape[axis], inner = 1, count = pome_tensor_count(x);
    for (int32_t d = axis + 1; d < x->rank; d++)
        inner *= x->shape[d];
    for (int64_t i = 0; i < count; i++) {
        int64_t first = i - i / inner % n * inner;
        double sum = 0;
        for (int64_t j = 0; j < n; j++)
            sum += op_test_at(x, first + j * inner) * op_test_at(x, first + j * inner);
        y[i] = op_test_at(x, i) / sqrt(sum / (double)n + epsilon);
        if (gamma)
            y[i] *= op_test_at(gamma, i / inner % n);
    }
}

static void test_rms_norm(void **unused)
{
    (void)unused;
    for (int round = 0; round < 60; round++) {
        int32_t rank = 1 + round % 4, axis = (int32_t)op_test_random_int(0, rank - 1);
        int64_t shape[4];
        op_test_shape(shape, rank, round % 5 ? 9 : 40 / rank, false);
        if (round % 3 == 0)
            shape[axis] = op_test_random_int(1, 100);
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, rank, shape, -300, 300);
        pome_tensor gamma = op_test_tensor(POME_DTYPE_F32, 1, &shape[axis], -2, 2);
        op_test *t = op_test_begin(POME_OP_pome_rms_norm, POME_OPSET_IOS18);
        op_test_in(t, "x", &x);
        if (round % 2)
            op_test_const(t, "gamma", &gamma);
        op_test_const_f32(t, "epsilon", 1e-5f);
        op_test_const_int(t, "axis", axis);
        if (op_test_run(t) != POME_OK)
            fail_msg("%s", op_test_error(t)->message);
        norm_reference(&x, round % 2 ? &gamma : NULL, axis, (double)1e-5f, want);
        op_test_expect(t, 0, want, 3e-7, 0);
        op_test_end(t);
        pome_tensor_reset(&x);
        pome_tensor_reset(&gamma);
    }
}

/* y is as large as x, or broadcast to it. */
static void test_add_rms_norm(void **unused)
{
    (void)unused;
    for (int round = 0; round < 40; round++) {
        int32_t axis = round % 3;
        int64_t shape[3], small[3];
        op_test_shape(shape, 3, 20, false);
        memcpy(small, shape, sizeof small);
        if (round % 4 == 0)
            small[0] = small[1] = 1;
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, 3, shape, -3, 3), y = op_test_tensor(POME_DTYPE_F32, 3, small, -3, 3);
        pome_tensor gamma = op_test_tensor(POME_DTYPE_F32, 1, &shape[axis], -2, 2);
        pome_tensor sum = op_test_tensor(POME_DTYPE_F32, 3, shape, 0, 0);
        op_test *t = op_test_begin(POME_OP_pome_add_rms_norm, POME_OPSET_IOS18);
        op_test_in(t, "x", round % 8 ? &x : &y);
        op_test_in(t, "y", round % 8 ? &y : &x);
        op_test_const(t, "gamma", &gamma);
        op_test_const_f32(t, "epsilon", 1e-6f);
        op_test_const_int(t, "axis", axis - 3);
        if (op_test_run(t) != POME_OK)
            fail_msg("%s", op_test_error(t)->message);
        int64_t index[3] = {0}, at = 0;
        do {
            float v = (float)op_test_at(&x, at) + (float)op_test_at(&y, offset_of(index, &y, 3));
            want[at] = (double)v;
            op_test_set(&sum, at++, (double)v);
        } while (op_test_next(index, 3, shape));
        op_test_expect(t, 0, want, 0, 0);
        norm_reference(&sum, &gamma, axis, (double)1e-6f, want);
        op_test_expect(t, 1, want, 3e-7, 0);
        op_test_end(t);
        pome_tensor_reset(&x);
        pome_tensor_reset(&y);
        pome_tensor_reset(&gamma);
        pome_tensor_reset(&sum);
    }
}

static float rotary_at(const pome_tensor *x, const pome_tensor *cos, const pome_tensor *sin, const int64_t *index,
                       int32_t axis, bool negate)
{
    int64_t other[4], table[4], half = x->shape[axis] / 2;
    memcpy(other, index, sizeof other);
    memcpy(table, index, sizeof table);
    bool is_first = index[axis] < half;
    other[axis] += is_first ? half : -half;
    int32_t own = axis - (4 - cos->rank);
    if (cos->shape[own] == half)
        table[axis] = index[axis] % half;
    float c = (float)op_test_at(cos, offset_of(table, cos, 4)), s = (float)op_test_at(sin, offset_of(table, sin, 4));
    float straight = (float)op_test_at(x, offset_of(index, x, 4)) * c;
    float crossed = (float)op_test_at(x, offset_of(other, x, 4)) * s;
    return is_first && negate ? straight - crossed : straight + crossed;
}

static void test_rotary(void **unused)
{
    (void)unused;
    for (int round = 0; round < 60; round++) {
        int32_t axis = round % 3 ? 3 : 2, rank = round % 2 ? 4 : 2;
        int64_t shape[4], table[4];
        op_test_shape(shape, 4, 7, false);
        shape[axis] = 2 * op_test_random_int(2, 20);
        memcpy(table, shape, sizeof table);
        table[0] = table[1] = 1;
        if (round % 5 == 0)
            table[axis] /= 2;
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, 4, shape, -3, 3);
        pome_tensor cos = op_test_tensor(POME_DTYPE_F32, rank, table + 4 - rank, -1, 1);
        pome_tensor sin = op_test_tensor(POME_DTYPE_F32, rank, table + 4 - rank, -1, 1);
        op_test *t = op_test_begin(POME_OP_pome_rotary, POME_OPSET_IOS18);
        op_test_in(t, "x", &x);
        op_test_in(t, "cos", &cos);
        op_test_in(t, "sin", &sin);
        op_test_const_int(t, "axis", axis);
        op_test_const_bool(t, "negate", round % 4 < 2);
        if (op_test_run(t) != POME_OK)
            fail_msg("%s", op_test_error(t)->message);
        int64_t index[4] = {0}, at = 0;
        do
            want[at++] = (double)rotary_at(&x, &cos, &sin, index, axis, round % 4 < 2);
        while (op_test_next(index, 4, shape));
        op_test_expect(t, 0, want, 0, 0);
        op_test_end(t);
        pome_tensor_reset(&x);
        pome_tensor_reset(&cos);
        pome_tensor_reset(&sin);
    }
}

static double gate_of(const char *activation, double x)
{
    if (strcmp(activation, "silu") == 0)
        return x / (1 + exp(-x));
    if (strcmp(activation, "gelu") == 0)
        return 0.5 * x * erfc(-x / sqrt(2));
    if (strcmp(activation, "gelu_tanh") == 0)
        return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    return x / (1 + exp(-1.702 * x));
}

static void test_gated(void **unused)
{
    (void)unused;
    static const char *const names[] = {"silu", "gelu", "gelu_tanh", "gelu_sigmoid"};
    for (int round = 0; round < 24; round++) {
        int64_t shape[3];
        op_test_shape(shape, 3, 20, round % 5 == 0);
        pome_tensor gate = op_test_tensor(POME_DTYPE_F32, 3, shape, -6, 6), up = op_test_tensor(POME_DTYPE_F32, 3, shape, -3, 3);
        op_test *t = op_test_begin(POME_OP_pome_gated, POME_OPSET_IOS18);
        op_test_in(t, "gate", &gate);
        op_test_in(t, "up", &up);
        op_test_const_str(t, "activation", names[round % 4]);
        if (op_test_run(t) != POME_OK)
            fail_msg("%s", op_test_error(t)->message);
        for (int64_t i = 0; i < pome_tensor_count(&gate); i++)
            want[i] = gate_of(names[round % 4], op_test_at(&gate, i)) * op_test_at(&up, i);
        op_test_expect(t, 0, want, 2e-6, 1e-9);
        op_test_end(t);
        pome_tensor_reset(&gate);
        pome_tensor_reset(&up);
    }
}

/* Heads side by side in a row: the transpose of what attention gives otherwise, bit for bit. */
static void test_rows_first(void **unused)
{
    (void)unused;
    enum { BATCH = 2, HEADS = 6, LENGTH = 5, KEYS = 150, WIDTH = 8 };
    pome_tensor q = op_test_tensor(POME_DTYPE_F32, 4, (int64_t[]){BATCH, HEADS, LENGTH, WIDTH}, -2, 2);
    pome_tensor k = op_test_tensor(POME_DTYPE_F16, 4, (int64_t[]){BATCH, 2, KEYS, WIDTH}, -2, 2);
    pome_tensor v = op_test_tensor(POME_DTYPE_F16, 4, (int64_t[]){BATCH, 2, KEYS, WIDTH}, -2, 2);
    for (int rows_first = 0; rows_first < 2; rows_first++) {
        op_test *t = op_test_begin(POME_OP_pome_grouped_attention, POME_OPSET_IOS18);
        op_test_in_as(t, "query", &q, POME_DTYPE_F16);
        op_test_in(t, "key", &k);
        op_test_in(t, "value", &v);
        op_test_const_int(t, "groups", 3);
        op_test_const_bool(t, "rows_first", rows_first);
        if (op_test_run(t) != POME_OK)
            fail_msg("%s", op_test_error(t)->message);
        if (rows_first) {
            op_test_expect_shape(t, 0, 4, (int64_t[]){BATCH, LENGTH, HEADS, WIDTH});
            op_test_expect(t, 0, want, 0, 0);
        } else {
            int64_t index[4] = {0}, shape[4] = {BATCH, HEADS, LENGTH, WIDTH}, at = 0;
            do
                want[((index[0] * LENGTH + index[2]) * HEADS + index[1]) * WIDTH + index[3]] = op_test_at(op_test_out(t, 0), at++);
            while (op_test_next(index, 4, shape));
        }
        op_test_end(t);
    }
    pome_tensor_reset(&q);
    pome_tensor_reset(&k);
    pome_tensor_reset(&v);
}

static void test_rejections(void **unused)
{
    (void)unused;
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, 2, (int64_t[]){3, 8}, -1, 1);
    pome_tensor odd = op_test_tensor(POME_DTYPE_F32, 2, (int64_t[]){3, 5}, -1, 1);
    op_test *t = op_test_begin(POME_OP_pome_rms_norm, POME_OPSET_IOS18);
    op_test_in(t, "x", &x);
    op_test_const_f32(t, "epsilon", 0);
    op_test_const_int(t, "axis", 2);
    op_test_expect_failure(t, POME_ERR_FORMAT, "axis 2");
    op_test_end(t);
    t = op_test_begin(POME_OP_pome_rotary, POME_OPSET_IOS18);
    op_test_in(t, "x", &x);
    op_test_in(t, "cos", &odd);
    op_test_in(t, "sin", &x);
    op_test_const_int(t, "axis", 1);
    op_test_const_bool(t, "negate", true);
    op_test_expect_failure(t, POME_ERR_ARG, "do not fit");
    op_test_end(t);
    t = op_test_begin(POME_OP_pome_gated, POME_OPSET_IOS18);
    op_test_in(t, "gate", &x);
    op_test_in(t, "up", &x);
    op_test_const_str(t, "activation", "step");
    op_test_expect_failure(t, POME_ERR_UNSUPPORTED, "step");
    op_test_end(t);
    pome_tensor_reset(&x);
    pome_tensor_reset(&odd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rms_norm), cmocka_unit_test(test_add_rms_norm), cmocka_unit_test(test_rotary),
        cmocka_unit_test(test_gated),    cmocka_unit_test(test_rows_first),   cmocka_unit_test(test_rejections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
