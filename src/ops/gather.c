/* Picking elements by index. An index outside its axis gives 0 (or, with validate_indices, an error); up to iOS 16
 * a negative index counts from the end. No index value makes anything be read that the input does not have. */
#include "ops/families.h"
#include "ops/index.h"
#include "ops/view.h"

#include <string.h>

#include "ops/encoded.h"

/* Elements that one chunk of work moves. */
enum { CHUNK = 1 << 14 };

static size_t grain_of(int64_t len)
{
    return len >= CHUNK ? 1 : len < 1 ? CHUNK : (size_t)(CHUNK / len);
}

/* ---- gather ----
 * x as [batch, outer, axis, inner], indices as [batch, picked], out as [batch, outer, picked, inner]. */
typedef struct gather_run {
    const pome_run *r;
    const pome_tensor *x, *indices;
    const struct pome_encoded *encoded; /* not NULL: x has no memory */
    pome_copy row;                      /* of the inner axes */
    int64_t n_outer, n_axis, n_picked, n_inner;
    int32_t n_lead;                     /* axes before the gathered one */
    pome_index_rule rule;
    size_t elem_size;                   /* of out */
} gather_run;

static void decode_row(const gather_run *g, int64_t lead, int64_t index, char *dst)
{
    size_t first = (size_t)((lead * g->n_axis + index) * g->n_inner), n = (size_t)g->n_inner;
    if (g->r->out[0].dtype == POME_DTYPE_F32)
        pome_encoded_decode(g->encoded, first, n, (float *)(void *)dst);
    else
        pome_encoded_decode_raw(g->encoded, first, n, dst);
}

static void gather_rows(void *arg, size_t begin, size_t end, int thread)
{
    (void)thread;
    const gather_run *g = arg;
    const pome_tensor *x = g->x;
    size_t row_bytes = (size_t)g->n_inner * g->elem_size;
    int64_t last_lead = -1, lead_offset = 0;
    for (size_t item = begin; item < end; item++) {
        int64_t lead = (int64_t)item / g->n_picked, pick = (int64_t)item % g->n_picked;
        int64_t index = pome_index_read(g->indices, lead / g->n_outer * g->n_picked + pick);
        char *dst = (char *)g->r->out[0].data + item * row_bytes;
        if (!pome_index_resolve(g->rule, g->n_axis, &index)) {
            memset(dst, 0, row_bytes);
            continue;
        }
        if (g->encoded) {
            decode_row(g, lead, index, dst);
            continue;
        }
        if (lead != last_lead) {
            last_lead = lead;
            lead_offset = 0;
            int64_t rest = lead;
            for (int32_t d = g->n_lead - 1; d >= 0; d--) {
                lead_offset += rest % x->shape[d] * x->stride[d];
                rest /= x->shape[d];
            }
        }
        pome_copy_run(&g->row, dst, pome_elem_at(x, lead_offset + index * x->stride[g->n_lead]), NULL, g->r->kernels);
    }
}

