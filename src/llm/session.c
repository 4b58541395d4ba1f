/* A session: one timeline of tokens over an engine. */
#include "llm/session.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/f16.h"
#include "base/stop.h"
#include "llm/engine.h"
#include "pome/profile.h"

/* Softmax outputs (token scores) are turned into their logarithms; which it is shows in the first row seen. */
typedef enum row_kind { ROW_UNKNOWN = 0, ROW_LOGITS, ROW_SCORES } row_kind;

struct pome_llm_session {
    pome_llm *llm;
    pome_runner *runner;
    int32_t *timeline;          /* [context] */
    int64_t n_tokens;           /* of the timeline that the caches hold */
    int64_t n_reused;           /* of the last feed */
    row_kind row_kind;
    bool has_logits;            /* `logits` belong to the last token */
    float *logits;              /* [n_vocab] */
    float *row_logits;          /* [n_row_room, n_vocab] */
    int64_t n_row_room;
    pome_stop stop;
};

static pome_status init_session(pome_llm_session *s, pome_error *err)
{
    const pome_llm *llm = s->llm;
    s->timeline = malloc((size_t)llm->runner.context * sizeof *s->timeline);
    s->logits = malloc((size_t)llm->n_vocab * sizeof *s->logits);
    if (!s->timeline || !s->logits)
        return pome_fail_nomem(err, (size_t)llm->n_vocab * sizeof *s->logits, "session");
    pome_runner_opts opts = llm->runner;
    opts.stop = &s->stop;
    return llm->contract.kind->create(&s->runner, &llm->contract, &opts, err);
}

pome_status pome_llm_session_create(pome_llm_session **out, pome_llm *llm, pome_error *err)
{
    pome_llm_session *s = calloc(1, sizeof *s);
    if (!s)
        return pome_fail_nomem(err, sizeof *s, "session");
    s->llm = llm;
    pome_stop_init(&s->stop);
    pome_status status = init_session(s, err);
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
    if (s->runner)
        s->runner->ops->destroy(s->runner);
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
    return s->runner->ops->profile(s->runner, profile, err);
}

const pome_llm *pome_llm_session_engine(const pome_llm_session *session)
{
    return session->llm;
}

void pome_llm_session_forget_cancel(pome_llm_session *session)
{
    pome_stop_forget(&session->stop);
}

void pome_llm_session_cancel(pome_llm_session *session)
{
    pome_stop_ask(&session->stop);
}

void pome_llm_session_poll(pome_llm_session *session, pome_poll *poll, void *arg)
{
    pome_stop_set_poll(&session->stop, poll, arg);
}

void pome_llm_session_clear(pome_llm_session *s)
{
    s->runner->ops->clear(s->runner);
    s->n_tokens = 0;
    s->has_logits = false;
}

static int64_t kept(const pome_llm_session *s, int64_t n_keep)
{
    return s->runner->ops->kept(s->runner, s->n_tokens, n_keep);
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

/* The choice of a model that picks tokens itself, as logits. */
static pome_status read_choice(const pome_llm_session *s, const pome_rows *rows, int64_t row, float *to, pome_error *err)
{
    int32_t id = ((const int32_t *)rows->parts[0]->data)[row];
    if (id < 0 || id >= s->llm->n_vocab)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "the model chose token %d of a vocabulary of %lld", (int)id,
                         (long long)s->llm->n_vocab);
    for (int64_t i = 0; i < s->llm->n_vocab; i++)
        to[i] = -INFINITY;
    to[id] = 0;
    return POME_OK;
}

/* Copies the logits at `position` of the timeline as fp32; scores become their logarithms. */
static pome_status read_row(pome_llm_session *s, pome_pass pass, const pome_rows *rows, int64_t position, float *to,
                            pome_error *err)
{
    int64_t n_vocab = s->llm->n_vocab, row = position - pass.begin - rows->first, at = 0;
    if (row < 0 || row >= rows->n)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "the model gives no logits for token %lld of a pass",
                         (long long)(position - pass.begin));
    if (s->llm->contract.is_argmax)
        return read_choice(s, rows, row, to, err);
    for (int i = 0; i < rows->n_parts; i++) {
        const pome_tensor *part = rows->parts[i];
        int64_t n = pome_tensor_count(part) / rows->n;
        if (n > n_vocab - at)
            return pome_fail(err, POME_ERR_UNSUPPORTED, "logits are wider than the vocabulary of %lld", (long long)n_vocab);
        uint8_t *data = (uint8_t *)part->data + (size_t)(row * n) * (pome_dtype_bits(part->dtype) / 8);
        pome_tensor from = pome_tensor_borrow(data, part->dtype, 1, &n), into = pome_tensor_borrow(to + at, POME_DTYPE_F32, 1, &n);
        POME_TRY(pome_tensor_copy(&into, &from, err));
        at += n;
    }
    if (at != n_vocab)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "logits of %lld tokens, the vocabulary has %lld", (long long)at,
                         (long long)n_vocab);
    if (s->row_kind == ROW_UNKNOWN)
        s->row_kind = kind_of_row(to, n_vocab);
    for (int64_t i = 0; i < n_vocab && s->row_kind == ROW_SCORES; i++)
        to[i] = logf(to[i]);
    return POME_OK;
}

