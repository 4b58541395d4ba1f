/* Reductions over any set of axes. Floats are accumulated in double (maxima in float), in eight lanes along a row and
 * one lane per column otherwise: an order that depends on the shape alone. Sums and products of integers wrap; their
 * means, logarithms and roots are truncated and saturated, as cast does.
 * NaN: sums, products, maxima and minima hand it on; argmax and argmin never choose it (0 if there is nothing else).
 * Nothing to reduce: sums are 0, products 1, float maxima -inf, integer maxima the least value (minima accordingly), a
 * float mean NaN, an integer mean 0; argmax and argmin fail. */
#include "ops/axes.h"
#include "ops/families.h"
#include "kernels/vecmath.h"

#include <float.h>
#include <math.h>

typedef enum kind { SUM, SUM_ABS, SUM_SQUARE, SUM_EXP, PROD, MAX, MIN } kind;
typedef enum finish { AS_IS, MEAN, LOG, ROOT } finish;

typedef struct reduction {
    pome_axes axes;
    kind kind;
    finish finish;
    const void *x;
    pome_dtype dtype;
    void *out;
} reduction;

enum { LANES = 8, COLUMNS = 64, GRAIN = 16384 };

static inline double step(kind k, double acc, float x, double shift)
{
    switch (k) {
    case SUM: return acc + (double)x;
    case SUM_ABS: return acc + (double)fabsf(x);
    case SUM_SQUARE: return acc + (double)x * (double)x;
    case SUM_EXP: return acc + (double)pome_expf(x - (float)shift);
    case PROD: return acc * (double)x;
    case MAX: return (((double)x > acc) | (x != x)) ? (double)x : acc;
    default: return (((double)x < acc) | (x != x)) ? (double)x : acc;
    }
}

static inline double identity(kind k)
{
    return k == PROD ? 1.0 : k == MAX ? -(double)INFINITY : k == MIN ? (double)INFINITY : 0.0;
}

/* Two partial results of one reduction. */
static inline double merge(kind k, double a, double b)
{
    switch (k) {
    case PROD: return a * b;
    case MAX: return b > a || b != b ? b : a;
    case MIN: return b < a || b != b ? b : a;
    default: return a + b;
    }
}

/* Both loops are instantiated for each kind, so that the choice is made outside of them. */
static inline double row_of(kind k, const float *x, int64_t n, double shift)
{
    double lane[LANES];
    for (int l = 0; l < LANES; l++)
        lane[l] = identity(k);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] = step(k, lane[l], x[i + l], shift);
    for (int l = 0; i < n; i++, l++)
        lane[l] = step(k, lane[l], x[i], shift);
    for (int half = LANES / 2; half; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] = merge(k, lane[l], lane[l + half]);
    return lane[0];
}
static inline void columns_of(kind k, double *acc, const float *x, int64_t n, const double *shift)
{
    for (int64_t j = 0; j < n; j++)
        acc[j] = step(k, acc[j], x[j], shift[j]);
}

static double reduce_row(kind k, const float *x, int64_t n, double shift)
{
    switch (k) {
    case SUM: return row_of(SUM, x, n, shift);
    case SUM_ABS: return row_of(SUM_ABS, x, n, shift);
    case SUM_SQUARE: return row_of(SUM_SQUARE, x, n, shift);
    case SUM_EXP: return row_of(SUM_EXP, x, n, shift);
    case PROD: return row_of(PROD, x, n, shift);
    case MAX: return row_of(MAX, x, n, shift);
    default: return row_of(MIN, x, n, shift);
    }
}
static void reduce_columns(kind k, double *acc, const float *x, int64_t n, const double *shift)
{
    switch (k) {
    case SUM: columns_of(SUM, acc, x, n, shift); break;
    case SUM_ABS: columns_of(SUM_ABS, acc, x, n, shift); break;
    case SUM_SQUARE: columns_of(SUM_SQUARE, acc, x, n, shift); break;
    case SUM_EXP: columns_of(SUM_EXP, acc, x, n, shift); break;
    case PROD: columns_of(PROD, acc, x, n, shift); break;
    case MAX: columns_of(MAX, acc, x, n, shift); break;
    default: columns_of(MIN, acc, x, n, shift); break;
    }
}

