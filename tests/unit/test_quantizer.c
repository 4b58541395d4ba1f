/* Symmetric quantization: codes and scales of coremltools (tests/oracle/make_convert_cases.py), and blocks that it cannot
 * take. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/f16.h"
#include "base/file.h"
#include "convert/quantizer.h"

enum { N_MAX = 512 };

static uint32_t u32_at(const char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void check_case(const char *p, uint32_t n, uint32_t block, int top)
{
    float w[N_MAX];
    int8_t codes[N_MAX];
    uint16_t halves[N_MAX], scales[N_MAX / 16];
    memcpy(halves, p, n * 2);
    for (uint32_t i = 0; i < n; i++)
        w[i] = pome_f16_to_f32(halves[i]);
    assert_int_equal(pome_encode_symmetric(codes, scales, w, n, block, top), 0);
    const int8_t *wanted = (const int8_t *)p + n * 2;
    const char *wanted_scales = p + n * 3;
    for (uint32_t b = 0; b < n / block; b++) {
        uint16_t scale;
        bool is_zero = true;
        memcpy(&scale, wanted_scales + 2 * b, 2);
        for (uint32_t i = b * block; i < (b + 1) * block; i++) {
            assert_int_equal(codes[i], wanted[i]);
            is_zero &= w[i] == 0;
        }
        if (!is_zero)
            assert_int_equal(scales[b], scale);
        assert_true(pome_f16_to_f32(scales[b]) > 0);
    }
}

static void test_coremltools(void **state)
{
    char *data = NULL;
    size_t len = 0, at = 8;
    (void)state;
    assert_int_equal(pome_file_read(POME_SOURCE_DIR "/tests/unit/data/quantizer_cases.bin", 1 << 24, &data, &len, NULL),
                     POME_OK);
    assert_memory_equal(data, "PQNT", 4);
    uint32_t n_cases = u32_at(data + 4);
    assert_true(n_cases >= 36);
    for (uint32_t i = 0; i < n_cases; i++) {
        uint32_t n = u32_at(data + at), block = u32_at(data + at + 4), top = u32_at(data + at + 8);
        assert_true(n <= N_MAX);
        check_case(data + at + 12, n, block, (int)top);
        at += 12 + n * 3 + n / block * 2;
    }
    assert_int_equal(at, len);
    free(data);
}

static void test_no_numbers(void **state)
{
    (void)state;
    float w[32] = {0};
    int8_t codes[32];
    uint16_t scale;
    w[3] = INFINITY;
    w[4] = NAN;
    w[5] = -1e6f;
    w[6] = 70.0f;
    assert_int_equal(pome_encode_symmetric(codes, &scale, w, 32, 32, 127), 3);
    float s = pome_f16_to_f32(scale);
    assert_true(s > 500 && s < 530); /* 65504 / 127 */
    assert_int_equal(codes[3], 127);
    assert_int_equal(codes[4], 0);
    assert_int_equal(codes[5], -127);
    assert_int_equal(codes[0], 0);

    uint16_t halves[32];
    assert_int_equal(pome_encode_halves(halves, w, 32), 3);
    assert_int_equal(halves[3], 0x7bff);
    assert_int_equal(halves[4], 0);
    assert_int_equal(halves[5], 0xfbff);
    assert_int_equal(halves[6], pome_f32_to_f16(70));
}

/* The largest code times the scale stays finite as a half. */
static void test_largest(void **state)
{
    (void)state;
    for (int top = 7; top <= 127; top += 120)
        for (uint16_t h = 0x7700; h <= 0x7bff; h++) {
            float w[16] = {0};
            int8_t codes[16];
            uint16_t scale;
            w[9] = -pome_f16_to_f32(h);
            assert_int_equal(pome_encode_symmetric(codes, &scale, w, 16, 16, top), 0);
            float got = pome_f16_round(pome_f16_to_f32(scale) * (float)codes[9]);
            assert_true(fabsf(got - w[9]) < 0.002f * -w[9] && isfinite(got));
        }
}

static void test_zeros(void **state)
{
    (void)state;
    const float w[16] = {0};
    int8_t codes[16];
    uint16_t scale = 0;
    memset(codes, 5, sizeof codes);
    assert_int_equal(pome_encode_symmetric(codes, &scale, w, 16, 16, 7), 0);
    assert_int_equal(scale, 0x3c00);
    for (int i = 0; i < 16; i++)
        assert_int_equal(codes[i], 0);
}

static float shifted(uint8_t code, uint16_t scale, uint8_t offset)
{
    return pome_f16_round(pome_f16_to_f32(scale) * (float)(code - offset));
}

