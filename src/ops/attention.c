/* Attention in blocks of keys with a running maximum and sum, everything in fp32. The query rows of all heads that
 * share keys form one list; a thread takes up to ROWS of them and walks the keys in blocks of KEYS, so no more than
 * ROWS x KEYS scores exist at once. Blocks start at key 0 whatever the rows, and a key that is masked for a row
 * leaves its result untouched, so a row comes out the same in any company. */
#include "ops/attention.h"

#include <math.h>
#include <string.h>

#include "base/f16.h"
#include "ops/families.h"

enum { ROWS = 32, KEYS = 64 };

typedef struct shape {
    size_t n_batch;   /* product of the key's batch axes */
    size_t n_rows;    /* groups * L: query rows that share keys */
    size_t length, keys, width, width_v;
    size_t n_blocks;  /* of ROWS */
} shape;

typedef struct work { /* one thread's scratch */
    float *query;  /* [ROWS, width] */
    float *scores; /* [ROWS, KEYS] */
    float *mask;   /* [ROWS, KEYS] */
    float *key;    /* [KEYS, width] */
    float *value;  /* [KEYS, width_v] */
    float *acc;    /* [ROWS, width_v] */
    float *max, *sum; /* [ROWS] */
} work;

typedef struct attention_job {
    const pome_attention *a;
    const pome_kernels *kernels;
    shape s;
    float *scratch;
} attention_job;

static shape shape_of(const pome_attention *a)
{
    const pome_tensor *q = a->query, *k = a->key;
    int32_t rank = q->rank;
    shape s = {.n_batch = 1};
    for (int32_t d = 0; d < rank - 2; d++)
        s.n_batch *= (size_t)k->shape[d];
    s.length = (size_t)q->shape[rank - 2];
    s.n_rows = (size_t)a->groups * s.length;
    s.keys = (size_t)k->shape[rank - 2];
    s.width = (size_t)q->shape[rank - 1];
    s.width_v = (size_t)a->value->shape[rank - 1];
    s.n_blocks = (s.n_rows + ROWS - 1) / ROWS;
    return s;
}

static size_t scratch_floats(const shape *s) /* of one thread, in whole cache lines */
{
    size_t n = ROWS * (s->width + s->width_v + 2 * KEYS + 2) + KEYS * (s->width + s->width_v);
    return (n + 15) / 16 * 16;
}

size_t pome_attention_scratch(const pome_attention *a, int n_threads)
{
    shape s = shape_of(a);
    return (size_t)n_threads * scratch_floats(&s) * sizeof(float);
}

static work work_of(const attention_job *job, int thread)
{
    const shape *s = &job->s;
    work w;
    w.query = job->scratch + (size_t)thread * scratch_floats(s);
    w.scores = w.query + ROWS * s->width;
    w.mask = w.scores + ROWS * KEYS;
    w.key = w.mask + ROWS * KEYS;
    w.value = w.key + KEYS * s->width;
    w.acc = w.value + KEYS * s->width_v;
    w.max = w.acc + ROWS * s->width_v;
    w.sum = w.max + ROWS;
    return w;
}

/* Element offset of matrix `batch` (an index over `lead`'s batch axes, the last of them times `groups` plus head).
 * An axis of length 1 in t is repeated. */
static int64_t matrix_offset(const pome_tensor *t, const pome_tensor *lead, size_t batch, int64_t groups, int64_t head)
{
    int64_t offset = 0;
    int32_t shift = t->rank - lead->rank;
    for (int32_t d = lead->rank - 3; d >= 0; d--) {
        int64_t n = lead->shape[d], at = (int64_t)(batch % (size_t)n);
        batch /= (size_t)n;
        if (d == lead->rank - 3)
            at = at * groups + head;
        if (d + shift >= 0 && t->shape[d + shift] != 1)
            offset += at * t->stride[d + shift];
    }
    return offset;
}

