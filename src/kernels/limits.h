/* Measuring sticks: loops that do nothing but what a CPU level does fastest. Others are compared with them. */
#ifndef POME_KERNELS_LIMITS_H
#define POME_KERNELS_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"

typedef struct pome_limits {
    /* Reads n bytes (a multiple of 256, 64-byte aligned) once, in order. The result depends on all of them: it is 0 if
     * they are, and not if one byte is not. */
    uint64_t (*read)(const void *data, size_t n);
    /* `rounds` times int8_ops operations (a multiplication and an addition are two) on 8-bit integers in registers,
     * summed in 32 bits by the level's own instructions. Gives the sum of all products, each 3 * -5, modulo 2^32. Tiles
     * are configured and released within the call. */
    uint32_t (*int8)(uint64_t rounds);
    uint64_t int8_ops;
    const char *int8_name; /* "vpdpbusd" */
} pome_limits;

void pome_limits_init(pome_limits *limits, pome_cpu_level level);

/* What each level puts into the struct. */
void pome_limits_fill_generic(pome_limits *limits);
#if defined(__x86_64__)
void pome_limits_fill_avx2(pome_limits *limits);
void pome_limits_fill_avx512(pome_limits *limits);
void pome_limits_fill_avx512vnni(pome_limits *limits);
void pome_limits_fill_amx(pome_limits *limits);
#elif defined(__aarch64__)
void pome_limits_fill_neon(pome_limits *limits);
void pome_limits_fill_dotprod(pome_limits *limits);
void pome_limits_fill_i8mm(pome_limits *limits);
#endif

#endif
