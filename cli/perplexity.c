/* `pome perplexity`: how well a model predicts a text, and how far two runs over it lie apart. */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "command.h"
#include "input.h"
#include "llm_open.h"
#include "logits_file.h"
#include "pome/generate.h"
#include "pome/llm.h"
#include "verbs.h"

typedef struct perplexity_args {
    common_args common;
    int64_t context, stride, chunks;
    llm_args llm;
    const char *tokenizer, *logits_out, *compare;
    int against;
    bool ids;
} perplexity_args;

static void set_defaults(void *opaque)
{
    perplexity_args *args = opaque;
    args->context = 512;
}

#define AT(member) offsetof(perplexity_args, member)
static const option options[] = {
    {"context", 'c', "ctx-size", OPTION_INT, "N", AT(context), 4, 1e7, false,
     "Tokens per window, at most what the model holds (512)"},
    {"stride", 0, "ppl-stride", OPTION_INT, "N", AT(stride), 0, 1e7, false,
     "Tokens from one window to the next, each scored once; 0: windows of their own whose second half is scored (0)"},
    {"chunks", 0, NULL, OPTION_INT, "N", AT(chunks), 0, 1e9, false, "Windows at most; 0: the whole text (0)"},
    {"logits-out", 0, "save-all-logits", OPTION_TEXT, "FILE", AT(logits_out), 0, 0, false,
     "Store the log probabilities of this run"},
    {"compare", 0, "kl-divergence-base", OPTION_TEXT, "FILE", AT(compare), 0, 0, false,
     "Compare with a stored run; without TEXT its tokens are taken"},
    {"against", 0, NULL, OPTION_CHOICE, "none|exact|fast|fp16", AT(against), 0, 0, false,
     "Compare with other numerics of the same model, side by side (none)"},
    {"ids", 0, NULL, OPTION_FLAG, NULL, AT(ids), 0, 0, false, "The text file holds token ids, no tokenizer is needed"},
    {"tokenizer", 0, NULL, OPTION_TEXT, "FOLDER|FILE", AT(tokenizer), 0, 0, true,
     "Where the tokenizer is (inside the package, beside it, or in the Hub cache)"},
    OPTIONS_LLM(perplexity_args, llm),
    OPTIONS_ENGINE(perplexity_args, "exact"),
    OPTIONS_OUTPUT(perplexity_args),
    {0},
};

static const char *const examples[] = {
    "pome perplexity model.mlpackage text.txt", "windows of 512 tokens, the second half of each scored",
    "pome perplexity model.mlpackage text.txt -c 1024 --stride 512", "each token scored once, with at least 512 before it",
    "pome perplexity model.mlpackage text.txt --numerics fast --against exact", "what int8 activations cost",
    "pome perplexity f16.mlpackage text.txt --logits-out f16.logits", "store a run",
    "pome perplexity int4.mlpackage --compare f16.logits", "the same tokens, and the divergence from that run", NULL,
};

/* ---- state of a run ---- */

typedef struct engine {
    pome_model_set *models;
    pome_llm *llm;
    pome_llm_session *session;
    int64_t piece; /* rows per pass whose logits are wanted at once */
} engine;

typedef struct comparison {
    float *divergence; /* [n_room] Kullback-Leibler divergence from the base, per scored token */
    size_t n_same_top;
    double nll_base, difference, difference2, probability2; /* sums: base's nll, nll - base's, squares */
} comparison;

typedef struct run_state {
    const perplexity_args *args;
    engine it, base; /* base: with --against */
    pome_tokenizer *tokenizer;
    logits_file out, in;
    int32_t *ids;    /* [n_ids] of the text */
    int64_t n_ids, n_context, n_windows, stride;
    bool has_bos;    /* each window of its own begins with it */
    float *base_row; /* [n_vocab] log probabilities */
    comparison against;
    int64_t n_windows_done, n_scored;
    double nll, nll2; /* sums over scored tokens, and of squares */
    double begin_s, shown_s;
    bool has_shown;
    char reason[1100]; /* of a failure that the library did not report */
} run_state;

