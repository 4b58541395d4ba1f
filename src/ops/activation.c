/* Activation functions. NaN stays NaN in all of them; silu(-inf) is NaN, as x * sigmoid(x) makes it. */
#include "ops/families.h"
#include "ops/gated.h"
#include "ops/unary.h"
#include "kernels/vecmath.h"

#include <math.h>
#include <string.h>

/* Functions of x and the constants alpha (c[0]) and beta (c[1]) as far as given: EXPR is the value. */
#define ROW(op, EXPR)                                                                              \
    static inline float f_##op(float x, const float *c)                                            \
    {                                                                                              \
        (void)c;                                                                                   \
        return EXPR;                                                                               \
    }                                                                                              \
    POME_UNARY_ROW(row_##op, float, float, f_##op)
#define RUN(op, cost, ...)                                                                         \
    static pome_status run_##op(const pome_run *r, pome_error *err)                                \
    {                                                                                              \
        const float c[2] = {__VA_ARGS__};                                                          \
        return pome_unary_run_f32(r, row_##op, c, cost, err);                                      \
    }
#define PARAM(op, name) (float)pome_in_float(r, P_##op##_##name, 0)
#define F0(op, cost, EXPR) ROW(op, EXPR) RUN(op, cost, 0)
#define F1(op, cost, EXPR) ROW(op, EXPR) RUN(op, cost, PARAM(op, alpha))
#define F2(op, cost, EXPR) ROW(op, EXPR) RUN(op, cost, PARAM(op, alpha), PARAM(op, beta))

static inline float min_f(float x, float limit)
{
    return x > limit ? limit : x;
}
static inline float max_f(float x, float limit)
{
    return x < limit ? limit : x;
}
static inline float softplus(float x)
{
    return max_f(x, 0.0f) + log1pf(pome_expf(-fabsf(x)));
}

F0(relu, 1, max_f(x, 0.0f))
F0(relu6, 1, min_f(max_f(x, 0.0f), 6.0f))
F0(sigmoid, 4, pome_sigmoidf(x))
F0(silu, 4, x * pome_sigmoidf(x))
F0(softplus, 16, softplus(x))
F0(softsign, 2, x / (1.0f + fabsf(x)))
F1(elu, 8, x > 0.0f ? x : c[0] * expm1f(x))
F1(leaky_relu, 1, pome_pickf(x < 0.0f, c[0] * x, x))
F1(thresholded_relu, 1, x < c[0] ? 0.0f : x)
F2(clamped_relu, 1, min_f(pome_pickf(x < 0.0f, c[0] * x, x), c[1]))
F2(linear_activation, 1, c[0] * x + c[1])
F2(scaled_tanh, 16, c[0] * tanhf(c[1] * x))
F2(sigmoid_hard, 1, min_f(max_f(c[0] * x + c[1], 0.0f), 1.0f))

/* 1 + erf(z) = erfc(-z) and 1 + tanh(u) = 2 sigmoid(2u): both keep the digits that the sums would lose for x < 0. */
ROW(gelu_exact, 0.5f * x * erfcf(x * -0.70710678118654752f))
ROW(gelu_tanh, x * pome_sigmoidf(1.5957691216057308f * (x + 0.044715f * x * x * x)))
ROW(gelu_sigmoid, x * pome_sigmoidf(1.702f * x))

static pome_status run_gelu(const pome_run *r, pome_error *err)
{
    const char *mode = pome_op_str(r->op, P_gelu_mode, "EXACT");
    if (strcmp(mode, "EXACT") == 0)
        return pome_unary_run_f32(r, row_gelu_exact, NULL, 16, err);
    if (strcmp(mode, "TANH_APPROXIMATION") == 0)
        return pome_unary_run_f32(r, row_gelu_tanh, NULL, 4, err);
    if (strcmp(mode, "SIGMOID_APPROXIMATION") == 0)
        return pome_unary_run_f32(r, row_gelu_sigmoid, NULL, 4, err);
    return pome_op_fail(r->op, err, POME_ERR_FORMAT, "mode \"%s\" is not one of EXACT, TANH_APPROXIMATION, "
                        "SIGMOID_APPROXIMATION", mode);
}

/* ---- an activation times a second value, rounded as the two operators would ---- */

#define GATED(name, EXPR)                                                                          \
    static void row_gated_##name(void *out, const void *const *in, const ptrdiff_t *stride, size_t n, const void *param) \
    {                                                                                              \
        float *o = out;                                                                            \
        const float *gate = in[0], *up = in[1];                                                    \
        (void)param;                                                                               \
        if (stride[0] == 1 && stride[1] == 1) {                                                    \
            for (size_t i = 0; i < n; i++)                                                         \
                o[i] = EXPR(gate[i], NULL) * up[i];                                                \
        } else {                                                                                   \
            for (size_t i = 0; i < n; i++)                                                         \
                o[i] = EXPR(gate[(ptrdiff_t)i * stride[0]], NULL) * up[(ptrdiff_t)i * stride[1]];  \
        }                                                                                          \
    }
GATED(silu_strided, f_silu)
GATED(gelu, f_gelu_exact)
GATED(gelu_tanh, f_gelu_tanh)
GATED(gelu_sigmoid, f_gelu_sigmoid)

static void row_gated_silu(void *out, const void *const *in, const ptrdiff_t *stride, size_t n, const void *param)
{
    const pome_kernels *kernels = param;
    if (stride[0] == 1 && stride[1] == 1)
        kernels->silu_mul_f32(out, in[0], in[1], n);
    else
        row_gated_silu_strided(out, in, stride, n, param);
}

pome_row_fn *pome_gated_row(const char *activation)
{
    return strcmp(activation, "silu") == 0           ? row_gated_silu
           : strcmp(activation, "gelu") == 0         ? row_gated_gelu
           : strcmp(activation, "gelu_tanh") == 0    ? row_gated_gelu_tanh
           : strcmp(activation, "gelu_sigmoid") == 0 ? row_gated_gelu_sigmoid
                                                     : NULL;
}

static pome_status run_pome_gated(const pome_run *r, pome_error *err)
{
    const char *name = pome_op_str(r->op, P_pome_gated_activation, "");
    const pome_tensor *in[2] = {pome_in(r, P_pome_gated_gate), pome_in(r, P_pome_gated_up)};
    pome_row_fn *fn = pome_gated_row(name);
    if (!fn || in[0]->dtype != POME_DTYPE_F32 || in[1]->dtype != POME_DTYPE_F32)
        return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "activation \"%s\" of %s", name,
                            pome_dtype_name(in[0]->dtype));
    return pome_elementwise_run(r, fn, in, 2, r->kernels, fn == row_gated_gelu ? 17 : 5, err);
}

/* ---- constants per channel: vectors laid along axis 1 by strides alone ---- */

static void row_prelu(void *out, const void *const *in, const ptrdiff_t *stride, size_t n, const void *param)
{
    float *o = out;
    const float *x = in[0], *alpha = in[1];
    (void)param;
    for (size_t i = 0; i < n; i++) {
        float v = x[(ptrdiff_t)i * stride[0]];
        o[i] = v < 0.0f ? alpha[(ptrdiff_t)i * stride[1]] * v : v;
    }
}
static void row_softplus_parametric(void *out, const void *const *in, const ptrdiff_t *stride, size_t n,
                                    const void *param)
{
    float *o = out;
    const float *x = in[0], *alpha = in[1], *beta = in[2];
    (void)param;
    for (size_t i = 0; i < n; i++)
        o[i] = alpha[(ptrdiff_t)i * stride[1]] * softplus(beta[(ptrdiff_t)i * stride[2]] * x[(ptrdiff_t)i * stride[0]]);
}

static pome_status channel_vector(const pome_run *r, uint32_t param, pome_tensor *out, pome_error *err)
{
    const pome_tensor *x = pome_in(r, 0), *t = pome_in(r, param);
    int64_t n = pome_tensor_count(t);
    if (x->rank < 2 || (n != x->shape[1] && n != 1))
        return pome_op_fail(r->op, err, POME_ERR_ARG, "%s has %lld elements, x has rank %d and %lld channels",
                            r->op->def->params[param].name, (long long)n, (int)x->rank,
                            (long long)(x->rank < 2 ? 0 : x->shape[1]));
    *out = (pome_tensor){.dtype = t->dtype, .rank = x->rank, .data = t->data};
    for (int32_t d = 0; d < x->rank; d++)
        out->shape[d] = 1;
    out->shape[1] = n;
    out->stride[1] = 1;
    return POME_OK;
}

static pome_status run_prelu(const pome_run *r, pome_error *err)
{
    pome_tensor alpha;
    POME_TRY(channel_vector(r, P_prelu_alpha, &alpha, err));
    const pome_tensor *in[2] = {pome_in(r, P_prelu_x), &alpha};
    return pome_elementwise_run(r, row_prelu, in, 2, NULL, 1, err);
}
static pome_status run_softplus_parametric(const pome_run *r, pome_error *err)
{
    pome_tensor alpha, beta;
    POME_TRY(channel_vector(r, P_softplus_parametric_alpha, &alpha, err));
    POME_TRY(channel_vector(r, P_softplus_parametric_beta, &beta, err));
    const pome_tensor *in[3] = {pome_in(r, P_softplus_parametric_x), &alpha, &beta};
    return pome_elementwise_run(r, row_softplus_parametric, in, 3, NULL, 16, err);
}

/* Parameter x is 0 in every row of the operator table. */
#define IMPL(op) {.id = POME_OP_##op, .strided_ok = POME_BIT(0), .run = run_##op}
const pome_op_impl pome_ops_activation[] = {
    IMPL(clamped_relu), IMPL(elu),      IMPL(gelu),         IMPL(leaky_relu), IMPL(linear_activation),
    IMPL(prelu),        IMPL(relu),     IMPL(relu6),        IMPL(scaled_tanh), IMPL(sigmoid),
    IMPL(sigmoid_hard), IMPL(silu),     IMPL(softplus),     IMPL(softplus_parametric),
    IMPL(softsign),     IMPL(thresholded_relu),
    {.id = POME_OP_pome_gated,
     .strided_ok = POME_BIT(P_pome_gated_gate) | POME_BIT(P_pome_gated_up),
     .run = run_pome_gated},
};
POME_FAMILY_COUNT(activation)
