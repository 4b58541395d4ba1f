/* Oniguruma's Ruby syntax, rewritten construct by construct for PCRE2. Where both read a construct alike it is
 * copied; where they differ (\s, \w, \h, \v, \b, property names, POSIX brackets, {,n}, {n}+, (?m), class set
 * operations) an equal is written; what has no equal here is refused by name. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <ctype.h>
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "text/regex.h"
#include "text/utf8.h"

#define DEPTH_MAX 100
#define SPACE_CLASS "\\p{White_Space}"
#define WORD_CLASS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
/* Outside a class Oniguruma's \w also has the superscripts and fractions of Latin-1. */
#define BARE_WORD_CLASS WORD_CLASS "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define WORD "[" BARE_WORD_CLASS "]"
#define ANY_CLASS "[\\x{0}-\\x{10ffff}]"

typedef struct translator {
    const char *in;
    size_t len, pos;
    pome_strbuf *out;
    pome_error *err;
    int depth;
} translator;

static pome_status unsupported(const translator *t, const char *what)
{
    return pome_fail(t->err, POME_ERR_UNSUPPORTED, "regular expression \"%.*s\": %s at byte %zu is not supported",
                     (int)(t->len < 200 ? t->len : 200), t->in, what, t->pos);
}

static pome_status malformed(const translator *t, const char *what)
{
    return pome_fail(t->err, POME_ERR_FORMAT, "regular expression \"%.*s\": %s at byte %zu",
                     (int)(t->len < 200 ? t->len : 200), t->in, what, t->pos);
}

static int peek(const translator *t, size_t ahead)
{
    return t->len - t->pos > ahead ? (unsigned char)t->in[t->pos + ahead] : -1;
}

void pome_regex_append_literal(pome_strbuf *out, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (ispunct((unsigned char)text[i]) && (unsigned char)text[i] < 0x80)
            pome_strbuf_putc(out, '\\');
        pome_strbuf_putc(out, text[i]);
    }
}

/* Names that PCRE2 does not know, or knows otherwise: content of a class. */
static const struct {
    const char *name, *content;
} property_names[] = {
    {"letter", "\\p{L}"},
    {"uppercaseletter", "\\p{Lu}"},
    {"lowercaseletter", "\\p{Ll}"},
    {"titlecaseletter", "\\p{Lt}"},
    {"modifierletter", "\\p{Lm}"},
    {"otherletter", "\\p{Lo}"},
    {"casedletter", "\\p{L&}"},
    {"lc", "\\p{L&}"},
    {"mark", "\\p{M}"},
    {"combiningmark", "\\p{M}"},
    {"nonspacingmark", "\\p{Mn}"},
    {"spacingmark", "\\p{Mc}"},
    {"enclosingmark", "\\p{Me}"},
    {"number", "\\p{N}"},
    {"decimalnumber", "\\p{Nd}"},
    {"letternumber", "\\p{Nl}"},
    {"othernumber", "\\p{No}"},
    {"punctuation", "\\p{P}"},
    {"connectorpunctuation", "\\p{Pc}"},
    {"dashpunctuation", "\\p{Pd}"},
    {"openpunctuation", "\\p{Ps}"},
    {"closepunctuation", "\\p{Pe}"},
    {"initialpunctuation", "\\p{Pi}"},
    {"finalpunctuation", "\\p{Pf}"},
    {"otherpunctuation", "\\p{Po}"},
    {"symbol", "\\p{S}"},
    {"mathsymbol", "\\p{Sm}"},
    {"currencysymbol", "\\p{Sc}"},
    {"modifiersymbol", "\\p{Sk}"},
    {"othersymbol", "\\p{So}"},
    {"separator", "\\p{Z}"},
    {"spaceseparator", "\\p{Zs}"},
    {"lineseparator", "\\p{Zl}"},
    {"paragraphseparator", "\\p{Zp}"},
    {"other", "\\p{C}"},
    {"control", "\\p{Cc}"},
    {"format", "\\p{Cf}"},
    {"privateuse", "\\p{Co}"},
    {"unassigned", "\\p{Cn}"},
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"alpha", "\\p{Alphabetic}"},
    {"cntrl", "\\p{Cc}"},
    {"digit", "\\p{Nd}"},
    {"lower", "\\p{Lowercase}"},
    {"upper", "\\p{Uppercase}"},
    {"punct", "\\p{P}"}, /* [:punct:] has \p{S} as well */
    {"space", SPACE_CLASS},
    {"xdigit", "0-9A-Fa-f"},
    {"word", BARE_WORD_CLASS}, /* [:word:] is without the additions */
    {"any", "\\x{0}-\\x{10ffff}"},
};

