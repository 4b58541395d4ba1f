/* `pome inspect` of what is no package yet: checkpoints. */
#ifndef POME_CLI_INSPECT_SOURCE_H
#define POME_CLI_INSPECT_SOURCE_H

#include "command.h"

/* Prints what is in the checkpoint, with a list of its tensors if asked for. Gives the exit status. */
int inspect_source(const char *path, const common_args *common, bool lists_tensors);

#endif
