#include "base/place_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/fs.h>
#endif

#include "base/error.h"

static bool clone_file(int to, int from)
{
#ifdef FICLONE
    return ioctl(to, FICLONE, from) == 0;
#else
    (void)to, (void)from;
    errno = ENOTSUP;
    return false;
#endif
}

static bool write_all(int fd, const char *data, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, data, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return false;
        data += done;
        n -= (size_t)done;
    }
    return true;
}

static bool copy_file(int to, int from)
{
    char buffer[1 << 15];
    for (;;) {
        ssize_t n = copy_file_range(from, NULL, to, NULL, (size_t)1 << 30, 0);
        if (n < 0 && (errno == EXDEV || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP))
            break;
        if (n <= 0)
            return n == 0;
    }
    for (;;) {
        ssize_t n = read(from, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0;
        if (!write_all(to, buffer, (size_t)n))
            return false;
    }
}

/* With both files open; *done tells which way. */
static bool fill(int to, int from, pome_placing how, pome_placing *done)
{
    if (how != POME_PLACE_COPY && clone_file(to, from)) {
        *done = POME_PLACE_CLONE;
        return true;
    }
    if (how == POME_PLACE_CLONE)
        return false;
    *done = POME_PLACE_COPY;
    return copy_file(to, from) && fsync(to) == 0;
}

static pome_status fill_new(const char *to, const char *from, int fd, pome_placing how, pome_placing *done,
                            pome_error *err)
{
    static const char *const verbs[] = {"copied", "cloned", "linked", "copied"};
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (out < 0)
        return pome_fail(err, POME_ERR_IO, "%s: cannot create: %s", to, strerror(errno));
    bool ok = fill(out, fd, how, done);
    int why = errno;
    if (close(out) != 0 && ok) {
        ok = false;
        why = errno;
    }
    if (ok)
        return POME_OK;
    unlink(to);
    return pome_fail(err, POME_ERR_IO, "%s cannot be %s to %s: %s", from, verbs[how], to, strerror(why));
}

pome_status pome_file_place(const char *to, const char *from, pome_placing how, pome_placing *done, pome_error *err)
{
    struct stat st;
    pome_placing went = how;
    int fd = open(from, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return pome_fail(err, POME_ERR_IO, "%s: %s", from, strerror(errno));
    pome_status status = POME_OK;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        status = pome_fail(err, POME_ERR_IO, "%s: not a regular file", from);
    else if (how == POME_PLACE_ANY && fill_new(to, from, fd, POME_PLACE_CLONE, &went, NULL) == POME_OK)
        status = POME_OK;
    else if (how == POME_PLACE_LINK || how == POME_PLACE_ANY) {
        went = POME_PLACE_LINK;
        if (linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW) != 0)
            status = how == POME_PLACE_ANY
                         ? fill_new(to, from, fd, POME_PLACE_COPY, &went, err)
                         : pome_fail(err, POME_ERR_IO, "%s cannot be linked to %s: %s", from, to, strerror(errno));
    } else {
        status = fill_new(to, from, fd, how, &went, err);
    }
    close(fd);
    if (status == POME_OK && done)
        *done = went;
    return status;
}
