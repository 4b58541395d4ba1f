/* Compressed constants: against coremltools' decompression (data/encoded_cases.bin, made by
 * tests/oracle/make_encoded_cases.py), against plain loops, and with operands that do not fit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/f16.h"
#include "encoded_test.h"

/* ---- the cases ---- */

typedef struct reader {
    const uint8_t *p, *end;
} reader;

static void take(reader *r, void *dst, size_t n)
{
    assert_true((size_t)(r->end - r->p) >= n);
    memcpy(dst, r->p, n);
    r->p += n;
}
static uint32_t take_u32(reader *r)
{
    uint32_t v;
    take(r, &v, sizeof v);
    return v;
}
static const char *take_name(reader *r, char *dst)
{
    uint8_t n;
    take(r, &n, 1);
    take(r, dst, n);
    dst[n] = 0;
    return dst;
}
static int32_t take_shape(reader *r, int64_t *shape, size_t *count)
{
    int32_t rank = (int32_t)take_u32(r);
    assert_true(rank >= 0 && rank <= POME_MAX_RANK + 2);
    *count = 1;
    for (int32_t d = 0; d < rank; d++) {
        take(r, &shape[d], sizeof *shape);
        *count *= (size_t)shape[d];
    }
    return rank;
}

static void take_input(reader *r, encoded_test *t, pome_op *const *ops)
{
    char name[256];
    int64_t shape[POME_MAX_RANK + 2];
    size_t count;
    int param = pome_opdef_param(t->def, take_name(r, name));
    assert_true(param >= 0);
    int32_t from = (int32_t)take_u32(r), output = (int32_t)take_u32(r), dtype = (int32_t)take_u32(r);
    int32_t rank = take_shape(r, shape, &count);
    uint32_t size = take_u32(r);
    char *data = NULL;
    if (from < 0) { /* exactly as large as it is, so that a sanitizer sees a step beyond */
        data = malloc(size + 1u);
        assert_non_null(data);
        data = realloc(data, size ? size : 1);
        take(r, data, size);
    }
    if (dtype == POME_DTYPE_STRING) {
        char *text = pome_arena_strndup(t->arena, data, size);
        encoded_test_str(t, (uint32_t)param, text);
        free(data);
        return;
    }
    encoded_test_input(t, (uint32_t)param, (pome_dtype)dtype, rank, shape, data, size, from < 0 ? NULL : ops[from],
                       (uint32_t)output);
}

static void free_inputs(const pome_op *op)
{
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i]->konst->t.dtype != POME_DTYPE_STRING && op->in[i]->konst->t.data)
            free(op->in[i]->konst->t.data);
}

static void expect_bits(const char *name, const float *got, const float *want, size_t first, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (pome_f32_bits(got[i]) != pome_f32_bits(want[first + i]) && !(isnan(got[i]) && isnan(want[first + i])))
            fail_msg("%s: element %zu is %.9g, wanted %.9g", name, first + i, got[i], want[first + i]);
}

static void check_raw(const char *name, const pome_encoded *e, const float *want, size_t first, size_t n)
{
    pome_dtype dtype = pome_encoded_dtype(e);
    size_t size = (n * pome_dtype_bits(dtype) + 7) / 8;
    uint8_t *raw = malloc(size ? size : 1);
    assert_non_null(raw);
    pome_encoded_decode_raw(e, first, n, raw);
    for (size_t i = 0; i < n; i++) {
        double got = 0;
        if (dtype == POME_DTYPE_F32)
            got = ((float *)(void *)raw)[i];
        else if (dtype == POME_DTYPE_F16)
            got = pome_f16_to_f32(((uint16_t *)(void *)raw)[i]);
        else if (dtype == POME_DTYPE_I8)
            got = ((int8_t *)raw)[i];
        else if (dtype == POME_DTYPE_U8)
            got = raw[i];
        else { /* U1, I4, U4 */
            unsigned bits = pome_dtype_bits(dtype), code = raw[i * bits / 8] >> (i * bits % 8) & ((1u << bits) - 1);
            got = dtype == POME_DTYPE_I4 && code > 7 ? (int)code - 16 : (int)code;
        }
        if (got != (double)want[first + i] && !(isnan(got) && isnan(want[first + i])))
            fail_msg("%s: raw element %zu is %.9g, wanted %.9g", name, first + i, got, want[first + i]);
    }
    free(raw);
}

