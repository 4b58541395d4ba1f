/* Decoding of compressed constants. Everything goes through fp32, which holds every code and every half exactly;
 * rounding to half happens where the arithmetic of the definition is half. */
#include <string.h>

#include "base/f16.h"
#include "ops/encoded_node.h"

enum { PIECE = 256 };

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- positions ---- */

size_t pome_enc_find(const enc_blocks *b, size_t position, size_t *run)
{
    size_t entry = 0;
    for (int32_t d = b->rank - 1; d >= 0; d--) {
        size_t at = d ? position % b->dim[d] : position;
        if (d == b->rank - 1)
            *run = b->block[d] - at % b->block[d];
        entry += at / b->block[d] * b->step[d];
        position /= b->dim[d];
    }
    return entry;
}

static unsigned count_ones(unsigned byte)
{
    byte -= byte >> 1 & 0x55;
    byte = (byte & 0x33) + (byte >> 2 & 0x33);
    return (byte + (byte >> 4)) & 15;
}

size_t pome_enc_rank(const enc_mask *m, size_t position)
{
    size_t ones = m->ones_before[position / ENC_RANK_BITS];
    size_t byte = position / ENC_RANK_BITS * (ENC_RANK_BITS / 8);
    for (; byte + 8 <= position / 8; byte += 8) { /* sums in 2, 4, 8 bits, then of all bytes */
        uint64_t word;
        memcpy(&word, m->bits + byte, sizeof word);
        word -= word >> 1 & UINT64_C(0x5555555555555555);
        word = (word & UINT64_C(0x3333333333333333)) + (word >> 2 & UINT64_C(0x3333333333333333));
        word = (word + (word >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
        ones += (size_t)(word * UINT64_C(0x0101010101010101) >> 56);
    }
    for (; byte < position / 8; byte++)
        ones += count_ones(m->bits[byte]);
    if (position % 8)
        ones += count_ones(m->bits[position / 8] & ((1u << position % 8) - 1));
    return ones;
}

size_t pome_enc_select(const enc_mask *m, size_t rank)
{
    size_t low = 0, high = m->n_bits / ENC_RANK_BITS; /* the last chunk with ones_before <= rank */
    while (low < high) {
        size_t middle = (low + high + 1) / 2;
        if (m->ones_before[middle] <= rank)
            low = middle;
        else
            high = middle - 1;
    }
    size_t left = rank - m->ones_before[low], byte = low * (ENC_RANK_BITS / 8);
    while (count_ones(m->bits[byte]) <= left)
        left -= count_ones(m->bits[byte++]);
    size_t position = byte * 8;
    while (left || !enc_bit(m, position))
        left -= enc_bit(m, position++);
    return position;
}

static size_t next_one(const enc_mask *m, size_t position) /* at or after it; there is one */
{
    while (!enc_bit(m, position))
        position = position % 8 == 0 && m->bits[position / 8] == 0 ? position + 8 : position + 1;
    return position;
}

/* ---- elements ---- */

static unsigned read_bits(const uint8_t *bits, uint32_t n, size_t i) /* n <= 8 */
{
    size_t at = i * n;
    unsigned shift = (unsigned)(at % 8), word = bits[at / 8];
    if (shift + n > 8)
        word |= (unsigned)bits[at / 8 + 1] << 8;
    return word >> shift & ((1u << n) - 1);
}

void pome_enc_read(const enc_source *s, const pome_kernels *k, size_t first, size_t count, float *dst)
{
    if (!s->data) {
        pome_encoded_decode(s->encoded, first, count, dst);
        return;
    }
    const uint8_t *u8 = (const uint8_t *)s->data;
    switch (s->dtype) {
    case POME_DTYPE_F16:
        k->f16_to_f32(dst, (const uint16_t *)s->data + first, count);
        break;
    case POME_DTYPE_F32:
        memcpy(dst, (const float *)s->data + first, count * sizeof *dst);
        break;
    case POME_DTYPE_I8:
        for (size_t i = 0; i < count; i++)
            dst[i] = (float)((const int8_t *)s->data)[first + i];
        break;
    case POME_DTYPE_U8:
    case POME_DTYPE_BOOL:
        for (size_t i = 0; i < count; i++)
            dst[i] = (float)u8[first + i];
        break;
    case POME_DTYPE_I4:
        for (size_t i = 0; i < count; i++) {
            int code = (int)read_bits(u8, 4, first + i);
            dst[i] = (float)(code - (code & 8) * 2);
        }
        break;
    default: /* unsigned, under a byte: encoded.c lets nothing else through */
        for (size_t i = 0; i < count; i++)
            dst[i] = (float)read_bits(u8, pome_dtype_bits(s->dtype), first + i);
        break;
    }
}

static float read_one(const pome_encoded *e, const enc_source *s, size_t i)
{
    float value;
    pome_enc_read(s, &e->kernels, i, 1, &value);
    return value;
}

/* ---- shift and scale ---- */

static void shift_scale(const pome_encoded *e, float *x, size_t n, size_t entry)
{
    if (e->round_data)
        e->kernels.f16_round(x, n);
    if (e->offset.count) {
        float offset = read_one(e, &e->offset, entry * e->offset_step);
        for (size_t i = 0; i < n; i++)
            x[i] -= offset;
        if (e->round_difference)
            e->kernels.f16_round(x, n);
    }
    float scale = read_one(e, &e->scale, entry * e->scale_step);
    for (size_t i = 0; i < n; i++)
        x[i] *= scale;
    if (e->dtype == POME_DTYPE_F16)
        e->kernels.f16_round(x, n);
}

/* 4-bit codes at an even position: sixteen results, then a lookup. */
static void shift_scale_by_table(const pome_encoded *e, size_t first, size_t n, size_t entry, float *dst)
{
    float table[16];
    for (int code = 0; code < 16; code++)
        table[code] = (float)(e->source.dtype == POME_DTYPE_I4 ? code - (code & 8) * 2 : code);
    shift_scale(e, table, 16, entry);
    e->kernels.decode_lut4(dst, (const uint8_t *)e->source.data + first / 2, table, n);
}

static void decode_shift_scale(const pome_encoded *e, size_t first, size_t count, float *dst)
{
    bool nibbles = e->source.data && (e->source.dtype == POME_DTYPE_I4 || e->source.dtype == POME_DTYPE_U4);
    while (count) {
        size_t run = 0, entry = pome_enc_find(&e->blocks, first, &run);
        run = min_size(run, count);
        if (nibbles && first % 2 == 0 && run >= 16) {
            shift_scale_by_table(e, first, run, entry, dst);
        } else {
            pome_enc_read(&e->source, &e->kernels, first, run, dst);
            shift_scale(e, dst, run, entry);
        }
        first += run, dst += run, count -= run;
    }
}

bool pome_encoded_as_blocks(const pome_encoded *e, pome_encoded_blocks *out)
{
    bool shifted = e->offset.count != 0;
    if (e->kind != ENC_SHIFT_SCALE || !e->source.data || e->dtype != POME_DTYPE_F16 ||
        e->scale.dtype != POME_DTYPE_F16 || e->blocks.rank != 1 ||
        (!e->scale_step && e->blocks.block[0] != e->blocks.dim[0]) ||
        (!shifted && e->source.dtype != POME_DTYPE_I4 && e->source.dtype != POME_DTYPE_I8) ||
        (shifted && (e->source.dtype != POME_DTYPE_U4 || e->offset.dtype != POME_DTYPE_F16 || !e->round_difference ||
                     e->offset_step != e->scale_step)))
        return false;
    *out = (pome_encoded_blocks){e->source.dtype, e->source.data, (const uint16_t *)e->scale.data,
                                 shifted ? (const uint16_t *)e->offset.data : NULL, e->blocks.block[0]};
    return true;
}

static bool is_zero(const pome_encoded *e, const enc_source *s)
{
    return s->data && s->count == 1 && read_one(e, s, 0) == 0;
}

bool pome_encoded_as_codes(const pome_encoded *e, pome_encoded_codes *out)
{
    pome_dtype code = e->source.dtype;
    bool has_offset = e->offset.count && !is_zero(e, &e->offset), one_entry = e->blocks.block[0] == e->blocks.dim[0];
    if (!e->source.data || e->blocks.rank != 1)
        return false;
    if (e->kind == ENC_LUT && e->n_bits != 5 && e->n_bits != 7 && e->vector == 1 && e->lut.data && e->lut.dtype == POME_DTYPE_F16 &&
        (e->blocks.step[0] == 1 || one_entry)) {
        static const pome_dtype of_bits[9] = {[1] = POME_DTYPE_U1, [2] = POME_DTYPE_U2, [3] = POME_DTYPE_U3, [4] = POME_DTYPE_U4,
                                              [6] = POME_DTYPE_U6, [8] = POME_DTYPE_U8};
        *out = (pome_encoded_codes){.code = of_bits[e->n_bits], .codes = e->source.data, .block = e->blocks.block[0],
                                    .table_f16 = (const uint16_t *)e->lut.data};
        return true;
    }
    if (e->kind != ENC_SHIFT_SCALE || !e->scale.data || e->scale.dtype != POME_DTYPE_F16 ||
        (!e->scale_step && !one_entry) ||
        (code != POME_DTYPE_I4 && code != POME_DTYPE_U4 && code != POME_DTYPE_I8 && code != POME_DTYPE_U8) ||
        (has_offset && (!e->offset.data || e->offset.dtype != POME_DTYPE_F16 || e->offset_step != e->scale_step ||
                        code == POME_DTYPE_I4 || code == POME_DTYPE_I8)))
        return false;
    *out = (pome_encoded_codes){.code = code, .codes = e->source.data, .block = e->blocks.block[0],
                                .scale_f16 = (const uint16_t *)e->scale.data,
                                .offset_f16 = has_offset ? (const uint16_t *)e->offset.data : NULL};
    return true;
}

/* From a position where no block has begun or has been cut at its head. */
static void decode_blocks(const pome_encoded *e, const pome_encoded_blocks *b, size_t first, size_t count, float *dst)
{
    if (b->code == POME_DTYPE_U4)
        e->kernels.decode_uint4_shift_block(dst, (const uint8_t *)b->codes + first / 2, b->scale_f16 + first / b->block,
                                            b->offset_f16 + first / b->block, count, b->block);
    else if (b->code == POME_DTYPE_I4)
        e->kernels.decode_int4_block(dst, (const uint8_t *)b->codes + first / 2, b->scale_f16 + first / b->block, count,
                                     b->block);
    else
        e->kernels.decode_int8_block(dst, (const int8_t *)b->codes + first, b->scale_f16 + first / b->block, count,
                                     b->block);
}

static bool decode_as_blocks(const pome_encoded *e, size_t first, size_t count, float *dst)
{
    pome_encoded_blocks b;
    if (!pome_encoded_as_blocks(e, &b) || (b.code != POME_DTYPE_I8 && (b.block % 2 || first % 2)))
        return false;
    size_t head = min_size(first % b.block ? b.block - first % b.block : 0, count);
    if (head)
        decode_blocks(e, &b, first, head, dst);
    if (count > head)
        decode_blocks(e, &b, first + head, count - head, dst + head);
    return true;
}

/* ---- palettes ---- */

static void look_up(float *dst, const float *table, const uint8_t *bits, uint32_t n_bits, size_t at, size_t n)
{
    size_t i = 0;
    if (n_bits == 8)
        for (; i < n; i++)
            dst[i] = table[bits[at + i]];
    if (n_bits == 6) { /* four indices in three bytes */
        for (; i < n && (at + i) % 4; i++)
            dst[i] = table[read_bits(bits, 6, at + i)];
        const uint8_t *p = bits + (at + i) / 4 * 3;
        for (; i + 4 <= n; i += 4, p += 3) {
            unsigned word = p[0] | (unsigned)p[1] << 8 | (unsigned)p[2] << 16;
            dst[i] = table[word & 63];
            dst[i + 1] = table[word >> 6 & 63];
            dst[i + 2] = table[word >> 12 & 63];
            dst[i + 3] = table[word >> 18];
        }
    }
    for (; i < n; i++)
        dst[i] = table[read_bits(bits, n_bits, at + i)];
}

/* Indices [at, at + n) that share one table, entry v of each vector. */
static void lookup_run(const pome_encoded *e, size_t at, size_t n, size_t group, size_t v, float *dst)
{
    size_t entries = (size_t)1 << e->n_bits, base = group * entries * e->vector + v;
    const uint8_t *bits = (const uint8_t *)e->source.data;
    float table[256];
    if (e->vector == 1 && n >= entries / 2) { /* the whole table pays */
        pome_enc_read(&e->lut, &e->kernels, base, entries, table);
        if (e->n_bits == 4 && at % 2 == 0) {
            e->kernels.decode_lut4(dst, bits + at / 2, table, n);
            return;
        }
        look_up(dst, table, bits, e->n_bits, at, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        dst[i] = read_one(e, &e->lut, base + read_bits(bits, e->n_bits, at + i) * e->vector);
}

/* result [.., vector_dim * vector, vector_inner], indices [.., vector_dim, vector_inner] */
static void decode_lut(const pome_encoded *e, size_t first, size_t count, float *dst)
{
    while (count) {
        size_t inner = first % e->vector_inner, row = first / e->vector_inner;
        size_t v = row % e->vector, at = row / e->vector * e->vector_inner + inner, n, run = 0;
        size_t group = pome_enc_find(&e->blocks, at, &run);
        if (e->vector == 1) {
            n = min_size(run, count);
            lookup_run(e, at, n, group, 0, dst);
        } else if (e->vector_inner > 1) {
            n = min_size(min_size(run, e->vector_inner - inner), count);
            lookup_run(e, at, n, group, v, dst);
        } else {
            n = min_size(e->vector - v, count);
            size_t entry = (group << e->n_bits) + read_bits((const uint8_t *)e->source.data, e->n_bits, at);
            pome_enc_read(&e->lut, &e->kernels, entry * e->vector + v, n, dst);
        }
        first += n, dst += n, count -= n;
    }
}

/* ---- masks ---- */

bool pome_encoded_sparse_at(const pome_encoded *e, size_t first, const uint8_t **bits, const uint16_t **values)
{
    if (e->kind != ENC_SPARSE || !e->source.data || e->source.dtype != POME_DTYPE_F16 || first % 8)
        return false;
    *bits = e->mask.bits + first / 8;
    *values = (const uint16_t *)e->source.data + pome_enc_rank(&e->mask, first);
    return true;
}

static void decode_sparse(const pome_encoded *e, size_t first, size_t count, float *dst)
{
    const uint8_t *bits;
    const uint16_t *halves;
    if (pome_encoded_sparse_at(e, first, &bits, &halves)) {
        e->kernels.decode_sparse_f16(dst, bits, halves, count);
        return;
    }
    float values[PIECE];
    size_t rank = pome_enc_rank(&e->mask, first);
    for (size_t n; count; first += n, dst += n, count -= n) {
        n = min_size(count, PIECE);
        size_t ones = 0, used = 0;
        for (size_t i = 0; i < n; i++)
            ones += enc_bit(&e->mask, first + i);
        if (ones)
            pome_enc_read(&e->source, &e->kernels, rank, ones, values);
        for (size_t i = 0; i < n; i++)
            dst[i] = enc_bit(&e->mask, first + i) ? values[used++] : 0.0f;
        rank += ones;
    }
}

static void decode_scale_values(const pome_encoded *e, size_t first, size_t count, float *dst)
{
    pome_enc_read(&e->source, &e->kernels, first, count, dst);
    size_t position = pome_enc_select(&e->mask, first);
    for (size_t i = 0; i < count; i++, position++) {
        size_t run = 0;
        position = next_one(&e->mask, position);
        shift_scale(e, dst + i, 1, pome_enc_find(&e->blocks, position, &run));
    }
}

static void decode_lut_values(const pome_encoded *e, size_t first, size_t count, float *dst)
{
    size_t position = pome_enc_select(&e->mask, first), index = first, run = 0;
    for (size_t i = 0; i < count; i++, position++, index++) {
        position = next_one(&e->mask, position);
        size_t v = 0, at = position;
        if (e->vector > 1) {
            size_t row = position / e->vector_inner;
            v = row % e->vector;
            at = row / e->vector * e->vector_inner + position % e->vector_inner;
            index = pome_enc_rank(&e->index_mask, at);
        }
        size_t group = pome_enc_find(&e->blocks, at, &run);
        size_t entry = (group << e->n_bits) + read_bits((const uint8_t *)e->source.data, e->n_bits, index);
        dst[i] = read_one(e, &e->lut, entry * e->vector + v);
    }
}

void pome_encoded_decode(const pome_encoded *e, size_t first, size_t count, float *dst)
{
    if (count == 0)
        return;
    switch (e->kind) {
    case ENC_CAST:
        pome_enc_read(&e->source, &e->kernels, first, count, dst);
        break;
    case ENC_SHIFT_SCALE:
        if (!decode_as_blocks(e, first, count, dst))
            decode_shift_scale(e, first, count, dst);
        break;
    case ENC_LUT:
        decode_lut(e, first, count, dst);
        break;
    case ENC_SPARSE:
        decode_sparse(e, first, count, dst);
        break;
    case ENC_MASK:
        for (size_t i = 0; i < count; i++)
            dst[i] = enc_bit(&e->mask, first + i);
        break;
    case ENC_SCALE_VALUES:
        decode_scale_values(e, first, count, dst);
        break;
    case ENC_LUT_VALUES:
        decode_lut_values(e, first, count, dst);
        break;
    }
}

static void store_raw(pome_dtype dtype, const float *src, size_t n, size_t at, void *dst)
{
    uint32_t bits = pome_dtype_bits(dtype);
    for (size_t i = 0; i < n; i++) {
        unsigned code = (unsigned)(int)src[i] & ((1u << bits) - 1);
        for (uint32_t b = 0; b < bits; b++) { /* 8 at most */
            size_t bit = (at + i) * bits + b;
            uint8_t *byte = (uint8_t *)dst + bit / 8;
            *byte = (uint8_t)((*byte & ~(1u << bit % 8)) | (code >> b & 1) << bit % 8);
        }
    }
}

void pome_encoded_decode_raw(const pome_encoded *e, size_t first, size_t count, void *dst)
{
    float piece[PIECE];
    if (e->dtype == POME_DTYPE_F32) {
        pome_encoded_decode(e, first, count, (float *)dst);
        return;
    }
    if (pome_dtype_bits(e->dtype) < 8) /* the last byte's spare bits are zero */
        memset(dst, 0, (count * pome_dtype_bits(e->dtype) + 7) / 8);
    for (size_t done = 0; done < count; done += PIECE) {
        size_t n = min_size(count - done, PIECE);
        pome_encoded_decode(e, first + done, n, piece);
        if (e->dtype == POME_DTYPE_F16)
            e->kernels.f32_to_f16((uint16_t *)dst + done, piece, n);
        else
            store_raw(e->dtype, piece, n, done, dst);
    }
}
