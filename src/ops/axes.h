/* Walking a contiguous tensor over two groups of its axes: those that stay and those that are reduced together. */
#ifndef POME_OPS_AXES_H
#define POME_OPS_AXES_H

#include "ops/op.h"

typedef struct pome_axis_group { /* axes in order, neighbours merged; no axis of size 1 */
    int32_t n;
    int64_t size[POME_MAX_RANK], stride[POME_MAX_RANK]; /* elements of the tensor */
    int64_t count;                                      /* product of the sizes, 1 if there are none */
} pome_axis_group;

typedef struct pome_axes {
    pome_axis_group kept, reduced;
    bool is_inner_reduced; /* the reduced group ends with a run of stride 1 */
} pome_axes;

/* Splits x's axes; bit d of `mask` set: axis d is reduced. */
void pome_axes_split(pome_axes *out, const pome_tensor *x, uint32_t mask);
/* The mask of a list of axes (negative ones count from the end); NULL: all. ARG for an axis out of range. */
pome_status pome_axes_mask(const pome_run *r, const pome_tensor *axes, int32_t rank, uint32_t *mask, pome_error *err);
/* axis in [-rank, rank) to [0, rank). ARG otherwise. */
pome_status pome_axis_get(const pome_run *r, int64_t axis, int32_t rank, int32_t *out, pome_error *err);
/* Offset, in elements, of the i-th element of a group in row-major order. */
int64_t pome_axis_offset(const pome_axis_group *g, int64_t i);

/* The usual view of one axis: [outer, n, inner]. */
typedef struct pome_axis_view {
    int64_t outer, n, inner;
} pome_axis_view;
pome_axis_view pome_axis_view_of(const pome_tensor *x, int32_t axis);

#endif
