/* Between the verifier's two halves: structure (verify.c) and types (infer_function.c). */
#ifndef POME_MIL_VERIFY_H
#define POME_MIL_VERIFY_H

#include "mil/program.h"

/* Blocks inside blocks; loops inside loops, and how often a loop's body may be inferred: together they bound the time
 * (5^4 bodies). */
enum { POME_BLOCK_DEPTH_MAX = 32, POME_LOOP_DEPTH_MAX = 4, POME_LOOP_ROUNDS_MAX = 5 };

/* pome_function_infer that also checks every operator's inputs against the table and compares its results with the
 * declared types. The function's structure must have been checked. */
pome_status pome_function_check_types(pome_function *fn, pome_error *err);

#endif
