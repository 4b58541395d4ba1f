/* Operators that move elements: which are answered by views alone, sizes large enough to be shared by threads,
 * every element type, high ranks, empty tensors. The small cases are in test_indexing_cases.c. */
#include "op_test.h"

#include <stdlib.h>
#include <string.h>

static const pome_dtype all_types[] = {POME_DTYPE_F32, POME_DTYPE_F16, POME_DTYPE_I8,  POME_DTYPE_U8, POME_DTYPE_I16,
                                       POME_DTYPE_U16, POME_DTYPE_I32, POME_DTYPE_U32, POME_DTYPE_BOOL};
enum { N_TYPES = sizeof all_types / sizeof all_types[0] };

static double *room(int64_t n)
{
    double *p = malloc((size_t)(n ? n : 1) * sizeof *p);
    assert_non_null(p);
    return p;
}

/* Runs t, compares output 0, ends t. */
static void finish(op_test *t, int32_t rank, const int64_t *shape, const double *want, bool is_view)
{
    if (op_test_run(t) != POME_OK)
        fail_msg("%s", op_test_error(t)->message);
    op_test_expect_shape(t, 0, rank, shape);
    op_test_expect(t, 0, want, 0, 0);
    assert_int_equal(op_test_was_view(t), is_view);
    op_test_end(t);
}

