/* The configuration in a GGUF file's metadata. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/error.h"
#include "base/log.h"
#include "convert/lm_config.h"

typedef struct reader {
    const pome_gguf *gguf;
    pome_arena *arena;
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
                         pome_gguf_find(r->gguf, key) ? "no whole number" : "missing");
    *out = (int64_t)v;
    return POME_OK;
}

/* A whole number, or an array of one for each layer: then *list is set, and *out is the largest. */
static pome_status get_sizes(const reader *r, const char *name, bool required, int64_t n_layers, int64_t *out,
                             const int64_t **list, pome_error *err)
{
    char key[160];
    key_of(key, r, name);
    const pome_gguf_entry *e = pome_gguf_find(r->gguf, key);
    if (!e || e->type != POME_GGUF_ARRAY)
        return get_int(r, name, required, out, err);
    if (e->element == POME_GGUF_STRING || e->count != (uint64_t)n_layers)
        return pome_fail(err, POME_ERR_FORMAT, "GGUF: %s is no array of %" PRId64 " numbers", key, n_layers);
    int64_t *sizes = POME_NEW_ARRAY(r->arena, int64_t, (size_t)n_layers), most = 0;
    if (!sizes)
        return pome_fail_nomem(err, (size_t)n_layers * sizeof *sizes, key);
    for (int64_t i = 0; i < n_layers; i++) {
        sizes[i] = pome_gguf_element_int(e, (uint64_t)i);
        most = sizes[i] > most ? sizes[i] : most;
    }
    *out = most;
    *list = sizes;
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
    double multiplier = 1;
    get_real(r, "rope.freq_base", &c->rope.theta);
    POME_TRY(get_int(r, "rope.dimension_count", false, &c->rope.dim, err));
    get_real(r, "rope.scaling.factor", &c->rope.factor);
    POME_TRY(get_int(r, "rope.scaling.original_context_length", false, &c->rope.original, err));
    get_real(r, "rope.scaling.attn_factor", &multiplier);
    c->rope.attention_factor = multiplier; /* of longrope; yarn multiplies by it, below */
    key_of(key, r, "rope.scaling.type");
    if (!pome_gguf_get_str(r->gguf, key, &type) || pome_str_is(type, "none") || type.len == 0 ||
        pome_str_is(type, "longrope")) /* its factors are tensors */
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
    get_real(r, "rope.scaling.yarn_beta_fast", &c->rope.beta_fast);
    get_real(r, "rope.scaling.yarn_beta_slow", &c->rope.beta_slow);
    key_of(key, r, "rope.scaling.yarn_log_multiplier");
    if (pome_gguf_find(r->gguf, key))
        return pome_fail(err, POME_ERR_UNSUPPORTED, "GGUF: %s cannot be converted", key);
    if (!(c->rope.factor >= 1) || (c->rope.kind == POME_ROPE_YARN && c->rope.original < 1))
        return pome_fail(err, POME_ERR_FORMAT, "GGUF: rope scaling without a factor of 1 or more and an original length");
    if (!(c->rope.beta_fast > 0 && c->rope.beta_slow > 0 && multiplier > 0))
        return pome_fail(err, POME_ERR_FORMAT, "GGUF: rope scaling with beta_fast %g, beta_slow %g, attn_factor %g",
                         c->rope.beta_fast, c->rope.beta_slow, multiplier);
    c->rope.attention_factor = 0;
    c->rope.attention_factor = multiplier * pome_rope_attention_factor(&c->rope);
    return POME_OK;
}

static pome_status read_window(pome_lm_config *c, const reader *r, pome_error *err)
{
    char key[160];
    int64_t period = c->family->window_period;
    bool is_periodic = c->family->window_kind == POME_WINDOW_PERIOD;
    POME_TRY(get_int(r, "attention.sliding_window", is_periodic, &c->window, err));
    if (c->window > 0 && (c->family->window_kind == POME_WINDOW_NONE || c->family->window_kind == POME_WINDOW_OPTIONAL)) {
        pome_log(POME_LOG_WARN, "GGUF: attention.sliding_window is not used: it does not say for which layers");
        c->window = 0;
    }
    if (!is_periodic)
        return POME_OK;
    key_of(key, r, "attention.sliding_window_pattern");
    const pome_gguf_entry *e = pome_gguf_find(r->gguf, key);
    bool is_list = e && e->type == POME_GGUF_ARRAY;
    if (is_list && (e->element == POME_GGUF_STRING || e->count != (uint64_t)c->n_layers))
        return pome_fail(err, POME_ERR_FORMAT, "GGUF: %s is no array of %" PRId64 " numbers", key, c->n_layers);
    if (!is_list)
        POME_TRY(get_int(r, "attention.sliding_window_pattern", false, &period, err));
    bool *is_local = POME_NEW_ARRAY(r->arena, bool, (size_t)c->n_layers);
    if (!is_local)
        return pome_fail_nomem(err, (size_t)c->n_layers, key);
    for (int64_t i = 0; i < c->n_layers; i++)
        is_local[i] = is_list ? pome_gguf_element_int(e, (uint64_t)i) != 0 : period < 1 || (i + 1) % period != 0;
    c->is_local = is_local;
    return POME_OK;
}

