/* rnn, gru, lstm. The input's share of every gate is multiplied for several steps at once, the hidden state's step by
 * step; both from weights as they lie in the file. Sums are fp32, activations as in vecmath.h. */
#include <math.h>

#include "kernels/vecmath.h"
#include "ops/families.h"
#include "ops/rows.h"

enum {
    BLOCK_ROWS = 64, /* rows of x multiplied at once */
    ROW_GRAIN = 64,  /* rows of a weight, and elements of a state, that a thread takes at a time */
    UNIT_GRAIN = 512
};

typedef float activation_fn(float x);

static float tanh_of(float x)
{
    return tanhf(x);
}
static float sigmoid_of(float x)
{
    return pome_sigmoidf(x);
}
static float hard_sigmoid_of(float x)
{
    float y = 0.2f * x + 0.5f;
    return y < 0 ? 0 : y > 1 ? 1 : y;
}
static float relu_of(float x)
{
    return x < 0 ? 0 : x; /* NaN stays */
}
static float linear_of(float x)
{
    return x;
}

/* All with their usual constants: scaled_tanh is tanh. */
static activation_fn *activation_named(const char *name)
{
    static const struct {
        const char *name;
        activation_fn *fn;
    } all[] = {{"tanh", tanh_of},           {"scaled_tanh", tanh_of},          {"sigmoid", sigmoid_of},
               {"relu", relu_of},           {"hard_sigmoid", hard_sigmoid_of}, {"sigmoid_hard", hard_sigmoid_of},
               {"linear", linear_of}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(all[i].name, name) == 0)
            return all[i].fn;
    return NULL;
}

typedef enum cell_kind { CELL_RNN, CELL_GRU, CELL_LSTM } cell_kind;

/* Indices of one direction's parameters; -1: the operator has none. */
typedef struct direction_params {
    int weight_ih, weight_hh, bias, peephole, input_bias;
} direction_params;

typedef struct cell {
    const pome_run *r;
    cell_kind kind;
    size_t gates, steps, batch, n_in, hidden, width; /* width: of the states, hidden * directions */
    activation_fn *act, *recurrent_act, *cell_act;
    float clip; /* infinite: none */
    bool is_reset_after;
    bool is_sequence;
    /* of the current direction */
    pome_rows ih, hh;
    float *bias, *input_bias, *peephole; /* [gates * hidden], [3 * hidden]; NULL: none */
    size_t offset;                       /* of its half in a row of the states */
    const float *x;                      /* [rows, n_in] being multiplied */
    size_t n_rows;
    const float *state;                  /* [batch, hidden] being multiplied */
    size_t first_row;                    /* of hh being multiplied */
    /* scratch */
    float *from_x;    /* [block, gates * hidden] */
    float *from_h;    /* [batch, gates * hidden] */
    float *h, *c;     /* [batch, hidden] */
    float *reset;     /* [batch, hidden]: r * h, gru */
    float *vectors;   /* biases and peepholes as fp32 */
    float *thread_scratch;
    const float *step_from_x; /* [batch, gates * hidden] of this step */
} cell;

static float *scratch_of(const cell *j, int thread)
{
    return j->thread_scratch + (size_t)thread * pome_rows_scratch();
}

static void multiply_x(void *arg, size_t begin, size_t end, int thread)
{
    const cell *j = (const cell *)arg;
    pome_rows_times(&j->ih, j->r->kernels, begin, end - begin, j->x, j->n_in, j->n_rows, j->from_x + begin,
                    j->gates * j->hidden, scratch_of(j, thread));
}

static void multiply_h(void *arg, size_t begin, size_t end, int thread)
{
    const cell *j = (const cell *)arg;
    size_t first = j->first_row + begin;
    pome_rows_times(&j->hh, j->r->kernels, first, end - begin, j->state, j->hidden, j->batch, j->from_h + first,
                    j->gates * j->hidden, scratch_of(j, thread));
}

/* from_h rows [first, end) = weight_hh rows times `state`. */
static void times_h(cell *j, const float *state, size_t first, size_t end)
{
    j->state = state;
    j->first_row = first;
    pome_pool_run(j->r->pool, end - first, ROW_GRAIN, multiply_h, j);
}

/* What gate g of unit u in batch b adds up to: the products and the biases. */
static inline float gate(const cell *j, size_t b, size_t g, size_t u)
{
    size_t at = g * j->hidden + u;
    float sum = j->step_from_x[b * j->gates * j->hidden + at] + j->from_h[b * j->gates * j->hidden + at];
    if (j->bias)
        sum += j->bias[at];
    if (j->input_bias)
        sum += j->input_bias[at];
    return sum;
}

