#include "llm/contract.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

static const pome_contract_kind *const kinds[] = {&pome_contract_stateful, &pome_contract_nocache};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

bool pome_lengths_admit(const pome_lengths *lengths, int64_t n)
{
    if (lengths->n_listed == 0)
        return n >= lengths->min && (lengths->max < 0 || n <= lengths->max);
    for (int i = 0; i < lengths->n_listed; i++)
        if (lengths->listed[i] == n)
            return true;
    return false;
}

int64_t pome_lengths_round_up(const pome_lengths *lengths, int64_t n)
{
    if (lengths->n_listed == 0) {
        int64_t up = n < lengths->min ? lengths->min : n;
        return lengths->max >= 0 && up > lengths->max ? -1 : up;
    }
    for (int i = 0; i < lengths->n_listed; i++)
        if (lengths->listed[i] >= n)
            return lengths->listed[i];
    return -1;
}

int64_t pome_lengths_round_down(const pome_lengths *lengths, int64_t n)
{
    if (lengths->n_listed == 0) {
        int64_t down = lengths->max >= 0 && n > lengths->max ? lengths->max : n;
        return down < lengths->min ? -1 : down;
    }
    for (int i = lengths->n_listed - 1; i >= 0; i--)
        if (lengths->listed[i] <= n)
            return lengths->listed[i];
    return -1;
}

static bool insert_length(pome_lengths *lengths, int64_t n)
{
    int at = 0;
    while (at < lengths->n_listed && lengths->listed[at] < n)
        at++;
    if (at < lengths->n_listed && lengths->listed[at] == n)
        return true;
    if (lengths->n_listed == POME_LENGTHS_MAX)
        return false;
    memmove(lengths->listed + at + 1, lengths->listed + at, sizeof(int64_t) * (size_t)(lengths->n_listed - at));
    lengths->listed[at] = n;
    lengths->n_listed++;
    return true;
}

bool pome_lengths_of(const pome_feature *feature, int axis, pome_lengths *out)
{
    *out = (pome_lengths){.min = feature->shape[axis], .max = feature->shape[axis]};
    if (feature->n_enumerated > 0) {
        for (uint32_t i = 0; i < feature->n_enumerated; i++)
            if (!insert_length(out, feature->enumerated[(size_t)i * (size_t)feature->rank + (size_t)axis]))
                return false;
        out->min = out->listed[0];
        out->max = out->listed[out->n_listed - 1];
    } else if (feature->is_ranged) {
        out->min = feature->range[axis].min > 0 ? feature->range[axis].min : 1;
        out->max = feature->range[axis].max;
    }
    return true;
}

/* `word` in any case anywhere in the name. */
static bool name_has(const char *name, const char *word)
{
    size_t len = strlen(word);
    for (; *name; name++) {
        size_t i = 0;
        while (i < len && name[i] && tolower((unsigned char)name[i]) == word[i])
            i++;
        if (i == len)
            return true;
    }
    return false;
}

static bool is_array(const pome_feature *f, int32_t rank, bool is_float)
{
    if (f->kind != POME_FEATURE_TENSOR || f->rank != rank)
        return false;
    return is_float ? pome_dtype_is_float(f->dtype) : f->dtype == POME_DTYPE_I32;
}

/* Int32 inputs of rank 2 are the ids and, in models without a cache, a mask of ones and zeros. Two of them can
 * be told apart by name alone. */
static bool find_ids(pome_contract *c, char *reason, size_t reason_size)
{
    int found[2] = {-1, -1};
    uint32_t n_found = 0;
    for (uint32_t i = 0; i < c->function->n_inputs; i++)
        if (is_array(&c->function->inputs[i], 2, false)) {
            if (n_found < 2)
                found[n_found] = (int)i;
            n_found++;
        }
    if (n_found == 0 || n_found > 2) {
        snprintf(reason, reason_size, "%u int32 inputs of rank 2 for the ids, 1 or 2 are expected", n_found);
        return false;
    }
    c->ids = found[0];
    if (n_found == 1)
        return true;
    const char *a = c->function->inputs[found[0]].name, *b = c->function->inputs[found[1]].name;
    bool a_is_mask = name_has(a, "mask"), b_is_mask = name_has(b, "mask");
    if (a_is_mask == b_is_mask) {
        snprintf(reason, reason_size, "which of '%s' and '%s' holds the ids cannot be told", a, b);
        return false;
    }
    c->ids = a_is_mask ? found[1] : found[0];
    c->mask = a_is_mask ? found[0] : found[1];
    return true;
}

