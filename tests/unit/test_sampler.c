/* The sampler against probabilities worked out here by definition, with libm and plain sorting. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pome/llm.h"

enum { N_MAX = 4096 };

static pome_sampler *make(pome_sampler_opts opts, int64_t n_vocab)
{
    pome_sampler *s = NULL;
    pome_error err = {0};
    opts.size = sizeof opts;
    assert_int_equal(pome_sampler_create(&s, &opts, n_vocab, &err), POME_OK);
    return s;
}

static pome_sampler_opts plain(float temperature)
{
    pome_sampler_opts o;
    pome_sampler_opts_default(&o);
    o.temperature = temperature;
    o.top_k = 0;
    o.top_p = 1.0f;
    return o;
}

/* ---- what the probabilities must be ---- */

static const float *sort_key;

static int by_logit(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    if (sort_key[x] != sort_key[y])
        return sort_key[x] < sort_key[y] ? 1 : -1;
    return x - y;
}

/* p[0..n): the distribution that the options define over finite logits. */
static void expect(const pome_sampler_opts *o, const float *logits, int n, double *p)
{
    int order[N_MAX], m = 0;
    double sum = 0, running = 0, first;
    for (int i = 0; i < n; i++) {
        p[i] = 0;
        if (isfinite(logits[i]))
            order[m++] = i;
    }
    sort_key = logits;
    qsort(order, (size_t)m, sizeof *order, by_logit);
    if (o->top_k > 0 && m > o->top_k)
        m = o->top_k;
    for (int i = 0; i < m; i++)
        sum += exp(((double)logits[order[i]] - (double)logits[order[0]]) / (double)o->temperature);
    first = 1.0 / sum;
    for (int i = 0; i < m && (o->top_p >= 1.0f || running < (double)o->top_p); i++) {
        double share = exp(((double)logits[order[i]] - (double)logits[order[0]]) / (double)o->temperature) / sum;
        running += share;
        if (share >= (double)o->min_p * first)
            p[order[i]] = share;
    }
    sum = 0;
    for (int i = 0; i < n; i++)
        sum += p[i];
    for (int i = 0; i < n; i++)
        p[i] /= sum;
}

/* Draws n_draws times and compares counts by chi-square. The bound is the mean of the distribution plus six
 * standard deviations; ids that must not come up may never do. */
static void check_distribution(pome_sampler_opts o, const float *logits, int n)
{
    enum { N_DRAWS = 40000 };
    static double p[N_MAX];
    static int count[N_MAX];
    pome_sampler *s = make(o, n);
    memset(count, 0, sizeof count);
    expect(&o, logits, n, p);
    for (int i = 0; i < N_DRAWS; i++) {
        int32_t id = pome_sampler_pick(s, logits, NULL, 0);
        assert_in_range(id, 0, n - 1);
        count[id]++;
    }
    pome_sampler_destroy(&s);
    double chi2 = 0, rest_p = 0, rest_n = 0;
    int n_cells = 0;
    for (int i = 0; i < n; i++) {
        if (p[i] == 0) {
            assert_int_equal(count[i], 0);
        } else if (p[i] * N_DRAWS < 10) { /* too rare for a cell of its own */
            rest_p += p[i];
            rest_n += count[i];
        } else {
            chi2 += (count[i] - p[i] * N_DRAWS) * (count[i] - p[i] * N_DRAWS) / (p[i] * N_DRAWS);
            n_cells++;
        }
    }
    if (rest_p * N_DRAWS >= 10) {
        chi2 += (rest_n - rest_p * N_DRAWS) * (rest_n - rest_p * N_DRAWS) / (rest_p * N_DRAWS);
        n_cells++;
    }
    if (n_cells > 1 && chi2 > (n_cells - 1) + 6 * sqrt(2.0 * (n_cells - 1)))
        fail_msg("chi-square %.1f over %d cells", chi2, n_cells);
}

static void fill_logits(float *logits, int n, uint32_t seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        logits[i] = (float)(seed >> 16) / 8192.0f - 4.0f;
    }
}

