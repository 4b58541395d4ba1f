/* Filters that walk a list. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/jinja_filters.h"
#include "text/utf8.h"

/* "a.b.0" or an integer: attributes and items, one after the other. */
static pome_status get_path(jrun *run, const pome_jv *v, const pome_jv *path, pome_jv *out)
{
    *out = *v;
    if (path->type != POME_JV_STR)
        return pome_jinja_getitem(run, v, path, out);
    pome_str s = path->u.s;
    for (;;) {
        const char *dot = s.len ? memchr(s.ptr, '.', s.len) : NULL;
        pome_str part = {s.ptr, dot ? (size_t)(dot - s.ptr) : s.len};
        pome_jv key = pome_jv_str(part), next;
        bool digits = part.len > 0 && part.len < 10;
        int64_t number = 0;
        for (size_t i = 0; i < part.len && digits; i++) {
            digits = part.ptr[i] >= '0' && part.ptr[i] <= '9';
            number = number * 10 + part.ptr[i] - '0';
        }
        if (digits)
            key = pome_jv_int(number);
        POME_TRY(pome_jinja_getitem(run, out, &key, &next));
        *out = next;
        if (!dot)
            return POME_OK;
        s = (pome_str){dot + 1, s.len - part.len - 1};
    }
}

/* What an item is ordered by: its attribute, in lower case unless case counts. */
static pome_status sort_key(jrun *run, const pome_jv *item, const pome_jv *attribute, bool case_sensitive, pome_jv *out)
{
    *out = *item;
    if (attribute && attribute->type != POME_JV_NONE)
        POME_TRY(get_path(run, item, attribute, out));
    if (!case_sensitive && out->type == POME_JV_STR)
        return pome_jinja_change_case(run, out->u.s, POME_CASE_LOWER, out);
    return POME_OK;
}

/* Stable merge sort of indices by keys. */
static pome_status sort_range(jrun *run, const pome_jv *keys, size_t *order, size_t *scratch, size_t n, bool reverse)
{
    if (n < 2)
        return POME_OK;
    size_t half = n / 2, i = 0, k = half, m = 0;
    POME_TRY(sort_range(run, keys, order, scratch, half, reverse));
    POME_TRY(sort_range(run, keys, order + half, scratch, n - half, reverse));
    while (i < half && k < n) {
        int c;
        POME_TRY(pome_jv_compare(run, &keys[order[i]], &keys[order[k]], &c));
        bool right_first = reverse ? c < 0 : c == 1;
        scratch[m++] = right_first ? order[k++] : order[i++];
    }
    while (i < half)
        scratch[m++] = order[i++];
    memcpy(order, scratch, m * sizeof *order);
    return POME_OK;
}

static pome_status sorted(jrun *run, const pome_jv *list, const pome_jv *keys, bool reverse, pome_jv *out)
{
    size_t n = list->u.list->n;
    size_t *order = POME_NEW_ARRAY(run->arena, size_t, n), *scratch = POME_NEW_ARRAY(run->arena, size_t, n);
    if (!order || !scratch)
        return pome_jinja_nomem(run);
    for (size_t i = 0; i < n; i++)
        order[i] = i;
    POME_TRY(sort_range(run, keys, order, scratch, n, reverse));
    POME_TRY(pome_jv_new_list(run, POME_JV_LIST, n, out));
    for (size_t i = 0; i < n; i++)
        POME_TRY(pome_jv_push(run, out, &list->u.list->items[order[i]]));
    return POME_OK;
}

static pome_status sort_by(jrun *run, const pome_jv *list, const pome_jv *attribute, bool case_sensitive, bool reverse,
                           pome_jv *out)
{
    pome_jv keys, key;
    POME_TRY(pome_jv_new_list(run, POME_JV_LIST, list->u.list->n, &keys));
    for (size_t i = 0; i < list->u.list->n; i++) {
        POME_TRY(sort_key(run, &list->u.list->items[i], attribute, case_sensitive, &key));
        POME_TRY(pome_jv_push(run, &keys, &key));
    }
    return sorted(run, list, keys.u.list->items, reverse, out);
}

