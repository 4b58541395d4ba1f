/* Writing elements by index: data is copied, then the updates are combined with it one after the other, so that the
 * last of several with the same index wins. An index outside its axis is skipped (or, with validate_indices, an
 * error); up to iOS 16 a negative index counts from the end. */
#include "ops/families.h"
#include "ops/index.h"
#include "ops/view.h"

#include <string.h>

typedef enum scatter_mode { SET, ADD, SUB, MUL, DIV, MAX, MIN } scatter_mode;

static pome_status mode_of(const pome_run *r, uint32_t param, scatter_mode *out, pome_error *err)
{
    static const char *const names[] = {"update", "add", "sub", "mul", "div", "max", "min"};
    const char *name = pome_op_str(r->op, param, "add");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            *out = (scatter_mode)i;
            return POME_OK;
        }
    }
    return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED,
                        "mode is '%s', expected update, add, sub, mul, div, max or min", name);
}

/* ---- combining a run of elements ---- */
#define WHOLE(T, expr)                                                                             \
    for (size_t i = 0; i < n; i++)                                                                 \
        d[i] = (T)(expr);                                                                          \
    break
/* Integers wrap; division truncates, and by zero gives 0. */
#define DEFINE_COMBINE(name, T)                                                                    \
    static void combine_##name(scatter_mode mode, void *dst, const void *update, size_t n)         \
    {                                                                                              \
        T *d = dst;                                                                                \
        const T *u = update;                                                                       \
        switch (mode) {                                                                            \
        case SET:                                                                                  \
            memcpy(d, u, n * sizeof(T));                                                           \
            break;                                                                                 \
        case ADD:                                                                                  \
            WHOLE(T, (uint32_t)d[i] + (uint32_t)u[i]);                                             \
        case SUB:                                                                                  \
            WHOLE(T, (uint32_t)d[i] - (uint32_t)u[i]);                                             \
        case MUL:                                                                                  \
            WHOLE(T, (uint32_t)d[i] * (uint32_t)u[i]);                                             \
        case DIV:                                                                                  \
            WHOLE(T, u[i] == 0 ? 0 : (int64_t)d[i] / (int64_t)u[i]);                               \
        case MAX:                                                                                  \
            WHOLE(T, u[i] > d[i] ? u[i] : d[i]);                                                   \
        case MIN:                                                                                  \
            WHOLE(T, u[i] < d[i] ? u[i] : d[i]);                                                   \
        }                                                                                          \
    }
DEFINE_COMBINE(i8, int8_t)
DEFINE_COMBINE(u8, uint8_t)
DEFINE_COMBINE(i16, int16_t)
DEFINE_COMBINE(u16, uint16_t)
DEFINE_COMBINE(i32, int32_t)
DEFINE_COMBINE(u32, uint32_t)

static void combine_f32(scatter_mode mode, void *dst, const void *update, size_t n)
{
    float *d = dst;
    const float *u = update;
    switch (mode) {
    case SET:
        memcpy(d, u, n * sizeof *d);
        break;
    case ADD:
        WHOLE(float, d[i] + u[i]);
    case SUB:
        WHOLE(float, d[i] - u[i]);
    case MUL:
        WHOLE(float, d[i] * u[i]);
    case DIV:
        WHOLE(float, d[i] / u[i]);
    case MAX: /* NaN wins, as in numpy.maximum */
        WHOLE(float, u[i] > d[i] || u[i] != u[i] ? u[i] : d[i]);
    case MIN:
        WHOLE(float, u[i] < d[i] || u[i] != u[i] ? u[i] : d[i]);
    }
}

typedef void combine_fn(scatter_mode mode, void *dst, const void *update, size_t n);

static combine_fn *combine_of(pome_dtype dtype)
{
    switch (dtype) {
    case POME_DTYPE_F32:
        return combine_f32;
    case POME_DTYPE_I8:
        return combine_i8;
    case POME_DTYPE_U8:
    case POME_DTYPE_BOOL:
        return combine_u8;
    case POME_DTYPE_I16:
        return combine_i16;
    case POME_DTYPE_U16:
        return combine_u16;
    case POME_DTYPE_I32:
        return combine_i32;
    case POME_DTYPE_U32:
        return combine_u32;
    default:
        return NULL;
    }
}

/* ---- scatter, scatter_along_axis: data as [outer, axis, inner], updates as [outer, picked, inner] ---- */
enum { INNER_MAX = 1 << 12, CHUNK = 1 << 14 };