static pome_llm_session *volatile cancellable[2];

static void cancel(void *arg)
{
    (void)arg;
    for (int i = 0; i < 2; i++) {
        pome_llm_session *session = cancellable[i];
        if (session)
            pome_llm_session_cancel(session);
    }
}

/* ---- scoring ---- */

/* Of exp: sum over [n], and the place of the largest. */
static double log_sum_exp(const float *logits, int64_t n, int64_t *top)
{
    double sum = 0;
    *top = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[*top])
            *top = i;
    for (int64_t i = 0; i < n; i++)
        sum += expf(logits[i] - logits[*top]);
    return (double)logits[*top] + log(sum);
}

/* Reads or computes the base's row as log probabilities. */
static bool take_base_row(run_state *run, const float *base_logits, int64_t n_vocab)
{
    int64_t top;
    if (!base_logits)
        return logits_file_read(&run->in, run->base_row, run->reason, sizeof run->reason);
    double total = log_sum_exp(base_logits, n_vocab, &top);
    for (int64_t i = 0; i < n_vocab; i++)
        run->base_row[i] = (float)((double)base_logits[i] - total);
    return true;
}

enum { FLOOR = -16 }; /* the stored form cuts probabilities off below exp(-16) */

/* Sum of p log(p / q) - p + q over base p and model q: the Kullback-Leibler divergence where both sum up to one, and
 * never below zero where the stored p do not quite. */
static void compare_row(run_state *run, const float *logits, double total, int64_t top, int64_t n_vocab, int32_t next)
{
    comparison *c = &run->against;
    const float *base = run->base_row;
    double divergence = 0;
    int64_t base_top = 0;
    for (int64_t i = 0; i < n_vocab; i++) {
        base_top = base[i] > base[base_top] ? i : base_top;
        if (base[i] > FLOOR) {
            double log_q = (double)logits[i] - total, p = (double)expf(base[i]);
            divergence += p * ((double)base[i] - log_q) - p + (double)expf((float)log_q);
        }
    }
    double nll = total - (double)logits[next], nll_base = -(double)base[next], change = exp(-nll) - exp(-nll_base);
    c->divergence[run->n_scored] = (float)divergence;
    c->n_same_top += top == base_top;
    c->nll_base += nll_base;
    c->difference += nll - nll_base;
    c->difference2 += (nll - nll_base) * (nll - nll_base);
    c->probability2 += change * change;
}

static bool score_row(run_state *run, const float *logits, const float *base_logits, int32_t next)
{
    int64_t n_vocab = pome_llm_n_vocab(run->it.llm), top;
    double total = log_sum_exp(logits, n_vocab, &top), nll = total - (double)logits[next];
    if (!isfinite(nll)) {
        snprintf(run->reason, sizeof run->reason, "the logits after token %lld are no numbers", (long long)run->n_scored);
        return false;
    }
    if (run->out.file && !logits_file_write(&run->out, logits, run->reason, sizeof run->reason))
        return false;
    if (run->base_row) {
        if (!take_base_row(run, base_logits, n_vocab))
            return false;
        compare_row(run, logits, total, top, n_vocab, next);
    }
    run->nll += nll;
    run->nll2 += nll * nll;
    run->n_scored++;
    return true;
}

