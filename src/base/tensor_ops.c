/* Copies with conversion, softmax, argmax, topk: what pre- and post-processing need. Simple loops; the engine's
 * own operators do not use them where speed counts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/f16.h"
#include "pome/tensor.h"

/* One element on its way between dtypes: floats as double (all are exact in it), integers as int64. */
typedef struct scalar {
    double f;
    int64_t i;
    bool is_float;
} scalar;

static scalar of_float(double f)
{
    return (scalar){.f = f, .is_float = true};
}
static scalar of_int(int64_t i)
{
    return (scalar){.i = i};
}

#define LOAD(type, p) (*(const type *)(p))

static scalar load(pome_dtype dtype, const void *p)
{
    switch (dtype) {
    case POME_DTYPE_F16: return of_float(pome_f16_to_f32(LOAD(uint16_t, p)));
    case POME_DTYPE_BF16: return of_float(pome_bf16_to_f32(LOAD(uint16_t, p)));
    case POME_DTYPE_F32: return of_float(LOAD(float, p));
    case POME_DTYPE_F64: return of_float(LOAD(double, p));
    case POME_DTYPE_F8E4M3FN: return of_float(pome_f8e4m3fn_to_f32(LOAD(uint8_t, p)));
    case POME_DTYPE_F8E5M2: return of_float(pome_f8e5m2_to_f32(LOAD(uint8_t, p)));
    case POME_DTYPE_I8: return of_int(LOAD(int8_t, p));
    case POME_DTYPE_I16: return of_int(LOAD(int16_t, p));
    case POME_DTYPE_I32: return of_int(LOAD(int32_t, p));
    case POME_DTYPE_I64: return of_int(LOAD(int64_t, p));
    case POME_DTYPE_BOOL:
    case POME_DTYPE_U8: return of_int(LOAD(uint8_t, p));
    case POME_DTYPE_U16: return of_int(LOAD(uint16_t, p));
    case POME_DTYPE_U32: return of_int(LOAD(uint32_t, p));
    case POME_DTYPE_U64: return of_int((int64_t)LOAD(uint64_t, p));
    default: return of_int(0);
    }
}

/* Truncates and saturates to [lo, hi]; NaN gives 0. Bounds of 64-bit types are exclusive above in double. */
static int64_t saturate(double f, int64_t lo, int64_t hi)
{
    if (isnan(f))
        return 0;
    if (f <= (double)lo)
        return lo;
    return f >= (double)hi ? hi : (int64_t)f;
}

static uint64_t to_u64(double f)
{
    if (isnan(f) || f <= 0)
        return 0;
    return f >= 18446744073709551616.0 ? UINT64_MAX : (uint64_t)f;
}

static double as_double(scalar s, pome_dtype from)
{
    return s.is_float ? s.f : from == POME_DTYPE_U64 ? (double)(uint64_t)s.i : (double)s.i;
}

/* To float for a second rounding to fewer bits: an inexact result is made odd, which no such rounding mistakes for a
 * tie or an exact value. */
static float narrow_odd(double d)
{
    float f = (float)d;
    if (isnan(d) || isinf(f) || (double)f == d || (pome_f32_bits(f) & 1))
        return f;
    bool rounded_up = fabs((double)f) > fabs(d);
    return pome_f32_from_bits(pome_f32_bits(f) + (rounded_up ? -1u : 1u));
}

#define STORE_INT(type, lo, hi) (*(type *)p = (type)(s.is_float ? saturate(s.f, lo, hi) : s.i))

static void store(pome_dtype dtype, void *p, scalar s, pome_dtype from)
{
    switch (dtype) {
    case POME_DTYPE_F16: *(uint16_t *)p = pome_f32_to_f16(narrow_odd(as_double(s, from))); break;
    case POME_DTYPE_BF16: *(uint16_t *)p = pome_f32_to_bf16(narrow_odd(as_double(s, from))); break;
    case POME_DTYPE_F32: *(float *)p = (float)as_double(s, from); break;
    case POME_DTYPE_F64: *(double *)p = as_double(s, from); break;
    case POME_DTYPE_BOOL: *(uint8_t *)p = s.is_float ? s.f != 0 : s.i != 0; break;
    case POME_DTYPE_I8: STORE_INT(int8_t, INT8_MIN, INT8_MAX); break;
    case POME_DTYPE_I16: STORE_INT(int16_t, INT16_MIN, INT16_MAX); break;
    case POME_DTYPE_I32: STORE_INT(int32_t, INT32_MIN, INT32_MAX); break;
    case POME_DTYPE_I64: STORE_INT(int64_t, INT64_MIN, INT64_MAX); break;
    case POME_DTYPE_U8: STORE_INT(uint8_t, 0, UINT8_MAX); break;
    case POME_DTYPE_U16: STORE_INT(uint16_t, 0, UINT16_MAX); break;
    case POME_DTYPE_U32: STORE_INT(uint32_t, 0, UINT32_MAX); break;
    case POME_DTYPE_U64: *(uint64_t *)p = s.is_float ? to_u64(s.f) : (uint64_t)s.i; break;
    default: break;
    }
}

