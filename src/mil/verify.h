/* Between the verifier's two halves: structure (verify.c) and types (infer_function.c). */
#ifndef POME_MIL_VERIFY_H
#define POME_MIL_VERIFY_H

#include "mil/program.h"

/* Blocks inside blocks, and loops inside loops (each level may be inferred three times). */
enum { POME_BLOCK_DEPTH_MAX = 32, POME_LOOP_DEPTH_MAX = 6 };

/* pome_function_infer that also checks every operator's inputs against the table and compares its results with the
 * declared types. The function's structure must have been checked. */
pome_status pome_function_check_types(pome_function *fn, pome_error *err);

#endif
