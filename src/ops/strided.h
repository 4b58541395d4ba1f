/* Copies between strided arrays, and views of tensors. Everything that moves elements without computing goes
 * through pome_copy: axes are merged where both sides allow, a permuted copy runs in square tiles, large copies
 * are shared by the pool. Results never depend on the number of threads. */
#ifndef POME_OPS_STRIDED_H
#define POME_OPS_STRIDED_H

#include "base/pool.h"
#include "kernels/kernels.h"
#include "pome/tensor.h"

/* Twice POME_MAX_RANK: an operator may cut every axis in two. */
#define POME_COPY_MAX_RANK 16

typedef struct pome_copy_axis {
    int64_t n;
    int64_t dst, src; /* bytes from one element to the next */
} pome_copy_axis;

/* A copy that is ready to run at any two addresses. */
typedef struct pome_copy {
    int32_t kind;
    int32_t rank;                             /* of axis[], after merging */
    int32_t dst_size, src_size;               /* bytes of an element */
    bool is_tiled;                            /* the last two axes are a transposition */
    int64_t count;                            /* elements */
    int64_t dst_offset, src_offset;           /* bytes; not 0 where a reversed axis was turned round */
    pome_copy_axis axis[POME_COPY_MAX_RANK];  /* outermost first, dst >= 0 */
} pome_copy;

/* Strides are in elements and may be 0 (src only) or negative. The dtypes are equal, or fp16 and fp32: then
 * values are converted, to the nearest even. rank <= POME_COPY_MAX_RANK. */
void pome_copy_init(pome_copy *c, pome_dtype dst_dtype, pome_dtype src_dtype, int32_t rank, const int64_t *shape,
                    const int64_t *dst_stride, const int64_t *src_stride);
/* dst and src are the addresses of element [0, ..., 0] and must not overlap. */
void pome_copy_run(const pome_copy *c, void *dst, const void *src, pome_pool *pool, const pome_kernels *kernels);

/* dst = src: equal shapes, any strides, no overlap. dtypes as for pome_copy_init; any other pair is converted as
 * pome_tensor_copy does. kernels may be NULL. */
void pome_strided_copy(const pome_tensor *dst, const pome_tensor *src, pome_pool *pool, const pome_kernels *kernels);
/* Sets every element of t (any strides) to the one at `value`, which has t's dtype. */
void pome_strided_fill(const pome_tensor *t, const void *value, pome_pool *pool);
/* Strides under which `in`'s memory reads as out->shape in row-major order; false if there are none.
 * The shapes hold equally many elements. Fills out's dtype, data and stride only on success. */
bool pome_strided_reshape(pome_tensor *out, const pome_tensor *in);
/* True if the bytes that a and b span have a common part. */
bool pome_strided_overlap(const pome_tensor *a, const pome_tensor *b);
/* True if a and b are the same memory read in the same order. */
bool pome_strided_same(const pome_tensor *a, const pome_tensor *b);

/* Bytes of an element; dtypes below one byte do not occur between operators. */
static inline int64_t pome_elem_size(pome_dtype dtype)
{
    return (int64_t)(pome_dtype_bits(dtype) / 8);
}
/* The address `offset` elements after element [0, ..., 0]. */
static inline void *pome_elem_at(const pome_tensor *t, int64_t offset)
{
    return t->data ? (char *)t->data + offset * pome_elem_size(t->dtype) : NULL;
}
/* Makes t contiguous at its data: strides from its shape. */
static inline void pome_stride_row_major(pome_tensor *t)
{
    int64_t stride = 1;
    for (int32_t d = t->rank - 1; d >= 0; d--) {
        t->stride[d] = stride;
        stride *= t->shape[d];
    }
}

#endif
