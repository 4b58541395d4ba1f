#include <math.h>

#include "base/f16.h"
#include "encoded_test.h"

enum { MAX = 40000 };
static double want[MAX], weight[MAX * 20], bound[MAX];
static pome_numerics numerics;

/* y = x w^T + b in double; bound: the largest error that fp32 sums may have. */
static void reference(const pome_tensor *x, int64_t n, int64_t k, const pome_tensor *bias)
{
    int64_t m = k ? pome_tensor_count(x) / k : 0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0, magnitude = 0;
            for (int64_t p = 0; p < k; p++) {
                sum += op_test_at(x, i * k + p) * weight[j * k + p];
                magnitude += fabs(op_test_at(x, i * k + p) * weight[j * k + p]);
            }
            want[i * n + j] = sum + (bias ? op_test_at(bias, j) : 0);
            bound[i * n + j] = (magnitude + fabs(want[i * n + j])) * 0x1p-24 * ((double)k / 8 + 8);
        }
}

/* Fast mode: activations in steps of 1/127 of a block's largest, weights not rounded to half. */
static void widen_bounds(const pome_tensor *x, int64_t n, int64_t k)
{
    for (int64_t i = 0; i < pome_tensor_count(x) / k; i++)
        for (int64_t p = 0; p < k; p++) {
            double max = 0;
            for (int64_t q = p / 32 * 32; q < k && q < p / 32 * 32 + 32; q++)
                max = fmax(max, fabs(op_test_at(x, i * k + q)));
            for (int64_t j = 0; j < n; j++)
                bound[i * n + j] += fabs(weight[j * k + p]) * max * (0.501 / 127 + 0x1p-11);
        }
}

static void check(op_test *t, int64_t count)
{
    assert_int_equal(op_test_run(t), POME_OK);
    const pome_tensor *y = op_test_out(t, 0);
    assert_int_equal(pome_tensor_count(y), count);
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(op_test_at(y, i) - want[i]) <= bound[i]))
            fail_msg("element %lld is %.9g, wanted %.9g", (long long)i, op_test_at(y, i), want[i]);
}

/* The first row alone must be what it was among the others. */
static void check_row_alone(op_test *t, const pome_tensor *x, int64_t k, const char *name, void (*add_weight)(op_test *),
                            const pome_tensor *bias)
{
    int64_t m = pome_tensor_count(x) / k, n = pome_tensor_count(op_test_out(t, 0)) / m, shape[2] = {1, k};
    for (int64_t i = 0; i < m; i += m > 1 ? m - 1 : 1) {
        pome_tensor row = pome_tensor_borrow((float *)x->data + i * k, POME_DTYPE_F32, 2, shape);
        op_test *alone = op_test_begin(POME_OP_linear, POME_OPSET_IOS18);
        op_test_numerics(alone, numerics);
        op_test_in(alone, "x", &row);
        add_weight(alone);
        if (bias)
            op_test_const(alone, "bias", bias);
        assert_int_equal(op_test_run(alone), POME_OK);
        for (int64_t j = 0; j < n; j++)
            if (op_test_at(op_test_out(alone, 0), j) != op_test_at(op_test_out(t, 0), i * n + j))
                fail_msg("%s: row %lld differs alone, column %lld", name, (long long)i, (long long)j);
        op_test_end(alone);
    }
}

static pome_tensor dense;
static const pome_encoded *encoded;
static void add_dense(op_test *t)
{
    op_test_const(t, "weight", &dense);
}
static void add_encoded(op_test *t)
{
    op_test_const_encoded(t, "weight", encoded);
}

static void test_dense(void **unused)
{
    (void)unused;
    for (int round = 0; round < 40; round++) {
        pome_dtype dtype = round % 2 ? POME_DTYPE_F16 : POME_DTYPE_F32;
        int32_t rank = (int32_t)op_test_random_int(1, 4);
        int64_t shape[4], n = op_test_random_int(1, 90), k = op_test_random_int(1, round % 5 ? 100 : 1100);
        op_test_shape(shape, rank, 5, true);
        shape[rank - 1] = k;
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, rank, shape, -1, 1);
        dense = op_test_tensor(dtype, 2, (int64_t[]){n, k}, -1, 1);
        pome_tensor bias = op_test_tensor(round % 3 ? POME_DTYPE_F16 : POME_DTYPE_F32, 1, &n, -2, 2);
        for (int64_t i = 0; i < n * k; i++)
            weight[i] = op_test_at(&dense, i);
        const pome_tensor *b = round % 4 ? &bias : NULL;
        reference(&x, n, k, b);
        op_test *t = op_test_begin(POME_OP_linear, POME_OPSET_IOS18);
        op_test_in(t, "x", &x);
        op_test_const(t, "weight", &dense);
        if (b)
            op_test_const(t, "bias", b);
        check(t, pome_tensor_count(&x) / k * n);
        if (pome_tensor_count(&x) > k)
            check_row_alone(t, &x, k, "dense", add_dense, b);
        op_test_end(t);
        pome_tensor_reset(&x);
        pome_tensor_reset(&dense);
        pome_tensor_reset(&bias);
    }
}

