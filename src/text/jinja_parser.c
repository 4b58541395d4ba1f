/* Recursive descent in the order of jinja2's own parser, so that precedence and odd corners are the same. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "text/jinja_ast.h"

#define ELIF_MAX 500

typedef struct parser {
    pome_jinja *jinja;
    const pome_jinja_token *t; /* the current token */
    int depth;
    pome_error *err;
} parser;

typedef pome_jinja_node node;
typedef pome_jinja_nodes nodes;

static pome_status parse_expression(parser *p, node **out);
static pome_status parse_expression_without_if(parser *p, node **out);
static pome_status parse_unary(parser *p, bool with_filter, node **out);
static pome_status parse_statements(parser *p, const char *ends, nodes *out);

static pome_status syntax(const parser *p, const char *wanted)
{
    pome_str found = p->t->text;
    const char *what = "";
    switch (p->t->kind) {
    case POME_JT_VARIABLE_END:
        what = "\"}}\"";
        break;
    case POME_JT_BLOCK_END:
        what = "\"%}\"";
        break;
    case POME_JT_DATA:
        what = "text";
        break;
    case POME_JT_STRING:
        what = "a string";
        break;
    case POME_JT_INTEGER:
    case POME_JT_FLOAT:
        what = "a number";
        break;
    case POME_JT_END:
        what = "the end of the template";
        break;
    default:
        return pome_fail(p->err, POME_ERR_FORMAT, "line %d: found \"%.*s\", %s is wanted", p->t->line,
                         (int)(found.len < 60 ? found.len : 60), found.ptr, wanted);
    }
    return pome_fail(p->err, POME_ERR_FORMAT, "line %d: found %s, %s is wanted", p->t->line, what, wanted);
}

static pome_status nomem(const parser *p)
{
    return pome_fail(p->err, POME_ERR_LIMIT, "line %d: the template is too large", p->t->line);
}

static pome_status enter(parser *p)
{
    if (++p->depth > POME_JINJA_NODE_DEPTH_MAX)
        return pome_fail(p->err, POME_ERR_LIMIT, "line %d: nested more than %d deep", p->t->line,
                         POME_JINJA_NODE_DEPTH_MAX);
    return POME_OK;
}

static pome_status new_node(parser *p, pome_jinja_node_kind kind, int line, node **out)
{
    node *n = POME_NEW(p->jinja->arena, node);
    if (!n)
        return nomem(p);
    n->kind = kind;
    n->line = line;
    n->depth = 1;
    *out = n;
    return POME_OK;
}

/* The parent is deeper than each of its children; chains like a.b.c or a + b + c grow without parser recursion. */
static pome_status adopt(parser *p, node *parent, const node *child)
{
    if (child && child->depth + 1 > parent->depth)
        parent->depth = child->depth + 1;
    if (parent->depth > POME_JINJA_NODE_DEPTH_MAX)
        return pome_fail(p->err, POME_ERR_LIMIT, "line %d: nested more than %d deep", parent->line,
                         POME_JINJA_NODE_DEPTH_MAX);
    return POME_OK;
}

static pome_status append(parser *p, node *parent, nodes *list, node *item)
{
    if (list->n == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 4;
        node **items = POME_NEW_ARRAY(p->jinja->arena, node *, cap);
        if (!items)
            return nomem(p);
        if (list->n > 0)
            memcpy(items, list->items, list->n * sizeof *items);
        list->items = items;
        list->cap = cap;
    }
    list->items[list->n++] = item;
    return parent ? adopt(p, parent, item) : POME_OK;
}

static bool is_op(const parser *p, const char *op)
{
    return p->t->kind == POME_JT_OPERATOR && pome_str_is(p->t->text, op);
}

static bool is_name(const parser *p, const char *name)
{
    return p->t->kind == POME_JT_NAME && pome_str_is(p->t->text, name);
}

static bool skip_op(parser *p, const char *op)
{
    bool is = is_op(p, op);
    p->t += is;
    return is;
}

static bool skip_name(parser *p, const char *name)
{
    bool is = is_name(p, name);
    p->t += is;
    return is;
}

