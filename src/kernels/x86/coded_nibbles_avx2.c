/* Products of 4-bit weights (int4, or uint4 with offsets) with int8 activations for AVX2.
 *
 * int4 becomes unsigned by flipping the sign bit and is then uint4 with offset 8. Even elements are the low nibbles of
 * a row's bytes, odd ones the high nibbles, so a pair of blocks of activations lies as the 32 even codes of both, then
 * their 32 odd ones.
 *
 * One row of activations: 32 bytes of each of eight rows of weights are masked and multiplied as they lie. A 16-bit
 * lane takes 4 products (7620 at most) and is added to three others (30480 < 2^15) on the way to one lane per row.
 *
 * Up to eight rows: a block of eight rows of weights is unpacked to registers, one row to a lane of four elements, and
 * multiplied with up to four rows of activations in turn, whose codes are broadcast. It is read in the same order as for
 * one row, and each row of activations adds a fifth to a third of the time that one takes in the cache.
 *
 * An element that is far larger than the rest of its row has code 0 and is multiplied in fp32 after the blocks.
 *
 * More rows: a tile of 16 rows by 1024 columns is unpacked once to [k/4][16][4] bytes (16 KB: it stays in the first
 * level of the cache) and multiplied with four rows of activations at a time; a 16-bit lane takes the 16 products of a
 * block (30480 at most). */
#include "kernels/x86/coded_avx2.h"

enum {
    TILE = CODED_TILE,
    TILE_BLOCKS = 32,   /* blocks along k */
    STEPS = Q8_BLOCK / 4,
    ODD_AT = Q8_BLOCK,  /* a pair's odd codes, after its even ones */
    COLUMNS = 16        /* of weights in fp32 that are remembered for one tile */
};

typedef struct tile {
    uint8_t codes[TILE_BLOCKS][STEPS][TILE][4];
    float scale[TILE_BLOCKS][TILE], offset[TILE_BLOCKS][TILE];
} tile;

/* ---- activations ---- */

static inline size_t even_at(size_t b)
{
    return b / 2 * Q8_PAIR + b % 2 * (Q8_BLOCK / 2);
}

static size_t q8_size(size_t m, size_t k)
{
    return m * q8_row_bytes(k, 1);
}

static void q8_set(void *q8, size_t m, size_t k, size_t first, size_t n, const float *x, size_t ldx)
{
    __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i even_first = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    (void)m;
    for (size_t i = 0; i < n; i++) {
        q8_view row = q8_row(q8, k, 1, first + i);
        int8_t *codes = (int8_t *)(uintptr_t)row.codes;
        float *scale = (float *)(uintptr_t)row.scale, *sum = (float *)(uintptr_t)row.sum, copy[Q8_BLOCK];
        pome_single single = pome_single_find(x + i * ldx, k, block_max);
        *(pome_single *)(uintptr_t)row.single = single;
        for (size_t b = 0; b < k / Q8_BLOCK; b++) {
            __m256i c[4];
            quantize_block(c, pome_single_without(&single, x + i * ldx, b, copy), POME_Q8_LIMIT, scale + b, sum + b);
            __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(c[0], c[1]), _mm256_packs_epi32(c[2], c[3]));
            bytes = _mm256_shuffle_epi8(_mm256_permutevar8x32_epi32(bytes, order), even_first);
            bytes = _mm256_permute4x64_epi64(bytes, 0xd8); /* [even][odd] */
            _mm_storeu_si128((__m128i *)(void *)(codes + even_at(b)), _mm256_castsi256_si128(bytes));
            _mm_storeu_si128((__m128i *)(void *)(codes + even_at(b) + ODD_AT), _mm256_extracti128_si256(bytes, 1));
        }
        if (k % Q8_PAIR) {
            size_t b = k / Q8_BLOCK;
            memset(codes + even_at(b), 0, Q8_BLOCK / 2);
            memset(codes + even_at(b) + ODD_AT, 0, Q8_BLOCK / 2);
            scale[b] = sum[b] = 0;
        }
    }
}

/* ---- the element without a code ---- */

