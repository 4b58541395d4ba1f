/* The slots of convolutions, at every level this machine has: against sums in double, and bit for bit against each other where
 * kernels.h promises it. */
#include "kernel_test.h"

/* Against sums in double, and bit for bit what gemm_nn_f32 gives for a product without an end. */
static void check_panel(const pome_kernels *k, size_t m, size_t n, size_t len, int round)
{
    size_t lda = len + random_size(0, 3), ldc = n + random_size(0, 20), part = round % 3 == 0 ? random_size(0, len) : 0;
    size_t ldb = POME_PANEL + (round % 2 ? random_size(0, 40) : 0);
    float *a = floats(0, m ? (m - 1) * lda + len : 0), *b = floats(1, len ? (len - 1) * ldb + POME_PANEL : 0), *bias = floats(3, m);
    float *addend = floats(4, m ? (m - 1) * ldc + n : 0), *c = output(2, m ? (m - 1) * ldc + n : 0), *plain = output(5, m * n);
    pome_panel_end end = {round % 2 ? bias : NULL, round % 5 < 3 ? addend : NULL, -INFINITY, INFINITY};
    if (round % 4 == 0) {
        end.low = -0.5f;
        end.high = 1;
    }
    static float turned[40 * 1200]; /* a by columns */
    bool is_turned = round % 8 > 3;
    const float *left = is_turned ? turned : a;
    size_t step = is_turned ? m + 1 : 1;
    for (size_t i = 0; i < m && is_turned; i++)
        for (size_t p = 0; p < len; p++)
            turned[p * step + i] = a[i * lda + p];
    if (part)
        k->gemm_panel_f32(c, ldc, left, is_turned ? 1 : lda, step, b, ldb, m, n, part, false, NULL);
    k->gemm_panel_f32(c, ldc, left + part * step, is_turned ? 1 : lda, step, b + part * ldb, ldb, m, n, len - part, part > 0, round % 7 ? &end : NULL);
    check_canaries(c, m ? (m - 1) * ldc + n : 0);
    k->gemm_nn_f32(plain, n, a, lda, b, ldb, m, n, len, false);
    for (size_t i = 0; i < m; i++) {
        for (size_t j = n; i + 1 < m && j < ldc; j++)
            if (pome_f32_bits(c[i * ldc + j]) != 0xa5a5a5a5u)
                report("write between rows", c[i * ldc + j], 0, i * ldc + j);
        for (size_t j = 0; j < n; j++) {
            double sum = 0, magnitude = 2;
            for (size_t p = 0; p < len; p++) {
                sum += (double)a[i * lda + p] * b[p * ldb + j];
                magnitude += fabs((double)a[i * lda + p] * b[p * ldb + j]);
            }
            if (round % 7 == 0) {
                expect_same(c[i * ldc + j], plain[i * n + j], "not as gemm_nn_f32", i * ldc + j);
            } else {
                sum += (end.bias ? (double)bias[i] : 0) + (end.addend ? (double)addend[i * ldc + j] : 0);
                sum = sum < (double)end.low ? (double)end.low : sum > (double)end.high ? (double)end.high : sum;
            }
            expect_near(c[i * ldc + j], sum, magnitude * 0x1p-24 * (double)(len + 3), i * ldc + j);
        }
    }
}

static void test_gemm_panel_f32(const pome_kernels *k)
{
    for (size_t m = 1; m <= 30; m++)
        for (size_t n = 1; n <= POME_PANEL; n++)
            check_panel(k, m, n, random_size(0, 12), (int)(m * 17 + n));
    for (int round = 0; round < 60; round++)
        check_panel(k, random_size(0, 40), random_size(1, POME_PANEL), awkward_size(600), round);
    float a = NAN, b[POME_PANEL] = {1}, c[POME_PANEL];
    pome_panel_end end = {NULL, NULL, 0, 6};
    k->gemm_panel_f32(c, POME_PANEL, &a, 1, 1, b, POME_PANEL, 1, 1, 1, false, &end);
    if (!isnan(c[0]))
        report("limit of NaN", c[0], NAN, 0);
}