static const char *find_property(const char *name, size_t len)
{
    char key[32];
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (name[i] == ' ' || name[i] == '_' || name[i] == '-')
            continue;
        if (n + 1 >= sizeof key)
            return NULL;
        key[n++] = (char)tolower((unsigned char)name[i]);
    }
    key[n] = '\0';
    for (size_t i = 0; i < sizeof property_names / sizeof *property_names; i++)
        if (strcmp(property_names[i].name, key) == 0)
            return property_names[i].content;
    return NULL;
}

static bool compiles(const char *pattern)
{
    int code;
    PCRE2_SIZE at;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF, &code, &at, NULL);
    pcre2_code_free(re);
    return re != NULL;
}

/* \p{...}, \P{...}, \p{^...}; t->pos is at the p. `content` gets what stands inside a class; *negated whether the
 * complement of it is meant. */
static pome_status property(translator *t, char content[128], bool *negated)
{
    *negated = peek(t, 0) == 'P';
    if (peek(t, 1) != '{')
        return unsupported(t, "a property without braces");
    const char *start = t->in + t->pos + 2, *end = memchr(start, '}', t->len - t->pos - 2);
    if (!end)
        return malformed(t, "an unfinished property");
    if (start < end && *start == '^') {
        *negated = !*negated;
        start++;
    }
    size_t len = (size_t)(end - start);
    const char *known = find_property(start, len);
    if (known) {
        snprintf(content, 128, "%s", known);
    } else {
        if (len == 0 || len > 64)
            return unsupported(t, "this property");
        for (size_t i = 0; i < len; i++)
            if (!isalnum((unsigned char)start[i]) && start[i] != '_')
                return unsupported(t, "this property");
        /* A bare script name means Script_Extensions to PCRE2 and Script to Oniguruma. */
        snprintf(content, 128, "\\p{sc:%.*s}", (int)len, start);
        if (!compiles(content))
            snprintf(content, 128, "\\p{%.*s}", (int)len, start);
        if (!compiles(content))
            return unsupported(t, "this property");
    }
    t->pos = (size_t)(end - t->in) + 1;
    return POME_OK;
}

static bool is_single_item(const char *content) /* one \p{...} and nothing else */
{
    return strncmp(content, "\\p{", 3) == 0 && strchr(content, '}')[1] == '\0';
}

