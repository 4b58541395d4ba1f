#include "formats/mlpackage.h"

#include <stdlib.h>

#include "formats/manifest.h"
#include "formats/mlmodelc.h"
#include "formats/model_pipeline.h"

#define DEFAULT_ARENA_BYTES ((size_t)1 << 30)
#define ML_PROGRAM 502
#define PIPELINE_CLASSIFIER 200
#define PIPELINE_REGRESSOR 201
#define PIPELINE 202

static bool is_pipeline(const pome_coreml_kind *kind)
{
    return kind->type >= PIPELINE_CLASSIFIER && kind->type <= PIPELINE;
}

/* The pipeline itself, which the classifier's and the regressor's message wrap; empty for other kinds. */
static pome_bytes pipeline_of(const pome_coreml_kind *kind)
{
    pome_bytes inner = {0};
    size_t at = 0;
    if (kind->type == PIPELINE)
        return kind->payload;
    if (is_pipeline(kind))
        (void)pome_coreml_next_stage(&inner, kind->payload, &at);
    return inner;
}

const char *pome_mlpackage_way_out(uint32_t type)
{
    bool is_network = type == 303 || type == 403 || type == 500, is_pipe = type >= PIPELINE_CLASSIFIER && type <= PIPELINE;
    if (is_network || is_pipe)
        return "convert its source again with coremltools.convert(..., convert_to=\"mlprogram\")";
    if (type == 555 || type == 556 || type >= 2000)
        return "it needs code that only an application or Apple's frameworks have";
    return "coremltools makes ML Programs of PyTorch and TensorFlow networks alone, so write it as one and convert that, or run "
           "it with the library that it came from";
}

pome_status pome_mlpackage_refuse_kind(const pome_coreml_kind *kind, const char *path, pome_error *err)
{
    char stages[300];
    if (kind->type == 0)
        return pome_fail(err, POME_ERR_FORMAT, "%s is no Core ML model, or cut short: it has no model in it", path);
    if (!kind->type_name)
        return pome_fail(err, POME_ERR_UNSUPPORTED,
                         "%s holds a model of unknown kind %u (specification version %d), wanted an mlProgram", path,
                         kind->type, kind->specification_version);
    pome_coreml_stage_names(stages, sizeof stages, pipeline_of(kind));
    return pome_fail(err, POME_ERR_UNSUPPORTED,
                     "%s is a Core ML model of kind %s (specification version %d)%s%s, not an ML Program: %s", path,
                     kind->type_name, kind->specification_version, stages[0] ? " with the stages " : "", stages,
                     pome_mlpackage_way_out(kind->type));
}

static pome_status make_arenas(pome_mlpackage *p, const pome_mlpackage_limits *limits, pome_error *err)
{
    size_t bytes = limits && limits->arena_bytes ? limits->arena_bytes : DEFAULT_ARENA_BYTES;
    p->spec_arena = pome_arena_create(bytes);
    p->arena = p->arena ? p->arena : pome_arena_create(bytes);
    return p->spec_arena && p->arena ? POME_OK : pome_fail_nomem(err, 0, "the model description");
}

static uint32_t depth_of(const pome_mlpackage_limits *limits)
{
    return limits && limits->depth ? limits->depth : POME_COREML_DEPTH;
}

