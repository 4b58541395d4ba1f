/* Language models: an engine is a model with its contract found (which input holds the ids, which the mask,
 * where the cache lives); a session is one timeline of tokens over it.
 *
 *     pome_llm_open(&llm, model, NULL, &err);
 *     pome_llm_session_create(&s, llm, &err);
 *     pome_llm_session_feed(s, ids, n, &logits, &err);           whole prefix; what is cached is reused
 *     id = pome_sampler_pick(sampler, logits, history, n_history);
 */
#ifndef POME_LLM_H
#define POME_LLM_H

#include "pome/model_set.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pome_llm pome_llm;
typedef struct pome_llm_session pome_llm_session;

/* What the caller knows about a model: the feature called `name` plays this part ("ids", "mask", "position", "logits"). */
typedef struct pome_llm_role {
    const char *role, *name;
} pome_llm_role;

typedef struct pome_llm_opts {
    size_t size;          /* sizeof(pome_llm_opts) */
    const char *function; /* NULL: the model's default */
    int64_t context;      /* 0: the model's own; only lowers it */
    int64_t block;        /* tokens fed per pass at most; 0: chosen */
    const char *contract; /* a contract's name (docs/contracts.md); NULL: the one that fits best */
    const pome_llm_role *roles; /* [n_roles] copied */
    size_t n_roles;
    bool whole_windows;   /* sets of chunks with a window: compute all its columns in every pass, as on a device that can do
                             nothing else, instead of the new ones alone; slow, for comparing */
} pome_llm_opts;

POME_API void pome_llm_opts_default(pome_llm_opts *opts);

/* Finds the contract. Borrows the model, which must outlive the engine. May be shared by threads.
 * Errors: UNSUPPORTED: lists the inputs, states and outputs seen and what the nearest contract expects, or two contracts
 * that fit equally well; ARG for a function, contract or part that there is not, a negative block, and whole windows of a
 * model that has none. */
POME_API POME_NODISCARD pome_status pome_llm_open(pome_llm **out, pome_model *model, const pome_llm_opts *opts,
                                                  pome_error *err);
/* The same for a model that may be cut into several. Borrows the set. */
POME_API POME_NODISCARD pome_status pome_llm_open_set(pome_llm **out, const pome_model_set *set,
                                                      const pome_llm_opts *opts, pome_error *err);
POME_API void pome_llm_close(pome_llm **llm);

POME_API int64_t pome_llm_n_context(const pome_llm *llm); /* tokens a session can hold */
POME_API int64_t pome_llm_n_vocab(const pome_llm *llm);
/* One line: "stateful, 2 states, ids=inputIds, mask=causalMask (end), logits=logits". */
POME_API const char *pome_llm_describe(const pome_llm *llm);
/* The same with what decided: "..., because there are states and a float mask". */
POME_API const char *pome_llm_explain(const pome_llm *llm);
/* False if the model picks tokens itself: the logits of a session then are 0 for its choice and -inf for all others, so
 * that every sampler follows it; temperature and the like have nothing to work on. */
POME_API bool pome_llm_has_logits(const pome_llm *llm);
/* False if every pass takes the whole timeline. */
POME_API bool pome_llm_has_cache(const pome_llm *llm);

POME_API POME_NODISCARD pome_status pome_llm_session_create(pome_llm_session **out, pome_llm *llm, pome_error *err);
POME_API void pome_llm_session_destroy(pome_llm_session **session);

/* Makes the session's timeline equal to ids[0..n): keeps the longest common prefix that is cached, feeds the
 * rest, and gives the logits after the last token: fp32 [n_vocab], valid until the next call. Where the
 * model gives a softmax of them, these are its logarithms.
 * Errors: LIMIT if n exceeds the context (both numbers), ARG for an id outside the vocabulary,
 * CANCELLED if pome_llm_session_cancel was called meanwhile. */
POME_API POME_NODISCARD pome_status pome_llm_session_feed(pome_llm_session *session, const int32_t *ids, int64_t n,
                                                          const float **logits, pome_error *err);
