/* Binary and unary elementwise operators, cast and select, against loops in double and 64-bit integers. */
#include "op_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const pome_dtype number_types[] = {POME_DTYPE_F32, POME_DTYPE_I8,  POME_DTYPE_U8, POME_DTYPE_I16,
                                          POME_DTYPE_U16, POME_DTYPE_I32, POME_DTYPE_U32};
enum { N_NUMBER_TYPES = sizeof number_types / sizeof number_types[0] };

static bool is_signed(pome_dtype dtype)
{
    return dtype == POME_DTYPE_I8 || dtype == POME_DTYPE_I16 || dtype == POME_DTYPE_I32;
}
/* The value modulo 2^bits, as the dtype reads it. */
static double wrap(pome_dtype dtype, uint64_t value)
{
    uint32_t bits = pome_dtype_bits(dtype);
    uint64_t low = value & ((UINT64_C(1) << bits) - 1);
    if (is_signed(dtype) && low >> (bits - 1))
        return (double)((int64_t)low - ((int64_t)1 << bits));
    return (double)low;
}

/* ---- binary ---- */

static double python_mod(double x, double y)
{
    double m = x - y * floor(x / y);
    return y == 0 ? NAN : m;
}

static double binary_float(pome_op_id id, double x, double y)
{
    switch (id) {
    case POME_OP_add: return (float)(x + y);
    case POME_OP_sub: return (float)(x - y);
    case POME_OP_mul: return (float)(x * y);
    case POME_OP_real_div: return (float)(x / y);
    case POME_OP_floor_div: return floor(x / y);
    case POME_OP_mod: return python_mod(x, y);
    case POME_OP_pow: return (float)pow(x, y);
    case POME_OP_maximum: return x != x || y != y ? NAN : fmax(x, y);
    case POME_OP_minimum: return x != x || y != y ? NAN : fmin(x, y);
    case POME_OP_equal: return x == y;
    case POME_OP_not_equal: return x != y;
    case POME_OP_greater: return x > y;
    case POME_OP_greater_equal: return x >= y;
    case POME_OP_less: return x < y;
    case POME_OP_less_equal: return x <= y;
    default: fail(); return 0;
    }
}
static double binary_int(pome_op_id id, pome_dtype dtype, int64_t x, int64_t y)
{
    uint64_t power = 1;
    switch (id) {
    case POME_OP_add: return wrap(dtype, (uint64_t)x + (uint64_t)y);
    case POME_OP_sub: return wrap(dtype, (uint64_t)x - (uint64_t)y);
    case POME_OP_mul: return wrap(dtype, (uint64_t)x * (uint64_t)y);
    case POME_OP_real_div: return y == 0 ? 0 : wrap(dtype, (uint64_t)(int64_t)trunc((double)x / (double)y));
    case POME_OP_floor_div: return y == 0 ? 0 : wrap(dtype, (uint64_t)(int64_t)floor((double)x / (double)y));
    case POME_OP_mod: return y == 0 ? 0 : wrap(dtype, (uint64_t)(x - y * (int64_t)floor((double)x / (double)y)));
    case POME_OP_pow:
        if (y < 0)
            return x == 1 || x == -1 ? (y % 2 ? (double)x : 1) : 0;
        for (int64_t i = 0; i < y; i++)
            power *= (uint64_t)x;
        return wrap(dtype, power);
    default: return binary_float(id, (double)x, (double)y); /* order alone: exact in double */
    }
}

/* x and y broadcast to `shape`. */
static double *binary_reference(pome_op_id id, const pome_tensor *x, const pome_tensor *y, int32_t rank,
                                const int64_t *shape)
{
    pome_tensor like = {.rank = rank};
    for (int32_t d = 0; d < rank; d++)
        like.shape[d] = shape[d];
    int64_t n = pome_tensor_count(&like), index[POME_MAX_RANK] = {0};
    double *want = calloc((size_t)n + 1, sizeof *want);
    for (int64_t i = 0; i < n; i++, op_test_next(index, rank, shape)) {
        double a = op_test_at_index(x, index + rank - x->rank), b = op_test_at_index(y, index + rank - y->rank);
        if (x->dtype == POME_DTYPE_F32)
            want[i] = binary_float(id, a, b);
        else
            want[i] = binary_int(id, x->dtype, (int64_t)a, (int64_t)b);
    }
    return want;
}

