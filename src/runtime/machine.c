#include "pome/machine.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/error.h"
#include "base/pool.h"
#include "kernels/limits.h"

enum {
    BUFFER_BYTES_MIN = 256 << 20,
    BUFFER_CACHES = 4,         /* the buffer is this many times the last-level cache */
    READ_GRAIN = 4 << 20,      /* bytes per chunk of work */
    N_PASSES_MIN = 3,
    INT8_CHUNKS = 16           /* per thread */
};

static double clock_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- what it is ---- */

/* The value of the first line "name : value" of a file, without white space around it; "" if there is none. */
static void find_field(const char *path, const char *name, char *value, size_t size)
{
    char line[512];
    FILE *f = fopen(path, "re");
    value[0] = '\0';
    while (f && !value[0] && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, name, strlen(name)) != 0)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(value, size, "%.*s", (int)strcspn(colon, "\n"), colon);
    }
    if (f)
        fclose(f);
}

/* Of the first processor; a virtual machine's CPUID may count those of the whole host, the kernel knows better. */
static uint64_t last_level_cache(void)
{
    uint64_t largest = 0;
    for (int i = 0; i < 8; i++) {
        char path[80], text[32] = "";
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        FILE *f = fopen(path, "re");
        if (!f)
            break;
        bool is_read = fgets(text, sizeof text, f) != NULL;
        fclose(f);
        char *unit = text;
        uint64_t size = is_read ? strtoull(text, &unit, 10) : 0;
        size *= *unit == 'K' ? 1024 : *unit == 'M' ? 1 << 20 : 1;
        largest = size > largest ? size : largest;
    }
    return largest;
}

void pome_machine_describe(pome_machine *out)
{
    char value[64];
    *out = (pome_machine){.level = pome_cpu_level_name(pome_cpu_level_get()), .n_threads = pome_cpu_count(),
                          .cache_bytes = last_level_cache()};
    find_field("/proc/cpuinfo", "model name", out->cpu, sizeof out->cpu);
    if (!out->cpu[0])
        find_field("/proc/cpuinfo", "CPU part", out->cpu, sizeof out->cpu);
    find_field("/proc/meminfo", "MemTotal", value, sizeof value);
    out->memory_bytes = strtoull(value, NULL, 10) * 1024;
    find_field("/proc/meminfo", "MemAvailable", value, sizeof value);
    out->memory_free_bytes = strtoull(value, NULL, 10) * 1024;
}

/* ---- what it can do ---- */

typedef struct measure {
    pome_pool *pool;
    pome_limits limits;
    uint8_t *buffer;
    size_t size;
    uint64_t rounds;          /* of a chunk of int8 work */
    volatile uint64_t result; /* keeps the work from being left out */
} measure;

static void touch_chunk(void *arg, size_t begin, size_t end, int thread)
{
    measure *m = arg;
    (void)thread;
    memset(m->buffer + begin, 1, end - begin);
}

static void read_chunk(void *arg, size_t begin, size_t end, int thread)
{
    measure *m = arg;
    uint64_t sum = m->limits.read(m->buffer + begin, end - begin);
    if (thread == 0)
        m->result = sum;
}

static void int8_chunk(void *arg, size_t begin, size_t end, int thread)
{
    measure *m = arg;
    uint64_t sum = 0;
    for (size_t i = begin; i < end; i++)
        sum += m->limits.int8(m->rounds);
    if (thread == 0)
        m->result = sum;
}

/* The shortest of the passes that fit into `seconds`. */
static double fastest_pass_s(measure *m, pome_pool_fn *fn, size_t n, size_t grain, double seconds)
{
    double begin = clock_s(), best = 0;
    for (int pass = 0; pass < N_PASSES_MIN || clock_s() - begin < seconds; pass++) {
        double start = clock_s();
        pome_pool_run(m->pool, n, grain, fn, m);
        double spent = clock_s() - start;
        best = pass == 0 || spent < best ? spent : best;
    }
    return best > 0 ? best : 1e-9;
}

/* Large pages where the system has them: the walk through the page tables is no part of the memory's speed. */
static uint8_t *map_buffer(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    (void)madvise(p, size, MADV_HUGEPAGE);
    return p;
}

static pome_status measure_read(measure *m, double seconds, pome_machine_limits *out, pome_error *err)
{
    pome_machine machine;
    pome_machine_describe(&machine);
    uint64_t size = BUFFER_CACHES * machine.cache_bytes;
    size = size < BUFFER_BYTES_MIN ? BUFFER_BYTES_MIN : size;
    if (machine.memory_free_bytes > 0 && size > machine.memory_free_bytes / 4)
        size = machine.memory_free_bytes / 4;
    m->size = (size_t)(size / READ_GRAIN) * READ_GRAIN;
    m->buffer = m->size ? map_buffer(m->size) : NULL;
    if (!m->buffer)
        return pome_fail_nomem(err, (size_t)size, "buffer to measure the memory with");
    pome_pool_run(m->pool, m->size, READ_GRAIN, touch_chunk, m);
    out->read_bytes_per_s = (double)m->size / fastest_pass_s(m, read_chunk, m->size, READ_GRAIN, seconds);
    out->buffer_bytes = m->size;
    munmap(m->buffer, m->size);
    return POME_OK;
}

static void measure_int8(measure *m, double seconds, pome_machine_limits *out)
{
    size_t n_chunks = (size_t)INT8_CHUNKS * (size_t)pome_pool_n_threads(m->pool);
    for (m->rounds = 64; m->rounds < (uint64_t)1 << 40; m->rounds *= 2) { /* a chunk of 1 ms: hand-over costs nothing */
        double start = clock_s();
        m->result = m->limits.int8(m->rounds);
        if (clock_s() - start > 1e-3)
            break;
    }
    double n_ops = (double)n_chunks * (double)m->rounds * (double)m->limits.int8_ops;
    out->int8_ops_per_s = n_ops / fastest_pass_s(m, int8_chunk, n_chunks, 1, seconds);
    out->int8_name = m->limits.int8_name;
}

pome_status pome_machine_measure(pome_machine_limits *out, int n_threads, double seconds, pome_error *err)
{
    measure m = {0};
    pome_machine_limits found = {0};
    POME_TRY(pome_pool_create(&m.pool, n_threads, err));
    pome_limits_init(&m.limits, pome_cpu_level_get());
    pome_status status = measure_read(&m, seconds / 2, &found, err);
    if (status == POME_OK)
        measure_int8(&m, seconds / 2, &found);
    pome_pool_destroy(&m.pool);
    if (status == POME_OK)
        *out = found;
    return status;
}
