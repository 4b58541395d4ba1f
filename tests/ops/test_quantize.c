/* quantize and dequantize against their formulas. */
#include "op_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Halves to even, by the definition. */
static double round_even(double v)
{
    double below = floor(v), rest = v - below;
    return rest < 0.5 || (rest == 0.5 && fmod(below, 2) == 0) ? below : below + 1;
}

static void check(int round)
{
    int64_t shape[POME_MAX_RANK], index[POME_MAX_RANK] = {0};
    bool is_quantize = round & 1, is_vector = round & 2, has_zero = round & 4, is_signed = round & 8;
    int32_t rank = (int32_t)op_test_random_int(is_vector, 5), axis = 0;
    op_test_shape(shape, rank, 6, false);
    pome_dtype small = is_signed ? POME_DTYPE_I8 : POME_DTYPE_U8;
    if (is_vector)
        axis = (int32_t)op_test_random_int(0, rank - 1);
    int64_t n = is_vector ? shape[axis] : 1;
    pome_tensor x = op_test_tensor(is_quantize ? POME_DTYPE_F32 : small, rank, shape, -200, 300);
    pome_tensor scale = op_test_tensor(POME_DTYPE_F32, is_vector, &n, 0.5, 2);
    pome_tensor zero = op_test_tensor(small, is_vector, &n, -20, 20);
    for (int64_t i = 0; i < n; i++) /* powers of two: quotients are exact, ties happen */
        op_test_set(&scale, i, ldexp(1, (int)op_test_random_int(-1, 1)));
    for (int64_t i = 0; is_quantize && i < pome_tensor_count(&x); i++)
        op_test_set(&x, i, op_test_random_int(0, 9) ? floor(op_test_at(&x, i) * 4) / 4 : NAN);
    op_test *t = op_test_begin(is_quantize ? POME_OP_quantize : POME_OP_dequantize, POME_OPSET_IOS17);
    op_test_in(t, "input", &x);
    op_test_const(t, "scale", &scale);
    if (has_zero)
        op_test_const(t, "zero_point", &zero);
    if (is_vector)
        op_test_const_int(t, "axis", round & 16 ? axis : axis - rank);
    if (is_quantize)
        op_test_const_str(t, "output_dtype", is_signed ? "int8" : "uint8");
    if (op_test_run(t) != POME_OK)
        fail_msg("%s", op_test_error(t)->message);
    op_test_expect_shape(t, 0, rank, shape);
    double *want = calloc((size_t)pome_tensor_count(&x) + 1, sizeof *want);
    for (int64_t i = 0; i < pome_tensor_count(&x); i++, op_test_next(index, rank, shape)) {
        int64_t c = is_vector ? index[axis] : 0;
        double s = op_test_at(&scale, c), z = has_zero ? op_test_at(&zero, c) : 0, v = op_test_at(&x, i);
        if (!is_quantize)
            want[i] = s * (v - z);
        else if (v == v)
            want[i] = fmax(is_signed ? -128 : 0, fmin(is_signed ? 127 : 255, round_even(v / s) + z));
    }
    op_test_expect(t, 0, want, 0, 0);
    free(want);
    op_test_end(t);
    pome_tensor_reset(&x);
    pome_tensor_reset(&scale);
    pome_tensor_reset(&zero);
}

static void quantize_and_dequantize(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++)
        check(round);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(quantize_and_dequantize)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
