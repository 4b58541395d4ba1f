#include "convert/lm_window.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "convert/lm_blocks.h"
#include "convert/lm_features.h"

enum { N = POME_LM_WINDOW_NEW, CONTEXT = POME_LM_WINDOW_CONTEXT, CACHED = POME_LM_WINDOW_CACHED, SIDE = 8 };
/* Rows of a head that go into one convolution: more than the Neural Engine takes are cut into several outputs. */
enum { HEAD_ROWS_MAX = 16384 };

pome_status pome_lm_window_check(const pome_lm_config *c, pome_error *err)
{
    static const char *const who = "--chunk-style llm-cli";
    if (c->rope.dim == 0)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "%s: %s has learned positions, which end, while those of a window go on",
                         who, c->architecture);
    if (c->rope.kind == POME_ROPE_DYNAMIC || c->rope.kind == POME_ROPE_LONGROPE)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "%s: the frequencies of %s scaling depend on the length of the text", who,
                         c->rope.kind == POME_ROPE_DYNAMIC ? "dynamic" : "longrope");
    if (c->layer_kv_heads)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "%s: %s has another number of key/value heads in each layer, one "
                         "cache-processor cannot serve all", who, c->architecture);
    if (c->family->norm != POME_NORM_RMS)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "%s: %s has norms that take the mean off", who, c->architecture);
    return POME_OK;
}

static const int64_t hidden_rank = 4;

static void hidden_shape(const pome_lm_graph *b, int64_t shape[4]) /* [1, hidden, 8, 8]: tokens in rows of 8 */
{
    const int64_t s[4] = {1, b->config->hidden, SIDE, SIDE};
    memcpy(shape, s, sizeof s);
}

static pome_value *fixed_input(pome_lm_graph *b, const char *name, pome_dtype dtype, int32_t rank, const int64_t *shape)
{
    pome_axis_range range[POME_MAX_RANK];
    for (int32_t i = 0; i < rank; i++)
        range[i] = (pome_axis_range){shape[i], shape[i]};
    return pome_lm_input(b, name, dtype, rank, range);
}

/* ---- first: embedding, rotary tables, mask ---- */

static pome_value *count(pome_lm_graph *b, const char *name, int32_t n)
{
    pome_graph *g = &b->g;
    return pome_graph_add(g, POME_OP_range_1d, name,
                          POME_ARGS({P_range_1d_start, pome_graph_int(g, 0)}, {P_range_1d_end, pome_graph_int(g, n)},
                                    {P_range_1d_step, pome_graph_int(g, 1)}));
}

static pome_value *cast(pome_lm_graph *b, const char *name, pome_value *x, const char *dtype)
{
    return pome_graph_add(&b->g, POME_OP_cast, name, POME_ARGS({P_cast_x, x}, {P_cast_dtype, pome_graph_text(&b->g, dtype)}));
}

/* Rows of cos and sin: those of layers with a window, where they differ, below the others. */
static int64_t rotary_rows(const pome_lm_config *c)
{
    return c->rope.dim + (c->window > 0 ? c->local_rope.dim : 0);
}

/* Inverse frequencies [rows, 1] as fp32, and what cos and sin are multiplied by; NULL: by 1. */
static void make_frequencies(pome_lm_graph *b, pome_value **inverse, pome_value **factors)
{
    const pome_lm_config *c = b->config;
    int64_t n = rotary_rows(c), at = 0;
    double *inv = malloc((size_t)n * sizeof *inv);
    float *rows = malloc(2 * (size_t)n * sizeof *rows);
    bool is_scaled = false;
    if (!inv || !rows)
        b->g.failed = true;
    for (const pome_rope *rope = &c->rope; !b->g.failed && at < n; rope = &c->local_rope) {
        double factor = pome_rope_attention_factor(rope);
        pome_rope_frequencies(inv, rope, 0);
        is_scaled = is_scaled || fabs(factor - 1) > 1e-9;
        for (int64_t i = 0; i < rope->dim; i++, at++) {
            rows[at] = (float)inv[i % (rope->dim / 2)];
            rows[n + at] = (float)factor;
        }
    }
    if (!b->g.failed)
        *inverse = pome_weight_plan_add_table(b->plan, &b->g, "frequencies", rows, n, 1, &b->status, b->err);
    if (!b->g.failed && is_scaled)
        *factors = pome_weight_plan_add_table(b->plan, &b->g, "rotary_factors", rows + n, n, 1, &b->status, b->err);
    free(inv);
    free(rows);
}

