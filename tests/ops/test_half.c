/* fp16 mode: every elementwise operator over every half, within one unit in the last place of the exact result rounded. */
#include <math.h>
#include <stdlib.h>

#include "base/f16.h"
#include "op_test.h"

enum { N = 1 << 16 };

/* The half as an integer that grows with its value: neighbours differ by one. */
static int rank_of(uint16_t h)
{
    return h & 0x8000 ? -(int)(h & 0x7fff) : (int)h;
}

static uint16_t exact_half(double v)
{
    return pome_f32_to_f16((float)v); /* rounding twice moves a result by one unit at most where it is a tie */
}

static void expect_near(const op_test *t, const char *name, const double *want, int64_t n)
{
    const pome_tensor *out = op_test_out(t, 0);
    for (int64_t i = 0; i < n; i++) {
        float got = ((const float *)out->data)[i];
        uint16_t half = pome_f32_to_f16(got), wanted = exact_half(want[i]);
        bool is_half = isnan(got) || pome_f16_to_f32(half) == got;
        bool is_near = isnan(want[i]) ? isnan(got) : !isnan(got) && abs(rank_of(half) - rank_of(wanted)) <= 1;
        if (!is_half || !is_near)
            fail_msg("%s: element %lld is %.9g, wanted %.9g", name, (long long)i, (double)got, want[i]);
    }
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}
static double silu(double x)
{
    return x * sigmoid(x);
}
static double softplus(double x)
{
    return (x > 0 ? x : 0) + log1p(exp(-fabs(x)));
}
static double softsign(double x)
{
    return x / (1 + fabs(x));
}
static double relu(double x)
{
    return x > 0 ? x : 0;
}
static double relu6(double x)
{
    return x > 6 ? 6 : relu(x);
}
static double square(double x)
{
    return x * x;
}
static double gelu(double x)
{
    return 0.5 * x * erfc(-x / sqrt(2));
}

typedef struct unary {
    pome_op_id id;
    double (*f)(double);
    double low, high; /* of the operands */
} unary;

static const unary unaries[] = {
    {POME_OP_abs, fabs, -70000, 70000},       {POME_OP_acos, acos, -1, 1},
    {POME_OP_asin, asin, -1, 1},              {POME_OP_atan, atan, -70000, 70000},
    {POME_OP_atanh, atanh, -1, 1},            {POME_OP_ceil, ceil, -70000, 70000},
    {POME_OP_cos, cos, -70000, 70000},        {POME_OP_cosh, cosh, -70000, 70000},
    {POME_OP_erf, erf, -70000, 70000},        {POME_OP_exp, exp, -70000, 70000},
    {POME_OP_exp2, exp2, -70000, 70000},      {POME_OP_floor, floor, -70000, 70000},
    {POME_OP_round, nearbyint, -70000, 70000}, {POME_OP_sin, sin, -70000, 70000},
    {POME_OP_sinh, sinh, -70000, 70000},      {POME_OP_sqrt, sqrt, 0, 70000},
    {POME_OP_square, square, -70000, 70000},  {POME_OP_tan, tan, -70000, 70000},
    {POME_OP_tanh, tanh, -70000, 70000},      {POME_OP_sigmoid, sigmoid, -70000, 70000},
    {POME_OP_silu, silu, -70000, 70000},      {POME_OP_softplus, softplus, -70000, 70000},
    {POME_OP_softsign, softsign, -70000, 70000}, {POME_OP_relu, relu, -70000, 70000},
    {POME_OP_relu6, relu6, -70000, 70000},    {POME_OP_gelu, gelu, -70000, 70000},
};

static pome_tensor halves; /* those within the operator's range */
static double want[N];

static int64_t take_halves(double low, double high)
{
    int64_t n = 0;
    halves = op_test_tensor(POME_DTYPE_F16, 1, (int64_t[]){N}, 0, 0);
    for (int h = 0; h < N; h++) {
        double v = (double)pome_f16_to_f32((uint16_t)h);
        if (v >= low && v <= high) /* NaN and infinities are left out */
            ((uint16_t *)halves.data)[n++] = (uint16_t)h;
    }
    halves.shape[0] = n;
    return n;
}

static void every_half(void **state)
{
    (void)state;
    for (size_t u = 0; u < sizeof unaries / sizeof unaries[0]; u++) {
        int64_t n = take_halves(unaries[u].low, unaries[u].high);
        for (int64_t i = 0; i < n; i++)
            want[i] = unaries[u].f(op_test_at(&halves, i));
        op_test *t = op_test_begin(unaries[u].id, POME_OPSET_IOS17);
        op_test_numerics(t, POME_NUMERICS_FP16);
        op_test_in(t, "x", &halves);
        assert_int_equal(op_test_run_once(t), POME_OK);
        expect_near(t, pome_opdef_get(unaries[u].id)->name, want, n);
        op_test_end(t);
        pome_tensor_reset(&halves);
    }
}

static double binary(pome_op_id id, double x, double y)
{
    switch (id) {
    case POME_OP_add: return x + y;
    case POME_OP_sub: return x - y;
    case POME_OP_mul: return x * y;
    case POME_OP_real_div: return x / y;
    case POME_OP_maximum: return x > y ? x : y;
    case POME_OP_minimum: return x < y ? x : y;
    case POME_OP_floor_div: return floor(x / y);
    default: return pow(x, y);
    }
}

static void random_pairs(void **state)
{
    (void)state;
    static const pome_op_id ids[] = {POME_OP_add,     POME_OP_sub,     POME_OP_mul,       POME_OP_real_div,
                                     POME_OP_maximum, POME_OP_minimum, POME_OP_floor_div, POME_OP_pow};
    for (size_t k = 0; k < sizeof ids / sizeof ids[0]; k++) {
        bool is_pow = ids[k] == POME_OP_pow, is_floor = ids[k] == POME_OP_floor_div;
        pome_tensor x = op_test_tensor(POME_DTYPE_F16, 1, (int64_t[]){20000}, is_pow ? 0.01 : -300, 300);
        pome_tensor y = op_test_tensor(POME_DTYPE_F16, 1, (int64_t[]){20000}, is_floor ? 1 : -4, 4);
        for (int64_t i = 0; i < 20000; i++)
            want[i] = binary(ids[k], op_test_at(&x, i), op_test_at(&y, i));
        op_test *t = op_test_begin(ids[k], POME_OPSET_IOS17);
        op_test_numerics(t, POME_NUMERICS_FP16);
        op_test_in(t, "x", &x);
        op_test_in(t, "y", &y);
        assert_int_equal(op_test_run_once(t), POME_OK);
        expect_near(t, pome_opdef_get(ids[k])->name, want, 20000);
        op_test_end(t);
        pome_tensor_reset(&x);
        pome_tensor_reset(&y);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_half), cmocka_unit_test(random_pairs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
