/* Sets PREFIX_chunk1, PREFIX_chunk2, ... whose chunks with layers keep their own states: the first turns ids and a mask into
 * embeddings, rotary tables and a mask, the last one gives the logits. What `pome convert --chunks` makes. Passes are those of
 * one package with states; an output is handed to later chunks as it is, by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/trace.h"
#include "llm/chunk_list.h"
#include "llm/contract_function.h"
#include "runtime/predictor.h"

typedef struct chain {
    pome_chunk_list list;
    int logits; /* output of the last chunk */
    uint32_t n_states;
} chain;

/* ---- finding ---- */

static bool find_first(pome_contract *c, pome_misfit *misfit)
{
    char seen[200];
    for (uint32_t i = 0; i < c->function->n_inputs; i++) {
        const pome_feature *f = &c->function->inputs[i];
        if (pome_feature_is_array(f, 2, false) && c->ids < 0)
            c->ids = (int)i;
        else if (pome_feature_is_array(f, 4, true) && c->mask < 0)
            c->mask = (int)i;
        else if (!f->is_optional)
            return pome_misfit_say(misfit, 2, "the first chunk's input '%s' has no known part", f->name);
    }
    if (c->ids < 0 || c->mask < 0)
        return pome_misfit_say(misfit, 2, "the first chunk does not take ids int32 [1, n] and a float mask of rank 4; it takes "
                               "%s", pome_chunk_names(c->function->inputs, c->function->n_inputs, seen, sizeof seen));
    return pome_lengths_of(&c->function->inputs[c->ids], 1, &c->lengths) ||
           pome_misfit_say(misfit, 3, "'%s' lists too many shapes", c->function->inputs[c->ids].name);
}

static const chain *chain_of(const pome_contract *c)
{
    return c->own;
}

/* Which chunk before `at` gives input `name`, the nearest one; -1: none. */
static int giver_of(const chain *s, uint32_t at, const char *name, int *output)
{
    for (uint32_t k = at; k-- > 0;) {
        const pome_function_info *f = pome_chunk_function(s->list.chunk[k]);
        for (uint32_t o = 0; o < f->n_outputs; o++)
            if (pome_chunk_feeds(f->outputs[o].name, name)) {
                *output = (int)o;
                return (int)k;
            }
    }
    return -1;
}

/* States [.., row, size] bound the context. */
static bool take_states(pome_contract *c, chain *s, const pome_contract_model *m, pome_misfit *misfit)
{
    const pome_function_info *f = pome_chunk_function(m);
    if (f->n_states == 0)
        return pome_misfit_say(misfit, 3, "%s has no states", m->name);
    for (uint32_t i = 0; i < f->n_states; i++) {
        int64_t rows = f->states[i].rank >= 3 ? f->states[i].shape[f->states[i].rank - 2] : 0;
        if (rows < 1)
            return pome_misfit_say(misfit, 5, "state '%s' of %s has no rows", f->states[i].name, m->name);
        if (s->n_states > 0 && rows != c->context)
            return pome_misfit_say(misfit, 5, "%s keeps %lld rows, chunks before it %lld: they are of different context lengths",
                                   m->name, (long long)rows, (long long)c->context);
        c->context = rows;
        s->n_states++;
    }
    return true;
}

