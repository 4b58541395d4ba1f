/* src/base: errors, arena, string map, checked arithmetic, files, CPU levels, log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/checked.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/span.h"
#include "base/strmap.h"

/* ---- errors ---- */

static void error_fills_all_fields(void **state)
{
    (void)state;
    pome_error err = {0};
    assert_int_equal(pome_fail(&err, POME_ERR_FORMAT, "%s: %d", "thing", 7), POME_ERR_FORMAT);
    assert_int_equal(err.code, POME_ERR_FORMAT);
    assert_int_equal(err.offset, 0);
    assert_string_equal(err.message, "thing: 7");
    assert_int_equal(pome_fail_at(&err, POME_ERR_IO, 0x1c40, "blob"), POME_ERR_IO);
    assert_int_equal(err.offset, 0x1c40);
    assert_string_equal(err.message, "blob");
    assert_int_equal(pome_fail_nomem(&err, 12, "a list"), POME_ERR_NOMEM);
    assert_non_null(strstr(err.message, "12 bytes"));
    assert_non_null(strstr(err.message, "a list"));
}

static void error_may_be_null(void **state)
{
    (void)state;
    assert_int_equal(pome_fail(NULL, POME_ERR_ARG, "x"), POME_ERR_ARG);
    assert_int_equal(pome_fail_at(NULL, POME_ERR_LIMIT, 3, "x"), POME_ERR_LIMIT);
    assert_int_equal(pome_fail_prefix(NULL, POME_ERR_STATE, "x"), POME_ERR_STATE);
    assert_int_equal(pome_fail_nomem(NULL, 1, "x"), POME_ERR_NOMEM);
}

static void error_message_is_cut(void **state)
{
    (void)state;
    pome_error err[2];
    char longer[3 * sizeof err[0].message];
    memset(longer, 'a', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    memset(err, 0x5a, sizeof err);
    assert_int_equal(pome_fail(&err[0], POME_ERR_ARG, "%s", longer), POME_ERR_ARG);
    assert_int_equal(strlen(err[0].message), sizeof err[0].message - 1);
    assert_int_equal(pome_fail_prefix(&err[0], POME_ERR_ARG, "%s", longer), POME_ERR_ARG);
    assert_int_equal(strlen(err[0].message), sizeof err[0].message - 1);
    for (size_t i = 0; i < sizeof err[1]; i++)
        assert_int_equal(((unsigned char *)&err[1])[i], 0x5a);
}

static void error_prefix_keeps_text_and_offset(void **state)
{
    (void)state;
    pome_error err;
    (void)pome_fail_at(&err, POME_ERR_FORMAT, 99, "ends early");
    assert_int_equal(pome_fail_prefix(&err, err.code, "weight.bin"), POME_ERR_FORMAT);
    assert_string_equal(err.message, "weight.bin: ends early");
    assert_int_equal(err.offset, 99);
    assert_int_equal(err.code, POME_ERR_FORMAT);
}

static pome_status fails_second(int *reached)
{
    POME_TRY(POME_OK);
    *reached = 1;
    POME_TRY(POME_ERR_LIMIT);
    *reached = 2;
    return POME_OK;
}

static void try_forwards(void **state)
{
    (void)state;
    int reached = 0;
    assert_int_equal(fails_second(&reached), POME_ERR_LIMIT);
    assert_int_equal(reached, 1);
}

static void status_names(void **state)
{
    (void)state;
    assert_string_equal(pome_status_name(POME_OK), "POME_OK");
    assert_string_equal(pome_status_name(POME_ERR_NOMEM), "POME_ERR_NOMEM");
    assert_string_equal(pome_status_name(POME_ERR_UNSUPPORTED), "POME_ERR_UNSUPPORTED");
    assert_string_equal(pome_status_name(POME_ERR_CANCELLED), "POME_ERR_CANCELLED");
    assert_non_null(pome_status_name((pome_status)1000));
    int major, minor, patch;
    char rest;
    assert_int_equal(sscanf(pome_version(), "%d.%d.%d%c", &major, &minor, &patch, &rest), 3);
}

/* ---- arena ---- */

static void arena_gives_aligned_zeroed_disjoint_memory(void **state)
{
    (void)state;
    pome_arena *a = pome_arena_create(0);
    assert_non_null(a);
    enum { N = 400 };
    unsigned char *p[N];
    size_t size[N];
    for (int i = 0; i < N; i++) {
        size[i] = (size_t)i * 37 % 9000; /* around and above the size of a chunk, 0 included */
        p[i] = pome_arena_alloc(a, size[i]);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 16, 0);
        for (size_t k = 0; k < size[i]; k++)
            assert_int_equal(p[i][k], 0);
        memset(p[i], i & 255, size[i]);
    }
    size_t total = 0;
    for (int i = 0; i < N; i++) {
        total += size[i];
        for (size_t k = 0; k < size[i]; k++)
            assert_int_equal(p[i][k], i & 255);
    }
    assert_true(pome_arena_used(a) >= total);
    pome_arena_destroy(&a);
    assert_null(a);
    pome_arena_destroy(&a);
    pome_arena_destroy(NULL);
}

