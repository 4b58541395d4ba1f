/* Speculation: the n-gram index against a double loop, rows of one pass against single steps, going back, and answers
 * with drafts (right, half right, wrong) against answers without. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm/draft.h"
#include "llm/session.h"
#include "llm/speculate.h"

#define GOLDEN POME_SOURCE_DIR "/tests/golden/"

/* ---- the index ---- */

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

/* Length of the longest earlier occurrence of the end of h[0..n), at most 32, and what would follow it at the latest
 * such place. */
static int64_t longest_match(const int32_t *h, int64_t n, int64_t *follows)
{
    int64_t best = 0;
    for (int64_t end = n - 2; end >= 0; end--) {
        int64_t length = 0;
        while (length < 32 && length <= end && h[end - length] == h[n - 1 - length])
            length++;
        if (length > best) {
            best = length;
            *follows = end + 1;
        }
    }
    return best;
}

static void test_index(void **state)
{
    (void)state;
    enum { N = 600, N_DRAFT = 9 };
    int32_t h[N], ids[N_DRAFT];
    uint32_t seed = 7;
    int n_found = 0;
    for (int32_t alphabet = 30; alphabet <= 120; alphabet += 30) {
        pome_drafter *d = NULL;
        assert_int_equal(pome_ngram_drafter_create(&d, N, NULL), POME_OK);
        for (int64_t n = 1; n <= N; n++) {
            h[n - 1] = (int32_t)(next(&seed) % (uint32_t)alphabet);
            if (n > 60 && next(&seed) % 3 != 0) /* copies of earlier stretches */
                h[n - 1] = h[n - 1 - 47];
            pome_draft draft = {.ids = ids};
            int64_t follows = 0, length = longest_match(h, n, &follows);
            assert_int_equal(d->propose(d, h, n, N_DRAFT, &draft, NULL), POME_OK);
            assert_int_equal(draft.n, length >= 2 ? N_DRAFT : 0);
            for (int64_t i = 0; i < draft.n; i++)
                assert_int_equal(ids[i], follows + i < n ? h[follows + i] : ids[follows + i - n]);
            n_found += draft.n > 0;
        }
        pome_drafter_destroy(&d);
        assert_null(d);
    }
    assert_true(n_found > 200);
}

static void test_index_limits(void **state)
{
    (void)state;
    pome_drafter *d = NULL;
    int32_t h[5] = {1, 2, 1, 2, 1}, ids[4] = {0};
    pome_draft draft = {.ids = ids};
    assert_int_equal(pome_ngram_drafter_create(&d, 0, NULL), POME_ERR_LIMIT);
    assert_int_equal(pome_ngram_drafter_create(&d, 4, NULL), POME_OK);
    assert_int_equal(d->propose(d, h, 2, 4, &draft, NULL), POME_OK);
    assert_int_equal(draft.n, 0);
    assert_int_equal(d->propose(d, h, 4, 4, &draft, NULL), POME_OK);
    assert_int_equal(draft.n, 4); /* a loop goes on */
    assert_memory_equal(ids, ((int32_t[]){1, 2, 1, 2}), sizeof ids);
    assert_int_equal(d->propose(d, h, 5, 4, &draft, NULL), POME_ERR_LIMIT);
    pome_drafter_destroy(&d);
}

/* ---- sessions ---- */

typedef struct engine {
    pome_model *model;
    pome_llm *llm;
    pome_llm_session *session;
    int64_t n_vocab, n_context;
} engine;

static void open_engine(engine *e, const char *name)
{
    char path[512];
    pome_error err = {0};
    pome_model_opts opts;
    pome_model_opts_default(&opts);
    opts.n_threads = 1;
    snprintf(path, sizeof path, GOLDEN "%s.mlpackage", name);
    if (pome_model_open(&e->model, path, &opts, &err) || pome_llm_open(&e->llm, e->model, NULL, &err) ||
        pome_llm_session_create(&e->session, e->llm, &err))
        fail_msg("%s", err.message);
    e->n_vocab = pome_llm_n_vocab(e->llm);
    e->n_context = pome_llm_n_context(e->llm);
}

