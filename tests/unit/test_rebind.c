/* Binding again what changed: whatever was bound and run before, a run must give what an exec that was made just now gives,
 * to the bit. Random programs, run with shapes that grow, shrink, jump, stay and vanish, with positions that move, inputs that
 * lie elsewhere or have strides, and with reservations and failed bindings in between. */
#include "program_builder.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/f16.h"
#include "passes/pass.h"
#include "pome/predictor.h"
#include "runtime/exec_internal.h"

enum { WIDTH = 8, ROWS_MAX = 300, N_PROGRAMS = 300, N_RUNS = 30, N_VALUES = 64, STATE_ROWS = 200, FIXED_ROWS = 4 };

static uint64_t random_state;

static uint32_t below(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}
static bool one_in(uint32_t n)
{
    return below(n) == 0;
}

/* A value [rows, WIDTH]; values of one kind have as many rows. */
typedef struct rows_value {
    pome_value *v;
    int kind;
    bool is_half;
} rows_value;

enum { KIND_A, KIND_B, KIND_FIXED, KIND_ONE, KIND_SQUARE, KIND_STATE, KIND_NEW };

typedef struct maker {
    pome_program *program;
    pome_function *fn;
    pome_value *position, *state;
    rows_value values[N_VALUES];
    uint32_t n;
    int n_kinds;
} maker;

static void give(maker *m, pome_value *v, int kind, bool is_half)
{
    if (m->n < N_VALUES)
        m->values[m->n++] = (rows_value){v, kind, is_half};
}

static pome_value *op1(maker *m, const char *name, const char *param, pome_value *x)
{
    return make_op(m->fn, m->fn->body, name, 1, param, x, NULL)->out[0];
}

static pome_value *turned(maker *m, pome_value *x)
{
    return make_op(m->fn, m->fn->body, "transpose", 1, "x", x, "perm", make_ints(m->fn, 2, DIMS(1, 0)), NULL)->out[0];
}

static pome_value *reshaped(maker *m, pome_value *x, pome_value *shape)
{
    return make_op(m->fn, m->fn->body, "reshape", 1, "x", x, "shape", shape, NULL)->out[0];
}

static pome_value *joined(maker *m, pome_value *x, pome_value *y, int axis)
{
    return make_op(m->fn, m->fn->body, "concat", 1, "values", x, "values", y, "axis", make_int(m->fn, axis), "interleave",
                   make_bool(m->fn, false), NULL)->out[0];
}

static pome_value *half_or_float(maker *m, const rows_value *x, bool is_half)
{
    if (x->is_half == is_half)
        return x->v;
    return make_op(m->fn, m->fn->body, "cast", 1, "x", x->v, "dtype", make_string(m->fn, is_half ? "fp16" : "fp32"), NULL)->out[0];
}

static pome_value *from_position(maker *m, pome_value *x)
{
    pome_value *begin = joined(m, m->position, make_ints(m->fn, 1, DIMS(0)), 0);
    return make_op(m->fn, m->fn->body, "slice_by_index", 1, "x", x, "begin", begin, "end", make_ints(m->fn, 2, DIMS(0, 0)),
                   "end_mask", make_const(m->fn, POME_DTYPE_BOOL, 1, DIMS(2), (const double[]){1, 1}), NULL)->out[0];
}

static pome_value *rows(maker *m, pome_value *x) /* [1] */
{
    return make_op(m->fn, m->fn->body, "gather", 1, "x", op1(m, "shape", "x", x), "indices", make_ints(m->fn, 1, DIMS(0)), "axis",
                   make_int(m->fn, 0), NULL)->out[0];
}

