/* The engine (a model whose contract is found) and its sessions (one timeline of tokens each). */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/f16.h"
#include "llm/contract.h"
#include "llm/session.h"
#include "pome/llm.h"
#include "pome/profile.h"
#include "runtime/model.h"

enum {
    BLOCK_MAX = 128,             /* rows per pass: enough to reuse weights, small enough for the caches */
    BLOCK_MIN = 16,
    SCORES_MAX = 128 * 4096      /* rows times context: bounds the attention scores of a pass */
};

struct pome_llm {
    pome_model *model;
    pome_contract contract;
    int64_t context, block, n_vocab;
    char description[512];
};

/* Softmax outputs (token scores) are turned into their logarithms; which it is shows in the first row seen. */
typedef enum row_kind { ROW_UNKNOWN = 0, ROW_LOGITS, ROW_SCORES } row_kind;

struct pome_llm_session {
    pome_llm *llm;
    pome_state *state;          /* NULL without states */
    pome_predictor *last_row;   /* computes logits of the last row alone */
    pome_predictor *all_rows;   /* created when first needed */
    pome_profile *profile;      /* NULL: nothing is measured */
    pome_pass_inputs in;
    int64_t max_rows;
    int32_t *timeline;          /* [context] */
    int64_t n_tokens;           /* of the timeline that the cache holds */
    int64_t n_reused;           /* of the last feed */
    pome_cache_layout layout;
    bool is_state_fresh;        /* nothing was written since the state was cleared */
    row_kind row_kind;
    bool has_logits;            /* `logits` belong to the last token */
    float *logits;              /* [n_vocab] */
    float *row_logits;          /* [n_row_room, n_vocab] */
    int64_t n_row_room;
    int64_t n_written;          /* rows of the cache that were written since it was cleared */
    int64_t n_cache_rows;       /* of the smallest cache whose rows are addressed by position */
    atomic_bool is_cancelled;
};

/* ---- engine ---- */

void pome_llm_opts_default(pome_llm_opts *opts)
{
    *opts = (pome_llm_opts){.size = sizeof *opts};
}

static int64_t choose_block(const pome_llm *llm, int64_t wanted)
{
    int64_t block = wanted;
    if (block <= 0) {
        block = SCORES_MAX / llm->context;
        block = block > BLOCK_MAX ? BLOCK_MAX : block < BLOCK_MIN ? BLOCK_MIN : block;
    }
    return block > llm->context ? llm->context : block;
}

/* Most rows that a pass of this engine may have. */
static int64_t max_rows(const pome_llm *llm)
{
    const pome_contract *c = &llm->contract;
    if (c->kind == &pome_contract_nocache)
        return pome_lengths_round_up(&c->lengths, llm->context);
    if (c->lengths.n_listed == 0)
        return llm->block < c->lengths.min ? c->lengths.min : llm->block;
    int64_t rows = c->lengths.listed[0];
    for (int i = 0; i < c->lengths.n_listed; i++)
        if (c->lengths.listed[i] <= llm->block)
            rows = c->lengths.listed[i];
    return rows;
}

/* Without a cache and with listed lengths hardly a sequence fits exactly: the last row is rarely the last token. */
static bool pads_every_pass(const pome_llm *llm)
{
    const pome_lengths *l = &llm->contract.lengths;
    return llm->contract.kind == &pome_contract_nocache && (l->n_listed > 0 || l->min == l->max);
}

/* Columns of the widest mask, or 0 for a mask of rank 2. */
static int64_t max_columns(const pome_llm *llm, int64_t n_rows)
{
    const pome_contract *c = &llm->contract;
    if (c->kind == &pome_contract_nocache)
        return 0;
    int64_t end = llm->context + n_rows; /* padding may pass a lowered context, never the cache's end */
    return c->is_mask_whole || end > c->context ? c->context : end;
}

