/* Palettes: a table of 2^bits halves for a group of rows, and for each element the index of an entry. Weights are halves
 * before anything else, so a group is described whole by how often each of the 65,536 patterns occurs, and tables are made
 * from that count: in memory that does not depend on the size of the group. */
#ifndef POME_CONVERT_PALETTE_H
#define POME_CONVERT_PALETTE_H

#include "pome/convert.h"

enum { POME_PALETTE_PATTERNS = 65536, POME_PALETTE_BITS_MAX = 8 };

typedef struct pome_palette_maker {
    uint32_t *count;    /* [65536] by half; no infinities, no NaN */
    uint8_t *index_of;  /* [65536] after making: entry of each half that occurs */
    uint16_t *table;    /* [256] after making */
    void *work;
} pome_palette_maker;

pome_status pome_palette_maker_init(pome_palette_maker *m, pome_error *err);
void pome_palette_maker_free(pome_palette_maker *m); /* accepts a zeroed one */
void pome_palette_clear(pome_palette_maker *m);
void pome_palette_count(pome_palette_maker *m, const uint16_t *halves, size_t n);
/* m's count += from's */
void pome_palette_merge(pome_palette_maker *m, const pome_palette_maker *from);

/* Table and indices of what was counted.
 * UNIFORM: the table and indices of coremltools' uniform mode: entry i = half(i * step + min), step = half(half(max - min) /
 * top), index = round_half_even(half(half(half(w - min) / half(max - min)) * top)), top = 2^bits - 1.
 * KMEANS: entries of least squared error: the optimum over up to 2,048 bins by dynamic programming, then Lloyd's iteration
 * over all values. If there are no more different values than entries, these are the values, and unused entries 0. */
void pome_palette_make(pome_palette_maker *m, uint32_t bits, pome_palette_mode mode);
void pome_palette_indices(const pome_palette_maker *m, uint8_t *out, const uint16_t *halves, size_t n);

#endif
