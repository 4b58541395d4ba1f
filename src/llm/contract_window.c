/* The contract of coreml-llm-cli's sets; see window_set.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "llm/contract_function.h"
#include "llm/window_set.h"

static const pome_feature *input_of(const pome_function_info *f, const char *name)
{
    int at = pome_feature_index(f->inputs, f->n_inputs, name);
    return at < 0 ? NULL : &f->inputs[at];
}

static int output_index(const pome_function_info *f, const char *name)
{
    return pome_feature_index(f->outputs, f->n_outputs, name);
}

/* The output that becomes input `name` of a later chunk. */
static int feeding_output(const pome_function_info *f, const char *name)
{
    for (uint32_t i = 0; i < f->n_outputs; i++)
        if (pome_chunk_feeds(f->outputs[i].name, name))
            return (int)i;
    return -1;
}

static bool has_same_shape(const pome_feature *a, const pome_feature *b)
{
    return a->rank == b->rank && memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) == 0;
}

pome_window_place pome_window_find(const pome_feature *f, int64_t n_window, int64_t n_context)
{
    const int64_t *d = f->shape;
    switch (f->rank) {
    case 2: return (pome_window_place){d[1] == n_window ? 1 : d[0] == n_window ? 0 : -1, false};
    case 3: return (pome_window_place){d[1] == n_window ? 1 : d[2] == n_window ? 2 : -1, false};
    case 4:
        if (d[3] == n_context && d[2] == n_window)
            return (pome_window_place){2, false};
        if (d[3] == n_window)
            return (pome_window_place){3, false};
        if (d[2] * d[3] == n_window)
            return (pome_window_place){2, d[3] != 1};
        return (pome_window_place){-1, false};
    default: return (pome_window_place){-1, false};
    }
}

/* ---- the ends ---- */

/* Ids [1, window] and a length [1]. */
static bool find_first(pome_window_set *set, pome_misfit *misfit)
{
    const pome_contract_model *m = set->list.chunk[0];
    const pome_function_info *f = set->first = pome_chunk_function(m);
    char seen[200];
    set->ids = set->length = -1;
    for (uint32_t i = 0; i < f->n_inputs; i++) {
        const pome_feature *in = &f->inputs[i];
        if (pome_feature_is_array(in, 2, false) && in->shape[0] == 1 && !in->is_ranged && set->ids < 0)
            set->ids = (int)i;
        else if (pome_feature_is_array(in, 1, false) && in->shape[0] == 1 && set->length < 0)
            set->length = (int)i;
        else
            set->ids = -2;
    }
    if (set->ids < 0 || set->length < 0)
        return pome_misfit_say(misfit, f->n_inputs == 2 && set->ids >= 0 ? 4 : 3,
                               "%s, the first chunk, does not take ids int32 [1, window] and their number int32 [1]; it "
                               "takes %s", m->name, pome_chunk_names(f->inputs, f->n_inputs, seen, sizeof seen));
    set->n_window = f->inputs[set->ids].shape[1];
    return true;
}

static long part_number(const char *name)
{
    const char *at = strrchr(name, '_');
    return at ? strtol(at + 1, NULL, 10) : -1;
}