static pome_status expect_op(parser *p, const char *op)
{
    char wanted[8];
    snprintf(wanted, sizeof wanted, "\"%s\"", op);
    return skip_op(p, op) ? POME_OK : syntax(p, wanted);
}

static pome_status expect_name(parser *p, pome_str *out)
{
    if (p->t->kind != POME_JT_NAME)
        return syntax(p, "a name");
    *out = p->t->text;
    p->t++;
    return POME_OK;
}

static pome_status expect_block_end(parser *p)
{
    if (p->t->kind != POME_JT_BLOCK_END)
        return syntax(p, "\"%}\"");
    p->t++;
    return POME_OK;
}

/* ---- expressions ---- */

static pome_status binary(parser *p, pome_jinja_node_kind kind, pome_jinja_op op, node *a, node *b, node **out)
{
    POME_TRY(new_node(p, kind, a->line, out));
    (*out)->op = op;
    (*out)->a = a;
    (*out)->b = b;
    POME_TRY(adopt(p, *out, a));
    return adopt(p, *out, b);
}

/* Arguments behind "(": positional into items, named into keywords. */
static pome_status parse_arguments(parser *p, node *call)
{
    POME_TRY(expect_op(p, "("));
    bool first = true;
    while (!is_op(p, ")")) {
        if (!first) {
            POME_TRY(expect_op(p, ","));
            if (is_op(p, ")"))
                break;
        }
        first = false;
        node *value, *keyword;
        if (is_op(p, "*") || is_op(p, "**")) {
            nodes *list = is_op(p, "*") ? &call->items : &call->keywords;
            POME_TRY(new_node(p, POME_JN_SPREAD, p->t->line, &value));
            p->t++;
            POME_TRY(parse_expression(p, &value->a));
            POME_TRY(adopt(p, value, value->a));
            POME_TRY(append(p, call, list, value));
            continue;
        }
        if (p->t->kind == POME_JT_NAME && p->t[1].kind == POME_JT_OPERATOR && pome_str_is(p->t[1].text, "=")) {
            POME_TRY(new_node(p, POME_JN_KEYWORD, p->t->line, &keyword));
            keyword->name = p->t->text;
            p->t += 2;
            POME_TRY(parse_expression(p, &keyword->a));
            POME_TRY(adopt(p, keyword, keyword->a));
            POME_TRY(append(p, call, &call->keywords, keyword));
            continue;
        }
        if (call->keywords.n > 0)
            return syntax(p, "a named argument");
        POME_TRY(parse_expression(p, &value));
        POME_TRY(append(p, call, &call->items, value));
    }
    return expect_op(p, ")");
}

static pome_status parse_call(parser *p, node *callee, node **out)
{
    POME_TRY(new_node(p, POME_JN_CALL, p->t->line, out));
    (*out)->a = callee;
    POME_TRY(adopt(p, *out, callee));
    return parse_arguments(p, *out);
}

/* [x] or [start:stop:step] behind "[". */
static pome_status parse_subscript(parser *p, node *object, node **out)
{
    int line = p->t->line;
    node *parts[3] = {NULL, NULL, NULL};
    int n = 0;
    bool slice = false;
    while (!is_op(p, "]")) {
        if (is_op(p, ",") )
            return pome_fail(p->err, POME_ERR_UNSUPPORTED, "line %d: an index of several values is not supported", line);
        if (skip_op(p, ":")) {
            slice = true;
            if (++n > 2)
                return syntax(p, "\"]\"");
            continue;
        }
        if (parts[n])
            return syntax(p, "\"]\" or \":\"");
        POME_TRY(parse_expression(p, &parts[n]));
    }
    p->t++;
    if (!slice && !parts[0])
        return syntax(p, "an index");
    if (!slice)
        return binary(p, POME_JN_GETITEM, 0, object, parts[0], out);
    POME_TRY(new_node(p, POME_JN_SLICE, line, out));
    (*out)->a = object;
    POME_TRY(adopt(p, *out, object));
    for (int i = 0; i < 3; i++)
        POME_TRY(append(p, *out, &(*out)->items, parts[i]));
    return POME_OK;
}

