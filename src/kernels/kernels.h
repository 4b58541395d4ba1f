/* The kernel table: pure loops, no allocation, no status, no threads. pome_kernels_init is pure: generic fills
 * every slot, each supported level overwrites some. The pointer travels in the plan.
 *
 * Order of sums. An inner product runs over k in blocks of POME_KERNEL_KC; within a block, lane j of 8 takes the
 * elements k = j mod 8 in turn, the lanes are added as ((0+4)+(1+5)) + ((2+6)+(3+7)), and the blocks' sums are
 * added one after the other. Every slot that forms inner products keeps to this, whatever the number of rows: a row
 * alone gives bitwise what it gives among others, and a fused kernel gives what decoding and multiplying gives.
 * Levels with a fused multiply-add differ from those without in the last place.
 *
 * No kernel reads or writes past what its sizes say, and none wants alignment. */
#ifndef POME_KERNELS_KERNELS_H
#define POME_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"

#define POME_KERNEL_KC 512

typedef struct pome_kernels {
    pome_cpu_level level;
    /* dst[i] = float(src[i]) */
    void (*f16_to_f32)(float *dst, const uint16_t *src, size_t n);
    /* dst[i] = half(src[i]), nearest even, overflow to infinity */
    void (*f32_to_f16)(uint16_t *dst, const float *src, size_t n);
    /* x[i] = float(half(x[i])) */
    void (*f16_round)(float *x, size_t n);
    /* sum a[i] * b[i] */
    float (*dot_f32)(const float *a, const float *b, size_t n);
    float (*dot_f32_f16)(const float *a, const uint16_t *b, size_t n);
    /* y[i] += s * x[i] */
    void (*axpy_f32)(float *y, float s, const float *x, size_t n);
    void (*axpy_f32_f16)(float *y, float s, const uint16_t *x, size_t n);
    /* The largest element, -infinity if there is none. NaN never wins. */
    float (*max_f32)(const float *x, size_t n);
    /* x[i] = exp(x[i] - max); returns their sum (lanes as above, one block). exp is right to 2 units in the last
     * place, 0 for -infinity, NaN for NaN. */
    float (*exp_sum_f32)(float *x, float max, size_t n);

    /* c[m][n] = or += sum_k a[m][k] * b[n][k]; rows lda, ldb, ldc elements apart. += adds each block's sum in turn. */
    void (*gemm_nt_f32)(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t m,
                        size_t n, size_t k, bool accumulate);
    /* c[m][n] = or += sum_k a[m][k] * b[k][n]; here each element takes k in turn, from 0 or from c. */
    void (*gemm_nn_f32)(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t m,
                        size_t n, size_t k, bool accumulate);
    /* y[n] = sum_k x[k] * w[n][k], rows ldw elements apart */
    void (*gemv_f16)(float *y, const float *x, const uint16_t *w, size_t ldw, size_t n, size_t k);
    /* The same with weights half(scale * code): row n has k/2 bytes of codes at codes + n * k/2 and k/block scales
     * at scale_f16 + n * k/block. block is a multiple of 32 and divides k. */
    void (*gemv_int4_block)(float *y, const float *x, const uint8_t *codes, const uint16_t *scale_f16, size_t n,
                            size_t k, size_t block);
    void (*gemv_int8_block)(float *y, const float *x, const int8_t *codes, const uint16_t *scale_f16, size_t n,
                            size_t k, size_t block);

    /* The same with unsigned 4-bit codes and weights half(scale * half(code - offset)); offsets lie as scales do. */
    void (*gemv_uint4_shift_block)(float *y, const float *x, const uint8_t *codes, const uint16_t *scale_f16,
                                   const uint16_t *offset_f16, size_t n, size_t k, size_t block);

    /* dst[i] = half(scale_f16[i / block] * code[i]) for i in [0, n): codes are nibbles, low first, two's
     * complement. block is even; the last block may be cut short. */
    void (*decode_int4_block)(float *dst, const uint8_t *codes, const uint16_t *scale_f16, size_t n, size_t block);
    void (*decode_int8_block)(float *dst, const int8_t *codes, const uint16_t *scale_f16, size_t n, size_t block);
    /* dst[i] = half(scale_f16[i / block] * half(code[i] - offset_f16[i / block])), codes unsigned. */
    void (*decode_uint4_shift_block)(float *dst, const uint8_t *codes, const uint16_t *scale_f16,
                                     const uint16_t *offset_f16, size_t n, size_t block);
    /* dst[i] = table[code[i]]: nibbles, low first. */
    void (*decode_lut4)(float *dst, const uint8_t *codes, const float *table /* [16] */, size_t n);
} pome_kernels;

void pome_kernels_init(pome_kernels *k, pome_cpu_level level);

/* What each level puts into the table. */
void pome_kernels_fill_generic(pome_kernels *k);
#if defined(__x86_64__)
void pome_kernels_fill_avx2(pome_kernels *k);
#elif defined(__aarch64__)
void pome_kernels_fill_neon(pome_kernels *k);
#endif

#endif
