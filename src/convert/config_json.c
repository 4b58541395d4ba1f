/* config.json of a Hugging Face folder. */
#include <math.h>

#include "convert/config_fields.h"
#include "text/json_fields.h"

#define CONFIG_BYTES_MAX ((size_t)8 << 20)

/* The repository that the model came from, owner/name. The field may hold a path on somebody's disk instead. */
static const char *repository_of(const pome_config_fields *f)
{
    const char *name = json_string_value(pome_config_field(f, "_name_or_path")), *slash = name ? strchr(name, '/') : NULL;
    bool is_path = !slash || slash == name || !slash[1] || strchr(slash + 1, '/') || name[0] == '.' || name[0] == '~';
    return is_path ? NULL : pome_arena_strndup(f->arena, name, strlen(name));
}

static pome_status read_activation(pome_lm_config *c, const pome_config_fields *f, pome_error *err)
{
    static const struct {
        const char *name;
        pome_activation activation;
    } known[] = {{"silu", POME_SILU}, {"swish", POME_SILU}, {"gelu", POME_GELU}, {"gelu_python", POME_GELU},
                 {"gelu_pytorch_tanh", POME_GELU_TANH}, {"gelu_new", POME_GELU_TANH}, {"gelu_fast", POME_GELU_TANH},
                 {"relu", POME_RELU}};
    const char *name = NULL, *unused = NULL;
    POME_TRY(pome_config_text(f, "hidden_act", &unused, err)); /* beside hidden_activation it says nothing */
    POME_TRY(pome_config_text(f, c->family->fields->activation, &name, err));
    if (!name)
        return POME_OK;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(name, known[i].name) == 0) {
            c->activation = known[i].activation;
            return POME_OK;
        }
    return pome_fail(err, POME_ERR_UNSUPPORTED, "activation \"%.60s\" is not known: silu, gelu, gelu_pytorch_tanh and "
                     "relu are", name);
}

/* ---- sliding windows ---- */

/* Which layers see a window, by name. */
static pome_status read_layer_types(pome_lm_config *c, const json_t *list, pome_arena *arena, pome_error *err)
{
    if (!json_is_array(list) || (int64_t)json_array_size(list) != c->n_layers)
        return pome_fail(err, POME_ERR_FORMAT, "layer_types has %zu entries for %lld layers", json_array_size(list),
                         (long long)c->n_layers);
    bool *is_local = POME_NEW_ARRAY(arena, bool, (size_t)c->n_layers);
    size_t n_local = 0;
    if (!is_local)
        return pome_fail_nomem(err, (size_t)c->n_layers, "layer types");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *type = json_string_value(json_array_get(list, i));
        if (!type || (strcmp(type, "full_attention") != 0 && strcmp(type, "sliding_attention") != 0))
            return pome_fail(err, POME_ERR_UNSUPPORTED, "layer type \"%.60s\" is not known: full_attention and "
                             "sliding_attention are", type ? type : "");
        is_local[i] = type[0] == 's';
        n_local += is_local[i];
    }
    if (n_local && c->window <= 0)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "layer_types has sliding_attention, but there is no sliding_window");
    if (c->window > 0 && c->family->window_kind == POME_WINDOW_ALL && n_local < json_array_size(list))
        return pome_fail(err, POME_ERR_UNSUPPORTED, "layer_types has full_attention: all layers of architecture %s have "
                         "the sliding_window", c->family->model_type);
    c->is_local = is_local;
    return POME_OK;
}

/* Those that follow from a number: all from the first windowed layer on, or all but each n-th. */
static pome_status count_local(pome_lm_config *c, int64_t first, int64_t period, pome_arena *arena, pome_error *err)
{
    bool *is_local = POME_NEW_ARRAY(arena, bool, (size_t)c->n_layers);
    if (!is_local)
        return pome_fail_nomem(err, (size_t)c->n_layers, "layer types");
    for (int64_t i = 0; i < c->n_layers; i++)
        is_local[i] = i >= first && (period < 1 || (i + 1) % period != 0);
    c->is_local = is_local;
    return POME_OK;
}

