/* Normalizations against loops in double that visit every element by its full index. */
#include "op_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Every element's group (equal indices on the axes that are not in `mask`) and its place among the reduced axes. */
static void group_of(const int64_t *index, const pome_tensor *x, uint32_t mask, int64_t *group, int64_t *place)
{
    *group = *place = 0;
    for (int32_t d = 0; d < x->rank; d++) {
        int64_t *to = mask >> d & 1 ? place : group;
        *to = *to * x->shape[d] + index[d];
    }
}

/* (x - mean) / sqrt(variance + epsilon) * gamma[g(place)] + beta; gamma, beta may be NULL. */
static double *normalize(const pome_tensor *x, uint32_t mask, double epsilon)
{
    int64_t n = pome_tensor_count(x), n_place = 1, index[POME_MAX_RANK] = {0}, group, place;
    for (int32_t d = 0; d < x->rank; d++)
        n_place *= mask >> d & 1 ? x->shape[d] : 1;
    double *mean = calloc((size_t)n + 1, sizeof *mean), *variance = calloc((size_t)n + 1, sizeof *variance);
    double *want = calloc((size_t)n + 1, sizeof *want);
    for (int64_t i = 0; i < n; i++, op_test_next(index, x->rank, x->shape)) {
        group_of(index, x, mask, &group, &place);
        mean[group] += op_test_at(x, i) / (double)n_place;
    }
    for (int64_t i = 0; i < n; i++, op_test_next(index, x->rank, x->shape)) {
        group_of(index, x, mask, &group, &place);
        variance[group] += pow(op_test_at(x, i) - mean[group], 2) / (double)n_place;
    }
    for (int64_t i = 0; i < n; i++, op_test_next(index, x->rank, x->shape)) {
        group_of(index, x, mask, &group, &place);
        want[i] = (op_test_at(x, i) - mean[group]) / sqrt(variance[group] + epsilon);
    }
    free(mean);
    free(variance);
    return want;
}

static void check_layer_norm(int32_t rank, const int64_t *shape, uint32_t mask, double offset)
{
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, rank, shape, offset - 2, offset + 2);
    int32_t axes[POME_MAX_RANK];
    int64_t n_axes = 0, vector_shape[POME_MAX_RANK], index[POME_MAX_RANK] = {0};
    for (int32_t d = 0; d < rank; d++)
        if (mask >> d & 1) {
            vector_shape[n_axes] = shape[d];
            axes[n_axes++] = op_test_random_int(0, 1) ? d : d - rank;
        }
    pome_tensor gamma = op_test_tensor(POME_DTYPE_F32, (int32_t)n_axes, vector_shape, -2, 2);
    pome_tensor beta = op_test_tensor(POME_DTYPE_F32, (int32_t)n_axes, vector_shape, -2, 2);
    bool has_gamma = op_test_random_int(0, 1), has_beta = op_test_random_int(0, 1);
    bool has_epsilon = op_test_random_int(0, 1);
    double epsilon = has_epsilon ? (double)1e-3f : (double)1e-5f;
    op_test *t = op_test_begin(POME_OP_layer_norm, POME_OPSET_IOS17);
    op_test_in(t, "x", &x);
    if (mask != (1u << rank) - 1 || op_test_random_int(0, 1))
        op_test_const_ints(t, "axes", axes, n_axes);
    if (has_gamma)
        op_test_const(t, "gamma", &gamma);
    if (has_beta)
        op_test_const(t, "beta", &beta);
    if (has_epsilon)
        op_test_const_f32(t, "epsilon", 1e-3f);
    if (op_test_run(t) != POME_OK)
        fail_msg("%s", op_test_error(t)->message);
    op_test_expect_shape(t, 0, rank, shape);
    double *want = normalize(&x, mask, epsilon);
    for (int64_t i = 0; i < pome_tensor_count(&x); i++, op_test_next(index, rank, shape)) {
        int64_t group, place;
        group_of(index, &x, mask, &group, &place);
        want[i] = want[i] * (has_gamma ? op_test_at(&gamma, place) : 1) + (has_beta ? op_test_at(&beta, place) : 0);
    }
    op_test_expect(t, 0, want, 1e-6, 1e-7);
    free(want);
    op_test_end(t);
    pome_tensor_reset(&x);
    pome_tensor_reset(&gamma);
    pome_tensor_reset(&beta);
}

