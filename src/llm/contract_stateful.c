/* A model whose cache is a state: one for keys and one for values, one per layer, or all in one; rows addressed by
 * position, or right-aligned. Where rows go the mask tells by its width, or an int32 input. */
#include <stdio.h>

#include "llm/contract_function.h"

/* Rows of the cache: the axis that the widest mask has, else by the usual layout [..., row, dim]; -1 if the states do
 * not agree. */
static int64_t cache_rows(const pome_contract *c)
{
    const pome_function_info *fn = c->function;
    pome_lengths columns = {.max = -1};
    int64_t rows = -1;
    if (c->mask >= 0 && !pome_lengths_of(&fn->inputs[c->mask], fn->inputs[c->mask].rank - 1, &columns))
        return -1;
    for (uint32_t i = 0; i < fn->n_states; i++) {
        const pome_feature *s = &fn->states[i];
        bool has_columns = false;
        for (int32_t axis = 0; axis < s->rank; axis++)
            has_columns |= s->shape[axis] == columns.max;
        int64_t n = has_columns ? columns.max : s->rank >= 3 ? s->shape[s->rank - 2] : -1;
        if (n < 0 || (rows >= 0 && rows != n))
            return -1;
        rows = n;
    }
    return rows;
}

static bool fit(pome_contract *c, pome_misfit *misfit)
{
    if (!pome_contract_take_function(c, misfit))
        return false;
    const pome_function_info *fn = c->function;
    if (fn->n_states == 0)
        return pome_misfit_say(misfit, 0, "there are no states");
    misfit->n_found = 1;
    if (!pome_contract_take_pairs(c, misfit) || !pome_contract_take_parts(c, misfit))
        return false;
    if (c->mask >= 0 && fn->inputs[c->mask].rank != 4)
        return pome_misfit_say(misfit, 3, "mask '%s' is no float mask of rank 4", fn->inputs[c->mask].name);
    if (c->mask < 0 && c->position < 0 && c->positions < 0)
        return pome_misfit_say(misfit, 3, "no float mask of rank 4 and no position says how far the states are filled");
    for (uint32_t i = 0; i < c->n_caches; i++)
        if (c->caches[i].axis >= 0)
            return pome_misfit_say(misfit, 3, "input '%s' grows beside states", fn->inputs[c->caches[i].input].name);
    if (!pome_contract_take_context(c, cache_rows(c), misfit))
        return false;
    c->may_pad = c->position >= 0 || c->positions >= 0 || !pome_lengths_admit(&c->lengths, 1);
    c->specificity = 1 + (c->mask >= 0) + (c->position >= 0) + (c->positions >= 0) + (c->update >= 0);
    snprintf(c->because, sizeof c->because, "there are states and %s",
             c->mask < 0 ? "a position" : c->is_mask_whole ? "a float mask over the context, with a position" : "a float mask");
    return true;
}

static void describe(const pome_contract *c, char *text, size_t size)
{
    char states[80], pairs[40] = "";
    if (c->n_caches > 0)
        snprintf(pairs, sizeof pairs, " and %u passed through", c->n_caches);
    snprintf(states, sizeof states, "%u state%s%s", c->function->n_states, c->function->n_states == 1 ? "" : "s", pairs);
    pome_contract_describe_parts(c, states, text, size);
}

const pome_contract_kind pome_contract_stateful = {
    .name = "stateful",
    .class = POME_CONTRACT_STATES,
    .wants = "ids int32 [1, n], mask float [1, 1, n, end], states, logits float [1, n, vocabulary]",
    .fit = fit,
    .describe = describe,
    .plan = pome_plan_cached,
    .fill = pome_fill_pass,
    .create = pome_function_runner_create,
    .reset = pome_contract_reset_pairs,
};
