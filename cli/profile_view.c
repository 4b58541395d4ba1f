/* Where the time of a run went: as a table, as JSON, and as a page with pictures. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"

/* All steps of one operator or fused group. */
typedef struct op_total {
    const char *op;
    uint64_t n_steps, n_runs;
    double seconds, weights_bytes, n_ops;
} op_total;

static int compare_totals(const void *a, const void *b)
{
    double x = ((const op_total *)a)->seconds, y = ((const op_total *)b)->seconds;
    return (x < y) - (x > y);
}

/* Malloc'ed, longest first; the last part is what passed outside predictions. */
static op_total *sum_by_op(const profiled_run *run, size_t *n_found)
{
    op_total *totals = calloc(run->n_steps + 1, sizeof *totals);
    size_t n = 0;
    for (size_t i = 0; totals && i < run->n_steps; i++) {
        const profiled_step *step = &run->steps[i];
        size_t k = 0;
        while (k < n && strcmp(totals[k].op, step->op) != 0)
            k++;
        n += k == n;
        totals[k].op = step->op;
        totals[k].n_steps++;
        totals[k].n_runs += step->n_runs;
        totals[k].seconds += step->seconds;
        totals[k].weights_bytes += (double)step->weights_bytes;
        totals[k].n_ops += (double)step->n_ops;
    }
    if (totals) {
        totals[n++] = (op_total){.op = "(session)", .n_steps = 1, .n_runs = 1, .seconds = fmax(0, run->wall_s - run->passes_s)};
        qsort(totals, n, sizeof *totals, compare_totals);
    }
    *n_found = totals ? n : 0;
    return totals;
}

static double share_of(const profiled_run *run, double seconds)
{
    return run->wall_s > 0 ? seconds / run->wall_s : 0;
}

static double steps_seconds(const profiled_run *run)
{
    double sum = 0;
    for (size_t i = 0; i < run->n_steps; i++)
        sum += run->steps[i].seconds;
    return sum;
}

/* ---- text ---- */

static void print_rate(double amount, double seconds)
{
    if (amount > 0 && seconds > 0)
        printf(" %9.2f", amount / seconds / 1e9);
    else
        printf(" %9s", "-");
}

void profile_print(const bench_result *r, const bench_row *row)
{
    char title[64];
    size_t n = 0;
    const profiled_run *run = &row->profile;
    op_total *totals = sum_by_op(run, &n);
    (void)r;
    bench_row_title(row, title, sizeof title);
    printf("\nprofile of %s, %lld tokens: %llu passes, %.2f ms\n", title, (long long)row->n_tokens,
           (unsigned long long)run->n_passes, 1e3 * run->wall_s);
    printf("  %-36s %7s %11s %7s %9s %9s\n", "operator or fused group", "steps", "ms", "share", "GB/s", "GOPS");
    for (size_t i = 0; i < n; i++) {
        printf("  %-36s %7llu %11.3f %6.1f%%", totals[i].op, (unsigned long long)totals[i].n_steps, 1e3 * totals[i].seconds,
               100 * share_of(run, totals[i].seconds));
        print_rate(totals[i].weights_bytes, totals[i].seconds);
        print_rate(totals[i].n_ops, totals[i].seconds);
        putchar('\n');
    }
    double sum = steps_seconds(run) + fmax(0, run->wall_s - run->passes_s);
    printf("  %-36s %7zu %11.3f %6.1f%%\n", "sum", run->n_steps, 1e3 * sum, 100 * share_of(run, sum));
    free(totals);
}

/* ---- JSON ---- */

json_t *profile_json(const bench_row *row)
{
    size_t n = 0;
    op_total *totals = sum_by_op(&row->profile, &n);
    json_t *ops = json_array(), *steps = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(ops, json_pack("{s:o, s:I, s:I, s:f, s:f, s:f}", "op", json_text(totals[i].op), "steps",
                                             (json_int_t)totals[i].n_steps, "runs", (json_int_t)totals[i].n_runs,
                                             "seconds", totals[i].seconds, "weights_bytes", totals[i].weights_bytes, "ops",
                                             totals[i].n_ops));
    for (size_t i = 0; i < row->profile.n_steps; i++) {
        const profiled_step *s = &row->profile.steps[i];
        json_array_append_new(steps, json_pack("{s:o, s:o, s:I, s:f, s:I, s:I}", "op", json_text(s->op), "name",
                                               json_text(s->name), "runs", (json_int_t)s->n_runs, "seconds", s->seconds,
                                               "weights_bytes", (json_int_t)s->weights_bytes, "ops", (json_int_t)s->n_ops));
    }
    free(totals);
    return json_pack("{s:f, s:f, s:I, s:o, s:o}", "wall_s", row->profile.wall_s, "passes_s", row->profile.passes_s,
                     "passes", (json_int_t)row->profile.n_passes, "ops", ops, "steps", steps);
}

/* ---- HTML ---- */

enum { PICTURE_WIDTH = 1200, BAR_HEIGHT = 56, PALETTE = 10 };

static const char *const colours[PALETTE] = {"#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951",
                                             "#ff8ab7", "#a463f2", "#97bbf5", "#9c6b4e", "#9498a0"};

static void put_html(FILE *to, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<': fputs("&lt;", to); break;
        case '>': fputs("&gt;", to); break;
        case '&': fputs("&amp;", to); break;
        case '"': fputs("&quot;", to); break;
        default: fputc(*text, to);
        }
}

static const char *colour_of(const op_total *totals, size_t n, const char *op)
{
    for (size_t i = 0; i < n && i + 1 < PALETTE; i++)
        if (strcmp(totals[i].op, op) == 0)
            return colours[i];
    return colours[PALETTE - 1];
}

