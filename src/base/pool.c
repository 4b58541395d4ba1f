/* A loop is published by one atomic word, the ticket: number of the loop and next chunk to be taken. Threads take
 * chunks by raising it, and the caller waits for chunks to be done, not for threads: one that wakes late or has lost
 * its core holds up nobody unless it is in the middle of a chunk. A loop in shares has a ticket for each thread's; the
 * caller's, which is opened last, is the one that announces it.
 *
 * A short spin before sleeping keeps the hand-over of successive loops cheap without burning a core while idle. It is
 * bounded by time, and short: where other processes want the cores, a thread that sleeps between loops has credit with
 * the scheduler and gets its core back at once, one that spins has used its share up by waiting. */
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cpu.h"
#include "base/error.h"
#include "base/placement.h"

enum { SPIN_NANOSECONDS = 40000, ROUNDS_PER_LOOK = 32 };

typedef struct worker {
    pome_pool *pool;
    pthread_t thread;
    int index;
    pome_placement placement;
    _Alignas(64) atomic_uint_least64_t ticket; /* of its share, as the pool's */
} worker;

struct pome_pool {
    pthread_mutex_t run_lock; /* one loop at a time */
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    _Alignas(64) atomic_uint_least64_t ticket; /* loop number << 32 | next chunk, CLOSED while a loop is set up */
    _Alignas(64) atomic_size_t n_done;         /* chunks of the current loop that are finished */
    _Alignas(64) atomic_uint n_sleeping;       /* workers, changed under lock */
    atomic_bool is_caller_sleeping;
    atomic_bool quit;
    /* The current loop. Written while the ticket is closed. */
    _Atomic(pome_pool_fn *) fn;
    _Atomic(void *) arg;
    atomic_size_t n, grain, n_shares;
    int n_workers, avoided_cpu; /* avoided by the workers: the caller's, when it last woke one; -1: none */
    worker workers[];
};

#define CLOSED ((uint64_t)UINT32_MAX)

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t loop_of(uint64_t ticket)
{
    return ticket >> 32;
}

static atomic_uint_least64_t *ticket_of(pome_pool *p, size_t share)
{
    return share ? &p->workers[share - 1].ticket : &p->ticket;
}

/* The first chunk of a share. */
static size_t share_begin(size_t n_chunks, size_t share, size_t n_shares)
{
    return n_chunks / n_shares * share + n_chunks % n_shares * share / n_shares;
}

/* Runs chunks of a share of the loop that its ticket names as long as there are any. */
static void take_share(pome_pool *p, size_t share, int thread)
{
    atomic_uint_least64_t *shares_ticket = ticket_of(p, share);
    uint64_t ticket = atomic_load_explicit(shares_ticket, memory_order_acquire);
    for (;;) {
        /* What is read here belongs to the ticket if the ticket can be raised: it changes before they do. */
        pome_pool_fn *fn = atomic_load_explicit(&p->fn, memory_order_acquire);
        void *arg = atomic_load_explicit(&p->arg, memory_order_acquire);
        size_t n = atomic_load_explicit(&p->n, memory_order_acquire);
        size_t grain = atomic_load_explicit(&p->grain, memory_order_acquire);
        size_t n_shares = atomic_load_explicit(&p->n_shares, memory_order_acquire);
        uint64_t chunk = ticket & CLOSED;
        if (chunk == CLOSED || grain == 0 || n == 0 || share >= n_shares ||
            chunk >= share_begin((n - 1) / grain + 1, share + 1, n_shares))
            return;
        if (!atomic_compare_exchange_weak_explicit(shares_ticket, &ticket, ticket + 1, memory_order_acq_rel,
                                                   memory_order_acquire))
            continue;
        size_t begin = (size_t)chunk * grain;
        fn(arg, begin, n - begin < grain ? n : begin + grain, thread);
        if (atomic_fetch_add(&p->n_done, 1) == (n - 1) / grain && atomic_load(&p->is_caller_sleeping)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_signal(&p->done);
            pthread_mutex_unlock(&p->lock);
        }
        ticket = atomic_load_explicit(shares_ticket, memory_order_acquire);
    }
}

/* The thread's own share first. */
static void take_chunks(pome_pool *p, int thread)
{
    size_t n_shares = atomic_load_explicit(&p->n_shares, memory_order_acquire);
    for (size_t i = 0; i < n_shares; i++)
        take_share(p, ((size_t)thread + i) % n_shares, thread);
}

/* Until another loop than `seen` is open. */
static void wait_loop(pome_pool *p, uint64_t seen)
{
    uint64_t end = now_ns() + SPIN_NANOSECONDS;
    do
        for (int i = 0; i < ROUNDS_PER_LOOK; i++) {
            if (loop_of(atomic_load_explicit(&p->ticket, memory_order_acquire)) != seen)
                return;
            relax();
        }
    while (now_ns() < end);
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->n_sleeping, 1);
    while (loop_of(atomic_load(&p->ticket)) == seen)
        pthread_cond_wait(&p->wake, &p->lock);
    atomic_fetch_sub(&p->n_sleeping, 1);
    pthread_mutex_unlock(&p->lock);
}

static void *work(void *arg)
{
    worker *w = arg;
    pome_pool *p = w->pool;
    uint64_t seen = 0;
    for (;;) {
        wait_loop(p, seen);
        seen = loop_of(atomic_load(&p->ticket));
        if (atomic_load(&p->quit)) /* after the ticket: the loop that was seen may be the one that asks to quit */
            return NULL;
        take_chunks(p, w->index);
    }
}