/* Feeds ids[0..n) as a new timeline and scores what follows positions first .. n-2. */
static pome_status score_window(run_state *run, const int32_t *ids, int64_t n, int64_t first, pome_error *err)
{
    engine *both[2] = {&run->it, run->base.session ? &run->base : NULL};
    int64_t n_vocab = pome_llm_n_vocab(run->it.llm), piece = run->it.piece ? run->it.piece : n;
    for (int64_t at = 0; at < n - 1;) {
        int64_t end = at == 0 && first > 0 && run->it.piece ? first : at + piece < n - 1 ? at + piece : n - 1;
        int64_t n_rows = end <= first ? 0 : end - (at > first ? at : first);
        const float *rows[2] = {NULL, NULL};
        for (int k = 0; k < 2 && both[k]; k++) {
            pome_status status;
            if (at == 0)
                pome_llm_session_clear(both[k]->session);
            if (n_rows > 0)
                status = pome_llm_session_append_rows(both[k]->session, ids + at, end - at, n_rows, &rows[k], err);
            else
                status = pome_llm_session_append(both[k]->session, ids + at, end - at, &rows[k], err);
            if (status != POME_OK)
                return status;
        }
        for (int64_t i = 0; i < n_rows; i++)
            if (!score_row(run, rows[0] + i * n_vocab, rows[1] ? rows[1] + i * n_vocab : NULL, ids[end - n_rows + i + 1]))
                return POME_ERR_IO;
        at = end;
    }
    return POME_OK;
}

/* ---- windows ---- */

static void show_progress(run_state *run)
{
    double now = now_s(), spent = now - run->begin_s;
    if (run->args->common.quiet || !isatty(STDERR_FILENO) || now - run->shown_s < 0.2 || run->n_scored == 0)
        return;
    fprintf(stderr, "\rwindow %lld/%lld  perplexity %.4f  %.0f s left\033[K", (long long)run->n_windows_done,
            (long long)run->n_windows, exp(run->nll / (double)run->n_scored),
            spent / (double)run->n_windows_done * (double)(run->n_windows - run->n_windows_done));
    run->shown_s = now;
    run->has_shown = true;
}

static int64_t end_of(const run_state *run, int64_t window)
{
    int64_t end = window * run->stride + run->n_context;
    return end < run->n_ids ? end : run->n_ids;
}

static pome_status score_text(run_state *run, pome_error *err)
{
    pome_status status = POME_OK;
    int32_t bos = run->has_bos ? pome_tokenizer_bos(run->tokenizer) : -1;
    run->begin_s = now_s();
    for (int64_t w = 0; w < run->n_windows && status == POME_OK; w++) {
        int64_t begin = w * run->stride, end = end_of(run, w);
        int64_t first = run->args->stride == 0 ? run->n_context / 2 : w == 0 ? 0 : end_of(run, w - 1) - begin - 1;
        first = first < 0 ? 0 : first; /* windows that just touch: nothing stands before a window's first token */
        int32_t saved = run->ids[begin];
        if (bos >= 0)
            run->ids[begin] = bos;
        status = interrupt_happened() ? POME_ERR_CANCELLED : score_window(run, run->ids + begin, end - begin, first, err);
        run->ids[begin] = saved;
        run->n_windows_done += status == POME_OK;
        show_progress(run);
    }
    if (run->has_shown)
        fputs("\r\033[K", stderr);
    return status;
}

/* ---- setup ---- */

static pome_status open_engine(engine *e, const char *path, const perplexity_args *args, int numerics, pome_error *err)
{
    common_args common = args->common;
    common.numerics = numerics;
    pome_status status = open_models(&e->models, path, &common, err);
    if (status == POME_OK)
        status = open_llm(&e->llm, e->models, &args->llm, 0, err);
    if (status == POME_OK)
        status = pome_llm_session_create(&e->session, e->llm, err);
    if (status != POME_OK)
        return status;
    if (!pome_llm_has_logits(e->llm)) {
        *err = (pome_error){.code = POME_ERR_UNSUPPORTED};
        snprintf(err->message, sizeof err->message, "the model picks tokens itself and gives no logits to measure (%s)",
                 pome_llm_describe(e->llm));
        return POME_ERR_UNSUPPORTED;
    }
    e->piece = pome_llm_has_cache(e->llm) ? 128 : 0; /* without a cache a piece would start over */
    listen_to_log(&args->common);
    return POME_OK;
}

static void close_engine(engine *e)
{
    pome_llm_session_destroy(&e->session);
    pome_llm_close(&e->llm);
    pome_model_set_close(&e->models);
}