/* Everything at once, then ranges that begin and end anywhere. */
static void check_case(const char *name, const pome_encoded *e, const float *want, size_t count)
{
    float *got = malloc((count + 1) * sizeof *got);
    assert_non_null(got);
    got = realloc(got, (count ? count : 1) * sizeof *got);
    pome_encoded_decode(e, 0, count, got);
    expect_bits(name, got, want, 0, count);
    check_raw(name, e, want, 0, count);
    for (int round = 0; round < 12 && count; round++) {
        size_t first = (size_t)op_test_random_int(0, (int64_t)count - 1);
        size_t n = (size_t)op_test_random_int(1, (int64_t)(count - first));
        n = round % 3 && n > 40 ? (size_t)op_test_random_int(1, 40) : n;
        pome_encoded_decode(e, first, n, got);
        expect_bits(name, got, want, first, n);
        check_raw(name, e, want, first, n);
    }
    free(got);
}

static void run_case(reader *r)
{
    char name[256], op_name[256];
    pome_op *ops[8];
    pome_arena *arena = pome_arena_create(0);
    const pome_encoded *e = NULL;
    pome_error err = {0};
    int64_t shape[POME_MAX_RANK + 2];
    size_t count;
    take_name(r, name);
    uint32_t n_ops = take_u32(r);
    assert_true(n_ops > 0 && n_ops <= 8);
    for (uint32_t i = 0; i < n_ops; i++) {
        encoded_test t = encoded_test_begin(arena, pome_opdef_find(take_name(r, op_name))->id);
        for (uint32_t n = take_u32(r); n > 0; n--)
            take_input(r, &t, ops);
        ops[i] = encoded_test_op(&t);
    }
    uint32_t output = take_u32(r), dtype = take_u32(r);
    int32_t rank = take_shape(r, shape, &count);
    float *want = malloc((count + 1) * sizeof *want);
    assert_non_null(want);
    take(r, want, count * sizeof *want);
    if (pome_encoded_create(&e, ops[n_ops - 1], output, arena, &err) != POME_OK)
        fail_msg("%s: %s", name, err.message);
    assert_int_equal(pome_encoded_dtype(e), dtype);
    assert_int_equal(pome_encoded_rank(e), rank);
    assert_memory_equal(pome_encoded_shape(e), shape, (size_t)rank * sizeof *shape);
    check_case(name, e, want, count);
    free(want);
    for (uint32_t i = 0; i < n_ops; i++)
        free_inputs(ops[i]);
    pome_arena_destroy(&arena);
}

static void test_coremltools_cases(void **unused)
{
    (void)unused;
    FILE *f = fopen(POME_SOURCE_DIR "/tests/ops/data/encoded_cases.bin", "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    long size = ftell(f);
    rewind(f);
    uint8_t *bytes = malloc((size_t)size);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)size, f), size);
    fclose(f);
    reader r = {bytes, bytes + size};
    char magic[4];
    take(&r, magic, 4);
    assert_memory_equal(magic, "PENC", 4);
    uint32_t n = take_u32(&r);
    assert_true(n > 300);
    for (; n > 0; n--)
        run_case(&r);
    assert_ptr_equal(r.p, r.end);
    free(bytes);
}

/* ---- by hand ---- */

/* int8 [-128, -1, 0, 127], scale 0.5, zero point -1 -> [-63.5, 0, 0.5, 64] */
static void test_affine_values(void **unused)
{
    (void)unused;
    const int8_t q[4] = {-128, -1, 0, 127}, zero = -1;
    const uint16_t scale = 0x3800;
    const int64_t shape = 4;
    float got[4];
    pome_arena *arena = pome_arena_create(0);
    encoded_test t = encoded_test_begin(arena, POME_OP_constexpr_affine_dequantize);
    encoded_test_input(&t, P_constexpr_affine_dequantize_quantized_data, POME_DTYPE_I8, 1, &shape, q, 4, NULL, 0);
    encoded_test_input(&t, P_constexpr_affine_dequantize_zero_point, POME_DTYPE_I8, 0, NULL, &zero, 1, NULL, 0);
    encoded_test_input(&t, P_constexpr_affine_dequantize_scale, POME_DTYPE_F16, 0, NULL, &scale, 2, NULL, 0);
    encoded_test_int(&t, P_constexpr_affine_dequantize_axis, 0);
    pome_encoded_decode(encoded_test_end(&t, 0), 0, 4, got);
    assert_memory_equal(got, ((const float[]){-63.5f, 0, 0.5f, 64}), sizeof got);
    pome_arena_destroy(&arena);
}

