/* The filters of jinja2 that work on single values; those that walk lists are in jinja_list_filters.c. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/jinja_filters.h"
#include "text/utf8.h"

static pome_status as_str(jrun *run, const pome_jv *v, pome_str *out)
{
    return pome_jv_to_str(run, v, out);
}

static pome_status filter_default(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    (void)run;
    bool use = v->type == POME_JV_UNDEFINED || (a[1] && pome_jv_truth(a[1]) && !pome_jv_truth(v));
    *out = !use ? *v : a[0] ? *a[0] : pome_jv_z("");
    return POME_OK;
}

static pome_status filter_length(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    (void)a;
    size_t n;
    POME_TRY(pome_jv_length(run, v, &n));
    *out = pome_jv_int((int64_t)n);
    return POME_OK;
}

static pome_status change_case(jrun *run, const pome_jv *v, pome_jinja_case kind, pome_jv *out)
{
    pome_str s;
    POME_TRY(as_str(run, v, &s));
    return pome_jinja_change_case(run, s, kind, out);
}

static pome_status filter_upper(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    (void)a;
    return change_case(run, v, POME_CASE_UPPER, out);
}

static pome_status filter_lower(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    (void)a;
    return change_case(run, v, POME_CASE_LOWER, out);
}

static pome_status filter_capitalize(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    (void)a;
    return change_case(run, v, POME_CASE_CAPITALIZE, out);
}

/* Words begin after white space, "-" and opening brackets. */
static pome_status filter_title(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    (void)a;
    pome_str s;
    pome_strbuf b = {.limit = run->output_limit};
    bool start = true;
    POME_TRY(as_str(run, v, &s));
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        int n = pome_utf8_decode(s.ptr + i, s.len - i, &cp, NULL);
        if (n < 0)
            cp = POME_CP_REPLACEMENT;
        i += (size_t)abs(n);
        if (start)
            pome_cp_append_upper(&b, cp);
        else
            pome_cp_append_lower(&b, cp);
        start = pome_cp_is_space(cp) || (cp < 0x80 && cp && strchr("-({[<", (int)cp));
    }
    return pome_jv_take(run, &b, out);
}

static pome_status filter_trim(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    pome_str s, chars;
    bool given = a[0] && a[0]->type != POME_JV_NONE;
    POME_TRY(as_str(run, v, &s));
    if (given)
        POME_TRY(pome_jinja_want_str(run, a[0], "trim", &chars));
    *out = pome_jv_str(pome_jinja_strip(s, given ? &chars : NULL, true, true));
    return POME_OK;
}

static pome_status filter_replace(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    pome_str s, old, new;
    int64_t count = -1;
    if (!a[0] || !a[1])
        return pome_jinja_fail(run, POME_ERR_ARG, "replace wants two strings");
    POME_TRY(as_str(run, v, &s));
    POME_TRY(as_str(run, a[0], &old));
    POME_TRY(as_str(run, a[1], &new));
    if (a[2] && a[2]->type != POME_JV_NONE)
        POME_TRY(pome_jinja_want_int(run, a[2], "replace", &count));
    return pome_jinja_replace(run, s, old, new, count, out);
}

static pome_status filter_string(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    (void)a;
    pome_str s;
    POME_TRY(as_str(run, v, &s));
    *out = pome_jv_str(s);
    return POME_OK;
}

static pome_status filter_safe(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    return filter_string(run, v, a, out);
}

