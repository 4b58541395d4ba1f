/* `pome bench`: measures loading, prefill and decoding, and what the machine could do at most. */
#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "input.h"
#include "llm_open.h"
#include "verbs.h"

static void set_defaults(void *opaque)
{
    bench_args *args = opaque;
    args->common.numerics = POME_NUMERICS_FAST;
    args->prompt_lengths = "1,64,512,2048";
    args->contexts = "0,512,2048";
    args->n_tokens = 32;
    args->repetitions = 5;
    args->row_seconds = 60;
}

#define AT(member) offsetof(bench_args, member)
static const option options[] = {
    {"prompt-lengths", 'p', "n-prompt", OPTION_TEXT, "N,...", AT(prompt_lengths), 0, 0, false,
     "Prompts to feed, in tokens; 0: none (1,64,512,2048)"},
    {"tokens", 'n', "n-gen", OPTION_INT, "N", AT(n_tokens), 0, 1e6, false,
     "Tokens to decode per repetition; 0: do not decode (32)"},
    {"contexts", 'd', "n-depth", OPTION_TEXT, "N,...", AT(contexts), 0, 0, false,
     "Tokens in the cache when decoding begins (0,512,2048)"},
    {"repetitions", 'r', NULL, OPTION_INT, "N", AT(repetitions), 1, BENCH_REPETITIONS_MAX, false, "Repetitions (5)"},
    {"row-seconds", 0, NULL, OPTION_REAL, "S", AT(row_seconds), 0, 1e6, false,
     "Begin no further repetition of a row after so many seconds (60)"},
    {"keep-cache", 0, NULL, OPTION_FLAG, NULL, AT(keep_cache), 0, 0, false,
     "Leave the model's files in the page cache before the first load"},
    {"no-limits", 0, NULL, OPTION_FLAG, NULL, AT(no_limits), 0, 0, false,
     "Do not measure what memory and arithmetic can do at most"},
    {"profile", 0, NULL, OPTION_FLAG, NULL, AT(profile), 0, 0, false,
     "Show where the time goes: operators and fused groups of each row"},
    {"profile-html", 0, NULL, OPTION_TEXT, "FILE", AT(profile_html), 0, 0, false, "Write that as a page with pictures"},
    {"csv", 0, NULL, OPTION_FLAG, NULL, AT(csv), 0, 0, false, "Write the result as CSV"},
    OPTIONS_LLM(bench_args, llm),
    {"context", 0, NULL, OPTION_INT, "N", AT(context), 0, 1e9, true, "Hold N tokens at most; only lowers the model's limit"},
    OPTIONS_ENGINE(bench_args, "fast"),
    OPTIONS_OUTPUT(bench_args),
    {0},
};

static const char *const examples[] = {
    "pome bench model.mlpackage", "the whole table",
    "pome bench model.mlpackage -p 512 -d 0 -r 10", "prefill 512 and decode from an empty cache, ten times",
    "pome bench model.mlpackage -p 512 -d 512 -r 1 --profile", "which operators take the time",
    "pome bench model.mlpackage --csv >> results.csv", "for later comparison", NULL,
};

/* ---- state of a run ---- */

typedef struct bench {
    bench_args *args;
    bench_result *r;
    common_args quiet; /* for opening the model again and again */
    pome_model_set *models;
    pome_llm *llm;
    pome_llm_session *session;
    pome_llm_session *volatile cancellable; /* for the signal handler */
    char *path;   /* of the package, as the model gives it */
    int32_t *ids; /* [n_context] fed in this order */
    bool has_shown;
} bench;

static void cancel(void *arg)
{
    bench *b = arg;
    pome_llm_session *session = b->cancellable;
    if (session)
        pome_llm_session_cancel(session);
}

static void progress(bench *b, const char *what, int64_t i, int64_t n)
{
    if (b->args->common.quiet || !isatty(STDERR_FILENO))
        return;
    fprintf(stderr, "\r%s", what);
    if (n > 1)
        fprintf(stderr, "  %lld/%lld", (long long)i, (long long)n);
    fprintf(stderr, "\033[K");
    b->has_shown = true;
}

static void end_progress(bench *b)
{
    if (b->has_shown)
        fputs("\r\033[K", stderr);
    b->has_shown = false;
}

