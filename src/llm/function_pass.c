/* Passes over a cache. Rows [begin, begin + n) are computed against a mask [1, 1, n, columns]; the columns are the end of
 * the pass (begin + n), from which the graph learns where it is, or the whole context, and then an int32 input [1] says
 * which row is written first.
 *
 * Lengths that are listed (1, 8, 32) are met by padding. A padding row is computed like any other and writes the
 * cache too, so it must lie after the real rows, where the next pass overwrites it, and within the context. That
 * needs rows addressed by position: it is sure where there is a position input, and elsewhere padding is used
 * only if no exact cover exists (the runner refuses if the cache then turns out to move).
 *
 * Masked columns hold -32752, half of the largest half-precision number: it stays finite when scores are added in
 * half precision (-inf, or -65504 plus a score, would make a fully masked row NaN), and exp() of it is exactly 0
 * in every precision, so the result is the same as with -inf. */
#include "base/f16.h"
#include "llm/contract_function.h"

static const float masked = -32752.0f;

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
        double cost = (double)(n + POME_PASS_COST_ROWS) / (double)n_real;
        if (best < 0 || cost < best_cost) {
            best = n;
            best_cost = cost;
        }
    }
    return best;
}

pome_pass pome_plan_cached(const pome_contract *c, int64_t n_cached, int64_t n_tokens, int64_t block)
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

void pome_fill_mask_row(void *row, bool is_half, int64_t n_columns, int64_t n_hidden, int64_t n_open)
{
    uint16_t shut = pome_f32_to_f16(masked), *half = row;
    float *single = row;
    for (int64_t i = 0; i < n_columns; i++) {
        bool is_open = i >= n_hidden && i < n_hidden + n_open;
        if (is_half)
            half[i] = is_open ? 0 : shut;
        else
            single[i] = is_open ? 0.0f : masked;
    }
}

/* Ones for tokens, zeros for padding. */
static void fill_ones(const pome_contract *c, pome_pass pass, pome_pass_inputs *in)
{
    int64_t n = c->takes_whole ? pass.n_rows : c->is_mask_whole ? c->context : c->n_dummy + pass.begin + pass.n_rows;
    int64_t end = c->n_dummy + pass.begin + pass.n_real;
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)in->mask)[i] = i >= c->n_dummy && i < end;
    in->mask_tensor = pome_tensor_borrow(in->mask, POME_DTYPE_I32, 2, (int64_t[]){1, n});
}

static void fill_mask(const pome_contract *c, pome_pass pass, pome_pass_inputs *in)
{
    bool is_half = c->function->inputs[c->mask].dtype == POME_DTYPE_F16;
    int64_t n_columns = c->is_mask_whole ? c->context : c->n_dummy + pass.begin + pass.n_rows;
    size_t row_bytes = (size_t)n_columns * (is_half ? 2 : 4);
    for (int64_t row = 0; row < pass.n_rows; row++)
        pome_fill_mask_row((char *)in->mask + (size_t)row * row_bytes, is_half, n_columns, c->n_dummy,
                           pass.begin + row + 1);
    in->mask_tensor = pome_tensor_borrow(in->mask, is_half ? POME_DTYPE_F16 : POME_DTYPE_F32, 4,
                                         (int64_t[]){1, 1, pass.n_rows, n_columns});
}

void pome_fill_pass(const pome_contract *c, pome_pass pass, const int32_t *timeline, pome_pass_inputs *in)
{
    const pome_feature *inputs = c->function->inputs;
    for (int64_t i = 0; i < pass.n_rows; i++)
        in->ids[i] = i < pass.n_real ? timeline[pass.begin + i] : 0;
    in->ids_tensor = pome_tensor_borrow(in->ids, POME_DTYPE_I32, 2, (int64_t[]){1, pass.n_rows});
    if (c->mask >= 0 && inputs[c->mask].rank == 2)
        fill_ones(c, pass, in);
    else if (c->mask >= 0)
        fill_mask(c, pass, in);
    in->position = (int32_t)pass.begin;
    in->position_tensor = pome_tensor_borrow(&in->position, POME_DTYPE_I32, 1, (int64_t[]){1});
    for (int64_t i = 0; c->positions >= 0 && i < pass.n_rows; i++)
        in->positions[i] = (int32_t)(pass.begin + i);
    if (c->positions >= 0) {
        bool is_row = inputs[c->positions].rank == 2;
        in->positions_tensor = pome_tensor_borrow(in->positions, POME_DTYPE_I32, is_row ? 2 : 1,
                                                  is_row ? (int64_t[]){1, pass.n_rows} : (int64_t[]){pass.n_rows});
    }
    for (int64_t i = 0; c->update >= 0 && i < c->context; i++)
        in->update[i] = i >= pass.begin && i < pass.begin + pass.n_rows;
    if (c->update >= 0)
        in->update_tensor = pome_tensor_borrow(in->update, POME_DTYPE_F32, 4, (int64_t[]){1, 1, c->context, 1});
}
