#include <math.h>
#include <string.h>

#include "op_test.h"

enum { MAX = 60000, MAX_KEYS = 800 };
static double want[MAX];

/* softmax(q k^T / sqrt(E) + mask) v in double; `groups` query heads per key head (the last batch axis). A row that
 * attends to nothing gives `empty`. */
static void reference(const pome_tensor *q, const pome_tensor *k, const pome_tensor *v, const pome_tensor *mask,
                      int64_t groups, double empty)
{
    int32_t rank = q->rank;
    int64_t index[POME_MAX_RANK] = {0}, e = q->shape[rank - 1], s = k->shape[rank - 2], ev = v->shape[rank - 1], at = 0;
    do {
        double p[MAX_KEYS], max = -INFINITY, sum = 0;
        int64_t iq[POME_MAX_RANK], ik[POME_MAX_RANK], im[POME_MAX_RANK];
        memcpy(iq, index, sizeof iq);
        memcpy(ik, index, sizeof ik);
        memcpy(im, index, sizeof im);
        if (rank > 2)
            ik[rank - 3] /= groups;
        for (int64_t j = 0; j < s; j++) {
            p[j] = 0;
            for (int64_t c = 0; c < e; c++) {
                iq[rank - 1] = ik[rank - 1] = c;
                ik[rank - 2] = j;
                p[j] += op_test_at_index(q, iq) * op_test_at_index(k, ik);
            }
            p[j] /= sqrt((double)e);
            im[rank - 1] = j;
            if (mask) {
                double m = op_test_at_index(mask, im + rank - mask->rank);
                p[j] += mask->dtype == POME_DTYPE_BOOL ? (m != 0 ? 0 : -INFINITY) : m;
            }
            max = p[j] > max ? p[j] : max;
        }
        for (int64_t j = 0; j < s; j++)
            sum += p[j] = max == -INFINITY ? 0 : exp(p[j] - max);
        for (int64_t c = 0; c < ev; c++) {
            double y = 0;
            ik[rank - 1] = c;
            for (int64_t j = 0; j < s; j++) {
                ik[rank - 2] = j;
                if (p[j] > 0)
                    y += p[j] * op_test_at_index(v, ik);
            }
            assert_true(at < MAX);
            want[at++] = sum > 0 ? y / sum : empty;
        }
        index[rank - 1] = e - 1;
    } while (op_test_next(index, rank, q->shape));
}

typedef struct setup {
    int32_t rank;
    int64_t shape[POME_MAX_RANK]; /* of the query */
    int64_t keys, width_v, groups;
} setup;

static void make_qkv(const setup *s, pome_dtype dtype, pome_tensor *q, pome_tensor *k, pome_tensor *v)
{
    int64_t shape[POME_MAX_RANK];
    memcpy(shape, s->shape, sizeof shape);
    *q = op_test_tensor(POME_DTYPE_F32, s->rank, shape, -3, 3);
    shape[s->rank - 3] /= s->groups;
    shape[s->rank - 2] = s->keys;
    *k = op_test_tensor(dtype, s->rank, shape, -3, 3);
    shape[s->rank - 1] = s->width_v;
    *v = op_test_tensor(dtype, s->rank, shape, -1, 1);
}

static pome_tensor make_mask(const setup *s, pome_dtype dtype)
{
    int64_t shape[POME_MAX_RANK];
    int32_t rank = (int32_t)op_test_random_int(1, s->rank);
    memcpy(shape, s->shape + s->rank - rank, (size_t)rank * sizeof *shape);
    shape[rank - 1] = s->keys;
    for (int32_t d = 0; d < rank - 1; d++)
        if (op_test_random_int(0, 2) == 0)
            shape[d] = 1;
    pome_tensor m = op_test_tensor(dtype, rank, shape, dtype == POME_DTYPE_BOOL ? 0 : -2, dtype == POME_DTYPE_BOOL ? 1 : 2);
    for (int64_t i = 0; dtype != POME_DTYPE_BOOL && i < pome_tensor_count(&m); i++)
        if (op_test_random_int(0, 2) == 0)
            op_test_set(&m, i, i % 2 ? -INFINITY : -1e4);
    return m;
}

static void add_inputs(op_test *t, const pome_tensor *q, const pome_tensor *k, const pome_tensor *v,
                       const pome_tensor *mask)
{
    op_test_in_as(t, "query", q, k->dtype);
    op_test_in(t, "key", k);
    op_test_in(t, "value", v);
    if (mask)
        op_test_in(t, "attn_mask", mask);
}

