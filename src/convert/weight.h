/* A tensor of a checkpoint, read by rows. */
#ifndef POME_CONVERT_WEIGHT_H
#define POME_CONVERT_WEIGHT_H

#include "formats/gguf_blocks.h"
#include "formats/safetensors.h"

/* Element (row, column) of a matrix times scale [row / block_rows][column / block_cols]. */
typedef struct pome_weight_scales {
    const uint8_t *data;  /* NULL: none */
    pome_dtype dtype;
    int64_t block_rows, block_cols, n_cols; /* n_cols: of the scales */
} pome_weight_scales;

typedef struct pome_weight {
    const char *name;  /* in the source's spelling */
    int64_t n_rows, n_cols; /* a vector is one row */
    int32_t rank;      /* 1 or 2 */
    int32_t unit_axes; /* axes of 1 that follow in the package: [out, in, 1, 1] for a convolution */
    const uint8_t *data;
    size_t row_bytes;
    size_t column_step; /* bytes from one element of a row to the next, of a matrix stored by columns; 0: by rows */
    pome_dtype dtype;  /* F32, F64, F16, BF16, F8...; NONE: `encoding` tells */
    const pome_gguf_encoding *encoding; /* quantized GGUF types */
    /* GGUF keeps the rows of query and key projections in the order of interleaved rotary; here they are given in that
     * of split halves: row (head, half, i) is row (head, i, half) of the file. Likewise the elements of their biases.
     * 0: in order. */
    int64_t interleaved_rows; /* rows per head */
    pome_weight_scales scales;
    int64_t first_row; /* of a slice, in the matrix that the scales belong to */
    float plus;        /* added to every element: norms stored less one */
} pome_weight;

/* Errors: UNSUPPORTED (dtype, rank), naming the tensor. */
pome_status pome_weight_from_safetensor(pome_weight *out, const pome_safetensor *t, pome_error *err);
pome_status pome_weight_from_gguf(pome_weight *out, const pome_gguf_tensor *t, const char *name, pome_bytes file,
                                  pome_error *err);
/* Scales of an 8-bit float matrix: one, one per row, or one per block of block[0] x block[1] elements. Errors: UNSUPPORTED
 * (dtype), FORMAT (a shape that fits none of these). */
pome_status pome_weight_set_scales(pome_weight *w, const pome_safetensor *scales, const int64_t block[2],
                                   pome_error *err);
/* Rows [first, first + n) of a matrix, or elements of a vector of floats, as a tensor of its own. */
pome_weight pome_weight_slice(const pome_weight *w, int64_t first, int64_t n);
/* The transpose of a matrix of floats that is stored by rows. */
pome_weight pome_weight_transpose(const pome_weight *w);

const uint8_t *pome_weight_row(const pome_weight *w, int64_t row);
void pome_weight_decode(const pome_weight *w, int64_t row, float *out /* [n_cols] */);

#endif