static void rnn_units(void *arg, size_t begin, size_t end, int thread)
{
    const cell *j = (const cell *)arg;
    (void)thread;
    for (size_t i = begin; i < end; i++)
        j->h[i] = j->act(gate(j, i / j->hidden, 0, i % j->hidden));
}

/* Rows of the weights: i, f, o, z. i and f look at the old memory, o at the new. */
static void lstm_units(void *arg, size_t begin, size_t end, int thread)
{
    const cell *j = (const cell *)arg;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        size_t b = i / j->hidden, u = i % j->hidden;
        const float *p = j->peephole;
        float in = gate(j, b, 0, u), forget = gate(j, b, 1, u), out = gate(j, b, 2, u), c = j->c[i];
        if (p) {
            in += p[u] * c;
            forget += p[j->hidden + u] * c;
        }
        c = j->recurrent_act(forget) * c + j->recurrent_act(in) * j->cell_act(gate(j, b, 3, u));
        c = c > j->clip ? j->clip : c < -j->clip ? -j->clip : c;
        if (p)
            out += p[2 * j->hidden + u] * c;
        j->c[i] = c;
        j->h[i] = j->recurrent_act(out) * j->act(c);
    }
}

/* Rows of the weights: r, o, z. Without reset_after the reset gate is applied before the product of gate o. */
static void gru_reset(void *arg, size_t begin, size_t end, int thread)
{
    const cell *j = (const cell *)arg;
    (void)thread;
    for (size_t i = begin; i < end; i++)
        j->reset[i] = j->recurrent_act(gate(j, i / j->hidden, 0, i % j->hidden)) * j->h[i];
}

static void gru_units(void *arg, size_t begin, size_t end, int thread)
{
    const cell *j = (const cell *)arg;
    size_t n = j->hidden, row = j->gates * n;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        size_t b = i / n, u = i % n;
        float z = j->recurrent_act(gate(j, b, 2, u)), sum;
        if (j->is_reset_after) {
            float inner = j->from_h[b * row + n + u] + (j->bias ? j->bias[n + u] : 0);
            sum = j->step_from_x[b * row + n + u] + (j->input_bias ? j->input_bias[n + u] : 0) +
                  j->recurrent_act(gate(j, b, 0, u)) * inner;
        } else {
            sum = gate(j, b, 1, u);
        }
        j->h[i] = (1 - z) * j->act(sum) + z * j->h[i];
    }
}

static void step(cell *j)
{
    size_t units = j->batch * j->hidden, n = j->hidden;
    if (j->kind != CELL_GRU || j->is_reset_after) {
        times_h(j, j->h, 0, j->gates * n);
    } else {
        times_h(j, j->h, 0, n);
        times_h(j, j->h, 2 * n, 3 * n);
        pome_pool_run(j->r->pool, units, UNIT_GRAIN, gru_reset, j);
        times_h(j, j->reset, n, 2 * n);
    }
    pome_pool_run(j->r->pool, units, UNIT_GRAIN,
                  j->kind == CELL_RNN ? rnn_units : j->kind == CELL_GRU ? gru_units : lstm_units, j);
}

/* Rows of the states [batch, width] to [batch, hidden] and back. */
static void take_half(const cell *j, float *to, const float *states)
{
    for (size_t b = 0; b < j->batch; b++)
        memcpy(to + b * j->hidden, states + b * j->width + j->offset, j->hidden * sizeof *to);
}
static void put_half(const cell *j, float *states, const float *from)
{
    for (size_t b = 0; b < j->batch; b++)
        memcpy(states + b * j->width + j->offset, from + b * j->hidden, j->hidden * sizeof *from);
}

static size_t block_steps(size_t batch)
{
    return batch >= BLOCK_ROWS || batch == 0 ? 1 : BLOCK_ROWS / batch;
}

/* Runs the current direction. `is_reversed`: from the last step to the first; `in_place`: each step's result at its
 * own place of the sequence, else in the order in which they come. */
static void run_direction(cell *j, bool is_reversed, bool in_place)
{
    float *y = (float *)j->r->out[0].data;
    const float *x = (const float *)pome_in(j->r, P_rnn_x)->data; /* the same place in all three */
    size_t rows = j->gates * j->hidden, block = block_steps(j->batch);
    for (size_t done = 0; done < j->steps; done += block) {
        size_t n = j->steps - done < block ? j->steps - done : block, first = is_reversed ? j->steps - done - n : done;
        j->x = x + first * j->batch * j->n_in;
        j->n_rows = n * j->batch;
        pome_pool_run(j->r->pool, rows, ROW_GRAIN, multiply_x, j);
        for (size_t s = 0; s < n; s++) {
            size_t t = is_reversed ? n - 1 - s : s;
            j->step_from_x = j->from_x + t * j->batch * rows;
            step(j);
            if (j->is_sequence)
                put_half(j, y + (in_place ? first + t : done + s) * j->batch * j->width, j->h);
        }
    }
    if (!j->is_sequence)
        put_half(j, y, j->h);
    put_half(j, (float *)j->r->out[1].data, j->h);
    if (j->kind == CELL_LSTM)
        put_half(j, (float *)j->r->out[2].data, j->c);
}

