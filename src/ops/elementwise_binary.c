/* Arithmetic, comparison and logic of two operands, broadcast as in numpy. Integers wrap; a division or remainder by
 * zero gives 0, and no integer division traps. Floats follow numpy: floor_div and mod are Python's // and %,
 * maximum and minimum hand on NaN. */
#include "ops/elementwise.h"
#include "ops/families.h"

#include <math.h>

/* One row for operands of type TI. The shapes that matter (equal, vector with scalar) have loops of their own. */
#define ROW(name, TO, TI, F)                                                                       \
    static void name(void *out, const void *const *in, const ptrdiff_t *stride, size_t n, const void *param) \
    {                                                                                              \
        TO *o = out;                                                                               \
        const TI *x = in[0], *y = in[1];                                                           \
        ptrdiff_t sx = stride[0], sy = stride[1];                                                  \
        (void)param;                                                                               \
        if (sx == 1 && sy == 1) {                                                                  \
            for (size_t i = 0; i < n; i++)                                                         \
                o[i] = F(x[i], y[i]);                                                              \
        } else if (sx == 1 && sy == 0) {                                                           \
            const TI c = *y;                                                                       \
            for (size_t i = 0; i < n; i++)                                                         \
                o[i] = F(x[i], c);                                                                 \
        } else if (sx == 0 && sy == 1) {                                                           \
            const TI c = *x;                                                                       \
            for (size_t i = 0; i < n; i++)                                                         \
                o[i] = F(c, y[i]);                                                                 \
        } else {                                                                                   \
            for (size_t i = 0; i < n; i++)                                                         \
                o[i] = F(x[(ptrdiff_t)i * sx], y[(ptrdiff_t)i * sy]);                              \
        }                                                                                          \
    }

#define INT_TYPES(M, op)                                                                           \
    M(op, i8, int8_t)                                                                              \
    M(op, u8, uint8_t)                                                                             \
    M(op, i16, int16_t)                                                                            \
    M(op, u16, uint16_t)                                                                           \
    M(op, i32, int32_t)                                                                            \
    M(op, u32, uint32_t)

/* Wrapping arithmetic: the low bits of a 32-bit unsigned result are right for every narrower type. */
#define WRAP_ADD(x, y) ((uint32_t)(x) + (uint32_t)(y))
#define WRAP_SUB(x, y) ((uint32_t)(x) - (uint32_t)(y))
#define WRAP_MUL(x, y) ((uint32_t)(x) * (uint32_t)(y))
#define MAX_INT(x, y) ((x) > (y) ? (x) : (y))
#define MIN_INT(x, y) ((x) < (y) ? (x) : (y))

/* 64-bit operands hold every storage type, so that INT32_MIN / -1 does not overflow before it wraps. */
static inline int64_t div_trunc(int64_t x, int64_t y)
{
    return y == 0 ? 0 : x / y;
}
static inline int64_t div_floor(int64_t x, int64_t y)
{
    if (y == 0)
        return 0;
    int64_t q = x / y;
    return q * y != x && (x < 0) != (y < 0) ? q - 1 : q;
}
static inline int64_t mod_floor(int64_t x, int64_t y)
{
    if (y == 0)
        return 0;
    int64_t m = x % y;
    return m != 0 && (m < 0) != (y < 0) ? m + y : m;
}
/* Wraps modulo 2^32. A negative exponent gives the truncated reciprocal: 0 unless the base is 1 or -1. */
static inline int64_t pow_int(int64_t x, int64_t y)
{
    if (y < 0)
        return x == 1 ? 1 : x == -1 ? (y % 2 ? -1 : 1) : 0;
    uint32_t power = 1, base = (uint32_t)x;
    for (; y; y >>= 1, base *= base)
        if (y & 1)
            power *= base;
    return power;
}

#define F_ADD(x, y) ((x) + (y))
#define F_SUB(x, y) ((x) - (y))
#define F_MUL(x, y) ((x) * (y))
#define F_DIV(x, y) ((x) / (y))
/* A NaN in y fails the comparison, one in x is asked for. */
#define F_MAX(x, y) ((x) > (y) || (x) != (x) ? (x) : (y))
#define F_MIN(x, y) ((x) < (y) || (x) != (x) ? (x) : (y))