static void close_engine(engine *e)
{
    pome_llm_session_destroy(&e->session);
    pome_llm_close(&e->llm);
    pome_model_close(&e->model);
}

static const char *const packages[] = {"apple/int4-block32", "enumerated/stateful-int4",
                                       "nocache/scores-range-fp32-tied"};
enum { N_PACKAGES = sizeof packages / sizeof packages[0], N_PROMPT = 12 };

static void fill_prompt(int32_t *ids, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)((i * 37 + 11) % 512);
}

static const float *append(engine *e, const int32_t *ids, int64_t n)
{
    const float *logits = NULL;
    pome_error err = {0};
    if (pome_llm_session_append(e->session, ids, n, &logits, &err))
        fail_msg("%s", err.message);
    return logits;
}

/* Logits of all 24 rows, from single steps. */
static float *single_steps(engine *e, const int32_t *ids, int64_t n)
{
    float *rows = malloc((size_t)(n * e->n_vocab) * sizeof *rows);
    for (int64_t i = 0; i < n; i++)
        memcpy(rows + i * e->n_vocab, append(e, ids + i, 1), (size_t)e->n_vocab * sizeof *rows);
    return rows;
}

static void assert_close(const float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++) /* the logits' standard deviation is about 8.5 */
        assert_true(fabsf(a[i] - b[i]) < 0.0085f || a[i] == b[i]);
}

static void test_rows_of_a_pass(void **state)
{
    (void)state;
    for (int p = 0; p < N_PACKAGES; p++) {
        engine e;
        int32_t ids[24];
        const float *rows = NULL;
        open_engine(&e, packages[p]);
        fill_prompt(ids, 24);
        float *want = single_steps(&e, ids, 24);
        pome_llm_session_clear(e.session);
        append(&e, ids, 10);
        assert_int_equal(pome_llm_session_append_rows(e.session, ids + 10, 14, 5, &rows, NULL), POME_OK);
        assert_close(rows, want + 19 * e.n_vocab, 5 * e.n_vocab);
        assert_int_equal(pome_llm_session_n_tokens(e.session), 24);
        assert_int_equal(pome_llm_session_append_rows(e.session, ids, 2, 3, &rows, NULL), POME_ERR_ARG);
        assert_int_equal(pome_llm_session_append_rows(e.session, ids, 2, 0, &rows, NULL), POME_ERR_ARG);
        free(want);
        close_engine(&e);
    }
}

/* What was written past the point of return must not be seen. */
static void test_rewind(void **state)
{
    (void)state;
    for (int p = 0; p < N_PACKAGES; p++) {
        engine e;
        int32_t ids[24], other[6] = {400, 3, 77, 510, 9, 250};
        const float *rows = NULL;
        open_engine(&e, packages[p]);
        fill_prompt(ids, 24);
        float *want = single_steps(&e, ids, 24);
        pome_llm_session_clear(e.session);
        append(&e, ids, 14);
        append(&e, other, 6);
        assert_true(pome_llm_session_can_rewind(e.session));
        assert_int_equal(pome_llm_session_rewind(e.session, 21, NULL), POME_ERR_ARG);
        assert_int_equal(pome_llm_session_rewind(e.session, 14, NULL), POME_OK);
        assert_int_equal(pome_llm_session_n_tokens(e.session), 14);
        assert_int_equal(pome_llm_session_append_rows(e.session, ids + 14, 4, 4, &rows, NULL), POME_OK);
        assert_close(rows, want + 14 * e.n_vocab, 4 * e.n_vocab);
        assert_int_equal(pome_llm_session_rewind(e.session, 0, NULL), POME_OK);
        assert_int_equal(pome_llm_session_append_rows(e.session, ids, 3, 3, &rows, NULL), POME_OK);
        assert_close(rows, want, 3 * e.n_vocab);
        free(want);
        close_engine(&e);
    }
}

