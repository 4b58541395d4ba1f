/* Every slot in portable C. The sums are written as eight lanes so that a compiler may use what vectors it has
 * without changing a result. */
#include <math.h>
#include <string.h>

#include "base/f16.h"
#include "kernels/kernels.h"
#include "kernels/vecmath.h"

static void f16_to_f32_generic(float *dst, const uint16_t *src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = pome_f16_to_f32(src[i]);
}

static void f32_to_f16_generic(uint16_t *dst, const float *src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = pome_f32_to_f16(src[i]);
}

static void f16_round_generic(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = pome_f16_round(x[i]);
}

static float lanes_sum(const float *v)
{
    return ((v[0] + v[4]) + (v[1] + v[5])) + ((v[2] + v[6]) + (v[3] + v[7]));
}

static float dot_piece(const float *a, const float *b, size_t n) /* n <= KC */
{
    float lane[8] = {0};
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++)
            lane[j] += a[i + j] * b[i + j];
    for (size_t j = 0; i + j < n; j++)
        lane[j] += a[i + j] * b[i + j];
    return lanes_sum(lane);
}

static float dot_f32_generic(const float *a, const float *b, size_t n)
{
    float sum = 0;
    for (size_t i = 0; i < n; i += POME_KERNEL_KC)
        sum += dot_piece(a + i, b + i, n - i < POME_KERNEL_KC ? n - i : POME_KERNEL_KC);
    return sum;
}

static float dot_f32_f16_generic(const float *a, const uint16_t *b, size_t n)
{
    float row[POME_KERNEL_KC], sum = 0;
    for (size_t i = 0; i < n; i += POME_KERNEL_KC) {
        size_t len = n - i < POME_KERNEL_KC ? n - i : POME_KERNEL_KC;
        f16_to_f32_generic(row, b + i, len);
        sum += dot_piece(a + i, row, len);
    }
    return sum;
}

static void axpy_f32_generic(float *y, float s, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += s * x[i];
}

static void axpy_f32_f16_generic(float *y, float s, const uint16_t *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += s * pome_f16_to_f32(x[i]);
}

static float max_f32_generic(const float *x, size_t n)
{
    float max = -INFINITY;
    for (size_t i = 0; i < n; i++)
        if (x[i] > max)
            max = x[i];
    return max;
}

static float exp_sum_f32_generic(float *x, float max, size_t n)
{
    float lane[8] = {0};
    for (size_t i = 0; i < n; i++) {
        x[i] = expf(x[i] - max);
        lane[i % 8] += x[i];
    }
    return lanes_sum(lane);
}

static void silu_mul_f32_generic(float *out, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = gate[i] * pome_sigmoidf(gate[i]) * up[i];
}

static void gemm_nt_f32_generic(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t m,
                                size_t n, size_t k, bool accumulate)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            float sum = accumulate ? c[i * ldc + j] : 0;
            for (size_t p = 0; p < k; p += POME_KERNEL_KC)
                sum += dot_piece(a + i * lda + p, b + j * ldb + p, k - p < POME_KERNEL_KC ? k - p : POME_KERNEL_KC);
            c[i * ldc + j] = sum;
        }
}

static void gemm_nn_f32_generic(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t m,
                                size_t n, size_t k, bool accumulate)
{
    for (size_t i = 0; i < m; i++) {
        float *row = c + i * ldc;
        if (!accumulate)
            for (size_t j = 0; j < n; j++)
                row[j] = 0;
        for (size_t p = 0; p < k; p++)
            axpy_f32_generic(row, a[i * lda + p], b + p * ldb, n);
    }
}

static void gemm_nt_f16_generic(float *c, size_t ldc, const float *a, size_t lda, const uint16_t *b, size_t ldb, size_t m,
                                size_t n, size_t k, bool accumulate)
{
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            float sum = accumulate ? c[i * ldc + j] : 0, row[POME_KERNEL_KC];
            for (size_t p = 0; p < k; p += POME_KERNEL_KC) {
                size_t len = k - p < POME_KERNEL_KC ? k - p : POME_KERNEL_KC;
                f16_to_f32_generic(row, b + j * ldb + p, len);
                sum += dot_piece(a + i * lda + p, row, len);
            }
            c[i * ldc + j] = sum;
        }
}

static void gemm_nn_f16_generic(float *c, size_t ldc, const float *a, size_t lda, const uint16_t *b, size_t ldb, size_t m,
                                size_t n, size_t k, bool accumulate)
{
    for (size_t i = 0; i < m; i++) {
        if (!accumulate)
            for (size_t j = 0; j < n; j++)
                c[i * ldc + j] = 0;
        for (size_t p = 0; p < k; p++)
            axpy_f32_f16_generic(c + i * ldc, a[i * lda + p], b + p * ldb, n);
    }
}

