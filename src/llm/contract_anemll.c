/* Sets of models as ANEMLL (github.com/Anemll/Anemll) makes them: a table of embeddings, one or more models of layers, and
 * a head whose logits may come in parts. Layers have one function for a single token ("infer") and one for a batch of
 * tokens ("prefill"), in one file or in two; all of them write one cache, a state that has the same name everywhere. Each
 * is told positions, a mask over the whole context and the row to write first. A prefill gives no logits: the last token
 * always goes through the single-token functions.
 *
 * meta.yaml beside the models is no more than a hint: what it says about sizes is in the models too. */
#include "llm/contract_anemll.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* ---- parts ---- */

static bool is_table(const pome_function_info *fn)
{
    return fn->n_states == 0 && fn->n_inputs == 1 && fn->n_outputs == 1 && pome_feature_is_array(&fn->inputs[0], 2, false) &&
           pome_dtype_is_float(fn->outputs[0].dtype);
}

static bool is_head(const pome_function_info *fn)
{
    return fn->n_states == 0 && fn->n_inputs == 1 && pome_feature_is_array(&fn->inputs[0], 3, true) && fn->n_outputs > 0 &&
           pome_name_has(fn->outputs[0].name, "logit");
}

/* Inputs of a function of layers by their shapes; of two numbers [1] one is each row's position, named so. */
static bool find_layers(const pome_contract_model *m, const pome_function_info *fn, pome_anemll_layers *out)
{
    pome_anemll_layers l = {.model = m->model, .function = fn, .hidden = -1, .positions = -1, .position = -1, .mask = -1, .update = -1};
    if (fn->n_states == 0 || fn->n_outputs != 1)
        return false;
    for (int i = 0; i < (int)fn->n_inputs; i++) {
        const pome_feature *f = &fn->inputs[i];
        bool is_fixed = !f->is_ranged && f->n_enumerated == 0;
        if (l.hidden < 0 && is_fixed && pome_feature_is_array(f, 3, true)) {
            l.hidden = i;
            l.n_rows = f->shape[1];
        } else if (is_fixed && pome_looks_like_mask(f) && f->shape[3] == 1 && f->shape[2] > 1 && l.update < 0) {
            l.update = i;
        } else if (is_fixed && pome_looks_like_mask(f) && l.mask < 0) {
            l.mask = i;
            l.context = f->shape[3];
        } else if (pome_feature_is_array(f, 1, false)) {
            int *slot = f->shape[0] > 1 || (pome_name_has(f->name, "ids") && l.positions < 0) ? &l.positions : &l.position;
            if (*slot >= 0)
                return false;
            *slot = i;
        } else {
            return false;
        }
    }
    if (l.hidden < 0 || l.mask < 0 || l.position < 0 || fn->inputs[l.mask].shape[2] != l.n_rows)
        return false;
    *out = l;
    return true;
}

/* "llama_FFN_PF_chunk_01of02": 2; 0: the name does not say. */
static int chunks_by_name(const char *name)
{
    const char *at = strstr(name, "_chunk_"), *of = at ? strstr(at, "of") : NULL;
    return of ? atoi(of + 2) : 0;
}

/* The functions of one model: of several for a single token the one called "infer" counts, of several for more tokens
 * the one called "prefill". */
static bool add_layers(pome_anemll *a, const pome_contract_model *m, int *n_infer, int *n_prefill)
{
    bool is_found = false, has_infer = false, has_prefill = false;
    for (uint32_t i = 0; i < m->n_functions; i++) {
        const pome_function_info *fn = &m->functions[i];
        pome_anemll_layers l;
        if (!find_layers(m, fn, &l))
            continue;
        bool *has = l.n_rows == 1 ? &has_infer : &has_prefill;
        int *n = l.n_rows == 1 ? n_infer : n_prefill;
        bool is_named = strcmp(fn->name, l.n_rows == 1 ? "infer" : "prefill") == 0;
        if (*has && is_named)
            --*n;
        if ((!*has || is_named) && *n < POME_ANEMLL_CHUNKS_MAX)
            (l.n_rows == 1 ? a->infer : a->prefill)[(*n)++] = l;
        is_found = *has = true;
    }
    return is_found;
}

