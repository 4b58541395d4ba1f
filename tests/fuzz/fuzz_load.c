/* From a model's protobuf to a checked program, with a small weight file beside it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/mlpackage.h"
#include "mil/load.h"
#include "mil/print.h"
#include "spec_mutator.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[] = "/tmp/pome-fuzz-XXXXXX";

static void remove_weights(void)
{
    char path[64];
    snprintf(path, sizeof path, "%s/weights/weight.bin", dir);
    remove(path);
    snprintf(path, sizeof path, "%s/weights", dir);
    remove(path);
    remove(dir);
}

/* Sixteen blobs of 64 bytes, one of each code from 1 on, at 64, 192, 320, ... */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static uint8_t file[64 + 16 * 128];
    char path[64];
    (void)argc;
    (void)argv;
    file[0] = 16;
    file[4] = 2;
    for (uint32_t i = 0; i < 16; i++) {
        uint8_t *record = file + 64 + i * 128;
        const uint64_t words[3] = {UINT64_C(0xDEADBEEF) | (uint64_t)(i + 1) << 32, 64, 64 + i * 128 + 64};
        memcpy(record, words, sizeof words);
        memset(record + 64, 1, 64);
    }
    if (!mkdtemp(dir))
        abort();
    snprintf(path, sizeof path, "%s/weights", dir);
    if (mkdir(path, 0700) != 0)
        abort();
    snprintf(path, sizeof path, "%s/weights/weight.bin", dir);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(file, 1, sizeof file, f) != sizeof file || fclose(f) != 0)
        abort();
    atexit(remove_weights);
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
    if (pome_mlpackage_open_bytes(&package, (pome_bytes){data, size}, dir, &limits, &err) != POME_OK)
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
