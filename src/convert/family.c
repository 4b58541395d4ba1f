#include <inttypes.h>
#include <math.h>

#include "base/error.h"
#include "convert/lm_config.h"

#define BIT(part) (1u << POME_PART_##part)
#define QKV_BIASES (BIT(QUERY) | BIT(KEY) | BIT(VALUE))
#define ATTENTION_BIASES (QKV_BIASES | BIT(OUT))

static const pome_lm_fields usual_fields = {
    .layers = "num_hidden_layers", .hidden = "hidden_size", .heads = "num_attention_heads",
    .kv_heads = "num_key_value_heads", .ffn = "intermediate_size", .positions = "max_position_embeddings",
    .epsilon = "rms_norm_eps", .activation = "hidden_act", .ties = "tie_word_embeddings", .theta = "rope_theta"};
static const pome_lm_fields gemma_fields = {
    .layers = "num_hidden_layers", .hidden = "hidden_size", .heads = "num_attention_heads",
    .kv_heads = "num_key_value_heads", .ffn = "intermediate_size", .positions = "max_position_embeddings",
    .epsilon = "rms_norm_eps", .activation = "hidden_activation", .ties = "tie_word_embeddings",
    .theta = "rope_theta"};
static const pome_lm_fields openelm_fields = {
    .layers = "num_transformer_layers", .hidden = "model_dim", .heads = "num_query_heads", .kv_heads = "num_kv_heads",
    .positions = "max_context_length", .activation = "activation_fn_name", .ties = "share_input_output_layers",
    .theta = "rope_freq_constant"};
static const pome_lm_fields gpt2_fields = {
    .layers = "n_layer", .hidden = "n_embd", .heads = "n_head", .ffn = "n_inner", .positions = "n_positions",
    .epsilon = "layer_norm_epsilon", .activation = "activation_function", .ties = "tie_word_embeddings"};

static const pome_lm_family families[] = {
    {.model_type = "llama", .fields = &usual_fields, .names = &pome_lm_names_llama, .gguf = "llama",
     .gguf_names = &pome_lm_names_gguf, .gguf_interleaved = true, .attention_biases = ATTENTION_BIASES,
     .mlp_biases = BIT(GATE) | BIT(UP) | BIT(DOWN)},
    {.model_type = "mistral", .fields = &usual_fields, .names = &pome_lm_names_llama,
     .window_kind = POME_WINDOW_ALL, .window = 4096},
    {.model_type = "qwen2", .fields = &usual_fields, .names = &pome_lm_names_llama, .gguf = "qwen2",
     .gguf_names = &pome_lm_names_gguf, .window_kind = POME_WINDOW_OPTIONAL, .window = 4096, .biases = QKV_BIASES},
    {.model_type = "qwen3", .fields = &usual_fields, .names = &pome_lm_names_qwen3, .gguf = "qwen3",
     .gguf_names = &pome_lm_names_gguf_qwen3, .window_kind = POME_WINDOW_OPTIONAL, .window = 4096,
     .attention_biases = ATTENTION_BIASES},
    {.model_type = "gemma2", .fields = &gemma_fields, .names = &pome_lm_names_gemma2, .gguf = "gemma2",
     .gguf_names = &pome_lm_names_gguf_gemma2, .norm_plus_one = true, .scales_embedding = true,
     .window_kind = POME_WINDOW_PERIOD, .window_period = 2, .window = 4096, .activation = POME_GELU_TANH,
     .ties_by_default = true, .attention_biases = ATTENTION_BIASES, .query_scalar = 256, .attention_cap = 50,
     .logit_cap = 30},
    {.model_type = "gemma3_text", .fields = &gemma_fields, .names = &pome_lm_names_gemma3, .gguf = "gemma3",
     .gguf_names = &pome_lm_names_gguf_gemma3, .norm_plus_one = true, .scales_embedding = true,
     .window_kind = POME_WINDOW_PERIOD, .window_period = 6, .window = 4096, .activation = POME_GELU_TANH,
     .ties_by_default = true, .attention_biases = ATTENTION_BIASES, .query_scalar = 256, .theta = 1e6,
     .local_theta = 10000},
    {.model_type = "phi3", .fields = &usual_fields, .names = &pome_lm_names_phi3, .gguf = "phi3",
     .gguf_names = &pome_lm_names_gguf_phi3, .window_kind = POME_WINDOW_ALL, .turns_part = true,
     .yarn_is_longrope = true, .original_positions = 4096, .epsilon = 1e-5},
    {.model_type = "openelm", .fields = &openelm_fields, .names = &pome_lm_names_openelm, .gguf = "openelm",
     .gguf_names = &pome_lm_names_gguf_openelm},
    {.model_type = "gpt2", .fields = &gpt2_fields, .names = &pome_lm_names_gpt2, .gguf = "gpt2",
     .gguf_names = &pome_lm_names_gguf_gpt2, .stores_columns = true, .norm = POME_NORM_LAYER,
     .activation = POME_GELU_TANH, .ties_by_default = true, .epsilon = 1e-5,
     .biases = ATTENTION_BIASES | BIT(UP) | BIT(DOWN) | BIT(NORM) | BIT(ATTENTION_NORM) | BIT(MLP_NORM)},
};
#define N_FAMILIES (sizeof families / sizeof families[0])

