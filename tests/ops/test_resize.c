#include <math.h>
#include <string.h>

#include "op_test.h"

enum { MAX = 60000 };
static double want[MAX];
static const char *const modes[] = {"DEFAULT", "STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "OFFSET_CORNERS", "UNALIGN_CORNERS"};

/* The formulas of the definition of resize_bilinear, one by one. */
static double grid(const char *mode, int64_t n_in, int64_t n, int64_t i)
{
    double in = (double)n_in, out = (double)n, at;
    if (strcmp(mode, "DEFAULT") == 0)
        at = n > 1 ? (double)i * (in - in / out) / (out - 1) : 0;
    else if (strcmp(mode, "STRICT_ALIGN_CORNERS") == 0)
        at = n > 1 ? (double)i * (in - 1) / (out - 1) : 0;
    else if (strcmp(mode, "ALIGN_CORNERS") == 0)
        at = n > 1 ? (double)i * (in - 1) / (out - 1) : (in - 1) / 2;
    else if (strcmp(mode, "OFFSET_CORNERS") == 0)
        at = (0.5 + (double)i) * (in - 1 < 1 ? 1 : in - 1) / out;
    else
        at = (double)i * (in / out) + 0.5 * (in / out) - 0.5;
    return at;
}

static double clamped(double at, int64_t n_in)
{
    return at < 0 ? 0 : at > (double)(n_in - 1) ? (double)(n_in - 1) : at;
}

/* Recursion over the axes: the value at `index` of the output. */
static bool is_rounded; /* how nearest pixels are found in DEFAULT mode */
static double value(const pome_tensor *x, const int64_t *out, int32_t first, const char *mode, bool nearest,
                    const int64_t *index, int64_t *at, int32_t d)
{
    if (d == x->rank)
        return op_test_at_index(x, at);
    if (d < first) {
        at[d] = index[d];
        return value(x, out, first, mode, nearest, index, at, d + 1);
    }
    double place = grid(mode, x->shape[d], out[d], index[d]);
    if (nearest) {
        place = clamped(strcmp(mode, "DEFAULT") == 0 ? (is_rounded ? ceil(place - 0.5 - 1e-9) : floor(place + 1e-9)) : floor(place + 0.5 + 1e-9), x->shape[d]);
        at[d] = (int64_t)place;
        return value(x, out, first, mode, nearest, index, at, d + 1);
    }
    place = clamped(place, x->shape[d]);
    double share = place - floor(place), sum = 0;
    at[d] = (int64_t)place;
    sum = (1 - share) * value(x, out, first, mode, nearest, index, at, d + 1);
    if (share > 0) {
        at[d] = (int64_t)place + 1;
        sum += share * value(x, out, first, mode, nearest, index, at, d + 1);
    }
    return sum;
}

static void reference(const pome_tensor *x, const int64_t *out, int32_t n_resized, const char *mode, bool nearest)
{
    int64_t index[POME_MAX_RANK] = {0}, at[POME_MAX_RANK] = {0};
    size_t n = 0;
    do
        want[n++] = value(x, out, x->rank - n_resized, mode, nearest, index, at, 0);
    while (op_test_next(index, x->rank, out));
}

static pome_tensor image(int32_t rank, pome_dtype dtype)
{
    int64_t shape[POME_MAX_RANK];
    op_test_shape(shape, rank, 6, false);
    return op_test_tensor(dtype, rank, shape, -4, 4);
}

static pome_dtype float_type(int round)
{
    return round % 3 == 2 ? POME_DTYPE_F16 : POME_DTYPE_F32;
}

static void resize_2d(void **state)
{
    (void)state;
    for (int round = 0; round < 120; round++) {
        pome_tensor x = image(3 + round % 3, float_type(round));
        bool nearest = round % 4 == 3;
        const char *mode = nearest ? "DEFAULT" : modes[op_test_random_int(0, 4)];
        int64_t out[POME_MAX_RANK];
        memcpy(out, x.shape, sizeof out);
        out[x.rank - 2] = op_test_random_int(1, 9);
        out[x.rank - 1] = op_test_random_int(1, 9);
        op_test *t = op_test_begin(nearest ? POME_OP_resize_nearest_neighbor : POME_OP_resize_bilinear, POME_OPSET_IOS15);
        op_test_in(t, "x", &x);
        op_test_const_int(t, "target_size_height", (int32_t)out[x.rank - 2]);
        op_test_const_int(t, "target_size_width", (int32_t)out[x.rank - 1]);
        if (!nearest && (strcmp(mode, "DEFAULT") != 0 || round % 2))
            op_test_const_str(t, "sampling_mode", mode);
        reference(&x, out, 2, mode, nearest);
        assert_int_equal(op_test_run(t), POME_OK);
        op_test_expect_shape(t, 0, x.rank, out);
        op_test_expect(t, 0, want, 1e-5, 2e-6);
        op_test_end(t);
        pome_tensor_reset(&x);
    }
}

static void upsample(void **state)
{
    (void)state;
    for (int round = 0; round < 120; round++) {
        pome_tensor x = image(3 + round % 3, float_type(round));
        bool nearest = round % 2, align = round % 4 < 2, half = !align && round % 8 < 6;
        int64_t out[POME_MAX_RANK];
        memcpy(out, x.shape, sizeof out);
        op_test *t = op_test_begin(nearest ? POME_OP_upsample_nearest_neighbor : POME_OP_upsample_bilinear,
                                   POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        for (int d = 0; d < 2; d++) {
            const char *name = d ? "scale_factor_width" : "scale_factor_height";
            int64_t n = x.shape[x.rank - 2 + d], whole = op_test_random_int(1, 3);
            float scale = (float)op_test_random_int(1, 40) / 8.0f;
            if ((float)n * scale < 1 || round % 5 == 0) {
                op_test_const_int(t, name, (int32_t)whole);
                out[x.rank - 2 + d] = n * whole;
            } else {
                op_test_const_f32(t, name, scale);
                out[x.rank - 2 + d] = (int64_t)floor((double)n * scale);
            }
        }
        if (!nearest) {
            op_test_const_bool(t, "align_corners", align);
            if (!align && !half)
                op_test_const_bool(t, "half_pixel_centers", false);
        }
        reference(&x, out, 2, nearest ? "DEFAULT" : align ? "STRICT_ALIGN_CORNERS" : half ? "UNALIGN_CORNERS" : "DEFAULT",
                  nearest);
        assert_int_equal(op_test_run(t), POME_OK);
        op_test_expect_shape(t, 0, x.rank, out);
        op_test_expect(t, 0, want, 1e-5, 2e-6);
        op_test_end(t);
        pome_tensor_reset(&x);
    }
}

static void resize_any_axes(void **state)
{
    (void)state;
    for (int round = 0; round < 150; round++) {
        int32_t rank = (int32_t)op_test_random_int(1, 5), n_resized = (int32_t)op_test_random_int(0, rank < 3 ? rank : 3);
        int32_t n_shape = (int32_t)op_test_random_int(n_resized > 0 ? n_resized : 1, rank), shape[POME_MAX_RANK];
        bool is_int = round % 5 == 4, nearest = round % 2;
        pome_tensor x = image(rank, is_int ? POME_DTYPE_I32 : float_type(round));
        const char *mode = modes[op_test_random_int(0, 4)];
        int64_t out[POME_MAX_RANK];
        memcpy(out, x.shape, sizeof out);
        for (int32_t i = 0; i < n_shape; i++) {
            shape[i] = (int32_t)op_test_random_int(0, 7);
            int32_t axis = rank - n_shape + i;
            if (axis >= rank - n_resized && shape[i] > 0)
                out[axis] = shape[i];
        }
        op_test *t = op_test_begin(POME_OP_resize, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        op_test_const_ints(t, "shape", shape, n_shape);
        pome_tensor dims = op_test_tensor_of(POME_DTYPE_U32, 0, NULL, &(double){n_resized});
        op_test_const(t, "resized_dims", &dims);
        op_test_const_str(t, "interpolation_mode", nearest ? "NEAREST_NEIGHBOR" : "LINEAR");
        op_test_const_str(t, "sampling_mode", mode);
        is_rounded = true;
        reference(&x, out, n_resized, mode, nearest);
        is_rounded = false;
        for (int64_t i = 0; i < MAX && is_int; i++)
            want[i] = trunc(want[i] + (want[i] > 0 ? 1e-6 : -1e-6));
        assert_int_equal(op_test_run(t), POME_OK);
        op_test_expect_shape(t, 0, rank, out);
        op_test_expect(t, 0, want, 1e-5, 3e-6);
        op_test_end(t);
        pome_tensor_reset(&dims);
        pome_tensor_reset(&x);
    }
}

static void examples_of_the_definition(void **state)
{
    (void)state;
    static const double five[5][5] = {{0, 0.4, 0.8, 1, 1}, {0, 0.25, 0.5, 0.75, 1}, {0, 0.25, 0.5, 0.75, 1},
                                      {0.1, 0.3, 0.5, 0.7, 0.9}, {0, 0.1, 0.5, 0.9, 1}};
    pome_tensor x = op_test_tensor_of(POME_DTYPE_F32, 3, (int64_t[]){1, 1, 2}, (double[]){0, 1});
    for (int m = 0; m < 5; m++) {
        op_test *t = op_test_begin(POME_OP_resize_bilinear, POME_OPSET_IOS15);
        op_test_in(t, "x", &x);
        op_test_const_int(t, "target_size_width", 5);
        op_test_const_str(t, "sampling_mode", modes[m]);
        assert_int_equal(op_test_run(t), POME_OK);
        op_test_expect(t, 0, five[m], 0, 1e-6);
        op_test_end(t);
    }
    pome_tensor_reset(&x);
}

/* coremltools' own case: rows of 2 become 3, rounded to the nearest. */
static void nearest_is_rounded(void **state)
{
    (void)state;
    pome_tensor x = op_test_tensor_of(POME_DTYPE_F32, 4, (int64_t[]){1, 1, 2, 1}, (double[]){-1, 2});
    pome_tensor dims = op_test_tensor_of(POME_DTYPE_U32, 0, NULL, &(double){2});
    op_test *t = op_test_begin(POME_OP_resize, POME_OPSET_IOS17);
    op_test_in(t, "x", &x);
    op_test_const_ints(t, "shape", (int32_t[]){3, 2}, 2);
    op_test_const(t, "resized_dims", &dims);
    op_test_const_str(t, "interpolation_mode", "NEAREST_NEIGHBOR");
    assert_int_equal(op_test_run(t), POME_OK);
    op_test_expect(t, 0, (double[]){-1, -1, 2, 2, 2, 2}, 0, 0);
    op_test_end(t);
    pome_tensor_reset(&x);
    pome_tensor_reset(&dims);
}

static void refusals(void **state)
{
    (void)state;
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, 3, (int64_t[]){1, 0, 2}, 0, 1);
    op_test *t = op_test_begin(POME_OP_resize_bilinear, POME_OPSET_IOS15);
    op_test_in(t, "x", &x);
    op_test_const_int(t, "target_size_height", 2);
    op_test_expect_failure(t, POME_ERR_ARG, "x is empty");
    op_test_end(t);
    pome_tensor_reset(&x);
    x = op_test_tensor(POME_DTYPE_F32, 3, (int64_t[]){1, 1, 2}, 0, 1);
    t = op_test_begin(POME_OP_upsample_bilinear, POME_OPSET_IOS16);
    op_test_in(t, "x", &x);
    op_test_const_bool(t, "align_corners", true);
    op_test_const_bool(t, "half_pixel_centers", true);
    op_test_expect_failure(t, POME_ERR_UNSUPPORTED, "half_pixel_centers");
    op_test_end(t);
    pome_tensor_reset(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resize_2d),       cmocka_unit_test(upsample), cmocka_unit_test(resize_any_axes),
        cmocka_unit_test(examples_of_the_definition), cmocka_unit_test(nearest_is_rounded), cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
