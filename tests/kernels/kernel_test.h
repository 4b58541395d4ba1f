/* What the tests of kernels share: random inputs, guarded memory, the walk over levels.
 *
 *     test_* [--level NAME] [--filter SLOT] [--seed N] [--bench]
 *
 * A level is tested where its pointer differs from the level below. Inputs end at a guard page or begin at any
 * alignment, outputs lie between canaries. */
#ifndef POME_TESTS_KERNEL_TEST_H
#define POME_TESTS_KERNEL_TEST_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/f16.h"
#include "kernels/kernels.h"

static uint64_t state = 88172645463325252u;
static int n_failed;
static const char *slot_name, *level_name;

static uint64_t random_bits(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}
static inline size_t random_size(size_t low, size_t high)
{
    return low + random_bits() % (high - low + 1);
}
static inline float random_float(void) /* (-1, 1) */
{
    return (float)((double)(random_bits() >> 11) * 0x1p-52 - 1);
}
/* Sizes at which loops change course. */
static inline size_t awkward_size(size_t max)
{
    static const size_t edge[] = {0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 511, 512, 513, 1025};
    size_t n = random_bits() % 3 ? edge[random_bits() % (sizeof edge / sizeof *edge)] : random_size(0, max);
    return n > max ? max : n;
}

static void report(const char *what, double got, double want, size_t at)
{
    if (n_failed++ < 20)
        fprintf(stderr, "%s %s: %s at %zu: got %.9g, want %.9g\n", level_name, slot_name, what, at, got, want);
}
static inline void expect_near(float got, double want, double tolerance, size_t at)
{
    if (!(fabs(got - want) <= tolerance) && !(isnan(want) && isnan(got)) && (double)got != want)
        report("value", got, want, at);
}
static inline void expect_same(float got, float want, const char *what, size_t at)
{
    if (pome_f32_bits(got) != pome_f32_bits(want) && !(isnan(got) && isnan(want)))
        report(what, got, want, at);
}

/* ---- memory with a guard page behind it ---- */

enum { N_REGIONS = 6 };
static const size_t region_size = (size_t)8 << 20;
static char *region[N_REGIONS];

static void make_regions(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < N_REGIONS; i++) {
        region[i] = mmap(NULL, region_size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (region[i] == MAP_FAILED || mprotect(region[i] + region_size, page, PROT_NONE) != 0) {
            perror("mmap");
            exit(2);
        }
    }
}
/* n bytes that end at the guard page, aligned to no more than `align`. */
static inline void *at_guard(int which, size_t n)
{
    return region[which] + region_size - n;
}
static inline float *floats(int which, size_t n) /* random */
{
    float *p = at_guard(which, n * sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = random_float();
    return p;
}
static inline uint16_t *halves(int which, size_t n)
{
    uint16_t *p = at_guard(which, n * sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = pome_f32_to_f16(random_float());
    return p;
}
static inline uint8_t *bytes(int which, size_t n)
{
    uint8_t *p = at_guard(which, n);
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)random_bits();
    return p;
}
/* An output with canaries on both sides; 4-byte aligned only. */
enum { CANARY = 64 };
static inline float *output(int which, size_t n)
{
    float *p = (float *)(void *)(region[which] + 4 * random_size(0, 15)) + CANARY;
    memset(p - CANARY, 0xa5, (n + 2 * CANARY) * sizeof *p);
    return p;
}
static inline void check_canaries(const float *p, size_t n)
{
    const unsigned char *before = (const unsigned char *)(p - CANARY), *after = (const unsigned char *)(p + n);
    for (size_t i = 0; i < CANARY * sizeof *p; i++)
        if (before[i] != 0xa5 || after[i] != 0xa5) {
            report("write outside", 0, 0, i);
            return;
        }
}

/* ---- the walk ---- */

typedef struct slot {
    const char *name;
    size_t offset; /* of the pointer in the table */
    void (*test)(const pome_kernels *k);
    void (*bench)(const pome_kernels *k);
    double amount; /* of one bench call, in 1e9 */
    const char *unit;
} slot;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void run_bench(const slot *s, const pome_kernels *k)
{
    double best = 1e9;
    memset(region[0], 0, region_size);
    memset(region[1], 0x39, region_size);
    memset(region[3], 0x39, region_size);
    for (double end = now() + 0.4; now() < end;) {
        double start = now();
        s->bench(k);
        double took = now() - start;
        best = took < best ? took : best;
    }
    printf("%-10s %-20s %8.2f %s\n", level_name, s->name, s->amount / best, s->unit);
}

static const void *pointer_at(const pome_kernels *k, const slot *s)
{
    const void *p;
    memcpy(&p, (const char *)k + s->offset, sizeof p);
    return p;
}

/* Built with kernels in emulation (emulate_avx512.h): levels that this machine may lack. */
static bool level_available(pome_cpu_level level)
{
#ifdef POME_EMULATED
    return level <= POME_CPU_AMX && pome_cpu_level_available(POME_CPU_AVX2);
#else
    return pome_cpu_level_available(level);
#endif
}

static int kernel_test_main(int argc, char **argv, const slot *slots, size_t n_slots)
{
    const char *only_level = NULL, *filter = "";
    bool bench = false;
    pome_kernels below = {0}, k;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--bench") == 0)
            bench = true;
        else if (i + 1 < argc && strcmp(argv[i], "--level") == 0)
            only_level = argv[++i];
        else if (i + 1 < argc && strcmp(argv[i], "--filter") == 0)
            filter = argv[++i];
        else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0)
            state = strtoull(argv[++i], NULL, 0) * 2 + 1;
        else
            return fprintf(stderr, "unknown option %s\n", argv[i]), 2;
    }
    printf("seed %llu\n", (unsigned long long)(state / 2));
    make_regions();
    int n_run = 0;
    for (int level = 0; level < POME_CPU_COUNT; level++) {
        if (!level_available((pome_cpu_level)level))
            continue;
        pome_kernels_init(&k, (pome_cpu_level)level);
        level_name = pome_cpu_level_name((pome_cpu_level)level);
        for (size_t i = 0; i < n_slots; i++) {
            bool is_new = pointer_at(&k, &slots[i]) != pointer_at(&below, &slots[i]);
            if (!is_new || !strstr(slots[i].name, filter) || (only_level && strcmp(level_name, only_level) != 0))
                continue;
            slot_name = slots[i].name;
            n_run++;
            if (!bench)
                slots[i].test(&k);
            else if (slots[i].bench)
                run_bench(&slots[i], &k);
        }
        below = k;
    }
    printf("%d kernels, %d failures\n", n_run, n_failed);
    return n_failed || !n_run;
}

#endif