/* n elements from `offset` on, `stride` apart, as fp32. */
static void load_row(const pome_kernels *k, const pome_tensor *t, int64_t offset, int64_t stride, size_t n, float *dst)
{
    if (t->dtype == POME_DTYPE_F16) {
        const uint16_t *src = (const uint16_t *)t->data + offset;
        if (stride == 1)
            k->f16_to_f32(dst, src, n);
        else
            for (size_t i = 0; i < n; i++)
                dst[i] = pome_f16_to_f32(src[(int64_t)i * stride]);
    } else {
        const float *src = (const float *)t->data + offset;
        if (stride == 1)
            memcpy(dst, src, n * sizeof *dst);
        else
            for (size_t i = 0; i < n; i++)
                dst[i] = src[(int64_t)i * stride];
    }
}

/* Rows [first, first + n) of a key or value matrix: in place if they lie so, else copied to dst. */
static const float *load_rows(const pome_kernels *k, const pome_tensor *t, int64_t offset, size_t first, size_t n,
                              float *dst, size_t *ld)
{
    int64_t row = t->stride[t->rank - 2], step = t->stride[t->rank - 1];
    size_t width = (size_t)t->shape[t->rank - 1];
    offset += (int64_t)first * row;
    if (t->dtype == POME_DTYPE_F32 && (step == 1 || width == 1) && row >= 0) {
        *ld = (size_t)row;
        return (const float *)t->data + offset;
    }
    *ld = width;
    if (step == 1 && row == (int64_t)width) {
        load_row(k, t, offset, 1, n * width, dst);
        return dst;
    }
    for (size_t i = 0; i < n; i++)
        load_row(k, t, offset + (int64_t)i * row, step, width, dst + i * width);
    return dst;
}

static float mask_at(const pome_tensor *t, int64_t offset)
{
    if (t->dtype == POME_DTYPE_F16)
        return pome_f16_to_f32(((const uint16_t *)t->data)[offset]);
    if (t->dtype == POME_DTYPE_F32)
        return ((const float *)t->data)[offset];
    return ((const uint8_t *)t->data)[offset] ? 0.0f : -INFINITY;
}

/* What is added to the scores of one row; true if some key may be attended to. */
static bool load_mask(const attention_job *job, int64_t offset, int64_t stride, size_t n, float *dst)
{
    const pome_tensor *t = job->a->mask;
    if (t->dtype == POME_DTYPE_BOOL || stride != 1)
        for (size_t i = 0; i < n; i++)
            dst[i] = mask_at(t, offset + (int64_t)i * stride);
    else
        load_row(job->kernels, t, offset, 1, n, dst);
    for (size_t i = 0; i < n; i++)
        if (!(dst[i] == -INFINITY))
            return true;
    return false;
}

/* Scores of one row into weights; brings its running maximum, sum and result up to date. */
static void absorb(const attention_job *job, const work *w, size_t i, size_t n)
{
    float *p = w->scores + i * KEYS, *acc = w->acc + i * job->s.width_v;
    float top = job->kernels->max_f32(p, n);
    if (top == -INFINITY) { /* nothing here, unless there are NaN */
        bool any = false;
        for (size_t j = 0; j < n; j++)
            any |= p[j] != p[j];
        if (any)
            w->sum[i] = NAN;
        memset(p, 0, n * sizeof *p);
        return;
    }
    if (top > w->max[i]) {
        float shrink = expf(w->max[i] - top); /* 0 the first time */
        for (size_t j = 0; j < job->s.width_v; j++)
            acc[j] *= shrink;
        w->sum[i] *= shrink;
        w->max[i] = top;
    }
    w->sum[i] += job->kernels->exp_sum_f32(p, w->max[i], n);
}

typedef struct row_place {
    int64_t query, mask; /* element offsets */
    size_t out;          /* row of the output */
} row_place;

