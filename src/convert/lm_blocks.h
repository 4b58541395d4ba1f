/* Builder blocks: what language models are put together from. All work on x [1, n, hidden] of the graph's float type. */
#ifndef POME_CONVERT_LM_BLOCKS_H
#define POME_CONVERT_LM_BLOCKS_H

#include "convert/lm_graph.h"

/* Rows of the embedding for b->ids; *table: the matrix. */
pome_value *pome_lm_embed(pome_lm_graph *b, pome_value **table);
/* A constant for a part's weight; NULL where there is none (a missing bias is no failure). */
pome_value *pome_lm_weight(pome_lm_graph *b, pome_part part, int64_t layer, const char *name,
                           const pome_encoding_wish *wish);
pome_value *pome_lm_bias(pome_lm_graph *b, pome_part part, int64_t layer, const char *name);

/* x / rms(x) * weight, over the last of `rank` axes of `size` elements; or, as the family has it, the same with the mean
 * taken off and a bias added. */
pome_value *pome_lm_norm(pome_lm_graph *b, const char *name, pome_value *x, int32_t rank, int64_t size, pome_part part,
                         int64_t layer);
pome_value *pome_lm_linear(pome_lm_graph *b, const char *name, pome_value *x, pome_part part, int64_t layer);
/* Attention of a layer with its cache; x is normalized. */
pome_value *pome_lm_attention(pome_lm_graph *b, pome_value *x, int64_t layer);
/* down(active(gate(x)) * up(x)), or down(active(up(x))) in families without a gate. */
pome_value *pome_lm_activate(pome_lm_graph *b, const char *name, pome_value *x);
pome_value *pome_lm_mlp(pome_lm_graph *b, pome_value *x, int64_t layer);

#endif