/* A pipeline of ML Programs is one to all that follows; others are refused. */
static pome_status read_pipeline(pome_mlpackage *p, pome_bytes b, const pome_coreml_kind *kind,
                                 const pome_mlpackage_limits *limits, pome_error *err)
{
    const Pome__Spec__Program *program = NULL;
    Pome__Spec__Model *model;
    POME_TRY(make_arenas(p, limits, err));
    POME_TRY(pome_coreml_check(b, &pome__spec__model__descriptor, depth_of(limits), err));
    if (!(model = POME_NEW(p->spec_arena, Pome__Spec__Model)))
        return pome_fail_nomem(err, sizeof *model, "the model description");
    pome__spec__model__init(model);
    model->specificationversion = kind->specification_version;
    POME_TRY(pome_coreml_unpack_description(&model->description, kind->description, p->spec_arena, depth_of(limits), err));
    POME_TRY(pome_pipeline_unpack(&program, pipeline_of(kind), model->description, p->spec_arena, depth_of(limits), err));
    if (!program)
        return pome_mlpackage_refuse_kind(kind, "the model", err);
    model->type_case = POME__SPEC__MODEL__TYPE_ML_PROGRAM;
    model->mlprogram = (Pome__Spec__Program *)(uintptr_t)program;
    p->spec = model;
    return pome_mlpackage_describe(p, err);
}

static pome_status read_model(pome_mlpackage *p, pome_bytes b, const pome_mlpackage_limits *limits, pome_error *err)
{
    pome_coreml_kind kind;
    if (pome_bytes_is_lfs_pointer(b))
        return pome_fail(err, POME_ERR_FORMAT,
                         "a Git LFS pointer: the file itself was never downloaded (run `git lfs pull`)");
    POME_TRY(pome_coreml_peek(&kind, b, err));
    if (is_pipeline(&kind))
        return read_pipeline(p, b, &kind, limits, err);
    if (kind.type != ML_PROGRAM)
        return pome_mlpackage_refuse_kind(&kind, "the model", err);
    POME_TRY(make_arenas(p, limits, err));
    POME_TRY(pome_coreml_unpack(&p->spec, b, p->spec_arena, depth_of(limits), err));
    return pome_mlpackage_describe(p, err);
}

/* The folder of a path, as text in the arena. */
static const char *folder_of(pome_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return ".";
    return slash == path ? "/" : pome_arena_strndup(arena, path, (size_t)(slash - path));
}

static pome_status open_compiled(pome_mlpackage *p, const pome_mlpackage_place *place,
                                 const pome_mlpackage_limits *limits, pome_error *err)
{
    p->info.path = place->root;
    POME_TRY(make_arenas(p, limits, err));
    POME_TRY(pome_mlmodelc_read(&p->spec, place->root, p->spec_arena, depth_of(limits), err));
    pome_status status = pome_mlpackage_describe(p, err);
    return status == POME_OK ? POME_OK : pome_fail_prefix(err, status, "%s", place->root);
}

static pome_status open_place(pome_mlpackage *p, const pome_mlpackage_place *place,
                              const pome_mlpackage_limits *limits, pome_error *err)
{
    pome_mapping *mapping;
    p->model_file = place->model_file;
    p->model_dir = folder_of(p->arena, place->model_file);
    if (!p->model_dir)
        return pome_fail_nomem(err, 0, "a path");
    if (place->is_compiled)
        return open_compiled(p, place, limits, err);
    POME_TRY(pome_mapping_open(&mapping, place->model_file, err));
    pome_status status = read_model(p, pome_mapping_bytes(mapping), limits, err);
    pome_mapping_release(&mapping);
    p->info.path = place->root ? place->root : place->model_file;
    return status == POME_OK ? POME_OK : pome_fail_prefix(err, status, "%s", place->model_file);
}

/* The package lies in its own arena. */
static pome_status create(pome_mlpackage **out, const pome_mlpackage_limits *limits, pome_error *err)
{
    pome_arena *arena = pome_arena_create(limits && limits->arena_bytes ? limits->arena_bytes : DEFAULT_ARENA_BYTES);
    pome_mlpackage *p = arena ? POME_NEW(arena, pome_mlpackage) : NULL;
    if (!p) {
        pome_arena_destroy(&arena);
        return pome_fail_nomem(err, sizeof *p, "a package");
    }
    p->arena = arena;
    *out = p;
    return POME_OK;
}