/* cos and sin [rows, 64] of positions length - 64 .. length - 1. Angles are fp32: halves are too coarse for positions. */
static void make_rotary(pome_lm_graph *b, pome_value *length, pome_value *steps)
{
    pome_graph *g = &b->g;
    pome_value *inverse = NULL, *factors = NULL;
    pome_value *first = pome_graph_add(g, POME_OP_sub, "first_position",
                                       POME_ARGS({P_sub_x, length}, {P_sub_y, pome_graph_int(g, N)}));
    pome_value *positions = cast(b, "positions_real", pome_graph_add2(g, "positions", steps, first), "fp32");
    g->real = POME_DTYPE_F32;
    make_frequencies(b, &inverse, &factors);
    g->real = POME_DTYPE_F16;
    pome_value *angles = pome_graph_mul(g, "angles", inverse, positions);
    pome_value *tables[2] = {pome_graph_add(g, POME_OP_cos, "cos_wide", POME_ARGS({P_cos_x, angles})),
                             pome_graph_add(g, POME_OP_sin, "sin_wide", POME_ARGS({P_sin_x, angles}))};
    for (int i = 0; i < 2; i++) {
        if (factors)
            tables[i] = pome_graph_mul(g, i ? "sin_scaled" : "cos_scaled", tables[i], factors);
        pome_lm_output(b, cast(b, i ? "sin_half" : "cos_half", tables[i], "fp16"), i ? "sin" : "cos", POME_DTYPE_F16, 2,
                       (const int64_t[]){rotary_rows(b->config), N});
    }
}

/* [1, 1, 64, 512]: hides columns after the row's own, and those before the first token. */
static void make_mask(pome_lm_graph *b, pome_value *length, pome_value *steps)
{
    pome_graph *g = &b->g;
    pome_value *columns = count(b, "columns", CONTEXT);
    pome_value *rows = pome_graph_add(g, POME_OP_expand_dims, "rows",
                                      POME_ARGS({P_expand_dims_x, pome_graph_add2(g, "own_columns", steps,
                                                                                  pome_graph_int(g, CACHED))},
                                                {P_expand_dims_axes, POME_INTS(g, 1)}));
    pome_value *first = pome_graph_add(g, POME_OP_sub, "first_column",
                                       POME_ARGS({P_sub_x, pome_graph_int(g, CONTEXT)}, {P_sub_y, length}));
    pome_value *is_later = pome_graph_add(g, POME_OP_less, "is_later", POME_ARGS({P_less_x, rows}, {P_less_y, columns}));
    pome_value *is_before = pome_graph_add(g, POME_OP_less, "is_before", POME_ARGS({P_less_x, columns}, {P_less_y, first}));
    pome_value *is_hidden = pome_graph_add(g, POME_OP_logical_or, "is_hidden",
                                           POME_ARGS({P_logical_or_x, is_later}, {P_logical_or_y, is_before}));
    pome_value *mask = pome_graph_mul(g, "mask_rows", cast(b, "hidden", is_hidden, "fp16"), pome_graph_real(g, -32752));
    mask = pome_graph_reshape(g, "mask_shaped", mask, POME_INTS(g, 1, 1, N, CONTEXT));
    pome_lm_output(b, mask, "mask", POME_DTYPE_F16, 4, (const int64_t[]){1, 1, N, CONTEXT});
}