/* Column `at` of eight rows of weights. */
static __m256 weights_column(const coded_job *job, const row_group *g, size_t at, bool is_signed, bool has_offset)
{
    const uint8_t *const *c = g->codes;
    const size_t *i = g->index, byte = at / 2, entry = at / job->w->block, n = job->per_row;
    const uint16_t *s = job->w->scale_f16 + entry, *o = has_offset ? job->w->offset_f16 + entry : NULL;
    __m256i code = _mm256_setr_epi32(c[0][byte], c[1][byte], c[2][byte], c[3][byte], c[4][byte], c[5][byte], c[6][byte], c[7][byte]);
    code = _mm256_and_si256(_mm256_srl_epi32(code, _mm_cvtsi32_si128((int)(at % 2 * 4))), _mm256_set1_epi32(15));
    __m128i scale = _mm_setr_epi16((short)s[i[0] * n], (short)s[i[1] * n], (short)s[i[2] * n], (short)s[i[3] * n],
                                   (short)s[i[4] * n], (short)s[i[5] * n], (short)s[i[6] * n], (short)s[i[7] * n]);
    __m256 offset = _mm256_setzero_ps();
    if (is_signed)
        code = _mm256_sub_epi32(_mm256_xor_si256(code, _mm256_set1_epi32(8)), _mm256_set1_epi32(8));
    if (has_offset)
        offset = entry_values(_mm_setr_epi16((short)o[i[0] * n], (short)o[i[1] * n], (short)o[i[2] * n], (short)o[i[3] * n],
                                             (short)o[i[4] * n], (short)o[i[5] * n], (short)o[i[6] * n], (short)o[i[7] * n]));
    return _mm256_mul_ps(_mm256_sub_ps(_mm256_cvtepi32_ps(code), offset), entry_values(scale));
}

/* Comes after the blocks. */
static inline __m256 add_single(__m256 acc, const coded_job *job, const row_group *g, const pome_single *x, bool is_signed,
                                bool has_offset)
{
    if (x->value == 0)
        return acc;
    return _mm256_fmadd_ps(_mm256_set1_ps(x->value), weights_column(job, g, x->at, is_signed, has_offset), acc);
}

/* ---- one row of activations ---- */

static inline __m256i flip_signs(__m256i bytes, bool is_signed)
{
    return is_signed ? _mm256_xor_si256(bytes, _mm256_set1_epi8((char)0x88)) : bytes;
}

/* Four products to a 16-bit lane: of block 0 in the low half, of block 1 in the high one. */
static inline __m256i multiply_pair(__m256i bytes, __m256i even, __m256i odd, bool is_signed)
{
    __m256i mask = _mm256_set1_epi8(15), w = flip_signs(bytes, is_signed);
    __m256i low = _mm256_and_si256(w, mask), high = _mm256_and_si256(_mm256_srli_epi16(w, 4), mask);
    return _mm256_add_epi16(_mm256_maddubs_epi16(low, even), _mm256_maddubs_epi16(high, odd));
}

/* Lanes of eight rows to one lane each: block 0 and block 1. */
static inline void reduce_rows(__m256i sum[2], const __m256i v[LANES])
{
    __m256i ones = _mm256_set1_epi16(1);
    __m256i a = _mm256_hadd_epi16(_mm256_hadd_epi16(v[0], v[1]), _mm256_hadd_epi16(v[2], v[3]));
    __m256i b = _mm256_hadd_epi16(_mm256_hadd_epi16(v[4], v[5]), _mm256_hadd_epi16(v[6], v[7]));
    a = _mm256_madd_epi16(a, ones);
    b = _mm256_madd_epi16(b, ones);
    sum[0] = _mm256_permute2x128_si256(a, b, 0x20);
    sum[1] = _mm256_permute2x128_si256(a, b, 0x31);
}

/* Sums of the pair of blocks b, b + 1 of eight rows; of b alone if it is the last. */
static inline __attribute__((always_inline)) void sum_pair(__m256i sum[2], const row_group *g, const int8_t *x, size_t b,
                                                           bool whole, bool is_signed, size_t ahead)
{
    __m256i v[LANES];
    __m256i even = _mm256_load_si256((const __m256i *)(const void *)(x + b * Q8_BLOCK));
    __m256i odd = _mm256_load_si256((const __m256i *)(const void *)(x + b * Q8_BLOCK + ODD_AT));
    for (size_t r = 0; r < LANES; r++) {
        const __m256i *p = (const __m256i *)(const void *)(g->codes[r] + b * (Q8_BLOCK / 2));
        if (b % 4 == 0)
            _mm_prefetch((const char *)g->codes[r] + ahead, _MM_HINT_T0);
        v[r] = multiply_pair(whole ? _mm256_loadu_si256(p) : _mm256_zextsi128_si256(_mm_loadu_si128((const __m128i *)p)),
                             even, odd, is_signed);
    }
    reduce_rows(sum, v);
}

