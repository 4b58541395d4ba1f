/* The table for AArch64's baseline. Eight lanes are two vectors of four, so that sums come out as everywhere (and bit
 * for bit as with AVX2: both multiply and add in one rounding). Tiles of 2 x 4 results keep 16 of the 32 registers.
 * Any alignment; tails go through short arrays on the stack. */
#include <arm_neon.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/f16.h"
#include "kernels/kernels.h"
#include "kernels/sparse_places.h"

typedef struct f32x8 {
    float32x4_t a, b;
} f32x8;

static inline f32x8 zero8(void)
{
    return (f32x8){vdupq_n_f32(0), vdupq_n_f32(0)};
}
static inline f32x8 load8(const float *p)
{
    return (f32x8){vld1q_f32(p), vld1q_f32(p + 4)};
}
static inline f32x8 load8_part(const float *p, size_t n) /* n < 8, the rest zero */
{
    float tail[8] = {0};
    memcpy(tail, p, n * sizeof *p);
    return load8(tail);
}
static inline void store8(float *p, f32x8 v)
{
    vst1q_f32(p, v.a);
    vst1q_f32(p + 4, v.b);
}
static inline f32x8 from_f16(uint16x8_t h)
{
    return (f32x8){vcvt_f32_f16(vreinterpret_f16_u16(vget_low_u16(h))),
                   vcvt_f32_f16(vreinterpret_f16_u16(vget_high_u16(h)))};
}
static inline uint16x8_t to_f16(f32x8 v)
{
    return vcombine_u16(vreinterpret_u16_f16(vcvt_f16_f32(v.a)), vreinterpret_u16_f16(vcvt_f16_f32(v.b)));
}
static inline f32x8 load8_f16(const uint16_t *p)
{
    return from_f16(vld1q_u16(p));
}
static inline f32x8 load8_f16_part(const uint16_t *p, size_t n)
{
    uint16_t tail[8] = {0};
    memcpy(tail, p, n * sizeof *p);
    return load8_f16(tail);
}
static inline f32x8 fma8(f32x8 acc, f32x8 x, f32x8 y)
{
    return (f32x8){vfmaq_f32(acc.a, x.a, y.a), vfmaq_f32(acc.b, x.b, y.b)};
}
static inline f32x8 scale8(f32x8 x, float s)
{
    return (f32x8){vmulq_n_f32(x.a, s), vmulq_n_f32(x.b, s)};
}
/* ((0+4)+(1+5)) + ((2+6)+(3+7)) */
static inline float sum8(f32x8 v)
{
    float32x4_t s = vaddq_f32(v.a, v.b);
    s = vpaddq_f32(s, s);
    return vgetq_lane_f32(vpaddq_f32(s, s), 0);
}

static void f16_to_f32_neon(float *dst, const uint16_t *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        store8(dst + i, load8_f16(src + i));
    for (; i < n; i++)
        dst[i] = pome_f16_to_f32(src[i]);
}

static void f32_to_f16_neon(uint16_t *dst, const float *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        vst1q_u16(dst + i, to_f16(load8(src + i)));
    for (; i < n; i++)
        dst[i] = pome_f32_to_f16(src[i]);
}

static void f16_round_neon(float *x, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        store8(x + i, from_f16(to_f16(load8(x + i))));
    for (; i < n; i++)
        x[i] = pome_f16_round(x[i]);
}

static void axpy_f32_neon(float *y, float s, const float *x, size_t n)
{
    size_t i = 0;
    f32x8 factor = {vdupq_n_f32(s), vdupq_n_f32(s)};
    for (; i + 8 <= n; i += 8)
        store8(y + i, fma8(load8(y + i), factor, load8(x + i)));
    for (; i < n; i++)
        y[i] = fmaf(s, x[i], y[i]);
}

static void axpy_f32_f16_neon(float *y, float s, const uint16_t *x, size_t n)
{
    size_t i = 0;
    f32x8 factor = {vdupq_n_f32(s), vdupq_n_f32(s)};
    for (; i + 8 <= n; i += 8)
        store8(y + i, fma8(load8(y + i), factor, load8_f16(x + i)));
    for (; i < n; i++)
        y[i] = fmaf(s, pome_f16_to_f32(x[i]), y[i]);
}

