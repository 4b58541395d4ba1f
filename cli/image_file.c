#include "image_file.h"

#include <errno.h>
#include <png.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <turbojpeg.h>

enum { SIDE_MAX = 1 << 15 }; /* pixels; beyond it a header is more likely damaged than meant */

static pome_status fail(pome_error *err, pome_status code, const char *fmt, ...) POME_PRINTF(3, 4);
static pome_status fail(pome_error *err, pome_status code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    *err = (pome_error){.code = code};
    vsnprintf(err->message, sizeof err->message, fmt, ap);
    va_end(ap);
    return code;
}

bool is_image_path(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot && (strcasecmp(dot, ".png") == 0 || strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0);
}

static pome_status read_bytes(unsigned char **bytes, size_t *len, const char *path, pome_error *err)
{
    FILE *f = fopen(path, "rb");
    size_t room = 1 << 16;
    if (!f)
        return fail(err, POME_ERR_IO, "%s: %s", path, strerror(errno));
    *len = 0;
    *bytes = malloc(room);
    for (size_t n; *bytes && (n = fread(*bytes + *len, 1, room - *len, f)) > 0;) {
        *len += n;
        if (*len == room) {
            unsigned char *bigger = realloc(*bytes, room *= 2);
            if (!bigger)
                free(*bytes);
            *bytes = bigger;
        }
    }
    bool is_bad = ferror(f) != 0;
    fclose(f);
    if (*bytes && !is_bad)
        return POME_OK;
    free(*bytes);
    return is_bad ? fail(err, POME_ERR_IO, "%s: cannot be read", path) : fail(err, POME_ERR_NOMEM, "%s: out of memory", path);
}

static pome_status check_size(const char *path, int64_t width, int64_t height, pome_error *err)
{
    if (width < 1 || height < 1 || width > SIDE_MAX || height > SIDE_MAX)
        return fail(err, POME_ERR_FORMAT, "%s: an image of %lld x %lld pixels", path, (long long)width, (long long)height);
    return POME_OK;
}

/* Into `out`, [H, W, 4] for PNG. */
static pome_status decode_png(pome_tensor *out, const unsigned char *bytes, size_t len, const char *path, pome_error *err)
{
    png_image image = {.version = PNG_IMAGE_VERSION};
    if (!png_image_begin_read_from_memory(&image, bytes, len))
        return fail(err, POME_ERR_FORMAT, "%s: %s", path, image.message);
    image.format = PNG_FORMAT_RGBA;
    image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB; /* as it lies: no change of gamma */
    pome_status status = check_size(path, image.width, image.height, err);
    if (status == POME_OK)
        status = pome_tensor_init(out, POME_DTYPE_U8, 3, (int64_t[]){image.height, image.width, 4}, err);
    if (status == POME_OK && !png_image_finish_read(&image, NULL, out->data, 0, NULL))
        status = fail(err, POME_ERR_FORMAT, "%s: %s", path, image.message);
    png_image_free(&image);
    return status;
}

static pome_status decode_jpeg(pome_tensor *out, const unsigned char *bytes, size_t len, const char *path, pome_error *err)
{
    int width = 0, height = 0, sampling = 0, space = 0;
    tjhandle handle = tjInitDecompress();
    if (!handle)
        return fail(err, POME_ERR_NOMEM, "%s: out of memory", path);
    bool is_ok = tjDecompressHeader3(handle, bytes, len, &width, &height, &sampling, &space) == 0;
    pome_status status = is_ok ? check_size(path, width, height, err) : POME_OK;
    if (is_ok && status == POME_OK)
        status = pome_tensor_init(out, POME_DTYPE_U8, 3, (int64_t[]){height, width, 3}, err);
    if (is_ok && status == POME_OK)
        is_ok = tjDecompress2(handle, bytes, len, out->data, width, 0, height, TJPF_RGB, TJFLAG_ACCURATEDCT) == 0;
    if (!is_ok)
        status = fail(err, POME_ERR_FORMAT, "%s: %s", path, tjGetErrorStr2(handle));
    tjDestroy(handle);
    return status;
}

/* [H, W, n] to [H, W, 3] or [H, W]. */
static pome_status reduce(pome_tensor *out, const pome_tensor *decoded, bool is_gray, pome_error *err)
{
    int64_t n = decoded->shape[2], count = decoded->shape[0] * decoded->shape[1];
    const unsigned char *from = decoded->data;
    pome_status status = pome_tensor_init(out, POME_DTYPE_U8, is_gray ? 2 : 3,
                                          (int64_t[]){decoded->shape[0], decoded->shape[1], 3}, err);
    if (status != POME_OK)
        return status;
    unsigned char *to = out->data;
    for (int64_t i = 0; i < count; i++, from += n) {
        if (is_gray)
            *to++ = (unsigned char)((from[0] * 19595 + from[1] * 38470 + from[2] * 7471 + 32768) >> 16);
        else
            for (int c = 0; c < 3; c++)
                *to++ = from[c];
    }
    return POME_OK;
}

pome_status image_read(pome_tensor *out, const char *path, bool is_gray, pome_error *err)
{
    static const unsigned char png_mark[4] = {0x89, 'P', 'N', 'G'};
    unsigned char *bytes = NULL;
    size_t len = 0;
    pome_tensor decoded = {0};
    pome_status status = read_bytes(&bytes, &len, path, err);
    if (status != POME_OK)
        return status;
    if (len >= 4 && memcmp(bytes, png_mark, 4) == 0)
        status = decode_png(&decoded, bytes, len, path, err);
    else if (len >= 2 && bytes[0] == 0xff && bytes[1] == 0xd8)
        status = decode_jpeg(&decoded, bytes, len, path, err);
    else
        status = fail(err, POME_ERR_FORMAT, "%s is neither a PNG nor a JPEG file", path);
    if (status == POME_OK)
        status = reduce(out, &decoded, is_gray, err);
    pome_tensor_reset(&decoded);
    free(bytes);
    return status;
}

pome_status image_write(const char *path, const pome_tensor *pixels, pome_error *err)
{
    png_image image = {.version = PNG_IMAGE_VERSION, .height = (png_uint_32)pixels->shape[0],
                       .width = (png_uint_32)pixels->shape[1],
                       .format = pixels->rank == 2 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
    if (!png_image_write_to_file(&image, path, 0, pixels->data, 0, NULL))
        return fail(err, POME_ERR_IO, "%s: %s", path, image.message);
    return POME_OK;
}
