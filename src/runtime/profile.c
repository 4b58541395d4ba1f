#include "runtime/profile.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/model.h"

struct pome_profile {
    pome_profile_section *first, **end;
};

enum { AT_INPUTS, AT_BINDING, AT_STEPS, N_AROUND = 3 }; /* outputs come last */

/* ---- life ---- */

pome_status pome_profile_create(pome_profile **out, pome_error *err)
{
    pome_profile *p = calloc(1, sizeof *p);
    if (!p)
        return pome_fail_nomem(err, sizeof *p, "profile");
    p->end = &p->first;
    *out = p;
    return POME_OK;
}

void pome_profile_destroy(pome_profile **profile)
{
    if (!profile || !*profile)
        return;
    for (pome_profile_section *s = (*profile)->first, *next; s; s = next) {
        next = s->next;
        free(s);
    }
    free(*profile);
    *profile = NULL;
}

void pome_profile_clear(pome_profile *profile)
{
    for (pome_profile_section *s = profile->first; s; s = s->next) {
        s->n_runs = s->total_ns = 0;
        for (size_t i = 0; i < s->n_steps; i++)
            s->steps[i] = (pome_profile_step){.op = s->steps[i].op, .name = s->steps[i].name};
    }
}

pome_profile_section *pome_profile_section_of(pome_profile *profile, const pome_plan *plan)
{
    for (pome_profile_section *s = profile->first; s; s = s->next)
        if (s->plan == plan)
            return s;
    size_t n = plan->body->n_steps;
    pome_profile_section *s = calloc(1, sizeof *s + (n + N_AROUND) * sizeof s->steps[0]);
    if (!s)
        return NULL;
    s->plan = plan;
    s->n_steps = n + N_AROUND;
    s->steps[AT_INPUTS] = (pome_profile_step){.op = "(inputs)", .name = ""};
    s->steps[AT_BINDING] = (pome_profile_step){.op = "(binding)", .name = ""};
    s->steps[AT_STEPS + n] = (pome_profile_step){.op = "(outputs)", .name = ""};
    for (size_t i = 0; i < n; i++) {
        const pome_op *op = plan->body->steps[i].op;
        s->steps[AT_STEPS + i] =
            (pome_profile_step){.op = op->def->name, .name = op->n_out ? op->out[0]->name : op->name};
    }
    *profile->end = s;
    profile->end = &s->next;
    return s;
}

/* ---- reading ---- */

size_t pome_profile_n_steps(const pome_profile *profile)
{
    size_t n = 0;
    for (const pome_profile_section *s = profile->first; s; s = s->next)
        n += s->n_steps;
    return n;
}

const pome_profile_step *pome_profile_step_at(const pome_profile *profile, size_t index)
{
    for (const pome_profile_section *s = profile->first; s; s = s->next) {
        if (index < s->n_steps)
            return &s->steps[index];
        index -= s->n_steps;
    }
    return NULL;
}

uint64_t pome_profile_n_runs(const pome_profile *profile)
{
    uint64_t n = 0;
    for (const pome_profile_section *s = profile->first; s; s = s->next)
        n += s->n_runs;
    return n;
}

double pome_profile_seconds(const pome_profile *profile)
{
    uint64_t sum = 0;
    for (const pome_profile_section *s = profile->first; s; s = s->next)
        sum += s->total_ns;
    return (double)sum * 1e-9;
}

/* ---- what a step works on ---- */

/* A constant matrix, in whatever encoding; norms' factors, biases and attributes are none. */
static const pome_const *matrix_of(const pome_plan *plan, const pome_step *s, uint32_t k)
{
    const pome_const *c = s->op->in[k]->konst;
    return c && plan->slots[s->in[k]].kind == POME_SLOT_CONST && c->t.rank >= 2 ? c : NULL;
}

static uint64_t bytes_of(const pome_plan *plan, const pome_step *s, uint32_t k)
{
    const pome_tensor *expanded = &plan->slots[s->in[k]].konst;
    const pome_const *c = s->op->in[k]->konst;
    return expanded->data ? pome_tensor_size_bytes(expanded) : pome_const_stored_bytes(c);
}

static bool takes_rows(const pome_op *op)
{
    return op->def->id == POME_OP_gather || op->def->id == POME_OP_gather_nd || op->def->id == POME_OP_gather_along_axis;
}

/* Operators whose constant matrices are weights: the rest reads tables and shapes. pome_* are fused groups. */
static bool multiplies_weights(const pome_op *op)
{
    switch (op->def->id) {
    case POME_OP_linear:
    case POME_OP_matmul:
    case POME_OP_einsum:
    case POME_OP_conv:
    case POME_OP_pome_conv:
    case POME_OP_conv_transpose:
    case POME_OP_lstm:
    case POME_OP_gru:
    case POME_OP_rnn:
        return true;
    default:
        return strncmp(op->def->name, "pome_", 5) == 0;
    }
}

