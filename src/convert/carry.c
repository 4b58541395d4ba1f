#include "convert/carry.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "pome/tokenizer.h"

#define CARRIED_BYTES_MAX ((size_t)256 << 20)

static const char *const carried[] = {
    "tokenizer.json",      "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", "chat_template.json",    "generation_config.json",
};

static pome_status copy_files(const pome_mlpackage_writer *w, const char *folder, char *what, size_t what_size,
                              pome_error *err)
{
    for (size_t i = 0; i < sizeof carried / sizeof carried[0]; i++) {
        const char *path = pome_arena_printf(w->arena, "%s/%s", folder, carried[i]);
        char *data = NULL;
        size_t len = 0;
        if (!path)
            return pome_fail_nomem(err, 0, "a path");
        if (!pome_path_exists(path))
            continue;
        POME_TRY(pome_file_read(path, CARRIED_BYTES_MAX, &data, &len, err));
        pome_status status = pome_mlpackage_writer_add_file(w, carried[i], (pome_bytes){(const uint8_t *)data, len}, err);
        free(data);
        POME_TRY(status);
        if (i == 0)
            snprintf(what, what_size, "%s", carried[i]);
    }
    return POME_OK;
}

/* ---- GGUF ---- */

typedef struct buffer {
    uint8_t *data; /* NULL: only the length is counted */
    size_t len;
} buffer;

static void put(buffer *b, const void *p, size_t n)
{
    if (b->data && n)
        memcpy(b->data + b->len, p, n);
    b->len += n;
}

static void put_uint(buffer *b, uint64_t v, int n)
{
    uint8_t bytes[8];
    for (int i = 0; i < n; i++)
        bytes[i] = (uint8_t)(v >> 8 * i);
    put(b, bytes, (size_t)n);
}

/* A file of metadata alone, which is as the format has it for vocabularies. */
static void write_metadata(buffer *b, const pome_gguf *g)
{
    put(b, "GGUF", 4);
    put_uint(b, 3, 4);
    put_uint(b, 0, 8);
    put_uint(b, g->n_entries, 8);
    for (uint64_t i = 0; i < g->n_entries; i++) {
        const pome_gguf_entry *e = &g->entries[i];
        put_uint(b, e->key.len, 8);
        put(b, e->key.ptr, e->key.len);
        put_uint(b, (uint64_t)e->type, 4);
        if (e->type == POME_GGUF_ARRAY) {
            put_uint(b, (uint64_t)e->element, 4);
            put_uint(b, e->count, 8);
        } else if (e->type == POME_GGUF_STRING) {
            put_uint(b, e->data.len, 8);
        }
        put(b, e->data.ptr, e->data.len);
    }
}

static pome_status write_vocabulary(const pome_mlpackage_writer *w, const pome_gguf *g, char *what, size_t what_size,
                                    pome_error *err)
{
    buffer b = {0};
    if (!pome_gguf_find(g, "tokenizer.ggml.tokens"))
        return POME_OK;
    write_metadata(&b, g);
    b = (buffer){.data = malloc(b.len)};
    if (!b.data)
        return pome_fail_nomem(err, 0, "the vocabulary");
    write_metadata(&b, g);
    pome_status status = pome_mlpackage_writer_add_file(w, "tokenizer.gguf", (pome_bytes){b.data, b.len}, err);
    free(b.data);
    if (status == POME_OK)
        snprintf(what, what_size, "tokenizer.gguf");
    return status;
}

/* A vocabulary that nobody here can read is carried all the same: other programs may. */
static pome_status try_tokenizer(const char *path, const char *what, pome_error *err)
{
    pome_tokenizer *tokenizer = NULL;
    pome_error why = {0};
    pome_status status = pome_tokenizer_open(&tokenizer, path, &why);
    pome_tokenizer_close(&tokenizer);
    if (status == POME_ERR_NOMEM)
        return pome_fail_nomem(err, 0, what);
    if (status != POME_OK)
        pome_log(POME_LOG_WARN, "%s is carried over, but cannot be used: %s", what, why.message);
    return POME_OK;
}

pome_status pome_carry_tokenizer(const pome_mlpackage_writer *w, const pome_checkpoint *c, char *what, size_t what_size,
                                 pome_error *err)
{
    what[0] = '\0';
    if (c->is_gguf)
        POME_TRY(write_vocabulary(w, &c->gguf, what, what_size, err));
    else
        POME_TRY(copy_files(w, c->folder, what, what_size, err));
    if (!what[0])
        return POME_OK;
    return try_tokenizer(c->is_gguf ? pome_mapping_path(c->gguf.mapping) : c->folder, what, err);
}
