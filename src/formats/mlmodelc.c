#include "formats/mlmodelc.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/log.h"
#include "formats/mil_text.h"
#include "formats/mlpackage.h"
#include "formats/model_pipeline.h"

#define SIDE_FILE_MAX_BYTES ((size_t)64 << 20) /* of coremldata.bin and metadata.json */
#define ML_PROGRAM 502u
#define STAGES_MAX 256
#define PATH_BYTES 4096

static pome_status no_memory(pome_error *err)
{
    return pome_fail_nomem(err, 0, "a compiled model");
}

/* A path longer than systems take is that of no file. */
static bool path_of(char path[PATH_BYTES], const char *folder, const char *name)
{
    int n = snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return n > 0 && n < PATH_BYTES;
}

static bool has_file(const char *folder, const char *name)
{
    char path[PATH_BYTES];
    return path_of(path, folder, name) && pome_path_exists(path);
}

bool pome_mlmodelc_detect(const char *folder)
{
    size_t n = strlen(folder);
    while (n > 0 && folder[n - 1] == '/')
        n--;
    bool is_named = n >= 9 && memcmp(folder + n - 9, ".mlmodelc", 9) == 0;
    return pome_path_is_dir(folder) && (is_named || has_file(folder, "model.mil") || has_file(folder, "coremldata.bin"));
}

/* A small file of the folder as malloc'ed data, or NULL where it is missing, too large or unreadable: it only adds to the
 * program. Errors: NOMEM. */
static pome_status read_side_file(char **out, pome_bytes *bytes, const char *folder, const char *name, pome_error *err)
{
    char path[PATH_BYTES], *data = NULL;
    size_t len = 0;
    pome_error why = {0};
    *out = NULL;
    *bytes = (pome_bytes){0};
    if (!path_of(path, folder, name) || !pome_path_exists(path))
        return POME_OK;
    pome_status status = pome_file_read(path, SIDE_FILE_MAX_BYTES, &data, &len, &why);
    if (status == POME_ERR_NOMEM)
        return no_memory(err);
    if (status != POME_OK) {
        pome_log(POME_LOG_WARN, "%s is passed over: %s", path, why.message);
        return POME_OK;
    }
    if (pome_bytes_is_lfs_pointer((pome_bytes){(const uint8_t *)data, len})) {
        pome_log(POME_LOG_WARN, "%s is a Git LFS pointer and passed over (run `git lfs pull`)", path);
        free(data);
        return POME_OK;
    }
    *bytes = (pome_bytes){(const uint8_t *)data, len};
    *out = data;
    return POME_OK;
}

/* What a folder without model.mil is. coremldata.bin begins with the field number of the model's kind. */
static pome_status refuse_without_program(const char *folder, pome_error *err)
{
    pome_bytes b;
    char *data = NULL;
    uint32_t kind = 0;
    POME_TRY(read_side_file(&data, &b, folder, "coremldata.bin", err));
    if (data && b.len >= sizeof kind)
        kind = (uint32_t)b.ptr[0] | (uint32_t)b.ptr[1] << 8 | (uint32_t)b.ptr[2] << 16 | (uint32_t)b.ptr[3] << 24;
    free(data);
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(&pome__spec__model__descriptor, kind);
    if (has_file(folder, "model.espresso.net"))
        return pome_fail(err, POME_ERR_UNSUPPORTED,
                         "%s is a compiled neural network, not an ML Program: convert its source again with "
                         "coremltools.convert(..., convert_to=\"mlprogram\")",
                         folder);
    if (kind >= 200 && kind != ML_PROGRAM && field)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "%s is a compiled model of kind %s, not an ML Program: %s", folder,
                         field->name, pome_mlpackage_way_out(kind));
    return pome_fail(err, POME_ERR_FORMAT, "%s: model.mil is missing (copied or downloaded only in part?)", folder);
}

pome_status pome_mlmodelc_assemble(const Pome__Spec__Model **out, const pome_mlmodelc_parts *parts, pome_arena *arena,
                                   uint32_t max_depth, pome_error *err)
{
    const Pome__Spec__Program *program = NULL;
    Pome__Spec__Model *model = POME_NEW(arena, Pome__Spec__Model);
    if (!model)
        return no_memory(err);
    pome__spec__model__init(model);
    POME_TRY(pome_mil_text_parse(&program, parts->text, arena, max_depth, err));
    model->type_case = POME__SPEC__MODEL__TYPE_ML_PROGRAM;
    model->mlprogram = (Pome__Spec__Program *)(uintptr_t)program;
    if (parts->binary.len)
        model->description = pome_mlmodelc_find_description(parts->binary, arena, max_depth);
    bool is_derived = !model->description;
    if (is_derived)
        POME_TRY(pome_mlmodelc_derive_description(&model->description, program, arena, err));
    model->specificationversion = pome_mlmodelc_version_of(program);
    pome_error why = {0};
    pome_status status = parts->metadata.len
                             ? pome_mlmodelc_apply_metadata(model, is_derived, parts->metadata, arena, &why)
                             : POME_OK;
    if (status == POME_ERR_NOMEM)
        return no_memory(err);
    if (status != POME_OK)
        pome_log(POME_LOG_WARN, "metadata.json is passed over: %s", why.message);
    *out = model;
    return POME_OK;
}