static void build_first(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    int64_t shape[4];
    hidden_shape(b, shape);
    b->ids = fixed_input(b, "input_ids", POME_DTYPE_I32, 2, (const int64_t[]){1, N});
    pome_value *length = fixed_input(b, "full_sequence_length", POME_DTYPE_I32, 1, (const int64_t[]){1});
    pome_value *steps = count(b, "steps", N), *table = NULL;
    pome_value *x = pome_lm_embed(b, &table);
    x = pome_graph_transpose(g, "x_columns", x, POME_INTS(g, 0, 2, 1));
    x = pome_graph_reshape(g, "x_shaped", x, POME_INTS(g, 1, (int32_t)b->config->hidden, SIDE, SIDE));
    pome_lm_output(b, x, "x", POME_DTYPE_F16, hidden_rank, shape);
    make_rotary(b, length, steps);
    make_mask(b, length, steps);
}

/* ---- blocks, on channels: x [1, channels, height, width] ---- */

static pome_value *weight_with(pome_lm_graph *b, pome_part part, int64_t layer, bool is_bias, const char *name,
                               const pome_encoding_wish *wish, int32_t unit_axes)
{
    pome_weight w;
    bool found = false;
    if (b->status != POME_OK || b->g.failed)
        return NULL;
    b->status = pome_checkpoint_find(b->checkpoint, part, layer, is_bias, &w, &found, b->err);
    if (b->status != POME_OK || !found)
        return NULL;
    w.unit_axes = unit_axes;
    return pome_weight_plan_add(b->plan, &b->g, name, &w, wish, &b->status, b->err);
}

static pome_value *convolve(pome_lm_graph *b, const char *name, pome_value *x, pome_value *weight, pome_value *bias)
{
    const pome_graph_arg args[] = {{P_conv_x, x}, {P_conv_weight, weight}, {P_conv_bias, bias}};
    return pome_graph_add(&b->g, POME_OP_conv, name, bias ? 3 : 2, args);
}

static pome_value *project(pome_lm_graph *b, const char *name, pome_value *x, pome_part part, int64_t layer)
{
    char text[64];
    bool is_mlp = part == POME_PART_GATE || part == POME_PART_UP || part == POME_PART_DOWN;
    snprintf(text, sizeof text, "%s_weight", name);
    pome_value *weight = weight_with(b, part, layer, false, text, is_mlp ? &b->mlp_wish : &b->attention_wish, 2);
    snprintf(text, sizeof text, "%s_bias", name);
    return convolve(b, name, x, weight, weight_with(b, part, layer, true, text, &b->wish, 0));
}

/* x / rms(x) * weight along `axis` of size `size`, as pome_lm_norm has it. */
static pome_value *norm(pome_lm_graph *b, const char *name, pome_value *x, int32_t axis, int64_t size, pome_part part,
                        int64_t layer)
{
    pome_graph *g = &b->g;
    char text[64];
    snprintf(text, sizeof text, "%s_negative", name);
    pome_value *pair[2] = {x, pome_graph_mul(g, text, x, pome_graph_real(g, -1))};
    snprintf(text, sizeof text, "%s_pair", name);
    pome_value *both = pome_graph_concat(g, text, axis, 2, pair);
    snprintf(text, sizeof text, "%s_scaled", name);
    both = pome_graph_add(g, POME_OP_layer_norm, text,
                          POME_ARGS({P_layer_norm_x, both}, {P_layer_norm_axes, POME_INTS(g, axis)},
                                    {P_layer_norm_epsilon, pome_graph_real(g, b->config->norm_eps)}));
    snprintf(text, sizeof text, "%s_half", name);
    pome_value *half = pome_graph_slice(g, text, both, 4, axis, 0, (int32_t)size);
    snprintf(text, sizeof text, "%s_weight", name);
    return pome_graph_mul(g, name, half, weight_with(b, part, layer, false, text, &b->wish, 3 - axis));
}

