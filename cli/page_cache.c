/* The page cache of a package's files. */
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"

/* nftw passes no argument. */
static struct {
    bool asks_to_drop;
    double n_pages, n_cached;
} walk;

static void count_cached(int fd, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = (size + page - 1) / page;
    void *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return;
    unsigned char *in_core = malloc(n);
    if (in_core && mincore(p, size, in_core) == 0) {
        walk.n_pages += (double)n;
        for (size_t i = 0; i < n; i++)
            walk.n_cached += in_core[i] & 1;
    }
    free(in_core);
    munmap(p, size);
}

static int visit(const char *path, const struct stat *status, int kind, struct FTW *level)
{
    (void)level;
    int fd = kind == FTW_F && status->st_size > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return 0;
    if (walk.asks_to_drop) {
        (void)fdatasync(fd); /* what is not yet on the disk stays in memory */
        (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    count_cached(fd, (size_t)status->st_size);
    close(fd);
    return 0;
}

double drop_page_cache(const char *folder, bool asks_to_drop)
{
    walk.asks_to_drop = asks_to_drop;
    walk.n_pages = walk.n_cached = 0;
    if (nftw(folder, visit, 16, 0) != 0 || walk.n_pages <= 0)
        return -1;
    return walk.n_cached / walk.n_pages;
}
