/* Checks a constexpr operator and builds the node that decodes it. Nothing here trusts a file: every size goes
 * through checked arithmetic, and after a node is made its decoding cannot leave its inputs' memory. */
#include "ops/encoded.h"

#include <string.h>

#include "base/checked.h"
#include "base/f16.h"
#include "mil/infer.h"
#include "ops/encoded_node.h"
#include "ops/op.h"

enum { MAX_CHAIN = 8, MAX_VECTOR = 256 };

typedef struct builder {
    const pome_op *op;
    pome_arena *arena;
    pome_encoded *e;
    int depth;
    pome_error *err;
} builder;

static pome_status create(const pome_encoded **out, const pome_op *op, uint32_t output, pome_arena *arena, int depth,
                          pome_error *err);

#define BAD(b, ...) pome_op_fail((b)->op, (b)->err, POME_ERR_FORMAT, __VA_ARGS__)

static const char *param_name(const builder *b, uint32_t param)
{
    return b->op->def->params[param].name;
}

/* ---- inputs ---- */

static pome_status count_elements(builder *b, const char *name, int32_t rank, const int64_t *shape, size_t *out)
{
    size_t count = 1;
    if (rank < 0 || rank > POME_MAX_RANK)
        return BAD(b, "%s has rank %d, at most %d is supported", name, (int)rank, POME_MAX_RANK);
    for (int32_t d = 0; d < rank; d++)
        if (shape[d] < 0 || !pome_mul_size(count, (size_t)shape[d], &count) || count > PTRDIFF_MAX / 16)
            return BAD(b, "%s is too large (axis %d has %lld elements)", name, (int)d, (long long)shape[d]);
    *out = count;
    return POME_OK;
}

static pome_status check_bytes(builder *b, const char *name, const pome_const *k, size_t count)
{
    size_t need = (count * pome_dtype_bits(k->t.dtype) + 7) / 8; /* count <= PTRDIFF_MAX / 16 and 8 bits at most, */
    if (pome_dtype_bits(k->t.dtype) > 8)                         /* or whole bytes */
        need = count * (pome_dtype_bits(k->t.dtype) / 8);
    if (k->size_bytes < need)
        return BAD(b, "%s holds %zu bytes, its shape needs %zu", name, k->size_bytes, need);
    return POME_OK;
}

/* The constant of a parameter as it is: dense, or a node (made here if the pass has not made it yet). */
static pome_status input(builder *b, uint32_t param, const pome_const **k, enc_source *s)
{
    const pome_value *v = pome_op_arg(b->op, param);
    const char *name = param_name(b, param);
    memset(s, 0, sizeof *s);
    if (!v || !v->konst)
        return BAD(b, "%s is not a constant", name);
    *k = v->konst;
    s->dtype = (*k)->t.dtype;
    POME_TRY(count_elements(b, name, (*k)->t.rank, (*k)->t.shape, &s->count));
    if ((*k)->t.data || s->count == 0) {
        static const uint8_t nothing[8];
        s->data = (*k)->t.data ? (*k)->t.data : nothing;
        return check_bytes(b, name, *k, s->count);
    }
    s->encoded = (*k)->encoded;
    if (!s->encoded && !(*k)->encoded_by)
        return BAD(b, "%s has no data", name);
    if (!s->encoded)
        POME_TRY(create(&s->encoded, (*k)->encoded_by, (*k)->encoded_output, b->arena, b->depth + 1, b->err));
    if (s->encoded->count != s->count || s->encoded->dtype != s->dtype)
        return BAD(b, "%s is declared %s with %zu elements, its operator gives %s with %zu", name,
                   pome_dtype_name(s->dtype), s->count, pome_dtype_name(s->encoded->dtype), s->encoded->count);
    return POME_OK;
}

static pome_status check_dtype(builder *b, uint32_t param, pome_dtype dtype, const pome_dtype *allowed, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (allowed[i] == dtype)
            return POME_OK;
    return BAD(b, "%s cannot be %s", param_name(b, param), pome_dtype_name(dtype));
}
#define CHECK_DTYPE(b, param, dtype, ...)                                                                              \
    POME_TRY(check_dtype((b), (param), (dtype), (const pome_dtype[]){__VA_ARGS__},                                     \
                         sizeof(const pome_dtype[]){__VA_ARGS__} / sizeof(pome_dtype)))
