#include "convert/weight.h"

#include <assert.h>

#include "base/f16.h"

static pome_status set_shape(pome_weight *w, int32_t rank, const int64_t *shape, pome_error *err)
{
    if (rank < 1 || rank > 2)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "tensor \"%.200s\" has %d axes, wanted 1 or 2", w->name, (int)rank);
    w->rank = rank;
    w->n_rows = rank == 2 ? shape[0] : 1;
    w->n_cols = shape[rank - 1];
    return POME_OK;
}

pome_status pome_weight_from_safetensor(pome_weight *out, const pome_safetensor *t, pome_error *err)
{
    pome_weight w = {.name = t->name, .data = t->data.ptr, .dtype = t->dtype};
    if (!pome_dtype_is_float(t->dtype))
        return pome_fail(err, POME_ERR_UNSUPPORTED,
                         "tensor \"%.200s\" holds %s: a checkpoint that was quantized with another tool cannot be "
                         "converted, use the original one",
                         t->name, t->type_name);
    POME_TRY(set_shape(&w, t->rank, t->shape, err));
    w.row_bytes = (size_t)w.n_cols * (pome_dtype_bits(t->dtype) / 8);
    *out = w;
    return POME_OK;
}

static bool has_blocks(const pome_weight *w, const pome_safetensor *s, int64_t rows, int64_t cols)
{
    return rows > 0 && cols > 0 && s->rank == 2 && s->shape[0] == (w->n_rows + rows - 1) / rows &&
           s->shape[1] == (w->n_cols + cols - 1) / cols;
}

pome_status pome_weight_set_scales(pome_weight *w, const pome_safetensor *s, const int64_t block[2], pome_error *err)
{
    int64_t count = 1;
    pome_weight_scales scales = {.data = s->data.ptr, .dtype = s->dtype, .block_rows = w->n_rows, .block_cols = w->n_cols,
                                 .n_cols = 1};
    for (int32_t i = 0; i < s->rank; i++)
        count *= s->shape[i];
    if (s->dtype != POME_DTYPE_F32 && s->dtype != POME_DTYPE_BF16 && s->dtype != POME_DTYPE_F16)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "tensor \"%.200s\": scales of %s cannot be read", s->name, s->type_name);
    if (count == w->n_rows && count > 1 && (s->rank == 1 || s->shape[0] == count)) {
        scales.block_rows = 1;
    } else if (has_blocks(w, s, block[0], block[1]) && count > 0) {
        scales.block_rows = block[0];
        scales.block_cols = block[1];
        scales.n_cols = s->shape[1];
    } else if (count != 1) {
        return pome_fail(err, POME_ERR_FORMAT, "tensor \"%.200s\": %lld scales fit neither rows nor blocks of %lld x %lld of a "
                         "matrix [%lld, %lld]", s->name, (long long)count, (long long)block[0], (long long)block[1],
                         (long long)w->n_rows, (long long)w->n_cols);
    }
    w->scales = scales;
    return POME_OK;
}

pome_status pome_weight_from_gguf(pome_weight *out, const pome_gguf_tensor *t, const char *name, pome_bytes file,
                                  pome_error *err)
{
    pome_weight w = {.name = name};
    const pome_gguf_encoding *e = NULL;
    pome_bytes data = {0};
    POME_TRY(pome_gguf_tensor_data(t, file, &e, &data, err));
    const int64_t shape[2] = {(int64_t)t->dims[1], (int64_t)t->dims[0]};
    bool is_matrix = t->n_dims == 2;
    if (t->n_dims < 1 || t->n_dims > 2)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "tensor \"%.200s\" has %u axes, wanted 1 or 2", name,
                         (unsigned)t->n_dims);
    POME_TRY(set_shape(&w, is_matrix ? 2 : 1, is_matrix ? shape : shape + 1, err));
    w.data = data.ptr;
    w.dtype = e->dtype;
    w.encoding = e->split ? e : NULL;
    w.row_bytes = (size_t)w.n_cols / e->block * e->bytes;
    *out = w;
    return POME_OK;
}

static size_t element_bytes(const pome_weight *w)
{
    return pome_dtype_bits(w->dtype) / 8;
}

