/* softmax along one axis, shifted by the maximum. Sums run in a fixed order: 16 lanes along a row, in double down a
 * column. A row of -inf alone (every position masked) gives zeros, and NaN in fp16 mode, as a device does; a row with
 * NaN or +inf is NaN. */
#include "ops/axes.h"
#include "ops/families.h"
#include "kernels/vecmath.h"

#include <math.h>
#include <string.h>

enum { LANES = 16, COLUMNS = 64, GRAIN = 4096 };

typedef struct softmax {
    pome_axis_view v;
    const float *x;
    float *out;
    float masked; /* what fully masked rows are filled with */
} softmax;

/* NaN is passed over; it comes back in the exponentials. */
static float row_max(const float *x, int64_t n)
{
    float lane[LANES];
    for (int l = 0; l < LANES; l++)
        lane[l] = -INFINITY;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (int l = 0; i < n; i++, l++)
        lane[l] = x[i] > lane[l] ? x[i] : lane[l];
    for (int l = 1; l < LANES; l++)
        lane[0] = lane[l] > lane[0] ? lane[l] : lane[0];
    return lane[0];
}

static float row_exp_sum(float *out, const float *x, int64_t n, float max)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = pome_expf(x[i] - max);
    float lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += out[i + l];
    for (int l = 0; i < n; i++, l++)
        lane[l] += out[i];
    for (int half = LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

static void softmax_row(const softmax *s, float *out, const float *x)
{
    int64_t n = s->v.n;
    float max = row_max(x, n);
    if (max == -INFINITY) { /* x - x is NaN for each of them; keep only the NaNs of the row */
        float nan = 0.0f;
        for (int64_t i = 0; i < n; i++)
            nan = x[i] != x[i] ? x[i] : nan;
        for (int64_t i = 0; i < n; i++)
            out[i] = nan != nan ? nan : s->masked;
        return;
    }
    float scale = 1.0f / row_exp_sum(out, x, n, max);
    for (int64_t i = 0; i < n; i++)
        out[i] *= scale;
}

static void run_rows(void *arg, size_t begin, size_t end, int thread)
{
    const softmax *s = arg;
    (void)thread;
    for (size_t row = begin; row < end; row++)
        softmax_row(s, s->out + row * (size_t)s->v.n, s->x + row * (size_t)s->v.n);
}

/* width columns side by side, inner apart from row to row */
static void softmax_columns(const softmax *s, float *out, const float *x, int64_t width)
{
    int64_t n = s->v.n, inner = s->v.inner;
    float max[COLUMNS], scale[COLUMNS];
    double sum[COLUMNS] = {0};
    bool has_nan[COLUMNS] = {false};
    for (int64_t j = 0; j < width; j++)
        max[j] = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++) {
            float v = x[i * inner + j];
            max[j] = v > max[j] ? v : max[j];
            has_nan[j] = has_nan[j] | (v != v);
        }
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++) {
            float e = pome_expf(x[i * inner + j] - max[j]);
            out[i * inner + j] = e;
            sum[j] += (double)e;
        }
    for (int64_t j = 0; j < width; j++)
        scale[j] = (float)(1.0 / sum[j]);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < width; j++)
            out[i * inner + j] *= scale[j];
    for (int64_t j = 0; j < width; j++)
        if (max[j] == -INFINITY)
            for (int64_t i = 0; i < n; i++)
                out[i * inner + j] = has_nan[j] ? NAN : s->masked;
}

static void run_columns(void *arg, size_t begin, size_t end, int thread)
{
    const softmax *s = arg;
    int64_t blocks = (s->v.inner + COLUMNS - 1) / COLUMNS;
    (void)thread;
    for (int64_t b = (int64_t)begin; b < (int64_t)end; b++) {
        int64_t first = b % blocks * COLUMNS;
        int64_t width = s->v.inner - first < COLUMNS ? s->v.inner - first : COLUMNS;
        int64_t at = b / blocks * s->v.n * s->v.inner + first;
        softmax_columns(s, s->out + at, s->x + at, width);
    }
}

static pome_status run_softmax(const pome_run *r, pome_error *err)
{
    const pome_tensor *x = pome_in(r, P_softmax_x);
    if (x->dtype != POME_DTYPE_F32 || r->out[0].dtype != POME_DTYPE_F32)
        return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "x is %s", pome_dtype_name(x->dtype));
    softmax s = {{1, 1, 1}, x->data, r->out[0].data, r->numerics == POME_NUMERICS_FP16 ? NAN : 0.0f};
    if (x->rank > 0) {
        int32_t axis;
        POME_TRY(pome_axis_get(r, pome_in_int(r, P_softmax_axis, -1), x->rank, &axis, err));
        s.v = pome_axis_view_of(x, axis);
    }
    int64_t width = s.v.inner < COLUMNS ? s.v.inner : COLUMNS;
    int64_t unit = s.v.n * width;
    size_t grain = unit <= 0 || unit >= GRAIN ? 1 : (size_t)(GRAIN / unit);
    if (pome_tensor_count(x) == 0)
        return POME_OK;
    if (s.v.inner == 1)
        pome_pool_run(r->pool, (size_t)s.v.outer, grain, run_rows, &s);
    else
        pome_pool_run(r->pool, (size_t)(s.v.outer * ((s.v.inner + COLUMNS - 1) / COLUMNS)), grain, run_columns, &s);
    return POME_OK;
}

const pome_op_impl pome_ops_softmax[] = {
    {.id = POME_OP_softmax, .run = run_softmax},
};
POME_FAMILY_COUNT(softmax)