static void gemv_f16_generic(float *y, const float *x, const uint16_t *w, size_t ldw, size_t n, size_t k)
{
    for (size_t j = 0; j < n; j++)
        y[j] = dot_f32_f16_generic(x, w + j * ldw, k);
}

static void decode_lut4_generic(float *dst, const uint8_t *codes, const float *table, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = table[codes[i / 2] >> (i % 2 * 4) & 15];
}

static void decode_int4_block_generic(float *dst, const uint8_t *codes, const uint16_t *scale_f16, size_t n,
                                      size_t block)
{
    for (size_t first = 0; first < n; first += block, scale_f16++) {
        float table[16], scale = pome_f16_to_f32(*scale_f16);
        size_t end = n - first < block ? n : first + block;
        for (int code = -8; code < 8; code++)
            table[code & 15] = pome_f16_round(scale * (float)code);
        decode_lut4_generic(dst + first, codes + first / 2, table, end - first);
    }
}

static void decode_uint4_shift_block_generic(float *dst, const uint8_t *codes, const uint16_t *scale_f16,
                                             const uint16_t *offset_f16, size_t n, size_t block)
{
    for (size_t first = 0; first < n; first += block, scale_f16++, offset_f16++) {
        float table[16], scale = pome_f16_to_f32(*scale_f16), offset = pome_f16_to_f32(*offset_f16);
        size_t end = n - first < block ? n : first + block;
        for (int code = 0; code < 16; code++)
            table[code] = pome_f16_round(scale * pome_f16_round((float)code - offset));
        decode_lut4_generic(dst + first, codes + first / 2, table, end - first);
    }
}

static void decode_int8_block_generic(float *dst, const int8_t *codes, const uint16_t *scale_f16, size_t n,
                                      size_t block)
{
    for (size_t first = 0; first < n; first += block, scale_f16++) {
        float scale = pome_f16_to_f32(*scale_f16);
        size_t end = n - first < block ? n : first + block;
        for (size_t i = first; i < end; i++)
            dst[i] = pome_f16_round(scale * (float)codes[i]);
    }
}

static void gemv_int4_block_generic(float *y, const float *x, const uint8_t *codes, const uint16_t *scale_f16, size_t n,
                                    size_t k, size_t block)
{
    float row[POME_KERNEL_KC];
    for (size_t j = 0; j < n; j++, codes += k / 2, scale_f16 += k / block) {
        y[j] = 0;
        for (size_t p = 0; p < k; p += POME_KERNEL_KC) {
            size_t len = k - p < POME_KERNEL_KC ? k - p : POME_KERNEL_KC;
            for (size_t q = p, end; q < p + len; q = end) { /* up to the end of a scale's block */
                end = (q / block + 1) * block < p + len ? (q / block + 1) * block : p + len;
                decode_int4_block_generic(row + (q - p), codes + q / 2, scale_f16 + q / block, end - q, block);
            }
            y[j] += dot_piece(x + p, row, len);
        }
    }
}

static void gemv_uint4_shift_block_generic(float *y, const float *x, const uint8_t *codes, const uint16_t *scale_f16,
                                           const uint16_t *offset_f16, size_t n, size_t k, size_t block)
{
    float row[POME_KERNEL_KC];
    for (size_t j = 0; j < n; j++, codes += k / 2, scale_f16 += k / block, offset_f16 += k / block) {
        y[j] = 0;
        for (size_t p = 0; p < k; p += POME_KERNEL_KC) {
            size_t len = k - p < POME_KERNEL_KC ? k - p : POME_KERNEL_KC;
            for (size_t q = p, end; q < p + len; q = end) {
                end = (q / block + 1) * block < p + len ? (q / block + 1) * block : p + len;
                decode_uint4_shift_block_generic(row + (q - p), codes + q / 2, scale_f16 + q / block,
                                                 offset_f16 + q / block, end - q, block);
            }
            y[j] += dot_piece(x + p, row, len);
        }
    }
}

static void gemv_int8_block_generic(float *y, const float *x, const int8_t *codes, const uint16_t *scale_f16, size_t n,
                                    size_t k, size_t block)
{
    float row[POME_KERNEL_KC];
    for (size_t j = 0; j < n; j++, codes += k, scale_f16 += k / block) {
        y[j] = 0;
        for (size_t p = 0; p < k; p += POME_KERNEL_KC) {
            size_t len = k - p < POME_KERNEL_KC ? k - p : POME_KERNEL_KC;
            for (size_t q = p, end; q < p + len; q = end) {
                end = (q / block + 1) * block < p + len ? (q / block + 1) * block : p + len;
                decode_int8_block_generic(row + (q - p), codes + q, scale_f16 + q / block, end - q, block);
            }
            y[j] += dot_piece(x + p, row, len);
        }
    }
}

