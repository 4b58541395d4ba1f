#include "base/trace.h"

#include <stddef.h>
#include <time.h>

static pome_trace_fn *listener;
static void *listener_arg;

void pome_trace_set(pome_trace_fn *fn, void *arg)
{
    listener = fn;
    listener_arg = arg;
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t pome_trace_begin(void)
{
    return listener ? now_ns() : 0;
}

void pome_trace_end(uint64_t begin_ns, const char *what, const char *name, int64_t step, int thread)
{
    if (!listener || begin_ns == 0)
        return;
    pome_trace_event event = {what, name, step, begin_ns, now_ns(), thread};
    listener(listener_arg, &event);
}
