/* Inference of compressed constants. Shapes only: that masks and indices fit their data is checked when the constant
 * is prepared for decoding. */
#include <inttypes.h>

#include "base/checked.h"
#include "mil/infer.h"

/* scale and zero_point: scalars, or vectors along axis. */
pome_status pome_infer_constexpr_affine_dequantize(pome_infer *c, pome_error *err)
{
    const pome_type *q = pome_infer_type(c, P_constexpr_affine_dequantize_quantized_data);
    const uint32_t params[] = {P_constexpr_affine_dequantize_scale, P_constexpr_affine_dequantize_zero_point};
    int32_t axis = 0;
    POME_TRY(pome_infer_axis_param(c, P_constexpr_affine_dequantize_axis, 0, q->rank, &axis, err));
    for (int i = 0; i < 2; i++)
        if (pome_infer_type(c, params[i])->rank != 0)
            POME_TRY(pome_infer_vector(c, params[i], q->dim[axis], err));
    c->out[0] = *q;
    c->out[0].dtype = pome_infer_type(c, P_constexpr_affine_dequantize_scale)->dtype;
    return POME_OK;
}

pome_status pome_infer_constexpr_cast(pome_infer *c, pome_error *err)
{
    pome_dtype dtype = POME_DTYPE_F32;
    POME_TRY(pome_infer_dtype(c, P_constexpr_cast_output_dtype, POME_DTYPE_NONE, POME_T_F, &dtype, err));
    c->out[0] = *pome_infer_type(c, P_constexpr_cast_source_val);
    c->out[0].dtype = dtype;
    return POME_OK;
}

/* ---- iOS 16 forms: packed bytes and a separate shape ---- */

/* The shape parameter, and ceil(bits * elements / 8) bytes of it. */
static pome_status packed_shape(pome_infer *c, uint32_t param, int64_t bits, pome_type *out, int64_t *n_bytes,
                                pome_error *err)
{
    bool known = false;
    int64_t n = bits;
    POME_TRY(pome_infer_ints(c, param, out->dim, &out->rank, &known, err));
    if (!known)
        return pome_infer_fail(c, err, "shape must be a constant");
    for (int32_t i = 0; i < out->rank; i++)
        if (out->dim[i] < 0 || !pome_mul_i64(n, out->dim[i], &n) || n > 8 * POME_MAX_ELEMENTS)
            return pome_infer_fail(c, err, "shape holds %" PRId64, out->dim[i]);
    *n_bytes = n / 8 + (n % 8 != 0);
    return POME_OK;
}

static pome_status lut_to_dense_packed(pome_infer *c, pome_error *err)
{
    const pome_type *lut = pome_infer_type(c, P_constexpr_lut_to_dense_lut);
    int64_t bits = 0, n_bytes = 0;
    POME_TRY(pome_infer_rank(c, P_constexpr_lut_to_dense_lut, 1, 1, err));
    while (bits < 8 && (int64_t)1 << bits < lut->dim[0])
        bits++;
    if ((int64_t)1 << bits != lut->dim[0] || (bits != 1 && bits != 2 && bits != 4 && bits != 6 && bits != 8))
        return pome_infer_fail(c, err, "lut has %" PRId64 " entries, not 2, 4, 16, 64 or 256", lut->dim[0]);
    POME_TRY(packed_shape(c, P_constexpr_lut_to_dense_shape, bits, &c->out[0], &n_bytes, err));
    c->out[0].dtype = lut->dtype;
    return pome_infer_vector(c, P_constexpr_lut_to_dense_indices, n_bytes, err);
}

static pome_status sparse_to_dense_packed(pome_infer *c, pome_error *err)
{
    int64_t n_bytes = 0;
    POME_TRY(pome_infer_rank(c, P_constexpr_sparse_to_dense_nonzero_data, 1, 1, err));
    POME_TRY(packed_shape(c, P_constexpr_sparse_to_dense_shape, 1, &c->out[0], &n_bytes, err));
    c->out[0].dtype = pome_infer_type(c, P_constexpr_sparse_to_dense_nonzero_data)->dtype;
    return pome_infer_vector(c, P_constexpr_sparse_to_dense_mask, n_bytes, err);
}