static void arena_refuses_beyond_its_limit(void **state)
{
    (void)state;
    pome_arena *a = pome_arena_create(1000);
    assert_non_null(pome_arena_alloc(a, 900));
    assert_null(pome_arena_alloc(a, 200));
    assert_null(pome_arena_alloc(a, SIZE_MAX));
    assert_null(pome_arena_alloc(a, SIZE_MAX - 8));
    assert_non_null(pome_arena_alloc(a, 16)); /* what still fits is given */
    assert_true(pome_arena_used(a) <= 1000);
    pome_arena_destroy(&a);
}

static void arena_checks_products(void **state)
{
    (void)state;
    pome_arena *a = pome_arena_create(0);
    assert_null(pome_arena_alloc_array(a, SIZE_MAX / 2 + 1, 2));
    assert_null(pome_arena_alloc_array(a, SIZE_MAX / 8, 9));
    assert_null(pome_arena_strndup(a, "x", SIZE_MAX));
    int *n = POME_NEW_ARRAY(a, int, 5);
    assert_non_null(n);
    assert_int_equal(n[4], 0);
    pome_arena_destroy(&a);
}

static void arena_strings(void **state)
{
    (void)state;
    pome_arena *a = pome_arena_create(0);
    assert_string_equal(pome_arena_strndup(a, "abcdef", 3), "abc");
    assert_string_equal(pome_arena_strndup(a, "", 0), "");
    assert_string_equal(pome_arena_printf(a, "%d-%s", 42, "x"), "42-x");
    char *big = pome_arena_printf(a, "%10000d", 1);
    assert_int_equal(strlen(big), 10000);
    pome_arena_destroy(&a);
}

/* ---- string map ---- */

static void strmap_holds_many_keys(void **state)
{
    (void)state;
    enum { N = 5000 };
    pome_arena *a = pome_arena_create(0);
    pome_strmap map;
    pome_strmap_init(&map, a);
    assert_null(pome_strmap_get(&map, pome_str_of("none")));
    static int value[N];
    char *key[N];
    for (int i = 0; i < N; i++) {
        key[i] = pome_arena_printf(a, "key%d", i);
        assert_true(pome_strmap_set(&map, pome_str_of(key[i]), &value[i]));
    }
    for (int i = 0; i < N; i++)
        assert_ptr_equal(pome_strmap_get(&map, pome_str_of(key[i])), &value[i]);
    assert_null(pome_strmap_get(&map, pome_str_of("key")));
    assert_null(pome_strmap_get(&map, pome_str_of("key5000")));
    assert_true(pome_strmap_set(&map, pome_str_of("key7"), &value[0])); /* replaces */
    assert_ptr_equal(pome_strmap_get(&map, pome_str_of("key7")), &value[0]);
    assert_int_equal(map.n_used, N);
    pome_arena_destroy(&a);
}

static void strmap_compares_length_and_bytes(void **state)
{
    (void)state;
    pome_arena *a = pome_arena_create(0);
    pome_strmap map = {.arena = a};
    int one, two, three;
    assert_true(pome_strmap_set(&map, (pome_str){"ab\0c", 4}, &one));
    assert_true(pome_strmap_set(&map, (pome_str){"ab\0d", 4}, &two));
    assert_true(pome_strmap_set(&map, (pome_str){"", 0}, &three));
    assert_ptr_equal(pome_strmap_get(&map, (pome_str){"ab\0c", 4}), &one);
    assert_ptr_equal(pome_strmap_get(&map, (pome_str){"ab\0d", 4}), &two);
    assert_ptr_equal(pome_strmap_get(&map, (pome_str){"whatever", 0}), &three);
    assert_null(pome_strmap_get(&map, (pome_str){"ab", 2}));
    pome_arena_destroy(&a);
}

