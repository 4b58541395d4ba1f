/* Every slot of the kernel table, at every level this machine has, against sums in double.
 *
 *     test_kernels [--level NAME] [--filter SLOT] [--seed N] [--bench]
 *
 * A level is tested where its pointer differs from the level below. Inputs end at a guard page or begin at any
 * alignment, outputs lie between canaries. Fixed promises of kernels.h are checked bit for bit: fused against decoded,
 * one row against many. */
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
static size_t random_size(size_t low, size_t high)
{
    return low + random_bits() % (high - low + 1);
}
static float random_float(void) /* (-1, 1) */
{
    return (float)((double)(random_bits() >> 11) * 0x1p-52 - 1);
}
/* Sizes at which loops change course. */
static size_t awkward_size(size_t max)
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
static void expect_near(float got, double want, double tolerance, size_t at)
{
    if (!(fabs(got - want) <= tolerance) && !(isnan(want) && isnan(got)) && (double)got != want)
        report("value", got, want, at);
}
static void expect_same(float got, float want, const char *what, size_t at)
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
static void *at_guard(int which, size_t n)
{
    return region[which] + region_size - n;
}
static float *floats(int which, size_t n) /* random */
{
    float *p = at_guard(which, n * sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = random_float();
    return p;
}
static uint16_t *halves(int which, size_t n)
{
    uint16_t *p = at_guard(which, n * sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = pome_f32_to_f16(random_float());
    return p;
}
static uint8_t *bytes(int which, size_t n)
{
    uint8_t *p = at_guard(which, n);
    for (size_t i = 0; i < n; i++)
        p[i] = (uint8_t)random_bits();
    return p;
}
/* An output with canaries on both sides; 4-byte aligned only. */
enum { CANARY = 64 };
static float *output(int which, size_t n)
{
    float *p = (float *)(void *)(region[which] + 4 * random_size(0, 15)) + CANARY;
    memset(p - CANARY, 0xa5, (n + 2 * CANARY) * sizeof *p);
    return p;
}
static void check_canaries(const float *p, size_t n)
{
    const unsigned char *before = (const unsigned char *)(p - CANARY), *after = (const unsigned char *)(p + n);
    for (size_t i = 0; i < CANARY * sizeof *p; i++)
        if (before[i] != 0xa5 || after[i] != 0xa5) {
            report("write outside", 0, 0, i);
            return;
        }
}

/* ---- slots ---- */

static void test_f16_to_f32(const pome_kernels *k)
{
    for (uint32_t base = 0; base < 0x10000; base += 0x1000) { /* every half */
        uint16_t *src = at_guard(0, 0x1000 * sizeof *src);
        float *dst = output(1, 0x1000);
        for (uint32_t i = 0; i < 0x1000; i++)
            src[i] = (uint16_t)(base + i);
        k->f16_to_f32(dst, src, 0x1000);
        check_canaries(dst, 0x1000);
        for (uint32_t i = 0; i < 0x1000; i++) {
            uint32_t e = (src[i] >> 10) & 31, m = src[i] & 0x3ff;
            double want = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024.0 + m, (int)e - 25) : ldexp(m, -24);
            expect_near(dst[i], src[i] >> 15 ? -want : want, 0, i);
        }
    }
    for (size_t n = 0; n < 40; n++) {
        uint16_t *src = halves(0, n);
        float *dst = output(1, n);
        k->f16_to_f32(dst, src, n);
        check_canaries(dst, n);
        for (size_t i = 0; i < n; i++)
            expect_same(dst[i], pome_f16_to_f32(src[i]), "value", i);
    }
}

/* Rounding to half in double: 11 bits, or units of 2^-24. */
static double half_of(double x)
{
    if (isnan(x) || isinf(x) || x == 0)
        return x;
    int e;
    frexp(x, &e);
    double unit = ldexp(1, e - 11 < -24 ? -24 : e - 11), r = nearbyint(x / unit) * unit;
    return fabs(r) > 65504 ? copysign(INFINITY, x) : r;
}

static void test_f32_to_f16(const pome_kernels *k)
{
    for (int round = 0; round < 300; round++) {
        size_t n = awkward_size(300);
        float *src = floats(0, n);
        float *dst = output(1, (n + 1) / 2);
        for (size_t i = 0; i < n; i++)
            src[i] = ldexpf(src[i], (int)random_size(0, 50) - 30);
        if (n > 4) {
            src[0] = 65519.99f, src[1] = 65520.0f, src[2] = -INFINITY, src[3] = NAN;
        }
        k->f32_to_f16((uint16_t *)(void *)dst, src, n);
        check_canaries(dst, (n + 1) / 2);
        for (size_t i = 0; i < n; i++)
            expect_near(pome_f16_to_f32(((uint16_t *)(void *)dst)[i]), half_of(src[i]), 0, i);
    }
}

static void test_f16_round(const pome_kernels *k)
{
    for (int round = 0; round < 300; round++) {
        size_t n = awkward_size(300);
        float *src = floats(0, n), *dst = output(1, n);
        for (size_t i = 0; i < n; i++)
            dst[i] = src[i] = ldexpf(src[i], (int)random_size(0, 50) - 30);
        k->f16_round(dst, n);
        check_canaries(dst, n);
        for (size_t i = 0; i < n; i++)
            expect_near(dst[i], half_of(src[i]), 0, i);
    }
}

static double dot_double(const float *a, const float *b, size_t n, double *magnitude)
{
    double sum = 0;
    *magnitude = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)a[i] * b[i];
        *magnitude += fabs((double)a[i] * b[i]);
    }
    return sum;
}
/* A chain of n/8 + 3 additions in fp32, each wrong by 2^-24 of what has been summed. */
static double dot_tolerance(double magnitude, size_t n)
{
    return magnitude * 0x1p-24 * (double)(n / 8 + 4);
}

