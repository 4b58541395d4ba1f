/* Binding of arguments, the global functions and the tests. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "text/jinja_eval.h"
#include "text/utf8.h"

#define RANGE_MAX 100000 /* as in jinja2's sandbox */

typedef pome_jinja_run jrun;
typedef const pome_jv *const *slots_t;

pome_status pome_jinja_bind(pome_jinja_run *run, pome_str what, const pome_jinja_args *args, const char *parameters,
                            const pome_jv *slots[POME_JINJA_PARAMETERS_MAX])
{
    size_t n = 0;
    pome_str names[POME_JINJA_PARAMETERS_MAX];
    for (const char *s = parameters; *s && n < POME_JINJA_PARAMETERS_MAX; n++) {
        names[n] = (pome_str){s, strcspn(s, " ")};
        s += names[n].len + (s[names[n].len] == ' ');
    }
    if (args->n > n)
        return pome_jinja_fail(run, POME_ERR_ARG, "%.*s takes at most %zu arguments, not %zu", (int)what.len, what.ptr,
                               n, args->n);
    for (size_t i = 0; i < POME_JINJA_PARAMETERS_MAX; i++)
        slots[i] = i < args->n ? &args->items[i] : NULL;
    for (size_t k = 0; k < args->n_named; k++) {
        size_t i = 0;
        while (i < n && !pome_str_eq(names[i], args->names[k]))
            i++;
        if (i == n || slots[i])
            return pome_jinja_fail(run, POME_ERR_ARG, "%.*s has no argument %.*s to give here", (int)what.len,
                                   what.ptr, (int)args->names[k].len, args->names[k].ptr);
        slots[i] = &args->named[k];
    }
    return POME_OK;
}

/* ---- functions ---- */

static pome_status function_range(jrun *run, const pome_jinja_args *args, pome_jv *out)
{
    int64_t v[3] = {0, 0, 1};
    if (args->n < 1 || args->n > 3 || args->n_named)
        return pome_jinja_fail(run, POME_ERR_ARG, "range wants one to three integers");
    for (size_t i = 0; i < args->n; i++)
        POME_TRY(pome_jinja_want_int(run, &args->items[i], "range", &v[args->n == 1 ? 1 : i]));
    if (v[2] == 0)
        return pome_jinja_fail(run, POME_ERR_ARG, "range with step 0");
    POME_TRY(pome_jv_new_list(run, POME_JV_LIST, 0, out));
    for (int64_t i = v[0]; v[2] > 0 ? i < v[1] : i > v[1];) {
        pome_jv item = pome_jv_int(i);
        if (out->u.list->n == RANGE_MAX)
            return pome_jinja_fail(run, POME_ERR_LIMIT, "range of more than %d numbers", RANGE_MAX);
        POME_TRY(pome_jv_push(run, out, &item));
        if (__builtin_add_overflow(i, v[2], &i))
            break;
    }
    return POME_OK;
}

/* dict(...) and namespace(...): of a dict or a list of pairs, and named values. */
static pome_status fill_dict(jrun *run, const pome_jinja_args *args, pome_jv *out)
{
    if (args->n > 1)
        return pome_jinja_fail(run, POME_ERR_ARG, "dict wants at most one value");
    if (args->n == 1 && args->items[0].type == POME_JV_DICT) {
        const pome_jv_dict *d = args->items[0].u.dict;
        for (size_t i = 0; i < d->n; i++)
            POME_TRY(pome_jv_dict_set(run, out, &d->keys[i], &d->values[i]));
    } else if (args->n == 1) {
        pome_jv pairs;
        POME_TRY(pome_jv_iterate(run, &args->items[0], &pairs));
        for (size_t i = 0; i < pairs.u.list->n; i++) {
            pome_jv pair;
            POME_TRY(pome_jv_iterate(run, &pairs.u.list->items[i], &pair));
            if (pair.u.list->n != 2)
                return pome_jinja_fail(run, POME_ERR_ARG, "dict wants pairs");
            POME_TRY(pome_jv_dict_set(run, out, &pair.u.list->items[0], &pair.u.list->items[1]));
        }
    }
    for (size_t i = 0; i < args->n_named; i++) {
        pome_jv key = pome_jv_str(args->names[i]);
        POME_TRY(pome_jv_dict_set(run, out, &key, &args->named[i]));
    }
    return POME_OK;
}

