#include "formats/gguf.h"

#include <string.h>

#include "base/checked.h"
#include "base/error.h"

#define NAME_BYTES_MAX 65535u

static const uint8_t type_bytes[POME_GGUF_TYPE_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

typedef struct cursor {
    pome_bytes bytes;
    size_t at;
    bool failed;
    size_t failed_at;
} cursor;

static const uint8_t *take(cursor *c, uint64_t n)
{
    if (c->failed || n > c->bytes.len - c->at) {
        if (!c->failed) {
            c->failed = true;
            c->failed_at = c->at;
        }
        return NULL;
    }
    const uint8_t *p = c->bytes.ptr + c->at;
    c->at += (size_t)n;
    return p;
}

static uint64_t load(const uint8_t *p, size_t n)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        v |= (uint64_t)p[i] << 8 * i;
    return v;
}

static uint64_t take_uint(cursor *c, size_t n)
{
    const uint8_t *p = take(c, n);
    return p ? load(p, n) : 0;
}

static pome_str take_str(cursor *c)
{
    uint64_t n = take_uint(c, 8);
    const uint8_t *p = take(c, n);
    return p ? (pome_str){(const char *)p, (size_t)n} : (pome_str){"", 0};
}

static pome_status cut_short(const cursor *c, const char *what, pome_error *err)
{
    return pome_fail_at(err, POME_ERR_FORMAT, c->failed_at,
                        "GGUF: %s at byte %zu goes beyond the end, file has %zu bytes (download incomplete?)", what,
                        c->failed_at, c->bytes.len);
}

static pome_status read_array(cursor *c, pome_gguf_entry *e, pome_error *err)
{
    uint64_t element = take_uint(c, 4), bytes;
    e->count = take_uint(c, 8);
    if (c->failed)
        return cut_short(c, "an array", err);
    if (element >= POME_GGUF_TYPE_COUNT || element == POME_GGUF_ARRAY)
        return pome_fail_at(err, POME_ERR_UNSUPPORTED, c->at, "GGUF: \"%.*s\" is an array of type %llu",
                            (int)(e->key.len < 100 ? e->key.len : 100), e->key.ptr, (unsigned long long)element);
    e->element = (pome_gguf_type)element;
    size_t start = c->at;
    if (element == POME_GGUF_STRING) {
        for (uint64_t i = 0; i < e->count && !c->failed; i++)
            (void)take_str(c);
    } else if (__builtin_mul_overflow(e->count, (uint64_t)type_bytes[element], &bytes) || !take(c, bytes)) {
        c->failed = true;
        c->failed_at = start;
    }
    if (c->failed)
        return cut_short(c, "an array", err);
    e->data = (pome_bytes){c->bytes.ptr + start, c->at - start};
    return POME_OK;
}

static pome_status read_entry(cursor *c, pome_gguf_entry *e, pome_error *err)
{
    e->key = take_str(c);
    uint64_t type = take_uint(c, 4);
    if (c->failed)
        return cut_short(c, "a metadata key", err);
    if (e->key.len == 0 || e->key.len > NAME_BYTES_MAX)
        return pome_fail_at(err, POME_ERR_FORMAT, c->at, "GGUF: a metadata key of %zu bytes", e->key.len);
    if (type >= POME_GGUF_TYPE_COUNT)
        return pome_fail_at(err, POME_ERR_FORMAT, c->at, "GGUF: \"%.*s\" has type %llu, known are 0 to %d",
                            (int)(e->key.len < 100 ? e->key.len : 100), e->key.ptr, (unsigned long long)type,
                            POME_GGUF_TYPE_COUNT - 1);
    e->type = (pome_gguf_type)type;
    e->count = 1;
    if (e->type == POME_GGUF_ARRAY)
        return read_array(c, e, err);
    if (e->type == POME_GGUF_STRING) {
        pome_str s = take_str(c);
        e->data = (pome_bytes){(const uint8_t *)s.ptr, s.len};
    } else {
        e->data = (pome_bytes){take(c, type_bytes[type]), type_bytes[type]};
    }
    return c->failed ? cut_short(c, "a metadata value", err) : POME_OK;
}

