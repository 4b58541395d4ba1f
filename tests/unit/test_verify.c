/* The verifier: a program for every check, and inference over functions with control flow and states. */
#include "program_builder.h"

#include <stdlib.h>

#include "base/log.h"

typedef struct fixture {
    pome_program *program;
    pome_function *fn;
    pome_block *body;
    pome_value *x; /* fp32 [2, ?] */
    pome_error err;
    int n_warnings;
    char warning[1024];
} fixture;

static void note_warning(void *arg, pome_log_level level, const char *message)
{
    fixture *f = arg;
    if (level != POME_LOG_WARN)
        return;
    f->n_warnings++;
    strncpy(f->warning, message, sizeof f->warning - 1);
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->fn = make_function(&f->program, POME_OPSET_IOS18);
    f->body = f->fn->body;
    f->x = make_input(f->fn, "x", POME_DTYPE_F32, 2, DIMS(2, -1));
    pome_log_set(note_warning, f);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    pome_log_set(NULL, NULL);
    pome_program_destroy(&f->program);
    free(f);
    return 0;
}

static void verify(fixture *f)
{
    if (pome_program_verify(f->program, &f->err) != POME_OK)
        fail_msg("%s", f->err.message);
}

static void refuse(fixture *f, const char *text)
{
    pome_status status = pome_program_verify(f->program, &f->err);
    assert_true(status == POME_ERR_FORMAT || status == POME_ERR_LIMIT || status == POME_ERR_UNSUPPORTED);
    if (!strstr(f->err.message, text) || strncmp(f->err.message, "function main: ", 15) != 0)
        fail_msg("\"%s\" does not say \"%s\"", f->err.message, text);
}

static pome_value *relu(fixture *f, pome_block *b, pome_value *x)
{
    return make_op(f->fn, b, "relu", 1, "x", x, NULL)->out[0];
}

/* ---- operators and parameters ---- */

static void test_unknown_sizes_become_symbols(void **state)
{
    fixture *f = *state;
    pome_value *y = make_input(f->fn, "y", POME_DTYPE_F32, 2, DIMS(-1, 3));
    pome_value *r = relu(f, f->body, f->x);
    block_output(f->fn, f->body, r);
    verify(f);
    assert_true(f->x->type.dim[1] < -1 && y->type.dim[0] < -1);
    assert_int_not_equal(f->x->type.dim[1], y->type.dim[0]);
    assert_int_equal(r->type.dim[1], f->x->type.dim[1]);
    int64_t symbol = f->x->type.dim[1];
    assert_int_equal(pome_function_infer(f->fn, &f->err), POME_OK);
    assert_int_equal(f->x->type.dim[1], symbol);
}

static void test_operator_of_a_later_opset(void **state)
{
    fixture *f = *state;
    f->fn->opset = POME_OPSET_IOS16;
    relu(f, f->body, f->x);
    make_op(f->fn, f->body, "resize", 1, "x", f->x, "shape", make_ints(f->fn, 1, DIMS(2)), "resized_dims",
            make_const(f->fn, POME_DTYPE_U32, 0, NULL, (const double[]){1}), NULL);
    refuse(f, "resize (resize, #1): exists since iOS 17");
}

static void test_parameter_of_a_later_opset(void **state)
{
    fixture *f = *state;
    f->fn->opset = POME_OPSET_IOS15;
    make_op(f->fn, f->body, "topk", 2, "x", f->x, "sort", make_bool(f->fn, true), NULL);
    refuse(f, "topk (topk, #0): the function's opset has no parameter sort");
}

static void test_parameter_of_an_earlier_opset(void **state)
{
    fixture *f = *state;
    pome_value *v = make_float(f->fn, 0.5), *t = make_input(f->fn, "t", POME_DTYPE_F32, 3, DIMS(1, 4, 3));
    make_op(f->fn, f->body, "non_maximum_suppression", 3, "boxes", t, "scores", t, "iou_threshold", v, "max_boxes",
            make_int(f->fn, 2), "score_threshold", v, NULL);
    refuse(f, "no parameter score_threshold");
}

static void test_missing_parameter(void **state)
{
    fixture *f = *state;
    make_op(f->fn, f->body, "add", 1, "x", f->x, NULL);
    refuse(f, "add (add, #0): lacks parameter y");
}

