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
    pome_feature inputs[12], states[4], outputs[12];
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

/* ---- caches as inputs and outputs, other parts ---- */

/* As the model but without states; outputs[1..] are those given. */
static void describe_explicit(model *m, const pome_feature *in, uint32_t n_in, const pome_feature *out, uint32_t n_out)
{
    describe(m, in, n_in, NULL, 0);
    memcpy(m->outputs + 1, out, n_out * sizeof *out);
    m->outputs[0] = feature("logits", POME_DTYPE_F16, 3, SHAPE(1, -1, 100));
    m->info.n_outputs = 1 + n_out;
}

static const int64_t cache_shape[] = {4, 1, 2, 64, 16};

static void make_explicit(model *m, const char *const *in_names, const char *const *out_names)
{
    pome_feature in[4] = {ranged("ids", POME_DTYPE_I32, 2, SHAPE(1, 1), SHAPE(1, 64)),
                          ranged("mask", POME_DTYPE_F16, 4, SHAPE(1, 1, 1, 1), SHAPE(1, 1, 64, 64))};
    pome_feature out[2];
    for (int i = 0; i < 2; i++) {
        in[2 + i] = feature(in_names[i], POME_DTYPE_F16, 5, cache_shape);
        out[i] = feature(out_names[i], POME_DTYPE_F16, 5, cache_shape);
    }
    describe_explicit(m, in, 4, out, 2);
}

#define NAMES(...) (const char *const[]){__VA_ARGS__}

static void test_explicit_pairs(void **state)
{
    (void)state;
    const struct {
        const char *const *in, *const *out;
        int first; /* output that the first cache becomes */
    } cases[] = {
        {NAMES("keyCache", "valueCache"), NAMES("presentValues", "presentKeys"), 2},
        {NAMES("past_key_values_0_key", "past_key_values_0_value"), NAMES("present_0_value", "present_0_key"), 2},
        {NAMES("past_v_3", "past_k_3"), NAMES("new_k_3", "new_v_3"), 2},
        {NAMES("K_full_in", "V_full_in"), NAMES("K_full_out", "V_full_out"), 1},
        {NAMES("a", "b"), NAMES("c", "d"), 1}, /* names say nothing: the order does */
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        model m;
        make_explicit(&m, cases[i].in, cases[i].out);
        pome_contract c = find(&m);
        assert_ptr_equal(c.kind, &pome_contract_explicit);
        assert_int_equal(c.n_caches, 2);
        for (uint32_t k = 0; k < 2; k++)
            if (c.caches[k].input == 2)
                assert_int_equal(c.caches[k].output, cases[i].first);
            else
                assert_int_equal(c.caches[k].output, 3 - cases[i].first);
        assert_int_equal(c.context, 64);
        pome_contract_reset(&c);
    }
}

static void test_caches_of_other_types_are_no_pair(void **state)
{
    (void)state;
    model m;
    make_explicit(&m, NAMES("keyCache", "valueCache"), NAMES("presentKeys", "presentValues"));
    m.outputs[2].dtype = POME_DTYPE_F32;
    check_refused(&m, "input 'valueCache' has no known part");
    make_explicit(&m, NAMES("keyCache", "valueCache"), NAMES("presentKeys", "presentValues"));
    m.outputs[2].shape[3] = 32;
    check_refused(&m, "input 'valueCache' has no known part");
    make_explicit(&m, NAMES("keyCache", "valueCache"), NAMES("presentKeys", "presentValues"));
    m.inputs[1] = m.inputs[3];
    m.info.n_inputs = 3;
    check_refused(&m, "no mask and no position says how far the caches are filled");
}

static void make_growing(model *m, int64_t min)
{
    const pome_feature in[] = {ranged("input_ids", POME_DTYPE_I32, 2, SHAPE(1, 1), SHAPE(1, 64)),
                               ranged("past_key_0", POME_DTYPE_F16, 4, SHAPE(1, 2, min, 16), SHAPE(1, 2, 40, 16)),
                               ranged("past_value_0", POME_DTYPE_F16, 4, SHAPE(1, 2, min, 16), SHAPE(1, 2, 48, 16)),
                               ranged("attention_mask", POME_DTYPE_I32, 2, SHAPE(1, 1), SHAPE(1, 64)),
                               ranged("position_ids", POME_DTYPE_I32, 2, SHAPE(1, 1), SHAPE(1, 64))};
    const pome_feature out[] = {{.name = "present_key_0", .description = "", .dtype = POME_DTYPE_F16, .rank = -1},
                                {.name = "present_value_0", .description = "", .dtype = POME_DTYPE_F16, .rank = -1}};
    describe_explicit(m, in, COUNT(in), out, 2);
}

