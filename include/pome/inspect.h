/* Looking into a model: what its program consists of, and the program as text. */
#ifndef POME_INSPECT_H
#define POME_INSPECT_H

#include "pome/model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pome_op_count {
    const char *op; /* "linear"; lives as long as the process */
    uint64_t n;
} pome_op_count;

/* The operators of one function, nested blocks included, constants not; most frequent first, then by name.
 * *counts is malloc'ed. Errors: ARG (no such function), NOMEM. */
POME_API POME_NODISCARD pome_status pome_model_count_ops(const pome_model *model, uint32_t function,
                                                         pome_op_count **counts, size_t *n, pome_error *err);

typedef struct pome_weight_count {
    char kind[64];         /* "fp16", or element type of the codes and encoding: "int4 blockwise_shift_scale" */
    uint64_t n;            /* constants; shared ones count once */
    uint64_t n_elements;   /* of the decoded constants */
    uint64_t size_bytes;   /* as stored, with scales, palettes and masks */
} pome_weight_count;

/* The constants of all functions that are compressed or lie in weight files, by kind; largest kind first.
 * *counts is malloc'ed. Errors: NOMEM. */
POME_API POME_NODISCARD pome_status pome_model_count_weights(const pome_model *model, pome_weight_count **counts,
                                                             size_t *n, pome_error *err);

/* Takes the next piece of text (not NUL-terminated). */
typedef void pome_text_sink(void *arg, const char *text, size_t len);

/* The program as MIL text, all functions (function -1) or one. Errors: ARG, NOMEM. */
POME_API POME_NODISCARD pome_status pome_model_print_mil(const pome_model *model, int function, pome_text_sink *sink,
                                                         void *arg, pome_error *err);

/* The compiled plan of a function as text: a line per step with its kind (shape: evaluated when input shapes change;
 * tensor: run each time; dynamic: sized while running), operator, result and what is special about it.
 * Errors: ARG, NOMEM. */
POME_API POME_NODISCARD pome_status pome_model_print_plan(pome_model *model, uint32_t function, pome_text_sink *sink,
                                                          void *arg, pome_error *err);

#ifdef __cplusplus
}
#endif
#endif