static void test_a_moving_cache_cannot_go_back(void **state)
{
    (void)state;
    engine e;
    int32_t ids[10];
    open_engine(&e, "snake/shift-fp16");
    fill_prompt(ids, 10);
    append(&e, ids, 10);
    pome_error err = {0};
    assert_false(pome_llm_session_can_rewind(e.session));
    assert_int_equal(pome_llm_session_rewind(e.session, 9, &err), POME_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "cannot go back"));
    assert_int_equal(pome_llm_session_max_draft(e.session, 8), 1);
    assert_int_equal(pome_llm_session_n_tokens(e.session), 10);
    close_engine(&e);
}

/* ---- answers ---- */

typedef struct seen {
    int32_t ids[160];
    int n, n_stop; /* n_stop: the sink ends the answer there; 0: never */
} seen;

static bool look(void *arg, int32_t id, const char *text, size_t len)
{
    seen *s = arg;
    (void)text;
    (void)len;
    s->ids[s->n++] = id;
    return s->n != s->n_stop;
}

/* Knows the whole timeline beforehand and says it, every `every`-th token wrong. */
typedef struct script {
    pome_drafter base;
    int32_t timeline[200];
    int64_t n, every, n_calls;
    int32_t n_vocab;
} script;

static pome_status say(pome_drafter *base, const int32_t *history, int64_t n, int64_t n_max, pome_draft *draft,
                       pome_error *err)
{
    script *s = (script *)base;
    (void)err;
    s->n_calls++;
    assert_memory_equal(history, s->timeline, (size_t)n * sizeof *history);
    draft->class = 0;
    for (draft->n = 0; draft->n < n_max && n + draft->n < s->n; draft->n++) {
        int64_t at = n + draft->n;
        draft->ids[draft->n] = (s->timeline[at] + (s->every > 0 && at % s->every == 0)) % s->n_vocab;
    }
    return POME_OK;
}

static pome_generate_result answer(engine *e, float temperature, uint64_t seed, pome_generate_opts *opts, seen *s,
                                   pome_drafter *drafter)
{
    int32_t prompt[N_PROMPT];
    pome_sampler_opts sampling;
    pome_sampler *sampler = NULL;
    pome_generate_result r;
    pome_error err = {0};
    pome_sampler_opts_default(&sampling);
    sampling.temperature = temperature;
    sampling.top_k = 0;
    sampling.top_p = 1;
    sampling.repeat_penalty = temperature > 1 ? 1.3f : 1.0f;
    sampling.seed = seed;
    fill_prompt(prompt, N_PROMPT);
    opts->sink = look;
    opts->sink_arg = s;
    s->n = 0;
    assert_int_equal(pome_sampler_create(&sampler, &sampling, e->n_vocab, &err), POME_OK);
    pome_status status = drafter ? pome_generate_with_drafter(e->session, sampler, prompt, N_PROMPT, opts, drafter,
                                                              true, &r, &err)
                                 : pome_generate(e->session, sampler, prompt, N_PROMPT, opts, &r, &err);
    if (status != POME_OK)
        fail_msg("%s", err.message);
    pome_sampler_destroy(&sampler);
    return r;
}

