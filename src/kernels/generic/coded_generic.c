/* Products with int8 activations in portable C. A row of activations is its codes in order, then the blocks' scales,
 * then the blocks' sums of codes, then the element that has no code. */
#include <math.h>
#include <string.h>

#include "base/f16.h"
#include "kernels/kernels.h"
#include "kernels/single.h"

enum { BLOCK = POME_Q8_BLOCK };

typedef struct q8_row {
    int8_t *code;
    float *scale; /* [k / 32] */
    int32_t *sum;
    pome_single *single;
} q8_row;

static size_t row_bytes(size_t k)
{
    return k + k / BLOCK * (sizeof(float) + sizeof(int32_t)) + sizeof(pome_single);
}

static q8_row row_at(const void *q8, size_t k, size_t i)
{
    char *row = (char *)(uintptr_t)q8 + i * row_bytes(k);
    float *scale = (float *)(void *)(row + k);
    int32_t *sum = (int32_t *)(void *)(scale + k / BLOCK);
    return (q8_row){(int8_t *)row, scale, sum, (pome_single *)(void *)(sum + k / BLOCK)};
}

static size_t q8_size_generic(size_t m, size_t k)
{
    return m * row_bytes(k);
}

static void set_block(const q8_row *row, size_t b, const float *x)
{
    float max = 0;
    bool finite = true;
    int32_t sum = 0;
    for (size_t p = 0; p < BLOCK; p++) {
        max = fabsf(x[p]) > max ? fabsf(x[p]) : max;
        finite = finite && isfinite(x[p]);
    }
    float factor = finite && max >= 1e-30f ? 127.0f / max : 0.0f;
    for (size_t p = 0; p < BLOCK; p++) {
        int code = factor > 0 ? (int)rintf(x[p] * factor) : 0;
        row->code[b * BLOCK + p] = (int8_t)code;
        sum += code;
    }
    row->scale[b] = !finite ? NAN : factor > 0 ? max / 127.0f : 0.0f;
    row->sum[b] = sum;
}

static float block_max(const float *x)
{
    uint32_t max = 0; /* ordered as floats are */
    for (size_t p = 0; p < BLOCK; p++) {
        uint32_t v = pome_f32_bits(x[p]) & 0x7fffffffu;
        max = v > max ? v : max;
    }
    return pome_f32_from_bits(max);
}

static void q8_set_generic(void *q8, size_t m, size_t k, size_t first, size_t n, const float *x, size_t ldx)
{
    (void)m;
    for (size_t i = 0; i < n; i++) {
        q8_row row = row_at(q8, k, first + i);
        float copy[BLOCK];
        *row.single = pome_single_find(x + i * ldx, k, block_max);
        for (size_t b = 0; b < k / BLOCK; b++)
            set_block(&row, b, pome_single_without(row.single, x + i * ldx, b, copy));
    }
}

static size_t scratch_generic(size_t m, size_t k)
{
    (void)m, (void)k;
    return 0;
}

/* Block `b` of weights' row j as integers. */
static void unpack(pome_codes codes, const pome_coded_rows *w, const int32_t *table, size_t j, size_t b, int32_t *dst)
{
    const uint8_t *bytes = (const uint8_t *)w->codes;
    size_t at = j * w->k + b * BLOCK, bits = pome_codes_bits(codes);
    for (size_t p = 0; p < BLOCK; p++) {
        size_t first = (at + p) * bits, byte = first / 8;
        unsigned word = bytes[byte] | (first % 8 + bits > 8 ? (unsigned)bytes[byte + 1] << 8 : 0);
        int code = (int)(word >> first % 8 & ((1u << bits) - 1));
        switch (codes) {
        case POME_CODES_I4:
            dst[p] = code - (code & 8) * 2;
            break;
        case POME_CODES_I8:
            dst[p] = code - (code & 128) * 2;
            break;
        case POME_CODES_U4:
        case POME_CODES_U8:
            dst[p] = code;
            break;
        default:
            dst[p] = table[code];
            break;
        }
    }
}

/* The table in units of its largest element / 32767; returns the unit, NaN if an entry is not finite. */
static float integer_table(const uint16_t *table_f16, int32_t *table, size_t n)
{
    float max = 0;
    bool finite = true;
    for (size_t i = 0; i < n; i++) {
        float entry = fabsf(pome_f16_to_f32(table_f16[i]));
        finite = finite && isfinite(entry);
        max = entry > max ? entry : max;
    }
    for (size_t i = 0; i < n; i++)
        table[i] = finite && max > 0 ? (int32_t)rintf(pome_f16_to_f32(table_f16[i]) * (32767.0f / max)) : 0;
    return finite ? max / 32767.0f : NAN;
}

