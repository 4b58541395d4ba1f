/* Products with int8 activations, at every level, against sums in double of what kernels.h defines. */
#include "kernel_test.h"

enum { BLOCK = POME_Q8_BLOCK, MAX_K = 32 * 80, MAX_M = 40 };


static char *q8_memory, *scratch_memory;

static bool is_dense(pome_codes codes)
{
    return codes == POME_CODES_F16 || codes == POME_CODES_F32;
}

static double weight_at(pome_codes codes, const pome_coded_rows *w, size_t j, size_t p)
{
    const uint8_t *bytes_of = (const uint8_t *)w->codes;
    size_t at = j * w->k + p, entry = j * (w->k / w->block) + p / w->block;
    if (is_dense(codes))
        return codes == POME_CODES_F16 ? pome_f16_to_f32(((const uint16_t *)w->codes)[at]) : ((const float *)w->codes)[at];
    size_t bits = pome_codes_bits(codes);
    int code = 0;
    for (size_t i = 0; i < bits; i++)
        code |= (bytes_of[(at * bits + i) / 8] >> (at * bits + i) % 8 & 1) << i;
    if (pome_codes_are_palette(codes))
        return pome_f16_to_f32(w->table_f16[code]);
    if (codes == POME_CODES_I4)
        code -= (code & 8) * 2;
    if (codes == POME_CODES_I8)
        code -= (code & 128) * 2;
    return pome_f16_to_f32(w->scale_f16[entry]) * (code - (w->offset_f16 ? pome_f16_to_f32(w->offset_f16[entry]) : 0.0));
}

/* Magnitudes that the fp32 arithmetic passes through: with an offset, two large numbers are subtracted. */
static double magnitude_at(pome_codes codes, const pome_coded_rows *w, size_t j, size_t p)
{
    size_t entry = j * (w->k / w->block) + p / w->block;
    double value = fabs(weight_at(codes, w, j, p));
    if (w->offset_f16)
        value += 2 * fabs(pome_f16_to_f32(w->scale_f16[entry]) * (double)pome_f16_to_f32(w->offset_f16[entry]));
    return value;
}

static pome_coded_rows random_rows_of(pome_codes codes, size_t n, size_t k, size_t block)
{
    pome_coded_rows w = {.k = k, .block = block};
    size_t n_scales = n * (w.k / w.block);
    if (is_dense(codes)) {
        w.codes = codes == POME_CODES_F16 ? (const void *)halves(0, n * k) : (const void *)floats(0, n * k);
        return w;
    }
    w.codes = bytes(0, n * pome_codes_bytes(codes, w.k));
    if (pome_codes_are_palette(codes)) {
        w.table_f16 = halves(1, (size_t)1 << pome_codes_bits(codes));
        return w;
    }
    w.scale_f16 = halves(1, n_scales);
    if ((codes == POME_CODES_U4 || codes == POME_CODES_U8) && random_bits() % 4) {
        uint16_t *offset = at_guard(2, n_scales * sizeof *offset);
        for (size_t i = 0; i < n_scales; i++)
            offset[i] = pome_f32_to_f16(random_bits() % 2 ? (float)random_size(0, 15) : 8 * random_float());
        w.offset_f16 = offset;
    }
    return w;
}

static pome_coded_rows random_rows(pome_codes codes, size_t n, size_t max_k)
{
    size_t block = 32 * random_size(1, 4), k = block * random_size(1, max_k / block);
    return random_rows_of(codes, n, k, random_bits() % 3 == 0 ? k : block);
}

/* Codes times a power of two, with 127 twice in each block: their int8 form is known and exact. */
static void exact_activations(float *x, size_t ldx, size_t m, size_t k)
{
    for (size_t i = 0; i < m; i++)
        for (size_t b = 0; b < k; b += BLOCK) {
            float unit = ldexpf(1, (int)random_size(0, 12) - 8);
            for (size_t p = 0; p < BLOCK; p++)
                x[i * ldx + b + p] = unit * (float)((int)random_size(0, 254) - 127);
            size_t at = random_size(0, BLOCK - 1);
            x[i * ldx + b + at] = random_bits() % 2 ? 127 * unit : -127 * unit;
            x[i * ldx + b + (at ^ 1)] = random_bits() % 2 ? 127 * unit : -127 * unit;
            if (random_bits() % 16 == 0)
                memset(x + i * ldx + b, 0, BLOCK * sizeof *x);
        }
}

static void set_all(const pome_kernels *k, pome_codes codes, const float *x, size_t ldx, size_t m, size_t n_k)
{
    memset(q8_memory, 0x7f, k->coded[codes].q8_size(m, n_k) + 64);
    for (size_t first = 0; first < m;) { /* in pieces */
        size_t n = random_bits() % 2 ? m - first : POME_Q8_GROUP * random_size(1, 2);
        n = n > m - first ? m - first : n;
        k->coded[codes].q8_set(q8_memory, m, n_k, first, n, x + first * ldx, ldx);
        first += n;
    }
}