const pome_lm_family *pome_lm_family_find(const char *model_type)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i].model_type, model_type) == 0)
            return &families[i];
    return NULL;
}

const pome_lm_family *pome_lm_family_find_gguf(pome_str architecture)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (families[i].gguf && pome_str_is(architecture, families[i].gguf))
            return &families[i];
    return NULL;
}

const char *pome_lm_family_list(pome_arena *arena)
{
    const char *text = "";
    for (size_t i = 0; i < N_FAMILIES && text; i++)
        text = pome_arena_printf(arena, "%s%s%s", text, i ? ", " : "", families[i].model_type);
    return text ? text : "";
}

void pome_lm_config_default(pome_lm_config *out, const pome_lm_family *family, const pome_lm_names *names)
{
    *out = (pome_lm_config){.family = family, .names = names, .activation = family->activation,
                            .norm_eps = family->epsilon > 0 ? family->epsilon : 1e-6,
                            .has_qk_norm = names->part[POME_PART_QUERY_NORM] != NULL, .biases = family->biases,
                            .ties = family->ties_by_default, .attention_cap = family->attention_cap,
                            .logit_cap = family->logit_cap};
    out->rope.theta = family->theta > 0 ? family->theta : 10000;
}

bool pome_lm_config_has(const pome_lm_config *c, pome_part part)
{
    if (part == POME_PART_QUERY_NORM || part == POME_PART_KEY_NORM)
        return c->has_qk_norm;
    return c->names->part[part] != NULL;
}

pome_lm_layer pome_lm_config_layer(const pome_lm_config *c, int64_t layer)
{
    int period = c->family->window_period;
    pome_lm_layer l = {.n_heads = c->layer_heads ? c->layer_heads[layer] : c->n_heads,
                       .n_kv_heads = c->layer_kv_heads ? c->layer_kv_heads[layer] : c->n_kv_heads,
                       .ffn = c->layer_ffn ? c->layer_ffn[layer] : c->ffn};
    if (c->is_local)
        l.is_local = c->window > 0 && c->is_local[layer];
    else
        l.is_local = c->window > 0 && (period == 0 || (layer + 1) % period != 0);
    return l;
}

/* ---- checks ---- */

static pome_status in_range(const char *what, int64_t v, int64_t max, pome_error *err)
{
    if (v >= 1 && v <= max)
        return POME_OK;
    return pome_fail(err, POME_ERR_FORMAT, "%s is %" PRId64 ", wanted 1 to %" PRId64, what, v, max);
}

