#include "convert/lm_blocks.h"

#include <math.h>
#include <stdio.h>

#include "convert/lm_cache.h"

/* ---- weights ---- */

static pome_value *weight_of(pome_lm_graph *b, pome_part part, int64_t layer, bool is_bias, const char *name,
                             const pome_encoding_wish *wish)
{
    pome_weight w;
    bool found = false;
    if (b->status != POME_OK || b->g.failed)
        return NULL;
    b->status = pome_checkpoint_find(b->checkpoint, part, layer, is_bias, &w, &found, b->err);
    if (b->status != POME_OK || !found)
        return NULL;
    return pome_weight_plan_add(b->plan, &b->g, name, &w, wish, &b->status, b->err);
}

pome_value *pome_lm_weight(pome_lm_graph *b, pome_part part, int64_t layer, const char *name,
                           const pome_encoding_wish *wish)
{
    return weight_of(b, part, layer, false, name, wish);
}

pome_value *pome_lm_bias(pome_lm_graph *b, pome_part part, int64_t layer, const char *name)
{
    return weight_of(b, part, layer, true, name, &b->wish);
}

pome_value *pome_lm_linear(pome_lm_graph *b, const char *name, pome_value *x, pome_part part, int64_t layer)
{
    char text[64];
    snprintf(text, sizeof text, "%s_weight", name);
    bool is_mlp = part == POME_PART_GATE || part == POME_PART_UP || part == POME_PART_DOWN;
    pome_value *weight = pome_lm_weight(b, part, layer, text, is_mlp ? &b->mlp_wish : &b->attention_wish);
    snprintf(text, sizeof text, "%s_bias", name);
    pome_value *bias = pome_lm_bias(b, part, layer, text);
    const pome_graph_arg args[] = {{P_linear_x, x}, {P_linear_weight, weight}, {P_linear_bias, bias}};
    return pome_graph_add(&b->g, POME_OP_linear, name, bias ? 3 : 2, args);
}

/* ---- norm ---- */

static pome_value *layer_norm(pome_lm_graph *b, const char *name, pome_value *x, pome_part part, int64_t layer)
{
    pome_graph *g = &b->g;
    char text[64];
    snprintf(text, sizeof text, "%s_weight", name);
    pome_value *weight = pome_lm_weight(b, part, layer, text, &b->wish);
    snprintf(text, sizeof text, "%s_bias", name);
    pome_value *bias = pome_lm_bias(b, part, layer, text);
    const pome_graph_arg args[] = {{P_layer_norm_x, x},
                                   {P_layer_norm_axes, POME_INTS(g, -1)},
                                   {P_layer_norm_epsilon, pome_graph_real(g, b->config->norm_eps)},
                                   {P_layer_norm_gamma, weight},
                                   {P_layer_norm_beta, bias}};
    return pome_graph_add(g, POME_OP_layer_norm, name, bias ? 5 : 4, args);
}

/* The mean of squares of halves overflows from 256 on. Layer normalization of (x, -x), whose mean is 0, is the same
 * and is computed by devices in a wider type. */
pome_value *pome_lm_norm(pome_lm_graph *b, const char *name, pome_value *x, int32_t rank, int64_t size, pome_part part,
                         int64_t layer)
{
    pome_graph *g = &b->g;
    char text[64];
    if (b->config->family->norm == POME_NORM_LAYER)
        return layer_norm(b, name, x, part, layer);
    snprintf(text, sizeof text, "%s_negative", name);
    pome_value *pair[2] = {x, pome_graph_mul(g, text, x, pome_graph_real(g, -1))};
    snprintf(text, sizeof text, "%s_pair", name);
    pome_value *both = pome_graph_concat(g, text, -1, 2, pair);
    snprintf(text, sizeof text, "%s_scaled", name);
    both = pome_graph_add(g, POME_OP_layer_norm, text,
                          POME_ARGS({P_layer_norm_x, both}, {P_layer_norm_axes, POME_INTS(g, -1)},
                                    {P_layer_norm_epsilon, pome_graph_real(g, b->config->norm_eps)}));
    snprintf(text, sizeof text, "%s_half", name);
    pome_value *half = pome_graph_slice_last(g, text, both, rank, 0, (int32_t)size);
    snprintf(text, sizeof text, "%s_weight", name);
    return pome_graph_mul(g, name, half, pome_lm_weight(b, part, layer, text, &b->wish));
}

/* ---- attention ---- */

/* x [1, heads, n, dim] turned by its positions: x * cos + swap(x) * sin, where sin's first half is negative. What
 * rotary.dim leaves of a head passes. */