/* In the middle of the state, from the position on; what was seen of the state before must stay as it was. */
static void write_at_position(maker *m, const rows_value *x)
{
    pome_value *value = half_or_float(m, x, true);
    if (one_in(2))
        value = turned(m, op1(m, "sigmoid", "x", turned(m, value)));
    pome_value *old = op1(m, "read_state", "input", m->state);
    if (one_in(2))
        give(m, from_position(m, old), m->n_kinds++, true);
    if (one_in(2))
        give(m, turned(m, turned(m, old)), KIND_STATE, true);
    if (one_in(2))
        give(m, reshaped(m, turned(m, from_position(m, old)), make_ints(m->fn, 2, DIMS(-1, WIDTH))), m->n_kinds++, true);
    pome_value *end = make_op(m->fn, m->fn->body, "add", 1, "x", m->position, "y", rows(m, x->v), NULL)->out[0];
    pome_value *begin = joined(m, m->position, make_ints(m->fn, 1, DIMS(0)), 0);
    pome_value *updated = make_op(m->fn, m->fn->body, "slice_update", 1, "x", old, "update", value, "begin", begin, "end",
                                  joined(m, end, make_ints(m->fn, 1, DIMS(WIDTH)), 0), NULL)->out[0];
    make_op(m->fn, m->fn->body, "write_state", 0, "input", m->state, "data", updated, NULL);
    pome_value *now = op1(m, "read_state", "input", m->state);
    give(m, now, KIND_STATE, true);
    give(m, from_position(m, now), m->n_kinds++, true);
}

static pome_value *leading(maker *m, pome_value *x)
{
    return make_op(m->fn, m->fn->body, "expand_dims", 1, "x", x, "axes", make_ints(m->fn, 1, DIMS(0)), NULL)->out[0];
}

static pome_value *square(maker *m, pome_value *x)
{
    return make_op(m->fn, m->fn->body, "matmul", 1, "x", turned(m, x), "y", x, "transpose_x", make_bool(m->fn, false), "transpose_y",
                   make_bool(m->fn, false), NULL)->out[0];
}

static pome_value *weight(maker *m, bool is_half)
{
    double w[WIDTH * WIDTH];
    for (int i = 0; i < WIDTH * WIDTH; i++)
        w[i] = (double)below(64) / 32 - 1;
    return make_const(m->fn, is_half ? POME_DTYPE_F16 : POME_DTYPE_F32, 2, DIMS(WIDTH, WIDTH), w);
}

