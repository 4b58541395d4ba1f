/* Finding contracts in descriptions made by hand, and cutting timelines into passes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/f16.h"
#include "llm/contract.h"

static pome_feature feature(const char *name, pome_dtype dtype, int32_t rank, const int64_t *shape)
{
    pome_feature f = {.name = name, .description = "", .dtype = dtype, .rank = rank};
    for (int32_t i = 0; i < rank; i++)
        f.shape[i] = shape[i];
    return f;
}

/* Axes of which max differs from the shape are ranged from the shape to max. */
static pome_feature ranged(const char *name, pome_dtype dtype, int32_t rank, const int64_t *shape, const int64_t *max)
{
    pome_feature f = feature(name, dtype, rank, shape);
    f.is_ranged = true;
    for (int32_t i = 0; i < rank; i++)
        f.range[i] = (pome_axis_range){shape[i], max[i]};
    return f;
}

#define SHAPE(...) (const int64_t[]){__VA_ARGS__}
#define COUNT(list) (uint32_t)(sizeof list / sizeof list[0])

typedef struct model {
    pome_feature inputs[8], states[4], outputs[4];
    pome_function_info info;
    pome_contract_model single;
    pome_contract_subject subject;
} model;

static void describe(model *m, const pome_feature *in, uint32_t n_in, const pome_feature *states, uint32_t n_states)
{
    memcpy(m->inputs, in, n_in * sizeof *in);
    if (n_states > 0)
        memcpy(m->states, states, n_states * sizeof *states);
    m->outputs[0] = (pome_feature){.name = "y", .description = "", .dtype = POME_DTYPE_F16, .rank = -1};
    m->info = (pome_function_info){"main", n_in, 1, n_states, m->inputs, m->outputs, m->states};
    m->single = (pome_contract_model){.name = "", .functions = &m->info, .n_functions = 1};
    m->subject = (pome_contract_subject){.path = "", .models = &m->single, .n_models = 1};
}

static pome_contract find(model *m)
{
    pome_contract c;
    pome_error err = {0};
    if (pome_contract_find(&c, &m->subject, NULL, &err) != POME_OK)
        fail_msg("%s", err.message);
    return c;
}

static void check_refused(model *m, const char *part)
{
    pome_contract c;
    pome_error err = {0};
    assert_int_equal(pome_contract_find(&c, &m->subject, NULL, &err), POME_ERR_UNSUPPORTED);
    if (!strstr(err.message, part) || !strstr(err.message, "expected"))
        fail_msg("'%s' is not in: %s", part, err.message);
}

/* Names that say nothing, parts in an unusual order. */
static void make_stateful(model *m, int64_t context)
{
    const pome_feature in[] = {ranged("a", POME_DTYPE_F16, 4, SHAPE(1, 1, 1, 1), SHAPE(1, 1, context, context)),
                               ranged("b", POME_DTYPE_I32, 2, SHAPE(1, 1), SHAPE(1, context))};
    const pome_feature states[] = {feature("k", POME_DTYPE_F16, 5, SHAPE(4, 1, 2, context, 16)),
                                   feature("v", POME_DTYPE_F16, 5, SHAPE(4, 1, 2, context, 16))};
    describe(m, in, COUNT(in), states, COUNT(states));
}

static const int64_t listed_lengths[] = {1, 1, 1, 32, 1, 8};
static const int64_t listed_masks[] = {1, 1, 1, 128, 1, 1, 32, 128, 1, 1, 8, 128};

static void make_enumerated(model *m)
{
    pome_feature in[] = {feature("ids", POME_DTYPE_I32, 2, SHAPE(1, 1)),
                         feature("mask", POME_DTYPE_F32, 4, SHAPE(1, 1, 1, 128)),
                         feature("where", POME_DTYPE_I32, 1, SHAPE(1))};
    in[0].n_enumerated = in[1].n_enumerated = 3;
    in[0].enumerated = listed_lengths;
    in[1].enumerated = listed_masks;
    const pome_feature states[] = {feature("k", POME_DTYPE_F16, 4, SHAPE(1, 2, 128, 16))};
    describe(m, in, COUNT(in), states, COUNT(states));
}

static void test_stateful_by_structure(void **state)
{
    (void)state;
    model m;
    char text[256];
    make_stateful(&m, 128);
    pome_contract c = find(&m);
    assert_ptr_equal(c.kind, &pome_contract_stateful);
    assert_int_equal(c.ids, 1);
    assert_int_equal(c.mask, 0);
    assert_int_equal(c.position, -1);
    assert_int_equal(c.context, 128);
    assert_false(c.is_mask_whole);
    c.kind->describe(&c, text, sizeof text);
    assert_string_equal(text, "stateful, 2 states, ids=b, mask=a (end), logits=y");
}

