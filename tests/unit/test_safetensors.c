/* Safetensors: a good file, and files with one thing wrong. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "formats/safetensors.h"

/* A file of this header and n_data bytes of data; lies about the header's length by `more`. */
static pome_bytes make_file(uint8_t buffer[4096], const char *header, size_t n_data, size_t more)
{
    size_t len = strlen(header);
    assert_true(8 + len + n_data <= 4096);
    memset(buffer, 0, 4096);
    buffer[0] = (uint8_t)(len + more);
    buffer[1] = (uint8_t)((len + more) >> 8);
    memcpy(buffer + 8, header, len);
    for (size_t i = 0; i < n_data; i++)
        buffer[8 + len + i] = (uint8_t)i;
    return (pome_bytes){buffer, 8 + len + n_data};
}

static pome_status read_file(pome_safetensors *st, pome_bytes bytes, pome_error *err)
{
    *st = (pome_safetensors){.arena = pome_arena_create(0)};
    pome_strmap_init(&st->by_name, st->arena);
    return pome_safetensors_add(st, bytes, "file", err);
}

static void test_good(void **state)
{
    uint8_t buffer[4096];
    pome_safetensors st;
    pome_error err = {0};
    (void)state;
    pome_bytes file = make_file(buffer,
                                "{\"__metadata__\":{\"format\":\"pt\"},"
                                "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                                "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                                "\"e\":{\"dtype\":\"U32\",\"shape\":[0,5],\"data_offsets\":[16,16]}}  ",
                                16, 0);
    assert_int_equal(read_file(&st, file, &err), POME_OK);
    assert_int_equal(st.n_tensors, 3);
    const pome_safetensor *b = pome_safetensors_find(&st, "b");
    assert_non_null(b);
    assert_int_equal(b->dtype, POME_DTYPE_BF16);
    assert_int_equal(b->rank, 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(b->data.len, 12);
    assert_int_equal(b->data.ptr[0], 4);
    assert_int_equal(pome_safetensors_find(&st, "a")->data.ptr[3], 3);
    assert_int_equal(pome_safetensors_find(&st, "e")->data.len, 0);
    assert_null(pome_safetensors_find(&st, "__metadata__"));
    pome_safetensors_close(&st);
}

static void check_refused(const char *header, size_t n_data, size_t more, pome_status status, const char *says)
{
    uint8_t buffer[4096];
    pome_safetensors st;
    pome_error err = {0};
    pome_status got = read_file(&st, make_file(buffer, header, n_data, more), &err);
    if (got != status || !strstr(err.message, says))
        fail_msg("%s: %s, \"%s\", wanted %s", header, pome_status_name(got), err.message, says);
    pome_safetensors_close(&st);
}

static void test_refused(void **state)
{
    (void)state;
    check_refused("{}", 0, 100, POME_ERR_FORMAT, "header of 102 bytes");
    check_refused("[]", 0, 0, POME_ERR_FORMAT, "no object");
    check_refused("{\"a\":", 0, 0, POME_ERR_FORMAT, "header at byte");
    check_refused("{\"a\":3}", 0, 0, POME_ERR_FORMAT, "no object");
    check_refused("{\"a\":{\"dtype\":\"F33\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, 0, POME_ERR_UNSUPPORTED, "F33");
    check_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, 0, POME_ERR_FORMAT, "a size");
    check_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,9],\"data_offsets\":[0,4]}}", 4, 0,
                  POME_ERR_FORMAT, "more elements");
    check_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, 0, POME_ERR_FORMAT, "needs 8");
    check_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 4, 0, POME_ERR_FORMAT,
                  "download incomplete");
    check_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, 0, POME_ERR_FORMAT, "data_offsets");
    check_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                  "\"b\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[2,6]}}",
                  8, 0, POME_ERR_FORMAT, "overlap");
    check_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                  "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                  8, 0, POME_ERR_FORMAT, "header at byte");
}

static void test_short(void **state)
{
    pome_safetensors st;
    pome_error err = {0};
    (void)state;
    const uint8_t bytes[8] = {0};
    for (size_t n = 0; n < 8; n++) {
        assert_int_equal(read_file(&st, (pome_bytes){bytes, n}, &err), POME_ERR_FORMAT);
        pome_safetensors_close(&st);
    }
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\n";
    assert_int_equal(read_file(&st, (pome_bytes){(const uint8_t *)pointer, sizeof pointer}, &err), POME_ERR_FORMAT);
    assert_non_null(strstr(err.message, "LFS"));
    pome_safetensors_close(&st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_good), cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_short)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
