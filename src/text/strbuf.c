#include "text/strbuf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/utf8.h"

void pome_strbuf_reset(pome_strbuf *b)
{
    free(b->data);
    *b = (pome_strbuf){.limit = b->limit};
}

bool pome_strbuf_reserve(pome_strbuf *b, size_t more)
{
    if (b->failed)
        return false;
    if (more > SIZE_MAX / 4 || b->len > SIZE_MAX / 4 || (b->limit && b->len + more > b->limit)) {
        b->failed = true;
        return false;
    }
    if (b->len + more < b->cap) /* one byte stays for the NUL */
        return true;
    size_t cap = b->cap ? b->cap : 64;
    while (cap <= b->len + more)
        cap *= 2;
    char *data = realloc(b->data, cap);
    if (!data) {
        b->failed = true;
        return false;
    }
    b->data = data;
    b->cap = cap;
    return true;
}

void pome_strbuf_append(pome_strbuf *b, const char *s, size_t len)
{
    if (len == 0 || !pome_strbuf_reserve(b, len))
        return;
    memcpy(b->data + b->len, s, len);
    b->len += len;
    b->data[b->len] = '\0';
}

void pome_strbuf_puts(pome_strbuf *b, const char *z)
{
    pome_strbuf_append(b, z, strlen(z));
}

void pome_strbuf_putc(pome_strbuf *b, char c)
{
    pome_strbuf_append(b, &c, 1);
}

void pome_strbuf_put_cp(pome_strbuf *b, uint32_t cp)
{
    char bytes[4];
    pome_strbuf_append(b, bytes, pome_utf8_encode(cp, bytes));
}

void pome_strbuf_printf(pome_strbuf *b, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n >= 0 && pome_strbuf_reserve(b, (size_t)n)) {
        vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

char *pome_strbuf_take(pome_strbuf *b, size_t *len)
{
    if (!b->data)
        (void)pome_strbuf_reserve(b, 1);
    if (b->failed) {
        pome_strbuf_reset(b);
        return NULL;
    }
    char *data = b->data;
    data[b->len] = '\0';
    if (len)
        *len = b->len;
    *b = (pome_strbuf){.limit = b->limit};
    return data;
}
