/* Products of coded weights with int8 activations for AArch64. The including file defines how bytes are multiplied:
 *
 *     int32x4_t dot16(int32x4_t acc, int8x16_t w, int8x16_t x)   the sum of acc's lanes grows by that of 16 products
 *     DOT4(acc, w, x, lane)   each lane of acc grows by its four bytes of w times x's four bytes number `lane`
 *
 * All codes are made signed: uint8 by flipping the sign bit, which takes away 128 and is given back in the integer sum;
 * uint4 fits as it is. A palette's entries are 16-bit integers and go through as a high and a low byte, looked up by table
 * instructions, which take 64 entries at a time.
 *
 * A row of activations: 32 codes per block (before nibbles: the 16 even elements, then the 16 odd ones, as they lie
 * in the low and high halves of the weights' bytes; else in order), then the blocks' scales, then their sums of codes
 * as float, then the element that has no code.
 *
 * Eight rows of weights go together, one to a lane of two vectors, so that the blocks' sums are added in the order that
 * kernels.h prescribes. One row of activations: blocks are multiplied as they lie and sums folded to lanes. More:
 * blocks of eight rows are first laid out for the product, a few blocks at a time. */
#ifndef POME_KERNELS_ARM_CODED_NEON_H
#define POME_KERNELS_ARM_CODED_NEON_H

#include <arm_neon.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/f16.h"
#include "kernels/kernels.h"
#include "kernels/single.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    Q8_BLOCK = POME_Q8_BLOCK,
    ROWS = 8,         /* of weights together */
    TILE_BLOCKS = 32, /* 8 KiB of codes */
    ENTRIES = 8       /* scales of a row that are read together */
};

ALWAYS_INLINE int32x4_t dot16(int32x4_t acc, int8x16_t w, int8x16_t x);

ALWAYS_INLINE bool has_nibbles(pome_codes codes)
{
    return codes == POME_CODES_I4 || codes == POME_CODES_U4 || codes == POME_CODES_LUT4;
}

/* ---- activations ---- */

static inline size_t q8_row_bytes(size_t k)
{
    return (k + k / Q8_BLOCK * 2 * sizeof(float) + sizeof(pome_single) + 63) / 64 * 64;
}
static inline size_t q8_size(size_t m, size_t k)
{
    return m * q8_row_bytes(k);
}

typedef struct q8_view {
    const int8_t *codes;
    const float *scale, *sum;
    const pome_single *single;
} q8_view;

static inline q8_view q8_row(const void *q8, size_t k, size_t i)
{
    const char *row = (const char *)q8 + i * q8_row_bytes(k);
    const float *scale = (const float *)(const void *)(row + k);
    const float *sum = scale + k / Q8_BLOCK;
    return (q8_view){(const int8_t *)row, scale, sum, (const pome_single *)(const void *)(sum + k / Q8_BLOCK)};
}

/* The largest magnitude of 32; NaN gives NaN. */
ALWAYS_INLINE float block_max(const float *x)
{
    uint32x4_t largest = vdupq_n_u32(0); /* ordered as floats are; NaN is above infinity */
    for (size_t i = 0; i < Q8_BLOCK; i += 4)
        largest = vmaxq_u32(largest, vandq_u32(vreinterpretq_u32_f32(vld1q_f32(x + i)), vdupq_n_u32(0x7fffffff)));
    return pome_f32_from_bits(vmaxvq_u32(largest));
}

ALWAYS_INLINE void quantize_block(int8_t *codes, const float *x, float *scale, float *sum, bool split)
{
    float max = block_max(x);
    bool finite = max < INFINITY, any = finite && max >= 1e-30f;
    float factor = any ? 127.0f / max : 0.0f;
    int16x8_t half[4];
    for (size_t i = 0; i < 4; i++) {
        int32x4_t a = any ? vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 8 * i), factor)) : vdupq_n_s32(0);
        int32x4_t b = any ? vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 8 * i + 4), factor)) : vdupq_n_s32(0);
        half[i] = vcombine_s16(vmovn_s32(a), vmovn_s32(b));
    }
    int8x16_t first = vcombine_s8(vmovn_s16(half[0]), vmovn_s16(half[1]));
    int8x16_t second = vcombine_s8(vmovn_s16(half[2]), vmovn_s16(half[3]));
    vst1q_s8(codes, split ? vuzp1q_s8(first, second) : first);
    vst1q_s8(codes + 16, split ? vuzp2q_s8(first, second) : second);
    *scale = !finite ? NAN : any ? max / 127.0f : 0.0f;
    *sum = (float)(vaddlvq_s8(first) + vaddlvq_s8(second));
}

