/* The results of `pome bench` as tables, JSON and CSV. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"

/* ---- numbers ---- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

statistics statistics_of(const double *values, size_t n)
{
    statistics s = {.n = n};
    double sorted[BENCH_REPETITIONS_MAX], squares = 0;
    n = n < BENCH_REPETITIONS_MAX ? n : BENCH_REPETITIONS_MAX;
    if (n == 0)
        return s;
    for (size_t i = 0; i < n; i++)
        s.mean += (sorted[i] = values[i]) / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (values[i] - s.mean) * (values[i] - s.mean);
    s.stdev = n > 1 ? sqrt(squares / (double)(n - 1)) : 0;
    qsort(sorted, n, sizeof sorted[0], compare_doubles);
    s.median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
    return s;
}

static statistics tokens_per_s(const bench_row *row)
{
    double rates[BENCH_REPETITIONS_MAX];
    for (size_t i = 0; i < row->n; i++)
        rates[i] = (double)row->n_tokens / row->seconds[i];
    return statistics_of(rates, row->n);
}

static statistics loads_ms(const bench_result *r, bool first_tokens)
{
    double ms[BENCH_REPETITIONS_MAX];
    for (size_t i = 0; i < r->n_later; i++)
        ms[i] = 1e3 * (first_tokens ? r->later[i].first_token_s : r->later[i].ready_s);
    return statistics_of(ms, r->n_later);
}

double bench_read_limit(const bench_result *r)
{
    double best = 0;
    for (int i = 0; i < r->n_limits; i++)
        best = fmax(best, r->limits[i].read_bytes_per_s);
    return best;
}

double bench_int8_limit(const bench_result *r)
{
    double best = 0;
    for (int i = 0; i < r->n_limits; i++)
        best = fmax(best, r->limits[i].int8_ops_per_s);
    return best;
}

double bench_row_weights_bytes(const bench_row *row)
{
    double sum = 0;
    for (size_t i = 0; i < row->profile.n_steps; i++)
        sum += (double)row->profile.steps[i].weights_bytes;
    return sum;
}

double bench_row_ops(const bench_row *row)
{
    double sum = 0;
    for (size_t i = 0; i < row->profile.n_steps; i++)
        sum += (double)row->profile.steps[i].n_ops;
    return sum;
}

/* Part of the limit that the median repetition reached; < 0: not known. */
static double limit_share(const bench_result *r, const bench_row *row)
{
    double limit = row->is_decode ? bench_read_limit(r) : bench_int8_limit(r);
    double work = row->is_decode ? bench_row_weights_bytes(row) : bench_row_ops(row);
    statistics s = statistics_of(row->seconds, row->n);
    return limit > 0 && work > 0 && s.median > 0 ? work / s.median / limit : -1;
}

static double joules_per_token(const bench_row *row)
{
    return row->joules >= 0 && row->n > 0 ? row->joules / ((double)row->n * (double)row->n_tokens) : -1;
}

static double watts(const bench_row *row)
{
    double seconds = 0;
    for (size_t i = 0; i < row->n; i++)
        seconds += row->seconds[i];
    return row->joules >= 0 && seconds > 0 ? row->joules / seconds : -1;
}

void bench_row_title(const bench_row *row, char *text, size_t size)
{
    if (row->is_decode)
        snprintf(text, size, "decode at %lld", (long long)row->at_context);
    else
        snprintf(text, size, "prefill %lld", (long long)row->n_tokens);
}

static const char *numerics_name(const bench_result *r)
{
    static const char *const names[] = {"exact", "fast", "fp16"};
    return names[r->args->common.numerics];
}

/* ---- tables ---- */

enum { COLUMNS_MAX = 8, LINES_MAX = BENCH_ROWS_MAX + 2, CELL_SIZE = 48 };

/* Markdown, padded so that it can be read as it is. The first line is the head; all columns but the first are numbers. */
typedef struct table {
    char cell[LINES_MAX][COLUMNS_MAX][CELL_SIZE];
    int n_lines, n_columns;
} table;

static void add_line(table *t)
{
    if (t->n_lines < LINES_MAX)
        t->n_lines++;
    t->n_columns = 0;
}

static void add_cell(table *t, const char *fmt, ...) POME_PRINTF(2, 3);
static void add_cell(table *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (t->n_columns < COLUMNS_MAX)
        vsnprintf(t->cell[t->n_lines - 1][t->n_columns++], CELL_SIZE, fmt, ap);
    va_end(ap);
}

