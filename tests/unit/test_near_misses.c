/* Graphs that look nearly like what fusions recognize: whatever a pass makes of them, values must be those of the plan without
 * fusions. The graph that is recognized stands beside each group, to show that the others miss it by little. */
#include "program_builder.h"

#include <math.h>
#include <stdio.h>

#include "passes/pass.h"
#include "runtime/exec.h"

enum { N_INPUTS = 6, B = 2, S = 3, W = 8, ELEMENTS = B * S * W };

typedef struct graph {
    pome_program *program;
    pome_function *fn;
    pome_value *x, *y, *cos, *sin, *other, *tall; /* [2, 3, 8] x, y; [3, 8]; tall [5, 1, 1, 8] */
} graph;

static pome_value *op1(graph *g, const char *name, const char *param, pome_value *x)
{
    return make_op(g->fn, g->fn->body, name, 1, param, x, NULL)->out[0];
}

static pome_value *op2(graph *g, const char *name, pome_value *x, pome_value *y)
{
    return make_op(g->fn, g->fn->body, name, 1, "x", x, "y", y, NULL)->out[0];
}

static pome_value *part(graph *g, pome_value *x, int64_t begin, int64_t end)
{
    return make_op(g->fn, g->fn->body, "slice_by_index", 1, "x", x, "begin", make_ints(g->fn, 3, DIMS(0, 0, begin)), "end",
                   make_ints(g->fn, 3, DIMS(B, S, end)), NULL)->out[0];
}

static pome_value *joined(graph *g, pome_value *x, pome_value *y, bool interleave)
{
    return make_op(g->fn, g->fn->body, "concat", 1, "values", x, "values", y, "axis", make_int(g->fn, -1), "interleave",
                   make_bool(g->fn, interleave), NULL)->out[0];
}

static pome_value *times(graph *g, double factor, pome_value *x)
{
    return op2(g, "mul", x, make_float(g->fn, factor));
}

static pome_value *table(graph *g, pome_value *t, int64_t begin, int64_t end)
{
    return make_op(g->fn, g->fn->body, "slice_by_index", 1, "x", t, "begin", make_ints(g->fn, 2, DIMS(0, begin)), "end",
                   make_ints(g->fn, 2, DIMS(S, end)), NULL)->out[0];
}

/* ---- rotary embedding ---- */

/* x cos + concat(first, second) sin */
static pome_value *turned(graph *g, pome_value *x, pome_value *first, pome_value *second, bool interleave, pome_value *cos)
{
    return op2(g, "add", op2(g, "mul", x, cos), op2(g, "mul", joined(g, first, second, interleave), g->sin));
}

/* concat(a cos - b sin, b cos2 + a sin2) */
static pome_value *by_halves(graph *g, pome_value *cos2, pome_value *sin2, const char *minus, const char *plus, bool interleave)
{
    pome_value *a = part(g, g->x, 0, W / 2), *b = part(g, g->x, W / 2, W), *cos = table(g, g->cos, 0, W / 2), *sin = table(g, g->sin, 0, W / 2);
    cos2 = cos2 ? cos2 : cos;
    sin2 = sin2 ? sin2 : sin;
    return joined(g, op2(g, minus, op2(g, "mul", a, cos), op2(g, "mul", b, sin)),
                  op2(g, plus, op2(g, "mul", b, cos2), op2(g, "mul", a, sin2)), interleave);
}

/* concat(p cos - q sin, r cos + t sin) */
static pome_value *of_parts(graph *g, pome_value *p, pome_value *q, pome_value *r, pome_value *t)
{
    pome_value *cos = table(g, g->cos, 0, W / 2), *sin = table(g, g->sin, 0, W / 2);
    return joined(g, op2(g, "sub", op2(g, "mul", p, cos), op2(g, "mul", q, sin)),
                  op2(g, "add", op2(g, "mul", r, cos), op2(g, "mul", t, sin)), false);
}

/* One of a batch, with a table that makes two of it. */
static pome_value *widened(graph *g)
{
    pome_value *one = make_op(g->fn, g->fn->body, "slice_by_index", 1, "x", g->x, "begin", make_ints(g->fn, 3, DIMS(0, 0, 0)), "end",
                              make_ints(g->fn, 3, DIMS(1, S, W)), NULL)->out[0];
    pome_value *half[2];
    for (int k = 0; k < 2; k++)
        half[k] = make_op(g->fn, g->fn->body, "slice_by_index", 1, "x", one, "begin", make_ints(g->fn, 3, DIMS(0, 0, k * W / 2)), "end",
                          make_ints(g->fn, 3, DIMS(1, S, (k + 1) * W / 2)), NULL)->out[0];
    return turned(g, one, times(g, -1, half[1]), half[0], false, g->y);
}

