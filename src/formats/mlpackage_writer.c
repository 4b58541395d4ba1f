#include "formats/mlpackage_writer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"

const char *const pome_mlpackage_weights_name = "@model_path/weights/weight.bin";
const char *const pome_mlpackage_journal_name = "progress";

#define MODEL_DIR "Data/com.apple.CoreML"

static pome_status no_memory(pome_error *err)
{
    return pome_fail_nomem(err, 0, "a path");
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind, (void)at;
    return remove(path);
}

static void remove_tree(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static int remove_all_but_journal(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st, (void)kind;
    bool is_journal = at->level == 1 && strcmp(path + at->base, pome_mlpackage_journal_name) == 0;
    return at->level == 0 || is_journal ? 0 : remove(path);
}

/* The journal goes last: what a stopped process leaves can be told from a folder of somebody else. */
static void remove_work(const pome_mlpackage_writer *w)
{
    nftw(w->work_path, remove_all_but_journal, 16, FTW_DEPTH | FTW_PHYS);
    remove_tree(w->work_path);
}

/* An empty journal where there is none. */
static pome_status mark(const char *journal_path, int flags, pome_error *err)
{
    int fd = open(journal_path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | flags, 0666);
    if (fd < 0)
        return pome_fail(err, POME_ERR_IO, "%s: cannot create: %s", journal_path, strerror(errno));
    close(fd);
    return POME_OK;
}

/* Makes a folder and those above it, down from the work folder. */
static pome_status make_folders(pome_arena *arena, const char *work_path, const char *below, pome_error *err)
{
    size_t at = strlen(work_path);
    char *text = pome_arena_printf(arena, "%s/%s", work_path, below);
    if (!text)
        return no_memory(err);
    for (char *p = text + at;; p++) {
        if (*p && *p != '/')
            continue;
        char kept = *p;
        *p = '\0';
        if (mkdir(text, 0777) != 0 && errno != EEXIST)
            return pome_fail(err, POME_ERR_IO, "%s: cannot create: %s", text, strerror(errno));
        *p = kept;
        if (!kept)
            return POME_OK;
    }
}

/* A folder that is not there is more likely a slip of the pen than a wish. */
static pome_status check_parent(pome_arena *arena, const char *path, pome_error *err)
{
    const char *slash = strrchr(path, '/');
    const char *parent = slash ? pome_arena_strndup(arena, path, (size_t)(slash - path) + (slash == path)) : ".";
    if (!parent)
        return no_memory(err);
    if (pome_path_is_dir(parent))
        return POME_OK;
    return pome_fail(err, POME_ERR_IO, "%s: there is no such folder to write %s in", parent, path);
}

/* Files that a stopped process left half-written, and those that are made again anyhow. */
static pome_status remove_files(pome_arena *arena, const char *folder, const char *kept, pome_error *err)
{
    pome_status status = POME_OK;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && status == POME_OK && (e = readdir(dir));) {
        const char *path = pome_arena_printf(arena, "%s/%s", folder, e->d_name);
        if (!path)
            status = no_memory(err);
        else if (!pome_path_is_dir(path) && strcmp(e->d_name, kept) != 0 && unlink(path) != 0)
            status = pome_fail(err, POME_ERR_IO, "%s: cannot be removed: %s", path, strerror(errno));
    }
    if (dir)
        closedir(dir);
    return status;
}

static pome_status check_space(const char *folder, uint64_t needed, pome_error *err)
{
    struct statvfs fs;
    if (statvfs(folder, &fs) != 0)
        return POME_OK; /* unknown: writing will tell */
    uint64_t available = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (available < needed)
        return pome_fail(err, POME_ERR_IO, "%s: the package needs %llu MB, %llu MB are free", folder,
                         (unsigned long long)(needed / 1000000 + 1), (unsigned long long)(available / 1000000));
    return POME_OK;
}

static bool has_suffix(const char *text, const char *suffix)
{
    size_t n = strlen(text), m = strlen(suffix);
    return n >= m && memcmp(text + n - m, suffix, m) == 0;
}

/* What is written, by what tells it from somebody's documents when it is to be replaced. */
typedef struct product {
    const char *name;
    const char *below;     /* folders that are made in the work folder */
    const char *mark, *mark_suffix; /* an entry of this name, or one whose name ends so */
} product;

static const product a_package = {"package", MODEL_DIR "/weights", "Manifest.json", NULL};
static const product a_set = {"set of packages", "", NULL, "_chunk1.mlpackage"};
static const product a_compiled_model = {"compiled model", "", "model.mil", NULL};
static const product a_compiled_set = {"set of compiled models", "", NULL, ".mlmodelc"};

