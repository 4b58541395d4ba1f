/* Getting a file's contents to a second place, with as little writing as the file systems allow. */
#ifndef POME_BASE_PLACE_FILE_H
#define POME_BASE_PLACE_FILE_H

#include "pome/status.h"

typedef enum pome_placing {
    POME_PLACE_ANY,   /* the first of the following that works */
    POME_PLACE_CLONE, /* blocks shared until one side changes */
    POME_PLACE_LINK,  /* a second name of the same file; symbolic links are followed */
    POME_PLACE_COPY
} pome_placing;

/* Makes `to`, which must not exist, of the regular file `from`. *done (may be NULL): which way it went; never ANY.
 * Errors: IO; nothing is left at `to`. */
pome_status pome_file_place(const char *to, const char *from, pome_placing how, pome_placing *done, pome_error *err);

#endif