/* Appends n tokens to the timeline; otherwise as feed. */
POME_API POME_NODISCARD pome_status pome_llm_session_append(pome_llm_session *session, const int32_t *ids, int64_t n,
                                                            const float **logits, pome_error *err);
/* As append, with the logits after each of the last n_rows of them: fp32 [n_rows, n_vocab]. The model's head is computed
 * for the passes that hold these rows.
 * Errors: also UNSUPPORTED if the model gives logits for the last token alone. */
POME_API POME_NODISCARD pome_status pome_llm_session_append_rows(pome_llm_session *session, const int32_t *ids, int64_t n,
                                                                 int64_t n_rows, const float **logits, pome_error *err);
/* Makes room for the logits of n_rows, so that append_rows of as many tokens allocates nothing. */
POME_API POME_NODISCARD pome_status pome_llm_session_reserve_rows(pome_llm_session *session, int64_t n_rows,
                                                                  pome_error *err);
/* Cuts the timeline to its first n tokens; nothing is computed, what follows overwrites the rows of the cache.
 * Errors: ARG if there are fewer, UNSUPPORTED if the cache cannot go back (rows that are not addressed by position). */
POME_API POME_NODISCARD pome_status pome_llm_session_rewind(pome_llm_session *session, int64_t n, pome_error *err);
/* Logits of every fed position of this call: fp32 [n - *n_reused, n_vocab] (tests, perplexity). */
POME_API POME_NODISCARD pome_status pome_llm_session_feed_all(pome_llm_session *session, const int32_t *ids, int64_t n,
                                                              const float **logits, int64_t *n_reused, pome_error *err);
POME_API int64_t pome_llm_session_n_tokens(const pome_llm_session *session);
/* Tokens that the last feed found cached. */
POME_API int64_t pome_llm_session_n_reused(const pome_llm_session *session);
POME_API const pome_llm *pome_llm_session_engine(const pome_llm_session *session);
POME_API void pome_llm_session_clear(pome_llm_session *session); /* empty timeline */
/* The running or next feed returns CANCELLED, after the operator that is being computed, with the timeline as far as passes
 * were finished; it is empty where the cache was spoiled by the pass that was not. From any thread; async-signal-safe. */
POME_API void pome_llm_session_cancel(pome_llm_session *session);
/* The thread that feeds asks `poll` before each operator; true ends the feed as pome_llm_session_cancel does. NULL: nobody is asked. */
POME_API void pome_llm_session_poll(pome_llm_session *session, pome_poll *poll, void *arg);

/* ---- sampling ---- */
typedef struct pome_sampler pome_sampler;

typedef struct pome_sampler_opts {
    size_t size;          /* sizeof(pome_sampler_opts) */
    float temperature;    /* 0: greedy */
    int32_t top_k;        /* 0: off */
    float top_p;          /* 1: off */
    float min_p;          /* 0: off */
    float repeat_penalty; /* 1: off; applied to ids among the last `repeat_last_n` of the history */
    int32_t repeat_last_n;
    uint64_t seed;        /* equal seeds and logits give equal ids on every machine */
} pome_sampler_opts;

POME_API void pome_sampler_opts_default(pome_sampler_opts *opts); /* 0.7, 40, 0.95, 0, 1, 64, 0 */
POME_API POME_NODISCARD pome_status pome_sampler_create(pome_sampler **out, const pome_sampler_opts *opts,
                                                        int64_t n_vocab, pome_error *err);
POME_API void pome_sampler_destroy(pome_sampler **sampler);
/* Order: repetition penalty, temperature, top-k, top-p, min-p, draw. Greedy takes the first largest.
 * NaN logits are never chosen; if nothing finite is left, returns -1. */
POME_API int32_t pome_sampler_pick(pome_sampler *sampler, const float *logits, const int32_t *history,
                                   int64_t n_history);

#ifdef __cplusplus
}
#endif
#endif
