#include "convert/palette.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/f16.h"

enum { PATTERNS = POME_PALETTE_PATTERNS, ENTRIES_MAX = 1 << POME_PALETTE_BITS_MAX, BINS_MAX = 2048, LLOYD_STEPS = 300 };

/* The different values in ascending order, and sums over the first i of them: of counts and of count * value. Values are
 * taken from their mean, which keeps the differences of sums exact enough. */
typedef struct clusters {
    uint32_t n;                         /* different values */
    uint32_t k;                         /* entries */
    float value[PATTERNS];
    double weight[PATTERNS + 1], sum[PATTERNS + 1];
    double mean;
    uint32_t bound[ENTRIES_MAX + 1];    /* cluster j: values [bound[j], bound[j + 1]) */
    double center[ENTRIES_MAX];
    /* dynamic programming over bins */
    uint32_t n_bins, bin[BINS_MAX + 1]; /* bin i begins at value bin[i] */
    double bin_weight[BINS_MAX + 1], bin_sum[BINS_MAX + 1];
    double best[2][BINS_MAX + 1];
    uint16_t from[ENTRIES_MAX][BINS_MAX + 1];
} clusters;

pome_status pome_palette_maker_init(pome_palette_maker *m, pome_error *err)
{
    *m = (pome_palette_maker){.count = calloc(PATTERNS, sizeof *m->count), .index_of = malloc(PATTERNS),
                              .table = malloc(ENTRIES_MAX * sizeof *m->table), .work = malloc(sizeof(clusters))};
    if (m->count && m->index_of && m->table && m->work)
        return POME_OK;
    pome_palette_maker_free(m);
    return pome_fail_nomem(err, sizeof(clusters), "a palette");
}

void pome_palette_maker_free(pome_palette_maker *m)
{
    free(m->count);
    free(m->index_of);
    free(m->table);
    free(m->work);
    *m = (pome_palette_maker){0};
}

void pome_palette_clear(pome_palette_maker *m)
{
    memset(m->count, 0, PATTERNS * sizeof *m->count);
}

void pome_palette_count(pome_palette_maker *m, const uint16_t *halves, size_t n)
{
    uint32_t *count = m->count;
    for (size_t i = 0; i < n; i++)
        count[halves[i]]++;
}

void pome_palette_merge(pome_palette_maker *m, const pome_palette_maker *from)
{
    for (size_t i = 0; i < PATTERNS; i++)
        m->count[i] += from->count[i];
}

void pome_palette_indices(const pome_palette_maker *m, uint8_t *out, const uint16_t *halves, size_t n)
{
    const uint8_t *index_of = m->index_of;
    for (size_t i = 0; i < n; i++)
        out[i] = index_of[halves[i]];
}

/* To the nearest half, ties to even, in one rounding: a float that is not exact is made odd first, so that it cannot lie
 * on a tie of halves. */
static uint16_t half_of_double(double d)
{
    float f = (float)d;
    if ((double)f != d) {
        uint32_t bits = pome_f32_bits(f);
        bits -= fabs((double)f) > fabs(d);
        f = pome_f32_from_bits(bits | 1u);
    }
    return pome_f32_to_f16(f);
}

/* ---- values in order ---- */

static void add_value(clusters *c, uint16_t half, uint32_t count)
{
    c->value[c->n] = pome_f16_to_f32(half);
    c->weight[c->n + 1] = (double)count; /* of this one; summed up below */
    c->n++;
}

static void gather_values(clusters *c, uint32_t *count)
{
    double total = 0, weighted = 0;
    count[0] += count[0x8000];
    count[0x8000] = 0;
    c->n = 0;
    for (uint32_t h = 0xfc00; h-- > 0x8000;)
        if (count[h])
            add_value(c, (uint16_t)h, count[h]);
    for (uint32_t h = 0; h < 0x7c00; h++)
        if (count[h])
            add_value(c, (uint16_t)h, count[h]);
    for (uint32_t i = 0; i < c->n; i++) {
        total += c->weight[i + 1];
        weighted += c->weight[i + 1] * (double)c->value[i];
    }
    c->mean = total > 0 ? weighted / total : 0;
    c->weight[0] = c->sum[0] = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        c->sum[i + 1] = c->sum[i] + c->weight[i + 1] * ((double)c->value[i] - c->mean);
        c->weight[i + 1] += c->weight[i];
    }
}

