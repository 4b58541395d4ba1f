#include "runtime/plan.h"

#include <string.h>

#include "ops/encoded.h"
#include "ops/invoke.h"
#include "passes/pass.h"

#define NO_SLOT UINT32_MAX

typedef struct builder {
    pome_plan *plan;
    uint32_t *slot_of;      /* [n_values] NO_SLOT where none yet */
    uint32_t *converted_of; /* [n_values] slot of a constant in storage form */
    bool *demanded;         /* [n_values] contents decide a shape */
    bool *by_shape;         /* [n_values] contents follow from input shapes */
    bool *dynamic;          /* [n_values] shape or existence depends on data */
    uint32_t n_room;
    pome_error *err;
} builder;

/* ---- what depends on what ---- */

static bool is_value_param(const pome_op *op, uint32_t input)
{
    return op->def->params[pome_op_param_of(op, input)].flags & POME_P_VALUE;
}

/* Backwards from the operands that decide shapes. One walk suffices: definitions come before uses. */
static void find_demanded(builder *b, const pome_block *block)
{
    for (uint32_t i = block->n_ops; i-- > 0;) {
        const pome_op *op = block->ops[i];
        for (uint32_t k = 0; k < op->n_blocks; k++)
            find_demanded(b, op->blocks[k]);
        bool wanted = false;
        for (uint32_t o = 0; o < op->n_out; o++)
            wanted |= b->demanded[op->out[o]->id];
        bool passes_on = wanted && (op->def->flags & POME_OP_FOLDABLE) && op->def->id != POME_OP_shape;
        for (uint32_t k = 0; k < op->n_in; k++)
            if (passes_on || is_value_param(op, k))
                b->demanded[op->in[k]->id] = true;
    }
}

enum { MAX_KEY_ELEMENTS = 16 };

static bool is_key_input(const builder *b, const pome_value *v)
{
    int64_t n = 1;
    if (!b->demanded[v->id] || v->type.kind != POME_TYPE_TENSOR || !pome_dtype_is_int(v->type.dtype) || v->type.rank < 0)
        return false;
    for (int32_t i = 0; i < v->type.rank; i++) {
        if (v->type.dim[i] < 0 || v->type.dim[i] > MAX_KEY_ELEMENTS)
            return false;
        n *= v->type.dim[i];
    }
    return n <= MAX_KEY_ELEMENTS;
}

static bool touches_list(const pome_op *op)
{
    for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i]->type.kind == POME_TYPE_LIST)
            return true;
    for (uint32_t o = 0; o < op->n_out; o++)
        if (op->out[o]->type.kind == POME_TYPE_LIST)
            return true;
    return false;
}

static bool known_by_shape(const builder *b, const pome_value *v)
{
    return v->konst || b->by_shape[v->id];
}

static pome_step_kind classify(builder *b, const pome_op *op)
{
    if ((op->def->flags & (POME_OP_BLOCKS | POME_OP_DATA_SHAPE)) || touches_list(op))
        return POME_STEP_DYNAMIC;
    bool all_by_shape = op->def->id == POME_OP_shape || (op->def->flags & POME_OP_FOLDABLE);
    for (uint32_t k = 0; k < op->n_in; k++) {
        const pome_value *v = op->in[k];
        if (b->dynamic[v->id] || (is_value_param(op, k) && !known_by_shape(b, v)))
            return POME_STEP_DYNAMIC;
        if (op->def->id != POME_OP_shape && !known_by_shape(b, v))
            all_by_shape = false;
    }
    if (!all_by_shape || op->n_out == 0)
        return POME_STEP_TENSOR;
    for (uint32_t o = 0; o < op->n_out; o++) {
        const pome_type *t = &op->out[o]->type;
        bool small = (pome_dtype_is_int(t->dtype) || t->dtype == POME_DTYPE_BOOL) && t->rank >= 0 && t->rank <= 1;
        if (!small && !b->demanded[op->out[o]->id])
            return POME_STEP_TENSOR;
    }
    return POME_STEP_SHAPE;
}

/* ---- slots ---- */

