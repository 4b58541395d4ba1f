#include "text/jinja_value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "text/utf8.h"

pome_status pome_jinja_fail(pome_jinja_run *run, pome_status code, const char *fmt, ...)
{
    char message[768];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    return pome_fail(run->err, code, "line %d: %s", run->line, message);
}

pome_status pome_jinja_nomem(pome_jinja_run *run)
{
    return pome_jinja_fail(run, POME_ERR_LIMIT, "the template's values need too much memory");
}

pome_status pome_jinja_spend(pome_jinja_run *run, uint64_t steps)
{
    if (steps > run->steps_left)
        return pome_jinja_fail(run, POME_ERR_LIMIT, "the template takes too many steps");
    run->steps_left -= steps;
    return POME_OK;
}

pome_status pome_jv_copy_str(pome_jinja_run *run, const char *s, size_t len, pome_jv *out)
{
    char *copy = pome_arena_strndup(run->arena, s ? s : "", len);
    if (!copy)
        return pome_jinja_nomem(run);
    *out = pome_jv_str((pome_str){copy, len});
    return pome_jinja_spend(run, len / 64);
}

pome_status pome_jv_undefined(pome_jinja_run *run, pome_jv *out, const char *fmt, ...)
{
    char message[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    POME_TRY(pome_jv_copy_str(run, message, strlen(message), out));
    out->type = POME_JV_UNDEFINED;
    return POME_OK;
}

pome_status pome_jv_take(pome_jinja_run *run, pome_strbuf *b, pome_jv *out)
{
    pome_status status = b->failed ? pome_jinja_nomem(run) : pome_jv_copy_str(run, b->data, b->len, out);
    pome_strbuf_reset(b);
    return status;
}

pome_status pome_jv_new_list(pome_jinja_run *run, pome_jv_type type, size_t cap, pome_jv *out)
{
    pome_jv_list *list = POME_NEW(run->arena, pome_jv_list);
    if (!list)
        return pome_jinja_nomem(run);
    if (cap > 0 && !(list->items = POME_NEW_ARRAY(run->arena, pome_jv, cap)))
        return pome_jinja_nomem(run);
    list->cap = cap;
    *out = (pome_jv){.type = type, .u.list = list};
    return POME_OK;
}

pome_status pome_jv_push(pome_jinja_run *run, pome_jv *list, const pome_jv *item)
{
    pome_jv_list *l = list->u.list;
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 4;
        pome_jv *items = POME_NEW_ARRAY(run->arena, pome_jv, cap);
        if (!items)
            return pome_jinja_nomem(run);
        if (l->n > 0)
            memcpy(items, l->items, l->n * sizeof *items);
        l->items = items;
        l->cap = cap;
    }
    l->items[l->n++] = *item;
    return pome_jinja_spend(run, 1);
}

pome_status pome_jv_pair(pome_jinja_run *run, const pome_jv *a, const pome_jv *b, pome_jv *out)
{
    POME_TRY(pome_jv_new_list(run, POME_JV_TUPLE, 2, out));
    POME_TRY(pome_jv_push(run, out, a));
    return pome_jv_push(run, out, b);
}

pome_status pome_jv_new_dict(pome_jinja_run *run, pome_jv_type type, pome_jv *out)
{
    pome_jv_dict *dict = POME_NEW(run->arena, pome_jv_dict);
    if (!dict)
        return pome_jinja_nomem(run);
    *out = (pome_jv){.type = type, .u.dict = dict};
    return POME_OK;
}

static bool keys_equal(const pome_jv *a, const pome_jv *b)
{
    if (a->type == POME_JV_STR || b->type == POME_JV_STR)
        return a->type == b->type && pome_str_eq(a->u.s, b->u.s);
    if (a->type == POME_JV_NONE || b->type == POME_JV_NONE)
        return a->type == b->type;
    if (!pome_jv_is_number(a) || !pome_jv_is_number(b))
        return false;
    double x = a->type == POME_JV_FLOAT ? a->u.f : a->type == POME_JV_INT ? (double)a->u.i : a->u.b;
    double y = b->type == POME_JV_FLOAT ? b->u.f : b->type == POME_JV_INT ? (double)b->u.i : b->u.b;
    return x == y && (a->type != POME_JV_INT || b->type != POME_JV_INT || a->u.i == b->u.i);
}

const pome_jv *pome_jv_dict_find(const pome_jv_dict *dict, const pome_jv *key)
{
    for (size_t i = 0; i < dict->n; i++)
        if (keys_equal(&dict->keys[i], key))
            return &dict->values[i];
    return NULL;
}

