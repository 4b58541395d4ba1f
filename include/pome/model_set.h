/* Models that lie in one folder and are run together: the parts of a language model that was cut into pieces. A single
 * model is a set of one. */
#ifndef POME_MODEL_SET_H
#define POME_MODEL_SET_H

#include "pome/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pome_model_set pome_model_set;

typedef struct pome_model_set_opts {
    size_t size;           /* sizeof(pome_model_set_opts) */
    pome_model_opts model; /* of each */
} pome_model_set_opts;

POME_API void pome_model_set_opts_default(pome_model_set_opts *opts);

/* Opens the model at `path`, or all models in this folder. opts may be NULL.
 * Errors: those of pome_model_open, with the model's name; IO for a folder without models. */
POME_API POME_NODISCARD pome_status pome_model_set_open(pome_model_set **out, const char *path,
                                                        const pome_model_set_opts *opts, pome_error *err);
/* Closes and nulls; accepts NULL. Everything made from its models must be gone. */
POME_API void pome_model_set_close(pome_model_set **set);

POME_API uint32_t pome_model_set_count(const pome_model_set *set);
/* By name ("part10" after "part9"); NULL outside. */
POME_API pome_model *pome_model_set_model(const pome_model_set *set, uint32_t index);
POME_API const char *pome_model_set_name(const pome_model_set *set, uint32_t index); /* its folder's, without ending */
POME_API const char *pome_model_set_path(const pome_model_set *set);                 /* as given */

#ifdef __cplusplus
}
#endif
#endif