/* What --force may replace: a file, what we make, an empty folder; not somebody's documents. */
static pome_status check_replaceable(const char *path, const product *what, pome_error *err)
{
    bool is_empty = true, is_made = false;
    struct stat st;
    DIR *dir = lstat(path, &st) == 0 && S_ISDIR(st.st_mode) ? opendir(path) : NULL;
    if (!dir)
        return POME_OK;
    for (struct dirent *e; (e = readdir(dir));) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        is_empty = false;
        is_made |= what->mark ? strcmp(e->d_name, what->mark) == 0 : has_suffix(e->d_name, what->mark_suffix);
    }
    closedir(dir);
    if (is_empty || is_made)
        return POME_OK;
    return pome_fail(err, POME_ERR_ARG, "%s is a folder with other things than a %s, it is not replaced: choose another name",
                     path, what->name);
}

static bool is_empty_folder(const char *path)
{
    int n = 0;
    DIR *dir = opendir(path);
    while (dir && readdir(dir) && n < 3)
        n++;
    if (dir)
        closedir(dir);
    return n == 2;
}

/* What has no journal was not left by a conversion: somebody else's, whatever it is called. */
static pome_status check_ours(const pome_mlpackage_writer *w, pome_error *err)
{
    struct stat st;
    if (lstat(w->journal_path, &st) == 0 && S_ISREG(st.st_mode) &&
        (st.st_size == 0 || st.st_size == POME_MLPACKAGE_JOURNAL_BYTES))
        return POME_OK;
    if (is_empty_folder(w->work_path))
        return POME_OK;
    return pome_fail(err, POME_ERR_ARG, "%s is in the way: it was not left by a conversion, so it is not replaced; move it, "
                     "or choose another name than %s", w->work_path, w->final_path);
}

