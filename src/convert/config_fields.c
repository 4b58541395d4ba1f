#include "convert/config_fields.h"

#include <inttypes.h>

#include "base/log.h"

const json_t *pome_config_field(const pome_config_fields *f, const char *name)
{
    if (!name)
        return NULL;
    const json_t *v = json_object_get(f->object, name);
    if (f->read && v) /* without memory for it the field is warned about in vain, no more */
        pome_strmap_set(f->read, pome_str_of(name), f->read);
    return json_is_null(v) ? NULL : v;
}

static const char *type_name(const json_t *v)
{
    static const char *const names[] = {"an object", "a list", "a text", "a whole number", "a fraction", "true", "false"};
    return json_typeof(v) <= JSON_FALSE ? names[json_typeof(v)] : "null";
}

static pome_status wrong_type(const pome_config_fields *f, const char *name, const json_t *v, const char *wanted,
                              pome_error *err)
{
    return pome_fail(err, POME_ERR_FORMAT, "%s%s is %s, wanted %s", f->where, name, v ? type_name(v) : "missing", wanted);
}

pome_status pome_config_int(const pome_config_fields *f, const char *name, int64_t *out, pome_error *err)
{
    const json_t *v = pome_config_field(f, name);
    if (v && !json_is_integer(v))
        return wrong_type(f, name, v, "a whole number", err);
    if (v)
        *out = json_integer_value(v);
    return POME_OK;
}

pome_status pome_config_need_int(const pome_config_fields *f, const char *name, int64_t *out, pome_error *err)
{
    if (!pome_config_field(f, name))
        return wrong_type(f, name, NULL, "a whole number", err);
    return pome_config_int(f, name, out, err);
}

pome_status pome_config_real(const pome_config_fields *f, const char *name, double *out, pome_error *err)
{
    const json_t *v = pome_config_field(f, name);
    if (v && !json_is_number(v))
        return wrong_type(f, name, v, "a number", err);
    if (v)
        *out = json_number_value(v);
    return POME_OK;
}

pome_status pome_config_bool(const pome_config_fields *f, const char *name, bool *out, pome_error *err)
{
    const json_t *v = pome_config_field(f, name);
    if (v && !json_is_boolean(v))
        return wrong_type(f, name, v, "true or false", err);
    if (v)
        *out = json_is_true(v);
    return POME_OK;
}

pome_status pome_config_text(const pome_config_fields *f, const char *name, const char **out, pome_error *err)
{
    const json_t *v = pome_config_field(f, name);
    if (v && !json_is_string(v))
        return wrong_type(f, name, v, "a text", err);
    if (v)
        *out = json_string_value(v);
    return POME_OK;
}

static pome_status wrong_list(const pome_config_fields *f, const char *name, int64_t n, pome_error *err)
{
    return pome_fail(err, POME_ERR_FORMAT, "%s%s is no list of %" PRId64 " positive numbers", f->where, name, n);
}

pome_status pome_config_reals(const pome_config_fields *f, const char *name, int64_t n, const double **out,
                              pome_error *err)
{
    const json_t *v = pome_config_field(f, name);
    if (!json_is_array(v) || (int64_t)json_array_size(v) != n)
        return wrong_list(f, name, n, err);
    double *list = POME_NEW_ARRAY(f->arena, double, (size_t)n);
    if (!list)
        return pome_fail_nomem(err, (size_t)n * sizeof *list, name);
    for (int64_t i = 0; i < n; i++) {
        list[i] = json_number_value(json_array_get(v, (size_t)i));
        if (!(list[i] > 0))
            return wrong_list(f, name, n, err);
    }
    *out = list;
    return POME_OK;
}

pome_status pome_config_sizes(const pome_config_fields *f, const char *name, int64_t n_layers, int64_t *out,
                              const int64_t **list, pome_error *err)
{
    const double *values = NULL;
    const json_t *v = pome_config_field(f, name);
    if (!json_is_array(v))
        return pome_config_need_int(f, name, out, err);
    POME_TRY(pome_config_reals(f, name, n_layers, &values, err));
    int64_t *sizes = POME_NEW_ARRAY(f->arena, int64_t, (size_t)n_layers), most = 0;
    if (!sizes)
        return pome_fail_nomem(err, (size_t)n_layers * sizeof *sizes, name);
    for (int64_t i = 0; i < n_layers; i++) {
        if (!json_is_integer(json_array_get(v, (size_t)i)) || values[i] > 1 << 24)
            return wrong_list(f, name, n_layers, err);
        sizes[i] = (int64_t)values[i];
        most = sizes[i] > most ? sizes[i] : most;
    }
    *out = most;
    *list = sizes;
    return POME_OK;
}

/* ---- fields that nobody read ---- */