/* One of the shapes that broadcast to `shape`: leading axes dropped, others 1. */
static int32_t shrink(int64_t *out, const int64_t *shape, int32_t rank)
{
    int32_t drop = op_test_random_int(0, 2) ? 0 : (int32_t)op_test_random_int(0, rank);
    for (int32_t d = drop; d < rank; d++)
        out[d - drop] = op_test_random_int(0, 3) == 0 ? 1 : shape[d];
    return rank - drop;
}

static pome_tensor material(pome_op_id id, pome_dtype dtype, int32_t rank, const int64_t *shape, bool is_y)
{
    double low = -20, high = 20;
    if (id == POME_OP_pow && is_y) {
        low = dtype == POME_DTYPE_F32 ? -3 : -2;
        high = dtype == POME_DTYPE_F32 ? 3 : 40;
    } else if (dtype != POME_DTYPE_F32 && op_test_random_int(0, 1)) {
        low = -4e9;
        high = 4e9;
    }
    pome_tensor t = op_test_tensor(dtype, rank, shape, low, high);
    static const double special[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0, 2.0};
    bool is_modular = id == POME_OP_floor_div || id == POME_OP_mod; /* theirs have a table of their own */
    for (int64_t i = 0; i < pome_tensor_count(&t); i++) {
        if (dtype == POME_DTYPE_F32 && !is_modular && op_test_random_int(0, 9) == 0)
            op_test_set(&t, i, special[op_test_random_int(0, 5)]);
        if (dtype != POME_DTYPE_F32 && !(id == POME_OP_pow && is_y) && op_test_random_int(0, 5) == 0)
            op_test_set(&t, i, (double)op_test_random_int(is_signed(dtype) ? -1 : 0, 1));
    }
    return t;
}

static void check_binary(pome_op_id id, pome_dtype dtype, int32_t rank_x, const int64_t *shape_x, int32_t rank_y,
                         const int64_t *shape_y, int32_t rank, const int64_t *shape)
{
    pome_tensor x = material(id, dtype, rank_x, shape_x, false), y = material(id, dtype, rank_y, shape_y, true);
    op_test *t = op_test_begin(id, POME_OPSET_IOS17);
    op_test_in(t, "x", &x);
    if (op_test_random_int(0, 1))
        op_test_in(t, "y", &y);
    else
        op_test_const(t, "y", &y);
    if (op_test_run(t) != POME_OK)
        fail_msg("%s", op_test_error(t)->message);
    op_test_expect_shape(t, 0, rank, shape);
    double *want = binary_reference(id, &x, &y, rank, shape);
    op_test_expect(t, 0, want, id == POME_OP_pow || id == POME_OP_mod ? 1e-6 : 0, id == POME_OP_mod ? 1e-5 : 0);
    free(want);
    op_test_end(t);
    pome_tensor_reset(&x);
    pome_tensor_reset(&y);
}

static const pome_op_id binaries[] = {POME_OP_add,     POME_OP_sub,     POME_OP_mul,       POME_OP_real_div,
                                      POME_OP_floor_div, POME_OP_mod,   POME_OP_pow,       POME_OP_maximum,
                                      POME_OP_minimum, POME_OP_equal,   POME_OP_not_equal, POME_OP_greater,
                                      POME_OP_greater_equal, POME_OP_less, POME_OP_less_equal};

static void broadcast_of_every_type(void **state)
{
    (void)state;
    for (size_t b = 0; b < sizeof binaries / sizeof binaries[0]; b++)
        for (int d = 0; d < N_NUMBER_TYPES; d++)
            for (int round = 0; round < 8; round++) {
                int64_t shape[POME_MAX_RANK], shape_x[POME_MAX_RANK], shape_y[POME_MAX_RANK];
                int32_t rank = (int32_t)op_test_random_int(0, 5);
                op_test_shape(shape, rank, 5, true);
                int32_t rank_x = shrink(shape_x, shape, rank), rank_y = shrink(shape_y, shape, rank);
                for (int32_t k = 0; k < rank; k++) { /* what both were shrunk along is shrunk in the result */
                    int32_t kx = k - (rank - rank_x), ky = k - (rank - rank_y);
                    int64_t nx = kx < 0 ? 1 : shape_x[kx], ny = ky < 0 ? 1 : shape_y[ky];
                    shape[k] = nx == 1 ? ny : nx;
                }
                int32_t longer = rank_x > rank_y ? rank_x : rank_y;
                check_binary(binaries[b], number_types[d], rank_x, shape_x, rank_y, shape_y, longer,
                             shape + rank - longer);
            }
}