ALWAYS_INLINE void q8_set(void *q8, size_t k, size_t first, size_t n, const float *x, size_t ldx, bool split)
{
    for (size_t i = 0; i < n; i++) {
        q8_view row = q8_row(q8, k, first + i);
        int8_t *codes = (int8_t *)(uintptr_t)row.codes;
        float *scale = (float *)(uintptr_t)row.scale, *sum = (float *)(uintptr_t)row.sum, copy[Q8_BLOCK];
        pome_single single = pome_single_find(x + i * ldx, k, block_max);
        *(pome_single *)(uintptr_t)row.single = single;
        for (size_t b = 0; b < k / Q8_BLOCK; b++)
            quantize_block(codes + b * Q8_BLOCK, pome_single_without(&single, x + i * ldx, b, copy), scale + b, sum + b, split);
    }
}

static inline void q8_set_split(void *q8, size_t m, size_t k, size_t first, size_t n, const float *x, size_t ldx)
{
    (void)m;
    q8_set(q8, k, first, n, x, ldx, true);
}
static inline void q8_set_plain(void *q8, size_t m, size_t k, size_t first, size_t n, const float *x, size_t ldx)
{
    (void)m;
    q8_set(q8, k, first, n, x, ldx, false);
}

/* ---- weights ---- */

typedef struct product {
    const pome_coded_rows *w;
    size_t row_bytes, n_blocks, per_row /* entries */, blocks_per_entry;
    float unit;                 /* palettes: what an integer of the table stands for */
    int8_t high[256], low[256]; /* palettes: bytes of the table by code; low ones less 128 */
} product;

/* n entries in 16 bits of the largest. */
static inline void set_table(product *p, size_t n)
{
    float max = 0;
    for (size_t i = 0; i < n; i++) {
        float v = fabsf(pome_f16_to_f32(p->w->table_f16[i]));
        max = !(v <= max) && !(max != max) ? v : max; /* NaN stays */
    }
    for (size_t i = 0; i < n; i++) {
        float v = pome_f16_to_f32(p->w->table_f16[i]);
        int32_t t = max > 0 && max < INFINITY ? (int32_t)rintf(v * (32767.0f / max)) : 0;
        p->high[i] = (int8_t)(t >> 8);
        p->low[i] = (int8_t)((t & 255) - 128);
    }
    p->unit = max < INFINITY ? max / 32767.0f : NAN;
}

ALWAYS_INLINE void set_product(product *p, const pome_coded_rows *w, pome_codes codes)
{
    p->w = w;
    p->row_bytes = pome_codes_bytes(codes, w->k);
    p->n_blocks = w->k / Q8_BLOCK;
    p->per_row = w->k / w->block;
    p->blocks_per_entry = w->block / Q8_BLOCK;
    p->unit = 0;
    if (pome_codes_are_palette(codes))
        set_table(p, (size_t)1 << pome_codes_bits(codes));
}

/* Eight rows from j on; past the last of n the last one again. */
typedef struct row_group {
    const uint8_t *codes[ROWS];
    size_t index[ROWS];
} row_group;

static inline row_group rows_from(const product *p, size_t j, size_t n)
{
    row_group g;
    for (size_t r = 0; r < ROWS; r++) {
        g.index[r] = j + r < n ? j + r : n - 1;
        g.codes[r] = (const uint8_t *)p->w->codes + g.index[r] * p->row_bytes;
    }
    return g;
}

/* Scales or offsets of eight rows, one row to a lane, as halves. */
typedef struct entries {
    uint16_t half[ENTRIES][ROWS]; /* [entry - first][row] */
    size_t first;
} entries;

