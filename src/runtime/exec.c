#include <stdlib.h>
#include <string.h>

#include "ops/invoke.h"
#include "ops/strided.h"
#include "runtime/exec_internal.h"

enum { ROUNDED_AT_ONCE = 1 << 14 /* elements */ };

bool pome_memory_grow(pome_memory *m, size_t size)
{
    void *data = size <= SIZE_MAX - 64 ? aligned_alloc(64, (size + 63) / 64 * 64) : NULL;
    if (!data)
        return false;
    free(m->data);
    *m = (pome_memory){data, size};
    return true;
}

/* ---- life ---- */

static bool knows_contents(const pome_slot *s)
{
    return s->kind == POME_SLOT_SHAPE || (s->kind == POME_SLOT_INPUT && s->is_key) ||
           (s->kind == POME_SLOT_CONST && s->konst.data && s->konst.dtype != POME_DTYPE_STRING);
}

static bool create_block(pome_exec *e, pome_exec_block *b, const pome_plan_block *plan);

static bool create_step(pome_exec *e, const pome_step *s, pome_exec_step *x)
{
    uint32_t n = s->op->n_in;
    x->in = POME_NEW_ARRAY(e->arena, const pome_tensor *, n);
    x->in_types = POME_NEW_ARRAY(e->arena, const pome_type *, n);
    x->in_values = POME_NEW_ARRAY(e->arena, const pome_tensor *, n);
    if (!x->in || !x->in_types || !x->in_values)
        return false;
    for (uint32_t k = 0; k < n; k++) {
        x->in_types[k] = &e->types[s->in[k]];
        x->in_values[k] = knows_contents(&e->plan->slots[s->in[k]]) ? &e->t[s->in[k]] : NULL;
    }
    if (s->kind == POME_STEP_TENSOR && (!(x->conversions = POME_NEW_ARRAY(e->arena, pome_conversion, n)) ||
                                        !(x->conversion_place = POME_NEW_ARRAY(e->arena, pome_place, n))))
        return false;
    if (s->copy_view && !(x->viewed = POME_NEW_ARRAY(e->arena, pome_tensor, s->op->n_out)))
        return false;
    if (s->kind == POME_STEP_DYNAMIC &&
        !(x->buffers = POME_NEW_ARRAY(e->arena, pome_dyn_buffer, 2 * s->op->n_out + n + 1)))
        return false;
    if (s->op->n_blocks && !(x->blocks = POME_NEW_ARRAY(e->arena, pome_exec_block, s->op->n_blocks)))
        return false;
    for (uint32_t k = 0; k < s->op->n_blocks; k++)
        if (!create_block(e, &x->blocks[k], s->blocks[k]))
            return false;
    return true;
}

static bool create_block(pome_exec *e, pome_exec_block *b, const pome_plan_block *plan)
{
    b->plan = plan;
    b->steps = POME_NEW_ARRAY(e->arena, pome_exec_step, plan->n_steps);
    for (uint32_t i = 0; b->steps && i < plan->n_steps; i++)
        if (!create_step(e, &plan->steps[i], &b->steps[i]))
            return false;
    return b->steps != NULL;
}

static uint32_t widest_output(const pome_plan_block *b)
{
    uint32_t n = 1;
    for (uint32_t i = 0; i < b->n_steps; i++)
        n = b->steps[i].op->n_out > n ? b->steps[i].op->n_out : n;
    return n;
}

static bool create_arrays(pome_exec *e)
{
    const pome_plan *p = e->plan;
    uint32_t n = p->n_slots;
    e->t = POME_NEW_ARRAY(e->arena, pome_tensor, n);
    e->types = POME_NEW_ARRAY(e->arena, pome_type, n);
    e->root = POME_NEW_ARRAY(e->arena, uint32_t, n);
    e->uses_left = POME_NEW_ARRAY(e->arena, uint32_t, n);
    e->placed = POME_NEW_ARRAY(e->arena, size_t, n);
    e->offset = POME_NEW_ARRAY(e->arena, size_t, n);
    e->room = POME_NEW_ARRAY(e->arena, size_t, n);
    e->changed = POME_NEW_ARRAY(e->arena, bool, n);
    e->n_pieces = (size_t)n + 128;
    e->pieces = POME_NEW_ARRAY(e->arena, pome_piece, e->n_pieces);
    e->type_work = POME_NEW_ARRAY(e->arena, pome_type, widest_output(p->body));
    e->bound_inputs = POME_NEW_ARRAY(e->arena, pome_tensor, p->n_inputs);
    e->bound_states = POME_NEW_ARRAY(e->arena, pome_tensor, p->n_states);
    e->bound_keys = POME_NEW_ARRAY(e->arena, uint8_t, (size_t)p->n_inputs * POME_KEY_BYTES);
    if (!e->t || !e->types || !e->root || !e->uses_left || !e->placed || !e->offset || !e->room || !e->changed || !e->pieces || !e->type_work ||
        !e->bound_inputs || !e->bound_states || !e->bound_keys)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        e->types[i] = p->slots[i].type;
        if (p->slots[i].kind == POME_SLOT_CONST)
            e->t[i] = p->slots[i].konst;
    }
    return true;
}

