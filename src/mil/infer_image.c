/* Inference of operators on images [..., H, W]. */
#include <inttypes.h>
#include <math.h>
#include <strings.h>

#include "mil/infer.h"

#define SAMPLING_MODES "DEFAULT|STRICT_ALIGN_CORNERS|ALIGN_CORNERS|OFFSET_CORNERS|UNALIGN_CORNERS"
#define BOX_MODES "CORNERS_HEIGHT_FIRST|CORNERS_WIDTH_FIRST|CENTER_SIZE_HEIGHT_FIRST|CENTER_SIZE_WIDTH_FIRST"

/* A size given by a scalar parameter. */
static pome_status size_param(pome_infer *c, uint32_t param, int64_t *out, pome_error *err)
{
    POME_TRY(pome_infer_int(c, param, 1, out, err));
    if (*out < 1)
        return pome_infer_fail(c, err, "%s is %" PRId64, c->op->def->params[param].name, *out);
    return POME_OK;
}

/* floor(scale * n); the product is taken in double. */
static pome_status scaled(pome_infer *c, uint32_t param, int64_t n, int64_t *out, pome_error *err)
{
    const pome_tensor *t = pome_infer_value(c, param);
    if (pome_infer_has(c, param) && !t)
        return pome_infer_fail(c, err, "%s must be a constant", c->op->def->params[param].name);
    double scale = t ? pome_tensor_float_at(t, 0) : 1, size = floor(scale * (double)n);
    if (!(scale > 0))
        return pome_infer_fail(c, err, "%s is %g", c->op->def->params[param].name, scale);
    if (n < 0) {
        *out = scale == 1 ? n : pome_infer_symbol(c);
        return POME_OK;
    }
    if (size > (double)POME_MAX_ELEMENTS)
        return pome_infer_fail(c, err, "size %" PRId64 " * %g is too large", n, scale);
    *out = (int64_t)size;
    return POME_OK;
}

/* x, scale_factor_height, scale_factor_width: the same places in both rows. */
pome_status pome_infer_upsample(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_upsample_bilinear_x);
    int32_t h = x->rank - 2, w = x->rank - 1;
    POME_TRY(pome_infer_rank(c, P_upsample_bilinear_x, 3, POME_MAX_RANK, err));
    c->out[0] = *x;
    POME_TRY(scaled(c, P_upsample_bilinear_scale_factor_height, x->dim[h], &c->out[0].dim[h], err));
    return scaled(c, P_upsample_bilinear_scale_factor_width, x->dim[w], &c->out[0].dim[w], err);
}

/* x, target_size_height, target_size_width: the same places in both rows. */
pome_status pome_infer_resize_2d(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_resize_bilinear_x);
    if (c->op->def->id == POME_OP_resize_bilinear)
        POME_TRY(pome_infer_word(c, P_resize_bilinear_sampling_mode, SAMPLING_MODES, err));
    POME_TRY(pome_infer_rank(c, P_resize_bilinear_x, 3, POME_MAX_RANK, err));
    c->out[0] = *x;
    POME_TRY(size_param(c, P_resize_bilinear_target_size_height, &c->out[0].dim[x->rank - 2], err));
    return size_param(c, P_resize_bilinear_target_size_width, &c->out[0].dim[x->rank - 1], err);
}

/* The last resized_dims elements of `shape` replace x's last sizes; 0 keeps one. */
pome_status pome_infer_resize(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_resize_x);
    int64_t shape[POME_MAX_RANK], n_resized = 0;
    int32_t n = 0;
    bool known = false;
    POME_TRY(pome_infer_word(c, P_resize_interpolation_mode, "LINEAR|NEAREST_NEIGHBOR", err));
    POME_TRY(pome_infer_word(c, P_resize_sampling_mode, SAMPLING_MODES, err));
    POME_TRY(pome_infer_ints(c, P_resize_shape, shape, &n, &known, err));
    POME_TRY(pome_infer_int(c, P_resize_resized_dims, 0, &n_resized, err));
    if (n_resized < 0 || n_resized > x->rank || n > x->rank || (n >= 0 && n_resized > n))
        return pome_infer_fail(c, err, "resized_dims %" PRId64 " and %" PRId32 " sizes do not fit rank %" PRId32,
                               n_resized, n, x->rank);
    c->out[0] = *x;
    for (int32_t i = 0; i < n_resized; i++) {
        int64_t *dim = &c->out[0].dim[x->rank - n_resized + i];
        int64_t size = known ? shape[n - n_resized + i] : pome_infer_symbol(c);
        if (known && size < 0)
            return pome_infer_fail(c, err, "shape holds %" PRId64, size);
        *dim = size == 0 ? *dim : size;
    }
    return POME_OK;
}

