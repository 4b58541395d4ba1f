/* cast. float to int truncates and saturates, NaN gives 0; int to a narrower int wraps; anything to bool is x != 0.
 * Between fp16 and fp32 nothing is computed: both are fp32 in storage. */
#include "ops/families.h"
#include "ops/unary.h"

#define TO_SAME(x, c) (x)
#define TO_BOOL(x, c) ((x) != 0)
#define HALF(x) pome_f16_to_f32(x)

/* Limits are compared as floats: the type's least value, and one above its greatest, both exact. */
#define SATURATE(name, T, LEAST, GREATEST, BEYOND)                                                 \
    static inline T sat_##name(float x)                                                            \
    {                                                                                              \
        if (x >= (BEYOND))                                                                         \
            return GREATEST;                                                                       \
        if (x <= (float)(LEAST))                                                                   \
            return LEAST;                                                                          \
        return x == x ? (T)x : 0;                                                                  \
    }
SATURATE(i8, int8_t, INT8_MIN, INT8_MAX, 128.0f)
SATURATE(u8, uint8_t, 0, UINT8_MAX, 256.0f)
SATURATE(i16, int16_t, INT16_MIN, INT16_MAX, 32768.0f)
SATURATE(u16, uint16_t, 0, UINT16_MAX, 65536.0f)
SATURATE(i32, int32_t, INT32_MIN, INT32_MAX, 2147483648.0f)
SATURATE(u32, uint32_t, 0, UINT32_MAX, 4294967296.0f)

#define F_TO_I8(x, c) sat_i8(x)
#define F_TO_U8(x, c) sat_u8(x)
#define F_TO_I16(x, c) sat_i16(x)
#define F_TO_U16(x, c) sat_u16(x)
#define F_TO_I32(x, c) sat_i32(x)
#define F_TO_U32(x, c) sat_u32(x)
#define H_TO_F(x, c) HALF(x)
#define H_TO_I8(x, c) sat_i8(HALF(x))
#define H_TO_U8(x, c) sat_u8(HALF(x))
#define H_TO_I16(x, c) sat_i16(HALF(x))
#define H_TO_U16(x, c) sat_u16(HALF(x))
#define H_TO_I32(x, c) sat_i32(HALF(x))
#define H_TO_U32(x, c) sat_u32(HALF(x))
#define H_TO_BOOL(x, c) (HALF(x) != 0)

/* All casts from one storage type; the arguments after C are the conversions to each target. */
#define CASTS_FROM(from, C, F, I8, U8, I16, U16, I32, U32, B)                                      \
    POME_UNARY_ROW(row_##from##_f32, float, C, F)                                                  \
    POME_UNARY_ROW(row_##from##_i8, int8_t, C, I8)                                                 \
    POME_UNARY_ROW(row_##from##_u8, uint8_t, C, U8)                                                \
    POME_UNARY_ROW(row_##from##_i16, int16_t, C, I16)                                              \
    POME_UNARY_ROW(row_##from##_u16, uint16_t, C, U16)                                             \
    POME_UNARY_ROW(row_##from##_i32, int32_t, C, I32)                                              \
    POME_UNARY_ROW(row_##from##_u32, uint32_t, C, U32)                                             \
    POME_UNARY_ROW(row_##from##_bool, uint8_t, C, B)                                               \
    static pome_row_fn *pick_##from(pome_dtype to)                                                 \
    {                                                                                              \
        switch (to) {                                                                              \
        case POME_DTYPE_F32: return row_##from##_f32;                                              \
        case POME_DTYPE_I8: return row_##from##_i8;                                                \
        case POME_DTYPE_U8: return row_##from##_u8;                                                \
        case POME_DTYPE_I16: return row_##from##_i16;                                              \
        case POME_DTYPE_U16: return row_##from##_u16;                                              \
        case POME_DTYPE_I32: return row_##from##_i32;                                              \
        case POME_DTYPE_U32: return row_##from##_u32;                                              \
        case POME_DTYPE_BOOL: return row_##from##_bool;                                            \
        default: return NULL;                                                                      \
        }                                                                                          \
    }
#define CASTS_FROM_INT(from, C)                                                                    \
    CASTS_FROM(from, C, TO_SAME, TO_SAME, TO_SAME, TO_SAME, TO_SAME, TO_SAME, TO_SAME, TO_BOOL)

CASTS_FROM(f32, float, TO_SAME, F_TO_I8, F_TO_U8, F_TO_I16, F_TO_U16, F_TO_I32, F_TO_U32, TO_BOOL)
CASTS_FROM(f16, uint16_t, H_TO_F, H_TO_I8, H_TO_U8, H_TO_I16, H_TO_U16, H_TO_I32, H_TO_U32, H_TO_BOOL)
CASTS_FROM_INT(i8, int8_t)
CASTS_FROM_INT(u8, uint8_t)
CASTS_FROM_INT(i16, int16_t)
CASTS_FROM_INT(u16, uint16_t)
CASTS_FROM_INT(i32, int32_t)
CASTS_FROM_INT(u32, uint32_t)
CASTS_FROM(bool, uint8_t, TO_BOOL, TO_BOOL, TO_BOOL, TO_BOOL, TO_BOOL, TO_BOOL, TO_BOOL, TO_BOOL)

static pome_row_fn *pick(pome_dtype from, pome_dtype to)
{
    switch (from) {
    case POME_DTYPE_F32: return pick_f32(to);
    case POME_DTYPE_F16: return pick_f16(to);
    case POME_DTYPE_I8: return pick_i8(to);
    case POME_DTYPE_U8: return pick_u8(to);
    case POME_DTYPE_I16: return pick_i16(to);
    case POME_DTYPE_U16: return pick_u16(to);
    case POME_DTYPE_I32: return pick_i32(to);
    case POME_DTYPE_U32: return pick_u32(to);
    case POME_DTYPE_BOOL: return pick_bool(to);
    default: return NULL;
    }
}

static bool view_cast(const pome_run *r)
{
    const pome_tensor *x = pome_in(r, P_cast_x);
    pome_tensor *out = &r->out[0];
    bool both_float = out->dtype == POME_DTYPE_F32 && pome_dtype_is_float(x->dtype);
    /* The runtime is going to round this output in place, which must not touch the operand. */
    bool narrows = r->op->out[0]->type.dtype == POME_DTYPE_F16 &&
                   pome_op_arg(r->op, P_cast_x)->type.dtype != POME_DTYPE_F16;
    if (both_float ? r->numerics == POME_NUMERICS_FP16 && narrows : x->dtype != out->dtype)
        return false;
    out->dtype = x->dtype;
    out->data = x->data;
    for (int32_t d = 0; d < out->rank; d++)
        out->stride[d] = x->stride[d];
    return true;
}

static pome_status run_cast(const pome_run *r, pome_error *err)
{
    return pome_unary_run(r, pick(pome_in(r, P_cast_x)->dtype, r->out[0].dtype), NULL, 1, err);
}

const pome_op_impl pome_ops_cast[] = {
    {.id = POME_OP_cast,
     .f16_ok = POME_BIT(P_cast_x),
     .strided_ok = POME_BIT(P_cast_x),
     .view = view_cast,
     .run = run_cast},
};
POME_FAMILY_COUNT(cast)