/* Shapes that language models have, large enough for several chunks of work. */
static void large_shapes(void **state)
{
    (void)state;
    static const struct {
        int32_t rank_x, rank_y;
        int64_t x[3], y[3], out[3];
    } cases[] = {
        {3, 3, {1, 130, 300}, {1, 130, 300}, {1, 130, 300}}, {3, 1, {1, 130, 300}, {300}, {1, 130, 300}},
        {3, 3, {1, 130, 300}, {1, 130, 1}, {1, 130, 300}},   {3, 0, {1, 130, 300}, {0}, {1, 130, 300}},
        {1, 3, {1}, {1, 130, 300}, {1, 130, 300}},           {3, 3, {3, 1, 7001}, {1, 2, 1}, {3, 2, 7001}},
    };
    static const pome_op_id ids[] = {POME_OP_add, POME_OP_mul, POME_OP_real_div, POME_OP_pow, POME_OP_less};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
            check_binary(ids[i], i % 2 ? POME_DTYPE_I32 : POME_DTYPE_F32, cases[c].rank_x, cases[c].x, cases[c].rank_y,
                         cases[c].y, 3, cases[c].out);
}

#define N NAN
#define I INFINITY
/* numpy 2.3.5: floor_divide and remainder of float32, operands down and across in this order. */
static const double pairs[10] = {0.0, -0.0, 1, -1, 2.5, -2.5, 7, I, -I, N};
static const double numpy_floor_divide[100] = {
    N, N, 0, -0.0, 0, -0.0, 0, 0, -0.0, N,  N, N, -0.0, 0, -0.0, 0, -0.0, -0.0, 0, N,
    I, -I, 1, -1, 0, -1, 0, 0, -1, N,       -I, I, -1, 1, -1, 0, -1, -1, 0, N,
    I, -I, 2, -3, 1, -1, 0, 0, -1, N,       -I, I, -3, 2, -1, 1, -1, -1, 0, N,
    I, -I, 7, -7, 2, -3, 1, 0, -1, N,       I, -I, N, N, N, N, N, N, N, N,
    -I, I, N, N, N, N, N, N, N, N,          N, N, N, N, N, N, N, N, N, N,
};
static const double numpy_remainder[100] = {
    N, N, 0, -0.0, 0, -0.0, 0, 0, -0.0, N,    N, N, 0, -0.0, 0, -0.0, 0, 0, -0.0, N,
    N, N, 0, -0.0, 1, -1.5, 1, 1, -I, N,      N, N, 0, -0.0, 1.5, -1, 6, I, -1, N,
    N, N, 0.5, -0.5, 0, -0.0, 2.5, 2.5, -I, N, N, N, 0.5, -0.5, 0, -0.0, 4.5, I, -2.5, N,
    N, N, 0, -0.0, 2, -0.5, 0, 7, -I, N,      N, N, N, N, N, N, N, N, N, N,
    N, N, N, N, N, N, N, N, N, N,             N, N, N, N, N, N, N, N, N, N,
};
#undef N
#undef I

static void python_division_of_floats(void **state)
{
    (void)state;
    int64_t column[2] = {10, 1}, row[1] = {10};
    pome_tensor x = op_test_tensor_of(POME_DTYPE_F32, 2, column, pairs);
    pome_tensor y = op_test_tensor_of(POME_DTYPE_F32, 1, row, pairs);
    for (int is_mod = 0; is_mod < 2; is_mod++) {
        const double *want = is_mod ? numpy_remainder : numpy_floor_divide;
        op_test *t = op_test_begin(is_mod ? POME_OP_mod : POME_OP_floor_div, POME_OPSET_IOS15);
        op_test_in(t, "x", &x);
        op_test_in(t, "y", &y);
        assert_int_equal(op_test_run(t), POME_OK);
        op_test_expect(t, 0, want, 0, 0);
        for (int i = 0; i < 100; i++) {
            double got = op_test_at(op_test_out(t, 0), i);
            if (got == 0)
                assert_int_equal(signbit(got) != 0, signbit(want[i]) != 0);
        }
        op_test_end(t);
    }
    pome_tensor_reset(&x);
    pome_tensor_reset(&y);
}