pome_status pome_exec_create(pome_exec **out, const pome_plan *plan, pome_pool *pool, pome_error *err)
{
    pome_exec *e = calloc(1, sizeof *e);
    if (!e)
        return pome_fail_nomem(err, sizeof *e, "execution state");
    e->plan = plan;
    e->pool = pool;
    e->arena = pome_arena_create(0);
    if (!e->arena || !create_arrays(e) || !create_block(e, &e->body, plan->body) ||
        !pome_memory_grow(&e->shape, 1 << 14)) {
        pome_exec_destroy(&e);
        return pome_fail_nomem(err, plan->n_slots * sizeof(pome_tensor), "execution state");
    }
    *out = e;
    return POME_OK;
}

static void free_buffers(pome_exec_block *b)
{
    for (uint32_t i = 0; b->steps && i < b->plan->n_steps; i++) {
        const pome_op *op = b->plan->steps[i].op;
        pome_exec_step *x = &b->steps[i];
        for (uint32_t k = 0; x->buffers && k < 2 * op->n_out + op->n_in + 1; k++)
            free(x->buffers[k].data);
        for (uint32_t k = 0; x->blocks && k < op->n_blocks; k++)
            free_buffers(&x->blocks[k]);
    }
}

void pome_exec_destroy(pome_exec **exec)
{
    if (!exec || !*exec)
        return;
    pome_exec *e = *exec;
    free_buffers(&e->body);
    free(e->main.data);
    free(e->shape.data);
    pome_arena_destroy(&e->arena);
    free(e);
    *exec = NULL;
}

/* ---- binding ---- */

static size_t key_size(const pome_tensor *t)
{
    size_t size = pome_tensor_size_bytes(t);
    return size <= POME_KEY_BYTES ? size : POME_KEY_BYTES;
}

bool pome_exec_is_same(const pome_tensor *a, const pome_tensor *b)
{
    size_t n = (size_t)a->rank * sizeof a->shape[0];
    return a->dtype == b->dtype && a->rank == b->rank && a->data == b->data && memcmp(a->shape, b->shape, n) == 0 &&
           memcmp(a->stride, b->stride, n) == 0;
}

/* Whether anything that matters changed since the last binding; marks what. */
static bool mark_changes(pome_exec *e, const pome_tensor *inputs, const pome_tensor *const *states)
{
    const pome_plan *p = e->plan;
    bool any = !e->is_bound;
    for (uint32_t i = 0; i < p->n_inputs; i++) {
        uint32_t slot = p->input_slots[i];
        e->changed[slot] = !pome_exec_is_same(&e->bound_inputs[i], &inputs[i]) ||
                           (p->slots[slot].is_key && memcmp(e->bound_keys + (size_t)i * POME_KEY_BYTES, inputs[i].data,
                                                            key_size(&inputs[i])) != 0);
        any = any || e->changed[slot];
    }
    for (uint32_t i = 0; i < p->n_states; i++) {
        e->changed[p->state_slots[i]] = !pome_exec_is_same(&e->bound_states[i], states[i]);
        any = any || e->changed[p->state_slots[i]];
    }
    return any;
}

static void set_input(pome_exec *e, uint32_t i, const pome_tensor *t)
{
    uint32_t slot = e->plan->input_slots[i];
    pome_type *type = &e->types[slot];
    type->rank = t->rank;
    memcpy(type->dim, t->shape, (size_t)t->rank * sizeof t->shape[0]);
    e->t[slot] = e->bound_inputs[i] = *t;
    if (e->plan->slots[slot].is_key)
        memcpy(e->bound_keys + (size_t)i * POME_KEY_BYTES, t->data, key_size(t));
}

pome_status pome_exec_reserve(pome_exec *e, const pome_tensor *inputs, pome_error *err)
{
    static uint8_t nothing[POME_KEY_BYTES]; /* stands for contents that are not there yet; never written */
    const pome_plan *p = e->plan;
    for (uint32_t i = 0; i < p->n_inputs; i++) {
        pome_tensor t = inputs[i];
        t.data = nothing;
        set_input(e, i, &t);
    }
    for (uint32_t i = 0; i < p->n_states; i++) {
        const pome_type *type = &p->slots[p->state_slots[i]].type;
        e->t[p->state_slots[i]] = pome_tensor_borrow(nothing, type->dtype, type->rank, type->dim);
    }
    return pome_exec_bind(e, err); /* for no inputs yet: the next run binds anew */
}