/* With offsets: equality with coremltools is tested in test_convert_quantize.py; here, what it cannot take. */
static void test_asymmetric(void **state)
{
    (void)state;
    for (int top = 15; top <= 255; top += 240) {
        float w[32] = {0};
        uint8_t codes[32], offset = 9;
        uint16_t scale = 0;
        memset(codes, 5, sizeof codes);
        assert_int_equal(pome_encode_asymmetric(codes, &scale, &offset, w, 32, 32, top), 0);
        for (int i = 0; i < 32; i++)
            assert_true(shifted(codes[i], scale, offset) == 0 && scale != 0);
        w[3] = INFINITY;
        w[4] = NAN;
        w[5] = -1e6f;
        assert_int_equal(pome_encode_asymmetric(codes, &scale, &offset, w, 32, 32, top), 3);
        assert_true(isfinite(shifted(codes[3], scale, offset)) && shifted(codes[3], scale, offset) > 56000);
        assert_true(isfinite(shifted(codes[5], scale, offset)) && shifted(codes[5], scale, offset) < -56000);
        assert_true(shifted(codes[4], scale, offset) == 0 && shifted(codes[0], scale, offset) == 0);
        for (int i = 0; i < 32; i++) /* subnormal halves, exactly */
            w[i] = (float)(i % 8 - 2) * 0x1p-24f;
        assert_int_equal(pome_encode_asymmetric(codes, &scale, &offset, w, 32, 32, top), 0);
        for (int i = 0; i < 32; i++)
            assert_true(shifted(codes[i], scale, offset) == w[i]);
        for (int i = 0; i < 32; i++) /* far from zero: the offset's formula overflows halves */
            w[i] = -5000.0f - 10.0f * (float)i;
        assert_int_equal(pome_encode_asymmetric(codes, &scale, &offset, w, 32, 32, top), 0);
        assert_int_equal(offset, top);
        for (int i = 0; i < 32; i++)
            assert_true(fabsf(shifted(codes[i], scale, offset) - w[i]) <= 5310.0f / (float)top * 0.51f + 4);
    }
}

static void test_smallest(void **state)
{
    (void)state;
    float w[16];
    int8_t codes[16];
    uint16_t scale;
    for (int i = 0; i < 16; i++)
        w[i] = (float)(i % 5 - 2) * 0x1p-24f;
    assert_int_equal(pome_encode_symmetric(codes, &scale, w, 16, 16, 7), 0);
    for (int i = 0; i < 16; i++)
        assert_true(pome_f16_to_f32(scale) * (float)codes[i] == w[i]);
}

static double error_of(const float *w, const int8_t *codes, const uint16_t *scales, int n, int block)
{
    double sum = 0;
    for (int i = 0; i < n; i++) {
        double d = (double)w[i] - (double)pome_f16_round(pome_f16_to_f32(scales[i / block]) * (float)codes[i]);
        sum += d * d;
    }
    return sum;
}

static void test_search(void **state)
{
    (void)state;
    float w[256];
    int8_t rule[256], found[256];
    uint16_t rule_scales[8], found_scales[8], seed = 1;
    for (int i = 0; i < 256; i++) { /* a few large weights among small ones */
        seed = (uint16_t)(seed * 25173u + 13849u);
        w[i] = ((float)seed / 65536.0f - 0.5f) * (i % 37 == 0 ? 8.0f : 1.0f);
    }
    pome_encode_symmetric(rule, rule_scales, w, 256, 32, 7);
    pome_encode_search(found, found_scales, w, 256, 32, 7);
    double a = error_of(w, rule, rule_scales, 256, 32), b = error_of(w, found, found_scales, 256, 32);
    assert_true(b < a);
    for (int i = 0; i < 8; i++) /* never worse, block by block */
        assert_true(error_of(w + 32 * i, found + 32 * i, found_scales + i, 32, 32) <=
                    error_of(w + 32 * i, rule + 32 * i, rule_scales + i, 32, 32));
}

/* Bit i * bits + k of the stream is bit k of code i. */
static void test_bits(void **state)
{
    (void)state;
    uint8_t codes[37], packed[40];
    for (size_t i = 0; i < sizeof codes; i++)
        codes[i] = (uint8_t)(i * 151 + 7);
    for (uint32_t bits = 1; bits <= 8; bits++)
        for (size_t n = 0; n <= sizeof codes; n++) {
            size_t n_bytes = (n * bits + 7) / 8;
            memset(packed, 0xa5, sizeof packed);
            pome_encode_bits(packed, codes, n, bits);
            for (size_t at = 0; at < n_bytes * 8; at++) {
                unsigned want = at < n * bits ? codes[at / bits] >> at % bits & 1u : 0;
                assert_int_equal(packed[at / 8] >> at % 8 & 1u, want);
            }
            assert_int_equal(packed[n_bytes], 0xa5);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_coremltools), cmocka_unit_test(test_no_numbers), cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_largest),
        cmocka_unit_test(test_asymmetric),  cmocka_unit_test(test_smallest),
        cmocka_unit_test(test_search),      cmocka_unit_test(test_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
