/* Products of 8-bit weights and of palettes with int8 activations for AVX2. Both operands are widened to 16 bits
 * and multiplied in pairs: 8-bit codes times 8-bit codes overflow the 16-bit sums of the byte instruction, and a palette
 * keeps 16 bits of its entries. So activations may have 12 bits as well: a block's sum stays below 2^31.
 *
 * Activations lie in order. For palettes eights of a pair of blocks take turns, one of block 0, one of block 1: for 16
 * entries even elements 0..7, 8..15, then the odd ones likewise, what unpacking looked-up bytes gives; for more entries
 * elements in order, but the two of a pair exchanged.
 *
 * Palettes of 16 and 64 entries are looked up by byte shuffles, 256 entries in memory (palette_avx2.h says why).
 *
 * One row of activations takes eight rows of weights as they lie; so do two to four, with each vector of weights that was
 * widened or looked up (palettes of 16). More rows share a tile of 16 rows by 512 columns, unpacked to [k/2][16][2] words
 * (16 KB). */
#include "kernels/x86/coded_avx2.h"
#include "kernels/x86/palette_avx2.h"

enum { TILE = CODED_TILE, TILE_BLOCKS = 16, STEPS = Q8_BLOCK / 2, SHORT_WORDS = 200 /* bytes */ };

typedef struct tile {
    int16_t codes[TILE_BLOCKS][STEPS][TILE][2];
    float scale[TILE_BLOCKS][TILE], offset[TILE_BLOCKS][TILE];
} tile;

typedef enum word_kind { SIGNED_BYTES, BYTES, PALETTE, PALETTE64, PALETTE256 } word_kind;

static inline bool is_palette(word_kind kind)
{
    return kind >= PALETTE;
}

static inline size_t block_bytes(word_kind kind)
{
    return kind == PALETTE ? 16 : kind == PALETTE64 ? 24 : 32;
}

/* ---- activations ---- */

static size_t q8_size(size_t m, size_t k)
{
    return m * q8_row_bytes(k, 2);
}

static inline void store_half(int16_t *p, __m128i v)
{
    _mm_storeu_si128((__m128i *)(void *)p, v);
}

typedef enum q8_order { IN_ORDER, EVEN_ODD, EXCHANGED } q8_order;

static inline __attribute__((always_inline)) void set(void *q8, size_t k, size_t first, size_t n, const float *x, size_t ldx,
                                                      q8_order order)
{
    __m256i even_first = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
    for (size_t i = 0; i < n; i++) {
        q8_view row = q8_row(q8, k, 2, first + i);
        int16_t *codes = (int16_t *)(uintptr_t)row.codes;
        float *scale = (float *)(uintptr_t)row.scale, *sum = (float *)(uintptr_t)row.sum;
        if (k % Q8_PAIR) {
            memset(codes + k / Q8_PAIR * Q8_PAIR, 0, Q8_PAIR * sizeof *codes);
            scale[k / Q8_BLOCK] = sum[k / Q8_BLOCK] = 0;
        }
        for (size_t b = 0; b < k / Q8_BLOCK; b++) {
            __m256i c[4];
            quantize_block(c, x + i * ldx + b * Q8_BLOCK, POME_Q12_LIMIT, scale + b, sum + b);
            for (size_t h = 0; h < 2; h++) { /* elements 16h.. */
                __m256i v = _mm256_permute4x64_epi64(_mm256_packs_epi32(c[2 * h], c[2 * h + 1]), 0xd8);
                int16_t *at = codes + b / 2 * Q8_PAIR + (order == IN_ORDER ? b % 2 * Q8_BLOCK : b % 2 * 8) +
                              (order == EXCHANGED ? 32 : 16) * h;
                if (order == EVEN_ODD)
                    v = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(v, even_first), 0xd8);
                if (order == EXCHANGED)
                    v = _mm256_shufflehi_epi16(_mm256_shufflelo_epi16(v, 0xb1), 0xb1);
                store_half(at, _mm256_castsi256_si128(v));
                store_half(at + (order == IN_ORDER ? 8 : order == EVEN_ODD ? 32 : 16), _mm256_extracti128_si256(v, 1));
            }
        }
    }
}