/* What would make another model of it. */
static pome_status refuse_variants(const reader *r, pome_error *err)
{
    static const char *const keys[] = {"expert_count", "logit_scale", "residual_scale", "embedding_scale",
                                       "attention.scale", "attention.clamp_kqv", "attention.max_alibi_bias",
                                       "use_parallel_residual", "attention.key_length_mla"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char key[160];
        double v = 0;
        bool is_on = false;
        key_of(key, r, keys[i]);
        if (!pome_gguf_get_float(r->gguf, key, &v)) {
            uint64_t whole = 0;
            pome_gguf_get_uint(r->gguf, key, &whole);
            v = (double)whole;
        }
        pome_gguf_get_bool(r->gguf, key, &is_on);
        if (v != 0 || is_on)
            return pome_fail(err, POME_ERR_UNSUPPORTED, "GGUF: %s is set, which cannot be converted", key);
    }
    return POME_OK;
}

static pome_status read_sizes(pome_lm_config *c, const reader *r, pome_error *err)
{
    int64_t value_length;
    POME_TRY(get_int(r, "block_count", true, &c->n_layers, err));
    if (c->n_layers < 1 || c->n_layers > 4096)
        return pome_fail(err, POME_ERR_FORMAT, "GGUF: %" PRId64 " layers, wanted 1 to 4096", c->n_layers);
    POME_TRY(get_int(r, "embedding_length", true, &c->hidden, err));
    POME_TRY(get_sizes(r, "feed_forward_length", true, c->n_layers, &c->ffn, &c->layer_ffn, err));
    POME_TRY(get_sizes(r, "attention.head_count", true, c->n_layers, &c->n_heads, &c->layer_heads, err));
    POME_TRY(get_sizes(r, "attention.head_count_kv", false, c->n_layers, &c->n_kv_heads, &c->layer_kv_heads, err));
    POME_TRY(get_int(r, "attention.key_length", false, &c->head_dim, err));
    POME_TRY(get_int(r, "context_length", false, &c->n_positions, err));
    value_length = c->head_dim;
    POME_TRY(get_int(r, "attention.value_length", false, &value_length, err));
    if (c->head_dim && value_length != c->head_dim)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "GGUF: keys of %" PRId64 " elements and values of %" PRId64,
                         c->head_dim, value_length);
    return POME_OK;
}

static pome_status read_config(pome_lm_config *c, const reader *r, pome_error *err)
{
    POME_TRY(read_sizes(c, r, err));
    POME_TRY(refuse_variants(r, err));
    get_real(r, c->family->norm == POME_NORM_RMS ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon",
             &c->norm_eps);
    POME_TRY(read_window(c, r, err));
    get_real(r, "attn_logit_softcapping", &c->attention_cap);
    get_real(r, "final_logit_softcapping", &c->logit_cap);
    /* The largest Gemmas scale by the width per head, which the file does not say. */
    bool is_gemma = c->family->scales_embedding;
    if (is_gemma && (c->n_layers == 46 || c->n_layers == 62) && c->n_heads > 0)
        c->query_scale = 1 / sqrt((double)(c->hidden / c->n_heads));
    POME_TRY(read_rope(c, r, err));
    if (c->family->local_theta > 0) {
        c->local_rope = (pome_rope){.theta = c->family->local_theta};
        get_real(r, "rope.local.freq_base", &c->local_rope.theta);
        get_real(r, "rope.freq_base_swa", &c->local_rope.theta);
    }
    return pome_lm_config_check(c, err);
}

pome_status pome_lm_config_read_gguf(pome_lm_config *out, const pome_gguf *gguf, pome_arena *arena, pome_error *err)
{
    reader r = {.gguf = gguf, .arena = arena};
    pome_lm_config c = {0};
    if (!pome_gguf_get_str(gguf, "general.architecture", &r.architecture))
        return pome_fail(err, POME_ERR_FORMAT, "GGUF: general.architecture is missing");
    int shown = (int)(r.architecture.len < 60 ? r.architecture.len : 60);
    const pome_lm_family *family = pome_lm_family_find_gguf(r.architecture);
    if (!family)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "GGUF: architecture \"%.*s\" is not known; these are: %s", shown,
                         r.architecture.ptr, pome_lm_family_list(arena));
    pome_lm_config_default(&c, family, family->gguf_names);
    c.architecture = pome_arena_strndup(arena, r.architecture.ptr, (size_t)shown);
    c.biases = 0;
    c.rope.theta = 10000;
    c.ties = true; /* a GGUF file leaves out the head that is the embedding */
    POME_TRY(read_config(&c, &r, err));
    *out = c;
    return POME_OK;
}