static void test_growing(void **state)
{
    (void)state;
    model m;
    int32_t ids[8], mask[64], positions[8], timeline[64] = {0};
    pome_pass_inputs in = {.ids = ids, .mask = mask, .positions = positions};
    make_growing(&m, 0);
    pome_contract c = find(&m);
    assert_ptr_equal(c.kind, &pome_contract_growing);
    assert_int_equal(c.caches[0].axis, 2);
    assert_int_equal(c.context, 40);
    assert_int_equal(c.mask, 3);
    assert_int_equal(c.positions, 4);
    c.kind->fill(&c, (pome_pass){.begin = 5, .n_real = 2, .n_rows = 3}, timeline, &in);
    assert_int_equal(in.mask_tensor.shape[1], 8);
    assert_int_equal(mask[6], 1);
    assert_int_equal(mask[7], 0); /* padding */
    assert_int_equal(positions[2], 7);
    pome_contract_reset(&c);
    make_growing(&m, 1); /* a row that is always there is hidden */
    c = find(&m);
    assert_int_equal(c.n_dummy, 1);
    assert_int_equal(c.context, 39);
    c.kind->fill(&c, (pome_pass){.begin = 0, .n_real = 2, .n_rows = 2}, timeline, &in);
    assert_int_equal(in.mask_tensor.shape[1], 3);
    assert_true(mask[0] == 0 && mask[1] == 1 && mask[2] == 1);
    pome_contract_reset(&c);
    m.info.n_inputs = 3;
    check_refused(&m, "no mask hides them");
}

/* Monolithic models of single-token hosts: two positions, a mask of the row to write, logits in parts or an arg-max. */
static void test_single_token_parts(void **state)
{
    (void)state;
    model m;
    const pome_feature in[] = {feature("input_ids", POME_DTYPE_I32, 2, SHAPE(1, 1)),
                               feature("position_ids", POME_DTYPE_I32, 1, SHAPE(1)),
                               feature("update_mask", POME_DTYPE_F16, 4, SHAPE(1, 1, 64, 1)),
                               feature("causal_mask", POME_DTYPE_F16, 4, SHAPE(1, 1, 1, 64)),
                               feature("current_pos", POME_DTYPE_I32, 1, SHAPE(1))};
    const pome_feature states[] = {feature("kv", POME_DTYPE_F16, 4, SHAPE(8, 2, 64, 16))};
    describe(&m, in, COUNT(in), states, 1);
    for (int i = 0; i < 10; i++) {
        static char names[10][12];
        snprintf(names[i], sizeof names[i], "logits%d", 10 - i);
        m.outputs[i] = feature(names[i], POME_DTYPE_F16, 3, SHAPE(1, 1, 10 + i));
    }
    m.info.n_outputs = 10;
    pome_contract c = find(&m);
    assert_int_equal(c.n_logits, 10);
    assert_int_equal(c.logits[0], 9); /* logits1 */
    assert_int_equal(c.logits[9], 0); /* logits10, not between 1 and 2 */
    assert_int_equal(c.n_vocab, 145);
    assert_true(c.position == 1 && c.positions == 4 && c.update == 2 && c.mask == 3);
    pome_contract_reset(&c);
    m.outputs[0] = feature("token_id", POME_DTYPE_I32, 1, SHAPE(1));
    m.outputs[1] = feature("token_logit", POME_DTYPE_F16, 1, SHAPE(1));
    m.info.n_outputs = 2;
    c = find(&m);
    assert_true(c.is_argmax);
    assert_int_equal(c.logits[0], 0);
    pome_contract_reset(&c);
}

/* ---- what the caller says ---- */

static void set_roles(model *m, const pome_llm_role *roles, uint32_t n)
{
    m->subject.roles = roles;
    m->subject.n_roles = n;
}

