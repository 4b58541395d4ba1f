/* Writing weight files (formats/blob.h). The layout is planned first, so that a program can cite offsets and the
 * whole size is known before anything is written; payloads are then put in any order, in pieces. What is not put is
 * zero: gaps, reserved fields and unused bits. */
#ifndef POME_FORMATS_BLOB_WRITER_H
#define POME_FORMATS_BLOB_WRITER_H

#include "base/error.h"
#include "pome/tensor.h"

/* Blobs follow each other in the order in which they are added. A zeroed struct is an empty layout. */
typedef struct pome_blob_layout {
    uint64_t end; /* size of the file: the end of the last payload */
    uint32_t n_blobs;
} pome_blob_layout;

typedef struct pome_blob_slot {
    pome_dtype dtype;
    uint64_t n_elements;
    uint64_t record_offset;
    uint64_t data_offset, size_bytes; /* of the payload */
} pome_blob_slot;

/* Errors: UNSUPPORTED for a type that weight files do not hold; LIMIT for a size that does not fit. */
pome_status pome_blob_layout_add(pome_blob_layout *layout, pome_dtype dtype, uint64_t n_elements, pome_blob_slot *out,
                                 pome_error *err);

typedef struct pome_blob_writer {
    int fd;           /* -1: none */
    const char *path; /* borrowed */
} pome_blob_writer;

/* Creates the file, or with `resume` opens it as it is, and gives it the layout's size and header.
 * Errors: IO (with the space that is missing if the disk is full). */
pome_status pome_blob_writer_open(pome_blob_writer *w, const char *path, const pome_blob_layout *layout, bool resume,
                                  pome_error *err);
/* The metadata record of a blob. */
pome_status pome_blob_writer_record(const pome_blob_writer *w, const pome_blob_slot *slot, pome_error *err);
/* `len` bytes at byte `at` of a blob's payload. */
pome_status pome_blob_writer_put(const pome_blob_writer *w, const pome_blob_slot *slot, uint64_t at, const void *data,
                                 size_t len, pome_error *err);
/* Flushes to the disk and closes. */
pome_status pome_blob_writer_close(pome_blob_writer *w, pome_error *err);
/* Closes without flushing; accepts a closed writer. */
void pome_blob_writer_abandon(pome_blob_writer *w);

#endif
