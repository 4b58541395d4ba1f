#include "ops/elementwise.h"

enum { GRAIN = 16384 }; /* additions a chunk should hold: some 10 microseconds */

typedef struct loop {
    pome_row_fn *fn;
    const void *param;
    uint32_t n_in;
    int32_t rank;
    int64_t size[POME_MAX_RANK];
    int64_t stride[POME_ELEMENTWISE_MAX_IN][POME_MAX_RANK]; /* elements */
    const char *in[POME_ELEMENTWISE_MAX_IN];
    size_t width[POME_ELEMENTWISE_MAX_IN]; /* bytes of an element */
    char *out;
    size_t out_width;
} loop;

/* Appends output axis `axis` to the loop, or merges it into the last axis if all operands run through both in one
 * stride. */
static bool add_axis(loop *l, const pome_tensor *out, int32_t axis, const pome_tensor *const *in)
{
    int64_t size = out->shape[axis], stride[POME_ELEMENTWISE_MAX_IN];
    bool mergeable = l->rank > 0;
    for (uint32_t k = 0; k < l->n_in; k++) {
        int32_t own = axis - (out->rank - in[k]->rank);
        int64_t n = own < 0 ? 1 : in[k]->shape[own];
        if (n != size && n != 1)
            return false;
        stride[k] = n == 1 ? 0 : in[k]->stride[own];
        mergeable = mergeable && l->stride[k][l->rank - 1] == stride[k] * size;
    }
    if (size == 1)
        return true;
    if (!mergeable) {
        l->size[l->rank++] = 1;
    }
    l->size[l->rank - 1] *= size;
    for (uint32_t k = 0; k < l->n_in; k++)
        l->stride[k][l->rank - 1] = stride[k];
    return true;
}

static void run_chunk(void *arg, size_t begin, size_t end, int thread)
{
    const loop *l = arg;
    (void)thread;
    int64_t index[POME_MAX_RANK];
    int64_t rest = (int64_t)begin;
    for (int32_t d = l->rank - 1; d >= 0; d--) {
        index[d] = rest % l->size[d];
        rest /= l->size[d];
    }
    int32_t last = l->rank - 1;
    ptrdiff_t row_stride[POME_ELEMENTWISE_MAX_IN] = {0};
    for (uint32_t k = 0; k < l->n_in; k++)
        row_stride[k] = (ptrdiff_t)l->stride[k][last];
    for (size_t at = begin; at < end;) {
        size_t n = (size_t)(l->size[last] - index[last]);
        if (n > end - at)
            n = end - at;
        const void *in[POME_ELEMENTWISE_MAX_IN] = {0};
        for (uint32_t k = 0; k < l->n_in; k++) {
            int64_t offset = 0;
            for (int32_t d = 0; d <= last; d++)
                offset += index[d] * l->stride[k][d];
            in[k] = l->in[k] + offset * (int64_t)l->width[k];
        }
        l->fn(l->out + at * l->out_width, in, row_stride, n, l->param);
        at += n;
        index[last] = 0;
        for (int32_t d = last - 1; d >= 0 && ++index[d] == l->size[d]; d--)
            index[d] = 0;
    }
}

pome_status pome_elementwise_run(const pome_run *r, pome_row_fn *fn, const pome_tensor *const *in, uint32_t n_in,
                                 const void *param, size_t cost, pome_error *err)
{
    pome_tensor *out = &r->out[0];
    loop l = {.fn = fn, .param = param, .n_in = n_in, .out = out->data};
    l.out_width = pome_dtype_bits(out->dtype) / 8;
    for (uint32_t k = 0; k < n_in; k++) {
        l.in[k] = in[k]->data;
        l.width[k] = pome_dtype_bits(in[k]->dtype) / 8;
        if (in[k]->rank > out->rank)
            return pome_op_fail(r->op, err, POME_ERR_ARG, "an operand has rank %d, the result only %d",
                                (int)in[k]->rank, (int)out->rank);
    }
    for (int32_t axis = 0; axis < out->rank; axis++)
        if (!add_axis(&l, out, axis, in))
            return pome_op_fail(r->op, err, POME_ERR_ARG, "an operand does not broadcast to the result at axis %d",
                                (int)axis);
    int64_t n = pome_tensor_count(out);
    if (n == 0)
        return POME_OK;
    if (l.rank == 0)
        l.size[l.rank++] = 1;
    size_t grain = GRAIN / (cost ? cost : 1);
    pome_pool_run(r->pool, (size_t)n, grain ? grain : 1, run_chunk, &l);
    return POME_OK;
}