static void check_error(model *m, const char *name, pome_status code, const char *part)
{
    pome_contract c;
    pome_error err = {0};
    assert_int_equal(pome_contract_find(&c, &m->subject, name, &err), code);
    if (!strstr(err.message, part))
        fail_msg("'%s' is not in: %s", part, err.message);
}

static void test_roles(void **state)
{
    (void)state;
    model m;
    const pome_feature two[] = {feature("x", POME_DTYPE_I32, 2, SHAPE(1, 8)), feature("z", POME_DTYPE_I32, 2, SHAPE(1, 8))};
    describe(&m, two, 2, NULL, 0);
    set_roles(&m, (const pome_llm_role[]){{"ids", "z"}, {"mask", "x"}}, 2);
    pome_contract c = find(&m);
    assert_true(c.ids == 1 && c.mask == 0);
    set_roles(&m, (const pome_llm_role[]){{"ids", "w"}}, 1);
    check_error(&m, NULL, POME_ERR_ARG, "'w' is mapped to ids, but nothing in the model is called so");
    set_roles(&m, (const pome_llm_role[]){{"id", "x"}}, 1);
    check_error(&m, NULL, POME_ERR_ARG, "no part is called 'id'; there are: ids, mask");
    set_roles(&m, (const pome_llm_role[]){{"ids", "y"}}, 1);
    check_error(&m, NULL, POME_ERR_UNSUPPORTED, "the input mapped to ids is not one of this function");
    set_roles(&m, (const pome_llm_role[]){{"ids", "z"}, {"position", "x"}}, 2);
    check_error(&m, NULL, POME_ERR_UNSUPPORTED, "'x' is mapped to the position, but is no int32 [1]");
    set_roles(&m, (const pome_llm_role[]){{"ids", "z"}, {"mask", "x"}, {"cache_in", "x"}}, 3);
    check_error(&m, NULL, POME_ERR_ARG, "'x' is mapped to mask and to cache_in");
    set_roles(&m, (const pome_llm_role[]){{"ids", "z"}, {"mask", "x"}, {"cache_out", "y"}}, 3);
    check_error(&m, "no-cache", POME_ERR_UNSUPPORTED, "there is no cache that 'y' could be a part of");
    make_explicit(&m, NAMES("a", "b"), NAMES("c", "d"));
    set_roles(&m, (const pome_llm_role[]){{"cache_in", "a"}, {"cache_out", "d"}, {"cache_in", "b"}, {"cache_out", "c"}}, 4);
    c = find(&m);
    assert_true(c.caches[0].input == 2 && c.caches[0].output == 2 && c.caches[1].output == 1);
    pome_contract_reset(&c);
    set_roles(&m, (const pome_llm_role[]){{"cache_in", "a"}, {"cache_out", "logits"}}, 2);
    check_error(&m, NULL, POME_ERR_UNSUPPORTED, "no output of its type to cache_out");
}

static void test_named_contract(void **state)
{
    (void)state;
    model m;
    make_stateful(&m, 16);
    check_error(&m, "no-cache", POME_ERR_UNSUPPORTED, "function 'main' does not fit the contract 'no-cache': there are 2 states");
    check_error(&m, "statefull", POME_ERR_ARG, "no contract is called 'statefull'; there are: stateful, explicit-kv");
}

/* ---- sets ---- */

enum { SET_MAX = 8 };

typedef struct set {
    pome_contract_model models[SET_MAX];
    pome_function_info functions[SET_MAX][2];
    pome_feature inputs[SET_MAX][2][8], outputs[SET_MAX][2][4], states[SET_MAX][2];
    pome_contract_subject subject;
} set;

static void add_function(set *s, const char *name, const char *function, const pome_feature *in, uint32_t n_in,
                         const pome_feature *out, uint32_t n_out, const pome_feature *state)
{
    uint32_t k = s->subject.n_models;
    if (k == 0 || strcmp(s->models[k - 1].name, name) != 0) {
        s->models[k] = (pome_contract_model){.name = name, .functions = s->functions[k]};
        s->subject = (pome_contract_subject){.path = "/nowhere", .models = s->models, .n_models = k + 1};
    } else {
        k--;
    }
    uint32_t f = s->models[k].n_functions++;
    memcpy(s->inputs[k][f], in, n_in * sizeof *in);
    memcpy(s->outputs[k][f], out, n_out * sizeof *out);
    if (state)
        s->states[k][f] = *state;
    s->functions[k][f] = (pome_function_info){function, n_in, n_out, state != NULL, s->inputs[k][f], s->outputs[k][f], &s->states[k][f]};
}