static float max_f32_neon(const float *x, size_t n)
{
    float32x4_t acc = vdupq_n_f32(-INFINITY);
    size_t i = 0;
    for (; i + 4 <= n; i += 4) /* the number wins over NaN */
        acc = vmaxnmq_f32(acc, vld1q_f32(x + i));
    float max = vmaxnmvq_f32(acc);
    for (; i < n; i++)
        if (x[i] > max)
            max = x[i];
    return max;
}

/* exp(x) = 2^n * exp(r), n = round(x / ln 2), |r| <= 0.347: Taylor to r^7 is within 2^-27. 2^n is applied as two
 * factors so that subnormal results come out. Below -104 the result rounds to 0, above 89 it is infinite. */
static float32x4_t exp4(float32x4_t x)
{
    x = vminq_f32(vdupq_n_f32(89.0f), vmaxq_f32(vdupq_n_f32(-104.0f), x)); /* NaN passes */
    float32x4_t n = vrndnq_f32(vmulq_n_f32(x, 1.44269504f));
    float32x4_t r = vfmsq_f32(x, n, vdupq_n_f32(0.693145752f)); /* ln 2, high part: 16 bits */
    r = vfmsq_f32(r, n, vdupq_n_f32(1.42860677e-6f));
    float32x4_t p = vdupq_n_f32(1.0f / 5040);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 720), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 120), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 24), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f / 6), p, r);
    p = vfmaq_f32(vdupq_n_f32(0.5f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    p = vfmaq_f32(vdupq_n_f32(1.0f), p, r);
    int32x4_t e = vcvtq_s32_f32(n), half = vshrq_n_s32(e, 1), rest = vsubq_s32(e, half), bias = vdupq_n_s32(127);
    p = vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(half, bias), 23)));
    return vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(rest, bias), 23)));
}

static float exp_sum_f32_neon(float *x, float max, size_t n)
{
    f32x8 sum = zero8();
    float32x4_t shift = vdupq_n_f32(max);
    for (size_t i = 0; i < n; i += 8) {
        size_t len = n - i < 8 ? n - i : 8;
        float e[8] = {0};
        memcpy(e, x + i, len * sizeof *x);
        store8(e, (f32x8){exp4(vsubq_f32(vld1q_f32(e), shift)), exp4(vsubq_f32(vld1q_f32(e + 4), shift))});
        memcpy(x + i, e, len * sizeof *x);
        for (size_t j = len; j < 8; j++)
            e[j] = 0;
        sum.a = vaddq_f32(sum.a, vld1q_f32(e));
        sum.b = vaddq_f32(sum.b, vld1q_f32(e + 4));
    }
    return sum8(sum);
}

/* ---- products ---- */

/* One block of k for a tile of `rows` x 4 (rows 1 or 2, a constant). Columns that are missing repeat another. */
static inline __attribute__((always_inline)) void nt_tile(float *sum /* [rows][4] */, const float *a, size_t lda,
                                                          const float *const b[4], size_t k, size_t rows)
{
    f32x8 acc[2][4];
    size_t p = 0;
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < 4; j++)
            acc[i][j] = zero8();
    for (; p + 8 <= k; p += 8)
        for (size_t j = 0; j < 4; j++) {
            f32x8 y = load8(b[j] + p);
            for (size_t i = 0; i < rows; i++)
                acc[i][j] = fma8(acc[i][j], load8(a + i * lda + p), y);
        }
    if (p < k)
        for (size_t j = 0; j < 4; j++) {
            f32x8 y = load8_part(b[j] + p, k - p);
            for (size_t i = 0; i < rows; i++)
                acc[i][j] = fma8(acc[i][j], load8_part(a + i * lda + p, k - p), y);
        }
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < 4; j++)
            sum[i * 4 + j] = sum8(acc[i][j]);
}

static void put_tile(float *c, size_t ldc, const float *sum, size_t rows, size_t columns, bool add)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++)
            c[i * ldc + j] = add ? c[i * ldc + j] + sum[i * 4 + j] : sum[i * 4 + j];
}

