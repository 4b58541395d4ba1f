/* The text on its way through the tokenizer: a buffer cut into consecutive spans. Every step reads one and writes
 * the next. */
#ifndef POME_TEXT_PIECES_H
#define POME_TEXT_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/strbuf.h"

typedef struct pome_piece {
    size_t begin, len; /* in the buffer */
    int32_t id;        /* >= 0: an added token, finished; -1: text */
    bool at_start;     /* begins where the whole text begins */
    bool is_raw;       /* bytes that are not UTF-8: only a byte-level step looks at them */
    bool continues;    /* follows raw bytes, so nothing is put in front */
} pome_piece;

typedef struct pome_pieces { /* zeroed: empty */
    pome_strbuf text;
    pome_piece *items;
    size_t n, cap;
    bool failed; /* memory was short */
} pome_pieces;

void pome_pieces_reset(pome_pieces *p);
void pome_pieces_clear(pome_pieces *p); /* keeps the memory */
/* Appends a piece of text[0..len) with the properties of `like`; at_start and continues only if is_first. An empty
 * one is left out. */
void pome_pieces_add(pome_pieces *p, const char *text, size_t len, const pome_piece *like, bool is_first);
static inline const char *pome_pieces_text(const pome_pieces *p, size_t i)
{
    return p->text.data + p->items[i].begin;
}

/* Cuts text into valid UTF-8 and runs of other bytes. */
void pome_pieces_from_text(pome_pieces *p, const char *text, size_t len);

#endif
