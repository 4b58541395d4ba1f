/* The AVX-512, VNNI and AMX instructions that the kernels use, one element at a time, after the operations' definitions
 * in Intel's Software Developer's Manual. It lets a machine without them test what the kernels compute (not how
 * fast). Included by a kernel file after <immintrin.h>, which it hides. */
#ifndef POME_TESTS_EMULATE_AVX512_H
#define POME_TESTS_EMULATE_AVX512_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef union emu512i {
    int8_t b[64];
    uint8_t ub[64];
    int16_t w[32];
    uint16_t uw[32];
    int32_t d[16];
    uint32_t ud[16];
    int64_t q[8];
} emu512i;
typedef union emu512 {
    float f[16];
    emu512i i;
} emu512;

#define __m512i emu512i
#define __m512 emu512
#define EMU static inline __attribute__((unused))

EMU emu512i emu_loadu(const void *p)
{
    emu512i v;
    memcpy(&v, p, sizeof v);
    return v;
}
EMU void emu_storeu(void *p, emu512i v)
{
    memcpy(p, &v, sizeof v);
}
EMU emu512i emu_maskz_loadu_epi8(__mmask64 m, const void *p)
{
    emu512i v;
    for (size_t i = 0; i < 64; i++)
        v.ub[i] = m >> i & 1 ? ((const uint8_t *)p)[i] : 0;
    return v;
}
EMU emu512 emu_loadu_ps(const void *p)
{
    emu512 v;
    memcpy(&v, p, sizeof v);
    return v;
}
EMU void emu_storeu_ps(void *p, emu512 v)
{
    memcpy(p, &v, sizeof v);
}
EMU emu512 emu_maskz_loadu_ps(__mmask16 m, const float *p)
{
    emu512 v;
    for (size_t i = 0; i < 16; i++)
        v.f[i] = m >> i & 1 ? p[i] : 0;
    return v;
}
EMU void emu_mask_storeu_ps(float *p, __mmask16 m, emu512 v)
{
    for (size_t i = 0; i < 16; i++)
        if (m >> i & 1)
            p[i] = v.f[i];
}

#define EMU_EACH(name, n, out, expr)                                                                                   \
    EMU emu512i name(emu512i a, emu512i b)                                                                             \
    {                                                                                                                  \
        emu512i v;                                                                                                     \
        for (size_t i = 0; i < (n); i++)                                                                               \
            v.out[i] = (expr);                                                                                         \
        return v;                                                                                                      \
    }
EMU_EACH(emu_and, 8, q, a.q[i] & b.q[i])
EMU_EACH(emu_xor, 8, q, a.q[i] ^ b.q[i])
EMU_EACH(emu_add32, 16, ud, a.ud[i] + b.ud[i])
EMU_EACH(emu_sub32, 16, ud, a.ud[i] - b.ud[i])
EMU_EACH(emu_max32, 16, d, a.d[i] > b.d[i] ? a.d[i] : b.d[i])
EMU_EACH(emu_madd16, 16, d, a.w[2 * i] * b.w[2 * i] + a.w[2 * i + 1] * b.w[2 * i + 1])
EMU_EACH(emu_unpacklo32, 16, ud, (i % 2 ? b : a).ud[i / 4 * 4 + i % 4 / 2])
EMU_EACH(emu_unpackhi32, 16, ud, (i % 2 ? b : a).ud[i / 4 * 4 + i % 4 / 2 + 2])
EMU_EACH(emu_unpacklo64, 8, q, (i % 2 ? b : a).q[i / 2 * 2])
EMU_EACH(emu_unpackhi64, 8, q, (i % 2 ? b : a).q[i / 2 * 2 + 1])
EMU_EACH(emu_shuffle8, 64, ub, b.ub[i] & 128 ? 0 : a.ub[i / 16 * 16 + (b.ub[i] & 15)])

EMU int16_t emu_saturate16(int32_t v)
{
    return (int16_t)(v > 32767 ? 32767 : v < -32768 ? -32768 : v);
}
EMU_EACH(emu_maddubs, 32, w, emu_saturate16(a.ub[2 * i] * b.b[2 * i] + a.ub[2 * i + 1] * b.b[2 * i + 1]))

