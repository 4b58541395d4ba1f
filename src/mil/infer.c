#include "mil/infer.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/f16.h"

/* ---- failures ---- */

pome_status pome_infer_fail(pome_infer *c, pome_error *err, const char *fmt, ...)
{
    char text[sizeof ((pome_error *)0)->message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const pome_op *op = c->op;
    return pome_fail(err, POME_ERR_FORMAT, "%s (%s, #%" PRIu32 "): %s", op->name ? op->name : "", op->def->name,
                     op->position, text);
}

static const char *param_name(const pome_infer *c, uint32_t param)
{
    return c->op->def->params[param].name;
}

/* ---- contents ---- */

static uint64_t load_bits(const uint8_t *bytes, uint64_t bit, unsigned bits)
{
    uint64_t byte = bit >> 3;
    unsigned shift = (unsigned)(bit & 7), value = bytes[byte] >> shift;
    if (shift + bits > 8)
        value |= (unsigned)bytes[byte + 1] << (8 - shift);
    return value & ((1u << bits) - 1);
}

/* Position of row-major element i, in elements from data. */
static int64_t offset_of(const pome_tensor *t, int64_t i)
{
    if (t->rank <= 1)
        return t->rank ? i * t->stride[0] : 0;
    int64_t offset = 0;
    for (int32_t a = t->rank - 1; a >= 0; a--) {
        int64_t n = t->shape[a] > 0 ? t->shape[a] : 1;
        offset += i % n * t->stride[a];
        i /= n;
    }
    return offset;
}

/* Sub-byte tensors are contiguous by definition. */
static int64_t code_at(const pome_tensor *t, int64_t i)
{
    uint32_t bits = pome_dtype_bits(t->dtype);
    int64_t code = (int64_t)load_bits(t->data, (uint64_t)i * bits, bits);
    return t->dtype == POME_DTYPE_I4 ? (code ^ 8) - 8 : code;
}

static int64_t saturated(double d)
{
    if (d != d)
        return 0;
    return d >= 9223372036854775808.0 ? INT64_MAX : d < -9223372036854775808.0 ? INT64_MIN : (int64_t)d;
}

#define LOAD(type, at) (memcpy(&u.type, (const char *)t->data + (at) * (int64_t)sizeof u.type, sizeof u.type), u.type)

int64_t pome_tensor_int_at_any(const pome_tensor *t, int64_t i)
{
    union {
        int8_t s8;
        uint8_t u8;
        int16_t s16;
        uint16_t u16;
        int32_t s32;
        uint32_t u32;
        int64_t s64;
        uint64_t u64;
    } u;
    int64_t at = offset_of(t, i);
    switch (t->dtype) {
    case POME_DTYPE_BOOL: return LOAD(u8, at) != 0;
    case POME_DTYPE_I8: return LOAD(s8, at);
    case POME_DTYPE_U8: return LOAD(u8, at);
    case POME_DTYPE_I16: return LOAD(s16, at);
    case POME_DTYPE_U16: return LOAD(u16, at);
    case POME_DTYPE_I32: return LOAD(s32, at);
    case POME_DTYPE_U32: return LOAD(u32, at);
    case POME_DTYPE_I64: return LOAD(s64, at);
    case POME_DTYPE_U64: return LOAD(u64, at) > INT64_MAX ? INT64_MAX : (int64_t)u.u64;
    case POME_DTYPE_I4:
    case POME_DTYPE_U1:
    case POME_DTYPE_U2:
    case POME_DTYPE_U3:
    case POME_DTYPE_U4:
    case POME_DTYPE_U6: return code_at(t, i);
    default: return saturated(pome_tensor_float_at(t, i));
    }
}

double pome_tensor_float_at(const pome_tensor *t, int64_t i)
{
    union {
        uint8_t u8;
        uint16_t u16;
        float f32;
        double f64;
    } u;
    int64_t at = offset_of(t, i);
    switch (t->dtype) {
    case POME_DTYPE_F16: return (double)pome_f16_to_f32(LOAD(u16, at));
    case POME_DTYPE_F32: return (double)LOAD(f32, at);
    case POME_DTYPE_F64: return LOAD(f64, at);
    case POME_DTYPE_BF16: return (double)pome_bf16_to_f32(LOAD(u16, at));
    case POME_DTYPE_F8E4M3FN: return (double)pome_f8e4m3fn_to_f32(LOAD(u8, at));
    case POME_DTYPE_F8E5M2: return (double)pome_f8e5m2_to_f32(LOAD(u8, at));
    case POME_DTYPE_NONE:
    case POME_DTYPE_STRING: return 0;
    default: return (double)pome_tensor_int_at_any(t, i);
    }
}

static pome_status scalar_of(pome_infer *c, uint32_t param, const pome_tensor **out, pome_error *err)
{
    const pome_tensor *t = pome_infer_value(c, param);
    if (!t)
        return pome_infer_fail(c, err, "parameter '%s' must be a constant", param_name(c, param));
    for (int32_t a = 0; a < t->rank; a++)
        if (t->shape[a] != 1)
            return pome_infer_fail(c, err, "parameter '%s' must be a scalar", param_name(c, param));
    *out = t;
    return POME_OK;
}

pome_status pome_infer_int(pome_infer *c, uint32_t param, int64_t dflt, int64_t *out, pome_error *err)
{
    const pome_tensor *t = NULL;
    if (!pome_infer_has(c, param)) {
        *out = dflt;
        return POME_OK;
    }
    POME_TRY(scalar_of(c, param, &t, err));
    *out = pome_tensor_int_at(t, 0);
    return POME_OK;
}

pome_status pome_infer_bool(pome_infer *c, uint32_t param, bool dflt, bool *out, pome_error *err)
{
    int64_t v = 0;
    POME_TRY(pome_infer_int(c, param, dflt, &v, err));
    *out = v != 0;
    return POME_OK;
}

const char *pome_op_str(const pome_op *op, uint32_t param, const char *dflt)
{
    const pome_value *v = pome_op_arg(op, param);
    if (!v || !v->konst || !v->konst->strings || pome_tensor_count(&v->konst->t) < 1)
        return dflt;
    return v->konst->strings[0];
}

static bool in_words(const char *words, const char *word)
{
    size_t len = strlen(word);
    for (const char *p = words; len && (p = strstr(p, word)); p += len)
        if ((p == words || p[-1] == '|') && (p[len] == 0 || p[len] == '|'))
            return true;
    return false;
}

pome_status pome_infer_word(pome_infer *c, uint32_t param, const char *words, pome_error *err)
{
    if (!pome_infer_at_load(c) || !pome_infer_has(c, param))
        return POME_OK;
    const char *word = pome_op_str(c->op, param, NULL);
    if (!word)
        return pome_infer_fail(c, err, "parameter '%s' must be a constant string", param_name(c, param));
    if (!in_words(words, word))
        return pome_infer_fail(c, err, "parameter '%s' is '%s', not one of %s", param_name(c, param), word, words);
    return POME_OK;
}

pome_status pome_infer_dtype(pome_infer *c, uint32_t param, pome_dtype dflt, uint32_t allowed, pome_dtype *out,
                             pome_error *err)
{
    *out = dflt;
    if (!pome_infer_has(c, param))
        return POME_OK;
    const char *word = pome_op_str(c->op, param, NULL);
    if (!word)
        return pome_infer_fail(c, err, "parameter '%s' must be a constant string", param_name(c, param));
    for (int d = POME_DTYPE_BOOL; d < POME_DTYPE_COUNT; d++) {
        if (pome_opdef_type_bit((pome_dtype)d) & allowed && strcmp(pome_dtype_name((pome_dtype)d), word) == 0) {
            *out = (pome_dtype)d;
            return POME_OK;
        }
    }
    return pome_infer_fail(c, err, "parameter '%s' names the type '%s', which is not possible here",
                           param_name(c, param), word);
}

pome_status pome_infer_ints(pome_infer *c, uint32_t param, int64_t *out, int32_t *n, bool *known, pome_error *err)
{
    const pome_type *type = pome_infer_type(c, param);
    const pome_tensor *t = pome_infer_value(c, param);
    *known = false;
    *n = -1;
    if (!type)
        return pome_infer_fail(c, err, "parameter '%s' is missing", param_name(c, param));
    /* A scalar counts as a vector of one element. */
    if (type->rank > 1)
        return pome_infer_fail(c, err, "parameter '%s' has rank %" PRId32 ", not 1", param_name(c, param), type->rank);
    int64_t len = t ? pome_tensor_count(t) : type->rank == 0 ? 1 : type->rank == 1 ? type->dim[0] : -1;
    if (len > POME_MAX_RANK)
        return pome_infer_fail(c, err, "parameter '%s' has %" PRId64 " elements, more than %d", param_name(c, param),
                               len, POME_MAX_RANK);
    *n = len < 0 ? -1 : (int32_t)len;
    if (t) {
        for (int32_t i = 0; i < *n; i++)
            out[i] = pome_tensor_int_at(t, i);
        *known = true;
    }
    return POME_OK;
}

/* ---- sizes ---- */

int64_t pome_infer_symbol(pome_infer *c)
{
    return c->next_symbol ? (*c->next_symbol)-- : -1;
}

pome_status pome_infer_add(pome_infer *c, int64_t a, int64_t b, int64_t *out, pome_error *err)
{
    if (a >= 0 && b >= 0) {
        if (!pome_add_i64(a, b, out) || *out > POME_MAX_ELEMENTS)
            return pome_infer_fail(c, err, "size %" PRId64 " + %" PRId64 " is too large", a, b);
    } else {
        *out = a == 0 ? b : b == 0 ? a : pome_infer_symbol(c);
    }
    return POME_OK;
}

pome_status pome_infer_mul(pome_infer *c, int64_t a, int64_t b, int64_t *out, pome_error *err)
{
    if (a >= 0 && b >= 0) {
        if (!pome_mul_i64(a, b, out) || *out > POME_MAX_ELEMENTS)
            return pome_infer_fail(c, err, "size %" PRId64 " * %" PRId64 " is too large", a, b);
    } else {
        *out = a == 0 || b == 0 ? 0 : a == 1 ? b : b == 1 ? a : pome_infer_symbol(c);
    }
    return POME_OK;
}

pome_status pome_infer_axis(pome_infer *c, int64_t axis, int32_t rank, int32_t *out, pome_error *err)
{
    if (axis < -rank || axis >= rank)
        return pome_infer_fail(c, err, "axis %" PRId64 " is out of range for rank %" PRId32, axis, rank);
    *out = (int32_t)(axis < 0 ? axis + rank : axis);
    return POME_OK;
}

pome_status pome_infer_axis_param(pome_infer *c, uint32_t param, int64_t dflt, int32_t rank, int32_t *out,
                                  pome_error *err)
{
    int64_t axis = 0;
    POME_TRY(pome_infer_int(c, param, dflt, &axis, err));
    return pome_infer_axis(c, axis, rank, out, err);
}

pome_status pome_infer_axes(pome_infer *c, uint32_t param, int32_t rank, uint32_t *mask, pome_error *err)
{
    int64_t axes[POME_MAX_RANK];
    int32_t n, axis = 0;
    bool known;
    POME_TRY(pome_infer_ints(c, param, axes, &n, &known, err));
    if (!known)
        return pome_infer_fail(c, err, "parameter '%s' must be a constant", param_name(c, param));
    *mask = 0;
    for (int32_t i = 0; i < n; i++) {
        POME_TRY(pome_infer_axis(c, axes[i], rank, &axis, err));
        if (*mask >> axis & 1)
            return pome_infer_fail(c, err, "axis %" PRId64 " is named twice", axes[i]);
        *mask |= 1u << axis;
    }
    return POME_OK;
}

static bool broadcast_dim(pome_infer *c, int64_t a, int64_t b, int64_t *out)
{
    if (a == b || b == 1)
        *out = a;
    else if (a == 1)
        *out = b;
    else if (a >= 0 && b >= 0)
        return false;
    else if (a < 0 && b < 0)
        *out = pome_infer_symbol(c);
    else
        *out = a > b ? a : b; /* the unknown one must be 1 or the same */
    return true;
}

pome_status pome_infer_broadcast(pome_infer *c, const pome_type *a, const pome_type *b, pome_type *out, pome_error *err)
{
    const pome_type *l = a->rank >= b->rank ? a : b, *s = l == a ? b : a; /* longer, shorter */
    int32_t skip = l->rank - s->rank;
    int64_t dim[POME_MAX_RANK];
    for (int32_t i = 0; i < l->rank; i++) {
        dim[i] = l->dim[i];
        if (i >= skip && !broadcast_dim(c, l->dim[i], s->dim[i - skip], &dim[i])) {
            char x[160], y[160];
            return pome_infer_fail(c, err, "%s and %s cannot be broadcast together", pome_type_print(a, x, sizeof x),
                                   pome_type_print(b, y, sizeof y));
        }
    }
    out->kind = POME_TYPE_TENSOR;
    out->rank = l->rank;
    for (int32_t i = 0; i < l->rank; i++)
        out->dim[i] = dim[i];
    return POME_OK;
}

int64_t pome_type_count(const pome_type *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->dim[i] < 0)
            return -1;
        n *= t->dim[i];
    }
    return n;
}

