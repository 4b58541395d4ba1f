/* Manifest.json. */
#include <stdlib.h>

#include "formats/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pome_arena *arena = pome_arena_create(1 << 20);
    pome_manifest m;
    pome_error err = {0};
    pome_status status = pome_manifest_parse(&m, (pome_bytes){data, size}, arena, &err);
    if (status == POME_OK && (!m.root || !pome_path_is_inside(m.root->path)))
        abort();
    if (status != err.code)
        abort();
    pome_arena_destroy(&arena);
    return 0;
}