#define SMALL_FLOATS POME_DTYPE_F16, POME_DTYPE_F32
#define INDEX_TYPES                                                                                                    \
    POME_DTYPE_U1, POME_DTYPE_U2, POME_DTYPE_U3, POME_DTYPE_U4, POME_DTYPE_U6, POME_DTYPE_U8
#define DATA_TYPES POME_DTYPE_I4, POME_DTYPE_U4, POME_DTYPE_I8, POME_DTYPE_U8, SMALL_FLOATS
#define LUT_TYPES POME_DTYPE_I8, POME_DTYPE_U8, SMALL_FLOATS

/* A small table (scales, offsets, palettes): one that is itself encoded is decoded here. */
static pome_status table_input(builder *b, uint32_t param, const pome_const **k, enc_source *s)
{
    POME_TRY(input(b, param, k, s));
    if (s->data)
        return POME_OK;
    float *values = POME_NEW_ARRAY(b->arena, float, s->count);
    if (!values)
        return pome_fail_nomem(b->err, s->count * sizeof *values, param_name(b, param));
    pome_encoded_decode(s->encoded, 0, s->count, values);
    *s = (enc_source){s->dtype, s->count, values, NULL};
    s->dtype = POME_DTYPE_F32;
    return POME_OK;
}

static pome_status scalar_int(builder *b, uint32_t param, int64_t *out)
{
    const pome_const *k;
    enc_source s;
    POME_TRY(input(b, param, &k, &s));
    if (!s.data || s.count != 1 || !pome_dtype_is_int(s.dtype))
        return BAD(b, "%s must be one integer", param_name(b, param));
    *out = pome_tensor_int_at(&k->t, 0);
    return POME_OK;
}

static void set_shape(pome_encoded *e, pome_dtype dtype, int32_t rank, const int64_t *shape, size_t count)
{
    e->dtype = dtype;
    e->rank = rank;
    memcpy(e->shape, shape, (size_t)rank * sizeof *shape);
    e->count = count;
}

/* ---- blocks ---- */

/* Axes of `shape` cut into n[] equal blocks, entries of the table row-major; merges neighbours. */
static pome_status set_blocks(builder *b, const char *name, int32_t rank, const int64_t *shape, const int64_t *n)
{
    enc_blocks full = {.rank = rank}, *m = &b->e->blocks;
    size_t step = 1;
    for (int32_t d = rank - 1; d >= 0; d--) {
        if (n[d] <= 0 || shape[d] % n[d] != 0)
            return BAD(b, "axis %d has %lld elements, %s has %lld there, which does not divide it", (int)d,
                       (long long)shape[d], name, (long long)n[d]);
        full.dim[d] = (size_t)shape[d];
        full.block[d] = (size_t)(shape[d] / n[d]);
        full.step[d] = step;
        step *= (size_t)n[d]; /* the table's element count, already checked */
    }
    *m = (enc_blocks){.rank = 1, .dim = {1}, .block = {1}, .step = {1}};
    for (int32_t d = 0; d < rank; d++) { /* the axis so far stands left of axis d */
        int32_t last = m->rank - 1;
        size_t n_left = m->dim[last] ? m->dim[last] / m->block[last] : 1;
        if (full.block[d] == full.dim[d]) { /* one block inside: it lengthens the left one's */
            m->dim[last] *= full.dim[d];
            m->block[last] *= full.dim[d];
        } else if (n_left == m->dim[last] && (m->dim[last] == 1 || m->step[last] == full.step[d] * (size_t)n[d])) {
            m->dim[last] *= full.dim[d]; /* one element per block at the left: blocks follow each other */
            m->block[last] = full.block[d];
            m->step[last] = full.step[d];
        } else {
            m->dim[m->rank] = full.dim[d];
            m->block[m->rank] = full.block[d];
            m->step[m->rank++] = full.step[d];
        }
    }
    return POME_OK;
}

/* ---- masks ---- */