static pome_status read_window(pome_lm_config *c, const pome_config_fields *f, pome_error *err)
{
    const pome_lm_family *family = c->family;
    bool is_used = family->window_kind != POME_WINDOW_OPTIONAL;
    int64_t first = 28, period = family->window_period; /* 28: what the absent field means */
    if (family->window_kind == POME_WINDOW_NONE)
        return pome_config_field(f, "layer_types") ? read_layer_types(c, pome_config_field(f, "layer_types"), f->arena, err)
                                                   : POME_OK;
    POME_TRY(pome_config_bool(f, "use_sliding_window", &is_used, err));
    c->window = json_object_get(f->object, "sliding_window") ? 0 : family->window; /* null: none */
    POME_TRY(pome_config_int(f, "sliding_window", &c->window, err));
    if (!is_used && c->window > 0 && family->window_kind != POME_WINDOW_OPTIONAL)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "use_sliding_window is false, but architecture %s always uses its "
                         "sliding_window", family->model_type);
    if (!is_used)
        c->window = 0;
    if (pome_config_field(f, "layer_types"))
        return read_layer_types(c, pome_config_field(f, "layer_types"), f->arena, err);
    if (c->window > 0 && family->window_kind == POME_WINDOW_OPTIONAL) {
        POME_TRY(pome_config_int(f, "max_window_layers", &first, err));
        return count_local(c, first, 0, f->arena, err);
    }
    if (family->window_kind != POME_WINDOW_PERIOD)
        return POME_OK;
    POME_TRY(pome_config_int(f, "sliding_window_pattern", &period, err));
    if (period < 1)
        return pome_fail(err, POME_ERR_FORMAT, "sliding_window_pattern is %lld", (long long)period);
    return count_local(c, 0, period, f->arena, err);
}

/* ---- attention ---- */

/* A cap whose null means none, but whose absence means that of the family. */
static pome_status read_cap(double *out, const pome_config_fields *f, const char *name, pome_error *err)
{
    const json_t *v = json_object_get(f->object, name);
    if (v && json_is_null(v))
        *out = 0;
    return pome_config_real(f, name, out, err);
}

static pome_status read_attention(pome_lm_config *c, const pome_config_fields *f, pome_error *err)
{
    const pome_lm_family *family = c->family;
    double scalar = family->query_scalar;
    bool has_biases = false, is_scaled = true;
    if (family->query_scalar > 0) {
        POME_TRY(pome_config_real(f, "query_pre_attn_scalar", &scalar, err));
        POME_TRY(read_cap(&c->attention_cap, f, "attn_logit_softcapping", err));
        POME_TRY(read_cap(&c->logit_cap, f, "final_logit_softcapping", err));
        if (!(scalar > 0))
            return pome_fail(err, POME_ERR_FORMAT, "query_pre_attn_scalar is %g", scalar);
        c->query_scale = 1 / sqrt(scalar);
    }
    if (family->attention_biases) {
        POME_TRY(pome_config_bool(f, "attention_bias", &has_biases, err));
        c->biases |= has_biases ? family->attention_biases : 0;
    }
    if (family->mlp_biases) {
        has_biases = false;
        POME_TRY(pome_config_bool(f, "mlp_bias", &has_biases, err));
        c->biases |= has_biases ? family->mlp_biases : 0;
    }
    POME_TRY(pome_config_bool(f, "scale_attn_weights", &is_scaled, err));
    if (!is_scaled)
        c->query_scale = 1;
    return POME_OK;
}

/* ---- OpenELM ---- */

/* Each layer's width is a multiple of the hidden size, rounded to whole divisors, but not down by a tenth or more. */
static pome_status read_ffn_multipliers(pome_lm_config *c, const pome_config_fields *f, pome_error *err)
{
    double one = 0;
    const double *multipliers = NULL;
    int64_t divisor = 256;
    POME_TRY(pome_config_int(f, "ffn_dim_divisor", &divisor, err));
    if (divisor < 1 || divisor > 1 << 20)
        return pome_fail(err, POME_ERR_FORMAT, "ffn_dim_divisor is %lld", (long long)divisor);
    if (json_is_number(pome_config_field(f, "ffn_multipliers")))
        POME_TRY(pome_config_real(f, "ffn_multipliers", &one, err));
    else
        POME_TRY(pome_config_reals(f, "ffn_multipliers", c->n_layers, &multipliers, err));
    int64_t *sizes = POME_NEW_ARRAY(f->arena, int64_t, (size_t)c->n_layers);
    if (!sizes)
        return pome_fail_nomem(err, (size_t)c->n_layers * sizeof *sizes, "ffn_multipliers");
    for (int64_t i = 0; i < c->n_layers; i++) {
        double wanted = (multipliers ? multipliers[i] : one) * (double)c->hidden;
        if (!(wanted >= 0 && wanted < 1 << 24))
            return pome_fail(err, POME_ERR_FORMAT, "ffn_multipliers make a width of %g", wanted);
        sizes[i] = (int64_t)(wanted + (double)divisor / 2) / divisor * divisor;
        sizes[i] = sizes[i] < divisor ? divisor : sizes[i];
        sizes[i] += (double)sizes[i] < 0.9 * wanted ? divisor : 0;
        c->ffn = sizes[i] > c->ffn ? sizes[i] : c->ffn;
    }
    c->layer_ffn = sizes;
    return POME_OK;
}

