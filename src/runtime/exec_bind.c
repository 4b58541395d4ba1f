#include <string.h>

#include "ops/invoke.h"
#include "ops/strided.h"
#include "runtime/exec_internal.h"

/* A place to put sizes that do not exist yet; pointers into it are never followed. */
#define STAND_IN ((char *)(uintptr_t)(1u << 20))

static void consume(pome_exec *e, uint32_t slot)
{
    uint32_t r = e->root[slot];
    if (--e->uses_left[r] == 0 && e->placed[r]) {
        pome_placer_give(&e->placer, e->offset[r], e->placed[r]);
        e->placed[r] = 0;
    }
}

/* What to set aside. A size that grew a little grows again with the next token, and has room to do so; room that is
 * there stays unless it is more than double. */
static size_t room_for(size_t size, size_t before)
{
    enum { STEP = 4096 };
    if (size > before && before && size - before <= before / 8 + STEP)
        return size + size / 4 + STEP;
    return size < before && size >= before / 2 ? before : size;
}

static void place(pome_exec *e, uint32_t slot, size_t size)
{
    size = room_for(size, e->room[slot]);
    e->offset[slot] = pome_placer_take(&e->placer, size);
    e->placed[slot] = size ? size : 1;
    e->room[slot] = size;
    e->t[slot].data = e->main_base + e->offset[slot];
}

static void own(pome_exec *e, uint32_t slot)
{
    e->root[slot] = slot;
    e->uses_left[slot] = e->plan->slots[slot].n_uses;
}

static void share(pome_exec *e, uint32_t slot, uint32_t with)
{
    e->root[slot] = e->root[with];
    e->uses_left[e->root[with]] += e->plan->slots[slot].n_uses;
}

pome_status pome_exec_infer_step(pome_exec *e, const pome_step *s, pome_exec_step *x, pome_error *err)
{
    memset(e->type_work, 0, s->op->n_out * sizeof *e->type_work);
    pome_infer c = {.op = s->op, .opset = e->plan->opset, .in = x->in_types, .value = x->in_values,
                    .out = e->type_work};
    POME_TRY(pome_infer_op(&c, err));
    for (uint32_t o = 0; o < s->op->n_out; o++) {
        e->types[s->out + o] = e->type_work[o];
        POME_TRY(pome_tensor_of_type(&e->t[s->out + o], &e->type_work[o], s->op, err));
    }
    return POME_OK;
}

static pome_run run_of(const pome_exec *e, const pome_step *s, const pome_exec_step *x, pome_tensor *out)
{
    return (pome_run){.op = s->op, .opset = e->plan->opset, .numerics = e->plan->numerics, .pool = e->pool,
                      .kernels = e->plan->kernels, .in = x->in, .out = out, .scratch = x->scratch,
                      .prepared = s->prepared};
}

/* ---- shape steps: evaluated here and now ---- */

static pome_status shape_memory(pome_exec *e, size_t size, void **out)
{
    size_t at = (e->shape_used + 15) / 16 * 16;
    if (at + size > e->shape.size)
        return POME_ERR_LIMIT; /* pome_exec_bind enlarges it and starts again */
    e->shape_used = at + size;
    *out = (char *)e->shape.data + at;
    return POME_OK;
}

pome_status pome_exec_bind_shape(pome_exec *e, const pome_step *s, pome_exec_step *x, bool *is_short, pome_error *err)
{
    POME_TRY(pome_exec_infer_step(e, s, x, err));
    pome_tensor converted[8];
    uint32_t n_converted = 0;
    for (uint32_t k = 0; k < s->op->n_in; k++) {
        const pome_tensor *t = &e->t[s->in[k]];
        x->in[k] = t;
        if (s->op->def->id == POME_OP_shape || pome_op_accepts(s->impl, pome_op_param_of(s->op, k), t))
            continue;
        if (n_converted == 8)
            return pome_op_fail(s->op, err, POME_ERR_LIMIT, "more than 8 inputs to convert");
        pome_tensor *c = &converted[n_converted++];
        *c = pome_tensor_borrow(NULL, pome_storage_dtype(t->dtype), t->rank, t->shape);
        if (shape_memory(e, pome_tensor_size_bytes(c), &c->data) != POME_OK) {
            *is_short = true;
            return POME_OK;
        }
        pome_strided_copy(c, t, NULL, e->plan->kernels);
        x->in[k] = c;
    }
    pome_run r = run_of(e, s, x, &e->t[s->out]);
    r.pool = NULL;
    if (s->impl->view && s->op->def->id != POME_OP_shape && s->impl->view(&r))
        return POME_OK; /* shows earlier shape memory, which lives as long */
    for (uint32_t o = 0; o < s->op->n_out; o++)
        if (shape_memory(e, pome_tensor_size_bytes(&e->t[s->out + o]), &e->t[s->out + o].data) != POME_OK) {
            *is_short = true;
            return POME_OK;
        }
    size_t scratch = s->impl->scratch ? s->impl->scratch(&r) : 0;
    if (scratch && shape_memory(e, scratch + 64, &r.scratch) != POME_OK) {
        *is_short = true;
        return POME_OK;
    }
    r.scratch = scratch ? (void *)(((uintptr_t)r.scratch + 63) & ~(uintptr_t)63) : NULL;
    return s->impl->run(&r, err);
}

