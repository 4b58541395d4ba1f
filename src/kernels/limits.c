#include "kernels/limits.h"

void pome_limits_init(pome_limits *limits, pome_cpu_level level)
{
    *limits = (pome_limits){0};
    pome_limits_fill_generic(limits);
#if defined(__x86_64__)
    if (level < POME_CPU_AVX2 || level > POME_CPU_AMX)
        return;
    pome_limits_fill_avx2(limits);
    if (level >= POME_CPU_AVX512)
        pome_limits_fill_avx512(limits);
    if (level >= POME_CPU_AVX512VNNI)
        pome_limits_fill_avx512vnni(limits);
    if (level >= POME_CPU_AMX)
        pome_limits_fill_amx(limits);
#elif defined(__aarch64__)
    if (level < POME_CPU_NEON || level > POME_CPU_I8MM)
        return;
    pome_limits_fill_neon(limits);
    if (level >= POME_CPU_DOTPROD)
        pome_limits_fill_dotprod(limits);
    if (level >= POME_CPU_I8MM)
        pome_limits_fill_i8mm(limits);
#else
    (void)level;
#endif
}
