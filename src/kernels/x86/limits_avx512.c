#include <immintrin.h>

#include "kernels/limits.h"

#define KEEP(v) __asm__ volatile("" : "+v"(v))
enum { N_SUMS = 16, AHEAD = 2048 /* bytes */ };

static uint64_t read_all(const void *data, size_t n)
{
    const char *p = data;
    __m512i sum[4] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    for (size_t i = 0; i < n; i += 256) {
        for (size_t k = 0; k < 256 && i + AHEAD + k < n; k += 64)
            _mm_prefetch(p + i + AHEAD + k, _MM_HINT_T0);
        for (size_t k = 0; k < 4; k++)
            sum[k] = _mm512_xor_si512(sum[k], _mm512_load_si512(p + i + 64 * k));
    }
    __m512i all = _mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3]));
    return _mm512_test_epi64_mask(all, all);
}

static uint32_t multiply_int8(uint64_t rounds)
{
    __m512i sum[N_SUMS], a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-5);
    const __m512i ones = _mm512_set1_epi16(1);
    for (int k = 0; k < N_SUMS; k++)
        sum[k] = _mm512_setzero_si512();
    for (uint64_t r = 0; r < rounds; r++)
        for (int k = 0; k < N_SUMS; k++) {
            __m512i product = _mm512_maddubs_epi16(a, b);
            KEEP(product);
            sum[k] = _mm512_add_epi32(sum[k], _mm512_madd_epi16(product, ones));
        }
    for (int k = 1; k < N_SUMS; k++)
        sum[0] = _mm512_add_epi32(sum[0], sum[k]);
    return (uint32_t)_mm512_reduce_add_epi32(sum[0]);
}

void pome_limits_fill_avx512(pome_limits *limits)
{
    *limits = (pome_limits){.read = read_all, .int8 = multiply_int8, .int8_ops = (uint64_t)N_SUMS * 64 * 2,
                            .int8_name = "vpmaddubsw, vpmaddwd, vpaddd (512 bits)"};
}
