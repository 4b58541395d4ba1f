/* Tensors: a typed, strided view of memory, with the operations that preparing inputs and reading
 * outputs need. A pome_tensor is the caller's struct; `owner` tells whether it also owns its memory. */
#ifndef POME_TENSOR_H
#define POME_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pome/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define POME_MAX_RANK 8

typedef enum pome_dtype {
    POME_DTYPE_NONE = 0,
    POME_DTYPE_BOOL, /* one byte, 0 or 1 */
    POME_DTYPE_F16,  /* IEEE binary16 */
    POME_DTYPE_F32,
    POME_DTYPE_F64,
    POME_DTYPE_BF16,
    POME_DTYPE_F8E4M3FN,
    POME_DTYPE_F8E5M2,
    POME_DTYPE_I4, /* sub-byte types: one bit stream, least significant bit first */
    POME_DTYPE_I8,
    POME_DTYPE_I16,
    POME_DTYPE_I32,
    POME_DTYPE_I64,
    POME_DTYPE_U1,
    POME_DTYPE_U2,
    POME_DTYPE_U3,
    POME_DTYPE_U4,
    POME_DTYPE_U6,
    POME_DTYPE_U8,
    POME_DTYPE_U16,
    POME_DTYPE_U32,
    POME_DTYPE_U64,
    POME_DTYPE_STRING,
    POME_DTYPE_COUNT
} pome_dtype;

/* Bits of one element: 1 to 64; 0 for NONE and STRING. */
POME_API uint32_t pome_dtype_bits(pome_dtype dtype);
/* MIL's name of a type ("fp16", "int32", "uint4", "bool", ...); never NULL. */
POME_API const char *pome_dtype_name(pome_dtype dtype);
POME_API bool pome_dtype_is_float(pome_dtype dtype);
POME_API bool pome_dtype_is_int(pome_dtype dtype); /* signed or unsigned, without bool */

typedef struct pome_buffer pome_buffer; /* reference-counted memory */

/* shape[rank], stride[rank] in elements (strides may be 0 or negative; whole bytes only: sub-byte
 * tensors are contiguous). `data` is element [0, ..., 0]. A zeroed struct is the empty tensor. */
typedef struct pome_tensor {
    pome_dtype dtype;
    int32_t rank;
    int64_t shape[POME_MAX_RANK];
    int64_t stride[POME_MAX_RANK];
    void *data;
    pome_buffer *owner; /* NULL: memory is borrowed */
} pome_tensor;

/* Allocates a zeroed, contiguous tensor. The caller releases it with pome_tensor_reset. */
POME_API POME_NODISCARD pome_status pome_tensor_init(pome_tensor *out, pome_dtype dtype, int32_t rank,
                                                     const int64_t *shape, pome_error *err);
/* A contiguous view of the caller's memory (borrows `data`, which must hold the whole shape). */
POME_API pome_tensor pome_tensor_borrow(void *data, pome_dtype dtype, int32_t rank, const int64_t *shape);
/* Drops the tensor's reference to its memory, if any, and zeroes the struct. Accepts a zeroed one. */
POME_API void pome_tensor_reset(pome_tensor *t);
/* Another reference to the same memory (release each). */
POME_API pome_tensor pome_tensor_share(const pome_tensor *t);

POME_API int64_t pome_tensor_count(const pome_tensor *t);    /* number of elements */
POME_API size_t pome_tensor_size_bytes(const pome_tensor *t); /* of the elements, stored contiguously */
POME_API bool pome_tensor_is_contiguous(const pome_tensor *t);

/* Views: `out` shares the memory (and holds a reference). Negative axes and indices count from the end. */
POME_API POME_NODISCARD pome_status pome_tensor_reshape(pome_tensor *out, const pome_tensor *t, int32_t rank,
                                                        const int64_t *shape /* one -1 allowed */, pome_error *err);
POME_API POME_NODISCARD pome_status pome_tensor_slice(pome_tensor *out, const pome_tensor *t, int32_t axis,
                                                      int64_t begin, int64_t end, int64_t step, pome_error *err);
POME_API POME_NODISCARD pome_status pome_tensor_transpose(pome_tensor *out, const pome_tensor *t,
                                                          const int32_t *perm, pome_error *err);
POME_API POME_NODISCARD pome_status pome_tensor_broadcast(pome_tensor *out, const pome_tensor *t, int32_t rank,
                                                          const int64_t *shape, pome_error *err);

/* Copies: `out` is a new contiguous tensor. */
POME_API POME_NODISCARD pome_status pome_tensor_clone(pome_tensor *out, const pome_tensor *t, pome_error *err);
/* float to int truncates and saturates, NaN gives 0; int to a narrower int wraps; to bool is x != 0. */
POME_API POME_NODISCARD pome_status pome_tensor_cast(pome_tensor *out, const pome_tensor *t, pome_dtype dtype,
                                                     pome_error *err);
/* Copies `src` into `dst` (equal shapes, any strides, dtypes converted as pome_tensor_cast does). */
POME_API POME_NODISCARD pome_status pome_tensor_copy(const pome_tensor *dst, const pome_tensor *src, pome_error *err);

/* Reading outputs. `t` is fp16, fp32 or an integer type; results are new contiguous tensors. */
POME_API POME_NODISCARD pome_status pome_tensor_softmax(pome_tensor *out /* f32 */, const pome_tensor *t,
                                                        int32_t axis, pome_error *err);
/* First index of the largest element; NaN never wins. out: int32, `axis` removed. */
POME_API POME_NODISCARD pome_status pome_tensor_argmax(pome_tensor *out, const pome_tensor *t, int32_t axis,
                                                       pome_error *err);
/* The k largest along the last axis, descending, equal ones by index. values: t's dtype, indices: int32. */
POME_API POME_NODISCARD pome_status pome_tensor_topk(pome_tensor *values, pome_tensor *indices,
                                                     const pome_tensor *t, int64_t k, pome_error *err);

#ifdef __cplusplus
}
#endif
#endif
