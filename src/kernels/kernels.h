/* The kernel table: pure loops, no allocation, no status, no threads. pome_kernels_init is pure: generic fills
 * every slot, each supported level overwrites some. The pointer travels in the plan.
 *
 * Order of sums. An inner product runs over k in blocks of POME_KERNEL_KC; within a block, lane j of 8 takes the
 * elements k = j mod 8 in turn, the lanes are added as ((0+4)+(1+5)) + ((2+6)+(3+7)), and the blocks' sums are
 * added one after the other. Every slot that forms inner products keeps to this, whatever the number of rows: a row
 * alone gives bitwise what it gives among others, and a fused kernel gives what decoding and multiplying gives.
 * Levels with a fused multiply-add differ from those without in the last place.
 *
 * Products with int8 activations (pome_coded_kernels) have their own order: within a block of 32 the sum is an exact
 * integer, and the blocks follow one another, each adding float(sum) * (weight's scale * activations' scale) in one
 * fused multiply-add; an offset is subtracted first, sum - offset * sum_of_activation_codes, fused as well. So these too
 * give the same bits whatever the number of rows on either side. Infinite scales and offsets count as NaN.
 *
 * No kernel reads or writes past what its sizes say, and none wants alignment. */
#ifndef POME_KERNELS_KERNELS_H
#define POME_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cpu.h"

#define POME_KERNEL_KC 512
#define POME_Q8_BLOCK 32 /* activations that share a scale */
#define POME_Q8_LIMIT 127.0f
#define POME_Q12_LIMIT 2032.0f /* 16 * 127, whose sums of 32 products with 16 bits fit into 32 */
#define POME_Q8_GROUP 16 /* rows of activations that a level may interleave */

/* What the codes of weights mean. Nibbles lie low first. */
typedef enum pome_codes {
    POME_CODES_I4,   /* scale * code, two's complement */
    POME_CODES_U4,   /* scale * (code - offset) */
    POME_CODES_I8,
    POME_CODES_U8,   /* scale * (code - offset) */
    POME_CODES_LUT4, /* table[code] */
    POME_CODES_LUT6, /* likewise, four codes in three bytes, low bits first */
    POME_CODES_LUT8,
    POME_CODES_F16, /* no codes: dense weights, which only some levels take so (times is NULL elsewhere) */
    POME_CODES_F32,
    POME_CODES_COUNT
} pome_codes;

/* Rows of k codes as they lie in a package, one after the other: pome_codes_bytes(codes, k) bytes each. A row has k/block
 * scales (and offsets), rows following each other. */
typedef struct pome_coded_rows {
    size_t k, block;            /* multiples of 32; block divides k */
    const void *codes;
    const uint16_t *scale_f16;  /* palettes and dense weights: NULL */
    const uint16_t *offset_f16; /* U4, U8; NULL: 0 */
    const uint16_t *table_f16;  /* palettes: [16], [64] or [256], shared by all rows */
} pome_coded_rows;

static inline size_t pome_codes_bits(pome_codes codes)
{
    return codes == POME_CODES_F32 ? 32 : codes == POME_CODES_F16 ? 16 : codes == POME_CODES_LUT6 ? 6 : codes == POME_CODES_I8 || codes == POME_CODES_U8 || codes == POME_CODES_LUT8 ? 8 : 4;
}
static inline size_t pome_codes_bytes(pome_codes codes, size_t k) /* of a row; k is a multiple of 32 */
{
    return k / 32 * 4 * pome_codes_bits(codes);
}
static inline bool pome_codes_are_palette(pome_codes codes)
{
    return codes == POME_CODES_LUT4 || codes == POME_CODES_LUT6 || codes == POME_CODES_LUT8;
}

