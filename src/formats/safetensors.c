#include "formats/safetensors.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/log.h"
#include "formats/manifest.h"

#define INDEX_BYTES_MAX ((size_t)64 << 20)

static const struct {
    const char *name;
    pome_dtype dtype;
    uint32_t bits;
} types[] = {
    {"F32", POME_DTYPE_F32, 32},       {"F16", POME_DTYPE_F16, 16},         {"BF16", POME_DTYPE_BF16, 16},
    {"F64", POME_DTYPE_F64, 64},       {"F8_E4M3", POME_DTYPE_F8E4M3FN, 8}, {"F8_E5M2", POME_DTYPE_F8E5M2, 8},
    {"I8", POME_DTYPE_I8, 8},          {"I16", POME_DTYPE_I16, 16},         {"I32", POME_DTYPE_I32, 32},
    {"I64", POME_DTYPE_I64, 64},       {"U8", POME_DTYPE_U8, 8},            {"U16", POME_DTYPE_U16, 16},
    {"U32", POME_DTYPE_U32, 32},       {"U64", POME_DTYPE_U64, 64},         {"BOOL", POME_DTYPE_BOOL, 8},
    {"F8_E8M0", POME_DTYPE_NONE, 8},   {"C64", POME_DTYPE_NONE, 64},        {"F4", POME_DTYPE_NONE, 4},
    {"F6_E2M3", POME_DTYPE_NONE, 6},   {"F6_E3M2", POME_DTYPE_NONE, 6},
};

static pome_status no_memory(pome_error *err)
{
    return pome_fail_nomem(err, 0, "the table of tensors");
}

/* ---- one file ---- */

typedef struct reader {
    pome_safetensors *st;
    const char *file;
    pome_bytes data; /* after the header */
    uint64_t data_offset;
} reader;

static pome_status bad(const reader *r, const char *name, const char *what, pome_error *err)
{
    return pome_fail(err, POME_ERR_FORMAT, "%s: tensor \"%.200s\": %s", r->file, name, what);
}

static pome_status read_type(const reader *r, pome_safetensor *t, const json_t *node, uint32_t *bits, pome_error *err)
{
    const char *text = json_string_value(node);
    if (!text)
        return bad(r, t->name, "no dtype", err);
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(types[i].name, text) == 0) {
            t->type_name = types[i].name;
            t->dtype = types[i].dtype;
            *bits = types[i].bits;
            return POME_OK;
        }
    return pome_fail(err, POME_ERR_UNSUPPORTED, "%s: tensor \"%.200s\" has the unknown dtype \"%.40s\"", r->file, t->name,
                     text);
}

static pome_status read_shape(const reader *r, pome_safetensor *t, const json_t *node, uint32_t bits, uint64_t *n_bytes,
                              pome_error *err)
{
    size_t rank = json_array_size(node);
    uint64_t n = bits;
    if (!json_is_array(node) || rank > POME_MAX_RANK)
        return bad(r, t->name, "its shape is no list of at most 8 sizes", err);
    t->rank = (int32_t)rank;
    for (size_t i = 0; i < rank; i++) {
        const json_t *size = json_array_get(node, i);
        t->shape[i] = json_integer_value(size);
        if (!json_is_integer(size) || t->shape[i] < 0)
            return bad(r, t->name, "a size that is no number from 0 up", err);
    }
    for (size_t i = 0; i < rank; i++)
        if (__builtin_mul_overflow(n, (uint64_t)t->shape[i], &n) || n > INT64_MAX)
            return bad(r, t->name, "more elements than can be counted", err);
    if (n % 8)
        return bad(r, t->name, "its last byte is not full", err);
    *n_bytes = n / 8;
    return POME_OK;
}

static pome_status read_offsets(const reader *r, pome_safetensor *t, const json_t *node, uint64_t n_bytes,
                                pome_error *err)
{
    const json_t *b = json_array_get(node, 0), *e = json_array_get(node, 1);
    json_int_t begin = json_integer_value(b), end = json_integer_value(e);
    if (json_array_size(node) != 2 || !json_is_integer(b) || !json_is_integer(e) || begin < 0 || end < begin)
        return bad(r, t->name, "data_offsets are not [begin, end]", err);
    if ((uint64_t)end > r->data.len)
        return pome_fail_at(err, POME_ERR_FORMAT, r->data_offset + (uint64_t)begin,
                            "%s: tensor \"%.200s\" needs bytes %lld to %lld of the data, file has %zu (download "
                            "incomplete?)",
                            r->file, t->name, (long long)begin, (long long)end, r->data.len);
    if ((uint64_t)(end - begin) != n_bytes)
        return pome_fail_at(err, POME_ERR_FORMAT, r->data_offset + (uint64_t)begin,
                            "%s: tensor \"%.200s\" has %lld bytes, its shape needs %llu", r->file, t->name,
                            (long long)(end - begin), (unsigned long long)n_bytes);
    t->data = (pome_bytes){r->data.ptr + begin, (size_t)n_bytes};
    t->offset = r->data_offset + (uint64_t)begin;
    return POME_OK;
}