static pome_value *rotate(pome_lm_graph *b, const char *name, pome_value *x, bool is_local)
{
    pome_graph *g = &b->g;
    const pome_rope *rope = is_local && b->local_cos ? &b->config->local_rope : &b->config->rope;
    int32_t dim = (int32_t)rope->dim, head = (int32_t)b->config->head_dim;
    pome_value *cos = is_local && b->local_cos ? b->local_cos : b->cos;
    pome_value *sin = is_local && b->local_sin ? b->local_sin : b->sin;
    char text[64];
    pome_value *turned = x;
    if (dim < head) {
        snprintf(text, sizeof text, "%s_turning", name);
        turned = pome_graph_slice_last(g, text, x, 4, 0, dim);
    }
    snprintf(text, sizeof text, "%s_high", name);
    pome_value *high = pome_graph_slice_last(g, text, turned, 4, dim / 2, dim);
    snprintf(text, sizeof text, "%s_low", name);
    pome_value *low = pome_graph_slice_last(g, text, turned, 4, 0, dim / 2);
    snprintf(text, sizeof text, "%s_swapped", name);
    pome_value *swapped = pome_graph_concat(g, text, -1, 2, (pome_value *const[]){high, low});
    snprintf(text, sizeof text, "%s_cos", name);
    pome_value *straight = pome_graph_mul(g, text, turned, cos);
    snprintf(text, sizeof text, "%s_sin", name);
    swapped = pome_graph_mul(g, text, swapped, sin);
    snprintf(text, sizeof text, "%s_turned", name);
    turned = pome_graph_add2(g, text, straight, swapped);
    if (dim == head)
        return turned;
    snprintf(text, sizeof text, "%s_passing", name);
    pome_value *rest = pome_graph_slice_last(g, text, x, 4, dim, head);
    return pome_graph_concat(g, name, -1, 2, (pome_value *const[]){turned, rest});
}

/* A projection of x by heads: [1, heads, n, head_dim], normalized and turned where that is wanted. */
static pome_value *heads_of(pome_lm_graph *b, const char *name, pome_value *x, pome_part part, int64_t layer)
{
    pome_graph *g = &b->g;
    const pome_lm_config *c = b->config;
    const pome_lm_layer l = pome_lm_config_layer(c, layer);
    int64_t n_heads = part == POME_PART_QUERY ? l.n_heads : l.n_kv_heads;
    char text[64];
    snprintf(text, sizeof text, "%s_proj", name);
    pome_value *y = pome_lm_linear(b, text, x, part, layer);
    snprintf(text, sizeof text, "%s_heads", name);
    y = pome_graph_reshape(g, text, y, POME_INTS(g, 1, -1, (int32_t)n_heads, (int32_t)c->head_dim));
    if (c->has_qk_norm && part != POME_PART_VALUE) {
        snprintf(text, sizeof text, "%s_norm", name);
        y = pome_lm_norm(b, text, y, 4, c->head_dim, part == POME_PART_QUERY ? POME_PART_QUERY_NORM : POME_PART_KEY_NORM,
                         layer);
    }
    y = pome_graph_transpose(g, name, y, POME_INTS(g, 0, 2, 1, 3));
    return part == POME_PART_VALUE || c->rope.dim == 0 ? y : rotate(b, name, y, l.is_local);
}

/* The queries times what the scores need beyond the operator's own 1 / sqrt(head_dim). */
static pome_value *scale_queries(pome_lm_graph *b, pome_value *q, double factor)
{
    if (fabs(factor - 1) < 1e-9)
        return q;
    return pome_graph_mul(&b->g, "q_scaled", q, pome_graph_real(&b->g, factor));
}

/* softmax(q . k + mask) . v in single steps: where the operator is not known yet, or scores go through
 * cap * tanh(score / cap). */
static pome_value *plain_attention(pome_lm_graph *b, pome_value *q, pome_value *k, pome_value *v, pome_value *mask)
{
    pome_graph *g = &b->g;
    double cap = b->config->attention_cap;
    q = scale_queries(b, q, b->config->query_scale / (cap > 0 ? cap : 1));
    pome_value *no = pome_graph_bool(g, false), *yes = pome_graph_bool(g, true);
    pome_value *s = pome_graph_add(g, POME_OP_matmul, "scores",
                                   POME_ARGS({P_matmul_x, q}, {P_matmul_y, k}, {P_matmul_transpose_x, no},
                                             {P_matmul_transpose_y, yes}));
    if (cap > 0) {
        s = pome_graph_add(g, POME_OP_tanh, "scores_tanh", POME_ARGS({P_tanh_x, s}));
        s = pome_graph_mul(g, "scores_capped", s, pome_graph_real(g, cap));
    }
    s = pome_graph_add2(g, "scores_masked", s, mask);
    s = pome_graph_add(g, POME_OP_softmax, "attention_weights",
                       POME_ARGS({P_softmax_x, s}, {P_softmax_axis, pome_graph_int(g, -1)}));
    return pome_graph_add(g, POME_OP_matmul, "attention",
                          POME_ARGS({P_matmul_x, s}, {P_matmul_y, v}, {P_matmul_transpose_x, no},
                                    {P_matmul_transpose_y, no}));
}