static void test_dot_f32(const pome_kernels *k)
{
    for (int round = 0; round < 300; round++) {
        size_t n = awkward_size(3000);
        double magnitude, want;
        float *a = floats(0, n), *b = floats(1, n);
        want = dot_double(a, b, n, &magnitude);
        expect_near(k->dot_f32(a, b, n), want, dot_tolerance(magnitude, n), n);
    }
}

static void test_dot_f32_f16(const pome_kernels *k)
{
    for (int round = 0; round < 300; round++) {
        size_t n = awkward_size(3000);
        float *a = floats(0, n), *wide = at_guard(2, n * sizeof *wide);
        uint16_t *b = halves(1, n);
        for (size_t i = 0; i < n; i++)
            wide[i] = pome_f16_to_f32(b[i]);
        double magnitude, want = dot_double(a, wide, n, &magnitude);
        float got = k->dot_f32_f16(a, b, n);
        expect_near(got, want, dot_tolerance(magnitude, n), n);
        expect_same(got, k->dot_f32(a, wide, n), "not as dot_f32", n);
    }
}

static void test_axpy_f32(const pome_kernels *k)
{
    for (int round = 0; round < 300; round++) {
        size_t n = awkward_size(300);
        float *x = floats(0, n), *before = floats(1, n), *y = output(2, n), s = random_float();
        memcpy(y, before, n * sizeof *y);
        k->axpy_f32(y, s, x, n);
        check_canaries(y, n);
        for (size_t i = 0; i < n; i++)
            expect_near(y[i], before[i] + (double)s * x[i], 0x1p-22, i);
    }
}

static void test_axpy_f32_f16(const pome_kernels *k)
{
    for (int round = 0; round < 300; round++) {
        size_t n = awkward_size(300);
        uint16_t *x = halves(0, n);
        float *before = floats(1, n), *y = output(2, n), s = random_float();
        memcpy(y, before, n * sizeof *y);
        k->axpy_f32_f16(y, s, x, n);
        check_canaries(y, n);
        for (size_t i = 0; i < n; i++)
            expect_near(y[i], before[i] + (double)s * pome_f16_to_f32(x[i]), 0x1p-22, i);
    }
}

static void test_max_f32(const pome_kernels *k)
{
    for (int round = 0; round < 300; round++) {
        size_t n = awkward_size(300);
        float *x = floats(0, n), want = -INFINITY;
        if (n && random_bits() % 2)
            x[random_size(0, n - 1)] = random_bits() % 2 ? NAN : -INFINITY;
        for (size_t i = 0; i < n; i++)
            if (x[i] > want)
                want = x[i];
        expect_same(k->max_f32(x, n), want, "value", n);
    }
}

