/* Normalizations: mean first, then the variance of what is left, both in double. The order of every sum depends on the
 * shape alone. */
#include "ops/axes.h"
#include "ops/families.h"
#include "ops/unary.h"

#include <math.h>

enum { LANES = 8, COLUMNS = 64, GRAIN = 8192 };

static size_t grain_of(int64_t elements_each)
{
    return elements_each <= 0 || elements_each >= GRAIN ? 1 : (size_t)(GRAIN / elements_each);
}

static double merge_lanes(double *lane)
{
    for (int half = LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}
static double row_sum(const float *x, int64_t n)
{
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += (double)x[i + l];
    for (int l = 0; i < n; i++, l++)
        lane[l] += (double)x[i];
    return merge_lanes(lane);
}
/* sum (x - mean)^2 */
static double row_square_sum(const float *x, int64_t n, double mean)
{
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += ((double)x[i + l] - mean) * ((double)x[i + l] - mean);
    for (int l = 0; i < n; i++, l++)
        lane[l] += ((double)x[i] - mean) * ((double)x[i] - mean);
    return merge_lanes(lane);
}

/* Parameter 0 and the result are fp32, as all of these operators want. */
static pome_status check_float(const pome_run *r, pome_error *err)
{
    const pome_tensor *x = pome_in(r, 0);
    if (x->dtype == POME_DTYPE_F32 && r->out[0].dtype == POME_DTYPE_F32)
        return POME_OK;
    return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "x is %s", pome_dtype_name(x->dtype));
}
/* The data of an optional vector of n floats, NULL if it is not given. */
static pome_status get_vector(const pome_run *r, uint32_t param, int64_t n, const float **out, pome_error *err)
{
    const pome_tensor *t = pome_in(r, param);
    *out = NULL;
    if (!t)
        return POME_OK;
    if (pome_tensor_count(t) != n || t->dtype != POME_DTYPE_F32)
        return pome_op_fail(r->op, err, POME_ERR_ARG, "%s has %lld elements of %s, wanted %lld of fp32",
                            r->op->def->params[param].name, (long long)pome_tensor_count(t),
                            pome_dtype_name(t->dtype), (long long)n);
    *out = t->data;
    return POME_OK;
}

/* ---- layer_norm ---- */

typedef struct layer_norm {
    pome_axes axes;
    const float *x, *gamma, *beta; /* gamma, beta: [axes.reduced.count] or NULL */
    float *out;
    double epsilon;
} layer_norm;

static inline float affine(const layer_norm *c, double v, int64_t i)
{
    v = c->gamma ? v * (double)c->gamma[i] : v;
    return (float)(c->beta ? v + (double)c->beta[i] : v);
}

static void layer_norm_row(const layer_norm *c, int64_t base)
{
    const pome_axis_group *g = &c->axes.reduced;
    int64_t run = g->n ? g->size[g->n - 1] : 1;
    double sum = 0, square_sum = 0;
    for (int64_t i = 0; i < g->count; i += run)
        sum += row_sum(c->x + base + pome_axis_offset(g, i), run);
    double mean = sum / (double)g->count;
    for (int64_t i = 0; i < g->count; i += run)
        square_sum += row_square_sum(c->x + base + pome_axis_offset(g, i), run, mean);
    double scale = 1.0 / sqrt(square_sum / (double)g->count + c->epsilon);
    for (int64_t i = 0; i < g->count; i += run) {
        int64_t at = base + pome_axis_offset(g, i);
        for (int64_t j = 0; j < run; j++)
            c->out[at + j] = affine(c, ((double)c->x[at + j] - mean) * scale, i + j);
    }
}

/* width groups side by side */
static void layer_norm_columns(const layer_norm *c, int64_t base, int64_t width)
{
    const pome_axis_group *g = &c->axes.reduced;
    double mean[COLUMNS] = {0}, scale[COLUMNS] = {0};
    for (int64_t i = 0; i < g->count; i++) {
        const float *x = c->x + base + pome_axis_offset(g, i);
        for (int64_t j = 0; j < width; j++)
            mean[j] += (double)x[j];
    }
    for (int64_t j = 0; j < width; j++)
        mean[j] /= (double)g->count;
    for (int64_t i = 0; i < g->count; i++) {
        const float *x = c->x + base + pome_axis_offset(g, i);
        for (int64_t j = 0; j < width; j++)
            scale[j] += ((double)x[j] - mean[j]) * ((double)x[j] - mean[j]);
    }
    for (int64_t j = 0; j < width; j++)
        scale[j] = 1.0 / sqrt(scale[j] / (double)g->count + c->epsilon);
    for (int64_t i = 0; i < g->count; i++) {
        int64_t at = base + pome_axis_offset(g, i);
        for (int64_t j = 0; j < width; j++)
            c->out[at + j] = affine(c, ((double)c->x[at + j] - mean[j]) * scale[j], i);
    }
}