/* The first input that is no constant: what the weights are multiplied with. */
static const pome_tensor *activations_of(const pome_plan *plan, const pome_step *s, const pome_tensor *tensors)
{
    for (uint32_t k = 0; k < s->op->n_in; k++)
        if (plan->slots[s->in[k]].kind != POME_SLOT_CONST)
            return &tensors[s->in[k]];
    return NULL;
}

static uint64_t count_of(const pome_tensor *t)
{
    return (uint64_t)pome_tensor_count(t);
}

/* Products of activations: matmul [.., m, k] x [.., k, n] and attention over q [.., l, e], k [.., s, e], v [.., s, f]. */
static uint64_t product_ops(const pome_step *s, const pome_tensor *tensors)
{
    const pome_op *op = s->op;
    if (op->def->id == POME_OP_matmul) {
        const pome_tensor *x = &tensors[s->in[op->args[P_matmul_x].first]];
        const pome_value *transpose = pome_op_arg(op, P_matmul_transpose_x);
        bool is_transposed = transpose && transpose->konst && transpose->konst->t.data &&
                             pome_tensor_int_at(&transpose->konst->t, 0) != 0;
        int32_t axis = x->rank < 2 ? x->rank - 1 : is_transposed ? x->rank - 2 : x->rank - 1;
        return axis < 0 ? 0 : 2 * count_of(&tensors[s->out]) * (uint64_t)x->shape[axis];
    }
    if (op->def->id == POME_OP_scaled_dot_product_attention) {
        const pome_tensor *q = &tensors[s->in[op->args[P_scaled_dot_product_attention_query].first]],
                          *v = &tensors[s->in[op->args[P_scaled_dot_product_attention_value].first]];
        uint64_t n_keys = (uint64_t)v->shape[v->rank - 2];
        return 2 * n_keys * (count_of(q) + count_of(&tensors[s->out]));
    }
    return 0;
}

static void count_work(const pome_plan *plan, const pome_step *s, const pome_tensor *tensors, pome_profile_step *to)
{
    const pome_op *op = s->op;
    const pome_tensor *out = &tensors[s->out], *x = NULL;
    uint64_t n_ops = 0;
    for (uint32_t k = 0; k < op->n_in; k++) {
        const pome_const *c = matrix_of(plan, s, k);
        if (!c)
            continue;
        uint64_t bytes = bytes_of(plan, s, k), n = count_of(&c->t), n_out = (uint64_t)c->t.shape[0];
        if (!takes_rows(op) && !multiplies_weights(op))
            continue;
        if (takes_rows(op)) {
            to->weights_bytes += n ? (uint64_t)((double)bytes * (double)count_of(out) / (double)n) : 0;
            continue;
        }
        to->weights_bytes += bytes;
        x = x ? x : activations_of(plan, s, tensors);
        if (op->def->id == POME_OP_matmul || !x || n_out == 0)
            continue;
        if (op->def->id == POME_OP_conv || op->def->id == POME_OP_pome_conv) /* every result sums one filter */
            n_ops += 2 * count_of(out) * (n / n_out);
        else if (n / n_out > 0 && count_of(x) % (n / n_out) == 0) /* [out, in] for each of count / in vectors */
            n_ops += 2 * n * (count_of(x) / (n / n_out));
    }
    to->n_ops += n_ops ? n_ops : product_ops(s, tensors);
}

/* ---- measuring ---- */

static uint64_t clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void end_part(pome_profile_section *s, size_t index, bool has_run)
{
    uint64_t now = clock_ns();
    s->steps[index].seconds += (double)(now - s->last_ns) * 1e-9;
    s->steps[index].n_runs += has_run;
    s->last_ns = now;
}

void pome_profile_begin(pome_profile_section *s)
{
    s->begin_ns = s->last_ns = clock_ns();
}

void pome_profile_end_inputs(pome_profile_section *s)
{
    end_part(s, AT_INPUTS, true);
}

void pome_profile_end_binding(pome_profile_section *s, bool has_bound)
{
    end_part(s, AT_BINDING, has_bound);
}

void pome_profile_end_step(pome_profile_section *s, uint32_t step, const pome_tensor *tensors)
{
    end_part(s, AT_STEPS + step, true);
    if (s->plan->body->steps[step].kind == POME_STEP_TENSOR)
        count_work(s->plan, &s->plan->body->steps[step], tensors, &s->steps[AT_STEPS + step]);
}

void pome_profile_end_outputs(pome_profile_section *s)
{
    end_part(s, s->n_steps - 1, true);
    s->total_ns += s->last_ns - s->begin_ns;
    s->n_runs++;
}