/* ---- tensor steps: placed here, run later ---- */

void pome_exec_convert_inputs(pome_exec *e, const pome_step *s, pome_exec_step *x)
{
    x->n_conversions = 0;
    for (uint32_t k = 0; k < s->op->n_in; k++) {
        const pome_tensor *t = &e->t[s->in[k]];
        x->in[k] = t;
        if (pome_op_accepts(s->impl, pome_op_param_of(s->op, k), t) || t->dtype == POME_DTYPE_STRING)
            continue;
        pome_conversion *c = &x->conversions[x->n_conversions++];
        c->from = t;
        c->to = pome_tensor_borrow(NULL, pome_storage_dtype(t->dtype), t->rank, t->shape);
        x->in[k] = &c->to;
    }
}

/* Views are only made of what the operator takes as it is. */
bool pome_exec_try_view(pome_exec *e, const pome_step *s, pome_exec_step *x, pome_tensor *out)
{
    if (!s->impl->view || !s->op->n_in || x->in[0] != &e->t[s->in[0]])
        return false;
    pome_run r = run_of(e, s, x, out);
    return s->impl->view(&r);
}

static void bind_copied_view(pome_exec *e, const pome_step *s, const pome_exec_step *x)
{
    for (uint32_t o = 0; o < s->op->n_out; o++) {
        pome_tensor *t = &e->t[s->out + o];
        *t = pome_tensor_borrow(NULL, x->viewed[o].dtype, x->viewed[o].rank, x->viewed[o].shape);
        own(e, s->out + o);
        place(e, s->out + o, pome_tensor_size_bytes(t));
    }
}

static void *set_place(pome_exec *e, pome_place *p, size_t size)
{
    p->room = room_for(size, p->room);
    p->offset = pome_placer_take(&e->placer, p->room);
    return e->main_base + p->offset;
}

size_t pome_exec_scratch(const pome_exec *e, const pome_step *s, const pome_exec_step *x)
{
    pome_run r = run_of(e, s, x, &e->t[s->out]);
    return s->impl->scratch ? s->impl->scratch(&r) : 0;
}

static void bind_work(pome_exec *e, const pome_step *s, pome_exec_step *x)
{
    for (uint32_t k = 0; k < x->n_conversions; k++)
        x->conversions[k].to.data =
            set_place(e, &x->conversion_place[k], pome_tensor_size_bytes(&x->conversions[k].to));
    size_t size = pome_exec_scratch(e, s, x);
    if (size)
        x->scratch = set_place(e, &x->scratch_place, size);
    else
        x->scratch_place.room = 0;
}

static void bind_buffers(pome_exec *e, const pome_step *s, pome_exec_step *x)
{
    for (uint32_t o = 0; o < s->op->n_out; o++) {
        own(e, s->out + o);
        place(e, s->out + o, pome_tensor_size_bytes(&e->t[s->out + o]));
    }
    bind_work(e, s, x);
}

void pome_exec_show_state(pome_exec *e, const pome_step *s, pome_exec_step *x)
{
    uint32_t k = s->op->args[P_slice_update_x].first;
    for (uint32_t i = 0; i < x->n_conversions; i++) /* x itself is the state's memory, whatever its dtype */
        if (x->in[k] == &x->conversions[i].to) {
            x->conversions[i] = x->conversions[--x->n_conversions];
            for (uint32_t j = 0; j < s->op->n_in; j++)
                if (x->in[j] == &x->conversions[x->n_conversions].to)
                    x->in[j] = &x->conversions[i].to;
            break;
        }
    x->in[k] = &e->t[s->in[k]];
    e->t[s->out] = e->t[s->in[k]];
}