/* Shapes of all inputs for a pass of n_rows; others than the contract's keep their default. */
static pome_status reserve(pome_predictor *predictor, const pome_llm *llm, int64_t n_rows, pome_error *err)
{
    const pome_contract *c = &llm->contract;
    const pome_function_info *fn = c->function;
    int64_t(*shapes)[POME_MAX_RANK] = calloc(fn->n_inputs, sizeof *shapes);
    if (!shapes)
        return pome_fail_nomem(err, fn->n_inputs * sizeof *shapes, "shapes");
    for (uint32_t i = 0; i < fn->n_inputs; i++)
        memcpy(shapes[i], fn->inputs[i].shape, sizeof shapes[i]);
    shapes[c->ids][1] = n_rows;
    if (c->mask >= 0 && max_columns(llm, n_rows) > 0) {
        shapes[c->mask][2] = n_rows;
        shapes[c->mask][3] = max_columns(llm, n_rows);
    } else if (c->mask >= 0) {
        shapes[c->mask][1] = n_rows;
    }
    pome_status status = pome_predictor_reserve(predictor, (const int64_t(*)[POME_MAX_RANK])shapes, err);
    free(shapes);
    return status;
}

static pome_status create_predictor(pome_predictor **out, pome_llm *llm, bool is_last_row, int64_t n_rows,
                                    pome_error *err)
{
    pome_predictor_opts opts;
    pome_predictor_opts_default(&opts);
    opts.last_row_output = is_last_row ? llm->contract.logits : -1;
    pome_predictor *predictor = NULL;
    POME_TRY(pome_predictor_create(&predictor, llm->model, llm->contract.function->name, &opts, err));
    pome_status status = reserve(predictor, llm, n_rows, err);
    if (status != POME_OK) {
        pome_predictor_destroy(&predictor);
        return status;
    }
    *out = predictor;
    return POME_OK;
}

static pome_status init_inputs(pome_pass_inputs *in, const pome_llm *llm, int64_t n_rows, pome_error *err)
{
    const pome_contract *c = &llm->contract;
    int64_t columns = max_columns(llm, n_rows);
    size_t n_mask = 0;
    if (!pome_mul_size((size_t)n_rows, (size_t)(columns > 0 ? columns : 1), &n_mask) ||
        !pome_mul_size(n_mask, sizeof(float), &n_mask))
        return pome_fail(err, POME_ERR_LIMIT, "a mask of %lld x %lld is too large", (long long)n_rows,
                         (long long)columns);
    in->ids = calloc((size_t)n_rows, sizeof *in->ids);
    in->mask = c->mask >= 0 ? malloc(n_mask) : NULL;
    if (!in->ids || (c->mask >= 0 && !in->mask))
        return pome_fail_nomem(err, n_mask, "inputs");
    return POME_OK;
}

static void reset_inputs(pome_pass_inputs *in)
{
    free(in->ids);
    free(in->mask);
    *in = (pome_pass_inputs){0};
}

static pome_status run_pass(pome_predictor *predictor, pome_state *state, const pome_contract *c, pome_pass pass,
                            const int32_t *timeline, pome_pass_inputs *in, pome_error *err)
{
    c->kind->fill(c, pass, timeline, in);
    POME_TRY(pome_predictor_set_input(predictor, (uint32_t)c->ids, &in->ids_tensor, err));
    if (c->mask >= 0)
        POME_TRY(pome_predictor_set_input(predictor, (uint32_t)c->mask, &in->mask_tensor, err));
    if (c->position >= 0)
        POME_TRY(pome_predictor_set_input(predictor, (uint32_t)c->position, &in->position_tensor, err));
    return pome_predictor_run(predictor, state, err);
}

/* The description leaves shapes of outputs open that the program's types know. */
static int64_t vocabulary_of_program(const pome_llm *llm)
{
    const pome_contract *c = &llm->contract;
    const pome_model_function *f = &llm->model->functions[c->function - llm->model->info.functions];
    const pome_type *type = &f->fn->body->outputs[f->outputs[c->logits]]->type;
    return type->kind == POME_TYPE_TENSOR && type->rank > 0 ? type->dim[type->rank - 1] : -1;
}

