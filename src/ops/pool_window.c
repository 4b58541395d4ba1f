/* avg_pool, max_pool, l2_pool: a row of outputs at a time, kernel element by kernel element; threads over channels. */
#include <math.h>

#include "ops/families.h"
#include "ops/window.h"

typedef enum pool_kind { POOL_AVG, POOL_MAX, POOL_L2 } pool_kind;

typedef struct pool_job {
    pool_kind kind;
    pome_window w;
    bool exclude_padding;
    const float *x; /* [planes, n_in] */
    float *y;       /* [planes, n_out] */
} pool_job;

/* How many elements a window has within the padded input: all, unless ceil_mode lets it hang over the end. */
static int64_t padded_count(const pome_window *w, const int64_t *o)
{
    int64_t count = 1;
    for (int d = 0; d < 3; d++) {
        int64_t begin = o[d] * w->stride[d], end = begin + w->kernel[d], stop = w->before[d] + w->in[d] + w->after[d];
        count *= (end < stop ? end : stop) - begin;
    }
    return count < 1 ? 1 : count;
}

enum { CHUNK = 128 /* outputs of a row at a time */, REACH_MAX = 1024 /* columns of the input that they see */ };

/* NaN stays: no number is greater. */
static inline float larger(float v, float max)
{
    float w = v == v ? max : v; /* without a branch, so that loops become vectors */
    return v > w ? v : w;
}

/* Adds kernel element k's inputs to n outputs from `first` of a row on; `in`: the input's row at output `first`. */
static void add_element(const pool_job *job, const float *in, int64_t stride, int64_t n, double *sum, float *max)
{
    if (job->kind == POOL_MAX && stride == 1)
        for (int64_t i = 0; i < n; i++)
            max[i] = larger(in[i], max[i]);
    else if (job->kind == POOL_MAX && stride == 2)
        for (int64_t i = 0; i < n; i++)
            max[i] = larger(in[2 * i], max[i]);
    else if (job->kind == POOL_MAX)
        for (int64_t i = 0; i < n; i++)
            max[i] = larger(in[i * stride], max[i]);
    else if (job->kind == POOL_L2)
        for (int64_t i = 0; i < n; i++)
            sum[i] += (double)in[i * stride] * in[i * stride];
    else
        for (int64_t i = 0; i < n; i++)
            sum[i] += (double)in[i * stride];
}

/* Outputs [o[2], o[2] + n) of a row. */
static void pool_chunk(const pool_job *job, const float *x, const int64_t *o, int64_t n, float *y)
{
    const pome_window *w = &job->w;
    double sum[CHUNK] = {0};
    float max[CHUNK];
    int64_t count[CHUNK] = {0};
    for (int64_t i = 0; i < n; i++)
        max[i] = -INFINITY;
    for (size_t e = 0; e < w->n_kernel; e++) {
        int64_t k[3], row = 0, first, end;
        pome_window_split(w->kernel, e, k);
        for (int d = 0; d < 2 && row >= 0; d++) {
            int64_t i = o[d] * w->stride[d] + k[d] * w->dilation[d] - w->before[d];
            row = i < 0 || i >= w->in[d] ? -1 : row * w->in[d] + i;
        }
        pome_window_span(w, 2, k[2], &first, &end);
        first = first > o[2] ? first : o[2];
        end = end < o[2] + n ? end : o[2] + n;
        if (row < 0 || first >= end)
            continue;
        int64_t at = first - o[2];
        add_element(job, x + row * w->in[2] + first * w->stride[2] + k[2] * w->dilation[2] - w->before[2], w->stride[2],
                    end - first, sum + at, max + at);
        for (int64_t i = at; i < at + end - first && job->kind == POOL_AVG; i++)
            count[i]++;
    }
    for (int64_t i = 0; i < n; i++) {
        int64_t place[3] = {o[0], o[1], o[2] + i};
        int64_t m = job->kind != POOL_AVG || job->exclude_padding ? count[i] : padded_count(w, place);
        y[i] = job->kind == POOL_MAX  ? max[i]
               : job->kind == POOL_L2 ? (float)sqrt(sum[i])
               : m                    ? (float)(sum[i] / (double)m)
                                      : 0.0f;
    }
}

static int64_t columns_seen(const pome_window *w, int64_t n)
{
    return (n - 1) * w->stride[2] + (w->kernel[2] - 1) * w->dilation[2] + 1;
}

/* y[i] = or takes the larger of column[i * stride]. */
static inline void take_columns(const float *column, int64_t stride, int64_t n, bool is_first, float *y)
{
    for (int64_t i = 0; i < n; i++)
        y[i] = is_first ? column[i * stride] : larger(column[i * stride], y[i]);
}

