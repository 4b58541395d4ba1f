/* Activations and softmax against formulas in double. */
#include "op_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/vecmath.h"

typedef double activation_fn(double x, double alpha, double beta);
static double sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}
static double a_relu(double x, double a, double b) { (void)a, (void)b; return x < 0 ? 0 : x; }
static double a_relu6(double x, double a, double b) { (void)a, (void)b; return x < 0 ? 0 : x > 6 ? 6 : x; }
static double a_sigmoid(double x, double a, double b) { (void)a, (void)b; return (float)sigmoid(x); }
static double a_silu(double x, double a, double b) { (void)a, (void)b; return (float)(x * sigmoid(x)); }
static double a_softplus(double x, double a, double b) { (void)a, (void)b; return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)); }
static double a_softsign(double x, double a, double b) { (void)a, (void)b; return x / (1 + fabs(x)); }
static double a_elu(double x, double a, double b) { (void)b; return x > 0 ? x : a * expm1(x); }
static double a_leaky(double x, double a, double b) { (void)b; return x < 0 ? a * x : x; }
static double a_thresholded(double x, double a, double b) { (void)b; return x >= a || x != x ? x : 0; }
static double a_clamped(double x, double a, double b) { return x != x ? x : x >= 0 ? fmin(x, b) : fmin(a * x, b); }
static double a_linear(double x, double a, double b) { return a * x + b; }
static double a_tanh(double x, double a, double b) { return a * tanh(b * x); }
static double a_hard(double x, double a, double b) { double v = a * x + b; return v < 0 ? 0 : v > 1 ? 1 : v; }
static double a_gelu(double x, double a, double b) { (void)a, (void)b; return 0.5 * x * erfc(-x / sqrt(2)); }
static double a_gelu_tanh(double x, double a, double b)
{
    (void)a, (void)b;
    return 0.5 * x * (1 + tanh(sqrt(2 / 3.14159265358979324) * (x + 0.044715 * x * x * x)));
}
static double a_gelu_sigmoid(double x, double a, double b) { (void)a, (void)b; return x * sigmoid(1.702 * x); }

static const struct activation {
    pome_op_id id;
    activation_fn *fn;
    int n_constants; /* alpha, then beta */
    double alpha, beta, rel, abs;
    const char *mode;
} activations[] = {
    {POME_OP_relu, a_relu, 0, 0, 0, 0, 0, NULL},
    {POME_OP_relu6, a_relu6, 0, 0, 0, 0, 0, NULL},
    {POME_OP_sigmoid, a_sigmoid, 0, 0, 0, 4e-7, 0x1p-149, NULL},
    {POME_OP_silu, a_silu, 0, 0, 0, 5e-7, 0x1p-142, NULL},
    {POME_OP_softplus, a_softplus, 0, 0, 0, 5e-7, 0x1p-147, NULL},
    {POME_OP_softsign, a_softsign, 0, 0, 0, 2e-7, 0, NULL},
    {POME_OP_elu, a_elu, 1, 1.7, 0, 4e-7, 0, NULL},
    {POME_OP_leaky_relu, a_leaky, 1, 0.01, 0, 2e-7, 0, NULL},
    {POME_OP_thresholded_relu, a_thresholded, 1, 1.5, 0, 0, 0, NULL},
    {POME_OP_clamped_relu, a_clamped, 2, 0.1, 2.5, 2e-7, 0, NULL},
    {POME_OP_clamped_relu, a_clamped, 2, -0.5, 2.5, 2e-7, 0, NULL},
    {POME_OP_linear_activation, a_linear, 2, -3, 0.25, 4e-7, 1e-6, NULL},
    {POME_OP_scaled_tanh, a_tanh, 2, 1.75, 0.5, 5e-7, 0, NULL},
    {POME_OP_sigmoid_hard, a_hard, 2, 0.2, 0.5, 4e-7, 1e-7, NULL},
    /* the tails of gelu multiply the rounding of their argument by its size */
    {POME_OP_gelu, a_gelu, 0, 0, 0, 1e-5, 1e-15, "EXACT"},
    {POME_OP_gelu, a_gelu, 0, 0, 0, 1e-5, 1e-15, NULL},
    /* the reference loses its digits where 1 + tanh cancels */
    {POME_OP_gelu, a_gelu_tanh, 0, 0, 0, 1e-5, 1e-14, "TANH_APPROXIMATION"},
    {POME_OP_gelu, a_gelu_sigmoid, 0, 0, 0, 2e-5, 1e-37, "SIGMOID_APPROXIMATION"},
};

