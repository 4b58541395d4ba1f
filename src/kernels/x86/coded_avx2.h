/* What the AVX2 products with int8 activations share.
 *
 * A row of activations is padded with zeros to a whole number of pairs of blocks (64 elements). Its codes come first,
 * then the blocks' scales, then their sums of codes, both as float. The codes are int8 for weights in nibbles, int16
 * for others.
 *
 * Eight rows of weights go together, one to a lane, so that the blocks' sums become float and are added up in the
 * order that kernels.h prescribes, for one row of activations as for many. */
#ifndef POME_KERNELS_X86_CODED_AVX2_H
#define POME_KERNELS_X86_CODED_AVX2_H

#include "base/f16.h"
#include "kernels/x86/avx2.h"

enum { Q8_BLOCK = POME_Q8_BLOCK, Q8_PAIR = 2 * POME_Q8_BLOCK, LANES = 8 };

static inline size_t q8_padded(size_t k)
{
    return (k + Q8_PAIR - 1) / Q8_PAIR * Q8_PAIR;
}
static inline size_t q8_row_bytes(size_t k, size_t code_bytes)
{
    size_t padded = q8_padded(k);
    return (padded * code_bytes + padded / Q8_BLOCK * 2 * sizeof(float) + 63) / 64 * 64;
}

typedef struct q8_view { /* a row of activations */
    const void *codes;
    const float *scale, *sum;
} q8_view;

static inline q8_view q8_row(const void *q8, size_t k, size_t code_bytes, size_t i)
{
    const char *row = (const char *)q8 + i * q8_row_bytes(k, code_bytes);
    const float *scale = (const float *)(const void *)(row + q8_padded(k) * code_bytes);
    return (q8_view){row, scale, scale + q8_padded(k) / Q8_BLOCK};
}

/* Eight rows from j on; past the last of n the last one again. */
typedef struct row_group {
    const uint8_t *codes[LANES];
    size_t index[LANES];
} row_group;

static inline row_group rows_from(const pome_coded_rows *w, size_t row_bytes, size_t j, size_t n)
{
    row_group g;
    for (size_t r = 0; r < LANES; r++) {
        g.index[r] = j + r < n ? j + r : n - 1;
        g.codes[r] = (const uint8_t *)w->codes + g.index[r] * row_bytes;
    }
    return g;
}

/* Entries (scales or offsets) of eight rows, one row to a lane. */
typedef struct entries {
    float value[LANES][LANES]; /* [entry - first][row] */
    size_t first;
} entries;

static inline void transpose_entries(entries *e, const uint16_t *table, size_t per_row, const size_t *index)
{
    __m128i r[LANES], s[LANES];
    for (size_t i = 0; i < LANES; i++)
        r[i] = _mm_loadu_si128((const __m128i *)(table + index[i] * per_row + e->first));
    for (size_t i = 0; i < 4; i++) {
        s[2 * i] = _mm_unpacklo_epi16(r[2 * i], r[2 * i + 1]);     /* rows 2i, 2i + 1; entries 0..3 */
        s[2 * i + 1] = _mm_unpackhi_epi16(r[2 * i], r[2 * i + 1]); /* 4..7 */
    }
    for (size_t h = 0; h < 2; h++) {
        __m128i a = _mm_unpacklo_epi32(s[h], s[2 + h]), b = _mm_unpackhi_epi32(s[h], s[2 + h]);
        __m128i c = _mm_unpacklo_epi32(s[4 + h], s[6 + h]), d = _mm_unpackhi_epi32(s[4 + h], s[6 + h]);
        _mm256_storeu_ps(e->value[4 * h], _mm256_cvtph_ps(_mm_unpacklo_epi64(a, c)));
        _mm256_storeu_ps(e->value[4 * h + 1], _mm256_cvtph_ps(_mm_unpackhi_epi64(a, c)));
        _mm256_storeu_ps(e->value[4 * h + 2], _mm256_cvtph_ps(_mm_unpacklo_epi64(b, d)));
        _mm256_storeu_ps(e->value[4 * h + 3], _mm256_cvtph_ps(_mm_unpackhi_epi64(b, d)));
    }
}

/* Up to eight entries, `entry` among them and as many after it as there are. */
static inline void load_entries(entries *e, const uint16_t *table, size_t per_row, const size_t *index, size_t entry)
{
    if (per_row >= LANES) {
        e->first = entry + LANES <= per_row ? entry : per_row - LANES;
        transpose_entries(e, table, per_row, index);
        return;
    }
    e->first = 0;
    for (size_t i = 0; i < per_row; i++)
        for (size_t r = 0; r < LANES; r++)
            e->value[i][r] = _cvtsh_ss(table[index[r] * per_row + i]);
}

static inline void store_rows(float *y, __m256 v, size_t n /* left */)
{
    if (n >= LANES)
        _mm256_storeu_ps(y, v);
    else
        avx2_store_part(y, v, n);
}

/* acc + (sum - offset * sum_x) * (scale * scale_x) */
static inline __m256 add_block(__m256 acc, __m256i sum, __m256 offset, __m256 sum_x, __m256 scale, __m256 scale_x)
{
    __m256 total = _mm256_fnmadd_ps(offset, sum_x, _mm256_cvtepi32_ps(sum));
    return _mm256_fmadd_ps(total, _mm256_mul_ps(scale, scale_x), acc);
}

void pome_coded_fill_nibbles_avx2(pome_kernels *k);

#endif
