/* Products of coded weights with int8 activations with the dot product instructions of ARMv8.2. */
#define DOT4(acc, w, x, lane) vdotq_laneq_s32(acc, w, x, lane)
#include "kernels/arm/coded_neon.h"

ALWAYS_INLINE int32x4_t dot16(int32x4_t acc, int8x16_t w, int8x16_t x)
{
    return vdotq_s32(acc, w, x);
}

CODED_LEVEL(pome_kernels_fill_coded_dotprod, put_fours, multiply_fours)