/* x [B, C, H, W]. Before iOS 17: roi [N, 1, 4, 1, 1] -> [N, B, C, h, w], or [N, 1, 5, 1, 1] with the image's index
 * first -> [N, 1, C, h, w] (as the definition's text says; coremltools' inference has B there too); since: boxes [N, 4],
 * box_indices [N] -> [N, C, h, w]. */
pome_status pome_infer_crop_resize(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_crop_resize_x), *roi = pome_infer_type(c, P_crop_resize_roi);
    const pome_type *boxes = pome_infer_type(c, P_crop_resize_boxes);
    int64_t h = 1, w = 1;
    POME_TRY(pome_infer_word(c, P_crop_resize_box_coordinate_mode, BOX_MODES, err));
    POME_TRY(pome_infer_word(c, P_crop_resize_sampling_mode, SAMPLING_MODES, err));
    POME_TRY(pome_infer_rank(c, P_crop_resize_x, 4, 4, err));
    POME_TRY(size_param(c, P_crop_resize_target_height, &h, err));
    POME_TRY(size_param(c, P_crop_resize_target_width, &w, err));
    if (roi) {
        POME_TRY(pome_infer_rank(c, P_crop_resize_roi, 5, 5, err));
        if (roi->dim[2] >= 0 && roi->dim[2] != 4 && roi->dim[2] != 5)
            return pome_infer_fail(c, err, "roi has %" PRId64 " numbers for a box, not 4 or 5", roi->dim[2]);
        c->out[0] = (pome_type){.kind = POME_TYPE_TENSOR, .dtype = x->dtype, .rank = 5,
                                .dim = {roi->dim[0], roi->dim[2] == 5 ? 1 : x->dim[0], x->dim[1], h, w}};
        return POME_OK;
    }
    POME_TRY(pome_infer_rank(c, P_crop_resize_boxes, 2, 2, err));
    if (!pome_dim_may_equal(boxes->dim[1], 4))
        return pome_infer_fail(c, err, "boxes have %" PRId64 " numbers, not 4", boxes->dim[1]);
    POME_TRY(pome_infer_vector(c, P_crop_resize_box_indices, boxes->dim[0], err));
    c->out[0] = (pome_type){.kind = POME_TYPE_TENSOR, .dtype = x->dtype, .rank = 4,
                            .dim = {boxes->dim[0], x->dim[1], h, w}};
    return POME_OK;
}

static pome_status cropped(pome_infer *c, uint32_t param, int64_t *dim, pome_error *err)
{
    const pome_tensor *t = pome_infer_value(c, param);
    if (!t || pome_tensor_count(t) != 2)
        return pome_infer_fail(c, err, "%s must be a constant of 2 elements", c->op->def->params[param].name);
    int64_t before = pome_tensor_int_at(t, 0), after = pome_tensor_int_at(t, 1);
    if (before < 0 || after < 0 || (*dim >= 0 && before + after > *dim))
        return pome_infer_fail(c, err, "cannot crop %" PRId64 " and %" PRId64 " from %" PRId64, before, after, *dim);
    if (*dim >= 0)
        *dim -= before + after;
    else if (before + after > 0)
        *dim = pome_infer_symbol(c);
    return POME_OK;
}