/* All that may end an answer, with drafts of all kinds: the same ids, the same end, the same timeline left behind. */
static void check_answer(engine *e, float temperature, pome_generate_opts opts, int n_stop)
{
    static const int64_t lengths[] = {1, 1, 3, 16, 16, POME_SPECULATE_MAX}, wrong[] = {0, 1, 2, 0, 5, 7};
    seen plain = {.n_stop = n_stop}, s = {.n_stop = n_stop};
    script d = {.base = {say, NULL}, .n_vocab = (int32_t)e->n_vocab};
    pome_generate_result want = answer(e, temperature, 5, &opts, &plain, NULL);
    int64_t n_left = pome_llm_session_n_tokens(e->session);
    fill_prompt(d.timeline, N_PROMPT);
    memcpy(d.timeline + N_PROMPT, plain.ids, (size_t)plain.n * sizeof *plain.ids);
    d.n = N_PROMPT + plain.n;
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        opts.speculate = lengths[i];
        d.every = wrong[i];
        pome_llm_session_clear(e->session);
        pome_generate_result r = answer(e, temperature, 5, &opts, &s, &d.base);
        assert_null(r.not_speculated);
        assert_int_equal(s.n, plain.n);
        assert_memory_equal(s.ids, plain.ids, (size_t)s.n * sizeof *s.ids);
        assert_int_equal(r.finish, want.finish);
        assert_int_equal(r.n_new, want.n_new);
        assert_int_equal(pome_llm_session_n_tokens(e->session), n_left);
        assert_int_equal(r.n_passes + r.n_accepted, want.n_passes);
        if (wrong[i] == 1)
            assert_int_equal(r.n_accepted, 0);
        if (wrong[i] == 0 && lengths[i] == 16) /* long enough for a listed length to be worth it */
            assert_true(r.n_accepted > 0 && r.n_accepted <= r.n_drafted);
    }
}

static void test_answers_are_the_same(void **state)
{
    (void)state;
    for (int p = 0; p < N_PACKAGES; p++)
        for (int t = 0; t < 2; t++) {
            engine e;
            pome_generate_opts opts;
            float temperature = t == 0 ? 0.0f : 4.0f;
            open_engine(&e, packages[p]);
            pome_generate_opts_default(&opts);
            opts.max_new_tokens = 30;
            check_answer(&e, temperature, opts, 0);
            check_answer(&e, temperature, opts, 17);
            opts.max_new_tokens = -1;
            if (p < 2)
                check_answer(&e, temperature, opts, 0); /* to the end of the context */
            close_engine(&e);
        }
}

static void test_eos_inside_a_draft(void **state)
{
    (void)state;
    engine e;
    seen s = {.n = 0};
    pome_generate_opts opts;
    open_engine(&e, packages[0]);
    pome_generate_opts_default(&opts);
    answer(&e, 1.0f, 5, &opts, &s, NULL);
    opts.eos = &s.ids[9];
    opts.n_eos = 1;
    int32_t eos = s.ids[9];
    opts.eos = &eos;
    check_answer(&e, 1.0f, opts, 0);
    close_engine(&e);
}

/* The next answer over the same session finds the timeline that the last one left. */
static void test_what_follows_an_answer(void **state)
{
    (void)state;
    engine e;
    seen s = {.n = 0};
    pome_generate_opts opts;
    open_engine(&e, packages[0]);
    pome_generate_opts_default(&opts);
    opts.max_new_tokens = 20;
    answer(&e, 0, 0, &opts, &s, NULL);
    script d = {.base = {say, NULL}, .n_vocab = (int32_t)e.n_vocab, .n = N_PROMPT + 20};
    fill_prompt(d.timeline, N_PROMPT);
    memcpy(d.timeline + N_PROMPT, s.ids, 20 * sizeof *s.ids);
    opts.max_new_tokens = 6;
    opts.speculate = 12;
    answer(&e, 0, 0, &opts, &s, &d.base);
    pome_sampler *sampler = NULL;
    pome_sampler_opts greedy;
    pome_generate_result r;
    pome_sampler_opts_default(&greedy);
    greedy.temperature = 0;
    assert_int_equal(pome_sampler_create(&sampler, &greedy, e.n_vocab, NULL), POME_OK);
    opts.max_new_tokens = 14;
    s.n = 0;
    assert_int_equal(pome_generate(e.session, sampler, d.timeline, N_PROMPT + 6, &opts, &r, NULL), POME_OK);
    assert_int_equal(r.n_reused, N_PROMPT + 5); /* all but the last token, which was picked and not fed */
    assert_memory_equal(s.ids, d.timeline + N_PROMPT + 6, 14 * sizeof *s.ids);
    pome_sampler_destroy(&sampler);
    close_engine(&e);
}

