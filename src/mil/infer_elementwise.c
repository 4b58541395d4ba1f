/* Inference of operators whose result has the shape of an input, or of two inputs broadcast together. */
#include "mil/infer.h"

pome_status pome_infer_same(pome_infer *c, pome_error *err)
{
    (void)err;
    c->out[0] = *c->in[c->op->args[0].first];
    return POME_OK;
}

pome_status pome_infer_const(pome_infer *c, pome_error *err)
{
    return pome_infer_same(c, err);
}

pome_status pome_infer_custom_layer(pome_infer *c, pome_error *err)
{
    return pome_fail(err, POME_ERR_UNSUPPORTED, "%s (custom_layer): custom layers need code of the application",
                     c->op->name);
}

/* ---- one input ---- */

pome_status pome_infer_gelu(pome_infer *c, pome_error *err)
{
    POME_TRY(pome_infer_word(c, P_gelu_mode, "EXACT|TANH_APPROXIMATION|SIGMOID_APPROXIMATION", err));
    return pome_infer_same(c, err);
}

pome_status pome_infer_softmax(pome_infer *c, pome_error *err)
{
    int32_t axis;
    POME_TRY(pome_infer_axis_param(c, P_softmax_axis, -1, pome_infer_type(c, P_softmax_x)->rank, &axis, err));
    return pome_infer_same(c, err);
}

/* Parameters that hold one number per channel (axis 1 of x, parameter 0). */
static pome_status per_channel(pome_infer *c, int32_t min_rank, int32_t max_rank, const uint32_t *params, int n,
                               pome_error *err)
{
    POME_TRY(pome_infer_rank(c, 0, min_rank, max_rank, err));
    int64_t n_channels = pome_infer_type(c, 0)->dim[1];
    for (int i = 0; i < n; i++)
        POME_TRY(pome_infer_vector(c, params[i], n_channels, err));
    return pome_infer_same(c, err);
}

pome_status pome_infer_prelu(pome_infer *c, pome_error *err)
{
    const uint32_t params[] = {P_prelu_alpha};
    const pome_tensor *alpha = pome_infer_value(c, P_prelu_alpha);
    POME_TRY(per_channel(c, 3, 5, params, 1, err));
    if (pome_infer_at_load(c) && alpha && pome_infer_type(c, 0)->rank != 4) {
        int64_t n = pome_tensor_count(alpha);
        for (int64_t i = 1; i < n; i++) {
            double step = pome_tensor_float_at(alpha, i) - pome_tensor_float_at(alpha, 0);
            if (step > 1e-5 || step < -1e-5)
                return pome_infer_fail(c, err, "alpha must be the same for every channel unless x has rank 4");
        }
    }
    return POME_OK;
}

pome_status pome_infer_softplus_parametric(pome_infer *c, pome_error *err)
{
    const uint32_t params[] = {P_softplus_parametric_alpha, P_softplus_parametric_beta};
    return per_channel(c, 3, POME_MAX_RANK, params, 2, err);
}

pome_status pome_infer_batch_norm(pome_infer *c, pome_error *err)
{
    const uint32_t params[] = {P_batch_norm_mean, P_batch_norm_variance, P_batch_norm_gamma, P_batch_norm_beta};
    return per_channel(c, 3, 5, params, 4, err);
}

pome_status pome_infer_instance_norm(pome_infer *c, pome_error *err)
{
    const uint32_t params[] = {P_instance_norm_gamma, P_instance_norm_beta};
    return per_channel(c, 3, 5, params, 2, err);
}

pome_status pome_infer_local_response_norm(pome_infer *c, pome_error *err)
{
    int64_t size;
    POME_TRY(per_channel(c, 3, POME_MAX_RANK, NULL, 0, err));
    POME_TRY(pome_infer_int(c, P_local_response_norm_size, 1, &size, err));
    if (size < 1)
        return pome_infer_fail(c, err, "size %lld is not positive", (long long)size);
    return POME_OK;
}

