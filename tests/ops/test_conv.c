#include <math.h>
#include <string.h>

#include "base/f16.h"
#include "encoded_test.h"

enum { MAX = 300000 };
static double want[MAX], weight[MAX];

typedef struct geometry {
    int32_t n; /* spatial axes */
    int64_t batch, cin, cout, groups;
    int64_t in[3], kernel[3], out[3];
    int32_t stride[3], dilation[3], pad[6];
    const char *pad_type;
} geometry;

static geometry random_geometry(int round, bool dilated)
{
    static const char *const types[] = {"valid", "custom", "same", "same_lower"};
    geometry g = {.n = 1 + round % 3, .batch = op_test_random_int(1, 2), .groups = round % 4 == 3 ? 2 : 1};
    g.cin = g.groups * op_test_random_int(1, 5);
    g.cout = g.groups * op_test_random_int(1, round % 5 == 0 ? 40 : 5);
    if (round % 7 == 6) { /* depthwise */
        g.cin = g.cout = g.groups = op_test_random_int(2, 5);
        g.cout *= round % 3 == 0 ? 2 : 1;
    }
    g.pad_type = types[op_test_random_int(0, 3)];
    for (int d = 0; d < g.n; d++) {
        g.kernel[d] = round % 6 == 5 ? 1 : op_test_random_int(1, 4);
        g.stride[d] = round % 6 == 5 ? 1 : (int32_t)op_test_random_int(1, 3);
        g.dilation[d] = dilated ? (int32_t)op_test_random_int(1, 2) : 1;
        g.pad[2 * d] = (int32_t)op_test_random_int(0, 2);
        g.pad[2 * d + 1] = (int32_t)op_test_random_int(0, 2);
        g.in[d] = op_test_random_int((g.kernel[d] - 1) * g.dilation[d] + 1, 12);
    }
    return g;
}

/* Padding before on axis d, and the length of the output, by the formulas of the format. */
static int64_t before(geometry *g, int d)
{
    int64_t reach = (g->kernel[d] - 1) * g->dilation[d] + 1, s = g->stride[d], pad_before = 0, total = 0;
    if (strcmp(g->pad_type, "custom") == 0) {
        pad_before = g->pad[2 * d];
        total = pad_before + g->pad[2 * d + 1];
    } else if (strncmp(g->pad_type, "same", 4) == 0) {
        total = s * ((g->in[d] + s - 1) / s) - g->in[d] + reach - s;
        total = total < 0 ? 0 : total;
        pad_before = strcmp(g->pad_type, "same") == 0 ? total / 2 : (total + 1) / 2;
    }
    g->out[d] = (g->in[d] + total - reach) / s + 1;
    return pad_before;
}

static int64_t shape_of(int64_t *shape, const geometry *g, int64_t first, int64_t second, const int64_t *spatial)
{
    int64_t count = first * second;
    shape[0] = first;
    shape[1] = second;
    for (int d = 0; d < g->n; d++)
        count *= shape[2 + d] = spatial[d];
    return count;
}

static void split(const geometry *g, int64_t flat, const int64_t *shape, int64_t *index)
{
    for (int d = g->n - 1; d >= 0; d--) {
        index[d] = flat % shape[d];
        flat /= shape[d];
    }
}

static int64_t product(const geometry *g, const int64_t *shape)
{
    int64_t count = 1;
    for (int d = 0; d < g->n; d++)
        count *= shape[d];
    return count;
}

/* Cross-correlation, one output at a time. */
static void reference(geometry *g, const pome_tensor *x, const pome_tensor *bias)
{
    int64_t pad[3], ni = product(g, g->in), nk = product(g, g->kernel), cg = g->cin / g->groups;
    for (int d = 0; d < g->n; d++)
        pad[d] = before(g, d);
    int64_t no = product(g, g->out);
    for (int64_t flat = 0; flat < g->batch * g->cout * no; flat++) {
        int64_t o[3], k[3], co = flat / no % g->cout, b = flat / no / g->cout;
        double sum = bias ? op_test_at(bias, co) : 0;
        split(g, flat % no, g->out, o);
        for (int64_t c = 0; c < cg; c++)
            for (int64_t e = 0; e < nk; e++) {
                int64_t at = 0;
                bool inside = true;
                split(g, e, g->kernel, k);
                for (int d = 0; d < g->n; d++) {
                    int64_t i = o[d] * g->stride[d] + k[d] * g->dilation[d] - pad[d];
                    inside = inside && i >= 0 && i < g->in[d];
                    at = at * g->in[d] + i;
                }
                if (inside)
                    sum += op_test_at(x, (b * g->cin + co / (g->cout / g->groups) * cg + c) * ni + at) *
                           weight[(co * cg + c) * nk + e];
            }
        want[flat] = sum;
    }
}

