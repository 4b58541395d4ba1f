/* Reductions against loops in double and 64-bit integers that visit every element by its full index. */
#include "op_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const pome_op_id reductions[] = {
    POME_OP_reduce_l1_norm, POME_OP_reduce_l2_norm, POME_OP_reduce_log_sum, POME_OP_reduce_log_sum_exp,
    POME_OP_reduce_max,     POME_OP_reduce_mean,    POME_OP_reduce_min,     POME_OP_reduce_prod,
    POME_OP_reduce_sum,     POME_OP_reduce_sum_square};
enum { N_REDUCTIONS = sizeof reductions / sizeof reductions[0] };
static const pome_dtype types[] = {POME_DTYPE_F32, POME_DTYPE_I32, POME_DTYPE_I8, POME_DTYPE_U16, POME_DTYPE_I16};

static double wrap(pome_dtype dtype, int64_t value)
{
    switch (dtype) {
    case POME_DTYPE_I32: return (int32_t)(uint32_t)value;
    case POME_DTYPE_I16: return (int16_t)(uint16_t)value;
    case POME_DTYPE_I8: return (int8_t)(uint8_t)value;
    default: return (uint16_t)value;
    }
}

/* Of the n values of one group. */
static double reduce(pome_op_id id, pome_dtype dtype, const double *v, int64_t n)
{
    bool is_float = dtype == POME_DTYPE_F32;
    double sum = 0, abs_sum = 0, squares = 0, max = -INFINITY, min = INFINITY, exps = 0, product = 1;
    int64_t int_product = 1;
    bool has_nan = false;
    for (int64_t i = 0; i < n; i++) {
        sum += v[i];
        abs_sum += fabs(v[i]);
        squares += v[i] * v[i];
        max = fmax(max, v[i]);
        min = fmin(min, v[i]);
        exps += exp(v[i]);
        product *= v[i];
        int_product = (int64_t)((uint64_t)int_product * (uint64_t)(int64_t)(is_float ? 0 : v[i]));
        has_nan |= v[i] != v[i];
    }
    double result;
    switch (id) {
    case POME_OP_reduce_l1_norm: return is_float ? abs_sum : wrap(dtype, (int64_t)abs_sum);
    case POME_OP_reduce_l2_norm: result = sqrt(squares); break;
    case POME_OP_reduce_log_sum: result = log(sum); break;
    case POME_OP_reduce_log_sum_exp: result = log(exps); break;
    case POME_OP_reduce_max: return has_nan ? NAN : max;
    case POME_OP_reduce_min: return has_nan ? NAN : min;
    case POME_OP_reduce_mean: result = sum / (double)n; break;
    case POME_OP_reduce_prod: return is_float ? product : wrap(dtype, int_product);
    case POME_OP_reduce_sum: return is_float ? sum : wrap(dtype, (int64_t)sum);
    default: return is_float ? squares : wrap(dtype, (int64_t)squares);
    }
    if (is_float)
        return result;
    double greatest = ldexp(1, (int)pome_dtype_bits(dtype) - (dtype != POME_DTYPE_U16)) - 1;
    double least = dtype == POME_DTYPE_U16 ? 0 : -greatest - 1;
    return result != result ? 0 : fmax(least, fmin(greatest, trunc(result))); /* as cast saturates */
}

static double *reference(pome_op_id id, const pome_tensor *x, uint32_t mask, int64_t *n_out)
{
    int64_t n = pome_tensor_count(x), group = 1;
    *n_out = 1;
    for (int32_t d = 0; d < x->rank; d++)
        *(mask >> d & 1 ? &group : n_out) *= x->shape[d];
    double *values = calloc((size_t)n + 1, sizeof *values), *want = calloc((size_t)*n_out + 1, sizeof *want);
    int64_t *fill = calloc((size_t)*n_out + 1, sizeof *fill), index[POME_MAX_RANK] = {0};
    for (int64_t i = 0; i < n; i++, op_test_next(index, x->rank, x->shape)) {
        int64_t to = 0;
        for (int32_t d = 0; d < x->rank; d++)
            if (!(mask >> d & 1))
                to = to * x->shape[d] + index[d];
        values[to * group + fill[to]++] = op_test_at(x, i);
    }
    for (int64_t i = 0; i < *n_out; i++)
        want[i] = reduce(id, x->dtype, values + i * group, group);
    free(values);
    free(fill);
    return want;
}