static pome_status index_mask(builder *b, enc_mask *m, const uint8_t *bits, size_t n_bits)
{
    size_t n_chunks = n_bits / ENC_RANK_BITS + 1, *before = POME_NEW_ARRAY(b->arena, size_t, n_chunks);
    if (!before)
        return pome_fail_nomem(b->err, n_chunks * sizeof *before, "mask index");
    *m = (enc_mask){bits, n_bits, 0, before};
    for (size_t chunk = 0; chunk + 1 < n_chunks; chunk++) /* rank looks back no further than one chunk */
        before[chunk + 1] = pome_enc_rank(&(enc_mask){bits, n_bits, 0, before}, (chunk + 1) * ENC_RANK_BITS - 1) +
                            enc_bit(m, (chunk + 1) * ENC_RANK_BITS - 1);
    m->n_ones = pome_enc_rank(m, n_bits);
    return POME_OK;
}

/* A mask in memory; one that another node gives is expanded to bits. */
static pome_status mask_input(builder *b, uint32_t param, const pome_const **k, enc_mask *m)
{
    enc_source s;
    POME_TRY(input(b, param, k, &s));
    if (s.data)
        return index_mask(b, m, (const uint8_t *)s.data, s.count);
    if (s.encoded->kind == ENC_MASK) {
        *m = s.encoded->mask;
        return POME_OK;
    }
    uint8_t *bits = (uint8_t *)pome_arena_alloc(b->arena, s.count / 8 + 1);
    if (!bits)
        return pome_fail_nomem(b->err, s.count / 8 + 1, "mask");
    pome_encoded_decode_raw(s.encoded, 0, s.count, bits);
    return index_mask(b, m, bits, s.count);
}

static pome_status check_population(builder *b, const enc_mask *m, const enc_source *values, const char *name)
{
    if (m->n_ones != values->count)
        return BAD(b, "the mask has %zu set bits, %s has %zu elements", m->n_ones, name, values->count);
    return POME_OK;
}

/* ---- shift and scale ---- */

/* An integer offset of zeros is none: then the plain kernels apply. */
static void drop_zero_offset(pome_encoded *e, pome_dtype dtype)
{
    float value = 0;
    for (size_t i = 0; i < e->offset.count && value == 0; i++)
        pome_enc_read(&e->offset, &e->kernels, i, 1, &value);
    if (value == 0 && !pome_dtype_is_float(dtype))
        e->offset.count = 0;
}

/* Kernels read offsets as halves, which hold integers of 8 bits exactly. One offset for many scales is repeated. */
static pome_status widen_offset(builder *b)
{
    pome_encoded *e = b->e;
    bool repeated = e->scale_step && !e->offset_step;
    size_t n = repeated ? e->scale.count : e->offset.count;
    if (e->offset.count == 0 || pome_dtype_is_float(e->offset.dtype) || pome_dtype_is_float(e->source.dtype))
        return POME_OK;
    uint16_t *halves = POME_NEW_ARRAY(b->arena, uint16_t, n);
    if (!halves)
        return pome_fail_nomem(b->err, n * sizeof *halves, "offsets");
    for (size_t i = 0; i < n; i++) {
        float value;
        pome_enc_read(&e->offset, &e->kernels, repeated ? 0 : i, 1, &value);
        halves[i] = pome_f32_to_f16(value);
    }
    e->offset = (enc_source){POME_DTYPE_F16, n, halves, NULL};
    e->offset_step = e->scale_step;
    e->round_difference = e->scale.dtype == POME_DTYPE_F16; /* differences of such integers are halves */
    return POME_OK;
}

static pome_status same_shape(builder *b, const pome_const *a, const pome_const *c, const char *what)
{
    bool same = a->t.rank == c->t.rank;
    for (int32_t d = 0; same && d < a->t.rank; d++)
        same = a->t.shape[d] == c->t.shape[d];
    return same ? POME_OK : BAD(b, "%s", what);
}

/* numpy's promotion decides where coremltools rounds: everything in half as long as nothing is float32. */
static void set_rounding(pome_encoded *e, pome_dtype scale, pome_dtype data, pome_dtype offset)
{
    bool half = scale == POME_DTYPE_F16;
    e->round_data = half && data == POME_DTYPE_F32;
    e->round_difference = half && offset != POME_DTYPE_F32 && (pome_dtype_is_float(data) || pome_dtype_is_float(offset));
}

