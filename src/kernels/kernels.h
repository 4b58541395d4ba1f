/* The kernel table: pure loops, no allocation, no status, no threads. pome_kernels_init is pure: generic fills
 * every slot, each supported level overwrites some. The pointer travels in the plan. */
#ifndef POME_KERNELS_KERNELS_H
#define POME_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"

typedef struct pome_kernels {
    pome_cpu_level level;
    /* dst[i] = float(src[i]) */
    void (*f16_to_f32)(float *dst, const uint16_t *src, size_t n);
    /* dst[i] = half(src[i]), nearest even, overflow to infinity */
    void (*f32_to_f16)(uint16_t *dst, const float *src, size_t n);
    /* x[i] = float(half(x[i])) */
    void (*f16_round)(float *x, size_t n);
    /* sum a[i] * b[i], fp32 accumulation in a fixed order */
    float (*dot_f32)(const float *a, const float *b, size_t n);
    float (*dot_f32_f16)(const float *a, const uint16_t *b, size_t n);
    /* c[m][n] (ldc) = sum_k a[m][k] (lda) * b[n][k] (ldb); m rows of activations, n rows of weights */
    void (*gemm_nt_f32)(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t m, size_t n,
                        size_t k);
    /* y[i] += s * x[i] */
    void (*axpy_f32)(float *y, float s, const float *x, size_t n);
    void (*axpy_f32_f16)(float *y, float s, const uint16_t *x, size_t n);
    /* One block-wise int4 row piece: dst[i] = half(scale[i / block] * code[i]) for i in [0, n), codes are nibbles,
     * low first, two's complement; n is a multiple of block, block is even. */
    void (*decode_int4_block)(float *dst, const uint8_t *codes, const uint16_t *scale_f16, size_t n, size_t block);
    void (*decode_int8_block)(float *dst, const int8_t *codes, const uint16_t *scale_f16, size_t n, size_t block);
} pome_kernels;

void pome_kernels_init(pome_kernels *k, pome_cpu_level level);

#endif