static pome_status function_dict(jrun *run, const pome_jinja_args *args, pome_jv *out)
{
    POME_TRY(pome_jv_new_dict(run, POME_JV_DICT, out));
    return fill_dict(run, args, out);
}

static pome_status function_namespace(jrun *run, const pome_jinja_args *args, pome_jv *out)
{
    POME_TRY(pome_jv_new_dict(run, POME_JV_NAMESPACE, out));
    POME_TRY(fill_dict(run, args, out));
    for (size_t i = 0; i < out->u.dict->n; i++) {
        const pome_jv *key = &out->u.dict->keys[i];
        if (key->type == POME_JV_STR && key->u.s.len > 0 && key->u.s.ptr[0] == '_')
            return pome_jinja_fail(run, POME_ERR_ARG, "a namespace takes no attribute that begins with _");
    }
    return POME_OK;
}

static pome_status function_raise(jrun *run, const pome_jinja_args *args, pome_jv *out)
{
    (void)out;
    pome_str message = {"", 0};
    const pome_jv *slots[POME_JINJA_PARAMETERS_MAX];
    POME_TRY(pome_jinja_bind(run, pome_str_of("raise_exception"), args, "message", slots));
    if (slots[0])
        POME_TRY(pome_jv_to_str(run, slots[0], &message));
    return pome_jinja_fail(run, POME_ERR_ARG, "%.*s", (int)(message.len < 700 ? message.len : 700), message.ptr);
}

static pome_status function_strftime(jrun *run, const pome_jinja_args *args, pome_jv *out)
{
    pome_str format;
    const pome_jv *slots[POME_JINJA_PARAMETERS_MAX];
    POME_TRY(pome_jinja_bind(run, pome_str_of("strftime_now"), args, "format", slots));
    if (!slots[0])
        return pome_jinja_fail(run, POME_ERR_ARG, "strftime_now wants a format");
    POME_TRY(pome_jinja_want_str(run, slots[0], "strftime_now", &format));
    char z[256], text[1024];
    struct tm tm;
    time_t now = time(NULL);
    if (format.len >= sizeof z || !localtime_r(&now, &tm))
        return pome_jinja_fail(run, POME_ERR_LIMIT, "the format of strftime_now is too long");
    memcpy(z, format.ptr, format.len);
    z[format.len] = '\0';
    return pome_jv_copy_str(run, text, strftime(text, sizeof text, z, &tm), out);
}

static const struct {
    const char *name;
    pome_status (*call)(jrun *run, const pome_jinja_args *args, pome_jv *out);
} functions[] = {
    {"range", function_range},
    {"dict", function_dict},
    {"namespace", function_namespace},
    {"raise_exception", function_raise},
    {"strftime_now", function_strftime},
};

bool pome_jinja_has_function(pome_str name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (pome_str_is(name, functions[i].name))
            return true;
    return false;
}

pome_status pome_jinja_call_function(pome_jinja_run *run, pome_str name, const pome_jinja_args *args, pome_jv *out)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (pome_str_is(name, functions[i].name))
            return functions[i].call(run, args, out);
    return pome_jinja_fail(run, POME_ERR_UNSUPPORTED, "function %.*s is not known", (int)name.len, name.ptr);
}

/* ---- tests ---- */