static void gemm_nt_f32_neon(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t m,
                             size_t n, size_t k, bool accumulate)
{
    enum { MC = 48 }; /* rows of a that stay in the cache while b passes */
    float sum[8];
    for (size_t i = 0; k == 0 && !accumulate && i < m; i++)
        memset(c + i * ldc, 0, n * sizeof *c);
    for (size_t p = 0; p < k; p += POME_KERNEL_KC) {
        size_t len = k - p < POME_KERNEL_KC ? k - p : POME_KERNEL_KC;
        bool add = accumulate || p > 0;
        for (size_t first = 0; first < m; first += MC)
            for (size_t j = 0; j < n; j += 4) {
                size_t columns = n - j < 4 ? n - j : 4, i = first, end = m - first < MC ? m : first + MC;
                const float *y[4];
                for (size_t t = 0; t < 4; t++)
                    y[t] = b + (j + (t < columns ? t : 0)) * ldb + p;
                for (; i + 2 <= end; i += 2) {
                    nt_tile(sum, a + i * lda + p, lda, y, len, 2);
                    put_tile(c + i * ldc + j, ldc, sum, 2, columns, add);
                }
                if (i < end) {
                    nt_tile(sum, a + i * lda + p, lda, y, len, 1);
                    put_tile(c + i * ldc + j, ldc, sum, 1, columns, add);
                }
            }
    }
}

static float dot_f32_neon(const float *a, const float *b, size_t n)
{
    float sum;
    gemm_nt_f32_neon(&sum, 1, a, n, b, n, 1, 1, n, false);
    return sum;
}

/* `rows` (1 or 4) rows times 16 columns. */
static inline __attribute__((always_inline)) void nn_tile(float *c, size_t ldc, const float *a, size_t lda,
                                                          const float *b, size_t ldb, size_t k, size_t rows, bool add)
{
    f32x8 acc[4][2];
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < 2; j++)
            acc[i][j] = add ? load8(c + i * ldc + 8 * j) : zero8();
    for (size_t p = 0; p < k; p++) {
        f32x8 y0 = load8(b + p * ldb), y1 = load8(b + p * ldb + 8);
        for (size_t i = 0; i < rows; i++) {
            float32x4_t s = vdupq_n_f32(a[i * lda + p]);
            acc[i][0] = fma8(acc[i][0], (f32x8){s, s}, y0);
            acc[i][1] = fma8(acc[i][1], (f32x8){s, s}, y1);
        }
    }
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < 2; j++)
            store8(c + i * ldc + 8 * j, acc[i][j]);
}

static void gemm_nn_f32_neon(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t m,
                             size_t n, size_t k, bool accumulate)
{
    size_t wide = n / 16 * 16, i = 0;
    for (; i + 4 <= m; i += 4)
        for (size_t j = 0; j < wide; j += 16)
            nn_tile(c + i * ldc + j, ldc, a + i * lda, lda, b + j, ldb, k, 4, accumulate);
    for (; i < m; i++)
        for (size_t j = 0; j < wide; j += 16)
            nn_tile(c + i * ldc + j, ldc, a + i * lda, lda, b + j, ldb, k, 1, accumulate);
    for (i = 0; i < m && wide < n; i++) {
        float *row = c + i * ldc + wide;
        if (!accumulate)
            memset(row, 0, (n - wide) * sizeof *row);
        for (size_t p = 0; p < k; p++)
            axpy_f32_neon(row, a[i * lda + p], b + p * ldb + wide, n - wide);
    }
}

