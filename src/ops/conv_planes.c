/* Convolutions with one input channel per group: plane by plane, nothing is unfolded. */
#include <math.h>
#include <string.h>

#include "ops/conv_image.h"

enum { STRIP = 4096 /* floats of a plane convolved at once */ };

static size_t cout_group(const pome_conv_image *c)
{
    return c->cout / c->groups;
}

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

/* Rows of the padded input for n rows of results. */
static size_t rows_read(const pome_window *w, size_t n)
{
    return (n - 1) * (size_t)w->stride[1] + (size_t)((w->kernel[1] - 1) * w->dilation[1]) + 1;
}

/* rows 0: the plane has depth, or not one row of results fits. */
static strip strip_of(const pome_window *w)
{
    const pome_conv_plane p = plane_of(w);
    strip s = {.width = pome_conv_plane_width(&p, (size_t)w->out[2])};
    size_t room = pome_rows_scratch() - POME_CONV_PLANES_ELEMENTS, reach = (p.kh - 1) * p.dy + 1;
    if (w->in[0] > 1 || w->out[0] > 1 || w->kernel[0] > 1 || s.width > room || room / s.width < reach)
        return s;
    size_t some = STRIP / s.width;
    some = some < reach ? reach : some;
    s.rows = (some - reach) / p.sy + 1;
    s.rows = s.rows < (size_t)w->out[1] ? s.rows : (size_t)w->out[1];
    return s;
}

/* Columns of the padded input that come from the input: *left zeros before them. */
static size_t inner_columns(const pome_window *w, size_t width, size_t *left)
{
    *left = (size_t)w->before[2] < width ? (size_t)w->before[2] : width;
    return (size_t)w->in[2] < width - *left ? (size_t)w->in[2] : width - *left;
}

/* Rows are short: calls would cost more than they do. The last vector overlaps the one before it. */
static inline void copy_row(float *to, const float *from, size_t n)
{
    enum { WIDE = 8, NARROW = 4 };
    size_t i = 0;
    if (n >= WIDE) {
        for (; i + WIDE <= n; i += WIDE)
            memcpy(to + i, from + i, WIDE * sizeof *to);
        if (i < n)
            memcpy(to + n - WIDE, from + n - WIDE, WIDE * sizeof *to);
    } else if (n >= NARROW) {
        memcpy(to, from, NARROW * sizeof *to);
        memcpy(to + n - NARROW, from + n - NARROW, NARROW * sizeof *to);
    } else {
        for (; i < n; i++)
            to[i] = from[i];
    }
}

/* Rows [first, first + n) of the padded input; the columns that are always padding are zero already, and so are rows of
 * padding if `is_clean`. */
static void pad_rows(const pome_window *w, const float *x, int64_t first, size_t n, size_t width, bool is_clean, float *to)
{
    size_t left, len = inner_columns(w, width, &left);
    to += left;
    for (size_t i = 0; i < n; i++, to += width) {
        int64_t row = first + (int64_t)i - w->before[1];
        if (row >= 0 && row < w->in[1])
            copy_row(to, x + row * w->in[2], len);
        else if (!is_clean)
            memset(to, 0, len * sizeof *to);
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
        pad_rows(c->w, x, (int64_t)(row * p.sy), rows_read(c->w, n), s->width, s->rows == n_rows, padded);
        c->r->kernels->conv_plane_f32(y + row * n_cols, n, n_cols, &p);
    }
}

static void convolve_planes(void *arg, size_t begin, size_t end, int thread)
{
    const pome_conv_image *c = (const pome_conv_image *)arg;
    float *scratch = c->thread_scratch + (size_t)thread * pome_rows_scratch();
    element elements[POME_CONV_PLANES_ELEMENTS];
    const strip s = strip_of(c->w);
    for (size_t e = 0; e < c->w->n_kernel; e++)
        elements[e] = element_of(c->w, e);
    if (s.rows)
        memset(scratch + POME_CONV_PLANES_ELEMENTS, 0, rows_read(c->w, s.rows) * s.width * sizeof *scratch);
    for (size_t unit = begin; unit < end; unit++) {
        size_t batch = unit / c->cout, channel = unit % c->cout, ld;
        const float *weight = pome_rows_piece(c->weight, c->r->kernels, channel, 1, 0, c->w->n_kernel, scratch, &ld);
        float bias = 0;
        if (c->bias)
            pome_vector_piece(c->bias, c->bias_encoded, c->r->kernels, channel, 1, &bias);
        const float *x = c->x + (batch * c->cin + channel / cout_group(c)) * c->w->n_in;
        if (s.rows)
            convolve_strips(c, &s, x, weight, bias, scratch + POME_CONV_PLANES_ELEMENTS, c->y + unit * c->w->n_out);
        else
            convolve_plane(c->w, elements, x, weight, bias, c->y + unit * c->w->n_out);
        if (!s.rows || c->after.addend)
            pome_conv_finish(&c->after, unit * c->w->n_out, c->w->n_out, c->y + unit * c->w->n_out);
    }
}

void pome_conv_planes_run(pome_conv_image *c)
{
    pome_pool_run_near(c->r->pool, c->n * c->cout, 8, convolve_planes, c);
}
