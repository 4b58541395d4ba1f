/* What a language model's function expects: which feature plays which part, and how a timeline of tokens is cut
 * into predictions ("passes"). Parts are found from types, ranks and shapes; names settle only what structure
 * leaves open. Each kind of contract is one small file behind pome_contract_kind. */
#ifndef POME_LLM_CONTRACT_H
#define POME_LLM_CONTRACT_H

#include "pome/predictor.h"

#define POME_LENGTHS_MAX 128 /* Core ML allows as many enumerated shapes */

/* Sizes that the last axis of the ids may take: listed ones (ascending), or all of [min, max]. */
typedef struct pome_lengths {
    int64_t min, max; /* max -1: unbounded */
    int n_listed;     /* 0: ranged */
    int64_t listed[POME_LENGTHS_MAX];
} pome_lengths;

/* One prediction over rows [begin, begin + n_rows) of the timeline: the first n_real rows are its tokens, the
 * rest is padding, whose results nobody reads. */
typedef struct pome_pass {
    int64_t begin, n_real, n_rows;
} pome_pass;

/* Where the rows of the cache lie after a pass over an empty state. */
typedef enum pome_cache_layout {
    POME_CACHE_UNKNOWN = 0,
    POME_CACHE_BY_POSITION, /* row i holds token i: going back is free */
    POME_CACHE_MOVING       /* right-aligned, or no rows at all: going back means starting over */
} pome_cache_layout;

typedef struct pome_contract pome_contract;

/* The inputs of a pass. Tensors borrow the buffers beside them, which hold the largest pass. */
typedef struct pome_pass_inputs {
    int32_t *ids;      /* [n_rows max] */
    void *mask;        /* [n_rows max, context] or [n_rows max], of the mask's type; NULL without one */
    int32_t position;
    pome_tensor ids_tensor, mask_tensor, position_tensor;
} pome_pass_inputs;

typedef struct pome_contract_kind {
    const char *name;
    /* Completes the contract (context, what may be padded) or gives false and a reason. */
    bool (*fit)(pome_contract *contract, char *reason, size_t reason_size);
    /* The next pass of a timeline of n_tokens, the first n_cached of which are in the cache. */
    pome_pass (*plan)(const pome_contract *contract, int64_t n_cached, int64_t n_tokens, int64_t block);
    /* Fills the inputs of `pass` from the timeline. */
    void (*fill)(const pome_contract *contract, pome_pass pass, const int32_t *timeline, pome_pass_inputs *in);
    /* How many of n_keep leading tokens stay usable when the timeline is cut there. */
    int64_t (*rewind)(const pome_contract *contract, pome_cache_layout layout, int64_t n_cached, int64_t n_keep);
} pome_contract_kind;

struct pome_contract {
    const pome_contract_kind *kind;
    const pome_function_info *function; /* borrowed from the model */
    int ids, mask, position;            /* inputs by index; -1: none */
    int logits;                         /* output by index */
    pome_lengths lengths;
    int64_t context;
    bool is_mask_whole; /* its last axis is always the context, not the end of the pass */
    bool may_pad;       /* padding rows do no harm */
};

extern const pome_contract_kind pome_contract_stateful, pome_contract_nocache;

/* Errors: UNSUPPORTED with what was seen and what was expected. */
pome_status pome_contract_find(pome_contract *out, const pome_function_info *function, pome_error *err);
/* "stateful: ids=inputIds, mask=causalMask (end), 2 states, logits=logits" */
void pome_contract_describe(const pome_contract *contract, char *text, size_t size);

/* The sizes axis `axis` of a feature may take; false if there are more than POME_LENGTHS_MAX. */
bool pome_lengths_of(const pome_feature *feature, int axis, pome_lengths *out);
bool pome_lengths_admit(const pome_lengths *lengths, int64_t n);
/* The smallest admissible size of at least n, or -1. */
int64_t pome_lengths_round_up(const pome_lengths *lengths, int64_t n);
/* The largest admissible size of at most n, or -1. */
int64_t pome_lengths_round_down(const pome_lengths *lengths, int64_t n);

#endif
