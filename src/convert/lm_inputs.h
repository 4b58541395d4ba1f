/* Inputs of a program, and what all layers compute from them once: positions, rotary tables, masks. */
#ifndef POME_CONVERT_LM_INPUTS_H
#define POME_CONVERT_LM_INPUTS_H

#include "convert/lm_graph.h"

/* The ids, and with a cache the mask and the states: sets b->ids, mask, n_new, begin, end and the caches. In a set, what
 * the first program passes on comes in their place. */
void pome_lm_inputs_make(pome_lm_graph *b);
/* Sets b->cos, sin, mask, and for layers with a window local_cos, local_sin, local_mask. */
void pome_lm_inputs_share(pome_lm_graph *b);
/* Makes outputs of what the other programs of a set share: cos, sin, mask. */
void pome_lm_inputs_pass_on(pome_lm_graph *b);
/* The rows that belong to this call's positions of a table [positions, n_cols]: [n, n_cols]. */
pome_value *pome_lm_rows_of_call(pome_lm_graph *b, const char *name, pome_value *table, int64_t n_cols);

#endif
