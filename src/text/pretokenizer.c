#include "text/pretokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/normalizer.h"
#include "text/utf8.h"

const char pome_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* The text of one piece, seen as matches and the gaps between them. */
typedef struct cut {
    size_t begin, end;
    bool is_match;
} cut;

typedef struct cuts {
    cut *items;
    size_t n, cap;
    bool failed;
} cuts;

static void add_cut(cuts *c, size_t begin, size_t end, bool is_match)
{
    if (c->n == c->cap && !c->failed) {
        size_t cap = c->cap ? c->cap * 2 : 64;
        cut *items = realloc(c->items, cap * sizeof *items);
        if (items) {
            c->items = items;
            c->cap = cap;
        } else {
            c->failed = true;
        }
    }
    if (!c->failed)
        c->items[c->n++] = (cut){begin, end, is_match};
}

static pome_status cut_by_regex(pome_regex_scan *scan, pome_str text, cuts *c, pome_error *err)
{
    size_t done = 0, begin, end;
    bool found;
    pome_regex_scan_begin(scan, text.ptr, text.len);
    for (;;) {
        POME_TRY(pome_regex_scan_next(scan, &found, &begin, &end, err));
        if (!found)
            break;
        if (done != begin)
            add_cut(c, done, begin, false);
        add_cut(c, begin, end, true);
        done = end;
    }
    if (done != text.len)
        add_cut(c, done, text.len, false);
    return POME_OK;
}

static void cut_by_characters(const pome_pretokenizer *step, pome_str text, cuts *c)
{
    uint32_t wanted = 0;
    if (!step->is_delimiter)
        (void)pome_utf8_decode(step->replacement, strlen(step->replacement), &wanted, NULL);
    size_t done = 0;
    for (size_t i = 0, n; i < text.len; i += n) {
        uint32_t cp;
        int got = pome_utf8_decode(text.ptr + i, text.len - i, &cp, NULL);
        n = (size_t)(got < 0 ? -got : got);
        if (got < 0 || !(step->is_delimiter ? step->is_delimiter(cp) : cp == wanted))
            continue;
        if (done < i)
            add_cut(c, done, i, false);
        add_cut(c, i, i + n, true);
        done = i + n;
    }
    if (done < text.len)
        add_cut(c, done, text.len, false);
}

/* Joins neighbouring cuts in place as the behavior says; what stays is one piece each. */
static void join_cuts(cuts *c, pome_split_behavior behavior)
{
    size_t n = 0;
    bool previous = false;
    switch (behavior) {
    case POME_SPLIT_ISOLATED:
        return;
    case POME_SPLIT_REMOVED:
        for (size_t i = 0; i < c->n; i++)
            if (!c->items[i].is_match)
                c->items[n++] = c->items[i];
        break;
    case POME_SPLIT_CONTIGUOUS:
    case POME_SPLIT_MERGED_WITH_PREVIOUS:
        for (size_t i = 0; i < c->n; i++) {
            cut now = c->items[i];
            bool join = behavior == POME_SPLIT_CONTIGUOUS ? now.is_match == previous : now.is_match && !previous;
            if (join && n > 0)
                c->items[n - 1].end = now.end;
            else
                c->items[n++] = now;
            previous = now.is_match;
        }
        break;
    case POME_SPLIT_MERGED_WITH_NEXT: /* as with the previous one, seen from the end */
        n = c->n;
        for (size_t i = c->n; i-- > 0;) {
            cut now = c->items[i];
            if (now.is_match && !previous && n < c->n)
                c->items[n].begin = now.begin;
            else
                c->items[--n] = now;
            previous = now.is_match;
        }
        memmove(c->items, c->items + n, (c->n - n) * sizeof *c->items);
        n = c->n - n;
        break;
    }
    c->n = n;
}

static void add_cuts(pome_pieces *out, const char *text, const cuts *c, const pome_piece *like)
{
    for (size_t i = 0; i < c->n; i++)
        pome_pieces_add(out, text + c->items[i].begin, c->items[i].end - c->items[i].begin, like,
                        c->items[i].begin == 0);
}

static pome_status cut_piece(const pome_pretokenizer *step, pome_regex_scan *scan, pome_str text,
                             const pome_piece *like, cuts *c, pome_pieces *out, pome_error *err)
{
    c->n = 0;
    if (scan->regex)
        POME_TRY(cut_by_regex(scan, text, c, err));
    else
        cut_by_characters(step, text, c);
    if (c->failed)
        return pome_fail_nomem(err, c->cap, "pre-tokenization");
    for (size_t i = 0; step->invert && i < c->n; i++)
        c->items[i].is_match = !c->items[i].is_match;
    join_cuts(c, step->behavior);
    add_cuts(out, text.ptr, c, like);
    return POME_OK;
}

