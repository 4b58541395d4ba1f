/* Sessions over the golden packages: stored logits, feeding in pieces, going back, limits, cancelling, threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npy.h"
#include "pome/generate.h"

#define GOLDEN POME_SOURCE_DIR "/tests/golden/"

typedef struct engine {
    pome_model *model;
    pome_llm *llm;
    pome_llm_session *session;
    npz stored;
    pome_tensor prompt, greedy; /* int32 [n] */
    const int32_t *ids;         /* of the prompt */
    int64_t n_prompt, n_vocab, n_context;
} engine;

static void open_engine(engine *e, const char *name, int64_t context, int64_t block)
{
    char path[512];
    pome_error err = {0};
    pome_model_opts model_opts;
    pome_llm_opts opts;
    memset(e, 0, sizeof *e);
    pome_model_opts_default(&model_opts);
    model_opts.n_threads = 1;
    pome_llm_opts_default(&opts);
    opts.context = context;
    opts.block = block;
    snprintf(path, sizeof path, GOLDEN "%s.mlpackage", name);
    if (pome_model_open(&e->model, path, &model_opts, &err) || pome_llm_open(&e->llm, e->model, &opts, &err) ||
        pome_llm_session_create(&e->session, e->llm, &err))
        fail_msg("%s", err.message);
    snprintf(path, sizeof path, GOLDEN "%s.expected.npz", name);
    if (npz_read(&e->stored, path, &err))
        fail_msg("%s", err.message);
    assert_int_equal(pome_tensor_cast(&e->prompt, npz_find(&e->stored, "prompt"), POME_DTYPE_I32, &err), POME_OK);
    assert_int_equal(pome_tensor_cast(&e->greedy, npz_find(&e->stored, "greedy"), POME_DTYPE_I32, &err), POME_OK);
    e->ids = e->prompt.data;
    e->n_prompt = e->prompt.shape[0];
    e->n_vocab = pome_llm_n_vocab(e->llm);
    e->n_context = pome_llm_n_context(e->llm);
}

static void close_engine(engine *e)
{
    pome_tensor_reset(&e->prompt);
    pome_tensor_reset(&e->greedy);
    pome_llm_session_destroy(&e->session);
    pome_llm_close(&e->llm);
    pome_model_close(&e->model);
    npz_reset(&e->stored);
}

static const float *feed(engine *e, const int32_t *ids, int64_t n)
{
    const float *logits = NULL;
    pome_error err = {0};
    if (pome_llm_session_feed(e->session, ids, n, &logits, &err))
        fail_msg("%s", err.message);
    return logits;
}

/* Largest difference between a row of logits and row `row` of a stored array. Models that give scores leave the
 * logits' offset open: both are compared from their largest. */
static double distance(const float *logits, const pome_tensor *stored, int64_t row, int64_t n_vocab)
{
    pome_tensor wide = {0};
    pome_error err = {0};
    assert_int_equal(pome_tensor_cast(&wide, stored, POME_DTYPE_F32, &err), POME_OK);
    const float *want = (const float *)wide.data + row * n_vocab;
    double worst = 0;
    float a = logits[0], b = want[0];
    for (int64_t i = 0; i < n_vocab; i++) {
        a = logits[i] > a ? logits[i] : a;
        b = want[i] > b ? want[i] : b;
    }
    for (int64_t i = 0; i < n_vocab; i++) {
        double d = fabs((double)(logits[i] - a) - (double)(want[i] - b));
        worst = d > worst || isnan(d) ? d : worst;
    }
    pome_tensor_reset(&wide);
    return worst;
}

static const char *const packages[] = {
    "apple/int4-block32",   "snake/shift-fp16",        "enumerated/stateful-int4", "nocache/layer1-logits-fixed64-lut6",
    "nocache/scores-range-fp32-tied",
};
enum { N_PACKAGES = sizeof packages / sizeof packages[0] };

/* Stored logits come from a cache in float32; rounding it to fp16 moves them by up to 0.08. */
static const double tolerance = 0.1;

