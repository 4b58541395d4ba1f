#include "runtime/state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"

pome_status pome_state_create(pome_state **out, const pome_model *model, const char *function, pome_error *err)
{
    int at = pome_model_find_function(model, function);
    if (at < 0)
        return pome_fail(err, POME_ERR_ARG, "the model has no function %s", function);
    const pome_function_info *f = &model->info.functions[at];
    size_t size = sizeof(pome_state) + f->n_states * sizeof(pome_tensor);
    pome_state *s = calloc(1, size);
    if (!s)
        return pome_fail_nomem(err, size, "state");
    s->features = f->states;
    for (uint32_t i = 0; i < f->n_states; i++) {
        pome_status st = pome_tensor_init(&s->t[i], f->states[i].dtype, f->states[i].rank, f->states[i].shape, err);
        if (st != POME_OK) {
            pome_state_destroy(&s);
            return st;
        }
        s->n++;
    }
    *out = s;
    return POME_OK;
}

void pome_state_destroy(pome_state **state)
{
    if (!state || !*state)
        return;
    for (uint32_t i = 0; i < (*state)->n; i++)
        pome_tensor_reset(&(*state)->t[i]);
    free(*state);
    *state = NULL;
}

/* Zeroes memory that a tensor owns. Whole pages of a large one are given back to the system instead, which hands out
 * zeroed ones when they are touched again (madvise(2): private anonymous memory). */
static void clear(char *p, size_t size)
{
    enum { LARGE = 1 << 20 };
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t lead = size < LARGE ? size : (page - (uintptr_t)p % page) % page, body = (size - lead) / page * page;
    if (body && madvise(p + lead, body, MADV_DONTNEED) != 0)
        memset(p + lead, 0, body);
    memset(p, 0, lead);
    memset(p + lead + body, 0, size - lead - body);
}

void pome_state_clear(pome_state *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        clear(s->t[i].data, pome_tensor_size_bytes(&s->t[i]));
}

pome_tensor *pome_state_tensor(pome_state *s, uint32_t index)
{
    return index < s->n ? &s->t[index] : NULL;
}

pome_tensor *pome_state_find(pome_state *s, const char *name)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (strcmp(s->features[i].name, name) == 0)
            return &s->t[i];
    return NULL;
}