/* Spaces become the replacement, and one more may go in front. */
static void metaspace(const pome_pretokenizer *step, pome_str text, const pome_piece *like, pome_strbuf *out)
{
    size_t n = strlen(step->replacement);
    bool has = text.len > 0 && (text.ptr[0] == ' ' || (text.len >= n && memcmp(text.ptr, step->replacement, n) == 0));
    bool wanted = step->prepend == POME_PREPEND_ALWAYS || (step->prepend == POME_PREPEND_FIRST && like->at_start);
    out->len = 0;
    if (((wanted && !has) || step->prepend == POME_PREPEND_EXTRA) && !like->continues)
        pome_strbuf_append(out, step->replacement, n);
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] == ' ')
            pome_strbuf_append(out, step->replacement, n);
        else
            pome_strbuf_putc(out, text.ptr[i]);
    }
}

typedef struct scratch {
    cuts cuts;
    pome_strbuf text;
    pome_pieces pieces;
} scratch;

static pome_status byte_level_piece(const pome_pretokenizer *step, pome_regex_scan *scan, pome_str text,
                                    const pome_piece *like, scratch *s, pome_pieces *out, pome_error *err)
{
    pome_piece mapped = *like;
    mapped.is_raw = false;
    s->text.len = 0;
    if (step->add_prefix_space && text.ptr[0] != ' ' && !like->continues && !like->is_raw)
        pome_strbuf_putc(&s->text, ' ');
    pome_strbuf_append(&s->text, text.ptr, text.len);
    pome_pieces_clear(&s->pieces);
    if (step->regex && !like->is_raw)
        POME_TRY(cut_piece(step, scan, pome_strbuf_view(&s->text), &mapped, &s->cuts, &s->pieces, err));
    else
        pome_pieces_add(&s->pieces, s->text.data, s->text.len, &mapped, true);
    if (s->pieces.failed || s->text.failed)
        return pome_fail_nomem(err, text.len, "pre-tokenization");
    for (size_t i = 0; i < s->pieces.n; i++) {
        s->text.len = 0;
        pome_byte_level_append(&s->text, pome_pieces_text(&s->pieces, i), s->pieces.items[i].len);
        pome_pieces_add(out, s->text.data, s->text.len, &s->pieces.items[i], true);
    }
    return POME_OK;
}

static pome_status run_step(const pome_pretokenizer *step, pome_regex_scan *scan, const pome_pieces *in, scratch *s,
                            pome_pieces *out, pome_error *err)
{
    for (size_t i = 0; i < in->n; i++) {
        const pome_piece *like = &in->items[i];
        pome_str text = {pome_pieces_text(in, i), like->len};
        if (like->id >= 0 || (like->is_raw && step->kind != POME_PRETOKENIZE_BYTE_LEVEL)) {
            pome_pieces_add(out, text.ptr, text.len, like, true);
            continue;
        }
        switch (step->kind) {
        case POME_PRETOKENIZE_REGEX:
        case POME_PRETOKENIZE_CHARACTERS:
            POME_TRY(cut_piece(step, scan, text, like, &s->cuts, out, err));
            break;
        case POME_PRETOKENIZE_BYTE_LEVEL:
            POME_TRY(byte_level_piece(step, scan, text, like, s, out, err));
            break;
        case POME_PRETOKENIZE_METASPACE:
            metaspace(step, text, like, &s->text);
            if (step->split)
                POME_TRY(cut_piece(step, scan, pome_strbuf_view(&s->text), like, &s->cuts, out, err));
            else
                pome_pieces_add(out, s->text.data, s->text.len, like, true);
            break;
        }
        if (out->failed || s->text.failed)
            return pome_fail_nomem(err, text.len, "pre-tokenization");
    }
    return POME_OK;
}

pome_status pome_pretokenize(const pome_pretokenizer *steps, size_t n_steps, pome_pieces *a, pome_pieces *b,
                             pome_error *err)
{
    scratch s = {0};
    pome_status status = POME_OK;
    for (size_t i = 0; i < n_steps && status == POME_OK; i++) {
        pome_regex_scan scan = {0};
        if (steps[i].regex)
            status = pome_regex_scan_init(&scan, steps[i].regex, err);
        pome_pieces_clear(b);
        if (status == POME_OK)
            status = run_step(&steps[i], &scan, a, &s, b, err);
        if (scan.regex)
            pome_regex_scan_reset(&scan);
        pome_pieces swap = *a;
        *a = *b;
        *b = swap;
    }
    free(s.cuts.items);
    pome_strbuf_reset(&s.text);
    pome_pieces_reset(&s.pieces);
    return status;
}