static void add_step(maker *m)
{
    pome_function *fn = m->fn;
    const rows_value x = m->values[one_in(3) ? m->n - 1 : below(m->n)], y = m->values[below(m->n)];
    pome_value *t;
    switch (below(20)) {
    case 0: give(m, op1(m, "sigmoid", "x", x.v), x.kind, x.is_half); break;
    case 1:
        if (x.kind == y.kind || y.kind == KIND_ONE)
            give(m, make_op(fn, fn->body, "add", 1, "x", x.v, "y", half_or_float(m, &y, x.is_half), NULL)->out[0], x.kind, x.is_half);
        break;
    case 2: /* the square of a turned view */
        give(m, square(m, x.v), KIND_SQUARE, x.is_half);
        break;
    case 3: /* a view where rows are one, else a copy */
        give(m, reshaped(m, turned(m, x.v), make_ints(fn, 2, DIMS(-1, WIDTH))), x.kind, x.is_half);
        break;
    case 4: give(m, turned(m, op1(m, "softmax", "x", turned(m, x.v))), x.kind, x.is_half); break;
    case 5: give(m, from_position(m, x.v), m->n_kinds++, x.is_half); break;
    case 6: give(m, joined(m, x.v, half_or_float(m, &y, x.is_half), 0), m->n_kinds++, x.is_half); break;
    case 7: give(m, make_op(fn, fn->body, "cumsum", 1, "x", half_or_float(m, &x, false), NULL)->out[0], x.kind, false); break;
    case 8:
        if (x.kind == KIND_FIXED || x.kind == KIND_A || x.kind == KIND_B)
            write_at_position(m, &x);
        break;
    case 9: /* sizes computed from sizes */
        t = op1(m, "fill", "shape", op1(m, "shape", "x", x.v));
        give(m, make_op(fn, fn->body, "sub", 1, "x", t, "y", half_or_float(m, &x, false), NULL)->out[0], x.kind, false);
        break;
    case 10:
        t = make_op(fn, fn->body, "reduce_sum", 1, "x", x.v, "axes", make_ints(fn, 1, DIMS(0)), "keep_dims", make_bool(fn, true), NULL)->out[0];
        give(m, t, KIND_ONE, x.is_half);
        break;
    case 11:
        give(m, make_op(fn, fn->body, "layer_norm", 1, "x", x.v, "axes", make_ints(fn, 1, DIMS(1)), NULL)->out[0], x.kind, x.is_half);
        break;
    case 12:
        give(m, make_op(fn, fn->body, "linear", 1, "x", x.v, "weight", weight(m, x.is_half), NULL)->out[0], x.kind, x.is_half);
        break;
    case 13: { /* several results */
        pome_op *s = make_op(fn, fn->body, "split", 2, "x", x.v, "num_splits", make_int(fn, 2), "axis", make_int(fn, 1), NULL);
        give(m, joined(m, s->out[1], s->out[0], 1), x.kind, x.is_half);
        break;
    }
    case 14: { /* contents that depend on the number of rows, in a place of fixed size */
        pome_value *rows = op1(m, "shape", "x", x.v);
        pome_value *floats = make_op(fn, fn->body, "cast", 1, "x", rows, "dtype", make_string(fn, "fp32"), NULL)->out[0];
        t = make_op(fn, fn->body, "tile", 1, "x", floats, "reps", make_ints(fn, 1, DIMS(WIDTH / 2)), NULL)->out[0];
        give(m, reshaped(m, t, make_ints(fn, 2, DIMS(1, WIDTH))), KIND_ONE, false);
        break;
    }
    case 15: /* repeated once, twice or not at all, as the position says */
        t = make_op(fn, fn->body, "mod", 1, "x", m->position, "y", make_ints(fn, 1, DIMS(3)), NULL)->out[0];
        t = joined(m, t, make_ints(fn, 1, DIMS(1)), 0);
        give(m, make_op(fn, fn->body, "tile", 1, "x", x.v, "reps", t, NULL)->out[0], m->n_kinds++, x.is_half);
        break;
    case 16: /* scratch memory that grows with the rows of both */
        if (x.kind >= KIND_NEW || y.kind >= KIND_NEW)
            break;
        t = make_op(fn, fn->body, "scaled_dot_product_attention", 1, "query", leading(m, x.v), "key", leading(m, half_or_float(m, &y, x.is_half)),
                    "value", leading(m, half_or_float(m, &y, x.is_half)), NULL)->out[0];
        give(m, make_op(fn, fn->body, "squeeze", 1, "x", t, "axes", make_ints(fn, 1, DIMS(0)), NULL)->out[0], x.kind, x.is_half);
        break;
    case 17: { /* as many contents known when binding as there are rows */
        pome_value *n = make_op(fn, fn->body, "squeeze", 1, "x", rows(m, x.v), NULL)->out[0];
        t = make_op(fn, fn->body, "range_1d", 1, "end", n, "start", make_int(fn, 0), "step", make_int(fn, 1), NULL)->out[0];
        t = make_op(fn, fn->body, "cast", 1, "x", t, "dtype", make_string(fn, "fp32"), NULL)->out[0];
        t = reshaped(m, t, make_ints(fn, 2, DIMS(-1, 1)));
        give(m, make_op(fn, fn->body, "mul", 1, "x", half_or_float(m, &x, false), "y", t, NULL)->out[0], x.kind, false);
        break;
    }
    case 18: /* rows in another order, by scratch memory */
        t = make_op(fn, fn->body, "argsort", 1, "x", half_or_float(m, &x, false), "axis", make_int(fn, 0), NULL)->out[0];
        t = make_op(fn, fn->body, "gather_along_axis", 1, "x", half_or_float(m, &x, false), "indices", t, "axis", make_int(fn, 0), NULL)->out[0];
        give(m, t, x.kind, false);
        break;
    case 19: give(m, half_or_float(m, &x, !x.is_half), x.kind, !x.is_half); break;
    }
}

/* Only work memory grows with the rows, no result does. */
static void narrow_inputs(maker *m)
{
    pome_value *query = leading(m, half_or_float(m, &m->values[2], true)), *b = leading(m, m->values[1].v);
    pome_value *t = make_op(m->fn, m->fn->body, "scaled_dot_product_attention", 1, "query", query, "key", b, "value", b, NULL)->out[0];
    t = make_op(m->fn, m->fn->body, "squeeze", 1, "x", t, "axes", make_ints(m->fn, 1, DIMS(0)), NULL)->out[0];
    give(m, square(m, m->values[1].v), KIND_SQUARE, true);
    m->values[0] = (rows_value){square(m, m->values[0].v), KIND_SQUARE, false};
    m->values[1] = (rows_value){t, KIND_FIXED, true};
}

