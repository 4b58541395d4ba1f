/* A trace in Chrome's format (chrome://tracing, Perfetto): what ran when, on which thread. */
#ifndef POME_CLI_TRACE_FILE_H
#define POME_CLI_TRACE_FILE_H

#include "command.h"

/* Begins to write what happens to `path`. At most one at a time. */
pome_status trace_file_open(const char *path, pome_error *err);
/* Ends it; nothing if none is open. Exit status. */
int trace_file_close(void);

#endif
