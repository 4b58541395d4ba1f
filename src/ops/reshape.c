/* Operators that keep the elements and change the shape or the order of axes. */
#include "ops/families.h"
#include "ops/view.h"

/* ---- the same elements in the same order ---- */
static bool view_reshape(const pome_run *r)
{
    const pome_tensor *x = r->in[0];
    return pome_tensor_count(x) == pome_tensor_count(&r->out[0]) && pome_strided_reshape(&r->out[0], x);
}

static pome_status run_reshape(const pome_run *r, pome_error *err)
{
    const pome_tensor *x = r->in[0];
    if (pome_tensor_count(x) != pome_tensor_count(&r->out[0]))
        return pome_view_misfit(r, err);
    pome_tensor dst = r->out[0]; /* contiguous, so it can take x's shape */
    dst.rank = x->rank;
    for (int32_t d = 0; d < x->rank; d++)
        dst.shape[d] = x->shape[d];
    pome_stride_row_major(&dst);
    pome_strided_copy(&dst, x, r->pool, r->kernels);
    return POME_OK;
}

static pome_status run_shape(const pome_run *r, pome_error *err)
{
    const pome_tensor *x = r->in[0];
    int32_t *dst = r->out[0].data;
    for (int32_t d = 0; d < x->rank; d++) {
        if (x->shape[d] > INT32_MAX)
            return pome_op_fail(r->op, err, POME_ERR_LIMIT, "axis %d has size %lld, more than int32 holds", (int)d,
                                (long long)x->shape[d]);
        dst[d] = (int32_t)x->shape[d];
    }
    return POME_OK;
}

/* ---- other strides ---- */
static bool view_transpose(const pome_run *r)
{
    const pome_tensor *x = r->in[0], *perm = pome_in(r, P_transpose_perm);
    pome_tensor *out = &r->out[0];
    if (pome_tensor_count(perm) != x->rank || out->rank != x->rank)
        return false;
    for (int32_t d = 0; d < x->rank; d++) {
        int32_t from = pome_axis_wrap(pome_tensor_int_at(perm, d), x->rank);
        if (from < 0 || out->shape[d] != x->shape[from])
            return false;
        out->stride[d] = x->stride[from];
    }
    pome_view_take(out, x, 0);
    return true;
}

static pome_status run_transpose(const pome_run *r, pome_error *err)
{
    return pome_view_run(r, view_transpose, err);
}

static bool view_reverse(const pome_run *r)
{
    const pome_tensor *x = r->in[0], *axes = pome_in(r, P_reverse_axes);
    pome_tensor *out = &r->out[0];
    bool is_reversed[POME_MAX_RANK] = {false};
    int64_t n_axes = axes ? pome_tensor_count(axes) : x->rank;
    for (int64_t i = 0; i < n_axes; i++) {
        int32_t axis = axes ? pome_axis_wrap(pome_tensor_int_at(axes, i), x->rank) : (int32_t)i;
        if (axis < 0)
            return false;
        is_reversed[axis] = true;
    }
    int64_t offset = 0;
    for (int32_t d = 0; d < x->rank; d++) {
        out->stride[d] = is_reversed[d] ? -x->stride[d] : x->stride[d];
        offset += is_reversed[d] ? (x->shape[d] - 1) * x->stride[d] : 0;
    }
    pome_view_take(out, x, offset);
    return true;
}

static pome_status run_reverse(const pome_run *r, pome_error *err)
{
    return pome_view_run(r, view_reverse, err);
}

static bool view_sliding_windows(const pome_run *r)
{
    const pome_tensor *x = r->in[0];
    pome_tensor *out = &r->out[0];
    int32_t axis = pome_axis_wrap(pome_in_int(r, P_sliding_windows_axis, 0), x->rank);
    int64_t size = pome_in_int(r, P_sliding_windows_size, 1), step = pome_in_int(r, P_sliding_windows_stride, 1);
    if (axis < 0 || out->rank != x->rank + 1 || size < 0 || step < 1)
        return false;
    int64_t n = out->shape[axis];
    if (out->shape[axis + 1] != size || (n > 0 && (n - 1 > (x->shape[axis] - size) / step || size > x->shape[axis])))
        return false;
    for (int32_t d = 0; d < out->rank; d++)
        out->stride[d] = d <= axis ? x->stride[d] : x->stride[d - 1];
    if (n > 1) /* so step is less than the axis: no overflow */
        out->stride[axis] = x->stride[axis] * step;
    pome_view_take(out, x, 0);
    return true;
}

