/* The files beside tokenizer.json. They are written by many tools for many purposes, so unknown fields are let be. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "text/json_fields.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

#define CONFIG_BYTES_MAX ((size_t)64 << 20)
#define TEMPLATE_BYTES_MAX ((size_t)1 << 20)

static pome_status keep_template(pome_tokenizer *t, pome_str text, const char *where, pome_error *err)
{
    if (text.len > TEMPLATE_BYTES_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "%s: chat template has %zu bytes, at most %zu are allowed", where,
                         text.len, TEMPLATE_BYTES_MAX);
    if (!pome_utf8_is_valid(text.ptr, text.len) || (text.len && memchr(text.ptr, '\0', text.len)))
        return pome_fail(err, POME_ERR_FORMAT, "%s: chat template is not UTF-8 text", where);
    t->chat_template = pome_arena_strndup(t->arena, text.ptr, text.len);
    return t->chat_template ? POME_OK : pome_fail_nomem(err, text.len, "the chat template");
}

/* A string, or a list of {name, template} of which the default one is meant. */
static pome_status read_template(pome_tokenizer *t, const json_t *node, const char *where, pome_error *err)
{
    if (json_is_array(node)) {
        const json_t *chosen = json_object_get(json_array_get(node, 0), "template");
        for (size_t i = 0; i < json_array_size(node); i++) {
            const json_t *item = json_array_get(node, i), *name = json_object_get(item, "name");
            if (json_is_string(name) && strcmp(json_string_value(name), "default") == 0)
                chosen = json_object_get(item, "template");
        }
        node = chosen;
    }
    if (!node || json_is_null(node))
        return POME_OK;
    if (!json_is_string(node))
        return pome_fail(err, POME_ERR_FORMAT, "%s: chat_template is neither a string nor a list of templates", where);
    return keep_template(t, (pome_str){json_string_value(node), json_string_length(node)}, where, err);
}

/* A named special token is a string or an object with content. It is special even where tokenizer.json is silent. */
static pome_status read_special(pome_tokenizer *t, const json_t *node, int32_t *out, pome_error *err)
{
    if (json_is_object(node))
        node = json_object_get(node, "content");
    if (!json_is_string(node))
        return POME_OK;
    pome_str content = {json_string_value(node), json_string_length(node)};
    int32_t id = pome_vocab_find(&t->vocab, content);
    if (id < 0)
        return POME_OK;
    if (out)
        *out = id;
    if (t->vocab.flags[id] & POME_TOKEN_SPECIAL)
        return POME_OK;
    t->vocab.flags[id] |= POME_TOKEN_SPECIAL;
    for (int set = 0; set < 2; set++) {
        pome_added_tokens *tokens = set ? &t->normalized_tokens : &t->raw_tokens;
        for (size_t i = 0; i < tokens->n; i++) {
            if (tokens->items[i].id == id) {
                tokens->items[i].special = true;
                return POME_OK;
            }
        }
    }
    pome_added_token token = {.content = pome_vocab_piece(&t->vocab, id), .id = id, .special = true};
    return pome_added_tokens_add(&t->raw_tokens, &token, err);
}

static pome_status read_special_tokens(pome_tokenizer *t, const json_t *root, pome_error *err)
{
    POME_TRY(read_special(t, json_object_get(root, "bos_token"), &t->bos, err));
    POME_TRY(read_special(t, json_object_get(root, "eos_token"), &t->eos, err));
    POME_TRY(read_special(t, json_object_get(root, "unk_token"), &t->unk, err));
    POME_TRY(read_special(t, json_object_get(root, "pad_token"), &t->pad, err));
    const json_t *more = json_object_get(root, "additional_special_tokens");
    for (size_t i = 0; i < json_array_size(more); i++)
        POME_TRY(read_special(t, json_array_get(more, i), NULL, err));
    pome_added_tokens_index(&t->raw_tokens);
    return POME_OK;
}

/* An explicit add_bos_token or add_eos_token replaces the post-processor of tokenizer.json, as in transformers. */
static void apply_bos_eos(pome_tokenizer *t, const json_t *root)
{
    const json_t *bos = json_object_get(root, "add_bos_token"), *eos = json_object_get(root, "add_eos_token");
    if (!json_is_boolean(bos) && !json_is_boolean(eos))
        return;
    t->n_prefix = t->n_suffix = 0;
    if (json_is_true(bos) && t->bos >= 0)
        t->prefix[t->n_prefix++] = t->bos;
    if (json_is_true(eos) && t->eos >= 0)
        t->suffix[t->n_suffix++] = t->eos;
}

