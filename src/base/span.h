/* Views that never own memory. */
#ifndef POME_BASE_SPAN_H
#define POME_BASE_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct pome_bytes {
    const uint8_t *ptr;
    size_t len;
} pome_bytes;

typedef struct pome_str {
    const char *ptr; /* not NUL-terminated in general */
    size_t len;
} pome_str;

static inline pome_str pome_str_of(const char *z)
{
    return (pome_str){z, strlen(z)};
}
static inline bool pome_str_eq(pome_str a, pome_str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}
static inline bool pome_str_is(pome_str a, const char *z)
{
    return pome_str_eq(a, pome_str_of(z));
}

#endif
