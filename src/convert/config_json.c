/* config.json of a Hugging Face folder. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "convert/lm_config.h"
#include "text/json_fields.h"

#define CONFIG_BYTES_MAX ((size_t)8 << 20)

/* A null field counts as missing. */
static const json_t *field(const json_t *object, const char *name)
{
    const json_t *v = json_object_get(object, name);
    return json_is_null(v) ? NULL : v;
}

static pome_status get_int(const json_t *object, const char *name, bool required, int64_t *out, pome_error *err)
{
    const json_t *v = field(object, name);
    if (!v && !required)
        return POME_OK;
    if (!json_is_integer(v))
        return pome_fail(err, POME_ERR_FORMAT, "%s is %s, wanted a whole number", name, v ? "none" : "missing");
    *out = json_integer_value(v);
    return POME_OK;
}

static pome_status get_real(const json_t *object, const char *name, double *out, pome_error *err)
{
    const json_t *v = field(object, name);
    if (!v)
        return POME_OK;
    if (!json_is_number(v))
        return pome_fail(err, POME_ERR_FORMAT, "%s is no number", name);
    *out = json_number_value(v);
    return POME_OK;
}

static void get_bool(const json_t *object, const char *name, bool *out)
{
    const json_t *v = field(object, name);
    if (json_is_boolean(v))
        *out = json_is_true(v);
}

/* The repository that the model came from, owner/name. The field may hold a path on somebody's disk instead. */
static const char *repository_of(const json_t *root, pome_arena *arena)
{
    const char *name = json_string_value(field(root, "_name_or_path")), *slash = name ? strchr(name, '/') : NULL;
    bool is_path = !slash || slash == name || !slash[1] || strchr(slash + 1, '/') || name[0] == '.' || name[0] == '~';
    return is_path ? NULL : pome_arena_strndup(arena, name, strlen(name));
}

/* ---- rotary positions ---- */

static pome_status get_factors(const json_t *object, const char *name, int64_t n, const double **out, pome_arena *arena,
                               pome_error *err)
{
    const json_t *v = field(object, name);
    if (!json_is_array(v) || (int64_t)json_array_size(v) != n)
        return pome_fail(err, POME_ERR_FORMAT, "rope scaling: %s is no list of %lld numbers", name, (long long)n);
    double *list = POME_NEW_ARRAY(arena, double, (size_t)n);
    if (!list)
        return pome_fail_nomem(err, (size_t)n * sizeof *list, name);
    for (int64_t i = 0; i < n; i++) {
        list[i] = json_number_value(json_array_get(v, (size_t)i));
        if (!(list[i] > 0))
            return pome_fail(err, POME_ERR_FORMAT, "rope scaling: %s holds %g", name, list[i]);
    }
    *out = list;
    return POME_OK;
}

static pome_status rope_kind(pome_rope_kind *out, const char *type, pome_error *err)
{
    static const char *const names[] = {"default", "linear", "dynamic", "llama3", "yarn", "longrope"};
    for (int i = 0; i < 6; i++)
        if (strcmp(type, names[i]) == 0) {
            *out = (pome_rope_kind)i;
            return POME_OK;
        }
    if (strcmp(type, "su") == 0) { /* longrope's first name */
        *out = POME_ROPE_LONGROPE;
        return POME_OK;
    }
    return pome_fail(err, POME_ERR_UNSUPPORTED, "rope type \"%.60s\" is not known: default, linear, dynamic, llama3, yarn "
                     "and longrope are", type);
}

static pome_status need_factor(const pome_rope *r, pome_error *err)
{
    bool needs = r->kind != POME_ROPE_PLAIN && r->kind != POME_ROPE_LONGROPE;
    if (needs && !(r->factor >= 1))
        return pome_fail(err, POME_ERR_FORMAT, "rope scaling: factor is %g, wanted 1 or more", r->factor);
    if (r->kind != POME_ROPE_PLAIN && r->kind != POME_ROPE_LINEAR && r->original < 1)
        return pome_fail(err, POME_ERR_FORMAT, "rope scaling: the original number of positions is missing");
    if (r->kind == POME_ROPE_LLAMA3 && !(r->high_freq_factor > r->low_freq_factor && r->low_freq_factor > 0))
        return pome_fail(err, POME_ERR_FORMAT, "rope scaling: low_freq_factor is %g, high_freq_factor %g",
                         r->low_freq_factor, r->high_freq_factor);
    return POME_OK;
}

