/* As jinja2 lexes with trim_blocks and lstrip_blocks: the newline after a block or comment is dropped, and the
 * blanks between the start of the line and a block or comment; "-" strips all white space on its side, "+" keeps. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/jinja_ast.h"
#include "text/utf8.h"

#define TOKENS_MAX (1u << 20)
#define BRACES_MAX 256

typedef struct lexer {
    pome_arena *arena;
    pome_str in;
    size_t pos;
    int line;
    bool line_starting; /* the last token ended with a newline */
    pome_jinja_token *tokens;
    size_t n, cap;
    pome_error *err;
} lexer;

static pome_status fail_at_line(const lexer *x, const char *what)
{
    return pome_fail_at(x->err, POME_ERR_FORMAT, x->pos, "line %d: %s", x->line, what);
}

static pome_status add(lexer *x, pome_jinja_token token)
{
    if (x->n == x->cap) {
        size_t cap = x->cap ? x->cap * 2 : 256;
        pome_jinja_token *tokens = cap > TOKENS_MAX ? NULL : POME_NEW_ARRAY(x->arena, pome_jinja_token, cap);
        if (!tokens)
            return pome_fail(x->err, POME_ERR_LIMIT, "line %d: the template is too long for the memory it may use", x->line);
        if (x->n > 0)
            memcpy(tokens, x->tokens, x->n * sizeof *tokens);
        x->tokens = tokens;
        x->cap = cap;
    }
    x->tokens[x->n++] = token;
    return POME_OK;
}

static pome_status add_text(lexer *x, pome_jinja_token_kind kind, const char *s, size_t len)
{
    return add(x, (pome_jinja_token){.kind = kind, .line = x->line, .text = {s, len}});
}

static char at(const lexer *x, size_t ahead)
{
    return x->in.len - x->pos > ahead ? x->in.ptr[x->pos + ahead] : '\0';
}

/* Moves on, counting lines. */
static void skip(lexer *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x->line += x->in.ptr[x->pos + i] == '\n';
    x->pos += n;
}

static size_t space_len(pome_str s, size_t i)
{
    uint32_t cp;
    int n = i < s.len ? pome_utf8_decode(s.ptr + i, s.len - i, &cp, NULL) : -1;
    return n > 0 && (pome_cp_is_space(cp) || (cp >= 0x1c && cp <= 0x1f)) ? (size_t)n : 0;
}

static void skip_space(lexer *x)
{
    for (size_t n; (n = space_len(x->in, x->pos)) > 0;)
        skip(x, n);
}

/* After the end of a block or comment: "-" strips, "+" keeps, otherwise one newline goes. */
static void after_block(lexer *x, char sign)
{
    size_t start = x->pos;
    if (sign == '-')
        skip_space(x);
    else if (sign != '+' && at(x, 0) == '\n')
        skip(x, 1);
    x->line_starting = x->pos > start && x->in.ptr[x->pos - 1] == '\n';
}

/* The text before a tag, less what the tag strips from it. */
static pome_status add_data(lexer *x, size_t begin, size_t end, char sign, bool is_variable)
{
    pome_str text = {x->in.ptr + begin, end - begin};
    if (sign == '-') {
        size_t start;
        while (text.len > 0) {
            uint32_t cp = pome_utf8_last(text.ptr, text.len, &start);
            if (!pome_cp_is_space(cp) && !(cp >= 0x1c && cp <= 0x1f))
                break;
            text.len = start;
        }
    } else if (sign != '+' && !is_variable) {
        size_t line_start = text.len;
        while (line_start > 0 && text.ptr[line_start - 1] != '\n')
            line_start--;
        bool blank = line_start > 0 || x->line_starting;
        for (size_t i = line_start, n; blank && i < text.len; i += n)
            blank = (n = space_len(text, i)) > 0;
        if (blank)
            text.len = line_start;
    }
    return text.len > 0 ? add_text(x, POME_JT_DATA, text.ptr, text.len) : POME_OK;
}

static bool starts(const lexer *x, size_t pos, const char *z)
{
    size_t n = strlen(z);
    return x->in.len - pos >= n && memcmp(x->in.ptr + pos, z, n) == 0;
}