/* The whole file, malloc'ed and NUL-terminated; "-" is standard input. */
static char *read_text(const char *path, size_t *len)
{
    enum { TEXT_BYTES_MAX = 1 << 30 };
    FILE *f = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    char *text = NULL;
    size_t room = 0;
    *len = 0;
    for (bool is_open = f != NULL; is_open;) {
        if (room - *len < 2) {
            char *grown = room < TEXT_BYTES_MAX ? realloc(text, room = 2 * room + 65536) : NULL;
            if (!grown) {
                errno = room < TEXT_BYTES_MAX ? ENOMEM : EFBIG;
                break;
            }
            text = grown;
        }
        size_t n = fread(text + *len, 1, room - *len - 1, f);
        *len += n;
        text[*len] = '\0';
        is_open = n > 0;
    }
    bool has_failed = !f || ferror(f) || !feof(f);
    int saved = errno;
    if (f && f != stdin)
        fclose(f);
    if (has_failed) {
        free(text);
        errno = saved;
        return NULL;
    }
    return text;
}

/* Text in another encoding gives a perplexity as well, of bytes that stand for nothing. */
static void warn_of_encoding(const run_state *run, const char *name, const char *text, size_t len)
{
    json_t *valid = json_stringn(text, len);
    if (!valid)
        note(&run->args->common, "%s is not UTF-8: bytes that are no characters are taken one by one", name);
    json_decref(valid);
}

/* What the tokenizer puts before every text: encoding nothing shows it. */
static bool adds_bos(const pome_tokenizer *tokenizer)
{
    int32_t *ids = NULL;
    size_t n = 0;
    bool adds = pome_tokenizer_encode(tokenizer, "", 0, true, false, &ids, &n, NULL) == POME_OK && n > 0 &&
                ids[0] == pome_tokenizer_bos(tokenizer);
    free(ids);
    return adds;
}

static pome_status read_ids(run_state *run, const char *path, pome_error *err)
{
    size_t len = 0, n = 0;
    char *text = read_text(path, &len), reason[128];
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    pome_status status = POME_ERR_IO;
    if (!text) {
        snprintf(run->reason, sizeof run->reason, "%s: %s", name, strerror(errno));
        return POME_ERR_IO;
    }
    if (run->args->ids) {
        size_t end = strlen(text);
        while (end > 0 && strchr(" \t\r\n", text[end - 1]))
            text[--end] = '\0';
        status = parse_ids(text, &run->ids, &n, reason, sizeof reason) ? POME_OK : POME_ERR_FORMAT;
        if (status != POME_OK)
            snprintf(run->reason, sizeof run->reason, "%s: %s", name, reason);
    } else {
        status = pome_tokenizer_locate(&run->tokenizer, pome_model_set_model(run->it.models, 0), run->args->tokenizer, err);
        if (status == POME_OK)
            warn_of_encoding(run, name, text, len);
        if (status == POME_OK)
            status = pome_tokenizer_encode(run->tokenizer, text, len, true, false, &run->ids, &n, err);
        run->has_bos = status == POME_OK && run->args->stride == 0 && adds_bos(run->tokenizer);
    }
    run->n_ids = (int64_t)n;
    free(text);
    return status;
}

static pome_status fail_here(run_state *run, const char *fmt, ...) POME_PRINTF(2, 3);
static pome_status fail_here(run_state *run, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(run->reason, sizeof run->reason, fmt, ap);
    va_end(ap);
    return POME_ERR_ARG;
}

