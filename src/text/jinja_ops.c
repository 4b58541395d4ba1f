/* Python's operators, slices and "%" formats. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/jinja_eval.h"
#include "text/utf8.h"

typedef pome_jinja_run jrun;

static double as_double(const pome_jv *v)
{
    return v->type == POME_JV_FLOAT ? v->u.f : v->type == POME_JV_INT ? (double)v->u.i : (double)v->u.b;
}

static int64_t as_int(const pome_jv *v)
{
    return v->type == POME_JV_INT ? v->u.i : v->u.b;
}

static pome_status wrong_types(jrun *run, pome_jinja_op op, const pome_jv *a, const pome_jv *b)
{
    static const char *const names[] = {"+", "-", "*", "/", "//", "%", "**"};
    return pome_jinja_fail(run, POME_ERR_ARG, "unsupported operand types for %s: %s and %s", names[op],
                           pome_jv_type_name(a), pome_jv_type_name(b));
}

static pome_status too_large(jrun *run)
{
    return pome_jinja_fail(run, POME_ERR_LIMIT, "an integer does not fit into 64 bits");
}

static pome_status int_power(jrun *run, int64_t base, int64_t exponent, pome_jv *out)
{
    int64_t result = 1;
    if (exponent < 0) {
        if (base == 0)
            return pome_jinja_fail(run, POME_ERR_ARG, "0 to a negative power");
        *out = pome_jv_float(pow((double)base, (double)exponent));
        return POME_OK;
    }
    for (; exponent > 0; exponent >>= 1) {
        if ((exponent & 1) && __builtin_mul_overflow(result, base, &result))
            return too_large(run);
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base))
            return too_large(run);
    }
    *out = pome_jv_int(result);
    return POME_OK;
}

static pome_status int_op(jrun *run, pome_jinja_op op, int64_t a, int64_t b, pome_jv *out)
{
    int64_t r = 0;
    bool overflow = false;
    switch (op) {
    case POME_JO_ADD:
        overflow = __builtin_add_overflow(a, b, &r);
        break;
    case POME_JO_SUB:
        overflow = __builtin_sub_overflow(a, b, &r);
        break;
    case POME_JO_MUL:
        overflow = __builtin_mul_overflow(a, b, &r);
        break;
    case POME_JO_DIV:
        *out = pome_jv_float((double)a / (double)b);
        return POME_OK;
    case POME_JO_POW:
        return int_power(run, a, b, out);
    default: /* the quotient goes down, the remainder has the divisor's sign */
        if (b == -1) {
            overflow = op == POME_JO_FLOORDIV && __builtin_sub_overflow((int64_t)0, a, &r);
            break;
        }
        r = op == POME_JO_FLOORDIV ? a / b : a % b;
        if (a % b != 0 && (a % b < 0) != (b < 0))
            r += op == POME_JO_FLOORDIV ? -1 : b;
        break;
    }
    if (overflow)
        return too_large(run);
    *out = pome_jv_int(r);
    return POME_OK;
}

static double float_op(pome_jinja_op op, double a, double b)
{
    double r;
    switch (op) {
    case POME_JO_ADD:
        return a + b;
    case POME_JO_SUB:
        return a - b;
    case POME_JO_MUL:
        return a * b;
    case POME_JO_DIV:
        return a / b;
    case POME_JO_FLOORDIV:
        return floor(a / b);
    case POME_JO_MOD:
        r = fmod(a, b);
        return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    default:
        return pow(a, b);
    }
}