static pome_status parse_postfix(parser *p, node **n)
{
    for (;;) {
        node *outer;
        if (is_op(p, "(")) {
            POME_TRY(parse_call(p, *n, &outer));
        } else if (skip_op(p, "[")) {
            POME_TRY(parse_subscript(p, *n, &outer));
        } else if (skip_op(p, ".")) {
            POME_TRY(new_node(p, POME_JN_GETATTR, p->t->line, &outer));
            outer->a = *n;
            POME_TRY(adopt(p, outer, *n));
            if (p->t->kind == POME_JT_INTEGER) {
                outer->kind = POME_JN_GETITEM;
                POME_TRY(new_node(p, POME_JN_CONST, p->t->line, &outer->b));
                outer->b->value = pome_jv_int(p->t->integer);
                p->t++;
            } else {
                POME_TRY(expect_name(p, &outer->name));
            }
        } else {
            return POME_OK;
        }
        *n = outer;
    }
}

static pome_status parse_filter(parser *p, node *input, node **out)
{
    POME_TRY(new_node(p, POME_JN_FILTER, p->t->line, out));
    (*out)->a = input;
    POME_TRY(adopt(p, *out, input));
    POME_TRY(expect_name(p, &(*out)->name));
    return is_op(p, "(") ? parse_arguments(p, *out) : POME_OK;
}

static pome_status parse_primary(parser *p, node **out);

static pome_status parse_test(parser *p, node *input, node **out)
{
    bool negated = skip_name(p, "not");
    node *test;
    POME_TRY(new_node(p, POME_JN_TEST, p->t->line, &test));
    test->a = input;
    POME_TRY(adopt(p, test, input));
    POME_TRY(expect_name(p, &test->name));
    if (is_op(p, "(")) {
        POME_TRY(parse_arguments(p, test));
    } else if (p->t->kind == POME_JT_NAME || p->t->kind == POME_JT_STRING || p->t->kind == POME_JT_INTEGER ||
               p->t->kind == POME_JT_FLOAT || is_op(p, "[") || is_op(p, "{")) {
        if (!is_name(p, "else") && !is_name(p, "or") && !is_name(p, "and")) {
            if (is_name(p, "is"))
                return syntax(p, "no second test");
            node *argument;
            POME_TRY(parse_primary(p, &argument));
            POME_TRY(parse_postfix(p, &argument));
            POME_TRY(append(p, test, &test->items, argument));
        }
    }
    *out = test;
    if (negated) {
        POME_TRY(new_node(p, POME_JN_NOT, test->line, out));
        (*out)->a = test;
        return adopt(p, *out, test);
    }
    return POME_OK;
}

static pome_status parse_filters(parser *p, node **n)
{
    for (;;) {
        node *outer;
        if (skip_op(p, "|"))
            POME_TRY(parse_filter(p, *n, &outer));
        else if (skip_name(p, "is"))
            POME_TRY(parse_test(p, *n, &outer));
        else if (is_op(p, "("))
            POME_TRY(parse_call(p, *n, &outer));
        else
            return POME_OK;
        *n = outer;
    }
}

/* Items up to the closing bracket, into a LIST, TUPLE or DICT. */
static pome_status parse_items(parser *p, pome_jinja_node_kind kind, const char *close, node **out)
{
    POME_TRY(new_node(p, kind, p->t->line, out));
    while (!is_op(p, close)) {
        node *item;
        if ((*out)->items.n > 0) {
            POME_TRY(expect_op(p, ","));
            if (is_op(p, close))
                break;
        }
        POME_TRY(parse_expression(p, &item));
        POME_TRY(append(p, *out, &(*out)->items, item));
        if (kind != POME_JN_DICT)
            continue;
        POME_TRY(expect_op(p, ":"));
        POME_TRY(parse_expression(p, &item));
        POME_TRY(append(p, *out, &(*out)->items, item));
    }
    return expect_op(p, close);
}

