/* One hook for what is worth saying but is no failure. The default writes nothing. */
#ifndef POME_LOG_H
#define POME_LOG_H

#include "pome/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum pome_log_level { POME_LOG_DEBUG, POME_LOG_INFO, POME_LOG_WARN } pome_log_level;
typedef void pome_log_fn(void *arg, pome_log_level level, const char *message);

/* Process-wide; set it before other threads use the library. NULL: silence. */
POME_API void pome_log_set(pome_log_fn *fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
