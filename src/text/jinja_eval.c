#include "text/jinja_eval.h"

#include <string.h>

#include "base/error.h"

#define DEPTH_MAX 1000 /* of evaluations in evaluations, macros included */

typedef pome_jinja_node node;
typedef pome_jinja_nodes nodes;
typedef pome_jinja_run jrun;

typedef struct scope {
    struct scope *parent;
    pome_str *names;
    pome_jv *values;
    size_t n, cap;
} scope;

typedef enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE } flow;

static pome_status eval(jrun *run, const node *n, scope *s, pome_jv *out);
static pome_status exec(jrun *run, const nodes *body, scope *s, flow *f);

/* ---- scopes ---- */

static pome_status new_scope(jrun *run, scope *parent, scope **out)
{
    scope *s = POME_NEW(run->arena, scope);
    if (!s)
        return pome_jinja_nomem(run);
    s->parent = parent;
    *out = s;
    return POME_OK;
}

static pome_status assign(jrun *run, scope *s, pome_str name, const pome_jv *value)
{
    for (size_t i = 0; i < s->n; i++) {
        if (pome_str_eq(s->names[i], name)) {
            s->values[i] = *value;
            return POME_OK;
        }
    }
    if (s->n == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 4;
        pome_str *names = POME_NEW_ARRAY(run->arena, pome_str, cap);
        pome_jv *values = POME_NEW_ARRAY(run->arena, pome_jv, cap);
        if (!names || !values)
            return pome_jinja_nomem(run);
        if (s->n > 0) {
            memcpy(names, s->names, s->n * sizeof *names);
            memcpy(values, s->values, s->n * sizeof *values);
        }
        s->names = names;
        s->values = values;
        s->cap = cap;
    }
    s->names[s->n] = name;
    s->values[s->n++] = *value;
    return POME_OK;
}

static pome_status lookup(jrun *run, const scope *s, pome_str name, pome_jv *out)
{
    for (; s; s = s->parent) {
        for (size_t i = 0; i < s->n; i++) {
            if (pome_str_eq(s->names[i], name)) {
                *out = s->values[i];
                return POME_OK;
            }
        }
    }
    const pome_jv *global = pome_jv_dict_find_str(run->globals->u.dict, name);
    if (global) {
        *out = *global;
        return POME_OK;
    }
    if (pome_str_is(name, "self")) /* the template's blocks, of which there are none here */
        return pome_jv_new_dict(run, POME_JV_NAMESPACE, out);
    if (pome_jinja_has_function(name)) {
        *out = (pome_jv){.type = POME_JV_FUNCTION, .u.s = name};
        return POME_OK;
    }
    return pome_jv_undefined(run, out, "'%.*s' is undefined", (int)(name.len < 100 ? name.len : 100), name.ptr);
}

/* ---- expressions ---- */

static pome_status eval_items(jrun *run, const nodes *items, scope *s, pome_jv_type type, pome_jv *out)
{
    POME_TRY(pome_jv_new_list(run, type, items->n, out));
    for (size_t i = 0; i < items->n; i++) {
        pome_jv v;
        POME_TRY(eval(run, items->items[i], s, &v));
        POME_TRY(pome_jv_push(run, out, &v));
    }
    return POME_OK;
}

static pome_status eval_dict(jrun *run, const node *n, scope *s, pome_jv *out)
{
    POME_TRY(pome_jv_new_dict(run, POME_JV_DICT, out));
    for (size_t i = 0; i + 1 < n->items.n; i += 2) {
        pome_jv key, value;
        POME_TRY(eval(run, n->items.items[i], s, &key));
        POME_TRY(eval(run, n->items.items[i + 1], s, &value));
        POME_TRY(pome_jv_dict_set(run, out, &key, &value));
    }
    return POME_OK;
}

/* Named arguments, with the entries of ** among them, into a dict. */
static pome_status eval_keywords(jrun *run, const node *n, scope *s, pome_jv *out)
{
    POME_TRY(pome_jv_new_dict(run, POME_JV_DICT, out));
    for (size_t i = 0; i < n->keywords.n; i++) {
        const node *keyword = n->keywords.items[i];
        pome_jv value, key = pome_jv_str(keyword->name);
        POME_TRY(eval(run, keyword->a, s, &value));
        if (keyword->kind == POME_JN_KEYWORD) {
            POME_TRY(pome_jv_dict_set(run, out, &key, &value));
            continue;
        }
        if (value.type != POME_JV_DICT)
            return pome_jinja_fail(run, POME_ERR_ARG, "** of a %s", pome_jv_type_name(&value));
        for (size_t k = 0; k < value.u.dict->n; k++) {
            if (value.u.dict->keys[k].type != POME_JV_STR)
                return pome_jinja_fail(run, POME_ERR_ARG, "** of a dict whose keys are no strings");
            POME_TRY(pome_jv_dict_set(run, out, &value.u.dict->keys[k], &value.u.dict->values[k]));
        }
    }
    return POME_OK;
}