static inline uint16x8_t pairs32(uint16x8_t a, uint16x8_t b, bool second)
{
    uint32x4_t x = vreinterpretq_u32_u16(a), y = vreinterpretq_u32_u16(b);
    return vreinterpretq_u16_u32(second ? vtrn2q_u32(x, y) : vtrn1q_u32(x, y));
}
static inline uint16x8_t pairs64(uint16x8_t a, uint16x8_t b, bool second)
{
    uint64x2_t x = vreinterpretq_u64_u16(a), y = vreinterpretq_u64_u16(b);
    return vreinterpretq_u16_u64(second ? vtrn2q_u64(x, y) : vtrn1q_u64(x, y));
}

/* Up to eight entries, `entry` among them and as many after it as there are. */
static inline void load_entries(entries *e, const uint16_t *table, const product *p, const row_group *g, size_t entry)
{
    if (p->per_row < ENTRIES) {
        e->first = 0;
        for (size_t i = 0; i < p->per_row; i++)
            for (size_t r = 0; r < ROWS; r++)
                e->half[i][r] = table[g->index[r] * p->per_row + i];
        return;
    }
    uint16x8_t r[ROWS], s[ROWS], t[ROWS];
    e->first = entry + ENTRIES <= p->per_row ? entry : p->per_row - ENTRIES;
    for (size_t i = 0; i < ROWS; i++)
        r[i] = vld1q_u16(table + g->index[i] * p->per_row + e->first);
    for (size_t i = 0; i < ROWS; i += 2) { /* s[i]: even entries of rows i, i + 1; s[i + 1]: odd ones */
        s[i] = vtrn1q_u16(r[i], r[i + 1]);
        s[i + 1] = vtrn2q_u16(r[i], r[i + 1]);
    }
    for (size_t i = 0; i < ROWS; i += 4) /* t[i + c]: entries c and c + 4 of rows i to i + 3 */
        for (size_t c = 0; c < 4; c++)
            t[i + c] = pairs32(s[i + c % 2], s[i + 2 + c % 2], c / 2);
    for (size_t c = 0; c < 4; c++) {
        vst1q_u16(e->half[c], pairs64(t[c], t[4 + c], false));
        vst1q_u16(e->half[c + 4], pairs64(t[c], t[4 + c], true));
    }
}

/* An infinite scale gives NaN, as its products with codes of 0 are. */
static inline float32x4_t entry_at(const entries *e, size_t entry, size_t half)
{
    float32x4_t v = vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(e->half[entry - e->first] + 4 * half)));
    return vaddq_f32(v, vsubq_f32(v, v));
}

/* acc + (sum - offset * sum_x) * (scale * scale_x) */
ALWAYS_INLINE float32x4_t add_block(float32x4_t acc, int32x4_t sum, float32x4_t offset, float sum_x, float32x4_t scale,
                                    float scale_x)
{
    float32x4_t total = vfmsq_n_f32(vcvtq_f32_s32(sum), offset, sum_x);
    return vfmaq_f32(acc, total, vmulq_n_f32(scale, scale_x));
}

ALWAYS_INLINE int8x16_t make_signed(uint8x16_t bytes, pome_codes codes)
{
    return vreinterpretq_s8_u8(codes == POME_CODES_U8 ? veorq_u8(bytes, vdupq_n_u8(128)) : bytes);
}
ALWAYS_INLINE int8x16_t low_nibbles(uint8x16_t bytes, pome_codes codes)
{
    return codes == POME_CODES_I4 ? vshrq_n_s8(vreinterpretq_s8_u8(vshlq_n_u8(bytes, 4)), 4)
                                  : vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(15)));
}
ALWAYS_INLINE int8x16_t high_nibbles(uint8x16_t bytes, pome_codes codes)
{
    return codes == POME_CODES_I4 ? vshrq_n_s8(vreinterpretq_s8_u8(bytes), 4) : vreinterpretq_s8_u8(vshrq_n_u8(bytes, 4));
}
/* 16 codes, four in three bytes, from 12 bytes that begin `skip` after those that are loaded. */
ALWAYS_INLINE int8x16_t unpack_sixes(const uint8_t *bytes, uint8_t skip)
{
    static const uint8_t place[16] = {0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11};
    static const int16_t first_shift[8] = {0, -4, 0, -4, 0, -4, 0, -4}, second_shift[8] = {2, -2, 2, -2, 2, -2, 2, -2};
    uint16x8_t v = vreinterpretq_u16_u8(vqtbl1q_u8(vld1q_u8(bytes), vaddq_u8(vld1q_u8(place), vdupq_n_u8(skip))));
    uint16x8_t first = vandq_u16(vshlq_u16(v, vld1q_s16(first_shift)), vdupq_n_u16(0x3f));
    uint16x8_t second = vandq_u16(vshlq_u16(v, vld1q_s16(second_shift)), vdupq_n_u16(0x3f00));
    return vreinterpretq_s8_u16(vorrq_u16(first, second));
}

