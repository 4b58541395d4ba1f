/* Tokens of MIL text, the program of a compiled model. Whitespace separates and means nothing,
 * as do comments from // to the end of the line. */
#ifndef POME_FORMATS_MIL_LEXER_H
#define POME_FORMATS_MIL_LEXER_H

#include "base/error.h"
#include "base/span.h"

typedef enum pome_mil_kind {
    POME_MIL_END,
    POME_MIL_NAME,   /* [A-Za-z_] and bytes above 127, then digits and @ $ . : / # ~ too */
    POME_MIL_NUMBER, /* sign, digits, exponent: as far as it goes; converted by pome_mil_integer and pome_mil_float */
    POME_MIL_STRING, /* text: between the quotes, escapes as written */
    POME_MIL_ARROW,
    POME_MIL_MARK    /* one of ( ) [ ] { } < > , ; = ? * */
} pome_mil_kind;

typedef struct pome_mil_token {
    pome_mil_kind kind;
    pome_str text; /* a view of the source */
    size_t at;     /* byte position */
} pome_mil_token;

typedef struct pome_mil_lexer {
    pome_bytes source;
    size_t at;            /* behind the token */
    pome_mil_token token; /* the next to be used */
} pome_mil_lexer;

/* Checks that the text is UTF-8 without NUL, and reads the first token. Errors: FORMAT. */
pome_status pome_mil_lexer_start(pome_mil_lexer *out, pome_bytes source, pome_error *err);
/* Reads the next token. Errors: FORMAT. */
pome_status pome_mil_lexer_next(pome_mil_lexer *lexer, pome_error *err);

static inline bool pome_mil_is_mark(const pome_mil_lexer *lexer, char mark)
{
    return lexer->token.kind == POME_MIL_MARK && lexer->token.text.ptr[0] == mark;
}

/* FORMAT: "line 3, column 14: " and the message, with the byte position. */
pome_status pome_mil_fail(const pome_mil_lexer *lexer, size_t at, pome_error *err, const char *fmt, ...)
    POME_PRINTF(4, 5);
/* The same: found the token, wanted something else. */
pome_status pome_mil_unexpected(const pome_mil_lexer *lexer, const char *wanted, pome_error *err);

/* A number's value; false: not an integer, or beyond 64 bits. *is_negative tells -1 from 2^64-1. */
bool pome_mil_integer(pome_str text, bool *is_negative, uint64_t *magnitude);
/* C99 hexadecimal, decimal, inf, infinity, nan, signed or not; rounded to nearest even. Independent of the locale. */
bool pome_mil_float(pome_str text, double *out);

#endif
