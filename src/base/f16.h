/* Scalar conversions between half, bfloat16, 8-bit floats and float; portable, round to nearest even. */
#ifndef POME_BASE_F16_H
#define POME_BASE_F16_H

#include <stdint.h>
#include <string.h>

static inline uint32_t pome_f32_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
static inline float pome_f32_from_bits(uint32_t u)
{
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Exact. A subnormal half is made normal by an exact subtraction, so no flush-to-zero mode can eat it. */
static inline float pome_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, mantissa = h & 0x3ffu;
    if (exponent == 31)
        return pome_f32_from_bits(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0) { /* 0 or mantissa * 2^-24: 2^-14 * (1 + mantissa / 1024) - 2^-14 */
        float f = pome_f32_from_bits(113u << 23 | mantissa << 13) - pome_f32_from_bits(113u << 23);
        return pome_f32_from_bits(sign | pome_f32_bits(f));
    }
    return pome_f32_from_bits(sign | (exponent + 112u) << 23 | mantissa << 13);
}

/* Nearest even; overflow gives infinity; NaN stays NaN (quiet, top payload bits kept). */
static inline uint16_t pome_f32_to_f16(float f)
{
    uint32_t u = pome_f32_bits(f), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
    if (a > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((a >> 13) & 0x1ffu));
    if (a >= 0x477ff000u) /* 65520 and above round to infinity */
        return (uint16_t)(sign | 0x7c00u);
    if (a < 0x38800000u) { /* below 2^-14: the result counts units of 2^-24 */
        float s = pome_f32_from_bits(a) + 0.5f; /* 0.5's last place is 2^-24: the addition rounds */
        return (uint16_t)(sign | (pome_f32_bits(s) - 0x3f000000u));
    }
    uint32_t odd = (a >> 13) & 1u;
    return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + odd) >> 13));
}

static inline float pome_f16_round(float f)
{
    return pome_f16_to_f32(pome_f32_to_f16(f));
}

static inline float pome_bf16_to_f32(uint16_t h)
{
    return pome_f32_from_bits((uint32_t)h << 16);
}
static inline uint16_t pome_f32_to_bf16(float f)
{
    uint32_t u = pome_f32_bits(f);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u);
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* OCP 8-bit floats. E5M2 is the top byte of a half; E4M3FN has no infinities and one NaN pattern. */
static inline float pome_f8e5m2_to_f32(uint8_t b)
{
    return pome_f16_to_f32((uint16_t)((unsigned)b << 8));
}
static inline float pome_f8e4m3fn_to_f32(uint8_t b)
{
    uint32_t sign = (uint32_t)(b & 0x80u) << 24, exponent = (b >> 3) & 15u, mantissa = b & 7u;
    if (exponent == 15 && mantissa == 7)
        return pome_f32_from_bits(sign | 0x7fc00000u);
    if (exponent == 0)
        return pome_f32_from_bits(sign | pome_f32_bits((float)mantissa * 0.001953125f)); /* 2^-9 */
    return pome_f32_from_bits(sign | (exponent + 120u) << 23 | mantissa << 20);
}

#endif