static pome_status comment(lexer *x)
{
    const char *end = memmem(x->in.ptr + x->pos + 2, x->in.len - x->pos - 2, "#}", 2);
    if (!end)
        return fail_at_line(x, "a comment without an end");
    size_t close = (size_t)(end - x->in.ptr);
    char sign = close > x->pos + 2 ? end[-1] : ' ';
    skip(x, close + 2 - x->pos);
    after_block(x, sign);
    return POME_OK;
}

/* "{%- name -%}" at pos: its length with the brackets, 0 if there is none. */
static size_t bare_tag(const lexer *x, size_t pos, const char *name, char *begin_sign, char *end_sign)
{
    size_t i = pos + 2, n = strlen(name);
    if (!starts(x, pos, "{%"))
        return 0;
    *begin_sign = i < x->in.len && (x->in.ptr[i] == '-' || x->in.ptr[i] == '+') ? x->in.ptr[i++] : ' ';
    for (size_t k; (k = space_len(x->in, i)) > 0;)
        i += k;
    if (!starts(x, i, name))
        return 0;
    i += n;
    for (size_t k; (k = space_len(x->in, i)) > 0;)
        i += k;
    *end_sign = i < x->in.len && (x->in.ptr[i] == '-' || x->in.ptr[i] == '+') ? x->in.ptr[i++] : ' ';
    return starts(x, i, "%}") ? i + 2 - pos : 0;
}

static pome_status raw_block(lexer *x, size_t tag_len, char end_sign)
{
    skip(x, tag_len);
    if (end_sign == '-')
        skip_space(x);
    x->line_starting = false; /* the opening tag takes no newline with it */
    size_t begin = x->pos;
    for (size_t i = x->pos; i < x->in.len; i++) {
        char begin_sign, sign;
        size_t n = bare_tag(x, i, "endraw", &begin_sign, &sign);
        if (n == 0)
            continue;
        POME_TRY(add_data(x, begin, i, begin_sign, false));
        skip(x, i + n - x->pos);
        after_block(x, sign);
        return POME_OK;
    }
    if (begin == x->in.len)
        return POME_OK;
    return fail_at_line(x, "a raw block without endraw");
}

static int hex_value(const char *s, size_t n, uint32_t *out)
{
    *out = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isxdigit((unsigned char)s[i]))
            return -1;
        int c = tolower((unsigned char)s[i]);
        *out = *out << 4 | (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return 0;
}

/* One escape of a string literal, as Python's; returns the bytes read from s, 0 if it is malformed. */
static size_t string_escape(pome_str s, pome_strbuf *out)
{
    static const char letters[] = "ntrfvab\\'\"", meanings[] = "\n\t\r\f\v\a\b\\'\"";
    const char *letter = s.ptr[1] ? strchr(letters, s.ptr[1]) : NULL;
    if (letter) {
        pome_strbuf_putc(out, meanings[letter - letters]);
        return 2;
    }
    if (s.ptr[1] == '\n')
        return 2;
    if (s.ptr[1] == 'x' || s.ptr[1] == 'u' || s.ptr[1] == 'U') {
        size_t n = s.ptr[1] == 'x' ? 2 : s.ptr[1] == 'u' ? 4 : 8;
        uint32_t cp;
        if (s.len < 2 + n || hex_value(s.ptr + 2, n, &cp) != 0)
            return 0;
        pome_strbuf_put_cp(out, cp);
        return 2 + n;
    }
    if (s.ptr[1] >= '0' && s.ptr[1] <= '7') {
        uint32_t cp = 0;
        size_t n = 0;
        for (; n < 3 && 1 + n < s.len && s.ptr[1 + n] >= '0' && s.ptr[1 + n] <= '7'; n++)
            cp = cp * 8 + (uint32_t)(s.ptr[1 + n] - '0');
        pome_strbuf_put_cp(out, cp);
        return 1 + n;
    }
    if (s.ptr[1] == 'N')
        return 0;
    pome_strbuf_append(out, s.ptr, 2);
    return 2;
}

