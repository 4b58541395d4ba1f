/* matmul with numpy's rules: batch axes broadcast, vectors get an axis of 1, transposes swap the last two axes.
 *
 * Both operands may be strided, fp16 or encoded; pieces of POME_KERNEL_KC along k become fp32 in a thread's scratch
 * unless they already lie as a kernel wants them. With transpose_y the product is of rows with rows, else of rows
 * with columns: the order of the sums depends neither on the other rows nor on how the operands lie in memory. */
#include <string.h>

#include "base/f16.h"
#include "ops/coded.h"
#include "ops/families.h"
#include "ops/rows.h"

enum { TILE = POME_ROWS_TILE, COLUMNS = 64 };

typedef struct operand { /* a stack of matrices [rows, columns] */
    const pome_tensor *t;
    const pome_encoded *encoded;
    size_t rows, columns;
    int64_t row_stride, column_stride;
    int32_t n_batch_axes;
    int64_t batch_stride[POME_MAX_RANK];
    bool is_vector;
} operand;

typedef struct matmul_job {
    const pome_run *r;
    operand x, y;       /* y: [k, n] */
    size_t m, n, k;
    bool rows_by_rows;  /* y is [n, k], or a vector */
    bool x_in_place, y_in_place;
    size_t m_block, n_m, n_n; /* rows of a unit; units along m and n */
    const pome_tensor *out;
    int32_t n_batch_axes;
} matmul_job;

static operand operand_of(const pome_run *r, uint32_t param, bool transpose, bool is_left)
{
    const pome_tensor *t = pome_in(r, param);
    operand o = {.t = t, .encoded = pome_in_encoded(r, param), .is_vector = t->rank == 1};
    int64_t stride[POME_MAX_RANK] = {0};
    for (int32_t d = t->rank - 1; d >= 0; d--)
        stride[d] = !o.encoded ? t->stride[d] : d == t->rank - 1 ? 1 : stride[d + 1] * t->shape[d + 1];
    if (o.is_vector) {
        o.rows = is_left ? 1 : (size_t)t->shape[0];
        o.columns = is_left ? (size_t)t->shape[0] : 1;
        o.row_stride = o.column_stride = stride[0];
        return o;
    }
    int32_t row = t->rank - (transpose ? 1 : 2), column = t->rank - (transpose ? 2 : 1);
    o.rows = (size_t)t->shape[row];
    o.columns = (size_t)t->shape[column];
    o.row_stride = stride[row];
    o.column_stride = stride[column];
    o.n_batch_axes = t->rank - 2;
    for (int32_t d = 0; d < o.n_batch_axes; d++)
        o.batch_stride[d] = t->shape[d] == 1 ? 0 : stride[d];
    return o;
}

static int64_t batch_offset(const matmul_job *job, const operand *o, size_t batch)
{
    int64_t offset = 0;
    for (int32_t d = job->n_batch_axes - 1; d >= 0; d--) {
        size_t n = (size_t)job->out->shape[d];
        int32_t own = d - (job->n_batch_axes - o->n_batch_axes);
        if (own >= 0)
            offset += (int64_t)(batch % n) * o->batch_stride[own];
        batch /= n;
    }
    return offset;
}

/* ---- pieces ---- */

/* n elements `stride` apart from element `at` on. */
static void load_run(const pome_kernels *k, const operand *o, int64_t at, int64_t stride, size_t n, float *dst)
{
    if (o->encoded && stride == 1) {
        pome_encoded_decode(o->encoded, (size_t)at, n, dst);
    } else if (o->encoded) {
        for (size_t i = 0; i < n; i++)
            pome_encoded_decode(o->encoded, (size_t)(at + (int64_t)i * stride), 1, dst + i);
    } else if (o->t->dtype == POME_DTYPE_F16) {
        const uint16_t *src = (const uint16_t *)o->t->data + at;
        if (stride == 1)
            k->f16_to_f32(dst, src, n);
        else
            for (size_t i = 0; i < n; i++)
                dst[i] = pome_f16_to_f32(src[(int64_t)i * stride]);
    } else {
        const float *src = (const float *)o->t->data + at;
        for (size_t i = 0; i < n; i++)
            dst[i] = src[(int64_t)i * stride];
    }
}

static bool in_place(const operand *o, int64_t inner, int64_t outer)
{
    return !o->encoded && o->t->dtype == POME_DTYPE_F32 && inner == 1 && outer >= 0;
}

