/* A hash table from strings to pointers; keys are borrowed and must outlive the map. */
#ifndef POME_BASE_STRMAP_H
#define POME_BASE_STRMAP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/arena.h"
#include "base/span.h"

typedef struct pome_strmap_slot {
    pome_str key;
    void *value;
} pome_strmap_slot;

typedef struct pome_strmap { /* zeroed: empty */
    pome_arena *arena;
    pome_strmap_slot *slots;
    size_t n_used, n_slots;
} pome_strmap;

void pome_strmap_init(pome_strmap *map, pome_arena *arena);
/* NULL if there is none. */
void *pome_strmap_get(const pome_strmap *map, pome_str key);
/* Adds or replaces; false when memory is short. value must not be NULL. */
bool pome_strmap_set(pome_strmap *map, pome_str key, void *value);

#endif