/* Where neither says it, one token is run to see how wide its logits are. */
static pome_status probe_vocabulary(pome_llm *llm, pome_error *err)
{
    const pome_contract *c = &llm->contract;
    pome_pass_inputs in = {0};
    pome_predictor *predictor = NULL;
    pome_state *state = NULL;
    pome_pass pass = c->kind->plan(c, 0, 1, 1);
    pome_status status = pome_predictor_create(&predictor, llm->model, c->function->name, NULL, err);
    if (status == POME_OK && c->function->n_states > 0)
        status = pome_state_create(&state, llm->model, c->function->name, err);
    if (status == POME_OK)
        status = init_inputs(&in, llm, pass.n_rows, err);
    if (status == POME_OK)
        status = run_pass(predictor, state, c, pass, &(int32_t){0}, &in, err);
    if (status == POME_OK) {
        const pome_tensor *out = pome_predictor_output(predictor, (uint32_t)c->logits);
        llm->n_vocab = out->rank > 0 ? out->shape[out->rank - 1] : 0;
    }
    reset_inputs(&in);
    pome_state_destroy(&state);
    pome_predictor_destroy(&predictor);
    return status;
}

static pome_status find_vocabulary(pome_llm *llm, pome_error *err)
{
    const pome_feature *f = &llm->contract.function->outputs[llm->contract.logits];
    llm->n_vocab = f->rank > 0 ? f->shape[f->rank - 1] : -1;
    if (llm->n_vocab < 1)
        llm->n_vocab = vocabulary_of_program(llm);
    if (llm->n_vocab < 1)
        POME_TRY(probe_vocabulary(llm, err));
    if (llm->n_vocab < 1 || llm->n_vocab > INT32_MAX)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "output '%s' has no vocabulary in its last axis", f->name);
    return POME_OK;
}

