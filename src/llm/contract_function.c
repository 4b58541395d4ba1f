#include "llm/contract_function.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "runtime/model.h"

bool pome_name_has(const char *name, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = name; *at; at++) {
        size_t i = 0;
        while (i < len && at[i] && tolower((unsigned char)at[i]) == word[i])
            i++;
        if (i == len)
            return true;
    }
    return false;
}

bool pome_feature_is_array(const pome_feature *f, int32_t rank, bool is_float)
{
    if (f->kind != POME_FEATURE_TENSOR || f->rank != rank)
        return false;
    return is_float ? pome_dtype_is_float(f->dtype) : f->dtype == POME_DTYPE_I32;
}

int pome_feature_index(const pome_feature *features, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(features[i].name, name) == 0)
            return (int)i;
    return -1;
}

bool pome_contract_take_function(pome_contract *c, pome_misfit *misfit)
{
    const pome_contract_subject *s = c->subject;
    if (s->n_models != 1)
        return pome_misfit_say(misfit, 0, "there are %u models", s->n_models);
    uint32_t at = s->models[0].default_function;
    for (uint32_t i = 0; i < s->models[0].n_functions && s->function && s->function[0]; i++)
        if (strcmp(s->models[0].functions[i].name, s->function) == 0)
            at = i;
    c->model = s->models[0].model;
    c->function = &s->models[0].functions[at];
    c->ids = c->mask = c->position = c->logits = -1;
    return true;
}

/* The input that the caller named for `role`: true if there is such a word, *index is -1 if it names no input. */
static bool is_mapped(const pome_contract *c, const char *role, int *index)
{
    const pome_llm_role *named = pome_subject_role(c->subject, role, NULL);
    if (named)
        *index = pome_feature_index(c->function->inputs, c->function->n_inputs, named->name);
    return named != NULL;
}

static bool misses(const char *role, pome_misfit *misfit, int n_found)
{
    return pome_misfit_say(misfit, n_found, "the input mapped to %s is not one of this function", role);
}

/* Int32 inputs of rank 2 are the ids and, in models without a cache, a mask of ones and zeros. Two of them can
 * be told apart by name alone. */
static bool find_ids(pome_contract *c, const bool *is_taken, pome_misfit *misfit, int n_found)
{
    int found[2] = {-1, -1};
    uint32_t n = 0;
    if (is_mapped(c, "ids", &c->ids)) {
        if (c->ids < 0)
            return misses("ids", misfit, n_found);
        const pome_feature *f = &c->function->inputs[c->ids];
        return pome_feature_is_array(f, 2, false) ||
               pome_misfit_say(misfit, n_found, "'%s' is mapped to the ids, but is no int32 [1, n]", f->name);
    }
    for (uint32_t i = 0; i < c->function->n_inputs; i++)
        if (pome_feature_is_array(&c->function->inputs[i], 2, false) && !(is_taken && is_taken[i]) && (int)i != c->mask &&
            (int)i != c->position) {
            if (n < 2)
                found[n] = (int)i;
            n++;
        }
    if (n == 0 || n > 2)
        return pome_misfit_say(misfit, n_found, "%u int32 inputs of rank 2 for the ids, 1 or 2 are expected", n);
    c->ids = found[0];
    if (n == 1)
        return true;
    const char *a = c->function->inputs[found[0]].name, *b = c->function->inputs[found[1]].name;
    bool a_is_mask = pome_name_has(a, "mask"), b_is_mask = pome_name_has(b, "mask");
    if (a_is_mask == b_is_mask)
        return pome_misfit_say(misfit, n_found, "which of '%s' and '%s' holds the ids cannot be told (--map ids=%s)", a, b,
                               a);
    c->ids = a_is_mask ? found[1] : found[0];
    c->mask = a_is_mask ? found[0] : found[1];
    return true;
}

/* A float input of rank 4 with leading ones: [1, 1, rows, columns]. */
static bool looks_like_mask(const pome_feature *f)
{
    pome_lengths batch, heads;
    return pome_feature_is_array(f, 4, true) && pome_lengths_of(f, 0, &batch) && pome_lengths_of(f, 1, &heads) &&
           batch.min == 1 && heads.min == 1 && heads.max == 1;
}