static pome_status read_tensor(const reader *r, pome_safetensor *t, const char *name, const json_t *node,
                               pome_error *err)
{
    uint32_t bits = 0;
    uint64_t n_bytes = 0;
    t->file = r->file;
    t->name = pome_arena_strndup(r->st->arena, name, strlen(name));
    if (!t->name)
        return no_memory(err);
    if (!json_is_object(node))
        return bad(r, name, "its entry is no object", err);
    POME_TRY(read_type(r, t, json_object_get(node, "dtype"), &bits, err));
    POME_TRY(read_shape(r, t, json_object_get(node, "shape"), bits, &n_bytes, err));
    POME_TRY(read_offsets(r, t, json_object_get(node, "data_offsets"), n_bytes, err));
    if (pome_strmap_get(&r->st->by_name, pome_str_of(t->name)))
        return bad(r, name, "is there twice", err);
    return pome_strmap_set(&r->st->by_name, pome_str_of(t->name), t) ? POME_OK : no_memory(err);
}

static int by_offset(const void *a, const void *b)
{
    const pome_safetensor *x = *(pome_safetensor *const *)a, *y = *(pome_safetensor *const *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->data.len < y->data.len ? -1 : x->data.len > y->data.len;
}

/* Two tensors over the same bytes are a sign of damage. */
static pome_status check_overlaps(const reader *r, pome_safetensor *tensors, uint32_t n, pome_error *err)
{
    pome_safetensor **sorted = malloc(((size_t)n + 1) * sizeof *sorted);
    pome_status status = sorted ? POME_OK : no_memory(err);
    for (uint32_t i = 0; sorted && i < n; i++)
        sorted[i] = &tensors[i];
    if (sorted)
        qsort(sorted, n, sizeof *sorted, by_offset);
    for (uint32_t i = 1; i < n && status == POME_OK; i++)
        if (sorted[i - 1]->offset + sorted[i - 1]->data.len > sorted[i]->offset)
            status = pome_fail_at(err, POME_ERR_FORMAT, sorted[i]->offset,
                                  "%s: tensors \"%.200s\" and \"%.200s\" overlap at byte %llu", r->file,
                                  sorted[i - 1]->name, sorted[i]->name, (unsigned long long)sorted[i]->offset);
    free(sorted);
    return status;
}

static pome_status read_entries(reader *r, json_t *root, pome_error *err)
{
    pome_safetensors *st = r->st;
    const char *name;
    json_t *node;
    size_t n = json_object_size(root);
    pome_safetensor *list = POME_NEW_ARRAY(st->arena, pome_safetensor, n + 1);
    if (!list)
        return no_memory(err);
    uint32_t n_read = 0;
    json_object_foreach(root, name, node)
        if (strcmp(name, "__metadata__") != 0)
            POME_TRY(read_tensor(r, &list[n_read++], name, node, err));
    POME_TRY(check_overlaps(r, list, n_read, err));
    pome_safetensor *all = POME_NEW_ARRAY(st->arena, pome_safetensor, (size_t)st->n_tensors + n_read + 1);
    if (!all)
        return no_memory(err);
    if (st->n_tensors)
        memcpy(all, st->tensors, st->n_tensors * sizeof *all);
    memcpy(all + st->n_tensors, list, n_read * sizeof *all);
    st->tensors = all;
    st->n_tensors += n_read;
    for (uint32_t i = 0; i < st->n_tensors; i++) /* they have moved */
        if (!pome_strmap_set(&st->by_name, pome_str_of(all[i].name), &all[i]))
            return no_memory(err);
    return POME_OK;
}

pome_status pome_safetensors_add(pome_safetensors *st, pome_bytes bytes, const char *file, pome_error *err)
{
    uint64_t n = 0;
    if (pome_bytes_is_lfs_pointer(bytes))
        return pome_fail(err, POME_ERR_FORMAT, "%s: a Git LFS pointer, not the file itself (download it again)", file);
    if (bytes.len < 8)
        return pome_fail_at(err, POME_ERR_FORMAT, bytes.len, "%s: ends after %zu bytes, before its header", file,
                            bytes.len);
    for (int i = 0; i < 8; i++)
        n |= (uint64_t)bytes.ptr[i] << 8 * i;
    if (n > bytes.len - 8 || n > POME_SAFETENSORS_HEADER_MAX)
        return pome_fail_at(err, POME_ERR_FORMAT, 0, "%s: a header of %llu bytes, file has %zu (download incomplete?)",
                            file, (unsigned long long)n, bytes.len);
    json_error_t why;
    json_t *root = json_loadb((const char *)bytes.ptr + 8, (size_t)n, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(root)) {
        json_decref(root);
        return pome_fail_at(err, POME_ERR_FORMAT, root ? 8 : 8 + (uint64_t)why.position, "%s: the header at byte %llu: %s",
                            file, root ? 8ull : 8 + (unsigned long long)why.position, root ? "no object" : why.text);
    }
    reader r = {st, file, {bytes.ptr + 8 + n, bytes.len - 8 - (size_t)n}, 8 + n};
    pome_status status = read_entries(&r, root, err);
    json_decref(root);
    st->size_bytes += bytes.len;
    return status;
}

/* ---- folders ---- */

static pome_status add_file(pome_safetensors *st, const char *path, pome_error *err)
{
    pome_mapping **list = POME_NEW_ARRAY(st->arena, pome_mapping *, (size_t)st->n_mappings + 1);
    if (!list)
        return no_memory(err);
    if (st->n_mappings)
        memcpy(list, st->mappings, st->n_mappings * sizeof *list);
    pome_mapping *mapping;
    POME_TRY(pome_mapping_open(&mapping, path, err));
    list[st->n_mappings++] = mapping;
    st->mappings = list;
    return pome_safetensors_add(st, pome_mapping_bytes(mapping), pome_mapping_path(mapping), err);
}

/* Shards that the index names and that are not there. */
typedef struct missing_shards {
    const char **names;
    size_t n;
    pome_strmap files; /* all that the index names; those that are missing: to this object */
} missing_shards;

/* The distinct files of the index, in the order of their first mention. */
static pome_status add_shards(pome_safetensors *st, const char *folder, const json_t *map, missing_shards *missing,
                              pome_error *err)
{
    pome_strmap_init(&missing->files, st->arena);
    missing->names = POME_NEW_ARRAY(st->arena, const char *, json_object_size(map) + 1);
    if (!missing->names)
        return no_memory(err);
    const char *name;
    json_t *node;
    json_object_foreach((json_t *)(uintptr_t)map, name, node)
    {
        const char *file = json_string_value(node);
        if (!file || !*file)
            return pome_fail(err, POME_ERR_FORMAT, "%s: the index does not say in which file \"%.200s\" is", folder, name);
        if (!pome_path_is_inside(file))
            return pome_fail(err, POME_ERR_FORMAT, "%s: the index says that \"%.200s\" is in %.300s, wanted a file in this folder",
                             folder, name, file);
        if (pome_strmap_get(&missing->files, pome_str_of(file)))
            continue;
        const char *path = pome_arena_printf(st->arena, "%s/%s", folder, file);
        bool exists = path && pome_path_exists(path);
        if (!path || !pome_strmap_set(&missing->files, pome_str_of(file), exists ? (void *)st : (void *)missing))
            return no_memory(err);
        if (exists)
            POME_TRY(add_file(st, path, err));
        else
            missing->names[missing->n++] = file;
    }
    return POME_OK;
}

/* Every one is named: in the message as far as it reaches, the others in the log. */
static pome_status fail_missing(const char *folder, const missing_shards *missing, const char *tensor, const char *file,
                                pome_error *err)
{
    char list[640] = "";
    size_t at = 0, n_listed = 0;
    for (size_t i = 0; i < missing->n; i++) {
        size_t len = strlen(missing->names[i]);
        if (n_listed < i || at + len + 3 > sizeof list) {
            pome_log(POME_LOG_WARN, "%s: shard %s is missing", folder, missing->names[i]);
            continue;
        }
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", missing->names[i]);
        n_listed++;
    }
    char more[40] = "";
    if (n_listed < missing->n)
        snprintf(more, sizeof more, ", and %zu more", missing->n - n_listed);
    return pome_fail(err, POME_ERR_IO, "%.80s: %zu shard%s missing: %s%s (tensor \"%.80s\" is in %.60s)", folder,
                     missing->n, missing->n == 1 ? " is" : "s are", list, more, tensor, file);
}

/* An index that is older than its shards may name files that are gone; if the file is there, the tensor is in it. */
static pome_status check_place(const pome_safetensor *t, const char *folder, const char *file, const missing_shards *missing,
                               pome_error *err)
{
    size_t len = strlen(folder);
    const char *found = strncmp(t->file, folder, len) == 0 && t->file[len] == '/' ? t->file + len + 1 : t->file;
    if (strcmp(found, file) == 0 || pome_strmap_get(&missing->files, pome_str_of(file)) == missing)
        return POME_OK;
    return pome_fail(err, POME_ERR_FORMAT, "%s: the index lists \"%.200s\" in %.200s, but it is in %.200s", folder, t->name,
                     file, found);
}

static pome_status check_listed(const pome_safetensors *st, const char *folder, const json_t *map,
                                const missing_shards *missing, pome_error *err)
{
    const char *name;
    json_t *node;
    json_object_foreach((json_t *)(uintptr_t)map, name, node)
    {
        const pome_safetensor *t = pome_safetensors_find(st, name);
        if (!t && missing->n)
            return fail_missing(folder, missing, name, json_string_value(node), err);
        if (!t)
            return pome_fail(err, POME_ERR_FORMAT, "%s: the index lists \"%.200s\" in %.200s, which does not have it",
                             folder, name, json_string_value(node));
        POME_TRY(check_place(t, folder, json_string_value(node), missing, err));
    }
    return POME_OK;
}

static pome_status add_indexed(pome_safetensors *st, const char *folder, const char *path, pome_error *err)
{
    char *text = NULL;
    missing_shards missing = {0};
    size_t len = 0;
    json_error_t why;
    POME_TRY(pome_file_read(path, INDEX_BYTES_MAX, &text, &len, err));
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    free(text);
    const json_t *map = json_object_get(root, "weight_map");
    pome_status status;
    if (!root)
        status = pome_fail(err, POME_ERR_FORMAT, "%s: line %d: %s", path, why.line, why.text);
    else if (!json_is_object(map))
        status = pome_fail(err, POME_ERR_FORMAT, "%s: no \"weight_map\"", path);
    else
        status = add_shards(st, folder, map, &missing, err);
    if (status == POME_OK)
        status = check_listed(st, folder, map, &missing, err);
    json_decref(root);
    return status;
}

/* The one file of this kind in a folder, or NULL. */
static const char *only_file(pome_arena *arena, const char *folder)
{
    const char *found = NULL;
    int n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        size_t len = strlen(e->d_name);
        if (len < 12 || strcmp(e->d_name + len - 12, ".safetensors") != 0)
            continue;
        n++;
        found = pome_arena_printf(arena, "%s/%s", folder, e->d_name);
    }
    if (dir)
        closedir(dir);
    return n == 1 ? found : NULL;
}