static pome_status open_engine(pome_llm *llm, const pome_llm_opts *opts, pome_error *err)
{
    int index = pome_model_find_function(llm->model, opts->function);
    const pome_model_info *info = pome_model_describe(llm->model);
    if (index < 0) {
        char names[512] = "";
        for (uint32_t i = 0, at = 0; i < info->n_functions && at < sizeof names; i++)
            at += (uint32_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", info->functions[i].name);
        return pome_fail(err, POME_ERR_ARG, "no function '%s' in the model; it has: %s",
                         opts->function ? opts->function : "", names);
    }
    POME_TRY(pome_contract_find(&llm->contract, &info->functions[index], err));
    if (opts->context < 0 || opts->context > llm->contract.context)
        return pome_fail(err, POME_ERR_LIMIT, "context %lld asked for, the model holds %lld", (long long)opts->context,
                         (long long)llm->contract.context);
    llm->context = opts->context > 0 ? opts->context : llm->contract.context;
    llm->block = choose_block(llm, opts->block);
    POME_TRY(find_vocabulary(llm, err));
    pome_contract_describe(&llm->contract, llm->description, sizeof llm->description);
    return POME_OK;
}

pome_status pome_llm_open(pome_llm **out, pome_model *model, const pome_llm_opts *opts, pome_error *err)
{
    pome_llm_opts defaults;
    pome_llm_opts_default(&defaults);
    pome_llm *llm = calloc(1, sizeof *llm);
    if (!llm)
        return pome_fail_nomem(err, sizeof *llm, "engine");
    llm->model = model;
    pome_status status = open_engine(llm, opts ? opts : &defaults, err);
    if (status != POME_OK) {
        free(llm);
        return status;
    }
    *out = llm;
    return POME_OK;
}

void pome_llm_close(pome_llm **llm)
{
    if (!llm)
        return;
    free(*llm);
    *llm = NULL;
}

int64_t pome_llm_n_context(const pome_llm *llm)
{
    return llm->context;
}

int64_t pome_llm_n_vocab(const pome_llm *llm)
{
    return llm->n_vocab;
}

const char *pome_llm_describe(const pome_llm *llm)
{
    return llm->description;
}

/* ---- session ---- */

/* Not every number of tokens is a length of its own: some passes end in padding, their logits are not in the last row. */
static bool may_pad(const pome_llm *llm)
{
    return llm->contract.lengths.n_listed > 0 || llm->contract.lengths.min > 1;
}

/* Everything that feeding needs is made now, so that it allocates nothing. */
static pome_status create_predictors(pome_llm_session *s, pome_llm *llm, pome_error *err)
{
    if (!pads_every_pass(llm))
        POME_TRY(create_predictor(&s->last_row, llm, true, s->max_rows, err));
    return may_pad(llm) || !s->last_row ? create_predictor(&s->all_rows, llm, false, s->max_rows, err) : POME_OK;
}

static pome_status init_session(pome_llm_session *s, pome_error *err)
{
    const pome_llm *llm = s->llm;
    s->max_rows = max_rows(llm);
    POME_TRY(init_inputs(&s->in, llm, s->max_rows, err));
    s->timeline = malloc((size_t)llm->context * sizeof *s->timeline);
    s->logits = malloc((size_t)llm->n_vocab * sizeof *s->logits);
    if (!s->timeline || !s->logits)
        return pome_fail_nomem(err, (size_t)llm->n_vocab * sizeof *s->logits, "session");
    if (llm->contract.function->n_states > 0)
        POME_TRY(pome_state_create(&s->state, llm->model, llm->contract.function->name, err));
    s->is_state_fresh = true;
    return POME_OK;
}

pome_status pome_llm_session_create(pome_llm_session **out, pome_llm *llm, pome_error *err)
{
    pome_llm_session *s = calloc(1, sizeof *s);
    if (!s)
        return pome_fail_nomem(err, sizeof *s, "session");
    s->llm = llm;
    atomic_init(&s->is_cancelled, false);
    pome_status status = init_session(s, err);
    if (status == POME_OK)
        status = create_predictors(s, llm, err);
    if (status != POME_OK) {
        pome_llm_session_destroy(&s);
        return status;
    }
    *out = s;
    return POME_OK;
}

void pome_llm_session_destroy(pome_llm_session **session)
{
    pome_llm_session *s = session ? *session : NULL;
    if (!s)
        return;
    pome_predictor_destroy(&s->last_row);
    pome_predictor_destroy(&s->all_rows);
    pome_state_destroy(&s->state);
    reset_inputs(&s->in);
    free(s->timeline);
    free(s->logits);
    free(s->row_logits);
    free(s);
    *session = NULL;
}

int64_t pome_llm_session_n_tokens(const pome_llm_session *session)
{
    return session->n_tokens;
}

int64_t pome_llm_session_n_reused(const pome_llm_session *session)
{
    return session->n_reused;
}

pome_status pome_llm_session_profile(pome_llm_session *s, pome_profile *profile, pome_error *err)
{
    if (s->last_row)
        POME_TRY(pome_predictor_profile(s->last_row, profile, err));
    if (s->all_rows)
        POME_TRY(pome_predictor_profile(s->all_rows, profile, err));
    s->profile = profile;
    return POME_OK;
}

const pome_llm *pome_llm_session_engine(const pome_llm_session *session)
{
    return session->llm;
}

bool pome_llm_session_take_cancel(pome_llm_session *session)
{
    return atomic_exchange(&session->is_cancelled, false);
}

void pome_llm_session_cancel(pome_llm_session *session)
{
    atomic_store(&session->is_cancelled, true);
}

void pome_llm_session_clear(pome_llm_session *s)
{
    if (s->state)
        pome_state_clear(s->state);
    s->is_state_fresh = true;
    s->n_tokens = s->n_written = 0;
    s->has_logits = false;
}

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
static pome_cache_layout detect_layout(pome_llm_session *s, pome_pass pass)
{
    s->n_cache_rows = INT64_MAX;
    for (uint32_t i = 0; i < s->llm->contract.function->n_states; i++) {
        const pome_tensor *t = pome_state_tensor(s->state, i);
        int64_t n_rows = 0;
        for (int32_t axis = 0; axis < t->rank && pome_tensor_is_contiguous(t); axis++)
            if (t->shape[axis] > pass.n_rows && t->shape[axis] > n_rows && !is_slice_zero(t, axis, 0) &&
                is_slice_zero(t, axis, t->shape[axis] - 1))
                n_rows = t->shape[axis];
        if (n_rows == 0)
            return pass.n_rows < s->llm->contract.context ? POME_CACHE_MOVING : POME_CACHE_UNKNOWN;
        if (n_rows < s->n_cache_rows)
            s->n_cache_rows = n_rows;
    }
    return POME_CACHE_BY_POSITION;
}

static row_kind kind_of_row(const float *row, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(row[i] >= 0.0f && row[i] <= 1.001f))
            return ROW_LOGITS;
        sum += row[i];
    }
    return fabs(sum - 1.0) < 0.02 ? ROW_SCORES : ROW_LOGITS;
}

