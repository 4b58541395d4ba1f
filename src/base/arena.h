/* Memory that is freed as one: everything allocated from an arena dies with it. Not thread-safe. */
#ifndef POME_BASE_ARENA_H
#define POME_BASE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

#include "pome/status.h"

typedef struct pome_arena pome_arena;

/* NULL when memory is short. `limit_bytes` 0: none. */
pome_arena *pome_arena_create(size_t limit_bytes);
void pome_arena_destroy(pome_arena **arena);
/* 16-byte aligned, zeroed; NULL when memory is short or the limit is met. size 0 gives a valid pointer. */
void *pome_arena_alloc(pome_arena *arena, size_t size);
void *pome_arena_alloc_array(pome_arena *arena, size_t n, size_t size); /* n * size, checked */
char *pome_arena_strndup(pome_arena *arena, const char *s, size_t len); /* NUL-terminated copy */
char *pome_arena_printf(pome_arena *arena, const char *fmt, ...) POME_PRINTF(2, 3);
size_t pome_arena_used(const pome_arena *arena);

#define POME_NEW(arena, type) ((type *)pome_arena_alloc((arena), sizeof(type)))
#define POME_NEW_ARRAY(arena, type, n) ((type *)pome_arena_alloc_array((arena), (n), sizeof(type)))

#endif
