/* Runs the passes of a contract with one function: two predictors of it (logits of the last row alone, or of all rows),
 * the inputs of a pass, and the cache. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "llm/contract_function.h"
#include "runtime/predictor.h"

/* A cache that is passed through: what the last pass gave, and memory for what the next one will give. */
typedef struct carried {
    pome_tensor now;     /* in `memory[0]`; its rows are those of the tokens so far, where it grows */
    void *memory[2];
    size_t size_bytes;   /* of each */
    bool is_whole;       /* the output is known to hold the earlier rows too */
} carried;

typedef struct function_runner {
    pome_runner base;
    pome_runner_opts opts;
    pome_state *state;         /* NULL without states */
    carried *caches;           /* [contract.n_caches] */
    pome_predictor *last_row;  /* computes logits of the last row alone; NULL where hardly a pass could use it */
    pome_predictor *all_rows;  /* created when first needed */
    pome_profile *profile;
    pome_pass_inputs in;
    int64_t max_rows;
    pome_cache_layout layout;
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
    if (c->is_argmax || c->n_logits > 1) /* what is cut to the last row is one output of logits */
        return true;
    return c->takes_whole && (c->lengths.n_listed > 0 || c->lengths.min == c->lengths.max);
}

/* Not every number of tokens is a length of its own: some passes end in padding, their logits are not in the last row. */
static bool pads_some_pass(const pome_contract *c)
{
    return c->lengths.n_listed > 0 || c->lengths.min > 1;
}

/* Columns of the widest mask. */
static int64_t max_columns(const function_runner *r, int64_t n_rows)
{
    const pome_contract *c = r->base.contract;
    if (c->takes_whole)
        return n_rows;
    int64_t end = r->opts.context + n_rows; /* padding may pass a lowered context, never the cache's end */
    return c->n_dummy + (c->is_mask_whole || end > c->context ? c->context : end);
}

/* Shapes of all inputs for a pass of n_rows behind as many tokens as there may be; others than the contract's keep their
 * default. */
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
    if (c->mask >= 0) {
        int32_t last = fn->inputs[c->mask].rank - 1;
        shapes[c->mask][last] = max_columns(r, n_rows);
        if (last == 3)
            shapes[c->mask][2] = n_rows;
    }
    if (c->positions >= 0)
        shapes[c->positions][fn->inputs[c->positions].rank - 1] = n_rows;
    for (uint32_t i = 0; i < c->n_caches; i++)
        if (c->caches[i].axis >= 0)
            shapes[c->caches[i].input][c->caches[i].axis] = max_columns(r, n_rows) - n_rows;
    pome_status status = pome_predictor_reserve(predictor, (const int64_t(*)[POME_MAX_RANK])shapes, err);
    free(shapes);
    return status;
}

static pome_status create_predictor(function_runner *r, bool is_last_row, int64_t n_rows, pome_error *err)
{
    const pome_contract *c = r->base.contract;
    pome_predictor_opts opts;
    pome_predictor_opts_default(&opts);
    opts.last_row_output = is_last_row ? c->logits[0] : -1;
    pome_predictor *predictor = NULL;
    POME_TRY(pome_predictor_create(&predictor, c->model, c->function->name, &opts, err));
    pome_predictor_stop_by(predictor, r->base.stop);
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
    if (!pome_mul_size((size_t)r->max_rows, (size_t)columns, &n_mask) || !pome_mul_size(n_mask, sizeof(float), &n_mask))
        return pome_fail(err, POME_ERR_LIMIT, "a mask of %lld x %lld is too large", (long long)r->max_rows,
                         (long long)columns);
    r->in.ids = calloc((size_t)r->max_rows, sizeof *r->in.ids);
    r->in.mask = c->mask >= 0 ? malloc(n_mask) : NULL;
    r->in.positions = calloc((size_t)r->max_rows, sizeof *r->in.positions);
    r->in.update = c->update >= 0 ? calloc((size_t)c->context, sizeof *r->in.update) : NULL;
    if (!r->in.ids || !r->in.positions || (c->mask >= 0 && !r->in.mask) || (c->update >= 0 && !r->in.update))
        return pome_fail_nomem(err, n_mask, "inputs");
    return POME_OK;
}

