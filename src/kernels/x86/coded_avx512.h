/* Products of coded weights with int8 activations in 512-bit vectors, for the levels from AVX-512 on. The including
 * file defines how bytes are multiplied:
 *
 *     __m512i dot4(__m512i acc, __m512i u, __m512i s)   acc += the sum of four products of unsigned u and signed s
 *
 * Signed codes become unsigned by flipping the sign bit; the 8 or 128 that this adds is taken back as an offset. A
 * table's entries are 16-bit integers and go through as a high and a low byte.
 *
 * A row of activations is padded with zeros to four blocks: 32 codes per block (before nibbles: the 16 even elements,
 * then the 16 odd ones, as they lie in the low and high halves of the weights' bytes; else in order), then the blocks'
 * scales, then their sums of codes as float, then the element that has no code.
 *
 * Sixteen rows of weights go together, one to a lane, so that the blocks' sums are added in the order that kernels.h
 * prescribes. One row of activations: 64 bytes of each row of weights are multiplied as they lie and sums folded to lanes.
 * More: blocks of 32 rows are first laid out [32 / 4][16][4], so that a lane takes four bytes of its row at a time. */
#ifndef POME_KERNELS_X86_CODED_AVX512_H
#define POME_KERNELS_X86_CODED_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/f16.h"
#include "kernels/kernels.h"
#include "kernels/single.h"

#ifdef POME_EMULATE_AVX512 /* tests on machines without it */
#include POME_EMULATE_AVX512
#endif

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum {
    Q8_BLOCK = POME_Q8_BLOCK,
    ROWS = 16,         /* of weights in a vector */
    TILE_ROWS = 32,
    TILE_BLOCKS = 16,  /* 16 KiB of codes */
    STEPS = Q8_BLOCK / 4,
    ENTRIES = 8,       /* scales of a row that are read together */
    AHEAD = 1024       /* bytes of prefetch */
};

ALWAYS_INLINE __m512i dot4(__m512i acc, __m512i u, __m512i s);

ALWAYS_INLINE bool has_nibbles(pome_codes codes)
{
    return codes == POME_CODES_I4 || codes == POME_CODES_U4 || codes == POME_CODES_LUT4;
}

/* ---- activations ---- */

static inline size_t q8_blocks(size_t k) /* padded */
{
    return (k / Q8_BLOCK + 3) / 4 * 4;
}
static inline size_t q8_row_bytes(size_t k)
{
    return (q8_blocks(k) * (Q8_BLOCK + 2 * sizeof(float)) + sizeof(pome_single) + 63) / 64 * 64;
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
    const float *scale = (const float *)(const void *)(row + q8_blocks(k) * Q8_BLOCK);
    const float *sum = scale + q8_blocks(k);
    return (q8_view){(const int8_t *)row, scale, sum, (const pome_single *)(const void *)(sum + q8_blocks(k))};
}

/* The largest magnitude of 32; NaN gives NaN. */
static inline float block_max(const float *x)
{
    __m512i clear = _mm512_set1_epi32(0x7fffffff);
    __m512i largest = _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(_mm512_loadu_ps(x)), clear),
                                       _mm512_and_si512(_mm512_castps_si512(_mm512_loadu_ps(x + 16)), clear));
    return pome_f32_from_bits((uint32_t)_mm512_reduce_max_epi32(largest)); /* ordered as floats are */
}

/* 32 codes in order; sets the block's scale and sum. */
static inline void quantize_block(int32_t code[Q8_BLOCK], const float *x, float *scale, float *sum)
{
    __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    float max = block_max(x);
    bool finite = max < INFINITY, any = finite && max >= 1e-30f;
    __m512 factor = _mm512_set1_ps(any ? 127.0f / max : 0.0f);
    __m512i ca = _mm512_setzero_si512(), cb = ca;
    if (any) {
        ca = _mm512_cvtps_epi32(_mm512_mul_ps(a, factor));
        cb = _mm512_cvtps_epi32(_mm512_mul_ps(b, factor));
    }
    _mm512_storeu_si512(code, ca);
    _mm512_storeu_si512(code + 16, cb);
    *scale = !finite ? NAN : any ? max / 127.0f : 0.0f;
    *sum = (float)_mm512_reduce_add_epi32(_mm512_add_epi32(ca, cb));
}