const pome_jv *pome_jv_dict_find_str(const pome_jv_dict *dict, pome_str key)
{
    for (size_t i = 0; i < dict->n; i++)
        if (dict->keys[i].type == POME_JV_STR && pome_str_eq(dict->keys[i].u.s, key))
            return &dict->values[i];
    return NULL;
}

static pome_status dict_append(pome_jinja_run *run, pome_jv_dict *d, const pome_jv *key, const pome_jv *value)
{
    if (d->n == d->cap) {
        size_t cap = d->cap ? d->cap * 2 : 4;
        pome_jv *keys = POME_NEW_ARRAY(run->arena, pome_jv, cap);
        pome_jv *values = POME_NEW_ARRAY(run->arena, pome_jv, cap);
        if (!keys || !values)
            return pome_jinja_nomem(run);
        if (d->n > 0) {
            memcpy(keys, d->keys, d->n * sizeof *keys);
            memcpy(values, d->values, d->n * sizeof *values);
        }
        d->keys = keys;
        d->values = values;
        d->cap = cap;
    }
    d->keys[d->n] = *key;
    d->values[d->n++] = *value;
    return pome_jinja_spend(run, 1);
}

pome_status pome_jv_dict_set(pome_jinja_run *run, pome_jv *dict, const pome_jv *key, const pome_jv *value)
{
    if (key->type != POME_JV_STR && key->type != POME_JV_NONE && !pome_jv_is_number(key))
        return pome_jinja_fail(run, POME_ERR_ARG, "a %s cannot be the key of a dict", pome_jv_type_name(key));
    POME_TRY(pome_jinja_spend(run, dict->u.dict->n / 8));
    pome_jv *found = (pome_jv *)pome_jv_dict_find(dict->u.dict, key);
    if (found) {
        *found = *value;
        return POME_OK;
    }
    return dict_append(run, dict->u.dict, key, value);
}

static pome_status from_json(pome_jinja_run *run, const json_t *json, int depth, pome_jv *out)
{
    if (depth > POME_JV_DEPTH_MAX)
        return pome_jinja_fail(run, POME_ERR_LIMIT, "a value is nested more than %d deep", POME_JV_DEPTH_MAX);
    switch (json_typeof(json)) {
    case JSON_NULL:
        *out = pome_jv_none();
        return POME_OK;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = pome_jv_bool(json_is_true(json));
        return POME_OK;
    case JSON_INTEGER:
        *out = pome_jv_int(json_integer_value(json));
        return POME_OK;
    case JSON_REAL:
        *out = pome_jv_float(json_real_value(json));
        return POME_OK;
    case JSON_STRING:
        *out = pome_jv_str((pome_str){json_string_value(json), json_string_length(json)});
        return POME_OK;
    case JSON_ARRAY:
        POME_TRY(pome_jv_new_list(run, POME_JV_LIST, json_array_size(json), out));
        for (size_t i = 0; i < json_array_size(json); i++) {
            pome_jv item;
            POME_TRY(from_json(run, json_array_get(json, i), depth + 1, &item));
            POME_TRY(pome_jv_push(run, out, &item));
        }
        return POME_OK;
    case JSON_OBJECT:
        break;
    }
    POME_TRY(pome_jv_new_dict(run, POME_JV_DICT, out));
    for (void *i = json_object_iter((json_t *)json); i; i = json_object_iter_next((json_t *)json, i)) {
        pome_jv key = pome_jv_str((pome_str){json_object_iter_key(i), json_object_iter_key_len(i)}), value;
        POME_TRY(from_json(run, json_object_iter_value(i), depth + 1, &value));
        POME_TRY(dict_append(run, out->u.dict, &key, &value));
    }
    return POME_OK;
}

pome_status pome_jv_from_json(pome_jinja_run *run, const json_t *json, pome_jv *out)
{
    return from_json(run, json, 0, out);
}

bool pome_jv_truth(const pome_jv *v)
{
    switch (v->type) {
    case POME_JV_UNDEFINED:
    case POME_JV_NONE:
        return false;
    case POME_JV_BOOL:
        return v->u.b;
    case POME_JV_INT:
        return v->u.i != 0;
    case POME_JV_FLOAT:
        return v->u.f != 0;
    case POME_JV_STR:
        return v->u.s.len > 0;
    case POME_JV_LIST:
    case POME_JV_TUPLE:
        return v->u.list->n > 0;
    case POME_JV_DICT:
        return v->u.dict->n > 0;
    default:
        return true;
    }
}