/* Eight blocks at a time, each with entries of its own; leaves the last few, whose number comes back. */
static inline __attribute__((always_inline)) size_t eight_blocks(__m256 *acc, const coded_job *job, const row_group *g,
                                                                 bool is_signed, bool has_offset)
{
    size_t n_blocks = job->w->k / Q8_BLOCK, b = 0;
    const int8_t *x = (const int8_t *)job->x.codes;
    __m256 constant = _mm256_set1_ps(is_signed ? 8.0f : 0.0f), a = *acc;
    for (; b + LANES <= n_blocks; b += LANES) {
        __m256 scale[LANES], offset[LANES];
        __m256i sum[2];
        transpose_entries(scale, job->w->scale_f16, job->per_row, g->index, b);
        if (has_offset)
            transpose_entries(offset, job->w->offset_f16, job->per_row, g->index, b);
        for (size_t i = 0; i < LANES; i += 2) {
            sum_pair(sum, g, x, b + i, true, is_signed, prefetch_at(g, (b + i) * (Q8_BLOCK / 2), job->row_bytes));
            for (size_t h = 0; h < 2; h++)
                a = add_block(a, sum[h], has_offset ? offset[i + h] : constant,
                              _mm256_broadcast_ss(job->x.sum + b + i + h), scale[i + h],
                              _mm256_broadcast_ss(job->x.scale + b + i + h));
        }
    }
    *acc = a;
    return b;
}

static inline __attribute__((always_inline)) __m256 eight_rows(const coded_job *job, const row_group *g, bool is_signed,
                                                               bool has_offset, bool plain)
{
    size_t n_blocks = job->w->k / Q8_BLOCK, per_entry = plain ? 1 : job->blocks_per_entry, b = 0;
    const int8_t *x = (const int8_t *)job->x.codes;
    entries scale, offset;
    __m256 acc = _mm256_setzero_ps(), constant = _mm256_set1_ps(is_signed ? 8.0f : 0.0f);
    if (plain && g->is_apart) /* rows are long */
        b = eight_blocks(&acc, job, g, is_signed, has_offset);
    while (b < n_blocks) {
        load_entries(&scale, job->w->scale_f16, job->per_row, g->index, b / per_entry);
        if (has_offset)
            load_entries(&offset, job->w->offset_f16, job->per_row, g->index, b / per_entry);
        size_t end = (scale.first + LANES) * per_entry;
        for (end = end < n_blocks ? end : n_blocks; b < end; b += 2) {
            __m256i sum[2];
            sum_pair(sum, g, x, b, b + 1 < n_blocks, is_signed, prefetch_at(g, b * (Q8_BLOCK / 2), job->row_bytes));
            for (size_t h = 0; h < 2 && b + h < n_blocks; h++) {
                size_t entry = (b + h) / per_entry - scale.first;
                acc = add_block(acc, sum[h], has_offset ? _mm256_loadu_ps(offset.value[entry]) : constant,
                                _mm256_broadcast_ss(job->x.sum + b + h), _mm256_loadu_ps(scale.value[entry]),
                                _mm256_broadcast_ss(job->x.scale + b + h));
            }
        }
    }
    return add_single(acc, job, g, job->x.single, is_signed, has_offset);
}

/* ---- a few rows of activations ---- */

/* Rows r and r + 4 of a block in the halves of v[r], to one row to a lane of four elements: the even elements in turn, then
 * the odd ones. */
static inline __attribute__((always_inline)) void spread_rows(__m256i w[STEPS], const __m256i v[4], bool is_signed)
{
    __m256i t[4], u[4], mask = _mm256_set1_epi8(15);
    t[0] = _mm256_unpacklo_epi32(v[0], v[1]);
    t[1] = _mm256_unpackhi_epi32(v[0], v[1]);
    t[2] = _mm256_unpacklo_epi32(v[2], v[3]);
    t[3] = _mm256_unpackhi_epi32(v[2], v[3]);
    u[0] = _mm256_unpacklo_epi64(t[0], t[2]);
    u[1] = _mm256_unpackhi_epi64(t[0], t[2]);
    u[2] = _mm256_unpacklo_epi64(t[1], t[3]);
    u[3] = _mm256_unpackhi_epi64(t[1], t[3]);
    for (size_t s = 0; s < 4; s++) {
        __m256i bytes = flip_signs(u[s], is_signed);
        w[s] = _mm256_and_si256(bytes, mask);
        w[s + 4] = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask);
    }
}

