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

/* Row r of x, for all of the n_rows rows of results that it belongs to and both vectors of columns. Everything but x, column and w
 * is constant. */
ALWAYS_INLINE void add_row(__m256 sum[ROWS_MAX][2], const float *x, const size_t *column, size_t n_vectors, const float *w, size_t r,
                           size_t n_rows, size_t k, size_t s)
{
    if (r >= (n_rows - 1) * s + k)
        return;
    AVX2_UNROLL
    for (size_t kx = 0; kx < k; kx++) {
        __m256 v[2];
        AVX2_UNROLL
        for (size_t j = 0; j < n_vectors; j++) {
            const float *from = x + column[j] * s + kx;
            v[j] = s == 2 && kx % 2 ? take_odd(from - 1) : take(from, s);
        }
        AVX2_UNROLL
        for (size_t i = 0; i < n_rows; i++)
            if (r >= i * s && r < i * s + k) {
                const __m256 weight = _mm256_set1_ps(w[(r - i * s) * k + kx]);
                AVX2_UNROLL
                for (size_t j = 0; j < n_vectors; j++)
                    sum[i][j] = _mm256_fmadd_ps(weight, v[j], sum[i][j]);
            }
    }
}

/* n_rows rows of n_vectors vectors of columns of results of a kernel of k x k with stride s in both directions, all constants,
 * no dilation. Each row of x is read once; a result takes its taps in turn. */
ALWAYS_INLINE void block_of(float *y, size_t cols, size_t room, const float *x, const pome_conv_plane *p, const size_t *column,
                            size_t n_vectors, size_t n_rows, size_t k, size_t s)
{
    const float *w = p->w;
    const limits end = limits_of(p);
    const size_t ldx = p->ldx;
    __m256 sum[ROWS_MAX][2];
    AVX2_UNROLL
    for (size_t i = 0; i < n_rows; i++)
        AVX2_UNROLL
        for (size_t j = 0; j < n_vectors; j++)
            sum[i][j] = _mm256_setzero_ps();
    add_row(sum, x, column, n_vectors, w, 0, n_rows, k, s);
    add_row(sum, x + ldx, column, n_vectors, w, 1, n_rows, k, s);
    add_row(sum, x + 2 * ldx, column, n_vectors, w, 2, n_rows, k, s);
    add_row(sum, x + 3 * ldx, column, n_vectors, w, 3, n_rows, k, s);
    add_row(sum, x + 4 * ldx, column, n_vectors, w, 4, n_rows, k, s);
    add_row(sum, x + 5 * ldx, column, n_vectors, w, 5, n_rows, k, s);
    add_row(sum, x + 6 * ldx, column, n_vectors, w, 6, n_rows, k, s);
    add_row(sum, x + 7 * ldx, column, n_vectors, w, 7, n_rows, k, s);
    add_row(sum, x + 8 * ldx, column, n_vectors, w, 8, n_rows, k, s);
    AVX2_UNROLL
    for (size_t i = 0; i < n_rows; i++)
        AVX2_UNROLL
        for (size_t j = 0; j < n_vectors; j++)
            finish(y + i * cols + column[j], room - i * cols - column[j], in_order(sum[i][j], s), &end);
}

/* With stride 1 two vectors of columns at a time: eight sums, where four would wait for each other. With stride 2 what is read
 * takes too many registers. */
ALWAYS_INLINE void rows_of(float *y, size_t cols, size_t room, const float *x, const pome_conv_plane *p, size_t n_rows, size_t k,
                           size_t s)
{
    for (size_t j = 0; j < cols;) {
        const size_t column[2] = {j, next_column(j, cols)};
        const bool is_pair = s == 1 && column[1] < cols;
        if (is_pair)
            block_of(y, cols, room, x, p, column, 2, n_rows, k, s);
        else
            block_of(y, cols, room, x, p, column, 1, n_rows, k, s);
        j = is_pair ? next_column(column[1], cols) : column[1];
    }
}

ALWAYS_INLINE void square(float *y, size_t rows, size_t cols, const pome_conv_plane *p, size_t n_rows, size_t k, size_t s)
{
    size_t i = 0;
    for (; i + n_rows <= rows; i += n_rows)
        rows_of(y + i * cols, cols, (rows - i) * cols, p->x + i * s * p->ldx, p, n_rows, k, s);
    if ((rows - i) % 2 && rows >= n_rows) { /* one row alone waits for each multiply-add: rather some of those before it again */
        i = rows - n_rows;
        rows_of(y + i * cols, cols, n_rows * cols, p->x + i * s * p->ldx, p, n_rows, k, s);
        return;
    }
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
