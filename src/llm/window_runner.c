/* Runs coreml-llm-cli's sets. Two ways:
 *
 * - whole windows, as that command does: every pass computes all columns of its window anew, padding and earlier tokens
 *   among them;
 * - new columns alone: keys and values of a window's earlier columns stay in states that hold cache and window side by
 *   side, so a step costs one column. The first chunk is run whole in any case: it only looks things up.
 *
 * In both, the cache processor runs in the background once a window is full, chunk by chunk, and is waited for before the
 * chunk's next prediction. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/pool.h"
#include "base/trace.h"
#include "llm/window_set.h"
#include "pome/profile.h"
#include "runtime/predictor.h"

typedef struct group_run {
    struct window_runner *r;
    const pome_window_group *g;
    pome_predictor *predictor[POME_WINDOW_SIZES]; /* made when first needed; whole windows: the last one */
    pome_state *state;     /* new columns alone */
    pome_tensor *caches;   /* [2 * n_blocks] whole windows: what the chunk takes */
    pome_tensor *old, *new; /* [2 * n_blocks] keys and values by block: what the cache processor takes. Views of the state */
    pome_job job;
    int64_t step;          /* tokens when the job was submitted */
    pome_status status;    /* of the job */
    pome_error error;
} group_run;

typedef struct window_runner {
    pome_runner base;
    const pome_window_set *set;
    bool is_whole;
    pome_predictor *first, *last[POME_WINDOW_SIZES], *processors[2] /* for the worker, for who waits */, *logit_processor;
    pome_profile *profile;
    group_run *groups;     /* [n_groups] */
    pome_worker *worker;
    int32_t *ids;          /* [n_window] */
    int32_t length, first_column;
    pome_tensor *columns;  /* [first->n_outputs] new columns alone, room for a window; data NULL: not needed */
    pome_tensor *shared;   /* [first->n_outputs] what the chunks take of them in this pass */
    int64_t n_shifted;     /* tokens whose keys and values went to the caches */
    bool is_spoiled;
} window_runner;

/* ---- caches ---- */

static pome_status update_block(group_run *run, pome_predictor *p, uint32_t b, pome_error *err)
{
    const pome_window_set *set = run->r->set;
    POME_TRY(pome_predictor_set_input(p, (uint32_t)set->old_k, &run->old[2 * b], err));
    POME_TRY(pome_predictor_set_input(p, (uint32_t)set->new_k, &run->new[2 * b], err));
    POME_TRY(pome_predictor_set_input(p, (uint32_t)set->old_v, &run->old[2 * b + 1], err));
    POME_TRY(pome_predictor_set_input(p, (uint32_t)set->new_v, &run->new[2 * b + 1], err));
    POME_TRY(pome_predictor_bind_output(p, (uint32_t)set->updated_k, &run->old[2 * b], err));
    POME_TRY(pome_predictor_bind_output(p, (uint32_t)set->updated_v, &run->old[2 * b + 1], err));
    return pome_predictor_run(p, NULL, err);
}

static void update_caches(void *arg, bool by_waiter)
{
    group_run *run = arg;
    uint64_t begin = pome_trace_begin();
    run->status = POME_OK;
    for (uint32_t b = 0; b < run->g->n_blocks && run->status == POME_OK; b++)
        run->status = update_block(run, run->r->processors[by_waiter], b, &run->error);
    pome_trace_end(begin, "update", run->g->member->name, run->step, by_waiter ? 0 : 1);
}

static pome_status wait_for_caches(group_run *run, int64_t step, pome_error *err)
{
    uint64_t begin = pome_trace_begin();
    pome_worker_wait(run->r->worker, &run->job);
    pome_trace_end(begin, "wait", run->g->member->name, step, 0);
    if (run->status != POME_OK)
        return pome_fail(err, run->status, "%s: %.900s", run->r->set->cache_member->name, run->error.message);
    return POME_OK;
}

static void clear(pome_runner *runner)
{
    window_runner *r = (window_runner *)runner;
    for (uint32_t i = 0; i < r->set->n_groups; i++) {
        group_run *run = &r->groups[i];
        pome_worker_wait(r->worker, &run->job);
        run->status = POME_OK;
        if (run->state)
            pome_state_clear(run->state);
        for (uint32_t k = 0; run->caches && k < 2 * run->g->n_blocks; k++)
            memset(run->caches[k].data, 0, pome_tensor_size_bytes(&run->caches[k]));
    }
    r->n_shifted = 0;
    r->is_spoiled = false;
}

