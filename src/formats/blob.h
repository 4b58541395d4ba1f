/* Weight files: MILBlob storage, version 2. A 64-byte header (count, version) is followed by blobs, each a 64-byte
 * metadata record and its payload; little-endian, records 64-aligned. Payloads are views of the file, never copied. */
#ifndef POME_FORMATS_BLOB_H
#define POME_FORMATS_BLOB_H

#include "base/error.h"
#include "base/span.h"
#include "pome/tensor.h"

enum { POME_BLOB_ALIGN = 64, POME_BLOB_HEADER_BYTES = 64, POME_BLOB_RECORD_BYTES = 64 };

typedef struct pome_blob {
    pome_dtype dtype;
    pome_bytes data;        /* lives as long as the file's bytes; aligned to the element */
    uint32_t padding_bits;  /* unused high bits of the last byte, 0..7; 0 unless the type is below a byte */
    uint64_t n_elements;
    uint64_t record_offset; /* of the metadata record: what a program cites */
} pome_blob;

/* Checks the header. `name` is for messages. Errors: FORMAT. */
pome_status pome_blob_file_check(uint32_t *n_blobs, pome_bytes file, const char *name, pome_error *err);
/* Reads the record at `offset`. Errors: FORMAT with the byte position. */
pome_status pome_blob_read(pome_blob *out, pome_bytes file, const char *name, uint64_t offset, pome_error *err);
/* Calls fn for each blob in file order until it fails. */
typedef pome_status pome_blob_fn(void *arg, const pome_blob *blob, pome_error *err);
pome_status pome_blob_walk(pome_bytes file, const char *name, pome_blob_fn *fn, void *arg, pome_error *err);

/* Codes of the element types in records; 0 for types that weight files do not hold. */
uint32_t pome_blob_code(pome_dtype dtype);

#endif
