/* conv as products of weight rows with unfolded positions: a position's inputs are laid out in one row as a weight
 * row has them, so a convolution with a kernel of one element is linear on transposed activations, and fp16 or encoded
 * weights are decoded once for a block of positions. Images go through conv_image.c. Convolutions with few outputs per group,
 * and conv_transpose, are plain loops. */
#include <math.h>
#include <string.h>

#include "ops/coded.h"
#include "ops/conv_image.h"
#include "ops/conv_winograd.h"
#include "ops/families.h"
#include "ops/rows.h"
#include "ops/window.h"

enum { UNFOLDED_MAX = 1 << 21 }; /* floats */

typedef struct conv_job {
    const pome_run *r;
    pome_window w;
    pome_rows weight;   /* [Cout, Cin / groups * kernel] */
    const pome_tensor *bias;
    const pome_encoded *bias_encoded;
    const float *x;     /* [N, Cin, positions] */
    float *y;           /* [N, Cout, positions] */
    size_t n, cin, cout, groups, cin_group, cout_group, k;
    pome_conv_after after;
    float *unfolded;    /* [block, k] */
    float *thread_scratch;
    size_t batch, group, first, n_positions; /* of the current step */
    const float *rows;  /* unfolded, or x itself */
    bool is_coded;      /* int8 activations */
    pome_coded coded;   /* of the current group */
    char *q8;           /* a block's activations, then [n_threads] pome_coded_thread_bytes() and a tile of results */
} conv_job;

enum { CODED_TILE = 32 }; /* rows of a tile of results [block, 32] */

static float *scratch_of(const conv_job *job, int thread)
{
    return job->thread_scratch + (size_t)thread * pome_rows_scratch();
}

static float bias_of(const conv_job *job, size_t channel)
{
    float bias = 0;
    if (job->bias)
        pome_vector_piece(job->bias, job->bias_encoded, job->r->kernels, channel, 1, &bias);
    return bias;
}

static void unfold(void *arg, size_t begin, size_t end, int thread)
{
    const conv_job *job = (const conv_job *)arg;
    const float *x = job->x + (job->batch * job->cin + job->group * job->cin_group) * job->w.n_in;
    (void)thread;
    for (size_t p = begin; p < end; p++) {
        int64_t o[3], k[3];
        float *row = job->unfolded + p * job->k;
        pome_window_split(job->w.out, job->first + p, o);
        for (size_t e = 0; e < job->w.n_kernel; e++) {
            pome_window_split(job->w.kernel, e, k);
            int64_t at = pome_window_at(&job->w, o, k);
            for (size_t c = 0; c < job->cin_group; c++)
                row[c * job->w.n_kernel + e] = at < 0 ? 0.0f : x[c * job->w.n_in + (size_t)at];
        }
    }
}

static size_t block_positions(size_t k, size_t n_out)
{
    size_t n = UNFOLDED_MAX / (k ? k : 1);
    n = n < 1 ? 1 : n;
    return n < n_out ? n : n_out;
}

/* Bytes of a thread's scratch for a block of n positions. */
static size_t coded_thread_bytes(const pome_coded *w, size_t n)
{
    return pome_coded_thread_bytes(w, n) + n * CODED_TILE * sizeof(float);
}

static void multiply_coded(const conv_job *job, size_t begin, size_t end, int thread, float *y)
{
    size_t block = block_positions(job->k, job->w.n_out), n = job->n_positions;
    char *scratch = job->q8 + pome_coded_activation_bytes(&job->coded, block) +
                    (size_t)thread * coded_thread_bytes(&job->coded, block);
    float *tile = (float *)(void *)(scratch + pome_coded_thread_bytes(&job->coded, block));
    if (n == 1 && job->w.n_out == 1) {
        pome_coded_times(&job->coded, job->q8, 1, begin, end - begin, y, end - begin, scratch);
        return;
    }
    for (size_t c = begin; c < end; c += CODED_TILE) {
        size_t len = end - c < CODED_TILE ? end - c : CODED_TILE;
        pome_coded_times(&job->coded, job->q8, n, c, len, tile, CODED_TILE, scratch);
        for (size_t j = 0; j < len; j++)
            for (size_t p = 0; p < n; p++)
                y[(c - begin + j) * job->w.n_out + p] = tile[p * CODED_TILE + j];
    }
}