pome_status pome_infer_l2_norm(pome_infer *c, pome_error *err)
{
    POME_TRY(pome_infer_rank(c, P_l2_norm_x, 3, POME_MAX_RANK, err));
    return pome_infer_same(c, err);
}

/* gamma and beta have the sizes of x's normalized axes, in order. */
static pome_status check_affine(pome_infer *c, uint32_t param, const pome_type *x, uint32_t axes, pome_error *err)
{
    const pome_type *t = pome_infer_type(c, param);
    int32_t n = 0;
    if (!t)
        return POME_OK;
    for (int32_t i = 0; i < x->rank; i++) {
        if (!(axes >> i & 1))
            continue;
        if (n >= t->rank || !pome_dim_may_equal(t->dim[n], x->dim[i]))
            return pome_infer_fail(c, err, "'%s' does not fit the normalized axes", c->op->def->params[param].name);
        n++;
    }
    if (n != t->rank)
        return pome_infer_fail(c, err, "'%s' does not fit the normalized axes", c->op->def->params[param].name);
    return POME_OK;
}

pome_status pome_infer_layer_norm(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_layer_norm_x);
    uint32_t axes = (1u << x->rank) - 1;
    if (pome_infer_has(c, P_layer_norm_axes))
        POME_TRY(pome_infer_axes(c, P_layer_norm_axes, x->rank, &axes, err));
    POME_TRY(check_affine(c, P_layer_norm_gamma, x, axes, err));
    POME_TRY(check_affine(c, P_layer_norm_beta, x, axes, err));
    return pome_infer_same(c, err);
}

pome_status pome_infer_clip(pome_infer *c, pome_error *err)
{
    const pome_tensor *lo = pome_infer_value(c, P_clip_alpha), *hi = pome_infer_value(c, P_clip_beta);
    if (pome_infer_at_load(c) && c->opset >= POME_OPSET_IOS17 && lo && hi &&
        pome_tensor_float_at(lo, 0) >= pome_tensor_float_at(hi, 0))
        return pome_infer_fail(c, err, "alpha %g is not below beta %g", pome_tensor_float_at(lo, 0),
                               pome_tensor_float_at(hi, 0));
    return pome_infer_same(c, err);
}

pome_status pome_infer_cast(pome_infer *c, pome_error *err)
{
    pome_dtype dtype = c->op->out[0]->type.dtype; /* at run time: as it was found at load */
    if (pome_infer_at_load(c) || dtype == POME_DTYPE_NONE)
        POME_TRY(pome_infer_dtype(c, P_cast_dtype, POME_DTYPE_NONE, POME_T_FIB, &dtype, err));
    POME_TRY(pome_infer_same(c, err));
    c->out[0].dtype = dtype;
    return POME_OK;
}

/* ---- two inputs ---- */

static pome_status common_dtype(pome_infer *c, const pome_type *a, const pome_type *b, pome_dtype *out, pome_error *err)
{
    POME_TRY(pome_infer_same_dtype(c, a, b, err));
    *out = a->dtype == POME_DTYPE_F32 ? a->dtype : b->dtype;
    return POME_OK;
}

pome_status pome_infer_binary(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, 0), *y = pome_infer_type(c, 1);
    POME_TRY(common_dtype(c, x, y, &c->out[0].dtype, err));
    return pome_infer_broadcast(c, x, y, &c->out[0], err);
}

pome_status pome_infer_compare(pome_infer *c, pome_error *err)
{
    POME_TRY(pome_infer_binary(c, err));
    c->out[0].dtype = POME_DTYPE_BOOL;
    return POME_OK;
}

/* All three broadcast, as in numpy.where (coremltools' declared shape leaves cond out). */
pome_status pome_infer_select(pome_infer *c, pome_error *err)
{
    const pome_type *a = pome_infer_type(c, P_select_a), *b = pome_infer_type(c, P_select_b);
    pome_type ab = {0};
    POME_TRY(common_dtype(c, a, b, &c->out[0].dtype, err));
    POME_TRY(pome_infer_broadcast(c, a, b, &ab, err));
    return pome_infer_broadcast(c, &ab, pome_infer_type(c, P_select_cond), &c->out[0], err);
}