static bool flag(const pome_jv *v)
{
    return v && pome_jv_truth(v);
}

static pome_status filter_sort(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    pome_jv list;
    POME_TRY(pome_jv_iterate(run, v, &list));
    return sort_by(run, &list, a[2], flag(a[1]), flag(a[0]), out);
}

static pome_status filter_dictsort(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    pome_jv items, by = pome_jv_int(0);
    pome_jinja_args no_args = {0};
    if (v->type != POME_JV_DICT)
        return pome_jinja_fail(run, POME_ERR_ARG, "dictsort of a %s", pome_jv_type_name(v));
    if (a[1] && a[1]->type == POME_JV_STR && pome_str_is(a[1]->u.s, "value"))
        by = pome_jv_int(1);
    POME_TRY(pome_jinja_call_method(run, v, pome_str_of("items"), &no_args, &items));
    return sort_by(run, &items, &by, flag(a[0]), flag(a[2]), out);
}

static pome_status filter_unique(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    pome_jv list, seen, key;
    POME_TRY(pome_jv_iterate(run, v, &list));
    POME_TRY(pome_jv_new_list(run, POME_JV_LIST, 0, &seen));
    POME_TRY(pome_jv_new_list(run, POME_JV_GENERATOR, 0, out));
    for (size_t i = 0; i < list.u.list->n; i++) {
        bool known;
        POME_TRY(sort_key(run, &list.u.list->items[i], a[1], flag(a[0]), &key));
        if (key.type == POME_JV_LIST || key.type == POME_JV_DICT)
            return pome_jinja_fail(run, POME_ERR_ARG, "unique of a %s", pome_jv_type_name(&key));
        POME_TRY(pome_jv_contains(run, &seen, &key, &known));
        if (known)
            continue;
        POME_TRY(pome_jv_push(run, &seen, &key));
        POME_TRY(pome_jv_push(run, out, &list.u.list->items[i]));
    }
    return POME_OK;
}

static pome_status extreme(jrun *run, const pome_jv *v, slots_t a, int wanted, pome_jv *out)
{
    pome_jv list, best, key;
    POME_TRY(pome_jv_iterate(run, v, &list));
    if (list.u.list->n == 0)
        return pome_jv_undefined(run, out, "No aggregated item, sequence was empty.");
    for (size_t i = 0; i < list.u.list->n; i++) {
        int c = wanted;
        POME_TRY(sort_key(run, &list.u.list->items[i], a[1], flag(a[0]), &key));
        if (i > 0)
            POME_TRY(pome_jv_compare(run, &key, &best, &c));
        if (c != wanted)
            continue;
        best = key;
        *out = list.u.list->items[i];
    }
    return POME_OK;
}

static pome_status filter_min(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    return extreme(run, v, a, -1, out);
}

static pome_status filter_max(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    return extreme(run, v, a, 1, out);
}

static pome_status filter_sum(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    pome_jv list, item;
    POME_TRY(pome_jv_iterate(run, v, &list));
    *out = a[1] ? *a[1] : pome_jv_int(0);
    for (size_t i = 0; i < list.u.list->n; i++) {
        item = list.u.list->items[i];
        if (a[0] && a[0]->type != POME_JV_NONE)
            POME_TRY(get_path(run, &list.u.list->items[i], a[0], &item));
        if (out->type == POME_JV_STR)
            return pome_jinja_fail(run, POME_ERR_ARG, "sum of strings");
        pome_jv total;
        POME_TRY(pome_jinja_binary(run, POME_JO_ADD, out, &item, &total));
        *out = total;
    }
    return POME_OK;
}