static pome_value *rotary(graph *g, int kind)
{
    pome_value *c = part(g, g->y, 0, W / 2), *d = part(g, g->y, W / 2, W);
    pome_value *a = part(g, g->x, 0, W / 2), *b = part(g, g->x, W / 2, W);
    switch (kind) {
    case 0: return turned(g, g->x, times(g, -1, b), a, false, g->cos);
    case 1: return by_halves(g, NULL, NULL, "sub", "add", false);
    case 2: return turned(g, g->x, times(g, -1, b), times(g, -1, a), false, g->cos);
    case 3: return turned(g, g->x, b, times(g, -1, a), false, g->cos);
    case 4: return turned(g, g->x, times(g, -1, a), b, false, g->cos);
    case 5: return turned(g, g->x, times(g, -2, b), a, false, g->cos);
    case 6: return turned(g, g->x, times(g, -1, part(g, g->x, W / 2 - 1, W - 1)), a, false, g->cos);
    case 7: return turned(g, g->x, times(g, -1, b), part(g, g->x, 1, W / 2 + 1), false, g->cos);
    case 8: return turned(g, g->x, times(g, -1, b), a, true, g->cos);
    case 9: return turned(g, g->y, times(g, -1, b), a, false, g->cos);
    case 10: return turned(g, g->x, times(g, -1, b), part(g, g->y, 0, W / 2), false, g->cos);
    case 11: return turned(g, g->x, times(g, -1, b), a, false, g->tall);
    case 12: return by_halves(g, table(g, g->other, 0, W / 2), NULL, "sub", "add", false);
    case 13: return by_halves(g, NULL, table(g, g->other, 0, W / 2), "sub", "add", false);
    case 14: return by_halves(g, table(g, g->cos, W / 2, W), NULL, "sub", "add", false);
    case 15: return by_halves(g, NULL, NULL, "add", "sub", false);
    case 16: return by_halves(g, NULL, NULL, "sub", "sub", false);
    case 17: return by_halves(g, NULL, NULL, "sub", "add", true);
    case 18: return turned(g, g->x, op2(g, "sub", make_float(g->fn, 1), b), a, false, g->cos);
    case 19: return of_parts(g, a, a, b, a);
    case 20: return of_parts(g, b, b, b, a);
    case 21: return of_parts(g, a, b, a, a);
    case 22: return of_parts(g, a, b, b, b);
    case 23: return of_parts(g, a, d, b, a);
    case 24: return of_parts(g, c, b, b, a);
    case 25: return of_parts(g, a, b, d, a);
    case 26: return of_parts(g, a, b, b, c);
    case 27: return of_parts(g, a, times(g, -1, b), b, a);
    case 28: return widened(g);
    default: return NULL;
    }
}

/* ---- root of the mean square ---- */

static pome_value *weights(graph *g, int32_t rank, const int64_t *shape)
{
    double w[ELEMENTS];
    for (int i = 0; i < ELEMENTS; i++)
        w[i] = 0.5 + i % 7 * 0.25;
    return make_const(g->fn, POME_DTYPE_F32, rank, shape, w);
}

static pome_value *mean_square(graph *g, pome_value *x, double exponent, int64_t n_axes, const int64_t *axes, double epsilon)
{
    pome_value *squares = op2(g, "pow", x, make_float(g->fn, exponent));
    pome_value *mean = make_op(g->fn, g->fn->body, "reduce_mean", 1, "x", squares, "axes", make_ints(g->fn, n_axes, axes), "keep_dims",
                               make_bool(g->fn, true), NULL)->out[0];
    return op2(g, "add", mean, make_float(g->fn, epsilon));
}

static pome_value *inverse_root(graph *g, pome_value *x, double epsilon)
{
    return make_op(g->fn, g->fn->body, "rsqrt", 1, "x", x, "epsilon", make_float(g->fn, epsilon), NULL)->out[0];
}