/* Evaluates the arguments of a call, filter or test into the arena. */
static pome_status eval_arguments(jrun *run, const node *n, scope *s, pome_jinja_args *out)
{
    pome_jv list, spread, value, keywords;
    POME_TRY(pome_jv_new_list(run, POME_JV_LIST, n->items.n, &list));
    for (size_t i = 0; i < n->items.n; i++) {
        const node *item = n->items.items[i];
        POME_TRY(eval(run, item->kind == POME_JN_SPREAD ? item->a : item, s, &value));
        if (item->kind != POME_JN_SPREAD) {
            POME_TRY(pome_jv_push(run, &list, &value));
            continue;
        }
        POME_TRY(pome_jv_iterate(run, &value, &spread));
        for (size_t k = 0; k < spread.u.list->n; k++)
            POME_TRY(pome_jv_push(run, &list, &spread.u.list->items[k]));
    }
    POME_TRY(eval_keywords(run, n, s, &keywords));
    size_t n_named = keywords.u.dict->n;
    *out = (pome_jinja_args){.items = list.u.list->items, .n = list.u.list->n, .named = keywords.u.dict->values,
                             .n_named = n_named};
    pome_str *names = POME_NEW_ARRAY(run->arena, pome_str, n_named);
    if (!names)
        return pome_jinja_nomem(run);
    for (size_t i = 0; i < n_named; i++)
        names[i] = keywords.u.dict->keys[i].u.s;
    out->names = names;
    return POME_OK;
}

static pome_status eval_concat(jrun *run, const node *n, scope *s, pome_jv *out)
{
    pome_strbuf b = {.limit = run->output_limit};
    pome_status status = POME_OK;
    for (size_t i = 0; i < n->items.n && status == POME_OK; i++) {
        pome_jv v;
        status = eval(run, n->items.items[i], s, &v);
        if (status == POME_OK)
            status = pome_jv_append_str(run, &b, &v);
    }
    if (status == POME_OK)
        status = pome_jv_take(run, &b, out);
    pome_strbuf_reset(&b);
    return status;
}

static pome_status compare_once(jrun *run, pome_jinja_op op, const pome_jv *a, const pome_jv *b, bool *out)
{
    int order;
    switch (op) {
    case POME_JO_EQ:
    case POME_JO_NE:
        POME_TRY(pome_jv_equal(run, a, b, out));
        *out = *out == (op == POME_JO_EQ);
        return POME_OK;
    case POME_JO_IN:
    case POME_JO_NOT_IN:
        POME_TRY(pome_jv_contains(run, b, a, out));
        *out = *out == (op == POME_JO_IN);
        return POME_OK;
    default:
        POME_TRY(pome_jv_compare(run, a, b, &order));
        *out = op == POME_JO_LT   ? order == -1
               : op == POME_JO_LE ? order == -1 || order == 0
               : op == POME_JO_GT ? order == 1
                                  : order == 1 || order == 0;
        return POME_OK;
    }
}

static pome_status eval_compare(jrun *run, const node *n, scope *s, pome_jv *out)
{
    pome_jv left, right;
    bool holds = true;
    POME_TRY(eval(run, n->a, s, &left));
    for (size_t i = 0; i < n->items.n && holds; i++) {
        POME_TRY(eval(run, n->items.items[i]->a, s, &right));
        POME_TRY(compare_once(run, n->items.items[i]->op, &left, &right, &holds));
        left = right;
    }
    *out = pome_jv_bool(holds);
    return POME_OK;
}

static pome_status eval_slice(jrun *run, const node *n, scope *s, pome_jv *out)
{
    pome_jv object, parts[3];
    POME_TRY(eval(run, n->a, s, &object));
    for (size_t i = 0; i < 3; i++) {
        parts[i] = pome_jv_none();
        if (n->items.items[i])
            POME_TRY(eval(run, n->items.items[i], s, &parts[i]));
    }
    return pome_jinja_slice(run, &object, &parts[0], &parts[1], &parts[2], out);
}

