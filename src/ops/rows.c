#include "ops/rows.h"

#include <string.h>

void pome_rows_init(pome_rows *w, pome_dtype dtype, const void *data, const pome_encoded *encoded, size_t k)
{
    *w = (pome_rows){.dtype = encoded ? POME_DTYPE_NONE : dtype, .data = data, .stride = k, .encoded = encoded, .k = k};
    bool fused = encoded && k % 32 == 0 && pome_encoded_as_blocks(encoded, &w->blocks) && w->blocks.block > 0 &&
                 w->blocks.block % 32 == 0 && k % w->blocks.block == 0;
    if (!fused)
        w->blocks.block = 0;
}

/* One row of x: rows are decoded in registers where a kernel can. False if none can. */
static bool times_one(const pome_rows *w, const pome_kernels *kernels, size_t first, size_t n, const float *x, float *y)
{
    size_t k = w->k, block = w->blocks.block;
    if (w->dtype == POME_DTYPE_F16) {
        kernels->gemv_f16(y, x, (const uint16_t *)w->data + first * w->stride, w->stride, n, k);
        return true;
    }
    const uint8_t *bits;
    const uint16_t *values;
    if (w->encoded && k % 8 == 0 && pome_encoded_sparse_at(w->encoded, w->first + first * k, &bits, &values)) {
        kernels->gemv_sparse_f16(y, x, bits, values, n, k);
        return true;
    }
    if (!block)
        return false;
    const uint16_t *scale = w->blocks.scale_f16 + (w->first + first * k) / block;
    if (w->blocks.code == POME_DTYPE_U4)
        kernels->gemv_uint4_shift_block(y, x, (const uint8_t *)w->blocks.codes + (w->first + first * k) / 2, scale,
                                        w->blocks.offset_f16 + (w->first + first * k) / block, n, k, block);
    else if (w->blocks.code == POME_DTYPE_I4)
        kernels->gemv_int4_block(y, x, (const uint8_t *)w->blocks.codes + (w->first + first * k) / 2, scale, n, k,
                                 block);
    else
        kernels->gemv_int8_block(y, x, (const int8_t *)w->blocks.codes + w->first + first * k, scale, n, k, block);
    return true;
}

const float *pome_rows_piece(const pome_rows *w, const pome_kernels *kernels, size_t first, size_t n, size_t p,
                             size_t len, float *scratch, size_t *ld)
{
    if (w->dtype == POME_DTYPE_F32) {
        *ld = w->stride;
        return (const float *)w->data + first * w->stride + p;
    }
    *ld = len;
    if (w->dtype == POME_DTYPE_F16) {
        for (size_t j = 0; j < n; j++)
            kernels->f16_to_f32(scratch + j * len, (const uint16_t *)w->data + (first + j) * w->stride + p, len);
    } else if (len == w->k) { /* rows follow each other */
        pome_encoded_decode(w->encoded, w->first + first * w->k, n * len, scratch);
    } else {
        for (size_t j = 0; j < n; j++)
            pome_encoded_decode(w->encoded, w->first + (first + j) * w->k + p, len, scratch + j * len);
    }
    return scratch;
}

static void times(const pome_rows *w, const pome_kernels *kernels, size_t first, size_t n, const float *x, size_t ldx,
                  size_t m, float *c, size_t ldc, float *scratch, bool transposed)
{
    if (w->k == 0)
        kernels->gemm_nt_f32(c, ldc, x, ldx, x, ldx, transposed ? n : m, transposed ? m : n, 0, false);
    for (size_t j = 0; j < n; j += POME_ROWS_TILE) {
        size_t rows = n - j < POME_ROWS_TILE ? n - j : POME_ROWS_TILE, ld;
        for (size_t p = 0; p < w->k; p += POME_KERNEL_KC) {
            size_t len = w->k - p < POME_KERNEL_KC ? w->k - p : POME_KERNEL_KC;
            const float *b = pome_rows_piece(w, kernels, first + j, rows, p, len, scratch, &ld);
            if (transposed)
                kernels->gemm_nt_f32(c + j * ldc, ldc, b, ld, x + p, ldx, rows, m, len, p > 0);
            else
                kernels->gemm_nt_f32(c + j, ldc, x + p, ldx, b, ld, m, rows, len, p > 0);
        }
    }
}

void pome_rows_times(const pome_rows *w, const pome_kernels *kernels, size_t first, size_t n, const float *x, size_t ldx,
                     size_t m, float *c, size_t ldc, float *scratch)
{
    if (m != 1 || !times_one(w, kernels, first, n, x, c))
        times(w, kernels, first, n, x, ldx, m, c, ldc, scratch, false);
}

void pome_rows_times_t(const pome_rows *w, const pome_kernels *kernels, size_t first, size_t n, const float *x,
                       size_t ldx, size_t m, float *c, size_t ldc, float *scratch)
{
    if (m != 1 || ldc != 1 || !times_one(w, kernels, first, n, x, c))
        times(w, kernels, first, n, x, ldx, m, c, ldc, scratch, true);
}

void pome_vector_piece(const pome_tensor *t, const pome_encoded *encoded, const pome_kernels *kernels, size_t first,
                       size_t n, float *dst)
{
    if (encoded)
        pome_encoded_decode(encoded, first, n, dst);
    else if (t->dtype == POME_DTYPE_F16)
        kernels->f16_to_f32(dst, (const uint16_t *)t->data + first, n);
    else
        memcpy(dst, (const float *)t->data + first, n * sizeof *dst);
}