static void add_geometry(op_test *t, const geometry *g, bool dilated)
{
    op_test_const_ints(t, "strides", g->stride, g->n);
    op_test_const_str(t, "pad_type", g->pad_type);
    op_test_const_ints(t, "pad", g->pad, 2 * g->n);
    if (dilated)
        op_test_const_ints(t, "dilations", g->dilation, g->n);
    if (g->groups > 1)
        op_test_const_int(t, "groups", (int32_t)g->groups);
}

static void load_weight(const pome_tensor *w)
{
    for (int64_t i = 0; i < pome_tensor_count(w); i++)
        weight[i] = op_test_at(w, i);
}

static void test_conv(void **unused)
{
    (void)unused;
    for (int round = 0; round < 84; round++) {
        bool dynamic = round % 11 == 10;
        geometry g = random_geometry(round, !dynamic);
        int64_t shape[5];
        shape_of(shape, &g, g.batch, g.cin, g.in);
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, g.n + 2, shape, -1, 1);
        shape_of(shape, &g, g.cout, g.cin / g.groups, g.kernel);
        pome_tensor w = op_test_tensor(round % 2 && !dynamic ? POME_DTYPE_F16 : POME_DTYPE_F32, g.n + 2, shape, -1, 1);
        pome_tensor bias = op_test_tensor(round % 2 ? POME_DTYPE_F16 : POME_DTYPE_F32, 1, &g.cout, -1, 1);
        load_weight(&w);
        reference(&g, &x, round % 3 ? &bias : NULL);
        op_test *t = op_test_begin(POME_OP_conv, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        if (dynamic)
            op_test_in(t, "weight", &w);
        else
            op_test_const(t, "weight", &w);
        if (round % 3)
            op_test_const(t, "bias", &bias);
        add_geometry(t, &g, !dynamic);
        if (op_test_run(t) != POME_OK)
            fail_msg("%s", op_test_error(t)->message);
        shape_of(shape, &g, g.batch, g.cout, g.out);
        op_test_expect_shape(t, 0, g.n + 2, shape);
        op_test_expect(t, 0, want, 1e-5, 1e-5);
        op_test_end(t);
        pome_tensor_reset(&x);
        pome_tensor_reset(&w);
        pome_tensor_reset(&bias);
    }
}

/* As one step with a sum and limits if `round` says so, against the sums in double; operands by `round` too. */
static void check_image(geometry *g, int round, bool by_winograd)
{
    int64_t shape[5];
    const float low = -0.5f, high = 1;
    bool is_fused = round % 3 == 1, has_bias = round % 4 != 0;
    shape_of(shape, g, g->batch, g->cin, g->in);
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, g->n + 2, shape, -1, 1);
    shape_of(shape, g, g->cout, g->cin / g->groups, g->kernel);
    pome_tensor w = op_test_tensor(round % 2 ? POME_DTYPE_F16 : POME_DTYPE_F32, g->n + 2, shape, -0.2, 0.2);
    pome_tensor bias = op_test_tensor(POME_DTYPE_F32, 1, &g->cout, -1, 1);
    load_weight(&w);
    reference(g, &x, has_bias ? &bias : NULL);
    shape_of(shape, g, g->batch, g->cout, g->out);
    pome_tensor addend = op_test_tensor(POME_DTYPE_F32, g->n + 2, shape, -1, 1);
    op_test *t = op_test_begin(is_fused || by_winograd ? POME_OP_pome_conv : POME_OP_conv, POME_OPSET_IOS17);
    op_test_in(t, "x", &x);
    op_test_const(t, "weight", &w);
    if (has_bias)
        op_test_const(t, "bias", &bias);
    add_geometry(t, g, true);
    if (by_winograd)
        op_test_const_bool(t, "winograd", true);
    if (is_fused) {
        op_test_in(t, "addend", &addend);
        op_test_const_f32(t, "low", low);
        op_test_const_f32(t, "high", high);
        for (int64_t i = 0; i < pome_tensor_count(&addend); i++) {
            double v = want[i] + op_test_at(&addend, i);
            want[i] = v < (double)low ? (double)low : v > (double)high ? (double)high : v;
        }
    }
    if (op_test_run(t) != POME_OK)
        fail_msg("%s", op_test_error(t)->message);
    op_test_expect_shape(t, 0, g->n + 2, shape);
    op_test_expect(t, 0, want, 1e-5, 2e-5);
    op_test_end(t);
    pome_tensor *all[] = {&x, &w, &bias, &addend};
    for (int i = 0; i < 4; i++)
        pome_tensor_reset(all[i]);
}

