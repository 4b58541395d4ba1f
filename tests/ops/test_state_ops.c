/* States: updates in place on half-precision memory, views of a state written into that state, write_state. */
#include "op_test.h"

#include <stdlib.h>
#include <string.h>

#include "base/f16.h"

/* ---- one operator in a program of its own, run on memory that the test owns ---- */
typedef struct bench {
    pome_program *program;
    pome_function *fn;
    pome_kernels kernels;
    pome_pool *pool;
} bench;

static void bench_begin(bench *b, int n_threads)
{
    b->program = pome_program_create(0);
    assert_non_null(b->program);
    b->fn = pome_function_create(b->program, "main", POME_OPSET_IOS18);
    assert_non_null(b->fn);
    pome_kernels_init(&b->kernels, POME_CPU_GENERIC);
    assert_int_equal(pome_pool_create(&b->pool, n_threads, NULL), POME_OK);
}

static void bench_end(bench *b)
{
    pome_pool_destroy(&b->pool);
    pome_program_destroy(&b->program);
}

static pome_value *value_of(const bench *b, const char *name, const pome_tensor *t, pome_type_kind kind)
{
    pome_type type = {.kind = kind, .dtype = t->dtype, .rank = t->rank};
    memcpy(type.dim, t->shape, sizeof t->shape);
    pome_value *v = pome_value_create(b->fn, name, &type);
    assert_non_null(v);
    return v;
}

/* in[p] for every parameter of the row, NULL where absent. */
static pome_op *op_of(const bench *b, pome_op_id id, pome_value *const *in, uint32_t n_out)
{
    const pome_opdef *def = pome_opdef_get(id);
    pome_value *const *lists[16];
    uint32_t counts[16];
    for (uint32_t p = 0; p < def->n_params; p++) {
        lists[p] = &in[p];
        counts[p] = in[p] != NULL;
    }
    pome_op *op = pome_op_create(b->fn, def, def->name, lists, counts, n_out);
    assert_non_null(op);
    return op;
}

/* Runs op with tensors in the order of op->in; returns its status and how much scratch it asked for. */
static pome_status run_op(const bench *b, const pome_op *op, const pome_tensor *const *in, pome_tensor *out,
                          size_t *scratch_size, pome_error *err)
{
    const pome_op_impl *impl = pome_op_impl_find(op->def->id);
    assert_non_null(impl);
    pome_run r = {.op = op,
                  .opset = POME_OPSET_IOS18,
                  .numerics = POME_NUMERICS_EXACT,
                  .pool = b->pool,
                  .kernels = &b->kernels,
                  .in = in,
                  .out = out};
    *scratch_size = impl->scratch ? impl->scratch(&r) : 0;
    void *scratch = *scratch_size ? malloc(*scratch_size) : NULL;
    r.scratch = scratch;
    pome_status status = impl->run(&r, err);
    free(scratch);
    return status;
}

static pome_tensor ints(int32_t *values, int64_t n)
{
    return pome_tensor_borrow(values, POME_DTYPE_I32, 1, &n);
}

static uint16_t *half_at(const pome_tensor *t, const int64_t *index)
{
    int64_t at = 0;
    for (int32_t d = 0; d < t->rank; d++)
        at += index[d] * t->stride[d];
    return (uint16_t *)t->data + at;
}

/* Values that lie between two halves, ties among them. */
static float between_halves(void)
{
    float h = pome_f16_to_f32((uint16_t)op_test_random_int(0, 0x7bff)); /* a finite half */
    float step = h < 0x1p-14f ? 0x1p-24f : pome_f16_to_f32((uint16_t)(pome_f32_to_f16(h) + 1)) - h;
    static const float parts[] = {0, 0.25f, 0.5f, 0.75f};
    float f = step > 0 && step < 100 ? h + step * parts[op_test_random_int(0, 3)] : h;
    return op_test_random_int(0, 1) ? -f : f;
}

