/* The strided copy against element-by-element loops: random shapes, permutations, steps and directions, all element
 * sizes, conversions, large copies cut into pieces; the views that reshape finds; overlap. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/f16.h"
#include "ops/strided.h"

static uint32_t rng_state = 12345;

static uint32_t rng(uint32_t n)
{
    rng_state = rng_state * 1664525u + 1013904223u;
    return (rng_state >> 8) % n;
}

/* Where row-major element i of a tensor lies, in elements from its data. */
static int64_t offset_of(int32_t rank, const int64_t *shape, const int64_t *stride, int64_t i)
{
    int64_t offset = 0;
    for (int32_t d = rank - 1; d >= 0; d--) {
        offset += i % shape[d] * stride[d];
        i /= shape[d];
    }
    return offset;
}

/* Pseudo-random contents; floats are finite, some beyond the range of a half, some subnormal there. */
static void fill_memory(char *memory, size_t len_bytes, pome_dtype dtype)
{
    for (size_t i = 0; i < len_bytes; i++)
        memory[i] = (char)rng(251);
    for (size_t i = 0; dtype == POME_DTYPE_F32 && i + 4 <= len_bytes; i += 4) {
        float f = (float)((double)rng(1u << 24) - (1 << 23)) * (rng(4) == 0 ? 1e-12f : 0.017f);
        memcpy(memory + i, &f, 4);
    }
    for (size_t i = 1; dtype == POME_DTYPE_F16 && i < len_bytes; i += 2)
        memory[i] &= (char)0xbf; /* exponent below 16 */
}

/* A tensor of random strides that fills fresh memory. */
typedef struct box {
    pome_tensor t;
    char *memory;
    size_t len_bytes;
} box;

static box make_box(pome_dtype dtype, int32_t rank, const int64_t *shape, bool is_source)
{
    box b = {.t = {.dtype = dtype, .rank = rank}};
    int32_t order[POME_MAX_RANK];
    for (int32_t d = 0; d < rank; d++)
        order[d] = d;
    for (int32_t d = rank - 1; d > 0; d--) { /* a random permutation, but often none */
        int32_t j = rng(2) ? d : (int32_t)rng((uint32_t)d + 1), other = order[j];
        order[j] = order[d];
        order[d] = other;
    }
    int64_t step = 1, first = 0;
    for (int32_t k = rank - 1; k >= 0; k--) {
        int32_t d = order[k];
        int64_t gap = rng(4) == 0 ? 1 + rng(3) : 1;
        b.t.shape[d] = shape[d];
        b.t.stride[d] = is_source && rng(8) == 0 ? 0 : step * gap;
        step *= (shape[d] ? shape[d] : 1) * gap;
        if (rng(4) == 0) {
            first += shape[d] ? (shape[d] - 1) * b.t.stride[d] : 0;
            b.t.stride[d] = -b.t.stride[d];
        }
    }
    b.len_bytes = (size_t)(step * pome_elem_size(dtype));
    b.memory = malloc(b.len_bytes);
    assert_non_null(b.memory);
    fill_memory(b.memory, b.len_bytes, dtype);
    b.t.data = b.memory + first * pome_elem_size(dtype);
    return b;
}

static void copy_slowly(const pome_tensor *dst, const pome_tensor *src)
{
    int64_t n = pome_tensor_count(dst);
    for (int64_t i = 0; i < n; i++) {
        char *d = (char *)dst->data + offset_of(dst->rank, dst->shape, dst->stride, i) * pome_elem_size(dst->dtype);
        const char *s =
            (const char *)src->data + offset_of(src->rank, src->shape, src->stride, i) * pome_elem_size(src->dtype);
        if (dst->dtype == src->dtype) {
            memcpy(d, s, (size_t)pome_elem_size(dst->dtype));
        } else if (dst->dtype == POME_DTYPE_F32) {
            uint16_t h;
            memcpy(&h, s, 2);
            float f = pome_f16_to_f32(h);
            memcpy(d, &f, 4);
        } else {
            float f;
            memcpy(&f, s, 4);
            uint16_t h = pome_f32_to_f16(f);
            memcpy(d, &h, 2);
        }
    }
}

