/* Where the tokenizer of a model lies, and what the local Hub cache holds. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "pome/generate.h"

static const char *const metadata_key = "co.huggingface.exporters.name";

static bool has_file(const char *folder, const char *name)
{
    char *path = pome_path_join(folder, name);
    bool found = path && pome_path_exists(path);
    free(path);
    return found;
}

/* A folder holds a tokenizer if it holds this file. */
static bool has_tokenizer(const char *folder)
{
    return has_file(folder, "tokenizer.json");
}

/* What conversion from a GGUF file leaves in the package: its vocabulary, as such a file. */
static const char *const vocabulary = "tokenizer.gguf";

/* Joins any number of parts; NULL when memory is short. */
static char *join(const char *const *parts, size_t n)
{
    char *path = strdup(parts[0]);
    for (size_t i = 1; i < n && path; i++) {
        char *longer = pome_path_join(path, parts[i]);
        free(path);
        path = longer;
    }
    return path;
}
#define JOIN(...) join((const char *const[]){__VA_ARGS__}, sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

/* The folder around `path`, as malloc'ed text. A path without a slash lies in ".". */
static char *parent_of(const char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    while (len > 0 && path[len - 1] != '/')
        len--;
    while (len > 1 && path[len - 1] == '/')
        len--;
    return len ? strndup(path, len) : strdup(".");
}

/* The Hub's own rules: HF_HUB_CACHE, else HF_HOME/hub, else XDG_CACHE_HOME or ~/.cache with huggingface/hub. */
static char *hub_cache(void)
{
    const char *value;
    if ((value = getenv("HF_HUB_CACHE")) && *value)
        return strdup(value);
    if ((value = getenv("HF_HOME")) && *value)
        return JOIN(value, "hub");
    if ((value = getenv("XDG_CACHE_HOME")) && *value)
        return JOIN(value, "huggingface", "hub");
    if ((value = getenv("HOME")) && *value)
        return JOIN(value, ".cache", "huggingface", "hub");
    return NULL;
}

static const char *repository_of(const pome_model_info *info)
{
    for (uint32_t i = 0; i < info->n_metadata; i++)
        if (strcmp(info->metadata[i].key, metadata_key) == 0 && info->metadata[i].value[0])
            return info->metadata[i].value;
    return NULL;
}

/* "models--owner--name". Names with path parts that lead elsewhere are refused: NULL. */
static char *repository_folder(const char *repository)
{
    char text[300] = "models--";
    size_t at = strlen(text);
    if (strstr(repository, "..") || !repository[0] || repository[0] == '/' || strlen(repository) > 200)
        return NULL;
    for (const char *p = repository; *p && at + 3 < sizeof text; p++)
        if (*p == '/') {
            text[at++] = '-';
            text[at++] = '-';
        } else {
            text[at++] = *p;
        }
    text[at] = '\0';
    return strdup(text);
}

/* The snapshot that refs/main names; NULL if it is not there. */
static char *main_snapshot(const char *repository)
{
    char *ref = JOIN(repository, "refs", "main"), *commit = NULL, *folder = NULL;
    size_t len = 0;
    if (ref && pome_file_read(ref, 256, &commit, &len, NULL) == POME_OK) {
        commit[strcspn(commit, "\r\n/")] = '\0';
        folder = commit[0] && commit[0] != '.' ? JOIN(repository, "snapshots", commit) : NULL;
    }
    if (folder && !pome_path_is_dir(folder)) {
        free(folder);
        folder = NULL;
    }
    free(commit);
    free(ref);
    return folder;
}

/* Any snapshot with a tokenizer; the last by name, so that the choice does not depend on the file system. */
static char *any_snapshot(const char *repository)
{
    char *snapshots = JOIN(repository, "snapshots"), *best = NULL;
    DIR *dir = snapshots ? opendir(snapshots) : NULL;
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char *folder = entry->d_name[0] == '.' ? NULL : JOIN(snapshots, entry->d_name);
        if (folder && has_tokenizer(folder) && (!best || strcmp(folder, best) > 0)) {
            free(best);
            best = folder;
            folder = NULL;
        }
        free(folder);
    }
    if (dir)
        closedir(dir);
    free(snapshots);
    return best;
}

static char *find_in_hub_cache(const char *repository, char *tried, size_t tried_size)
{
    char *cache = hub_cache(), *name = repository_folder(repository);
    char *folder = cache && name ? JOIN(cache, name) : NULL, *found = NULL;
    if (folder) {
        snprintf(tried, tried_size, ", %s", folder);
        found = main_snapshot(folder);
        if (found && !has_tokenizer(found)) {
            free(found);
            found = NULL;
        }
        if (!found)
            found = any_snapshot(folder);
    }
    free(folder);
    free(name);
    free(cache);
    return found;
}

pome_status pome_hub_find(char **out, const char *repository, pome_error *err)
{
    char *cache = hub_cache(), *name = repository_folder(repository);
    char *folder = cache && name ? JOIN(cache, name) : NULL, *found = folder ? main_snapshot(folder) : NULL;
    pome_status status = POME_OK;
    if (found)
        *out = found;
    else if (!name)
        status = pome_fail(err, POME_ERR_ARG, "'%s' is no repository id (OWNER/NAME)", repository);
    else if (folder && pome_path_is_dir(folder))
        status = pome_fail(err, POME_ERR_IO, "%s holds no snapshot of %s that refs/main names: get it again", folder,
                           repository);
    else
        status = pome_fail(err, POME_ERR_IO, "%s is not in the local Hub cache (there is no %s), and nothing is downloaded",
                           repository, folder ? folder : "such cache");
    free(folder);
    free(name);
    free(cache);
    return status;
}

pome_status pome_tokenizer_locate(pome_tokenizer **out, const pome_model *model, const char *path, pome_error *err)
{
    if (path)
        return pome_tokenizer_open(out, path, err);
    const pome_model_info *info = pome_model_describe(model);
    const char *repository = repository_of(info);
    char *beside = parent_of(info->path), *found = NULL, tried[400] = "";
    if (has_tokenizer(info->path))
        found = strdup(info->path);
    else if (has_file(info->path, vocabulary))
        found = pome_path_join(info->path, vocabulary);
    else if (beside && has_tokenizer(beside))
        found = strdup(beside);
    else if (beside && has_file(beside, vocabulary)) /* of a set */
        found = pome_path_join(beside, vocabulary);
    else if (repository)
        found = find_in_hub_cache(repository, tried, sizeof tried);
    pome_status status;
    if (found)
        status = pome_tokenizer_open(out, found, err);
    else
        status = pome_fail(err, POME_ERR_IO, "no tokenizer.json in %s, %s%s%s", info->path, beside ? beside : "?",
                           tried, repository ? "" : "; the model's metadata names no repository");
    free(found);
    free(beside);
    return status;
}
