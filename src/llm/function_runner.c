/* Runs the passes of a contract with one function: two predictors of it (logits of the last row alone, or of all rows),
 * the inputs of a pass, and the cache. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "llm/contract_function.h"

/* Where the rows of the cache lie after a pass over an empty state. */
typedef enum cache_layout {
    CACHE_UNKNOWN = 0,
    CACHE_BY_POSITION, /* row i holds token i: going back is free */
    CACHE_MOVING       /* right-aligned, or no rows at all: going back means starting over */
} cache_layout;

typedef struct function_runner {
    pome_runner base;
    pome_runner_opts opts;
    pome_state *state;         /* NULL without states */
    pome_predictor *last_row;  /* computes logits of the last row alone; NULL where hardly a pass could use it */
    pome_predictor *all_rows;  /* created when first needed */
    pome_profile *profile;
    pome_pass_inputs in;
    int64_t max_rows;
    cache_layout layout;
    bool is_fresh;             /* nothing was written since the cache was cleared */
    bool is_spoiled;           /* a pass failed half-way */
    int64_t n_written;         /* rows of the cache that were written since it was cleared */
    int64_t n_cache_rows;      /* of the smallest cache whose rows are addressed by position */
} function_runner;

/* Most rows that a pass may have. */
static int64_t count_max_rows(const pome_contract *c, const pome_runner_opts *opts)
{
    if (c->takes_whole)
        return pome_lengths_round_up(&c->lengths, opts->context);
    if (c->lengths.n_listed == 0)
        return opts->block < c->lengths.min ? c->lengths.min : opts->block;
    int64_t rows = c->lengths.listed[0];
    for (int i = 0; i < c->lengths.n_listed; i++)
        if (c->lengths.listed[i] <= opts->block)
            rows = c->lengths.listed[i];
    return rows;
}

/* Without a cache and with listed lengths hardly a sequence fits exactly: the last row is rarely the last token. */
static bool pads_every_pass(const pome_contract *c)
{
    return c->takes_whole && (c->lengths.n_listed > 0 || c->lengths.min == c->lengths.max);
}

/* Not every number of tokens is a length of its own: some passes end in padding, their logits are not in the last row. */
static bool pads_some_pass(const pome_contract *c)
{
    return c->lengths.n_listed > 0 || c->lengths.min > 1;
}

/* Columns of the widest mask, or 0 for a mask of rank 2. */
static int64_t max_columns(const function_runner *r, int64_t n_rows)
{
    const pome_contract *c = r->base.contract;
    if (c->takes_whole)
        return 0;
    int64_t end = r->opts.context + n_rows; /* padding may pass a lowered context, never the cache's end */
    return c->is_mask_whole || end > c->context ? c->context : end;
}

/* Shapes of all inputs for a pass of n_rows; others than the contract's keep their default. */
static pome_status reserve(const function_runner *r, pome_predictor *predictor, int64_t n_rows, pome_error *err)
{
    const pome_contract *c = r->base.contract;
    const pome_function_info *fn = c->function;
    int64_t(*shapes)[POME_MAX_RANK] = calloc(fn->n_inputs, sizeof *shapes);
    if (!shapes)
        return pome_fail_nomem(err, fn->n_inputs * sizeof *shapes, "shapes");
    for (uint32_t i = 0; i < fn->n_inputs; i++)
        memcpy(shapes[i], fn->inputs[i].shape, sizeof shapes[i]);
    shapes[c->ids][1] = n_rows;
    if (c->mask >= 0 && max_columns(r, n_rows) > 0) {
        shapes[c->mask][2] = n_rows;
        shapes[c->mask][3] = max_columns(r, n_rows);
    } else if (c->mask >= 0) {
        shapes[c->mask][1] = n_rows;
    }
    pome_status status = pome_predictor_reserve(predictor, (const int64_t(*)[POME_MAX_RANK])shapes, err);
    free(shapes);
    return status;
}

static pome_status create_predictor(function_runner *r, bool is_last_row, int64_t n_rows, pome_error *err)
{
    const pome_contract *c = r->base.contract;
    pome_predictor_opts opts;
    pome_predictor_opts_default(&opts);
    opts.last_row_output = is_last_row ? c->logits : -1;
    pome_predictor *predictor = NULL;
    POME_TRY(pome_predictor_create(&predictor, c->model, c->function->name, &opts, err));
    pome_status status = reserve(r, predictor, n_rows, err);
    if (status == POME_OK)
        status = pome_predictor_profile(predictor, r->profile, err);
    if (status != POME_OK) {
        pome_predictor_destroy(&predictor);
        return status;
    }
    *(is_last_row ? &r->last_row : &r->all_rows) = predictor;
    return POME_OK;
}

