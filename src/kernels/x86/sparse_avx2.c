/* Sparse fp16 weights for AVX2: a mask with one bit per weight and the values of the set bits. A byte of the mask picks a
 * byte shuffle that moves up to eight values to their places and clears the others. Only the pointer to the values is
 * a chain from byte to byte, so four rows go together; where a row's values begin is counted four rows ahead, which tells as
 * well how far values may be read. */
#include "base/f16.h"
#include "kernels/sparse_places.h"
#include "kernels/x86/avx2.h"

static inline size_t ones_of(unsigned byte)
{
    return (size_t)_mm_popcnt_u32(byte);
}

static size_t count_ones(const uint8_t *bits, size_t n_bytes)
{
    size_t ones = 0, i = 0;
    for (; i + 8 <= n_bytes; i += 8) {
        uint64_t word;
        memcpy(&word, bits + i, sizeof word);
        ones += (size_t)_mm_popcnt_u64(word);
    }
    for (; i < n_bytes; i++)
        ones += ones_of(bits[i]);
    return ones;
}

static inline __m256 spread(__m128i values, unsigned byte)
{
    return _mm256_cvtph_ps(_mm_shuffle_epi8(values, _mm_loadu_si128((const __m128i *)(const void *)sparse_places[byte])));
}

/* The same by the shuffle's place in the table in bytes, which has as many ones as the mask: no copy for the count. */
static inline __m256 spread_at(const uint16_t *values, size_t place)
{
    const char *shuffle = (const char *)sparse_places + place;
    return _mm256_cvtph_ps(_mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)values),
                                            _mm_loadu_si128((const __m128i *)(const void *)shuffle)));
}

/* Eight weights where fewer than eight values may be left. */
static inline __m256 spread_last(const uint16_t *values, unsigned byte)
{
    uint16_t left[8] = {0};
    memcpy(left, values, ones_of(byte) * sizeof *left);
    return spread(_mm_loadu_si128((const __m128i *)(const void *)left), byte);
}

void pome_decode_sparse_f16_avx2(float *dst, const uint8_t *bits, const uint16_t *values, size_t n)
{
    size_t i = 0, n_bytes = n / 8, left = count_ones(bits, n_bytes);
    for (; i < n_bytes; i++) {
        unsigned byte = bits[i];
        __m256 v = left >= 8 ? spread(_mm_loadu_si128((const __m128i *)(const void *)values), byte)
                             : spread_last(values, byte);
        _mm256_storeu_ps(dst + 8 * i, v);
        values += ones_of(byte);
        left -= ones_of(byte);
    }
    for (size_t p = 8 * i; p < n; p++)
        dst[p] = bits[p / 8] >> (p % 8) & 1 ? pome_f16_to_f32(*values++) : 0.0f;
}

/* A row's values are a few lines of the cache only, four rows at a time: too short for the hardware to see a pattern. So
 * lines are asked for this far ahead, spread over the steps. Without, half the time goes into waiting. */
enum { AHEAD_BYTES = 8192, AHEAD_BITS = 512 };

/* `rows` (4, or 1) rows of k/8 mask bytes; value[r] moves on to the row's end. `end`: nothing is read from there on. */
static inline __attribute__((always_inline)) __m128 multiply_rows(const float *x, const uint8_t *bits, size_t k,
                                                                  const uint16_t *value[4], const uint16_t *end,
                                                                  size_t rows)
{
    __m128 sum = _mm_setzero_ps();
    const char *fetch = (const char *)value[0] + AHEAD_BYTES;
    size_t pace = rows == 4 ? 4 * (size_t)((const char *)value[3] - (const char *)value[0]) / 3 / (k / 8 + 1) + 1 : 8;
    for (size_t p = 0; p < k;) {
        size_t stop = k - p < POME_KERNEL_KC ? k : p + POME_KERNEL_KC;
        __m256 acc[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps()};
        for (; p + 32 <= stop && end - value[rows - 1] >= 32; p += 32) { /* the last row's come last */
            __m256 xv[4];
            for (size_t i = 0; i < 4; i++)
                xv[i] = _mm256_loadu_ps(x + p + 8 * i);
            _mm_prefetch(fetch, _MM_HINT_T0);
            _mm_prefetch(fetch + 2 * pace, _MM_HINT_T0);
            fetch += 4 * pace;
            for (size_t r = 0; r < rows; r++) {
                const uint8_t *at = bits + r * (k / 8) + p / 8;
                const uint16_t *v = value[r];
                for (size_t i = 0; i < 4; i++) {
                    size_t place = (size_t)at[i] * sizeof sparse_places[0];
                    acc[r] = _mm256_fmadd_ps(xv[i], spread_at(v, place), acc[r]);
                    v += _mm_popcnt_u64(place);
                }
                value[r] = v;
            }
        }
        for (; p < stop && end - value[rows - 1] >= 8; p += 8) {
            __m256 xv = _mm256_loadu_ps(x + p);
            for (size_t r = 0; r < rows; r++) {
                unsigned byte = bits[r * (k / 8) + p / 8];
                acc[r] = _mm256_fmadd_ps(xv, spread(_mm_loadu_si128((const __m128i *)(const void *)value[r]), byte), acc[r]);
                value[r] += ones_of(byte);
            }
        }
        for (; p < stop; p += 8)
            for (size_t r = 0; r < rows; r++) {
                unsigned byte = bits[r * (k / 8) + p / 8];
                acc[r] = _mm256_fmadd_ps(_mm256_loadu_ps(x + p), spread_last(value[r], byte), acc[r]);
                value[r] += ones_of(byte);
            }
        sum = _mm_add_ps(sum, avx2_sum4(acc[0], acc[1], acc[2], acc[3]));
    }
    return sum;
}

/* Where the values of `rows` rows begin, and in value[rows] where they end. */
static void find_rows(const uint16_t *value[5], const uint16_t *values, const uint8_t *bits, size_t k, size_t rows)
{
    value[0] = values;
    for (size_t r = 0; r < rows; r++)
        value[r + 1] = value[r] + count_ones(bits + r * (k / 8), k / 8);
}

void pome_gemv_sparse_f16_avx2(float *y, const float *x, const uint8_t *bits, const uint16_t *values, size_t n,
                               size_t k)
{
    const uint16_t *value[5], *next[5];
    size_t j = 0;
    find_rows(next, values, bits, k, n < 4 ? n : 4);
    for (; j + 4 <= n; j += 4, bits += k / 2) {
        size_t after = n - j - 4 < 4 ? n - j - 4 : 4;
        memcpy(value, next, sizeof value);
        for (size_t i = 0; i < k / 2; i += 64)
            _mm_prefetch((const char *)bits + k / 2 + AHEAD_BITS + i, _MM_HINT_T0);
        find_rows(next, value[4], bits + k / 2, k, after);
        _mm_storeu_ps(y + j, multiply_rows(x, bits, k, value, next[after], 4));
    }
    for (const uint16_t *end = next[n - j]; j < n; j++, bits += k / 8)
        y[j] = _mm_cvtss_f32(multiply_rows(x, bits, k, next, end, 1)); /* moves next[0] on */
}