/* [n, len] of `o` from (outer, inner) on; the outer index moves by outer_stride. Runs along the shorter stride. */
static void load_block(const pome_kernels *k, const operand *o, int64_t at, int64_t outer_stride, int64_t inner_stride,
                       size_t n, size_t len, float *dst)
{
    if (inner_stride != 1 && outer_stride == 1 && n <= COLUMNS) {
        float run[COLUMNS];
        for (size_t j = 0; j < len; j++) {
            load_run(k, o, at + (int64_t)j * inner_stride, 1, n, run);
            for (size_t i = 0; i < n; i++)
                dst[i * len + j] = run[i];
        }
        return;
    }
    for (size_t i = 0; i < n; i++)
        load_run(k, o, at + (int64_t)i * outer_stride, inner_stride, len, dst + i * len);
}

static const float *x_piece(const matmul_job *job, int64_t offset, size_t row, size_t n, size_t p, size_t len,
                            float *scratch, size_t *ld)
{
    const operand *x = &job->x;
    int64_t at = offset + (int64_t)row * x->row_stride + (int64_t)p * x->column_stride;
    if (job->x_in_place) {
        *ld = (size_t)x->row_stride;
        return (const float *)x->t->data + at;
    }
    *ld = len;
    load_block(job->r->kernels, x, at, x->row_stride, x->column_stride, n, len, scratch);
    return scratch;
}

/* [n columns, len] when rows_by_rows, else [len, n columns] */
static const float *y_piece(const matmul_job *job, int64_t offset, size_t column, size_t n, size_t p, size_t len,
                            float *scratch, size_t *ld)
{
    const operand *y = &job->y;
    int64_t at = offset + (int64_t)p * y->row_stride + (int64_t)column * y->column_stride;
    int64_t outer = job->rows_by_rows ? y->column_stride : y->row_stride;
    if (job->y_in_place) {
        *ld = (size_t)outer;
        return (const float *)y->t->data + at;
    }
    *ld = job->rows_by_rows ? len : n;
    if (job->rows_by_rows)
        load_block(job->r->kernels, y, at, y->column_stride, y->row_stride, n, len, scratch);
    else
        load_block(job->r->kernels, y, at, y->row_stride, y->column_stride, len, n, scratch);
    return scratch;
}

static size_t thread_floats(void)
{
    return (size_t)(TILE + COLUMNS) * POME_KERNEL_KC;
}

/* Rows [row, row + m) times columns [column, column + n) of one pair of matrices, n <= COLUMNS. */
static void multiply(const matmul_job *job, size_t batch, size_t row, size_t m, size_t column, size_t n, float *scratch)
{
    int64_t x_offset = batch_offset(job, &job->x, batch), y_offset = batch_offset(job, &job->y, batch);
    float *c = (float *)job->out->data + (batch * job->m + row) * job->n + column;
    size_t lda, ldb;
    for (size_t p = 0; p < job->k; p += POME_KERNEL_KC) {
        size_t len = job->k - p < POME_KERNEL_KC ? job->k - p : POME_KERNEL_KC;
        const float *b = y_piece(job, y_offset, column, n, p, len, scratch, &ldb);
        for (size_t i = 0; i < m; i += TILE) {
            size_t rows = m - i < TILE ? m - i : TILE;
            const float *a = x_piece(job, x_offset, row + i, rows, p, len, scratch + COLUMNS * POME_KERNEL_KC, &lda);
            if (job->rows_by_rows)
                job->r->kernels->gemm_nt_f32(c + i * job->n, job->n, a, lda, b, ldb, rows, n, len, p > 0);
            else
                job->r->kernels->gemm_nn_f32(c + i * job->n, job->n, a, lda, b, ldb, rows, n, len, p > 0);
        }
    }
    for (size_t i = 0; job->k == 0 && i < m; i++)
        memset(c + i * job->n, 0, n * sizeof *c);
}

/* One row of x in place and y in rows: kernels that decode in registers. */
static bool multiply_row(const matmul_job *job, size_t batch, size_t column, size_t n, float *scratch)
{
    const operand *y = &job->y;
    if (job->m != 1 || job->k == 0 || !job->rows_by_rows || !job->x_in_place || y->row_stride != 1 ||
        y->column_stride < 0 || (y->encoded && y->column_stride != (int64_t)job->k))
        return false;
    pome_rows w;
    int64_t offset = batch_offset(job, y, batch);
    size_t size = y->t->dtype == POME_DTYPE_F16 ? sizeof(uint16_t) : sizeof(float);
    pome_rows_init(&w, y->t->dtype, y->encoded ? NULL : (const char *)y->t->data + (size_t)offset * size, y->encoded,
                   job->k);
    w.stride = (size_t)y->column_stride;
    w.first = y->encoded ? (size_t)offset : 0;
    if (w.blocks.block && w.first % w.blocks.block)
        w.blocks.block = 0;
    pome_rows_times(&w, job->r->kernels, column, n, (const float *)job->x.t->data + batch_offset(job, &job->x, batch),
                    job->k, 1, (float *)job->out->data + batch * job->n + column, job->n, scratch);
    return true;
}

