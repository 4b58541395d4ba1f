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
    if (!pome_contract_take_parts(c, misfit))
        return false;
    int other = c->position >= 0 ? c->position : c->update >= 0 ? c->update : c->mask;
    if (other >= 0 && (other != c->mask || fn->inputs[c->mask].rank != 2))
        return pome_misfit_say(misfit, 2, "there are no states, yet input '%s' belongs to a cache", fn->inputs[other].name);
    c->context = c->lengths.max;
    if (c->context < 1)
        return pome_misfit_say(misfit, 4, "nothing bounds the length of '%s'", fn->inputs[c->ids].name);
    c->may_pad = c->takes_whole = true;
    c->specificity = 1 + (c->mask >= 0) + (c->positions >= 0);
    snprintf(c->because, sizeof c->because, "nothing keeps a cache%s",
             c->lengths.n_listed > 0 ? ": each pass takes all tokens, padded to the next listed length"
             : c->lengths.min == c->lengths.max ? ": each pass takes all tokens, padded to the only length" : "");
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

const pome_contract_kind pome_contract_nocache = {
    .name = "no-cache",
    .class = POME_CONTRACT_NOCACHE,
    .wants = "ids int32 [1, n], optional int32 mask [1, n], logits float [1, n, vocabulary], no states",
    .fit = fit,
    .describe = describe,
    .plan = plan,
    .fill = pome_fill_pass,
    .create = pome_function_runner_create,
};
