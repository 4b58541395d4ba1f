#include "convert/checkpoint_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"

/* ---- opening ---- */

/* Files of the bare model, without a head, leave the prefix out. */
static pome_status choose_prefix(pome_checkpoint *c, pome_error *err)
{
    pome_weight w;
    bool found = false;
    c->prefix = "";
    const char *bare = pome_checkpoint_name(c, POME_PART_EMBEDDING, 0, false);
    if (!bare)
        return pome_fail_nomem(err, 0, "a tensor's name");
    POME_TRY(pome_checkpoint_tensor(c, bare, &w, &found, err));
    if (!found)
        c->prefix = c->config.names->prefix;
    return POME_OK;
}

/* The embedding tells the vocabulary; whether it is the head too is decided from the tensors, and the configuration
 * must not contradict them. */
static pome_status find_vocabulary(pome_checkpoint *c, pome_error *err)
{
    pome_weight w;
    bool found = false;
    POME_TRY(choose_prefix(c, err));
    POME_TRY(pome_checkpoint_find(c, POME_PART_EMBEDDING, 0, false, &w, &found, err));
    if (!found)
        return pome_fail(err, POME_ERR_FORMAT, "tensor \"%s\" is missing",
                         pome_checkpoint_name(c, POME_PART_EMBEDDING, 0, false));
    if (w.n_rows < 1)
        return pome_fail(err, POME_ERR_FORMAT, "tensor \"%s\" has no rows", w.name);
    c->n_vocab = w.n_rows;
    POME_TRY(pome_checkpoint_find(c, POME_PART_HEAD, 0, false, &w, &found, err));
    c->has_head = found && (c->is_gguf || !c->config.ties);
    if (found && !c->has_head)
        pome_log(POME_LOG_WARN, "%s is not used: the configuration says that the embedding is the head", w.name);
    if (!found && !c->config.ties)
        pome_log(POME_LOG_WARN, "there is no %s: the embedding serves as head, though the configuration says otherwise",
                 pome_checkpoint_name(c, POME_PART_HEAD, 0, false));
    return POME_OK;
}

/* A vector of dim / 2 positive factors; NULL: there is none of that name. */
static pome_status read_factors(pome_checkpoint *c, const char *name, const double **out, pome_error *err)
{
    pome_weight w;
    bool found = false;
    int64_t n = c->config.rope.dim / 2;
    POME_TRY(pome_checkpoint_tensor(c, name, &w, &found, err));
    *out = NULL;
    if (!found)
        return POME_OK;
    if (w.rank != 1 || w.n_cols != n)
        return pome_fail(err, POME_ERR_FORMAT, "tensor \"%s\" has %" PRId64 " elements, wanted %" PRId64, name, w.n_cols, n);
    float *narrow = POME_NEW_ARRAY(c->arena, float, (size_t)n);
    double *factors = POME_NEW_ARRAY(c->arena, double, (size_t)n);
    if (!narrow || !factors)
        return pome_fail_nomem(err, (size_t)n * 8, "rotary factors");
    pome_weight_decode(&w, 0, narrow);
    for (int64_t i = 0; i < n; i++) {
        if (!(narrow[i] > 0))
            return pome_fail(err, POME_ERR_FORMAT, "tensor \"%s\" holds %g", name, (double)narrow[i]);
        factors[i] = (double)narrow[i];
    }
    *out = factors;
    return POME_OK;
}

/* Factors of the rotary frequencies that lie among the tensors: for all lengths, or for those up to the original one
 * and beyond. */
static pome_status read_rope_factors(pome_checkpoint *c, pome_error *err)
{
    pome_rope *r = &c->config.rope;
    if (r->dim == 0)
        return POME_OK;
    POME_TRY(read_factors(c, "rope_freqs.weight", &r->short_factor, err));
    if (r->short_factor) {
        r->kind = POME_ROPE_FACTORS;
        return POME_OK;
    }
    POME_TRY(read_factors(c, "rope_factors_short.weight", &r->short_factor, err));
    POME_TRY(read_factors(c, "rope_factors_long.weight", &r->long_factor, err));
    if (!r->short_factor && !r->long_factor)
        return POME_OK;
    if (!r->short_factor || !r->long_factor)
        return pome_fail(err, POME_ERR_FORMAT, "GGUF: there are rotary factors for %s lengths only",
                         r->short_factor ? "short" : "long");
    if (r->original < 1)
        return pome_fail(err, POME_ERR_FORMAT, "GGUF: rotary factors without the original length");
    r->kind = POME_ROPE_LONGROPE;
    if (!(r->factor > 0))
        r->factor = (double)c->config.n_positions / (double)r->original;
    return POME_OK;
}