typedef struct scatter_run {
    const pome_tensor *out, *indices, *updates;
    combine_fn *combine;
    scatter_mode mode;
    pome_index_rule rule;
    int64_t n_outer, n_axis, n_picked, n_inner, inner_len;
    int64_t n_pieces;   /* of the inner axis, inner_len each */
    bool is_along_axis; /* an index for every update, not for every picked row */
    size_t elem_size;
} scatter_run;

static void scatter_pieces(void *arg, size_t begin, size_t end, int thread)
{
    (void)thread;
    const scatter_run *s = arg;
    for (size_t item = begin; item < end; item++) {
        int64_t outer = (int64_t)item / s->n_pieces, first = (int64_t)item % s->n_pieces * s->inner_len;
        int64_t n = s->n_inner - first < s->inner_len ? s->n_inner - first : s->inner_len;
        char *dst = (char *)s->out->data + (size_t)(outer * s->n_axis * s->n_inner + first) * s->elem_size;
        for (int64_t k = 0; k < s->n_picked; k++) {
            int64_t row = (outer * s->n_picked + k) * s->n_inner + first;
            const char *update = (const char *)s->updates->data + (size_t)row * s->elem_size;
            if (!s->is_along_axis) {
                int64_t index = pome_index_read(s->indices, k);
                if (pome_index_resolve(s->rule, s->n_axis, &index))
                    s->combine(s->mode, dst + (size_t)(index * s->n_inner) * s->elem_size, update, (size_t)n);
                continue;
            }
            for (int64_t i = 0; i < n; i++) {
                int64_t index = pome_index_read(s->indices, row + i);
                if (pome_index_resolve(s->rule, s->n_axis, &index))
                    s->combine(s->mode, dst + (size_t)(index * s->n_inner + i) * s->elem_size,
                               update + (size_t)i * s->elem_size, 1);
            }
        }
    }
}

static pome_status scatter_common(const pome_run *r, const pome_tensor *data, scatter_run *s, pome_error *err)
{
    s->combine = combine_of(s->out->dtype);
    if (!s->combine || s->updates->dtype != s->out->dtype)
        return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "updates of %s into data of %s",
                            pome_dtype_name(s->updates->dtype), pome_dtype_name(s->out->dtype));
    s->elem_size = (size_t)pome_elem_size(s->out->dtype);
    if (data->data != s->out->data)
        pome_strided_copy(s->out, data, r->pool, r->kernels);
    return POME_OK;
}

static pome_status scatter_by_axis(const pome_run *r, const pome_tensor *data, scatter_run *s, int32_t axis,
                                   pome_error *err)
{
    s->n_outer = s->n_inner = 1;
    for (int32_t d = 0; d < data->rank; d++) {
        s->n_outer *= d < axis ? data->shape[d] : 1;
        s->n_inner *= d > axis ? data->shape[d] : 1;
    }
    s->n_axis = data->shape[axis];
    if (s->n_outer * s->n_picked * s->n_inner != pome_tensor_count(s->updates) ||
        pome_tensor_count(data) != pome_tensor_count(s->out))
        return pome_view_misfit(r, err);
    POME_TRY(pome_index_check(r, s->rule, s->indices, s->n_axis, err));
    POME_TRY(scatter_common(r, data, s, err));
    if (pome_tensor_count(s->updates) == 0)
        return POME_OK;
    s->inner_len = s->n_inner < INNER_MAX ? s->n_inner : INNER_MAX;
    s->n_pieces = (s->n_inner + s->inner_len - 1) / s->inner_len;
    int64_t per_item = s->inner_len * s->n_picked;
    pome_pool_run(r->pool, (size_t)(s->n_outer * s->n_pieces), per_item < CHUNK ? (size_t)(CHUNK / per_item) : 1,
                  scatter_pieces, s);
    return POME_OK;
}

static pome_status run_scatter(const pome_run *r, pome_error *err)
{
    const pome_tensor *data = pome_in(r, P_scatter_data);
    scatter_run s = {.out = &r->out[0],
                     .indices = pome_in(r, P_scatter_indices),
                     .updates = pome_in(r, P_scatter_updates),
                     .rule = pome_index_rule_of(r->opset, pome_in_bool(r, P_scatter_validate_indices, false))};
    int32_t axis = pome_axis_wrap(pome_in_int(r, P_scatter_axis, 0), data->rank);
    if (axis < 0)
        return pome_view_misfit(r, err);
    POME_TRY(mode_of(r, P_scatter_mode, &s.mode, err));
    s.n_picked = pome_tensor_count(s.indices);
    return scatter_by_axis(r, data, &s, axis, err);
}

