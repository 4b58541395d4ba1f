/* Programs of sets that pass fixed windows of ids through: 64 new tokens, 448 cached ones; keys and values are inputs and
 * outputs. Names, shapes and layouts are those that coreml-llm-cli runs; see docs/convert.md. */
#ifndef POME_CONVERT_LM_WINDOW_H
#define POME_CONVERT_LM_WINDOW_H

#include "convert/lm_graph.h"

enum {
    POME_LM_WINDOW_NEW = 64,
    POME_LM_WINDOW_CONTEXT = 512,
    POME_LM_WINDOW_CACHED = POME_LM_WINDOW_CONTEXT - POME_LM_WINDOW_NEW
};

/* Builds the program of b->role. Failures are b->status, or the graph's own. */
void pome_lm_window_build(pome_lm_graph *b);
/* Whether such a set can express the model; if not, UNSUPPORTED with what stands against it. */
pome_status pome_lm_window_check(const pome_lm_config *c, pome_error *err);

#endif
