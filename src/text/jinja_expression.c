/* Recursive descent in the order of jinja2's own parser, so that precedence and odd corners are the same. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "text/jinja_parser.h"

typedef pome_jinja_parser parser;
typedef pome_jinja_node node;
typedef pome_jinja_nodes nodes;

static pome_status parse_expression_without_if(parser *p, node **out);
static pome_status parse_unary(parser *p, bool with_filter, node **out);

pome_status pome_jinja_syntax(const parser *p, const char *wanted)
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

pome_status pome_jinja_enter(parser *p)
{
    if (++p->depth > POME_JINJA_NODE_DEPTH_MAX)
        return pome_fail(p->err, POME_ERR_LIMIT, "line %d: nested more than %d deep", p->t->line,
                         POME_JINJA_NODE_DEPTH_MAX);
    return POME_OK;
}

pome_status pome_jinja_new_node(parser *p, pome_jinja_node_kind kind, int line, node **out)
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

pome_status pome_jinja_adopt(parser *p, node *parent, const node *child)
{
    if (child && child->depth + 1 > parent->depth)
        parent->depth = child->depth + 1;
    if (parent->depth > POME_JINJA_NODE_DEPTH_MAX)
        return pome_fail(p->err, POME_ERR_LIMIT, "line %d: nested more than %d deep", parent->line,
                         POME_JINJA_NODE_DEPTH_MAX);
    return POME_OK;
}

pome_status pome_jinja_append(parser *p, node *parent, nodes *list, node *item)
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
    return parent ? pome_jinja_adopt(p, parent, item) : POME_OK;
}

pome_status pome_jinja_expect_op(parser *p, const char *op)
{
    char wanted[8];
    snprintf(wanted, sizeof wanted, "\"%s\"", op);
    return pome_jinja_skip_op(p, op) ? POME_OK : pome_jinja_syntax(p, wanted);
}

pome_status pome_jinja_expect_name(parser *p, pome_str *out)
{
    if (p->t->kind != POME_JT_NAME)
        return pome_jinja_syntax(p, "a name");
    *out = p->t->text;
    p->t++;
    return POME_OK;
}

pome_status pome_jinja_expect_block_end(parser *p)
{
    if (p->t->kind != POME_JT_BLOCK_END)
        return pome_jinja_syntax(p, "\"%}\"");
    p->t++;
    return POME_OK;
}

/* ---- expressions ---- */

static pome_status binary(parser *p, pome_jinja_node_kind kind, pome_jinja_op op, node *a, node *b, node **out)
{
    POME_TRY(pome_jinja_new_node(p, kind, a->line, out));
    (*out)->op = op;
    (*out)->a = a;
    (*out)->b = b;
    POME_TRY(pome_jinja_adopt(p, *out, a));
    return pome_jinja_adopt(p, *out, b);
}

/* Arguments behind "(": positional into items, named into keywords. */
static pome_status parse_arguments(parser *p, node *call)
{
    POME_TRY(pome_jinja_expect_op(p, "("));
    bool first = true;
    while (!pome_jinja_is_op(p, ")")) {
        if (!first) {
            POME_TRY(pome_jinja_expect_op(p, ","));
            if (pome_jinja_is_op(p, ")"))
                break;
        }
        first = false;
        node *value, *keyword;
        if (pome_jinja_is_op(p, "*") || pome_jinja_is_op(p, "**")) {
            nodes *list = pome_jinja_is_op(p, "*") ? &call->items : &call->keywords;
            POME_TRY(pome_jinja_new_node(p, POME_JN_SPREAD, p->t->line, &value));
            p->t++;
            POME_TRY(pome_jinja_parse_expression(p, &value->a));
            POME_TRY(pome_jinja_adopt(p, value, value->a));
            POME_TRY(pome_jinja_append(p, call, list, value));
            continue;
        }
        if (p->t->kind == POME_JT_NAME && p->t[1].kind == POME_JT_OPERATOR && pome_str_is(p->t[1].text, "=")) {
            POME_TRY(pome_jinja_new_node(p, POME_JN_KEYWORD, p->t->line, &keyword));
            keyword->name = p->t->text;
            p->t += 2;
            POME_TRY(pome_jinja_parse_expression(p, &keyword->a));
            POME_TRY(pome_jinja_adopt(p, keyword, keyword->a));
            POME_TRY(pome_jinja_append(p, call, &call->keywords, keyword));
            continue;
        }
        if (call->keywords.n > 0)
            return pome_jinja_syntax(p, "a named argument");
        POME_TRY(pome_jinja_parse_expression(p, &value));
        POME_TRY(pome_jinja_append(p, call, &call->items, value));
    }
    return pome_jinja_expect_op(p, ")");
}