static pome_status run_gather(const pome_run *r, pome_error *err)
{
    const pome_tensor *x = pome_in(r, P_gather_x), *indices = pome_in(r, P_gather_indices), *out = &r->out[0];
    gather_run g = {.r = r, .x = x, .indices = indices, .encoded = pome_in_encoded(r, P_gather_x)};
    int32_t axis = pome_axis_wrap(pome_in_int(r, P_gather_axis, 0), x->rank);
    int64_t n_batch_axes = pome_in_int(r, P_gather_batch_dims, 0);
    if (axis < 0 || n_batch_axes < 0 || n_batch_axes > axis || n_batch_axes > indices->rank ||
        out->rank != x->rank + indices->rank - n_batch_axes - 1)
        return pome_view_misfit(r, err);
    int64_t n_batch = 1;
    g.n_outer = g.n_picked = g.n_inner = 1;
    for (int32_t d = 0; d < n_batch_axes; d++) {
        if (indices->shape[d] != x->shape[d])
            return pome_view_misfit(r, err);
        n_batch *= x->shape[d];
    }
    for (int32_t d = (int32_t)n_batch_axes; d < axis; d++)
        g.n_outer *= x->shape[d];
    for (int32_t d = (int32_t)n_batch_axes; d < indices->rank; d++)
        g.n_picked *= indices->shape[d];
    for (int32_t d = axis + 1; d < x->rank; d++)
        g.n_inner *= x->shape[d];
    int64_t n_rows = n_batch * g.n_outer * g.n_picked;
    if (n_rows * g.n_inner != pome_tensor_count(out))
        return pome_view_misfit(r, err);
    g.n_lead = axis;
    g.n_axis = x->shape[axis];
    g.elem_size = (size_t)pome_elem_size(out->dtype);
    g.rule = pome_index_rule_of(r->opset, pome_in_bool(r, P_gather_validate_indices, false));
    if (!g.encoded) {
        int64_t dst_stride[POME_MAX_RANK], stride = 1;
        for (int32_t d = x->rank - 1; d > axis; d--) {
            dst_stride[d - axis - 1] = stride;
            stride *= x->shape[d];
        }
        pome_copy_init(&g.row, out->dtype, x->dtype, x->rank - axis - 1, x->shape + axis + 1, dst_stride,
                       x->stride + axis + 1);
    }
    POME_TRY(pome_index_check(r, g.rule, indices, g.n_axis, err));
    if (n_rows * g.n_inner == 0)
        return POME_OK;
    if ((size_t)n_rows <= grain_of(g.n_inner))
        gather_rows(&g, 0, (size_t)n_rows, 0);
    else
        pome_pool_run(r->pool, (size_t)n_rows, grain_of(g.n_inner), gather_rows, &g);
    return POME_OK;
}

/* ---- gather_along_axis: x as [outer, axis, inner], indices and out as [outer, picked, inner] ---- */
typedef struct along_run {
    const pome_run *r;
    const pome_tensor *x, *indices;
    int64_t n_axis, n_picked, n_inner;
    pome_index_rule rule;
    size_t elem_size;
} along_run;

static void gather_along(void *arg, size_t begin, size_t end, int thread)
{
    (void)thread;
    const along_run *g = arg;
    for (size_t row = begin; row < end; row++) { /* a row is one [inner] of out */
        int64_t outer = (int64_t)row / g->n_picked;
        char *dst = (char *)g->r->out[0].data + row * (size_t)g->n_inner * g->elem_size;
        const char *src = (const char *)g->x->data + (size_t)(outer * g->n_axis * g->n_inner) * g->elem_size;
        for (int64_t i = 0; i < g->n_inner; i++, dst += g->elem_size) {
            int64_t index = pome_index_read(g->indices, (int64_t)row * g->n_inner + i);
            if (pome_index_resolve(g->rule, g->n_axis, &index))
                memcpy(dst, src + (size_t)(index * g->n_inner + i) * g->elem_size, g->elem_size);
            else
                memset(dst, 0, g->elem_size);
        }
    }
}

static pome_status run_gather_along_axis(const pome_run *r, pome_error *err)
{
    const pome_tensor *x = pome_in(r, P_gather_along_axis_x), *indices = pome_in(r, P_gather_along_axis_indices);
    const pome_tensor *out = &r->out[0];
    along_run g = {.r = r, .x = x, .indices = indices, .n_inner = 1};
    int32_t axis = pome_axis_wrap(pome_in_int(r, P_gather_along_axis_axis, 0), x->rank);
    if (axis < 0 || indices->rank != x->rank || out->rank != x->rank)
        return pome_view_misfit(r, err);
    int64_t n_outer = 1;
    for (int32_t d = 0; d < x->rank; d++) {
        if (out->shape[d] != indices->shape[d] || (d != axis && x->shape[d] != indices->shape[d]))
            return pome_view_misfit(r, err);
        n_outer *= d < axis ? x->shape[d] : 1;
        g.n_inner *= d > axis ? x->shape[d] : 1;
    }
    g.n_axis = x->shape[axis];
    g.n_picked = indices->shape[axis];
    g.elem_size = (size_t)pome_elem_size(out->dtype);
    g.rule = pome_index_rule_of(r->opset, pome_in_bool(r, P_gather_along_axis_validate_indices, false));
    POME_TRY(pome_index_check(r, g.rule, indices, g.n_axis, err));
    if (pome_tensor_count(out) > 0)
        pome_pool_run(r->pool, (size_t)(n_outer * g.n_picked), grain_of(g.n_inner), gather_along, &g);
    return POME_OK;
}

