/* A tile of 2 x 2 results has 16 inputs d, whose transform v = B^T d B meets that of the weights, u = G g G^T: the sums over
 * channels m = u v of each of the 16 elements are products of matrices, and A^T m A are the results.
 *
 * Sums that are not finite may be so by the transform alone, which mixes neighbours and is larger than what it stands for:
 * those results are computed again without it.
 *
 * Large images are cut into groups of rows of tiles, whose transforms stay in a thread's cache. Small ones are transformed as a
 * whole, by all threads, so that each weight is read once. */
#include "ops/conv_winograd.h"

#include <math.h>
#include <string.h>

enum {
    N = 16,              /* elements of a tile */
    TAPS = 9,
    DEPTH = 256,         /* of channels at once, whose weights lie side by side */
    ROWS = 24,           /* of the weight at once; whole register tiles of any level */
    TILES = 64,          /* of a group, about */
    GROUP_BYTES = 640 << 10, /* of a group's transformed inputs, in a second-level cache */
    WHOLE_MAX = 100,     /* tiles of an image that is transformed as a whole */
    COLUMNS_FEW = 3      /* tiles beyond whole panels that are multiplied one by one */
};

static size_t ceil_div(size_t n, size_t d)
{
    return (n + d - 1) / d;
}
static size_t whole_vectors(size_t n)
{
    return ceil_div(n, 8) * 8;
}

/* ---- weights ---- */

/* u = G g G^T of one kernel. */
static void transform_kernel(const float *g, double *u)
{
    double half[4][3];
    for (int c = 0; c < 3; c++) {
        double a = (double)g[c], b = (double)g[3 + c], d = (double)g[6 + c];
        half[0][c] = a;
        half[1][c] = (a + b + d) / 2;
        half[2][c] = (a - b + d) / 2;
        half[3][c] = d;
    }
    for (int r = 0; r < 4; r++) {
        double a = half[r][0], b = half[r][1], d = half[r][2];
        u[4 * r] = a;
        u[4 * r + 1] = (a + b + d) / 2;
        u[4 * r + 2] = (a - b + d) / 2;
        u[4 * r + 3] = d;
    }
}

/* Where element t of rows from `row` on, a multiple of ROWS, begins in the piece of channels from `first` on, of which there are
 * `len`. ROWS rows lie [len, ROWS], and those that are left over likewise: they are read from one end to the other. */
static size_t weight_at(const pome_winograd *w, size_t t, size_t first, size_t len, size_t row)
{
    return (t * w->cin + first) * w->cout + row * len;
}

static size_t rows_from(const pome_winograd *w, size_t row)
{
    return w->cout - row < ROWS ? w->cout - row : ROWS;
}

static size_t piece_from(const pome_winograd *w, size_t first)
{
    return w->cin - first < DEPTH ? w->cin - first : DEPTH;
}

pome_status pome_winograd_prepare(pome_winograd *w, const pome_tensor *weight, const pome_kernels *kernels, pome_arena *arena,
                                  pome_error *err)
{
    enum { LINE = 64, SOME = POME_KERNEL_KC / TAPS };
    pome_rows rows;
    float scratch[POME_KERNEL_KC];
    *w = (pome_winograd){.cin = (size_t)weight->shape[1], .cout = (size_t)weight->shape[0]};
    size_t count = N * w->cin * w->cout, ld; /* of elements that are in memory already, 9 for 16 */
    char *memory = pome_arena_alloc_array(arena, count + LINE / sizeof(float) + POME_PANEL, sizeof(float));
    if (!memory)
        return pome_fail_nomem(err, count * sizeof(float), "transformed weights");
    float *u = (float *)(void *)(memory + (LINE - (uintptr_t)memory % LINE) % LINE);
    pome_rows_init(&rows, weight->dtype, weight->data, NULL, w->cin * TAPS);
    for (size_t row = 0; row < w->cout; row++)
        for (size_t c = 0; c < w->cin; c += SOME) {
            size_t n = w->cin - c < SOME ? w->cin - c : SOME;
            const float *g = pome_rows_piece(&rows, kernels, row, 1, c * TAPS, n * TAPS, scratch, &ld);
            for (size_t i = c; i < c + n; i++, g += TAPS) {
                size_t first = i / DEPTH * DEPTH, block = row / ROWS * ROWS;
                double transformed[N];
                transform_kernel(g, transformed);
                for (size_t t = 0; t < N; t++)
                    u[weight_at(w, t, first, piece_from(w, first), block) + (i - first) * rows_from(w, block) + (row - block)] =
                        (float)transformed[t];
            }
        }
    w->u = u;
    return POME_OK;
}

