/* Palettes for AVX2, their entries as 16-bit integers.
 *
 * 64 entries: the bytes of entry c are those of tables 0 to c / 16 xor'ed, where table t holds what changes from entry
 * 16 (t - 1) + i to 16 t + i; a shuffle whose index became negative gives 0, so no comparison is needed. Four steps,
 * 17 instructions for 32 weights.
 *
 * 256 entries: the same takes 79 instructions for 32 weights and gives 2.8 G weights/s on a Zen 3 core, gathering gives 2.3.
 * Looked up in memory it is 3.9: four tables, each with its entries in another quarter of 64 bits, so that four weights
 * are one load and three "or"s; 8 KB, which stay in the first cache. Shuffles beside the loads gain nothing, since
 * instructions decoded are the limit. */
#ifndef POME_KERNELS_X86_PALETTE_AVX2_H
#define POME_KERNELS_X86_PALETTE_AVX2_H

#include "kernels/x86/coded_avx2.h"

typedef struct palette {
    __m128i low, high;                    /* 16 entries: bytes by code */
    __m256i low_step[4], high_step[4];    /* 64: changes, in both halves */
    uint64_t quarter[4][256];             /* 256 */
    float unit;                           /* what 1 stands for */
} palette;

static inline void set_steps(palette *p, const uint8_t low[256], const uint8_t high[256])
{
    __m128i l = _mm_setzero_si128(), h = l;
    for (size_t t = 0; t < 4; t++) {
        __m128i next_l = _mm_loadu_si128((const __m128i *)(const void *)(low + 16 * t));
        __m128i next_h = _mm_loadu_si128((const __m128i *)(const void *)(high + 16 * t));
        p->low_step[t] = _mm256_broadcastsi128_si256(_mm_xor_si128(l, next_l));
        p->high_step[t] = _mm256_broadcastsi128_si256(_mm_xor_si128(h, next_h));
        l = next_l;
        h = next_h;
    }
}

/* n (16, 64 or 256) entries in units of the largest's 32767th. One that is not finite makes the unit NaN. */
static inline void set_palette(palette *p, const uint16_t *table_f16, size_t n)
{
    __m256 max = _mm256_setzero_ps(), sign = _mm256_set1_ps(-0.0f);
    bool finite = true;
    for (size_t i = 0; i < n; i += 8) {
        __m256 v = _mm256_andnot_ps(sign, avx2_load_f16(table_f16 + i));
        finite = finite && !_mm256_movemask_ps(_mm256_cmp_ps(v, _mm256_set1_ps(INFINITY), _CMP_NLT_UQ));
        max = _mm256_max_ps(max, v);
    }
    float lane[8], largest = 0;
    _mm256_storeu_ps(lane, max);
    for (size_t i = 0; i < 8; i++)
        largest = lane[i] > largest ? lane[i] : largest;
    __m256 factor = _mm256_set1_ps(finite && largest > 0 ? 32767.0f / largest : 0.0f);
    p->unit = finite ? largest / 32767.0f : NAN;
    uint8_t low[256], high[256];
    for (size_t i = 0; i < n; i += 8) {
        __m256 v = finite ? _mm256_mul_ps(avx2_load_f16(table_f16 + i), factor) : _mm256_setzero_ps();
        __m256i word = _mm256_and_si256(_mm256_cvtps_epi32(v), _mm256_set1_epi32(0xffff));
        int32_t word_at[8];
        _mm256_storeu_si256((__m256i *)(void *)word_at, word);
        for (size_t j = 0; j < 8; j++) {
            low[i + j] = (uint8_t)word_at[j];
            high[i + j] = (uint8_t)(word_at[j] >> 8);
        }
        for (int q = 0; n == 256 && q < 4; q++) {
            __m128i shift = _mm_cvtsi32_si128(16 * q);
            _mm256_storeu_si256((__m256i *)(void *)(p->quarter[q] + i),
                                _mm256_sll_epi64(_mm256_cvtepu32_epi64(_mm256_castsi256_si128(word)), shift));
            _mm256_storeu_si256((__m256i *)(void *)(p->quarter[q] + i + 4),
                                _mm256_sll_epi64(_mm256_cvtepu32_epi64(_mm256_extracti128_si256(word, 1)), shift));
        }
    }
    p->low = _mm_loadu_si128((const __m128i *)(const void *)low);
    p->high = _mm_loadu_si128((const __m128i *)(const void *)high);
    if (n == 64)
        set_steps(p, low, high);
}