/* Scale and offset of the iOS 18 forms over data of `shape`. */
static pome_status set_shift_scale(builder *b, uint32_t scale_param, uint32_t offset_param, int32_t rank,
                                   const int64_t *shape)
{
    const pome_const *scale, *offset = NULL;
    pome_encoded *e = b->e;
    POME_TRY(table_input(b, scale_param, &scale, &e->scale));
    CHECK_DTYPE(b, scale_param, scale->t.dtype, SMALL_FLOATS);
    if (rank < 1 || scale->t.rank != rank)
        return BAD(b, "data has rank %d and scale rank %d; they must be equal and at least 1", (int)rank,
                   (int)scale->t.rank);
    if (b->op->args[offset_param].count) {
        POME_TRY(table_input(b, offset_param, &offset, &e->offset));
        CHECK_DTYPE(b, offset_param, offset->t.dtype, DATA_TYPES);
        POME_TRY(same_shape(b, offset, scale, "offset and scale must have the same shape"));
        if (!pome_dtype_is_float(offset->t.dtype) && offset->t.dtype != e->source.dtype)
            return BAD(b, "offset is %s, data is %s; an integer offset must have the type of the data",
                       pome_dtype_name(offset->t.dtype), pome_dtype_name(e->source.dtype));
    }
    e->scale_step = e->offset_step = 1;
    if (offset)
        drop_zero_offset(e, offset->t.dtype);
    set_rounding(e, scale->t.dtype, e->source.dtype, offset ? offset->t.dtype : POME_DTYPE_NONE);
    POME_TRY(widen_offset(b));
    return set_blocks(b, "scale", rank, shape, scale->t.shape);
}

static pome_status build_blockwise(builder *b)
{
    const pome_const *data;
    pome_encoded *e = b->e;
    e->kind = ENC_SHIFT_SCALE;
    POME_TRY(input(b, P_constexpr_blockwise_shift_scale_data, &data, &e->source));
    CHECK_DTYPE(b, P_constexpr_blockwise_shift_scale_data, e->source.dtype, DATA_TYPES);
    POME_TRY(set_shift_scale(b, P_constexpr_blockwise_shift_scale_scale, P_constexpr_blockwise_shift_scale_offset,
                             data->t.rank, data->t.shape));
    const pome_value *scale = pome_op_arg(b->op, P_constexpr_blockwise_shift_scale_scale);
    set_shape(e, scale->konst->t.dtype, data->t.rank, data->t.shape, e->source.count);
    return POME_OK;
}

static pome_status build_sparse_blockwise(builder *b, uint32_t output)
{
    const pome_const *mask, *values;
    pome_encoded *e = b->e;
    POME_TRY(mask_input(b, P_constexpr_sparse_blockwise_shift_scale_data_mask, &mask, &e->mask));
    CHECK_DTYPE(b, P_constexpr_sparse_blockwise_shift_scale_data_mask, mask->t.dtype, POME_DTYPE_U1);
    POME_TRY(input(b, P_constexpr_sparse_blockwise_shift_scale_nonzero_data, &values, &e->source));
    CHECK_DTYPE(b, P_constexpr_sparse_blockwise_shift_scale_nonzero_data, e->source.dtype, DATA_TYPES);
    if (values->t.rank != 1)
        return BAD(b, "nonzero_data has rank %d, must be 1", (int)values->t.rank);
    POME_TRY(check_population(b, &e->mask, &e->source, "nonzero_data"));
    POME_TRY(set_shift_scale(b, P_constexpr_sparse_blockwise_shift_scale_scale,
                             P_constexpr_sparse_blockwise_shift_scale_offset, mask->t.rank, mask->t.shape));
    e->kind = output == 0 ? ENC_MASK : ENC_SCALE_VALUES;
    if (output == 0)
        set_shape(e, POME_DTYPE_U1, mask->t.rank, mask->t.shape, e->mask.n_bits);
    else
        set_shape(e, pome_op_arg(b->op, P_constexpr_sparse_blockwise_shift_scale_scale)->konst->t.dtype, 1,
                  values->t.shape, e->source.count);
    return POME_OK;
}

