/* Tensors: memory, views, conversion, and the operations of pre- and post-processing, against plain loops. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/f16.h"
#include "pome/tensor.h"

#define SHAPE(...) ((const int64_t[]){__VA_ARGS__})

static pome_tensor iota(int32_t rank, const int64_t *shape) /* int32, 0, 1, 2, ... */
{
    pome_tensor t;
    assert_int_equal(pome_tensor_init(&t, POME_DTYPE_I32, rank, shape, NULL), POME_OK);
    for (int64_t i = 0; i < pome_tensor_count(&t); i++)
        ((int32_t *)t.data)[i] = (int32_t)i;
    return t;
}

static int32_t at(const pome_tensor *t, const int64_t *index)
{
    const int32_t *p = t->data;
    for (int32_t i = 0; i < t->rank; i++)
        p += index[i] * t->stride[i];
    return *p;
}

/* ---- types and memory ---- */

static void dtype_table(void **state)
{
    (void)state;
    static const struct {
        pome_dtype dtype;
        uint32_t bits;
        const char *name;
        bool is_float, is_int;
    } want[] = {
        {POME_DTYPE_BOOL, 8, "bool", false, false}, {POME_DTYPE_F16, 16, "fp16", true, false},
        {POME_DTYPE_F32, 32, "fp32", true, false},  {POME_DTYPE_F64, 64, "fp64", true, false},
        {POME_DTYPE_BF16, 16, "bf16", true, false}, {POME_DTYPE_F8E4M3FN, 8, "fp8e4m3fn", true, false},
        {POME_DTYPE_I4, 4, "int4", false, true},    {POME_DTYPE_I8, 8, "int8", false, true},
        {POME_DTYPE_I32, 32, "int32", false, true}, {POME_DTYPE_U1, 1, "uint1", false, true},
        {POME_DTYPE_U3, 3, "uint3", false, true},   {POME_DTYPE_U6, 6, "uint6", false, true},
        {POME_DTYPE_U64, 64, "uint64", false, true}, {POME_DTYPE_STRING, 0, "string", false, false},
        {POME_DTYPE_NONE, 0, "none", false, false},
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        assert_int_equal(pome_dtype_bits(want[i].dtype), want[i].bits);
        assert_string_equal(pome_dtype_name(want[i].dtype), want[i].name);
        assert_int_equal(pome_dtype_is_float(want[i].dtype), want[i].is_float);
        assert_int_equal(pome_dtype_is_int(want[i].dtype), want[i].is_int);
    }
    assert_int_equal(pome_dtype_bits((pome_dtype)1000), 0);
    assert_non_null(pome_dtype_name((pome_dtype)1000));
}

static void init_gives_zeroed_aligned_memory(void **state)
{
    (void)state;
    pome_tensor t;
    assert_int_equal(pome_tensor_init(&t, POME_DTYPE_F32, 3, SHAPE(2, 3, 5), NULL), POME_OK);
    assert_int_equal((uintptr_t)t.data % 64, 0);
    assert_int_equal(pome_tensor_count(&t), 30);
    assert_int_equal(pome_tensor_size_bytes(&t), 120);
    assert_int_equal(t.stride[0], 15);
    assert_int_equal(t.stride[1], 5);
    assert_int_equal(t.stride[2], 1);
    assert_true(pome_tensor_is_contiguous(&t));
    for (int i = 0; i < 30; i++)
        assert_true(((float *)t.data)[i] == 0);
    pome_tensor_reset(&t);
    assert_null(t.data);
    pome_tensor_reset(&t);

    assert_int_equal(pome_tensor_init(&t, POME_DTYPE_I8, 0, NULL, NULL), POME_OK); /* a scalar */
    assert_int_equal(pome_tensor_count(&t), 1);
    pome_tensor_reset(&t);
    assert_int_equal(pome_tensor_init(&t, POME_DTYPE_I8, 3, SHAPE(0, 1ll << 40, 1ll << 40), NULL), POME_OK);
    assert_int_equal(pome_tensor_count(&t), 0);
    pome_tensor_reset(&t);
}

