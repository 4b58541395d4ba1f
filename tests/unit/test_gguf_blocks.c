/* Elements of GGUF tensors against the gguf package (tests/oracle/make_convert_cases.py), and blocks carried over. */
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/f16.h"
#include "convert/kept.h"

enum { N_MAX = 1024 };

typedef struct block_case {
    const pome_gguf_encoding *encoding;
    uint32_t n;
    const uint8_t *bytes;
    float wanted[N_MAX];
} block_case;

typedef void case_fn(const block_case *c);

static uint32_t u32_at(const char *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void for_each_case(case_fn *fn)
{
    static block_case c;
    char *data = NULL;
    size_t len = 0, at = 8;
    assert_int_equal(pome_file_read(POME_SOURCE_DIR "/tests/unit/data/gguf_blocks.bin", 1 << 24, &data, &len, NULL), POME_OK);
    assert_memory_equal(data, "PGGB", 4);
    uint32_t n_cases = u32_at(data + 4);
    assert_int_equal(n_cases, 12);
    for (uint32_t i = 0; i < n_cases; i++) {
        uint32_t n_bytes = u32_at(data + at + 8);
        c.encoding = pome_gguf_encoding_find(u32_at(data + at));
        c.n = u32_at(data + at + 4);
        c.bytes = (const uint8_t *)data + at + 12;
        assert_non_null(c.encoding);
        assert_true(c.n <= N_MAX);
        memcpy(c.wanted, c.bytes + n_bytes, c.n * sizeof(float));
        fn(&c);
        at += 12 + n_bytes + c.n * sizeof(float);
    }
    assert_int_equal(at, len);
    free(data);
}

static void check_values(const block_case *c)
{
    float got[N_MAX];
    pome_gguf_row_decode(c->encoding, c->bytes, c->n, got);
    for (uint32_t i = 0; i < c->n; i++)
        if (fabsf(got[i] - c->wanted[i]) > 1e-6f * fabsf(c->wanted[i]) + 1e-7f)
            fail_msg("%s: element %u is %g, wanted %g", c->encoding->name, (unsigned)i, (double)got[i], (double)c->wanted[i]);
}

static void test_values(void **state)
{
    (void)state;
    for_each_case(check_values);
}

/* The least difference between elements of a group: its step, or a multiple of it. */
static double step_of(const float *w, uint32_t n)
{
    double least = INFINITY;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < i; k++) {
            double d = fabs((double)w[i] - (double)w[k]);
            least = d > 1e-6 && d < least ? d : least;
        }
    return isfinite(least) ? least : 0;
}

/* scale * (code - offset), in halves step by step, is the element to a small part of a step. */
static void check_kept(const block_case *c)
{
    const pome_gguf_encoding *e = c->encoding;
    int8_t codes[N_MAX];
    uint16_t scales[N_MAX / 16], offsets[N_MAX / 16] = {0};
    pome_dtype type = pome_kept_code(e);
    bool is_signed = type == POME_DTYPE_I4 || type == POME_DTYPE_I8;
    int32_t top = 1 << (pome_dtype_bits(type) - is_signed);
    pome_encode_error worst = {0};
    if (!e->split)
        return;
    assert_int_equal(pome_encode_kept(codes, scales, offsets, e, c->bytes, c->n, &worst), 0);
    double largest = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        float s = pome_f16_to_f32(scales[i / e->group]), o = pome_f16_to_f32(offsets[i / e->group]);
        int32_t code = is_signed ? codes[i] : (uint8_t)codes[i];
        assert_true(code < top && code >= (is_signed ? -top : 0));
        double got = (double)pome_f16_round(s * pome_f16_round((float)code - o));
        double d = fabs(got - (double)c->wanted[i]);
        largest = d > largest ? d : largest;
        double allowed = 0.011 * step_of(c->wanted + i / e->group * e->group, e->group) + 0.0011 * fabs((double)c->wanted[i]) +
                         0.0006 * fabs((double)s * (double)o); /* offset and result are halves */
        if (d > allowed)
            fail_msg("%s: element %u is %g, wanted %g", e->name, (unsigned)i, got, (double)c->wanted[i]);
    }
    assert_true(fabs(largest - worst.absolute) < 1e-5);
    assert_true(worst.beyond <= worst.steps);
    if (!e->has_shift && (e->block == 32)) /* the source's own scales: nothing is lost but to rounding */
        assert_true(worst.beyond == 0);
}

static void test_kept(void **state)
{
    (void)state;
    for_each_case(check_kept);
}

/* Q4_0 and Q8_0 have a form of their own in packages: the very codes and scales. */
static void test_kept_exactly(void **state)
{
    (void)state;
    uint8_t q4[18] = {0x00, 0xb8}; /* d = -0.5 */
    int8_t codes[32];
    uint16_t scale, offset;
    pome_encode_error worst = {0};
    for (int i = 0; i < 16; i++)
        q4[2 + i] = (uint8_t)(i | (15 - i) << 4);
    pome_encode_kept(codes, &scale, &offset, pome_gguf_encoding_find(2), q4, 32, &worst);
    assert_int_equal(scale, 0xb800);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(codes[i], i - 8);
        assert_int_equal(codes[i + 16], 7 - i);
    }
    assert_true(worst.absolute == 0);
}

/* d = 0 leaves the minimum alone: no scale of 0 could carry it. */
static void test_kept_constant(void **state)
{
    (void)state;
    uint8_t q4[20] = {0x00, 0x00, 0x00, 0xbc}; /* d = 0, m = -1 */
    int8_t codes[32];
    uint16_t scale, offset;
    pome_encode_error worst = {0};
    memset(q4 + 4, 0x9c, 16);
    pome_encode_kept(codes, &scale, &offset, pome_gguf_encoding_find(3), q4, 32, &worst);
    assert_int_equal(scale, 0xbc00);
    assert_int_equal(offset, 0);
    for (int i = 0; i < 32; i++)
        assert_int_equal(codes[i], 1);
    assert_true(worst.absolute == 0);
}

static void test_names(void **state)
{
    char text[32];
    (void)state;
    assert_string_equal(pome_gguf_type_name(12, text, sizeof text), "Q4_K");
    assert_string_equal(pome_gguf_type_name(16, text, sizeof text), "IQ2_XXS");
    assert_string_equal(pome_gguf_type_name(99, text, sizeof text), "type 99");
    assert_null(pome_gguf_encoding_find(16));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),        cmocka_unit_test(test_kept),  cmocka_unit_test(test_kept_exactly),
        cmocka_unit_test(test_kept_constant), cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
