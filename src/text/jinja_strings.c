/* String work shared by filters and methods, and the methods of strings, lists and dicts. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/jinja_eval.h"
#include "text/utf8.h"

typedef pome_jinja_run jrun;
typedef const pome_jv *const *slots_t;

pome_status pome_jinja_want_int(pome_jinja_run *run, const pome_jv *v, const char *what, int64_t *out)
{
    POME_TRY(pome_jv_check_defined(run, v));
    if (v->type != POME_JV_INT && v->type != POME_JV_BOOL)
        return pome_jinja_fail(run, POME_ERR_ARG, "%s wants an integer, not a %s", what, pome_jv_type_name(v));
    *out = v->type == POME_JV_BOOL ? v->u.b : v->u.i;
    return POME_OK;
}

pome_status pome_jinja_want_str(pome_jinja_run *run, const pome_jv *v, const char *what, pome_str *out)
{
    POME_TRY(pome_jv_check_defined(run, v));
    if (v->type != POME_JV_STR)
        return pome_jinja_fail(run, POME_ERR_ARG, "%s wants a string, not a %s", what, pome_jv_type_name(v));
    *out = v->u.s;
    return POME_OK;
}

static bool is_cased(uint32_t cp)
{
    return pome_cp_is_upper(cp) || pome_cp_is_lower(cp);
}

pome_status pome_jinja_change_case(pome_jinja_run *run, pome_str s, pome_jinja_case kind, pome_jv *out)
{
    pome_strbuf b = {.limit = run->output_limit};
    bool start = true;
    for (size_t i = 0; i < s.len;) {
        uint32_t cp;
        int n = pome_utf8_decode(s.ptr + i, s.len - i, &cp, NULL);
        size_t at = i;
        i += (size_t)abs(n);
        if (n < 0) {
            pome_strbuf_append(&b, s.ptr + at, i - at);
            continue;
        }
        if (kind == POME_CASE_UPPER || (kind == POME_CASE_SWAP && pome_cp_is_lower(cp)))
            pome_cp_append_upper(&b, cp);
        else if ((kind == POME_CASE_CAPITALIZE || kind == POME_CASE_TITLE) && start)
            pome_cp_append_title(&b, cp);
        else if (kind == POME_CASE_SWAP && !pome_cp_is_upper(cp))
            pome_strbuf_put_cp(&b, cp);
        else if (cp == 0x3a3 && at > 0 && (i >= s.len || !pome_cp_is_alpha((uint8_t)s.ptr[i] < 0x80 ? (uint8_t)s.ptr[i] : 0x3b1)))
            pome_strbuf_put_cp(&b, 0x3c2); /* a final sigma */
        else
            pome_cp_append_lower(&b, cp);
        start = kind == POME_CASE_TITLE && !is_cased(cp);
    }
    return pome_jv_take(run, &b, out);
}

static bool strips(const pome_str *chars, uint32_t cp)
{
    if (!chars)
        return pome_cp_is_space(cp) || (cp >= 0x1c && cp <= 0x1f);
    for (size_t i = 0; i < chars->len;) {
        uint32_t c;
        int n = pome_utf8_decode(chars->ptr + i, chars->len - i, &c, NULL);
        if (n > 0 && c == cp)
            return true;
        i += (size_t)abs(n);
    }
    return false;
}

pome_str pome_jinja_strip(pome_str s, const pome_str *chars, bool left, bool right)
{
    uint32_t cp;
    while (left && s.len > 0) {
        int n = pome_utf8_decode(s.ptr, s.len, &cp, NULL);
        if (n < 0 || !strips(chars, cp))
            break;
        s.ptr += n;
        s.len -= (size_t)n;
    }
    size_t start;
    while (right && s.len > 0 && strips(chars, pome_utf8_last(s.ptr, s.len, &start)))
        s.len = start;
    return s;
}

static const char *find(pome_str s, size_t from, pome_str what)
{
    if (what.len == 0)
        return s.ptr + from;
    return memmem(s.ptr + from, s.len - from, what.ptr, what.len);
}