/* ---- quantization of activations ---- */

/* scale, zero_point: both scalars, or both vectors along axis. */
static pome_status check_scale(pome_infer *c, uint32_t scale, uint32_t zero_point, uint32_t axis_param, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, 0), *s = pome_infer_type(c, scale), *z = pome_infer_type(c, zero_point);
    if (s->rank > 1 || (z && z->rank != s->rank))
        return pome_infer_fail(c, err, "scale and zero_point must both be scalars or both vectors");
    if (s->rank == 0)
        return POME_OK;
    if (!pome_infer_has(c, axis_param))
        return pome_infer_fail(c, err, "axis must be given, as scale is a vector");
    int32_t axis;
    POME_TRY(pome_infer_axis_param(c, axis_param, 0, x->rank, &axis, err));
    POME_TRY(pome_infer_vector(c, scale, x->dim[axis], err));
    return pome_infer_vector(c, zero_point, x->dim[axis], err);
}

pome_status pome_infer_quantize(pome_infer *c, pome_error *err)
{
    pome_dtype dtype;
    POME_TRY(check_scale(c, P_quantize_scale, P_quantize_zero_point, P_quantize_axis, err));
    POME_TRY(pome_infer_dtype(c, P_quantize_output_dtype, POME_DTYPE_NONE, POME_T_I8 | POME_T_U8, &dtype, err));
    const pome_type *z = pome_infer_type(c, P_quantize_zero_point);
    if (z && z->dtype != dtype)
        return pome_infer_fail(c, err, "zero_point is %s, the output %s", pome_dtype_name(z->dtype),
                               pome_dtype_name(dtype));
    POME_TRY(pome_infer_same(c, err));
    c->out[0].dtype = dtype;
    return POME_OK;
}

pome_status pome_infer_dequantize(pome_infer *c, pome_error *err)
{
    POME_TRY(check_scale(c, P_dequantize_scale, P_dequantize_zero_point, P_dequantize_axis, err));
    POME_TRY(pome_infer_same(c, err));
    c->out[0].dtype = pome_infer_type(c, P_dequantize_scale)->dtype;
    return POME_OK;
}

/* ---- along an axis ---- */

pome_status pome_infer_cumsum(pome_infer *c, pome_error *err)
{
    int32_t axis;
    POME_TRY(pome_infer_axis_param(c, P_cumsum_axis, 0, pome_infer_type(c, P_cumsum_x)->rank, &axis, err));
    return pome_infer_same(c, err);
}

pome_status pome_infer_band_part(pome_infer *c, pome_error *err)
{
    POME_TRY(pome_infer_rank(c, P_band_part_x, 2, POME_MAX_RANK, err));
    return pome_infer_same(c, err);
}

pome_status pome_infer_argsort(pome_infer *c, pome_error *err)
{
    int32_t axis;
    POME_TRY(pome_infer_axis_param(c, P_argsort_axis, -1, pome_infer_type(c, P_argsort_x)->rank, &axis, err));
    POME_TRY(pome_infer_same(c, err));
    c->out[0].dtype = POME_DTYPE_I32;
    return POME_OK;
}

pome_status pome_infer_reverse(pome_infer *c, pome_error *err)
{
    uint32_t axes;
    if (pome_infer_has(c, P_reverse_axes))
        POME_TRY(pome_infer_axes(c, P_reverse_axes, pome_infer_type(c, P_reverse_x)->rank, &axes, err));
    return pome_infer_same(c, err);
}

pome_status pome_infer_reverse_sequence(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_reverse_sequence_x);
    int32_t seq, batch;
    POME_TRY(pome_infer_axis_param(c, P_reverse_sequence_seq_axis, 0, x->rank, &seq, err));
    POME_TRY(pome_infer_axis_param(c, P_reverse_sequence_batch_axis, 0, x->rank, &batch, err));
    POME_TRY(pome_infer_vector(c, P_reverse_sequence_lengths, x->dim[batch], err));
    return pome_infer_same(c, err);
}