#define Q8_SET(name, order)                                                                                            \
    static void name(void *q8, size_t m, size_t k, size_t first, size_t n, const float *x, size_t ldx)                 \
    {                                                                                                                  \
        (void)m;                                                                                                       \
        set(q8, k, first, n, x, ldx, order);                                                                           \
    }
Q8_SET(q8_set_bytes, IN_ORDER)
Q8_SET(q8_set_palette, EVEN_ODD)
Q8_SET(q8_set_exchanged, EXCHANGED)

/* ---- weights ---- */

/* 32 bytes of nibbles: words of even elements in v[0], v[1] and odd ones in v[2], v[3], by halves of the vector. */
static inline void look_up(__m256i v[4], __m256i bytes, const palette *p)
{
    __m256i mask = _mm256_set1_epi8(15), low = _mm256_broadcastsi128_si256(p->low);
    __m256i high = _mm256_broadcastsi128_si256(p->high);
    __m256i even = _mm256_and_si256(bytes, mask), odd = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
    __m256i l = _mm256_shuffle_epi8(low, even), h = _mm256_shuffle_epi8(high, even);
    v[0] = _mm256_unpacklo_epi8(l, h);
    v[1] = _mm256_unpackhi_epi8(l, h);
    l = _mm256_shuffle_epi8(low, odd);
    h = _mm256_shuffle_epi8(high, odd);
    v[2] = _mm256_unpacklo_epi8(l, h);
    v[3] = _mm256_unpackhi_epi8(l, h);
}

static inline __m256i widen(__m128i bytes, word_kind kind)
{
    return kind == BYTES ? _mm256_cvtepu8_epi16(bytes) : _mm256_cvtepi8_epi16(bytes);
}

/* ---- one row of activations ---- */

static inline __m256i sum_four(const __m256i v[4])
{
    return _mm256_hadd_epi32(_mm256_hadd_epi32(v[0], v[1]), _mm256_hadd_epi32(v[2], v[3]));
}

/* Sums of a pair of blocks, one row to a lane. */
static inline void palette_pair(__m256i sum[2], const row_group *g, size_t b, bool whole, const int16_t *x,
                                const palette *p)
{
    __m256i v[LANES], xv[4];
    for (size_t i = 0; i < 4; i++)
        xv[i] = _mm256_load_si256((const __m256i *)(const void *)(x + b * Q8_BLOCK + 16 * i));
    for (size_t r = 0; r < LANES; r++) {
        const __m256i *at = (const __m256i *)(const void *)(g->codes[r] + b * 16);
        __m256i w[4];
        look_up(w, whole ? _mm256_loadu_si256(at) : _mm256_zextsi128_si256(_mm_loadu_si128((const __m128i *)at)), p);
        v[r] = _mm256_add_epi32(_mm256_add_epi32(_mm256_madd_epi16(w[0], xv[0]), _mm256_madd_epi16(w[1], xv[1])),
                                _mm256_add_epi32(_mm256_madd_epi16(w[2], xv[2]), _mm256_madd_epi16(w[3], xv[3])));
    }
    __m256i a = sum_four(v), c = sum_four(v + 4);
    sum[0] = _mm256_permute2x128_si256(a, c, 0x20);
    sum[1] = _mm256_permute2x128_si256(a, c, 0x31);
}

/* Sums of a pair of blocks of eight rows by halves of vectors. Past the row's end the last block counts again. */
static inline __attribute__((always_inline)) void rows_of_64(__m256i v[LANES], const row_group *g, size_t at, size_t next,
                                                             const __m256i *x, const palette *p)
{
    for (size_t first = 0; first < LANES; first += 4) {
        code_places places;
        for (size_t r = 0; r < 4; r++) {
            places.low[r] = g->codes[first + r] + at;
            places.high[r] = places.low[r] + next;
        }
        for (size_t h = 0; h < 2; h++) {
            __m256i w[4][2];
            look_up64(w, &places, h, p);
            for (size_t r = 0; r < 4; r++) {
                __m256i s = _mm256_add_epi32(_mm256_madd_epi16(w[r][0], _mm256_load_si256(x + 2 * h)),
                                             _mm256_madd_epi16(w[r][1], _mm256_load_si256(x + 2 * h + 1)));
                v[first + r] = h ? _mm256_add_epi32(v[first + r], s) : s;
            }
        }
    }
}