static pome_status eval_call(jrun *run, const node *n, scope *s, pome_jv *out)
{
    pome_jv callee;
    pome_jinja_args args;
    POME_TRY(eval(run, n->a, s, &callee));
    POME_TRY(eval_arguments(run, n, s, &args));
    run->line = n->line;
    return pome_jinja_call(run, &callee, &args, out);
}

static pome_status eval_filter(jrun *run, const node *n, scope *s, const pome_jv *block_text, pome_jv *out)
{
    pome_jv input;
    pome_jinja_args args;
    if (n->a && n->a->kind == POME_JN_FILTER)
        POME_TRY(eval_filter(run, n->a, s, block_text, &input));
    else if (n->a)
        POME_TRY(eval(run, n->a, s, &input));
    else
        input = *block_text;
    POME_TRY(eval_arguments(run, n, s, &args));
    run->line = n->line;
    return pome_jinja_filter(run, n->name, &input, &args, out);
}

static pome_status eval_test(jrun *run, const node *n, scope *s, pome_jv *out)
{
    pome_jv input;
    pome_jinja_args args;
    bool holds;
    POME_TRY(eval(run, n->a, s, &input));
    POME_TRY(eval_arguments(run, n, s, &args));
    run->line = n->line;
    POME_TRY(pome_jinja_test(run, n->name, &input, &args, &holds));
    *out = pome_jv_bool(holds);
    return POME_OK;
}

static pome_status eval_pair(jrun *run, const node *n, scope *s, pome_jv *out)
{
    pome_jv a, b;
    POME_TRY(eval(run, n->a, s, &a));
    POME_TRY(eval(run, n->b, s, &b));
    run->line = n->line;
    if (n->kind == POME_JN_GETITEM)
        return pome_jinja_getitem(run, &a, &b, out);
    return pome_jinja_binary(run, n->op, &a, &b, out);
}

static pome_status eval_conditional(jrun *run, const node *n, scope *s, pome_jv *out)
{
    pome_jv condition;
    POME_TRY(eval(run, n->b, s, &condition));
    if (pome_jv_truth(&condition))
        return eval(run, n->a, s, out);
    if (n->c)
        return eval(run, n->c, s, out);
    return pome_jv_undefined(run, out, "the inline if-expression on line %d evaluated to false and no else section "
                                       "was defined", n->line);
}

static pome_status eval_inside(jrun *run, const node *n, scope *s, pome_jv *out)
{
    pome_jv a;
    POME_TRY(pome_jinja_spend(run, 1));
    run->line = n->line;
    switch (n->kind) {
    case POME_JN_CONST:
        *out = n->value;
        return POME_OK;
    case POME_JN_NAME:
        return lookup(run, s, n->name, out);
    case POME_JN_LIST:
        return eval_items(run, &n->items, s, POME_JV_LIST, out);
    case POME_JN_TUPLE:
        return eval_items(run, &n->items, s, POME_JV_TUPLE, out);
    case POME_JN_DICT:
        return eval_dict(run, n, s, out);
    case POME_JN_GETATTR:
        POME_TRY(eval(run, n->a, s, &a));
        run->line = n->line;
        return pome_jinja_getattr(run, &a, n->name, out);
    case POME_JN_GETITEM:
    case POME_JN_BINARY:
        return eval_pair(run, n, s, out);
    case POME_JN_SLICE:
        return eval_slice(run, n, s, out);
    case POME_JN_CALL:
        return eval_call(run, n, s, out);
    case POME_JN_FILTER:
        return eval_filter(run, n, s, NULL, out);
    case POME_JN_TEST:
        return eval_test(run, n, s, out);
    case POME_JN_UNARY:
        POME_TRY(eval(run, n->a, s, &a));
        if (n->op == POME_JO_NEG)
            return pome_jinja_negate(run, &a, out);
        if (!pome_jv_is_number(&a))
            return pome_jinja_fail(run, POME_ERR_ARG, "+ of a %s", pome_jv_type_name(&a));
        *out = a.type == POME_JV_BOOL ? pome_jv_int(a.u.b) : a;
        return POME_OK;
    case POME_JN_AND:
    case POME_JN_OR:
        POME_TRY(eval(run, n->a, s, out));
        if (pome_jv_truth(out) == (n->kind == POME_JN_OR))
            return POME_OK;
        return eval(run, n->b, s, out);
    case POME_JN_NOT:
        POME_TRY(eval(run, n->a, s, &a));
        *out = pome_jv_bool(!pome_jv_truth(&a));
        return POME_OK;
    case POME_JN_COMPARE:
        return eval_compare(run, n, s, out);
    case POME_JN_CONCAT:
        return eval_concat(run, n, s, out);
    case POME_JN_CONDITIONAL:
        return eval_conditional(run, n, s, out);
    default:
        return pome_jinja_fail(run, POME_ERR_UNSUPPORTED, "an expression of kind %d", (int)n->kind);
    }
}