static void make_program(maker *m)
{
    *m = (maker){.n_kinds = KIND_NEW};
    m->fn = make_function(&m->program, POME_OPSET_IOS18);
    give(m, make_input(m->fn, "a", POME_DTYPE_F32, 2, DIMS(-1, WIDTH)), KIND_A, false);
    give(m, make_input(m->fn, "b", POME_DTYPE_F16, 2, DIMS(-1, WIDTH)), KIND_B, true);
    give(m, make_input(m->fn, "fixed", POME_DTYPE_F32, 2, DIMS(FIXED_ROWS, WIDTH)), KIND_FIXED, false);
    m->position = make_input(m->fn, "position", POME_DTYPE_I32, 1, DIMS(1));
    m->state = make_value(m->fn, "state", POME_TYPE_STATE, POME_DTYPE_F16, 2, DIMS(STATE_ROWS, WIDTH));
    append_value(m->fn->arena, &m->fn->inputs, &m->fn->n_inputs, m->state);
    if (one_in(2))
        write_at_position(m, &m->values[below(3)]);
    if (one_in(3))
        narrow_inputs(m);
    for (uint32_t i = 0, n = 6 + below(20); i < n; i++)
        add_step(m);
    for (uint32_t i = 3, last = m->n; i < last; i++) /* everything is looked at, but for a few */
        if (!one_in(4))
            block_output(m->fn, m->fn->body, m->values[i].v);
    if (!m->fn->body->n_outputs)
        block_output(m->fn, m->fn->body, op1(m, "sigmoid", "x", m->values[0].v));
}

/* ---- running ---- */

typedef struct inputs {
    float a[2][ROWS_MAX * WIDTH], fixed[2][FIXED_ROWS * WIDTH];
    uint16_t b[2][ROWS_MAX * WIDTH], state[2][STATE_ROWS * WIDTH];
    int32_t position[2][1];
    pome_tensor t[4], states[1];
    const pome_tensor *state_list[1];
} inputs;

static inputs in;

static void fill_inputs(void)
{
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < ROWS_MAX * WIDTH; i++) {
            in.a[k][i] = (float)below(4096) / 1024 - 2;
            in.b[k][i] = pome_f32_to_f16((float)below(4096) / 1024 - 2);
        }
        for (int i = 0; i < FIXED_ROWS * WIDTH; i++)
            in.fixed[k][i] = (float)below(4096) / 1024 - 2;
    }
}

static int64_t next_rows(int64_t now)
{
    static const int64_t jumps[] = {1, 1, 0, 2, 3, 17, 64, 65, 100, ROWS_MAX / 2};
    int64_t next = now;
    switch (below(6)) {
    case 0: next = jumps[below(10)]; break;
    case 1: next = now + 1 + below(3); break;
    case 2: next = now ? now - 1 : 1; break;
    default: break;
    }
    return next <= ROWS_MAX / 2 ? next : 1;
}

static pome_tensor rows_of(void *data, pome_dtype dtype, int64_t rows)
{
    return pome_tensor_borrow(data, dtype, 2, DIMS(rows, WIDTH));
}

/* The next inputs: mostly those that there were, in other memory or with other sizes now and then. */
static void change_inputs(bool is_first)
{
    static int at[4], state_at;
    static int64_t n_a, n_b, position;
    if (is_first)
        n_a = 1 + below(20), n_b = 1 + below(20), position = below(3);
    if (one_in(2))
        n_a = next_rows(n_a);
    if (one_in(3))
        n_b = next_rows(n_b);
    if (one_in(2))
        position = one_in(3) ? STATE_ROWS - 2 + below(3) : one_in(3) ? below(STATE_ROWS) : (position + 1) % 6;
    for (int i = 0; i < 4; i++)
        at[i] ^= one_in(5);
    if (one_in(2))
        fill_inputs();
    in.position[0][0] = in.position[1][0] = (int32_t)position;
    in.t[0] = rows_of(in.a[at[0]], POME_DTYPE_F32, n_a);
    if (one_in(6))
        in.t[0].stride[0] *= 2;
    in.t[1] = rows_of(in.b[at[1]], POME_DTYPE_F16, n_b);
    in.t[2] = rows_of(in.fixed[at[2]], POME_DTYPE_F32, FIXED_ROWS);
    in.t[3] = pome_tensor_borrow(in.position[at[3]], POME_DTYPE_I32, 1, DIMS(1));
    if (one_in(8)) {
        memcpy(in.state[!state_at], in.state[state_at], sizeof in.state[0]);
        state_at = !state_at;
    }
    in.states[0] = rows_of(in.state[state_at], POME_DTYPE_F16, STATE_ROWS);
    in.state_list[0] = &in.states[0];
}

