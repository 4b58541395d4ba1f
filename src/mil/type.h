/* Types of MIL values. */
#ifndef POME_MIL_TYPE_H
#define POME_MIL_TYPE_H

#include "pome/tensor.h"

typedef enum pome_type_kind {
    POME_TYPE_TENSOR = 0,
    POME_TYPE_LIST,  /* of equal tensors: dtype, rank, dim are the element's */
    POME_TYPE_STATE, /* a mutable tensor: dtype, rank, dim are the wrapped tensor's */
    POME_TYPE_DICT   /* outputs of classify only */
} pome_type_kind;

typedef struct pome_type {
    pome_type_kind kind;
    pome_dtype dtype;
    int32_t rank;                 /* -1: unknown */
    int64_t dim[POME_MAX_RANK];   /* >= 0: fixed; < 0: a symbol, equal numbers are the same unknown size */
    int64_t list_length;          /* LIST: >= 0, or -1 unknown */
} pome_type;

/* Opsets in file order. */
typedef enum pome_opset {
    POME_OPSET_IOS15 = 15, /* CoreML5 */
    POME_OPSET_IOS16 = 16, /* CoreML6 */
    POME_OPSET_IOS17 = 17, /* CoreML7 */
    POME_OPSET_IOS18 = 18, /* CoreML8 */
    POME_OPSET_IOS26 = 26  /* CoreML9 */
} pome_opset;

#endif