/* Takes the windows of a stored run, and its ids if no text was given. */
static pome_status open_compare(run_state *run)
{
    logits_file *in = &run->in;
    int64_t n_vocab = pome_llm_n_vocab(run->it.llm);
    if (!logits_file_open(in, run->args->compare, run->reason, sizeof run->reason))
        return POME_ERR_IO;
    if (in->n_vocab != n_vocab)
        return fail_here(run, "%s has a vocabulary of %d, the model one of %lld", in->path, (int)in->n_vocab,
                         (long long)n_vocab);
    int64_t n = (int64_t)in->n_windows * in->n_context;
    for (int64_t i = 0; run->ids && i < n; i++)
        if (i >= run->n_ids || run->ids[i] != in->ids[i])
            return fail_here(run, "%s was made of another text: token %lld differs", in->path, (long long)i);
    if (!run->ids) {
        run->ids = malloc((size_t)n * sizeof *run->ids);
        if (!run->ids)
            return fail_here(run, "out of memory");
        memcpy(run->ids, in->ids, (size_t)n * sizeof *run->ids);
        run->n_ids = n;
        /* Ids are stored as the text has them; whether windows begin with BOS is for the tokenizer to say. */
        if (pome_tokenizer_locate(&run->tokenizer, pome_model_set_model(run->it.models, 0), run->args->tokenizer, NULL) == POME_OK)
            run->has_bos = adds_bos(run->tokenizer);
    }
    run->n_context = in->n_context;
    run->n_windows = in->n_windows;
    return POME_OK;
}

static pome_status plan_windows(run_state *run)
{
    const perplexity_args *args = run->args;
    int64_t held = pome_llm_n_context(run->it.llm);
    if (!args->compare) {
        run->n_context = args->context < held ? args->context : held;
        run->n_windows = args->stride == 0 ? run->n_ids / run->n_context
                         : run->n_ids <= run->n_context
                             ? run->n_ids >= 2
                             : 1 + (run->n_ids - run->n_context + args->stride - 1) / args->stride;
    }
    if (run->n_context > held)
        return fail_here(run, "windows of %lld tokens, the model holds %lld", (long long)run->n_context, (long long)held);
    if (args->stride > run->n_context)
        return fail_here(run, "--stride %lld is longer than a window of %lld tokens", (long long)args->stride,
                         (long long)run->n_context);
    run->stride = args->stride ? args->stride : run->n_context;
    if (run->n_windows < 1)
        return fail_here(run, "the text has %lld tokens, a window takes %lld (see --context and --stride)",
                         (long long)run->n_ids, (long long)run->n_context);
    if (args->chunks > 0 && run->n_windows > args->chunks)
        run->n_windows = args->chunks;
    int64_t n_vocab = pome_llm_n_vocab(run->it.llm);
    for (int64_t i = 0; i < run->n_ids; i++)
        if (run->ids[i] < 0 || run->ids[i] >= n_vocab)
            return fail_here(run, "token id %d at position %lld is outside the vocabulary of %lld", (int)run->ids[i],
                             (long long)i, (long long)n_vocab);
    return POME_OK;
}

static pome_status prepare(run_state *run, const char *model, const char *text, pome_error *err)
{
    const perplexity_args *args = run->args;
    pome_status status = open_engine(&run->it, model, args, args->common.numerics, err);
    if (status == POME_OK && text)
        status = read_ids(run, text, err);
    if (status == POME_OK && args->compare)
        status = open_compare(run);
    if (status == POME_OK)
        status = plan_windows(run);
    if (status == POME_OK && args->against)
        status = open_engine(&run->base, model, args, args->against - 1, err);
    if (status != POME_OK)
        return status;
    if (args->compare || args->against) {
        run->base_row = malloc((size_t)pome_llm_n_vocab(run->it.llm) * sizeof *run->base_row);
        run->against.divergence = malloc((size_t)run->n_windows * (size_t)run->n_context * sizeof(float));
        if (!run->base_row || !run->against.divergence)
            return fail_here(run, "out of memory");
    }
    if (args->logits_out && !logits_file_create(&run->out, args->logits_out, (int32_t)run->n_context,
                                                (int32_t)pome_llm_n_vocab(run->it.llm), (int32_t)run->n_windows, run->ids,
                                                run->reason, sizeof run->reason))
        return POME_ERR_IO;
    return POME_OK;
}

/* ---- results ---- */