/* A line "Name:  N kB" of /proc/self/status. */
static uint64_t status_bytes(const char *name)
{
    char line[256];
    unsigned long long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':')
            kib = strtoull(line + strlen(name) + 1, NULL, 10);
    if (f)
        fclose(f);
    return kib * 1024;
}

static void note_memory(bench_result *r)
{
    uint64_t anon = status_bytes("RssAnon"), peak = status_bytes("VmHWM");
    r->peak_anon_bytes = anon > r->peak_anon_bytes ? anon : r->peak_anon_bytes;
    r->peak_bytes = peak > r->peak_bytes ? peak : r->peak_bytes;
}

/* ---- the machine's limits ---- */

static bool read_whole(int fd, void *to, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = read(fd, (char *)to + done, size - done);
        if (n < 0 && errno == EINTR && !interrupt_happened())
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* In a process of its own, so that the large buffer does not count as this one's memory. No thread runs meanwhile. */
static void measure_limits(bench *b)
{
    int ends[2];
    pome_machine_limits found;
    if (b->args->no_limits || b->r->n_limits == BENCH_LIMITS_MAX || pipe(ends) != 0)
        return;
    progress(b, "read bandwidth and integer peak", 0, 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        interrupt_release(); /* it is not asked to stop, it ends */
        bool is_done = pome_machine_measure(&found, (int)b->args->common.threads, 1.0, NULL) == POME_OK &&
                       write(ends[1], &found, sizeof found) == (ssize_t)sizeof found;
        _exit(is_done ? 0 : 1);
    }
    close(ends[1]);
    if (child > 0 && read_whole(ends[0], &found, sizeof found))
        b->r->limits[b->r->n_limits++] = found;
    else if (!interrupt_happened())
        note(&b->args->common, "the machine's limits could not be measured");
    close(ends[0]);
    if (child > 0)
        waitpid(child, NULL, 0);
}

/* ---- loading ---- */

static void close_model(bench *b)
{
    b->cancellable = NULL;
    pome_llm_session_destroy(&b->session);
    pome_llm_close(&b->llm);
    pome_model_set_close(&b->models);
}

static pome_status open_session(bench *b, pome_error *err)
{
    pome_status status = open_llm(&b->llm, b->models, &b->args->llm, b->args->context, err);
    if (status == POME_OK)
        status = pome_llm_session_create(&b->session, b->llm, err);
    b->cancellable = b->session;
    return status;
}

/* Until everything for feeding is there, then the first token. */
static pome_status load(bench *b, bench_load *took, pome_error *err)
{
    const float *logits;
    close_model(b);
    double start = now_s();
    pome_status status = open_models(&b->models, b->path, &b->quiet, err);
    if (status == POME_OK)
        status = open_session(b, err);
    double ready = now_s();
    if (status == POME_OK)
        status = pome_llm_session_feed(b->session, b->ids, 1, &logits, err);
    *took = (bench_load){ready - start, now_s() - ready};
    return status;
}

/* Learns what the model is, then lets go of it: nothing of this is measured. */
static pome_status look_at_model(bench *b, const char *path, pome_error *err)
{
    bench_result *r = b->r;
    pome_status status = open_models(&b->models, path, &b->args->common, err);
    if (status == POME_OK)
        status = open_session(b, err);
    if (status == POME_OK) {
        uint32_t n_models = pome_model_set_count(b->models);
        r->n_context = pome_llm_n_context(b->llm);
        r->n_vocab = pome_llm_n_vocab(b->llm);
        for (uint32_t i = 0; i < n_models; i++)
            r->weights_bytes += pome_model_describe(pome_model_set_model(b->models, i))->weights_bytes;
        snprintf(r->contract, sizeof r->contract, "%s", pome_llm_describe(b->llm));
        b->path = strdup(n_models > 1 ? path : pome_model_describe(pome_model_set_model(b->models, 0))->path);
        b->ids = malloc((size_t)r->n_context * sizeof *b->ids);
    }
    close_model(b);
    b->quiet = b->args->common; /* warnings were shown */
    b->quiet.quiet = true;
    if (status == POME_OK && (!b->path || !b->ids)) {
        snprintf(err->message, sizeof err->message, "out of memory");
        return POME_ERR_NOMEM;
    }
    for (int64_t i = 0; status == POME_OK && i < r->n_context; i++)
        b->ids[i] = (int32_t)((uint64_t)(i + 1) * 2654435761u % (uint64_t)r->n_vocab);
    r->path = b->path;
    return status;
}

static pome_status measure_loads(bench *b, pome_error *err)
{
    bench_result *r = b->r;
    size_t n = (size_t)b->args->repetitions;
    r->later = calloc(n, sizeof *r->later);
    if (!r->later)
        return POME_ERR_NOMEM;
    progress(b, "first load", 0, 0);
    r->first_cached_share = drop_page_cache(b->path, !b->args->keep_cache);
    pome_status status = load(b, &r->first, err);
    double start = now_s();
    for (size_t i = 0; i < n && status == POME_OK && !interrupt_happened(); i++) {
        if (i > 0 && now_s() - start > b->args->row_seconds)
            break;
        progress(b, "later load", (int64_t)i + 1, (int64_t)n);
        status = load(b, &r->later[i], err);
        r->n_later += status == POME_OK;
    }
    note_memory(r);
    return status;
}

/* ---- rows ---- */

static pome_status prepare_repetition(bench *b, const bench_row *row, pome_error *err)
{
    const float *logits;
    if (row->is_decode && row->at_context > 0)
        return pome_llm_session_feed(b->session, b->ids, row->at_context, &logits, err);
    pome_llm_session_clear(b->session);
    return POME_OK;
}

static pome_status run_repetition(bench *b, const bench_row *row, pome_error *err)
{
    const float *logits;
    if (!row->is_decode)
        return pome_llm_session_feed(b->session, b->ids, row->n_tokens, &logits, err);
    for (int64_t i = 0; i < row->n_tokens; i++) {
        pome_status status = pome_llm_session_append(b->session, b->ids + row->at_context + i, 1, &logits, err);
        if (status != POME_OK)
            return status;
    }
    return POME_OK;
}

static bool keep_profile(profiled_run *to, const pome_profile *profile, double wall_s)
{
    size_t n = pome_profile_n_steps(profile);
    *to = (profiled_run){.steps = calloc(n + 1, sizeof *to->steps), .n_passes = pome_profile_n_runs(profile),
                         .wall_s = wall_s, .passes_s = pome_profile_seconds(profile)};
    for (size_t i = 0; to->steps && i < n; i++) {
        const pome_profile_step *step = pome_profile_step_at(profile, i);
        if (step->seconds <= 0 && step->n_runs == 0)
            continue;
        profiled_step *kept = &to->steps[to->n_steps];
        *kept = (profiled_step){.op = step->op, .name = strdup(step->name), .n_runs = step->n_runs, .weights_bytes =
                                step->weights_bytes, .n_ops = step->n_ops, .seconds = step->seconds};
        if (!kept->name)
            return false;
        to->n_steps++;
    }
    return to->steps != NULL;
}

/* One repetition; its time, and where it went if that is wanted. */
static pome_status time_repetition(bench *b, bench_row *row, bool is_profiled, double *seconds, pome_error *err)
{
    pome_profile *profile = NULL;
    pome_status status = prepare_repetition(b, row, err);
    if (status == POME_OK && is_profiled)
        status = pome_profile_create(&profile, err);
    if (status == POME_OK && is_profiled)
        status = pome_llm_session_profile(b->session, profile, err);
    double start = now_s();
    if (status == POME_OK)
        status = run_repetition(b, row, err);
    *seconds = now_s() - start;
    if (status == POME_OK && is_profiled && !keep_profile(&row->profile, profile, *seconds))
        status = POME_ERR_NOMEM;
    if (is_profiled && b->session && pome_llm_session_profile(b->session, NULL, NULL) != POME_OK)
        status = POME_ERR_STATE; /* ending it takes nothing */
    pome_profile_destroy(&profile);
    return status;
}

enum { LONG_S = 1 }; /* a repetition that takes longer is not disturbed by being profiled */

static pome_status measure_row(bench *b, bench_row *row, double expected_s, pome_error *err)
{
    const bench_args *args = b->args;
    char title[64];
    double start = now_s(), seconds = 0, joules = 0;
    int64_t n = args->repetitions;
    bench_row_title(row, title, sizeof title);
    row->joules = -1;
    row->seconds = calloc((size_t)n, sizeof *row->seconds);
    if (!row->seconds)
        return POME_ERR_NOMEM;
    pome_status status = POME_OK;
    if (expected_s < args->row_seconds / 4) {
        progress(b, title, 0, 0);
        status = time_repetition(b, row, false, &expected_s, err); /* warm-up */
    }
    bool has_energy = true;
    for (int64_t i = 0; i < n && status == POME_OK && !interrupt_happened(); i++) {
        bool is_last = i + 1 == n || now_s() - start + expected_s > args->row_seconds;
        progress(b, title, i + 1, n);
        has_energy = energy_start(&b->r->energy) && has_energy;
        status = time_repetition(b, row, is_last && expected_s > LONG_S, &seconds, err);
        double used = 0;
        has_energy = has_energy && energy_read(&b->r->energy, &used);
        joules += used;
        if (status != POME_OK)
            break;
        row->seconds[row->n++] = expected_s = seconds;
        if (is_last)
            break;
    }
    if (status == POME_OK && !interrupt_happened() && row->profile.n_steps == 0)
        status = time_repetition(b, row, true, &seconds, err);
    row->joules = has_energy ? joules : -1;
    note_memory(b->r);
    return status;
}

static bool has_row(const bench_result *r, const bench_row *row)
{
    for (size_t i = 0; i < r->n_rows; i++)
        if (r->rows[i].is_decode == row->is_decode && r->rows[i].n_tokens == row->n_tokens &&
            r->rows[i].at_context == row->at_context)
            return true;
    return false;
}

static bool add_row(bench *b, bench_row row, int64_t wanted, int64_t got)
{
    bench_result *r = b->r;
    if (wanted != got)
        note(&b->args->common, "%s %lld is cut to %lld: the context holds %lld tokens",
             row.is_decode ? "decoding at" : "a prompt of", (long long)wanted, (long long)got, (long long)r->n_context);
    if (!has_row(r, &row) && r->n_rows < BENCH_ROWS_MAX)
        r->rows[r->n_rows++] = row;
    return r->n_rows < BENCH_ROWS_MAX;
}

static void plan_rows(bench *b, const int32_t *lengths, size_t n_lengths, const int32_t *contexts, size_t n_contexts)
{
    int64_t n_context = b->r->n_context, n = b->args->n_tokens < n_context ? b->args->n_tokens : n_context;
    for (size_t i = 0; i < n_lengths; i++) {
        int64_t length = lengths[i] < n_context ? lengths[i] : n_context;
        if (length > 0 && !add_row(b, (bench_row){.n_tokens = length}, lengths[i], length))
            return;
    }
    for (size_t i = 0; i < n_contexts && n > 0; i++) {
        int64_t at = contexts[i] < n_context - n ? contexts[i] : n_context - n;
        if (!add_row(b, (bench_row){.is_decode = true, .n_tokens = n, .at_context = at}, contexts[i], at))
            return;
    }
}

static pome_status measure_rows(bench *b, pome_error *err)
{
    bench_result *r = b->r;
    double token_s = r->n_later ? r->later[r->n_later - 1].first_token_s : r->first.first_token_s, prefill_s = token_s;
    for (size_t i = 0; i < r->n_rows; i++) {
        bench_row *row = &r->rows[i];
        double expected_s = (double)row->n_tokens * (row->is_decode ? token_s : prefill_s);
        if (interrupt_happened())
            return POME_ERR_CANCELLED;
        pome_status status = measure_row(b, row, expected_s, err);
        if (status != POME_OK)
            return status;
        if (!row->is_decode && row->n > 0)
            prefill_s = row->seconds[row->n - 1] / (double)row->n_tokens;
    }
    return interrupt_happened() ? POME_ERR_CANCELLED : POME_OK;
}

/* ---- the verb ---- */

static pome_status measure(bench *b, const char *path, pome_error *err)
{
    measure_limits(b);
    pome_status status = interrupt_happened() ? POME_ERR_CANCELLED : look_at_model(b, path, err);
    if (status == POME_OK) {
        int32_t *lengths = NULL, *contexts = NULL;
        size_t n_lengths = 0, n_contexts = 0;
        char reason[128];
        if (parse_ids(b->args->prompt_lengths, &lengths, &n_lengths, reason, sizeof reason) &&
            parse_ids(b->args->contexts, &contexts, &n_contexts, reason, sizeof reason))
            plan_rows(b, lengths, n_lengths, contexts, n_contexts);
        free(lengths);
        free(contexts);
        status = measure_loads(b, err);
    }
    if (status == POME_OK)
        status = measure_rows(b, err);
    close_model(b);
    if (status == POME_OK)
        measure_limits(b);
    end_progress(b);
    return status;
}

static int report(bench *b)
{
    const bench_args *args = b->args;
    bench_result *r = b->r;
    if (args->profile_html && r->is_complete && !profile_write_html(r, args->profile_html))
        return fail_text("%s: %s", args->profile_html, strerror(errno));
    if (args->common.json)
        return print_json(bench_json(r));
    if (args->csv)
        bench_print_csv(r);
    else
        bench_print_table(r);
    for (size_t i = 0; args->profile && !args->csv && i < r->n_rows; i++)
        if (r->rows[i].profile.n_steps > 0)
            profile_print(r, &r->rows[i]);
    return finish_output(0);
}

static void reset_result(bench_result *r)
{
    for (size_t i = 0; i < r->n_rows; i++) {
        for (size_t k = 0; k < r->rows[i].profile.n_steps; k++)
            free(r->rows[i].profile.steps[k].name);
        free(r->rows[i].profile.steps);
        free(r->rows[i].seconds);
    }
    free(r->later);
    free(r);
}

static int check_list(const char *option_name, const char *text)
{
    char reason[128];
    int32_t *values = NULL;
    size_t n = 0;
    bool is_good = parse_ids(text, &values, &n, reason, sizeof reason);
    if (!is_good)
        fprintf(stderr, "pome bench: --%s: '%s' is no list of numbers such as 0,512\n", option_name, text);
    free(values);
    return is_good ? 0 : EXIT_USAGE;
}

static int check_args(const bench_args *args)
{
    if (args->csv && args->common.json) {
        fprintf(stderr, "pome bench: --json and --csv exclude each other\n");
        return EXIT_USAGE;
    }
    int status = check_list("prompt-lengths", args->prompt_lengths);
    return status ? status : check_list("contexts", args->contexts);
}

static int run(void *opaque, const char **operands, int n_operands)
{
    bench_args *args = opaque;
    pome_error err = {0};
    (void)n_operands;
    int exit_status = check_args(args);
    if (exit_status)
        return exit_status;
    bench b = {.args = args, .r = calloc(1, sizeof *b.r)};
    if (!b.r)
        return fail_text("out of memory");
    b.r->args = args;
    if (args->profile_html && !profile_can_write(args->profile_html)) { /* not after minutes of measuring */
        exit_status = fail_text("--profile-html %s: %s", args->profile_html, strerror(errno));
        free(b.r);
        return exit_status;
    }
    pome_machine_describe(&b.r->machine);
    b.r->n_threads = args->common.threads > 0 ? (int)args->common.threads : b.r->machine.n_threads;
    energy_open(&b.r->energy, "/sys/class/powercap");
    interrupt_catch(cancel, &b);
    pome_status status = measure(&b, operands[0], &err);
    b.r->is_complete = status == POME_OK;
    interrupt_release();
    if (status != POME_OK && !interrupt_happened())
        exit_status = status == POME_ERR_NOMEM && !err.message[0] ? fail_text("out of memory") : fail_with(&err);
    else if (b.r->n_later > 0) /* also what was measured until the interruption */
        exit_status = report(&b);
    if (interrupt_happened())
        exit_status = EXIT_INTERRUPTED;
    reset_result(b.r);
    free(b.path);
    free(b.ids);
    return exit_status;
}

const verb verb_bench = {
    .name = "bench",
    .summary = "load time, speed, memory",
    .operands = "MODEL",
    .description =
        "Measures how long a language model takes to load, how fast it reads prompts (prefill) and writes (decode), and "
        "how much memory it takes. Beside the speeds stands the share of what the machine could do at most, measured in "
        "the same run: for decoding the bytes of weights per token against the read bandwidth, for prefill the "
        "multiplications and additions against the peak of 8-bit integer arithmetic.\n\n"
        "The first load comes after asking the system to drop the model's files from its page cache; what remained is "
        "reported. Time to first token is that of a prompt of one token after loading. Ctrl-C shows what was measured so far.",
    .options = options,
    .examples = examples,
    .n_operands_min = 1,
    .n_operands_max = 1,
    .args_size = sizeof(bench_args),
    .set_defaults = set_defaults,
    .run = run,
};