static void in_place_update_writes_only_the_region(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        bench b;
        bench_begin(&b, round % 2 ? 3 : 1);
        int64_t shape[4], part[4];
        int32_t begin[4], end[4], stride[4];
        op_test_shape(shape, 4, 6, false);
        if (round % 50 == 49)
            shape[2] = 700, shape[3] = 40; /* enough for several pieces of work */
        for (int d = 0; d < 4; d++) {
            begin[d] = (int32_t)op_test_random_int(0, shape[d] - 1);
            end[d] = (int32_t)op_test_random_int(begin[d] + 1, shape[d]);
            stride[d] = (int32_t)op_test_random_int(1, 2);
            part[d] = (end[d] - begin[d] + stride[d] - 1) / stride[d];
        }
        pome_tensor cache = op_test_tensor(POME_DTYPE_F16, 4, shape, -8, 8), before;
        assert_int_equal(pome_tensor_clone(&before, &cache, NULL), POME_OK);
        bool is_half = op_test_random_int(0, 2) == 0;
        pome_tensor update = op_test_tensor(is_half ? POME_DTYPE_F16 : POME_DTYPE_F32, 4, part, -8, 8);
        for (int64_t i = 0; !is_half && i < pome_tensor_count(&update); i++)
            ((float *)update.data)[i] = between_halves();

        pome_tensor tb = ints(begin, 4), te = ints(end, 4), ts = ints(stride, 4);
        pome_value *in[16] = {0};
        in[P_slice_update_x] = value_of(&b, "x", &cache, POME_TYPE_TENSOR);
        in[P_slice_update_update] = value_of(&b, "u", &update, POME_TYPE_TENSOR);
        in[P_slice_update_begin] = value_of(&b, "b", &tb, POME_TYPE_TENSOR);
        in[P_slice_update_end] = value_of(&b, "e", &te, POME_TYPE_TENSOR);
        in[P_slice_update_stride] = value_of(&b, "s", &ts, POME_TYPE_TENSOR);
        pome_op *op = op_of(&b, POME_OP_slice_update, in, 1);
        const pome_tensor *tensors[] = {&cache, &update, &tb, &te, &ts};
        pome_tensor out = cache;
        size_t scratch;
        assert_int_equal(run_op(&b, op, tensors, &out, &scratch, NULL), POME_OK);
        assert_int_equal(scratch, 0);

        int64_t index[4] = {0};
        do {
            bool is_inside = true;
            int64_t from = 0;
            for (int d = 0; d < 4; d++) {
                int64_t k = index[d] - begin[d];
                is_inside &= k >= 0 && index[d] < end[d] && k % stride[d] == 0;
                from = from * part[d] + k / stride[d];
            }
            uint16_t want = *half_at(&before, index);
            if (is_inside)
                want = is_half ? ((uint16_t *)update.data)[from] : pome_f32_to_f16(((float *)update.data)[from]);
            assert_int_equal(*half_at(&cache, index), want);
        } while (op_test_next(index, 4, shape));
        pome_tensor_reset(&cache);
        pome_tensor_reset(&before);
        pome_tensor_reset(&update);
        bench_end(&b);
    }
}

/* Ties, the edge of the range and subnormals, worked out by hand. */
static void update_rounds_to_nearest_even(void **state)
{
    (void)state;
    static const float given[] = {1.0f + 0x1p-11f, 1.0f + 3 * 0x1p-11f, 65519.0f, 65520.0f, 0x1p-25f, 0x1.8p-24f};
    static const uint16_t want[] = {0x3c00, 0x3c02, 0x7bff, 0x7c00, 0x0000, 0x0002};
    bench b;
    bench_begin(&b, 1);
    int64_t n = 6;
    pome_tensor cache = op_test_tensor(POME_DTYPE_F16, 1, &n, 0, 0);
    pome_tensor update = pome_tensor_borrow((void *)(uintptr_t)given, POME_DTYPE_F32, 1, &n);
    int32_t begin[] = {0}, end[] = {2147483647};
    pome_tensor tb = ints(begin, 1), te = ints(end, 1);
    pome_value *in[16] = {0};
    in[P_slice_update_x] = value_of(&b, "x", &cache, POME_TYPE_TENSOR);
    in[P_slice_update_update] = value_of(&b, "u", &update, POME_TYPE_TENSOR);
    in[P_slice_update_begin] = value_of(&b, "b", &tb, POME_TYPE_TENSOR);
    in[P_slice_update_end] = value_of(&b, "e", &te, POME_TYPE_TENSOR);
    const pome_tensor *tensors[] = {&cache, &update, &tb, &te};
    pome_tensor out = cache;
    size_t scratch;
    assert_int_equal(run_op(&b, op_of(&b, POME_OP_slice_update, in, 1), tensors, &out, &scratch, NULL), POME_OK);
    assert_memory_equal(cache.data, want, sizeof want);
    pome_tensor_reset(&cache);
    bench_end(&b);
}

