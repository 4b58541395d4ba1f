/* Decides how many drafted tokens a pass verifies (Leviathan et al., "Fast inference from transformers via speculative
 * decoding", 2023). A draft of k tokens of which each is right with probability p yields 1 + p + ... + p^k tokens on
 * average; p is estimated for each class of drafts, the time of a pass of 1 + k rows is measured. The length with the
 * most tokens per second is taken, and none at all if plain steps are faster. What wrong drafts may cost in sum is
 * bounded besides, so that text without repeats is not slowed down.
 *
 * Verifying: the sampler picks from each row of the pass in turn, as it would without drafts; the draft was right as
 * long as it picked the drafted token. What is picked thus has the model's distribution whatever the draft was, and
 * equal seeds give equal ids with and without drafts. */
#ifndef POME_LLM_SPECULATE_H
#define POME_LLM_SPECULATE_H

#include "llm/draft.h"

typedef struct pome_speculator pome_speculator;

/* Drafts of at most n_max tokens. Borrows the drafter. is_bold: verifies every draft in full, whatever it costs. */
pome_status pome_speculator_create(pome_speculator **out, pome_drafter *drafter, int64_t n_max, bool is_bold,
                                   pome_error *err);
void pome_speculator_destroy(pome_speculator **speculator);

/* What is worth verifying behind history[0..n), n_max tokens at most; none is an empty draft. The ids are valid until
 * the next call. */
pome_status pome_speculator_draft(pome_speculator *speculator, const int32_t *history, int64_t n, int64_t n_max,
                                  const int32_t **ids, int64_t *n_ids, pome_error *err);
/* The pass over the last draft took so many seconds, and so many of its tokens were right (n_seen of them were
 * looked at: the answer may end within a draft). A pass without a draft is told as well. */
void pome_speculator_learn(pome_speculator *speculator, double seconds, int64_t n_right, int64_t n_seen);

#endif
