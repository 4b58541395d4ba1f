/* Writing to the hook of pome/log.h. */
#ifndef POME_BASE_LOG_H
#define POME_BASE_LOG_H

#include "pome/log.h"

void pome_log(pome_log_level level, const char *fmt, ...) POME_PRINTF(2, 3);

#endif
