/* Models that compute any number of columns of a window, made from models that always compute all of it. */
#ifndef POME_RUNTIME_MODEL_COLUMNS_H
#define POME_RUNTIME_MODEL_COLUMNS_H

#include "passes/columns.h"
#include "runtime/model.h"

/* A model of one function (passes/columns.h): inputs of columns->inputs with ranged shapes, then first_column;
 * states for the caches; the other outputs. Indices are those of the description. Borrows constants and threads
 * of `model`, which must outlive it.
 * Errors: UNSUPPORTED with the operator that cannot be narrowed. */
pome_status pome_model_narrow(pome_model **out, const pome_model *model, uint32_t function, const pome_columns *columns,
                              pome_error *err);

#endif