static void test_two_values_for_one_parameter(void **state)
{
    fixture *f = *state;
    make_op(f->fn, f->body, "add", 1, "x", f->x, "y", f->x, "y", f->x, NULL);
    refuse(f, "takes one value as parameter y");
}

static void test_inputs_without_parameter(void **state)
{
    fixture *f = *state;
    pome_op *op = make_op(f->fn, f->body, "add", 1, "x", f->x, "y", f->x, NULL);
    op->n_in = 1;
    refuse(f, "inputs without a parameter");
}

static void test_constant_needed(void **state)
{
    fixture *f = *state;
    pome_value *axis = make_input(f->fn, "axis", POME_DTYPE_I32, 0, NULL);
    make_op(f->fn, f->body, "softmax", 1, "x", f->x, "axis", axis, NULL);
    refuse(f, "softmax (softmax, #0): needs a constant as parameter axis");
}

static void test_scalar_needed(void **state)
{
    fixture *f = *state;
    make_op(f->fn, f->body, "softmax", 1, "x", f->x, "axis", make_ints(f->fn, 2, DIMS(0, 1)), NULL);
    refuse(f, "parameter 'axis' must be a scalar");
}

static void test_no_empty_scalars(void **state)
{
    fixture *f = *state;
    make_op(f->fn, f->body, "rsqrt", 1, "x", f->x, "epsilon", make_const(f->fn, POME_DTYPE_F32, 1, DIMS(0), NULL), NULL);
    refuse(f, "parameter 'epsilon' must be a scalar");
}

static void test_one_element_counts_as_scalar(void **state)
{
    fixture *f = *state;
    make_op(f->fn, f->body, "softmax", 1, "x", f->x, "axis", make_ints(f->fn, 1, DIMS(0)), NULL);
    verify(f);
}

static void test_dtype_not_possible(void **state)
{
    fixture *f = *state;
    pome_value *b = make_input(f->fn, "flags", POME_DTYPE_BOOL, 1, DIMS(2));
    make_op(f->fn, f->body, "exp", 1, "x", b, NULL);
    refuse(f, "exp (exp, #0): parameter 'x' has a type that is not possible here: flags is bool[2]");
}

static void test_number_of_outputs(void **state)
{
    fixture *f = *state;
    make_op(f->fn, f->body, "relu", 2, "x", f->x, NULL);
    refuse(f, "has 2 outputs, not 1");
}

static void test_number_of_outputs_that_varies(void **state)
{
    fixture *f = *state;
    make_op(f->fn, f->body, "topk", 1, "x", f->x, NULL);
    refuse(f, "has 1 outputs, not 2");
}

static void test_custom_layers(void **state)
{
    fixture *f = *state;
    make_op(f->fn, f->body, "custom_layer", 1, NULL);
    refuse(f, "custom_layer");
    assert_int_equal(f->err.code, POME_ERR_UNSUPPORTED);
}

/* ---- scopes ---- */

static void test_use_before_definition(void **state)
{
    fixture *f = *state;
    pome_value *r = relu(f, f->body, f->x);
    relu(f, f->body, r);
    pome_op *first = f->body->ops[0];
    f->body->ops[0] = f->body->ops[1];
    f->body->ops[1] = first;
    refuse(f, "uses before it is defined: relu");
}

static void test_value_of_another_function(void **state)
{
    fixture *f = *state;
    pome_function *other = pome_function_create(f->program, "other", POME_OPSET_IOS18);
    assert_non_null(other);
    pome_value *v = make_input(other, "x", POME_DTYPE_F32, 1, DIMS(3));
    relu(f, f->body, v); /* has the same id as main's x */
    refuse(f, "before it is defined");
}

static void test_second_definition(void **state)
{
    fixture *f = *state;
    relu(f, f->body, f->x);
    assert_true(pome_block_append(f->program, f->body, f->body->ops[0]));
    refuse(f, "defined a second time");
}

static void test_undefined_output(void **state)
{
    fixture *f = *state;
    pome_value *v = make_value(f->fn, "nowhere", POME_TYPE_TENSOR, POME_DTYPE_F32, 1, DIMS(3));
    block_output(f->fn, f->body, v);
    refuse(f, "uses before it is defined: nowhere");
}