static void test_own_text_as_drafts(void **state)
{
    (void)state;
    for (int p = 0; p < N_PACKAGES; p++) {
        engine e;
        seen plain = {.n = 0}, s = {.n = 0};
        pome_generate_opts opts;
        open_engine(&e, packages[p]);
        pome_generate_opts_default(&opts);
        opts.max_new_tokens = 50;
        pome_generate_result want = answer(&e, 0, 0, &opts, &plain, NULL);
        opts.speculate = 8;
        pome_generate_result r = answer(&e, 0, 0, &opts, &s, NULL);
        assert_int_equal(s.n, plain.n);
        assert_memory_equal(s.ids, plain.ids, (size_t)s.n * sizeof *s.ids);
        assert_int_equal(r.n_passes + r.n_accepted, want.n_passes);
        close_engine(&e);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    engine e;
    seen plain = {.n = 0}, s = {.n = 0};
    pome_generate_opts opts;
    open_engine(&e, "snake/shift-fp16");
    pome_generate_opts_default(&opts);
    opts.max_new_tokens = 20;
    answer(&e, 0, 0, &opts, &plain, NULL);
    opts.speculate = 8;
    pome_generate_result r = answer(&e, 0, 0, &opts, &s, NULL);
    assert_non_null(r.not_speculated);
    assert_int_equal(r.n_drafted, 0);
    assert_memory_equal(s.ids, plain.ids, 20 * sizeof *s.ids);
    opts.speculate = POME_SPECULATE_MAX + 1;
    int32_t id = 1;
    assert_int_equal(pome_generate(e.session, NULL, &id, 1, &opts, &r, NULL), POME_ERR_ARG);
    close_engine(&e);
}

/* ---- how often ---- */

/* The second token of an answer, over many seeds, must have the distribution that the model gives: the sum over all
 * first tokens of the softmax after each, computed here. The draft for it always is the likeliest one. Pearson's test
 * over the tokens that are expected five times or more. */
static pome_status say_likeliest(pome_drafter *base, const int32_t *history, int64_t n, int64_t n_max,
                                 pome_draft *draft, pome_error *err)
{
    const script *s = (const script *)base;
    (void)history;
    (void)n_max;
    (void)err;
    draft->class = 0;
    draft->n = n == N_PROMPT + 1;
    draft->ids[0] = s->timeline[0];
    return POME_OK;
}

/* to[i] += weight * softmax(logits / temperature)[i] */
static void add_shares(double *to, const float *logits, int64_t n, double temperature, double weight)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += exp((double)logits[i] / temperature);
    for (int64_t i = 0; i < n; i++)
        to[i] += weight * exp((double)logits[i] / temperature) / sum;
}

static int32_t largest(const double *x, int64_t n)
{
    int32_t best = 0;
    for (int64_t i = 0; i < n; i++)
        best = x[i] > x[best] ? (int32_t)i : best;
    return best;
}

static double chi_square(const double *expected, const int *count, int64_t n, int *n_cells)
{
    double chi = 0, rest = 0, n_rest = 0;
    for (int64_t i = 0; i < n; i++) {
        if (expected[i] < 5) {
            rest += expected[i];
            n_rest += count[i];
            continue;
        }
        chi += (count[i] - expected[i]) * (count[i] - expected[i]) / expected[i];
        (*n_cells)++;
    }
    return chi + (rest > 0 ? (n_rest - rest) * (n_rest - rest) / rest : 0);
}