static void gemv_f16_neon(float *y, const float *x, const uint16_t *w, size_t ldw, size_t n, size_t k)
{
    for (size_t j = 0; j < n; j += 4) {
        size_t rows = n - j < 4 ? n - j : 4;
        float sum[4] = {0};
        for (size_t p = 0; p < k;) {
            size_t end = k - p < POME_KERNEL_KC ? k : p + POME_KERNEL_KC;
            f32x8 acc[4] = {zero8(), zero8(), zero8(), zero8()};
            for (; p + 8 <= end; p += 8) {
                f32x8 v = load8(x + p);
                for (size_t r = 0; r < 4; r++) /* missing rows repeat the first */
                    acc[r] = fma8(acc[r], v, load8_f16(w + (j + (r < rows ? r : 0)) * ldw + p));
            }
            for (size_t r = 0; r < rows && p < end; r++)
                acc[r] = fma8(acc[r], load8_part(x + p, end - p), load8_f16_part(w + (j + r) * ldw + p, end - p));
            p = end;
            for (size_t r = 0; r < 4; r++)
                sum[r] += sum8(acc[r]);
        }
        memcpy(y + j, sum, rows * sizeof *y);
    }
}

static float dot_f32_f16_neon(const float *a, const uint16_t *b, size_t n)
{
    float sum;
    gemv_f16_neon(&sum, a, b, n, 1, n);
    return sum;
}

/* ---- int4 and int8: sixteen halves of a block as two byte tables, as in the AVX2 file ---- */

typedef struct half_table {
    uint8x16_t low, high;
} half_table;