static pome_value *attend(pome_lm_graph *b, pome_value *q, pome_value *k, pome_value *v, pome_value *mask)
{
    if (b->config->attention_cap > 0 || b->opset < POME_OPSET_IOS18)
        return plain_attention(b, q, k, v, mask);
    q = scale_queries(b, q, b->config->query_scale * sqrt((double)b->config->head_dim));
    return pome_graph_add(
        &b->g, POME_OP_scaled_dot_product_attention, "attention",
        POME_ARGS({P_scaled_dot_product_attention_query, q}, {P_scaled_dot_product_attention_key, k},
                  {P_scaled_dot_product_attention_value, v}, {P_scaled_dot_product_attention_attn_mask, mask}));
}

/* [1, kv heads, end, dim] -> [1, heads, end, dim]: each key/value head for its group of query heads. */
static pome_value *repeat_heads(pome_lm_graph *b, const char *name, pome_value *x, const pome_lm_layer *l)
{
    pome_graph *g = &b->g;
    int32_t group = (int32_t)(l->n_heads / l->n_kv_heads);
    char text[64];
    if (group == 1)
        return x;
    snprintf(text, sizeof text, "%s_grouped", name);
    x = pome_graph_add(g, POME_OP_expand_dims, text,
                       POME_ARGS({P_expand_dims_x, x}, {P_expand_dims_axes, POME_INTS(g, 2)}));
    snprintf(text, sizeof text, "%s_tiled", name);
    x = pome_graph_add(g, POME_OP_tile, text, POME_ARGS({P_tile_x, x}, {P_tile_reps, POME_INTS(g, 1, 1, group, 1, 1)}));
    snprintf(text, sizeof text, "%s_repeated", name);
    return pome_graph_reshape(g, text, x, POME_INTS(g, 1, (int32_t)l->n_heads, -1, (int32_t)b->config->head_dim));
}

pome_value *pome_lm_attention(pome_lm_graph *b, pome_value *x, int64_t layer)
{
    pome_graph *g = &b->g;
    const pome_lm_config *c = b->config;
    const pome_lm_layer l = pome_lm_config_layer(c, layer);
    pome_value *mask = l.is_local && b->local_mask ? b->local_mask : b->mask;
    pome_value *q = heads_of(b, "q", x, POME_PART_QUERY, layer);
    pome_value *k = heads_of(b, "k", x, POME_PART_KEY, layer);
    pome_value *v = heads_of(b, "v", x, POME_PART_VALUE, layer);
    k = repeat_heads(b, "k", pome_lm_cached_keys(b, k, layer), &l);
    v = repeat_heads(b, "v", pome_lm_cached_values(b, v, layer), &l);
    pome_value *y = attend(b, q, k, v, mask);
    y = pome_graph_transpose(g, "attention_rows", y, POME_INTS(g, 0, 2, 1, 3));
    y = pome_graph_reshape(g, "attention_flat", y, POME_INTS(g, 1, -1, (int32_t)(l.n_heads * c->head_dim)));
    return pome_lm_linear(b, "o", y, POME_PART_OUT, layer);
}

/* ---- MLP ---- */

pome_value *pome_lm_activate(pome_lm_graph *b, const char *name, pome_value *x)
{
    pome_graph *g = &b->g;
    switch (b->config->activation) {
    case POME_SILU: return pome_graph_add(g, POME_OP_silu, name, POME_ARGS({P_silu_x, x}));
    case POME_RELU: return pome_graph_add(g, POME_OP_relu, name, POME_ARGS({P_relu_x, x}));
    case POME_GELU:
        return pome_graph_add(g, POME_OP_gelu, name, POME_ARGS({P_gelu_x, x}, {P_gelu_mode, pome_graph_text(g, "EXACT")}));
    default:
        return pome_graph_add(g, POME_OP_gelu, name,
                              POME_ARGS({P_gelu_x, x}, {P_gelu_mode, pome_graph_text(g, "TANH_APPROXIMATION")}));
    }
}

pome_value *pome_lm_mlp(pome_lm_graph *b, pome_value *x, int64_t layer)
{
    pome_value *y;
    if (pome_lm_config_has(b->config, POME_PART_GATE)) {
        y = pome_lm_activate(b, "gate_active", pome_lm_linear(b, "gate", x, POME_PART_GATE, layer));
        y = pome_graph_mul(&b->g, "gated", y, pome_lm_linear(b, "up", x, POME_PART_UP, layer));
    } else {
        y = pome_lm_activate(b, "up_active", pome_lm_linear(b, "up", x, POME_PART_UP, layer));
    }
    return pome_lm_linear(b, "down", y, POME_PART_DOWN, layer);
}
