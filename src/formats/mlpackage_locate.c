/* From a user's path to a package or compiled model. People pass the folder, a file inside it, or something else altogether; what
 * it is and what to do is said in one sentence. */
#include "formats/mlpackage.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "formats/manifest.h"
#include "formats/mlmodelc.h"

#define MANIFEST_MAX_BYTES (1u << 20)
#define PARENTS_MAX 6 /* Data/com.apple.CoreML/weights/weight.bin is four below the package */

static pome_status no_memory(pome_error *err)
{
    return pome_fail_nomem(err, 0, "a path");
}

static char *child_of(pome_arena *arena, const char *dir, const char *name)
{
    return pome_arena_printf(arena, "%s/%s", dir, name);
}

static bool has_child(pome_arena *arena, const char *dir, const char *name)
{
    const char *path = child_of(arena, dir, name);
    return path && pome_path_exists(path);
}

static bool has_suffix(const char *s, const char *suffix)
{
    size_t a = strlen(s), b = strlen(suffix);
    return a >= b && strcmp(s + a - b, suffix) == 0;
}

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* The path without its last component; NULL at the root. */
static char *parent_of(pome_arena *arena, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return NULL;
    return pome_arena_strndup(arena, path, (size_t)(slash - path));
}

/* Absolute, without "." and ".."; by text alone, because what lies in the Hub cache is reached through links and
 * following them would lead out of the package. */
static char *absolute(pome_arena *arena, const char *path)
{
    char cwd[4096];
    if (path[0] != '/' && !getcwd(cwd, sizeof cwd))
        return NULL;
    const char *full = path[0] == '/' ? path : child_of(arena, cwd, path);
    char *out = full ? pome_arena_alloc(arena, strlen(full) + 2) : NULL;
    if (!out)
        return NULL;
    size_t n = 0;
    for (const char *p = full; *p;) {
        while (*p == '/')
            p++;
        size_t len = strcspn(p, "/");
        if (len == 2 && memcmp(p, "..", 2) == 0) {
            while (n > 0 && out[--n] != '/')
                ;
        } else if (len && !(len == 1 && *p == '.')) {
            out[n++] = '/';
            memcpy(out + n, p, len);
            n += len;
        }
        p += len;
    }
    out[n] = '\0';
    return out;
}

/* As a shell wants it: as it is, or in single quotes. */
static const char *quoted(pome_arena *arena, const char *s)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+=:,@%";
    if (s[0] && s[strspn(s, plain)] == '\0')
        return s;
    char *out = pome_arena_alloc(arena, strlen(s) * 4 + 3), *p = out;
    if (!out)
        return s;
    *p++ = '\'';
    for (; *s; s++) {
        if (*s == '\'') {
            memcpy(p, "'\\''", 4);
            p += 4;
        } else {
            *p++ = *s;
        }
    }
    *p = '\'';
    return out;
}

static pome_status refuse_checkpoint(const char *what, const char *source, pome_arena *arena, pome_error *err)
{
    const char *full = absolute(arena, source);
    const char *name = base_name(full && full[0] ? full : source);
    size_t len = strlen(name);
    if (has_suffix(name, ".gguf"))
        len -= strlen(".gguf");
    const char *target = pome_arena_printf(arena, "%.*s.mlpackage", (int)(len < 200 ? len : 200), name);
    if (!target)
        return no_memory(err);
    return pome_fail(err, POME_ERR_UNSUPPORTED, "%s is %s, not a Core ML package: run `pome convert %s %s` first",
                     source, what, quoted(arena, source), quoted(arena, target));
}

static pome_status take_compiled(pome_mlpackage_place *out, const char *folder, pome_arena *arena, pome_error *err)
{
    const char *text = child_of(arena, folder, "model.mil");
    if (!text)
        return no_memory(err);
    *out = (pome_mlpackage_place){.root = folder, .model_file = text, .is_compiled = true};
    return POME_OK;
}

/* The compiled model that a path lies in, which is one or, for what is in weights/ or analytics/, two levels up. */
static const char *compiled_around(pome_arena *arena, const char *path)
{
    const char *below = absolute(arena, path);
    const char *at = below && !has_suffix(below, ".mlmodel") ? parent_of(arena, below) : NULL;
    if (at && (strcmp(base_name(at), "weights") == 0 || strcmp(base_name(at), "analytics") == 0))
        at = parent_of(arena, at);
    return at && pome_mlmodelc_detect(at) ? at : NULL;
}

/* ---- folders ---- */

typedef struct listing {
    uint32_t n_packages, n_safetensors, n_gguf; /* packages and compiled models */
    char packages[400]; /* names, comma-separated, cut */
    char package[256];  /* the last one */
    char gguf[256];     /* likewise */
} listing;

