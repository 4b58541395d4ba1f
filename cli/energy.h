/* The energy counters of the processor packages (RAPL), where the system shows them. */
#ifndef POME_CLI_ENERGY_H
#define POME_CLI_ENERGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ENERGY_PACKAGES_MAX = 8 };

typedef struct energy_meter {
    int n_packages;                      /* 0: nothing to read; `reason` says why */
    char path[ENERGY_PACKAGES_MAX][256]; /* energy_uj files */
    uint64_t range_uj[ENERGY_PACKAGES_MAX];
    uint64_t last_uj[ENERGY_PACKAGES_MAX];
    char reason[128];
} energy_meter;

/* root: /sys/class/powercap. */
void energy_open(energy_meter *meter, const char *root);
/* Begins a measurement; false without counters. */
bool energy_start(energy_meter *meter);
/* Joules of all packages since the start or the last read. Counters that wrapped once are put right. */
bool energy_read(energy_meter *meter, double *joules);

#endif
