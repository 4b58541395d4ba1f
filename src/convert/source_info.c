/* What is in a checkpoint, for people and for programs that ask before they convert. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/strmap.h"
#include "convert/source_config.h"
#include "formats/gguf_blocks.h"
#include "formats/safetensors.h"
#include "pome/tokenizer.h"

#define TOKENIZER_CONFIG_BYTES_MAX ((size_t)64 << 20)

typedef struct source {
    pome_source_info info; /* first: it is what callers hold */
    pome_arena *arena;
    const char *folder; /* NULL: a GGUF file */
    pome_gguf gguf;
    pome_safetensors safetensors;
} source;

static pome_status no_memory(pome_error *err)
{
    return pome_fail_nomem(err, 0, "the description of a checkpoint");
}

/* ---- what kind of file ---- */

static bool starts_with_gguf(const char *path)
{
    bool is = false;
    return pome_gguf_detect(&is, path, NULL) == POME_OK && is;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), len = strlen(end);
    return n >= len && strcmp(text + n - len, end) == 0;
}

static bool has_file(const char *folder, const char *name)
{
    char *path = pome_path_join(folder, name);
    bool has = path && pome_path_exists(path);
    free(path);
    return has;
}

bool pome_source_is_checkpoint(const char *path)
{
    if (!pome_path_is_dir(path))
        return pome_path_exists(path) && (ends_with(path, ".safetensors") || starts_with_gguf(path));
    if (has_file(path, "Manifest.json"))
        return false;
    return has_file(path, "config.json") || has_file(path, "model.safetensors") ||
           has_file(path, "model.safetensors.index.json");
}

/* ---- tensors ---- */

static int by_size(const void *a, const void *b)
{
    const pome_source_type *x = a, *y = b;
    if (x->size_bytes != y->size_bytes)
        return x->size_bytes > y->size_bytes ? -1 : 1;
    return strcmp(x->type, y->type);
}

/* The entry of a type, made at its first mention. NULL: memory is short. */
static pome_source_type *type_entry(source *s, pome_strmap *seen, pome_source_type **types, uint32_t *room, const char *type)
{
    pome_source_info *info = &s->info;
    uintptr_t number = (uintptr_t)pome_strmap_get(seen, pome_str_of(type)); /* from 1 */
    if (number)
        return &(*types)[number - 1];
    if (info->n_types == *room) {
        pome_source_type *bigger = POME_NEW_ARRAY(s->arena, pome_source_type, *room ? *room * 2 : 16);
        if (!bigger)
            return NULL;
        if (*types)
            memcpy(bigger, *types, info->n_types * sizeof *bigger);
        *types = bigger;
        *room = *room ? *room * 2 : 16;
    }
    pome_source_type *entry = &(*types)[info->n_types++];
    entry->type = type;
    return pome_strmap_set(seen, pome_str_of(type), (void *)(uintptr_t)info->n_types) ? entry : NULL;
}

static pome_status count_types(source *s, pome_error *err)
{
    pome_source_info *info = &s->info;
    pome_source_type *types = NULL;
    uint32_t room = 0;
    pome_strmap seen;
    pome_strmap_init(&seen, s->arena);
    for (uint32_t i = 0; i < info->n_tensors; i++) {
        const pome_source_tensor *t = &info->tensors[i];
        pome_source_type *entry = type_entry(s, &seen, &types, &room, t->type);
        if (!entry)
            return no_memory(err);
        entry->n_tensors++;
        entry->n_elements += t->n_elements;
        entry->size_bytes += t->size_bytes;
        info->n_parameters += t->n_elements;
    }
    if (info->n_types)
        qsort(types, info->n_types, sizeof *types, by_size);
    info->types = types;
    return POME_OK;
}

static pome_status list_safetensors(source *s, pome_error *err)
{
    const pome_safetensors *st = &s->safetensors;
    pome_source_tensor *list = POME_NEW_ARRAY(s->arena, pome_source_tensor, (size_t)st->n_tensors + 1);
    if (!list)
        return no_memory(err);
    for (uint32_t i = 0; i < st->n_tensors; i++) {
        const pome_safetensor *t = &st->tensors[i];
        pome_source_tensor *o = &list[i];
        *o = (pome_source_tensor){.name = t->name, .type = t->type_name, .rank = t->rank, .n_elements = 1,
                                  .size_bytes = t->data.len};
        for (int32_t k = 0; k < t->rank; k++) {
            o->shape[k] = t->shape[k];
            o->n_elements *= (uint64_t)t->shape[k]; /* was checked when the header was read */
        }
    }
    s->info.tensors = list;
    s->info.n_tensors = st->n_tensors;
    return POME_OK;
}

