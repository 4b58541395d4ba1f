/* From a model's bytes to a prediction: load, check, compile, run twice. Models that ask for more than a little memory
 * are left alone, as are loops, whose number of rounds nobody limits. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "formats/mlpackage.h"
#include "mil/load.h"
#include "passes/pass.h"
#include "runtime/exec.h"
#include "spec_mutator.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_INPUTS = 8, MAX_ELEMENTS = 2048, MAX_MEMORY = 16 << 20 };

/* Every tensor that inference can size stays small, so that no operator runs long. */
static bool is_small_type(const pome_type *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < t->rank; i++)
        if (t->dim[i] > MAX_ELEMENTS || (t->dim[i] > 0 && (n *= t->dim[i]) > 16 * MAX_ELEMENTS))
            return false;
    return true;
}

static bool is_small_block(const pome_block *b)
{
    for (uint32_t i = 0; i < b->n_ops; i++) {
        const pome_op *op = b->ops[i];
        if (op->def->id == POME_OP_while_loop)
            return false;
        if (op->def->id != POME_OP_cond && !(op->def->flags & POME_OP_CONSTEXPR) && !pome_op_impl_find(op->def->id))
            return false;
        for (uint32_t k = 0; k < op->n_out; k++)
            if (!is_small_type(&op->out[k]->type))
                return false;
        for (uint32_t k = 0; k < op->n_blocks; k++)
            if (!is_small_block(op->blocks[k]))
                return false;
    }
    return true;
}

static bool is_sized(const pome_type *t)
{
    for (int32_t i = 0; i < t->rank; i++)
        if (t->dim[i] < 0)
            return false;
    return t->rank >= 0;
}

/* Whether numbers that are not known before the run decide on a size: those have to be small, because a range of
 * two thousand million elements is a sound wish. */
static bool has_sizes_by_value(const pome_block *b)
{
    for (uint32_t i = 0; i < b->n_ops; i++) {
        const pome_op *op = b->ops[i];
        bool knows_inputs = true;
        for (uint32_t k = 0; k < op->n_in; k++)
            knows_inputs = knows_inputs && is_sized(&op->in[k]->type);
        for (uint32_t k = 0; k < op->n_out; k++)
            if (!is_sized(&op->out[k]->type) &&
                (knows_inputs || op->def->id == POME_OP_range_1d || op->def->id == POME_OP_tile ||
                 op->def->id == POME_OP_fill || op->def->id == POME_OP_pad))
                return true;
        if (op->def->id == POME_OP_make_list)
            return true;
        for (uint32_t k = 0; k < op->n_blocks; k++)
            if (has_sizes_by_value(op->blocks[k]))
                return true;
    }
    return false;
}

/* Whether a constant could become such a size, or a product of several numbers. */
static bool has_large_sizes(const pome_block *b)
{
    for (uint32_t i = 0; i < b->n_ops; i++) {
        const pome_op *op = b->ops[i];
        bool takes_shape = op->def->id == POME_OP_fill || strncmp(op->def->name, "random_", 7) == 0;
        if (takes_shape && op->n_out && !is_sized(&op->out[0]->type))
            return true;
        for (uint32_t k = 0; k < op->n_in; k++) {
            const pome_const *c = op->in[k]->konst;
            if (!c || !c->t.data || c->t.dtype == POME_DTYPE_STRING || pome_dtype_bits(c->t.dtype) < 8)
                continue;
            for (int64_t j = 0; j < pome_tensor_count(&c->t); j++)
                if (!(fabs(pome_tensor_float_at(&c->t, j)) < MAX_ELEMENTS))
                    return true;
        }
        for (uint32_t k = 0; k < op->n_blocks; k++)
            if (has_large_sizes(op->blocks[k]))
                return true;
    }
    return false;
}

/* Contents that hit both signs, zero, and values out of range as indices. */
static void fill(pome_tensor *t, uint32_t salt, bool is_small)
{
    int64_t n = pome_tensor_count(t);
    for (int64_t i = 0; i < n; i++) {
        int32_t v = (int32_t)((uint64_t)(i + 1) * (2654435761u + salt) % 23) - 7;
        switch (t->dtype) {
        case POME_DTYPE_F32: ((float *)t->data)[i] = (float)v * 0.37f; break;
        case POME_DTYPE_F16: ((uint16_t *)t->data)[i] = (uint16_t)(v * 997); break;
        case POME_DTYPE_I32: ((int32_t *)t->data)[i] = v > 12 && !is_small ? INT32_MAX - v : v; break;
        case POME_DTYPE_BOOL: ((uint8_t *)t->data)[i] = v & 1; break;
        case POME_DTYPE_I16: case POME_DTYPE_U16: ((uint16_t *)t->data)[i] = (uint16_t)(is_small ? abs(v) : v); break;
        case POME_DTYPE_U32: ((uint32_t *)t->data)[i] = (uint32_t)(is_small ? abs(v) : v); break;
        case POME_DTYPE_I64: case POME_DTYPE_U64: ((int64_t *)t->data)[i] = is_small ? abs(v) : v; break;
        default: ((uint8_t *)t->data)[i] = (uint8_t)v; break;
        }
    }
}