static pome_status read_scaling(pome_lm_config *c, const json_t *root, const json_t *s, pome_arena *arena, pome_error *err)
{
    pome_rope *r = &c->rope;
    const char *type = json_string_value(field(s, "rope_type"));
    type = type ? type : json_string_value(field(s, "type"));
    if (!type)
        return pome_fail(err, POME_ERR_FORMAT, "rope scaling without a type");
    POME_TRY(rope_kind(&r->kind, type, err));
    r->original = c->n_positions;
    r->beta_fast = 32;
    r->beta_slow = 1;
    r->truncate = true;
    POME_TRY(get_real(s, "factor", &r->factor, err));
    POME_TRY(get_int(root, "original_max_position_embeddings", false, &r->original, err));
    POME_TRY(get_int(s, "original_max_position_embeddings", false, &r->original, err));
    POME_TRY(get_real(s, "low_freq_factor", &r->low_freq_factor, err));
    POME_TRY(get_real(s, "high_freq_factor", &r->high_freq_factor, err));
    POME_TRY(get_real(s, "beta_fast", &r->beta_fast, err));
    POME_TRY(get_real(s, "beta_slow", &r->beta_slow, err));
    POME_TRY(get_real(s, "mscale", &r->mscale, err));
    POME_TRY(get_real(s, "mscale_all_dim", &r->mscale_all_dim, err));
    POME_TRY(get_real(s, "attention_factor", &r->attention_factor, err));
    get_bool(s, "truncate", &r->truncate);
    if (r->kind == POME_ROPE_LONGROPE) {
        POME_TRY(get_factors(s, "short_factor", r->dim / 2, &r->short_factor, arena, err));
        POME_TRY(get_factors(s, "long_factor", r->dim / 2, &r->long_factor, arena, err));
        if (r->original > 0 && !(r->factor > 0))
            r->factor = (double)c->n_positions / (double)r->original;
    }
    return need_factor(r, err);
}

static pome_status read_rope(pome_lm_config *c, const json_t *root, pome_arena *arena, pome_error *err)
{
    const json_t *parameters = field(root, "rope_parameters"), *scaling = field(root, "rope_scaling");
    const json_t *local = field(parameters, "sliding_attention"); /* one set for each kind of layer */
    double part = 1;
    c->rope.theta = 10000;
    c->rope_local_theta = c->family->rope_local_theta;
    POME_TRY(get_real(root, "rope_local_base_freq", &c->rope_local_theta, err));
    POME_TRY(get_real(local, "rope_theta", &c->rope_local_theta, err));
    parameters = field(parameters, "full_attention") ? field(parameters, "full_attention") : parameters;
    POME_TRY(get_real(root, "rope_theta", &c->rope.theta, err));
    POME_TRY(get_real(parameters, "rope_theta", &c->rope.theta, err));
    POME_TRY(get_real(root, "partial_rotary_factor", &part, err));
    POME_TRY(get_real(parameters, "partial_rotary_factor", &part, err));
    if (!(part > 0 && part <= 1))
        return pome_fail(err, POME_ERR_FORMAT, "partial_rotary_factor is %g", part);
    int64_t head_dim = c->head_dim ? c->head_dim : c->n_heads > 0 ? c->hidden / c->n_heads : 0;
    c->rope.dim = (int64_t)((double)head_dim * part);
    const json_t *s = parameters ? parameters : scaling;
    return s ? read_scaling(c, root, s, arena, err) : POME_OK;
}

/* ---- the rest ---- */

static pome_status read_activation(pome_lm_config *c, const json_t *root, pome_error *err)
{
    const char *name = json_string_value(field(root, "hidden_activation"));
    name = name ? name : json_string_value(field(root, "hidden_act"));
    c->activation = c->family->activation;
    if (!name)
        return POME_OK;
    if (strcmp(name, "silu") == 0 || strcmp(name, "swish") == 0)
        c->activation = POME_SILU;
    else if (strcmp(name, "gelu_pytorch_tanh") == 0 || strcmp(name, "gelu_new") == 0)
        c->activation = POME_GELU_TANH;
    else if (strcmp(name, "gelu") == 0)
        c->activation = POME_GELU;
    else
        return pome_fail(err, POME_ERR_UNSUPPORTED, "activation \"%.60s\" is not known: silu, gelu and gelu_pytorch_tanh "
                         "are", name);
    return POME_OK;
}