/* Bit for bit gemm_panel_f32 of a copy; rows of b overlap, and the last one ends where b ends. */
static void check_at(const pome_kernels *k, size_t m, size_t n, size_t len, int round)
{
    size_t lda = len + random_size(0, 3), ldc = n + random_size(0, 20), reach = random_size(0, 200), count = m ? (m - 1) * ldc + n : 0;
    size_t at[64];
    float *a = floats(0, m ? (m - 1) * lda + len : 0), *b = floats(1, reach + POME_PANEL), *bias = floats(3, m);
    float *addend = floats(4, count), *c = output(2, count), *want = output(5, count), copy[64 * POME_PANEL];
    pome_panel_end end = {round % 2 ? bias : NULL, round % 5 < 3 ? addend : NULL, round % 4 ? -INFINITY : 0, round % 3 ? INFINITY : 1};
    for (size_t p = 0; p < len; p++) {
        at[p] = p == 0 ? reach : random_size(0, reach);
        memcpy(copy + p * POME_PANEL, b + at[p], POME_PANEL * sizeof *b);
    }
    k->gemm_at_f32(c, ldc, a, lda, b, at, m, n, len, round % 7 ? &end : NULL);
    check_canaries(c, count);
    k->gemm_panel_f32(want, ldc, a, lda, 1, copy, POME_PANEL, m, n, len, false, round % 7 ? &end : NULL);
    for (size_t i = 0; i < count; i++)
        expect_same(c[i], want[i], "not as gemm_panel_f32", i); /* what lies between the rows is 0xa5 in both */
}

static void test_gemm_at_f32(const pome_kernels *k)
{
    for (size_t m = 1; m <= 30; m++)
        for (size_t n = 1; n <= POME_PANEL; n++)
            check_at(k, m, n, random_size(0, 64), (int)(m * 17 + n));
}

/* B^T d B and A^T m A by the matrices. */
static void test_winograd_in_f32(const pome_kernels *k)
{
    static const double bt[4][4] = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}};
    for (size_t n = 0; n <= 40; n += 8) {
        size_t width = n + random_size(1, 9), ldx = 2 * width + random_size(0, 3), apart = n + random_size(0, 5), count = 15 * apart + n;
        float *x = floats(0, 3 * ldx + 2 * width), *v = output(2, count);
        k->winograd_in_f32(v, apart, x, ldx, width, n);
        check_canaries(v, count);
        for (size_t t = 0; t < 16; t++)
            for (size_t j = 0; j < n; j++) {
                double sum = 0, magnitude = 0;
                for (size_t r = 0; r < 4; r++)
                    for (size_t c = 0; c < 4; c++) {
                        double d = (double)x[r * ldx + c % 2 * width + j + c / 2] * bt[t / 4][r] * bt[t % 4][c];
                        sum += d;
                        magnitude += fabs(d);
                    }
                expect_near(v[t * apart + j], sum, magnitude * 0x1p-22, t * apart + j);
            }
    }
}