static void matmul_units(void *arg, size_t begin, size_t end, int thread)
{
    const matmul_job *job = (const matmul_job *)arg;
    float *scratch = (float *)job->r->scratch + (size_t)thread * thread_floats();
    for (size_t unit = begin; unit < end; unit++) {
        size_t column = unit % job->n_n * COLUMNS, rest = unit / job->n_n;
        size_t row = rest % job->n_m * job->m_block, batch = rest / job->n_m;
        size_t n = job->n - column < COLUMNS ? job->n - column : COLUMNS;
        if (!multiply_row(job, batch, column, n, scratch))
            multiply(job, batch, row, job->m - row < job->m_block ? job->m - row : job->m_block, column, n, scratch);
    }
}

/* ---- integers: 32 bits with wrap-around ---- */

static uint32_t int_at(const operand *o, int64_t at)
{
    float value;
    if (o->encoded) {
        pome_encoded_decode(o->encoded, (size_t)at, 1, &value);
        return (uint32_t)(int32_t)value;
    }
    switch (o->t->dtype) {
    case POME_DTYPE_I8:
        return (uint32_t)((const int8_t *)o->t->data)[at];
    case POME_DTYPE_U8:
    case POME_DTYPE_BOOL:
        return ((const uint8_t *)o->t->data)[at];
    case POME_DTYPE_I16:
        return (uint32_t)((const int16_t *)o->t->data)[at];
    case POME_DTYPE_U16:
        return ((const uint16_t *)o->t->data)[at];
    default:
        return ((const uint32_t *)o->t->data)[at];
    }
}

static void matmul_int_rows(void *arg, size_t begin, size_t end, int thread)
{
    const matmul_job *job = (const matmul_job *)arg;
    (void)thread;
    for (size_t unit = begin; unit < end; unit++) {
        size_t batch = unit / job->m, i = unit % job->m;
        int64_t x = batch_offset(job, &job->x, batch) + (int64_t)i * job->x.row_stride;
        int64_t y = batch_offset(job, &job->y, batch);
        for (size_t j = 0; j < job->n; j++) {
            uint32_t sum = 0;
            for (size_t p = 0; p < job->k; p++)
                sum += int_at(&job->x, x + (int64_t)p * job->x.column_stride) *
                       int_at(&job->y, y + (int64_t)p * job->y.row_stride + (int64_t)j * job->y.column_stride);
            void *dst = (char *)job->out->data + (unit * job->n + j) * (pome_dtype_bits(job->out->dtype) / 8);
            if (pome_dtype_bits(job->out->dtype) == 8)
                *(uint8_t *)dst = (uint8_t)sum;
            else if (pome_dtype_bits(job->out->dtype) == 16)
                *(uint16_t *)dst = (uint16_t)sum;
            else
                *(uint32_t *)dst = sum;
        }
    }
}

/* ---- the operator ---- */

/* ---- one encoded matrix for all rows of x: int8 activations ---- */

typedef struct coded_job {
    const matmul_job *matmul;
    pome_coded w;
    size_t m; /* rows of all of x's matrices */
    float *y;
    char *q8, *thread_scratch;
} coded_job;

static bool coded_weight(const pome_run *r, pome_coded *w)
{
    const pome_tensor *y = pome_in(r, P_matmul_y);
    return y->rank == 2 && pome_in(r, P_matmul_x)->rank >= 2 && pome_in_bool(r, P_matmul_transpose_y, false) &&
           pome_coded_init(w, r, pome_in_encoded(r, P_matmul_y), 0, (size_t)y->shape[0], (size_t)y->shape[1]);
}

/* The product's own, and a group of x's rows as fp32. */
static size_t coded_thread_bytes(const pome_coded *w, size_t m)
{
    return pome_coded_thread_bytes(w, m) + POME_Q8_GROUP * w->rows.k * sizeof(float);
}

static void set_coded_rows(void *arg, size_t begin, size_t end, int thread)
{
    const coded_job *job = (const coded_job *)arg;
    const matmul_job *matmul = job->matmul;
    size_t k = job->w.rows.k;
    float *rows = (float *)(void *)(job->thread_scratch + (size_t)thread * coded_thread_bytes(&job->w, job->m) +
                                    pome_coded_thread_bytes(&job->w, job->m));
    for (size_t i = begin; i < end; i++)
        load_run(matmul->r->kernels, &matmul->x,
                 batch_offset(matmul, &matmul->x, i / matmul->m) + (int64_t)(i % matmul->m) * matmul->x.row_stride,
                 matmul->x.column_stride, k, rows + (i - begin) * k);
    job->w.kernels->q8_set(job->q8, job->m, k, begin, end - begin, rows, k);
}

