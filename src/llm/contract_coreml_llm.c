/* Sets of models as CoreML-LLM (github.com/john-rocky/CoreML-LLM) makes them: chunks for one token at a time, whose host
 * looks up embeddings and rotary rows in files beside the models, builds masks, and hands caches back; the last chunk
 * takes the arg-max itself or gives logits. Names say what is what; shapes are checked.
 *
 *   hidden_states, hidden_in     the token's embedding: embed_tokens_q8.bin with embed_tokens_scales.bin, or
 *                                embed_weight.bin; in later chunks what the chunk before gave
 *   per_layer_raw                embed_tokens_per_layer_q8.bin with its scales
 *   cos*, sin*                   cos_sliding.npy for cos_s, cos_full.npy for cos_f, else NAME.npy; or rope_theta of
 *                                model_config.json
 *   causal_mask*, update_mask    0 or shut per column (a "sliding" one is right-aligned), one at the row to write
 *   X_in and X_out, X and new_X  caches
 *   any name of an earlier output, with or without "_out"
 */
#include "llm/contract_coreml_llm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/json_fields.h"

static bool starts_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool ends_with(const char *text, const char *with)
{
    size_t len = strlen(text), n = strlen(with);
    return len >= n && strcmp(text + len - n, with) == 0;
}

/* ---- files beside the models ---- */

/* A number of model_config.json; `otherwise` if it does not say. */
static double config_number(const pome_contract *c, const char *field, double otherwise)
{
    char *path = pome_path_join(c->subject->path, "model_config.json");
    json_t *config = NULL;
    double value = otherwise;
    if (path && pome_json_read(&config, path, 1 << 20, NULL) == POME_OK && json_is_number(json_object_get(config, field)))
        value = json_number_value(json_object_get(config, field));
    json_decref(config);
    free(path);
    return value;
}

/* What cannot be read there must not pass for what is not said: the scales would be wrong, and so every token. */
static bool check_config(const pome_contract *c, pome_error *err)
{
    static const char *const fields[] = {"embed_scale", "per_layer_embed_scale", "rope_theta"};
    char *path = pome_path_join(c->subject->path, "model_config.json");
    json_t *config = NULL;
    pome_status status = path && pome_path_exists(path) ? pome_json_read(&config, path, 1 << 20, err) : POME_OK;
    if (config && !json_is_object(config))
        status = pome_fail(err, POME_ERR_FORMAT, "%s: found no object, wanted one with numbers such as embed_scale", path);
    for (size_t i = 0; status == POME_OK && i < sizeof fields / sizeof *fields; i++) {
        const json_t *value = json_object_get(config, fields[i]);
        if (value && !json_is_number(value) && !json_is_null(value))
            status = pome_fail(err, POME_ERR_FORMAT, "%s: %s is no number", path, fields[i]);
    }
    json_decref(config);
    free(path);
    return status == POME_OK;
}

static bool open_table(const pome_contract *c, pome_row_table *t, const char *data, const char *scales, int64_t dim,
                       float factor, pome_error *err)
{
    char *path = pome_path_join(c->subject->path, data), *scales_path = scales ? pome_path_join(c->subject->path, scales) : NULL;
    pome_status status = POME_ERR_IO;
    if (path && pome_path_exists(path))
        status = scales                       ? pome_row_table_open_i8(t, path, scales_path ? scales_path : "", dim, factor, err)
                 : ends_with(data, ".npy") ? pome_row_table_open_npy(t, path, dim, err)
                                              : pome_row_table_open_f16(t, path, dim, err);
    free(path);
    free(scales_path);
    return status == POME_OK;
}

static bool open_token_table(const pome_contract *c, pome_row_table *t, const char *name, int64_t dim, pome_error *err)
{
    if (pome_name_has(name, "per_layer"))
        return open_table(c, t, "embed_tokens_per_layer_q8.bin", "embed_tokens_per_layer_scales.bin", dim,
                          (float)config_number(c, "per_layer_embed_scale", 1), err);
    return open_table(c, t, "embed_tokens_q8.bin", "embed_tokens_scales.bin", dim, (float)config_number(c, "embed_scale", 1), err) ||
           open_table(c, t, "embed_weight.bin", NULL, dim, 1, err);
}

static bool open_rotary_table(const pome_contract *c, pome_row_table *t, const char *name, int64_t dim, pome_error *err)
{
    char file[96];
    snprintf(file, sizeof file, "%.3s%s.npy", name, ends_with(name, "_s") ? "_sliding" : ends_with(name, "_f") ? "_full" : name + 3);
    if (open_table(c, t, file, NULL, dim, 1, err))
        return true;
    double base = config_number(c, "rope_theta", 0);
    if (base <= 0 || dim % 2 != 0 || (err && err->code == POME_ERR_FORMAT))
        return false;
    *t = (pome_row_table){.dim = dim, .n_rows = INT64_MAX, .rotary_base = base, .is_sine = starts_with(name, "sin")};
    return true;
}