static void check_activation(const struct activation *a, int32_t rank, const int64_t *shape)
{
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, rank, shape, -12, 12);
    int64_t n = pome_tensor_count(&x);
    for (int64_t i = 0; i < n; i++) {
        if (op_test_random_int(0, 15) == 0)
            op_test_set(&x, i, op_test_random_double(-120, 120));
        if (op_test_random_int(0, 31) == 0)
            op_test_set(&x, i, op_test_random_int(0, 1) ? 0 : NAN);
    }
    op_test *t = op_test_begin(a->id, POME_OPSET_IOS17);
    op_test_in(t, "x", &x);
    if (a->n_constants > 0)
        op_test_const_f32(t, "alpha", (float)a->alpha);
    if (a->n_constants > 1)
        op_test_const_f32(t, "beta", (float)a->beta);
    if (a->mode)
        op_test_const_str(t, "mode", a->mode);
    if (op_test_run(t) != POME_OK)
        fail_msg("%s", op_test_error(t)->message);
    op_test_expect_shape(t, 0, rank, shape);
    double *want = calloc((size_t)n + 1, sizeof *want);
    for (int64_t i = 0; i < n; i++)
        want[i] = a->fn(op_test_at(&x, i), (double)(float)a->alpha, (double)(float)a->beta);
    op_test_expect(t, 0, want, a->rel, a->abs);
    free(want);
    op_test_end(t);
    pome_tensor_reset(&x);
}

static void functions(void **state)
{
    (void)state;
    for (size_t a = 0; a < sizeof activations / sizeof activations[0]; a++) {
        for (int round = 0; round < 10; round++) {
            int64_t shape[POME_MAX_RANK];
            int32_t rank = (int32_t)op_test_random_int(0, 5);
            op_test_shape(shape, rank, 6, true);
            check_activation(&activations[a], rank, shape);
        }
        check_activation(&activations[a], 2, (int64_t[]){2, 20011});
    }
}

static void gelu_of_another_mode(void **state)
{
    (void)state;
    int64_t shape[1] = {3};
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, 1, shape, -1, 1);
    op_test *t = op_test_begin(POME_OP_gelu, POME_OPSET_IOS15);
    op_test_in(t, "x", &x);
    op_test_const_str(t, "mode", "EXACTLY");
    op_test_expect_failure(t, POME_ERR_FORMAT, "EXACTLY");
    op_test_end(t);
    pome_tensor_reset(&x);
}

static void constants_per_channel(void **state)
{
    (void)state;
    for (int round = 0; round < 30; round++) {
        int64_t shape[POME_MAX_RANK];
        int32_t rank = (int32_t)op_test_random_int(3, 5);
        op_test_shape(shape, rank, 6, false);
        bool is_prelu = round % 2, is_one = round % 3 == 0;
        int64_t n_alpha[1] = {shape[1]};
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, rank, shape, -5, 5);
        pome_tensor alpha = op_test_tensor(POME_DTYPE_F32, 1, n_alpha, 0.5, 2);
        pome_tensor beta = op_test_tensor(POME_DTYPE_F32, 1, n_alpha, 0.5, 2);
        for (int64_t i = 0; i < shape[1] && (is_one || (is_prelu && rank != 4)); i++)
            op_test_set(&alpha, i, 0.75); /* prelu wants equal ones but for rank 4 */
        op_test *t = op_test_begin(is_prelu ? POME_OP_prelu : POME_OP_softplus_parametric, POME_OPSET_IOS15);
        op_test_in(t, "x", &x);
        op_test_const(t, "alpha", &alpha);
        if (!is_prelu)
            op_test_const(t, "beta", &beta);
        if (op_test_run(t) != POME_OK)
            fail_msg("%s", op_test_error(t)->message);
        int64_t n = pome_tensor_count(&x), index[POME_MAX_RANK] = {0};
        double *want = calloc((size_t)n, sizeof *want);
        for (int64_t i = 0; i < n; i++, op_test_next(index, rank, shape)) {
            double v = op_test_at(&x, i), a = op_test_at(&alpha, index[1]), b = op_test_at(&beta, index[1]);
            want[i] = is_prelu ? (v < 0 ? a * v : v) : a * log(1 + exp(b * v));
        }
        op_test_expect(t, 0, want, 5e-7, 1e-7);
        free(want);
        op_test_end(t);
        pome_tensor_reset(&x);
        pome_tensor_reset(&alpha);
        pome_tensor_reset(&beta);
    }
}

/* ---- e^x itself ---- */

