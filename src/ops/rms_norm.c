/* pome_rms_norm: x / sqrt(mean(x^2) + epsilon) * gamma along one axis, and pome_add_rms_norm, which first adds two values
 * and gives the sum too. Squares are summed in double, in 8 lanes or one by one along a strided axis, so a row comes out
 * the same in any company. */
#include "ops/elementwise.h"
#include "ops/families.h"

#include <math.h>

enum { LANES = 8, COLUMNS = 64, GRAIN = 16384 };

typedef struct rms_norm {
    int64_t n, inner; /* [outer, n, inner] */
    const float *x, *y; /* y: added to x first, or NULL */
    const float *gamma; /* [n] or NULL */
    float *sum;         /* x + y, where y is given */
    float *out;
    double epsilon;
} rms_norm;

static double square_sum(const float *x, int64_t n)
{
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += (double)x[i + l] * (double)x[i + l];
    for (int l = 0; i < n; i++, l++)
        lane[l] += (double)x[i] * (double)x[i];
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static void normalize_row(const rms_norm *c, int64_t row)
{
    const float *x = c->x + row * c->n;
    float *out = c->out + row * c->n;
    if (c->y) {
        const float *y = c->y + row * c->n;
        float *sum = c->sum + row * c->n;
        for (int64_t i = 0; i < c->n; i++)
            sum[i] = x[i] + y[i];
        x = sum;
    }
    float scale = (float)(1.0 / sqrt(square_sum(x, c->n) / (double)c->n + c->epsilon));
    if (c->gamma)
        for (int64_t i = 0; i < c->n; i++)
            out[i] = x[i] * scale * c->gamma[i];
    else
        for (int64_t i = 0; i < c->n; i++)
            out[i] = x[i] * scale;
}

/* `width` columns from `column` on of one [n, inner] matrix */
static void normalize_columns(const rms_norm *c, int64_t outer, int64_t column, int64_t width)
{
    int64_t base = outer * c->n * c->inner + column;
    double total[COLUMNS] = {0};
    float scale[COLUMNS];
    const float *x = c->y ? c->sum : c->x;
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t j = 0; j < width; j++) {
            int64_t at = base + i * c->inner + j;
            if (c->y)
                c->sum[at] = c->x[at] + c->y[at];
            total[j] += (double)x[at] * (double)x[at];
        }
    for (int64_t j = 0; j < width; j++)
        scale[j] = (float)(1.0 / sqrt(total[j] / (double)c->n + c->epsilon));
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t j = 0; j < width; j++) {
            int64_t at = base + i * c->inner + j;
            c->out[at] = c->gamma ? x[at] * scale[j] * c->gamma[i] : x[at] * scale[j];
        }
}

static void normalize(void *arg, size_t begin, size_t end, int thread)
{
    const rms_norm *c = arg;
    (void)thread;
    for (int64_t at = (int64_t)begin; at < (int64_t)end;) {
        if (c->inner == 1) {
            normalize_row(c, at++);
            continue;
        }
        int64_t column = at % c->inner, width = c->inner - column < COLUMNS ? c->inner - column : COLUMNS;
        width = width < (int64_t)end - at ? width : (int64_t)end - at;
        normalize_columns(c, at / c->inner, column, width);
        at += width;
    }
}

static void row_add(void *out, const void *const *in, const ptrdiff_t *stride, size_t n, const void *param)
{
    float *o = out;
    const float *x = in[0], *y = in[1];
    (void)param;
    for (size_t i = 0; i < n; i++)
        o[i] = x[(ptrdiff_t)i * stride[0]] + y[(ptrdiff_t)i * stride[1]];
}

/* Parameters gamma, epsilon and axis; out[last] is the result, out[0] the sum if there are two. */
static pome_status run_norm(const pome_run *r, uint32_t gamma, uint32_t epsilon, uint32_t axis, rms_norm *c, pome_error *err)
{
    const pome_tensor *out = &r->out[0], *g = pome_in(r, gamma);
    int64_t at = pome_in_int(r, axis, -1), outer = 1;
    at = at < 0 ? at + out->rank : at;
    if (at < 0 || at >= out->rank || out->dtype != POME_DTYPE_F32 || pome_in(r, 0)->dtype != POME_DTYPE_F32)
        return pome_op_fail(r->op, err, POME_ERR_ARG, "x is %s of rank %d, axis is %lld", pome_dtype_name(out->dtype),
                            (int)out->rank, (long long)at);
    c->n = out->shape[at];
    c->inner = 1;
    for (int32_t d = 0; d < out->rank; d++)
        *(d < at ? &outer : d > at ? &c->inner : &(int64_t){0}) *= out->shape[d];
    if (g && (pome_tensor_count(g) != c->n || g->dtype != POME_DTYPE_F32))
        return pome_op_fail(r->op, err, POME_ERR_ARG, "gamma has %lld elements of %s, wanted %lld of fp32",
                            (long long)pome_tensor_count(g), pome_dtype_name(g->dtype), (long long)c->n);
    c->gamma = g ? g->data : NULL;
    c->epsilon = pome_in_float(r, epsilon, 0);
    c->out = r->out[r->op->n_out - 1].data;
    size_t grain = c->n >= GRAIN ? 1 : (size_t)(GRAIN / (c->n + 1)) + 1;
    if (c->n > 0)
        pome_pool_run(r->pool, (size_t)(outer * c->inner), grain, normalize, c);
    return POME_OK;
}

static pome_status run_rms_norm(const pome_run *r, pome_error *err)
{
    rms_norm c = {.x = pome_in(r, P_pome_rms_norm_x)->data};
    return run_norm(r, P_pome_rms_norm_gamma, P_pome_rms_norm_epsilon, P_pome_rms_norm_axis, &c, err);
}

static pome_status run_add_rms_norm(const pome_run *r, pome_error *err)
{
    const pome_tensor *in[2] = {pome_in(r, P_pome_add_rms_norm_x), pome_in(r, P_pome_add_rms_norm_y)};
    int64_t n = pome_tensor_count(&r->out[0]);
    rms_norm c = {.x = in[0]->data, .y = in[1]->data, .sum = r->out[0].data};
    if (pome_tensor_count(in[0]) != n || pome_tensor_count(in[1]) != n) { /* one is broadcast */
        POME_TRY(pome_elementwise_run(r, row_add, in, 2, NULL, 1, err));
        c = (rms_norm){.x = r->out[0].data};
    }
    return run_norm(r, P_pome_add_rms_norm_gamma, P_pome_add_rms_norm_epsilon, P_pome_add_rms_norm_axis, &c, err);
}

const pome_op_impl pome_ops_rms_norm[] = {
    {.id = POME_OP_pome_rms_norm, .run = run_rms_norm},
    {.id = POME_OP_pome_add_rms_norm, .run = run_add_rms_norm},
};
POME_FAMILY_COUNT(rms_norm)