/* ---- conditions ---- */

static pome_op *make_cond(fixture *f, uint32_t n_out)
{
    pome_value *pred = make_input(f->fn, "pred", POME_DTYPE_BOOL, 0, NULL);
    pome_op *op = make_op(f->fn, f->body, "cond", n_out, "pred", pred, NULL);
    make_block(f->fn, op);
    make_block(f->fn, op);
    return op;
}

static void test_cond_joins_types(void **state)
{
    fixture *f = *state;
    pome_value *y = make_input(f->fn, "y", POME_DTYPE_F32, 2, DIMS(2, 7));
    pome_op *op = make_cond(f, 1);
    block_output(f->fn, op->blocks[0], relu(f, op->blocks[0], f->x));
    block_output(f->fn, op->blocks[1], relu(f, op->blocks[1], y));
    pome_value *after = relu(f, f->body, op->out[0]);
    verify(f);
    const pome_type *t = &after->type;
    assert_true(t->rank == 2 && t->dim[0] == 2 && t->dim[1] < -1 && t->dim[1] != f->x->type.dim[1]);
}

static void test_cond_of_different_types(void **state)
{
    fixture *f = *state;
    pome_value *y = make_input(f->fn, "y", POME_DTYPE_F32, 1, DIMS(7));
    pome_op *op = make_cond(f, 1);
    block_output(f->fn, op->blocks[0], f->x);
    block_output(f->fn, op->blocks[1], y);
    refuse(f, "cond (cond, #0): output 0 may be fp32[2, ?] or fp32[7]");
}

static void test_cond_of_different_outputs(void **state)
{
    fixture *f = *state;
    pome_op *op = make_cond(f, 1);
    block_output(f->fn, op->blocks[0], f->x);
    refuse(f, "has 1 outputs, its blocks 1 and 0");
}

static void test_cond_without_blocks(void **state)
{
    fixture *f = *state;
    make_op(f->fn, f->body, "cond", 1, "pred", make_bool(f->fn, true), NULL);
    refuse(f, "does not have two blocks");
}

static void test_cond_with_block_inputs(void **state)
{
    fixture *f = *state;
    pome_op *op = make_cond(f, 0);
    block_input(f->fn, op->blocks[0], "in");
    refuse(f, "its blocks take inputs");
}

static void test_blocks_where_none_belong(void **state)
{
    fixture *f = *state;
    make_block(f->fn, make_op(f->fn, f->body, "relu", 1, "x", f->x, NULL));
    refuse(f, "has blocks");
}

static void test_use_outside_of_block(void **state)
{
    fixture *f = *state;
    pome_op *op = make_cond(f, 0);
    pome_value *inner = relu(f, op->blocks[0], f->x);
    relu(f, f->body, inner);
    refuse(f, "uses outside of the block that defines it: relu");
}

static void test_use_in_sibling_block(void **state)
{
    fixture *f = *state;
    pome_op *op = make_cond(f, 1);
    pome_value *inner = relu(f, op->blocks[0], f->x);
    block_output(f->fn, op->blocks[0], inner);
    block_output(f->fn, op->blocks[1], inner);
    refuse(f, "outside of the block");
}

static void test_blocks_too_deep(void **state)
{
    fixture *f = *state;
    pome_value *pred = make_bool(f->fn, true);
    pome_block *b = f->body;
    for (int i = 0; i < 40; i++) {
        pome_op *op = make_op(f->fn, b, "cond", 0, "pred", pred, NULL);
        b = make_block(f->fn, op);
        make_block(f->fn, op);
    }
    refuse(f, "nested too deep");
}

/* ---- loops ---- */

/* while (flag): variables `a` and `b` of the body are given back by the caller. */
static pome_op *make_loop(fixture *f, pome_block *block, pome_value *flag, pome_value *a, pome_value *b)
{
    pome_op *op = make_op(f->fn, block, "while_loop", 2, "loop_vars", a, "loop_vars", b, NULL);
    for (int i = 0; i < 2; i++) {
        pome_block *inner = make_block(f->fn, op);
        block_input(f->fn, inner, "a");
        block_input(f->fn, inner, "b");
    }
    block_output(f->fn, op->blocks[0], flag);
    return op;
}