/* Wide rows and few channels, as in the first layer of a network. */
static void test_first_layers(void **unused)
{
    static const char *const types[] = {"valid", "custom", "same", "same_lower"};
    (void)unused;
    for (int round = 0; round < 64; round++) {
        geometry g = {.n = 2, .batch = 1 + round % 5 / 4, .groups = 1 + round % 6 / 5, .pad_type = types[round / 2 % 4]};
        g.cin = g.groups * op_test_random_int(1, 4);
        g.cout = g.groups * op_test_random_int(2, 30);
        for (int d = 0; d < 2; d++) {
            g.kernel[d] = op_test_random_int(1, 7);
            g.stride[d] = (int32_t)op_test_random_int(1, round % 4 == 0 ? 5 : 2);
            g.dilation[d] = round % 8 == 7 ? 2 : 1;
            g.pad[2 * d] = (int32_t)op_test_random_int(0, 4);
            g.pad[2 * d + 1] = (int32_t)op_test_random_int(0, 4);
            g.in[d] = op_test_random_int(d == 0 ? 13 : 32 * g.stride[1], d == 0 ? 20 : 50 * g.stride[1]);
        }
        check_image(&g, round, false);
    }
}

/* Kernels of one element over planes of every rest of positions; input channels that fit one piece and that do not. */
static void test_small_planes(void **unused)
{
    (void)unused;
    for (int round = 0; round < 40; round++) {
        geometry g = {.n = 2, .batch = 1 + round % 7 / 6, .groups = 1, .kernel = {1, 1}, .stride = {1, 1}, .dilation = {1, 1},
                      .pad_type = "valid"};
        g.cin = op_test_random_int(1, 40) + (round % 3 == 0 ? 250 : 0);
        g.cout = op_test_random_int(1, 60);
        g.in[0] = 2;
        g.in[1] = 8 + round;
        check_image(&g, round, false);
    }
}

static geometry random_winograd(int round)
{
    static const char *const types[] = {"valid", "custom", "same", "same_lower"};
    geometry g = {.n = 2, .batch = 1 + round % 7 / 6, .groups = 1, .kernel = {3, 3}, .stride = {1, 1}, .dilation = {1, 1},
                  .pad_type = types[round % 4]};
    g.cin = op_test_random_int(1, 40) + (round % 6 == 5 ? 250 : 0); /* one piece of channels, and two */
    g.cout = op_test_random_int(1, 30);
    for (int d = 0; d < 2; d++) {
        g.in[d] = op_test_random_int(round % 4 == 1 ? 1 : 3, round % 3 == 2 ? 28 : 14); /* tiles as a whole, and in groups */
        g.pad[2 * d] = (int32_t)op_test_random_int(1, 3);
        g.pad[2 * d + 1] = (int32_t)op_test_random_int(1, 3);
    }
    return g;
}

static void test_winograd(void **unused)
{
    (void)unused;
    for (int round = 0; round < 36; round++) {
        geometry g = random_winograd(round);
        check_image(&g, round, true);
    }
    geometry wide = {.n = 2, .batch = 1, .cin = 3, .cout = 2, .groups = 1, .in = {3, 400}, .kernel = {3, 3}, .stride = {1, 1},
                     .dilation = {1, 1}, .pad_type = "same"}; /* a row of tiles that is a group of its own */
    check_image(&wide, 1, true);
}