static void multiply(void *arg, size_t begin, size_t end, int thread)
{
    const conv_job *job = (const conv_job *)arg;
    size_t channel = job->group * job->cout_group + begin;
    float *y = job->y + (job->batch * job->cout + channel) * job->w.n_out + job->first;
    if (job->is_coded)
        multiply_coded(job, begin, end, thread, y);
    else
        pome_rows_times_t(&job->weight, job->r->kernels, channel, end - begin, job->rows, job->k, job->n_positions, y,
                          job->w.n_out, scratch_of(job, thread));
    for (size_t c = 0; job->bias && c < end - begin; c++) {
        float bias = bias_of(job, channel + c);
        for (size_t p = 0; p < job->n_positions; p++)
            y[c * job->w.n_out + p] += bias;
    }
}

/* Rows of the weight for group `group`, if fast mode takes them as they lie. */
static bool coded_group(const pome_run *r, pome_coded *w, size_t group, size_t cout_group, size_t k)
{
    return (r->op->def->id == POME_OP_conv || r->op->def->id == POME_OP_pome_conv) &&
           pome_coded_init(w, r, pome_in_encoded(r, P_conv_weight), group * cout_group * k, cout_group, k);
}

static void run_unfolded(conv_job *job)
{
    size_t block = block_positions(job->k, job->w.n_out);
    for (job->batch = 0; job->batch < job->n; job->batch++)
        for (job->group = 0; job->group < job->groups; job->group++) {
            if (job->is_coded)
                (void)coded_group(job->r, &job->coded, job->group, job->cout_group, job->k);
            for (job->first = 0; job->first < job->w.n_out; job->first += block) {
                job->n_positions = job->w.n_out - job->first < block ? job->w.n_out - job->first : block;
                job->rows = job->unfolded;
                if (job->w.n_in == 1 && job->w.n_kernel == 1 && job->w.n_out == 1 && job->w.before[0] == 0 &&
                    job->w.before[1] == 0 && job->w.before[2] == 0) /* one position: it lies as a row already */
                    job->rows = job->x + job->batch * job->cin + job->group * job->cin_group;
                else
                    pome_pool_run(job->r->pool, job->n_positions, 16, unfold, job);
                if (job->is_coded)
                    pome_coded_set(&job->coded, job->r->pool, job->q8, job->rows, job->k, job->n_positions);
                pome_pool_run(job->r->pool, job->cout_group,
                              job->is_coded ? pome_coded_grain(&job->coded, job->n_positions) : POME_ROWS_TILE, multiply,
                              job);
            }
        }
}

/* One output channel at a time. */
static void convolve_channels(void *arg, size_t begin, size_t end, int thread)
{
    const conv_job *job = (const conv_job *)arg;
    for (size_t unit = begin; unit < end; unit++) {
        size_t batch = unit / job->cout, channel = unit % job->cout, group = channel / job->cout_group, ld;
        const float *x = job->x + (batch * job->cin + group * job->cin_group) * job->w.n_in;
        const float *weight = pome_rows_piece(&job->weight, job->r->kernels, channel, 1, 0, job->k,
                                              scratch_of(job, thread), &ld);
        float *y = job->y + unit * job->w.n_out, bias = bias_of(job, channel);
        memset(y, 0, job->w.n_out * sizeof *y);
        for (size_t e = 0; e < job->w.n_kernel; e++) {
            int64_t o[3], k[3];
            pome_window_split(job->w.kernel, e, k);
            for (size_t p = 0; p < job->w.n_out; p++) {
                pome_window_split(job->w.out, p, o);
                int64_t at = pome_window_at(&job->w, o, k);
                for (size_t c = 0; at >= 0 && c < job->cin_group; c++)
                    y[p] += x[c * job->w.n_in + (size_t)at] * weight[c * job->w.n_kernel + e];
            }
        }
        for (size_t p = 0; p < job->w.n_out; p++)
            y[p] += bias;
    }
}