ALWAYS_INLINE void q8_set(void *q8, size_t k, size_t first, size_t n, const float *x, size_t ldx, bool split)
{
    for (size_t i = 0; i < n; i++) {
        q8_view row = q8_row(q8, k, first + i);
        int8_t *codes = (int8_t *)(uintptr_t)row.codes;
        float *scale = (float *)(uintptr_t)row.scale, *sum = (float *)(uintptr_t)row.sum, copy[Q8_BLOCK];
        pome_single single = pome_single_find(x + i * ldx, k, block_max);
        *(pome_single *)(uintptr_t)row.single = single;
        size_t b = 0;
        for (; b < k / Q8_BLOCK; b++, codes += Q8_BLOCK) {
            int32_t code[Q8_BLOCK];
            quantize_block(code, pome_single_without(&single, x + i * ldx, b, copy), scale + b, sum + b);
            for (size_t p = 0; p < Q8_BLOCK; p++)
                codes[split ? p / 2 + p % 2 * 16 : p] = (int8_t)code[p];
        }
        for (; b < q8_blocks(k); b++, codes += Q8_BLOCK) {
            memset(codes, 0, Q8_BLOCK);
            scale[b] = sum[b] = 0;
        }
    }
}

/* ---- weights ---- */

typedef struct product {
    const pome_coded_rows *w;
    size_t row_bytes, n_blocks, per_row /* entries */, blocks_per_entry;
    float unit;          /* LUT4: what an integer of the table stands for */
    __m512i high, low;   /* LUT4: bytes of the table by code, in each 128-bit lane */
} product;

/* The table in 16 bits of its largest element. */
static inline void set_table(product *p)
{
    float max = 0;
    uint8_t high[16], low[16];
    for (size_t i = 0; i < 16; i++) {
        float v = fabsf(pome_f16_to_f32(p->w->table_f16[i]));
        max = !(v <= max) && !(max != max) ? v : max; /* NaN stays */
    }
    for (size_t i = 0; i < 16; i++) {
        float v = pome_f16_to_f32(p->w->table_f16[i]);
        int32_t t = max > 0 && max < INFINITY ? (int32_t)rintf(v * (32767.0f / max)) : 0;
        high[i] = (uint8_t)((t >> 8) + 128);
        low[i] = (uint8_t)(t & 255);
    }
    p->unit = max < INFINITY ? max / 32767.0f : NAN;
    p->high = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)high));
    p->low = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)low));
}

static inline product product_of(const pome_coded_rows *w, pome_codes codes)
{
    product p = {.w = w, .row_bytes = has_nibbles(codes) ? w->k / 2 : w->k, .n_blocks = w->k / Q8_BLOCK,
                 .per_row = w->k / w->block, .blocks_per_entry = w->block / Q8_BLOCK};
    p.high = p.low = _mm512_setzero_si512();
    if (codes == POME_CODES_LUT4)
        set_table(&p);
    return p;
}

/* Sixteen rows from j on; past the last of n the last one again. */
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

/* Scales or offsets of sixteen rows, one row to a lane, as halves. */
typedef struct entries {
    uint16_t half[ENTRIES][ROWS]; /* [entry - first][row] */
    size_t first;
} entries;

static inline void transpose8(uint16_t (*dst)[ROWS], const uint16_t *table, size_t per_row, size_t first,
                              const size_t *index)
{
    __m128i r[8], s[8];
    for (size_t i = 0; i < 8; i++)
        r[i] = _mm_loadu_si128((const __m128i *)(const void *)(table + index[i] * per_row + first));
    for (size_t i = 0; i < 4; i++) {
        s[2 * i] = _mm_unpacklo_epi16(r[2 * i], r[2 * i + 1]);
        s[2 * i + 1] = _mm_unpackhi_epi16(r[2 * i], r[2 * i + 1]);
    }
    for (size_t h = 0; h < 2; h++) {
        __m128i a = _mm_unpacklo_epi32(s[h], s[2 + h]), b = _mm_unpackhi_epi32(s[h], s[2 + h]);
        __m128i c = _mm_unpacklo_epi32(s[4 + h], s[6 + h]), d = _mm_unpackhi_epi32(s[4 + h], s[6 + h]);
        _mm_storeu_si128((__m128i *)(void *)dst[4 * h], _mm_unpacklo_epi64(a, c));
        _mm_storeu_si128((__m128i *)(void *)dst[4 * h + 1], _mm_unpackhi_epi64(a, c));
        _mm_storeu_si128((__m128i *)(void *)dst[4 * h + 2], _mm_unpacklo_epi64(b, d));
        _mm_storeu_si128((__m128i *)(void *)dst[4 * h + 3], _mm_unpackhi_epi64(b, d));
    }
}