pome_weight pome_weight_slice(const pome_weight *w, int64_t first, int64_t n)
{
    pome_weight s = *w;
    bool is_vector = w->rank == 1;
    s.data += (size_t)first * (is_vector || w->column_step ? element_bytes(w) : w->row_bytes);
    if (is_vector) {
        s.n_cols = n;
        s.row_bytes = (size_t)n * element_bytes(w);
    } else {
        s.n_rows = n;
        s.first_row += first;
    }
    return s;
}

pome_weight pome_weight_transpose(const pome_weight *w)
{
    pome_weight t = *w;
    assert(w->rank == 2 && !w->encoding && !w->column_step && !w->interleaved_rows);
    t.n_rows = w->n_cols;
    t.n_cols = w->n_rows;
    t.row_bytes = (size_t)t.n_cols * element_bytes(w);
    t.column_step = w->row_bytes;
    return t;
}

/* Where row (head, half, i) is in the file. */
static int64_t interleaved(const pome_weight *w, int64_t row)
{
    int64_t n = w->interleaved_rows, head = row / n, at = row % n, half = at / (n / 2), i = at % (n / 2);
    return head * n + i * 2 + half;
}

const uint8_t *pome_weight_row(const pome_weight *w, int64_t row)
{
    if (w->interleaved_rows && w->rank == 2)
        row = interleaved(w, row);
    return w->data + (size_t)row * (w->column_step ? element_bytes(w) : w->row_bytes);
}

static uint16_t u16_at(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void decode_floats(pome_dtype dtype, const uint8_t *p, size_t n, float *out)
{
    switch (dtype) {
    case POME_DTYPE_F32: memcpy(out, p, n * sizeof *out); return;
    case POME_DTYPE_F64:
        for (size_t i = 0; i < n; i++) {
            double d;
            memcpy(&d, p + 8 * i, sizeof d);
            out[i] = (float)d;
        }
        return;
    case POME_DTYPE_F16:
        for (size_t i = 0; i < n; i++)
            out[i] = pome_f16_to_f32(u16_at(p + 2 * i));
        return;
    case POME_DTYPE_BF16:
        for (size_t i = 0; i < n; i++)
            out[i] = pome_bf16_to_f32(u16_at(p + 2 * i));
        return;
    case POME_DTYPE_F8E4M3FN:
        for (size_t i = 0; i < n; i++)
            out[i] = pome_f8e4m3fn_to_f32(p[i]);
        return;
    default:
        for (size_t i = 0; i < n; i++)
            out[i] = pome_f8e5m2_to_f32(p[i]);
    }
}

/* A row of a matrix that is stored by columns. */
static void decode_scattered(const pome_weight *w, const uint8_t *p, float *out)
{
    enum { RUN = 64 };
    uint8_t run[RUN * 8];
    size_t size = element_bytes(w), n = (size_t)w->n_cols;
    for (size_t first = 0; first < n; first += RUN) {
        size_t count = n - first < RUN ? n - first : RUN;
        for (size_t i = 0; i < count; i++)
            memcpy(run + i * size, p + (first + i) * w->column_step, size);
        decode_floats(w->dtype, run, count, out + first);
    }
}

static void apply_scales(const pome_weight *w, int64_t row, float *out)
{
    const pome_weight_scales *s = &w->scales;
    size_t element = pome_dtype_bits(s->dtype) / 8, at = (size_t)((w->first_row + row) / s->block_rows * s->n_cols);
    for (int64_t col = 0; col < w->n_cols; at++) {
        int64_t end = w->n_cols - col < s->block_cols ? w->n_cols : col + s->block_cols;
        float scale;
        decode_floats(s->dtype, s->data + at * element, 1, &scale);
        for (; col < end; col++)
            out[col] *= scale;
    }
}

void pome_weight_decode(const pome_weight *w, int64_t row, float *out)
{
    const uint8_t *p = pome_weight_row(w, row);
    size_t n = (size_t)w->n_cols;
    if (w->encoding)
        pome_gguf_row_decode(w->encoding, p, n, out);
    else if (w->column_step)
        decode_scattered(w, p, out);
    else if (w->interleaved_rows && w->rank == 1)
        for (size_t i = 0; i < n; i++)
            decode_floats(w->dtype, p + (size_t)interleaved(w, (int64_t)i) * element_bytes(w), 1, out + i);
    else
        decode_floats(w->dtype, p, n, out);
    if (w->scales.data)
        apply_scales(w, row, out);
    for (size_t i = 0; w->plus != 0 && i < n; i++)
        out[i] += w->plus;
}