static void sub_byte_sizes_round_up(void **state)
{
    (void)state;
    static const struct {
        pome_dtype dtype;
        int64_t n;
        size_t bytes;
    } want[] = {{POME_DTYPE_U1, 9, 2}, {POME_DTYPE_U3, 3, 2}, {POME_DTYPE_I4, 5, 3}, {POME_DTYPE_U6, 4, 3}, {POME_DTYPE_U2, 0, 0}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        pome_tensor t;
        assert_int_equal(pome_tensor_init(&t, want[i].dtype, 1, &want[i].n, NULL), POME_OK);
        assert_int_equal(pome_tensor_size_bytes(&t), want[i].bytes);
        pome_tensor_reset(&t);
    }
}

static void impossible_tensors_are_refused(void **state)
{
    (void)state;
    pome_error err;
    pome_tensor t = {.rank = 77};
    assert_int_equal(pome_tensor_init(&t, POME_DTYPE_F32, 9, SHAPE(1, 1, 1, 1, 1, 1, 1, 1, 1), &err), POME_ERR_ARG);
    assert_int_equal(pome_tensor_init(&t, POME_DTYPE_F32, -1, NULL, &err), POME_ERR_ARG);
    assert_int_equal(pome_tensor_init(&t, POME_DTYPE_STRING, 1, SHAPE(1), &err), POME_ERR_ARG);
    assert_int_equal(pome_tensor_init(&t, POME_DTYPE_F32, 2, SHAPE(3, -1), &err), POME_ERR_ARG);
    assert_int_equal(pome_tensor_init(&t, POME_DTYPE_F32, 2, SHAPE(1ll << 40, 1ll << 40), &err), POME_ERR_ARG);
    assert_int_equal(pome_tensor_init(&t, POME_DTYPE_F32, 1, SHAPE(INT64_MAX / 8), &err), POME_ERR_LIMIT);
    assert_int_equal(t.rank, 77);
}

static void memory_lives_until_the_last_reference(void **state)
{
    (void)state;
    pome_tensor a = iota(2, SHAPE(4, 5)), row, b = pome_tensor_share(&a);
    assert_int_equal(pome_tensor_slice(&row, &a, 0, 2, 3, 1, NULL), POME_OK);
    pome_tensor_reset(&a);
    pome_tensor_reset(&b);
    assert_int_equal(at(&row, SHAPE(0, 4)), 14); /* the address sanitizer would object to freed memory */
    pome_tensor_reset(&row);

    int32_t mine[6] = {1, 2, 3, 4, 5, 6};
    pome_tensor t = pome_tensor_borrow(mine, POME_DTYPE_I32, 2, SHAPE(2, 3));
    assert_int_equal(at(&t, SHAPE(1, 2)), 6);
    assert_null(t.owner);
    pome_tensor_reset(&t);
    assert_int_equal(mine[0], 1);
}

/* ---- views ---- */

static void reshape(void **state)
{
    (void)state;
    pome_error err;
    pome_tensor t = iota(2, SHAPE(4, 6)), r, turned;
    assert_int_equal(pome_tensor_reshape(&r, &t, 3, SHAPE(2, -1, 3), NULL), POME_OK);
    assert_int_equal(r.shape[1], 4);
    assert_ptr_equal(r.data, t.data);
    assert_int_equal(at(&r, SHAPE(1, 3, 2)), 23);
    pome_tensor_reset(&r);
    r = (pome_tensor){.rank = 77};
    assert_int_equal(pome_tensor_reshape(&r, &t, 2, SHAPE(5, 5), &err), POME_ERR_ARG);
    assert_int_equal(pome_tensor_reshape(&r, &t, 2, SHAPE(-1, 5), &err), POME_ERR_ARG);
    assert_int_equal(pome_tensor_reshape(&r, &t, 2, SHAPE(-1, -1), &err), POME_ERR_ARG);
    assert_int_equal(pome_tensor_reshape(&r, &t, 2, SHAPE(-1, 0), &err), POME_ERR_ARG);
    assert_int_equal(pome_tensor_reshape(&r, &t, 2, SHAPE(INT64_MAX, 2), &err), POME_ERR_ARG);
    assert_int_equal(pome_tensor_transpose(&turned, &t, (const int32_t[]){1, 0}, NULL), POME_OK);
    assert_int_equal(pome_tensor_reshape(&r, &turned, 1, SHAPE(24), &err), POME_ERR_ARG); /* would need a copy */
    assert_int_equal(r.rank, 77);
    pome_tensor_reset(&turned);
    pome_tensor_reset(&t);
}