/* The part [begin, end) of layer_norm(concat(x, factor x)) */
static pome_value *by_pair(graph *g, double factor, pome_value *beta, bool interleave, int64_t begin, int64_t end)
{
    pome_value *pair = joined(g, g->x, times(g, factor, g->x), interleave), *axes = make_ints(g->fn, 1, DIMS(-1));
    pome_op *norm = beta ? make_op(g->fn, g->fn->body, "layer_norm", 1, "x", pair, "axes", axes, "beta", beta, NULL)
                         : make_op(g->fn, g->fn->body, "layer_norm", 1, "x", pair, "axes", axes, NULL);
    return part(g, norm->out[0], begin, end);
}

/* Without an epsilon but the operator's own, which half precision rounds to 0: zeros give no numbers there, else zeros. */
static pome_value *of_zeros(graph *g, const char *dtype)
{
    pome_value *x = make_op(g->fn, g->fn->body, "cast", 1, "x", times(g, 0, g->x), "dtype", make_string(g->fn, dtype), NULL)->out[0];
    pome_value *mean = make_op(g->fn, g->fn->body, "reduce_mean", 1, "x", op1(g, "square", "x", x), "axes", make_ints(g->fn, 1, DIMS(-1)),
                               "keep_dims", make_bool(g->fn, true), NULL)->out[0];
    pome_value *y = op2(g, "mul", x, op1(g, "rsqrt", "x", mean));
    return make_op(g->fn, g->fn->body, "cast", 1, "x", y, "dtype", make_string(g->fn, "fp32"), NULL)->out[0];
}

static pome_value *rms_norm(graph *g, int kind)
{
    const int64_t *last = DIMS(-1), row[] = {W}, column[] = {S, 1}, pair[] = {2 * W}, all[] = {S, W};
    pome_value *root = kind < 12 ? inverse_root(g, mean_square(g, g->x, 2, 1, last, 1e-3), 0) : NULL;
    switch (kind) {
    case 0: return op2(g, "mul", op2(g, "mul", g->x, root), weights(g, 1, row));
    case 1: return op2(g, "mul", by_pair(g, -1, NULL, false, 0, W), weights(g, 1, row));
    case 2: return op2(g, "mul", op2(g, "mul", g->y, root), weights(g, 1, row));
    case 3: return op2(g, "mul", op2(g, "mul", op2(g, "mul", g->x, root), weights(g, 1, row)), weights(g, 1, row));
    case 4: return op2(g, "mul", op2(g, "mul", g->x, root), weights(g, 2, column));
    case 5: return op2(g, "mul", op2(g, "mul", g->x, root), weights(g, 2, all));
    case 6: return op2(g, "mul", g->x, inverse_root(g, mean_square(g, g->x, 4, 1, last, 1e-3), 0));
    case 7: return op2(g, "mul", g->x, inverse_root(g, mean_square(g, g->x, 2, 2, DIMS(-1, -2), 1e-3), 0));
    case 8: return op2(g, "mul", g->x, inverse_root(g, mean_square(g, g->x, 2, 1, DIMS(1), 1e-3), 0.5));
    case 9: return op2(g, "mul", g->x, inverse_root(g, op2(g, "add", mean_square(g, g->x, 2, 1, last, 1e-3), g->tall), 0));
    case 10: return op2(g, "real_div", g->y, op1(g, "sqrt", "x", mean_square(g, g->x, 2, 1, last, 1e-3)));
    case 11: return op2(g, "real_div", op1(g, "sqrt", "x", mean_square(g, g->x, 2, 1, last, 1e-3)), g->x);
    case 12: return by_pair(g, -2, NULL, false, 0, W);
    case 13: return by_pair(g, -1, weights(g, 1, pair), false, 0, W);
    case 14: return by_pair(g, -1, NULL, true, 0, W);
    case 15: return by_pair(g, -1, NULL, false, W, 2 * W);
    case 16: return by_pair(g, -1, NULL, false, 0, W - 1);
    case 17: return by_pair(g, -1, NULL, false, 1, W + 1);
    case 18: return by_pair(g, 1, NULL, false, 0, W);
    case 19: return of_zeros(g, "fp16");
    case 20: return of_zeros(g, "fp32");
    case 21: return by_pair(g, -1, NULL, false, 3, W);
    default: return NULL;
    }
}

/* ---- running ---- */

typedef pome_value *make_graph(graph *g, int kind);