static pome_status channels(conv_job *job, const pome_tensor *x, uint32_t groups_param, pome_error *err)
{
    int64_t groups = pome_in_int(job->r, groups_param, 1);
    job->n = (size_t)x->shape[0];
    job->cin = (size_t)x->shape[1];
    job->cout = (size_t)job->r->out[0].shape[1];
    if (groups < 1 || job->cin % (size_t)groups || job->cout % (size_t)groups)
        return pome_op_fail(job->r->op, err, POME_ERR_FORMAT, "%zu input and %zu output channels in %lld groups",
                            job->cin, job->cout, (long long)groups);
    if (job->bias && (size_t)pome_tensor_count(job->bias) != job->cout)
        return pome_op_fail(job->r->op, err, POME_ERR_FORMAT, "bias has %lld elements, the output %zu channels",
                            (long long)pome_tensor_count(job->bias), job->cout);
    job->groups = (size_t)groups;
    job->cin_group = job->cin / job->groups;
    job->cout_group = job->cout / job->groups;
    return POME_OK;
}

static const pome_window_params conv_params = {P_conv_strides, P_conv_pad_type, P_conv_pad, P_conv_dilations};

/* Floats for the unfolded input, in either form. */
static size_t unfolded_floats(const pome_run *r, size_t k, size_t n_out)
{
    const pome_winograd *winograd = (const pome_winograd *)r->prepared;
    size_t by_position = block_positions(k, n_out) * k;
    size_t by_tile = pome_conv_image_scratch(k, n_out, (size_t)pome_pool_n_threads(r->pool));
    const int64_t *y = r->out[0].shape;
    size_t by_transform = winograd ? pome_winograd_scratch(winograd, (size_t)y[0], (size_t)y[2], (size_t)y[3],
                                                           (size_t)pome_pool_n_threads(r->pool)) : 0;
    size_t most = by_position > by_tile ? by_position : by_tile;
    return ((by_transform > most ? by_transform : most) + 15) / 16 * 16;
}

static void finish_planes(void *arg, size_t begin, size_t end, int thread)
{
    const conv_job *job = (const conv_job *)arg;
    size_t first = begin * job->w.n_out;
    (void)thread;
    pome_conv_finish(&job->after, first, (end - begin) * job->w.n_out, job->y + first);
}

static void run_image(const conv_job *job)
{
    const pome_winograd *winograd = (const pome_winograd *)job->r->prepared;
    pome_conv_image image = {.r = job->r, .w = &job->w, .weight = &job->weight, .bias = job->bias,
                             .bias_encoded = job->bias_encoded, .after = job->after, .x = job->x, .y = job->y, .n = job->n, .cin = job->cin,
                             .cout = job->cout, .groups = job->groups, .panels = job->unfolded,
                             .thread_scratch = job->thread_scratch};
    if (winograd && pome_winograd_fits(&job->w))
        pome_winograd_run(&image, winograd, job->unfolded);
    else
        pome_conv_image_run(&image);
}

/* Bytes of scratch beside that of conv_quantized. */
static size_t unfold_scratch(const pome_run *r, const pome_tensor *w, uint32_t groups_param)
{
    const pome_tensor *out = &r->out[0];
    size_t k = 1, n_out = 1, threads = (size_t)pome_pool_n_threads(r->pool);
    for (int32_t d = 1; d < w->rank; d++)
        k *= (size_t)w->shape[d];
    for (int32_t d = 2; d < out->rank; d++)
        n_out *= (size_t)out->shape[d];
    size_t bytes = (threads * pome_rows_scratch() + unfolded_floats(r, k, n_out)) * sizeof(float);
    pome_coded coded;
    size_t groups = (size_t)pome_in_int(r, groups_param, 1), block = block_positions(k, n_out);
    if (groups >= 1 && coded_group(r, &coded, 0, (size_t)w->shape[0] / groups, k))
        bytes += pome_coded_activation_bytes(&coded, block) + threads * coded_thread_bytes(&coded, block);
    return bytes;
}

static size_t conv_scratch(const pome_run *r)
{
    return unfold_scratch(r, pome_in(r, P_conv_weight), P_conv_groups);
}

