/* Sets of chunks by their descriptions alone: what does not fit together is told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "llm/contract.h"

enum { N_MODELS = 6 };

typedef struct made_set {
    pome_feature in[N_MODELS][8], out[N_MODELS][8];
    pome_function_info fn[N_MODELS];
    pome_contract_model models[N_MODELS];
    pome_contract_subject subject;
} made_set;

static pome_feature feature(const char *name, pome_dtype dtype, int32_t rank, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (pome_feature){.name = name, .description = "", .dtype = dtype, .rank = rank, .shape = {a, b, c, d}};
}

static pome_feature half(const char *name, int32_t rank, int64_t a, int64_t b, int64_t c, int64_t d)
{
    return feature(name, POME_DTYPE_F16, rank, a, b, c, d);
}

static void add_group(made_set *s, uint32_t i)
{
    s->in[i][0] = half("x", 4, 1, 96, 8, 8);
    s->in[i][1] = half("mask", 4, 1, 1, 64, 512);
    s->in[i][2] = half("k_cache_0", 4, 1, 32, 1, 448);
    s->in[i][3] = half("v_cache_0", 4, 1, 32, 1, 448);
    s->out[i][0] = half("new_x", 4, 1, 96, 8, 8);
    s->out[i][1] = half("new_k_cache_0", 4, 1, 32, 1, 64);
    s->out[i][2] = half("new_v_cache_0", 4, 1, 32, 1, 64);
}

static void make_set(made_set *s)
{
    static const char *const names[] = {"cache-processor", "logit-processor", "m_chunk1", "m_chunk2", "m_chunk3", "m_chunk4"};
    static const uint32_t n_in[] = {4, 1, 2, 4, 4, 1}, n_out[] = {2, 1, 2, 3, 3, 1};
    *s = (made_set){.subject = {.path = "set", .n_models = N_MODELS}};
    s->in[0][0] = half("old_k_cache", 4, 1, 32, 1, 448);
    s->in[0][1] = half("new_k_cache", 4, 1, 32, 1, 64);
    s->in[0][2] = half("old_v_cache", 4, 1, 32, 1, 448);
    s->in[0][3] = half("new_v_cache", 4, 1, 32, 1, 64);
    s->out[0][0] = half("updated_k_cache", 4, 1, 32, 1, 448);
    s->out[0][1] = half("updated_v_cache", 4, 1, 32, 1, 448);
    s->in[1][0] = half("logits", 3, 1, 64, 300, 0);
    s->out[1][0] = feature("argmax", POME_DTYPE_I32, 2, 1, 64, 0, 0);
    s->in[2][0] = feature("input_ids", POME_DTYPE_I32, 2, 1, 64, 0, 0);
    s->in[2][1] = feature("full_sequence_length", POME_DTYPE_I32, 1, 1, 0, 0, 0);
    s->out[2][0] = half("x", 4, 1, 96, 8, 8);
    s->out[2][1] = half("mask", 4, 1, 1, 64, 512);
    add_group(s, 3);
    add_group(s, 4);
    s->in[5][0] = half("x", 4, 1, 96, 8, 8);
    s->out[5][0] = half("logits", 3, 1, 64, 300, 0);
    for (uint32_t i = 0; i < N_MODELS; i++) {
        s->fn[i] = (pome_function_info){.name = "main", .n_inputs = n_in[i], .n_outputs = n_out[i], .inputs = s->in[i],
                                        .outputs = s->out[i]};
        s->models[i] = (pome_contract_model){.name = names[i], .functions = &s->fn[i], .n_functions = 1};
    }
    s->subject.models = s->models;
}

static void refused(const made_set *s, const char *part)
{
    pome_contract c = {0};
    pome_error err = {0};
    assert_int_equal(pome_contract_find(&c, &s->subject, "llm-cli", &err), POME_ERR_UNSUPPORTED);
    if (!strstr(err.message, part))
        fail_msg("'%s' is not in: %s", part, err.message);
}

static void whole_set_is_found(void **state)
{
    (void)state;
    made_set s;
    pome_contract c = {0};
    char text[400];
    make_set(&s);
    assert_int_equal(pome_contract_find(&c, &s.subject, NULL, NULL), POME_OK);
    c.kind->describe(&c, text, sizeof text);
    assert_string_equal(text, "llm-cli, 4 chunks of 'm', window 64 of context 512, ids=input_ids, logits=logits");
    assert_int_equal(c.n_vocab, 300);
    assert_int_equal(c.context, POME_CONTEXT_ENDLESS);
    pome_pass pass = c.kind->plan(&c, 60, 300, 128); /* to the end of the window */
    assert_true(pass.begin == 60 && pass.n_real == 4);
    pass = c.kind->plan(&c, 128, 130, 128);
    assert_true(pass.begin == 128 && pass.n_real == 2);
    pome_contract_reset(&c);
}

static void context_lengths_differ(void **state)
{
    (void)state;
    made_set s;
    make_set(&s);
    s.in[4][2].shape[3] = s.in[4][3].shape[3] = 192;
    refused(&s, "m_chunk2 caches 448 columns, m_chunk3 192: they are of different context lengths");
    make_set(&s);
    s.out[2][1].shape[3] = s.in[3][1].shape[3] = s.in[4][1].shape[3] = 256;
    refused(&s, "m_chunk1 makes a mask of 256 columns, but m_chunk2 caches 448 and adds 64");
    make_set(&s);
    s.in[0][0].shape[3] = 192;
    refused(&s, "cache-processor is for other caches than those of m_chunk2");
}

static void names_and_shapes_differ(void **state)
{
    (void)state;
    made_set s;
    make_set(&s);
    s.out[4][0].name = "y";
    refused(&s, "m_chunk3 has no output 'new_x' for the next chunk; it gives y fp16 [1, 96, 8, 8]");
    make_set(&s);
    s.out[3][2].name = "value";
    refused(&s, "m_chunk2 has no output 'new_v_cache_0'");
    make_set(&s);
    s.in[3][1].name = "bias";
    refused(&s, "m_chunk2: nothing gives input 'bias'");
    make_set(&s);
    s.in[4][0].shape[1] = s.out[4][0].shape[1] = 64;
    refused(&s, "m_chunk3: input 'x' has another shape than the output of m_chunk1");
    make_set(&s);
    s.out[0][0].name = "k";
    refused(&s, "cache-processor is no cache processor");
    make_set(&s);
    s.in[1][0].shape[2] = 200;
    refused(&s, "logit-processor does not take the 1 logits that m_chunk4 gives");
    make_set(&s);
    s.models[5].name = "m_chunk3";
    refused(&s, "there are two models for chunk 3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_set_is_found),
        cmocka_unit_test(context_lengths_differ),
        cmocka_unit_test(names_and_shapes_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
