/* How far the weights of a package are written, so that an interrupted conversion goes on where it stopped. */
#ifndef POME_CONVERT_JOURNAL_H
#define POME_CONVERT_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>

#include "pome/status.h"

typedef struct pome_journal {
    int fd; /* -1: closed */
    const char *path; /* borrowed */
    uint64_t fingerprint; /* of what is converted and how; 0 is none */
    bool goes_on;         /* the file was there, of the same fingerprint */
    uint32_t n_done;      /* jobs that are written */
    double worst_steps;   /* of these */
} pome_journal;

#define POME_HASH_START 14695981039346656037u
uint64_t pome_hash_bytes(uint64_t h, const void *p, size_t n); /* FNV-1a */
/* The time of its last change: a file that was replaced is not the same any more. */
uint64_t pome_hash_file_time(uint64_t h, const char *path);

/* Opens or creates the file. With `resume` it is read; n_done stays 0 if it has another fingerprint or counts more than
 * n_jobs. Errors: IO. */
pome_status pome_journal_open(pome_journal *out, const char *path, uint64_t fingerprint, uint32_t n_jobs, bool resume,
                              pome_error *err);
pome_status pome_journal_note(pome_journal *j, uint32_t n_done, double worst_steps, pome_error *err);
void pome_journal_close(pome_journal *j);

#endif
