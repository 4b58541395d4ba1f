/* Values as text: Python's str, repr and json.dumps. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/jinja_value.h"
#include "text/utf8.h"

void pome_jv_append_float(pome_strbuf *out, double f)
{
    if (isnan(f)) {
        pome_strbuf_puts(out, "nan");
        return;
    }
    if (isinf(f)) {
        pome_strbuf_puts(out, f < 0 ? "-inf" : "inf");
        return;
    }
    char digits[40];
    int precision = 1;
    for (; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*e", precision - 1, f);
        if (strtod(digits, NULL) == f)
            break;
    }
    int exponent = atoi(strchr(digits, 'e') + 1);
    if (exponent >= -4 && exponent < 16) {
        int decimals = precision - 1 - exponent;
        pome_strbuf_printf(out, "%.*f", decimals > 0 ? decimals : 1, f);
        return;
    }
    *strchr(digits, 'e') = '\0';
    pome_strbuf_printf(out, "%se%c%02d", digits, exponent < 0 ? '-' : '+', abs(exponent));
}

static void append_repr_char(pome_strbuf *out, uint32_t cp, char quote)
{
    static const char *const short_forms[] = {"\\t", "\\n", "\\r"};
    if (cp == '\t' || cp == '\n' || cp == '\r')
        pome_strbuf_puts(out, short_forms[cp == '\t' ? 0 : cp == '\n' ? 1 : 2]);
    else if (cp == '\\' || cp == (uint32_t)quote)
        pome_strbuf_printf(out, "\\%c", (char)cp);
    else if (pome_cp_is_printable(cp))
        pome_strbuf_put_cp(out, cp);
    else
        pome_strbuf_printf(out, cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)cp);
}

static void append_repr_str(pome_strbuf *out, pome_str s)
{
    bool single = s.len && memchr(s.ptr, '\'', s.len), twice = s.len && memchr(s.ptr, '"', s.len);
    char quote = single && !twice ? '"' : '\'';
    pome_strbuf_putc(out, quote);
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        int n = pome_utf8_decode(s.ptr + i, s.len - i, &cp, NULL);
        append_repr_char(out, n > 0 ? cp : POME_CP_REPLACEMENT, quote);
        i += (size_t)abs(n);
    }
    pome_strbuf_putc(out, quote);
}

/* The limits that hold for every value written, however it is spelled. */
static pome_status begin_value(pome_jinja_run *run, const pome_strbuf *out, int depth)
{
    if (depth > POME_JV_DEPTH_MAX)
        return pome_jinja_fail(run, POME_ERR_LIMIT, "a value is nested more than %d deep", POME_JV_DEPTH_MAX);
    if (out->len > run->output_limit || out->failed)
        return pome_jinja_fail(run, POME_ERR_LIMIT, "the output is longer than %zu bytes", run->output_limit);
    return pome_jinja_spend(run, 1);
}

static pome_status append_repr(pome_jinja_run *run, pome_strbuf *out, const pome_jv *v, int depth)
{
    POME_TRY(begin_value(run, out, depth));
    switch (v->type) {
    case POME_JV_UNDEFINED:
        pome_strbuf_puts(out, "Undefined");
        return POME_OK;
    case POME_JV_NONE:
        pome_strbuf_puts(out, "None");
        return POME_OK;
    case POME_JV_BOOL:
        pome_strbuf_puts(out, v->u.b ? "True" : "False");
        return POME_OK;
    case POME_JV_INT:
        pome_strbuf_printf(out, "%lld", (long long)v->u.i);
        return POME_OK;
    case POME_JV_FLOAT:
        pome_jv_append_float(out, v->u.f);
        return POME_OK;
    case POME_JV_STR:
        append_repr_str(out, v->u.s);
        return pome_jinja_spend(run, v->u.s.len / 32);
    case POME_JV_LIST:
    case POME_JV_TUPLE:
        pome_strbuf_putc(out, v->type == POME_JV_LIST ? '[' : '(');
        for (size_t i = 0; i < v->u.list->n; i++) {
            if (i)
                pome_strbuf_puts(out, ", ");
            POME_TRY(append_repr(run, out, &v->u.list->items[i], depth + 1));
        }
        if (v->type == POME_JV_TUPLE && v->u.list->n == 1)
            pome_strbuf_putc(out, ',');
        pome_strbuf_putc(out, v->type == POME_JV_LIST ? ']' : ')');
        return POME_OK;
    case POME_JV_DICT:
        pome_strbuf_putc(out, '{');
        for (size_t i = 0; i < v->u.dict->n; i++) {
            if (i)
                pome_strbuf_puts(out, ", ");
            POME_TRY(append_repr(run, out, &v->u.dict->keys[i], depth + 1));
            pome_strbuf_puts(out, ": ");
            POME_TRY(append_repr(run, out, &v->u.dict->values[i], depth + 1));
        }
        pome_strbuf_putc(out, '}');
        return POME_OK;
    default: /* Python shows an address here, which no template can want */
        return pome_jinja_fail(run, POME_ERR_ARG, "a %s cannot be printed", pome_jv_type_name(v));
    }
}