static bool find_mask_and_position(pome_contract *c, const bool *is_taken, pome_misfit *misfit, int n_found)
{
    for (uint32_t i = 0; i < c->function->n_inputs; i++) {
        const pome_feature *f = &c->function->inputs[i];
        if ((int)i == c->ids || (int)i == c->mask || (int)i == c->position || (is_taken && is_taken[i]))
            continue;
        if (looks_like_mask(f) && c->mask < 0)
            c->mask = (int)i;
        else if (pome_feature_is_array(f, 1, false) && f->shape[0] == 1 && c->position < 0)
            c->position = (int)i;
        else if (!f->is_optional)
            return pome_misfit_say(misfit, n_found, "input '%s' has no known part", f->name);
    }
    return true;
}

/* The only float output, or among several the one that is named for it. */
static bool find_logits(pome_contract *c, pome_misfit *misfit, int n_found)
{
    int n = 0, n_named = 0, named = -1;
    const pome_llm_role *mapped = pome_subject_role(c->subject, "logits", NULL);
    for (uint32_t i = 0; i < c->function->n_outputs; i++) {
        const pome_feature *f = &c->function->outputs[i];
        if (f->kind != POME_FEATURE_TENSOR || !pome_dtype_is_float(f->dtype) || (f->rank != 3 && f->rank != -1))
            continue;
        if (mapped && strcmp(f->name, mapped->name) != 0)
            continue;
        n++;
        c->logits = (int)i;
        if (pome_name_has(f->name, "logit") || pome_name_has(f->name, "score")) {
            named = (int)i;
            n_named++;
        }
    }
    if (n > 1 && n_named == 1) {
        c->logits = named;
        n = 1;
    }
    if (n != 1 && mapped)
        return pome_misfit_say(misfit, n_found, "'%s' is mapped to the logits, but is no float output of rank 3", mapped->name);
    return n == 1 || pome_misfit_say(misfit, n_found, "%d float outputs of rank 3 could be the logits, 1 is expected", n);
}

/* The description leaves shapes of outputs open that the program's types know. */
static int64_t find_vocabulary(const pome_contract *c)
{
    const pome_feature *f = &c->function->outputs[c->logits];
    int64_t n_vocab = f->rank > 0 ? f->shape[f->rank - 1] : -1;
    if (n_vocab < 1 && c->model) {
        const pome_model_function *mf = &c->model->functions[c->function - c->model->info.functions];
        const pome_type *type = &mf->fn->body->outputs[mf->outputs[c->logits]]->type;
        n_vocab = type->kind == POME_TYPE_TENSOR && type->rank > 0 ? type->dim[type->rank - 1] : -1;
    }
    return n_vocab > 0 ? n_vocab : 0;
}

bool pome_contract_take_parts(pome_contract *c, const bool *is_taken, pome_misfit *misfit)
{
    int n_found = misfit->n_found;
    if (is_mapped(c, "mask", &c->mask) && c->mask < 0)
        return misses("mask", misfit, n_found);
    if (is_mapped(c, "position", &c->position) && c->position < 0)
        return misses("position", misfit, n_found);
    if (!find_ids(c, is_taken, misfit, n_found) || !find_mask_and_position(c, is_taken, misfit, n_found + 1) ||
        !find_logits(c, misfit, n_found + 2))
        return false;
    misfit->n_found = n_found + 3;
    if (!pome_lengths_of(&c->function->inputs[c->ids], 1, &c->lengths))
        return pome_misfit_say(misfit, n_found, "'%s' lists more than %d shapes", c->function->inputs[c->ids].name,
                               POME_LENGTHS_MAX);
    c->n_vocab = find_vocabulary(c);
    return true;
}

void pome_contract_describe_parts(const pome_contract *c, const char *caches, char *text, size_t size)
{
    const pome_function_info *fn = c->function;
    char mask[160] = "", position[160] = "";
    if (c->mask >= 0)
        snprintf(mask, sizeof mask, ", mask=%s%s", fn->inputs[c->mask].name,
                 c->takes_whole ? "" : c->is_mask_whole ? " (context)" : " (end)");
    if (c->position >= 0)
        snprintf(position, sizeof position, ", position=%s", fn->inputs[c->position].name);
    snprintf(text, size, "%s%s%s, ids=%s%s%s, logits=%s", c->kind->name, caches ? ", " : "", caches ? caches : "",
             fn->inputs[c->ids].name, mask, position, fn->outputs[c->logits].name);
}
