/* Looking at a graph by structure, for passes that recognize what it computes. */
#ifndef POME_PASSES_MATCH_H
#define POME_PASSES_MATCH_H

#include "mil/infer.h"
#include "passes/pass.h"

/* v's operator if it is of this kind, else NULL. v may be NULL. */
pome_op *pome_match_op(const pome_value *v, pome_op_id id);
/* Through operators that leave the contents of floats as they are between operators: identity, casts of floats. */
pome_value *pome_match_source(pome_value *v);
/* A dense constant of one element. */
bool pome_match_scalar(const pome_value *v, double *out);
/* One of two operands is `x`: the other, else NULL. */
pome_value *pome_match_other(const pome_op *op, const pome_value *x);
/* Whether a list of axes (with keep_dims given or needed) names exactly one, which becomes [0, rank). */
bool pome_match_axis(const pome_value *axes, int32_t rank, int32_t *axis);
/* Whether `t`, broadcast to a shape of `rank`, varies along `axis` alone and has `size` elements. */
bool pome_match_is_along(const pome_tensor *t, int32_t rank, int32_t axis, int64_t size);
/* op takes [*begin, *end) of one axis of its input and everything of the others. */
bool pome_match_slice(const pome_op *op, int32_t *axis, int64_t *begin, int64_t *end);

/* ---- making operators in place of others ---- */
typedef struct pome_rewrite_arg {
    uint32_t param;
    pome_value *value; /* NULL: not given */
} pome_rewrite_arg;
/* A new operator over existing values, at most one value a parameter; NULL when memory is short. */
pome_op *pome_rewrite_op(pome_function *fn, pome_op_id id, const pome_op *like, const pome_rewrite_arg *args, int n_args,
                         pome_value *const *out, uint32_t n_out);
/* transpose of v to `out`, or to a new value if it is NULL; its type is set. */
pome_op *pome_rewrite_transpose(pome_function *fn, pome_arena *arena, const pome_op *like, pome_value *v,
                                const int32_t *perm, int32_t rank, pome_value *out);
/* reshape of v to out's known sizes. */
pome_op *pome_rewrite_reshape(pome_function *fn, pome_arena *arena, const pome_op *like, pome_value *v, pome_value *out);
pome_value *pome_rewrite_int(pome_function *fn, pome_arena *arena, int32_t v);
pome_value *pome_rewrite_float(pome_function *fn, pome_arena *arena, float v);
pome_value *pome_rewrite_bool(pome_function *fn, pome_arena *arena, bool v);
pome_value *pome_rewrite_text(pome_function *fn, pome_arena *arena, const char *v); /* v stays where it is */

#endif