/* state[:-1] = state[1:], all in one memory: the old rows must be read before they are overwritten. */
static void shift_within_a_state(void **state)
{
    (void)state;
    for (int direction = 0; direction < 2; direction++) {
        bench b;
        bench_begin(&b, 1);
        int64_t shape[3] = {2, 9, 3};
        pome_tensor cache = op_test_tensor(POME_DTYPE_F16, 3, shape, -8, 8), before;
        assert_int_equal(pome_tensor_clone(&before, &cache, NULL), POME_OK);
        pome_tensor rows = cache; /* the rows that move */
        rows.shape[1] = 8;
        int32_t to = direction ? 1 : 0, from = direction ? 0 : 1;
        rows.data = (uint16_t *)cache.data + from * cache.stride[1];
        int32_t begin[] = {0, to, 0}, end[] = {2, to + 8, 3};
        pome_tensor tb = ints(begin, 3), te = ints(end, 3);

        pome_value *of_state = value_of(&b, "cache", &cache, POME_TYPE_STATE);
        pome_op *read = op_of(&b, POME_OP_read_state, (pome_value *const[]){of_state}, 1);
        pome_value *in_slice[16] = {0};
        in_slice[P_slice_by_index_x] = read->out[0];
        in_slice[P_slice_by_index_begin] = value_of(&b, "b1", &tb, POME_TYPE_TENSOR);
        in_slice[P_slice_by_index_end] = value_of(&b, "e1", &te, POME_TYPE_TENSOR);
        pome_op *slice = op_of(&b, POME_OP_slice_by_index, in_slice, 1);
        pome_value *in[16] = {0};
        in[P_slice_update_x] = read->out[0];
        in[P_slice_update_update] = slice->out[0];
        in[P_slice_update_begin] = value_of(&b, "b", &tb, POME_TYPE_TENSOR);
        in[P_slice_update_end] = value_of(&b, "e", &te, POME_TYPE_TENSOR);
        pome_op *op = op_of(&b, POME_OP_slice_update, in, 1);

        const pome_tensor *tensors[] = {&cache, &rows, &tb, &te};
        pome_tensor out = cache;
        size_t scratch;
        assert_int_equal(run_op(&b, op, tensors, &out, &scratch, NULL), POME_OK);
        assert_true(scratch >= 2 * 8 * 3 * sizeof(uint16_t));
        int64_t index[3] = {0};
        do {
            int64_t was[3] = {index[0], index[1], index[2]};
            if (index[1] >= to && index[1] < to + 8)
                was[1] += from - to;
            assert_int_equal(*half_at(&cache, index), *half_at(&before, was));
        } while (op_test_next(index, 3, shape));
        pome_tensor_reset(&cache);
        pome_tensor_reset(&before);
        bench_end(&b);
    }
}

static void write_state_converts(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 3);
    int64_t shape[2] = {130, 300}; /* above the size of one piece of work */
    pome_tensor cache = op_test_tensor(POME_DTYPE_F16, 2, shape, 0, 0);
    pome_tensor data = op_test_tensor(POME_DTYPE_F32, 2, shape, -70000, 70000);
    pome_value *in[] = {value_of(&b, "state", &cache, POME_TYPE_STATE), value_of(&b, "data", &data, POME_TYPE_TENSOR)};
    const pome_tensor *tensors[] = {&cache, &data};
    size_t scratch;
    assert_int_equal(run_op(&b, op_of(&b, POME_OP_write_state, in, 0), tensors, NULL, &scratch, NULL), POME_OK);
    for (int64_t i = 0; i < 130 * 300; i++)
        assert_int_equal(((uint16_t *)cache.data)[i], pome_f32_to_f16(((float *)data.data)[i]));
    pome_error err;
    data.shape[1] = 299;
    assert_int_equal(run_op(&b, op_of(&b, POME_OP_write_state, in, 0), tensors, NULL, &scratch, &err), POME_ERR_ARG);
    assert_non_null(strstr(err.message, "[130, 299]"));
    data.shape[1] = 300;
    pome_tensor_reset(&cache);
    pome_tensor_reset(&data);
    bench_end(&b);
}