static inline __attribute__((always_inline)) void rows_of_256(__m256i v[LANES], const row_group *g, size_t at, size_t next,
                                                              const __m256i *x, const palette *p)
{
    for (size_t r = 0; r < LANES; r++) {
        const uint8_t *codes = g->codes[r] + at;
        __m256i s = _mm256_madd_epi16(look_up256(codes, codes + next, 0, p), _mm256_load_si256(x));
        for (size_t i = 1; i < 4; i++)
            s = _mm256_add_epi32(s, _mm256_madd_epi16(look_up256(codes, codes + next, i, p), _mm256_load_si256(x + i)));
        v[r] = s;
    }
}

static inline __attribute__((always_inline)) void large_palette_pair(__m256i sum[2], const row_group *g, size_t b, bool whole,
                                                                     const int16_t *x, word_kind kind, const palette *p)
{
    const __m256i *xv = (const __m256i *)(const void *)(x + b * Q8_BLOCK);
    __m256i v[LANES];
    if (kind == PALETTE64)
        rows_of_64(v, g, b * block_bytes(kind), whole ? block_bytes(kind) : 0, xv, p);
    else
        rows_of_256(v, g, b * block_bytes(kind), whole ? block_bytes(kind) : 0, xv, p);
    __m256i a = sum_four(v), c = sum_four(v + 4);
    sum[0] = _mm256_permute2x128_si256(a, c, 0x20);
    sum[1] = _mm256_permute2x128_si256(a, c, 0x31);
}

static inline __m256i bytes_block(const row_group *g, size_t b, const int16_t *x, word_kind kind)
{
    __m256i v[LANES], x0 = _mm256_load_si256((const __m256i *)(const void *)(x + b * Q8_BLOCK)),
                      x1 = _mm256_load_si256((const __m256i *)(const void *)(x + b * Q8_BLOCK + 16));
    for (size_t r = 0; r < LANES; r++) {
        const __m128i *at = (const __m128i *)(const void *)(g->codes[r] + b * Q8_BLOCK);
        v[r] = _mm256_add_epi32(_mm256_madd_epi16(widen(_mm_loadu_si128(at), kind), x0),
                                _mm256_madd_epi16(widen(_mm_loadu_si128(at + 1), kind), x1));
    }
    __m256i a = sum_four(v), c = sum_four(v + 4);
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, c, 0x20), _mm256_permute2x128_si256(a, c, 0x31));
}