/* A mask of many chunks: counting must start right anywhere. The element i is set if i % 7 < 3, its value i % 251. */
static void test_long_mask(void **unused)
{
    (void)unused;
    enum { ROWS = 61, COLUMNS = 1003, COUNT = ROWS * COLUMNS };
    const int64_t shape[2] = {ROWS, COLUMNS};
    uint8_t *mask = calloc(1, (COUNT + 7) / 8), *values = malloc(COUNT);
    float got[5000];
    size_t ones = 0;
    assert_true(mask && values);
    for (size_t i = 0; i < COUNT; i++)
        if (i % 7 < 3) {
            mask[i / 8] |= (uint8_t)(1u << i % 8);
            values[ones++] = (uint8_t)(i % 251);
        }
    pome_arena *arena = pome_arena_create(0);
    encoded_test t = encoded_test_begin(arena, POME_OP_constexpr_sparse_to_dense);
    encoded_test_input(&t, P_constexpr_sparse_to_dense_mask, POME_DTYPE_U1, 2, shape, mask, (COUNT + 7) / 8, NULL, 0);
    encoded_test_input(&t, P_constexpr_sparse_to_dense_nonzero_data, POME_DTYPE_U8, 1, (int64_t[]){(int64_t)ones},
                       values, ones, NULL, 0);
    size_t before = pome_arena_used(arena);
    const pome_encoded *e = encoded_test_end(&t, 0);
    assert_true(pome_arena_used(arena) - before < 8192); /* an index, no expansion */
    for (int round = 0; round < 200; round++) {
        size_t n = (size_t)op_test_random_int(1, 5000), first = (size_t)op_test_random_int(0, COUNT - (int64_t)n);
        pome_encoded_decode(e, first, n, got);
        for (size_t i = 0; i < n; i++)
            if (got[i] != (float)((first + i) % 7 < 3 ? (first + i) % 251 : 0))
                fail_msg("element %zu is %g", first + i, (double)got[i]);
    }
    pome_arena_destroy(&arena);
    free(mask);
    free(values);
}

/* ---- rejections ---- */

typedef struct broken {
    pome_arena *arena;
    encoded_test t;
} broken;

static broken break_begin(pome_op_id id)
{
    broken b = {.arena = pome_arena_create(0)};
    b.t = encoded_test_begin(b.arena, id);
    return b;
}
static void break_input(broken *b, uint32_t param, pome_dtype dtype, int32_t rank, const int64_t *shape, size_t size)
{
    void *data = pome_arena_alloc(b->arena, size);
    encoded_test_input(&b->t, param, dtype, rank, shape, data, size, NULL, 0);
}
static void break_end(broken *b, pome_status code, const char *text)
{
    const pome_encoded *e = NULL;
    pome_error err = {0};
    pome_status status = pome_encoded_create(&e, encoded_test_op(&b->t), 0, b->arena, &err);
    if (status != code || !strstr(err.message, text))
        fail_msg("status %s, message '%s', wanted '%s'", pome_status_name(status), err.message, text);
    assert_null(e);
    pome_arena_destroy(&b->arena);
}

static void reject_blocks(pome_dtype data, const int64_t *shape, size_t size, pome_dtype scale, const int64_t *scale_shape,
                          int32_t scale_rank, pome_dtype offset, const char *text)
{
    broken b = break_begin(POME_OP_constexpr_blockwise_shift_scale);
    break_input(&b, P_constexpr_blockwise_shift_scale_data, data, 2, shape, size);
    break_input(&b, P_constexpr_blockwise_shift_scale_scale, scale, scale_rank, scale_shape, 4096);
    if (offset)
        break_input(&b, P_constexpr_blockwise_shift_scale_offset, offset, scale_rank, scale_shape, 4096);
    break_end(&b, POME_ERR_FORMAT, text);
}

static void test_block_rejections(void **unused)
{
    (void)unused;
    const pome_dtype f16 = POME_DTYPE_F16, i4 = POME_DTYPE_I4, none = POME_DTYPE_NONE;
    const int64_t good[2] = {4, 64}, odd[2] = {4, 3}, fine[2] = {4, 2}, zero[2] = {4, 0}, negative[2] = {4, -1};
    const int64_t huge[2] = {(int64_t)1 << 40, (int64_t)1 << 40};
    reject_blocks(i4, good, 128, f16, odd, 2, none, "does not divide");
    reject_blocks(i4, good, 128, f16, zero, 2, none, "does not divide");
    reject_blocks(i4, good, 128, f16, negative, 2, none, "too large");
    reject_blocks(i4, good, 128, f16, fine, 1, none, "rank");
    reject_blocks(i4, good, 127, f16, fine, 2, none, "127 bytes");
    reject_blocks(i4, huge, 128, f16, fine, 2, none, "too large");
    reject_blocks(i4, good, 128, POME_DTYPE_I8, fine, 2, none, "cannot be int8");
    reject_blocks(POME_DTYPE_I32, good, 1024, f16, fine, 2, none, "cannot be int32");
    reject_blocks(i4, good, 128, f16, fine, 2, POME_DTYPE_I8, "offset is int8");
}

