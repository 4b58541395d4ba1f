#include <math.h>
#include <string.h>

#include "op_test.h"

enum { MAX = 20000 };
static double want[MAX];

static double pixel(const pome_tensor *x, int64_t b, int64_t c, double row, double column, double pad)
{
    if (row < 0 || column < 0 || row >= (double)x->shape[2] || column >= (double)x->shape[3])
        return pad;
    return op_test_at(x, ((b * x->shape[1] + c) * x->shape[2] + (int64_t)row) * x->shape[3] + (int64_t)column);
}

static double bilinear(const pome_tensor *x, int64_t b, int64_t c, double row, double column, double pad)
{
    double r0 = floor(row), c0 = floor(column), fr = row - r0, fc = column - c0, sum = 0;
    const double w[4] = {(1 - fr) * (1 - fc), (1 - fr) * fc, fr * (1 - fc), fr * fc};
    for (int i = 0; i < 4; i++)
        if (w[i] != 0)
            sum += w[i] * pixel(x, b, c, r0 + i / 2, c0 + i % 2, pad);
    return sum;
}

/* Step by step instead of by a remainder. */
static double mirrored(double at, double low, double high)
{
    if (high <= low)
        return low;
    while (at < low || at > high)
        at = at < low ? 2 * low - at : 2 * high - at;
    return at;
}

static double into(const char *pad, double at, int64_t n)
{
    double last = (double)n - 1;
    if (strcmp(pad, "constant") == 0)
        return at;
    if (strcmp(pad, "reflection") == 0)
        at = mirrored(at, 0, last);
    if (strcmp(pad, "symmetric") == 0)
        at = mirrored(at, -0.5, last + 0.5);
    return at < 0 ? 0 : at > last ? last : at;
}

static double pixels(const char *mode, bool align, double at, int64_t n)
{
    if (strcmp(mode, "unnormalized") == 0)
        return at;
    double unit = strcmp(mode, "normalized_zero_to_one") == 0 ? at : (at + 1) / 2;
    return align ? unit * (double)(n - 1) : unit * (double)n - 0.5;
}

static pome_tensor image(int64_t batch, pome_dtype dtype)
{
    int64_t shape[4] = {batch, op_test_random_int(1, 3), op_test_random_int(1, 6), op_test_random_int(1, 6)};
    return op_test_tensor(dtype, 4, shape, -4, 4);
}

