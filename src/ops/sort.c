/* argsort, topk, cumsum. Order: equal elements (0 and -0 among them) by index; NaN comes after everything, whether
 * ascending or descending. Rows are sorted one after another: the scratch holds one. */
#include "ops/axes.h"
#include "ops/families.h"

#include "base/f16.h"

/* An element as a number that sorts as wanted, with its index below it: all keys of a row differ, so any sorting
 * algorithm is stable. */
static uint64_t make_key(const pome_tensor *x, int64_t at, int64_t index, bool ascending)
{
    uint32_t key;
    switch (x->dtype) {
    case POME_DTYPE_F32: {
        float v = ((const float *)x->data)[at];
        if (v != v)
            return (uint64_t)UINT32_MAX << 32 | (uint64_t)index; /* above infinity in both directions */
        uint32_t bits = v == 0.0f ? 0 : pome_f32_bits(v);
        key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
        break;
    }
    case POME_DTYPE_I8: key = (uint32_t)((const int8_t *)x->data)[at] ^ 0x80000000u; break;
    case POME_DTYPE_I16: key = (uint32_t)((const int16_t *)x->data)[at] ^ 0x80000000u; break;
    case POME_DTYPE_I32: key = (uint32_t)((const int32_t *)x->data)[at] ^ 0x80000000u; break;
    case POME_DTYPE_U16: key = ((const uint16_t *)x->data)[at]; break;
    case POME_DTYPE_U32: key = ((const uint32_t *)x->data)[at]; break;
    default: key = ((const uint8_t *)x->data)[at]; break; /* uint8, bool */
    }
    return (uint64_t)(ascending ? key : ~key) << 32 | (uint64_t)index;
}

/* Lets heap[i] sink to its place in a heap of n with the largest key at its root. */
static void sink(uint64_t *heap, int64_t i, int64_t n)
{
    uint64_t key = heap[i];
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] > heap[child])
            child++;
        if (heap[child] <= key)
            break;
        heap[i] = heap[child];
    }
    heap[i] = key;
}

/* The k smallest keys of a row of n elements, in order. */
static void smallest(uint64_t *heap, int64_t k, const pome_tensor *x, int64_t base, int64_t stride, int64_t n,
                     bool ascending)
{
    for (int64_t i = 0; i < k; i++)
        heap[i] = make_key(x, base + i * stride, i, ascending);
    for (int64_t i = k / 2 - 1; i >= 0; i--)
        sink(heap, i, k);
    for (int64_t i = k; i < n && k > 0; i++) {
        uint64_t key = make_key(x, base + i * stride, i, ascending);
        if (key < heap[0]) {
            heap[0] = key;
            sink(heap, 0, k);
        }
    }
    for (int64_t left = k - 1; left > 0; left--) {
        uint64_t largest = heap[0];
        heap[0] = heap[left];
        heap[left] = largest;
        sink(heap, 0, left);
    }
}

static bool is_sortable(pome_dtype dtype)
{
    return dtype == POME_DTYPE_F32 || dtype == POME_DTYPE_BOOL || (pome_dtype_is_int(dtype) &&
           pome_dtype_bits(dtype) % 8 == 0 && pome_dtype_bits(dtype) <= 32);
}

static void store_index(const pome_tensor *out, int64_t at, int64_t index)
{
    switch (pome_dtype_bits(out->dtype)) {
    case 8: ((uint8_t *)out->data)[at] = (uint8_t)index; break;
    case 16: ((uint16_t *)out->data)[at] = (uint16_t)index; break;
    default: ((int32_t *)out->data)[at] = (int32_t)index; break;
    }
}
static void copy_element(const pome_tensor *out, int64_t to, const pome_tensor *x, int64_t from)
{
    switch (pome_dtype_bits(x->dtype)) {
    case 8: ((uint8_t *)out->data)[to] = ((const uint8_t *)x->data)[from]; break;
    case 16: ((uint16_t *)out->data)[to] = ((const uint16_t *)x->data)[from]; break;
    default: ((uint32_t *)out->data)[to] = ((const uint32_t *)x->data)[from]; break;
    }
}

/* values and indices may be NULL. k elements of each row of x along axis. */
static pome_status sort_rows(const pome_run *r, const pome_tensor *values, const pome_tensor *indices, int64_t axis,
                             bool ascending, pome_error *err)
{
    const pome_tensor *x = pome_in(r, 0);
    if (!is_sortable(x->dtype) || (values && values->dtype != x->dtype))
        return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "x is %s", pome_dtype_name(x->dtype));
    if (x->rank == 0)
        return pome_op_fail(r->op, err, POME_ERR_ARG, "x has no axis to sort along");
    int32_t d = 0;
    POME_TRY(pome_axis_get(r, axis, x->rank, &d, err));
    pome_axis_view v = pome_axis_view_of(x, d);
    int64_t k = (values ? values : indices)->shape[d];
    if (k > v.n || v.n > INT32_MAX)
        return pome_op_fail(r->op, err, k > v.n ? POME_ERR_ARG : POME_ERR_LIMIT,
                            "%lld elements are wanted of an axis of %lld", (long long)k, (long long)v.n);
    uint64_t *heap = r->scratch;
    for (int64_t row = 0; k > 0 && row < v.outer * v.inner; row++) {
        int64_t outer = row / v.inner, inner = row % v.inner;
        int64_t base = outer * v.n * v.inner + inner, to = outer * k * v.inner + inner;
        smallest(heap, k, x, base, v.inner, v.n, ascending);
        for (int64_t i = 0; i < k; i++, to += v.inner) {
            int64_t index = (int64_t)(heap[i] & UINT32_MAX);
            if (values)
                copy_element(values, to, x, base + index * v.inner);
            if (indices)
                store_index(indices, to, index);
        }
    }
    return POME_OK;
}

