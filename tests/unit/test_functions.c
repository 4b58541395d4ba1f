/* Functions of one package: their plans read the same weights in memory, and sessions on them answer each for itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "pome/llm.h"
#include "runtime/model.h"

#define PACKAGE POME_SOURCE_DIR "/tests/golden/multifunction/int4-block32.mlpackage"

enum { LARGE_BYTES = 1024 };

/* Where a constant's bytes lie: its own, or of a compressed one its codes. */
static const void *bytes_of(const pome_const *k, size_t *size)
{
    const pome_const *at = k->encoded_by ? k->encoded_by->in[0]->konst : k;
    *size = at ? at->size_bytes : 0;
    return at ? at->t.data : NULL;
}

static bool reads(const pome_plan *plan, const void *bytes)
{
    const pome_block *body = plan->fn->body;
    for (uint32_t i = 0; i < body->n_ops; i++)
        for (uint32_t k = 0; k < body->ops[i]->n_in; k++) {
            size_t size = 0;
            const pome_const *konst = body->ops[i]->in[k]->konst;
            if (konst && bytes_of(konst, &size) == bytes)
                return true;
        }
    return false;
}

static void test_weights_are_shared(void **state)
{
    (void)state;
    pome_error err = {0};
    pome_model *model = NULL;
    pome_llm *llm[2] = {NULL, NULL};
    pome_llm_session *session[2] = {NULL, NULL};
    static const char *const names[] = {"base", "adapter"};
    assert_int_equal(pome_model_open(&model, PACKAGE, NULL, &err), POME_OK);
    const float *logits;
    float first[2];
    for (int i = 0; i < 2; i++) {
        pome_llm_opts opts;
        pome_llm_opts_default(&opts);
        opts.function = names[i];
        if (pome_llm_open(&llm[i], model, &opts, &err) || pome_llm_session_create(&session[i], llm[i], &err))
            fail_msg("%s", err.message);
    }
    for (int i = 0; i < 2; i++) { /* both are open */
        assert_int_equal(pome_llm_session_feed(session[i], (const int32_t[]){1, 2, 3}, 3, &logits, &err), POME_OK);
        first[i] = logits[0];
    }
    assert_true(first[0] != first[1]);

    const pome_plan *plans[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pome_model_get_plan(&plans[i], model, (uint32_t)pome_model_find_function(model, names[i]), 0, &err), POME_OK);
    const pome_block *body = plans[0]->fn->body;
    uint32_t n_large = 0, n_shared = 0;
    for (uint32_t i = 0; i < body->n_ops; i++)
        for (uint32_t k = 0; k < body->ops[i]->n_in; k++) {
            size_t size = 0;
            const pome_const *konst = body->ops[i]->in[k]->konst;
            const void *bytes = konst ? bytes_of(konst, &size) : NULL;
            if (!bytes || size < LARGE_BYTES)
                continue;
            n_large++;
            n_shared += reads(plans[1], bytes);
        }
    assert_true(n_large >= 30); /* seven matrices in each of four layers, embeddings, head */
    assert_int_equal(n_shared, n_large);
    for (int i = 0; i < 2; i++) {
        pome_llm_session_destroy(&session[i]);
        pome_llm_close(&llm[i]);
    }
    pome_model_close(&model);
}

/* All weights of the package are one mapping, however many sessions there are. */
static void test_one_mapping(void **state)
{
    (void)state;
    pome_error err = {0};
    pome_model *model = NULL;
    char line[1024];
    int n = 0;
    assert_int_equal(pome_model_open(&model, PACKAGE, NULL, &err), POME_OK);
    for (uint32_t i = 0; i < 2; i++) {
        const pome_plan *plan;
        assert_int_equal(pome_model_get_plan(&plan, model, i, -1, &err), POME_OK);
    }
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        n += strstr(line, "int4-block32.mlpackage") && strstr(line, "weight.bin");
    if (maps)
        fclose(maps);
    assert_int_equal(n, 1);
    pome_model_close(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_weights_are_shared),
        cmocka_unit_test(test_one_mapping),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
