/* upsample_*, resize_*, resize: samples on a regular grid along the last axes. Each resized axis has a table of two
 * neighbours and a weight; rows are blended over the outer axes first, then along the last one. */
#include "ops/families.h"
#include "ops/grid.h"

enum { MAX_TABLES = POME_MAX_RANK };

typedef struct sample {
    int32_t low, high; /* positions in the input */
    double weight;     /* of high */
} sample;

typedef struct resizing {
    const pome_run *r;
    int32_t rank;
    pome_sampling mode;
    bool is_nearest;
    bool is_rounded; /* nearest: not rounded down in DEFAULT mode */
    const sample *table[MAX_TABLES]; /* by axis; NULL: not resized */
    float *rows;                     /* [threads, n_in of the last axis] */
} resizing;

/* The pixel for a position. DEFAULT mode: rounded down by the operators of iOS 15, where i * n_in / n is the left edge of
 * the i-th share; to the nearest by iOS 17's resize (coremltools' test of it tells the two apart), halves down so that
 * doubling an image repeats each pixel twice. Other modes: to the nearest, halves up. */
static int32_t nearest(const resizing *z, double at, double last)
{
    double pixel = z->mode != POME_SAMPLING_DEFAULT ? floor(at + 0.5) : z->is_rounded ? ceil(at - 0.5) : floor(at);
    return (int32_t)pome_grid_clamp(pixel, 0, last);
}

static void fill_table(const resizing *z, sample *table, int64_t n_in, int64_t n)
{
    double last = (double)n_in - 1;
    for (int64_t i = 0; i < n; i++) {
        double at = pome_grid_at(z->mode, (double)n_in, (double)n, (double)i);
        if (z->is_nearest) {
            table[i] = (sample){nearest(z, at, last), nearest(z, at, last), 0};
            continue;
        }
        at = pome_grid_clamp(at, 0, last);
        int32_t low = (int32_t)at;
        table[i] = (sample){low, (double)low < last ? low + 1 : low, at - low};
    }
}

/* Offset of the input row for one choice of neighbours (bit d of `corner`: the high one on axis d) and its weight. */
static int64_t corner_of(const resizing *z, const int64_t *index, uint32_t corner, double *weight)
{
    const pome_tensor *x = pome_in(z->r, 0);
    int64_t at = 0;
    *weight = 1;
    for (int32_t d = 0; d < z->rank - 1; d++) {
        int64_t i = index[d];
        if (z->table[d]) {
            const sample *s = &z->table[d][i];
            bool high = corner >> d & 1;
            i = high ? s->high : s->low;
            *weight *= high ? s->weight : 1 - s->weight;
        }
        at = at * x->shape[d] + i;
    }
    return at * x->shape[z->rank - 1];
}

static uint32_t resized_outer_axes(const resizing *z)
{
    uint32_t mask = 0;
    for (int32_t d = 0; d < z->rank - 1; d++)
        mask |= z->table[d] ? 1u << d : 0;
    return mask;
}

static int32_t as_int(double v)
{
    return v >= 2147483647.0 ? INT32_MAX : v > -2147483648.0 ? (int32_t)v : INT32_MIN;
}

/* One input row, blended over the outer axes: a view of x where one row alone counts. */
static const float *blend(const resizing *z, const float *x, const int64_t *index, float *row)
{
    uint32_t axes = resized_outer_axes(z), corner = axes;
    size_t n = (size_t)pome_in(z->r, 0)->shape[z->rank - 1];
    double weight;
    const float *only = NULL;
    bool is_first = true;
    do { /* all subsets of `axes` */
        int64_t at = corner_of(z, index, corner, &weight);
        if (weight == 1)
            only = x + at;
        else if (weight > 0) {
            if (is_first)
                memset(row, 0, n * sizeof *row);
            is_first = false;
            for (size_t j = 0; j < n; j++)
                row[j] += (float)weight * x[(size_t)at + j];
        }
        corner = (corner - 1) & axes;
    } while (corner != axes);
    return only ? only : row;
}