/* Infinities, NaN and numbers whose transforms are infinite reach the results that they belong to, and no others. */
static void test_winograd_extremes(void **unused)
{
    static const float extremes[] = {INFINITY, -INFINITY, NAN, 3e38f};
    (void)unused;
    for (int round = 0; round < 6; round++) {
        geometry g = random_winograd(4 * round + 2);
        int64_t shape[5];
        shape_of(shape, &g, g.batch, g.cin, g.in);
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, 4, shape, -1, 1);
        for (int i = 0; i < 3; i++)
            op_test_set(&x, op_test_random_int(0, pome_tensor_count(&x) - 1), (double)extremes[(round + i) % 4]);
        shape_of(shape, &g, g.cout, g.cin, g.kernel);
        pome_tensor w = op_test_tensor(POME_DTYPE_F32, 4, shape, -0.2, 0.2);
        load_weight(&w);
        reference(&g, &x, NULL);
        op_test *t = op_test_begin(POME_OP_pome_conv, POME_OPSET_IOS17);
        op_test_in(t, "x", &x);
        op_test_const(t, "weight", &w);
        add_geometry(t, &g, true);
        op_test_const_bool(t, "winograd", true);
        if (op_test_run(t) != POME_OK)
            fail_msg("%s", op_test_error(t)->message);
        for (int64_t i = 0; i < g.batch * g.cout * product(&g, g.out); i++) {
            double got = op_test_at(op_test_out(t, 0), i), off = got - want[i];
            bool is_same = isnan(want[i]) ? isnan(got) : isinf(want[i]) ? got == want[i] : fabs(off) <= 2e-5 + 1e-5 * fabs(want[i]);
            if (!is_same)
                fail_msg("round %d, element %lld: %g instead of %g", round, (long long)i, got, want[i]);
        }
        op_test_end(t);
        pome_tensor_reset(&x);
        pome_tensor_reset(&w);
    }
}

/* With a sum and limits: element by element what those make of conv's own result. */
static void test_fused_conv(void **unused)
{
    (void)unused;
    for (int round = 0; round < 84; round++) {
        geometry g = random_geometry(round, true);
        int64_t shape[5];
        float low = round % 4 == 1 ? 0 : -0.25f, high = round % 4 == 1 ? INFINITY : 0.75f;
        shape_of(shape, &g, g.batch, g.cin, g.in);
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, g.n + 2, shape, -1, 1);
        shape_of(shape, &g, g.cout, g.cin / g.groups, g.kernel);
        pome_tensor w = op_test_tensor(round % 2 ? POME_DTYPE_F16 : POME_DTYPE_F32, g.n + 2, shape, -1, 1);
        pome_tensor bias = op_test_tensor(POME_DTYPE_F32, 1, &g.cout, -1, 1);
        op_test *t[2];
        pome_tensor addend;
        for (int fused = 0; fused < 2; fused++) {
            t[fused] = op_test_begin(fused ? POME_OP_pome_conv : POME_OP_conv, POME_OPSET_IOS17);
            op_test_in(t[fused], "x", &x);
            op_test_const(t[fused], "weight", &w);
            if (round % 3)
                op_test_const(t[fused], "bias", &bias);
            add_geometry(t[fused], &g, true);
            if (fused && round % 2)
                op_test_in(t[1], "addend", &addend);
            if (fused && round % 4) {
                op_test_const_f32(t[1], "low", low);
                op_test_const_f32(t[1], "high", high);
            }
            if (op_test_run(t[fused]) != POME_OK)
                fail_msg("%s", op_test_error(t[fused])->message);
            if (!fused)
                addend = op_test_tensor(POME_DTYPE_F32, g.n + 2, op_test_out(t[0], 0)->shape, -1, 1);
        }
        for (int64_t i = 0; i < pome_tensor_count(&addend); i++) {
            float y = (float)op_test_at(op_test_out(t[0], 0), i) + (round % 2 ? (float)op_test_at(&addend, i) : 0.0f);
            if (round % 4)
                y = y < low ? low : y > high ? high : y;
            if ((float)op_test_at(op_test_out(t[1], 0), i) != y)
                fail_msg("round %d, element %lld", round, (long long)i);
        }
        op_test_end(t[0]);
        op_test_end(t[1]);
        pome_tensor *all[] = {&x, &w, &bias, &addend};
        for (int i = 0; i < 4; i++)
            pome_tensor_reset(all[i]);
    }
}

