#include "text/normalizer.h"

#include <stdlib.h>
#include <utf8proc.h>

#include "base/error.h"
#include "text/utf8.h"

/* The printable bytes of Latin-1 stand for themselves, the other 68 for U+0100 and on, in order. */
static bool is_own_char(uint32_t b)
{
    return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || (b >= 0xae && b <= 0xff);
}

uint32_t pome_byte_level_char(uint8_t byte)
{
    uint32_t b = byte;
    if (is_own_char(b))
        return b;
    return b <= 0x20 ? 0x100 + b : b <= 0xa0 ? 0x100 + 0x21 + (b - 0x7f) : 0x143;
}

int pome_byte_level_byte(uint32_t cp)
{
    if (is_own_char(cp))
        return (int)cp;
    if (cp >= 0x100 && cp <= 0x120)
        return (int)(cp - 0x100);
    if (cp >= 0x121 && cp <= 0x142)
        return (int)(cp - 0x121 + 0x7f);
    return cp == 0x143 ? 0xad : -1;
}

void pome_byte_level_append(pome_strbuf *out, const char *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++)
        pome_strbuf_put_cp(out, pome_byte_level_char((uint8_t)bytes[i]));
}

static pome_status unicode_form(pome_str text, int options, pome_strbuf *out, pome_error *err)
{
    utf8proc_uint8_t *mapped = NULL;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)text.ptr, (utf8proc_ssize_t)text.len, &mapped,
                                      (utf8proc_option_t)(UTF8PROC_STABLE | options));
    if (n < 0)
        return pome_fail(err, n == UTF8PROC_ERROR_NOMEM ? POME_ERR_NOMEM : POME_ERR_ARG,
                         "Unicode normalization of %zu bytes: %s", text.len, utf8proc_errmsg(n));
    pome_strbuf_append(out, (const char *)mapped, (size_t)n);
    free(mapped);
    return POME_OK;
}

static pome_status replace(const pome_normalizer *step, pome_str text, pome_strbuf *out, pome_error *err)
{
    pome_regex_scan scan;
    POME_TRY(pome_regex_scan_init(&scan, step->regex, err));
    pome_regex_scan_begin(&scan, text.ptr, text.len);
    size_t done = 0, begin, end;
    bool found = true;
    pome_status status = POME_OK;
    while (status == POME_OK && found) {
        status = pome_regex_scan_next(&scan, &found, &begin, &end, err);
        if (status == POME_OK && found) {
            pome_strbuf_append(out, text.ptr + done, begin - done);
            pome_strbuf_append(out, step->content.ptr, step->content.len);
            done = end;
        }
    }
    pome_strbuf_append(out, text.ptr + done, text.len - done);
    pome_regex_scan_reset(&scan);
    return status;
}

static pome_str strip(pome_str text, bool left, bool right)
{
    uint32_t cp;
    while (left && text.len > 0) {
        int n = pome_utf8_decode(text.ptr, text.len, &cp, NULL);
        if (n < 0 || !pome_cp_is_space(cp))
            break;
        text.ptr += n;
        text.len -= (size_t)n;
    }
    size_t start;
    while (right && text.len > 0 && pome_cp_is_space(pome_utf8_last(text.ptr, text.len, &start)))
        text.len = start;
    return text;
}

static void map_characters(pome_normalizer_kind kind, pome_str text, pome_strbuf *out)
{
    for (size_t i = 0; i < text.len;) {
        uint32_t cp;
        int n = pome_utf8_decode(text.ptr + i, text.len - i, &cp, NULL);
        if (n < 0)
            break;
        i += (size_t)n;
        if (kind == POME_NORMALIZE_LOWERCASE)
            pome_cp_append_lower(out, cp);
        else if (!pome_cp_is_mark(cp))
            pome_strbuf_put_cp(out, cp);
    }
}