static bool is_type(pome_str name, const pome_jv *v, bool *out)
{
    static const struct {
        const char *name;
        unsigned types;
    } types[] = {
        {"undefined", 1u << POME_JV_UNDEFINED},
        {"none", 1u << POME_JV_NONE},
        {"boolean", 1u << POME_JV_BOOL},
        {"integer", 1u << POME_JV_INT},
        {"float", 1u << POME_JV_FLOAT},
        {"number", 1u << POME_JV_INT | 1u << POME_JV_FLOAT | 1u << POME_JV_BOOL},
        {"string", 1u << POME_JV_STR},
        {"mapping", 1u << POME_JV_DICT},
        {"sequence", 1u << POME_JV_STR | 1u << POME_JV_LIST | 1u << POME_JV_TUPLE | 1u << POME_JV_DICT |
                         1u << POME_JV_UNDEFINED},
        {"iterable", 1u << POME_JV_STR | 1u << POME_JV_LIST | 1u << POME_JV_TUPLE | 1u << POME_JV_DICT |
                         1u << POME_JV_UNDEFINED | 1u << POME_JV_GENERATOR | 1u << POME_JV_LOOP},
        {"callable", 1u << POME_JV_UNDEFINED | 1u << POME_JV_FUNCTION | 1u << POME_JV_METHOD | 1u << POME_JV_MACRO | 1u << POME_JV_LOOP},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (pome_str_is(name, types[i].name)) {
            *out = types[i].types >> v->type & 1u;
            return true;
        }
    }
    return false;
}

static pome_status test_case(jrun *run, pome_str name, const pome_jv *v, slots_t a, bool *out)
{
    (void)a;
    pome_str s;
    POME_TRY(pome_jv_to_str(run, v, &s));
    bool any = false, all = true, upper = name.ptr[0] == 'u';
    for (size_t i = 0, n; i < s.len; i += n) {
        uint32_t cp = 0;
        int got = pome_utf8_decode(s.ptr + i, s.len - i, &cp, NULL);
        n = (size_t)(got < 0 ? -got : got);
        bool wanted = upper ? pome_cp_is_upper(cp) : pome_cp_is_lower(cp);
        any |= wanted;
        all &= wanted || !(pome_cp_is_upper(cp) || pome_cp_is_lower(cp));
    }
    *out = any && all;
    return POME_OK;
}

static pome_status test_parity(jrun *run, pome_str name, const pome_jv *v, slots_t a, bool *out)
{
    pome_jv by = pome_jv_int(2), rest;
    bool divisible = pome_str_is(name, "divisibleby");
    if (divisible && !a[0])
        return pome_jinja_fail(run, POME_ERR_ARG, "divisibleby wants a number");
    POME_TRY(pome_jinja_binary(run, POME_JO_MOD, v, divisible ? a[0] : &by, &rest));
    if (!pome_jv_is_number(&rest))
        return pome_jinja_fail(run, POME_ERR_ARG, "%.*s wants a number", (int)name.len, name.ptr);
    pome_jv wanted = pome_jv_int(pome_str_is(name, "odd"));
    return pome_jv_equal(run, &rest, &wanted, out);
}

static pome_status test_compare(jrun *run, pome_str name, const pome_jv *v, slots_t a, bool *out)
{
    if (!a[0])
        return pome_jinja_fail(run, POME_ERR_ARG, "test %.*s wants a value", (int)name.len, name.ptr);
    char c = name.ptr[0], last = name.ptr[name.len - 1];
    if (c == 'e' || c == '=' || c == 'n' || c == '!') {
        POME_TRY(pome_jv_equal(run, v, a[0], out));
        *out = *out == (c == 'e' || c == '=');
        return POME_OK;
    }
    int order;
    POME_TRY(pome_jv_compare(run, v, a[0], &order));
    bool or_equal = last == 'e' || last == '=', less = c == 'l' || c == '<';
    *out = order == (less ? -1 : 1) || (or_equal && order == 0);
    return POME_OK;
}