static void note_entry(listing *l, const char *name)
{
    if (has_suffix(name, ".mlpackage") || has_suffix(name, ".mlmodelc")) {
        size_t used = strlen(l->packages), len = strlen(name);
        if (used + len + 3 < sizeof l->packages) {
            memcpy(l->packages + used, ", ", 2);
            memcpy(l->packages + used + (used ? 2 : 0), name, len + 1);
        }
        if (strlen(name) < sizeof l->package)
            memcpy(l->package, name, strlen(name) + 1);
        l->n_packages++;
    } else if (has_suffix(name, ".safetensors") || has_suffix(name, ".safetensors.index.json") ||
               strcmp(name, "pytorch_model.bin") == 0) {
        l->n_safetensors++;
    } else if (has_suffix(name, ".gguf") && strlen(name) < sizeof l->gguf) {
        memcpy(l->gguf, name, strlen(name) + 1);
        l->n_gguf++;
    }
}

static listing list_folder(const char *path)
{
    listing l = {0};
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        note_entry(&l, entries[i]->d_name);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return l;
}

/* What one level further down holds models, for people who name the folder around it: " (but its folder X holds 6 models:
 * name that)", or nothing. */
static const char *hint_below(pome_arena *arena, const char *path)
{
    const char *hint = "";
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name, *below = name[0] == '.' ? NULL : child_of(arena, path, name);
        if (!*hint && below && pome_path_is_dir(below)) {
            listing l = list_folder(below);
            if (has_child(arena, below, "Manifest.json") || pome_mlmodelc_detect(below))
                hint = pome_arena_printf(arena, "; its folder %s is one: name that", below);
            else if (l.n_packages > 0)
                hint = pome_arena_printf(arena, "; its folder %s holds %u model%s: name that", below, l.n_packages,
                                         l.n_packages == 1 ? "" : "s");
            hint = hint ? hint : "";
        }
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return hint;
}

/* A folder that is no package: one that holds a single package stands for it, as a downloaded repository does. */
static pome_status locate_in_folder(pome_mlpackage_place *out, const char *path, pome_arena *arena, pome_error *err)
{
    if (has_suffix(path, ".mlpackage") || has_child(arena, path, "Data/com.apple.CoreML"))
        return pome_fail(err, POME_ERR_FORMAT, "%s: Manifest.json is missing (copied or downloaded only in part?)",
                         path);
    listing l = list_folder(path);
    const char *package = l.n_packages == 1 ? child_of(arena, path, l.package) : NULL;
    if (package) {
        pome_log(POME_LOG_INFO, "%s holds one model: taking %s", path, package);
        return pome_mlpackage_locate(out, package, arena, err);
    }
    if (l.n_packages)
        return pome_fail(err, POME_ERR_ARG, "%s holds %u models (%s): name one of them", path, l.n_packages,
                         l.packages);
    if (l.n_safetensors || (has_child(arena, path, "config.json") && !l.n_gguf))
        return refuse_checkpoint("a Hugging Face checkpoint", path, arena, err);
    if (l.n_gguf) {
        const char *file = child_of(arena, path, l.gguf);
        return file ? refuse_checkpoint("a GGUF file", file, arena, err) : no_memory(err);
    }
    return pome_fail(err, POME_ERR_FORMAT,
                     "%s is not a Core ML package: it has no Manifest.json (nor model.mil, as a compiled model has)%s",
                     path, hint_below(arena, path));
}

/* ---- files ---- */

static bool starts_with(pome_bytes b, const char *magic)
{
    size_t n = strlen(magic);
    return b.len >= n && memcmp(b.ptr, magic, n) == 0;
}

/* Whether a file that lies in no package can be opened as a model by itself. */
static pome_status check_bare_file(const char *path, pome_bytes b, pome_arena *arena, pome_error *err)
{
    pome_coreml_kind kind;
    const char *folder = parent_of(arena, path), *name = base_name(path);
    if (!folder)
        folder = ".";
    if (pome_bytes_is_lfs_pointer(b))
        return pome_fail(err, POME_ERR_FORMAT,
                         "%s is a Git LFS pointer: the file itself was never downloaded (run `git lfs pull`)", path);
    if (starts_with(b, "GGUF"))
        return refuse_checkpoint("a GGUF file", path, arena, err);
    if (starts_with(b, "PK\3\4"))
        return pome_fail(err, POME_ERR_UNSUPPORTED, "%s is a ZIP archive: unpack it and name the package in it", path);
    if (has_suffix(name, ".safetensors") || has_suffix(name, ".safetensors.index.json") ||
        ((strcmp(name, "config.json") == 0 || strcmp(name, "tokenizer.json") == 0) &&
         list_folder(folder).n_safetensors))
        return refuse_checkpoint("a Hugging Face checkpoint", folder, arena, err);
    if (has_suffix(name, ".mlmodel"))
        return POME_OK;
    if (pome_coreml_peek(&kind, b, NULL) == POME_OK && kind.type_name && kind.specification_version > 0)
        return POME_OK;
    return pome_fail(err, POME_ERR_FORMAT, "%s is neither a Core ML package nor a file of one", path);
}

