/* Where drafts come from: guesses at the tokens that follow, which the model then verifies in one pass. A drafter is
 * made for one answer; the history that it is shown only grows. An n-gram drafter looks the guess up in the history;
 * a smaller model would be another implementation of the same interface. */
#ifndef POME_LLM_DRAFT_H
#define POME_LLM_DRAFT_H

#include <stdint.h>

#include "base/error.h"
#include "pome/generate.h"

/* Drafts of one class are expected to be right about equally often; a higher one more often. */
enum { POME_DRAFT_CLASSES = 6 };

typedef struct pome_draft {
    int32_t *ids; /* [room of the caller] */
    int64_t n;
    int class;    /* [0, POME_DRAFT_CLASSES) */
} pome_draft;

typedef struct pome_drafter pome_drafter;
struct pome_drafter {
    /* Writes at most n_max ids that may follow history[0..n) to draft->ids. Allocates nothing. */
    pome_status (*propose)(pome_drafter *drafter, const int32_t *history, int64_t n, int64_t n_max, pome_draft *draft,
                           pome_error *err);
    void (*destroy)(pome_drafter *drafter);
};

void pome_drafter_destroy(pome_drafter **drafter); /* and nulls; accepts NULL */

/* What followed the longest earlier occurrence of the history's end (Saxena, "Prompt lookup decoding", 2023), for
 * histories of at most n_context tokens. A proposal takes time in proportion to the tokens that are new since the
 * last one, plus a constant. */
pome_status pome_ngram_drafter_create(pome_drafter **out, int64_t n_context, pome_error *err);

/* pome_generate with another source of drafts than the text so far, for opts->speculate > 0. Borrows the drafter. is_bold:
 * verifies all it proposes, whatever that costs. */
pome_status pome_generate_with_drafter(pome_llm_session *session, pome_sampler *sampler, const int32_t *prompt,
                                       int64_t n_prompt, const pome_generate_opts *opts, pome_drafter *drafter,
                                       bool is_bold, pome_generate_result *result, pome_error *err);

#endif
