/* Weight files written: the blobs of a file that coremltools wrote, put into a file of ours, give the same bytes. */
#include "unit/spec_builder.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "formats/blob.h"
#include "formats/blob_writer.h"

#define COREMLTOOLS GOLDEN "loader/constants.mlpackage/Data/com.apple.CoreML/weights/weight.bin"

typedef struct copying {
    pome_blob_layout layout;
    pome_blob_slot slots[32];
    pome_blob blobs[32];
} copying;

static pome_status plan_one(void *arg, const pome_blob *blob, pome_error *err)
{
    copying *c = arg;
    uint32_t i = c->layout.n_blobs;
    c->blobs[i] = *blob;
    return pome_blob_layout_add(&c->layout, blob->dtype, blob->n_elements, &c->slots[i], err);
}

static void test_as_coremltools(void **state)
{
    (void)state;
    copying c = {.layout = {0}};
    pome_bytes file = get_file(COREMLTOOLS);
    pome_error err = {0};
    pome_blob_writer w = {.fd = -1};
    char path[] = "/tmp/pome-blob-XXXXXX", *data = NULL;
    size_t len = 0;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(pome_blob_walk(file, "w", plan_one, &c, &err), POME_OK);
    assert_int_equal(c.layout.end, file.len);
    assert_int_equal(pome_blob_writer_open(&w, path, &c.layout, false, &err), POME_OK);
    for (uint32_t i = c.layout.n_blobs; i-- > 0;) { /* in any order, in pieces */
        size_t half = c.blobs[i].data.len / 2;
        assert_int_equal(c.slots[i].record_offset, c.blobs[i].record_offset);
        assert_int_equal(pome_blob_writer_put(&w, &c.slots[i], half, c.blobs[i].data.ptr + half,
                                              c.blobs[i].data.len - half, &err), POME_OK);
        assert_int_equal(pome_blob_writer_put(&w, &c.slots[i], 0, c.blobs[i].data.ptr, half, &err), POME_OK);
        assert_int_equal(pome_blob_writer_record(&w, &c.slots[i], &err), POME_OK);
    }
    assert_int_equal(pome_blob_writer_close(&w, &err), POME_OK);
    assert_int_equal(pome_file_read(path, 1 << 20, &data, &len, &err), POME_OK);
    assert_int_equal(len, file.len);
    assert_memory_equal(data, file.ptr, len);
    free(data);
    free((void *)file.ptr);
    unlink(path);
}

static void test_refused(void **state)
{
    (void)state;
    pome_blob_layout layout = {0};
    pome_blob_slot slot;
    pome_error err = {0};
    assert_int_equal(pome_blob_layout_add(&layout, POME_DTYPE_BOOL, 3, &slot, &err), POME_ERR_UNSUPPORTED);
    assert_int_equal(pome_blob_layout_add(&layout, POME_DTYPE_F16, UINT64_MAX, &slot, &err), POME_ERR_LIMIT);
    assert_int_equal(layout.n_blobs, 0);
    pome_blob_writer w = {.fd = -1};
    assert_int_equal(pome_blob_writer_open(&w, "/nowhere/at/all", &layout, false, &err), POME_ERR_IO);
    assert_int_equal(w.fd, -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_as_coremltools), cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