/* expression, or several with commas: a tuple. */
static pome_status parse_tuple(parser *p, bool with_if, bool in_parentheses, const char *end_name, node **out)
{
    node *first = NULL, *item;
    int line = p->t->line;
    *out = NULL;
    for (;;) {
        bool ends = p->t->kind == POME_JT_VARIABLE_END || p->t->kind == POME_JT_BLOCK_END || is_op(p, ")") ||
                    (end_name && is_name(p, end_name));
        if (ends)
            break;
        POME_TRY(with_if ? parse_expression(p, &item) : parse_expression_without_if(p, &item));
        if (*out)
            POME_TRY(append(p, *out, &(*out)->items, item));
        else
            first = item;
        if (!is_op(p, ","))
            break;
        p->t++;
        if (!*out) {
            POME_TRY(new_node(p, POME_JN_TUPLE, line, out));
            POME_TRY(append(p, *out, &(*out)->items, first));
        }
    }
    if (*out)
        return POME_OK;
    if (!first && !in_parentheses)
        return syntax(p, "an expression");
    if (!first)
        return new_node(p, POME_JN_TUPLE, line, out);
    *out = first;
    return POME_OK;
}

static pome_status parse_constant(parser *p, node **out)
{
    POME_TRY(new_node(p, POME_JN_CONST, p->t->line, out));
    node *n = *out;
    if (p->t->kind == POME_JT_INTEGER) {
        n->value = pome_jv_int(p->t++->integer);
    } else if (p->t->kind == POME_JT_FLOAT) {
        n->value = pome_jv_float(p->t++->real);
    } else if (p->t[1].kind != POME_JT_STRING) {
        n->value = pome_jv_str(p->t++->text);
    } else { /* neighbouring strings are one */
        pome_strbuf b = {0};
        while (p->t->kind == POME_JT_STRING) {
            pome_strbuf_append(&b, p->t->text.ptr, p->t->text.len);
            p->t++;
        }
        char *copy = b.failed ? NULL : pome_arena_strndup(p->jinja->arena, b.data ? b.data : "", b.len);
        n->value = pome_jv_str((pome_str){copy, b.len});
        pome_strbuf_reset(&b);
        if (!copy)
            return nomem(p);
    }
    return POME_OK;
}

static pome_status parse_name(parser *p, node **out)
{
    static const struct {
        const char *name;
        pome_jv_type type;
        bool value;
    } constants[] = {{"true", POME_JV_BOOL, true}, {"false", POME_JV_BOOL, false}, {"True", POME_JV_BOOL, true},
                     {"False", POME_JV_BOOL, false}, {"none", POME_JV_NONE, false}, {"None", POME_JV_NONE, false}};
    POME_TRY(new_node(p, POME_JN_NAME, p->t->line, out));
    (*out)->name = p->t->text;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (is_name(p, constants[i].name)) {
            (*out)->kind = POME_JN_CONST;
            (*out)->value = (pome_jv){.type = constants[i].type, .u.b = constants[i].value};
        }
    }
    p->t++;
    return POME_OK;
}

static pome_status parse_primary(parser *p, node **out)
{
    POME_TRY(enter(p));
    if (p->t->kind == POME_JT_NAME) {
        POME_TRY(parse_name(p, out));
    } else if (p->t->kind == POME_JT_STRING || p->t->kind == POME_JT_INTEGER || p->t->kind == POME_JT_FLOAT) {
        POME_TRY(parse_constant(p, out));
    } else if (skip_op(p, "(")) {
        POME_TRY(parse_tuple(p, true, true, NULL, out));
        POME_TRY(expect_op(p, ")"));
    } else if (skip_op(p, "[")) {
        POME_TRY(parse_items(p, POME_JN_LIST, "]", out));
    } else if (skip_op(p, "{")) {
        POME_TRY(parse_items(p, POME_JN_DICT, "}", out));
    } else {
        return syntax(p, "an expression");
    }
    p->depth--;
    return POME_OK;
}

static pome_status parse_unary(parser *p, bool with_filter, node **out)
{
    int line = p->t->line;
    POME_TRY(enter(p));
    bool negative = is_op(p, "-");
    if (negative || is_op(p, "+")) {
        p->t++;
        POME_TRY(new_node(p, POME_JN_UNARY, line, out));
        (*out)->op = negative ? POME_JO_NEG : POME_JO_POS;
        POME_TRY(parse_unary(p, false, &(*out)->a));
        POME_TRY(adopt(p, *out, (*out)->a));
    } else {
        POME_TRY(parse_primary(p, out));
    }
    POME_TRY(parse_postfix(p, out));
    if (with_filter)
        POME_TRY(parse_filters(p, out));
    p->depth--;
    return POME_OK;
}

