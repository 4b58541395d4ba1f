/* Compressed constants: what constexpr_* operators describe, decoded on demand and never expanded whole.
 * Values are those of coremltools' decompression: arithmetic in the scale's dtype, step by step, and the result
 * rounded to its declared type (mil-ops section 5). */
#ifndef POME_OPS_ENCODED_H
#define POME_OPS_ENCODED_H

#include "base/arena.h"
#include "base/error.h"
#include "mil/program.h"

typedef struct pome_encoded pome_encoded;

/* Describes output `output` of a constexpr operator, all of whose inputs are constants (dense or encoded).
 * Checks sizes, shapes, index ranges that can be checked cheaply, mask population. Lives in the arena; refers to
 * the constants' memory. */
pome_status pome_encoded_create(const pome_encoded **out, const pome_op *op, uint32_t output, pome_arena *arena,
                                pome_error *err);
int32_t pome_encoded_rank(const pome_encoded *e);
const int64_t *pome_encoded_shape(const pome_encoded *e);
pome_dtype pome_encoded_dtype(const pome_encoded *e); /* declared type of the result */
/* Decodes elements [first, first + count) of the flattened result to fp32 (integers exactly). Thread-safe. */
void pome_encoded_decode(const pome_encoded *e, size_t first, size_t count, float *dst);
/* The same to the result's own dtype, for constants that are not floats. Sub-byte types: a bit stream that begins
 * with element `first`. */
void pome_encoded_decode_raw(const pome_encoded *e, size_t first, size_t count, void *dst);

/* The plainest forms, which kernels take as they lie: element i is half(scale_f16[i / block] * code[i]), or with an
 * offset half(scale_f16[i / block] * half(code[i] - offset_f16[i / block])). */
typedef struct pome_encoded_blocks {
    pome_dtype code; /* I4 or I8; U4 with an offset */
    const void *codes;
    const uint16_t *scale_f16, *offset_f16; /* offset NULL: none */
    size_t block;
} pome_encoded_blocks;
bool pome_encoded_as_blocks(const pome_encoded *e, pome_encoded_blocks *out); /* false: of another form */

/* The forms that fast mode takes, rounding of the single steps not considered: element i is
 * scale_f16[i / block] * (code[i] - offset_f16[i / block]), or for a palette table_f16[i / block][code[i]]. */
typedef struct pome_encoded_codes {
    pome_dtype code; /* I4, U4, I8, U8; palettes: U1 to U4, U6, U8 */
    const void *codes;
    const uint16_t *scale_f16, *offset_f16; /* offset NULL: none */
    const uint16_t *table_f16;              /* NULL: no palette */
    size_t block;
} pome_encoded_codes;
bool pome_encoded_as_codes(const pome_encoded *e, pome_encoded_codes *out); /* false: of another form */

/* Sparse fp16 values as they lie, from element `first` (a multiple of 8) on. False: of another form. */
bool pome_encoded_sparse_at(const pome_encoded *e, size_t first, const uint8_t **bits, const uint16_t **values);

#endif