/* An infinite scale gives NaN, as its products with codes of 0 are. */
static float entry_value(uint16_t half)
{
    float v = pome_f16_to_f32(half);
    return v + (v - v);
}

static void times(pome_codes codes, float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w, size_t n)
{
    int32_t table[256], code[BLOCK];
    bool palette = pome_codes_are_palette(codes);
    float unit = 0;
    if (palette)
        unit = integer_table(w->table_f16, table, (size_t)1 << pome_codes_bits(codes));
    for (size_t j = 0; j < n; j++) {
        for (size_t i = 0; i < m; i++)
            y[i * ldy + j] = 0;
        for (size_t b = 0; b < w->k / BLOCK; b++) {
            size_t entry = j * (w->k / w->block) + b * BLOCK / w->block;
            float scale = palette ? unit : entry_value(w->scale_f16[entry]);
            bool shifted = (codes == POME_CODES_U4 || codes == POME_CODES_U8) && w->offset_f16;
            unpack(codes, w, table, j, b, code);
            for (size_t i = 0; i < m; i++) {
                q8_row x = row_at(q8, w->k, i);
                int32_t sum = 0;
                for (size_t p = 0; p < BLOCK; p++)
                    sum += code[p] * x.code[b * BLOCK + p];
                float total = (float)sum;
                if (shifted)
                    total -= entry_value(w->offset_f16[entry]) * (float)x.sum[b];
                y[i * ldy + j] += total * (scale * x.scale[b]);
            }
        }
        pome_single_add(y + j, ldy, m, w, codes, j, 1, row_at(q8, w->k, 0).single, row_bytes(w->k));
    }
}

#define TIMES(name, codes)                                                                                             \
    static void name(float *y, size_t ldy, const void *q8, size_t m, const pome_coded_rows *w, size_t n, void *scratch) \
    {                                                                                                                  \
        (void)scratch;                                                                                                 \
        times(codes, y, ldy, q8, m, w, n);                                                                             \
    }
TIMES(times_i4, POME_CODES_I4)
TIMES(times_u4, POME_CODES_U4)
TIMES(times_i8, POME_CODES_I8)
TIMES(times_u8, POME_CODES_U8)
TIMES(times_lut4, POME_CODES_LUT4)
TIMES(times_lut6, POME_CODES_LUT6)
TIMES(times_lut8, POME_CODES_LUT8)

static inline void widen(uint8_t *nibbles, const uint8_t *bits, uint32_t n_bits, size_t n)
{
    const uint32_t mask = (1u << n_bits) - 1;
    for (size_t i = 0; i < n; i += 8, bits += n_bits, nibbles += 4) {
        uint32_t word = 0, wide = 0;
        for (uint32_t b = 0; b < n_bits; b++)
            word |= (uint32_t)bits[b] << 8 * b;
        for (uint32_t k = 0; k < 8; k++)
            wide |= (word >> k * n_bits & mask) << 4 * k;
        for (uint32_t b = 0; b < 4; b++)
            nibbles[b] = (uint8_t)(wide >> 8 * b);
    }
}

/* A loop for each width, so that compilers know the shifts. */
void pome_widen_indices_generic(uint8_t *nibbles, const uint8_t *bits, uint32_t n_bits, size_t n)
{
    if (n_bits == 1)
        widen(nibbles, bits, 1, n);
    else if (n_bits == 2)
        widen(nibbles, bits, 2, n);
    else
        widen(nibbles, bits, 3, n);
}

void pome_kernels_fill_coded_generic(pome_kernels *k)
{
    k->widen_indices = pome_widen_indices_generic;
    k->coded[POME_CODES_I4] = (pome_coded_kernels){q8_size_generic, q8_set_generic, scratch_generic, times_i4};
    k->coded[POME_CODES_U4] = (pome_coded_kernels){q8_size_generic, q8_set_generic, scratch_generic, times_u4};
    k->coded[POME_CODES_I8] = (pome_coded_kernels){q8_size_generic, q8_set_generic, scratch_generic, times_i8};
    k->coded[POME_CODES_U8] = (pome_coded_kernels){q8_size_generic, q8_set_generic, scratch_generic, times_u8};
    k->coded[POME_CODES_LUT4] = (pome_coded_kernels){q8_size_generic, q8_set_generic, scratch_generic, times_lut4};
    k->coded[POME_CODES_LUT6] = (pome_coded_kernels){q8_size_generic, q8_set_generic, scratch_generic, times_lut6};
    k->coded[POME_CODES_LUT8] = (pome_coded_kernels){q8_size_generic, q8_set_generic, scratch_generic, times_lut8};
}
