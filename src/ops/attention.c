/* Attention in blocks of KEYS keys, everything in fp32. The query rows of all heads that share keys form one list; a
 * thread takes up to ROWS of them. Each block gives a row a partial result (maximum, sum, weighted values) of its own,
 * and the partial results are merged in the order of the blocks. So the blocks may be computed by one thread or by many,
 * and a row comes out the same in any company: blocks begin at key 0 whatever the rows, and a key that is left out of
 * a row leaves its result untouched.
 *
 * Blocks that the mask closes to all rows at hand are skipped without reading their keys. With many rows a block is
 * converted to fp32 once; with few, as in a decoding step, the products read the half-precision cache as it lies. */
#include "ops/attention.h"

#include <math.h>
#include <string.h>

#include "base/f16.h"
#include "ops/attention_mask.h"
#include "ops/families.h"

enum { ROWS = 24, KEYS = 128, FEW_ROWS = 6, SMALL_WORK = 1 << 17 /* multiply-adds: some 10 microseconds */ };

typedef struct shape {
    size_t n_batch;   /* product of the key's batch axes */
    size_t n_rows;    /* groups * L: query rows that share keys */
    size_t length, keys, width, width_v;
    size_t n_row_blocks, n_key_blocks;
    size_t n_mask_rows;
    bool is_split;    /* key blocks are handed out one by one, partial results kept until all are there */
} shape;

typedef struct work { /* one thread's scratch */
    float *query;     /* [ROWS, width] times 1 / sqrt(E) */
    float *scores;    /* [ROWS, KEYS] */
    float *mask;      /* [KEYS] */
    float *rows;      /* [KEYS, widest of width, width_v] keys or values in fp32 */
    float *acc;       /* [ROWS, width_v] of one block */
    float *total;     /* [ROWS, width_v] */
    float *max, *sum; /* [ROWS] of one block */
    float *total_max, *total_sum;
} work;

typedef struct attention_job {
    const pome_attention *a;
    const pome_kernels *kernels;
    shape s;
    float *scratch;      /* [n_threads, thread_floats()] */
    float *partial;      /* is_split: [n_batch, n_row_blocks, n_key_blocks, partial_floats()] */
    pome_mask_row *mask_rows;
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
    s.n_row_blocks = (s.n_rows + ROWS - 1) / ROWS;
    s.n_key_blocks = (s.keys + KEYS - 1) / KEYS;
    s.n_mask_rows = a->mask ? pome_mask_n_rows(a->mask) : 0;
    s.is_split = s.n_row_blocks == 1 && s.n_key_blocks > 1;
    return s;
}

static size_t whole_lines(size_t n_floats)
{
    return (n_floats + 15) / 16 * 16;
}

static size_t thread_floats(const shape *s)
{
    size_t wide = s->width > s->width_v ? s->width : s->width_v;
    return whole_lines(ROWS * (s->width + 2 * s->width_v + KEYS + 4) + KEYS * (1 + wide));
}

static size_t partial_floats(const shape *s) /* maximum and sum first */
{
    size_t rows = s->n_rows < ROWS ? s->n_rows : ROWS;
    return whole_lines(rows * (s->width_v + 2));
}

static size_t all_partial_floats(const shape *s)
{
    return s->is_split ? s->n_batch * s->n_key_blocks * partial_floats(s) : 0;
}

size_t pome_attention_scratch(const pome_attention *a, int n_threads)
{
    shape s = shape_of(a);
    return ((size_t)n_threads * thread_floats(&s) + all_partial_floats(&s)) * sizeof(float) +
           s.n_mask_rows * sizeof(pome_mask_row);
}

static work work_of(const attention_job *job, int thread)
{
    const shape *s = &job->s;
    size_t wide = s->width > s->width_v ? s->width : s->width_v;
    work w;
    w.query = job->scratch + (size_t)thread * thread_floats(s);
    w.scores = w.query + ROWS * s->width;
    w.mask = w.scores + ROWS * KEYS;
    w.rows = w.mask + KEYS;
    w.acc = w.rows + KEYS * wide;
    w.total = w.acc + ROWS * s->width_v;
    w.max = w.total + ROWS * s->width_v;
    w.sum = w.max + ROWS;
    w.total_max = w.sum + ROWS;
    w.total_sum = w.total_max + ROWS;
    return w;
}

/* Element offset of matrix `batch` (an index over `lead`'s batch axes, the last of them times `groups` plus head).
 * An axis of length 1 in t is repeated. *matrix, if wanted, counts t's own matrices. */
