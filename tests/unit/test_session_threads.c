/* Several sessions over one model at the same time: each on its own thread, all sharing weights, plans and the pool.
 * Meant for ThreadSanitizer; results must be those of a session alone, bit for bit. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pome/llm.h"

enum { N_SESSIONS = 4, N_PROMPT = 9, N_STEPS = 12, N_VOCAB = 512 };

#define MODEL POME_SOURCE_DIR "/tests/golden/apple/int4-block32.mlpackage"

typedef struct job {
    pome_llm *llm;
    int32_t first;
    pome_status status;
    pome_error err;
    float logits[N_VOCAB];
    int32_t ids[N_PROMPT + N_STEPS];
} job;

static int32_t largest(const float *x)
{
    int32_t best = 0;
    for (int32_t i = 1; i < N_VOCAB; i++)
        best = x[i] > x[best] ? i : best;
    return best;
}

static pome_status generate(job *j)
{
    pome_llm_session *s;
    const float *logits;
    pome_status status = pome_llm_session_create(&s, j->llm, &j->err);
    if (status != POME_OK)
        return status;
    for (int i = 0; i < N_PROMPT; i++)
        j->ids[i] = (j->first + i * 29) % N_VOCAB;
    status = pome_llm_session_feed(s, j->ids, N_PROMPT, &logits, &j->err);
    for (int i = 0; status == POME_OK && i < N_STEPS; i++) {
        j->ids[N_PROMPT + i] = largest(logits);
        status = pome_llm_session_append(s, &j->ids[N_PROMPT + i], 1, &logits, &j->err);
    }
    if (status == POME_OK)
        memcpy(j->logits, logits, sizeof j->logits);
    pome_llm_session_destroy(&s);
    return status;
}

static void *thread_main(void *arg)
{
    job *j = arg;
    j->status = generate(j);
    return NULL;
}

static void open_llm(pome_model **model, pome_llm **llm, int n_threads)
{
    pome_error err = {0};
    pome_model_opts opts;
    pome_model_opts_default(&opts);
    opts.n_threads = n_threads;
    if (pome_model_open(model, MODEL, &opts, &err) || pome_llm_open(llm, *model, NULL, &err))
        fail_msg("%s", err.message);
    assert_int_equal(pome_llm_n_vocab(*llm), N_VOCAB);
}

static void test_sessions_side_by_side(void **unused)
{
    (void)unused;
    static job alone[N_SESSIONS], together[N_SESSIONS];
    pthread_t threads[N_SESSIONS];
    pome_model *model;
    pome_llm *llm;
    open_llm(&model, &llm, 1);
    for (int i = 0; i < N_SESSIONS; i++) {
        alone[i] = (job){.llm = llm, .first = i * 100};
        assert_int_equal(generate(&alone[i]), POME_OK);
    }
    pome_llm_close(&llm);
    pome_model_close(&model);
    open_llm(&model, &llm, 3);
    for (int i = 0; i < N_SESSIONS; i++) {
        together[i] = (job){.llm = llm, .first = i * 100};
        assert_int_equal(pthread_create(&threads[i], NULL, thread_main, &together[i]), 0);
    }
    for (int i = 0; i < N_SESSIONS; i++) {
        pthread_join(threads[i], NULL);
        if (together[i].status != POME_OK)
            fail_msg("%s", together[i].err.message);
        assert_memory_equal(together[i].ids, alone[i].ids, sizeof alone[i].ids);
        assert_memory_equal(together[i].logits, alone[i].logits, sizeof alone[i].logits);
    }
    assert_memory_not_equal(alone[0].logits, alone[1].logits, sizeof alone[0].logits);
    pome_llm_close(&llm);
    pome_model_close(&model);
}

/* ---- cancelling from another thread ---- */

typedef struct canceller {
    pome_llm_session *session;
    atomic_int n_started; /* feeds that are on their way */
    atomic_bool is_over;
} canceller;

static void *cancel_main(void *arg)
{
    canceller *c = arg;
    for (int seen = 0; !atomic_load(&c->is_over);) {
        int now = atomic_load(&c->n_started);
        if (now != seen) {
            pome_llm_session_cancel(c->session);
            seen = now;
        }
        sched_yield();
    }
    return NULL;
}

/* Feeds until one is stopped. What a stopped feed left is of use, and wrong in nothing: afterwards the same ids give the
 * same logits. */
static void test_cancel_from_another_thread(void **unused)
{
    (void)unused;
    static float expected[N_VOCAB];
    int32_t ids[N_PROMPT];
    const float *logits;
    pome_error err = {0};
    pome_model *model;
    pome_llm *llm;
    open_llm(&model, &llm, 2);
    canceller c = {0};
    assert_int_equal(pome_llm_session_create(&c.session, llm, &err), POME_OK);
    for (int i = 0; i < N_PROMPT; i++)
        ids[i] = i * 29 % N_VOCAB;
    assert_int_equal(pome_llm_session_feed(c.session, ids, N_PROMPT, &logits, &err), POME_OK);
    memcpy(expected, logits, sizeof expected);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, cancel_main, &c), 0);
    int n_stopped = 0;
    for (int i = 0; i < 20000 && n_stopped < 20; i++) {
        pome_llm_session_clear(c.session);
        atomic_fetch_add(&c.n_started, 1);
        for (int k = 0; k < N_PROMPT; k++) { /* one by one: each looks for it first */
            pome_status status = pome_llm_session_append(c.session, &ids[k], 1, &logits, &err);
            if (status == POME_OK)
                continue;
            assert_int_equal(status, POME_ERR_CANCELLED);
            assert_int_equal(pome_llm_session_n_tokens(c.session), k);
            n_stopped++;
            break;
        }
    }
    atomic_store(&c.is_over, true);
    pthread_join(thread, NULL);
    assert_int_equal(n_stopped, 20);
    pome_status status = pome_llm_session_feed(c.session, ids, N_PROMPT, &logits, &err);
    if (status == POME_ERR_CANCELLED) /* one that came after the last */
        status = pome_llm_session_feed(c.session, ids, N_PROMPT, &logits, &err);
    assert_int_equal(status, POME_OK);
    assert_memory_equal(logits, expected, sizeof expected);
    pome_llm_session_destroy(&c.session);
    pome_llm_close(&llm);
    pome_model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sessions_side_by_side),
                                       cmocka_unit_test(test_cancel_from_another_thread)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
