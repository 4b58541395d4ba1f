/* Inputs, outputs and states of a program, in the graph and in its description at once. */
#ifndef POME_CONVERT_LM_FEATURES_H
#define POME_CONVERT_LM_FEATURES_H

#include "convert/lm_graph.h"

/* An axis whose range is a single size is fixed. The default shape has the least sizes. */
pome_value *pome_lm_input(pome_lm_graph *b, const char *name, pome_dtype dtype, int32_t rank,
                          const pome_axis_range *range);
pome_value *pome_lm_state(pome_lm_graph *b, const char *name, int32_t rank, const int64_t *shape);
/* The value gets the name. rank -1: the shape is not said, as where it depends on the inputs'. */
void pome_lm_output(pome_lm_graph *b, pome_value *value, const char *name, pome_dtype dtype, int32_t rank,
                    const int64_t *shape);
/* Puts the last output before the others. */
void pome_lm_output_first(pome_lm_graph *b);

#endif