static pome_status read_tensor(cursor *c, pome_gguf_tensor *t, pome_error *err)
{
    t->name = take_str(c);
    t->n_dims = (uint32_t)take_uint(c, 4);
    if (c->failed)
        return cut_short(c, "a tensor's entry", err);
    int shown = (int)(t->name.len < 100 ? t->name.len : 100);
    if (t->name.len == 0 || t->name.len > NAME_BYTES_MAX)
        return pome_fail_at(err, POME_ERR_FORMAT, c->at, "GGUF: a tensor's name of %zu bytes", t->name.len);
    if (t->n_dims > POME_GGUF_DIMS_MAX)
        return pome_fail_at(err, POME_ERR_FORMAT, c->at, "GGUF: tensor \"%.*s\" has %u dimensions, at most %d fit",
                            shown, t->name.ptr, (unsigned)t->n_dims, POME_GGUF_DIMS_MAX);
    uint64_t count = 1;
    for (uint32_t i = 0; i < POME_GGUF_DIMS_MAX; i++) {
        t->dims[i] = i < t->n_dims ? take_uint(c, 8) : 1;
        if (__builtin_mul_overflow(count, t->dims[i], &count) || count > INT64_MAX)
            return pome_fail_at(err, POME_ERR_FORMAT, c->at, "GGUF: tensor \"%.*s\" has too many elements", shown,
                                t->name.ptr);
    }
    t->type = (uint32_t)take_uint(c, 4);
    t->offset = take_uint(c, 8);
    return c->failed ? cut_short(c, "a tensor's entry", err) : POME_OK;
}

/* Offsets in the file count from the data section. */
static pome_status place_tensors(pome_gguf *g, const cursor *c, pome_error *err)
{
    g->alignment = 32;
    const pome_gguf_entry *entry = pome_gguf_find(g, "general.alignment");
    if (entry && (!pome_gguf_get_uint(g, "general.alignment", &g->alignment) || g->alignment == 0 ||
                  (g->alignment & (g->alignment - 1)) || g->alignment > (1u << 20)))
        return pome_fail(err, POME_ERR_FORMAT, "GGUF: general.alignment is not a power of two");
    g->data_offset = (c->at + g->alignment - 1) / g->alignment * g->alignment;
    for (uint64_t i = 0; i < g->n_tensors; i++) {
        pome_gguf_tensor *t = &g->tensors[i];
        uint64_t offset = t->offset;
        if (offset % g->alignment != 0 || __builtin_add_overflow(t->offset, g->data_offset, &t->offset) ||
            t->offset > c->bytes.len)
            return pome_fail(err, POME_ERR_FORMAT,
                             "GGUF: tensor \"%.*s\" lies at %llu of the data section, file has %zu bytes (download "
                             "incomplete?)",
                             (int)(t->name.len < 100 ? t->name.len : 100), t->name.ptr, (unsigned long long)offset,
                             c->bytes.len);
    }
    return POME_OK;
}

static pome_status read_all(pome_gguf *g, pome_bytes bytes, pome_error *err)
{
    cursor c = {.bytes = bytes};
    const uint8_t *magic = take(&c, 4);
    if (!magic || memcmp(magic, "GGUF", 4) != 0)
        return pome_fail(err, POME_ERR_FORMAT, "GGUF: the file does not start with \"GGUF\"");
    g->version = (uint32_t)take_uint(&c, 4);
    g->n_tensors = take_uint(&c, 8);
    g->n_entries = take_uint(&c, 8);
    if (c.failed)
        return cut_short(&c, "the header", err);
    if (g->version != 2 && g->version != 3)
        return pome_fail_at(err, POME_ERR_UNSUPPORTED, 4, "GGUF: version %u%s, 2 and 3 are read", (unsigned)g->version,
                            g->version << 16 ? "" : " (a big-endian file)");
    /* The least entry has 13 bytes, the least tensor 24: a count that cannot fit is refused before it is believed. */
    if (g->n_entries > bytes.len / 13 || g->n_tensors > bytes.len / 24)
        return pome_fail_at(err, POME_ERR_FORMAT, 8, "GGUF: %llu entries and %llu tensors in %zu bytes",
                            (unsigned long long)g->n_entries, (unsigned long long)g->n_tensors, bytes.len);
    g->entries = POME_NEW_ARRAY(g->arena, pome_gguf_entry, (size_t)g->n_entries);
    g->tensors = POME_NEW_ARRAY(g->arena, pome_gguf_tensor, (size_t)g->n_tensors);
    if (!g->entries || !g->tensors)
        return pome_fail_nomem(err, (size_t)(g->n_entries + g->n_tensors), "GGUF tables");
    for (uint64_t i = 0; i < g->n_entries; i++)
        POME_TRY(read_entry(&c, &g->entries[i], err));
    for (uint64_t i = 0; i < g->n_tensors; i++)
        POME_TRY(read_tensor(&c, &g->tensors[i], err));
    return place_tensors(g, &c, err);
}

pome_status pome_gguf_read(pome_gguf *out, pome_bytes bytes, pome_error *err)
{
    pome_gguf g = {.arena = pome_arena_create(0)};
    if (!g.arena)
        return pome_fail_nomem(err, 0, "GGUF tables");
    pome_status status = read_all(&g, bytes, err);
    if (status != POME_OK) {
        pome_gguf_close(&g);
        return status;
    }
    *out = g;
    return POME_OK;
}

