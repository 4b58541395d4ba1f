/* From a program to the protobuf of a Core ML model file. */
#ifndef POME_MIL_SAVE_H
#define POME_MIL_SAVE_H

#include "base/error.h"
#include "base/span.h"
#include "mil/program.h"
#include "pome/model.h"

/* Serializes a verified program (all types known) with its description: info->functions are described in the program's
 * order of functions (one function called "main": at the top level), with specification version, texts and metadata.
 * Constants become `const` operations before their first use, or literals where they feed a constexpr_* operator;
 * those with a `file` are cited by their offset, and may have no data. `out` is malloc'ed.
 * Errors: UNSUPPORTED (features that are no tensors; constants in lists), NOMEM. */
pome_status pome_program_save(uint8_t **out, size_t *len, const pome_program *program, const pome_model_info *info,
                              pome_error *err);

#endif