static void decode_sparse_f16_generic(float *dst, const uint8_t *bits, const uint16_t *values, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = bits[i / 8] >> (i % 8) & 1 ? pome_f16_to_f32(*values++) : 0.0f;
}

static size_t count_ones(const uint8_t *bits, size_t n /* bits, a multiple of 8 */)
{
    size_t ones = 0;
    for (size_t i = 0; i < n / 8; i++)
        for (unsigned byte = bits[i]; byte; byte &= byte - 1)
            ones++;
    return ones;
}

static void gemv_sparse_f16_generic(float *y, const float *x, const uint8_t *bits, const uint16_t *values, size_t n,
                                    size_t k)
{
    float row[POME_KERNEL_KC];
    for (size_t j = 0; j < n; j++) {
        y[j] = 0;
        for (size_t p = 0; p < k; p += POME_KERNEL_KC) {
            size_t len = k - p < POME_KERNEL_KC ? k - p : POME_KERNEL_KC;
            decode_sparse_f16_generic(row, bits, values, len);
            y[j] += dot_piece(x + p, row, len);
            values += count_ones(bits, len);
            bits += len / 8;
        }
    }
}

/* Row i of results. */
static void end_panel_row(float *c, size_t ldc, const float *sum, size_t i, size_t n, const pome_panel_end *end)
{
    for (size_t j = 0; j < n; j++) {
        float v = sum[j];
        if (end) {
            v = end->bias ? v + end->bias[i] : v;
            v = end->addend ? v + end->addend[i * ldc + j] : v;
            v = v < end->low ? end->low : v;
            v = v > end->high ? end->high : v;
        }
        c[i * ldc + j] = v;
    }
}

static void gemm_panel_f32_generic(float *c, size_t ldc, const float *a, size_t lda, size_t step, const float *b, size_t ldb,
                                   size_t m, size_t n, size_t k, bool accumulate, const pome_panel_end *end)
{
    for (size_t i = 0; i < m; i++) {
        float sum[POME_PANEL] = {0};
        for (size_t j = 0; j < n && accumulate; j++)
            sum[j] = c[i * ldc + j];
        for (size_t p = 0; p < k; p++)
            for (size_t j = 0; j < POME_PANEL; j++)
                sum[j] += a[i * lda + p * step] * b[p * ldb + j];
        end_panel_row(c, ldc, sum, i, n, end);
    }
}

static void gemm_at_f32_generic(float *c, size_t ldc, const float *a, size_t lda, const float *b, const size_t *at, size_t m,
                                size_t n, size_t k, const pome_panel_end *end)
{
    for (size_t i = 0; i < m; i++) {
        float sum[POME_PANEL] = {0};
        for (size_t p = 0; p < k; p++)
            for (size_t j = 0; j < POME_PANEL; j++)
                sum[j] += a[i * lda + p] * b[at[p] + j];
        end_panel_row(c, ldc, sum, i, n, end);
    }
}

/* Short copies: calls would cost more than they do. */
static void copy_run(float *to, const float *from, size_t n, size_t stride)
{
    size_t i = 0;
    if (stride == 1) {
        for (; i + 4 <= n; i += 4)
            memcpy(to + i, from + i, 4 * sizeof *to);
        for (; i < n; i++)
            to[i] = from[i];
    } else {
        for (; i < n; i++)
            to[i] = from[i * stride];
    }
}

void pome_unfold_panel_f32_generic(float *panel, size_t ld, const float *x, size_t ldx, size_t m, const pome_panel_run *runs,
                                   size_t n_runs, size_t stride)
{
    size_t covered = 0;
    for (size_t r = 0; r < n_runs; r++)
        covered += runs[r].n;
    for (size_t i = 0; i < m; i++, panel += ld, x += ldx) {
        if (covered < POME_PANEL)
            memset(panel, 0, POME_PANEL * sizeof *panel);
        for (size_t r = 0; r < n_runs; r++)
            copy_run(panel + runs[r].to, x + runs[r].from, runs[r].n, stride);
    }
}

