/* A model without a cache: every pass takes the whole sequence, padded on the right to an admissible length. The
 * optional int32 mask holds ones for tokens and zeros for padding. Causal attention keeps padding out of the
 * rows before it, so the last real row is right with or without a mask. */
#include "llm/contract.h"

#include <stdio.h>

static bool fit(pome_contract *c, char *reason, size_t reason_size)
{
    const pome_function_info *fn = c->function;
    if (fn->n_states > 0)
        return false;
    if (c->position >= 0 || (c->mask >= 0 && fn->inputs[c->mask].rank != 2)) {
        int other = c->position >= 0 ? c->position : c->mask;
        snprintf(reason, reason_size, "there are no states, yet input '%s' belongs to a cache", fn->inputs[other].name);
        return false;
    }
    c->context = c->lengths.max;
    if (c->context < 1) {
        snprintf(reason, reason_size, "nothing bounds the length of '%s'", fn->inputs[c->ids].name);
        return false;
    }
    c->may_pad = true;
    return true;
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

static int64_t rewind_to(const pome_contract *c, pome_cache_layout layout, int64_t n_cached, int64_t n_keep)
{
    (void)c;
    (void)layout;
    return n_keep < n_cached ? n_keep : n_cached;
}

const pome_contract_kind pome_contract_nocache = {"no cache", fit, plan, fill, rewind_to};
