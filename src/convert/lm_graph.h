/* The program of a language model: builder blocks put together as the configuration says. */
#ifndef POME_CONVERT_LM_GRAPH_H
#define POME_CONVERT_LM_GRAPH_H

#include "convert/checkpoint.h"
#include "convert/weight_plan.h"
#include "pome/model.h"

/* Where keys and values of earlier calls are. */
typedef enum pome_lm_cache {
    POME_LM_CACHE_STACKED = 0, /* one state each for keys and values of all layers */
    POME_LM_CACHE_PER_LAYER,   /* states for every layer */
    POME_LM_CACHE_NONE         /* nowhere: every call takes all tokens, and the program makes its own mask */
} pome_lm_cache;

/* What of the model a program is. Sets are described in docs/convert.md. */
typedef enum pome_lm_role {
    POME_LM_WHOLE = 0,
    POME_LM_FIRST, /* embedding, mask, rotary tables */
    POME_LM_GROUP, /* layers */
    POME_LM_LAST,  /* norm and head */
    POME_LM_CACHE_PROCESSOR, /* of sets with a window */
    POME_LM_LOGIT_PROCESSOR
} pome_lm_role;

typedef struct pome_lm_graph {
    const pome_checkpoint *checkpoint;
    const pome_lm_config *config;
    int64_t context;
    pome_opset opset;
    pome_dtype real;            /* F16 or F32: of constants, arithmetic and logits */
    pome_lm_cache cache;
    pome_lm_role role;
    bool has_window;            /* fixed windows of ids, keys and values as inputs and outputs; see lm_window.c */
    const char *name;           /* of the repository; NULL: as the configuration says */
    int64_t first_layer, n_layers; /* that this program has */
    bool snake_names;
    pome_encoding_wish wish, embedding_wish, head_wish, attention_wish, mlp_wish;
    pome_weight_plan *plan;
    pome_program *program;
    pome_graph g;
    pome_function_info io;      /* grows with the calls of lm_features.h */
    pome_status status;
    pome_error *err;
    /* values that all layers share */
    pome_value *ids, *mask, *x;
    pome_value **key_states, **value_states;   /* one, or one for each layer */
    pome_value *n_new, *begin, *end;           /* int32 [1]: rows of this call, of the cache before and after it */
    pome_value *read_to;                       /* end of a slice [1, kv heads, end, dim]; only `end` counts */
    pome_value *keys, *values;                 /* contents of stacked states as last read */
    pome_value *cos, *sin, *local_cos, *local_sin, *local_mask;
} pome_lm_graph;

/* Names of ids, mask, key cache, value cache. */
const char *const *pome_lm_graph_names(const pome_lm_graph *b);
/* Builds function "main"; the fields above `g` are given, program is created by the caller. Errors: UNSUPPORTED (what a
 * set with a window cannot express, by name); those of the checkpoint. */
pome_status pome_lm_graph_build(pome_lm_graph *b, pome_error *err);
/* The model's description, which lives in the program's arena. */
pome_status pome_lm_graph_describe(const pome_lm_graph *b, const char *quantize, pome_model_info *out, pome_error *err);

#endif
