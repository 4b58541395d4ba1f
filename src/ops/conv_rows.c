/* Convolutions of few input channels, as the first layer of a network is: the input's rows that some rows of results need are
 * copied once, padded, a stride's phases apart from each other. Then what a tap sees for 16 neighbouring results lies side by
 * side, and rows of weights are multiplied with it where it is: unfolding would copy each element for each tap. */
#include <string.h>

#include "ops/conv_image.h"

enum {
    K_MAX = 256,         /* taps of all channels */
    WIDTH_MIN = 32,      /* of a row of results, so that most vectors are full */
    STRIDE_MAX = 4,
    ROWS_TOGETHER = 4,   /* of results: those that follow each other share rows of the input */
    ROWS = 24,           /* of the weight, at most POME_ROWS_TILE */
    CHUNKS_MIN = 16      /* of work, where there are rows enough */
};

/* How a strip of the input lies in scratch: [channels, n_in, stride, width]. */
typedef struct strip {
    size_t n_out, n_in, width;
} strip;

static size_t ceil_div(size_t n, size_t d)
{
    return (n + d - 1) / d;
}

static size_t rows_read(const pome_window *w, size_t n_out)
{
    return (n_out - 1) * (size_t)w->stride[1] + (size_t)((w->kernel[1] - 1) * w->dilation[1]) + 1;
}

static size_t strip_floats(const pome_window *w, size_t channels, const strip *s)
{
    return channels * s->n_in * (size_t)w->stride[2] * s->width;
}

/* n_out 0: not one row fits. */
static strip strip_of(const pome_window *w, size_t channels, size_t room)
{
    size_t stride = (size_t)w->stride[2], n = (size_t)w->out[1] / CHUNKS_MIN;
    strip s = {.n_out = n < 1 ? 1 : n > ROWS_TOGETHER ? ROWS_TOGETHER : n};
    s.width = ceil_div((size_t)w->out[2], POME_PANEL) * POME_PANEL + (size_t)((w->kernel[2] - 1) * w->dilation[2]) / stride;
    for (; s.n_out; s.n_out--) {
        s.n_in = rows_read(w, s.n_out);
        if (strip_floats(w, channels, &s) <= room)
            break;
    }
    return s;
}

bool pome_conv_rows_is_worth(const pome_window *w, size_t channels, size_t room)
{
    return w->in[0] == 1 && w->out[0] == 1 && w->kernel[0] == 1 && w->n_kernel > 1 && channels * w->n_kernel <= K_MAX &&
           w->stride[2] <= STRIDE_MAX && w->out[2] >= WIDTH_MIN && w->kernel[1] * w->dilation[1] <= INT16_MAX &&
           w->kernel[2] * w->dilation[2] <= INT16_MAX && strip_of(w, channels, room).n_out > 0;
}

/* to[j] = row[j * stride + phase - before], 0 outside of it. */
static void copy_phase(const pome_window *w, const float *row, int64_t phase, int64_t stride, size_t width, float *to)
{
    int64_t shift = phase - w->before[2];
    int64_t begin = shift < 0 ? (-shift + stride - 1) / stride : 0, end = (w->in[2] - shift + stride - 1) / stride;
    end = end < 0 ? 0 : end > (int64_t)width ? (int64_t)width : end;
    begin = begin > end ? end : begin;
    const float *from = row + begin * stride + shift;
    float *at = to + begin;
    size_t n = (size_t)(end - begin);
    memset(to, 0, (size_t)begin * sizeof *to);
    if (stride == 1)
        memcpy(at, from, n * sizeof *to);
    else if (stride == 2)
        for (size_t i = 0; i < n; i++)
            at[i] = from[2 * i];
    else
        for (size_t i = 0; i < n; i++)
            at[i] = from[i * (size_t)stride];
    memset(to + end, 0, (width - (size_t)end) * sizeof *to);
}

void pome_conv_copy_phases(const pome_window *w, const float *plane, size_t first, size_t n_rows, size_t n_phases, size_t width,
                           float *to)
{
    for (size_t i = 0; i < n_rows; i++) {
        int64_t row = (int64_t)(first + i) - w->before[1];
        for (size_t phase = 0; phase < n_phases; phase++, to += width)
            if (row >= 0 && row < w->in[1])
                copy_phase(w, plane + row * w->in[2], (int64_t)phase, (int64_t)n_phases, width, to);
            else
                memset(to, 0, width * sizeof *to);
    }
}