static void check_winograd_out(const pome_kernels *k, size_t rows, size_t cols, int round)
{
    static const double at[2][4] = {{1, 1, 1, 0}, {0, 1, -1, -1}};
    size_t tiles = (cols + 1) / 2, apart = (tiles + 7) / 8 * 8 + random_size(0, 5), ldy = cols + random_size(0, 9);
    size_t count = (rows - 1) * ldy + cols, wild = random_size(0, count - 1);
    float *m = floats(0, 15 * apart + (tiles + 7) / 8 * 8), *addend = floats(4, count), *y = output(2, count), bias = 0.25f;
    pome_panel_end end = {round % 2 ? &bias : NULL, round % 5 < 3 ? addend : NULL, round % 4 ? -INFINITY : -0.5f, round % 3 ? INFINITY : 1};
    for (size_t t = 0; t < 16; t++) /* what lies behind the last tile does not count */
        for (size_t j = tiles; j < (tiles + 7) / 8 * 8; j++)
            m[t * apart + j] = NAN;
    if (!k->winograd_out_f32(y, ldy, rows, cols, m, apart, &end))
        report("finite sums told as infinite", 0, 1, 0);
    check_canaries(y, count);
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) {
            double sum = 0, magnitude = 2;
            for (size_t t = 0; t < 16; t++) {
                double d = (double)m[t * apart + j / 2] * at[i][t / 4] * at[j % 2][t % 4];
                sum += d;
                magnitude += fabs(d);
            }
            sum += (end.bias ? (double)bias : 0) + (end.addend ? (double)addend[i * ldy + j] : 0);
            sum = sum < (double)end.low ? (double)end.low : sum > (double)end.high ? (double)end.high : sum;
            expect_near(y[i * ldy + j], sum, magnitude * 0x1p-21, i * ldy + j);
        }
    for (size_t j = cols; rows == 2 && j < ldy; j++)
        if (pome_f32_bits(y[j]) != 0xa5a5a5a5u)
            report("write between rows", y[j], 0, j);
    m[5 * apart + wild % ldy % cols / 2] = round % 2 ? INFINITY : NAN; /* element 5 counts for each of the four results */
    if (k->winograd_out_f32(y, ldy, rows, cols, m, apart, &end))
        report("an infinite sum told as finite", 1, 0, 0);
}

static void test_winograd_out_f32(const pome_kernels *k)
{
    for (size_t cols = 1; cols <= 70; cols++)
        for (size_t rows = 1; rows <= 2; rows++)
            check_winograd_out(k, rows, cols, (int)(3 * cols + rows));
}

/* Runs of every number and place; the first and the last element named are the ends of x. */
static void test_unfold_panel_f32(const pome_kernels *k)
{
    for (int round = 0; round < 3000; round++) {
        pome_panel_run runs[POME_PANEL];
        size_t stride = random_size(1, 3), n_runs = 0, m = random_size(0, 5), ld = POME_PANEL * random_size(1, 3), at = 0;
        for (size_t to = random_size(0, 3); to < POME_PANEL; to += random_size(0, 1) * random_size(0, 8)) {
            size_t n = random_size(1, round % 3 ? 16 : 5);
            n = n < POME_PANEL - to ? n : POME_PANEL - to;
            runs[n_runs++] = (pome_panel_run){to, n, (ptrdiff_t)at};
            at += (n - 1) * stride + 1 + random_size(0, 4);
            to += n;
        }
        size_t ldx = n_runs ? (size_t)runs[n_runs - 1].from + (runs[n_runs - 1].n - 1) * stride + 1 : 0;
        const float *x = floats(0, m * ldx);
        float *y = output(2, m ? (m - 1) * ld + POME_PANEL : 0);
        k->unfold_panel_f32(y, ld, x, ldx, m, runs, n_runs, stride);
        check_canaries(y, m ? (m - 1) * ld + POME_PANEL : 0);
        for (size_t i = 0; i < m; i++)
            for (size_t j = 0; j < POME_PANEL; j++) {
                float want = 0;
                for (size_t r = 0; r < n_runs; r++)
                    if (j >= runs[r].to && j < runs[r].to + runs[r].n)
                        want = x[i * ldx + (size_t)runs[r].from + (j - runs[r].to) * stride];
                expect_same(y[i * ld + j], want, "unfolded", j);
            }
    }
}

/* Every number of rows and columns of small planes, at the guard page. */
static void test_conv_plane_sizes(const pome_kernels *k)
{
    for (size_t s = 1; s <= 2; s++)
        for (size_t size = 3; size <= 5; size += 2)
            for (size_t rows = 1; rows <= 9; rows++)
                for (size_t cols = 1; cols <= 26; cols++) {
                    pome_conv_plane p = {.kh = size, .kw = size, .sy = s, .sx = s, .dy = 1, .dx = 1, .bias = -0.25f,
                                         .low = -INFINITY, .high = INFINITY};
                    p.ldx = pome_conv_plane_width(&p, cols);
                    p.x = floats(0, ((rows - 1) * s + size) * p.ldx);
                    p.w = floats(1, size * size);
                    float *y = output(2, rows * cols);
                    k->conv_plane_f32(y, rows, cols, &p);
                    check_canaries(y, rows * cols);
                    for (size_t i = 0; i < rows * cols; i++) {
                        double sum = (double)p.bias;
                        for (size_t e = 0; e < size * size; e++)
                            sum += (double)p.w[e] *
                                   (double)p.x[(i / cols * s + e / size) * p.ldx + i % cols * s + e % size];
                        expect_near(y[i], sum, 0x1p-24 * 27 * 27, i);
                    }
                }
}