static pome_status parse_call(parser *p, node *callee, node **out)
{
    POME_TRY(pome_jinja_new_node(p, POME_JN_CALL, p->t->line, out));
    (*out)->a = callee;
    POME_TRY(pome_jinja_adopt(p, *out, callee));
    return parse_arguments(p, *out);
}

/* [x] or [start:stop:step] behind "[". */
static pome_status parse_subscript(parser *p, node *object, node **out)
{
    int line = p->t->line;
    node *parts[3] = {NULL, NULL, NULL};
    int n = 0;
    bool slice = false;
    while (!pome_jinja_is_op(p, "]")) {
        if (pome_jinja_is_op(p, ",") )
            return pome_fail(p->err, POME_ERR_UNSUPPORTED, "line %d: an index of several values is not supported", line);
        if (pome_jinja_skip_op(p, ":")) {
            slice = true;
            if (++n > 2)
                return pome_jinja_syntax(p, "\"]\"");
            continue;
        }
        if (parts[n])
            return pome_jinja_syntax(p, "\"]\" or \":\"");
        POME_TRY(pome_jinja_parse_expression(p, &parts[n]));
    }
    p->t++;
    if (!slice && !parts[0])
        return pome_jinja_syntax(p, "an index");
    if (!slice)
        return binary(p, POME_JN_GETITEM, 0, object, parts[0], out);
    POME_TRY(pome_jinja_new_node(p, POME_JN_SLICE, line, out));
    (*out)->a = object;
    POME_TRY(pome_jinja_adopt(p, *out, object));
    for (int i = 0; i < 3; i++)
        POME_TRY(pome_jinja_append(p, *out, &(*out)->items, parts[i]));
    return POME_OK;
}

static pome_status parse_postfix(parser *p, node **n)
{
    for (;;) {
        node *outer;
        if (pome_jinja_is_op(p, "(")) {
            POME_TRY(parse_call(p, *n, &outer));
        } else if (pome_jinja_skip_op(p, "[")) {
            POME_TRY(parse_subscript(p, *n, &outer));
        } else if (pome_jinja_skip_op(p, ".")) {
            POME_TRY(pome_jinja_new_node(p, POME_JN_GETATTR, p->t->line, &outer));
            outer->a = *n;
            POME_TRY(pome_jinja_adopt(p, outer, *n));
            if (p->t->kind == POME_JT_INTEGER) {
                outer->kind = POME_JN_GETITEM;
                POME_TRY(pome_jinja_new_node(p, POME_JN_CONST, p->t->line, &outer->b));
                outer->b->value = pome_jv_int(p->t->integer);
                p->t++;
            } else {
                POME_TRY(pome_jinja_expect_name(p, &outer->name));
            }
        } else {
            return POME_OK;
        }
        *n = outer;
    }
}

pome_status pome_jinja_parse_filter(parser *p, node *input, node **out)
{
    POME_TRY(pome_jinja_new_node(p, POME_JN_FILTER, p->t->line, out));
    (*out)->a = input;
    POME_TRY(pome_jinja_adopt(p, *out, input));
    POME_TRY(pome_jinja_expect_name(p, &(*out)->name));
    return pome_jinja_is_op(p, "(") ? parse_arguments(p, *out) : POME_OK;
}

static pome_status parse_primary(parser *p, node **out);

static pome_status parse_test(parser *p, node *input, node **out)
{
    bool negated = pome_jinja_skip_name(p, "not");
    node *test;
    POME_TRY(pome_jinja_new_node(p, POME_JN_TEST, p->t->line, &test));
    test->a = input;
    POME_TRY(pome_jinja_adopt(p, test, input));
    POME_TRY(pome_jinja_expect_name(p, &test->name));
    if (pome_jinja_is_op(p, "(")) {
        POME_TRY(parse_arguments(p, test));
    } else if (p->t->kind == POME_JT_NAME || p->t->kind == POME_JT_STRING || p->t->kind == POME_JT_INTEGER ||
               p->t->kind == POME_JT_FLOAT || pome_jinja_is_op(p, "[") || pome_jinja_is_op(p, "{")) {
        if (!pome_jinja_is_name(p, "else") && !pome_jinja_is_name(p, "or") && !pome_jinja_is_name(p, "and")) {
            if (pome_jinja_is_name(p, "is"))
                return pome_jinja_syntax(p, "no second test");
            node *argument;
            POME_TRY(parse_primary(p, &argument));
            POME_TRY(parse_postfix(p, &argument));
            POME_TRY(pome_jinja_append(p, test, &test->items, argument));
        }
    }
    *out = test;
    if (negated) {
        POME_TRY(pome_jinja_new_node(p, POME_JN_NOT, test->line, out));
        (*out)->a = test;
        return pome_jinja_adopt(p, *out, test);
    }
    return POME_OK;
}