static bool is_equal(const pome_tensor *a, const pome_tensor *b)
{
    pome_tensor x, y;
    if (a->dtype != b->dtype || a->rank != b->rank || memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) != 0)
        return false;
    assert_int_equal(pome_tensor_clone(&x, a, NULL), POME_OK);
    assert_int_equal(pome_tensor_clone(&y, b, NULL), POME_OK);
    bool same = pome_tensor_size_bytes(&x) == 0 || memcmp(x.data, y.data, pome_tensor_size_bytes(&x)) == 0;
    pome_tensor_reset(&x);
    pome_tensor_reset(&y);
    return same;
}

/* What a step works in lies in what is set aside for it. */
static void check_places(const pome_exec *e, uint32_t program, uint32_t run)
{
    for (uint32_t i = 0; i < e->plan->body->n_steps; i++) {
        const pome_step *s = &e->plan->body->steps[i];
        const pome_exec_step *x = &e->body.steps[i];
        if (s->kind != POME_STEP_TENSOR || x->is_view || x->is_copied_view)
            continue;
        size_t size = pome_exec_scratch(e, s, x), room = x->scratch_place.room;
        if (size > room || (size && ((char *)x->scratch != e->main_base + x->scratch_place.offset ||
                                     x->scratch_place.offset + room > e->main.size)))
            fail_msg("program %u, run %u, step %u: %zu bytes of scratch memory where there are %zu", program, run, i, size, room);
    }
}

static bool run_and_compare(const pome_plan *plan, pome_exec *used, uint32_t program, uint32_t run)
{
    static uint16_t state_before[STATE_ROWS * WIDTH], state_after[STATE_ROWS * WIDTH];
    pome_exec *fresh;
    pome_error err;
    assert_int_equal(pome_exec_create(&fresh, plan, NULL, &err), POME_OK);
    memcpy(state_before, in.states[0].data, sizeof state_before);
    pome_status status = pome_exec_run(used, in.t, in.state_list, &err);
    memcpy(state_after, in.states[0].data, sizeof state_after);
    if (status == POME_OK)
        check_places(used, program, run);
    memcpy(in.states[0].data, state_before, sizeof state_before);
    assert_int_equal(pome_exec_run(fresh, in.t, in.state_list, &err), status);
    if (memcmp(in.states[0].data, state_after, sizeof state_after) != 0)
        fail_msg("program %u, run %u: another state", program, run);
    for (uint32_t o = 0; status == POME_OK && o < plan->body->n_outputs; o++)
        if (!is_equal(pome_exec_output(used, o), pome_exec_output(fresh, o)))
            fail_msg("program %u, run %u: output %u is not that of an exec made for it", program, run, o);
    pome_exec_destroy(&fresh);
    return status == POME_OK;
}

static void reserve(pome_exec *e)
{
    pome_error err;
    pome_tensor shapes[4] = {rows_of(NULL, POME_DTYPE_F32, 1 + below(ROWS_MAX / 2)), rows_of(NULL, POME_DTYPE_F16, 1 + below(ROWS_MAX / 2)),
                             in.t[2], in.t[3]};
    pome_status ignored = pome_exec_reserve(e, shapes, &err); /* what fails must do no harm either */
    (void)ignored;
}

