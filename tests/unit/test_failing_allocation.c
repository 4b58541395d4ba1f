/* Each of the project's allocations fails once, from opening a package to a token: the call that needs it says so, or does without.
 * The linker puts these functions in front of the allocator (--wrap). What is left behind is for LeakSanitizer. */
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "pome/compile.h"
#include "pome/generate.h"
#include "pome/inspect.h"

static atomic_long n_allocations, failing; /* the one with this number fails; 0: none */

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static bool fails(void)
{
    return atomic_fetch_add(&n_allocations, 1) + 1 == atomic_load(&failing);
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}
void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *p, size_t size)
{
    return fails() ? NULL : __real_realloc(p, size);
}
void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

typedef pome_status attempt(const char *path, pome_error *err);

static pome_status answer(const char *path, pome_error *err)
{
    static const int32_t prompt[] = {5, 6, 7};
    pome_model *model = NULL;
    pome_llm *llm = NULL;
    pome_llm_session *session = NULL;
    pome_sampler *sampler = NULL;
    pome_sampler_opts opts;
    pome_sampler_opts_default(&opts);
    const float *logits;
    pome_status status = pome_model_open(&model, path, NULL, err);
    if (status == POME_OK)
        status = pome_llm_open(&llm, model, NULL, err);
    if (status == POME_OK)
        status = pome_llm_session_create(&session, llm, err);
    if (status == POME_OK)
        status = pome_llm_session_feed(session, prompt, 3, &logits, err);
    if (status == POME_OK)
        status = pome_sampler_create(&sampler, &opts, pome_llm_n_vocab(llm), err);
    if (status == POME_OK)
        assert_in_range(pome_sampler_pick(sampler, logits, prompt, 3), 0, pome_llm_n_vocab(llm) - 1);
    pome_sampler_destroy(&sampler);
    pome_llm_session_destroy(&session);
    pome_llm_close(&llm);
    pome_model_close(&model);
    return status;
}

static pome_status tokenize(const char *path, pome_error *err)
{
    static const char text[] = "Hello w\xc3\xb6rld, it's <|im_end|>";
    pome_tokenizer *tokenizer = NULL;
    pome_message message = {"user", "Hi"};
    char *chat = NULL, *decoded = NULL;
    int32_t *ids = NULL;
    size_t n_ids = 0, len = 0;
    pome_status status = pome_tokenizer_open(&tokenizer, path, err);
    if (status == POME_OK)
        status = pome_tokenizer_encode(tokenizer, text, sizeof text - 1, true, true, &ids, &n_ids, err);
    if (status == POME_OK)
        status = pome_tokenizer_decode(tokenizer, ids, n_ids, true, &decoded, &len, err);
    if (status == POME_OK)
        status = pome_tokenizer_apply_chat_template(tokenizer, &message, 1, true, &chat, &len, err);
    free(chat);
    free(decoded);
    free(ids);
    pome_tokenizer_close(&tokenizer);
    return status;
}

static pome_status describe(const char *path, pome_error *err)
{
    pome_source_info *info = NULL;
    pome_status status = pome_source_describe(&info, path, err);
    if (status == POME_OK)
        assert_true(info->is_convertible && info->n_tensors == 39);
    pome_source_info_free(&info);
    return status;
}

static char compiled_folder[] = "/tmp/pome-compiled-XXXXXX";
static char compiled_path[sizeof compiled_folder + 16];

static pome_status compile(const char *path, pome_error *err)
{
    pome_compile_opts opts;
    pome_compile_opts_default(&opts);
    opts.force = true;
    return pome_compile(path, compiled_path, &opts, NULL, err);
}

static pome_status open_model(const char *path, pome_error *err)
{
    pome_model *model = NULL;
    pome_status status = pome_model_open(&model, path, NULL, err);
    /* The interface must not silently be another one: inputs of packages are not sorted by name. */
    if (status == POME_OK)
        assert_string_equal(pome_model_describe(model)->functions[0].inputs[0].name, "inputIds");
    pome_model_close(&model);
    return status;
}

/* Every stride-th allocation of a whole attempt fails in an attempt of its own. */
static void fail_each(attempt *run, const char *path, long stride)
{
    pome_error err = {0};
    long n_failed = 0;
    atomic_store(&failing, 0);
    assert_int_equal(run(path, &err), POME_OK); /* what is made once in a process is made now */
    atomic_store(&n_allocations, 0);
    assert_int_equal(run(path, &err), POME_OK);
    long n = atomic_load(&n_allocations);
    assert_true(n > 20);
    for (long i = 1; i <= n; i += stride) {
        err = (pome_error){0};
        atomic_store(&failing, i);
        atomic_store(&n_allocations, 0);
        pome_status status = run(path, &err);
        atomic_store(&failing, 0);
        if (status != POME_OK && (status != err.code || !strstr(err.message, "memory")))
            fail_msg("%s: allocation %ld: %s", path, i, err.message);
        n_failed += status != POME_OK;
    }
    assert_true(n_failed > 10);
}

static void test_answers(void **state)
{
    (void)state;
    fail_each(answer, POME_SOURCE_DIR "/tests/golden/apple/layer1-uint4-block32-asym.mlpackage", 1);
    fail_each(answer, POME_SOURCE_DIR "/tests/golden/multifunction/int4-block32.mlpackage", 3);
}

static void test_tokenizers(void **state)
{
    (void)state;
    fail_each(tokenize, POME_SOURCE_DIR "/tests/golden/tokenizer", 1);
}

static void test_checkpoints(void **state)
{
    (void)state;
    assert_true(pome_source_is_checkpoint(POME_SOURCE_DIR "/tests/golden/checkpoint"));
    assert_false(pome_source_is_checkpoint(POME_SOURCE_DIR "/tests/golden/apple/int4-block32.mlpackage"));
    fail_each(describe, POME_SOURCE_DIR "/tests/golden/checkpoint", 1);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void test_compiled_models(void **state)
{
    (void)state;
    const char *package = POME_SOURCE_DIR "/tests/golden/apple/layer1-uint4-block32-asym.mlpackage";
    assert_non_null(mkdtemp(compiled_folder));
    snprintf(compiled_path, sizeof compiled_path, "%s/m.mlmodelc", compiled_folder);
    fail_each(compile, package, 1);
    fail_each(open_model, compiled_path, 1);
    nftw(compiled_folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_answers), cmocka_unit_test(test_tokenizers),
                                       cmocka_unit_test(test_checkpoints), cmocka_unit_test(test_compiled_models)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