static pome_status repeat(jrun *run, const pome_jv *v, int64_t count, pome_jv *out)
{
    if (count < 0)
        count = 0;
    if (v->type == POME_JV_STR) {
        pome_strbuf b = {.limit = run->output_limit};
        if (v->u.s.len > 0 && (uint64_t)count > run->output_limit / v->u.s.len)
            return pome_jinja_fail(run, POME_ERR_LIMIT, "a string is longer than %zu bytes", run->output_limit);
        for (int64_t i = 0; i < count && v->u.s.len > 0; i++)
            pome_strbuf_append(&b, v->u.s.ptr, v->u.s.len);
        return pome_jv_take(run, &b, out);
    }
    POME_TRY(pome_jv_new_list(run, v->type, 0, out));
    for (int64_t i = 0; i < count && v->u.list->n > 0; i++)
        for (size_t k = 0; k < v->u.list->n; k++)
            POME_TRY(pome_jv_push(run, out, &v->u.list->items[k]));
    return POME_OK;
}

static pome_status add_sequences(jrun *run, const pome_jv *a, const pome_jv *b, pome_jv *out)
{
    if (a->type == POME_JV_STR) {
        pome_strbuf s = {.limit = run->output_limit};
        pome_strbuf_append(&s, a->u.s.ptr, a->u.s.len);
        pome_strbuf_append(&s, b->u.s.ptr, b->u.s.len);
        return pome_jv_take(run, &s, out);
    }
    POME_TRY(pome_jv_new_list(run, a->type, a->u.list->n + b->u.list->n, out));
    for (size_t i = 0; i < a->u.list->n; i++)
        POME_TRY(pome_jv_push(run, out, &a->u.list->items[i]));
    for (size_t i = 0; i < b->u.list->n; i++)
        POME_TRY(pome_jv_push(run, out, &b->u.list->items[i]));
    return POME_OK;
}

static bool is_sequence(const pome_jv *v)
{
    return v->type == POME_JV_STR || v->type == POME_JV_LIST || v->type == POME_JV_TUPLE;
}

pome_status pome_jinja_binary(pome_jinja_run *run, pome_jinja_op op, const pome_jv *a, const pome_jv *b, pome_jv *out)
{
    POME_TRY(pome_jv_check_defined(run, a));
    if (op == POME_JO_MOD && a->type == POME_JV_STR) {
        bool many = b->type == POME_JV_TUPLE;
        return pome_jinja_percent(run, a->u.s, many ? b->u.list->items : b, many ? b->u.list->n : 1, out);
    }
    POME_TRY(pome_jv_check_defined(run, b));
    if (op == POME_JO_MUL && is_sequence(a) && (b->type == POME_JV_INT || b->type == POME_JV_BOOL))
        return repeat(run, a, as_int(b), out);
    if (op == POME_JO_MUL && is_sequence(b) && (a->type == POME_JV_INT || a->type == POME_JV_BOOL))
        return repeat(run, b, as_int(a), out);
    if (op == POME_JO_ADD && is_sequence(a) && a->type == b->type)
        return add_sequences(run, a, b, out);
    if (!pome_jv_is_number(a) || !pome_jv_is_number(b))
        return wrong_types(run, op, a, b);
    bool is_float = a->type == POME_JV_FLOAT || b->type == POME_JV_FLOAT;
    if ((op == POME_JO_DIV || op == POME_JO_FLOORDIV || op == POME_JO_MOD) && as_double(b) == 0)
        return pome_jinja_fail(run, POME_ERR_ARG, "division by zero");
    if (!is_float)
        return int_op(run, op, as_int(a), as_int(b), out);
    double r = float_op(op, as_double(a), as_double(b));
    if (op == POME_JO_POW && !isfinite(r) && isfinite(as_double(a)) && isfinite(as_double(b)))
        return pome_jinja_fail(run, POME_ERR_ARG, "the result of ** is no number");
    *out = pome_jv_float(r);
    return POME_OK;
}

pome_status pome_jinja_negate(pome_jinja_run *run, const pome_jv *a, pome_jv *out)
{
    POME_TRY(pome_jv_check_defined(run, a));
    if (!pome_jv_is_number(a))
        return pome_jinja_fail(run, POME_ERR_ARG, "- of a %s", pome_jv_type_name(a));
    if (a->type == POME_JV_FLOAT)
        *out = pome_jv_float(-a->u.f);
    else if (as_int(a) == INT64_MIN)
        return too_large(run);
    else
        *out = pome_jv_int(-as_int(a));
    return POME_OK;
}