pome_status pome_mlpackage_open(pome_mlpackage **out, const char *path, const pome_mlpackage_limits *limits,
                                pome_error *err)
{
    pome_mlpackage *p;
    pome_mlpackage_place place;
    POME_TRY(create(&p, limits, err));
    pome_status status = pome_mlpackage_locate(&place, path, p->arena, err);
    if (status == POME_OK)
        status = open_place(p, &place, limits, err);
    if (status == POME_OK)
        *out = p;
    else
        pome_mlpackage_close(&p);
    return status;
}

pome_status pome_mlpackage_open_bytes(pome_mlpackage **out, pome_bytes model, const char *model_dir,
                                      const pome_mlpackage_limits *limits, pome_error *err)
{
    pome_mlpackage *p;
    POME_TRY(create(&p, limits, err));
    p->model_file = p->info.path = "";
    p->model_dir = pome_arena_strndup(p->arena, model_dir, strlen(model_dir));
    pome_status status =
        p->model_dir ? read_model(p, model, limits, err) : pome_fail_nomem(err, strlen(model_dir), "a path");
    if (status == POME_OK)
        *out = p;
    else
        pome_mlpackage_close(&p);
    return status;
}

pome_status pome_mlpackage_open_compiled(pome_mlpackage **out, const struct pome_mlmodelc_parts *parts,
                                         const char *model_dir, const pome_mlpackage_limits *limits, pome_error *err)
{
    pome_mlpackage *p;
    POME_TRY(create(&p, limits, err));
    p->model_file = p->info.path = "";
    p->model_dir = pome_arena_strndup(p->arena, model_dir, strlen(model_dir));
    pome_status status = p->model_dir ? make_arenas(p, limits, err) : pome_fail_nomem(err, strlen(model_dir), "a path");
    if (status == POME_OK)
        status = pome_mlmodelc_assemble(&p->spec, parts, p->spec_arena, depth_of(limits), err);
    if (status == POME_OK)
        status = pome_mlpackage_describe(p, err);
    if (status == POME_OK)
        *out = p;
    else
        pome_mlpackage_close(&p);
    return status;
}

void pome_mlpackage_forget_spec(pome_mlpackage *package)
{
    package->spec = NULL;
    pome_arena_destroy(&package->spec_arena);
}

void pome_mlpackage_close(pome_mlpackage **package)
{
    if (!package || !*package)
        return;
    pome_arena *arena = (*package)->arena;
    pome_arena_destroy(&(*package)->spec_arena);
    *package = NULL;
    pome_arena_destroy(&arena);
}

pome_status pome_mlpackage_map(pome_mapping **out, const pome_mlpackage *package, const char *file_name,
                               pome_error *err)
{
    static const char prefix[] = "@model_path/";
    const char *name = strncmp(file_name, prefix, sizeof prefix - 1) == 0 ? file_name + sizeof prefix - 1 : file_name;
    if (!pome_path_is_inside(name) || name[0] == '@')
        return pome_fail(err, POME_ERR_FORMAT, "weight file name \"%.200s\" leaves the package", file_name);
    if (package->model_dir[0] == '\0')
        return pome_fail(err, POME_ERR_FORMAT, "weight file %.200s: the model came without a folder", file_name);
    char *path = pome_path_join(package->model_dir, name);
    if (!path)
        return pome_fail_nomem(err, strlen(name), "a path");
    pome_mapping *mapping = NULL;
    pome_status status;
    if (!pome_path_exists(path) || pome_path_is_dir(path))
        status = pome_fail(err, POME_ERR_FORMAT,
                           "%s: the weight file is missing (copied or downloaded only in part?)", path);
    else
        status = pome_mapping_open(&mapping, path, err);
    if (status == POME_OK && pome_bytes_is_lfs_pointer(pome_mapping_bytes(mapping))) {
        status = pome_fail(err, POME_ERR_FORMAT,
                           "%s is a Git LFS pointer: the weights were never downloaded (run `git lfs pull`)", path);
        pome_mapping_release(&mapping);
    }
    free(path);
    if (status == POME_OK)
        *out = mapping;
    return status;
}