/* int4 and int8 blocks; widths that fused kernels take and widths that they do not. */
static void test_blocks(void **unused)
{
    (void)unused;
    for (int round = 0; round < 40; round++) {
        bool nibbles = round % 2;
        int64_t block = (int64_t[]){32, 64, 16, 6, 1}[round % 5], k = block * op_test_random_int(1, 640 / block);
        if (round % 7 == 0)
            block = k; /* per channel */
        int64_t n = op_test_random_int(1, 40), m = op_test_random_int(1, 6), nk[2] = {n, k};
        pome_arena *arena = pome_arena_create(0);
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, 2, (int64_t[]){m, k}, -1, 1);
        pome_tensor scales = op_test_tensor(POME_DTYPE_F16, 2, (int64_t[]){n, k / block}, -0.1, 0.1);
        pome_tensor bytes = op_test_tensor(POME_DTYPE_I8, 1, (int64_t[]){nibbles ? (n * k + 1) / 2 : n * k}, -128, 127);
        pome_tensor codes = pome_tensor_borrow(bytes.data, nibbles ? POME_DTYPE_I4 : POME_DTYPE_I8, 2, nk);
        for (int64_t i = 0; i < n * k; i++) {
            int code = ((int8_t *)bytes.data)[nibbles ? i / 2 : i];
            if (nibbles)
                code = ((code >> (i % 2 * 4)) & 15) >= 8 ? ((code >> (i % 2 * 4)) & 15) - 16 : (code >> (i % 2 * 4)) & 15;
            double scale = op_test_at(&scales, i / k * (k / block) + i % k / block);
            weight[i] = pome_f16_round((float)(scale * code));
        }
        encoded = encoded_test_blocks(arena, &codes, &scales);
        reference(&x, n, k, NULL);
        numerics = round % 3 ? POME_NUMERICS_FAST : POME_NUMERICS_EXACT;
        if (numerics == POME_NUMERICS_FAST)
            widen_bounds(&x, n, k);
        op_test *t = op_test_begin(POME_OP_linear, POME_OPSET_IOS18);
        op_test_numerics(t, numerics);
        op_test_in(t, "x", &x);
        op_test_const_encoded(t, "weight", encoded);
        check(t, m * n);
        check_row_alone(t, &x, k, "blocks", add_encoded, NULL);
        op_test_end(t);
        pome_tensor_reset(&x);
        pome_tensor_reset(&scales);
        pome_tensor_reset(&bytes);
        pome_arena_destroy(&arena);
    }
    numerics = POME_NUMERICS_EXACT;
}

static int code_at(const pome_tensor *bytes, int64_t i, int n_bits)
{
    int code = 0;
    for (int b = 0; b < n_bits; b++)
        code |= (((uint8_t *)bytes->data)[(i * n_bits + b) / 8] >> (i * n_bits + b) % 8 & 1) << b;
    return code;
}

