/* The element of a row of activations that has no int8 code. Where few channels are far larger than the others, the largest
 * sets the scale of all 32 of its block. If the row's error falls clearly without it, its code is 0 and its product is
 * added in fp32 after those of the blocks, y = value * ((code - offset) * scale) + y, in one fused multiply-add where the level has
 * it: for one row of activations as for many. */
#ifndef POME_KERNELS_SINGLE_H
#define POME_KERNELS_SINGLE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/f16.h"
#include "kernels/kernels.h"

#if defined(__F16C__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define SINGLE_INLINE static inline __attribute__((always_inline))

enum { POME_SINGLE_SHARE = 8, POME_SINGLE_ROWS = 32 /* of weights, at most */ };

typedef struct pome_single {
    float value; /* 0: none */
    uint32_t at;
} pome_single;

/* The largest magnitude of POME_Q8_BLOCK; NaN gives NaN or infinity. */
typedef float pome_block_max_fn(const float *x);

/* The largest element if the error of the row's codes, whose square goes with the sum of the blocks' largest squares, falls
 * by one part in POME_SINGLE_SHARE without it. */
SINGLE_INLINE pome_single pome_single_find(const float *x, size_t k, pome_block_max_fn *block_max)
{
    float top = 0, all = 0, second = 0;
    size_t block = 0, at = 0;
    for (size_t b = 0; b < k; b += POME_Q8_BLOCK) {
        float max = block_max(x + b);
        all += max * max;
        if (max > top) {
            top = max;
            block = b;
        }
    }
    for (size_t p = block + POME_Q8_BLOCK; p-- > block;)
        at = fabsf(x[p]) == top ? p : at;
    for (size_t p = block; p < block + POME_Q8_BLOCK; p++)
        second = p != at && fabsf(x[p]) > second ? fabsf(x[p]) : second;
    bool take = top >= 1e-15f && all < INFINITY && (top * top - second * second) * POME_SINGLE_SHARE >= all;
    return take ? (pome_single){x[at], (uint32_t)at} : (pome_single){0};
}

/* Block b of x as it gets codes: x itself, or `copy` with 0 for the single. */
static inline const float *pome_single_without(const pome_single *s, const float *x, size_t b, float copy[POME_Q8_BLOCK])
{
    x += b * POME_Q8_BLOCK;
    if (s->value == 0 || s->at / POME_Q8_BLOCK != b)
        return x;
    memcpy(copy, x, POME_Q8_BLOCK * sizeof *copy);
    copy[s->at % POME_Q8_BLOCK] = 0;
    return copy;
}

/* An infinite entry gives NaN, as its products with codes of 0 are. */
static inline void pome_single_entries(float dst[POME_SINGLE_ROWS], const uint16_t src[POME_SINGLE_ROWS], size_t n)
{
#if defined(__F16C__)
    for (size_t i = 0; i < n; i += 8)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(src + i))));
#elif defined(__aarch64__)
    for (size_t i = 0; i < n; i += 4)
        vst1q_f32(dst + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(src + i))));
#else
    for (size_t i = 0; i < n; i++)
        dst[i] = pome_f16_to_f32(src[i]);
#endif
    for (size_t i = 0; i < n; i++)
        dst[i] += dst[i] - dst[i];
}

/* Code `at` of weights' row j. */
SINGLE_INLINE int32_t pome_single_code(const pome_coded_rows *w, pome_codes codes, size_t j, size_t at)
{
    const uint8_t *row = (const uint8_t *)w->codes + j * pome_codes_bytes(codes, w->k);
    size_t bits = pome_codes_bits(codes), first = at * bits, byte = first / 8;
    uint32_t word = row[byte] | (first % 8 + bits > 8 ? (uint32_t)row[byte + 1] << 8 : 0);
    int32_t code = (int32_t)(word >> first % 8 & ((1u << bits) - 1));
    return codes == POME_CODES_I4 ? code - (code & 8) * 2 : codes == POME_CODES_I8 ? code - (code & 128) * 2 : code;
}

/* Column `at` of n weights' rows from j on. */
SINGLE_INLINE void pome_single_column(float column[POME_SINGLE_ROWS], const pome_coded_rows *w, pome_codes codes, size_t j,
                                      size_t n, size_t at)
{
    uint16_t half[POME_SINGLE_ROWS] = {0};
    float entry[POME_SINGLE_ROWS];
    size_t per_row = w->k / w->block, first = j * per_row + at / w->block;
    if (pome_codes_are_palette(codes)) {
        for (size_t r = 0; r < n; r++)
            half[r] = w->table_f16[pome_single_code(w, codes, j + r, at)];
        pome_single_entries(column, half, n);
        return;
    }
    for (size_t r = 0; r < n; r++)
        column[r] = (float)pome_single_code(w, codes, j + r, at);
    if ((codes == POME_CODES_U4 || codes == POME_CODES_U8) && w->offset_f16) {
        for (size_t r = 0; r < n; r++)
            half[r] = w->offset_f16[first + r * per_row];
        pome_single_entries(entry, half, n);
        for (size_t r = 0; r < n; r++)
            column[r] -= entry[r];
    }
    for (size_t r = 0; r < n; r++)
        half[r] = w->scale_f16[first + r * per_row];
    pome_single_entries(entry, half, n);
    for (size_t r = 0; r < n; r++)
        column[r] *= entry[r];
}

/* y[i][r] += the product of row i's single and row j + r of the weights, i < m, r < n; y's rows are ldy apart, the singles
 * `stride` bytes. They mostly are in one column. */
SINGLE_INLINE void pome_single_add(float *y, size_t ldy, size_t m, const pome_coded_rows *w, pome_codes codes, size_t j, size_t n,
                                   const pome_single *first, size_t stride)
{
    float column[POME_SINGLE_ROWS];
    size_t at = SIZE_MAX;
    for (size_t i = 0; i < m; i++, y += ldy) {
        const pome_single *s = (const pome_single *)(const void *)((const char *)first + i * stride);
        if (s->value == 0)
            continue;
        if (s->at != at)
            pome_single_column(column, w, codes, j, n, s->at);
        at = s->at;
        for (size_t r = 0; r < n; r++)
#if defined(__FMA__) || defined(__aarch64__)
            y[r] = fmaf(s->value, column[r], y[r]);
#else
            y[r] += s->value * column[r];
#endif
    }
}

#undef SINGLE_INLINE
#endif