static void integer_division_never_traps(void **state)
{
    (void)state;
    static const double a[] = {-2147483648.0, -2147483648.0, 7, -7, 7, -7, 0, 2147483647.0};
    static const double b[] = {-1, 0, 2, 2, -2, -2, 0, -1};
    static const double want[3][8] = {{-2147483648.0, 0, 3, -3, -3, 3, 0, -2147483647.0},
                                      {-2147483648.0, 0, 3, -4, -4, 3, 0, -2147483647.0},
                                      {0, 0, 1, 1, -1, -1, 0, 0}};
    static const pome_op_id ids[] = {POME_OP_real_div, POME_OP_floor_div, POME_OP_mod};
    int64_t shape[1] = {8};
    pome_tensor x = op_test_tensor_of(POME_DTYPE_I32, 1, shape, a), y = op_test_tensor_of(POME_DTYPE_I32, 1, shape, b);
    for (int i = 0; i < 3; i++) {
        op_test *t = op_test_begin(ids[i], POME_OPSET_IOS15);
        op_test_in(t, "x", &x);
        op_test_in(t, "y", &y);
        assert_int_equal(op_test_run(t), POME_OK);
        op_test_expect(t, 0, want[i], 0, 0);
        op_test_end(t);
    }
    pome_tensor_reset(&x);
    pome_tensor_reset(&y);
}

static void logic(void **state)
{
    (void)state;
    static const pome_op_id ids[] = {POME_OP_logical_and, POME_OP_logical_or, POME_OP_logical_xor};
    for (int i = 0; i < 3; i++)
        for (int round = 0; round < 10; round++) {
            int64_t shape[3] = {op_test_random_int(1, 4), op_test_random_int(1, 4), op_test_random_int(1, 40)};
            int64_t shape_y[2] = {op_test_random_int(0, 1) ? shape[1] : 1, shape[2]};
            pome_tensor x = op_test_tensor(POME_DTYPE_BOOL, 3, shape, 0, 1);
            pome_tensor y = op_test_tensor(POME_DTYPE_BOOL, 2, shape_y, 0, 1);
            op_test *t = op_test_begin(ids[i], POME_OPSET_IOS15);
            op_test_in(t, "x", &x);
            op_test_in(t, "y", &y);
            assert_int_equal(op_test_run(t), POME_OK);
            assert_int_equal(op_test_out(t, 0)->dtype, POME_DTYPE_BOOL);
            int64_t index[3] = {0};
            double want[4 * 4 * 40];
            for (int64_t k = 0; k < pome_tensor_count(&x); k++, op_test_next(index, 3, shape)) {
                int a = (int)op_test_at_index(&x, index), b = (int)op_test_at_index(&y, index + 1);
                want[k] = i == 0 ? a & b : i == 1 ? a | b : a ^ b;
            }
            op_test_expect(t, 0, want, 0, 0);
            op_test_end(t);
            pome_tensor_reset(&x);
            pome_tensor_reset(&y);
        }
}

/* ---- unary ---- */

typedef double unary_fn(double x, double a, double b);
static double u_abs(double x, double a, double b) { (void)a, (void)b; return fabs(x); }
static double u_acos(double x, double a, double b) { (void)a, (void)b; return acos(x); }
static double u_asin(double x, double a, double b) { (void)a, (void)b; return asin(x); }
static double u_atan(double x, double a, double b) { (void)a, (void)b; return atan(x); }
static double u_atanh(double x, double a, double b) { (void)a, (void)b; return atanh(x); }
static double u_ceil(double x, double a, double b) { (void)a, (void)b; return ceil(x); }
static double u_clip(double x, double a, double b) { return x != x ? x : fmin(fmax(x, a), b); }
static double u_cos(double x, double a, double b) { (void)a, (void)b; return cos(x); }
static double u_cosh(double x, double a, double b) { (void)a, (void)b; return (float)cosh(x); }
static double u_erf(double x, double a, double b) { (void)a, (void)b; return erf(x); }
static double u_exp(double x, double a, double b) { (void)a, (void)b; return (float)exp(x); }
static double u_exp2(double x, double a, double b) { (void)a, (void)b; return (float)exp2(x); }
static double u_floor(double x, double a, double b) { (void)a, (void)b; return floor(x); }
static double u_inverse(double x, double a, double b) { (void)b; return 1 / (double)(float)(x + a); }
static double u_log(double x, double a, double b) { (void)b; return log((double)(float)(x + a)); }
static double u_round(double x, double a, double b) { (void)a, (void)b; return fabs(x - trunc(x)) == 0.5 ? 2 * round(x / 2) : round(x); }
static double u_rsqrt(double x, double a, double b) { (void)b; return 1 / sqrt((double)(float)(x + a)); }
static double u_sign(double x, double a, double b) { (void)a, (void)b; return x != x ? x : x > 0 ? 1 : x < 0 ? -1 : 0; }
static double u_sin(double x, double a, double b) { (void)a, (void)b; return sin(x); }
static double u_sinh(double x, double a, double b) { (void)a, (void)b; return (float)sinh(x); }
static double u_sqrt(double x, double a, double b) { (void)a, (void)b; return sqrt(x); }
static double u_square(double x, double a, double b) { (void)a, (void)b; return (float)(x * x); }
static double u_tan(double x, double a, double b) { (void)a, (void)b; return tan(x); }
static double u_tanh(double x, double a, double b) { (void)a, (void)b; return tanh(x); }
static double u_threshold(double x, double a, double b) { (void)b; return x != x ? x : fmax(x, a); }

