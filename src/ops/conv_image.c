#include "ops/conv_image.h"

#include <math.h>
#include <string.h>

enum {
    TILE = 64,             /* positions of a panel [k, TILE] */
    ROWS = 24,             /* of the weight, at most POME_ROWS_TILE; whole register tiles */
    TILE_UNIT = 16,        /* columns that a product is rounded up to */
    STRIP = 4096,          /* floats of a plane convolved at once */
    ELEMENTS_MAX = 81,     /* of a kernel whose planes are convolved directly */
    UNFOLDED_MAX = 1 << 21 /* floats held unfolded at once */
};

bool pome_conv_image_is_worth(const pome_window *w)
{
    return w->n_out >= 16 && w->out[0] * w->out[1] > 1;
}

static size_t tiles_at_once(size_t k, size_t n_out)
{
    size_t all = (n_out + TILE - 1) / TILE, n = UNFOLDED_MAX / (TILE * (k ? k : 1));
    n = n < 1 ? 1 : n;
    return n < all ? n : all;
}

size_t pome_conv_image_scratch(size_t k, size_t n_out, size_t n_threads)
{
    return tiles_at_once(k, n_out) * TILE * k + n_threads * ROWS * TILE;
}

static size_t cin_group(const pome_conv_image *c)
{
    return c->cin / c->groups;
}
static size_t cout_group(const pome_conv_image *c)
{
    return c->cout / c->groups;
}

/* The unfolded input is the input. */
static bool is_plain(const pome_window *w)
{
    for (int d = 0; d < 3; d++)
        if (w->kernel[d] != 1 || w->stride[d] != 1 || w->before[d] != 0 || w->out[d] != w->in[d])
            return false;
    return true;
}

static const float *image(const pome_conv_image *c)
{
    return c->x + (c->batch * c->cin + c->group * cin_group(c)) * c->w->n_in;
}

/* ---- unfolding ---- */

/* One kernel element: where it lies, and which outputs of a row see it inside of the input. */
typedef struct element {
    int64_t shift[3]; /* input position less output position * stride */
    int64_t first, end;
} element;

static element element_of(const pome_window *w, size_t e)
{
    element el;
    int64_t k[3];
    pome_window_split(w->kernel, e, k);
    for (int d = 0; d < 3; d++)
        el.shift[d] = k[d] * w->dilation[d] - w->before[d];
    pome_window_span(w, 2, k[2], &el.first, &el.end);
    return el;
}

/* The input's row for an output row, NULL in the padding. */
static const float *row_of(const pome_window *w, const float *plane, const element *el, int64_t o0, int64_t o1)
{
    int64_t i0 = o0 * w->stride[0] + el->shift[0], i1 = o1 * w->stride[1] + el->shift[1];
    if (i0 < 0 || i0 >= w->in[0] || i1 < 0 || i1 >= w->in[1])
        return NULL;
    return plane + (i0 * w->in[1] + i1) * w->in[2];
}

/* to[i] = x at outputs [o, o + n) of one row; runs are short, calls would cost more than they do. */
static void unfold_run(const pome_window *w, const float *row, const element *el, int64_t o, int64_t n, float *to)
{
    int64_t first = el->first > o ? el->first - o : 0, end = el->end - o, i = 0, stride = w->stride[2];
    first = !row || first > n ? n : first;
    end = end < first ? first : end > n ? n : end;
    for (; i < first; i++)
        to[i] = 0;
    if (i < end) {
        const float *from = row + o * stride + el->shift[2];
        if (stride == 1)
            for (; i < end; i++)
                to[i] = from[i];
        else
            for (; i < end; i++)
                to[i] = from[i * stride];
    }
    for (; i < n; i++)
        to[i] = 0;
}