static pome_status slice_bound(jrun *run, const pome_jv *v, int64_t n, int64_t step, int64_t missing, int64_t *out)
{
    if (v->type == POME_JV_NONE) {
        *out = missing;
        return POME_OK;
    }
    POME_TRY(pome_jinja_want_int(run, v, "a slice", out));
    if (*out < 0)
        *out += n;
    if (*out < 0)
        *out = step < 0 ? -1 : 0;
    if (*out >= n)
        *out = step < 0 ? n - 1 : n;
    return POME_OK;
}

pome_status pome_jinja_slice(pome_jinja_run *run, const pome_jv *object, const pome_jv *start, const pome_jv *stop,
                             const pome_jv *step, pome_jv *out)
{
    POME_TRY(pome_jv_check_defined(run, object));
    if (!is_sequence(object))
        return pome_jv_undefined(run, out, "%s object has no slices", pome_jv_type_name(object));
    pome_jv items;
    int64_t by = 1, from, to;
    POME_TRY(pome_jv_iterate(run, object, &items));
    int64_t n = (int64_t)items.u.list->n;
    if (step->type != POME_JV_NONE)
        POME_TRY(pome_jinja_want_int(run, step, "a slice", &by));
    if (by == 0)
        return pome_jinja_fail(run, POME_ERR_ARG, "a slice with step 0");
    POME_TRY(slice_bound(run, start, n, by, by < 0 ? n - 1 : 0, &from));
    POME_TRY(slice_bound(run, stop, n, by, by < 0 ? -1 : n, &to));
    pome_jv list;
    POME_TRY(pome_jv_new_list(run, object->type == POME_JV_TUPLE ? POME_JV_TUPLE : POME_JV_LIST, 0, &list));
    for (int64_t i = from; by > 0 ? i < to : i > to;) {
        POME_TRY(pome_jv_push(run, &list, &items.u.list->items[i]));
        if (__builtin_add_overflow(i, by, &i))
            break;
    }
    if (object->type == POME_JV_STR)
        return pome_jinja_join(run, &list, (pome_str){"", 0}, false, out);
    *out = list;
    return POME_OK;
}

/* ---- "%" ---- */

typedef struct directive {
    char flags[8];
    int width, precision; /* -1: none */
    char type;
} directive;

static size_t read_directive(pome_str f, size_t i, directive *d)
{
    size_t n = 0;
    *d = (directive){.width = -1, .precision = -1};
    while (i < f.len && strchr("#0- +", f.ptr[i]) && f.ptr[i] && n + 1 < sizeof d->flags)
        d->flags[n++] = f.ptr[i++];
    for (; i < f.len && f.ptr[i] >= '0' && f.ptr[i] <= '9' && d->width < 1000; i++)
        d->width = (d->width < 0 ? 0 : d->width) * 10 + f.ptr[i] - '0';
    if (i < f.len && f.ptr[i] == '.') {
        d->precision = 0;
        for (i++; i < f.len && f.ptr[i] >= '0' && f.ptr[i] <= '9' && d->precision < 100; i++)
            d->precision = d->precision * 10 + f.ptr[i] - '0';
    }
    if (i < f.len)
        d->type = f.ptr[i++];
    return i;
}

static void pad(pome_strbuf *out, const directive *d, pome_str s)
{
    size_t n = pome_utf8_count(s.ptr, s.len), width = d->width > 0 ? (size_t)d->width : 0;
    bool left = strchr(d->flags, '-') != NULL;
    for (size_t i = n; !left && i < width; i++)
        pome_strbuf_putc(out, ' ');
    pome_strbuf_append(out, s.ptr, s.len);
    for (size_t i = n; left && i < width; i++)
        pome_strbuf_putc(out, ' ');
}

