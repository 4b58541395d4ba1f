#include "pome/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "llm/session.h"
#include "llm/speculate.h"

/* Text that may be the begin of a stop string, and the whole that the sink has not seen. */
typedef struct held_text {
    char *data;
    size_t len, size;
} held_text;

typedef struct generator {
    pome_llm_session *session;
    const pome_generate_opts *opts;
    pome_text_stream *stream; /* NULL without a tokenizer */
    held_text held;
    int32_t *history; /* [n_context]: the timeline */
    int64_t n_history, n_context, n_vocab;
    /* Speculation: the last pass took its first token and n_draft drafted ones. */
    pome_drafter *drafter;
    bool is_bold;                /* see pome_generate_with_drafter */
    pome_speculator *speculator; /* NULL: plain steps */
    int32_t *pass;               /* [1 + opts->speculate] */
    int64_t n_draft, at_row;     /* at_row: the row that was picked from last */
    const float *rows;           /* [1 + n_draft, n_vocab] */
    double pass_s;
} generator;

void pome_generate_opts_default(pome_generate_opts *opts)
{
    *opts = (pome_generate_opts){.size = sizeof *opts, .max_new_tokens = 128};
}

const char *pome_finish_name(pome_finish finish)
{
    static const char *const names[] = {"length", "context", "eos", "stop", "cancelled"};
    return (size_t)finish < sizeof names / sizeof names[0] ? names[finish] : "unknown";
}

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool is_eos(const generator *g, int32_t id)
{
    const pome_generate_opts *o = g->opts;
    if (o->ignore_eos)
        return false;
    for (size_t i = 0; i < o->n_eos; i++)
        if (o->eos[i] == id)
            return true;
    size_t n = 0;
    const int32_t *eos = o->tokenizer ? pome_tokenizer_eos(o->tokenizer, &n) : NULL;
    for (size_t i = 0; i < n; i++)
        if (eos[i] == id)
            return true;
    return false;
}

static bool tell(const generator *g, int32_t id, const char *text, size_t len)
{
    return !g->opts->sink || g->opts->sink(g->opts->sink_arg, id, text, len);
}

static pome_status hold(held_text *held, const char *text, size_t len, pome_error *err)
{
    if (len > held->size - held->len) {
        size_t size = 2 * held->size + len;
        char *data = realloc(held->data, size);
        if (!data)
            return pome_fail_nomem(err, size, "text");
        held->data = data;
        held->size = size;
    }
    if (len > 0)
        memcpy(held->data + held->len, text, len);
    held->len += len;
    return POME_OK;
}

/* The first place where a stop string begins in the held text, or its length. *is_whole: the string is complete
 * there; else the text ends before it does. */
static size_t find_stop(const generator *g, bool *is_whole)
{
    const held_text *h = &g->held;
    *is_whole = false;
    for (size_t at = 0; at < h->len; at++) {
        bool may_follow = false;
        for (size_t i = 0; i < g->opts->n_stop; i++) {
            size_t len = strlen(g->opts->stop[i]), left = h->len - at;
            if (len == 0 || memcmp(h->data + at, g->opts->stop[i], len < left ? len : left) != 0)
                continue;
            if (len <= left) {
                *is_whole = true;
                return at;
            }
            may_follow = true;
        }
        if (may_follow)
            return at;
    }
    return h->len;
}

/* Adds the text of `id` and gives the sink what can be no part of a stop string. */
static pome_status push_text(generator *g, int32_t id, bool *goes_on, bool *is_stopped, pome_error *err)
{
    const char *text = NULL;
    size_t len = 0;
    if (!g->stream) {
        *goes_on = tell(g, id, "", 0);
        return POME_OK;
    }
    POME_TRY(pome_text_stream_push(g->stream, id, &text, &len, err));
    POME_TRY(hold(&g->held, text, len, err));
    size_t n = find_stop(g, is_stopped);
    *goes_on = tell(g, id, g->held.data ? g->held.data : "", n);
    g->held.len -= n;
    if (g->held.len > 0)
        memmove(g->held.data, g->held.data + n, g->held.len);
    return POME_OK;
}

static pome_status finish_text(generator *g, pome_generate_result *result, pome_error *err)
{
    const char *text = NULL;
    size_t len = 0;
    if (!g->stream || result->finish == POME_FINISH_STOP)
        return POME_OK;
    POME_TRY(pome_text_stream_finish(g->stream, &text, &len, err));
    POME_TRY(hold(&g->held, text, len, err));
    bool is_stopped = false;
    size_t n = find_stop(g, &is_stopped);
    if (is_stopped)
        result->finish = POME_FINISH_STOP;
    else
        n = g->held.len; /* no more text comes: what began like a stop string is none */
    if (n > 0 && !tell(g, -1, g->held.data, n))
        result->finish = POME_FINISH_CANCELLED;
    return POME_OK;
}