/* One panel row: n positions from output `o` on, for one channel and kernel element. */
static void unfold_row(const pome_window *w, const float *plane, const element *el, const int64_t *o, int64_t n, float *to)
{
    int64_t o0 = o[0], o1 = o[1], o2 = o[2];
    for (int64_t p = 0; p < n;) {
        int64_t len = w->out[2] - o2 < n - p ? w->out[2] - o2 : n - p;
        unfold_run(w, row_of(w, plane, el, o0, o1), el, o2, len, to + p);
        p += len;
        o2 = 0;
        if (++o1 == w->out[1]) {
            o1 = 0;
            o0++;
        }
    }
}

/* Whole tiles of an input that is its own unfolding are read where they lie. */
static bool is_read_in_place(const pome_conv_image *c, size_t first)
{
    return is_plain(c->w) && c->w->n_out - first >= TILE;
}

static void unfold_tiles(void *arg, size_t begin, size_t end, int thread)
{
    const pome_conv_image *c = (const pome_conv_image *)arg;
    size_t n_kernel = c->w->n_kernel, k_all = cin_group(c) * n_kernel;
    (void)thread;
    for (size_t tile = begin; tile < end; tile++) {
        float *panel = c->unfolded + tile * TILE * k_all;
        size_t first = c->first + tile * TILE, n = c->w->n_out - first < TILE ? c->w->n_out - first : TILE;
        int64_t o[3];
        if (is_read_in_place(c, first))
            continue;
        pome_window_split(c->w->out, first, o);
        for (size_t e = 0; e < n_kernel; e++) {
            const element el = element_of(c->w, e);
            for (size_t channel = 0; channel < cin_group(c); channel++) {
                float *to = panel + (channel * n_kernel + e) * TILE;
                unfold_row(c->w, image(c) + channel * c->w->n_in, &el, o, (int64_t)n, to);
                for (size_t i = n; i < TILE; i++)
                    to[i] = 0;
            }
        }
    }
}

/* ---- results ---- */

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

/* ---- products ---- */

/* Rows of a tile to the result: a convolution with a kernel of one element, 1. */
static void store_rows(const pome_conv_image *c, size_t channel, size_t rows, const float *from, size_t n, float *y)
{
    static const float one = 1;
    pome_conv_plane p = {.ldx = TILE, .w = &one, .kh = 1, .kw = 1, .sy = 1, .sx = 1, .dy = 1, .dx = 1};
    p.low = c->after.addend ? -INFINITY : c->after.low;
    p.high = c->after.addend ? INFINITY : c->after.high;
    for (size_t i = 0; i < rows; i++, from += TILE, y += c->w->n_out) {
        p.x = from;
        if (c->bias)
            pome_vector_piece(c->bias, c->bias_encoded, c->r->kernels, channel + i, 1, &p.bias);
        c->r->kernels->conv_plane_f32(y, 1, n, &p);
        if (c->after.addend)
            pome_conv_finish(&c->after, (size_t)(y - c->y), n, y);
    }
}

/* Unit: a tile of weight rows times a tile of positions; tiles of rows vary first. */
static void multiply_tiles(void *arg, size_t begin, size_t end, int thread)
{
    const pome_conv_image *c = (const pome_conv_image *)arg;
    size_t k = cin_group(c) * c->w->n_kernel, n_rows = cout_group(c), row_tiles = (n_rows + ROWS - 1) / ROWS;
    float *scratch = c->thread_scratch + (size_t)thread * pome_rows_scratch(), *tile = c->tiles + thread * ROWS * TILE;
    for (size_t unit = begin; unit < end; unit++) {
        size_t at = unit / row_tiles, row = unit % row_tiles * ROWS, first = c->first + at * TILE, ldw;
        size_t rows = n_rows - row < ROWS ? n_rows - row : ROWS, channel = c->group * n_rows + row;
        size_t n = c->w->n_out - first < TILE ? c->w->n_out - first : TILE;
        bool in_place = is_read_in_place(c, first);
        const float *panel = in_place ? image(c) + first : c->unfolded + at * TILE * k;
        size_t ld = in_place ? c->w->n_in : TILE, n_up = (n + TILE_UNIT - 1) / TILE_UNIT * TILE_UNIT;
        for (size_t p = 0; p < k; p += POME_KERNEL_KC) {
            size_t len = k - p < POME_KERNEL_KC ? k - p : POME_KERNEL_KC;
            const float *w = pome_rows_piece(c->weight, c->r->kernels, channel, rows, p, len, scratch, &ldw);
            c->r->kernels->gemm_nn_f32(tile, TILE, w, ldw, panel + p * ld, ld, rows, n_up, len, p > 0);
        }
        store_rows(c, channel, rows, tile, n, c->y + (c->batch * c->cout + channel) * c->w->n_out + first);
    }
}