static pome_status list_gguf(source *s, pome_error *err)
{
    const pome_gguf *g = &s->gguf;
    if (g->n_tensors > UINT32_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "GGUF: %llu tensors", (unsigned long long)g->n_tensors);
    pome_source_tensor *list = POME_NEW_ARRAY(s->arena, pome_source_tensor, (size_t)g->n_tensors + 1);
    if (!list)
        return no_memory(err);
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        const pome_gguf_tensor *t = &g->tensors[i];
        pome_source_tensor *o = &list[i];
        char buffer[32];
        uint32_t block, bytes;
        pome_bytes data = {0};
        /* A type that nobody knows here has no size, but the file may be whole. */
        if (pome_gguf_type_size(t->type, &block, &bytes))
            POME_TRY(pome_gguf_tensor_locate(t, pome_mapping_bytes(g->mapping), &data, err));
        const char *type = pome_gguf_type_name(t->type, buffer, sizeof buffer);
        *o = (pome_source_tensor){.name = pome_arena_strndup(s->arena, t->name.ptr, t->name.len),
                                  .type = pome_arena_strndup(s->arena, type, strlen(type)),
                                  .rank = (int32_t)t->n_dims, .n_elements = 1, .size_bytes = data.len};
        if (!o->name || !o->type)
            return no_memory(err);
        for (uint32_t k = 0; k < t->n_dims; k++) {
            o->shape[t->n_dims - 1 - k] = (int64_t)t->dims[k];
            o->n_elements *= t->dims[k];
        }
    }
    s->info.tensors = list;
    s->info.n_tensors = (uint32_t)g->n_tensors;
    return POME_OK;
}

/* ---- tokenizer and template ---- */

/* The first of `names` (NULL ends) that is in the folder, else "". */
static pome_status find_first(const source *s, const char *const *names, const char **out, pome_error *err)
{
    for (*out = ""; *names; names++) {
        const char *path = pome_arena_printf(s->arena, "%s/%s", s->folder, *names);
        if (!path)
            return no_memory(err);
        if (pome_path_exists(path)) {
            *out = *names;
            return POME_OK;
        }
    }
    return POME_OK;
}

/* A file that cannot be read is the tokenizer's problem, and told as such. */
static pome_status find_template_field(const source *s, const char **out, pome_error *err)
{
    static const char name[] = "tokenizer_config.json";
    const char *path = pome_arena_printf(s->arena, "%s/%s", s->folder, name);
    char *text = NULL;
    size_t len = 0;
    if (!path)
        return no_memory(err);
    pome_status status = pome_path_exists(path) ? pome_file_read(path, TOKENIZER_CONFIG_BYTES_MAX, &text, &len, NULL) : POME_OK;
    if (text && strstr(text, "\"chat_template\""))
        *out = name;
    free(text);
    return status == POME_ERR_NOMEM ? no_memory(err) : POME_OK;
}

static pome_status find_files(source *s, pome_error *err)
{
    static const char *const vocabularies[] = {"tokenizer.json", "tokenizer.model", "vocab.json", "spiece.model", NULL};
    static const char *const templates[] = {"chat_template.jinja", "chat_template.json", NULL};
    static const char *const settings[] = {"generation_config.json", NULL};
    pome_source_info *info = &s->info;
    POME_TRY(find_first(s, vocabularies, &info->tokenizer, err));
    POME_TRY(find_first(s, templates, &info->chat_template, err));
    POME_TRY(find_first(s, settings, &info->generation, err));
    return info->chat_template[0] ? POME_OK : find_template_field(s, &info->chat_template, err);
}

static void find_keys(source *s)
{
    const bool has_tokens = pome_gguf_find(&s->gguf, "tokenizer.ggml.tokens") != NULL;
    const bool has_template = pome_gguf_find(&s->gguf, "tokenizer.chat_template") != NULL;
    s->info.tokenizer = has_tokens ? "tokenizer.ggml.tokens" : "";
    s->info.chat_template = has_template ? "tokenizer.chat_template" : "";
    s->info.generation = "";
}