/* One input, outputs [1, window, part of the vocabulary]. */
static bool find_last(pome_window_set *set, pome_contract *c, pome_misfit *misfit)
{
    const pome_contract_model *m = set->list.chunk[set->list.n - 1];
    const pome_function_info *f = set->last = pome_chunk_function(m);
    char seen[200];
    for (uint32_t i = 0; i < f->n_outputs; i++) {
        const pome_feature *out = &f->outputs[i];
        if (!pome_name_has(out->name, "logit") || !pome_feature_is_array(out, 3, true) || out->shape[1] != set->n_window ||
            set->n_parts == POME_ROW_PARTS_MAX)
            continue;
        int at = set->n_parts++;
        for (; at > 0 && part_number(f->outputs[set->parts[at - 1]].name) > part_number(out->name); at--)
            set->parts[at] = set->parts[at - 1];
        set->parts[at] = (int)i;
        c->n_vocab += out->shape[2];
    }
    if (set->n_parts == 0)
        return pome_misfit_say(misfit, 5, "%s, the last chunk, gives no logits [1, %lld, vocabulary] but %s: are later chunks "
                               "missing?", m->name, (long long)set->n_window,
                               pome_chunk_names(f->outputs, f->n_outputs, seen, sizeof seen));
    if (f->n_inputs != 1)
        return pome_misfit_say(misfit, 5, "%s, the last chunk, has %u inputs, 1 is expected", m->name, f->n_inputs);
    set->x = feeding_output(set->first, f->inputs[0].name);
    if (set->x < 0)
        return pome_misfit_say(misfit, 5, "no output of %s is called '%s', as the input of %s is; it gives %s",
                               set->list.chunk[0]->name, f->inputs[0].name, m->name,
                               pome_chunk_names(set->first->outputs, set->first->n_outputs, seen, sizeof seen));
    return true;
}

/* ---- groups of layers ---- */

static bool find_block(pome_window_group *g, uint32_t i, int64_t n_window, pome_misfit *misfit)
{
    const pome_function_info *f = g->function;
    pome_window_block *b = &g->blocks[i];
    char name[4][32], seen[160];
    for (int k = 0; k < 4; k++)
        snprintf(name[k], sizeof name[k], "%s%c_cache_%u", k < 2 ? "" : "new_", k % 2 ? 'v' : 'k', i);
    b->k_in = pome_feature_index(f->inputs, f->n_inputs, name[0]);
    b->v_in = pome_feature_index(f->inputs, f->n_inputs, name[1]);
    b->k_out = output_index(f, name[2]);
    b->v_out = output_index(f, name[3]);
    if (b->k_in < 0 || b->v_in < 0)
        return pome_misfit_say(misfit, 6, "%s has no input '%s'; it takes %s", g->member->name, name[b->k_in < 0 ? 0 : 1],
                               pome_chunk_names(f->inputs, f->n_inputs, seen, sizeof seen));
    if (b->k_out < 0 || b->v_out < 0)
        return pome_misfit_say(misfit, 6, "%s has no output '%s'; it gives %s", g->member->name, name[b->k_out < 0 ? 2 : 3],
                               pome_chunk_names(f->outputs, f->n_outputs, seen, sizeof seen));
    for (int k = 0; k < 2; k++) {
        const pome_feature *out = &f->outputs[k ? b->v_out : b->k_out], *in = &f->inputs[k ? b->v_in : b->k_in];
        if (out->rank < 1 || in->rank != out->rank || in->is_ranged || out->shape[out->rank - 1] != n_window ||
            memcmp(out->shape, in->shape, (size_t)(out->rank - 1) * sizeof out->shape[0]) != 0)
            return pome_misfit_say(misfit, 6, "%s: '%s' and '%s' do not fit each other", g->member->name, in->name, out->name);
    }
    return true;
}

