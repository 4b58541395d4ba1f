#include "convert/lm_graph.h"

#include <math.h>
#include <stdio.h>

#include "convert/lm_blocks.h"
#include "convert/lm_features.h"
#include "convert/lm_inputs.h"
#include "convert/lm_window.h"

static pome_status no_memory(pome_error *err)
{
    return pome_fail_nomem(err, 0, "the program");
}

/* ---- layers ---- */

/* Learned positions: the rows of this call of their table. */
static pome_value *add_positions(pome_lm_graph *b, pome_value *x)
{
    static const pome_encoding_wish dense = {.form = POME_FORM_HALF};
    pome_graph *g = &b->g;
    pome_value *table = pome_lm_weight(b, POME_PART_POSITIONS, 0, "position_weight", &dense);
    return pome_graph_add2(g, "embedded_positions", x,
                           pome_lm_rows_of_call(b, "positions", table, b->config->hidden));
}

pome_value *pome_lm_embed(pome_lm_graph *b, pome_value **table)
{
    pome_graph *g = &b->g;
    *table = pome_lm_weight(b, POME_PART_EMBEDDING, 0, "embed_weight", &b->embedding_wish);
    const pome_graph_arg args[] = {
        {P_gather_x, *table}, {P_gather_indices, b->ids}, {P_gather_axis, pome_graph_int(g, 0)},
        {P_gather_batch_dims, pome_graph_int(g, 0)}, {P_gather_validate_indices, pome_graph_bool(g, false)}};
    pome_value *x = pome_graph_add(g, POME_OP_gather, "embedded", b->opset < POME_OPSET_IOS17 ? 4 : 5, args);
    if (b->config->family->scales_embedding)
        x = pome_graph_mul(g, "embedded_scaled", x, pome_graph_real(g, sqrt((double)b->config->hidden)));
    return pome_lm_config_has(b->config, POME_PART_POSITIONS) ? add_positions(b, x) : x;
}

static pome_value *layer_of(pome_lm_graph *b, pome_value *x, int64_t layer)
{
    pome_graph *g = &b->g;
    int64_t hidden = b->config->hidden;
    snprintf(g->prefix, sizeof g->prefix, "layers_%lld_", (long long)layer);
    pome_value *y = pome_lm_attention(b, pome_lm_norm(b, "attention_norm", x, 3, hidden, POME_PART_ATTENTION_NORM, layer),
                                      layer);
    if (pome_lm_config_has(b->config, POME_PART_ATTENTION_POST_NORM))
        y = pome_lm_norm(b, "attention_post_norm", y, 3, hidden, POME_PART_ATTENTION_POST_NORM, layer);
    x = pome_graph_add2(g, "attended", x, y);
    y = pome_lm_mlp(b, pome_lm_norm(b, "mlp_norm", x, 3, hidden, POME_PART_MLP_NORM, layer), layer);
    if (pome_lm_config_has(b->config, POME_PART_ATTENTION_POST_NORM))
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
    } else if (!table) {
        weight = pome_lm_weight(b, POME_PART_EMBEDDING, 0, "head_weight", &b->embedding_wish);
    }
    double cap = b->config->logit_cap;
    const pome_graph_arg args[] = {{P_linear_x, x}, {P_linear_weight, weight}, {P_linear_bias, bias}};
    pome_value *logits = pome_graph_add(g, POME_OP_linear, "logits_raw", bias ? 3 : 2, args);
    if (cap > 0) {
        logits = pome_graph_mul(g, "logits_scaled", logits, pome_graph_real(g, 1 / cap));
        logits = pome_graph_add(g, POME_OP_tanh, "logits_tanh", POME_ARGS({P_tanh_x, logits}));
        logits = pome_graph_mul(g, "logits_capped", logits, pome_graph_real(g, cap));
    }
    pome_lm_output(b, logits, "logits", b->real, -1, NULL);
}

static void build_program(pome_lm_graph *b)
{
    pome_value *table = NULL, *x;
    pome_lm_inputs_make(b);
    pome_lm_inputs_share(b);
    x = b->x ? b->x : pome_lm_embed(b, &table);
    for (int64_t i = 0; i < b->n_layers; i++)
        x = layer_of(b, x, b->first_layer + i);
    switch (b->role) {
    case POME_LM_FIRST:
        pome_lm_output(b, x, "x", b->real, -1, NULL);
        pome_lm_inputs_pass_on(b);
        return;
    case POME_LM_GROUP: pome_lm_output(b, x, "new_x", b->real, -1, NULL); return;
    default: make_head(b, x, table);
    }
}

pome_status pome_lm_graph_build(pome_lm_graph *b, pome_error *err)
{
    b->err = err;
    b->status = POME_OK;
    if (!pome_graph_init(&b->g, b->program, "main", b->opset, b->real))
        return no_memory(err);
    if (b->has_window)
        pome_lm_window_build(b);
    else
        build_program(b);
    if (b->status != POME_OK)
        return b->status;
    if (b->g.failed)
        return no_memory(err);
    return pome_program_verify(b->program, err);
}