/* ---- caches that are passed through ---- */

/* An empty cache: zeros, and no rows but those that it cannot be without. */
static void clear_cache(const function_runner *r, uint32_t index)
{
    const pome_cache_pair *pair = &r->base.contract->caches[index];
    const pome_feature *f = &r->base.contract->function->inputs[pair->input];
    carried *cache = &r->caches[index];
    int64_t shape[POME_MAX_RANK];
    memcpy(shape, f->shape, sizeof shape);
    if (pair->axis >= 0)
        shape[pair->axis] = r->base.contract->n_dummy;
    cache->now = pome_tensor_borrow(cache->memory[0], f->dtype, f->rank, shape);
    memset(cache->memory[0], 0, pome_tensor_size_bytes(&cache->now));
}

static pome_status init_caches(function_runner *r, pome_error *err)
{
    const pome_contract *c = r->base.contract;
    r->caches = calloc(c->n_caches + 1, sizeof *r->caches);
    if (!r->caches)
        return pome_fail_nomem(err, c->n_caches * sizeof *r->caches, "caches");
    for (uint32_t i = 0; i < c->n_caches; i++) {
        const pome_feature *f = &c->function->inputs[c->caches[i].input];
        size_t size = pome_dtype_bits(f->dtype) / 8;
        bool fits = true;
        for (int32_t axis = 0; axis < f->rank && fits; axis++) {
            int64_t n = axis == c->caches[i].axis ? max_columns(r, r->max_rows) + r->max_rows : f->shape[axis];
            fits = n >= 0 && pome_mul_size(size, (size_t)n, &size);
        }
        if (!fits)
            return pome_fail(err, POME_ERR_LIMIT, "cache '%s' is too large", f->name);
        r->caches[i].size_bytes = size;
        for (int k = 0; k < 2; k++)
            if (!(r->caches[i].memory[k] = calloc(1, size + 1)))
                return pome_fail_nomem(err, size, "caches");
        clear_cache(r, i);
    }
    return POME_OK;
}

/* Feeds what the last pass gave, up to the begin of this one, and has what this pass gives written to the other memory. */
static pome_status set_caches(function_runner *r, pome_predictor *predictor, pome_pass pass, pome_error *err)
{
    const pome_contract *c = r->base.contract;
    for (uint32_t i = 0; i < c->n_caches; i++) {
        const pome_cache_pair *pair = &c->caches[i];
        carried *cache = &r->caches[i];
        if (pair->axis >= 0)
            cache->now.shape[pair->axis] = c->n_dummy + pass.begin; /* rows behind are cut off; strides stay */
        POME_TRY(pome_predictor_set_input(predictor, (uint32_t)pair->input, &cache->now, err));
        pome_tensor next = pome_tensor_borrow(cache->memory[1], cache->now.dtype, cache->now.rank, cache->now.shape);
        if (pair->axis >= 0) {
            next.shape[pair->axis] += pass.n_rows;
            next = pome_tensor_borrow(cache->memory[1], next.dtype, next.rank, next.shape);
        }
        POME_TRY(pome_predictor_bind_output(predictor, (uint32_t)pair->output, cache->is_whole ? &next : NULL, err));
    }
    return POME_OK;
}

/* Some models give the new rows alone: they are put behind the earlier ones. */
static pome_status join_rows(const function_runner *r, uint32_t index, const pome_tensor *rows, pome_error *err)
{
    carried *cache = &r->caches[index];
    int32_t axis = r->base.contract->caches[index].axis;
    int64_t n_before = cache->now.shape[axis], n_new = rows->shape[axis];
    pome_tensor joined, part;
    int64_t shape[POME_MAX_RANK];
    memcpy(shape, rows->shape, sizeof shape);
    shape[axis] = n_before + n_new;
    POME_TRY(pome_tensor_init(&joined, rows->dtype, rows->rank, shape, err));
    const pome_tensor *from[2] = {&cache->now, rows};
    pome_status status = POME_OK;
    for (int k = 0; k < 2 && status == POME_OK; k++) {
        status = pome_tensor_slice(&part, &joined, axis, k ? n_before : 0, k ? n_before + n_new : n_before, 1, err);
        if (status != POME_OK)
            break;
        status = pome_tensor_copy(&part, from[k], err);
        pome_tensor_reset(&part);
    }
    if (status == POME_OK && pome_tensor_size_bytes(&joined) > cache->size_bytes)
        status = pome_fail(err, POME_ERR_LIMIT, "a cache outgrows the context");
    if (status == POME_OK) {
        memcpy(cache->memory[0], joined.data, pome_tensor_size_bytes(&joined));
        cache->now = pome_tensor_borrow(cache->memory[0], rows->dtype, rows->rank, shape);
    }
    pome_tensor_reset(&joined);
    return status;
}