pome_status pome_jinja_replace(pome_jinja_run *run, pome_str s, pome_str old, pome_str new, int64_t count, pome_jv *out)
{
    pome_strbuf b = {.limit = run->output_limit};
    size_t i = 0;
    POME_TRY(pome_jinja_spend(run, s.len / 16));
    for (; count != 0 && i <= s.len; count -= count > 0) {
        const char *at = find(s, i, old);
        if (!at)
            break;
        size_t begin = (size_t)(at - s.ptr);
        pome_strbuf_append(&b, s.ptr + i, begin - i);
        pome_strbuf_append(&b, new.ptr, new.len);
        i = begin + old.len;
        if (old.len == 0) { /* between all characters */
            size_t n = i < s.len ? pome_utf8_len(s.ptr[i]) : 1;
            if (i < s.len)
                pome_strbuf_append(&b, s.ptr + i, n);
            i += n;
        }
    }
    if (i < s.len)
        pome_strbuf_append(&b, s.ptr + i, s.len - i);
    return pome_jv_take(run, &b, out);
}

pome_status pome_jinja_join(pome_jinja_run *run, const pome_jv *list, pome_str separator, bool strict, pome_jv *out)
{
    pome_strbuf b = {.limit = run->output_limit};
    pome_status status = POME_OK;
    for (size_t i = 0; i < list->u.list->n && status == POME_OK; i++) {
        const pome_jv *item = &list->u.list->items[i];
        if (i)
            pome_strbuf_append(&b, separator.ptr, separator.len);
        if (strict && item->type != POME_JV_STR)
            status = pome_jinja_fail(run, POME_ERR_ARG, "join wants strings, not a %s", pome_jv_type_name(item));
        else
            status = pome_jv_append_str(run, &b, item);
    }
    if (status == POME_OK)
        status = pome_jv_take(run, &b, out);
    pome_strbuf_reset(&b);
    return status;
}

/* ---- methods of strings ---- */

static pome_status push_str(jrun *run, pome_jv *list, const char *s, size_t len)
{
    pome_jv item = pome_jv_str((pome_str){s, len});
    return pome_jv_push(run, list, &item);
}

static size_t skip_space(pome_str s, size_t i)
{
    pome_str rest = pome_jinja_strip((pome_str){s.ptr + i, s.len - i}, NULL, true, false);
    return s.len - rest.len;
}

/* Without a separator: words between white space; the last part, once there are enough, keeps what is in it. */
static pome_status split_words(jrun *run, pome_str s, int64_t limit, pome_jv *out)
{
    POME_TRY(pome_jv_new_list(run, POME_JV_LIST, 0, out));
    for (size_t i = skip_space(s, 0); i < s.len; limit--) {
        if (limit == 0)
            return push_str(run, out, s.ptr + i, s.len - i);
        size_t end = i;
        while (end < s.len) {
            uint32_t cp;
            int n = pome_utf8_decode(s.ptr + end, s.len - end, &cp, NULL);
            if (n > 0 && strips(NULL, cp))
                break;
            end += (size_t)abs(n);
        }
        POME_TRY(push_str(run, out, s.ptr + i, end - i));
        i = skip_space(s, end);
    }
    return POME_OK;
}

static pome_status split_at(jrun *run, pome_str s, pome_str separator, int64_t limit, pome_jv *out)
{
    if (separator.len == 0)
        return pome_jinja_fail(run, POME_ERR_ARG, "split with an empty separator");
    POME_TRY(pome_jv_new_list(run, POME_JV_LIST, 0, out));
    size_t i = 0;
    POME_TRY(pome_jinja_spend(run, s.len / 16));
    for (const char *at; limit != 0 && (at = find(s, i, separator)); limit--) {
        size_t begin = (size_t)(at - s.ptr);
        POME_TRY(push_str(run, out, s.ptr + i, begin - i));
        i = begin + separator.len;
    }
    return push_str(run, out, s.ptr + i, s.len - i);
}

