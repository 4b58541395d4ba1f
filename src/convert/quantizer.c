#include "convert/quantizer.h"

#include <math.h>

#include "base/f16.h"

#define HALF_MAX 65504.0f

/* Into float16's range; *is_bad if it was not. */
static float to_range(float w, bool *is_bad)
{
    if (w != w) {
        *is_bad = true;
        return 0;
    }
    *is_bad = w >= 65520.0f || w <= -65520.0f;
    return w > HALF_MAX ? HALF_MAX : w < -HALF_MAX ? -HALF_MAX : w;
}

size_t pome_encode_halves(uint16_t *out, const float *w, size_t n)
{
    size_t n_bad = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_bad;
        out[i] = pome_f32_to_f16(to_range(w[i], &is_bad));
        n_bad += is_bad;
    }
    return n_bad;
}

/* Quotients lie within [-top - 1/2, top + 1/2]: adding and taking away 1.5 * 2^23 rounds to nearest even. */
static int round_even(float x)
{
    const float big = 12582912.0f;
    return (int)(x + big - big);
}

static int code_of(float half_w, float scale, int top)
{
    int code = round_even(pome_f16_round(half_w / scale));
    return code > top ? top : code < -top ? -top : code;
}

/* The block as halves, and the largest magnitude. */
static size_t halves_of(float *half, float *max, const float *w, size_t n)
{
    size_t n_bad = 0;
    *max = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_bad;
        half[i] = pome_f16_round(to_range(w[i], &is_bad));
        n_bad += is_bad;
        *max = fabsf(half[i]) > *max ? fabsf(half[i]) : *max;
    }
    return n_bad;
}

static uint16_t scale_of(float max, int top)
{
    float doubled = pome_f16_round(2 * max);
    uint16_t scale = doubled <= HALF_MAX ? pome_f32_to_f16(doubled / (float)(2 * top)) : pome_f32_to_f16(max / (float)top);
    if (pome_f16_round(pome_f16_to_f32(scale) * (float)top) > HALF_MAX)
        scale--; /* the largest code must not decode to infinity */
    return scale ? scale : 0x3c00; /* all zero, or too small for any scale: 1 */
}

enum { PIECE = 1024 };

/* Blocks longer than a piece (per channel) are gone through twice. */
static size_t encode_block(int8_t *codes, uint16_t *scale, const float *w, size_t n, int top)
{
    float half[PIECE], max = 0, piece_max;
    size_t n_bad = 0;
    for (size_t at = 0; at < n; at += PIECE) {
        n_bad += halves_of(half, &piece_max, w + at, n - at < PIECE ? n - at : PIECE);
        max = piece_max > max ? piece_max : max;
    }
    *scale = scale_of(max, top);
    float s = pome_f16_to_f32(*scale);
    for (size_t at = 0; at < n; at += PIECE) {
        size_t len = n - at < PIECE ? n - at : PIECE;
        if (n > PIECE)
            halves_of(half, &piece_max, w + at, len);
        for (size_t i = 0; i < len; i++)
            codes[at + i] = (int8_t)code_of(half[i], s, top);
    }
    return n_bad;
}

size_t pome_encode_symmetric(int8_t *codes, uint16_t *scales, const float *w, size_t n, size_t block, int top)
{
    size_t n_bad = 0;
    for (size_t b = 0; b < n / block; b++)
        n_bad += encode_block(codes + b * block, &scales[b], w + b * block, block, top);
    return n_bad;
}

static double squared_error(const float *w, const int8_t *codes, float scale, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_bad;
        double d = (double)to_range(w[i], &is_bad) - (double)pome_f16_round(scale * (float)codes[i]);
        sum += d * d;
    }
    return sum;
}

static void codes_with(int8_t *codes, const float *w, float scale, size_t n, int top)
{
    for (size_t i = 0; i < n; i++) {
        bool is_bad;
        codes[i] = (int8_t)code_of(pome_f16_round(to_range(w[i], &is_bad)), scale, top);
    }
}

