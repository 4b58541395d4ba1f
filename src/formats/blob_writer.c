#include "formats/blob_writer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/blob.h"

#define SENTINEL 0xDEADBEEFu
#define VERSION 2u
#define FILE_BYTES_MAX ((uint64_t)1 << 50)

pome_status pome_blob_layout_add(pome_blob_layout *layout, pome_dtype dtype, uint64_t n_elements, pome_blob_slot *out,
                                 pome_error *err)
{
    if (!pome_blob_code(dtype))
        return pome_fail(err, POME_ERR_UNSUPPORTED, "weight files cannot hold %s", pome_dtype_name(dtype));
    if (n_elements > FILE_BYTES_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "a blob of %llu elements", (unsigned long long)n_elements);
    uint64_t end = layout->n_blobs ? layout->end : POME_BLOB_HEADER_BYTES;
    uint64_t record = (end + POME_BLOB_ALIGN - 1) / POME_BLOB_ALIGN * POME_BLOB_ALIGN;
    uint64_t size = (n_elements * pome_dtype_bits(dtype) + 7) / 8;
    if (record > FILE_BYTES_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "a weight file of more than %llu bytes", (unsigned long long)record);
    *out = (pome_blob_slot){.dtype = dtype, .n_elements = n_elements, .record_offset = record,
                            .data_offset = record + POME_BLOB_RECORD_BYTES, .size_bytes = size};
    layout->end = out->data_offset + size;
    layout->n_blobs++;
    return POME_OK;
}

static void store(uint8_t *p, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        p[i] = (uint8_t)(v >> 8 * i);
}

static pome_status write_at(const pome_blob_writer *w, uint64_t at, const void *data, size_t len, pome_error *err)
{
    const uint8_t *p = data;
    for (size_t left = len; left;) {
        ssize_t n = pwrite(w->fd, p, left, (off_t)(at + (len - left)));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return pome_fail_at(err, POME_ERR_IO, at, "%s: cannot write %zu bytes at %llu: %s", w->path, len,
                                (unsigned long long)at, n < 0 ? strerror(errno) : "nothing was written");
        p += n;
        left -= (size_t)n;
    }
    return POME_OK;
}

pome_status pome_blob_writer_open(pome_blob_writer *w, const char *path, const pome_blob_layout *layout, bool resume,
                                  pome_error *err)
{
    uint8_t header[POME_BLOB_HEADER_BYTES] = {0};
    uint64_t size = layout->n_blobs ? layout->end : POME_BLOB_HEADER_BYTES;
    pome_blob_writer made = {.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | (resume ? 0 : O_TRUNC), 0666), .path = path};
    if (made.fd < 0)
        return pome_fail(err, POME_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
    store(header, layout->n_blobs, 4);
    store(header + 4, VERSION, 4);
    pome_status status = POME_OK;
    /* Space is reserved now: a full disk shows before the work, not after it. Where the file system cannot, it shows
     * later. */
    int why = posix_fallocate(made.fd, 0, (off_t)size);
    if (why != 0 && why != EOPNOTSUPP && why != EINVAL && why != ENOSYS)
        status = pome_fail(err, POME_ERR_IO, "%s: cannot reserve %llu bytes: %s", path, (unsigned long long)size,
                           strerror(why));
    else if (ftruncate(made.fd, (off_t)size) != 0)
        status = pome_fail(err, POME_ERR_IO, "%s: cannot set the size to %llu bytes: %s", path, (unsigned long long)size,
                           strerror(errno));
    else
        status = write_at(&made, 0, header, sizeof header, err);
    if (status != POME_OK) {
        close(made.fd);
        return status;
    }
    *w = made;
    return POME_OK;
}

pome_status pome_blob_writer_record(const pome_blob_writer *w, const pome_blob_slot *slot, pome_error *err)
{
    uint8_t record[POME_BLOB_RECORD_BYTES] = {0};
    uint32_t bits = pome_dtype_bits(slot->dtype);
    store(record, SENTINEL, 4);
    store(record + 4, pome_blob_code(slot->dtype), 4);
    store(record + 8, slot->size_bytes, 8);
    store(record + 16, slot->data_offset, 8);
    if (bits < 8)
        store(record + 24, slot->size_bytes * 8 - slot->n_elements * bits, 8);
    return write_at(w, slot->record_offset, record, sizeof record, err);
}

pome_status pome_blob_writer_put(const pome_blob_writer *w, const pome_blob_slot *slot, uint64_t at, const void *data,
                                 size_t len, pome_error *err)
{
    assert(at <= slot->size_bytes && len <= slot->size_bytes - at);
    return write_at(w, slot->data_offset + at, data, len, err);
}

pome_status pome_blob_writer_close(pome_blob_writer *w, pome_error *err)
{
    bool ok = fsync(w->fd) == 0;
    int why = errno;
    if (close(w->fd) != 0 && ok) {
        ok = false;
        why = errno;
    }
    w->fd = -1;
    return ok ? POME_OK : pome_fail(err, POME_ERR_IO, "%s: %s", w->path, strerror(why));
}

void pome_blob_writer_abandon(pome_blob_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
}