/* job: r, bias; `weight` is fp32, fp16 or encoded. */
static pome_status convolve(conv_job *job, const pome_tensor *x, const pome_tensor *w, const pome_encoded *encoded,
                            const pome_window_params *params, uint32_t groups_param, pome_error *err)
{
    const pome_run *r = job->r;
    if (w->rank != x->rank)
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "x and weight have different ranks");
    POME_TRY(pome_window_init(&job->w, r, params, x, &r->out[0], w->shape + 2, err));
    POME_TRY(channels(job, x, groups_param, err));
    job->k = job->cin_group * job->w.n_kernel;
    if ((size_t)w->shape[0] != job->cout || (size_t)w->shape[1] != job->cin_group)
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "weight does not fit the channels");
    if (job->n * job->cout * job->w.n_out == 0)
        return POME_OK;
    job->x = (const float *)x->data;
    job->y = (float *)r->out[0].data;
    job->thread_scratch = (float *)r->scratch;
    job->unfolded = job->thread_scratch + (size_t)pome_pool_n_threads(r->pool) * pome_rows_scratch();
    pome_rows_init(&job->weight, w->dtype, w->data, encoded, job->k);
    job->q8 = (char *)r->scratch + ((size_t)pome_pool_n_threads(r->pool) * pome_rows_scratch() +
                                    unfolded_floats(r, job->k, job->w.n_out)) * sizeof(float);
    job->is_coded = true;
    for (size_t g = 0; g < job->groups && job->is_coded; g++)
        job->is_coded = coded_group(r, &job->coded, g, job->cout_group, job->k);
    if (!job->is_coded && pome_conv_image_is_worth(&job->w)) {
        run_image(job);
        return POME_OK;
    }
    if (job->groups > 1 && job->cout_group < 8 && job->k <= POME_KERNEL_KC)
        pome_pool_run(r->pool, job->n * job->cout, 1, convolve_channels, job);
    else
        run_unfolded(job);
    if (job->after.addend || job->after.low > -INFINITY || job->after.high < INFINITY)
        pome_pool_run(r->pool, job->n * job->cout, 64, finish_planes, job);
    return POME_OK;
}

#define NOTHING_AFTER {NULL, -INFINITY, INFINITY}

static pome_status conv_run(const pome_run *r, pome_error *err)
{
    conv_job job = {.r = r, .after = NOTHING_AFTER, .bias = pome_in(r, P_conv_bias), .bias_encoded = pome_in_encoded(r, P_conv_bias)};
    return convolve(&job, pome_in(r, P_conv_x), pome_in(r, P_conv_weight), pome_in_encoded(r, P_conv_weight),
                    &conv_params, P_conv_groups, err);
}

/* A plan asks for transformed weights only where they can be used (passes/fuse_winograd.c). */
static pome_status fused_conv_prepare(pome_prepare *p, pome_error *err)
{
    const pome_value *wanted = pome_op_arg(p->op, P_pome_conv_winograd), *weight = pome_op_arg(p->op, P_conv_weight);
    const pome_value *groups = pome_op_arg(p->op, P_conv_groups);
    if (!wanted || !pome_tensor_int_at(&wanted->konst->t, 0) || (groups && pome_tensor_int_at(&groups->konst->t, 0) != 1))
        return POME_OK;
    const pome_tensor *w = weight->konst ? &weight->konst->t : NULL;
    if (!w || !w->data || w->rank != 4 || w->shape[2] != 3 || w->shape[3] != 3)
        return POME_OK;
    pome_winograd *winograd = POME_NEW(p->arena, pome_winograd);
    if (!winograd)
        return pome_fail_nomem(err, sizeof *winograd, "transformed weights");
    POME_TRY(pome_winograd_prepare(winograd, w, p->kernels, p->arena, err));
    p->prepared = winograd;
    return POME_OK;
}

static pome_status fused_conv_run(const pome_run *r, pome_error *err)
{
    const pome_tensor *addend = pome_in(r, P_pome_conv_addend);
    conv_job job = {.r = r, .bias = pome_in(r, P_conv_bias), .bias_encoded = pome_in_encoded(r, P_conv_bias)};
    if (addend && pome_tensor_count(addend) != pome_tensor_count(&r->out[0]))
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "addend and result have different shapes");
    job.after = (pome_conv_after){addend ? (const float *)addend->data : NULL,
                                  (float)pome_in_float(r, P_pome_conv_low, -INFINITY),
                                  (float)pome_in_float(r, P_pome_conv_high, INFINITY)};
    return convolve(&job, pome_in(r, P_conv_x), pome_in(r, P_conv_weight), pome_in_encoded(r, P_conv_weight),
                    &conv_params, P_conv_groups, err);
}

/* ---- conv_quantized: weight and bias hold one code per byte ---- */

static const pome_window_params quantized_params = {P_conv_quantized_strides, P_conv_quantized_pad_type,
                                                    P_conv_quantized_pad, P_conv_quantized_dilations};

