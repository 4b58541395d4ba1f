/* base/f16.h against values computed from the fields of the formats with ldexp, and a search over all halves. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/f16.h"

/* The value that the fields of a small float stand for: sign, exponent, mantissa bits as given. */
static double from_fields(unsigned bits, int n_exponent, int n_mantissa, int bias)
{
    unsigned mantissa = bits & ((1u << n_mantissa) - 1), exponent = bits >> n_mantissa & ((1u << n_exponent) - 1);
    double sign = bits >> (n_exponent + n_mantissa) & 1 ? -1 : 1;
    if (exponent == 0)
        return sign * ldexp(mantissa, 1 - bias - n_mantissa);
    return sign * ldexp((double)mantissa + (double)(1u << n_mantissa), (int)exponent - bias - n_mantissa);
}

static int same_double(double a, double b)
{
    return a == b && signbit(a) == signbit(b);
}

static void half_to_float_is_exact(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        double got = (double)pome_f16_to_f32((uint16_t)h);
        if ((h & 0x7fff) > 0x7c00)
            assert_true(isnan(got));
        else if ((h & 0x7fff) == 0x7c00)
            assert_true(isinf(got) && signbit(got) == (h >> 15 != 0));
        else
            assert_true(same_double(got, from_fields(h, 5, 10, 15)));
    }
}

static void half_round_trips(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        uint16_t back = pome_f32_to_f16(pome_f16_to_f32((uint16_t)h));
        if ((h & 0x7fff) > 0x7c00)
            assert_int_equal(back, h | 0x200); /* quiet, payload and sign kept */
        else
            assert_int_equal(back, h);
        assert_true((h & 0x7fff) > 0x7c00 || pome_f16_round(pome_f16_to_f32((uint16_t)h)) == pome_f16_to_f32((uint16_t)h));
    }
}

/* The nearest half of a non-negative double, by bisection over all finite halves, ties to the even pattern. */
static unsigned nearest_half(double x)
{
    if (x >= 65520) /* half way from the largest half to what would be the next one */
        return 0x7c00;
    unsigned low = 0, high = 0x7bff;
    while (low < high) { /* largest half <= x */
        unsigned middle = (low + high + 1) / 2;
        if (from_fields(middle, 5, 10, 15) <= x)
            low = middle;
        else
            high = middle - 1;
    }
    if (low == 0x7bff)
        return low;
    double below = x - from_fields(low, 5, 10, 15), above = from_fields(low + 1, 5, 10, 15) - x;
    return below < above || (below == above && low % 2 == 0) ? low : low + 1;
}

static void check_float(float f)
{
    unsigned want = nearest_half(fabs((double)f));
    assert_int_equal(pome_f32_to_f16(f), want | (signbit(f) ? 0x8000u : 0));
    assert_int_equal(pome_f32_to_f16(-f), want | (signbit(f) ? 0 : 0x8000u));
}

static void float_to_half_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7bff; h++) { /* each midpoint, exact in float, and both neighbours */
        float middle = (float)((from_fields(h, 5, 10, 15) + from_fields(h + 1, 5, 10, 15)) / 2);
        check_float(middle);
        check_float(nextafterf(middle, 0));
        check_float(nextafterf(middle, INFINITY));
    }
    check_float(0);
    check_float(FLT_TRUE_MIN);
    check_float(FLT_MIN);
    check_float(FLT_MAX);
    check_float(INFINITY);
    check_float(65504);
    check_float(65519.996f);
    check_float(65520);
    check_float(ldexpf(1, -25)); /* half of the smallest: a tie, to zero */
    check_float(nextafterf(ldexpf(1, -25), 1));
    uint32_t seed = 12345;
    for (int i = 0; i < 300000; i++) {
        seed = seed * 1664525u + 1013904223u;
        float f = pome_f32_from_bits(seed);
        if (!isnan(f))
            check_float(f);
        /* mostly out of range above: bring the exponent near the halves' */
        check_float(pome_f32_from_bits((seed & 0x7fffffu) | (96 + (seed >> 23) % 52) << 23));
    }
}

static void nan_stays_nan(void **state)
{
    (void)state;
    assert_true(isnan(pome_f16_to_f32(pome_f32_to_f16(NAN))));
    /* A payload in the lower bits alone must not turn into infinity. */
    assert_true(isnan(pome_f16_to_f32(pome_f32_to_f16(pome_f32_from_bits(0x7f800001u)))));
    assert_true(isnan(pome_f16_to_f32(pome_f32_to_f16(pome_f32_from_bits(0xff800001u)))));
    assert_true(isnan(pome_bf16_to_f32(pome_f32_to_bf16(pome_f32_from_bits(0x7f800001u)))));
}

static void bfloat16(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        float f = pome_bf16_to_f32((uint16_t)h);
        if ((h & 0x7fff) > 0x7f80) {
            assert_true(isnan(f));
            continue;
        }
        if ((h & 0x7fff) < 0x7f80)
            assert_true(same_double((double)f, from_fields(h, 8, 7, 127)));
        assert_int_equal(pome_f32_to_bf16(f), h);
        if ((h & 0x7fff) >= 0x7f7f)
            continue;
        float next = pome_bf16_to_f32((uint16_t)(h + 1)), middle = (float)(((double)f + (double)next) / 2);
        assert_int_equal(pome_f32_to_bf16(middle), h % 2 ? h + 1 : h);
        assert_int_equal(pome_f32_to_bf16(nextafterf(middle, f)), h);
        assert_int_equal(pome_f32_to_bf16(nextafterf(middle, next)), h + 1);
    }
    assert_int_equal(pome_f32_to_bf16(FLT_MAX), 0x7f80);
}

static void eight_bit_floats(void **state)
{
    (void)state;
    for (unsigned b = 0; b < 256; b++) {
        double e5 = (double)pome_f8e5m2_to_f32((uint8_t)b), e4 = (double)pome_f8e4m3fn_to_f32((uint8_t)b);
        if ((b & 0x7f) > 0x7c)
            assert_true(isnan(e5));
        else if ((b & 0x7f) == 0x7c)
            assert_true(isinf(e5));
        else
            assert_true(same_double(e5, from_fields(b, 5, 2, 15)));
        if ((b & 0x7f) == 0x7f)
            assert_true(isnan(e4));
        else
            assert_true(same_double(e4, from_fields(b, 4, 3, 7)));
    }
    assert_true(pome_f8e4m3fn_to_f32(0x7e) == 448.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_to_float_is_exact),
        cmocka_unit_test(half_round_trips),
        cmocka_unit_test(float_to_half_rounds_to_nearest_even),
        cmocka_unit_test(nan_stays_nan),
        cmocka_unit_test(bfloat16),
        cmocka_unit_test(eight_bit_floats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