static double max_of(const float *x)
{
    double max = 0;
    for (size_t p = 0; p < BLOCK; p++)
        max = fabs(x[p]) > max ? fabs(x[p]) : max; /* gcc 12 for AArch64 fails on fmax here */
    return max;
}

static void check_products(const pome_kernels *k, pome_codes codes, const pome_coded_rows *w, const float *x, size_t ldx,
                           size_t m, const float *y, size_t ldy, size_t n, bool exact)
{
    double table_max = 0;
    (void)k;
    for (size_t i = 0; pome_codes_are_palette(codes) && i < (size_t)1 << pome_codes_bits(codes); i++)
        table_max = fmax(table_max, fabs(pome_f16_to_f32(w->table_f16[i])));
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            double sum = 0, magnitude = 0, rounding = 0, sum_x = 0;
            for (size_t p = 0; p < w->k; p++) {
                double v = weight_at(codes, w, j, p);
                sum += v * x[i * ldx + p];
                sum_x += fabs(x[i * ldx + p]);
                magnitude += magnitude_at(codes, w, j, p) * fabs(x[i * ldx + p]);
                if (is_dense(codes)) /* exact activations and halves are sums of two bf16; else roundings and the low parts' product */
                    rounding += fabs(v * x[i * ldx + p]) * (!exact ? 0x1p-15 : codes == POME_CODES_F16 ? 0 : 0x1p-17);
                else if (!exact) /* half a code of the block */
                    rounding += fabs(v) * max_of(x + i * ldx + p / BLOCK * BLOCK) / 127 * 0.5001;
            }
            double tolerance = magnitude * 0x1p-24 * (double)((is_dense(codes) ? 3 : 1) * (w->k / BLOCK) + (is_dense(codes) ? 20 : 4)) + rounding +
                               table_max / 32767 * 0.5001 * sum_x * (exact ? 1 : 1.01);
            expect_near(y[i * ldy + j], sum, tolerance, i * n + j);
        }
}

/* Each row of activations alone, with the weights from a random row on: the same bits. */
static void check_alone(const pome_kernels *k, pome_codes codes, const pome_coded_rows *w, const float *x, size_t ldx, size_t m,
                        const float *y, size_t ldy, size_t n)
{
    float *one = output(5, n + 1);
    for (size_t i = 0; i < m && i < 9; i++) {
        size_t from = random_size(0, n);
        pome_coded_rows part = *w;
        part.codes = (const uint8_t *)w->codes + from * pome_codes_bytes(codes, w->k);
        part.scale_f16 = w->scale_f16 ? w->scale_f16 + from * (w->k / w->block) : NULL;
        part.offset_f16 = w->offset_f16 ? w->offset_f16 + from * (w->k / w->block) : NULL;
        k->coded[codes].q8_set(q8_memory, 1, w->k, 0, 1, x + i * ldx, ldx);
        k->coded[codes].times(one, n - from, q8_memory, 1, &part, n - from, scratch_memory);
        check_canaries(one, n + 1);
        for (size_t j = from; j < n; j++)
            expect_same(one[j - from], y[i * ldy + j], "not as alone", i * n + j);
    }
}

static void check_times(const pome_kernels *k, pome_codes codes, const pome_coded_rows *w, size_t m, size_t n, bool exact)
{
    size_t ldx = w->k + random_size(0, 5), ldy = n + random_size(0, 3);
    float *x = at_guard(3, ((m - 1) * ldx + w->k) * sizeof *x), *y = output(4, m * ldy + 1);
    if (exact)
        exact_activations(x, ldx, m, w->k);
    else
        for (size_t i = 0; i < m; i++)
            for (size_t p = 0; p < w->k; p++)
                x[i * ldx + p] = random_float() * random_float();
    set_all(k, codes, x, ldx, m, w->k);
    k->coded[codes].times(y, ldy, q8_memory, m, w, n, scratch_memory);
    check_canaries(y, m * ldy + 1);
    check_products(k, codes, w, x, ldx, m, y, ldy, n, exact);
    check_alone(k, codes, w, x, ldx, m, y, ldy, n);
}

static void check_slot(const pome_kernels *k, pome_codes codes)
{
    for (int round = 0; round < 48; round++) {
        size_t m = round % 3 == 0 ? 1 : random_size(1, MAX_M), n = random_size(0, 40);
        pome_coded_rows w = random_rows(codes, n, m > 8 ? 32 * 20 : MAX_K);
        check_times(k, codes, &w, m, n, random_bits() % 4 != 0);
    }
}