static void test_stored_logits(void **state)
{
    (void)state;
    for (int p = 0; p < N_PACKAGES; p++) {
        engine e;
        int32_t ids[128];
        open_engine(&e, packages[p], 0, 0);
        memcpy(ids, e.ids, (size_t)e.n_prompt * sizeof *ids);
        const pome_tensor *prefill = npz_find(&e.stored, "prefill_logits"), *steps = npz_find(&e.stored, "step_logits");
        assert_true(distance(feed(&e, ids, e.n_prompt), prefill, e.n_prompt - 1, e.n_vocab) < tolerance);
        for (int64_t i = 0; i < steps->shape[0]; i++) {
            const float *logits = NULL;
            pome_error err = {0};
            int32_t id = ((const int32_t *)e.greedy.data)[i];
            assert_int_equal(pome_llm_session_append(e.session, &id, 1, &logits, &err), POME_OK);
            assert_true(distance(logits, steps, i, e.n_vocab) < tolerance);
            assert_int_equal(pome_llm_session_n_reused(e.session), e.n_prompt + i);
        }
        assert_int_equal(pome_llm_session_n_tokens(e.session), e.n_prompt + steps->shape[0]);
        close_engine(&e);
    }
}

static void test_all_rows(void **state)
{
    (void)state;
    for (int p = 0; p < N_PACKAGES; p++) {
        engine e;
        const float *rows = NULL;
        int64_t n_reused = -1;
        pome_error err = {0};
        open_engine(&e, packages[p], 0, 8);
        assert_int_equal(pome_llm_session_feed_all(e.session, e.ids, e.n_prompt, &rows, &n_reused, &err), POME_OK);
        assert_int_equal(n_reused, 0);
        for (int64_t i = 0; i < e.n_prompt; i++)
            assert_true(distance(rows + i * e.n_vocab, npz_find(&e.stored, "prefill_logits"), i, e.n_vocab) < tolerance);
        close_engine(&e);
    }
}

/* Any pieces give what one pass gives. The logits' standard deviation is about 8.5. */
static void test_pieces(void **state)
{
    (void)state;
    for (int p = 0; p < N_PACKAGES; p++) {
        engine e;
        open_engine(&e, packages[p], 0, 0);
        float *whole = malloc((size_t)e.n_vocab * sizeof *whole);
        memcpy(whole, feed(&e, e.ids, e.n_prompt), (size_t)e.n_vocab * sizeof *whole);
        for (int64_t piece = 1; piece <= 5; piece += 2) {
            const float *logits = NULL;
            pome_llm_session_clear(e.session);
            for (int64_t n = piece; n < e.n_prompt; n += piece)
                feed(&e, e.ids, n);
            logits = feed(&e, e.ids, e.n_prompt);
            for (int64_t i = 0; i < e.n_vocab; i++)
                assert_true(fabsf(logits[i] - whole[i]) < 0.0085f || logits[i] == whole[i]);
        }
        free(whole);
        close_engine(&e);
    }
}

/* Going back and taking another way must be as if the first way had never been. */
static void test_going_back(void **state)
{
    (void)state;
    for (int p = 0; p < N_PACKAGES; p++) {
        engine e;
        int32_t other[40];
        open_engine(&e, packages[p], 0, 0);
        int64_t n = e.n_prompt < 40 ? e.n_prompt : 40;
        memcpy(other, e.ids, (size_t)n * sizeof *other);
        for (int64_t i = n / 2; i < n; i++)
            other[i] = (other[i] + 7) % (int32_t)e.n_vocab;
        float *fresh = malloc((size_t)e.n_vocab * sizeof *fresh);
        memcpy(fresh, feed(&e, other, n), (size_t)e.n_vocab * sizeof *fresh);
        pome_llm_session_clear(e.session);
        feed(&e, e.ids, e.n_prompt);
        const float *again = feed(&e, other, n);
        for (int64_t i = 0; i < e.n_vocab; i++)
            assert_true(fabsf(again[i] - fresh[i]) < 0.0085f || again[i] == fresh[i]);
        /* A cache addressed by position keeps the common half, one that moves keeps nothing. */
        int64_t n_kept = pome_llm_session_n_reused(e.session);
        assert_int_equal(n_kept, strstr(packages[p], "shift") ? 0 : n / 2);
        feed(&e, other, n / 2); /* shorter than what is cached: at least the last token is fed */
        assert_int_equal(pome_llm_session_n_tokens(e.session), n / 2);
        free(fresh);
        close_engine(&e);
    }
}