/* ---- how the work is cut ---- */

typedef struct cut {
    size_t tile_rows, tile_cols; /* of an image */
    size_t n_rows, n_groups;     /* rows of tiles of a group */
    size_t ld;                   /* floats between channels: tiles of a group and what a vector writes behind them */
    size_t width;                /* of a phase of a row of the input */
    bool is_whole;
} cut;

static size_t ld_of(const cut *k)
{
    size_t ld = whole_vectors((k->n_rows - 1) * k->tile_cols + whole_vectors(k->tile_cols));
    return ld / 8 % 2 ? ld : ld + 8; /* odd, so that channels spread over the sets of a cache */
}

static cut cut_of(const pome_winograd *w, size_t height, size_t width)
{
    cut k = {.tile_rows = ceil_div(height, 2), .tile_cols = ceil_div(width, 2)};
    k.width = whole_vectors(k.tile_cols) + 8;
    k.n_rows = TILES / k.tile_cols < 1 ? 1 : TILES / k.tile_cols;
    k.n_rows = k.n_rows < k.tile_rows ? k.n_rows : k.tile_rows;
    while (k.n_rows > 1 && N * w->cin * ld_of(&k) * sizeof(float) > GROUP_BYTES)
        k.n_rows--;
    k.is_whole = k.tile_rows * k.tile_cols <= WHOLE_MAX;
    k.n_rows = k.is_whole ? k.tile_rows : k.n_rows;
    k.n_groups = ceil_div(k.tile_rows, k.n_rows);
    k.ld = ld_of(&k);
    return k;
}

/* Floats of one thread: the input's rows of a channel; for groups their transforms and sums too. */
static size_t input_floats(const cut *k)
{
    return whole_vectors((2 * k->n_rows + 2) * 2 * k->width);
}
static size_t transform_floats(const cut *k, size_t channels)
{
    return N * channels * k->ld + POME_PANEL;
}

static size_t thread_floats(const cut *k, const pome_winograd *w)
{
    size_t own = input_floats(k) + (k->is_whole ? 0 : transform_floats(k, w->cin) + transform_floats(k, ROWS));
    return ceil_div(own, 16) * 16;
}

size_t pome_winograd_scratch(const pome_winograd *w, size_t n, size_t height, size_t width, size_t n_threads)
{
    if (n * height * width == 0)
        return 0;
    const cut k = cut_of(w, height, width);
    size_t shared = k.is_whole ? transform_floats(&k, w->cin) + transform_floats(&k, w->cout) : 0;
    return n_threads * thread_floats(&k, w) + shared;
}

bool pome_winograd_fits(const pome_window *w)
{
    bool fits = w->in[0] == 1 && w->out[0] == 1 && w->kernel[0] == 1;
    for (int d = 1; d < 3; d++)
        fits = fits && w->kernel[d] == 3 && w->stride[d] == 1 && w->dilation[d] == 1;
    return fits;
}

/* ---- the three steps ---- */

typedef struct job {
    const pome_conv_image *c;
    const pome_winograd *w;
    cut k;
    float *threads, *v, *m; /* v, m: of the whole image */
    size_t image;
} job;

/* A group of rows of tiles of an image, with the memory for it. */
typedef struct group {
    size_t image, first, n_rows; /* in rows of tiles */
    float *input, *v;            /* v [16, cin, ld] */
    float *m;                    /* [16, m_rows, ld] of weights' rows from m_first on */
    size_t m_first, m_rows;
} group;

static float *thread_memory(const job *j, int thread)
{
    return j->threads + (size_t)thread * thread_floats(&j->k, j->w);
}

static void transform_channel(const job *j, const group *g, size_t channel)
{
    const pome_conv_image *c = j->c;
    const cut *k = &j->k;
    const float *plane = c->x + (g->image * c->cin + channel) * c->w->n_in;
    pome_conv_copy_phases(c->w, plane, 2 * g->first, 2 * g->n_rows + 2, 2, k->width, g->input);
    for (size_t r = 0; r < g->n_rows; r++)
        c->r->kernels->winograd_in_f32(g->v + channel * k->ld + r * k->tile_cols, j->w->cin * k->ld, g->input + 4 * r * k->width,
                                       2 * k->width, k->width, whole_vectors(k->tile_cols));
}

