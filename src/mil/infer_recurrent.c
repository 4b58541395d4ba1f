/* Inference of recurrent layers: x [s, b, I]. */
#include <inttypes.h>
#include <string.h>

#include "mil/infer.h"

#define ACTIVATIONS "tanh|scaled_tanh|sigmoid|hard_sigmoid|sigmoid_hard|relu|linear" /* one of them has two names */

/* A given parameter must have this shape. */
static pome_status demand(pome_infer *c, uint32_t param, int32_t rank, int64_t d0, int64_t d1, pome_error *err)
{
    const pome_type *t = pome_infer_type(c, param);
    if (!t || (t->rank == rank && pome_dim_may_equal(t->dim[0], d0) && (rank < 2 || pome_dim_may_equal(t->dim[1], d1))))
        return POME_OK;
    char a[160], b[160];
    pome_type wanted = pome_type_tensor(t->dtype, rank, (const int64_t[]){d0, d1});
    return pome_infer_fail(c, err, "'%s' is %s, not %s", c->op->def->params[param].name, pome_type_print(t, a, sizeof a),
                           pome_type_print(&wanted, b, sizeof b));
}

/* A state to begin with, [b, width]. coremltools makes one of packed sequences with a row for each step; as in the framework
 * rows beyond those of x's batch are not read. */
static pome_status demand_state(pome_infer *c, uint32_t param, int64_t batch, int64_t width, pome_error *err)
{
    const pome_type *t = pome_infer_type(c, param);
    bool has_more = t && t->rank == 2 && batch >= 0 && t->dim[0] > batch;
    return demand(c, param, 2, has_more ? t->dim[0] : batch, width, err);
}

/* The hidden size from weight_hh [gates * H, H]. */
static pome_status hidden_size(pome_infer *c, uint32_t weight_hh, int64_t gates, int64_t *out, pome_error *err)
{
    const pome_type *w = pome_infer_type(c, weight_hh);
    POME_TRY(pome_infer_rank(c, weight_hh, 2, 2, err));
    if (w->dim[1] < 0)
        return pome_infer_fail(c, err, "the hidden size is not known");
    *out = w->dim[1];
    return demand(c, weight_hh, 2, gates * *out, *out, err);
}

static void set_outputs(pome_infer *c, const pome_type *x, bool sequence, int64_t width)
{
    c->out[0] = *x;
    c->out[0].dim[0] = sequence ? x->dim[0] : 1;
    c->out[0].dim[2] = width;
    for (uint32_t i = 1; i < c->op->n_out; i++) {
        c->out[i] = pome_type_tensor(x->dtype, 2, (const int64_t[]){x->dim[1], width});
    }
}

/* x, initial_h, weight_ih, weight_hh, bias, direction, output_sequence: the same places in rnn and gru. */
pome_status pome_infer_rnn(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_rnn_x);
    bool is_gru = c->op->def->id == POME_OP_gru, sequence = false;
    int64_t gates = is_gru ? 3 : 1, h = 0;
    POME_TRY(pome_infer_rank(c, P_rnn_x, 3, 3, err));
    POME_TRY(pome_infer_word(c, P_rnn_direction, "forward|reverse", err));
    POME_TRY(pome_infer_word(c, is_gru ? (uint32_t)P_gru_activation : (uint32_t)P_rnn_activation, ACTIVATIONS, err));
    if (is_gru)
        POME_TRY(pome_infer_word(c, P_gru_recurrent_activation, ACTIVATIONS, err));
    POME_TRY(hidden_size(c, P_rnn_weight_hh, gates, &h, err));
    POME_TRY(demand(c, P_rnn_weight_ih, 2, gates * h, x->dim[2], err));
    POME_TRY(demand_state(c, P_rnn_initial_h, x->dim[1], h, err));
    POME_TRY(demand(c, P_rnn_bias, 1, gates * h, 0, err));
    if (is_gru)
        POME_TRY(demand(c, P_gru_input_bias, 1, gates * h, 0, err));
    POME_TRY(pome_infer_bool(c, P_rnn_output_sequence, false, &sequence, err));
    set_outputs(c, x, sequence, h);
    return POME_OK;
}

/* weight_ih [4H, I], weight_hh [4H, H], bias [4H], peephole [3H] of one direction. */
static pome_status check_direction(pome_infer *c, uint32_t ih, uint32_t hh, uint32_t bias, uint32_t peephole, int64_t h,
                                   pome_error *err)
{
    POME_TRY(demand(c, ih, 2, 4 * h, pome_infer_type(c, P_lstm_x)->dim[2], err));
    POME_TRY(demand(c, hh, 2, 4 * h, h, err));
    POME_TRY(demand(c, bias, 1, 4 * h, 0, err));
    return demand(c, peephole, 1, 3 * h, 0, err);
}

pome_status pome_infer_lstm(pome_infer *c, pome_error *err)
{
    const pome_type *x = pome_infer_type(c, P_lstm_x);
    bool sequence = false, both = strcmp(pome_op_str(c->op, P_lstm_direction, "forward"), "bidirectional") == 0;
    int64_t h = 0;
    POME_TRY(pome_infer_rank(c, P_lstm_x, 3, 3, err));
    POME_TRY(pome_infer_word(c, P_lstm_direction, "forward|reverse|bidirectional", err));
    POME_TRY(pome_infer_word(c, P_lstm_recurrent_activation, ACTIVATIONS, err));
    POME_TRY(pome_infer_word(c, P_lstm_cell_activation, ACTIVATIONS, err));
    POME_TRY(pome_infer_word(c, P_lstm_activation, ACTIVATIONS, err));
    POME_TRY(hidden_size(c, P_lstm_weight_hh, 4, &h, err));
    POME_TRY(check_direction(c, P_lstm_weight_ih, P_lstm_weight_hh, P_lstm_bias, P_lstm_peephole, h, err));
    if (both) {
        if (!pome_infer_has(c, P_lstm_weight_ih_back) || !pome_infer_has(c, P_lstm_weight_hh_back))
            return pome_infer_fail(c, err, "a bidirectional layer needs weight_ih_back and weight_hh_back");
        POME_TRY(check_direction(c, P_lstm_weight_ih_back, P_lstm_weight_hh_back, P_lstm_bias_back,
                                 P_lstm_peephole_back, h, err));
    }
    int64_t width = both ? 2 * h : h;
    POME_TRY(demand_state(c, P_lstm_initial_h, x->dim[1], width, err));
    POME_TRY(demand_state(c, P_lstm_initial_c, x->dim[1], width, err));
    POME_TRY(pome_infer_bool(c, P_lstm_output_sequence, false, &sequence, err));
    set_outputs(c, x, sequence, width);
    return POME_OK;
}