static void along_row(const sample *table, const float *from, float *to, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        const sample *s = &table[j];
        float high = (float)s->weight;
        to[j] = high > 0 ? from[s->low] * (1 - high) + from[s->high] * high : from[s->low];
    }
}

static void index_of(const pome_tensor *out, size_t row, int64_t *index)
{
    for (int32_t d = out->rank - 2; d >= 0; d--) {
        index[d] = (int64_t)(row % (size_t)out->shape[d]);
        row /= (size_t)out->shape[d];
    }
}

static void resize_rows(void *arg, size_t begin, size_t end, int thread)
{
    const resizing *z = (const resizing *)arg;
    const pome_tensor *x = pome_in(z->r, 0), *out = &z->r->out[0];
    size_t n_in = (size_t)x->shape[z->rank - 1], n = (size_t)out->shape[z->rank - 1];
    const sample *last = z->table[z->rank - 1];
    for (size_t row = begin; row < end; row++) {
        int64_t index[POME_MAX_RANK];
        float *to = (float *)out->data + row * n;
        index_of(out, row, index);
        const float *from = blend(z, (const float *)x->data, index, z->rows + (size_t)thread * n_in);
        if (last)
            along_row(last, from, to, n);
        else
            memcpy(to, from, n * sizeof *to);
    }
}

/* The same for int32, element by element in double. Fractions are cut off, from what lies within the error of the
 * arithmetic below a whole number not. */
static void resize_ints(void *arg, size_t begin, size_t end, int thread)
{
    const resizing *z = (const resizing *)arg;
    const pome_tensor *x = pome_in(z->r, 0), *out = &z->r->out[0];
    const sample *last = z->table[z->rank - 1];
    size_t n = (size_t)out->shape[z->rank - 1];
    uint32_t axes = resized_outer_axes(z);
    (void)thread;
    for (size_t row = begin; row < end; row++) {
        int64_t index[POME_MAX_RANK];
        index_of(out, row, index);
        for (size_t j = 0; j < n; j++) {
            sample s = last ? last[j] : (sample){(int32_t)j, (int32_t)j, 0};
            double sum = 0, weight;
            uint32_t corner = axes;
            do {
                const int32_t *from = (const int32_t *)x->data + corner_of(z, index, corner, &weight);
                sum += weight * (from[s.low] * (1 - s.weight) + from[s.high] * s.weight);
                corner = (corner - 1) & axes;
            } while (corner != axes);
            ((int32_t *)out->data)[row * n + j] = as_int(sum + (sum > 0 ? 1e-6 : -1e-6));
        }
    }
}

static size_t tables_bytes(const pome_tensor *out, int32_t n_resized)
{
    size_t n = 0;
    for (int32_t d = out->rank - n_resized; d < out->rank; d++)
        n += (size_t)out->shape[d];
    return (n * sizeof(sample) + 63) / 64 * 64;
}

static size_t resizing_scratch(const pome_run *r, int32_t n_resized)
{
    const pome_tensor *x = pome_in(r, 0), *out = &r->out[0];
    if (out->rank == 0)
        return 0;
    return tables_bytes(out, n_resized) +
           (size_t)pome_pool_n_threads(r->pool) * (size_t)x->shape[x->rank - 1] * sizeof(float);
}