static void place_rows(const attention_job *job, size_t batch, size_t first, size_t n, row_place *place)
{
    const pome_attention *a = job->a;
    int32_t rank = a->query->rank;
    for (size_t i = 0; i < n; i++) {
        size_t head = (first + i) / job->s.length, at = (first + i) % job->s.length;
        place[i].query = matrix_offset(a->query, a->key, batch, a->groups, (int64_t)head) +
                         (int64_t)at * a->query->stride[rank - 2];
        place[i].out = (batch * (size_t)a->groups + head) * job->s.length + at;
        if (!a->mask)
            continue;
        place[i].mask = matrix_offset(a->mask, a->key, batch, a->groups, (int64_t)head);
        if (a->mask->rank >= 2 && a->mask->shape[a->mask->rank - 2] != 1)
            place[i].mask += (int64_t)at * a->mask->stride[a->mask->rank - 2];
    }
}

static void attend_block(const attention_job *job, const work *w, const row_place *place, size_t n, size_t first,
                         size_t n_keys, int64_t key, int64_t value)
{
    const pome_attention *a = job->a;
    const shape *s = &job->s;
    size_t ld;
    if (a->mask) {
        const pome_tensor *t = a->mask;
        int64_t stride = t->rank && t->shape[t->rank - 1] != 1 ? t->stride[t->rank - 1] : 0;
        bool any = false;
        for (size_t i = 0; i < n; i++)
            any |= load_mask(job, place[i].mask + (int64_t)first * stride, stride, n_keys, w->mask + i * KEYS);
        if (!any)
            return;
    }
    const float *k = load_rows(job->kernels, a->key, key, first, n_keys, w->key, &ld);
    job->kernels->gemm_nt_f32(w->scores, KEYS, w->query, s->width, k, ld, n, n_keys, s->width, false);
    float root = sqrtf((float)s->width);
    for (size_t i = 0; i < n; i++) {
        float *p = w->scores + i * KEYS;
        for (size_t j = 0; j < n_keys; j++)
            p[j] = a->mask ? p[j] / root + w->mask[i * KEYS + j] : p[j] / root;
        absorb(job, w, i, n_keys);
    }
    const float *v = load_rows(job->kernels, a->value, value, first, n_keys, w->value, &ld);
    job->kernels->gemm_nn_f32(w->acc, s->width_v, w->scores, KEYS, v, ld, n, s->width_v, n_keys, true);
}

static void attend_rows(const attention_job *job, const work *w, size_t batch, size_t first, size_t n)
{
    const pome_attention *a = job->a;
    const shape *s = &job->s;
    row_place place[ROWS];
    int64_t key = matrix_offset(a->key, a->key, batch, 1, 0), value = matrix_offset(a->value, a->key, batch, 1, 0);
    place_rows(job, batch, first, n, place);
    for (size_t i = 0; i < n; i++) {
        load_row(job->kernels, a->query, place[i].query, a->query->stride[a->query->rank - 1], s->width,
                 w->query + i * s->width);
        w->max[i] = -INFINITY;
        w->sum[i] = 0;
    }
    memset(w->acc, 0, n * s->width_v * sizeof *w->acc);
    for (size_t at = 0; at < s->keys; at += KEYS)
        attend_block(job, w, place, n, at, s->keys - at < KEYS ? s->keys - at : KEYS, key, value);
    for (size_t i = 0; i < n; i++) {
        float *out = a->out + place[i].out * s->width_v, empty = a->masked_row_nan ? NAN : 0.0f;
        for (size_t j = 0; j < s->width_v; j++)
            out[j] = w->sum[i] == 0 ? empty : w->acc[i * s->width_v + j] / w->sum[i];
    }
}

static void attend(void *arg, size_t begin, size_t end, int thread)
{
    const attention_job *job = (const attention_job *)arg;
    work w = work_of(job, thread);
    for (size_t unit = begin; unit < end; unit++) {
        size_t first = unit % job->s.n_blocks * ROWS, left = job->s.n_rows - first;
        attend_rows(job, &w, unit / job->s.n_blocks, first, left < ROWS ? left : ROWS);
    }
}

