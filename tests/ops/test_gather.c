/* Gather from tables as language models have them: half-precision, compressed, strided, large, under all index
 * types; scatter on sizes that are cut into pieces. Results against loops over the outputs. */
#include "op_test.h"

#include <stdlib.h>
#include <string.h>

#include "base/f16.h"
#include "ops/encoded.h"

/* ---- compressed tables ---- */
typedef struct coded {
    pome_program *program;
    pome_value *table;
    const struct pome_encoded *encoded;
} coded;

static pome_value *constant(pome_program *program, pome_function *fn, void *data, pome_dtype dtype, int32_t rank,
                            const int64_t *shape)
{
    pome_const *k = POME_NEW(program->arena, pome_const);
    assert_non_null(k);
    k->t = pome_tensor_borrow(data, dtype, rank, shape);
    k->size_bytes = pome_tensor_size_bytes(&k->t);
    pome_value *v = pome_value_create_const(fn, "", k);
    assert_non_null(v);
    return v;
}

enum { ROWS = 50, WIDTH = 64, BLOCK = 32 };

/* scale[row][block] * (code - offset) with int4 codes; every product is exact in half. */
static coded make_table(double *want)
{
    static uint8_t codes[ROWS * WIDTH / 2], offsets[ROWS * WIDTH / BLOCK / 2];
    static uint16_t scales[ROWS * WIDTH / BLOCK];
    int value[ROWS * WIDTH], offset[ROWS * WIDTH / BLOCK];
    coded c = {.program = pome_program_create(0)};
    assert_non_null(c.program);
    pome_function *fn = pome_function_create(c.program, "main", POME_OPSET_IOS18);
    assert_non_null(fn);
    memset(codes, 0, sizeof codes);
    memset(offsets, 0, sizeof offsets);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        value[i] = (int)op_test_random_int(-8, 7);
        codes[i / 2] |= (uint8_t)((value[i] & 15) << (i % 2 * 4));
    }
    for (int i = 0; i < ROWS * WIDTH / BLOCK; i++) {
        offset[i] = (int)op_test_random_int(-8, 7);
        offsets[i / 2] |= (uint8_t)((offset[i] & 15) << (i % 2 * 4));
        scales[i] = pome_f32_to_f16((float)op_test_random_int(1, 64) / 32);
    }
    for (int i = 0; i < ROWS * WIDTH; i++)
        want[i] = (double)pome_f16_to_f32(scales[i / BLOCK]) * (value[i] - offset[i / BLOCK]);
    int64_t shape[2] = {ROWS, WIDTH}, blocks[2] = {ROWS, WIDTH / BLOCK};
    pome_value *in[3];
    in[P_constexpr_blockwise_shift_scale_data] = constant(c.program, fn, codes, POME_DTYPE_I4, 2, shape);
    in[P_constexpr_blockwise_shift_scale_scale] = constant(c.program, fn, scales, POME_DTYPE_F16, 2, blocks);
    in[P_constexpr_blockwise_shift_scale_offset] = constant(c.program, fn, offsets, POME_DTYPE_I4, 2, blocks);
    pome_value *const *const lists[] = {&in[0], &in[1], &in[2]};
    pome_op *op = pome_op_create(fn, pome_opdef_get(POME_OP_constexpr_blockwise_shift_scale), "table", lists,
                                 (const uint32_t[]){1, 1, 1}, 1);
    assert_non_null(op);
    pome_error err;
    if (pome_encoded_create(&c.encoded, op, 0, c.program->arena, &err) != POME_OK)
        fail_msg("%s", err.message);
    pome_const *k = POME_NEW(c.program->arena, pome_const);
    assert_non_null(k);
    k->t = (pome_tensor){.dtype = POME_DTYPE_F16, .rank = 2, .shape = {ROWS, WIDTH}, .stride = {WIDTH, 1}};
    k->encoded_by = op;
    k->encoded = c.encoded;
    c.table = pome_value_create_const(fn, "table", k);
    assert_non_null(c.table);
    return c;
}

