#include "convert/quantizer.h"

#include <math.h>

#include "base/f16.h"
#include "convert/half_bits.h"

size_t pome_encode_halves(uint16_t *out, const float *w, size_t n)
{
    size_t n_bad = 0;
    for (size_t i = 0; i < n; i++)
        n_bad += (pome_f32_bits(w[i]) & 0x7fffffffu) >= HALF_TOO_LARGE;
    for (size_t i = 0; i < n; i++) {
        uint32_t u = pome_f32_bits(w[i]), a = to_range(u & 0x7fffffffu);
        uint32_t normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
        uint32_t subnormal = pome_f32_bits(pome_f32_from_bits(a) + 0.5f) - 0x3f000000u;
        out[i] = (uint16_t)((u >> 16 & 0x8000u) | choose(a < HALF_NORMAL_MIN, subnormal, normal));
    }
    return n_bad;
}

/* w / scale rounded to a half, then to the nearest whole number, ties to even: adding and taking away 2^23 does that.
 * The quotient's magnitude is at most `top`, but for a scale among the subnormals, which may be too small. */
static void codes_of(int8_t *codes, const float *half, float scale, size_t n, int top)
{
    const float big = 8388608.0f;
    const uint32_t limit = pome_f32_bits((float)top), far = pome_f32_bits(1000.0f);
    for (size_t i = 0; i < n; i++) {
        uint32_t u = pome_f32_bits(half[i] / scale), a = u & 0x7fffffffu;
        float q = pome_f32_from_bits(round_to_half(a > far ? far : a)) + big;
        a = pome_f32_bits(q - big);
        int32_t code = (int32_t)pome_f32_from_bits(a > limit ? limit : a), sign = -(int32_t)(u >> 31);
        codes[i] = (int8_t)((code ^ sign) - sign);
    }
}

/* The block as halves, and the largest magnitude. */
static size_t halves_of(float *half, float *max, const float *w, size_t n)
{
    uint32_t largest = 0, n_bad = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t u = pome_f32_bits(w[i]), a = u & 0x7fffffffu, h = round_to_half(to_range(a));
        n_bad += a >= HALF_TOO_LARGE;
        half[i] = pome_f32_from_bits((u & 0x80000000u) | h);
        largest = h > largest ? h : largest;
    }
    *max = pome_f32_from_bits(largest);
    return n_bad;
}