static pome_status eval(jrun *run, const node *n, scope *s, pome_jv *out)
{
    if (run->depth >= DEPTH_MAX)
        return pome_jinja_fail(run, POME_ERR_LIMIT, "calls and expressions are nested more than %d deep", DEPTH_MAX);
    run->depth++;
    pome_status status = eval_inside(run, n, s, out);
    run->depth--;
    return status;
}

/* ---- calls ---- */

/* Runs a body with its output caught in a string. */
static pome_status capture(jrun *run, const nodes *body, scope *s, pome_jv *out)
{
    pome_strbuf b = {.limit = run->output_limit}, *outer = run->out;
    flow f = FLOW_ON;
    run->out = &b;
    pome_status status = exec(run, body, s, &f);
    run->out = outer;
    if (status == POME_OK)
        status = pome_jv_take(run, &b, out);
    pome_strbuf_reset(&b);
    return status;
}

static const pome_jv *find_named(const pome_jinja_args *args, pome_str name)
{
    for (size_t i = 0; i < args->n_named; i++)
        if (pome_str_eq(args->names[i], name))
            return &args->named[i];
    return NULL;
}

/* What is given beyond the parameters, as varargs and kwargs; only `caller` may come unasked. */
static pome_status bind_rest(jrun *run, const node *definition, const pome_jinja_args *args, scope *s)
{
    pome_jv rest, named;
    size_t n = definition->items.n;
    POME_TRY(pome_jv_new_list(run, POME_JV_TUPLE, 0, &rest));
    for (size_t i = n; i < args->n; i++)
        POME_TRY(pome_jv_push(run, &rest, &args->items[i]));
    POME_TRY(assign(run, s, pome_str_of("varargs"), &rest));
    POME_TRY(pome_jv_new_dict(run, POME_JV_DICT, &named));
    for (size_t i = 0; i < args->n_named; i++) {
        bool known = false;
        for (size_t k = 0; k < n; k++)
            known |= pome_str_eq(definition->items.items[k]->name, args->names[i]);
        if (known)
            continue;
        if (pome_str_is(args->names[i], "caller")) {
            POME_TRY(assign(run, s, args->names[i], &args->named[i]));
            continue;
        }
        pome_jv key = pome_jv_str(args->names[i]);
        POME_TRY(pome_jv_dict_set(run, &named, &key, &args->named[i]));
    }
    return assign(run, s, pome_str_of("kwargs"), &named);
}

/* Whether a body speaks of a name: a macro that does not mention varargs or kwargs refuses what is too much. */
static bool mentions(const node *n, const char *name);

static bool list_mentions(const nodes *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i] && mentions(list->items[i], name))
            return true;
    return false;
}

static bool mentions(const node *n, const char *name)
{
    return (n->kind == POME_JN_NAME && pome_str_is(n->name, name)) || (n->a && mentions(n->a, name)) ||
           (n->b && mentions(n->b, name)) || (n->c && mentions(n->c, name)) || list_mentions(&n->items, name) ||
           list_mentions(&n->keywords, name) || list_mentions(&n->body, name) || list_mentions(&n->other, name);
}

