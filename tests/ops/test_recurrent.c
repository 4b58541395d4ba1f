#include <math.h>
#include <string.h>

#include "base/f16.h"
#include "op_test.h"

/* One layer with random sizes; everything is kept in doubles for the reference. */
typedef struct layer {
    int64_t steps, batch, n_in, hidden, gates, directions;
    pome_tensor x, h, c;                            /* h and c [batch, directions * hidden] */
    pome_tensor ih[2], hh[2], bias[2], peephole[2]; /* dtype NONE: not given */
    pome_tensor input_bias;
    const char *act, *recurrent_act, *cell_act, *direction;
    bool is_sequence, reset_after;
    double clip;
} layer;

enum { MAX = 20000 };
static double want_y[MAX], want_h[MAX], want_c[MAX];

static const char *const activations[] = {"tanh", "scaled_tanh", "sigmoid", "hard_sigmoid", "relu", "linear"};

static double activate(const char *name, double x)
{
    if (strcmp(name, "sigmoid") == 0)
        return 1 / (1 + exp(-x));
    if (strcmp(name, "hard_sigmoid") == 0)
        return 0.2 * x + 0.5 < 0 ? 0 : 0.2 * x + 0.5 > 1 ? 1 : 0.2 * x + 0.5;
    if (strcmp(name, "relu") == 0)
        return x > 0 ? x : 0;
    return strcmp(name, "linear") == 0 ? x : tanh(x);
}

static double optional_at(const pome_tensor *t, int64_t i)
{
    return t->dtype == POME_DTYPE_NONE ? 0 : op_test_at(t, i);
}

/* The input's and the state's share of one gate; biases of the state's side with the state. */
static double x_share(const layer *l, int d, int64_t t, int64_t b, int64_t row)
{
    double sum = optional_at(&l->input_bias, row);
    for (int64_t i = 0; i < l->n_in; i++)
        sum += op_test_at(&l->ih[d], row * l->n_in + i) * op_test_at(&l->x, (t * l->batch + b) * l->n_in + i);
    return sum;
}
static double h_share(const layer *l, int d, const double *h, int64_t row)
{
    double sum = optional_at(&l->bias[d], row);
    for (int64_t i = 0; i < l->hidden; i++)
        sum += op_test_at(&l->hh[d], row * l->hidden + i) * h[i];
    return sum;
}

static void cell(const layer *l, int d, int64_t t, int64_t b, double *h, double *c)
{
    int64_t n = l->hidden;
    double next[64], reset[64];
    for (int64_t u = 0; u < n && l->gates == 3; u++)
        reset[u] = activate(l->recurrent_act, x_share(l, d, t, b, u) + h_share(l, d, h, u)) * h[u];
    for (int64_t u = 0; u < n; u++) {
        if (l->gates == 1) {
            next[u] = activate(l->act, x_share(l, d, t, b, u) + h_share(l, d, h, u));
        } else if (l->gates == 3) {
            double r = activate(l->recurrent_act, x_share(l, d, t, b, u) + h_share(l, d, h, u));
            double z = activate(l->recurrent_act, x_share(l, d, t, b, 2 * n + u) + h_share(l, d, h, 2 * n + u));
            double inner = l->reset_after ? r * h_share(l, d, h, n + u) : h_share(l, d, reset, n + u);
            next[u] = (1 - z) * activate(l->act, x_share(l, d, t, b, n + u) + inner) + z * h[u];
        } else {
            double gate[4];
            for (int g = 0; g < 4; g++)
                gate[g] = x_share(l, d, t, b, g * n + u) + h_share(l, d, h, g * n + u);
            double i = activate(l->recurrent_act, gate[0] + optional_at(&l->peephole[d], u) * c[u]);
            double f = activate(l->recurrent_act, gate[1] + optional_at(&l->peephole[d], n + u) * c[u]);
            double m = f * c[u] + i * activate(l->cell_act, gate[3]);
            c[u] = m > l->clip ? l->clip : m < -l->clip ? -l->clip : m;
            double o = activate(l->recurrent_act, gate[2] + optional_at(&l->peephole[d], 2 * n + u) * c[u]);
            next[u] = o * activate(l->act, c[u]);
        }
    }
    memcpy(h, next, (size_t)n * sizeof *h);
}

static void reference(const layer *l)
{
    int64_t width = l->hidden * l->directions;
    bool reverse = strcmp(l->direction, "reverse") == 0;
    for (int d = 0; d < l->directions; d++)
        for (int64_t b = 0; b < l->batch; b++) {
            double h[64] = {0}, c[64] = {0};
            for (int64_t u = 0; u < l->hidden; u++) {
                h[u] = op_test_at(&l->h, b * width + d * l->hidden + u);
                c[u] = l->gates == 4 ? op_test_at(&l->c, b * width + d * l->hidden + u) : 0;
            }
            for (int64_t s = 0; s < l->steps; s++) {
                int64_t t = reverse || d == 1 ? l->steps - 1 - s : s, at = d == 1 ? t : s;
                cell(l, d, t, b, h, c);
                for (int64_t u = 0; u < l->hidden && l->is_sequence; u++)
                    want_y[(at * l->batch + b) * width + d * l->hidden + u] = h[u];
            }
            for (int64_t u = 0; u < l->hidden; u++) {
                int64_t at = b * width + d * l->hidden + u;
                want_h[at] = h[u];
                want_c[at] = c[u];
                if (!l->is_sequence)
                    want_y[at] = h[u];
            }
        }
}