/* The indices that begin:end:step selects, by stepping and testing each one. */
static int64_t select_indices(int64_t n, int64_t begin, int64_t end, int64_t step, int64_t *out)
{
    int64_t count = 0;
    begin += begin < 0 ? n : 0;
    end += end < 0 ? n : 0;
    for (int64_t i = step > 0 ? (begin < 0 ? 0 : begin) : (begin > n - 1 ? n - 1 : begin);
         step > 0 ? i < end && i < n : i > end && i >= 0; i += step)
        out[count++] = i;
    return count;
}

static void slice(void **state)
{
    (void)state;
    pome_tensor t = iota(3, SHAPE(2, 6, 3)), s;
    for (int64_t begin = -8; begin <= 8; begin++)
        for (int64_t end = -8; end <= 8; end++)
            for (int64_t step = -4; step <= 4; step++) {
                int64_t want[8];
                if (step == 0)
                    continue;
                int64_t n = select_indices(6, begin, end, step, want);
                assert_int_equal(pome_tensor_slice(&s, &t, -2, begin, end, step, NULL), POME_OK);
                assert_int_equal(s.shape[1], n);
                for (int64_t i = 0; i < n; i++)
                    assert_int_equal(at(&s, SHAPE(1, i, 2)), 18 + want[i] * 3 + 2);
                pome_tensor_reset(&s);
            }
    pome_error err;
    assert_int_equal(pome_tensor_slice(&s, &t, 1, 0, INT64_MAX, INT64_MAX, NULL), POME_OK);
    assert_int_equal(s.shape[1], 1);
    pome_tensor_reset(&s);
    assert_int_equal(pome_tensor_slice(&s, &t, 3, 0, 1, 1, &err), POME_ERR_ARG);
    assert_int_equal(pome_tensor_slice(&s, &t, -4, 0, 1, 1, &err), POME_ERR_ARG);
    assert_int_equal(pome_tensor_slice(&s, &t, 0, 0, 1, 0, &err), POME_ERR_ARG);
    pome_tensor_reset(&t);
}

static void transpose_and_broadcast(void **state)
{
    (void)state;
    pome_error err;
    pome_tensor t = iota(3, SHAPE(2, 3, 4)), p, b;
    assert_int_equal(pome_tensor_transpose(&p, &t, (const int32_t[]){2, 0, -2}, NULL), POME_OK);
    for (int64_t i = 0; i < 4; i++)
        for (int64_t j = 0; j < 2; j++)
            for (int64_t k = 0; k < 3; k++)
                assert_int_equal(at(&p, SHAPE(i, j, k)), j * 12 + k * 4 + i);
    assert_false(pome_tensor_is_contiguous(&p));
    pome_tensor_reset(&p);
    assert_int_equal(pome_tensor_transpose(&p, &t, (const int32_t[]){0, 0, 1}, &err), POME_ERR_ARG);
    assert_int_equal(pome_tensor_transpose(&p, &t, (const int32_t[]){0, 1, 3}, &err), POME_ERR_ARG);
    pome_tensor_reset(&t);

    t = iota(2, SHAPE(3, 1));
    assert_int_equal(pome_tensor_broadcast(&b, &t, 3, SHAPE(2, 3, 5), NULL), POME_OK);
    for (int64_t i = 0; i < 2; i++)
        for (int64_t j = 0; j < 3; j++)
            for (int64_t k = 0; k < 5; k++)
                assert_int_equal(at(&b, SHAPE(i, j, k)), j);
    pome_tensor_reset(&b);
    assert_int_equal(pome_tensor_broadcast(&b, &t, 2, SHAPE(4, 1), &err), POME_ERR_ARG);
    assert_int_equal(pome_tensor_broadcast(&b, &t, 1, SHAPE(3), &err), POME_ERR_ARG);
    assert_int_equal(pome_tensor_broadcast(&b, &t, 2, SHAPE(3, 0), NULL), POME_OK);
    assert_int_equal(pome_tensor_count(&b), 0);
    pome_tensor_reset(&b);
    pome_tensor_reset(&t);
}

static void contiguity(void **state)
{
    (void)state;
    pome_tensor t = {.dtype = POME_DTYPE_F32, .rank = 3, .shape = {1, 4, 1}, .stride = {999, 1, -7}};
    assert_true(pome_tensor_is_contiguous(&t)); /* strides of axes of size 1 mean nothing */
    t.shape[2] = 2;
    assert_false(pome_tensor_is_contiguous(&t));
    t.shape[0] = 0;
    assert_true(pome_tensor_is_contiguous(&t));
}

