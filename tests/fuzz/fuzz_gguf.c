/* GGUF headers: everything that the tables claim is touched. */
#include <stdlib.h>

#include "formats/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static unsigned touch(const pome_gguf_entry *e)
{
    unsigned sum = 0;
    for (size_t i = 0; i < e->data.len; i++)
        sum += e->data.ptr[i];
    size_t at = 0;
    for (uint64_t i = 0; e->type == POME_GGUF_ARRAY && i < e->count; i++) {
        if (e->element == POME_GGUF_STRING)
            sum += (unsigned)pome_gguf_next_str(e, &at).len;
        else
            sum += (unsigned)pome_gguf_element_int(e, i) + (pome_gguf_element_float(e, i) > 0);
    }
    if (e->type == POME_GGUF_ARRAY && e->element == POME_GGUF_STRING && at != e->data.len)
        abort();
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pome_gguf g;
    pome_error err = {0};
    if (pome_gguf_read(&g, (pome_bytes){data, size}, &err) != POME_OK) {
        if (!err.message[0])
            abort();
        return 0;
    }
    unsigned sum = 0;
    for (uint64_t i = 0; i < g.n_entries; i++)
        sum += touch(&g.entries[i]);
    for (uint64_t i = 0; i < g.n_tensors; i++)
        if (g.tensors[i].offset > size)
            abort();
    pome_gguf_close(&g);
    return sum == 0xFFFFFFFFu; /* so that nothing is optimized away */
}
