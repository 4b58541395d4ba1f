#include "convert/lm_inputs.h"

#include <stdio.h>
#include <stdlib.h>

#include "convert/lm_cache.h"
#include "convert/lm_features.h"

static pome_status no_memory(pome_error *err)
{
    return pome_fail_nomem(err, 0, "the program");
}

/* ---- inputs ---- */

const char *const *pome_lm_graph_names(const pome_lm_graph *b)
{
    static const char *const apple[] = {"inputIds", "causalMask", "keyCache", "valueCache"};
    static const char *const snake[] = {"input_ids", "causal_mask", "key_cache", "value_cache"};
    return b->snake_names ? snake : apple;
}

static bool has_local_rope(const pome_lm_config *c)
{
    return c->window > 0 && c->local_rope.dim > 0;
}

/* Columns of cos and sin as they go from the first program of a set to the others: those of layers with a window, where
 * they differ, follow the others. */
static int64_t rotary_columns(const pome_lm_config *c)
{
    return c->rope.dim + (has_local_rope(c) ? c->local_rope.dim : 0);
}

/* Where the call is: as many rows as ids, the last of which is the mask's last column; without a cache all of them. */
static void make_positions(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    b->n_new = pome_graph_size(g, "n_new", b->role == POME_LM_GROUP ? b->x : b->ids, 1);
    if (b->cache == POME_LM_CACHE_NONE) {
        b->begin = POME_INTS(g, 0);
        b->end = b->n_new;
        return;
    }
    b->end = pome_graph_size(g, "end", b->mask, 3);
    b->begin = pome_graph_add(g, POME_OP_sub, "begin", POME_ARGS({P_sub_x, b->end}, {P_sub_y, b->n_new}));
}

static void make_middle_inputs(pome_lm_graph *b)
{
    const int64_t hidden = b->config->hidden, columns = rotary_columns(b->config);
    const pome_axis_range any = {1, b->context};
    b->x = pome_lm_input(b, "x", b->real, 3, (const pome_axis_range[]){{1, 1}, any, {hidden, hidden}});
    if (b->role == POME_LM_LAST)
        return;
    if (columns > 0) {
        b->cos = pome_lm_input(b, "cos", b->real, 2, (const pome_axis_range[]){any, {columns, columns}});
        b->sin = pome_lm_input(b, "sin", b->real, 2, (const pome_axis_range[]){any, {columns, columns}});
    }
    b->mask = pome_lm_input(b, "mask", b->real, 4, (const pome_axis_range[]){{1, 1}, {1, 1}, any, any});
}

void pome_lm_inputs_make(pome_lm_graph *b)
{
    const char *const *n = pome_lm_graph_names(b);
    const pome_axis_range any = {1, b->context};
    bool has_cache = b->cache != POME_LM_CACHE_NONE;
    if (b->role == POME_LM_GROUP || b->role == POME_LM_LAST) {
        make_middle_inputs(b);
    } else {
        b->ids = pome_lm_input(b, n[0], POME_DTYPE_I32, 2, (const pome_axis_range[]){{1, 1}, any});
        if (has_cache)
            b->mask = pome_lm_input(b, n[1], POME_DTYPE_F16, 4, (const pome_axis_range[]){{1, 1}, {1, 1}, any, any});
    }
    if (b->role == POME_LM_LAST)
        return;
    if (has_cache && b->role != POME_LM_FIRST)
        pome_lm_cache_make(b);
    make_positions(b);
    if (has_cache && b->role != POME_LM_FIRST)
        pome_lm_cache_read(b);
}

/* ---- rotary tables ---- */

static pome_value *rows_of(pome_lm_graph *b, const char *name, pome_value *table, pome_value *from, pome_value *to)
{
    return pome_graph_add(&b->g, POME_OP_slice_by_index, name,
                          POME_ARGS({P_slice_by_index_x, table}, {P_slice_by_index_begin, from},
                                    {P_slice_by_index_end, to},
                                    {P_slice_by_index_end_mask, POME_BOOLS(&b->g, false, true)}));
}

