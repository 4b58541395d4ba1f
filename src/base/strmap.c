#include "base/strmap.h"

#include <stdint.h>

static uint64_t hash(pome_str s) /* FNV-1a, 64 bits */
{
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < s.len; i++)
        h = (h ^ (unsigned char)s.ptr[i]) * 1099511628211u;
    return h ^ h >> 32;
}

void pome_strmap_init(pome_strmap *map, pome_arena *arena)
{
    *map = (pome_strmap){.arena = arena};
}

static pome_strmap_slot *probe(const pome_strmap *map, pome_str key)
{
    size_t mask = map->n_slots - 1, i = (size_t)hash(key) & mask;
    while (map->slots[i].value && !pome_str_eq(map->slots[i].key, key))
        i = (i + 1) & mask;
    return &map->slots[i];
}

void *pome_strmap_get(const pome_strmap *map, pome_str key)
{
    return map->n_slots ? probe(map, key)->value : NULL;
}

static bool grow(pome_strmap *map)
{
    pome_strmap bigger = {.arena = map->arena, .n_used = map->n_used, .n_slots = map->n_slots ? map->n_slots * 2 : 32};
    bigger.slots = POME_NEW_ARRAY(map->arena, pome_strmap_slot, bigger.n_slots);
    if (!bigger.slots)
        return false;
    for (size_t i = 0; i < map->n_slots; i++)
        if (map->slots[i].value)
            *probe(&bigger, map->slots[i].key) = map->slots[i];
    *map = bigger;
    return true;
}

bool pome_strmap_set(pome_strmap *map, pome_str key, void *value)
{
    if ((map->n_used + 1) * 4 > map->n_slots * 3 && !grow(map))
        return false;
    pome_strmap_slot *slot = probe(map, key);
    if (!slot->value)
        map->n_used++;
    *slot = (pome_strmap_slot){key, value};
    return true;
}