static const struct unary {
    pome_op_id id;
    unary_fn *fn;
    double low, high, rel;
    const char *name_a, *name_b; /* constants, given unless is_default_a is drawn */
    double a, b, default_a;
} unaries[] = {
    {POME_OP_abs, u_abs, -9, 9, 0, NULL, NULL, 0, 0, 0},
    {POME_OP_acos, u_acos, -1.1, 1.1, 1e-6, NULL, NULL, 0, 0, 0},
    {POME_OP_asin, u_asin, -1.1, 1.1, 1e-6, NULL, NULL, 0, 0, 0},
    {POME_OP_atan, u_atan, -50, 50, 1e-6, NULL, NULL, 0, 0, 0},
    {POME_OP_atanh, u_atanh, -1, 1, 1e-6, NULL, NULL, 0, 0, 0},
    {POME_OP_ceil, u_ceil, -9, 9, 0, NULL, NULL, 0, 0, 0},
    {POME_OP_clip, u_clip, -9, 9, 0, "alpha", "beta", -2.5, 3.25, 0},
    {POME_OP_cos, u_cos, -10000, 10000, 1e-6, NULL, NULL, 0, 0, 0},
    {POME_OP_cosh, u_cosh, -95, 95, 1e-6, NULL, NULL, 0, 0, 0},
    {POME_OP_erf, u_erf, -4, 4, 1e-6, NULL, NULL, 0, 0, 0},
    {POME_OP_exp, u_exp, -110, 95, 2e-7, NULL, NULL, 0, 0, 0},
    {POME_OP_exp2, u_exp2, -160, 135, 2e-7, NULL, NULL, 0, 0, 0},
    {POME_OP_floor, u_floor, -9, 9, 0, NULL, NULL, 0, 0, 0},
    {POME_OP_inverse, u_inverse, -9, 9, 1e-6, "epsilon", NULL, 0.5, 0, (double)1e-4f},
    {POME_OP_log, u_log, -1, 90, 1e-6, "epsilon", NULL, 0.25, 0, 0x1p-149},
    {POME_OP_round, u_round, -9, 9, 0, NULL, NULL, 0, 0, 0},
    {POME_OP_rsqrt, u_rsqrt, -1, 90, 1e-6, "epsilon", NULL, 0.25, 0, (double)1e-12f},
    {POME_OP_sign, u_sign, -9, 9, 0, NULL, NULL, 0, 0, 0},
    {POME_OP_sin, u_sin, -10000, 10000, 1e-6, NULL, NULL, 0, 0, 0},
    {POME_OP_sinh, u_sinh, -95, 95, 1e-6, NULL, NULL, 0, 0, 0},
    {POME_OP_sqrt, u_sqrt, -1, 90, 1e-7, NULL, NULL, 0, 0, 0},
    {POME_OP_square, u_square, -9, 9, 0, NULL, NULL, 0, 0, 0},
    {POME_OP_tan, u_tan, -20, 20, 1e-6, NULL, NULL, 0, 0, 0},
    {POME_OP_tanh, u_tanh, -20, 20, 1e-6, NULL, NULL, 0, 0, 0},
    {POME_OP_threshold, u_threshold, -9, 9, 0, "alpha", NULL, -1.5, 0, 0},
};
enum { N_UNARIES = sizeof unaries / sizeof unaries[0] };

static void check_unary(const struct unary *u, int32_t rank, const int64_t *shape)
{
    static const double special[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0, 0.5, 1.5, 2.5, -0.5, -1.5};
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, rank, shape, u->low, u->high);
    int64_t n = pome_tensor_count(&x);
    for (int64_t i = 0; i < n; i++)
        if (op_test_random_int(0, 6) == 0)
            op_test_set(&x, i, special[op_test_random_int(0, 9)]);
    bool use_default = u->name_a && strcmp(u->name_a, "epsilon") == 0 && op_test_random_int(0, 1);
    double a = use_default ? u->default_a : u->a;
    op_test *t = op_test_begin(u->id, POME_OPSET_IOS17);
    op_test_in(t, "x", &x);
    if (u->name_a && !use_default)
        op_test_const_f32(t, u->name_a, (float)u->a);
    if (u->name_b)
        op_test_const_f32(t, u->name_b, (float)u->b);
    if (op_test_run(t) != POME_OK)
        fail_msg("%s", op_test_error(t)->message);
    op_test_expect_shape(t, 0, rank, shape);
    double *want = calloc((size_t)n + 1, sizeof *want);
    for (int64_t i = 0; i < n; i++)
        want[i] = u->fn(op_test_at(&x, i), a, u->b);
    op_test_expect(t, 0, want, u->rel, 0x1.1p-149); /* one step of a subnormal */
    free(want);
    op_test_end(t);
    pome_tensor_reset(&x);
}