/* ---- copies ---- */

static double cast_one(double value, pome_dtype to)
{
    pome_tensor in = pome_tensor_borrow(&value, POME_DTYPE_F64, 0, NULL), mid, out;
    assert_int_equal(pome_tensor_cast(&mid, &in, to, NULL), POME_OK);
    assert_int_equal(mid.dtype, to);
    assert_int_equal(pome_tensor_cast(&out, &mid, POME_DTYPE_F64, NULL), POME_OK);
    double result = *(double *)out.data;
    pome_tensor_reset(&mid);
    pome_tensor_reset(&out);
    return result;
}

static void floats_truncate_and_saturate(void **state)
{
    (void)state;
    static const struct {
        pome_dtype to;
        double in, want;
    } cases[] = {
        {POME_DTYPE_I8, 3.99, 3},         {POME_DTYPE_I8, -3.99, -3},        {POME_DTYPE_I8, 300, 127},
        {POME_DTYPE_I8, -300, -128},      {POME_DTYPE_U8, 300.7, 255},       {POME_DTYPE_U8, -1.9, 0},
        {POME_DTYPE_I16, 1e9, 32767},     {POME_DTYPE_U16, 65535.5, 65535},  {POME_DTYPE_I32, 3e9, 2147483647.0},
        {POME_DTYPE_I32, -3e9, -2147483648.0}, {POME_DTYPE_U32, -1, 0},      {POME_DTYPE_U32, 5e9, 4294967295.0},
        {POME_DTYPE_I32, INFINITY, 2147483647.0}, {POME_DTYPE_I32, -INFINITY, -2147483648.0},
        {POME_DTYPE_I32, NAN, 0},         {POME_DTYPE_U8, NAN, 0},           {POME_DTYPE_I64, NAN, 0},
        {POME_DTYPE_U64, 1.5, 1},         {POME_DTYPE_U64, -5, 0},           {POME_DTYPE_U64, 1e19, 1e19},
        {POME_DTYPE_I64, 1e30, 9223372036854775807.0}, {POME_DTYPE_I64, -1e30, -9223372036854775808.0},
        {POME_DTYPE_BOOL, 0.25, 1},       {POME_DTYPE_BOOL, 0, 0},           {POME_DTYPE_BOOL, -0.0, 0},
        {POME_DTYPE_BOOL, NAN, 1},        {POME_DTYPE_F16, 1e6, INFINITY},   {POME_DTYPE_F16, 1.0 / 3, 0.333251953125},
        {POME_DTYPE_BF16, 1.0 / 3, 0.333984375}, {POME_DTYPE_F32, 0.1, (double)0.1f},
        /* just above a tie between 1 and 1 + 2^-10: rounding to float first would make it a tie */
        {POME_DTYPE_F16, 1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-10},
        {POME_DTYPE_F16, 1 + 0x1p-10 + 0x1p-11 - 0x1p-40, 1 + 0x1p-10},
        {POME_DTYPE_F16, 0x1p-25 + 0x1p-60, 0x1p-24},
        {POME_DTYPE_BF16, -1 - 0x1p-8 - 0x1p-40, -1 - 0x1p-7},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_true(cast_one(cases[i].in, cases[i].to) == cases[i].want);
    assert_true(isnan(cast_one(NAN, POME_DTYPE_F16)));
}

static void integers_wrap(void **state)
{
    (void)state;
    int64_t in[5] = {300, -129, 65536 + 7, -12, 4294967295ll};
    pome_tensor t = pome_tensor_borrow(in, POME_DTYPE_I64, 1, SHAPE(5)), out;
    static const int8_t want8[5] = {44, 127, 7, -12, -1};
    assert_int_equal(pome_tensor_cast(&out, &t, POME_DTYPE_I8, NULL), POME_OK);
    assert_memory_equal(out.data, want8, sizeof want8);
    pome_tensor_reset(&out);
    static const uint16_t want16[5] = {300, 65407, 7, 65524, 65535};
    assert_int_equal(pome_tensor_cast(&out, &t, POME_DTYPE_U16, NULL), POME_OK);
    assert_memory_equal(out.data, want16, sizeof want16);
    pome_tensor_reset(&out);
    uint64_t large = UINT64_MAX;
    t = pome_tensor_borrow(&large, POME_DTYPE_U64, 0, NULL);
    assert_int_equal(pome_tensor_cast(&out, &t, POME_DTYPE_F32, NULL), POME_OK);
    assert_true(*(float *)out.data == 18446744073709551616.0f);
    pome_tensor_reset(&out);
}

static void eight_bit_floats_are_read(void **state)
{
    (void)state;
    uint8_t bits[3] = {0x38, 0xc0, 0x7e}; /* e4m3fn: 1, -2, 448; e5m2: 0.5, -2, NaN */
    pome_tensor t = pome_tensor_borrow(bits, POME_DTYPE_F8E4M3FN, 1, SHAPE(3)), out;
    pome_error err;
    assert_int_equal(pome_tensor_cast(&out, &t, POME_DTYPE_F32, NULL), POME_OK);
    assert_true(((float *)out.data)[0] == 1 && ((float *)out.data)[1] == -2 && ((float *)out.data)[2] == 448);
    pome_tensor_reset(&out);
    t.dtype = POME_DTYPE_F8E5M2;
    assert_int_equal(pome_tensor_cast(&out, &t, POME_DTYPE_F32, NULL), POME_OK);
    assert_true(((float *)out.data)[0] == 0.5f && ((float *)out.data)[1] == -2 && isnan(((float *)out.data)[2]));
    assert_int_equal(pome_tensor_cast(&t, &out, POME_DTYPE_F8E5M2, &err), POME_ERR_ARG);
    pome_tensor_reset(&out);
}

static void copy_between_strides(void **state)
{
    (void)state;
    pome_error err;
    pome_tensor t = iota(3, SHAPE(3, 4, 5)), turned, back, dst, dst_view;
    assert_int_equal(pome_tensor_transpose(&turned, &t, (const int32_t[]){2, 1, 0}, NULL), POME_OK);
    assert_int_equal(pome_tensor_slice(&back, &turned, 1, 3, -5, -1, NULL), POME_OK); /* 3, 2, 1, 0 */
    assert_int_equal(pome_tensor_init(&dst, POME_DTYPE_F16, 3, SHAPE(5, 4, 6), NULL), POME_OK);
    assert_int_equal(pome_tensor_slice(&dst_view, &dst, 2, 1, 6, 2, NULL), POME_OK);
    assert_int_equal(pome_tensor_copy(&dst_view, &back, NULL), POME_OK);
    const uint16_t *h = dst.data;
    for (int64_t i = 0; i < 5; i++)
        for (int64_t j = 0; j < 4; j++)
            for (int64_t k = 0; k < 6; k++) {
                double want = k % 2 ? (double)(k / 2 * 20 + (3 - j) * 5 + i) : 0;
                assert_true((double)pome_f16_to_f32(h[(i * 4 + j) * 6 + k]) == want);
            }
    assert_int_equal(pome_tensor_copy(&dst, &back, &err), POME_ERR_ARG);
    pome_tensor clone;
    assert_int_equal(pome_tensor_clone(&clone, &back, NULL), POME_OK);
    assert_true(pome_tensor_is_contiguous(&clone));
    assert_int_equal(at(&clone, SHAPE(1, 0, 2)), at(&back, SHAPE(1, 0, 2)));
    pome_tensor_reset(&clone);
    pome_tensor_reset(&dst_view);
    pome_tensor_reset(&dst);
    pome_tensor_reset(&back);
    pome_tensor_reset(&turned);
    pome_tensor_reset(&t);
}

/* ---- reading outputs ---- */

static void softmax(void **state)
{
    (void)state;
    float x[2][3][4];
    for (int i = 0; i < 24; i++)
        (&x[0][0][0])[i] = (float)sin(i * 12.9898) * 30;
    pome_tensor t = pome_tensor_borrow(x, POME_DTYPE_F32, 3, SHAPE(2, 3, 4)), y;
    assert_int_equal(pome_tensor_softmax(&y, &t, 1, NULL), POME_OK);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 4; k++) {
            long double sum = 0;
            for (int j = 0; j < 3; j++)
                sum += expl((long double)x[i][j][k]);
            for (int j = 0; j < 3; j++) {
                double want = (double)(expl((long double)x[i][j][k]) / sum);
                assert_true(fabs((double)((float *)y.data)[(i * 3 + j) * 4 + k] - want) <= 1e-7 * want + 1e-30);
            }
        }
    pome_tensor_reset(&y);
    float masked[2] = {-INFINITY, -INFINITY}, large[2] = {1e30f, 1e30f};
    t = pome_tensor_borrow(masked, POME_DTYPE_F32, 1, SHAPE(2));
    assert_int_equal(pome_tensor_softmax(&y, &t, -1, NULL), POME_OK);
    assert_true(((float *)y.data)[0] == 0.5f);
    pome_tensor_reset(&y);
    t = pome_tensor_borrow(large, POME_DTYPE_F32, 1, SHAPE(2));
    assert_int_equal(pome_tensor_softmax(&y, &t, -1, NULL), POME_OK);
    assert_true(((float *)y.data)[1] == 0.5f);
    pome_tensor_reset(&y);
    pome_error err;
    assert_int_equal(pome_tensor_softmax(&y, &t, 1, &err), POME_ERR_ARG);
}

