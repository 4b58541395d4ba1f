#include <string.h>

#include "kernels/limits.h"

enum { N_OPERANDS = 1024 }; /* 2 KiB of operands stay in the first cache */

static uint64_t read_all(const void *data, size_t n)
{
    const uint8_t *p = data;
    uint64_t sum[8] = {0};
    for (size_t i = 0; i < n; i += 64) {
        uint64_t v[8];
        memcpy(v, p + i, 64);
        for (int k = 0; k < 8; k++)
            sum[k] ^= v[k];
    }
    return sum[0] | sum[1] | sum[2] | sum[3] | sum[4] | sum[5] | sum[6] | sum[7];
}

static uint32_t multiply_int8(uint64_t rounds)
{
    int8_t a[N_OPERANDS], b[N_OPERANDS];
    uint32_t total = 0;
    memset(a, 3, sizeof a);
    memset(b, -5, sizeof b);
    for (uint64_t r = 0; r < rounds; r++) {
        int32_t sum = 0;
        __asm__ volatile("" : : "r"(a), "r"(b) : "memory"); /* they might have changed */
        for (int i = 0; i < N_OPERANDS; i++)
            sum += a[i] * b[i];
        total += (uint32_t)sum;
    }
    return total;
}

void pome_limits_fill_generic(pome_limits *limits)
{
    *limits = (pome_limits){
        .read = read_all, .int8 = multiply_int8, .int8_ops = 2 * N_OPERANDS, .int8_name = "compiled loop"};
}