static pome_status run_sliding_windows(const pome_run *r, pome_error *err)
{
    return pome_view_run(r, view_sliding_windows, err);
}

static bool view_crop(const pome_run *r)
{
    const pome_tensor *x = r->in[0], *crop[2] = {pome_in(r, P_crop_crop_height), pome_in(r, P_crop_crop_width)};
    pome_tensor *out = &r->out[0];
    int64_t offset = 0;
    for (int32_t d = 0; d < x->rank; d++) {
        int32_t spatial = d - (x->rank - 2);
        out->stride[d] = x->stride[d];
        if (spatial < 0)
            continue;
        int64_t before = pome_tensor_int_at(crop[spatial], 0), after = pome_tensor_int_at(crop[spatial], 1);
        if (before < 0 || after < 0 || before + after + out->shape[d] != x->shape[d])
            return false;
        offset += before * x->stride[d];
    }
    pome_view_take(out, x, offset);
    return true;
}

static pome_status run_crop(const pome_run *r, pome_error *err)
{
    return pome_view_run(r, view_crop, err);
}

/* ---- reverse_sequence ---- */
static pome_status run_reverse_sequence(const pome_run *r, pome_error *err)
{
    const pome_tensor *x = r->in[0], *lengths = pome_in(r, P_reverse_sequence_lengths);
    int32_t seq = pome_axis_wrap(pome_in_int(r, P_reverse_sequence_seq_axis, 0), x->rank);
    int32_t batch = pome_axis_wrap(pome_in_int(r, P_reverse_sequence_batch_axis, 0), x->rank);
    if (seq < 0 || batch < 0 || seq == batch || pome_tensor_count(lengths) != x->shape[batch])
        return pome_view_misfit(r, err);
    int64_t n = x->shape[seq];
    for (int64_t b = 0; b < x->shape[batch]; b++) {
        int64_t len = pome_tensor_int_at(lengths, b);
        if (len < 0 || len > n)
            return pome_op_fail(r->op, err, POME_ERR_ARG, "lengths[%lld] is %lld, expected 0 to %lld", (long long)b,
                                (long long)len, (long long)n);
    }
    for (int64_t b = 0; b < x->shape[batch]; b++) {
        int64_t len = pome_tensor_int_at(lengths, b);
        pome_tensor src = *x, dst = r->out[0];
        src.shape[batch] = dst.shape[batch] = 1;
        src.data = pome_elem_at(x, b * x->stride[batch]);
        dst.data = pome_elem_at(&r->out[0], b * dst.stride[batch]);
        pome_tensor tail_src = src, tail_dst = dst;
        if (len > 0) {
            src.shape[seq] = dst.shape[seq] = len;
            src.data = pome_elem_at(&src, (len - 1) * src.stride[seq]);
            src.stride[seq] = -src.stride[seq];
            pome_strided_copy(&dst, &src, r->pool, r->kernels);
        }
        if (len < n) {
            tail_src.shape[seq] = tail_dst.shape[seq] = n - len;
            tail_src.data = pome_elem_at(&tail_src, len * tail_src.stride[seq]);
            tail_dst.data = pome_elem_at(&tail_dst, len * tail_dst.stride[seq]);
            pome_strided_copy(&tail_dst, &tail_src, r->pool, r->kernels);
        }
    }
    return POME_OK;
}

/* ---- channels to blocks of pixels and back ---- */
typedef enum channel_order {
    BLOCK_MAJOR,  /* channel = (by * block + bx) * n_channels + c, TensorFlow's DCR */
    CHANNEL_MAJOR /* channel = (c * block + by) * block + bx, PyTorch's CRD */
} channel_order;