/* Copies by both ways into equal memory; everything, gaps included, must come out the same. */
static void check_copy(pome_dtype dst_dtype, pome_dtype src_dtype, int32_t rank, const int64_t *shape, pome_pool *pool,
                       const pome_kernels *kernels)
{
    box src = make_box(src_dtype, rank, shape, true), dst = make_box(dst_dtype, rank, shape, false);
    char *before = malloc(dst.len_bytes), *wanted = malloc(dst.len_bytes);
    assert_non_null(before);
    assert_non_null(wanted);
    memcpy(before, dst.memory, dst.len_bytes);
    copy_slowly(&dst.t, &src.t);
    memcpy(wanted, dst.memory, dst.len_bytes);
    memcpy(dst.memory, before, dst.len_bytes);
    pome_strided_copy(&dst.t, &src.t, pool, kernels);
    assert_memory_equal(dst.memory, wanted, dst.len_bytes);
    free(before);
    free(wanted);
    free(src.memory);
    free(dst.memory);
}

static const pome_dtype pairs[][2] = {
    {POME_DTYPE_U8, POME_DTYPE_U8},   {POME_DTYPE_BOOL, POME_DTYPE_BOOL}, {POME_DTYPE_I16, POME_DTYPE_I16},
    {POME_DTYPE_I32, POME_DTYPE_I32}, {POME_DTYPE_F32, POME_DTYPE_F32},   {POME_DTYPE_F64, POME_DTYPE_F64},
    {POME_DTYPE_F16, POME_DTYPE_F16}, {POME_DTYPE_F32, POME_DTYPE_F16},   {POME_DTYPE_F16, POME_DTYPE_F32},
};
enum { N_PAIRS = sizeof pairs / sizeof pairs[0] };

static void test_random_small(void **state)
{
    (void)state;
    pome_kernels kernels;
    pome_kernels_init(&kernels, pome_cpu_level_get());
    for (int i = 0; i < 3000; i++) {
        int64_t shape[POME_MAX_RANK];
        int32_t rank = (int32_t)rng(7);
        for (int32_t d = 0; d < rank; d++)
            shape[d] = rng(30) == 0 ? 0 : rng(5) == 0 ? 1 : 1 + rng(rank > 4 ? 4 : 9);
        const pome_dtype *pair = pairs[rng(N_PAIRS)];
        check_copy(pair[0], pair[1], rank, shape, NULL, rng(2) ? &kernels : NULL);
    }
}

static void test_large_in_pieces(void **state)
{
    (void)state;
    pome_kernels kernels;
    pome_kernels_init(&kernels, pome_cpu_level_get());
    pome_pool *pool = NULL;
    assert_int_equal(pome_pool_create(&pool, 3, NULL), POME_OK);
    static const int64_t shapes[][3] = {{1, 1, 100003}, {1, 40000, 2},  {300, 1, 301}, {2, 70000, 1},
                                        {33, 65, 67},   {5, 1, 33000},  {3, 2049, 5},  {1, 513, 129},
                                        {40000, 2, 1},  {257, 3, 130}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int times = 0; times < 6; times++) {
            const pome_dtype *pair = pairs[rng(N_PAIRS)];
            check_copy(pair[0], pair[1], 3, shapes[i], pool, &kernels);
        }
    pome_pool_destroy(&pool);
}

