#include "text/added_tokens.h"

#include <stdlib.h>

#include "base/error.h"
#include "text/utf8.h"

pome_status pome_added_tokens_add(pome_added_tokens *set, const pome_added_token *token, pome_error *err)
{
    if (token->content.len == 0)
        return POME_OK;
    if (set->n == set->cap) {
        size_t cap = set->cap ? set->cap * 2 : 32;
        pome_added_token *items = realloc(set->items, cap * sizeof *items);
        if (!items)
            return pome_fail_nomem(err, cap * sizeof *items, "added tokens");
        set->items = items;
        set->cap = cap;
    }
    set->items[set->n++] = *token;
    return POME_OK;
}

static int by_content(const void *a, const void *b)
{
    const pome_added_token *x = a, *y = b;
    size_t n = x->content.len < y->content.len ? x->content.len : y->content.len;
    int order = memcmp(x->content.ptr, y->content.ptr, n);
    if (order == 0)
        order = x->content.len < y->content.len ? -1 : x->content.len > y->content.len;
    return order ? order : x->id < y->id ? -1 : x->id > y->id;
}

void pome_added_tokens_index(pome_added_tokens *set)
{
    if (set->n > 0)
        qsort(set->items, set->n, sizeof *set->items, by_content);
    size_t i = 0;
    for (unsigned b = 0; b <= 256; b++) {
        while (i < set->n && (uint8_t)set->items[i].content.ptr[0] < b)
            i++;
        set->first[b] = (uint32_t)i;
    }
}

void pome_added_tokens_reset(pome_added_tokens *set)
{
    free(set->items);
    *set = (pome_added_tokens){0};
}

/* Within items[low..high), all equal in their first `at` bytes: the bounds of those with byte b next. A content
 * that ends there sorts first. */
static size_t bound(const pome_added_tokens *set, size_t low, size_t high, size_t at, int b)
{
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        pome_str c = set->items[mid].content;
        int byte = at < c.len ? (uint8_t)c.ptr[at] : -1;
        if (byte < b)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static const pome_added_token *longest(const pome_added_tokens *set, const char *text, size_t len)
{
    uint8_t b = (uint8_t)text[0];
    size_t low = set->first[b], high = set->first[b + 1];
    const pome_added_token *found = NULL;
    for (size_t at = 1; low < high; at++) {
        if (set->items[low].content.len == at)
            found = &set->items[low];
        if (at == len)
            break;
        int next = (uint8_t)text[at];
        low = bound(set, low, high, at, next);
        high = bound(set, low, high, at, next + 1);
    }
    return found;
}

static bool word_before(const char *text, size_t at)
{
    size_t start;
    return at > 0 && pome_cp_is_word(pome_utf8_last(text, at, &start));
}

static bool word_at(const char *text, size_t len, size_t at)
{
    uint32_t cp;
    return at < len && pome_utf8_decode(text + at, len - at, &cp, NULL) > 0 && pome_cp_is_word(cp);
}

static size_t skip_space_back(const char *text, size_t at, size_t floor)
{
    size_t start;
    while (at > floor && pome_cp_is_space(pome_utf8_last(text, at, &start)))
        at = start;
    return at < floor ? floor : at;
}

static size_t skip_space(const char *text, size_t len, size_t at)
{
    uint32_t cp;
    while (at < len) {
        int n = pome_utf8_decode(text + at, len - at, &cp, NULL);
        if (n < 0 || !pome_cp_is_space(cp))
            break;
        at += (size_t)n;
    }
    return at;
}

static void split_piece(const pome_added_tokens *set, bool parse_special, const char *text, const pome_piece *like,
                        pome_pieces *out)
{
    size_t len = like->len, done = 0, i = 0;
    while (i < len) {
        const pome_added_token *t = longest(set, text + i, len - i);
        if (!t) {
            i++;
            continue;
        }
        size_t begin = i, end = i + t->content.len;
        i = end;
        if (t->special && !parse_special)
            continue;
        if (t->single_word && (word_before(text, begin) || word_at(text, len, end)))
            continue;
        if (t->lstrip)
            begin = skip_space_back(text, begin, done);
        if (t->rstrip)
            end = skip_space(text, len, end);
        if (begin > done)
            pome_pieces_add(out, text + done, begin - done, like, done == 0);
        pome_piece found = *like;
        found.id = t->id;
        found.continues = false;
        if (end > begin)
            pome_pieces_add(out, text + begin, end - begin, &found, begin == 0);
        done = end;
    }
    if (done < len)
        pome_pieces_add(out, text + done, len - done, like, done == 0);
}

void pome_added_tokens_split(const pome_added_tokens *set, bool parse_special, const pome_pieces *in,
                             pome_pieces *out)
{
    pome_pieces_clear(out);
    for (size_t i = 0; i < in->n; i++) {
        const pome_piece *like = &in->items[i];
        if (like->id >= 0 || like->is_raw)
            pome_pieces_add(out, pome_pieces_text(in, i), like->len, like, true);
        else
            split_piece(set, parse_special, pome_pieces_text(in, i), like, out);
    }
}
