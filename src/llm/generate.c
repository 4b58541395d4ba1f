#include "pome/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "llm/session.h"

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
    int64_t n_history, n_context;
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

/* One new id. *is_done: result->finish is set. */
/* A sampler passes over what is not finite, so a fault in some logits alone would go unseen. -inf bans a token. */
static pome_status check_logits(const generator *g, const float *logits, int64_t n_vocab, pome_error *err)
{
    for (int64_t i = 0; i < n_vocab; i++)
        if (!(logits[i] < INFINITY))
            return pome_fail(err, POME_ERR_UNSUPPORTED, "the logit of token %lld after %lld tokens is %s", (long long)i,
                             (long long)g->n_history, isnan(logits[i]) ? "NaN" : "infinite");
    return POME_OK;
}

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
    POME_TRY(check_logits(g, *logits, pome_llm_n_vocab(pome_llm_session_engine(g->session)), err));
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
    return pome_llm_session_append(g->session, &id, 1, logits, err);
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
    while (status == POME_OK && !is_done)
        status = step(g, sampler, &logits, result, &is_done, err);
    if (status == POME_ERR_CANCELLED) {
        result->finish = POME_FINISH_CANCELLED;
        status = POME_OK;
    }
    if (status == POME_OK)
        status = finish_text(g, result, err);
    result->decode_s = now_s() - start - result->prompt_s;
    return status;
}

pome_status pome_generate(pome_llm_session *session, pome_sampler *sampler, const int32_t *prompt, int64_t n_prompt,
                          const pome_generate_opts *opts, pome_generate_result *result, pome_error *err)
{
    generator g = {.session = session, .opts = opts, .n_history = n_prompt};
    pome_generate_result made = {.n_prompt = n_prompt};
    g.n_context = pome_llm_n_context(pome_llm_session_engine(session));
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
    pome_llm_session_take_cancel(session); /* one that came too late must not stop the next answer */
    pome_text_stream_destroy(&g.stream);
    free(g.held.data);
    free(g.history);
    if (status == POME_OK)
        *result = made;
    return status;
}
