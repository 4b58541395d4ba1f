/* The set that coreml-llm-cli runs: a first chunk that turns ids into embeddings, mask and rotary tables, chunks with
 * layers, whose keys and values are inputs and outputs, a last one that gives the logits, and a cache and a logit
 * processor. One pass takes a window of positions:
 *
 *   m = (count - 1) mod window + 1; ids are the last m tokens, padded at the right; full_sequence_length is count +
 *   window - m. When m is the window, the new columns of keys and values go through the cache processor into the caches.
 *
 * contract_window.c finds it, window_runner.c runs it. */
#ifndef POME_LLM_WINDOW_SET_H
#define POME_LLM_WINDOW_SET_H

#include "llm/chunk_list.h"
#include "runtime/model_columns.h"

enum { POME_WINDOW_BLOCKS_MAX = 128 };

/* Where the columns are in a shape: one axis, or two (8 x 8). */
typedef struct pome_window_place {
    int32_t axis; /* -1: nowhere */
    bool is_pair;
} pome_window_place;

typedef struct pome_window_block { /* of one layer, by index */
    int k_in, v_in, k_out, v_out;
} pome_window_block;

/* Models that compute new columns alone: one, any number, a whole window. Those of fixed size are faster. */
typedef enum pome_window_size {
    POME_WINDOW_ONE = 0,
    POME_WINDOW_SOME,
    POME_WINDOW_FULL,
    POME_WINDOW_SIZES
} pome_window_size;

typedef struct pome_window_group {
    const pome_contract_model *member;
    const pome_function_info *function;
    int *source;                /* [n_inputs] output of the first chunk; -1: x of the chunk before, -2: a cache */
    int x_out;
    uint32_t n_blocks;
    pome_window_block *blocks;  /* [n_blocks] */
    pome_model *narrow[POME_WINDOW_SIZES]; /* NULL: they cannot be made */
    uint32_t *narrow_inputs;    /* [n_narrow_inputs] inputs of `function`, in the narrow models' order */
    uint32_t n_narrow_inputs;
} pome_window_group;

typedef struct pome_window_set {
    pome_chunk_list list;
    int64_t n_window, n_cached; /* columns of a pass, and of a cache */
    const pome_function_info *first, *last, *caches, *logits;
    const pome_contract_model *cache_member, *logit_member;
    int ids, length, x;         /* of the first chunk: inputs, output */
    pome_window_place *places;  /* [first->n_outputs] */
    pome_window_group *groups;  /* [n_groups] */
    uint32_t n_groups;
    int last_x;
    int parts[POME_ROW_PARTS_MAX]; /* outputs of the last chunk, in order of the vocabulary */
    int n_parts;
    int *logit_inputs;          /* [n_parts] inputs of the logit processor */
    int old_k, new_k, old_v, new_v, updated_k, updated_v; /* of the cache processor */
    pome_model *narrow_last[POME_WINDOW_SIZES];
    char not_narrow[200];       /* why there are no narrow models; "": there are */
} pome_window_set;

pome_window_place pome_window_find(const pome_feature *feature, int64_t n_window, int64_t n_context);
pome_status pome_window_runner_create(pome_runner **out, const pome_contract *contract, const pome_runner_opts *opts,
                                      pome_error *err);

#endif
