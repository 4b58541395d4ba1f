/* Between the two files of the parser: jinja_expression.c and, for statements, jinja_parser.c. */
#ifndef POME_TEXT_JINJA_PARSER_H
#define POME_TEXT_JINJA_PARSER_H

#include "text/jinja_ast.h"

typedef struct pome_jinja_parser {
    pome_jinja *jinja;
    const pome_jinja_token *t; /* the current token */
    int depth;
    pome_error *err;
} pome_jinja_parser;

/* FORMAT, saying what was found and what is wanted. */
pome_status pome_jinja_syntax(const pome_jinja_parser *p, const char *wanted);
/* Counts the parser's own recursion; the caller lowers p->depth when it is done. */
pome_status pome_jinja_enter(pome_jinja_parser *p);
pome_status pome_jinja_new_node(pome_jinja_parser *p, pome_jinja_node_kind kind, int line, pome_jinja_node **out);
/* The parent is deeper than each of its children; chains like a.b.c or a + b + c grow without parser recursion. */
pome_status pome_jinja_adopt(pome_jinja_parser *p, pome_jinja_node *parent, const pome_jinja_node *child);
/* Adds an item to a list of nodes, and adopts it unless parent is NULL. */
pome_status pome_jinja_append(pome_jinja_parser *p, pome_jinja_node *parent, pome_jinja_nodes *list,
                              pome_jinja_node *item);
pome_status pome_jinja_expect_op(pome_jinja_parser *p, const char *op);
pome_status pome_jinja_expect_name(pome_jinja_parser *p, pome_str *out);
pome_status pome_jinja_expect_block_end(pome_jinja_parser *p);

pome_status pome_jinja_parse_expression(pome_jinja_parser *p, pome_jinja_node **out);
/* One expression, or several with commas: a tuple. end_name: a name that ends it, or NULL. */
pome_status pome_jinja_parse_tuple(pome_jinja_parser *p, bool with_if, bool in_parentheses, const char *end_name,
                                   pome_jinja_node **out);
/* name or name(...) of a filter on input, which is NULL for the text of a block. */
pome_status pome_jinja_parse_filter(pome_jinja_parser *p, pome_jinja_node *input, pome_jinja_node **out);

static inline bool pome_jinja_is_op(const pome_jinja_parser *p, const char *op)
{
    return p->t->kind == POME_JT_OPERATOR && pome_str_is(p->t->text, op);
}

static inline bool pome_jinja_is_name(const pome_jinja_parser *p, const char *name)
{
    return p->t->kind == POME_JT_NAME && pome_str_is(p->t->text, name);
}

static inline bool pome_jinja_skip_op(pome_jinja_parser *p, const char *op)
{
    bool is = pome_jinja_is_op(p, op);
    p->t += is;
    return is;
}

static inline bool pome_jinja_skip_name(pome_jinja_parser *p, const char *name)
{
    bool is = pome_jinja_is_name(p, name);
    p->t += is;
    return is;
}

#endif
