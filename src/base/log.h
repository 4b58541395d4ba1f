/* One hook for what is worth saying but is no failure. The default writes nothing. */
#ifndef POME_BASE_LOG_H
#define POME_BASE_LOG_H

#include "pome/status.h"

typedef enum pome_log_level { POME_LOG_DEBUG, POME_LOG_INFO, POME_LOG_WARN } pome_log_level;
typedef void pome_log_fn(void *arg, pome_log_level level, const char *message);

void pome_log_set(pome_log_fn *fn, void *arg); /* process-wide; set before other threads start */
void pome_log(pome_log_level level, const char *fmt, ...) POME_PRINTF(2, 3);

#endif