static void test_same_ids_again(void **state)
{
    (void)state;
    engine e;
    open_engine(&e, packages[0], 0, 0);
    const float *first = feed(&e, e.ids, e.n_prompt);
    float kept = first[3];
    assert_true(feed(&e, e.ids, e.n_prompt)[3] == kept);
    assert_int_equal(pome_llm_session_n_reused(e.session), e.n_prompt);
    close_engine(&e);
}

static void test_limits(void **state)
{
    (void)state;
    for (int p = 0; p < N_PACKAGES; p++) {
        engine e;
        int32_t ids[400];
        const float *logits = NULL;
        pome_error err = {0};
        open_engine(&e, packages[p], 0, 0);
        for (int i = 0; i < 400; i++)
            ids[i] = (i * 11) % (int32_t)e.n_vocab;
        assert_int_equal(pome_llm_session_feed(e.session, ids, e.n_context + 1, &logits, &err), POME_ERR_LIMIT);
        char both[64];
        snprintf(both, sizeof both, "%d tokens do not fit the context of %d", (int)e.n_context + 1, (int)e.n_context);
        assert_string_equal(err.message, both);
        assert_int_equal(pome_llm_session_n_tokens(e.session), 0);
        feed(&e, ids, e.n_context); /* to the last row */
        assert_int_equal(pome_llm_session_append(e.session, ids, 1, &logits, &err), POME_ERR_LIMIT);
        assert_int_equal(pome_llm_session_feed(e.session, ids, 0, &logits, &err), POME_ERR_ARG);
        ids[2] = (int32_t)e.n_vocab;
        assert_int_equal(pome_llm_session_feed(e.session, ids, 5, &logits, &err), POME_ERR_ARG);
        assert_non_null(strstr(err.message, "token id 512 at position 2"));
        ids[2] = -1;
        assert_int_equal(pome_llm_session_feed(e.session, ids, 5, &logits, &err), POME_ERR_ARG);
        assert_int_equal(pome_llm_session_n_tokens(e.session), e.n_context); /* refusals change nothing */
        close_engine(&e);
    }
}

static void test_lowered_context(void **state)
{
    (void)state;
    engine e;
    pome_llm *llm = NULL;
    pome_llm_opts opts;
    pome_error err = {0};
    open_engine(&e, packages[0], 20, 0);
    assert_int_equal(e.n_context, 20);
    pome_llm_opts_default(&opts);
    opts.context = 129; /* it only lowers */
    assert_int_equal(pome_llm_open(&llm, e.model, &opts, &err), POME_ERR_LIMIT);
    opts.context = 0;
    opts.function = "nothing";
    assert_int_equal(pome_llm_open(&llm, e.model, &opts, &err), POME_ERR_ARG);
    assert_non_null(strstr(err.message, "it has: main"));
    assert_null(llm);
    close_engine(&e);
}

static void test_cancel(void **state)
{
    (void)state;
    engine e;
    const float *logits = NULL;
    pome_error err = {0};
    open_engine(&e, packages[0], 0, 4);
    pome_llm_session_cancel(e.session);
    assert_int_equal(pome_llm_session_feed(e.session, e.ids, e.n_prompt, &logits, &err), POME_ERR_CANCELLED);
    assert_int_equal(pome_llm_session_n_tokens(e.session), 0);
    feed(&e, e.ids, e.n_prompt); /* once only */
    close_engine(&e);
}

typedef struct seen {
    int32_t ids[64];
    int n;
    pome_llm_session *cancel_at_3;
} seen;

static bool look(void *arg, int32_t id, const char *text, size_t len)
{
    seen *s = arg;
    (void)text;
    assert_int_equal(len, 0); /* no tokenizer, no text */
    s->ids[s->n++] = id;
    if (s->n == 3 && s->cancel_at_3)
        pome_llm_session_cancel(s->cancel_at_3);
    return s->n < 20;
}

static pome_generate_result generate(engine *e, int64_t max_new, int32_t eos, seen *s)
{
    pome_generate_opts opts;
    pome_generate_result result;
    pome_sampler_opts greedy;
    pome_sampler *sampler = NULL;
    pome_error err = {0};
    pome_sampler_opts_default(&greedy);
    greedy.temperature = 0;
    assert_int_equal(pome_sampler_create(&sampler, &greedy, e->n_vocab, &err), POME_OK);
    pome_generate_opts_default(&opts);
    opts.max_new_tokens = max_new;
    opts.eos = &eos;
    opts.n_eos = eos >= 0;
    opts.sink = look;
    opts.sink_arg = s;
    assert_int_equal(pome_generate(e->session, sampler, e->ids, e->n_prompt, &opts, &result, &err), POME_OK);
    pome_sampler_destroy(&sampler);
    return result;
}

