/* linear: x [.., k] times weight [n, k] transposed, plus bias [n]. Threads take rows of the weight, so each is read
 * and decoded once whatever the number of rows of x. */
#include "ops/coded.h"
#include "ops/families.h"
#include "ops/rows.h"

typedef struct linear_job {
    const pome_run *r;
    pome_rows weight;
    const pome_tensor *bias;
    const pome_encoded *bias_encoded;
    const float *x; /* [m, k] */
    float *y;       /* [m, n] */
    size_t m, n, k;
    float *scratch; /* [n_threads, pome_rows_scratch()] */
    pome_coded coded;     /* int8 activations */
    char *coded_scratch;  /* [n_threads, pome_coded_thread_bytes()] */
    const void *q8;
} linear_job;

static void add_bias(const linear_job *job, size_t begin, size_t end)
{
    float bias[POME_ROWS_TILE];
    for (size_t j = begin; job->bias && j < end; j += POME_ROWS_TILE) {
        size_t n = end - j < POME_ROWS_TILE ? end - j : POME_ROWS_TILE;
        pome_vector_piece(job->bias, job->bias_encoded, job->r->kernels, j, n, bias);
        for (size_t i = 0; i < job->m; i++)
            for (size_t p = 0; p < n; p++)
                job->y[i * job->n + j + p] += bias[p];
    }
}

static void linear_rows(void *arg, size_t begin, size_t end, int thread)
{
    const linear_job *job = (const linear_job *)arg;
    pome_rows_times(&job->weight, job->r->kernels, begin, end - begin, job->x, job->k, job->m, job->y + begin, job->n,
                    job->scratch + (size_t)thread * pome_rows_scratch());
    add_bias(job, begin, end);
}

static void linear_coded_rows(void *arg, size_t begin, size_t end, int thread)
{
    const linear_job *job = (const linear_job *)arg;
    pome_coded_times(&job->coded, job->q8, job->m, begin, end - begin, job->y + begin, job->n,
                     job->coded_scratch + (size_t)thread * pome_coded_thread_bytes(&job->coded, job->m));
    add_bias(job, begin, end);
}

/* Integers of any width, in 32 bits with wrap-around. */
static int64_t int_element(const pome_tensor *t, const pome_encoded *e, size_t i)
{
    float value;
    if (!e)
        return pome_tensor_int_at(t, (int64_t)i);
    pome_encoded_decode(e, i, 1, &value);
    return (int64_t)value;
}

static void store_int(pome_tensor *t, size_t i, uint32_t v)
{
    switch (pome_dtype_bits(t->dtype)) {
    case 8:
        ((uint8_t *)t->data)[i] = (uint8_t)v;
        break;
    case 16:
        ((uint16_t *)t->data)[i] = (uint16_t)v;
        break;
    default:
        ((uint32_t *)t->data)[i] = v;
        break;
    }
}

static void linear_int_rows(void *arg, size_t begin, size_t end, int thread)
{
    const linear_job *job = (const linear_job *)arg;
    const pome_tensor *x = pome_in(job->r, P_linear_x), *w = pome_in(job->r, P_linear_weight);
    const pome_encoded *we = pome_in_encoded(job->r, P_linear_weight);
    (void)thread;
    for (size_t j = begin; j < end; j++)
        for (size_t i = 0; i < job->m; i++) {
            uint32_t sum = job->bias ? (uint32_t)int_element(job->bias, job->bias_encoded, j) : 0;
            for (size_t p = 0; p < job->k; p++)
                sum += (uint32_t)pome_tensor_int_at(x, (int64_t)(i * job->k + p)) *
                       (uint32_t)int_element(w, we, j * job->k + p);
            store_int(&job->r->out[0], i * job->n + j, sum);
        }
}

static size_t rows_of(const pome_tensor *x)
{
    size_t m = 1;
    for (int32_t d = 0; d + 1 < x->rank; d++)
        m *= (size_t)x->shape[d];
    return m;
}

static bool coded_weight(const pome_run *r, pome_coded *w)
{
    const pome_tensor *t = pome_in(r, P_linear_weight);
    return t->rank == 2 && pome_coded_init(w, r, pome_in_encoded(r, P_linear_weight), 0, (size_t)t->shape[0],
                                           (size_t)t->shape[1]);
}

static size_t linear_scratch(const pome_run *r)
{
    pome_coded w;
    size_t m = rows_of(pome_in(r, P_linear_x)), threads = (size_t)pome_pool_n_threads(r->pool);
    if (coded_weight(r, &w))
        return pome_coded_activation_bytes(&w, m) + threads * pome_coded_thread_bytes(&w, m);
    return threads * pome_rows_scratch() * sizeof(float);
}

/* Rows at a time: enough work for a hand-out, few enough to share out. Multiples of 4, the kernels' tile. */
static size_t grain_rows(size_t k, size_t m)
{
    size_t rows = m > 4 ? POME_ROWS_TILE : 32768 / (k + 1) / 4 * 4;
    return rows < 4 ? 4 : rows > 64 ? 64 : rows;
}

static pome_status linear_run(const pome_run *r, pome_error *err)
{
    const pome_tensor *x = pome_in(r, P_linear_x), *w = pome_in(r, P_linear_weight);
    linear_job job = {.r = r, .bias = pome_in(r, P_linear_bias), .scratch = (float *)r->scratch};
    if (w->rank != 2 || x->rank < 1 || x->shape[x->rank - 1] != w->shape[1])
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "x and weight do not fit");
    job.n = (size_t)w->shape[0];
    job.k = (size_t)w->shape[1];
    job.m = rows_of(x);
    if (job.bias && pome_tensor_count(job.bias) != w->shape[0])
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "bias has %lld elements, weight %zu rows",
                            (long long)pome_tensor_count(job.bias), job.n);
    if (job.m == 0 || job.n == 0)
        return POME_OK;
    job.bias_encoded = pome_in_encoded(r, P_linear_bias);
    if (!pome_dtype_is_float(x->dtype)) {
        pome_pool_run(r->pool, job.n, 1, linear_int_rows, &job);
        return POME_OK;
    }
    job.x = (const float *)x->data;
    job.y = (float *)r->out[0].data;
    if (coded_weight(r, &job.coded)) {
        job.q8 = r->scratch;
        job.coded_scratch = (char *)r->scratch + pome_coded_activation_bytes(&job.coded, job.m);
        pome_coded_set(&job.coded, r->pool, r->scratch, job.x, job.k, job.m);
        pome_pool_run(r->pool, job.n, pome_coded_grain(&job.coded, job.m), linear_coded_rows, &job);
        return POME_OK;
    }
    pome_rows_init(&job.weight, w->dtype, w->data, pome_in_encoded(r, P_linear_weight), job.k);
    pome_pool_run(r->pool, job.n, grain_rows(job.k, job.m), linear_rows, &job);
    return POME_OK;
}

const pome_op_impl pome_ops_linear[] = {
    {.id = POME_OP_linear,
     .f16_ok = POME_BIT(P_linear_weight) | POME_BIT(P_linear_bias),
     .encoded_ok = POME_BIT(P_linear_weight) | POME_BIT(P_linear_bias),
     .scratch = linear_scratch,
     .run = linear_run},
};
POME_FAMILY_COUNT(linear)
