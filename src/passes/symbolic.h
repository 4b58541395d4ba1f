/* What is known of small integer vectors before shapes are: each element a number, a symbol (an unknown axis
 * size, as in pome_type), or nothing. Graphs traced by coremltools compute tile counts and slice bounds from
 * shapes; this sees through that arithmetic. */
#ifndef POME_PASSES_SYMBOLIC_H
#define POME_PASSES_SYMBOLIC_H

#include "base/arena.h"
#include "base/error.h"
#include "mil/program.h"

enum { POME_SYM_MAX = 8 };

typedef enum pome_sym_kind { POME_SYM_UNKNOWN = 0, POME_SYM_NUMBER, POME_SYM_SYMBOL } pome_sym_kind;

typedef struct pome_sym {
    pome_sym_kind kind;
    int64_t v; /* the number, or the symbol (negative, as in pome_type.dim) */
} pome_sym;

typedef struct pome_sym_vector {
    bool known;    /* its length is */
    bool is_scalar;
    int32_t n;
    pome_sym e[POME_SYM_MAX];
} pome_sym_vector;

/* One entry per value id of the function (top-level block). */
pome_status pome_symbolic_analyze(const pome_function *fn, pome_arena *arena, pome_sym_vector **out, pome_error *err);

#endif