static void strmap_says_when_memory_is_short(void **state)
{
    (void)state;
    pome_arena *a = pome_arena_create(2000);
    pome_strmap map = {.arena = a};
    static char key[256][12];
    int value, stored = 0;
    for (int i = 0; i < 256; i++) {
        snprintf(key[i], sizeof key[i], "%d", i);
        if (!pome_strmap_set(&map, pome_str_of(key[i]), &value))
            break;
        stored++;
    }
    assert_in_range(stored, 1, 255);
    for (int i = 0; i < stored; i++)
        assert_ptr_equal(pome_strmap_get(&map, pome_str_of(key[i])), &value);
    pome_arena_destroy(&a);
}

/* ---- checked arithmetic, spans ---- */

static void checked_arithmetic(void **state)
{
    (void)state;
    size_t s;
    int64_t i;
    assert_true(pome_mul_size(SIZE_MAX / 3, 3, &s));
    assert_int_equal(s, SIZE_MAX / 3 * 3);
    assert_false(pome_mul_size(SIZE_MAX / 2 + 1, 2, &s));
    assert_true(pome_add_size(SIZE_MAX - 1, 1, &s));
    assert_false(pome_add_size(SIZE_MAX, 1, &s));
    assert_true(pome_mul_i64(-4, INT64_MAX / 4, &i));
    assert_false(pome_mul_i64(INT64_MIN, -1, &i));
    assert_false(pome_add_i64(INT64_MAX, 1, &i));
    assert_false(pome_add_i64(INT64_MIN, -1, &i));
    assert_true(pome_add_i64(INT64_MAX, INT64_MIN, &i));
    assert_int_equal(i, -1);
}

static void spans_compare(void **state)
{
    (void)state;
    assert_true(pome_str_is((pome_str){"abc", 2}, "ab"));
    assert_false(pome_str_is((pome_str){"abc", 3}, "ab"));
    assert_true(pome_str_eq((pome_str){NULL, 0}, pome_str_of("")));
    assert_false(pome_str_eq(pome_str_of("a"), pome_str_of("b")));
}

/* ---- files ---- */

static char scratch[64];

static int make_scratch(void **state)
{
    (void)state;
    strcpy(scratch, "/tmp/pome-test-base-XXXXXX");
    return mkdtemp(scratch) == NULL;
}

static int remove_scratch(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", scratch);
    return system(command);
}

static char *in_scratch(const char *name)
{
    static char path[4][256];
    static unsigned next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "%s/%s", scratch, name);
    return p;
}

static void file_written_is_read_and_mapped(void **state)
{
    (void)state;
    pome_error err;
    const char *path = in_scratch("data.bin");
    char data[5000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 7);
    assert_int_equal(pome_file_write(path, data, sizeof data, &err), POME_OK);

    char *read = NULL;
    size_t len = 0;
    assert_int_equal(pome_file_read(path, sizeof data, &read, &len, &err), POME_OK);
    assert_int_equal(len, sizeof data);
    assert_memory_equal(read, data, len);
    assert_int_equal(read[len], 0);
    free(read);

    pome_mapping *m = NULL;
    assert_int_equal(pome_mapping_open(&m, path, &err), POME_OK);
    assert_string_equal(pome_mapping_path(m), path);
    assert_int_equal(unlink(path), 0); /* the mapping outlives the name */
    pome_mapping *second = pome_mapping_share(m);
    pome_mapping_release(&m);
    assert_null(m);
    pome_bytes b = pome_mapping_bytes(second);
    assert_int_equal(b.len, sizeof data);
    assert_memory_equal(b.ptr, data, b.len);
    pome_mapping_release(&second);
    pome_mapping_release(&second);
    pome_mapping_release(NULL);
}

static void empty_file(void **state)
{
    (void)state;
    pome_error err;
    const char *path = in_scratch("empty");
    assert_int_equal(pome_file_write(path, "", 0, &err), POME_OK);
    pome_mapping *m;
    assert_int_equal(pome_mapping_open(&m, path, &err), POME_OK);
    assert_int_equal(pome_mapping_bytes(m).len, 0);
    pome_mapping_release(&m);
    char *data;
    size_t len;
    assert_int_equal(pome_file_read(path, 0, &data, &len, &err), POME_OK);
    assert_int_equal(len, 0);
    assert_int_equal(data[0], 0);
    free(data);
}