/* ---- iOS 18 forms ---- */

/* indices of K axes, lut [g_0, ..., g_K-1, 2^n, V] with each g_k dividing axis k; *vector: V. */
static pome_status check_lut(pome_infer *c, const pome_type *shape, pome_dtype index, uint32_t lut_param,
                             uint32_t axis_param, int64_t *vector, int32_t *axis, pome_error *err)
{
    const pome_type *lut = pome_infer_type(c, lut_param);
    int32_t rank = shape->rank;
    if (rank < 1 || lut->rank != rank + 2)
        return pome_infer_fail(c, err, "lut has rank %" PRId32 " for indices of rank %" PRId32, lut->rank, rank);
    for (int32_t i = 0; i < rank; i++)
        if (lut->dim[i] < 1 || shape->dim[i] % lut->dim[i] != 0)
            return pome_infer_fail(c, err, "axis %" PRId32 " of size %" PRId64 " does not divide into %" PRId64 " tables",
                                   i, shape->dim[i], lut->dim[i]);
    if (lut->dim[rank] != (int64_t)1 << pome_dtype_bits(index))
        return pome_infer_fail(c, err, "tables have %" PRId64 " entries for %s indices", lut->dim[rank],
                               pome_dtype_name(index));
    *vector = lut->dim[rank + 1];
    if (*vector < 1)
        return pome_infer_fail(c, err, "table entries have %" PRId64 " elements", *vector);
    *axis = 0;
    if (pome_infer_has(c, axis_param))
        return pome_infer_axis_param(c, axis_param, 0, rank, axis, err);
    if (*vector > 1)
        return pome_infer_fail(c, err, "vector_axis must be given, as table entries have %" PRId64 " elements", *vector);
    return POME_OK;
}

pome_status pome_infer_constexpr_lut_to_dense(pome_infer *c, pome_error *err)
{
    const pome_type *indices = pome_infer_type(c, P_constexpr_lut_to_dense_indices);
    int64_t vector = 1;
    int32_t axis = 0;
    if (pome_infer_has(c, P_constexpr_lut_to_dense_shape))
        return lut_to_dense_packed(c, err);
    POME_TRY(check_lut(c, indices, indices->dtype, P_constexpr_lut_to_dense_lut, P_constexpr_lut_to_dense_vector_axis,
                       &vector, &axis, err));
    c->out[0] = *indices;
    c->out[0].dtype = pome_infer_type(c, P_constexpr_lut_to_dense_lut)->dtype;
    return pome_infer_mul(c, indices->dim[axis], vector, &c->out[0].dim[axis], err);
}

pome_status pome_infer_constexpr_sparse_to_dense(pome_infer *c, pome_error *err)
{
    const pome_type *data = pome_infer_type(c, P_constexpr_sparse_to_dense_nonzero_data);
    const pome_type *mask = pome_infer_type(c, P_constexpr_sparse_to_dense_mask);
    if (pome_infer_has(c, P_constexpr_sparse_to_dense_shape))
        return sparse_to_dense_packed(c, err);
    POME_TRY(pome_infer_rank(c, P_constexpr_sparse_to_dense_nonzero_data, 1, 1, err));
    if (mask->dtype != POME_DTYPE_U1)
        return pome_infer_fail(c, err, "mask is %s, not uint1", pome_dtype_name(mask->dtype));
    c->out[0] = *mask;
    c->out[0].dtype = data->dtype;
    return POME_OK;
}

