/* Images as callers have them, pixel after pixel, and as programs have them, plane after plane. */
#ifndef POME_RUNTIME_IMAGE_H
#define POME_RUNTIME_IMAGE_H

#include "base/error.h"
#include "pome/model.h"

/* The shape [1, C, H, W] that a caller's tensor stands for: that itself, or pixels [H, W, 3], [H, W, 4] (alpha is not
 * used), [H, W, 1] or [H, W]. ARG if it is neither or has other channels than the feature. */
pome_status pome_image_shape(const pome_feature *f, const pome_tensor *t, int64_t *shape /* [4] */, pome_error *err);
/* Writes planes [1, C, H, W] or [C, H, W] from either form. Red comes first in pixels; planes are in the feature's order. */
pome_status pome_image_to_planes(const pome_feature *f, const pome_tensor *planes, const pome_tensor *t, pome_error *err);

/* The shape of an image of the feature's kind in pixels, from planes: [H, W, 3] or [H, W]. ARG if there is more than one
 * image or the channels are others. */
pome_status pome_image_pixels_shape(const pome_feature *f, const pome_tensor *planes, pome_tensor *pixels,
                                    pome_error *err);
/* Fills pixels (uint8: rounded to the nearest of 0 to 255, halves to even, NaN to 0; or fp16). */
pome_status pome_image_from_planes(const pome_feature *f, const pome_tensor *pixels, const pome_tensor *planes,
                                   pome_error *err);

#endif
