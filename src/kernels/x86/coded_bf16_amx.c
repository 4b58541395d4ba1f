/* Products of dense weights (halves or floats) with activations in fast mode, by AMX's bf16 tiles. Each operand is taken
 * as the sum of two bf16 numbers, the nearest and the nearest of what is left, and of the four products the three larger are
 * added in fp32: high * high, high * low, low * high. A half is such a sum exactly, a float within 2^-17; the product that
 * is left out is below 2^-16 of the others. What is infinite becomes NaN.
 *
 * Sixteen rows of weights are tile rows as they lie; activations, which are prepared once, are the operand that tiles want in
 * pairs: for 16 rows and 32 columns [16 pairs][rows][2], high parts, then low parts. So a result's sum is the same chain of
 * instructions (32 columns at a time, three each) whatever the number of rows: a row alone has the bits that it has among
 * others. Fewer than 16 rows make narrower tiles. Tiles treat subnormal numbers as 0. */
#include <immintrin.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/kernels.h"

#ifdef POME_EMULATE_AVX512 /* tests on machines without it */
#include POME_EMULATE_AVX512
#endif

enum {
    COLUMNS = 32,     /* of weights in a tile row */
    PAIRS = COLUMNS / 2,
    W_ROWS = 16,
    X_ROWS = POME_Q8_GROUP,
    TILE_COLUMNS = 512 /* of weights that are split at a time */
};

/* Tiles 0, 1: sums [weights][activations]; 2, 3: weights, high and low; 4, 5 and 6, 7: activations of two groups. (Intel
 * SDM, volume 1, chapter 18: palette 1.) */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes_per_row[16];
    uint8_t rows[16];
} tile_config;

static void configure(size_t x_rows)
{
    uint16_t bytes = (uint16_t)(4 * x_rows);
    tile_config config = {.palette = 1,
                          .bytes_per_row = {bytes, bytes, 64, 64, bytes, bytes, bytes, bytes},
                          .rows = {W_ROWS, W_ROWS, W_ROWS, W_ROWS, PAIRS, PAIRS, PAIRS, PAIRS}};
    _tile_loadconfig(&config);
}

/* The scratch of a call, followed by the sums [groups of activations][W_ROWS][X_ROWS]. */
typedef struct split_rows {
    uint16_t high[W_ROWS][TILE_COLUMNS], low[W_ROWS][TILE_COLUMNS];
} split_rows;

/* ---- splitting ---- */

/* Sixteen floats to the bits of the nearest bf16, as the upper halves of words. A NaN that this destroys is there again in
 * the rest. */
static inline __m512i nearest_bf16(__m512 x)
{
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    bits = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000u));
}

static inline void split(uint16_t *high, uint16_t *low, __m512 x)
{
    __m512i h = nearest_bf16(x), l = nearest_bf16(_mm512_sub_ps(x, _mm512_castsi512_ps(h)));
    _mm256_storeu_si256((__m256i *)(void *)high, _mm512_cvtepi32_epi16(_mm512_srli_epi32(h, 16)));
    _mm256_storeu_si256((__m256i *)(void *)low, _mm512_cvtepi32_epi16(_mm512_srli_epi32(l, 16)));
}

/* Columns [first, first + n) of sixteen rows from j on; past the last of n_rows the last one again. */
static inline __attribute__((always_inline)) void split_weights(split_rows *s, const pome_coded_rows *w, size_t j, size_t n_rows,
                                                                size_t first, size_t n, bool halves)
{
    for (size_t r = 0; r < W_ROWS; r++) {
        size_t at = (j + r < n_rows ? j + r : n_rows - 1) * w->k + first;
        for (size_t p = 0; p < n; p += 16) {
            const uint16_t *half = (const uint16_t *)w->codes + at + p;
            __m512 x = halves ? _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)half))
                              : _mm512_loadu_ps((const float *)w->codes + at + p);
            split(s->high[r] + p, s->low[r] + p, x);
        }
    }
}

/* ---- activations ---- */

static size_t group_rows(size_t m, size_t first) /* of the group that begins at row `first` */
{
    return m - first < X_ROWS ? m - first : X_ROWS;
}

static size_t x_size(size_t m, size_t k)
{
    return m * k * 2 * sizeof(uint16_t);
}

/* The parts of block b of the group that begins at row `first`: [2][PAIRS][rows][2]. */
static uint16_t *block_at(const void *q8, size_t m, size_t k, size_t first, size_t b)
{
    return (uint16_t *)(uintptr_t)q8 + first * k * 2 + b * 2 * COLUMNS * group_rows(m, first);
}