static pome_status parse_power(parser *p, node **out)
{
    POME_TRY(parse_unary(p, true, out));
    while (skip_op(p, "**")) {
        node *right;
        POME_TRY(parse_unary(p, true, &right));
        POME_TRY(binary(p, POME_JN_BINARY, POME_JO_POW, *out, right, out));
    }
    return POME_OK;
}

static pome_status parse_product(parser *p, node **out)
{
    static const struct {
        const char *text;
        pome_jinja_op op;
    } ops[] = {{"*", POME_JO_MUL}, {"/", POME_JO_DIV}, {"//", POME_JO_FLOORDIV}, {"%", POME_JO_MOD}};
    POME_TRY(parse_power(p, out));
    for (size_t i = 0; i < 4; i++) {
        if (!skip_op(p, ops[i].text))
            continue;
        node *right;
        POME_TRY(parse_power(p, &right));
        POME_TRY(binary(p, POME_JN_BINARY, ops[i].op, *out, right, out));
        i = (size_t)-1; /* and look again */
    }
    return POME_OK;
}

static pome_status parse_concat(parser *p, node **out)
{
    node *first, *next;
    POME_TRY(parse_product(p, &first));
    *out = first;
    if (!is_op(p, "~"))
        return POME_OK;
    POME_TRY(new_node(p, POME_JN_CONCAT, first->line, out));
    POME_TRY(append(p, *out, &(*out)->items, first));
    while (skip_op(p, "~")) {
        POME_TRY(parse_product(p, &next));
        POME_TRY(append(p, *out, &(*out)->items, next));
    }
    return POME_OK;
}

static pome_status parse_sum(parser *p, node **out)
{
    POME_TRY(parse_concat(p, out));
    while (is_op(p, "+") || is_op(p, "-")) {
        pome_jinja_op op = is_op(p, "+") ? POME_JO_ADD : POME_JO_SUB;
        node *right;
        p->t++;
        POME_TRY(parse_concat(p, &right));
        POME_TRY(binary(p, POME_JN_BINARY, op, *out, right, out));
    }
    return POME_OK;
}

static bool comparison(parser *p, pome_jinja_op *op)
{
    static const char *const ops[] = {"==", "!=", "<", "<=", ">", ">="};
    for (size_t i = 0; i < 6; i++) {
        if (skip_op(p, ops[i])) {
            *op = (pome_jinja_op)(POME_JO_EQ + i);
            return true;
        }
    }
    *op = POME_JO_IN;
    if (skip_name(p, "in"))
        return true;
    if (is_name(p, "not") && p->t[1].kind == POME_JT_NAME && pome_str_is(p->t[1].text, "in")) {
        p->t += 2;
        *op = POME_JO_NOT_IN;
        return true;
    }
    return false;
}

static pome_status parse_compare(parser *p, node **out)
{
    node *first, *operand;
    pome_jinja_op op;
    POME_TRY(parse_sum(p, &first));
    *out = first;
    while (comparison(p, &op)) {
        if (*out == first) {
            POME_TRY(new_node(p, POME_JN_COMPARE, first->line, out));
            (*out)->a = first;
            POME_TRY(adopt(p, *out, first));
        }
        POME_TRY(new_node(p, POME_JN_OPERAND, p->t->line, &operand));
        operand->op = op;
        POME_TRY(parse_sum(p, &operand->a));
        POME_TRY(adopt(p, operand, operand->a));
        POME_TRY(append(p, *out, &(*out)->items, operand));
    }
    return POME_OK;
}

static pome_status parse_not(parser *p, node **out)
{
    if (!is_name(p, "not"))
        return parse_compare(p, out);
    POME_TRY(enter(p));
    POME_TRY(new_node(p, POME_JN_NOT, p->t->line, out));
    p->t++;
    POME_TRY(parse_not(p, &(*out)->a));
    p->depth--;
    return adopt(p, *out, (*out)->a);
}

