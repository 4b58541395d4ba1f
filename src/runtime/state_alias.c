/* States in place. A graph reads a cache, updates a slice of the copy and writes the copy back; layers do so in turn
 * on one state. Here read_state becomes a view of the state's memory and slice_update writes into it, where that
 * cannot be told from copying:
 *
 * - slice_update may write in place if its x is the whole state as it stands, and the result is written back before
 *   anyone reads or writes the state otherwise (several updates may follow each other in between);
 * - a view of the state that is used after the memory changed under it must be a copy, unless what changed is a
 *   part that the view does not show. Bounds known at compile time (the layer axis) prove most views disjoint. */
#include <string.h>

#include "passes/symbolic.h"
#include "runtime/plan.h"

typedef struct region {
    int64_t begin[POME_MAX_RANK], end[POME_MAX_RANK]; /* of the state's axes; what is not known counts as touched */
} region;

typedef struct alias {
    bool is_alias, is_full;
    uint32_t state;   /* slot of the state */
    uint32_t version; /* of its memory when this view was made */
    uint32_t def;     /* step index */
    region r;
} alias;

typedef struct event { /* memory of a state changes */
    uint32_t state, step;
    region r;
} event;

typedef struct analysis {
    pome_plan *plan;
    const pome_sym_vector *sym;
    alias *at;         /* [n_slots] */
    event *events;     /* [n_steps] */
    uint32_t n_events;
    uint32_t *version; /* [n_slots] of states */
} analysis;

static region whole(const pome_type *t)
{
    region r = {{0}, {0}};
    for (int32_t i = 0; i < t->rank; i++)
        r.end[i] = t->dim[i] < 0 ? INT64_MAX : t->dim[i];
    return r;
}

static bool overlap(const region *a, const region *b, int32_t rank)
{
    for (int32_t i = 0; i < rank; i++)
        if (a->end[i] <= b->begin[i] || b->end[i] <= a->begin[i])
            return false;
    return true;
}

static bool mask_at(const pome_op *op, int param, int32_t axis)
{
    const pome_value *v = pome_op_arg(op, (uint32_t)param);
    return v && v->konst && axis < pome_tensor_count(&v->konst->t) && pome_tensor_int_at(&v->konst->t, axis);
}

static bool bound(const analysis *a, const pome_op *op, int param, int32_t axis, int64_t n, int64_t *out)
{
    const pome_value *v = pome_op_arg(op, (uint32_t)param);
    const pome_sym_vector *s = v ? &a->sym[v->id] : NULL;
    if (!s || !s->known || axis >= s->n || s->e[axis].kind != POME_SYM_NUMBER)
        return false;
    int64_t x = s->e[axis].v;
    x = x < 0 ? x + n : x;
    *out = x < 0 ? 0 : x > n ? n : x;
    return true;
}

typedef struct slice_params {
    int begin, end, stride, begin_mask, end_mask, squeeze_mask;
} slice_params;

static const slice_params by_index = {P_slice_by_index_begin,      P_slice_by_index_end,
                                      P_slice_by_index_stride,     P_slice_by_index_begin_mask,
                                      P_slice_by_index_end_mask,   P_slice_by_index_squeeze_mask};
static const slice_params update = {P_slice_update_begin,    P_slice_update_end,      P_slice_update_stride,
                                    P_slice_update_begin_mask, P_slice_update_end_mask, P_slice_update_squeeze_mask};

