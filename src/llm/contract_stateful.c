/* A model whose cache is a state. Rows [begin, begin + n) are computed against a mask [1, 1, n, columns]; the
 * columns are the end of the pass (begin + n), from which the graph learns where it is, or the whole context, and
 * then an int32 input [1] says which row is written first.
 *
 * Lengths that are listed (1, 8, 32) are met by padding. A padding row is computed like any other and writes the
 * cache too, so it must lie after the real rows, where the next pass overwrites it, and within the context. That
 * needs rows addressed by position: it is sure where there is a position input, and elsewhere padding is used
 * only if no exact cover exists (the session refuses if the cache then turns out to move).
 *
 * Masked columns hold -32752, half of the largest half-precision number: it stays finite when scores are added in
 * half precision (-inf, or -65504 plus a score, would make a fully masked row NaN), and exp() of it is exactly 0
 * in every precision, so the result is the same as with -inf. */
#include <stdio.h>

#include "base/f16.h"
#include "llm/contract_function.h"

/* What a pass costs beyond its rows, in rows: reading the weights once. */
enum { PASS_COST_ROWS = 4 };

static const float masked = -32752.0f;

/* Rows of the cache by the usual layout [..., row, dim]; -1 if the states do not agree. */
static int64_t cache_rows(const pome_function_info *fn)
{
    int64_t rows = -1;
    for (uint32_t i = 0; i < fn->n_states; i++) {
        const pome_feature *s = &fn->states[i];
        if (s->rank < 3 || (rows >= 0 && rows != s->shape[s->rank - 2]))
            return -1;
        rows = s->shape[s->rank - 2];
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
    if (!pome_contract_take_parts(c, NULL, misfit))
        return false;
    if (c->mask < 0 || fn->inputs[c->mask].rank != 4)
        return pome_misfit_say(misfit, 3, "no float mask of rank 4");
    const pome_feature *mask = &fn->inputs[c->mask];
    pome_lengths rows, columns;
    if (!pome_lengths_of(mask, 2, &rows) || !pome_lengths_of(mask, 3, &columns))
        return pome_misfit_say(misfit, 4, "'%s' lists more than %d shapes", mask->name, POME_LENGTHS_MAX);
    int64_t n_rows = cache_rows(fn);
    c->context = columns.max;
    if (n_rows > 0 && (c->context < 0 || n_rows < c->context))
        c->context = n_rows;
    if (c->context < 1)
        return pome_misfit_say(misfit, 4, "neither mask '%s' nor the states bound the context", mask->name);
    c->is_mask_whole = columns.min == columns.max;
    if (c->is_mask_whole)
        c->context = columns.max;
    if (c->is_mask_whole && c->position < 0)
        return pome_misfit_say(misfit, 4, "mask '%s' is always %lld wide and no int32 input [1] gives the position",
                               mask->name, (long long)columns.max);
    if (c->lengths.min > c->context)
        return pome_misfit_say(misfit, 4, "'%s' takes %lld ids at least, the context is %lld", fn->inputs[c->ids].name,
                               (long long)c->lengths.min, (long long)c->context);
    c->may_pad = c->position >= 0 || !pome_lengths_admit(&c->lengths, 1);
    c->specificity = 2 + (c->position >= 0);
    snprintf(c->because, sizeof c->because, "there are states and a float mask");
    return true;
}

static void describe(const pome_contract *c, char *text, size_t size)
{
    char states[32];
    snprintf(states, sizeof states, "%u state%s", c->function->n_states, c->function->n_states == 1 ? "" : "s");
    pome_contract_describe_parts(c, states, text, size);
}

/* The length with the least cost per real row among those that fit behind n_cached. */
static int64_t choose_listed(const pome_contract *c, int64_t n_cached, int64_t n_left, int64_t block)
{
    int64_t best = -1;
    double best_cost = 0;
    for (int i = 0; i < c->lengths.n_listed; i++) {
        int64_t n = c->lengths.listed[i];
        int64_t n_real = n < n_left ? n : n_left;
        bool is_too_long = n > block && best >= 0;
        if (n_cached + n > c->context || is_too_long || (n > n_left && !c->may_pad))
            continue;
        double cost = (double)(n + PASS_COST_ROWS) / (double)n_real;
        if (best < 0 || cost < best_cost) {
            best = n;
            best_cost = cost;
        }
    }
    return best;
}

static pome_pass plan(const pome_contract *c, int64_t n_cached, int64_t n_tokens, int64_t block)
{
    int64_t n_left = n_tokens - n_cached;
    pome_pass pass = {.begin = n_cached};
    if (c->lengths.n_listed > 0) {
        pass.n_rows = choose_listed(c, n_cached, n_left, block);
    } else {
        int64_t want = n_left < block ? n_left : block;
        pass.n_rows = pome_lengths_round_down(&c->lengths, want);
        if (pass.n_rows < 0)
            pass.n_rows = c->lengths.min;
    }
    if (pass.n_rows < 0 || pass.begin + pass.n_rows > c->context) {
        /* No length fits before the end of the context: compute some earlier tokens again. */
        pass.n_rows = pome_lengths_round_up(&c->lengths, 1);
        pass.begin = c->context - pass.n_rows;
    }
    pass.n_real = n_tokens - pass.begin < pass.n_rows ? n_tokens - pass.begin : pass.n_rows;
    return pass;
}

static void fill_mask(const pome_contract *c, pome_pass pass, int64_t n_columns, pome_pass_inputs *in)
{
    const pome_feature *f = &c->function->inputs[c->mask];
    for (int64_t row = 0; row < pass.n_rows; row++) {
        int64_t n_open = pass.begin + row + 1;
        if (f->dtype == POME_DTYPE_F16) {
            uint16_t *m = (uint16_t *)in->mask + row * n_columns, value = pome_f32_to_f16(masked);
            for (int64_t i = 0; i < n_columns; i++)
                m[i] = i < n_open ? 0 : value;
        } else {
            float *m = (float *)in->mask + row * n_columns;
            for (int64_t i = 0; i < n_columns; i++)
                m[i] = i < n_open ? 0.0f : masked;
        }
    }
    pome_dtype dtype = f->dtype == POME_DTYPE_F16 ? POME_DTYPE_F16 : POME_DTYPE_F32;
    in->mask_tensor = pome_tensor_borrow(in->mask, dtype, 4, (int64_t[]){1, 1, pass.n_rows, n_columns});
}

static void fill(const pome_contract *c, pome_pass pass, const int32_t *timeline, pome_pass_inputs *in)
{
    for (int64_t i = 0; i < pass.n_rows; i++)
        in->ids[i] = i < pass.n_real ? timeline[pass.begin + i] : 0;
    in->ids_tensor = pome_tensor_borrow(in->ids, POME_DTYPE_I32, 2, (int64_t[]){1, pass.n_rows});
    fill_mask(c, pass, c->is_mask_whole ? c->context : pass.begin + pass.n_rows, in);
    in->position = (int32_t)pass.begin;
    in->position_tensor = pome_tensor_borrow(&in->position, POME_DTYPE_I32, 1, (int64_t[]){1});
}

const pome_contract_kind pome_contract_stateful = {
    .name = "stateful",
    .class = POME_CONTRACT_STATES,
    .wants = "ids int32 [1, n], mask float [1, 1, n, end], states, logits float [1, n, vocabulary]",
    .fit = fit,
    .describe = describe,
    .plan = plan,
    .fill = fill,
    .create = pome_function_runner_create,
};