/* One code per byte: code * scale + offset, one pair or one for each channel; or a table. */
static void test_conv_quantized(void **unused)
{
    (void)unused;
    for (int round = 0; round < 54; round++) {
        geometry g = random_geometry(round, true);
        int64_t shape[5], one = 1;
        bool lut = round % 4 == 3, per_channel = round % 2, biased = round % 3;
        shape_of(shape, &g, g.batch, g.cin, g.in);
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, g.n + 2, shape, -1, 1);
        shape_of(shape, &g, g.cout, g.cin / g.groups, g.kernel);
        pome_tensor w = op_test_tensor(POME_DTYPE_U8, g.n + 2, shape, 0, lut ? 15 : 255);
        pome_tensor bias = op_test_tensor(POME_DTYPE_U8, 1, &g.cout, 0, 15), dense = {0};
        int64_t n = lut ? 16 : per_channel ? g.cout : one;
        pome_tensor scale = op_test_tensor(round % 5 ? POME_DTYPE_F32 : POME_DTYPE_F16, 1, &n, -0.02, 0.02);
        pome_tensor offset = op_test_tensor(scale.dtype, 1, lut ? &one : &n, -1, 1);
        dense = op_test_tensor(POME_DTYPE_F32, 1, &g.cout, 0, 0);
        for (int64_t i = 0, per = pome_tensor_count(&w) / g.cout; i < pome_tensor_count(&w); i++) {
            int64_t at = lut ? (int64_t)op_test_at(&w, i) : per_channel ? i / per : 0;
            weight[i] = lut ? op_test_at(&scale, at) : op_test_at(&w, i) * op_test_at(&scale, at) + op_test_at(&offset, at);
        }
        for (int64_t c = 0; c < g.cout; c++) {
            int64_t at = lut ? (int64_t)op_test_at(&bias, c) : per_channel ? c : 0;
            op_test_set(&dense, c, lut ? op_test_at(&scale, at)
                                       : op_test_at(&bias, c) * op_test_at(&scale, at) + op_test_at(&offset, at));
        }
        reference(&g, &x, biased ? &dense : NULL);
        op_test *t = op_test_begin(POME_OP_conv_quantized, POME_OPSET_IOS15);
        op_test_in(t, "x", &x);
        op_test_const(t, "weight", &w);
        if (biased)
            op_test_const(t, "bias", &bias);
        op_test_const_str(t, "quantization_type", lut ? "lut" : "linear");
        op_test_const_int(t, "nbits", lut ? 4 : 8);
        op_test_const(t, "quant_scale", &scale);
        op_test_const(t, "quant_bias", &offset);
        add_geometry(t, &g, true);
        if (op_test_run(t) != POME_OK)
            fail_msg("%s", op_test_error(t)->message);
        op_test_expect(t, 0, want, 1e-5, 1e-4);
        op_test_end(t);
        pome_tensor *all[] = {&x, &w, &bias, &dense, &scale, &offset};
        for (int i = 0; i < 6; i++)
            pome_tensor_reset(all[i]);
    }
}

