/* Sets of models PREFIX_chunk1, PREFIX_chunk2, ..., to be run in this order: what their contracts share. */
#ifndef POME_LLM_CHUNK_LIST_H
#define POME_LLM_CHUNK_LIST_H

#include "llm/contract.h"

enum { POME_CHUNKS_MAX = 256 };

typedef struct pome_chunk_list {
    uint32_t n;
    const pome_contract_model *chunk[POME_CHUNKS_MAX]; /* by number */
    char prefix[200];
} pome_chunk_list;

/* Lists them. Not found: false with misfit->n_found 0 if there are none at all, else with what is wrong with the set:
 * several prefixes, numbers that do not follow each other, one chunk alone. */
bool pome_chunk_list_find(const pome_contract_subject *subject, pome_chunk_list *list, pome_misfit *misfit);

/* The function of a model of a set. */
const pome_function_info *pome_chunk_function(const pome_contract_model *model);

/* Outputs named like an input of a later chunk go there; new_X goes where X is asked for. */
bool pome_chunk_feeds(const char *output, const char *input);

/* "x int32 [1], y fp16 [1, 4]" of features, cut at size. Returns text. */
const char *pome_chunk_names(const pome_feature *features, uint32_t n, char *text, size_t size);

#endif
