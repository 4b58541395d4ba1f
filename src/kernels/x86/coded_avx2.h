/* What the AVX2 products with int8 activations share.
 *
 * A row of activations is padded with zeros to a whole number of pairs of blocks (64 elements). Its codes come first,
 * then the blocks' scales, then their sums of codes, both as float, then a pome_single. The codes are int8 for weights in nibbles; for others
 * they lie in 16 bits and use 12 of them.
 *
 * Eight rows of weights go together, one to a lane, so that the blocks' sums become float and are added up in the
 * order that kernels.h prescribes, for one row of activations as for many.
 *
 * For one row of activations, which is bound by memory, the eight rows lie an eighth of all rows apart: the processor then
 * follows eight streams in eight pages, each as long as an eighth of the weights. Its reading ahead ends with every page of
 * 4 KB, and eight rows that follow one another share a few pages and begin anew every few hundred nanoseconds. Short rows
 * that follow one another are a single stream and stay so. */
#ifndef POME_KERNELS_X86_CODED_AVX2_H
#define POME_KERNELS_X86_CODED_AVX2_H

#include "base/f16.h"
#include "kernels/single.h"
#include "kernels/x86/avx2.h"

enum { Q8_BLOCK = POME_Q8_BLOCK, Q8_PAIR = 2 * POME_Q8_BLOCK, LANES = 8, CODED_TILE = 16 /* rows of weights that are unpacked at once */,
       FEW = 8 /* rows of activations that take weights as one row does */, AT_ONCE = 4 /* of these while weights are in registers */,
       SHORT_ROW = 600, AHEAD = 256, AHEAD_NEXT = 1024 /* bytes */ };

/* Ends a step of an unrolled loop. Without it compilers multiply first and add later, through memory, since the products
 * of several steps outnumber the registers. */
static inline void keep_order(__m256i *a, __m256i *b)
{
    __asm__ volatile("" : "+x"(*a), "+x"(*b));
}

static inline size_t q8_padded(size_t k)
{
    return (k + Q8_PAIR - 1) / Q8_PAIR * Q8_PAIR;
}
static inline size_t q8_row_bytes(size_t k, size_t code_bytes)
{
    size_t padded = q8_padded(k);
    return (padded * code_bytes + padded / Q8_BLOCK * 2 * sizeof(float) + sizeof(pome_single) + 63) / 64 * 64;
}

typedef struct q8_view { /* a row of activations */
    const void *codes;
    const float *scale, *sum;
    const pome_single *single;
} q8_view;

static inline q8_view q8_row(const void *q8, size_t k, size_t code_bytes, size_t i)
{
    const char *row = (const char *)q8 + i * q8_row_bytes(k, code_bytes);
    const float *scale = (const float *)(const void *)(row + q8_padded(k) * code_bytes);
    const float *sum = scale + q8_padded(k) / Q8_BLOCK;
    return (q8_view){row, scale, sum, (const pome_single *)(const void *)(sum + q8_padded(k) / Q8_BLOCK)};
}

/* Eight rows, `apart` rows from each other, from j on; past the last of n the last one again. */
typedef struct row_group {
    const uint8_t *codes[LANES];
    size_t index[LANES];
    bool is_apart;
} row_group;

static inline row_group rows_apart(const pome_coded_rows *w, size_t row_bytes, size_t j, size_t apart, size_t n)
{
    row_group g = {.is_apart = apart > 1};
    for (size_t r = 0; r < LANES; r++) {
        g.index[r] = j + r * apart < n ? j + r * apart : n - 1;
        g.codes[r] = (const uint8_t *)w->codes + g.index[r] * row_bytes;
    }
    return g;
}
/* How far apart n rows are taken: an odd number of rows, since streams at a multiple of 4 KB from each other would push one
 * another out of the cache. */
static inline size_t rows_between(size_t n, size_t row_bytes, size_t short_row)
{
    size_t apart = n / LANES;
    return row_bytes < short_row ? 0 : apart % 2 == 0 && apart ? apart - 1 : apart;
}

/* What is multiplied soon after `at`: of these rows, or past their ends of the eight after them and those that follow. */
static inline size_t prefetch_at(const row_group *g, size_t at, size_t row_bytes)
{
    size_t ahead = at + (g->is_apart ? AHEAD : AHEAD_NEXT);
    return ahead + (g->is_apart || ahead < row_bytes ? 0 : (LANES - 1) * row_bytes);
}