/* A sampler passes over what is not finite, so a fault in some logits alone would go unseen. -inf bans a token. */
static pome_status check_logits(const generator *g, const float *logits, int64_t n_vocab, pome_error *err)
{
    for (int64_t i = 0; i < n_vocab; i++)
        if (!(logits[i] < INFINITY))
            return pome_fail(err, POME_ERR_UNSUPPORTED, "the logit of token %lld after %lld tokens is %s", (long long)i,
                             (long long)g->n_history, isnan(logits[i]) ? "NaN" : "infinite");
    return POME_OK;
}

/* Tells the speculator how the last pass did. is_over: the answer ended on its current row. */
static void settle_pass(generator *g, bool is_over)
{
    int64_t n_seen = g->at_row < g->n_draft && !is_over ? g->at_row + 1 : g->at_row;
    if (g->pass_s > 0.0)
        pome_speculator_learn(g->speculator, g->pass_s, g->at_row, n_seen);
    g->pass_s = 0.0;
}

/* Logits after `id`, the last of the history, from a pass that also verifies what is likely to follow. */
static pome_status speculate(generator *g, int32_t id, const float **logits, pome_generate_result *result,
                             pome_error *err)
{
    const int32_t *draft = NULL;
    int64_t n_left = g->opts->max_new_tokens < 0 ? INT64_MAX : g->opts->max_new_tokens - result->n_new;
    int64_t n_max = g->opts->speculate < n_left - 1 ? g->opts->speculate : n_left - 1;
    settle_pass(g, false);
    POME_TRY(pome_llm_session_rewind(g->session, g->n_history - 1, err));
    n_max = pome_llm_session_max_draft(g->session, 1 + n_max) - 1;
    POME_TRY(pome_speculator_draft(g->speculator, g->history, g->n_history, n_max, &draft, &g->n_draft, err));
    g->pass[0] = id;
    if (g->n_draft > 0)
        memcpy(g->pass + 1, draft, (size_t)g->n_draft * sizeof *draft);
    g->at_row = 0;
    result->n_drafted += g->n_draft;
    double start = now_s();
    if (g->n_draft > 0)
        POME_TRY(pome_llm_session_append_rows(g->session, g->pass, 1 + g->n_draft, 1 + g->n_draft, &g->rows, err));
    else
        POME_TRY(pome_llm_session_append(g->session, g->pass, 1, &g->rows, err));
    g->pass_s = now_s() - start;
    *logits = g->rows;
    return POME_OK;
}

static pome_status feed_id(generator *g, int32_t id, const float **logits, pome_generate_result *result, pome_error *err)
{
    if (g->speculator && g->at_row < g->n_draft && g->pass[1 + g->at_row] == id) {
        g->at_row++;
        result->n_accepted++;
        *logits = g->rows + g->at_row * g->n_vocab;
        return POME_OK;
    }
    result->n_passes++;
    if (g->speculator)
        return speculate(g, id, logits, result, err);
    return pome_llm_session_append(g->session, &id, 1, logits, err);
}

/* One new id. *is_done: result->finish is set. */
static pome_status step(generator *g, pome_sampler *sampler, const float **logits, pome_generate_result *result,
                        bool *is_done, pome_error *err)
{
    bool goes_on = true, is_stopped = false;
    int64_t max_new = g->opts->max_new_tokens;
    *is_done = true;
    if (max_new >= 0 && result->n_new >= max_new) {
        result->finish = POME_FINISH_LENGTH;
        return POME_OK;
    }
    POME_TRY(check_logits(g, *logits, g->n_vocab, err));
    int32_t id = pome_sampler_pick(sampler, *logits, g->history, g->n_history);
    if (id < 0)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "no logit after %lld tokens is finite", (long long)g->n_history);
    result->n_new++;
    if (is_eos(g, id)) {
        result->finish = tell(g, id, "", 0) ? POME_FINISH_EOS : POME_FINISH_CANCELLED;
        return POME_OK;
    }
    POME_TRY(push_text(g, id, &goes_on, &is_stopped, err));
    if (is_stopped || !goes_on) {
        result->finish = is_stopped ? POME_FINISH_STOP : POME_FINISH_CANCELLED;
        return POME_OK;
    }
    if (result->n_new == max_new) {
        result->finish = POME_FINISH_LENGTH;
        return POME_OK;
    }
    if (g->n_history >= g->n_context) {
        result->finish = POME_FINISH_CONTEXT;
        return POME_OK;
    }
    g->history[g->n_history++] = id;
    *is_done = false;
    return feed_id(g, id, logits, result, err);
}

