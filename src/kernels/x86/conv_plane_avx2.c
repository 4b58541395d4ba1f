/* Convolutions of a plane, eight results of a row at a time; for the usual kernels several rows of results share what they read. */
#include "kernels/x86/avx2.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

enum { ROWS_MAX = 4 };

/* x[0], x[s], .. x[7 s]; for s = 2 in the order that in_order() undoes. */
ALWAYS_INLINE __m256 take(const float *x, size_t s)
{
    if (s == 1)
        return _mm256_loadu_ps(x);
    if (s == 2)
        return _mm256_shuffle_ps(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8), 0x88);
    return _mm256_setr_ps(x[0], x[s], x[2 * s], x[3 * s], x[4 * s], x[5 * s], x[6 * s], x[7 * s]);
}
/* x[1], x[3], .. in the order of take(x, 2), of the same vectors. */
ALWAYS_INLINE __m256 take_odd(const float *x)
{
    return _mm256_shuffle_ps(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8), 0xdd);
}
ALWAYS_INLINE __m256 in_order(__m256 v, size_t s)
{
    return s == 2 ? _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8)) : v;
}

typedef struct limits {
    __m256 bias, low, high;
} limits;

ALWAYS_INLINE limits limits_of(const pome_conv_plane *p)
{
    return (limits){_mm256_set1_ps(p->bias), _mm256_set1_ps(p->low), _mm256_set1_ps(p->high)};
}

/* `room` elements may be written. What lies behind the row is the next one's, which is stored later. */
ALWAYS_INLINE void finish(float *y, size_t room, __m256 sum, const limits *end)
{
    sum = _mm256_max_ps(end->low, _mm256_add_ps(sum, end->bias)); /* the second operand if one is NaN */
    sum = _mm256_min_ps(end->high, sum);
    if (room >= 8)
        _mm256_storeu_ps(y, sum);
    else
        avx2_store_part(y, sum, room);
}

/* Where the vector of columns after j begins: the last one overlaps the one before it where the row allows. */
ALWAYS_INLINE size_t next_column(size_t j, size_t cols)
{
    return j + 8 < cols && j + 16 > cols ? cols - 8 : j + 8;
}

/* A row of results; kernel and strides may be any. */
ALWAYS_INLINE void row_of(float *y, size_t cols, size_t room, const float *x, const pome_conv_plane *p, size_t sx)
{
    const limits end = limits_of(p);
    for (size_t j = 0; j < cols; j = next_column(j, cols)) {
        __m256 sum = _mm256_setzero_ps();
        for (size_t ky = 0; ky < p->kh; ky++)
            for (size_t kx = 0; kx < p->kw; kx++)
                sum = _mm256_fmadd_ps(_mm256_set1_ps(p->w[ky * p->kw + kx]),
                                      take(x + ky * p->dy * p->ldx + j * sx + kx * p->dx, sx), sum);
        finish(y + j, room - j, in_order(sum, sx), &end);
    }
}

/* Row r of x, for all of the n_rows rows of results that it belongs to. Everything but x and w is constant. */
ALWAYS_INLINE void add_row(__m256 *sum, const float *x, const float *w, size_t r, size_t n_rows, size_t k, size_t s)
{
    if (r >= (n_rows - 1) * s + k)
        return;
    for (size_t kx = 0; kx < k; kx++) {
        __m256 v = s == 2 && kx % 2 ? take_odd(x + kx - 1) : take(x + kx, s);
        for (size_t i = 0; i < n_rows; i++)
            if (r >= i * s && r < i * s + k)
                sum[i] = _mm256_fmadd_ps(_mm256_set1_ps(w[(r - i * s) * k + kx]), v, sum[i]);
    }
}

/* n_rows rows of results of a kernel of k x k with stride s in both directions, all constants, no dilation. Each row of x is read
 * once; a result takes its taps in turn. */
ALWAYS_INLINE void rows_of(float *y, size_t cols, size_t room, const float *x, const pome_conv_plane *p, size_t n_rows, size_t k,
                           size_t s)
{
    const float *w = p->w;
    const limits end = limits_of(p);
    size_t ldx = p->ldx;
    for (size_t j = 0; j < cols; j = next_column(j, cols)) {
        const float *from = x + j * s;
        __m256 sum[ROWS_MAX];
        for (size_t i = 0; i < n_rows; i++)
            sum[i] = _mm256_setzero_ps();
        add_row(sum, from, w, 0, n_rows, k, s);
        add_row(sum, from + ldx, w, 1, n_rows, k, s);
        add_row(sum, from + 2 * ldx, w, 2, n_rows, k, s);
        add_row(sum, from + 3 * ldx, w, 3, n_rows, k, s);
        add_row(sum, from + 4 * ldx, w, 4, n_rows, k, s);
        add_row(sum, from + 5 * ldx, w, 5, n_rows, k, s);
        add_row(sum, from + 6 * ldx, w, 6, n_rows, k, s);
        add_row(sum, from + 7 * ldx, w, 7, n_rows, k, s);
        add_row(sum, from + 8 * ldx, w, 8, n_rows, k, s);
        for (size_t i = 0; i < n_rows; i++)
            finish(y + i * cols + j, room - i * cols - j, in_order(sum[i], s), &end);
    }
}

ALWAYS_INLINE void square(float *y, size_t rows, size_t cols, const pome_conv_plane *p, size_t n_rows, size_t k, size_t s)
{
    size_t i = 0;
    for (; i + n_rows <= rows; i += n_rows)
        rows_of(y + i * cols, cols, (rows - i) * cols, p->x + i * s * p->ldx, p, n_rows, k, s);
    for (; i + 2 <= rows; i += 2)
        rows_of(y + i * cols, cols, (rows - i) * cols, p->x + i * s * p->ldx, p, 2, k, s);
    if (i < rows)
        rows_of(y + i * cols, cols, (rows - i) * cols, p->x + i * s * p->ldx, p, 1, k, s);
}

ALWAYS_INLINE void any(float *y, size_t rows, size_t cols, const pome_conv_plane *p, size_t sx)
{
    for (size_t i = 0; i < rows; i++)
        row_of(y + i * cols, cols, (rows - i) * cols, p->x + i * p->sy * p->ldx, p, sx);
}

void pome_conv_plane_f32_avx2(float *y, size_t rows, size_t cols, const pome_conv_plane *p)
{
    size_t k = p->kh == p->kw && p->sy == p->sx && p->dy == 1 && p->dx == 1 ? p->kh : 0;
    if (k == 3 && p->sx == 1)
        square(y, rows, cols, p, 4, 3, 1);
    else if (k == 3 && p->sx == 2)
        square(y, rows, cols, p, 4, 3, 2);
    else if (k == 5 && p->sx == 1)
        square(y, rows, cols, p, 4, 5, 1);
    else if (k == 5 && p->sx == 2)
        square(y, rows, cols, p, 2, 5, 2);
    else if (p->sx == 1)
        any(y, rows, cols, p, 1);
    else
        any(y, rows, cols, p, p->sx);
}
