/* Random operators: moments, ranges and frequencies of large tensors; equal seeds give equal tensors. Bounds are six
 * standard errors wide and the seeds fixed. */
#include "op_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 40000 };

static op_test *begin(pome_op_id id, int32_t seed)
{
    static const int32_t shape[2] = {200, N / 200};
    op_test *t = op_test_begin(id, POME_OPSET_IOS15);
    op_test_const_ints(t, "shape", shape, 2);
    if (seed != -1)
        op_test_const_int(t, "seed", seed);
    return t;
}
static void run(op_test *t)
{
    if (op_test_run(t) != POME_OK)
        fail_msg("%s", op_test_error(t)->message);
    op_test_expect_shape(t, 0, 2, (const int64_t[]){200, N / 200});
}
static void moments(const op_test *t, double *mean, double *variance)
{
    *mean = *variance = 0;
    for (int i = 0; i < N; i++)
        *mean += op_test_at(op_test_out(t, 0), i) / N;
    for (int i = 0; i < N; i++)
        *variance += pow(op_test_at(op_test_out(t, 0), i) - *mean, 2) / N;
}

static void uniform(void **state)
{
    (void)state;
    double mean, variance;
    op_test *t = begin(POME_OP_random_uniform, 5);
    op_test_const_f32(t, "low", -2);
    op_test_const_f32(t, "high", 6);
    run(t);
    moments(t, &mean, &variance);
    assert_true(fabs(mean - 2) < 6 * sqrt(64.0 / 12 / N));
    assert_true(fabs(variance - 64.0 / 12) < 0.15);
    int tenths[10] = {0};
    for (int i = 0; i < N; i++) {
        double v = op_test_at(op_test_out(t, 0), i);
        assert_true(v >= -2 && v < 6);
        tenths[(int)((v + 2) / 0.8)]++;
    }
    for (int i = 0; i < 10; i++)
        assert_true(abs(tenths[i] - N / 10) < 6 * sqrt(N * 0.09));
    op_test_end(t);
}

/* Nothing lies between: rounding to fp32 must not give `high`, unless it is `low`. */
static void uniform_of_no_width(void **state)
{
    (void)state;
    static const float high[] = {0x1.000002p0f, 1.0f};
    for (int k = 0; k < 2; k++) {
        op_test *t = begin(POME_OP_random_uniform, 1);
        op_test_const_f32(t, "low", 1.0f);
        op_test_const_f32(t, "high", high[k]);
        run(t);
        for (int i = 0; i < N; i++)
            assert_true(op_test_at(op_test_out(t, 0), i) == 1);
        op_test_end(t);
    }
}

static void normal(void **state)
{
    (void)state;
    double mean, variance, within = 0;
    op_test *t = begin(POME_OP_random_normal, 77);
    op_test_const_f32(t, "mean", 3);
    op_test_const_f32(t, "stddev", 2);
    run(t);
    moments(t, &mean, &variance);
    assert_true(fabs(mean - 3) < 6 * 2 / sqrt(N));
    assert_true(fabs(variance - 4) < 6 * 4 * sqrt(2.0 / N));
    for (int i = 0; i < N; i++)
        within += fabs(op_test_at(op_test_out(t, 0), i) - 3) < 2 ? 1.0 / N : 0;
    assert_true(fabs(within - 0.6827) < 0.015);
    op_test_end(t);
}

static void bernoulli(void **state)
{
    (void)state;
    double mean, variance;
    op_test *t = begin(POME_OP_random_bernoulli, 9);
    op_test_const_f32(t, "prob", 0.3f);
    run(t);
    moments(t, &mean, &variance);
    assert_true(fabs(mean - 0.3) < 6 * sqrt(0.21 / N));
    for (int i = 0; i < N; i++) {
        double v = op_test_at(op_test_out(t, 0), i);
        assert_true(v == 0 || v == 1);
    }
    op_test_end(t);
}

static void seeds(void **state)
{
    (void)state;
    static const pome_op_id ids[] = {POME_OP_random_uniform, POME_OP_random_normal};
    for (int k = 0; k < 2; k++) {
        double first[2];
        for (int s = 0; s < 2; s++) {
            op_test *t = begin(ids[k], 100 + s);
            run(t); /* compares six runs bit for bit */
            first[s] = op_test_at(op_test_out(t, 0), 0);
            op_test_end(t);
        }
        assert_true(first[0] != first[1]);
    }
}

static double first_without_seed(void)
{
    op_test *t = begin(POME_OP_random_uniform, -1);
    assert_int_equal(op_test_run_once(t), POME_OK);
    double first = op_test_at(op_test_out(t, 0), 0);
    op_test_end(t);
    return first;
}
static void fresh_seeds(void **state)
{
    (void)state;
    assert_true(first_without_seed() != first_without_seed());
}

static void check_categorical(const char *mode, const double *x, const double *probability)
{
    enum { CLASSES = 4, DRAWS = 20000 };
    int64_t shape[2] = {2, CLASSES};
    pome_tensor logits = op_test_tensor_of(POME_DTYPE_F32, 2, shape, x);
    op_test *t = op_test_begin(POME_OP_random_categorical, POME_OPSET_IOS15);
    op_test_in(t, "x", &logits);
    if (mode)
        op_test_const_str(t, "mode", mode);
    op_test_const_int(t, "size", DRAWS);
    op_test_const_int(t, "seed", 4);
    if (op_test_run(t) != POME_OK)
        fail_msg("%s", op_test_error(t)->message);
    op_test_expect_shape(t, 0, 2, (const int64_t[]){2, DRAWS});
    for (int row = 0; row < 2; row++) {
        double share[CLASSES] = {0};
        for (int i = 0; i < DRAWS; i++) {
            double c = op_test_at(op_test_out(t, 0), row * DRAWS + i);
            assert_true(c >= 0 && c < CLASSES && c == floor(c));
            share[(int)c] += 1.0 / DRAWS;
        }
        for (int c = 0; c < CLASSES; c++) {
            double p = probability[row * CLASSES + c];
            assert_true(fabs(share[c] - p) <= 6 * sqrt(p * (1 - p) / DRAWS));
        }
    }
    op_test_end(t);
    pome_tensor_reset(&logits);
}

static void categorical(void **state)
{
    (void)state;
    const double probability[8] = {0.1, 0.2, 0.3, 0.4, 0, 0.5, 0.5, 0};
    double logits[8];
    for (int i = 0; i < 8; i++)
        logits[i] = log(probability[i]) + 100; /* any shift; -inf for what cannot be drawn */
    check_categorical(NULL, logits, probability);
    check_categorical("probs", probability, probability);
}

static void categorical_of_no_distribution(void **state)
{
    (void)state;
    int64_t shape[1] = {3};
    static const double none[] = {-INFINITY, -INFINITY, -INFINITY}, nan[] = {0, NAN, 1};
    for (int k = 0; k < 2; k++) {
        pome_tensor x = op_test_tensor_of(POME_DTYPE_F32, 1, shape, k ? nan : none);
        op_test *t = op_test_begin(POME_OP_random_categorical, POME_OPSET_IOS15);
        op_test_in(t, "x", &x);
        op_test_const_int(t, "seed", 4);
        op_test_expect_failure(t, POME_ERR_ARG, "no distribution");
        op_test_end(t);
        pome_tensor_reset(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uniform),     cmocka_unit_test(uniform_of_no_width), cmocka_unit_test(normal),
        cmocka_unit_test(bernoulli),   cmocka_unit_test(seeds),               cmocka_unit_test(fresh_seeds),
        cmocka_unit_test(categorical), cmocka_unit_test(categorical_of_no_distribution),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
