/* Sets of packages: which there are, and the folder they are written to. */
#ifndef POME_CONVERT_CHUNKS_H
#define POME_CONVERT_CHUNKS_H

#include "convert/journal.h"
#include "convert/part.h"

/* Gives the parts of a set of n groups of layers their roles, layers and names, which begin with the last name of `out`:
 * embedding, groups as equal as possible, head; with a window the two processors. */
pome_status pome_chunks_list(pome_convert_part *parts, int64_t n, const char *out, pome_arena *arena, pome_error *err);
/* Opens the set's work folder and its journal, in which whole packages are counted. What is in the folder stays only if
 * it was made with the same fingerprint and opts->resume. */
pome_status pome_chunks_open(pome_mlpackage_writer *set, pome_journal *journal, const char *out, uint64_t needed_bytes,
                             uint64_t fingerprint, uint32_t n_parts, const pome_convert_opts *opts, pome_arena *arena,
                             pome_error *err);

#endif