static inline void prefetch_rows(const row_group *g, size_t at, size_t row_bytes)
{
    for (size_t r = 0; r < LANES; r++)
        _mm_prefetch((const char *)g->codes[r] + prefetch_at(g, at, row_bytes), _MM_HINT_T0);
}

static inline row_group rows_from(const pome_coded_rows *w, size_t row_bytes, size_t j, size_t n)
{
    return rows_apart(w, row_bytes, j, 1, n);
}

/* Entries (scales or offsets) of eight rows, one row to a lane. */
typedef struct entries {
    float value[LANES][LANES]; /* [entry - first][row] */
    size_t first;
} entries;

/* Halves as floats. An infinite scale gives NaN, as its products with codes of 0 are. */
static inline __m256 entry_values(__m128i half)
{
    __m256 v = _mm256_cvtph_ps(half);
    return _mm256_add_ps(v, _mm256_sub_ps(v, v));
}

/* Eight entries from `first` on of each of eight rows, one row to a lane. */
static inline __attribute__((always_inline)) void transpose_entries(__m256 v[LANES], const uint16_t *table, size_t per_row, const size_t *index, size_t first)
{
    __m128i r[LANES], s[LANES];
    for (size_t i = 0; i < LANES; i++)
        r[i] = _mm_loadu_si128((const __m128i *)(table + index[i] * per_row + first));
    for (size_t i = 0; i < 4; i++) {
        s[2 * i] = _mm_unpacklo_epi16(r[2 * i], r[2 * i + 1]);     /* rows 2i, 2i + 1; entries 0..3 */
        s[2 * i + 1] = _mm_unpackhi_epi16(r[2 * i], r[2 * i + 1]); /* 4..7 */
    }
    for (size_t h = 0; h < 2; h++) {
        __m128i a = _mm_unpacklo_epi32(s[h], s[2 + h]), b = _mm_unpackhi_epi32(s[h], s[2 + h]);
        __m128i c = _mm_unpacklo_epi32(s[4 + h], s[6 + h]), d = _mm_unpackhi_epi32(s[4 + h], s[6 + h]);
        v[4 * h] = entry_values(_mm_unpacklo_epi64(a, c));
        v[4 * h + 1] = entry_values(_mm_unpackhi_epi64(a, c));
        v[4 * h + 2] = entry_values(_mm_unpacklo_epi64(b, d));
        v[4 * h + 3] = entry_values(_mm_unpackhi_epi64(b, d));
    }
}

/* Up to eight entries, `entry` among them and as many after it as there are. */
static inline __attribute__((always_inline)) void load_entries(entries *e, const uint16_t *table, size_t per_row, const size_t *index, size_t entry)
{
    if (per_row >= LANES) {
        e->first = entry + LANES <= per_row ? entry : per_row - LANES;
        __m256 v[LANES];
        transpose_entries(v, table, per_row, index, e->first);
        for (size_t i = 0; i < LANES; i++)
            _mm256_storeu_ps(e->value[i], v[i]);
        return;
    }
    e->first = 0;
    for (size_t i = 0; i < per_row; i++)
        for (size_t r = 0; r < LANES; r++)
            e->value[i][r] = _mm256_cvtss_f32(entry_values(_mm_cvtsi32_si128(table[index[r] * per_row + i])));
}

static inline void store_rows_apart(float *y, __m256 v, size_t apart)
{
    float row[LANES];
    _mm256_storeu_ps(row, v);
    for (size_t r = 0; r < LANES; r++)
        y[r * apart] = row[r];
}

static inline void store_rows(float *y, __m256 v, size_t n /* left */)
{
    if (n >= LANES)
        _mm256_storeu_ps(y, v);
    else
        avx2_store_part(y, v, n);
}

static inline __m256 load_rows(const float *y, size_t n, size_t half) /* 8 * half.. of n */
{
    size_t left = n > half * LANES ? n - half * LANES : 0;
    return left >= LANES ? _mm256_loadu_ps(y + half * LANES)
           : left        ? avx2_load_part(y + half * LANES, left)
                         : _mm256_setzero_ps();
}

/* acc + (sum - offset * sum_x) * (scale * scale_x) */
static inline __m256 add_block(__m256 acc, __m256i sum, __m256 offset, __m256 sum_x, __m256 scale, __m256 scale_x)
{
    __m256 total = _mm256_fnmadd_ps(offset, sum_x, _mm256_cvtepi32_ps(sum));
    return _mm256_fmadd_ps(total, _mm256_mul_ps(scale, scale_x), acc);
}