static bool find_models(const pome_contract *c, pome_anemll *a, int n_found, pome_misfit *misfit)
{
    int n_infer = 0, n_prefill = 0, n_wanted = 0;
    const char *other = NULL; /* a model that is none of these: left alone, unless something is missing */
    for (uint32_t i = 0; i < c->subject->n_models; i++) {
        const pome_contract_model *m = &c->subject->models[i];
        const pome_function_info *fn = &m->functions[m->default_function];
        int n_before = n_infer;
        if (add_layers(a, m, &n_infer, &n_prefill)) {
            int n = chunks_by_name(m->name);
            n_wanted = n > n_wanted ? n : n_wanted;
            n_found += n_infer > n_before;
        } else if (is_table(fn) && !a->embeddings_function) {
            a->embeddings = m->model;
            a->embeddings_function = fn;
            n_found++;
        } else if (is_head(fn) && !a->head_function) {
            a->head = m->model;
            a->head_function = fn;
            n_found++;
        } else {
            other = other ? other : m->name;
        }
    }
    if (!a->embeddings_function || !a->head_function || n_infer == 0)
        return pome_misfit_say(misfit, n_found, "there is no model with %s%s%s%s",
                               n_infer == 0 ? "layers for a single token, whose cache is a state"
                               : !a->embeddings_function ? "embeddings (ids in, hidden states out)"
                                                         : "a head (hidden states in, logits out)",
                               other ? "; '" : "", other ? other : "", other ? "' is no known part" : "");
    if (n_wanted > 0 && n_infer != n_wanted)
        return pome_misfit_say(misfit, n_found, "%d of %d chunks of layers are there", n_infer, n_wanted);
    if (n_prefill != n_infer && n_prefill > 0)
        return pome_misfit_say(misfit, n_found, "%d functions of layers take one token, %d take more", n_infer, n_prefill);
    a->n_chunks = n_infer;
    a->has_prefill = n_prefill > 0;
    misfit->n_found = n_found;
    return true;
}

static bool find_logits(pome_contract *c, pome_anemll *a, pome_misfit *misfit)
{
    const pome_function_info *fn = a->head_function;
    a->n_logits = pome_logits_parts(fn, a->logits);
    if (a->n_logits == 0)
        return pome_misfit_say(misfit, misfit->n_found, "the outputs of the head are not numbered parts of the logits (%s, ...)",
                               fn->outputs[0].name);
    for (int i = 0; i < a->n_logits; i++) {
        const pome_type *type = pome_output_type(a->head, fn, a->logits[i]);
        const pome_feature *f = &fn->outputs[a->logits[i]];
        int64_t n = f->rank > 0 && f->shape[f->rank - 1] > 0 ? f->shape[f->rank - 1]
                    : type && type->rank > 0                 ? type->dim[type->rank - 1] : 0;
        if (n < 1)
            return pome_misfit_say(misfit, misfit->n_found, "'%s' does not say how many logits it holds", f->name);
        c->n_vocab += n;
    }
    return true;
}

/* All layers must agree about sizes and about the state. */
static bool check_layers(const pome_contract *c, const pome_anemll *a, pome_misfit *misfit)
{
    const pome_function_info *first = a->infer[0].function;
    int64_t hidden = first->inputs[a->infer[0].hidden].shape[2];
    for (int i = 0; i < a->n_chunks * (a->has_prefill ? 2 : 1); i++) {
        const pome_anemll_layers *l = i < a->n_chunks ? &a->infer[i] : &a->prefill[i - a->n_chunks];
        if (l->context != c->context)
            return pome_misfit_say(misfit, misfit->n_found, "function '%s' has a context of %lld, others %lld",
                                   l->function->name, (long long)l->context, (long long)c->context);
        if (l->n_rows > 1 && l->n_rows != a->n_batch)
            return pome_misfit_say(misfit, misfit->n_found, "prefill takes %lld tokens in one chunk and %lld in another",
                                   (long long)a->n_batch, (long long)l->n_rows);
        if (l->function->inputs[l->hidden].shape[2] != hidden)
            return pome_misfit_say(misfit, misfit->n_found, "hidden states are %lld wide in one chunk and %lld in another",
                                   (long long)hidden, (long long)l->function->inputs[l->hidden].shape[2]);
        for (uint32_t k = 0; k < l->function->n_states; k++) {
            const pome_feature *f = &l->function->states[k];
            int at = pome_feature_index(first->states, first->n_states, f->name);
            if (at < 0 || first->states[at].rank != f->rank ||
                memcmp(first->states[at].shape, f->shape, (size_t)f->rank * sizeof f->shape[0]) != 0)
                return pome_misfit_say(misfit, misfit->n_found, "state '%s' is not the same in all chunks", f->name);
        }
    }
    return pome_lengths_admit(&a->lengths, 1) && (!a->has_prefill || pome_lengths_admit(&a->lengths, a->n_batch)) ? true
           : pome_misfit_say(misfit, misfit->n_found, "the embeddings do not take 1 and %lld ids", (long long)a->n_batch);
}