/* ---- chunks ---- */

static pome_status run_named(pome_predictor *p, pome_state *state, const char *name, int64_t step, pome_error *err)
{
    uint64_t begin = pome_trace_begin();
    pome_error inner = {0};
    pome_status status = pome_predictor_run(p, state, &inner);
    pome_trace_end(begin, "predict", name, step, 0);
    return status == POME_OK ? POME_OK : pome_fail(err, status, "%s: %.900s", name, inner.message);
}

static pome_status run_first(window_runner *r, int64_t begin, int64_t end, const int32_t *timeline, pome_error *err)
{
    const pome_window_set *set = r->set;
    for (int64_t i = 0; i < set->n_window; i++)
        r->ids[i] = begin + i < end ? timeline[begin + i] : 0;
    r->length = (int32_t)(begin + set->n_window);
    pome_tensor ids = pome_tensor_borrow(r->ids, POME_DTYPE_I32, 2, (int64_t[]){1, set->n_window});
    pome_tensor length = pome_tensor_borrow(&r->length, POME_DTYPE_I32, 1, (int64_t[]){1});
    POME_TRY(pome_predictor_set_input(r->first, (uint32_t)set->ids, &ids, err));
    POME_TRY(pome_predictor_set_input(r->first, (uint32_t)set->length, &length, err));
    return run_named(r->first, NULL, set->list.chunk[0]->name, end, err);
}

/* Columns [from, from + n) of an output of the first chunk, contiguous: a copy unless it is the whole window. */
static pome_status take_columns(window_runner *r, uint32_t output, int64_t from, int64_t n, pome_tensor *out,
                                pome_error *err)
{
    const pome_tensor *all = pome_predictor_output(r->first, output);
    pome_window_place p = r->set->places[output];
    int64_t shape[POME_MAX_RANK];
    memcpy(shape, all->shape, sizeof shape);
    if (p.is_pair) {
        shape[p.axis] = 1;
        shape[p.axis + 1] = r->set->n_window;
    }
    int32_t axis = p.axis + p.is_pair;
    pome_tensor flat = pome_tensor_borrow(all->data, all->dtype, all->rank, shape), some = {0};
    if (n == r->set->n_window) {
        *out = flat;
        return POME_OK;
    }
    POME_TRY(pome_tensor_slice(&some, &flat, axis, from, from + n, 1, err));
    shape[axis] = n;
    *out = pome_tensor_borrow(r->columns[output].data, all->dtype, all->rank, shape);
    pome_status status = pome_tensor_copy(out, &some, err);
    pome_tensor_reset(&some);
    return status;
}

static pome_status set_group_inputs(window_runner *r, const group_run *run, pome_predictor *p, const pome_tensor *x,
                                    const pome_tensor *shared, pome_error *err)
{
    const pome_window_group *g = run->g;
    uint32_t n = r->is_whole ? g->function->n_inputs : g->n_narrow_inputs;
    for (uint32_t i = 0; i < n; i++) {
        int source = g->source[r->is_whole ? i : g->narrow_inputs[i]];
        if (source != -2)
            POME_TRY(pome_predictor_set_input(p, i, source == -1 ? x : &shared[source], err));
    }
    for (uint32_t b = 0; r->is_whole && b < g->n_blocks; b++) {
        POME_TRY(pome_predictor_set_input(p, (uint32_t)g->blocks[b].k_in, &run->caches[2 * b], err));
        POME_TRY(pome_predictor_set_input(p, (uint32_t)g->blocks[b].v_in, &run->caches[2 * b + 1], err));
    }
    if (r->is_whole)
        return POME_OK;
    pome_tensor first = pome_tensor_borrow(&r->first_column, POME_DTYPE_I32, 1, (int64_t[]){1});
    return pome_predictor_set_input(p, n, &first, err);
}

/* The narrow models leave out the outputs of caches. */
static uint32_t x_output(const window_runner *r, const pome_window_group *g)
{
    uint32_t at = 0;
    for (int i = 0; i < g->x_out && !r->is_whole; i++) {
        bool is_cache = false;
        for (uint32_t b = 0; b < g->n_blocks; b++)
            is_cache = is_cache || g->blocks[b].k_out == i || g->blocks[b].v_out == i;
        at += !is_cache;
    }
    return r->is_whole ? (uint32_t)g->x_out : at;
}

