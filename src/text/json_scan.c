#include "text/json_scan.h"

#include <string.h>

#include "text/utf8.h"

char pome_json_scan_peek(pome_json_scan *s)
{
    while (s->pos < s->text.len && (s->text.ptr[s->pos] == ' ' || s->text.ptr[s->pos] == '\n' ||
                                    s->text.ptr[s->pos] == '\r' || s->text.ptr[s->pos] == '\t'))
        s->pos++;
    return s->pos < s->text.len ? s->text.ptr[s->pos] : '\0';
}

bool pome_json_scan_punctuation(pome_json_scan *s, char c)
{
    if (pome_json_scan_peek(s) != c)
        return false;
    s->pos++;
    return true;
}

static bool hex4(pome_json_scan *s, uint32_t *out)
{
    *out = 0;
    if (s->text.len - s->pos < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        char c = s->text.ptr[s->pos++];
        uint32_t digit = c >= '0' && c <= '9'   ? (uint32_t)(c - '0')
                         : c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a' + 10)
                         : c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A' + 10)
                                                : 16;
        if (digit == 16)
            return false;
        *out = *out << 4 | digit;
    }
    return true;
}

static bool unicode_escape(pome_json_scan *s)
{
    uint32_t cp, low;
    if (!hex4(s, &cp) || (cp >= 0xdc00 && cp < 0xe000))
        return false;
    if (cp >= 0xd800 && cp < 0xdc00) {
        if (s->text.len - s->pos < 2 || s->text.ptr[s->pos] != '\\' || s->text.ptr[s->pos + 1] != 'u')
            return false;
        s->pos += 2;
        if (!hex4(s, &low) || low < 0xdc00 || low >= 0xe000)
            return false;
        cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
    }
    pome_strbuf_put_cp(&s->scratch, cp);
    return true;
}

static bool escape(pome_json_scan *s)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char c = s->pos < s->text.len ? s->text.ptr[s->pos++] : '\0';
    if (c == 'u')
        return unicode_escape(s);
    const char *at = c ? strchr(letters, c) : NULL;
    if (at)
        pome_strbuf_putc(&s->scratch, meanings[at - letters]);
    return at != NULL;
}

/* Where the next quote, backslash or control character is, from `pos` on; eight bytes at a time. */
static size_t next_special(const pome_json_scan *s, size_t pos)
{
    const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
    while (s->text.len - pos >= 8) {
        uint64_t eight;
        memcpy(&eight, s->text.ptr + pos, 8);
        /* (x - ones) & ~x has the high bit set of bytes that are 0, and maybe of some above the lowest of them. */
        uint64_t quote = eight ^ ones * '"', backslash = eight ^ ones * '\\';
        uint64_t found = ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) | ((eight - ones * 0x20) & ~eight);
        if (found & highs)
            return pos + pome_lowest_byte(found & highs);
        pos += 8;
    }
    while (pos < s->text.len && s->text.ptr[pos] != '"' && s->text.ptr[pos] != '\\' && (unsigned char)s->text.ptr[pos] >= 0x20)
        pos++;
    return pos;
}

bool pome_json_scan_string(pome_json_scan *s, pome_str *out)
{
    if (!pome_json_scan_punctuation(s, '"'))
        return false;
    size_t begin = s->pos, from = s->pos;
    bool plain = true;
    for (; (s->pos = next_special(s, s->pos)) < s->text.len; s->pos++) {
        char c = s->text.ptr[s->pos];
        if (c == '"')
            break;
        if ((unsigned char)c < 0x20)
            return false;
        if (c != '\\')
            continue;
        if (plain)
            s->scratch.len = 0;
        plain = false;
        pome_strbuf_append(&s->scratch, s->text.ptr + from, s->pos - from);
        s->pos++;
        if (!escape(s))
            return false;
        from = s->pos--;
    }
    if (s->pos >= s->text.len)
        return false;
    *out = (pome_str){s->text.ptr + begin, s->pos - begin};
    if (!plain) {
        pome_strbuf_append(&s->scratch, s->text.ptr + from, s->pos - from);
        *out = pome_strbuf_view(&s->scratch);
    }
    s->pos++;
    return !s->scratch.failed;
}

bool pome_json_scan_int(pome_json_scan *s, int64_t *out)
{
    bool negative = pome_json_scan_punctuation(s, '-');
    size_t start = s->pos;
    int64_t v = 0;
    for (; s->pos < s->text.len && s->text.ptr[s->pos] >= '0' && s->text.ptr[s->pos] <= '9'; s->pos++) {
        if (s->pos - start >= 18)
            return false;
        v = v * 10 + (s->text.ptr[s->pos] - '0');
    }
    char next = s->pos < s->text.len ? s->text.ptr[s->pos] : '\0';
    if (s->pos == start || next == '.' || next == 'e' || next == 'E')
        return false;
    *out = negative ? -v : v;
    return true;
}

static bool ends_word(char c)
{
    return c <= ' ' ? c == ' ' || c == '\n' || c == '\r' || c == '\t' || c == '\0'
                    : c == ',' || c == ':' || c == ']' || c == '}' || c == '[' || c == '{' || c == '"';
}

bool pome_json_scan_skip(pome_json_scan *s)
{
    size_t depth = 0;
    pome_str ignored;
    do {
        char c = pome_json_scan_peek(s);
        if (c == '\0') {
            return false;
        } else if (c == '"') {
            if (!pome_json_scan_string(s, &ignored))
                return false;
        } else if (c == '{' || c == '[') {
            depth++;
            s->pos++;
        } else if (c == '}' || c == ']') {
            if (depth == 0)
                return false;
            depth--;
            s->pos++;
        } else if (c == ',' || c == ':') {
            if (depth == 0)
                return false;
            s->pos++;
        } else {
            while (s->pos < s->text.len && !ends_word(s->text.ptr[s->pos]))
                s->pos++;
        }
    } while (depth > 0);
    return true;
}