/* Up to eight entries, `entry` among them and as many after it as there are. */
static inline void load_entries(entries *e, const uint16_t *table, const product *p, const row_group *g, size_t entry)
{
    if (p->per_row >= ENTRIES) {
        e->first = entry + ENTRIES <= p->per_row ? entry : p->per_row - ENTRIES;
        transpose8(e->half, table, p->per_row, e->first, g->index);
        transpose8((uint16_t(*)[ROWS])(void *)(&e->half[0][8]), table, p->per_row, e->first, g->index + 8);
        return;
    }
    e->first = 0;
    for (size_t i = 0; i < p->per_row; i++)
        for (size_t r = 0; r < ROWS; r++)
            e->half[i][r] = table[g->index[r] * p->per_row + i];
}

/* An infinite scale gives NaN, as its products with codes of 0 are. */
static inline __m512 entry_at(const entries *e, size_t entry)
{
    __m512 v = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)e->half[entry - e->first]));
    return _mm512_add_ps(v, _mm512_sub_ps(v, v));
}

static inline __mmask16 first_lanes(size_t n)
{
    return n >= ROWS ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1);
}

/* acc + (sum - offset * sum_x) * (scale * scale_x) */
ALWAYS_INLINE __m512 add_block(__m512 acc, __m512 sum, __m512 offset, float sum_x, __m512 scale, float scale_x)
{
    __m512 total = _mm512_fnmadd_ps(offset, _mm512_set1_ps(sum_x), sum);
    return _mm512_fmadd_ps(total, _mm512_mul_ps(scale, _mm512_set1_ps(scale_x)), acc);
}

/* What a code that was made unsigned is too large by. */
ALWAYS_INLINE float flip_offset(pome_codes codes)
{
    return codes == POME_CODES_I4 ? 8.0f : codes == POME_CODES_I8 ? 128.0f : 0.0f;
}

ALWAYS_INLINE __m512i flip_signs(__m512i bytes, pome_codes codes)
{
    return codes == POME_CODES_I4   ? _mm512_xor_si512(bytes, _mm512_set1_epi8((char)0x88))
           : codes == POME_CODES_I8 ? _mm512_xor_si512(bytes, _mm512_set1_epi8((char)0x80))
                                    : bytes;
}

ALWAYS_INLINE __m512i low_nibbles(__m512i bytes)
{
    return _mm512_and_si512(bytes, _mm512_set1_epi8(15));
}
ALWAYS_INLINE __m512i high_nibbles(__m512i bytes)
{
    return low_nibbles(_mm512_srli_epi16(bytes, 4));
}

/* A table's sums of bytes as sums of entries: the high bytes were 128 too large, a difference of 2^15 per activation. */
ALWAYS_INLINE __m512i table_sum(__m512i sum, float sum_x)
{
    return _mm512_sub_epi32(sum, _mm512_set1_epi32((int32_t)sum_x * 32768));
}

/* ---- one row of activations ---- */

/* Products of 64 bytes of a row of weights; x[0] and x[1] meet the low and high nibbles, or x[0] the bytes. */
ALWAYS_INLINE __m512i multiply_bytes(const product *p, __m512i bytes, const __m512i x[2], pome_codes codes)
{
    __m512i zero = _mm512_setzero_si512(), w = flip_signs(bytes, codes);
    if (!has_nibbles(codes))
        return dot4(zero, w, x[0]);
    __m512i low = low_nibbles(w), high = high_nibbles(w);
    if (codes != POME_CODES_LUT4)
        return dot4(dot4(zero, low, x[0]), high, x[1]);
    __m512i sum = dot4(dot4(zero, _mm512_shuffle_epi8(p->high, low), x[0]), _mm512_shuffle_epi8(p->high, high), x[1]);
    sum = _mm512_slli_epi32(sum, 8);
    return dot4(dot4(sum, _mm512_shuffle_epi8(p->low, low), x[0]), _mm512_shuffle_epi8(p->low, high), x[1]);
}