/* write_state(s, reverse(read_state(s))) with reverse and read_state as views; and the whole state onto itself. */
static void write_state_of_its_own_view(void **state)
{
    (void)state;
    bench b;
    bench_begin(&b, 1);
    int64_t n = 7;
    pome_tensor cache = op_test_tensor(POME_DTYPE_F16, 1, &n, -8, 8), before;
    assert_int_equal(pome_tensor_clone(&before, &cache, NULL), POME_OK);
    pome_value *of_state = value_of(&b, "cache", &cache, POME_TYPE_STATE);
    pome_op *read = op_of(&b, POME_OP_read_state, (pome_value *const[]){of_state}, 1);
    pome_op *reverse = op_of(&b, POME_OP_reverse, (pome_value *const[]){read->out[0], NULL}, 1);
    pome_tensor backwards = cache;
    backwards.data = (uint16_t *)cache.data + 6;
    backwards.stride[0] = -1;
    size_t scratch;
    pome_op *write = op_of(&b, POME_OP_write_state, (pome_value *const[]){of_state, reverse->out[0]}, 0);
    assert_int_equal(run_op(&b, write, (const pome_tensor *const[]){&cache, &backwards}, NULL, &scratch, NULL),
                     POME_OK);
    for (int i = 0; i < 7; i++)
        assert_int_equal(((uint16_t *)cache.data)[i], ((uint16_t *)before.data)[6 - i]);
    write = op_of(&b, POME_OP_write_state, (pome_value *const[]){of_state, read->out[0]}, 0);
    assert_int_equal(run_op(&b, write, (const pome_tensor *const[]){&cache, &cache}, NULL, &scratch, NULL), POME_OK);
    assert_int_equal(scratch, 0);
    for (int i = 0; i < 7; i++)
        assert_int_equal(((uint16_t *)cache.data)[i], ((uint16_t *)before.data)[6 - i]);
    pome_tensor_reset(&cache);
    pome_tensor_reset(&before);
    bench_end(&b);
}

static void read_state_is_a_view(void **state)
{
    (void)state;
    int64_t shape[3] = {2, 3, 4};
    pome_tensor cache = op_test_tensor(POME_DTYPE_F16, 3, shape, -8, 8);
    double want[24];
    for (int i = 0; i < 24; i++)
        want[i] = op_test_at(&cache, i);
    op_test *t = op_test_begin(POME_OP_read_state, POME_OPSET_IOS18);
    op_test_in_kind(t, "input", &cache, POME_TYPE_STATE, 0);
    assert_int_equal(op_test_run(t), POME_OK);
    assert_true(op_test_was_view(t));
    op_test_expect(t, 0, want, 0, 0);
    op_test_end(t);
    pome_tensor_reset(&cache);
}

/* Not in place the result is another tensor, in fp32, and x stays. */
static void update_of_a_copy(void **state)
{
    (void)state;
    int64_t shape[2] = {3, 4}, part[2] = {1, 2};
    pome_tensor x = op_test_tensor(POME_DTYPE_F16, 2, shape, -8, 8),
                update = op_test_tensor(POME_DTYPE_F16, 2, part, 9, 10);
    int32_t begin[] = {1, 2}, end[] = {2, 4};
    op_test *t = op_test_begin(POME_OP_slice_update, POME_OPSET_IOS18);
    op_test_in(t, "x", &x);
    op_test_in(t, "update", &update);
    op_test_const_ints(t, "begin", begin, 2);
    op_test_const_ints(t, "end", end, 2);
    assert_int_equal(op_test_run(t), POME_OK);
    double want[12];
    for (int i = 0; i < 12; i++)
        want[i] = op_test_at(&x, i);
    want[6] = op_test_at(&update, 0);
    want[7] = op_test_at(&update, 1);
    op_test_expect(t, 0, want, 0, 0);
    op_test_end(t);
    pome_tensor_reset(&x);
    pome_tensor_reset(&update);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_place_update_writes_only_the_region),
        cmocka_unit_test(update_rounds_to_nearest_even),
        cmocka_unit_test(shift_within_a_state),
        cmocka_unit_test(write_state_converts),
        cmocka_unit_test(write_state_of_its_own_view),
        cmocka_unit_test(read_state_is_a_view),
        cmocka_unit_test(update_of_a_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
