/* What a row of an attention mask lets through, found once per row however many heads share it. */
#ifndef POME_OPS_ATTENTION_MASK_H
#define POME_OPS_ATTENTION_MASK_H

#include "base/pool.h"
#include "kernels/kernels.h"
#include "pome/tensor.h"

/* A key whose mask is at or below this is left out of a row that has another key above it: next to any score that
 * fp16 can hold its weight is 0. Graphs write the lowest half, -65504, or -infinity. */
#define POME_MASK_CLOSED (-30000.0f)

typedef struct pome_mask_row {
    size_t begin, end;   /* keys outside are left out; empty: the row attends to nothing */
    bool is_plain;       /* inside, the mask adds 0 everywhere */
    bool is_kept;        /* no key is above POME_MASK_CLOSED but some are finite: nothing is left out */
} pome_mask_row;

/* Rows of `mask`: the product of all axes but the last. */
size_t pome_mask_n_rows(const pome_tensor *mask);
/* rows[pome_mask_n_rows()] for `keys` keys; the mask's last axis has that length or 1. */
void pome_mask_scan(const pome_tensor *mask, size_t keys, pome_mask_row *rows, pome_pool *pool);
/* What is added to the scores of keys [first, first + n) of the row that begins at element `offset`: -infinity where
 * the key is left out. */
void pome_mask_load(const pome_tensor *mask, int64_t offset, const pome_mask_row *row, size_t first, size_t n,
                    const pome_kernels *kernels, float *dst);

#endif