/* Columns on the terminal; "±" takes two bytes. */
static int width_of(const char *text)
{
    int n = 0;
    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void print_dashes(int n)
{
    while (n-- > 0)
        putchar('-');
}

static void print_table(const table *t)
{
    int width[COLUMNS_MAX] = {0};
    for (int i = 0; i < t->n_lines; i++)
        for (int k = 0; k < t->n_columns; k++)
            width[k] = width_of(t->cell[i][k]) > width[k] ? width_of(t->cell[i][k]) : width[k];
    for (int i = 0; i < t->n_lines; i++) {
        for (int k = 0; k < t->n_columns; k++) {
            const char *text = t->cell[i][k];
            int pad = width[k] - width_of(text);
            printf("| %*s%s%*s ", k ? pad : 0, "", text, k ? 0 : pad, "");
        }
        puts("|");
        for (int k = 0; i == 0 && k < t->n_columns; k++) {
            fputs(k ? "|-" : "|:", stdout);
            print_dashes(width[k]);
            fputs(k ? ":" : "-", stdout);
        }
        if (i == 0)
            puts("|");
    }
}

static void add_share(table *t, double share)
{
    if (share >= 0)
        add_cell(t, "%.1f %%", 100 * share);
    else
        add_cell(t, "-");
}

static void add_seconds(table *t, double seconds)
{
    if (seconds < 0.9995)
        add_cell(t, "%.*f ms", seconds < 0.01 ? 2 : seconds < 0.1 ? 1 : 0, 1e3 * seconds);
    else
        add_cell(t, "%.2f s", seconds);
}

static const bench_row *best_decode(const bench_result *r)
{
    const bench_row *best = NULL;
    for (size_t i = 0; i < r->n_rows; i++)
        if (r->rows[i].is_decode && r->rows[i].n > 0 && (!best || r->rows[i].at_context < best->at_context))
            best = &r->rows[i];
    return best;
}

/* One line in the form that results for other runners are given in. */
static void print_summary(const bench_result *r)
{
    table *t = calloc(1, sizeof *t);
    const bench_row *decode = best_decode(r);
    if (!t)
        return;
    add_line(t);
    add_cell(t, "Variant");
    add_cell(t, "1st Load Time");
    add_cell(t, "2nd+ Load Time");
    add_cell(t, "First Token");
    add_cell(t, "Tokens/s");
    add_cell(t, "Peak Memory");
    add_cell(t, "Power");
    add_line(t);
    add_cell(t, "%.*s", CELL_SIZE - 1, r->machine.cpu[0] ? r->machine.cpu : r->machine.level);
    add_seconds(t, r->first.ready_s);
    add_seconds(t, loads_ms(r, false).median / 1e3);
    add_seconds(t, loads_ms(r, true).median / 1e3);
    if (decode)
        add_cell(t, "%.2f ± %.2f", tokens_per_s(decode).mean, tokens_per_s(decode).stdev);
    else
        add_cell(t, "-");
    add_cell(t, "%.0f MB", (double)r->peak_bytes / 1e6);
    if (decode && watts(decode) >= 0)
        add_cell(t, "%.1f W", watts(decode));
    else
        add_cell(t, "-");
    print_table(t);
    free(t);
}

static void print_rows(const bench_result *r)
{
    table *t = calloc(1, sizeof *t);
    bool has_energy = r->energy.n_packages > 0;
    if (!t)
        return;
    add_line(t);
    add_cell(t, "Test");
    add_cell(t, "Tokens/s");
    add_cell(t, "Median");
    add_cell(t, "Runs");
    add_cell(t, "Of the limit");
    if (has_energy)
        add_cell(t, "J/token");
    for (size_t i = 0; i < r->n_rows; i++) {
        char title[64];
        const bench_row *row = &r->rows[i];
        statistics s = tokens_per_s(row);
        if (row->n == 0)
            continue;
        bench_row_title(row, title, sizeof title);
        add_line(t);
        add_cell(t, "%s", title);
        add_cell(t, "%.2f ± %.2f", s.mean, s.stdev);
        add_cell(t, "%.2f", s.median);
        add_cell(t, "%zu", s.n);
        add_share(t, limit_share(r, row));
        if (has_energy)
            add_cell(t, "%.3f", joules_per_token(row));
    }
    if (t->n_lines > 1)
        print_table(t);
    free(t);
}

void bench_print_table(const bench_result *r)
{
    const bench_row *decode = best_decode(r);
    printf("%s\n%s\n", r->path, r->contract);
    printf("%s, level %s, %d thread%s, numerics %s\n", r->machine.cpu[0] ? r->machine.cpu : "processor without a name",
           r->machine.level, r->n_threads, r->n_threads == 1 ? "" : "s", numerics_name(r));
    for (int i = 0; i < r->n_limits; i++)
        printf("limits %s: read %.2f GB/s, int8 %.3f TOPS (%s)\n", i ? "after" : "before",
               r->limits[i].read_bytes_per_s / 1e9, r->limits[i].int8_ops_per_s / 1e12, r->limits[i].int8_name);
    putchar('\n');
    print_summary(r);
    putchar('\n');
    print_rows(r);
    putchar('\n');
    if (r->first_cached_share < 0)
        printf("first load: what the page cache held is not known\n");
    else if (r->args->keep_cache)
        printf("first load: page cache left as it was, %.0f %% of the package in it\n", 100 * r->first_cached_share);
    else if (r->first_cached_share > 0.05)
        printf("first load: the page cache could not be dropped, %.0f %% of the package stayed in it\n",
               100 * r->first_cached_share);
    else
        printf("first load: page cache dropped; first token after it %.3f s\n", r->first.first_token_s);
    printf("memory: peak %.1f MB resident, of it at most %.1f MB not from files; weight files %.1f MB\n",
           (double)r->peak_bytes / 1e6, (double)r->peak_anon_bytes / 1e6, (double)r->weights_bytes / 1e6);
    if (decode && bench_row_weights_bytes(decode) > 0)
        printf("limit of decoding: %.1f MB of weights per token over the read bandwidth; of prefill: operations over the "
               "integer peak\n", bench_row_weights_bytes(decode) / (double)decode->n_tokens / 1e6);
    if (r->energy.n_packages == 0)
        printf("energy: %s\n", r->energy.reason);
    if (!r->is_complete)
        printf("interrupted: what is missing was not measured\n");
}

/* ---- JSON ---- */

static json_t *number_or_null(double value)
{
    return value >= 0 && isfinite(value) ? json_real(value) : json_null();
}

static json_t *seconds_json(const double *seconds, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_real(seconds[i]));
    return list;
}

