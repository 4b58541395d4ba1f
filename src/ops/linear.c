/* linear: x [.., k] times weight [n, k] transposed, plus bias [n]. Threads take rows of the weight, so each is read
 * and decoded once whatever the number of rows of x.
 *
 * pome_linears is several of one x: activations are prepared once, and one loop hands out the rows of all weights.
 * pome_gated_linear is act(x gate^T) * (x up^T): the two products of a chunk meet while they are in the cache. */
#include <stdint.h>

#include "ops/elementwise.h"
#include "ops/families.h"
#include "ops/gated.h"
#include "ops/linear_part.h"

enum {
    MAX_PARTS = 8,
    MAX_CUTS = 40,  /* chunks of a part that is cut in shrinking ones */
    FEW_ROWS = 8,   /* of x: the time goes into reading weights */
    UNIT_ROWS = 16, /* of weights, which kernels take at once */
    UNIT_BYTES = 1 << 16,
    CHUNKS_MIN = 8, /* of a part, however small */
    UNITS = 128     /* the smallest chunk's share of a part, if it is that large */
};

typedef struct group {
    const pome_run *r;
    pome_linear_part part[MAX_PARTS];
    const void *q8[MAX_PARTS]; /* shared by parts that take the same */
    float *y[MAX_PARTS];       /* [m, n] */
    size_t grain[MAX_PARTS], n_chunks[MAX_PARTS]; /* grain: of the largest chunk */
    size_t cut[MAX_PARTS][MAX_CUTS + 1];          /* where chunks begin; unused if all are of the same size */
    bool is_cut[MAX_PARTS];
    size_t n_parts, m;
    const float *x;
    char *scratch;             /* [n_threads, thread_bytes] */
    size_t thread_bytes;
    pome_row_fn *gate;         /* gated: the two parts' product goes to y[0] */
} group;

static size_t whole_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static pome_status add_part(group *g, const pome_tensor *x, uint32_t weight, int64_t bias, pome_error *err)
{
    if (g->n_parts == MAX_PARTS)
        return pome_op_fail(g->r->op, err, POME_ERR_LIMIT, "more than %d weights", (int)MAX_PARTS);
    return pome_linear_part_init(&g->part[g->n_parts++], g->r, x, weight, bias, err);
}

/* The weights of any of the three operators. */
static pome_status make_group(group *g, const pome_run *r, pome_error *err)
{
    const pome_arg *a = r->op->args;
    const pome_tensor *x = r->in[a[0].first]; /* x comes first in all of them */
    *g = (group){.r = r, .m = pome_linear_n_rows(x), .x = (const float *)x->data};
    switch (r->op->def->id) {
    case POME_OP_linear:
        return add_part(g, x, a[P_linear_weight].first, a[P_linear_bias].count ? (int64_t)a[P_linear_bias].first : -1, err);
    case POME_OP_pome_linears:
        for (uint32_t i = 0; i < a[P_pome_linears_weights].count; i++)
            POME_TRY(add_part(g, x, a[P_pome_linears_weights].first + i,
                              i < a[P_pome_linears_biases].count ? (int64_t)a[P_pome_linears_biases].first + i : -1, err));
        return POME_OK;
    default:
        POME_TRY(add_part(g, x, a[P_pome_gated_linear_gate].first,
                          a[P_pome_gated_linear_gate_bias].count ? (int64_t)a[P_pome_gated_linear_gate_bias].first : -1,
                          err));
        return add_part(g, x, a[P_pome_gated_linear_up].first,
                        a[P_pome_gated_linear_up_bias].count ? (int64_t)a[P_pome_gated_linear_up_bias].first : -1, err);
    }
}

/* The part whose activations part i takes: itself or an earlier one. */
static size_t activations_of(const group *g, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (g->part[j].is_coded && pome_coded_same_activations(&g->part[j].coded, &g->part[i].coded))
            return j;
    return i;
}

/* Where few rows of x are multiplied, weights are read from memory in order: long chunks keep the processor's reading
 * ahead going, short ones at the end let threads finish together. Each takes a sixth of what is left, in rows eight
 * times an odd number, so that streams that a kernel reads at an eighth of a chunk from each other do not meet in the sets of
 * the cache. */