static void add_anemll(set *s, int n_chunks)
{
    static const int64_t sizes[] = {1, 1, 1, 16};
    static const char *const names[] = {"x_FFN_PF_chunk_01of02", "x_FFN_PF_chunk_02of02"};
    pome_feature ids = feature("input_ids", POME_DTYPE_I32, 2, SHAPE(1, 1));
    ids.n_enumerated = 2;
    ids.enumerated = sizes;
    const pome_feature hidden = feature("hidden_states", POME_DTYPE_F16, 3, SHAPE(1, -1, 32));
    const pome_feature kv = feature("kv_cache_0", POME_DTYPE_F16, 4, SHAPE(4, 2, 64, 8));
    add_function(s, "x_embeddings", "main", &ids, 1, &hidden, 1, NULL);
    for (int i = 0; i < n_chunks; i++)
        for (int k = 0; k < 2; k++) {
            int64_t n = k == 0 ? 1 : 16;
            const pome_feature in[] = {feature("hidden_states", POME_DTYPE_F16, 3, SHAPE(1, n, 32)),
                                       feature("position_ids", POME_DTYPE_I32, 1, SHAPE(n)),
                                       feature("causal_mask", POME_DTYPE_F16, 4, SHAPE(1, 1, n, 64)),
                                       feature("current_pos", POME_DTYPE_I32, 1, SHAPE(1))};
            add_function(s, names[i], k == 0 ? "infer" : "prefill", in, 4, &hidden, 1, &kv);
        }
    const pome_feature row = feature("hidden_states", POME_DTYPE_F16, 3, SHAPE(1, 1, 32));
    const pome_feature logits[] = {feature("logits1", POME_DTYPE_F16, 3, SHAPE(1, 1, 48)), feature("logits2", POME_DTYPE_F16, 3, SHAPE(1, 1, 48))};
    add_function(s, "x_lm_head", "main", &row, 1, logits, 2, NULL);
}

static void add_coreml_llm(set *s)
{
    for (int i = 0; i < 2; i++) {
        const pome_feature in[] = {i ? feature("hidden_states", POME_DTYPE_F16, 3, SHAPE(1, 1, 32)) : feature("input_ids", POME_DTYPE_I32, 2, SHAPE(1, 1)),
                                   feature("causal_mask", POME_DTYPE_F16, 4, SHAPE(1, 1, 1, 64)),
                                   feature("K_in", POME_DTYPE_F16, 4, SHAPE(1, 2, 64, 8)), feature("position", POME_DTYPE_I32, 1, SHAPE(1))};
        const pome_feature out[] = {i ? feature("logits", POME_DTYPE_F16, 3, SHAPE(1, 1, 96)) : feature("hidden_states_out", POME_DTYPE_F16, 3, SHAPE(1, 1, 32)),
                                    feature("K_out", POME_DTYPE_F16, 4, SHAPE(1, 2, 64, 8))};
        add_function(s, i ? "chunk2" : "chunk1", "main", in, 4, out, 2, NULL);
    }
}

static void check_set_error(set *s, const char *part)
{
    pome_contract c;
    pome_error err = {0};
    assert_int_equal(pome_contract_find(&c, &s->subject, NULL, &err), POME_ERR_UNSUPPORTED);
    if (!strstr(err.message, part))
        fail_msg("'%s' is not in: %s", part, err.message);
}

static void test_anemll(void **state)
{
    (void)state;
    set s = {0};
    pome_contract c;
    pome_error err = {0};
    char text[512];
    add_anemll(&s, 2);
    if (pome_contract_find(&c, &s.subject, NULL, &err))
        fail_msg("%s", err.message);
    assert_ptr_equal(c.kind, &pome_contract_anemll);
    assert_int_equal(c.n_vocab, 96);
    assert_int_equal(c.context, 64);
    c.kind->describe(&c, text, sizeof text);
    assert_string_equal(text, "anemll, 2 chunks, prefill of 16, 1 state, ids=input_ids, mask=causal_mask (context), "
                              "position=current_pos, logits=logits1..logits2");
    pome_pass p = c.kind->plan(&c, 0, 10, 128); /* nine tokens at once are cheaper than one by one, the last comes alone */
    assert_true(p.begin == 0 && p.n_real == 9 && p.n_rows == 16);
    p = c.kind->plan(&c, 0, 3, 128);
    assert_true(p.n_rows == 1);
    p = c.kind->plan(&c, 50, 63, 128); /* the batch would pass the context */
    assert_true(p.begin == 50 && p.n_rows == 1);
    pome_contract_reset(&c);
}