/* Products of coded weights with int8 activations.
 *
 * Rows of activations become codes and scales in a form that is the level's own, chosen to fit weights of one kind of
 * codes. In each block of 32, scale = max |x| / 127 and code = x / scale, nearest even; a block with an infinity or NaN
 * gets the scale NaN, one whose largest element is below 1e-30 gets zeros. An element that is far larger than the others of its
 * row is left without a code and its product is added in fp32 after the blocks (kernels/single.h). AVX2 instead multiplies 8-bit
 * codes and tables in 16 bits and takes 2032 for 127 there.
 *
 * Before dense weights activations are the sums of two bf16 numbers instead, in the level's own order of sums, the same for a
 * row alone and among others. */
typedef struct pome_coded_kernels {
    size_t (*q8_size)(size_t m, size_t k); /* bytes for m rows of k; to be aligned to 64 */
    /* Rows [first, first + n) of m; x is their first, rows ldx apart. first is a multiple of POME_Q8_GROUP; different
     * rows may be set by different threads. k is a multiple of 32. */
    void (*q8_set)(void *q8, size_t m, size_t k, size_t first, size_t n, const float *x, size_t ldx);
    /* Bytes of scratch, aligned to 64, that a call of times needs; it does not depend on n. */
    size_t (*scratch)(size_t m, size_t k);
    /* y[i][j] = sum of activations' row i times weights' row j, i < m, j < n; y's rows are ldy apart. A palette may be held
     * in 16 bits of its largest element. */
    void (*times)(float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w, size_t n, void *scratch);
} pome_coded_kernels;

/* A convolution of one plane: y[i][j] = sum x[i * sy + ky * dy][j * sx + kx * dx] * w[ky][kx], taps in turn from 0, then
 * plus bias, then not below `low` and not above `high` (NaN stays). */
typedef struct pome_conv_plane {
    const float *x;     /* padded; rows ldx apart */
    size_t ldx;
    const float *w;     /* [kh, kw] */
    size_t kh, kw, sy, sx, dy, dx;
    float bias, low, high;
} pome_conv_plane;

/* Elements of each row of x that may be read for n results: those of whole groups of 8 results. */
static inline size_t pome_conv_plane_width(const pome_conv_plane *p, size_t n)
{
    return (n + 7) / 8 * 8 * p->sx + (p->kw - 1) * p->dx;
}

#define POME_PANEL 16 /* columns of a packed operand */

/* What becomes of sums that are complete: plus bias, plus addend, then not below `low` and not above `high` (NaN stays). */
typedef struct pome_panel_end {
    const float *bias;   /* [m] or NULL */
    const float *addend; /* rows as far apart as those of the result, or NULL */
    float low, high;     /* infinite: none */
} pome_panel_end;

/* Columns [to, to + n) of a packed row come from x[from], x[from + stride], .. */
typedef struct pome_panel_run {
    size_t to, n;
    ptrdiff_t from;
} pome_panel_run;