/* A float input of rank 4 with leading ones: [1, 1, rows, columns]. */
static bool looks_like_mask(const pome_feature *f)
{
    pome_lengths batch, heads;
    return is_array(f, 4, true) && pome_lengths_of(f, 0, &batch) && pome_lengths_of(f, 1, &heads) &&
           batch.min == 1 && heads.min == 1 && heads.max == 1;
}

static bool find_mask_and_position(pome_contract *c, char *reason, size_t reason_size)
{
    for (uint32_t i = 0; i < c->function->n_inputs; i++) {
        const pome_feature *f = &c->function->inputs[i];
        if ((int)i == c->ids || (int)i == c->mask)
            continue;
        if (looks_like_mask(f) && c->mask < 0) {
            c->mask = (int)i;
        } else if (is_array(f, 1, false) && f->shape[0] == 1 && c->position < 0) {
            c->position = (int)i;
        } else if (!f->is_optional) {
            snprintf(reason, reason_size, "input '%s' has no known part", f->name);
            return false;
        }
    }
    return true;
}

/* The only float output, or among several the one that is named for it. */
static bool find_logits(pome_contract *c, char *reason, size_t reason_size)
{
    int n = 0, n_named = 0, named = -1;
    for (uint32_t i = 0; i < c->function->n_outputs; i++) {
        const pome_feature *f = &c->function->outputs[i];
        if (f->kind != POME_FEATURE_TENSOR || !pome_dtype_is_float(f->dtype) || (f->rank != 3 && f->rank != -1))
            continue;
        n++;
        c->logits = (int)i;
        if (name_has(f->name, "logit") || name_has(f->name, "score")) {
            named = (int)i;
            n_named++;
        }
    }
    if (n > 1 && n_named == 1) {
        c->logits = named;
        n = 1;
    }
    if (n != 1)
        snprintf(reason, reason_size, "%d float outputs of rank 3 could be the logits, 1 is expected", n);
    return n == 1;
}

static bool find_parts(pome_contract *c, char *reason, size_t reason_size)
{
    if (!find_ids(c, reason, reason_size) || !find_mask_and_position(c, reason, reason_size) ||
        !find_logits(c, reason, reason_size))
        return false;
    if (!pome_lengths_of(&c->function->inputs[c->ids], 1, &c->lengths)) {
        snprintf(reason, reason_size, "'%s' lists more than %d shapes", c->function->inputs[c->ids].name,
                 POME_LENGTHS_MAX);
        return false;
    }
    return true;
}

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

pome_status pome_contract_find(pome_contract *out, const pome_function_info *function, pome_error *err)
{
    char reason[256] = "", seen[600] = "";
    for (int k = 0; k < N_KINDS; k++) {
        pome_contract c = {.kind = kinds[k], .function = function, .ids = -1, .mask = -1, .position = -1, .logits = -1};
        if (!find_parts(&c, reason, sizeof reason))
            break;
        if (c.kind->fit(&c, reason, sizeof reason)) {
            *out = c;
            return POME_OK;
        }
        if (reason[0]) /* of this kind, but not quite */
            break;
    }
    size_t at = list_features(seen, sizeof seen, 0, "inputs ", function->inputs, function->n_inputs);
    at = list_features(seen, sizeof seen, at, "; states ", function->states, function->n_states);
    list_features(seen, sizeof seen, at, "; outputs ", function->outputs, function->n_outputs);
    return pome_fail(err, POME_ERR_UNSUPPORTED,
                     "function '%s' fits no known contract: %s (seen: %s; expected: ids int32 [1, n], mask float "
                     "[1, 1, n, end], states, logits float [1, n, vocabulary]; or without states: ids, optional "
                     "int32 mask [1, n], logits)",
                     function->name, reason[0] ? reason : "no kind matches", seen);
}

void pome_contract_describe(const pome_contract *c, char *text, size_t size)
{
    const pome_function_info *fn = c->function;
    char mask[160] = "", position[160] = "", states[32] = "";
    if (c->mask >= 0)
        snprintf(mask, sizeof mask, ", mask=%s%s", fn->inputs[c->mask].name,
                 fn->n_states == 0 ? "" : c->is_mask_whole ? " (context)" : " (end)");
    if (c->position >= 0)
        snprintf(position, sizeof position, ", position=%s", fn->inputs[c->position].name);
    if (fn->n_states > 0)
        snprintf(states, sizeof states, ", %u states", fn->n_states);
    snprintf(text, size, "%s: ids=%s%s%s%s, logits=%s", c->kind->name, fn->inputs[c->ids].name, mask, position, states,
             fn->outputs[c->logits].name);
}