static void check(pome_op_id id, const pome_tensor *x, uint32_t mask, bool all_by_default)
{
    int32_t axes[POME_MAX_RANK];
    int64_t n_axes = 0, out_shape[POME_MAX_RANK], n_out;
    int32_t out_rank = 0;
    bool keep = op_test_random_int(0, 1);
    for (int32_t d = 0; d < x->rank; d++) {
        if (mask >> d & 1)
            axes[n_axes++] = op_test_random_int(0, 1) ? d : d - x->rank;
        if (!(mask >> d & 1) || keep)
            out_shape[out_rank++] = mask >> d & 1 ? 1 : x->shape[d];
    }
    op_test *t = op_test_begin(id, POME_OPSET_IOS17);
    op_test_in(t, "x", x);
    if (!all_by_default)
        op_test_const_ints(t, "axes", axes, n_axes);
    if (keep || op_test_random_int(0, 1))
        op_test_const_bool(t, "keep_dims", keep);
    if (op_test_run(t) != POME_OK)
        fail_msg("%s", op_test_error(t)->message);
    op_test_expect_shape(t, 0, out_rank, out_shape);
    double *want = reference(id, x, mask, &n_out);
    op_test_expect(t, 0, want, 1e-6, id == POME_OP_reduce_log_sum || id == POME_OP_reduce_log_sum_exp ? 1e-6 : 1e-30);
    free(want);
    op_test_end(t);
}

static void any_axes(void **state)
{
    (void)state;
    for (int o = 0; o < N_REDUCTIONS; o++)
        for (size_t d = 0; d < sizeof types / sizeof types[0]; d++)
            for (int round = 0; round < 25; round++) {
                int64_t shape[POME_MAX_RANK];
                int32_t rank = (int32_t)op_test_random_int(0, 5);
                op_test_shape(shape, rank, 5, false);
                pome_op_id id = reductions[o];
                bool is_log = id == POME_OP_reduce_log_sum || id == POME_OP_reduce_log_sum_exp;
                bool is_product = id == POME_OP_reduce_prod;
                pome_tensor x = op_test_tensor(types[d], rank, shape, is_log ? 0.5 : is_product ? -2 : -100,
                                               is_log ? 9 : is_product ? 2 : 100);
                if (types[d] == POME_DTYPE_F32 && round % 5 == 0)
                    op_test_set(&x, op_test_random_int(0, pome_tensor_count(&x) - 1), NAN);
                bool all = round % 6 == 0 || rank == 0;
                uint32_t mask = all ? (1u << rank) - 1 : (uint32_t)op_test_random_int(1, (1 << rank) - 1);
                check(id, &x, mask, all);
                pome_tensor_reset(&x);
            }
}

static void long_axes(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{2, 20, 577}, {2, 300, 65}, {5, 29, 130}, {1, 1, 20000}, {9000, 2, 1}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
        for (uint32_t mask = 1; mask < 8; mask++)
            for (int o = 0; o < N_REDUCTIONS; o++) {
                bool is_log = reductions[o] == POME_OP_reduce_log_sum || reductions[o] == POME_OP_reduce_log_sum_exp;
                bool is_product = reductions[o] == POME_OP_reduce_prod;
                pome_tensor x = op_test_tensor(POME_DTYPE_F32, 3, shapes[s], is_log || is_product ? 0.999 : -3,
                                               is_product ? 1.001 : 3);
                /* sums of mixed signs cancel: keep them away from 0 */
                if (reductions[o] == POME_OP_reduce_sum || reductions[o] == POME_OP_reduce_mean)
                    for (int64_t i = 0; i < pome_tensor_count(&x); i++)
                        op_test_set(&x, i, op_test_at(&x, i) + 5);
                check(reductions[o], &x, mask, false);
                pome_tensor_reset(&x);
            }
}

static double one(pome_op_id id, pome_dtype dtype, int64_t n, const double *values, const char *param,
                  pome_status *status)
{
    int64_t shape[1] = {n};
    pome_tensor x = op_test_tensor_of(dtype, 1, shape, values);
    op_test *t = op_test_begin(id, POME_OPSET_IOS17);
    op_test_in(t, "x", &x);
    if (param)
        op_test_const_int(t, param, 0);
    *status = op_test_run(t);
    double got = *status == POME_OK ? op_test_at(op_test_out(t, 0), 0) : 0;
    op_test_end(t);
    pome_tensor_reset(&x);
    return got;
}

