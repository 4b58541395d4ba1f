/* Where keys and values of earlier calls are kept. */
#ifndef POME_CONVERT_LM_CACHE_H
#define POME_CONVERT_LM_CACHE_H

#include "convert/lm_graph.h"

/* The states, as inputs. */
void pome_lm_cache_make(pome_lm_graph *b);
/* What is read once, when `end` is known. */
void pome_lm_cache_read(pome_lm_graph *b);
/* Keeps rows [1, kv heads, n, head_dim] of this call and gives those of all calls: [1, kv heads, end, head_dim].
 * Without a cache these are the rows. */
pome_value *pome_lm_cached_keys(pome_lm_graph *b, pome_value *rows, int64_t layer);
pome_value *pome_lm_cached_values(pome_lm_graph *b, pome_value *rows, int64_t layer);

#endif
