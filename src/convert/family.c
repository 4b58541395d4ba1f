#include <inttypes.h>
#include <math.h>

#include "base/error.h"
#include "convert/lm_config.h"

static const pome_lm_family families[] = {
    {.model_type = "llama", .gguf = "llama", .gguf_interleaved = true},
    {.model_type = "mistral"},
    {.model_type = "qwen2", .gguf = "qwen2", .window_is_optional = true},
    {.model_type = "gemma2", .gguf = "gemma2", .has_post_norms = true, .norm_plus_one = true, .scales_embedding = true,
     .window_period = 2, .activation = POME_GELU_TANH, .ties_by_default = true},
    {.model_type = "gemma3_text", .gguf = "gemma3", .has_qk_norm = true, .has_post_norms = true, .norm_plus_one = true,
     .scales_embedding = true, .window_period = 6, .activation = POME_GELU_TANH, .rope_local_theta = 10000,
     .ties_by_default = true},
    {.model_type = "phi3", .gguf = "phi3", .has_fused_rows = true},
    {.model_type = "qwen3", .gguf = "qwen3", .has_qk_norm = true, .window_is_optional = true},
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

bool pome_lm_config_is_local(const pome_lm_config *c, int64_t layer)
{
    int period = c->family->window_period;
    if (c->is_local)
        return c->window > 0 && c->is_local[layer];
    return c->window > 0 && (period == 0 || (layer + 1) % period != 0);
}

static pome_status in_range(const char *what, int64_t v, int64_t max, pome_error *err)
{
    if (v >= 1 && v <= max)
        return POME_OK;
    return pome_fail(err, POME_ERR_FORMAT, "%s is %" PRId64 ", wanted 1 to %" PRId64, what, v, max);
}

pome_status pome_lm_config_check(pome_lm_config *c, pome_error *err)
{
    POME_TRY(in_range("the number of layers", c->n_layers, 4096, err));
    POME_TRY(in_range("the hidden size", c->hidden, 1 << 20, err));
    POME_TRY(in_range("the number of heads", c->n_heads, 4096, err));
    POME_TRY(in_range("the feed-forward size", c->ffn, 1 << 22, err));
    if (c->n_kv_heads == 0)
        c->n_kv_heads = c->n_heads;
    POME_TRY(in_range("the number of key/value heads", c->n_kv_heads, c->n_heads, err));
    if (c->n_heads % c->n_kv_heads != 0)
        return pome_fail(err, POME_ERR_FORMAT, "%" PRId64 " heads cannot share %" PRId64 " key/value heads", c->n_heads,
                         c->n_kv_heads);
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
    if (c->rope.dim == 0)
        c->rope.dim = c->head_dim;
    if (c->rope.dim < 2 || c->rope.dim % 2 != 0 || c->rope.dim > c->head_dim)
        return pome_fail(err, POME_ERR_FORMAT, "%" PRId64 " rotated elements in a head of %" PRId64, c->rope.dim,
                         c->head_dim);
    if (!(c->norm_eps > 0 && c->norm_eps < 1))
        return pome_fail(err, POME_ERR_FORMAT, "the epsilon of the norms is %g, wanted between 0 and 1", c->norm_eps);
    if (!(c->rope.theta > 1 && c->rope.theta < 1e15))
        return pome_fail(err, POME_ERR_FORMAT, "the rotary base is %g, wanted more than 1", c->rope.theta);
    return POME_OK;
}
