/* Once a session has reserved, feeding it allocates nothing, with speculation neither. The linker puts these functions in front of the
 * allocator (--wrap); while `forbidden` is set every allocation fails and is counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "pome/generate.h"

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

static void run_model(const char *path, int n_threads)
{
    pome_model_opts opts;
    pome_model *model;
    pome_llm *llm;
    pome_llm_session *s;
    pome_error err = {0};
    int32_t ids[128];
    for (int i = 0; i < 128; i++)
        ids[i] = (i * 37 + 11) % 512;
    pome_model_opts_default(&opts);
    opts.n_threads = n_threads;
    if (pome_model_open(&model, path, &opts, &err) || pome_llm_open(&llm, model, NULL, &err) ||
        pome_llm_session_create(&s, llm, &err))
        fail_msg("%s: %s", path, err.message);
    static const int64_t pieces[] = {1, 1, 7, 32, 1, 1, 1, 40, 3, 1, 1, 16, 1};
    for (int round = 0; round < 2; round++) {
        int64_t at = 0;
        for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
            feed(s, ids + at, pieces[i]);
            at += pieces[i];
        }
        while (at < 128)
            feed(s, ids + at++, 1);
        pome_llm_session_clear(s);
        feed(s, ids, 128);
        pome_llm_session_clear(s);
    }
    assert_int_equal(atomic_load(&n_attempts), 0);
    pome_llm_session_destroy(&s);
    pome_llm_close(&llm);
    pome_model_close(&model);
}

static void test_stateful(void **unused)
{
    (void)unused;
    run_model(POME_SOURCE_DIR "/tests/golden/apple/int4-block32.mlpackage", 1);
    run_model(POME_SOURCE_DIR "/tests/golden/apple/int4-block32.mlpackage", 3);
}

static void test_enumerated(void **unused)
{
    (void)unused;
    run_model(POME_SOURCE_DIR "/tests/golden/enumerated/stateful-int4.mlpackage", 2);
}

static void test_shifting(void **unused)
{
    (void)unused;
    run_model(POME_SOURCE_DIR "/tests/golden/snake/shift-fp16.mlpackage", 2);
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
        cmocka_unit_test(test_stateful),
        cmocka_unit_test(test_enumerated),
        cmocka_unit_test(test_shifting),
        cmocka_unit_test(test_speculation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