static pome_tensor matrix(pome_dtype dtype, int64_t a, int64_t b, double size)
{
    int64_t shape[2] = {a, b};
    return op_test_tensor(dtype, 2, shape, -size, size);
}
static pome_tensor vector(pome_dtype dtype, int64_t n, bool is_given)
{
    return is_given ? op_test_tensor(dtype, 1, &n, -0.8, 0.8) : (pome_tensor){0};
}

static layer random_layer(int64_t gates, int round)
{
    pome_dtype dtype = round % 3 == 2 ? POME_DTYPE_F16 : POME_DTYPE_F32;
    static const char *const directions[] = {"forward", "reverse", "bidirectional"};
    layer l = {.gates = gates, .directions = gates == 4 && round % 3 == 1 ? 2 : 1, .clip = INFINITY};
    l.direction = l.directions == 2 ? directions[2] : directions[op_test_random_int(0, 1)];
    l.steps = round % 11 == 10 ? 0 : op_test_random_int(1, round % 7 == 0 ? 80 : 5);
    l.batch = op_test_random_int(1, 3);
    l.n_in = op_test_random_int(1, 9);
    l.hidden = round % 7 == 0 ? 2 : op_test_random_int(1, round % 5 == 0 ? 40 : 8);
    l.act = round % 2 ? activations[op_test_random_int(0, 5)] : "tanh";
    l.recurrent_act = round % 4 == 3 ? activations[op_test_random_int(0, 3)] : "sigmoid";
    l.cell_act = round % 4 == 1 ? activations[op_test_random_int(0, 3)] : "tanh";
    l.is_sequence = op_test_random_int(0, 1);
    l.reset_after = gates == 3 && op_test_random_int(0, 1);
    if (gates == 4 && op_test_random_int(0, 1))
        l.clip = 0.25; /* exact in half */
    double size = 1 / sqrt((double)l.hidden);
    int64_t x[3] = {l.steps, l.batch, l.n_in};
    l.x = op_test_tensor(dtype, 3, x, -1, 1);
    l.h = matrix(dtype, l.batch, l.directions * l.hidden, 1);
    l.c = matrix(dtype, l.batch, l.directions * l.hidden, 1);
    bool biased = op_test_random_int(0, 1), peep = gates == 4 && op_test_random_int(0, 1);
    for (int64_t d = 0; d < l.directions; d++) {
        l.ih[d] = matrix(dtype, gates * l.hidden, l.n_in, 1);
        l.hh[d] = matrix(dtype, gates * l.hidden, l.hidden, size);
        l.bias[d] = vector(dtype, gates * l.hidden, biased);
        l.peephole[d] = vector(dtype, 3 * l.hidden, peep);
    }
    l.input_bias = vector(dtype, gates * l.hidden, gates == 3 && op_test_random_int(0, 1));
    return l;
}

static void drop_layer(layer *l)
{
    pome_tensor *all[] = {&l->x,       &l->h,       &l->c,           &l->ih[0],       &l->ih[1],     &l->hh[0], &l->hh[1],
                          &l->bias[0], &l->bias[1], &l->peephole[0], &l->peephole[1], &l->input_bias};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        pome_tensor_reset(all[i]);
}

static void give(op_test *t, const char *param, const pome_tensor *x)
{
    if (x->dtype != POME_DTYPE_NONE)
        op_test_const(t, param, x);
}

static op_test *op_of(const layer *l)
{
    static const pome_op_id ids[] = {0, POME_OP_rnn, 0, POME_OP_gru, POME_OP_lstm};
    op_test *t = op_test_begin(ids[l->gates], POME_OPSET_IOS18);
    op_test_in(t, "x", &l->x);
    op_test_in(t, "initial_h", &l->h);
    if (l->gates == 4)
        op_test_in(t, "initial_c", &l->c);
    give(t, "weight_ih", &l->ih[0]);
    give(t, "weight_hh", &l->hh[0]);
    give(t, "bias", &l->bias[0]);
    op_test_const_str(t, "direction", l->direction);
    op_test_const_bool(t, "output_sequence", l->is_sequence);
    op_test_const_str(t, "activation", l->act);
    if (l->gates > 1)
        op_test_const_str(t, "recurrent_activation", l->recurrent_act);
    if (l->gates == 3) {
        give(t, "input_bias", &l->input_bias);
        op_test_const_bool(t, "reset_after", l->reset_after);
    }
    if (l->gates < 4)
        return t;
    op_test_const_str(t, "cell_activation", l->cell_act);
    give(t, "peephole", &l->peephole[0]);
    if (l->directions == 2) {
        give(t, "weight_ih_back", &l->ih[1]);
        give(t, "weight_hh_back", &l->hh[1]);
        give(t, "bias_back", &l->bias[1]);
        give(t, "peephole_back", &l->peephole[1]);
    }
    if (isfinite(l->clip) && l->x.dtype == POME_DTYPE_F16)
        op_test_const_f16(t, "clip", (float)l->clip);
    else if (isfinite(l->clip))
        op_test_const_f32(t, "clip", (float)l->clip);
    return t;
}