static bool find_rest(pome_contract *c, chain *s, pome_misfit *misfit)
{
    char seen[200];
    for (uint32_t i = 1; i < s->list.n; i++) {
        const pome_contract_model *m = s->list.chunk[i];
        const pome_function_info *f = pome_chunk_function(m);
        for (uint32_t k = 0; k < f->n_inputs; k++) {
            int output;
            if (giver_of(s, i, f->inputs[k].name, &output) < 0)
                return pome_misfit_say(misfit, 4, "no chunk before %s gives its input '%s'", m->name, f->inputs[k].name);
        }
        if (i + 1 < s->list.n && !take_states(c, s, m, misfit))
            return false;
    }
    const pome_function_info *last = pome_chunk_function(s->list.chunk[s->list.n - 1]);
    for (uint32_t i = 0; i < last->n_outputs; i++)
        if (pome_name_has(last->outputs[i].name, "logit") && pome_dtype_is_float(last->outputs[i].dtype))
            s->logits = (int)i;
    if (s->logits < 0 || last->n_states > 0)
        return pome_misfit_say(misfit, 5, "%s, the last chunk, gives no logits but %s: are later chunks missing?",
                               s->list.chunk[s->list.n - 1]->name,
                               pome_chunk_names(last->outputs, last->n_outputs, seen, sizeof seen));
    return true;
}

static bool fit(pome_contract *c, pome_misfit *misfit)
{
    chain *s = c->own = calloc(1, sizeof *s);
    pome_lengths columns;
    if (!s)
        return pome_misfit_say(misfit, 0, "memory is short");
    s->logits = c->ids = c->mask = c->position = c->positions = c->update = -1;
    if (!pome_chunk_list_find(c->subject, &s->list, misfit))
        return false;
    c->model = s->list.chunk[0]->model;
    c->function = pome_chunk_function(s->list.chunk[0]);
    if (s->list.n < 3)
        return pome_misfit_say(misfit, 3, "there %s of '%s': a first, one with layers and a last are the least",
                               s->list.n == 1 ? "is 1 chunk" : "are 2 chunks", s->list.prefix);
    if (!find_first(c, misfit) || !find_rest(c, s, misfit))
        return false;
    if (!pome_lengths_of(&c->function->inputs[c->mask], 3, &columns) || columns.min == columns.max)
        return pome_misfit_say(misfit, 6, "the mask does not end with the tokens");
    if (columns.max > 0 && columns.max < c->context)
        c->context = columns.max;
    const pome_feature *logits = &pome_chunk_function(s->list.chunk[s->list.n - 1])->outputs[s->logits];
    c->n_vocab = logits->rank > 0 && logits->shape[logits->rank - 1] > 0 ? logits->shape[logits->rank - 1] : 0;
    c->specificity = 4;
    snprintf(c->because, sizeof c->because, "%u chunks hand x on and keep states", s->list.n - 2);
    return true;
}

static void describe(const pome_contract *c, char *text, size_t size)
{
    const chain *s = c->own;
    snprintf(text, size, "%s, %u chunks of '%s', %u states, ids=%s, mask=%s (end), logits=%s", c->kind->name, s->list.n,
             s->list.prefix, s->n_states, c->function->inputs[c->ids].name, c->function->inputs[c->mask].name,
             pome_chunk_function(s->list.chunk[s->list.n - 1])->outputs[s->logits].name);
}

static pome_pass plan(const pome_contract *c, int64_t n_cached, int64_t n_tokens, int64_t block)
{
    return pome_contract_stateful.plan(c, n_cached, n_tokens, block);
}

static void fill(const pome_contract *c, pome_pass pass, const int32_t *timeline, pome_pass_inputs *in)
{
    pome_contract_stateful.fill(c, pass, timeline, in);
}

static void reset(pome_contract *c)
{
    free(c->own);
    c->own = NULL;
}

/* ---- running ---- */

typedef struct link_run {
    pome_predictor *predictor;
    pome_state *state;
    int *giver, *output; /* [n_inputs] chunk and its output */
} link_run;

typedef struct chain_runner {
    pome_runner base;
    const chain *set;
    link_run *links;          /* [list.n]; the last one gives logits of all rows, made when first needed */
    pome_predictor *last_row; /* of the last chunk */
    pome_profile *profile;
    pome_pass_inputs in;
    bool is_spoiled;
} chain_runner;

static void clear(pome_runner *runner)
{
    chain_runner *r = (chain_runner *)runner;
    for (uint32_t i = 0; i < r->set->list.n; i++)
        if (r->links[i].state)
            pome_state_clear(r->links[i].state);
    r->is_spoiled = false;
}

