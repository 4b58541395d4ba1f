/* Inside of a model; pome/model.h is the outside. */
#ifndef POME_RUNTIME_MODEL_H
#define POME_RUNTIME_MODEL_H

#include <pthread.h>

#include "base/pool.h"
#include "formats/mlpackage.h"
#include "kernels/kernels.h"
#include "pome/model.h"
#include "runtime/plan.h"

/* A compiled function as one kind of predictor wants it; kept until the model is closed. */
typedef struct pome_model_plan {
    struct pome_model_plan *next;
    uint32_t function;
    int last_row_output; /* in the description's order, or -1 */
    pome_plan *plan;
} pome_model_plan;

/* How a function's description maps to its program. */
typedef struct pome_model_function {
    pome_function *fn;
    uint32_t *outputs; /* [info.n_outputs] index into the body's outputs */
    pome_classes *classes; /* [info.n_outputs] */
} pome_model_function;

struct pome_model {
    pome_mlpackage *package;
    pome_program *program;
    pome_model_info info;
    pome_model_function *functions; /* [info.n_functions] */
    pome_numerics numerics;
    uint32_t no_fuse; /* bits of pome_fusion */
    pome_kernels kernels;
    pome_pool *pool;
    bool borrows_pool;
    pthread_mutex_t lock; /* of `plans` */
    pome_model_plan *plans;
};

/* pome_model_open with threads of the caller's: the pool must outlive the model, opts->n_threads is not read. */
pome_status pome_model_open_shared(pome_model **out, const char *path, const pome_model_opts *opts, pome_pool *pool,
                                   pome_error *err);
/* The plan for a function, compiled on first use. last_row_output counts as in the description, -1: none. */
pome_status pome_model_get_plan(const pome_plan **out, pome_model *model, uint32_t function, int last_row_output,
                                pome_error *err);

/* Whether both have one weight file, of the same bytes; of large ones the first and last 16 MiB are compared. */
bool pome_model_has_weights_of(const pome_model *a, const pome_model *b);

uint64_t pome_const_stored_bytes(const pome_const *k); /* in the file, with scales, palettes and masks */

#endif
