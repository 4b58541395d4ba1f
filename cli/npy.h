/* NumPy's files: arrays (.npy, format 1.0 to 3.0) and zip archives of them (.npz). Numbers and booleans only. */
#ifndef POME_CLI_NPY_H
#define POME_CLI_NPY_H

#include "pome/tensor.h"

typedef struct npz_array {
    char *name; /* without ".npy" */
    pome_tensor tensor;
} npz_array;

typedef struct npz {
    npz_array *arrays; /* [n] */
    size_t n;
} npz;

/* A contiguous tensor from the bytes of a .npy file, in C order and the machine's byte order. `what` names it in
 * errors. Errors: FORMAT, UNSUPPORTED (other element types). */
pome_status npy_parse(pome_tensor *out, const void *bytes, size_t len, const char *what, pome_error *err);
pome_status npy_read(pome_tensor *out, const char *path, pome_error *err);
/* Members that hold no numbers get an empty tensor (dtype NONE). */
pome_status npz_read(npz *out, const char *path, pome_error *err);
void npz_reset(npz *z);
const pome_tensor *npz_find(const npz *z, const char *name); /* NULL: none */

/* The bytes of a .npy file, malloc'ed. bfloat16, 8-bit floats and sub-byte integers, which NumPy lacks, are
 * written as the next wider type. */
pome_status npy_format(void **bytes, size_t *len, const pome_tensor *t, pome_error *err);
pome_status npy_write(const char *path, const pome_tensor *t, pome_error *err);
/* Equal arrays give equal bytes: nothing is compressed, no time is stored. */
pome_status npz_write(const char *path, const char *const *names, const pome_tensor *const *tensors, size_t n,
                      pome_error *err);

bool is_npz_path(const char *path);

#endif
