#include "convert/lm_cache.h"

#include <stdio.h>

#include "convert/lm_features.h"

/* States per kind: of keys, or of values. */
static int64_t n_states(const pome_lm_graph *b)
{
    return b->cache == POME_LM_CACHE_STACKED ? 1 : b->cache == POME_LM_CACHE_PER_LAYER ? b->n_layers : 0;
}

/* The shape of state `at`; gives its rank. Stacked layers have room for the most heads that a layer has. */
static int32_t shape_of(const pome_lm_graph *b, int64_t at, int64_t shape[5])
{
    const pome_lm_config *c = b->config;
    bool is_stacked = b->cache == POME_LM_CACHE_STACKED;
    int64_t n_heads = is_stacked ? c->n_kv_heads : pome_lm_config_layer(c, b->first_layer + at).n_kv_heads;
    const int64_t one[4] = {1, n_heads, b->context, c->head_dim};
    shape[0] = b->n_layers;
    memcpy(shape + is_stacked, one, sizeof one);
    return is_stacked ? 5 : 4;
}

/* "keyCache", or "keyCache_3". */
static const char *name_of(const pome_lm_graph *b, bool is_value, int64_t at)
{
    const char *stem = pome_lm_graph_names(b)[is_value ? 3 : 2];
    if (b->cache == POME_LM_CACHE_STACKED)
        return stem;
    return pome_arena_printf(b->program->arena, "%s_%lld", stem, (long long)at);
}

void pome_lm_cache_make(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    int64_t shape[5], n = n_states(b);
    b->key_states = POME_NEW_ARRAY(b->program->arena, pome_value *, (size_t)n * 2 + 1);
    b->value_states = b->key_states ? b->key_states + n : NULL;
    for (int64_t i = 0; i < n && !g->failed; i++)
        for (int is_value = 0; is_value < 2; is_value++) {
            int32_t rank = shape_of(b, i, shape);
            const char *name = b->key_states ? name_of(b, is_value, i) : NULL;
            if (!name)
                g->failed = true;
            else
                (is_value ? b->value_states : b->key_states)[i] =
                    pome_lm_state(b, name, rank, shape);
        }
}

void pome_lm_cache_read(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    b->read_to = pome_graph_concat(g, "read_to", 0, 3,
                                   (pome_value *const[]){POME_INTS(g, 1, (int32_t)b->config->n_kv_heads), b->end,
                                                         POME_INTS(g, (int32_t)b->config->head_dim)});
    if (b->cache != POME_LM_CACHE_STACKED || g->failed)
        return;
    b->keys = pome_graph_add(g, POME_OP_read_state, "keys", POME_ARGS({P_read_state_input, b->key_states[0]}));
    b->values = pome_graph_add(g, POME_OP_read_state, "values", POME_ARGS({P_read_state_input, b->value_states[0]}));
}

/* Rows [begin, end) replaced in the contents of a state, from axis `at` of the stacked layers if not negative. */
static pome_value *replace_rows(pome_lm_graph *b, const char *name, pome_value *contents, pome_value *rows, int32_t at,
                                int32_t heads)
{
    pome_graph *g = &b->g;
    int32_t dim = (int32_t)b->config->head_dim;
    char text[64];
    if (at >= 0) {
        snprintf(text, sizeof text, "%s_rows", name);
        rows = pome_graph_add(g, POME_OP_expand_dims, text,
                              POME_ARGS({P_expand_dims_x, rows}, {P_expand_dims_axes, POME_INTS(g, 0)}));
    }
    pome_value *first = at >= 0 ? POME_INTS(g, at, 0, 0) : POME_INTS(g, 0, 0);
    pome_value *last = at >= 0 ? POME_INTS(g, at + 1, 1, heads) : POME_INTS(g, 1, heads);
    snprintf(text, sizeof text, "%s_from", name);
    pome_value *from = pome_graph_concat(g, text, 0, 3, (pome_value *const[]){first, b->begin, POME_INTS(g, 0)});
    snprintf(text, sizeof text, "%s_to", name);
    pome_value *to = pome_graph_concat(g, text, 0, 3, (pome_value *const[]){last, b->end, POME_INTS(g, dim)});
    snprintf(text, sizeof text, "%s_updated", name);
    return pome_graph_add(g, POME_OP_slice_update, text,
                          POME_ARGS({P_slice_update_x, contents}, {P_slice_update_update, rows},
                                    {P_slice_update_begin, from}, {P_slice_update_end, to}));
}

static pome_value *read_state(pome_lm_graph *b, const char *name, pome_value *state)
{
    return pome_graph_add(&b->g, POME_OP_read_state, name, POME_ARGS({P_read_state_input, state}));
}

/* One layer of the stacked contents, of as many heads as it has. */
static pome_value *layer_of(pome_lm_graph *b, const char *name, pome_value *contents, int32_t at, int32_t heads)
{
    pome_graph *g = &b->g;
    int32_t dim = (int32_t)b->config->head_dim, n = (int32_t)b->context;
    return pome_graph_add(
        g, POME_OP_slice_by_index, name,
        POME_ARGS({P_slice_by_index_x, contents}, {P_slice_by_index_begin, POME_INTS(g, at, 0, 0, 0, 0)},
                  {P_slice_by_index_end, POME_INTS(g, at + 1, 1, heads, n, dim)},
                  {P_slice_by_index_squeeze_mask, POME_BOOLS(g, true, false, false, false, false)}));
}

/* *contents: of the stacked state as last read. */
static pome_value *through_state(pome_lm_graph *b, const char *name, pome_value *const *states, pome_value **contents,
                                 pome_value *rows, int64_t layer)
{
    pome_graph *g = &b->g;
    bool is_stacked = b->cache == POME_LM_CACHE_STACKED;
    int32_t at = (int32_t)(layer - b->first_layer), heads = (int32_t)pome_lm_config_layer(b->config, layer).n_kv_heads;
    char text[64];
    if (b->cache == POME_LM_CACHE_NONE)
        return rows;
    if (g->failed)
        return NULL;
    pome_value *state = states[is_stacked ? 0 : at];
    snprintf(text, sizeof text, "%s_before", name);
    pome_value *before = is_stacked ? *contents : read_state(b, text, state);
    pome_value *updated = replace_rows(b, name, before, rows, is_stacked ? at : -1, heads);
    snprintf(text, sizeof text, "%s_write_state", name);
    pome_graph_add(g, POME_OP_write_state, text, POME_ARGS({P_write_state_input, state}, {P_write_state_data, updated}));
    snprintf(text, sizeof text, "%s_cache", name);
    pome_value *after = read_state(b, text, state);
    if (is_stacked) {
        *contents = after;
        snprintf(text, sizeof text, "%s_layer", name);
        after = layer_of(b, text, after, at, heads);
    }
    snprintf(text, sizeof text, "%s_all", name);
    return pome_graph_add(g, POME_OP_slice_by_index, text,
                          POME_ARGS({P_slice_by_index_x, after}, {P_slice_by_index_begin, POME_INTS(g, 0, 0, 0, 0)},
                                    {P_slice_by_index_end, b->read_to},
                                    {P_slice_by_index_end_mask, POME_BOOLS(g, true, true, false, true)}));
}

pome_value *pome_lm_cached_keys(pome_lm_graph *b, pome_value *rows, int64_t layer)
{
    return through_state(b, "k", b->key_states, &b->keys, rows, layer);
}

pome_value *pome_lm_cached_values(pome_lm_graph *b, pome_value *rows, int64_t layer)
{
    return through_state(b, "v", b->value_states, &b->values, rows, layer);
}
