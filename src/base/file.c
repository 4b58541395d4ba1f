#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

struct pome_mapping {
    atomic_int refs;
    void *addr;
    size_t len;
    char path[];
};

static pome_status open_regular(const char *path, int *fd, size_t *len, pome_error *err)
{
    struct stat st;
    int f = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO must not block before it is refused */
    if (f < 0)
        return pome_fail(err, POME_ERR_IO, "%s: %s", path, strerror(errno));
    if (fstat(f, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(f);
        return pome_fail(err, POME_ERR_IO, "%s: not a regular file", path);
    }
    *fd = f;
    *len = (size_t)st.st_size;
    return POME_OK;
}

/* Where the file system keeps large folios, a file is then read and mapped 2 MB at a time, where a fault maps 64 KB
 * otherwise: the page tables of gigabytes of weights take less time. Elsewhere nothing happens. */
static void ask_for_huge_pages(const pome_mapping *m)
{
#ifdef MADV_HUGEPAGE
    enum { LARGE = 8 << 20 };
    if (m->len >= LARGE)
        (void)madvise(m->addr, m->len, MADV_HUGEPAGE);
#else
    (void)m;
#endif
}

pome_status pome_mapping_open(pome_mapping **out, const char *path, pome_error *err)
{
    int fd;
    size_t len;
    POME_TRY(open_regular(path, &fd, &len, err));
    size_t path_len = strlen(path);
    pome_mapping *m = malloc(sizeof *m + path_len + 1);
    if (!m) {
        close(fd);
        return pome_fail_nomem(err, sizeof *m + path_len + 1, path);
    }
    atomic_init(&m->refs, 1);
    m->addr = NULL;
    m->len = len;
    memcpy(m->path, path, path_len + 1);
    if (len) {
        m->addr = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);
        if (m->addr == MAP_FAILED) {
            int why = errno;
            close(fd);
            free(m);
            return pome_fail(err, POME_ERR_IO, "%s: cannot map %zu bytes: %s", path, len, strerror(why));
        }
    }
    ask_for_huge_pages(m);
    close(fd);
    *out = m;
    return POME_OK;
}

pome_mapping *pome_mapping_share(pome_mapping *m)
{
    atomic_fetch_add_explicit(&m->refs, 1, memory_order_relaxed);
    return m;
}

void pome_mapping_release(pome_mapping **mapping)
{
    if (!mapping || !*mapping)
        return;
    pome_mapping *m = *mapping;
    *mapping = NULL;
    if (atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (m->len)
        munmap(m->addr, m->len);
    free(m);
}

pome_bytes pome_mapping_bytes(const pome_mapping *m)
{
    return (pome_bytes){m->addr, m->len};
}

const char *pome_mapping_path(const pome_mapping *m)
{
    return m->path;
}

static bool read_all(int fd, char *data, size_t len, size_t *got)
{
    *got = 0;
    while (*got < len) {
        ssize_t n = read(fd, data + *got, len - *got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        if (n == 0)
            break;
        *got += (size_t)n;
    }
    return true;
}

pome_status pome_file_read(const char *path, size_t max_bytes, char **data, size_t *len, pome_error *err)
{
    int fd;
    size_t size, got;
    POME_TRY(open_regular(path, &fd, &size, err));
    if (size > max_bytes) {
        close(fd);
        return pome_fail(err, POME_ERR_LIMIT, "%s: %zu bytes, at most %zu are read", path, size, max_bytes);
    }
    char *p = malloc(size + 1);
    if (!p) {
        close(fd);
        return pome_fail_nomem(err, size + 1, path);
    }
    bool ok = read_all(fd, p, size, &got);
    int why = errno;
    close(fd);
    if (!ok) {
        free(p);
        return pome_fail(err, POME_ERR_IO, "%s: %s", path, strerror(why));
    }
    p[got] = 0;
    *data = p;
    *len = got;
    return POME_OK;
}

static bool write_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = write(fd, data, len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return true;
}

pome_status pome_file_write(const char *path, const void *data, size_t len, pome_error *err)
{
    size_t n = strlen(path) + sizeof ".XXXXXX";
    char *tmp = malloc(n);
    if (!tmp)
        return pome_fail_nomem(err, n, path);
    snprintf(tmp, n, "%s.XXXXXX", path);
    int fd = mkstemp(tmp);
    if (fd < 0) {
        int why = errno;
        free(tmp);
        return pome_fail(err, POME_ERR_IO, "%s: cannot create: %s", path, strerror(why));
    }
    mode_t mask = umask(0);
    umask(mask);
    bool ok = write_all(fd, data, len) && fchmod(fd, 0666 & ~mask) == 0 && fsync(fd) == 0;
    int why = errno;
    if (close(fd) != 0 && ok) {
        ok = false;
        why = errno;
    }
    if (ok && rename(tmp, path) != 0) {
        ok = false;
        why = errno;
    }
    if (!ok)
        unlink(tmp);
    free(tmp);
    return ok ? POME_OK : pome_fail(err, POME_ERR_IO, "%s: cannot write %zu bytes: %s", path, len, strerror(why));
}

bool pome_path_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

bool pome_path_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

char *pome_path_join(const char *a, const char *b)
{
    if (b[0] == '/' || !a[0])
        return strdup(b);
    size_t la = strlen(a), lb = strlen(b);
    char *p = malloc(la + lb + 2);
    if (!p)
        return NULL;
    memcpy(p, a, la);
    if (a[la - 1] != '/')
        p[la++] = '/';
    memcpy(p + la, b, lb + 1);
    return p;
}

bool pome_bytes_is_lfs_pointer(pome_bytes b)
{
    static const char mark[] = "version https://git-lfs";
    return b.len >= sizeof mark - 1 && memcmp(b.ptr, mark, sizeof mark - 1) == 0;
}