static uint16_t pattern_of(float value)
{
    return pome_f32_to_f16(value);
}

/* ---- uniform ---- */

static void make_uniform(pome_palette_maker *m, const clusters *c, uint32_t bits)
{
    float min = c->n ? c->value[0] : 0, max = c->n ? c->value[c->n - 1] : 0, top = (float)((1u << bits) - 1);
    float range = pome_f16_round(max - min), step = pome_f16_round(range / top);
    bool is_wide = !(range <= 65504.0f); /* beyond float16: without its roundings */
    if (is_wide) {
        range = max - min;
        step = range / top;
    }
    for (uint32_t i = 0; i < 1u << bits; i++)
        m->table[i] = half_of_double((double)i * (double)step + (double)min);
    for (uint32_t i = 0; i < c->n; i++) {
        float part = range > 0 ? (c->value[i] - min) / range : 0;
        if (!is_wide)
            part = range > 0 ? pome_f16_round(pome_f16_round(c->value[i] - min) / range) : 0;
        m->index_of[pattern_of(c->value[i])] = (uint8_t)rintf(is_wide ? part * top : pome_f16_round(part * top));
    }
}

/* ---- k-means ---- */

/* Where bins are cut: as dense as the entries of a good table are, the cube root of the density of values. The nearer
 * neighbour tells the density, so that the edges of a gap do not take what is due to the values within. */
static double share_of(const clusters *c, uint32_t i)
{
    double left = i ? (double)c->value[i] - (double)c->value[i - 1] : INFINITY;
    double right = i + 1 < c->n ? (double)c->value[i + 1] - (double)c->value[i] : left;
    double width = left < right ? left : right;
    return cbrt((c->weight[i + 1] - c->weight[i]) * width * width);
}

/* min(n_wanted, n) bins of about equal shares. */
static void cut_bins(clusters *c, uint32_t n_wanted)
{
    double left = 0, next = 0, done = 0;
    c->n_bins = 0;
    if (c->n > n_wanted)
        for (uint32_t i = 0; i < c->n; i++)
            left += share_of(c, i);
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t missing = n_wanted - c->n_bins;
        if (missing && (done >= next || c->n - i <= missing)) {
            c->bin[c->n_bins++] = i;
            next = done + (left - done) / missing;
        }
        done += c->n > n_wanted ? share_of(c, i) : 0;
    }
    c->bin[c->n_bins] = c->n;
    for (uint32_t i = 0; i <= c->n_bins; i++) {
        c->bin_weight[i] = c->weight[c->bin[i]];
        c->bin_sum[i] = c->sum[c->bin[i]];
    }
}

/* What a cluster of bins [from, to) takes off the squared error: sum^2 / weight. */
static inline double gain_of(const clusters *c, uint32_t from, uint32_t to)
{
    double sum = c->bin_sum[to] - c->bin_sum[from];
    return sum * sum / (c->bin_weight[to] - c->bin_weight[from]);
}

/* best[now][i] for i in [low, high]: bins [0, i) in j + 1 clusters, the last of which begins in [first, last]; the best
 * beginning grows with i, so halves of the range share out the beginnings. */