static pome_value *input_flag(fixture *f)
{
    return make_input(f->fn, "flag", POME_DTYPE_BOOL, 0, NULL);
}

static void test_loop_keeps_types(void **state)
{
    fixture *f = *state;
    pome_op *op = make_loop(f, f->body, input_flag(f), f->x, f->x);
    pome_block *body = op->blocks[1];
    block_output(f->fn, body, relu(f, body, body->inputs[0]));
    block_output(f->fn, body, body->inputs[1]);
    verify(f);
    assert_int_equal(op->out[0]->type.dim[1], f->x->type.dim[1]);
    assert_int_equal(body->inputs[0]->type.dim[0], 2);
    assert_int_equal(op->out[1]->type.dim[0], 2);
}

/* b grows by concatenation; a is made from b one round later. */
static void test_loop_opens_sizes_that_change(void **state)
{
    fixture *f = *state;
    pome_value *start = make_input(f->fn, "start", POME_DTYPE_F32, 2, DIMS(3, 1));
    pome_op *op = make_loop(f, f->body, input_flag(f), start, start);
    pome_block *body = op->blocks[1];
    pome_op *grown = make_op(f->fn, body, "concat", 1, "values", body->inputs[1], "values", start, "axis",
                             make_int(f->fn, 1), NULL);
    block_output(f->fn, body, body->inputs[1]);
    block_output(f->fn, body, grown->out[0]);
    verify(f);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(op->out[i]->type.dim[0], 3);
        assert_true(op->out[i]->type.dim[1] < -1);
        assert_int_equal(body->inputs[i]->type.dim[0], 3);
        assert_true(body->inputs[i]->type.dim[1] < -1);
        assert_int_equal(op->blocks[0]->inputs[i]->type.dim[1], body->inputs[i]->type.dim[1]);
    }
    assert_int_not_equal(op->out[0]->type.dim[1], op->out[1]->type.dim[1]);
}

/* A chain of variables each made from the next, longer than inference has patience for: everything is opened. */
static void test_loop_of_a_long_chain(void **state)
{
    fixture *f = *state;
    pome_value *flag = input_flag(f), *start = make_input(f->fn, "start", POME_DTYPE_F32, 2, DIMS(3, 1));
    enum { N = 8 };
    op_args vars = {0};
    for (int i = 0; i < N; i++)
        add_arg(&vars, pome_opdef_get(POME_OP_while_loop), "loop_vars", start);
    pome_op *op = make_op_from(f->fn, f->body, pome_opdef_get(POME_OP_while_loop), &vars, N);
    for (int k = 0; k < 2; k++) {
        pome_block *inner = make_block(f->fn, op);
        for (int i = 0; i < N; i++)
            block_input(f->fn, inner, "v");
    }
    pome_block *body = op->blocks[1];
    block_output(f->fn, op->blocks[0], flag);
    for (int i = 0; i < N - 1; i++)
        block_output(f->fn, body, body->inputs[i + 1]);
    pome_op *grown = make_op(f->fn, body, "concat", 1, "values", body->inputs[N - 1], "values", start, "axis",
                             make_int(f->fn, 1), NULL);
    block_output(f->fn, body, grown->out[0]);
    verify(f);
    for (int i = 0; i < N; i++)
        assert_true(op->out[i]->type.rank == 2 && op->out[i]->type.dim[1] < -1);
}

static void test_loop_of_lists(void **state)
{
    fixture *f = *state;
    pome_value *start = make_input(f->fn, "start", POME_DTYPE_F32, 1, DIMS(3));
    pome_op *list = make_op(f->fn, f->body, "make_list", 1, "init_length", make_int(f->fn, 2), "elem_shape",
                            make_string(f->fn, "is0"), NULL);
    pome_op *op = make_loop(f, f->body, input_flag(f), make_int(f->fn, 0), list->out[0]);
    pome_block *body = op->blocks[1];
    pome_op *next = make_op(f->fn, body, "add", 1, "x", body->inputs[0], "y", make_int(f->fn, 1), NULL);
    pome_op *written = make_op(f->fn, body, "list_write", 1, "ls", body->inputs[1], "index", body->inputs[0], "value",
                               start, NULL);
    block_output(f->fn, body, next->out[0]);
    block_output(f->fn, body, written->out[0]);
    verify(f);
    assert_int_equal(op->out[1]->type.kind, POME_TYPE_LIST);
    assert_int_equal(op->out[1]->type.list_length, -1);
    assert_int_equal(op->out[0]->type.list_length, 0); /* no list */
}