static pome_status filter_escape(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    (void)a;
    static const char specials[] = "&<>'\"";
    static const char *const entities[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    pome_str s;
    pome_strbuf b = {.limit = run->output_limit};
    POME_TRY(as_str(run, v, &s));
    for (size_t i = 0; i < s.len; i++) {
        const char *at = s.ptr[i] ? strchr(specials, s.ptr[i]) : NULL;
        if (at)
            pome_strbuf_puts(&b, entities[at - specials]);
        else
            pome_strbuf_putc(&b, s.ptr[i]);
    }
    return pome_jv_take(run, &b, out);
}

/* A number at the start and end of s, white space around it allowed; underscores between digits are not. */
static bool parse_number(pome_str s, int base, bool *is_int, int64_t *i, double *f)
{
    char z[128];
    s = pome_jinja_strip(s, NULL, true, true);
    if (s.len == 0 || s.len >= sizeof z || memchr(s.ptr, '\0', s.len))
        return false;
    memcpy(z, s.ptr, s.len);
    z[s.len] = '\0';
    char *end;
    errno = 0;
    *i = strtoll(z, &end, base);
    *is_int = *end == '\0' && errno == 0;
    if (*is_int)
        return true;
    if (strpbrk(z, "xXpP") || strchr(z, '('))
        return false;
    *f = strtod(z, &end);
    return *end == '\0';
}

static pome_status filter_int(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    bool is_int;
    int64_t i = 0, base = 10;
    double f = 0;
    if (a[1])
        POME_TRY(pome_jinja_want_int(run, a[1], "int", &base));
    if (base != 0 && (base < 2 || base > 36))
        return pome_jinja_fail(run, POME_ERR_ARG, "int in base %lld", (long long)base);
    *out = a[0] ? *a[0] : pome_jv_int(0);
    if (v->type == POME_JV_INT)
        *out = *v;
    else if (v->type == POME_JV_BOOL)
        *out = pome_jv_int(v->u.b);
    else if (v->type == POME_JV_FLOAT && fabs(v->u.f) < 9e18)
        *out = pome_jv_int((int64_t)v->u.f);
    else if (v->type == POME_JV_STR && parse_number(v->u.s, (int)base, &is_int, &i, &f) &&
             (is_int || fabs(f) < 9e18))
        *out = pome_jv_int(is_int ? i : (int64_t)f);
    else
        return pome_jv_check_defined(run, v);
    return POME_OK;
}

static pome_status filter_float(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    bool is_int;
    int64_t i = 0;
    double f = 0;
    *out = a[0] ? *a[0] : pome_jv_float(0);
    if (v->type == POME_JV_FLOAT)
        *out = *v;
    else if (v->type == POME_JV_INT || v->type == POME_JV_BOOL)
        *out = pome_jv_float(v->type == POME_JV_INT ? (double)v->u.i : (double)v->u.b);
    else if (v->type == POME_JV_STR && parse_number(v->u.s, 10, &is_int, &i, &f))
        *out = pome_jv_float(is_int ? (double)i : f);
    else
        return pome_jv_check_defined(run, v);
    return POME_OK;
}

static pome_status filter_abs(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    (void)a;
    if (v->type == POME_JV_FLOAT) {
        *out = pome_jv_float(fabs(v->u.f));
        return POME_OK;
    }
    int64_t i;
    POME_TRY(pome_jinja_want_int(run, v, "abs", &i));
    if (i == INT64_MIN)
        return pome_jinja_fail(run, POME_ERR_LIMIT, "an integer does not fit into 64 bits");
    *out = pome_jv_int(i < 0 ? -i : i);
    return POME_OK;
}

/* Half to even on the exact binary value, as Python's round. */
static double round_digits(double f, int64_t digits)
{
    if (digits >= 0) {
        char text[512];
        snprintf(text, sizeof text, "%.*f", (int)(digits < 100 ? digits : 100), f);
        return strtod(text, NULL);
    }
    double unit = pow(10, (double)-digits);
    return nearbyint(f / unit) * unit;
}

static pome_status filter_round(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    int64_t digits = 0;
    pome_str method = pome_str_of("common");
    POME_TRY(pome_jv_check_defined(run, v));
    if (!pome_jv_is_number(v))
        return pome_jinja_fail(run, POME_ERR_ARG, "round of a %s", pome_jv_type_name(v));
    if (a[0])
        POME_TRY(pome_jinja_want_int(run, a[0], "round", &digits));
    if (a[1])
        POME_TRY(pome_jinja_want_str(run, a[1], "round", &method));
    if (digits > 300 || digits < -300)
        return pome_jinja_fail(run, POME_ERR_LIMIT, "round to %lld digits", (long long)digits);
    double f = v->type == POME_JV_FLOAT ? v->u.f : v->type == POME_JV_INT ? (double)v->u.i : (double)v->u.b;
    if (pome_str_is(method, "common")) {
        if (v->type != POME_JV_FLOAT && digits >= 0)
            *out = v->type == POME_JV_INT ? *v : pome_jv_int(v->u.b);
        else if (v->type != POME_JV_FLOAT)
            *out = pome_jv_int((int64_t)round_digits(f, digits));
        else
            *out = pome_jv_float(isfinite(f) ? round_digits(f, digits) : f);
        return POME_OK;
    }
    bool up = pome_str_is(method, "ceil");
    if (!up && !pome_str_is(method, "floor"))
        return pome_jinja_fail(run, POME_ERR_ARG, "round by \"%.*s\"", (int)(method.len < 40 ? method.len : 40),
                               method.ptr);
    double unit = pow(10, (double)digits);
    *out = pome_jv_float((up ? ceil(f * unit) : floor(f * unit)) / unit);
    return POME_OK;
}

static pome_status filter_tojson(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    pome_jv_json_style style = {.ensure_ascii = a[0] && pome_jv_truth(a[0]), .sort_keys = a[3] && pome_jv_truth(a[3])};
    char spaces[65];
    style.has_indent = a[1] && a[1]->type != POME_JV_NONE;
    if (style.has_indent && a[1]->type == POME_JV_STR) {
        style.indent = a[1]->u.s;
    } else if (style.has_indent) {
        int64_t n;
        POME_TRY(pome_jinja_want_int(run, a[1], "tojson", &n));
        n = n < 0 ? 0 : n > 64 ? 64 : n;
        memset(spaces, ' ', sizeof spaces);
        style.indent = (pome_str){spaces, (size_t)n};
    }
    style.item_separator = pome_str_of(style.has_indent ? "," : ", ");
    style.key_separator = pome_str_of(": ");
    if (a[2] && a[2]->type != POME_JV_NONE) {
        pome_jv pair;
        POME_TRY(pome_jv_iterate(run, a[2], &pair));
        if (pair.u.list->n != 2)
            return pome_jinja_fail(run, POME_ERR_ARG, "tojson wants two separators");
        POME_TRY(pome_jinja_want_str(run, &pair.u.list->items[0], "tojson", &style.item_separator));
        POME_TRY(pome_jinja_want_str(run, &pair.u.list->items[1], "tojson", &style.key_separator));
    }
    pome_strbuf b = {.limit = run->output_limit};
    POME_TRY(pome_jv_check_defined(run, v));
    pome_status status = pome_jv_append_json(run, &b, v, &style);
    if (status == POME_OK)
        status = pome_jv_take(run, &b, out);
    pome_strbuf_reset(&b);
    return status;
}

/* Lines after the first get the indent, empty ones only if blank. */
static pome_status filter_indent(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    pome_str s, indent;
    char spaces[256];
    bool first = a[1] && pome_jv_truth(a[1]), blank = a[2] && pome_jv_truth(a[2]);
    POME_TRY(pome_jinja_want_str(run, v, "indent", &s));
    if (a[0] && a[0]->type == POME_JV_STR) {
        indent = a[0]->u.s;
    } else {
        int64_t width = 4;
        if (a[0])
            POME_TRY(pome_jinja_want_int(run, a[0], "indent", &width));
        width = width < 0 ? 0 : width > 255 ? 255 : width;
        memset(spaces, ' ', sizeof spaces);
        indent = (pome_str){spaces, (size_t)width};
    }
    pome_strbuf b = {.limit = run->output_limit};
    for (size_t i = 0; i < s.len || i == 0;) {
        const char *newline = s.len > i ? memchr(s.ptr + i, '\n', s.len - i) : NULL;
        size_t end = newline ? (size_t)(newline - s.ptr) : s.len;
        bool is_first = i == 0, is_empty = end == i;
        if (is_first ? first : blank || !is_empty)
            pome_strbuf_append(&b, indent.ptr, indent.len);
        pome_strbuf_append(&b, s.ptr + i, end - i);
        if (!newline)
            break;
        pome_strbuf_putc(&b, '\n');
        i = end + 1;
        if (i == s.len) { /* the line behind a final newline is an empty one */
            if (blank)
                pome_strbuf_append(&b, indent.ptr, indent.len);
            break;
        }
    }
    return pome_jv_take(run, &b, out);
}

static pome_status filter_wordcount(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    (void)a;
    pome_str s;
    int64_t n = 0;
    bool inside = false;
    POME_TRY(as_str(run, v, &s));
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        int len = pome_utf8_decode(s.ptr + i, s.len - i, &cp, NULL);
        bool word = len > 0 && pome_cp_is_word(cp);
        n += word && !inside;
        inside = word;
        i += (size_t)abs(len);
    }
    *out = pome_jv_int(n);
    return POME_OK;
}