static pome_status create_link(chain_runner *r, uint32_t i, int last_row, pome_predictor **out, pome_error *err)
{
    const pome_contract_model *m = r->set->list.chunk[i];
    pome_predictor_opts opts;
    pome_predictor_opts_default(&opts);
    opts.last_row_output = last_row;
    POME_TRY(pome_predictor_create(out, m->model, pome_chunk_function(m)->name, &opts, err));
    pome_predictor_stop_by(*out, r->base.stop);
    return pome_predictor_profile(*out, r->profile, err);
}

/* Hands over what earlier chunks gave and runs. */
static pome_status run_link(chain_runner *r, uint32_t i, pome_predictor *p, int64_t step, pome_error *err)
{
    const pome_contract_model *m = r->set->list.chunk[i];
    const link_run *link = &r->links[i];
    uint64_t begin = pome_trace_begin();
    pome_error inner = {0};
    pome_status status = POME_OK;
    for (uint32_t k = 0; i > 0 && k < pome_chunk_function(m)->n_inputs && status == POME_OK; k++)
        status = pome_predictor_set_input(
            p, k, pome_predictor_output(r->links[link->giver[k]].predictor, (uint32_t)link->output[k]), &inner);
    if (status == POME_OK)
        status = pome_predictor_run(p, link->state, &inner);
    pome_trace_end(begin, "predict", m->name, step, 0);
    return status == POME_OK ? POME_OK : pome_fail(err, status, "%s: %.900s", m->name, inner.message);
}

static pome_status run_chunks(chain_runner *r, pome_pass pass, const int32_t *timeline, pome_want want, pome_rows *rows,
                              pome_error *err)
{
    const pome_contract *c = r->base.contract;
    uint32_t last = r->set->list.n - 1;
    bool is_last_row = want == POME_WANT_LAST && pass.n_real == pass.n_rows;
    fill(c, pass, timeline, &r->in);
    POME_TRY(pome_predictor_set_input(r->links[0].predictor, (uint32_t)c->ids, &r->in.ids_tensor, err));
    POME_TRY(pome_predictor_set_input(r->links[0].predictor, (uint32_t)c->mask, &r->in.mask_tensor, err));
    for (uint32_t i = 0; i < last; i++)
        POME_TRY(run_link(r, i, r->links[i].predictor, pass.begin + pass.n_real, err));
    if (want == POME_WANT_NOTHING)
        return POME_OK;
    if (!is_last_row && !r->links[last].predictor)
        POME_TRY(create_link(r, last, -1, &r->links[last].predictor, err));
    pome_predictor *p = is_last_row ? r->last_row : r->links[last].predictor;
    POME_TRY(run_link(r, last, p, pass.begin + pass.n_real, err));
    const pome_tensor *out = pome_predictor_output(p, (uint32_t)r->set->logits);
    int64_t n = out->rank == 3 ? out->shape[1] : 0;
    if (n != pass.n_rows && n != 1)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "%s gives %lld rows of logits for %lld", r->set->list.chunk[last]->name,
                         (long long)n, (long long)pass.n_rows);
    *rows = (pome_rows){.first = n == 1 ? pass.n_real - 1 : 0, .n = n, .n_parts = 1, .parts = {out}};
    return POME_OK;
}

static pome_status run(pome_runner *runner, pome_pass pass, const int32_t *timeline, pome_want want, pome_rows *rows,
                       pome_error *err)
{
    chain_runner *r = (chain_runner *)runner;
    r->is_spoiled = true;
    POME_TRY(run_chunks(r, pass, timeline, want, rows, err));
    r->is_spoiled = false;
    return POME_OK;
}

static pome_status reserve_rows(pome_runner *runner, int64_t n_rows, pome_error *err)
{
    chain_runner *r = (chain_runner *)runner;
    uint32_t last = r->set->list.n - 1;
    (void)n_rows;
    return r->links[last].predictor ? POME_OK : create_link(r, last, -1, &r->links[last].predictor, err);
}