/* Which parts have biases a GGUF file does not say: those that have one in the first layer. */
static pome_status find_biases(pome_checkpoint *c, pome_error *err)
{
    for (int part = 0; part < POME_PART_COUNT; part++) {
        pome_weight w;
        bool found = false;
        const char *name = c->config.names->part[part] ? pome_checkpoint_name(c, (pome_part)part, 0, true) : NULL;
        if (name)
            POME_TRY(pome_checkpoint_tensor(c, name, &w, &found, err));
        if (found && pome_part_is_norm((pome_part)part) && c->config.family->norm == POME_NORM_RMS)
            return pome_fail(err, POME_ERR_UNSUPPORTED, "tensor \"%s\": norms of this family have no bias", name);
        c->config.biases |= found ? 1u << part : 0;
    }
    return POME_OK;
}

static pome_status open_gguf(pome_checkpoint *c, const char *path, pome_error *err)
{
    POME_TRY(pome_gguf_open(&c->gguf, path, err));
    c->is_gguf = true;
    c->source_bytes = pome_mapping_bytes(c->gguf.mapping).len;
    for (uint64_t i = 0; i < c->gguf.n_tensors; i++) {
        pome_gguf_tensor *t = &c->gguf.tensors[i];
        const pome_gguf_encoding *e = pome_gguf_encoding_find(t->type);
        c->is_quantized |= e && e->split;
        if (pome_strmap_get(&c->gguf_names, t->name))
            return pome_fail(err, POME_ERR_FORMAT, "GGUF: tensor \"%.*s\" is there twice",
                             (int)(t->name.len < 100 ? t->name.len : 100), t->name.ptr);
        if (!pome_strmap_set(&c->gguf_names, t->name, t))
            return pome_fail_nomem(err, 0, "the table of tensors");
    }
    POME_TRY(pome_lm_config_read_gguf(&c->config, &c->gguf, c->arena, err));
    c->prefix = "";
    POME_TRY(find_biases(c, err));
    return read_rope_factors(c, err);
}

static const char *folder_of(pome_checkpoint *c, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (pome_path_is_dir(path))
        return pome_arena_strndup(c->arena, path, strlen(path));
    return slash ? pome_arena_strndup(c->arena, path, (size_t)(slash - path) + (slash == path)) : ".";
}

static pome_status open_folder(pome_checkpoint *c, const char *path, pome_error *err)
{
    c->folder = folder_of(c, path);
    const char *config = c->folder ? pome_arena_printf(c->arena, "%s/config.json", c->folder) : NULL;
    if (!config)
        return pome_fail_nomem(err, 0, "a path");
    POME_TRY(pome_lm_config_read(&c->config, config, c->arena, err));
    POME_TRY(pome_safetensors_open(&c->tensors, path, err));
    c->source_bytes = c->tensors.size_bytes;
    return POME_OK;
}

static pome_status open_source(pome_checkpoint *c, const char *path, pome_error *err)
{
    bool is_gguf = false;
    if (!pome_path_is_dir(path))
        POME_TRY(pome_gguf_detect(&is_gguf, path, err));
    POME_TRY(is_gguf ? open_gguf(c, path, err) : open_folder(c, path, err));
    POME_TRY(find_vocabulary(c, err));
    return pome_checkpoint_check_parts(c, err);
}

pome_status pome_checkpoint_open(pome_checkpoint **out, const char *path, pome_error *err)
{
    pome_arena *arena = pome_arena_create(0);
    pome_checkpoint *c = arena ? POME_NEW(arena, pome_checkpoint) : NULL;
    if (!c) {
        pome_arena_destroy(&arena);
        return pome_fail_nomem(err, sizeof *c, "a checkpoint");
    }
    c->arena = arena;
    pome_strmap_init(&c->gguf_names, arena);
    pome_status status = open_source(c, path, err);
    if (status != POME_OK) {
        pome_checkpoint_close(&c);
        return status;
    }
    *out = c;
    return POME_OK;
}

void pome_checkpoint_close(pome_checkpoint **checkpoint)
{
    if (!checkpoint || !*checkpoint)
        return;
    pome_checkpoint *c = *checkpoint;
    pome_arena *arena = c->arena;
    *checkpoint = NULL;
    if (c->gguf.arena)
        pome_gguf_close(&c->gguf);
    if (c->tensors.arena)
        pome_safetensors_close(&c->tensors);
    pome_arena_destroy(&arena);
}