static float *vector_of(cell *j, int param, size_t n)
{
    const pome_tensor *t = param < 0 ? NULL : pome_in(j->r, (uint32_t)param);
    float *to = j->vectors;
    if (!t)
        return NULL;
    pome_vector_piece(t, pome_in_encoded(j->r, (uint32_t)param), j->r->kernels, 0, n, to);
    j->vectors += n;
    return to;
}

static void set_direction(cell *j, const direction_params *p, size_t offset)
{
    const pome_tensor *ih = pome_in(j->r, (uint32_t)p->weight_ih), *hh = pome_in(j->r, (uint32_t)p->weight_hh);
    pome_rows_init(&j->ih, ih->dtype, ih->data, pome_in_encoded(j->r, (uint32_t)p->weight_ih), j->n_in);
    pome_rows_init(&j->hh, hh->dtype, hh->data, pome_in_encoded(j->r, (uint32_t)p->weight_hh), j->hidden);
    float *room = j->vectors;
    j->bias = vector_of(j, p->bias, j->gates * j->hidden);
    j->input_bias = vector_of(j, p->input_bias, j->gates * j->hidden);
    j->peephole = vector_of(j, p->peephole, 3 * j->hidden);
    j->vectors = room;
    j->offset = offset;
}

static void set_sizes(cell *j, const pome_run *r, cell_kind kind)
{
    const pome_tensor *x = pome_in(r, P_rnn_x), *hh = pome_in(r, kind == CELL_LSTM ? (uint32_t)P_lstm_weight_hh
                                                                                  : (uint32_t)P_rnn_weight_hh);
    *j = (cell){.r = r, .kind = kind, .gates = kind == CELL_RNN ? 1 : kind == CELL_GRU ? 3 : 4, .clip = INFINITY};
    j->steps = (size_t)x->shape[0];
    j->batch = (size_t)x->shape[1];
    j->n_in = (size_t)x->shape[2];
    j->hidden = (size_t)hh->shape[1];
    j->width = (size_t)r->out[0].shape[2];
}

/* Floats of scratch, and where each part of it begins; j->thread_scratch NULL: only counted. */
static size_t lay_out(cell *j)
{
    size_t rows = j->gates * j->hidden, units = j->batch * j->hidden, block = block_steps(j->batch);
    float *at = j->thread_scratch;
    const size_t sizes[] = {(size_t)pome_pool_n_threads(j->r->pool) * pome_rows_scratch(),
                            (block < j->steps ? block : j->steps) * j->batch * rows, j->batch * rows, units, units,
                            units, 2 * rows + 3 * j->hidden};
    float **const parts[] = {&j->thread_scratch, &j->from_x, &j->from_h, &j->h, &j->c, &j->reset, &j->vectors};
    size_t total = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        *parts[i] = at ? at + total : NULL;
        total += (sizes[i] + 15) / 16 * 16;
    }
    return total;
}

static size_t scratch_bytes(const pome_run *r, cell_kind kind)
{
    cell j;
    set_sizes(&j, r, kind);
    return lay_out(&j) * sizeof(float);
}

static pome_status find_activation(const cell *j, uint32_t param, const char *dflt, activation_fn **fn,
                                   pome_error *err)
{
    const char *name = pome_op_str(j->r->op, param, dflt);
    *fn = activation_named(name);
    if (!*fn)
        return pome_op_fail(j->r->op, err, POME_ERR_UNSUPPORTED, "activation '%s'", name);
    return POME_OK;
}

static void begin_direction(cell *j, const direction_params *p, size_t offset, uint32_t initial_h, int initial_c)
{
    set_direction(j, p, offset);
    take_half(j, j->h, (const float *)pome_in(j->r, initial_h)->data);
    if (initial_c >= 0)
        take_half(j, j->c, (const float *)pome_in(j->r, (uint32_t)initial_c)->data);
}

static pome_status rnn_run(const pome_run *r, pome_error *err)
{
    static const direction_params params = {P_rnn_weight_ih, P_rnn_weight_hh, P_rnn_bias, -1, -1};
    cell j;
    set_sizes(&j, r, CELL_RNN);
    j.thread_scratch = (float *)r->scratch;
    (void)lay_out(&j);
    POME_TRY(find_activation(&j, P_rnn_activation, "tanh", &j.act, err));
    j.is_sequence = pome_in_bool(r, P_rnn_output_sequence, false);
    begin_direction(&j, &params, 0, P_rnn_initial_h, -1);
    run_direction(&j, strcmp(pome_op_str(r->op, P_rnn_direction, "forward"), "reverse") == 0, false);
    return POME_OK;
}

