/* Safetensors checkpoints: a u64 length, a JSON header of that many bytes ({"name": {"dtype", "shape",
 * "data_offsets": [begin, end]}, "__metadata__": {...}}), then the data. A checkpoint is one file, or several with an
 * index ("weight_map": {name: file}). Data are views into the mapped files. */
#ifndef POME_FORMATS_SAFETENSORS_H
#define POME_FORMATS_SAFETENSORS_H

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "base/strmap.h"
#include "pome/tensor.h"

#define POME_SAFETENSORS_HEADER_MAX ((uint64_t)100 << 20)

typedef struct pome_safetensor {
    const char *name;
    const char *type_name; /* as in the file: "BF16" */
    pome_dtype dtype;      /* NONE for types that no operator of ours has (F4, F6_..., C64) */
    int32_t rank;
    int64_t shape[POME_MAX_RANK];
    pome_bytes data;       /* not aligned in general; exactly the shape's size */
    const char *file;      /* for messages */
    uint64_t offset;       /* of the data in its file */
} pome_safetensor;

typedef struct pome_safetensors {
    pome_arena *arena;
    pome_mapping **mappings;
    uint32_t n_mappings, n_tensors;
    pome_safetensor *tensors; /* in the order of the files' headers */
    pome_strmap by_name;
    uint64_t size_bytes;      /* of all files */
} pome_safetensors;

/* Opens a folder (model.safetensors, or model.safetensors.index.json and its shards, or the one .safetensors file in
 * it) or a file. An index that names shards which are not there is no error if every tensor it lists is found in one
 * that is. Errors: IO (nothing there; missing shards, all by name), FORMAT (cut or damaged, with byte position; a
 * tensor that is listed but missing; one name twice), UNSUPPORTED (an unknown dtype). */
pome_status pome_safetensors_open(pome_safetensors *out, const char *path, pome_error *err);
void pome_safetensors_close(pome_safetensors *st);
const pome_safetensor *pome_safetensors_find(const pome_safetensors *st, const char *name); /* NULL: none */

/* One file's bytes, added to a set that has its arena. `file` must outlive the set, as must the bytes. */
pome_status pome_safetensors_add(pome_safetensors *st, pome_bytes bytes, const char *file, pome_error *err);

#endif