static pome_status locate_bare(pome_mlpackage_place *out, const char *path, pome_arena *arena, pome_error *err)
{
    pome_mapping *mapping;
    POME_TRY(pome_mapping_open(&mapping, path, err));
    pome_status status = check_bare_file(path, pome_mapping_bytes(mapping), arena, err);
    pome_mapping_release(&mapping);
    if (status == POME_OK)
        *out = (pome_mlpackage_place){.model_file = path};
    return status;
}

/* ---- packages ---- */

static pome_status read_manifest(pome_manifest *out, const char *root, pome_arena *arena, pome_error *err)
{
    char *text;
    size_t len;
    const char *path = child_of(arena, root, "Manifest.json");
    if (!path)
        return no_memory(err);
    POME_TRY(pome_file_read(path, MANIFEST_MAX_BYTES, &text, &len, err));
    pome_bytes bytes = {(const uint8_t *)text, len};
    pome_status status =
        pome_bytes_is_lfs_pointer(bytes)
            ? pome_fail(err, POME_ERR_FORMAT, "Manifest.json is a Git LFS pointer: run `git lfs pull`")
            : pome_manifest_parse(out, bytes, arena, err);
    free(text);
    return status == POME_OK ? POME_OK : pome_fail_prefix(err, status, "%s", root);
}

static pome_status locate_root(pome_mlpackage_place *out, const char *root, pome_arena *arena, pome_error *err)
{
    pome_manifest manifest;
    pome_mlpackage_place place = {.root = root};
    POME_TRY(read_manifest(&manifest, root, arena, err));
    for (size_t i = 0; i < manifest.n_items; i++) {
        const pome_manifest_item *item = &manifest.items[i];
        const char *path = pome_arena_printf(arena, "%s/Data/%s", root, item->path);
        if (!path)
            return no_memory(err);
        if (!pome_path_exists(path) && item == manifest.root)
            return pome_fail(err, POME_ERR_FORMAT,
                             "%s: Data/%s, the model, is missing (copied or downloaded only in part?)", root,
                             item->path);
        if (!pome_path_exists(path)) /* an empty weights folder is often lost on the way; the program may need none */
            pome_log(POME_LOG_DEBUG, "%s: Data/%s, which Manifest.json names, is missing", root, item->path);
        if (item == manifest.root)
            place.model_file = path;
    }
    if (pome_path_is_dir(place.model_file))
        return pome_fail(err, POME_ERR_FORMAT, "%s: the root model Data/%s is a folder, wanted a model file", root,
                         manifest.root->path);
    *out = place;
    return POME_OK;
}

/* The package around a path: a parent with a manifest, reached through Data or being the manifest's folder. */
static const char *package_around(pome_arena *arena, const char *path)
{
    const char *below = absolute(arena, path);
    for (int i = 0; below && i < PARENTS_MAX; i++) {
        const char *parent = parent_of(arena, below);
        const char *name = base_name(below);
        if (parent && (strcmp(name, "Data") == 0 || (i == 0 && strcmp(name, "Manifest.json") == 0)) &&
            has_child(arena, parent, "Manifest.json"))
            return parent;
        below = parent;
    }
    return NULL;
}

static pome_status refuse_absent(const char *path, pome_error *err)
{
    char target[400];
    ssize_t n = readlink(path, target, sizeof target - 1);
    if (n < 0)
        return pome_fail(err, POME_ERR_IO, "%s: no such file or folder", path);
    target[n] = '\0';
    return pome_fail(err, POME_ERR_IO, "%s is a link to %s, which is not there", path, target);
}

pome_status pome_mlpackage_locate(pome_mlpackage_place *out, const char *path, pome_arena *arena, pome_error *err)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    const char *p = pome_arena_strndup(arena, path, len);
    if (!p)
        return no_memory(err);
    if (!pome_path_exists(p))
        return refuse_absent(p, err);
    bool is_dir = pome_path_is_dir(p);
    if (is_dir && has_child(arena, p, "Manifest.json"))
        return locate_root(out, p, arena, err);
    const char *root = package_around(arena, p);
    if (root) {
        pome_log(POME_LOG_INFO, "%s is part of a package: taking %s", p, root);
        return locate_root(out, root, arena, err);
    }
    if (is_dir && pome_mlmodelc_detect(p))
        return take_compiled(out, p, arena, err);
    root = compiled_around(arena, p);
    if (root) {
        pome_log(POME_LOG_INFO, "%s is part of a compiled model: taking %s", p, root);
        return take_compiled(out, root, arena, err);
    }
    return is_dir ? locate_in_folder(out, p, arena, err) : locate_bare(out, p, arena, err);
}