static pome_status init_inputs(function_runner *r, pome_error *err)
{
    const pome_contract *c = r->base.contract;
    int64_t columns = max_columns(r, r->max_rows);
    size_t n_mask = 0;
    if (!pome_mul_size((size_t)r->max_rows, (size_t)(columns > 0 ? columns : 1), &n_mask) ||
        !pome_mul_size(n_mask, sizeof(float), &n_mask))
        return pome_fail(err, POME_ERR_LIMIT, "a mask of %lld x %lld is too large", (long long)r->max_rows,
                         (long long)columns);
    r->in.ids = calloc((size_t)r->max_rows, sizeof *r->in.ids);
    r->in.mask = c->mask >= 0 ? malloc(n_mask) : NULL;
    if (!r->in.ids || (c->mask >= 0 && !r->in.mask))
        return pome_fail_nomem(err, n_mask, "inputs");
    return POME_OK;
}

static void destroy(pome_runner *runner)
{
    function_runner *r = (function_runner *)runner;
    pome_predictor_destroy(&r->last_row);
    pome_predictor_destroy(&r->all_rows);
    pome_state_destroy(&r->state);
    free(r->in.ids);
    free(r->in.mask);
    free(r);
}

static void clear(pome_runner *runner)
{
    function_runner *r = (function_runner *)runner;
    if (r->state)
        pome_state_clear(r->state);
    r->is_fresh = true;
    r->is_spoiled = false;
    r->n_written = 0;
}

/* ---- the cache's layout ---- */

static bool is_zero(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

/* True if everything at `index` of `axis` is zero. */
static bool is_slice_zero(const pome_tensor *t, int32_t axis, int64_t index)
{
    size_t n_outer = 1, inner_bytes = pome_dtype_bits(t->dtype) / 8;
    for (int32_t i = 0; i < axis; i++)
        n_outer *= (size_t)t->shape[i];
    for (int32_t i = axis + 1; i < t->rank; i++)
        inner_bytes *= (size_t)t->shape[i];
    for (size_t outer = 0; outer < n_outer; outer++) {
        size_t at = (outer * (size_t)t->shape[axis] + (size_t)index) * inner_bytes;
        if (!is_zero((const uint8_t *)t->data + at, inner_bytes))
            return false;
    }
    return true;
}

/* Both layouts have the same interface and differ only inside the graph, so the state is looked at after its
 * first pass: a cache addressed by position has an axis that is written at its start and still zero at its end. A
 * right-aligned one is the other way round; whatever is neither is treated alike and fed again from the start. The
 * length of that axis tells how many rows there are: a cache shorter than the context can only be a ring. */
static cache_layout detect_layout(function_runner *r, pome_pass pass)
{
    const pome_contract *c = r->base.contract;
    r->n_cache_rows = INT64_MAX;
    for (uint32_t i = 0; i < c->function->n_states; i++) {
        const pome_tensor *t = pome_state_tensor(r->state, i);
        int64_t n_rows = 0;
        for (int32_t axis = 0; axis < t->rank && pome_tensor_is_contiguous(t); axis++)
            if (t->shape[axis] > pass.n_rows && t->shape[axis] > n_rows && !is_slice_zero(t, axis, 0) &&
                is_slice_zero(t, axis, t->shape[axis] - 1))
                n_rows = t->shape[axis];
        if (n_rows == 0)
            return pass.n_rows < c->context ? CACHE_MOVING : CACHE_UNKNOWN;
        if (n_rows < r->n_cache_rows)
            r->n_cache_rows = n_rows;
    }
    return CACHE_BY_POSITION;
}

static pome_status check_layout(function_runner *r, pome_pass pass, pome_error *err)
{
    if (r->state && r->is_fresh && pass.begin == 0)
        r->layout = detect_layout(r, pass);
    r->is_fresh = false;
    if (pass.begin + pass.n_rows > r->n_written)
        r->n_written = pass.begin + pass.n_rows;
    if (r->layout == CACHE_BY_POSITION || !r->state || pass.n_real == pass.n_rows)
        return POME_OK;
    return pome_fail(err, POME_ERR_UNSUPPORTED,
                     "the cache does not keep row i at position i, so %lld tokens cannot be padded to %lld",
                     (long long)pass.n_real, (long long)pass.n_rows);
}

/* Rows are addressed by position, and none was lost once n_written rows will have been written: a ring that has gone
 * round has lost the rows that going back would need. */
static bool goes_back(const function_runner *r, int64_t n_written)
{
    int64_t n = n_written > r->n_written ? n_written : r->n_written;
    return !r->state || (r->layout == CACHE_BY_POSITION && n <= r->n_cache_rows);
}

static int64_t kept(const pome_runner *runner, int64_t n_cached, int64_t n_keep)
{
    const function_runner *r = (const function_runner *)runner;
    if (goes_back(r, 0))
        return n_keep < n_cached ? n_keep : n_cached;
    return n_keep >= n_cached && !r->is_spoiled ? n_cached : 0;
}

static void rewind_to(pome_runner *runner, int64_t n_keep)
{
    const function_runner *r = (const function_runner *)runner;
    if (n_keep == 0 && !goes_back(r, 0))
        clear(runner);
}

static bool can_undo(const pome_runner *runner, pome_pass pass, int64_t n_keep)
{
    (void)n_keep;
    return goes_back((const function_runner *)runner, pass.begin + pass.n_rows);
}

/* ---- running ---- */

static pome_status run_pass(function_runner *r, pome_predictor *predictor, pome_pass pass, const int32_t *timeline,
                            pome_error *err)
{
    const pome_contract *c = r->base.contract;
    c->kind->fill(c, pass, timeline, &r->in);
    POME_TRY(pome_predictor_set_input(predictor, (uint32_t)c->ids, &r->in.ids_tensor, err));
    if (c->mask >= 0)
        POME_TRY(pome_predictor_set_input(predictor, (uint32_t)c->mask, &r->in.mask_tensor, err));
    if (c->position >= 0)
        POME_TRY(pome_predictor_set_input(predictor, (uint32_t)c->position, &r->in.position_tensor, err));
    r->is_spoiled = true;
    POME_TRY(pome_predictor_run(predictor, r->state, err));
    POME_TRY(check_layout(r, pass, err));
    r->is_spoiled = false;
    return POME_OK;
}

/* Number of rows in the logits of a pass: as many as the pass has, or the last one alone. */
static pome_status count_rows(const pome_contract *c, const pome_tensor *out, pome_pass pass, pome_rows *rows,
                              pome_error *err)
{
    int64_t n_vocab = c->n_vocab > 0 ? c->n_vocab : out->rank > 0 ? out->shape[out->rank - 1] : 1;
    int64_t count = pome_tensor_count(out), n = n_vocab > 0 ? count / n_vocab : 0;
    if (n < 1 || count != n * n_vocab || (n != pass.n_rows && !(n == 1 && pass.n_real == pass.n_rows)))
        return pome_fail(err, POME_ERR_UNSUPPORTED, "logits have %lld elements, expected %lld rows of %lld",
                         (long long)count, (long long)pass.n_rows, (long long)n_vocab);
    *rows = (pome_rows){.first = n == 1 ? pass.n_real - 1 : 0, .n = n, .n_parts = 1, .parts = {out}};
    return POME_OK;
}

static pome_status run(pome_runner *runner, pome_pass pass, const int32_t *timeline, pome_want want, pome_rows *rows,
                       pome_error *err)
{
    function_runner *r = (function_runner *)runner;
    const pome_contract *c = runner->contract;
    bool needs_all = want == POME_WANT_ALL || (want == POME_WANT_LAST && pass.n_real < pass.n_rows);
    bool is_last_row = !needs_all && !pads_every_pass(c);
    pome_predictor **slot = is_last_row ? &r->last_row : &r->all_rows;
    if (!*slot)
        POME_TRY(create_predictor(r, is_last_row, r->max_rows, err));
    POME_TRY(run_pass(r, *slot, pass, timeline, err));
    if (want == POME_WANT_NOTHING)
        return POME_OK;
    POME_TRY(count_rows(c, pome_predictor_output(*slot, (uint32_t)c->logits), pass, rows, err));
    if (want == POME_WANT_ALL && rows->n < pass.n_rows)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "the model gives logits for the last token only");
    return POME_OK;
}