static void gather_decodes_rows(void **state)
{
    (void)state;
    static double want[ROWS * WIDTH];
    coded c = make_table(want);
    int64_t n = 300;
    pome_tensor picks = op_test_tensor(POME_DTYPE_U8, 1, &n, 0, ROWS + 5); /* some beyond the table */
    pome_function *fn = c.program->functions[0];
    pome_type type = {.dtype = POME_DTYPE_U8, .rank = 1, .dim = {n}};
    pome_value *in[] = {c.table, pome_value_create(fn, "picks", &type)};
    pome_value *const *lists[5] = {&in[0], &in[1]};
    uint32_t counts[5] = {1, 1};
    pome_op *op = pome_op_create(fn, pome_opdef_get(POME_OP_gather), "gather", lists, counts, 1);
    assert_non_null(op);
    pome_kernels kernels;
    pome_kernels_init(&kernels, POME_CPU_GENERIC);
    for (int n_threads = 1; n_threads <= 3; n_threads += 2) {
        pome_pool *pool = NULL;
        assert_int_equal(pome_pool_create(&pool, n_threads, NULL), POME_OK);
        pome_tensor out = op_test_tensor(POME_DTYPE_F32, 2, (int64_t[]){n, WIDTH}, 77, 78);
        const pome_tensor *tensors[] = {&c.table->konst->t, &picks};
        pome_run r = {
            .op = op, .opset = POME_OPSET_IOS18, .pool = pool, .kernels = &kernels, .in = tensors, .out = &out};
        assert_true(pome_op_impl_find(POME_OP_gather)->encoded_ok & POME_BIT(P_gather_x));
        assert_int_equal(pome_op_impl_find(POME_OP_gather)->run(&r, NULL), POME_OK);
        for (int64_t i = 0; i < n * WIDTH; i++) {
            int row = ((uint8_t *)picks.data)[i / WIDTH];
            assert_true(op_test_at(&out, i) == (row < ROWS ? want[row * WIDTH + i % WIDTH] : 0));
        }
        pome_tensor_reset(&out);
        pome_pool_destroy(&pool);
    }
    pome_tensor_reset(&picks);
    pome_program_destroy(&c.program);
}

/* ---- large tables: cut into pieces, from any strides, in half ---- */
static void gather_large(void **state)
{
    (void)state;
    static const pome_dtype tables[] = {POME_DTYPE_F16, POME_DTYPE_F32, POME_DTYPE_I8};
    static const pome_dtype indices[] = {POME_DTYPE_I32, POME_DTYPE_I16, POME_DTYPE_U16};
    for (int i = 0; i < 3; i++)
        for (int axis = 0; axis < 3; axis++) {
            int64_t shape[3] = {40, 30, 20}, picks_shape[2] = {3, 50};
            pome_tensor x = op_test_tensor(tables[i], 3, shape, -100, 100);
            pome_tensor picks = op_test_tensor(indices[i], 2, picks_shape, -3, (double)shape[axis] + 2);
            int64_t want_shape[4];
            int32_t rank = 0;
            for (int d = 0; d < 3; d++) {
                if (d != axis) {
                    want_shape[rank++] = shape[d];
                    continue;
                }
                want_shape[rank++] = 3;
                want_shape[rank++] = 50;
            }
            int64_t count = 150 * 40 * 30 * 20 / shape[axis], index[4] = {0}, at = 0;
            double *want = malloc((size_t)count * sizeof *want);
            assert_non_null(want);
            do {
                int64_t from[3], *k = index;
                int64_t pick = 0;
                for (int d = 0; d < 3; d++) {
                    if (d == axis) {
                        pick = (int64_t)op_test_at(&picks, k[0] * 50 + k[1]);
                        from[d] = pick;
                        k += 2;
                    } else {
                        from[d] = *k++;
                    }
                }
                want[at++] = pick < 0 || pick >= shape[axis] ? 0 : op_test_at_index(&x, from);
            } while (op_test_next(index, 4, want_shape));
            op_test *t = op_test_begin(POME_OP_gather, POME_OPSET_IOS17);
            op_test_in(t, "x", &x);
            op_test_in(t, "indices", &picks);
            op_test_const_int(t, "axis", axis - 3);
            assert_int_equal(op_test_run(t), POME_OK);
            op_test_expect_shape(t, 0, 4, want_shape);
            op_test_expect(t, 0, want, 0, 0);
            op_test_end(t);
            free(want);
            pome_tensor_reset(&x);
            pome_tensor_reset(&picks);
        }
}