static bool find_group(pome_window_set *set, pome_window_group *g, pome_misfit *misfit)
{
    const pome_function_info *f = g->function;
    const char *x = set->last->inputs[0].name;
    char seen[200];
    uint32_t n_caches = 0;
    for (uint32_t i = 0; i < f->n_inputs; i++) {
        const char *name = f->inputs[i].name;
        int from = feeding_output(set->first, name);
        bool is_cache = strstr(name, "_cache_") != NULL;
        if (from < 0 && !is_cache)
            return pome_misfit_say(misfit, 6, "%s: nothing gives input '%s'", g->member->name, name);
        g->source[i] = strcmp(name, x) == 0 ? -1 : is_cache ? -2 : from;
        n_caches += is_cache;
        if (from >= 0 && !has_same_shape(&f->inputs[i], &set->first->outputs[from]))
            return pome_misfit_say(misfit, 6, "%s: input '%s' has another shape than the output of %s", g->member->name, name,
                                   set->list.chunk[0]->name);
    }
    g->x_out = feeding_output(f, x);
    if (!input_of(f, x) || g->x_out < 0)
        return pome_misfit_say(misfit, 6, "%s has no output 'new_%s' for the next chunk; it gives %s", g->member->name, x,
                               pome_chunk_names(f->outputs, f->n_outputs, seen, sizeof seen));
    if (!has_same_shape(&f->outputs[g->x_out], input_of(f, x)))
        return pome_misfit_say(misfit, 6, "%s: '%s' has another shape than '%s'", g->member->name, f->outputs[g->x_out].name, x);
    g->n_blocks = n_caches / 2;
    if (n_caches == 0 || n_caches % 2 || g->n_blocks > POME_WINDOW_BLOCKS_MAX)
        return pome_misfit_say(misfit, 6, "%s has %u caches: keys and values come in pairs", g->member->name, n_caches);
    g->blocks = calloc(g->n_blocks, sizeof *g->blocks);
    for (uint32_t i = 0; g->blocks && i < g->n_blocks; i++)
        if (!find_block(g, i, set->n_window, misfit))
            return false;
    return g->blocks || pome_misfit_say(misfit, 6, "memory is short");
}

static const pome_feature *cache_of(const pome_window_group *g, uint32_t block)
{
    return &g->function->inputs[g->blocks[block].k_in];
}

static int64_t n_cached_of(const pome_window_group *g, uint32_t block, bool is_value)
{
    const pome_feature *f = &g->function->inputs[is_value ? g->blocks[block].v_in : g->blocks[block].k_in];
    return f->shape[f->rank - 1];
}

/* All caches hold as many columns, for which the mask is made. */
static bool check_contexts(pome_window_set *set, pome_misfit *misfit)
{
    set->n_cached = n_cached_of(&set->groups[0], 0, false);
    for (uint32_t i = 0; i < set->n_groups; i++)
        for (uint32_t b = 0; b < 2 * set->groups[i].n_blocks; b++)
            if (n_cached_of(&set->groups[i], b / 2, b % 2) != set->n_cached)
                return pome_misfit_say(misfit, 7, "%s caches %lld columns, %s %lld: they are of different context lengths",
                                       set->groups[0].member->name, (long long)set->n_cached, set->groups[i].member->name,
                                       (long long)n_cached_of(&set->groups[i], b / 2, b % 2));
    for (uint32_t i = 0; i < set->first->n_outputs; i++) {
        const pome_feature *f = &set->first->outputs[i];
        bool is_mask = pome_name_has(f->name, "mask") && f->rank == 4;
        if (is_mask && f->shape[3] != set->n_window + set->n_cached)
            return pome_misfit_say(misfit, 7, "%s makes a mask of %lld columns, but %s caches %lld and adds %lld: they are of "
                                   "different context lengths", set->list.chunk[0]->name, (long long)f->shape[3],
                                   set->groups[0].member->name, (long long)set->n_cached, (long long)set->n_window);
    }
    return true;
}

static bool find_groups(pome_window_set *set, pome_misfit *misfit)
{
    set->n_groups = set->list.n - 2;
    set->groups = calloc(set->n_groups, sizeof *set->groups);
    set->places = calloc(set->first->n_outputs, sizeof *set->places);
    if (!set->groups || !set->places)
        return pome_misfit_say(misfit, 6, "memory is short");
    for (uint32_t i = 0; i < set->n_groups; i++) {
        pome_window_group *g = &set->groups[i];
        g->member = set->list.chunk[i + 1];
        g->function = pome_chunk_function(g->member);
        g->source = calloc(g->function->n_inputs + 1u, sizeof *g->source);
        if (!g->source || !find_group(set, g, misfit))
            return g->source ? false : pome_misfit_say(misfit, 6, "memory is short");
    }
    if (!check_contexts(set, misfit))
        return false;
    for (uint32_t i = 0; i < set->first->n_outputs; i++)
        set->places[i] = pome_window_find(&set->first->outputs[i], set->n_window, set->n_window + set->n_cached);
    return true;
}