/* A palette for each group of rows, of all widths: fast mode takes up to 4 bits as they lie, all else decodes. */
static void test_palettes(void **unused)
{
    (void)unused;
    for (int round = 0; round < 24; round++) {
        int64_t n_groups = op_test_random_int(1, 3), n = n_groups * op_test_random_int(1, 20);
        int64_t k = 32 * op_test_random_int(1, 9), m = op_test_random_int(1, 6);
        const int widths[6] = {4, 1, 2, 3, 6, 8}, n_bits = widths[round % 6];
        const pome_dtype types[6] = {POME_DTYPE_U4, POME_DTYPE_U1, POME_DTYPE_U2, POME_DTYPE_U3, POME_DTYPE_U6, POME_DTYPE_U8};
        pome_arena *arena = pome_arena_create(0);
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, 2, (int64_t[]){m, k}, -1, 1);
        pome_tensor lut = op_test_tensor(POME_DTYPE_F16, 4, (int64_t[]){n_groups, 1, 1 << n_bits, 1}, -1, 1);
        pome_tensor bytes = op_test_tensor(POME_DTYPE_U8, 1, (int64_t[]){n * k * n_bits / 8}, 0, 255);
        pome_tensor codes = pome_tensor_borrow(bytes.data, types[round % 6], 2, (int64_t[]){n, k});
        encoded_test e = encoded_test_begin(arena, POME_OP_constexpr_lut_to_dense);
        encoded_test_tensor(&e, P_constexpr_lut_to_dense_indices, &codes);
        encoded_test_tensor(&e, P_constexpr_lut_to_dense_lut, &lut);
        encoded = encoded_test_end(&e, 0);
        for (int64_t i = 0; i < n * k; i++)
            weight[i] = op_test_at(&lut, i / k / (n / n_groups) * (1 << n_bits) + code_at(&bytes, i, n_bits));
        reference(&x, n, k, NULL);
        numerics = round / 6 % 3 ? POME_NUMERICS_FAST : POME_NUMERICS_EXACT;
        if (numerics == POME_NUMERICS_FAST)
            widen_bounds(&x, n, k);
        op_test *t = op_test_begin(POME_OP_linear, POME_OPSET_IOS18);
        op_test_numerics(t, numerics);
        op_test_in(t, "x", &x);
        op_test_const_encoded(t, "weight", encoded);
        check(t, m * n);
        check_row_alone(t, &x, k, "palettes", add_encoded, NULL);
        op_test_end(t);
        pome_tensor_reset(&x);
        pome_tensor_reset(&lut);
        pome_tensor_reset(&bytes);
        pome_arena_destroy(&arena);
    }
    numerics = POME_NUMERICS_EXACT;
}

/* Unsigned codes with offsets of their own type, for each block or one for a row. */
static void test_integer_offsets(void **unused)
{
    (void)unused;
    for (int round = 0; round < 18; round++) {
        int n_bits = round % 2 ? 8 : 4;
        int64_t block = (int64_t[]){32, 64, 16}[round % 3], k = block * op_test_random_int(1, 320 / block);
        int64_t n = 2 * op_test_random_int(1, 20), m = op_test_random_int(1, 6), nk[2] = {n, k}, entries[2] = {n, k / block};
        pome_dtype type = n_bits == 8 ? POME_DTYPE_U8 : POME_DTYPE_U4;
        pome_arena *arena = pome_arena_create(0);
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, 2, (int64_t[]){m, k}, -1, 1);
        pome_tensor scales = op_test_tensor(POME_DTYPE_F16, 2, entries, -0.1, 0.1);
        pome_tensor bytes = op_test_tensor(POME_DTYPE_U8, 1, (int64_t[]){n * k * n_bits / 8}, 0, 255);
        pome_tensor shifts = op_test_tensor(POME_DTYPE_U8, 1, (int64_t[]){n * k / block}, 0, 255);
        pome_tensor codes = pome_tensor_borrow(bytes.data, type, 2, nk), offsets = pome_tensor_borrow(shifts.data, type, 2, entries);
        encoded_test e = encoded_test_begin(arena, POME_OP_constexpr_blockwise_shift_scale);
        encoded_test_tensor(&e, P_constexpr_blockwise_shift_scale_data, &codes);
        encoded_test_tensor(&e, P_constexpr_blockwise_shift_scale_scale, &scales);
        encoded_test_tensor(&e, P_constexpr_blockwise_shift_scale_offset, &offsets);
        encoded = encoded_test_end(&e, 0);
        for (int64_t i = 0; i < n * k; i++) {
            int difference = code_at(&bytes, i, n_bits) - code_at(&shifts, i / block, n_bits);
            weight[i] = pome_f16_round((float)(op_test_at(&scales, i / block) * difference));
        }
        pome_encoded_codes taken;
        assert_true(pome_encoded_as_codes(encoded, &taken) && taken.code == type && taken.offset_f16);
        reference(&x, n, k, NULL);
        numerics = round / 6 % 3 ? POME_NUMERICS_FAST : POME_NUMERICS_EXACT;
        if (numerics == POME_NUMERICS_FAST)
            widen_bounds(&x, n, k);
        op_test *t = op_test_begin(POME_OP_linear, POME_OPSET_IOS18);
        op_test_numerics(t, numerics);
        op_test_in(t, "x", &x);
        op_test_const_encoded(t, "weight", encoded);
        check(t, m * n);
        check_row_alone(t, &x, k, "integer offsets", add_encoded, NULL);
        op_test_end(t);
        pome_tensor_reset(&x);
        pome_tensor_reset(&scales);
        pome_tensor_reset(&bytes);
        pome_tensor_reset(&shifts);
        pome_arena_destroy(&arena);
    }
    numerics = POME_NUMERICS_EXACT;
}