pome_status pome_infer_crop(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_crop_x);
    POME_TRY(pome_infer_rank(c, P_crop_x, 3, POME_MAX_RANK, err));
    c->out[0] = *x;
    POME_TRY(cropped(c, P_crop_crop_height, &c->out[0].dim[x->rank - 2], err));
    return cropped(c, P_crop_crop_width, &c->out[0].dim[x->rank - 1], err);
}

/* ---- sampling at coordinates: mode words in any case ---- */

static pome_status word_any_case(pome_infer *c, uint32_t param, const char *const *words, pome_error *err)
{
    if (!pome_infer_at_load(c))
        return POME_OK;
    const char *word = pome_op_str(c->op, param, "");
    for (int i = 0; words[i]; i++)
        if (strcasecmp(words[i], word) == 0)
            return POME_OK;
    return pome_infer_fail(c, err, "parameter '%s' is '%s', which is not possible here",
                           c->op->def->params[param].name, word);
}

static const char *const bilinear[] = {"bilinear", NULL}, *const constant[] = {"constant", NULL};
static const char *const minus_one_to_one[] = {"normalized_minus_one_to_one", NULL};
static const char *const sampling_modes[] = {"bilinear", "nearest", NULL};
static const char *const padding_modes[] = {"constant", "border", "reflection", "symmetric", NULL};
static const char *const coordinates_modes[] = {"unnormalized", "normalized_minus_one_to_one",
                                                "normalized_zero_to_one", NULL};

/* x [B, C, H, W], transform_matrix [B or 1, 6] */
pome_status pome_infer_affine(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_affine_x), *m = pome_infer_type(c, P_affine_transform_matrix);
    const pome_tensor *padding = pome_infer_value(c, P_affine_padding_value);
    POME_TRY(pome_infer_rank(c, P_affine_x, 4, 4, err));
    POME_TRY(pome_infer_rank(c, P_affine_transform_matrix, 2, 2, err));
    POME_TRY(word_any_case(c, P_affine_sampling_mode, bilinear, err));
    POME_TRY(word_any_case(c, P_affine_coordinates_mode, minus_one_to_one, err));
    POME_TRY(word_any_case(c, P_affine_padding_mode, constant, err));
    if (padding && pome_tensor_float_at(padding, 0) != 0)
        return pome_infer_fail(c, err, "padding_value is %g, not 0", pome_tensor_float_at(padding, 0));
    if (!pome_dim_may_equal(m->dim[1], 6) || (m->dim[0] != 1 && !pome_dim_may_equal(m->dim[0], x->dim[0])))
        return pome_infer_fail(c, err, "transform_matrix is [%" PRId64 ", %" PRId64 "], not [%" PRId64 ", 6]", m->dim[0],
                               m->dim[1], x->dim[0]);
    c->out[0] = *x;
    POME_TRY(size_param(c, P_affine_output_height, &c->out[0].dim[2], err));
    return size_param(c, P_affine_output_width, &c->out[0].dim[3], err);
}

/* x [B, C, H, W], coordinates [B, h, w, 2] -> [B, C, h, w] */
pome_status pome_infer_resample(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_resample_x), *at = pome_infer_type(c, P_resample_coordinates);
    POME_TRY(pome_infer_rank(c, P_resample_x, 4, 4, err));
    POME_TRY(pome_infer_rank(c, P_resample_coordinates, 4, 4, err));
    POME_TRY(word_any_case(c, P_resample_sampling_mode, sampling_modes, err));
    POME_TRY(word_any_case(c, P_resample_padding_mode, padding_modes, err));
    POME_TRY(word_any_case(c, P_resample_coordinates_mode, coordinates_modes, err));
    if (!pome_dim_may_equal(at->dim[0], x->dim[0]) || !pome_dim_may_equal(at->dim[3], 2))
        return pome_infer_fail(c, err, "coordinates [%" PRId64 ", ..., %" PRId64 "] do not fit [%" PRId64 ", ..., 2]",
                               at->dim[0], at->dim[3], x->dim[0]);
    c->out[0] = *x;
    c->out[0].dim[2] = at->dim[1];
    c->out[0].dim[3] = at->dim[2];
    return POME_OK;
}