static pome_status reserve_rows(pome_runner *runner, int64_t n_rows, pome_error *err)
{
    function_runner *r = (function_runner *)runner;
    const pome_contract *c = runner->contract;
    int64_t n_pass = c->takes_whole || n_rows > r->max_rows ? r->max_rows : n_rows;
    if (!r->all_rows)
        return create_predictor(r, false, n_pass, err);
    return pads_some_pass(c) || pads_every_pass(c) ? POME_OK : reserve(r, r->all_rows, n_pass, err);
}

static pome_status profile(pome_runner *runner, pome_profile *to, pome_error *err)
{
    function_runner *r = (function_runner *)runner;
    if (r->last_row)
        POME_TRY(pome_predictor_profile(r->last_row, to, err));
    if (r->all_rows)
        POME_TRY(pome_predictor_profile(r->all_rows, to, err));
    r->profile = to;
    return POME_OK;
}

static const pome_runner_ops ops = {destroy, clear, run, kept, rewind_to, can_undo, reserve_rows, profile};

/* Everything that passes need is made now, so that they allocate nothing. */
static pome_status init(function_runner *r, pome_error *err)
{
    const pome_contract *c = r->base.contract;
    r->max_rows = count_max_rows(c, &r->opts);
    POME_TRY(init_inputs(r, err));
    if (c->function->n_states > 0)
        POME_TRY(pome_state_create(&r->state, c->model, c->function->name, err));
    if (!pads_every_pass(c))
        POME_TRY(create_predictor(r, true, r->max_rows, err));
    return pads_some_pass(c) || !r->last_row ? create_predictor(r, false, r->max_rows, err) : POME_OK;
}

pome_status pome_function_runner_create(pome_runner **out, const pome_contract *contract, const pome_runner_opts *opts,
                                        pome_error *err)
{
    function_runner *r = calloc(1, sizeof *r);
    if (!r)
        return pome_fail_nomem(err, sizeof *r, "session");
    *r = (function_runner){.base = {&ops, contract}, .opts = *opts, .is_fresh = true};
    pome_status status = init(r, err);
    if (status != POME_OK) {
        destroy(&r->base);
        return status;
    }
    *out = &r->base;
    return POME_OK;
}