EMU emu512i emu_dpbusd(emu512i acc, emu512i u, emu512i s)
{
    for (size_t i = 0; i < 64; i++)
        acc.ud[i / 4] += (uint32_t)(u.ub[i] * s.b[i]);
    return acc;
}
EMU emu512i emu_shuffle_i32x4(emu512i a, emu512i b, int how)
{
    emu512i v;
    for (int lane = 0; lane < 4; lane++)
        memcpy(v.d + lane * 4, (lane < 2 ? a : b).d + (how >> (2 * lane) & 3) * 4, 16);
    return v;
}
EMU emu512i emu_srli16(emu512i a, unsigned n)
{
    for (size_t i = 0; i < 32; i++)
        a.uw[i] = (uint16_t)(a.uw[i] >> n);
    return a;
}
EMU emu512i emu_slli32(emu512i a, unsigned n)
{
    for (size_t i = 0; i < 16; i++)
        a.ud[i] <<= n;
    return a;
}
EMU emu512i emu_srli32(emu512i a, unsigned n)
{
    for (size_t i = 0; i < 16; i++)
        a.ud[i] >>= n;
    return a;
}
EMU __m256i emu_narrow32(emu512i a)
{
    uint16_t half[16];
    __m256i v;
    for (size_t i = 0; i < 16; i++)
        half[i] = (uint16_t)a.ud[i];
    memcpy(&v, half, sizeof v);
    return v;
}
EMU emu512i emu_zero(void)
{
    emu512i v;
    memset(&v, 0, sizeof v);
    return v;
}
EMU emu512i emu_set8(int8_t x)
{
    emu512i v;
    memset(&v, x, sizeof v);
    return v;
}
EMU emu512i emu_set16(int16_t x)
{
    emu512i v;
    for (size_t i = 0; i < 32; i++)
        v.w[i] = x;
    return v;
}
EMU emu512i emu_set32(int32_t x)
{
    emu512i v;
    for (size_t i = 0; i < 16; i++)
        v.d[i] = x;
    return v;
}
EMU emu512i emu_insert128(emu512i a, __m128i b, int lane)
{
    memcpy(a.d + 4 * lane, &b, 16);
    return a;
}
EMU emu512i emu_broadcast128(__m128i b)
{
    emu512i v;
    for (int lane = 0; lane < 4; lane++)
        memcpy(v.d + 4 * lane, &b, 16);
    return v;
}
EMU int32_t emu_reduce_max32(emu512i a)
{
    int32_t max = a.d[0];
    for (size_t i = 1; i < 16; i++)
        max = a.d[i] > max ? a.d[i] : max;
    return max;
}
EMU int32_t emu_reduce_add32(emu512i a)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < 16; i++)
        sum += a.ud[i];
    return (int32_t)sum;
}
EMU emu512i emu_cvtps32(emu512 a) /* in range only */
{
    emu512i v;
    for (size_t i = 0; i < 16; i++)
        v.d[i] = (int32_t)lrintf(a.f[i]);
    return v;
}
EMU emu512 emu_cvt32ps(emu512i a)
{
    emu512 v;
    for (size_t i = 0; i < 16; i++)
        v.f[i] = (float)a.d[i];
    return v;
}
EMU emu512 emu_cvtph(__m256i a)
{
    uint16_t half[16];
    emu512 v;
    memcpy(half, &a, sizeof half);
    for (size_t i = 0; i < 16; i++)
        v.f[i] = _cvtsh_ss(half[i]);
    return v;
}
EMU emu512 emu_set_ps(float x)
{
    emu512 v;
    for (size_t i = 0; i < 16; i++)
        v.f[i] = x;
    return v;
}
EMU emu512 emu_mul(emu512 a, emu512 b)
{
    for (size_t i = 0; i < 16; i++)
        a.f[i] *= b.f[i];
    return a;
}
EMU emu512 emu_add(emu512 a, emu512 b)
{
    for (size_t i = 0; i < 16; i++)
        a.f[i] += b.f[i];
    return a;
}
EMU emu512 emu_sub(emu512 a, emu512 b)
{
    for (size_t i = 0; i < 16; i++)
        a.f[i] -= b.f[i];
    return a;
}
EMU emu512 emu_fmadd(emu512 a, emu512 b, emu512 c)
{
    for (size_t i = 0; i < 16; i++)
        c.f[i] = fmaf(a.f[i], b.f[i], c.f[i]);
    return c;
}
EMU emu512 emu_fnmadd(emu512 a, emu512 b, emu512 c)
{
    for (size_t i = 0; i < 16; i++)
        c.f[i] = fmaf(-a.f[i], b.f[i], c.f[i]);
    return c;
}
EMU emu512 emu_insert256(emu512 a, __m256 b, int lane)
{
    memcpy(a.f + 8 * lane, &b, 32);
    return a;
}
EMU emu512 emu_broadcast256(__m256 b)
{
    return emu_insert256(emu_insert256(emu_set_ps(0), b, 0), b, 1);
}
EMU __m256 emu_extract256(emu512 a, int lane)
{
    __m256 v;
    memcpy(&v, a.f + 8 * lane, 32);
    return v;
}
EMU emu512 emu_cast256(__m256 b)
{
    return emu_insert256(emu_set_ps(0), b, 0);
}
EMU emu512i emu_cast128(__m128i b)
{
    return emu_insert128(emu_zero(), b, 0);
}
EMU emu512i emu_bits(emu512 a)
{
    return a.i;
}