/* The cache processor takes the new columns from where the chunk left them. */
static void submit(window_runner *r, group_run *run, int64_t step)
{
    for (uint32_t b = 0; r->is_whole && b < run->g->n_blocks; b++) {
        run->new[2 * b] = *pome_predictor_output(run->predictor[POME_WINDOW_FULL], (uint32_t)run->g->blocks[b].k_out);
        run->new[2 * b + 1] = *pome_predictor_output(run->predictor[POME_WINDOW_FULL], (uint32_t)run->g->blocks[b].v_out);
    }
    run->step = step;
    run->job.fn = update_caches;
    run->job.arg = run;
    pome_worker_submit(r->worker, &run->job);
}

/* ---- predictors ---- */

/* A predictor with memory for the largest inputs. */
static pome_status create_predictor(pome_predictor **out, const char *name, pome_model *model, const char *function,
                                    pome_error *err)
{
    pome_error inner = {0};
    pome_predictor *p = NULL;
    const pome_model_info *info = pome_model_describe(model);
    const pome_function_info *f = &info->functions[pome_model_find_function(model, function)];
    int64_t(*shapes)[POME_MAX_RANK] = calloc(f->n_inputs + 1u, sizeof *shapes);
    pome_status status = shapes ? pome_predictor_create(&p, model, function, NULL, &inner)
                                : pome_fail_nomem(&inner, f->n_inputs, "shapes");
    for (uint32_t i = 0; i < f->n_inputs && status == POME_OK; i++)
        memcpy(shapes[i], f->inputs[i].shape, sizeof shapes[i]);
    if (status == POME_OK)
        status = pome_predictor_reserve(p, (const int64_t(*)[POME_MAX_RANK])shapes, &inner);
    free(shapes);
    if (status != POME_OK) {
        pome_predictor_destroy(&p);
        return pome_fail(err, status, "%s: %.900s", name, inner.message);
    }
    *out = p;
    return POME_OK;
}

static pome_status create_member(pome_predictor **out, const pome_contract_model *m, pome_error *err)
{
    return create_predictor(out, m->name, m->model, pome_chunk_function(m)->name, err);
}

static pome_status group_predictor(window_runner *r, group_run *run, pome_window_size size, pome_error *err)
{
    pome_predictor **slot = &run->predictor[size];
    if (*slot)
        return POME_OK;
    if (r->is_whole)
        POME_TRY(create_member(slot, run->g->member, err));
    else
        POME_TRY(create_predictor(slot, run->g->member->name, run->g->narrow[size], NULL, err));
    pome_predictor_stop_by(*slot, r->base.stop);
    return pome_predictor_profile(*slot, r->profile, err);
}

static pome_status last_predictor(window_runner *r, pome_window_size size, pome_error *err)
{
    const pome_contract_model *last = r->set->list.chunk[r->set->list.n - 1];
    if (r->last[size])
        return POME_OK;
    if (r->is_whole)
        POME_TRY(create_member(&r->last[size], last, err));
    else
        POME_TRY(create_predictor(&r->last[size], last->name, r->set->narrow_last[size], NULL, err));
    pome_predictor_stop_by(r->last[size], r->base.stop);
    return pome_predictor_profile(r->last[size], r->profile, err);
}

/* ---- a pass ---- */

/* The set's own choice of a row must be the largest of its logits: that is what samplers go by. */
static pome_status check_choice(window_runner *r, int64_t row, pome_error *err)
{
    const pome_window_set *set = r->set;
    int64_t best = -1, at = 0;
    float best_value = 0;
    for (int k = 0; k < set->n_parts; k++) {
        const pome_tensor *part = pome_predictor_output(r->last[POME_WINDOW_FULL], (uint32_t)set->parts[k]);
        POME_TRY(pome_predictor_set_input(r->logit_processor, (uint32_t)set->logit_inputs[k], part, err));
        for (int64_t i = 0; i < part->shape[2]; i++, at++) {
            float value = (float)pome_tensor_float_at(part, row * part->shape[2] + i);
            if (best < 0 ? value == value : value > best_value) {
                best = at;
                best_value = value;
            }
        }
    }
    POME_TRY(run_named(r->logit_processor, NULL, set->logit_member->name, -1, err));
    int64_t chosen = pome_tensor_int_at(pome_predictor_output(r->logit_processor, 0), row);
    if (best >= 0 && chosen != best)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "%s takes token %lld, the largest of the logits is that of %lld",
                         set->logit_member->name, (long long)chosen, (long long)best);
    return POME_OK;
}