static void resample_like_double(void **state)
{
    (void)state;
    static const char *const pads[] = {"constant", "border", "reflection", "symmetric"};
    static const char *const modes[] = {"unnormalized", "normalized_minus_one_to_one", "normalized_zero_to_one"};
    static const pome_dtype dtypes[] = {POME_DTYPE_F32, POME_DTYPE_F16, POME_DTYPE_I32, POME_DTYPE_I8, POME_DTYPE_U16};
    for (int round = 0; round < 200; round++) {
        const char *pad = pads[round % 4], *mode = modes[round / 4 % 3];
        bool align = round / 12 % 2, nearest = round % 5 > 2;
        pome_dtype dtype = dtypes[round % 3 == 2 ? op_test_random_int(1, 4) : 0];
        pome_tensor x = image(op_test_random_int(1, 2), round % 7 == 6 ? POME_DTYPE_F16 : POME_DTYPE_F32);
        int64_t shape[4] = {x.shape[0], op_test_random_int(1, 4), op_test_random_int(1, 4), 2};
        double low = dtype == POME_DTYPE_U16 ? 0 : -3;
        pome_tensor at = op_test_tensor(dtype, 4, shape, low, strcmp(mode, "unnormalized") == 0 ? 8 : 3);
        op_test *t = op_test_begin(POME_OP_resample, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        op_test_in(t, "coordinates", &at);
        op_test_const_str(t, "sampling_mode", nearest ? "nearest" : "bilinear");
        op_test_const_str(t, "padding_mode", pad);
        if (x.dtype == POME_DTYPE_F16)
            op_test_const_f16(t, "padding_value", 1.5f);
        else
            op_test_const_f32(t, "padding_value", 1.5f);
        op_test_const_str(t, "coordinates_mode", mode);
        op_test_const_bool(t, "align_corners", align);
        size_t n = 0;
        for (int64_t b = 0; b < shape[0]; b++)
            for (int64_t c = 0; c < x.shape[1]; c++)
                for (int64_t p = 0; p < shape[1] * shape[2]; p++) {
                    int64_t place = (b * shape[1] * shape[2] + p) * 2;
                    double column = into(pad, pixels(mode, align, op_test_at(&at, place), x.shape[3]), x.shape[3]);
                    double row = into(pad, pixels(mode, align, op_test_at(&at, place + 1), x.shape[2]), x.shape[2]);
                    want[n++] = nearest ? pixel(&x, b, c, nearbyint(row), nearbyint(column), 1.5)
                                        : bilinear(&x, b, c, row, column, 1.5);
                }
        assert_int_equal(op_test_run(t), POME_OK);
        op_test_expect_shape(t, 0, 4, (int64_t[]){shape[0], x.shape[1], shape[1], shape[2]});
        op_test_expect(t, 0, want, 1e-5, 5e-6);
        op_test_end(t);
        pome_tensor_reset(&x);
        pome_tensor_reset(&at);
    }
}

static void hostile_coordinates(void **state)
{
    (void)state;
    static const double places[] = {NAN, 0, 0, NAN, INFINITY, 0, -INFINITY, INFINITY, 1e30, -1e30, 1e9, 0.5};
    static const char *const pads[] = {"constant", "border", "reflection", "symmetric"};
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, 4, (int64_t[]){1, 1, 2, 3}, 1, 2);
    pome_tensor at = op_test_tensor_of(POME_DTYPE_F32, 4, (int64_t[]){1, 1, 6, 2}, places);
    for (int i = 0; i < 8; i++) {
        op_test *t = op_test_begin(POME_OP_resample, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        op_test_in(t, "coordinates", &at);
        op_test_const_str(t, "sampling_mode", i % 2 ? "nearest" : "bilinear");
        op_test_const_str(t, "padding_mode", pads[i / 2]);
        op_test_const_f32(t, "padding_value", -7);
        op_test_const_str(t, "coordinates_mode", "unnormalized");
        op_test_const_bool(t, "align_corners", true);
        assert_int_equal(op_test_run(t), POME_OK);
        for (int64_t k = 0; k < 6; k++) {
            double got = op_test_at(op_test_out(t, 0), k);
            assert_true(i < 2 ? got == -7 : got >= 1 && got <= 2);
        }
        op_test_end(t);
    }
    pome_tensor_reset(&x);
    pome_tensor_reset(&at);
}

static void affine_like_double(void **state)
{
    (void)state;
    for (int round = 0; round < 60; round++) {
        pome_tensor x = image(op_test_random_int(1, 3), round % 3 == 2 ? POME_DTYPE_F16 : POME_DTYPE_F32);
        int64_t n_m = round % 2 ? 1 : x.shape[0], n_h = op_test_random_int(1, 5), n_w = op_test_random_int(1, 5);
        pome_tensor m = op_test_tensor(x.dtype, 2, (int64_t[]){n_m, 6}, -1.2, 1.2);
        op_test *t = op_test_begin(POME_OP_affine, POME_OPSET_IOS15);
        op_test_in(t, "x", &x);
        op_test_in(t, "transform_matrix", &m);
        op_test_const_int(t, "output_height", (int32_t)n_h);
        op_test_const_int(t, "output_width", (int32_t)n_w);
        op_test_const_str(t, "sampling_mode", "bilinear");
        op_test_const_str(t, "padding_mode", "constant");
        op_test_const_f32(t, "padding_value", 0);
        op_test_const_str(t, "coordinates_mode", "normalized_minus_one_to_one");
        op_test_const_bool(t, "align_corners", true);
        size_t n = 0;
        for (int64_t b = 0; b < x.shape[0]; b++)
            for (int64_t c = 0; c < x.shape[1]; c++)
                for (int64_t i = 0; i < n_h; i++)
                    for (int64_t j = 0; j < n_w; j++) {
                        double v = n_h > 1 ? -1 + 2.0 * (double)i / (double)(n_h - 1) : 0, a[6];
                        double u = n_w > 1 ? -1 + 2.0 * (double)j / (double)(n_w - 1) : 0;
                        for (int k = 0; k < 6; k++)
                            a[k] = op_test_at(&m, (n_m > 1 ? b : 0) * 6 + k);
                        double column = (a[0] * u + a[1] * v + a[2] + 1) / 2 * (double)(x.shape[3] - 1);
                        double row = (a[3] * u + a[4] * v + a[5] + 1) / 2 * (double)(x.shape[2] - 1);
                        want[n++] = bilinear(&x, b, c, row, column, 0);
                    }
        assert_int_equal(op_test_run(t), POME_OK);
        op_test_expect(t, 0, want, 1e-5, 5e-6);
        op_test_end(t);
        pome_tensor_reset(&x);
        pome_tensor_reset(&m);
    }
}

/* ---- crop_resize ---- */

static const char *const samplings[] = {"DEFAULT", "STRICT_ALIGN_CORNERS", "ALIGN_CORNERS", "OFFSET_CORNERS",
                                        "UNALIGN_CORNERS"};
static const char *const box_modes[] = {"CORNERS_HEIGHT_FIRST", "CORNERS_WIDTH_FIRST", "CENTER_SIZE_HEIGHT_FIRST",
                                        "CENTER_SIZE_WIDTH_FIRST"};

/* Point i of n from a to b. */
static double point(int mode, double a, double b, int64_t n, int64_t i)
{
    double span = fabs(b - a), step, at;
    switch (mode) {
    case 0:
        at = (double)i * (span + 1) / (double)n;
        break;
    case 3:
        step = (span > 1 ? span : 1) / (double)n;
        at = step / 2 + (double)i * step;
        break;
    case 4:
        step = (span + 1) / (double)n;
        at = step / 2 - 0.5 + (double)i * step;
        break;
    default:
        at = n > 1 ? (double)i * span / (double)(n - 1) : mode == 2 ? span / 2 : 0;
    }
    at = at < 0 ? 0 : at > span ? span : at;
    return b < a ? a - at : a + at;
}

/* Before iOS 16 a box is cut to the image; if that leaves nothing of it, it is the whole axis. */
static void cut(double *a, double *b, double last)
{
    double c = *a < 0 ? 0 : *a > last ? last : *a, d = *b < 0 ? 0 : *b > last ? last : *b;
    bool whole = c == d && *a != *b;
    *a = whole ? 0 : c;
    *b = whole ? last : d;
}

static void crop_resize_like_double(void **state)
{
    (void)state;
    for (int round = 0; round < 240; round++) {
        int opset = 15 + round % 3, sampling = round / 3 % 5, box_mode = round / 15 % 4;
        bool normalized = op_test_random_int(0, 1), five = opset < 17 && op_test_random_int(0, 1);
        bool indexed = opset == 17 && op_test_random_int(0, 1);
        pome_tensor x = image(five || indexed ? 3 : opset == 17 ? 2 : op_test_random_int(1, 2), POME_DTYPE_F32);
        int64_t n_boxes = opset == 17 && !indexed ? op_test_random_int(1, 2) : op_test_random_int(1, 4);
        int64_t size = five ? 5 : 4, n_h = op_test_random_int(1, 4), n_w = op_test_random_int(1, 4);
        pome_tensor boxes = opset == 17 ? op_test_tensor(POME_DTYPE_F32, 2, (int64_t[]){n_boxes, 4}, -1, normalized ? 2 : 6)
                                        : op_test_tensor(POME_DTYPE_F32, 5, (int64_t[]){n_boxes, 1, size, 1, 1}, -1,
                                                         normalized ? 2 : 6);
        pome_tensor indices = op_test_tensor(round % 2 ? POME_DTYPE_I32 : POME_DTYPE_U16, 1, &n_boxes, 0, 2);
        float scale = op_test_random_int(0, 1) ? 0.5f : 1, pad = opset > 15 ? 2.5f : 0;
        for (int64_t k = 0; k < n_boxes && five; k++)
            op_test_set(&boxes, k * 5, (double)op_test_random_int(0, 2));
        op_test *t = op_test_begin(POME_OP_crop_resize, (pome_opset)opset);
        op_test_in(t, "x", &x);
        op_test_in(t, opset == 17 ? "boxes" : "roi", &boxes);
        if (indexed)
            op_test_in(t, "box_indices", &indices);
        op_test_const_int(t, "target_height", (int32_t)n_h);
        op_test_const_int(t, "target_width", (int32_t)n_w);
        op_test_const_bool(t, "normalized_coordinates", normalized);
        op_test_const_f32(t, "spatial_scale", scale);
        op_test_const_str(t, "box_coordinate_mode", box_modes[box_mode]);
        op_test_const_str(t, "sampling_mode", samplings[sampling]);
        if (opset > 15)
            op_test_const_f32(t, "pad_value", pad);
        int64_t n_images = opset == 17 || five ? 1 : x.shape[0];
        size_t n = 0;
        for (int64_t box = 0; box < n_boxes; box++)
            for (int64_t m = 0; m < n_images; m++)
                for (int64_t c = 0; c < x.shape[1]; c++)
                    for (int64_t i = 0; i < n_h; i++)
                        for (int64_t j = 0; j < n_w; j++) {
                            double v[4], y = (double)(x.shape[2] - 1), w = (double)(x.shape[3] - 1);
                            for (int k = 0; k < 4; k++)
                                v[k] = op_test_at(&boxes, box * size + size - 4 + k) * scale;
                            if (box_mode % 2) { /* to height first */
                                double swap[4] = {v[1], v[0], v[3], v[2]};
                                memcpy(v, swap, sizeof v);
                            }
                            for (int k = 0; k < 4 && normalized; k++)
                                v[k] *= k % 2 ? w : y;
                            if (box_mode >= 2) {
                                double corners[4] = {v[0] - v[2] / 2, v[1] - v[3] / 2, v[0] + v[2] / 2, v[1] + v[3] / 2};
                                memcpy(v, corners, sizeof v);
                            }
                            if (opset == 15) {
                                cut(&v[0], &v[2], y);
                                cut(&v[1], &v[3], w);
                            }
                            double row = point(sampling, v[0], v[2], n_h, i), column = point(sampling, v[1], v[3], n_w, j);
                            int64_t b = five ? (int64_t)op_test_at(&boxes, box * 5)
                                        : indexed ? (int64_t)op_test_at(&indices, box)
                                        : opset == 17 ? box
                                                      : m;
                            bool inside = row >= 0 && column >= 0 && row <= y && column <= w;
                            want[n++] = inside ? bilinear(&x, b, c, row, column, 0) : (double)pad;
                        }
        assert_int_equal(op_test_run(t), POME_OK);
        if (opset == 17)
            op_test_expect_shape(t, 0, 4, (int64_t[]){n_boxes, x.shape[1], n_h, n_w});
        else
            op_test_expect_shape(t, 0, 5, (int64_t[]){n_boxes, n_images, x.shape[1], n_h, n_w});
        op_test_expect(t, 0, want, 1e-5, 5e-6);
        op_test_end(t);
        pome_tensor_reset(&x);
        pome_tensor_reset(&boxes);
        pome_tensor_reset(&indices);
    }
}

/* The values that coremltools 9 has from the framework for boxes on an image of 1 to 16: test_image_resizing.py of iOS 14, 15
 * and 16. */
static void crop_resize_as_written_down(void **state)
{
    static const struct {
        int opset, normalized;
        const char *sampling;
        float pad;
        double roi[5], want[4];
    } cases[] = {
        {15, 0, "ALIGN_CORNERS", 0, {0, 1, 1, 2, 2}, {6, 7, 10, 11}},
        {15, 1, "ALIGN_CORNERS", 0, {0, 0, 0, 1.0 / 3, 1.0 / 3}, {1, 2, 5, 6}},
        {15, 0, "ALIGN_CORNERS", 0, {0, 2, 2, 1, 1}, {11, 10, 7, 6}},
        {15, 1, "UNALIGN_CORNERS", 0, {0, 2, 2, 1, 1}, {3.5, 5.5, 11.5, 13.5}},
        {16, 1, "ALIGN_CORNERS", 10, {0, 0.1, 0.3, 1.3, 1}, {3.1, 5.2, 10, 10}},
        {16, 1, "ALIGN_CORNERS", 10, {0, 0.5, 1.8, 1, 0.3}, {10, 7.9, 10, 13.9}},
        {16, 1, "ALIGN_CORNERS", 10, {0, 0, 0.4, 0.6, 0.7}, {2.2, 3.1, 9.4, 10.3}},
    };
    (void)state;
    double values[16];
    for (int i = 0; i < 16; i++)
        values[i] = i + 1;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pome_tensor x = op_test_tensor_of(POME_DTYPE_F32, 4, (int64_t[]){1, 1, 4, 4}, values);
        pome_tensor roi = op_test_tensor_of(POME_DTYPE_F32, 5, (int64_t[]){1, 1, 5, 1, 1}, (double *)cases[i].roi);
        op_test *t = op_test_begin(POME_OP_crop_resize, (pome_opset)cases[i].opset);
        op_test_in(t, "x", &x);
        op_test_in(t, "roi", &roi);
        op_test_const_int(t, "target_height", 2);
        op_test_const_int(t, "target_width", 2);
        op_test_const_bool(t, "normalized_coordinates", cases[i].normalized);
        op_test_const_str(t, "sampling_mode", cases[i].sampling);
        if (cases[i].opset > 15)
            op_test_const_f32(t, "pad_value", cases[i].pad);
        assert_int_equal(op_test_run(t), POME_OK);
        op_test_expect(t, 0, cases[i].want, 1e-5, 1e-5);
        op_test_end(t);
        pome_tensor_reset(&x);
        pome_tensor_reset(&roi);
    }
}

static void crop_resize_refuses_images(void **state)
{
    (void)state;
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, 4, (int64_t[]){2, 1, 2, 2}, 0, 1);
    pome_tensor boxes = op_test_tensor(POME_DTYPE_F32, 2, (int64_t[]){1, 4}, 0, 1);
    for (int i = 0; i < 2; i++) {
        pome_tensor index = op_test_tensor_of(POME_DTYPE_I32, 1, (int64_t[]){1}, (double[]){i ? -1 : 2});
        op_test *t = op_test_begin(POME_OP_crop_resize, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        op_test_in(t, "boxes", &boxes);
        op_test_in(t, "box_indices", &index);
        op_test_expect_failure(t, POME_ERR_ARG, i ? "image -1, there are 2" : "image 2, there are 2");
        op_test_end(t);
        pome_tensor_reset(&index);
    }
    pome_tensor_reset(&x);
    pome_tensor_reset(&boxes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resample_like_double), cmocka_unit_test(hostile_coordinates),
        cmocka_unit_test(affine_like_double),   cmocka_unit_test(crop_resize_like_double),
        cmocka_unit_test(crop_resize_as_written_down), cmocka_unit_test(crop_resize_refuses_images),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
