/* Writing to the hook of pome/trace.h. */
#ifndef POME_BASE_TRACE_H
#define POME_BASE_TRACE_H

#include "pome/trace.h"

uint64_t pome_trace_begin(void); /* the time; 0 when nobody listens */
void pome_trace_end(uint64_t begin_ns, const char *what, const char *name, int64_t step, int thread);

#endif
