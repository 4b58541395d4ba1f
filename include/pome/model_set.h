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
    pome_model_opts model; /* of each; they share n_threads */
    const char *prefix;    /* of PREFIX_chunkN: other chunks in the folder are left out; NULL: none are */
    const char *const *others; /* [n_others] file names, with or without ending: of the models that are no chunks these
                                  alone are opened; NULL: all are */
    size_t n_others;
} pome_model_set_opts;

POME_API void pome_model_set_opts_default(pome_model_set_opts *opts);

/* Opens the model at `path`, or all models in this folder, several at a time. Of NAME.mlpackage and NAME.mlmodelc the
 * second is taken. opts may be NULL.
 * Errors: those of pome_model_open, with the model's name; IO for a folder without models or without one of `others`. */
POME_API POME_NODISCARD pome_status pome_model_set_open(pome_model_set **out, const char *path,
                                                        const pome_model_set_opts *opts, pome_error *err);
/* Closes and nulls; accepts NULL. Everything made from its models must be gone. */
POME_API void pome_model_set_close(pome_model_set **set);

POME_API uint32_t pome_model_set_count(const pome_model_set *set);
/* By name ("part10" after "part9"); NULL outside. */
POME_API pome_model *pome_model_set_model(const pome_model_set *set, uint32_t index);
POME_API const char *pome_model_set_name(const pome_model_set *set, uint32_t index); /* its folder's, without ending */
POME_API double pome_model_set_open_s(const pome_model_set *set, uint32_t index); /* seconds that opening it took */
POME_API const char *pome_model_set_path(const pome_model_set *set);                 /* as given */

#ifdef __cplusplus
}
#endif
#endif
