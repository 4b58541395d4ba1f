#include "llm/row_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/f16.h"

static size_t element_bytes(pome_row_kind kind)
{
    return kind == POME_ROWS_I8 ? 1 : kind == POME_ROWS_F16 ? 2 : 4;
}

/* Whole rows behind `offset`. */
static pome_status count_rows(pome_row_table *t, const char *path, pome_error *err)
{
    size_t len = pome_mapping_bytes(t->data).len - t->offset, row_bytes = (size_t)t->dim * element_bytes(t->kind);
    t->n_rows = (int64_t)(len / row_bytes);
    if (t->n_rows > 0 && len % row_bytes == 0)
        return POME_OK;
    return pome_fail(err, POME_ERR_FORMAT, "%s: %zu bytes are no whole rows of %zu", path, len, row_bytes);
}

static pome_status open_rows(pome_row_table *t, const char *path, pome_error *err)
{
    POME_TRY(pome_mapping_open(&t->data, path, err));
    return count_rows(t, path, err);
}

static pome_status finish(pome_row_table *out, pome_row_table *t, pome_status status)
{
    if (status == POME_OK)
        *out = *t;
    else
        pome_row_table_close(t);
    return status;
}

pome_status pome_row_table_open_f16(pome_row_table *out, const char *path, int64_t dim, pome_error *err)
{
    pome_row_table t = {.kind = POME_ROWS_F16, .dim = dim, .factor = 1.0f};
    return finish(out, &t, open_rows(&t, path, err));
}

pome_status pome_row_table_open_i8(pome_row_table *out, const char *path, const char *scales, int64_t dim, float factor,
                                   pome_error *err)
{
    pome_row_table t = {.kind = POME_ROWS_I8, .dim = dim, .factor = factor};
    pome_status status = open_rows(&t, path, err);
    if (status == POME_OK)
        status = pome_mapping_open(&t.scales, scales, err);
    if (status == POME_OK && pome_mapping_bytes(t.scales).len != (size_t)t.n_rows * 2)
        status = pome_fail(err, POME_ERR_FORMAT, "%s: %zu bytes, %lld rows need %lld", scales,
                           pome_mapping_bytes(t.scales).len, (long long)t.n_rows, (long long)t.n_rows * 2);
    return finish(out, &t, status);
}

/* NumPy's header: magic, version, length of a text with descr, fortran_order and shape. */
static pome_status read_npy_header(pome_row_table *t, const char *path, pome_error *err)
{
    char text[1024] = "";
    pome_bytes file = pome_mapping_bytes(t->data);
    const uint8_t *b = file.ptr;
    size_t n_head = file.len >= 12 && memcmp(b, "\x93NUMPY", 6) == 0 ? (b[6] == 1 ? 10 : 12) : 0;
    size_t n_text = n_head ? (size_t)b[8] | (size_t)b[9] << 8 : 0;
    if (n_head == 12)
        n_text |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
    bool is_whole = n_head > 0 && n_text < sizeof text && n_text <= file.len - n_head;
    if (is_whole)
        memcpy(text, b + n_head, n_text);
    bool is_half = strstr(text, "'<f2'") != NULL;
    if (!is_whole || (!is_half && !strstr(text, "'<f4'")) || !strstr(text, "'fortran_order': False"))
        return pome_fail(err, POME_ERR_FORMAT, "%s: no .npy array of little-endian fp16 or fp32 in C order", path);
    t->kind = is_half ? POME_ROWS_F16 : POME_ROWS_F32;
    t->offset = n_head + n_text;
    const char *shape = strstr(text, "'shape': (");
    char *end = NULL;
    long long rows = shape ? strtoll(shape + 10, &end, 10) : 0, dim = end && *end == ',' ? strtoll(end + 1, &end, 10) : 0;
    if (rows < 1 || dim != t->dim || *end != ')')
        return pome_fail(err, POME_ERR_FORMAT, "%s: the shape is not [positions, %lld]", path, (long long)t->dim);
    return POME_OK;
}

pome_status pome_row_table_open_npy(pome_row_table *out, const char *path, int64_t dim, pome_error *err)
{
    pome_row_table t = {.dim = dim, .factor = 1.0f};
    POME_TRY(pome_mapping_open(&t.data, path, err));
    pome_status status = read_npy_header(&t, path, err);
    if (status == POME_OK)
        status = count_rows(&t, path, err);
    return finish(out, &t, status);
}

void pome_row_table_close(pome_row_table *t)
{
    pome_mapping_release(&t->data);
    pome_mapping_release(&t->scales);
    *t = (pome_row_table){0};
}

static void read_rotary(const pome_row_table *t, int64_t row, float *to)
{
    int64_t half = t->dim / 2;
    for (int64_t i = 0; i < t->dim; i++) {
        double angle = (double)row / pow(t->rotary_base, 2.0 * (double)(i % half) / (double)t->dim);
        to[i] = (float)(t->is_sine ? sin(angle) : cos(angle));
    }
}

void pome_row_table_read(const pome_row_table *t, int64_t row, float *to)
{
    if (t->rotary_base > 0) {
        read_rotary(t, row, to);
        return;
    }
    if (row < 0 || row >= t->n_rows) {
        memset(to, 0, (size_t)t->dim * sizeof *to);
        return;
    }
    const uint8_t *p = pome_mapping_bytes(t->data).ptr + t->offset +
                       (size_t)row * (size_t)t->dim * element_bytes(t->kind);
    float factor = t->factor;
    if (t->kind == POME_ROWS_I8) {
        uint16_t scale;
        memcpy(&scale, pome_mapping_bytes(t->scales).ptr + (size_t)row * 2, 2);
        factor *= pome_f16_to_f32(scale) / 127.0f;
    }
    for (int64_t i = 0; i < t->dim; i++) {
        uint16_t half;
        float value;
        if (t->kind == POME_ROWS_F16) {
            memcpy(&half, p + (size_t)i * 2, 2);
            value = pome_f16_to_f32(half);
        } else if (t->kind == POME_ROWS_F32) {
            memcpy(&value, p + (size_t)i * 4, 4);
        } else {
            value = (float)((const int8_t *)p)[i];
        }
        to[i] = value * factor;
    }
}
