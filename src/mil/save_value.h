/* The pieces of saving: types, values and descriptions as messages. Everything lives in the saver's arena; where memory
 * is short, `failed` is set and what is returned must not be used. */
#ifndef POME_MIL_SAVE_VALUE_H
#define POME_MIL_SAVE_VALUE_H

#include "formats/coreml_proto.h"
#include "mil/program.h"
#include "pome/model.h"

typedef struct pome_saver {
    pome_arena *arena;
    bool failed; /* out of memory */
} pome_saver;

/* Zeroed memory; on failure `failed` is set and the memory is a shared scrap of 512 bytes. */
void *pome_saver_alloc(pome_saver *s, size_t n, size_t size);
char *pome_saver_text(pome_saver *s, const char *text);
#define POME_SAVE_NEW(s, var, type, init)                                                                              \
    type *var = pome_saver_alloc((s), 1, sizeof(type));                                                                \
    init(var)

Pome__Spec__ValueType *pome_save_type(pome_saver *s, const pome_type *type);
Pome__Spec__Value *pome_save_string(pome_saver *s, const char *text);
/* A constant of type `type` (its dtype and shape are the constant's). Errors: UNSUPPORTED. */
pome_status pome_save_const(Pome__Spec__Value **out, pome_saver *s, const pome_const *k, pome_error *err);
pome_status pome_save_description(Pome__Spec__ModelDescription **out, pome_saver *s, const pome_model_info *info,
                                  pome_error *err);

#endif