static void test_fill(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        int64_t shape[3] = {1 + rng(6), 1 + rng(6), 1 + rng(6)};
        pome_dtype dtype = pairs[rng(7)][0];
        box b = make_box(dtype, 3, shape, false);
        static const char value[8] = {1, 2, 3, 4, 5, 6, 7, 8};
        char *wanted = malloc(b.len_bytes);
        assert_non_null(wanted);
        memcpy(wanted, b.memory, b.len_bytes);
        size_t size = (size_t)pome_elem_size(dtype);
        for (int64_t k = 0; k < pome_tensor_count(&b.t); k++)
            memcpy(wanted + ((char *)b.t.data - b.memory) + offset_of(3, shape, b.t.stride, k) * (int64_t)size, value,
                   size);
        pome_strided_fill(&b.t, value, NULL);
        assert_memory_equal(b.memory, wanted, b.len_bytes);
        free(wanted);
        free(b.memory);
    }
}

/* A view, where one is found, must show the same elements in the same order; where none is found, some pair of
 * neighbouring elements must really be out of step. */
static void test_reshape_views(void **state)
{
    (void)state;
    static const int64_t factors[] = {1, 2, 3, 2, 1, 5};
    int n_views = 0;
    for (int i = 0; i < 4000; i++) {
        int64_t from[4] = {1, 1, 1, 1}, to[4] = {1, 1, 1, 1};
        for (int k = 0; k < 6; k++) {
            from[rng(4)] *= factors[k];
            to[rng(4)] *= factors[k];
        }
        box b = make_box(POME_DTYPE_I32, 4, from, true);
        pome_tensor view = {.rank = 4};
        memcpy(view.shape, to, sizeof to);
        if (pome_strided_reshape(&view, &b.t)) {
            n_views++;
            for (int64_t k = 0; k < pome_tensor_count(&b.t); k++)
                assert_int_equal(offset_of(4, to, view.stride, k), offset_of(4, from, b.t.stride, k));
            assert_ptr_equal(view.data, b.t.data);
        } else { /* along some output axis the steps differ */
            bool is_uneven = false;
            int64_t inner = 1;
            for (int d = 3; d >= 0; d--) {
                int64_t expected = 0;
                for (int64_t k = 0; k + inner < pome_tensor_count(&b.t); k++) {
                    if (k / inner % to[d] == to[d] - 1)
                        continue;
                    int64_t step = offset_of(4, from, b.t.stride, k + inner) - offset_of(4, from, b.t.stride, k);
                    is_uneven |= expected != 0 && step != expected;
                    is_uneven |= step == 0 || expected == 0 ? k > 0 && step != expected : false;
                    expected = step;
                }
                inner *= to[d];
            }
            assert_true(is_uneven);
        }
        free(b.memory);
    }
    assert_in_range(n_views, 1000, 3999);
}

static void test_reshape_empty(void **state)
{
    (void)state;
    pome_tensor in = {.dtype = POME_DTYPE_F32, .rank = 2, .shape = {0, 5}, .stride = {5, 1}};
    pome_tensor out = {.rank = 3, .shape = {7, 0, 2}};
    assert_true(pome_strided_reshape(&out, &in));
    assert_int_equal(out.dtype, POME_DTYPE_F32);
}

static void test_overlap(void **state)
{
    (void)state;
    float memory[100];
    pome_tensor a = {.dtype = POME_DTYPE_F32, .rank = 1, .shape = {10}, .stride = {1}, .data = memory};
    pome_tensor b = a;
    assert_true(pome_strided_overlap(&a, &b));
    assert_true(pome_strided_same(&a, &b));
    b.data = memory + 10;
    assert_false(pome_strided_overlap(&a, &b));
    b.stride[0] = -1; /* 10 down to 1 */
    assert_true(pome_strided_overlap(&a, &b));
    assert_false(pome_strided_same(&a, &b));
    b.shape[0] = 0;
    assert_false(pome_strided_overlap(&a, &b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_small),  cmocka_unit_test(test_large_in_pieces), cmocka_unit_test(test_fill),
        cmocka_unit_test(test_reshape_views), cmocka_unit_test(test_reshape_empty),   cmocka_unit_test(test_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
