/* Winograd's transforms of 3 x 3 convolutions, eight tiles at a time. */
#include "kernels/x86/avx2.h"

enum { LANES = 8 };

/* Row `row` of tiles j to j + 7, transformed along its columns. */
static inline void in_row(__m256 *d, const float *row, size_t width)
{
    const __m256 x0 = _mm256_loadu_ps(row), x1 = _mm256_loadu_ps(row + width);
    const __m256 x2 = _mm256_loadu_ps(row + 1), x3 = _mm256_loadu_ps(row + width + 1);
    d[0] = _mm256_sub_ps(x0, x2);
    d[1] = _mm256_add_ps(x1, x2);
    d[2] = _mm256_sub_ps(x2, x1);
    d[3] = _mm256_sub_ps(x1, x3);
}

void pome_winograd_in_f32_avx2(float *v, size_t apart, const float *x, size_t ldx, size_t width, size_t n)
{
    for (size_t j = 0; j < n; j += LANES) {
        __m256 d[4][4];
        in_row(d[0], x + j, width);
        in_row(d[1], x + ldx + j, width);
        in_row(d[2], x + 2 * ldx + j, width);
        in_row(d[3], x + 3 * ldx + j, width);
        AVX2_UNROLL
        for (size_t c = 0; c < 4; c++) {
            _mm256_storeu_ps(v + (0 + c) * apart + j, _mm256_sub_ps(d[0][c], d[2][c]));
            _mm256_storeu_ps(v + (4 + c) * apart + j, _mm256_add_ps(d[1][c], d[2][c]));
            _mm256_storeu_ps(v + (8 + c) * apart + j, _mm256_sub_ps(d[2][c], d[1][c]));
            _mm256_storeu_ps(v + (12 + c) * apart + j, _mm256_sub_ps(d[1][c], d[3][c]));
        }
    }
}

typedef struct row_end {
    __m256 bias, low, high;
    bool has_bias;
} row_end;

/* n >= 8: all. Returns lanes that are not 0 where v is not finite. */
static inline __m256 out_vector(float *y, const float *addend, size_t n, __m256 v, const row_end *end)
{
    __m256 nothing = _mm256_sub_ps(v, v);
    if (n < LANES)
        nothing = _mm256_and_ps(nothing, _mm256_castsi256_ps(avx2_mask(n)));
    if (end->has_bias)
        v = _mm256_add_ps(v, end->bias);
    if (addend)
        v = _mm256_add_ps(v, n < LANES ? avx2_load_part(addend, n) : _mm256_loadu_ps(addend));
    v = _mm256_max_ps(end->low, v); /* the second operand if one is NaN */
    v = _mm256_min_ps(end->high, v);
    if (n < LANES)
        avx2_store_part(y, v, n);
    else
        _mm256_storeu_ps(y, v);
    return nothing;
}

bool pome_winograd_out_f32_avx2(float *y, size_t ldy, size_t rows, size_t cols, const float *m, size_t apart, const pome_panel_end *end)
{
    const row_end last = {_mm256_set1_ps(end->bias ? *end->bias : 0), _mm256_set1_ps(end->low), _mm256_set1_ps(end->high),
                          end->bias != NULL};
    __m256 nothing = _mm256_setzero_ps();
    for (size_t j = 0; 2 * j < cols; j += LANES) {
        __m256 s[2][4];
        size_t left = cols - 2 * j;
        AVX2_UNROLL
        for (size_t c = 0; c < 4; c++) {
            const __m256 m0 = _mm256_loadu_ps(m + c * apart + j), m1 = _mm256_loadu_ps(m + (4 + c) * apart + j);
            const __m256 m2 = _mm256_loadu_ps(m + (8 + c) * apart + j), m3 = _mm256_loadu_ps(m + (12 + c) * apart + j);
            s[0][c] = _mm256_add_ps(_mm256_add_ps(m0, m1), m2);
            s[1][c] = _mm256_sub_ps(_mm256_sub_ps(m1, m2), m3);
        }
        for (size_t i = 0; i < rows; i++) {
            const __m256 even = _mm256_add_ps(_mm256_add_ps(s[i][0], s[i][1]), s[i][2]);
            const __m256 odd = _mm256_sub_ps(_mm256_sub_ps(s[i][1], s[i][2]), s[i][3]);
            const __m256 low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
            size_t at = i * ldy + 2 * j;
            const float *addend = end->addend ? end->addend + at : NULL;
            nothing = _mm256_or_ps(nothing, out_vector(y + at, addend, left, _mm256_permute2f128_ps(low, high, 0x20), &last));
            if (left > LANES)
                nothing = _mm256_or_ps(nothing, out_vector(y + at + LANES, addend ? addend + LANES : NULL, left - LANES,
                                                           _mm256_permute2f128_ps(low, high, 0x31), &last));
        }
    }
    return _mm256_testz_si256(_mm256_castps_si256(nothing), _mm256_castps_si256(nothing));
}