static pome_status filter_join(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    pome_jv list, mapped, item;
    pome_str separator = {"", 0};
    POME_TRY(pome_jv_iterate(run, v, &list));
    if (a[0])
        POME_TRY(pome_jv_to_str(run, a[0], &separator));
    if (!a[1] || a[1]->type == POME_JV_NONE)
        return pome_jinja_join(run, &list, separator, false, out);
    POME_TRY(pome_jv_new_list(run, POME_JV_LIST, 0, &mapped));
    for (size_t i = 0; i < list.u.list->n; i++) {
        POME_TRY(get_path(run, &list.u.list->items[i], a[1], &item));
        POME_TRY(pome_jv_push(run, &mapped, &item));
    }
    return pome_jinja_join(run, &mapped, separator, false, out);
}

static pome_status filter_first(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    (void)a;
    pome_jv list;
    POME_TRY(pome_jv_iterate(run, v, &list));
    if (list.u.list->n == 0)
        return pome_jv_undefined(run, out, "No first item, sequence was empty.");
    *out = list.u.list->items[0];
    return POME_OK;
}

static pome_status filter_last(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    (void)a;
    pome_jv list;
    if (v->type == POME_JV_GENERATOR)
        return pome_jinja_fail(run, POME_ERR_ARG, "last of a generator (use list first)");
    POME_TRY(pome_jv_iterate(run, v, &list));
    if (list.u.list->n == 0)
        return pome_jv_undefined(run, out, "No last item, sequence was empty.");
    *out = list.u.list->items[list.u.list->n - 1];
    return POME_OK;
}

static pome_status copy_list(jrun *run, const pome_jv *list, bool reverse, pome_jv_type type, pome_jv *out)
{
    size_t n = list->u.list->n;
    POME_TRY(pome_jv_new_list(run, type, n, out));
    for (size_t i = 0; i < n; i++)
        POME_TRY(pome_jv_push(run, out, &list->u.list->items[reverse ? n - 1 - i : i]));
    return POME_OK;
}

static pome_status filter_list(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    (void)a;
    pome_jv list;
    POME_TRY(pome_jv_iterate(run, v, &list));
    return copy_list(run, &list, false, POME_JV_LIST, out);
}

static pome_status filter_reverse(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    (void)a;
    pome_jv list, reversed;
    POME_TRY(pome_jv_iterate(run, v, &list));
    POME_TRY(copy_list(run, &list, true, POME_JV_GENERATOR, &reversed));
    *out = reversed;
    return v->type == POME_JV_STR ? pome_jinja_join(run, &reversed, (pome_str){"", 0}, false, out) : POME_OK;
}

static pome_status filter_items(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    (void)a;
    pome_jinja_args no_args = {0};
    if (v->type == POME_JV_UNDEFINED)
        return pome_jv_new_list(run, POME_JV_GENERATOR, 0, out);
    if (v->type != POME_JV_DICT)
        return pome_jinja_fail(run, POME_ERR_ARG, "items of a %s", pome_jv_type_name(v));
    POME_TRY(pome_jinja_call_method(run, v, pome_str_of("items"), &no_args, out));
    out->type = POME_JV_GENERATOR;
    return POME_OK;
}

/* Rows of n items, the last one filled up if there is a filling. */
static pome_status filter_batch(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    pome_jv list, row;
    int64_t n;
    if (!a[0])
        return pome_jinja_fail(run, POME_ERR_ARG, "batch wants a count");
    POME_TRY(pome_jinja_want_int(run, a[0], "batch", &n));
    POME_TRY(pome_jv_iterate(run, v, &list));
    if (n < 1 || n > 100000)
        return pome_jinja_fail(run, POME_ERR_ARG, "batch of %lld", (long long)n);
    POME_TRY(pome_jv_new_list(run, POME_JV_GENERATOR, 0, out));
    for (size_t i = 0; i < list.u.list->n; i++) {
        if (i % (size_t)n == 0) {
            POME_TRY(pome_jv_new_list(run, POME_JV_LIST, 0, &row));
            POME_TRY(pome_jv_push(run, out, &row));
        }
        POME_TRY(pome_jv_push(run, &row, &list.u.list->items[i]));
    }
    while (a[1] && a[1]->type != POME_JV_NONE && list.u.list->n > 0 && (int64_t)row.u.list->n < n)
        POME_TRY(pome_jv_push(run, &row, a[1]));
    return POME_OK;
}