pome_status pome_jv_append_repr(pome_jinja_run *run, pome_strbuf *out, const pome_jv *v)
{
    return append_repr(run, out, v, 0);
}

pome_status pome_jv_append_str(pome_jinja_run *run, pome_strbuf *out, const pome_jv *v)
{
    if (v->type == POME_JV_UNDEFINED)
        return POME_OK;
    if (v->type != POME_JV_STR)
        return append_repr(run, out, v, 0);
    if (out->len + v->u.s.len > run->output_limit)
        return pome_jinja_fail(run, POME_ERR_LIMIT, "the output is longer than %zu bytes", run->output_limit);
    pome_strbuf_append(out, v->u.s.ptr, v->u.s.len);
    return pome_jinja_spend(run, v->u.s.len / 64);
}

pome_status pome_jv_to_str(pome_jinja_run *run, const pome_jv *v, pome_str *out)
{
    if (v->type == POME_JV_STR) {
        *out = v->u.s;
        return POME_OK;
    }
    pome_strbuf b = {0};
    pome_jv s;
    pome_status status = pome_jv_append_str(run, &b, v);
    if (status == POME_OK)
        status = pome_jv_take(run, &b, &s);
    pome_strbuf_reset(&b);
    if (status == POME_OK)
        *out = s.u.s;
    return status;
}

/* ---- JSON ---- */

static void append_json_str(pome_strbuf *out, pome_str s, bool ensure_ascii)
{
    pome_strbuf_putc(out, '"');
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        int n = pome_utf8_decode(s.ptr + i, s.len - i, &cp, NULL);
        if (n < 0)
            cp = POME_CP_REPLACEMENT;
        i += (size_t)abs(n);
        static const char plain[] = "\"\\\n\r\t\f\b", letters[] = "\"\\nrtfb";
        const char *at = cp < 0x80 && cp > 0 ? strchr(plain, (int)cp) : NULL;
        if (at)
            pome_strbuf_printf(out, "\\%c", letters[at - plain]);
        else if (cp < 0x20 || (ensure_ascii && cp > 0x7e && cp < 0x10000))
            pome_strbuf_printf(out, "\\u%04x", (unsigned)cp);
        else if (ensure_ascii && cp >= 0x10000)
            pome_strbuf_printf(out, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (cp >> 10)),
                               (unsigned)(0xdc00 + (cp & 0x3ff)));
        else
            pome_strbuf_put_cp(out, cp);
    }
    pome_strbuf_putc(out, '"');
}

static void append_json_float(pome_strbuf *out, double f)
{
    if (isnan(f))
        pome_strbuf_puts(out, "NaN");
    else if (isinf(f))
        pome_strbuf_puts(out, f < 0 ? "-Infinity" : "Infinity");
    else
        pome_jv_append_float(out, f);
}

static void newline(pome_strbuf *out, const pome_jv_json_style *style, int depth)
{
    if (!style->has_indent)
        return;
    pome_strbuf_putc(out, '\n');
    for (int i = 0; i < depth; i++)
        pome_strbuf_append(out, style->indent.ptr, style->indent.len);
}

