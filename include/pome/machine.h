/* The machine at hand: what it is, and what it can do at most. */
#ifndef POME_MACHINE_H
#define POME_MACHINE_H

#include "pome/status.h"

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pome_machine {
    char cpu[128];               /* the processor's name; "" if the system does not tell */
    const char *level;           /* CPU level in use: "avx2" */
    int n_threads;               /* what 0 threads stands for */
    uint64_t cache_bytes;        /* last-level cache; 0: not known */
    uint64_t memory_bytes, memory_free_bytes;
} pome_machine;

POME_API void pome_machine_describe(pome_machine *out);

typedef struct pome_machine_limits {
    double read_bytes_per_s;     /* all threads reading a buffer larger than the last-level cache */
    double int8_ops_per_s;       /* multiplications and additions of 8-bit integers, summed in 32 bits */
    uint64_t buffer_bytes;
    const char *int8_name;       /* the instructions, "vpdpbusd (512 bits)" */
} pome_machine_limits;

/* Measures for about `seconds`, half for each, and gives the fastest of many passes. n_threads 0: as many as the
 * process may use. Errors: ARG, NOMEM (the buffer takes a quarter of the free memory at most). */
POME_API POME_NODISCARD pome_status pome_machine_measure(pome_machine_limits *out, int n_threads, double seconds,
                                                         pome_error *err);

#ifdef __cplusplus
}
#endif
#endif