static void layer_norm(void **state)
{
    (void)state;
    for (int round = 0; round < 150; round++) {
        int64_t shape[POME_MAX_RANK];
        int32_t rank = (int32_t)op_test_random_int(1, 5);
        op_test_shape(shape, rank, 6, true);
        check_layer_norm(rank, shape, (uint32_t)op_test_random_int(1, (1 << rank) - 1), round % 3 ? 0 : 1000);
    }
    check_layer_norm(3, (int64_t[]){1, 40, 577}, 4, 0);      /* [1, n_tok, d_model] */
    check_layer_norm(4, (int64_t[]){1, 576, 1, 150}, 2, 10); /* [1, d_model, 1, n_tok] */
    check_layer_norm(3, (int64_t[]){3, 130, 70}, 6, 0);
}

/* concat(x, -x) has mean 0 exactly, whatever x is: the RMS norm of converters for the Neural Engine. */
static void layer_norm_as_rms_norm(void **state)
{
    (void)state;
    enum { N = 333 };
    int64_t shape[2] = {1, 2 * N};
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, 2, shape, 50, 300);
    double squares = 0, want[2 * N];
    for (int i = 0; i < N; i++) {
        op_test_set(&x, N + i, -op_test_at(&x, i));
        squares += pow(op_test_at(&x, i), 2);
    }
    for (int i = 0; i < 2 * N; i++)
        want[i] = op_test_at(&x, i) / sqrt(squares / N + (double)1e-5f);
    op_test *t = op_test_begin(POME_OP_layer_norm, POME_OPSET_IOS18);
    op_test_in(t, "x", &x);
    op_test_const_ints(t, "axes", (const int32_t[]){-1}, 1);
    op_test_const_f32(t, "epsilon", 1e-5f);
    assert_int_equal(op_test_run(t), POME_OK);
    op_test_expect(t, 0, want, 2e-7, 0);
    op_test_end(t);
    pome_tensor_reset(&x);
}

static void layer_norm_of_a_wrong_gamma(void **state)
{
    (void)state;
    int64_t shape[2] = {2, 5}, wrong[1] = {4};
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, 2, shape, 0, 1), g = op_test_tensor(POME_DTYPE_F32, 1, wrong, 0, 1);
    op_test *t = op_test_begin(POME_OP_layer_norm, POME_OPSET_IOS15);
    op_test_in(t, "x", &x);
    op_test_const_ints(t, "axes", (const int32_t[]){1}, 1);
    op_test_const(t, "gamma", &g);
    assert_int_not_equal(op_test_run(t), POME_OK);
    assert_non_null(strstr(op_test_error(t)->message, "gamma"));
    op_test_end(t);
    pome_tensor_reset(&x);
    pome_tensor_reset(&g);
}

/* batch_norm (by given moments) and instance_norm (by those of each (n, c)). */
static void per_channel(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        int64_t shape[POME_MAX_RANK], index[POME_MAX_RANK] = {0};
        bool is_batch = round & 1, has_gamma = round & 2, has_beta = round & 4;
        int32_t rank = (int32_t)op_test_random_int(3, is_batch ? 5 : 4);
        op_test_shape(shape, rank, 7, false);
        int64_t n = shape[1];
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, rank, shape, -3, 5);
        pome_tensor v[4]; /* gamma, beta, mean, variance */
        for (int k = 0; k < 4; k++)
            v[k] = op_test_tensor(POME_DTYPE_F32, 1, &n, k == 3 ? 0.1 : -2, 2);
        op_test *t = op_test_begin(is_batch ? POME_OP_batch_norm : POME_OP_instance_norm, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        if (has_gamma)
            op_test_const(t, "gamma", &v[0]);
        if (has_beta)
            op_test_const(t, "beta", &v[1]);
        if (is_batch) {
            op_test_const(t, "mean", &v[2]);
            op_test_const(t, "variance", &v[3]);
        }
        if (op_test_run(t) != POME_OK)
            fail_msg("%s", op_test_error(t)->message);
        uint32_t spatial = ((1u << rank) - 1) & ~3u;
        double *want = normalize(&x, spatial, (double)1e-5f);
        for (int64_t i = 0; i < pome_tensor_count(&x); i++, op_test_next(index, rank, shape)) {
            int64_t c = index[1];
            if (is_batch)
                want[i] = (op_test_at(&x, i) - op_test_at(&v[2], c)) / sqrt(op_test_at(&v[3], c) + (double)1e-5f);
            want[i] = want[i] * (has_gamma ? op_test_at(&v[0], c) : 1) + (has_beta ? op_test_at(&v[1], c) : 0);
        }
        op_test_expect(t, 0, want, 1e-6, 1e-6);
        free(want);
        op_test_end(t);
        pome_tensor_reset(&x);
        for (int k = 0; k < 4; k++)
            pome_tensor_reset(&v[k]);
    }
}

