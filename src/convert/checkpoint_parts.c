#include "convert/checkpoint_parts.h"

#include <inttypes.h>
#include <stdio.h>

const char *pome_checkpoint_name(const pome_checkpoint *c, pome_part part, int64_t layer, bool is_bias)
{
    const pome_lm_names *n = c->config.names;
    const char *kind = is_bias ? "bias" : "weight", *stem = n->part[part];
    if (part == POME_PART_HEAD)
        return pome_arena_printf(c->arena, "%s.%s", stem, kind);
    if (part < POME_PART_QUERY)
        return pome_arena_printf(c->arena, "%s%s.%s", c->prefix, stem, kind);
    return pome_arena_printf(c->arena, "%s%s.%lld.%s.%s", c->prefix, n->layers, (long long)layer, stem, kind);
}

bool pome_part_is_norm(pome_part part)
{
    return part == POME_PART_NORM || part >= POME_PART_ATTENTION_NORM;
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), n = strlen(end);
    return len >= n && strcmp(text + len - n, end) == 0;
}

/* Scales of 8-bit floats, of weights and of what is computed from them. */
static bool is_scale(const pome_checkpoint *c, const char *name)
{
    return c->config.has_fp8 &&
           (ends_with(name, ".weight_scale") || ends_with(name, ".weight_scale_inv") || ends_with(name, ".input_scale") ||
            ends_with(name, ".activation_scale") || ends_with(name, ".k_scale") || ends_with(name, ".v_scale"));
}

/* NAME_scale or NAME_scale_inv; both multiply. */
static pome_status find_scales(const pome_checkpoint *c, const char *name, pome_weight *w, pome_error *err)
{
    static const char *const ends[] = {"_scale_inv", "_scale"};
    bool is_fp8 = w->dtype == POME_DTYPE_F8E4M3FN || w->dtype == POME_DTYPE_F8E5M2;
    for (int i = 0; c->config.has_fp8 && is_fp8 && i < 2; i++) {
        const char *full = pome_arena_printf(c->arena, "%s%s", name, ends[i]);
        if (!full)
            return pome_fail_nomem(err, 0, "a tensor's name");
        const pome_safetensor *s = pome_safetensors_find(&c->tensors, full);
        if (s)
            return pome_weight_set_scales(w, s, c->config.fp8_block, err);
    }
    if (c->config.has_fp8 && is_fp8)
        return pome_fail(err, POME_ERR_FORMAT, "tensor \"%.200s\" holds 8-bit floats, but there is no %.200s_scale", name, name);
    return POME_OK;
}

pome_status pome_checkpoint_tensor(const pome_checkpoint *c, const char *name, pome_weight *out, bool *found,
                                   pome_error *err)
{
    *found = true;
    if (c->is_gguf) {
        const pome_gguf_tensor *t = pome_strmap_get(&c->gguf_names, pome_str_of(name));
        if (t)
            return pome_weight_from_gguf(out, t, name, pome_mapping_bytes(c->gguf.mapping), err);
    } else {
        const pome_safetensor *t = pome_safetensors_find(&c->tensors, name);
        if (t) {
            POME_TRY(pome_weight_from_safetensor(out, t, err));
            return find_scales(c, name, out, err);
        }
    }
    *found = false;
    return POME_OK;
}

/* ---- shapes ---- */

/* [rows, columns] that a part must have; rows 0: any. */
static void wanted_shape(const pome_checkpoint *c, pome_part part, int64_t layer, int64_t *rows, int64_t *cols)
{
    const pome_lm_config *k = &c->config;
    const pome_lm_layer l = pome_lm_config_layer(k, part < POME_PART_QUERY ? 0 : layer);
    int64_t q = l.n_heads * k->head_dim, kv = l.n_kv_heads * k->head_dim;
    *rows = 1;
    *cols = k->hidden;
    switch (part) {
    case POME_PART_EMBEDDING: *rows = k->n_vocab; return;
    case POME_PART_HEAD: *rows = c->n_vocab; return;
    case POME_PART_POSITIONS: *rows = k->n_positions; return;
    case POME_PART_QUERY: *rows = q; return;
    case POME_PART_KEY:
    case POME_PART_VALUE: *rows = kv; return;
    case POME_PART_OUT:
        *rows = k->hidden;
        *cols = q;
        return;
    case POME_PART_GATE:
    case POME_PART_UP: *rows = l.ffn; return;
    case POME_PART_DOWN:
        *rows = k->hidden;
        *cols = l.ffn;
        return;
    case POME_PART_QUERY_NORM:
    case POME_PART_KEY_NORM: *cols = k->head_dim; return;
    default: return;
    }
}

