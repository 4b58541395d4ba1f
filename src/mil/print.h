/* A program as MIL text, as compiled models have it. Constants stand before the statement that first uses them; those of
 * weight files are BLOBFILE references, literals are written in place. Arguments and function inputs are sorted by name,
 * as compilers write them. formats/mil_text.h reads it. */
#ifndef POME_MIL_PRINT_H
#define POME_MIL_PRINT_H

#include "base/error.h"
#include "mil/program.h"
#include "pome/model.h"

typedef struct pome_print_opts {
    bool is_long;                  /* program(1.0): tensor<int32, []>(3), every operation named; else program(1.3): int32(3) */
    const pome_model_info *info;   /* functions described here get their FlexibleShapeInformation; NULL: none */
    const char *const *build_info; /* key, value, ..., NULL; or NULL */
} pome_print_opts;

/* Takes the next piece of text (not NUL-terminated). */
typedef void pome_print_fn(void *arg, const char *text, size_t len);

/* opts NULL, and the others: the short spelling and nothing else. Errors: NOMEM only. */
pome_status pome_program_print_as(const pome_program *program, const pome_print_opts *opts, pome_print_fn *fn, void *arg,
                                  pome_error *err);
pome_status pome_program_print(const pome_program *program, pome_print_fn *fn, void *arg, pome_error *err);
pome_status pome_function_print(const pome_function *function, pome_print_fn *fn, void *arg, pome_error *err);
/* The same into malloc'ed, NUL-terminated text. */
pome_status pome_program_text_as(char **out, size_t *len, const pome_program *program, const pome_print_opts *opts,
                                 pome_error *err);
pome_status pome_program_text(char **out, size_t *len, const pome_program *program, pome_error *err);

#endif
