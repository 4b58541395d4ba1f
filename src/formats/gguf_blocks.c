#include "formats/gguf_blocks.h"

#include <stdio.h>

#include "base/error.h"
#include "base/f16.h"

/* The layouts are those of the format's reference implementation (ggml-quants); a block of K-quants has 256 elements.
 * "low" nibbles come before "high" ones, half a block apart. */

static float half_at(const uint8_t *p)
{
    return pome_f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

static uint32_t u32_at(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void split_q4_0(pome_gguf_block *b, const uint8_t *p)
{
    b->scale[0] = half_at(p);
    for (int i = 0; i < 16; i++) {
        b->code[i] = (int8_t)((p[2 + i] & 15) - 8);
        b->code[i + 16] = (int8_t)((p[2 + i] >> 4) - 8);
    }
}

static void split_q4_1(pome_gguf_block *b, const uint8_t *p)
{
    b->scale[0] = half_at(p);
    b->shift[0] = half_at(p + 2);
    for (int i = 0; i < 16; i++) {
        b->code[i] = (int8_t)(p[4 + i] & 15);
        b->code[i + 16] = (int8_t)(p[4 + i] >> 4);
    }
}

/* Nibbles with a fifth bit each from `high`, minus `bias`. */
static void five_bits(int8_t *code, const uint8_t *nibbles, uint32_t high, int bias)
{
    for (int i = 0; i < 16; i++) {
        code[i] = (int8_t)((int)((nibbles[i] & 15u) | (high >> i & 1u) << 4) - bias);
        code[i + 16] = (int8_t)((int)((unsigned)nibbles[i] >> 4 | (high >> (i + 16) & 1u) << 4) - bias);
    }
}

static void split_q5_0(pome_gguf_block *b, const uint8_t *p)
{
    b->scale[0] = half_at(p);
    five_bits(b->code, p + 6, u32_at(p + 2), 16);
}

static void split_q5_1(pome_gguf_block *b, const uint8_t *p)
{
    b->scale[0] = half_at(p);
    b->shift[0] = half_at(p + 2);
    five_bits(b->code, p + 8, u32_at(p + 4), 0);
}

static void split_q8_0(pome_gguf_block *b, const uint8_t *p)
{
    b->scale[0] = half_at(p);
    memcpy(b->code, p + 2, 32);
}

/* scales[16] (low nibble scale, high nibble minimum), 2-bit codes[64], d, dmin */
static void split_q2_k(pome_gguf_block *b, const uint8_t *p)
{
    float d = half_at(p + 80), dmin = half_at(p + 82);
    for (int g = 0; g < 16; g++) {
        b->scale[g] = d * (float)(p[g] & 15);
        b->shift[g] = -(dmin * (float)(p[g] >> 4));
    }
    for (int i = 0; i < 256; i++)
        b->code[i] = (int8_t)(p[16 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3);
}

/* high bits[32], 2-bit codes[64], 6-bit scales[12], d */
static void split_q3_k(pome_gguf_block *b, const uint8_t *p)
{
    const uint8_t *packed = p + 96;
    float d = half_at(p + 108);
    for (int g = 0; g < 16; g++) {
        int low = g < 8 ? packed[g] & 15 : packed[g - 8] >> 4, high = packed[8 + g % 4] >> (g / 4 * 2) & 3;
        b->scale[g] = d * (float)((low | high << 4) - 32);
    }
    for (int i = 0; i < 256; i++) {
        int code = p[32 + i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
        b->code[i] = (int8_t)(code - (p[i % 32] >> (i / 32) & 1 ? 0 : 4));
    }
}

/* Eight 6-bit scales and minima in 12 bytes. */
static void scales_of_k(pome_gguf_block *b, const uint8_t *q, float d, float dmin)
{
    for (int g = 0; g < 8; g++) {
        int scale = g < 4 ? q[g] & 63 : (q[g + 4] & 15) | (q[g - 4] >> 6) << 4;
        int min = g < 4 ? q[g + 4] & 63 : q[g + 4] >> 4 | (q[g] >> 6) << 4;
        b->scale[g] = d * (float)scale;
        b->shift[g] = -(dmin * (float)min);
    }
}

/* d, dmin, scales[12], codes[128] */
static void split_q4_k(pome_gguf_block *b, const uint8_t *p)
{
    scales_of_k(b, p + 4, half_at(p), half_at(p + 2));
    for (int i = 0; i < 256; i++)
        b->code[i] = (int8_t)(p[16 + i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15);
}

/* d, dmin, scales[12], fifth bits[32], codes[128] */
static void split_q5_k(pome_gguf_block *b, const uint8_t *p)
{
    scales_of_k(b, p + 4, half_at(p), half_at(p + 2));
    for (int i = 0; i < 256; i++) {
        int low = p[48 + i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
        b->code[i] = (int8_t)(low | (p[16 + i % 32] >> (i / 32) & 1) << 4);
    }
}

/* low nibbles[128], high pairs[64], int8 scales[16], d */
static void split_q6_k(pome_gguf_block *b, const uint8_t *p)
{
    float d = half_at(p + 208);
    for (int g = 0; g < 16; g++)
        b->scale[g] = d * (float)(int8_t)p[192 + g];
    for (int i = 0; i < 256; i++) {
        int half = i / 128, at = i % 128;
        int low = p[half * 64 + at % 64] >> (at / 64 * 4) & 15, high = p[128 + half * 32 + at % 32] >> (at / 32 * 2) & 3;
        b->code[i] = (int8_t)((low | high << 4) - 32);
    }
}

static const pome_gguf_encoding encodings[] = {
    {0, "F32", POME_DTYPE_F32, 1, 4, 1, 0, 0, false, NULL},
    {1, "F16", POME_DTYPE_F16, 1, 2, 1, 0, 0, false, NULL},
    {30, "BF16", POME_DTYPE_BF16, 1, 2, 1, 0, 0, false, NULL},
    {2, "Q4_0", POME_DTYPE_NONE, 32, 18, 32, -8, 7, false, split_q4_0},
    {3, "Q4_1", POME_DTYPE_NONE, 32, 20, 32, 0, 15, true, split_q4_1},
    {6, "Q5_0", POME_DTYPE_NONE, 32, 22, 32, -16, 15, false, split_q5_0},
    {7, "Q5_1", POME_DTYPE_NONE, 32, 24, 32, 0, 31, true, split_q5_1},
    {8, "Q8_0", POME_DTYPE_NONE, 32, 34, 32, -128, 127, false, split_q8_0},
    {10, "Q2_K", POME_DTYPE_NONE, 256, 84, 16, 0, 3, true, split_q2_k},
    {11, "Q3_K", POME_DTYPE_NONE, 256, 110, 16, -4, 3, false, split_q3_k},
    {12, "Q4_K", POME_DTYPE_NONE, 256, 144, 32, 0, 15, true, split_q4_k},
    {13, "Q5_K", POME_DTYPE_NONE, 256, 176, 32, 0, 31, true, split_q5_k},
    {14, "Q6_K", POME_DTYPE_NONE, 256, 210, 16, -32, 31, false, split_q6_k},
};

const pome_gguf_encoding *pome_gguf_encoding_find(uint32_t type)
{
    for (size_t i = 0; i < sizeof encodings / sizeof encodings[0]; i++)
        if (encodings[i].type == type)
            return &encodings[i];
    return NULL;
}

/* Types that are known by name and size, but not read. */
static const struct {
    uint32_t type;
    const char *name;
    uint32_t block, bytes;
} others[] = {
    {9, "Q8_1", 32, 36},     {15, "Q8_K", 256, 292},  {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},  {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},  {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},       {27, "I64", 1, 8},       {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},
    {34, "TQ1_0", 256, 54},  {35, "TQ2_0", 256, 66},  {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},
};
#define N_OTHERS (sizeof others / sizeof others[0])

const char *pome_gguf_type_name(uint32_t type, char *buffer, size_t size)
{
    const pome_gguf_encoding *e = pome_gguf_encoding_find(type);
    if (e)
        return e->name;
    for (size_t i = 0; i < N_OTHERS; i++)
        if (others[i].type == type)
            return others[i].name;
    snprintf(buffer, size, "type %u", (unsigned)type);
    return buffer;
}

bool pome_gguf_type_size(uint32_t type, uint32_t *block, uint32_t *bytes)
{
    const pome_gguf_encoding *e = pome_gguf_encoding_find(type);
    for (size_t i = 0; !e && i < N_OTHERS; i++)
        if (others[i].type == type) {
            *block = others[i].block;
            *bytes = others[i].bytes;
            return true;
        }
    if (e) {
        *block = e->block;
        *bytes = e->bytes;
    }
    return e != NULL;
}

static void decode_floats(pome_dtype dtype, const uint8_t *row, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++)
        if (dtype == POME_DTYPE_F32)
            out[i] = pome_f32_from_bits(u32_at(row + 4 * i));
        else if (dtype == POME_DTYPE_F16)
            out[i] = half_at(row + 2 * i);
        else
            out[i] = pome_bf16_to_f32((uint16_t)(row[2 * i] | row[2 * i + 1] << 8));
}

void pome_gguf_row_decode(const pome_gguf_encoding *e, const uint8_t *row, size_t n, float *out)
{
    if (!e->split) {
        decode_floats(e->dtype, row, n, out);
        return;
    }
    pome_gguf_block b = {.shift = {0}};
    for (size_t at = 0; at < n; at += e->block, row += e->bytes) {
        e->split(&b, row);
        for (uint32_t i = 0; i < e->block; i++)
            out[at + i] = b.scale[i / e->group] * (float)b.code[i] + b.shift[i / e->group];
    }
}

pome_status pome_gguf_tensor_locate(const pome_gguf_tensor *t, pome_bytes file, pome_bytes *data, pome_error *err)
{
    char buffer[32];
    uint32_t block = 1, block_bytes = 1;
    int shown = (int)(t->name.len < 100 ? t->name.len : 100);
    const char *type = pome_gguf_type_name(t->type, buffer, sizeof buffer);
    if (!pome_gguf_type_size(t->type, &block, &block_bytes))
        return pome_fail(err, POME_ERR_UNSUPPORTED, "tensor \"%.*s\" has elements of %s, which cannot be read", shown,
                         t->name.ptr, type);
    uint64_t n = 1, bytes;
    for (uint32_t i = 0; i < POME_GGUF_DIMS_MAX; i++)
        n *= t->dims[i]; /* was checked when the table was read */
    if (t->dims[0] % block != 0)
        return pome_fail(err, POME_ERR_FORMAT, "tensor \"%.*s\": rows of %llu elements are no whole %s blocks of %u", shown,
                         t->name.ptr, (unsigned long long)t->dims[0], type, (unsigned)block);
    if (__builtin_mul_overflow(n / block, (uint64_t)block_bytes, &bytes) || t->offset > file.len ||
        bytes > file.len - t->offset)
        return pome_fail_at(err, POME_ERR_FORMAT, t->offset,
                            "tensor \"%.*s\" needs %llu bytes at %llu, file ends after %zu (download incomplete?)", shown,
                            t->name.ptr, (unsigned long long)(n / block * block_bytes), (unsigned long long)t->offset,
                            file.len);
    *data = (pome_bytes){file.ptr + t->offset, (size_t)bytes};
    return POME_OK;
}

pome_status pome_gguf_tensor_data(const pome_gguf_tensor *t, pome_bytes file,
                                  const pome_gguf_encoding **encoding, pome_bytes *data, pome_error *err)
{
    char buffer[32];
    const pome_gguf_encoding *e = pome_gguf_encoding_find(t->type);
    if (!e)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "tensor \"%.*s\" has elements of %s, which cannot be read",
                         (int)(t->name.len < 100 ? t->name.len : 100), t->name.ptr,
                         pome_gguf_type_name(t->type, buffer, sizeof buffer));
    POME_TRY(pome_gguf_tensor_locate(t, file, data, err));
    *encoding = e;
    return POME_OK;
}