static void gather_along_axis_large(void **state)
{
    (void)state;
    int64_t shape[3] = {20, 50, 30}, picks_shape[3] = {20, 70, 30};
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, 3, shape, -1, 1);
    pome_tensor picks = op_test_tensor(POME_DTYPE_I32, 3, picks_shape, -2, 51);
    double *want = malloc(20 * 70 * 30 * sizeof *want);
    assert_non_null(want);
    for (int64_t i = 0; i < 20 * 70 * 30; i++) {
        int64_t from[3] = {i / 2100, (int64_t)op_test_at(&picks, i), i % 30};
        want[i] = from[1] < 0 || from[1] >= 50 ? 0 : op_test_at_index(&x, from);
    }
    op_test *t = op_test_begin(POME_OP_gather_along_axis, POME_OPSET_IOS17);
    op_test_in(t, "x", &x);
    op_test_in(t, "indices", &picks);
    op_test_const_int(t, "axis", 1);
    assert_int_equal(op_test_run(t), POME_OK);
    op_test_expect(t, 0, want, 0, 0);
    op_test_end(t);
    free(want);
    pome_tensor_reset(&x);
    pome_tensor_reset(&picks);
}

/* ---- large scatter: many updates on the same rows, in order ---- */
static void scatter_large(void **state)
{
    (void)state;
    static const char *const modes[] = {"add", "update", "max"};
    for (int m = 0; m < 3; m++)
        for (int axis = 0; axis < 2; axis++) {
            int64_t shape[2] = {12, 9000}, n = 40, updates_shape[2] = {12, 9000};
            updates_shape[axis] = n;
            pome_tensor data = op_test_tensor(POME_DTYPE_F32, 2, shape, -1, 1);
            pome_tensor picks = op_test_tensor(POME_DTYPE_I32, 1, &n, -1, (double)shape[axis]);
            pome_tensor updates = op_test_tensor(POME_DTYPE_F32, 2, updates_shape, -1, 1);
            double *want = malloc(12 * 9000 * sizeof *want);
            assert_non_null(want);
            for (int64_t i = 0; i < 12 * 9000; i++)
                want[i] = op_test_at(&data, i);
            int64_t index[2] = {0};
            do {
                int64_t pick = (int64_t)op_test_at(&picks, index[axis]), to[2] = {index[0], index[1]};
                if (pick < 0 || pick >= shape[axis])
                    continue;
                to[axis] = pick;
                double u = op_test_at_index(&updates, index), *d = &want[to[0] * 9000 + to[1]];
                *d = m == 0 ? (double)((float)*d + (float)u) : m == 1 || u > *d ? u : *d; /* sums round at each step */
            } while (op_test_next(index, 2, updates_shape));
            op_test *t = op_test_begin(POME_OP_scatter, POME_OPSET_IOS17);
            op_test_in(t, "data", &data);
            op_test_in(t, "indices", &picks);
            op_test_in(t, "updates", &updates);
            op_test_const_int(t, "axis", axis);
            op_test_const_str(t, "mode", modes[m]);
            assert_int_equal(op_test_run(t), POME_OK);
            op_test_expect(t, 0, want, 0, 0);
            op_test_end(t);
            free(want);
            pome_tensor_reset(&data);
            pome_tensor_reset(&picks);
            pome_tensor_reset(&updates);
        }
}