static void test_random_programs(void **unused)
{
    (void)unused;
    pome_kernels kernels;
    pome_error err = {0};
    uint32_t n_good = 0, n_ran = 0;
    pome_kernels_init(&kernels, pome_cpu_level_get());
    for (uint32_t program = 0; program < N_PROGRAMS; program++) {
        maker m;
        pome_plan *plan;
        pome_exec *used;
        random_state = 77 + program;
        make_program(&m);
        const pome_plan_opts opts = {.numerics = program % 3 == 2 ? POME_NUMERICS_FP16 : POME_NUMERICS_EXACT, .kernels = &kernels,
                                     .last_row_output = -1, .no_fuse = program % 2 ? 0 : UINT32_MAX};
        if (pome_program_verify(m.program, &err) != POME_OK || pome_pass_encode(m.program, &err) != POME_OK ||
            pome_plan_create(&plan, m.fn, &opts, &err) != POME_OK) {
            fprintf(stderr, "program %u: %s\n", program, err.message);
            pome_program_destroy(&m.program);
            continue;
        }
        n_good++;
        assert_int_equal(pome_exec_create(&used, plan, NULL, &err), POME_OK);
        fill_inputs();
        memset(in.state, 0, sizeof in.state);
        for (uint32_t run = 0; run < N_RUNS; run++) {
            change_inputs(run == 0);
            if (one_in(12))
                reserve(used);
            n_ran += run_and_compare(plan, used, program, run);
        }
        pome_exec_destroy(&used);
        pome_plan_destroy(&plan);
        pome_program_destroy(&m.program);
    }
    assert_true(n_good > N_PROGRAMS * 3 / 4 && n_ran > n_good * N_RUNS / 2); /* the rest are errors, the same for both */
}

/* ---- predictors over whole models ---- */

enum { INPUTS_MAX = 16, CONTEXT = 128, N_PREDICTIONS = 40, BOUND_BYTES = 1 << 20 };

static float any_floats[CONTEXT * CONTEXT * 4];
static int32_t any_ids[CONTEXT * 4];

static pome_tensor any_input(const pome_feature *f, int64_t n_new, int64_t n_before)
{
    static int32_t position[1];
    pome_tensor t = {.dtype = pome_dtype_is_int(f->dtype) ? POME_DTYPE_I32 : POME_DTYPE_F32, .rank = f->rank};
    memcpy(t.shape, f->shape, sizeof t.shape);
    for (uint32_t k = 0; k < f->n_enumerated; k++) /* all of one place in the lists: the sizes in the packages */
        if (k == (n_new == 1 ? 0u : n_new < 16 ? 1u : 2u) % f->n_enumerated)
            memcpy(t.shape, f->enumerated + k * (size_t)f->rank, (size_t)f->rank * sizeof t.shape[0]);
    for (int32_t d = 0; d < f->rank && f->is_ranged && !f->n_enumerated; d++)
        if (f->range[d].max != f->range[d].min)
            t.shape[d] = f->rank == 4 && d == 3 ? n_before + n_new : n_new;
    t = pome_tensor_borrow(pome_dtype_is_int(f->dtype) ? (void *)any_ids : any_floats, t.dtype, t.rank, t.shape);
    if (t.dtype == POME_DTYPE_I32 && pome_tensor_count(&t) == 1 && f->n_enumerated == 0 && !f->is_ranged) {
        position[0] = (int32_t)n_before;
        t.data = position;
    }
    return pome_tensor_size_bytes(&t) <= sizeof any_floats ? t : (pome_tensor){0};
}

static void copy_states(pome_state *to, pome_state *from, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        memcpy(pome_state_tensor(to, i)->data, pome_state_tensor(from, i)->data, pome_tensor_size_bytes(pome_state_tensor(to, i)));
}

static void maybe_reserve(pome_predictor *p, const pome_function_info *f, const pome_tensor *in_now)
{
    int64_t shapes[INPUTS_MAX][POME_MAX_RANK] = {{0}};
    pome_error err;
    for (uint32_t i = 0; i < f->n_inputs; i++)
        memcpy(shapes[i], in_now[i].shape, (size_t)f->inputs[i].rank * sizeof shapes[i][0]);
    pome_status ignored = one_in(8) ? pome_predictor_reserve(p, (const int64_t(*)[POME_MAX_RANK])shapes, &err) : POME_OK;
    (void)ignored;
}