static pome_status profile(pome_runner *runner, pome_profile *to, pome_error *err)
{
    chain_runner *r = (chain_runner *)runner;
    r->profile = to;
    for (uint32_t i = 0; i < r->set->list.n; i++)
        if (r->links[i].predictor)
            POME_TRY(pome_predictor_profile(r->links[i].predictor, to, err));
    return pome_predictor_profile(r->last_row, to, err);
}

static void destroy(pome_runner *runner)
{
    chain_runner *r = (chain_runner *)runner;
    for (uint32_t i = 0; r->links && i < r->set->list.n; i++) {
        pome_predictor_destroy(&r->links[i].predictor);
        pome_state_destroy(&r->links[i].state);
        free(r->links[i].giver);
        free(r->links[i].output);
    }
    pome_predictor_destroy(&r->last_row);
    free(r->links);
    free(r->in.ids);
    free(r->in.mask);
    free(r);
}

static pome_status init_link(chain_runner *r, uint32_t i, pome_error *err)
{
    const pome_contract_model *m = r->set->list.chunk[i];
    const pome_function_info *f = pome_chunk_function(m);
    link_run *link = &r->links[i];
    link->giver = calloc(f->n_inputs + 1u, sizeof *link->giver);
    link->output = calloc(f->n_inputs + 1u, sizeof *link->output);
    if (!link->giver || !link->output)
        return pome_fail_nomem(err, f->n_inputs * sizeof *link->giver, "chunks");
    for (uint32_t k = 0; k < f->n_inputs && i > 0; k++)
        link->giver[k] = giver_of(r->set, i, f->inputs[k].name, &link->output[k]);
    if (f->n_states > 0)
        POME_TRY(pome_state_create(&link->state, m->model, f->name, err));
    return i + 1 < r->set->list.n ? create_link(r, i, -1, &link->predictor, err)
                                  : create_link(r, i, r->set->logits, &r->last_row, err);
}

static const pome_runner_ops ops = {destroy, clear, run, pome_rows_kept, pome_rows_rewind,
                                     pome_rows_can_undo, reserve_rows, profile};

static pome_status create(pome_runner **out, const pome_contract *c, const pome_runner_opts *opts, pome_error *err)
{
    chain_runner *r = calloc(1, sizeof *r);
    if (!r)
        return pome_fail_nomem(err, sizeof *r, "chunks");
    r->base = (pome_runner){&ops, c, opts->stop};
    r->set = chain_of(c);
    int64_t n_rows = opts->block > c->lengths.min ? opts->block : c->lengths.min;
    for (int i = 0; i < c->lengths.n_listed; i++)
        n_rows = c->lengths.listed[i] > n_rows ? c->lengths.listed[i] : n_rows;
    r->links = calloc(r->set->list.n, sizeof *r->links);
    r->in.ids = calloc((size_t)n_rows, sizeof *r->in.ids);
    r->in.mask = calloc((size_t)n_rows * (size_t)c->context, sizeof(float));
    pome_status status = r->links && r->in.ids && r->in.mask ? POME_OK : pome_fail_nomem(err, 0, "chunks");
    for (uint32_t i = 0; i < r->set->list.n && status == POME_OK; i++)
        status = init_link(r, i, err);
    if (status != POME_OK) {
        destroy(&r->base);
        return status;
    }
    *out = &r->base;
    return POME_OK;
}

const pome_contract_kind pome_contract_chain = {
    .name = "stateful-chunks",
    .class = POME_CONTRACT_STATES,
    .wants = "PREFIX_chunk1 (ids int32 [1, n], mask float [1, 1, n, end]), chunks with states that turn x into new_x, a last one "
             "with logits",
    .fit = fit,
    .describe = describe,
    .plan = plan,
    .fill = fill,
    .create = create,
    .reset = reset,
};
