/* resample, affine, crop_resize: images [B, C, H, W] sampled at positions that are computed or given, pixel by pixel.
 * Positions are taken in double, values in float. */
#include <strings.h>

#include "ops/families.h"
#include "ops/grid.h"
#include "ops/index.h"

typedef enum padding { PAD_CONSTANT, PAD_BORDER, PAD_REFLECTION, PAD_SYMMETRIC } padding;

/* The four pixels around a position, by their offsets in a plane (-1: padding), and their weights. */
typedef struct spot {
    int64_t at[4];
    float weight[4];
    int n;
    bool is_outside; /* wholly padding */
} spot;

static float value_at(const float *x, const spot *s, float padding_value)
{
    float sum = 0;
    if (s->is_outside)
        return padding_value;
    for (int i = 0; i < s->n; i++)
        if (s->weight[i] != 0)
            sum += s->weight[i] * (s->at[i] < 0 ? padding_value : x[s->at[i]]);
    return sum;
}

/* Back and forth between low and low + span. */
static double reflect(double at, double low, double span)
{
    if (!(span > 0))
        return low;
    double d = fmod(fabs(at - low), 2 * span);
    return low + (d <= span ? d : 2 * span - d);
}

static double into_image(padding p, double at, double n)
{
    if (p == PAD_REFLECTION)
        at = reflect(at, 0, n - 1);
    else if (p == PAD_SYMMETRIC)
        at = reflect(at, -0.5, n);
    return p == PAD_CONSTANT ? at : pome_grid_clamp(at, 0, n - 1);
}

static int64_t offset_of(double y, double x, int64_t h, int64_t w)
{
    return y < 0 || x < 0 || y >= (double)h || x >= (double)w ? -1 : (int64_t)y * w + (int64_t)x;
}

/* y, x in pixels. */
static void find_spot(spot *s, padding p, bool is_nearest, double y, double x, int64_t h, int64_t w)
{
    y = into_image(p, y, (double)h);
    x = into_image(p, x, (double)w);
    *s = (spot){.n = 1, .weight = {1}};
    /* also false for NaN; beyond these no pixel is near, and the numbers below stay whole */
    s->is_outside = !(y > -1 && x > -1 && y < (double)h && x < (double)w);
    if (s->is_outside)
        return;
    if (is_nearest) {
        s->at[0] = offset_of(nearbyint(y), nearbyint(x), h, w); /* halves to the even pixel */
        return;
    }
    double y0 = floor(y), x0 = floor(x), fy = y - y0, fx = x - x0;
    s->n = 4;
    for (int i = 0; i < 4; i++) {
        s->at[i] = offset_of(y0 + (i >> 1), x0 + (i & 1), h, w);
        s->weight[i] = (float)((i >> 1 ? fy : 1 - fy) * (i & 1 ? fx : 1 - fx));
    }
}

typedef struct sampling {
    const pome_run *r;
    const pome_tensor *x;
    padding pad;
    bool is_nearest, is_align;
    float padding_value;
    int mode;                  /* coordinates: 0 pixels, 1 in [-1, 1], 2 in [0, 1] */
    const pome_tensor *places; /* coordinates or transform_matrix */
} sampling;

static double to_pixels(const sampling *s, double at, int64_t n)
{
    if (s->mode == 0)
        return at;
    if (s->mode == 1)
        at = (at + 1) / 2;
    return s->is_align ? at * (double)(n - 1) : at * (double)n - 0.5;
}

static double place_at(const pome_tensor *t, int64_t i)
{
    return t->dtype == POME_DTYPE_F32 ? (double)((const float *)t->data)[i] : (double)pome_index_read(t, i);
}

/* Puts the pixel of every channel. */
static void put(const sampling *s, int64_t b, int64_t row, int64_t column, double y, double x)
{
    const pome_tensor *out = &s->r->out[0];
    int64_t h = s->x->shape[2], w = s->x->shape[3], n_channels = out->shape[1];
    float *to = (float *)out->data + (b * n_channels * out->shape[2] + row) * out->shape[3] + column;
    const float *from = (const float *)s->x->data + b * n_channels * h * w;
    spot at;
    find_spot(&at, s->pad, s->is_nearest, y, x, h, w);
    for (int64_t c = 0; c < n_channels; c++)
        to[c * out->shape[2] * out->shape[3]] = value_at(from + c * h * w, &at, s->padding_value);
}

static void resample_rows(void *arg, size_t begin, size_t end, int thread)
{
    const sampling *s = (const sampling *)arg;
    int64_t rows = s->r->out[0].shape[2], columns = s->r->out[0].shape[3];
    (void)thread;
    for (size_t i = begin; i < end; i++)
        for (int64_t j = 0; j < columns; j++) {
            int64_t at = ((int64_t)i * columns + j) * 2;
            put(s, (int64_t)i / rows, (int64_t)i % rows, j, to_pixels(s, place_at(s->places, at + 1), s->x->shape[2]),
                to_pixels(s, place_at(s->places, at), s->x->shape[3]));
        }
}