/* ---- processors ---- */

static bool is_chunk(const pome_window_set *set, const pome_contract_model *m)
{
    for (uint32_t i = 0; i < set->list.n; i++)
        if (set->list.chunk[i] == m)
            return true;
    return false;
}

/* The models that are no chunks, as text: "none", or "beside them are: a, b". */
static const char *list_others(const pome_window_set *set, const pome_contract_subject *s, char *text, size_t size)
{
    size_t at = 0;
    snprintf(text, size, "there is none");
    for (uint32_t i = 0; i < s->n_models && at < size; i++)
        if (!is_chunk(set, &s->models[i]))
            at += (size_t)snprintf(text + at, size - at, "%s%s", at ? ", " : "there is ", s->models[i].name);
    return text;
}

static bool find_cache_processor(pome_window_set *set, const pome_contract_subject *s, pome_misfit *misfit)
{
    const pome_contract_model *named = NULL;
    char seen[200];
    for (uint32_t i = 0; i < s->n_models; i++) {
        const pome_function_info *f = pome_chunk_function(&s->models[i]);
        if (is_chunk(set, &s->models[i]))
            continue;
        if (pome_name_has(s->models[i].name, "cache"))
            named = &s->models[i];
        set->old_k = pome_feature_index(f->inputs, f->n_inputs, "old_k_cache");
        set->new_k = pome_feature_index(f->inputs, f->n_inputs, "new_k_cache");
        set->old_v = pome_feature_index(f->inputs, f->n_inputs, "old_v_cache");
        set->new_v = pome_feature_index(f->inputs, f->n_inputs, "new_v_cache");
        set->updated_k = output_index(f, "updated_k_cache");
        set->updated_v = output_index(f, "updated_v_cache");
        if (set->old_k < 0 || set->new_k < 0 || set->old_v < 0 || set->new_v < 0 || set->updated_k < 0 || set->updated_v < 0)
            continue;
        set->caches = f;
        set->cache_member = &s->models[i];
        for (uint32_t k = 0; k < set->n_groups; k++)
            for (uint32_t b = 0; b < set->groups[k].n_blocks; b++)
                if (!has_same_shape(&f->inputs[set->old_k], cache_of(&set->groups[k], b)))
                    return pome_misfit_say(misfit, 8, "%s is for other caches than those of %s", s->models[i].name,
                                           set->groups[k].member->name);
        return true;
    }
    if (named)
        return pome_misfit_say(misfit, 8, "%s is no cache processor (old_k_cache, new_k_cache, old_v_cache, new_v_cache to "
                               "updated_k_cache, updated_v_cache): it gives %s", named->name,
                               pome_chunk_names(pome_chunk_function(named)->outputs, pome_chunk_function(named)->n_outputs,
                                                seen, sizeof seen));
    return pome_misfit_say(misfit, 8, "no cache processor is among them, a model beside the chunks that takes "
                           "old_k_cache, new_k_cache, old_v_cache and new_v_cache: %s",
                           list_others(set, s, seen, sizeof seen));
}

