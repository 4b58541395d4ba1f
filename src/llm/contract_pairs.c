/* Caches as inputs and outputs: which output is the next call's input. Types must agree; names tell pairs of equal types
 * apart, after the words that mean "before" and "after" are taken out: past_key_values_0_key and present_0_key are both
 * "0 key". What names leave open is paired in the order of declaration. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm/contract_function.h"

/* Words that say when, not what. */
static const char *const idle[] = {"past",  "present", "new",  "old",   "updated", "cache",  "caches",
                                   "kv",    "in",      "out",  "input", "output",  "next",   "state",
                                   "states", "prev",   "previous", "current"};

typedef enum word_kind { WORD_PLAIN, WORD_IDLE, WORD_KEY, WORD_VALUE } word_kind;

static word_kind kind_of(const char *word)
{
    for (size_t i = 0; i < sizeof idle / sizeof idle[0]; i++)
        if (strcmp(word, idle[i]) == 0)
            return WORD_IDLE;
    if (strcmp(word, "k") == 0 || strcmp(word, "key") == 0 || strcmp(word, "keys") == 0)
        return WORD_KEY;
    if (strcmp(word, "v") == 0 || strcmp(word, "value") == 0 || strcmp(word, "values") == 0)
        return WORD_VALUE;
    return WORD_PLAIN;
}

/* The next word in lower case: letters up to an upper one after a lower one ("keyCache"), or digits. */
static const char *next_word(const char *p, char *word, size_t size)
{
    size_t n = 0;
    while (*p && !isalnum((unsigned char)*p))
        p++;
    bool is_number = isdigit((unsigned char)*p) != 0;
    while (*p && isalnum((unsigned char)*p) && (isdigit((unsigned char)*p) != 0) == is_number) {
        if (n > 0 && isupper((unsigned char)*p) && islower((unsigned char)p[-1]))
            break;
        if (n + 1 < size)
            word[n++] = (char)tolower((unsigned char)*p);
        p++;
    }
    word[n] = '\0';
    return n > 0 ? p : NULL;
}

/* What a name says besides "past" or "present": "0 key". */
static void name_key(const char *name, char *key, size_t size)
{
    char word[64];
    size_t at = 0;
    word_kind before = WORD_PLAIN;
    size_t at_before = 0;
    key[0] = '\0';
    for (const char *p = name; (p = next_word(p, word, sizeof word));) {
        word_kind kind = kind_of(word);
        if (kind == WORD_VALUE && before == WORD_KEY) { /* "key_values": both, as a whole */
            at = at_before;
            key[at] = '\0';
            before = WORD_PLAIN;
            continue;
        }
        at_before = at;
        before = kind;
        if (kind == WORD_IDLE)
            continue;
        const char *text = kind == WORD_KEY ? "key" : kind == WORD_VALUE ? "value" : word;
        int len = snprintf(key + at, size - at, "%s%s", at ? " " : "", text);
        at = len > 0 && at + (size_t)len < size ? at + (size_t)len : size - 1;
    }
}

/* An output may be what input `f` becomes: of its type, with equal axes where both are fixed. */
static bool may_become(const pome_contract *c, const pome_feature *f, int output)
{
    const pome_feature *out = &c->function->outputs[output];
    const pome_type *type = pome_output_type(c->model, c->function, output);
    if (out->kind != POME_FEATURE_TENSOR || out->dtype != f->dtype)
        return false;
    int32_t rank = type ? type->rank : out->rank;
    if (rank >= 0 && rank != f->rank)
        return false;
    for (int32_t i = 0; i < f->rank && rank >= 0; i++) {
        int64_t n = type ? type->dim[i] : out->shape[i];
        bool is_open = f->is_ranged && f->range[i].min != f->range[i].max;
        if (!is_open && n >= 0 && n != f->shape[i])
            return false;
    }
    return true;
}

static bool may_be_cache(const pome_feature *f)
{
    return f->kind == POME_FEATURE_TENSOR && pome_dtype_is_float(f->dtype) && f->rank >= 2 && f->n_enumerated == 0;
}

