#include <pthread.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/pool.h"

enum { JOB_IDLE = 0, JOB_QUEUED, JOB_RUNNING, JOB_DONE };

struct pome_worker {
    pthread_mutex_t lock; /* of all that follows and of the states of jobs */
    pthread_cond_t wake, done;
    pome_job *first, *last;
    bool quit, has_thread;
    pthread_t thread;
};

/* Takes the first job out of the queue. Called with the lock. */
static pome_job *take_first(pome_worker *w)
{
    pome_job *job = w->first;
    if (!job)
        return NULL;
    w->first = job->next;
    if (!w->first)
        w->last = NULL;
    job->state = JOB_RUNNING;
    return job;
}

/* Takes a job from wherever it is in the queue. Called with the lock. */
static void take(pome_worker *w, pome_job *job)
{
    pome_job *before = NULL;
    for (pome_job *j = w->first; j != job; j = j->next)
        before = j;
    if (before)
        before->next = job->next;
    else
        w->first = job->next;
    if (w->last == job)
        w->last = before;
    job->state = JOB_RUNNING;
}

/* Runs a job that was taken. Called with the lock, which is let go meanwhile. */
static void run(pome_worker *w, pome_job *job, bool by_waiter)
{
    pthread_mutex_unlock(&w->lock);
    job->fn(job->arg, by_waiter);
    pthread_mutex_lock(&w->lock);
    job->state = JOB_DONE;
}

static void *work(void *arg)
{
    pome_worker *w = arg;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        pome_job *job = take_first(w);
        if (job) {
            run(w, job, false);
            pthread_cond_signal(&w->done);
        } else if (w->quit) {
            break;
        } else {
            pthread_cond_wait(&w->wake, &w->lock);
        }
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

pome_status pome_worker_create(pome_worker **out, bool has_thread, pome_error *err)
{
    pome_worker *w = calloc(1, sizeof *w);
    if (!w)
        return pome_fail_nomem(err, sizeof *w, "worker");
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    pthread_cond_init(&w->done, NULL);
    w->has_thread = has_thread && pthread_create(&w->thread, NULL, work, w) == 0;
    if (has_thread && !w->has_thread) {
        pome_worker_destroy(&w);
        return pome_fail(err, POME_ERR_NOMEM, "cannot start a thread: no memory for it, or too many");
    }
    *out = w;
    return POME_OK;
}

void pome_worker_destroy(pome_worker **worker)
{
    pome_worker *w = worker ? *worker : NULL;
    if (!w)
        return;
    pthread_mutex_lock(&w->lock);
    w->quit = true;
    pthread_cond_signal(&w->wake);
    for (pome_job *job; !w->has_thread && (job = take_first(w));)
        run(w, job, true);
    pthread_mutex_unlock(&w->lock);
    if (w->has_thread)
        pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->done);
    pthread_cond_destroy(&w->wake);
    pthread_mutex_destroy(&w->lock);
    free(w);
    *worker = NULL;
}

void pome_worker_submit(pome_worker *w, pome_job *job)
{
    pthread_mutex_lock(&w->lock);
    job->next = NULL;
    job->state = JOB_QUEUED;
    if (w->last)
        w->last->next = job;
    else
        w->first = job;
    w->last = job;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

void pome_worker_wait(pome_worker *w, pome_job *job)
{
    pthread_mutex_lock(&w->lock);
    if (job->state == JOB_QUEUED) {
        take(w, job);
        run(w, job, true);
    }
    while (job->state == JOB_RUNNING)
        pthread_cond_wait(&w->done, &w->lock);
    pthread_mutex_unlock(&w->lock);
}