/* Standard error of a mean from the sums of values and squares. */
static double error_of_mean(double sum, double sum2, double n)
{
    double variance = n > 1 ? (sum2 / n - sum / n * (sum / n)) / (n - 1) : 0;
    return variance > 0 ? sqrt(variance) : 0;
}

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

typedef struct divergence_summary {
    double mean, error, median, p99, largest, same_top, ratio, ratio_error, perplexity_base, rms_probability;
} divergence_summary;

static divergence_summary summarize(const run_state *run)
{
    const comparison *c = &run->against;
    divergence_summary s = {0};
    size_t count = (size_t)run->n_scored;
    double n = (double)count, sum = 0, sum2 = 0;
    for (size_t i = 0; i < count; i++) {
        sum += (double)c->divergence[i];
        sum2 += (double)c->divergence[i] * (double)c->divergence[i];
    }
    qsort(c->divergence, count, sizeof *c->divergence, compare_floats);
    s.mean = sum / n;
    s.error = error_of_mean(sum, sum2, n);
    s.median = (double)c->divergence[count / 2];
    s.p99 = (double)c->divergence[(size_t)(0.99 * (n - 1))];
    s.largest = (double)c->divergence[count - 1];
    s.same_top = (double)c->n_same_top / n;
    s.ratio = exp(c->difference / n);
    s.ratio_error = s.ratio * error_of_mean(c->difference, c->difference2, n);
    s.perplexity_base = exp(c->nll_base / n);
    s.rms_probability = sqrt(c->probability2 / n);
    return s;
}

static const char *const numerics_names[] = {"exact", "fast", "fp16"};

/* JSON has no infinity, and a perplexity can be too large for a double. */
static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *divergence_json(const run_state *run)
{
    divergence_summary s = summarize(run);
    json_t *base = run->args->compare ? json_text(run->args->compare) : json_string(numerics_names[run->args->against - 1]);
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:f, s:o, s:o, s:o, s:f}", "base", base, "kl_mean", number(s.mean),
                     "kl_stderr", number(s.error), "kl_median", number(s.median), "kl_p99", number(s.p99), "kl_max",
                     number(s.largest), "top1_agreement", s.same_top, "perplexity_base", number(s.perplexity_base),
                     "perplexity_ratio", number(s.ratio), "perplexity_ratio_stderr", number(s.ratio_error),
                     "probability_rms", s.rms_probability);
}

static int report(const run_state *run, const char *model, double seconds)
{
    const perplexity_args *args = run->args;
    double n = (double)run->n_scored, perplexity = exp(run->nll / n);
    double error = perplexity * error_of_mean(run->nll, run->nll2, n);
    bool is_complete = run->n_windows_done == run->n_windows;
    if (args->common.json) {
        json_t *o = json_pack("{s:o, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:f, s:f}", "model", json_text(model),
                              "numerics", numerics_names[args->common.numerics], "is_complete", is_complete, "tokens",
                              (json_int_t)run->n_ids, "context", (json_int_t)run->n_context, "stride",
                              (json_int_t)args->stride, "windows", (json_int_t)run->n_windows_done, "scored",
                              (json_int_t)run->n_scored, "perplexity", number(perplexity), "perplexity_stderr", number(error), "nll",
                              run->nll / n, "seconds", seconds);
        if (run->base_row)
            json_object_set_new(o, "divergence", divergence_json(run));
        return print_json(o);
    }
    printf("perplexity %.4f ± %.4f  (%lld token%s scored in %lld window%s of %lld, numerics %s, %.1f s)\n", perplexity, error,
           (long long)run->n_scored, run->n_scored == 1 ? "" : "s", (long long)run->n_windows_done,
           run->n_windows_done == 1 ? "" : "s", (long long)run->n_context, numerics_names[args->common.numerics], seconds);
    if (run->base_row) {
        divergence_summary s = summarize(run);
        printf("against %s: perplexity %.4f, ratio %.5f ± %.5f\n",
               args->compare ? args->compare : numerics_names[args->against - 1], s.perplexity_base, s.ratio, s.ratio_error);
        printf("  KL divergence  mean %.6f ± %.6f, median %.6f, 99 %% %.6f, largest %.6f\n", s.mean, s.error, s.median, s.p99,
               s.largest);
        printf("  same top token %.3f %%, rms difference of the token's probability %.3f %%\n", 100 * s.same_top,
               100 * s.rms_probability);
    }
    if (!is_complete)
        printf("interrupted after %lld of %lld windows\n", (long long)run->n_windows_done, (long long)run->n_windows);
    return finish_output(0);
}