/* What rows of results from `first` on need. */
static void copy_strip(const pome_window *w, const float *x, size_t channels, const strip *s, size_t first, float *to)
{
    for (size_t c = 0; c < channels; c++, x += w->n_in, to += strip_floats(w, 1, s))
        pome_conv_copy_phases(w, x, first * (size_t)w->stride[1], s->n_in, (size_t)w->stride[2], s->width, to);
}

/* at[k]: where a tap finds its elements for the first result of the strip. */
static void find_taps(const pome_window *w, size_t channels, const strip *s, size_t *at)
{
    size_t stride = (size_t)w->stride[2];
    for (size_t c = 0; c < channels; c++)
        for (size_t ky = 0; ky < (size_t)w->kernel[1]; ky++)
            for (size_t kx = 0; kx < (size_t)w->kernel[2]; kx++) {
                size_t column = kx * (size_t)w->dilation[2];
                *at++ = ((c * s->n_in + ky * (size_t)w->dilation[1]) * stride + column % stride) * s->width + column / stride;
            }
}

/* A row of results of n_rows channels, the first of them at y; from: the strip, where that row begins. */
static void multiply_row(const pome_conv_image *c, const float *from, const size_t *at, const float *weight, size_t ldw,
                         size_t n_rows, const float *bias, float *y)
{
    pome_panel_end end = {.bias = bias, .low = c->after.low, .high = c->after.high};
    size_t n = (size_t)c->w->out[2];
    for (size_t i = 0; i < n; i += POME_PANEL) {
        if (c->after.addend)
            end.addend = c->after.addend + (y - c->y) + i;
        c->r->kernels->gemm_at_f32(y + i, c->w->n_out, weight, ldw, from + i, at, n_rows, n - i < POME_PANEL ? n - i : POME_PANEL, c->k,
                                   &end);
    }
}

/* Unit: some rows of results of one image. */
static void convolve_rows(void *arg, size_t begin, size_t end, int thread)
{
    const pome_conv_image *c = (const pome_conv_image *)arg;
    const pome_window *w = c->w;
    size_t channels = c->cin / c->groups, n_rows = c->cout / c->groups, at[K_MAX];
    float *scratch = c->thread_scratch + (size_t)thread * pome_rows_scratch(), *to = c->panels + (size_t)thread * c->room, bias[ROWS];
    const strip s = strip_of(w, channels, c->room);
    size_t n_strips = ceil_div((size_t)w->out[1], s.n_out), ldw;
    find_taps(w, channels, &s, at);
    for (size_t unit = begin; unit < end; unit++) {
        size_t image = unit / n_strips, first = unit % n_strips * s.n_out;
        size_t n = (size_t)w->out[1] - first < s.n_out ? (size_t)w->out[1] - first : s.n_out;
        copy_strip(w, c->x + image * channels * w->n_in, channels, &s, first, to);
        for (size_t row = 0; row < n_rows; row += ROWS) {
            size_t some = n_rows - row < ROWS ? n_rows - row : ROWS, channel = image % c->groups * n_rows + row;
            const float *weight = pome_rows_piece(c->weight, c->r->kernels, channel, some, 0, c->k, scratch, &ldw);
            if (c->bias)
                pome_vector_piece(c->bias, c->bias_encoded, c->r->kernels, channel, some, bias);
            for (size_t i = 0; i < n; i++)
                multiply_row(c, to + i * (size_t)(w->stride[1] * w->stride[2]) * s.width, at, weight, ldw, some, c->bias ? bias : NULL,
                             c->y + (image * n_rows + row) * w->n_out + (first + i) * (size_t)w->out[2]);
        }
    }
}

void pome_conv_rows_run(pome_conv_image *c)
{
    const strip s = strip_of(c->w, c->cin / c->groups, c->room);
    pome_pool_run_near(c->r->pool, c->n * c->groups * ceil_div((size_t)c->w->out[1], s.n_out), 1, convolve_rows, c);
}