static pome_status filter_center(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    pome_str s;
    pome_jv width = a[0] ? *a[0] : pome_jv_int(80), text;
    POME_TRY(as_str(run, v, &s));
    text = pome_jv_str(s);
    pome_jinja_args args = {.items = &width, .n = 1};
    return pome_jinja_call_method(run, &text, pome_str_of("center"), &args, out);
}

static pome_status filter_attr(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    pome_str name;
    if (!a[0])
        return pome_jinja_fail(run, POME_ERR_ARG, "attr wants a name");
    POME_TRY(pome_jinja_want_str(run, a[0], "attr", &name));
    if (v->type == POME_JV_DICT && !pome_jinja_has_method(v, name)) /* attributes alone, no items */
        return pome_jv_undefined(run, out, "'dict object' has no attribute '%.*s'", (int)name.len, name.ptr);
    return pome_jinja_getattr(run, v, name, out);
}

static pome_status filter_urlencode(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    (void)a;
    pome_str s;
    pome_strbuf b = {.limit = run->output_limit};
    if (pome_jv_is_list(v) || v->type == POME_JV_DICT)
        return pome_jinja_fail(run, POME_ERR_UNSUPPORTED, "urlencode of a %s", pome_jv_type_name(v));
    POME_TRY(as_str(run, v, &s));
    for (size_t i = 0; i < s.len; i++) {
        uint8_t c = (uint8_t)s.ptr[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                     (c && strchr("_.-~/", c));
        if (plain)
            pome_strbuf_putc(&b, (char)c);
        else
            pome_strbuf_printf(&b, "%%%02X", c);
    }
    return pome_jv_take(run, &b, out);
}

static pome_status filter_truncate(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    pome_str s, end = pome_str_of("...");
    int64_t length = 255, leeway = 5;
    bool kill = a[1] && pome_jv_truth(a[1]);
    size_t n_items;
    POME_TRY(pome_jv_length(run, v, &n_items));
    if (a[0])
        POME_TRY(pome_jinja_want_int(run, a[0], "truncate", &length));
    if (a[2])
        POME_TRY(pome_jinja_want_str(run, a[2], "truncate", &end));
    if (a[3] && a[3]->type != POME_JV_NONE)
        POME_TRY(pome_jinja_want_int(run, a[3], "truncate", &leeway));
    int64_t n_end = (int64_t)pome_utf8_count(end.ptr, end.len);
    if (length < n_end || length > INT32_MAX || leeway < 0 || leeway > INT32_MAX)
        return pome_jinja_fail(run, POME_ERR_ARG, "truncate to %lld", (long long)length);
    if ((int64_t)n_items <= length + leeway) {
        *out = *v;
        return POME_OK;
    }
    POME_TRY(pome_jinja_want_str(run, v, "truncate", &s));
    size_t cut = 0;
    for (int64_t i = 0; i < length - n_end; i++)
        cut += pome_utf8_len(s.ptr[cut]);
    const char *space = kill || cut == 0 ? NULL : memrchr(s.ptr, ' ', cut);
    pome_strbuf b = {.limit = run->output_limit};
    pome_strbuf_append(&b, s.ptr, space ? (size_t)(space - s.ptr) : cut);
    pome_strbuf_append(&b, end.ptr, end.len);
    return pome_jv_take(run, &b, out);
}

static const pome_jinja_filter_row rows[] = {
    {"default", filter_default, "default_value boolean"},
    {"d", filter_default, "default_value boolean"},
    {"length", filter_length, ""},
    {"count", filter_length, ""},
    {"upper", filter_upper, ""},
    {"lower", filter_lower, ""},
    {"capitalize", filter_capitalize, ""},
    {"title", filter_title, ""},
    {"trim", filter_trim, "chars"},
    {"replace", filter_replace, "old new count"},
    {"string", filter_string, ""},
    {"safe", filter_safe, ""},
    {"escape", filter_escape, ""},
    {"e", filter_escape, ""},
    {"forceescape", filter_escape, ""},
    {"int", filter_int, "default base"},
    {"float", filter_float, "default"},
    {"abs", filter_abs, ""},
    {"round", filter_round, "precision method"},
    {"tojson", filter_tojson, "ensure_ascii indent separators sort_keys"},
    {"indent", filter_indent, "width first blank"},
    {"wordcount", filter_wordcount, ""},
    {"center", filter_center, "width"},
    {"attr", filter_attr, "name"},
    {"urlencode", filter_urlencode, ""},
    {"truncate", filter_truncate, "length killwords end leeway"},
};

static const pome_jinja_filter_row *find_row(pome_str name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (pome_str_is(name, rows[i].name))
            return &rows[i];
    return pome_jinja_find_list_filter(name);
}

/* These take the name of another filter or test and its arguments. */
static bool is_open(pome_str name)
{
    static const char *const open[] = {"map", "select", "reject", "selectattr", "rejectattr", "format"};
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        if (pome_str_is(name, open[i]))
            return true;
    return false;
}

bool pome_jinja_has_filter(pome_str name)
{
    return is_open(name) || find_row(name);
}

pome_status pome_jinja_filter(pome_jinja_run *run, pome_str name, const pome_jv *input, const pome_jinja_args *args,
                              pome_jv *out)
{
    if (pome_str_is(name, "format")) {
        pome_str s;
        POME_TRY(as_str(run, input, &s));
        return pome_jinja_percent(run, s, args->items, args->n, out);
    }
    if (is_open(name))
        return pome_jinja_open_filter(run, name, input, args, out);
    const pome_jinja_filter_row *row = find_row(name);
    const pome_jv *slots[POME_JINJA_PARAMETERS_MAX];
    if (!row)
        return pome_jinja_fail(run, POME_ERR_UNSUPPORTED, "filter \"%.*s\" is not known",
                               (int)(name.len < 60 ? name.len : 60), name.ptr);
    POME_TRY(pome_jinja_bind(run, name, args, row->parameters, slots));
    return row->call(run, input, slots, out);
}