/* Integers wrap, and dividing by zero or the least by -1 does not trap. */
static void scatter_integer_edges(void **state)
{
    (void)state;
    static const struct {
        const char *mode;
        double data, update, want;
    } cases[] = {{"add", 2147483647, 1, -2147483648.0},   {"sub", -2147483648.0, 1, 2147483647},
                 {"mul", 65536, 65537, 65536},            {"div", 7, 0, 0},
                 {"div", -2147483648.0, -1, -2147483648.0}, {"div", -7, 2, -3},
                 {"max", -5, 3, 3},                       {"min", -5, 3, -5}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t one = 1;
        pome_tensor data = op_test_tensor_of(POME_DTYPE_I32, 1, &one, &cases[i].data);
        pome_tensor updates = op_test_tensor_of(POME_DTYPE_I32, 1, &one, &cases[i].update);
        pome_tensor picks = op_test_tensor_of(POME_DTYPE_I32, 1, &one, (double[]){0});
        op_test *t = op_test_begin(POME_OP_scatter, POME_OPSET_IOS15);
        op_test_in(t, "data", &data);
        op_test_in(t, "indices", &picks);
        op_test_in(t, "updates", &updates);
        op_test_const_str(t, "mode", cases[i].mode);
        assert_int_equal(op_test_run(t), POME_OK);
        op_test_expect(t, 0, &cases[i].want, 0, 0);
        op_test_end(t);
        pome_tensor_reset(&data);
        pome_tensor_reset(&updates);
        pome_tensor_reset(&picks);
    }
}

static void empty_gather_and_scatter(void **state)
{
    (void)state;
    int64_t none[2] = {0, 4}, zero = 0, two = 2;
    pome_tensor table = op_test_tensor(POME_DTYPE_F32, 2, none, 0, 0);
    pome_tensor picks = op_test_tensor_of(POME_DTYPE_I32, 1, &two, (double[]){0, 3});
    pome_tensor no_picks = op_test_tensor(POME_DTYPE_I32, 1, &zero, 0, 0);
    op_test *t = op_test_begin(POME_OP_gather, POME_OPSET_IOS16);
    op_test_in(t, "x", &table);
    op_test_in(t, "indices", &picks);
    assert_int_equal(op_test_run(t), POME_OK);
    op_test_expect(t, 0, (double[8]){0}, 0, 0);
    op_test_end(t);
    t = op_test_begin(POME_OP_gather, POME_OPSET_IOS17);
    op_test_in(t, "x", &table);
    op_test_in(t, "indices", &no_picks);
    assert_int_equal(op_test_run(t), POME_OK);
    op_test_expect_shape(t, 0, 2, none);
    op_test_end(t);
    int64_t full[2] = {3, 4};
    pome_tensor data = op_test_tensor(POME_DTYPE_F32, 2, full, -1, 1);
    double want[12];
    for (int i = 0; i < 12; i++)
        want[i] = op_test_at(&data, i);
    t = op_test_begin(POME_OP_scatter, POME_OPSET_IOS17);
    op_test_in(t, "data", &data);
    op_test_in(t, "indices", &no_picks);
    op_test_in(t, "updates", &table);
    assert_int_equal(op_test_run(t), POME_OK);
    op_test_expect(t, 0, want, 0, 0);
    op_test_end(t);
    pome_tensor_reset(&data);
    pome_tensor_reset(&table);
    pome_tensor_reset(&picks);
    pome_tensor_reset(&no_picks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gather_decodes_rows),     cmocka_unit_test(gather_large),
        cmocka_unit_test(gather_along_axis_large), cmocka_unit_test(scatter_large),
        cmocka_unit_test(scatter_integer_edges),   cmocka_unit_test(empty_gather_and_scatter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