/* Between deep [n, c * block^2, h, w] and wide [n, c, h * block, w * block]. */
static pome_status run_blocks(const pome_run *r, int64_t block, channel_order order, bool is_to_wide, pome_error *err)
{
    const pome_tensor *x = r->in[0], *out = &r->out[0];
    const pome_tensor *deep = is_to_wide ? x : out, *wide = is_to_wide ? out : x;
    if (x->rank != 4 || out->rank != 4 || block < 1 || block > INT32_MAX || deep->shape[0] != wide->shape[0] ||
        deep->shape[1] % block != 0 || deep->shape[1] / block % block != 0 ||
        deep->shape[1] / block / block != wide->shape[1] || wide->shape[2] % block != 0 ||
        wide->shape[2] / block != deep->shape[2] || wide->shape[3] % block != 0 ||
        wide->shape[3] / block != deep->shape[3])
        return pome_view_misfit(r, err);
    int64_t n_channels = wide->shape[1], sc = deep->stride[1];
    bool is_block_major = order == BLOCK_MAJOR;
    int64_t shape[6] = {deep->shape[0], block, block, n_channels, deep->shape[2], deep->shape[3]};
    int64_t of_deep[6] = {deep->stride[0],
                          is_block_major ? block * n_channels * sc : block * sc,
                          is_block_major ? n_channels * sc : sc,
                          is_block_major ? sc : block * block * sc,
                          deep->stride[2],
                          deep->stride[3]};
    int64_t of_wide[6] = {wide->stride[0], wide->stride[2],         wide->stride[3],
                          wide->stride[1], wide->stride[2] * block, wide->stride[3] * block};
    pome_copy c;
    pome_copy_init(&c, out->dtype, x->dtype, 6, shape, is_to_wide ? of_wide : of_deep, is_to_wide ? of_deep : of_wide);
    pome_copy_run(&c, out->data, x->data, r->pool, r->kernels);
    return POME_OK;
}

static pome_status run_depth_to_space(const pome_run *r, pome_error *err)
{
    return run_blocks(r, pome_in_int(r, P_depth_to_space_block_size, 1), BLOCK_MAJOR, true, err);
}
static pome_status run_space_to_depth(const pome_run *r, pome_error *err)
{
    return run_blocks(r, pome_in_int(r, P_space_to_depth_block_size, 1), BLOCK_MAJOR, false, err);
}
static pome_status run_pixel_shuffle(const pome_run *r, pome_error *err)
{
    return run_blocks(r, pome_in_int(r, P_pixel_shuffle_upscale_factor, 1), CHANNEL_MAJOR, true, err);
}
static pome_status run_pixel_unshuffle(const pome_run *r, pome_error *err)
{
    return run_blocks(r, pome_in_int(r, P_pixel_unshuffle_downscale_factor, 1), CHANNEL_MAJOR, false, err);
}

/* ---- batches to blocks of pixels and back ---- */
typedef struct block_axis { /* wide index = deep index * block + phase - before */
    int64_t block, before, after;
    int64_t n_wide, n_deep;
} block_axis;

/* The deep indices [*first, *end) whose wide index exists, for one phase. */
static void phase_range(const block_axis *a, int64_t phase, int64_t *first, int64_t *end)
{
    int64_t low = a->before - phase, high = a->n_wide + a->before - phase;
    *first = low > 0 ? (low + a->block - 1) / a->block : 0;
    *end = high > 0 ? (high + a->block - 1) / a->block : 0;
    *end = *end > a->n_deep ? a->n_deep : *end;
}