static void test_exp_sum_f32(const pome_kernels *k)
{
    for (int round = 0; round < 300; round++) {
        size_t n = awkward_size(300);
        float *x = output(0, n), *before = floats(1, n), max = random_float() * 4;
        double sum = 0;
        for (size_t i = 0; i < n; i++)
            x[i] = before[i] = max - fabsf(before[i]) * (random_bits() % 4 ? 20 : 120);
        if (n > 8)
            x[n - 1] = before[n - 1] = -INFINITY, x[1] = before[1] = -1e4f, x[2] = before[2] = max;
        float got = k->exp_sum_f32(x, max, n);
        check_canaries(x, n);
        for (size_t i = 0; i < n; i++) {
            double want = exp((double)(before[i] - max));
            expect_near(x[i], want, want * 0x1p-22 + 0x1p-149, i);
            sum += want;
        }
        expect_near(got, sum, sum * 0x1p-20 + (double)n * 0x1p-149, n);
    }
    float special[3] = {NAN, -INFINITY, 3};
    k->exp_sum_f32(special, 3, 3);
    expect_near(special[0], NAN, 0, 0);
    expect_same(special[1], 0, "exp(-inf)", 1);
    expect_same(special[2], 1, "exp(0)", 2);
}

typedef struct matrices {
    size_t m, n, k, lda, ldb, ldc;
    float *a, *b, *c, *start;
    bool add;
} matrices;

static matrices random_matrices(bool rows_by_rows)
{
    matrices x = {.m = random_size(0, 9), .n = random_size(0, 9), .k = awkward_size(1300)};
    if (random_bits() % 3 == 0)
        x.m = random_size(0, 60);
    if (random_bits() % 3 == 0)
        x.n = random_size(0, 150);
    x.add = random_bits() % 2;
    x.lda = x.k + random_size(0, 3);
    x.ldb = (rows_by_rows ? x.k : x.n) + random_size(0, 3);
    x.ldc = x.n + random_size(0, 3);
    x.a = floats(0, x.m ? (x.m - 1) * x.lda + x.k : 0);
    size_t rows = rows_by_rows ? x.n : x.k;
    x.b = floats(1, rows ? (rows - 1) * x.ldb + (rows_by_rows ? x.k : x.n) : 0);
    x.c = output(2, x.m * x.ldc);
    x.start = floats(3, x.m * x.ldc);
    memcpy(x.c, x.start, x.m * x.ldc * sizeof *x.c);
    return x;
}

static void check_matrices(const matrices *x, bool rows_by_rows)
{
    for (size_t i = 0; i < x->m; i++)
        for (size_t j = 0; j < x->ldc; j++) {
            if (j >= x->n) { /* between rows: not ours */
                expect_same(x->c[i * x->ldc + j], x->start[i * x->ldc + j], "write between rows", j);
                continue;
            }
            double sum = x->add ? (double)x->start[i * x->ldc + j] : 0, magnitude = fabs(sum);
            for (size_t p = 0; p < x->k; p++) {
                double term = (double)x->a[i * x->lda + p] *
                              (double)(rows_by_rows ? x->b[j * x->ldb + p] : x->b[p * x->ldb + j]);
                sum += term;
                magnitude += fabs(term);
            }
            double tolerance = rows_by_rows ? dot_tolerance(magnitude, x->k)
                                            : magnitude * 0x1p-24 * (2 * sqrt((double)x->k) + 4);
            expect_near(x->c[i * x->ldc + j], sum, tolerance, j);
        }
    check_canaries(x->c, x->m * x->ldc);
}

static void test_gemm_nt_f32(const pome_kernels *k)
{
    for (int round = 0; round < 150; round++) {
        matrices x = random_matrices(true);
        k->gemm_nt_f32(x.c, x.ldc, x.a, x.lda, x.b, x.ldb, x.m, x.n, x.k, x.add);
        check_matrices(&x, true);
        for (size_t i = 0; i < x.m; i++) /* each element alone */
            for (size_t j = 0; j < x.n; j++) {
                float alone = x.start[i * x.ldc + j];
                k->gemm_nt_f32(&alone, 1, x.a + i * x.lda, x.k, x.b + j * x.ldb, x.k, 1, 1, x.k, x.add);
                expect_same(x.c[i * x.ldc + j], alone, "not as alone", j);
                if (!x.add)
                    expect_same(alone, k->dot_f32(x.b + j * x.ldb, x.a + i * x.lda, x.k), "not as dot_f32", j);
            }
    }
}

