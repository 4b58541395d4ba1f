/* What inference functions use, and how the rest calls them. */
#ifndef POME_MIL_INFER_H
#define POME_MIL_INFER_H

#include <string.h>

#include "base/error.h"
#include "mil/opdef.h"
#include "mil/program.h"

/* Sizes of a tensor's shape multiply to at most this, or the shape is an error. */
#define POME_MAX_ELEMENTS ((int64_t)1 << 40)

/* Runs the operator's inference and checks its result: sizes not negative (at run time no symbols), element
 * counts within POME_MAX_ELEMENTS. */
pome_status pome_infer_op(pome_infer *c, pome_error *err);

static inline bool pome_infer_has(const pome_infer *c, uint32_t param)
{
    return c->op->args[param].count != 0;
}
static inline const pome_type *pome_infer_type(const pome_infer *c, uint32_t param) /* NULL if absent */
{
    return pome_infer_has(c, param) ? c->in[c->op->args[param].first] : NULL;
}
static inline const pome_tensor *pome_infer_value(const pome_infer *c, uint32_t param) /* NULL: absent or unknown */
{
    return pome_infer_has(c, param) ? c->value[c->op->args[param].first] : NULL;
}
static inline bool pome_infer_at_load(const pome_infer *c)
{
    return c->next_symbol != NULL;
}

/* ---- contents ---- */
/* Element i (row-major) of a known tensor of any dtype with numbers: integers of any width, bool, floats (truncated
 * and saturated); strided or contiguous. */
int64_t pome_tensor_int_at_any(const pome_tensor *t, int64_t i);
static inline int64_t pome_tensor_int_at(const pome_tensor *t, int64_t i)
{
    int32_t v;
    if (t->dtype != POME_DTYPE_I32 || t->rank > 1)
        return pome_tensor_int_at_any(t, i);
    memcpy(&v, (const char *)t->data + 4 * (t->rank ? i * t->stride[0] : 0), 4);
    return v;
}
double pome_tensor_float_at(const pome_tensor *t, int64_t i);
/* A scalar parameter's value, or dflt when absent. FORMAT error names op and parameter. */
pome_status pome_infer_int(pome_infer *c, uint32_t param, int64_t dflt, int64_t *out, pome_error *err);
pome_status pome_infer_bool(pome_infer *c, uint32_t param, bool dflt, bool *out, pome_error *err);
const char *pome_op_str(const pome_op *op, uint32_t param, const char *dflt); /* a constant string */
/* At load: the string parameter must be one of the `|`-separated words; case counts. */
pome_status pome_infer_word(pome_infer *c, uint32_t param, const char *words, pome_error *err);
/* The dtype that a string parameter names; `allowed` is a set of POME_T_. */
pome_status pome_infer_dtype(pome_infer *c, uint32_t param, pome_dtype dflt, uint32_t allowed, pome_dtype *out,
                             pome_error *err);
/* The sizes listed in a vector parameter (shape, reps, ...), if known; *n is their number, -1 if even that is not
 * known. More than POME_MAX_RANK are an error. Returns false in *known with values unset. */
pome_status pome_infer_ints(pome_infer *c, uint32_t param, int64_t *out, int32_t *n, bool *known, pome_error *err);

/* ---- sizes ---- */
int64_t pome_infer_symbol(pome_infer *c); /* a fresh one; -1 at run time, which pome_infer_op refuses */
/* Sum and product of sizes, symbols allowed: what is not known becomes a fresh symbol. */
pome_status pome_infer_add(pome_infer *c, int64_t a, int64_t b, int64_t *out, pome_error *err);
pome_status pome_infer_mul(pome_infer *c, int64_t a, int64_t b, int64_t *out, pome_error *err);
/* axis in [-rank, rank) -> [0, rank). */
pome_status pome_infer_axis(pome_infer *c, int64_t axis, int32_t rank, int32_t *out, pome_error *err);
/* The axis parameter, default dflt, in [0, rank). */
pome_status pome_infer_axis_param(pome_infer *c, uint32_t param, int64_t dflt, int32_t rank, int32_t *out,
                                  pome_error *err);
/* An axes parameter as a bit mask over [0, rank). Axes named twice are an error. */
pome_status pome_infer_axes(pome_infer *c, uint32_t param, int32_t rank, uint32_t *mask, pome_error *err);
/* Equal unless both are known and differ. */
static inline bool pome_dim_may_equal(int64_t a, int64_t b)
{
    return a == b || a < 0 || b < 0;
}
/* numpy broadcasting of shapes with symbols. Sets out's kind, rank and dim. */
pome_status pome_infer_broadcast(pome_infer *c, const pome_type *a, const pome_type *b, pome_type *out, pome_error *err);
/* Number of elements, or -1 if a size is a symbol. Sizes must have been checked. */
int64_t pome_type_count(const pome_type *t);
pome_type pome_type_tensor(pome_dtype dtype, int32_t rank, const int64_t *dim); /* dim may be NULL for rank 0 */
/* Whether a value of type `a` may be used where `b` is wanted: same kind and dtype, rank, known sizes. */
bool pome_type_compatible(const pome_type *a, const pome_type *b);
/* "fp16[1, ?, 64]" into buf; returns buf. */
const char *pome_type_print(const pome_type *t, char *buf, size_t size);

/* ---- demands ---- */
/* "op_name (gather, #117): text", code FORMAT. */
pome_status pome_infer_fail(pome_infer *c, pome_error *err, const char *fmt, ...) POME_PRINTF(3, 4);
/* The operator must have n outputs in the program. */
pome_status pome_infer_outputs(pome_infer *c, uint32_t n, pome_error *err);
/* Parameters that share a type in coremltools' definitions: equal dtypes, or two of fp16 and fp32, which are the same
 * in memory between operators. */
pome_status pome_infer_same_dtype(pome_infer *c, const pome_type *a, const pome_type *b, pome_error *err);
/* The parameter's rank must lie in [lo, hi]. */
pome_status pome_infer_rank(pome_infer *c, uint32_t param, int32_t lo, int32_t hi, pome_error *err);
/* A vector parameter, if given, must have `size` elements (a symbol: anything). */
pome_status pome_infer_vector(pome_infer *c, uint32_t param, int64_t size, pome_error *err);

/* What slice_by_index and slice_update select on one axis of size n (begin:end:step of Python). */
typedef struct pome_slice_axis {
    int64_t begin, step, length;
} pome_slice_axis;
/* Masks may be NULL tensors. Fills sel[rank] and the squeezed axes. All of begin, end must be known. */
pome_status pome_slice_resolve(const pome_op *op, const pome_tensor *begin, const pome_tensor *end,
                               const pome_tensor *stride, const pome_tensor *begin_mask, const pome_tensor *end_mask,
                               const pome_tensor *squeeze_mask, int32_t rank, const int64_t *dim,
                               pome_slice_axis *sel, bool *squeezed, pome_error *err);

#endif