/* x [1, heads, head_dim, 64] turned by its positions: x * cos + (-high, low) * sin. */
static pome_value *rotate(pome_lm_graph *b, const char *name, pome_value *x, bool is_local)
{
    pome_graph *g = &b->g;
    bool has_own = is_local && b->local_cos;
    int32_t dim = (int32_t)(has_own ? b->config->local_rope.dim : b->config->rope.dim), head = (int32_t)b->config->head_dim;
    char text[64];
    pome_value *turned = x;
    if (dim < head) {
        snprintf(text, sizeof text, "%s_turning", name);
        turned = pome_graph_slice(g, text, x, 4, 2, 0, dim);
    }
    snprintf(text, sizeof text, "%s_high", name);
    pome_value *high = pome_graph_slice(g, text, turned, 4, 2, dim / 2, dim);
    snprintf(text, sizeof text, "%s_low", name);
    pome_value *low = pome_graph_slice(g, text, turned, 4, 2, 0, dim / 2);
    snprintf(text, sizeof text, "%s_negative", name);
    high = pome_graph_mul(g, text, high, pome_graph_real(g, -1));
    snprintf(text, sizeof text, "%s_swapped", name);
    pome_value *swapped = pome_graph_concat(g, text, 2, 2, (pome_value *const[]){high, low});
    snprintf(text, sizeof text, "%s_cos", name);
    pome_value *straight = pome_graph_mul(g, text, turned, has_own ? b->local_cos : b->cos);
    snprintf(text, sizeof text, "%s_sin", name);
    swapped = pome_graph_mul(g, text, swapped, has_own ? b->local_sin : b->sin);
    snprintf(text, sizeof text, "%s_turned", name);
    turned = pome_graph_add2(g, text, straight, swapped);
    if (dim == head)
        return turned;
    snprintf(text, sizeof text, "%s_passing", name);
    pome_value *rest = pome_graph_slice(g, text, x, 4, 2, dim, head);
    return pome_graph_concat(g, name, 2, 2, (pome_value *const[]){turned, rest});
}

/* [1, heads, head_dim, 64], normalized and turned. */
static pome_value *heads_of(pome_lm_graph *b, const char *name, pome_value *x, pome_part part, int64_t layer)
{
    pome_graph *g = &b->g;
    const pome_lm_config *c = b->config;
    int64_t n_heads = part == POME_PART_QUERY ? c->n_heads : c->n_kv_heads;
    char text[64];
    snprintf(text, sizeof text, "%s_proj", name);
    pome_value *y = project(b, text, x, part, layer);
    snprintf(text, sizeof text, "%s_heads", name);
    y = pome_graph_reshape(g, text, y, POME_INTS(g, 1, (int32_t)n_heads, (int32_t)c->head_dim, N));
    if (c->has_qk_norm) {
        snprintf(text, sizeof text, "%s_norm", name);
        y = norm(b, text, y, 2, c->head_dim, part == POME_PART_QUERY ? POME_PART_QUERY_NORM : POME_PART_KEY_NORM, layer);
    }
    return rotate(b, name, y, pome_lm_config_layer(c, layer).is_local);
}

/* Rows of the cache and of this call: [1, kv heads, head_dim, 512]. `rows` [1, kv heads * head_dim, 1, 64] become an
 * output. */