/* n columns of nearly equal length. */
static pome_status filter_slice(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    pome_jv list, column;
    int64_t n;
    if (!a[0])
        return pome_jinja_fail(run, POME_ERR_ARG, "slice wants a count");
    POME_TRY(pome_jinja_want_int(run, a[0], "slice", &n));
    POME_TRY(pome_jv_iterate(run, v, &list));
    if (n < 1 || n > 100000)
        return pome_jinja_fail(run, POME_ERR_ARG, "slice into %lld", (long long)n);
    size_t each = list.u.list->n / (size_t)n, extra = list.u.list->n % (size_t)n, at = 0;
    POME_TRY(pome_jv_new_list(run, POME_JV_GENERATOR, 0, out));
    for (size_t i = 0; i < (size_t)n; i++) {
        POME_TRY(pome_jv_new_list(run, POME_JV_LIST, 0, &column));
        for (size_t k = 0; k < each + (i < extra); k++)
            POME_TRY(pome_jv_push(run, &column, &list.u.list->items[at++]));
        if (a[1] && a[1]->type != POME_JV_NONE && i >= extra)
            POME_TRY(pome_jv_push(run, &column, a[1]));
        POME_TRY(pome_jv_push(run, out, &column));
    }
    return POME_OK;
}

static pome_status group_key(jrun *run, const pome_jv *item, slots_t a, pome_jv *out)
{
    POME_TRY(get_path(run, item, a[0], out));
    if (out->type == POME_JV_UNDEFINED && a[1])
        *out = *a[1];
    return POME_OK;
}

/* Pairs (key, items), ordered by key. */
static pome_status filter_groupby(jrun *run, const pome_jv *v, slots_t a, pome_jv *out)
{
    pome_jv list, keys, key, ordered, group, previous = pome_jv_none(), pair;
    bool case_sensitive = flag(a[2]);
    if (!a[0])
        return pome_jinja_fail(run, POME_ERR_ARG, "groupby wants an attribute");
    POME_TRY(pome_jv_iterate(run, v, &list));
    POME_TRY(pome_jv_new_list(run, POME_JV_LIST, 0, &keys));
    for (size_t i = 0; i < list.u.list->n; i++) {
        POME_TRY(group_key(run, &list.u.list->items[i], a, &key));
        POME_TRY(sort_key(run, &key, NULL, case_sensitive, &key));
        POME_TRY(pome_jv_push(run, &keys, &key));
    }
    POME_TRY(sorted(run, &list, keys.u.list->items, false, &ordered));
    POME_TRY(pome_jv_new_list(run, POME_JV_LIST, 0, out));
    for (size_t i = 0; i < ordered.u.list->n; i++) {
        pome_jv own;
        bool same = false;
        POME_TRY(group_key(run, &ordered.u.list->items[i], a, &own));
        POME_TRY(sort_key(run, &own, NULL, case_sensitive, &key));
        if (i > 0)
            POME_TRY(pome_jv_equal(run, &key, &previous, &same));
        if (!same) {
            POME_TRY(pome_jv_new_list(run, POME_JV_LIST, 0, &group));
            POME_TRY(pome_jv_pair(run, &own, &group, &pair));
            POME_TRY(pome_jv_push(run, out, &pair));
        }
        POME_TRY(pome_jv_push(run, &group, &ordered.u.list->items[i]));
        previous = key;
    }
    return POME_OK;
}

static const pome_jinja_filter_row rows[] = {
    {"sort", filter_sort, "reverse case_sensitive attribute"},
    {"dictsort", filter_dictsort, "case_sensitive by reverse"},
    {"unique", filter_unique, "case_sensitive attribute"},
    {"min", filter_min, "case_sensitive attribute"},
    {"max", filter_max, "case_sensitive attribute"},
    {"sum", filter_sum, "attribute start"},
    {"join", filter_join, "d attribute"},
    {"first", filter_first, ""},
    {"last", filter_last, ""},
    {"list", filter_list, ""},
    {"reverse", filter_reverse, ""},
    {"items", filter_items, ""},
    {"batch", filter_batch, "linecount fill_with"},
    {"slice", filter_slice, "slices fill_with"},
    {"groupby", filter_groupby, "attribute default case_sensitive"},
};

