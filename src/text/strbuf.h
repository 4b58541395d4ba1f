/* A growing byte string with a sticky failure: append freely, look at `failed` once at the end. */
#ifndef POME_TEXT_STRBUF_H
#define POME_TEXT_STRBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/span.h"
#include "pome/status.h"

typedef struct pome_strbuf { /* zeroed: empty */
    char *data;              /* NUL-terminated whenever len > 0 */
    size_t len, cap;
    size_t limit; /* 0: none; more fails */
    bool failed;  /* memory was short or the limit was met; data is then incomplete */
} pome_strbuf;

void pome_strbuf_reset(pome_strbuf *b); /* frees; keeps the limit */
bool pome_strbuf_reserve(pome_strbuf *b, size_t more);
void pome_strbuf_append(pome_strbuf *b, const char *s, size_t len);
void pome_strbuf_puts(pome_strbuf *b, const char *z);
void pome_strbuf_putc(pome_strbuf *b, char c);
void pome_strbuf_put_cp(pome_strbuf *b, uint32_t cp); /* as UTF-8 */
void pome_strbuf_printf(pome_strbuf *b, const char *fmt, ...) POME_PRINTF(2, 3);
/* Moves the bytes out as malloc'ed, NUL-terminated memory ("" if empty); NULL if failed. b is then empty. */
char *pome_strbuf_take(pome_strbuf *b, size_t *len);

static inline pome_str pome_strbuf_view(const pome_strbuf *b)
{
    return (pome_str){b->data ? b->data : "", b->len};
}

#endif