/* The columns that are computed for a pass of n_real from column `from` of the window on. A whole window with padding pays
 * where it is half full. */
static pome_window_size choose_size(const window_runner *r, int64_t from, int64_t n_real)
{
    if (r->is_whole || (from == 0 && 2 * n_real >= r->set->n_window))
        return POME_WINDOW_FULL;
    return n_real == 1 ? POME_WINDOW_ONE : POME_WINDOW_SOME;
}

/* Logits of the wanted rows of x, which has columns [0, n_real) and maybe more. */
static pome_status run_last(window_runner *r, pome_tensor x, int64_t n_real, int64_t from, pome_want want, pome_rows *rows,
                            pome_error *err)
{
    const pome_window_set *set = r->set;
    int64_t n = r->is_whole ? set->n_window : want == POME_WANT_LAST ? 1 : n_real, step = from + n_real;
    pome_window_size size = n == set->n_window ? POME_WINDOW_FULL : n == 1 ? POME_WINDOW_ONE : POME_WINDOW_SOME;
    *rows = (pome_rows){.first = r->is_whole ? -from : n_real - n, .n = n, .n_parts = set->n_parts};
    if (!r->is_whole) {
        int32_t axis = x.rank - 1; /* where columns are once a pair is one axis; of [1, n, C] the middle */
        if (set->places[set->x].axis < axis && !set->places[set->x].is_pair)
            axis = set->places[set->x].axis;
        x.data = (char *)x.data + rows->first * x.stride[axis] * (int64_t)(pome_dtype_bits(x.dtype) / 8);
        x.shape[axis] = n;
    }
    POME_TRY(last_predictor(r, size, err));
    POME_TRY(pome_predictor_set_input(r->last[size], 0, &x, err));
    POME_TRY(run_named(r->last[size], NULL, set->list.chunk[set->list.n - 1]->name, step, err));
    for (int k = 0; k < set->n_parts; k++)
        rows->parts[k] = pome_predictor_output(r->last[size], (uint32_t)set->parts[k]);
    return r->is_whole ? check_choice(r, from + n_real - 1, err) : POME_OK;
}

static pome_status run_chunks(window_runner *r, pome_pass pass, const int32_t *timeline, pome_want want, pome_rows *rows,
                              pome_error *err)
{
    const pome_window_set *set = r->set;
    int64_t first = pass.begin / set->n_window * set->n_window, end = pass.begin + pass.n_real, from = pass.begin - first;
    pome_window_size size = choose_size(r, from, pass.n_real);
    POME_TRY(run_first(r, first, end, timeline, err));
    for (uint32_t i = 0; i < set->first->n_outputs; i++) {
        if (r->is_whole)
            r->shared[i] = *pome_predictor_output(r->first, i);
        else if (r->columns[i].data)
            POME_TRY(take_columns(r, i, from, size == POME_WINDOW_FULL ? set->n_window : pass.n_real, &r->shared[i], err));
    }
    r->first_column = (int32_t)(set->n_cached + from);
    pome_tensor x = r->shared[set->x];
    for (uint32_t i = 0; i < set->n_groups; i++) {
        group_run *run = &r->groups[i];
        POME_TRY(group_predictor(r, run, size, err));
        POME_TRY(wait_for_caches(run, end, err));
        POME_TRY(set_group_inputs(r, run, run->predictor[size], &x, r->shared, err));
        POME_TRY(run_named(run->predictor[size], run->state, run->g->member->name, end, err));
        x = *pome_predictor_output(run->predictor[size], x_output(r, run->g));
        if (end % set->n_window == 0)
            submit(r, run, end);
    }
    return want == POME_WANT_NOTHING ? POME_OK : run_last(r, x, pass.n_real, from, want, rows, err);
}