/* Copies row `row` of the logits as fp32; scores become their logarithms. */
static pome_status read_row(pome_llm_session *s, const pome_tensor *out, int64_t row, float *to, pome_error *err)
{
    int64_t n_vocab = s->llm->n_vocab;
    size_t row_bytes = (size_t)n_vocab * pome_dtype_bits(out->dtype) / 8;
    pome_tensor from = pome_tensor_borrow((uint8_t *)out->data + (size_t)row * row_bytes, out->dtype, 1, &n_vocab);
    pome_tensor into = pome_tensor_borrow(to, POME_DTYPE_F32, 1, &n_vocab);
    POME_TRY(pome_tensor_copy(&into, &from, err));
    if (s->row_kind == ROW_UNKNOWN)
        s->row_kind = kind_of_row(to, n_vocab);
    for (int64_t i = 0; i < n_vocab && s->row_kind == ROW_SCORES; i++)
        to[i] = logf(to[i]);
    return POME_OK;
}

/* Number of rows in the logits of a pass: as many as the pass has, or the last one alone. */
static pome_status count_rows(const pome_llm_session *s, const pome_tensor *out, pome_pass pass, int64_t *n_rows,
                              pome_error *err)
{
    int64_t count = pome_tensor_count(out), n_vocab = s->llm->n_vocab;
    *n_rows = count / n_vocab;
    if (count == *n_rows * n_vocab && (*n_rows == pass.n_rows || (*n_rows == 1 && pass.n_real == pass.n_rows)))
        return POME_OK;
    return pome_fail(err, POME_ERR_UNSUPPORTED, "logits have %lld elements, expected %lld rows of %lld",
                     (long long)count, (long long)pass.n_rows, (long long)n_vocab);
}

static pome_status check_ids(const pome_llm *llm, const int32_t *ids, int64_t n, int64_t n_before, pome_error *err)
{
    if (n < 1)
        return pome_fail(err, POME_ERR_ARG, "no tokens to feed");
    if (n > llm->context - n_before)
        return pome_fail(err, POME_ERR_LIMIT, "%lld tokens do not fit the context of %lld", (long long)(n_before + n),
                         (long long)llm->context);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= llm->n_vocab)
            return pome_fail(err, POME_ERR_ARG, "token id %d at position %lld is outside the vocabulary of %lld",
                             (int)ids[i], (long long)(n_before + i), (long long)llm->n_vocab);
    return POME_OK;
}

/* A ring that has gone round has lost the rows that going back would need. */
static pome_cache_layout layout_now(const pome_llm_session *s)
{
    bool is_lost = s->layout == POME_CACHE_BY_POSITION && s->n_written > s->n_cache_rows;
    return is_lost ? POME_CACHE_MOVING : s->layout;
}

static pome_status choose_predictor(pome_llm_session *s, bool needs_all, pome_predictor **out, pome_error *err)
{
    pome_predictor **slot = needs_all || pads_every_pass(s->llm) ? &s->all_rows : &s->last_row;
    if (!*slot) {
        POME_TRY(create_predictor(slot, s->llm, slot == &s->last_row, s->max_rows, err));
        POME_TRY(pome_predictor_profile(*slot, s->profile, err));
    }
    *out = *slot;
    return POME_OK;
}

static pome_status check_layout(pome_llm_session *s, pome_pass pass, pome_error *err)
{
    if (s->state && s->is_state_fresh && pass.begin == 0)
        s->layout = detect_layout(s, pass);
    s->is_state_fresh = false;
    if (pass.begin + pass.n_rows > s->n_written)
        s->n_written = pass.begin + pass.n_rows;
    if (s->layout == POME_CACHE_BY_POSITION || !s->state || pass.n_real == pass.n_rows)
        return POME_OK;
    return pome_fail(err, POME_ERR_UNSUPPORTED,
                     "the cache does not keep row i at position i, so %lld tokens cannot be padded to %lld",
                     (long long)pass.n_real, (long long)pass.n_rows);
}