static pome_status run_scatter_along_axis(const pome_run *r, pome_error *err)
{
    const pome_tensor *data = pome_in(r, P_scatter_along_axis_data);
    scatter_run s = {.out = &r->out[0],
                     .indices = pome_in(r, P_scatter_along_axis_indices),
                     .updates = pome_in(r, P_scatter_along_axis_updates),
                     .is_along_axis = true,
                     .rule =
                         pome_index_rule_of(r->opset, pome_in_bool(r, P_scatter_along_axis_validate_indices, false))};
    int32_t axis = pome_axis_wrap(pome_in_int(r, P_scatter_along_axis_axis, 0), data->rank);
    if (axis < 0 || s.indices->rank != data->rank || s.updates->rank != data->rank)
        return pome_view_misfit(r, err);
    for (int32_t d = 0; d < data->rank; d++)
        if (s.indices->shape[d] != s.updates->shape[d] || (d != axis && s.indices->shape[d] != data->shape[d]))
            return pome_view_misfit(r, err);
    POME_TRY(mode_of(r, P_scatter_along_axis_mode, &s.mode, err));
    s.n_picked = s.indices->shape[axis];
    return scatter_by_axis(r, data, &s, axis, err);
}

/* ---- scatter_nd: data as [axis 0 .. axis K-1, inner], indices as [picked, K], updates as [picked, inner] ---- */
/* Position of the indexed row, or -1 if an index is outside; *bad is then its place among the indices. */
static int64_t nd_row(const scatter_run *s, int64_t pick, int64_t depth, int64_t *bad)
{
    int64_t at = 0;
    for (int64_t k = 0; k < depth; k++) {
        int64_t index = pome_index_read(s->indices, pick * depth + k);
        if (!pome_index_resolve(s->rule, s->out->shape[k], &index)) {
            *bad = pick * depth + k;
            return -1;
        }
        at = at * s->out->shape[k] + index;
    }
    return at;
}

static pome_status run_scatter_nd(const pome_run *r, pome_error *err)
{
    const pome_tensor *data = pome_in(r, P_scatter_nd_data);
    scatter_run s = {.out = &r->out[0],
                     .indices = pome_in(r, P_scatter_nd_indices),
                     .updates = pome_in(r, P_scatter_nd_updates),
                     .n_picked = 1,
                     .n_inner = 1,
                     .rule = pome_index_rule_of(r->opset, pome_in_bool(r, P_scatter_nd_validate_indices, false))};
    POME_TRY(mode_of(r, P_scatter_nd_mode, &s.mode, err));
    int64_t depth = s.indices->rank > 0 ? s.indices->shape[s.indices->rank - 1] : -1, bad = 0;
    if (depth < 0 || depth > data->rank || pome_tensor_count(data) != pome_tensor_count(s.out))
        return pome_view_misfit(r, err);
    for (int32_t d = 0; d < s.indices->rank - 1; d++)
        s.n_picked *= s.indices->shape[d];
    for (int32_t d = (int32_t)depth; d < data->rank; d++)
        s.n_inner *= data->shape[d];
    if (s.n_picked * s.n_inner != pome_tensor_count(s.updates))
        return pome_view_misfit(r, err);
    if (s.rule.is_validated)
        for (int64_t pick = 0; pick < s.n_picked; pick++)
            if (nd_row(&s, pick, depth, &bad) < 0)
                return pome_index_fail(r, bad, pome_index_read(s.indices, bad), s.out->shape[bad % depth], err);
    POME_TRY(scatter_common(r, data, &s, err));
    size_t row_bytes = (size_t)s.n_inner * s.elem_size;
    if (row_bytes == 0)
        return POME_OK;
    for (int64_t pick = 0; pick < s.n_picked; pick++) {
        int64_t at = nd_row(&s, pick, depth, &bad);
        if (at >= 0)
            s.combine(s.mode, (char *)s.out->data + (size_t)at * row_bytes,
                      (const char *)s.updates->data + (size_t)pick * row_bytes, (size_t)s.n_inner);
    }
    return POME_OK;
}

#define SCATTER(op)                                                                                \
    {.id = POME_OP_##op,                                                                           \
     .f16_ok = POME_BIT(P_##op##_data),                                                            \
     .strided_ok = POME_BIT(P_##op##_data),                                                        \
     .run = run_##op}

const pome_op_impl pome_ops_scatter[] = {
    SCATTER(scatter),
    SCATTER(scatter_along_axis),
    SCATTER(scatter_nd),
};
POME_FAMILY_COUNT(scatter)