/* scale divides every axis of data; offset, if any, has scale's shape and is of a float type or data's. */
static pome_status check_blocks(pome_infer *c, const pome_type *shape, pome_dtype code, uint32_t scale_param,
                                uint32_t offset_param, pome_error *err)
{
    const pome_type *scale = pome_infer_type(c, scale_param), *offset = pome_infer_type(c, offset_param);
    if (shape->rank < 1 || scale->rank != shape->rank)
        return pome_infer_fail(c, err, "scale has rank %" PRId32 ", the data %" PRId32, scale->rank, shape->rank);
    for (int32_t i = 0; i < shape->rank; i++)
        if (scale->dim[i] < 1 || shape->dim[i] % scale->dim[i] != 0)
            return pome_infer_fail(c, err, "axis %" PRId32 " of size %" PRId64 " does not divide into %" PRId64 " blocks",
                                   i, shape->dim[i], scale->dim[i]);
    if (!offset)
        return POME_OK;
    pome_type wanted = *scale;
    wanted.dtype = offset->dtype;
    if (!pome_type_compatible(offset, &wanted))
        return pome_infer_fail(c, err, "offset and scale differ in shape");
    if (!pome_dtype_is_float(offset->dtype) && offset->dtype != code)
        return pome_infer_fail(c, err, "offset is %s, the data %s", pome_dtype_name(offset->dtype), pome_dtype_name(code));
    return POME_OK;
}

pome_status pome_infer_constexpr_blockwise_shift_scale(pome_infer *c, pome_error *err)
{
    const pome_type *data = pome_infer_type(c, P_constexpr_blockwise_shift_scale_data);
    POME_TRY(check_blocks(c, data, data->dtype, P_constexpr_blockwise_shift_scale_scale,
                          P_constexpr_blockwise_shift_scale_offset, err));
    c->out[0] = *data;
    c->out[0].dtype = pome_infer_type(c, P_constexpr_blockwise_shift_scale_scale)->dtype;
    return POME_OK;
}

/* Outputs: the mask, stretched by V along vector_axis, and the nonzero values. */
pome_status pome_infer_constexpr_lut_to_sparse(pome_infer *c, pome_error *err)
{
    const pome_type *mask = pome_infer_type(c, P_constexpr_lut_to_sparse_indices_mask);
    const pome_type *data = pome_infer_type(c, P_constexpr_lut_to_sparse_indices_nonzero_data);
    int64_t vector = 1;
    int32_t axis = 0;
    POME_TRY(pome_infer_rank(c, P_constexpr_lut_to_sparse_indices_nonzero_data, 1, 1, err));
    POME_TRY(check_lut(c, mask, data->dtype, P_constexpr_lut_to_sparse_lut, P_constexpr_lut_to_sparse_vector_axis,
                       &vector, &axis, err));
    c->out[0] = *mask;
    c->out[1] = *data;
    c->out[1].dtype = pome_infer_type(c, P_constexpr_lut_to_sparse_lut)->dtype;
    POME_TRY(pome_infer_mul(c, mask->dim[axis], vector, &c->out[0].dim[axis], err));
    return pome_infer_mul(c, data->dim[0], vector, &c->out[1].dim[0], err);
}

pome_status pome_infer_constexpr_sparse_blockwise_shift_scale(pome_infer *c, pome_error *err)
{
    const pome_type *mask = pome_infer_type(c, P_constexpr_sparse_blockwise_shift_scale_data_mask);
    const pome_type *data = pome_infer_type(c, P_constexpr_sparse_blockwise_shift_scale_nonzero_data);
    POME_TRY(pome_infer_rank(c, P_constexpr_sparse_blockwise_shift_scale_nonzero_data, 1, 1, err));
    POME_TRY(check_blocks(c, mask, data->dtype, P_constexpr_sparse_blockwise_shift_scale_scale,
                          P_constexpr_sparse_blockwise_shift_scale_offset, err));
    c->out[0] = *mask;
    c->out[1] = *data;
    c->out[1].dtype = pome_infer_type(c, P_constexpr_sparse_blockwise_shift_scale_scale)->dtype;
    return POME_OK;
}