static int64_t matrix_offset(const pome_tensor *t, const pome_tensor *lead, size_t batch, int64_t groups, int64_t head,
                             size_t *matrix)
{
    int64_t offset = 0;
    size_t at_matrix = 0, step = 1;
    int32_t shift = t->rank - lead->rank;
    for (int32_t d = lead->rank - 3; d >= 0; d--) {
        int64_t n = lead->shape[d], at = (int64_t)(batch % (size_t)n);
        batch /= (size_t)n;
        if (d == lead->rank - 3)
            at = at * groups + head;
        if (d + shift < 0 || t->shape[d + shift] == 1)
            continue;
        offset += at * t->stride[d + shift];
        at_matrix += (size_t)at * step;
        step *= (size_t)t->shape[d + shift];
    }
    if (matrix)
        *matrix = at_matrix;
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

/* Whether the products can read t's rows as they lie. */
static bool is_half_in_rows(const pome_tensor *t)
{
    return t->dtype == POME_DTYPE_F16 && (t->stride[t->rank - 1] == 1 || t->shape[t->rank - 1] == 1) &&
           t->stride[t->rank - 2] >= 0;
}

static const uint16_t *half_rows(const pome_tensor *t, int64_t offset, size_t first)
{
    return (const uint16_t *)t->data + offset + (int64_t)first * t->stride[t->rank - 2];
}

/* Columns: the matrix lies as its transpose, [width, keys], so that a product of the other kind takes it. It is copied
 * all the same: rows that are a power of two apart fall on each other in the cache. */
static bool is_in_columns(const pome_tensor *t)
{
    return t->stride[t->rank - 2] == 1 && t->stride[t->rank - 1] > 1 && t->shape[t->rank - 2] > 1;
}

/* Keys [first, first + n) of such a matrix, [width, n] with rows *ld apart. */
static const float *load_columns(const pome_kernels *k, const pome_tensor *t, int64_t offset, size_t first, size_t n,
                                 float *dst, size_t *ld)
{
    int64_t step = t->stride[t->rank - 1];
    offset += (int64_t)first;
    *ld = n;
    for (size_t i = 0; i < (size_t)t->shape[t->rank - 1]; i++)
        load_row(k, t, offset + (int64_t)i * step, 1, n, dst + i * n);
    return dst;
}

typedef struct row_place {
    int64_t query, mask; /* element offsets */
    size_t out;          /* element offset */
    pome_mask_row open;
} row_place;

typedef struct rows_at_hand {
    row_place place[ROWS];
    size_t n, begin, end; /* keys that some row attends to */
    int64_t key, value;   /* element offsets of the matrices */
} rows_at_hand;

static size_t out_offset(const attention_job *job, size_t batch, size_t head, size_t at)
{
    const pome_attention *a = job->a;
    const pome_tensor *q = a->query;
    size_t heads = q->rank > 2 ? (size_t)q->shape[q->rank - 3] : 1, kv_heads = heads / (size_t)a->groups;
    size_t outer = batch / kv_heads, own = batch % kv_heads * (size_t)a->groups + head;
    size_t row = a->rows_first ? (outer * job->s.length + at) * heads + own : (outer * heads + own) * job->s.length + at;
    return row * job->s.width_v;
}

static void place_rows(const attention_job *job, size_t batch, size_t first, size_t n, rows_at_hand *r)
{
    const pome_attention *a = job->a;
    const pome_tensor *m = a->mask;
    int32_t rank = a->query->rank;
    r->n = n;
    r->begin = job->s.keys;
    r->end = 0;
    r->key = matrix_offset(a->key, a->key, batch, 1, 0, NULL);
    r->value = matrix_offset(a->value, a->key, batch, 1, 0, NULL);
    for (size_t i = 0; i < n; i++) {
        size_t head = (first + i) / job->s.length, at = (first + i) % job->s.length, matrix = 0;
        row_place *p = &r->place[i];
        p->query = matrix_offset(a->query, a->key, batch, a->groups, (int64_t)head, NULL) +
                   (int64_t)at * a->query->stride[rank - 2];
        p->out = out_offset(job, batch, head, at);
        p->open = (pome_mask_row){.end = job->s.keys, .is_plain = true};
        if (m) {
            bool has_rows = m->rank >= 2 && m->shape[m->rank - 2] != 1;
            p->mask = matrix_offset(m, a->key, batch, a->groups, (int64_t)head, &matrix) +
                      (has_rows ? (int64_t)at * m->stride[m->rank - 2] : 0);
            p->open = job->mask_rows[has_rows ? matrix * job->s.length + at : matrix];
        }
        r->begin = p->open.begin < r->begin ? p->open.begin : r->begin;
        r->end = p->open.end > r->end ? p->open.end : r->end;
    }
}

/* Scores of one row into weights, with their maximum and sum: sum 0 if no key is left, NaN if there is one. */
static void weigh(const attention_job *job, const work *w, const row_place *p, size_t i, size_t first, size_t n)
{
    float *s = w->scores + i * KEYS;
    size_t begin = p->open.begin > first ? p->open.begin - first : 0;
    size_t end = p->open.end > first ? p->open.end - first : 0;
    w->max[i] = -INFINITY;
    w->sum[i] = 0;
    if (begin >= n || end <= begin) {
        memset(s, 0, n * sizeof *s);
        return;
    }
    for (size_t j = 0; j < begin; j++)
        s[j] = -INFINITY;
    for (size_t j = end; j < n; j++)
        s[j] = -INFINITY;
    if (!p->open.is_plain) {
        pome_mask_load(job->a->mask, p->mask, &p->open, first, n, job->kernels, w->mask);
        for (size_t j = 0; j < n; j++)
            s[j] += w->mask[j];
    }
    w->max[i] = job->kernels->max_f32(s, n);
    if (w->max[i] > -INFINITY) {
        w->sum[i] = job->kernels->exp_sum_f32(s, w->max[i], n);
        return;
    }
    for (size_t j = 0; j < n; j++) {
        if (s[j] != s[j])
            w->sum[i] = NAN;
        s[j] = 0;
    }
}

/* The partial results of one block into w->acc, w->max, w->sum. */
static void attend_block(const attention_job *job, const work *w, const rows_at_hand *r, size_t first)
{
    const pome_attention *a = job->a;
    const pome_kernels *kernels = job->kernels;
    const shape *s = &job->s;
    size_t n = s->keys - first < KEYS ? s->keys - first : KEYS, ld;
    n = r->end - first < n ? r->end - first : n; /* nothing beyond is open to anyone here */
    if (r->n <= FEW_ROWS && is_half_in_rows(a->key)) {
        kernels->gemm_nt_f16(w->scores, KEYS, w->query, s->width, half_rows(a->key, r->key, first),
                             (size_t)a->key->stride[a->key->rank - 2], r->n, n, s->width, false);
    } else if (is_in_columns(a->key)) {
        const float *k = load_columns(kernels, a->key, r->key, first, n, w->rows, &ld);
        kernels->gemm_nn_f32(w->scores, KEYS, w->query, s->width, k, ld, r->n, n, s->width, false);
    } else {
        const float *k = load_rows(kernels, a->key, r->key, first, n, w->rows, &ld);
        kernels->gemm_nt_f32(w->scores, KEYS, w->query, s->width, k, ld, r->n, n, s->width, false);
    }
    for (size_t i = 0; i < r->n; i++)
        weigh(job, w, &r->place[i], i, first, n);
    if (r->n <= FEW_ROWS && is_half_in_rows(a->value)) {
        kernels->gemm_nn_f16(w->acc, s->width_v, w->scores, KEYS, half_rows(a->value, r->value, first),
                             (size_t)a->value->stride[a->value->rank - 2], r->n, s->width_v, n, false);
    } else if (is_in_columns(a->value)) {
        const float *v = load_columns(kernels, a->value, r->value, first, n, w->rows, &ld);
        kernels->gemm_nt_f32(w->acc, s->width_v, w->scores, KEYS, v, ld, r->n, s->width_v, n, false);
    } else {
        const float *v = load_rows(kernels, a->value, r->value, first, n, w->rows, &ld);
        kernels->gemm_nn_f32(w->acc, s->width_v, w->scores, KEYS, v, ld, r->n, s->width_v, n, false);
    }
}

/* Adds a partial result of one row to another. One of sum 0 is empty: it may hold anything. */
static void merge(float *total, float *total_max, float *total_sum, const float *acc, float max, float sum, size_t n)
{
    if (sum == 0)
        return;
    if (*total_sum == 0) {
        memcpy(total, acc, n * sizeof *total);
        *total_max = max;
        *total_sum = sum;
        return;
    }
    float top = max > *total_max ? max : *total_max;
    float keep = expf(*total_max - top), take = expf(max - top);
    for (size_t j = 0; j < n; j++)
        total[j] = total[j] * keep + acc[j] * take;
    *total_sum = *total_sum * keep + sum * take;
    *total_max = top;
}

static void start(const attention_job *job, const work *w, size_t batch, size_t first, rows_at_hand *r)
{
    const pome_attention *a = job->a;
    size_t left = job->s.n_rows - first;
    float scale = a->scale != 0 ? a->scale : 1.0f / sqrtf((float)job->s.width);
    place_rows(job, batch, first, left < ROWS ? left : ROWS, r);
    for (size_t i = 0; i < r->n; i++) {
        float *q = w->query + i * job->s.width;
        load_row(job->kernels, a->query, r->place[i].query, a->query->stride[a->query->rank - 1], job->s.width, q);
        for (size_t j = 0; j < job->s.width; j++)
            q[j] *= scale;
        w->total_max[i] = -INFINITY;
        w->total_sum[i] = 0;
    }
}

static void finish(const attention_job *job, const work *w, const rows_at_hand *r)
{
    const pome_attention *a = job->a;
    size_t n = job->s.width_v;
    for (size_t i = 0; i < r->n; i++) {
        float *out = a->out + r->place[i].out, empty = a->masked_row_nan ? NAN : 0.0f;
        for (size_t j = 0; j < n; j++)
            out[j] = w->total_sum[i] == 0 ? empty : w->total[i * n + j] / w->total_sum[i];
    }
}

/* All keys for one block of rows. */
static void attend(void *arg, size_t begin, size_t end, int thread)
{
    const attention_job *job = (const attention_job *)arg;
    work w = work_of(job, thread);
    size_t n = job->s.width_v;
    rows_at_hand r;
    for (size_t unit = begin; unit < end; unit++) {
        start(job, &w, unit / job->s.n_row_blocks, unit % job->s.n_row_blocks * ROWS, &r);
        for (size_t at = r.begin / KEYS * KEYS; at < r.end; at += KEYS) {
            attend_block(job, &w, &r, at);
            for (size_t i = 0; i < r.n; i++)
                merge(w.total + i * n, &w.total_max[i], &w.total_sum[i], w.acc + i * n, w.max[i], w.sum[i], n);
        }
        finish(job, &w, &r);
    }
}

/* One block of keys for the only block of rows; partial results are kept. */
static void attend_part(void *arg, size_t begin, size_t end, int thread)
{
    const attention_job *job = (const attention_job *)arg;
    work w = work_of(job, thread);
    rows_at_hand r;
    for (size_t unit = begin; unit < end; unit++) {
        size_t batch = unit / job->s.n_key_blocks, at = unit % job->s.n_key_blocks * KEYS, rows = job->s.n_rows;
        float *partial = job->partial + unit * partial_floats(&job->s);
        start(job, &w, batch, 0, &r);
        w.max = partial;
        w.sum = partial + rows;
        w.acc = partial + 2 * rows;
        if (at >= r.end || at + KEYS <= r.begin)
            memset(w.sum, 0, rows * sizeof *w.sum);
        else
            attend_block(job, &w, &r, at);
    }
}

static void merge_parts(const attention_job *job)
{
    work w = work_of(job, 0);
    size_t rows = job->s.n_rows, n = job->s.width_v;
    rows_at_hand r;
    for (size_t batch = 0; batch < job->s.n_batch; batch++) {
        start(job, &w, batch, 0, &r);
        for (size_t b = 0; b < job->s.n_key_blocks; b++) {
            const float *p = job->partial + (batch * job->s.n_key_blocks + b) * partial_floats(&job->s);
            for (size_t i = 0; i < rows; i++)
                merge(w.total + i * n, &w.total_max[i], &w.total_sum[i], p + 2 * rows + i * n, p[i], p[rows + i],
                      n);
        }
        finish(job, &w, &r);
    }
}

void pome_attention_run(const pome_attention *a, const pome_kernels *kernels, pome_pool *pool, void *scratch)
{
    attention_job job = {.a = a, .kernels = kernels, .s = shape_of(a), .scratch = (float *)scratch};
    const shape *s = &job.s;
    job.partial = job.scratch + (size_t)pome_pool_n_threads(pool) * thread_floats(s);
    job.mask_rows = (pome_mask_row *)(void *)(job.partial + all_partial_floats(s));
    if (a->mask)
        pome_mask_scan(a->mask, s->keys, job.mask_rows, pool);
    size_t n_units = s->n_batch * (s->is_split ? s->n_key_blocks : s->n_row_blocks);
    size_t cost = s->n_rows * s->keys * (s->width + s->width_v) * s->n_batch / (n_units + 1);
    size_t grain = n_units * cost <= SMALL_WORK ? n_units : SMALL_WORK / 4 / (cost + 1);
    pome_pool_run(pool, n_units, grain ? grain : 1, s->is_split ? attend_part : attend, &job);
    if (s->is_split)
        merge_parts(&job);
}

/* ---- the operators ---- */

static bool is_grouped(const pome_run *r)
{
    return r->op->def->id == POME_OP_pome_grouped_attention;
}

static pome_attention attention_of(const pome_run *r, int64_t groups)
{
    return (pome_attention){.query = pome_in(r, P_scaled_dot_product_attention_query),
                            .key = pome_in(r, P_scaled_dot_product_attention_key),
                            .value = pome_in(r, P_scaled_dot_product_attention_value),
                            .mask = pome_in(r, P_scaled_dot_product_attention_attn_mask),
                            .out = (float *)r->out[0].data,
                            .rows_first = is_grouped(r) && pome_in_bool(r, P_pome_grouped_attention_rows_first, false),
                            .scale = is_grouped(r) ? (float)pome_in_float(r, P_pome_grouped_attention_scale, 0) : 0,
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
    return is_grouped(r) ? pome_in_int(r, P_pome_grouped_attention_groups, 1) : 1;
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
