/* What contract_anemll.c finds and anemll_runner.c runs. */
#ifndef POME_LLM_CONTRACT_ANEMLL_H
#define POME_LLM_CONTRACT_ANEMLL_H

#include "llm/contract_function.h"

enum { POME_ANEMLL_CHUNKS_MAX = 64 };

/* A function that runs some layers: inputs by index, -1: none. */
typedef struct pome_anemll_layers {
    pome_model *model;
    const pome_function_info *function;
    int hidden;    /* float [1, n, hidden] */
    int positions; /* int32 [n] */
    int position;  /* int32 [1], of the first row */
    int mask;      /* float [1, 1, n, context] */
    int update;    /* float [1, 1, context, 1] */
    int64_t n_rows, context;
} pome_anemll_layers;

typedef struct pome_anemll {
    pome_model *embeddings, *head;
    const pome_function_info *embeddings_function, *head_function;
    pome_lengths lengths; /* of the ids */
    int n_chunks;
    pome_anemll_layers infer[POME_ANEMLL_CHUNKS_MAX]; /* [n_chunks] one row */
    bool has_prefill;
    pome_anemll_layers prefill[POME_ANEMLL_CHUNKS_MAX]; /* [n_chunks] n_rows rows, without their logits */
    int64_t n_batch;  /* rows of a prefill pass */
    int n_logits;
    int logits[POME_ROW_PARTS_MAX]; /* outputs of the head, in order */
} pome_anemll;

pome_status pome_anemll_runner_create(pome_runner **out, const pome_contract *contract, const pome_runner_opts *opts,
                                      pome_error *err);

#endif
