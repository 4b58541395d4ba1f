#include <math.h>
#include <string.h>

#include "base/f16.h"
#include "encoded_test.h"

enum { MAX = 60000 };
static double want[MAX], bound[MAX];

/* numpy.matmul in double for operands of rank >= 2, after transposing; returns the number of results. */
static int64_t reference(const pome_tensor *x, const pome_tensor *y, bool tx, bool ty)
{
    int32_t rank = x->rank > y->rank ? x->rank : y->rank;
    int64_t m = x->shape[x->rank - (tx ? 1 : 2)], k = x->shape[x->rank - (tx ? 2 : 1)];
    int64_t n = y->shape[y->rank - (ty ? 2 : 1)], shape[POME_MAX_RANK], index[POME_MAX_RANK] = {0}, count = 0;
    for (int32_t d = 0; d < rank - 2; d++) {
        int64_t a = d - (rank - x->rank) >= 0 ? x->shape[d - (rank - x->rank)] : 1;
        int64_t b = d - (rank - y->rank) >= 0 ? y->shape[d - (rank - y->rank)] : 1;
        shape[d] = a == 1 ? b : a;
    }
    shape[rank - 2] = m;
    shape[rank - 1] = n;
    for (int32_t d = 0; d < rank; d++)
        if (shape[d] == 0)
            return 0;
    do {
        int64_t ix[POME_MAX_RANK], iy[POME_MAX_RANK], i = index[rank - 2], j = index[rank - 1];
        double sum = 0, magnitude = 0;
        memcpy(ix, index, sizeof ix);
        memcpy(iy, index, sizeof iy);
        for (int64_t p = 0; p < k; p++) {
            ix[rank - 2] = tx ? p : i, ix[rank - 1] = tx ? i : p;
            iy[rank - 2] = ty ? j : p, iy[rank - 1] = ty ? p : j;
            double term = op_test_at_index(x, ix + rank - x->rank) * op_test_at_index(y, iy + rank - y->rank);
            sum += term;
            magnitude += fabs(term);
        }
        assert_true(count < MAX);
        want[count] = sum;
        bound[count++] = magnitude * 0x1p-24 * ((double)k + 8);
    } while (op_test_next(index, rank, shape));
    return count;
}

static void check(op_test *t, int64_t count)
{
    assert_int_equal(op_test_run(t), POME_OK);
    const pome_tensor *out = op_test_out(t, 0);
    assert_int_equal(pome_tensor_count(out), count);
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(op_test_at(out, i) - want[i]) <= bound[i]))
            fail_msg("element %lld is %.9g, wanted %.9g", (long long)i, op_test_at(out, i), want[i]);
}

static void batch_shapes(int64_t *a, int64_t *b, int32_t n) /* that broadcast */
{
    for (int32_t d = 0; d < n; d++) {
        int64_t size = op_test_random_int(1, 3), which = op_test_random_int(0, 3);
        a[d] = which == 1 ? 1 : size;
        b[d] = which == 2 ? 1 : size;
    }
}

static void test_batches(void **unused)
{
    (void)unused;
    for (int round = 0; round < 80; round++) {
        int64_t a[4], b[4], m = op_test_random_int(1, round % 3 ? 9 : 80), n = op_test_random_int(1, round % 4 ? 9 : 150);
        int64_t k = op_test_random_int(1, round % 6 ? 40 : 1100);
        int32_t batch = (int32_t)op_test_random_int(0, 2), skip = batch ? (int32_t)op_test_random_int(0, batch) : 0;
        bool tx = round & 1, ty = round & 2, left_shorter = round & 4;
        if (m * n > 2000)
            batch = skip = 0;
        batch_shapes(a, b, batch);
        a[batch] = tx ? k : m, a[batch + 1] = tx ? m : k;
        b[batch] = ty ? n : k, b[batch + 1] = ty ? k : n;
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, batch + 2 - (left_shorter ? skip : 0), a + (left_shorter ? skip : 0), -1, 1);
        pome_tensor y = op_test_tensor(round % 5 ? POME_DTYPE_F32 : POME_DTYPE_F16, batch + 2 - (left_shorter ? 0 : skip),
                                       b + (left_shorter ? 0 : skip), -1, 1);
        int64_t count = reference(&x, &y, tx, ty);
        op_test *t = op_test_begin(POME_OP_matmul, POME_OPSET_IOS18);
        op_test_in(t, "x", &x);
        if (y.dtype == POME_DTYPE_F16)
            op_test_const(t, "y", &y); /* a constant side of another type */
        else
            op_test_in(t, "y", &y);
        op_test_const_bool(t, "transpose_x", tx);
        op_test_const_bool(t, "transpose_y", ty);
        check(t, count);
        op_test_end(t);
        pome_tensor_reset(&x);
        pome_tensor_reset(&y);
    }
}