size_t pome_encode_search(int8_t *codes, uint16_t *scales, const float *w, size_t n, size_t block, int top)
{
    size_t n_bad = pome_encode_symmetric(codes, scales, w, n, block, top);
    for (size_t b = 0; b < n / block; b++) {
        const float *x = w + b * block;
        int8_t *c = codes + b * block;
        float start = pome_f16_to_f32(scales[b]);
        uint16_t best = scales[b];
        double least = squared_error(x, c, start, block);
        for (int i = 1; i <= 20; i++) {
            uint16_t tried = pome_f32_to_f16(start * (1.0f - 0.02f * (float)i));
            if (tried == 0)
                break;
            codes_with(c, x, pome_f16_to_f32(tried), block, top);
            double e = squared_error(x, c, pome_f16_to_f32(tried), block);
            if (e < least) {
                least = e;
                best = tried;
            }
        }
        codes_with(c, x, pome_f16_to_f32(best), block, top);
        scales[b] = best;
    }
    return n_bad;
}

/* ---- GGUF blocks as they are ---- */

/* scale * code + shift as scale * (code - offset). Where the scale is 0 only the shift is left: shift * (1 - 0). */
static void keep_group(int8_t *codes, uint16_t *scale, uint16_t *offset, const pome_gguf_encoding *e, float s, float shift)
{
    *scale = pome_f32_to_f16(s);
    *offset = 0;
    if (!e->has_shift)
        return;
    float rounded = pome_f16_to_f32(*scale);
    float wanted = rounded != 0 ? -shift / rounded : 0;
    if (rounded != 0 && fabsf(wanted) <= HALF_MAX) {
        *offset = pome_f32_to_f16(wanted);
        return;
    }
    *scale = pome_f32_to_f16(shift);
    for (uint32_t i = 0; i < e->group; i++)
        codes[i] = 1;
}

static void note_error(pome_encode_error *worst, const int8_t *codes, float scale, float offset, const float *wanted,
                       size_t n, float step)
{
    for (size_t i = 0; i < n; i++) {
        float got = pome_f16_round(scale * pome_f16_round((float)codes[i] - offset));
        double d = fabs((double)got - (double)wanted[i]);
        worst->absolute = d > worst->absolute ? d : worst->absolute;
        if (step != 0 && d / fabs((double)step) > worst->steps)
            worst->steps = d / fabs((double)step);
    }
}

void pome_encode_kept(int8_t *codes, uint16_t *scales, uint16_t *offsets, const pome_gguf_encoding *e,
                      const uint8_t *row, size_t n, pome_encode_error *worst)
{
    pome_gguf_block b = {.shift = {0}};
    float wanted[POME_GGUF_BLOCK_MAX];
    size_t g = 0;
    for (size_t at = 0; at < n; at += e->block, row += e->bytes) {
        e->split(&b, row);
        memcpy(codes + at, b.code, e->block);
        for (uint32_t k = 0; k < e->block / e->group; k++, g++) {
            const int8_t *code = b.code + k * e->group;
            for (uint32_t i = 0; i < e->group; i++)
                wanted[i] = b.scale[k] * (float)code[i] + b.shift[k];
            keep_group(codes + at + k * e->group, &scales[g], &offsets[g], e, b.scale[k], b.shift[k]);
            note_error(worst, codes + at + k * e->group, pome_f16_to_f32(scales[g]), pome_f16_to_f32(offsets[g]), wanted,
                       e->group, b.scale[k]);
        }
    }
}

void pome_encode_nibbles(uint8_t *out, const int8_t *codes, size_t n)
{
    for (size_t i = 0; i + 1 < n; i += 2)
        out[i / 2] = (uint8_t)((codes[i] & 15) | (codes[i + 1] & 15) << 4);
}
