/* Weight files: the walk, and a record at every possible place. */
#include <stdlib.h>

#include "formats/blob.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Touches what a blob claims to hold. */
static pome_status touch(void *arg, const pome_blob *blob, pome_error *err)
{
    unsigned *sum = arg;
    uint64_t bits = (uint64_t)blob->data.len * 8;
    (void)err;
    if (blob->data.len)
        *sum += blob->data.ptr[0] + blob->data.ptr[blob->data.len - 1];
    if (blob->n_elements * pome_dtype_bits(blob->dtype) + blob->padding_bits != bits)
        abort();
    return POME_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pome_bytes file = {data, size};
    unsigned sum = 0;
    if (pome_blob_walk(file, "fuzz", touch, &sum, NULL) != POME_OK)
        sum++;
    for (uint64_t at = 0; at <= size && at < 1024; at += 64) {
        pome_blob blob;
        pome_error err = {0};
        if (pome_blob_read(&blob, file, "fuzz", at, &err) == POME_OK)
            (void)touch(&sum, &blob, &err);
        else if (err.code != POME_ERR_FORMAT)
            abort();
    }
    return sum == 0xFFFFFFFFu; /* so that nothing is optimized away */
}