static void test_gemm_nn_f32(const pome_kernels *k)
{
    for (int round = 0; round < 150; round++) {
        matrices x = random_matrices(false);
        k->gemm_nn_f32(x.c, x.ldc, x.a, x.lda, x.b, x.ldb, x.m, x.n, x.k, x.add);
        check_matrices(&x, false);
        for (size_t i = 0; i < x.m; i++) /* each row alone, and in two parts of k */
            for (size_t j = 0; j < x.n; j += 3) {
                float alone = x.start[i * x.ldc + j];
                size_t part = x.k / 2;
                k->gemm_nn_f32(&alone, 1, x.a + i * x.lda, x.lda, x.b + j, x.ldb, 1, 1, part, x.add);
                k->gemm_nn_f32(&alone, 1, x.a + i * x.lda + part, x.lda, x.b + part * x.ldb + j, x.ldb, 1, 1,
                               x.k - part, true);
                expect_same(x.c[i * x.ldc + j], alone, "not as alone", j);
            }
    }
}

static void test_gemv_f16(const pome_kernels *k)
{
    for (int round = 0; round < 150; round++) {
        size_t n = random_size(0, 20), len = awkward_size(1300), ldw = len + random_size(0, 3);
        float *x = floats(0, len), *y = output(2, n);
        uint16_t *w = halves(1, n ? (n - 1) * ldw + len : 0);
        k->gemv_f16(y, x, w, ldw, n, len);
        check_canaries(y, n);
        for (size_t j = 0; j < n; j++) {
            double sum = 0, magnitude = 0;
            for (size_t p = 0; p < len; p++) {
                double term = (double)x[p] * pome_f16_to_f32(w[j * ldw + p]);
                sum += term;
                magnitude += fabs(term);
            }
            expect_near(y[j], sum, dot_tolerance(magnitude, len), j);
            expect_same(y[j], k->dot_f32_f16(x, w + j * ldw, len), "not as dot_f32_f16", j);
        }
    }
}

static uint16_t *scales(int which, size_t n) /* now and then 0, negative, subnormal, large */
{
    uint16_t *s = halves(which, n);
    for (size_t i = 0; i < n; i++)
        if (random_bits() % 8 == 0)
            s[i] = (const uint16_t[]){0, 0x8000, 1, 0x03ff, 0x7000, 0xb001, 0x7c00}[random_bits() % 7];
    return s;
}
static double int4_value(const uint8_t *codes, size_t i, uint16_t scale)
{
    int code = codes[i / 2] >> (i % 2 * 4) & 15;
    return half_of((double)pome_f16_to_f32(scale) * (code > 7 ? code - 16 : code));
}
static double int8_value(const uint8_t *codes, size_t i, uint16_t scale)
{
    return half_of((double)pome_f16_to_f32(scale) * (int8_t)codes[i]);
}

static void check_decode_block(const pome_kernels *k, bool nibbles)
{
    for (int round = 0; round < 400; round++) {
        size_t n = awkward_size(600), block = 2 * random_size(1, 40);
        if (random_bits() % 2)
            block = 32;
        float *dst = output(2, n);
        uint8_t *codes = bytes(0, nibbles ? (n + 1) / 2 : n);
        uint16_t *scale = scales(1, (n + block - 1) / block);
        if (nibbles)
            k->decode_int4_block(dst, codes, scale, n, block);
        else
            k->decode_int8_block(dst, (const int8_t *)codes, scale, n, block);
        check_canaries(dst, n);
        for (size_t i = 0; i < n; i++)
            expect_same(dst[i], (float)(nibbles ? int4_value : int8_value)(codes, i, scale[i / block]), "value", i);
    }
}
static void test_decode_int4_block(const pome_kernels *k)
{
    check_decode_block(k, true);
}
static void test_decode_int8_block(const pome_kernels *k)
{
    check_decode_block(k, false);
}

static double uint4_shift_value(const uint8_t *codes, size_t i, uint16_t scale, uint16_t offset)
{
    double difference = (codes[i / 2] >> (i % 2 * 4) & 15) - (double)pome_f16_to_f32(offset);
    return half_of((double)pome_f16_to_f32(scale) * half_of(difference));
}

static void test_decode_uint4_shift_block(const pome_kernels *k)
{
    for (int round = 0; round < 400; round++) {
        size_t n = awkward_size(600), block = random_bits() % 2 ? 32 : 2 * random_size(1, 40);
        size_t n_scales = (n + block - 1) / block;
        float *dst = output(2, n);
        uint8_t *codes = bytes(0, (n + 1) / 2);
        uint16_t *scale = halves(1, n_scales), *offset = halves(3, n_scales);
        k->decode_uint4_shift_block(dst, codes, scale, offset, n, block);
        check_canaries(dst, n);
        for (size_t i = 0; i < n; i++)
            expect_same(dst[i], (float)uint4_shift_value(codes, i, scale[i / block], offset[i / block]), "value", i);
    }
}