static void test_anemll_in_pieces(void **state)
{
    (void)state;
    set s = {0};
    add_anemll(&s, 2);
    s.subject.roles = &(const pome_llm_role){"ids", "input_ids"};
    s.subject.n_roles = 1;
    check_set_error(&s, "its parts are found by name, 'input_ids' cannot be mapped");
    memset(&s, 0, sizeof s);
    add_anemll(&s, 1);
    check_set_error(&s, "1 of 2 chunks of layers are there");
    memset(&s, 0, sizeof s);
    add_anemll(&s, 2);
    s.outputs[3][0][0].name = "y";
    check_set_error(&s, "no model with a head (hidden states in, logits out); 'x_lm_head' is no known part");
    memset(&s, 0, sizeof s);
    add_anemll(&s, 2);
    s.inputs[2][0][2].shape[3] = 32;
    check_set_error(&s, "function 'infer' has a context of 32, others 64");
    memset(&s, 0, sizeof s);
    add_anemll(&s, 2);
    s.states[2][0].shape[0] = 2;
    check_set_error(&s, "state 'kv_cache_0' is not the same in all chunks");
    memset(&s, 0, sizeof s);
    add_anemll(&s, 2);
    s.models[1].n_functions = 1;
    check_set_error(&s, "2 functions of layers take one token, 1 take more");
}

static void test_coreml_llm(void **state)
{
    (void)state;
    set s = {0};
    pome_contract c;
    pome_error err = {0};
    add_coreml_llm(&s);
    if (pome_contract_find(&c, &s.subject, NULL, &err))
        fail_msg("%s", err.message);
    assert_ptr_equal(c.kind, &pome_contract_coreml_llm);
    assert_int_equal(c.context, 64);
    pome_contract_reset(&c);
    s.inputs[1][0][2].name = "something";
    check_set_error(&s, "input 'something' has no known part");
    s.inputs[1][0][2].name = "cos_s";
    check_set_error(&s, "input 'cos_s' wants rotary rows (.npy, or rope_theta in model_config.json), which is not beside");
    s.inputs[0][0][0] = feature("hidden_in", POME_DTYPE_F16, 3, SHAPE(1, 1, 32));
    check_set_error(&s, "input 'hidden_in' wants embed_tokens_q8.bin and its scales, or embed_weight.bin");
}

/* A folder that holds two models in pieces. */
static void test_two_that_fit_equally(void **state)
{
    (void)state;
    set s = {0};
    pome_contract c;
    pome_error err = {0};
    add_coreml_llm(&s);
    add_anemll(&s, 2);
    s.inputs[0][0][3] = s.inputs[0][0][1]; /* no position, two masks: still that contract */
    assert_int_equal(pome_contract_find(&c, &s.subject, NULL, &err), POME_ERR_UNSUPPORTED);
    for (int i = 0; i < 2; i++)
        if (!strstr(err.message, i ? "and: coreml-llm, 2 chunks" : "two contracts fit equally well: anemll, 2 chunks"))
            fail_msg("%s", err.message);
    assert_non_null(strstr(err.message, "--contract"));
    assert_int_equal(pome_contract_find(&c, &s.subject, "coreml-llm", &err), POME_OK);
    assert_ptr_equal(c.kind, &pome_contract_coreml_llm);
    pome_contract_reset(&c);
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
        cmocka_unit_test(test_explicit_pairs),
        cmocka_unit_test(test_caches_of_other_types_are_no_pair),
        cmocka_unit_test(test_growing),
        cmocka_unit_test(test_single_token_parts),
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_named_contract),
        cmocka_unit_test(test_anemll),
        cmocka_unit_test(test_anemll_in_pieces),
        cmocka_unit_test(test_coreml_llm),
        cmocka_unit_test(test_two_that_fit_equally),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
