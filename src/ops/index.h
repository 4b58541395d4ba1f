/* Indices that arrive as data, and single elements. */
#ifndef POME_OPS_INDEX_H
#define POME_OPS_INDEX_H

#include "ops/op.h"

/* What an index outside [0, n) means. */
typedef struct pome_index_rule {
    bool is_wrapped;   /* [-n, 0) counts from the end: up to iOS 16 */
    bool is_validated; /* outside is an error: validate_indices, from iOS 17 */
} pome_index_rule;

static inline pome_index_rule pome_index_rule_of(pome_opset opset, bool is_validated)
{
    return (pome_index_rule){opset < POME_OPSET_IOS17, is_validated && opset >= POME_OPSET_IOS17};
}

/* Element i of a contiguous tensor of any whole-byte integer type. */
static inline int64_t pome_index_read(const pome_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case POME_DTYPE_I32:
        return ((const int32_t *)t->data)[i];
    case POME_DTYPE_I16:
        return ((const int16_t *)t->data)[i];
    case POME_DTYPE_U16:
        return ((const uint16_t *)t->data)[i];
    case POME_DTYPE_I8:
        return ((const int8_t *)t->data)[i];
    case POME_DTYPE_U8:
    case POME_DTYPE_BOOL:
        return ((const uint8_t *)t->data)[i];
    case POME_DTYPE_U32:
        return ((const uint32_t *)t->data)[i];
    default:
        return pome_tensor_int_at(t, i);
    }
}

/* Turns *index into [0, n); false if it lies outside. */
static inline bool pome_index_resolve(pome_index_rule rule, int64_t n, int64_t *index)
{
    if (*index < 0 && rule.is_wrapped)
        *index += n;
    return *index >= 0 && *index < n;
}

/* Under a validating rule: ARG error for the first index outside [0, n). */
pome_status pome_index_check(const pome_run *r, pome_index_rule rule, const pome_tensor *indices, int64_t n,
                             pome_error *err);
/* "index -1 at position 3 is outside [0, 10)". */
pome_status pome_index_fail(const pome_run *r, int64_t position, int64_t index, int64_t n, pome_error *err);

/* The scalar t (NULL: `dflt`) as one element of dtype. Integers stay exact. */
void pome_element_from(uint64_t *element, pome_dtype dtype, const pome_tensor *t, double dflt);

#endif