static pome_status test_in(jrun *run, pome_str name, const pome_jv *v, slots_t a, bool *out)
{
    (void)name;
    if (!a[0])
        return pome_jinja_fail(run, POME_ERR_ARG, "test in wants a value");
    return pome_jv_contains(run, a[0], v, out);
}

static pome_status test_sameas(jrun *run, pome_str name, const pome_jv *v, slots_t a, bool *out)
{
    (void)name;
    if (!a[0])
        return pome_jinja_fail(run, POME_ERR_ARG, "test sameas wants a value");
    if (v->type != a[0]->type) {
        *out = false;
        return POME_OK;
    }
    if (pome_jv_is_list(v) || v->type == POME_JV_DICT) {
        *out = v->u.list == a[0]->u.list;
        return POME_OK;
    }
    return pome_jv_equal(run, v, a[0], out);
}

static pome_status test_constant(jrun *run, pome_str name, const pome_jv *v, slots_t a, bool *out)
{
    (void)run, (void)a;
    *out = pome_str_is(name, "defined")  ? v->type != POME_JV_UNDEFINED
           : pome_str_is(name, "true")   ? v->type == POME_JV_BOOL && v->u.b
           : pome_str_is(name, "false")  ? v->type == POME_JV_BOOL && !v->u.b
                                         : false; /* escaped: nothing ever is */
    return POME_OK;
}

static pome_status test_known(jrun *run, pome_str name, const pome_jv *v, slots_t a, bool *out)
{
    (void)a;
    pome_str s;
    POME_TRY(pome_jinja_want_str(run, v, "this test", &s));
    *out = name.ptr[0] == 'f' ? pome_jinja_has_filter(s) : pome_jinja_has_test(s);
    return POME_OK;
}

static const struct {
    const char *name;
    pome_status (*call)(jrun *run, pome_str name, const pome_jv *v, slots_t a, bool *out);
    const char *parameters;
} tests[] = {
    {"defined", test_constant, ""},     {"true", test_constant, ""},       {"false", test_constant, ""},
    {"escaped", test_constant, ""},     {"upper", test_case, ""},          {"lower", test_case, ""},
    {"even", test_parity, ""},          {"odd", test_parity, ""},          {"divisibleby", test_parity, "num"},
    {"eq", test_compare, "other"},      {"equalto", test_compare, "other"}, {"==", test_compare, "other"},
    {"ne", test_compare, "other"},      {"!=", test_compare, "other"},     {"lt", test_compare, "other"},
    {"lessthan", test_compare, "other"}, {"<", test_compare, "other"},     {"le", test_compare, "other"},
    {"<=", test_compare, "other"},      {"gt", test_compare, "other"},     {"greaterthan", test_compare, "other"},
    {">", test_compare, "other"},       {"ge", test_compare, "other"},     {">=", test_compare, "other"},
    {"in", test_in, "seq"},             {"sameas", test_sameas, "other"},  {"filter", test_known, ""},
    {"test", test_known, ""},
};

bool pome_jinja_has_test(pome_str name)
{
    bool ignored;
    pome_jv none = pome_jv_none();
    if (is_type(name, &none, &ignored))
        return true;
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (pome_str_is(name, tests[i].name))
            return true;
    return false;
}

pome_status pome_jinja_test(pome_jinja_run *run, pome_str name, const pome_jv *input, const pome_jinja_args *args,
                            bool *out)
{
    const pome_jv *slots[POME_JINJA_PARAMETERS_MAX];
    if (is_type(name, input, out))
        return pome_jinja_bind(run, name, args, "", slots);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (pome_str_is(name, tests[i].name)) {
            POME_TRY(pome_jinja_bind(run, name, args, tests[i].parameters, slots));
            return tests[i].call(run, name, input, slots, out);
        }
    }
    return pome_jinja_fail(run, POME_ERR_UNSUPPORTED, "test \"%.*s\" is not known",
                           (int)(name.len < 60 ? name.len : 60), name.ptr);
}