static void test_against_double(void **unused)
{
    (void)unused;
    for (int round = 0; round < 60; round++) {
        setup s = {.rank = round % 4 ? 4 : 3 + round / 4 % 3, .groups = 1};
        if (s.rank >= 4 && round % 3 == 0)
            s.groups = op_test_random_int(2, 4);
        for (int32_t d = 0; d < s.rank - 2; d++)
            s.shape[d] = op_test_random_int(1, 3);
        s.shape[s.rank - 3] *= s.groups;
        s.shape[s.rank - 2] = op_test_random_int(1, round % 5 ? 6 : 40);
        s.shape[s.rank - 1] = op_test_random_int(1, 40);
        s.keys = op_test_random_int(1, round % 2 ? 20 : 200);
        s.width_v = op_test_random_int(1, 40);
        pome_dtype dtype = round % 2 ? POME_DTYPE_F16 : POME_DTYPE_F32;
        pome_dtype mask_dtype = (pome_dtype[]){POME_DTYPE_BOOL, dtype, dtype}[round % 3];
        pome_tensor q, k, v, mask = make_mask(&s, mask_dtype);
        const pome_tensor *m = round % 7 ? &mask : NULL;
        make_qkv(&s, dtype, &q, &k, &v);
        reference(&q, &k, &v, m, s.groups, 0);
        op_test *t = op_test_begin(s.groups > 1 ? POME_OP_pome_grouped_attention : POME_OP_scaled_dot_product_attention,
                                   POME_OPSET_IOS18);
        add_inputs(t, &q, &k, &v, m);
        if (s.groups > 1)
            op_test_const_int(t, "groups", (int32_t)s.groups);
        if (op_test_run(t) != POME_OK)
            fail_msg("%s", op_test_error(t)->message);
        op_test_expect(t, 0, want, 1e-5, 2e-6);
        op_test_end(t);
        pome_tensor_reset(&q);
        pome_tensor_reset(&k);
        pome_tensor_reset(&v);
        pome_tensor_reset(&mask);
    }
}

/* A causal prompt in one piece and row by row, the keys of later rows masked or not there at all: the same bits. */
static void test_pieces(void **unused)
{
    (void)unused;
    enum { HEADS = 3, LENGTH = 75, PAST = 30, KEYS = LENGTH + PAST, WIDTH = 16 };
    setup s = {.rank = 4, .shape = {1, HEADS, LENGTH, WIDTH}, .keys = KEYS, .width_v = WIDTH, .groups = 1};
    pome_tensor q, k, v, mask = op_test_tensor(POME_DTYPE_F16, 4, (int64_t[]){1, 1, LENGTH, KEYS}, 0, 0);
    make_qkv(&s, POME_DTYPE_F16, &q, &k, &v);
    for (int64_t i = 0; i < LENGTH; i++)
        for (int64_t j = 0; j < KEYS; j++)
            op_test_set(&mask, i * KEYS + j, j > i + PAST ? -INFINITY : 0);
    op_test *whole = op_test_begin(POME_OP_scaled_dot_product_attention, POME_OPSET_IOS18);
    add_inputs(whole, &q, &k, &v, &mask);
    op_test_keep_strides(whole);
    assert_int_equal(op_test_run(whole), POME_OK);
    for (int64_t i = 0; i < LENGTH; i += 7) {
        pome_tensor row_q, row, key, value, parts[2];
        assert_int_equal(pome_tensor_slice(&parts[0], &q, 2, i, i + 1, 1, NULL), POME_OK);
        assert_int_equal(pome_tensor_clone(&row_q, &parts[0], NULL), POME_OK);
        assert_int_equal(pome_tensor_slice(&parts[1], &k, 2, 0, i + PAST + 1, 1, NULL), POME_OK);
        assert_int_equal(pome_tensor_clone(&key, &parts[1], NULL), POME_OK);
        pome_tensor_reset(&parts[1]);
        assert_int_equal(pome_tensor_slice(&parts[1], &v, 2, 0, i + PAST + 1, 1, NULL), POME_OK);
        assert_int_equal(pome_tensor_clone(&value, &parts[1], NULL), POME_OK);
        op_test *alone = op_test_begin(POME_OP_scaled_dot_product_attention, POME_OPSET_IOS18);
        add_inputs(alone, &row_q, &key, &value, NULL);
        assert_int_equal(op_test_run(alone), POME_OK);
        row = *op_test_out(alone, 0);
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t c = 0; c < WIDTH; c++)
                if (op_test_at(&row, h * WIDTH + c) != op_test_at(op_test_out(whole, 0), (h * LENGTH + i) * WIDTH + c))
                    fail_msg("row %lld, head %lld differs alone", (long long)i, (long long)h);
        op_test_end(alone);
        pome_tensor_reset(&parts[0]);
        pome_tensor_reset(&parts[1]);
        pome_tensor_reset(&row_q);
        pome_tensor_reset(&key);
        pome_tensor_reset(&value);
    }
    op_test_end(whole);
    pome_tensor_reset(&q);
    pome_tensor_reset(&k);
    pome_tensor_reset(&v);
    pome_tensor_reset(&mask);
}