/* The part of a state of type t that the slice touches, at most. */
static region slice_region(const analysis *a, const pome_op *op, const slice_params *p, const pome_type *t)
{
    region r = whole(t);
    const pome_value *stride = pome_op_arg(op, (uint32_t)p->stride);
    for (int32_t i = 0; i < t->rank; i++) {
        int64_t b = 0, e = t->dim[i];
        bool reversed = stride && (!stride->konst || pome_tensor_int_at(&stride->konst->t, i) < 0);
        if (t->dim[i] < 0 || reversed)
            continue;
        bool has_begin = mask_at(op, p->begin_mask, i) || bound(a, op, p->begin, i, t->dim[i], &b);
        if (mask_at(op, p->squeeze_mask, i)) {
            if (has_begin) {
                r.begin[i] = b;
                r.end[i] = b + 1;
            }
            continue;
        }
        if (has_begin)
            r.begin[i] = b;
        if (!mask_at(op, p->end_mask, i) && bound(a, op, p->end, i, t->dim[i], &e))
            r.end[i] = e;
    }
    return r;
}

static void record(analysis *a, uint32_t state, uint32_t step, const region *r)
{
    a->events[a->n_events++] = (event){state, step, *r};
    a->version[state]++;
}

static bool reads_state(const pome_step *s, uint32_t state)
{
    for (uint32_t k = 0; k < s->op->n_in; k++)
        if (s->in[k] == state)
            return true;
    for (uint32_t k = 0; k < s->n_captured; k++)
        if (s->captured[k] == state)
            return true;
    return false;
}

/* Whether the update's result reaches a write_state of its state with nothing in between that could tell. */
static bool is_written_back(const pome_plan *p, uint32_t from, uint32_t state)
{
    uint32_t chain = p->body->steps[from].out;
    for (uint32_t i = from + 1; i < p->body->n_steps; i++) {
        const pome_step *s = &p->body->steps[i];
        if (s->op->def->id == POME_OP_slice_update && s->in[s->op->args[P_slice_update_x].first] == chain) {
            chain = s->out; /* an older link of the chain may still be written: that is refused below */
            continue;
        }
        if (reads_state(s, state))
            return s->op->def->id == POME_OP_write_state && s->in[s->op->args[P_write_state_data].first] == chain;
    }
    return false;
}

static void see_slice_update(analysis *a, uint32_t i, pome_step *s, bool first_round)
{
    uint32_t x = s->in[s->op->args[P_slice_update_x].first];
    const alias *v = &a->at[x];
    if (!v->is_alias || !v->is_full || v->version != a->version[v->state]) {
        s->in_place = false;
        return;
    }
    if (first_round)
        s->in_place = is_written_back(a->plan, i, v->state);
    if (!s->in_place)
        return;
    const pome_type *t = &a->plan->slots[v->state].type;
    region r = slice_region(a, s->op, &update, t);
    uint32_t state = v->state;
    record(a, state, i, &r);
    a->at[s->out] = (alias){.is_alias = true, .is_full = true, .state = state, .version = a->version[state], .def = i,
                            .r = whole(t)};
}

static void see_view(analysis *a, uint32_t i, const pome_step *s)
{
    if (!s->impl || !s->impl->view || !s->op->n_in || s->copy_view)
        return;
    const alias *x = &a->at[s->in[0]];
    if (!x->is_alias)
        return;
    alias v = *x;
    v.is_full = false;
    v.def = i;
    if (x->is_full && s->op->def->id == POME_OP_slice_by_index)
        v.r = slice_region(a, s->op, &by_index, &a->plan->slots[x->state].type);
    if (x->is_full && s->op->def->id == POME_OP_identity)
        v.is_full = true;
    for (uint32_t o = 0; o < s->op->n_out; o++)
        a->at[s->out + o] = v;
}

static void see_read(analysis *a, uint32_t i, const pome_step *s)
{
    uint32_t state = s->in[0];
    if (!s->copy_view)
        a->at[s->out] = (alias){.is_alias = true, .is_full = true, .state = state, .version = a->version[state],
                                .def = i, .r = whole(&a->plan->slots[state].type)};
}

static void see_write(analysis *a, uint32_t i, const pome_step *s)
{
    uint32_t state = s->in[s->op->args[P_write_state_input].first];
    const alias *d = &a->at[s->in[s->op->args[P_write_state_data].first]];
    bool is_same = d->is_alias && d->is_full && d->state == state && d->version == a->version[state];
    region r = whole(&a->plan->slots[state].type);
    if (!is_same)
        record(a, state, i, &r);
}

