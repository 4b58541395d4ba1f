#include "formats/mil_lexer.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

/* ---- messages ---- */

typedef struct place {
    size_t line, column; /* from 1; columns count characters */
} place;

static place place_of(pome_bytes source, size_t at)
{
    place p = {1, 1};
    for (size_t i = 0; i < at && i < source.len; i++) {
        if (source.ptr[i] == '\n') {
            p.line++;
            p.column = 1;
        } else if ((source.ptr[i] & 0xC0u) != 0x80u) {
            p.column++;
        }
    }
    return p;
}

pome_status pome_mil_fail(const pome_mil_lexer *lexer, size_t at, pome_error *err, const char *fmt, ...)
{
    char text[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    place p = place_of(lexer->source, at);
    return pome_fail_at(err, POME_ERR_FORMAT, at, "line %zu, column %zu: %s", p.line, p.column, text);
}

/* As many bytes as a message needs, cut before a character. */
static int shown(pome_str s)
{
    size_t n = s.len < 60 ? s.len : 60;
    while (n > 0 && n < s.len && ((unsigned char)s.ptr[n] & 0xC0u) == 0x80u)
        n--;
    return (int)n;
}

pome_status pome_mil_unexpected(const pome_mil_lexer *lexer, const char *wanted, pome_error *err)
{
    const pome_mil_token *t = &lexer->token;
    if (t->kind == POME_MIL_END)
        return pome_mil_fail(lexer, t->at, err, "the text ends (cut short?), wanted %s", wanted);
    if (t->kind == POME_MIL_STRING)
        return pome_mil_fail(lexer, t->at, err, "found the string \"%.*s\", wanted %s", shown(t->text), t->text.ptr,
                             wanted);
    return pome_mil_fail(lexer, t->at, err, "found %.*s, wanted %s", shown(t->text), t->text.ptr, wanted);
}

/* ---- tokens ---- */

static bool is_digit(uint8_t c)
{
    return c >= '0' && c <= '9';
}

static bool is_letter(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c >= 128;
}

static bool is_name_byte(uint8_t c)
{
    return is_letter(c) || is_digit(c) || (c && strchr("@$.:/#~", c));
}

static bool is_space(uint8_t c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static size_t end_of_name(pome_bytes s, size_t at)
{
    while (at < s.len && is_name_byte(s.ptr[at]))
        at++;
    return at;
}

/* A sign within a number follows its exponent's letter: p in hexadecimal numbers, else e. */
static size_t end_of_number(pome_bytes s, size_t at)
{
    if (s.ptr[at] == '-' || s.ptr[at] == '+')
        at++;
    bool is_hex = s.len - at > 1 && s.ptr[at] == '0' && (s.ptr[at + 1] | 32) == 'x';
    uint8_t exponent = is_hex ? 'p' : 'e', before = 0;
    for (; at < s.len; before = s.ptr[at++]) {
        uint8_t c = s.ptr[at];
        bool is_sign = (c == '-' || c == '+') && (before | 32) == exponent;
        if (!is_sign && !is_letter(c) && !is_digit(c) && c != '.')
            break;
    }
    return at;
}

/* `at` is behind the opening quote. SIZE_MAX: there is no closing one. */
static size_t end_of_string(pome_bytes s, size_t at)
{
    for (; at < s.len; at++) {
        if (s.ptr[at] == '"')
            return at;
        if (s.ptr[at] == '\\')
            at++;
    }
    return SIZE_MAX;
}

static void take(pome_mil_lexer *l, pome_mil_kind kind, size_t from, size_t to)
{
    l->token = (pome_mil_token){kind, {(const char *)l->source.ptr + from, to - from}, from};
    l->at = to;
}

pome_status pome_mil_lexer_next(pome_mil_lexer *l, pome_error *err)
{
    pome_bytes s = l->source;
    size_t at = l->at;
    if (at == 0 && s.len >= 3 && memcmp(s.ptr, "\xEF\xBB\xBF", 3) == 0) /* a mark that some editors put first */
        at = 3;
    for (;;) {
        while (at < s.len && is_space(s.ptr[at]))
            at++;
        if (s.len - at < 2 || s.ptr[at] != '/' || s.ptr[at + 1] != '/')
            break;
        while (at < s.len && s.ptr[at] != '\n')
            at++;
    }
    if (at == s.len) {
        take(l, POME_MIL_END, at, at);
        return POME_OK;
    }
    uint8_t c = s.ptr[at], next = at + 1 < s.len ? s.ptr[at + 1] : 0;
    if (is_letter(c)) {
        take(l, POME_MIL_NAME, at, end_of_name(s, at));
    } else if (c == '-' && next == '>') {
        take(l, POME_MIL_ARROW, at, at + 2);
    } else if (is_digit(c) || ((c == '-' || c == '+' || c == '.') && (is_digit(next) || is_letter(next) || next == '.'))) {
        take(l, POME_MIL_NUMBER, at, end_of_number(s, at));
    } else if (c == '"') {
        size_t end = end_of_string(s, at + 1);
        if (end == SIZE_MAX)
            return pome_mil_fail(l, at, err, "the string that begins here has no end (text cut short?)");
        take(l, POME_MIL_STRING, at + 1, end);
        l->token.at = at;
        l->at = end + 1;
    } else if (strchr("()[]{}<>,;=?*", c)) {
        take(l, POME_MIL_MARK, at, at + 1);
    } else {
        return pome_mil_fail(l, at, err, c >= ' ' && c < 127 ? "character %c has no meaning here" : "byte 0x%02x has no meaning here", c);
    }
    return POME_OK;
}

/* The position of the first byte that is no text; the length if all is. */
static size_t find_damage(pome_bytes s)
{
    size_t i = 0;
    while (i < s.len) {
        utf8proc_int32_t cp;
        if (s.ptr[i] - 1u < 127u) {
            i++;
            continue;
        }
        utf8proc_ssize_t n = utf8proc_iterate(s.ptr + i, (utf8proc_ssize_t)(s.len - i), &cp);
        if (n < 1 || cp == 0)
            return i;
        i += (size_t)n;
    }
    return i;
}

pome_status pome_mil_lexer_start(pome_mil_lexer *out, pome_bytes source, pome_error *err)
{
    pome_mil_lexer l = {.source = source};
    size_t damage = find_damage(source);
    if (damage < source.len)
        return pome_mil_fail(&l, damage, err, "byte 0x%02x is no UTF-8 text", source.ptr[damage]);
    POME_TRY(pome_mil_lexer_next(&l, err));
    *out = l;
    return POME_OK;
}

/* ---- numbers ---- */

bool pome_mil_integer(pome_str text, bool *is_negative, uint64_t *magnitude)
{
    size_t i = text.len && (text.ptr[0] == '-' || text.ptr[0] == '+') ? 1 : 0;
    uint64_t v = 0;
    bool negative = i && text.ptr[0] == '-';
    if (i == text.len)
        return false;
    for (; i < text.len; i++) {
        if (!is_digit((uint8_t)text.ptr[i]))
            return false;
        uint64_t digit = (uint64_t)(text.ptr[i] - '0');
        if (v > (UINT64_MAX - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *is_negative = negative;
    *magnitude = v;
    return true;
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 32);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
}

/* Reads digits of a base into 64 bits; those that do not fit shift the exponent, and what is lost in them sets the
 * lowest bit (hexadecimal: rounding stays right). Returns how many were read. */
static size_t read_digits(const char **p, const char *end, int base, uint64_t *mantissa, int64_t *exponent)
{
    const char *point = NULL;
    size_t n = 0;
    const uint64_t full = (UINT64_MAX - 15) / 16;
    for (; *p < end; ++*p) {
        if (**p == '.') {
            if (point)
                break;
            point = *p;
            continue;
        }
        int d = digit_of(**p);
        if (d >= base)
            break;
        n++;
        if (*mantissa <= full) {
            *mantissa = *mantissa * (uint64_t)base + (uint64_t)d;
            *exponent -= point != NULL;
        } else {
            *mantissa |= d != 0;
            *exponent += point == NULL;
        }
    }
    return n;
}

/* "+12" behind p or e; false: none. Cut where everything is zero or infinity. */
static bool read_exponent(const char **p, const char *end, int64_t *out)
{
    bool negative = *p < end && **p == '-';
    int64_t v = 0;
    *p += *p < end && (**p == '-' || **p == '+');
    const char *start = *p;
    for (; *p < end && is_digit((uint8_t)**p); ++*p)
        v = v < 1000000 ? v * 10 + (**p - '0') : v;
    *out += negative ? -v : v;
    return *p > start;
}

static int clamp(int64_t v)
{
    return (int)(v < -100000 ? -100000 : v > 100000 ? 100000 : v);
}

/* m * 10^e. Long double has 64 bits where it matters; powers beyond 10^27 make the last place uncertain there, which
 * decimal fractions, that no compiler writes, must bear. */
static double decimal(uint64_t m, int64_t e)
{
    return m ? (double)((long double)m * powl(10.0L, (long double)clamp(e))) : 0;
}

static bool is_word(const char *p, const char *end, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(end - p) != n)
        return false;
    for (size_t i = 0; i < n; i++)
        if ((p[i] | 32) != word[i])
            return false;
    return true;
}

bool pome_mil_float(pome_str text, double *out)
{
    const char *p = text.ptr, *end = text.ptr + text.len;
    uint64_t mantissa = 0;
    int64_t exponent = 0;
    if (p == end)
        return false;
    bool negative = *p == '-';
    p += *p == '-' || *p == '+';
    double v;
    if (is_word(p, end, "inf") || is_word(p, end, "infinity")) {
        v = (double)INFINITY;
    } else if (is_word(p, end, "nan")) {
        v = (double)NAN;
    } else if (end - p > 2 && p[0] == '0' && (p[1] | 32) == 'x') {
        p += 2;
        if (!read_digits(&p, end, 16, &mantissa, &exponent))
            return false;
        exponent *= 4;
        if (p < end && ((*p++ | 32) != 'p' || !read_exponent(&p, end, &exponent)))
            return false;
        if (p != end)
            return false;
        v = ldexp((double)mantissa, clamp(exponent));
    } else {
        if (!read_digits(&p, end, 10, &mantissa, &exponent))
            return false;
        if (p < end && ((*p++ | 32) != 'e' || !read_exponent(&p, end, &exponent)))
            return false;
        if (p != end)
            return false;
        v = decimal(mantissa, exponent);
    }
    *out = negative ? -v : v;
    return true;
}