/* Half of the weights, or few; widths that the fused kernel takes and others. */
static void test_sparse(void **unused)
{
    (void)unused;
    for (int round = 0; round < 16; round++) {
        int64_t n = op_test_random_int(1, 40), m = op_test_random_int(1, 4), used = 0;
        int64_t k = round % 3 ? 8 * op_test_random_int(1, 100) : op_test_random_int(1, 90);
        pome_arena *arena = pome_arena_create(0);
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, 2, (int64_t[]){m, k}, -1, 1);
        pome_tensor values = op_test_tensor(POME_DTYPE_F16, 1, (int64_t[]){n * k}, -1, 1);
        uint8_t *bits = POME_NEW_ARRAY(arena, uint8_t, (size_t)(n * k + 7) / 8);
        for (int64_t i = 0; i < n * k; i++) {
            bool set = op_test_random_int(0, round % 2 ? 1 : 6) == 0;
            bits[i / 8] |= (uint8_t)(set << i % 8);
            weight[i] = set ? op_test_at(&values, used++) : 0;
        }
        encoded_test e = encoded_test_begin(arena, POME_OP_constexpr_sparse_to_dense);
        encoded_test_input(&e, P_constexpr_sparse_to_dense_mask, POME_DTYPE_U1, 2, (int64_t[]){n, k}, bits,
                           (size_t)(n * k + 7) / 8, NULL, 0);
        encoded_test_input(&e, P_constexpr_sparse_to_dense_nonzero_data, POME_DTYPE_F16, 1, &used, values.data,
                           (size_t)used * 2, NULL, 0);
        encoded = encoded_test_end(&e, 0);
        reference(&x, n, k, NULL);
        op_test *t = op_test_begin(POME_OP_linear, POME_OPSET_IOS18);
        op_test_in(t, "x", &x);
        op_test_const_encoded(t, "weight", encoded);
        check(t, m * n);
        check_row_alone(t, &x, k, "sparse", add_encoded, NULL);
        op_test_end(t);
        pome_tensor_reset(&x);
        pome_tensor_reset(&values);
        pome_arena_destroy(&arena);
    }
}

static void test_integers(void **unused)
{
    (void)unused;
    pome_tensor x = op_test_tensor(POME_DTYPE_I32, 3, (int64_t[]){2, 3, 5}, -2147483648.0, 2147483647.0);
    pome_tensor w = op_test_tensor(POME_DTYPE_I32, 2, (int64_t[]){4, 5}, -2147483648.0, 2147483647.0);
    pome_tensor b = op_test_tensor(POME_DTYPE_I32, 1, (int64_t[]){4}, -2147483648.0, 2147483647.0);
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 4; j++) {
            int64_t sum = (int64_t)op_test_at(&b, j);
            for (int p = 0; p < 5; p++) /* modulo 2^32 */
                sum += (int64_t)((uint64_t)(int64_t)op_test_at(&x, i * 5 + p) * (uint64_t)(int64_t)op_test_at(&w, j * 5 + p) &
                                 0xffffffffu);
            want[i * 4 + j] = (double)(int32_t)(uint32_t)(uint64_t)sum;
        }
    op_test *t = op_test_begin(POME_OP_linear, POME_OPSET_IOS15);
    op_test_in(t, "x", &x);
    op_test_const(t, "weight", &w);
    op_test_const(t, "bias", &b);
    assert_int_equal(op_test_run(t), POME_OK);
    op_test_expect(t, 0, want, 0, 0);
    op_test_end(t);
    pome_tensor_reset(&x);
    pome_tensor_reset(&w);
    pome_tensor_reset(&b);
}

static void test_rejections(void **unused)
{
    (void)unused;
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, 2, (int64_t[]){2, 3}, -1, 1);
    pome_tensor w = op_test_tensor(POME_DTYPE_F32, 2, (int64_t[]){4, 5}, -1, 1);
    op_test *t = op_test_begin(POME_OP_linear, POME_OPSET_IOS18);
    op_test_in(t, "x", &x);
    op_test_const(t, "weight", &w);
    op_test_expect_failure(t, POME_ERR_FORMAT, "x's last size is 3");
    op_test_end(t);
    pome_tensor_reset(&x);
    pome_tensor_reset(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_palettes),
        cmocka_unit_test(test_integer_offsets),
        cmocka_unit_test(test_sparse),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_rejections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