static void test_context_from_states(void **state)
{
    (void)state;
    model m;
    make_stateful(&m, 64);
    m.inputs[0].range[3].max = -1; /* unbounded */
    assert_int_equal(find(&m).context, 64);
    m.inputs[0].range[3].max = 4096; /* more than the cache has rows */
    assert_int_equal(find(&m).context, 64);
}

static void test_enumerated_position(void **state)
{
    (void)state;
    model m;
    make_enumerated(&m);
    pome_contract c = find(&m);
    assert_int_equal(c.position, 2);
    assert_true(c.is_mask_whole && c.may_pad);
    assert_int_equal(c.context, 128);
    assert_int_equal(c.lengths.n_listed, 3);
    assert_int_equal(c.lengths.listed[1], 8);
}

static void test_nocache(void **state)
{
    (void)state;
    model m;
    const pome_feature in[] = {feature("attention_mask", POME_DTYPE_I32, 2, SHAPE(1, 64)),
                               feature("x", POME_DTYPE_I32, 2, SHAPE(1, 64))};
    describe(&m, in, 2, NULL, 0);
    pome_contract c = find(&m);
    assert_ptr_equal(c.kind, &pome_contract_nocache);
    assert_int_equal(c.ids, 1);
    assert_int_equal(c.mask, 0);
    assert_int_equal(c.context, 64);
    describe(&m, in + 1, 1, NULL, 0);
    assert_int_equal(find(&m).mask, -1);
}

static void test_choosing_logits(void **state)
{
    (void)state;
    model m;
    make_stateful(&m, 16);
    m.outputs[1] = feature("the_logits", POME_DTYPE_F16, 3, SHAPE(1, -1, 100));
    m.info.n_outputs = 2;
    assert_int_equal(find(&m).logits[0], 1);
    m.outputs[1].name = "hidden";
    check_refused(&m, "2 float outputs of rank 3");
    m.outputs[1] = feature("index", POME_DTYPE_I32, 3, SHAPE(1, -1, 1)); /* no float: no rival */
    assert_int_equal(find(&m).logits[0], 0);
}

static void test_refusals(void **state)
{
    (void)state;
    model m;
    make_stateful(&m, 16);
    m.inputs[1].dtype = POME_DTYPE_F32;
    check_refused(&m, "0 int32 inputs of rank 2");
    make_stateful(&m, 16);
    m.inputs[2] = feature("past_key_0", POME_DTYPE_F16, 4, SHAPE(1, 2, 16, 8)); /* an explicit cache */
    m.info.n_inputs = 3;
    check_refused(&m, "input 'past_key_0' has no known part");
    m.inputs[2].is_optional = true;
    find(&m);
    make_stateful(&m, 16);
    m.info.n_states = 0;
    check_refused(&m, "there are no states, yet input 'a'");
    make_stateful(&m, 16);
    m.inputs[0] = m.inputs[1];
    m.info.n_inputs = 1;
    check_refused(&m, "no float mask of rank 4");
    make_enumerated(&m);
    m.info.n_inputs = 2; /* the whole mask, but nothing says where the rows go */
    check_refused(&m, "no int32 input [1] gives the position");
    const pome_feature two[] = {feature("x", POME_DTYPE_I32, 2, SHAPE(1, 8)), feature("z", POME_DTYPE_I32, 2, SHAPE(1, 8))};
    describe(&m, two, 2, NULL, 0);
    check_refused(&m, "which of 'x' and 'z' holds the ids");
    describe(&m, two, 1, NULL, 0);
    m.info.n_outputs = 0;
    check_refused(&m, "0 float outputs");
    m.inputs[0] = ranged("x", POME_DTYPE_I32, 2, SHAPE(1, 1), SHAPE(1, -1));
    m.info.n_outputs = 1;
    check_refused(&m, "nothing bounds the length of 'x'");
}

/* Runs the plan of a whole timeline; passes as "begin+real/rows ...". */
static void plan_all(const pome_contract *c, int64_t n_cached, int64_t n, int64_t block, char *text, size_t size)
{
    size_t at = 0;
    text[0] = '\0';
    for (int guard = 0; n_cached < n; guard++) {
        assert_true(guard < 1000);
        pome_pass p = c->kind->plan(c, n_cached, n, block);
        assert_true(p.begin >= 0 && p.begin <= n_cached && p.n_real >= 1 && p.n_real <= p.n_rows);
        assert_true(p.begin + p.n_rows <= c->context);
        assert_true(p.begin + p.n_real > n_cached);
        assert_true(pome_lengths_admit(&c->lengths, p.n_rows));
        at += (size_t)snprintf(text + at, size - at, "%s%d+%d/%d", at ? " " : "", (int)p.begin, (int)p.n_real, (int)p.n_rows);
        n_cached = p.begin + p.n_real;
    }
}

