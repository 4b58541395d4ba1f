/* A program as MIL text: the program(1.3) dialect of compiled models. Constants stand before the statement that first
 * uses them; those of weight files are BLOBFILE references, literals are written in place. Arguments and function
 * inputs are sorted by name, as compilers write them. */
#ifndef POME_MIL_PRINT_H
#define POME_MIL_PRINT_H

#include "base/error.h"
#include "mil/program.h"

/* Takes the next piece of text (not NUL-terminated). */
typedef void pome_print_fn(void *arg, const char *text, size_t len);

/* Errors: NOMEM only. */
pome_status pome_program_print(const pome_program *program, pome_print_fn *fn, void *arg, pome_error *err);
pome_status pome_function_print(const pome_function *function, pome_print_fn *fn, void *arg, pome_error *err);
/* The same into malloc'ed, NUL-terminated text. */
pome_status pome_program_text(char **out, size_t *len, const pome_program *program, pome_error *err);

#endif
