/* Log probabilities of a run over a text, in the format of llama.cpp's perplexity tool (docs/performance.md), so that
 * runs of either can be compared with runs of the other. One window is in memory at a time. */
#ifndef POME_CLI_LOGITS_FILE_H
#define POME_CLI_LOGITS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct logits_file {
    FILE *file;
    char *path, *partial; /* writing: the name until it is whole */
    int32_t n_context, n_vocab, n_windows;
    int32_t *ids;         /* [n_windows, n_context] */
    uint16_t *row;        /* [row_words] */
    size_t row_words;
} logits_file;

/* Rows of a window: after position n_context / 2 and those that follow, but not after the last. */
int64_t logits_file_rows(const logits_file *f);

/* All return false with a reason. Begins a file for these windows (ids are copied). */
bool logits_file_create(logits_file *f, const char *path, int32_t n_context, int32_t n_vocab, int32_t n_windows,
                        const int32_t *ids, char *reason, size_t reason_size);
/* logits [n_vocab]; each row takes 16 bits per token, in steps of 1/65535 of the range down to the largest - 16. */
bool logits_file_write(logits_file *f, const float *logits, char *reason, size_t reason_size);
/* Gives the file its name. */
bool logits_file_finish(logits_file *f, char *reason, size_t reason_size);

bool logits_file_open(logits_file *f, const char *path, char *reason, size_t reason_size);
/* The next row as natural logarithms of probabilities [n_vocab]. */
bool logits_file_read(logits_file *f, float *log_probabilities, char *reason, size_t reason_size);

void logits_file_close(logits_file *f); /* an unfinished file is removed */

#endif
