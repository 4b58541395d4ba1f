/* What is added to a cache that leaves the program as halves is halves inside it as well.
 *
 * A cache that comes in and goes out again is rounded on its way out. If this pass went on with more exact values than the
 * next one will find in the cache, logits would depend on how tokens are shared out among passes, and int8 activations
 * make much of that little. So where an output is put together from an input and something new, by operators that only
 * move values, the new is rounded where it was computed. Caches in states need nothing: they are halves in memory. */
#include <string.h>

#include "runtime/plan.h"

enum {
    HOLDS_INPUT = 1, /* is, or was moved together from, an input of halves */
    LEAVES = 2,
    IS_READ = 4      /* by something else than what leads to an output */
};

static bool only_moves(pome_op_id id)
{
    switch (id) {
    case POME_OP_concat:
    case POME_OP_expand_dims:
    case POME_OP_gather:
    case POME_OP_identity:
    case POME_OP_reshape:
    case POME_OP_reverse:
    case POME_OP_select:
    case POME_OP_slice_by_index:
    case POME_OP_slice_by_size:
    case POME_OP_slice_update:
    case POME_OP_split:
    case POME_OP_squeeze:
    case POME_OP_stack:
    case POME_OP_tile:
    case POME_OP_transpose: return true;
    default: return false;
    }
}

static void mark(const pome_plan *p, uint8_t *marks, uint32_t slot, uint8_t with)
{
    const pome_slot *s = &p->slots[slot];
    if (s->kind == POME_SLOT_TENSOR && s->type.dtype == POME_DTYPE_F16)
        marks[slot] |= (uint8_t)(with | (s->n_uses > 1 ? IS_READ : 0));
}

static void find_moved_inputs(const pome_plan *p, uint8_t *marks)
{
    for (uint32_t i = 0; i < p->n_inputs; i++)
        if (p->slots[p->input_slots[i]].type.dtype == POME_DTYPE_F16)
            marks[p->input_slots[i]] = HOLDS_INPUT;
    for (uint32_t i = 0; i < p->body->n_steps; i++) {
        const pome_step *s = &p->body->steps[i];
        uint8_t holds = 0;
        for (uint32_t k = 0; only_moves(s->op->def->id) && k < s->op->n_in; k++)
            holds |= marks[s->in[k]];
        for (uint32_t o = 0; o < s->op->n_out; o++)
            marks[s->out + o] = holds;
    }
}

pome_status pome_plan_round_outputs(pome_plan *p, pome_error *err)
{
    const pome_plan_block *b = p->body;
    uint8_t *marks = POME_NEW_ARRAY(p->arena, uint8_t, p->n_slots);
    if (!marks)
        return pome_fail_nomem(err, p->n_slots, "plan");
    find_moved_inputs(p, marks);
    for (uint32_t i = 0; i < b->n_outputs; i++)
        if (marks[b->outputs[i]] & HOLDS_INPUT)
            mark(p, marks, b->outputs[i], LEAVES);
    for (uint32_t i = b->n_steps; i-- > 0;) {
        const pome_step *s = &b->steps[i];
        uint8_t all = 0;
        for (uint32_t o = 0; o < s->op->n_out; o++) {
            uint8_t m = marks[s->out + o];
            if (m & LEAVES)
                all |= (uint8_t)(m & (LEAVES | IS_READ));
            p->slots[s->out + o].is_rounded = m == (LEAVES | IS_READ) && !only_moves(s->op->def->id);
        }
        for (uint32_t k = 0; all && only_moves(s->op->def->id) && k < s->op->n_in; k++)
            mark(p, marks, s->in[k], all);
    }
    return POME_OK;
}
