/* Contracts with one function: finding its parts, and the runner that they share. */
#ifndef POME_LLM_CONTRACT_FUNCTION_H
#define POME_LLM_CONTRACT_FUNCTION_H

#include "llm/contract.h"

/* Sets model and function of a contract over a single model; false for sets and functions that there are not. */
bool pome_contract_take_function(pome_contract *contract, pome_misfit *misfit);
/* Finds ids, mask, position, logits, lengths and n_vocab. Inputs at which is_taken[input] holds belong to something else
 * (NULL: none do). */
bool pome_contract_take_parts(pome_contract *contract, const bool *is_taken, pome_misfit *misfit);
/* "KIND, COUNT CACHES, ids=..., mask=..., logits=..."; caches: "2 states", or NULL. */
void pome_contract_describe_parts(const pome_contract *contract, const char *caches, char *text, size_t size);

bool pome_feature_is_array(const pome_feature *feature, int32_t rank, bool is_float); /* float, or int32 */
/* `word` in any case anywhere in the name. */
bool pome_name_has(const char *name, const char *word);
/* The input or output of this name, or -1. */
int pome_feature_index(const pome_feature *features, uint32_t n, const char *name);

/* The `create` of these contracts. */
pome_status pome_function_runner_create(pome_runner **out, const pome_contract *contract, const pome_runner_opts *opts,
                                        pome_error *err);

#endif
