/* Tensors as memory: types, allocation, views. Copies and arithmetic are in tensor_ops.c. */
#include "pome/tensor.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

struct pome_buffer {
    atomic_int refs;
    void *block; /* the tensor's data begin at its first multiple of ALIGN */
};

enum { ALIGN = 64 };

static const struct {
    const char *name;
    uint8_t bits;
    char kind; /* f: float, i: integer, else other */
} types[POME_DTYPE_COUNT] = {
    [POME_DTYPE_NONE] = {"none", 0, 0},      [POME_DTYPE_BOOL] = {"bool", 8, 'b'},
    [POME_DTYPE_F16] = {"fp16", 16, 'f'},    [POME_DTYPE_F32] = {"fp32", 32, 'f'},
    [POME_DTYPE_F64] = {"fp64", 64, 'f'},    [POME_DTYPE_BF16] = {"bf16", 16, 'f'},
    [POME_DTYPE_F8E4M3FN] = {"fp8e4m3fn", 8, 'f'}, [POME_DTYPE_F8E5M2] = {"fp8e5m2", 8, 'f'},
    [POME_DTYPE_I4] = {"int4", 4, 'i'},      [POME_DTYPE_I8] = {"int8", 8, 'i'},
    [POME_DTYPE_I16] = {"int16", 16, 'i'},   [POME_DTYPE_I32] = {"int32", 32, 'i'},
    [POME_DTYPE_I64] = {"int64", 64, 'i'},   [POME_DTYPE_U1] = {"uint1", 1, 'i'},
    [POME_DTYPE_U2] = {"uint2", 2, 'i'},     [POME_DTYPE_U3] = {"uint3", 3, 'i'},
    [POME_DTYPE_U4] = {"uint4", 4, 'i'},     [POME_DTYPE_U6] = {"uint6", 6, 'i'},
    [POME_DTYPE_U8] = {"uint8", 8, 'i'},     [POME_DTYPE_U16] = {"uint16", 16, 'i'},
    [POME_DTYPE_U32] = {"uint32", 32, 'i'},  [POME_DTYPE_U64] = {"uint64", 64, 'i'},
    [POME_DTYPE_STRING] = {"string", 0, 's'},
};

uint32_t pome_dtype_bits(pome_dtype dtype)
{
    return (unsigned)dtype < POME_DTYPE_COUNT ? types[dtype].bits : 0;
}

const char *pome_dtype_name(pome_dtype dtype)
{
    return (unsigned)dtype < POME_DTYPE_COUNT ? types[dtype].name : "?";
}

bool pome_dtype_is_float(pome_dtype dtype)
{
    return (unsigned)dtype < POME_DTYPE_COUNT && types[dtype].kind == 'f';
}

bool pome_dtype_is_int(pome_dtype dtype)
{
    return (unsigned)dtype < POME_DTYPE_COUNT && types[dtype].kind == 'i';
}

int64_t pome_tensor_count(const pome_tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < t->rank; i++)
        n *= t->shape[i];
    return n;
}

size_t pome_tensor_size_bytes(const pome_tensor *t)
{
    return ((size_t)pome_tensor_count(t) * pome_dtype_bits(t->dtype) + 7) / 8;
}

bool pome_tensor_is_contiguous(const pome_tensor *t)
{
    for (int32_t i = 0; i < t->rank; i++)
        if (t->shape[i] == 0)
            return true;
    int64_t want = 1;
    for (int32_t i = t->rank - 1; i >= 0; i--) {
        if (t->shape[i] != 1 && t->stride[i] != want)
            return false;
        want *= t->shape[i];
    }
    return true;
}

static void set_shape(pome_tensor *t, int32_t rank, const int64_t *shape)
{
    t->rank = rank;
    uint64_t stride = 1; /* wraps only where another axis is empty */
    for (int32_t i = rank - 1; i >= 0; i--) {
        t->shape[i] = shape[i];
        t->stride[i] = (int64_t)stride;
        stride *= (uint64_t)shape[i];
    }
}

