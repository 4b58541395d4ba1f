/* Contracts with one function: finding its parts, the passes, and the runner that they share. */
#ifndef POME_LLM_CONTRACT_FUNCTION_H
#define POME_LLM_CONTRACT_FUNCTION_H

#include "llm/contract.h"
#include "runtime/model.h"

/* ---- parts (contract_function.c, contract_pairs.c) ---- */

/* Sets model and function of a contract over a single model; false for sets. */
bool pome_contract_take_function(pome_contract *contract, pome_misfit *misfit);
/* Finds inputs that come back as outputs, with their caches' axes. None is no misfit; false if memory is short. */
bool pome_contract_take_pairs(pome_contract *contract, pome_misfit *misfit);
/* Finds ids, mask, positions, logits, lengths and n_vocab among what no pair has taken. */
bool pome_contract_take_parts(pome_contract *contract, pome_misfit *misfit);
/* Finds context and is_mask_whole from the mask and caches of n_rows rows (-1: not known). */
bool pome_contract_take_context(pome_contract *contract, int64_t n_rows, pome_misfit *misfit);
/* "KIND, CACHES, ids=..., mask=..., logits=..."; caches: "2 states", or NULL. */
void pome_contract_describe_parts(const pome_contract *contract, const char *caches, char *text, size_t size);
/* Frees the pairs. */
void pome_contract_reset_pairs(pome_contract *contract);

bool pome_feature_is_array(const pome_feature *feature, int32_t rank, bool is_float); /* float, or int32 */
/* `word` in any case anywhere in the name. */
bool pome_name_has(const char *name, const char *word);
/* The input or output of this name, or -1. */
int pome_feature_index(const pome_feature *features, uint32_t n, const char *name);
/* What the program says about an output whose description leaves its shape open; NULL where it is not known. */
const pome_type *pome_output_type(const pome_model *model, const pome_function_info *function, int output);
/* A float input of rank 4 with leading ones: [1, 1, rows, columns]. */
bool pome_looks_like_mask(const pome_feature *feature);
/* Outputs named logits or scores that differ in the number at their names' ends, in this order, or the only one: how many
 * (at most POME_ROW_PARTS_MAX), 0 if they are none such. */
int pome_logits_parts(const pome_function_info *function, int *parts);
/* The rows of the table that the function gathers embeddings from, 0 if none is found. */
int64_t pome_embedding_rows(const pome_model *model, const pome_function_info *function);

/* ---- passes (function_pass.c) ---- */

/* What a pass costs beyond its rows, in rows: reading the weights once. */
enum { POME_PASS_COST_ROWS = 4 };

/* The next pass where a cache holds the first n_cached tokens. */
pome_pass pome_plan_cached(const pome_contract *contract, int64_t n_cached, int64_t n_tokens, int64_t block);
void pome_fill_pass(const pome_contract *contract, pome_pass pass, const int32_t *timeline, pome_pass_inputs *in);
/* Opens columns [n_hidden, n_hidden + n_open) of a row of `n_columns`, of fp16 or fp32, and shuts the others. */
void pome_fill_mask_row(void *row, bool is_half, int64_t n_columns, int64_t n_hidden, int64_t n_open);

/* ---- the runner (function_runner.c) ---- */

/* Where the rows of a cache lie after a pass over an empty one. */
typedef enum pome_cache_layout {
    POME_CACHE_UNKNOWN = 0,
    POME_CACHE_BY_POSITION, /* row i holds token i: going back is free */
    POME_CACHE_MOVING       /* right-aligned, or no rows at all: going back means starting over */
} pome_cache_layout;

/* Looks at a cache after a first pass of n_pass rows (cache_layout.c). *n_rows: of a cache by position. */
pome_cache_layout pome_cache_detect(const pome_tensor *cache, int64_t n_pass, int64_t context, int64_t *n_rows);

pome_status pome_function_runner_create(pome_runner **out, const pome_contract *contract, const pome_runner_opts *opts,
                                        pome_error *err);

#endif