/* Sums within each 128-bit lane, of four rows: lane's element r is that of row r. */
ALWAYS_INLINE __m512i fold4(const __m512i v[4])
{
    __m512i a = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    __m512i b = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* u[g]'s 128-bit lane b becomes part g of sum[b]. */
ALWAYS_INLINE void transpose_lanes(__m512i sum[4], const __m512i u[4])
{
    __m512i a = _mm512_shuffle_i32x4(u[0], u[1], 0x44), b = _mm512_shuffle_i32x4(u[2], u[3], 0x44);
    __m512i c = _mm512_shuffle_i32x4(u[0], u[1], 0xee), d = _mm512_shuffle_i32x4(u[2], u[3], 0xee);
    sum[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    sum[1] = _mm512_shuffle_i32x4(a, b, 0xdd);
    sum[2] = _mm512_shuffle_i32x4(c, d, 0x88);
    sum[3] = _mm512_shuffle_i32x4(c, d, 0xdd);
}

/* Activations that meet the 64 bytes of weights from block b on. */
ALWAYS_INLINE void load_activations(__m512i x[2], const int8_t *codes, bool nibbles)
{
    x[0] = x[1] = _mm512_loadu_si512(codes);
    if (nibbles) { /* [even][odd] of four blocks to [even of all][odd of all] */
        __m512i next = _mm512_loadu_si512(codes + 64);
        x[1] = _mm512_shuffle_i32x4(x[0], next, 0xdd);
        x[0] = _mm512_shuffle_i32x4(x[0], next, 0x88);
    }
}

/* The sums of up to four (nibbles) or two blocks from b on, one row to a lane. */
ALWAYS_INLINE void sum_blocks(__m512i sum[4], const product *p, const row_group *g, const q8_view *x, size_t b,
                              pome_codes codes)
{
    bool nibbles = has_nibbles(codes);
    size_t at = b * (nibbles ? 16 : 32), left = p->row_bytes - at, ahead = at + AHEAD;
    __mmask64 mask = left >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << left) - 1;
    __m512i xv[2], v[4], u[4];
    load_activations(xv, x->codes + b * Q8_BLOCK, nibbles);
    ahead += ahead < p->row_bytes ? 0 : (ROWS - 1) * p->row_bytes; /* the next sixteen rows */
    for (size_t r = 0; r < ROWS; r += 4) {
        for (size_t i = 0; i < 4; i++) {
            _mm_prefetch((const char *)g->codes[r + i] + ahead, _MM_HINT_T0);
            __m512i bytes = left >= 64 ? _mm512_loadu_si512(g->codes[r + i] + at)
                                       : _mm512_maskz_loadu_epi8(mask, g->codes[r + i] + at);
            v[i] = multiply_bytes(p, bytes, xv, codes);
        }
        u[r / 4] = fold4(v);
    }
    transpose_lanes(sum, u);
    if (!nibbles) { /* a block is two 128-bit lanes */
        sum[0] = _mm512_add_epi32(sum[0], sum[1]);
        sum[1] = _mm512_add_epi32(sum[2], sum[3]);
    }
}

ALWAYS_INLINE __m512 sixteen_rows(const product *p, const row_group *g, const q8_view *x, pome_codes codes, bool has_offset)
{
    size_t step = has_nibbles(codes) ? 4 : 2;
    entries scale = {.first = 0}, offset = {.first = 0};
    size_t loaded = 0; /* entries before this one are at hand */
    __m512 acc = _mm512_setzero_ps(), constant = _mm512_set1_ps(flip_offset(codes)), unit = _mm512_set1_ps(p->unit);
    for (size_t b = 0; b < p->n_blocks; b += step) {
        __m512i sum[4];
        sum_blocks(sum, p, g, x, b, codes);
        for (size_t h = 0; h < step && b + h < p->n_blocks; h++) {
            size_t entry = (b + h) / p->blocks_per_entry;
            if (codes == POME_CODES_LUT4) {
                acc = add_block(acc, _mm512_cvtepi32_ps(table_sum(sum[h], x->sum[b + h])), constant, 0, unit,
                                x->scale[b + h]);
                continue;
            }
            if (entry >= loaded) {
                load_entries(&scale, p->w->scale_f16, p, g, entry);
                if (has_offset)
                    load_entries(&offset, p->w->offset_f16, p, g, entry);
                loaded = scale.first + ENTRIES;
            }
            acc = add_block(acc, _mm512_cvtepi32_ps(sum[h]), has_offset ? entry_at(&offset, entry) : constant,
                            x->sum[b + h], entry_at(&scale, entry), x->scale[b + h]);
        }
    }
    return acc;
}

/* ---- many rows of activations ---- */

typedef struct tile { /* TILE_BLOCKS blocks of TILE_ROWS rows of weights, unsigned codes */
    uint8_t codes[TILE_BLOCKS][2][STEPS][ROWS][4]; /* [block][which sixteen rows] */
    uint8_t low[TILE_BLOCKS][2][STEPS][ROWS][4];   /* LUT4: low bytes; codes has the high ones */
    float scale[TILE_BLOCKS][TILE_ROWS], offset[TILE_BLOCKS][TILE_ROWS];
} tile;

/* 16 bytes of each of sixteen rows to [4][16][4]. */
ALWAYS_INLINE void spread_rows(__m512i step[4], const row_group *g, size_t at)
{
    __m512i v[4];
    for (size_t r = 0; r < 4; r++) { /* rows r, r + 4, r + 8, r + 12 */
        v[r] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)(g->codes[r] + at)));
        v[r] = _mm512_inserti32x4(v[r], _mm_loadu_si128((const __m128i *)(const void *)(g->codes[r + 4] + at)), 1);
        v[r] = _mm512_inserti32x4(v[r], _mm_loadu_si128((const __m128i *)(const void *)(g->codes[r + 8] + at)), 2);
        v[r] = _mm512_inserti32x4(v[r], _mm_loadu_si128((const __m128i *)(const void *)(g->codes[r + 12] + at)), 3);
    }
    __m512i a = _mm512_unpacklo_epi32(v[0], v[1]), b = _mm512_unpackhi_epi32(v[0], v[1]);
    __m512i c = _mm512_unpacklo_epi32(v[2], v[3]), d = _mm512_unpackhi_epi32(v[2], v[3]);
    step[0] = _mm512_unpacklo_epi64(a, c);
    step[1] = _mm512_unpackhi_epi64(a, c);
    step[2] = _mm512_unpacklo_epi64(b, d);
    step[3] = _mm512_unpackhi_epi64(b, d);
}