/* Which layers see a window, by name. */
static pome_status read_layer_types(pome_lm_config *c, const json_t *list, pome_arena *arena, pome_error *err)
{
    if ((int64_t)json_array_size(list) != c->n_layers)
        return pome_fail(err, POME_ERR_FORMAT, "layer_types has %zu entries for %lld layers", json_array_size(list),
                         (long long)c->n_layers);
    bool *is_local = POME_NEW_ARRAY(arena, bool, (size_t)c->n_layers);
    if (!is_local)
        return pome_fail_nomem(err, (size_t)c->n_layers, "layer types");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *type = json_string_value(json_array_get(list, i));
        if (!type || (strcmp(type, "full_attention") != 0 && strcmp(type, "sliding_attention") != 0))
            return pome_fail(err, POME_ERR_UNSUPPORTED, "layer type \"%.60s\" is not known", type ? type : "");
        is_local[i] = type[0] == 's';
    }
    c->is_local = is_local;
    return POME_OK;
}

static pome_status read_window(pome_lm_config *c, const json_t *root, pome_arena *arena, pome_error *err)
{
    bool used = !c->family->window_is_optional;
    int64_t period = c->family->window_period;
    get_bool(root, "use_sliding_window", &used);
    if (used)
        POME_TRY(get_int(root, "sliding_window", false, &c->window, err));
    if (c->window > 0 && json_is_array(field(root, "layer_types")))
        return read_layer_types(c, field(root, "layer_types"), arena, err);
    POME_TRY(get_int(root, "sliding_window_pattern", false, &period, err));
    if (c->window > 0 && (c->family->window_is_optional || period != c->family->window_period))
        return pome_fail(err, POME_ERR_UNSUPPORTED, "which layers have a sliding window is not said by layer_types");
    return POME_OK;
}

static pome_status read_attention(pome_lm_config *c, const json_t *root, pome_error *err)
{
    double scalar = 0;
    POME_TRY(get_real(root, "query_pre_attn_scalar", &scalar, err));
    if (scalar > 0)
        c->query_scale = 1 / sqrt(scalar);
    POME_TRY(get_real(root, "attn_logit_softcapping", &c->attention_cap, err));
    return get_real(root, "final_logit_softcapping", &c->logit_cap, err);
}

static pome_status read_config(pome_lm_config *c, const json_t *root, pome_arena *arena, pome_error *err)
{
    const char *type = json_string_value(field(root, "model_type"));
    const char *architecture = json_string_value(json_array_get(field(root, "architectures"), 0));
    if (!type)
        return pome_fail(err, POME_ERR_FORMAT, "model_type is missing");
    c->family = pome_lm_family_find(type);
    if (!c->family)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "architecture \"%.60s\" is not known; these are: %s", type,
                         pome_lm_family_list(arena));
    if (field(root, "quantization_config") || field(root, "quantization"))
        return pome_fail(err, POME_ERR_UNSUPPORTED, "the checkpoint was quantized by another tool: use the original one");
    c->architecture = pome_arena_strndup(arena, architecture ? architecture : type,
                                         strlen(architecture ? architecture : type));
    c->name = repository_of(root, arena);
    POME_TRY(get_int(root, "num_hidden_layers", true, &c->n_layers, err));
    POME_TRY(get_int(root, "hidden_size", true, &c->hidden, err));
    POME_TRY(get_int(root, "intermediate_size", true, &c->ffn, err));
    POME_TRY(get_int(root, "num_attention_heads", true, &c->n_heads, err));
    POME_TRY(get_int(root, "num_key_value_heads", false, &c->n_kv_heads, err));
    POME_TRY(get_int(root, "head_dim", false, &c->head_dim, err));
    POME_TRY(get_int(root, "max_position_embeddings", false, &c->n_positions, err));
    c->norm_eps = 1e-6;
    POME_TRY(get_real(root, "rms_norm_eps", &c->norm_eps, err));
    c->ties = c->family->ties_by_default;
    get_bool(root, "tie_word_embeddings", &c->ties);
    POME_TRY(read_activation(c, root, err));
    POME_TRY(read_window(c, root, arena, err));
    POME_TRY(read_attention(c, root, err));
    POME_TRY(read_rope(c, root, arena, err));
    return pome_lm_config_check(c, err);
}

pome_status pome_lm_config_read(pome_lm_config *out, const char *path, pome_arena *arena, pome_error *err)
{
    json_t *root = NULL;
    pome_lm_config c = {0};
    POME_TRY(pome_json_read(&root, path, CONFIG_BYTES_MAX, err));
    pome_status status = json_is_object(root) ? read_config(&c, root, arena, err)
                                              : pome_fail(err, POME_ERR_FORMAT, "no JSON object");
    json_decref(root);
    if (status != POME_OK)
        return pome_fail_prefix(err, status, "%s", path);
    *out = c;
    return POME_OK;
}
