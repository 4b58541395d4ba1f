/* A wish that what runs should stop: asked from any thread or a signal handler, noticed between two steps by the thread that
 * runs. Whoever runs for the same caller shares one. */
#ifndef POME_BASE_STOP_H
#define POME_BASE_STOP_H

#include <stdatomic.h>

#include "pome/status.h"

typedef struct pome_stop {
    atomic_bool is_asked;
    pome_poll *poll; /* NULL: nobody is asked */
    void *poll_arg;
} pome_stop;

void pome_stop_init(pome_stop *stop);
void pome_stop_ask(pome_stop *stop); /* async-signal-safe */
void pome_stop_set_poll(pome_stop *stop, pome_poll *poll, void *arg); /* while nothing runs */
void pome_stop_forget(pome_stop *stop); /* a wish that nobody noticed; polls are not asked */
/* True once for each wish. NULL: never. */
bool pome_stop_take(pome_stop *stop);

#endif
