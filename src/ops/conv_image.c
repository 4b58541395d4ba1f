#include "ops/conv_image.h"

#include <math.h>
#include <string.h>

enum {
    PANEL = POME_PANEL,  /* positions of a panel [k, PANEL] */
    DEPTH = 256,         /* rows of a panel at once: 16 KB, half of a first-level cache */
    GROUP_MAX = 4,       /* panels that share a piece of weights while it is in the cache */
    ROWS = 24,           /* of the weight, at most POME_ROWS_TILE; whole register tiles of any level */
    ROWS_FEW = 12,       /* the same where there would be too few pieces of work */
    COLUMNS_FEW = 3,     /* at most so many of a panel are multiplied one by one, as products along k */
    IN_PLACE_MAX = 1024, /* positions of planes that are multiplied where they lie; farther apart, each row is a page of its own */
    UNITS = 24,          /* at least as many pieces of work, so that threads end together */
    SHARED_MAX = 1 << 20 /* floats of an input that is unfolded as a whole */
};

bool pome_conv_image_is_worth(const pome_window *w)
{
    return w->n_out >= 16 && w->out[0] * w->out[1] > 1;
}

static size_t ceil_div(size_t n, size_t d)
{
    return (n + d - 1) / d;
}

/* Too few panels to give each thread some: the image is unfolded first, then rows and panels are shared out. */
static bool is_unfolded_first(size_t k, size_t n_out, size_t images)
{
    size_t n_panels = ceil_div(n_out, PANEL);
    return n_panels * images < 2 * UNITS && k <= SHARED_MAX / (n_panels * PANEL);
}

size_t pome_conv_image_scratch(size_t k, size_t n_out, size_t n_threads)
{
    size_t own = n_threads * GROUP_MAX * DEPTH * PANEL, shared = ceil_div(n_out, PANEL) * PANEL * k;
    return n_out && is_unfolded_first(k, n_out, 1) && shared > own ? shared : own;
}

static size_t cin_group(const pome_conv_image *c)
{
    return c->cin / c->groups;
}
static size_t cout_group(const pome_conv_image *c)
{
    return c->cout / c->groups;
}

/* The input's positions are the output's. */
static bool is_plain(const pome_window *w)
{
    for (int d = 0; d < 3; d++)
        if (w->kernel[d] != 1 || w->stride[d] != 1 || w->before[d] != 0 || w->out[d] != w->in[d])
            return false;
    return true;
}

/* ---- unfolding ---- */

/* Positions of a panel that lie in one row of the result; o: the first one. */
typedef struct segment {
    size_t to, n;
    int64_t o[3];
} segment;

/* segments[PANEL]: those of the n positions from output `first` on. */
static size_t find_segments(const pome_window *w, size_t first, size_t n, segment *segments)
{
    int64_t o[3];
    size_t n_segments = 0;
    pome_window_split(w->out, first, o);
    for (size_t p = 0, len; p < n; p += len) {
        len = (size_t)(w->out[2] - o[2]) < n - p ? (size_t)(w->out[2] - o[2]) : n - p;
        segments[n_segments++] = (segment){p, len, {o[0], o[1], o[2]}};
        o[2] = 0;
        if (++o[1] == w->out[1]) {
            o[1] = 0;
            o[0]++;
        }
    }
    return n_segments;
}

/* runs[PANEL]: what of the segments kernel element k sees inside of the input; places are those of the input's plane. */
static size_t find_runs(const pome_window *w, const int64_t *k, const segment *segments, size_t n_segments,
                        pome_panel_run *runs)
{
    int64_t shift[3], begin, end;
    size_t n_runs = 0;
    for (int d = 0; d < 3; d++)
        shift[d] = k[d] * w->dilation[d] - w->before[d];
    pome_window_span(w, 2, k[2], &begin, &end);
    for (const segment *s = segments; s < segments + n_segments; s++) {
        int64_t i0 = s->o[0] * w->stride[0] + shift[0], i1 = s->o[1] * w->stride[1] + shift[1];
        int64_t b = begin > s->o[2] ? begin : s->o[2];
        int64_t e = end < s->o[2] + (int64_t)s->n ? end : s->o[2] + (int64_t)s->n;
        if (i0 >= 0 && i0 < w->in[0] && i1 >= 0 && i1 < w->in[1] && b < e)
            runs[n_runs++] = (pome_panel_run){s->to + (size_t)(b - s->o[2]), (size_t)(e - b),
                                              (ptrdiff_t)((i0 * w->in[1] + i1) * w->in[2] + b * w->stride[2] + shift[2])};
    }
    return n_runs;
}

