#include "llm/contract_function.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>


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
    c->ids = c->mask = c->position = c->positions = c->update = -1;
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

/* The caller's word on mask and positions, which types can contradict. */
static bool take_mapped(pome_contract *c, pome_misfit *misfit)
{
    const struct {
        const char *role;
        int *index;
        int32_t rank, other_rank; /* of int32 */
        int32_t float_rank;
        const char *wanted;
    } parts[] = {{"mask", &c->mask, 2, 2, 4, "float [1, 1, n, columns] or int32 [1, n]"},
                 {"position", &c->position, 1, 1, 1, "int32 [1]"},
                 {"positions", &c->positions, 1, 2, 1, "int32 [n] or [1, n]"}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!is_mapped(c, parts[i].role, parts[i].index))
            continue;
        if (*parts[i].index < 0)
            return misses(parts[i].role, misfit, misfit->n_found);
        const pome_feature *f = &c->function->inputs[*parts[i].index];
        if (!pome_feature_is_array(f, parts[i].rank, false) && !pome_feature_is_array(f, parts[i].other_rank, false) &&
            !pome_feature_is_array(f, parts[i].float_rank, true))
            return pome_misfit_say(misfit, misfit->n_found, "'%s' is mapped to the %s, but is no %s", f->name, parts[i].role,
                                   parts[i].wanted);
    }
    return true;
}

static bool is_cache_input(const pome_contract *c, uint32_t input)
{
    for (uint32_t i = 0; i < c->n_caches; i++)
        if (c->caches[i].input == (int)input)
            return true;
    return false;
}

static bool is_cache_output(const pome_contract *c, uint32_t output)
{
    for (uint32_t i = 0; i < c->n_caches; i++)
        if (c->caches[i].output == (int)output)
            return true;
    return false;
}

/* Int32 inputs of rank 2 are the ids, a mask of ones and zeros, and positions. Two of them can be told apart by name
 * alone. */
static bool find_ids(pome_contract *c, pome_misfit *misfit, int n_found)
{
    const pome_feature *f = c->function->inputs;
    int found[3] = {-1, -1, -1}, n = 0;
    if (is_mapped(c, "ids", &c->ids)) {
        if (c->ids < 0)
            return misses("ids", misfit, n_found);
        if (!pome_feature_is_array(&f[c->ids], 2, false))
            return pome_misfit_say(misfit, n_found, "'%s' is mapped to the ids, but is no int32 [1, n]", f[c->ids].name);
    }
    for (int i = 0; i < (int)c->function->n_inputs; i++) {
        if (!pome_feature_is_array(&f[i], 2, false) || i == c->ids || i == c->mask || i == c->positions)
            continue;
        if (c->positions < 0 && pome_name_has(f[i].name, "position"))
            c->positions = i;
        else if (n < 3)
            found[n++] = i;
    }
    bool is_known = c->ids >= 0;
    for (int i = 0; i < n && c->mask < 0 && n > (is_known ? 0 : 1); i++) /* the only one holds ids, whatever its name */
        if (pome_name_has(f[found[i]].name, "mask")) {
            c->mask = found[i];
            memmove(&found[i], &found[i + 1], (size_t)(2 - i) * sizeof *found);
            n--;
        }
    if (is_known)
        return n == 0 || pome_misfit_say(misfit, n_found, "input '%s' has no known part", f[found[0]].name);
    if (n == 2)
        return pome_misfit_say(misfit, n_found, "which of '%s' and '%s' holds the ids cannot be told (--map ids=%s)",
                               f[found[0]].name, f[found[1]].name, f[found[0]].name);
    c->ids = n == 1 ? found[0] : -1;
    return n == 1 || pome_misfit_say(misfit, n_found, "%d int32 inputs of rank 2 for the ids, 1 or 2 are expected", n);
}

