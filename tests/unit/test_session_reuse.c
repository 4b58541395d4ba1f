/* What a session keeps between feeds changes no logits: timelines that share beginnings, are cut back or left behind, in
 * every kind of contract, against sessions that never saw anything else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "pome/llm.h"
#include "pome/model_set.h"

enum { N_ROUNDS = 12, N_IDS_MAX = 90, N_VOCAB_MAX = 2048 };

static uint64_t random_state;

static int64_t below(int64_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((random_state >> 33) % (uint64_t)n);
}

typedef struct engine {
    const char *name;
    pome_model_set *models;
    pome_llm *llm;
    int64_t n_vocab, n_room;
} engine;

static void open_engine(engine *e, const char *name)
{
    char path[512];
    pome_error err = {0};
    pome_model_set_opts opts;
    pome_model_set_opts_default(&opts);
    opts.model.n_threads = 2;
    snprintf(path, sizeof path, "%s/tests/golden/%s", POME_SOURCE_DIR, name);
    *e = (engine){.name = name};
    if (pome_model_set_open(&e->models, path, &opts, &err) || pome_llm_open_set(&e->llm, e->models, NULL, &err))
        fail_msg("%s: %s", name, err.message);
    e->n_vocab = pome_llm_n_vocab(e->llm);
    e->n_room = pome_llm_n_context(e->llm) < N_IDS_MAX ? pome_llm_n_context(e->llm) : N_IDS_MAX;
    assert_true(e->n_vocab <= N_VOCAB_MAX);
}

/* How far passes over other numbers of rows may round another way. */
static void compare(const engine *e, int round, const float *now, const int32_t *ids, int64_t n)
{
    pome_llm_session *fresh;
    const float *wanted;
    pome_error err = {0};
    double largest = 0, off = 0;
    assert_int_equal(pome_llm_session_create(&fresh, e->llm, &err), POME_OK);
    if (pome_llm_session_feed(fresh, ids, n, &wanted, &err))
        fail_msg("%s: %s", e->name, err.message);
    for (int64_t i = 0; i < e->n_vocab; i++) {
        double w = (double)wanted[i], d = fabs((double)now[i] - w);
        if (isinf(w) && now[i] == wanted[i])
            continue;
        largest = fabs(w) > largest ? fabs(w) : largest;
        off = !(d <= off) ? d : off;
    }
    if (!(off <= 2e-3 * largest + 1e-3))
        fail_msg("%s, round %d, %lld tokens: off by %g of %g", e->name, round, (long long)n, off, largest);
    pome_llm_session_destroy(&fresh);
}

/* Cuts a session back where that is possible. What was there before belongs to the last token no more. */
static int64_t cut_back(const engine *e, pome_llm_session *s, int64_t n)
{
    pome_error err;
    int64_t to = n - 1 - (n > 2 ? below(n - 2) : 0);
    (void)e;
    return n > 1 && pome_llm_session_rewind(s, to, &err) == POME_OK ? to : n;
}

static void test_timelines(const char *name)
{
    engine e;
    pome_llm_session *s;
    pome_error err = {0};
    int32_t ids[N_IDS_MAX];
    const float *logits = NULL;
    int64_t n = 0, n_reused = 0;
    open_engine(&e, name);
    random_state = 3;
    assert_int_equal(pome_llm_session_create(&s, e.llm, &err), POME_OK);
    for (int round = 0; round < N_ROUNDS; round++) {
        int64_t n_shared = round % 3 == 1 ? 0 : round % 3 == 2 ? n : below(n + 1), n_before = n;
        if (round % 4 == 3 && n > 1) { /* the beginning of what is there, maybe after cutting back to just that */
            n = cut_back(&e, s, n);
            n = n == n_before ? 1 + below(n) : n;
        } else {
            n_shared = n_shared < e.n_room ? n_shared : 0;
            n = n_shared + 1 + below(e.n_room - n_shared);
            for (int64_t i = n_shared; i < n; i++)
                ids[i] = (int32_t)below(e.n_vocab);
        }
        if (pome_llm_session_feed(s, ids, n, &logits, &err))
            fail_msg("%s: %s", name, err.message);
        assert_int_equal(pome_llm_session_n_tokens(s), n);
        assert_true(pome_llm_session_n_reused(s) <= n);
        n_reused += pome_llm_session_n_reused(s);
        compare(&e, round, logits, ids, n);
    }
    pome_llm_session_destroy(&s);
    pome_llm_close(&e.llm);
    pome_model_set_close(&e.models);
    if (strstr(name, "apple") && n_reused == 0)
        fail_msg("%s: nothing was reused", name);
}

static void test_packages(void **unused)
{
    (void)unused;
    static const char *const names[] = {"apple/int4-block32.mlpackage", "enumerated/stateful-int4.mlpackage", "snake/shift-fp16.mlpackage",
                                        "explicit-kv/static-int4.mlpackage", "multifunction/int4-block32.mlpackage",
                                        "nocache/scores-range-fp32-tied.mlpackage"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        test_timelines(names[i]);
}

static void test_sets(void **unused)
{
    (void)unused;
    static const char *const names[] = {"chunks-lut4-split", "contracts/anemll", "contracts/coreml-llm-caches", "contracts/coreml-llm-sliding"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        test_timelines(names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_packages), cmocka_unit_test(test_sets)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
