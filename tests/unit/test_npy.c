/* NumPy files: the bytes below were written by NumPy; what is written must read back, damage must be refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npy.h"

/* A file as NumPy writes it: magic, version, length, dictionary padded to a multiple of 64, elements. */
static size_t make_file(uint8_t *file, int version, const char *dictionary, const void *data, size_t len)
{
    size_t n_prefix = version == 1 ? 10 : 12, n_header = strlen(dictionary) + 1;
    n_header += (64 - (n_prefix + n_header) % 64) % 64;
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (uint8_t)version;
    file[7] = 0;
    file[8] = (uint8_t)n_header;
    file[9] = (uint8_t)(n_header >> 8);
    file[10] = file[11] = 0;
    memset(file + n_prefix, ' ', n_header);
    memcpy(file + n_prefix, dictionary, strlen(dictionary));
    file[n_prefix + n_header - 1] = '\n';
    if (len > 0)
        memcpy(file + n_prefix + n_header, data, len);
    return n_prefix + n_header + len;
}

static pome_status parse(pome_tensor *t, int version, const char *dictionary, const void *data, size_t len)
{
    uint8_t file[1024];
    pome_error err = {0};
    size_t size = make_file(file, version, dictionary, data, len);
    uint8_t *exact = malloc(size); /* so that a sanitizer sees a read past the end */
    memcpy(exact, file, size);
    pome_status status = npy_parse(t, exact, size, "test", &err);
    free(exact);
    if (status != POME_OK)
        assert_int_equal(strncmp(err.message, "test", 4), 0);
    return status;
}