ALWAYS_INLINE void unpack_block(tile *t, size_t at, size_t half, const product *p, const row_group *g, size_t b,
                                pome_codes codes)
{
    __m512i step[4];
    uint8_t (*dst)[ROWS][4] = t->codes[at][half], (*low)[ROWS][4] = t->low[at][half];
    if (!has_nibbles(codes)) {
        for (size_t h = 0; h < 2; h++) {
            spread_rows(step, g, b * 32 + h * 16);
            for (size_t s = 0; s < 4; s++)
                _mm512_storeu_si512(dst[4 * h + s], flip_signs(step[s], codes));
        }
        return;
    }
    spread_rows(step, g, b * 16);
    for (size_t s = 0; s < 4; s++) { /* even elements, then odd ones */
        __m512i w = flip_signs(step[s], codes), even = low_nibbles(w), odd = high_nibbles(w);
        if (codes == POME_CODES_LUT4) {
            _mm512_storeu_si512(low[s], _mm512_shuffle_epi8(p->low, even));
            _mm512_storeu_si512(low[s + 4], _mm512_shuffle_epi8(p->low, odd));
            even = _mm512_shuffle_epi8(p->high, even);
            odd = _mm512_shuffle_epi8(p->high, odd);
        }
        _mm512_storeu_si512(dst[s], even);
        _mm512_storeu_si512(dst[s + 4], odd);
    }
}