static pome_status take_caches(function_runner *r, const pome_predictor *predictor, pome_pass pass, pome_error *err)
{
    const pome_contract *c = r->base.contract;
    for (uint32_t i = 0; i < c->n_caches; i++) {
        const pome_feature *f = &c->function->inputs[c->caches[i].input];
        const pome_tensor *out = pome_predictor_output(predictor, (uint32_t)c->caches[i].output);
        carried *cache = &r->caches[i];
        int axis = c->caches[i].axis;
        bool fits = out->rank == cache->now.rank && out->dtype == cache->now.dtype;
        for (int32_t k = 0; k < out->rank && fits; k++)
            fits = k == axis || out->shape[k] == cache->now.shape[k];
        int64_t n_rows = fits && axis >= 0 ? out->shape[axis] : 0, n_end = c->n_dummy + pass.begin + pass.n_rows;
        if (!fits || (axis >= 0 && n_rows != n_end && n_rows != pass.n_rows))
            return pome_fail(err, POME_ERR_UNSUPPORTED,
                             "output '%s' has another shape than cache '%s' should have after %lld tokens",
                             c->function->outputs[c->caches[i].output].name, f->name, (long long)(pass.begin + pass.n_rows));
        if (axis >= 0 && n_rows != n_end) {
            POME_TRY(join_rows(r, i, out, err));
            continue;
        }
        void *before = cache->memory[0];
        if (out->data != cache->memory[1]) { /* the first time, when it could not be bound yet */
            if (pome_tensor_size_bytes(out) > cache->size_bytes)
                return pome_fail(err, POME_ERR_LIMIT, "cache '%s' outgrows the context", f->name);
            memcpy(cache->memory[1], out->data, pome_tensor_size_bytes(out));
        }
        cache->is_whole = axis < 0 || pass.begin > 0;
        cache->now = pome_tensor_borrow(cache->memory[1], out->dtype, out->rank, out->shape);
        cache->memory[0] = cache->memory[1];
        cache->memory[1] = before;
    }
    return POME_OK;
}

/* ---- life ---- */

static void destroy(pome_runner *runner)
{
    function_runner *r = (function_runner *)runner;
    pome_predictor_destroy(&r->last_row);
    pome_predictor_destroy(&r->all_rows);
    pome_state_destroy(&r->state);
    for (uint32_t i = 0; r->caches && i < runner->contract->n_caches; i++) {
        free(r->caches[i].memory[0]);
        free(r->caches[i].memory[1]);
    }
    free(r->caches);
    free(r->in.ids);
    free(r->in.mask);
    free(r->in.positions);
    free(r->in.update);
    free(r);
}

static void clear(pome_runner *runner)
{
    function_runner *r = (function_runner *)runner;
    if (r->state)
        pome_state_clear(r->state);
    for (uint32_t i = 0; i < runner->contract->n_caches; i++)
        clear_cache(r, i);
    r->is_fresh = true;
    r->is_spoiled = false;
    r->n_written = 0;
}

/* ---- the caches' layout ---- */

static pome_cache_layout detect_layout(function_runner *r, pome_pass pass)
{
    const pome_contract *c = r->base.contract;
    uint32_t n_states = c->function->n_states;
    r->n_cache_rows = INT64_MAX;
    for (uint32_t i = 0; i < n_states + c->n_caches; i++) {
        int64_t n_rows = INT64_MAX; /* growing caches are by position anyway */
        pome_cache_layout layout = POME_CACHE_BY_POSITION;
        if (i < n_states)
            layout = pome_cache_detect(pome_state_tensor(r->state, i), pass.n_rows, c->context, &n_rows);
        else if (c->caches[i - n_states].axis < 0)
            layout = pome_cache_detect(&r->caches[i - n_states].now, pass.n_rows, c->context, &n_rows);
        if (layout != POME_CACHE_BY_POSITION)
            return layout;
        if (n_rows < r->n_cache_rows)
            r->n_cache_rows = n_rows;
    }
    return POME_CACHE_BY_POSITION;
}