static void test_gemv_uint4_shift_block(const pome_kernels *k)
{
    for (int round = 0; round < 150; round++) {
        size_t n = random_size(0, 14), block = 32 * random_size(1, 3), len = block * random_size(1, 20);
        size_t per_row = len / block;
        float *x = floats(0, len), *y = output(3, n), row[2048];
        uint8_t *codes = bytes(1, n * len / 2);
        uint16_t *scale = halves(2, n * per_row), *offset = halves(4, n * per_row);
        k->gemv_uint4_shift_block(y, x, codes, scale, offset, n, len, block);
        check_canaries(y, n);
        for (size_t j = 0; j < n; j++) {
            double sum = 0, magnitude = 0;
            for (size_t p = 0; p < len; p++) {
                size_t at = j * per_row + p / block;
                double w = uint4_shift_value(codes, j * len + p, scale[at], offset[at]);
                row[p] = (float)w;
                sum += x[p] * w;
                magnitude += fabs(x[p] * w);
            }
            expect_near(y[j], sum, dot_tolerance(magnitude, len), j);
            expect_same(y[j], k->dot_f32(x, row, len), "not as decoded", j);
        }
    }
}

static void check_gemv_block(const pome_kernels *k, bool nibbles)
{
    for (int round = 0; round < 150; round++) {
        size_t n = random_size(0, 14), block = 32 * random_size(1, 3), len = block * random_size(1, 20);
        if (random_bits() % 3 == 0)
            block = len;
        float *x = floats(0, len), *y = output(3, n), *row = at_guard(4, len * sizeof *row);
        uint8_t *codes = bytes(1, nibbles ? n * len / 2 : n * len);
        uint16_t *scale = halves(2, n * (len / block));
        if (nibbles)
            k->gemv_int4_block(y, x, codes, scale, n, len, block);
        else
            k->gemv_int8_block(y, x, (const int8_t *)codes, scale, n, len, block);
        check_canaries(y, n);
        for (size_t j = 0; j < n; j++) {
            double sum = 0, magnitude = 0;
            for (size_t p = 0; p < len; p++) {
                uint16_t s = scale[j * (len / block) + p / block];
                double w = (nibbles ? int4_value : int8_value)(codes, j * len + p, s);
                row[p] = (float)w;
                sum += x[p] * w;
                magnitude += fabs(x[p] * w);
            }
            expect_near(y[j], sum, dot_tolerance(magnitude, len), j);
            expect_same(y[j], k->dot_f32(x, row, len), "not as decoded", j);
        }
    }
}
static void test_gemv_int4_block(const pome_kernels *k)
{
    check_gemv_block(k, true);
}
static void test_gemv_int8_block(const pome_kernels *k)
{
    check_gemv_block(k, false);
}

static void test_decode_lut4(const pome_kernels *k)
{
    for (int round = 0; round < 300; round++) {
        size_t n = awkward_size(600);
        float *dst = output(2, n), *table = floats(1, 16);
        uint8_t *codes = bytes(0, (n + 1) / 2);
        k->decode_lut4(dst, codes, table, n);
        check_canaries(dst, n);
        for (size_t i = 0; i < n; i++)
            expect_same(dst[i], table[codes[i / 2] >> (i % 2 * 4) & 15], "value", i);
    }
}

