/* Files: mapped for reading, or read whole when small. */
#ifndef POME_BASE_FILE_H
#define POME_BASE_FILE_H

#include <stdbool.h>

#include "base/span.h"
#include "pome/status.h"

/* A read-only mapping of a whole file; reference-counted (thread-safe). An empty file maps to len 0. */
typedef struct pome_mapping pome_mapping;

pome_status pome_mapping_open(pome_mapping **out, const char *path, pome_error *err);
pome_mapping *pome_mapping_share(pome_mapping *mapping);
void pome_mapping_release(pome_mapping **mapping);
pome_bytes pome_mapping_bytes(const pome_mapping *mapping); /* valid until the last release */
const char *pome_mapping_path(const pome_mapping *mapping);

/* Reads a file of at most max_bytes into malloc'ed, NUL-terminated memory. LIMIT if it is larger. */
pome_status pome_file_read(const char *path, size_t max_bytes, char **data, size_t *len, pome_error *err);
/* Writes beside `path` and renames, so that the file is whole or not there. */
pome_status pome_file_write(const char *path, const void *data, size_t len, pome_error *err);
bool pome_path_exists(const char *path);
bool pome_path_is_dir(const char *path);
/* Joins with one slash into malloc'ed memory; NULL when memory is short. An absolute b is returned as is. */
char *pome_path_join(const char *a, const char *b);
/* True if the first bytes are those of a Git LFS pointer file (the real data was never downloaded). */
bool pome_bytes_is_lfs_pointer(pome_bytes b);

#endif