/* Absolute maximum of 32; NaN gives NaN or infinity. */
static inline float max_magnitude(__m256 a, __m256 b, __m256 c, __m256 d)
{
    __m256 clear = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256i ai = _mm256_castps_si256(_mm256_and_ps(a, clear)), bi = _mm256_castps_si256(_mm256_and_ps(b, clear));
    __m256i ci = _mm256_castps_si256(_mm256_and_ps(c, clear)), di = _mm256_castps_si256(_mm256_and_ps(d, clear));
    __m256i max = _mm256_max_epi32(_mm256_max_epi32(ai, bi), _mm256_max_epi32(ci, di)); /* ordered as floats are */
    __m128i half = _mm_max_epi32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(half));
}

/* 32 codes of up to `limit` in order, as four vectors of int32; sets the block's scale and sum. */
static inline void quantize_block(__m256i code[4], const float *x, float limit, float *scale, float *sum)
{
    __m256 v[4];
    for (size_t i = 0; i < 4; i++)
        v[i] = _mm256_loadu_ps(x + 8 * i);
    float max = max_magnitude(v[0], v[1], v[2], v[3]);
    bool finite = max < INFINITY;
    float factor = finite && max >= 1e-30f ? limit / max : 0.0f;
    __m256i total = _mm256_setzero_si256();
    for (size_t i = 0; i < 4; i++) {
        code[i] = factor > 0 ? _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(factor))) : _mm256_setzero_si256();
        total = _mm256_add_epi32(total, code[i]);
    }
    *scale = !finite ? NAN : factor > 0 ? max / limit : 0.0f;
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(total), _mm256_extracti128_si256(total, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
    *sum = (float)_mm_cvtsi128_si32(s);
}

static inline float block_max(const float *x)
{
    return max_magnitude(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8), _mm256_loadu_ps(x + 16), _mm256_loadu_ps(x + 24));
}

/* A product, as seen by what multiplies eight rows of weights. */
typedef struct coded_job {
    const pome_coded_rows *w;
    q8_view x; /* the first row */
    size_t row_bytes, per_row, blocks_per_entry;
    const struct palette *palette;
} coded_job;

/* Entries of `n_blocks` blocks from `first` on to columns 8 * half.. of dst. */
static inline void spread_entries(float (*dst)[CODED_TILE], const uint16_t *table, const coded_job *job, const row_group *g,
                                  size_t first, size_t n_blocks, size_t half)
{
    entries e;
    for (size_t b = 0; b < n_blocks;) {
        load_entries(&e, table, job->per_row, g->index, (first + b) / job->blocks_per_entry);
        size_t end = (e.first + LANES) * job->blocks_per_entry - first;
        for (end = end < n_blocks ? end : n_blocks; b < end; b++)
            _mm256_store_ps(dst[b] + half * LANES,
                            _mm256_loadu_ps(e.value[(first + b) / job->blocks_per_entry - e.first]));
    }
}

/* Multiplies eight rows of weights with as many rows of activations from x on as its place in a table says. */
typedef void few_fn(__m256 *acc, const coded_job *job, const row_group *g, q8_view x);

/* Rows of activations, up to AT_ONCE at a time; one at a time where the rows of weights end. */
static inline void times_few(float *y, size_t ldy, size_t m, const coded_job *job, size_t n,
                             size_t code_bytes, size_t short_row, few_fn *const few[AT_ONCE + 1])
{
    __m256 acc[AT_ONCE];
    size_t apart = rows_between(n, job->row_bytes, short_row); /* each lane goes through rows that follow one another */
    for (size_t j = 0; j < n; j += j < apart ? 1 : LANES) {
        j = j == apart ? apart * LANES : j;
        if (j >= n)
            break;
        row_group g = rows_apart(job->w, job->row_bytes, j, j < apart ? apart : 1, n);
        for (size_t i = 0, len; i < m; i += len) {
            len = m - i < AT_ONCE ? m - i : AT_ONCE;
            len = n - j < LANES ? 1 : len;
            few[len](acc, job, &g, q8_row(job->x.codes, job->w->k, code_bytes, i));
            for (size_t r = 0; r < len; r++) {
                if (g.is_apart)
                    store_rows_apart(y + (i + r) * ldy + j, acc[r], apart);
                else
                    store_rows(y + (i + r) * ldy + j, acc[r], n - j);
            }
        }
    }
}

void pome_coded_fill_nibbles_avx2(pome_kernels *k);
void pome_coded_fill_words_avx2(pome_kernels *k);

#endif
