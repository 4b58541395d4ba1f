/* After a conversion: does what was written run? */
#ifndef POME_CLI_CONVERT_CHECK_H
#define POME_CLI_CONVERT_CHECK_H

#include "command.h"

/* Opens the package and feeds it a few ids: the logits must be numbers. */
pome_status check_package(const char *path, const common_args *common, pome_error *err);
/* The same for a set, package after package: each gets what those before it gave, and zeros for the rest. */
pome_status check_set(const char *folder, uint32_t n_packages, int64_t n_vocab, const common_args *common,
                      pome_error *err);

#endif
