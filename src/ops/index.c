#include "ops/index.h"

#include <string.h>

#include "base/f16.h"

pome_status pome_index_fail(const pome_run *r, int64_t position, int64_t index, int64_t n, pome_error *err)
{
    return pome_op_fail(r->op, err, POME_ERR_ARG, "index %lld at position %lld is outside [0, %lld)", (long long)index,
                        (long long)position, (long long)n);
}

pome_status pome_index_check(const pome_run *r, pome_index_rule rule, const pome_tensor *indices, int64_t n,
                             pome_error *err)
{
    if (!rule.is_validated)
        return POME_OK;
    int64_t count = pome_tensor_count(indices);
    for (int64_t i = 0; i < count; i++) {
        int64_t index = pome_index_read(indices, i);
        if (index < 0 || index >= n)
            return pome_index_fail(r, i, index, n, err);
    }
    return POME_OK;
}

void pome_element_from(uint64_t *element, pome_dtype dtype, const pome_tensor *t, double dflt)
{
    bool is_from_float = !t || pome_dtype_is_float(t->dtype);
    double f = t ? pome_tensor_float_at(t, 0) : dflt;
    int64_t i = !is_from_float ? pome_tensor_int_at(t, 0) : f > -9e18 && f < 9e18 ? (int64_t)f : 0;
    float single = (float)f;
    uint16_t half = pome_f32_to_f16(single);
    *element = 0;
    switch (dtype) {
    case POME_DTYPE_F32:
        memcpy(element, &single, sizeof single);
        break;
    case POME_DTYPE_F16:
        memcpy(element, &half, sizeof half);
        break;
    case POME_DTYPE_F64:
        memcpy(element, &f, sizeof f);
        break;
    case POME_DTYPE_BOOL:
        *(uint8_t *)element = is_from_float ? f != 0 : i != 0;
        break;
    default: { /* the low bytes, in the machine's order */
        uint8_t u8 = (uint8_t)i;
        uint16_t u16 = (uint16_t)i;
        uint32_t u32 = (uint32_t)i;
        int64_t size = (int64_t)(pome_dtype_bits(dtype) / 8);
        memcpy(element, size == 1 ? (void *)&u8 : size == 2 ? (void *)&u16 : size == 4 ? (void *)&u32 : (void *)&i,
               (size_t)size);
        break;
    }
    }
}