static void test_use_of_a_loop_variable_outside(void **state)
{
    fixture *f = *state;
    pome_op *op = make_loop(f, f->body, input_flag(f), f->x, f->x);
    block_output(f->fn, op->blocks[1], op->blocks[1]->inputs[0]);
    block_output(f->fn, op->blocks[1], op->blocks[1]->inputs[1]);
    relu(f, f->body, op->blocks[1]->inputs[0]);
    refuse(f, "outside of the block that defines it: a");
}

static void test_loop_changes_dtype(void **state)
{
    fixture *f = *state;
    pome_op *op = make_loop(f, f->body, input_flag(f), f->x, f->x);
    pome_block *body = op->blocks[1];
    pome_op *cast = make_op(f->fn, body, "cast", 1, "x", body->inputs[0], "dtype", make_string(f->fn, "int32"), NULL);
    block_output(f->fn, body, cast->out[0]);
    block_output(f->fn, body, body->inputs[1]);
    refuse(f, "loop variable 0 is fp32[2, ?], but the body makes it int32[2, ?]");
}

static void test_loop_condition_is_bool(void **state)
{
    fixture *f = *state;
    pome_op *op = make_loop(f, f->body, make_int(f->fn, 1), f->x, f->x);
    block_output(f->fn, op->blocks[1], op->blocks[1]->inputs[0]);
    block_output(f->fn, op->blocks[1], op->blocks[1]->inputs[1]);
    refuse(f, "condition is not one bool");
}

static void test_loop_body_result_missing(void **state)
{
    fixture *f = *state;
    pome_op *op = make_loop(f, f->body, input_flag(f), f->x, f->x);
    block_output(f->fn, op->blocks[1], op->blocks[1]->inputs[0]);
    refuse(f, "do not fit its loop variables");
}

static void test_loops_too_deep(void **state)
{
    fixture *f = *state;
    pome_value *flag = input_flag(f), *a = f->x, *b = f->x;
    pome_block *block = f->body;
    pome_op *ops[8];
    for (int i = 0; i < 8; i++) {
        ops[i] = make_loop(f, block, flag, a, b);
        block = ops[i]->blocks[1];
        a = block->inputs[0];
        b = block->inputs[1];
    }
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 2; k++)
            block_output(f->fn, ops[i]->blocks[1], i == 7 ? ops[7]->blocks[1]->inputs[k] : ops[i + 1]->out[k]);
    refuse(f, "loops are nested more than");
}

/* ---- states ---- */

static pome_value *make_state(fixture *f, const int64_t *dim)
{
    pome_value *v = make_value(f->fn, "cache", POME_TYPE_STATE, POME_DTYPE_F16, 2, dim);
    append_value(f->fn->arena, &f->fn->inputs, &f->fn->n_inputs, v);
    return v;
}

static void test_states(void **state)
{
    fixture *f = *state;
    pome_value *cache = make_state(f, DIMS(4, 8));
    pome_op *read = make_op(f->fn, f->body, "read_state", 1, "input", cache, NULL);
    pome_value *next = relu(f, f->body, read->out[0]);
    make_op(f->fn, f->body, "write_state", 0, "input", cache, "data", next, NULL);
    block_output(f->fn, f->body, next);
    verify(f);
    assert_int_equal(read->out[0]->type.kind, POME_TYPE_TENSOR);
    assert_int_equal(read->out[0]->type.dtype, POME_DTYPE_F16);
    assert_int_equal(read->out[0]->type.dim[1], 8);
}

static void test_state_as_a_tensor(void **state)
{
    fixture *f = *state;
    relu(f, f->body, make_state(f, DIMS(4, 8)));
    refuse(f, "parameter 'x' cannot be a state: cache is state fp16[4, 8]");
}