static pome_status string_literal(lexer *x)
{
    char quote = at(x, 0);
    size_t end = x->pos + 1;
    bool plain = true;
    while (end < x->in.len && x->in.ptr[end] != quote) {
        plain &= x->in.ptr[end] != '\\';
        end += x->in.ptr[end] == '\\' ? 2 : 1;
    }
    if (end >= x->in.len)
        return fail_at_line(x, "a string without an end");
    pome_str body = {x->in.ptr + x->pos + 1, end - x->pos - 1};
    pome_status status = POME_OK;
    if (plain) {
        status = add_text(x, POME_JT_STRING, body.ptr, body.len);
    } else {
        pome_strbuf b = {0};
        for (size_t i = 0; i < body.len && status == POME_OK;) {
            size_t n = 1;
            if (body.ptr[i] != '\\')
                pome_strbuf_putc(&b, body.ptr[i]);
            else if ((n = string_escape((pome_str){body.ptr + i, body.len - i}, &b)) == 0)
                status = fail_at_line(x, "an escape in a string that is malformed or not supported");
            i += n;
        }
        char *copy = status == POME_OK && !b.failed ? pome_arena_strndup(x->arena, b.data ? b.data : "", b.len) : NULL;
        size_t len = b.len;
        pome_strbuf_reset(&b);
        POME_TRY(status);
        if (!copy)
            return pome_fail_nomem(x->err, body.len, "a template");
        status = add_text(x, POME_JT_STRING, copy, len);
    }
    skip(x, end + 1 - x->pos);
    return status;
}

static size_t digits(const lexer *x, size_t i, int base)
{
    size_t start = i;
    while (i < x->in.len) {
        char c = x->in.ptr[i];
        bool is_digit = base == 16 ? isxdigit((unsigned char)c) : c >= '0' && c < '0' + (base < 10 ? base : 10);
        if (!is_digit && !(c == '_' && i > start))
            break;
        i++;
    }
    return i;
}

static pome_status number(lexer *x)
{
    char buffer[128];
    size_t start = x->pos, end, n = 0;
    char second = (char)tolower((unsigned char)at(x, 1));
    int base = at(x, 0) != '0' ? 10 : second == 'x' ? 16 : second == 'o' ? 8 : second == 'b' ? 2 : 10;
    bool is_float = false;
    end = digits(x, base == 10 ? start : start + 2, base);
    if (base == 10 && end + 1 < x->in.len && x->in.ptr[end] == '.' && isdigit((unsigned char)x->in.ptr[end + 1])) {
        is_float = true;
        end = digits(x, end + 1, 10);
    }
    if (base == 10 && end < x->in.len && (x->in.ptr[end] == 'e' || x->in.ptr[end] == 'E')) {
        size_t e = end + 1;
        e += e < x->in.len && (x->in.ptr[e] == '+' || x->in.ptr[e] == '-');
        if (e < x->in.len && isdigit((unsigned char)x->in.ptr[e])) {
            is_float = true;
            end = digits(x, e, 10);
        }
    }
    for (size_t i = base == 10 ? start : start + 2; i < end; i++) {
        if (n + 1 >= sizeof buffer)
            return fail_at_line(x, "a number that is too long");
        if (x->in.ptr[i] != '_')
            buffer[n++] = x->in.ptr[i];
    }
    buffer[n] = '\0';
    pome_jinja_token token = {.kind = is_float ? POME_JT_FLOAT : POME_JT_INTEGER, .line = x->line};
    if (n == 0)
        return fail_at_line(x, "a malformed number");
    if (is_float) {
        token.real = strtod(buffer, NULL);
    } else {
        unsigned long long v = strtoull(buffer, NULL, base);
        if (v > INT64_MAX || n > 64)
            return fail_at_line(x, "an integer that is too large");
        token.integer = (int64_t)v;
    }
    x->pos = end;
    return add(x, token);
}

static size_t name_len(const lexer *x)
{
    size_t i = x->pos;
    while (i < x->in.len) {
        uint32_t cp;
        int n = pome_utf8_decode(x->in.ptr + i, x->in.len - i, &cp, NULL);
        if (n < 0 || !(cp < 0x80 ? isalnum((int)cp) || cp == '_' : pome_cp_is_word(cp)))
            break;
        if (i == x->pos && cp < 0x80 && isdigit((int)cp))
            break;
        i += (size_t)n;
    }
    return i - x->pos;
}