static inline __m256i load_two(const uint8_t *low, const uint8_t *high)
{
    __m128i a = _mm_loadu_si128((const __m128i *)(const void *)low);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(a), _mm_loadu_si128((const __m128i *)(const void *)high), 1);
}

static inline __m256i four_codes(const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm256_set1_epi32(four);
}

/* A place in eight rows of weights, `step` bytes apart, and in rows of activations, x_bytes apart. Pointers instead of
 * indices, and no more of them than fit in registers. */
typedef struct few_at {
    const uint8_t *w, *w4; /* of rows 0 and 4 */
    const int8_t *x;
    const char *scale_x, *sum_x;
    size_t step, step3, x_bytes;
} few_at;

/* Block 0 or 1 of a pair of eight rows, with each of m rows of activations. */
static inline __attribute__((always_inline)) void multiply_few(__m256 *acc, const few_at *at, size_t h, size_t m,
                                                               const float *scale, const float *offset, bool is_signed)
{
    const uint8_t *lo = at->w + h * (Q8_BLOCK / 2), *hi = at->w4 + h * (Q8_BLOCK / 2);
    __m256i w[STEPS];
    __m256i v[4] = {load_two(lo, hi), load_two(lo + at->step, hi + at->step), load_two(lo + 2 * at->step, hi + 2 * at->step),
                    load_two(lo + at->step3, hi + at->step3)};
    spread_rows(w, v, is_signed);
    for (size_t i = 0; i < m; i++) {
        const int8_t *x = at->x + h * (Q8_BLOCK / 2) + i * at->x_bytes;
        const float *scale_x = (const float *)(const void *)(at->scale_x + i * at->x_bytes) + h;
        const float *sum_x = (const float *)(const void *)(at->sum_x + i * at->x_bytes) + h;
        __m256i sum = _mm256_maddubs_epi16(w[0], four_codes(x));
        for (size_t s = 1; s < STEPS; s++) {
            sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w[s], four_codes(x + (s < 4 ? 4 * s : ODD_AT + 4 * (s - 4)))));
            __asm__ volatile("" : "+x"(sum), "+r"(scale)); /* one row after the other, or registers run out */
        }
        acc[i] = add_block(acc[i], _mm256_madd_epi16(sum, _mm256_set1_epi16(1)),
                           offset ? _mm256_loadu_ps(offset) : _mm256_set1_ps(is_signed ? 8.0f : 0.0f),
                           _mm256_broadcast_ss(sum_x), _mm256_loadu_ps(scale), _mm256_broadcast_ss(scale_x));
    }
}

/* Pairs of blocks b.. before `end`; a single one if the number of all blocks is odd. */
static inline __attribute__((always_inline)) void pairs_few(__m256 *acc, few_at *at, size_t b, size_t end, size_t ahead, size_t m,
                                                            const entries *scale, const entries *offset, size_t per_entry,
                                                            bool is_signed)
{
    for (; b < end; b += 2) {
        const char *next = (const char *)(b & 2 ? at->w4 : at->w) + ahead;
        size_t entry[2] = {b / per_entry - scale->first, (b + 1) / per_entry - scale->first};
        _mm_prefetch(next, _MM_HINT_T0);
        _mm_prefetch(next + at->step, _MM_HINT_T0);
        _mm_prefetch(next + 2 * at->step, _MM_HINT_T0);
        _mm_prefetch(next + at->step3, _MM_HINT_T0);
        multiply_few(acc, at, 0, m, scale->value[entry[0]], offset ? offset->value[entry[0]] : NULL, is_signed);
        if (b + 1 < end)
            multiply_few(acc, at, 1, m, scale->value[entry[1]], offset ? offset->value[entry[1]] : NULL, is_signed);
        at->w += Q8_BLOCK;
        at->w4 += Q8_BLOCK;
        at->x += Q8_PAIR;
        at->scale_x += 2 * sizeof(float);
        at->sum_x += 2 * sizeof(float);
    }
}