/* After the prompt, when it is known how the cache works. */
static pome_status start_speculation(generator *g, pome_generate_result *result, pome_error *err)
{
    int64_t n = g->opts->speculate;
    if (n == 0)
        return POME_OK;
    if (!pome_llm_session_can_rewind(g->session)) {
        result->not_speculated = g->n_history > 1 ? "the model's cache cannot go back" : "the prompt is one token";
        return POME_OK;
    }
    n = n < g->n_context - 1 ? n : g->n_context - 1;
    POME_TRY(pome_llm_session_reserve_rows(g->session, 1 + n, err));
    g->pass = malloc((size_t)(1 + n) * sizeof *g->pass);
    if (!g->pass)
        return pome_fail_nomem(err, (size_t)(1 + n) * sizeof *g->pass, "speculation");
    return pome_speculator_create(&g->speculator, g->drafter, n, g->is_bold, err);
}

static void stop_speculation(generator *g)
{
    if (g->speculator && pome_llm_session_n_tokens(g->session) > g->n_history) /* drafts that nobody asked about */
        (void)!pome_llm_session_rewind(g->session, g->n_history, NULL);
    pome_speculator_destroy(&g->speculator);
    free(g->pass);
}

static pome_status run(generator *g, pome_sampler *sampler, const int32_t *prompt, int64_t n_prompt,
                       pome_generate_result *result, pome_error *err)
{
    const float *logits = NULL;
    double start = now_s();
    bool is_done = false;
    pome_status status = pome_llm_session_feed(g->session, prompt, n_prompt, &logits, err);
    result->n_reused = pome_llm_session_n_reused(g->session);
    result->prompt_s = now_s() - start;
    if (status == POME_OK)
        status = start_speculation(g, result, err);
    start = now_s();
    while (status == POME_OK && !is_done)
        status = step(g, sampler, &logits, result, &is_done, err);
    if (status == POME_ERR_CANCELLED) {
        result->finish = POME_FINISH_CANCELLED;
        status = POME_OK;
    }
    if (status == POME_OK)
        status = finish_text(g, result, err);
    result->decode_s = now_s() - start;
    return status;
}

pome_status pome_generate_with_drafter(pome_llm_session *session, pome_sampler *sampler, const int32_t *prompt,
                                       int64_t n_prompt, const pome_generate_opts *opts, pome_drafter *drafter,
                                       bool is_bold, pome_generate_result *result, pome_error *err)
{
    generator g = {.session = session, .opts = opts, .n_history = n_prompt, .drafter = drafter, .is_bold = is_bold};
    pome_generate_result made = {.n_prompt = n_prompt};
    g.n_context = pome_llm_n_context(pome_llm_session_engine(session));
    g.n_vocab = pome_llm_n_vocab(pome_llm_session_engine(session));
    if (opts->speculate < 0 || opts->speculate > POME_SPECULATE_MAX)
        return pome_fail(err, POME_ERR_ARG, "drafts of %lld tokens, %d is the most", (long long)opts->speculate,
                         POME_SPECULATE_MAX);
    if (opts->n_stop > 0 && !opts->tokenizer)
        return pome_fail(err, POME_ERR_ARG, "stop strings need a tokenizer");
    if (n_prompt > g.n_context)
        return pome_fail(err, POME_ERR_LIMIT, "the prompt has %lld tokens, the context holds %lld", (long long)n_prompt,
                         (long long)g.n_context);
    if (n_prompt < 1)
        return pome_fail(err, POME_ERR_ARG, "the prompt has no tokens");
    g.history = malloc((size_t)g.n_context * sizeof *g.history);
    if (!g.history)
        return pome_fail_nomem(err, (size_t)g.n_context * sizeof *g.history, "history");
    memcpy(g.history, prompt, (size_t)n_prompt * sizeof *prompt);
    pome_status status = POME_OK;
    if (opts->tokenizer)
        status = pome_text_stream_create(&g.stream, opts->tokenizer, !opts->keep_special, err);
    if (status == POME_OK)
        status = run(&g, sampler, prompt, n_prompt, &made, err);
    stop_speculation(&g);
    pome_llm_session_forget_cancel(session); /* one that came too late must not stop the next answer */
    pome_text_stream_destroy(&g.stream);
    free(g.held.data);
    free(g.history);
    if (status == POME_OK)
        *result = made;
    return status;
}

pome_status pome_generate(pome_llm_session *session, pome_sampler *sampler, const int32_t *prompt, int64_t n_prompt,
                          const pome_generate_opts *opts, pome_generate_result *result, pome_error *err)
{
    pome_drafter *drafter = NULL;
    int64_t n_context = pome_llm_n_context(pome_llm_session_engine(session));
    if (opts->speculate > 0)
        POME_TRY(pome_ngram_drafter_create(&drafter, n_context, err));
    pome_status status =
        pome_generate_with_drafter(session, sampler, prompt, n_prompt, opts, drafter, false, result, err);
    pome_drafter_destroy(&drafter);
    return status;
}
