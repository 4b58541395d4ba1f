#include "convert/lm_cache.h"

#include <stdio.h>

void pome_lm_cache_make(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    const pome_lm_config *c = b->config;
    const int64_t shape[5] = {c->n_layers, 1, c->n_kv_heads, b->context, c->head_dim};
    const char *const *n = pome_lm_graph_names(b);
    b->key_cache = pome_graph_input(g, n[2], POME_TYPE_STATE, POME_DTYPE_F16, 5, shape);
    b->value_cache = pome_graph_input(g, n[3], POME_TYPE_STATE, POME_DTYPE_F16, 5, shape);
}

void pome_lm_cache_read(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    b->read_to = pome_graph_concat(g, "read_to", 0, 3,
                                   (pome_value *const[]){POME_INTS(g, 1, (int32_t)b->config->n_kv_heads), b->end,
                                                         POME_INTS(g, (int32_t)b->config->head_dim)});
    b->keys = pome_graph_add(g, POME_OP_read_state, "keys", POME_ARGS({P_read_state_input, b->key_cache}));
    b->values = pome_graph_add(g, POME_OP_read_state, "values", POME_ARGS({P_read_state_input, b->value_cache}));
}

/* Writes rows [begin, end) of a layer to the cache and gives rows [0, end): [1, kv heads, end, head_dim]. *cache is the
 * state's contents as last read. */
static pome_value *through_cache(pome_lm_graph *b, const char *name, pome_value *state, pome_value **cache,
                                 pome_value *rows, int64_t layer)
{
    pome_graph *g = &b->g;
    const pome_lm_config *c = b->config;
    int32_t at = (int32_t)layer, heads = (int32_t)c->n_kv_heads, dim = (int32_t)c->head_dim, n = (int32_t)b->context;
    char text[64];
    snprintf(text, sizeof text, "%s_rows", name);
    rows = pome_graph_add(g, POME_OP_expand_dims, text,
                          POME_ARGS({P_expand_dims_x, rows}, {P_expand_dims_axes, POME_INTS(g, 0)}));
    snprintf(text, sizeof text, "%s_from", name);
    pome_value *from = pome_graph_concat(g, text, 0, 3,
                                         (pome_value *const[]){POME_INTS(g, at, 0, 0), b->begin, POME_INTS(g, 0)});
    snprintf(text, sizeof text, "%s_to", name);
    pome_value *to = pome_graph_concat(
        g, text, 0, 3, (pome_value *const[]){POME_INTS(g, at + 1, 1, heads), b->end, POME_INTS(g, dim)});
    snprintf(text, sizeof text, "%s_updated", name);
    pome_value *updated = pome_graph_add(g, POME_OP_slice_update, text,
                                         POME_ARGS({P_slice_update_x, *cache}, {P_slice_update_update, rows},
                                                   {P_slice_update_begin, from}, {P_slice_update_end, to}));
    snprintf(text, sizeof text, "%s_write_state", name);
    pome_graph_add(g, POME_OP_write_state, text, POME_ARGS({P_write_state_input, state}, {P_write_state_data, updated}));
    snprintf(text, sizeof text, "%s_cache", name);
    *cache = pome_graph_add(g, POME_OP_read_state, text, POME_ARGS({P_read_state_input, state}));
    snprintf(text, sizeof text, "%s_layer", name);
    pome_value *mine = pome_graph_add(
        g, POME_OP_slice_by_index, text,
        POME_ARGS({P_slice_by_index_x, *cache}, {P_slice_by_index_begin, POME_INTS(g, at, 0, 0, 0, 0)},
                  {P_slice_by_index_end, POME_INTS(g, at + 1, 1, heads, n, dim)},
                  {P_slice_by_index_squeeze_mask, POME_BOOLS(g, true, false, false, false, false)}));
    snprintf(text, sizeof text, "%s_all", name);
    return pome_graph_add(g, POME_OP_slice_by_index, text,
                          POME_ARGS({P_slice_by_index_x, mine}, {P_slice_by_index_begin, POME_INTS(g, 0, 0, 0, 0)},
                                    {P_slice_by_index_end, b->read_to},
                                    {P_slice_by_index_end_mask, POME_BOOLS(g, true, true, false, true)}));
}

pome_value *pome_lm_cached_keys(pome_lm_graph *b, pome_value *rows, int64_t layer)
{
    return through_cache(b, "k", b->key_cache, &b->keys, rows, layer);
}

pome_value *pome_lm_cached_values(pome_lm_graph *b, pome_value *rows, int64_t layer)
{
    return through_cache(b, "v", b->value_cache, &b->values, rows, layer);
}