pome_status pome_gguf_detect(bool *is_gguf, const char *path, pome_error *err)
{
    pome_mapping *mapping;
    POME_TRY(pome_mapping_open(&mapping, path, err));
    pome_bytes bytes = pome_mapping_bytes(mapping);
    *is_gguf = bytes.len >= 4 && memcmp(bytes.ptr, "GGUF", 4) == 0;
    pome_mapping_release(&mapping);
    return POME_OK;
}

pome_status pome_gguf_open(pome_gguf *out, const char *path, pome_error *err)
{
    pome_mapping *mapping;
    POME_TRY(pome_mapping_open(&mapping, path, err));
    pome_bytes bytes = pome_mapping_bytes(mapping);
    pome_status status;
    if (pome_bytes_is_lfs_pointer(bytes))
        status = pome_fail(err, POME_ERR_FORMAT, "%s: a Git LFS pointer, not the file itself (download it again)",
                           path);
    else
        status = pome_gguf_read(out, bytes, err);
    if (status != POME_OK) {
        pome_mapping_release(&mapping);
        return pome_fail_prefix(err, status, "%s", path);
    }
    out->mapping = mapping;
    return POME_OK;
}

void pome_gguf_close(pome_gguf *gguf)
{
    pome_arena_destroy(&gguf->arena);
    pome_mapping_release(&gguf->mapping);
    *gguf = (pome_gguf){0};
}

const pome_gguf_entry *pome_gguf_find(const pome_gguf *gguf, const char *key)
{
    for (uint64_t i = 0; i < gguf->n_entries; i++)
        if (pome_str_is(gguf->entries[i].key, key))
            return &gguf->entries[i];
    return NULL;
}

static int64_t get_int(pome_gguf_type type, const uint8_t *p)
{
    uint64_t u = load(p, type_bytes[type]);
    switch (type) {
    case POME_GGUF_I8:
        return (int8_t)u;
    case POME_GGUF_I16:
        return (int16_t)u;
    case POME_GGUF_I32:
        return (int32_t)u;
    default:
        return (int64_t)u;
    }
}

static double get_float(pome_gguf_type type, const uint8_t *p)
{
    if (type == POME_GGUF_F32) {
        uint32_t bits = (uint32_t)load(p, 4);
        float f;
        memcpy(&f, &bits, sizeof f);
        return f;
    }
    if (type == POME_GGUF_F64) {
        uint64_t bits = load(p, 8);
        double d;
        memcpy(&d, &bits, sizeof d);
        return d;
    }
    return type == POME_GGUF_U64 ? (double)load(p, 8) : (double)get_int(type, p);
}

static bool is_int(pome_gguf_type type)
{
    return type != POME_GGUF_STRING && type != POME_GGUF_ARRAY && type != POME_GGUF_F32 && type != POME_GGUF_F64 &&
           type != POME_GGUF_BOOL;
}

bool pome_gguf_get_uint(const pome_gguf *gguf, const char *key, uint64_t *out)
{
    const pome_gguf_entry *e = pome_gguf_find(gguf, key);
    if (!e || !is_int(e->type) || (e->type != POME_GGUF_U64 && get_int(e->type, e->data.ptr) < 0))
        return false;
    *out = (uint64_t)get_int(e->type, e->data.ptr);
    return true;
}

bool pome_gguf_get_float(const pome_gguf *gguf, const char *key, double *out)
{
    const pome_gguf_entry *e = pome_gguf_find(gguf, key);
    if (!e || e->type == POME_GGUF_STRING || e->type == POME_GGUF_ARRAY || e->type == POME_GGUF_BOOL)
        return false;
    *out = get_float(e->type, e->data.ptr);
    return true;
}

bool pome_gguf_get_bool(const pome_gguf *gguf, const char *key, bool *out)
{
    const pome_gguf_entry *e = pome_gguf_find(gguf, key);
    if (!e || e->type != POME_GGUF_BOOL)
        return false;
    *out = e->data.ptr[0] != 0;
    return true;
}

bool pome_gguf_get_str(const pome_gguf *gguf, const char *key, pome_str *out)
{
    const pome_gguf_entry *e = pome_gguf_find(gguf, key);
    if (!e || e->type != POME_GGUF_STRING)
        return false;
    *out = (pome_str){(const char *)e->data.ptr, e->data.len};
    return true;
}

double pome_gguf_element_float(const pome_gguf_entry *entry, uint64_t i)
{
    return get_float(entry->element, entry->data.ptr + i * type_bytes[entry->element]);
}

int64_t pome_gguf_element_int(const pome_gguf_entry *entry, uint64_t i)
{
    return get_int(entry->element, entry->data.ptr + i * type_bytes[entry->element]);
}

pome_str pome_gguf_next_str(const pome_gguf_entry *entry, size_t *at)
{
    size_t n = (size_t)load(entry->data.ptr + *at, 8);
    pome_str s = {(const char *)entry->data.ptr + *at + 8, n};
    *at += 8 + n;
    return s;
}