bool pome_looks_like_mask(const pome_feature *f)
{
    pome_lengths batch, heads;
    return pome_feature_is_array(f, 4, true) && pome_lengths_of(f, 0, &batch) && pome_lengths_of(f, 1, &heads) &&
           batch.min == 1 && heads.min == 1 && heads.max == 1;
}

/* One at the row's position: [1, 1, context, 1], of a fixed shape. */
static bool looks_like_update(const pome_feature *f)
{
    return pome_looks_like_mask(f) && !f->is_ranged && f->n_enumerated == 0 && f->shape[2] > 1 && f->shape[3] == 1;
}

/* [1] counts for the first row, [n] for each. Some models want both, for rows and for the cache. */
static bool take_position(pome_contract *c, int i)
{
    const pome_feature *f = &c->function->inputs[i];
    bool is_number = f->kind == POME_FEATURE_TENSOR && f->rank == 1 &&
                     (f->dtype == POME_DTYPE_I32 || (pome_dtype_is_float(f->dtype) && pome_name_has(f->name, "pos")));
    if (!is_number)
        return false;
    bool is_one = f->shape[0] == 1 && !f->is_ranged && f->n_enumerated == 0;
    int *slot = is_one && c->position < 0 ? &c->position : &c->positions;
    if (*slot >= 0)
        return false;
    *slot = i;
    return true;
}

static bool find_mask_and_position(pome_contract *c, pome_misfit *misfit, int n_found)
{
    for (int i = 0; i < (int)c->function->n_inputs; i++) {
        const pome_feature *f = &c->function->inputs[i];
        if (i == c->ids || i == c->mask || i == c->position || i == c->positions || is_cache_input(c, (uint32_t)i))
            continue;
        if (looks_like_update(f) && c->update < 0)
            c->update = i;
        else if (pome_looks_like_mask(f) && !looks_like_update(f) && c->mask < 0)
            c->mask = i;
        else if (!take_position(c, i) && !f->is_optional)
            return pome_misfit_say(misfit, n_found, "input '%s' has no known part", f->name);
    }
    return true;
}

static bool is_logits_name(const char *name)
{
    return pome_name_has(name, "logit") || pome_name_has(name, "score");
}

/* The number at the end of a name, -1: none. *stem: length of what is before it. */
static int64_t number_at_end(const char *name, size_t *stem)
{
    size_t len = strlen(name), n = len;
    while (n > 0 && isdigit((unsigned char)name[n - 1]))
        n--;
    *stem = n;
    return n < len && len - n < 10 ? strtoll(name + n, NULL, 10) : -1;
}

/* Several outputs that differ in the number at their names' ends hold parts of the vocabulary, in this order. */
static bool sort_parts(const pome_feature *f, const int *found, int n, int *parts)
{
    size_t stem, first_stem;
    number_at_end(f[found[0]].name, &first_stem);
    for (int i = 0; i < n; i++) {
        int64_t number = number_at_end(f[found[i]].name, &stem);
        if (number < 0 || stem != first_stem || strncmp(f[found[i]].name, f[found[0]].name, stem) != 0)
            return false;
        int at = i;
        for (; at > 0 && number_at_end(f[parts[at - 1]].name, &stem) > number; at--)
            parts[at] = parts[at - 1];
        parts[at] = found[i];
    }
    return true;
}

int pome_logits_parts(const pome_function_info *fn, int *parts)
{
    int named[POME_ROW_PARTS_MAX], n = 0;
    for (uint32_t i = 0; i < fn->n_outputs; i++) {
        const pome_feature *f = &fn->outputs[i];
        if (f->kind == POME_FEATURE_TENSOR && pome_dtype_is_float(f->dtype) && is_logits_name(f->name) &&
            n < POME_ROW_PARTS_MAX)
            named[n++] = (int)i;
    }
    if (n == 1)
        parts[0] = named[0];
    return n < 2 || sort_parts(fn->outputs, named, n, parts) ? n : 0;
}

