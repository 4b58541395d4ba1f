#include <arm_neon.h>

#include "kernels/limits.h"

#define KEEP(v) __asm__ volatile("" : "+w"(v))
enum { N_SUMS = 12 };

static uint64_t read_all(const void *data, size_t n)
{
    const uint8_t *p = data;
    uint8x16_t sum[4] = {vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0), vdupq_n_u8(0)};
    for (size_t i = 0; i < n; i += 64)
        for (size_t k = 0; k < 4; k++)
            sum[k] = veorq_u8(sum[k], vld1q_u8(p + i + 16 * k));
    return vmaxvq_u8(veorq_u8(veorq_u8(sum[0], sum[1]), veorq_u8(sum[2], sum[3])));
}

static uint32_t multiply_int8(uint64_t rounds)
{
    int32x4_t sum[N_SUMS];
    int8x16_t a = vdupq_n_s8(3), b = vdupq_n_s8(-5);
    for (int k = 0; k < N_SUMS; k++)
        sum[k] = vdupq_n_s32(0);
    for (uint64_t r = 0; r < rounds; r++)
        for (int k = 0; k < N_SUMS; k++) {
            int16x8_t product = vmull_s8(vget_low_s8(a), vget_low_s8(b));
            KEEP(product);
            product = vmlal_high_s8(product, a, b);
            sum[k] = vpadalq_s16(sum[k], product);
        }
    for (int k = 1; k < N_SUMS; k++)
        sum[0] = vaddq_s32(sum[0], sum[k]);
    return (uint32_t)vaddvq_s32(sum[0]);
}

void pome_limits_fill_neon(pome_limits *limits)
{
    *limits = (pome_limits){.read = read_all, .int8 = multiply_int8, .int8_ops = (uint64_t)N_SUMS * 16 * 2,
                            .int8_name = "smull, smlal2, sadalp"};
}
