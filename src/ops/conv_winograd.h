/* 3 x 3 convolutions with stride 1 by Winograd's F(2x2, 3x3): 16 multiplications for four results instead of 36. Weights are
 * transformed once, to 16/9 of their size in fp32. */
#ifndef POME_OPS_CONV_WINOGRAD_H
#define POME_OPS_CONV_WINOGRAD_H

#include "ops/conv_image.h"

typedef struct pome_winograd {
    const float *u; /* [16, pieces of cin, blocks of cout, piece, block] */
    size_t cin, cout;
} pome_winograd;

/* weight [cout, cin, 3, 3], fp32 or fp16. Memory is the arena's. */
pome_status pome_winograd_prepare(pome_winograd *w, const pome_tensor *weight, const pome_kernels *kernels, pome_arena *arena,
                                  pome_error *err);
/* Whether the window is one of those that it can do. */
bool pome_winograd_fits(const pome_window *w);
/* Floats of memory for a result of [n, cout, height, width]. */
size_t pome_winograd_scratch(const pome_winograd *w, size_t n, size_t height, size_t width, size_t n_threads);
void pome_winograd_run(const pome_conv_image *c, const pome_winograd *w, float *memory);

#endif
