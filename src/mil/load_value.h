/* Types and constants of the protobuf, for the loader. */
#ifndef POME_MIL_LOAD_VALUE_H
#define POME_MIL_LOAD_VALUE_H

#include "base/strmap.h"
#include "formats/mlpackage.h"
#include "mil/program.h"

typedef struct pome_loader {
    const pome_mlpackage *package;
    pome_program *program;
    pome_arena *scratch;  /* dies when loading ends */
    pome_strmap files;    /* weight file name -> what load_value.c keeps of it */
    pome_strmap pool;     /* contents -> pome_const shared by equal constants */
} pome_loader;

/* Unknown sizes become fresh symbols. Errors: FORMAT, UNSUPPORTED (tuples, ranks above POME_MAX_RANK). */
pome_status pome_load_type(pome_type *out, const Pome__Spec__ValueType *spec, int64_t *next_symbol, pome_error *err);

/* A constant in the program's arena or weight files. `type` is the declared one; lists have one more axis in *out. */
pome_status pome_load_const(const pome_const **out, pome_type *type, pome_loader *l, const Pome__Spec__Value *spec,
                            pome_error *err);

/* A copy of *k in the program, or an equal one made before under the same key (which is copied). */
pome_status pome_load_pooled(const pome_const **out, pome_loader *l, pome_str key, const pome_const *k,
                             pome_error *err);

/* The text of a scalar string; NULL if the value is none. */
const char *pome_load_text(const Pome__Spec__Value *spec);

#endif