static pome_value *through_cache(pome_lm_graph *b, const char *letter, pome_value *rows, int64_t layer)
{
    pome_graph *g = &b->g;
    const pome_lm_config *c = b->config;
    int64_t channels = c->n_kv_heads * c->head_dim;
    char name[64];
    snprintf(name, sizeof name, "%s_cache_%" PRId64, letter, layer - b->first_layer);
    pome_value *cached = fixed_input(b, name, POME_DTYPE_F16, 4, (const int64_t[]){1, channels, 1, CACHED});
    snprintf(name, sizeof name, "new_%s_cache_%" PRId64, letter, layer - b->first_layer);
    pome_lm_output(b, rows, name, POME_DTYPE_F16, 4, (const int64_t[]){1, channels, 1, N});
    snprintf(name, sizeof name, "%s_all", letter);
    pome_value *all = pome_graph_concat(g, name, 3, 2, (pome_value *const[]){cached, rows});
    snprintf(name, sizeof name, "%s_all_heads", letter);
    return pome_graph_reshape(g, name, all, POME_INTS(g, 1, (int32_t)c->n_kv_heads, (int32_t)c->head_dim, CONTEXT));
}

/* softmax(q . k + mask) . v. The query heads that share a key/value head are rows of one product. */
static pome_value *attend(pome_lm_graph *b, pome_value *q, pome_value *k, pome_value *v, pome_value *mask)
{
    pome_graph *g = &b->g;
    const pome_lm_config *c = b->config;
    int32_t heads = (int32_t)c->n_heads, kv = (int32_t)c->n_kv_heads, dim = (int32_t)c->head_dim, rows = heads / kv * N;
    double cap = c->attention_cap;
    pome_value *no = pome_graph_bool(g, false), *yes = pome_graph_bool(g, true);
    q = pome_graph_transpose(g, "q_rows", q, POME_INTS(g, 0, 1, 3, 2));
    q = pome_graph_mul(g, "q_scaled", q, pome_graph_real(g, cap > 0 ? c->query_scale / cap : c->query_scale));
    q = pome_graph_reshape(g, "q_groups", q, POME_INTS(g, 1, kv, rows, dim));
    pome_value *s = pome_graph_add(g, POME_OP_matmul, "scores",
                                   POME_ARGS({P_matmul_x, q}, {P_matmul_y, k}, {P_matmul_transpose_x, no},
                                             {P_matmul_transpose_y, no}));
    if (cap > 0) {
        s = pome_graph_add(g, POME_OP_tanh, "scores_tanh", POME_ARGS({P_tanh_x, s}));
        s = pome_graph_mul(g, "scores_capped", s, pome_graph_real(g, cap));
    }
    s = pome_graph_reshape(g, "scores_heads", s, POME_INTS(g, 1, heads, N, CONTEXT));
    s = pome_graph_add2(g, "scores_masked", s, mask);
    s = pome_graph_add(g, POME_OP_softmax, "attention_weights",
                       POME_ARGS({P_softmax_x, s}, {P_softmax_axis, pome_graph_int(g, -1)}));
    s = pome_graph_reshape(g, "weights_groups", s, POME_INTS(g, 1, kv, rows, CONTEXT));
    pome_value *y = pome_graph_add(g, POME_OP_matmul, "attention",
                                   POME_ARGS({P_matmul_x, s}, {P_matmul_y, v}, {P_matmul_transpose_x, no},
                                             {P_matmul_transpose_y, yes}));
    y = pome_graph_reshape(g, "attention_heads", y, POME_INTS(g, 1, heads, N, dim));
    y = pome_graph_transpose(g, "attention_columns", y, POME_INTS(g, 0, 1, 3, 2));
    return pome_graph_reshape(g, "attention_channels", y, POME_INTS(g, 1, heads * dim, SIDE, SIDE));
}

