#include "text/pieces.h"

#include <stdlib.h>

#include "text/utf8.h"

void pome_pieces_reset(pome_pieces *p)
{
    pome_strbuf_reset(&p->text);
    free(p->items);
    *p = (pome_pieces){0};
}

void pome_pieces_clear(pome_pieces *p)
{
    p->text.len = 0;
    p->n = 0;
}

void pome_pieces_add(pome_pieces *p, const char *text, size_t len, const pome_piece *like, bool is_first)
{
    if (len == 0 || p->failed)
        return;
    if (p->n == p->cap) {
        size_t cap = p->cap ? p->cap * 2 : 64;
        pome_piece *items = realloc(p->items, cap * sizeof *items);
        if (!items) {
            p->failed = true;
            return;
        }
        p->items = items;
        p->cap = cap;
    }
    size_t begin = p->text.len;
    pome_strbuf_append(&p->text, text, len);
    p->failed |= p->text.failed;
    if (p->failed) /* no piece of text that is not there */
        return;
    p->items[p->n] = *like;
    p->items[p->n].begin = begin;
    p->items[p->n].len = len;
    p->items[p->n].at_start = like->at_start && is_first;
    p->items[p->n].continues = like->continues && is_first;
    p->n++;
}

void pome_pieces_from_text(pome_pieces *p, const char *text, size_t len)
{
    pome_piece like = {.id = -1, .at_start = true};
    size_t i = 0;
    while (i < len) {
        size_t n = pome_utf8_valid_len(text + i, len - i);
        like.is_raw = false;
        pome_pieces_add(p, text + i, n, &like, true);
        if (n)
            like.at_start = false;
        i += n;
        size_t bad = i;
        while (bad < len) {
            uint32_t cp;
            int got = pome_utf8_decode(text + bad, len - bad, &cp, NULL);
            if (got > 0)
                break;
            bad += (size_t)-got;
        }
        like.is_raw = true;
        like.continues = false;
        pome_pieces_add(p, text + i, bad - i, &like, true);
        like.at_start = false;
        like.continues = true;
        i = bad;
    }
}
