/* Rounding to halves in loops without branches, which compilers turn into vectors. A number is taken as its bits: sign
 * and magnitude. */
#ifndef POME_CONVERT_HALF_BITS_H
#define POME_CONVERT_HALF_BITS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/f16.h"

#define HALF_MAX 65504.0f

#define HALF_TOO_LARGE 0x477ff000u /* 65520: rounds to infinity */
#define HALF_MAX_BITS 0x477fe000u
#define HALF_NORMAL_MIN 0x38800000u /* 2^-14 */

/* Both values are computed: a conditional expression with floats in it would become a branch. */
static inline uint32_t choose(bool condition, uint32_t yes, uint32_t no)
{
    uint32_t mask = 0u - (uint32_t)condition;
    return (yes & mask) | (no & ~mask);
}

/* A magnitude within float16's range: what is beyond it becomes the largest half, NaN 0. */
static inline uint32_t to_range(uint32_t a)
{
    a = choose(a > 0x7f800000u, 0, a);
    return choose(a >= HALF_TOO_LARGE, HALF_MAX_BITS, a);
}

/* A magnitude in range to the nearest half, ties to even, as a float. */
static inline uint32_t round_to_half(uint32_t a)
{
    uint32_t normal = (a + 0xfffu + ((a >> 13) & 1u)) & ~0x1fffu;
    float small = pome_f32_from_bits(a) + 0.5f; /* 0.5's last place is a subnormal half's */
    uint32_t subnormal = pome_f32_bits(small - 0.5f);
    return choose(a < HALF_NORMAL_MIN, subnormal, normal);
}

static inline float half_of(float w)
{
    uint32_t u = pome_f32_bits(w);
    return pome_f32_from_bits((u & 0x80000000u) | round_to_half(to_range(u & 0x7fffffffu)));
}

#endif