static void functions_of_floats(void **state)
{
    (void)state;
    for (int u = 0; u < N_UNARIES; u++) {
        for (int round = 0; round < 12; round++) {
            int64_t shape[POME_MAX_RANK];
            int32_t rank = (int32_t)op_test_random_int(0, 5);
            op_test_shape(shape, rank, 6, true);
            check_unary(&unaries[u], rank, shape);
        }
        check_unary(&unaries[u], 2, (int64_t[]){170, 200}); /* several chunks */
    }
}

static double unary_int(pome_op_id id, pome_dtype dtype, int64_t x, int64_t alpha)
{
    switch (id) {
    case POME_OP_abs: return wrap(dtype, (uint64_t)(x < 0 ? -x : x));
    case POME_OP_sign: return x > 0 ? 1 : x < 0 ? -1 : 0;
    case POME_OP_square: return wrap(dtype, (uint64_t)x * (uint64_t)x);
    case POME_OP_exp2: return x < 0 || x > 40 ? 0 : wrap(dtype, UINT64_C(1) << x);
    default: return (double)(x < alpha ? alpha : x);
    }
}

static void functions_of_integers(void **state)
{
    (void)state;
    static const pome_op_id ids[] = {POME_OP_abs, POME_OP_sign, POME_OP_square, POME_OP_exp2, POME_OP_threshold};
    for (int o = 0; o < 5; o++)
        for (int d = 1; d < N_NUMBER_TYPES; d++)
            for (int round = 0; round < 4; round++) {
                pome_dtype dtype = number_types[d];
                int64_t shape[2] = {op_test_random_int(0, 4), 9};
                double range = round % 2 ? 4e9 : 33;
                pome_tensor x = op_test_tensor(dtype, 2, shape, -range, range);
                if (pome_tensor_count(&x))
                    op_test_set(&x, 0, is_signed(dtype) ? -ldexp(1, (int)pome_dtype_bits(dtype) - 1) : 0);
                int64_t alpha = op_test_random_int(0, 100);
                int64_t one[1] = {1};
                double alpha_value = (double)alpha;
                pome_tensor a = op_test_tensor_of(dtype, 0, one, &alpha_value);
                op_test *t = op_test_begin(ids[o], POME_OPSET_IOS17);
                op_test_in(t, "x", &x);
                if (ids[o] == POME_OP_threshold)
                    op_test_const(t, "alpha", &a);
                if (op_test_run(t) != POME_OK)
                    fail_msg("%s", op_test_error(t)->message);
                double want[36];
                for (int64_t i = 0; i < pome_tensor_count(&x); i++)
                    want[i] = unary_int(ids[o], dtype, (int64_t)op_test_at(&x, i), alpha);
                op_test_expect(t, 0, want, 0, 0);
                op_test_end(t);
                pome_tensor_reset(&x);
                pome_tensor_reset(&a);
            }
}

static void logical_not(void **state)
{
    (void)state;
    int64_t shape[1] = {37};
    pome_tensor x = op_test_tensor(POME_DTYPE_BOOL, 1, shape, 0, 1);
    op_test *t = op_test_begin(POME_OP_logical_not, POME_OPSET_IOS15);
    op_test_in(t, "x", &x);
    assert_int_equal(op_test_run(t), POME_OK);
    double want[37];
    for (int i = 0; i < 37; i++)
        want[i] = op_test_at(&x, i) == 0;
    op_test_expect(t, 0, want, 0, 0);
    op_test_end(t);
    pome_tensor_reset(&x);
}

