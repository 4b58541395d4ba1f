#include "pome/model_set.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"

typedef struct member {
    char *name, *path;
    pome_model *model;
} member;

struct pome_model_set {
    char *path;
    member *members; /* [n] by name */
    uint32_t n, n_room;
};

void pome_model_set_opts_default(pome_model_set_opts *opts)
{
    *opts = (pome_model_set_opts){.size = sizeof *opts};
    pome_model_opts_default(&opts->model);
}

static size_t length_without_ending(const char *name)
{
    static const char *const endings[] = {".mlpackage", ".mlmodelc"};
    size_t len = strlen(name);
    while (len > 1 && name[len - 1] == '/')
        len--;
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(endings[i]);
        if (len > n && strncmp(name + len - n, endings[i], n) == 0)
            return len - n;
    }
    return 0;
}

/* Digits count as numbers. */
static int compare_names(const void *a, const void *b)
{
    const char *x = ((const member *)a)->name, *y = ((const member *)b)->name;
    while (*x && *y) {
        if (isdigit((unsigned char)*x) && isdigit((unsigned char)*y)) {
            char *x_end, *y_end;
            unsigned long long m = strtoull(x, &x_end, 10), n = strtoull(y, &y_end, 10);
            if (m != n)
                return m < n ? -1 : 1;
            x = x_end;
            y = y_end;
        } else if (*x != *y) {
            break;
        } else {
            x++;
            y++;
        }
    }
    int order = (unsigned char)*x - (unsigned char)*y;
    return order ? order : strcmp(((const member *)a)->path, ((const member *)b)->path);
}

/* Takes `path`. */
static pome_status add(pome_model_set *set, const char *name, size_t len, char *path, pome_error *err)
{
    if (path && set->n == set->n_room) {
        uint32_t n_room = 2 * set->n_room + 8;
        member *grown = realloc(set->members, n_room * sizeof *grown);
        if (grown) {
            set->members = grown;
            set->n_room = n_room;
        }
    }
    char *copy = path && set->n < set->n_room ? strndup(name, len) : NULL;
    if (!copy) {
        free(path);
        return pome_fail_nomem(err, len, "models");
    }
    set->members[set->n++] = (member){.name = copy, .path = path};
    return POME_OK;
}

static pome_status list_models(pome_model_set *set, pome_error *err)
{
    DIR *dir = opendir(set->path);
    pome_status status = POME_OK;
    for (struct dirent *entry; dir && status == POME_OK && (entry = readdir(dir));) {
        size_t len = entry->d_name[0] == '.' ? 0 : length_without_ending(entry->d_name);
        if (len > 0)
            status = add(set, entry->d_name, len, pome_path_join(set->path, entry->d_name), err);
    }
    if (dir)
        closedir(dir);
    if (set->n > 1)
        qsort(set->members, set->n, sizeof *set->members, compare_names);
    return status;
}

static const char *last_part(const char *path)
{
    const char *at = path;
    for (const char *p = path; *p; p++)
        if (*p == '/' && p[1] && p[1] != '/')
            at = p + 1;
    return at;
}

static pome_status find_models(pome_model_set *set, pome_error *err)
{
    const char *name = last_part(set->path);
    size_t len = length_without_ending(name);
    if (len == 0 && pome_path_is_dir(set->path))
        POME_TRY(list_models(set, err));
    if (set->n > 0)
        return POME_OK;
    return add(set, name, len ? len : strlen(name), strdup(set->path), err);
}

static pome_status open_members(pome_model_set *set, const pome_model_opts *opts, pome_error *err)
{
    for (uint32_t i = 0; i < set->n; i++) {
        pome_status status = pome_model_open(&set->members[i].model, set->members[i].path, opts, err);
        if (status != POME_OK)
            return status;
    }
    return POME_OK;
}

pome_status pome_model_set_open(pome_model_set **out, const char *path, const pome_model_set_opts *opts, pome_error *err)
{
    pome_model_set_opts o;
    pome_model_set_opts_default(&o);
    if (opts)
        memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    pome_model_set *set = calloc(1, sizeof *set);
    if (!set || !(set->path = strdup(path))) {
        free(set);
        return pome_fail_nomem(err, sizeof *set, "models");
    }
    pome_status status = find_models(set, err);
    if (status == POME_OK)
        status = open_members(set, &o.model, err);
    if (status != POME_OK) {
        pome_model_set_close(&set);
        return status;
    }
    *out = set;
    return POME_OK;
}

void pome_model_set_close(pome_model_set **set)
{
    if (!set || !*set)
        return;
    for (uint32_t i = 0; i < (*set)->n; i++) {
        pome_model_close(&(*set)->members[i].model);
        free((*set)->members[i].name);
        free((*set)->members[i].path);
    }
    free((*set)->members);
    free((*set)->path);
    free(*set);
    *set = NULL;
}

uint32_t pome_model_set_count(const pome_model_set *set)
{
    return set->n;
}

pome_model *pome_model_set_model(const pome_model_set *set, uint32_t index)
{
    return index < set->n ? set->members[index].model : NULL;
}

const char *pome_model_set_name(const pome_model_set *set, uint32_t index)
{
    return index < set->n ? set->members[index].name : NULL;
}

const char *pome_model_set_path(const pome_model_set *set)
{
    return set->path;
}
