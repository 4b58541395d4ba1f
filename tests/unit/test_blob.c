/* Weight files: a file written by coremltools' writer (tests/golden/loader), and files with one thing wrong. */
#include "unit/spec_builder.h"

#include "formats/blob.h"

static void put_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static void put_u64(uint8_t *p, uint64_t v)
{
    put_u32(p, (uint32_t)v);
    put_u32(p + 4, (uint32_t)(v >> 32));
}

/* One blob of `size` bytes at record 64, payload 128. */
typedef struct one_blob {
    uint8_t bytes[256];
} one_blob;

static pome_bytes file_of(one_blob *f, uint32_t code, uint64_t size, uint64_t padding)
{
    memset(f->bytes, 0, sizeof f->bytes);
    put_u32(f->bytes, 1);
    put_u32(f->bytes + 4, 2);
    put_u32(f->bytes + 64, 0xDEADBEEFu);
    put_u32(f->bytes + 68, code);
    put_u64(f->bytes + 72, size);
    put_u64(f->bytes + 80, 128);
    put_u64(f->bytes + 88, padding);
    return (pome_bytes){f->bytes, sizeof f->bytes};
}

enum { CODE_F16 = 1, CODE_F32 = 2, CODE_I4 = 8, CODE_U3 = 12 };

static void test_written_by_coremltools(void **state)
{
    (void)state;
    /* In the order in which make_loader_packages.py writes them; 13 elements each. */
    static const struct {
        pome_dtype dtype;
        size_t len;
        uint32_t padding;
    } expected[] = {
        {POME_DTYPE_F16, 26, 0}, {POME_DTYPE_F32, 52, 0}, {POME_DTYPE_I4, 7, 4},  {POME_DTYPE_I8, 13, 0},
        {POME_DTYPE_I16, 26, 0}, {POME_DTYPE_I32, 52, 0}, {POME_DTYPE_U1, 2, 3},  {POME_DTYPE_U2, 4, 6},
        {POME_DTYPE_U3, 5, 1},   {POME_DTYPE_U4, 7, 4},   {POME_DTYPE_U6, 10, 2}, {POME_DTYPE_U8, 13, 0},
        {POME_DTYPE_U16, 26, 0}, {POME_DTYPE_U32, 52, 0},
    };
    pome_bytes file = get_file(GOLDEN "loader/constants.mlpackage/Data/com.apple.CoreML/weights/weight.bin");
    uint32_t n_blobs = 0;
    pome_error err = {0};
    uint64_t at = 64;
    assert_int_equal(pome_blob_file_check(&n_blobs, file, "w", &err), POME_OK);
    assert_int_equal(n_blobs, sizeof expected / sizeof expected[0]);
    for (uint32_t i = 0; i < n_blobs; i++) {
        pome_blob b;
        assert_int_equal(pome_blob_read(&b, file, "w", at, &err), POME_OK);
        assert_int_equal(b.dtype, expected[i].dtype);
        assert_int_equal(b.data.len, expected[i].len);
        assert_int_equal(b.padding_bits, expected[i].padding);
        assert_int_equal(b.n_elements, 13);
        assert_ptr_equal(b.data.ptr, file.ptr + at + 64); /* a view */
        at = (at + 64 + b.data.len + 63) / 64 * 64;
    }
    free((void *)(uintptr_t)file.ptr);
}

static pome_status count_one(void *arg, const pome_blob *blob, pome_error *err)
{
    uint64_t *sum = arg;
    (void)err;
    sum[0]++;
    sum[1] += blob->data.len;
    return POME_OK;
}

static pome_status stop(void *arg, const pome_blob *blob, pome_error *err)
{
    (void)arg;
    (void)blob;
    if (err)
        err->code = POME_ERR_CANCELLED;
    return POME_ERR_CANCELLED;
}

static void test_walk(void **state)
{
    (void)state;
    pome_bytes file = get_file(GOLDEN "loader/constants.mlpackage/Data/com.apple.CoreML/weights/weight.bin");
    pome_error err = {0};
    uint64_t sum[2] = {0, 0};
    assert_int_equal(pome_blob_walk(file, "w", count_one, sum, &err), POME_OK);
    assert_int_equal(sum[0], 14);
    assert_int_equal(sum[1], 26 + 52 + 7 + 13 + 26 + 52 + 2 + 4 + 5 + 7 + 10 + 13 + 26 + 52);
    assert_int_equal(pome_blob_walk(file, "w", stop, NULL, &err), POME_ERR_CANCELLED);
    free((void *)(uintptr_t)file.ptr);
}