static inline float mod_float(float x, float y)
{
    float m = fmodf(x, y);
    if (y == 0.0f || m != m)
        return m;
    if (m == 0.0f)
        return copysignf(0.0f, y);
    return (m < 0) != (y < 0) ? m + y : m;
}
/* From the exact remainder, as numpy does: floor(x / y) would be off by one where the quotient rounds up. */
static inline float floor_div_float(float x, float y)
{
    if (y == 0.0f)
        return x / y;
    float m = fmodf(x, y);
    float q = (x - m) / y;
    if (m != 0.0f && (m < 0) != (y < 0))
        q -= 1.0f;
    if (q == 0.0f)
        return copysignf(0.0f, x / y);
    float whole = floorf(q);
    return q - whole > 0.5f ? whole + 1.0f : whole;
}

#define C_EQ(x, y) ((x) == (y))
#define C_NE(x, y) ((x) != (y))
#define C_GT(x, y) ((x) > (y))
#define C_GE(x, y) ((x) >= (y))
#define C_LT(x, y) ((x) < (y))
#define C_LE(x, y) ((x) <= (y))

#define ARITHMETIC(op, T, C) ROW(row_##op##_##T, C, C, FN_##op)
#define COMPARISON(op, T, C) ROW(row_##op##_##T, uint8_t, C, FN_##op)

/* FN_<op>: the integer form of an operator. */
#define FN_add WRAP_ADD
#define FN_sub WRAP_SUB
#define FN_mul WRAP_MUL
#define FN_maximum MAX_INT
#define FN_minimum MIN_INT
#define FN_real_div(x, y) ((uint32_t)div_trunc((x), (y)))
#define FN_floor_div(x, y) ((uint32_t)div_floor((x), (y)))
#define FN_mod(x, y) ((uint32_t)mod_floor((x), (y)))
#define FN_pow(x, y) ((uint32_t)pow_int((x), (y)))
#define FN_equal C_EQ
#define FN_not_equal C_NE
#define FN_greater C_GT
#define FN_greater_equal C_GE
#define FN_less C_LT
#define FN_less_equal C_LE

