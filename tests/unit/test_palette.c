/* Palettes against the optimum, found by trying every end of every cluster; corner cases; counting in parts. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/f16.h"
#include "convert/palette.h"

enum { N_MAX = 700 };

static uint32_t seed = 1;
static double uniform(void) /* (0, 1) */
{
    seed = seed * 1664525u + 1013904223u;
    return ((double)(seed >> 8) + 0.5) / 16777216.0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The least squared error of k clusters of the sorted x[n]. */
static double optimum(const double *x, int n, int k)
{
    static double best[64][N_MAX + 1], cost[N_MAX + 1][N_MAX + 1];
    for (int i = 0; i < n; i++) {
        double mean = 0, sum = 0;
        for (int j = i; j < n; j++) { /* Welford */
            double d = x[j] - mean;
            mean += d / (j - i + 1);
            sum += d * (x[j] - mean);
            cost[i][j + 1] = sum;
        }
    }
    for (int j = 0; j < k; j++)
        for (int end = 1; end <= n; end++) {
            best[j][end] = cost[0][end];
            for (int begin = 1; j > 0 && begin < end; begin++)
                if (best[j - 1][begin] + cost[begin][end] < best[j][end])
                    best[j][end] = best[j - 1][begin] + cost[begin][end];
        }
    return best[k - 1][n];
}

static double error_of(const pome_palette_maker *m, const uint16_t *halves, int n, uint32_t bits)
{
    uint8_t index[N_MAX];
    double sum = 0;
    pome_palette_indices(m, index, halves, (size_t)n);
    for (int i = 0; i < n; i++) {
        assert_true(index[i] < 1u << bits);
        double d = (double)pome_f16_to_f32(halves[i]) - (double)pome_f16_to_f32(m->table[index[i]]);
        sum += d * d;
    }
    return sum;
}

static void test_kmeans(void **state)
{
    pome_palette_maker m;
    (void)state;
    assert_int_equal(pome_palette_maker_init(&m, NULL), POME_OK);
    for (int kind = 0; kind < 4; kind++)
        for (uint32_t bits = 1; bits <= 6; bits++) {
            uint16_t halves[N_MAX];
            double x[N_MAX];
            for (int i = 0; i < N_MAX; i++) {
                double u = sqrt(-2 * log(uniform())) * cos(6.283185307 * uniform());
                u = kind == 1 ? u * exp(2 * u) : kind == 2 ? uniform() : kind == 3 ? floor(u * 4) + 0.01 * uniform() : u;
                halves[i] = pome_f32_to_f16((float)(u * 0.05));
                x[i] = (double)pome_f16_to_f32(halves[i]);
            }
            qsort(x, N_MAX, sizeof *x, by_value);
            pome_palette_clear(&m);
            pome_palette_count(&m, halves, N_MAX);
            pome_palette_make(&m, bits, POME_PALETTE_KMEANS);
            double got = error_of(&m, halves, N_MAX, bits), least = optimum(x, N_MAX, 1 << bits);
            /* entries are halves: up to 2^-14 off for values around 1/4 */
            assert_true(got >= least * 0.999999 && got <= least * 1.002 + N_MAX * 0x1p-29);
        }
    pome_palette_maker_free(&m);
}

static void test_few_values(void **state)
{
    const uint16_t halves[] = {0x3c00, 0xbc00, 0x0000, 0x8000, 0x0001, 0x7bff, 0xfbff, 0x3c00};
    pome_palette_maker m;
    uint8_t index[8];
    (void)state;
    assert_int_equal(pome_palette_maker_init(&m, NULL), POME_OK);
    for (uint32_t bits = 3; bits <= 8; bits++) {
        pome_palette_clear(&m);
        pome_palette_count(&m, halves, 8);
        pome_palette_make(&m, bits, POME_PALETTE_KMEANS);
        pome_palette_indices(&m, index, halves, 8);
        for (int i = 0; i < 8; i++)
            assert_true(m.table[index[i]] == halves[i] || (halves[i] == 0x8000 && m.table[index[i]] == 0));
        for (uint32_t i = 6; i < 1u << bits; i++)
            assert_int_equal(m.table[i], 0);
    }
    pome_palette_maker_free(&m);
}

static void test_constant(void **state)
{
    const uint16_t halves[3] = {0x3555, 0x3555, 0x3555};
    pome_palette_maker m;
    uint8_t index[3];
    (void)state;
    assert_int_equal(pome_palette_maker_init(&m, NULL), POME_OK);
    for (int mode = 0; mode < 2; mode++) {
        pome_palette_clear(&m);
        pome_palette_count(&m, halves, 3);
        pome_palette_make(&m, 4, (pome_palette_mode)mode);
        pome_palette_indices(&m, index, halves, 3);
        assert_int_equal(m.table[index[2]], 0x3555);
    }
    pome_palette_maker_free(&m);
}

/* A difference beyond the largest half: no infinities, all entries in order. */
static void test_uniform_wide(void **state)
{
    const uint16_t halves[3] = {0xfbff, 0x3c00, 0x7bff};
    pome_palette_maker m;
    uint8_t index[3];
    (void)state;
    assert_int_equal(pome_palette_maker_init(&m, NULL), POME_OK);
    pome_palette_count(&m, halves, 3);
    pome_palette_make(&m, 2, POME_PALETTE_UNIFORM);
    pome_palette_indices(&m, index, halves, 3);
    assert_int_equal(index[0], 0);
    assert_int_equal(index[1], 2); /* 1 is nearer to a third of the largest above zero */
    assert_int_equal(index[2], 3);
    const float want[4] = {-65504, -65504.0f / 3, 65504.0f / 3, 65504};
    for (int i = 0; i < 4; i++)
        assert_int_equal(m.table[i], pome_f32_to_f16(want[i]));
    pome_palette_maker_free(&m);
}

static void test_merge(void **state)
{
    pome_palette_maker whole, a, b;
    uint16_t halves[600];
    (void)state;
    assert_int_equal(pome_palette_maker_init(&whole, NULL), POME_OK);
    assert_int_equal(pome_palette_maker_init(&a, NULL), POME_OK);
    assert_int_equal(pome_palette_maker_init(&b, NULL), POME_OK);
    for (int i = 0; i < 600; i++)
        halves[i] = pome_f32_to_f16((float)(uniform() - 0.5));
    pome_palette_count(&whole, halves, 600);
    pome_palette_count(&a, halves, 211);
    pome_palette_count(&b, halves + 211, 389);
    pome_palette_merge(&a, &b);
    pome_palette_make(&whole, 4, POME_PALETTE_KMEANS);
    pome_palette_make(&a, 4, POME_PALETTE_KMEANS);
    assert_memory_equal(whole.table, a.table, 32);
    for (int i = 0; i < 600; i++)
        assert_int_equal(whole.index_of[halves[i]], a.index_of[halves[i]]);
    pome_palette_maker_free(&whole);
    pome_palette_maker_free(&a);
    pome_palette_maker_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kmeans),       cmocka_unit_test(test_few_values), cmocka_unit_test(test_constant),
        cmocka_unit_test(test_uniform_wide), cmocka_unit_test(test_merge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
