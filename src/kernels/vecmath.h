/* Functions of one float written as straight arithmetic, so that a loop over them is vectorized. Lanes and loop tails
 * run the same operations: a value never depends on its place in the array. */
#ifndef POME_KERNELS_VECMATH_H
#define POME_KERNELS_VECMATH_H

#include <math.h>
#include <stdbool.h>

#include "base/f16.h"

/* cond ? a : b by masks: gcc leaves a conditional among float arithmetic as a branch, since arithmetic may trap. */
static inline float pome_pickf(bool cond, float a, float b)
{
    uint32_t mask = -(uint32_t)cond;
    return pome_f32_from_bits((pome_f32_bits(a) & mask) | (pome_f32_bits(b) & ~mask));
}

/* e^x with an error below 1 ulp (subnormal results included); -inf gives 0, overflow infinity, NaN stays NaN.
 * x = n ln 2 + r with |r| <= ln 2 / 2, n found by adding 1.5 * 2^23, which leaves the rounded quotient in the low
 * bits. ln 2 is split so that n * LN2_HI is exact (15 bits times at most 8). e^r = 1 + r + r^2 q(r) where q is the
 * degree 4 minimax polynomial (Remez exchange, weight e^-r; error 3.2e-9 of e^r). 2^n is applied in two factors: one
 * alone would not be a normal float at the ends of the range. */
static inline float pome_expf(float x)
{
    const float magic = 12582912.0f;
    /* Both limits are beyond where the result is 0 or infinite. */
    x = pome_pickf(x < -104.0f, -104.0f, pome_pickf(x > 89.0f, 89.0f, x));
    float shifted = x * 1.44269504f + magic;
    float n = shifted - magic;
    float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
    float q = 0x1.6a23dp-10f;
    q = q * r + 0x1.123a2p-7f;
    q = q * r + 0x1.5558f2p-5f;
    q = q * r + 0x1.555492p-3f;
    q = q * r + 0x1.fffffcp-2f;
    float p = 1.0f + (r + r * r * q);
    uint32_t biased = pome_f32_bits(shifted) - pome_f32_bits(magic) + 256; /* n + 256: positive */
    uint32_t half = biased >> 1;
    float scale_1 = pome_f32_from_bits((half - 1) << 23); /* 2^(half - 128) */
    float scale_2 = pome_f32_from_bits((biased - half - 1) << 23);
    return p * scale_1 * scale_2;
}

/* 1 / (1 + e^-x). From e^-|x|, which cannot overflow: the far negative side keeps its relative accuracy. */
static inline float pome_sigmoidf(float x)
{
    float e = pome_expf(-fabsf(x));
    return pome_pickf(x < 0.0f, e, 1.0f) / (1.0f + e);
}

#endif