static pome_status parse_filters(parser *p, node **n)
{
    for (;;) {
        node *outer;
        if (pome_jinja_skip_op(p, "|"))
            POME_TRY(pome_jinja_parse_filter(p, *n, &outer));
        else if (pome_jinja_skip_name(p, "is"))
            POME_TRY(parse_test(p, *n, &outer));
        else if (pome_jinja_is_op(p, "("))
            POME_TRY(parse_call(p, *n, &outer));
        else
            return POME_OK;
        *n = outer;
    }
}

/* Items up to the closing bracket, into a LIST, TUPLE or DICT. */
static pome_status parse_items(parser *p, pome_jinja_node_kind kind, const char *close, node **out)
{
    POME_TRY(pome_jinja_new_node(p, kind, p->t->line, out));
    while (!pome_jinja_is_op(p, close)) {
        node *item;
        if ((*out)->items.n > 0) {
            POME_TRY(pome_jinja_expect_op(p, ","));
            if (pome_jinja_is_op(p, close))
                break;
        }
        POME_TRY(pome_jinja_parse_expression(p, &item));
        POME_TRY(pome_jinja_append(p, *out, &(*out)->items, item));
        if (kind != POME_JN_DICT)
            continue;
        POME_TRY(pome_jinja_expect_op(p, ":"));
        POME_TRY(pome_jinja_parse_expression(p, &item));
        POME_TRY(pome_jinja_append(p, *out, &(*out)->items, item));
    }
    return pome_jinja_expect_op(p, close);
}

pome_status pome_jinja_parse_tuple(parser *p, bool with_if, bool in_parentheses, const char *end_name, node **out)
{
    node *first = NULL, *item;
    int line = p->t->line;
    *out = NULL;
    for (;;) {
        bool ends = p->t->kind == POME_JT_VARIABLE_END || p->t->kind == POME_JT_BLOCK_END || pome_jinja_is_op(p, ")") ||
                    (end_name && pome_jinja_is_name(p, end_name));
        if (ends)
            break;
        POME_TRY(with_if ? pome_jinja_parse_expression(p, &item) : parse_expression_without_if(p, &item));
        if (*out)
            POME_TRY(pome_jinja_append(p, *out, &(*out)->items, item));
        else
            first = item;
        if (!pome_jinja_is_op(p, ","))
            break;
        p->t++;
        if (!*out) {
            POME_TRY(pome_jinja_new_node(p, POME_JN_TUPLE, line, out));
            POME_TRY(pome_jinja_append(p, *out, &(*out)->items, first));
        }
    }
    if (*out)
        return POME_OK;
    if (!first && !in_parentheses)
        return pome_jinja_syntax(p, "an expression");
    if (!first)
        return pome_jinja_new_node(p, POME_JN_TUPLE, line, out);
    *out = first;
    return POME_OK;
}

static pome_status parse_constant(parser *p, node **out)
{
    POME_TRY(pome_jinja_new_node(p, POME_JN_CONST, p->t->line, out));
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
    POME_TRY(pome_jinja_new_node(p, POME_JN_NAME, p->t->line, out));
    (*out)->name = p->t->text;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (pome_jinja_is_name(p, constants[i].name)) {
            (*out)->kind = POME_JN_CONST;
            (*out)->value = (pome_jv){.type = constants[i].type, .u.b = constants[i].value};
        }
    }
    p->t++;
    return POME_OK;
}

static pome_status parse_primary(parser *p, node **out)
{
    POME_TRY(pome_jinja_enter(p));
    if (p->t->kind == POME_JT_NAME) {
        POME_TRY(parse_name(p, out));
    } else if (p->t->kind == POME_JT_STRING || p->t->kind == POME_JT_INTEGER || p->t->kind == POME_JT_FLOAT) {
        POME_TRY(parse_constant(p, out));
    } else if (pome_jinja_skip_op(p, "(")) {
        POME_TRY(pome_jinja_parse_tuple(p, true, true, NULL, out));
        POME_TRY(pome_jinja_expect_op(p, ")"));
    } else if (pome_jinja_skip_op(p, "[")) {
        POME_TRY(parse_items(p, POME_JN_LIST, "]", out));
    } else if (pome_jinja_skip_op(p, "{")) {
        POME_TRY(parse_items(p, POME_JN_DICT, "}", out));
    } else {
        return pome_jinja_syntax(p, "an expression");
    }
    p->depth--;
    return POME_OK;
}

