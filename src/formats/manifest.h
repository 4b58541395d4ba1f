/* Manifest.json of a package: its items and which of them is the model. */
#ifndef POME_FORMATS_MANIFEST_H
#define POME_FORMATS_MANIFEST_H

#include "base/arena.h"
#include "base/error.h"
#include "base/span.h"

typedef struct pome_manifest_item {
    const char *identifier;
    const char *path; /* relative to the package's Data folder; never leaves it */
    const char *name, *author; /* "" if not given */
} pome_manifest_item;

typedef struct pome_manifest {
    const pome_manifest_item *items; /* [n_items] */
    size_t n_items;
    const pome_manifest_item *root;  /* the model */
} pome_manifest;

/* Strings live in the arena. Errors: FORMAT; UNSUPPORTED for a manifest newer than version 1. */
pome_status pome_manifest_parse(pome_manifest *out, pome_bytes text, pome_arena *arena, pome_error *err);

/* True if a path from a file stays below the folder it is relative to: not empty, not absolute, no "..". */
bool pome_path_is_inside(const char *path);

#endif