static void test_lut_rejections(void **unused)
{
    (void)unused;
    const int64_t indices[2] = {4, 6};
    const struct {
        int32_t rank;
        int64_t shape[4];
        int vector_axis; /* 99: none */
        pome_status code;
        const char *text;
    } bad[] = {
        {4, {1, 1, 8, 1}, 99, POME_ERR_FORMAT, "8 entries"},   {4, {3, 1, 16, 1}, 99, POME_ERR_FORMAT, "does not divide"},
        {3, {1, 1, 16}, 99, POME_ERR_FORMAT, "rank 3"},        {4, {1, 1, 16, 2}, 99, POME_ERR_FORMAT, "vector_axis"},
        {4, {1, 1, 16, 2}, 2, POME_ERR_FORMAT, "vector_axis"}, {4, {1, 1, 16, 0}, 99, POME_ERR_FORMAT, "empty"},
        {4, {1, 1, 16, 1000}, 0, POME_ERR_LIMIT, "vectors"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        broken b = break_begin(POME_OP_constexpr_lut_to_dense);
        break_input(&b, P_constexpr_lut_to_dense_indices, POME_DTYPE_U4, 2, indices, 12);
        break_input(&b, P_constexpr_lut_to_dense_lut, POME_DTYPE_F16, bad[i].rank, bad[i].shape, 65536);
        if (bad[i].vector_axis != 99)
            encoded_test_int(&b.t, P_constexpr_lut_to_dense_vector_axis, bad[i].vector_axis);
        break_end(&b, bad[i].code, bad[i].text);
    }
    const struct {
        int64_t n_indices, n_lut;
        const char *text;
    } flat[] = {{13, 10, "power of 2"}, {12, 16, "12 bytes"}, {13, 512, "power of 2"}, {13, 1, "power of 2"}};
    for (size_t i = 0; i < sizeof flat / sizeof *flat; i++) {
        broken b = break_begin(POME_OP_constexpr_lut_to_dense);
        const uint32_t dims[2] = {5, 5};
        break_input(&b, P_constexpr_lut_to_dense_indices, POME_DTYPE_U8, 1, &flat[i].n_indices, 64);
        break_input(&b, P_constexpr_lut_to_dense_lut, POME_DTYPE_F16, 1, &flat[i].n_lut, 2048);
        encoded_test_input(&b.t, P_constexpr_lut_to_dense_shape, POME_DTYPE_U32, 1, (int64_t[]){2}, dims, 8, NULL, 0);
        break_end(&b, POME_ERR_FORMAT, flat[i].text);
    }
}

static void test_sparse_rejections(void **unused)
{
    (void)unused;
    for (int flat = 0; flat < 2; flat++) {
        const uint8_t mask[2] = {0x0f, flat ? 0x20 : 0x01};
        const uint32_t dims = 10;
        broken b = break_begin(POME_OP_constexpr_sparse_to_dense);
        break_input(&b, P_constexpr_sparse_to_dense_nonzero_data, POME_DTYPE_F16, 1, (int64_t[]){flat ? 5 : 4}, 64);
        encoded_test_input(&b.t, P_constexpr_sparse_to_dense_mask, flat ? POME_DTYPE_U8 : POME_DTYPE_U1, 1,
                           (int64_t[]){flat ? 2 : 10}, mask, 2, NULL, 0);
        if (flat)
            encoded_test_input(&b.t, P_constexpr_sparse_to_dense_shape, POME_DTYPE_U32, 1, (int64_t[]){1}, &dims, 4, NULL, 0);
        break_end(&b, POME_ERR_FORMAT, flat ? "past its 10 elements" : "5 set bits");
    }
    broken b = break_begin(POME_OP_constexpr_lut_to_sparse);
    break_input(&b, P_constexpr_lut_to_sparse_indices_mask, POME_DTYPE_U1, 1, (int64_t[]){10}, 2);
    break_input(&b, P_constexpr_lut_to_sparse_indices_nonzero_data, POME_DTYPE_U4, 1, (int64_t[]){3}, 2);
    break_input(&b, P_constexpr_lut_to_sparse_lut, POME_DTYPE_F16, 3, (int64_t[]){1, 16, 1}, 32);
    break_end(&b, POME_ERR_FORMAT, "0 set bits");
}

/* A chain that feeds itself for ever must end. */
static void test_endless_chain(void **unused)
{
    (void)unused;
    broken b = break_begin(POME_OP_constexpr_cast);
    encoded_test_str(&b.t, P_constexpr_cast_output_dtype, "fp32");
    encoded_test_input(&b.t, P_constexpr_cast_source_val, POME_DTYPE_F32, 1, (int64_t[]){4}, NULL, 0, b.t.op, 0);
    break_end(&b, POME_ERR_LIMIT, "feed each other");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_coremltools_cases), cmocka_unit_test(test_affine_values),
        cmocka_unit_test(test_long_mask),         cmocka_unit_test(test_block_rejections),
        cmocka_unit_test(test_lut_rejections),    cmocka_unit_test(test_sparse_rejections),
        cmocka_unit_test(test_endless_chain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