const char *pome_jv_type_name(const pome_jv *v)
{
    static const char *const names[] = {"Undefined", "NoneType", "bool",      "int",  "float",
                                        "str",       "list",     "tuple",     "generator", "dict",
                                        "Namespace", "function", "method",    "Macro", "LoopContext"};
    return names[v->type];
}

pome_status pome_jv_check_defined(pome_jinja_run *run, const pome_jv *v)
{
    if (v->type != POME_JV_UNDEFINED)
        return POME_OK;
    return pome_jinja_fail(run, POME_ERR_ARG, "%.*s", (int)v->u.s.len, v->u.s.ptr);
}

/* Exact also where an int has no double. */
static int compare_numbers(const pome_jv *a, const pome_jv *b)
{
    int64_t i = a->type == POME_JV_BOOL ? a->u.b : a->u.i, k = b->type == POME_JV_BOOL ? b->u.b : b->u.i;
    if (a->type != POME_JV_FLOAT && b->type != POME_JV_FLOAT)
        return i < k ? -1 : i > k;
    double x = a->type == POME_JV_FLOAT ? a->u.f : (double)i, y = b->type == POME_JV_FLOAT ? b->u.f : (double)k;
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2; /* 2: not a number */
}

static pome_status equal(pome_jinja_run *run, const pome_jv *a, const pome_jv *b, int depth, bool *out);

static pome_status equal_dicts(pome_jinja_run *run, const pome_jv_dict *a, const pome_jv_dict *b, int depth, bool *out)
{
    *out = a->n == b->n;
    for (size_t i = 0; i < a->n && *out; i++) {
        POME_TRY(pome_jinja_spend(run, 1 + b->n / 8));
        const pome_jv *other = pome_jv_dict_find(b, &a->keys[i]);
        if (!other)
            *out = false;
        else
            POME_TRY(equal(run, &a->values[i], other, depth + 1, out));
    }
    return POME_OK;
}

static pome_status equal(pome_jinja_run *run, const pome_jv *a, const pome_jv *b, int depth, bool *out)
{
    if (depth > POME_JV_DEPTH_MAX)
        return pome_jinja_fail(run, POME_ERR_LIMIT, "a value is nested more than %d deep", POME_JV_DEPTH_MAX);
    POME_TRY(pome_jinja_spend(run, 1));
    if (pome_jv_is_number(a) && pome_jv_is_number(b)) {
        *out = compare_numbers(a, b) == 0;
        return POME_OK;
    }
    *out = false;
    if (a->type != b->type)
        return POME_OK;
    switch (a->type) {
    case POME_JV_UNDEFINED:
    case POME_JV_NONE:
        *out = true;
        return POME_OK;
    case POME_JV_STR:
        *out = pome_str_eq(a->u.s, b->u.s);
        return pome_jinja_spend(run, a->u.s.len / 64);
    case POME_JV_LIST:
    case POME_JV_TUPLE:
        *out = a->u.list->n == b->u.list->n;
        for (size_t i = 0; i < a->u.list->n && *out; i++)
            POME_TRY(equal(run, &a->u.list->items[i], &b->u.list->items[i], depth + 1, out));
        return POME_OK;
    case POME_JV_DICT:
        return equal_dicts(run, a->u.dict, b->u.dict, depth, out);
    case POME_JV_FUNCTION:
        *out = pome_str_eq(a->u.s, b->u.s);
        return POME_OK;
    default:
        *out = a->u.list == b->u.list; /* the same object */
        return POME_OK;
    }
}

pome_status pome_jv_equal(pome_jinja_run *run, const pome_jv *a, const pome_jv *b, bool *out)
{
    return equal(run, a, b, 0, out);
}

static pome_status compare(pome_jinja_run *run, const pome_jv *a, const pome_jv *b, int depth, int *out)
{
    POME_TRY(pome_jv_check_defined(run, a));
    POME_TRY(pome_jv_check_defined(run, b));
    if (depth > POME_JV_DEPTH_MAX)
        return pome_jinja_fail(run, POME_ERR_LIMIT, "a value is nested more than %d deep", POME_JV_DEPTH_MAX);
    POME_TRY(pome_jinja_spend(run, 1));
    if (pome_jv_is_number(a) && pome_jv_is_number(b)) {
        *out = compare_numbers(a, b);
        return POME_OK;
    }
    if (a->type == POME_JV_STR && b->type == POME_JV_STR) {
        size_t n = a->u.s.len < b->u.s.len ? a->u.s.len : b->u.s.len;
        int order = n ? memcmp(a->u.s.ptr, b->u.s.ptr, n) : 0; /* byte order of UTF-8 is that of the characters */
        *out = order < 0 ? -1 : order > 0 ? 1 : a->u.s.len < b->u.s.len ? -1 : a->u.s.len > b->u.s.len;
        return pome_jinja_spend(run, n / 64);
    }
    if (a->type == b->type && (a->type == POME_JV_LIST || a->type == POME_JV_TUPLE)) {
        const pome_jv_list *x = a->u.list, *y = b->u.list;
        for (size_t i = 0; i < x->n && i < y->n; i++) {
            bool same;
            POME_TRY(equal(run, &x->items[i], &y->items[i], depth + 1, &same));
            if (!same)
                return compare(run, &x->items[i], &y->items[i], depth + 1, out);
        }
        *out = x->n < y->n ? -1 : x->n > y->n;
        return POME_OK;
    }
    return pome_jinja_fail(run, POME_ERR_ARG, "a %s and a %s have no order", pome_jv_type_name(a),
                           pome_jv_type_name(b));
}

