/* A model without a cache: every pass takes the whole sequence, padded on the right to an admissible length. The
 * optional int32 mask holds ones for tokens and zeros for padding. Causal attention keeps padding out of the
 * rows before it, so the last real row is right with or without a mask. */
#include <stdio.h>

#include "llm/contract_function.h"

static bool fit(pome_contract *c, pome_misfit *misfit)
{
    if (!pome_contract_take_function(c, misfit))
        return false;
    const pome_function_info *fn = c->function;
    if (fn->n_states > 0)
        return pome_misfit_say(misfit, 0, "there are %u states", fn->n_states);
    misfit->n_found = 1;
    if (!pome_contract_take_parts(c, NULL, misfit))
        return false;
    if (c->position >= 0 || (c->mask >= 0 && fn->inputs[c->mask].rank != 2)) {
        int other = c->position >= 0 ? c->position : c->mask;
        return pome_misfit_say(misfit, 2, "there are no states, yet input '%s' belongs to a cache", fn->inputs[other].name);
    }
    c->context = c->lengths.max;
    if (c->context < 1)
        return pome_misfit_say(misfit, 4, "nothing bounds the length of '%s'", fn->inputs[c->ids].name);
    c->may_pad = c->takes_whole = true;
    c->specificity = 1 + (c->mask >= 0);
    snprintf(c->because, sizeof c->because, "nothing keeps a cache");
    return true;
}

static void describe(const pome_contract *c, char *text, size_t size)
{
    pome_contract_describe_parts(c, NULL, text, size);
}

static pome_pass plan(const pome_contract *c, int64_t n_cached, int64_t n_tokens, int64_t block)
{
    (void)n_cached;
    (void)block;
    return (pome_pass){.begin = 0, .n_real = n_tokens, .n_rows = pome_lengths_round_up(&c->lengths, n_tokens)};
}

static void fill(const pome_contract *c, pome_pass pass, const int32_t *timeline, pome_pass_inputs *in)
{
    int32_t *mask = in->mask;
    for (int64_t i = 0; i < pass.n_rows; i++) {
        in->ids[i] = i < pass.n_real ? timeline[i] : 0;
        if (c->mask >= 0)
            mask[i] = i < pass.n_real;
    }
    int64_t shape[] = {1, pass.n_rows};
    in->ids_tensor = pome_tensor_borrow(in->ids, POME_DTYPE_I32, 2, shape);
    if (c->mask >= 0)
        in->mask_tensor = pome_tensor_borrow(in->mask, POME_DTYPE_I32, 2, shape);
}

const pome_contract_kind pome_contract_nocache = {
    .name = "no-cache",
    .class = POME_CONTRACT_NOCACHE,
    .wants = "ids int32 [1, n], optional int32 mask [1, n], logits float [1, n, vocabulary], no states",
    .fit = fit,
    .describe = describe,
    .plan = plan,
    .fill = fill,
    .create = pome_function_runner_create,
};