static inline __attribute__((always_inline)) __m256 eight_rows(const coded_job *job, const row_group *g, word_kind kind,
                                                               const palette *p)
{
    size_t n_blocks = job->w->k / Q8_BLOCK, per_entry = job->blocks_per_entry;
    const int16_t *x = (const int16_t *)job->x.codes;
    bool has_offset = kind == BYTES && job->w->offset_f16;
    entries scale, offset;
    __m256 acc = _mm256_setzero_ps(), unit = _mm256_set1_ps(p->unit), zero = _mm256_setzero_ps();
    for (size_t b = 0; b < n_blocks;) {
        size_t end = n_blocks;
        if (!is_palette(kind)) {
            load_entries(&scale, job->w->scale_f16, job->per_row, g->index, b / per_entry);
            if (has_offset)
                load_entries(&offset, job->w->offset_f16, job->per_row, g->index, b / per_entry);
            end = (scale.first + LANES) * per_entry;
        }
        for (end = end < n_blocks ? end : n_blocks; b < end; b += 2) {
            __m256i sum[2];
            if (kind == PALETTE) {
                if (b % 4 == 0)
                    prefetch_rows(g, b * 16, job->row_bytes);
                palette_pair(sum, g, b, b + 1 < n_blocks, x, p);
            } else if (is_palette(kind)) {
                prefetch_rows(g, b * block_bytes(kind), job->row_bytes);
                large_palette_pair(sum, g, b, b + 1 < n_blocks, x, kind, p);
            } else {
                prefetch_rows(g, b * Q8_BLOCK, job->row_bytes);
                sum[0] = bytes_block(g, b, x, kind);
                sum[1] = b + 1 < n_blocks ? bytes_block(g, b + 1, x, kind) : sum[0];
            }
            for (size_t h = 0; h < 2 && b + h < n_blocks; h++) {
                size_t entry = is_palette(kind) ? 0 : (b + h) / per_entry - scale.first;
                acc = add_block(acc, sum[h], has_offset ? _mm256_loadu_ps(offset.value[entry]) : zero,
                                _mm256_broadcast_ss(job->x.sum + b + h),
                                is_palette(kind) ? unit : _mm256_loadu_ps(scale.value[entry]),
                                _mm256_broadcast_ss(job->x.scale + b + h));
            }
        }
    }
    return acc;
}

/* ---- a few rows of activations ---- */

static inline __m256i load_words(const int16_t *x)
{
    return _mm256_load_si256((const __m256i *)(const void *)x);
}

/* As palette_pair and bytes_block, with m rows of activations that are x_words apart. */
static inline __attribute__((always_inline)) void palette_pair_few(__m256i (*sum)[2], const row_group *g, size_t b, bool whole,
                                                                   const int16_t *x, size_t x_words, size_t m,
                                                                   const palette *p)
{
    __m256i v[AT_ONCE][LANES];
    x += b * Q8_BLOCK;
    for (size_t r = 0; r < LANES; r++) {
        const __m256i *at = (const __m256i *)(const void *)(g->codes[r] + b * 16);
        __m256i w[4];
        look_up(w, whole ? _mm256_loadu_si256(at) : _mm256_zextsi128_si256(_mm_loadu_si128((const __m128i *)at)), p);
        for (size_t i = 0; i < m; i++) {
            const int16_t *xi = x + i * x_words;
            v[i][r] = _mm256_add_epi32(_mm256_add_epi32(_mm256_madd_epi16(w[0], load_words(xi)),
                                                        _mm256_madd_epi16(w[1], load_words(xi + 16))),
                                       _mm256_add_epi32(_mm256_madd_epi16(w[2], load_words(xi + 32)),
                                                        _mm256_madd_epi16(w[3], load_words(xi + 48))));
        }
    }
    for (size_t i = 0; i < m; i++) {
        __m256i a = sum_four(v[i]), c = sum_four(v[i] + 4);
        sum[i][0] = _mm256_permute2x128_si256(a, c, 0x20);
        sum[i][1] = _mm256_permute2x128_si256(a, c, 0x31);
    }
}

static inline __attribute__((always_inline)) void bytes_block_few(__m256i (*sum)[2], size_t h, const row_group *g, size_t b,
                                                                  const int16_t *x, size_t x_words, size_t m, word_kind kind)
{
    __m256i v[AT_ONCE][LANES];
    x += b * Q8_BLOCK;
    for (size_t r = 0; r < LANES; r++) {
        const __m128i *at = (const __m128i *)(const void *)(g->codes[r] + b * Q8_BLOCK);
        __m256i w0 = widen(_mm_loadu_si128(at), kind), w1 = widen(_mm_loadu_si128(at + 1), kind);
        for (size_t i = 0; i < m; i++)
            v[i][r] = _mm256_add_epi32(_mm256_madd_epi16(w0, load_words(x + i * x_words)),
                                       _mm256_madd_epi16(w1, load_words(x + i * x_words + 16)));
    }
    for (size_t i = 0; i < m; i++) {
        __m256i a = sum_four(v[i]), c = sum_four(v[i] + 4);
        sum[i][h] = _mm256_add_epi32(_mm256_permute2x128_si256(a, c, 0x20), _mm256_permute2x128_si256(a, c, 0x31));
    }
}