static pome_value *attention(pome_lm_graph *b, pome_value *x, int64_t layer)
{
    pome_graph *g = &b->g;
    const pome_lm_config *c = b->config;
    bool is_local = pome_lm_config_layer(c, layer).is_local;
    x = pome_graph_reshape(g, "attention_in", x, POME_INTS(g, 1, (int32_t)c->hidden, 1, N));
    pome_value *q = heads_of(b, "q", x, POME_PART_QUERY, layer);
    pome_value *k = heads_of(b, "k", x, POME_PART_KEY, layer);
    k = pome_graph_reshape(g, "k_new", k, POME_INTS(g, 1, (int32_t)(c->n_kv_heads * c->head_dim), 1, N));
    pome_value *v = project(b, "v_proj", x, POME_PART_VALUE, layer);
    k = through_cache(b, "k", k, layer);
    v = through_cache(b, "v", v, layer);
    return project(b, "o", attend(b, q, k, v, is_local && b->local_mask ? b->local_mask : b->mask), POME_PART_OUT, layer);
}

static pome_value *mlp(pome_lm_graph *b, pome_value *x, int64_t layer)
{
    pome_value *y;
    if (pome_lm_config_has(b->config, POME_PART_GATE)) {
        y = pome_lm_activate(b, "gate_active", project(b, "gate", x, POME_PART_GATE, layer));
        y = pome_graph_mul(&b->g, "gated", y, project(b, "up", x, POME_PART_UP, layer));
    } else {
        y = pome_lm_activate(b, "up_active", project(b, "up", x, POME_PART_UP, layer));
    }
    return project(b, "down", y, POME_PART_DOWN, layer);
}

static pome_value *layer_of(pome_lm_graph *b, pome_value *x, int64_t layer)
{
    pome_graph *g = &b->g;
    int64_t hidden = b->config->hidden;
    bool has_post_norms = pome_lm_config_has(b->config, POME_PART_ATTENTION_POST_NORM);
    snprintf(g->prefix, sizeof g->prefix, "layers_%lld_", (long long)layer);
    pome_value *y = attention(b, norm(b, "attention_norm", x, 1, hidden, POME_PART_ATTENTION_NORM, layer), layer);
    if (has_post_norms)
        y = norm(b, "attention_post_norm", y, 1, hidden, POME_PART_ATTENTION_POST_NORM, layer);
    x = pome_graph_add2(g, "attended", x, y);
    y = mlp(b, norm(b, "mlp_norm", x, 1, hidden, POME_PART_MLP_NORM, layer), layer);
    if (has_post_norms)
        y = norm(b, "mlp_post_norm", y, 1, hidden, POME_PART_MLP_POST_NORM, layer);
    x = pome_graph_add2(g, "out", x, y);
    g->prefix[0] = '\0';
    return x;
}

/* ---- group ---- */

/* In a window it is always the same columns that lie too far back. */
static void make_local_mask(pome_lm_graph *b)
{
    int64_t window = b->config->window;
    bool is_needed = false;
    for (int64_t i = 0; i < b->n_layers; i++)
        is_needed = is_needed || pome_lm_config_layer(b->config, b->first_layer + i).is_local;
    if (!is_needed || window <= 0 || window >= CONTEXT)
        return;
    float *far = malloc(sizeof *far * N * CONTEXT);
    if (!far) {
        b->g.failed = true;
        return;
    }
    for (int64_t row = 0; row < N; row++)
        for (int64_t column = 0; column < CONTEXT; column++)
            far[row * CONTEXT + column] = CACHED + row - column >= window ? -32752.0f : 0.0f;
    pome_value *table = pome_weight_plan_add_table(b->plan, &b->g, "far", far, N, CONTEXT, &b->status, b->err);
    free(far);
    b->local_mask = pome_graph_add(&b->g, POME_OP_minimum, "local_mask",
                                   POME_ARGS({P_minimum_x, b->mask}, {P_minimum_y, table}));
}

