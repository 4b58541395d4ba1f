/* What a language model expects of its host: which feature plays which part, and how a timeline of tokens is cut into
 * predictions ("passes"). A contract is found from types, ranks and shapes; names settle only what structure leaves open.
 *
 * Each kind of contract is one small file behind pome_contract_kind. It sees the models of a folder (mostly one), says
 * whether they fit, and makes a runner: what one session needs to run passes, with its caches. The session (session.c)
 * knows timelines, the engine (engine.c) knows models; neither knows kinds. */
#ifndef POME_LLM_CONTRACT_H
#define POME_LLM_CONTRACT_H

#include "base/stop.h"
#include "llm/lengths.h"
#include "pome/llm.h"
#include "pome/predictor.h"
#include "pome/profile.h"

typedef struct pome_contract pome_contract;
typedef struct pome_runner pome_runner;

/* ---- what a kind looks at ---- */

typedef struct pome_contract_model {
    const char *name;                    /* of its folder, without the ending: "tiny-llama_chunk1" */
    pome_model *model;                   /* NULL where descriptions alone are looked at */
    const pome_function_info *functions; /* [n_functions] */
    uint32_t n_functions, default_function;
} pome_contract_model;

/* Lives as long as the engine; contracts and runners borrow it. */
typedef struct pome_contract_subject {
    const char *path;                  /* the folder of a set, "" for a single model */
    const pome_contract_model *models; /* [n_models] by name; numbers within names count as such */
    uint32_t n_models;
    const char *function;              /* asked for; NULL: the default */
    const pome_llm_role *roles;        /* [n_roles] the caller's word on parts */
    uint32_t n_roles;
} pome_contract_subject;

/* The caller's name for a part ("ids", "mask", "position", "logits", ...), or NULL. The next one behind `after`,
 * which the last call gave, for parts that there are several of; NULL: the first. */
const pome_llm_role *pome_subject_role(const pome_contract_subject *subject, const char *role,
                                       const pome_llm_role *after);
/* The index of a model by name, or -1. */
int pome_subject_find_model(const pome_contract_subject *subject, const char *name);

/* Why a kind does not fit. n_found counts the parts that were recognized: the kind with most is the nearest one. A kind
 * whose mark is missing altogether (no states for a stateful one) leaves it 0. */
typedef struct pome_misfit {
    int n_found;
    char reason[320];
} pome_misfit;

/* Writes the reason and gives false. */
bool pome_misfit_say(pome_misfit *misfit, int n_found, const char *fmt, ...) POME_PRINTF(3, 4);

/* ---- passes ---- */

/* One prediction over rows [begin, begin + n_rows) of the timeline: the first n_real rows are its tokens, the
 * rest is padding, whose results nobody reads. begin may lie before the end of what is cached: those rows are computed
 * again. */
typedef struct pome_pass {
    int64_t begin, n_real, n_rows;
} pome_pass;

/* Which rows of logits of a pass will be read. */
typedef enum pome_want { POME_WANT_NOTHING = 0, POME_WANT_LAST, POME_WANT_ALL } pome_want;

enum { POME_ROW_PARTS_MAX = 64 };

/* Logits of rows [first, first + n) of a pass (of its n_real rows at least the wanted ones), valid until the next pass.
 * The vocabulary is the parts' one behind another: each a contiguous float tensor of n rows with the part in its last
 * axis. Of a contract that is_argmax: one int32 tensor of n ids. */
typedef struct pome_rows {
    int64_t first, n;
    int n_parts;
    const pome_tensor *parts[POME_ROW_PARTS_MAX];
} pome_rows;

/* ---- runners ---- */

typedef struct pome_runner_opts {
    int64_t context; /* tokens of a timeline at most; no more than the contract's */
    int64_t block;   /* tokens per pass at most, where the contract leaves a choice */
    bool whole_windows; /* sets with windows: compute all columns in every pass */
    pome_stop *stop; /* borrowed; ends passes within a prediction. NULL: nobody does */
} pome_runner_opts;

typedef struct pome_runner_ops {
    void (*destroy)(pome_runner *runner);
    /* Empties the caches: the next pass begins at 0. */
    void (*clear)(pome_runner *runner);
    /* Runs a pass that the contract planned over timeline[pass.begin ..]. Allocates nothing unless rows of logits are
     * wanted for the first time. On failure the caches may be partly written; kept() tells what can still be used. */
    pome_status (*run)(pome_runner *runner, pome_pass pass, const int32_t *timeline, pome_want want, pome_rows *rows,
                       pome_error *err);
    /* How many of the first n_keep tokens the caches still serve, now that n_cached have been run. */
    int64_t (*kept)(const pome_runner *runner, int64_t n_cached, int64_t n_keep);
    /* Makes the next pass begin behind n_keep tokens, a number that kept() gave. */
    void (*rewind)(pome_runner *runner, int64_t n_keep);
    /* Whether, after this pass will have been run, the timeline could be cut to n_keep tokens within it. */
    bool (*can_undo)(const pome_runner *runner, pome_pass pass, int64_t n_keep);
    /* Prepares for passes of up to n_rows tokens with all their logits. */
    pome_status (*reserve_rows)(pome_runner *runner, int64_t n_rows, pome_error *err);
    pome_status (*profile)(pome_runner *runner, pome_profile *profile, pome_error *err); /* NULL ends it */
} pome_runner_ops;