static void test_distribution(void **state)
{
    (void)state;
    enum { N_SEEDS = 2000 };
    const float temperature = 3.0f;
    engine e;
    int32_t prompt[N_PROMPT];
    int64_t n_drafted = 0, n_accepted = 0;
    int n_cells = 0;
    open_engine(&e, packages[0]);
    fill_prompt(prompt, N_PROMPT);
    double *first = calloc((size_t)e.n_vocab, sizeof *first), *second = calloc((size_t)e.n_vocab, sizeof *second);
    int *count = calloc((size_t)e.n_vocab, sizeof *count);
    add_shares(first, append(&e, prompt, N_PROMPT), e.n_vocab, temperature, 1.0);
    for (int32_t f = 0; f < e.n_vocab; f++) {
        assert_int_equal(pome_llm_session_rewind(e.session, N_PROMPT, NULL), POME_OK);
        add_shares(second, append(&e, &f, 1), e.n_vocab, temperature, N_SEEDS * first[f]);
    }
    script d = {.base = {say_likeliest, NULL}, .timeline = {largest(second, e.n_vocab)}};
    seen s;
    pome_sampler_opts sampling;
    pome_sampler_opts_default(&sampling);
    sampling.temperature = temperature;
    sampling.top_k = 0;
    sampling.top_p = 1;
    for (int i = 0; i < N_SEEDS; i++) {
        pome_generate_opts opts;
        pome_generate_result r;
        pome_sampler *sampler = NULL;
        pome_generate_opts_default(&opts);
        opts.max_new_tokens = 3;
        opts.speculate = 1;
        opts.sink = look;
        opts.sink_arg = &s;
        s = (seen){.n = 0};
        sampling.seed = (uint64_t)i;
        assert_int_equal(pome_sampler_create(&sampler, &sampling, e.n_vocab, NULL), POME_OK);
        assert_int_equal(pome_generate_with_drafter(e.session, sampler, prompt, N_PROMPT, &opts, &d.base, true, &r, NULL),
                         POME_OK);
        pome_sampler_destroy(&sampler);
        count[s.ids[1]]++;
        n_drafted += r.n_drafted;
        n_accepted += r.n_accepted;
    }
    assert_int_equal(n_drafted, N_SEEDS);
    assert_int_equal(n_accepted, count[d.timeline[0]]); /* right as often as the sampler picks it */
    assert_true(n_accepted > 10 && n_accepted < N_SEEDS / 2);
    double chi = chi_square(second, count, e.n_vocab, &n_cells);
    assert_true(n_cells > 20);
    assert_true(chi < n_cells + 4.5 * sqrt(2.0 * n_cells)); /* one set of seeds in 100,000 is above */
    free(first);
    free(second);
    free(count);
    close_engine(&e);
}

/* ---- how many ---- */

typedef struct stream { /* proposes n_max ids of one class */
    pome_drafter base;
    int class;
} stream;

static pome_status flow(pome_drafter *base, const int32_t *history, int64_t n, int64_t n_max, pome_draft *draft,
                        pome_error *err)
{
    (void)history;
    (void)n;
    (void)err;
    draft->n = n_max;
    draft->class = ((stream *)base)->class;
    return POME_OK;
}

/* Passes in which a drafted token is right with chance `right`, a step takes 1 s and each further row row_s; the pass
 * `hiccup` (-1: none) takes 50 s more, which do not count. Returns seconds per token. */
static double go_on(pome_speculator *s, int n, double right, double row_s, int hiccup, int64_t *n_drafted)
{
    double seconds = 0, n_tokens = 0;
    uint32_t seed = 3;
    *n_drafted = 0;
    for (int i = 0; i < n; i++) {
        const int32_t *ids = NULL;
        int64_t k = -1, good = 0;
        int32_t history[3] = {0};
        assert_int_equal(pome_speculator_draft(s, history, 3, 16, &ids, &k, NULL), POME_OK);
        while (good < k && next(&seed) % 10000 < right * 10000)
            good++;
        double pass_s = 1.0 + row_s * (double)k;
        pome_speculator_learn(s, pass_s + (i == hiccup ? 50 : 0), good, good < k ? good + 1 : k);
        seconds += pass_s;
        n_tokens += 1.0 + (double)good;
        *n_drafted += k;
    }
    return seconds / n_tokens;
}