static void exp_is_within_one_ulp(void **state)
{
    (void)state;
    uint32_t bits = (uint32_t)op_test_random();
    for (int i = 0; i < 2000000; i++) {
        bits += 2654435769u; /* visits all floats evenly */
        float x = pome_f32_from_bits(bits), got = pome_expf(x);
        if (x != x) {
            assert_true(got != got);
            continue;
        }
        double want = exp((double)x);
        if (want >= 0x1.ffffffp127) {
            assert_true(isinf(got) && got > 0);
            continue;
        }
        int exponent;
        frexp(want, &exponent);
        double ulp = ldexp(1, exponent - 24 < -149 ? -149 : exponent - 24);
        if (!(fabs((double)got - want) <= ulp))
            fail_msg("exp(%a) is %a, wanted %a", (double)x, (double)got, want);
    }
    assert_true(pome_expf(-INFINITY) == 0 && pome_expf(INFINITY) == INFINITY && pome_expf(-0.0f) == 1);
}

/* ---- softmax ---- */

static void softmax_reference(double *out, const pome_tensor *x, int32_t axis, double masked)
{
    int64_t n = x->shape[axis], inner = 1;
    for (int32_t d = axis + 1; d < x->rank; d++)
        inner *= x->shape[d];
    for (int64_t row = 0; row < pome_tensor_count(x) / n; row++) {
        int64_t base = row / inner * n * inner + row % inner;
        double max = -INFINITY, sum = 0, nan = 0;
        for (int64_t i = 0; i < n; i++) {
            double v = op_test_at(x, base + i * inner);
            max = fmax(max, v);
            nan = v != v ? v : nan;
        }
        for (int64_t i = 0; i < n; i++)
            sum += exp(op_test_at(x, base + i * inner) - max);
        for (int64_t i = 0; i < n; i++)
            out[base + i * inner] = nan != nan                 ? nan
                                    : max == -(double)INFINITY ? masked
                                                               : exp(op_test_at(x, base + i * inner) - max) / sum;
    }
}

static void check_softmax(int32_t rank, const int64_t *shape, int32_t axis, pome_numerics numerics)
{
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, rank, shape, -20, 20);
    int64_t n = pome_tensor_count(&x);
    int masking = (int)op_test_random_int(0, 3); /* none, some, all, some and a NaN */
    for (int64_t i = 0; i < n && masking; i++)
        if (masking == 2 || op_test_random_int(0, 2) == 0)
            op_test_set(&x, i, -INFINITY);
    if (masking == 3 && n)
        op_test_set(&x, op_test_random_int(0, n - 1), NAN);
    op_test *t = op_test_begin(POME_OP_softmax, POME_OPSET_IOS15);
    op_test_in(t, "x", &x);
    if (axis != rank - 1 || op_test_random_int(0, 1))
        op_test_const_int(t, "axis", op_test_random_int(0, 1) ? axis : axis - rank);
    op_test_numerics(t, numerics);
    if (op_test_run(t) != POME_OK)
        fail_msg("%s", op_test_error(t)->message);
    op_test_expect_shape(t, 0, rank, shape);
    double *want = calloc((size_t)n + 1, sizeof *want);
    if (n)
        softmax_reference(want, &x, axis, numerics == POME_NUMERICS_FP16 ? NAN : 0);
    op_test_expect(t, 0, want, 4e-6, 1e-38); /* x - max, up to 40, is rounded to 2.4e-6 */
    free(want);
    op_test_end(t);
    pome_tensor_reset(&x);
}

static void softmax_of_any_axis(void **state)
{
    (void)state;
    for (int round = 0; round < 150; round++) {
        int64_t shape[POME_MAX_RANK];
        int32_t rank = (int32_t)op_test_random_int(1, 5);
        op_test_shape(shape, rank, 7, true);
        check_softmax(rank, shape, (int32_t)op_test_random_int(0, rank - 1),
                      op_test_random_int(0, 3) ? POME_NUMERICS_EXACT : POME_NUMERICS_FP16);
    }
    for (int round = 0; round < 4; round++) {
        check_softmax(3, (int64_t[]){2, 37, 1023}, 2, POME_NUMERICS_EXACT);
        check_softmax(3, (int64_t[]){3, 513, 70}, 1, POME_NUMERICS_EXACT);
        check_softmax(2, (int64_t[]){5, 8200}, 0, POME_NUMERICS_EXACT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions),           cmocka_unit_test(gelu_of_another_mode),
        cmocka_unit_test(constants_per_channel), cmocka_unit_test(exp_is_within_one_ulp),
        cmocka_unit_test(softmax_of_any_axis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
