/* A fixed set of threads that share one loop at a time. Work is handed out in chunks by an atomic counter, so a
 * thread that loses its core does not hold up the rest. The caller takes part; a pool of one has no threads. */
#ifndef POME_BASE_POOL_H
#define POME_BASE_POOL_H

#include <stdbool.h>
#include <stddef.h>

#include "pome/status.h"

typedef struct pome_pool pome_pool;
/* Called for chunks [begin, end) of the range; `thread` is 0..n_threads-1 (for per-thread scratch). */
typedef void pome_pool_fn(void *arg, size_t begin, size_t end, int thread);

pome_status pome_pool_create(pome_pool **out, int n_threads /* 0: pome_cpu_count() */, pome_error *err);
void pome_pool_destroy(pome_pool **pool);
int pome_pool_n_threads(const pome_pool *pool); /* NULL pool: 1 */
/* Runs fn over [0, n) in chunks of `grain` (>= 1) and returns when all are done. NULL pool: on the caller.
 * How the range is cut depends on n and grain alone, never on the number of threads. Several threads may call
 * at once: the second waits its turn. Not re-entrant from within fn. Never fails, never allocates. */
void pome_pool_run(pome_pool *pool, size_t n, size_t grain, pome_pool_fn *fn, void *arg);
/* The same, but a thread begins with a share of its own of chunks that follow each other, and takes those of others when it has
 * done it: what it wrote in one loop is in its cache when the next one reads it by the same order. */
void pome_pool_run_near(pome_pool *pool, size_t n, size_t grain, pome_pool_fn *fn, void *arg);

/* ---- work in the background ---- */

/* One thread that does jobs in the order in which they come, beside whatever the submitter does meanwhile. A job that
 * is waited for before its turn came is done by the waiter: without a thread that is all of them, and results are the
 * same. One thread at a time submits and waits. */
typedef struct pome_worker pome_worker;
/* `by_waiter`: on the thread that waits; several jobs may then run at once, this one and the worker's. */
typedef void pome_job_fn(void *arg, bool by_waiter);

typedef struct pome_job {  /* the caller's; zeroed but for fn and arg; stays where it is until waited for */
    pome_job_fn *fn;
    void *arg;
    struct pome_job *next; /* the rest is the worker's */
    int state;
} pome_job;

pome_status pome_worker_create(pome_worker **out, bool has_thread, pome_error *err);
void pome_worker_destroy(pome_worker **worker); /* finishes what was submitted; NULL is fine */
void pome_worker_submit(pome_worker *worker, pome_job *job); /* never fails, never allocates */
/* Until the job is done; at once if it was never submitted. What it wrote is then visible. */
void pome_worker_wait(pome_worker *worker, pome_job *job);

#endif
