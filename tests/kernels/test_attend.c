/* Products with a half-precision matrix against the fp32 products of the same level over the same numbers: bit for
 * bit, since halves are exact in fp32 and the order of sums is one. Those are tested against double elsewhere. The
 * matrix ends at a guard page. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/f16.h"
#include "kernels/kernels.h"

enum { MOST = 1 << 17 };
static float a[MOST], b[MOST], start[MOST], got[MOST], want[MOST];
static uint16_t *half_end; /* of a readable range, a guard page behind it */
static uint64_t state = 88172645463325252u;

static bool is_available(int level)
{
#ifdef POME_EMULATED
    return level <= POME_CPU_AMX && pome_cpu_level_available(POME_CPU_AVX2);
#else
    return pome_cpu_level_available((pome_cpu_level)level);
#endif
}

static size_t random_size(size_t low, size_t high)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return low + state % (high - low + 1);
}

static void fill(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = (float)random_size(0, 2000000) * 1e-6f - 1;
}

static const uint16_t *to_halves(float *x, size_t n) /* x becomes what the halves say */
{
    uint16_t *h = half_end - n;
    for (size_t i = 0; i < n; i++) {
        h[i] = pome_f32_to_f16(x[i]);
        x[i] = pome_f16_to_f32(h[i]);
    }
    return h;
}

static void compare(const pome_kernels *k, bool by_rows)
{
    static const size_t widths[] = {1, 7, 8, 9, 16, 31, 40, 64, 80, 96, 128, 256, 600};
    size_t m = random_size(0, 8), n = random_size(0, 70), len = random_size(0, 80);
    *(by_rows ? &len : &n) = widths[random_size(0, sizeof widths / sizeof *widths - 1)];
    bool add = random_size(0, 1);
    size_t ldb = (by_rows ? len : n) + random_size(0, 5), lda = len + random_size(0, 3), ldc = n + random_size(0, 3);
    size_t rows = by_rows ? n : len, n_b = rows ? (rows - 1) * ldb + (by_rows ? len : n) : 0;
    fill(a, m * lda);
    fill(b, n_b);
    fill(start, m * ldc);
    memcpy(got, start, m * ldc * sizeof *got);
    memcpy(want, start, m * ldc * sizeof *got);
    const uint16_t *h = to_halves(b, n_b);
    if (by_rows) {
        k->gemm_nt_f16(got, ldc, a, lda, h, ldb, m, n, len, add);
        k->gemm_nt_f32(want, ldc, a, lda, b, ldb, m, n, len, add);
    } else {
        k->gemm_nn_f16(got, ldc, a, lda, h, ldb, m, n, len, add);
        k->gemm_nn_f32(want, ldc, a, lda, b, ldb, m, n, len, add);
    }
    for (size_t i = 0; i < m * ldc; i++)
        if (pome_f32_bits(got[i]) != pome_f32_bits(want[i]))
            fail_msg("%s %s m %zu n %zu k %zu at %zu: %.9g, want %.9g", pome_cpu_level_name(k->level),
                     by_rows ? "nt" : "nn", m, n, len, i, (double)got[i], (double)want[i]);
}

static void products_with_halves(void **unused)
{
    (void)unused;
    for (int level = 0; level < POME_CPU_COUNT; level++) {
        pome_kernels k;
        if (!is_available(level))
            continue;
        pome_kernels_init(&k, (pome_cpu_level)level);
        for (int round = 0; round < 400; round++)
            compare(&k, round % 2);
    }
}

/* Against double, and every level against the generic one. */
static void silu_times(void **unused)
{
    (void)unused;
    pome_kernels k, generic;
    pome_kernels_init(&generic, POME_CPU_GENERIC);
    for (int level = 0; level < POME_CPU_COUNT; level++) {
        if (!is_available(level))
            continue;
        pome_kernels_init(&k, (pome_cpu_level)level);
        for (size_t n = 0; n < 200; n += 1 + n / 20) {
            fill(a, n);
            fill(b, n);
            for (size_t i = 0; i < n; i++)
                a[i] *= 30;
            generic.silu_mul_f32(want, a, b, n);
            got[n] = 77;
            k.silu_mul_f32(got, a, b, n);
            assert_true(got[n] == 77);
            for (size_t i = 0; i < n; i++) {
                double exact = (double)a[i] / (1 + exp(-(double)a[i])) * (double)b[i];
                assert_true(fabs((double)got[i] - exact) <= 4 * 0x1p-24 * fabs(exact));
                assert_true(pome_f32_bits(got[i]) == pome_f32_bits(want[i]));
            }
        }
    }
}

int main(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (MOST * sizeof(uint16_t) + page - 1) / page * page;
    char *p = mmap(NULL, size + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || mprotect(p + size, page, PROT_NONE) != 0)
        return 2;
    half_end = (uint16_t *)(void *)(p + size);
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_with_halves), cmocka_unit_test(silu_times)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
