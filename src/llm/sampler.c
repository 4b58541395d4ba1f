/* Choosing a token from logits. All arithmetic after the logits is in double with only the operations that IEEE
 * 754 fixes to the last bit (no libm), so equal seeds and logits give equal ids on every machine. */
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "pome/llm.h"

typedef struct candidate {
    double weight; /* logit, then its share */
    int32_t id;
} candidate;

struct pome_sampler {
    pome_sampler_opts opts;
    int64_t n_vocab;
    uint64_t random;        /* state of the generator */
    float *adjusted;        /* [n_vocab], after the repetition penalty */
    uint32_t *seen;         /* [n_vocab]: the pick in which an id was penalized */
    uint32_t n_picks;
    candidate *candidates;  /* [n_vocab] */
};

void pome_sampler_opts_default(pome_sampler_opts *opts)
{
    *opts = (pome_sampler_opts){.size = sizeof *opts, .temperature = 0.7f, .top_k = 40, .top_p = 0.95f,
                                .repeat_penalty = 1.0f, .repeat_last_n = 64};
}

static pome_status check_opts(const pome_sampler_opts *o, pome_error *err)
{
    if (!(o->temperature >= 0.0f && o->temperature <= FLT_MAX))
        return pome_fail(err, POME_ERR_ARG, "temperature %g is not a finite number of at least 0", (double)o->temperature);
    if (o->top_k < 0)
        return pome_fail(err, POME_ERR_ARG, "top-k %d is negative", (int)o->top_k);
    if (!(o->top_p > 0.0f && o->top_p <= 1.0f))
        return pome_fail(err, POME_ERR_ARG, "top-p %g is not in (0, 1]", (double)o->top_p);
    if (!(o->min_p >= 0.0f && o->min_p <= 1.0f))
        return pome_fail(err, POME_ERR_ARG, "min-p %g is not in [0, 1]", (double)o->min_p);
    if (!(o->repeat_penalty > 0.0f && o->repeat_penalty <= FLT_MAX))
        return pome_fail(err, POME_ERR_ARG, "repeat penalty %g is not above 0", (double)o->repeat_penalty);
    if (o->repeat_last_n < 0)
        return pome_fail(err, POME_ERR_ARG, "repeat window %d is negative", (int)o->repeat_last_n);
    return POME_OK;
}

pome_status pome_sampler_create(pome_sampler **out, const pome_sampler_opts *opts, int64_t n_vocab, pome_error *err)
{
    pome_sampler_opts defaults;
    pome_sampler_opts_default(&defaults);
    if (!opts)
        opts = &defaults;
    POME_TRY(check_opts(opts, err));
    if (n_vocab < 1 || n_vocab > INT32_MAX)
        return pome_fail(err, POME_ERR_ARG, "a vocabulary of %lld is not in [1, 2^31)", (long long)n_vocab);
    pome_sampler *s = calloc(1, sizeof *s);
    if (!s)
        return pome_fail_nomem(err, sizeof *s, "sampler");
    *s = (pome_sampler){.opts = *opts, .n_vocab = n_vocab, .random = opts->seed};
    s->adjusted = calloc((size_t)n_vocab, sizeof *s->adjusted);
    s->seen = calloc((size_t)n_vocab, sizeof *s->seen);
    s->candidates = calloc((size_t)n_vocab, sizeof *s->candidates);
    if (!s->adjusted || !s->seen || !s->candidates) {
        pome_sampler_destroy(&s);
        return pome_fail_nomem(err, (size_t)n_vocab * sizeof(candidate), "sampler");
    }
    *out = s;
    return POME_OK;
}

void pome_sampler_destroy(pome_sampler **sampler)
{
    pome_sampler *s = sampler ? *sampler : NULL;
    if (!s)
        return;
    free(s->adjusted);
    free(s->seen);
    free(s->candidates);
    free(s);
    *sampler = NULL;
}

/* SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): the seed is its
 * first state. The top 53 bits give a number in [0, 1). */
static double next_random(pome_sampler *s)
{
    s->random += 0x9e3779b97f4a7c15u;
    uint64_t z = s->random;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (double)(z >> 11) * 0x1p-53;
}

/* e^x for x <= 0, within 2 units of the last place: x = n ln 2 + r with |r| <= ln 2 / 2, and the Taylor series of
 * e^r to r^13 / 13!, whose remainder is below 2^-57. ln 2 is in two parts, so that r is exact to the end. */
static double exp_portable(double x)
{
    if (x < -700.0)
        return 0.0;
    double n = (double)(int64_t)(x * 0x1.71547652b82fep+0 - 0.5);
    double r = x - n * 0x1.62e42feep-1;
    r -= n * 0x1.a39ef35793c76p-33;
    double sum = 1.0;
    for (int i = 13; i >= 1; i--)
        sum = 1.0 + r / i * sum;
    uint64_t bits = (uint64_t)((int64_t)n + 1023) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}