/* One row: the longest axis is enough whatever `axis` is. */
static size_t scratch_sort(const pome_run *r)
{
    const pome_tensor *out = &r->out[0];
    int64_t longest = 0;
    for (int32_t d = 0; d < out->rank; d++)
        longest = out->shape[d] > longest ? out->shape[d] : longest;
    return (size_t)longest * sizeof(uint64_t);
}

static pome_status run_argsort(const pome_run *r, pome_error *err)
{
    return sort_rows(r, NULL, &r->out[0], pome_in_int(r, P_argsort_axis, -1),
                     pome_in_bool(r, P_argsort_ascending, false), err);
}
/* sort = false leaves the order open: sorted is one of them. */
static pome_status run_topk(const pome_run *r, pome_error *err)
{
    return sort_rows(r, &r->out[0], r->op->n_out > 1 ? &r->out[1] : NULL, pome_in_int(r, P_topk_axis, -1),
                     pome_in_bool(r, P_topk_ascending, false), err);
}

/* ---- cumsum ---- */

typedef struct sums {
    pome_axis_view v;
    const void *x;
    void *out;
    bool is_exclusive, is_reverse;
} sums;

/* One row of each type: T elements, A the accumulator (wraps for integers). */
#define CUMSUM(name, T, A)                                                                         \
    static void run_cumsum_##name(void *arg, size_t begin, size_t end, int thread)                 \
    {                                                                                              \
        const sums *c = arg;                                                                       \
        (void)thread;                                                                              \
        for (int64_t row = (int64_t)begin; row < (int64_t)end; row++) {                            \
            int64_t inner = c->v.inner, n = c->v.n;                                                \
            int64_t at = row / inner * n * inner + row % inner + (c->is_reverse ? (n - 1) * inner : 0); \
            A sum = 0;                                                                             \
            for (int64_t i = 0; i < n; i++, at += c->is_reverse ? -inner : inner) {                \
                A before = sum;                                                                    \
                sum += (A)((const T *)c->x)[at];                                                   \
                ((T *)c->out)[at] = (T)(c->is_exclusive ? before : sum);                           \
            }                                                                                      \
        }                                                                                          \
    }
CUMSUM(f32, float, double)
CUMSUM(i8, int8_t, uint32_t)
CUMSUM(u8, uint8_t, uint32_t)
CUMSUM(i16, int16_t, uint32_t)
CUMSUM(u16, uint16_t, uint32_t)
CUMSUM(i32, int32_t, uint32_t)
CUMSUM(u32, uint32_t, uint32_t)

static pome_pool_fn *pick_cumsum(pome_dtype dtype)
{
    switch (dtype) {
    case POME_DTYPE_F32: return run_cumsum_f32;
    case POME_DTYPE_I8: return run_cumsum_i8;
    case POME_DTYPE_U8: return run_cumsum_u8;
    case POME_DTYPE_I16: return run_cumsum_i16;
    case POME_DTYPE_U16: return run_cumsum_u16;
    case POME_DTYPE_I32: return run_cumsum_i32;
    case POME_DTYPE_U32: return run_cumsum_u32;
    default: return NULL;
    }
}

static pome_status run_cumsum(const pome_run *r, pome_error *err)
{
    const pome_tensor *x = pome_in(r, P_cumsum_x);
    pome_pool_fn *fn = pick_cumsum(x->dtype);
    if (!fn || r->out[0].dtype != x->dtype)
        return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "x is %s", pome_dtype_name(x->dtype));
    sums c = {{1, 1, 1}, x->data, r->out[0].data, pome_in_bool(r, P_cumsum_exclusive, false),
              pome_in_bool(r, P_cumsum_reverse, false)};
    if (x->rank > 0) {
        int32_t axis = 0;
        POME_TRY(pome_axis_get(r, pome_in_int(r, P_cumsum_axis, 0), x->rank, &axis, err));
        c.v = pome_axis_view_of(x, axis);
    }
    if (pome_tensor_count(x) > 0)
        pome_pool_run(r->pool, (size_t)(c.v.outer * c.v.inner), c.v.n >= 8192 ? 1 : (size_t)(8192 / c.v.n), fn, &c);
    return POME_OK;
}

const pome_op_impl pome_ops_sort[] = {
    {.id = POME_OP_argsort, .scratch = scratch_sort, .run = run_argsort},
    {.id = POME_OP_topk, .scratch = scratch_sort, .run = run_topk},
    {.id = POME_OP_cumsum, .run = run_cumsum},
};
POME_FAMILY_COUNT(sort)