static pome_status check_shape(const pome_checkpoint *c, pome_part part, int64_t layer, bool is_bias,
                               const pome_weight *w, pome_error *err)
{
    int64_t rows, cols;
    wanted_shape(c, part, layer, &rows, &cols);
    bool is_vector = is_bias || pome_part_is_norm(part);
    if (is_bias) {
        cols = pome_part_is_norm(part) ? cols : rows;
        rows = 1;
    }
    if (w->rank == (is_vector ? 1 : 2) && w->n_cols == cols && (rows == 0 || w->n_rows == rows))
        return POME_OK;
    return pome_fail(err, POME_ERR_FORMAT,
                     "tensor \"%s\" has shape [%" PRId64 ", %" PRId64 "], the configuration asks for [%" PRId64 ", %" PRId64
                     "]",
                     w->name, w->n_rows, w->n_cols, rows, cols);
}

/* Cuts a part from the matrix (or vector of biases) that it shares: query, key, value; gate, up. */
static pome_status take_share(const pome_checkpoint *c, pome_part part, int64_t layer, pome_weight *w, pome_error *err)
{
    const char *const *stems = c->config.names->part;
    int64_t first = 0, mine = 0, all = 0, rows, cols;
    for (int p = POME_PART_QUERY; part >= POME_PART_QUERY && p <= POME_PART_UP; p++)
        if (stems[p] && strcmp(stems[p], stems[part]) == 0) {
            wanted_shape(c, (pome_part)p, layer, &rows, &cols);
            first += p < (int)part ? rows : 0;
            mine = p == (int)part ? rows : mine;
            all += rows;
        }
    if (all == mine) /* shares with none */
        return POME_OK;
    int64_t found = w->rank == 1 ? w->n_cols : w->n_rows;
    if (found != all)
        return pome_fail(err, POME_ERR_FORMAT, "tensor \"%s\" has %" PRId64 " rows, the configuration asks for %" PRId64,
                         w->name, found, all);
    if (w->rank == 1 && w->encoding)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "tensor \"%s\": a quantized vector cannot be divided", w->name);
    *w = pome_weight_slice(w, first, mine);
    return POME_OK;
}

pome_status pome_checkpoint_find(const pome_checkpoint *c, pome_part part, int64_t layer, bool is_bias, pome_weight *out,
                                 bool *found, pome_error *err)
{
    pome_weight w = {0};
    const pome_lm_family *family = c->config.family;
    *found = false;
    if (!c->config.names->part[part] || (is_bias && !(c->config.biases >> part & 1)))
        return POME_OK;
    const char *name = pome_checkpoint_name(c, part, layer, is_bias);
    if (!name)
        return pome_fail_nomem(err, 0, "a tensor's name");
    POME_TRY(pome_checkpoint_tensor(c, name, &w, found, err));
    if (!*found)
        return POME_OK;
    if (w.scales.data && family->stores_columns)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "tensor \"%s\": scaled 8-bit floats of this architecture cannot be read",
                         name);
    if (!c->is_gguf && family->stores_columns && part >= POME_PART_QUERY && w.rank == 2)
        w = pome_weight_transpose(&w);
    POME_TRY(take_share(c, part, layer, &w, err));
    POME_TRY(check_shape(c, part, layer, is_bias, &w, err));
    if (pome_part_is_norm(part) && !is_bias && family->norm_plus_one && !c->is_gguf)
        w.plus = 1;
    if (c->is_gguf && family->gguf_interleaved && (part == POME_PART_QUERY || part == POME_PART_KEY))
        w.interleaved_rows = c->config.head_dim;
    if (w.rank == 1 && w.encoding && w.interleaved_rows)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "tensor \"%s\": a quantized vector cannot be reordered", w.name);
    *out = w;
    return POME_OK;
}

/* ---- completeness ---- */

