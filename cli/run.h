/* `pome run`: what the one-shot form and the conversation share. */
#ifndef POME_CLI_RUN_H
#define POME_CLI_RUN_H

#include <jansson.h>

#include "command.h"
#include "pome/generate.h"
#include "pome/predictor.h"
#include "set_source.h"

typedef struct run_args {
    common_args common;
    int64_t max_new_tokens, top_k, seed, context, speculate;
    double temperature, top_p, min_p, repeat_penalty;
    option_list stop;
    llm_args llm;
    set_source source;
    const char *system, *prompt, *ids, *tokenizer, *trace;
    bool interactive, print_ids, ignore_eos, raw, stats;
} run_args;

/* Everything that is open while `run` works. */
typedef struct run_state {
    run_args *args;
    pome_model_set *models;
    pome_llm *llm;
    pome_llm_session *session;
    pome_tokenizer *tokenizer; /* NULL: none found or none needed */
    pome_sampler *sampler;
    double load_s;
    uint64_t seed;
} run_state;

/* Sums over values, for mean and standard deviation. */
typedef struct moments {
    int64_t n;
    double sum, sum_of_squares;
} moments;

/* What one answer gave, kept while it streams. */
typedef struct answer {
    run_state *run;
    pome_generate_result result;
    char *text; /* whole text so far, NUL-terminated */
    size_t text_len, text_size;
    int32_t *ids;
    size_t n_ids, ids_size;
    bool has_failed; /* out of memory or a failed write */
    double last_s;   /* when the last id came */
    moments token_ms, tokens_per_s; /* of all ids but the first */
} answer;

/* Generates from a whole timeline, streaming to stdout unless --json. */
pome_status run_answer(run_state *run, const int32_t *ids, size_t n_ids, answer *a, pome_error *err);
void answer_reset(answer *a);
json_t *answer_json(const answer *a);
void print_stats(const run_state *run, const pome_generate_result *result);
/* Ids of a conversation (chat template), or of the last message alone as it is (no template, or --raw). */
pome_status encode_messages(const run_state *run, const pome_message *messages, size_t n_messages, int32_t **ids,
                            size_t *n_ids, pome_error *err);

/* The conversation; exit status. */
int run_chat(run_state *run);

#endif