static pome_status read_tokenizer_config(pome_tokenizer *t, const char *path, const json_t *root, pome_error *err)
{
    POME_TRY(read_special_tokens(t, root, err));
    apply_bos_eos(t, root);
    return read_template(t, json_object_get(root, "chat_template"), path, err);
}

static pome_status read_special_map(pome_tokenizer *t, const char *path, const json_t *root, pome_error *err)
{
    (void)path;
    return read_special_tokens(t, root, err);
}

static pome_status read_template_json(pome_tokenizer *t, const char *path, const json_t *root, pome_error *err)
{
    return read_template(t, json_object_get(root, "chat_template"), path, err);
}

static pome_status read_generation_config(pome_tokenizer *t, const char *path, const json_t *root, pome_error *err)
{
    const json_t *eos = json_object_get(root, "eos_token_id");
    int32_t id;
    if (json_is_integer(eos)) {
        POME_TRY(pome_json_id(eos, path, &id, err));
        pome_tokenizer_add_stop(t, id);
    }
    for (size_t i = 0; i < json_array_size(eos); i++) {
        POME_TRY(pome_json_id(json_array_get(eos, i), path, &id, err));
        pome_tokenizer_add_stop(t, id);
    }
    const json_t *bos = json_object_get(root, "bos_token_id");
    if (t->bos < 0 && json_is_integer(bos)) {
        POME_TRY(pome_json_id(bos, path, &id, err));
        t->bos = pome_vocab_has(&t->vocab, id) ? id : -1;
    }
    return POME_OK;
}

typedef pome_status config_reader(pome_tokenizer *t, const char *path, const json_t *root, pome_error *err);

static pome_status read_if_there(pome_tokenizer *t, const char *folder, const char *name, config_reader *read,
                                 pome_error *err)
{
    char *path = pome_path_join(folder, name);
    if (!path)
        return pome_fail_nomem(err, strlen(folder), "a path");
    pome_status status = POME_OK;
    if (pome_path_exists(path)) {
        json_t *root = NULL;
        status = pome_json_read(&root, path, CONFIG_BYTES_MAX, err);
        if (status == POME_OK && !json_is_object(root))
            status = pome_fail(err, POME_ERR_FORMAT, "%s: not a JSON object", path);
        if (status == POME_OK)
            status = read(t, path, root, err);
        json_decref(root);
    }
    free(path);
    return status;
}

static pome_status read_template_file(pome_tokenizer *t, const char *folder, pome_error *err)
{
    char *path = pome_path_join(folder, "chat_template.jinja"), *text = NULL;
    size_t len = 0;
    if (!path)
        return pome_fail_nomem(err, strlen(folder), "a path");
    pome_status status = POME_OK;
    if (pome_path_exists(path)) {
        status = pome_file_read(path, TEMPLATE_BYTES_MAX, &text, &len, err);
        if (status == POME_OK)
            status = keep_template(t, (pome_str){text, len}, path, err);
        free(text);
    }
    free(path);
    return status;
}

pome_status pome_tokenizer_read_config(pome_tokenizer *t, const char *folder, pome_error *err)
{
    POME_TRY(read_if_there(t, folder, "special_tokens_map.json", read_special_map, err));
    POME_TRY(read_if_there(t, folder, "tokenizer_config.json", read_tokenizer_config, err));
    POME_TRY(read_if_there(t, folder, "chat_template.json", read_template_json, err));
    POME_TRY(read_template_file(t, folder, err));
    return read_if_there(t, folder, "generation_config.json", read_generation_config, err);
}

pome_status pome_tokenizer_find_stops(pome_tokenizer *t, pome_error *err)
{
    static const char *const ends[] = {"<|im_end|>",      "<|eot_id|>",      "<|eom_id|>",
                                       "<|eot|>",         "<end_of_turn>",   "<|end_of_turn|>",
                                       "<|endofturn|>",   "<|end|>",         "<|END_OF_TURN_TOKEN|>",
                                       "<|end_of_text|>", "<|return|>",      "<|call|>"};
    pome_tokenizer_add_stop(t, t->eos);
    for (size_t i = 0; t->chat_template && i < sizeof ends / sizeof *ends; i++) {
        int32_t id = pome_tokenizer_find(t, ends[i]);
        if (id < 0 || !pome_tokenizer_is_special(t, id) || !strstr(t->chat_template, ends[i]))
            continue;
        /* Where <|return|> ends the turn, <|end|> only ends one of its parts. */
        if (strcmp(ends[i], "<|end|>") == 0 && strstr(t->chat_template, "<|return|>"))
            continue;
        pome_tokenizer_add_stop(t, id);
    }
    return t->stop_ids.failed ? pome_fail_nomem(err, t->stop_ids.cap, "token ids") : POME_OK;
}