static pome_status assemble_folder(const Pome__Spec__Model **out, const char *folder, pome_bytes text,
                                   pome_arena *arena, uint32_t max_depth, pome_error *err)
{
    pome_mlmodelc_parts parts = {.text = text};
    if (pome_bytes_is_lfs_pointer(text))
        return pome_fail(err, POME_ERR_FORMAT,
                         "a Git LFS pointer: the file itself was never downloaded (run `git lfs pull`)");
    char *binary = NULL, *metadata = NULL;
    POME_TRY(read_side_file(&binary, &parts.binary, folder, "coremldata.bin", err));
    pome_status status = read_side_file(&metadata, &parts.metadata, folder, "metadata.json", err);
    if (status == POME_OK)
        status = pome_mlmodelc_assemble(out, &parts, arena, max_depth, err);
    free(binary);
    free(metadata);
    return status;
}

/* ---- pipelines ---- */

/* What follows a gap would be left out without a word. */
static pome_status check_no_later_stage(const char *folder, size_t n, pome_error *err)
{
    char name[32], path[PATH_BYTES];
    for (size_t i = n; i <= STAGES_MAX; i++) {
        snprintf(name, sizeof name, "model%zu", i);
        if (!path_of(path, folder, name) || !pome_path_is_dir(path))
            continue;
        if (n == STAGES_MAX)
            return pome_fail(err, POME_ERR_LIMIT, "%s: the pipeline has more than %d stages", folder, STAGES_MAX);
        return pome_fail(err, POME_ERR_FORMAT, "%s: found %s but no model%zu: stages of a pipeline are numbered without gaps",
                         folder, name, n);
    }
    return POME_OK;
}

static pome_status read_stages(pome_pipeline_stage **out, size_t *n_out, const char *folder, pome_arena *arena,
                               uint32_t max_depth, pome_error *err)
{
    pome_pipeline_stage *stages = POME_NEW_ARRAY(arena, pome_pipeline_stage, STAGES_MAX);
    size_t n = 0;
    if (!stages)
        return no_memory(err);
    for (; n < STAGES_MAX; n++) {
        const Pome__Spec__Model *model = NULL;
        const char *name = pome_arena_printf(arena, "model%zu/", n);
        const char *path = name ? pome_arena_printf(arena, "%s/model%zu", folder, n) : NULL;
        if (!path)
            return no_memory(err);
        if (!pome_path_is_dir(path))
            break;
        if (!has_file(path, "model.mil"))
            return refuse_without_program(path, err);
        POME_TRY(pome_mlmodelc_read(&model, path, arena, max_depth, err));
        stages[n] = (pome_pipeline_stage){model->mlprogram, name};
    }
    POME_TRY(check_no_later_stage(folder, n, err));
    *out = stages;
    *n_out = n;
    return POME_OK;
}

/* The stages as one program. The interface is that of the pipeline's own coremldata.bin, else it follows from them. */
static pome_status read_pipeline(const Pome__Spec__Model **out, const char *folder, pome_arena *arena,
                                 uint32_t max_depth, pome_error *err)
{
    pome_pipeline_stage *stages = NULL;
    size_t n = 0;
    const Pome__Spec__Program *program = NULL;
    Pome__Spec__Model *model = POME_NEW(arena, Pome__Spec__Model);
    char *binary = NULL;
    pome_bytes bytes;
    if (!model)
        return no_memory(err);
    pome__spec__model__init(model);
    POME_TRY(read_stages(&stages, &n, folder, arena, max_depth, err));
    POME_TRY(read_side_file(&binary, &bytes, folder, "coremldata.bin", err));
    model->description = pome_mlmodelc_find_description(bytes, arena, max_depth);
    free(binary);
    pome_status status = pome_pipeline_join(&program, stages, n, model->description, arena, err);
    if (status != POME_OK)
        return pome_fail_prefix(err, status, "%s", folder);
    model->type_case = POME__SPEC__MODEL__TYPE_ML_PROGRAM;
    model->mlprogram = (Pome__Spec__Program *)(uintptr_t)program;
    model->specificationversion = pome_mlmodelc_version_of(program);
    if (!model->description)
        POME_TRY(pome_mlmodelc_derive_description(&model->description, program, arena, err));
    *out = model;
    return POME_OK;
}

pome_status pome_mlmodelc_read(const Pome__Spec__Model **out, const char *folder, pome_arena *arena,
                               uint32_t max_depth, pome_error *err)
{
    char path[PATH_BYTES];
    pome_mapping *mapping = NULL;
    if (!has_file(folder, "model.mil") && has_file(folder, "model0"))
        return read_pipeline(out, folder, arena, max_depth, err);
    if (!has_file(folder, "model.mil"))
        return refuse_without_program(folder, err);
    (void)path_of(path, folder, "model.mil"); /* it is there */
    pome_status status = pome_mapping_open(&mapping, path, err);
    if (status == POME_OK) {
        status = assemble_folder(out, folder, pome_mapping_bytes(mapping), arena, max_depth, err);
        pome_mapping_release(&mapping);
        if (status != POME_OK)
            pome_fail_prefix(err, status, "%s", path);
    }
    return status;
}
