#include <arm_neon.h>

#include "kernels/limits.h"

#define KEEP(v) __asm__ volatile("" : "+w"(v))
enum { N_SUMS = 16 };

static uint32_t multiply_int8(uint64_t rounds)
{
    int32x4_t sum[N_SUMS];
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(-5);
    for (int k = 0; k < N_SUMS; k++)
        sum[k] = vdupq_n_s32(0);
    for (uint64_t r = 0; r < rounds; r++)
        for (int k = 0; k < N_SUMS; k++) {
            sum[k] = vdotq_s32(sum[k], a, b);
            KEEP(sum[k]);
        }
    for (int k = 1; k < N_SUMS; k++)
        sum[0] = vaddq_s32(sum[0], sum[k]);
    return (uint32_t)vaddvq_s32(sum[0]);
}

void pome_limits_fill_dotprod(pome_limits *limits)
{
    limits->int8 = multiply_int8;
    limits->int8_ops = (uint64_t)N_SUMS * 16 * 2;
    limits->int8_name = "sdot";
}