static json_t *machine_json(const bench_result *r)
{
    json_t *reads = json_array();
    for (int i = 0; i < r->n_limits; i++)
        json_array_append_new(reads, json_real(r->limits[i].read_bytes_per_s / 1e9));
    return json_pack("{s:o, s:s, s:i, s:o, s:o, s:o, s:s, s:I, s:I}", "cpu", json_text(r->machine.cpu), "level",
                     r->machine.level, "threads", r->n_threads, "read_gb_per_s",
                     number_or_null(r->n_limits ? bench_read_limit(r) / 1e9 : -1), "int8_tops",
                     number_or_null(r->n_limits ? bench_int8_limit(r) / 1e12 : -1), "read_gb_per_s_each", reads,
                     "int8_instructions", r->n_limits ? r->limits[0].int8_name : "", "cache_bytes",
                     (json_int_t)r->machine.cache_bytes, "memory_bytes", (json_int_t)r->machine.memory_bytes);
}

static json_t *load_json(const bench_result *r)
{
    statistics later = loads_ms(r, false), token = loads_ms(r, true);
    return json_pack("{s:f, s:f, s:o, s:f, s:f, s:f, s:f, s:f, s:f, s:i}", "first_ms", 1e3 * r->first.ready_s,
                     "first_token_after_first_ms", 1e3 * r->first.first_token_s, "first_cached_share",
                     number_or_null(r->first_cached_share), "later_ms", later.median, "later_mean_ms", later.mean,
                     "later_stdev_ms", later.stdev, "first_token_ms", token.median, "first_token_mean_ms", token.mean,
                     "first_token_stdev_ms", token.stdev, "n", (int)later.n);
}