/* Rows [p, p + len) of the panel of n positions from `first` on; x: the group's channels. */
static void unfold_panel(const pome_conv_image *c, const float *x, size_t first, size_t n, size_t p, size_t len, float *panel)
{
    const pome_window *w = c->w;
    size_t n_kernel = w->n_kernel, channel = p / n_kernel, element = p % n_kernel;
    segment segments[PANEL];
    int64_t k[3];
    if (is_plain(w) && n == PANEL) {
        const float *from = x + p * w->n_in + first;
        for (size_t i = 0; i < len; i++, from += w->n_in)
            memcpy(panel + i * PANEL, from, PANEL * sizeof *from);
        return;
    }
    size_t n_segments = find_segments(w, first, n, segments);
    pome_window_split(w->kernel, element, k);
    for (size_t row = 0; row < n_kernel && row < len; row++) { /* and those of the same element in further channels */
        pome_panel_run runs[PANEL];
        size_t n_runs = find_runs(w, k, segments, n_segments, runs);
        c->r->kernels->unfold_panel_f32(panel + row * PANEL, n_kernel * PANEL, x + channel * w->n_in, w->n_in,
                                        (len - row + n_kernel - 1) / n_kernel, runs, n_runs, (size_t)w->stride[2]);
        if (++k[2] == w->kernel[2]) {
            k[2] = 0;
            if (++k[1] == w->kernel[1]) {
                k[1] = 0;
                if (++k[0] == w->kernel[0]) {
                    k[0] = 0;
                    channel++;
                }
            }
        }
    }
}

/* ---- products ---- */

typedef struct piece {
    size_t channel, n_rows; /* of the weight, at most ROWS */
    size_t n;               /* positions */
    size_t p, len;          /* of k */
    float *y;               /* [n_rows], n_out apart, at the first position */
} piece;

/* Where the operands of a piece lie: its whole panels, `apart` floats from each other, and what is left of the positions. */
typedef struct operands {
    const float *panels, *rest;
    size_t apart, ld, ld_rest; /* from row to row */
} operands;

static void finish_columns(const pome_conv_image *c, const piece *t, const float *bias, size_t first, size_t n)
{
    for (size_t row = 0; row < t->n_rows; row++) {
        float *y = t->y + row * c->w->n_out + first;
        for (size_t i = 0; i < n && bias; i++)
            y[i] += bias[row];
        pome_conv_finish(&c->after, (size_t)(y - c->y), n, y);
    }
}

/* n <= COLUMNS_FEW positions: a vector of positions would be all but empty. */
static void multiply_columns(const pome_conv_image *c, const piece *t, const float *w, size_t ldw, const float *b, size_t ldb,
                             size_t first, size_t n)
{
    float column[COLUMNS_FEW * DEPTH];
    for (size_t p = 0; p < t->len; p++, b += ldb)
        for (size_t i = 0; i < n; i++)
            column[i * DEPTH + p] = b[i];
    c->r->kernels->gemm_nt_f32(t->y + first, c->w->n_out, w, ldw, column, DEPTH, t->n_rows, n, t->len, t->p > 0);
}