static pome_status call_macro(jrun *run, const pome_jinja_macro *macro, const pome_jinja_args *args, pome_jv *out)
{
    const node *d = macro->definition;
    scope *s;
    if (args->n > d->items.n && !list_mentions(&d->body, "varargs"))
        return pome_jinja_fail(run, POME_ERR_ARG, "macro %.*s takes not more than %zu arguments", (int)d->name.len,
                               d->name.len ? d->name.ptr : "", d->items.n);
    POME_TRY(new_scope(run, macro->closure, &s));
    POME_TRY(bind_rest(run, d, args, s));
    const pome_jv *kwargs = &s->values[s->n - 1];
    if (kwargs->u.dict->n > 0 && !list_mentions(&d->body, "kwargs"))
        return pome_jinja_fail(run, POME_ERR_ARG, "macro %.*s takes no argument \"%.*s\"", (int)d->name.len,
                               d->name.len ? d->name.ptr : "", (int)kwargs->u.dict->keys[0].u.s.len,
                               kwargs->u.dict->keys[0].u.s.ptr);
    for (size_t i = 0; i < d->items.n; i++) {
        const node *parameter = d->items.items[i];
        const pome_jv *given = i < args->n ? &args->items[i] : find_named(args, parameter->name);
        pome_jv value;
        if (given)
            value = *given;
        else if (parameter->a)
            POME_TRY(eval(run, parameter->a, s, &value));
        else
            POME_TRY(pome_jv_undefined(run, &value, "parameter '%.*s' was not provided", (int)parameter->name.len,
                                       parameter->name.ptr));
        POME_TRY(assign(run, s, parameter->name, &value));
    }
    return capture(run, &d->body, s, out);
}

static pome_status run_loop(jrun *run, const node *n, scope *s, const pome_jv *iterable, int64_t depth, flow *f);

static pome_status call_loop(jrun *run, const pome_jinja_loop *loop, const pome_jinja_args *args, pome_jv *out)
{
    if (!loop->definition->is_recursive || args->n != 1)
        return pome_jinja_fail(run, POME_ERR_ARG, "loop() needs a recursive loop and one argument");
    pome_strbuf b = {.limit = run->output_limit}, *outer = run->out;
    flow f = FLOW_ON;
    run->out = &b;
    pome_status status = run_loop(run, loop->definition, loop->outer, &args->items[0], loop->depth + 1, &f);
    run->out = outer;
    if (status == POME_OK)
        status = pome_jv_take(run, &b, out);
    pome_strbuf_reset(&b);
    return status;
}

static pome_status call_loop_method(jrun *run, pome_jinja_loop *loop, pome_str name, const pome_jinja_args *args,
                                    pome_jv *out)
{
    if (pome_str_is(name, "cycle")) {
        if (args->n == 0)
            return pome_jinja_fail(run, POME_ERR_ARG, "loop.cycle needs values");
        *out = args->items[loop->index % args->n];
        return POME_OK;
    }
    pome_jv now;
    bool same = false;
    POME_TRY(pome_jv_new_list(run, POME_JV_TUPLE, args->n, &now));
    for (size_t i = 0; i < args->n; i++)
        POME_TRY(pome_jv_push(run, &now, &args->items[i]));
    if (loop->has_changed)
        POME_TRY(pome_jv_equal(run, &loop->changed, &now, &same));
    loop->has_changed = true;
    loop->changed = now;
    *out = pome_jv_bool(!same);
    return POME_OK;
}

pome_status pome_jinja_call(pome_jinja_run *run, const pome_jv *callee, const pome_jinja_args *args, pome_jv *out)
{
    POME_TRY(pome_jv_check_defined(run, callee));
    switch (callee->type) {
    case POME_JV_MACRO:
        return call_macro(run, callee->u.macro, args, out);
    case POME_JV_FUNCTION:
        return pome_jinja_call_function(run, callee->u.s, args, out);
    case POME_JV_LOOP:
        return call_loop(run, callee->u.loop, args, out);
    case POME_JV_METHOD:
        if (callee->u.method->self.type == POME_JV_LOOP)
            return call_loop_method(run, callee->u.method->self.u.loop, callee->u.method->name, args, out);
        return pome_jinja_call_method(run, &callee->u.method->self, callee->u.method->name, args, out);
    default:
        return pome_jinja_fail(run, POME_ERR_ARG, "a %s cannot be called", pome_jv_type_name(callee));
    }
}

/* ---- statements ---- */

