/* Functions of one operand. Floats follow numpy: NaN stays NaN, also in clip, sign and threshold. Integers wrap. */
#include "ops/families.h"
#include "ops/unary.h"
#include "kernels/vecmath.h"

#include <math.h>

/* Functions of floats alone: EXPR is the value at x. */
#define F1(op, cost, EXPR)                                                                         \
    static inline float f_##op(float x, const float *c)                                            \
    {                                                                                              \
        (void)c;                                                                                   \
        return EXPR;                                                                               \
    }                                                                                              \
    POME_UNARY_ROW(row_##op, float, float, f_##op)                                                 \
    static pome_status run_##op(const pome_run *r, pome_error *err)                                \
    {                                                                                              \
        return pome_unary_run_f32(r, row_##op, NULL, cost, err);                                   \
    }
/* The same with an epsilon, c[0]. */
#define F1_EPSILON(op, cost, dflt, EXPR)                                                           \
    static inline float f_##op(float x, const float *c)                                            \
    {                                                                                              \
        return EXPR;                                                                               \
    }                                                                                              \
    POME_UNARY_ROW(row_##op, float, float, f_##op)                                                 \
    static pome_status run_##op(const pome_run *r, pome_error *err)                                \
    {                                                                                              \
        const float c[2] = {pome_in_default(r, P_##op##_epsilon, dflt)};                           \
        return pome_unary_run_f32(r, row_##op, c, cost, err);                                      \
    }

F1(acos, 16, acosf(x))
F1(asin, 16, asinf(x))
F1(atan, 16, atanf(x))
F1(atanh, 16, atanhf(x))
F1(ceil, 4, ceilf(x))
F1(cos, 16, cosf(x))
F1(cosh, 16, coshf(x))
F1(erf, 16, erff(x))
F1(exp, 4, pome_expf(x))
F1(floor, 4, floorf(x))
F1(round, 4, rintf(x)) /* the mode in force is to nearest, halves to even */
F1(sin, 16, sinf(x))
F1(sinh, 16, sinhf(x))
F1(sqrt, 2, sqrtf(x))
F1(tan, 16, tanf(x))
F1(tanh, 16, tanhf(x))
F1_EPSILON(inverse, 2, 1e-4f, 1.0f / (x + c[0]))
F1_EPSILON(log, 16, 1e-45f, logf(x + c[0]))
F1_EPSILON(rsqrt, 4, 1e-12f, 1.0f / sqrtf(x + c[0]))

static inline float f_clip(float x, const float *c)
{
    float low = x < c[0] ? c[0] : x;
    return low > c[1] ? c[1] : low;
}
POME_UNARY_ROW(row_clip, float, float, f_clip)
static pome_status run_clip(const pome_run *r, pome_error *err)
{
    const float c[2] = {(float)pome_in_float(r, P_clip_alpha, 0), (float)pome_in_float(r, P_clip_beta, 0)};
    return pome_unary_run_f32(r, row_clip, c, 1, err);
}

static inline int64_t abs_int(int64_t x) /* the least int32 stays, wrapped */
{
    return x < 0 ? -x : x;
}
static inline int sign_int(int64_t x)
{
    return (x > 0) - (x < 0);
}
/* Wraps to 0 from 2^32 on; a negative power is truncated to 0. */
static inline uint32_t exp2_int(int64_t x)
{
    return x < 0 || x > 31 ? 0 : 1u << x;
}

/* Functions of floats and integers: FLOAT and INT are macros of (x, c); the low bits of the integer form's value are
 * the result. */
#define FI1(op, FLOAT, INT)                                                                        \
    POME_UNARY_ROW(row_##op##_f32, float, float, FLOAT)                                            \
    POME_UNARY_ROW(row_##op##_i8, int8_t, int8_t, INT)                                             \
    POME_UNARY_ROW(row_##op##_u8, uint8_t, uint8_t, INT)                                           \
    POME_UNARY_ROW(row_##op##_i16, int16_t, int16_t, INT)                                          \
    POME_UNARY_ROW(row_##op##_u16, uint16_t, uint16_t, INT)                                        \
    POME_UNARY_ROW(row_##op##_i32, int32_t, int32_t, INT)                                          \
    POME_UNARY_ROW(row_##op##_u32, uint32_t, uint32_t, INT)                                        \
    static pome_row_fn *pick_##op(pome_dtype dtype)                                                \
    {                                                                                              \
        switch (dtype) {                                                                           \
        case POME_DTYPE_F32: return row_##op##_f32;                                                \
        case POME_DTYPE_I8: return row_##op##_i8;                                                  \
        case POME_DTYPE_U8: return row_##op##_u8;                                                  \
        case POME_DTYPE_I16: return row_##op##_i16;                                                \
        case POME_DTYPE_U16: return row_##op##_u16;                                                \
        case POME_DTYPE_I32: return row_##op##_i32;                                                \
        case POME_DTYPE_U32: return row_##op##_u32;                                                \
        default: return NULL;                                                                      \
        }                                                                                          \
    }                                                                                              \
    static pome_status run_##op##_with(const pome_run *r, const float *c, pome_error *err)         \
    {                                                                                              \
        pome_dtype dtype = pome_in(r, 0)->dtype;                                                   \
        return pome_unary_run(r, r->out[0].dtype == dtype ? pick_##op(dtype) : NULL, c, 2, err);   \
    }

#define ABS_F(x, c) fabsf(x)
#define ABS_I(x, c) abs_int(x)
#define SIGN_F(x, c) ((x) != (x) ? (x) : (float)(((x) > 0) - ((x) < 0)))
#define SIGN_I(x, c) sign_int(x)
#define SQUARE_F(x, c) ((x) * (x))
#define SQUARE_I(x, c) ((uint32_t)(x) * (uint32_t)(x))
#define EXP2_F(x, c) exp2f(x)
#define EXP2_I(x, c) exp2_int(x)
#define THRESHOLD_F(x, c) ((x) < (c)[0] ? (c)[0] : (x))

FI1(abs, ABS_F, ABS_I)
FI1(sign, SIGN_F, SIGN_I)
FI1(square, SQUARE_F, SQUARE_I)
FI1(exp2, EXP2_F, EXP2_I)

#define RUN_FI1(op)                                                                                \
    static pome_status run_##op(const pome_run *r, pome_error *err)                                \
    {                                                                                              \
        return run_##op##_with(r, NULL, err);                                                      \
    }
RUN_FI1(abs)
RUN_FI1(sign)
RUN_FI1(square)
RUN_FI1(exp2)

POME_UNARY_ROW(row_threshold, float, float, THRESHOLD_F)

/* An integer alpha need not be exact as a float: integers go through a 64-bit constant instead. */
#define THRESHOLD_ROW(T, C)                                                                        \
    static void row_threshold_##T(void *out, const void *const *in, const ptrdiff_t *stride, size_t n, \
                                  const void *param)                                               \
    {                                                                                              \
        C *o = out;                                                                                \
        const C *x = in[0];                                                                        \
        int64_t alpha = *(const int64_t *)param;                                                   \
        for (size_t i = 0; i < n; i++) {                                                           \
            C v = x[(ptrdiff_t)i * stride[0]];                                                     \
            o[i] = v < alpha ? (C)alpha : v;                                                       \
        }                                                                                          \
    }
THRESHOLD_ROW(i8, int8_t)
THRESHOLD_ROW(u8, uint8_t)
THRESHOLD_ROW(i16, int16_t)
THRESHOLD_ROW(u16, uint16_t)
THRESHOLD_ROW(i32, int32_t)
THRESHOLD_ROW(u32, uint32_t)

static pome_row_fn *pick_threshold(pome_dtype dtype)
{
    switch (dtype) {
    case POME_DTYPE_I8: return row_threshold_i8;
    case POME_DTYPE_U8: return row_threshold_u8;
    case POME_DTYPE_I16: return row_threshold_i16;
    case POME_DTYPE_U16: return row_threshold_u16;
    case POME_DTYPE_I32: return row_threshold_i32;
    case POME_DTYPE_U32: return row_threshold_u32;
    default: return NULL;
    }
}

static pome_status run_threshold(const pome_run *r, pome_error *err)
{
    const pome_tensor *x = pome_in(r, 0);
    if (x->dtype == POME_DTYPE_F32) {
        const float c[2] = {(float)pome_in_float(r, P_threshold_alpha, 0)};
        return pome_unary_run_f32(r, row_threshold, c, 1, err);
    }
    int64_t alpha = pome_in_int(r, P_threshold_alpha, 0);
    pome_row_fn *fn = r->out[0].dtype == x->dtype ? pick_threshold(x->dtype) : NULL;
    if (!fn)
        return pome_unary_run(r, NULL, NULL, 1, err);
    return pome_elementwise_run(r, fn, &x, 1, &alpha, 1, err);
}

#define NOT(x, c) ((x) == 0)
POME_UNARY_ROW(row_logical_not, uint8_t, uint8_t, NOT)
static pome_status run_logical_not(const pome_run *r, pome_error *err)
{
    bool is_bool = pome_in(r, 0)->dtype == POME_DTYPE_BOOL && r->out[0].dtype == POME_DTYPE_BOOL;
    return pome_unary_run(r, is_bool ? row_logical_not : NULL, NULL, 1, err);
}

/* Parameter x is 0 in every row of the operator table. */
#define IMPL(op) {.id = POME_OP_##op, .strided_ok = POME_BIT(0), .run = run_##op}
const pome_op_impl pome_ops_elementwise_unary[] = {
    IMPL(abs),   IMPL(acos),  IMPL(asin),   IMPL(atan),    IMPL(atanh), IMPL(ceil),  IMPL(clip),
    IMPL(cos),   IMPL(cosh),  IMPL(erf),    IMPL(exp),     IMPL(exp2),  IMPL(floor), IMPL(inverse),
    IMPL(log),   IMPL(round), IMPL(rsqrt),  IMPL(sign),    IMPL(sin),   IMPL(sinh),  IMPL(sqrt),
    IMPL(square), IMPL(tan),  IMPL(tanh),   IMPL(threshold), IMPL(logical_not),
};
POME_FAMILY_COUNT(elementwise_unary)