/* m (2 to AT_ONCE) rows of activations from x on. */
static inline __attribute__((always_inline)) void eight_rows_few(__m256 *result, const coded_job *job, const row_group *g,
                                                                 q8_view x, size_t m, word_kind kind)
{
    size_t n_blocks = job->w->k / Q8_BLOCK, per_entry = job->blocks_per_entry, x_bytes = q8_row_bytes(job->w->k, 2);
    const int16_t *codes = (const int16_t *)x.codes;
    bool has_offset = kind == BYTES && job->w->offset_f16;
    entries scale, offset;
    __m256 acc[AT_ONCE], unit = _mm256_set1_ps(kind == PALETTE ? job->palette->unit : 0), zero = _mm256_setzero_ps();
    for (size_t i = 0; i < m; i++)
        acc[i] = zero;
    for (size_t b = 0, end = n_blocks, entry = 0, next = n_blocks; b < n_blocks;) {
        if (kind != PALETTE) {
            load_entries(&scale, job->w->scale_f16, job->per_row, g->index, b / per_entry);
            if (has_offset)
                load_entries(&offset, job->w->offset_f16, job->per_row, g->index, b / per_entry);
            entry = b / per_entry - scale.first;
            next = (b / per_entry + 1) * per_entry;
            end = (scale.first + LANES) * per_entry;
            end = end < n_blocks ? end : n_blocks;
        }
        for (; b < end; b += 2) {
            __m256i sum[AT_ONCE][2];
            bool whole = b + 1 < n_blocks;
            if (kind == PALETTE) {
                if (b % 4 == 0)
                    prefetch_rows(g, b * 16, job->row_bytes);
                palette_pair_few(sum, g, b, whole, codes, x_bytes / 2, m, job->palette);
            } else {
                prefetch_rows(g, b * Q8_BLOCK, job->row_bytes);
                bytes_block_few(sum, 0, g, b, codes, x_bytes / 2, m, kind);
                if (whole)
                    bytes_block_few(sum, 1, g, b + 1, codes, x_bytes / 2, m, kind);
            }
            for (size_t h = 0; h < 2 && b + h < n_blocks; h++) {
                __m256 s = kind == PALETTE ? unit : _mm256_loadu_ps(scale.value[entry]);
                __m256 o = has_offset ? _mm256_loadu_ps(offset.value[entry]) : zero;
                for (size_t i = 0; i < m; i++) {
                    q8_view xi = q8_row(x.codes, job->w->k, 2, i);
                    acc[i] = add_block(acc[i], sum[i][h], o, _mm256_broadcast_ss(xi.sum + b + h), s,
                                       _mm256_broadcast_ss(xi.scale + b + h));
                }
                if (kind != PALETTE && b + h + 1 == next) {
                    entry++;
                    next += per_entry;
                }
            }
        }
    }
    for (size_t i = 0; i < m; i++)
        result[i] = acc[i];
}

