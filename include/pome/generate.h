/* Generating text: a session, a sampler and a tokenizer in one loop, with the rules for when it ends. */
#ifndef POME_GENERATE_H
#define POME_GENERATE_H

#include "pome/llm.h"
#include "pome/tokenizer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pome_finish {
    POME_FINISH_LENGTH = 0, /* max_new_tokens were made */
    POME_FINISH_CONTEXT,    /* the context is full */
    POME_FINISH_EOS,        /* the model ended its answer */
    POME_FINISH_STOP,       /* a stop string came up */
    POME_FINISH_CANCELLED   /* the sink said so, or pome_llm_session_cancel was called */
} pome_finish;

/* "length", "context", "eos", "stop", "cancelled"; never NULL. */
POME_API const char *pome_finish_name(pome_finish finish);

/* Called for every new id. text[0..len) are the complete characters that became certain with it (may be empty:
 * characters of several ids and what may be the begin of a stop string are held back); `id` is -1 for text that
 * is let go at the end. The EOS id comes with empty text. Return false to stop. */
typedef bool pome_generate_sink(void *arg, int32_t id, const char *text, size_t len);

typedef struct pome_generate_opts {
    size_t size;                     /* sizeof(pome_generate_opts) */
    int64_t max_new_tokens;          /* 128; -1: until something else ends it */
    const pome_tokenizer *tokenizer; /* borrowed; NULL: ids alone, no text */
    const int32_t *eos;              /* [n_eos] more ids that end the answer, besides the tokenizer's */
    size_t n_eos;
    bool ignore_eos;
    bool keep_special;               /* write special tokens as text */
    const char *const *stop;         /* [n_stop] */
    size_t n_stop;
    pome_generate_sink *sink;        /* may be NULL */
    void *sink_arg;
    int64_t speculate;               /* guess at most so many tokens ahead from the text so far, and verify them in one
                                      * pass: the same answer in fewer passes. 0: off; at most POME_SPECULATE_MAX */
} pome_generate_opts;

#define POME_SPECULATE_MAX 127

typedef struct pome_generate_result {
    pome_finish finish;
    int64_t n_prompt, n_reused, n_new; /* tokens; n_new counts the EOS id too */
    double prompt_s, decode_s;         /* seconds of feeding the prompt, and of all that followed */
    int64_t n_passes;                  /* of the model after the prompt */
    int64_t n_drafted, n_accepted;     /* tokens that were guessed and verified, and those of them that were right */
    const char *not_speculated;        /* why `speculate` was not followed; NULL: it was, or was 0 */
} pome_generate_result;

POME_API void pome_generate_opts_default(pome_generate_opts *opts);

/* Feeds prompt[0..n_prompt) (whole timeline; what is cached is reused), then picks and feeds one id at a time.
 * Stop strings are looked for in the text, across ids; the match and what follows never reach the sink.
 * Cancelling is no error: result->finish tells. Errors: those of pome_llm_session_feed; UNSUPPORTED if all
 * logits are NaN or infinite; ARG for stop strings without a tokenizer.
 * Speculation changes no answer: the sampler sees the same rows of logits in the same order. Drafts are only made
 * where they are likely to pay, and the cache must be able to go back (else result->not_speculated says so). */
POME_API POME_NODISCARD pome_status pome_generate(pome_llm_session *session, pome_sampler *sampler,
                                                  const int32_t *prompt, int64_t n_prompt,
                                                  const pome_generate_opts *opts, pome_generate_result *result,
                                                  pome_error *err);

/* Opens the tokenizer of a model. Looked for in this order: `path` (a folder or file; no other place is tried
 * then), inside the package, beside it, and in the local Hub cache under the repository id that the package's
 * metadata names (co.huggingface.exporters.name).
 * Errors: IO with the places that were tried. */
POME_API POME_NODISCARD pome_status pome_tokenizer_locate(pome_tokenizer **out, const pome_model *model,
                                                          const char *path, pome_error *err);

/* The folder of a repository ("owner/name") in the local Hub cache (HF_HUB_CACHE, HF_HOME, ~/.cache/huggingface): the
 * snapshot that refs/main names, as malloc'ed text. Nothing is downloaded.
 * Errors: IO if it is not there, with the folder that was looked at; ARG for what is no repository id. */
POME_API POME_NODISCARD pome_status pome_hub_find(char **folder, const char *repository, pome_error *err);

#ifdef __cplusplus
}
#endif
#endif