static bool needs(const pome_checkpoint *c, pome_part part)
{
    return part == POME_PART_HEAD ? c->has_head : pome_lm_config_has(&c->config, part);
}

typedef struct missing_list {
    char text[600];
    size_t len;
    int n_more;
} missing_list;

static void note_missing(missing_list *m, const char *name)
{
    size_t len = strlen(name);
    if (m->len + len + 3 > sizeof m->text) {
        m->n_more++;
        return;
    }
    m->len += (size_t)snprintf(m->text + m->len, sizeof m->text - m->len, "%s%s", m->len ? ", " : "", name);
}

static pome_status check_part(const pome_checkpoint *c, pome_part part, int64_t layer, missing_list *missing,
                              pome_strmap *used, pome_error *err)
{
    int n_kinds = c->config.biases >> part & 1 ? 2 : 1;
    for (int is_bias = 0; is_bias < n_kinds; is_bias++) {
        pome_weight w;
        bool found = false;
        POME_TRY(pome_checkpoint_find(c, part, layer, is_bias, &w, &found, err));
        const char *name = pome_checkpoint_name(c, part, layer, is_bias);
        if (!name)
            return pome_fail_nomem(err, 0, "a tensor's name");
        if (!found)
            note_missing(missing, name);
        if (found && !pome_strmap_set(used, pome_str_of(name), missing))
            return pome_fail_nomem(err, 0, "a tensor's name");
    }
    return POME_OK;
}

/* Tensors of old checkpoints that hold what follows from the configuration or from other tensors: rotary tables, causal
 * masks, a head that is the embedding. */
static bool is_computable(const pome_checkpoint *c, const char *name)
{
    size_t len = strlen(name);
    bool is_mask = c->config.family->stores_columns && ((len > 10 && strcmp(name + len - 10, ".attn.bias") == 0) ||
                                                        (len > 17 && strcmp(name + len - 17, ".attn.masked_bias") == 0));
    return is_mask || strstr(name, "rotary_emb.inv_freq") || strstr(name, "rope_freqs") || strstr(name, "rope_factors_") ||
           strcmp(name, "lm_head.weight") == 0 || strcmp(name, "model.embed_positions.weight") == 0;
}

/* Tensors that nothing of the graph reads: they are more than this configuration has, and leaving them out would give
 * another model. */
static pome_status check_unused(const pome_checkpoint *c, const pome_strmap *used, pome_error *err)
{
    uint64_t n = c->is_gguf ? c->gguf.n_tensors : c->tensors.n_tensors;
    missing_list extra = {{0}, 0, 0};
    for (uint64_t i = 0; i < n; i++) {
        pome_str name = c->is_gguf ? c->gguf.tensors[i].name : pome_str_of(c->tensors.tensors[i].name);
        const char *text = pome_arena_strndup(c->arena, name.ptr, name.len);
        if (!text)
            return pome_fail_nomem(err, name.len, "a tensor's name");
        if (!is_computable(c, text) && !is_scale(c, text) && !pome_strmap_get(used, name))
            note_missing(&extra, text);
    }
    if (extra.len)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "the checkpoint has tensors that architecture %s with this configuration does not: %s%s",
                         c->config.family->model_type, extra.text, extra.n_more ? ", and more" : "");
    return POME_OK;
}

pome_status pome_checkpoint_check_parts(pome_checkpoint *c, pome_error *err)
{
    missing_list missing = {{0}, 0, 0};
    pome_strmap used;
    pome_strmap_init(&used, c->arena);
    for (int part = 0; part < POME_PART_QUERY; part++)
        if (needs(c, (pome_part)part))
            POME_TRY(check_part(c, (pome_part)part, 0, &missing, &used, err));
    for (int64_t layer = 0; layer < c->config.n_layers; layer++)
        for (int part = POME_PART_QUERY; part < POME_PART_COUNT; part++)
            if (needs(c, (pome_part)part))
                POME_TRY(check_part(c, (pome_part)part, layer, &missing, &used, err));
    if (missing.len)
        return pome_fail(err, POME_ERR_FORMAT, "tensors are missing: %s%s", missing.text,
                         missing.n_more ? ", and more" : "");
    return check_unused(c, &used, err);
}