static pome_status apply(const pome_normalizer *step, pome_str text, bool continues, pome_strbuf *out, pome_error *err)
{
    switch (step->kind) {
    case POME_NORMALIZE_NFC:
        return unicode_form(text, UTF8PROC_COMPOSE, out, err);
    case POME_NORMALIZE_NFD:
        return unicode_form(text, UTF8PROC_DECOMPOSE, out, err);
    case POME_NORMALIZE_NFKC:
        return unicode_form(text, UTF8PROC_COMPOSE | UTF8PROC_COMPAT, out, err);
    case POME_NORMALIZE_NFKD:
        return unicode_form(text, UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT, out, err);
    case POME_NORMALIZE_PREPEND:
        if (text.len > 0 && !continues)
            pome_strbuf_append(out, step->content.ptr, step->content.len);
        pome_strbuf_append(out, text.ptr, text.len);
        return POME_OK;
    case POME_NORMALIZE_REPLACE:
        return replace(step, text, out, err);
    case POME_NORMALIZE_STRIP:
        text = strip(text, step->left, step->right);
        pome_strbuf_append(out, text.ptr, text.len);
        return POME_OK;
    case POME_NORMALIZE_LOWERCASE:
    case POME_NORMALIZE_STRIP_ACCENTS:
        map_characters(step->kind, text, out);
        return POME_OK;
    case POME_NORMALIZE_BYTE_LEVEL:
        pome_byte_level_append(out, text.ptr, text.len);
        return POME_OK;
    }
    return POME_OK;
}

/* Replacements that insert what the next ones replace would multiply a text until memory is full. */
enum { GROWTH_MAX = 64, ROOM_BYTES = 1 << 20 };

static pome_status check_room(const pome_strbuf *b, size_t text_len, pome_error *err)
{
    if (b->failed)
        return pome_fail(err, POME_ERR_LIMIT, "normalization makes more than %zu bytes of %zu, or memory is short", b->limit,
                         text_len);
    return POME_OK;
}

/* Runs all steps; the result lies in a[0] or a[1], *which says where. */
static pome_status run_steps(const pome_normalizer *steps, size_t n_steps, pome_str text, bool continues,
                             pome_strbuf a[2], int *which, pome_error *err)
{
    int now = 0;
    a[0].len = 0;
    a[0].limit = a[1].limit = text.len > SIZE_MAX / GROWTH_MAX - ROOM_BYTES ? SIZE_MAX : GROWTH_MAX * text.len + ROOM_BYTES;
    pome_strbuf_append(&a[0], text.ptr, text.len);
    POME_TRY(check_room(&a[0], text.len, err));
    for (size_t i = 0; i < n_steps; i++) {
        a[!now].len = 0;
        POME_TRY(apply(&steps[i], pome_strbuf_view(&a[now]), continues, &a[!now], err));
        now = !now;
        POME_TRY(check_room(&a[now], text.len, err));
    }
    *which = now;
    return POME_OK;
}

pome_status pome_normalize_text(const pome_normalizer *steps, size_t n_steps, pome_str text, pome_strbuf *out,
                                pome_error *err)
{
    pome_strbuf a[2] = {{0}, {0}};
    int which = 0;
    pome_status status = run_steps(steps, n_steps, text, false, a, &which, err);
    if (status == POME_OK)
        pome_strbuf_append(out, a[which].data, a[which].len);
    pome_strbuf_reset(&a[0]);
    pome_strbuf_reset(&a[1]);
    return status;
}

pome_status pome_normalize_pieces(const pome_normalizer *steps, size_t n_steps, pome_pieces *in, pome_pieces *out,
                                  pome_error *err)
{
    bool byte_level = false;
    for (size_t i = 0; i < n_steps; i++)
        byte_level |= steps[i].kind == POME_NORMALIZE_BYTE_LEVEL;
    pome_strbuf a[2] = {{0}, {0}};
    pome_status status = POME_OK;
    pome_pieces_clear(out);
    for (size_t i = 0; i < in->n && status == POME_OK; i++) {
        pome_piece like = in->items[i];
        pome_str text = {pome_pieces_text(in, i), like.len};
        int which = 0;
        if (like.id >= 0 || (like.is_raw && !byte_level)) {
            pome_pieces_add(out, text.ptr, text.len, &like, true);
            continue;
        }
        if (like.is_raw) {
            a[0].len = 0;
            pome_byte_level_append(&a[0], text.ptr, text.len);
            like.is_raw = false;
            if (a[0].failed)
                status = pome_fail_nomem(err, text.len, "normalization");
        } else {
            status = run_steps(steps, n_steps, text, like.continues, a, &which, err);
        }
        if (status == POME_OK)
            pome_pieces_add(out, a[which].data, a[which].len, &like, true);
    }
    pome_strbuf_reset(&a[0]);
    pome_strbuf_reset(&a[1]);
    return status;
}
