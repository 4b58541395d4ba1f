#include "convert/lm_inputs.h"

#include <stdio.h>
#include <stdlib.h>

#include "convert/lm_cache.h"

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

/* Where the call is: as many rows as ids, the last of which is the mask's last column; without a cache all of them. */
static void make_positions(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    b->n_new = pome_graph_size(g, "n_new", b->ids, 1);
    if (b->cache == POME_LM_CACHE_NONE) {
        b->begin = POME_INTS(g, 0);
        b->end = b->n_new;
        return;
    }
    b->end = pome_graph_size(g, "end", b->mask, 3);
    b->begin = pome_graph_add(g, POME_OP_sub, "begin", POME_ARGS({P_sub_x, b->end}, {P_sub_y, b->n_new}));
}

void pome_lm_inputs_make(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    const char *const *n = pome_lm_graph_names(b);
    b->ids = pome_graph_input(g, n[0], POME_TYPE_TENSOR, POME_DTYPE_I32, 2, (const int64_t[]){1, -1});
    if (b->cache != POME_LM_CACHE_NONE) {
        b->mask = pome_graph_input(g, n[1], POME_TYPE_TENSOR, POME_DTYPE_F16, 4, (const int64_t[]){1, 1, -1, -1});
        pome_lm_cache_make(b);
    }
    make_positions(b);
    if (b->cache != POME_LM_CACHE_NONE)
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
    snprintf(text, sizeof text, "%srotary_from", stem);
    pome_value *from = b->cache == POME_LM_CACHE_NONE
                           ? POME_INTS(g, 0, 0)
                           : pome_graph_concat(g, text, 0, 2, (pome_value *const[]){b->begin, POME_INTS(g, 0)});
    snprintf(text, sizeof text, "%srotary_to", stem);
    pome_value *to = pome_graph_concat(g, text, 0, 2, (pome_value *const[]){b->end, POME_INTS(g, (int32_t)dim)});
    snprintf(text, sizeof text, "%scos", stem);
    *cos = rows_of(b, text, cos_table, from, to);
    snprintf(text, sizeof text, "%ssin", stem);
    *sin = rows_of(b, text, sin_table, from, to);
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

/* Without a cache the causal mask is the program's own. Layers that see a window of rows add to the mask what is too
 * far back; a context within the window needs none. */
static void make_masks(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    int64_t window = b->config->window;
    bool has_window = window > 0 && b->context > window, is_causal = b->cache == POME_LM_CACHE_NONE;
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

void pome_lm_inputs_share(pome_lm_graph *b)
{
    if (b->config->rope.dim > 0)
        make_rotary(b, "", &b->config->rope, &b->cos, &b->sin);
    if (b->config->window > 0 && b->config->local_rope.dim > 0)
        make_rotary(b, "local_", &b->config->local_rope, &b->local_cos, &b->local_sin);
    make_masks(b);
}