static void x_set(void *q8, size_t m, size_t k, size_t first, size_t n, const float *x, size_t ldx)
{
    for (size_t i = 0; i < n; i++) {
        size_t group = (first + i) / X_ROWS * X_ROWS, column = first + i - group, rows = group_rows(m, group);
        for (size_t b = 0; b < k / COLUMNS; b++) {
            uint16_t part[2][COLUMNS], *to = block_at(q8, m, k, group, b) + 2 * column;
            for (size_t p = 0; p < COLUMNS; p += 16)
                split(part[0] + p, part[1] + p, _mm512_loadu_ps(x + i * ldx + b * COLUMNS + p));
            for (size_t h = 0; h < 2; h++)
                for (size_t pair = 0; pair < PAIRS; pair++)
                    memcpy(to + (h * PAIRS + pair) * rows * 2, part[h] + 2 * pair, 2 * sizeof *to);
        }
    }
}

/* ---- products ---- */

static size_t scratch_size(size_t m, size_t k)
{
    (void)k;
    return sizeof(split_rows) + (m + X_ROWS - 1) / X_ROWS * W_ROWS * X_ROWS * sizeof(float);
}

typedef float sums[W_ROWS][X_ROWS];

/* Blocks [first, first + n_blocks) of one or two (n_groups) groups of `rows` rows of activations. */
static inline __attribute__((always_inline)) void multiply_groups(sums *acc, const split_rows *s, const uint16_t *x,
                                                                  size_t apart, size_t rows, size_t first, size_t n_blocks,
                                                                  size_t n_groups)
{
    size_t part = COLUMNS * rows, x_stride = 4 * rows, w_stride = sizeof s->high[0];
    if (first == 0) {
        _tile_zero(0);
        _tile_zero(1);
    } else {
        _tile_loadd(0, acc[0], sizeof acc[0][0]);
        if (n_groups == 2)
            _tile_loadd(1, acc[1], sizeof acc[0][0]);
    }
    for (size_t b = 0; b < n_blocks; b++) {
        const uint16_t *at = x + (first + b) * 2 * part;
        _tile_loadd(2, s->high[0] + b * COLUMNS, w_stride);
        _tile_loadd(3, s->low[0] + b * COLUMNS, w_stride);
        _tile_loadd(4, at, x_stride);
        _tile_loadd(5, at + part, x_stride);
        _tile_dpbf16ps(0, 2, 4);
        _tile_dpbf16ps(0, 2, 5);
        _tile_dpbf16ps(0, 3, 4);
        if (n_groups == 2) {
            _tile_loadd(6, at + apart, x_stride);
            _tile_loadd(7, at + apart + part, x_stride);
            _tile_dpbf16ps(1, 2, 6);
            _tile_dpbf16ps(1, 2, 7);
            _tile_dpbf16ps(1, 3, 6);
        }
    }
    _tile_stored(0, acc[0], sizeof acc[0][0]);
    if (n_groups == 2)
        _tile_stored(1, acc[1], sizeof acc[0][0]);
}

/* Sixteen rows of weights, split, with all rows of activations. *width: the rows that tiles are made for. */
static void multiply_all(sums *acc, const split_rows *s, const void *q8, size_t m, size_t k, size_t first, size_t n_blocks,
                         size_t *width)
{
    size_t group_size = X_ROWS * k * 2;
    for (size_t i = 0; i < m;) {
        size_t rows = group_rows(m, i), n_groups = m - i >= 2 * X_ROWS ? 2 : 1;
        if (rows != *width) {
            configure(rows);
            *width = rows;
        }
        const uint16_t *x = block_at(q8, m, k, i, 0);
        if (n_groups == 2)
            multiply_groups(acc + i / X_ROWS, s, x, group_size, rows, first, n_blocks, 2);
        else
            multiply_groups(acc + i / X_ROWS, s, x, group_size, rows, first, n_blocks, 1);
        i += n_groups == 2 ? 2 * X_ROWS : rows;
    }
}

static inline __attribute__((always_inline)) void times(float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w,
                                                        size_t n, void *scratch, bool halves)
{
    split_rows *s = (split_rows *)scratch;
    sums *acc = (sums *)(void *)(s + 1);
    size_t width = 0;
    for (size_t j = 0; j < n; j += W_ROWS) {
        for (size_t p = 0; p < w->k; p += TILE_COLUMNS) {
            size_t len = w->k - p < TILE_COLUMNS ? w->k - p : TILE_COLUMNS;
            split_weights(s, w, j, n, p, len, halves);
            multiply_all(acc, s, q8, m, w->k, p / COLUMNS, len / COLUMNS, &width);
        }
        for (size_t i = 0; i < m; i++)
            for (size_t r = 0; r < W_ROWS && j + r < n; r++)
                y[i * ldy + j + r] = acc[i / X_ROWS][r][i % X_ROWS];
    }
    _tile_release();
}

static void times_f16(float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w, size_t n, void *scratch)
{
    times(y, ldy, q8, m, w, n, scratch, true);
}

static void times_f32(float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w, size_t n, void *scratch)
{
    times(y, ldy, q8, m, w, n, scratch, false);
}

void pome_kernels_fill_coded_bf16_amx(pome_kernels *k)
{
    k->coded[POME_CODES_F16] = (pome_coded_kernels){x_size, x_set, scratch_size, times_f16};
    k->coded[POME_CODES_F32] = (pome_coded_kernels){x_size, x_set, scratch_size, times_f32};
}