static inline void spread_entries(float (*dst)[TILE_ROWS], const uint16_t *table, const product *p, const row_group *g,
                                  size_t first, size_t n_blocks, size_t half)
{
    entries e = {.first = 0};
    size_t loaded = 0;
    for (size_t b = 0; b < n_blocks; b++) {
        size_t entry = (first + b) / p->blocks_per_entry;
        if (entry >= loaded) {
            load_entries(&e, table, p, g, entry);
            loaded = e.first + ENTRIES;
        }
        _mm512_storeu_ps(dst[b] + half * ROWS, entry_at(&e, entry));
    }
}

ALWAYS_INLINE void unpack_tile(tile *t, const product *p, const row_group g[2], size_t first, size_t n_blocks,
                               pome_codes codes)
{
    for (size_t half = 0; half < 2; half++) {
        for (size_t b = 0; b < n_blocks; b++)
            unpack_block(t, b, half, p, &g[half], first + b, codes);
        if (codes != POME_CODES_LUT4)
            spread_entries(t->scale, p->w->scale_f16, p, &g[half], first, n_blocks, half);
        if (flip_offset(codes) == 0 && p->w->offset_f16) {
            spread_entries(t->offset, p->w->offset_f16, p, &g[half], first, n_blocks, half);
            continue;
        }
        for (size_t b = 0; b < n_blocks; b++)
            _mm512_storeu_ps(t->offset[b] + half * ROWS, _mm512_set1_ps(flip_offset(codes)));
    }
    for (size_t b = 0; codes == POME_CODES_LUT4 && b < n_blocks; b++)
        for (size_t half = 0; half < 2; half++)
            _mm512_storeu_ps(t->scale[b] + half * ROWS, _mm512_set1_ps(p->unit));
}

ALWAYS_INLINE __m512i four_codes(const int8_t *p)
{
    int32_t v;
    memcpy(&v, p, sizeof v);
    return _mm512_set1_epi32(v);
}

/* n_x (1 to 4) rows of activations with a tile; n rows of weights are wanted. */
ALWAYS_INLINE void multiply_tile(float *y, size_t ldy, const void *q8, size_t k, size_t i, const tile *t, size_t first,
                                 size_t n_blocks, size_t n, size_t n_x, pome_codes codes)
{
    __m512 acc[4][2];
    q8_view x[4];
    __mmask16 mask[2] = {first_lanes(n), first_lanes(n > ROWS ? n - ROWS : 0)};
    for (size_t r = 0; r < n_x; r++) {
        x[r] = q8_row(q8, k, i + r);
        for (size_t h = 0; h < 2; h++)
            acc[r][h] = first ? _mm512_maskz_loadu_ps(mask[h], y + r * ldy + h * ROWS) : _mm512_setzero_ps();
    }
    for (size_t b = 0; b < n_blocks; b++) {
        __m512i sum[4][2];
        size_t at = (first + b) * Q8_BLOCK;
        for (size_t r = 0; r < n_x; r++)
            sum[r][0] = sum[r][1] = _mm512_setzero_si512();
        for (size_t plane = 0; plane < (codes == POME_CODES_LUT4 ? 2u : 1u); plane++) {
            for (size_t r = 0; plane && r < n_x; r++) {
                sum[r][0] = _mm512_slli_epi32(sum[r][0], 8);
                sum[r][1] = _mm512_slli_epi32(sum[r][1], 8);
            }
            for (size_t s = 0; s < STEPS; s++) {
                __m512i w0 = _mm512_loadu_si512(plane ? t->low[b][0][s] : t->codes[b][0][s]);
                __m512i w1 = _mm512_loadu_si512(plane ? t->low[b][1][s] : t->codes[b][1][s]);
                for (size_t r = 0; r < n_x; r++) {
                    __m512i xv = four_codes(x[r].codes + at + 4 * s);
                    sum[r][0] = dot4(sum[r][0], w0, xv);
                    sum[r][1] = dot4(sum[r][1], w1, xv);
                }
            }
        }
        for (size_t r = 0; r < n_x; r++)
            for (size_t h = 0; h < 2; h++) {
                float sum_x = x[r].sum[first + b];
                __m512i total = codes == POME_CODES_LUT4 ? table_sum(sum[r][h], sum_x) : sum[r][h];
                acc[r][h] = add_block(acc[r][h], _mm512_cvtepi32_ps(total), _mm512_loadu_ps(t->offset[b] + h * ROWS), sum_x,
                                      _mm512_loadu_ps(t->scale[b] + h * ROWS), x[r].scale[first + b]);
            }
    }
    for (size_t r = 0; r < n_x; r++)
        for (size_t h = 0; h < 2; h++)
            _mm512_mask_storeu_ps(y + r * ldy + h * ROWS, mask[h], acc[r][h]);
}

