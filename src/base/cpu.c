#include "base/cpu.h"

#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

static const char *const names[POME_CPU_COUNT] = {
    [POME_CPU_GENERIC] = "generic", [POME_CPU_AVX2] = "avx2",       [POME_CPU_AVX512] = "avx512",
    [POME_CPU_AVX512VNNI] = "avx512vnni", [POME_CPU_AMX] = "amx",   [POME_CPU_NEON] = "neon",
    [POME_CPU_DOTPROD] = "dotprod", [POME_CPU_I8MM] = "i8mm",
};

const char *pome_cpu_level_name(pome_cpu_level level)
{
    return (unsigned)level < POME_CPU_COUNT ? names[level] : "?";
}

bool pome_cpu_level_parse(const char *name, pome_cpu_level *out)
{
    for (int i = 0; i < POME_CPU_COUNT; i++)
        if (strcmp(names[i], name) == 0) {
            *out = (pome_cpu_level)i;
            return true;
        }
    return false;
}

#if defined(__x86_64__)
/* Tiles are 8 KiB of state that the kernel saves only for processes that asked (arch_prctl(2)). */
static bool amx_permitted(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

/* Bits: Intel SDM volume 2, CPUID; XCR0: volume 1, chapter 13. */
static pome_cpu_level look(void)
{
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return POME_CPU_GENERIC;
    bool osxsave = c >> 27 & 1, fma = c >> 12 & 1, f16c = c >> 29 & 1, avx = c >> 28 & 1;
    if (!osxsave || !fma || !f16c || !avx)
        return POME_CPU_GENERIC;
    unsigned lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    if ((lo & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b >> 5 & 1))
        return POME_CPU_GENERIC;
    bool f = b >> 16 & 1, dq = b >> 17 & 1, bw = b >> 30 & 1, vl = b >> 31 & 1, vnni = c >> 11 & 1;
    bool tile = d >> 24 & 1, tile_int8 = d >> 25 & 1, tile_bf16 = d >> 22 & 1;
    if ((lo & 0xe6) != 0xe6 || !f || !dq || !bw || !vl)
        return POME_CPU_AVX2;
    if (!vnni)
        return POME_CPU_AVX512;
    if (tile && tile_int8 && tile_bf16 && (lo & 0x60000) == 0x60000 && amx_permitted())
        return POME_CPU_AMX;
    return POME_CPU_AVX512VNNI;
}
#elif defined(__aarch64__)
static pome_cpu_level look(void)
{
    unsigned long cap = getauxval(AT_HWCAP), cap2 = getauxval(AT_HWCAP2);
    bool dotprod = cap >> 20 & 1, i8mm = cap2 >> 13 & 1; /* HWCAP_ASIMDDP, HWCAP2_I8MM */
    return dotprod && i8mm ? POME_CPU_I8MM : dotprod ? POME_CPU_DOTPROD : POME_CPU_NEON;
}
#else
static pome_cpu_level look(void)
{
    return POME_CPU_GENERIC;
}
#endif

/* Looked up once: a hypervisor traps the instruction, which takes as long as reading a small weight. */
pome_cpu_level pome_cpu_detect(void)
{
    static atomic_int known = -1;
    int level = atomic_load_explicit(&known, memory_order_relaxed);
    if (level < 0)
        atomic_store_explicit(&known, level = (int)look(), memory_order_relaxed);
    return (pome_cpu_level)level;
}

static bool same_architecture(pome_cpu_level a, pome_cpu_level b)
{
    return a == POME_CPU_GENERIC || b == POME_CPU_GENERIC || (a >= POME_CPU_NEON) == (b >= POME_CPU_NEON);
}

bool pome_cpu_level_available(pome_cpu_level level)
{
    pome_cpu_level best = pome_cpu_detect();
    return same_architecture(level, best) && level <= best;
}

pome_cpu_level pome_cpu_level_get(void)
{
    pome_cpu_level best = pome_cpu_detect(), asked;
    const char *name = getenv("POME_CPU");
    if (!name || !pome_cpu_level_parse(name, &asked) || !same_architecture(asked, best))
        return best;
    return asked < best ? asked : best;
}

int pome_cpu_count(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    double quota = pome_cgroup_processors("/proc/self/cgroup", "/sys/fs/cgroup");
    if (quota > 0 && quota < n)
        n = (int)ceil(quota);
    return n > 0 ? n : 1;
}
