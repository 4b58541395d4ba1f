#include "convert/source_config.h"

#include <stdlib.h>

#include "base/error.h"
#include "base/file.h"
#include "text/json_fields.h"

#define CONFIG_BYTES_MAX ((size_t)8 << 20)
#define TEXT_BYTES_MAX ((size_t)64 << 10)

/* What families call the same size; in GGUF files the name follows the architecture's. */
static const struct {
    size_t at;
    const char *names[4];
    const char *gguf;
} sizes[] = {
    {offsetof(pome_source_info, n_layers), {"num_hidden_layers", "n_layer", "num_transformer_layers"}, "block_count"},
    {offsetof(pome_source_info, hidden), {"hidden_size", "n_embd", "model_dim"}, "embedding_length"},
    {offsetof(pome_source_info, ffn), {"intermediate_size", "n_inner"}, "feed_forward_length"},
    {offsetof(pome_source_info, n_heads), {"num_attention_heads", "n_head"}, "attention.head_count"},
    {offsetof(pome_source_info, n_kv_heads), {"num_key_value_heads"}, "attention.head_count_kv"},
    {offsetof(pome_source_info, head_dim), {"head_dim"}, "attention.key_length"},
    {offsetof(pome_source_info, n_vocab), {"vocab_size"}, "vocab_size"},
    {offsetof(pome_source_info, n_positions),
     {"max_position_embeddings", "n_positions", "max_context_length"},
     "context_length"},
};

static void set_size(pome_source_info *info, size_t at, int64_t value)
{
    *(int64_t *)((char *)info + at) = value > 0 ? value : 0;
}

static void complete(pome_source_info *info)
{
    if (info->head_dim == 0 && info->n_heads > 0 && info->hidden % info->n_heads == 0)
        info->head_dim = info->hidden / info->n_heads;
}

/* JSON text of a value, in the arena; takes the value. NULL: memory is short. */
static const char *value_text(json_t *value, pome_arena *arena)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    const char *kept = text ? pome_arena_strndup(arena, text, strlen(text)) : NULL;
    free(text);
    json_decref(value);
    return kept;
}

/* A JSON string from any bytes. */
static json_t *safe_string(const char *ptr, size_t len)
{
    json_t *s = json_stringn(ptr, len);
    char *copy = s ? NULL : malloc(len + 1);
    for (size_t i = 0; copy && i < len; i++)
        copy[i] = (char)((unsigned char)ptr[i] < 0x80 ? ptr[i] : '?');
    if (copy)
        s = json_stringn(copy, len);
    free(copy);
    return s;
}

/* ---- config.json ---- */

static const char *copy_text(const json_t *value, pome_arena *arena)
{
    const char *text = json_string_value(value);
    return text ? pome_arena_strndup(arena, text, strlen(text)) : "";
}

static pome_status read_fields(pome_source_info *info, const json_t *root, pome_arena *arena, pome_error *err)
{
    const char *key;
    json_t *value;
    pome_metadata_entry *list = POME_NEW_ARRAY(arena, pome_metadata_entry, json_object_size(root) + 1);
    if (!list)
        return pome_fail_nomem(err, 0, "the configuration");
    info->config = list;
    json_object_foreach((json_t *)(uintptr_t)root, key, value)
    {
        pome_metadata_entry *e = &list[info->n_config];
        e->key = pome_arena_strndup(arena, key, strlen(key));
        e->value = value_text(json_incref(value), arena);
        if (!e->key || !e->value)
            return pome_fail_nomem(err, 0, "the configuration");
        info->n_config++;
    }
    return POME_OK;
}

/* Models of text and images have the language model's sizes in an object of their own. */
static void read_sizes(pome_source_info *info, const json_t *root)
{
    const json_t *text = json_object_get(root, "text_config");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t k = 0; k < 4 && sizes[i].names[k]; k++) {
            const json_t *v = json_object_get(root, sizes[i].names[k]);
            v = json_is_integer(v) ? v : json_object_get(text, sizes[i].names[k]);
            if (json_is_integer(v))
                set_size(info, sizes[i].at, json_integer_value(v));
        }
}