static pome_status append_json(pome_jinja_run *run, pome_strbuf *out, const pome_jv *v,
                               const pome_jv_json_style *style, int depth);

static pome_status append_json_key(pome_jinja_run *run, pome_strbuf *out, const pome_jv *key,
                                   const pome_jv_json_style *style)
{
    if (key->type == POME_JV_STR)
        return append_json(run, out, key, style, 0);
    pome_strbuf_putc(out, '"');
    POME_TRY(append_json(run, out, key, style, 0));
    pome_strbuf_putc(out, '"');
    return POME_OK;
}

/* The order in which the entries are written: an index array in the arena. */
static pome_status key_order(pome_jinja_run *run, const pome_jv_dict *d, bool sorted, size_t **out)
{
    size_t *order = POME_NEW_ARRAY(run->arena, size_t, d->n);
    if (!order)
        return pome_jinja_nomem(run);
    for (size_t i = 0; i < d->n; i++) {
        size_t k = i;
        for (; sorted && k > 0; k--) { /* insertion: the dicts of templates are small */
            int c;
            POME_TRY(pome_jv_compare(run, &d->keys[i], &d->keys[order[k - 1]], &c));
            if (c >= 0)
                break;
            order[k] = order[k - 1];
        }
        order[k] = i;
    }
    *out = order;
    return POME_OK;
}

static pome_status append_json_dict(pome_jinja_run *run, pome_strbuf *out, const pome_jv_dict *d,
                                    const pome_jv_json_style *style, int depth)
{
    if (d->n == 0) {
        pome_strbuf_puts(out, "{}");
        return POME_OK;
    }
    size_t *order;
    POME_TRY(key_order(run, d, style->sort_keys, &order));
    pome_strbuf_putc(out, '{');
    for (size_t i = 0; i < d->n; i++) {
        if (i)
            pome_strbuf_append(out, style->item_separator.ptr, style->item_separator.len);
        newline(out, style, depth + 1);
        POME_TRY(append_json_key(run, out, &d->keys[order[i]], style));
        pome_strbuf_append(out, style->key_separator.ptr, style->key_separator.len);
        POME_TRY(append_json(run, out, &d->values[order[i]], style, depth + 1));
    }
    newline(out, style, depth);
    pome_strbuf_putc(out, '}');
    return POME_OK;
}

static pome_status append_json(pome_jinja_run *run, pome_strbuf *out, const pome_jv *v,
                               const pome_jv_json_style *style, int depth)
{
    POME_TRY(begin_value(run, out, depth));
    switch (v->type) {
    case POME_JV_NONE:
        pome_strbuf_puts(out, "null");
        return POME_OK;
    case POME_JV_BOOL:
        pome_strbuf_puts(out, v->u.b ? "true" : "false");
        return POME_OK;
    case POME_JV_INT:
        pome_strbuf_printf(out, "%lld", (long long)v->u.i);
        return POME_OK;
    case POME_JV_FLOAT:
        append_json_float(out, v->u.f);
        return POME_OK;
    case POME_JV_STR:
        append_json_str(out, v->u.s, style->ensure_ascii);
        return pome_jinja_spend(run, v->u.s.len / 32);
    case POME_JV_LIST:
    case POME_JV_TUPLE:
        pome_strbuf_putc(out, '[');
        for (size_t i = 0; i < v->u.list->n; i++) {
            if (i)
                pome_strbuf_append(out, style->item_separator.ptr, style->item_separator.len);
            newline(out, style, depth + 1);
            POME_TRY(append_json(run, out, &v->u.list->items[i], style, depth + 1));
        }
        if (v->u.list->n > 0)
            newline(out, style, depth);
        pome_strbuf_putc(out, ']');
        return POME_OK;
    case POME_JV_DICT:
        return append_json_dict(run, out, v->u.dict, style, depth);
    default:
        return pome_jinja_fail(run, POME_ERR_ARG, "a %s cannot be written as JSON", pome_jv_type_name(v));
    }
}

pome_status pome_jv_append_json(pome_jinja_run *run, pome_strbuf *out, const pome_jv *v,
                                const pome_jv_json_style *style)
{
    return append_json(run, out, v, style, 0);
}