/* A block of a row as bytes: what is multiplied, or a palette's codes. */
ALWAYS_INLINE void block_codes(int8x16_t v[2], const uint8_t *bytes, pome_codes codes)
{
    if (has_nibbles(codes)) {
        uint8x16_t b = vld1q_u8(bytes);
        v[0] = low_nibbles(b, codes);
        v[1] = high_nibbles(b, codes);
    } else if (codes == POME_CODES_LUT6) {
        v[0] = unpack_sixes(bytes, 0);
        v[1] = unpack_sixes(bytes + 8, 4);
    } else {
        v[0] = make_signed(vld1q_u8(bytes), codes);
        v[1] = make_signed(vld1q_u8(bytes + 16), codes);
    }
}

ALWAYS_INLINE int8x16_t look_up(const int8_t *table, int8x16_t codes, pome_codes kind)
{
    uint8x16_t index = vreinterpretq_u8_s8(codes);
    if (kind == POME_CODES_LUT4)
        return vqtbl1q_s8(vld1q_s8(table), index);
    int8x16_t v = vqtbl4q_s8(vld1q_s8_x4(table), index); /* 0 where the index is out of range */
    for (size_t first = 64; kind == POME_CODES_LUT8 && first < 256; first += 64)
        v = vqtbx4q_s8(v, vld1q_s8_x4(table + first), vsubq_u8(index, vdupq_n_u8((uint8_t)first)));
    return v;
}

/* What making codes signed took away. */
ALWAYS_INLINE int32x4_t restore_sum(int32x4_t sum, float sum_x, pome_codes codes)
{
    return codes == POME_CODES_U8 || pome_codes_are_palette(codes) ? vaddq_s32(sum, vdupq_n_s32((int32_t)sum_x * 128)) : sum;
}

/* ---- one row of activations ---- */

ALWAYS_INLINE int32x4_t multiply_row(const product *p, const uint8_t *bytes, int8x16_t x0, int8x16_t x1, pome_codes codes)
{
    int32x4_t zero = vdupq_n_s32(0);
    int8x16_t c[2];
    block_codes(c, bytes, codes);
    if (!pome_codes_are_palette(codes))
        return dot16(dot16(zero, c[0], x0), c[1], x1);
    int32x4_t sum = dot16(dot16(zero, look_up(p->high, c[0], codes), x0), look_up(p->high, c[1], codes), x1);
    return dot16(dot16(vshlq_n_s32(sum, 8), look_up(p->low, c[0], codes), x0), look_up(p->low, c[1], codes), x1);
}

ALWAYS_INLINE void eight_rows(float32x4_t acc[2], const product *p, const row_group *g, const q8_view *x, pome_codes codes,
                              bool has_offset)
{
    entries scale = {.first = 0}, offset = {.first = 0};
    size_t loaded = 0, block_bytes = pome_codes_bytes(codes, Q8_BLOCK); /* entries before `loaded` are at hand */
    acc[0] = acc[1] = vdupq_n_f32(0);
    for (size_t b = 0; b < p->n_blocks; b++) {
        size_t entry = b / p->blocks_per_entry;
        int8x16_t x0 = vld1q_s8(x->codes + b * Q8_BLOCK), x1 = vld1q_s8(x->codes + b * Q8_BLOCK + 16);
        if (!pome_codes_are_palette(codes) && entry >= loaded) {
            load_entries(&scale, p->w->scale_f16, p, g, entry);
            if (has_offset)
                load_entries(&offset, p->w->offset_f16, p, g, entry);
            loaded = scale.first + ENTRIES;
        }
        for (size_t h = 0; h < 2; h++) {
            int32x4_t v[4];
            for (size_t r = 0; r < 4; r++)
                v[r] = multiply_row(p, g->codes[4 * h + r] + b * block_bytes, x0, x1, codes);
            int32x4_t sum = vpaddq_s32(vpaddq_s32(v[0], v[1]), vpaddq_s32(v[2], v[3]));
            sum = restore_sum(sum, x->sum[b], codes);
            acc[h] = add_block(acc[h], sum, has_offset ? entry_at(&offset, entry, h) : vdupq_n_f32(0), x->sum[b],
                               pome_codes_are_palette(codes) ? vdupq_n_f32(p->unit) : entry_at(&scale, entry, h), x->scale[b]);
        }
    }
}

