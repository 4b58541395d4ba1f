#include "runtime/image.h"

#include <math.h>
#include <string.h>

#include "base/f16.h"

static bool is_bgr(const pome_feature *f)
{
    return f->color == POME_COLOR_BGR;
}

pome_status pome_image_shape(const pome_feature *f, const pome_tensor *t, int64_t *shape, pome_error *err)
{
    int64_t channels = f->shape[1];
    bool is_gray = channels == 1;
    if (t->rank == 4) {
        memcpy(shape, t->shape, 4 * sizeof *shape);
        return POME_OK;
    }
    bool fits = (t->rank == 2 && is_gray) || (t->rank == 3 && is_gray && t->shape[2] == 1) ||
                (t->rank == 3 && !is_gray && (t->shape[2] == 3 || t->shape[2] == 4));
    if (!fits)
        return pome_fail(err, POME_ERR_ARG, "input %s: an image is [1, %lld, height, width] or pixels %s", f->name,
                         (long long)channels, is_gray ? "[height, width]" : "[height, width, 3 or 4]");
    memcpy(shape, (int64_t[]){1, channels, t->shape[0], t->shape[1]}, 4 * sizeof *shape);
    return POME_OK;
}

/* Channel c of planes [1, C, H, W] or [C, H, W], as [H, W]. */
static pome_tensor plane_of(const pome_tensor *planes, int64_t c)
{
    int32_t first = planes->rank - 2;
    pome_tensor t = {.dtype = planes->dtype, .rank = 2};
    for (int d = 0; d < 2; d++) {
        t.shape[d] = planes->shape[first + d];
        t.stride[d] = planes->stride[first + d];
    }
    t.data = (char *)planes->data + c * planes->stride[first - 1] * (int64_t)(pome_dtype_bits(planes->dtype) / 8);
    return t;
}

/* Component c of pixels [H, W, n] or [H, W], as [H, W]. */
static pome_tensor component_of(const pome_tensor *pixels, int64_t c)
{
    pome_tensor t = {.dtype = pixels->dtype, .rank = 2, .data = pixels->data};
    memcpy(t.shape, pixels->shape, 2 * sizeof t.shape[0]);
    memcpy(t.stride, pixels->stride, 2 * sizeof t.stride[0]);
    if (pixels->rank == 3)
        t.data = (char *)pixels->data + c * pixels->stride[2] * (int64_t)(pome_dtype_bits(pixels->dtype) / 8);
    return t;
}

pome_status pome_image_to_planes(const pome_feature *f, const pome_tensor *planes, const pome_tensor *t, pome_error *err)
{
    int64_t n = f->shape[1];
    for (int64_t c = 0; c < n; c++) {
        pome_tensor to = plane_of(planes, c);
        pome_tensor from = t->rank == 4 ? plane_of(t, c) : component_of(t, is_bgr(f) ? n - 1 - c : c);
        POME_TRY(pome_tensor_copy(&to, &from, err));
    }
    return POME_OK;
}

pome_status pome_image_pixels_shape(const pome_feature *f, const pome_tensor *planes, pome_tensor *pixels,
                                    pome_error *err)
{
    int32_t rank = planes->rank;
    int64_t channels = rank >= 3 ? planes->shape[rank - 3] : 0, n = f->shape[1];
    if (rank < 3 || rank > 4 || channels != n || (rank == 4 && planes->shape[0] != 1))
        return pome_fail(err, POME_ERR_ARG, "output %s is described as an image of %lld channels; the program gave "
                         "%lld channels in rank %d", f->name, (long long)n, (long long)channels, (int)rank);
    *pixels = pome_tensor_borrow(NULL, f->dtype, n == 1 ? 2 : 3,
                                 (int64_t[]){planes->shape[rank - 2], planes->shape[rank - 1], n});
    return POME_OK;
}

static uint8_t to_byte(float v)
{
    return v >= 255 ? 255 : v > 0 ? (uint8_t)nearbyintf(v) : 0;
}

static float value_at(const pome_tensor *t, int64_t offset)
{
    return t->dtype == POME_DTYPE_F16 ? pome_f16_to_f32(((const uint16_t *)t->data)[offset])
                                      : ((const float *)t->data)[offset];
}

static void put_bytes(const pome_tensor *to, const pome_tensor *from) /* [H, W] */
{
    for (int64_t y = 0; y < to->shape[0]; y++)
        for (int64_t x = 0; x < to->shape[1]; x++)
            ((uint8_t *)to->data)[y * to->stride[0] + x * to->stride[1]] =
                to_byte(value_at(from, y * from->stride[0] + x * from->stride[1]));
}

pome_status pome_image_from_planes(const pome_feature *f, const pome_tensor *pixels, const pome_tensor *planes,
                                   pome_error *err)
{
    int64_t n = f->shape[1];
    for (int64_t c = 0; c < n; c++) {
        pome_tensor from = plane_of(planes, c), to = component_of(pixels, is_bgr(f) ? n - 1 - c : c);
        if (pixels->dtype == POME_DTYPE_U8 && pome_dtype_is_float(from.dtype))
            put_bytes(&to, &from);
        else
            POME_TRY(pome_tensor_copy(&to, &from, err));
    }
    return POME_OK;
}
