/* Products of coded weights with int8 activations for AMX. A block of 32 of 16 rows of activations (16 tile rows of 32
 * bytes) times the same block of 16 rows of weights ([8][16][4] bytes, the layout that tiles want) is one
 * multiplication; the sums then get their scales in vectors, in the order that kernels.h prescribes. Four pairs at a
 * time: two of activations, two of weights. Fewer than 16 rows of activations, and tables, go through VNNI. */
#include "kernels/x86/coded_avx512.h"

ALWAYS_INLINE __m512i dot4(__m512i acc, __m512i u, __m512i s)
{
    return _mm512_dpbusd_epi32(acc, u, s);
}

enum { X_ROWS = 16, X_TILES = 2 };

/* Tiles 0..3: sums; 4, 5: activations; 6, 7: weights. (Intel SDM, volume 1, chapter 18: palette 1.) */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes_per_row[16];
    uint8_t rows[16];
} tile_config;

static const tile_config config = {
    .palette = 1,
    .bytes_per_row = {64, 64, 64, 64, 32, 32, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 8, 8},
};

typedef struct amx_scratch {
    tile t;
    float acc[X_TILES * X_ROWS][TILE_ROWS];
    int32_t sum[X_TILES][2][X_ROWS][ROWS];
} amx_scratch;

static size_t amx_scratch_size(size_t m, size_t k)
{
    (void)k;
    return m >= X_ROWS ? sizeof(amx_scratch) : m > 1 ? sizeof(tile) : 0;
}

/* Sums of block b of the tile with one (n_x = 1) or two times sixteen rows of activations. */
ALWAYS_INLINE void multiply_block(amx_scratch *s, const int8_t *codes, size_t stride, size_t b, size_t n_x)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_loadd(4, codes, stride);
    _tile_loadd(6, s->t.codes[b][0], 64);
    _tile_loadd(7, s->t.codes[b][1], 64);
    _tile_dpbsud(0, 4, 6);
    _tile_dpbsud(1, 4, 7);
    if (n_x == 2) {
        _tile_zero(2);
        _tile_zero(3);
        _tile_loadd(5, codes + X_ROWS * stride, stride);
        _tile_dpbsud(2, 5, 6);
        _tile_dpbsud(3, 5, 7);
    }
    _tile_stored(0, s->sum[0][0], 64);
    _tile_stored(1, s->sum[0][1], 64);
    if (n_x == 2) {
        _tile_stored(2, s->sum[1][0], 64);
        _tile_stored(3, s->sum[1][1], 64);
    }
}

ALWAYS_INLINE void scale_block(amx_scratch *s, const void *q8, size_t k, size_t i, size_t b, size_t block, size_t n_x)
{
    for (size_t h = 0; h < 2; h++) {
        __m512 scale = _mm512_loadu_ps(s->t.scale[b] + h * ROWS), offset = _mm512_loadu_ps(s->t.offset[b] + h * ROWS);
        for (size_t r = 0; r < n_x * X_ROWS; r++) {
            q8_view x = q8_row(q8, k, i + r);
            float *acc = s->acc[r] + h * ROWS;
            __m512 sum = _mm512_cvtepi32_ps(_mm512_loadu_si512(s->sum[r / X_ROWS][h][r % X_ROWS]));
            _mm512_storeu_ps(acc, add_block(_mm512_loadu_ps(acc), sum, offset, x.sum[block], scale, x.scale[block]));
        }
    }
}

/* Rows i to i + n_x * 16 of activations with the tile. */
ALWAYS_INLINE void amx_rows(float *y, size_t ldy, const void *q8, size_t k, size_t i, amx_scratch *s, size_t first,
                            size_t n_blocks, size_t n, size_t n_x)
{
    __mmask16 mask[2] = {first_lanes(n), first_lanes(n > ROWS ? n - ROWS : 0)};
    const int8_t *codes = q8_row(q8, k, i).codes;
    for (size_t r = 0; r < n_x * X_ROWS; r++)
        for (size_t h = 0; h < 2; h++)
            _mm512_storeu_ps(s->acc[r] + h * ROWS, first ? _mm512_maskz_loadu_ps(mask[h], y + r * ldy + h * ROWS)
                                                         : _mm512_setzero_ps());
    for (size_t b = 0; b < n_blocks; b++) {
        multiply_block(s, codes + (first + b) * Q8_BLOCK, q8_row_bytes(k), b, n_x);
        scale_block(s, q8, k, i, b, first + b, n_x);
    }
    for (size_t r = 0; r < n_x * X_ROWS; r++)
        for (size_t h = 0; h < 2; h++)
            _mm512_mask_storeu_ps(y + r * ldy + h * ROWS, mask[h], _mm512_loadu_ps(s->acc[r] + h * ROWS));
}

ALWAYS_INLINE void amx_times(float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w, size_t n,
                             void *scratch, pome_codes codes)
{
    if (m < X_ROWS) {
        times(y, ldy, q8, m, w, n, scratch, codes);
        return;
    }
    product p = product_of(w, codes);
    amx_scratch *s = (amx_scratch *)scratch;
    _tile_loadconfig(&config);
    for (size_t j = 0; j < n; j += TILE_ROWS) {
        row_group g[2] = {rows_from(&p, j, n), rows_from(&p, j + ROWS, n)};
        for (size_t first = 0; first < p.n_blocks; first += TILE_BLOCKS) {
            size_t len = p.n_blocks - first < TILE_BLOCKS ? p.n_blocks - first : TILE_BLOCKS, i = 0;
            unpack_tile(&s->t, &p, g, first, len, codes);
            for (; i + 2 * X_ROWS <= m; i += 2 * X_ROWS)
                amx_rows(y + i * ldy + j, ldy, q8, w->k, i, s, first, len, n - j, 2);
            for (; i + X_ROWS <= m; i += X_ROWS)
                amx_rows(y + i * ldy + j, ldy, q8, w->k, i, s, first, len, n - j, 1);
            multiply_rows(y + j, ldy, q8, w->k, i, m, &s->t, first, len, n - j, codes);
        }
        add_singles(y, ldy, q8, m, &p, j, n - j, codes);
    }
    _tile_release();
}

#define AMX_TIMES(name, codes)                                                                                         \
    static void name(float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w, size_t n, void *scratch) \
    {                                                                                                                  \
        amx_times(y, ldy, q8, m, w, n, scratch, codes);                                                                \
    }
AMX_TIMES(times_i4, POME_CODES_I4)
AMX_TIMES(times_u4, POME_CODES_U4)
AMX_TIMES(times_i8, POME_CODES_I8)
AMX_TIMES(times_u8, POME_CODES_U8)

void pome_kernels_fill_coded_amx(pome_kernels *k)
{
    k->coded[POME_CODES_I4] = (pome_coded_kernels){q8_size, q8_set_split, amx_scratch_size, times_i4};
    k->coded[POME_CODES_U4] = (pome_coded_kernels){q8_size, q8_set_split, amx_scratch_size, times_u4};
    k->coded[POME_CODES_I8] = (pome_coded_kernels){q8_size, q8_set_plain, amx_scratch_size, times_i8};
    k->coded[POME_CODES_U8] = (pome_coded_kernels){q8_size, q8_set_plain, amx_scratch_size, times_u8};
}