static void run_layer_norm_chunk(void *arg, size_t begin, size_t end, int thread)
{
    const layer_norm *c = arg;
    const pome_axis_group *kept = &c->axes.kept;
    bool is_row = c->axes.is_inner_reduced;
    int64_t run = kept->n && !is_row ? kept->size[kept->n - 1] : 1;
    (void)thread;
    for (int64_t at = (int64_t)begin; at < (int64_t)end;) {
        int64_t n = run - at % run;
        n = n < COLUMNS ? n : COLUMNS;
        n = n < (int64_t)end - at ? n : (int64_t)end - at;
        int64_t base = pome_axis_offset(kept, at);
        if (is_row)
            layer_norm_row(c, base);
        else
            layer_norm_columns(c, base, n);
        at += n;
    }
}

static pome_status run_layer_norm(const pome_run *r, pome_error *err)
{
    POME_TRY(check_float(r, err));
    const pome_tensor *x = pome_in(r, P_layer_norm_x);
    layer_norm c = {.x = x->data, .out = r->out[0].data};
    c.epsilon = (double)pome_in_default(r, P_layer_norm_epsilon, 1e-5f);
    uint32_t mask;
    POME_TRY(pome_axes_mask(r, pome_in(r, P_layer_norm_axes), x->rank, &mask, err));
    pome_axes_split(&c.axes, x, mask);
    POME_TRY(get_vector(r, P_layer_norm_gamma, c.axes.reduced.count, &c.gamma, err));
    POME_TRY(get_vector(r, P_layer_norm_beta, c.axes.reduced.count, &c.beta, err));
    if (pome_tensor_count(x) > 0)
        pome_pool_run(r->pool, (size_t)c.axes.kept.count, grain_of(c.axes.reduced.count), run_layer_norm_chunk, &c);
    return POME_OK;
}

/* ---- one contiguous row per (n, channel), or per batch ---- */

typedef struct rows {
    const float *x, *gamma, *beta, *mean, *variance; /* [n_channels], gamma and beta may be NULL */
    float *out;
    int64_t n_channels, n; /* n: elements of a row */
    double epsilon;
} rows;

static void scale_row(const rows *c, int64_t row, double mean, double scale)
{
    int64_t channel = row % c->n_channels;
    double gamma = c->gamma ? (double)c->gamma[channel] : 1.0, beta = c->beta ? (double)c->beta[channel] : 0.0;
    const float *x = c->x + row * c->n;
    float *out = c->out + row * c->n;
    for (int64_t i = 0; i < c->n; i++)
        out[i] = (float)(((double)x[i] - mean) * scale * gamma + beta);
}

static void run_batch_norm_rows(void *arg, size_t begin, size_t end, int thread)
{
    const rows *c = arg;
    (void)thread;
    for (int64_t row = (int64_t)begin; row < (int64_t)end; row++) {
        int64_t channel = row % c->n_channels;
        scale_row(c, row, (double)c->mean[channel], 1.0 / sqrt((double)c->variance[channel] + c->epsilon));
    }
}
static void run_instance_norm_rows(void *arg, size_t begin, size_t end, int thread)
{
    const rows *c = arg;
    (void)thread;
    for (int64_t row = (int64_t)begin; row < (int64_t)end; row++) {
        const float *x = c->x + row * c->n;
        double mean = row_sum(x, c->n) / (double)c->n;
        double variance = row_square_sum(x, c->n, mean) / (double)c->n;
        scale_row(c, row, mean, 1.0 / sqrt(variance + c->epsilon));
    }
}
static void run_l2_norm_rows(void *arg, size_t begin, size_t end, int thread)
{
    const rows *c = arg;
    (void)thread;
    for (int64_t row = (int64_t)begin; row < (int64_t)end; row++)
        scale_row(c, row, 0.0, 1.0 / sqrt(row_square_sum(c->x + row * c->n, c->n, 0.0) + c->epsilon));
}

/* Cuts x into rows that take all axes from `axis` on. */
static pome_status make_rows(const pome_run *r, int32_t axis, rows *c, int64_t *n_rows, pome_error *err)
{
    POME_TRY(check_float(r, err));
    const pome_tensor *x = pome_in(r, 0);
    if (x->rank < axis || axis < 0)
        return pome_op_fail(r->op, err, POME_ERR_ARG, "x has rank %d, which is too low", (int)x->rank);
    *c = (rows){.x = x->data, .out = r->out[0].data, .n_channels = 1, .n = 1};
    *n_rows = 1;
    for (int32_t d = 0; d < x->rank; d++)
        *(d < axis ? n_rows : &c->n) *= x->shape[d];
    return POME_OK;
}