/* scale or zero_point: one number, or one for each index along the axis */
static pome_status axis_table(builder *b, uint32_t param, int64_t axis_len, enc_source *s, size_t *step)
{
    const pome_const *k;
    POME_TRY(table_input(b, param, &k, s));
    if (k->t.rank > 1 || (k->t.rank == 1 && k->t.shape[0] != axis_len))
        return BAD(b, "%s has %zu elements, must be a scalar or a vector of %lld", param_name(b, param), s->count,
                   (long long)axis_len);
    *step = k->t.rank == 1;
    return POME_OK;
}

static pome_status build_affine(builder *b)
{
    const pome_const *data;
    pome_encoded *e = b->e;
    int64_t axis, n[POME_MAX_RANK];
    e->kind = ENC_SHIFT_SCALE;
    POME_TRY(input(b, P_constexpr_affine_dequantize_quantized_data, &data, &e->source));
    CHECK_DTYPE(b, P_constexpr_affine_dequantize_quantized_data, e->source.dtype, POME_DTYPE_I8, POME_DTYPE_U8);
    POME_TRY(scalar_int(b, P_constexpr_affine_dequantize_axis, &axis));
    int32_t rank = data->t.rank;
    if (rank < 1 || axis < -rank || axis >= rank)
        return BAD(b, "axis is %lld, data has rank %d", (long long)axis, (int)rank);
    axis += axis < 0 ? rank : 0;
    int64_t len = data->t.shape[axis];
    POME_TRY(axis_table(b, P_constexpr_affine_dequantize_scale, len, &e->scale, &e->scale_step));
    POME_TRY(axis_table(b, P_constexpr_affine_dequantize_zero_point, len, &e->offset, &e->offset_step));
    pome_dtype dtype = pome_op_arg(b->op, P_constexpr_affine_dequantize_scale)->konst->t.dtype;
    CHECK_DTYPE(b, P_constexpr_affine_dequantize_scale, dtype, SMALL_FLOATS);
    pome_dtype zero = pome_op_arg(b->op, P_constexpr_affine_dequantize_zero_point)->konst->t.dtype;
    CHECK_DTYPE(b, P_constexpr_affine_dequantize_zero_point, zero, LUT_TYPES);
    drop_zero_offset(e, zero);
    if (e->scale_step >= e->offset_step)
        POME_TRY(widen_offset(b));
    for (int32_t d = 0; d < rank; d++)
        n[d] = d == axis && len > 0 && (e->scale_step || (e->offset.count && e->offset_step)) ? len : 1;
    set_shape(e, dtype, rank, data->t.shape, e->source.count); /* coremltools: float32, rounded at the end */
    return set_blocks(b, "axis", rank, data->t.shape, n);
}

/* ---- palettes ---- */

/* The table of the iOS 18 forms: rank K + 2 over indices of rank K. Gives the result's shape. */
static pome_status set_palette(builder *b, uint32_t lut_param, uint32_t axis_param, pome_dtype index_dtype,
                               int32_t rank, const int64_t *shape, int64_t *out_shape)
{
    const pome_const *lut;
    pome_encoded *e = b->e;
    int64_t axis = rank - 1;
    POME_TRY(table_input(b, lut_param, &lut, &e->lut));
    CHECK_DTYPE(b, lut_param, lut->t.dtype, LUT_TYPES);
    e->n_bits = pome_dtype_bits(index_dtype);
    if (rank < 1 || lut->t.rank != rank + 2)
        return BAD(b, "indices have rank %d and lut rank %d; lut must have two more axes", (int)rank,
                   (int)lut->t.rank);
    if (lut->t.shape[rank] != (int64_t)1 << e->n_bits)
        return BAD(b, "indices are %s, lut has %lld entries, must have %d", pome_dtype_name(index_dtype),
                   (long long)lut->t.shape[rank], 1 << e->n_bits);
    if (lut->t.shape[rank + 1] < 1)
        return BAD(b, "lut has an empty last axis");
    e->vector = (size_t)lut->t.shape[rank + 1];
    if (e->vector > MAX_VECTOR) /* expanding a mask must not take for ever */
        return pome_op_fail(b->op, b->err, POME_ERR_LIMIT, "lut has vectors of %zu, at most %d are supported",
                            e->vector, MAX_VECTOR);
    if (b->op->args[axis_param].count) {
        POME_TRY(scalar_int(b, axis_param, &axis));
        if (axis < -rank || axis >= rank)
            return BAD(b, "vector_axis is %lld, indices have rank %d", (long long)axis, (int)rank);
        axis += axis < 0 ? rank : 0;
    } else if (e->vector > 1) {
        return BAD(b, "lut has vectors of %zu, vector_axis is missing", e->vector);
    }
    e->vector_inner = 1;
    for (int32_t d = 0; d < rank; d++) {
        out_shape[d] = shape[d];
        if (d > axis)
            e->vector_inner *= (size_t)shape[d];
    }
    e->vector_inner += e->vector_inner == 0; /* nothing to decode then */
    if (!pome_mul_i64(shape[axis], (int64_t)e->vector, &out_shape[axis]))
        return BAD(b, "the result is too large");
    return set_blocks(b, "lut", rank, shape, lut->t.shape);
}