static const char *find_last(pome_str s, pome_str what)
{
    for (size_t i = s.len < what.len ? 0 : s.len - what.len + 1; i-- > 0;)
        if (memcmp(s.ptr + i, what.ptr, what.len) == 0)
            return s.ptr + i;
    return NULL;
}

static pome_status split_at_right(jrun *run, pome_str s, pome_str separator, int64_t limit, pome_jv *out)
{
    pome_jv reversed;
    if (separator.len == 0)
        return pome_jinja_fail(run, POME_ERR_ARG, "rsplit with an empty separator");
    POME_TRY(pome_jv_new_list(run, POME_JV_LIST, 0, &reversed));
    POME_TRY(pome_jinja_spend(run, s.len / 16));
    for (const char *at; limit != 0 && (at = find_last(s, separator)); limit--) {
        size_t begin = (size_t)(at - s.ptr);
        POME_TRY(push_str(run, &reversed, at + separator.len, s.len - begin - separator.len));
        s.len = begin;
    }
    POME_TRY(push_str(run, &reversed, s.ptr, s.len));
    POME_TRY(pome_jv_new_list(run, POME_JV_LIST, reversed.u.list->n, out));
    for (size_t i = reversed.u.list->n; i-- > 0;)
        POME_TRY(pome_jv_push(run, out, &reversed.u.list->items[i]));
    return POME_OK;
}

static pome_status method_split(jrun *run, pome_str s, pome_str name, slots_t a, pome_jv *out)
{
    int64_t limit = -1;
    pome_str separator;
    if (a[1])
        POME_TRY(pome_jinja_want_int(run, a[1], "split", &limit));
    bool right = name.ptr[0] == 'r';
    if (!a[0] || a[0]->type == POME_JV_NONE) {
        if (right && limit >= 0)
            return pome_jinja_fail(run, POME_ERR_UNSUPPORTED, "rsplit at white space with a limit");
        return split_words(run, s, limit, out);
    }
    POME_TRY(pome_jinja_want_str(run, a[0], "split", &separator));
    return right && limit >= 0 ? split_at_right(run, s, separator, limit, out)
                               : split_at(run, s, separator, limit, out);
}

static pome_status method_splitlines(jrun *run, pome_str s, pome_str name, slots_t a, pome_jv *out)
{
    (void)name;
    bool keep = a[0] && pome_jv_truth(a[0]);
    POME_TRY(pome_jv_new_list(run, POME_JV_LIST, 0, out));
    for (size_t i = 0; i < s.len;) {
        size_t end = i, next = s.len;
        for (; end < s.len; end++) {
            uint32_t cp;
            int n = pome_utf8_decode(s.ptr + end, s.len - end, &cp, NULL);
            bool breaks = n > 0 && ((cp >= 0x0a && cp <= 0x0d) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 ||
                                    cp == 0x2028 || cp == 0x2029);
            if (!breaks)
                continue;
            next = end + (size_t)n;
            if (cp == '\r' && next < s.len && s.ptr[next] == '\n')
                next++;
            break;
        }
        POME_TRY(push_str(run, out, s.ptr + i, (keep ? next : end) - i));
        i = next;
    }
    return POME_OK;
}

static pome_status method_strip(jrun *run, pome_str s, pome_str name, slots_t a, pome_jv *out)
{
    pome_str chars;
    bool given = a[0] && a[0]->type != POME_JV_NONE;
    if (given)
        POME_TRY(pome_jinja_want_str(run, a[0], "strip", &chars));
    *out = pome_jv_str(pome_jinja_strip(s, given ? &chars : NULL, name.ptr[0] != 'r', name.ptr[0] != 'l'));
    return pome_jinja_spend(run, s.len / 64);
}

static pome_status method_case(jrun *run, pome_str s, pome_str name, slots_t a, pome_jv *out)
{
    (void)a;
    pome_jinja_case kind = name.ptr[0] == 'u'   ? POME_CASE_UPPER
                           : name.ptr[0] == 't' ? POME_CASE_TITLE
                           : name.ptr[0] == 's' ? POME_CASE_SWAP
                           : name.ptr[2] == 'p' ? POME_CASE_CAPITALIZE
                                                : POME_CASE_LOWER;
    return pome_jinja_change_case(run, s, kind, out);
}