/* Maxima: first of each column of the input's rows, side by side, then of the columns. */
static void max_chunk(const pool_job *job, const float *x, const int64_t *o, int64_t n, float *y)
{
    const pome_window *w = &job->w;
    float column[REACH_MAX];
    int64_t first = o[2] * w->stride[2] - w->before[2], seen = columns_seen(w, n);
    int64_t begin = first < 0 ? -first : 0, end = w->in[2] - first < seen ? w->in[2] - first : seen;
    for (int64_t i = 0; i < seen; i++)
        column[i] = -INFINITY;
    for (int64_t k0 = 0; k0 < w->kernel[0]; k0++)
        for (int64_t k1 = 0; k1 < w->kernel[1]; k1++) {
            int64_t i0 = o[0] * w->stride[0] + k0 * w->dilation[0] - w->before[0];
            int64_t i1 = o[1] * w->stride[1] + k1 * w->dilation[1] - w->before[1];
            if (i0 < 0 || i0 >= w->in[0] || i1 < 0 || i1 >= w->in[1])
                continue;
            const float *row = x + (i0 * w->in[1] + i1) * w->in[2];
            for (int64_t i = begin; i < end; i++)
                column[i] = larger(row[first + i], column[i]);
        }
    for (int64_t k = 0; k < w->kernel[2]; k++)
        if (w->stride[2] == 1)
            take_columns(column + k * w->dilation[2], 1, n, k == 0, y);
        else if (w->stride[2] == 2)
            take_columns(column + k * w->dilation[2], 2, n, k == 0, y);
        else
            take_columns(column + k * w->dilation[2], w->stride[2], n, k == 0, y);
}

static void pool_planes(void *arg, size_t begin, size_t end, int thread)
{
    const pool_job *job = (const pool_job *)arg;
    (void)thread;
    for (size_t plane = begin; plane < end; plane++)
        for (size_t p = 0; p < job->w.n_out;) {
            int64_t o[3];
            pome_window_split(job->w.out, p, o);
            int64_t n = job->w.out[2] - o[2] < CHUNK ? job->w.out[2] - o[2] : CHUNK;
            const float *x = job->x + plane * job->w.n_in;
            if (job->kind == POOL_MAX && job->w.kernel[2] <= REACH_MAX && columns_seen(&job->w, n) <= REACH_MAX)
                max_chunk(job, x, o, n, job->y + plane * job->w.n_out + p);
            else
                pool_chunk(job, x, o, n, job->y + plane * job->w.n_out + p);
            p += (size_t)n;
        }
}

static pome_status run_pool(const pome_run *r, pool_job *job, const pome_window_params *params, uint32_t x_param,
                            uint32_t kernel_param, pome_error *err)
{
    const pome_tensor *x = pome_in(r, x_param), *sizes = pome_in(r, kernel_param);
    int64_t kernel[3] = {1, 1, 1}, n = pome_tensor_count(sizes);
    if (n != x->rank - 2 || n > 3)
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "kernel_sizes has %lld elements, x has rank %d", (long long)n,
                            (int)x->rank);
    for (int64_t d = 0; d < n; d++)
        kernel[d] = pome_tensor_int_at(sizes, d);
    POME_TRY(pome_window_init(&job->w, r, params, x, &r->out[0], kernel, err));
    job->x = (const float *)x->data;
    job->y = (float *)r->out[0].data;
    if (job->w.n_out)
        pome_pool_run_near(r->pool, (size_t)x->shape[0] * (size_t)x->shape[1], 1, pool_planes, job);
    return POME_OK;
}

static pome_status avg_pool_run(const pome_run *r, pome_error *err)
{
    pool_job job = {.kind = POOL_AVG,
                    .exclude_padding = pome_in_bool(r, P_avg_pool_exclude_padding_from_average, false)};
    return run_pool(r, &job, &(pome_window_params){P_avg_pool_strides, P_avg_pool_pad_type, P_avg_pool_pad, -1},
                    P_avg_pool_x, P_avg_pool_kernel_sizes, err);
}
static pome_status max_pool_run(const pome_run *r, pome_error *err)
{
    pool_job job = {.kind = POOL_MAX};
    return run_pool(r, &job, &(pome_window_params){P_max_pool_strides, P_max_pool_pad_type, P_max_pool_pad, -1},
                    P_max_pool_x, P_max_pool_kernel_sizes, err);
}
static pome_status l2_pool_run(const pome_run *r, pome_error *err)
{
    pool_job job = {.kind = POOL_L2};
    return run_pool(r, &job, &(pome_window_params){P_l2_pool_strides, P_l2_pool_pad_type, P_l2_pool_pad, -1},
                    P_l2_pool_x, P_l2_pool_kernel_sizes, err);
}

const pome_op_impl pome_ops_pool_window[] = {
    {.id = POME_OP_avg_pool, .run = avg_pool_run},
    {.id = POME_OP_max_pool, .run = max_pool_run},
    {.id = POME_OP_l2_pool, .run = l2_pool_run},
};
POME_FAMILY_COUNT(pool_window)