static inline void store_rows(float *y, const float32x4_t v[2], size_t n /* left */)
{
    float all[ROWS];
    vst1q_f32(all, v[0]);
    vst1q_f32(all + 4, v[1]);
    memcpy(y, all, (n < ROWS ? n : ROWS) * sizeof *y);
}

/* Elements without codes of m rows with eight rows of weights from j on, or as many as are left of n. */
ALWAYS_INLINE void add_singles(float *y, size_t ldy, const void *q8, size_t m, const product *p, size_t j, size_t n,
                               pome_codes codes)
{
    pome_single_add(y + j, ldy, m, p->w, codes, j, n - j < ROWS ? n - j : ROWS, q8_row(q8, p->w->k, 0).single,
                    q8_row_bytes(p->w->k));
}

ALWAYS_INLINE void one(float *y, const void *q8, const product *p, size_t n, pome_codes codes)
{
    q8_view x = q8_row(q8, p->w->k, 0);
    for (size_t j = 0; j < n; j += ROWS) {
        row_group g = rows_from(p, j, n);
        float32x4_t acc[2];
        if ((codes == POME_CODES_U4 || codes == POME_CODES_U8) && p->w->offset_f16)
            eight_rows(acc, p, &g, &x, codes, true);
        else
            eight_rows(acc, p, &g, &x, codes, false);
        store_rows(y + j, acc, n - j);
        add_singles(y, 0, q8, 1, p, j, n, codes);
    }
}

/* ---- many rows of activations ---- */

typedef struct tile { /* blocks of eight rows of weights, signed codes, in the order that the product wants */
    int8_t codes[TILE_BLOCKS][ROWS * Q8_BLOCK], low[TILE_BLOCKS][ROWS * Q8_BLOCK]; /* low: palettes only */
    float scale[TILE_BLOCKS][ROWS], offset[TILE_BLOCKS][ROWS];
} tile;

/* Where a row's 16 bytes (half 0 or 1 of its 32 codes) go. */
typedef void put_row_fn(int8_t *block, size_t row, size_t half, int8x16_t codes);
typedef void multiply_fn(float *y, size_t ldy, const void *q8, size_t k, size_t i, const tile *t, size_t first,
                         size_t n_blocks, size_t n, size_t n_x, pome_codes codes);

ALWAYS_INLINE void unpack_block(tile *t, size_t at, const product *p, const row_group *g, size_t b, pome_codes codes,
                                put_row_fn *put)
{
    for (size_t r = 0; r < ROWS; r++) {
        int8x16_t c[2];
        block_codes(c, g->codes[r] + b * pome_codes_bytes(codes, Q8_BLOCK), codes);
        for (size_t half = 0; half < 2; half++) {
            if (pome_codes_are_palette(codes)) {
                put(t->low[at], r, half, look_up(p->low, c[half], codes));
                c[half] = look_up(p->high, c[half], codes);
            }
            put(t->codes[at], r, half, c[half]);
        }
    }
}

static inline void spread_entries(float (*dst)[ROWS], const uint16_t *table, const product *p, const row_group *g,
                                  size_t first, size_t n_blocks)
{
    entries e = {.first = 0};
    size_t loaded = 0;
    for (size_t b = 0; b < n_blocks; b++) {
        size_t entry = (first + b) / p->blocks_per_entry;
        if (entry >= loaded) {
            load_entries(&e, table, p, g, entry);
            loaded = e.first + ENTRIES;
        }
        vst1q_f32(dst[b], entry_at(&e, entry, 0));
        vst1q_f32(dst[b] + 4, entry_at(&e, entry, 1));
    }
}