static pome_slot *add_slot(builder *b, pome_slot_kind kind, const pome_value *v, uint32_t *index)
{
    pome_plan *p = b->plan;
    if (p->n_slots == b->n_room) {
        uint32_t room = b->n_room ? b->n_room * 2 : 256;
        pome_slot *bigger = POME_NEW_ARRAY(p->arena, pome_slot, room);
        if (!bigger)
            return NULL;
        if (p->n_slots)
            memcpy(bigger, p->slots, p->n_slots * sizeof *bigger);
        p->slots = bigger;
        b->n_room = room;
    }
    *index = p->n_slots;
    p->slots[p->n_slots] = (pome_slot){.kind = kind, .type = v->type, .name = v->name};
    return &p->slots[p->n_slots++];
}

static pome_status value_slot(builder *b, pome_slot_kind kind, const pome_value *v, uint32_t *index)
{
    pome_slot *s = add_slot(b, kind, v, index);
    if (!s)
        return pome_fail_nomem(b->err, sizeof *s, "plan");
    b->slot_of[v->id] = *index;
    return POME_OK;
}

static pome_status const_slot(builder *b, const pome_value *v, uint32_t *index)
{
    if (b->slot_of[v->id] != NO_SLOT) {
        *index = b->slot_of[v->id];
        return POME_OK;
    }
    POME_TRY(value_slot(b, POME_SLOT_CONST, v, index));
    b->plan->slots[*index].konst = v->konst->t;
    return POME_OK;
}

/* A constant as plain fp32 (or its own integers) for operators that take nothing else. */
static pome_status converted_slot(builder *b, const pome_value *v, uint32_t *index)
{
    if (b->converted_of[v->id] != NO_SLOT) {
        *index = b->converted_of[v->id];
        return POME_OK;
    }
    const pome_const *k = v->konst;
    pome_tensor t = pome_tensor_borrow(NULL, pome_storage_dtype(k->t.dtype), k->t.rank, k->t.shape);
    size_t n = (size_t)pome_tensor_count(&t), size = pome_tensor_size_bytes(&t);
    t.data = pome_arena_alloc(b->plan->arena, size + 64);
    if (!t.data)
        return pome_fail_nomem(b->err, size, v->name);
    t.data = (void *)(((uintptr_t)t.data + 63) & ~(uintptr_t)63);
    if (k->encoded && t.dtype == POME_DTYPE_F32)
        pome_encoded_decode(k->encoded, 0, n, t.data);
    else if (k->encoded)
        pome_encoded_decode_raw(k->encoded, 0, n, t.data);
    else
        POME_TRY(pome_tensor_copy(&t, &k->t, b->err));
    pome_slot *s = add_slot(b, POME_SLOT_CONST, v, index);
    if (!s)
        return pome_fail_nomem(b->err, sizeof *s, "plan");
    s->konst = t;
    b->converted_of[v->id] = *index;
    return POME_OK;
}

static pome_status operand_slot(builder *b, const pome_op *op, const pome_op_impl *impl, uint32_t k, uint32_t *index)
{
    const pome_value *v = op->in[k];
    if (!v->konst) {
        *index = b->slot_of[v->id];
        if (*index == NO_SLOT)
            return pome_op_fail(op, b->err, POME_ERR_FORMAT, "input %s is not defined before", v->name);
        return POME_OK;
    }
    if (impl && !pome_op_accepts(impl, pome_op_param_of(op, k), &v->konst->t))
        return converted_slot(b, v, index);
    return const_slot(b, v, index);
}

/* ---- steps ---- */

static pome_status build_block(builder *b, const pome_block *block, bool nested, pome_plan_block **out);

static pome_status prepare_step(builder *b, pome_step *s)
{
    if (!s->impl || !s->impl->prepare)
        return POME_OK;
    pome_plan *p = b->plan;
    pome_prepare prep = {.op = s->op, .opset = p->opset, .numerics = p->numerics, .kernels = p->kernels,
                         .arena = p->arena};
    POME_TRY(s->impl->prepare(&prep, b->err));
    s->prepared = prep.prepared;
    return POME_OK;
}

/* Slots below `first_own` that a nested block reads. */
static uint32_t collect_captured(const pome_plan_block *block, uint32_t first_own, uint32_t *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < block->n_steps; i++) {
        const pome_step *s = &block->steps[i];
        for (uint32_t k = 0; k < s->op->n_in; k++)
            if (s->in[k] < first_own) {
                if (out)
                    out[n] = s->in[k];
                n++;
            }
        for (uint32_t k = 0; k < s->op->n_blocks; k++)
            n += collect_captured(s->blocks[k], first_own, out ? out + n : NULL);
    }
    for (uint32_t i = 0; i < block->n_outputs; i++)
        if (block->outputs[i] < first_own) {
            if (out)
                out[n] = block->outputs[i];
            n++;
        }
    return n;
}

