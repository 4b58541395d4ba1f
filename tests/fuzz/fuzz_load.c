/* From a model's protobuf to a checked program, with a small weight file beside it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/mlpackage.h"
#include "mil/load.h"
#include "mil/print.h"
#include "spec_mutator.h"
#include "weight_folder.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    weight_folder_make();
    return 0;
}

static void count(void *arg, const char *text, size_t len)
{
    (void)text;
    *(size_t *)arg += len;
}

static void check_program(pome_program *p)
{
    pome_error err = {0};
    size_t len = 0;
    if (pome_program_print(p, count, &len, &err) != POME_OK || len == 0)
        abort();
    for (uint32_t i = 0; i < p->n_functions; i++) {
        pome_arena *arena = pome_arena_create(0);
        if (!pome_function_clone(p->functions[i], arena))
            abort();
        pome_arena_destroy(&arena);
    }
    pome_status status = pome_program_verify(p, &err);
    if (status != err.code || (status != POME_OK && !err.message[0]))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const pome_mlpackage_limits limits = {.arena_bytes = 4 << 20, .depth = 40};
    static const pome_load_limits load_limits = {.arena_bytes = 4 << 20, .n_ops = 2000, .block_depth = 6};
    pome_mlpackage *package = NULL;
    pome_program *p = NULL;
    pome_error err = {0};
    if (pome_mlpackage_open_bytes(&package, (pome_bytes){data, size}, weight_folder, &limits, &err) != POME_OK)
        return 0;
    pome_status status = pome_program_load(&p, package, &load_limits, &err);
    if (status != err.code || (status == POME_OK) != (p != NULL) || (status != POME_OK && !err.message[0]))
        abort();
    if (p)
        check_program(p);
    pome_program_destroy(&p);
    pome_mlpackage_close(&package);
    return 0;
}