/* The lowest half shuts a key out as -infinity does, to the bit, even where the key would be NaN or its score huge; a
 * long row is cut into blocks that many threads share; and a window leaves whole blocks out at either end. */
static void test_closed_keys(void **unused)
{
    (void)unused;
    enum { HEADS = 4, LENGTH = 3, KEYS = 700, WIDTH = 24 };
    setup s = {.rank = 4, .shape = {1, HEADS, LENGTH, WIDTH}, .keys = KEYS, .width_v = WIDTH, .groups = 2};
    pome_tensor q, k, v, mask = op_test_tensor(POME_DTYPE_F16, 4, (int64_t[]){1, 1, LENGTH, KEYS}, -2, 2);
    make_qkv(&s, POME_DTYPE_F16, &q, &k, &v);
    for (int64_t i = 0; i < LENGTH; i++)
        for (int64_t j = 0; j < KEYS; j++) {
            if (i != 1)
                op_test_set(&mask, i * KEYS + j, 0); /* row 1 keeps its random mask inside the window */
            if (j < 150 || j > 600 + i)
                op_test_set(&mask, i * KEYS + j, -INFINITY);
        }
    reference(&q, &k, &v, &mask, 2, 0);
    op_test *t = op_test_begin(POME_OP_pome_grouped_attention, POME_OPSET_IOS18);
    add_inputs(t, &q, &k, &v, &mask);
    op_test_const_int(t, "groups", 2);
    assert_int_equal(op_test_run(t), POME_OK);
    op_test_expect(t, 0, want, 1e-5, 2e-6);
    pome_tensor first;
    assert_int_equal(pome_tensor_clone(&first, op_test_out(t, 0), NULL), POME_OK);
    for (int64_t i = 0; i < LENGTH * KEYS; i++)
        if (op_test_at(&mask, i) == -INFINITY)
            op_test_set(&mask, i, -65504);
    op_test_set(&k, 10 * WIDTH, NAN); /* in a block that no row needs */
    for (int64_t c = 0; c < WIDTH; c++)
        op_test_set(&k, 640 * WIDTH + c, 60000); /* in a block that the rows need in part */
    assert_int_equal(op_test_run(t), POME_OK);
    for (int64_t i = 0; i < HEADS * LENGTH * WIDTH; i++)
        if (op_test_at(op_test_out(t, 0), i) != op_test_at(&first, i))
            fail_msg("element %lld: %.9g, was %.9g", (long long)i, op_test_at(op_test_out(t, 0), i),
                     op_test_at(&first, i));
    op_test_end(t);
    pome_tensor_reset(&first);
    pome_tensor_reset(&q);
    pome_tensor_reset(&k);
    pome_tensor_reset(&v);
    pome_tensor_reset(&mask);
}

/* float32's lowest number is -infinity in fp16: such a row attends to nothing. */
static void test_masked_rows(void **unused)
{
    (void)unused;
    setup s = {.rank = 3, .shape = {1, 2, 4}, .keys = 70, .width_v = 4, .groups = 1};
    for (int fp16 = 0; fp16 < 2; fp16++)
        for (int finite = 0; finite < 2; finite++) {
            pome_tensor q, k, v, mask = op_test_tensor(POME_DTYPE_F16, 2, (int64_t[]){2, 70}, 0, 0);
            make_qkv(&s, POME_DTYPE_F16, &q, &k, &v);
            for (int64_t j = 0; j < 70; j++)
                op_test_set(&mask, j, finite ? -65504 : -3.4e38);
            reference(&q, &k, &v, &mask, 1, fp16 ? NAN : 0);
            op_test *t = op_test_begin(POME_OP_scaled_dot_product_attention, POME_OPSET_IOS18);
            add_inputs(t, &q, &k, &v, &mask);
            op_test_numerics(t, fp16 ? POME_NUMERICS_FP16 : POME_NUMERICS_EXACT);
            assert_int_equal(op_test_run(t), POME_OK);
            op_test_expect(t, 0, want, fp16 ? 1e-3 : 1e-5, finite ? 4e-3 : fp16 ? 1e-3 : 2e-6); /* -65504 eats bits */
            op_test_end(t);
            pome_tensor_reset(&q);
            pome_tensor_reset(&k);
            pome_tensor_reset(&v);
            pome_tensor_reset(&mask);
        }
}