/* n <= COLUMNS_FEW tiles: a vector of tiles would be all but empty, so vectors are of rows. */
static void multiply_columns(const job *j, float *m, const float *u, size_t rows, const float *v, size_t n, size_t len, bool add)
{
    float turned[COLUMNS_FEW * ROWS];
    const size_t ld = j->k.ld;
    for (size_t row = 0; row < rows && add; row++)
        for (size_t i = 0; i < n; i++)
            turned[i * ROWS + row] = m[row * ld + i];
    for (size_t row = 0; row < rows; row += POME_PANEL)
        j->c->r->kernels->gemm_panel_f32(turned + row, ROWS, v, 1, ld, u + row, rows, n, rows - row < POME_PANEL ? rows - row : POME_PANEL,
                                         len, add, NULL);
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < n; i++)
            m[row * ld + i] = turned[i * ROWS + row];
}

/* Sums of element t for the ROWS rows of weights from `row` on. */
static void multiply(const job *j, const group *g, size_t t, size_t row)
{
    const pome_winograd *w = j->w;
    size_t n_tiles = g->n_rows * j->k.tile_cols, ld = j->k.ld, rows = rows_from(w, row);
    float *m = g->m + (t * g->m_rows + (row - g->m_first)) * ld;
    for (size_t p = 0, len; p < w->cin; p += len) {
        len = piece_from(w, p);
        const float *u = w->u + weight_at(w, t, p, len, row), *v = g->v + (t * w->cin + p) * ld;
        for (size_t i = 0; i < n_tiles; i += POME_PANEL) {
            size_t n = n_tiles - i < POME_PANEL ? n_tiles - i : POME_PANEL;
            if (n <= COLUMNS_FEW)
                multiply_columns(j, m + i, u, rows, v + i, n, len, p > 0);
            else
                j->c->r->kernels->gemm_panel_f32(m + i, ld, u, 1, rows, v + i, ld, rows, n, len, p > 0, NULL);
        }
    }
}

/* Rows [first, first + n) of results of a channel, tap by tap. */
static void convolve_plainly(const pome_conv_image *c, size_t image, size_t channel, size_t first, size_t n, float *scratch)
{
    enum { SOME = POME_KERNEL_KC / TAPS * TAPS };
    const pome_window *w = c->w;
    size_t at = ((image * c->cout + channel) * (size_t)w->out[1] + first) * (size_t)w->out[2], count = n * (size_t)w->out[2], ld;
    float *y = c->y + at, bias = 0;
    memset(y, 0, count * sizeof *y);
    for (size_t p = 0; p < c->cin * TAPS; p += SOME) {
        size_t len = c->cin * TAPS - p < SOME ? c->cin * TAPS - p : SOME;
        const float *weight = pome_rows_piece(c->weight, c->r->kernels, channel, 1, p, len, scratch, &ld);
        for (size_t i = p; i < p + len; i++) {
            const float *x = c->x + (image * c->cin + i / TAPS) * w->n_in;
            int64_t ky = (int64_t)(i % TAPS / 3), kx = (int64_t)(i % 3), begin, end;
            pome_window_span(w, 2, kx, &begin, &end);
            for (size_t row = 0; row < n; row++) {
                int64_t from = (int64_t)(first + row) + ky - w->before[1];
                for (int64_t o = begin; o < end && from >= 0 && from < w->in[1]; o++)
                    y[row * (size_t)w->out[2] + (size_t)o] += weight[i - p] * x[from * w->in[2] + o + kx - w->before[2]];
            }
        }
    }
    if (c->bias) {
        pome_vector_piece(c->bias, c->bias_encoded, c->r->kernels, channel, 1, &bias);
        for (size_t i = 0; i < count; i++)
            y[i] += bias;
    }
    pome_conv_finish(&c->after, at, count, y);
}