/* ---- gather_nd: x as [batch, axis 0 .. axis K-1, inner], indices as [batch, picked, K] ---- */
static pome_status run_gather_nd(const pome_run *r, pome_error *err)
{
    const pome_tensor *x = pome_in(r, P_gather_nd_x), *indices = pome_in(r, P_gather_nd_indices), *out = &r->out[0];
    int64_t n_batch_axes = pome_in_int(r, P_gather_nd_batch_dims, 0);
    int64_t n_batch = 1, n_picked = 1, n_inner = 1, n_indexed = 1;
    int64_t depth = indices->rank > 0 ? indices->shape[indices->rank - 1] : -1;
    if (n_batch_axes < 0 || n_batch_axes >= indices->rank || depth < 0 || n_batch_axes + depth > x->rank)
        return pome_view_misfit(r, err);
    int32_t first = (int32_t)n_batch_axes, after = (int32_t)(n_batch_axes + depth);
    for (int32_t d = 0; d < first; d++) {
        if (indices->shape[d] != x->shape[d])
            return pome_view_misfit(r, err);
        n_batch *= x->shape[d];
    }
    for (int32_t d = first; d < indices->rank - 1; d++)
        n_picked *= indices->shape[d];
    for (int32_t d = first; d < after; d++)
        n_indexed *= x->shape[d];
    for (int32_t d = after; d < x->rank; d++)
        n_inner *= x->shape[d];
    if (n_batch * n_picked * n_inner != pome_tensor_count(out))
        return pome_view_misfit(r, err);
    pome_index_rule rule = pome_index_rule_of(r->opset, pome_in_bool(r, P_gather_nd_validate_indices, false));
    size_t row_bytes = (size_t)(n_inner * pome_elem_size(out->dtype));
    for (int64_t row = 0; row < n_batch * n_picked; row++) {
        int64_t at = 0;
        bool is_inside = true;
        for (int64_t k = 0; k < depth; k++) {
            int64_t index = pome_index_read(indices, row * depth + k), given = index;
            if (!pome_index_resolve(rule, x->shape[first + k], &index)) {
                if (rule.is_validated)
                    return pome_index_fail(r, row * depth + k, given, x->shape[first + k], err);
                is_inside = false;
                break;
            }
            at = at * x->shape[first + k] + index;
        }
        char *dst = (char *)out->data + (size_t)row * row_bytes;
        if (row_bytes == 0)
            continue;
        if (is_inside)
            memcpy(dst, (const char *)x->data + (size_t)(row / n_picked * n_indexed + at) * row_bytes, row_bytes);
        else
            memset(dst, 0, row_bytes);
    }
    return POME_OK;
}

/* ---- one_hot ---- */
static pome_status run_one_hot(const pome_run *r, pome_error *err)
{
    const pome_tensor *indices = pome_in(r, P_one_hot_indices), *out = &r->out[0];
    int32_t axis = pome_axis_wrap(pome_in_int(r, P_one_hot_axis, -1), out->rank);
    if (axis < 0 || out->rank != indices->rank + 1)
        return pome_view_misfit(r, err);
    int64_t n_classes = out->shape[axis], n_inner = 1, n = pome_tensor_count(indices);
    for (int32_t d = axis + 1; d < out->rank; d++)
        n_inner *= out->shape[d];
    if (n_classes * n != pome_tensor_count(out))
        return pome_view_misfit(r, err);
    uint64_t on, off;
    pome_element_from(&on, out->dtype, pome_in(r, P_one_hot_on_value), 1);
    pome_element_from(&off, out->dtype, pome_in(r, P_one_hot_off_value), 0);
    size_t elem_size = (size_t)pome_elem_size(out->dtype);
    pome_strided_fill(out, &off, r->pool);
    for (int64_t i = 0; i < n; i++) {
        int64_t index = pome_index_read(indices, i);
        if (index < 0 || index >= n_classes)
            continue;
        int64_t at = (i / n_inner * n_classes + index) * n_inner + i % n_inner;
        memcpy((char *)out->data + (size_t)at * elem_size, &on, elem_size);
    }
    return POME_OK;
}

