/* Random tensors. The i-th number of a run is a hash of the seed and i (the output function of SplitMix64 over a
 * counter; Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014), so that equal seeds give
 * equal tensors on every machine and with any number of threads. Seed -1 takes a fresh seed from the system. Core ML's
 * own sequences are not published: only the distributions agree. */
#include "ops/families.h"
#include "ops/unary.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/random.h>

typedef struct generator {
    uint64_t start;
} generator;

static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}
/* The i-th number, in [0, 1) by steps of 2^-53. */
static double uniform(const generator *g, uint64_t i)
{
    return (double)(mix(g->start + (i + 1) * UINT64_C(0x9e3779b97f4a7c15)) >> 11) * 0x1p-53;
}

static pome_status seed_generator(const pome_run *r, uint32_t param, generator *g, pome_error *err)
{
    int64_t seed = pome_in_int(r, param, -1);
    if (seed != -1) {
        g->start = mix((uint64_t)seed);
        return POME_OK;
    }
    if (getrandom(&g->start, sizeof g->start, 0) != (ssize_t)sizeof g->start)
        return pome_op_fail(r->op, err, POME_ERR_IO, "no random seed from the system: %s", strerror(errno));
    return POME_OK;
}

typedef struct fill {
    generator g;
    float *out;
    double a, b;
} fill;

static void fill_uniform(void *arg, size_t begin, size_t end, int thread)
{
    const fill *f = arg;
    float low = (float)f->a, high = (float)f->b;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        float v = (float)(f->a + (f->b - f->a) * uniform(&f->g, i));
        f->out[i] = v >= high && high > low ? nextafterf(high, low) : v; /* rounding must not reach `high` */
    }
}
/* Box and Muller: each element has two numbers of its own. */
static void fill_normal(void *arg, size_t begin, size_t end, int thread)
{
    const fill *f = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        double radius = sqrt(-2.0 * log(1.0 - uniform(&f->g, 2 * i)));
        double angle = 6.283185307179586 * uniform(&f->g, 2 * i + 1);
        f->out[i] = (float)(f->a + f->b * radius * cos(angle));
    }
}
static void fill_bernoulli(void *arg, size_t begin, size_t end, int thread)
{
    const fill *f = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++)
        f->out[i] = uniform(&f->g, i) < f->a ? 1.0f : 0.0f;
}

static pome_status run_fill(const pome_run *r, pome_pool_fn *fn, uint32_t seed_param, double a, double b,
                            pome_error *err)
{
    pome_tensor *out = &r->out[0];
    if (out->dtype != POME_DTYPE_F32)
        return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "result is %s", pome_dtype_name(out->dtype));
    fill f = {{0}, out->data, a, b};
    POME_TRY(seed_generator(r, seed_param, &f.g, err));
    pome_pool_run(r->pool, (size_t)pome_tensor_count(out), 4096, fn, &f);
    return POME_OK;
}

static pome_status run_random_uniform(const pome_run *r, pome_error *err)
{
    return run_fill(r, fill_uniform, P_random_uniform_seed, pome_in_float(r, P_random_uniform_low, 0.0),
                    pome_in_float(r, P_random_uniform_high, 1.0), err);
}
static pome_status run_random_normal(const pome_run *r, pome_error *err)
{
    return run_fill(r, fill_normal, P_random_normal_seed, pome_in_float(r, P_random_normal_mean, 0.0),
                    pome_in_float(r, P_random_normal_stddev, 1.0), err);
}
static pome_status run_random_bernoulli(const pome_run *r, pome_error *err)
{
    return run_fill(r, fill_bernoulli, P_random_bernoulli_seed, pome_in_float(r, P_random_bernoulli_prob, 0.5), 0, err);
}

/* ---- random_categorical ---- */

/* What class c weighs in its row; `shift` is the row's largest logit. Negative probabilities weigh nothing. */
static double weight(float x, bool is_logit, double shift)
{
    return is_logit ? exp((double)x - shift) : x > 0.0f ? (double)x : x == x ? 0.0 : (double)x;
}

/* The class at which the running sum of weights first exceeds u times their total. */
static int64_t draw(const float *x, int64_t n, bool is_logit, double shift, double target)
{
    int64_t last = 0; /* the last class of any weight: what rounding of the sum can leave over */
    double sum = 0;
    for (int64_t c = 0; c < n; c++) {
        double w = weight(x[c], is_logit, shift);
        sum += w;
        if (sum > target)
            return c;
        if (w > 0)
            last = c;
    }
    return last;
}

static pome_status run_random_categorical(const pome_run *r, pome_error *err)
{
    const pome_tensor *x = pome_in(r, P_random_categorical_x);
    pome_tensor *out = &r->out[0];
    const char *mode = pome_op_str(r->op, P_random_categorical_mode, "logits");
    bool is_logit = strcmp(mode, "logits") == 0;
    if (!is_logit && strcmp(mode, "probs") != 0)
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "mode \"%s\" is neither logits nor probs", mode);
    if (x->dtype != POME_DTYPE_F32 || out->dtype != POME_DTYPE_F32 || x->rank < 1 || out->rank < 1)
        return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "x is %s of rank %d", pome_dtype_name(x->dtype),
                            (int)x->rank);
    generator g;
    POME_TRY(seed_generator(r, P_random_categorical_seed, &g, err));
    int64_t n = x->shape[x->rank - 1], n_draws = out->shape[out->rank - 1];
    int64_t n_rows = n_draws > 0 ? pome_tensor_count(out) / n_draws : 0;
    for (int64_t row = 0; row < n_rows; row++) {
        const float *p = (const float *)x->data + row * n;
        double shift = -INFINITY, total = 0;
        for (int64_t c = 0; c < n; c++)
            shift = (double)p[c] > shift ? (double)p[c] : shift;
        for (int64_t c = 0; c < n; c++)
            total += weight(p[c], is_logit, shift);
        if (!(total > 0) || isinf(total))
            return pome_op_fail(r->op, err, POME_ERR_ARG, "row %lld of x is no distribution: its weights sum to %g",
                                (long long)row, total);
        for (int64_t i = 0; i < n_draws; i++) {
            uint64_t number = (uint64_t)(row * n_draws + i);
            ((float *)out->data)[number] = (float)draw(p, n, is_logit, shift, uniform(&g, number) * total);
        }
    }
    return POME_OK;
}

#define IMPL(op) {.id = POME_OP_##op, .run = run_##op}
const pome_op_impl pome_ops_random[] = {
    IMPL(random_bernoulli), IMPL(random_categorical), IMPL(random_normal), IMPL(random_uniform),
};
POME_FAMILY_COUNT(random)