/* Levels have loops of their own for a few rows of activations, and read long rows of weights in another order: all
 * numbers up to 9, all rests of 8 and of 16 rows of weights, even and odd numbers of blocks. */
static void check_few(const pome_kernels *k, pome_codes codes)
{
    for (size_t m = 1; m <= 9; m++)
        for (size_t n = 1; n <= 33; n += n < 16 ? 1 : 3 + m % 2) {
            size_t k_of = 32 * (n % 4 == 3 ? random_size(1, 20) : (pome_codes_bits(codes) < 8 ? 38 : 19) + random_size(0, 3));
            size_t blocks = k_of / 32 % 3 == 0 && m % 2 ? 3 : 1;
            pome_coded_rows w = random_rows_of(codes, n, k_of, m % 4 == 3 ? k_of : 32 * blocks);
            check_times(k, codes, &w, m, n, true);
        }
}

/* Nothing that is not finite may come out finite, and nothing else may be touched by it. */
static void check_not_finite(const pome_kernels *k, pome_codes codes)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t round = 0; round < 12; round++) {
        size_t m = round % 2 ? 1 : 5, n = 19;
        pome_coded_rows w = random_rows(codes, n, 256);
        float *x = at_guard(3, m * w.k * sizeof *x), *y = output(4, m * n);
        exact_activations(x, w.k, m, w.k);
        x[(m - 1) * w.k + random_size(0, w.k - 1)] = bad[round % 3];
        set_all(k, codes, x, w.k, m, w.k);
        k->coded[codes].times(y, n, q8_memory, m, &w, n, scratch_memory);
        for (size_t i = 0; i < m * n; i++)
            if (isfinite(y[i]) != (i / n != m - 1))
                report("finite", y[i], 0, i);
        exact_activations(x, w.k, m, w.k);
        x[w.k - 1] = 0x1p-140f; /* beside nothing, or beside 127: it vanishes */
        if (codes == POME_CODES_F16)
            ((uint16_t *)(uintptr_t)w.codes)[0] = round % 2 ? 0x7e00 : 0x7c00;
        else if (codes == POME_CODES_F32)
            ((float *)(uintptr_t)w.codes)[0] = bad[round % 3];
        else if (w.table_f16)
            ((uint16_t *)(uintptr_t)w.table_f16)[random_size(0, ((size_t)1 << pome_codes_bits(codes)) - 1)] = round % 2 ? 0x7e00 : 0x7c00;
        else
            ((uint16_t *)(uintptr_t)w.scale_f16)[0] = round % 2 ? 0x7e00 : 0x7c00;
        set_all(k, codes, x, w.k, m, w.k);
        k->coded[codes].times(y, n, q8_memory, m, &w, n, scratch_memory);
        for (size_t i = 0; i < m * n; i++)
            if (isfinite(y[i]) && (w.table_f16 || i % n == 0) && max_of(x + i / n * w.k) > 0)
                report("finite with such a scale", y[i], 0, i);
    }
}

/* Whether an element that is far larger than all others is multiplied in fp32, so that it does not coarsen its block: wherever
 * activations have 8 bits. AVX2's have 12 before bytes and tables, and later levels take some of its products. */
static bool takes_single(pome_cpu_level level, pome_codes codes)
{
    if (is_dense(codes))
        return false;
    if (level == POME_CPU_AVX2 || level == POME_CPU_AVX512)
        return codes == POME_CODES_I4 || codes == POME_CODES_U4;
    return (level != POME_CPU_AVX512VNNI && level != POME_CPU_AMX) || (codes != POME_CODES_LUT6 && codes != POME_CODES_LUT8);
}

/* Where it has a code, its block has the error of its size. */
static void check_single(const pome_kernels *k, pome_codes codes)
{
    static const size_t rows[] = {1, 2, 4, 7, 34};
    for (size_t round = 0; round < 20; round++) {
        size_t m = rows[round % 5], n = random_size(1, 35);
        pome_coded_rows w = random_rows(codes, n, 32 * 50);
        float *x = at_guard(3, m * w.k * sizeof *x), *y = output(4, m * n + 1);
        exact_activations(x, w.k, m, w.k);
        for (size_t i = 0; i < m; i++)
            if (i % 3 != 1)
                x[i * w.k + random_size(0, w.k - 1)] = (random_bits() % 2 ? 1e5f : -1e5f) * (1 + fabsf(random_float()));
        set_all(k, codes, x, w.k, m, w.k);
        k->coded[codes].times(y, n, q8_memory, m, &w, n, scratch_memory);
        check_canaries(y, m * n + 1);
        check_products(k, codes, &w, x, w.k, m, y, n, n, takes_single(k->level, codes));
        check_alone(k, codes, &w, x, w.k, m, y, n, n);
    }
}