static pome_status run_batch_norm(const pome_run *r, pome_error *err)
{
    rows c = {0};
    int64_t n_rows = 0;
    POME_TRY(make_rows(r, 2, &c, &n_rows, err));
    c.n_channels = pome_in(r, P_batch_norm_x)->shape[1];
    c.epsilon = (double)pome_in_default(r, P_batch_norm_epsilon, 1e-5f);
    POME_TRY(get_vector(r, P_batch_norm_mean, c.n_channels, &c.mean, err));
    POME_TRY(get_vector(r, P_batch_norm_variance, c.n_channels, &c.variance, err));
    POME_TRY(get_vector(r, P_batch_norm_gamma, c.n_channels, &c.gamma, err));
    POME_TRY(get_vector(r, P_batch_norm_beta, c.n_channels, &c.beta, err));
    if (n_rows > 0 && c.n > 0)
        pome_pool_run(r->pool, (size_t)n_rows, grain_of(c.n), run_batch_norm_rows, &c);
    return POME_OK;
}

static pome_status run_instance_norm(const pome_run *r, pome_error *err)
{
    rows c = {0};
    int64_t n_rows = 0;
    POME_TRY(make_rows(r, 2, &c, &n_rows, err));
    c.n_channels = pome_in(r, P_instance_norm_x)->shape[1];
    c.epsilon = (double)pome_in_default(r, P_instance_norm_epsilon, 1e-5f);
    POME_TRY(get_vector(r, P_instance_norm_gamma, c.n_channels, &c.gamma, err));
    POME_TRY(get_vector(r, P_instance_norm_beta, c.n_channels, &c.beta, err));
    if (n_rows > 0 && c.n > 0)
        pome_pool_run(r->pool, (size_t)n_rows, grain_of(c.n), run_instance_norm_rows, &c);
    return POME_OK;
}

/* Over the last three axes together. */
static pome_status run_l2_norm(const pome_run *r, pome_error *err)
{
    rows c = {0};
    int64_t n_rows = 0;
    POME_TRY(make_rows(r, pome_in(r, P_l2_norm_x)->rank - 3, &c, &n_rows, err));
    c.epsilon = (double)pome_in_default(r, P_l2_norm_epsilon, 1e-6f);
    if (n_rows > 0 && c.n > 0)
        pome_pool_run(r->pool, (size_t)n_rows, grain_of(c.n), run_l2_norm_rows, &c);
    return POME_OK;
}

/* ---- local_response_norm ---- */

typedef struct response {
    pome_axis_view v; /* [outer, channels, inner] */
    const float *x;
    float *out;
    int64_t size;
    double alpha, beta, k;
} response;

/* The window of channel c is [c - size / 2, c + (size - 1) / 2], as in torch; channels outside count as 0. */
static void run_response_channels(void *arg, size_t begin, size_t end, int thread)
{
    const response *c = arg;
    int64_t inner = c->v.inner;
    (void)thread;
    for (int64_t row = (int64_t)begin; row < (int64_t)end; row++) {
        int64_t channel = row % c->v.n;
        int64_t first = c->size / 2 < channel ? channel - c->size / 2 : 0;
        int64_t after = (c->size - 1) / 2;
        int64_t last = after < c->v.n - 1 - channel ? channel + after : c->v.n - 1;
        for (int64_t i = 0; i < inner; i++) {
            double sum = 0;
            for (int64_t w = first; w <= last; w++) {
                double v = (double)c->x[(row - channel + w) * inner + i];
                sum += v * v;
            }
            double divisor = pow(c->k + c->alpha / (double)c->size * sum, c->beta);
            c->out[row * inner + i] = (float)((double)c->x[row * inner + i] / divisor);
        }
    }
}

static pome_status run_local_response_norm(const pome_run *r, pome_error *err)
{
    POME_TRY(check_float(r, err));
    const pome_tensor *x = pome_in(r, P_local_response_norm_x);
    response c = {.x = x->data, .out = r->out[0].data, .size = pome_in_int(r, P_local_response_norm_size, 1)};
    if (x->rank < 2 || c.size < 1)
        return pome_op_fail(r->op, err, POME_ERR_ARG, "x has rank %d, size is %lld: wanted at least 2 and 1",
                            (int)x->rank, (long long)c.size);
    c.v = pome_axis_view_of(x, 1);
    c.alpha = (double)pome_in_default(r, P_local_response_norm_alpha, 1e-4f);
    c.beta = (double)pome_in_default(r, P_local_response_norm_beta, 0.75f);
    c.k = (double)pome_in_default(r, P_local_response_norm_k, 1.0f);
    if (pome_tensor_count(x) > 0)
        pome_pool_run(r->pool, (size_t)(c.v.outer * c.v.n), grain_of(c.v.inner * c.size), run_response_channels, &c);
    return POME_OK;
}

#define IMPL(op) {.id = POME_OP_##op, .run = run_##op}
const pome_op_impl pome_ops_normalization[] = {
    IMPL(batch_norm), IMPL(instance_norm), IMPL(l2_norm), IMPL(layer_norm), IMPL(local_response_norm),
};
POME_FAMILY_COUNT(normalization)