/* Between wide [n, c, H, W] and deep [block_h * block_w * n, c, h, w], where h * block_h = before + H + after. */
static pome_status run_batches(const pome_run *r, const pome_tensor *block, const pome_tensor *margin,
                               bool is_to_wide, pome_error *err)
{
    const pome_tensor *x = r->in[0], *out = &r->out[0];
    const pome_tensor *deep = is_to_wide ? x : out, *wide = is_to_wide ? out : x;
    if (x->rank != 4 || out->rank != 4 || pome_tensor_count(block) != 2 || pome_tensor_count(margin) != 4)
        return pome_view_misfit(r, err);
    block_axis a[2];
    for (int32_t i = 0; i < 2; i++) {
        a[i] = (block_axis){pome_tensor_int_at(block, i), pome_tensor_int_at(margin, 2 * i),
                            pome_tensor_int_at(margin, 2 * i + 1), wide->shape[2 + i], deep->shape[2 + i]};
        if (a[i].block < 1 || a[i].block > INT32_MAX || a[i].before < 0 || a[i].after < 0 ||
            (a[i].before + a[i].n_wide + a[i].after) % a[i].block != 0 ||
            (a[i].before + a[i].n_wide + a[i].after) / a[i].block != a[i].n_deep)
            return pome_view_misfit(r, err);
    }
    int64_t n = wide->shape[0];
    if (wide->shape[1] != deep->shape[1] || deep->shape[0] % a[0].block != 0 ||
        deep->shape[0] / a[0].block % a[1].block != 0 || deep->shape[0] / a[0].block / a[1].block != n)
        return pome_view_misfit(r, err);
    if (!is_to_wide) {
        static const uint64_t zero;
        pome_strided_fill(out, &zero, r->pool);
    }
    if (n == 0)
        return POME_OK;
    for (int64_t by = 0; by < a[0].block; by++) {
        int64_t h0, h1, w0, w1;
        phase_range(&a[0], by, &h0, &h1);
        for (int64_t bx = 0; bx < a[1].block; bx++) {
            phase_range(&a[1], bx, &w0, &w1);
            if (h0 >= h1 || w0 >= w1)
                continue;
            int64_t shape[4] = {n, wide->shape[1], h1 - h0, w1 - w0};
            int64_t of_wide[4] = {wide->stride[0], wide->stride[1], wide->stride[2] * a[0].block,
                                  wide->stride[3] * a[1].block};
            void *wide_at = pome_elem_at(wide, (h0 * a[0].block + by - a[0].before) * wide->stride[2] +
                                                   (w0 * a[1].block + bx - a[1].before) * wide->stride[3]);
            void *deep_at = pome_elem_at(deep, (by * a[1].block + bx) * n * deep->stride[0] + h0 * deep->stride[2] +
                                                   w0 * deep->stride[3]);
            pome_copy c;
            pome_copy_init(&c, out->dtype, x->dtype, 4, shape, is_to_wide ? of_wide : deep->stride,
                           is_to_wide ? deep->stride : of_wide);
            pome_copy_run(&c, is_to_wide ? wide_at : deep_at, is_to_wide ? deep_at : wide_at, r->pool, r->kernels);
        }
    }
    return POME_OK;
}

static pome_status run_space_to_batch(const pome_run *r, pome_error *err)
{
    return run_batches(r, pome_in(r, P_space_to_batch_block_shape), pome_in(r, P_space_to_batch_paddings), false, err);
}
static pome_status run_batch_to_space(const pome_run *r, pome_error *err)
{
    return run_batches(r, pome_in(r, P_batch_to_space_block_shape), pome_in(r, P_batch_to_space_crops), true, err);
}

#define MOVES(op, view_fn, run_fn)                                                                 \
    {.id = POME_OP_##op, .f16_ok = POME_BIT(0), .strided_ok = POME_BIT(0), .view = view_fn, .run = run_fn}

const pome_op_impl pome_ops_reshape[] = {
    MOVES(identity, view_reshape, run_reshape),
    MOVES(reshape, view_reshape, run_reshape),
    {.id = POME_OP_reshape_like,
     .f16_ok = POME_BIT(P_reshape_like_x) | POME_BIT(P_reshape_like_ref_tensors),
     .strided_ok = POME_BIT(P_reshape_like_x) | POME_BIT(P_reshape_like_ref_tensors),
     .encoded_ok = POME_BIT(P_reshape_like_ref_tensors),
     .view = view_reshape,
     .run = run_reshape},
    MOVES(expand_dims, view_reshape, run_reshape),
    MOVES(squeeze, view_reshape, run_reshape),
    MOVES(flatten2d, view_reshape, run_reshape),
    {.id = POME_OP_shape,
     .f16_ok = POME_BIT(0),
     .strided_ok = POME_BIT(0),
     .encoded_ok = POME_BIT(0),
     .run = run_shape},
    MOVES(transpose, view_transpose, run_transpose),
    {.id = POME_OP_pome_transposed, .f16_ok = 1, .strided_ok = 1, .run = run_transpose},
    MOVES(reverse, view_reverse, run_reverse),
    MOVES(sliding_windows, view_sliding_windows, run_sliding_windows),
    MOVES(crop, view_crop, run_crop),
    MOVES(reverse_sequence, NULL, run_reverse_sequence),
    MOVES(depth_to_space, NULL, run_depth_to_space),
    MOVES(space_to_depth, NULL, run_space_to_depth),
    MOVES(pixel_shuffle, NULL, run_pixel_shuffle),
    MOVES(pixel_unshuffle, NULL, run_pixel_unshuffle),
    MOVES(space_to_batch, NULL, run_space_to_batch),
    MOVES(batch_to_space, NULL, run_batch_to_space),
};
POME_FAMILY_COUNT(reshape)