static void winograd_in_f32_generic(float *v, size_t apart, const float *x, size_t ldx, size_t width, size_t n)
{
    for (size_t j = 0; j < n; j++) {
        float d[4][4];
        for (size_t r = 0; r < 4; r++) {
            const float *even = x + r * ldx + j, *odd = even + width;
            d[r][0] = even[0] - even[1];
            d[r][1] = odd[0] + even[1];
            d[r][2] = even[1] - odd[0];
            d[r][3] = odd[0] - odd[1];
        }
        for (size_t c = 0; c < 4; c++) {
            v[(0 + c) * apart + j] = d[0][c] - d[2][c];
            v[(4 + c) * apart + j] = d[1][c] + d[2][c];
            v[(8 + c) * apart + j] = d[2][c] - d[1][c];
            v[(12 + c) * apart + j] = d[1][c] - d[3][c];
        }
    }
}

static bool winograd_out_f32_generic(float *y, size_t ldy, size_t rows, size_t cols, const float *m, size_t apart,
                                     const pome_panel_end *end)
{
    bool is_finite = true;
    for (size_t j = 0; 2 * j < cols; j++) {
        float s[2][4];
        for (size_t c = 0; c < 4; c++) {
            float m0 = m[c * apart + j], m1 = m[(4 + c) * apart + j], m2 = m[(8 + c) * apart + j], m3 = m[(12 + c) * apart + j];
            s[0][c] = (m0 + m1) + m2;
            s[1][c] = (m1 - m2) - m3;
        }
        for (size_t i = 0; i < rows; i++)
            for (size_t k = 0; k < 2 && 2 * j + k < cols; k++) {
                float v = k ? (s[i][1] - s[i][2]) - s[i][3] : (s[i][0] + s[i][1]) + s[i][2];
                size_t at = i * ldy + 2 * j + k;
                is_finite = is_finite && isfinite(v);
                v = end->bias ? v + *end->bias : v;
                v = end->addend ? v + end->addend[at] : v;
                v = v < end->low ? end->low : v;
                y[at] = v > end->high ? end->high : v;
            }
    }
    return is_finite;
}

static void conv_plane_f32_generic(float *y, size_t rows, size_t cols, const pome_conv_plane *p)
{
    for (size_t i = 0; i < rows; i++, y += cols) {
        for (size_t j = 0; j < cols; j++)
            y[j] = 0;
        for (size_t e = 0; e < p->kh * p->kw; e++) {
            const float *x = p->x + (i * p->sy + e / p->kw * p->dy) * p->ldx + e % p->kw * p->dx;
            float w = p->w[e];
            for (size_t j = 0; j < cols; j++)
                y[j] += x[j * p->sx] * w;
        }
        for (size_t j = 0; j < cols; j++) {
            float v = y[j] + p->bias;
            v = v < p->low ? p->low : v;
            y[j] = v > p->high ? p->high : v;
        }
    }
}

void pome_kernels_fill_generic(pome_kernels *k)
{
    k->f16_to_f32 = f16_to_f32_generic;
    k->f32_to_f16 = f32_to_f16_generic;
    k->f16_round = f16_round_generic;
    k->dot_f32 = dot_f32_generic;
    k->dot_f32_f16 = dot_f32_f16_generic;
    k->axpy_f32 = axpy_f32_generic;
    k->axpy_f32_f16 = axpy_f32_f16_generic;
    k->max_f32 = max_f32_generic;
    k->exp_sum_f32 = exp_sum_f32_generic;
    k->gemm_nt_f32 = gemm_nt_f32_generic;
    k->gemm_nn_f32 = gemm_nn_f32_generic;
    k->gemm_panel_f32 = gemm_panel_f32_generic;
    k->gemm_at_f32 = gemm_at_f32_generic;
    k->winograd_in_f32 = winograd_in_f32_generic;
    k->winograd_out_f32 = winograd_out_f32_generic;
    k->unfold_panel_f32 = pome_unfold_panel_f32_generic;
    k->conv_plane_f32 = conv_plane_f32_generic;
    k->silu_mul_f32 = silu_mul_f32_generic;
    k->gemm_nt_f16 = gemm_nt_f16_generic;
    k->gemm_nn_f16 = gemm_nn_f16_generic;
    k->gemv_f16 = gemv_f16_generic;
    k->gemv_int4_block = gemv_int4_block_generic;
    k->gemv_int8_block = gemv_int8_block_generic;
    k->gemv_uint4_shift_block = gemv_uint4_shift_block_generic;
    k->decode_int4_block = decode_int4_block_generic;
    k->decode_uint4_shift_block = decode_uint4_shift_block_generic;
    k->decode_int8_block = decode_int8_block_generic;
    k->decode_lut4 = decode_lut4_generic;
    k->gemv_sparse_f16 = gemv_sparse_f16_generic;
    k->decode_sparse_f16 = decode_sparse_f16_generic;
    pome_kernels_fill_coded_generic(k);
}