static pome_status check_ids(const pome_llm *llm, const int32_t *ids, int64_t n, int64_t n_before, pome_error *err)
{
    if (n < 1)
        return pome_fail(err, POME_ERR_ARG, "no tokens to feed");
    if (n > llm->runner.context - n_before)
        return pome_fail(err, POME_ERR_LIMIT, "%lld tokens do not fit the context of %lld", (long long)(n_before + n),
                         (long long)llm->runner.context);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= llm->n_vocab)
            return pome_fail(err, POME_ERR_ARG, "token id %d at position %lld is outside the vocabulary of %lld",
                             (int)ids[i], (long long)(n_before + i), (long long)llm->n_vocab);
    return POME_OK;
}

/* Feeds timeline[n_tokens..n); the logits of rows from position first_row on go to row_logits. *is_torn: a pass failed, which
 * may have written some of its rows. */
static pome_status advance(pome_llm_session *s, int64_t n, int64_t first_row, bool *is_torn, pome_error *err)
{
    const pome_contract *c = &s->llm->contract;
    s->has_logits = false;
    while (s->n_tokens < n) {
        if (pome_stop_take(&s->stop))
            return pome_fail(err, POME_ERR_CANCELLED, "stopped after %lld of %lld tokens", (long long)s->n_tokens,
                             (long long)n);
        int64_t goal = n; /* the next token whose logits are wanted */
        if (c->gives_one_row && first_row < n)
            goal = s->n_tokens < first_row ? first_row + 1 : s->n_tokens + 1;
        pome_pass pass = c->kind->plan(c, s->n_tokens, goal, s->llm->runner.block);
        pome_rows rows = {0};
        int64_t end = pass.begin + pass.n_real, begin = pass.begin > first_row ? pass.begin : first_row;
        bool is_final = end == n;
        pome_want want = begin < end ? POME_WANT_ALL : is_final ? POME_WANT_LAST : POME_WANT_NOTHING;
        *is_torn = true;
        POME_TRY(s->runner->ops->run(s->runner, pass, s->timeline, want, &rows, err));
        for (int64_t i = begin; i < end; i++)
            POME_TRY(read_row(s, pass, &rows, i, s->row_logits + (i - first_row) * s->llm->n_vocab, err));
        if (is_final)
            POME_TRY(read_row(s, pass, &rows, end - 1, s->logits, err));
        s->n_tokens = end;
        *is_torn = false;
    }
    s->has_logits = true;
    return POME_OK;
}

/* Rows after n_tokens do no harm where rows are addressed by position. */
static pome_status advance_or_recover(pome_llm_session *s, int64_t n, int64_t first_row, pome_error *err)
{
    bool is_torn = false;
    pome_status status = advance(s, n, first_row, &is_torn, err);
    if (is_torn && (s->n_tokens == 0 || kept(s, s->n_tokens) < s->n_tokens))
        pome_llm_session_clear(s);
    return status;
}

/* Cuts the timeline to what it shares with ids[0..n), leaving at least one token to feed, and appends the rest. */
static void sync_timeline(pome_llm_session *s, const int32_t *ids, int64_t n)
{
    int64_t n_keep = 0;
    while (n_keep < s->n_tokens && n_keep < n - 1 && s->timeline[n_keep] == ids[n_keep])
        n_keep++;
    n_keep = kept(s, n_keep);
    if (n_keep < s->n_tokens)
        s->runner->ops->rewind(s->runner, n_keep);
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
    if (n_rows < 1 || n_rows > s->llm->runner.context)
        return pome_fail(err, POME_ERR_LIMIT, "logits of %lld rows, the context is %lld", (long long)n_rows,
                         (long long)s->llm->runner.context);
    POME_TRY(make_row_room(s, n_rows, err));
    return s->runner->ops->reserve_rows(s->runner, n_rows, err);
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
    if (n < 0 || n > s->n_tokens)
        return pome_fail(err, POME_ERR_ARG, "going back to %lld of %lld tokens", (long long)n, (long long)s->n_tokens);
    if (n == s->n_tokens)
        return POME_OK;
    if (n > 0 && kept(s, n) != n)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "the cache does not keep row i at position i: it cannot go back");
    if (n == 0)
        pome_llm_session_clear(s);
    else
        s->runner->ops->rewind(s->runner, n);
    s->n_tokens = n;
    s->has_logits = false;
    return POME_OK;
}

bool pome_llm_session_can_rewind(const pome_llm_session *s)
{
    return s->n_tokens > 1 && kept(s, s->n_tokens - 1) == s->n_tokens - 1;
}

int64_t pome_llm_session_max_draft(const pome_llm_session *s, int64_t n)
{
    const pome_contract *c = &s->llm->contract;
    int64_t room = s->llm->runner.context - s->n_tokens;
    for (n = n < room ? n : room; n > 1; n--) {
        pome_pass pass = c->kind->plan(c, s->n_tokens, s->n_tokens + n, s->llm->runner.block);
        if (pass.begin + pass.n_real == s->n_tokens + n && s->runner->ops->can_undo(s->runner, pass, s->n_tokens))
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
