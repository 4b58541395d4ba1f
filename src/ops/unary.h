/* Helpers of the families that map one operand element by element (unary operators, activations). */
#ifndef POME_OPS_UNARY_H
#define POME_OPS_UNARY_H

#include "base/f16.h"
#include "ops/elementwise.h"

/* Defines a pome_row_fn: o = F(x, c) with c the constants of the call, float[2]. */
#define POME_UNARY_ROW(name, TO, TI, F)                                                            \
    static void name(void *out, const void *const *in, const ptrdiff_t *stride, size_t n, const void *param) \
    {                                                                                              \
        TO *o = out;                                                                               \
        const TI *x = in[0];                                                                       \
        const float *c = param;                                                                    \
        (void)c;                                                                                   \
        if (stride[0] == 1) {                                                                      \
            for (size_t i = 0; i < n; i++)                                                         \
                o[i] = (TO)F(x[i], c);                                                             \
        } else {                                                                                   \
            for (size_t i = 0; i < n; i++)                                                         \
                o[i] = (TO)F(x[(ptrdiff_t)i * stride[0]], c);                                      \
        }                                                                                          \
    }

/* A float parameter: given, or its default rounded to the type x is declared with, as coremltools does (an epsilon
 * of 1e-12 is 0 in fp16). */
static inline float pome_in_default(const pome_run *r, uint32_t param, float dflt)
{
    if (pome_in(r, param))
        return (float)pome_in_float(r, param, 0.0);
    return pome_op_arg(r->op, 0)->type.dtype == POME_DTYPE_F16 ? pome_f16_round(dflt) : dflt;
}

/* Runs fn over parameter 0. UNSUPPORTED if there is no fn for its dtype (NULL). */
static inline pome_status pome_unary_run(const pome_run *r, pome_row_fn *fn, const float *c, size_t cost,
                                         pome_error *err)
{
    const pome_tensor *x = pome_in(r, 0);
    if (!fn)
        return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "operand is %s, result %s", pome_dtype_name(x->dtype),
                            pome_dtype_name(r->out[0].dtype));
    return pome_elementwise_run(r, fn, &x, 1, c, cost, err);
}
/* The same for operators of floats alone. */
static inline pome_status pome_unary_run_f32(const pome_run *r, pome_row_fn *fn, const float *c, size_t cost,
                                             pome_error *err)
{
    bool is_f32 = pome_in(r, 0)->dtype == POME_DTYPE_F32 && r->out[0].dtype == POME_DTYPE_F32;
    return pome_unary_run(r, is_f32 ? fn : NULL, c, cost, err);
}

#endif