static void test_walk_cut_at_every_byte(void **state)
{
    (void)state;
    pome_bytes file = get_file(GOLDEN "loader/constants.mlpackage/Data/com.apple.CoreML/weights/weight.bin");
    for (size_t len = 0; len < file.len; len++) {
        uint8_t *cut = malloc(len + (len == 0)); /* so that the sanitizer sees a read beyond */
        uint64_t sum[2] = {0, 0};
        pome_error err = {0};
        memcpy(cut, file.ptr, len);
        EXPECT_ERROR(pome_blob_walk((pome_bytes){cut, len}, "weight.bin", count_one, sum, &err), POME_ERR_FORMAT, err,
                     "download incomplete?");
        free(cut);
    }
    free((void *)(uintptr_t)file.ptr);
}

/* Writers before iOS 18 left the reserved part uninitialised. */
static void test_garbage_in_reserved_fields(void **state)
{
    (void)state;
    one_blob f;
    pome_blob b;
    pome_error err = {0};
    pome_bytes file = file_of(&f, CODE_F16, 26, UINT64_MAX);
    memset(f.bytes + 8, 0xA5, 56);  /* header */
    memset(f.bytes + 88, 0xFF, 40); /* record */
    assert_int_equal(pome_blob_read(&b, file, "w", 64, &err), POME_OK);
    assert_int_equal(b.n_elements, 13);
    assert_int_equal(b.padding_bits, 0);
    file = file_of(&f, CODE_I4, 7, 4);
    memset(f.bytes + 96, 0xFF, 32);
    assert_int_equal(pome_blob_read(&b, file, "w", 64, &err), POME_OK);
    assert_int_equal(b.n_elements, 13);
}

static void test_padding_of_sub_byte_types(void **state)
{
    (void)state;
    one_blob f;
    pome_blob b;
    pome_error err = {0};
    assert_int_equal(pome_blob_read(&b, file_of(&f, CODE_I4, 7, 0), "w", 64, &err), POME_OK);
    assert_int_equal(b.n_elements, 14);
    assert_int_equal(pome_blob_read(&b, file_of(&f, CODE_U3, 5, 1), "w", 64, &err), POME_OK);
    assert_int_equal(b.n_elements, 13);
    static const uint64_t wrong[] = {3, 8, 12, UINT64_MAX, UINT64_C(0x1303f2550)};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        EXPECT_ERROR(pome_blob_read(&b, file_of(&f, CODE_I4, 7, wrong[i]), "w", 64, &err), POME_ERR_FORMAT, err,
                     "bits of padding");
    EXPECT_ERROR(pome_blob_read(&b, file_of(&f, CODE_U3, 5, 2), "w", 64, &err), POME_ERR_FORMAT, err, "whole uint3");
    EXPECT_ERROR(pome_blob_read(&b, file_of(&f, CODE_I4, 0, 4), "w", 64, &err), POME_ERR_FORMAT, err, "padding");
    EXPECT_ERROR(pome_blob_read(&b, file_of(&f, CODE_F32, 6, 0), "w", 64, &err), POME_ERR_FORMAT, err, "multiple");
}

