/* Scaled dot product attention, also over heads that share keys and values. */
#ifndef POME_OPS_ATTENTION_H
#define POME_OPS_ATTENTION_H

#include "base/pool.h"
#include "kernels/kernels.h"
#include "pome/tensor.h"

/* out = softmax(query key^T / sqrt(E) + mask) value. Batch axes come first; the last of them is the head.
 * Any strides; query is fp32 or fp16, so are key, value; mask is bool (true attends), fp16 or fp32. */
typedef struct pome_attention {
    const pome_tensor *query; /* [B.., L, E] */
    const pome_tensor *key;   /* [B.., S, E]; the last batch axis is that of query divided by `groups` */
    const pome_tensor *value; /* [B.., S, EV] */
    const pome_tensor *mask;  /* NULL, or broadcast to [B.., L, S] */
    float *out;               /* [B.., L, EV] contiguous, or with rows_first [.., L, heads, EV] */
    bool rows_first;          /* heads inside of rows: what a transpose of the last batch axis and L gives */
    float scale;              /* of the products, in place of 1 / sqrt(E); 0: that */
    int64_t groups;           /* query heads that share one key and value head, at least 1 */
    bool masked_row_nan;      /* a row that attends to nothing: NaN, else zeros */
} pome_attention;

/* Bytes of scratch for pome_attention_run on a pool of n_threads. */
size_t pome_attention_scratch(const pome_attention *a, int n_threads);
/* A query row's result depends on nothing but that row: not on the others, nor on threads. Shapes must fit. */
void pome_attention_run(const pome_attention *a, const pome_kernels *kernels, pome_pool *pool, void *scratch);

#endif
