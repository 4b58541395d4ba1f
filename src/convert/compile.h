/* Between compile.c and compile_metadata.c. */
#ifndef POME_CONVERT_COMPILE_H
#define POME_CONVERT_COMPILE_H

#include "mil/program.h"
#include "pome/model.h"

/* The text of metadata.json, malloc'ed. class_name is what the model is called. Errors: NOMEM. */
pome_status pome_compile_metadata(char **out, const pome_program *program, const pome_model_info *info,
                                  const char *class_name, pome_error *err);

#endif
