#include "convert/lm_graph.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "convert/lm_blocks.h"
#include "convert/lm_cache.h"

static pome_status no_memory(pome_error *err)
{
    return pome_fail_nomem(err, 0, "the program");
}

/* ---- inputs ---- */

static void make_inputs(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    const char *const *n = pome_lm_graph_names(b);
    b->ids = pome_graph_input(g, n[0], POME_TYPE_TENSOR, POME_DTYPE_I32, 2, (const int64_t[]){1, -1});
    b->mask = pome_graph_input(g, n[1], POME_TYPE_TENSOR, POME_DTYPE_F16, 4, (const int64_t[]){1, 1, -1, -1});
    pome_lm_cache_make(b);
}

const char *const *pome_lm_graph_names(const pome_lm_graph *b)
{
    static const char *const apple[] = {"inputIds", "causalMask", "keyCache", "valueCache"};
    static const char *const snake[] = {"input_ids", "causal_mask", "key_cache", "value_cache"};
    return b->snake_names ? snake : apple;
}

/* Where the call is: as many rows as ids, the last of which is the mask's last column. */
static void make_positions(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    b->n_new = pome_graph_size(g, "n_new", b->ids, 1);
    b->end = pome_graph_size(g, "end", b->mask, 3);
    b->begin = pome_graph_add(g, POME_OP_sub, "begin", POME_ARGS({P_sub_x, b->end}, {P_sub_y, b->n_new}));
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
    pome_value *from = pome_graph_concat(g, text, 0, 2, (pome_value *const[]){b->begin, POME_INTS(g, 0)});
    snprintf(text, sizeof text, "%srotary_to", stem);
    pome_value *to = pome_graph_concat(g, text, 0, 2, (pome_value *const[]){b->end, POME_INTS(g, (int32_t)dim)});
    snprintf(text, sizeof text, "%scos", stem);
    *cos = rows_of(b, text, cos_table, from, to);
    snprintf(text, sizeof text, "%ssin", stem);
    *sin = rows_of(b, text, sin_table, from, to);
}

/* ---- sliding window ---- */

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

/* The mask of layers that see a window of rows: the caller's, and a large negative number where a row is too far back.
 * A context within the window needs none. */
static void make_local_mask(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    int64_t window = b->config->window;
    if (window <= 0 || b->context <= window)
        return;
    pome_value *end = scalar_of(b, "end_scalar", b->end);
    pome_value *rows = count_up(b, "row_positions", scalar_of(b, "begin_scalar", b->begin), end);
    pome_value *columns = count_up(b, "column_positions", pome_graph_int(g, 0), end);
    rows = pome_graph_add(g, POME_OP_expand_dims, "row_positions_tall",
                          POME_ARGS({P_expand_dims_x, rows}, {P_expand_dims_axes, POME_INTS(g, 1)}));
    pome_value *back = pome_graph_add(g, POME_OP_sub, "rows_back", POME_ARGS({P_sub_x, rows}, {P_sub_y, columns}));
    pome_value *is_far = pome_graph_add(
        g, POME_OP_greater_equal, "is_far",
        POME_ARGS({P_greater_equal_x, back}, {P_greater_equal_y, pome_graph_int(g, (int32_t)window)}));
    pome_value *far = pome_graph_add(g, POME_OP_select, "far",
                                     POME_ARGS({P_select_cond, is_far}, {P_select_a, pome_graph_real(g, -32752)},
                                               {P_select_b, pome_graph_real(g, 0)}));
    b->local_mask = pome_graph_add(g, POME_OP_minimum, "local_mask",
                                   POME_ARGS({P_minimum_x, b->mask}, {P_minimum_y, far}));
}

/* ---- layers ---- */

static pome_value *embed(pome_lm_graph *b, pome_value **table)
{
    pome_graph *g = &b->g;
    *table = pome_lm_weight(b, POME_PART_EMBEDDING, 0, "embed_weight", &b->embedding_wish);
    pome_value *x = pome_graph_add(
        g, POME_OP_gather, "embedded",
        POME_ARGS({P_gather_x, *table}, {P_gather_indices, b->ids}, {P_gather_axis, pome_graph_int(g, 0)},
                  {P_gather_batch_dims, pome_graph_int(g, 0)}, {P_gather_validate_indices, pome_graph_bool(g, false)}));
    if (!b->config->family->scales_embedding)
        return x;
    return pome_graph_mul(g, "embedded_scaled", x, pome_graph_real(g, sqrt((double)b->config->hidden)));
}

static pome_value *layer_of(pome_lm_graph *b, pome_value *x, int64_t layer)
{
    pome_graph *g = &b->g;
    int64_t hidden = b->config->hidden;
    snprintf(g->prefix, sizeof g->prefix, "layers_%lld_", (long long)layer);
    pome_value *y = pome_lm_attention(b, pome_lm_norm(b, "attention_norm", x, 3, hidden, POME_PART_ATTENTION_NORM, layer),
                                      layer);
    if (b->config->family->has_post_norms)
        y = pome_lm_norm(b, "attention_post_norm", y, 3, hidden, POME_PART_ATTENTION_POST_NORM, layer);
    x = pome_graph_add2(g, "attended", x, y);
    y = pome_lm_mlp(b, pome_lm_norm(b, "mlp_norm", x, 3, hidden, POME_PART_MLP_NORM, layer), layer);
    if (b->config->family->has_post_norms)
        y = pome_lm_norm(b, "mlp_post_norm", y, 3, hidden, POME_PART_MLP_POST_NORM, layer);
    x = pome_graph_add2(g, "out", x, y);
    g->prefix[0] = '\0';
    return x;
}

