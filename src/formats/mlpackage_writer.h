/* Writing a Core ML package or compiled model. It is made in a folder beside the final one and renamed when it is complete, so that
 * nothing half-written is ever under the final name. Equal contents give equal bytes: nothing random, no dates. */
#ifndef POME_FORMATS_MLPACKAGE_WRITER_H
#define POME_FORMATS_MLPACKAGE_WRITER_H

#include <stdbool.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/span.h"

typedef struct pome_mlpackage_writer {
    pome_arena *arena;        /* borrowed; strings live in it */
    const char *final_path;   /* "NAME.mlpackage" */
    const char *work_path;    /* "NAME.mlpackage.partial" */
    const char *weights_path; /* of the weight file, in the work folder */
    const char *journal_path; /* of a file in it that the maker may keep while the package is made; empty at first */
    int lock_fd;              /* of the work folder, locked against other conversions to the same place; -1: none */
    bool replaces;            /* what is at the final path */
} pome_mlpackage_writer;

/* What programs call the weight file. */
extern const char *const pome_mlpackage_weights_name;
extern const char *const pome_mlpackage_journal_name;
/* A file of this name with no bytes or these many is what tells a work folder from somebody else's. */
enum { POME_MLPACKAGE_JOURNAL_BYTES = 24 };

/* Makes the folders; the one that `path` is in must be there. An existing final path is an error unless `force` (it is
 * replaced at the end), and always if it is a folder that holds something else than a package (or a set of them). Work
 * left over from an earlier call is removed, all but the weight file and the journal if
 * `resume`; what has its name, but no journal, is an error. The work folder is locked until pome_mlpackage_writer_close.
 * needed_bytes: checked against the free space.
 * Errors: ARG (it exists; something is in the way of the work folder), IO (also: another process works there). */
pome_status pome_mlpackage_writer_open(pome_mlpackage_writer *out, const char *path, uint64_t needed_bytes, bool force,
                                       bool resume, pome_arena *arena, pome_error *err);
/* The same for a folder of packages: work_path is an empty folder, or what is left of earlier work; weights_path is
 * NULL. */
pome_status pome_mlpackage_writer_open_folder(pome_mlpackage_writer *out, const char *path, uint64_t needed_bytes,
                                              bool force, bool resume, pome_arena *arena, pome_error *err);
/* The same for a compiled model, or with is_set a folder of them: work_path is an empty folder; what is left of earlier
 * work is removed. */
pome_status pome_mlpackage_writer_open_compiled(pome_mlpackage_writer *out, const char *path, bool is_set, bool force,
                                                pome_arena *arena, pome_error *err);
/* The model file and Manifest.json. The identifiers in the manifest follow from the items' names. */
pome_status pome_mlpackage_writer_finish_model(const pome_mlpackage_writer *w, pome_bytes model, bool has_weights,
                                               pome_error *err);
/* A file beside Manifest.json. `name` has no slash. */
pome_status pome_mlpackage_writer_add_file(const pome_mlpackage_writer *w, const char *name, pome_bytes contents,
                                           pome_error *err);
/* Gives the work folder its final name and removes the journal. */
pome_status pome_mlpackage_writer_commit(const pome_mlpackage_writer *w, pome_error *err);
/* Removes the work folder. */
void pome_mlpackage_writer_discard(const pome_mlpackage_writer *w);
/* Gives the lock back; after a commit, a discard or a failure. */
void pome_mlpackage_writer_close(pome_mlpackage_writer *w);

#endif
