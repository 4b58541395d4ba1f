#include "base/arena.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

enum { ALIGN = 16, FIRST_CHUNK = 4096, LARGEST_CHUNK = 1 << 20 };

typedef struct chunk {
    struct chunk *next;
    size_t used, size; /* of the bytes after this header */
} chunk;

struct pome_arena {
    chunk *head;
    size_t limit, used, next_size;
};

static size_t header_size(void)
{
    return (sizeof(chunk) + ALIGN - 1) / ALIGN * ALIGN;
}

pome_arena *pome_arena_create(size_t limit_bytes)
{
    pome_arena *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->limit = limit_bytes ? limit_bytes : SIZE_MAX;
    a->next_size = FIRST_CHUNK;
    return a;
}

void pome_arena_destroy(pome_arena **arena)
{
    if (!arena || !*arena)
        return;
    for (chunk *c = (*arena)->head; c;) {
        chunk *next = c->next;
        free(c);
        c = next;
    }
    free(*arena);
    *arena = NULL;
}

/* Chunks double up to a megabyte; a request larger than the next chunk gets one of its own size, put behind the
 * current one so that its free space stays in use. */
static chunk *add_chunk(pome_arena *a, size_t size)
{
    size_t want = size > a->next_size ? size : a->next_size, total;
    if (!pome_add_size(want, header_size(), &total))
        return NULL;
    chunk *c = calloc(1, total);
    if (!c)
        return NULL;
    c->size = want;
    if (a->head && size > a->next_size) {
        c->next = a->head->next;
        a->head->next = c;
    } else {
        c->next = a->head;
        a->head = c;
    }
    if (a->next_size < LARGEST_CHUNK)
        a->next_size *= 2;
    return c;
}

void *pome_arena_alloc(pome_arena *a, size_t size)
{
    size_t n;
    if (!pome_add_size(size ? size : 1, ALIGN - 1, &n))
        return NULL;
    n = n / ALIGN * ALIGN;
    if (n > a->limit - a->used)
        return NULL;
    chunk *c = a->head;
    if (!c || c->size - c->used < n) {
        c = add_chunk(a, n);
        if (!c)
            return NULL;
    }
    void *p = (char *)c + header_size() + c->used;
    c->used += n;
    a->used += n;
    return p;
}

void *pome_arena_alloc_array(pome_arena *a, size_t n, size_t size)
{
    size_t total;
    return pome_mul_size(n, size, &total) ? pome_arena_alloc(a, total) : NULL;
}

char *pome_arena_strndup(pome_arena *a, const char *s, size_t len)
{
    size_t n;
    char *p = pome_add_size(len, 1, &n) ? pome_arena_alloc(a, n) : NULL;
    if (p && len)
        memcpy(p, s, len);
    return p;
}

char *pome_arena_printf(pome_arena *a, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *p = n < 0 ? NULL : pome_arena_alloc(a, (size_t)n + 1);
    if (p) {
        va_start(ap, fmt);
        vsnprintf(p, (size_t)n + 1, fmt, ap);
        va_end(ap);
    }
    return p;
}

size_t pome_arena_used(const pome_arena *a)
{
    return a->used;
}
