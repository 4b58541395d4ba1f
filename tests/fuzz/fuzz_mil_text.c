/* The program text of a compiled model: what is read and checked is printed in both spellings, and read again as what
 * prints to the same text. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/mlmodelc.h"
#include "formats/mlpackage.h"
#include "mil/load.h"
#include "mil/print.h"
#include "weight_folder.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const pome_mlpackage_limits limits = {.arena_bytes = 8 << 20, .depth = 24};
static const pome_load_limits load_limits = {.arena_bytes = 8 << 20, .n_ops = 2000, .block_depth = 6};

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    weight_folder_make();
    return 0;
}

static pome_status read_text(pome_mlpackage **package, pome_program **program, pome_bytes text, pome_error *err)
{
    const pome_mlmodelc_parts parts = {.text = text};
    pome_status status = pome_mlpackage_open_compiled(package, &parts, weight_folder, &limits, err);
    if (status == POME_OK)
        status = pome_program_load(program, *package, &load_limits, err);
    if (status == POME_OK)
        status = pome_program_verify(*program, err);
    if (status != POME_OK && (status != err->code || !err->message[0]))
        abort();
    return status;
}

static void check_round_trip(const pome_program *program, const pome_model_info *info, bool is_long)
{
    const pome_print_opts opts = {.is_long = is_long, .info = info};
    char *text = NULL, *again = NULL;
    size_t len = 0;
    pome_mlpackage *package = NULL;
    pome_program *p = NULL;
    pome_error err = {0};
    if (pome_program_text_as(&text, &len, program, &opts, &err) != POME_OK)
        abort();
    pome_status status = read_text(&package, &p, (pome_bytes){(const uint8_t *)text, len}, &err);
    if (status != POME_OK && status != POME_ERR_LIMIT && status != POME_ERR_NOMEM) {
        fprintf(stderr, "%s\n%s\n", err.message, text);
        abort();
    }
    if (status == POME_OK && pome_program_text_as(&again, NULL, p, &opts, &err) != POME_OK)
        abort();
    if (status == POME_OK && strcmp(text, again) != 0) {
        fprintf(stderr, "%s\n---- is read as ----\n%s\n", text, again);
        abort();
    }
    free(text);
    free(again);
    pome_program_destroy(&p);
    pome_mlpackage_close(&package);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pome_mlpackage *package = NULL;
    pome_program *p = NULL;
    pome_error err = {0};
    if (read_text(&package, &p, (pome_bytes){data, size}, &err) == POME_OK) {
        check_round_trip(p, &package->info, false);
        check_round_trip(p, &package->info, true);
    }
    pome_program_destroy(&p);
    pome_mlpackage_close(&package);
    return 0;
}