#define FEW_ROWS(name, kind)                                                                                           \
    static void name##_1(__m256 *acc, const coded_job *job, const row_group *g, q8_view x)                             \
    {                                                                                                                  \
        coded_job one = *job;                                                                                          \
        one.x = x;                                                                                                     \
        acc[0] = eight_rows(&one, g, kind, job->palette);                                                              \
    }                                                                                                                  \
    static void name##_2(__m256 *acc, const coded_job *job, const row_group *g, q8_view x)                             \
    {                                                                                                                  \
        eight_rows_few(acc, job, g, x, 2, kind);                                                                       \
    }                                                                                                                  \
    static void name##_3(__m256 *acc, const coded_job *job, const row_group *g, q8_view x)                             \
    {                                                                                                                  \
        eight_rows_few(acc, job, g, x, 3, kind);                                                                       \
    }                                                                                                                  \
    static void name##_4(__m256 *acc, const coded_job *job, const row_group *g, q8_view x)                             \
    {                                                                                                                  \
        eight_rows_few(acc, job, g, x, 4, kind);                                                                       \
    }                                                                                                                  \
    static few_fn *const name[AT_ONCE + 1] = {NULL, name##_1, name##_2, name##_3, name##_4};
FEW_ROWS(few_signed, SIGNED_BYTES)
FEW_ROWS(few_bytes, BYTES)
FEW_ROWS(few_palette, PALETTE)

/* ---- many rows of activations ---- */

/* Four steps of eight rows from words of rows r and r + 4 in the halves of v[r]. */
static inline void store_steps(int16_t (*dst)[TILE][2], const __m256i v[4])
{
    __m256i a = _mm256_unpacklo_epi32(v[0], v[1]), b = _mm256_unpackhi_epi32(v[0], v[1]);
    __m256i c = _mm256_unpacklo_epi32(v[2], v[3]), d = _mm256_unpackhi_epi32(v[2], v[3]);
    _mm256_store_si256((__m256i *)(void *)dst[0], _mm256_unpacklo_epi64(a, c));
    _mm256_store_si256((__m256i *)(void *)dst[1], _mm256_unpackhi_epi64(a, c));
    _mm256_store_si256((__m256i *)(void *)dst[2], _mm256_unpacklo_epi64(b, d));
    _mm256_store_si256((__m256i *)(void *)dst[3], _mm256_unpackhi_epi64(b, d));
}

static inline __m128i load_half(const uint8_t *p)
{
    return _mm_loadl_epi64((const __m128i *)(const void *)p);
}

static inline void unpack_block(int16_t (*dst)[TILE][2], const row_group *g, size_t b, word_kind kind, const palette *p)
{
    __m256i v[4][4]; /* [quarter][row] */
    if (is_palette(kind) && kind != PALETTE) {
        code_places at;
        for (size_t r = 0; r < 4; r++) {
            at.low[r] = g->codes[r] + b * block_bytes(kind);
            at.high[r] = g->codes[r + 4] + b * block_bytes(kind);
        }
        for (size_t h = 0; h < 2 && kind == PALETTE64; h++) {
            __m256i words[4][2];
            look_up64(words, &at, h, p);
            for (size_t r = 0; r < 4; r++) {
                v[2 * h][r] = words[r][0];
                v[2 * h + 1][r] = words[r][1];
            }
        }
        for (size_t r = 0; r < 4 && kind == PALETTE256; r++)
            for (size_t q = 0; q < 4; q++)
                v[q][r] = look_up256(at.low[r], at.high[r], q, p);
    }
    for (size_t r = 0; r < 4 && kind == PALETTE; r++) {
        __m256i words[4];
        look_up(words,
                _mm256_setr_m128i(_mm_loadu_si128((const __m128i *)(const void *)(g->codes[r] + b * 16)),
                                  _mm_loadu_si128((const __m128i *)(const void *)(g->codes[r + 4] + b * 16))),
                p);
        for (size_t q = 0; q < 4; q++)
            v[q][r] = words[q];
    }
    for (size_t r = 0; r < 4 && !is_palette(kind); r++)
        for (size_t q = 0; q < 4; q++)
            v[q][r] = widen(_mm_unpacklo_epi64(load_half(g->codes[r] + b * Q8_BLOCK + 8 * q),
                                               load_half(g->codes[r + 4] + b * Q8_BLOCK + 8 * q)),
                            kind);
    for (size_t q = 0; q < 4; q++)
        store_steps(dst + 4 * q, v[q]);
}

static void unpack_tile(tile *t, const coded_job *job, const row_group g[2], size_t first, size_t n_blocks,
                        word_kind kind, const palette *p)
{
    for (size_t half = 0; half < 2; half++) {
        for (size_t b = 0; b < n_blocks; b++)
            unpack_block((int16_t(*)[TILE][2])(void *)t->codes[b][0][half * LANES], &g[half], first + b, kind, p);
        if (!is_palette(kind))
            spread_entries(t->scale, job->w->scale_f16, job, &g[half], first, n_blocks, half);
        if (kind == BYTES && job->w->offset_f16)
            spread_entries(t->offset, job->w->offset_f16, job, &g[half], first, n_blocks, half);
        for (size_t b = 0; b < n_blocks; b++) {
            if (is_palette(kind))
                _mm256_store_ps(t->scale[b] + half * LANES, _mm256_set1_ps(p->unit));
            if (kind != BYTES || !job->w->offset_f16)
                _mm256_store_ps(t->offset[b] + half * LANES, _mm256_setzero_ps());
        }
    }
}

/* n_x (1 to 4) rows of activations with a tile; n rows of weights are wanted. */
static inline __attribute__((always_inline)) void multiply_tile(float *y, size_t ldy, const void *q8, size_t k,
                                                                size_t i, const tile *t, size_t first, size_t n_blocks,
                                                                size_t n, size_t n_x, bool split)
{
    __m256 acc[4][2];
    q8_view x[4];
    for (size_t r = 0; r < n_x; r++) {
        x[r] = q8_row(q8, k, 2, i + r);
        for (size_t h = 0; h < 2; h++)
            acc[r][h] = first ? load_rows(y + r * ldy, n, h) : _mm256_setzero_ps();
    }
    for (size_t b = 0; b < n_blocks; b++) {
        __m256i sum[4][2];
        for (size_t r = 0; r < n_x; r++)
            sum[r][0] = sum[r][1] = _mm256_setzero_si256();
        size_t at = split ? (first + b) / 2 * Q8_PAIR + (first + b) % 2 * 8 : (first + b) * Q8_BLOCK;
        const int16_t *w = t->codes[b][0][0];
        for (size_t q = 0; q < 4; q++, at += split ? 16 : 8) {
                for (size_t s = 0; s < STEPS / 4; s++, w += TILE * 2) {
                __m256i w0 = _mm256_load_si256((const __m256i *)(const void *)w);
                __m256i w1 = _mm256_load_si256((const __m256i *)(const void *)(w + LANES * 2));
                for (size_t r = 0; r < n_x; r++) {
                    int32_t two;
                    memcpy(&two, (const int16_t *)x[r].codes + at + 2 * s, sizeof two);
                    __m256i xv = _mm256_set1_epi32(two);
                    sum[r][0] = _mm256_add_epi32(sum[r][0], _mm256_madd_epi16(w0, xv));
                    sum[r][1] = _mm256_add_epi32(sum[r][1], _mm256_madd_epi16(w1, xv));
                    keep_order(&sum[r][0], &sum[r][1]);
                }
            }
        }
        for (size_t r = 0; r < n_x; r++)
            for (size_t h = 0; h < 2; h++)
                acc[r][h] = add_block(acc[r][h], sum[r][h], _mm256_load_ps(t->offset[b] + h * LANES),
                                      _mm256_broadcast_ss(x[r].sum + first + b), _mm256_load_ps(t->scale[b] + h * LANES),
                                      _mm256_broadcast_ss(x[r].scale + first + b));
    }
    for (size_t r = 0; r < n_x; r++)
        for (size_t h = 0; h < 2 && n > h * LANES; h++)
            store_rows(y + r * ldy + h * LANES, acc[r][h], n - h * LANES);
}

static inline __attribute__((always_inline)) void many(float *y, size_t ldy, const void *q8, size_t m,
                                                       const coded_job *job, size_t n, tile *t, word_kind kind,
                                                       const palette *p)
{
    size_t n_blocks = job->w->k / Q8_BLOCK, k = job->w->k;
    bool split = is_palette(kind);
    for (size_t j = 0; j < n; j += TILE) {
        row_group g[2] = {rows_from(job->w, job->row_bytes, j, n), rows_from(job->w, job->row_bytes, j + LANES, n)};
        for (size_t first = 0; first < n_blocks; first += TILE_BLOCKS) {
            size_t len = n_blocks - first < TILE_BLOCKS ? n_blocks - first : TILE_BLOCKS, i = 0;
            unpack_tile(t, job, g, first, len, kind, p);
            for (; i + 4 <= m; i += 4)
                multiply_tile(y + i * ldy + j, ldy, q8, k, i, t, first, len, n - j, 4, split);
            if (i + 2 <= m) {
                multiply_tile(y + i * ldy + j, ldy, q8, k, i, t, first, len, n - j, 2, split);
                i += 2;
            }
            if (i < m)
                multiply_tile(y + i * ldy + j, ldy, q8, k, i, t, first, len, n - j, 1, split);
        }
    }
}

static size_t scratch_size(size_t m, size_t k)
{
    (void)k;
    return m > 1 ? sizeof(tile) : 0; /* few rows of some kinds would do without */
}

static inline __attribute__((always_inline)) void times(float *y, size_t ldy, const void *q8, size_t m,
                                                        const pome_coded_rows *w, size_t n, void *scratch,
                                                        word_kind kind)
{
    size_t block = is_palette(kind) ? w->k : w->block;
    palette p;
    coded_job job = {w, q8_row(q8, w->k, 2, 0), w->k / Q8_BLOCK * block_bytes(kind), w->k / block, block / Q8_BLOCK, &p};
    p.unit = 0;
    if (is_palette(kind))
        set_palette(&p, w->table_f16, kind == PALETTE ? 16 : kind == PALETTE64 ? 64 : 256);
    few_fn *const *few = kind == PALETTE ? few_palette : kind == BYTES ? few_bytes : kind == SIGNED_BYTES ? few_signed : NULL;
    if (few && m > 1 && m <= AT_ONCE) {
        times_few(y, ldy, m, &job, n, 2, SHORT_WORDS, few);
        return;
    }
    if (m != 1) {
        many(y, ldy, q8, m, &job, n, (tile *)scratch, kind, &p);
        return;
    }
    size_t apart = rows_between(n, job.row_bytes, SHORT_WORDS); /* each lane goes through rows that follow one another */
    for (size_t step = 0; step < apart + (n - apart * LANES + LANES - 1) / LANES; step++) {
        bool is_apart = step < apart;
        size_t j = is_apart ? step : apart * LANES + (step - apart) * LANES;
        row_group g = rows_apart(w, job.row_bytes, j, is_apart ? apart : 1, n);
        __m256 sum = eight_rows(&job, &g, kind, &p);
        if (is_apart)
            store_rows_apart(y + j, sum, apart);
        else
            store_rows(y + j, sum, n - j);
    }
}

static void times_i8(float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w, size_t n, void *scratch)
{
    times(y, ldy, q8, m, w, n, scratch, SIGNED_BYTES);
}

static void times_u8(float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w, size_t n, void *scratch)
{
    times(y, ldy, q8, m, w, n, scratch, BYTES);
}

static void times_lut4(float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w, size_t n,
                       void *scratch)
{
    times(y, ldy, q8, m, w, n, scratch, PALETTE);
}

static void times_lut6(float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w, size_t n, void *scratch)
{
    times(y, ldy, q8, m, w, n, scratch, PALETTE64);
}

static void times_lut8(float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w, size_t n, void *scratch)
{
    times(y, ldy, q8, m, w, n, scratch, PALETTE256);
}

void pome_coded_fill_words_avx2(pome_kernels *k)
{
    k->coded[POME_CODES_I8] = (pome_coded_kernels){q8_size, q8_set_bytes, scratch_size, times_i8};
    k->coded[POME_CODES_U8] = (pome_coded_kernels){q8_size, q8_set_bytes, scratch_size, times_u8};
    k->coded[POME_CODES_LUT4] = (pome_coded_kernels){q8_size, q8_set_palette, scratch_size, times_lut4};
    k->coded[POME_CODES_LUT6] = (pome_coded_kernels){q8_size, q8_set_exchanged, scratch_size, times_lut6};
    k->coded[POME_CODES_LUT8] = (pome_coded_kernels){q8_size, q8_set_exchanged, scratch_size, times_lut8};
}