static void check(int64_t gates)
{
    for (int round = 0; round < 60; round++) {
        layer l = random_layer(gates, round);
        reference(&l);
        op_test *t = op_of(&l);
        assert_int_equal(op_test_run(t), POME_OK);
        int64_t width = l.directions * l.hidden;
        op_test_expect_shape(t, 0, 3, (int64_t[]){l.is_sequence ? l.steps : 1, l.batch, width});
        op_test_expect_shape(t, 1, 2, (int64_t[]){l.batch, width});
        op_test_expect(t, 0, want_y, 1e-4, 1e-5);
        op_test_expect(t, 1, want_h, 1e-4, 1e-5);
        if (gates == 4)
            op_test_expect(t, 2, want_c, 1e-4, 1e-5);
        op_test_end(t);
        drop_layer(&l);
    }
}

static void rnn_like_double(void **state)
{
    (void)state;
    check(1);
}
static void gru_like_double(void **state)
{
    (void)state;
    check(3);
}
static void lstm_like_double(void **state)
{
    (void)state;
    check(4);
}

/* Values of torch 2's nn.GRU (reset after the product) with all weights 0.5, biases 0.1 and 0.2, x = 1, h = 0.25. */
static void gru_like_torch(void **state)
{
    (void)state;
    static const double half[3] = {0.5, 0.5, 0.5}, first[3] = {0.1, 0.1, 0.1}, second[3] = {0.2, 0.2, 0.2}, one = 1,
                        quarter = 0.25;
    pome_tensor x = op_test_tensor_of(POME_DTYPE_F32, 3, (int64_t[]){1, 1, 1}, &one);
    pome_tensor h = op_test_tensor_of(POME_DTYPE_F32, 2, (int64_t[]){1, 1}, &quarter);
    pome_tensor w = op_test_tensor_of(POME_DTYPE_F32, 2, (int64_t[]){3, 1}, half);
    pome_tensor bi = op_test_tensor_of(POME_DTYPE_F32, 1, (int64_t[]){3}, first);
    pome_tensor bh = op_test_tensor_of(POME_DTYPE_F32, 1, (int64_t[]){3}, second);
    op_test *t = op_test_begin(POME_OP_gru, POME_OPSET_IOS18);
    op_test_in(t, "x", &x);
    op_test_in(t, "initial_h", &h);
    op_test_const(t, "weight_ih", &w);
    op_test_const(t, "weight_hh", &w);
    op_test_const(t, "bias", &bh);
    op_test_const(t, "input_bias", &bi);
    op_test_const_bool(t, "reset_after", true);
    assert_int_equal(op_test_run(t), POME_OK);
    static const double want[] = {0.37264329030687376};
    op_test_expect(t, 1, want, 1e-6, 0);
    op_test_end(t);
    pome_tensor_reset(&x);
    pome_tensor_reset(&h);
    pome_tensor_reset(&w);
    pome_tensor_reset(&bi);
    pome_tensor_reset(&bh);
}

/* t [rows, n] and two rows of 9 below. */
static pome_tensor with_more_rows(const pome_tensor *t)
{
    double values[256];
    int64_t n = pome_tensor_count(t), shape[2] = {t->shape[0] + 2, t->shape[1]};
    for (int64_t i = 0; i < shape[0] * shape[1]; i++)
        values[i] = i < n ? op_test_at(t, i) : 9;
    return op_test_tensor_of(t->dtype, 2, shape, values);
}

static void rows_beyond_the_batch_are_not_read(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        layer l = random_layer((int[]){1, 3, 4}[i % 3], 1 + i / 3);
        reference(&l);
        pome_tensor h = with_more_rows(&l.h), c = with_more_rows(&l.c);
        pome_tensor_reset(&l.h);
        pome_tensor_reset(&l.c);
        l.h = h;
        l.c = c;
        op_test *t = op_of(&l);
        assert_int_equal(op_test_run(t), POME_OK);
        op_test_expect_shape(t, 1, 2, (int64_t[]){l.batch, l.directions * l.hidden});
        op_test_expect(t, 0, want_y, 1e-4, 1e-5);
        op_test_expect(t, 1, want_h, 1e-4, 1e-5);
        op_test_end(t);
        drop_layer(&l);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rnn_like_double),
        cmocka_unit_test(gru_like_double),
        cmocka_unit_test(lstm_like_double),
        cmocka_unit_test(gru_like_torch),
        cmocka_unit_test(rows_beyond_the_batch_are_not_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
