/* Stopping what runs: a prediction without an end by another thread or a poll; feeds of sessions at each of their steps, after
 * which a session must give what an untouched one gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "pome/generate.h"
#include "pome/llm.h"
#include "pome/predictor.h"

#define GOLDEN POME_SOURCE_DIR "/tests/golden/"

/* ---- predictions ---- */

/* The model adds x to itself n times, in a loop, and gives the sum. */
typedef struct endless {
    pome_model *model;
    pome_predictor *predictor;
    float x[6];
    int32_t n;
    pome_tensor inputs[2];
} endless;

static void open_endless(endless *e)
{
    pome_error err = {0};
    memset(e, 0, sizeof *e);
    if (pome_model_open(&e->model, GOLDEN "loader/control_flow.mlpackage", NULL, &err) ||
        pome_predictor_create(&e->predictor, e->model, NULL, NULL, &err))
        fail_msg("%s", err.message);
    for (int i = 0; i < 6; i++)
        e->x[i] = (float)i;
    e->inputs[0] = pome_tensor_borrow(e->x, POME_DTYPE_F32, 2, (int64_t[]){2, 3});
    e->inputs[1] = pome_tensor_borrow(&e->n, POME_DTYPE_I32, 1, (int64_t[]){1});
    const pome_function_info *f = &pome_model_describe(e->model)->functions[0];
    for (uint32_t i = 0; i < f->n_inputs; i++)
        assert_int_equal(pome_predictor_set_input(e->predictor, i, &e->inputs[strcmp(f->inputs[i].name, "n") == 0], &err), POME_OK);
}

static void close_endless(endless *e)
{
    pome_predictor_destroy(&e->predictor);
    pome_model_close(&e->model);
}

static void expect_sum(endless *e, int32_t n)
{
    pome_error err = {0};
    e->n = n;
    assert_int_equal(pome_predictor_run(e->predictor, NULL, &err), POME_OK);
    for (int i = 0; i < 6; i++)
        assert_true(((const float *)pome_predictor_output(e->predictor, 0)->data)[i] == (float)(n * i));
}

static void *cancel_soon(void *predictor)
{
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    pome_predictor_cancel(predictor);
    return NULL;
}

static void test_another_thread_stops_a_prediction(void **state)
{
    (void)state;
    endless e;
    pthread_t thread;
    pome_error err = {0};
    open_endless(&e);
    expect_sum(&e, 3);
    e.n = INT32_MAX; /* minutes */
    assert_int_equal(pthread_create(&thread, NULL, cancel_soon, e.predictor), 0);
    assert_int_equal(pome_predictor_run(e.predictor, NULL, &err), POME_ERR_CANCELLED);
    assert_non_null(strstr(err.message, "stopped"));
    pthread_join(thread, NULL);
    expect_sum(&e, 5);
    pome_predictor_cancel(e.predictor); /* before it runs */
    assert_int_equal(pome_predictor_run(e.predictor, NULL, &err), POME_ERR_CANCELLED);
    expect_sum(&e, 2);
    close_endless(&e);
}

typedef struct counter {
    int n_asked, n_until;
    pome_llm_session *session; /* stopped through it, if there is one */
} counter;

static bool count(void *arg)
{
    counter *c = arg;
    bool is_now = ++c->n_asked == c->n_until;
    if (is_now && c->session)
        pome_llm_session_cancel(c->session);
    return is_now && !c->session;
}

static void test_a_poll_stops_a_prediction(void **state)
{
    (void)state;
    endless e;
    counter c = {.n_until = 1000};
    pome_error err = {0};
    open_endless(&e);
    pome_predictor_poll(e.predictor, count, &c);
    e.n = INT32_MAX;
    assert_int_equal(pome_predictor_run(e.predictor, NULL, &err), POME_ERR_CANCELLED);
    assert_int_equal(c.n_asked, 1000);
    expect_sum(&e, 4);
    assert_true(c.n_asked > 1000);
    int n_before = c.n_asked;
    pome_predictor_poll(e.predictor, NULL, NULL);
    expect_sum(&e, 4);
    assert_int_equal(c.n_asked, n_before);
    close_endless(&e);
}

/* ---- sessions ---- */

enum { N_IDS = 12, N_BEFORE = 5, BLOCK = 4, VOCAB_MAX = 4096 };

typedef struct engine {
    pome_model_set *set;
    pome_llm *llm;
    int32_t ids[N_IDS];
} engine;

static void open_engine(engine *e, const char *name)
{
    pome_error err = {0};
    pome_llm_opts opts;
    char path[512];
    snprintf(path, sizeof path, GOLDEN "%s", name);
    pome_llm_opts_default(&opts);
    opts.block = BLOCK;
    if (pome_model_set_open(&e->set, path, NULL, &err) || pome_llm_open_set(&e->llm, e->set, &opts, &err))
        fail_msg("%s: %s", name, err.message);
    assert_in_range(pome_llm_n_vocab(e->llm), 1, VOCAB_MAX);
    for (int i = 0; i < N_IDS; i++)
        e->ids[i] = (int32_t)((17 * i + 3) % pome_llm_n_vocab(e->llm));
}