static bool can_store(pome_dtype d)
{
    return pome_dtype_bits(d) >= 8 && d != POME_DTYPE_F8E4M3FN && d != POME_DTYPE_F8E5M2;
}

/* Advances a row-major index over all axes but the last; false after the last row. */
static bool next_row(const pome_tensor *t, int64_t *index)
{
    for (int32_t i = t->rank - 2; i >= 0; i--) {
        if (++index[i] < t->shape[i])
            return true;
        index[i] = 0;
    }
    return false;
}

static char *row_at(const pome_tensor *t, const int64_t *index, size_t size)
{
    int64_t at = 0;
    for (int32_t i = 0; i + 1 < t->rank; i++)
        at += index[i] * t->stride[i];
    return (char *)t->data + at * (int64_t)size;
}

static void copy_row(pome_dtype to, char *d, int64_t d_step, pome_dtype from, const char *s, int64_t s_step, int64_t n)
{
    size_t to_size = pome_dtype_bits(to) / 8, from_size = pome_dtype_bits(from) / 8;
    if (to == from && d_step == 1 && s_step == 1) {
        memcpy(d, s, (size_t)n * to_size);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        char *dp = d + i * d_step * (int64_t)to_size;
        const char *sp = s + i * s_step * (int64_t)from_size;
        if (to == from)
            memcpy(dp, sp, to_size);
        else
            store(to, dp, load(from, sp), from);
    }
}

static bool same_shape(const pome_tensor *a, const pome_tensor *b)
{
    return a->rank == b->rank && memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) == 0;
}

pome_status pome_tensor_copy(const pome_tensor *dst, const pome_tensor *src, pome_error *err)
{
    if (!same_shape(dst, src))
        return pome_fail(err, POME_ERR_ARG, "copy: shapes differ");
    if (!can_store(dst->dtype) || pome_dtype_bits(src->dtype) < 8)
        return pome_fail(err, POME_ERR_ARG, "copy: %s to %s is not possible", pome_dtype_name(src->dtype),
                         pome_dtype_name(dst->dtype));
    if (pome_tensor_count(src) == 0)
        return POME_OK;
    int64_t index[POME_MAX_RANK] = {0};
    int32_t last = dst->rank - 1;
    int64_t n = last < 0 ? 1 : dst->shape[last], d_step = last < 0 ? 1 : dst->stride[last];
    int64_t s_step = last < 0 ? 1 : src->stride[last];
    size_t d_size = pome_dtype_bits(dst->dtype) / 8, s_size = pome_dtype_bits(src->dtype) / 8;
    do
        copy_row(dst->dtype, row_at(dst, index, d_size), d_step, src->dtype, row_at(src, index, s_size), s_step, n);
    while (next_row(dst, index));
    return POME_OK;
}

pome_status pome_tensor_cast(pome_tensor *out, const pome_tensor *t, pome_dtype dtype, pome_error *err)
{
    pome_tensor r;
    POME_TRY(pome_tensor_init(&r, dtype, t->rank, t->shape, err));
    pome_status s = pome_tensor_copy(&r, t, err);
    if (s != POME_OK) {
        pome_tensor_reset(&r);
        return s;
    }
    *out = r;
    return POME_OK;
}

pome_status pome_tensor_clone(pome_tensor *out, const pome_tensor *t, pome_error *err)
{
    return pome_tensor_cast(out, t, t->dtype, err);
}

/* Views t as [outer, n, inner] around `axis` in contiguous fp64, in which every element but a huge int64 is exact. */
typedef struct along {
    pome_tensor f64;
    int64_t outer, n, inner;
    int32_t axis;
} along;

static pome_status along_axis(along *a, const pome_tensor *t, int32_t axis, const char *what, pome_error *err)
{
    int32_t at = axis < 0 ? axis + t->rank : axis;
    if (at < 0 || at >= t->rank)
        return pome_fail(err, POME_ERR_ARG, "%s: axis %d of a tensor of rank %d", what, (int)axis, (int)t->rank);
    if (t->shape[at] == 0)
        return pome_fail(err, POME_ERR_ARG, "%s: axis %d is empty", what, (int)axis);
    *a = (along){.outer = 1, .inner = 1, .n = t->shape[at], .axis = at};
    for (int32_t i = 0; i < at; i++)
        a->outer *= t->shape[i];
    for (int32_t i = at + 1; i < t->rank; i++)
        a->inner *= t->shape[i];
    return pome_tensor_cast(&a->f64, t, POME_DTYPE_F64, err);
}