/* Instead of logits: an int32 output with the likeliest id, named for it. */
static bool find_argmax(pome_contract *c)
{
    for (uint32_t i = 0; i < c->function->n_outputs; i++) {
        const pome_feature *f = &c->function->outputs[i];
        bool is_named = pome_name_has(f->name, "token") || pome_name_has(f->name, "argmax") || pome_name_has(f->name, "next");
        if (f->kind == POME_FEATURE_TENSOR && f->dtype == POME_DTYPE_I32 && is_named && !is_cache_output(c, i)) {
            c->logits[0] = (int)i;
            c->n_logits = 1;
            c->is_argmax = true;
            return true;
        }
    }
    return false;
}

/* The only float output, or among several the ones that are named for it. */
static bool find_logits(pome_contract *c, pome_misfit *misfit, int n_found)
{
    int n = 0, n_named = 0, named[POME_ROW_PARTS_MAX], any = -1;
    const pome_llm_role *mapped = pome_subject_role(c->subject, "logits", NULL);
    for (uint32_t i = 0; i < c->function->n_outputs; i++) {
        const pome_feature *f = &c->function->outputs[i];
        if (f->kind != POME_FEATURE_TENSOR || !pome_dtype_is_float(f->dtype) || (f->rank != 3 && f->rank != -1))
            continue;
        if (mapped ? strcmp(f->name, mapped->name) != 0 : is_cache_output(c, i))
            continue;
        n++;
        any = (int)i;
        if (is_logits_name(f->name) && n_named < POME_ROW_PARTS_MAX)
            named[n_named++] = (int)i;
    }
    if (n_named > 1 && sort_parts(c->function->outputs, named, n_named, c->logits)) {
        c->n_logits = n_named;
        return true;
    }
    if (n_named != 1 && find_argmax(c))
        return true;
    if (n == 0 && mapped)
        return pome_misfit_say(misfit, n_found, "'%s' is mapped to the logits, but is no float output of rank 3", mapped->name);
    c->logits[0] = n_named == 1 ? named[0] : any;
    c->n_logits = 1;
    return n == 1 || n_named == 1 ||
           pome_misfit_say(misfit, n_found, "%d float outputs of rank 3 could be the logits, 1 is expected", n);
}

const pome_type *pome_output_type(const pome_model *model, const pome_function_info *function, int output)
{
    if (!model)
        return NULL;
    const pome_model_function *mf = &model->functions[function - model->info.functions];
    const pome_type *type = &mf->fn->body->outputs[mf->outputs[output]]->type;
    return type->kind == POME_TYPE_TENSOR ? type : NULL;
}

/* The description leaves shapes of outputs open that the program's types know. */
static int64_t last_axis(const pome_contract *c, int output)
{
    const pome_feature *f = &c->function->outputs[output];
    const pome_type *type = pome_output_type(c->model, c->function, output);
    if (f->rank > 0 && f->shape[f->rank - 1] > 0)
        return f->shape[f->rank - 1];
    return type && type->rank > 0 && type->dim[type->rank - 1] > 0 ? type->dim[type->rank - 1] : 0;
}

int64_t pome_embedding_rows(const pome_model *model, const pome_function_info *function)
{
    const pome_model_function *mf = model ? &model->functions[function - model->info.functions] : NULL;
    int64_t n = 0;
    for (uint32_t i = 0; mf && i < mf->fn->body->n_ops; i++) {
        const pome_op *op = mf->fn->body->ops[i];
        const pome_value *x = op->n_in > 0 && strcmp(op->def->name, "gather") == 0 ? op->in[0] : NULL;
        if (x && x->type.kind == POME_TYPE_TENSOR && x->type.rank == 2 && pome_dtype_is_float(x->type.dtype) &&
            (x->konst || x->def) && x->type.dim[0] > n)
            n = x->type.dim[0];
    }
    return n;
}

static int64_t find_vocabulary(const pome_contract *c)
{
    int64_t n_vocab = 0;
    if (c->is_argmax)
        return pome_embedding_rows(c->model, c->function);
    for (int i = 0; i < c->n_logits; i++) {
        int64_t n = last_axis(c, c->logits[i]);
        if (n < 1)
            return 0;
        n_vocab += n;
    }
    return n_vocab;
}

