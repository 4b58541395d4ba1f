/* From an opened package to a program. */
#ifndef POME_MIL_LOAD_H
#define POME_MIL_LOAD_H

#include "base/error.h"
#include "mil/program.h"

struct pome_mlpackage; /* formats/mlpackage.h */

typedef struct pome_load_limits {
    size_t arena_bytes;   /* of the program; 0: 1 GiB */
    uint32_t n_ops;       /* operations of all functions together, constants included; 0: 4 Mi */
    uint32_t block_depth; /* nesting of blocks; 0: 32 */
} pome_load_limits;

/* Builds the program of a package (whose protobuf must not have been forgotten). Every function is loaded, in its
 * specialization for its opset. `const` operations become values; constants are views of the mapped weight files and
 * shared where the same bytes are cited with the same type, also between functions. The result of a constexpr_*
 * operator is a compressed constant. Inputs of described functions are in the order of the description, states last.
 * Nothing is inferred: call pome_program_verify next. limits may be NULL.
 * Errors: FORMAT (names function, operation, parameter), UNSUPPORTED (all unknown operators at once), LIMIT, IO. */
pome_status pome_program_load(pome_program **out, const struct pome_mlpackage *package,
                              const pome_load_limits *limits, pome_error *err);

/* "CoreML8" -> POME_OPSET_IOS18, and back; false or NULL if not known. */
bool pome_opset_parse(const char *text, pome_opset *out);
const char *pome_opset_name(pome_opset opset);

#endif