static pome_status set_target(jrun *run, const node *target, scope *s, const pome_jv *value)
{
    if (target->kind == POME_JN_NAME)
        return assign(run, s, target->name, value);
    run->line = target->line;
    if (target->kind == POME_JN_NAMESPACE_TARGET) {
        pome_jv object;
        POME_TRY(lookup(run, s, target->name, &object));
        POME_TRY(pome_jv_check_defined(run, &object));
        if (object.type != POME_JV_NAMESPACE)
            return pome_jinja_fail(run, POME_ERR_ARG, "cannot assign attribute on non-namespace object");
        if (target->value.u.s.ptr[0] == '_')
            return pome_jinja_fail(run, POME_ERR_ARG, "a namespace takes no attribute that begins with _");
        return pome_jv_dict_set(run, &object, &target->value, value);
    }
    pome_jv list;
    POME_TRY(pome_jv_iterate(run, value, &list));
    if (list.u.list->n != target->items.n)
        return pome_jinja_fail(run, POME_ERR_ARG, "%zu values for %zu names", list.u.list->n, target->items.n);
    for (size_t i = 0; i < target->items.n; i++)
        POME_TRY(set_target(run, target->items.items[i], s, &list.u.list->items[i]));
    return POME_OK;
}

/* The items that pass the loop's condition. */
static pome_status filter_items(jrun *run, const node *n, scope *outer, pome_jv *list)
{
    pome_jv kept;
    POME_TRY(pome_jv_new_list(run, POME_JV_LIST, 0, &kept));
    for (size_t i = 0; i < list->u.list->n; i++) {
        scope *s;
        pome_jv condition;
        POME_TRY(new_scope(run, outer, &s));
        POME_TRY(set_target(run, n->a, s, &list->u.list->items[i]));
        POME_TRY(eval(run, n->c, s, &condition));
        if (pome_jv_truth(&condition))
            POME_TRY(pome_jv_push(run, &kept, &list->u.list->items[i]));
    }
    *list = kept;
    return POME_OK;
}

static pome_status run_loop(jrun *run, const node *n, scope *outer, const pome_jv *iterable, int64_t depth, flow *f)
{
    pome_jv list;
    scope *s;
    POME_TRY(pome_jv_iterate(run, iterable, &list));
    if (n->c)
        POME_TRY(filter_items(run, n, outer, &list));
    pome_jinja_loop *loop = POME_NEW(run->arena, pome_jinja_loop);
    if (!loop)
        return pome_jinja_nomem(run);
    *loop = (pome_jinja_loop){.items = list.u.list, .definition = n, .outer = outer, .depth = depth};
    pome_jv loop_value = {.type = POME_JV_LOOP, .u.loop = loop};
    size_t n_items = list.u.list->n;
    for (size_t i = 0; i < n_items; i++) {
        flow inner = FLOW_ON;
        loop->index = i;
        POME_TRY(pome_jinja_spend(run, 1));
        POME_TRY(new_scope(run, outer, &s));
        POME_TRY(assign(run, s, pome_str_of("loop"), &loop_value));
        POME_TRY(set_target(run, n->a, s, &list.u.list->items[i]));
        POME_TRY(exec(run, &n->body, s, &inner));
        if (inner == FLOW_BREAK)
            break;
    }
    if (n_items > 0)
        return POME_OK;
    POME_TRY(new_scope(run, outer, &s));
    return exec(run, &n->other, s, f);
}

static pome_status exec_if(jrun *run, const node *n, scope *s, flow *f)
{
    for (;;) {
        pome_jv condition;
        POME_TRY(eval(run, n->a, s, &condition));
        if (pome_jv_truth(&condition))
            return exec(run, &n->body, s, f);
        if (n->other.n != 1 || n->other.items[0]->kind != POME_JN_IF)
            return exec(run, &n->other, s, f);
        n = n->other.items[0];
    }
}

static pome_status new_macro(jrun *run, const node *definition, scope *closure, pome_jv *out)
{
    pome_jinja_macro *macro = POME_NEW(run->arena, pome_jinja_macro);
    if (!macro)
        return pome_jinja_nomem(run);
    *macro = (pome_jinja_macro){definition, closure};
    *out = (pome_jv){.type = POME_JV_MACRO, .u.macro = macro};
    return POME_OK;
}

static pome_status put(jrun *run, const pome_jv *v)
{
    POME_TRY(pome_jv_append_str(run, run->out, v));
    if (run->out->failed)
        return pome_jinja_nomem(run);
    return POME_OK;
}

