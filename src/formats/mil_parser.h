/* Between the two halves of the parser of MIL text: structure (mil_parser.c), types and literals (mil_literal.c). */
#ifndef POME_FORMATS_MIL_PARSER_H
#define POME_FORMATS_MIL_PARSER_H

#include "base/arena.h"
#include "formats/coreml.pb-c.h"
#include "formats/mil_lexer.h"

/* Elements of the literal being read: integers and bools as int64, floats as double, strings as pointers. */
typedef union pome_mil_element {
    uint64_t bits;
    double real;
    char *text;
} pome_mil_element;

typedef struct pome_mil_parser {
    pome_mil_lexer lexer;
    pome_arena *arena;
    uint32_t depth, max_depth;
    pome_mil_element *elements; /* malloc'ed, reused */
    size_t n_elements, room;
} pome_mil_parser;

/* A list of pointers in the arena that grows. */
typedef struct pome_mil_list {
    void **items;
    size_t n, room;
} pome_mil_list;

pome_status pome_mil_append(pome_mil_parser *p, pome_mil_list *list, void *item, pome_error *err);
pome_status pome_mil_no_memory(pome_error *err);

/* p->depth, bounded: each enter that succeeds is followed by a leave. Errors: LIMIT. */
pome_status pome_mil_enter(pome_mil_parser *p, pome_error *err);
static inline void pome_mil_leave(pome_mil_parser *p)
{
    p->depth--;
}

pome_status pome_mil_expect(pome_mil_parser *p, char mark, pome_error *err);
/* Takes the mark if it is next. */
pome_status pome_mil_accept(bool *found, pome_mil_parser *p, char mark, pome_error *err);
/* Takes a name, or a string in its place. `wanted` is for the message. */
pome_status pome_mil_take_name(char **out, pome_mil_parser *p, const char *wanted, pome_error *err);
/* The text of the string token, without escapes. */
pome_status pome_mil_unquote(char **out, pome_mil_parser *p, pome_error *err);

pome_status pome_mil_parse_type(Pome__Spec__ValueType **out, pome_mil_parser *p, pome_error *err);
/* The rest of a type whose first token, `word`, has been taken. */
pome_status pome_mil_parse_type_after(Pome__Spec__ValueType **out, pome_mil_parser *p, const pome_mil_token *word,
                                      pome_error *err);
/* "(" literal ")" behind a type. */
pome_status pome_mil_parse_literal(Pome__Spec__Value **out, pome_mil_parser *p, Pome__Spec__ValueType *type,
                                   pome_error *err);
/* "[" name = typed literal, ... "]" if it is there. */
pome_status pome_mil_parse_attributes(Pome__Spec__ValueEntry ***out, size_t *n_out, pome_mil_parser *p,
                                      pome_error *err);

/* Declares `var`, a message made in the arena and initialized; returns NOMEM from the function if there is no room. */
#define POME_MIL_NEW(p, var, type, init)                                                                              \
    type *var = POME_NEW((p)->arena, type);                                                                           \
    if (!var)                                                                                                         \
        return pome_mil_no_memory(err);                                                                               \
    init(var)

#endif
