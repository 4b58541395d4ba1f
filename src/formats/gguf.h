/* GGUF files, versions 2 and 3: the metadata and the table of tensors. Nothing is copied but the tables; strings and
 * arrays are views into the mapped file.
 *
 *     "GGUF" u32 version  u64 n_tensors  u64 n_entries
 *     entry:   string key  u32 type  value          string: u64 length, bytes
 *     array:   u32 element type  u64 count  elements
 *     tensor:  string name  u32 n_dims  u64 dims[n_dims] (fastest first)  u32 type  u64 offset
 *     padding to the alignment (general.alignment, else 32), then the data                                        */
#ifndef POME_FORMATS_GGUF_H
#define POME_FORMATS_GGUF_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/file.h"
#include "base/span.h"

#define POME_GGUF_DIMS_MAX 4

typedef enum pome_gguf_type {
    POME_GGUF_U8 = 0,
    POME_GGUF_I8,
    POME_GGUF_U16,
    POME_GGUF_I16,
    POME_GGUF_U32,
    POME_GGUF_I32,
    POME_GGUF_F32,
    POME_GGUF_BOOL,
    POME_GGUF_STRING,
    POME_GGUF_ARRAY,
    POME_GGUF_U64,
    POME_GGUF_I64,
    POME_GGUF_F64,
    POME_GGUF_TYPE_COUNT
} pome_gguf_type;

typedef struct pome_gguf_entry {
    pome_str key;
    pome_gguf_type type;
    pome_gguf_type element; /* of an ARRAY; never ARRAY itself */
    uint64_t count;         /* elements of an ARRAY, else 1 */
    pome_bytes data;        /* the value, or the elements, little-endian, unaligned; STRING: its bytes alone */
} pome_gguf_entry;

typedef struct pome_gguf_tensor {
    pome_str name;
    uint32_t n_dims;
    uint64_t dims[POME_GGUF_DIMS_MAX]; /* fastest first; 1 beyond n_dims */
    uint32_t type;                     /* as in the file; see docs/formats.md */
    uint64_t offset;                   /* from the start of the file */
} pome_gguf_tensor;

typedef struct pome_gguf {
    pome_arena *arena;
    pome_mapping *mapping; /* NULL when read from memory */
    uint32_t version;
    uint64_t alignment, data_offset;
    uint64_t n_entries, n_tensors;
    pome_gguf_entry *entries;
    pome_gguf_tensor *tensors;
} pome_gguf;

/* Whether a file begins as a GGUF file. Errors: IO (it cannot be read). */
pome_status pome_gguf_detect(bool *is_gguf, const char *path, pome_error *err);
/* Errors: FORMAT with byte position, UNSUPPORTED for another version or big-endian files. */
pome_status pome_gguf_open(pome_gguf *out, const char *path, pome_error *err);
/* As open; borrows the bytes until pome_gguf_close. */
pome_status pome_gguf_read(pome_gguf *out, pome_bytes bytes, pome_error *err);
void pome_gguf_close(pome_gguf *gguf);

const pome_gguf_entry *pome_gguf_find(const pome_gguf *gguf, const char *key); /* NULL: none */
/* A value of fitting type: integers of any width, floats likewise. False if absent or of another type. */
bool pome_gguf_get_uint(const pome_gguf *gguf, const char *key, uint64_t *out);
bool pome_gguf_get_float(const pome_gguf *gguf, const char *key, double *out);
bool pome_gguf_get_bool(const pome_gguf *gguf, const char *key, bool *out);
bool pome_gguf_get_str(const pome_gguf *gguf, const char *key, pome_str *out);
/* Element i of a numeric array. */
double pome_gguf_element_float(const pome_gguf_entry *entry, uint64_t i);
int64_t pome_gguf_element_int(const pome_gguf_entry *entry, uint64_t i);
/* Steps through an array of strings: *at starts at 0. The array was checked when it was read. */
pome_str pome_gguf_next_str(const pome_gguf_entry *entry, size_t *at);

#endif