/* An epsilon that is not given has x's type: 1e-12 and 1e-45 are 0 in fp16, 1e-4 is rounded. */
static void default_epsilon_has_the_declared_type(void **state)
{
    (void)state;
    static const struct {
        pome_op_id id;
        double want;
    } cases[] = {{POME_OP_rsqrt, INFINITY}, {POME_OP_log, -INFINITY}, {POME_OP_inverse, 1 / 0x1.a38p-14}};
    int64_t one[1] = {1};
    double zero = 0;
    pome_tensor x = op_test_tensor_of(POME_DTYPE_F32, 1, one, &zero);
    for (int i = 0; i < 3; i++) {
        op_test *t = op_test_begin(cases[i].id, POME_OPSET_IOS17);
        op_test_in_as(t, "x", &x, POME_DTYPE_F16);
        assert_int_equal(op_test_run(t), POME_OK);
        op_test_expect(t, 0, &cases[i].want, 1e-6, 0);
        op_test_end(t);
    }
    pome_tensor_reset(&x);
}

/* ---- cast ---- */

static const struct {
    pome_dtype dtype;
    const char *name;
} cast_types[] = {{POME_DTYPE_F32, "fp32"},   {POME_DTYPE_F16, "fp16"},   {POME_DTYPE_I8, "int8"},
                  {POME_DTYPE_U8, "uint8"},   {POME_DTYPE_I16, "int16"},  {POME_DTYPE_U16, "uint16"},
                  {POME_DTYPE_I32, "int32"},  {POME_DTYPE_U32, "uint32"}, {POME_DTYPE_BOOL, "bool"}};
enum { N_CAST_TYPES = sizeof cast_types / sizeof cast_types[0] };

static double cast_reference(pome_dtype from, pome_dtype to, double x)
{
    if (to == POME_DTYPE_BOOL)
        return x != 0;
    if (pome_dtype_is_float(to))
        return (float)x;
    if (!pome_dtype_is_float(from))
        return wrap(to, (uint64_t)(int64_t)x);
    double greatest = ldexp(1, (int)pome_dtype_bits(to) - is_signed(to)) - 1;
    double least = is_signed(to) ? -greatest - 1 : 0;
    return x != x ? 0 : fmax(least, fmin(greatest, trunc(x)));
}

static void casts(void **state)
{
    (void)state;
    static const double special[] = {NAN,  INFINITY, -INFINITY,    -0.0,          0.25, -0.5,  300.7, -1.9,
                                     1e10, -1e10,    2147483648.0, -2147483648.0, 255,  127.5, -129,  16777217};
    for (int f = 0; f < N_CAST_TYPES; f++)
        for (int o = 0; o < N_CAST_TYPES; o++)
            for (int in_memory = 0; in_memory < 2; in_memory++) { /* fp16 inputs: in fp32 storage, or as halves */
                pome_dtype from = cast_types[f].dtype, to = cast_types[o].dtype;
                bool is_float = pome_dtype_is_float(from);
                if (in_memory && from != POME_DTYPE_F16)
                    continue;
                int64_t shape[2] = {8, 40};
                double range = op_test_random_int(0, 1) ? 1000 : 4e9;
                pome_dtype memory = from == POME_DTYPE_F16 && !in_memory ? POME_DTYPE_F32 : from;
                pome_tensor x = op_test_tensor(memory, 2, shape, -range, range);
                for (int i = 0; is_float && i < 16; i++)
                    op_test_set(&x, 2 * i, special[i]);
                op_test *t = op_test_begin(POME_OP_cast, POME_OPSET_IOS17);
                op_test_in_as(t, "x", &x, from);
                op_test_const_str(t, "dtype", cast_types[o].name);
                pome_status status = op_test_run(t);
                if (status != POME_OK && to == POME_DTYPE_U32) { /* not a target coremltools knows */
                    op_test_end(t);
                    pome_tensor_reset(&x);
                    continue;
                }
                if (status != POME_OK)
                    fail_msg("%s", op_test_error(t)->message);
                assert_int_equal(op_test_out(t, 0)->dtype, pome_dtype_is_float(to) ? POME_DTYPE_F32 : to);
                assert_int_equal(op_test_was_view(t), (is_float && pome_dtype_is_float(to)) || from == to);
                double want[320];
                for (int i = 0; i < 320; i++)
                    want[i] = cast_reference(from, to, op_test_at(&x, i));
                op_test_expect(t, 0, want, 0, 0);
                op_test_end(t);
                pome_tensor_reset(&x);
            }
}

