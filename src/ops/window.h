/* Sliding windows over one to three spatial axes, for convolutions and pools. */
#ifndef POME_OPS_WINDOW_H
#define POME_OPS_WINDOW_H

#include "ops/op.h"

/* Always three axes; those missing come first with length 1. */
typedef struct pome_window {
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3];
    int64_t before[3], after[3]; /* padding */
    size_t n_in, n_out, n_kernel; /* products */
} pome_window;

/* The parameters by index; dilations -1: the operator has none. `in` and `out` have rank 3 to 5, `kernel` points to
 * its rank - 2 spatial sizes. FORMAT if a list is too short or a size is not positive. */
typedef struct pome_window_params {
    uint32_t strides, pad_type, pad;
    int dilations;
} pome_window_params;
pome_status pome_window_init(pome_window *w, const pome_run *r, const pome_window_params *params, const pome_tensor *in,
                             const pome_tensor *out, const int64_t *kernel, pome_error *err);

/* Flat position of kernel element `k` for output `o`, or -1 if it lies in the padding. */
static inline int64_t pome_window_at(const pome_window *w, const int64_t *o, const int64_t *k)
{
    int64_t at = 0;
    for (int d = 0; d < 3; d++) {
        int64_t i = o[d] * w->stride[d] + k[d] * w->dilation[d] - w->before[d];
        if (i < 0 || i >= w->in[d])
            return -1;
        at = at * w->in[d] + i;
    }
    return at;
}
/* Outputs [*first, *end) of axis d that kernel element k sees inside of the input. */
static inline void pome_window_span(const pome_window *w, int d, int64_t k, int64_t *first, int64_t *end)
{
    int64_t shift = w->before[d] - k * w->dilation[d], s = w->stride[d], last = w->in[d] - 1 + shift;
    *first = shift > 0 ? (shift + s - 1) / s : 0;
    *end = last < 0 ? 0 : last / s + 1;
    *end = *end < w->out[d] ? *end : w->out[d];
    *first = *first < *end ? *first : *end;
}
static inline void pome_window_split(const int64_t *shape, size_t flat, int64_t *index)
{
    for (int d = 2; d >= 0; d--) {
        index[d] = (int64_t)(flat % (size_t)shape[d]);
        flat /= (size_t)shape[d];
    }
}

#endif