static void fill_best(clusters *c, uint32_t j, uint32_t low, uint32_t high, uint32_t first, uint32_t last)
{
    const double *before = c->best[(j + 1) & 1];
    uint32_t middle = low + (high - low) / 2, chosen = first > j ? first : j;
    double most = -1;
    for (uint32_t s = chosen; s <= last && s < middle; s++) {
        double gain = before[s] + gain_of(c, s, middle);
        if (gain > most) {
            most = gain;
            chosen = s;
        }
    }
    c->best[j & 1][middle] = most;
    c->from[j][middle] = (uint16_t)chosen;
    if (middle > low)
        fill_best(c, j, low, middle - 1, first, chosen);
    if (middle < high)
        fill_best(c, j, middle + 1, high, chosen, last);
}

static void divide_bins(clusters *c)
{
    for (uint32_t i = 1; i <= c->n_bins; i++)
        c->best[0][i] = gain_of(c, 0, i);
    for (uint32_t j = 1; j < c->k; j++)
        fill_best(c, j, j + 1, c->n_bins, j, c->n_bins - 1);
    uint32_t at = c->n_bins;
    for (uint32_t j = c->k; j-- > 0;) {
        c->bound[j + 1] = c->bin[at];
        at = j ? c->from[j][at] : 0;
    }
    c->bound[0] = 0;
}

/* Centers of the clusters; one without values keeps its old center. */
static void find_centers(clusters *c)
{
    for (uint32_t j = 0; j < c->k; j++) {
        double weight = c->weight[c->bound[j + 1]] - c->weight[c->bound[j]];
        if (weight > 0)
            c->center[j] = (c->sum[c->bound[j + 1]] - c->sum[c->bound[j]]) / weight;
    }
}

/* Lloyd's iteration; whether a bound moved. */
static bool move_bounds(clusters *c)
{
    bool moved = false;
    for (uint32_t j = 1; j < c->k; j++) {
        double middle = (c->center[j - 1] + c->center[j]) / 2 + c->mean;
        uint32_t at = c->bound[j];
        while (at > 0 && (double)c->value[at - 1] > middle)
            at--;
        while (at < c->n && (double)c->value[at] <= middle)
            at++;
        moved |= at != c->bound[j];
        c->bound[j] = at;
    }
    return moved;
}

/* Time is proportional to bins * entries: 0.3 ms for 16 entries and 1,024 bins. */
static uint32_t bins_for(const clusters *c)
{
    return c->k > 64 || c->weight[c->n] > 65536 ? BINS_MAX : BINS_MAX / 2;
}

/* Halves of the centers; each value takes the nearest of them. */
static void set_entries(pome_palette_maker *m, const clusters *c)
{
    double entry[ENTRIES_MAX];
    for (uint32_t j = 0; j < c->k; j++) {
        m->table[j] = half_of_double(c->center[j] + c->mean);
        entry[j] = (double)pome_f16_to_f32(m->table[j]);
    }
    uint32_t j = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        double v = (double)c->value[i];
        while (j + 1 < c->k && fabs(v - entry[j + 1]) < fabs(v - entry[j]))
            j++;
        m->index_of[pattern_of(c->value[i])] = (uint8_t)j;
    }
}

static void make_kmeans(pome_palette_maker *m, clusters *c, uint32_t bits)
{
    c->k = 1u << bits;
    memset(m->table, 0, c->k * sizeof *m->table);
    if (c->n <= c->k) {
        for (uint32_t i = 0; i < c->n; i++) {
            m->table[i] = pattern_of(c->value[i]);
            m->index_of[m->table[i]] = (uint8_t)i;
        }
        return;
    }
    cut_bins(c, bins_for(c));
    divide_bins(c);
    for (int step = 0; step < LLOYD_STEPS; step++) {
        find_centers(c);
        if (!move_bounds(c))
            break;
    }
    find_centers(c);
    set_entries(m, c);
}

void pome_palette_make(pome_palette_maker *m, uint32_t bits, pome_palette_mode mode)
{
    clusters *c = m->work;
    gather_values(c, m->count);
    if (mode == POME_PALETTE_UNIFORM)
        make_uniform(m, c, bits);
    else
        make_kmeans(m, c, bits);
    m->index_of[0x8000] = m->index_of[0];
}