static void l2_norm(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        int64_t shape[POME_MAX_RANK], inner = 1;
        int32_t rank = (int32_t)op_test_random_int(3, 5);
        op_test_shape(shape, rank, 6, false);
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, rank, shape, -3, 5);
        op_test *t = op_test_begin(POME_OP_l2_norm, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        if (op_test_run(t) != POME_OK)
            fail_msg("%s", op_test_error(t)->message);
        for (int32_t d = rank - 3; d < rank; d++)
            inner *= shape[d];
        double *want = calloc((size_t)pome_tensor_count(&x), sizeof *want);
        for (int64_t i = 0; i < pome_tensor_count(&x); i++) {
            double squares = 0;
            for (int64_t k = i / inner * inner; k < (i / inner + 1) * inner; k++)
                squares += pow(op_test_at(&x, k), 2);
            want[i] = op_test_at(&x, i) / sqrt(squares + (double)1e-6f);
        }
        op_test_expect(t, 0, want, 1e-6, 0);
        free(want);
        op_test_end(t);
        pome_tensor_reset(&x);
    }
}

static void local_response_norm(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        int64_t shape[POME_MAX_RANK], index[POME_MAX_RANK] = {0};
        int32_t rank = (int32_t)op_test_random_int(3, 4), size = (int32_t)op_test_random_int(1, 6);
        op_test_shape(shape, rank, 7, false);
        bool has_defaults = round & 1;
        double alpha = (double)(has_defaults ? 1e-4f : 0.5f), beta = has_defaults ? 0.75 : 1.25, k = has_defaults ? 1 : 2;
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, rank, shape, -3, 5);
        op_test *t = op_test_begin(POME_OP_local_response_norm, POME_OPSET_IOS15);
        op_test_in(t, "x", &x);
        op_test_const_int(t, "size", size);
        if (!has_defaults) {
            op_test_const_f32(t, "alpha", (float)alpha);
            op_test_const_f32(t, "beta", (float)beta);
            op_test_const_f32(t, "k", (float)k);
        }
        if (op_test_run(t) != POME_OK)
            fail_msg("%s", op_test_error(t)->message);
        double *want = calloc((size_t)pome_tensor_count(&x), sizeof *want);
        for (int64_t i = 0; i < pome_tensor_count(&x); i++, op_test_next(index, rank, shape)) {
            double squares = 0;
            int64_t at[POME_MAX_RANK];
            memcpy(at, index, sizeof at);
            for (int32_t w = 0; w < size; w++) { /* as torch pads: size / 2 channels before */
                at[1] = index[1] - size / 2 + w;
                if (at[1] >= 0 && at[1] < shape[1])
                    squares += pow(op_test_at_index(&x, at), 2);
            }
            want[i] = op_test_at(&x, i) / pow(k + alpha * squares / size, beta);
        }
        op_test_expect(t, 0, want, 1e-6, 0);
        free(want);
        op_test_end(t);
        pome_tensor_reset(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layer_norm),  cmocka_unit_test(layer_norm_as_rms_norm),
        cmocka_unit_test(layer_norm_of_a_wrong_gamma), cmocka_unit_test(per_channel),
        cmocka_unit_test(l2_norm),     cmocka_unit_test(local_response_norm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