/* Rows i to m of activations with a tile. */
ALWAYS_INLINE void multiply_rows(float *y, size_t ldy, const void *q8, size_t k, size_t i, size_t m, const tile *t,
                                 size_t first, size_t n_blocks, size_t n, pome_codes codes)
{
    for (; i + 4 <= m; i += 4)
        multiply_tile(y + i * ldy, ldy, q8, k, i, t, first, n_blocks, n, 4, codes);
    if (m - i == 3)
        multiply_tile(y + i * ldy, ldy, q8, k, i, t, first, n_blocks, n, 3, codes);
    else if (m - i == 2)
        multiply_tile(y + i * ldy, ldy, q8, k, i, t, first, n_blocks, n, 2, codes);
    else if (m - i == 1)
        multiply_tile(y + i * ldy, ldy, q8, k, i, t, first, n_blocks, n, 1, codes);
}

/* Elements without codes of m rows with `n` rows of weights from j on, of which a tile's are wanted. */
ALWAYS_INLINE void add_singles(float *y, size_t ldy, const void *q8, size_t m, const product *p, size_t j, size_t n,
                               pome_codes codes)
{
    pome_single_add(y + j, ldy, m, p->w, codes, j, n < TILE_ROWS ? n : TILE_ROWS, q8_row(q8, p->w->k, 0).single,
                    q8_row_bytes(p->w->k));
}

ALWAYS_INLINE void many(float *y, size_t ldy, const void *q8, size_t m, const product *p, size_t n, tile *t,
                        pome_codes codes)
{
    for (size_t j = 0; j < n; j += TILE_ROWS) {
        row_group g[2] = {rows_from(p, j, n), rows_from(p, j + ROWS, n)};
        for (size_t first = 0; first < p->n_blocks; first += TILE_BLOCKS) {
            size_t len = p->n_blocks - first < TILE_BLOCKS ? p->n_blocks - first : TILE_BLOCKS;
            unpack_tile(t, p, g, first, len, codes);
            multiply_rows(y + j, ldy, q8, p->w->k, 0, m, t, first, len, n - j, codes);
        }
        add_singles(y, ldy, q8, m, p, j, n - j, codes);
    }
}

static inline size_t scratch_size(size_t m, size_t k)
{
    (void)k;
    return m > 1 ? sizeof(tile) : 0;
}

ALWAYS_INLINE void one(float *y, const void *q8, const product *p, size_t n, pome_codes codes)
{
    q8_view x = q8_row(q8, p->w->k, 0);
    for (size_t j = 0; j < n; j += ROWS) {
        row_group g = rows_from(p, j, n);
        bool has_offset = (codes == POME_CODES_U4 || codes == POME_CODES_U8) && p->w->offset_f16;
        __m512 sum = has_offset ? sixteen_rows(p, &g, &x, codes, true) : sixteen_rows(p, &g, &x, codes, false);
        _mm512_mask_storeu_ps(y + j, first_lanes(n - j), sum);
        add_singles(y, 0, q8, 1, p, j, n - j < ROWS ? n - j : ROWS, codes);
    }
}

ALWAYS_INLINE void times(float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w, size_t n, void *scratch,
                         pome_codes codes)
{
    product p = product_of(w, codes);
    if (m == 1)
        one(y, q8, &p, n, codes);
    else
        many(y, ldy, q8, m, &p, n, (tile *)scratch, codes);
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

/* The entry `name` for weights of `codes`. */
#define CODED_TIMES(name, codes)                                                                                       \
    static void name(float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w, size_t n, void *scratch) \
    {                                                                                                                  \
        times(y, ldy, q8, m, w, n, scratch, codes);                                                                    \
    }

#endif