static pome_status method_replace(jrun *run, pome_str s, pome_str name, slots_t a, pome_jv *out)
{
    (void)name;
    pome_str old, new;
    int64_t count = -1;
    if (!a[0] || !a[1])
        return pome_jinja_fail(run, POME_ERR_ARG, "replace wants two strings");
    POME_TRY(pome_jinja_want_str(run, a[0], "replace", &old));
    POME_TRY(pome_jinja_want_str(run, a[1], "replace", &new));
    if (a[2])
        POME_TRY(pome_jinja_want_int(run, a[2], "replace", &count));
    return pome_jinja_replace(run, s, old, new, count, out);
}

static bool affix_matches(pome_str s, pome_str affix, bool at_end)
{
    return s.len >= affix.len && memcmp(at_end ? s.ptr + s.len - affix.len : s.ptr, affix.ptr, affix.len) == 0;
}

static pome_status method_affix(jrun *run, pome_str s, pome_str name, slots_t a, pome_jv *out)
{
    bool at_end = name.ptr[0] == 'e', holds = false;
    pome_str affix;
    if (!a[0] || a[1])
        return pome_jinja_fail(run, POME_ERR_ARG, "%.*s wants one string or tuple", (int)name.len, name.ptr);
    if (a[0]->type == POME_JV_TUPLE) {
        for (size_t i = 0; i < a[0]->u.list->n && !holds; i++) {
            POME_TRY(pome_jinja_want_str(run, &a[0]->u.list->items[i], "startswith", &affix));
            holds = affix_matches(s, affix, at_end);
        }
    } else {
        POME_TRY(pome_jinja_want_str(run, a[0], "startswith", &affix));
        holds = affix_matches(s, affix, at_end);
    }
    *out = pome_jv_bool(holds);
    return POME_OK;
}

static pome_status method_remove(jrun *run, pome_str s, pome_str name, slots_t a, pome_jv *out)
{
    bool at_end = name.ptr[6] == 's';
    pome_str affix;
    if (!a[0])
        return pome_jinja_fail(run, POME_ERR_ARG, "%.*s wants a string", (int)name.len, name.ptr);
    POME_TRY(pome_jinja_want_str(run, a[0], "removeprefix", &affix));
    if (affix_matches(s, affix, at_end)) {
        s.ptr += at_end ? 0 : affix.len;
        s.len -= affix.len;
    }
    *out = pome_jv_str(s);
    return POME_OK;
}

static pome_status method_join(jrun *run, pome_str s, pome_str name, slots_t a, pome_jv *out)
{
    (void)name;
    pome_jv list;
    if (!a[0])
        return pome_jinja_fail(run, POME_ERR_ARG, "join wants a list");
    POME_TRY(pome_jv_iterate(run, a[0], &list));
    return pome_jinja_join(run, &list, s, true, out);
}

/* find, rfind, index, rindex, in characters. */
static pome_status method_find(jrun *run, pome_str s, pome_str name, slots_t a, pome_jv *out)
{
    pome_str what;
    if (!a[0] || a[1])
        return pome_jinja_fail(run, a[1] ? POME_ERR_UNSUPPORTED : POME_ERR_ARG, "%.*s wants one string", (int)name.len,
                               name.ptr);
    POME_TRY(pome_jinja_want_str(run, a[0], "find", &what));
    POME_TRY(pome_jinja_spend(run, s.len / 16));
    const char *at = name.ptr[0] == 'r' ? find_last(s, what) : find(s, 0, what);
    if (!at && name.ptr[name.len - 1] == 'x')
        return pome_jinja_fail(run, POME_ERR_ARG, "substring not found");
    *out = pome_jv_int(at ? (int64_t)pome_utf8_count(s.ptr, (size_t)(at - s.ptr)) : -1);
    return POME_OK;
}

