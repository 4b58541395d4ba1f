/* A template as a tree, and the lexer's tokens. Everything lives in the template's arena. */
#ifndef POME_TEXT_JINJA_AST_H
#define POME_TEXT_JINJA_AST_H

#include "text/jinja_value.h"

#define POME_JINJA_NODE_DEPTH_MAX 150 /* of the tree; bounds the evaluator's recursion */

typedef enum pome_jinja_token_kind {
    POME_JT_DATA,
    POME_JT_VARIABLE_BEGIN,
    POME_JT_VARIABLE_END,
    POME_JT_BLOCK_BEGIN,
    POME_JT_BLOCK_END,
    POME_JT_NAME,
    POME_JT_STRING,
    POME_JT_INTEGER,
    POME_JT_FLOAT,
    POME_JT_OPERATOR,
    POME_JT_END
} pome_jinja_token_kind;

typedef struct pome_jinja_token {
    pome_jinja_token_kind kind;
    int line;
    pome_str text; /* DATA, NAME, OPERATOR; STRING: with its escapes resolved */
    int64_t integer;
    double real;
} pome_jinja_token;

typedef enum pome_jinja_node_kind {
    /* expressions */
    POME_JN_CONST, /* value */
    POME_JN_NAME,
    POME_JN_LIST, /* items */
    POME_JN_TUPLE,
    POME_JN_DICT,   /* items: key, value, key, value */
    POME_JN_GETATTR, /* a, name */
    POME_JN_GETITEM, /* a, b */
    POME_JN_SLICE,   /* a, items: start, stop, step (NULL: none) */
    POME_JN_CALL,    /* a, items, keywords */
    POME_JN_FILTER,  /* a (NULL: the block's text), name, items, keywords, call */
    POME_JN_TEST,
    POME_JN_UNARY,  /* op, a */
    POME_JN_BINARY, /* op, a, b */
    POME_JN_AND,
    POME_JN_OR,
    POME_JN_NOT,
    POME_JN_COMPARE,     /* a, items: operands, each a BINARY-like node with op and a */
    POME_JN_OPERAND,
    POME_JN_CONCAT,      /* items */
    POME_JN_CONDITIONAL, /* a if b else c (NULL: undefined) */
    POME_JN_KEYWORD,     /* name, a */
    POME_JN_SPREAD,      /* *a among items, **a among keywords */
    /* statements */
    POME_JN_DATA,   /* value: the text */
    POME_JN_PRINT,  /* a */
    POME_JN_FOR,    /* a: target, b: iterable, c: condition or NULL, body, other, is_recursive */
    POME_JN_IF,     /* a, body, other */
    POME_JN_SET,    /* a: target, b: value */
    POME_JN_SET_BLOCK, /* a: target, b: filter or NULL, body */
    POME_JN_NAMESPACE_TARGET, /* name, attribute in value */
    POME_JN_MACRO,  /* name, items: NAME nodes with the default in a, body */
    POME_JN_CALL_BLOCK, /* a: the call, items: the caller's parameters, body */
    POME_JN_FILTER_BLOCK, /* a, body */
    POME_JN_WITH,   /* items: KEYWORD nodes, body */
    POME_JN_SCOPE,  /* body: a generation block */
    POME_JN_BREAK,
    POME_JN_CONTINUE
} pome_jinja_node_kind;

typedef enum pome_jinja_op {
    POME_JO_ADD,
    POME_JO_SUB,
    POME_JO_MUL,
    POME_JO_DIV,
    POME_JO_FLOORDIV,
    POME_JO_MOD,
    POME_JO_POW,
    POME_JO_NEG,
    POME_JO_POS,
    POME_JO_EQ,
    POME_JO_NE,
    POME_JO_LT,
    POME_JO_LE,
    POME_JO_GT,
    POME_JO_GE,
    POME_JO_IN,
    POME_JO_NOT_IN
} pome_jinja_op;

typedef struct pome_jinja_node pome_jinja_node;
typedef struct pome_jinja_nodes {
    pome_jinja_node **items;
    size_t n, cap;
} pome_jinja_nodes;

struct pome_jinja_node {
    pome_jinja_node_kind kind;
    int line;
    int depth; /* of the tree below, at least 1 */
    pome_jinja_op op;
    bool is_recursive;
    pome_str name;
    pome_jv value;
    pome_jinja_node *a, *b, *c;
    pome_jinja_nodes items, keywords, body, other;
    const void *call; /* FILTER, TEST: the function, see jinja_eval.h */
};

struct pome_jinja {
    pome_arena *arena;
    pome_jinja_nodes body;
};

/* Tokens of the source, ended by POME_JT_END. The source is in the arena. */
pome_status pome_jinja_lex(pome_arena *arena, pome_str source, pome_jinja_token **out, pome_error *err);
pome_status pome_jinja_parse(pome_jinja *jinja, const pome_jinja_token *tokens, pome_error *err);

#endif
