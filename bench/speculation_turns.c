/* Decoding with and without speculation, token by token in turn within one process, so that what disturbs the machine
 * disturbs both alike.
 *
 *     cc -std=c17 -O2 -Iinclude bench/speculation_turns.c -o turns -Lbuild/release -lpome -lpthread
 *     LD_LIBRARY_PATH=build/release ./turns MODEL [SPECULATE [TOKENS [TEMPERATURE]]] < prompts
 *
 * A prompt per line. For each a line of CSV: prompt, tokens, ms per token plain and with drafts, their ratio (above 1: drafts
 * gain), the same of the processor time of all threads, passes, drafted, accepted, whether the ids are the same. The threads
 * are as many as the process may use (taskset -c 0: one). */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pome/generate.h"
#include "pome/model.h"

enum { MAX_TOKENS = 1024 };

typedef struct side {
    pome_llm_session *session;
    int64_t speculate, n_prompt, n_tokens;
    const int32_t *prompt;
    float temperature;
    uint64_t seed;
    int64_t n_vocab;
    int which;
    int32_t ids[MAX_TOKENS];
    int n;
    double begun_s, spent_s, begun_cpu_s, cpu_s; /* after the first token */
    pome_generate_result result;
} side;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
static int turn;
static bool is_over[2];

static double now_s(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void wait_turn(int which)
{
    pthread_mutex_lock(&lock);
    while (turn != which && !is_over[1 - which])
        pthread_cond_wait(&turned, &lock);
    pthread_mutex_unlock(&lock);
}

static void give_turn(int which, bool over)
{
    pthread_mutex_lock(&lock);
    is_over[which] = over;
    turn = 1 - which;
    pthread_cond_broadcast(&turned);
    pthread_mutex_unlock(&lock);
}

static bool take(void *arg, int32_t id, const char *text, size_t len)
{
    side *s = arg;
    (void)text, (void)len;
    if (s->n > 0) {
        s->spent_s += now_s(CLOCK_MONOTONIC) - s->begun_s;
        s->cpu_s += now_s(CLOCK_PROCESS_CPUTIME_ID) - s->begun_cpu_s;
    }
    s->ids[s->n++] = id;
    give_turn(s->which, false);
    wait_turn(s->which);
    s->begun_s = now_s(CLOCK_MONOTONIC);
    s->begun_cpu_s = now_s(CLOCK_PROCESS_CPUTIME_ID);
    return true;
}

static void fail(const pome_error *err)
{
    fprintf(stderr, "%s\n", err->message);
    exit(1);
}

static void *answer(void *arg)
{
    side *s = arg;
    pome_error err = {0};
    pome_sampler *sampler = NULL;
    pome_sampler_opts sampling;
    pome_generate_opts opts;
    pome_sampler_opts_default(&sampling);
    sampling.temperature = s->temperature;
    sampling.top_k = 0;
    sampling.top_p = 1;
    sampling.seed = s->seed;
    pome_generate_opts_default(&opts);
    opts.max_new_tokens = s->n_tokens;
    opts.ignore_eos = true;
    opts.sink = take;
    opts.sink_arg = s;
    opts.speculate = s->speculate;
    wait_turn(s->which);
    if (pome_sampler_create(&sampler, &sampling, s->n_vocab, &err) ||
        pome_generate(s->session, sampler, s->prompt, s->n_prompt, &opts, &s->result, &err))
        fail(&err);
    give_turn(s->which, true);
    pome_sampler_destroy(&sampler);
    return NULL;
}

int main(int argc, char **argv)
{
    static char line[1 << 16];
    static side sides[2];
    pome_error err = {0};
    pome_model *model = NULL;
    pome_llm *llm = NULL;
    pome_tokenizer *tokenizer = NULL;
    int64_t speculate = argc > 2 ? atoi(argv[2]) : 16, n_tokens = argc > 3 ? atoi(argv[3]) : 256;
    if (argc < 2 || n_tokens < 2 || n_tokens > MAX_TOKENS)
        return fprintf(stderr, "usage: %s MODEL [SPECULATE [TOKENS (2 to 1024) [TEMPERATURE]]] < prompts\n", argv[0]), 2;
    if (pome_model_open(&model, argv[1], NULL, &err) || pome_llm_open(&llm, model, NULL, &err) ||
        pome_tokenizer_locate(&tokenizer, model, NULL, &err) || pome_llm_session_create(&sides[0].session, llm, &err) ||
        pome_llm_session_create(&sides[1].session, llm, &err))
        fail(&err);
    printf("prompt,tokens,plain_ms,ms,ratio,plain_cpu_ms,cpu_ms,cpu_ratio,passes,drafted,accepted,same_ids\n");
    for (int p = 0; fgets(line, sizeof line, stdin); p++) {
        int32_t *ids = NULL;
        size_t n = 0;
        pthread_t thread[2];
        line[strcspn(line, "\n")] = 0;
        if (pome_tokenizer_encode(tokenizer, line, strlen(line), true, true, &ids, &n, &err))
            fail(&err);
        for (int i = 0; i < 2; i++) {
            side *s = &sides[i];
            pome_llm_session *session = s->session;
            *s = (side){.session = session, .speculate = i ? speculate : 0, .n_prompt = (int64_t)n, .prompt = ids,
                        .n_tokens = n_tokens, .temperature = argc > 4 ? (float)atof(argv[4]) : 1.0f, .seed = 1000 + (uint64_t)p,
                        .n_vocab = pome_llm_n_vocab(llm), .which = i};
            pome_llm_session_clear(s->session);
            is_over[i] = false;
        }
        turn = p % 2;
        for (int i = 0; i < 2; i++)
            if (pthread_create(&thread[i], NULL, answer, &sides[i]))
                return 1;
        for (int i = 0; i < 2; i++)
            pthread_join(thread[i], NULL);
        const side *a = &sides[0], *b = &sides[1];
        bool same = a->n == b->n && memcmp(a->ids, b->ids, (size_t)a->n * sizeof *a->ids) == 0;
        double per_token = 1e3 / (n_tokens - 1);
        printf("%d,%d,%.3f,%.3f,%.4f,%.3f,%.3f,%.4f,%lld,%lld,%lld,%s\n", p, b->n, a->spent_s * per_token, b->spent_s * per_token,
               a->spent_s / b->spent_s, a->cpu_s * per_token, b->cpu_s * per_token, a->cpu_s / b->cpu_s,
               (long long)b->result.n_passes, (long long)b->result.n_drafted, (long long)b->result.n_accepted,
               same ? "True" : "False");
        fflush(stdout);
        free(ids);
    }
    return 0;
}