static void test_distributions(void **state)
{
    (void)state;
    static const struct {
        float temperature, top_p, min_p;
        int32_t top_k;
        int n;
    } cases[] = {
        {1.0f, 1.0f, 0.0f, 0, 8},     {0.7f, 1.0f, 0.0f, 0, 300},    {1.0f, 1.0f, 0.0f, 5, 300},
        {1.0f, 0.9f, 0.0f, 0, 300},   {1.0f, 0.5f, 0.0f, 20, 300},   {2.0f, 0.95f, 0.05f, 40, 2000},
        {1.0f, 1.0f, 0.2f, 0, 50},    {0.7f, 0.95f, 0.0f, 40, 4096}, {1.0f, 0.3f, 0.0f, 1, 10},
        {5.0f, 0.999f, 0.1f, 64, 64}, {0.01f, 1.0f, 0.0f, 0, 20},
    };
    static float logits[N_MAX];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pome_sampler_opts o = plain(cases[i].temperature);
        o.top_k = cases[i].top_k;
        o.top_p = cases[i].top_p;
        o.min_p = cases[i].min_p;
        o.seed = 1000 + i;
        fill_logits(logits, cases[i].n, (uint32_t)(i * 77 + 5));
        check_distribution(o, logits, cases[i].n);
    }
}

/* SplitMix64 with seed 1234567 gives 6457827717110365317, 3203168211198807973, 9817491932198370423,
 * 4593380528125082431, 16408922859458223821 (values published with the algorithm's implementations). */
static void test_generator_is_splitmix64(void **state)
{
    (void)state;
    static const uint64_t published[] = {6457827717110365317u, 3203168211198807973u, 9817491932198370423u,
                                         4593380528125082431u, 16408922859458223821u};
    float logits[16] = {0};
    pome_sampler_opts o = plain(1.0f);
    o.seed = 1234567;
    pome_sampler *s = make(o, 16);
    for (size_t i = 0; i < 5; i++) /* sixteen equal shares: the draw is the top four bits */
        assert_int_equal(pome_sampler_pick(s, logits, NULL, 0), (int)(published[i] >> 60));
    pome_sampler_destroy(&s);
}

/* The ids were worked out by the same rules in Python with its own exp(); no draw comes nearer than 6e-4 to a
 * border between two ids. */
static void test_seed_repeats_everywhere(void **state)
{
    (void)state;
    static const int32_t expected[] = {76, 19, 30, 30, 8,  90, 27, 79, 30, 60, 27, 49,
                                       49, 49, 60, 27, 19, 49, 16, 65, 95, 8,  60, 60};
    float logits[100];
    pome_sampler_opts o;
    pome_sampler_opts_default(&o);
    o.seed = 42;
    pome_sampler *s = make(o, 100);
    for (int i = 0; i < 100; i++)
        logits[i] = (float)((double)(i * 37 % 101) / 10 - 5);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_int_equal(pome_sampler_pick(s, logits, NULL, 0), expected[i]);
    pome_sampler_destroy(&s);
}

static void test_greedy(void **state)
{
    (void)state;
    float logits[6] = {1, 7, NAN, 7, INFINITY, -INFINITY};
    pome_sampler *s = make(plain(0.0f), 6);
    assert_int_equal(pome_sampler_pick(s, logits, NULL, 0), 1); /* the first of equals; only finite ones */
    for (int i = 0; i < 6; i++)
        logits[i] = i % 2 ? NAN : -INFINITY;
    assert_int_equal(pome_sampler_pick(s, logits, NULL, 0), -1);
    pome_sampler_destroy(&s);
}

static void test_not_finite(void **state)
{
    (void)state;
    float logits[6] = {NAN, 1, -INFINITY, INFINITY, 1, NAN};
    for (int32_t top_k = 0; top_k < 4; top_k++) {
        pome_sampler_opts o = plain(1.0f);
        o.top_k = top_k;
        o.top_p = 0.99f;
        pome_sampler *s = make(o, 6);
        for (int i = 0; i < 200; i++) {
            int32_t id = pome_sampler_pick(s, logits, NULL, 0);
            assert_true(id == 1 || id == 4);
        }
        float none[6] = {NAN, NAN, -INFINITY, INFINITY, NAN, NAN};
        assert_int_equal(pome_sampler_pick(s, none, NULL, 0), -1);
        pome_sampler_destroy(&s);
    }
}

