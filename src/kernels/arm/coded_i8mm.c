/* Products of coded weights with int8 activations with the matrix instructions of ARMv8.6: two rows of weights times
 * two rows of activations, eight elements at a time. */
#include "kernels/arm/coded_neon.h"

ALWAYS_INLINE int32x4_t dot16(int32x4_t acc, int8x16_t w, int8x16_t x)
{
    return vdotq_s32(acc, w, x);
}

/* [4 pairs of rows][32 / 8][2][8] */
ALWAYS_INLINE void put_eights(int8_t *block, size_t row, size_t half, int8x16_t codes)
{
    int8_t *at = block + row / 2 * 64 + half * 32 + row % 2 * 8;
    vst1_s8(at, vget_low_s8(codes));
    vst1_s8(at + 16, vget_high_s8(codes));
}

/* Eight rows of weights and two of activations: sum[pair] = [w0 x0, w0 x1, w1 x0, w1 x1]. */
ALWAYS_INLINE void multiply_pairs(int32x4_t sum[4], const int8_t *w, const int8_t *x0, const int8_t *x1)
{
    for (size_t c = 0; c < 4; c++) {
        int8x16_t xv = vcombine_s8(vld1_s8(x0 + 8 * c), vld1_s8(x1 + 8 * c));
        for (size_t pair = 0; pair < 4; pair++)
            sum[pair] = vmmlaq_s32(sum[pair], vld1q_s8(w + pair * 64 + c * 16), xv);
    }
}

/* n_x (1, 2 or 4) rows of activations with a tile; n rows of weights are wanted. */
ALWAYS_INLINE void multiply_eights(float *y, size_t ldy, const void *q8, size_t k, size_t i, const tile *t, size_t first,
                                   size_t n_blocks, size_t n, size_t n_x, pome_codes codes)
{
    float32x4_t acc[4][2];
    q8_view x[4];
    for (size_t r = 0; r < n_x; r++) {
        x[r] = q8_row(q8, k, i + r);
        load_sums(acc[r], y + r * ldy, n, first == 0);
    }
    for (size_t b = 0; b < n_blocks; b++)
        for (size_t r = 0; r < n_x; r += 2) {
            size_t next = r + 1 < n_x ? r + 1 : r, at = (first + b) * Q8_BLOCK;
            int32x4_t sum[4], row[2];
            for (size_t pair = 0; pair < 4; pair++)
                sum[pair] = vdupq_n_s32(0);
            multiply_pairs(sum, t->codes[b], x[r].codes + at, x[next].codes + at);
            if (pome_codes_are_palette(codes)) {
                for (size_t pair = 0; pair < 4; pair++)
                    sum[pair] = vshlq_n_s32(sum[pair], 8);
                multiply_pairs(sum, t->low[b], x[r].codes + at, x[next].codes + at);
            }
            row[0] = vuzp1q_s32(sum[0], sum[1]);
            row[1] = vuzp1q_s32(sum[2], sum[3]);
            scale_block(acc[r], row, t, b, x[r].sum[first + b], x[r].scale[first + b], codes);
            if (next == r)
                continue;
            row[0] = vuzp2q_s32(sum[0], sum[1]);
            row[1] = vuzp2q_s32(sum[2], sum[3]);
            scale_block(acc[next], row, t, b, x[next].sum[first + b], x[next].scale[first + b], codes);
        }
    for (size_t r = 0; r < n_x; r++)
        store_rows(y + r * ldy, acc[r], n);
}

CODED_LEVEL(pome_kernels_fill_coded_i8mm, put_eights, multiply_eights)