static bool has_meta(const pome_contract *c)
{
    char *path = pome_path_join(c->subject->path, "meta.yaml");
    bool is_there = path && pome_path_exists(path);
    free(path);
    return is_there;
}

static bool fit(pome_contract *c, pome_misfit *misfit)
{
    if (c->subject->n_models < 3)
        return pome_misfit_say(misfit, 0, "there %s", c->subject->n_models == 1 ? "is one model" : "are two models");
    bool is_hinted = has_meta(c);
    pome_anemll *a = c->own = calloc(1, sizeof *a);
    if (!a)
        return pome_misfit_say(misfit, 0, "memory is short");
    if (!find_models(c, a, is_hinted ? 4 : 0, misfit))
        return false;
    c->context = a->infer[0].context;
    a->n_batch = a->has_prefill ? a->prefill[0].n_rows : 1;
    if (!pome_lengths_of(&a->embeddings_function->inputs[0], 1, &a->lengths))
        return pome_misfit_say(misfit, misfit->n_found, "the embeddings list more than %d shapes", POME_LENGTHS_MAX);
    if (!find_logits(c, a, misfit) || !check_layers(c, a, misfit))
        return false;
    c->gives_one_row = true;
    c->specificity = 5 + is_hinted;
    snprintf(c->because, sizeof c->because, "embeddings, layers with a common state and a head are models of their own%s",
             is_hinted ? ", and meta.yaml is there" : "");
    return true;
}

static void describe(const pome_contract *c, char *text, size_t size)
{
    const pome_anemll *a = c->own;
    char prefill[40] = "";
    if (a->has_prefill)
        snprintf(prefill, sizeof prefill, ", prefill of %lld", (long long)a->n_batch);
    snprintf(text, size, "%s, %d chunk%s%s, %u state%s, ids=%s, mask=%s (context), position=%s, logits=%s%s%s", c->kind->name,
             a->n_chunks, a->n_chunks == 1 ? "" : "s", prefill, a->infer[0].function->n_states,
             a->infer[0].function->n_states == 1 ? "" : "s", a->embeddings_function->inputs[0].name,
             a->infer[0].function->inputs[a->infer[0].mask].name, a->infer[0].function->inputs[a->infer[0].position].name,
             a->head_function->outputs[a->logits[0]].name, a->n_logits > 1 ? ".." : "",
             a->n_logits > 1 ? a->head_function->outputs[a->logits[a->n_logits - 1]].name : "");
}

/* A batch where that is cheaper than its tokens one by one; its logits are not to be had, so the last token is always run
 * alone. */
static pome_pass plan(const pome_contract *c, int64_t n_cached, int64_t n_tokens, int64_t block)
{
    const pome_anemll *a = c->own;
    int64_t n = n_tokens - 1 - n_cached < a->n_batch ? n_tokens - 1 - n_cached : a->n_batch;
    bool is_cheaper = a->n_batch + POME_PASS_COST_ROWS <= n * (1 + POME_PASS_COST_ROWS);
    (void)block;
    if (a->has_prefill && is_cheaper && n_cached + a->n_batch <= c->context)
        return (pome_pass){.begin = n_cached, .n_real = n, .n_rows = a->n_batch};
    return (pome_pass){.begin = n_cached, .n_real = 1, .n_rows = 1};
}

static void reset(pome_contract *c)
{
    free(c->own);
    c->own = NULL;
}

const pome_contract_kind pome_contract_anemll = {
    .name = "anemll",
    .class = POME_CONTRACT_CHUNKS,
    .wants = "a model of embeddings (ids int32 [1, n] to hidden states), models of layers (hidden states, positions, mask "
             "float [1, 1, n, context], int32 [1] row to write; a common state), a head (hidden states to logits, logits1..N)",
    .fit = fit,
    .describe = describe,
    .plan = plan,
    .create = pome_anemll_runner_create,
    .reset = reset,
};