const pome_jinja_filter_row *pome_jinja_find_list_filter(pome_str name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (pome_str_is(name, rows[i].name))
            return &rows[i];
    return NULL;
}

static pome_status map_attribute(jrun *run, const pome_jv *list, const pome_jinja_args *args, pome_jv *out)
{
    const pome_jv *attribute = NULL, *fallback = NULL;
    for (size_t i = 0; i < args->n_named; i++) {
        if (pome_str_is(args->names[i], "attribute"))
            attribute = &args->named[i];
        else if (pome_str_is(args->names[i], "default"))
            fallback = &args->named[i];
        else
            return pome_jinja_fail(run, POME_ERR_ARG, "map has no argument %.*s", (int)args->names[i].len,
                                   args->names[i].ptr);
    }
    if (!attribute)
        return pome_jinja_fail(run, POME_ERR_ARG, "map wants a filter or an attribute");
    for (size_t i = 0; i < list->u.list->n; i++) {
        pome_jv item;
        POME_TRY(get_path(run, &list->u.list->items[i], attribute, &item));
        if (item.type == POME_JV_UNDEFINED && fallback)
            item = *fallback;
        POME_TRY(pome_jv_push(run, out, &item));
    }
    return POME_OK;
}

static pome_status map_filter(jrun *run, const pome_jv *list, const pome_jinja_args *args, pome_jv *out)
{
    pome_str name;
    pome_jinja_args rest = *args;
    POME_TRY(pome_jinja_want_str(run, &args->items[0], "map", &name));
    rest.items++;
    rest.n--;
    for (size_t i = 0; i < list->u.list->n; i++) {
        pome_jv item;
        POME_TRY(pome_jinja_filter(run, name, &list->u.list->items[i], &rest, &item));
        POME_TRY(pome_jv_push(run, out, &item));
    }
    return POME_OK;
}

pome_status pome_jinja_open_filter(jrun *run, pome_str name, const pome_jv *input, const pome_jinja_args *args,
                                   pome_jv *out)
{
    pome_jv list;
    POME_TRY(pome_jv_new_list(run, POME_JV_GENERATOR, 0, out));
    if (!pome_jv_truth(input)) /* none, false and 0 are as good as an empty list */
        return POME_OK;
    POME_TRY(pome_jv_iterate(run, input, &list));
    if (pome_str_is(name, "map"))
        return args->n == 0 ? map_attribute(run, &list, args, out) : map_filter(run, &list, args, out);
    bool by_attribute = name.ptr[name.len - 1] == 'r', wanted = name.ptr[0] == 's';
    pome_jinja_args rest = *args;
    const pome_jv *attribute = by_attribute && rest.n > 0 ? rest.items : NULL;
    if (by_attribute && !attribute)
        return pome_jinja_fail(run, POME_ERR_ARG, "%.*s wants an attribute", (int)name.len, name.ptr);
    if (by_attribute) {
        rest.items++;
        rest.n--;
    }
    pome_str test = {NULL, 0};
    if (rest.n > 0) {
        POME_TRY(pome_jinja_want_str(run, rest.items, "a test", &test));
        rest.items++;
        rest.n--;
    }
    for (size_t i = 0; i < list.u.list->n; i++) {
        pome_jv value = list.u.list->items[i];
        if (attribute)
            POME_TRY(get_path(run, &list.u.list->items[i], attribute, &value));
        bool holds = pome_jv_truth(&value);
        if (test.ptr)
            POME_TRY(pome_jinja_test(run, test, &value, &rest, &holds));
        if (holds == wanted)
            POME_TRY(pome_jv_push(run, out, &list.u.list->items[i]));
    }
    return POME_OK;
}