/* Eight rows that are as far apart from each other with m (2 to AT_ONCE) rows of activations from x on. */
static inline __attribute__((always_inline)) void eight_rows_few(__m256 *result, const coded_job *job, const row_group *g,
                                                                 q8_view x, size_t m, bool is_signed, bool has_offset,
                                                                 bool plain)
{
    size_t n_blocks = job->w->k / Q8_BLOCK, per_entry = plain ? 1 : job->blocks_per_entry;
    size_t step = (size_t)(g->codes[1] - g->codes[0]);
    size_t ahead = job->row_bytes < SHORT_ROW ? AHEAD_NEXT + (LANES - 1) * job->row_bytes : AHEAD;
    few_at at = {g->codes[0], g->codes[4], (const int8_t *)x.codes, (const char *)x.scale, (const char *)x.sum,
                 step, 3 * step, q8_row_bytes(job->w->k, 1)};
    entries scale, offset;
    __m256 acc[AT_ONCE];
    for (size_t i = 0; i < m; i++)
        acc[i] = _mm256_setzero_ps();
    for (size_t b = 0, end; b < n_blocks; b = end) {
        load_entries(&scale, job->w->scale_f16, job->per_row, g->index, b / per_entry);
        if (has_offset)
            load_entries(&offset, job->w->offset_f16, job->per_row, g->index, b / per_entry);
        end = (scale.first + LANES) * per_entry;
        end = end < n_blocks ? end : n_blocks;
        pairs_few(acc, &at, b, end, ahead, m, &scale, has_offset ? &offset : NULL, per_entry, is_signed);
    }
    for (size_t i = 0; i < m; i++) {
        const char *single = (const char *)x.single + i * at.x_bytes;
        result[i] = add_single(acc[i], job, g, (const pome_single *)(const void *)single, is_signed, has_offset);
    }
}

/* ---- many rows of activations ---- */

static inline void unpack_block(uint8_t (*dst)[TILE][4], const row_group *g, size_t b, size_t half, bool is_signed)
{
    __m256i v[4], w[STEPS];
    for (size_t r = 0; r < 4; r++)
        v[r] = load_two(g->codes[r] + b * (Q8_BLOCK / 2), g->codes[r + 4] + b * (Q8_BLOCK / 2));
    spread_rows(w, v, is_signed);
    for (size_t s = 0; s < STEPS; s++)
        _mm256_store_si256((__m256i *)(void *)dst[s][half * LANES], w[s]);
}

static void unpack_tile(tile *t, const coded_job *job, const row_group g[2], size_t first, size_t n_blocks,
                        bool is_signed)
{
    for (size_t half = 0; half < 2; half++) {
        for (size_t b = 0; b < n_blocks; b++)
            unpack_block(t->codes[b], &g[half], first + b, half, is_signed);
        spread_entries(t->scale, job->w->scale_f16, job, &g[half], first, n_blocks, half);
        if (!is_signed && job->w->offset_f16)
            spread_entries(t->offset, job->w->offset_f16, job, &g[half], first, n_blocks, half);
        else
            for (size_t b = 0; b < n_blocks; b++)
                _mm256_store_ps(t->offset[b] + half * LANES, _mm256_set1_ps(is_signed ? 8.0f : 0.0f));
    }
}

