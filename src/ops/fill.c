/* Tensors made from nothing but a shape and a few scalars. */
#include "ops/families.h"
#include "ops/index.h"
#include "ops/strided.h"

static pome_status run_fill(const pome_run *r, pome_error *err)
{
    (void)err;
    uint64_t element;
    pome_element_from(&element, r->out[0].dtype, pome_in(r, P_fill_value), 0.0);
    pome_strided_fill(&r->out[0], &element, r->pool);
    return POME_OK;
}

static pome_status run_fill_like(const pome_run *r, pome_error *err)
{
    (void)err;
    uint64_t element;
    pome_element_from(&element, r->out[0].dtype, pome_in(r, P_fill_like_value), 0.0);
    pome_strided_fill(&r->out[0], &element, r->pool);
    return POME_OK;
}

static pome_status run_range_1d(const pome_run *r, pome_error *err)
{
    const pome_tensor *start = pome_in(r, P_range_1d_start), *step = pome_in(r, P_range_1d_step);
    const pome_tensor *out = &r->out[0];
    int64_t n = pome_tensor_count(out);
    if (out->dtype == POME_DTYPE_F32) {
        double first = pome_tensor_float_at(start, 0), by = pome_tensor_float_at(step, 0);
        float *dst = out->data;
        for (int64_t i = 0; i < n; i++)
            dst[i] = (float)(first + (double)i * by);
        return POME_OK;
    }
    uint64_t first = (uint64_t)pome_tensor_int_at(start, 0), by = (uint64_t)pome_tensor_int_at(step, 0);
    for (int64_t i = 0; i < n; i++) {
        uint64_t value = first + (uint64_t)i * by; /* wraps, as integers do */
        switch (pome_elem_size(out->dtype)) {
        case 1:
            ((uint8_t *)out->data)[i] = (uint8_t)value;
            break;
        case 2:
            ((uint16_t *)out->data)[i] = (uint16_t)value;
            break;
        case 4:
            ((uint32_t *)out->data)[i] = (uint32_t)value;
            break;
        default:
            return pome_op_fail(r->op, err, POME_ERR_UNSUPPORTED, "a range of %s", pome_dtype_name(out->dtype));
        }
    }
    return POME_OK;
}

const pome_op_impl pome_ops_fill[] = {
    {.id = POME_OP_fill, .run = run_fill},
    {.id = POME_OP_fill_like,
     .f16_ok = POME_BIT(P_fill_like_ref_tensor),
     .strided_ok = POME_BIT(P_fill_like_ref_tensor),
     .encoded_ok = POME_BIT(P_fill_like_ref_tensor),
     .run = run_fill_like},
    {.id = POME_OP_range_1d, .run = run_range_1d},
};
POME_FAMILY_COUNT(fill)
