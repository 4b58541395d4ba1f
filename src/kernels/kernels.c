#include "kernels/kernels.h"

#include <string.h>

/* Each level of an architecture stands on those before it. */
void pome_kernels_init(pome_kernels *k, pome_cpu_level level)
{
    memset(k, 0, sizeof *k);
    pome_kernels_fill_generic(k);
    k->level = POME_CPU_GENERIC;
#if defined(__x86_64__)
    if (level >= POME_CPU_AVX2 && level <= POME_CPU_AMX) {
        pome_kernels_fill_avx2(k);
        k->level = POME_CPU_AVX2;
    }
    if (level >= POME_CPU_AVX512 && level <= POME_CPU_AMX) {
        pome_kernels_fill_vector_avx512(k);
        pome_kernels_fill_gemm_avx512(k);
        pome_kernels_fill_attend_avx512(k);
        pome_kernels_fill_conv_avx512(k);
        pome_kernels_fill_coded_avx512(k);
        k->level = POME_CPU_AVX512;
    }
    if (level >= POME_CPU_AVX512VNNI && level <= POME_CPU_AMX) {
        pome_kernels_fill_coded_avx512vnni(k);
        k->level = POME_CPU_AVX512VNNI;
    }
    if (level == POME_CPU_AMX) {
        pome_kernels_fill_coded_amx(k);
        pome_kernels_fill_coded_bf16_amx(k);
        k->level = POME_CPU_AMX;
    }
#elif defined(__aarch64__)
    if (level >= POME_CPU_NEON && level <= POME_CPU_I8MM) {
        pome_kernels_fill_neon(k);
        pome_kernels_fill_conv_neon(k);
        pome_kernels_fill_coded_neon(k);
        k->level = POME_CPU_NEON;
    }
    if (level == POME_CPU_DOTPROD || level == POME_CPU_I8MM) {
        pome_kernels_fill_coded_dotprod(k);
        k->level = POME_CPU_DOTPROD;
    }
    if (level == POME_CPU_I8MM) {
        pome_kernels_fill_coded_i8mm(k);
        k->level = POME_CPU_I8MM;
    }
#else
    (void)level;
#endif
}
