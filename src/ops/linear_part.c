#include "ops/linear_part.h"

size_t pome_linear_n_rows(const pome_tensor *x)
{
    size_t m = 1;
    for (int32_t d = 0; d + 1 < x->rank; d++)
        m *= (size_t)x->shape[d];
    return m;
}

static const pome_encoded *encoded_of(const pome_run *r, uint32_t input)
{
    const pome_const *k = r->op->in[input]->konst;
    return k && !k->t.data ? k->encoded : NULL;
}

pome_status pome_linear_part_init(pome_linear_part *p, const pome_run *r, const pome_tensor *x, uint32_t weight,
                                  int64_t bias, pome_error *err)
{
    const pome_tensor *w = r->in[weight], *b = bias < 0 ? NULL : r->in[bias];
    if (w->rank != 2 || x->rank < 1 || x->shape[x->rank - 1] != w->shape[1])
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "x and weight do not fit");
    if (b && pome_tensor_count(b) != w->shape[0])
        return pome_op_fail(r->op, err, POME_ERR_FORMAT, "bias has %lld elements, weight %lld rows",
                            (long long)pome_tensor_count(b), (long long)w->shape[0]);
    *p = (pome_linear_part){.kernels = r->kernels, .n = (size_t)w->shape[0], .k = (size_t)w->shape[1], .bias = b};
    p->bias_encoded = b ? encoded_of(r, (uint32_t)bias) : NULL;
    p->is_coded = pome_coded_init(&p->coded, r, encoded_of(r, weight), 0, p->n, p->k) ||
                  (r->op->in[weight]->konst && pome_coded_init_dense(&p->coded, r, w->dtype, w->data, p->n, p->k));
    if (!p->is_coded)
        pome_rows_init(&p->rows, w->dtype, w->data, encoded_of(r, weight), p->k);
    return POME_OK;
}

size_t pome_linear_part_scratch(const pome_linear_part *p, size_t m)
{
    return p->is_coded ? pome_coded_thread_bytes(&p->coded, m) : pome_rows_scratch() * sizeof(float);
}

void pome_linear_part_times(const pome_linear_part *p, const float *x, const void *q8, size_t m, size_t first, size_t n,
                            float *y, size_t ldy, void *thread_scratch)
{
    float bias[POME_ROWS_TILE];
    if (p->is_coded)
        pome_coded_times(&p->coded, q8, m, first, n, y, ldy, thread_scratch);
    else
        pome_rows_times(&p->rows, p->kernels, first, n, x, p->k, m, y, ldy, (float *)thread_scratch);
    for (size_t j = 0; p->bias && j < n; j += POME_ROWS_TILE) {
        size_t len = n - j < POME_ROWS_TILE ? n - j : POME_ROWS_TILE;
        pome_vector_piece(p->bias, p->bias_encoded, p->kernels, first + j, len, bias);
        for (size_t i = 0; i < m; i++)
            for (size_t c = 0; c < len; c++)
                y[i * ldy + j + c] += bias[c];
    }
}

/* Enough work for a hand-out, few enough to share out. Multiples of 4, the kernels' tile. */
size_t pome_linear_part_grain(const pome_linear_part *p, size_t m)
{
    if (p->is_coded)
        return pome_coded_grain(&p->coded, m);
    size_t rows = m > 4 ? POME_ROWS_TILE : 32768 / (p->k + 1) / 4 * 4;
    return rows < 4 ? 4 : rows > 64 ? 64 : rows;
}