pome_status pome_jv_compare(pome_jinja_run *run, const pome_jv *a, const pome_jv *b, int *out)
{
    return compare(run, a, b, 0, out);
}

pome_status pome_jv_contains(pome_jinja_run *run, const pome_jv *container, const pome_jv *item, bool *out)
{
    *out = false;
    switch (container->type) {
    case POME_JV_UNDEFINED:
        return POME_OK;
    case POME_JV_STR:
        if (item->type != POME_JV_STR)
            return pome_jinja_fail(run, POME_ERR_ARG, "a %s cannot be in a string", pome_jv_type_name(item));
        *out = item->u.s.len == 0 ||
               memmem(container->u.s.ptr, container->u.s.len, item->u.s.ptr, item->u.s.len) != NULL;
        return pome_jinja_spend(run, 1 + container->u.s.len / 64);
    case POME_JV_LIST:
    case POME_JV_TUPLE:
    case POME_JV_GENERATOR:
        for (size_t i = 0; i < container->u.list->n && !*out; i++)
            POME_TRY(pome_jv_equal(run, &container->u.list->items[i], item, out));
        return POME_OK;
    case POME_JV_DICT:
        if (item->type == POME_JV_LIST || item->type == POME_JV_DICT)
            return pome_jinja_fail(run, POME_ERR_ARG, "a %s cannot be the key of a dict", pome_jv_type_name(item));
        *out = pome_jv_dict_find(container->u.dict, item) != NULL;
        return pome_jinja_spend(run, 1 + container->u.dict->n / 8);
    default:
        return pome_jinja_fail(run, POME_ERR_ARG, "nothing can be in a %s", pome_jv_type_name(container));
    }
}

pome_status pome_jv_iterate(pome_jinja_run *run, const pome_jv *v, pome_jv *list)
{
    switch (v->type) {
    case POME_JV_LIST:
    case POME_JV_TUPLE:
    case POME_JV_GENERATOR:
        *list = *v;
        return POME_OK;
    case POME_JV_UNDEFINED:
        return pome_jv_new_list(run, POME_JV_LIST, 0, list);
    case POME_JV_DICT:
        POME_TRY(pome_jv_new_list(run, POME_JV_LIST, v->u.dict->n, list));
        for (size_t i = 0; i < v->u.dict->n; i++)
            POME_TRY(pome_jv_push(run, list, &v->u.dict->keys[i]));
        return POME_OK;
    case POME_JV_STR:
        POME_TRY(pome_jv_new_list(run, POME_JV_LIST, 0, list));
        for (size_t i = 0, n; i < v->u.s.len; i += n) {
            n = pome_utf8_len(v->u.s.ptr[i]);
            pome_jv item = pome_jv_str((pome_str){v->u.s.ptr + i, n < v->u.s.len - i ? n : v->u.s.len - i});
            POME_TRY(pome_jv_push(run, list, &item));
        }
        return POME_OK;
    default:
        return pome_jinja_fail(run, POME_ERR_ARG, "a %s cannot be looped over", pome_jv_type_name(v));
    }
}

pome_status pome_jv_length(pome_jinja_run *run, const pome_jv *v, size_t *out)
{
    switch (v->type) {
    case POME_JV_UNDEFINED:
        *out = 0;
        return POME_OK;
    case POME_JV_STR:
        *out = pome_utf8_count(v->u.s.ptr, v->u.s.len);
        return pome_jinja_spend(run, v->u.s.len / 64);
    case POME_JV_LIST:
    case POME_JV_TUPLE:
        *out = v->u.list->n;
        return POME_OK;
    case POME_JV_DICT:
        *out = v->u.dict->n;
        return POME_OK;
    default:
        return pome_jinja_fail(run, POME_ERR_ARG, "a %s has no length", pome_jv_type_name(v));
    }
}