/* Shares too small for a double must never be drawn, whatever the rounding of the last one. */
static void test_zero_shares(void **state)
{
    (void)state;
    float logits[3] = {0, -3.0e38f, -3.0e38f};
    pome_sampler *s = make(plain(1.0f), 3);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(pome_sampler_pick(s, logits, NULL, 0), 0);
    pome_sampler_destroy(&s);
}

static void test_repeat_penalty(void **state)
{
    (void)state;
    const float logits[4] = {4.0f, 3.9f, -1.0f, -1.1f};
    const int32_t history[] = {0, 0, 0, 9, -3}; /* ids outside the vocabulary are passed over */
    pome_sampler_opts o = plain(0.0f);
    o.repeat_penalty = 1.1f;
    pome_sampler *s = make(o, 4);
    assert_int_equal(pome_sampler_pick(s, logits, NULL, 0), 0);
    assert_int_equal(pome_sampler_pick(s, logits, history, 5), 1); /* 4 / 1.1 < 3.9, once however often it occurs */
    pome_sampler_destroy(&s);
    const float negative[2] = {-1.0f, -1.05f};
    s = make(o, 2);
    assert_int_equal(pome_sampler_pick(s, negative, history, 1), 1); /* -1 * 1.1 < -1.05 */
    pome_sampler_destroy(&s);
    o.repeat_penalty = 1.02f;
    s = make(o, 4);
    assert_int_equal(pome_sampler_pick(s, logits, history, 3), 0); /* 4 / 1.02 > 3.9; 4 / 1.02^3 would not be */
    pome_sampler_destroy(&s);
    o.repeat_penalty = 1.1f;
    o.repeat_last_n = 2;
    s = make(o, 4);
    assert_int_equal(pome_sampler_pick(s, logits, history, 5), 0); /* id 0 is older than the window */
    pome_sampler_destroy(&s);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        float temperature, top_p, min_p, penalty;
        int32_t top_k, last_n;
        int64_t n_vocab;
    } bad[] = {
        {-1, 1, 0, 1, 0, 64, 10},  {NAN, 1, 0, 1, 0, 64, 10}, {INFINITY, 1, 0, 1, 0, 64, 10}, {1, 0, 0, 1, 0, 64, 10},
        {1, 1.5f, 0, 1, 0, 64, 10}, {1, 1, -1, 1, 0, 64, 10}, {1, 1, 2, 1, 0, 64, 10},       {1, 1, 0, 0, 0, 64, 10},
        {1, 1, 0, 1, -1, 64, 10},  {1, 1, 0, 1, 0, -1, 10},   {1, 1, 0, 1, 0, 64, 0},        {1, 1, 0, 1, 0, 64, INT64_MAX},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        pome_sampler_opts o = plain(bad[i].temperature);
        pome_sampler *s = NULL;
        pome_error err = {0};
        o.top_p = bad[i].top_p;
        o.min_p = bad[i].min_p;
        o.repeat_penalty = bad[i].penalty;
        o.top_k = bad[i].top_k;
        o.repeat_last_n = bad[i].last_n;
        assert_int_equal(pome_sampler_create(&s, &o, bad[i].n_vocab, &err), POME_ERR_ARG);
        assert_null(s);
        assert_true(err.message[0] != '\0');
    }
    pome_sampler *none = NULL;
    pome_sampler_destroy(&none);
    pome_sampler_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_distributions),   cmocka_unit_test(test_generator_is_splitmix64),
        cmocka_unit_test(test_seed_repeats_everywhere), cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_not_finite),      cmocka_unit_test(test_zero_shares),
        cmocka_unit_test(test_repeat_penalty),  cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
