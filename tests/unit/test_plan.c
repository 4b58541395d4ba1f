/* What compilation makes of traced language models: shape arithmetic apart, states in place, heads not repeated. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "formats/mlpackage.h"
#include "mil/load.h"
#include "passes/pass.h"
#include "runtime/plan.h"

#define GOLDEN POME_SOURCE_DIR "/tests/golden/"

typedef struct compiled {
    pome_mlpackage *package;
    pome_program *program;
    pome_kernels kernels;
    pome_plan *plan;
} compiled;

static compiled compile(const char *path, int last_row_output)
{
    compiled c = {0};
    pome_error err = {0};
    pome_kernels_init(&c.kernels, POME_CPU_GENERIC);
    pome_plan_opts opts = {.numerics = POME_NUMERICS_EXACT, .kernels = &c.kernels, .last_row_output = last_row_output};
    if (pome_mlpackage_open(&c.package, path, NULL, &err) || pome_program_load(&c.program, c.package, NULL, &err) ||
        pome_program_verify(c.program, &err) || pome_pass_encode(c.program, &err) ||
        pome_plan_create(&c.plan, c.program->functions[0], &opts, &err))
        fail_msg("%s: %s", path, err.message);
    return c;
}

static void release(compiled *c)
{
    pome_plan_destroy(&c->plan);
    pome_program_destroy(&c->program);
    pome_mlpackage_close(&c->package);
}

static uint32_t count_op(const pome_plan *p, pome_op_id id)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->body->n_steps; i++)
        n += p->body->steps[i].op->def->id == id;
    return n;
}

static uint32_t count_in_place(const pome_plan *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->body->n_steps; i++)
        n += p->body->steps[i].in_place;
    return n;
}

static uint32_t count_copied_views(const pome_plan *p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < p->body->n_steps; i++)
        n += p->body->steps[i].copy_view;
    return n;
}

/* Four layers update a key and a value cache each. The file has 325 operators besides constants. */
static void test_stateful_model(void **unused)
{
    (void)unused;
    compiled c = compile(GOLDEN "apple/int4-block32.mlpackage", -1);
    assert_int_equal(count_op(c.plan, POME_OP_slice_update), 8);
    assert_int_equal(count_in_place(c.plan), 8);
    assert_int_equal(count_copied_views(c.plan), 0);
    assert_int_equal(count_op(c.plan, POME_OP_pome_grouped_attention), 4);
    assert_int_equal(count_op(c.plan, POME_OP_scaled_dot_product_attention), 0);
    assert_int_equal(count_op(c.plan, POME_OP_tile), 0); /* the repeats are gone */
    assert_int_equal(c.plan->n_steps[POME_STEP_DYNAMIC], 0);
    assert_true(c.plan->n_steps[POME_STEP_SHAPE] > 20);
    for (uint32_t i = 0; i < c.plan->body->n_steps; i++) { /* no integer arithmetic among the tensor steps */
        const pome_step *s = &c.plan->body->steps[i];
        pome_op_id id = s->op->def->id;
        if (s->kind == POME_STEP_TENSOR)
            assert_false(id == POME_OP_shape || id == POME_OP_equal || id == POME_OP_floor_div);
    }
    release(&c);
}

/* The cache moves left by as many rows as come in: source and target overlap in the state. */
static void test_shifting_model(void **unused)
{
    (void)unused;
    compiled c = compile(GOLDEN "snake/shift-fp16.mlpackage", -1);
    assert_int_equal(count_op(c.plan, POME_OP_slice_update), 16);
    assert_int_equal(c.plan->n_steps[POME_STEP_DYNAMIC], 0);
    release(&c);
}

/* A position that comes as an input decides slice bounds: part of the binding, not a reason for dynamic steps. */
static void test_position_input(void **unused)
{
    (void)unused;
    compiled c = compile(GOLDEN "enumerated/stateful-int4.mlpackage", -1);
    uint32_t n_keys = 0;
    for (uint32_t i = 0; i < c.plan->n_inputs; i++)
        n_keys += c.plan->slots[c.plan->input_slots[i]].is_key;
    assert_int_equal(n_keys, 1);
    assert_int_equal(c.plan->n_steps[POME_STEP_DYNAMIC], 0);
    assert_int_equal(count_in_place(c.plan), 8);
    release(&c);
}

static void test_last_row(void **unused)
{
    (void)unused;
    compiled all = compile(GOLDEN "apple/int4-block32.mlpackage", -1);
    compiled last = compile(GOLDEN "apple/int4-block32.mlpackage", 0);
    const pome_type *wide = &all.plan->fn->body->outputs[0]->type, *one = &last.plan->fn->body->outputs[0]->type;
    assert_int_equal(wide->rank, 3);
    assert_true(wide->dim[1] < 0);
    assert_int_equal(one->dim[1], 1);
    assert_int_equal(one->dim[2], wide->dim[2]);
    release(&last);
    release(&all);
}

/* A quantized weight stays as it is in the file: what the plan holds itself is small. */
static void test_weights_stay_mapped(void **unused)
{
    (void)unused;
    compiled c = compile(GOLDEN "apple/int4-block32.mlpackage", -1);
    size_t own = 0;
    for (uint32_t i = 0; i < c.plan->n_slots; i++) {
        const pome_slot *s = &c.plan->slots[i];
        if (s->kind == POME_SLOT_CONST && s->konst.data && s->konst.dtype == POME_DTYPE_F32)
            own += pome_tensor_size_bytes(&s->konst);
    }
    assert_true(own < 64 * 1024); /* norms and scalars; the weights alone would be 900 KiB */
    release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stateful_model), cmocka_unit_test(test_shifting_model),
        cmocka_unit_test(test_position_input), cmocka_unit_test(test_last_row),
        cmocka_unit_test(test_weights_stay_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