static void make_head(pome_lm_graph *b, pome_value *x, pome_value *table)
{
    pome_graph *g = &b->g;
    x = pome_lm_norm(b, "norm", x, 3, b->config->hidden, POME_PART_NORM, 0);
    pome_value *weight = table, *bias = NULL;
    if (b->checkpoint->has_head) {
        weight = pome_lm_weight(b, POME_PART_HEAD, 0, "head_weight", &b->head_wish);
        bias = pome_lm_bias(b, POME_PART_HEAD, 0, "head_bias");
    }
    double cap = b->config->logit_cap;
    const pome_graph_arg args[] = {{P_linear_x, x}, {P_linear_weight, weight}, {P_linear_bias, bias}};
    pome_value *logits = pome_graph_add(g, POME_OP_linear, cap > 0 ? "logits_raw" : "logits", bias ? 3 : 2, args);
    if (cap > 0) {
        logits = pome_graph_mul(g, "logits_scaled", logits, pome_graph_real(g, 1 / cap));
        logits = pome_graph_add(g, POME_OP_tanh, "logits_tanh", POME_ARGS({P_tanh_x, logits}));
        logits = pome_graph_mul(g, "logits", logits, pome_graph_real(g, cap));
    }
    pome_graph_output(g, logits);
}

pome_status pome_lm_graph_build(pome_lm_graph *b, pome_error *err)
{
    b->err = err;
    b->status = POME_OK;
    pome_value *table = NULL;
    if (!pome_graph_init(&b->g, b->program, "main", POME_OPSET_IOS18, POME_DTYPE_F16))
        return no_memory(err);
    make_inputs(b);
    make_positions(b);
    make_rotary(b, "", &b->config->rope, &b->cos, &b->sin);
    if (b->config->window > 0 && b->config->rope_local_theta > 0) {
        const pome_rope local = {.dim = b->config->rope.dim, .theta = b->config->rope_local_theta};
        make_rotary(b, "local_", &local, &b->local_cos, &b->local_sin);
    }
    make_local_mask(b);
    pome_value *x = embed(b, &table);
    for (int64_t layer = 0; layer < b->config->n_layers; layer++)
        x = layer_of(b, x, layer);
    make_head(b, x, table);
    if (b->status != POME_OK)
        return b->status;
    if (b->g.failed)
        return no_memory(err);
    return pome_program_verify(b->program, err);
}

/* ---- description ---- */

pome_status pome_lm_graph_describe(const pome_lm_graph *b, const char *quantize, pome_model_info *out, pome_error *err)
{
    pome_arena *arena = b->program->arena;
    const pome_lm_config *c = b->config;
    const char *const *n = pome_lm_graph_names(b);
    const pome_axis_range one = {1, 1}, any = {1, b->context};
    pome_feature *f = POME_NEW_ARRAY(arena, pome_feature, 5);
    pome_function_info *fn = POME_NEW(arena, pome_function_info);
    pome_metadata_entry *metadata = POME_NEW_ARRAY(arena, pome_metadata_entry, 4);
    const char *text = pome_arena_printf(arena, "%s, %s, context of %lld", c->architecture, quantize,
                                         (long long)b->context);
    if (!f || !fn || !metadata || !text)
        return no_memory(err);
    f[0] = (pome_feature){.name = n[0], .dtype = POME_DTYPE_I32, .rank = 2, .shape = {1, 1}, .is_ranged = true,
                          .range = {one, any}};
    f[1] = (pome_feature){.name = n[1], .dtype = POME_DTYPE_F16, .rank = 4, .shape = {1, 1, 1, 1}, .is_ranged = true,
                          .range = {one, one, any, any}};
    f[2] = (pome_feature){.name = "logits", .dtype = POME_DTYPE_F16, .rank = -1};
    for (int i = 0; i < 2; i++)
        f[3 + i] = (pome_feature){.name = n[2 + i], .dtype = POME_DTYPE_F16, .rank = 5,
                                  .shape = {c->n_layers, 1, c->n_kv_heads, b->context, c->head_dim}};
    *fn = (pome_function_info){.name = "main", .n_inputs = 2, .n_outputs = 1, .n_states = 2, .inputs = f,
                               .outputs = f + 2, .states = f + 3};
    uint32_t n_metadata = 0;
    if (c->name)
        metadata[n_metadata++] = (pome_metadata_entry){"co.huggingface.exporters.name", c->name};
    metadata[n_metadata++] = (pome_metadata_entry){"co.huggingface.exporters.task", "text-generation"};
    metadata[n_metadata++] = (pome_metadata_entry){"co.huggingface.exporters.architecture", c->architecture};
    *out = (pome_model_info){.specification_version = 9, .short_description = text, .n_metadata = n_metadata,
                             .metadata = metadata, .n_functions = 1, .functions = fn};
    return POME_OK;
}