static void test_generate_finishes(void **state)
{
    (void)state;
    engine e;
    seen s = {.n = 0};
    open_engine(&e, packages[0], 0, 0);
    const int32_t *greedy = e.greedy.data;
    pome_generate_result r = generate(&e, 10, -1, &s);
    assert_int_equal(r.finish, POME_FINISH_LENGTH);
    assert_int_equal(r.n_new, 10);
    assert_memory_equal(s.ids, greedy, 10 * sizeof *greedy);
    s.n = 0;
    r = generate(&e, -1, -1, &s);
    assert_int_equal(r.finish, POME_FINISH_CANCELLED); /* by the sink, which wants 20 */
    assert_int_equal(r.n_new, 20);
    s.n = 0;
    int at = 0; /* the first place of what the fifth token is */
    while (greedy[at] != greedy[4])
        at++;
    r = generate(&e, -1, greedy[4], &s);
    assert_int_equal(r.finish, POME_FINISH_EOS);
    assert_int_equal(r.n_new, at + 1);
    s = (seen){.cancel_at_3 = e.session};
    r = generate(&e, 10, -1, &s);
    assert_int_equal(r.finish, POME_FINISH_CANCELLED);
    assert_int_equal(r.n_new, 3);
    s = (seen){.n = 0};
    r = generate(&e, 10, -1, &s); /* nothing of the cancelling is left */
    assert_int_equal(r.n_new, 10);
    s.n = 0;
    r = generate(&e, 0, -1, &s);
    assert_int_equal(r.finish, POME_FINISH_LENGTH);
    assert_int_equal(s.n, 0);
    close_engine(&e);
}

static void test_generate_fills_the_context(void **state)
{
    (void)state;
    engine e;
    seen s = {.n = 0};
    open_engine(&e, packages[0], 0, 0);
    int64_t n_prompt = e.n_prompt;
    close_engine(&e);
    open_engine(&e, packages[0], n_prompt + 3, 0);
    pome_generate_result r = generate(&e, -1, -1, &s);
    assert_int_equal(r.finish, POME_FINISH_CONTEXT);
    assert_int_equal(r.n_new, 4); /* three are fed, the fourth is chosen from the last row */
    close_engine(&e);
}

/* ---- sessions in threads share a model ---- */

typedef struct worker {
    pome_llm *llm;
    const int32_t *ids;
    int64_t n, n_vocab;
    float *logits;
    pome_status status;
} worker;

static void *work(void *arg)
{
    worker *w = arg;
    pome_llm_session *session = NULL;
    const float *logits = NULL;
    w->status = pome_llm_session_create(&session, w->llm, NULL);
    for (int round = 0; round < 3 && w->status == POME_OK; round++) {
        pome_llm_session_clear(session);
        w->status = pome_llm_session_feed(session, w->ids, w->n, &logits, NULL);
    }
    if (w->status == POME_OK)
        memcpy(w->logits, logits, (size_t)w->n_vocab * sizeof *logits);
    pome_llm_session_destroy(&session);
    return NULL;
}

static void test_threads_share_a_model(void **state)
{
    (void)state;
    enum { N_THREADS = 3 };
    engine e;
    worker w[N_THREADS];
    pthread_t threads[N_THREADS];
    open_engine(&e, packages[0], 0, 0);
    const float *alone = feed(&e, e.ids, e.n_prompt);
    for (int i = 0; i < N_THREADS; i++) {
        w[i] = (worker){.llm = e.llm, .ids = e.ids, .n = e.n_prompt, .n_vocab = e.n_vocab};
        w[i].logits = malloc((size_t)e.n_vocab * sizeof(float));
        assert_int_equal(pthread_create(&threads[i], NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < N_THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(w[i].status, POME_OK);
        assert_memory_equal(w[i].logits, alone, (size_t)e.n_vocab * sizeof(float));
        free(w[i].logits);
    }
    close_engine(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stored_logits),
        cmocka_unit_test(test_all_rows),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_going_back),
        cmocka_unit_test(test_same_ids_again),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_lowered_context),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_generate_finishes),
        cmocka_unit_test(test_generate_fills_the_context),
        cmocka_unit_test(test_threads_share_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
