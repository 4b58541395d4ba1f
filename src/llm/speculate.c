#include "llm/speculate.h"

#include <stdlib.h>

/* Before anything is known: how often drafts of each class are right, worth so many observations. */
static const double prior[POME_DRAFT_CLASSES] = {0.35, 0.5, 0.6, 0.75, 0.85, 0.92};
enum {
    PRIOR_WEIGHT = 2,
    MEMORY = 48,   /* observations that count, older ones fade */
    LOST_STEPS = 2 /* what wrong drafts may cost in the beginning, in steps */
};

static const double gain_min = 1.03;    /* times the plain speed that a draft must promise */
static const double share_lost_max = 0.01; /* of the time of all passes that wrong drafts may cost */
static const double faster_than_plain = 0.8;
static const double row_cost_guess = 0.05; /* of a step, for each row, before a pass was measured */

struct pome_speculator {
    pome_drafter *drafter;
    int64_t n_max;
    bool is_bold;
    pome_draft draft;    /* the last one */
    int64_t n_measured;  /* the longest draft whose pass was measured */
    double *pass_s;      /* [n_max + 1] by length of the draft, 0: not measured */
    double right[POME_DRAFT_CLASSES], wrong[POME_DRAFT_CLASSES];
    double spent_s;      /* in all passes */
    double lost_s;       /* in passes with drafts, beyond what plain steps would have taken for the same tokens */
};

pome_status pome_speculator_create(pome_speculator **out, pome_drafter *drafter, int64_t n_max, bool is_bold,
                                   pome_error *err)
{
    pome_speculator *s = calloc(1, sizeof *s);
    if (s) {
        *s = (pome_speculator){.drafter = drafter, .n_max = n_max, .is_bold = is_bold};
        s->pass_s = calloc((size_t)n_max + 1, sizeof *s->pass_s);
        s->draft.ids = calloc((size_t)n_max + 1, sizeof *s->draft.ids);
    }
    if (!s || !s->pass_s || !s->draft.ids) {
        pome_speculator_destroy(&s);
        return pome_fail_nomem(err, (size_t)n_max * sizeof(double), "speculation");
    }
    *out = s;
    return POME_OK;
}

void pome_speculator_destroy(pome_speculator **speculator)
{
    pome_speculator *s = speculator ? *speculator : NULL;
    if (!s)
        return;
    free(s->pass_s);
    free(s->draft.ids);
    free(s);
    *speculator = NULL;
}

/* Seconds of a pass with a draft of k tokens: measured, or on the line through the measured lengths around it. */
static double pass_seconds(const pome_speculator *s, int64_t k)
{
    int64_t below = k, above = k;
    while (below > 0 && s->pass_s[below] == 0.0)
        below--;
    while (above < s->n_max && s->pass_s[above] == 0.0)
        above++;
    if (s->pass_s[below] == 0.0)
        return 0.0;
    if (below == k)
        return s->pass_s[k];
    double slope = s->pass_s[0] * row_cost_guess;
    if (s->pass_s[above] > 0.0)
        slope = (s->pass_s[above] - s->pass_s[below]) / (double)(above - below);
    else if (below > 0)
        slope = (s->pass_s[below] - s->pass_s[0]) / (double)below;
    return s->pass_s[below] + (slope > 0.0 ? slope : 0.0) * (double)(k - below);
}

static double chance_right(const pome_speculator *s, int class)
{
    double right = s->right[class] + prior[class] * PRIOR_WEIGHT;
    return right / (s->right[class] + s->wrong[class] + PRIOR_WEIGHT);
}

/* The length up to n with the most tokens per second. */
static int64_t best_length(const pome_speculator *s, int64_t n)
{
    double p = chance_right(s, s->draft.class), expected = 1.0, power = 1.0, plain_s = s->pass_s[0];
    double best_rate = gain_min / plain_s, room_s = s->spent_s * share_lost_max + LOST_STEPS * plain_s - s->lost_s;
    int64_t best = 0;
    int64_t n_known = 2 * s->n_measured + 2; /* what longer passes take is too uncertain yet */
    n = n < n_known ? n : n_known;
    for (int64_t k = 1; k <= n; k++) {
        power *= p;
        expected += power;
        double seconds = pass_seconds(s, k);
        if (expected / seconds > best_rate && seconds - plain_s <= room_s) {
            best_rate = expected / seconds;
            best = k;
        }
    }
    return best;
}

pome_status pome_speculator_draft(pome_speculator *s, const int32_t *history, int64_t n, int64_t n_max,
                                  const int32_t **ids, int64_t *n_ids, pome_error *err)
{
    s->draft.n = 0;
    if (n_max > s->n_max)
        n_max = s->n_max;
    if (s->is_bold && n_max > 0) {
        POME_TRY(s->drafter->propose(s->drafter, history, n, n_max, &s->draft, err));
    } else if (n_max > 0 && s->pass_s[0] > 0.0) { /* the first step is a plain one: the measure of all others */
        POME_TRY(s->drafter->propose(s->drafter, history, n, n_max, &s->draft, err));
        s->draft.n = best_length(s, s->draft.n);
    }
    *ids = s->draft.ids;
    *n_ids = s->draft.n;
    return POME_OK;
}

/* A moving average in which one slow pass (another program ran, pages were read) counts for little. */
static void learn_time(double *average, double seconds)
{
    if (*average == 0.0)
        *average = seconds;
    else if (seconds < *average)
        *average += 0.5 * (seconds - *average);
    else
        *average += 0.2 * ((seconds < 2.0 * *average ? seconds : 2.0 * *average) - *average);
}

void pome_speculator_learn(pome_speculator *s, double seconds, int64_t n_right, int64_t n_seen)
{
    int64_t k = s->draft.n;
    if (k > 0 && seconds < faster_than_plain * s->pass_s[0]) { /* more rows take no less: the plain steps were slowed down */
        learn_time(&s->pass_s[k], seconds);
        s->pass_s[0] = 0.0; /* the next one is plain, and measured anew */
    } else if (k > 0) {
        double usual = pass_seconds(s, k);
        seconds = seconds < 2.0 * usual ? seconds : 2.0 * usual; /* most of it is not the draft's */
        if (s->pass_s[k] == 0.0)
            s->pass_s[k] = 0.5 * (usual + seconds); /* one measurement may be anything */
        else
            learn_time(&s->pass_s[k], seconds);
        s->lost_s += seconds - s->pass_s[0] * (double)(1 + n_right);
        if (s->lost_s < 0.0) /* what was won is not to be lost again */
            s->lost_s = 0.0;
    } else {
        learn_time(&s->pass_s[0], seconds);
    }
    s->n_measured = k > s->n_measured ? k : s->n_measured;
    s->spent_s += seconds;
    if (k == 0)
        return;
    double *right = &s->right[s->draft.class], *wrong = &s->wrong[s->draft.class];
    *right += (double)n_right;
    *wrong += n_right < n_seen;
    if (*right + *wrong > MEMORY) {
        double fade = MEMORY / (*right + *wrong);
        *right *= fade;
        *wrong *= fade;
    }
}