bool pome_contract_take_parts(pome_contract *c, pome_misfit *misfit)
{
    int n_found = misfit->n_found;
    if (!take_mapped(c, misfit))
        return false;
    if (!find_ids(c, misfit, n_found) || !find_mask_and_position(c, misfit, n_found + 1) ||
        !find_logits(c, misfit, n_found + 2))
        return false;
    misfit->n_found = n_found + 3;
    if (!pome_lengths_of(&c->function->inputs[c->ids], 1, &c->lengths))
        return pome_misfit_say(misfit, n_found, "'%s' lists more than %d shapes", c->function->inputs[c->ids].name,
                               POME_LENGTHS_MAX);
    c->n_vocab = find_vocabulary(c);
    return true;
}

bool pome_contract_take_context(pome_contract *c, int64_t n_rows, pome_misfit *misfit)
{
    const pome_feature *inputs = c->function->inputs;
    pome_lengths columns = {.max = -1};
    c->context = n_rows;
    if (c->mask >= 0) {
        const pome_feature *mask = &inputs[c->mask];
        if (!pome_lengths_of(mask, mask->rank - 1, &columns))
            return pome_misfit_say(misfit, misfit->n_found, "'%s' lists more than %d shapes", mask->name, POME_LENGTHS_MAX);
        int64_t end = columns.max < 0 ? -1 : columns.max - c->n_dummy;
        c->is_mask_whole = columns.min == columns.max;
        if (end > 0 && (n_rows < 1 || end < n_rows || c->is_mask_whole))
            c->context = end;
        if (c->is_mask_whole && c->position < 0 && c->positions < 0)
            return pome_misfit_say(misfit, misfit->n_found,
                                   "mask '%s' is always %lld wide and no int32 input [1] gives the position", mask->name,
                                   (long long)columns.max);
    }
    if (c->context < 1)
        return pome_misfit_say(misfit, misfit->n_found, "neither a mask nor the caches bound the context");
    if (c->update >= 0 && inputs[c->update].shape[2] < c->context)
        c->context = inputs[c->update].shape[2];
    return c->lengths.min <= c->context ||
           pome_misfit_say(misfit, misfit->n_found, "'%s' takes %lld ids at least, the context is %lld", inputs[c->ids].name,
                           (long long)c->lengths.min, (long long)c->context);
}

static size_t say(char *text, size_t size, size_t at, const char *role, const char *name, const char *how)
{
    int len = at < size ? snprintf(text + at, size - at, ", %s=%s%s", role, name, how) : 0;
    return at + (len > 0 ? (size_t)len : 0);
}

void pome_contract_describe_parts(const pome_contract *c, const char *caches, char *text, size_t size)
{
    const pome_function_info *fn = c->function;
    size_t at = (size_t)snprintf(text, size, "%s%s%s", c->kind->name, caches ? ", " : "", caches ? caches : "");
    at = say(text, size, at, "ids", fn->inputs[c->ids].name, "");
    if (c->mask >= 0)
        at = say(text, size, at, "mask", fn->inputs[c->mask].name,
                 c->takes_whole ? "" : c->is_mask_whole ? " (context)" : " (end)");
    if (c->position >= 0)
        at = say(text, size, at, "position", fn->inputs[c->position].name, "");
    if (c->positions >= 0)
        at = say(text, size, at, "positions", fn->inputs[c->positions].name, "");
    if (c->update >= 0)
        at = say(text, size, at, "update", fn->inputs[c->update].name, "");
    at = say(text, size, at, c->is_argmax ? "token" : "logits", fn->outputs[c->logits[0]].name, "");
    if (c->n_logits > 1 && at < size)
        snprintf(text + at, size - at, "..%s", fn->outputs[c->logits[c->n_logits - 1]].name);
}
