/* Products of coded weights with int8 activations for AArch64's baseline: 8-bit products in 16 bits (two at most: 128 *
 * 127 * 2 < 2^15), then widened by pairs. */
#include <arm_neon.h>

static inline int32x4_t dot4(int32x4_t acc, int8x16_t w, int8x16_t x)
{
    int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x)), high = vmull_high_s8(w, x);
    return vpadalq_s16(acc, vpaddq_s16(low, high));
}
#define DOT4(acc, w, x, lane) dot4(acc, w, vreinterpretq_s8_s32(vdupq_laneq_s32(vreinterpretq_s32_s8(x), lane)))

#include "kernels/arm/coded_neon.h"

ALWAYS_INLINE int32x4_t dot16(int32x4_t acc, int8x16_t w, int8x16_t x)
{
    return vpadalq_s16(acc, vmlal_high_s8(vmull_s8(vget_low_s8(w), vget_low_s8(x)), w, x));
}

CODED_LEVEL(pome_kernels_fill_coded_neon, put_fours, multiply_fours)