static void walk(analysis *a, bool first_round)
{
    pome_plan *p = a->plan;
    memset(a->at, 0, p->n_slots * sizeof *a->at);
    memset(a->version, 0, p->n_slots * sizeof *a->version);
    a->n_events = 0;
    for (uint32_t i = 0; i < p->body->n_steps; i++) {
        pome_step *s = &p->body->steps[i];
        switch (s->op->def->id) {
        case POME_OP_read_state: see_read(a, i, s); break;
        case POME_OP_write_state: see_write(a, i, s); break;
        case POME_OP_slice_update: see_slice_update(a, i, s, first_round); break;
        default: see_view(a, i, s); break;
        }
        for (uint32_t k = 0; s->op->n_blocks && k < s->n_captured; k++)
            if (p->slots[s->captured[k]].kind == POME_SLOT_STATE) { /* nested blocks may write it */
                region r = whole(&p->slots[s->captured[k]].type);
                record(a, s->captured[k], i, &r);
            }
    }
}

/* Makes the view behind `slot` a copy if the use at step u (operand k, or an output) sees changed memory. */
static bool mend(analysis *a, uint32_t slot, uint32_t u, bool is_updated_x)
{
    const alias *v = &a->at[slot];
    if (!v->is_alias)
        return false;
    int32_t rank = a->plan->slots[v->state].type.rank;
    for (uint32_t e = 0; e < a->n_events; e++) {
        const event *m = &a->events[e];
        bool is_between = m->state == v->state && m->step > v->def && (m->step < u || (m->step == u && !is_updated_x));
        if (!is_between || !overlap(&m->r, &v->r, rank))
            continue;
        pome_step *def = &a->plan->body->steps[v->def];
        if (def->in_place)
            def->in_place = false;
        else
            def->copy_view = true;
        return true;
    }
    return false;
}

static bool mend_all(analysis *a)
{
    pome_plan_block *b = a->plan->body;
    bool changed = false;
    for (uint32_t u = 0; u < b->n_steps; u++) {
        const pome_step *s = &b->steps[u];
        for (uint32_t k = 0; k < s->op->n_in; k++) {
            bool is_x = s->in_place && k == s->op->args[P_slice_update_x].first;
            changed |= mend(a, s->in[k], u, is_x);
        }
        for (uint32_t k = 0; k < s->n_captured; k++)
            changed |= mend(a, s->captured[k], u, false);
    }
    for (uint32_t k = 0; k < b->n_outputs; k++)
        changed |= mend(a, b->outputs[k], b->n_steps, false);
    return changed;
}

pome_status pome_plan_alias_states(pome_plan *plan, pome_error *err)
{
    if (plan->n_states == 0)
        return POME_OK;
    pome_sym_vector *sym;
    pome_arena *work = pome_arena_create(0);
    if (!work)
        return pome_fail_nomem(err, 0, "plan");
    analysis a = {.plan = plan};
    pome_status s = pome_symbolic_analyze(plan->fn, work, &sym, err);
    if (s == POME_OK) {
        a.sym = sym;
        a.at = POME_NEW_ARRAY(work, alias, plan->n_slots);
        a.version = POME_NEW_ARRAY(work, uint32_t, plan->n_slots);
        a.events = POME_NEW_ARRAY(work, event, (size_t)plan->body->n_steps * (1 + plan->n_states));
        if (!a.at || !a.version || !a.events)
            s = pome_fail_nomem(err, plan->n_slots * sizeof *a.at, "plan");
    }
    if (s == POME_OK) {
        walk(&a, true);
        while (mend_all(&a)) /* each round takes a flag away or sets one: it ends */
            walk(&a, false);
    }
    pome_arena_destroy(&work);
    return s;
}