static pome_status check_layout(function_runner *r, pome_pass pass, pome_error *err)
{
    if (!r->base.contract->takes_whole && r->is_fresh && pass.begin == 0)
        r->layout = detect_layout(r, pass);
    r->is_fresh = false;
    if (pass.begin + pass.n_rows > r->n_written)
        r->n_written = pass.begin + pass.n_rows;
    if (r->layout == POME_CACHE_BY_POSITION || r->base.contract->takes_whole || pass.n_real == pass.n_rows)
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
    return r->base.contract->takes_whole || (r->layout == POME_CACHE_BY_POSITION && n <= r->n_cache_rows);
}

/* What a pass that failed leaves in a state lies behind the cached rows. Caches that are passed through are as before. */
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

static pome_status set_input(pome_predictor *predictor, int index, const pome_tensor *t, pome_error *err)
{
    return index >= 0 ? pome_predictor_set_input(predictor, (uint32_t)index, t, err) : POME_OK;
}

static pome_status run_pass(function_runner *r, pome_predictor *predictor, pome_pass pass, const int32_t *timeline,
                            pome_error *err)
{
    const pome_contract *c = r->base.contract;
    c->kind->fill(c, pass, timeline, &r->in);
    POME_TRY(set_input(predictor, c->ids, &r->in.ids_tensor, err));
    POME_TRY(set_input(predictor, c->mask, &r->in.mask_tensor, err));
    POME_TRY(set_input(predictor, c->position, &r->in.position_tensor, err));
    POME_TRY(set_input(predictor, c->positions, &r->in.positions_tensor, err));
    POME_TRY(set_input(predictor, c->update, &r->in.update_tensor, err));
    POME_TRY(set_caches(r, predictor, pass, err));
    r->is_spoiled = true;
    POME_TRY(pome_predictor_run(predictor, r->state, err));
    POME_TRY(take_caches(r, predictor, pass, err));
    POME_TRY(check_layout(r, pass, err));
    r->is_spoiled = false;
    return POME_OK;
}

/* Number of rows in the logits of a pass: as many as the pass has, or the last one alone. */
static pome_status count_rows(const pome_contract *c, const pome_predictor *predictor, pome_pass pass, pome_rows *rows,
                              pome_error *err)
{
    *rows = (pome_rows){.n_parts = c->n_logits};
    int64_t n_vocab = 0, count = 0;
    for (int i = 0; i < c->n_logits; i++) {
        const pome_tensor *out = rows->parts[i] = pome_predictor_output(predictor, (uint32_t)c->logits[i]);
        n_vocab += c->is_argmax || out->rank == 0 ? 1 : out->shape[out->rank - 1];
        count += pome_tensor_count(out);
    }
    if (c->n_logits == 1 && c->n_vocab > 0 && !c->is_argmax)
        n_vocab = c->n_vocab;
    int64_t n = n_vocab > 0 ? count / n_vocab : 0;
    if (n < 1 || count != n * n_vocab || (n != pass.n_rows && !(n == 1 && pass.n_real == pass.n_rows)))
        return pome_fail(err, POME_ERR_UNSUPPORTED, "logits have %lld elements, expected %lld rows of %lld",
                         (long long)count, (long long)pass.n_rows, (long long)n_vocab);
    rows->first = n == 1 ? pass.n_real - 1 : 0;
    rows->n = n;
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
    POME_TRY(count_rows(c, *slot, pass, rows, err));
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
    POME_TRY(init_caches(r, err));
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
    *r = (function_runner){.base = {&ops, contract, opts->stop}, .opts = *opts, .is_fresh = true};
    pome_status status = init(r, err);
    if (status != POME_OK) {
        destroy(&r->base);
        return status;
    }
    *out = &r->base;
    return POME_OK;
}