static void test_lies(void **state)
{
    (void)state;
    one_blob f;
    pome_blob b;
    uint32_t n_blobs;
    pome_error err = {0};
    pome_bytes file = file_of(&f, CODE_F32, 128, 0);
    assert_int_equal(pome_blob_read(&b, file, "w", 64, &err), POME_OK);
    assert_int_equal(b.n_elements, 32);

    EXPECT_ERROR(pome_blob_read(&b, file_of(&f, CODE_F32, 132, 0), "w", 64, &err), POME_ERR_FORMAT, err,
                 "needs 132 bytes at 0x80, file ends after 256");
    assert_int_equal(err.offset, 72);
    EXPECT_ERROR(pome_blob_read(&b, file_of(&f, CODE_F32, UINT64_MAX - 4, 0), "w", 64, &err), POME_ERR_FORMAT, err,
                 "needs");
    file = file_of(&f, CODE_F32, 8, 0);
    put_u64(f.bytes + 80, UINT64_MAX - 7);
    EXPECT_ERROR(pome_blob_read(&b, file, "w", 64, &err), POME_ERR_FORMAT, err, "needs");
    put_u64(f.bytes + 80, 130);
    EXPECT_ERROR(pome_blob_read(&b, file, "w", 64, &err), POME_ERR_FORMAT, err, "not a multiple of the 4 bytes");

    static const uint64_t occupied[] = {0, 60, 64, 124}; /* the header's and the record's own bytes */
    for (size_t i = 0; i < sizeof occupied / sizeof occupied[0]; i++) {
        put_u64(f.bytes + 80, occupied[i]);
        EXPECT_ERROR(pome_blob_read(&b, file, "w", 64, &err), POME_ERR_FORMAT, err, "inside the file's header or its own record");
    }

    file = file_of(&f, 0, 8, 0);
    EXPECT_ERROR(pome_blob_read(&b, file, "w", 64, &err), POME_ERR_FORMAT, err, "element type 0");
    file = file_of(&f, 18, 8, 0);
    EXPECT_ERROR(pome_blob_read(&b, file, "w", 64, &err), POME_ERR_FORMAT, err, "element type 18");
    file = file_of(&f, CODE_F32, 8, 0);
    f.bytes[64] = 0;
    EXPECT_ERROR(pome_blob_read(&b, file, "w", 64, &err), POME_ERR_FORMAT, err, "wanted 0xdeadbeef");
    static const uint64_t nowhere[] = {0, 1, 63, 65, 100, 256, UINT64_MAX - 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof nowhere / sizeof nowhere[0]; i++)
        assert_int_equal(pome_blob_read(&b, file, "w", nowhere[i], &err), POME_ERR_FORMAT);

    put_u32(f.bytes + 4, 1);
    EXPECT_ERROR(pome_blob_file_check(&n_blobs, file, "w", &err), POME_ERR_FORMAT, err, "version is 1");
}

/* A payload before its record would make the walk go in circles. */
static void test_walk_ends(void **state)
{
    (void)state;
    one_blob f;
    pome_error err = {0};
    uint64_t sum[2] = {0, 0};
    pome_bytes file = file_of(&f, CODE_F32, 0, 0); /* no bytes, which may be anywhere */
    put_u32(f.bytes, UINT32_MAX);
    put_u64(f.bytes + 80, 8);
    EXPECT_ERROR(pome_blob_walk(file, "w", count_one, sum, &err), POME_ERR_FORMAT, err, "before its record");
    assert_int_equal(sum[0], 1);
}

static void test_codes(void **state)
{
    (void)state;
    static const pome_dtype by_code[] = {
        POME_DTYPE_F16, POME_DTYPE_F32, POME_DTYPE_U8, POME_DTYPE_I8, POME_DTYPE_BF16, POME_DTYPE_I16,
        POME_DTYPE_U16, POME_DTYPE_I4,  POME_DTYPE_U1, POME_DTYPE_U2, POME_DTYPE_U4,   POME_DTYPE_U3,
        POME_DTYPE_U6,  POME_DTYPE_I32, POME_DTYPE_U32, POME_DTYPE_F8E4M3FN, POME_DTYPE_F8E5M2,
    };
    for (uint32_t i = 0; i < 17; i++) {
        one_blob f;
        pome_blob b;
        pome_error err = {0};
        assert_int_equal(pome_blob_code(by_code[i]), i + 1);
        assert_int_equal(pome_blob_read(&b, file_of(&f, i + 1, 12, 0), "w", 64, &err), POME_OK);
        assert_int_equal(b.dtype, by_code[i]);
    }
    assert_int_equal(pome_blob_code(POME_DTYPE_BOOL), 0);
    assert_int_equal(pome_blob_code(POME_DTYPE_I64), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_by_coremltools),
        cmocka_unit_test(test_walk),
        cmocka_unit_test(test_walk_cut_at_every_byte),
        cmocka_unit_test(test_garbage_in_reserved_fields),
        cmocka_unit_test(test_padding_of_sub_byte_types),
        cmocka_unit_test(test_lies),
        cmocka_unit_test(test_walk_ends),
        cmocka_unit_test(test_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
