/* Every slot of the kernel table but those of int8 activations (test_coded.c) and of convolutions
 * (test_conv_kernels.c), at every level this machine has, against sums in double. Fixed promises of kernels.h are checked bit for bit: fused against decoded, one row against
 * many. */
#include "kernel_test.h"

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

/* A mask at region 1 and its values at region 0; weights as floats to `row`. */
static const uint16_t *sparse_weights(uint8_t **bits, float *row, size_t n)
{
    uint16_t *values;
    size_t ones = 0, used = 0, density = random_size(0, 8);
    *bits = bytes(1, (n + 7) / 8);
    for (size_t i = 0; i < n; i++) {
        unsigned bit = 1u << i % 8;
        density = random_size(0, 500) ? density : random_size(0, 8); /* rows without any, beside full ones */
        (*bits)[i / 8] = (uint8_t)((*bits)[i / 8] & ~bit);
        (*bits)[i / 8] |= random_size(1, 8) <= density ? (uint8_t)bit : 0;
        ones += ((*bits)[i / 8] & bit) != 0;
    }
    values = halves(0, ones);
    for (size_t i = 0; i < n; i++)
        row[i] = (*bits)[i / 8] >> (i % 8) & 1 ? pome_f16_to_f32(values[used++]) : 0;
    return values;
}

static void test_decode_sparse_f16(const pome_kernels *k)
{
    for (int round = 0; round < 300; round++) {
        size_t n = awkward_size(600);
        uint8_t *bits;
        float *dst = output(2, n), *row = at_guard(4, n * sizeof *row);
        const uint16_t *values = sparse_weights(&bits, row, n);
        k->decode_sparse_f16(dst, bits, values, n);
        check_canaries(dst, n);
        for (size_t i = 0; i < n; i++)
            expect_same(dst[i], row[i], "value", i);
    }
}

static void test_gemv_sparse_f16(const pome_kernels *k)
{
    for (int round = 0; round < 150; round++) {
        size_t n = random_size(0, 14), len = 8 * random_size(1, 160);
        uint8_t *bits;
        float *x = floats(2, len), *y = output(3, n), *row = at_guard(4, n * len * sizeof *row);
        const uint16_t *values = sparse_weights(&bits, row, n * len);
        k->gemv_sparse_f16(y, x, bits, values, n, len);
        check_canaries(y, n);
        for (size_t j = 0; j < n; j++) {
            double magnitude, want = dot_double(x, row + j * len, len, &magnitude);
            expect_near(y[j], want, dot_tolerance(magnitude, len), j);
            expect_same(y[j], k->dot_f32(x, row + j * len, len), "not as decoded", j);
        }
    }
}

static void test_widen_indices(const pome_kernels *k)
{
    for (int round = 0; round < 200; round++) {
        size_t n = 32 * random_size(0, 40);
        uint32_t n_bits = 1 + (uint32_t)round % 3;
        uint8_t *bits = at_guard(2, n * n_bits / 8), *nibbles = (uint8_t *)output(3, n / 8);
        for (size_t i = 0; i < n * n_bits / 8; i++)
            bits[i] = (uint8_t)random_bits();
        k->widen_indices(nibbles, bits, n_bits, n);
        check_canaries((float *)(void *)nibbles, n / 8);
        for (size_t i = 0; i < n; i++) {
            unsigned want = 0;
            for (size_t b = 0; b < n_bits; b++)
                want |= (unsigned)(bits[(i * n_bits + b) / 8] >> (i * n_bits + b) % 8 & 1) << b;
            expect_same((float)(nibbles[i / 2] >> i % 2 * 4 & 15), (float)want, "index", i);
        }
    }
}

/* ---- speed ---- */

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
static void bench_gemv_sparse_f16(const pome_kernels *k) /* 0x39: half of the bits are set */
{
    k->gemv_sparse_f16((float *)(void *)region[2], (float *)(void *)region[0], (uint8_t *)region[3],
                       (uint16_t *)(void *)region[1], BENCH_N, BENCH_K);
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
    {ROW(gemv_sparse_f16), bench_gemv_sparse_f16, 1e-9 * BENCH_K * BENCH_N, "G weights/s"},
    {ROW(decode_sparse_f16), NULL, 0, NULL},
    {ROW(decode_int4_block), bench_decode_int4_block, 64 * 32768e-9, "G elements/s"},
    {ROW(decode_int8_block), bench_decode_int8_block, 64 * 32768e-9, "G elements/s"},
    {ROW(widen_indices), NULL, 0, NULL},
    {ROW(decode_lut4), bench_decode_lut4, 64 * 32768e-9, "G elements/s"},
};

int main(int argc, char **argv)
{
    return kernel_test_main(argc, argv, slots, sizeof slots / sizeof *slots);
}