static void make_tables(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    int32_t dim = (int32_t)b->config->rope.dim, all = (int32_t)rotary_rows(b->config);
    bool has_local = all > dim;
    pome_value *cos = fixed_input(b, "cos", POME_DTYPE_F16, 2, (const int64_t[]){all, N});
    pome_value *sin = fixed_input(b, "sin", POME_DTYPE_F16, 2, (const int64_t[]){all, N});
    b->cos = has_local ? pome_graph_slice(g, "global_cos", cos, 2, 0, 0, dim) : cos;
    b->sin = has_local ? pome_graph_slice(g, "global_sin", sin, 2, 0, 0, dim) : sin;
    if (!has_local)
        return;
    b->local_cos = pome_graph_slice(g, "local_cos", cos, 2, 0, dim, all);
    b->local_sin = pome_graph_slice(g, "local_sin", sin, 2, 0, dim, all);
}

static void build_group(pome_lm_graph *b)
{
    int64_t shape[4];
    hidden_shape(b, shape);
    pome_value *x = fixed_input(b, "x", POME_DTYPE_F16, hidden_rank, shape);
    make_tables(b);
    b->mask = fixed_input(b, "mask", POME_DTYPE_F16, 4, (const int64_t[]){1, 1, N, CONTEXT});
    make_local_mask(b);
    for (int64_t i = 0; i < b->n_layers; i++)
        x = layer_of(b, x, b->first_layer + i);
    pome_lm_output(b, x, "new_x", POME_DTYPE_F16, hidden_rank, shape);
    pome_lm_output_first(b);
}

/* ---- head and processors ---- */

static int64_t n_heads_parts(const pome_lm_graph *b)
{
    return (b->checkpoint->n_vocab + HEAD_ROWS_MAX - 1) / HEAD_ROWS_MAX;
}

/* Rows [first, last) of the vocabulary, and the name of their output. */
static void part_of_head(const pome_lm_graph *b, int64_t at, int64_t *first, int64_t *last, char name[64])
{
    int64_t n = n_heads_parts(b), n_vocab = b->checkpoint->n_vocab;
    *first = n_vocab * at / n;
    *last = n_vocab * (at + 1) / n;
    if (n == 1)
        snprintf(name, 64, "logits");
    else
        snprintf(name, 64, "logits_%" PRId64, at);
}

static pome_value *cap_logits(pome_lm_graph *b, pome_value *logits)
{
    pome_graph *g = &b->g;
    double cap = b->config->logit_cap;
    if (cap <= 0)
        return logits;
    logits = pome_graph_mul(g, "logits_scaled", logits, pome_graph_real(g, 1 / cap));
    logits = pome_graph_add(g, POME_OP_tanh, "logits_tanh", POME_ARGS({P_tanh_x, logits}));
    return pome_graph_mul(g, "logits_capped", logits, pome_graph_real(g, cap));
}

static void head_part(pome_lm_graph *b, pome_value *x, const pome_weight *weight, const pome_weight *bias,
                      const pome_encoding_wish *wish, int64_t at)
{
    pome_graph *g = &b->g;
    int64_t first, last;
    char name[64];
    part_of_head(b, at, &first, &last, name);
    pome_weight rows = pome_weight_slice(weight, first, last - first);
    rows.unit_axes = 2;
    pome_value *w = pome_weight_plan_add(b->plan, g, "head_weight", &rows, wish, &b->status, b->err), *extra = NULL;
    if (bias) {
        pome_weight part = pome_weight_slice(bias, first, last - first);
        extra = pome_weight_plan_add(b->plan, g, "head_bias", &part, &b->wish, &b->status, b->err);
    }
    pome_value *y = cap_logits(b, convolve(b, "logits_channels", x, w, extra));
    y = pome_graph_add(g, POME_OP_squeeze, "logits_columns", POME_ARGS({P_squeeze_x, y}, {P_squeeze_axes, POME_INTS(g, 2)}));
    y = pome_graph_transpose(g, "logits_rows", y, POME_INTS(g, 0, 2, 1));
    pome_lm_output(b, y, name, POME_DTYPE_F16, 3, (const int64_t[]){1, N, last - first});
}