/* n_x (1 to 4) rows of activations with a tile; n rows of weights are wanted. */
static inline __attribute__((always_inline)) void multiply_tile(float *y, size_t ldy, const void *q8, size_t k, size_t i,
                                                                const tile *t, size_t first, size_t n_blocks, size_t n,
                                                                size_t n_x)
{
    __m256 acc[4][2];
    q8_view x[4];
    __m256i ones = _mm256_set1_epi16(1);
    for (size_t r = 0; r < n_x; r++) {
        x[r] = q8_row(q8, k, 1, i + r);
        for (size_t h = 0; h < 2; h++)
            acc[r][h] = first ? load_rows(y + r * ldy, n, h) : _mm256_setzero_ps();
    }
    for (size_t b = 0; b < n_blocks; b++) {
        __m256i sum[4][2];
        for (size_t r = 0; r < n_x; r++)
            sum[r][0] = sum[r][1] = _mm256_setzero_si256();
        size_t at = even_at(first + b);
        const uint8_t *w = t->codes[b][0][0];
        for (size_t s = 0; s < STEPS; s++, w += TILE * 4) {
            __m256i w0 = _mm256_load_si256((const __m256i *)(const void *)w);
            __m256i w1 = _mm256_load_si256((const __m256i *)(const void *)(w + LANES * 4));
            for (size_t r = 0; r < n_x; r++) {
                int32_t four;
                memcpy(&four, (const int8_t *)x[r].codes + at + 4 * s + (s < STEPS / 2 ? 0 : ODD_AT - Q8_BLOCK / 2), sizeof four);
                __m256i xv = _mm256_set1_epi32(four);
                sum[r][0] = _mm256_add_epi16(sum[r][0], _mm256_maddubs_epi16(w0, xv));
                sum[r][1] = _mm256_add_epi16(sum[r][1], _mm256_maddubs_epi16(w1, xv));
                keep_order(&sum[r][0], &sum[r][1]);
            }
        }
        for (size_t r = 0; r < n_x; r++)
            for (size_t h = 0; h < 2; h++)
                acc[r][h] = add_block(acc[r][h], _mm256_madd_epi16(sum[r][h], ones),
                                      _mm256_load_ps(t->offset[b] + h * LANES),
                                      _mm256_broadcast_ss(x[r].sum + first + b), _mm256_load_ps(t->scale[b] + h * LANES),
                                      _mm256_broadcast_ss(x[r].scale + first + b));
    }
    for (size_t r = 0; r < n_x; r++)
        for (size_t h = 0; h < 2 && n > h * LANES; h++)
            store_rows(y + r * ldy + h * LANES, acc[r][h], n - h * LANES);
}

/* Elements without codes of m rows with sixteen rows of weights, of which n are wanted. They mostly are in a few columns. */
static void add_singles(float *y, size_t ldy, const void *q8, size_t m, const coded_job *job, const row_group g[2], size_t n,
                        bool is_signed)
{
    bool has_offset = !is_signed && job->w->offset_f16;
    size_t at[COLUMNS], step = q8_row_bytes(job->w->k, 1);
    __m256 column[COLUMNS][2];
    const char *next = (const char *)q8_row(q8, job->w->k, 1, 0).single;
    for (size_t c = 0; c < COLUMNS; c++)
        at[c] = SIZE_MAX;
    for (size_t i = 0; i < m; i++, y += ldy, next += step) {
        const pome_single *x = (const pome_single *)(const void *)next;
        size_t c = x->at % COLUMNS;
        if (x->value == 0)
            continue;
        for (size_t h = 0; h < 2 && x->at != at[c]; h++)
            column[c][h] = weights_column(job, &g[h], x->at, is_signed, has_offset);
        at[c] = x->at;
        for (size_t h = 0; h < 2 && n > h * LANES; h++)
            store_rows(y + h * LANES, _mm256_fmadd_ps(_mm256_set1_ps(x->value), column[c][h], load_rows(y, n, h)), n - h * LANES);
    }
}

static void many(float *y, size_t ldy, const void *q8, size_t m, const coded_job *job, size_t n, tile *t, bool is_signed)
{
    size_t n_blocks = job->w->k / Q8_BLOCK, k = job->w->k;
    for (size_t j = 0; j < n; j += TILE) {
        row_group g[2] = {rows_from(job->w, job->row_bytes, j, n), rows_from(job->w, job->row_bytes, j + LANES, n)};
        for (size_t first = 0; first < n_blocks; first += TILE_BLOCKS) {
            size_t len = n_blocks - first < TILE_BLOCKS ? n_blocks - first : TILE_BLOCKS, i = 0;
            unpack_tile(t, job, g, first, len, is_signed);
            for (; i + 4 <= m; i += 4)
                multiply_tile(y + i * ldy + j, ldy, q8, k, i, t, first, len, n - j, 4);
            if (m - i == 3)
                multiply_tile(y + i * ldy + j, ldy, q8, k, i, t, first, len, n - j, 3);
            else if (m - i == 2)
                multiply_tile(y + i * ldy + j, ldy, q8, k, i, t, first, len, n - j, 2);
            else if (m - i == 1)
                multiply_tile(y + i * ldy + j, ldy, q8, k, i, t, first, len, n - j, 1);
        }
        add_singles(y + j, ldy, q8, m, job, g, n - j, is_signed);
    }
}

static size_t scratch_size(size_t m, size_t k)
{
    (void)k;
    return m > AT_ONCE ? sizeof(tile) : 0;
}