static void test_state_through_identity(void **state)
{
    fixture *f = *state;
    make_op(f->fn, f->body, "identity", 1, "x", make_state(f, DIMS(4, 8)), NULL);
    refuse(f, "cannot be a state");
}

static void test_tensor_as_a_state(void **state)
{
    fixture *f = *state;
    make_op(f->fn, f->body, "read_state", 1, "input", f->x, NULL);
    refuse(f, "parameter 'input' must be a state");
}

static void test_write_of_another_type(void **state)
{
    fixture *f = *state;
    make_op(f->fn, f->body, "write_state", 0, "input", make_state(f, DIMS(4, 8)), "data", f->x, NULL);
    refuse(f, "data is fp32[2, ?], the state holds fp16[4, 8]");
}

static void test_state_of_unknown_size(void **state)
{
    fixture *f = *state;
    make_state(f, DIMS(4, -1));
    refuse(f, "state cache has a size that is not fixed");
}

static void test_state_as_output(void **state)
{
    fixture *f = *state;
    block_output(f->fn, f->body, make_state(f, DIMS(4, 8)));
    refuse(f, "state cache is an output");
}

/* ---- lists, inputs ---- */

static void test_tensor_as_a_list(void **state)
{
    fixture *f = *state;
    make_op(f->fn, f->body, "list_length", 1, "ls", f->x, NULL);
    refuse(f, "parameter 'ls' must be a list");
}

static void test_list_as_a_tensor(void **state)
{
    fixture *f = *state;
    pome_op *list = make_op(f->fn, f->body, "make_list", 1, "elem_shape", make_int(f->fn, 3), NULL);
    relu(f, f->body, list->out[0]);
    refuse(f, "parameter 'x' must be a tensor");
}

static void test_input_without_rank(void **state)
{
    fixture *f = *state;
    make_input(f->fn, "shapeless", POME_DTYPE_F32, -1, NULL);
    refuse(f, "input shapeless has no type of known rank");
}

/* ---- declared types ---- */

static void test_inference_wins(void **state)
{
    fixture *f = *state;
    pome_value *y = make_input(f->fn, "y", POME_DTYPE_F32, 2, DIMS(2, 7)), *r = relu(f, f->body, y);
    r->type = pome_type_tensor(POME_DTYPE_F32, 2, DIMS(2, 5));
    verify(f);
    assert_int_equal(r->type.dim[1], 7);
    assert_int_equal(f->n_warnings, 1);
    assert_non_null(strstr(f->warning, "relu (relu, #0) is declared fp32[2, 5], but is fp32[2, 7]"));
}

static void test_no_warning_where_nothing_differs(void **state)
{
    fixture *f = *state;
    pome_value *r = relu(f, f->body, f->x), *s = relu(f, f->body, f->x);
    r->type = pome_type_tensor(POME_DTYPE_F32, 2, DIMS(2, 5)); /* the input's size is unknown */
    s->type = pome_type_tensor(POME_DTYPE_F32, 2, DIMS(-1, -1));
    verify(f);
    assert_int_equal(f->n_warnings, 0);
    assert_true(r->type.dim[1] < 0 && s->type.dim[0] == 2);
}

static void test_warnings_are_bounded(void **state)
{
    fixture *f = *state;
    for (int i = 0; i < 30; i++)
        relu(f, f->body, f->x)->type = pome_type_tensor(POME_DTYPE_F32, 2, DIMS(9, 9));
    verify(f);
    assert_int_equal(f->n_warnings, 11);
    assert_non_null(strstr(f->warning, "20 more"));
}

static pome_op *make_dequantized(fixture *f)
{
    pome_value *data = make_const(f->fn, POME_DTYPE_I4, 2, DIMS(4, 8), NULL);
    pome_value *scale = make_const(f->fn, POME_DTYPE_F16, 2, DIMS(4, 1), NULL);
    return make_op(f->fn, f->body, "constexpr_blockwise_shift_scale", 1, "data", data, "scale", scale, NULL);
}