pome_value *pome_lm_rows_of_call(pome_lm_graph *b, const char *name, pome_value *table, int64_t n_cols)
{
    pome_graph *g = &b->g;
    char text[64];
    snprintf(text, sizeof text, "%s_from", name);
    pome_value *from = b->cache == POME_LM_CACHE_NONE
                           ? POME_INTS(g, 0, 0)
                           : pome_graph_concat(g, text, 0, 2, (pome_value *const[]){b->begin, POME_INTS(g, 0)});
    snprintf(text, sizeof text, "%s_to", name);
    pome_value *to = pome_graph_concat(g, text, 0, 2, (pome_value *const[]){b->end, POME_INTS(g, (int32_t)n_cols)});
    return rows_of(b, name, table, from, to);
}

/* Constants [context, dim] and the rows of this call: [n, dim]. The first half of each sine row is negative, see
 * rotate. */
static void make_rotary(pome_lm_graph *b, const char *stem, const pome_rope *rope, pome_value **cos, pome_value **sin)
{
    pome_graph *g = &b->g;
    int64_t n = b->context, dim = rope->dim;
    char text[64];
    if (b->status != POME_OK)
        return;
    size_t count = (size_t)(n * dim);
    float *c = malloc(2 * count * sizeof *c), *s = c ? c + count : NULL;
    b->status = c ? pome_rope_tables(c, s, rope, n, b->err) : no_memory(b->err);
    for (int64_t row = 0; row < n && b->status == POME_OK; row++)
        for (int64_t i = 0; i < dim / 2; i++)
            s[row * dim + i] = -s[row * dim + i];
    snprintf(text, sizeof text, "%scos_table", stem);
    pome_value *cos_table = pome_weight_plan_add_table(b->plan, g, text, c, n, dim, &b->status, b->err);
    snprintf(text, sizeof text, "%ssin_table", stem);
    pome_value *sin_table = pome_weight_plan_add_table(b->plan, g, text, s, n, dim, &b->status, b->err);
    free(c);
    snprintf(text, sizeof text, "%scos_rows", stem);
    *cos = pome_lm_rows_of_call(b, text, cos_table, dim);
    snprintf(text, sizeof text, "%ssin_rows", stem);
    *sin = pome_lm_rows_of_call(b, text, sin_table, dim);
}

/* ---- masks ---- */

static pome_value *count_up(pome_lm_graph *b, const char *name, pome_value *from, pome_value *to)
{
    return pome_graph_add(&b->g, POME_OP_range_1d, name,
                          POME_ARGS({P_range_1d_start, from}, {P_range_1d_end, to},
                                    {P_range_1d_step, pome_graph_int(&b->g, 1)}));
}

static pome_value *scalar_of(pome_lm_graph *b, const char *name, pome_value *x)
{
    return pome_graph_add(&b->g, POME_OP_squeeze, name,
                          POME_ARGS({P_squeeze_x, x}, {P_squeeze_axes, POME_INTS(&b->g, 0)}));
}

/* How far back each column lies from each row: [n, end]. */
static pome_value *make_distances(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    pome_value *end = scalar_of(b, "end_scalar", b->end), *zero = pome_graph_int(g, 0);
    pome_value *begin = b->cache == POME_LM_CACHE_NONE ? zero : scalar_of(b, "begin_scalar", b->begin);
    pome_value *rows = count_up(b, "row_positions", begin, end);
    pome_value *columns = count_up(b, "column_positions", zero, end);
    rows = pome_graph_add(g, POME_OP_expand_dims, "row_positions_tall",
                          POME_ARGS({P_expand_dims_x, rows}, {P_expand_dims_axes, POME_INTS(g, 1)}));
    return pome_graph_add(g, POME_OP_sub, "rows_back", POME_ARGS({P_sub_x, rows}, {P_sub_y, columns}));
}

/* -32752 where hidden: half of the largest half, so that a score added to it cannot become infinite. (Not select: the
 * type that coremltools infers for it takes no account of the condition's shape.) */
