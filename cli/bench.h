/* `pome bench`: what measuring, reporting and the profile's views share. */
#ifndef POME_CLI_BENCH_H
#define POME_CLI_BENCH_H

#include <jansson.h>

#include "command.h"
#include "energy.h"
#include "pome/llm.h"
#include "pome/machine.h"
#include "pome/profile.h"

enum { BENCH_REPETITIONS_MAX = 1000, BENCH_ROWS_MAX = 64, BENCH_LIMITS_MAX = 2 };

typedef struct bench_args {
    common_args common;
    llm_args llm;
    const char *prompt_lengths, *contexts, *profile_html;
    int64_t n_tokens, repetitions, context;
    double row_seconds;
    bool csv, profile, keep_cache, no_limits;
} bench_args;

typedef struct statistics {
    size_t n;
    double mean, stdev /* of a sample; 0 for n < 2 */, median;
} statistics;
statistics statistics_of(const double *values, size_t n);

/* A step of a profiled run; owns its name. */
typedef struct profiled_step {
    const char *op; /* lives as long as the process */
    char *name;
    uint64_t n_runs, weights_bytes, n_ops;
    double seconds;
} profiled_step;

typedef struct profiled_run {
    profiled_step *steps; /* [n_steps] in order of execution, those that ran */
    size_t n_steps;
    uint64_t n_passes;
    double wall_s, passes_s; /* of the whole run, and inside predictions */
} profiled_run;

typedef struct bench_row {
    bool is_decode;
    int64_t n_tokens;        /* per repetition */
    int64_t at_context;      /* decode: tokens in the cache before */
    double *seconds;         /* [n] per repetition */
    size_t n;
    double joules;           /* of all repetitions; < 0: not known */
    profiled_run profile;    /* one run more, or the last one */
} bench_row;

typedef struct bench_load {
    double ready_s, first_token_s; /* until a session is ready, and then the answer to a prompt of one token */
} bench_load;

typedef struct bench_result {
    const bench_args *args;
    const char *path;
    char contract[512];
    int n_threads;
    int64_t n_context, n_vocab;
    uint64_t weights_bytes;
    pome_machine machine;
    pome_machine_limits limits[BENCH_LIMITS_MAX]; /* before and after */
    int n_limits;
    bench_load first;
    double first_cached_share;   /* of the package's bytes that were in memory before the first load; < 0: not known */
    bench_load *later;           /* [n_later] */
    size_t n_later;
    bench_row rows[BENCH_ROWS_MAX];
    size_t n_rows;
    uint64_t peak_bytes, peak_anon_bytes;
    energy_meter energy;
    bool is_complete;            /* not interrupted */
} bench_result;

/* The better of the measurements; 0: not measured. */
double bench_read_limit(const bench_result *r);
double bench_int8_limit(const bench_result *r);
/* What a repetition reads and computes, from its profile. */
double bench_row_weights_bytes(const bench_row *row);
double bench_row_ops(const bench_row *row);

void bench_print_table(const bench_result *r);
void bench_print_csv(const bench_result *r);
json_t *bench_json(const bench_result *r);

/* "prefill 512" or "decode at 512" */
void bench_row_title(const bench_row *row, char *text, size_t size);
void profile_print(const bench_result *r, const bench_row *row);
json_t *profile_json(const bench_row *row);
bool profile_can_write(const char *path); /* false with errno */
/* A page with a picture of every profiled row; false with errno. */
bool profile_write_html(const bench_result *r, const char *path);

/* Asks the system to forget the file contents that it keeps in memory below `folder`; gives the share that stays. */
double drop_page_cache(const char *folder, bool asks_to_drop);

#endif