/* Where codes lie that are looked up together: blocks of 32 of four pairs of rows (or of the same rows, at two places), one
 * to a half of a vector. */
typedef struct code_places {
    const uint8_t *low[4], *high[4];
} code_places;

static inline __m256i load_halves(const uint8_t *low, const uint8_t *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)low)),
                                   _mm_loadu_si128((const __m128i *)(const void *)high), 1);
}

/* Codes 16 h to 16 h + 15, four in three bytes, to bytes, the two of a pair exchanged: multiplications move codes 0 and 2 up
 * and 1 and 3 down within words. Four vectors side by side, because the processor does not see far enough ahead to do so itself. */
static inline void unpack_sixes(__m256i v[4], const code_places *at, size_t h)
{
    const __m256i place = _mm256_add_epi8(
        _mm256_setr_epi8(0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11, 0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11),
        _mm256_set1_epi8((char)(4 * h))); /* the second half's bytes are 4.. of the last 16 */
    for (size_t r = 0; r < 4; r++)
        v[r] = _mm256_shuffle_epi8(load_halves(at->low[r] + 8 * h, at->high[r] + 8 * h), place);
    for (size_t r = 0; r < 4; r++) {
        __m256i up = _mm256_and_si256(v[r], _mm256_set1_epi32(0x03f0003f));
        __m256i down = _mm256_and_si256(v[r], _mm256_set1_epi32((int)0xfc000fc0));
        v[r] = _mm256_or_si256(_mm256_mullo_epi16(up, _mm256_set1_epi32(0x00100100)),
                               _mm256_mulhi_epu16(down, _mm256_set1_epi32(0x00400400)));
    }
}

/* v[r][i]: weights 16 h + 8 i to 16 h + 8 i + 7 of each of the two blocks, pairs exchanged (1, 0, 3, 2, ...). */
static inline void look_up64(__m256i v[4][2], const code_places *at, size_t h, const palette *p)
{
    __m256i index[4], low[4], high[4];
    unpack_sixes(index, at, h);
    for (size_t r = 0; r < 4; r++) {
        low[r] = _mm256_shuffle_epi8(p->low_step[0], index[r]);
        high[r] = _mm256_shuffle_epi8(p->high_step[0], index[r]);
    }
    for (size_t t = 1; t < 4; t++)
        for (size_t r = 0; r < 4; r++) {
            index[r] = _mm256_sub_epi8(index[r], _mm256_set1_epi8(16));
            low[r] = _mm256_xor_si256(low[r], _mm256_shuffle_epi8(p->low_step[t], index[r]));
            high[r] = _mm256_xor_si256(high[r], _mm256_shuffle_epi8(p->high_step[t], index[r]));
            keep_order(&low[r], &high[r]);
        }
    for (size_t r = 0; r < 4; r++) {
        v[r][0] = _mm256_unpacklo_epi8(low[r], high[r]);
        v[r][1] = _mm256_unpackhi_epi8(low[r], high[r]);
    }
}

/* Two codes from a 16-bit load and two of their own: as many loads as arithmetic. */
static inline long long look_up_four(const uint8_t *codes, const palette *p)
{
    uint16_t two;
    memcpy(&two, codes, sizeof two);
    return (long long)(p->quarter[1][two & 255] | p->quarter[0][two >> 8] | p->quarter[3][codes[2]] | p->quarter[2][codes[3]]);
}

/* Weights 8 eighth to 8 eighth + 7 of each of two blocks, pairs exchanged. */
static inline __m256i look_up256(const uint8_t *low, const uint8_t *high, size_t eighth, const palette *p)
{
    low += 8 * eighth;
    high += 8 * eighth;
    return _mm256_setr_epi64x(look_up_four(low, p), look_up_four(low + 4, p), look_up_four(high, p), look_up_four(high + 4, p));
}

#endif