/* ---- one input channel per group: no panels ---- */

static void add_row(float *y, const float *x, float weight, int64_t n, int64_t stride)
{
    if (stride == 1)
        for (int64_t i = 0; i < n; i++)
            y[i] += weight * x[i];
    else if (stride == 2)
        for (int64_t i = 0; i < n; i++)
            y[i] += weight * x[2 * i];
    else
        for (int64_t i = 0; i < n; i++)
            y[i] += weight * x[i * stride];
}

static void convolve_plane(const pome_window *w, const element *elements, const float *x, const float *weight, float bias,
                           float *y)
{
    for (int64_t o0 = 0; o0 < w->out[0]; o0++)
        for (int64_t o1 = 0; o1 < w->out[1]; o1++, y += w->out[2]) {
            for (int64_t i = 0; i < w->out[2]; i++)
                y[i] = 0;
            for (size_t e = 0; e < w->n_kernel; e++) {
                const element *el = &elements[e];
                const float *row = row_of(w, x, el, o0, o1);
                if (row && el->first < el->end)
                    add_row(y + el->first, row + el->first * w->stride[2] + el->shift[2], weight[e], el->end - el->first,
                            w->stride[2]);
            }
            for (int64_t i = 0; i < w->out[2]; i++)
                y[i] += bias;
        }
}

/* A plane with its padding lies in scratch, in strips of rows that stay in the first cache. */
typedef struct strip {
    size_t width, rows; /* of the input, padded; results */
} strip;

static pome_conv_plane plane_of(const pome_window *w)
{
    return (pome_conv_plane){.kh = (size_t)w->kernel[1], .kw = (size_t)w->kernel[2], .sy = (size_t)w->stride[1],
                             .sx = (size_t)w->stride[2], .dy = (size_t)w->dilation[1], .dx = (size_t)w->dilation[2]};
}

/* rows 0: the plane has depth, or not one row of results fits. */
static strip strip_of(const pome_window *w)
{
    const pome_conv_plane p = plane_of(w);
    strip s = {.width = pome_conv_plane_width(&p, (size_t)w->out[2])};
    size_t room = pome_rows_scratch() - ELEMENTS_MAX, reach = (p.kh - 1) * p.dy + 1;
    if (w->in[0] > 1 || w->out[0] > 1 || w->kernel[0] > 1 || s.width > room || room / s.width < reach)
        return s;
    size_t some = STRIP / s.width;
    some = some < reach ? reach : some;
    s.rows = (some - reach) / p.sy + 1;
    return s;
}

/* Rows [first, first + n) of the padded input, the first `width` columns of each. */
static void pad_rows(const pome_window *w, const float *x, int64_t first, size_t n, size_t width, float *to)
{
    size_t left = (size_t)w->before[2] < width ? (size_t)w->before[2] : width;
    size_t len = (size_t)w->in[2] < width - left ? (size_t)w->in[2] : width - left;
    for (size_t i = 0; i < n; i++, to += width) {
        int64_t row = first + (int64_t)i - w->before[1];
        bool is_inside = row >= 0 && row < w->in[1];
        for (size_t j = 0; j < left; j++)
            to[j] = 0;
        if (is_inside)
            memcpy(to + left, x + row * w->in[2], len * sizeof *to);
        for (size_t j = is_inside ? left + len : left; j < width; j++)
            to[j] = 0;
    }
}

