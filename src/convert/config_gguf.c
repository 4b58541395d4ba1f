/* The configuration in a GGUF file's metadata. */
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "convert/lm_config.h"

typedef struct reader {
    const pome_gguf *gguf;
    pome_str architecture;
} reader;

static void key_of(char key[160], const reader *r, const char *name)
{
    snprintf(key, 160, "%.*s.%s", (int)(r->architecture.len < 60 ? r->architecture.len : 60), r->architecture.ptr, name);
}

static pome_status get_int(const reader *r, const char *name, bool required, int64_t *out, pome_error *err)
{
    char key[160];
    uint64_t v = 0;
    key_of(key, r, name);
    if (!pome_gguf_find(r->gguf, key) && !required)
        return POME_OK;
    if (!pome_gguf_get_uint(r->gguf, key, &v) || v > INT64_MAX)
        return pome_fail(err, POME_ERR_FORMAT, "GGUF: %s is %s", key,
                         pome_gguf_find(r->gguf, key) ? "no whole number (sizes that differ by layer cannot be converted)"
                                                      : "missing");
    *out = (int64_t)v;
    return POME_OK;
}

static void get_real(const reader *r, const char *name, double *out)
{
    char key[160];
    key_of(key, r, name);
    pome_gguf_get_float(r->gguf, key, out);
}

static pome_status read_rope(pome_lm_config *c, const reader *r, pome_error *err)
{
    char key[160];
    pome_str type = {0};
    c->rope.theta = 10000;
    get_real(r, "rope.freq_base", &c->rope.theta);
    POME_TRY(get_int(r, "rope.dimension_count", false, &c->rope.dim, err));
    get_real(r, "rope.scaling.factor", &c->rope.factor);
    POME_TRY(get_int(r, "rope.scaling.original_context_length", false, &c->rope.original, err));
    key_of(key, r, "rope.scaling.type");
    if (!pome_gguf_get_str(r->gguf, key, &type) || pome_str_is(type, "none") || type.len == 0)
        return POME_OK;
    if (pome_str_is(type, "linear"))
        c->rope.kind = POME_ROPE_LINEAR;
    else if (pome_str_is(type, "yarn"))
        c->rope.kind = POME_ROPE_YARN;
    else
        return pome_fail(err, POME_ERR_UNSUPPORTED, "GGUF: rope scaling \"%.*s\" is not known",
                         (int)(type.len < 60 ? type.len : 60), type.ptr);
    c->rope.beta_fast = 32;
    c->rope.beta_slow = 1;
    c->rope.truncate = true;
    if (!(c->rope.factor >= 1) || (c->rope.kind == POME_ROPE_YARN && c->rope.original < 1))
        return pome_fail(err, POME_ERR_FORMAT, "GGUF: rope scaling without a factor of 1 or more and an original length");
    return POME_OK;
}

static pome_status read_config(pome_lm_config *c, const reader *r, pome_error *err)
{
    POME_TRY(get_int(r, "block_count", true, &c->n_layers, err));
    POME_TRY(get_int(r, "embedding_length", true, &c->hidden, err));
    POME_TRY(get_int(r, "feed_forward_length", true, &c->ffn, err));
    POME_TRY(get_int(r, "attention.head_count", true, &c->n_heads, err));
    POME_TRY(get_int(r, "attention.head_count_kv", false, &c->n_kv_heads, err));
    POME_TRY(get_int(r, "attention.key_length", false, &c->head_dim, err));
    POME_TRY(get_int(r, "context_length", false, &c->n_positions, err));
    int64_t n_experts = 0, value_length = c->head_dim;
    POME_TRY(get_int(r, "expert_count", false, &n_experts, err));
    POME_TRY(get_int(r, "attention.value_length", false, &value_length, err));
    if (n_experts > 0)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "GGUF: a mixture of %lld experts cannot be converted",
                         (long long)n_experts);
    if (c->head_dim && value_length != c->head_dim)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "GGUF: keys of %lld elements and values of %lld",
                         (long long)c->head_dim, (long long)value_length);
    c->norm_eps = 1e-6;
    get_real(r, "attention.layer_norm_rms_epsilon", &c->norm_eps);
    POME_TRY(get_int(r, "attention.sliding_window", false, &c->window, err));
    get_real(r, "attn_logit_softcapping", &c->attention_cap);
    get_real(r, "final_logit_softcapping", &c->logit_cap);
    c->rope_local_theta = c->family->rope_local_theta;
    get_real(r, "rope.local.freq_base", &c->rope_local_theta);
    /* The largest Gemmas scale by the width per head, which the file does not say. */
    bool is_gemma = c->family->scales_embedding;
    if (is_gemma && (c->n_layers == 46 || c->n_layers == 62) && c->n_heads > 0)
        c->query_scale = 1 / sqrt((double)(c->hidden / c->n_heads));
    POME_TRY(read_rope(c, r, err));
    return pome_lm_config_check(c, err);
}

pome_status pome_lm_config_read_gguf(pome_lm_config *out, const pome_gguf *gguf, pome_arena *arena, pome_error *err)
{
    reader r = {.gguf = gguf};
    pome_lm_config c = {0};
    if (!pome_gguf_get_str(gguf, "general.architecture", &r.architecture))
        return pome_fail(err, POME_ERR_FORMAT, "GGUF: general.architecture is missing");
    int shown = (int)(r.architecture.len < 60 ? r.architecture.len : 60);
    c.family = pome_lm_family_find_gguf(r.architecture);
    if (!c.family)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "GGUF: architecture \"%.*s\" is not known; these are: %s", shown,
                         r.architecture.ptr, pome_lm_family_list(arena));
    c.architecture = pome_arena_strndup(arena, r.architecture.ptr, (size_t)shown);
    c.activation = c.family->activation;
    c.ties = true; /* a GGUF file leaves out the head that is the embedding */
    POME_TRY(read_config(&c, &r, err));
    *out = c;
    return POME_OK;
}