/* acc[j] for n outputs whose first elements are base[0 .. n); n > 1 only if they lie side by side. */
static void reduce_floats(const reduction *c, kind k, const float *base, int64_t n, double *acc, const double *shift)
{
    const pome_axis_group *g = &c->axes.reduced;
    for (int64_t j = 0; j < n; j++)
        acc[j] = identity(k);
    if (c->axes.is_inner_reduced) {
        int64_t run = g->n ? g->size[g->n - 1] : 1;
        for (int64_t i = 0; i < g->count; i += run)
            *acc = merge(k, *acc, reduce_row(k, base + pome_axis_offset(g, i), run, *shift));
        return;
    }
    for (int64_t i = 0; i < g->count; i++)
        reduce_columns(k, acc, base + pome_axis_offset(g, i), n, shift);
}

static double finish_float(const reduction *c, double acc, double shift)
{
    switch (c->finish) {
    case MEAN: return acc / (double)c->axes.reduced.count;
    case LOG: return log(acc) + shift;
    case ROOT: return sqrt(acc);
    default: return acc;
    }
}

static void run_floats(void *arg, size_t begin, size_t end, int thread)
{
    const reduction *c = arg;
    const pome_axis_group *kept = &c->axes.kept;
    int64_t run = kept->n && !c->axes.is_inner_reduced ? kept->size[kept->n - 1] : 1;
    (void)thread;
    for (int64_t at = (int64_t)begin; at < (int64_t)end;) {
        int64_t n = run - at % run;
        n = n < COLUMNS ? n : COLUMNS;
        n = n < (int64_t)end - at ? n : (int64_t)end - at;
        const float *base = (const float *)c->x + pome_axis_offset(kept, at);
        double acc[COLUMNS], shift[COLUMNS];
        for (int64_t j = 0; j < n; j++)
            shift[j] = 0;
        if (c->kind == SUM_EXP) {
            reduce_floats(c, MAX, base, n, shift, shift);
            for (int64_t j = 0; j < n; j++) /* an infinite maximum is the result: nothing to shift by */
                shift[j] = isinf(shift[j]) ? 0.0 : shift[j];
        }
        reduce_floats(c, c->kind, base, n, acc, shift);
        for (int64_t j = 0; j < n; j++)
            ((float *)c->out)[at + j] = (float)finish_float(c, acc[j], shift[j]);
        at += n;
    }
}

/* ---- integers: rare and small, so one loop for all types ---- */

static int64_t load_int(const void *x, pome_dtype dtype, int64_t i)
{
    switch (dtype) {
    case POME_DTYPE_I8: return ((const int8_t *)x)[i];
    case POME_DTYPE_U8: return ((const uint8_t *)x)[i];
    case POME_DTYPE_BOOL: return ((const uint8_t *)x)[i];
    case POME_DTYPE_I16: return ((const int16_t *)x)[i];
    case POME_DTYPE_U16: return ((const uint16_t *)x)[i];
    case POME_DTYPE_I32: return ((const int32_t *)x)[i];
    default: return ((const uint32_t *)x)[i];
    }
}
static void store_int(void *out, pome_dtype dtype, int64_t i, int64_t v)
{
    switch (dtype) {
    case POME_DTYPE_I8: ((int8_t *)out)[i] = (int8_t)v; break;
    case POME_DTYPE_U8: ((uint8_t *)out)[i] = (uint8_t)v; break;
    case POME_DTYPE_BOOL: ((uint8_t *)out)[i] = v != 0; break;
    case POME_DTYPE_I16: ((int16_t *)out)[i] = (int16_t)v; break;
    case POME_DTYPE_U16: ((uint16_t *)out)[i] = (uint16_t)v; break;
    case POME_DTYPE_I32: ((int32_t *)out)[i] = (int32_t)v; break;
    default: ((uint32_t *)out)[i] = (uint32_t)v; break;
    }
}

static int64_t int_limit(pome_dtype dtype, bool greatest)
{
    uint32_t bits = pome_dtype_bits(dtype);
    bool is_signed = dtype == POME_DTYPE_I8 || dtype == POME_DTYPE_I16 || dtype == POME_DTYPE_I32;
    if (dtype == POME_DTYPE_BOOL)
        bits = 1;
    int64_t top = ((int64_t)1 << (is_signed ? bits - 1 : bits)) - 1;
    return greatest ? top : is_signed ? -top - 1 : 0;
}