static void missing_file_and_folder_are_named(void **state)
{
    (void)state;
    pome_error err;
    pome_mapping *m = (pome_mapping *)1;
    char *data = (char *)2;
    size_t len = 3;
    const char *path = in_scratch("not-there");
    assert_int_equal(pome_mapping_open(&m, path, &err), POME_ERR_IO);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(pome_file_read(path, 10, &data, &len, &err), POME_ERR_IO);
    assert_non_null(strstr(err.message, path));
    assert_int_equal(pome_mapping_open(&m, scratch, &err), POME_ERR_IO);
    assert_non_null(strstr(err.message, scratch));
    assert_int_equal(pome_file_read("/dev/zero", 10, &data, &len, &err), POME_ERR_IO);
    assert_int_equal(pome_file_read(path, 10, &data, &len, NULL), POME_ERR_IO);
    assert_ptr_equal(m, (pome_mapping *)1); /* untouched */
    assert_ptr_equal(data, (char *)2);
    assert_int_equal(len, 3);
}

static void larger_file_than_allowed_is_refused(void **state)
{
    (void)state;
    pome_error err;
    const char *path = in_scratch("ten");
    char *data = NULL;
    size_t len;
    assert_int_equal(pome_file_write(path, "0123456789", 10, &err), POME_OK);
    assert_int_equal(pome_file_read(path, 9, &data, &len, &err), POME_ERR_LIMIT);
    assert_non_null(strstr(err.message, "10"));
    assert_null(data);
}

static size_t count_entries(const char *folder)
{
    char command[256];
    snprintf(command, sizeof command, "ls -A '%s' | wc -l", folder);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    unsigned long n = 0;
    assert_int_equal(fscanf(f, "%lu", &n), 1);
    pclose(f);
    return n;
}

static void failed_write_leaves_nothing_and_keeps_the_old(void **state)
{
    (void)state;
    pome_error err;
    assert_int_equal(pome_file_write(in_scratch("no/such/folder/x"), "a", 1, &err), POME_ERR_IO);
    assert_non_null(strstr(err.message, "no/such/folder/x"));

    /* A folder of the target's name: the data can be written beside it but not renamed over it. */
    const char *folder = in_scratch("sub"), *target = in_scratch("sub/target");
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(mkdir(target, 0700), 0);
    assert_int_equal(pome_file_write(target, "a", 1, &err), POME_ERR_IO);
    assert_int_equal(count_entries(folder), 1);
    assert_true(pome_path_is_dir(target));

    const char *kept = in_scratch("kept");
    assert_int_equal(pome_file_write(kept, "old", 3, &err), POME_OK);
    assert_int_equal(pome_file_write(kept, "newer", 5, &err), POME_OK);
    char *data;
    size_t len;
    assert_int_equal(pome_file_read(kept, 100, &data, &len, &err), POME_OK);
    assert_string_equal(data, "newer");
    free(data);
    struct stat st;
    mode_t mask = umask(0);
    umask(mask);
    assert_int_equal(stat(kept, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0666 & ~mask);
}

static void paths(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"a", "/b", "/b"}, {"", "b", "b"}, {"/", "b", "/b"}, {"a/b", "c/d", "a/b/c/d"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *p = pome_path_join(cases[i][0], cases[i][1]);
        assert_string_equal(p, cases[i][2]);
        free(p);
    }
    assert_true(pome_path_exists(scratch));
    assert_true(pome_path_is_dir(scratch));
    assert_false(pome_path_exists(in_scratch("not-there")));
    assert_false(pome_path_is_dir(in_scratch("not-there")));
}