/* Projections written as 1x1 convolutions: int4 blocks, and a position alone against all of them. */
static void check_projection(pome_numerics numerics, double tolerance)
{
    enum { CIN = 96, COUT = 50, LENGTH = 9 };
    pome_arena *arena = pome_arena_create(0);
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, 4, (int64_t[]){1, CIN, 1, LENGTH}, -1, 1);
    pome_tensor bytes = op_test_tensor(POME_DTYPE_U8, 1, (int64_t[]){CIN * COUT / 2}, 0, 255);
    pome_tensor codes = pome_tensor_borrow(bytes.data, POME_DTYPE_I4, 4, (int64_t[]){COUT, CIN, 1, 1});
    pome_tensor scales = op_test_tensor(POME_DTYPE_F16, 4, (int64_t[]){COUT, CIN / 32, 1, 1}, -0.1, 0.1);
    pome_tensor alone = op_test_tensor(POME_DTYPE_F32, 4, (int64_t[]){1, CIN, 1, 1}, 0, 0);
    const pome_encoded *e = encoded_test_blocks(arena, &codes, &scales);
    geometry g = {.n = 2, .batch = 1, .cin = CIN, .cout = COUT, .groups = 1, .in = {1, LENGTH}, .kernel = {1, 1},
                  .stride = {1, 1}, .dilation = {1, 1}, .pad_type = "valid"};
    for (int64_t i = 0; i < CIN * COUT; i++) {
        int code = (((uint8_t *)bytes.data)[i / 2] >> (i % 2 * 4)) & 15;
        weight[i] = pome_f16_round((float)(op_test_at(&scales, i / 32) * (code > 7 ? code - 16 : code)));
    }
    reference(&g, &x, NULL);
    op_test *t = op_test_begin(POME_OP_conv, POME_OPSET_IOS18);
    op_test_numerics(t, numerics);
    op_test_in_as(t, "x", &x, POME_DTYPE_F16);
    op_test_const_encoded(t, "weight", e);
    if (op_test_run(t) != POME_OK)
        fail_msg("%s", op_test_error(t)->message);
    op_test_expect(t, 0, want, 1e-5, tolerance);
    for (int64_t c = 0; c < CIN; c++)
        op_test_set(&alone, c, op_test_at(&x, c * LENGTH + 4));
    op_test *one = op_test_begin(POME_OP_conv, POME_OPSET_IOS18);
    op_test_numerics(one, numerics);
    op_test_in_as(one, "x", &alone, POME_DTYPE_F16);
    op_test_const_encoded(one, "weight", e);
    assert_int_equal(op_test_run(one), POME_OK);
    for (int64_t c = 0; c < COUT; c++)
        assert_true(op_test_at(op_test_out(one, 0), c) == op_test_at(op_test_out(t, 0), c * LENGTH + 4));
    op_test_end(one);
    op_test_end(t);
    pome_tensor_reset(&x);
    pome_tensor_reset(&bytes);
    pome_tensor_reset(&scales);
    pome_tensor_reset(&alone);
    pome_arena_destroy(&arena);
}

static void test_projection(void **unused)
{
    (void)unused;
    check_projection(POME_NUMERICS_EXACT, 1e-5);
    check_projection(POME_NUMERICS_FAST, 96 * 0.8 * (0.501 / 127 + 0x1p-11)); /* steps of 1/127 of the largest */
}

/* out[i * s + k * d - before] += x[i] * w[k], scattered. */
static void transpose_reference(geometry *g, const pome_tensor *x, const pome_tensor *bias, bool given_shape)
{
    int64_t pad[3] = {0}, ni = product(g, g->in), nk = product(g, g->kernel), cg = g->cout / g->groups;
    for (int d = 0; d < g->n; d++) {
        int64_t reach = (g->kernel[d] - 1) * g->dilation[d] + 1, full = (g->in[d] - 1) * g->stride[d] + reach;
        int64_t cut = reach > g->stride[d] ? reach - g->stride[d] : 0, length = full;
        if (strcmp(g->pad_type, "custom") == 0) {
            pad[d] = g->pad[2 * d];
            length = full - g->pad[2 * d] - g->pad[2 * d + 1];
        } else if (strncmp(g->pad_type, "same", 4) == 0) {
            pad[d] = strcmp(g->pad_type, "same") == 0 ? cut / 2 : (cut + 1) / 2;
            length = g->in[d] * g->stride[d];
        }
        g->out[d] = given_shape ? g->out[d] : length;
    }
    int64_t no = product(g, g->out);
    for (int64_t flat = 0; flat < g->batch * g->cout * no; flat++)
        want[flat] = bias ? op_test_at(bias, flat / no % g->cout) : 0;
    for (int64_t b = 0; b < g->batch; b++)
        for (int64_t ci = 0; ci < g->cin; ci++)
            for (int64_t c = 0; c < cg; c++)
                for (int64_t p = 0; p < ni; p++)
                    for (int64_t e = 0; e < nk; e++) {
                        int64_t i[3], k[3], at = 0, co = ci / (g->cin / g->groups) * cg + c;
                        bool inside = true;
                        split(g, p, g->in, i);
                        split(g, e, g->kernel, k);
                        for (int d = 0; d < g->n; d++) {
                            int64_t o = i[d] * g->stride[d] + k[d] * g->dilation[d] - pad[d];
                            inside = inside && o >= 0 && o < g->out[d];
                            at = at * g->out[d] + o;
                        }
                        if (inside)
                            want[(b * g->cout + co) * no + at] +=
                                op_test_at(x, (b * g->cin + ci) * ni + p) * weight[(ci * cg + c) * nk + e];
                    }
}