static pome_status run(pome_runner *runner, pome_pass pass, const int32_t *timeline, pome_want want, pome_rows *rows,
                       pome_error *err)
{
    window_runner *r = (window_runner *)runner;
    r->is_spoiled = true;
    POME_TRY(run_chunks(r, pass, timeline, want, rows, err));
    r->is_spoiled = false;
    r->n_shifted = (pass.begin + pass.n_real) / r->set->n_window * r->set->n_window;
    return POME_OK;
}

/* ---- going back: within the window ---- */

static int64_t kept(const pome_runner *runner, int64_t n_cached, int64_t n_keep)
{
    const window_runner *r = (const window_runner *)runner;
    n_keep = n_keep < n_cached ? n_keep : n_cached;
    return n_keep >= r->n_shifted && !r->is_spoiled ? n_keep : 0;
}

static void rewind_to(pome_runner *runner, int64_t n_keep)
{
    const window_runner *r = (const window_runner *)runner;
    if (n_keep < r->n_shifted || r->is_spoiled)
        clear(runner);
}

static bool can_undo(const pome_runner *runner, pome_pass pass, int64_t n_keep)
{
    const window_runner *r = (const window_runner *)runner;
    return (pass.begin + pass.n_real) / r->set->n_window * r->set->n_window <= n_keep;
}

static pome_status reserve_rows(pome_runner *runner, int64_t n_rows, pome_error *err)
{
    (void)runner;
    (void)n_rows;
    (void)err;
    return POME_OK;
}

static pome_status profile(pome_runner *runner, pome_profile *to, pome_error *err)
{
    window_runner *r = (window_runner *)runner;
    r->profile = to;
    POME_TRY(pome_predictor_profile(r->first, to, err));
    for (int k = 0; k < POME_WINDOW_SIZES; k++) {
        if (r->last[k])
            POME_TRY(pome_predictor_profile(r->last[k], to, err));
        for (uint32_t i = 0; i < r->set->n_groups; i++)
            if (r->groups[i].predictor[k])
                POME_TRY(pome_predictor_profile(r->groups[i].predictor[k], to, err));
    }
    return POME_OK;
}

/* ---- life ---- */

static void destroy(pome_runner *runner)
{
    window_runner *r = (window_runner *)runner;
    pome_worker_destroy(&r->worker); /* first: it finishes what still uses the rest */
    for (uint32_t i = 0; r->groups && i < r->set->n_groups; i++) {
        group_run *run = &r->groups[i];
        for (int k = 0; k < POME_WINDOW_SIZES; k++)
            pome_predictor_destroy(&run->predictor[k]);
        pome_state_destroy(&run->state);
        for (uint32_t k = 0; run->caches && k < 2 * run->g->n_blocks; k++)
            pome_tensor_reset(&run->caches[k]);
        free(run->caches);
        free(run->old);
        free(run->new);
    }
    for (uint32_t i = 0; r->columns && i < r->set->first->n_outputs; i++)
        pome_tensor_reset(&r->columns[i]);
    pome_predictor_destroy(&r->first);
    for (int k = 0; k < POME_WINDOW_SIZES; k++)
        pome_predictor_destroy(&r->last[k]);
    pome_predictor_destroy(&r->processors[0]);
    pome_predictor_destroy(&r->processors[1]);
    pome_predictor_destroy(&r->logit_processor);
    free(r->groups);
    free(r->columns);
    free(r->shared);
    free(r->ids);
    free(r);
}

static const pome_runner_ops ops = {destroy, clear, run, kept, rewind_to, can_undo, reserve_rows, profile};

static pome_status make_whole_caches(group_run *run, pome_error *err)
{
    uint32_t n = 2 * run->g->n_blocks;
    run->caches = calloc(n, sizeof *run->caches);
    if (!run->caches)
        return pome_fail_nomem(err, n * sizeof *run->caches, "caches");
    for (uint32_t k = 0; k < n; k++) {
        const pome_feature *f = &run->g->function->inputs[k % 2 ? run->g->blocks[k / 2].v_in : run->g->blocks[k / 2].k_in];
        POME_TRY(pome_tensor_init(&run->caches[k], f->dtype, f->rank, f->shape, err));
        run->old[k] = run->caches[k];
    }
    return POME_OK;
}