/* kept, rewind_to and can_undo of runners whose caches hold row i at position i, and whose masks shut out what lies behind
 * the tokens: every row stays usable, and nothing need be done to write over it (cache_layout.c). */
int64_t pome_rows_kept(const pome_runner *runner, int64_t n_cached, int64_t n_keep);
void pome_rows_rewind(pome_runner *runner, int64_t n_keep);
bool pome_rows_can_undo(const pome_runner *runner, pome_pass pass, int64_t n_keep);

/* The first member of each kind's own runner. */
struct pome_runner {
    const pome_runner_ops *ops;
    const pome_contract *contract;
    pome_stop *stop;
};

/* ---- kinds ---- */

/* Of several kinds that fit, those of the highest class are taken, and among them the most specific. */
typedef enum pome_contract_class {
    POME_CONTRACT_NOCACHE = 0,
    POME_CONTRACT_CHUNKS,
    POME_CONTRACT_EXPLICIT,
    POME_CONTRACT_STATES
} pome_contract_class;

/* A cache that is an input and comes back as an output. */
typedef struct pome_cache_pair {
    int input, output; /* by index */
    int axis;          /* its rows, where their number is that of the tokens so far; -1: the shape is fixed */
} pome_cache_pair;

/* Inputs of a pass of a contract with one function. Tensors borrow the buffers beside them, which hold the largest pass. */
typedef struct pome_pass_inputs {
    int32_t *ids;       /* [n_rows max] */
    void *mask;         /* [n_rows max, columns max] or [columns max], of the mask's type; NULL without one */
    int32_t *positions; /* [n_rows max] */
    float *update;      /* [context] */
    int32_t position;
    pome_tensor ids_tensor, mask_tensor, position_tensor, positions_tensor, update_tensor;
} pome_pass_inputs;

typedef struct pome_contract_kind {
    const char *name;  /* as --contract takes it */
    pome_contract_class class;
    const char *wants; /* one line for messages: what the features must be */
    /* Completes the contract (zeroed but for kind and subject), or gives false and says why. */
    bool (*fit)(pome_contract *contract, pome_misfit *misfit);
    /* "stateful, 2 states, ids=inputIds, ..." */
    void (*describe)(const pome_contract *contract, char *text, size_t size);
    /* The next pass of a timeline of n_tokens, the first n_cached of which are in the caches. */
    pome_pass (*plan)(const pome_contract *contract, int64_t n_cached, int64_t n_tokens, int64_t block);
    /* Contracts with one function: fills the inputs of `pass` from the timeline. Others: NULL. */
    void (*fill)(const pome_contract *contract, pome_pass pass, const int32_t *timeline, pome_pass_inputs *in);
    pome_status (*create)(pome_runner **out, const pome_contract *contract, const pome_runner_opts *opts,
                          pome_error *err);
    void (*reset)(pome_contract *contract); /* frees `own`; NULL: nothing to free */
} pome_contract_kind;

/* Immutable once found. */
struct pome_contract {
    const pome_contract_kind *kind;
    const pome_contract_subject *subject;
    int64_t context;    /* tokens of a timeline at most; POME_CONTEXT_ENDLESS where the caches slide */
    int64_t n_vocab;    /* 0: not told by descriptions and programs, found by running a token */
    bool is_argmax;     /* gives the likeliest ids instead of logits */
    bool gives_one_row; /* logits come for the last token that a plan was made for, and for no other */
    int specificity;    /* parts that had to be just so: more of them win within a class */
    char because[160];  /* what decided: "there are states and a float mask" */
    void *own;          /* the kind's */
    /* Contracts with one function. */
    pome_model *model;                  /* borrowed */
    const pome_function_info *function; /* borrowed from the model */
    int ids, mask;                      /* inputs by index; -1: none */
    int position;                       /* of the first row, [1] */
    int positions;                      /* of each row */
    int update;                         /* one at the position of the row, zeros elsewhere: [1, 1, context, 1] */
    int n_logits;
    int logits[POME_ROW_PARTS_MAX];     /* outputs by index, in the order of the vocabulary; of is_argmax: the ids */
    uint32_t n_caches;
    pome_cache_pair *caches;            /* [n_caches] */
    int64_t n_dummy;                    /* rows that growing caches cannot be without; the mask hides them */
    pome_lengths lengths;               /* of the ids */
    bool is_mask_whole; /* its last axis is always the context, not the end of the pass */
    bool may_pad;       /* padding rows do no harm */
    bool takes_whole;   /* there is no cache: every pass begins at 0 */
};

/* A timeline without an end of its own: what the caches do not hold any more is forgotten. */
enum { POME_CONTEXT_ENDLESS = 1 << 20 };

extern const pome_contract_kind pome_contract_stateful, pome_contract_explicit, pome_contract_growing,
    pome_contract_chain, pome_contract_window, pome_contract_anemll, pome_contract_coreml_llm, pome_contract_nocache;

/* Finds the contract of the models: the one called `name`, or NULL: the best that fits. The caller resets it.
 * Errors: UNSUPPORTED with what was seen and the nearest contract, or with two that fit equally well; ARG for a name or
 * role that there is not. */
pome_status pome_contract_find(pome_contract *out, const pome_contract_subject *subject, const char *name,
                               pome_error *err);
void pome_contract_reset(pome_contract *contract);

#endif
