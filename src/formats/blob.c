#include "formats/blob.h"

#include <inttypes.h>

#define SENTINEL 0xDEADBEEFu
#define VERSION 2u

static const pome_dtype dtype_of_code[] = {
    [1] = POME_DTYPE_F16, [2] = POME_DTYPE_F32,  [3] = POME_DTYPE_U8,       [4] = POME_DTYPE_I8,
    [5] = POME_DTYPE_BF16, [6] = POME_DTYPE_I16, [7] = POME_DTYPE_U16,      [8] = POME_DTYPE_I4,
    [9] = POME_DTYPE_U1,  [10] = POME_DTYPE_U2,  [11] = POME_DTYPE_U4,      [12] = POME_DTYPE_U3,
    [13] = POME_DTYPE_U6, [14] = POME_DTYPE_I32, [15] = POME_DTYPE_U32,     [16] = POME_DTYPE_F8E4M3FN,
    [17] = POME_DTYPE_F8E5M2,
};
#define N_CODES (sizeof dtype_of_code / sizeof dtype_of_code[0])

uint32_t pome_blob_code(pome_dtype dtype)
{
    for (uint32_t code = 1; code < N_CODES; code++)
        if (dtype_of_code[code] == dtype)
            return code;
    return 0;
}

static uint32_t load_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static uint64_t load_u64(const uint8_t *p)
{
    return load_u32(p) | (uint64_t)load_u32(p + 4) << 32;
}

pome_status pome_blob_file_check(uint32_t *n_blobs, pome_bytes file, const char *name, pome_error *err)
{
    if (file.len < POME_BLOB_HEADER_BYTES)
        return pome_fail_at(err, POME_ERR_FORMAT, file.len,
                            "%s: a weight file starts with a header of 64 bytes, this file ends after %zu "
                            "(download incomplete?)",
                            name, file.len);
    uint32_t version = load_u32(file.ptr + 4);
    if (version != VERSION)
        return pome_fail_at(err, POME_ERR_FORMAT, 4, "%s: weight file version is %" PRIu32 ", wanted 2", name,
                            version);
    *n_blobs = load_u32(file.ptr);
    return POME_OK;
}

/* Writers before iOS 18 left the padding field uninitialised: it counts only for types below a byte. */
static pome_status count_elements(pome_blob *b, uint64_t padding, const char *name, pome_error *err)
{
    uint32_t bits = pome_dtype_bits(b->dtype);
    uint64_t n_bits;
    if (bits >= 8) {
        if (b->data.len % (bits / 8))
            return pome_fail_at(err, POME_ERR_FORMAT, b->record_offset + 8,
                                "%s: blob at 0x%" PRIx64 " has %zu bytes, not a multiple of %s elements", name,
                                b->record_offset, b->data.len, pome_dtype_name(b->dtype));
        b->n_elements = b->data.len / (bits / 8);
        return POME_OK;
    }
    if (padding > 7 || padding > (uint64_t)b->data.len * 8 || __builtin_mul_overflow((uint64_t)b->data.len, 8u, &n_bits) ||
        (n_bits - padding) % bits || (8 % bits == 0 && padding % bits))
        return pome_fail_at(err, POME_ERR_FORMAT, b->record_offset + 24,
                            "%s: blob at 0x%" PRIx64 " has %zu bytes with %" PRIu64
                            " bits of padding, which are no whole %s elements",
                            name, b->record_offset, b->data.len, padding, pome_dtype_name(b->dtype));
    b->padding_bits = (uint32_t)padding;
    b->n_elements = (n_bits - padding) / bits;
    return POME_OK;
}

pome_status pome_blob_read(pome_blob *out, pome_bytes file, const char *name, uint64_t offset, pome_error *err)
{
    if (offset < POME_BLOB_HEADER_BYTES || offset % POME_BLOB_ALIGN)
        return pome_fail_at(err, POME_ERR_FORMAT, offset,
                            "%s: no blob can be at 0x%" PRIx64 ": records follow the header at multiples of 64", name,
                            offset);
    if (offset > file.len || file.len - offset < POME_BLOB_RECORD_BYTES)
        return pome_fail_at(err, POME_ERR_FORMAT, offset,
                            "%s: blob record at 0x%" PRIx64 ", file ends after %zu bytes (download incomplete?)", name,
                            offset, file.len);
    const uint8_t *r = file.ptr + offset;
    uint32_t sentinel = load_u32(r), code = load_u32(r + 4);
    uint64_t size = load_u64(r + 8), start = load_u64(r + 16);
    if (sentinel != SENTINEL)
        return pome_fail_at(err, POME_ERR_FORMAT, offset,
                            "%s: no blob at 0x%" PRIx64 ": found 0x%08" PRIx32 ", wanted 0xdeadbeef", name, offset,
                            sentinel);
    if (code == 0 || code >= N_CODES)
        return pome_fail_at(err, POME_ERR_FORMAT, offset + 4,
                            "%s: blob at 0x%" PRIx64 " has element type %" PRIu32 ", known are 1 to 17", name, offset,
                            code);
    if (start > file.len || size > file.len - start)
        return pome_fail_at(err, POME_ERR_FORMAT, offset + 8,
                            "%s: blob at 0x%" PRIx64 " needs %" PRIu64 " bytes at 0x%" PRIx64
                            ", file ends after %zu (download incomplete?)",
                            name, offset, size, start, file.len);
    bool in_record = start < offset + POME_BLOB_RECORD_BYTES && start + size > offset;
    if (size > 0 && (start < POME_BLOB_HEADER_BYTES || in_record))
        return pome_fail_at(err, POME_ERR_FORMAT, offset + 16,
                            "%s: payload of the blob at 0x%" PRIx64 " starts at 0x%" PRIx64
                            ", inside the file's header or its own record",
                            name, offset, start);
    pome_blob b = {.dtype = dtype_of_code[code], .data = {file.ptr + start, (size_t)size}, .record_offset = offset};
    uint32_t align = (pome_dtype_bits(b.dtype) + 7) / 8;
    if (start % align)
        return pome_fail_at(err, POME_ERR_FORMAT, offset + 16,
                            "%s: payload of the blob at 0x%" PRIx64 " starts at 0x%" PRIx64
                            ", not a multiple of the %" PRIu32 " bytes of an element",
                            name, offset, start, align);
    POME_TRY(count_elements(&b, load_u64(r + 24), name, err));
    *out = b;
    return POME_OK;
}

/* The next record is at the 64-aligned end of a payload. Positions must grow, or a lying file would loop. */
pome_status pome_blob_walk(pome_bytes file, const char *name, pome_blob_fn *fn, void *arg, pome_error *err)
{
    uint32_t n_blobs;
    uint64_t at = POME_BLOB_HEADER_BYTES;
    POME_TRY(pome_blob_file_check(&n_blobs, file, name, err));
    for (uint32_t i = 0; i < n_blobs; i++) {
        pome_blob blob;
        POME_TRY(pome_blob_read(&blob, file, name, at, err));
        POME_TRY(fn(arg, &blob, err));
        uint64_t end = (uint64_t)(blob.data.ptr - file.ptr) + blob.data.len;
        uint64_t next = (end + POME_BLOB_ALIGN - 1) / POME_BLOB_ALIGN * POME_BLOB_ALIGN;
        if (next <= at)
            return pome_fail_at(err, POME_ERR_FORMAT, at + 16,
                                "%s: payload of the blob at 0x%" PRIx64 " ends at 0x%" PRIx64 ", before its record",
                                name, at, end);
        at = next;
    }
    return POME_OK;
}