/* Fields that other architectures have, or variants of these, with the value that changes nothing. */
static const struct {
    const char *name;
    double neutral;
} changing[] = {
    {"add_cross_attention", 0}, {"alibi", 0}, {"attention_bias", 0}, {"attention_chunk_size", 0},
    {"attention_logit_cap", 0}, {"attention_multiplier", 0}, {"attention_out_bias", 0}, {"attention_sinks", 0},
    {"attn_logit_softcapping", 0}, {"attn_output_gate", 0}, {"attn_temperature_tuning", 0}, {"bias", 0},
    {"clip_qkv", 0}, {"cross_attention_layers", 0}, {"dim_model_base", 0}, {"embedding_multiplier", 1},
    {"embedding_scale", 1}, {"final_logit_softcapping", 0}, {"head_bias", 0}, {"is_encoder_decoder", 0},
    {"kv_lora_rank", 0}, {"layer_types", 0}, {"lm_head_bias", 0}, {"logit_scale", 1}, {"logits_scaling", 1},
    {"mlp_bias", 0}, {"moe_intermediate_size", 0}, {"multi_query", 0}, {"n_routed_experts", 0},
    {"no_rope_layer_interval", 0}, {"no_rope_layers", 0}, {"num_experts", 0}, {"num_experts_per_tok", 0},
    {"num_kv_shared_layers", 0}, {"num_local_experts", 0}, {"parallel_attn", 0}, {"partial_rotary_factor", 1},
    {"q_lora_rank", 0}, {"qk_clip", 0}, {"qk_layernorm", 0}, {"qk_norm", 0}, {"qkv_bias", 0},
    {"query_pre_attn_scalar", 0}, {"residual_multiplier", 1}, {"rope_interleaved", 0},
    {"scale_attn_by_inverse_layer_idx", 0}, {"scale_depth", 0}, {"scale_emb", 1}, {"sliding_window", 0},
    {"text_config", 0}, {"use_alibi", 0}, {"use_attention_sinks", 0}, {"use_bidirectional_attention", 0},
    {"use_mup", 0}, {"use_parallel_residual", 0}, {"use_qk_norm", 0}, {"use_qkv_bias", 0},
    {"use_sliding_window", 0}, {"vision_config", 0}, {"width_scale", 1},
};

/* Token ids, training, and what transformers notes about itself. */
static bool says_nothing(const char *name)
{
    static const char *const names[] = {
        "architectures", "attn_implementation", "auto_map", "cache_implementation", "chunk_size_feed_forward", "dtype",
        "ffn_dim_divisor", "finetuning_task", "gradient_checkpointing", "id2label", "initializer_range", "is_decoder",
        "is_llama_config", "label2id", "max_sequence_length", "max_window_layers", "model_type", "n_ctx",
        "num_gqa_groups", "output_attentions", "output_hidden_states", "pretraining_tp", "problem_type",
        "qkv_multipliers", "reorder_and_upcast_attn", "return_dict", "rope_max_length", "task_specific_params",
        "tokenizer_class", "torch_dtype", "transformers.js_config", "transformers_version", "use_cache", "vocab_size"};
    static const char *const ends[] = {"_token_id", "_dropout", "_pdrop", "_token_ids"};
    if (name[0] == '_' || strncmp(name, "summary_", 8) == 0 || strncmp(name, "unsloth_", 8) == 0)
        return true;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    size_t len = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (len > strlen(ends[i]) && strcmp(name + len - strlen(ends[i]), ends[i]) == 0)
            return true;
    return false;
}

static bool is_off(const json_t *v, double neutral)
{
    switch (json_typeof(v)) {
    case JSON_NULL:
    case JSON_FALSE: return true;
    case JSON_TRUE: return false;
    case JSON_OBJECT: return json_object_size(v) == 0;
    case JSON_ARRAY: return json_array_size(v) == 0;
    case JSON_STRING: return json_string_length(v) == 0;
    default: return json_number_value(v) == 0 || json_number_value(v) == neutral;
    }
}

static pome_status check_unread_field(const char *name, const json_t *v, const pome_lm_family *family, pome_error *err)
{
    for (size_t i = 0; i < sizeof changing / sizeof changing[0]; i++)
        if (strcmp(name, changing[i].name) == 0) {
            if (is_off(v, changing[i].neutral))
                return POME_OK;
            return pome_fail(err, POME_ERR_UNSUPPORTED, "%s is set, which cannot be converted for architecture %s", name,
                             family->model_type);
        }
    if (!is_off(v, 0) && !says_nothing(name))
        pome_log(POME_LOG_WARN, "config.json: %.100s is not known, and has no part in the package", name);
    return POME_OK;
}

pome_status pome_config_check_unread(const pome_config_fields *f, const pome_lm_family *family, pome_error *err)
{
    const char *name;
    json_t *v;
    json_object_foreach((json_t *)f->object, name, v)
        if (!pome_strmap_get(f->read, pome_str_of(name)))
            POME_TRY(check_unread_field(name, v, family, err));
    return POME_OK;
}