/* ---- running ---- */

static void show(const pome_exec *e, const pome_step *s)
{
    if (e->observe)
        e->observe(e->observe_arg, s->op, &e->t[s->out]);
}

typedef struct rounding {
    const pome_kernels *kernels;
    float *x;
} rounding;

static void round_part(void *arg, size_t begin, size_t end, int thread)
{
    const rounding *r = (const rounding *)arg;
    (void)thread;
    r->kernels->f16_round(r->x + begin, end - begin);
}

static void finish_step(pome_exec *e, const pome_step *s)
{
    for (uint32_t o = 0; o < s->op->n_out; o++) {
        const pome_tensor *t = &e->t[s->out + o];
        const pome_slot *slot = &e->plan->slots[s->out + o];
        if ((e->plan->numerics == POME_NUMERICS_FP16 || slot->is_rounded) && slot->type.dtype == POME_DTYPE_F16 &&
            t->dtype == POME_DTYPE_F32) {
            rounding r = {e->plan->kernels, t->data};
            pome_pool_run(e->pool, (size_t)pome_tensor_count(t), ROUNDED_AT_ONCE, round_part, &r);
        }
    }
    show(e, s);
}

static pome_status run_tensor(pome_exec *e, const pome_step *s, pome_exec_step *x, pome_error *err)
{
    if (x->is_view) {
        show(e, s);
        return POME_OK;
    }
    if (x->is_copied_view) {
        for (uint32_t o = 0; o < s->op->n_out; o++)
            pome_strided_copy(&e->t[s->out + o], &x->viewed[o], e->pool, e->plan->kernels);
        show(e, s);
        return POME_OK;
    }
    for (uint32_t k = 0; k < x->n_conversions; k++)
        pome_strided_copy(&x->conversions[k].to, x->conversions[k].from, e->pool, e->plan->kernels);
    pome_run r = {.op = s->op, .opset = e->plan->opset, .numerics = e->plan->numerics, .pool = e->pool,
                  .kernels = e->plan->kernels, .in = x->in, .out = &e->t[s->out], .scratch = x->scratch,
                  .prepared = s->prepared};
    POME_TRY(s->impl->run(&r, err));
    finish_step(e, s);
    return POME_OK;
}

pome_status pome_exec_check_stop(const pome_exec *e, pome_error *err)
{
    return pome_stop_take(e->stop) ? pome_fail(err, POME_ERR_CANCELLED, "the prediction was stopped") : POME_OK;
}

pome_status pome_exec_run(pome_exec *e, const pome_tensor *inputs, const pome_tensor *const *states, pome_error *err)
{
    const pome_plan *p = e->plan;
    bool has_to_bind = mark_changes(e, inputs, states);
    if (has_to_bind) {
        for (uint32_t i = 0; i < p->n_inputs; i++)
            set_input(e, i, &inputs[i]);
        for (uint32_t i = 0; i < p->n_states; i++)
            e->t[p->state_slots[i]] = e->bound_states[i] = *states[i];
        if (!pome_exec_rebind(e))
            POME_TRY(pome_exec_bind(e, err));
        e->is_bound = true;
    }
    if (e->profile)
        pome_profile_end_binding(e->profile, has_to_bind);
    for (uint32_t i = 0; i < p->body->n_steps; i++) {
        const pome_step *s = &p->body->steps[i];
        POME_TRY(pome_exec_check_stop(e, err));
        if (s->kind == POME_STEP_TENSOR)
            POME_TRY(run_tensor(e, s, &e->body.steps[i], err));
        else if (s->kind == POME_STEP_DYNAMIC)
            POME_TRY(pome_exec_run_dynamic(e, s, &e->body.steps[i], err));
        if (e->profile && s->kind != POME_STEP_SHAPE)
            pome_profile_end_step(e->profile, i, e->t);
    }
    return POME_OK;
}

const pome_tensor *pome_exec_output(const pome_exec *e, uint32_t i)
{
    return &e->t[e->plan->body->outputs[i]];
}

void pome_exec_observe(pome_exec *e, pome_observe_fn *fn, void *arg)
{
    e->observe = fn;
    e->observe_arg = arg;
}

void pome_exec_stop_by(pome_exec *e, pome_stop *stop)
{
    e->stop = stop;
}

void pome_exec_profile(pome_exec *e, pome_profile_section *section)
{
    e->profile = section;
}

size_t pome_exec_memory(const pome_exec *e)
{
    return e->main.size + e->shape.size;
}
