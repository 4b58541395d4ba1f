/* Choosing a contract: every kind is asked, the best that fits is taken. */
#include "llm/contract.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

static const pome_contract_kind *const kinds[] = {&pome_contract_stateful, &pome_contract_explicit,
                                                &pome_contract_growing,  &pome_contract_chain,
                                                &pome_contract_window,   &pome_contract_anemll,
                                                &pome_contract_coreml_llm, &pome_contract_nocache};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static const char *const roles[] = {"ids", "mask", "position", "positions", "logits", "cache_in", "cache_out"};
enum { N_ROLES = sizeof roles / sizeof roles[0] };

const pome_llm_role *pome_subject_role(const pome_contract_subject *s, const char *role, const pome_llm_role *after)
{
    for (uint32_t i = after ? (uint32_t)(after - s->roles) + 1 : 0; i < s->n_roles; i++)
        if (strcmp(s->roles[i].role, role) == 0)
            return &s->roles[i];
    return NULL;
}

int pome_subject_find_model(const pome_contract_subject *s, const char *name)
{
    for (uint32_t i = 0; i < s->n_models; i++)
        if (strcmp(s->models[i].name, name) == 0)
            return (int)i;
    return -1;
}

bool pome_misfit_say(pome_misfit *misfit, int n_found, const char *fmt, ...)
{
    va_list ap;
    misfit->n_found = n_found;
    va_start(ap, fmt);
    vsnprintf(misfit->reason, sizeof misfit->reason, fmt, ap);
    va_end(ap);
    return false;
}

/* ---- messages ---- */

static size_t list_features(char *text, size_t size, size_t at, const char *title, const pome_feature *f, uint32_t n)
{
    for (uint32_t i = 0; i < n && at < size; i++) {
        char shape[160];
        pome_feature_format(&f[i], shape, sizeof shape);
        int len = snprintf(text + at, size - at, "%s%s %s", i ? ", " : title, f[i].name, shape);
        at += len > 0 ? (size_t)len : 0;
    }
    return at;
}

static const pome_function_info *chosen_function(const pome_contract_subject *s)
{
    const pome_contract_model *m = &s->models[0];
    for (uint32_t i = 0; i < m->n_functions && s->function; i++)
        if (strcmp(m->functions[i].name, s->function) == 0)
            return &m->functions[i];
    return &m->functions[m->default_function];
}

/* "function 'main'", or "the 5 models in FOLDER", and what was seen there. */
static void list_seen(const pome_contract_subject *s, char *what, size_t what_size, char *seen, size_t seen_size)
{
    if (s->n_models == 1) {
        const pome_function_info *fn = chosen_function(s);
        snprintf(what, what_size, "function '%s'", fn->name);
        size_t at = list_features(seen, seen_size, 0, "inputs ", fn->inputs, fn->n_inputs);
        at = list_features(seen, seen_size, at, "; states ", fn->states, fn->n_states);
        list_features(seen, seen_size, at, "; outputs ", fn->outputs, fn->n_outputs);
        return;
    }
    snprintf(what, what_size, "the %u models in %s", s->n_models, s->path);
    size_t at = 0;
    for (uint32_t i = 0; i < s->n_models && at < seen_size; i++)
        at += (size_t)snprintf(seen + at, seen_size - at, "%s%s", i ? ", " : "", s->models[i].name);
}

static pome_status refuse(const pome_contract_subject *s, const char *name, const pome_contract_kind *nearest,
                          const pome_misfit *misfit, pome_error *err)
{
    char what[160], seen[600] = "";
    bool is_one = s->n_models == 1;
    list_seen(s, what, sizeof what, seen, sizeof seen);
    if (name)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "%s %s not fit the contract '%s': %s (seen: %s; expected: %s)", what,
                         is_one ? "does" : "do", name, misfit->reason, seen, nearest->wants);
    return pome_fail(err, POME_ERR_UNSUPPORTED, "%s %s no known contract: %s (seen: %s; nearest: %s; expected: %s)", what,
                     is_one ? "fits" : "fit", misfit->reason, seen, nearest->name, nearest->wants);
}

/* ---- what the caller said ---- */

static pome_status check_name(const char *name, pome_error *err)
{
    char known[400] = "";
    size_t at = 0;
    for (int k = 0; k < N_KINDS; k++) {
        if (!name || strcmp(kinds[k]->name, name) == 0)
            return POME_OK;
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", k ? ", " : "", kinds[k]->name);
    }
    return pome_fail(err, POME_ERR_ARG, "no contract is called '%s'; there are: %s", name, known);
}

static bool has_feature(const pome_feature *f, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(f[i].name, name) == 0)
            return true;
    return false;
}

static bool is_feature(const pome_contract_subject *s, const char *name)
{
    for (uint32_t m = 0; m < s->n_models; m++)
        for (uint32_t k = 0; k < s->models[m].n_functions; k++) {
            const pome_function_info *fn = &s->models[m].functions[k];
            if (has_feature(fn->inputs, fn->n_inputs, name) || has_feature(fn->outputs, fn->n_outputs, name) ||
                has_feature(fn->states, fn->n_states, name))
                return true;
        }
    return false;
}

static bool is_cache_role(const char *role)
{
    return strncmp(role, "cache_", 6) == 0;
}