static void multiply_piece(const pome_conv_image *c, const piece *t, const operands *o, float *scratch)
{
    const pome_kernels *kernels = c->r->kernels;
    float bias[ROWS];
    pome_panel_end end = {.low = c->after.low, .high = c->after.high};
    bool is_last = t->p + t->len == c->k;
    size_t ldw, whole = t->n - t->n % PANEL, rest = t->n - whole;
    const float *w = pome_rows_piece(c->weight, kernels, t->channel, t->n_rows, t->p, t->len, scratch, &ldw);
    if (c->bias && is_last) {
        pome_vector_piece(c->bias, c->bias_encoded, kernels, t->channel, t->n_rows, bias);
        end.bias = bias;
    }
    for (size_t i = 0; i < t->n; i += PANEL) {
        const float *b = i < whole ? o->panels + i / PANEL * o->apart : o->rest;
        if (i == whole && rest <= COLUMNS_FEW) {
            multiply_columns(c, t, w, ldw, b, o->ld_rest, i, rest);
            if (is_last)
                finish_columns(c, t, end.bias, i, rest);
            return;
        }
        if (c->after.addend)
            end.addend = c->after.addend + (t->y - c->y) + i;
        kernels->gemm_panel_f32(t->y + i, c->w->n_out, w, ldw, 1, b, i < whole ? o->ld : o->ld_rest, t->n_rows, i < whole ? PANEL : rest,
                                t->len, t->p > 0, is_last ? &end : NULL);
    }
}

static size_t positions_from(const pome_conv_image *c, size_t first, size_t n_panels)
{
    size_t left = c->w->n_out - first;
    return left < n_panels * PANEL ? left : n_panels * PANEL;
}

static const float *image_of(const pome_conv_image *c, size_t image)
{
    return c->x + image * cin_group(c) * c->w->n_in;
}

/* n positions from `first` on that are the input's: nothing is copied but a rest that a vector would read past. */
static operands in_place(const pome_conv_image *c, size_t image, size_t first, const piece *t, float *panels)
{
    const float *x = image_of(c, image) + t->p * c->w->n_in + first;
    size_t whole = t->n - t->n % PANEL, rest = t->n - whole;
    operands o = {.panels = x, .rest = x + whole, .apart = PANEL, .ld = c->w->n_in, .ld_rest = c->w->n_in};
    if (rest > COLUMNS_FEW) {
        c->r->kernels->unfold_panel_f32(panels, PANEL, o.rest, c->w->n_in, t->len, &(pome_panel_run){0, rest, 0}, 1, 1);
        o.rest = panels;
        o.ld_rest = PANEL;
    }
    return o;
}

static operands unfolded(const float *panels, size_t apart, size_t n)
{
    return (operands){.panels = panels, .rest = panels + n / PANEL * apart, .apart = apart, .ld = PANEL, .ld_rest = PANEL};
}

/* The operands of a piece, unfolded by the thread where they need to be. */
static operands operands_of(const pome_conv_image *c, size_t image, size_t first, const piece *t, float *panels)
{
    if (c->is_in_place)
        return in_place(c, image, first, t, panels);
    for (size_t i = 0; i < t->n; i += PANEL)
        unfold_panel(c, image_of(c, image), first + i, t->n - i < PANEL ? t->n - i : PANEL, t->p, t->len, panels + i * DEPTH);
    return unfolded(panels, DEPTH * PANEL, t->n);
}

static float *panels_of(const pome_conv_image *c, int thread)
{
    return c->panels + (size_t)thread * GROUP_MAX * DEPTH * PANEL;
}

/* Unit: a group of panels of one image, unfolded by the thread piece by piece, times all rows. */
static void multiply_panels(void *arg, size_t begin, size_t end, int thread)
{
    const pome_conv_image *c = (const pome_conv_image *)arg;
    size_t n_rows = cout_group(c), n_groups = ceil_div(c->n_panels, c->n_together);
    float *scratch = c->thread_scratch + (size_t)thread * pome_rows_scratch();
    for (size_t unit = begin; unit < end; unit++) {
        size_t image = unit / n_groups, first = unit % n_groups * c->n_together * PANEL;
        piece t = {.n = positions_from(c, first, c->n_together)};
        for (t.p = 0; t.p < c->k; t.p += DEPTH) {
            t.len = c->k - t.p < DEPTH ? c->k - t.p : DEPTH;
            const operands o = operands_of(c, image, first, &t, panels_of(c, thread));
            for (size_t row = 0; row < n_rows; row += ROWS) {
                t.n_rows = n_rows - row < ROWS ? n_rows - row : ROWS;
                t.channel = image % c->groups * n_rows + row;
                t.y = c->y + (image * n_rows + row) * c->w->n_out + first;
                multiply_piece(c, &t, &o, scratch);
            }
        }
    }
}