static void coded_rows(void *arg, size_t begin, size_t end, int thread)
{
    const coded_job *job = (const coded_job *)arg;
    pome_coded_times(&job->w, job->q8, job->m, begin, end - begin, job->y + begin, job->w.n,
                     job->thread_scratch + (size_t)thread * coded_thread_bytes(&job->w, job->m));
}

static bool run_coded(const matmul_job *matmul, size_t n_batch)
{
    const pome_run *r = matmul->r;
    coded_job job = {.matmul = matmul, .m = n_batch * matmul->m, .y = (float *)r->out[0].data, .q8 = (char *)r->scratch};
    if (!coded_weight(r, &job.w))
        return false;
    job.thread_scratch = job.q8 + pome_coded_activation_bytes(&job.w, job.m);
    pome_pool_run(r->pool, job.m, POME_Q8_GROUP, set_coded_rows, &job);
    pome_pool_run(r->pool, job.w.n, pome_coded_grain(&job.w, job.m), coded_rows, &job);
    return true;
}

static size_t matmul_scratch(const pome_run *r)
{
    pome_coded w;
    size_t threads = (size_t)pome_pool_n_threads(r->pool), size = threads * thread_floats() * sizeof(float), coded = 0;
    if (coded_weight(r, &w)) {
        size_t m = (size_t)pome_tensor_count(pome_in(r, P_matmul_x)) / w.rows.k;
        coded = pome_coded_activation_bytes(&w, m) + threads * coded_thread_bytes(&w, m);
    }
    return size > coded ? size : coded;
}

static bool batches_fit(const matmul_job *job, const operand *o)
{
    if (o->n_batch_axes > job->n_batch_axes)
        return false;
    for (int32_t d = 0; d < o->n_batch_axes; d++) {
        int64_t own = o->t->shape[d], out = job->out->shape[job->n_batch_axes - o->n_batch_axes + d];
        if (own != 1 && own != out)
            return false;
    }
    return true;
}

static pome_status matmul_run(const pome_run *r, pome_error *err)
{
    bool transpose_y = pome_in_bool(r, P_matmul_transpose_y, false);
    matmul_job job = {.r = r, .out = &r->out[0]};
    if (pome_in(r, P_matmul_x)->rank < 1 || pome_in(r, P_matmul_y)->rank < 1)
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "x and y must have at least rank 1");
    job.x = operand_of(r, P_matmul_x, pome_in_bool(r, P_matmul_transpose_x, false), true);
    job.y = operand_of(r, P_matmul_y, transpose_y, false);
    job.n_batch_axes = job.out->rank - 2 + job.x.is_vector + job.y.is_vector;
    job.m = job.x.rows;
    job.k = job.x.columns;
    job.n = job.y.columns;
    if (job.y.rows != job.k || job.n_batch_axes < 0 || !batches_fit(&job, &job.x) || !batches_fit(&job, &job.y))
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "the shapes of x and y do not fit");
    size_t n_batch = 1;
    for (int32_t d = 0; d < job.n_batch_axes; d++)
        n_batch *= (size_t)job.out->shape[d];
    if (n_batch * job.m * job.n == 0)
        return POME_OK;
    if (!pome_dtype_is_float(job.out->dtype)) {
        pome_pool_run(r->pool, n_batch * job.m, 1, matmul_int_rows, &job);
        return POME_OK;
    }
    if (run_coded(&job, n_batch))
        return POME_OK;
    job.rows_by_rows = transpose_y || job.y.is_vector;
    job.x_in_place = in_place(&job.x, job.x.column_stride, job.x.row_stride);
    job.y_in_place = job.rows_by_rows ? in_place(&job.y, job.y.row_stride, job.y.column_stride)
                                      : in_place(&job.y, job.y.column_stride, job.y.row_stride);
    job.m_block = job.y_in_place ? 2 * TILE : job.m; /* what has to be decoded is decoded once */
    job.n_m = (job.m + job.m_block - 1) / job.m_block;
    job.n_n = (job.n + COLUMNS - 1) / COLUMNS;
    pome_pool_run(r->pool, n_batch * job.n_m * job.n_n, 1, matmul_units, &job);
    return POME_OK;
}

#define MATMUL_XY (POME_BIT(P_matmul_x) | POME_BIT(P_matmul_y))

const pome_op_impl pome_ops_matmul[] = {
    {.id = POME_OP_matmul,
     .f16_ok = MATMUL_XY,
     .strided_ok = MATMUL_XY,
     .encoded_ok = MATMUL_XY,
     .scratch = matmul_scratch,
     .run = matmul_run},
};
POME_FAMILY_COUNT(matmul)