static pome_status method_count(jrun *run, pome_str s, pome_str name, slots_t a, pome_jv *out)
{
    (void)name;
    pome_str what;
    int64_t n = 0;
    if (!a[0])
        return pome_jinja_fail(run, POME_ERR_ARG, "count wants a string");
    POME_TRY(pome_jinja_want_str(run, a[0], "count", &what));
    POME_TRY(pome_jinja_spend(run, s.len / 16));
    if (what.len == 0)
        n = (int64_t)pome_utf8_count(s.ptr, s.len) + 1;
    else
        for (size_t i = 0; (what.len <= s.len - i); n++) {
            const char *at = find(s, i, what);
            if (!at)
                break;
            i = (size_t)(at - s.ptr) + what.len;
        }
    *out = pome_jv_int(n);
    return POME_OK;
}

static bool in_class(pome_str name, uint32_t cp)
{
    if (pome_str_is(name, "isalpha"))
        return pome_cp_is_alpha(cp);
    if (pome_str_is(name, "isspace"))
        return strips(NULL, cp);
    if (pome_str_is(name, "isalnum"))
        return pome_cp_is_alpha(cp) || pome_cp_is_numeric(cp);
    return pome_cp_is_numeric(cp); /* isdigit, isdecimal, isnumeric; told apart only by superscripts and the like */
}

static pome_status method_is(jrun *run, pome_str s, pome_str name, slots_t a, pome_jv *out)
{
    (void)a;
    bool is_case = pome_str_is(name, "isupper") || pome_str_is(name, "islower"), any = false, all = true;
    for (size_t i = 0; i < s.len;) {
        uint32_t cp = 0;
        int n = pome_utf8_decode(s.ptr + i, s.len - i, &cp, NULL);
        i += (size_t)abs(n);
        if (is_case) {
            bool wanted = name.ptr[2] == 'u' ? pome_cp_is_upper(cp) : pome_cp_is_lower(cp);
            any |= wanted;
            all &= wanted || !is_cased(cp);
        } else {
            any = true;
            all &= in_class(name, cp);
        }
    }
    *out = pome_jv_bool(any && all);
    return pome_jinja_spend(run, s.len / 16);
}

static pome_status method_justify(jrun *run, pome_str s, pome_str name, slots_t a, pome_jv *out)
{
    int64_t width;
    pome_str fill = {" ", 1};
    if (!a[0])
        return pome_jinja_fail(run, POME_ERR_ARG, "%.*s wants a width", (int)name.len, name.ptr);
    POME_TRY(pome_jinja_want_int(run, a[0], "a width", &width));
    if (a[1])
        POME_TRY(pome_jinja_want_str(run, a[1], "a fill", &fill));
    int64_t n = (int64_t)pome_utf8_count(s.ptr, s.len), missing = width > n ? width - n : 0;
    if ((uint64_t)missing > run->output_limit / 4)
        return pome_jinja_fail(run, POME_ERR_LIMIT, "a string is longer than %zu bytes", run->output_limit);
    bool zero = name.ptr[0] == 'z', centered = name.ptr[0] == 'c', sign = zero && s.len && strchr("+-", s.ptr[0]);
    int64_t left = name.ptr[0] == 'l' ? 0 : centered ? missing / 2 + (missing & width & 1) : missing;
    pome_strbuf b = {.limit = run->output_limit};
    if (sign)
        pome_strbuf_putc(&b, s.ptr[0]);
    for (int64_t i = 0; i < left; i++)
        pome_strbuf_append(&b, zero ? "0" : fill.ptr, zero ? 1 : fill.len);
    pome_strbuf_append(&b, s.ptr + sign, s.len - sign);
    for (int64_t i = left; i < missing; i++)
        pome_strbuf_append(&b, fill.ptr, fill.len);
    return pome_jv_take(run, &b, out);
}

