#include "llm/contract_function.h"

static bool is_zero(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

/* True if everything at `index` of `axis` is zero. */
static bool is_slice_zero(const pome_tensor *t, int32_t axis, int64_t index)
{
    size_t n_outer = 1, inner_bytes = pome_dtype_bits(t->dtype) / 8;
    for (int32_t i = 0; i < axis; i++)
        n_outer *= (size_t)t->shape[i];
    for (int32_t i = axis + 1; i < t->rank; i++)
        inner_bytes *= (size_t)t->shape[i];
    for (size_t outer = 0; outer < n_outer; outer++) {
        size_t at = (outer * (size_t)t->shape[axis] + (size_t)index) * inner_bytes;
        if (!is_zero((const uint8_t *)t->data + at, inner_bytes))
            return false;
    }
    return true;
}

/* Both layouts have the same interface and differ only inside the graph, so the cache is looked at after its
 * first pass: one addressed by position has an axis that is written at its start and still zero at its end. A
 * right-aligned one is the other way round; whatever is neither is treated alike and fed again from the start. The
 * length of that axis tells how many rows there are: a cache shorter than the context can only be a ring. */
pome_cache_layout pome_cache_detect(const pome_tensor *t, int64_t n_pass, int64_t context, int64_t *n_rows)
{
    int64_t n = 0;
    for (int32_t axis = 0; axis < t->rank && pome_tensor_is_contiguous(t); axis++)
        if (t->shape[axis] > n_pass && t->shape[axis] > n && !is_slice_zero(t, axis, 0) &&
            is_slice_zero(t, axis, t->shape[axis] - 1))
            n = t->shape[axis];
    if (n == 0)
        return n_pass < context ? POME_CACHE_MOVING : POME_CACHE_UNKNOWN;
    *n_rows = n;
    return POME_CACHE_BY_POSITION;
}

int64_t pome_rows_kept(const pome_runner *runner, int64_t n_cached, int64_t n_keep)
{
    (void)runner;
    return n_keep < n_cached ? n_keep : n_cached;
}

void pome_rows_rewind(pome_runner *runner, int64_t n_keep)
{
    (void)runner;
    (void)n_keep;
}

bool pome_rows_can_undo(const pome_runner *runner, pome_pass pass, int64_t n_keep)
{
    (void)runner;
    (void)pass;
    (void)n_keep;
    return true;
}
