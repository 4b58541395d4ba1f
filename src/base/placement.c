#include "base/placement.h"

void pome_placement_avoid(pome_placement *p, pthread_t thread, int cpu)
{
    cpu_set_t now, wanted;
    if (cpu < 0 || cpu >= CPU_SETSIZE || pthread_getaffinity_np(thread, sizeof now, &now) != 0)
        return;
    if (!p->is_known || !CPU_EQUAL(&now, &p->given)) /* the first time, or somebody else has set it */
        p->allowed = now;
    wanted = p->allowed;
    CPU_CLR(cpu, &wanted);
    if (CPU_COUNT(&wanted) == 0)
        wanted = p->allowed;
    if (!CPU_EQUAL(&wanted, &now) && pthread_setaffinity_np(thread, sizeof wanted, &wanted) != 0)
        return;
    p->given = wanted;
    p->is_known = true;
}