static size_t row_grain(const pome_tensor *out)
{
    int64_t n = out->shape[1] * out->shape[3];
    return n >= 2048 ? 1 : (size_t)(2048 / (n > 0 ? n : 1));
}

static void run_rows(sampling *s, pome_pool_fn *fn)
{
    const pome_tensor *out = &s->r->out[0];
    if (pome_tensor_count(out) > 0)
        pome_pool_run(s->r->pool, (size_t)(out->shape[0] * out->shape[2]), row_grain(out), fn, s);
}

static pome_status resample_run(const pome_run *r, pome_error *err)
{
    const char *pad = pome_op_str(r->op, P_resample_padding_mode, "constant");
    const char *mode = pome_op_str(r->op, P_resample_coordinates_mode, "unnormalized");
    sampling s = {.r = r, .x = pome_in(r, P_resample_x), .places = pome_in(r, P_resample_coordinates)};
    s.pad = strcasecmp(pad, "border") == 0       ? PAD_BORDER
            : strcasecmp(pad, "reflection") == 0 ? PAD_REFLECTION
            : strcasecmp(pad, "symmetric") == 0  ? PAD_SYMMETRIC
                                                 : PAD_CONSTANT;
    s.mode = strcasecmp(mode, "unnormalized") == 0 ? 0 : strcasecmp(mode, "normalized_minus_one_to_one") == 0 ? 1 : 2;
    s.is_nearest = strcasecmp(pome_op_str(r->op, P_resample_sampling_mode, "bilinear"), "nearest") == 0;
    s.is_align = pome_in_bool(r, P_resample_align_corners, false);
    s.padding_value = (float)pome_in_float(r, P_resample_padding_value, 0);
    if (pome_tensor_count(s.x) == 0 && pome_tensor_count(&r->out[0]) > 0)
        return pome_op_fail(r->op, err, POME_ERR_ARG, "there is nothing to sample: x is empty");
    run_rows(&s, resample_rows);
    return POME_OK;
}

/* From -1 to 1; one alone is in the middle. */
static double along(int64_t i, int64_t n)
{
    return n > 1 ? 2 * (double)i / (double)(n - 1) - 1 : 0;
}

static void affine_rows(void *arg, size_t begin, size_t end, int thread)
{
    const sampling *s = (const sampling *)arg;
    int64_t rows = s->r->out[0].shape[2], columns = s->r->out[0].shape[3];
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        int64_t b = (int64_t)i / rows;
        const float *m = (const float *)s->places->data + (s->places->shape[0] > 1 ? b * 6 : 0);
        double y = along((int64_t)i % rows, rows);
        for (int64_t j = 0; j < columns; j++) {
            double x = along(j, columns), to_x = (double)m[0] * x + (double)m[1] * y + (double)m[2],
                   to_y = (double)m[3] * x + (double)m[4] * y + (double)m[5];
            put(s, b, (int64_t)i % rows, j, to_pixels(s, to_y, s->x->shape[2]), to_pixels(s, to_x, s->x->shape[3]));
        }
    }
}

static pome_status affine_run(const pome_run *r, pome_error *err)
{
    sampling s = {.r = r, .x = pome_in(r, P_affine_x), .places = pome_in(r, P_affine_transform_matrix), .mode = 1};
    s.is_align = pome_in_bool(r, P_affine_align_corners, true);
    if (pome_tensor_count(s.x) == 0 && pome_tensor_count(&r->out[0]) > 0)
        return pome_op_fail(r->op, err, POME_ERR_ARG, "there is nothing to sample: x is empty");
    run_rows(&s, affine_rows);
    return POME_OK;
}

/* ---- crop_resize ---- */

typedef struct crops {
    const pome_run *r;
    const pome_tensor *x, *boxes, *indices; /* indices NULL: box n of image n, or every image (box_size 4 of a roi) */
    int64_t box_size;                       /* numbers for a box in `boxes`: 4, or 5 with the image first */
    int64_t n_images;                       /* crops of each box */
    bool is_normalized, is_center, is_width_first;
    bool is_cut; /* iOS 15 has no value for what is outside: boxes are cut to the image */
    double scale;
    pome_sampling mode;
    float pad_value;
} crops;

/* A box of which cutting leaves nothing stands for the whole axis. What the framework does there is not documented; this
 * gives the values that coremltools' tests have from it. */
static void cut_span(int64_t n, double *begin, double *end)
{
    bool is_point = *begin == *end;
    *begin = pome_grid_clamp(*begin, 0, (double)(n - 1));
    *end = pome_grid_clamp(*end, 0, (double)(n - 1));
    if (*begin == *end && !is_point) {
        *begin = 0;
        *end = (double)(n - 1);
    }
}

/* Begin and end of a box on one axis, in pixels. `first`: which of the pair of numbers is the axis's. */
static void box_span(const crops *c, int64_t box, int first, int64_t n, double *begin, double *end)
{
    int64_t at = box * c->box_size + (c->box_size - 4) + first;
    double unit = (c->is_normalized ? (double)(n - 1) : 1) * c->scale;
    double a = place_at(c->boxes, at) * unit, b = place_at(c->boxes, at + 2) * unit;
    *begin = c->is_center ? a - b / 2 : a;
    *end = c->is_center ? a + b / 2 : b;
    if (c->is_cut)
        cut_span(n, begin, end);
}

