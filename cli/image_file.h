/* Image files: PNG and JPEG to pixels, pixels to PNG. */
#ifndef POME_CLI_IMAGE_FILE_H
#define POME_CLI_IMAGE_FILE_H

#include "pome/tensor.h"

bool is_image_path(const char *path); /* .png, .jpg, .jpeg, in any case */

/* uint8 [H, W, 3], or [H, W] in gray (0.299 R + 0.587 G + 0.114 B, rounded). Alpha is dropped, 16 bits become 8. The format
 * is told by the content. Errors: IO, FORMAT. */
pome_status image_read(pome_tensor *out, const char *path, bool is_gray, pome_error *err);
/* pixels: uint8 [H, W, 3] or [H, W], contiguous. */
pome_status image_write(const char *path, const pome_tensor *pixels, pome_error *err);

#endif