void pome_attention_run(const pome_attention *a, const pome_kernels *kernels, pome_pool *pool, void *scratch)
{
    attention_job job = {a, kernels, shape_of(a), (float *)scratch};
    pome_pool_run(pool, job.s.n_batch * job.s.n_blocks, 1, attend, &job);
}

/* ---- the operators ---- */

static pome_attention attention_of(const pome_run *r, int64_t groups)
{
    return (pome_attention){.query = pome_in(r, P_scaled_dot_product_attention_query),
                            .key = pome_in(r, P_scaled_dot_product_attention_key),
                            .value = pome_in(r, P_scaled_dot_product_attention_value),
                            .mask = pome_in(r, P_scaled_dot_product_attention_attn_mask),
                            .out = (float *)r->out[0].data,
                            .groups = groups,
                            .masked_row_nan = r->numerics == POME_NUMERICS_FP16};
}

/* Inference has checked this; memory safety does not lean on it. */
static bool shapes_fit(const pome_attention *a)
{
    const pome_tensor *q = a->query, *k = a->key, *v = a->value, *m = a->mask;
    int32_t rank = q->rank;
    if (rank < 3 - (a->groups == 1) || k->rank != rank || v->rank != rank || a->groups < 1)
        return false;
    for (int32_t d = 0; d < rank - 2; d++) {
        int64_t groups = d == rank - 3 ? a->groups : 1;
        if (k->shape[d] != v->shape[d] || q->shape[d] % groups || q->shape[d] / groups != k->shape[d])
            return false;
    }
    if (q->shape[rank - 1] != k->shape[rank - 1] || k->shape[rank - 2] != v->shape[rank - 2])
        return false;
    for (int32_t d = 1; m && d <= m->rank; d++) {
        int64_t want = d == 1 ? k->shape[rank - 2] : d <= rank ? q->shape[rank - d] : -1;
        if (m->shape[m->rank - d] != 1 && m->shape[m->rank - d] != want)
            return false;
    }
    return !m || m->rank <= rank;
}

/* The first four parameters of both operators have the same indices. */
static int64_t groups_of(const pome_run *r)
{
    return r->op->def->id == POME_OP_pome_grouped_attention ? pome_in_int(r, P_pome_grouped_attention_groups, 1) : 1;
}

static size_t attention_scratch(const pome_run *r)
{
    pome_attention a = attention_of(r, groups_of(r));
    return shapes_fit(&a) ? pome_attention_scratch(&a, pome_pool_n_threads(r->pool)) : 0;
}

static pome_status attention_run(const pome_run *r, pome_error *err)
{
    pome_attention a = attention_of(r, groups_of(r));
    if (!shapes_fit(&a))
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "shapes of query, key, value and attn_mask do not fit");
    pome_attention_run(&a, r->kernels, r->pool, r->scratch);
    return POME_OK;
}

#define QKV_MASK                                                                                                       \
    (POME_BIT(P_scaled_dot_product_attention_query) | POME_BIT(P_scaled_dot_product_attention_key) |                   \
     POME_BIT(P_scaled_dot_product_attention_value) | POME_BIT(P_scaled_dot_product_attention_attn_mask))

const pome_op_impl pome_ops_attention[] = {
    {.id = POME_OP_scaled_dot_product_attention,
     .f16_ok = QKV_MASK,
     .strided_ok = QKV_MASK,
     .scratch = attention_scratch,
     .run = attention_run},
    {.id = POME_OP_pome_grouped_attention,
     .f16_ok = QKV_MASK,
     .strided_ok = QKV_MASK,
     .scratch = attention_scratch,
     .run = attention_run},
};
POME_FAMILY_COUNT(attention)