/* Some are macros already (without optimization, all that take constants). */
#undef _mm512_loadu_si512
#undef _mm512_storeu_si512
#undef _mm512_maskz_loadu_epi8
#undef _mm512_loadu_ps
#undef _mm512_storeu_ps
#undef _mm512_maskz_loadu_ps
#undef _mm512_mask_storeu_ps
#undef _mm512_and_si512
#undef _mm512_xor_si512
#undef _mm512_add_epi32
#undef _mm512_sub_epi32
#undef _mm512_max_epi32
#undef _mm512_madd_epi16
#undef _mm512_maddubs_epi16
#undef _mm512_unpacklo_epi32
#undef _mm512_unpackhi_epi32
#undef _mm512_unpacklo_epi64
#undef _mm512_unpackhi_epi64
#undef _mm512_shuffle_epi8
#undef _mm512_dpbusd_epi32
#undef _mm512_shuffle_i32x4
#undef _mm512_srli_epi16
#undef _mm512_slli_epi32
#undef _mm512_setzero_si512
#undef _mm512_setzero_ps
#undef _mm512_set1_epi8
#undef _mm512_set1_epi16
#undef _mm512_set1_epi32
#undef _mm512_inserti32x4
#undef _mm512_broadcast_i32x4
#undef _mm512_reduce_max_epi32
#undef _mm512_reduce_add_epi32
#undef _mm512_cvtps_epi32
#undef _mm512_cvtepi32_ps
#undef _mm512_cvtph_ps
#undef _mm512_set1_ps
#undef _mm512_mul_ps
#undef _mm512_add_ps
#undef _mm512_sub_ps
#undef _mm512_fmadd_ps
#undef _mm512_fnmadd_ps
#undef _mm512_insertf32x8
#undef _mm512_broadcast_f32x8
#undef _mm512_extractf32x8_ps
#undef _mm512_castps256_ps512
#undef _mm512_castps512_ps256
#undef _mm512_castsi128_si512
#undef _mm512_castps_si512