static json_t *row_json(const bench_result *r, const bench_row *row)
{
    statistics s = tokens_per_s(row);
    json_t *o = json_pack("{s:I, s:f, s:f, s:f, s:i, s:o, s:o}", "tokens", (json_int_t)row->n_tokens, "tokens_per_s",
                          s.mean, "stdev", s.stdev, "median", s.median, "n", (int)s.n, "seconds",
                          seconds_json(row->seconds, row->n), "joules_per_token", number_or_null(joules_per_token(row)));
    double share = limit_share(r, row);
    if (row->is_decode) {
        json_object_set_new(o, "at_context", json_integer(row->at_context));
        json_object_set_new(o, "bandwidth_share", number_or_null(share));
        json_object_set_new(o, "weights_bytes_per_token",
                            number_or_null(bench_row_weights_bytes(row) / (double)row->n_tokens));
    } else {
        json_object_set_new(o, "int8_share", number_or_null(share));
        json_object_set_new(o, "ops_per_token", number_or_null(bench_row_ops(row) / (double)row->n_tokens));
    }
    if (r->args->profile && row->profile.n_steps > 0)
        json_object_set_new(o, "profile", profile_json(row));
    return o;
}

static json_t *rows_json(const bench_result *r, bool is_decode)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->n_rows; i++)
        if (r->rows[i].is_decode == is_decode && r->rows[i].n > 0)
            json_array_append_new(list, row_json(r, &r->rows[i]));
    return list;
}

json_t *bench_json(const bench_result *r)
{
    json_t *memory = json_pack("{s:I, s:I, s:I}", "peak_rss_bytes", (json_int_t)r->peak_bytes, "peak_anon_bytes",
                               (json_int_t)r->peak_anon_bytes, "weights_bytes", (json_int_t)r->weights_bytes);
    json_t *energy = json_pack("{s:b, s:s}", "is_available", r->energy.n_packages > 0, "reason", r->energy.reason);
    return json_pack("{s:o, s:o, s:s, s:s, s:b, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "model", json_text(r->path),
                     "contract", json_text(r->contract), "version", pome_version(), "numerics", numerics_name(r),
                     "is_complete", r->is_complete, "context", (json_int_t)r->n_context, "machine", machine_json(r), "load",
                     load_json(r), "prefill", rows_json(r, false), "decode", rows_json(r, true), "memory", memory,
                     "energy", energy);
}

/* ---- CSV ---- */

/* As RFC 4180 wants it. */
static void print_quoted(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"')
            putchar('"');
        putchar(*text);
    }
    putchar('"');
}

static void print_head(const bench_result *r)
{
    char date[32] = "";
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc))
        strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    printf("%s,", date);
    print_quoted(r->path);
    putchar(',');
    print_quoted(r->machine.cpu);
    printf(",%s,%d,%s,", r->machine.level, r->n_threads, numerics_name(r));
}

static void print_one(const bench_result *r, const char *test, const char *unit, double value)
{
    print_head(r);
    printf("%s,,,1,%.9g,0,%.9g,%s,,\n", test, value, value, unit);
}

static void print_statistics(const bench_result *r, const char *test, const char *unit, statistics s)
{
    print_head(r);
    printf("%s,,,%zu,%g,%g,%g,%s,,\n", test, s.n, s.mean, s.stdev, s.median, unit);
}

static void print_row(const bench_result *r, const bench_row *row)
{
    statistics s = tokens_per_s(row);
    double share = limit_share(r, row), joules = joules_per_token(row);
    print_head(r);
    printf("%s,%" PRId64 ",%" PRId64 ",%zu,%g,%g,%g,tokens/s,", row->is_decode ? "decode" : "prefill", row->n_tokens,
           row->at_context, s.n, s.mean, s.stdev, s.median);
    if (share >= 0)
        printf("%.4f", share);
    putchar(',');
    if (joules >= 0)
        printf("%g", joules);
    putchar('\n');
}

void bench_print_csv(const bench_result *r)
{
    puts("date,model,cpu,level,threads,numerics,test,tokens,at_context,n,mean,stdev,median,unit,limit_share,joules_per_token");
    if (r->n_limits > 0) {
        print_one(r, "read", "GB/s", bench_read_limit(r) / 1e9);
        print_one(r, "int8", "TOPS", bench_int8_limit(r) / 1e12);
    }
    print_one(r, "load_first", "ms", 1e3 * r->first.ready_s);
    print_statistics(r, "load_later", "ms", loads_ms(r, false));
    print_statistics(r, "first_token", "ms", loads_ms(r, true));
    for (size_t i = 0; i < r->n_rows; i++)
        if (r->rows[i].n > 0)
            print_row(r, &r->rows[i]);
    print_one(r, "peak_rss", "bytes", (double)r->peak_bytes);
    print_one(r, "peak_anon", "bytes", (double)r->peak_anon_bytes);
}
