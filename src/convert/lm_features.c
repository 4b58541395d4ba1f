#include "convert/lm_features.h"

/* Appends to an array that has room for the next power of two. */
static bool append(pome_lm_graph *b, const pome_feature **list, uint32_t *n, const pome_feature *f)
{
    pome_feature *items = (pome_feature *)(uintptr_t)*list;
    if ((*n & (*n - 1)) == 0) {
        items = POME_NEW_ARRAY(b->program->arena, pome_feature, *n ? (size_t)*n * 2 : 1);
        if (!items)
            return false;
        if (*n)
            memcpy(items, *list, *n * sizeof *items);
        *list = items;
    }
    items[(*n)++] = *f;
    return true;
}

static const char *kept(pome_lm_graph *b, const char *name)
{
    return pome_arena_strndup(b->program->arena, name, strlen(name));
}

pome_value *pome_lm_input(pome_lm_graph *b, const char *name, pome_dtype dtype, int32_t rank,
                          const pome_axis_range *range)
{
    pome_feature f = {.name = kept(b, name), .dtype = dtype, .rank = rank};
    int64_t dim[POME_MAX_RANK];
    for (int32_t i = 0; i < rank; i++) {
        f.range[i] = range[i];
        f.shape[i] = range[i].min;
        f.is_ranged = f.is_ranged || range[i].min != range[i].max;
        dim[i] = range[i].min == range[i].max ? range[i].min : -1;
    }
    if (!f.name || !append(b, &b->io.inputs, &b->io.n_inputs, &f)) {
        b->g.failed = true;
        return NULL;
    }
    return pome_graph_input(&b->g, f.name, POME_TYPE_TENSOR, dtype, rank, dim);
}

pome_value *pome_lm_state(pome_lm_graph *b, const char *name, int32_t rank, const int64_t *shape)
{
    pome_feature f = {.name = kept(b, name), .dtype = POME_DTYPE_F16, .rank = rank};
    memcpy(f.shape, shape, (size_t)rank * sizeof *shape);
    if (!f.name || !append(b, &b->io.states, &b->io.n_states, &f)) {
        b->g.failed = true;
        return NULL;
    }
    return pome_graph_input(&b->g, f.name, POME_TYPE_STATE, POME_DTYPE_F16, rank, shape);
}

void pome_lm_output(pome_lm_graph *b, pome_value *value, const char *name, pome_dtype dtype, int32_t rank,
                    const int64_t *shape)
{
    pome_feature f = {.name = kept(b, name), .dtype = dtype, .rank = rank};
    if (rank > 0)
        memcpy(f.shape, shape, (size_t)rank * sizeof *shape);
    if (!f.name || !append(b, &b->io.outputs, &b->io.n_outputs, &f)) {
        b->g.failed = true;
        return;
    }
    pome_graph_rename(&b->g, value, f.name);
    pome_graph_output(&b->g, value);
}

void pome_lm_output_first(pome_lm_graph *b)
{
    pome_block *body = b->g.failed ? NULL : b->g.fn->body;
    if (!body || body->n_outputs != b->io.n_outputs || body->n_outputs < 2)
        return;
    uint32_t n = body->n_outputs - 1;
    pome_feature *f = (pome_feature *)(uintptr_t)b->io.outputs, last = f[n];
    pome_value *value = body->outputs[n];
    memmove(f + 1, f, n * sizeof *f);
    memmove(body->outputs + 1, body->outputs, n * sizeof *body->outputs);
    f[0] = last;
    body->outputs[0] = value;
}