static void test_compressed_constants_are_constant(void **state)
{
    fixture *f = *state;
    pome_value *y = make_input(f->fn, "y", POME_DTYPE_F16, 2, DIMS(2, 8));
    pome_op *weight = make_dequantized(f);
    pome_op *op = make_op(f->fn, f->body, "linear", 1, "x", y, "weight", weight->out[0], NULL);
    verify(f);
    assert_int_equal(op->out[0]->type.dim[1], 4);
}

static void test_compressed_constant_of_another_shape(void **state)
{
    fixture *f = *state;
    make_dequantized(f)->out[0]->type = pome_type_tensor(POME_DTYPE_F16, 2, DIMS(4, 9));
    refuse(f, "is declared fp16[4, 9], but its inputs give fp16[4, 8]");
}

/* ---- listing ---- */

typedef struct visits {
    char names[256];
    int limit;
} visits;

static pome_status visit(void *arg, pome_function *fn, pome_op *op, pome_error *err)
{
    visits *v = arg;
    if (v->limit-- == 0)
        return pome_fail(err, POME_ERR_CANCELLED, "enough");
    strcat(strcat(strcat(v->names, fn->name), "."), op->def->name);
    strcat(v->names, " ");
    return POME_OK;
}

static void test_list_ops(void **state)
{
    fixture *f = *state;
    pome_op *op = make_cond(f, 0);
    relu(f, op->blocks[0], f->x);
    make_op(f->fn, op->blocks[1], "exp", 1, "x", f->x, NULL);
    make_op(f->fn, f->body, "sin", 1, "x", f->x, NULL);
    pome_function *other = pome_function_create(f->program, "other", POME_OPSET_IOS15);
    assert_non_null(other);
    pome_value *v = make_input(other, "v", POME_DTYPE_F32, 0, NULL);
    make_op(other, other->body, "cos", 1, "x", v, NULL);
    visits all = {.limit = -1}, some = {.limit = 2};
    assert_int_equal(pome_program_list_ops(f->program, visit, &all, &f->err), POME_OK);
    assert_string_equal(all.names, "main.cond main.relu main.exp main.sin other.cos ");
    assert_int_equal(pome_program_list_ops(f->program, visit, &some, &f->err), POME_ERR_CANCELLED);
    assert_string_equal(some.names, "main.cond main.relu ");
}

#define T(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(test_unknown_sizes_become_symbols),
        T(test_operator_of_a_later_opset),
        T(test_parameter_of_a_later_opset),
        T(test_parameter_of_an_earlier_opset),
        T(test_missing_parameter),
        T(test_two_values_for_one_parameter),
        T(test_inputs_without_parameter),
        T(test_constant_needed),
        T(test_scalar_needed),
        T(test_no_empty_scalars),
        T(test_one_element_counts_as_scalar),
        T(test_dtype_not_possible),
        T(test_number_of_outputs),
        T(test_number_of_outputs_that_varies),
        T(test_custom_layers),
        T(test_use_before_definition),
        T(test_value_of_another_function),
        T(test_second_definition),
        T(test_undefined_output),
        T(test_cond_joins_types),
        T(test_cond_of_different_types),
        T(test_cond_of_different_outputs),
        T(test_cond_without_blocks),
        T(test_cond_with_block_inputs),
        T(test_blocks_where_none_belong),
        T(test_use_outside_of_block),
        T(test_use_in_sibling_block),
        T(test_blocks_too_deep),
        T(test_loop_keeps_types),
        T(test_loop_opens_sizes_that_change),
        T(test_loop_of_a_long_chain),
        T(test_loop_of_lists),
        T(test_use_of_a_loop_variable_outside),
        T(test_loop_changes_dtype),
        T(test_loop_condition_is_bool),
        T(test_loop_body_result_missing),
        T(test_loops_too_deep),
        T(test_states),
        T(test_state_as_a_tensor),
        T(test_state_through_identity),
        T(test_tensor_as_a_state),
        T(test_write_of_another_type),
        T(test_state_of_unknown_size),
        T(test_state_as_output),
        T(test_tensor_as_a_list),
        T(test_list_as_a_tensor),
        T(test_input_without_rank),
        T(test_inference_wins),
        T(test_no_warning_where_nothing_differs),
        T(test_warnings_are_bounded),
        T(test_compressed_constants_are_constant),
        T(test_compressed_constant_of_another_shape),
        T(test_list_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
