#include "logits_file.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pome/status.h"

static const char magic[8] = {'_', 'l', 'o', 'g', 'i', 't', 's', '_'};
#define ROUNDED 0.01f /* what rounding may put above the logarithm of one */
enum { HEAD_WORDS = 4 /* of 16 bits: step and smallest value, as floats */, CODE_MAX = 65535, RANGE = 16 };

static bool fail(char *reason, size_t size, const char *fmt, ...) POME_PRINTF(3, 4);
static bool fail(char *reason, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(reason, size, fmt, ap);
    va_end(ap);
    return false;
}

int64_t logits_file_rows(const logits_file *f)
{
    return f->n_context - 1 - f->n_context / 2;
}

static bool make_row(logits_file *f)
{
    f->row_words = 2 * (((size_t)f->n_vocab + 1) / 2) + HEAD_WORDS;
    f->row = calloc(f->row_words, sizeof *f->row);
    return f->row != NULL;
}

static size_t n_ids(const logits_file *f)
{
    return (size_t)f->n_windows * (size_t)f->n_context;
}

/* ---- writing ---- */

bool logits_file_create(logits_file *f, const char *path, int32_t n_context, int32_t n_vocab, int32_t n_windows,
                        const int32_t *ids, char *reason, size_t reason_size)
{
    static const char suffix[] = ".partial";
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) /* renaming would put a file where a device or pipe was */
        return fail(reason, reason_size, "%s is not a regular file", path);
    *f = (logits_file){.n_context = n_context, .n_vocab = n_vocab, .n_windows = n_windows, .path = strdup(path),
                       .partial = malloc(strlen(path) + sizeof suffix)};
    if (!f->path || !f->partial || !make_row(f))
        return fail(reason, reason_size, "out of memory");
    snprintf(f->partial, strlen(path) + sizeof suffix, "%s%s", path, suffix);
    f->file = fopen(f->partial, "wb");
    const int32_t head[3] = {n_context, n_vocab, n_windows};
    if (!f->file || fwrite(magic, sizeof magic, 1, f->file) != 1 || fwrite(head, sizeof head, 1, f->file) != 1 ||
        fwrite(ids, sizeof *ids, n_ids(f), f->file) != n_ids(f))
        return fail(reason, reason_size, "%s: %s", f->partial, strerror(errno));
    return true;
}

bool logits_file_write(logits_file *f, const float *logits, char *reason, size_t reason_size)
{
    float largest = logits[0], smallest = logits[0];
    double sum = 0;
    for (int32_t i = 1; i < f->n_vocab; i++) {
        largest = fmaxf(largest, logits[i]);
        smallest = fminf(smallest, logits[i]);
    }
    smallest = fmaxf(smallest, largest - RANGE);
    for (int32_t i = 0; i < f->n_vocab; i++)
        sum += expf(logits[i] - largest);
    float head[2] = {(largest - smallest) / CODE_MAX, smallest - largest - (float)log(sum)};
    memcpy(f->row, head, sizeof head);
    for (int32_t i = 0; i < f->n_vocab; i++)
        f->row[HEAD_WORDS + i] =
            logits[i] > smallest && head[0] > 0 ? (uint16_t)lrintf((logits[i] - smallest) / head[0]) : 0;
    if (fwrite(f->row, sizeof *f->row, f->row_words, f->file) != f->row_words)
        return fail(reason, reason_size, "%s: %s", f->partial, strerror(errno));
    return true;
}

bool logits_file_finish(logits_file *f, char *reason, size_t reason_size)
{
    bool is_written = fclose(f->file) == 0;
    f->file = NULL;
    if (!is_written || rename(f->partial, f->path) != 0)
        return fail(reason, reason_size, "%s: %s", f->path, strerror(errno));
    free(f->partial);
    f->partial = NULL;
    return true;
}

/* ---- reading ---- */

static bool check_head(logits_file *f, char *reason, size_t reason_size)
{
    struct stat status;
    char found[sizeof magic];
    int32_t head[3];
    if (fread(found, sizeof found, 1, f->file) != 1 || memcmp(found, magic, sizeof magic) != 0 ||
        fread(head, sizeof head, 1, f->file) != 1)
        return fail(reason, reason_size, "%s: no file of log probabilities (it should begin with _logits_)", f->path);
    f->n_context = head[0];
    f->n_vocab = head[1];
    f->n_windows = head[2];
    if (f->n_context < 4 || f->n_vocab < 1 || f->n_windows < 1 || f->n_context > 1 << 24)
        return fail(reason, reason_size, "%s: %d windows of %d tokens over a vocabulary of %d cannot be", f->path,
                    (int)f->n_windows, (int)f->n_context, (int)f->n_vocab);
    double row_bytes = 2.0 * (2.0 * floor(((double)f->n_vocab + 1) / 2) + HEAD_WORDS);
    double want = 20 + (double)f->n_windows * (4.0 * f->n_context + (double)logits_file_rows(f) * row_bytes);
    if (fstat(fileno(f->file), &status) != 0 || (double)status.st_size < want)
        return fail(reason, reason_size, "%s: %.0f bytes, expected %.0f for %d windows of %d tokens", f->path,
                    (double)status.st_size, want, (int)f->n_windows, (int)f->n_context);
    return true;
}

bool logits_file_open(logits_file *f, const char *path, char *reason, size_t reason_size)
{
    *f = (logits_file){.path = strdup(path), .file = fopen(path, "rb")};
    if (!f->file)
        return fail(reason, reason_size, "%s: %s", path, strerror(errno));
    if (!f->path)
        return fail(reason, reason_size, "out of memory");
    if (!check_head(f, reason, reason_size))
        return false;
    f->ids = malloc(n_ids(f) * sizeof *f->ids);
    if (!f->ids || !make_row(f))
        return fail(reason, reason_size, "out of memory");
    if (fread(f->ids, sizeof *f->ids, n_ids(f), f->file) != n_ids(f))
        return fail(reason, reason_size, "%s: ends within the token ids", path);
    return true;
}

bool logits_file_read(logits_file *f, float *log_probabilities, char *reason, size_t reason_size)
{
    float head[2];
    if (fread(f->row, sizeof *f->row, f->row_words, f->file) != f->row_words)
        return fail(reason, reason_size, "%s: ends within a row", f->path);
    memcpy(head, f->row, sizeof head);
    if (!isfinite(head[0]) || !isfinite(head[1]))
        return fail(reason, reason_size, "%s: a row holds no numbers", f->path);
    if (head[0] < 0 || head[1] > ROUNDED || head[1] + head[0] * CODE_MAX > ROUNDED)
        return fail(reason, reason_size, "%s: a row goes from %g in steps of %g: logarithms of probabilities are at most 0",
                    f->path, (double)head[1], (double)head[0]);
    for (int32_t i = 0; i < f->n_vocab; i++)
        log_probabilities[i] = head[0] * (float)f->row[HEAD_WORDS + i] + head[1];
    return true;
}

void logits_file_close(logits_file *f)
{
    if (f->file)
        fclose(f->file);
    if (f->partial)
        (void)unlink(f->partial);
    free(f->path);
    free(f->partial);
    free(f->ids);
    free(f->row);
    *f = (logits_file){0};
}