static pome_status put_text(jrun *run, const directive *d, const pome_jv *v, pome_strbuf *out)
{
    pome_strbuf b = {0};
    pome_status status = d->type == 'r' ? pome_jv_append_repr(run, &b, v) : pome_jv_append_str(run, &b, v);
    size_t len = 0;
    for (int n = 0; len < b.len && (d->precision < 0 || n < d->precision); n++)
        len += pome_utf8_len(b.data[len]);
    if (status == POME_OK)
        pad(out, d, (pome_str){b.data ? b.data : "", len < b.len ? len : b.len});
    pome_strbuf_reset(&b);
    return status;
}

static pome_status put_number(jrun *run, const directive *d, const pome_jv *v, pome_strbuf *out)
{
    char format[32], text[512];
    bool is_int = strchr("diuxXo", d->type) != NULL;
    if (!pome_jv_is_number(v) || (strchr("xXo", d->type) && v->type == POME_JV_FLOAT))
        return pome_jinja_fail(run, POME_ERR_ARG, "%%%c of a %s", d->type, pome_jv_type_name(v));
    int at = snprintf(format, sizeof format, "%%%s", d->flags);
    if (d->width >= 0)
        at += snprintf(format + at, sizeof format - (size_t)at, "%d", d->width);
    if (d->precision >= 0)
        at += snprintf(format + at, sizeof format - (size_t)at, ".%d", d->precision);
    snprintf(format + at, sizeof format - (size_t)at, "%s%c", is_int ? "ll" : "", d->type == 'u' ? 'd' : d->type);
    double f = as_double(v);
    if (is_int && v->type == POME_JV_FLOAT && !(fabs(f) < 9e18))
        return too_large(run);
    long long i = v->type == POME_JV_FLOAT ? (long long)f : (long long)as_int(v);
    int n = is_int ? snprintf(text, sizeof text, format, i) : snprintf(text, sizeof text, format, f);
    if (n < 0 || (size_t)n >= sizeof text)
        return pome_jinja_fail(run, POME_ERR_LIMIT, "a formatted number is too long");
    pome_strbuf_append(out, text, (size_t)n);
    return POME_OK;
}

static pome_status put_directive(jrun *run, const directive *d, const pome_jv *v, pome_strbuf *out)
{
    if (d->width > 200 || d->precision > 100)
        return pome_jinja_fail(run, POME_ERR_LIMIT, "a format is too wide");
    if (d->type == 's' || d->type == 'r')
        return put_text(run, d, v, out);
    if (d->type && strchr("diuxXoeEfFgG", d->type))
        return put_number(run, d, v, out);
    return pome_jinja_fail(run, POME_ERR_UNSUPPORTED, "format %%%c is not supported", d->type ? d->type : ' ');
}

pome_status pome_jinja_percent(pome_jinja_run *run, pome_str format, const pome_jv *values, size_t n, pome_jv *out)
{
    pome_strbuf b = {.limit = run->output_limit};
    size_t used = 0;
    pome_status status = POME_OK;
    for (size_t i = 0; i < format.len && status == POME_OK;) {
        if (format.ptr[i] != '%') {
            pome_strbuf_putc(&b, format.ptr[i++]);
            continue;
        }
        directive d;
        i = read_directive(format, i + 1, &d);
        if (d.type == '%')
            pome_strbuf_putc(&b, '%');
        else if (used >= n)
            status = pome_jinja_fail(run, POME_ERR_ARG, "a format wants more than %zu values", n);
        else
            status = put_directive(run, &d, &values[used++], &b);
    }
    bool keyed = n == 1 && (values[0].type == POME_JV_DICT || values[0].type == POME_JV_LIST ||
                            values[0].type == POME_JV_UNDEFINED); /* Python lets these be left over */
    if (status == POME_OK && used < n && !keyed)
        status = pome_jinja_fail(run, POME_ERR_ARG, "a format wants %zu values and is given %zu", used, n);
    if (status == POME_OK)
        status = pome_jv_take(run, &b, out);
    pome_strbuf_reset(&b);
    return status;
}