static void transpose_of_everything(void **state)
{
    (void)state;
    static const struct {
        int32_t rank;
        int64_t shape[6];
        int32_t perm[6];
    } cases[] = {{3, {70, 33, 50}, {2, 0, 1}},
                 {3, {70, 33, 50}, {0, 2, 1}},
                 {2, {600, 130}, {1, 0}},
                 {4, {1, 9, 300, 16}, {0, 2, 1, 3}},
                 {6, {2, 3, 4, 3, 2, 5}, {5, 3, 1, 0, 2, 4}},
                 {3, {4, 0, 5}, {2, 1, 0}},
                 {1, {5}, {0}},
                 {0, {0}, {0}}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (int k = 0; k < N_TYPES; k++) {
            if (c < 4 && k > 2)
                continue;
            pome_tensor x = op_test_tensor(all_types[k], cases[c].rank, cases[c].shape, -100, 100);
            int64_t shape[6] = {0}, index[6] = {0}, at = 0, n = pome_tensor_count(&x);
            double *want = room(n);
            for (int32_t d = 0; d < cases[c].rank; d++)
                shape[d] = cases[c].shape[cases[c].perm[d]];
            do {
                int64_t from[6] = {0};
                for (int32_t d = 0; d < cases[c].rank; d++)
                    from[cases[c].perm[d]] = index[d];
                if (n)
                    want[at++] = op_test_at_index(&x, from);
            } while (n && op_test_next(index, cases[c].rank, shape));
            op_test *t = op_test_begin(POME_OP_transpose, POME_OPSET_IOS17);
            op_test_in(t, "x", &x);
            op_test_const_ints(t, "perm", cases[c].perm, cases[c].rank);
            finish(t, cases[c].rank, shape, want, true);
            free(want);
            pome_tensor_reset(&x);
        }
}

static void views_cost_nothing(void **state)
{
    (void)state;
    for (int k = 0; k < N_TYPES; k++) {
        int64_t shape[3] = {4, 1, 6};
        pome_tensor x = op_test_tensor(all_types[k], 3, shape, -100, 100);
        double same[24], want[24];
        for (int i = 0; i < 24; i++)
            same[i] = op_test_at(&x, i);
        op_test *t = op_test_begin(POME_OP_reshape, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        op_test_const_ints(t, "shape", (int32_t[]){2, 3, -1, 2}, 4);
        finish(t, 4, (int64_t[]){2, 3, 2, 2}, same, true);
        t = op_test_begin(POME_OP_expand_dims, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        op_test_const_ints(t, "axes", (int32_t[]){0, -1}, 2);
        finish(t, 5, (int64_t[]){1, 4, 1, 6, 1}, same, true);
        t = op_test_begin(POME_OP_squeeze, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        op_test_const_ints(t, "axes", (int32_t[]){1}, 1);
        finish(t, 2, (int64_t[]){4, 6}, same, true);
        t = op_test_begin(POME_OP_identity, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        finish(t, 3, shape, same, true);
        t = op_test_begin(POME_OP_slice_by_index, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        op_test_const_ints(t, "begin", (int32_t[]){-1, 0, 5}, 3);
        op_test_const_ints(t, "end", (int32_t[]){0, 0, 0}, 3);
        op_test_const_ints(t, "stride", (int32_t[]){-2, 1, -2}, 3);
        op_test_const_bools(t, "end_mask", (bool[]){true, false, false}, 3);
        op_test_const_bools(t, "squeeze_mask", (bool[]){false, true, false}, 3);
        for (int i = 0; i < 6; i++)
            want[i] = same[(3 - i / 3 * 2) * 6 + 5 - i % 3 * 2];
        finish(t, 2, (int64_t[]){2, 3}, want, true);
        t = op_test_begin(POME_OP_reverse, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        for (int i = 0; i < 24; i++)
            want[i] = same[23 - i];
        finish(t, 3, shape, want, true);
        t = op_test_begin(POME_OP_tile, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        op_test_const_ints(t, "reps", (int32_t[]){1, 1000, 1}, 3);
        double *tiled = room(24000);
        for (int i = 0; i < 24000; i++)
            tiled[i] = same[i / 6000 * 6 + i % 6];
        finish(t, 3, (int64_t[]){4, 1000, 6}, tiled, true);
        free(tiled);
        t = op_test_begin(POME_OP_split, POME_OPSET_IOS17);
        op_test_outputs(t, 2);
        op_test_in(t, "x", &x);
        op_test_const_ints(t, "split_sizes", (int32_t[]){1, 5}, 2);
        op_test_const_int(t, "axis", 2);
        assert_int_equal(op_test_run(t), POME_OK);
        assert_true(op_test_was_view(t));
        for (int i = 0; i < 20; i++)
            want[i] = same[i / 5 * 6 + 1 + i % 5];
        op_test_expect(t, 1, want, 0, 0);
        op_test_end(t);
        pome_tensor_reset(&x);
    }
}

static void concat_large(void **state)
{
    (void)state;
    static const pome_dtype types[] = {POME_DTYPE_F32, POME_DTYPE_F16, POME_DTYPE_I32};
    for (int axis = 0; axis < 3; axis++)
        for (int interleaved = 0; interleaved < 2; interleaved++) {
            int64_t shape[3] = {24, 40, 30}, other[3] = {24, 40, 30}, out[3] = {24, 40, 30}, index[3] = {0}, at = 0;
            if (!interleaved)
                other[axis] = 7;
            out[axis] = shape[axis] + other[axis];
            pome_tensor a = op_test_tensor(types[axis], 3, shape, -100, 100);
            pome_tensor b = op_test_tensor(types[axis], 3, other, -100, 100);
            double *want = room(out[0] * out[1] * out[2]);
            do {
                int64_t from[3] = {index[0], index[1], index[2]};
                bool is_second = interleaved ? from[axis] % 2 : from[axis] >= shape[axis];
                from[axis] = interleaved ? from[axis] / 2 : is_second ? from[axis] - shape[axis] : from[axis];
                want[at++] = op_test_at_index(is_second ? &b : &a, from);
            } while (op_test_next(index, 3, out));
            op_test *t = op_test_begin(POME_OP_concat, POME_OPSET_IOS15);
            op_test_in(t, "values", &a);
            op_test_in(t, "values", &b);
            op_test_const_int(t, "axis", axis - 3);
            op_test_const_bool(t, "interleave", interleaved);
            finish(t, 3, out, want, false);
            free(want);
            pome_tensor_reset(&a);
            pome_tensor_reset(&b);
        }
}

static void tile_and_pad_large(void **state)
{
    (void)state;
    int64_t shape[3] = {3, 40, 50}, tiled[3] = {6, 40, 150}, padded[3] = {3, 70, 62}, index[3] = {0}, at = 0;
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, 3, shape, -100, 100);
    double *want = room(6 * 40 * 150);
    do
        want[at++] = op_test_at_index(&x, (int64_t[]){index[0] % 3, index[1], index[2] % 50});
    while (op_test_next(index, 3, tiled));
    op_test *t = op_test_begin(POME_OP_tile, POME_OPSET_IOS15);
    op_test_in(t, "x", &x);
    op_test_const_ints(t, "reps", (int32_t[]){2, 1, 3}, 3);
    finish(t, 3, tiled, want, false);
    static const char *const modes[] = {"constant", "reflect", "replicate"};
    for (int m = 0; m < 3; m++) {
        memset(index, 0, sizeof index);
        at = 0;
        do {
            int64_t from[3] = {index[0], index[1] - 10, index[2] - 5};
            bool is_margin = false;
            for (int d = 1; d < 3; d++) {
                int64_t n = shape[d], v = from[d];
                is_margin |= v < 0 || v >= n;
                if (m == 1)
                    v = v < 0 ? -v : v >= n ? 2 * n - 2 - v : v;
                else
                    v = v < 0 ? 0 : v >= n ? n - 1 : v;
                from[d] = v;
            }
            want[at++] = m == 0 && is_margin ? 0 : op_test_at_index(&x, from);
        } while (op_test_next(index, 3, padded));
        t = op_test_begin(POME_OP_pad, POME_OPSET_IOS15);
        op_test_in(t, "x", &x);
        op_test_const_ints(t, "pad", (int32_t[]){10, 20, 5, 7}, 4);
        op_test_const_str(t, "mode", modes[m]);
        finish(t, 3, padded, want, false);
    }
    free(want);
    pome_tensor_reset(&x);
}

static void empty_tensors(void **state)
{
    (void)state;
    int64_t shape[2] = {0, 3}, some[2] = {2, 3};
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, 2, shape, 0, 0), y = op_test_tensor(POME_DTYPE_F32, 2, some, -1, 1);
    double want[12] = {0};
    for (int i = 0; i < 6; i++)
        want[i] = op_test_at(&y, i);
    op_test *t = op_test_begin(POME_OP_concat, POME_OPSET_IOS15);
    op_test_in(t, "values", &x);
    op_test_in(t, "values", &y);
    op_test_in(t, "values", &x);
    op_test_const_int(t, "axis", 0);
    finish(t, 2, some, want, false);
    t = op_test_begin(POME_OP_reshape, POME_OPSET_IOS15);
    op_test_in(t, "x", &x);
    op_test_const_ints(t, "shape", (int32_t[]){3, -1}, 2);
    finish(t, 2, (int64_t[]){3, 0}, want, true);
    t = op_test_begin(POME_OP_tile, POME_OPSET_IOS15);
    op_test_in(t, "x", &x);
    op_test_const_ints(t, "reps", (int32_t[]){4, 2}, 2);
    finish(t, 2, (int64_t[]){0, 6}, want, false);
    t = op_test_begin(POME_OP_slice_by_index, POME_OPSET_IOS15);
    op_test_in(t, "x", &y);
    op_test_const_ints(t, "begin", (int32_t[]){2, 0}, 2);
    op_test_const_ints(t, "end", (int32_t[]){2147483647, 2147483647}, 2);
    finish(t, 2, shape, want, true);
    t = op_test_begin(POME_OP_pad, POME_OPSET_IOS15);
    op_test_in(t, "x", &x);
    op_test_const_ints(t, "pad", (int32_t[]){1, 1, 0, 1}, 4);
    op_test_const_f32(t, "constant_val", 2);
    finish(t, 2, (int64_t[]){2, 4}, (double[8]){2, 2, 2, 2, 2, 2, 2, 2}, false);
    t = op_test_begin(POME_OP_non_zero, POME_OPSET_IOS15);
    op_test_in(t, "x", &x);
    finish(t, 2, (int64_t[]){0, 2}, want, false);
    t = op_test_begin(POME_OP_reverse, POME_OPSET_IOS15);
    op_test_in(t, "x", &x);
    finish(t, 2, shape, want, true);
    t = op_test_begin(POME_OP_band_part, POME_OPSET_IOS15);
    op_test_in(t, "x", &x);
    op_test_const_int(t, "lower", 0);
    finish(t, 2, shape, want, false);
    pome_tensor_reset(&x);
    pome_tensor_reset(&y);
}

static void reshape_like_takes_sizes(void **state)
{
    (void)state;
    int64_t shape[2] = {6, 20}, first[3] = {2, 3, 4}, second[3] = {1, 5, 4};
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, 2, shape, -1, 1), a = op_test_tensor(POME_DTYPE_F16, 3, first, 0, 0),
                b = op_test_tensor(POME_DTYPE_BOOL, 3, second, 0, 0);
    double want[120];
    for (int i = 0; i < 120; i++)
        want[i] = op_test_at(&x, i);
    op_test *t = op_test_begin(POME_OP_reshape_like, POME_OPSET_IOS17);
    op_test_in(t, "x", &x);
    op_test_in(t, "ref_tensors", &a);
    op_test_in(t, "ref_tensors", &b);
    op_test_const_int(t, "begins", 0);
    op_test_const_int(t, "begins", 1);
    op_test_const_int(t, "ends", 2);
    op_test_const_int(t, "ends", 0);
    op_test_const_bool(t, "end_masks", false);
    op_test_const_bool(t, "end_masks", true);
    finish(t, 4, (int64_t[]){2, 3, 5, 4}, want, true);
    pome_tensor_reset(&x);
    pome_tensor_reset(&a);
    pome_tensor_reset(&b);
}

static void mismatches_are_refused(void **state)
{
    (void)state;
    int64_t shape[2] = {2, 3}, other[2] = {2, 4};
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, 2, shape, -1, 1),
                y = op_test_tensor(POME_DTYPE_F32, 2, other, -1, 1);
    static const struct {
        pome_op_id id;
        const char *param;
        int32_t values[4];
        int64_t n;
    } cases[] = {{POME_OP_reshape, "shape", {4, 2}, 2},      {POME_OP_reshape, "shape", {-1, -1}, 2},
                 {POME_OP_reshape, "shape", {-1, 4}, 2},     {POME_OP_transpose, "perm", {0, 2}, 2},
                 {POME_OP_transpose, "perm", {0, 0}, 2},     {POME_OP_reverse, "axes", {2}, 1},
                 {POME_OP_expand_dims, "axes", {4}, 1},      {POME_OP_squeeze, "axes", {2}, 1},
                 {POME_OP_tile, "reps", {1}, 1},             {POME_OP_pad, "pad", {1, 1, 1}, 3},
                 {POME_OP_pad, "pad", {-1, 0, 0, 0}, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        op_test *t = op_test_begin(cases[i].id, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        op_test_const_ints(t, cases[i].param, cases[i].values, cases[i].n);
        if (op_test_run(t) == POME_OK)
            fail_msg("case %d was accepted", (int)i);
        op_test_end(t);
    }
    for (int is_stack = 0; is_stack < 2; is_stack++) {
        op_test *t = op_test_begin(is_stack ? POME_OP_stack : POME_OP_concat, POME_OPSET_IOS17);
        op_test_in(t, "values", &x);
        op_test_in(t, "values", &y);
        op_test_const_int(t, "axis", 0);
        assert_int_not_equal(op_test_run(t), POME_OK);
        op_test_end(t);
    }
    pome_tensor_reset(&x);
    pome_tensor_reset(&y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transpose_of_everything),  cmocka_unit_test(views_cost_nothing),
        cmocka_unit_test(concat_large),             cmocka_unit_test(tile_and_pad_large),
        cmocka_unit_test(empty_tensors),            cmocka_unit_test(reshape_like_takes_sizes),
        cmocka_unit_test(mismatches_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
