/* Convolutions of a plane, eight results of a row at a time. */
#include "kernels/x86/avx2.h"

/* x[0], x[s], .. x[7 s]; for s = 2 in the order that in_order() undoes. */
static inline __attribute__((always_inline)) __m256 take(const float *x, size_t s)
{
    if (s == 1)
        return _mm256_loadu_ps(x);
    if (s == 2)
        return _mm256_shuffle_ps(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8), 0x88);
    return _mm256_setr_ps(x[0], x[s], x[2 * s], x[3 * s], x[4 * s], x[5 * s], x[6 * s], x[7 * s]);
}
static inline __attribute__((always_inline)) __m256 in_order(__m256 v, size_t s)
{
    return s == 2 ? _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8)) : v;
}

/* kh, kw, sx and dx are constants where the kernel is small, so that its weights stay in registers. */
static inline __attribute__((always_inline)) void plane(float *y, size_t rows, size_t cols, const pome_conv_plane *p,
                                                        size_t kh, size_t kw, size_t sx, size_t dx)
{
    const __m256 bias = _mm256_set1_ps(p->bias), low = _mm256_set1_ps(p->low), high = _mm256_set1_ps(p->high);
    for (size_t i = 0; i < rows; i++, y += cols)
        for (size_t j = 0; j < cols; j += 8) {
            const float *x = p->x + i * p->sy * p->ldx + j * sx;
            __m256 sum = _mm256_setzero_ps();
            for (size_t ky = 0; ky < kh; ky++)
                for (size_t kx = 0; kx < kw; kx++)
                    sum = _mm256_fmadd_ps(_mm256_set1_ps(p->w[ky * kw + kx]), take(x + ky * p->dy * p->ldx + kx * dx, sx),
                                          sum);
            sum = _mm256_add_ps(in_order(sum, sx), bias);
            sum = _mm256_min_ps(high, _mm256_max_ps(low, sum)); /* the second operand if one is NaN */
            if (j + 8 <= cols)
                _mm256_storeu_ps(y + j, sum);
            else
                avx2_store_part(y + j, sum, cols - j);
        }
}

void pome_conv_plane_f32_avx2(float *y, size_t rows, size_t cols, const pome_conv_plane *p)
{
    bool is_3 = p->kh == 3 && p->kw == 3 && p->dx == 1, is_5 = p->kh == 5 && p->kw == 5 && p->dx == 1;
    if (is_3 && p->sx == 1)
        plane(y, rows, cols, p, 3, 3, 1, 1);
    else if (is_3 && p->sx == 2)
        plane(y, rows, cols, p, 3, 3, 2, 1);
    else if (is_5 && p->sx == 1)
        plane(y, rows, cols, p, 5, 5, 1, 1);
    else if (is_5 && p->sx == 2)
        plane(y, rows, cols, p, 5, 5, 2, 1);
    else if (p->kh == 1 && p->kw == 1 && p->sx == 1)
        plane(y, rows, cols, p, 1, 1, 1, 1);
    else if (p->sx == 1)
        plane(y, rows, cols, p, p->kh, p->kw, 1, p->dx);
    else
        plane(y, rows, cols, p, p->kh, p->kw, p->sx, p->dx);
}