/* The table for an input, opened once. -1 with a reason if it is not there. */
static int find_table(pome_contract *c, const pome_feature *f, bool is_rotary, pome_misfit *misfit)
{
    pome_coreml_llm *m = c->own;
    pome_error err = {0};
    int64_t dim = f->rank > 0 ? f->shape[f->rank - 1] : 0;
    for (int i = 0; i < m->n_tables; i++)
        if (strcmp(m->table_names[i], f->name) == 0 && m->tables[i].dim == dim)
            return i;
    if (!check_config(c, &err)) {
        pome_misfit_say(misfit, misfit->n_found, "%.280s", err.message);
        return -1;
    }
    if (m->n_tables < POME_TABLES_MAX && dim > 0 && strlen(f->name) < sizeof m->table_names[0] &&
        (is_rotary ? open_rotary_table : open_token_table)(c, &m->tables[m->n_tables], f->name, dim, &err)) {
        memcpy(m->table_names[m->n_tables], f->name, strlen(f->name) + 1);
        return m->n_tables++;
    }
    if (err.code == POME_ERR_FORMAT)
        pome_misfit_say(misfit, misfit->n_found, "%.280s", err.message);
    else
        pome_misfit_say(misfit, misfit->n_found, "input '%s' wants %s, which is not beside the models", f->name,
                        is_rotary ? "rotary rows (.npy, or rope_theta in model_config.json)"
                        : pome_name_has(f->name, "per_layer") ? "embed_tokens_per_layer_q8.bin and its scales"
                                                              : "embed_tokens_q8.bin and its scales, or embed_weight.bin");
    return -1;
}

/* ---- inputs ---- */

/* The output of chunk `link` that is `name`, or with `prefix` or `suffix`; -1. */
static int find_output(const pome_link *link, const char *prefix, const char *name, size_t len, const char *suffix)
{
    char wanted[160];
    snprintf(wanted, sizeof wanted, "%s%.*s%s", prefix, (int)len, name, suffix);
    return pome_feature_index(link->function->outputs, link->function->n_outputs, wanted);
}

static int find_cache(const pome_link *link, const char *name)
{
    size_t len = strlen(name);
    int output = ends_with(name, "_in") && !starts_with(name, "hidden") ? find_output(link, "", name, len - 3, "_out") : -1;
    return output >= 0 ? output : find_output(link, "new_", name, len, "");
}

/* What an earlier chunk gave under this name; of hidden states what the chunk before gave. */
static bool find_earlier(const pome_coreml_llm *m, const char *name, pome_link_input *in)
{
    bool is_hidden = starts_with(name, "hidden");
    for (int i = m->n_links - 1; i >= 0; i--) {
        const pome_function_info *fn = m->links[i].function;
        int output = find_output(&m->links[i], "", name, strlen(name), "");
        if (output < 0)
            output = find_output(&m->links[i], "", name, strlen(name), "_out");
        for (int o = 0; output < 0 && is_hidden && o < (int)fn->n_outputs; o++)
            if (strcmp(fn->outputs[o].name, "hidden") == 0 || starts_with(fn->outputs[o].name, "hidden_states"))
                output = o;
        if (output >= 0) {
            *in = (pome_link_input){POME_LINK_OUTPUT, i, output};
            return true;
        }
    }
    return false;
}