static pome_status parse_and(parser *p, node **out)
{
    POME_TRY(parse_not(p, out));
    while (skip_name(p, "and")) {
        node *right;
        POME_TRY(parse_not(p, &right));
        POME_TRY(binary(p, POME_JN_AND, 0, *out, right, out));
    }
    return POME_OK;
}

static pome_status parse_expression_without_if(parser *p, node **out)
{
    POME_TRY(parse_and(p, out));
    while (skip_name(p, "or")) {
        node *right;
        POME_TRY(parse_and(p, &right));
        POME_TRY(binary(p, POME_JN_OR, 0, *out, right, out));
    }
    return POME_OK;
}

static pome_status parse_expression(parser *p, node **out)
{
    POME_TRY(enter(p));
    POME_TRY(parse_expression_without_if(p, out));
    while (is_name(p, "if")) {
        node *conditional;
        POME_TRY(new_node(p, POME_JN_CONDITIONAL, p->t->line, &conditional));
        p->t++;
        conditional->a = *out;
        POME_TRY(parse_expression_without_if(p, &conditional->b));
        if (skip_name(p, "else"))
            POME_TRY(parse_expression(p, &conditional->c));
        POME_TRY(adopt(p, conditional, conditional->a));
        POME_TRY(adopt(p, conditional, conditional->b));
        POME_TRY(adopt(p, conditional, conditional->c));
        *out = conditional;
    }
    p->depth--;
    return POME_OK;
}

/* ---- statements ---- */

/* Ends the tag, takes the body up to one of `ends`, and the name of that. */
static pome_status parse_body(parser *p, node *parent, nodes *body, const char *ends)
{
    POME_TRY(expect_block_end(p));
    POME_TRY(parse_statements(p, ends, body));
    for (size_t i = 0; i < body->n; i++)
        POME_TRY(adopt(p, parent, body->items[i]));
    return POME_OK;
}

static pome_status parse_target(parser *p, bool with_namespace, node **out);

static pome_status parse_target_item(parser *p, bool with_namespace, node **out)
{
    if (skip_op(p, "(")) {
        POME_TRY(enter(p));
        POME_TRY(parse_target(p, false, out));
        p->depth--;
        return expect_op(p, ")");
    }
    POME_TRY(new_node(p, POME_JN_NAME, p->t->line, out));
    POME_TRY(expect_name(p, &(*out)->name));
    if (with_namespace && skip_op(p, ".")) {
        pome_str attribute;
        POME_TRY(expect_name(p, &attribute));
        (*out)->kind = POME_JN_NAMESPACE_TARGET;
        (*out)->value = pome_jv_str(attribute);
    }
    return POME_OK;
}

/* A name, namespace.name, or several with commas, which may be nested in parentheses. */
static pome_status parse_target(parser *p, bool with_namespace, node **out)
{
    node *first, *item;
    POME_TRY(parse_target_item(p, with_namespace, &first));
    *out = first;
    if (!is_op(p, ","))
        return POME_OK;
    POME_TRY(new_node(p, POME_JN_TUPLE, first->line, out));
    POME_TRY(append(p, *out, &(*out)->items, first));
    while (skip_op(p, ",") && (p->t->kind == POME_JT_NAME || is_op(p, "(")) && !is_name(p, "in")) {
        POME_TRY(parse_target_item(p, with_namespace, &item));
        POME_TRY(append(p, *out, &(*out)->items, item));
    }
    return POME_OK;
}

static pome_status parse_for(parser *p, node *n)
{
    n->kind = POME_JN_FOR;
    POME_TRY(parse_target(p, false, &n->a));
    if (!skip_name(p, "in"))
        return syntax(p, "\"in\"");
    POME_TRY(parse_tuple(p, false, false, "recursive", &n->b));
    POME_TRY(adopt(p, n, n->b));
    if (skip_name(p, "if")) {
        POME_TRY(parse_expression(p, &n->c));
        POME_TRY(adopt(p, n, n->c));
    }
    n->is_recursive = skip_name(p, "recursive");
    POME_TRY(parse_body(p, n, &n->body, "endfor else"));
    if (skip_name(p, "else"))
        POME_TRY(parse_body(p, n, &n->other, "endfor"));
    p->t++;
    return expect_block_end(p);
}