ALWAYS_INLINE void unpack_tile(tile *t, const product *p, const row_group *g, size_t first, size_t n_blocks,
                               pome_codes codes, put_row_fn *put)
{
    for (size_t b = 0; b < n_blocks; b++)
        unpack_block(t, b, p, g, first + b, codes, put);
    if (!pome_codes_are_palette(codes))
        spread_entries(t->scale, p->w->scale_f16, p, g, first, n_blocks);
    for (size_t b = 0; pome_codes_are_palette(codes) && b < n_blocks; b++)
        for (size_t r = 0; r < ROWS; r++)
            t->scale[b][r] = p->unit;
    if ((codes == POME_CODES_U4 || codes == POME_CODES_U8) && p->w->offset_f16)
        spread_entries(t->offset, p->w->offset_f16, p, g, first, n_blocks);
    else
        memset(t->offset, 0, n_blocks * sizeof t->offset[0]);
}

/* Results so far, zero at the first block. */
ALWAYS_INLINE void load_sums(float32x4_t acc[2], const float *y, size_t n, bool is_first)
{
    float all[ROWS] = {0};
    if (!is_first)
        memcpy(all, y, (n < ROWS ? n : ROWS) * sizeof *y);
    acc[0] = vld1q_f32(all);
    acc[1] = vld1q_f32(all + 4);
}

ALWAYS_INLINE void scale_block(float32x4_t acc[2], const int32x4_t sum[2], const tile *t, size_t b, float sum_x,
                               float scale_x, pome_codes codes)
{
    for (size_t h = 0; h < 2; h++)
        acc[h] = add_block(acc[h], restore_sum(sum[h], sum_x, codes), vld1q_f32(t->offset[b] + 4 * h), sum_x,
                           vld1q_f32(t->scale[b] + 4 * h), scale_x);
}

ALWAYS_INLINE void many(float *y, size_t ldy, const void *q8, size_t m, const product *p, size_t n, tile *t,
                        pome_codes codes, put_row_fn *put, multiply_fn *multiply)
{
    size_t k = p->w->k;
    for (size_t j = 0; j < n; j += ROWS) {
        row_group g = rows_from(p, j, n);
        for (size_t first = 0; first < p->n_blocks; first += TILE_BLOCKS) {
            size_t len = p->n_blocks - first < TILE_BLOCKS ? p->n_blocks - first : TILE_BLOCKS, i = 0;
            unpack_tile(t, p, &g, first, len, codes, put);
            for (; i + 4 <= m; i += 4)
                multiply(y + i * ldy + j, ldy, q8, k, i, t, first, len, n - j, 4, codes);
            for (; i + 2 <= m; i += 2)
                multiply(y + i * ldy + j, ldy, q8, k, i, t, first, len, n - j, 2, codes);
            if (i < m)
                multiply(y + i * ldy + j, ldy, q8, k, i, t, first, len, n - j, 1, codes);
        }
        add_singles(y, ldy, q8, m, p, j, n, codes);
    }
}

static inline size_t scratch_size(size_t m, size_t k)
{
    (void)k;
    return m > 1 ? sizeof(tile) : 0;
}

/* [32 / 4][8][4]: a vector has four bytes of each of four rows. */
ALWAYS_INLINE void put_fours(int8_t *block, size_t row, size_t half, int8x16_t codes)
{
    int32x4_t v = vreinterpretq_s32_s8(codes);
    int32_t four[4];
    vst1q_s32(four, v);
    for (size_t s = 0; s < 4; s++)
        memcpy(block + ((4 * half + s) * ROWS + row) * 4, &four[s], 4);
}

