/* The two helpers of status handling: POME_TRY forwards a failure, pome_fail makes one. */
#ifndef POME_BASE_ERROR_H
#define POME_BASE_ERROR_H

#include <stddef.h>

#include "pome/status.h"

#define POME_TRY(expr)                                                                             \
    do {                                                                                           \
        pome_status pome_try_status = (expr);                                                      \
        if (pome_try_status != POME_OK)                                                            \
            return pome_try_status;                                                                \
    } while (0)

/* Fills `err` (may be NULL) and returns `code`. The message is cut at its size, never overrun. */
pome_status pome_fail(pome_error *err, pome_status code, const char *fmt, ...) POME_PRINTF(3, 4);
pome_status pome_fail_at(pome_error *err, pome_status code, uint64_t offset, const char *fmt, ...)
    POME_PRINTF(4, 5);
/* Puts "text: " before the message already in err, as when a reader adds the file's name. Returns err's code. */
pome_status pome_fail_prefix(pome_error *err, pome_status code, const char *fmt, ...) POME_PRINTF(3, 4);
/* "out of memory (N bytes for WHAT)". */
pome_status pome_fail_nomem(pome_error *err, size_t size, const char *what);

#endif