static pome_status method_partition(jrun *run, pome_str s, pome_str name, slots_t a, pome_jv *out)
{
    pome_str what;
    bool right = name.ptr[0] == 'r';
    if (!a[0])
        return pome_jinja_fail(run, POME_ERR_ARG, "partition wants a string");
    POME_TRY(pome_jinja_want_str(run, a[0], "partition", &what));
    if (what.len == 0)
        return pome_jinja_fail(run, POME_ERR_ARG, "partition with an empty separator");
    const char *at = right ? find_last(s, what) : find(s, 0, what);
    POME_TRY(pome_jv_new_list(run, POME_JV_TUPLE, 3, out));
    size_t begin = at ? (size_t)(at - s.ptr) : right ? 0 : s.len, skip = at ? what.len : 0;
    POME_TRY(push_str(run, out, s.ptr, begin));
    POME_TRY(push_str(run, out, s.ptr + begin, skip));
    return push_str(run, out, s.ptr + begin + skip, s.len - begin - skip);
}

typedef pome_status string_method(jrun *run, pome_str s, pome_str name, slots_t a, pome_jv *out);

static const struct {
    const char *name;
    string_method *call;
    const char *parameters;
} string_methods[] = {
    {"strip", method_strip, "chars"},
    {"lstrip", method_strip, "chars"},
    {"rstrip", method_strip, "chars"},
    {"split", method_split, "sep maxsplit"},
    {"rsplit", method_split, "sep maxsplit"},
    {"splitlines", method_splitlines, "keepends"},
    {"startswith", method_affix, "prefix start"},
    {"endswith", method_affix, "suffix start"},
    {"upper", method_case, ""},
    {"lower", method_case, ""},
    {"casefold", method_case, ""},
    {"title", method_case, ""},
    {"capitalize", method_case, ""},
    {"swapcase", method_case, ""},
    {"replace", method_replace, "old new count"},
    {"join", method_join, "iterable"},
    {"find", method_find, "sub start"},
    {"rfind", method_find, "sub start"},
    {"index", method_find, "sub start"},
    {"rindex", method_find, "sub start"},
    {"count", method_count, "sub"},
    {"isdigit", method_is, ""},
    {"isdecimal", method_is, ""},
    {"isnumeric", method_is, ""},
    {"isalpha", method_is, ""},
    {"isalnum", method_is, ""},
    {"isspace", method_is, ""},
    {"isupper", method_is, ""},
    {"islower", method_is, ""},
    {"zfill", method_justify, "width"},
    {"ljust", method_justify, "width fillchar"},
    {"rjust", method_justify, "width fillchar"},
    {"center", method_justify, "width fillchar"},
    {"removeprefix", method_remove, "prefix"},
    {"removesuffix", method_remove, "suffix"},
    {"partition", method_partition, "sep"},
    {"rpartition", method_partition, "sep"},
    {"format", NULL, ""},
    {"encode", NULL, ""},
    {"expandtabs", NULL, ""},
    {"format_map", NULL, ""},
    {"isascii", NULL, ""},
    {"isidentifier", NULL, ""},
    {"isprintable", NULL, ""},
    {"istitle", NULL, ""},
    {"translate", NULL, ""},
};

/* ---- methods of lists and dicts ---- */

static pome_status list_method(jrun *run, const pome_jv *self, pome_str name, slots_t a, pome_jv *out)
{
    int64_t n = 0;
    if (pome_str_is(name, "copy")) {
        POME_TRY(pome_jv_new_list(run, self->type, self->u.list->n, out));
        for (size_t i = 0; i < self->u.list->n; i++)
            POME_TRY(pome_jv_push(run, out, &self->u.list->items[i]));
        return POME_OK;
    }
    if (!a[0])
        return pome_jinja_fail(run, POME_ERR_ARG, "%.*s wants a value", (int)name.len, name.ptr);
    for (size_t i = 0; i < self->u.list->n; i++) {
        bool same;
        POME_TRY(pome_jv_equal(run, &self->u.list->items[i], a[0], &same));
        n += same;
        if (same && pome_str_is(name, "index")) {
            *out = pome_jv_int((int64_t)i);
            return POME_OK;
        }
    }
    if (pome_str_is(name, "index"))
        return pome_jinja_fail(run, POME_ERR_ARG, "the value is not in the list");
    *out = pome_jv_int(n);
    return POME_OK;
}