static void test_times(const pome_kernels *k, pome_codes codes)
{
    check_single(k, codes);
    check_slot(k, codes);
    check_few(k, codes);
    check_not_finite(k, codes);
}

#define TEST(codes)                                                                                                    \
    static void test_##codes(const pome_kernels *k)                                                                    \
    {                                                                                                                  \
        test_times(k, POME_CODES_##codes);                                                                             \
    }
TEST(I4)
TEST(U4)
TEST(I8)
TEST(U8)
TEST(LUT4)
TEST(LUT6)
TEST(LUT8)
TEST(F16)
TEST(F32)

/* ---- speed ---- */

enum { BENCH_K = 4096, BENCH_N = 1024, BENCH_M = 64 };

static void bench_times(const pome_kernels *k, pome_codes codes, size_t m, size_t n)
{
    pome_coded_rows w = {BENCH_K, BENCH_K, region[0], (const uint16_t *)(void *)region[1], NULL, NULL};
    if (codes == POME_CODES_I4 || codes == POME_CODES_U4)
        w.block = 32;
    if (codes == POME_CODES_U4)
        w.offset_f16 = (const uint16_t *)(void *)region[2];
    if (pome_codes_are_palette(codes))
        w.table_f16 = w.scale_f16;
    k->coded[codes].times((float *)(void *)region[4], n, q8_memory, m, &w, n, scratch_memory);
}

#define BENCH(codes)                                                                                                   \
    static void bench_one_##codes(const pome_kernels *k)                                                               \
    {                                                                                                                  \
        bench_times(k, POME_CODES_##codes, 1, BENCH_N);                                                                \
    }                                                                                                                  \
    static void bench_two_##codes(const pome_kernels *k)                                                               \
    {                                                                                                                  \
        bench_times(k, POME_CODES_##codes, 2, BENCH_N);                                                                \
    }                                                                                                                  \
    static void bench_four_##codes(const pome_kernels *k)                                                              \
    {                                                                                                                  \
        bench_times(k, POME_CODES_##codes, 4, BENCH_N);                                                                \
    }                                                                                                                  \
    static void bench_eight_##codes(const pome_kernels *k)                                                             \
    {                                                                                                                  \
        bench_times(k, POME_CODES_##codes, 8, BENCH_N);                                                                \
    }                                                                                                                  \
    static void bench_many_##codes(const pome_kernels *k)                                                              \
    {                                                                                                                  \
        bench_times(k, POME_CODES_##codes, BENCH_M, 128);                                                              \
    }
BENCH(I4)
BENCH(U4)
BENCH(I8)
BENCH(U8)
BENCH(LUT4)
BENCH(LUT6)
BENCH(LUT8)
BENCH(F16)

static void no_test(const pome_kernels *k)
{
    (void)k;
}

#define ROWS(codes, bits)                                                                                              \
    {#codes " x 1", offsetof(pome_kernels, coded[POME_CODES_##codes].times), test_##codes, bench_one_##codes,          \
     1e-9 * BENCH_K * BENCH_N * (bits) / 8, "GB/s of weights"},                                                        \
        {#codes " x 2", offsetof(pome_kernels, coded[POME_CODES_##codes].times), no_test, bench_two_##codes,           \
         1e-9 * BENCH_K * BENCH_N * (bits) / 8, "GB/s of weights"},                                                    \
        {#codes " x 4", offsetof(pome_kernels, coded[POME_CODES_##codes].times), no_test, bench_four_##codes,          \
         1e-9 * BENCH_K * BENCH_N * (bits) / 8, "GB/s of weights"},                                                    \
        {#codes " x 8", offsetof(pome_kernels, coded[POME_CODES_##codes].times), no_test, bench_eight_##codes,         \
         1e-9 * BENCH_K * BENCH_N * (bits) / 8, "GB/s of weights"},                                                    \
        {#codes " x 64", offsetof(pome_kernels, coded[POME_CODES_##codes].times), no_test, bench_many_##codes,         \
         1e-9 * BENCH_K * 128.0 * BENCH_M, "GMAC/s"}
static const slot slots[] = {ROWS(I4, 4.5), ROWS(U4, 5), ROWS(I8, 8), ROWS(U8, 8), ROWS(LUT4, 4), ROWS(LUT6, 6), ROWS(LUT8, 8), ROWS(F16, 16),
                             {"F32", offsetof(pome_kernels, coded[POME_CODES_F32].times), test_F32, NULL, 0, NULL}};

int main(int argc, char **argv)
{
    static char memory[2][4 << 20];
    q8_memory = memory[0] + (64 - (uintptr_t)memory[0] % 64) % 64;
    scratch_memory = memory[1] + (64 - (uintptr_t)memory[1] % 64) % 64;
    return kernel_test_main(argc, argv, slots, sizeof slots / sizeof *slots);
}
