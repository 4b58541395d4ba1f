/* The inside of a compressed constant, shared by encoded.c (checks and builds) and encoded_decode.c. */
#ifndef POME_OPS_ENCODED_NODE_H
#define POME_OPS_ENCODED_NODE_H

#include "kernels/kernels.h"
#include "ops/encoded.h"

/* Elements as a file or another node gives them. */
typedef struct enc_source {
    pome_dtype dtype;
    size_t count;
    const void *data; /* NULL: `encoded` */
    const pome_encoded *encoded;
} enc_source;

/* Which entry of a table belongs to an element: axes of `dim` elements in blocks of `block`, entries row-major.
 * Neighbouring axes that act as one are merged, so the usual forms have rank 1 and entry = position / block. */
typedef struct enc_blocks {
    int32_t rank;
    size_t dim[POME_MAX_RANK], block[POME_MAX_RANK], step[POME_MAX_RANK];
} enc_blocks;

enum { ENC_RANK_BITS = 1024 };

typedef struct enc_mask {
    const uint8_t *bits; /* least significant first */
    size_t n_bits, n_ones;
    const size_t *ones_before; /* [n_bits / ENC_RANK_BITS + 1] set bits before each chunk */
} enc_mask;

typedef enum enc_kind {
    ENC_CAST,         /* source */
    ENC_SHIFT_SCALE,  /* scale * (source - offset) */
    ENC_LUT,          /* lut[group][index][v] */
    ENC_SPARSE,       /* source at the set bits of a mask */
    ENC_MASK,         /* the mask itself */
    ENC_SCALE_VALUES, /* shift and scale of the values at a mask's set bits */
    ENC_LUT_VALUES    /* palette entries of the indices at a mask's set bits */
} enc_kind;

struct pome_encoded {
    enc_kind kind;
    pome_dtype dtype;
    int32_t rank;
    int64_t shape[POME_MAX_RANK];
    size_t count;
    enc_source source; /* data, indices or nonzero values */
    enc_blocks blocks; /* over the shape of data or indices */
    /* shift and scale */
    enc_source scale, offset; /* dense; offset.count 0: none */
    size_t scale_step, offset_step; /* 0: one entry for all */
    bool round_data;          /* data become half first */
    bool round_difference;    /* data - offset is rounded to half */
    /* palettes: table [group][1 << n_bits][vector] */
    enc_source lut;
    uint32_t n_bits;
    size_t vector, vector_dim, vector_inner; /* vector axis: indices along it, elements after it */
    enc_mask mask;       /* of the result */
    enc_mask index_mask; /* palettes over masks: of the indices */
    pome_kernels kernels; /* exact ones only, so the level changes nothing but time */
};

size_t pome_enc_find(const enc_blocks *b, size_t position, size_t *run); /* run: elements that share the entry */
size_t pome_enc_rank(const enc_mask *m, size_t position);  /* set bits before it */
size_t pome_enc_select(const enc_mask *m, size_t rank);    /* position of set bit number `rank` < n_ones */
static inline bool enc_bit(const enc_mask *m, size_t position)
{
    return m->bits[position / 8] >> (position % 8) & 1;
}
/* Elements as fp32. */
void pome_enc_read(const enc_source *s, const pome_kernels *k, size_t first, size_t count, float *dst);

#endif