/* The group's results of a channel. */
static void finish_channel(const job *j, const group *g, size_t channel, float *scratch)
{
    const pome_conv_image *c = j->c;
    size_t height = (size_t)c->w->out[1], width = (size_t)c->w->out[2], last = 2 * (g->first + g->n_rows);
    const float *m = g->m + (channel - g->m_first) * j->k.ld;
    pome_panel_end end = {.low = c->after.low, .high = c->after.high};
    float bias;
    bool is_finite = true;
    if (c->bias) {
        pome_vector_piece(c->bias, c->bias_encoded, c->r->kernels, channel, 1, &bias);
        end.bias = &bias;
    }
    last = last < height ? last : height;
    for (size_t row = 2 * g->first; row < last; row += 2, m += j->k.tile_cols) {
        size_t at = ((g->image * c->cout + channel) * height + row) * width;
        if (c->after.addend)
            end.addend = c->after.addend + at;
        is_finite &= c->r->kernels->winograd_out_f32(c->y + at, width, last - row < 2 ? 1 : 2, width, m, g->m_rows * j->k.ld, &end);
    }
    if (!is_finite)
        convolve_plainly(c, g->image, channel, 2 * g->first, last - 2 * g->first, scratch);
}

static float *rows_scratch(const job *j, int thread)
{
    return j->c->thread_scratch + (size_t)thread * pome_rows_scratch();
}

/* Unit: a group of rows of tiles of one image. */
static void convolve_groups(void *arg, size_t begin, size_t end, int thread)
{
    const job *j = (const job *)arg;
    for (size_t unit = begin; unit < end; unit++) {
        group g = {.image = unit / j->k.n_groups, .first = unit % j->k.n_groups * j->k.n_rows, .input = thread_memory(j, thread)};
        g.n_rows = j->k.tile_rows - g.first < j->k.n_rows ? j->k.tile_rows - g.first : j->k.n_rows;
        g.v = g.input + input_floats(&j->k);
        g.m = g.v + transform_floats(&j->k, j->w->cin);
        for (size_t channel = 0; channel < j->w->cin; channel++)
            transform_channel(j, &g, channel);
        for (size_t row = 0; row < j->w->cout; row += ROWS) {
            g.m_first = row;
            g.m_rows = rows_from(j->w, row);
            for (size_t t = 0; t < N; t++)
                multiply(j, &g, t, row);
            for (size_t i = 0; i < g.m_rows; i++)
                finish_channel(j, &g, row + i, rows_scratch(j, thread));
        }
    }
}

static group whole_image(const job *j, int thread)
{
    return (group){.image = j->image, .n_rows = j->k.tile_rows, .input = thread_memory(j, thread), .v = j->v, .m = j->m, .m_rows = j->w->cout};
}

static void transform_channels(void *arg, size_t begin, size_t end, int thread)
{
    const job *j = (const job *)arg;
    const group g = whole_image(j, thread);
    for (size_t channel = begin; channel < end; channel++)
        transform_channel(j, &g, channel);
}

/* Unit: ROWS rows of weights of one element; rows vary first, so that inputs stay in the cache. */
static void multiply_rows(void *arg, size_t begin, size_t end, int thread)
{
    const job *j = (const job *)arg;
    const group g = whole_image(j, thread);
    size_t n_blocks = ceil_div(j->w->cout, ROWS);
    for (size_t unit = begin; unit < end; unit++)
        multiply(j, &g, unit / n_blocks, unit % n_blocks * ROWS);
}

static void finish_channels(void *arg, size_t begin, size_t end, int thread)
{
    const job *j = (const job *)arg;
    const group g = whole_image(j, thread);
    for (size_t channel = begin; channel < end; channel++)
        finish_channel(j, &g, channel, rows_scratch(j, thread));
}

void pome_winograd_run(const pome_conv_image *c, const pome_winograd *w, float *memory)
{
    pome_pool *pool = c->r->pool;
    job j = {.c = c, .w = w, .k = cut_of(w, (size_t)c->w->out[1], (size_t)c->w->out[2]), .threads = memory};
    if (!j.k.is_whole) {
        pome_pool_run_near(pool, c->n * j.k.n_groups, 1, convolve_groups, &j);
        return;
    }
    j.v = memory + (size_t)pome_pool_n_threads(pool) * thread_floats(&j.k, w);
    j.m = j.v + transform_floats(&j.k, w->cin);
    for (j.image = 0; j.image < c->n; j.image++) {
        pome_pool_run_near(pool, w->cin, 8, transform_channels, &j);
        pome_pool_run_near(pool, N * ceil_div(w->cout, ROWS), 1, multiply_rows, &j);
        pome_pool_run_near(pool, w->cout, 8, finish_channels, &j);
    }
}