static void compare_predictors(pome_model *model, const pome_function_info *f, int n_threads)
{
    static uint8_t bound[4][BOUND_BYTES];
    pome_predictor *used;
    pome_state *state, *copy;
    pome_error err;
    uint32_t n_ran = 0;
    assert_int_equal(pome_predictor_create(&used, model, f->name, NULL, &err), POME_OK);
    assert_int_equal(pome_state_create(&state, model, f->name, &err), POME_OK);
    assert_int_equal(pome_state_create(&copy, model, f->name, &err), POME_OK);
    int64_t n_before = 0, n_new = 5;
    for (uint32_t run = 0; run < N_PREDICTIONS; run++) {
        pome_predictor *fresh;
        pome_tensor now[INPUTS_MAX];
        assert_int_equal(pome_predictor_create(&fresh, model, f->name, NULL, &err), POME_OK);
        for (size_t i = 0; i < sizeof any_floats / sizeof any_floats[0]; i++)
            any_floats[i] = (float)below(4096) / 1024 - 2;
        for (size_t i = 0; i < sizeof any_ids / sizeof any_ids[0]; i++)
            any_ids[i] = (int32_t)below(500);
        for (uint32_t i = 0; i < f->n_inputs; i++) {
            int64_t other = one_in(40) ? n_new + 1 : n_new; /* sizes that do not go together */
            now[i] = any_input(&f->inputs[i], other, n_before);
            assert_true(now[i].rank > 0);
            pome_status a = pome_predictor_set_input(used, i, &now[i], &err), b = pome_predictor_set_input(fresh, i, &now[i], &err);
            assert_int_equal(a, b);
        }
        maybe_reserve(used, f, now);
        copy_states(copy, state, f->n_states);
        pome_status wanted = pome_predictor_run(fresh, copy, &err);
        for (uint32_t o = 0; o < f->n_outputs && o < 4 && wanted == POME_OK; o++) {
            const pome_tensor *out = pome_predictor_output(fresh, o);
            pome_tensor t = pome_tensor_borrow(bound[o], out->dtype, out->rank, out->shape);
            bool is_bound = one_in(2) && pome_tensor_size_bytes(&t) <= BOUND_BYTES;
            assert_int_equal(pome_predictor_bind_output(used, o, is_bound ? &t : NULL, &err), POME_OK);
        }
        assert_int_equal(pome_predictor_run(used, state, &err), wanted);
        for (uint32_t o = 0; o < f->n_outputs && wanted == POME_OK; o++)
            if (!is_equal(pome_predictor_output(used, o), pome_predictor_output(fresh, o)))
                fail_msg("%s, %d threads, run %u: output %u is not that of a new predictor", f->name, n_threads, run, o);
        for (uint32_t i = 0; i < f->n_states; i++)
            if (!is_equal(pome_state_tensor(state, i), pome_state_tensor(copy, i)))
                fail_msg("%s, %d threads, run %u: state %u is not that of a new predictor", f->name, n_threads, run, i);
        n_ran += wanted == POME_OK;
        n_before = one_in(8) ? below(60) : n_before + n_new;
        n_new = one_in(3) ? 1 + below(40) : 1;
        if (n_before + n_new > CONTEXT - 2)
            n_before = 0;
        pome_predictor_destroy(&fresh);
    }
    assert_true(n_ran > N_PREDICTIONS / 3);
    pome_state_destroy(&copy);
    pome_state_destroy(&state);
    pome_predictor_destroy(&used);
}

static void compare_model(const char *path, int n_threads, pome_numerics numerics)
{
    pome_model_opts opts;
    pome_model *model;
    pome_error err;
    pome_model_opts_default(&opts);
    opts.n_threads = n_threads;
    opts.numerics = numerics;
    random_state = 5;
    if (pome_model_open(&model, path, &opts, &err) != POME_OK)
        fail_msg("%s: %s", path, err.message);
    for (uint32_t i = 0; i < pome_model_describe(model)->n_functions; i++)
        compare_predictors(model, &pome_model_describe(model)->functions[i], n_threads);
    pome_model_close(&model);
}

static void test_models(void **unused)
{
    (void)unused;
    static const char *const names[] = {"apple/int4-block32", "snake/shift-fp16", "enumerated/stateful-int4", "explicit-kv/static-int4",
                                        "multifunction/int4-block32", "nocache/scores-range-fp32-tied", "apple/layer1-sparse50-int8"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/tests/golden/%s.mlpackage", POME_SOURCE_DIR, names[i]);
        compare_model(path, 1 + (int)(i % 3), i % 3 == 1 ? POME_NUMERICS_FP16 : i % 3 == 2 ? POME_NUMERICS_FAST : POME_NUMERICS_EXACT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_programs), cmocka_unit_test(test_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