/* An elif is a new IF in the other branch, on the same level of depth: chains of them are long. */
static pome_status parse_if(parser *p, node *n)
{
    int n_elif = 0;
    for (node *now = n;;) {
        now->kind = POME_JN_IF;
        POME_TRY(parse_tuple(p, false, false, NULL, &now->a));
        POME_TRY(adopt(p, n, now->a));
        POME_TRY(parse_body(p, n, &now->body, "endif else elif"));
        if (skip_name(p, "elif")) {
            node *next;
            if (++n_elif > ELIF_MAX)
                return pome_fail(p->err, POME_ERR_LIMIT, "line %d: more than %d elif", p->t->line, ELIF_MAX);
            POME_TRY(new_node(p, POME_JN_IF, p->t->line, &next));
            POME_TRY(append(p, NULL, &now->other, next));
            now = next;
            continue;
        }
        if (skip_name(p, "else"))
            POME_TRY(parse_body(p, n, &now->other, "endif"));
        p->t++;
        return expect_block_end(p);
    }
}

static pome_status parse_set(parser *p, node *n)
{
    n->kind = POME_JN_SET;
    POME_TRY(parse_target(p, true, &n->a));
    if (skip_op(p, "=")) {
        POME_TRY(parse_tuple(p, true, false, NULL, &n->b));
        POME_TRY(adopt(p, n, n->b));
        return expect_block_end(p);
    }
    n->kind = POME_JN_SET_BLOCK;
    while (skip_op(p, "|")) {
        POME_TRY(parse_filter(p, n->b, &n->b));
        POME_TRY(adopt(p, n, n->b));
    }
    POME_TRY(parse_body(p, n, &n->body, "endset"));
    p->t++;
    return expect_block_end(p);
}

static pome_status parse_parameters(parser *p, node *n)
{
    POME_TRY(expect_op(p, "("));
    while (!is_op(p, ")")) {
        node *parameter;
        if (n->items.n > 0)
            POME_TRY(expect_op(p, ","));
        POME_TRY(new_node(p, POME_JN_NAME, p->t->line, &parameter));
        POME_TRY(expect_name(p, &parameter->name));
        if (skip_op(p, "=")) {
            POME_TRY(parse_expression(p, &parameter->a));
            POME_TRY(adopt(p, parameter, parameter->a));
        } else if (n->items.n > 0 && n->items.items[n->items.n - 1]->a) {
            return syntax(p, "a default value");
        }
        POME_TRY(append(p, n, &n->items, parameter));
    }
    return expect_op(p, ")");
}

static pome_status parse_macro(parser *p, node *n)
{
    n->kind = POME_JN_MACRO;
    POME_TRY(expect_name(p, &n->name));
    POME_TRY(parse_parameters(p, n));
    POME_TRY(parse_body(p, n, &n->body, "endmacro"));
    p->t++;
    return expect_block_end(p);
}

static pome_status parse_call_block(parser *p, node *n)
{
    n->kind = POME_JN_CALL_BLOCK;
    if (is_op(p, "("))
        POME_TRY(parse_parameters(p, n));
    POME_TRY(parse_expression(p, &n->a));
    if (n->a->kind != POME_JN_CALL)
        return syntax(p, "a call");
    POME_TRY(adopt(p, n, n->a));
    POME_TRY(parse_body(p, n, &n->body, "endcall"));
    p->t++;
    return expect_block_end(p);
}

static pome_status parse_filter_block(parser *p, node *n)
{
    n->kind = POME_JN_FILTER_BLOCK;
    do {
        POME_TRY(parse_filter(p, n->a, &n->a));
        POME_TRY(adopt(p, n, n->a));
    } while (skip_op(p, "|"));
    POME_TRY(parse_body(p, n, &n->body, "endfilter"));
    p->t++;
    return expect_block_end(p);
}