static pome_status bind_tensor(pome_exec *e, const pome_step *s, pome_exec_step *x, pome_error *err)
{
    POME_TRY(pome_exec_infer_step(e, s, x, err));
    pome_exec_convert_inputs(e, s, x);
    x->is_view = x->is_copied_view = false;
    x->scratch = NULL;
    if (s->in_place) {
        pome_exec_show_state(e, s, x);
        share(e, s->out, s->in[s->op->args[P_slice_update_x].first]);
    }
    if (s->copy_view) {
        memcpy(x->viewed, &e->t[s->out], s->op->n_out * sizeof *x->viewed);
        x->is_copied_view = pome_exec_try_view(e, s, x, x->viewed);
        if (x->is_copied_view)
            bind_copied_view(e, s, x);
        else
            bind_buffers(e, s, x);
    } else if (!s->in_place && pome_exec_try_view(e, s, x, &e->t[s->out])) {
        x->is_view = true;
        for (uint32_t o = 0; o < s->op->n_out; o++)
            share(e, s->out + o, s->in[0]);
    } else if (!s->in_place) {
        bind_buffers(e, s, x);
    } else {
        bind_work(e, s, x);
    }
    for (uint32_t k = 0; k < s->op->n_in; k++)
        consume(e, s->in[k]);
    if (!x->is_view && !x->is_copied_view) {
        for (uint32_t k = 0; k < x->n_conversions; k++)
            pome_placer_give(&e->placer, x->conversion_place[k].offset, x->conversion_place[k].room);
        if (x->scratch)
            pome_placer_give(&e->placer, x->scratch_place.offset, x->scratch_place.room);
    }
    for (uint32_t o = 0; o < s->op->n_out; o++) /* results nobody reads */
        if (e->root[s->out + o] == s->out + o && e->uses_left[s->out + o] == 0 && e->placed[s->out + o]) {
            pome_placer_give(&e->placer, e->offset[s->out + o], e->placed[s->out + o]);
            e->placed[s->out + o] = 0;
        }
    return POME_OK;
}

/* Dynamic results live in buffers of their own; here only their operands' lives are counted. */
static void bind_dynamic(pome_exec *e, const pome_step *s)
{
    for (uint32_t o = 0; o < s->op->n_out; o++)
        own(e, s->out + o);
    for (uint32_t k = 0; k < s->op->n_in; k++)
        consume(e, s->in[k]);
    for (uint32_t k = 0; k < s->n_captured; k++)
        consume(e, s->captured[k]);
}

static pome_status bind_once(pome_exec *e, bool *is_short, pome_error *err)
{
    const pome_plan *p = e->plan;
    pome_placer_reset(&e->placer, e->pieces, e->n_pieces);
    e->shape_used = 0;
    memset(e->placed, 0, p->n_slots * sizeof *e->placed);
    for (uint32_t i = 0; i < p->n_slots; i++)
        own(e, i);
    for (uint32_t i = 0; i < p->body->n_steps && !*is_short; i++) {
        const pome_step *s = &p->body->steps[i];
        pome_exec_step *x = &e->body.steps[i];
        switch (s->kind) {
        case POME_STEP_SHAPE:
            x->shape_at = e->shape_used;
            POME_TRY(pome_exec_bind_shape(e, s, x, is_short, err));
            x->shape_end = e->shape_used;
            for (uint32_t k = 0; k < s->op->n_in && !*is_short; k++)
                consume(e, s->in[k]);
            break;
        case POME_STEP_TENSOR: POME_TRY(bind_tensor(e, s, x, err)); break;
        case POME_STEP_DYNAMIC: bind_dynamic(e, s); break;
        }
    }
    return POME_OK;
}

pome_status pome_exec_bind(pome_exec *e, pome_error *err)
{
    e->is_bound = e->has_layout = false;
    for (int attempt = 0; attempt < 48; attempt++) {
        bool is_short = false;
        e->main_base = e->main.data ? e->main.data : STAND_IN;
        POME_TRY(bind_once(e, &is_short, err));
        if (is_short) {
            size_t more = e->shape.size * 2;
            if (!pome_memory_grow(&e->shape, more))
                return pome_fail_nomem(err, more, "shapes");
            continue;
        }
        if (e->placer.peak <= e->main.size) {
            e->has_layout = true;
            return POME_OK;
        }
        /* An eighth more: first fit may need a little more room for smaller buffers in other order. */
        size_t want = e->placer.peak + e->placer.peak / 8 + 4096;
        if (!pome_memory_grow(&e->main, want))
            return pome_fail_nomem(err, want, "activations");
    }
    return pome_fail(err, POME_ERR_LIMIT, "shape values need more than %zu bytes", e->shape.size);
}