#ifdef DOT4
/* n_x (1, 2 or 4) rows of activations with a tile; n rows of weights are wanted. */
ALWAYS_INLINE void multiply_fours(float *y, size_t ldy, const void *q8, size_t k, size_t i, const tile *t, size_t first,
                                  size_t n_blocks, size_t n, size_t n_x, pome_codes codes)
{
    float32x4_t acc[4][2];
    q8_view x[4];
    for (size_t r = 0; r < n_x; r++) {
        x[r] = q8_row(q8, k, i + r);
        load_sums(acc[r], y + r * ldy, n, first == 0);
    }
    for (size_t b = 0; b < n_blocks; b++) {
        int32x4_t sum[4][2];
        for (size_t r = 0; r < n_x; r++)
            sum[r][0] = sum[r][1] = vdupq_n_s32(0);
        for (size_t plane = 0; plane < (pome_codes_are_palette(codes) ? 2u : 1u); plane++)
            for (size_t half = 0; half < 2; half++) {
                const int8_t *w = (plane ? t->low[b] : t->codes[b]) + half * 4 * ROWS * 4;
                for (size_t r = 0; r < n_x; r++) {
                    int8x16_t xv = vld1q_s8(x[r].codes + (first + b) * Q8_BLOCK + 16 * half);
                    for (size_t h = 0; h < 2; h++) {
                        int32x4_t s = plane && half == 0 ? vshlq_n_s32(sum[r][h], 8) : sum[r][h];
                        s = DOT4(s, vld1q_s8(w + 16 * h), xv, 0);
                        s = DOT4(s, vld1q_s8(w + 32 + 16 * h), xv, 1);
                        s = DOT4(s, vld1q_s8(w + 64 + 16 * h), xv, 2);
                        sum[r][h] = DOT4(s, vld1q_s8(w + 96 + 16 * h), xv, 3);
                    }
                }
            }
        for (size_t r = 0; r < n_x; r++)
            scale_block(acc[r], sum[r], t, b, x[r].sum[first + b], x[r].scale[first + b], codes);
    }
    for (size_t r = 0; r < n_x; r++)
        store_rows(y + r * ldy, acc[r], n);
}
#endif

/* The entries of a level whose many-row products are `put` and `multiply`. */
#define CODED_TIMES(name, codes, put, multiply)                                                                        \
    static void name(float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w, size_t n, void *scratch) \
    {                                                                                                                  \
        product p;                                                                                                     \
        set_product(&p, w, codes);                                                                                     \
        if (m == 1)                                                                                                    \
            one(y, q8, &p, n, codes);                                                                                  \
        else                                                                                                           \
            many(y, ldy, q8, m, &p, n, (tile *)scratch, codes, put, multiply);                                         \
    }
#define CODED_LEVEL(fill, put, multiply)                                                                               \
    CODED_TIMES(times_i4, POME_CODES_I4, put, multiply)                                                                \
    CODED_TIMES(times_u4, POME_CODES_U4, put, multiply)                                                                \
    CODED_TIMES(times_i8, POME_CODES_I8, put, multiply)                                                                \
    CODED_TIMES(times_u8, POME_CODES_U8, put, multiply)                                                                \
    CODED_TIMES(times_lut4, POME_CODES_LUT4, put, multiply)                                                            \
    CODED_TIMES(times_lut6, POME_CODES_LUT6, put, multiply)                                                            \
    CODED_TIMES(times_lut8, POME_CODES_LUT8, put, multiply)                                                            \
    void fill(pome_kernels *k)                                                                                         \
    {                                                                                                                  \
        k->coded[POME_CODES_I4] = (pome_coded_kernels){q8_size, q8_set_split, scratch_size, times_i4};                 \
        k->coded[POME_CODES_U4] = (pome_coded_kernels){q8_size, q8_set_split, scratch_size, times_u4};                 \
        k->coded[POME_CODES_I8] = (pome_coded_kernels){q8_size, q8_set_plain, scratch_size, times_i8};                 \
        k->coded[POME_CODES_U8] = (pome_coded_kernels){q8_size, q8_set_plain, scratch_size, times_u8};                 \
        k->coded[POME_CODES_LUT4] = (pome_coded_kernels){q8_size, q8_set_split, scratch_size, times_lut4};             \
        k->coded[POME_CODES_LUT6] = (pome_coded_kernels){q8_size, q8_set_plain, scratch_size, times_lut6};             \
        k->coded[POME_CODES_LUT8] = (pome_coded_kernels){q8_size, q8_set_plain, scratch_size, times_lut8};             \
    }

#endif