/* As cast does it: truncated, saturated, NaN gives 0. */
static int64_t truncate_to(pome_dtype dtype, double v)
{
    int64_t least = int_limit(dtype, false), greatest = int_limit(dtype, true);
    return v != v ? 0 : v >= (double)greatest ? greatest : v <= (double)least ? least : (int64_t)v;
}

static int64_t reduce_ints(const reduction *c, int64_t base)
{
    const pome_axis_group *g = &c->axes.reduced;
    uint64_t sum = c->kind == PROD; /* wraps */
    int64_t best = int_limit(c->dtype, c->kind == MIN);
    int64_t top = int_limit(c->dtype, false);
    double exps = 0;
    for (int64_t i = 0; i < g->count; i++) {
        int64_t v = load_int(c->x, c->dtype, base + pome_axis_offset(g, i));
        top = v > top ? v : top;
        switch (c->kind) {
        case SUM: sum += (uint64_t)v; break;
        case SUM_ABS: sum += (uint64_t)(v < 0 ? -v : v); break;
        case SUM_SQUARE: sum += (uint64_t)v * (uint64_t)v; break;
        case PROD: sum *= (uint64_t)v; break;
        case MAX: best = v > best ? v : best; break;
        case MIN: best = v < best ? v : best; break;
        default: break;
        }
    }
    if (c->kind == MAX || c->kind == MIN)
        return best;
    if (c->kind == SUM_EXP) {
        for (int64_t i = 0; i < g->count; i++)
            exps += exp((double)(load_int(c->x, c->dtype, base + pome_axis_offset(g, i)) - top));
        return truncate_to(c->dtype, log(exps) + (double)top);
    }
    switch (c->finish) {
    case MEAN: return g->count ? (int64_t)sum / g->count : 0;
    case LOG: return truncate_to(c->dtype, log((double)(int64_t)sum));
    case ROOT: return truncate_to(c->dtype, sqrt((double)sum));
    default: return (int64_t)sum;
    }
}

static void run_ints(void *arg, size_t begin, size_t end, int thread)
{
    const reduction *c = arg;
    (void)thread;
    for (size_t at = begin; at < end; at++)
        store_int(c->out, c->dtype, (int64_t)at, reduce_ints(c, pome_axis_offset(&c->axes.kept, (int64_t)at)));
}

static size_t grain_of(const pome_axes *axes)
{
    int64_t n = axes->reduced.count > 0 ? axes->reduced.count : 1;
    return n >= GRAIN ? 1 : (size_t)(GRAIN / n);
}

/* Parameters x, axes and keep_dims are 0, 1 and 2 in every row of the operator table but those of argmax, argmin. */
static pome_status run_reduction(const pome_run *r, kind k, finish f, pome_error *err)
{
    const pome_tensor *x = pome_in(r, 0);
    reduction c = {.kind = k, .finish = f, .x = x->data, .dtype = x->dtype, .out = r->out[0].data};
    bool is_float = x->dtype == POME_DTYPE_F32;
    if (x->dtype != r->out[0].dtype ||
        !(is_float || x->dtype == POME_DTYPE_BOOL || (pome_dtype_is_int(x->dtype) && pome_dtype_bits(x->dtype) % 8 == 0
                                                      && pome_dtype_bits(x->dtype) <= 32)))
        return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "operand is %s, result %s", pome_dtype_name(x->dtype),
                            pome_dtype_name(r->out[0].dtype));
    uint32_t mask;
    POME_TRY(pome_axes_mask(r, pome_in(r, 1), x->rank, &mask, err));
    pome_axes_split(&c.axes, x, mask);
    if (c.axes.kept.count > 0)
        pome_pool_run(r->pool, (size_t)c.axes.kept.count, grain_of(&c.axes), is_float ? run_floats : run_ints, &c);
    return POME_OK;
}

#define RUN(op, kind, finish)                                                                      \
    static pome_status run_##op(const pome_run *r, pome_error *err)                                \
    {                                                                                              \
        return run_reduction(r, kind, finish, err);                                                \
    }
