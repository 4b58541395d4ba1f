/* Helpers that several passes share. */
#include <string.h>

#include "passes/pass.h"

static void replace_in_block(pome_block *b, pome_value *from, pome_value *to)
{
    for (uint32_t i = 0; i < b->n_ops; i++) {
        pome_op *op = b->ops[i];
        for (uint32_t k = 0; k < op->n_in; k++)
            if (op->in[k] == from)
                op->in[k] = to;
        for (uint32_t k = 0; k < op->n_blocks; k++)
            replace_in_block(op->blocks[k], from, to);
    }
    for (uint32_t i = 0; i < b->n_outputs; i++)
        if (b->outputs[i] == from)
            b->outputs[i] = to;
}

void pome_replace_uses(pome_function *fn, pome_value *from, pome_value *to)
{
    replace_in_block(fn->body, from, to);
}

static void count_in_block(const pome_block *b, uint32_t *n_uses)
{
    for (uint32_t i = 0; i < b->n_ops; i++) {
        const pome_op *op = b->ops[i];
        for (uint32_t k = 0; k < op->n_in; k++)
            n_uses[op->in[k]->id]++;
        for (uint32_t k = 0; k < op->n_blocks; k++)
            count_in_block(op->blocks[k], n_uses);
    }
    for (uint32_t i = 0; i < b->n_outputs; i++)
        n_uses[b->outputs[i]->id]++;
}

uint32_t *pome_count_uses(const pome_function *fn, pome_arena *arena)
{
    uint32_t *n_uses = POME_NEW_ARRAY(arena, uint32_t, fn->n_values);
    if (n_uses)
        count_in_block(fn->body, n_uses);
    return n_uses;
}

pome_value *pome_value_create_ints(pome_function *fn, pome_arena *arena, pome_dtype dtype, int32_t rank,
                                   const int32_t *v, uint32_t n)
{
    size_t size = dtype == POME_DTYPE_BOOL ? 1 : 4;
    pome_const *k = POME_NEW(arena, pome_const);
    char *data = pome_arena_alloc_array(arena, n, size);
    if (!k || !data)
        return NULL;
    for (uint32_t i = 0; i < n; i++)
        if (size == 1)
            data[i] = (char)(v[i] != 0);
        else
            memcpy(data + 4 * i, &v[i], 4);
    int64_t shape[1] = {n};
    k->t = pome_tensor_borrow(data, dtype, rank, shape);
    k->size_bytes = n * size;
    return pome_value_create_const(fn, "", k);
}