/* Memory that is short is a failure; anything else is a tokenizer that cannot be used. */
static pome_status try_tokenizer(source *s, pome_error *err)
{
    pome_tokenizer *tokenizer = NULL;
    pome_error why = {0};
    s->info.tokenizer_problem = "";
    if (!s->info.tokenizer[0])
        return POME_OK;
    pome_status status = pome_tokenizer_open(&tokenizer, s->folder ? s->folder : s->info.path, &why);
    pome_tokenizer_close(&tokenizer);
    if (status == POME_OK)
        return POME_OK;
    if (status == POME_ERR_NOMEM)
        return no_memory(err);
    s->info.tokenizer_problem = pome_arena_strndup(s->arena, why.message, strlen(why.message));
    return s->info.tokenizer_problem ? POME_OK : no_memory(err);
}

/* ---- what a conversion would make ---- */

static pome_status try_conversion(source *s, pome_error *err)
{
    pome_convert_opts opts;
    pome_error why = {0};
    pome_convert_opts_default(&opts);
    opts.dry_run = true;
    s->info.refusal = "";
    pome_status status = pome_convert(s->info.path, "model.mlpackage", &opts, &s->info.conversion, &why);
    s->info.is_convertible = status == POME_OK;
    if (status == POME_OK)
        return POME_OK;
    if (status == POME_ERR_NOMEM)
        return no_memory(err);
    s->info.refusal = pome_arena_strndup(s->arena, why.message, strlen(why.message));
    return s->info.refusal ? POME_OK : no_memory(err);
}

/* ---- all of it ---- */

static pome_status describe_gguf(source *s, pome_error *err)
{
    pome_status status = pome_gguf_open(&s->gguf, s->info.path, err);
    if (status == POME_OK)
        status = list_gguf(s, err);
    if (status != POME_OK)
        return err && strncmp(err->message, s->info.path, strlen(s->info.path)) != 0
                   ? pome_fail_prefix(err, status, "%s", s->info.path)
                   : status;
    s->info.format = "GGUF";
    s->info.version = s->gguf.version;
    s->info.n_files = 1;
    s->info.size_bytes = pome_mapping_bytes(s->gguf.mapping).len;
    find_keys(s);
    return pome_source_config_read_gguf(&s->info, &s->gguf, s->arena, err);
}

static const char *folder_of(source *s, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (pome_path_is_dir(path))
        return path;
    return slash ? pome_arena_strndup(s->arena, path, (size_t)(slash - path) + (slash == path)) : ".";
}

static pome_status describe_safetensors(source *s, pome_error *err)
{
    s->folder = folder_of(s, s->info.path);
    if (!s->folder)
        return no_memory(err);
    POME_TRY(pome_safetensors_open(&s->safetensors, s->info.path, err));
    POME_TRY(list_safetensors(s, err));
    s->info.format = "safetensors";
    s->info.n_files = s->safetensors.n_mappings;
    s->info.size_bytes = s->safetensors.size_bytes;
    POME_TRY(find_files(s, err));
    return pome_source_config_read(&s->info, s->folder, s->arena, err);
}

static pome_status describe(source *s, const char *path, pome_error *err)
{
    s->info.path = pome_arena_strndup(s->arena, path, strlen(path));
    s->info.architecture = s->info.name = "";
    if (!s->info.path)
        return no_memory(err);
    if (!pome_path_exists(path))
        return pome_fail(err, POME_ERR_IO, "%s: %s", path, errno == ENOENT ? "no such file or folder" : strerror(errno));
    POME_TRY(starts_with_gguf(path) ? describe_gguf(s, err) : describe_safetensors(s, err));
    POME_TRY(count_types(s, err));
    POME_TRY(try_tokenizer(s, err));
    return try_conversion(s, err);
}

pome_status pome_source_describe(pome_source_info **out, const char *path, pome_error *err)
{
    pome_arena *arena = pome_arena_create(0);
    source *s = arena ? POME_NEW(arena, source) : NULL;
    if (!s) {
        pome_arena_destroy(&arena);
        return no_memory(err);
    }
    s->arena = arena;
    pome_status status = describe(s, path, err);
    if (status == POME_OK) {
        *out = &s->info;
        return POME_OK;
    }
    pome_source_info *failed = &s->info;
    pome_source_info_free(&failed);
    return status;
}

void pome_source_info_free(pome_source_info **info)
{
    if (!info || !*info)
        return;
    source *s = (source *)*info;
    pome_arena *arena = s->arena;
    *info = NULL;
    if (s->gguf.arena)
        pome_gguf_close(&s->gguf);
    if (s->safetensors.arena)
        pome_safetensors_close(&s->safetensors);
    pome_arena_destroy(&arena);
}