/* Scores beyond fp16's range and far apart; a NaN must show. */
static void test_extremes(void **unused)
{
    (void)unused;
    setup s = {.rank = 3, .shape = {1, 1, 64}, .keys = 3, .width_v = 1, .groups = 1};
    pome_tensor q, k, v;
    make_qkv(&s, POME_DTYPE_F32, &q, &k, &v);
    for (int64_t i = 0; i < 64; i++) {
        op_test_set(&q, i, 1000);
        op_test_set(&k, i, 1000);
        op_test_set(&k, 64 + i, -1000);
        op_test_set(&k, 128 + i, 999);
    }
    reference(&q, &k, &v, NULL, 1, 0);
    op_test *t = op_test_begin(POME_OP_scaled_dot_product_attention, POME_OPSET_IOS18);
    add_inputs(t, &q, &k, &v, NULL);
    assert_int_equal(op_test_run(t), POME_OK);
    op_test_expect(t, 0, want, 1e-6, 0);
    op_test_set(&k, 70, NAN);
    assert_int_equal(op_test_run(t), POME_OK);
    assert_true(isnan(op_test_at(op_test_out(t, 0), 0)));
    op_test_end(t);
    pome_tensor_reset(&q);
    pome_tensor_reset(&k);
    pome_tensor_reset(&v);
}

/* A NaN among keys that are open shows, also where the mask closes everything else, in one block of keys or in several. */
static void test_lone_nan(void **unused)
{
    (void)unused;
    static const int64_t all_keys[] = {5, 300}, at[] = {0, 4, 140, 299};
    for (size_t c = 0; c < 4; c++) {
        int64_t keys = all_keys[c >= 2];
        setup s = {.rank = 3, .shape = {1, 1, 8}, .keys = keys, .width_v = 2, .groups = 1};
        pome_tensor q, k, v, mask = op_test_tensor(POME_DTYPE_F32, 2, (int64_t[]){1, keys}, 0, 0);
        make_qkv(&s, POME_DTYPE_F32, &q, &k, &v);
        for (int64_t j = 0; j < keys; j++)
            if (j != at[c])
                op_test_set(&mask, j, -INFINITY);
        op_test *t = op_test_begin(POME_OP_scaled_dot_product_attention, POME_OPSET_IOS18);
        add_inputs(t, &q, &k, &v, &mask);
        assert_int_equal(op_test_run(t), POME_OK);
        for (int64_t i = 0; i < 2; i++) /* the one key that is open */
            assert_true(fabs(op_test_at(op_test_out(t, 0), i) - op_test_at(&v, at[c] * 2 + i)) < 1e-6);
        op_test_set(&k, at[c] * 8 + 3, NAN);
        assert_int_equal(op_test_run(t), POME_OK);
        for (int64_t i = 0; i < 2; i++)
            assert_true(isnan(op_test_at(op_test_out(t, 0), i)));
        op_test_end(t);
        pome_tensor_reset(&q);
        pome_tensor_reset(&k);
        pome_tensor_reset(&v);
        pome_tensor_reset(&mask);
    }
}

static void test_rejections(void **unused)
{
    (void)unused;
    setup s = {.rank = 3, .shape = {2, 3, 4}, .keys = 5, .width_v = 6, .groups = 1};
    pome_tensor q, k, v, other = op_test_tensor(POME_DTYPE_F32, 3, (int64_t[]){2, 5, 7}, -1, 1);
    make_qkv(&s, POME_DTYPE_F32, &q, &k, &v);
    op_test *t = op_test_begin(POME_OP_scaled_dot_product_attention, POME_OPSET_IOS18);
    add_inputs(t, &q, &other, &v, NULL);
    op_test_expect_failure(t, POME_ERR_FORMAT, "do not fit");
    op_test_end(t);
    t = op_test_begin(POME_OP_scaled_dot_product_attention, POME_OPSET_IOS18);
    add_inputs(t, &q, &k, &v, &other);
    op_test_expect_failure(t, POME_ERR_FORMAT, "attn_mask");
    op_test_end(t);
    pome_tensor_reset(&q);
    pome_tensor_reset(&k);
    pome_tensor_reset(&v);
    pome_tensor_reset(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_double), cmocka_unit_test(test_pieces),     cmocka_unit_test(test_masked_rows),
        cmocka_unit_test(test_closed_keys),
        cmocka_unit_test(test_extremes), cmocka_unit_test(test_lone_nan),       cmocka_unit_test(test_rejections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