static pome_llm_session *new_session(const engine *e)
{
    pome_llm_session *s = NULL;
    pome_error err = {0};
    if (pome_llm_session_create(&s, e->llm, &err))
        fail_msg("%s", err.message);
    return s;
}

static const float *feed(pome_llm_session *s, const int32_t *ids, int64_t n)
{
    const float *logits = NULL;
    pome_error err = {0};
    if (pome_llm_session_feed(s, ids, n, &logits, &err))
        fail_msg("%s", err.message);
    return logits;
}

/* Feeds the first ids, then stops the feed of all at its n-th step; false if it has no so many. */
static bool stops_at(const engine *e, int n, bool by_poll, const float *want)
{
    pome_llm_session *s = new_session(e);
    counter c = {.n_until = n, .session = by_poll ? NULL : s};
    const float *logits = NULL;
    pome_error err = {0};
    feed(s, e->ids, N_BEFORE);
    pome_llm_session_poll(s, count, &c);
    pome_status status = pome_llm_session_feed(s, e->ids, N_IDS, &logits, &err);
    bool is_stopped = c.n_asked >= n;
    if (is_stopped && status == POME_OK) /* asked at the last step: the next feed notices */
        assert_true(!by_poll && c.n_asked == n);
    else if (is_stopped)
        assert_int_equal(status, POME_ERR_CANCELLED);
    pome_llm_session_poll(s, NULL, NULL);
    if (is_stopped && status == POME_OK)
        assert_int_equal(pome_llm_session_append(s, e->ids, 1, &logits, &err), POME_ERR_CANCELLED);
    int64_t n_left = pome_llm_session_n_tokens(s); /* what it says it has must be there */
    assert_in_range(n_left, 0, N_IDS);
    if (n_left > 0 && n_left < N_IDS && n % 3 > 0)
        assert_int_equal(pome_llm_session_append(s, e->ids + n_left, N_IDS - n_left, &logits, &err), POME_OK);
    else
        logits = feed(s, e->ids, N_IDS);
    assert_memory_equal(logits, want, (size_t)pome_llm_n_vocab(e->llm) * sizeof *want);
    pome_llm_session_destroy(&s);
    return is_stopped;
}

static void test_sessions_go_on_after_a_stop(void **state)
{
    (void)state;
    static const char *const names[] = {
        "apple/int4-block32.mlpackage", "snake/shift-fp16.mlpackage", "explicit-kv/static-int4.mlpackage",
        "nocache/scores-range-fp32-tied.mlpackage", "chunks-lut4-split", "contracts/anemll", "contracts/coreml-llm-caches",
        "contracts/coreml-llm-sliding",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        static float want[VOCAB_MAX];
        engine e;
        open_engine(&e, names[i]);
        pome_llm_session *untouched = new_session(&e);
        feed(untouched, e.ids, N_BEFORE);
        memcpy(want, feed(untouched, e.ids, N_IDS), (size_t)pome_llm_n_vocab(e.llm) * sizeof *want);
        pome_llm_session_destroy(&untouched);
        int n = 1, n_stops = 0;
        for (; stops_at(&e, n, n % 2 == 0, want); n += 1 + n / 8)
            n_stops++;
        if (n_stops < 8)
            fail_msg("%s: stopped at %d places only", names[i], n_stops);
        pome_llm_close(&e.llm);
        pome_model_set_close(&e.set);
    }
}

/* What a poll answers is heard: an answer that is complete without running anything asks it nothing. */
static void test_no_answer_of_a_poll_is_lost(void **state)
{
    (void)state;
    engine e;
    counter c = {.n_until = 1};
    pome_error err = {0};
    pome_generate_opts opts;
    pome_generate_result result;
    pome_sampler *sampler = NULL;
    open_engine(&e, "apple/int4-block32.mlpackage");
    pome_llm_session *s = new_session(&e);
    pome_generate_opts_default(&opts);
    assert_int_equal(pome_sampler_create(&sampler, NULL, pome_llm_n_vocab(e.llm), &err), POME_OK);
    feed(s, e.ids, N_IDS);
    pome_llm_session_poll(s, count, &c);
    opts.max_new_tokens = 0;
    assert_int_equal(pome_generate(s, sampler, e.ids, N_IDS, &opts, &result, &err), POME_OK);
    assert_int_equal(c.n_asked, 0);
    opts.max_new_tokens = 3; /* the poll says so before the first step of the second token */
    assert_int_equal(pome_generate(s, sampler, e.ids, N_IDS, &opts, &result, &err), POME_OK);
    assert_int_equal(result.finish, POME_FINISH_CANCELLED);
    pome_sampler_destroy(&sampler);
    pome_llm_session_destroy(&s);
    pome_llm_close(&e.llm);
    pome_model_set_close(&e.set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_another_thread_stops_a_prediction),
        cmocka_unit_test(test_a_poll_stops_a_prediction),
        cmocka_unit_test(test_sessions_go_on_after_a_stop),
        cmocka_unit_test(test_no_answer_of_a_poll_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