static pome_status build_nested(builder *b, pome_step *s)
{
    pome_plan *p = b->plan;
    uint32_t first_own = p->n_slots, n = 0;
    s->blocks = POME_NEW_ARRAY(p->arena, pome_plan_block *, s->op->n_blocks);
    if (!s->blocks)
        return pome_fail_nomem(b->err, sizeof *s->blocks, s->op->name);
    for (uint32_t k = 0; k < s->op->n_blocks; k++) {
        POME_TRY(build_block(b, s->op->blocks[k], true, &s->blocks[k]));
        n += collect_captured(s->blocks[k], first_own, NULL);
    }
    uint32_t *captured = POME_NEW_ARRAY(p->arena, uint32_t, n);
    if (!captured)
        return pome_fail_nomem(b->err, n * sizeof *captured, s->op->name);
    s->captured = captured;
    for (uint32_t k = 0; k < s->op->n_blocks; k++)
        s->n_captured += collect_captured(s->blocks[k], first_own, captured + s->n_captured);
    for (uint32_t k = 0; k < s->n_captured; k++)
        p->slots[captured[k]].n_uses++;
    return POME_OK;
}

static pome_status build_step(builder *b, const pome_op *op, bool nested, pome_step *s)
{
    static const pome_slot_kind slot_kind[] = {POME_SLOT_SHAPE, POME_SLOT_TENSOR, POME_SLOT_DYNAMIC};
    pome_plan *p = b->plan;
    *s = (pome_step){.op = op, .impl = pome_op_impl_find(op->def->id)};
    s->kind = nested ? POME_STEP_DYNAMIC : classify(b, op);
    p->n_steps[s->kind]++;
    p->n_max_in = op->n_in > p->n_max_in ? op->n_in : p->n_max_in;
    if (op->n_blocks)
        POME_TRY(build_nested(b, s));
    uint32_t *in = POME_NEW_ARRAY(p->arena, uint32_t, op->n_in);
    if (!in)
        return pome_fail_nomem(b->err, op->n_in * sizeof *in, op->name);
    for (uint32_t k = 0; k < op->n_in; k++) {
        POME_TRY(operand_slot(b, op, s->impl, k, &in[k]));
        p->slots[in[k]].n_uses++;
    }
    s->in = in;
    s->out = p->n_slots;
    for (uint32_t o = 0; o < op->n_out; o++) {
        uint32_t slot;
        POME_TRY(value_slot(b, slot_kind[s->kind], op->out[o], &slot));
        b->dynamic[op->out[o]->id] = s->kind == POME_STEP_DYNAMIC;
        b->by_shape[op->out[o]->id] = s->kind == POME_STEP_SHAPE;
    }
    return prepare_step(b, s);
}

static pome_status output_slot(builder *b, const pome_value *v, uint32_t *slot)
{
    *slot = b->slot_of[v->id];
    if (v->konst)
        return v->konst->t.data || v->konst->t.dtype == POME_DTYPE_STRING ? const_slot(b, v, slot)
                                                                          : converted_slot(b, v, slot);
    if (*slot == NO_SLOT)
        return pome_fail(b->err, POME_ERR_FORMAT, "output %s is not defined", v->name);
    return POME_OK;
}

static pome_status build_block(builder *b, const pome_block *block, bool nested, pome_plan_block **out)
{
    pome_plan *p = b->plan;
    pome_plan_block *r = POME_NEW(p->arena, pome_plan_block);
    if (!r)
        return pome_fail_nomem(b->err, sizeof *r, "plan");
    r->steps = POME_NEW_ARRAY(p->arena, pome_step, block->n_ops);
    r->inputs = POME_NEW_ARRAY(p->arena, uint32_t, block->n_inputs);
    r->outputs = POME_NEW_ARRAY(p->arena, uint32_t, block->n_outputs);
    if (!r->steps || !r->inputs || !r->outputs)
        return pome_fail_nomem(b->err, block->n_ops * sizeof *r->steps, "plan");
    for (uint32_t i = 0; i < block->n_inputs; i++)
        POME_TRY(value_slot(b, POME_SLOT_DYNAMIC, block->inputs[i], &r->inputs[r->n_inputs++]));
    for (uint32_t i = 0; i < block->n_ops; i++) {
        POME_TRY(build_step(b, block->ops[i], nested, &r->steps[i]));
        r->n_steps++;
    }
    for (uint32_t i = 0; i < block->n_outputs; i++) {
        POME_TRY(output_slot(b, block->outputs[i], &r->outputs[i]));
        p->slots[r->outputs[i]].n_uses++;
        r->n_outputs++;
    }
    *out = r;
    return POME_OK;
}