static pome_status exec_call_block(jrun *run, const node *n, scope *s)
{
    pome_jv caller, callee, result;
    pome_jinja_args args;
    POME_TRY(new_macro(run, n, s, &caller));
    POME_TRY(eval(run, n->a->a, s, &callee));
    POME_TRY(eval_arguments(run, n->a, s, &args));
    pome_str *names = POME_NEW_ARRAY(run->arena, pome_str, args.n_named + 1);
    pome_jv *named = POME_NEW_ARRAY(run->arena, pome_jv, args.n_named + 1);
    if (!names || !named)
        return pome_jinja_nomem(run);
    for (size_t i = 0; i < args.n_named; i++) {
        names[i] = args.names[i];
        named[i] = args.named[i];
    }
    names[args.n_named] = pome_str_of("caller");
    named[args.n_named] = caller;
    args.names = names;
    args.named = named;
    args.n_named++;
    POME_TRY(pome_jinja_call(run, &callee, &args, &result));
    return put(run, &result);
}

/* Bodies whose text is used otherwise, in a scope of their own. */
static pome_status exec_captured(jrun *run, const node *n, scope *outer)
{
    pome_jv text;
    scope *s;
    POME_TRY(new_scope(run, outer, &s));
    POME_TRY(capture(run, &n->body, s, &text));
    if (n->kind == POME_JN_SET_BLOCK) {
        if (n->b)
            POME_TRY(eval_filter(run, n->b, outer, &text, &text));
        return set_target(run, n->a, outer, &text);
    }
    if (n->kind == POME_JN_FILTER_BLOCK)
        POME_TRY(eval_filter(run, n->a, outer, &text, &text));
    return put(run, &text);
}

static pome_status exec_with(jrun *run, const node *n, scope *outer, flow *f)
{
    scope *s;
    POME_TRY(new_scope(run, outer, &s));
    for (size_t i = 0; i < n->items.n; i++) {
        pome_jv v;
        POME_TRY(eval(run, n->items.items[i]->a, outer, &v));
        POME_TRY(assign(run, s, n->items.items[i]->name, &v));
    }
    return exec(run, &n->body, s, f);
}

static pome_status exec_one(jrun *run, const node *n, scope *s, flow *f)
{
    pome_jv v;
    POME_TRY(pome_jinja_spend(run, 1));
    run->line = n->line;
    switch (n->kind) {
    case POME_JN_DATA:
        return put(run, &n->value);
    case POME_JN_PRINT:
        POME_TRY(eval(run, n->a, s, &v));
        return put(run, &v);
    case POME_JN_FOR:
        POME_TRY(eval(run, n->b, s, &v));
        return run_loop(run, n, s, &v, 1, f);
    case POME_JN_IF:
        return exec_if(run, n, s, f);
    case POME_JN_SET:
        POME_TRY(eval(run, n->b, s, &v));
        return set_target(run, n->a, s, &v);
    case POME_JN_SET_BLOCK:
    case POME_JN_FILTER_BLOCK:
    case POME_JN_SCOPE:
        return exec_captured(run, n, s);
    case POME_JN_MACRO:
        POME_TRY(new_macro(run, n, s, &v));
        return assign(run, s, n->name, &v);
    case POME_JN_CALL_BLOCK:
        return exec_call_block(run, n, s);
    case POME_JN_WITH:
        return exec_with(run, n, s, f);
    case POME_JN_BREAK:
        *f = FLOW_BREAK;
        return POME_OK;
    case POME_JN_CONTINUE:
        *f = FLOW_CONTINUE;
        return POME_OK;
    default:
        return pome_jinja_fail(run, POME_ERR_UNSUPPORTED, "a statement of kind %d", (int)n->kind);
    }
}

static pome_status exec(jrun *run, const nodes *body, scope *s, flow *f)
{
    if (run->depth >= DEPTH_MAX)
        return pome_jinja_fail(run, POME_ERR_LIMIT, "calls and blocks are nested more than %d deep", DEPTH_MAX);
    pome_status status = POME_OK;
    run->depth++;
    for (size_t i = 0; i < body->n && *f == FLOW_ON && status == POME_OK; i++)
        status = exec_one(run, body->items[i], s, f);
    run->depth--;
    return status;
}

pome_status pome_jinja_evaluate(const pome_jinja *jinja, const json_t *context, pome_jinja_run *run)
{
    pome_jv globals;
    scope *s;
    flow f = FLOW_ON;
    if (context && !json_is_object(context))
        return pome_jinja_fail(run, POME_ERR_ARG, "the context is not an object");
    if (context)
        POME_TRY(pome_jv_from_json(run, context, &globals));
    else
        POME_TRY(pome_jv_new_dict(run, POME_JV_DICT, &globals));
    run->globals = &globals;
    POME_TRY(new_scope(run, NULL, &s));
    return exec(run, &jinja->body, s, &f);
}