static pome_status check_layers(pome_lm_config *c, pome_error *err)
{
    for (int64_t i = 0; i < c->n_layers; i++) {
        pome_lm_layer l = pome_lm_config_layer(c, i);
        POME_TRY(in_range("the number of heads", l.n_heads, 4096, err));
        POME_TRY(in_range("the feed-forward size", l.ffn, 1 << 22, err));
        POME_TRY(in_range("the number of key/value heads", l.n_kv_heads, l.n_heads, err));
        if (l.n_heads % l.n_kv_heads != 0)
            return pome_fail(err, POME_ERR_FORMAT, "%" PRId64 " heads cannot share %" PRId64 " key/value heads", l.n_heads,
                             l.n_kv_heads);
    }
    return POME_OK;
}

/* Bases in use are 1e4 to 1e8: outside these bounds all elements would turn alike, or one alone. */
#define THETA_MIN 10.0
#define THETA_MAX 1e12

static pome_status check_rope(const char *what, const char *field, const pome_rope *r, int64_t head_dim, pome_error *err)
{
    if (r->dim < 2 || r->dim % 2 != 0 || r->dim > head_dim)
        return pome_fail(err, POME_ERR_FORMAT, "%" PRId64 " %s elements in a head of %" PRId64, r->dim, what, head_dim);
    if (!(r->theta >= THETA_MIN && r->theta <= THETA_MAX))
        return pome_fail(err, POME_ERR_FORMAT, "%s, the base of %s elements, is %g, wanted %g to %g", field, what, r->theta,
                         THETA_MIN, THETA_MAX);
    return POME_OK;
}

pome_status pome_lm_config_check(pome_lm_config *c, pome_error *err)
{
    POME_TRY(in_range("the number of layers", c->n_layers, 4096, err));
    POME_TRY(in_range("the hidden size", c->hidden, 1 << 20, err));
    POME_TRY(in_range("the number of heads", c->n_heads, 4096, err));
    if (c->n_kv_heads == 0) {
        c->n_kv_heads = c->n_heads;
        c->layer_kv_heads = c->layer_heads;
    }
    POME_TRY(check_layers(c, err));
    if (c->head_dim == 0 && c->hidden % c->n_heads != 0)
        return pome_fail(err, POME_ERR_FORMAT, "no head size is given, and %" PRId64 " does not divide by %" PRId64
                         " heads", c->hidden, c->n_heads);
    if (c->head_dim == 0)
        c->head_dim = c->hidden / c->n_heads;
    POME_TRY(in_range("the head size", c->head_dim, 1 << 16, err));
    if (c->query_scale == 0)
        c->query_scale = 1 / sqrt((double)c->head_dim);
    if (!(c->query_scale > 0 && c->query_scale < 1e4) || !(c->attention_cap >= 0) || !(c->logit_cap >= 0))
        return pome_fail(err, POME_ERR_FORMAT, "a query scale of %g, soft caps of %g and %g", c->query_scale,
                         c->attention_cap, c->logit_cap);
    if (!(c->norm_eps > 0 && c->norm_eps < 1))
        return pome_fail(err, POME_ERR_FORMAT, "the epsilon of the norms is %g, wanted between 0 and 1", c->norm_eps);
    if (pome_lm_config_has(c, POME_PART_POSITIONS)) {
        c->rope = c->local_rope = (pome_rope){0};
        return in_range("the number of positions", c->n_positions, 1 << 24, err);
    }
    if (c->rope.dim == 0)
        c->rope.dim = c->head_dim;
    if (c->local_rope.dim == 0 && c->local_rope.theta > 0)
        c->local_rope.dim = c->rope.dim;
    POME_TRY(check_rope("rotated", c->family->fields->theta, &c->rope, c->head_dim, err));
    return c->local_rope.dim ? check_rope("locally rotated", "rope_local_base_freq", &c->local_rope, c->head_dim, err) : POME_OK;
}
