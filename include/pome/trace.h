/* One hook for what a run does when: predictions of a set's models, updates of caches beside them, and waits. */
#ifndef POME_TRACE_H
#define POME_TRACE_H

#include <stdint.h>

#include "pome/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pome_trace_event {
    const char *what;         /* "load", "predict", "update", "wait" */
    const char *name;         /* of the model */
    int64_t step;             /* tokens of the timeline then; -1: none */
    uint64_t begin_ns, end_ns; /* of one monotonic clock */
    int thread;               /* 0: the caller's, 1: the one in the background */
} pome_trace_event;

/* Called when a span has ended, from whichever thread did the work, several at once too. */
typedef void pome_trace_fn(void *arg, const pome_trace_event *event);

/* Process-wide; set it while nothing runs. NULL: nothing is measured. */
POME_API void pome_trace_set(pome_trace_fn *fn, void *arg);

#ifdef __cplusplus
}
#endif
#endif