/* iOS 16: packed bytes, one flat palette, the result's shape as a vector. */
static pome_status build_flat_lut(builder *b, const pome_const *indices)
{
    const pome_const *lut, *shape;
    pome_encoded *e = b->e;
    enc_source dims;
    int64_t out_shape[POME_MAX_RANK], one[POME_MAX_RANK];
    POME_TRY(table_input(b, P_constexpr_lut_to_dense_lut, &lut, &e->lut));
    CHECK_DTYPE(b, P_constexpr_lut_to_dense_lut, lut->t.dtype, LUT_TYPES);
    POME_TRY(input(b, P_constexpr_lut_to_dense_shape, &shape, &dims));
    if (!dims.data || shape->t.rank != 1 || dims.count > POME_MAX_RANK || !pome_dtype_is_int(dims.dtype))
        return BAD(b, "shape must be a vector of at most %d integers", POME_MAX_RANK);
    if (lut->t.rank != 1 || indices->t.rank != 1 || indices->t.dtype != POME_DTYPE_U8)
        return BAD(b, "indices must be a vector of uint8 and lut a vector");
    for (e->n_bits = 1; e->n_bits < 8 && ((size_t)1 << e->n_bits) < e->lut.count;)
        e->n_bits++;
    if (e->lut.count != (size_t)1 << e->n_bits)
        return BAD(b, "lut has %zu entries, must have a power of 2 from 2 to 256", e->lut.count);
    for (size_t d = 0; d < dims.count; d++) {
        out_shape[d] = pome_tensor_int_at(&shape->t, (int64_t)d);
        one[d] = 1;
    }
    POME_TRY(count_elements(b, "shape", (int32_t)dims.count, out_shape, &e->count));
    size_t need = (e->count * e->n_bits + 7) / 8;
    if (e->source.count != need)
        return BAD(b, "indices have %zu bytes, %zu elements of %u bits need %zu", e->source.count, e->count,
                   (unsigned)e->n_bits, need);
    e->vector = e->vector_inner = 1;
    set_shape(e, lut->t.dtype, (int32_t)dims.count, out_shape, e->count);
    return set_blocks(b, "lut", e->rank, out_shape, one);
}

static pome_status build_lut(builder *b)
{
    const pome_const *indices;
    pome_encoded *e = b->e;
    int64_t out_shape[POME_MAX_RANK];
    size_t count = 0;
    e->kind = ENC_LUT;
    POME_TRY(input(b, P_constexpr_lut_to_dense_indices, &indices, &e->source));
    CHECK_DTYPE(b, P_constexpr_lut_to_dense_indices, e->source.dtype, INDEX_TYPES);
    if (!e->source.data)
        return BAD(b, "indices must be dense");
    if (b->op->args[P_constexpr_lut_to_dense_shape].count)
        return build_flat_lut(b, indices);
    POME_TRY(set_palette(b, P_constexpr_lut_to_dense_lut, P_constexpr_lut_to_dense_vector_axis, e->source.dtype,
                         indices->t.rank, indices->t.shape, out_shape));
    POME_TRY(count_elements(b, "the result", indices->t.rank, out_shape, &count));
    set_shape(e, pome_op_arg(b->op, P_constexpr_lut_to_dense_lut)->konst->t.dtype, indices->t.rank, out_shape, count);
    return POME_OK;
}

