/* Quantized GGUF rows as a package holds them: codes and, per group, a scale and (for types with a minimum) an offset, all
 * halves, decoded as half(scale * half(code - offset)). Types whose scales are halves and that have no minimum (Q4_0,
 * Q5_0, Q8_0) keep codes and scales as they are. Of the others the scale, or the offset -minimum / scale, is no half in
 * general, and the element itself is not: half an ulp of an element 20 steps from zero is 0.01 of a step. */
#ifndef POME_CONVERT_KEPT_H
#define POME_CONVERT_KEPT_H

#include "formats/gguf_blocks.h"

/* Largest differences from the row's elements. A step is the scale of an element's group. */
typedef struct pome_encode_error {
    double steps, absolute;
    double beyond; /* as steps, in groups where it is more than rounding their elements to halves makes */
} pome_encode_error;

/* I4, U4, I8 or U8. */
pome_dtype pome_kept_code(const pome_gguf_encoding *e);

/* One row of n elements. Groups get the nearest scale and offset; where that is more than 0.01 of a step off, and more than
 * rounding alone, the best of their neighbours, of multiples of the codes with as many times smaller a scale, and of new
 * codes. A scale of 0 with a minimum becomes scale minimum, codes 1, offset 0. offsets is written for types with a minimum.
 * Returns how many elements are beyond the range of float16 (they become its largest) or no numbers (0). */
size_t pome_encode_kept(int8_t *codes, uint16_t *scales, uint16_t *offsets, const pome_gguf_encoding *e,
                        const uint8_t *row, size_t n, pome_encode_error *worst);

#endif
