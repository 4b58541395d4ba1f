/* Safetensors: every tensor's data must lie within the file, and be of the size that its shape says. */
#include <stdlib.h>

#include "formats/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pome_safetensors st = {.arena = pome_arena_create(1 << 24)};
    pome_error err = {0};
    unsigned sum = 0;
    pome_strmap_init(&st.by_name, st.arena);
    pome_status status = pome_safetensors_add(&st, (pome_bytes){data, size}, "file", &err);
    for (uint32_t i = 0; status == POME_OK && i < st.n_tensors; i++) {
        const pome_safetensor *t = &st.tensors[i];
        if (t->data.len && (t->data.ptr < data || t->data.ptr + t->data.len > data + size))
            abort();
        for (size_t k = 0; k < t->data.len; k++)
            sum += t->data.ptr[k];
        if (pome_safetensors_find(&st, t->name) != t)
            abort();
    }
    if (status != err.code || sum == 0xffffffffu)
        abort();
    pome_safetensors_close(&st);
    return 0;
}
