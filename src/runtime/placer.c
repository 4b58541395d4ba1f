#include "runtime/placer.h"

#include <assert.h>
#include <string.h>

static size_t rounded(size_t size)
{
    return size ? (size + POME_PLACER_ALIGN - 1) / POME_PLACER_ALIGN * POME_PLACER_ALIGN : POME_PLACER_ALIGN;
}

void pome_placer_reset(pome_placer *p, pome_piece *room, size_t n_room)
{
    *p = (pome_placer){.free_list = room, .n_room = n_room};
}

static void remove_piece(pome_placer *p, size_t i)
{
    memmove(p->free_list + i, p->free_list + i + 1, (p->n_free - i - 1) * sizeof *p->free_list);
    p->n_free--;
}

size_t pome_placer_take(pome_placer *p, size_t size)
{
    size = rounded(size);
    for (size_t i = 0; i < p->n_free; i++) {
        pome_piece *f = &p->free_list[i];
        if (f->size < size)
            continue;
        size_t offset = f->offset;
        f->offset += size;
        f->size -= size;
        if (f->size == 0)
            remove_piece(p, i);
        return offset;
    }
    size_t offset = p->end;
    p->end += size;
    if (p->end > p->peak)
        p->peak = p->end;
    return offset;
}

void pome_placer_give(pome_placer *p, size_t offset, size_t size)
{
    size = rounded(size);
    size_t i = 0;
    while (i < p->n_free && p->free_list[i].offset < offset)
        i++;
    if (i > 0 && p->free_list[i - 1].offset + p->free_list[i - 1].size == offset) {
        i--;
        p->free_list[i].size += size;
    } else {
        assert(p->n_free < p->n_room);
        memmove(p->free_list + i + 1, p->free_list + i, (p->n_free - i) * sizeof *p->free_list);
        p->free_list[i] = (pome_piece){offset, size};
        p->n_free++;
    }
    pome_piece *f = &p->free_list[i];
    if (i + 1 < p->n_free && f->offset + f->size == p->free_list[i + 1].offset) {
        f->size += p->free_list[i + 1].size;
        remove_piece(p, i + 1);
    }
    if (i + 1 == p->n_free && f->offset + f->size == p->end) { /* the last piece melts into what lies beyond */
        p->end = f->offset;
        p->n_free--;
    }
}