static bool is_taken(const pome_contract *c, int input, int output)
{
    for (uint32_t i = 0; i < c->n_caches; i++)
        if (c->caches[i].input == input || c->caches[i].output == output)
            return true;
    return false;
}

static void add(pome_contract *c, int input, int output)
{
    const pome_feature *f = &c->function->inputs[input];
    pome_cache_pair *pair = &c->caches[c->n_caches++];
    *pair = (pome_cache_pair){input, output, -1};
    for (int32_t i = 0; i < f->rank && f->is_ranged; i++)
        if (f->range[i].min != f->range[i].max)
            pair->axis = i;
}

static bool pair_by_role(pome_contract *c, pome_misfit *misfit)
{
    const pome_function_info *fn = c->function;
    const pome_llm_role *in = NULL, *out = NULL;
    while ((in = pome_subject_role(c->subject, "cache_in", in))) {
        out = pome_subject_role(c->subject, "cache_out", out);
        int i = pome_feature_index(fn->inputs, fn->n_inputs, in->name);
        int o = out ? pome_feature_index(fn->outputs, fn->n_outputs, out->name) : -1;
        if (i < 0 || o < 0 || is_taken(c, i, o) || !may_be_cache(&fn->inputs[i]) || !may_become(c, &fn->inputs[i], o))
            return pome_misfit_say(misfit, 5, "'%s' is mapped to cache_in, but no output of its type to cache_out", in->name);
        add(c, i, o);
    }
    return true;
}

static void pair_by_name(pome_contract *c)
{
    const pome_function_info *fn = c->function;
    for (int i = 0; i < (int)fn->n_inputs; i++) {
        char key[128], other[128];
        int found = -1, n = 0;
        if (!may_be_cache(&fn->inputs[i]))
            continue;
        name_key(fn->inputs[i].name, key, sizeof key);
        for (int o = 0; o < (int)fn->n_outputs; o++) {
            name_key(fn->outputs[o].name, other, sizeof other);
            if (!is_taken(c, i, o) && strcmp(key, other) == 0 && may_become(c, &fn->inputs[i], o)) {
                found = o;
                n++;
            }
        }
        if (n == 1)
            add(c, i, found);
    }
}

/* The next output from `o` on that is no pair's and not named for logits. */
static int next_output(const pome_contract *c, int o)
{
    const pome_function_info *fn = c->function;
    while (o < (int)fn->n_outputs && (is_taken(c, -2, o) || pome_name_has(fn->outputs[o].name, "logit") ||
                                      pome_name_has(fn->outputs[o].name, "score")))
        o++;
    return o;
}

/* The inputs that are left, with the outputs that are left, if types agree pair by pair. */
static void pair_by_order(pome_contract *c)
{
    const pome_function_info *fn = c->function;
    uint32_t n_before = c->n_caches;
    int o = 0;
    for (int i = 0; i < (int)fn->n_inputs; i++) {
        const pome_feature *f = &fn->inputs[i];
        if (!may_be_cache(f) || pome_looks_like_mask(f) || is_taken(c, i, -2))
            continue;
        o = next_output(c, o);
        bool is_known = o < (int)fn->n_outputs && (fn->outputs[o].rank >= 0 || pome_output_type(c->model, fn, o));
        if (!is_known || !may_become(c, f, o)) {
            c->n_caches = n_before;
            return;
        }
        add(c, i, o);
    }
}

bool pome_contract_take_pairs(pome_contract *c, pome_misfit *misfit)
{
    c->caches = calloc(c->function->n_inputs + 1, sizeof *c->caches);
    if (!c->caches)
        return pome_misfit_say(misfit, 0, "memory is short");
    if (!pair_by_role(c, misfit))
        return false;
    pair_by_name(c);
    pair_by_order(c);
    if (c->n_caches == 0)
        pome_contract_reset_pairs(c);
    return true;
}

void pome_contract_reset_pairs(pome_contract *c)
{
    free(c->caches);
    c->caches = NULL;
}