static void test_plans(void **state)
{
    (void)state;
    model m;
    char text[512];
    make_stateful(&m, 128);
    pome_contract c = find(&m);
    plan_all(&c, 0, 70, 32, text, sizeof text);
    assert_string_equal(text, "0+32/32 32+32/32 64+6/6");
    plan_all(&c, 127, 128, 32, text, sizeof text);
    assert_string_equal(text, "127+1/1");
    make_enumerated(&m);
    c = find(&m);
    plan_all(&c, 0, 13, 32, text, sizeof text);
    assert_string_equal(text, "0+8/8 8+5/8"); /* cheaper than 32 at once or five single ones */
    plan_all(&c, 0, 1, 32, text, sizeof text);
    assert_string_equal(text, "0+1/1");
    plan_all(&c, 0, 64, 32, text, sizeof text);
    assert_string_equal(text, "0+32/32 32+32/32");
    plan_all(&c, 0, 64, 8, text, sizeof text);
    assert_string_equal(text, "0+8/8 8+8/8 16+8/8 24+8/8 32+8/8 40+8/8 48+8/8 56+8/8");
    plan_all(&c, 122, 128, 32, text, sizeof text); /* padding to 8 would pass the context */
    assert_string_equal(text, "122+1/1 123+1/1 124+1/1 125+1/1 126+1/1 127+1/1");
    for (int64_t from = 0; from < 128; from += 3)
        for (int64_t to = from + 1; to <= 128; to += 5)
            plan_all(&c, from, to, 32, text, sizeof text);
}

/* Without length 1, the end of the context is met by computing earlier tokens again. */
static void test_plan_at_the_end_of_the_context(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 8, 1, 32}, masks[] = {1, 1, 8, 128, 1, 1, 32, 128};
    model m;
    char text[512];
    make_enumerated(&m);
    m.inputs[0].n_enumerated = m.inputs[1].n_enumerated = 2;
    m.inputs[0].enumerated = lengths;
    m.inputs[1].enumerated = masks;
    pome_contract c = find(&m);
    plan_all(&c, 125, 127, 32, text, sizeof text);
    assert_string_equal(text, "120+7/8");
    for (int64_t from = 0; from < 128; from += 3)
        for (int64_t to = from + 1; to <= 128; to += 5)
            plan_all(&c, from, to, 32, text, sizeof text);
}

/* A cache that moves must not be fed padding: where length 1 exists and no position is given, passes fit exactly. */
static void test_no_padding_without_a_position(void **state)
{
    (void)state;
    static const int64_t lengths[] = {1, 1, 1, 8};
    model m;
    char text[512];
    make_stateful(&m, 128);
    m.inputs[1].is_ranged = false;
    m.inputs[1].n_enumerated = 2;
    m.inputs[1].enumerated = lengths;
    pome_contract c = find(&m);
    assert_false(c.may_pad);
    plan_all(&c, 0, 11, 32, text, sizeof text);
    assert_string_equal(text, "0+8/8 8+1/1 9+1/1 10+1/1");
}

static void test_masks(void **state)
{
    (void)state;
    model m;
    int32_t ids[32], timeline[128];
    uint16_t half[32 * 128];
    float single[32 * 128];
    pome_pass_inputs in = {.ids = ids, .mask = half};
    for (int i = 0; i < 128; i++)
        timeline[i] = 100 + i;
    make_stateful(&m, 128);
    pome_contract c = find(&m);
    c.kind->fill(&c, (pome_pass){.begin = 3, .n_real = 4, .n_rows = 4}, timeline, &in);
    assert_int_equal(in.mask_tensor.shape[2], 4);
    assert_int_equal(in.mask_tensor.shape[3], 7);
    assert_int_equal(ids[0], 103);
    for (int row = 0; row < 4; row++)
        for (int column = 0; column < 7; column++) {
            float value = pome_f16_to_f32(half[row * 7 + column]);
            if (column <= 3 + row)
                assert_true(value == 0);
            else
                assert_true(value < -30000 && value > -60000); /* finite, also after scores are added */
        }
    make_enumerated(&m);
    c = find(&m);
    in.mask = single;
    c.kind->fill(&c, (pome_pass){.begin = 8, .n_real = 5, .n_rows = 8}, timeline, &in);
    assert_int_equal(in.mask_tensor.dtype, POME_DTYPE_F32);
    assert_int_equal(in.mask_tensor.shape[3], 128);
    assert_int_equal(in.position, 8);
    assert_int_equal(ids[4], 112);
    assert_int_equal(ids[5], 0); /* padding */
    for (int row = 0; row < 8; row++)
        for (int column = 0; column < 128; column++)
            assert_int_equal(single[row * 128 + column] == 0, column <= 8 + row); /* no row is wholly masked */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stateful_by_structure),
        cmocka_unit_test(test_context_from_states),
        cmocka_unit_test(test_enumerated_position),
        cmocka_unit_test(test_nocache),
        cmocka_unit_test(test_choosing_logits),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_plans),
        cmocka_unit_test(test_plan_at_the_end_of_the_context),
        cmocka_unit_test(test_no_padding_without_a_position),
        cmocka_unit_test(test_masks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
