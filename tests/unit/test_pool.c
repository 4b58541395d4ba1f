/* The thread pool: every index once, the same chunks whatever the number of threads, several callers at once. Run
 * under ThreadSanitizer, the plain stores below also prove that loops are ordered before what follows them. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/cpu.h"
#include "base/pool.h"

enum { MOST_THREADS = 9, MOST = 3000 };

typedef struct trace {
    int n_threads;
    unsigned char touched[MOST];
    size_t end_of[MOST]; /* by first index of a chunk; 0: no chunk starts here */
    size_t by_thread[MOST_THREADS]; /* indices done; plain: a thread number is never used by two at once */
} trace;

static void record(void *arg, size_t begin, size_t end, int thread)
{
    trace *t = arg;
    assert_true(thread >= 0 && thread < t->n_threads);
    t->end_of[begin] = end;
    for (size_t i = begin; i < end; i++)
        t->touched[i]++;
    t->by_thread[thread] += end - begin;
}

typedef void run_fn(pome_pool *pool, size_t n, size_t grain, pome_pool_fn *fn, void *arg);

static void check_loop_by(run_fn *run, pome_pool *pool, size_t n, size_t grain)
{
    static trace t;
    memset(&t, 0, sizeof t);
    t.n_threads = pome_pool_n_threads(pool);
    run(pool, n, grain, record, &t);
    size_t sum = 0;
    for (size_t i = 0; i < MOST; i++)
        assert_int_equal(t.touched[i], i < n);
    for (size_t i = 0; i < n; i += grain)
        assert_int_equal(t.end_of[i], i + grain < n ? i + grain : n);
    for (int i = 0; i < MOST_THREADS; i++)
        sum += t.by_thread[i];
    assert_int_equal(sum, n);
}

/* Both kinds of loops, one after the other. */
static void check_loop(pome_pool *pool, size_t n, size_t grain)
{
    check_loop_by(pome_pool_run, pool, n, grain);
    check_loop_by(pome_pool_run_near, pool, n, grain);
}

static void every_index_once_in_the_same_chunks(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 2, 3, 7, 8, 9, 64, 65, 1000, MOST};
    static const size_t grains[] = {1, 2, 3, 8, 64, 999, 1000, 1001, 100000};
    for (int n_threads = 0; n_threads <= MOST_THREADS; n_threads++) {
        pome_pool *pool = NULL; /* 0: no pool at all */
        if (n_threads) {
            assert_int_equal(pome_pool_create(&pool, n_threads, NULL), POME_OK);
            assert_int_equal(pome_pool_n_threads(pool), n_threads);
        }
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            for (size_t k = 0; k < sizeof grains / sizeof grains[0]; k++)
                check_loop(pool, sizes[i], grains[k]);
        pome_pool_destroy(&pool);
        assert_null(pool);
    }
}

static void many_loops_in_a_row(void **state)
{
    (void)state;
    pome_pool *pool;
    assert_int_equal(pome_pool_create(&pool, 4, NULL), POME_OK);
    for (int i = 0; i < 2000; i++)
        check_loop(pool, (size_t)(i % 37), 1 + (size_t)i % 3);
    pome_pool_destroy(&pool);
}

static void nothing(void *arg, size_t begin, size_t end, int thread)
{
    (void)arg, (void)begin, (void)end, (void)thread;
}

static void pools_come_and_go(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        pome_pool *pool;
        assert_int_equal(pome_pool_create(&pool, 1 + i % 5, NULL), POME_OK);
        if (i % 2) /* a pool may die without having run anything, or right after */
            pome_pool_run(pool, 10, 1, nothing, NULL);
        pome_pool_destroy(&pool);
    }
    pome_pool_destroy(NULL);
    /* One that ends while its threads are about to look at a loop: each of them has to notice. */
    for (int i = 0; i < 3000; i++) {
        pome_pool *pool;
        assert_int_equal(pome_pool_create(&pool, 2 + i % 2, NULL), POME_OK);
        if (i % 4 < 2)
            pome_pool_run(pool, 8, 1, nothing, NULL);
        pome_pool_destroy(&pool);
    }
}

typedef struct caller {
    pome_pool *pool;
    int value[200];
} caller;

static void fill(void *arg, size_t begin, size_t end, int thread)
{
    caller *c = arg;
    (void)thread;
    for (size_t i = begin; i < end; i++)
        c->value[i]++;
}

static void *call_often(void *arg)
{
    caller *c = arg;
    for (int i = 0; i < 200; i++)
        (i % 3 ? pome_pool_run_near : pome_pool_run)(c->pool, 200, 7, fill, c);
    return NULL;
}