static void build_last(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    int64_t shape[4];
    pome_weight weight, bias;
    bool found = false, has_bias = false, has_head = b->checkpoint->has_head;
    hidden_shape(b, shape);
    pome_value *x = fixed_input(b, "x", POME_DTYPE_F16, hidden_rank, shape);
    x = norm(b, "norm", x, 1, b->config->hidden, POME_PART_NORM, 0);
    x = pome_graph_reshape(g, "head_in", x, POME_INTS(g, 1, (int32_t)b->config->hidden, 1, N));
    if (b->status != POME_OK)
        return;
    pome_part part = has_head ? POME_PART_HEAD : POME_PART_EMBEDDING;
    b->status = pome_checkpoint_find(b->checkpoint, part, 0, false, &weight, &found, b->err);
    if (b->status == POME_OK && has_head)
        b->status = pome_checkpoint_find(b->checkpoint, part, 0, true, &bias, &has_bias, b->err);
    for (int64_t i = 0; b->status == POME_OK && found && i < n_heads_parts(b); i++)
        head_part(b, x, &weight, has_bias ? &bias : NULL, has_head ? &b->head_wish : &b->embedding_wish, i);
}

static void build_logit_processor(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    enum { PARTS_MAX = 60 };
    pome_value *parts[PARTS_MAX], *all;
    int64_t n = n_heads_parts(b), first, last;
    char name[64];
    if (n > PARTS_MAX) {
        b->status = pome_fail(b->err, POME_ERR_LIMIT, "a vocabulary of %" PRId64 " is too large for --chunk-style llm-cli",
                              b->checkpoint->n_vocab);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        part_of_head(b, i, &first, &last, name);
        parts[i] = fixed_input(b, name, POME_DTYPE_F16, 3, (const int64_t[]){1, N, last - first});
    }
    all = n > 1 ? pome_graph_concat(g, "all_logits", -1, (size_t)n, parts) : parts[0];
    all = pome_graph_add(g, POME_OP_reduce_argmax, "likeliest",
                         POME_ARGS({P_reduce_argmax_x, all}, {P_reduce_argmax_axis, pome_graph_int(g, -1)},
                                   {P_reduce_argmax_keep_dims, pome_graph_bool(g, false)}));
    pome_lm_output(b, all, "argmax", POME_DTYPE_I32, 2, (const int64_t[]){1, N});
}

/* The last 448 columns of old and new. */
static void build_cache_processor(pome_lm_graph *b)
{
    pome_graph *g = &b->g;
    int64_t channels = b->config->n_kv_heads * b->config->head_dim;
    for (int i = 0; i < 2; i++) {
        char letter = i ? 'v' : 'k', name[64];
        snprintf(name, sizeof name, "old_%c_cache", letter);
        pome_value *old = fixed_input(b, name, POME_DTYPE_F16, 4, (const int64_t[]){1, channels, 1, CACHED});
        snprintf(name, sizeof name, "new_%c_cache", letter);
        pome_value *new = fixed_input(b, name, POME_DTYPE_F16, 4, (const int64_t[]){1, channels, 1, N});
        snprintf(name, sizeof name, "%c_all", letter);
        pome_value *all = pome_graph_concat(g, name, 3, 2, (pome_value *const[]){old, new});
        snprintf(name, sizeof name, "%c_last", letter);
        pome_value *kept = pome_graph_slice(g, name, all, 4, 3, N, CONTEXT);
        snprintf(name, sizeof name, "updated_%c_cache", letter);
        pome_lm_output(b, kept, name, POME_DTYPE_F16, 4, (const int64_t[]){1, channels, 1, CACHED});
    }
}

void pome_lm_window_build(pome_lm_graph *b)
{
    switch (b->role) {
    case POME_LM_FIRST: build_first(b); return;
    case POME_LM_GROUP: build_group(b); return;
    case POME_LM_LAST: build_last(b); return;
    case POME_LM_CACHE_PROCESSOR: build_cache_processor(b); return;
    default: build_logit_processor(b);
    }
}
