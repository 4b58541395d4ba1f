/* The loop is published under a mutex with a new epoch; threads that see the epoch take chunks from an atomic
 * counter until none is left. A short spin before sleeping keeps the hand-over of successive loops cheap without
 * burning a core while idle. */
#include "base/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/cpu.h"
#include "base/error.h"

enum { SPIN_ROUNDS = 2000 };

typedef struct worker {
    pome_pool *pool;
    pthread_t thread;
    int index;
} worker;

struct pome_pool {
    pthread_mutex_t run_lock; /* one loop at a time */
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    atomic_uint epoch; /* counts loops; changed under lock */
    atomic_uint busy;  /* workers that have not yet left the current loop */
    atomic_bool quit;
    pome_pool_fn *fn;
    void *arg;
    size_t n, grain;
    atomic_size_t next;
    int n_workers;
    worker workers[];
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static void take_chunks(pome_pool *p, int thread)
{
    for (;;) {
        size_t begin = atomic_fetch_add_explicit(&p->next, p->grain, memory_order_relaxed);
        if (begin >= p->n)
            return;
        size_t end = p->n - begin < p->grain ? p->n : begin + p->grain;
        p->fn(p->arg, begin, end, thread);
    }
}

static bool wait_epoch(pome_pool *p, unsigned seen)
{
    for (int i = 0; i < SPIN_ROUNDS; i++) {
        if (atomic_load_explicit(&p->epoch, memory_order_acquire) != seen)
            return !atomic_load(&p->quit);
        relax();
    }
    pthread_mutex_lock(&p->lock);
    while (atomic_load_explicit(&p->epoch, memory_order_acquire) == seen)
        pthread_cond_wait(&p->wake, &p->lock);
    pthread_mutex_unlock(&p->lock);
    return !atomic_load(&p->quit);
}

static void *work(void *arg)
{
    worker *w = arg;
    pome_pool *p = w->pool;
    for (unsigned seen = 0; wait_epoch(p, seen); ) {
        seen++;
        take_chunks(p, w->index);
        if (atomic_fetch_sub_explicit(&p->busy, 1, memory_order_acq_rel) == 1) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
    }
    return NULL;
}

static void publish(pome_pool *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add_explicit(&p->epoch, 1, memory_order_release);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static void stop_workers(pome_pool *p)
{
    atomic_store(&p->quit, true);
    publish(p);
    for (int i = 0; i < p->n_workers; i++)
        pthread_join(p->workers[i].thread, NULL);
}

pome_status pome_pool_create(pome_pool **out, int n_threads, pome_error *err)
{
    if (n_threads < 0 || n_threads > 1024)
        return pome_fail(err, POME_ERR_ARG, "%d threads asked for, 1 to 1024 are possible (0: all)", n_threads);
    int n = n_threads ? n_threads : pome_cpu_count();
    size_t size = sizeof(pome_pool) + (size_t)(n - 1) * sizeof(worker);
    pome_pool *p = calloc(1, size);
    if (!p)
        return pome_fail_nomem(err, size, "thread pool");
    pthread_mutex_init(&p->run_lock, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    for (int i = 0; i < n - 1; i++) {
        p->workers[i] = (worker){.pool = p, .index = i + 1};
        if (pthread_create(&p->workers[i].thread, NULL, work, &p->workers[i]) != 0) {
            pome_pool_destroy(&p);
            return pome_fail(err, POME_ERR_NOMEM, "cannot start thread %d of %d", i + 2, n);
        }
        p->n_workers++;
    }
    *out = p;
    return POME_OK;
}

void pome_pool_destroy(pome_pool **pool)
{
    if (!pool || !*pool)
        return;
    pome_pool *p = *pool;
    stop_workers(p);
    pthread_cond_destroy(&p->done);
    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->run_lock);
    free(p);
    *pool = NULL;
}

int pome_pool_n_threads(const pome_pool *p)
{
    return p ? p->n_workers + 1 : 1;
}

static void run_alone(size_t n, size_t grain, pome_pool_fn *fn, void *arg)
{
    for (size_t begin = 0; begin < n; begin += grain)
        fn(arg, begin, n - begin < grain ? n : begin + grain, 0);
}

void pome_pool_run(pome_pool *p, size_t n, size_t grain, pome_pool_fn *fn, void *arg)
{
    if (grain == 0)
        grain = 1;
    if (!p || p->n_workers == 0 || n <= grain) {
        run_alone(n, grain, fn, arg);
        return;
    }
    pthread_mutex_lock(&p->run_lock);
    p->fn = fn;
    p->arg = arg;
    p->n = n;
    p->grain = grain;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store_explicit(&p->busy, (unsigned)p->n_workers, memory_order_relaxed);
    publish(p);
    take_chunks(p, 0);
    for (int i = 0; i < SPIN_ROUNDS && atomic_load_explicit(&p->busy, memory_order_acquire); i++)
        relax();
    pthread_mutex_lock(&p->lock);
    while (atomic_load_explicit(&p->busy, memory_order_acquire))
        pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
    pthread_mutex_unlock(&p->run_lock);
}