/* Rounding a result in place must not reach the operand: no view where fp16 mode narrows. */
static void cast_in_half_precision(void **state)
{
    (void)state;
    int64_t shape[1] = {3};
    static const double values[] = {1e5, 0.1, 1e-9}, want[] = {INFINITY, 0x1.998p-4, 0};
    pome_tensor x = op_test_tensor_of(POME_DTYPE_F32, 1, shape, values);
    op_test *t = op_test_begin(POME_OP_cast, POME_OPSET_IOS17);
    op_test_in(t, "x", &x);
    op_test_const_str(t, "dtype", "fp16");
    op_test_numerics(t, POME_NUMERICS_FP16);
    assert_int_equal(op_test_run(t), POME_OK);
    assert_false(op_test_was_view(t));
    op_test_expect(t, 0, want, 0, 0);
    op_test_end(t);
    pome_tensor_reset(&x);
}

/* ---- select ---- */

static void selects(void **state)
{
    (void)state;
    static const pome_dtype types[] = {POME_DTYPE_F32, POME_DTYPE_I8,  POME_DTYPE_I16,
                                       POME_DTYPE_I32, POME_DTYPE_U16, POME_DTYPE_BOOL};
    for (int d = 0; d < 6; d++)
        for (int round = 0; round < 40; round++) {
            int64_t shape[POME_MAX_RANK], s[3][POME_MAX_RANK];
            int32_t rank = (int32_t)op_test_random_int(0, 5), r[3];
            op_test_shape(shape, rank, 6, true);
            for (int k = 0; k < 3; k++)
                r[k] = shrink(s[k], shape, rank);
            int32_t full = (int32_t)op_test_random_int(0, 2); /* one of them has the whole shape */
            memcpy(s[full], shape, sizeof shape);
            r[full] = rank;
            pome_tensor c = op_test_tensor(POME_DTYPE_BOOL, r[0], s[0], 0, 1);
            pome_tensor a = op_test_tensor(types[d], r[1], s[1], -100, 100);
            pome_tensor b = op_test_tensor(types[d], r[2], s[2], -100, 100);
            for (int64_t i = 0; types[d] == POME_DTYPE_F32 && i < pome_tensor_count(&b); i += 2)
                op_test_set(&b, i, i % 4 ? NAN : -INFINITY);
            op_test *t = op_test_begin(POME_OP_select, POME_OPSET_IOS15);
            op_test_in(t, "cond", &c);
            op_test_in(t, "a", &a);
            op_test_in(t, "b", &b);
            if (op_test_run(t) != POME_OK)
                fail_msg("%s", op_test_error(t)->message);
            op_test_expect_shape(t, 0, rank, shape);
            int64_t n = pome_tensor_count(op_test_out(t, 0)), index[POME_MAX_RANK] = {0};
            double *want = calloc((size_t)n + 1, sizeof *want);
            for (int64_t i = 0; i < n; i++, op_test_next(index, rank, shape))
                want[i] = op_test_at_index(&c, index + rank - c.rank) != 0 ? op_test_at_index(&a, index + rank - a.rank)
                                                                            : op_test_at_index(&b, index + rank - b.rank);
            op_test_expect(t, 0, want, 0, 0);
            free(want);
            op_test_end(t);
            pome_tensor_reset(&c);
            pome_tensor_reset(&a);
            pome_tensor_reset(&b);
        }
}

static void operands_that_do_not_fit(void **state)
{
    (void)state;
    int64_t three[1] = {3}, four[1] = {4};
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, 1, three, 0, 1), y = op_test_tensor(POME_DTYPE_F32, 1, four, 0, 1);
    pome_tensor z = op_test_tensor(POME_DTYPE_I32, 1, three, 0, 1);
    op_test *t = op_test_begin(POME_OP_add, POME_OPSET_IOS15);
    op_test_in(t, "x", &x);
    op_test_in(t, "y", &y);
    op_test_expect_failure(t, POME_ERR_FORMAT, "broadcast");
    op_test_end(t);
    t = op_test_begin(POME_OP_add, POME_OPSET_IOS15);
    op_test_in(t, "x", &x);
    op_test_in(t, "y", &z);
    assert_int_not_equal(op_test_run(t), POME_OK);
    op_test_end(t);
    pome_tensor_reset(&x);
    pome_tensor_reset(&y);
    pome_tensor_reset(&z);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broadcast_of_every_type),
        cmocka_unit_test(large_shapes),
        cmocka_unit_test(python_division_of_floats),
        cmocka_unit_test(integer_division_never_traps),
        cmocka_unit_test(logic),
        cmocka_unit_test(functions_of_floats),
        cmocka_unit_test(functions_of_integers),
        cmocka_unit_test(logical_not),
        cmocka_unit_test(default_epsilon_has_the_declared_type),
        cmocka_unit_test(casts),
        cmocka_unit_test(cast_in_half_precision),
        cmocka_unit_test(selects),
        cmocka_unit_test(operands_that_do_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