/* \xHH, \x{H...}, \uHHHH; t->pos is at the letter. Appends \x{...}. */
static pome_status code_point(translator *t)
{
    size_t digits_max = peek(t, 0) == 'u' ? 4 : 2, i = t->pos + 1;
    bool braced = peek(t, 0) == 'x' && peek(t, 1) == '{';
    if (braced) {
        digits_max = 8;
        i++;
    }
    uint32_t cp = 0;
    size_t n = 0;
    for (; i < t->len && n < digits_max && isxdigit((unsigned char)t->in[i]); i++, n++) {
        int c = tolower((unsigned char)t->in[i]);
        cp = cp << 4 | (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (n == 0 || (digits_max == 4 && n != 4) || (braced && (i >= t->len || t->in[i++] != '}')))
        return malformed(t, "a bad character code");
    if (cp > 0x10ffff || (digits_max == 2 && cp > 0x7f)) /* \xHH above 7F is a byte, not a character */
        return unsupported(t, "this character code");
    pome_strbuf_printf(t->out, "\\x{%x}", (unsigned)cp);
    t->pos = i;
    return POME_OK;
}

static pome_status character_class(translator *t);

/* An escape; t->pos is after the backslash. */
static pome_status escape(translator *t, bool in_class)
{
    int c = peek(t, 0);
    const char *text = NULL;
    switch (c) {
    case -1:
        return malformed(t, "a backslash without a character");
    case 's':
        text = SPACE_CLASS;
        break;
    case 'S':
        text = "\\P{White_Space}";
        break;
    case 'w':
        text = in_class ? WORD_CLASS : WORD;
        break;
    case 'h':
        text = in_class ? "0-9a-fA-F" : "[0-9a-fA-F]";
        break;
    case 'W':
        text = in_class ? NULL : "[^" BARE_WORD_CLASS "]";
        break;
    case 'H':
        text = in_class ? NULL : "[^0-9a-fA-F]";
        break;
    case 'v':
        text = "\\x0b";
        break;
    case 'b':
        text = in_class ? "\\x08" : "(?:(?<=" WORD ")(?!" WORD ")|(?<!" WORD ")(?=" WORD "))";
        break;
    case 'B':
        text = in_class ? NULL : "(?:(?<=" WORD ")(?=" WORD ")|(?<!" WORD ")(?!" WORD "))";
        break;
    case 'x':
    case 'u':
        return code_point(t);
    case 'p':
    case 'P': {
        char content[128];
        bool negated;
        POME_TRY(property(t, content, &negated));
        if (negated && is_single_item(content))
            pome_strbuf_printf(t->out, "\\P%s", content + 2);
        else if (!negated && (in_class || is_single_item(content)))
            pome_strbuf_puts(t->out, content);
        else if (in_class)
            return unsupported(t, "the complement of this property inside a class");
        else
            pome_strbuf_printf(t->out, "[%s%s]", negated ? "^" : "", content);
        return POME_OK;
    }
    case 'd': case 'D': case 'n': case 't': case 'r': case 'f': case 'a': case 'e': case '0':
        break;
    case 'A': case 'z': case 'Z': case 'G': case 'R': case 'X': case 'K': case 'N':
    case '1': case '2': case '3': case '4': case '5': case '6': case '7': case '8': case '9':
        if (in_class)
            return unsupported(t, "this escape inside a class");
        break;
    default:
        if (c < 0x80 && isalpha(c))
            return unsupported(t, "this escape");
        break;
    }
    if (!text && (c == 'W' || c == 'H' || c == 'B'))
        return unsupported(t, "this escape inside a class");
    if (text) {
        pome_strbuf_puts(t->out, text);
        t->pos++;
        return POME_OK;
    }
    size_t n = pome_utf8_len((char)c);
    if (n > t->len - t->pos)
        n = t->len - t->pos;
    pome_strbuf_putc(t->out, '\\');
    pome_strbuf_append(t->out, t->in + t->pos, n);
    t->pos += n;
    return POME_OK;
}

/* [:name:] and [:^name:]; *done false if there is none here. */
static pome_status posix_bracket(translator *t, bool *done)
{
    *done = false;
    const char *p = t->in + t->pos + 2, *end = t->in + t->len;
    const char *close = p;
    while (close < end && (isalpha((unsigned char)*close) || *close == '^'))
        close++;
    if (end - close < 2 || close[0] != ':' || close[1] != ']')
        return POME_OK;
    bool negated = p < close && *p == '^';
    pome_str name = {p + negated, (size_t)(close - p) - negated};
    const char *content = pome_str_is(name, "punct")  ? "\\p{P}\\p{S}"
                          : pome_str_is(name, "word") ? WORD_CLASS
                                                      : find_property(name.ptr, name.len);
    if (!content || (negated && !is_single_item(content)))
        return unsupported(t, "this POSIX bracket");
    if (negated)
        pome_strbuf_printf(t->out, "\\P%s", content + 2);
    else
        pome_strbuf_puts(t->out, content);
    t->pos = (size_t)(close - t->in) + 2;
    *done = true;
    return POME_OK;
}

/* One operand of && in a class: plain items into `flat`, classes inside it into `nested` as "|[...]|[...]". */
static pome_status class_operand(translator *t, pome_strbuf *flat, pome_strbuf *nested, bool first)
{
    pome_strbuf *outer = t->out;
    pome_status status = POME_OK;
    while (status == POME_OK) {
        int c = peek(t, 0);
        if (c < 0) {
            status = malformed(t, "an unfinished class");
        } else if ((c == ']' && !first) || (c == '&' && peek(t, 1) == '&')) {
            break;
        } else if (c == '[') {
            bool done = false;
            t->out = flat;
            if (peek(t, 1) == ':')
                status = posix_bracket(t, &done);
            if (status == POME_OK && !done) {
                t->out = nested;
                pome_strbuf_putc(nested, '|');
                status = character_class(t);
            }
        } else if (c == '\\') {
            t->out = flat;
            t->pos++;
            status = escape(t, true);
        } else {
            if (c == ']' || c == '^')
                pome_strbuf_putc(flat, '\\');
            pome_strbuf_putc(flat, (char)c);
            t->pos++;
        }
        first = false;
    }
    t->out = outer;
    return status;
}

static void put_operand(pome_strbuf *out, const pome_strbuf *flat, const pome_strbuf *nested)
{
    pome_strbuf_puts(out, "(?:");
    if (flat->len > 0) {
        pome_strbuf_putc(out, '[');
        pome_strbuf_append(out, flat->data, flat->len);
        pome_strbuf_putc(out, ']');
        pome_strbuf_append(out, nested->data, nested->len);
    } else if (nested->len > 0) {
        pome_strbuf_append(out, nested->data + 1, nested->len - 1);
    }
    pome_strbuf_putc(out, ')');
}

/* [ab&&c[d]] becomes (?=(?:[ab]))(?:[c]|[d]) in a group; a class without set operations stays one. */
static pome_status character_class(translator *t)
{
    if (++t->depth > DEPTH_MAX)
        return unsupported(t, "deep nesting");
    t->pos++;
    bool negated = peek(t, 0) == '^';
    t->pos += negated;
    pome_strbuf flat = {0}, nested = {0}, set = {0};
    bool is_set = false;
    pome_status status;
    for (bool first = true;; first = false) {
        pome_strbuf_reset(&flat);
        pome_strbuf_reset(&nested);
        status = class_operand(t, &flat, &nested, first);
        if (status != POME_OK)
            break;
        if (flat.len == 0 && nested.len == 0 && !flat.failed && !nested.failed) {
            status = unsupported(t, "an empty operand of a class");
            break;
        }
        if (peek(t, 0) == ']')
            break;
        t->pos += 2;
        is_set = true;
        pome_strbuf_puts(&set, "(?=");
        put_operand(&set, &flat, &nested);
        pome_strbuf_putc(&set, ')');
    }
    if (status == POME_OK) {
        t->pos++;
        if (!is_set && nested.len == 0) {
            pome_strbuf_puts(t->out, negated ? "[^" : "[");
            pome_strbuf_append(t->out, flat.data, flat.len);
            pome_strbuf_putc(t->out, ']');
        } else {
            put_operand(&set, &flat, &nested);
            pome_strbuf_puts(t->out, negated ? "(?:(?!" : "(?:");
            pome_strbuf_append(t->out, set.data, set.len);
            pome_strbuf_puts(t->out, negated ? ")" ANY_CLASS ")" : ")");
        }
        if (flat.failed || nested.failed || set.failed)
            t->out->failed = true;
    }
    pome_strbuf_reset(&flat);
    pome_strbuf_reset(&nested);
    pome_strbuf_reset(&set);
    t->depth--;
    return status;
}

/* "(" and what may follow it up to the body; t->pos is at the parenthesis. *opens false: a whole "(?i)" or comment. */
static pome_status group_head(translator *t, bool at_start, bool *opens)
{
    *opens = true;
    if (peek(t, 1) == '*')
        return unsupported(t, "a verb");
    if (peek(t, 1) != '?') {
        pome_strbuf_putc(t->out, '(');
        t->pos++;
        return POME_OK;
    }
    int c = peek(t, 2);
    if (c == '#') {
        while (t->pos < t->len && t->in[t->pos] != ')')
            t->pos++;
        if (t->pos == t->len)
            return malformed(t, "an unfinished comment");
        t->pos++;
        *opens = false;
        return POME_OK;
    }
    if (c == ':' || c == '=' || c == '!' || c == '>' || c == '<') {
        pome_strbuf_append(t->out, t->in + t->pos, 3);
        t->pos += 3;
        return POME_OK;
    }
    size_t i = t->pos + 2;
    while (i < t->len && (t->in[i] == 'i' || t->in[i] == 'm' || t->in[i] == 'x' || t->in[i] == 's' || t->in[i] == '-'))
        i++;
    if (i == t->pos + 2 || i >= t->len || (t->in[i] != ':' && t->in[i] != ')'))
        return unsupported(t, "this kind of group");
    *opens = t->in[i] == ':';
    if (!*opens && !at_start) /* Oniguruma puts the rest of the branch and its alternatives into the group */
        return unsupported(t, "an option in the middle of a group");
    pome_strbuf_puts(t->out, "(?");
    for (size_t k = t->pos + 2; k <= i; k++)
        pome_strbuf_putc(t->out, t->in[k] == 'm' ? 's' : t->in[k]); /* Ruby's m is "dot matches newline" */
    t->pos = i + 1;
    return POME_OK;
}

static void insert(pome_strbuf *out, size_t at, const char *text)
{
    size_t n = strlen(text);
    if (!pome_strbuf_reserve(out, n))
        return;
    memmove(out->data + at + n, out->data + at, out->len - at);
    memcpy(out->data + at, text, n);
    out->len += n;
}

/* {n}, {n,}, {,m}, {n,m} after the atom at `atom` of the output; anything else is a literal brace. */
static void interval(translator *t, size_t atom)
{
    size_t i = t->pos + 1, low = i;
    while (i < t->len && isdigit((unsigned char)t->in[i]))
        i++;
    size_t n_low = i - low, high = i, n_high = 0;
    bool comma = i < t->len && t->in[i] == ',';
    if (comma) {
        high = ++i;
        while (i < t->len && isdigit((unsigned char)t->in[i]))
            i++;
        n_high = i - high;
    }
    if (i >= t->len || t->in[i] != '}' || n_low + n_high == 0 || atom == SIZE_MAX) {
        pome_strbuf_puts(t->out, "\\{");
        t->pos++;
        return;
    }
    t->pos = i + 1;
    /* Not possessive and not lazy in Ruby: a repeat of the repeat. */
    bool wrap = peek(t, 0) == '+' || (peek(t, 0) == '?' && !comma);
    if (wrap)
        insert(t->out, atom, "(?:");
    pome_strbuf_printf(t->out, "{%.*s", n_low ? (int)n_low : 1, n_low ? t->in + low : "0");
    if (comma)
        pome_strbuf_printf(t->out, ",%.*s", (int)n_high, t->in + high);
    pome_strbuf_puts(t->out, wrap ? "})" : "}");
    if (!wrap && peek(t, 0) == '?') {
        pome_strbuf_putc(t->out, '?');
        t->pos++;
    }
}

pome_status pome_regex_translate(pome_strbuf *out, const char *pattern, size_t len, pome_error *err)
{
    translator t = {.in = pattern, .len = len, .out = out, .err = err};
    size_t starts[DEPTH_MAX]; /* where the groups now open begin in the output */
    size_t atom = SIZE_MAX;   /* where the last atom begins; SIZE_MAX: nothing to repeat */
    int n_open = 0;
    bool at_start = true; /* of a group or the pattern */
    if (!pome_utf8_is_valid(pattern, len))
        return malformed(&t, "text that is not UTF-8");
    while (t.pos < len) {
        char c = pattern[t.pos];
        size_t here = out->len;
        bool was_start = at_start;
        at_start = false;
        switch (c) {
        case '\\':
            t.pos++;
            POME_TRY(escape(&t, false));
            atom = here;
            break;
        case '[':
            POME_TRY(character_class(&t));
            atom = here;
            break;
        case '(': {
            bool opens;
            POME_TRY(group_head(&t, was_start, &opens));
            at_start = opens || was_start;
            if (opens && n_open == DEPTH_MAX)
                return unsupported(&t, "deep nesting");
            if (opens)
                starts[n_open++] = here;
            atom = SIZE_MAX;
            break;
        }
        case ')':
            if (n_open == 0)
                return malformed(&t, "an unmatched parenthesis");
            atom = starts[--n_open];
            pome_strbuf_putc(out, c);
            t.pos++;
            break;
        case '*':
        case '+':
        case '?':
            pome_strbuf_putc(out, c);
            t.pos++;
            if (peek(&t, 0) == '?' || peek(&t, 0) == '+') {
                pome_strbuf_putc(out, pattern[t.pos]);
                t.pos++;
            }
            break;
        case '{':
            interval(&t, atom);
            break;
        default: {
            size_t n = pome_utf8_len(c);
            pome_strbuf_append(out, pattern + t.pos, n);
            t.pos += n;
            atom = c == '|' || c == '^' || c == '$' ? SIZE_MAX : here;
            break;
        }
        }
    }
    if (out->failed)
        return pome_fail_nomem(err, len, "a regular expression");
    return POME_OK;
}