/* Only caches come more than once, and nothing plays two parts. */
static pome_status check_pair(const pome_llm_role *a, const pome_llm_role *b, pome_error *err)
{
    bool is_same_name = strcmp(a->name, b->name) == 0, is_same_role = strcmp(a->role, b->role) == 0;
    if (is_same_name && is_same_role)
        return pome_fail(err, POME_ERR_ARG, "'%s' is mapped to %s twice", a->name, a->role);
    if (is_same_name && !(is_cache_role(a->role) && is_cache_role(b->role)))
        return pome_fail(err, POME_ERR_ARG, "'%s' is mapped to %s and to %s: one part is all it can play", a->name, a->role, b->role);
    if (is_same_role && !is_cache_role(a->role))
        return pome_fail(err, POME_ERR_ARG, "both '%s' and '%s' are mapped to %s, wanted one", a->name, b->name, a->role);
    return POME_OK;
}

static pome_status check_roles(const pome_contract_subject *s, pome_error *err)
{
    for (uint32_t i = 0; i < s->n_roles; i++) {
        char known[300] = "";
        size_t at = 0;
        bool is_known = false;
        for (int k = 0; k < N_ROLES; k++) {
            is_known |= strcmp(roles[k], s->roles[i].role) == 0;
            at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", k ? ", " : "", roles[k]);
        }
        if (!is_known)
            return pome_fail(err, POME_ERR_ARG, "no part is called '%s'; there are: %s", s->roles[i].role, known);
        if (!is_feature(s, s->roles[i].name))
            return pome_fail(err, POME_ERR_ARG, "'%s' is mapped to %s, but nothing in the model is called so",
                             s->roles[i].name, s->roles[i].role);
        for (uint32_t k = 0; k < i; k++)
            POME_TRY(check_pair(&s->roles[k], &s->roles[i], err));
    }
    return POME_OK;
}

enum { ALL_FOUND = 1000 }; /* nearer than any contract that lacks something */

/* Whether what the caller said about parts reaches anything: a word that is passed over would be a mistake unseen. */
static bool heeds_roles(const pome_contract *c, pome_misfit *misfit)
{
    const pome_llm_role *cache = pome_subject_role(c->subject, "cache_in", NULL);
    if (c->subject->n_roles > 0 && c->subject->n_models > 1)
        return pome_misfit_say(misfit, ALL_FOUND, "its parts are found by name, '%s' cannot be mapped", c->subject->roles[0].name);
    if (!cache)
        cache = pome_subject_role(c->subject, "cache_out", NULL);
    if (cache && c->n_caches == 0)
        return pome_misfit_say(misfit, ALL_FOUND, "there is no cache that '%s' could be a part of", cache->name);
    return true;
}

/* ---- choosing ---- */

static bool is_better(const pome_contract *a, const pome_contract *b)
{
    return !b->kind || a->kind->class > b->kind->class ||
           (a->kind->class == b->kind->class && a->specificity > b->specificity);
}

static pome_status refuse_rivals(const pome_contract *a, const pome_contract *b, pome_error *err)
{
    char first[300], second[300];
    a->kind->describe(a, first, sizeof first);
    b->kind->describe(b, second, sizeof second);
    return pome_fail(err, POME_ERR_UNSUPPORTED,
                     "two contracts fit equally well: %s; and: %s (choose one with --contract '%s' or --contract '%s')",
                     first, second, a->kind->name, b->kind->name);
}

pome_status pome_contract_find(pome_contract *out, const pome_contract_subject *subject, const char *name,
                               pome_error *err)
{
    pome_contract best = {0}, rival = {0};
    const pome_contract_kind *nearest = NULL;
    pome_misfit nearest_misfit = {.n_found = -1};
    POME_TRY(check_name(name, err));
    POME_TRY(check_roles(subject, err));
    for (int k = 0; k < N_KINDS; k++) {
        pome_contract c = {.kind = kinds[k], .subject = subject};
        pome_misfit misfit = {.n_found = 0, .reason = "it does not fit"};
        if (name && strcmp(kinds[k]->name, name) != 0)
            continue;
        if (!kinds[k]->fit(&c, &misfit) || !heeds_roles(&c, &misfit)) {
            pome_contract_reset(&c);
            if (misfit.n_found > nearest_misfit.n_found) {
                nearest_misfit = misfit;
                nearest = kinds[k];
            }
        } else if (is_better(&c, &best)) {
            pome_contract_reset(&best);
            pome_contract_reset(&rival);
            best = c;
        } else if (!is_better(&best, &c)) {
            pome_contract_reset(&rival);
            rival = c;
        } else {
            pome_contract_reset(&c);
        }
    }
    pome_status status = POME_OK;
    if (!best.kind)
        status = refuse(subject, name, nearest, &nearest_misfit, err);
    else if (rival.kind)
        status = refuse_rivals(&best, &rival, err);
    pome_contract_reset(&rival);
    if (status == POME_OK)
        *out = best;
    else
        pome_contract_reset(&best);
    return status;
}

void pome_contract_reset(pome_contract *c)
{
    if (c->kind && c->kind->reset)
        c->kind->reset(c);
    *c = (pome_contract){0};
}
