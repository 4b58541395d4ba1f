/* From numbers to what a package holds: halves, or integer codes with a scale per block. Blocks run along the last
 * axis. The results are those of coremltools' symmetric linear quantization, whose arithmetic is that of float16:
 *
 *     scale = half(2 * max|w|) / (2 * top), code = round_half_even(half(w / scale)) within [-top, top], top 7 or 127
 *
 * Where 2 * max|w| is beyond float16's range, scale = half(max|w| / top). Numbers that are not finite do not take part:
 * infinities become the largest half, NaN 0. A block of zeros has scale 1; one that is too small for any scale has the
 * smallest half's, which makes its codes exact. */
#ifndef POME_CONVERT_QUANTIZER_H
#define POME_CONVERT_QUANTIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Returns how many elements were beyond the range of float16 (or no numbers). */
size_t pome_encode_halves(uint16_t *out, const float *w, size_t n);
/* n / block scales and n codes; `block` divides n. top: 7 or 127. The same count. */
size_t pome_encode_symmetric(int8_t *codes, uint16_t *scales, const float *w, size_t n, size_t block, int top);
/* The same for coremltools' asymmetric rule (mode "linear", unsigned codes), top 15 or 255: lo = min(0, min w), hi = max(0,
 * max w), range = half(hi - lo), scale = half(range / top), offset = round(half(half(top * -lo) / range)),
 * code = round_half_even(half(w / scale)) + offset, both within [0, top]. Where range or top * -lo is beyond float16's range,
 * the same without those roundings. codes and offsets are unsigned bytes. */
size_t pome_encode_asymmetric(uint8_t *codes, uint16_t *scales, uint8_t *offsets, const float *w, size_t n, size_t block,
                              int top);
/* With `search` the scale of each block is that of least squared error among 0.6 .. 1 of the rule's. */
size_t pome_encode_search(int8_t *codes, uint16_t *scales, const float *w, size_t n, size_t block, int top);

/* The lowest `bits` (1 to 8) of each code, as weight files hold them: one stream, least significant bit first; the last
 * byte's unused bits are 0. Writes (n * bits + 7) / 8 bytes. */
void pome_encode_bits(uint8_t *out, const uint8_t *codes, size_t n, uint32_t bits);

#endif