/* Takes every part of the logits, gives int32 [1, window]. */
static bool find_logit_processor(pome_window_set *set, const pome_contract_subject *s, pome_misfit *misfit)
{
    const pome_contract_model *named = NULL;
    char seen[200];
    set->logit_inputs = calloc((size_t)set->n_parts, sizeof *set->logit_inputs);
    for (uint32_t i = 0; set->logit_inputs && i < s->n_models; i++) {
        const pome_function_info *f = pome_chunk_function(&s->models[i]);
        bool fits = f->n_inputs == (uint32_t)set->n_parts && f->n_outputs == 1 && f->outputs[0].dtype == POME_DTYPE_I32;
        if (is_chunk(set, &s->models[i]) || &s->models[i] == set->cache_member)
            continue;
        if (pome_name_has(s->models[i].name, "logit"))
            named = &s->models[i];
        for (int k = 0; fits && k < set->n_parts; k++) {
            const pome_feature *part = &set->last->outputs[set->parts[k]];
            set->logit_inputs[k] = pome_feature_index(f->inputs, f->n_inputs, part->name);
            fits = set->logit_inputs[k] >= 0 && has_same_shape(&f->inputs[set->logit_inputs[k]], part);
        }
        if (!fits)
            continue;
        set->logits = f;
        set->logit_member = &s->models[i];
        return true;
    }
    if (named)
        return pome_misfit_say(misfit, 9, "%s does not take the %d logits that %s gives", named->name, set->n_parts,
                               set->list.chunk[set->list.n - 1]->name);
    return pome_misfit_say(misfit, 9, "no logit processor is among them, a model beside the chunks that takes %s and gives "
                           "int32 [1, %lld]: %s", set->last->outputs[set->parts[0]].name, (long long)set->n_window,
                           list_others(set, s, seen, sizeof seen));
}

/* ---- models for new columns alone ---- */

/* out[POME_WINDOW_SIZES] */
static pome_status narrow_model(pome_model **out, const pome_contract_model *m, const pome_window_set *set,
                                const pome_columns_input *inputs, uint32_t n_inputs, const pome_columns_cache *caches,
                                uint32_t n_caches, pome_error *err)
{
    pome_columns c = {.n_window = set->n_window, .inputs = inputs, .n_inputs = n_inputs, .caches = caches,
                      .n_caches = n_caches,
                      .cache_dtype = m->model->numerics == POME_NUMERICS_EXACT ? POME_DTYPE_F32 : POME_DTYPE_F16};
    for (int k = 0; k < POME_WINDOW_SIZES; k++) {
        c.n_columns = k == POME_WINDOW_ONE ? 1 : k == POME_WINDOW_FULL ? set->n_window : 0;
        POME_TRY(pome_model_narrow(&out[k], m->model, m->default_function, &c, err));
    }
    return POME_OK;
}

static pome_status place_input(const pome_window_set *set, const pome_contract_model *m, const pome_feature *f, uint32_t i,
                               pome_columns_input *out, pome_error *err)
{
    pome_window_place p = pome_window_find(f, set->n_window, set->n_window + set->n_cached);
    if (p.axis < 0)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "input %s of %s has no columns", f->name, m->name);
    *out = (pome_columns_input){i, p.axis, p.is_pair};
    return POME_OK;
}

static pome_status narrow_group(const pome_window_set *set, pome_window_group *g, pome_error *err)
{
    const pome_function_info *f = g->function;
    pome_columns_input *inputs = calloc(f->n_inputs, sizeof *inputs);
    pome_columns_cache caches[2 * POME_WINDOW_BLOCKS_MAX];
    g->narrow_inputs = calloc(f->n_inputs, sizeof *g->narrow_inputs);
    pome_status status = inputs && g->narrow_inputs ? POME_OK : pome_fail_nomem(err, f->n_inputs, "chunks");
    for (uint32_t i = 0; i < f->n_inputs && status == POME_OK; i++)
        if (g->source[i] != -2) {
            status = place_input(set, g->member, &f->inputs[i], i, &inputs[g->n_narrow_inputs], err);
            g->narrow_inputs[g->n_narrow_inputs++] = i;
        }
    for (uint32_t b = 0; b < g->n_blocks; b++) {
        caches[2 * b] = (pome_columns_cache){(uint32_t)g->blocks[b].k_in, (uint32_t)g->blocks[b].k_out};
        caches[2 * b + 1] = (pome_columns_cache){(uint32_t)g->blocks[b].v_in, (uint32_t)g->blocks[b].v_out};
    }
    if (status == POME_OK)
        status = narrow_model(g->narrow, g->member, set, inputs, g->n_narrow_inputs, caches, 2 * g->n_blocks, err);
    free(inputs);
    return status;
}

