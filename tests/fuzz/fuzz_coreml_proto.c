/* The protobuf of a model file: the wire format, unpacking, the description. */
#include <stdlib.h>

#include "formats/mlpackage.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const pome_mlpackage_limits limits = {.arena_bytes = 4 << 20, .depth = 40};
    pome_bytes file = {data, size};
    pome_coreml_kind kind;
    pome_error err = {0};
    char names[64];
    if (pome_coreml_peek(&kind, file, NULL) == POME_OK && kind.type)
        pome_coreml_stage_names(names, sizeof names, kind.payload);
    pome_mlpackage *p = NULL;
    pome_status status = pome_mlpackage_open_bytes(&p, file, "", &limits, &err);
    if (status != err.code || (status == POME_OK) != (p != NULL) || (status != POME_OK && !err.message[0]))
        abort();
    if (p && p->info.default_function >= p->info.n_functions)
        abort();
    pome_mlpackage_close(&p);
    return 0;
}