static int run_plan(make_graph *make, int kind, uint32_t no_fuse, const char *fused_name, pome_tensor *out)
{
    static float data[N_INPUTS][5 * ELEMENTS];
    graph g;
    pome_plan *plan;
    pome_exec *e;
    pome_kernels kernels;
    pome_error err = {0};
    g.fn = make_function(&g.program, POME_OPSET_IOS18);
    const int64_t wide[] = {B, S, W}, flat[] = {S, W}, tall[] = {5, 1, 1, W};
    g.x = make_input(g.fn, "x", POME_DTYPE_F32, 3, wide);
    g.y = make_input(g.fn, "y", POME_DTYPE_F32, 3, wide);
    g.cos = make_input(g.fn, "cos", POME_DTYPE_F32, 2, flat);
    g.sin = make_input(g.fn, "sin", POME_DTYPE_F32, 2, flat);
    g.other = make_input(g.fn, "other", POME_DTYPE_F32, 2, flat);
    g.tall = make_input(g.fn, "tall", POME_DTYPE_F32, 4, tall);
    pome_value *result = make(&g, kind);
    if (!result) {
        pome_program_destroy(&g.program);
        return -1;
    }
    block_output(g.fn, g.fn->body, result);
    pome_kernels_init(&kernels, pome_cpu_level_get());
    const pome_plan_opts opts = {.numerics = POME_NUMERICS_EXACT, .kernels = &kernels, .last_row_output = -1, .no_fuse = no_fuse};
    if (pome_program_verify(g.program, &err) || pome_pass_encode(g.program, &err) || pome_plan_create(&plan, g.fn, &opts, &err) ||
        pome_exec_create(&e, plan, NULL, &err))
        fail_msg("graph %d: %s", kind, err.message);
    pome_tensor in[N_INPUTS];
    for (int i = 0; i < N_INPUTS; i++) {
        for (int k = 0; k < 5 * ELEMENTS; k++)
            data[i][k] = (float)((k * 37 + i * 11) % 101) / 50 - (i == 5 ? -0.5f : 1);
        in[i] = i < 2 ? pome_tensor_borrow(data[i], POME_DTYPE_F32, 3, wide) : i < 5 ? pome_tensor_borrow(data[i], POME_DTYPE_F32, 2, flat)
                                                                                     : pome_tensor_borrow(data[i], POME_DTYPE_F32, 4, tall);
    }
    if (pome_exec_run(e, in, NULL, &err))
        fail_msg("graph %d, %s: %s", kind, no_fuse ? "plain" : "fused", err.message);
    assert_int_equal(pome_tensor_clone(out, pome_exec_output(e, 0), &err), POME_OK);
    int n_fused = 0;
    for (uint32_t i = 0; i < plan->body->n_steps; i++)
        n_fused += strcmp(plan->body->steps[i].op->def->name, fused_name) == 0;
    pome_exec_destroy(&e);
    pome_plan_destroy(&plan);
    pome_program_destroy(&g.program);
    return n_fused;
}

static void check(make_graph *make, const char *fused_name, int n_recognized)
{
    int n = 0;
    for (int kind = 0;; kind++, n++) {
        pome_tensor plain, fused;
        int found = run_plan(make, kind, UINT32_MAX, fused_name, &plain);
        if (found < 0)
            break;
        assert_int_equal(found, 0);
        found = run_plan(make, kind, 0, fused_name, &fused);
        if (kind < n_recognized)
            assert_int_equal(found, 1);
        assert_int_equal(fused.rank, plain.rank);
        assert_memory_equal(fused.shape, plain.shape, (size_t)plain.rank * sizeof plain.shape[0]);
        for (int64_t i = 0; i < pome_tensor_count(&plain); i++) {
            float want = ((const float *)plain.data)[i], got = ((const float *)fused.data)[i];
            bool is_same = want == got || (want != want && got != got) || fabsf(want - got) <= 1e-4f * (1 + fabsf(want));
            if (!is_same)
                fail_msg("%s, graph %d: element %d is %g, was %g", fused_name, kind, (int)i, (double)got, (double)want);
        }
        pome_tensor_reset(&plain);
        pome_tensor_reset(&fused);
    }
    assert_true(n > 10);
}

static void test_rotary(void **unused)
{
    (void)unused;
    check(rotary, "pome_rotary", 2);
}

static void test_rms_norm(void **unused)
{
    (void)unused;
    check(rms_norm, "pome_rms_norm", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rotary), cmocka_unit_test(test_rms_norm)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