/* A view of columns [from, from + n) of the last axis; it borrows. */
static pome_tensor columns_of(const pome_tensor *t, int64_t from, int64_t n)
{
    pome_tensor view = *t;
    view.owner = NULL;
    view.shape[t->rank - 1] = n;
    view.data = (char *)t->data + from * (int64_t)(pome_dtype_bits(t->dtype) / 8);
    return view;
}

static pome_status make_states(group_run *run, pome_error *err)
{
    const pome_window_set *set = run->r->set;
    POME_TRY(pome_state_create(&run->state, run->g->narrow[POME_WINDOW_ONE], NULL, err));
    for (uint32_t k = 0; k < 2 * run->g->n_blocks; k++) {
        const pome_tensor *t = pome_state_tensor(run->state, k);
        run->old[k] = columns_of(t, 0, set->n_cached);
        run->new[k] = columns_of(t, set->n_cached, set->n_window);
    }
    return POME_OK;
}

static pome_status create_group(window_runner *r, uint32_t i, pome_error *err)
{
    group_run *run = &r->groups[i];
    run->r = r;
    run->g = &r->set->groups[i];
    size_t n = 2 * (size_t)run->g->n_blocks;
    run->old = calloc(n, sizeof *run->old);
    run->new = calloc(n, sizeof *run->new);
    if (!run->old || !run->new)
        return pome_fail_nomem(err, n * sizeof *run->old, "caches");
    if (!r->is_whole)
        POME_TRY(group_predictor(r, run, POME_WINDOW_ONE, err));
    POME_TRY(group_predictor(r, run, POME_WINDOW_FULL, err));
    return r->is_whole ? make_whole_caches(run, err) : make_states(run, err);
}

/* Room for the columns of those outputs of the first chunk that groups take. */
static pome_status make_columns(window_runner *r, pome_error *err)
{
    const pome_window_set *set = r->set;
    r->columns = calloc(set->first->n_outputs, sizeof *r->columns);
    if (!r->columns)
        return pome_fail_nomem(err, sizeof *r->columns, "columns");
    for (uint32_t i = 0; i < set->first->n_outputs; i++)
        if (set->places[i].axis >= 0)
            POME_TRY(pome_tensor_init(&r->columns[i], set->first->outputs[i].dtype, set->first->outputs[i].rank,
                                      set->first->outputs[i].shape, err));
    return POME_OK;
}

static pome_status init(window_runner *r, pome_error *err)
{
    const pome_window_set *set = r->set;
    int n_threads = pome_pool_n_threads(set->list.chunk[0]->model->pool);
    r->ids = calloc((size_t)set->n_window, sizeof *r->ids);
    r->groups = calloc(set->n_groups, sizeof *r->groups);
    r->shared = calloc(set->first->n_outputs, sizeof *r->shared);
    if (!r->ids || !r->groups || !r->shared)
        return pome_fail_nomem(err, set->n_groups * sizeof *r->groups, "chunks");
    for (uint32_t i = 0; i < set->n_groups; i++)
        r->groups[i] = (group_run){.r = r, .g = &set->groups[i]};
    POME_TRY(pome_worker_create(&r->worker, n_threads > 1, err));
    POME_TRY(create_member(&r->first, set->list.chunk[0], err));
    POME_TRY(create_member(&r->processors[0], set->cache_member, err));
    POME_TRY(create_member(&r->processors[1], set->cache_member, err));
    for (uint32_t i = 0; i < set->n_groups; i++)
        POME_TRY(create_group(r, i, err));
    if (r->is_whole) {
        POME_TRY(create_member(&r->logit_processor, set->logit_member, err));
        return last_predictor(r, POME_WINDOW_FULL, err);
    }
    POME_TRY(make_columns(r, err));
    return last_predictor(r, POME_WINDOW_ONE, err);
}

pome_status pome_window_runner_create(pome_runner **out, const pome_contract *contract, const pome_runner_opts *opts,
                                      pome_error *err)
{
    window_runner *r = calloc(1, sizeof *r);
    if (!r)
        return pome_fail_nomem(err, sizeof *r, "chunks");
    r->base = (pome_runner){&ops, contract, opts->stop};
    r->set = contract->own;
    r->is_whole = opts->whole_windows || r->set->not_narrow[0];
    pome_status status = init(r, err);
    if (status != POME_OK) {
        destroy(&r->base);
        return status;
    }
    *out = &r->base;
    return POME_OK;
}
