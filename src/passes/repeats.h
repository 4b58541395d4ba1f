/* Heads of keys and values that a graph repeats for groups of query heads. */
#ifndef POME_PASSES_REPEATS_H
#define POME_PASSES_REPEATS_H

#include "passes/match.h"

/* v [B, K * repeat, m, n] is x with each head (axis 1) repeated: x, of rank 4 with axes B, K, m, n, or with the last two
 * swapped. NULL, *repeat 1: v is no repeat, or it could not be shown; sizes must be known. */
pome_value *pome_unrepeat_heads(pome_value *v, int64_t *repeat, bool *swapped);

#endif