static pome_status build_inputs(builder *b)
{
    pome_plan *p = b->plan;
    const pome_function *fn = p->fn;
    p->input_slots = POME_NEW_ARRAY(p->arena, uint32_t, fn->n_inputs);
    p->state_slots = POME_NEW_ARRAY(p->arena, uint32_t, fn->n_inputs);
    if (!p->input_slots || !p->state_slots)
        return pome_fail_nomem(b->err, fn->n_inputs * sizeof *p->input_slots, "plan");
    for (uint32_t i = 0; i < fn->n_inputs; i++) {
        const pome_value *v = fn->inputs[i];
        bool is_state = v->type.kind == POME_TYPE_STATE;
        uint32_t slot;
        POME_TRY(value_slot(b, is_state ? POME_SLOT_STATE : POME_SLOT_INPUT, v, &slot));
        pome_slot *s = &p->slots[slot];
        s->index = is_state ? p->n_states : p->n_inputs;
        if (is_state) {
            p->state_slots[p->n_states++] = slot;
        } else {
            s->is_key = b->by_shape[v->id] = is_key_input(b, v);
            p->input_slots[p->n_inputs++] = slot;
        }
    }
    return POME_OK;
}

static pome_status build(builder *b)
{
    pome_plan *p = b->plan;
    uint32_t n = p->fn->n_values;
    b->slot_of = POME_NEW_ARRAY(p->arena, uint32_t, n);
    b->converted_of = POME_NEW_ARRAY(p->arena, uint32_t, n);
    b->demanded = POME_NEW_ARRAY(p->arena, bool, n);
    b->by_shape = POME_NEW_ARRAY(p->arena, bool, n);
    b->dynamic = POME_NEW_ARRAY(p->arena, bool, n);
    if (!b->slot_of || !b->converted_of || !b->demanded || !b->by_shape || !b->dynamic)
        return pome_fail_nomem(b->err, n * sizeof *b->slot_of, "plan");
    memset(b->slot_of, 0xff, n * sizeof *b->slot_of);
    memset(b->converted_of, 0xff, n * sizeof *b->converted_of);
    find_demanded(b, p->fn->body);
    POME_TRY(build_inputs(b));
    POME_TRY(build_block(b, p->fn->body, false, &p->body));
    POME_TRY(pome_plan_round_outputs(p, b->err));
    return pome_plan_alias_states(p, b->err);
}

pome_status pome_plan_create(pome_plan **out, const pome_function *fn, const pome_plan_opts *opts, pome_error *err)
{
    pome_arena *arena = pome_arena_create(0);
    pome_plan *p = arena ? POME_NEW(arena, pome_plan) : NULL;
    if (!p) {
        pome_arena_destroy(&arena);
        return pome_fail_nomem(err, sizeof *p, "plan");
    }
    *p = (pome_plan){.arena = arena, .opset = fn->opset, .numerics = opts->numerics, .kernels = opts->kernels};
    pome_pass_ctx ctx = {.arena = arena, .numerics = opts->numerics, .kernels = opts->kernels,
                         .last_row_output = opts->last_row_output, .fusions = ~opts->no_fuse};
    if (opts->numerics == POME_NUMERICS_FP16)
        ctx.fusions &= pome_fusions_exact_rounding();
    builder b = {.plan = p, .err = err};
    p->fn = pome_function_clone(fn, arena);
    pome_status s = p->fn ? pome_passes_run(p->fn, &ctx, err) : pome_fail_nomem(err, 0, "plan");
    p->fusions = ctx.fusions;
    memcpy(p->n_fused, ctx.n_fused, sizeof p->n_fused);
    if (s == POME_OK)
        s = build(&b);
    if (s != POME_OK) {
        pome_arena_destroy(&arena);
        return s;
    }
    *out = p;
    return POME_OK;
}

void pome_plan_destroy(pome_plan **plan)
{
    if (!plan || !*plan)
        return;
    pome_arena *arena = (*plan)->arena;
    *plan = NULL;
    pome_arena_destroy(&arena);
}
