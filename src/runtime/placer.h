/* Places buffers of known lifetime in one range of memory: first fit over a sorted list of free pieces. Works on
 * offsets alone, so that a placement can be tried before the memory exists. */
#ifndef POME_RUNTIME_PLACER_H
#define POME_RUNTIME_PLACER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct pome_piece {
    size_t offset, size;
} pome_piece;

typedef struct pome_placer {
    pome_piece *free_list; /* [n_room] sorted by offset, never touching each other */
    size_t n_free, n_room;
    size_t end;            /* everything beyond is free */
    size_t peak;           /* largest end so far */
} pome_placer;

enum { POME_PLACER_ALIGN = 64 };

/* `room` free pieces are enough for room - 1 buffers alive at once. */
void pome_placer_reset(pome_placer *p, pome_piece *room, size_t n_room);
/* size 0 is placed as one unit, so that offsets stay distinct. */
size_t pome_placer_take(pome_placer *p, size_t size);
void pome_placer_give(pome_placer *p, size_t offset, size_t size);

#endif
