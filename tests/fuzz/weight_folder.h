/* A folder with a small weight file, for targets whose programs cite one. */
#ifndef POME_TESTS_WEIGHT_FOLDER_H
#define POME_TESTS_WEIGHT_FOLDER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char weight_folder[] = "/tmp/pome-fuzz-XXXXXX";

static void weight_folder_remove(void)
{
    char path[64];
    snprintf(path, sizeof path, "%s/weights/weight.bin", weight_folder);
    remove(path);
    snprintf(path, sizeof path, "%s/weights", weight_folder);
    remove(path);
    remove(weight_folder);
}

/* Sixteen blobs of 64 bytes, one of each code from 1 on, at 64, 192, 320, ... Removed at exit. */
static void weight_folder_make(void)
{
    static uint8_t file[64 + 16 * 128];
    char path[64];
    file[0] = 16;
    file[4] = 2;
    for (uint32_t i = 0; i < 16; i++) {
        uint8_t *record = file + 64 + i * 128;
        const uint64_t words[3] = {UINT64_C(0xDEADBEEF) | (uint64_t)(i + 1) << 32, 64, 64 + i * 128 + 64};
        memcpy(record, words, sizeof words);
        memset(record + 64, 1, 64);
    }
    if (!mkdtemp(weight_folder))
        abort();
    snprintf(path, sizeof path, "%s/weights", weight_folder);
    if (mkdir(path, 0700) != 0)
        abort();
    snprintf(path, sizeof path, "%s/weights/weight.bin", weight_folder);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(file, 1, sizeof file, f) != sizeof file || fclose(f) != 0)
        abort();
    atexit(weight_folder_remove);
}

#endif
