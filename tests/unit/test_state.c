/* States: created as zeros, cleared to zeros, large ones without touching memory that nobody used. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "runtime/state.h"

/* A model of nothing but one function with one state of n halves. */
typedef struct stub {
    pome_feature feature;
    pome_function_info function;
    pome_model model;
} stub;

static pome_state *create(stub *s, int64_t n)
{
    pome_state *state;
    pome_error err;
    s->feature = (pome_feature){.name = "cache", .dtype = POME_DTYPE_F16, .rank = 2, .shape = {n, 2}};
    s->function = (pome_function_info){.name = "main", .n_states = 1, .states = &s->feature};
    s->model = (pome_model){.info = {.n_functions = 1, .functions = &s->function}};
    assert_int_equal(pome_state_create(&state, &s->model, NULL, &err), POME_OK);
    return state;
}

static bool is_zero(const pome_tensor *t)
{
    const uint8_t *p = t->data;
    for (size_t i = 0; i < pome_tensor_size_bytes(t); i++)
        if (p[i])
            return false;
    return true;
}

static void test_clear(void **unused)
{
    (void)unused;
    static const int64_t sizes[] = {1, 7, 1000, 262143, 262144, 300001, 2000003};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        static stub s;
        pome_state *state = create(&s, sizes[i]);
        pome_tensor *t = pome_state_find(state, "cache");
        assert_ptr_equal(t, pome_state_tensor(state, 0));
        assert_true(is_zero(t));
        memset(t->data, 0xa5, pome_tensor_size_bytes(t));
        pome_state_clear(state);
        assert_true(is_zero(t));
        pome_state_destroy(&state);
        assert_null(state);
    }
}

static long resident_kib(void)
{
    long total = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &total, &resident), 2);
    fclose(f);
    return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void test_unused_rows_cost_nothing(void **unused)
{
    (void)unused;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* their allocators touch memory */
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
    skip();
#endif
#endif
    static stub s;
    long before = resident_kib();
    pome_state *state = create(&s, 64 << 20); /* 256 MiB */
    pome_tensor *t = pome_state_tensor(state, 0);
    memset(t->data, 1, 4 << 20);
    long used = resident_kib() - before;
    assert_true(used > 3 * 1024 && used < 16 * 1024);
    pome_state_clear(state);
    assert_true(resident_kib() - before < 4 * 1024);
    pome_state_destroy(&state);
}

static void test_no_such_state(void **unused)
{
    (void)unused;
    static stub s;
    pome_state *state = create(&s, 3), *none = NULL;
    pome_error err;
    assert_null(pome_state_find(state, "keyCache"));
    assert_null(pome_state_tensor(state, 1));
    assert_int_equal(pome_state_create(&none, &s.model, "other", &err), POME_ERR_ARG);
    assert_null(none);
    pome_state_destroy(&state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_clear),
        cmocka_unit_test(test_unused_rows_cost_nothing),
        cmocka_unit_test(test_no_such_state),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