static void test_conv_plane_f32(const pome_kernels *k)
{
    test_conv_plane_sizes(k);
    for (int round = 0; round < 200; round++) {
        size_t rows = random_size(1, 5), cols = awkward_size(40) + 1, small = round % 3 == 0 ? 3 : round % 3 == 1 ? 5 : 0;
        pome_conv_plane p = {.kh = small ? small : random_size(1, 4), .kw = small ? small : random_size(1, 6),
                             .sy = random_size(1, 3), .sx = random_size(1, 3), .dy = random_size(1, 2),
                             .dx = round % 2 ? 1 : random_size(1, 2), .bias = 0.5f, .low = -1, .high = 0.75f};
        p.ldx = pome_conv_plane_width(&p, cols) + random_size(0, 3);
        size_t n_rows = (rows - 1) * p.sy + (p.kh - 1) * p.dy + 1;
        p.x = floats(0, (n_rows - 1) * p.ldx + pome_conv_plane_width(&p, cols));
        p.w = floats(1, p.kh * p.kw);
        float *y = output(2, rows * cols);
        k->conv_plane_f32(y, rows, cols, &p);
        check_canaries(y, rows * cols);
        for (size_t i = 0; i < rows; i++)
            for (size_t j = 0; j < cols; j++) {
                double sum = 0, magnitude = 1;
                for (size_t e = 0; e < p.kh * p.kw; e++) {
                    double term = (double)p.w[e] *
                                  (double)p.x[(i * p.sy + e / p.kw * p.dy) * p.ldx + j * p.sx + e % p.kw * p.dx];
                    sum += term;
                    magnitude += fabs(term);
                }
                sum += (double)p.bias;
                sum = sum < -1 ? -1 : sum > 0.75 ? 0.75 : sum;
                expect_near(y[i * cols + j], sum, magnitude * 0x1p-24 * (double)(p.kh * p.kw + 2), j);
            }
    }
}

/* ---- speed ---- */

static void bench_gemm_panel_f32(const pome_kernels *k)
{
    k->gemm_panel_f32(at_guard(2, 24 * 64 * 4), 64, at_guard(0, 24 * 256 * 4), 256, 1, at_guard(1, 256 * POME_PANEL * 4), POME_PANEL,
                      24, POME_PANEL, 256, false, NULL);
}
static void bench_conv_plane_f32(const pome_kernels *k)
{
    pome_conv_plane p = {.x = at_guard(0, 8192), .w = at_guard(1, 9 * 4), .kh = 3, .kw = 3, .sy = 1, .sx = 1, .dy = 1, .dx = 1,
                         .low = -INFINITY, .high = INFINITY};
    p.ldx = pome_conv_plane_width(&p, 28);
    k->conv_plane_f32(at_guard(2, 28 * 28 * 4), 28, 28, &p);
}
#define ROW(field) #field, offsetof(pome_kernels, field), test_##field
static const slot slots[] = {
    {ROW(gemm_panel_f32), bench_gemm_panel_f32, 24 * POME_PANEL * 256e-9, "G multiply-adds/s"},
    {ROW(gemm_at_f32), NULL, 0, NULL},
    {ROW(winograd_in_f32), NULL, 0, NULL},
    {ROW(winograd_out_f32), NULL, 0, NULL},
    {ROW(unfold_panel_f32), NULL, 0, NULL},
    {ROW(conv_plane_f32), bench_conv_plane_f32, 9 * 28 * 28e-9, "G multiply-adds/s"},
};

int main(int argc, char **argv)
{
    return kernel_test_main(argc, argv, slots, sizeof slots / sizeof *slots);
}
