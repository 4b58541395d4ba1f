/* Sizes that an axis of an input may take. */
#ifndef POME_LLM_LENGTHS_H
#define POME_LLM_LENGTHS_H

#include "pome/model.h"

#define POME_LENGTHS_MAX 128 /* Core ML allows as many enumerated shapes */

/* Listed ones (ascending), or all of [min, max]. */
typedef struct pome_lengths {
    int64_t min, max; /* max -1: unbounded */
    int n_listed;     /* 0: ranged */
    int64_t listed[POME_LENGTHS_MAX];
} pome_lengths;

/* The sizes axis `axis` of a feature may take; false if there are more than POME_LENGTHS_MAX. */
bool pome_lengths_of(const pome_feature *feature, int axis, pome_lengths *out);
bool pome_lengths_admit(const pome_lengths *lengths, int64_t n);
/* The smallest admissible size of at least n, or -1. */
int64_t pome_lengths_round_up(const pome_lengths *lengths, int64_t n);
/* The largest admissible size of at most n, or -1. */
int64_t pome_lengths_round_down(const pome_lengths *lengths, int64_t n);

#endif