typedef struct pome_kernels {
    pome_cpu_level level;
    /* dst[i] = float(src[i]) */
    void (*f16_to_f32)(float *dst, const uint16_t *src, size_t n);
    /* dst[i] = half(src[i]), nearest even, overflow to infinity */
    void (*f32_to_f16)(uint16_t *dst, const float *src, size_t n);
    /* x[i] = float(half(x[i])) */
    void (*f16_round)(float *x, size_t n);
    /* sum a[i] * b[i] */
    float (*dot_f32)(const float *a, const float *b, size_t n);
    float (*dot_f32_f16)(const float *a, const uint16_t *b, size_t n);
    /* y[i] += s * x[i] */
    void (*axpy_f32)(float *y, float s, const float *x, size_t n);
    void (*axpy_f32_f16)(float *y, float s, const uint16_t *x, size_t n);
    /* The largest element, -infinity if there is none. NaN never wins. */
    float (*max_f32)(const float *x, size_t n);
    /* x[i] = exp(x[i] - max); returns their sum (lanes as above, one block). exp is right to 2 units in the last
     * place, 0 for -infinity, NaN for NaN. */
    float (*exp_sum_f32)(float *x, float max, size_t n);

    /* out[i] = gate[i] * sigmoid(gate[i]) * up[i], rounded as three operators would; out may be gate or up. Within 3 units
     * in the last place, the same bits at every level. */
    void (*silu_mul_f32)(float *out, const float *gate, const float *up, size_t n);

    /* c[m][n] = or += sum_k a[m][k] * b[n][k]; rows lda, ldb, ldc elements apart. += adds each block's sum in turn. */
    void (*gemm_nt_f32)(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t m,
                        size_t n, size_t k, bool accumulate);
    /* c[m][n] = or += sum_k a[m][k] * b[k][n]; here each element takes k in turn, from 0 or from c. */
    void (*gemm_nn_f32)(float *c, size_t ldc, const float *a, size_t lda, const float *b, size_t ldb, size_t m,
                        size_t n, size_t k, bool accumulate);
    /* c[m][n] = or += sum_p a(m, p) * b[p][n] in the order of gemm_nn_f32, a(m, p) at a[m * lda + p * step], n <= POME_PANEL; b's
     * rows have POME_PANEL elements that may be read. `end` is NULL while more of k follows. */
    void (*gemm_panel_f32)(float *c, size_t ldc, const float *a, size_t lda, size_t step, const float *b, size_t ldb, size_t m,
                           size_t n, size_t k, bool accumulate, const pome_panel_end *end);
    /* The same with row p of b at b + at[p], from 0 to the end: rows may overlap. */
    void (*gemm_at_f32)(float *c, size_t ldc, const float *a, size_t lda, const float *b, const size_t *at, size_t m, size_t n,
                        size_t k, const pome_panel_end *end);
    /* Both gemm_nt and gemm_nn with b in half, converted as it is read: for few rows of a. */
    void (*gemm_nt_f16)(float *c, size_t ldc, const float *a, size_t lda, const uint16_t *b, size_t ldb, size_t m,
                        size_t n, size_t k, bool accumulate);
    void (*gemm_nn_f16)(float *c, size_t ldc, const float *a, size_t lda, const uint16_t *b, size_t ldb, size_t m,
                        size_t n, size_t k, bool accumulate);
    /* m rows of POME_PANEL columns, ld apart, from rows of x, ldx apart. Runs are in the order of their columns, disjoint and not
     * empty; columns in none of them become 0. Nothing of x is used but what the runs name. */
    void (*unfold_panel_f32)(float *panel, size_t ld, const float *x, size_t ldx, size_t m, const pome_panel_run *runs,
                             size_t n_runs, size_t stride);
    /* y [rows, cols], contiguous. x has (rows - 1) * sy + (kh - 1) * dy + 1 rows, each with pome_conv_plane_width(p, cols)
     * elements that may be read. */
    void (*conv_plane_f32)(float *y, size_t rows, size_t cols, const pome_conv_plane *p);
    /* Winograd's F(2x2, 3x3): n tiles, a multiple of 8, that follow each other along four rows of x, ldx apart. A row holds its
     * even columns, `width` > n of them, then as many odd ones; tile j begins at even column j. v[t * apart + j] is element t of
     * 4 x 4 of B^T d B. */
    void (*winograd_in_f32)(float *v, size_t apart, const float *x, size_t ldx, size_t width, size_t n);
    /* A^T m A of the tiles of `rows` (1 or 2) rows of `cols` results, ldy apart, then what `end` says (one element of bias). Whole
     * groups of 8 tiles of m may be read. False if a sum was not finite before that. */
    bool (*winograd_out_f32)(float *y, size_t ldy, size_t rows, size_t cols, const float *m, size_t apart, const pome_panel_end *end);
    /* y[n] = sum_k x[k] * w[n][k], rows ldw elements apart */
    void (*gemv_f16)(float *y, const float *x, const uint16_t *w, size_t ldw, size_t n, size_t k);
    /* The same with weights half(scale * code): row n has k/2 bytes of codes at codes + n * k/2 and k/block scales
     * at scale_f16 + n * k/block. block is a multiple of 32 and divides k. */
    void (*gemv_int4_block)(float *y, const float *x, const uint8_t *codes, const uint16_t *scale_f16, size_t n,
                            size_t k, size_t block);
    void (*gemv_int8_block)(float *y, const float *x, const int8_t *codes, const uint16_t *scale_f16, size_t n,
                            size_t k, size_t block);

    /* The same with unsigned 4-bit codes and weights half(scale * half(code - offset)); offsets lie as scales do. */
    void (*gemv_uint4_shift_block)(float *y, const float *x, const uint8_t *codes, const uint16_t *scale_f16,
                                   const uint16_t *offset_f16, size_t n, size_t k, size_t block);

    /* Sparse weights: bit i of `bits`, least significant first, says whether weight i is the next of `values` or 0. The
     * product is of rows of k weights (a multiple of 8), rows following each other. */
    void (*gemv_sparse_f16)(float *y, const float *x, const uint8_t *bits, const uint16_t *values, size_t n, size_t k);
    void (*decode_sparse_f16)(float *dst, const uint8_t *bits, const uint16_t *values, size_t n);

    /* By the weights' codes. A level replaces an entry as a whole. */
    pome_coded_kernels coded[POME_CODES_COUNT];

    /* dst[i] = half(scale_f16[i / block] * code[i]) for i in [0, n): codes are nibbles, low first, two's
     * complement. block is even; the last block may be cut short. */
    void (*decode_int4_block)(float *dst, const uint8_t *codes, const uint16_t *scale_f16, size_t n, size_t block);
    void (*decode_int8_block)(float *dst, const int8_t *codes, const uint16_t *scale_f16, size_t n, size_t block);
    /* dst[i] = half(scale_f16[i / block] * half(code[i] - offset_f16[i / block])), codes unsigned. */
    void (*decode_uint4_shift_block)(float *dst, const uint8_t *codes, const uint16_t *scale_f16,
                                     const uint16_t *offset_f16, size_t n, size_t block);
    /* n indices of n_bits (1 to 3), a stream that begins at its first bit, as nibbles, low first; n is a multiple of 32. */
    void (*widen_indices)(uint8_t *nibbles, const uint8_t *bits, uint32_t n_bits, size_t n);
    /* dst[i] = table[code[i]]: nibbles, low first. */
    void (*decode_lut4)(float *dst, const uint8_t *codes, const float *table /* [16] */, size_t n);
} pome_kernels;