/* Each bit of the index mask repeated `vector` times along the vector axis. */
static pome_status repeat_mask(builder *b, size_t count)
{
    pome_encoded *e = b->e;
    uint8_t *bits = (uint8_t *)pome_arena_alloc(b->arena, count / 8 + 1);
    if (!bits)
        return pome_fail_nomem(b->err, count / 8 + 1, "mask");
    for (size_t i = 0; i < count; i++) {
        size_t at = i / e->vector_inner / e->vector * e->vector_inner + i % e->vector_inner;
        if (enc_bit(&e->index_mask, at))
            bits[i / 8] |= (uint8_t)(1u << i % 8);
    }
    return index_mask(b, &e->mask, bits, count);
}

static pome_status build_lut_to_sparse(builder *b, uint32_t output)
{
    const pome_const *mask, *values;
    pome_encoded *e = b->e;
    int64_t out_shape[POME_MAX_RANK], n_values;
    size_t count = 0;
    POME_TRY(mask_input(b, P_constexpr_lut_to_sparse_indices_mask, &mask, &e->index_mask));
    CHECK_DTYPE(b, P_constexpr_lut_to_sparse_indices_mask, mask->t.dtype, POME_DTYPE_U1);
    POME_TRY(input(b, P_constexpr_lut_to_sparse_indices_nonzero_data, &values, &e->source));
    CHECK_DTYPE(b, P_constexpr_lut_to_sparse_indices_nonzero_data, e->source.dtype, INDEX_TYPES);
    if (!e->source.data || values->t.rank != 1)
        return BAD(b, "indices_nonzero_data must be a dense vector");
    POME_TRY(check_population(b, &e->index_mask, &e->source, "indices_nonzero_data"));
    POME_TRY(set_palette(b, P_constexpr_lut_to_sparse_lut, P_constexpr_lut_to_sparse_vector_axis, e->source.dtype,
                         mask->t.rank, mask->t.shape, out_shape));
    POME_TRY(count_elements(b, "the result", mask->t.rank, out_shape, &count));
    e->mask = e->index_mask;
    if (e->vector > 1)
        POME_TRY(repeat_mask(b, count));
    n_values = (int64_t)e->mask.n_ones;
    e->kind = output == 0 ? ENC_MASK : ENC_LUT_VALUES;
    if (output == 0)
        set_shape(e, POME_DTYPE_U1, mask->t.rank, out_shape, count);
    else
        set_shape(e, pome_op_arg(b->op, P_constexpr_lut_to_sparse_lut)->konst->t.dtype, 1, &n_values,
                  e->mask.n_ones);
    return POME_OK;
}

/* ---- the rest ---- */

static pome_status build_sparse(builder *b)
{
    const pome_const *values, *mask;
    pome_encoded *e = b->e;
    e->kind = ENC_SPARSE;
    POME_TRY(input(b, P_constexpr_sparse_to_dense_nonzero_data, &values, &e->source));
    CHECK_DTYPE(b, P_constexpr_sparse_to_dense_nonzero_data, e->source.dtype, DATA_TYPES);
    if (values->t.rank != 1)
        return BAD(b, "nonzero_data has rank %d, must be 1", (int)values->t.rank);
    if (!b->op->args[P_constexpr_sparse_to_dense_shape].count) {
        POME_TRY(mask_input(b, P_constexpr_sparse_to_dense_mask, &mask, &e->mask));
        CHECK_DTYPE(b, P_constexpr_sparse_to_dense_mask, mask->t.dtype, POME_DTYPE_U1);
        set_shape(e, values->t.dtype, mask->t.rank, mask->t.shape, e->mask.n_bits);
        return check_population(b, &e->mask, &e->source, "nonzero_data");
    }
    const pome_const *shape; /* iOS 16: bytes of bits and the shape as a vector */
    enc_source dims, bits;
    int64_t out_shape[POME_MAX_RANK];
    size_t count = 0;
    POME_TRY(input(b, P_constexpr_sparse_to_dense_shape, &shape, &dims));
    POME_TRY(input(b, P_constexpr_sparse_to_dense_mask, &mask, &bits));
    if (!dims.data || shape->t.rank != 1 || dims.count > POME_MAX_RANK || !pome_dtype_is_int(dims.dtype))
        return BAD(b, "shape must be a vector of at most %d integers", POME_MAX_RANK);
    for (size_t d = 0; d < dims.count; d++)
        out_shape[d] = pome_tensor_int_at(&shape->t, (int64_t)d);
    POME_TRY(count_elements(b, "shape", (int32_t)dims.count, out_shape, &count));
    if (!bits.data || bits.dtype != POME_DTYPE_U8 || mask->t.rank != 1 || bits.count != (count + 7) / 8)
        return BAD(b, "mask has %zu elements of %s, must be %zu bytes", bits.count, pome_dtype_name(bits.dtype),
                   (count + 7) / 8);
    if (count % 8 && ((const uint8_t *)bits.data)[count / 8] >> count % 8)
        return BAD(b, "mask has bits set past its %zu elements", count);
    POME_TRY(index_mask(b, &e->mask, (const uint8_t *)bits.data, count));
    set_shape(e, values->t.dtype, (int32_t)dims.count, out_shape, count);
    return check_population(b, &e->mask, &e->source, "nonzero_data");
}

