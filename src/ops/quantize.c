/* quantize and dequantize of activations, in fp32: clip(round(x / scale) + zero_point) with halves to even, and
 * scale * (x - zero_point). scale and zero_point are scalars, or vectors along `axis`. NaN quantizes to 0. */
#include "ops/axes.h"
#include "ops/elementwise.h"
#include "ops/families.h"

#include <math.h>

/* The third operand, zero_point, is always there: where the program gives none, a zero stands for it. */
#define QUANTIZE_ROW(name, T, LEAST, GREATEST)                                                     \
    static void name(void *out, const void *const *in, const ptrdiff_t *stride, size_t n, const void *param) \
    {                                                                                              \
        T *o = out;                                                                                \
        const float *x = in[0], *scale = in[1];                                                    \
        const T *zero = in[2];                                                                     \
        (void)param;                                                                               \
        for (size_t k = 0; k < n; k++) {                                                           \
            ptrdiff_t i = (ptrdiff_t)k;                                                            \
            float v = rintf(x[i * stride[0]] / scale[i * stride[1]]) + (float)zero[i * stride[2]]; \
            v = v > (GREATEST) ? (GREATEST) : v < (LEAST) ? (LEAST) : v;                           \
            o[k] = v == v ? (T)v : 0;                                                              \
        }                                                                                          \
    }
#define DEQUANTIZE_ROW(name, T)                                                                    \
    static void name(void *out, const void *const *in, const ptrdiff_t *stride, size_t n, const void *param) \
    {                                                                                              \
        float *o = out;                                                                            \
        const T *x = in[0], *zero = in[2];                                                         \
        const float *scale = in[1];                                                                \
        (void)param;                                                                               \
        for (size_t k = 0; k < n; k++) {                                                           \
            ptrdiff_t i = (ptrdiff_t)k;                                                            \
            o[k] = scale[i * stride[1]] * (float)(x[i * stride[0]] - zero[i * stride[2]]);         \
        }                                                                                          \
    }
QUANTIZE_ROW(row_quantize_i8, int8_t, -128.0f, 127.0f)
QUANTIZE_ROW(row_quantize_u8, uint8_t, 0.0f, 255.0f)
DEQUANTIZE_ROW(row_dequantize_i8, int8_t)
DEQUANTIZE_ROW(row_dequantize_u8, uint8_t)

/* t laid along x's axis `axis` if it is a vector. */
static pome_status spread(const pome_run *r, const pome_tensor *t, uint32_t axis_param, pome_tensor *out,
                          pome_error *err)
{
    const pome_tensor *x = pome_in(r, 0);
    *out = (pome_tensor){.dtype = t->dtype, .data = t->data};
    if (t->rank == 0)
        return POME_OK;
    int32_t axis = 0;
    int64_t n = pome_tensor_count(t);
    POME_TRY(pome_axis_get(r, pome_in_int(r, axis_param, 0), x->rank, &axis, err));
    if (n != x->shape[axis] && n != 1)
        return pome_op_fail(r->op, err, POME_ERR_ARG, "scale or zero_point has %lld elements, axis %d of the input %lld",
                            (long long)n, (int)axis, (long long)x->shape[axis]);
    out->rank = x->rank;
    for (int32_t d = 0; d < x->rank; d++)
        out->shape[d] = d == axis ? n : 1;
    out->stride[axis] = 1;
    return POME_OK;
}

/* Parameters 0 to 3 of both operators are input, zero_point, scale and axis. */
static pome_status run_scaled(const pome_run *r, pome_row_fn *i8, pome_row_fn *u8, bool is_quantize, pome_error *err)
{
    static const uint8_t none = 0;
    const pome_tensor *x = pome_in(r, P_quantize_input), *zero = pome_in(r, P_quantize_zero_point);
    pome_dtype small = is_quantize ? r->out[0].dtype : x->dtype, wide = is_quantize ? x->dtype : r->out[0].dtype;
    if ((small != POME_DTYPE_I8 && small != POME_DTYPE_U8) || wide != POME_DTYPE_F32 || (zero && zero->dtype != small))
        return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "input is %s, the result %s", pome_dtype_name(x->dtype),
                            pome_dtype_name(r->out[0].dtype));
    pome_tensor scale_along, zero_along = {.dtype = small, .data = (void *)(uintptr_t)&none};
    POME_TRY(spread(r, pome_in(r, P_quantize_scale), P_quantize_axis, &scale_along, err));
    if (zero)
        POME_TRY(spread(r, zero, P_quantize_axis, &zero_along, err));
    const pome_tensor *in[3] = {x, &scale_along, &zero_along};
    return pome_elementwise_run(r, small == POME_DTYPE_I8 ? i8 : u8, in, 3, NULL, 4, err);
}
_Static_assert((int)P_quantize_input == (int)P_dequantize_input && (int)P_quantize_scale == (int)P_dequantize_scale &&
               (int)P_quantize_zero_point == (int)P_dequantize_zero_point &&
               (int)P_quantize_axis == (int)P_dequantize_axis, "one function serves both");

static pome_status run_quantize(const pome_run *r, pome_error *err)
{
    return run_scaled(r, row_quantize_i8, row_quantize_u8, true, err);
}
static pome_status run_dequantize(const pome_run *r, pome_error *err)
{
    return run_scaled(r, row_dequantize_i8, row_dequantize_u8, false, err);
}

#define IMPL(op) {.id = POME_OP_##op, .strided_ok = POME_BIT(0), .run = run_##op}
const pome_op_impl pome_ops_quantize[] = {IMPL(quantize), IMPL(dequantize)};
POME_FAMILY_COUNT(quantize)