#define FEW_ROWS(kind, is_signed, has_offset, plain)                                                                   \
    static void kind##_1(__m256 *acc, const coded_job *job, const row_group *g, q8_view x)                             \
    {                                                                                                                  \
        coded_job one = *job;                                                                                          \
        one.x = x;                                                                                                     \
        acc[0] = eight_rows(&one, g, is_signed, has_offset, plain);                                                    \
    }                                                                                                                  \
    static void kind##_2(__m256 *acc, const coded_job *job, const row_group *g, q8_view x)                             \
    {                                                                                                                  \
        eight_rows_few(acc, job, g, x, 2, is_signed, has_offset, plain);                                               \
    }                                                                                                                  \
    static void kind##_3(__m256 *acc, const coded_job *job, const row_group *g, q8_view x)                             \
    {                                                                                                                  \
        eight_rows_few(acc, job, g, x, 3, is_signed, has_offset, plain);                                               \
    }                                                                                                                  \
    static void kind##_4(__m256 *acc, const coded_job *job, const row_group *g, q8_view x)                             \
    {                                                                                                                  \
        eight_rows_few(acc, job, g, x, 4, is_signed, has_offset, plain);                                               \
    }                                                                                                                  \
    static few_fn *const kind[AT_ONCE + 1] = {NULL, kind##_1, kind##_2, kind##_3, kind##_4};
FEW_ROWS(signed_blocks, true, false, true)
FEW_ROWS(signed_any, true, false, false)
FEW_ROWS(offset_blocks, false, true, true)
FEW_ROWS(offset_any, false, true, false)
FEW_ROWS(unsigned_any, false, false, false)

static few_fn *const *few_of(const coded_job *job, bool is_signed)
{
    bool plain = job->blocks_per_entry == 1;
    return is_signed              ? plain ? signed_blocks : signed_any
           : !job->w->offset_f16 ? unsigned_any
           : plain               ? offset_blocks
                                 : offset_any;
}

static inline __attribute__((always_inline)) void times_one(float *y, const coded_job *job, size_t n, bool is_signed,
                                                            bool has_offset, bool plain)
{
    size_t apart = rows_between(n, job->row_bytes, SHORT_ROW);
    for (size_t j = 0; j < apart; j++) {
        row_group g = rows_apart(job->w, job->row_bytes, j, apart, n);
        store_rows_apart(y + j, eight_rows(job, &g, is_signed, has_offset, plain), apart);
    }
    for (size_t j = apart * LANES; j < n; j += LANES) {
        row_group g = rows_from(job->w, job->row_bytes, j, n);
        store_rows(y + j, eight_rows(job, &g, is_signed, has_offset, plain), n - j);
    }
}

static void times(float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w, size_t n, void *scratch,
                  bool is_signed)
{
    coded_job job = {w, q8_row(q8, w->k, 1, 0), w->k / 2, w->k / w->block, w->block / Q8_BLOCK, NULL};
    if (m > FEW || (m > AT_ONCE && job.row_bytes < SHORT_ROW)) {
        many(y, ldy, q8, m, &job, n, (tile *)scratch, is_signed);
        return;
    }
    if (m > 1) {
        times_few(y, ldy, m, &job, n, 1, SHORT_ROW, few_of(&job, is_signed));
        return;
    }
    bool plain = job.blocks_per_entry == 1;
    if (is_signed && plain)
        times_one(y, &job, n, true, false, true);
    else if (is_signed)
        times_one(y, &job, n, true, false, false);
    else if (w->offset_f16 && plain)
        times_one(y, &job, n, false, true, true);
    else if (w->offset_f16)
        times_one(y, &job, n, false, true, false);
    else
        times_one(y, &job, n, false, false, false);
}

static void times_i4(float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w, size_t n, void *scratch)
{
    times(y, ldy, q8, m, w, n, scratch, true);
}

static void times_u4(float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w, size_t n, void *scratch)
{
    times(y, ldy, q8, m, w, n, scratch, false);
}

void pome_coded_fill_nibbles_avx2(pome_kernels *k)
{
    k->coded[POME_CODES_I4] = (pome_coded_kernels){q8_size, q8_set, scratch_size, times_i4};
    k->coded[POME_CODES_U4] = (pome_coded_kernels){q8_size, q8_set, scratch_size, times_u4};
}