/* Feeds timeline[n_tokens..n); the logits of rows from position first_row on go to row_logits. */
static pome_status advance(pome_llm_session *s, int64_t n, int64_t first_row, pome_error *err)
{
    const pome_contract *c = &s->llm->contract;
    s->has_logits = false;
    while (s->n_tokens < n) {
        if (pome_llm_session_take_cancel(s))
            return pome_fail(err, POME_ERR_CANCELLED, "stopped after %lld of %lld tokens", (long long)s->n_tokens,
                             (long long)n);
        pome_pass pass = c->kind->plan(c, s->n_tokens, n, s->llm->block);
        int64_t end = pass.begin + pass.n_real, begin = pass.begin > first_row ? pass.begin : first_row;
        bool is_final = end == n, wants_rows = begin < end;
        pome_predictor *predictor = NULL;
        POME_TRY(choose_predictor(s, wants_rows || (is_final && pass.n_real < pass.n_rows), &predictor, err));
        POME_TRY(run_pass(predictor, s->state, c, pass, s->timeline, &s->in, err));
        POME_TRY(check_layout(s, pass, err));
        const pome_tensor *out = pome_predictor_output(predictor, (uint32_t)c->logits);
        int64_t n_rows = 0;
        if (wants_rows || is_final)
            POME_TRY(count_rows(s, out, pass, &n_rows, err));
        if (wants_rows && n_rows < pass.n_rows)
            return pome_fail(err, POME_ERR_UNSUPPORTED, "the model gives logits for the last token only");
        for (int64_t i = begin; i < end; i++)
            POME_TRY(read_row(s, out, i - pass.begin, s->row_logits + (i - first_row) * s->llm->n_vocab, err));
        if (is_final)
            POME_TRY(read_row(s, out, n_rows == 1 ? 0 : pass.n_real - 1, s->logits, err));
        s->n_tokens = end;
    }
    s->has_logits = true;
    return POME_OK;
}

/* A failed pass may have written rows after n_tokens. They do no harm where rows are addressed by position. */
static pome_status advance_or_recover(pome_llm_session *s, int64_t n, int64_t first_row, pome_error *err)
{
    pome_status status = advance(s, n, first_row, err);
    if (status != POME_OK && status != POME_ERR_CANCELLED && s->state && layout_now(s) != POME_CACHE_BY_POSITION)
        pome_llm_session_clear(s);
    return status;
}

/* Cuts the timeline to what it shares with ids[0..n), leaving at least one token to feed, and appends the rest. */
static void sync_timeline(pome_llm_session *s, const int32_t *ids, int64_t n)
{
    int64_t n_keep = 0;
    while (n_keep < s->n_tokens && n_keep < n - 1 && s->timeline[n_keep] == ids[n_keep])
        n_keep++;
    const pome_contract *c = &s->llm->contract;
    n_keep = c->kind->rewind(c, layout_now(s), s->n_tokens, n_keep);
    if (n_keep == 0 && s->n_tokens > 0 && layout_now(s) != POME_CACHE_BY_POSITION)
        pome_llm_session_clear(s);
    s->n_tokens = s->n_reused = n_keep;
    memcpy(s->timeline + n_keep, ids + n_keep, (size_t)(n - n_keep) * sizeof *ids);
}

pome_status pome_llm_session_feed(pome_llm_session *s, const int32_t *ids, int64_t n, const float **logits,
                                  pome_error *err)
{
    POME_TRY(check_ids(s->llm, ids, n, 0, err));
    bool is_same = s->has_logits && n == s->n_tokens && memcmp(s->timeline, ids, (size_t)n * sizeof *ids) == 0;
    s->n_reused = n;
    if (!is_same) {
        sync_timeline(s, ids, n);
        POME_TRY(advance_or_recover(s, n, n, err));
    }
    *logits = s->logits;
    return POME_OK;
}

static pome_status append(pome_llm_session *s, const int32_t *ids, int64_t n, int64_t n_rows, pome_error *err)
{
    int64_t n_before = s->n_tokens;
    s->n_reused = n_before;
    memcpy(s->timeline + n_before, ids, (size_t)n * sizeof *ids);
    return advance_or_recover(s, n_before + n, n_before + n - n_rows, err);
}

pome_status pome_llm_session_append(pome_llm_session *s, const int32_t *ids, int64_t n, const float **logits,
                                    pome_error *err)
{
    POME_TRY(check_ids(s->llm, ids, n, s->n_tokens, err));
    POME_TRY(append(s, ids, n, 0, err));
    *logits = s->logits;
    return POME_OK;
}