static pome_speculator *speculator_for(stream *d, int class)
{
    pome_speculator *s = NULL;
    *d = (stream){{flow, NULL}, class};
    assert_int_equal(pome_speculator_create(&s, &d->base, 16, false, NULL), POME_OK);
    return s;
}

static double play(int n, double right, double row_s, int class, int64_t *n_drafted)
{
    stream d;
    pome_speculator *s = speculator_for(&d, class);
    double seconds = go_on(s, n, right, row_s, -1, n_drafted);
    pome_speculator_destroy(&s);
    return seconds;
}

static void test_choosing_lengths(void **state)
{
    (void)state;
    int64_t n = 0;
    for (int class = 0; class < POME_DRAFT_CLASSES; class++) {
        assert_true(play(250, 0.0, 0.1, class, &n) < 1.03); /* wrong drafts cost little, cheap or dear */
        assert_true(play(250, 0.0, 1.0, class, &n) < 1.03);
        assert_true(play(250, 0.05, 0.3, class, &n) < 1.03);
        assert_true(play(250, 0.95, 1.2, class, &n) < 1.03); /* rows dearer than steps never pay */
        assert_true(play(250, 0.95, 0.05, class, &n) < 0.35); /* at best about 0.16 */
        assert_true(play(250, 0.7, 0.05, class, &n) < 0.6);
        assert_true(n > 250);
    }
}

/* Text that stops repeating itself: what was won before is not spent, and what was right long ago is forgotten. */
static void test_text_that_changes(void **state)
{
    (void)state;
    stream d;
    int64_t n = 0;
    for (int class = 0; class < POME_DRAFT_CLASSES; class++) {
        pome_speculator *s = speculator_for(&d, class);
        assert_true(go_on(s, 2000, 0.95, 0.05, -1, &n) < 0.35 && n > 2000);
        assert_true(go_on(s, 300, 0.0, 0.05, -1, &n) < 1.1); /* 16 wrong tokens in each pass would be 1.8 */
        pome_speculator_destroy(&s);
        s = speculator_for(&d, class);
        go_on(s, 2000, 0.95, 0.5, -1, &n);
        assert_true(go_on(s, 300, 0.0, 0.5, -1, &n) < 1.1);
        pome_speculator_destroy(&s);
    }
}

/* One pass during which another program ran: neither does it make drafts look cheap, nor does it end them. */
static void test_a_hiccup(void **state)
{
    (void)state;
    stream d;
    int64_t n = 0;
    for (int class = 0; class < POME_DRAFT_CLASSES; class++)
        for (int hiccup = 0; hiccup < 12; hiccup++) {
            pome_speculator *s = speculator_for(&d, class);
            assert_true(go_on(s, 250, 0.0, 0.3, hiccup, &n) < 1.12);
            pome_speculator_destroy(&s);
            s = speculator_for(&d, class);
            assert_true(go_on(s, 250, 0.95, 0.05, hiccup, &n) < 0.5);
            pome_speculator_destroy(&s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index),
        cmocka_unit_test(test_index_limits),
        cmocka_unit_test(test_rows_of_a_pass),
        cmocka_unit_test(test_rewind),
        cmocka_unit_test(test_a_moving_cache_cannot_go_back),
        cmocka_unit_test(test_answers_are_the_same),
        cmocka_unit_test(test_eos_inside_a_draft),
        cmocka_unit_test(test_what_follows_an_answer),
        cmocka_unit_test(test_own_text_as_drafts),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_choosing_lengths),
        cmocka_unit_test(test_text_that_changes),
        cmocka_unit_test(test_a_hiccup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
