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
#elif defined(__aarch64__)
    if (level >= POME_CPU_NEON && level <= POME_CPU_I8MM) {
        pome_kernels_fill_neon(k);
        k->level = POME_CPU_NEON;
    }
#else
    (void)level;
#endif
}