static void test_c_order(void **state)
{
    (void)state;
    const float data[] = {1, 2, 3, 4, 5, 6};
    pome_tensor t = {0};
    assert_int_equal(parse(&t, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", data, sizeof data), 0);
    assert_int_equal(t.dtype, POME_DTYPE_F32);
    assert_int_equal(t.rank, 2);
    assert_int_equal(t.shape[0], 2);
    assert_int_equal(t.shape[1], 3);
    assert_memory_equal(t.data, data, sizeof data);
    pome_tensor_reset(&t);
}

static void test_fortran_order(void **state)
{
    (void)state;
    const float stored[] = {0, 3, 1, 4, 2, 5}, expected[] = {0, 1, 2, 3, 4, 5}; /* arange(6).reshape(2, 3) */
    pome_tensor t = {0};
    assert_int_equal(parse(&t, 1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", stored, sizeof stored), 0);
    assert_true(pome_tensor_is_contiguous(&t));
    assert_memory_equal(t.data, expected, sizeof expected);
    pome_tensor_reset(&t);
}

static void test_byte_order_and_versions(void **state)
{
    (void)state;
    const uint8_t big[] = {0x00, 0x01, 0xff, 0xfe, 0x12, 0x34};
    const int16_t expected[] = {1, -2, 0x1234};
    const uint8_t two[] = {7, 9};
    pome_tensor t = {0};
    assert_int_equal(parse(&t, 1, "{'descr': '>i2', 'fortran_order': False, 'shape': (3,), }", big, sizeof big), 0);
    assert_memory_equal(t.data, expected, sizeof expected);
    pome_tensor_reset(&t);
    for (int version = 2; version <= 3; version++) {
        assert_int_equal(parse(&t, version, "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }", two, 2), 0);
        assert_memory_equal(t.data, two, 2);
        pome_tensor_reset(&t);
    }
}

static void test_scalar_bool_and_empty(void **state)
{
    (void)state;
    const double scalar = 1.5;
    const uint8_t bools[] = {1, 0, 255};
    pome_tensor t = {0};
    assert_int_equal(parse(&t, 1, "{'descr': '<f8', 'fortran_order': False, 'shape': (), }", &scalar, sizeof scalar), 0);
    assert_int_equal(t.rank, 0);
    assert_true(*(double *)t.data == 1.5);
    pome_tensor_reset(&t);
    assert_int_equal(parse(&t, 1, "{'descr': '|b1', 'fortran_order': False, 'shape': (3,), }", bools, 3), 0);
    assert_int_equal(((uint8_t *)t.data)[2], 1);
    pome_tensor_reset(&t);
    assert_int_equal(parse(&t, 1, "{'descr': '<i8', 'fortran_order': False, 'shape': (0, 5), }", NULL, 0), 0);
    assert_int_equal(t.shape[1], 5);
    assert_int_equal(pome_tensor_count(&t), 0);
    pome_tensor_reset(&t);
}

static void test_refusals(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), ", /* 24 bytes wanted, 8 there */
        "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 2, }",
        "{'descr': '<f4', 'fortran_order': False, }",
        "{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '<U4', 'fortran_order': False, 'shape': (1,), }",
        "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
        "{'descr': '",
        "{'descr': '<",
        "{'descr': '', 'fortran_order': False, 'shape': (1,), }",
        "{'descr'",
        "",
    };
    const uint8_t data[8] = {0};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        pome_tensor t = {0};
        if (parse(&t, 1, bad[i], data, sizeof data) == POME_OK)
            fail_msg("accepted: %s", bad[i]);
        assert_null(t.data);
    }
}

/* Every prefix of a good file is refused, and none is read past its end. */
static void test_truncation(void **state)
{
    (void)state;
    uint8_t file[256];
    const float data[] = {1, 2, 3};
    size_t size = make_file(file, 1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }", data, sizeof data);
    for (size_t len = 0; len < size; len++) {
        pome_error err = {0};
        pome_tensor t = {0};
        uint8_t *exact = malloc(len + 1);
        memcpy(exact, file, len);
        assert_int_not_equal(npy_parse(&t, exact, len, "test", &err), POME_OK);
        free(exact);
    }
}

static void test_written_headers(void **state)
{
    (void)state;
    static const struct {
        int32_t rank;
        pome_dtype dtype;
        const char *dictionary; /* as NumPy writes it */
    } cases[] = {
        {0, POME_DTYPE_F64, "{'descr': '<f8', 'fortran_order': False, 'shape': (), }"},
        {1, POME_DTYPE_BOOL, "{'descr': '|b1', 'fortran_order': False, 'shape': (2,), }"},
        {2, POME_DTYPE_F16, "{'descr': '<f2', 'fortran_order': False, 'shape': (2, 3), }"},
        {3, POME_DTYPE_U32, "{'descr': '<u4', 'fortran_order': False, 'shape': (2, 3, 1), }"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t expected[512], zeros[64] = {0};
        pome_error err = {0};
        pome_tensor t = {0};
        void *bytes = NULL;
        size_t len = 0;
        assert_int_equal(pome_tensor_init(&t, cases[i].dtype, cases[i].rank, (int64_t[]){2, 3, 1}, &err), POME_OK);
        assert_int_equal(npy_format(&bytes, &len, &t, &err), POME_OK);
        assert_int_equal(make_file(expected, 1, cases[i].dictionary, zeros, pome_tensor_size_bytes(&t)), len);
        assert_memory_equal(bytes, expected, len);
        free(bytes);
        pome_tensor_reset(&t);
    }
}

static void test_npz_round_trip(void **state)
{
    (void)state;
    char path[] = "/tmp/pome-test-npz-XXXXXX";
    pome_error err = {0};
    pome_tensor a = {0}, b = {0};
    npz z = {0};
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    fclose(fdopen(fd, "w"));
    assert_int_equal(pome_tensor_init(&a, POME_DTYPE_I32, 2, (int64_t[]){2, 2}, &err), POME_OK);
    assert_int_equal(pome_tensor_init(&b, POME_DTYPE_BF16, 1, (int64_t[]){3}, &err), POME_OK);
    for (int i = 0; i < 4; i++)
        ((int32_t *)a.data)[i] = i * i - 3;
    ((uint16_t *)b.data)[1] = 0x3fc0; /* 1.5 */
    const char *names[] = {"first", "second/part"};
    const pome_tensor *tensors[] = {&a, &b};
    assert_int_equal(npz_write(path, names, tensors, 2, &err), POME_OK);
    assert_int_equal(npz_read(&z, path, &err), POME_OK);
    assert_int_equal(z.n, 2);
    assert_memory_equal(npz_find(&z, "first")->data, a.data, 16);
    assert_int_equal(npz_find(&z, "second/part")->dtype, POME_DTYPE_F32); /* NumPy has no bfloat16 */
    assert_true(((float *)npz_find(&z, "second/part")->data)[1] == 1.5f);
    assert_null(npz_find(&z, "third"));
    npz_reset(&z);
    FILE *file = fopen(path, "w");
    fputs("no archive", file);
    fclose(file);
    assert_int_equal(npz_read(&z, path, &err), POME_ERR_FORMAT);
    remove(path);
    assert_int_equal(npz_read(&z, path, &err), POME_ERR_IO);
    pome_tensor_reset(&a);
    pome_tensor_reset(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_c_order),         cmocka_unit_test(test_fortran_order),
        cmocka_unit_test(test_byte_order_and_versions), cmocka_unit_test(test_scalar_bool_and_empty),
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_written_headers), cmocka_unit_test(test_npz_round_trip),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