static size_t operator_len(const lexer *x)
{
    static const char *const two[] = {"//", "**", "==", "!=", ">=", "<="};
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (starts(x, x->pos, two[i]))
            return 2;
    return at(x, 0) && strchr("+-/*%~[](){}<>=.:|,;", at(x, 0)) ? 1 : 0;
}

/* The inside of {{ }} or {% %}, with its end. */
static pome_status expression(lexer *x, bool is_variable)
{
    char braces[BRACES_MAX];
    size_t n_braces = 0;
    for (;;) {
        skip_space(x);
        if (x->pos >= x->in.len)
            return fail_at_line(x, is_variable ? "\"{{\" without \"}}\"" : "\"{%\" without \"%}\"");
        const char *close = is_variable ? "}}" : "%}";
        char sign = at(x, 0) == '-' || (at(x, 0) == '+' && !is_variable) ? at(x, 0) : ' ';
        if (n_braces == 0 && starts(x, x->pos + (sign != ' '), close)) {
            POME_TRY(add_text(x, is_variable ? POME_JT_VARIABLE_END : POME_JT_BLOCK_END, x->in.ptr + x->pos, 2));
            skip(x, 2 + (sign != ' '));
            if (!is_variable)
                after_block(x, sign);
            else if (sign == '-')
                after_block(x, '-');
            else
                x->line_starting = false;
            return POME_OK;
        }
        char c = at(x, 0);
        size_t n;
        if (c == '"' || c == '\'') {
            POME_TRY(string_literal(x));
        } else if (isdigit((unsigned char)c)) {
            POME_TRY(number(x));
        } else if ((n = name_len(x)) > 0) {
            POME_TRY(add_text(x, POME_JT_NAME, x->in.ptr + x->pos, n));
            x->pos += n;
        } else if ((n = operator_len(x)) > 0) {
            if (strchr("([{", c)) {
                if (n_braces == BRACES_MAX)
                    return fail_at_line(x, "too many open brackets");
                braces[n_braces++] = c == '(' ? ')' : c == '[' ? ']' : '}';
            } else if (strchr(")]}", c) && (n_braces == 0 || braces[--n_braces] != c)) {
                return fail_at_line(x, "a closing bracket that does not match");
            }
            POME_TRY(add_text(x, POME_JT_OPERATOR, x->in.ptr + x->pos, n));
            x->pos += n;
        } else {
            return fail_at_line(x, "a character that has no meaning here");
        }
    }
}

/* The next "{{", "{%" or "{#" from pos on, or the end. */
static size_t find_tag(const lexer *x)
{
    for (size_t i = x->pos; i + 1 < x->in.len; i++)
        if (x->in.ptr[i] == '{' && strchr("{%#", x->in.ptr[i + 1]) && x->in.ptr[i + 1])
            return i;
    return x->in.len;
}

static pome_status tag(lexer *x)
{
    size_t begin = x->pos, open = find_tag(x);
    if (open == x->in.len) {
        if (open > begin)
            POME_TRY(add_text(x, POME_JT_DATA, x->in.ptr + begin, open - begin));
        skip(x, open - begin);
        return POME_OK;
    }
    char kind = x->in.ptr[open + 1], sign = open + 2 < x->in.len ? x->in.ptr[open + 2] : ' ', begin_sign, end_sign;
    if (sign != '-' && sign != '+')
        sign = ' ';
    POME_TRY(add_data(x, begin, open, sign, kind == '{'));
    skip(x, open - begin);
    if (kind == '#')
        return comment(x);
    size_t raw = bare_tag(x, open, "raw", &begin_sign, &end_sign);
    if (kind == '%' && raw > 0)
        return raw_block(x, raw, end_sign);
    POME_TRY(add_text(x, kind == '{' ? POME_JT_VARIABLE_BEGIN : POME_JT_BLOCK_BEGIN, x->in.ptr + x->pos, 2));
    skip(x, 2 + (sign != ' '));
    return expression(x, kind == '{');
}

pome_status pome_jinja_lex(pome_arena *arena, pome_str source, pome_jinja_token **out, pome_error *err)
{
    lexer x = {.arena = arena, .in = source, .line = 1, .line_starting = true, .err = err};
    while (x.pos < x.in.len)
        POME_TRY(tag(&x));
    POME_TRY(add_text(&x, POME_JT_END, "", 0));
    *out = x.tokens;
    return POME_OK;
}