/* A row of x alone gives what it gave among the others, also with fp16 and encoded y. */
static void test_rows(void **unused)
{
    (void)unused;
    for (int round = 0; round < 24; round++) {
        int64_t k = op_test_random_int(1, 20) * 32, n = op_test_random_int(1, 100), m = op_test_random_int(2, 70);
        bool ty = round & 1;
        int64_t shape[2] = {ty ? n : k, ty ? k : n};
        pome_arena *arena = pome_arena_create(0);
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, 2, (int64_t[]){m, k}, -1, 1);
        pome_tensor row = pome_tensor_borrow((float *)x.data + k * (m - 1), POME_DTYPE_F32, 2, (int64_t[]){1, k});
        pome_tensor y = op_test_tensor(round & 2 ? POME_DTYPE_F16 : POME_DTYPE_F32, 2, shape, -1, 1);
        pome_tensor codes = op_test_tensor(POME_DTYPE_I8, 2, shape, -128, 127), decoded = y;
        pome_tensor scales = op_test_tensor(POME_DTYPE_F16, 2, (int64_t[]){shape[0], ty ? k / 32 : 1}, -0.1, 0.1);
        const pome_encoded *e = round & 4 ? encoded_test_blocks(arena, &codes, &scales) : NULL;
        if (e) {
            assert_int_equal(pome_tensor_init(&decoded, POME_DTYPE_F32, 2, shape, NULL), POME_OK);
            for (int64_t i = 0; i < n * k; i++) {
                int64_t scale = ty ? i / k * (k / 32) + i % k / 32 : i / n;
                op_test_set(&decoded, i,
                            pome_f16_round((float)(op_test_at(&scales, scale) * op_test_at(&codes, i))));
            }
        }
        int64_t count = reference(&x, &decoded, false, ty);
        pome_numerics numerics = round & 8 ? POME_NUMERICS_FAST : POME_NUMERICS_EXACT;
        for (int64_t i = 0; e && numerics == POME_NUMERICS_FAST && i < count; i++)
            for (int64_t p = 0; p < k; p++) /* activations in steps of 1/127, weights not rounded to half */
                bound[i] += fabs(op_test_at(&decoded, ty ? i % n * k + p : p * n + i % n)) * (0.501 / 127 + 0x1p-11);
        op_test *t[2];
        for (int i = 0; i < 2; i++) {
            t[i] = op_test_begin(POME_OP_matmul, POME_OPSET_IOS18);
            op_test_numerics(t[i], numerics);
            op_test_in_as(t[i], "x", i ? &row : &x, e ? POME_DTYPE_F16 : POME_DTYPE_F32);
            if (e)
                op_test_const_encoded(t[i], "y", e);
            else
                op_test_const(t[i], "y", &y);
            op_test_const_bool(t[i], "transpose_y", ty);
        }
        check(t[0], count);
        assert_int_equal(op_test_run(t[1]), POME_OK);
        for (int64_t j = 0; j < n; j++)
            if (op_test_at(op_test_out(t[1], 0), j) != op_test_at(op_test_out(t[0], 0), (m - 1) * n + j))
                fail_msg("round %d: a row differs alone, column %lld", round, (long long)j);
        op_test_end(t[0]);
        op_test_end(t[1]);
        if (e)
            pome_tensor_reset(&decoded);
        pome_tensor_reset(&x);
        pome_tensor_reset(&y);
        pome_tensor_reset(&codes);
        pome_tensor_reset(&scales);
        pome_arena_destroy(&arena);
    }
}

/* numpy: [k] x [k, n] -> [n], [m, k] x [k] -> [m], [k] x [k] -> scalar */
static void test_vectors(void **unused)
{
    (void)unused;
    for (int which = 0; which < 3; which++) {
        int64_t k = 37, m = which == 1 ? 3 : 1, n = which == 0 ? 5 : 1;
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, which == 1 ? 2 : 1, which == 1 ? (int64_t[]){m, k} : &k, -1, 1);
        pome_tensor y = op_test_tensor(POME_DTYPE_F32, which == 0 ? 2 : 1, which == 0 ? (int64_t[]){k, n} : &k, -1, 1);
        pome_tensor x2 = pome_tensor_borrow(x.data, x.dtype, 2, (int64_t[]){m, k});
        pome_tensor y2 = pome_tensor_borrow(y.data, y.dtype, 2, (int64_t[]){k, n});
        op_test *t = op_test_begin(POME_OP_matmul, POME_OPSET_IOS15);
        op_test_in(t, "x", &x);
        op_test_in(t, "y", &y);
        check(t, reference(&x2, &y2, false, false));
        int64_t length = which == 1 ? m : n;
        op_test_expect_shape(t, 0, which == 2 ? 0 : 1, &length);
        op_test_end(t);
        pome_tensor_reset(&x);
        pome_tensor_reset(&y);
    }
}

static void test_integers(void **unused)
{
    (void)unused;
    pome_tensor x = op_test_tensor(POME_DTYPE_I32, 3, (int64_t[]){2, 3, 4}, -30000, 30000);
    pome_tensor y = op_test_tensor(POME_DTYPE_I32, 2, (int64_t[]){4, 5}, -10000, 10000);
    int64_t count = reference(&x, &y, false, false);
    op_test *t = op_test_begin(POME_OP_matmul, POME_OPSET_IOS15);
    op_test_in(t, "x", &x);
    op_test_in(t, "y", &y);
    assert_int_equal(op_test_run(t), POME_OK);
    assert_int_equal(pome_tensor_count(op_test_out(t, 0)), count);
    op_test_expect(t, 0, want, 0, 0);
    op_test_end(t);
    pome_tensor_reset(&x);
    pome_tensor_reset(&y);
}

static void test_rejections(void **unused)
{
    (void)unused;
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, 2, (int64_t[]){2, 3}, -1, 1);
    pome_tensor y = op_test_tensor(POME_DTYPE_F32, 2, (int64_t[]){4, 5}, -1, 1);
    op_test *t = op_test_begin(POME_OP_matmul, POME_OPSET_IOS18);
    op_test_in(t, "x", &x);
    op_test_in(t, "y", &y);
    op_test_expect_failure(t, POME_ERR_FORMAT, "3 and 4");
    op_test_end(t);
    pome_tensor_reset(&x);
    pome_tensor_reset(&y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_rejections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