/* Point i of n between begin and end, which may be the other way round. */
static double point_at(const crops *c, double begin, double end, int64_t n, int64_t i)
{
    double length = fabs(end - begin);
    double at = pome_grid_clamp(pome_grid_at(c->mode, length + 1, (double)n, (double)i), 0, length);
    return end < begin ? begin - at : begin + at;
}

static int64_t image_of(const crops *c, int64_t box, int64_t nth)
{
    if (c->indices)
        return pome_index_read(c->indices, box);
    if (c->box_size == 5) {
        double image = place_at(c->boxes, box * 5);
        return image >= 0 && image < (double)c->x->shape[0] ? (int64_t)image : -1;
    }
    return c->n_images > 1 || c->boxes->rank == 5 ? nth : box;
}

/* Unit of work: one row of one crop. */
static void crop_rows(void *arg, size_t begin, size_t end, int thread)
{
    const crops *c = (const crops *)arg;
    const pome_tensor *out = &c->r->out[0], *x = c->x;
    int64_t h = x->shape[2], w = x->shape[3], n_channels = x->shape[1];
    int64_t n_h = out->shape[out->rank - 2], n_w = out->shape[out->rank - 1];
    (void)thread;
    for (size_t unit = begin; unit < end; unit++) {
        int64_t row = (int64_t)unit % n_h, crop = (int64_t)unit / n_h, box = crop / c->n_images;
        const float *image = (const float *)x->data + image_of(c, box, crop % c->n_images) * n_channels * h * w;
        float *to = (float *)out->data + crop * n_channels * n_h * n_w + row * n_w;
        double y0, y1, x0, x1;
        box_span(c, box, c->is_width_first, h, &y0, &y1);
        box_span(c, box, !c->is_width_first, w, &x0, &x1);
        double y = point_at(c, y0, y1, n_h, row);
        for (int64_t j = 0; j < n_w; j++) {
            double at = point_at(c, x0, x1, n_w, j);
            spot s;
            find_spot(&s, PAD_CONSTANT, false, y, at, h, w);
            if (!(y >= 0 && at >= 0 && y <= (double)(h - 1) && at <= (double)(w - 1)))
                s.is_outside = true;
            for (int64_t k = 0; k < n_channels; k++)
                to[k * n_h * n_w + j] = value_at(image + k * h * w, &s, c->pad_value);
        }
    }
}

static pome_status check_images(const crops *c, int64_t n_boxes, pome_error *err)
{
    for (int64_t box = 0; box < n_boxes; box++) {
        int64_t image = image_of(c, box, 0);
        if (image < 0 || image >= c->x->shape[0])
            return pome_op_fail(c->r->op, err, POME_ERR_ARG, "box %lld is of image %lld, there are %lld",
                                (long long)box, (long long)image, (long long)c->x->shape[0]);
    }
    return POME_OK;
}

static pome_status crop_resize_run(const pome_run *r, pome_error *err)
{
    const char *box_mode = pome_op_str(r->op, P_crop_resize_box_coordinate_mode, "CORNERS_HEIGHT_FIRST");
    const pome_tensor *roi = pome_in(r, P_crop_resize_roi), *out = &r->out[0];
    crops c = {.r = r, .x = pome_in(r, P_crop_resize_x), .boxes = roi ? roi : pome_in(r, P_crop_resize_boxes)};
    c.indices = pome_in(r, P_crop_resize_box_indices);
    c.box_size = roi ? roi->shape[2] : 4;
    c.n_images = roi ? out->shape[1] : 1;
    c.is_normalized = pome_in_bool(r, P_crop_resize_normalized_coordinates, false);
    c.is_center = strncmp(box_mode, "CENTER", 6) == 0;
    c.is_width_first = strstr(box_mode, "WIDTH_FIRST") != NULL;
    c.is_cut = r->opset < POME_OPSET_IOS16;
    c.scale = pome_in_float(r, P_crop_resize_spatial_scale, 1);
    c.mode = pome_sampling_named(pome_op_str(r->op, P_crop_resize_sampling_mode, "DEFAULT"));
    c.pad_value = (float)pome_in_float(r, P_crop_resize_pad_value, 0);
    if (pome_tensor_count(out) == 0)
        return POME_OK;
    POME_TRY(check_images(&c, c.boxes->shape[0], err));
    int64_t n_h = out->shape[out->rank - 2];
    pome_pool_run(r->pool, (size_t)(c.boxes->shape[0] * c.n_images * n_h), 4, crop_rows, &c);
    return POME_OK;
}

const pome_op_impl pome_ops_resample[] = {
    {.id = POME_OP_resample, .run = resample_run},
    {.id = POME_OP_affine, .run = affine_run},
    {.id = POME_OP_crop_resize, .run = crop_resize_run},
};
POME_FAMILY_COUNT(resample)
