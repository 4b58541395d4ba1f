#include "convert/journal.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "formats/mlpackage_writer.h"

typedef struct record {
    uint64_t fingerprint, n_done;
    double worst_steps;
} record;
static_assert(sizeof(record) == POME_MLPACKAGE_JOURNAL_BYTES, "the size by which a work folder is known");

uint64_t pome_hash_bytes(uint64_t h, const void *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        h = (h ^ ((const uint8_t *)p)[i]) * 1099511628211u;
    return h;
}

uint64_t pome_hash_file_time(uint64_t h, const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? pome_hash_bytes(h, &st.st_mtim, sizeof st.st_mtim) : h;
}

pome_status pome_journal_open(pome_journal *out, const char *path, uint64_t fingerprint, uint32_t n_jobs, bool resume,
                              pome_error *err)
{
    record r = {0};
    pome_journal j = {.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666), .path = path, .fingerprint = fingerprint};
    if (j.fd < 0)
        return pome_fail(err, POME_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
    if (resume && pread(j.fd, &r, sizeof r, 0) == (ssize_t)sizeof r && r.fingerprint == fingerprint && r.n_done <= n_jobs) {
        j.goes_on = true;
        j.n_done = (uint32_t)r.n_done;
        j.worst_steps = r.worst_steps;
    }
    *out = j;
    return POME_OK;
}

pome_status pome_journal_note(pome_journal *j, uint32_t n_done, double worst_steps, pome_error *err)
{
    const record r = {j->fingerprint, n_done, worst_steps};
    ssize_t n = pwrite(j->fd, &r, sizeof r, 0); /* in one call: a process that is killed leaves the old or the new */
    if (n != (ssize_t)sizeof r)
        return pome_fail(err, POME_ERR_IO, "%s: cannot write: %s", j->path, n < 0 ? strerror(errno) : "no space left");
    j->n_done = n_done;
    j->worst_steps = worst_steps;
    return POME_OK;
}

void pome_journal_close(pome_journal *j)
{
    if (j->fd >= 0)
        close(j->fd);
    j->fd = -1;
}