static bool find_input(pome_contract *c, pome_link *link, int index, pome_misfit *misfit)
{
    pome_coreml_llm *m = c->own;
    const pome_feature *f = &link->function->inputs[index];
    pome_link_input *in = &link->inputs[index];
    int cache = find_cache(link, f->name);
    bool is_float = f->kind == POME_FEATURE_TENSOR && pome_dtype_is_float(f->dtype);
    if (f->is_ranged || f->n_enumerated > 0)
        return pome_misfit_say(misfit, misfit->n_found, "input '%s' has no fixed shape", f->name);
    if (is_float && cache >= 0) {
        *in = (pome_link_input){POME_LINK_CACHE, 0, cache};
        m->n_caches++;
    } else if (is_float && (starts_with(f->name, "cos") || starts_with(f->name, "sin"))) {
        *in = (pome_link_input){POME_LINK_ROTARY, find_table(c, f, true, misfit), 0};
        m->has_rotary = true;
        return in->from >= 0;
    } else if (is_float && f->rank == 4 && pome_name_has(f->name, "mask") && f->shape[3] == 1) {
        *in = (pome_link_input){POME_LINK_UPDATE, 0, 0};
    } else if (is_float && f->rank == 4 && pome_name_has(f->name, "mask")) {
        bool is_sliding = pome_name_has(f->name, "sliding");
        *in = (pome_link_input){is_sliding ? POME_LINK_SLIDING : POME_LINK_MASK, 0, 0};
        if (!is_sliding && (c->context == 0 || f->shape[3] < c->context))
            c->context = f->shape[3];
    } else if (pome_feature_is_array(f, 2, false) && f->shape[1] == 1) {
        *in = (pome_link_input){POME_LINK_IDS, 0, 0};
        m->has_ids = true;
    } else if (f->rank == 1 && f->shape[0] == 1 && pome_name_has(f->name, "pos") && !pome_name_has(f->name, "ring")) {
        *in = (pome_link_input){POME_LINK_POSITION, 0, 0};
    } else if (is_float && !find_earlier(m, f->name, in)) {
        if (f->rank != 3 || f->shape[1] != 1 || (!starts_with(f->name, "hidden") && !starts_with(f->name, "per_layer")))
            return pome_misfit_say(misfit, misfit->n_found, "input '%s' has no known part", f->name);
        *in = (pome_link_input){POME_LINK_TOKEN, find_table(c, f, false, misfit), 0};
        return in->from >= 0;
    } else if (!is_float) {
        return pome_misfit_say(misfit, misfit->n_found, "input '%s' has no known part", f->name);
    }
    return true;
}

/* ---- chunks ---- */

/* Chunks are called so; of a set with merged chunks ("chunk2_3way") those count, and the first. Chunks for several tokens
 * ("prefill_chunk1"), encoders of images and the like are left alone. */
static bool is_chunk(const pome_contract *c, const pome_contract_model *m)
{
    bool has_merged = false;
    for (uint32_t i = 0; i < c->subject->n_models; i++)
        has_merged |= ends_with(c->subject->models[i].name, "_3way");
    if (!starts_with(m->name, "chunk") || pome_name_has(m->name, "vision"))
        return false;
    return !has_merged || ends_with(m->name, "_3way") || strcmp(m->name, "chunk1") == 0;
}

/* A chunk that is left out need not show: hidden states have the same shape everywhere. "chunkN" count from 1, "chunk_N"
 * from 0; models come by number. */
static bool check_numbers(const pome_contract *c, pome_misfit *misfit)
{
    const char *before = NULL;
    unsigned long next = 0;
    for (uint32_t i = 0; i < c->subject->n_models; i++) {
        const char *name = c->subject->models[i].name, *digits = name + strlen("chunk");
        char *end;
        if (!is_chunk(c, &c->subject->models[i]))
            continue;
        bool has_line = *digits == '_';
        unsigned long number = strtoul(digits + has_line, &end, 10);
        if (end == digits + has_line)
            continue;
        if (!before)
            next = has_line ? 0 : 1;
        if (number > next && before)
            return pome_misfit_say(misfit, misfit->n_found, "between %s and %s chunks are missing: numbers must follow each other",
                                   before, name);
        if (number > next)
            return pome_misfit_say(misfit, misfit->n_found, "chunk%s%lu is missing: the chunks begin with %s", has_line ? "_" : "",
                                   next, name);
        before = name;
        next = number + 1;
    }
    return true;
}

static bool add_chunk(pome_contract *c, const pome_contract_model *model, pome_misfit *misfit)
{
    pome_coreml_llm *m = c->own;
    if (m->n_links == POME_LINKS_MAX)
        return pome_misfit_say(misfit, misfit->n_found, "there are more than %d chunks", POME_LINKS_MAX);
    pome_link *link = &m->links[m->n_links];
    *link = (pome_link){model->model, &model->functions[model->default_function], NULL};
    link->inputs = calloc(link->function->n_inputs + 1, sizeof *link->inputs);
    if (!link->inputs)
        return pome_misfit_say(misfit, 0, "memory is short");
    bool fits = true;
    for (int i = 0; i < (int)link->function->n_inputs && fits; i++)
        fits = find_input(c, link, i, misfit);
    m->n_links++;
    misfit->n_found += fits;
    return fits;
}

/* "chunk_head" is the last, whatever its name's place. */
static bool add_chunks(pome_contract *c, pome_misfit *misfit)
{
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t i = 0; i < c->subject->n_models; i++) {
            const pome_contract_model *m = &c->subject->models[i];
            if (is_chunk(c, m) && pome_name_has(m->name, "head") == (pass == 1) && !add_chunk(c, m, misfit))
                return false;
        }
    return true;
}