static void argmax(void **state)
{
    (void)state;
    float x[] = {1, 5, 5, 2, NAN, 3, -INFINITY, 3, NAN, NAN, -1, -2};
    pome_tensor t = pome_tensor_borrow(x, POME_DTYPE_F32, 2, SHAPE(3, 4)), out;
    assert_int_equal(pome_tensor_argmax(&out, &t, -1, NULL), POME_OK);
    assert_int_equal(out.dtype, POME_DTYPE_I32);
    assert_int_equal(out.rank, 1);
    static const int32_t want[3] = {1, 1, 2}; /* first of equals, NaN never */
    assert_memory_equal(out.data, want, sizeof want);
    pome_tensor_reset(&out);
    int32_t ints[6] = {3, 9, 4, 3, 8, 5};
    t = pome_tensor_borrow(ints, POME_DTYPE_I32, 2, SHAPE(2, 3));
    assert_int_equal(pome_tensor_argmax(&out, &t, 0, NULL), POME_OK);
    static const int32_t want_columns[3] = {0, 0, 1};
    assert_memory_equal(out.data, want_columns, sizeof want_columns);
    pome_tensor_reset(&out);
    pome_error err;
    t = pome_tensor_borrow(ints, POME_DTYPE_I32, 2, SHAPE(2, 0));
    assert_int_equal(pome_tensor_argmax(&out, &t, 1, &err), POME_ERR_ARG);
}