/* Keeps workers off the caller's processor, before they are woken. */
static void make_room(pome_pool *p)
{
    int cpu = sched_getcpu();
    if (cpu == p->avoided_cpu)
        return;
    for (int i = 0; i < p->n_workers; i++)
        pome_placement_avoid(&p->workers[i].placement, p->workers[i].thread, cpu);
    p->avoided_cpu = cpu;
}

/* Opens the next loop; wakes as many sleepers as can help. */
static void publish(pome_pool *p, pome_pool_fn *fn, void *arg, size_t n, size_t grain, size_t n_shares, size_t n_helpers)
{
    uint64_t next = (loop_of(atomic_load(&p->ticket)) + 1) << 32;
    size_t n_chunks = n ? (n - 1) / grain + 1 : 0, n_before = atomic_load(&p->n_shares);
    for (size_t share = 0; share < n_before; share++)
        atomic_store(ticket_of(p, share), next - ((uint64_t)1 << 32) + CLOSED);
    atomic_store(&p->n_done, 0);
    atomic_store(&p->fn, fn);
    atomic_store(&p->arg, arg);
    atomic_store(&p->n, n);
    atomic_store(&p->grain, grain);
    atomic_store(&p->n_shares, n_shares);
    for (size_t share = n_shares; share-- > 0;)
        atomic_store(ticket_of(p, share), next + share_begin(n_chunks, share, n_shares));
    if (atomic_load(&p->n_sleeping) == 0)
        return;
    if (n > 0) /* else they may be gone already, and the C library takes a thread that is gone for the caller */
        make_room(p);
    pthread_mutex_lock(&p->lock);
    for (size_t i = 0; i < n_helpers && i < atomic_load(&p->n_sleeping); i++)
        pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
}

static void stop_workers(pome_pool *p)
{
    atomic_store(&p->quit, true);
    publish(p, NULL, NULL, 0, 1, 1, (size_t)p->n_workers);
    for (int i = 0; i < p->n_workers; i++)
        pthread_join(p->workers[i].thread, NULL);
}

pome_status pome_pool_create(pome_pool **out, int n_threads, pome_error *err)
{
    if (n_threads < 0 || n_threads > 1024)
        return pome_fail(err, POME_ERR_ARG, "%d threads asked for, 1 to 1024 are possible (0: all)", n_threads);
    int n = n_threads ? n_threads : pome_cpu_count();
    size_t size = sizeof(pome_pool) + (size_t)(n - 1) * sizeof(worker);
    size = (size + 63) / 64 * 64;
    pome_pool *p = aligned_alloc(64, size);
    if (!p)
        return pome_fail_nomem(err, size, "thread pool");
    memset(p, 0, size);
    p->avoided_cpu = -1;
    atomic_store(&p->n_shares, 1);
    pthread_mutex_init(&p->run_lock, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
    pthread_cond_init(&p->done, NULL);
    for (int i = 0; i < n - 1; i++) {
        p->workers[i].pool = p;
        p->workers[i].index = i + 1;
        atomic_store(&p->workers[i].ticket, CLOSED);
        if (pthread_create(&p->workers[i].thread, NULL, work, &p->workers[i]) != 0) {
            pome_pool_destroy(&p);
            return pome_fail(err, POME_ERR_NOMEM, "cannot start thread %d of %d: no memory for it, or too many", i + 2, n);
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

static void wait_done(pome_pool *p, size_t n_chunks)
{
    if (atomic_load_explicit(&p->n_done, memory_order_acquire) == n_chunks)
        return;
    uint64_t end = now_ns() + SPIN_NANOSECONDS;
    do
        for (int i = 0; i < ROUNDS_PER_LOOK; i++) {
            if (atomic_load_explicit(&p->n_done, memory_order_acquire) == n_chunks)
                return;
            relax();
        }
    while (now_ns() < end);
    pthread_mutex_lock(&p->lock);
    atomic_store(&p->is_caller_sleeping, true);
    while (atomic_load(&p->n_done) != n_chunks)
        pthread_cond_wait(&p->done, &p->lock);
    atomic_store(&p->is_caller_sleeping, false);
    pthread_mutex_unlock(&p->lock);
}

static void run(pome_pool *p, size_t n, size_t grain, bool is_near, pome_pool_fn *fn, void *arg)
{
    if (grain == 0)
        grain = 1;
    if (!p || p->n_workers == 0 || n <= grain) {
        run_alone(n, grain, fn, arg);
        return;
    }
    size_t n_chunks = (n - 1) / grain + 1;
    if (n_chunks >= UINT32_MAX) { /* does not fit the ticket */
        run_alone(n, grain, fn, arg);
        return;
    }
    pthread_mutex_lock(&p->run_lock);
    publish(p, fn, arg, n, grain, is_near ? (size_t)p->n_workers + 1 : 1, n_chunks - 1);
    take_chunks(p, 0);
    wait_done(p, n_chunks);
    pthread_mutex_unlock(&p->run_lock);
}

void pome_pool_run(pome_pool *p, size_t n, size_t grain, pome_pool_fn *fn, void *arg)
{
    run(p, n, grain, false, fn, arg);
}

void pome_pool_run_near(pome_pool *p, size_t n, size_t grain, pome_pool_fn *fn, void *arg)
{
    run(p, n, grain, true, fn, arg);
}
