/* Where the threads of a pool may run: anywhere the process allows, but not on the processor of the thread that waits for
 * them. Linux was seen to leave a thread that was woken after a pause behind the caller, which computes, although another
 * processor was free: for 10 ms nothing was gained by the second thread (docs/performance.md has the measurement). */
#ifndef POME_BASE_PLACEMENT_H
#define POME_BASE_PLACEMENT_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

typedef struct pome_placement { /* of one thread; zeroed at first */
    cpu_set_t allowed, given;   /* what it may use; what of it was given last */
    bool is_known;
} pome_placement;

/* Lets `thread` run on all processors it may use but `cpu`; on all, if it may use no other. Which those are is asked
 * anew each time, so that what others set for the thread (taskset, cpusets) holds. Does nothing where it cannot. */
void pome_placement_avoid(pome_placement *placement, pthread_t thread, int cpu);

#endif