/* ---- speed ---- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

enum { BENCH_K = 2048, BENCH_N = 2048, BENCH_M = 64 };
static void bench_gemv_int4_block(const pome_kernels *k)
{
    k->gemv_int4_block((float *)(void *)region[2], (float *)(void *)region[0], (uint8_t *)region[1],
                       (uint16_t *)(void *)region[3], BENCH_N, BENCH_K, 32);
}
static void bench_gemv_int8_block(const pome_kernels *k)
{
    k->gemv_int8_block((float *)(void *)region[2], (float *)(void *)region[0], (int8_t *)region[1],
                       (uint16_t *)(void *)region[3], BENCH_N, BENCH_K, 32);
}
static void bench_gemv_f16(const pome_kernels *k)
{
    k->gemv_f16((float *)(void *)region[2], (float *)(void *)region[0], (uint16_t *)(void *)region[1], BENCH_K, BENCH_N / 2,
                BENCH_K);
}
static void bench_gemm_nt_f32(const pome_kernels *k)
{
    k->gemm_nt_f32((float *)(void *)region[2], BENCH_M, (float *)(void *)region[0], BENCH_K, (float *)(void *)region[1], BENCH_K,
                   BENCH_M, BENCH_M, BENCH_K, false);
}
static void bench_gemm_nn_f32(const pome_kernels *k)
{
    k->gemm_nn_f32((float *)(void *)region[2], BENCH_M, (float *)(void *)region[0], BENCH_K, (float *)(void *)region[1], BENCH_M,
                   BENCH_M, BENCH_M, BENCH_K, false);
}
static void bench_decode_int4_block(const pome_kernels *k)
{
    for (int i = 0; i < 64; i++)
        k->decode_int4_block((float *)(void *)region[2], (uint8_t *)region[1], (uint16_t *)(void *)region[3], 32768, 32);
}
static void bench_decode_int8_block(const pome_kernels *k)
{
    for (int i = 0; i < 64; i++)
        k->decode_int8_block((float *)(void *)region[2], (int8_t *)region[1], (uint16_t *)(void *)region[3], 32768, 32);
}
static void bench_decode_lut4(const pome_kernels *k)
{
    for (int i = 0; i < 64; i++)
        k->decode_lut4((float *)(void *)region[2], (uint8_t *)region[1], (float *)(void *)region[3], 32768);
}
static void bench_exp_sum_f32(const pome_kernels *k)
{
    for (int i = 0; i < 64; i++) {
        memset(region[2], 0, 32768 * sizeof(float));
        k->exp_sum_f32((float *)(void *)region[2], 0, 32768);
    }
}

typedef struct slot {
    const char *name;
    size_t offset; /* of the pointer in the table */
    void (*test)(const pome_kernels *k);
    void (*bench)(const pome_kernels *k);
    double amount; /* of one bench call, in 1e9 */
    const char *unit;
} slot;

#define ROW(field) #field, offsetof(pome_kernels, field), test_##field
static const slot slots[] = {
    {ROW(f16_to_f32), NULL, 0, NULL},
    {ROW(f32_to_f16), NULL, 0, NULL},
    {ROW(f16_round), NULL, 0, NULL},
    {ROW(dot_f32), NULL, 0, NULL},
    {ROW(dot_f32_f16), NULL, 0, NULL},
    {ROW(axpy_f32), NULL, 0, NULL},
    {ROW(axpy_f32_f16), NULL, 0, NULL},
    {ROW(max_f32), NULL, 0, NULL},
    {ROW(exp_sum_f32), bench_exp_sum_f32, 64 * 32768e-9, "G elements/s"},
    {ROW(gemm_nt_f32), bench_gemm_nt_f32, 2e-9 * BENCH_M * BENCH_M * BENCH_K, "GFLOP/s"},
    {ROW(gemm_nn_f32), bench_gemm_nn_f32, 2e-9 * BENCH_M * BENCH_M * BENCH_K, "GFLOP/s"},
    {ROW(gemv_f16), bench_gemv_f16, 1e-9 * BENCH_K * BENCH_N, "GB/s of weights"},
    {ROW(gemv_int4_block), bench_gemv_int4_block, 1e-9 * BENCH_K * BENCH_N * (0.5 + 2.0 / 32), "GB/s of weights"},
    {ROW(gemv_int8_block), bench_gemv_int8_block, 1e-9 * BENCH_K * BENCH_N * (1 + 2.0 / 32), "GB/s of weights"},
    {ROW(gemv_uint4_shift_block), NULL, 0, NULL},
    {ROW(decode_uint4_shift_block), NULL, 0, NULL},
    {ROW(decode_int4_block), bench_decode_int4_block, 64 * 32768e-9, "G elements/s"},
    {ROW(decode_int8_block), bench_decode_int8_block, 64 * 32768e-9, "G elements/s"},
    {ROW(decode_lut4), bench_decode_lut4, 64 * 32768e-9, "G elements/s"},
};

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

int main(int argc, char **argv)
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
        if (!pome_cpu_level_available((pome_cpu_level)level))
            continue;
        pome_kernels_init(&k, (pome_cpu_level)level);
        level_name = pome_cpu_level_name((pome_cpu_level)level);
        for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
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