EMU __m256i emu_cvtps_ph(emu512 a, int how)
{
    uint16_t half[16];
    __m256i v;
    (void)how; /* to nearest */
    for (size_t i = 0; i < 16; i++)
        half[i] = (uint16_t)_cvtss_sh(a.f[i], _MM_FROUND_TO_NEAREST_INT);
    memcpy(&v, half, sizeof v);
    return v;
}
EMU emu512 emu_max(emu512 a, emu512 b) /* the second operand where one is NaN */
{
    for (size_t i = 0; i < 16; i++)
        a.f[i] = a.f[i] > b.f[i] ? a.f[i] : b.f[i];
    return a;
}
EMU emu512 emu_min(emu512 a, emu512 b)
{
    for (size_t i = 0; i < 16; i++)
        a.f[i] = a.f[i] < b.f[i] ? a.f[i] : b.f[i];
    return a;
}
EMU emu512i emu_srai32(emu512i a, unsigned n)
{
    for (size_t i = 0; i < 16; i++)
        a.d[i] = a.d[i] < 0 ? ~(~a.d[i] >> n) : a.d[i] >> n;
    return a;
}
EMU emu512 emu_maskz_mov(__mmask16 m, emu512 a)
{
    for (size_t i = 0; i < 16; i++)
        a.f[i] = m >> i & 1 ? a.f[i] : 0;
    return a;
}
EMU emu512 emu_maskz_expand(__mmask16 m, emu512 a)
{
    emu512 v;
    size_t used = 0;
    for (size_t i = 0; i < 16; i++)
        v.f[i] = m >> i & 1 ? a.f[used++] : 0;
    return v;
}
EMU emu512 emu_as_floats(emu512i a)
{
    emu512 v;
    v.i = a;
    return v;
}

#undef _mm512_cvtps_ph /* a macro of some compilers */
#define _mm512_cvtps_ph emu_cvtps_ph
#define _mm512_max_ps emu_max
#define _mm512_min_ps emu_min
#define _mm512_srai_epi32 emu_srai32
#define _mm512_maskz_mov_ps emu_maskz_mov
#define _mm512_maskz_expand_ps emu_maskz_expand
#define _mm512_castsi512_ps emu_as_floats
#define _mm512_loadu_si512 emu_loadu
#define _mm512_storeu_si512 emu_storeu
#define _mm512_maskz_loadu_epi8 emu_maskz_loadu_epi8
#define _mm512_loadu_ps emu_loadu_ps
#define _mm512_storeu_ps emu_storeu_ps
#define _mm512_maskz_loadu_ps emu_maskz_loadu_ps
#define _mm512_mask_storeu_ps emu_mask_storeu_ps
#define _mm512_and_si512 emu_and
#define _mm512_xor_si512 emu_xor
#define _mm512_add_epi32 emu_add32
#define _mm512_sub_epi32 emu_sub32
#define _mm512_max_epi32 emu_max32
#define _mm512_madd_epi16 emu_madd16
#define _mm512_maddubs_epi16 emu_maddubs
#define _mm512_unpacklo_epi32 emu_unpacklo32
#define _mm512_unpackhi_epi32 emu_unpackhi32
#define _mm512_unpacklo_epi64 emu_unpacklo64
#define _mm512_unpackhi_epi64 emu_unpackhi64
#define _mm512_shuffle_epi8 emu_shuffle8
#define _mm512_dpbusd_epi32 emu_dpbusd
#define _mm512_shuffle_i32x4 emu_shuffle_i32x4
#define _mm512_srli_epi16 emu_srli16
#define _mm512_slli_epi32 emu_slli32
#undef _mm512_srli_epi32
#define _mm512_srli_epi32 emu_srli32
#undef _mm512_cvtepi32_epi16
#define _mm512_cvtepi32_epi16 emu_narrow32
#define _mm512_setzero_si512 emu_zero
#define _mm512_setzero_ps() emu_set_ps(0)
#define _mm512_set1_epi8 emu_set8
#define _mm512_set1_epi16 emu_set16
#define _mm512_set1_epi32 emu_set32
#define _mm512_inserti32x4 emu_insert128
#define _mm512_broadcast_i32x4 emu_broadcast128
#define _mm512_reduce_max_epi32 emu_reduce_max32
#define _mm512_reduce_add_epi32 emu_reduce_add32
#define _mm512_cvtps_epi32 emu_cvtps32
#define _mm512_cvtepi32_ps emu_cvt32ps
#define _mm512_cvtph_ps emu_cvtph
#define _mm512_set1_ps emu_set_ps
#define _mm512_mul_ps emu_mul
#define _mm512_add_ps emu_add
#define _mm512_sub_ps emu_sub
#define _mm512_fmadd_ps emu_fmadd
#define _mm512_fnmadd_ps emu_fnmadd
#define _mm512_insertf32x8 emu_insert256
#define _mm512_broadcast_f32x8 emu_broadcast256
#define _mm512_extractf32x8_ps emu_extract256
#define _mm512_castps256_ps512 emu_cast256
#define _mm512_castps512_ps256(a) emu_extract256(a, 0)
#define _mm512_castsi128_si512 emu_cast128
#define _mm512_castps_si512 emu_bits