static void test_conv_transpose(void **unused)
{
    (void)unused;
    for (int round = 0; round < 60; round++) {
        geometry g = random_geometry(round, true);
        int64_t shape[5], count = 1;
        bool enough = true;
        if (g.cout > 5)
            g.cout = g.groups;
        shape_of(shape, &g, g.batch, g.cin, g.in);
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, g.n + 2, shape, -1, 1);
        shape_of(shape, &g, g.cin, g.cout / g.groups, g.kernel);
        pome_tensor w = op_test_tensor(round % 2 ? POME_DTYPE_F16 : POME_DTYPE_F32, g.n + 2, shape, -1, 1);
        pome_tensor bias = op_test_tensor(POME_DTYPE_F32, 1, &g.cout, -1, 1);
        load_weight(&w);
        transpose_reference(&g, &x, &bias, false);
        for (int d = 0; d < g.n; d++)
            enough = enough && g.out[d] > 0;
        count = product(&g, g.out) * g.batch * g.cout;
        if (enough && count < MAX) {
            op_test *t = op_test_begin(POME_OP_conv_transpose, POME_OPSET_IOS17);
            op_test_in(t, "x", &x);
            op_test_const(t, "weight", &w);
            op_test_const(t, "bias", &bias);
            add_geometry(t, &g, true);
            if (op_test_run(t) != POME_OK)
                fail_msg("%s", op_test_error(t)->message);
            shape_of(shape, &g, g.batch, g.cout, g.out);
            op_test_expect_shape(t, 0, g.n + 2, shape);
            op_test_expect(t, 0, want, 1e-5, 1e-5);
            op_test_end(t);
        }
        pome_tensor_reset(&x);
        pome_tensor_reset(&w);
        pome_tensor_reset(&bias);
    }
}

static void pool_reference(geometry *g, const pome_tensor *x, const char *kind, bool exclude)
{
    int64_t pad[3], ni = product(g, g->in), nk = product(g, g->kernel);
    for (int d = 0; d < g->n; d++)
        pad[d] = before(g, d);
    int64_t no = product(g, g->out);
    for (int64_t flat = 0; flat < g->batch * g->cin * no; flat++) {
        int64_t o[3], k[3], n = 0;
        double sum = 0, max = -INFINITY;
        split(g, flat % no, g->out, o);
        for (int64_t e = 0; e < nk; e++) {
            int64_t at = 0;
            bool inside = true;
            split(g, e, g->kernel, k);
            for (int d = 0; d < g->n; d++) {
                int64_t i = o[d] * g->stride[d] + k[d] - pad[d];
                inside = inside && i >= 0 && i < g->in[d];
                at = at * g->in[d] + i;
            }
            if (!inside)
                continue;
            double v = op_test_at(x, flat / no * ni + at);
            sum += *kind == 'l' ? v * v : v;
            max = v > max ? v : max;
            n++;
        }
        want[flat] = *kind == 'm' ? max : *kind == 'l' ? sqrt(sum) : sum / (double)(exclude ? n : nk);
    }
}

