/* The statements of templates. */
#include <string.h>

#include "base/error.h"
#include "text/jinja_parser.h"

#define ELIF_MAX 500

typedef pome_jinja_parser parser;
typedef pome_jinja_node node;
typedef pome_jinja_nodes nodes;

static pome_status parse_statements(parser *p, const char *ends, nodes *out);

/* Ends the tag, takes the body up to one of `ends`, and the name of that. */
static pome_status parse_body(parser *p, node *parent, nodes *body, const char *ends)
{
    POME_TRY(pome_jinja_expect_block_end(p));
    POME_TRY(parse_statements(p, ends, body));
    for (size_t i = 0; i < body->n; i++)
        POME_TRY(pome_jinja_adopt(p, parent, body->items[i]));
    return POME_OK;
}

static pome_status parse_target(parser *p, bool with_namespace, node **out);

static pome_status parse_target_item(parser *p, bool with_namespace, node **out)
{
    if (pome_jinja_skip_op(p, "(")) {
        POME_TRY(pome_jinja_enter(p));
        POME_TRY(parse_target(p, false, out));
        p->depth--;
        return pome_jinja_expect_op(p, ")");
    }
    POME_TRY(pome_jinja_new_node(p, POME_JN_NAME, p->t->line, out));
    POME_TRY(pome_jinja_expect_name(p, &(*out)->name));
    if (with_namespace && pome_jinja_skip_op(p, ".")) {
        pome_str attribute;
        POME_TRY(pome_jinja_expect_name(p, &attribute));
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
    if (!pome_jinja_is_op(p, ","))
        return POME_OK;
    POME_TRY(pome_jinja_new_node(p, POME_JN_TUPLE, first->line, out));
    POME_TRY(pome_jinja_append(p, *out, &(*out)->items, first));
    while (pome_jinja_skip_op(p, ",") && (p->t->kind == POME_JT_NAME || pome_jinja_is_op(p, "(")) && !pome_jinja_is_name(p, "in")) {
        POME_TRY(parse_target_item(p, with_namespace, &item));
        POME_TRY(pome_jinja_append(p, *out, &(*out)->items, item));
    }
    return POME_OK;
}

static pome_status parse_for(parser *p, node *n)
{
    n->kind = POME_JN_FOR;
    POME_TRY(parse_target(p, false, &n->a));
    if (!pome_jinja_skip_name(p, "in"))
        return pome_jinja_syntax(p, "\"in\"");
    POME_TRY(pome_jinja_parse_tuple(p, false, false, "recursive", &n->b));
    POME_TRY(pome_jinja_adopt(p, n, n->b));
    if (pome_jinja_skip_name(p, "if")) {
        POME_TRY(pome_jinja_parse_expression(p, &n->c));
        POME_TRY(pome_jinja_adopt(p, n, n->c));
    }
    n->is_recursive = pome_jinja_skip_name(p, "recursive");
    POME_TRY(parse_body(p, n, &n->body, "endfor else"));
    if (pome_jinja_skip_name(p, "else"))
        POME_TRY(parse_body(p, n, &n->other, "endfor"));
    p->t++;
    return pome_jinja_expect_block_end(p);
}

/* An elif is a new IF in the other branch, on the same level of depth: chains of them are long. */
static pome_status parse_if(parser *p, node *n)
{
    int n_elif = 0;
    for (node *now = n;;) {
        now->kind = POME_JN_IF;
        POME_TRY(pome_jinja_parse_tuple(p, false, false, NULL, &now->a));
        POME_TRY(pome_jinja_adopt(p, n, now->a));
        POME_TRY(parse_body(p, n, &now->body, "endif else elif"));
        if (pome_jinja_skip_name(p, "elif")) {
            node *next;
            if (++n_elif > ELIF_MAX)
                return pome_fail(p->err, POME_ERR_LIMIT, "line %d: more than %d elif", p->t->line, ELIF_MAX);
            POME_TRY(pome_jinja_new_node(p, POME_JN_IF, p->t->line, &next));
            POME_TRY(pome_jinja_append(p, NULL, &now->other, next));
            now = next;
            continue;
        }
        if (pome_jinja_skip_name(p, "else"))
            POME_TRY(parse_body(p, n, &now->other, "endif"));
        p->t++;
        return pome_jinja_expect_block_end(p);
    }
}

static pome_status parse_set(parser *p, node *n)
{
    n->kind = POME_JN_SET;
    POME_TRY(parse_target(p, true, &n->a));
    if (pome_jinja_skip_op(p, "=")) {
        POME_TRY(pome_jinja_parse_tuple(p, true, false, NULL, &n->b));
        POME_TRY(pome_jinja_adopt(p, n, n->b));
        return pome_jinja_expect_block_end(p);
    }
    n->kind = POME_JN_SET_BLOCK;
    while (pome_jinja_skip_op(p, "|")) {
        POME_TRY(pome_jinja_parse_filter(p, n->b, &n->b));
        POME_TRY(pome_jinja_adopt(p, n, n->b));
    }
    POME_TRY(parse_body(p, n, &n->body, "endset"));
    p->t++;
    return pome_jinja_expect_block_end(p);
}

static pome_status parse_parameters(parser *p, node *n)
{
    POME_TRY(pome_jinja_expect_op(p, "("));
    while (!pome_jinja_is_op(p, ")")) {
        node *parameter;
        if (n->items.n > 0)
            POME_TRY(pome_jinja_expect_op(p, ","));
        POME_TRY(pome_jinja_new_node(p, POME_JN_NAME, p->t->line, &parameter));
        POME_TRY(pome_jinja_expect_name(p, &parameter->name));
        if (pome_jinja_skip_op(p, "=")) {
            POME_TRY(pome_jinja_parse_expression(p, &parameter->a));
            POME_TRY(pome_jinja_adopt(p, parameter, parameter->a));
        } else if (n->items.n > 0 && n->items.items[n->items.n - 1]->a) {
            return pome_jinja_syntax(p, "a default value");
        }
        POME_TRY(pome_jinja_append(p, n, &n->items, parameter));
    }
    return pome_jinja_expect_op(p, ")");
}

static pome_status parse_macro(parser *p, node *n)
{
    n->kind = POME_JN_MACRO;
    POME_TRY(pome_jinja_expect_name(p, &n->name));
    POME_TRY(parse_parameters(p, n));
    POME_TRY(parse_body(p, n, &n->body, "endmacro"));
    p->t++;
    return pome_jinja_expect_block_end(p);
}

static pome_status parse_call_block(parser *p, node *n)
{
    n->kind = POME_JN_CALL_BLOCK;
    if (pome_jinja_is_op(p, "("))
        POME_TRY(parse_parameters(p, n));
    POME_TRY(pome_jinja_parse_expression(p, &n->a));
    if (n->a->kind != POME_JN_CALL)
        return pome_jinja_syntax(p, "a call");
    POME_TRY(pome_jinja_adopt(p, n, n->a));
    POME_TRY(parse_body(p, n, &n->body, "endcall"));
    p->t++;
    return pome_jinja_expect_block_end(p);
}

static pome_status parse_filter_block(parser *p, node *n)
{
    n->kind = POME_JN_FILTER_BLOCK;
    do {
        POME_TRY(pome_jinja_parse_filter(p, n->a, &n->a));
        POME_TRY(pome_jinja_adopt(p, n, n->a));
    } while (pome_jinja_skip_op(p, "|"));
    POME_TRY(parse_body(p, n, &n->body, "endfilter"));
    p->t++;
    return pome_jinja_expect_block_end(p);
}

static pome_status parse_with(parser *p, node *n)
{
    n->kind = POME_JN_WITH;
    while (p->t->kind != POME_JT_BLOCK_END) {
        node *item;
        if (n->items.n > 0)
            POME_TRY(pome_jinja_expect_op(p, ","));
        POME_TRY(pome_jinja_new_node(p, POME_JN_KEYWORD, p->t->line, &item));
        POME_TRY(pome_jinja_expect_name(p, &item->name));
        POME_TRY(pome_jinja_expect_op(p, "="));
        POME_TRY(pome_jinja_parse_expression(p, &item->a));
        POME_TRY(pome_jinja_adopt(p, item, item->a));
        POME_TRY(pome_jinja_append(p, n, &n->items, item));
    }
    POME_TRY(parse_body(p, n, &n->body, "endwith"));
    p->t++;
    return pome_jinja_expect_block_end(p);
}

static pome_status parse_generation(parser *p, node *n)
{
    n->kind = POME_JN_SCOPE;
    POME_TRY(parse_body(p, n, &n->body, "endgeneration"));
    p->t++;
    return pome_jinja_expect_block_end(p);
}

static pome_status parse_jump(parser *p, node *n)
{
    n->kind = pome_str_is(p->t[-1].text, "break") ? POME_JN_BREAK : POME_JN_CONTINUE;
    return pome_jinja_expect_block_end(p);
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
        return pome_jinja_syntax(p, "a statement");
    POME_TRY(pome_jinja_enter(p));
    POME_TRY(pome_jinja_new_node(p, POME_JN_IF, p->t->line, out));
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (pome_jinja_skip_name(p, statements[i].name)) {
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
                return pome_jinja_syntax(p, ends);
            return POME_OK;
        }
        if (p->t->kind == POME_JT_DATA) {
            POME_TRY(pome_jinja_new_node(p, POME_JN_DATA, p->t->line, &n));
            n->value = pome_jv_str(p->t->text);
            p->t++;
        } else if (p->t->kind == POME_JT_VARIABLE_BEGIN) {
            POME_TRY(pome_jinja_new_node(p, POME_JN_PRINT, p->t->line, &n));
            p->t++;
            POME_TRY(pome_jinja_parse_tuple(p, true, false, NULL, &n->a));
            POME_TRY(pome_jinja_adopt(p, n, n->a));
            if (p->t->kind != POME_JT_VARIABLE_END)
                return pome_jinja_syntax(p, "\"}}\"");
            p->t++;
        } else {
            p->t++; /* "{%": nothing else can come here */
            if (p->t->kind == POME_JT_NAME && in_list(ends, p->t->text))
                return POME_OK;
            POME_TRY(parse_statement(p, &n));
        }
        POME_TRY(pome_jinja_append(p, NULL, out, n));
    }
}

pome_status pome_jinja_parse(pome_jinja *jinja, const pome_jinja_token *tokens, pome_error *err)
{
    parser p = {.jinja = jinja, .t = tokens, .err = err};
    return parse_statements(&p, "", &jinja->body);
}