static pome_value *hide(pome_lm_graph *b, const char *name, pome_value *is_hidden)
{
    pome_graph *g = &b->g;
    char text[64];
    snprintf(text, sizeof text, "%s_hidden", name);
    pome_value *one = pome_graph_add(
        g, POME_OP_cast, text,
        POME_ARGS({P_cast_x, is_hidden}, {P_cast_dtype, pome_graph_text(g, g->real == POME_DTYPE_F16 ? "fp16" : "fp32")}));
    return pome_graph_mul(g, name, one, pome_graph_real(g, -32752));
}

static bool has_local_layer(const pome_lm_graph *b)
{
    for (int64_t i = 0; i < b->n_layers; i++)
        if (pome_lm_config_layer(b->config, b->first_layer + i).is_local)
            return true;
    return false;
}

/* Without a cache the causal mask is the program's own. Layers that see a window of rows add to the mask what is too
 * far back; a context within the window needs none. */
static void make_masks(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    int64_t window = b->config->window;
    bool has_window = window > 0 && b->context > window && has_local_layer(b), is_causal = b->cache == POME_LM_CACHE_NONE;
    if (!has_window && !is_causal)
        return;
    pome_value *back = make_distances(b);
    if (is_causal)
        b->mask = hide(b, "causal_mask",
                       pome_graph_add(g, POME_OP_less, "is_later",
                                      POME_ARGS({P_less_x, back}, {P_less_y, pome_graph_int(g, 0)})));
    if (!has_window)
        return;
    pome_value *far = hide(b, "far",
                           pome_graph_add(g, POME_OP_greater_equal, "is_far",
                                          POME_ARGS({P_greater_equal_x, back},
                                                    {P_greater_equal_y, pome_graph_int(g, (int32_t)window)})));
    b->local_mask = pome_graph_add(g, POME_OP_minimum, "local_mask",
                                   POME_ARGS({P_minimum_x, b->mask}, {P_minimum_y, far}));
}

static void make_tables(pome_lm_graph *b)
{
    if (b->config->rope.dim > 0)
        make_rotary(b, "", &b->config->rope, &b->cos, &b->sin);
    if (has_local_rope(b->config))
        make_rotary(b, "local_", &b->config->local_rope, &b->local_cos, &b->local_sin);
}

/* Takes cos and sin apart, see rotary_columns. */
static void split_tables(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    int32_t dim = (int32_t)b->config->rope.dim, columns = (int32_t)rotary_columns(b->config);
    pome_value *cos = b->cos, *sin = b->sin;
    if (columns == dim)
        return;
    b->cos = pome_graph_slice_last(g, "global_cos", cos, 2, 0, dim);
    b->sin = pome_graph_slice_last(g, "global_sin", sin, 2, 0, dim);
    b->local_cos = pome_graph_slice_last(g, "local_cos", cos, 2, dim, columns);
    b->local_sin = pome_graph_slice_last(g, "local_sin", sin, 2, dim, columns);
}

void pome_lm_inputs_share(pome_lm_graph *b)
{
    if (b->role == POME_LM_LAST)
        return;
    if (b->role == POME_LM_GROUP)
        split_tables(b);
    else
        make_tables(b);
    if (b->role != POME_LM_FIRST)
        make_masks(b);
}

static pome_value *joined(pome_lm_graph *b, const char *name, pome_value *table, pome_value *local)
{
    return local ? pome_graph_concat(&b->g, name, -1, 2, (pome_value *const[]){table, local}) : table;
}

void pome_lm_inputs_pass_on(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    if (b->cos) {
        pome_lm_output(b, joined(b, "all_cos", b->cos, b->local_cos), "cos", b->real, -1, NULL);
        pome_lm_output(b, joined(b, "all_sin", b->sin, b->local_sin), "sin", b->real, -1, NULL);
    }
    pome_lm_output(b, pome_graph_add(g, POME_OP_identity, "mask_out", POME_ARGS({P_identity_x, b->mask})), "mask", b->real,
                   -1, NULL);
}