static void topk(void **state)
{
    (void)state;
    float x[] = {1, 7, 7, 2, 9, NAN, 3, -1, 3, 3, 0, 4};
    pome_tensor t = pome_tensor_borrow(x, POME_DTYPE_F32, 2, SHAPE(2, 6)), v, ix;
    assert_int_equal(pome_tensor_topk(&v, &ix, &t, 4, NULL), POME_OK);
    static const float want[] = {9, 7, 7, 2, 4, 3, 3, 3};
    static const int32_t want_index[] = {4, 1, 2, 3, 5, 0, 2, 3};
    assert_int_equal(v.dtype, POME_DTYPE_F32);
    assert_memory_equal(v.data, want, sizeof want);
    assert_memory_equal(ix.data, want_index, sizeof want_index);
    pome_tensor_reset(&v);
    pome_tensor_reset(&ix);
    pome_error err;
    assert_int_equal(pome_tensor_topk(&v, &ix, &t, 7, &err), POME_ERR_ARG);
    assert_int_equal(pome_tensor_topk(&v, &ix, &t, 0, &err), POME_ERR_ARG);
    t = pome_tensor_borrow(x, POME_DTYPE_F32, 0, NULL);
    assert_int_equal(pome_tensor_topk(&v, &ix, &t, 1, &err), POME_ERR_ARG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dtype_table),
        cmocka_unit_test(init_gives_zeroed_aligned_memory),
        cmocka_unit_test(sub_byte_sizes_round_up),
        cmocka_unit_test(impossible_tensors_are_refused),
        cmocka_unit_test(memory_lives_until_the_last_reference),
        cmocka_unit_test(reshape),
        cmocka_unit_test(slice),
        cmocka_unit_test(transpose_and_broadcast),
        cmocka_unit_test(contiguity),
        cmocka_unit_test(floats_truncate_and_saturate),
        cmocka_unit_test(integers_wrap),
        cmocka_unit_test(eight_bit_floats_are_read),
        cmocka_unit_test(copy_between_strides),
        cmocka_unit_test(softmax),
        cmocka_unit_test(argmax),
        cmocka_unit_test(topk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
