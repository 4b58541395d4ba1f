/* Compiling: from a package to the folder that Core ML runs, NAME.mlmodelc. */
#ifndef POME_COMPILE_H
#define POME_COMPILE_H

#include "pome/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How the weight files of the package get into the folder. */
typedef enum pome_compile_weights {
    POME_COMPILE_AUTO = 0, /* the first of the following that the file systems allow */
    POME_COMPILE_CLONE,    /* shared until one of the two changes (Btrfs, XFS) */
    POME_COMPILE_LINK,     /* one file with two names: a change to it is seen through both */
    POME_COMPILE_COPY
} pome_compile_weights;

typedef struct pome_compile_opts {
    size_t size;   /* sizeof(pome_compile_opts) */
    bool force;    /* replace what is at the output's path */
    pome_compile_weights weights;
} pome_compile_opts;

POME_API void pome_compile_opts_default(pome_compile_opts *opts);

/* What came of it. */
typedef struct pome_compile_report {
    uint32_t n_models, n_functions;
    uint32_t n_cloned, n_linked, n_copied; /* weight files and files carried over */
    uint64_t weights_bytes;                /* of the weight files */
    uint64_t text_bytes;                   /* of the programs */
} pome_compile_report;

/* `source` is a package (or a path in one, or a folder with one), and `out` ends in ".mlmodelc"; or it is a folder of
 * packages, and `out` the folder in which each gets its compiled model. Files beside Manifest.json, or beside the packages,
 * are carried over. Nothing is ever half-written under `out`. opts and report may be NULL.
 * Errors: ARG (out exists, or its name does not fit; source is compiled), FORMAT and UNSUPPORTED (the package), IO (files,
 * disk). */
POME_API POME_NODISCARD pome_status pome_compile(const char *source, const char *out, const pome_compile_opts *opts,
                                                 pome_compile_report *report, pome_error *err);

#ifdef __cplusplus
}
#endif
#endif