/* linear: code * scale + bias, both for all channels or one for each. lut: quant_scale is the table and quant_bias is
 * not used. A code beyond the table is an error. */
static pome_status dequantize(const pome_run *r, const pome_tensor *codes, float *to, pome_error *err)
{
    const pome_tensor *scale = pome_in(r, P_conv_quantized_quant_scale), *bias = pome_in(r, P_conv_quantized_quant_bias);
    const uint8_t *code = (const uint8_t *)codes->data;
    bool is_lut = strcmp(pome_op_str(r->op, P_conv_quantized_quantization_type, "linear"), "lut") == 0;
    int64_t n = pome_tensor_count(codes), n_channels = codes->shape[0], n_scales = pome_tensor_count(scale);
    int64_t n_biases = pome_tensor_count(bias);
    if (!is_lut && ((n_scales != 1 && n_scales != n_channels) || (n_biases != 1 && n_biases != n_channels)))
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "%lld scales and %lld offsets for %lld channels",
                            (long long)n_scales, (long long)n_biases, (long long)n_channels);
    for (int64_t i = 0; i < n; i++) {
        int64_t c = i / (n / n_channels);
        if (is_lut && code[i] >= n_scales)
            return pome_op_fail(r->op, err, POME_ERR_FORMAT, "code %d, the table has %lld entries", (int)code[i],
                                (long long)n_scales);
        to[i] = is_lut ? ((const float *)scale->data)[code[i]]
                       : (float)code[i] * ((const float *)scale->data)[n_scales > 1 ? c : 0] +
                             ((const float *)bias->data)[n_biases > 1 ? c : 0];
    }
    return POME_OK;
}

static size_t quantized_scratch(const pome_run *r)
{
    const pome_tensor *w = pome_in(r, P_conv_quantized_weight);
    return (unfold_scratch(r, w, P_conv_quantized_groups) + 63) / 64 * 64 +
           ((size_t)pome_tensor_count(w) + (size_t)w->shape[0]) * sizeof(float);
}

static pome_status conv_quantized_run(const pome_run *r, pome_error *err)
{
    const pome_tensor *w = pome_in(r, P_conv_quantized_weight), *bias = pome_in(r, P_conv_quantized_bias);
    size_t before = (unfold_scratch(r, w, P_conv_quantized_groups) + 63) / 64 * 64;
    float *dense = (float *)(void *)((char *)r->scratch + before);
    pome_tensor weight = pome_tensor_borrow(dense, POME_DTYPE_F32, w->rank, w->shape), offset;
    conv_job job = {.r = r, .after = NOTHING_AFTER};
    POME_TRY(dequantize(r, w, dense, err));
    if (bias) {
        offset = pome_tensor_borrow(dense + pome_tensor_count(w), POME_DTYPE_F32, bias->rank, bias->shape);
        POME_TRY(dequantize(r, bias, (float *)offset.data, err));
        job.bias = &offset;
    }
    return convolve(&job, pome_in(r, P_conv_quantized_x), &weight, NULL, &quantized_params, P_conv_quantized_groups, err);
}

/* ---- conv_transpose: weight [Cin, Cout / groups, kernel], out[i * stride + k * dilation - before] += x[i] w[k] ---- */

/* Adds x[ci] times kernel elements [first, first + n) to one output plane. */
static void spread(const conv_job *job, const float *x, const float *weight, size_t first, size_t n, float *y)
{
    const pome_window *w = &job->w;
    for (size_t e = 0; e < n; e++) {
        int64_t k[3], i[3];
        pome_window_split(w->kernel, first + e, k);
        for (size_t p = 0; p < w->n_in; p++) {
            int64_t at = 0;
            pome_window_split(w->in, p, i);
            for (int d = 0; d < 3 && at >= 0; d++) {
                int64_t o = i[d] * w->stride[d] + k[d] * w->dilation[d] - w->before[d];
                at = o < 0 || o >= w->out[d] ? -1 : at * w->out[d] + o;
            }
            if (at >= 0)
                y[at] += x[p] * weight[e];
        }
    }
}