static pome_status make_row_room(pome_llm_session *s, int64_t n_rows, pome_error *err)
{
    size_t size = 0;
    float *grown = NULL;
    if (n_rows <= s->n_row_room)
        return POME_OK;
    if (pome_mul_size((size_t)n_rows, (size_t)s->llm->n_vocab * sizeof *grown, &size))
        grown = realloc(s->row_logits, size);
    if (!grown)
        return pome_fail_nomem(err, size, "logits of several rows");
    s->row_logits = grown;
    s->n_row_room = n_rows;
    return POME_OK;
}

pome_status pome_llm_session_reserve_rows(pome_llm_session *s, int64_t n_rows, pome_error *err)
{
    if (n_rows < 1 || n_rows > s->llm->context)
        return pome_fail(err, POME_ERR_LIMIT, "logits of %lld rows, the context is %lld", (long long)n_rows,
                         (long long)s->llm->context);
    POME_TRY(make_row_room(s, n_rows, err));
    int64_t n_pass = s->llm->contract.kind == &pome_contract_nocache || n_rows > s->max_rows ? s->max_rows : n_rows;
    if (!s->all_rows) {
        POME_TRY(create_predictor(&s->all_rows, s->llm, false, n_pass, err));
        return pome_predictor_profile(s->all_rows, s->profile, err);
    }
    return may_pad(s->llm) || pads_every_pass(s->llm) ? POME_OK : reserve(s->all_rows, s->llm, n_pass, err);
}

pome_status pome_llm_session_append_rows(pome_llm_session *s, const int32_t *ids, int64_t n, int64_t n_rows,
                                         const float **logits, pome_error *err)
{
    POME_TRY(check_ids(s->llm, ids, n, s->n_tokens, err));
    if (n_rows < 1 || n_rows > n)
        return pome_fail(err, POME_ERR_ARG, "logits of %lld rows of %lld tokens", (long long)n_rows, (long long)n);
    POME_TRY(make_row_room(s, n_rows, err));
    POME_TRY(append(s, ids, n, n_rows, err));
    *logits = s->row_logits;
    return POME_OK;
}

pome_status pome_llm_session_rewind(pome_llm_session *s, int64_t n, pome_error *err)
{
    const pome_contract *c = &s->llm->contract;
    if (n < 0 || n > s->n_tokens)
        return pome_fail(err, POME_ERR_ARG, "going back to %lld of %lld tokens", (long long)n, (long long)s->n_tokens);
    if (n == s->n_tokens)
        return POME_OK;
    if (n > 0 && c->kind->rewind(c, layout_now(s), s->n_tokens, n) != n)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "the cache does not keep row i at position i: it cannot go back");
    if (n == 0)
        pome_llm_session_clear(s);
    s->n_tokens = n;
    s->has_logits = false;
    return POME_OK;
}

bool pome_llm_session_can_rewind(const pome_llm_session *s)
{
    const pome_contract *c = &s->llm->contract;
    return s->n_tokens > 1 && c->kind->rewind(c, layout_now(s), s->n_tokens, s->n_tokens - 1) == s->n_tokens - 1;
}

int64_t pome_llm_session_max_draft(const pome_llm_session *s, int64_t n)
{
    const pome_contract *c = &s->llm->contract;
    int64_t room = s->llm->context - s->n_tokens;
    if (c->kind->rewind(c, layout_now(s), s->n_tokens + 1, s->n_tokens) != s->n_tokens)
        return 1;
    if (s->state && s->n_cache_rows - s->n_tokens < room)
        room = s->n_cache_rows - s->n_tokens;
    for (n = n < room ? n : room; n > 1; n--) {
        pome_pass pass = c->kind->plan(c, s->n_tokens, s->n_tokens + n, s->llm->block);
        bool fits_state = !s->state || pass.begin + pass.n_rows <= s->n_cache_rows;
        if (fits_state && pass.begin + pass.n_real == s->n_tokens + n)
            return n;
    }
    return 1;
}

pome_status pome_llm_session_feed_all(pome_llm_session *s, const int32_t *ids, int64_t n, const float **logits,
                                      int64_t *n_reused, pome_error *err)
{
    POME_TRY(check_ids(s->llm, ids, n, 0, err));
    sync_timeline(s, ids, n);
    int64_t n_kept = s->n_tokens;
    POME_TRY(make_row_room(s, n - n_kept, err));
    POME_TRY(advance_or_recover(s, n, n_kept, err));
    *logits = s->row_logits;
    *n_reused = n_kept;
    return POME_OK;
}
