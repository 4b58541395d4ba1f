/* The index is a hash table over pairs of neighbouring tokens: `head` has the last place where a pair of this hash
 * ends, `previous` links it to the places before. Candidates are compared backwards from there. */
#include <stdlib.h>
#include <string.h>

#include "llm/draft.h"

enum {
    LENGTH_MAX = 32,    /* tokens compared: longer matches are not told apart */
    CANDIDATES_MAX = 32 /* places looked at per proposal */
};

typedef struct ngram {
    pome_drafter base;
    int64_t n_context, n_indexed; /* pairs that end before n_indexed are in the table */
    uint32_t mask;
    int32_t *head;     /* [mask + 1] index of a pair's second token, -1: none */
    int32_t *previous; /* [n_context] */
} ngram;

/* Multiplicative hashing (Knuth, TAOCP 3, 6.4); the upper bits are the mixed ones. */
static uint32_t hash(const ngram *d, const int32_t *pair)
{
    uint64_t key = (uint64_t)(uint32_t)pair[0] << 32 | (uint32_t)pair[1];
    return (uint32_t)((key ^ key >> 29) * 0x9e3779b97f4a7c15u >> 32) & d->mask;
}

static void index_until(ngram *d, const int32_t *history, int64_t end)
{
    for (int64_t i = d->n_indexed > 1 ? d->n_indexed : 1; i < end; i++) {
        uint32_t at = hash(d, history + i - 1);
        d->previous[i] = d->head[at];
        d->head[at] = (int32_t)i;
    }
    d->n_indexed = end > d->n_indexed ? end : d->n_indexed;
}

/* Tokens that agree before and including positions `at` and n - 1. */
static int64_t match_length(const int32_t *history, int64_t n, int64_t at)
{
    int64_t length = 0;
    while (length < LENGTH_MAX && length <= at && history[at - length] == history[n - 1 - length])
        length++;
    return length;
}

static int class_of(int64_t length)
{
    return length < 3 ? 0 : length < 4 ? 1 : length < 6 ? 2 : length < 10 ? 3 : length < 20 ? 4 : 5;
}

static pome_status propose(pome_drafter *base, const int32_t *history, int64_t n, int64_t n_max, pome_draft *draft,
                           pome_error *err)
{
    ngram *d = (ngram *)base;
    int64_t best = -1, best_length = 1;
    draft->n = 0;
    if (n > d->n_context)
        return pome_fail(err, POME_ERR_LIMIT, "a history of %lld tokens, the drafter holds %lld", (long long)n,
                         (long long)d->n_context);
    if (n < 3)
        return POME_OK;
    index_until(d, history, n - 1); /* not the end itself, which would find itself */
    int64_t at = d->head[hash(d, history + n - 2)];
    for (int i = 0; i < CANDIDATES_MAX && at >= 0 && best_length < LENGTH_MAX; i++, at = d->previous[at]) {
        int64_t length = match_length(history, n, at);
        if (length > best_length) {
            best_length = length;
            best = at;
        }
    }
    if (best < 0)
        return POME_OK;
    for (int64_t from = best + 1; draft->n < n_max; draft->n++, from++) /* a loop goes on with the draft itself */
        draft->ids[draft->n] = from < n ? history[from] : draft->ids[from - n];
    draft->class = class_of(best_length);
    return POME_OK;
}

static void destroy(pome_drafter *base)
{
    ngram *d = (ngram *)base;
    free(d->head);
    free(d->previous);
    free(d);
}

void pome_drafter_destroy(pome_drafter **drafter)
{
    if (drafter && *drafter)
        (*drafter)->destroy(*drafter);
    if (drafter)
        *drafter = NULL;
}

pome_status pome_ngram_drafter_create(pome_drafter **out, int64_t n_context, pome_error *err)
{
    if (n_context < 1 || n_context > INT32_MAX / 4)
        return pome_fail(err, POME_ERR_LIMIT, "a context of %lld tokens is too long to be indexed",
                         (long long)n_context);
    size_t n_head = 64;
    while (n_head < 2 * (size_t)n_context)
        n_head *= 2;
    ngram *d = calloc(1, sizeof *d);
    if (!d)
        return pome_fail_nomem(err, sizeof *d, "n-gram index");
    *d = (ngram){.base = {propose, destroy}, .n_context = n_context, .mask = (uint32_t)n_head - 1};
    d->head = malloc(n_head * sizeof *d->head);
    d->previous = malloc((size_t)n_context * sizeof *d->previous);
    if (!d->head || !d->previous) {
        destroy(&d->base);
        return pome_fail_nomem(err, n_head * sizeof *d->head, "n-gram index");
    }
    memset(d->head, 0xff, n_head * sizeof *d->head);
    *out = &d->base;
    return POME_OK;
}