/* The work folder, made or found, locked: two conversions to one place would mix their files. */
static pome_status lock_work(pome_mlpackage_writer *w, bool *is_new, pome_error *err)
{
    for (;;) {
        struct stat opened, found;
        *is_new = mkdir(w->work_path, 0777) == 0;
        if (!*is_new && errno != EEXIST)
            return pome_fail(err, POME_ERR_IO, "%s: cannot create: %s", w->work_path, strerror(errno));
        w->lock_fd = open(w->work_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (w->lock_fd < 0 && errno == ENOENT)
            continue;
        if (w->lock_fd < 0 && (errno == ELOOP || errno == ENOTDIR))
            return check_ours(w, err);
        if (w->lock_fd < 0)
            return pome_fail(err, POME_ERR_IO, "%s: %s", w->work_path, strerror(errno));
        if (flock(w->lock_fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
            pome_mlpackage_writer_close(w);
            return pome_fail(err, POME_ERR_IO, "%s: another conversion is writing %s", w->work_path, w->final_path);
        }
        /* It may have got its final name before it was locked. */
        if (fstat(w->lock_fd, &opened) == 0 && lstat(w->work_path, &found) == 0 && opened.st_ino == found.st_ino &&
            opened.st_dev == found.st_dev)
            return POME_OK;
        pome_mlpackage_writer_close(w);
    }
}

static pome_status prepare_work(pome_mlpackage_writer *w, const char *below, bool resume, bool *is_new, pome_error *err)
{
    POME_TRY(lock_work(w, is_new, err));
    pome_status status = *is_new ? POME_OK : check_ours(w, err);
    if (status == POME_OK)
        status = mark(w->journal_path, resume ? 0 : O_TRUNC, err);
    if (status == POME_OK && !*is_new && !resume) {
        nftw(w->work_path, remove_all_but_journal, 16, FTW_DEPTH | FTW_PHYS);
        *is_new = true;
    }
    if (status == POME_OK)
        status = make_folders(w->arena, w->work_path, below, err);
    if (status == POME_OK && !*is_new)
        status = remove_files(w->arena, w->work_path, pome_mlpackage_journal_name, err);
    if (status != POME_OK)
        pome_mlpackage_writer_close(w);
    return status;
}

/* Paths, and the work folder with what is below it. *is_new: nothing was there. */
static pome_status open_work(pome_mlpackage_writer *w, const char *path, const product *what, bool force, bool resume,
                             bool *is_new, pome_arena *arena, pome_error *err)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    *w = (pome_mlpackage_writer){
        .arena = arena, .final_path = pome_arena_strndup(arena, path, len), .lock_fd = -1, .replaces = force};
    w->work_path = pome_arena_printf(arena, "%.*s.partial", (int)len, path);
    w->journal_path = w->work_path ? pome_arena_printf(arena, "%s/%s", w->work_path, pome_mlpackage_journal_name) : NULL;
    if (!w->final_path || !w->journal_path)
        return no_memory(err);
    if (pome_path_exists(w->final_path) && !force)
        return pome_fail(err, POME_ERR_ARG, "%s exists: choose another name, or --force replaces it", w->final_path);
    POME_TRY(check_replaceable(w->final_path, what, err));
    POME_TRY(check_parent(arena, w->final_path, err));
    return prepare_work(w, what->below, resume, is_new, err);
}

static pome_status check_space_of(const pome_mlpackage_writer *w, uint64_t needed, bool is_new, pome_error *err)
{
    pome_status status = check_space(w->work_path, needed, err);
    if (status != POME_OK && is_new)
        remove_work(w);
    return status;
}

static pome_status prepare_package(pome_mlpackage_writer *w, uint64_t needed_bytes, bool is_new, pome_error *err)
{
    const char *model_dir = pome_arena_printf(w->arena, "%s/" MODEL_DIR, w->work_path);
    w->weights_path = pome_arena_printf(w->arena, "%s/" MODEL_DIR "/weights/weight.bin", w->work_path);
    if (!model_dir || !w->weights_path)
        return no_memory(err);
    if (!is_new)
        POME_TRY(remove_files(w->arena, model_dir, "", err));
    return pome_path_exists(w->weights_path) ? POME_OK : check_space_of(w, needed_bytes, is_new, err);
}

pome_status pome_mlpackage_writer_open(pome_mlpackage_writer *out, const char *path, uint64_t needed_bytes, bool force,
                                       bool resume, pome_arena *arena, pome_error *err)
{
    pome_mlpackage_writer w;
    bool is_new;
    POME_TRY(open_work(&w, path, &a_package, force, resume, &is_new, arena, err));
    pome_status status = prepare_package(&w, needed_bytes, is_new, err);
    if (status == POME_OK)
        *out = w;
    else
        pome_mlpackage_writer_close(&w);
    return status;
}

pome_status pome_mlpackage_writer_open_folder(pome_mlpackage_writer *out, const char *path, uint64_t needed_bytes,
                                              bool force, bool resume, pome_arena *arena, pome_error *err)
{
    pome_mlpackage_writer w;
    bool is_new;
    POME_TRY(open_work(&w, path, &a_set, force, resume, &is_new, arena, err));
    pome_status status = is_new ? check_space_of(&w, needed_bytes, true, err) : POME_OK;
    if (status == POME_OK)
        *out = w;
    else
        pome_mlpackage_writer_close(&w);
    return status;
}

pome_status pome_mlpackage_writer_open_compiled(pome_mlpackage_writer *out, const char *path, bool is_set, bool force,
                                                pome_arena *arena, pome_error *err)
{
    bool is_new;
    return open_work(out, path, is_set ? &a_compiled_set : &a_compiled_model, force, false, &is_new, arena, err);
}

/* A UUID's text from an item's name: 128 bits of FNV-1a, marked as version 8 (the maker's own scheme). */
static void identifier_of(char out[37], const char *name)
{
    uint64_t h[2] = {14695981039346656037u, 0x6c62272e07bb0142u};
    for (int i = 0; i < 2; i++)
        for (const char *p = name; *p; p++)
            h[i] = (h[i] ^ (unsigned char)*p) * 1099511628211u;
    snprintf(out, 37, "%08x-%04x-8%03x-%04x-%012llx", (unsigned)(h[0] >> 32), (unsigned)(h[0] >> 16 & 0xffff),
             (unsigned)(h[0] & 0xfff), (unsigned)(0x8000 | (h[1] >> 48 & 0x3fff)),
             (unsigned long long)(h[1] & 0xffffffffffff));
}

static const char *manifest_text(pome_arena *arena, bool has_weights)
{
    char model[37], weights[37];
    identifier_of(model, "com.apple.CoreML/model.mlmodel");
    identifier_of(weights, "com.apple.CoreML/weights");
    static const char item[] = "        \"%s\": {\n"
                               "            \"author\": \"com.apple.CoreML\",\n"
                               "            \"description\": \"CoreML Model %s\",\n"
                               "            \"name\": \"%s\",\n"
                               "            \"path\": \"com.apple.CoreML/%s\"\n"
                               "        }%s\n";
    const char *a = pome_arena_printf(arena, item, model, "Specification", "model.mlmodel", "model.mlmodel",
                                      has_weights ? "," : "");
    const char *b = has_weights ? pome_arena_printf(arena, item, weights, "Weights", "weights", "weights", "") : "";
    if (!a || !b)
        return NULL;
    return pome_arena_printf(arena,
                             "{\n    \"fileFormatVersion\": \"1.0.0\",\n    \"itemInfoEntries\": {\n%s%s    },\n"
                             "    \"rootModelIdentifier\": \"%s\"\n}\n",
                             a, b, model);
}

pome_status pome_mlpackage_writer_finish_model(const pome_mlpackage_writer *w, pome_bytes model, bool has_weights,
                                               pome_error *err)
{
    const char *path = pome_arena_printf(w->arena, "%s/" MODEL_DIR "/model.mlmodel", w->work_path);
    const char *manifest = manifest_text(w->arena, has_weights);
    if (!path || !manifest)
        return no_memory(err);
    if (!has_weights) {
        const char *folder = pome_arena_printf(w->arena, "%s/" MODEL_DIR "/weights", w->work_path);
        if (!folder)
            return no_memory(err);
        if (rmdir(folder) != 0 && errno != ENOENT)
            return pome_fail(err, POME_ERR_IO, "%s: cannot be removed: %s", folder, strerror(errno));
    }
    POME_TRY(pome_file_write(path, model.ptr, model.len, err));
    return pome_mlpackage_writer_add_file(w, "Manifest.json", (pome_bytes){(const uint8_t *)manifest, strlen(manifest)},
                                          err);
}

pome_status pome_mlpackage_writer_add_file(const pome_mlpackage_writer *w, const char *name, pome_bytes contents,
                                           pome_error *err)
{
    const char *path = pome_arena_printf(w->arena, "%s/%s", w->work_path, name);
    return path ? pome_file_write(path, contents.ptr, contents.len, err) : no_memory(err);
}

/* Without the mark, what is left of it after a sudden end would be in the way of the next conversion, no more. */
static void mark_old(int fd)
{
    int journal = openat(fd, pome_mlpackage_journal_name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_TRUNC | O_CLOEXEC, 0666);
    if (journal >= 0)
        close(journal);
}

/* In one step where the system has it, so that there is a package at every moment. */
static pome_status replace(const pome_mlpackage_writer *w, pome_error *err)
{
    /* The old package is for a moment what the next conversion takes for its work folder: locked until it is gone. */
    int old_fd = open(w->final_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (old_fd >= 0) {
        (void)flock(old_fd, LOCK_EX | LOCK_NB);
        mark_old(old_fd);
    }
    bool is_done = renameat2(AT_FDCWD, w->work_path, AT_FDCWD, w->final_path, RENAME_EXCHANGE) == 0;
    if (is_done)
        remove_work(w);
    else if (old_fd >= 0)
        unlinkat(old_fd, pome_mlpackage_journal_name, 0);
    if (old_fd >= 0)
        close(old_fd);
    if (is_done)
        return POME_OK;
    const char *old = pome_arena_printf(w->arena, "%s.old", w->final_path);
    if (!old)
        return no_memory(err);
    if (rename(w->final_path, old) != 0)
        return pome_fail(err, POME_ERR_IO, "%s: cannot replace: %s", w->final_path, strerror(errno));
    if (rename(w->work_path, w->final_path) != 0) {
        int why = errno;
        if (rename(old, w->final_path) != 0)
            why = errno;
        return pome_fail(err, POME_ERR_IO, "%s: cannot be renamed to %s: %s", w->work_path, w->final_path, strerror(why));
    }
    remove_tree(old);
    return POME_OK;
}

pome_status pome_mlpackage_writer_commit(const pome_mlpackage_writer *w, pome_error *err)
{
    if (!w->replaces && pome_path_exists(w->final_path))
        return pome_fail(err, POME_ERR_ARG, "%s exists by now: it was not there at the beginning", w->final_path);
    if (pome_path_exists(w->final_path))
        POME_TRY(replace(w, err));
    else if (rename(w->work_path, w->final_path) != 0)
        return pome_fail(err, POME_ERR_IO, "%s: cannot be renamed to %s: %s", w->work_path, w->final_path, strerror(errno));
    /* Last, for it marks the work folder; by the descriptor, whatever is called so by now. */
    if (unlinkat(w->lock_fd, pome_mlpackage_journal_name, 0) != 0 && errno != ENOENT)
        pome_log(POME_LOG_WARN, "%s/%s: cannot be removed: %s", w->final_path, pome_mlpackage_journal_name, strerror(errno));
    return POME_OK;
}

void pome_mlpackage_writer_discard(const pome_mlpackage_writer *w)
{
    remove_work(w);
}

void pome_mlpackage_writer_close(pome_mlpackage_writer *w)
{
    if (w->lock_fd >= 0)
        close(w->lock_fd);
    w->lock_fd = -1;
}
