/* What contract_coreml_llm.c finds and coreml_llm_runner.c runs. */
#ifndef POME_LLM_CONTRACT_COREML_LLM_H
#define POME_LLM_CONTRACT_COREML_LLM_H

#include "llm/contract_function.h"
#include "llm/row_table.h"

enum { POME_LINKS_MAX = 64, POME_TABLES_MAX = 8 };

/* Where an input of a chunk comes from. */
typedef enum pome_link_source {
    POME_LINK_IDS,      /* int32 [1, 1] */
    POME_LINK_TOKEN,    /* the token's row of table `from` */
    POME_LINK_ROTARY,   /* the position's row of table `from` */
    POME_LINK_POSITION, /* [1] */
    POME_LINK_MASK,     /* [1, 1, 1, columns], open up to the position */
    POME_LINK_SLIDING,  /* the same over the last columns, open at its end */
    POME_LINK_UPDATE,   /* [1, 1, context, 1], one at the position */
    POME_LINK_OUTPUT,   /* output `output` of chunk `from` */
    POME_LINK_CACHE     /* the chunk's own output `output` of the last pass */
} pome_link_source;

typedef struct pome_link_input {
    pome_link_source source;
    int from, output;
} pome_link_input;

typedef struct pome_link {
    pome_model *model;
    const pome_function_info *function;
    pome_link_input *inputs; /* [function.n_inputs] */
} pome_link;

typedef struct pome_coreml_llm {
    int n_links, n_tables;
    pome_link links[POME_LINKS_MAX];
    pome_row_table tables[POME_TABLES_MAX];
    char table_names[POME_TABLES_MAX][64]; /* the inputs that they are for */
    bool has_ids, has_rotary;
    int n_caches;
    int n_logits;
    int logits[POME_ROW_PARTS_MAX]; /* outputs of the last chunk */
} pome_coreml_llm;

pome_status pome_coreml_llm_runner_create(pome_runner **out, const pome_contract *contract, const pome_runner_opts *opts,
                                          pome_error *err);

#endif