static void put_bar(FILE *to, double x, double width, int y, const char *colour, const char *op, const char *name,
                    double seconds, double share)
{
    fprintf(to, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"><title>", x, y, width, BAR_HEIGHT, colour);
    put_html(to, op);
    if (*name) {
        fputs("  ", to);
        put_html(to, name);
    }
    fprintf(to, "  %.3f ms, %.1f %%</title></rect>\n", 1e3 * seconds, 100 * share);
    if (!*name && width > 7.0 * (double)strlen(op) + 8) {
        fprintf(to, "<text x=\"%.2f\" y=\"%d\">", x + 4, y + BAR_HEIGHT / 2 + 4);
        put_html(to, op);
        fputs("</text>\n", to);
    }
}

/* Above: by operator, longest first. Below: the steps in the order in which they run. */
static void put_picture(FILE *to, const profiled_run *run, const op_total *totals, size_t n)
{
    double scale = run->wall_s > 0 ? PICTURE_WIDTH / run->wall_s : 0, x = 0;
    fprintf(to, "<svg viewBox=\"0 0 %d %d\" role=\"img\">\n", PICTURE_WIDTH, 2 * BAR_HEIGHT + 12);
    for (size_t i = 0; i < n; i++) {
        put_bar(to, x, scale * totals[i].seconds, 0, colour_of(totals, n, totals[i].op), totals[i].op, "",
                totals[i].seconds, share_of(run, totals[i].seconds));
        x += scale * totals[i].seconds;
    }
    x = 0;
    for (size_t i = 0; i < run->n_steps; i++) {
        const profiled_step *s = &run->steps[i];
        double width = scale * s->seconds;
        if (width >= 0.02)
            put_bar(to, x, width, BAR_HEIGHT + 12, colour_of(totals, n, s->op), s->op, *s->name ? s->name : " ", s->seconds,
                    share_of(run, s->seconds));
        x += width;
    }
    fputs("</svg>\n", to);
}

static void put_rate(FILE *to, double amount, double seconds)
{
    if (amount > 0 && seconds > 0)
        fprintf(to, "<td>%.2f</td>", amount / seconds / 1e9);
    else
        fputs("<td>-</td>", to);
}

static void put_table(FILE *to, const profiled_run *run, const op_total *totals, size_t n)
{
    fputs("<table><tr><th></th><th>operator or fused group</th><th>steps</th><th>ms</th><th>share</th><th>GB/s of "
          "weights</th><th>GOPS</th></tr>\n", to);
    for (size_t i = 0; i < n; i++) {
        fprintf(to, "<tr><td style=\"background:%s\"></td><td class=\"name\">", colour_of(totals, n, totals[i].op));
        put_html(to, totals[i].op);
        fprintf(to, "</td><td>%llu</td><td>%.3f</td><td>%.1f %%</td>", (unsigned long long)totals[i].n_steps,
                1e3 * totals[i].seconds, 100 * share_of(run, totals[i].seconds));
        put_rate(to, totals[i].weights_bytes, totals[i].seconds);
        put_rate(to, totals[i].n_ops, totals[i].seconds);
        fputs("</tr>\n", to);
    }
    fputs("</table>\n", to);
}

static void put_row(FILE *to, const bench_row *row)
{
    char title[64];
    size_t n = 0;
    const profiled_run *run = &row->profile;
    op_total *totals = sum_by_op(run, &n);
    bench_row_title(row, title, sizeof title);
    fprintf(to, "<h2>%s, %lld tokens</h2>\n<p>%llu passes, %.2f ms; steps make up %.1f %% of it. The upper bar sums by "
            "operator, the lower one shows the steps in the order in which they run.</p>\n",
            title, (long long)row->n_tokens, (unsigned long long)run->n_passes, 1e3 * run->wall_s,
            100 * share_of(run, steps_seconds(run)));
    put_picture(to, run, totals, n);
    put_table(to, run, totals, n);
    free(totals);
}

bool profile_can_write(const char *path)
{
    struct stat there;
    if (stat(path, &there) == 0) { /* a pipe is not opened twice */
        errno = S_ISDIR(there.st_mode) ? EISDIR : errno;
        return !S_ISDIR(there.st_mode) && access(path, W_OK) == 0;
    }
    FILE *to = fopen(path, "wx");
    if (!to)
        return false;
    fclose(to);
    (void)unlink(path);
    return true;
}

bool profile_write_html(const bench_result *r, const char *path)
{
    FILE *to = fopen(path, "w");
    if (!to)
        return false;
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Profile of ", to);
    put_html(to, r->path);
    fputs("</title>\n<style>body{font:14px sans-serif;max-width:1200px;margin:2em auto}svg{width:100%}svg "
          "text{font-size:12px;fill:#fff}table{border-collapse:collapse}td,th{padding:2px "
          "10px;text-align:right}td.name{text-align:left;font-family:monospace}</style></head>\n<body><h1>", to);
    put_html(to, r->path);
    fputs("</h1>\n<p>", to);
    put_html(to, r->machine.cpu);
    fprintf(to, ", level %s, %d thread%s", r->machine.level, r->n_threads, r->n_threads == 1 ? "" : "s");
    if (r->n_limits > 0)
        fprintf(to, "; at most %.2f GB/s and %.1f GOPS of 8-bit integers", bench_read_limit(r) / 1e9,
                bench_int8_limit(r) / 1e9);
    fputs("</p>\n", to);
    for (size_t i = 0; i < r->n_rows; i++)
        if (r->rows[i].profile.n_steps > 0)
            put_row(to, &r->rows[i]);
    fputs("</body></html>\n", to);
    bool is_written = !ferror(to);
    int saved = errno;
    is_written = fclose(to) == 0 && is_written;
    errno = errno ? errno : saved;
    return is_written;
}