static void cut_part(group *g, size_t i)
{
    size_t n = g->part[i].n, n_cuts = 0, at = 0, unit = UNIT_BYTES / (g->part[i].k / 2 + 1);
    unit = unit > n / CHUNKS_MIN ? n / CHUNKS_MIN : unit;
    unit = ((unit > n / UNITS ? unit : n / UNITS) / UNIT_ROWS + 1) * UNIT_ROWS;
    while (at < n) {
        size_t rows = (n - at) / 6 / unit * unit;
        rows = (rows < unit ? unit : rows) + UNIT_ROWS / 2;
        g->cut[i][n_cuts++] = at;
        at = n - at <= rows || n_cuts == MAX_CUTS ? n : at + rows;
    }
    g->cut[i][n_cuts] = n;
    g->n_chunks[i] = n_cuts;
    g->grain[i] = n_cuts > 1 ? g->cut[i][1] : n;
    for (size_t c = 0; c < n_cuts; c++)
        g->grain[i] = g->cut[i][c + 1] - g->cut[i][c] > g->grain[i] ? g->cut[i][c + 1] - g->cut[i][c] : g->grain[i];
}

static size_t chunk_begin(const group *g, size_t i, size_t chunk)
{
    size_t at = g->is_cut[i] ? g->cut[i][chunk] : chunk * g->grain[i];
    return at < g->part[i].n ? at : g->part[i].n;
}

/* Bytes of activations; the chunks and every thread's share are set on the way. */
static size_t lay_out(group *g)
{
    size_t activations = 0, thread = 0, widest = 0;
    for (size_t i = 0; i < g->n_parts; i++) {
        const pome_linear_part *p = &g->part[i];
        size_t own = pome_linear_part_scratch(p, g->m);
        g->is_cut[i] = p->is_coded && g->m <= FEW_ROWS;
        if (g->is_cut[i]) {
            cut_part(g, i);
        } else {
            g->grain[i] = pome_linear_part_grain(p, g->m);
            if (g->r->op->def->id == POME_OP_pome_gated_linear)
                g->grain[i] = g->grain[0];
            g->n_chunks[i] = (p->n + g->grain[i] - 1) / g->grain[i];
        }
        thread = own > thread ? own : thread;
        widest = g->grain[i] > widest ? g->grain[i] : widest;
        if (p->is_coded && activations_of(g, i) == i)
            activations += pome_coded_activation_bytes(&p->coded, g->m);
    }
    if (g->r->op->def->id == POME_OP_pome_gated_linear)
        thread += whole_lines(g->m * widest * sizeof(float));
    g->thread_bytes = whole_lines(thread);
    return activations;
}

static size_t linear_scratch(const pome_run *r)
{
    group g;
    if (make_group(&g, r, NULL) != POME_OK)
        return 0;
    return lay_out(&g) + (size_t)pome_pool_n_threads(r->pool) * g.thread_bytes;
}

static void set_activations(group *g)
{
    char *at = (char *)g->r->scratch;
    for (size_t i = 0; i < g->n_parts; i++) {
        pome_linear_part *p = &g->part[i];
        size_t from = p->is_coded ? activations_of(g, i) : i;
        if (!p->is_coded)
            continue;
        if (from == i) {
            pome_coded_set(&p->coded, g->r->pool, at, g->x, p->k, g->m);
            g->q8[i] = at;
            at += pome_coded_activation_bytes(&p->coded, g->m);
        }
        g->q8[i] = g->q8[from];
    }
    g->scratch = at;
}

static void linear_chunks(void *arg, size_t begin, size_t end, int thread)
{
    const group *g = (const group *)arg;
    for (size_t chunk = begin; chunk < end; chunk++) {
        size_t i = 0, at = chunk;
        while (at >= g->n_chunks[i])
            at -= g->n_chunks[i++];
        const pome_linear_part *p = &g->part[i];
        size_t first = chunk_begin(g, i, at), n = chunk_begin(g, i, at + 1) - first;
        pome_linear_part_times(p, g->x, g->q8[i], g->m, first, n, g->y[i] + first, p->n,
                               g->scratch + (size_t)thread * g->thread_bytes);
    }
}