static void softmax_line(double *x, int64_t n, int64_t step)
{
    double top = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        top = x[i * step] > top ? x[i * step] : top;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        x[i * step] = top == -INFINITY ? 1.0 : exp(x[i * step] - top);
        sum += x[i * step];
    }
    for (int64_t i = 0; i < n; i++)
        x[i * step] = x[i * step] / sum;
}

pome_status pome_tensor_softmax(pome_tensor *out, const pome_tensor *t, int32_t axis, pome_error *err)
{
    along a;
    POME_TRY(along_axis(&a, t, axis, "softmax", err));
    double *x = a.f64.data;
    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t i = 0; i < a.inner; i++)
            softmax_line(x + o * a.n * a.inner + i, a.n, a.inner);
    pome_status s = pome_tensor_cast(out, &a.f64, POME_DTYPE_F32, err);
    pome_tensor_reset(&a.f64);
    return s;
}

pome_status pome_tensor_argmax(pome_tensor *out, const pome_tensor *t, int32_t axis, pome_error *err)
{
    along a;
    int64_t shape[POME_MAX_RANK];
    POME_TRY(along_axis(&a, t, axis, "argmax", err));
    for (int32_t i = 0, k = 0; i < t->rank; i++)
        if (i != a.axis)
            shape[k++] = t->shape[i];
    pome_tensor r;
    pome_status s = pome_tensor_init(&r, POME_DTYPE_I32, t->rank - 1, shape, err);
    if (s != POME_OK) {
        pome_tensor_reset(&a.f64);
        return s;
    }
    const double *x = a.f64.data;
    int32_t *best = r.data;
    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t i = 0; i < a.inner; i++) {
            const double *line = x + o * a.n * a.inner + i;
            int64_t at = 0;
            for (int64_t k = 1; k < a.n; k++)
                if (line[k * a.inner] > line[at * a.inner] || isnan(line[at * a.inner]))
                    at = k;
            best[o * a.inner + i] = (int32_t)at;
        }
    pome_tensor_reset(&a.f64);
    *out = r;
    return POME_OK;
}

typedef struct ranked {
    double value;
    int32_t index;
} ranked;

static int by_value_then_index(const void *x, const void *y)
{
    const ranked *a = x, *b = y;
    double va = isnan(a->value) ? -INFINITY : a->value, vb = isnan(b->value) ? -INFINITY : b->value;
    if (va != vb)
        return va > vb ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

pome_status pome_tensor_topk(pome_tensor *values, pome_tensor *indices, const pome_tensor *t, int64_t k, pome_error *err)
{
    along a;
    if (t->rank < 1 || k < 1 || k > t->shape[t->rank - 1])
        return pome_fail(err, POME_ERR_ARG, "topk: k %lld of a last axis of %lld", (long long)k,
                         t->rank < 1 ? 0LL : (long long)t->shape[t->rank - 1]);
    POME_TRY(along_axis(&a, t, -1, "topk", err));
    int64_t shape[POME_MAX_RANK];
    memcpy(shape, t->shape, sizeof shape);
    shape[t->rank - 1] = k;
    pome_tensor v = {0}, ix = {0}, sorted = {0};
    ranked *line = malloc((size_t)a.n * sizeof *line);
    pome_status s = line ? POME_OK : pome_fail_nomem(err, (size_t)a.n * sizeof *line, "topk");
    if (s == POME_OK)
        s = pome_tensor_init(&sorted, POME_DTYPE_F64, t->rank, shape, err);
    if (s == POME_OK)
        s = pome_tensor_init(&ix, POME_DTYPE_I32, t->rank, shape, err);
    for (int64_t o = 0; s == POME_OK && o < a.outer; o++) {
        for (int64_t i = 0; i < a.n; i++)
            line[i] = (ranked){((double *)a.f64.data)[o * a.n + i], (int32_t)i};
        qsort(line, (size_t)a.n, sizeof *line, by_value_then_index);
        for (int64_t i = 0; i < k; i++) {
            ((double *)sorted.data)[o * k + i] = line[i].value;
            ((int32_t *)ix.data)[o * k + i] = line[i].index;
        }
    }
    if (s == POME_OK)
        s = pome_tensor_cast(&v, &sorted, t->dtype, err);
    free(line);
    pome_tensor_reset(&a.f64);
    pome_tensor_reset(&sorted);
    if (s != POME_OK) {
        pome_tensor_reset(&ix);
        return s;
    }
    *values = v;
    *indices = ix;
    return POME_OK;
}
