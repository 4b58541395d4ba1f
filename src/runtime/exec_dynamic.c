/* Dynamic steps: everything is found out while running. Results lie in buffers of the step, which grow and stay, so a
 * loop of steady sizes stops allocating after its first rounds. */
#include <stdlib.h>
#include <string.h>

#include "ops/invoke.h"
#include "ops/strided.h"
#include "runtime/exec_internal.h"

static void *buffer(pome_exec_step *x, uint32_t slot, size_t size)
{
    pome_dyn_buffer *b = &x->buffers[slot];
    if (size > b->size || !b->data) {
        size_t want = (size + size / 2 + 127) / 64 * 64;
        void *data = want > size ? aligned_alloc(64, want) : NULL;
        if (!data)
            return NULL;
        free(b->data);
        *b = (pome_dyn_buffer){data, want};
    }
    return b->data;
}

static void *alloc_for_invoke(void *arg, uint32_t slot, size_t size)
{
    return buffer(arg, slot, size);
}

static void set_type(pome_exec *e, uint32_t slot)
{
    const pome_tensor *t = &e->t[slot];
    pome_type *type = &e->types[slot];
    *type = e->plan->slots[slot].type;
    int32_t lead = type->kind == POME_TYPE_LIST ? 1 : 0;
    type->rank = t->rank - lead;
    if (lead)
        type->list_length = t->shape[0];
    memcpy(type->dim, t->shape + lead, (size_t)type->rank * sizeof t->shape[0]);
}

/* Copies `from` into buffer `b` of the step as the contents of `slot`. */
static pome_status keep(pome_exec *e, pome_exec_step *x, uint32_t b, uint32_t slot, const pome_tensor *from,
                        pome_error *err)
{
    pome_tensor t = pome_tensor_borrow(NULL, pome_storage_dtype(from->dtype), from->rank, from->shape);
    t.data = buffer(x, b, pome_tensor_size_bytes(&t));
    if (!t.data)
        return pome_fail_nomem(err, pome_tensor_size_bytes(&t), e->plan->slots[slot].name);
    pome_strided_copy(&t, from, e->pool, e->plan->kernels);
    e->t[slot] = t;
    set_type(e, slot);
    return POME_OK;
}

static void lend(pome_exec *e, uint32_t slot, uint32_t from)
{
    e->t[slot] = e->t[from];
    set_type(e, slot);
}

static pome_status read_bool(const pome_op *op, const pome_tensor *t, bool *out, pome_error *err)
{
    if (pome_tensor_count(t) != 1)
        return pome_op_fail(op, err, POME_ERR_FORMAT, "its condition has %lld elements, wanted 1",
                            (long long)pome_tensor_count(t));
    *out = pome_tensor_int_at(t, 0) != 0;
    return POME_OK;
}

static pome_status run_cond(pome_exec *e, const pome_step *s, pome_exec_step *x, pome_error *err)
{
    bool taken;
    POME_TRY(read_bool(s->op, &e->t[s->in[0]], &taken, err));
    pome_exec_block *b = &x->blocks[taken ? 0 : 1];
    POME_TRY(pome_exec_run_block(e, b, err));
    for (uint32_t o = 0; o < s->op->n_out; o++)
        POME_TRY(keep(e, x, o, s->out + o, &e->t[b->plan->outputs[o]], err));
    return POME_OK;
}

/* The loop variables live in the operator's own output slots, in two sets of buffers by turns: a new value may
 * depend on an old one that it replaces. */
static pome_status run_while(pome_exec *e, const pome_step *s, pome_exec_step *x, pome_error *err)
{
    pome_exec_block *cond = &x->blocks[0], *body = &x->blocks[1];
    uint32_t n = s->op->n_out;
    for (uint32_t o = 0; o < n; o++)
        POME_TRY(keep(e, x, o, s->out + o, &e->t[s->in[o]], err));
    for (uint32_t turn = 1;; turn ^= 1) {
        bool goes_on;
        for (uint32_t o = 0; o < n; o++)
            lend(e, cond->plan->inputs[o], s->out + o);
        POME_TRY(pome_exec_run_block(e, cond, err));
        POME_TRY(read_bool(s->op, &e->t[cond->plan->outputs[0]], &goes_on, err));
        if (!goes_on)
            return POME_OK;
        for (uint32_t o = 0; o < n; o++)
            lend(e, body->plan->inputs[o], s->out + o);
        POME_TRY(pome_exec_run_block(e, body, err));
        for (uint32_t o = 0; o < n; o++)
            POME_TRY(keep(e, x, turn * n + o, s->out + o, &e->t[body->plan->outputs[o]], err));
    }
}

pome_status pome_exec_run_dynamic(pome_exec *e, const pome_step *s, pome_exec_step *x, pome_error *err)
{
    if (s->op->def->id == POME_OP_cond)
        return run_cond(e, s, x, err);
    if (s->op->def->id == POME_OP_while_loop)
        return run_while(e, s, x, err);
    for (uint32_t k = 0; k < s->op->n_in; k++)
        x->in[k] = &e->t[s->in[k]];
    pome_invoke v = {.op = s->op, .impl = s->impl, .opset = e->plan->opset, .numerics = e->plan->numerics,
                     .pool = e->pool, .kernels = e->plan->kernels, .prepared = s->prepared, .in = x->in,
                     .out = &e->t[s->out], .alloc = alloc_for_invoke, .alloc_arg = x};
    POME_TRY(pome_op_invoke(&v, err));
    for (uint32_t o = 0; o < s->op->n_out; o++)
        set_type(e, s->out + o);
    if (e->observe)
        e->observe(e->observe_arg, s->op, &e->t[s->out]);
    return POME_OK;
}

pome_status pome_exec_run_block(pome_exec *e, pome_exec_block *b, pome_error *err)
{
    for (uint32_t i = 0; i < b->plan->n_steps; i++) {
        POME_TRY(pome_exec_check_stop(e, err));
        POME_TRY(pome_exec_run_dynamic(e, &b->plan->steps[i], &b->steps[i], err));
    }
    return POME_OK;
}