static void gated_chunks(void *arg, size_t begin, size_t end, int thread)
{
    static const ptrdiff_t step[2] = {1, 1};
    const group *g = (const group *)arg;
    size_t width = g->part[0].n, grain = g->grain[0];
    char *scratch = g->scratch + (size_t)thread * g->thread_bytes;
    float *up = (float *)(void *)(scratch + g->thread_bytes - whole_lines(g->m * grain * sizeof(float)));
    for (size_t chunk = begin; chunk < end; chunk++) {
        size_t first = chunk_begin(g, 0, chunk), n = chunk_begin(g, 0, chunk + 1) - first;
        pome_linear_part_times(&g->part[0], g->x, g->q8[0], g->m, first, n, g->y[0] + first, width, scratch);
        pome_linear_part_times(&g->part[1], g->x, g->q8[1], g->m, first, n, up, n, scratch);
        for (size_t i = 0; i < g->m; i++) {
            float *out = g->y[0] + i * width + first;
            const void *in[2] = {out, up + i * n};
            g->gate(out, in, step, n, g->r->kernels);
        }
    }
}

static pome_status run_group(group *g)
{
    size_t n_chunks = 0;
    lay_out(g);
    if (g->m == 0)
        return POME_OK;
    set_activations(g);
    for (size_t i = 0; i < g->n_parts; i++)
        n_chunks += g->n_chunks[i];
    if (g->gate)
        pome_pool_run(g->r->pool, g->n_chunks[0], 1, gated_chunks, g);
    else
        pome_pool_run(g->r->pool, n_chunks, 1, linear_chunks, g);
    return POME_OK;
}

/* ---- integers of any width, in 32 bits with wrap-around ---- */

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
    const group *g = (const group *)arg;
    const pome_linear_part *part = &g->part[0];
    const pome_tensor *x = pome_in(g->r, P_linear_x), *w = pome_in(g->r, P_linear_weight);
    const pome_encoded *we = pome_in_encoded(g->r, P_linear_weight);
    (void)thread;
    for (size_t j = begin; j < end; j++)
        for (size_t i = 0; i < g->m; i++) {
            uint32_t sum = part->bias ? (uint32_t)int_element(part->bias, part->bias_encoded, j) : 0;
            for (size_t p = 0; p < part->k; p++)
                sum += (uint32_t)pome_tensor_int_at(x, (int64_t)(i * part->k + p)) *
                       (uint32_t)int_element(w, we, j * part->k + p);
            store_int(&g->r->out[0], i * part->n + j, sum);
        }
}

/* ---- the operators ---- */

static pome_status linear_run(const pome_run *r, pome_error *err)
{
    group g;
    POME_TRY(make_group(&g, r, err));
    g.y[0] = (float *)r->out[0].data;
    if (pome_dtype_is_float(pome_in(r, P_linear_x)->dtype))
        return run_group(&g);
    pome_pool_run(r->pool, g.part[0].n, 1, linear_int_rows, &g);
    return POME_OK;
}

static pome_status linears_run(const pome_run *r, pome_error *err)
{
    group g;
    POME_TRY(make_group(&g, r, err));
    for (size_t i = 0; i < g.n_parts; i++)
        g.y[i] = (float *)r->out[i].data;
    return run_group(&g);
}

static pome_status gated_linear_run(const pome_run *r, pome_error *err)
{
    group g;
    const char *activation = pome_op_str(r->op, P_pome_gated_linear_activation, "");
    POME_TRY(make_group(&g, r, err));
    g.y[0] = (float *)r->out[0].data;
    g.gate = pome_gated_row(activation);
    if (!g.gate || g.part[0].n != g.part[1].n)
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "activation \"%s\", weights of %zu and %zu rows", activation,
                            g.part[0].n, g.part[1].n);
    return run_group(&g);
}

#define LINEAR (POME_BIT(P_linear_weight) | POME_BIT(P_linear_bias))
#define LINEARS (POME_BIT(P_pome_linears_weights) | POME_BIT(P_pome_linears_biases))
#define GATED                                                                                                          \
    (POME_BIT(P_pome_gated_linear_gate) | POME_BIT(P_pome_gated_linear_up) | POME_BIT(P_pome_gated_linear_gate_bias) | \
     POME_BIT(P_pome_gated_linear_up_bias))

const pome_op_impl pome_ops_linear[] = {
    {.id = POME_OP_linear, .f16_ok = LINEAR, .encoded_ok = LINEAR, .scratch = linear_scratch, .run = linear_run},
    {.id = POME_OP_pome_linears, .f16_ok = LINEARS, .encoded_ok = LINEARS, .scratch = linear_scratch, .run = linears_run},
    {.id = POME_OP_pome_gated_linear,
     .f16_ok = GATED,
     .encoded_ok = GATED,
     .scratch = linear_scratch,
     .run = gated_linear_run},
};
POME_FAMILY_COUNT(linear)