static void several_callers_at_once(void **state)
{
    (void)state;
    enum { CALLERS = 5 };
    static caller callers[CALLERS];
    pthread_t thread[CALLERS];
    pome_pool *pool;
    assert_int_equal(pome_pool_create(&pool, 3, NULL), POME_OK);
    for (int i = 0; i < CALLERS; i++) {
        callers[i].pool = pool;
        assert_int_equal(pthread_create(&thread[i], NULL, call_often, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++)
        pthread_join(thread[i], NULL);
    for (int i = 0; i < CALLERS; i++)
        for (int k = 0; k < 200; k++)
            assert_int_equal(callers[i].value[k], 200);
    pome_pool_destroy(&pool);
}

static void thread_counts(void **state)
{
    (void)state;
    pome_error err;
    pome_pool *pool = (pome_pool *)1;
    assert_int_equal(pome_pool_create(&pool, -1, &err), POME_ERR_ARG);
    assert_non_null(strstr(err.message, "-1"));
    assert_int_equal(pome_pool_create(&pool, 1 << 20, &err), POME_ERR_ARG);
    assert_ptr_equal(pool, (pome_pool *)1);
    assert_int_equal(pome_pool_n_threads(NULL), 1);
    assert_int_equal(pome_pool_create(&pool, 0, &err), POME_OK);
    assert_int_equal(pome_pool_n_threads(pool), pome_cpu_count());
    pome_pool_destroy(&pool);
}

/* ---- idling and late threads ---- */

static void add_up(void *arg, size_t begin, size_t end, int thread)
{
    (void)thread;
    atomic_fetch_add((atomic_size_t *)arg, end - begin);
}

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Threads that have nothing to do sleep: 100 ms pass and cost next to nothing. */
static void idle_threads_sleep(void **state)
{
    (void)state;
    pome_pool *pool;
    assert_int_equal(pome_pool_create(&pool, 8, NULL), POME_OK);
    pome_pool_run(pool, 100, 1, nothing, NULL);
    double before = cpu_seconds();
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    double used = cpu_seconds() - before;
    pome_pool_destroy(&pool);
    assert_true(used < 0.03);
}

/* With pauses that are shorter and longer than the spin, threads are met awake, falling asleep and asleep. */
static void loops_after_pauses(void **state)
{
    (void)state;
    pome_pool *pool;
    atomic_size_t sum = 0;
    assert_int_equal(pome_pool_create(&pool, 3, NULL), POME_OK);
    for (int i = 0; i < 300; i++) {
        pome_pool_run(pool, 10, 1, add_up, &sum);
        nanosleep(&(struct timespec){.tv_nsec = i % 7 * 15000}, NULL);
    }
    pome_pool_destroy(&pool);
    assert_int_equal(atomic_load(&sum), 300 * 10);
}

typedef struct meeting {
    int n_threads;
    atomic_int n_there;
    atomic_bool is_missed;
} meeting;

static void pause_ms(long ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Stays until every thread holds a chunk; the workers a little longer, so that the caller has to wait for them asleep. */
static void meet(void *arg, size_t begin, size_t end, int thread)
{
    meeting *m = arg;
    (void)begin, (void)end;
    atomic_fetch_add(&m->n_there, 1);
    for (int i = 0; atomic_load(&m->n_there) < m->n_threads; i++) {
        pause_ms(1);
        if (i == 10000)
            atomic_store(&m->is_missed, true);
        if (atomic_load(&m->is_missed))
            return;
    }
    if (thread > 0)
        pause_ms(2);
}

static void every_thread_is_woken(void **state)
{
    (void)state;
    pome_pool *pool;
    assert_int_equal(pome_pool_create(&pool, 5, NULL), POME_OK);
    for (int round = 0; round < 10; round++) {
        meeting m = {.n_threads = 5};
        pause_ms(2); /* all fall asleep */
        alarm(60);   /* a caller that nobody wakes */
        pome_pool_run(pool, 5, 1, meet, &m);
        alarm(0);
        assert_false(atomic_load(&m.is_missed));
    }
    pome_pool_destroy(&pool);
}

typedef struct shares {
    meeting meeting;
    int by[12]; /* the thread of each chunk */
} shares;

static void note_share(void *arg, size_t begin, size_t end, int thread)
{
    shares *s = arg;
    s->by[begin] = thread;
    if (begin % 3 == 0) /* the first of a share of three */
        meet(&s->meeting, begin, end, 0);
}

/* A thread begins with a share that is its own and takes up others' when it has done it. */
static void shares_belong_to_threads(void **state)
{
    (void)state;
    pome_pool *pool;
    assert_int_equal(pome_pool_create(&pool, 4, NULL), POME_OK);
    for (int round = 0; round < 10; round++) {
        shares s = {.meeting.n_threads = 4};
        pause_ms(2); /* all fall asleep, so that none is still at another loop */
        pome_pool_run_near(pool, 12, 1, note_share, &s);
        assert_false(atomic_load(&s.meeting.is_missed));
        for (int i = 0; i < 12; i += 3)
            assert_int_equal(s.by[i], i / 3);
    }
    pome_pool_destroy(&pool);
}

typedef struct placed {
    meeting meeting;
    cpu_set_t wanted, found; /* the worker's; wanted: it takes that for itself if it is not empty */
} placed;

static void note_place(void *arg, size_t begin, size_t end, int thread)
{
    placed *p = arg;
    if (thread > 0) {
        if (CPU_COUNT(&p->wanted) > 0)
            assert_int_equal(sched_setaffinity(0, sizeof p->wanted, &p->wanted), 0);
        assert_int_equal(sched_getaffinity(0, sizeof p->found, &p->found), 0);
    }
    meet(&p->meeting, begin, end, thread);
}

/* Runs a loop from one processor while the worker sleeps, and tells where the worker may run meanwhile. */
static cpu_set_t place_beside(pome_pool *pool, int cpu, cpu_set_t wanted)
{
    placed p = {.meeting = {.n_threads = 2}, .wanted = wanted};
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    for (int i = 0; i < 3; i++) { /* a worker that did not get to sleep in time stays where it is */
        pause_ms(20);
        atomic_store(&p.meeting.n_there, 0);
        pome_pool_run(pool, 2, 1, note_place, &p);
    }
    assert_false(atomic_load(&p.meeting.is_missed));
    return p.found;
}

static void workers_leave_the_callers_processor(void **state)
{
    (void)state;
    cpu_set_t all, none, one;
    int cpus[2], n = 0;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET(i, &all))
            cpus[n++] = i;
    if (n < 2)
        skip();
    CPU_ZERO(&none);
    pome_pool *pool;
    assert_int_equal(pome_pool_create(&pool, 2, NULL), POME_OK);
    for (int i = 0; i < 4; i++) {
        cpu_set_t expected = all, found = place_beside(pool, cpus[i % 2], none);
        CPU_CLR(cpus[i % 2], &expected);
        assert_true(CPU_EQUAL(&found, &expected));
    }
    /* What somebody sets for the worker holds, even if it is the caller's processor. */
    CPU_ZERO(&one);
    CPU_SET(cpus[1], &one);
    place_beside(pool, cpus[1], one);
    for (int i = 0; i < 2; i++) {
        cpu_set_t found = place_beside(pool, cpus[i], none);
        assert_true(CPU_EQUAL(&found, &one));
    }
    pome_pool_destroy(&pool);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

/* ---- background ---- */

typedef struct count_job {
    pome_job job;
    int n, n_by_waiter; /* plain: waiting orders it */
} count_job;

static void count(void *arg, bool by_waiter)
{
    count_job *c = arg;
    c->n++;
    c->n_by_waiter += by_waiter;
}

static void jobs_are_done_once(void **state)
{
    (void)state;
    for (int has_thread = 0; has_thread < 2; has_thread++) {
        enum { N = 5, ROUNDS = 200 };
        pome_worker *worker;
        count_job jobs[N] = {{.n = 0}};
        assert_int_equal(pome_worker_create(&worker, has_thread, NULL), POME_OK);
        for (int round = 0; round < ROUNDS; round++) {
            for (int i = 0; i < N; i++) {
                pome_worker_wait(worker, &jobs[i].job); /* never submitted, or of the round before */
                assert_int_equal(jobs[i].n, round);
                jobs[i].job.fn = count;
                jobs[i].job.arg = &jobs[i];
                pome_worker_submit(worker, &jobs[i].job);
            }
            if (round % 2) { /* out of turn */
                pome_worker_wait(worker, &jobs[3].job);
                assert_int_equal(jobs[3].n, round + 1);
            }
        }
        pome_worker_destroy(&worker); /* finishes the last ones */
        for (int i = 0; i < N; i++) {
            assert_int_equal(jobs[i].n, ROUNDS);
            if (!has_thread)
                assert_int_equal(jobs[i].n_by_waiter, ROUNDS);
        }
        assert_null(worker);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_index_once_in_the_same_chunks),
        cmocka_unit_test(many_loops_in_a_row),
        cmocka_unit_test(pools_come_and_go),
        cmocka_unit_test(several_callers_at_once),
        cmocka_unit_test(thread_counts), cmocka_unit_test(idle_threads_sleep),
        cmocka_unit_test(loops_after_pauses),
        cmocka_unit_test(every_thread_is_woken), cmocka_unit_test(shares_belong_to_threads),
        cmocka_unit_test(workers_leave_the_callers_processor),
        cmocka_unit_test(jobs_are_done_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
