/* select: cond ? a : b, all three broadcast together. Values are moved as bits, so that nothing of the side that is not
 * chosen, NaN or not, reaches the result. */
#include "ops/elementwise.h"
#include "ops/families.h"

#define PICK(T, c, a, b) (T)(((a) & (T) - (T)((c) != 0)) | ((b) & (T) ~(T) - (T)((c) != 0)))

/* A chosen scalar is the usual case of masks: a row with a fixed side is vectorized too. */
#define ROW(name, T)                                                                               \
    static void name(void *out, const void *const *in, const ptrdiff_t *stride, size_t n, const void *param) \
    {                                                                                              \
        T *o = out;                                                                                \
        const uint8_t *c = in[0];                                                                  \
        const T *a = in[1], *b = in[2];                                                            \
        ptrdiff_t sc = stride[0], sa = stride[1], sb = stride[2];                                  \
        (void)param;                                                                               \
        if (sc == 0) {                                                                             \
            const T *x = *c ? a : b;                                                               \
            ptrdiff_t s = *c ? sa : sb;                                                            \
            for (size_t i = 0; i < n; i++)                                                         \
                o[i] = x[(ptrdiff_t)i * s];                                                        \
        } else if (sc == 1 && sa == 1 && sb == 1) {                                                \
            for (size_t i = 0; i < n; i++)                                                         \
                o[i] = PICK(T, c[i], a[i], b[i]);                                                  \
        } else if (sc == 1 && sa == 1 && sb == 0) {                                                \
            T v = *b;                                                                              \
            for (size_t i = 0; i < n; i++)                                                         \
                o[i] = PICK(T, c[i], a[i], v);                                                     \
        } else if (sc == 1 && sa == 0 && sb == 1) {                                                \
            T v = *a;                                                                              \
            for (size_t i = 0; i < n; i++)                                                         \
                o[i] = PICK(T, c[i], v, b[i]);                                                     \
        } else {                                                                                   \
            for (size_t i = 0; i < n; i++)                                                         \
                o[i] = c[(ptrdiff_t)i * sc] ? a[(ptrdiff_t)i * sa] : b[(ptrdiff_t)i * sb];         \
        }                                                                                          \
    }
ROW(row_1, uint8_t)
ROW(row_2, uint16_t)
ROW(row_4, uint32_t)

static pome_status run_select(const pome_run *r, pome_error *err)
{
    const pome_tensor *in[3] = {pome_in(r, P_select_cond), pome_in(r, P_select_a), pome_in(r, P_select_b)};
    pome_dtype dtype = r->out[0].dtype;
    uint32_t bits = pome_dtype_bits(dtype);
    pome_row_fn *fn = bits == 8 ? row_1 : bits == 16 ? row_2 : bits == 32 ? row_4 : NULL;
    if (!fn || in[0]->dtype != POME_DTYPE_BOOL || in[1]->dtype != dtype || in[2]->dtype != dtype)
        return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "cond is %s, a %s, b %s, the result %s",
                            pome_dtype_name(in[0]->dtype), pome_dtype_name(in[1]->dtype),
                            pome_dtype_name(in[2]->dtype), pome_dtype_name(dtype));
    return pome_elementwise_run(r, fn, in, 3, NULL, 1, err);
}

const pome_op_impl pome_ops_select[] = {
    {.id = POME_OP_select,
     .strided_ok = POME_BIT(P_select_cond) | POME_BIT(P_select_a) | POME_BIT(P_select_b),
     .run = run_select},
};
POME_FAMILY_COUNT(select)