static pome_status gru_run(const pome_run *r, pome_error *err)
{
    static const direction_params params = {P_gru_weight_ih, P_gru_weight_hh, P_gru_bias, -1, P_gru_input_bias};
    cell j;
    set_sizes(&j, r, CELL_GRU);
    j.thread_scratch = (float *)r->scratch;
    (void)lay_out(&j);
    POME_TRY(find_activation(&j, P_gru_activation, "tanh", &j.act, err));
    POME_TRY(find_activation(&j, P_gru_recurrent_activation, "sigmoid", &j.recurrent_act, err));
    j.is_sequence = pome_in_bool(r, P_gru_output_sequence, false);
    j.is_reset_after = pome_in_bool(r, P_gru_reset_after, false);
    begin_direction(&j, &params, 0, P_gru_initial_h, -1);
    run_direction(&j, strcmp(pome_op_str(r->op, P_gru_direction, "forward"), "reverse") == 0, false);
    return POME_OK;
}

static pome_status lstm_run(const pome_run *r, pome_error *err)
{
    static const direction_params params = {P_lstm_weight_ih, P_lstm_weight_hh, P_lstm_bias, P_lstm_peephole, -1};
    static const direction_params back = {P_lstm_weight_ih_back, P_lstm_weight_hh_back, P_lstm_bias_back,
                                          P_lstm_peephole_back, -1};
    const char *direction = pome_op_str(r->op, P_lstm_direction, "forward");
    bool is_both = strcmp(direction, "bidirectional") == 0;
    cell j;
    set_sizes(&j, r, CELL_LSTM);
    j.thread_scratch = (float *)r->scratch;
    (void)lay_out(&j);
    POME_TRY(find_activation(&j, P_lstm_activation, "tanh", &j.act, err));
    POME_TRY(find_activation(&j, P_lstm_recurrent_activation, "sigmoid", &j.recurrent_act, err));
    POME_TRY(find_activation(&j, P_lstm_cell_activation, "tanh", &j.cell_act, err));
    j.clip = (float)pome_in_float(r, P_lstm_clip, (double)INFINITY);
    j.is_sequence = pome_in_bool(r, P_lstm_output_sequence, false);
    begin_direction(&j, &params, 0, P_lstm_initial_h, P_lstm_initial_c);
    run_direction(&j, strcmp(direction, "reverse") == 0, false);
    if (is_both) {
        begin_direction(&j, &back, j.hidden, P_lstm_initial_h, P_lstm_initial_c);
        run_direction(&j, true, true);
    }
    return POME_OK;
}

static size_t rnn_scratch(const pome_run *r)
{
    return scratch_bytes(r, CELL_RNN);
}
static size_t gru_scratch(const pome_run *r)
{
    return scratch_bytes(r, CELL_GRU);
}
static size_t lstm_scratch(const pome_run *r)
{
    return scratch_bytes(r, CELL_LSTM);
}

#define RNN_AS_IS (POME_BIT(P_rnn_weight_ih) | POME_BIT(P_rnn_weight_hh) | POME_BIT(P_rnn_bias))
#define GRU_AS_IS                                                                                  \
    (POME_BIT(P_gru_weight_ih) | POME_BIT(P_gru_weight_hh) | POME_BIT(P_gru_bias) | POME_BIT(P_gru_input_bias))
#define LSTM_AS_IS                                                                                 \
    (POME_BIT(P_lstm_weight_ih) | POME_BIT(P_lstm_weight_hh) | POME_BIT(P_lstm_bias) | POME_BIT(P_lstm_peephole) | \
     POME_BIT(P_lstm_weight_ih_back) | POME_BIT(P_lstm_weight_hh_back) | POME_BIT(P_lstm_bias_back) | \
     POME_BIT(P_lstm_peephole_back))

const pome_op_impl pome_ops_recurrent[] = {
    {.id = POME_OP_rnn, .f16_ok = RNN_AS_IS, .encoded_ok = RNN_AS_IS, .scratch = rnn_scratch, .run = rnn_run},
    {.id = POME_OP_gru, .f16_ok = GRU_AS_IS, .encoded_ok = GRU_AS_IS, .scratch = gru_scratch, .run = gru_run},
    {.id = POME_OP_lstm, .f16_ok = LSTM_AS_IS, .encoded_ok = LSTM_AS_IS, .scratch = lstm_scratch, .run = lstm_run},
};
POME_FAMILY_COUNT(recurrent)