static void convolve_strips(const pome_conv_image *c, const strip *s, const float *x, const float *weight, float bias,
                            float *padded, float *y)
{
    pome_conv_plane p = plane_of(c->w);
    size_t n_rows = (size_t)c->w->out[1], n_cols = (size_t)c->w->out[2];
    p.x = padded;
    p.ldx = s->width;
    p.w = weight;
    p.bias = bias;
    p.low = c->after.addend ? -INFINITY : c->after.low;
    p.high = c->after.addend ? INFINITY : c->after.high;
    for (size_t row = 0; row < n_rows; row += s->rows) {
        size_t n = n_rows - row < s->rows ? n_rows - row : s->rows;
        pad_rows(c->w, x, (int64_t)(row * p.sy), (n - 1) * p.sy + (p.kh - 1) * p.dy + 1, s->width, padded);
        c->r->kernels->conv_plane_f32(y + row * n_cols, n, n_cols, &p);
    }
}

static void convolve_planes(void *arg, size_t begin, size_t end, int thread)
{
    const pome_conv_image *c = (const pome_conv_image *)arg;
    float *scratch = c->thread_scratch + (size_t)thread * pome_rows_scratch();
    element elements[ELEMENTS_MAX];
    const strip s = strip_of(c->w);
    for (size_t e = 0; e < c->w->n_kernel; e++)
        elements[e] = element_of(c->w, e);
    for (size_t unit = begin; unit < end; unit++) {
        size_t batch = unit / c->cout, channel = unit % c->cout, ld;
        const float *weight = pome_rows_piece(c->weight, c->r->kernels, channel, 1, 0, c->w->n_kernel, scratch, &ld);
        float bias = 0;
        if (c->bias)
            pome_vector_piece(c->bias, c->bias_encoded, c->r->kernels, channel, 1, &bias);
        const float *x = c->x + (batch * c->cin + channel / cout_group(c)) * c->w->n_in;
        if (s.rows)
            convolve_strips(c, &s, x, weight, bias, scratch + ELEMENTS_MAX, c->y + unit * c->w->n_out);
        else
            convolve_plane(c->w, elements, x, weight, bias, c->y + unit * c->w->n_out);
        if (!s.rows || c->after.addend)
            pome_conv_finish(&c->after, unit * c->w->n_out, c->w->n_out, c->y + unit * c->w->n_out);
    }
}

void pome_conv_image_run(pome_conv_image *c)
{
    size_t k = cin_group(c) * c->w->n_kernel, at_once = tiles_at_once(k, c->w->n_out);
    size_t n_tiles = (c->w->n_out + TILE - 1) / TILE, row_tiles = (cout_group(c) + ROWS - 1) / ROWS;
    c->tiles = c->unfolded + at_once * TILE * k;
    if (cin_group(c) == 1 && cout_group(c) <= 4 && k <= ELEMENTS_MAX) {
        pome_pool_run(c->r->pool, c->n * c->cout, 8, convolve_planes, c);
        return;
    }
    for (c->batch = 0; c->batch < c->n; c->batch++)
        for (c->group = 0; c->group < c->groups; c->group++)
            for (size_t tile = 0; tile < n_tiles; tile += at_once) {
                c->first = tile * TILE;
                c->n_tiles = n_tiles - tile < at_once ? n_tiles - tile : at_once;
                if (!is_plain(c->w) || c->w->n_out % TILE)
                    pome_pool_run(c->r->pool, c->n_tiles, 1, unfold_tiles, c);
                pome_pool_run(c->r->pool, c->n_tiles * row_tiles, 1, multiply_tiles, c);
            }
}