static pome_status open_path(pome_safetensors *st, const char *path, pome_error *err)
{
    if (!pome_path_is_dir(path))
        return add_file(st, path, err);
    const char *single = pome_arena_printf(st->arena, "%s/model.safetensors", path);
    const char *index = pome_arena_printf(st->arena, "%s/model.safetensors.index.json", path);
    if (!single || !index)
        return no_memory(err);
    if (pome_path_exists(index))
        return add_indexed(st, path, index, err);
    if (pome_path_exists(single))
        return add_file(st, single, err);
    const char *only = only_file(st->arena, path);
    if (only)
        return add_file(st, only, err);
    return pome_fail(err, POME_ERR_IO, "%s: neither model.safetensors nor model.safetensors.index.json is there", path);
}

pome_status pome_safetensors_open(pome_safetensors *out, const char *path, pome_error *err)
{
    pome_safetensors st = {.arena = pome_arena_create(0)};
    if (!st.arena)
        return no_memory(err);
    pome_strmap_init(&st.by_name, st.arena);
    pome_status status = open_path(&st, path, err);
    if (status != POME_OK) {
        pome_safetensors_close(&st);
        return status;
    }
    *out = st;
    return POME_OK;
}

void pome_safetensors_close(pome_safetensors *st)
{
    for (uint32_t i = 0; i < st->n_mappings; i++)
        pome_mapping_release(&st->mappings[i]);
    pome_arena_destroy(&st->arena);
    *st = (pome_safetensors){0};
}

const pome_safetensor *pome_safetensors_find(const pome_safetensors *st, const char *name)
{
    return pome_strmap_get(&st->by_name, pome_str_of(name));
}
