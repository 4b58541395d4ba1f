/* A model whose caches are plain inputs and outputs of fixed shape: what it gives back is fed to it again. */
#include <stdio.h>

#include "llm/contract_function.h"

static bool fit(pome_contract *c, pome_misfit *misfit)
{
    if (!pome_contract_take_function(c, misfit))
        return false;
    const pome_function_info *fn = c->function;
    if (fn->n_states > 0)
        return pome_misfit_say(misfit, 0, "there are %u states", fn->n_states);
    if (!pome_contract_take_pairs(c, misfit))
        return false;
    if (c->n_caches == 0)
        return pome_misfit_say(misfit, 0, "no input comes back as an output");
    misfit->n_found = 1;
    int64_t n_rows = -1;
    for (uint32_t i = 0; i < c->n_caches; i++) {
        const pome_feature *f = &fn->inputs[c->caches[i].input];
        if (c->caches[i].axis >= 0)
            return pome_misfit_say(misfit, 0, "cache '%s' grows", f->name);
        n_rows = f->rank >= 3 && (n_rows < 0 || f->shape[f->rank - 2] < n_rows) ? f->shape[f->rank - 2] : n_rows;
    }
    if (!pome_contract_take_parts(c, misfit))
        return false;
    if (c->mask < 0 && c->position < 0 && c->positions < 0)
        return pome_misfit_say(misfit, 4, "no mask and no position says how far the caches are filled");
    if (!pome_contract_take_context(c, n_rows, misfit))
        return false;
    c->may_pad = c->position >= 0 || c->positions >= 0 || !pome_lengths_admit(&c->lengths, 1);
    c->specificity = 1 + (c->mask >= 0) + (c->position >= 0) + (c->positions >= 0) + (c->update >= 0);
    snprintf(c->because, sizeof c->because, "caches of fixed shape come in and go out (%.40s to %.40s%s)",
             fn->inputs[c->caches[0].input].name, fn->outputs[c->caches[0].output].name, c->n_caches > 1 ? ", ..." : "");
    return true;
}

static void describe(const pome_contract *c, char *text, size_t size)
{
    char caches[32];
    snprintf(caches, sizeof caches, "%u cache%s", c->n_caches, c->n_caches == 1 ? "" : "s");
    pome_contract_describe_parts(c, caches, text, size);
}

const pome_contract_kind pome_contract_explicit = {
    .name = "explicit-kv",
    .class = POME_CONTRACT_EXPLICIT,
    .wants = "ids int32 [1, n], mask float [1, 1, n, end] or a position, float caches that come back as outputs of the "
             "same shape, logits float [1, n, vocabulary]",
    .fit = fit,
    .describe = describe,
    .plan = pome_plan_cached,
    .fill = pome_fill_pass,
    .create = pome_function_runner_create,
    .reset = pome_contract_reset_pairs,
};