static pome_status read_openelm(pome_lm_config *c, const pome_config_fields *f, pome_error *err)
{
    bool is_gated = true;
    const char *norm = "rms_norm";
    c->has_qk_norm = false;
    POME_TRY(pome_config_bool(f, "normalize_qk_projections", &c->has_qk_norm, err));
    POME_TRY(pome_config_bool(f, "ffn_with_glu", &is_gated, err));
    POME_TRY(pome_config_text(f, "normalization_layer_name", &norm, err));
    if (!is_gated)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "ffn_with_glu is false, which cannot be converted");
    if (strcmp(norm, "rms_norm") != 0)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "normalization_layer_name \"%.60s\" is not known: rms_norm is", norm);
    return read_ffn_multipliers(c, f, err);
}

/* ---- the whole ---- */

static pome_status read_sizes(pome_lm_config *c, const pome_config_fields *f, pome_error *err)
{
    const pome_lm_fields *names = c->family->fields;
    POME_TRY(pome_config_need_int(f, names->layers, &c->n_layers, err));
    if (c->n_layers < 1 || c->n_layers > 4096)
        return pome_fail(err, POME_ERR_FORMAT, "%s is %lld, wanted 1 to 4096", names->layers, (long long)c->n_layers);
    POME_TRY(pome_config_need_int(f, names->hidden, &c->hidden, err));
    POME_TRY(pome_config_sizes(f, names->heads, c->n_layers, &c->n_heads, &c->layer_heads, err));
    if (pome_config_field(f, names->kv_heads))
        POME_TRY(pome_config_sizes(f, names->kv_heads, c->n_layers, &c->n_kv_heads, &c->layer_kv_heads, err));
    POME_TRY(pome_config_int(f, "head_dim", &c->head_dim, err));
    POME_TRY(pome_config_int(f, "vocab_size", &c->n_vocab, err));
    POME_TRY(pome_config_int(f, names->positions, &c->n_positions, err));
    POME_TRY(pome_config_real(f, names->epsilon, &c->norm_eps, err));
    POME_TRY(pome_config_bool(f, names->ties, &c->ties, err));
    if (!names->ffn)
        return read_openelm(c, f, err);
    if (pome_config_field(f, names->ffn) || pome_lm_config_has(c, POME_PART_GATE))
        return pome_config_need_int(f, names->ffn, &c->ffn, err);
    c->ffn = c->hidden > 0 && c->hidden < 1 << 24 ? 4 * c->hidden : 0;
    return POME_OK;
}

static pome_status read_config(pome_lm_config *c, const pome_config_fields *f, pome_error *err)
{
    const char *type = NULL;
    const char *architecture = json_string_value(json_array_get(pome_config_field(f, "architectures"), 0));
    POME_TRY(pome_config_text(f, "model_type", &type, err));
    if (!type)
        return pome_fail(err, POME_ERR_FORMAT, "model_type is missing");
    const pome_lm_family *family = pome_lm_family_find(type);
    if (!family)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "architecture \"%.60s\" is not known; these are: %s", type,
                         pome_lm_family_list(f->arena));
    pome_lm_config_default(c, family, family->names);
    POME_TRY(pome_config_read_fp8(c, f, err));
    c->architecture = pome_arena_strndup(f->arena, architecture ? architecture : type,
                                         strlen(architecture ? architecture : type));
    c->name = repository_of(f);
    POME_TRY(read_sizes(c, f, err));
    POME_TRY(read_activation(c, f, err));
    POME_TRY(read_window(c, f, err));
    POME_TRY(read_attention(c, f, err));
    if (!pome_lm_config_has(c, POME_PART_POSITIONS))
        POME_TRY(pome_config_read_rope(c, f, err));
    POME_TRY(pome_config_check_unread(f, family, err));
    return pome_lm_config_check(c, err);
}

pome_status pome_lm_config_read(pome_lm_config *out, const char *path, pome_arena *arena, pome_error *err)
{
    json_t *root = NULL;
    pome_lm_config c = {0};
    pome_strmap read;
    pome_strmap_init(&read, arena);
    POME_TRY(pome_json_read(&root, path, CONFIG_BYTES_MAX, err));
    const pome_config_fields fields = {.object = root, .where = "", .arena = arena, .read = &read};
    pome_status status = json_is_object(root) ? read_config(&c, &fields, err)
                                              : pome_fail(err, POME_ERR_FORMAT, "no JSON object");
    json_decref(root);
    if (status != POME_OK)
        return pome_fail_prefix(err, status, "%s", path);
    *out = c;
    return POME_OK;
}
