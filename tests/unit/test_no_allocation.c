/* Once a session has reserved, feeding it allocates nothing, with speculation neither. The linker puts these functions in front of the
 * allocator (--wrap); while `forbidden` is set every allocation fails and is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pome/generate.h"
#include "pome/model_set.h"

static atomic_bool forbidden;
static atomic_int n_attempts;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static bool refuse(void)
{
    if (!atomic_load(&forbidden))
        return false;
    atomic_fetch_add(&n_attempts, 1);
    return true;
}

void *__wrap_malloc(size_t size)
{
    return refuse() ? NULL : __real_malloc(size);
}
void *__wrap_calloc(size_t n, size_t size)
{
    return refuse() ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t size)
{
    return refuse() ? NULL : __real_realloc(p, size);
}
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return refuse() ? NULL : __real_aligned_alloc(alignment, size);
}

static void feed(pome_llm_session *s, const int32_t *ids, int64_t n)
{
    pome_error err;
    const float *logits;
    atomic_store(&forbidden, true);
    pome_status status = pome_llm_session_append(s, ids, n, &logits, &err);
    atomic_store(&forbidden, false);
    if (status != POME_OK)
        fail_msg("%lld tokens at %lld: %s", (long long)n, (long long)pome_llm_session_n_tokens(s), err.message);
}

enum { N_IDS = 300 };

/* A folder may hold a set. Feeds up to `n` tokens, as far as the context goes. */
static void run_model(const char *name, int n_threads, pome_numerics numerics, int64_t n)
{
    char path[512];
    pome_model_set_opts opts;
    pome_model_set *models;
    pome_llm *llm;
    pome_llm_session *s;
    pome_error err = {0};
    int32_t ids[N_IDS];
    snprintf(path, sizeof path, "%s/tests/golden/%s", POME_SOURCE_DIR, name);
    pome_model_set_opts_default(&opts);
    opts.model.n_threads = n_threads;
    opts.model.numerics = numerics;
    if (pome_model_set_open(&models, path, &opts, &err) || pome_llm_open_set(&llm, models, NULL, &err) ||
        pome_llm_session_create(&s, llm, &err))
        fail_msg("%s: %s", path, err.message);
    bool is_set = pome_model_set_count(models) > 1;
    n = n < pome_llm_n_context(llm) ? n : pome_llm_n_context(llm);
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (int32_t)((i * 37 + 11) % pome_llm_n_vocab(llm));
    for (int64_t i = 0; i < n; i++) /* decoding, from the first token on */
        feed(s, ids + i, 1);
    pome_llm_session_clear(s);
    const float *logits;
    for (int64_t i = 0, piece = 7; is_set && i + piece <= n; i += piece, piece = 70) /* sets make what takes several tokens when it comes to that */
        assert_int_equal(pome_llm_session_append(s, ids, piece, &logits, &err), POME_OK);
    pome_llm_session_clear(s);
    static const int64_t pieces[] = {1, 1, 7, 32, 1, 1, 1, 40, 3, 1, 1, 16, 1};
    for (int round = 0; round < 2; round++) {
        int64_t at = 0;
        for (size_t i = 0; i < sizeof pieces / sizeof pieces[0] && at + pieces[i] <= n; i++) {
            feed(s, ids + at, pieces[i]);
            at += pieces[i];
        }
        while (at < n)
            feed(s, ids + at++, 1);
        pome_llm_session_clear(s);
        feed(s, ids, n);
        pome_llm_session_clear(s);
    }
    if (atomic_load(&n_attempts) > 0)
        fail_msg("%s: %d allocations", name, atomic_load(&n_attempts));
    pome_llm_session_destroy(&s);
    pome_llm_close(&llm);
    pome_model_set_close(&models);
}

static void test_packages(void **unused)
{
    (void)unused;
    static const char *const names[] = {"apple/int4-block32.mlpackage", "apple/layer1-sparse50-int8.mlpackage", "apple/layer1-lut4-vector2.mlpackage",
                                        "enumerated/stateful-int4.mlpackage", "snake/shift-fp16.mlpackage", "explicit-kv/static-int4.mlpackage",
                                        "multifunction/int4-block32.mlpackage", "nocache/layer1-logits-fixed64-lut6.mlpackage"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (int k = 0; k < 3; k++)
            run_model(names[i], 1 + k, k == 0 ? POME_NUMERICS_EXACT : k == 1 ? POME_NUMERICS_FAST : POME_NUMERICS_FP16, 128);
}

/* Windows slide, caches are brought up to date on another thread; attention over 512 columns is cut into blocks. */
static void test_sets(void **unused)
{
    (void)unused;
    static const char *const names[] = {"chunks-lut4-split", "contracts/anemll", "contracts/coreml-llm-caches", "contracts/coreml-llm-sliding"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (int k = 0; k < 2; k++)
            run_model(names[i], 1 + 2 * k, k ? POME_NUMERICS_FAST : POME_NUMERICS_EXACT, k ? N_IDS : 80);
}

typedef struct answer_seen {
    int64_t n;
} answer_seen;

/* Allocating is forbidden from the first token on, when everything is set up, to the 60th. */
static bool look(void *arg, int32_t id, const char *text, size_t len)
{
    answer_seen *s = arg;
    (void)id;
    (void)text;
    (void)len;
    s->n++;
    atomic_store(&forbidden, s->n < 60);
    return true;
}

/* The model repeats itself after a while, and then drafts are taken. */
static void test_speculation(void **unused)
{
    (void)unused;
    pome_model *model;
    pome_llm *llm;
    pome_llm_session *s;
    pome_sampler *sampler;
    pome_error err = {0};
    int32_t ids[60];
    for (int i = 0; i < 60; i++)
        ids[i] = i % 6 * 11;
    pome_model_opts model_opts;
    pome_model_opts_default(&model_opts);
    model_opts.n_threads = 2;
    pome_sampler_opts greedy;
    pome_sampler_opts_default(&greedy);
    greedy.temperature = 0;
    if (pome_model_open(&model, POME_SOURCE_DIR "/tests/golden/apple/int4-block32.mlpackage", &model_opts, &err) ||
        pome_llm_open(&llm, model, NULL, &err) || pome_llm_session_create(&s, llm, &err) ||
        pome_sampler_create(&sampler, &greedy, pome_llm_n_vocab(llm), &err))
        fail_msg("%s", err.message);
    int64_t n_drafted = 0;
    for (int round = 0; round < 4; round++) {
        answer_seen seen = {0};
        pome_generate_opts opts;
        pome_generate_result r;
        pome_generate_opts_default(&opts);
        opts.max_new_tokens = 62;
        opts.speculate = 8;
        opts.sink = look;
        opts.sink_arg = &seen;
        pome_status status = pome_generate(s, sampler, ids, 60, &opts, &r, &err);
        atomic_store(&forbidden, false);
        if (status != POME_OK)
            fail_msg("%s", err.message);
        assert_int_equal(seen.n, 62);
        n_drafted += r.n_drafted;
        ids[0]++;
    }
    assert_int_equal(atomic_load(&n_attempts), 0);
    assert_true(n_drafted > 0);
    pome_sampler_destroy(&sampler);
    pome_llm_session_destroy(&s);
    pome_llm_close(&llm);
    pome_model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_packages),
        cmocka_unit_test(test_sets),
        cmocka_unit_test(test_speculation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