static pome_status dict_method(jrun *run, const pome_jv *self, pome_str name, slots_t a, pome_jv *out)
{
    const pome_jv_dict *d = self->u.dict;
    if (pome_str_is(name, "get")) {
        if (!a[0])
            return pome_jinja_fail(run, POME_ERR_ARG, "get wants a key");
        const pome_jv *found = pome_jv_dict_find(d, a[0]);
        *out = found ? *found : a[1] ? *a[1] : pome_jv_none();
        return pome_jinja_spend(run, d->n / 8);
    }
    if (pome_str_is(name, "copy")) {
        POME_TRY(pome_jv_new_dict(run, POME_JV_DICT, out));
        for (size_t i = 0; i < d->n; i++)
            POME_TRY(pome_jv_dict_set(run, out, &d->keys[i], &d->values[i]));
        return POME_OK;
    }
    POME_TRY(pome_jv_new_list(run, POME_JV_LIST, d->n, out));
    for (size_t i = 0; i < d->n; i++) {
        pome_jv item = pome_str_is(name, "keys") ? d->keys[i] : d->values[i];
        if (pome_str_is(name, "items"))
            POME_TRY(pome_jv_pair(run, &d->keys[i], &d->values[i], &item));
        POME_TRY(pome_jv_push(run, out, &item));
    }
    return POME_OK;
}

static bool in_names(const char *list, pome_str name)
{
    for (const char *s = list; *s;) {
        size_t n = strcspn(s, " ");
        if (n == name.len && memcmp(s, name.ptr, n) == 0)
            return true;
        s += n + (s[n] == ' ');
    }
    return false;
}

/* The sandbox lets no template change a value. */
static const char list_changers[] = "append clear extend insert pop remove reverse sort";
static const char dict_changers[] = "clear pop popitem setdefault update";

bool pome_jinja_has_method(const pome_jv *self, pome_str name)
{
    switch (self->type) {
    case POME_JV_STR:
        for (size_t i = 0; i < sizeof string_methods / sizeof *string_methods; i++)
            if (pome_str_is(name, string_methods[i].name))
                return true;
        return false;
    case POME_JV_LIST:
        return in_names("index count copy", name) || in_names(list_changers, name);
    case POME_JV_TUPLE:
        return in_names("index count", name);
    case POME_JV_DICT:
        return in_names("get items keys values copy", name) || in_names(dict_changers, name);
    default:
        return false;
    }
}

pome_status pome_jinja_call_method(pome_jinja_run *run, const pome_jv *self, pome_str name,
                                   const pome_jinja_args *args, pome_jv *out)
{
    const pome_jv *slots[POME_JINJA_PARAMETERS_MAX];
    if (self->type == POME_JV_STR) {
        for (size_t i = 0; i < sizeof string_methods / sizeof *string_methods; i++) {
            if (!pome_str_is(name, string_methods[i].name))
                continue;
            if (!string_methods[i].call)
                return pome_jinja_fail(run, POME_ERR_UNSUPPORTED, "the string method %.*s is not supported",
                                       (int)name.len, name.ptr);
            POME_TRY(pome_jinja_bind(run, name, args, string_methods[i].parameters, slots));
            return string_methods[i].call(run, self->u.s, name, slots, out);
        }
    }
    if (in_names(self->type == POME_JV_DICT ? dict_changers : list_changers, name))
        return pome_jinja_fail(run, POME_ERR_ARG, "a template may not change a value with %.*s", (int)name.len,
                               name.ptr);
    if (self->type == POME_JV_DICT) {
        bool is_get = pome_str_is(name, "get");
        POME_TRY(pome_jinja_bind(run, name, args, is_get ? "key default" : "", slots));
        return dict_method(run, self, name, slots, out);
    }
    POME_TRY(pome_jinja_bind(run, name, args, pome_str_is(name, "copy") ? "" : "value", slots));
    return list_method(run, self, name, slots, out);
}