/* Unit: a panel of the image [c->n_panels, k, PANEL]. */
static void unfold_image(void *arg, size_t begin, size_t end, int thread)
{
    const pome_conv_image *c = (const pome_conv_image *)arg;
    (void)thread;
    for (size_t i = begin; i < end; i++)
        unfold_panel(c, image_of(c, c->image), i * PANEL, positions_from(c, i * PANEL, 1), 0, c->k, c->panels + i * c->k * PANEL);
}

/* Unit: some rows of the weight times a group of panels of the image; rows vary last. */
static void multiply_rows(void *arg, size_t begin, size_t end, int thread)
{
    const pome_conv_image *c = (const pome_conv_image *)arg;
    size_t n_rows = cout_group(c), n_groups = ceil_div(c->n_panels, c->n_together);
    float *scratch = c->thread_scratch + (size_t)thread * pome_rows_scratch();
    for (size_t unit = begin; unit < end; unit++) {
        size_t row = unit / n_groups * c->n_rows, first = unit % n_groups * c->n_together * PANEL;
        piece t = {.n = positions_from(c, first, c->n_together), .n_rows = n_rows - row < c->n_rows ? n_rows - row : c->n_rows};
        t.channel = c->image % c->groups * n_rows + row;
        t.y = c->y + (c->image * n_rows + row) * c->w->n_out + first;
        for (t.p = 0; t.p < c->k; t.p += DEPTH) {
            t.len = c->k - t.p < DEPTH ? c->k - t.p : DEPTH;
            const operands o = c->is_in_place ? in_place(c, c->image, first, &t, panels_of(c, thread))
                                              : unfolded(c->panels + first * c->k + t.p * PANEL, c->k * PANEL, t.n);
            multiply_piece(c, &t, &o, scratch);
        }
    }
}

void pome_conv_finish(const pome_conv_after *after, size_t at, size_t n, float *y)
{
    const float low = after->low, high = after->high;
    if (after->addend) {
        const float *addend = after->addend + at;
        for (size_t i = 0; i < n; i++)
            y[i] += addend[i];
    }
    if (low > -INFINITY || high < INFINITY)
        for (size_t i = 0; i < n; i++) {
            float v = y[i] < low ? low : y[i]; /* NaN stays */
            y[i] = v > high ? high : v;
        }
}

void pome_conv_image_run(pome_conv_image *c)
{
    size_t images = c->n * c->groups;
    c->k = cin_group(c) * c->w->n_kernel;
    if (cin_group(c) == 1 && cout_group(c) <= 4 && c->k <= POME_CONV_PLANES_ELEMENTS) {
        pome_conv_planes_run(c);
        return;
    }
    c->room = GROUP_MAX * DEPTH * PANEL;
    if (pome_conv_rows_is_worth(c->w, cin_group(c), c->room)) {
        pome_conv_rows_run(c);
        return;
    }
    c->n_panels = ceil_div(c->w->n_out, PANEL);
    c->is_in_place = c->k <= DEPTH && is_plain(c->w) && c->w->n_in <= IN_PLACE_MAX;
    if (!is_unfolded_first(c->k, c->w->n_out, images)) {
        size_t n = c->n_panels * images / UNITS;
        c->n_together = n < 1 ? 1 : n > GROUP_MAX ? GROUP_MAX : n;
        pome_pool_run_near(c->r->pool, images * ceil_div(c->n_panels, c->n_together), 1, multiply_panels, c);
        return;
    }
    c->n_together = GROUP_MAX;
    size_t n_groups = ceil_div(c->n_panels, GROUP_MAX);
    c->n_rows = ceil_div(cout_group(c), ROWS) * n_groups < UNITS ? ROWS_FEW : ROWS;
    for (c->image = 0; c->image < images; c->image++) {
        if (!c->is_in_place)
            pome_pool_run_near(c->r->pool, c->n_panels, 1, unfold_image, c);
        pome_pool_run_near(c->r->pool, ceil_div(cout_group(c), c->n_rows) * n_groups, 1, multiply_rows, c);
    }
}
