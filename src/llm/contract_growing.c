/* A model whose caches are plain inputs and outputs with as many rows as there were tokens before ("past" in, "present"
 * out). Where an input cannot be empty, the rows that it must have from the start are hidden by the mask. */
#include <stdio.h>

#include "llm/contract_function.h"

static bool take_rows(pome_contract *c, int64_t *n_rows, pome_misfit *misfit)
{
    const pome_function_info *fn = c->function;
    *n_rows = -1;
    for (uint32_t i = 0; i < c->n_caches; i++) {
        const pome_feature *f = &fn->inputs[c->caches[i].input];
        int axis = c->caches[i].axis;
        if (axis < 0)
            return pome_misfit_say(misfit, 0, "cache '%s' has a fixed shape", f->name);
        if (i > 0 && f->range[axis].min != c->n_dummy)
            return pome_misfit_say(misfit, 2, "cache '%s' has %lld rows at least, others have %lld", f->name,
                                   (long long)f->range[axis].min, (long long)c->n_dummy);
        c->n_dummy = f->range[axis].min;
        int64_t max = f->range[axis].max;
        *n_rows = max >= 0 && (*n_rows < 0 || max < *n_rows) ? max : *n_rows;
    }
    return true;
}

static bool fit(pome_contract *c, pome_misfit *misfit)
{
    int64_t n_rows = -1;
    if (!pome_contract_take_function(c, misfit))
        return false;
    const pome_function_info *fn = c->function;
    if (fn->n_states > 0)
        return pome_misfit_say(misfit, 0, "there are %u states", fn->n_states);
    if (!pome_contract_take_pairs(c, misfit))
        return false;
    if (c->n_caches == 0)
        return pome_misfit_say(misfit, 0, "no input comes back as an output");
    if (!take_rows(c, &n_rows, misfit))
        return false;
    misfit->n_found = 1;
    if (!pome_contract_take_parts(c, misfit))
        return false;
    if (c->n_dummy > 0 && c->mask < 0)
        return pome_misfit_say(misfit, 4, "caches like '%s' have %lld rows at least, and no mask hides them at the start",
                               fn->inputs[c->caches[0].input].name, (long long)c->n_dummy);
    if (!pome_contract_take_context(c, n_rows >= 0 ? n_rows - c->n_dummy : -1, misfit))
        return false;
    c->may_pad = true; /* rows behind the real ones are cut off */
    c->specificity = 2 + (c->mask >= 0) + (c->position >= 0) + (c->positions >= 0);
    snprintf(c->because, sizeof c->because, "caches come in with the rows so far and go out longer (%.40s to %.40s%s)",
             fn->inputs[c->caches[0].input].name, fn->outputs[c->caches[0].output].name, c->n_caches > 1 ? ", ..." : "");
    return true;
}

static void describe(const pome_contract *c, char *text, size_t size)
{
    char caches[48];
    snprintf(caches, sizeof caches, "%u growing cache%s", c->n_caches, c->n_caches == 1 ? "" : "s");
    pome_contract_describe_parts(c, caches, text, size);
}

const pome_contract_kind pome_contract_growing = {
    .name = "growing-kv",
    .class = POME_CONTRACT_EXPLICIT,
    .wants = "ids int32 [1, n], float caches with an axis from 0 to the context, as outputs again with n rows more, logits "
             "float [1, n, vocabulary]",
    .fit = fit,
    .describe = describe,
    .plan = pome_plan_cached,
    .fill = pome_fill_pass,
    .create = pome_function_runner_create,
    .reset = pome_contract_reset_pairs,
};