void pome_kernels_init(pome_kernels *k, pome_cpu_level level);

/* What each level puts into the table. */
void pome_kernels_fill_generic(pome_kernels *k);
void pome_kernels_fill_coded_generic(pome_kernels *k); /* the part of int8 activations */
void pome_unfold_panel_f32_generic(float *panel, size_t ld, const float *x, size_t ldx, size_t m, const pome_panel_run *runs,
                                   size_t n_runs, size_t stride);
void pome_widen_indices_generic(uint8_t *nibbles, const uint8_t *bits, uint32_t n_bits, size_t n);
#if defined(__x86_64__)
void pome_kernels_fill_avx2(pome_kernels *k);
void pome_kernels_fill_vector_avx512(pome_kernels *k);
void pome_kernels_fill_gemm_avx512(pome_kernels *k);
void pome_kernels_fill_attend_avx512(pome_kernels *k);
void pome_kernels_fill_conv_avx512(pome_kernels *k);
void pome_kernels_fill_coded_avx512(pome_kernels *k);
void pome_kernels_fill_coded_avx512vnni(pome_kernels *k);
void pome_kernels_fill_coded_amx(pome_kernels *k);
void pome_kernels_fill_coded_bf16_amx(pome_kernels *k);
#elif defined(__aarch64__)
void pome_kernels_fill_neon(pome_kernels *k);
void pome_kernels_fill_conv_neon(pome_kernels *k);
void pome_kernels_fill_coded_neon(pome_kernels *k);
void pome_kernels_fill_coded_dotprod(pome_kernels *k);
void pome_kernels_fill_coded_i8mm(pome_kernels *k);
#endif

#endif