static uint16_t scale_of(float max, int top)
{
    float doubled = pome_f16_round(2 * max);
    uint16_t scale = doubled <= HALF_MAX ? pome_f32_to_f16(doubled / (float)(2 * top)) : pome_f32_to_f16(max / (float)top);
    if (pome_f16_round(pome_f16_to_f32(scale) * (float)top) > HALF_MAX)
        scale--; /* the largest code must not decode to infinity */
    if (max == 0)
        return 0x3c00;
    return scale ? scale : 1; /* counts subnormal halves */
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
        codes_of(codes + at, half, s, len, top);
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

/* ---- with an offset ---- */

/* Unsigned codes; offset + w / scale, rounded as in codes_of. */
static void shifted_codes_of(uint8_t *codes, const float *half, float scale, int offset, size_t n, int top)
{
    const float big = 8388608.0f;
    const uint32_t far = pome_f32_bits(1000.0f);
    for (size_t i = 0; i < n; i++) {
        uint32_t u = pome_f32_bits(half[i] / scale), a = u & 0x7fffffffu;
        float q = pome_f32_from_bits(round_to_half(a > far ? far : a)) + big;
        int32_t code = (int32_t)(q - big), sign = -(int32_t)(u >> 31);
        code = ((code ^ sign) - sign) + offset;
        code = code < 0 ? 0 : code;
        codes[i] = (uint8_t)(code > top ? top : code);
    }
}

/* Least and largest element with 0 among them, as halves. */
static size_t range_of(float *half, float *lo, float *hi, const float *w, size_t n)
{
    float max, least = 0, most = 0;
    size_t n_bad = halves_of(half, &max, w, n);
    for (size_t i = 0; i < n; i++) {
        least = half[i] < least ? half[i] : least;
        most = half[i] > most ? half[i] : most;
    }
    *lo = least;
    *hi = most;
    return n_bad;
}

static void shifted_scale_of(uint16_t *scale, uint8_t *offset, float lo, float hi, int top)
{
    float range = pome_f16_round(hi - lo), part = pome_f16_round((float)top * -lo);
    range = range <= HALF_MAX ? range : hi - lo;
    *scale = pome_f32_to_f16(range / (float)top);
    if (range == 0) {
        *scale = 0x3c00;
        *offset = 0;
        return;
    }
    bool is_exact = *scale == 0; /* counts subnormal halves */
    if (is_exact)
        *scale = 1;
    float at = part <= HALF_MAX ? pome_f16_round(part / range) : (float)top * -lo / range;
    at = rintf(is_exact ? -lo / pome_f16_to_f32(1) : at);
    *offset = (uint8_t)(at > (float)top ? (float)top : at);
    float most = (float)(*offset > top - *offset ? *offset : top - *offset);
    while (pome_f16_round(pome_f16_to_f32(*scale) * most) > HALF_MAX)
        --*scale;
}

static size_t encode_shifted_block(uint8_t *codes, uint16_t *scale, uint8_t *offset, const float *w, size_t n, int top)
{
    float half[PIECE], lo = 0, hi = 0, piece_lo, piece_hi;
    size_t n_bad = 0;
    for (size_t at = 0; at < n; at += PIECE) {
        n_bad += range_of(half, &piece_lo, &piece_hi, w + at, n - at < PIECE ? n - at : PIECE);
        lo = piece_lo < lo ? piece_lo : lo;
        hi = piece_hi > hi ? piece_hi : hi;
    }
    shifted_scale_of(scale, offset, lo, hi, top);
    float s = pome_f16_to_f32(*scale);
    for (size_t at = 0; at < n; at += PIECE) {
        size_t len = n - at < PIECE ? n - at : PIECE;
        if (n > PIECE)
            range_of(half, &piece_lo, &piece_hi, w + at, len);
        shifted_codes_of(codes + at, half, s, *offset, len, top);
    }
    return n_bad;
}

size_t pome_encode_asymmetric(uint8_t *codes, uint16_t *scales, uint8_t *offsets, const float *w, size_t n, size_t block,
                              int top)
{
    size_t n_bad = 0;
    for (size_t b = 0; b < n / block; b++)
        n_bad += encode_shifted_block(codes + b * block, &scales[b], &offsets[b], w + b * block, block, top);
    return n_bad;
}

/* ---- scales of least error ---- */

static double squared_error(const float *w, const int8_t *codes, float scale, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t u = pome_f32_bits(w[i]);
        float x = pome_f32_from_bits((u & 0x80000000u) | to_range(u & 0x7fffffffu));
        double d = (double)x - (double)half_of(scale * (float)codes[i]);
        sum += d * d;
    }
    return sum;
}

static void codes_with(int8_t *codes, const float *w, float scale, size_t n, int top)
{
    float half[PIECE], max;
    for (size_t at = 0; at < n; at += PIECE) {
        size_t len = n - at < PIECE ? n - at : PIECE;
        halves_of(half, &max, w + at, len);
        codes_of(codes + at, half, scale, len, top);
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

void pome_encode_bits(uint8_t *out, const uint8_t *codes, size_t n, uint32_t bits)
{
    const uint32_t mask = (1u << bits) - 1;
    size_t whole = n / 8 * 8;
    if (bits == 8) {
        memcpy(out, codes, n);
        return;
    }
    if (bits == 4) { /* a loop that becomes vectors */
        for (size_t i = 0; i + 1 < n; i += 2)
            out[i / 2] = (uint8_t)((codes[i] & 15) | (codes[i + 1] & 15) << 4);
        if (n % 2)
            out[n / 2] = codes[n - 1] & 15;
        return;
    }
    for (size_t i = 0; i < whole; i += 8, out += bits) {
        uint64_t word = 0;
        for (uint32_t k = 0; k < 8; k++)
            word |= (uint64_t)(codes[i + k] & mask) << k * bits;
        for (uint32_t k = 0; k < bits; k++)
            out[k] = (uint8_t)(word >> 8 * k);
    }
    uint64_t word = 0;
    for (size_t i = whole; i < n; i++)
        word |= (uint64_t)(codes[i] & mask) << (i - whole) * bits;
    for (size_t k = 0; k < ((n - whole) * bits + 7) / 8; k++)
        out[k] = (uint8_t)(word >> 8 * k);
}
