#include <string.h>

#include "runtime/exec_internal.h"

enum { BYTES_COMPARED = 256, TENSORS_COMPARED = 8 };

/* A result as it was, to see whether it changed. */
typedef struct result {
    pome_tensor t;
    uint8_t bytes[BYTES_COMPARED];
} result;

static bool is_comparable(const pome_tensor *t)
{
    return t->data && pome_tensor_size_bytes(t) <= BYTES_COMPARED && pome_tensor_is_contiguous(t);
}

/* Shape steps compute when they are bound: results that come out as they were end the change. */
static bool rebind_shape(pome_exec *e, const pome_step *s, pome_exec_step *x)
{
    result before[TENSORS_COMPARED];
    bool is_short = false, is_few = s->op->n_out <= TENSORS_COMPARED;
    for (uint32_t o = 0; is_few && o < s->op->n_out; o++) {
        before[o].t = e->t[s->out + o];
        if (is_comparable(&before[o].t))
            memcpy(before[o].bytes, before[o].t.data, pome_tensor_size_bytes(&before[o].t));
    }
    e->shape_used = x->shape_at;
    if (pome_exec_bind_shape(e, s, x, &is_short, NULL) != POME_OK || is_short || e->shape_used > x->shape_end)
        return false;
    for (uint32_t o = 0; o < s->op->n_out; o++) {
        const pome_tensor *t = &e->t[s->out + o];
        bool is_own = (char *)t->data >= (char *)e->shape.data + x->shape_at &&
                      (char *)t->data < (char *)e->shape.data + x->shape_end; /* else it shows others' contents */
        e->changed[s->out + o] = !is_few || !is_own || !is_comparable(t) || !pome_exec_is_same(&before[o].t, t) ||
                                 memcmp(before[o].bytes, t->data, pome_tensor_size_bytes(t)) != 0;
    }
    return true;
}

static bool rebind_results(pome_exec *e, const pome_step *s)
{
    for (uint32_t o = 0; o < s->op->n_out; o++) {
        pome_tensor *t = &e->t[s->out + o];
        if (pome_tensor_size_bytes(t) > e->room[s->out + o])
            return false;
        t->data = e->main_base + e->offset[s->out + o];
    }
    return true;
}

static bool rebind_copied_view(pome_exec *e, const pome_step *s, const pome_exec_step *x)
{
    for (uint32_t o = 0; o < s->op->n_out; o++)
        e->t[s->out + o] = pome_tensor_borrow(NULL, x->viewed[o].dtype, x->viewed[o].rank, x->viewed[o].shape);
    return rebind_results(e, s);
}

static bool rebind_work(pome_exec *e, const pome_step *s, pome_exec_step *x)
{
    for (uint32_t k = 0; k < x->n_conversions; k++) {
        pome_tensor *t = &x->conversions[k].to;
        if (pome_tensor_size_bytes(t) > x->conversion_place[k].room)
            return false;
        t->data = e->main_base + x->conversion_place[k].offset;
    }
    size_t size = pome_exec_scratch(e, s, x);
    if (size > x->scratch_place.room)
        return false;
    x->scratch = size ? e->main_base + x->scratch_place.offset : NULL;
    return true;
}

static bool rebind_tensor(pome_exec *e, const pome_step *s, pome_exec_step *x)
{
    pome_tensor before[TENSORS_COMPARED];
    bool is_few = s->op->n_out <= TENSORS_COMPARED;
    uint32_t n_conversions = x->n_conversions;
    if (is_few)
        memcpy(before, &e->t[s->out], s->op->n_out * sizeof *before);
    if (pome_exec_infer_step(e, s, x, NULL) != POME_OK)
        return false;
    pome_exec_convert_inputs(e, s, x);
    if (s->in_place)
        pome_exec_show_state(e, s, x);
    if (x->n_conversions != n_conversions)
        return false;
    bool is_bound;
    if (s->copy_view) {
        memcpy(x->viewed, &e->t[s->out], s->op->n_out * sizeof *x->viewed);
        if (pome_exec_try_view(e, s, x, x->viewed) != x->is_copied_view)
            return false;
        is_bound = x->is_copied_view ? rebind_copied_view(e, s, x) : rebind_results(e, s) && rebind_work(e, s, x);
    } else if (s->in_place) {
        is_bound = rebind_work(e, s, x);
    } else if (pome_exec_try_view(e, s, x, &e->t[s->out]) != x->is_view) {
        return false;
    } else {
        is_bound = x->is_view || (rebind_results(e, s) && rebind_work(e, s, x));
    }
    for (uint32_t o = 0; o < s->op->n_out; o++)
        e->changed[s->out + o] = !is_few || !pome_exec_is_same(&before[o], &e->t[s->out + o]);
    return is_bound;
}

bool pome_exec_rebind(pome_exec *e)
{
    const pome_plan_block *b = e->plan->body;
    uint32_t n_changed = 0;
    if (!e->has_layout || !e->is_bound)
        return false;
    e->is_bound = false;
    for (uint32_t i = 0; i < b->n_steps; i++)
        if (b->steps[i].kind == POME_STEP_DYNAMIC)
            return false;
    for (uint32_t i = 0; i < b->n_steps; i++) {
        const pome_step *s = &b->steps[i];
        bool is_changed = false;
        for (uint32_t k = 0; k < s->op->n_in; k++)
            is_changed = is_changed || e->changed[s->in[k]];
        if (!is_changed) {
            memset(e->changed + s->out, 0, s->op->n_out * sizeof *e->changed);
            continue;
        }
        if (++n_changed > b->n_steps / 2)
            return false;
        if (!(s->kind == POME_STEP_SHAPE ? rebind_shape(e, s, &e->body.steps[i]) : rebind_tensor(e, s, &e->body.steps[i])))
            return false;
    }
    return true;
}