pome_type pome_type_tensor(pome_dtype dtype, int32_t rank, const int64_t *dim)
{
    pome_type t = {.kind = POME_TYPE_TENSOR, .dtype = dtype, .rank = rank};
    for (int32_t i = 0; i < rank; i++)
        t.dim[i] = dim[i];
    return t;
}

bool pome_type_compatible(const pome_type *a, const pome_type *b)
{
    if (a->kind != b->kind || a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (int32_t i = 0; i < a->rank; i++)
        if (!pome_dim_may_equal(a->dim[i], b->dim[i]))
            return false;
    return a->kind != POME_TYPE_LIST || pome_dim_may_equal(a->list_length, b->list_length);
}

const char *pome_type_print(const pome_type *t, char *buf, size_t size)
{
    static const char *const kinds[] = {"", "list of ", "state ", "dictionary of "};
    size_t used = 0;
    int n = snprintf(buf, size, "%s%s[", kinds[t->kind], pome_dtype_name(t->dtype));
    for (int32_t i = 0; n >= 0 && (used += (size_t)n) < size && i < t->rank; i++) {
        const char *comma = i ? ", " : "";
        n = t->dim[i] < 0 ? snprintf(buf + used, size - used, "%s?", comma)
                          : snprintf(buf + used, size - used, "%s%" PRId64, comma, t->dim[i]);
    }
    if (used < size)
        snprintf(buf + used, size - used, t->rank < 0 ? "...]" : "]");
    return buf;
}

/* ---- demands ---- */

pome_status pome_infer_outputs(pome_infer *c, uint32_t n, pome_error *err)
{
    if (c->op->n_out != n)
        return pome_infer_fail(c, err, "has %" PRIu32 " outputs, not %" PRIu32, c->op->n_out, n);
    return POME_OK;
}

pome_status pome_infer_same_dtype(pome_infer *c, const pome_type *a, const pome_type *b, pome_error *err)
{
    const uint32_t floats = POME_T_F16 | POME_T_F32;
    if (a->dtype == b->dtype || (pome_opdef_type_bit(a->dtype) & floats && pome_opdef_type_bit(b->dtype) & floats))
        return POME_OK;
    return pome_infer_fail(c, err, "inputs of %s and %s are mixed", pome_dtype_name(a->dtype), pome_dtype_name(b->dtype));
}

pome_status pome_infer_rank(pome_infer *c, uint32_t param, int32_t lo, int32_t hi, pome_error *err)
{
    int32_t rank = pome_infer_type(c, param)->rank;
    if (rank >= lo && rank <= hi)
        return POME_OK;
    if (lo == hi)
        return pome_infer_fail(c, err, "'%s' has rank %" PRId32 ", not %" PRId32, param_name(c, param), rank, lo);
    return pome_infer_fail(c, err, "'%s' has rank %" PRId32 ", not %" PRId32 " to %" PRId32, param_name(c, param),
                           rank, lo, hi);
}

pome_status pome_infer_vector(pome_infer *c, uint32_t param, int64_t size, pome_error *err)
{
    const pome_type *t = pome_infer_type(c, param);
    if (!t || (t->rank == 1 && pome_dim_may_equal(t->dim[0], size)))
        return POME_OK;
    char buf[160];
    return pome_infer_fail(c, err, "'%s' is %s, not a vector of %" PRId64, param_name(c, param),
                           pome_type_print(t, buf, sizeof buf), size);
}

/* ---- the way in ---- */

static pome_status check_output(pome_infer *c, const pome_type *t, pome_error *err)
{
    int64_t n = 1;
    if (t->rank > POME_MAX_RANK)
        return pome_infer_fail(c, err, "the result's rank %" PRId32 " is more than %d", t->rank, POME_MAX_RANK);
    if (!pome_infer_at_load(c) && t->rank < 0)
        return pome_infer_fail(c, err, "the result's rank is not known");
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->dim[i] < 0) {
            if (!pome_infer_at_load(c) && t->kind == POME_TYPE_TENSOR)
                return pome_infer_fail(c, err, "size %" PRId32 " of the result is not known", i);
            continue;
        }
        /* An empty tensor may have absurd sizes beside its 0: each counts as at least 1 here. */
        if (!pome_mul_i64(n, t->dim[i] > 0 ? t->dim[i] : 1, &n) || n > POME_MAX_ELEMENTS) {
            char buf[200];
            return pome_infer_fail(c, err, "the result %s is too large", pome_type_print(t, buf, sizeof buf));
        }
    }
    return POME_OK;
}

pome_status pome_infer_op(pome_infer *c, pome_error *err)
{
    POME_TRY(c->op->def->infer(c, err));
    for (uint32_t i = 0; i < c->op->n_out; i++)
        POME_TRY(check_output(c, &c->out[i], err));
    return POME_OK;
}