static inline half_table table_int4(float scale)
{
    static const float one[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    static const uint8_t low_of[16] = {255, 0, 2, 4, 6, 8, 10, 12, 14, 12, 10, 8, 6, 4, 2, 0};
    static const uint8_t high_of[16] = {255, 1, 3, 5, 7, 9, 11, 13, 15, 13, 11, 9, 7, 5, 3, 1};
    static const uint8_t sign[16] = {0, 0, 0, 0, 0, 0, 0, 0, 128, 128, 128, 128, 128, 128, 128, 128};
    uint8x16_t m = vreinterpretq_u8_u16(to_f16(scale8(load8(one), scale)));
    return (half_table){vqtbl1q_u8(m, vld1q_u8(low_of)), veorq_u8(vqtbl1q_u8(m, vld1q_u8(high_of)), vld1q_u8(sign))};
}

static inline void lookup32(f32x8 v[4], half_table t, const uint8_t *codes)
{
    uint8x16_t c = vld1q_u8(codes), even = vandq_u8(c, vdupq_n_u8(15)), odd = vshrq_n_u8(c, 4);
    for (size_t i = 0; i < 2; i++) {
        uint8x16_t index = i ? vzip2q_u8(even, odd) : vzip1q_u8(even, odd);
        uint8x16_t low = vqtbl1q_u8(t.low, index), high = vqtbl1q_u8(t.high, index);
        v[2 * i] = from_f16(vreinterpretq_u16_u8(vzip1q_u8(low, high)));
        v[2 * i + 1] = from_f16(vreinterpretq_u16_u8(vzip2q_u8(low, high)));
    }
}

static inline half_table table_uint4(float scale, float offset)
{
    static const float code[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    uint8x16_t v[2];
    for (size_t h = 0; h < 2; h++) {
        f32x8 c = load8(code + 8 * h);
        c = (f32x8){vsubq_f32(c.a, vdupq_n_f32(offset)), vsubq_f32(c.b, vdupq_n_f32(offset))};
        v[h] = vreinterpretq_u8_u16(to_f16(scale8(from_f16(to_f16(c)), scale)));
    }
    return (half_table){vuzp1q_u8(v[0], v[1]), vuzp2q_u8(v[0], v[1])};
}

/* offset_f16: NULL for signed codes, a constant where it is called. */
static inline void gemv_nibbles(float *y, const float *x, const uint8_t *codes, const uint16_t *scale_f16,
                                const uint16_t *offset_f16, size_t n, size_t k, size_t block)
{
    for (size_t j = 0; j < n; j++, codes += k / 2, scale_f16 += k / block) {
        y[j] = 0;
        for (size_t p = 0; p < k;) {
            size_t end = k - p < POME_KERNEL_KC ? k : p + POME_KERNEL_KC;
            f32x8 acc = zero8();
            while (p < end) {
                size_t stop = (p / block + 1) * block < end ? (p / block + 1) * block : end;
                float scale = pome_f16_to_f32(scale_f16[p / block]);
                half_table t = offset_f16 ? table_uint4(scale, pome_f16_to_f32(offset_f16[j * (k / block) + p / block]))
                                          : table_int4(scale);
                for (; p < stop; p += 32) {
                    f32x8 v[4];
                    lookup32(v, t, codes + p / 2);
                    for (size_t i = 0; i < 4; i++)
                        acc = fma8(acc, load8(x + p + 8 * i), v[i]);
                }
            }
            y[j] += sum8(acc);
        }
    }
}

static void gemv_int4_block_neon(float *y, const float *x, const uint8_t *codes, const uint16_t *scale_f16, size_t n,
                                 size_t k, size_t block)
{
    gemv_nibbles(y, x, codes, scale_f16, NULL, n, k, block);
}

static void gemv_uint4_shift_block_neon(float *y, const float *x, const uint8_t *codes, const uint16_t *scale_f16,
                                        const uint16_t *offset_f16, size_t n, size_t k, size_t block)
{
    gemv_nibbles(y, x, codes, scale_f16, offset_f16, n, k, block);
}

static inline f32x8 load8_int8(const int8_t *codes, float scale)
{
    int16x8_t w = vmovl_s8(vld1_s8(codes));
    f32x8 v = {vcvtq_f32_s32(vmovl_s16(vget_low_s16(w))), vcvtq_f32_s32(vmovl_s16(vget_high_s16(w)))};
    return from_f16(to_f16(scale8(v, scale)));
}

static void gemv_int8_block_neon(float *y, const float *x, const int8_t *codes, const uint16_t *scale_f16, size_t n,
                                 size_t k, size_t block)
{
    for (size_t j = 0; j < n; j++, codes += k, scale_f16 += k / block) {
        y[j] = 0;
        for (size_t p = 0; p < k;) {
            size_t end = k - p < POME_KERNEL_KC ? k : p + POME_KERNEL_KC;
            f32x8 acc = zero8();
            while (p < end) {
                size_t stop = (p / block + 1) * block < end ? (p / block + 1) * block : end;
                float scale = pome_f16_to_f32(scale_f16[p / block]);
                for (; p < stop; p += 8)
                    acc = fma8(acc, load8(x + p), load8_int8(codes + p, scale));
            }
            y[j] += sum8(acc);
        }
    }
}

/* The table gives +0 for code 0: right for finite scales from 0 up. Others take the loop. */
static void decode_int4_block_neon(float *dst, const uint8_t *codes, const uint16_t *scale_f16, size_t n, size_t block)
{
    for (size_t i = 0; i < n; scale_f16++) {
        size_t end = n - i < block ? n : i + block;
        float scale = pome_f16_to_f32(*scale_f16);
        half_table t = table_int4(scale);
        for (; i + 32 <= end && *scale_f16 < 0x7c00; i += 32) {
            f32x8 v[4];
            lookup32(v, t, codes + i / 2);
            for (size_t j = 0; j < 4; j++)
                store8(dst + i + 8 * j, v[j]);
        }
        for (; i < end; i++) {
            int code = codes[i / 2] >> (i % 2 * 4) & 15;
            dst[i] = pome_f16_round(scale * (float)(code - (code & 8) * 2));
        }
    }
}

static void decode_int8_block_neon(float *dst, const int8_t *codes, const uint16_t *scale_f16, size_t n, size_t block)
{
    for (size_t i = 0; i < n; scale_f16++) {
        size_t end = n - i < block ? n : i + block;
        float scale = pome_f16_to_f32(*scale_f16);
        for (; i + 8 <= end; i += 8)
            store8(dst + i, load8_int8(codes + i, scale));
        for (; i < end; i++)
            dst[i] = pome_f16_round(scale * (float)codes[i]);
    }
}

/* ---- weights and caches in other forms: decoded piece by piece, multiplied in the same order ---- */

static void gemm_nt_f16_neon(float *c, size_t ldc, const float *a, size_t lda, const uint16_t *b, size_t ldb, size_t m,
                             size_t n, size_t k, bool accumulate)
{
    enum { PIECE = 64 };
    float sum[PIECE];
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j += PIECE) {
            size_t columns = n - j < PIECE ? n - j : PIECE;
            float *to = c + i * ldc + j;
            if (k == 0 && !accumulate)
                memset(to, 0, columns * sizeof *to);
            for (size_t p = 0; p < k; p += POME_KERNEL_KC) {
                size_t len = k - p < POME_KERNEL_KC ? k - p : POME_KERNEL_KC;
                gemv_f16_neon(sum, a + i * lda + p, b + j * ldb + p, ldb, columns, len);
                for (size_t t = 0; t < columns; t++)
                    to[t] = accumulate || p > 0 ? to[t] + sum[t] : sum[t];
            }
        }
}

static void gemm_nn_f16_neon(float *c, size_t ldc, const float *a, size_t lda, const uint16_t *b, size_t ldb, size_t m,
                             size_t n, size_t k, bool accumulate)
{
    for (size_t i = 0; i < m; i++) {
        if (!accumulate)
            memset(c + i * ldc, 0, n * sizeof *c);
        for (size_t p = 0; p < k; p++)
            axpy_f32_f16_neon(c + i * ldc, a[i * lda + p], b + p * ldb, n);
    }
}

/* ---- sparse weights: a byte of the mask picks the shuffle that moves its values to their places ---- */

static size_t count_ones(const uint8_t *bits, size_t n_bytes)
{
    size_t ones = 0, i = 0;
    for (; i + 8 <= n_bytes; i += 8)
        ones += vaddv_u8(vcnt_u8(vld1_u8(bits + i)));
    for (; i < n_bytes; i++)
        ones += vget_lane_u8(vcnt_u8(vdup_n_u8(bits[i])), 0);
    return ones;
}

/* Eight weights; *values moves on. No more than `end` is read. */
static inline f32x8 spread8(const uint16_t **values, const uint16_t *end, uint8_t byte)
{
    size_t ones = vget_lane_u8(vcnt_u8(vdup_n_u8(byte)), 0);
    uint16_t left[8] = {0};
    const uint16_t *from = *values;
    if (end - from < 8) {
        memcpy(left, from, ones * sizeof *left);
        from = left;
    }
    *values += ones;
    return from_f16(vreinterpretq_u16_u8(vqtbl1q_u8(vreinterpretq_u8_u16(vld1q_u16(from)), vld1q_u8(sparse_places[byte]))));
}

static void decode_sparse_f16_neon(float *dst, const uint8_t *bits, const uint16_t *values, size_t n)
{
    const uint16_t *end = values + count_ones(bits, n / 8);
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        store8(dst + i, spread8(&values, end, bits[i / 8]));
    for (; i < n; i++)
        dst[i] = bits[i / 8] >> (i % 8) & 1 ? pome_f16_to_f32(*values++) : 0.0f;
}

static void gemv_sparse_f16_neon(float *y, const float *x, const uint8_t *bits, const uint16_t *values, size_t n, size_t k)
{
    const uint16_t *end = values + count_ones(bits, n * (k / 8));
    for (size_t j = 0; j < n; j++, bits += k / 8) {
        y[j] = 0;
        for (size_t p = 0; p < k;) {
            size_t stop = k - p < POME_KERNEL_KC ? k : p + POME_KERNEL_KC;
            f32x8 acc = zero8();
            for (; p < stop; p += 8)
                acc = fma8(acc, load8(x + p), spread8(&values, end, bits[p / 8]));
            y[j] += sum8(acc);
        }
    }
}

/* ---- unsigned 4-bit codes with an offset ---- */

static void decode_uint4_shift_block_neon(float *dst, const uint8_t *codes, const uint16_t *scale_f16,
                                          const uint16_t *offset_f16, size_t n, size_t block)
{
    for (size_t i = 0; i < n; scale_f16++, offset_f16++) {
        size_t end = n - i < block ? n : i + block;
        half_table t = table_uint4(pome_f16_to_f32(*scale_f16), pome_f16_to_f32(*offset_f16));
        for (size_t len; i < end; i += len) {
            uint8_t piece[16] = {0};
            float out[32];
            f32x8 v[4];
            len = end - i < 32 ? end - i : 32;
            memcpy(piece, codes + i / 2, (len + 1) / 2);
            lookup32(v, t, piece);
            for (size_t j = 0; j < 4; j++)
                store8(out + 8 * j, v[j]);
            memcpy(dst + i, out, len * sizeof *dst);
        }
    }
}

/* ---- palettes ---- */

/* Sixteen floats are 64 bytes, which one instruction looks up. */
static void decode_lut4_neon(float *dst, const uint8_t *codes, const float *table, size_t n)
{
    static const uint8_t repeat[16] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    static const uint8_t byte[16] = {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
    uint8x16x4_t bytes;
    size_t i = 0;
    for (size_t v = 0; v < 4; v++)
        bytes.val[v] = vreinterpretq_u8_f32(vld1q_f32(table + 4 * v));
    for (; i + 16 <= n; i += 16) {
        uint8x8_t c = vld1_u8(codes + i / 2);
        uint8x8x2_t pair = vzip_u8(vand_u8(c, vdup_n_u8(15)), vshr_n_u8(c, 4));
        uint8x16_t first = vshlq_n_u8(vcombine_u8(pair.val[0], pair.val[1]), 2); /* byte of each entry */
        for (uint8_t q = 0; q < 4; q++) {
            uint8x16_t at = vqtbl1q_u8(first, vaddq_u8(vld1q_u8(repeat), vdupq_n_u8((uint8_t)(4 * q))));
            vst1q_f32(dst + i + 4 * q, vreinterpretq_f32_u8(vqtbl4q_u8(bytes, vaddq_u8(at, vld1q_u8(byte)))));
        }
    }
    for (; i < n; i++)
        dst[i] = table[codes[i / 2] >> (i % 2 * 4) & 15];
}

/* Sixteen pairs of indices at a time, each from the 16 bits that hold it. */
static void widen_indices_neon(uint8_t *nibbles, const uint8_t *bits, uint32_t n_bits, size_t n)
{
    uint8_t place[2][16];
    int16_t down[2][8];
    size_t i = 0;
    for (uint32_t j = 0; j < 16; j++) {
        uint32_t at = 2 * n_bits * j;
        place[j / 8][j % 8 * 2] = (uint8_t)(at / 8);
        place[j / 8][j % 8 * 2 + 1] = (uint8_t)(at / 8 + 1);
        down[j / 8][j % 8] = (int16_t)-(int)(at % 8);
    }
    const uint16x8_t mask = vdupq_n_u16((uint16_t)((1u << n_bits) - 1));
    const int16x8_t apart = vdupq_n_s16((int16_t)(4 - n_bits));
    for (; (n - i) / 8 * n_bits >= 16; i += 32, bits += 4 * n_bits, nibbles += 16) {
        uint8x16_t all = vld1q_u8(bits);
        uint8x8_t out[2];
        for (size_t h = 0; h < 2; h++) {
            uint16x8_t v = vshlq_u16(vreinterpretq_u16_u8(vqtbl1q_u8(all, vld1q_u8(place[h]))), vld1q_s16(down[h]));
            uint16x8_t high = vandq_u16(vshlq_u16(v, apart), vshlq_n_u16(mask, 4));
            out[h] = vmovn_u16(vorrq_u16(vandq_u16(v, mask), high));
        }
        vst1q_u8(nibbles, vcombine_u8(out[0], out[1]));
    }
    pome_widen_indices_generic(nibbles, bits, n_bits, n - i);
}

/* ---- gates: vecmath.h's functions, operation by operation, so that every level gives the same bits ---- */

static inline float32x4_t exp_of_negative4(float32x4_t x) /* <= 0, or NaN */
{
    const float32x4_t magic = vdupq_n_f32(12582912.0f);
    x = vbslq_f32(vcltq_f32(x, vdupq_n_f32(-104.0f)), vdupq_n_f32(-104.0f), x);
    float32x4_t shifted = vaddq_f32(vmulq_n_f32(x, 1.44269504f), magic), n = vsubq_f32(shifted, magic);
    float32x4_t r = vsubq_f32(vsubq_f32(x, vmulq_n_f32(n, 0x1.62e4p-1f)), vmulq_n_f32(n, 0x1.7f7d1cp-20f));
    float32x4_t q = vaddq_f32(vmulq_f32(vdupq_n_f32(0x1.6a23dp-10f), r), vdupq_n_f32(0x1.123a2p-7f));
    q = vaddq_f32(vmulq_f32(q, r), vdupq_n_f32(0x1.5558f2p-5f));
    q = vaddq_f32(vmulq_f32(q, r), vdupq_n_f32(0x1.555492p-3f));
    q = vaddq_f32(vmulq_f32(q, r), vdupq_n_f32(0x1.fffffcp-2f));
    float32x4_t p = vaddq_f32(vdupq_n_f32(1.0f), vaddq_f32(r, vmulq_f32(vmulq_f32(r, r), q)));
    uint32x4_t biased = vaddq_u32(vsubq_u32(vreinterpretq_u32_f32(shifted), vreinterpretq_u32_f32(magic)), vdupq_n_u32(256));
    uint32x4_t half = vshrq_n_u32(biased, 1), one = vdupq_n_u32(1);
    float32x4_t scale_1 = vreinterpretq_f32_u32(vshlq_n_u32(vsubq_u32(half, one), 23));
    float32x4_t scale_2 = vreinterpretq_f32_u32(vshlq_n_u32(vsubq_u32(vsubq_u32(biased, half), one), 23));
    return vmulq_f32(vmulq_f32(p, scale_1), scale_2);
}

static inline float32x4_t silu_mul4(float32x4_t gate, float32x4_t up)
{
    float32x4_t one = vdupq_n_f32(1.0f), e = exp_of_negative4(vnegq_f32(vabsq_f32(gate)));
    float32x4_t sigmoid = vdivq_f32(vbslq_f32(vcltq_f32(gate, vdupq_n_f32(0)), e, one), vaddq_f32(one, e));
    return vmulq_f32(vmulq_f32(gate, sigmoid), up);
}

static void silu_mul_f32_neon(float *out, const float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i += 4) {
        if (n - i >= 4) {
            vst1q_f32(out + i, silu_mul4(vld1q_f32(gate + i), vld1q_f32(up + i)));
        } else {
            float g[4] = {0}, u[4] = {0};
            memcpy(g, gate + i, (n - i) * sizeof *g);
            memcpy(u, up + i, (n - i) * sizeof *u);
            vst1q_f32(g, silu_mul4(vld1q_f32(g), vld1q_f32(u)));
            memcpy(out + i, g, (n - i) * sizeof *g);
        }
    }
}

void pome_kernels_fill_neon(pome_kernels *k)
{
    k->f16_to_f32 = f16_to_f32_neon;
    k->f32_to_f16 = f32_to_f16_neon;
    k->f16_round = f16_round_neon;
    k->dot_f32 = dot_f32_neon;
    k->dot_f32_f16 = dot_f32_f16_neon;
    k->axpy_f32 = axpy_f32_neon;
    k->axpy_f32_f16 = axpy_f32_f16_neon;
    k->max_f32 = max_f32_neon;
    k->exp_sum_f32 = exp_sum_f32_neon;
    k->gemm_nt_f32 = gemm_nt_f32_neon;
    k->gemm_nn_f32 = gemm_nn_f32_neon;
    k->gemv_f16 = gemv_f16_neon;
    k->gemm_nt_f16 = gemm_nt_f16_neon;
    k->gemm_nn_f16 = gemm_nn_f16_neon;
    k->gemv_sparse_f16 = gemv_sparse_f16_neon;
    k->gemv_uint4_shift_block = gemv_uint4_shift_block_neon;
    k->gemv_int4_block = gemv_int4_block_neon;
    k->gemv_int8_block = gemv_int8_block_neon;
    k->decode_int4_block = decode_int4_block_neon;
    k->decode_int8_block = decode_int8_block_neon;
    k->decode_uint4_shift_block = decode_uint4_shift_block_neon;
    k->decode_sparse_f16 = decode_sparse_f16_neon;
    k->decode_lut4 = decode_lut4_neon;
    k->widen_indices = widen_indices_neon;
    k->silu_mul_f32 = silu_mul_f32_neon;
}