pome_tensor pome_tensor_borrow(void *data, pome_dtype dtype, int32_t rank, const int64_t *shape)
{
    pome_tensor t = {.dtype = dtype, .data = data};
    set_shape(&t, rank, shape);
    return t;
}

pome_status pome_tensor_init(pome_tensor *out, pome_dtype dtype, int32_t rank, const int64_t *shape, pome_error *err)
{
    uint32_t bits = pome_dtype_bits(dtype);
    if (!bits || rank < 0 || rank > POME_MAX_RANK)
        return pome_fail(err, POME_ERR_ARG, "tensor: dtype %s, rank %d; a numeric dtype and rank 0 to %d are possible",
                         pome_dtype_name(dtype), (int)rank, POME_MAX_RANK);
    int64_t n = 1, n_bits;
    for (int32_t i = 0; i < rank; i++)
        if (shape[i] < 0 || !pome_mul_i64(n, shape[i], &n))
            return pome_fail(err, POME_ERR_ARG, "tensor: size %lld of axis %d is not possible", (long long)shape[i],
                             (int)i);
    if (!pome_mul_i64(n, bits, &n_bits) || n_bits > INT64_MAX - 1024)
        return pome_fail(err, POME_ERR_LIMIT, "tensor: %lld elements are too many", (long long)n);
    size_t size = ((size_t)n_bits + 7) / 8;
    pome_buffer *b = malloc(sizeof *b);
    /* calloc gives large blocks as pages that take no memory before they are written: a state of a long context costs
     * what is used of it. */
    void *block = calloc(1, size + ALIGN);
    if (!b || !block) {
        free(b);
        free(block);
        return pome_fail_nomem(err, size, "tensor");
    }
    void *data = (void *)(((uintptr_t)block + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1));
    atomic_init(&b->refs, 1);
    b->block = block;
    *out = (pome_tensor){.dtype = dtype, .data = data, .owner = b};
    set_shape(out, rank, shape);
    return POME_OK;
}

void pome_tensor_reset(pome_tensor *t)
{
    pome_buffer *b = t->owner;
    if (b && atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) == 1) {
        free(b->block);
        free(b);
    }
    *t = (pome_tensor){0};
}

pome_tensor pome_tensor_share(const pome_tensor *t)
{
    if (t->owner)
        atomic_fetch_add_explicit(&t->owner->refs, 1, memory_order_relaxed);
    return *t;
}

static bool normalize_axis(int32_t rank, int32_t *axis)
{
    if (*axis < 0)
        *axis += rank;
    return *axis >= 0 && *axis < rank;
}

static pome_status no_sub_byte(const pome_tensor *t, const char *what, pome_error *err)
{
    if (pome_dtype_bits(t->dtype) % 8 || !pome_dtype_bits(t->dtype))
        return pome_fail(err, POME_ERR_ARG, "%s: dtype %s has no whole bytes", what, pome_dtype_name(t->dtype));
    return POME_OK;
}

pome_status pome_tensor_reshape(pome_tensor *out, const pome_tensor *t, int32_t rank, const int64_t *shape,
                                pome_error *err)
{
    int64_t known = 1, count = pome_tensor_count(t), dim[POME_MAX_RANK];
    int32_t open = -1;
    if (rank < 0 || rank > POME_MAX_RANK || !pome_tensor_is_contiguous(t))
        return pome_fail(err, POME_ERR_ARG, "reshape: the tensor must be contiguous and the rank 0 to %d, got %d",
                         POME_MAX_RANK, (int)rank);
    for (int32_t i = 0; i < rank; i++) {
        dim[i] = shape[i];
        bool is_open = shape[i] == -1 && open < 0;
        if (is_open)
            open = i;
        else if (shape[i] < 0 || !pome_mul_i64(known, shape[i], &known))
            return pome_fail(err, POME_ERR_ARG, "reshape: size %lld of axis %d", (long long)shape[i], (int)i);
    }
    if (open >= 0 && known > 0 && count % known == 0) {
        dim[open] = count / known;
        known = count;
    }
    if (known != count || (open >= 0 && dim[open] < 0))
        return pome_fail(err, POME_ERR_ARG, "reshape: %lld elements do not fit %lld", (long long)count,
                         (long long)known);
    pome_tensor r = pome_tensor_share(t);
    set_shape(&r, rank, dim);
    *out = r;
    return POME_OK;
}