static pome_status run_resizing(const pome_run *r, int32_t n_resized, pome_sampling mode, bool is_nearest,
                                pome_error *err)
{
    const pome_tensor *x = pome_in(r, 0), *out = &r->out[0];
    resizing z = {.r = r, .rank = x->rank, .mode = mode, .is_nearest = is_nearest};
    z.is_rounded = r->op->def->id == POME_OP_resize;
    sample *room = (sample *)r->scratch;
    if (pome_tensor_count(out) == 0)
        return POME_OK;
    if (pome_tensor_count(x) == 0)
        return pome_op_fail(r->op, err, POME_ERR_ARG, "there is nothing to enlarge: x is empty");
    if (x->rank == 0) {
        memcpy(out->data, x->data, 4);
        return POME_OK;
    }
    for (int32_t d = x->rank - n_resized; d < x->rank; d++) {
        if (out->shape[d] == x->shape[d] && mode != POME_SAMPLING_OFFSET_CORNERS)
            continue; /* all other grids are the identity for equal sizes */
        fill_table(&z, room, x->shape[d], out->shape[d]);
        z.table[d] = room;
        room += out->shape[d];
    }
    z.rows = (float *)(void *)((char *)r->scratch + tables_bytes(out, n_resized));
    size_t n = (size_t)out->shape[x->rank - 1], rows = (size_t)pome_tensor_count(out) / n;
    pome_pool_run(r->pool, rows, n >= 4096 ? 1 : 4096 / n, x->dtype == POME_DTYPE_F32 ? resize_rows : resize_ints, &z);
    return POME_OK;
}

/* ---- the operators ---- */

static size_t scratch_2d(const pome_run *r)
{
    return resizing_scratch(r, 2);
}

static pome_status resize_nearest_neighbor_run(const pome_run *r, pome_error *err)
{
    return run_resizing(r, 2, POME_SAMPLING_DEFAULT, true, err);
}
static pome_status upsample_nearest_neighbor_run(const pome_run *r, pome_error *err)
{
    return run_resizing(r, 2, POME_SAMPLING_DEFAULT, true, err); /* the scale is that of the sizes */
}
static pome_status resize_bilinear_run(const pome_run *r, pome_error *err)
{
    return run_resizing(r, 2, pome_sampling_named(pome_op_str(r->op, P_resize_bilinear_sampling_mode, "DEFAULT")), false,
                        err);
}
static pome_status upsample_bilinear_run(const pome_run *r, pome_error *err)
{
    bool align = pome_in_bool(r, P_upsample_bilinear_align_corners, true);
    bool half = pome_in_bool(r, P_upsample_bilinear_half_pixel_centers, !align);
    if (align && half)
        return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "align_corners and half_pixel_centers are both true");
    return run_resizing(r, 2, align  ? POME_SAMPLING_STRICT_ALIGN_CORNERS
                              : half ? POME_SAMPLING_UNALIGN_CORNERS
                                     : POME_SAMPLING_DEFAULT,
                        false, err);
}

static int32_t resized_dims(const pome_run *r)
{
    int64_t n = pome_in_int(r, P_resize_resized_dims, 0);
    return n < 0 ? 0 : n > r->out[0].rank ? r->out[0].rank : (int32_t)n;
}
static size_t resize_scratch(const pome_run *r)
{
    return resizing_scratch(r, resized_dims(r));
}
static pome_status resize_run(const pome_run *r, pome_error *err)
{
    bool is_nearest = strcmp(pome_op_str(r->op, P_resize_interpolation_mode, "LINEAR"), "NEAREST_NEIGHBOR") == 0;
    return run_resizing(r, resized_dims(r), pome_sampling_named(pome_op_str(r->op, P_resize_sampling_mode, "DEFAULT")),
                        is_nearest, err);
}

const pome_op_impl pome_ops_resize[] = {
    {.id = POME_OP_resize_nearest_neighbor, .scratch = scratch_2d, .run = resize_nearest_neighbor_run},
    {.id = POME_OP_upsample_nearest_neighbor, .scratch = scratch_2d, .run = upsample_nearest_neighbor_run},
    {.id = POME_OP_resize_bilinear, .scratch = scratch_2d, .run = resize_bilinear_run},
    {.id = POME_OP_upsample_bilinear, .scratch = scratch_2d, .run = upsample_bilinear_run},
    {.id = POME_OP_resize, .scratch = resize_scratch, .run = resize_run},
};
POME_FAMILY_COUNT(resize)
