/* Convolution of many positions by a weight in fp32 or fp16: threads unfold pieces of the input to [k, positions], so that a
 * product with rows of the weight gives rows of the result. What conv.c does otherwise, position by position, is its oracle. */
#ifndef POME_OPS_CONV_IMAGE_H
#define POME_OPS_CONV_IMAGE_H

#include "ops/rows.h"
#include "ops/window.h"

/* What is done to a result before it is stored: addend, then limits. */
typedef struct pome_conv_after {
    const float *addend; /* [n, cout, n_out] or NULL */
    float low, high;     /* infinite: none */
} pome_conv_after;

/* y[i] for elements [at, at + n) of the result. */
void pome_conv_finish(const pome_conv_after *after, size_t at, size_t n, float *y);

typedef struct pome_conv_image {
    const pome_run *r;
    const pome_window *w;
    const pome_rows *weight;             /* [cout, cin_group * n_kernel] */
    const pome_tensor *bias;             /* fp32, fp16, encoded or NULL */
    const pome_encoded *bias_encoded;
    pome_conv_after after;
    const float *x;                      /* [n, cin, n_in] */
    float *y;                            /* [n, cout, n_out] */
    size_t n, cin, cout, groups;
    float *panels;                       /* pome_conv_image_scratch() */
    float *thread_scratch;               /* [n_threads, pome_rows_scratch()] */
    size_t k, n_panels, n_together, n_rows; /* how the work is cut */
    bool is_in_place;                    /* the input's planes are the operand */
    size_t room;                         /* floats of `panels` for each thread */
    size_t image;                        /* of the current step: batch and group */
} pome_conv_image;

/* Whether it pays: enough positions in more than one row. */
bool pome_conv_image_is_worth(const pome_window *w);
/* Floats beside thread_scratch; k = cin_group * n_kernel. */
size_t pome_conv_image_scratch(size_t k, size_t n_out, size_t n_threads);
void pome_conv_image_run(pome_conv_image *c);
/* The part of it for one input channel per group and kernels of at most so many elements (conv_planes.c). */
#define POME_CONV_PLANES_ELEMENTS 81
void pome_conv_planes_run(pome_conv_image *c);
/* The part of it for few input channels per group (conv_rows.c), with so many floats of `panels` for each thread. */
bool pome_conv_rows_is_worth(const pome_window *w, size_t cin_group, size_t room);
void pome_conv_rows_run(pome_conv_image *c);
/* to [n_rows, n_phases, width]: rows of the padded input from `first` on, column j * n_phases + phase at [phase, j]; 0 beyond it. */
void pome_conv_copy_phases(const pome_window *w, const float *plane, size_t first, size_t n_rows, size_t n_phases, size_t width,
                           float *to);

#endif
