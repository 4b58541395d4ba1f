/* Prediction: a predictor runs one function of a model; a state holds what persists between runs.
 * Any number of predictors and states may exist over one model and share its weights; each of them is
 * used by one thread at a time. */
#ifndef POME_PREDICTOR_H
#define POME_PREDICTOR_H

#include "pome/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pome_predictor pome_predictor;
typedef struct pome_state pome_state;

/* A fresh state (zeros) for `function` (NULL: the default one): one tensor per declared state. */
POME_API POME_NODISCARD pome_status pome_state_create(pome_state **out, const pome_model *model,
                                                      const char *function, pome_error *err);
POME_API void pome_state_destroy(pome_state **state);
POME_API void pome_state_clear(pome_state *state); /* back to zeros */
/* The tensor of one state, by index as in pome_function_info or by name; NULL if there is none.
 * A view of live memory: read or write it only while no prediction runs. */
POME_API pome_tensor *pome_state_tensor(pome_state *state, uint32_t index);
POME_API pome_tensor *pome_state_find(pome_state *state, const char *name);

typedef struct pome_predictor_opts {
    size_t size;                 /* sizeof(pome_predictor_opts) */
    /* Compute an output only for the last row of this axis-1 dimension: index of the output, or -1.
     * Language models need the logits of the last position alone; the head then costs one row. */
    int last_row_output;
} pome_predictor_opts;

POME_API void pome_predictor_opts_default(pome_predictor_opts *opts);

POME_API POME_NODISCARD pome_status pome_predictor_create(pome_predictor **out, pome_model *model,
                                                          const char *function, const pome_predictor_opts *opts,
                                                          pome_error *err);
POME_API void pome_predictor_destroy(pome_predictor **predictor);

/* Plans memory for inputs of these shapes ([n_inputs][POME_MAX_RANK]) so that predictions with them,
 * or with smaller ones, allocate nothing. May be called several times; reservations only grow. */
POME_API POME_NODISCARD pome_status pome_predictor_reserve(pome_predictor *predictor,
                                                           const int64_t (*shapes)[POME_MAX_RANK], pome_error *err);

/* Sets input `index` for the next predictions. Borrows `t` until the next set of the same input.
 * Its dtype may differ from the declared one (converted at predict); any strides. NULL: absent
 * (optional inputs only). An image is given as the program's planes [1, C, H, W], or as pixels [H, W, 3], [H, W, 4] (alpha
 * is not used) or, in gray, [H, W]; values from 0 to 255. Errors: ARG with what was found and what the model allows. */
POME_API POME_NODISCARD pome_status pome_predictor_set_input(pome_predictor *predictor, uint32_t index,
                                                             const pome_tensor *t, pome_error *err);

/* Runs the function. `state` must have a tensor for each of the function's states, of its name, dtype and shape; which
 * function or model it was made for does not matter, as functions and chunks of a language model share one. NULL only if
 * the function has none. On failure outputs are undefined and states may be partly written. */
POME_API POME_NODISCARD pome_status pome_predictor_run(pome_predictor *predictor, pome_state *state,
                                                       pome_error *err);

/* The running or next run returns CANCELLED, after the operator that is being computed. From any thread; async-signal-safe.
 * Outputs then are undefined and states may be partly written, as after any failure: clear them, or write them anew. */
POME_API void pome_predictor_cancel(pome_predictor *predictor);
/* The thread that runs asks `poll` before each operator; true ends the run as pome_predictor_cancel does. NULL: nobody is asked. */
POME_API void pome_predictor_poll(pome_predictor *predictor, pome_poll *poll, void *arg);

/* Writes output `index` of the next predictions to `t`, so that it need not be copied from the predictor: into the input of
 * another model, or over an input of this one. Borrows `t` until the next call for this output; NULL: the predictor's own
 * memory again. Any strides; its shape must be the output's, its dtype the declared one or a wider float (which then
 * holds values of the declared one). */
POME_API POME_NODISCARD pome_status pome_predictor_bind_output(pome_predictor *predictor, uint32_t index,
                                                               const pome_tensor *t, pome_error *err);

/* Output `index` of the last run, in its declared dtype, contiguous, or what was bound; valid until the next run.
 * Images: pixels [H, W, 3] or [H, W], uint8 (rounded, 0 to 255) or fp16. The label of a classifier: an int64 [1], or a
 * string [1] whose data is a `const char *` of pome_model_classes; its probabilities: fp64 [n] in the order of the classes. */
POME_API const pome_tensor *pome_predictor_output(const pome_predictor *predictor, uint32_t index);

/* What an operator gave: called right after it ran, for each result, while `value` is what it says (fp32 where the
 * program declares fp16, unless the value shows a state's memory; any strides). Operators that were evaluated before
 * the run (constants, shape arithmetic) or that passes removed are not seen. */
typedef struct pome_observed {
    const char *op;     /* "linear" */
    const char *name;   /* of the result in the program */
    const pome_tensor *value;
} pome_observed;
typedef void pome_observer(void *arg, const pome_observed *result);
/* NULL ends it. Observing costs a call per result. */
POME_API void pome_predictor_observe(pome_predictor *predictor, pome_observer *observer, void *arg);

#ifdef __cplusplus
}
#endif
#endif