static pome_status build_cast(builder *b)
{
    const pome_const *source;
    const char *dtype = pome_op_str(b->op, P_constexpr_cast_output_dtype, "fp32");
    b->e->kind = ENC_CAST;
    POME_TRY(input(b, P_constexpr_cast_source_val, &source, &b->e->source));
    CHECK_DTYPE(b, P_constexpr_cast_source_val, b->e->source.dtype, SMALL_FLOATS);
    if (strcmp(dtype, "fp32") != 0)
        return BAD(b, "output_dtype is %s, must be fp32", dtype);
    set_shape(b->e, POME_DTYPE_F32, source->t.rank, source->t.shape, b->e->source.count);
    return POME_OK;
}

static pome_status build(builder *b, uint32_t output)
{
    switch (b->op->def->id) {
    case POME_OP_constexpr_affine_dequantize:
        return build_affine(b);
    case POME_OP_constexpr_blockwise_shift_scale:
        return build_blockwise(b);
    case POME_OP_constexpr_cast:
        return build_cast(b);
    case POME_OP_constexpr_lut_to_dense:
        return build_lut(b);
    case POME_OP_constexpr_lut_to_sparse:
        return build_lut_to_sparse(b, output);
    case POME_OP_constexpr_sparse_blockwise_shift_scale:
        return build_sparse_blockwise(b, output);
    case POME_OP_constexpr_sparse_to_dense:
        return build_sparse(b);
    default:
        return pome_op_fail(b->op, b->err, POME_ERR_UNSUPPORTED, "is no operator of compressed constants");
    }
}

static pome_status create(const pome_encoded **out, const pome_op *op, uint32_t output, pome_arena *arena, int depth,
                          pome_error *err)
{
    builder b = {op, arena, POME_NEW(arena, pome_encoded), depth, err};
    if (depth > MAX_CHAIN)
        return pome_op_fail(op, err, POME_ERR_LIMIT, "more than %d compressed constants feed each other", MAX_CHAIN);
    if (output >= op->n_out)
        return pome_op_fail(op, err, POME_ERR_ARG, "has no output %u", (unsigned)output);
    if (!b.e)
        return pome_fail_nomem(err, sizeof *b.e, "compressed constant");
    pome_kernels_init(&b.e->kernels, pome_cpu_level_get());
    POME_TRY(build(&b, output));
    *out = b.e;
    return POME_OK;
}

pome_status pome_encoded_create(const pome_encoded **out, const pome_op *op, uint32_t output, pome_arena *arena,
                                pome_error *err)
{
    return create(out, op, output, arena, 0, err);
}

int32_t pome_encoded_rank(const pome_encoded *e)
{
    return e->rank;
}

const int64_t *pome_encoded_shape(const pome_encoded *e)
{
    return e->shape;
}

pome_dtype pome_encoded_dtype(const pome_encoded *e)
{
    return e->dtype;
}