/* ---- the verb ---- */

static int measure(run_state *run, const char *model, const char *text)
{
    pome_error err = {0};
    pome_status status = prepare(run, model, text, &err);
    if (status == POME_OK) {
        cancellable[0] = run->it.session;
        cancellable[1] = run->base.session;
        interrupt_catch(cancel, NULL);
        status = score_text(run, &err);
        interrupt_release();
        cancellable[0] = cancellable[1] = NULL;
    }
    if (status != POME_OK && !interrupt_happened())
        return run->reason[0] ? fail_text("%s", run->reason) : fail_with(&err);
    if (run->out.file && status == POME_OK && !logits_file_finish(&run->out, run->reason, sizeof run->reason))
        return fail_text("%s", run->reason);
    int exit_status = run->n_scored > 0 ? report(run, model, now_s() - run->begin_s) : 0;
    return interrupt_happened() ? EXIT_INTERRUPTED : exit_status;
}

static int check_args(const perplexity_args *args, int n_operands)
{
    const char *what = NULL;
    if (n_operands < 2 && !args->compare)
        what = "no text: give a file after the model, or - for standard input";
    else if (args->compare && args->against)
        what = "--compare and --against exclude each other";
    else if (args->stride && (args->compare || args->logits_out))
        what = "stored runs have windows of their own: no --stride with --logits-out or --compare";
    else if (args->against && args->against - 1 == args->common.numerics)
        what = "--against names the numerics of the run itself: nothing would differ";
    if (what)
        fprintf(stderr, "pome perplexity: %s\n", what);
    return what ? EXIT_USAGE : 0;
}

static int run(void *opaque, const char **operands, int n_operands)
{
    perplexity_args *args = opaque;
    int status = check_args(args, n_operands);
    if (status)
        return status;
    run_state *state = calloc(1, sizeof *state);
    if (!state)
        return fail_text("out of memory");
    state->args = args;
    status = measure(state, operands[0], n_operands > 1 ? operands[1] : NULL);
    close_engine(&state->it);
    close_engine(&state->base);
    pome_tokenizer_close(&state->tokenizer);
    logits_file_close(&state->out);
    logits_file_close(&state->in);
    free(state->ids);
    free(state->base_row);
    free(state->against.divergence);
    free(state);
    return status;
}

const verb verb_perplexity = {
    .name = "perplexity",
    .summary = "how well a model predicts a text",
    .operands = "MODEL [TEXT]",
    .description =
        "Computes the perplexity of a language model over a text, to compare numerics and quantizations. Without --stride "
        "the text is cut into windows that know nothing of each other; the second half of each is scored, as llama.cpp's "
        "tool does, and a rest shorter than a window is left out. With --stride N windows overlap and each token is "
        "scored once, with as much before it as fits (where windows just touch, all but their first tokens).\n\n"
        "--logits-out and --compare store and read log probabilities in the format of that tool (16 bits per token of the "
        "vocabulary and position), so runs of either can be compared: Kullback-Leibler divergence from the stored run, "
        "share of equal most likely tokens, ratio of perplexities. --against does it for two numerics at once without a "
        "file.",
    .options = options,
    .examples = examples,
    .n_operands_min = 1,
    .n_operands_max = 2,
    .args_size = sizeof(perplexity_args),
    .set_defaults = set_defaults,
    .run = run,
};