static pome_status parse_unary(parser *p, bool with_filter, node **out)
{
    int line = p->t->line;
    POME_TRY(pome_jinja_enter(p));
    bool negative = pome_jinja_is_op(p, "-");
    if (negative || pome_jinja_is_op(p, "+")) {
        p->t++;
        POME_TRY(pome_jinja_new_node(p, POME_JN_UNARY, line, out));
        (*out)->op = negative ? POME_JO_NEG : POME_JO_POS;
        POME_TRY(parse_unary(p, false, &(*out)->a));
        POME_TRY(pome_jinja_adopt(p, *out, (*out)->a));
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
    while (pome_jinja_skip_op(p, "**")) {
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
        if (!pome_jinja_skip_op(p, ops[i].text))
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
    if (!pome_jinja_is_op(p, "~"))
        return POME_OK;
    POME_TRY(pome_jinja_new_node(p, POME_JN_CONCAT, first->line, out));
    POME_TRY(pome_jinja_append(p, *out, &(*out)->items, first));
    while (pome_jinja_skip_op(p, "~")) {
        POME_TRY(parse_product(p, &next));
        POME_TRY(pome_jinja_append(p, *out, &(*out)->items, next));
    }
    return POME_OK;
}

static pome_status parse_sum(parser *p, node **out)
{
    POME_TRY(parse_concat(p, out));
    while (pome_jinja_is_op(p, "+") || pome_jinja_is_op(p, "-")) {
        pome_jinja_op op = pome_jinja_is_op(p, "+") ? POME_JO_ADD : POME_JO_SUB;
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
        if (pome_jinja_skip_op(p, ops[i])) {
            *op = (pome_jinja_op)(POME_JO_EQ + i);
            return true;
        }
    }
    *op = POME_JO_IN;
    if (pome_jinja_skip_name(p, "in"))
        return true;
    if (pome_jinja_is_name(p, "not") && p->t[1].kind == POME_JT_NAME && pome_str_is(p->t[1].text, "in")) {
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
            POME_TRY(pome_jinja_new_node(p, POME_JN_COMPARE, first->line, out));
            (*out)->a = first;
            POME_TRY(pome_jinja_adopt(p, *out, first));
        }
        POME_TRY(pome_jinja_new_node(p, POME_JN_OPERAND, p->t->line, &operand));
        operand->op = op;
        POME_TRY(parse_sum(p, &operand->a));
        POME_TRY(pome_jinja_adopt(p, operand, operand->a));
        POME_TRY(pome_jinja_append(p, *out, &(*out)->items, operand));
    }
    return POME_OK;
}

static pome_status parse_not(parser *p, node **out)
{
    if (!pome_jinja_is_name(p, "not"))
        return parse_compare(p, out);
    POME_TRY(pome_jinja_enter(p));
    POME_TRY(pome_jinja_new_node(p, POME_JN_NOT, p->t->line, out));
    p->t++;
    POME_TRY(parse_not(p, &(*out)->a));
    p->depth--;
    return pome_jinja_adopt(p, *out, (*out)->a);
}

static pome_status parse_and(parser *p, node **out)
{
    POME_TRY(parse_not(p, out));
    while (pome_jinja_skip_name(p, "and")) {
        node *right;
        POME_TRY(parse_not(p, &right));
        POME_TRY(binary(p, POME_JN_AND, 0, *out, right, out));
    }
    return POME_OK;
}

static pome_status parse_expression_without_if(parser *p, node **out)
{
    POME_TRY(parse_and(p, out));
    while (pome_jinja_skip_name(p, "or")) {
        node *right;
        POME_TRY(parse_and(p, &right));
        POME_TRY(binary(p, POME_JN_OR, 0, *out, right, out));
    }
    return POME_OK;
}

pome_status pome_jinja_parse_expression(parser *p, node **out)
{
    POME_TRY(pome_jinja_enter(p));
    POME_TRY(parse_expression_without_if(p, out));
    while (pome_jinja_is_name(p, "if")) {
        node *conditional;
        POME_TRY(pome_jinja_new_node(p, POME_JN_CONDITIONAL, p->t->line, &conditional));
        p->t++;
        conditional->a = *out;
        POME_TRY(parse_expression_without_if(p, &conditional->b));
        if (pome_jinja_skip_name(p, "else"))
            POME_TRY(pome_jinja_parse_expression(p, &conditional->c));
        POME_TRY(pome_jinja_adopt(p, conditional, conditional->a));
        POME_TRY(pome_jinja_adopt(p, conditional, conditional->b));
        POME_TRY(pome_jinja_adopt(p, conditional, conditional->c));
        *out = conditional;
    }
    p->depth--;
    return POME_OK;
}