static void transpose_channels(void *arg, size_t begin, size_t end, int thread)
{
    const conv_job *job = (const conv_job *)arg;
    for (size_t unit = begin; unit < end; unit++) {
        size_t batch = unit / job->cout, channel = unit % job->cout, group = channel / job->cout_group, ld;
        float *y = job->y + unit * job->w.n_out, bias = bias_of(job, channel);
        memset(y, 0, job->w.n_out * sizeof *y);
        for (size_t c = group * job->cin_group; c < (group + 1) * job->cin_group; c++)
            for (size_t p = 0; p < job->k; p += POME_KERNEL_KC) {
                size_t len = job->k - p < POME_KERNEL_KC ? job->k - p : POME_KERNEL_KC;
                const float *weight = pome_rows_piece(&job->weight, job->r->kernels,
                                                      c * job->cout_group + channel % job->cout_group, 1, p, len,
                                                      scratch_of(job, thread), &ld);
                spread(job, job->x + (batch * job->cin + c) * job->w.n_in, weight, p, len, y);
            }
        for (size_t p = 0; p < job->w.n_out; p++)
            y[p] += bias;
    }
}

static size_t conv_transpose_scratch(const pome_run *r)
{
    return (size_t)pome_pool_n_threads(r->pool) * pome_rows_scratch() * sizeof(float);
}

static const pome_window_params transpose_params = {P_conv_transpose_strides, P_conv_transpose_pad_type,
                                                    P_conv_transpose_pad, P_conv_transpose_dilations};

static pome_status conv_transpose_run(const pome_run *r, pome_error *err)
{
    const pome_tensor *x = pome_in(r, P_conv_transpose_x), *w = pome_in(r, P_conv_transpose_weight);
    const char *type = pome_op_str(r->op, P_conv_transpose_pad_type, "valid");
    conv_job job = {.r = r, .bias = pome_in(r, P_conv_transpose_bias)};
    if (w->rank != x->rank)
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "x and weight have different ranks");
    POME_TRY(pome_window_init(&job.w, r, &transpose_params, x, &r->out[0], w->shape + 2, err));
    POME_TRY(channels(&job, x, P_conv_transpose_groups, err));
    for (int d = 0; d < 3 && (strcmp(type, "same") == 0 || strcmp(type, "same_lower") == 0); d++) {
        int64_t cut = (job.w.kernel[d] - 1) * job.w.dilation[d] + 1 - job.w.stride[d]; /* to length in * stride */
        cut = cut < 0 ? 0 : cut;
        job.w.before[d] = strcmp(type, "same") == 0 ? cut / 2 : cut - cut / 2;
    }
    job.k = job.w.n_kernel;
    if ((size_t)w->shape[0] != job.cin || (size_t)w->shape[1] != job.cout_group)
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "weight does not fit the channels");
    if (job.n * job.cout * job.w.n_out == 0)
        return POME_OK;
    job.bias_encoded = pome_in_encoded(r, P_conv_transpose_bias);
    job.x = (const float *)x->data;
    job.y = (float *)r->out[0].data;
    job.thread_scratch = (float *)r->scratch;
    pome_rows_init(&job.weight, w->dtype, w->data, pome_in_encoded(r, P_conv_transpose_weight), job.k);
    pome_pool_run(r->pool, job.n * job.cout, 1, transpose_channels, &job);
    return POME_OK;
}

const pome_op_impl pome_ops_conv[] = {
    {.id = POME_OP_conv,
     .f16_ok = POME_BIT(P_conv_weight) | POME_BIT(P_conv_bias),
     .encoded_ok = POME_BIT(P_conv_weight) | POME_BIT(P_conv_bias),
     .scratch = conv_scratch,
     .run = conv_run},
    {.id = POME_OP_pome_conv, /* the parameters of conv come first */
     .f16_ok = POME_BIT(P_conv_weight) | POME_BIT(P_conv_bias),
     .encoded_ok = POME_BIT(P_conv_weight) | POME_BIT(P_conv_bias),
     .prepare = fused_conv_prepare,
     .scratch = conv_scratch,
     .run = fused_conv_run},
    {.id = POME_OP_conv_quantized, .scratch = quantized_scratch, .run = conv_quantized_run},
    {.id = POME_OP_conv_transpose,
     .f16_ok = POME_BIT(P_conv_transpose_weight) | POME_BIT(P_conv_transpose_bias),
     .encoded_ok = POME_BIT(P_conv_transpose_weight) | POME_BIT(P_conv_transpose_bias),
     .scratch = conv_transpose_scratch,
     .run = conv_transpose_run},
};
POME_FAMILY_COUNT(conv)
