/* Which instruction sets this process may use. A level is a bundle, not a bit; each includes those before it
 * on the same architecture. POME_CPU=<level> in the environment lowers it. */
#ifndef POME_BASE_CPU_H
#define POME_BASE_CPU_H

#include <stdbool.h>

typedef enum pome_cpu_level {
    POME_CPU_GENERIC = 0,
    POME_CPU_AVX2,       /* AVX2 + FMA + F16C, state saved by the system */
    POME_CPU_AVX512,     /* F, BW, DQ, VL */
    POME_CPU_AVX512VNNI,
    POME_CPU_AMX,        /* int8 and bf16 tiles, permission asked of the kernel */
    POME_CPU_NEON,       /* AArch64 baseline */
    POME_CPU_DOTPROD,
    POME_CPU_I8MM,
    POME_CPU_COUNT
} pome_cpu_level;

pome_cpu_level pome_cpu_detect(void); /* the machine's best level, POME_CPU not considered */
pome_cpu_level pome_cpu_level_get(void); /* what to use: the lower of the machine's and POME_CPU's */
const char *pome_cpu_level_name(pome_cpu_level level); /* "generic", "avx2", ... */
bool pome_cpu_level_parse(const char *name, pome_cpu_level *out);
bool pome_cpu_level_available(pome_cpu_level level); /* may code of this level run here */
int pome_cpu_count(void); /* processors this process may use: affinity mask and cgroup quota, at least 1 */

#endif
