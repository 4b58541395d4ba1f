#include "base/stop.h"

#include <stddef.h>

void pome_stop_init(pome_stop *stop)
{
    atomic_init(&stop->is_asked, false);
    pome_stop_set_poll(stop, NULL, NULL);
}

void pome_stop_ask(pome_stop *stop)
{
    atomic_store(&stop->is_asked, true);
}

void pome_stop_forget(pome_stop *stop)
{
    atomic_store(&stop->is_asked, false);
}

void pome_stop_set_poll(pome_stop *stop, pome_poll *poll, void *arg)
{
    stop->poll = poll;
    stop->poll_arg = arg;
}

bool pome_stop_take(pome_stop *stop)
{
    if (!stop)
        return false;
    if (atomic_load_explicit(&stop->is_asked, memory_order_relaxed) && atomic_exchange(&stop->is_asked, false))
        return true;
    return stop->poll && stop->poll(stop->poll_arg);
}
