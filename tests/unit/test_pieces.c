/* Logits do not depend on how a text is shared out among passes, nor on the number of threads: to the bit, in every
 * numerics mode, whether caches are states, outputs or columns of a window. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pome/generate.h"
#include "pome/model_set.h"

enum { N_TOKENS = 45, N_STEPS = 3, N_PIECES = 8 };

/* Logits after the last tokens, which are fed one by one: [N_STEPS, n_vocab]. */
static float *logits_of(const char *path, pome_numerics numerics, int n_threads, const int64_t pieces[N_PIECES], int64_t *n_vocab)
{
    pome_error err = {0};
    pome_model_set *set;
    pome_llm *llm;
    pome_llm_session *s;
    pome_model_set_opts opts;
    const float *logits = NULL;
    int32_t ids[N_TOKENS];
    pome_model_set_opts_default(&opts);
    opts.model.numerics = numerics;
    opts.model.n_threads = n_threads;
    if (pome_model_set_open(&set, path, &opts, &err) || pome_llm_open_set(&llm, set, NULL, &err) ||
        pome_llm_session_create(&s, llm, &err))
        fail_msg("%s: %s", path, err.message);
    for (int i = 0; i < N_TOKENS; i++)
        ids[i] = (i * 37 + 11) % 90;
    *n_vocab = pome_llm_n_vocab(llm);
    float *all = malloc((size_t)(N_STEPS * *n_vocab) * sizeof *all);
    assert_non_null(all);
    for (int64_t at = 0, piece = 0; at < N_TOKENS;) {
        int64_t left = N_TOKENS - N_STEPS - at, n = left > 0 ? pieces[piece++ % N_PIECES] : 1;
        n = left > 0 && n > left ? left : n;
        if (pome_llm_session_append(s, ids + at, n, &logits, &err) != POME_OK)
            fail_msg("%s, %lld tokens at %lld: %s", path, (long long)n, (long long)at, err.message);
        at += n;
        if (left <= 0)
            memcpy(all + (at - 1 - (N_TOKENS - N_STEPS)) * *n_vocab, logits, (size_t)*n_vocab * sizeof *logits);
    }
    pome_llm_session_destroy(&s);
    pome_llm_close(&llm);
    pome_model_set_close(&set);
    return all;
}

static void compare(const char *name)
{
    static const int64_t pieces[][N_PIECES] = {
        {N_TOKENS, N_TOKENS, N_TOKENS, N_TOKENS, N_TOKENS, N_TOKENS, N_TOKENS, N_TOKENS},
        {1, 1, 1, 1, 1, 1, 1, 1},
        {7, 1, 2, 16, 3, 5, 9, 4},
    };
    char path[512];
    strcpy(path, POME_SOURCE_DIR "/tests/golden/");
    strcat(path, name);
    for (int numerics = POME_NUMERICS_EXACT; numerics <= POME_NUMERICS_FP16; numerics++) {
        float *first = NULL;
        int64_t n_vocab = 0;
        for (int k = 0; k < 3; k++) {
            float *logits = logits_of(path, (pome_numerics)numerics, 1 + k, pieces[k], &n_vocab);
            for (int64_t i = 0; first && i < N_STEPS * n_vocab; i++)
                if (memcmp(&first[i], &logits[i], sizeof *logits) != 0)
                    fail_msg("%s, numerics %d, pieces %d: logit %lld is %.9g, was %.9g", name, numerics, k, (long long)i,
                             (double)logits[i], (double)first[i]);
            if (first)
                free(logits);
            else
                first = logits;
        }
        free(first);
    }
}

static void test_pieces(void **unused)
{
    (void)unused;
    static const char *const names[] = {
        "apple/int4-block32.mlpackage", "snake/shift-fp16.mlpackage", "enumerated/stateful-int4.mlpackage",
        "explicit-kv/static-int4.mlpackage", "nocache/layer1-logits-fixed64-lut6.mlpackage", "chunks-lut4-split", "contracts/anemll",
        "contracts/coreml-llm-caches", "contracts/coreml-llm-sliding",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        compare(names[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_pieces)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