#define ARITHMETIC_ALL(op, F)                                                                      \
    ROW(row_##op##_f32, float, float, F)                                                           \
    INT_TYPES(ARITHMETIC, op)
#define COMPARISON_ALL(op, F)                                                                      \
    ROW(row_##op##_f32, uint8_t, float, F)                                                         \
    INT_TYPES(COMPARISON, op)

ARITHMETIC_ALL(add, F_ADD)
ARITHMETIC_ALL(sub, F_SUB)
ARITHMETIC_ALL(mul, F_MUL)
ARITHMETIC_ALL(real_div, F_DIV)
ARITHMETIC_ALL(floor_div, floor_div_float)
ARITHMETIC_ALL(mod, mod_float)
ARITHMETIC_ALL(maximum, F_MAX)
ARITHMETIC_ALL(minimum, F_MIN)
COMPARISON_ALL(equal, C_EQ)
COMPARISON_ALL(not_equal, C_NE)
COMPARISON_ALL(greater, C_GT)
COMPARISON_ALL(greater_equal, C_GE)
COMPARISON_ALL(less, C_LT)
COMPARISON_ALL(less_equal, C_LE)
INT_TYPES(ARITHMETIC, pow)

#define L_AND(x, y) ((x) != 0 && (y) != 0)
#define L_OR(x, y) ((x) != 0 || (y) != 0)
#define L_XOR(x, y) (((x) != 0) != ((y) != 0))
ROW(row_logical_and_bool, uint8_t, uint8_t, L_AND)
ROW(row_logical_or_bool, uint8_t, uint8_t, L_OR)
ROW(row_logical_xor_bool, uint8_t, uint8_t, L_XOR)

#define SQUARE(x, two) ((void)(two), (x) * (x))
ROW(row_pow_any_f32, float, float, powf)
ROW(row_pow_2_f32, float, float, SQUARE)

/* x^2 is what language models ask for; x * x is the correctly rounded result too. */
static void row_pow_f32(void *out, const void *const *in, const ptrdiff_t *stride, size_t n, const void *param)
{
    bool is_square = stride[1] == 0 && *(const float *)in[1] == 2.0f;
    (is_square ? row_pow_2_f32 : row_pow_any_f32)(out, in, stride, n, param);
}

typedef struct rows {
    pome_row_fn *f32, *i8, *u8, *i16, *u16, *i32, *u32, *bool8;
} rows;

static pome_row_fn *row_of(const rows *t, pome_dtype dtype)
{
    switch (dtype) {
    case POME_DTYPE_F32: return t->f32;
    case POME_DTYPE_I8: return t->i8;
    case POME_DTYPE_U8: return t->u8;
    case POME_DTYPE_I16: return t->i16;
    case POME_DTYPE_U16: return t->u16;
    case POME_DTYPE_I32: return t->i32;
    case POME_DTYPE_U32: return t->u32;
    case POME_DTYPE_BOOL: return t->bool8;
    default: return NULL;
    }
}

static pome_status run_binary(const pome_run *r, const rows *t, bool to_bool, size_t cost, pome_error *err)
{
    const pome_tensor *in[2] = {pome_in(r, 0), pome_in(r, 1)};
    pome_dtype result = to_bool ? POME_DTYPE_BOOL : in[0]->dtype;
    pome_row_fn *fn = row_of(t, in[0]->dtype);
    if (in[0]->dtype != in[1]->dtype || r->out[0].dtype != result || !fn)
        return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "operands are %s and %s, the result %s",
                            pome_dtype_name(in[0]->dtype), pome_dtype_name(in[1]->dtype),
                            pome_dtype_name(r->out[0].dtype));
    return pome_elementwise_run(r, fn, in, 2, NULL, cost, err);
}

/* b8: the row for bools, given for comparisons alone. */
#define RUN(op, cost, b8)                                                                          \
    static pome_status run_##op(const pome_run *r, pome_error *err)                                \
    {                                                                                              \
        static const rows t = {row_##op##_f32, row_##op##_i8,  row_##op##_u8,  row_##op##_i16,     \
                               row_##op##_u16, row_##op##_i32, row_##op##_u32, b8};                \
        return run_binary(r, &t, b8 != NULL, cost, err);                                                       \
    }
RUN(add, 1, NULL)
RUN(sub, 1, NULL)
RUN(mul, 1, NULL)
RUN(real_div, 2, NULL)
RUN(floor_div, 16, NULL)
RUN(mod, 16, NULL)
RUN(pow, 8, NULL)
RUN(maximum, 1, NULL)
RUN(minimum, 1, NULL)
RUN(equal, 1, row_equal_u8)
RUN(not_equal, 1, row_not_equal_u8)
RUN(greater, 1, row_greater_u8)
RUN(greater_equal, 1, row_greater_equal_u8)
RUN(less, 1, row_less_u8)
RUN(less_equal, 1, row_less_equal_u8)

#define RUN_LOGIC(op)                                                                              \
    static pome_status run_##op(const pome_run *r, pome_error *err)                                \
    {                                                                                              \
        static const rows t = {.bool8 = row_##op##_bool};                                          \
        return run_binary(r, &t, true, 1, err);                                                          \
    }
RUN_LOGIC(logical_and)
RUN_LOGIC(logical_or)
RUN_LOGIC(logical_xor)

/* Parameters x and y are 0 and 1 in every row of the operator table. */
#define IMPL(op) {.id = POME_OP_##op, .strided_ok = POME_BIT(0) | POME_BIT(1), .run = run_##op}
const pome_op_impl pome_ops_elementwise_binary[] = {
    IMPL(add),       IMPL(sub),           IMPL(mul),         IMPL(real_div),   IMPL(floor_div),  IMPL(mod),
    IMPL(pow),       IMPL(maximum),       IMPL(minimum),     IMPL(equal),      IMPL(not_equal),  IMPL(greater),
    IMPL(greater_equal), IMPL(less),      IMPL(less_equal),  IMPL(logical_and), IMPL(logical_or), IMPL(logical_xor),
};
POME_FAMILY_COUNT(elementwise_binary)