/* Unknown axes of inputs get 3; false if the whole is too large or of a kind that is not fed here. */
static bool make_tensor(pome_tensor *out, const pome_type *t, uint32_t salt, bool is_small)
{
    int64_t shape[POME_MAX_RANK], n = 1;
    if ((t->kind != POME_TYPE_TENSOR && t->kind != POME_TYPE_STATE) || t->rank < 0)
        return false;
    for (int32_t i = 0; i < t->rank; i++) {
        shape[i] = t->dim[i] < 0 ? 3 : t->dim[i];
        if (shape[i] > MAX_ELEMENTS || (n *= shape[i] ? shape[i] : 1) > MAX_ELEMENTS)
            return false;
    }
    if (pome_dtype_bits(t->dtype) < 8 || pome_tensor_init(out, t->dtype, t->rank, shape, NULL) != POME_OK)
        return false;
    if (t->kind == POME_TYPE_TENSOR)
        fill(out, salt, is_small);
    return true;
}

static void check_status(pome_status status, const pome_error *err)
{
    if (status != POME_OK && (status != err->code || !err->message[0]))
        abort();
}

static void run(const pome_plan *plan, bool is_small)
{
    pome_tensor inputs[MAX_INPUTS] = {{0}}, states[MAX_INPUTS] = {{0}};
    const pome_tensor *state_list[MAX_INPUTS];
    pome_error err = {0};
    pome_exec *exec = NULL;
    bool ok = plan->n_inputs <= MAX_INPUTS && plan->n_states <= MAX_INPUTS;
    for (uint32_t i = 0; ok && i < plan->n_states; i++) {
        ok = make_tensor(&states[i], &plan->slots[plan->state_slots[i]].type, 0, false);
        state_list[i] = &states[i];
    }
    for (uint32_t i = 0; ok && i < plan->n_inputs; i++)
        ok = make_tensor(&inputs[i], &plan->slots[plan->input_slots[i]].type, i, is_small);
    if (ok && pome_exec_create(&exec, plan, NULL, &err) == POME_OK) {
        pome_status status = pome_exec_reserve(exec, inputs, &err);
        check_status(status, &err);
        for (int round = 0; round < 2 && status == POME_OK && pome_exec_memory(exec) < MAX_MEMORY; round++) {
            status = pome_exec_run(exec, inputs, state_list, &err);
            check_status(status, &err);
            for (uint32_t i = 0; i < plan->n_inputs; i++)
                fill(&inputs[i], 77 + i, is_small);
        }
    }
    pome_exec_destroy(&exec);
    for (int i = 0; i < MAX_INPUTS; i++) {
        pome_tensor_reset(&inputs[i]);
        pome_tensor_reset(&states[i]);
    }
}

static void compile_and_run(pome_program *p)
{
    pome_kernels kernels;
    pome_error err = {0};
    pome_kernels_init(&kernels, pome_cpu_level_get());
    for (uint32_t i = 0; i < p->n_functions; i++) {
        const pome_plan_opts opts = {.numerics = i % 2 ? POME_NUMERICS_FP16 : POME_NUMERICS_EXACT, .kernels = &kernels,
                                     .last_row_output = p->functions[i]->body->n_outputs ? 0 : -1};
        pome_plan *plan = NULL;
        bool sizes_by_value = has_sizes_by_value(p->functions[i]->body);
        if (!is_small_block(p->functions[i]->body) || (sizes_by_value && has_large_sizes(p->functions[i]->body)))
            continue;
        pome_status status = pome_plan_create(&plan, p->functions[i], &opts, &err);
        check_status(status, &err);
        if (status == POME_OK)
            run(plan, sizes_by_value);
        pome_plan_destroy(&plan);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const pome_mlpackage_limits limits = {.arena_bytes = 4 << 20, .depth = 40};
    static const pome_load_limits load_limits = {.arena_bytes = 4 << 20, .n_ops = 300, .block_depth = 4};
    pome_mlpackage *package = NULL;
    pome_program *p = NULL;
    pome_error err = {0};
    if (pome_mlpackage_open_bytes(&package, (pome_bytes){data, size}, "", &limits, &err) != POME_OK)
        return 0;
    if (pome_program_load(&p, package, &load_limits, &err) == POME_OK) {
        pome_status status = pome_program_verify(p, &err);
        if (status == POME_OK)
            status = pome_pass_encode(p, &err);
        check_status(status, &err);
        if (status == POME_OK)
            compile_and_run(p);
    }
    pome_program_destroy(&p);
    pome_mlpackage_close(&package);
    return 0;
}