static pome_status parse_with(parser *p, node *n)
{
    n->kind = POME_JN_WITH;
    while (p->t->kind != POME_JT_BLOCK_END) {
        node *item;
        if (n->items.n > 0)
            POME_TRY(expect_op(p, ","));
        POME_TRY(new_node(p, POME_JN_KEYWORD, p->t->line, &item));
        POME_TRY(expect_name(p, &item->name));
        POME_TRY(expect_op(p, "="));
        POME_TRY(parse_expression(p, &item->a));
        POME_TRY(adopt(p, item, item->a));
        POME_TRY(append(p, n, &n->items, item));
    }
    POME_TRY(parse_body(p, n, &n->body, "endwith"));
    p->t++;
    return expect_block_end(p);
}

static pome_status parse_generation(parser *p, node *n)
{
    n->kind = POME_JN_SCOPE;
    POME_TRY(parse_body(p, n, &n->body, "endgeneration"));
    p->t++;
    return expect_block_end(p);
}

static pome_status parse_jump(parser *p, node *n)
{
    n->kind = pome_str_is(p->t[-1].text, "break") ? POME_JN_BREAK : POME_JN_CONTINUE;
    return expect_block_end(p);
}

static pome_status parse_statement(parser *p, node **out)
{
    static const struct {
        const char *name;
        pome_status (*parse)(parser *p, node *n);
    } statements[] = {{"for", parse_for},           {"if", parse_if},       {"set", parse_set},
                      {"macro", parse_macro},       {"call", parse_call_block}, {"filter", parse_filter_block},
                      {"with", parse_with},         {"generation", parse_generation}, {"break", parse_jump},
                      {"continue", parse_jump}};
    if (p->t->kind != POME_JT_NAME)
        return syntax(p, "a statement");
    POME_TRY(enter(p));
    POME_TRY(new_node(p, POME_JN_IF, p->t->line, out));
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (skip_name(p, statements[i].name)) {
            POME_TRY(statements[i].parse(p, *out));
            p->depth--;
            return POME_OK;
        }
    }
    return pome_fail(p->err, POME_ERR_UNSUPPORTED, "line %d: statement \"%.*s\" is not known here", p->t->line,
                     (int)(p->t->text.len < 60 ? p->t->text.len : 60), p->t->text.ptr);
}

static bool in_list(const char *list, pome_str name)
{
    for (const char *s = list; *s;) {
        size_t n = strcspn(s, " ");
        if (n == name.len && memcmp(s, name.ptr, n) == 0)
            return true;
        s += n + (s[n] == ' ');
    }
    return false;
}

/* Up to a tag whose name is in `ends`, leaving the parser at that name; ends "": to the end of the template. */
static pome_status parse_statements(parser *p, const char *ends, nodes *out)
{
    for (;;) {
        node *n;
        if (p->t->kind == POME_JT_END) {
            if (*ends)
                return syntax(p, ends);
            return POME_OK;
        }
        if (p->t->kind == POME_JT_DATA) {
            POME_TRY(new_node(p, POME_JN_DATA, p->t->line, &n));
            n->value = pome_jv_str(p->t->text);
            p->t++;
        } else if (p->t->kind == POME_JT_VARIABLE_BEGIN) {
            POME_TRY(new_node(p, POME_JN_PRINT, p->t->line, &n));
            p->t++;
            POME_TRY(parse_tuple(p, true, false, NULL, &n->a));
            POME_TRY(adopt(p, n, n->a));
            if (p->t->kind != POME_JT_VARIABLE_END)
                return syntax(p, "\"}}\"");
            p->t++;
        } else {
            p->t++; /* "{%": nothing else can come here */
            if (p->t->kind == POME_JT_NAME && in_list(ends, p->t->text))
                return POME_OK;
            POME_TRY(parse_statement(p, &n));
        }
        POME_TRY(append(p, NULL, out, n));
    }
}

pome_status pome_jinja_parse(pome_jinja *jinja, const pome_jinja_token *tokens, pome_error *err)
{
    parser p = {.jinja = jinja, .t = tokens, .err = err};
    return parse_statements(&p, "", &jinja->body);
}
