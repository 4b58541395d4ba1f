/* Attributes and items of values. */
#include "base/error.h"
#include "text/jinja_eval.h"

typedef pome_jinja_run jrun;

static pome_status loop_attribute(jrun *run, const pome_jinja_loop *loop, pome_str name, pome_jv *out)
{
    size_t i = loop->index, n = loop->items->n;
    if (pome_str_is(name, "index"))
        *out = pome_jv_int((int64_t)i + 1);
    else if (pome_str_is(name, "index0"))
        *out = pome_jv_int((int64_t)i);
    else if (pome_str_is(name, "revindex"))
        *out = pome_jv_int((int64_t)(n - i));
    else if (pome_str_is(name, "revindex0"))
        *out = pome_jv_int((int64_t)(n - i) - 1);
    else if (pome_str_is(name, "first"))
        *out = pome_jv_bool(i == 0);
    else if (pome_str_is(name, "last"))
        *out = pome_jv_bool(i + 1 == n);
    else if (pome_str_is(name, "length"))
        *out = pome_jv_int((int64_t)n);
    else if (pome_str_is(name, "depth"))
        *out = pome_jv_int(loop->depth);
    else if (pome_str_is(name, "depth0"))
        *out = pome_jv_int(loop->depth - 1);
    else if (pome_str_is(name, "previtem") && i > 0)
        *out = loop->items->items[i - 1];
    else if (pome_str_is(name, "nextitem") && i + 1 < n)
        *out = loop->items->items[i + 1];
    else
        return pome_jv_undefined(run, out, "there is no loop.%.*s here", (int)(name.len < 60 ? name.len : 60),
                                 name.ptr);
    return POME_OK;
}

static pome_status bind_method(jrun *run, const pome_jv *self, pome_str name, pome_jv *out)
{
    pome_jv_method *method = POME_NEW(run->arena, pome_jv_method);
    if (!method)
        return pome_jinja_nomem(run);
    *method = (pome_jv_method){*self, name};
    *out = (pome_jv){.type = POME_JV_METHOD, .u.method = method};
    return POME_OK;
}

static pome_status missing(jrun *run, const pome_jv *object, pome_str name, pome_jv *out)
{
    return pome_jv_undefined(run, out, "'%s%s' has no attribute '%.*s'",
                             object->type == POME_JV_NONE ? "None" : pome_jv_type_name(object),
                             object->type == POME_JV_NONE ? "" : " object", (int)(name.len < 100 ? name.len : 100),
                             name.ptr);
}

pome_status pome_jinja_getattr(pome_jinja_run *run, const pome_jv *object, pome_str name, pome_jv *out)
{
    POME_TRY(pome_jv_check_defined(run, object));
    POME_TRY(pome_jinja_spend(run, 1));
    if (object->type == POME_JV_LOOP) {
        if (pome_str_is(name, "cycle") || pome_str_is(name, "changed"))
            return bind_method(run, object, name, out);
        return loop_attribute(run, object->u.loop, name, out);
    }
    if (pome_jinja_has_method(object, name))
        return bind_method(run, object, name, out);
    if (object->type == POME_JV_DICT || object->type == POME_JV_NAMESPACE) {
        const pome_jv *found = pome_jv_dict_find_str(object->u.dict, name);
        POME_TRY(pome_jinja_spend(run, object->u.dict->n / 8));
        if (found) {
            *out = *found;
            return POME_OK;
        }
    }
    if (object->type == POME_JV_MACRO && pome_str_is(name, "name")) {
        *out = pome_jv_str(object->u.macro->definition->name);
        return POME_OK;
    }
    return missing(run, object, name, out);
}

static bool list_index(const pome_jv *key, size_t n, size_t *out)
{
    if (key->type != POME_JV_INT && key->type != POME_JV_BOOL)
        return false;
    int64_t i = key->type == POME_JV_BOOL ? key->u.b : key->u.i;
    if (i < 0)
        i += (int64_t)n;
    *out = (size_t)i;
    return i >= 0 && i < (int64_t)n;
}

pome_status pome_jinja_getitem(pome_jinja_run *run, const pome_jv *object, const pome_jv *key, pome_jv *out)
{
    POME_TRY(pome_jv_check_defined(run, object));
    POME_TRY(pome_jinja_spend(run, 1));
    size_t i;
    if (object->type == POME_JV_LIST || object->type == POME_JV_TUPLE) {
        if (list_index(key, object->u.list->n, &i)) {
            *out = object->u.list->items[i];
            return POME_OK;
        }
    } else if (object->type == POME_JV_STR && key->type != POME_JV_STR) {
        pome_jv characters;
        POME_TRY(pome_jv_iterate(run, object, &characters));
        if (list_index(key, characters.u.list->n, &i)) {
            *out = characters.u.list->items[i];
            return POME_OK;
        }
    } else if (object->type == POME_JV_DICT || object->type == POME_JV_NAMESPACE) {
        const pome_jv *found = pome_jv_dict_find(object->u.dict, key);
        POME_TRY(pome_jinja_spend(run, object->u.dict->n / 8));
        if (found) {
            *out = *found;
            return POME_OK;
        }
    }
    if (key->type == POME_JV_STR) /* as jinja2: an item that is missing may be an attribute */
        return pome_jinja_getattr(run, object, key->u.s, out);
    if (key->type == POME_JV_INT)
        return pome_jv_undefined(run, out, "%s object has no element %lld", pome_jv_type_name(object),
                                 (long long)key->u.i);
    return pome_jv_undefined(run, out, "%s object has no such element", pome_jv_type_name(object));
}
