#include <immintrin.h>

#include "kernels/limits.h"

#define KEEP(v) __asm__ volatile("" : "+v"(v))
enum { N_SUMS = 16 };

static uint32_t multiply_int8(uint64_t rounds)
{
    __m512i sum[N_SUMS], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-5);
    for (int k = 0; k < N_SUMS; k++)
        sum[k] = _mm512_setzero_si512();
    for (uint64_t r = 0; r < rounds; r++)
        for (int k = 0; k < N_SUMS; k++) {
            sum[k] = _mm512_dpbusd_epi32(sum[k], a, b);
            KEEP(sum[k]);
        }
    for (int k = 1; k < N_SUMS; k++)
        sum[0] = _mm512_add_epi32(sum[0], sum[k]);
    return (uint32_t)_mm512_reduce_add_epi32(sum[0]);
}

void pome_limits_fill_avx512vnni(pome_limits *limits)
{
    limits->int8 = multiply_int8;
    limits->int8_ops = (uint64_t)N_SUMS * 64 * 2;
    limits->int8_name = "vpdpbusd (512 bits)";
}