static void lfs_pointer_is_recognized(void **state)
{
    (void)state;
    static const char text[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n";
    assert_true(pome_bytes_is_lfs_pointer((pome_bytes){(const uint8_t *)text, sizeof text - 1}));
    assert_false(pome_bytes_is_lfs_pointer((pome_bytes){(const uint8_t *)text, 10}));
    assert_false(pome_bytes_is_lfs_pointer((pome_bytes){NULL, 0}));
    assert_false(pome_bytes_is_lfs_pointer((pome_bytes){(const uint8_t *)"version 2 of something entirely else", 36}));
}

/* ---- CPU ---- */

static void cpu_level_names_round_trip(void **state)
{
    (void)state;
    for (int i = 0; i < POME_CPU_COUNT; i++) {
        pome_cpu_level level = POME_CPU_COUNT;
        assert_true(pome_cpu_level_parse(pome_cpu_level_name((pome_cpu_level)i), &level));
        assert_int_equal(level, i);
    }
    pome_cpu_level level = POME_CPU_AVX2;
    assert_false(pome_cpu_level_parse("sse9", &level));
    assert_false(pome_cpu_level_parse("", &level));
    assert_int_equal(level, POME_CPU_AVX2);
}

static void cpu_level_can_only_be_lowered(void **state)
{
    (void)state;
    char saved[64];
    const char *old = getenv("POME_CPU");
    snprintf(saved, sizeof saved, "%s", old ? old : "");
    pome_cpu_level best = pome_cpu_detect();
    for (int i = 0; i < POME_CPU_COUNT; i++) {
        setenv("POME_CPU", pome_cpu_level_name((pome_cpu_level)i), 1);
        pome_cpu_level got = pome_cpu_level_get();
        assert_true(pome_cpu_level_available(got));
        assert_true(got <= best);
        if (pome_cpu_level_available((pome_cpu_level)i))
            assert_int_equal(got, i);
    }
    setenv("POME_CPU", "generic", 1);
    assert_int_equal(pome_cpu_level_get(), POME_CPU_GENERIC);
    setenv("POME_CPU", "nonsense", 1);
    assert_int_equal(pome_cpu_level_get(), best);
    unsetenv("POME_CPU");
    assert_int_equal(pome_cpu_level_get(), best);
    if (saved[0])
        setenv("POME_CPU", saved, 1);
#if defined(__aarch64__)
    assert_true(best >= POME_CPU_NEON);
    assert_false(pome_cpu_level_available(POME_CPU_AVX2));
#elif defined(__x86_64__)
    assert_false(pome_cpu_level_available(POME_CPU_NEON));
#endif
    assert_true(pome_cpu_level_available(POME_CPU_GENERIC));
    assert_in_range(pome_cpu_count(), 1, sysconf(_SC_NPROCESSORS_CONF));
}

/* ---- log ---- */

static int n_logged;
static char logged[32];

static void remember(void *arg, pome_log_level level, const char *message)
{
    assert_ptr_equal(arg, logged);
    assert_int_equal(level, POME_LOG_WARN);
    snprintf(logged, sizeof logged, "%s", message);
    n_logged++;
}

static void log_reaches_the_hook(void **state)
{
    (void)state;
    pome_log(POME_LOG_WARN, "lost");
    pome_log_set(remember, logged);
    pome_log(POME_LOG_WARN, "%d of %s", 3, "x");
    pome_log_set(NULL, NULL);
    pome_log(POME_LOG_WARN, "lost");
    assert_int_equal(n_logged, 1);
    assert_string_equal(logged, "3 of x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(error_fills_all_fields),
        cmocka_unit_test(error_may_be_null),
        cmocka_unit_test(error_message_is_cut),
        cmocka_unit_test(error_prefix_keeps_text_and_offset),
        cmocka_unit_test(try_forwards),
        cmocka_unit_test(status_names),
        cmocka_unit_test(arena_gives_aligned_zeroed_disjoint_memory),
        cmocka_unit_test(arena_refuses_beyond_its_limit),
        cmocka_unit_test(arena_checks_products),
        cmocka_unit_test(arena_strings),
        cmocka_unit_test(strmap_holds_many_keys),
        cmocka_unit_test(strmap_compares_length_and_bytes),
        cmocka_unit_test(strmap_says_when_memory_is_short),
        cmocka_unit_test(checked_arithmetic),
        cmocka_unit_test(spans_compare),
        cmocka_unit_test(file_written_is_read_and_mapped),
        cmocka_unit_test(empty_file),
        cmocka_unit_test(missing_file_and_folder_are_named),
        cmocka_unit_test(larger_file_than_allowed_is_refused),
        cmocka_unit_test(failed_write_leaves_nothing_and_keeps_the_old),
        cmocka_unit_test(paths),
        cmocka_unit_test(lfs_pointer_is_recognized),
        cmocka_unit_test(cpu_level_names_round_trip),
        cmocka_unit_test(cpu_level_can_only_be_lowered),
        cmocka_unit_test(log_reaches_the_hook),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