/* ---- non_zero ---- */
static bool is_nonzero(const pome_tensor *x, int64_t i)
{
    if (x->dtype == POME_DTYPE_F32)
        return ((const float *)x->data)[i] != 0;
    size_t size = (size_t)pome_elem_size(x->dtype);
    const char *element = (const char *)x->data + (size_t)i * size;
    static const char zeros[8];
    return memcmp(element, zeros, size) != 0;
}

static pome_status run_non_zero(const pome_run *r, pome_error *err)
{
    (void)err;
    const pome_tensor *x = pome_in(r, P_non_zero_x);
    pome_tensor *out = &r->out[0];
    int32_t *dst = out->data;
    int64_t n = pome_tensor_count(x), n_found = 0, at[POME_MAX_RANK] = {0};
    for (int64_t i = 0; i < n; i++) {
        if (is_nonzero(x, i) && n_found < out->shape[0]) {
            for (int32_t d = 0; d < x->rank; d++)
                dst[n_found * x->rank + d] = (int32_t)at[d];
            n_found++;
        }
        for (int32_t d = x->rank - 1; d >= 0 && ++at[d] == x->shape[d]; d--)
            at[d] = 0;
    }
    out->shape[0] = n_found;
    return POME_OK;
}

/* ---- band_part: [.., m, n], kept where m - n <= lower and n - m <= upper (negative: no bound) ---- */
typedef struct band_run {
    const pome_tensor *x, *out;
    int64_t n_rows, n_columns, lower, upper;
    size_t elem_size;
} band_run;

static void band_rows(void *arg, size_t begin, size_t end, int thread)
{
    (void)thread;
    const band_run *b = arg;
    size_t row_bytes = (size_t)b->n_columns * b->elem_size;
    for (size_t row = begin; row < end; row++) {
        int64_t m = (int64_t)row % b->n_rows;
        int64_t first = b->lower < 0 || m - b->lower < 0 ? 0 : m - b->lower;
        int64_t last = b->upper < 0 || b->upper >= b->n_columns - m ? b->n_columns : m + b->upper + 1;
        first = first > b->n_columns ? b->n_columns : first;
        last = last < first ? first : last;
        size_t from = (size_t)first * b->elem_size, to = (size_t)last * b->elem_size;
        char *dst = (char *)b->out->data + row * row_bytes;
        memset(dst, 0, from);
        memcpy(dst + from, (const char *)b->x->data + row * row_bytes + from, to - from);
        memset(dst + to, 0, row_bytes - to);
    }
}

static pome_status run_band_part(const pome_run *r, pome_error *err)
{
    const pome_tensor *x = pome_in(r, P_band_part_x), *out = &r->out[0];
    int64_t n = pome_tensor_count(x);
    if (x->rank < 2 || n != pome_tensor_count(out))
        return pome_view_misfit(r, err);
    if (n == 0)
        return POME_OK;
    band_run b = {x, out, x->shape[x->rank - 2], x->shape[x->rank - 1], pome_in_int(r, P_band_part_lower, -1),
                  pome_in_int(r, P_band_part_upper, -1), (size_t)pome_elem_size(x->dtype)};
    pome_pool_run(r->pool, (size_t)(n / b.n_columns), grain_of(b.n_columns), band_rows, &b);
    return POME_OK;
}

const pome_op_impl pome_ops_gather[] = {
    {.id = POME_OP_gather,
     .f16_ok = POME_BIT(P_gather_x),
     .strided_ok = POME_BIT(P_gather_x),
     .encoded_ok = POME_BIT(P_gather_x),
     .run = run_gather},
    {.id = POME_OP_gather_along_axis, .run = run_gather_along_axis},
    {.id = POME_OP_gather_nd, .run = run_gather_nd},
    {.id = POME_OP_one_hot, .run = run_one_hot},
    {.id = POME_OP_non_zero, .run = run_non_zero},
    {.id = POME_OP_band_part, .run = run_band_part},
};
POME_FAMILY_COUNT(gather)