static pome_status narrow_all(pome_window_set *set, pome_error *err)
{
    const pome_contract_model *last = set->list.chunk[set->list.n - 1];
    pome_columns_input x;
    POME_TRY(place_input(set, last, &set->last->inputs[0], 0, &x, err));
    POME_TRY(narrow_model(set->narrow_last, last, set, &x, 1, NULL, 0, err));
    for (uint32_t i = 0; i < set->n_groups; i++)
        POME_TRY(narrow_group(set, &set->groups[i], err));
    return POME_OK;
}

/* ---- the kind ---- */

static void reset(pome_contract *c)
{
    pome_window_set *set = c->own;
    if (!set)
        return;
    for (uint32_t i = 0; set->groups && i < set->n_groups; i++) {
        for (int k = 0; k < POME_WINDOW_SIZES; k++)
            pome_model_close(&set->groups[i].narrow[k]);
        free(set->groups[i].source);
        free(set->groups[i].blocks);
        free(set->groups[i].narrow_inputs);
    }
    for (int k = 0; k < POME_WINDOW_SIZES; k++)
        pome_model_close(&set->narrow_last[k]);
    free(set->groups);
    free(set->places);
    free(set->logit_inputs);
    free(set);
    c->own = NULL;
}

static bool fit(pome_contract *c, pome_misfit *misfit)
{
    pome_window_set *set = c->own = calloc(1, sizeof *set);
    pome_error err = {0};
    if (!set)
        return pome_misfit_say(misfit, 0, "memory is short");
    if (!pome_chunk_list_find(c->subject, &set->list, misfit) || !find_first(set, misfit))
        return false;
    if (set->list.n < 3)
        return pome_misfit_say(misfit, 4, "there %s of '%s': a first, one with layers and a last are the least",
                               set->list.n == 1 ? "is 1 chunk" : "are 2 chunks", set->list.prefix);
    if (!find_last(set, c, misfit) || !find_groups(set, misfit) || !find_cache_processor(set, c->subject, misfit) ||
        !find_logit_processor(set, c->subject, misfit))
        return false;
    c->context = POME_CONTEXT_ENDLESS;
    c->specificity = 5;
    snprintf(c->because, sizeof c->because, "keys and values of %u chunks go through a cache processor", set->n_groups);
    if (set->list.chunk[0]->model && narrow_all(set, &err) != POME_OK)
        snprintf(set->not_narrow, sizeof set->not_narrow, "%.190s", err.message);
    return true;
}

static void describe(const pome_contract *c, char *text, size_t size)
{
    const pome_window_set *set = c->own;
    snprintf(text, size, "%s, %u chunks of '%s', window %lld of context %lld, ids=%s, logits=%s%s%s%s", c->kind->name,
             set->list.n, set->list.prefix, (long long)set->n_window, (long long)(set->n_window + set->n_cached),
             set->first->inputs[set->ids].name, set->last->outputs[set->parts[0]].name, set->n_parts > 1 ? " and more" : "",
             set->not_narrow[0] ? ", whole windows because " : "", set->not_narrow);
}

/* Up to the end of the window that the next token is in. */
static pome_pass plan(const pome_contract *c, int64_t n_cached, int64_t n_tokens, int64_t block)
{
    const pome_window_set *set = c->own;
    int64_t n = n_tokens - n_cached, room = set->n_window - n_cached % set->n_window;
    (void)block;
    n = n < room ? n : room;
    return (pome_pass){.begin = n_cached, .n_real = n, .n_rows = n};
}

const pome_contract_kind pome_contract_window = {
    .name = "llm-cli",
    .class = POME_CONTRACT_CHUNKS,
    .wants = "PREFIX_chunk1 (ids int32 [1, window], their number int32 [1]), chunks with x, k_cache_i and v_cache_i to new_x, "
             "new_k_cache_i and new_v_cache_i, a last one with logits, cache-processor, logit-processor",
    .fit = fit,
    .describe = describe,
    .plan = plan,
    .create = pome_window_runner_create,
    .reset = reset,
};