static bool find_result(pome_contract *c, pome_misfit *misfit)
{
    pome_coreml_llm *m = c->own;
    const pome_link *last = &m->links[m->n_links - 1];
    const pome_function_info *fn = last->function;
    for (int i = 0; i < (int)fn->n_outputs; i++)
        if (fn->outputs[i].dtype == POME_DTYPE_I32 && pome_name_has(fn->outputs[i].name, "token")) {
            m->logits[0] = i;
            m->n_logits = 1;
            c->is_argmax = true;
        }
    int n = c->is_argmax ? 0 : pome_logits_parts(fn, m->logits);
    if (c->is_argmax) {
        c->n_vocab = m->has_ids ? pome_embedding_rows(m->links[0].model, m->links[0].function) : m->tables[0].n_rows;
        for (int i = 0; i < m->n_tables && !m->has_ids; i++)
            if (!starts_with(m->table_names[i], "cos") && !starts_with(m->table_names[i], "sin"))
                c->n_vocab = m->tables[i].n_rows;
    }
    if (!c->is_argmax)
        m->n_logits = n;
    return m->n_logits > 0 ||
           pome_misfit_say(misfit, misfit->n_found, "the last chunk gives neither a token nor logits (%s, ...)", fn->outputs[0].name);
}

/* A cache's rows bound the context where no mask does. */
static void find_context(pome_contract *c)
{
    const pome_coreml_llm *m = c->own;
    for (int k = 0; k < m->n_links && c->context == 0; k++)
        for (uint32_t i = 0; i < m->links[k].function->n_inputs; i++) {
            const pome_feature *f = &m->links[k].function->inputs[i];
            if (m->links[k].inputs[i].source == POME_LINK_CACHE && f->rank == 4 && f->shape[2] > c->context)
                c->context = f->shape[2];
        }
    for (int i = 0; i < m->n_tables; i++) {
        bool is_rotary = starts_with(m->table_names[i], "cos") || starts_with(m->table_names[i], "sin");
        if (is_rotary && m->tables[i].n_rows < c->context)
            c->context = m->tables[i].n_rows;
    }
}

static bool fit(pome_contract *c, pome_misfit *misfit)
{
    int n_chunks = 0;
    for (uint32_t i = 0; i < c->subject->n_models; i++)
        n_chunks += is_chunk(c, &c->subject->models[i]);
    if (n_chunks < 2)
        return pome_misfit_say(misfit, 0, "fewer than two models are called chunk1, chunk2, ... or chunk_0, ..., chunk_head");
    pome_coreml_llm *m = c->own = calloc(1, sizeof *m);
    if (!m)
        return pome_misfit_say(misfit, 0, "memory is short");
    misfit->n_found = 4;
    if (!check_numbers(c, misfit) || !add_chunks(c, misfit) || !find_result(c, misfit))
        return false;
    find_context(c);
    if (c->context < 1)
        return pome_misfit_say(misfit, misfit->n_found, "neither a mask nor a cache bounds the context");
    c->specificity = 5;
    snprintf(c->because, sizeof c->because, "%d chunks for one token at a time are fed %s%s", m->n_links,
             m->has_rotary ? "rotary rows" : "by name", c->is_argmax ? ", and the last picks the token" : "");
    return true;
}

static void describe(const pome_contract *c, char *text, size_t size)
{
    const pome_coreml_llm *m = c->own;
    const pome_function_info *last = m->links[m->n_links - 1].function;
    uint32_t n_states = 0;
    for (int i = 0; i < m->n_links; i++)
        n_states += m->links[i].function->n_states;
    snprintf(text, size, "%s, %d chunks, %d caches, %u states, %d tables, ids=%s, %s=%s", c->kind->name, m->n_links, m->n_caches,
             n_states, m->n_tables, m->has_ids ? m->links[0].function->inputs[0].name : "(table)",
             c->is_argmax ? "token" : "logits", last->outputs[m->logits[0]].name);
}

static pome_pass plan(const pome_contract *c, int64_t n_cached, int64_t n_tokens, int64_t block)
{
    (void)c;
    (void)n_tokens;
    (void)block;
    return (pome_pass){.begin = n_cached, .n_real = 1, .n_rows = 1};
}

static void reset(pome_contract *c)
{
    pome_coreml_llm *m = c->own;
    for (int i = 0; m && i < m->n_links; i++)
        free(m->links[i].inputs);
    for (int i = 0; m && i < m->n_tables; i++)
        pome_row_table_close(&m->tables[i]);
    free(m);
    c->own = NULL;
}

const pome_contract_kind pome_contract_coreml_llm = {
    .name = "coreml-llm",
    .class = POME_CONTRACT_CHUNKS,
    .wants = "models chunk1, chunk2, ... or chunk_0, ..., chunk_head for one token at a time: hidden states, rotary rows cos "
             "and sin, masks, caches X_in and X_out or X and new_X; the last gives token_id or logits",
    .fit = fit,
    .describe = describe,
    .plan = plan,
    .create = pome_coreml_llm_runner_create,
    .reset = reset,
};