static void test_pools(void **unused)
{
    (void)unused;
    for (int round = 0; round < 60; round++) {
        const char *kind = (const char *[]){"avg", "max", "l2"}[round % 3];
        geometry g = random_geometry(round / 3, false);
        int32_t kernel[3];
        int64_t shape[5];
        bool exclude = round % 2, padded_only = false;
        if (*kind == 'l' && g.n == 3)
            g.n = 2;
        for (int d = 0; d < g.n; d++) {
            kernel[d] = (int32_t)g.kernel[d];
            before(&g, d);
            g.pad[2 * d] = g.pad[2 * d] >= kernel[d] ? 0 : g.pad[2 * d]; /* no window in padding alone */
            g.pad[2 * d + 1] = g.pad[2 * d + 1] >= kernel[d] ? 0 : g.pad[2 * d + 1];
            padded_only = padded_only || g.stride[d] > g.kernel[d];
        }
        shape_of(shape, &g, g.batch, g.cin, g.in);
        pome_tensor x = op_test_tensor(POME_DTYPE_F32, g.n + 2, shape, -1, 1);
        if (!padded_only) {
            pool_reference(&g, &x, kind, exclude);
            op_test *t = op_test_begin(*kind == 'a' ? POME_OP_avg_pool : *kind == 'm' ? POME_OP_max_pool : POME_OP_l2_pool,
                                       POME_OPSET_IOS16);
            op_test_in(t, "x", &x);
            op_test_const_ints(t, "kernel_sizes", kernel, g.n);
            op_test_const_ints(t, "strides", g.stride, g.n);
            op_test_const_str(t, "pad_type", g.pad_type);
            op_test_const_ints(t, "pad", g.pad, 2 * g.n);
            if (*kind == 'a')
                op_test_const_bool(t, "exclude_padding_from_average", exclude);
            if (op_test_run(t) != POME_OK)
                fail_msg("%s", op_test_error(t)->message);
            op_test_expect(t, 0, want, 1e-6, 1e-6);
            op_test_end(t);
        }
        pome_tensor_reset(&x);
    }
}

/* The last window hangs over the end: 2x2 of the column 5, 10 and 15, as torch counts (padding yes, beyond it no). */
static void test_ceil_mode(void **unused)
{
    (void)unused;
    double values[15];
    for (int i = 0; i < 15; i++)
        values[i] = i + 1;
    pome_tensor x = op_test_tensor_of(POME_DTYPE_F32, 4, (int64_t[]){1, 1, 3, 5}, values);
    for (int max = 0; max < 2; max++) {
        op_test *t = op_test_begin(max ? POME_OP_max_pool : POME_OP_avg_pool, POME_OPSET_IOS15);
        op_test_in(t, "x", &x);
        op_test_const_ints(t, "kernel_sizes", (int32_t[]){2, 2}, 2);
        op_test_const_ints(t, "strides", (int32_t[]){2, 2}, 2);
        op_test_const_str(t, "pad_type", "custom");
        op_test_const_ints(t, "pad", (int32_t[]){0, 0, 0, 0}, 4);
        op_test_const_bool(t, "ceil_mode", true);
        if (op_test_run(t) != POME_OK)
            fail_msg("%s", op_test_error(t)->message);
        op_test_expect_shape(t, 0, 4, (int64_t[]){1, 1, 2, 3});
        op_test_expect(t, 0, max ? (double[]){7, 9, 10, 12, 14, 15} : (double[]){4, 6, 7.5, 11.5, 13.5, 15}, 1e-6, 0);
        op_test_end(t);
    }
    pome_tensor_reset(&x);
}

static void test_rejections(void **unused)
{
    (void)unused;
    pome_tensor x = op_test_tensor(POME_DTYPE_F32, 4, (int64_t[]){1, 3, 4, 4}, -1, 1);
    pome_tensor w = op_test_tensor(POME_DTYPE_F32, 4, (int64_t[]){2, 2, 1, 1}, -1, 1);
    op_test *t = op_test_begin(POME_OP_conv, POME_OPSET_IOS17);
    op_test_in(t, "x", &x);
    op_test_const(t, "weight", &w);
    op_test_expect_failure(t, POME_ERR_FORMAT, "channels");
    op_test_end(t);
    pome_tensor_reset(&w);
    w = op_test_tensor(POME_DTYPE_F32, 4, (int64_t[]){2, 3, 1, 1}, -1, 1);
    t = op_test_begin(POME_OP_conv, POME_OPSET_IOS17);
    op_test_in(t, "x", &x);
    op_test_const(t, "weight", &w);
    op_test_const_str(t, "pad_type", "full");
    op_test_expect_failure(t, POME_ERR_FORMAT, "full");
    op_test_end(t);
    pome_tensor_reset(&w);
    pome_tensor_reset(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conv), cmocka_unit_test(test_first_layers), cmocka_unit_test(test_small_planes),
        cmocka_unit_test(test_winograd), cmocka_unit_test(test_winograd_extremes),
        cmocka_unit_test(test_fused_conv), cmocka_unit_test(test_conv_quantized), cmocka_unit_test(test_projection), cmocka_unit_test(test_conv_transpose),
        cmocka_unit_test(test_pools), cmocka_unit_test(test_ceil_mode),  cmocka_unit_test(test_rejections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