static pome_status read_object(pome_source_info *info, const json_t *root, pome_arena *arena, pome_error *err)
{
    const json_t *architecture = json_array_get(json_object_get(root, "architectures"), 0);
    if (!json_is_object(root))
        return pome_fail(err, POME_ERR_FORMAT, "config.json: no JSON object");
    info->architecture = copy_text(json_is_string(architecture) ? architecture : json_object_get(root, "model_type"), arena);
    info->name = copy_text(json_object_get(root, "_name_or_path"), arena);
    if (!info->architecture || !info->name)
        return pome_fail_nomem(err, 0, "the configuration");
    read_sizes(info, root);
    complete(info);
    return read_fields(info, root, arena, err);
}

pome_status pome_source_config_read(pome_source_info *info, const char *folder, pome_arena *arena, pome_error *err)
{
    json_t *root = NULL;
    const char *path = pome_arena_printf(arena, "%s/config.json", folder);
    if (!path)
        return pome_fail_nomem(err, 0, "a path");
    if (!pome_path_exists(path))
        return POME_OK;
    POME_TRY(pome_json_read(&root, path, CONFIG_BYTES_MAX, err));
    pome_status status = read_object(info, root, arena, err);
    json_decref(root);
    return status;
}

/* ---- GGUF ---- */

static json_t *entry_json(const pome_gguf_entry *e)
{
    pome_gguf_entry one = *e; /* a value reads like an array of one */
    one.element = e->type;
    if (e->type == POME_GGUF_STRING)
        return safe_string((const char *)e->data.ptr, e->data.len);
    if (e->type == POME_GGUF_BOOL)
        return json_boolean(e->data.ptr[0] != 0);
    int64_t n = e->type == POME_GGUF_F32 || e->type == POME_GGUF_F64 ? -1 : pome_gguf_element_int(&one, 0);
    if (n >= 0 || (e->type != POME_GGUF_F32 && e->type != POME_GGUF_F64 && e->type != POME_GGUF_U64))
        return json_integer((json_int_t)n);
    json_t *real = json_real(pome_gguf_element_float(&one, 0));
    return real ? real : json_null(); /* JSON has no infinities */
}

static pome_status read_metadata(pome_source_info *info, const pome_gguf *g, pome_arena *arena, pome_error *err)
{
    pome_metadata_entry *list = POME_NEW_ARRAY(arena, pome_metadata_entry, (size_t)g->n_entries + 1);
    if (!list)
        return pome_fail_nomem(err, 0, "the metadata");
    info->config = list;
    for (uint64_t i = 0; i < g->n_entries; i++) {
        const pome_gguf_entry *e = &g->entries[i];
        if (e->type == POME_GGUF_ARRAY || e->data.len > TEXT_BYTES_MAX)
            continue;
        const char *key = pome_arena_strndup(arena, e->key.ptr, e->key.len);
        const char *value = key ? value_text(entry_json(e), arena) : NULL;
        if (!value)
            return pome_fail_nomem(err, 0, "the metadata");
        list[info->n_config++] = (pome_metadata_entry){key, value};
    }
    return POME_OK;
}

static const char *text_of(const pome_gguf *g, const char *key, pome_arena *arena)
{
    pome_str s = {"", 0};
    pome_gguf_get_str(g, key, &s);
    return pome_arena_strndup(arena, s.ptr, s.len < 1024 ? s.len : 1024);
}

pome_status pome_source_config_read_gguf(pome_source_info *info, const pome_gguf *g, pome_arena *arena, pome_error *err)
{
    info->architecture = text_of(g, "general.architecture", arena);
    info->name = text_of(g, "general.name", arena);
    if (!info->architecture || !info->name)
        return pome_fail_nomem(err, 0, "the metadata");
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint64_t v = 0;
        const char *key = pome_arena_printf(arena, "%s.%s", info->architecture, sizes[i].gguf);
        if (!key)
            return pome_fail_nomem(err, 0, "the metadata");
        if (pome_gguf_get_uint(g, key, &v) && v <= INT64_MAX)
            set_size(info, sizes[i].at, (int64_t)v);
    }
    const pome_gguf_entry *tokens = pome_gguf_find(g, "tokenizer.ggml.tokens");
    if (info->n_vocab == 0 && tokens && tokens->type == POME_GGUF_ARRAY && tokens->count <= INT64_MAX)
        info->n_vocab = (int64_t)tokens->count;
    complete(info);
    return read_metadata(info, g, arena, err);
}
