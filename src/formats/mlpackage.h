/* A Core ML model on disk, a package or a compiled model: found from whatever path the user gave, opened, its model
 * description unpacked. */
#ifndef POME_FORMATS_MLPACKAGE_H
#define POME_FORMATS_MLPACKAGE_H

#include "base/arena.h"
#include "base/error.h"
#include "base/file.h"
#include "formats/coreml_proto.h"
#include "pome/model.h"

typedef struct pome_mlpackage_limits {
    size_t arena_bytes; /* of the unpacked model; 0: 1 GiB */
    uint32_t depth;     /* nesting of messages; 0: POME_COREML_DEPTH */
} pome_mlpackage_limits;

/* What a classifier's function predicts; "" if it is none. */
typedef struct pome_predicted_names {
    const char *label, *probabilities;
} pome_predicted_names;

typedef struct pome_mlpackage pome_mlpackage;
struct pome_mlpackage {
    pome_arena *arena;               /* owns everything but `spec` */
    pome_arena *spec_arena;
    const Pome__Spec__Model *spec;   /* an mlProgram; NULL once forgotten */
    const char *model_file;          /* path of the .mlmodel or model.mil */
    const char *model_dir;           /* what @model_path stands for; "" if the model came from memory */
    pome_model_info info;            /* complete but for weights_bytes */
    const pome_predicted_names *predicted; /* [info.n_functions] */
};

/* Opens the package or compiled model at `path`: its folder, or a file or folder inside (the model around it is taken,
 * with a log message), a folder with one of them in it, or a bare .mlmodel. limits may be NULL. Errors: IO (no such
 * path), FORMAT (damaged or a part is missing), UNSUPPORTED (another kind of model, a checkpoint: the text says what to
 * do), ARG (a folder of several models). */
pome_status pome_mlpackage_open(pome_mlpackage **out, const char *path, const pome_mlpackage_limits *limits,
                                pome_error *err);
/* The same for the bytes of a model file; weight files are looked for in model_dir ("" : there are none). */
pome_status pome_mlpackage_open_bytes(pome_mlpackage **out, pome_bytes model, const char *model_dir,
                                      const pome_mlpackage_limits *limits, pome_error *err);
/* The same for the bytes of a compiled model's files. */
struct pome_mlmodelc_parts;
pome_status pome_mlpackage_open_compiled(pome_mlpackage **out, const struct pome_mlmodelc_parts *parts,
                                         const char *model_dir, const pome_mlpackage_limits *limits, pome_error *err);
/* Frees the unpacked protobuf; the description stays. */
void pome_mlpackage_forget_spec(pome_mlpackage *package);
void pome_mlpackage_close(pome_mlpackage **package);

/* Maps the file that a program calls `file_name` ("@model_path/weights/weight.bin").
 * Errors: FORMAT if the name leaves the folder, the file is missing or is a Git LFS pointer; IO. */
pome_status pome_mlpackage_map(pome_mapping **out, const pome_mlpackage *package, const char *file_name,
                               pome_error *err);

/* Fills package->info and package->predicted from package->spec. */
pome_status pome_mlpackage_describe(pome_mlpackage *package, pome_error *err);

/* Finds the package or compiled model (root NULL: a bare model) and its .mlmodel or model.mil for a user's path. Strings
 * live in the arena. */
typedef struct pome_mlpackage_place {
    const char *root;
    const char *model_file;
    bool is_compiled;
} pome_mlpackage_place;
pome_status pome_mlpackage_locate(pome_mlpackage_place *out, const char *path, pome_arena *arena, pome_error *err);

/* UNSUPPORTED with one sentence on a model that is no ML Program: what it is and how to convert it. */
pome_status pome_mlpackage_refuse_kind(const pome_coreml_kind *kind, const char *path, pome_error *err);
/* What to do about a model of such a kind (a field number of Model), as the end of that sentence. */
const char *pome_mlpackage_way_out(uint32_t type);

#endif