pome_status pome_tensor_slice(pome_tensor *out, const pome_tensor *t, int32_t axis, int64_t begin, int64_t end,
                              int64_t step, pome_error *err)
{
    POME_TRY(no_sub_byte(t, "slice", err));
    if (!normalize_axis(t->rank, &axis) || step == 0 || step == INT64_MIN)
        return pome_fail(err, POME_ERR_ARG, "slice: axis %d, step %lld of a tensor of rank %d", (int)axis,
                         (long long)step, (int)t->rank);
    int64_t n = t->shape[axis], lo = step > 0 ? 0 : -1, hi = step > 0 ? n : n - 1;
    begin = begin < 0 ? begin + n : begin;
    end = end < 0 ? end + n : end;
    begin = begin < lo ? lo : begin > hi ? hi : begin;
    end = end < lo ? lo : end > hi ? hi : end;
    int64_t span = step > 0 ? end - begin : begin - end, size = step > 0 ? step : -step;
    pome_tensor r = pome_tensor_share(t);
    r.shape[axis] = span > 0 ? (span - 1) / size + 1 : 0;
    if (r.shape[axis])
        r.data = (char *)t->data + begin * t->stride[axis] * (int64_t)(pome_dtype_bits(t->dtype) / 8);
    r.stride[axis] = r.shape[axis] > 1 ? t->stride[axis] * step : t->stride[axis];
    *out = r;
    return POME_OK;
}

pome_status pome_tensor_transpose(pome_tensor *out, const pome_tensor *t, const int32_t *perm, pome_error *err)
{
    POME_TRY(no_sub_byte(t, "transpose", err));
    pome_tensor r = *t;
    unsigned seen = 0;
    for (int32_t i = 0; i < t->rank; i++) {
        int32_t p = perm[i];
        if (!normalize_axis(t->rank, &p) || (seen >> p & 1))
            return pome_fail(err, POME_ERR_ARG, "transpose: axis %d at place %d of rank %d", (int)perm[i], (int)i,
                             (int)t->rank);
        seen |= 1u << p;
        r.shape[i] = t->shape[p];
        r.stride[i] = t->stride[p];
    }
    (void)pome_tensor_share(t);
    *out = r;
    return POME_OK;
}

pome_status pome_tensor_broadcast(pome_tensor *out, const pome_tensor *t, int32_t rank, const int64_t *shape,
                                  pome_error *err)
{
    POME_TRY(no_sub_byte(t, "broadcast", err));
    if (rank < t->rank || rank > POME_MAX_RANK)
        return pome_fail(err, POME_ERR_ARG, "broadcast: rank %d to rank %d", (int)t->rank, (int)rank);
    pome_tensor r = *t;
    r.rank = rank;
    for (int32_t i = 0; i < rank; i++) {
        int32_t from = i - (rank - t->rank);
        int64_t n = from < 0 ? 1 : t->shape[from];
        if (shape[i] < 0 || (n != 1 && n != shape[i]))
            return pome_fail(err, POME_ERR_ARG, "broadcast: axis %d of size %lld to %lld", (int)i, (long long)n,
                             (long long)shape[i]);
        r.shape[i] = shape[i];
        r.stride[i] = n == shape[i] && from >= 0 ? t->stride[from] : 0;
    }
    (void)pome_tensor_share(t);
    *out = r;
    return POME_OK;
}