RUN(reduce_l1_norm, SUM_ABS, AS_IS)
RUN(reduce_l2_norm, SUM_SQUARE, ROOT)
RUN(reduce_log_sum, SUM, LOG)
RUN(reduce_log_sum_exp, SUM_EXP, LOG)
RUN(reduce_max, MAX, AS_IS)
RUN(reduce_mean, SUM, MEAN)
RUN(reduce_min, MIN, AS_IS)
RUN(reduce_prod, PROD, AS_IS)
RUN(reduce_sum, SUM, AS_IS)
RUN(reduce_sum_square, SUM_SQUARE, AS_IS)

/* ---- argmax, argmin: the first of equal elements ---- */

typedef struct arg_search {
    pome_axis_view v;
    const void *x;
    pome_dtype dtype, out_dtype;
    void *out;
    bool is_max;
} arg_search;

static int64_t search_floats(const float *x, int64_t n, int64_t stride, bool is_max)
{
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++) {
        float v = x[i * stride];
        if (v == v && (best < 0 || (is_max ? v > x[best * stride] : v < x[best * stride])))
            best = i;
    }
    return best < 0 ? 0 : best;
}
static int64_t search_ints(const arg_search *c, int64_t base)
{
    int64_t best = 0, best_value = load_int(c->x, c->dtype, base);
    for (int64_t i = 1; i < c->v.n; i++) {
        int64_t v = load_int(c->x, c->dtype, base + i * c->v.inner);
        if (c->is_max ? v > best_value : v < best_value) {
            best = i;
            best_value = v;
        }
    }
    return best;
}

static void run_search(void *arg, size_t begin, size_t end, int thread)
{
    const arg_search *c = arg;
    (void)thread;
    for (int64_t at = (int64_t)begin; at < (int64_t)end; at++) {
        int64_t base = at / c->v.inner * c->v.n * c->v.inner + at % c->v.inner;
        int64_t best = c->dtype == POME_DTYPE_F32
                           ? search_floats((const float *)c->x + base, c->v.n, c->v.inner, c->is_max)
                           : search_ints(c, base);
        store_int(c->out, c->out_dtype, at, best);
    }
}

static pome_status run_arg(const pome_run *r, uint32_t axis_param, bool is_max, pome_error *err)
{
    const pome_tensor *x = pome_in(r, 0);
    if (x->rank == 0) { /* one element: its index along the only axis there could be */
        store_int(r->out[0].data, r->out[0].dtype, 0, 0);
        return POME_OK;
    }
    int32_t axis;
    POME_TRY(pome_axis_get(r, pome_in_int(r, axis_param, -1), x->rank, &axis, err));
    arg_search c = {pome_axis_view_of(x, axis), x->data, x->dtype, r->out[0].dtype, r->out[0].data, is_max};
    int64_t n_out = c.v.outer * c.v.inner;
    if (n_out == 0)
        return POME_OK;
    if (c.v.n == 0)
        return pome_op_fail(r->op, err, POME_ERR_ARG, "axis %d is empty: no element to choose", (int)axis);
    if (c.v.n - 1 > int_limit(c.out_dtype, true))
        return pome_op_fail(r->op, err, POME_ERR_LIMIT, "axis %d has %lld elements, more than %s can index", (int)axis,
                            (long long)c.v.n, pome_dtype_name(c.out_dtype));
    pome_pool_run(r->pool, (size_t)n_out, c.v.n >= GRAIN ? 1 : (size_t)(GRAIN / c.v.n), run_search, &c);
    return POME_OK;
}
static pome_status run_reduce_argmax(const pome_run *r, pome_error *err)
{
    return run_arg(r, P_reduce_argmax_axis, true, err);
}
static pome_status run_reduce_argmin(const pome_run *r, pome_error *err)
{
    return run_arg(r, P_reduce_argmin_axis, false, err);
}

#define IMPL(op) {.id = POME_OP_##op, .run = run_##op}
const pome_op_impl pome_ops_reduction[] = {
    IMPL(reduce_argmax),  IMPL(reduce_argmin),      IMPL(reduce_l1_norm), IMPL(reduce_l2_norm),
    IMPL(reduce_log_sum), IMPL(reduce_log_sum_exp), IMPL(reduce_max),     IMPL(reduce_mean),
    IMPL(reduce_min),     IMPL(reduce_prod),        IMPL(reduce_sum),     IMPL(reduce_sum_square),
};
POME_FAMILY_COUNT(reduction)