static void edges(void **state)
{
    (void)state;
    pome_status s;
    const double masked[] = {-INFINITY, -INFINITY}, huge[] = {1000, 1000, -1000}, inf[] = {INFINITY, 1};
    assert_true(one(POME_OP_reduce_log_sum_exp, POME_DTYPE_F32, 2, masked, NULL, &s) == -INFINITY);
    assert_true(one(POME_OP_reduce_log_sum_exp, POME_DTYPE_F32, 2, inf, NULL, &s) == INFINITY);
    assert_float_equal(one(POME_OP_reduce_log_sum_exp, POME_DTYPE_F32, 3, huge, NULL, &s), 1000 + log(2), 1e-4);
    const double ints[] = {-1, -2, -4}, big[] = {2147483647.0, 2147483647.0, 1};
    assert_true(one(POME_OP_reduce_mean, POME_DTYPE_I32, 3, ints, NULL, &s) == -2); /* -7 / 3 truncated */
    assert_true(one(POME_OP_reduce_mean, POME_DTYPE_I32, 2, big, NULL, &s) == 2147483647.0);
    assert_true(one(POME_OP_reduce_sum, POME_DTYPE_I32, 3, big, NULL, &s) == -1);
}

static void nothing_to_reduce(void **state)
{
    (void)state;
    pome_status s;
    const double none[1] = {0};
    static const struct {
        pome_op_id id;
        double f32, i32;
    } cases[] = {{POME_OP_reduce_sum, 0, 0},
                 {POME_OP_reduce_prod, 1, 1},
                 {POME_OP_reduce_max, -INFINITY, -2147483648.0},
                 {POME_OP_reduce_min, INFINITY, 2147483647.0},
                 {POME_OP_reduce_mean, NAN, 0},
                 {POME_OP_reduce_log_sum_exp, -INFINITY, -2147483648.0},
                 {POME_OP_reduce_l2_norm, 0, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        double f = one(cases[c].id, POME_DTYPE_F32, 0, none, NULL, &s);
        assert_int_equal(s, POME_OK);
        assert_true(f == cases[c].f32 || (f != f && cases[c].f32 != cases[c].f32));
        double i = one(cases[c].id, POME_DTYPE_I32, 0, none, NULL, &s);
        assert_true(i == cases[c].i32);
    }
    one(POME_OP_reduce_argmax, POME_DTYPE_F32, 0, none, "axis", &s);
    assert_int_not_equal(s, POME_OK);
}

/* ---- argmax, argmin ---- */

static void arg_search(void **state)
{
    (void)state;
    for (int round = 0; round < 120; round++) {
        int64_t shape[POME_MAX_RANK], inner = 1;
        int32_t rank = (int32_t)op_test_random_int(1, 5), axis = (int32_t)op_test_random_int(0, rank - 1);
        op_test_shape(shape, rank, 6, false);
        bool is_max = round & 1;
        pome_tensor x = op_test_tensor(types[round % 5], rank, shape, -4, 4);
        for (int64_t i = 0; i < pome_tensor_count(&x); i++) { /* many equal ones, some NaN */
            op_test_set(&x, i, floor(op_test_at(&x, i)));
            if (x.dtype == POME_DTYPE_F32 && op_test_random_int(0, 3) == 0)
                op_test_set(&x, i, NAN);
        }
        op_test *t = op_test_begin(is_max ? POME_OP_reduce_argmax : POME_OP_reduce_argmin, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        op_test_const_int(t, "axis", round % 3 ? axis : axis - rank);
        bool is_u16 = round % 4 == 0;
        if (is_u16)
            op_test_const_str(t, "output_dtype", "uint16");
        if (op_test_run(t) != POME_OK)
            fail_msg("%s", op_test_error(t)->message);
        assert_int_equal(op_test_out(t, 0)->dtype, is_u16 ? POME_DTYPE_U16 : POME_DTYPE_I32);
        for (int32_t d = axis + 1; d < rank; d++)
            inner *= shape[d];
        int64_t n_out = pome_tensor_count(&x) / shape[axis];
        double *want = calloc((size_t)n_out, sizeof *want);
        for (int64_t o = 0; o < n_out; o++) {
            double best = NAN;
            for (int64_t i = 0; i < shape[axis]; i++) {
                double v = op_test_at(&x, o / inner * shape[axis] * inner + i * inner + o % inner);
                if (v == v && (best != best || (is_max ? v > best : v < best))) {
                    best = v;
                    want[o] = (double)i;
                }
            }
        }
        op_test_expect(t, 0, want, 0, 0);
        free(want);
        op_test_end(t);
        pome_tensor_reset(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_axes),          cmocka_unit_test(long_axes),  cmocka_unit_test(edges),
        cmocka_unit_test(nothing_to_reduce), cmocka_unit_test(arg_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