/* The penalty divides positive logits and multiplies negative ones (Keskar et al., "CTRL", 2019). */
static const float *penalize(pome_sampler *s, const float *logits, const int32_t *history, int64_t n_history)
{
    int64_t n = n_history < s->opts.repeat_last_n ? n_history : s->opts.repeat_last_n;
    if (s->opts.repeat_penalty == 1.0f || n <= 0)
        return logits;
    memcpy(s->adjusted, logits, (size_t)s->n_vocab * sizeof *logits);
    if (++s->n_picks == 0) { /* wrapped: old marks would look new */
        memset(s->seen, 0, (size_t)s->n_vocab * sizeof *s->seen);
        s->n_picks = 1;
    }
    for (int64_t i = n_history - n; i < n_history; i++) {
        int32_t id = history[i];
        if (id < 0 || id >= s->n_vocab || s->seen[id] == s->n_picks)
            continue;
        s->seen[id] = s->n_picks;
        s->adjusted[id] = logits[id] > 0.0f ? logits[id] / s->opts.repeat_penalty : logits[id] * s->opts.repeat_penalty;
    }
    return s->adjusted;
}

static int32_t pick_largest(const float *logits, int64_t n)
{
    int32_t best = -1;
    for (int64_t i = 0; i < n; i++)
        if (isfinite(logits[i]) && (best < 0 || logits[i] > logits[best]))
            best = (int32_t)i;
    return best;
}

/* Larger weight first, then the smaller id. */
static bool is_before(candidate a, candidate b)
{
    return a.weight > b.weight || (a.weight == b.weight && a.id < b.id);
}

/* Moves the element at `at` down until no child comes before it (is_top: the heap's root is the first of the
 * order) or after it (else: the root is the last). */
static void sift_down(candidate *heap, int64_t n, int64_t at, bool is_top)
{
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= n)
            return;
        if (child + 1 < n && is_before(heap[child + 1], heap[child]) == is_top)
            child++;
        if (is_before(heap[child], heap[at]) != is_top)
            return;
        candidate moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
        at = child;
    }
}

static void make_heap(candidate *heap, int64_t n, bool is_top)
{
    for (int64_t i = n / 2 - 1; i >= 0; i--)
        sift_down(heap, n, i, is_top);
}

/* The k first candidates, kept in a heap whose root is the last of them: O(V log k). */
static int64_t collect_top_k(pome_sampler *s, const float *logits, int64_t k)
{
    candidate *c = s->candidates;
    bool is_heap = false; /* not before there are more than k: fewer stay in the order of ids */
    int64_t n = 0;
    for (int64_t i = 0; i < s->n_vocab; i++) {
        if (!isfinite(logits[i]))
            continue;
        candidate next = {(double)logits[i], (int32_t)i};
        if (n < k) {
            c[n++] = next;
            continue;
        }
        if (!is_heap)
            make_heap(c, n, false);
        is_heap = true;
        if (is_before(next, c[0])) {
            c[0] = next;
            sift_down(c, n, 0, false);
        }
    }
    return n;
}

/* Logits to shares of the sum. Returns the largest. */
static double apply_softmax(candidate *c, int64_t n, double temperature)
{
    double largest = c[0].weight, sum = 0.0;
    for (int64_t i = 1; i < n; i++)
        largest = c[i].weight > largest ? c[i].weight : largest;
    for (int64_t i = 0; i < n; i++) {
        c[i].weight = exp_portable((c[i].weight - largest) / temperature);
        sum += c[i].weight;
    }
    for (int64_t i = 0; i < n; i++)
        c[i].weight /= sum;
    return 1.0 / sum;
}

/* Leaves the shortest run of largest shares that reaches top_p, largest first at the end of the array: popping a
 * heap puts the popped one behind what is left, so only as many are sorted as are kept. Returns the first. */
static int64_t keep_top_p(candidate *c, int64_t n, double top_p)
{
    double sum = 0.0;
    int64_t left = n;
    make_heap(c, n, true);
    while (left > 0 && sum < top_p) {
        candidate first = c[0];
        left--;
        c[0] = c[left];
        c[left] = first;
        sift_down(c, left, 0, true);
        sum += first.weight;
    }
    return left;
}

static int compare_by_id(const void *a, const void *b)
{
    int32_t x = ((const candidate *)a)->id, y = ((const candidate *)b)->id;
    return (x > y) - (x < y);
}

int32_t pome_sampler_pick(pome_sampler *s, const float *logits, const int32_t *history, int64_t n_history)
{
    logits = penalize(s, logits, history, n_history);
    if (s->opts.temperature == 0.0f)
        return pick_largest(logits, s->n_vocab);
    int64_t k = s->opts.top_k > 0 && s->opts.top_k < s->n_vocab ? s->opts.top_k : s->n_vocab;
    int64_t n = collect_top_k(s, logits, k), begin = 0;
    if (n == 0)
        return -1;
    candidate *c = s->candidates;
    double largest = apply_softmax(c, n, (double)s->opts.temperature);
    if (s->opts.top_p < 1.0f)
        begin = keep_top_p(c, n, (double)s->opts.top_p);
    int64_t n_kept = 0;
    double sum = 0.0, floor_share = largest * (double)s->opts.min_p;
    for (int64_t i = begin; i < n; i++)
        if (c[i].weight >= floor_share && c[i].weight > 0.0) {
            sum += c[i].weight;
            c[n_kept++] = c[i];
        }
    if (k < s->n_vocab || s->opts.top_p < 1.0f) /* in the order of ids, however they were found */
        qsort(c, (size_t)n_kept, sizeof *c, compare_by_id);
    double at = next_random(s) * sum;
    for (int64_t i = 0; i < n_kept - 1; i++) {
        at -= c[i].weight;
        if (at < 0.0)
            return c[i].id;
    }
    return c[n_kept - 1].id;
}