/* ---- AMX: tiles as the configuration in force shapes them ---- */

typedef struct emu_tile {
    uint8_t row[16][64];
} emu_tile;
static __attribute__((unused)) emu_tile emu_tiles[8];
static __attribute__((unused)) uint16_t emu_row_bytes[8];
static __attribute__((unused)) uint8_t emu_rows[8];

EMU void emu_loadconfig(const void *p)
{
    const uint8_t *c = (const uint8_t *)p;
    memcpy(emu_row_bytes, c + 16, sizeof emu_row_bytes);
    memcpy(emu_rows, c + 48, sizeof emu_rows);
    memset(emu_tiles, 0, sizeof emu_tiles);
}
EMU void emu_tile_zero(int t)
{
    memset(&emu_tiles[t], 0, sizeof emu_tiles[t]);
}
EMU void emu_tile_loadd(int t, const void *p, size_t stride)
{
    emu_tile_zero(t);
    for (size_t r = 0; r < emu_rows[t]; r++)
        memcpy(emu_tiles[t].row[r], (const char *)p + r * stride, emu_row_bytes[t]);
}
EMU void emu_tile_stored(int t, void *p, size_t stride)
{
    for (size_t r = 0; r < emu_rows[t]; r++)
        memcpy((char *)p + r * stride, emu_tiles[t].row[r], emu_row_bytes[t]);
}
EMU void emu_tile_dpbsud(int c, int a, int b) /* signed a, unsigned b */
{
    for (size_t m = 0; m < emu_rows[c]; m++)
        for (size_t k = 0; k < emu_row_bytes[a] / 4u; k++)
            for (size_t n = 0; n < emu_row_bytes[c] / 4u; n++) {
                int32_t sum;
                memcpy(&sum, emu_tiles[c].row[m] + 4 * n, 4);
                for (size_t i = 0; i < 4; i++)
                    sum += (int8_t)emu_tiles[a].row[m][4 * k + i] * emu_tiles[b].row[k][4 * n + i];
                memcpy(emu_tiles[c].row[m] + 4 * n, &sum, 4);
            }
}
/* Pairs of bf16. Even and odd elements are summed apart, by multiply-adds; subnormal numbers count as 0. */
EMU float emu_flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}
EMU float emu_bf16_at(const uint8_t *row, size_t i)
{
    uint16_t half;
    uint32_t bits;
    float x;
    memcpy(&half, row + 2 * i, 2);
    bits = (uint32_t)half << 16;
    memcpy(&x, &bits, 4);
    return emu_flush(x);
}
EMU void emu_tile_dpbf16ps(int c, int a, int b)
{
    for (size_t m = 0; m < emu_rows[c]; m++)
        for (size_t n = 0; n < emu_row_bytes[c] / 4u; n++) {
            float sum[2] = {0, 0}, old;
            for (size_t k = 0; k < emu_row_bytes[a] / 4u; k++)
                for (size_t i = 0; i < 2; i++)
                    sum[i] = emu_flush(fmaf(emu_bf16_at(emu_tiles[a].row[m], 2 * k + i),
                                            emu_bf16_at(emu_tiles[b].row[k], 2 * n + i), sum[i]));
            memcpy(&old, emu_tiles[c].row[m] + 4 * n, 4);
            old = emu_flush(emu_flush(old) + emu_flush(sum[0] + sum[1]));
            memcpy(emu_tiles[c].row[m] + 4 * n, &old, 4);
        }
}
#undef _tile_loadconfig
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbsud
#undef _tile_release
#define _tile_loadconfig emu_loadconfig
#define _tile_zero emu_tile_zero
#define _tile_loadd emu_tile_loadd
#define _tile_stored emu_tile_stored
#define _tile_dpbsud emu_tile_dpbsud
#undef _tile_dpbf16ps
#define _tile_dpbf16ps emu_tile_dpbf16ps
#define _tile_release() ((void)0)

#endif
