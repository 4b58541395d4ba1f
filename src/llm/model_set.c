#include "pome/model_set.h"

#include <ctype.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/trace.h"
#include "runtime/model.h"

typedef struct member {
    char *name, *path;
    pome_model *model;
    double open_s;
    pome_status status;
    pome_error error;
} member;

struct pome_model_set {
    char *path;
    member *members; /* [n] by name */
    uint32_t n, n_room;
    pome_pool *pool; /* of all models; NULL for a single one, which has its own */
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

/* ---- choosing among what is in the folder ---- */

/* The N of "PREFIX_chunkN" is left off: the length of the prefix, or 0 for other names. */
static size_t chunk_prefix(const char *name)
{
    size_t len = strlen(name), digits = len;
    while (digits > 0 && isdigit((unsigned char)name[digits - 1]))
        digits--;
    bool is_chunk = digits < len && digits >= 6 && strncmp(name + digits - 6, "_chunk", 6) == 0;
    return is_chunk ? digits - 6 : 0;
}

static bool is_chunk_name(const char *name, size_t len)
{
    char copy[256] = "";
    if (len < sizeof copy)
        memcpy(copy, name, len);
    return chunk_prefix(copy) > 0;
}

static bool is_wanted(const member *m, const pome_model_set_opts *o)
{
    size_t prefix = chunk_prefix(m->name);
    if (prefix > 0) {
        size_t len = o->prefix ? strlen(o->prefix) : 0;
        while (len > 0 && o->prefix[len - 1] == '_')
            len--;
        return len <= prefix && strncmp(m->name, o->prefix ? o->prefix : "", len) == 0;
    }
    for (size_t i = 0; i < o->n_others; i++) {
        size_t len = length_without_ending(o->others[i]);
        len = len ? len : strlen(o->others[i]);
        if (strlen(m->name) == len && strncmp(m->name, o->others[i], len) == 0)
            return true;
    }
    return !o->others;
}

static void drop(pome_model_set *set, uint32_t i)
{
    free(set->members[i].name);
    free(set->members[i].path);
    memmove(&set->members[i], &set->members[i + 1], (--set->n - i) * sizeof *set->members);
}

static bool is_compiled(const member *m)
{
    size_t len = strlen(m->path);
    return len > 9 && strcmp(m->path + len - 9, ".mlmodelc") == 0;
}

static pome_status choose_members(pome_model_set *set, const pome_model_set_opts *o, pome_error *err)
{
    for (uint32_t i = set->n; i-- > 0;)
        if (!is_wanted(&set->members[i], o))
            drop(set, i);
    for (uint32_t i = set->n; i-- > 1;)
        if (strcmp(set->members[i].name, set->members[i - 1].name) == 0)
            drop(set, is_compiled(&set->members[i]) ? i - 1 : i);
    bool has_chunk = false;
    for (uint32_t i = 0; i < set->n; i++)
        has_chunk = has_chunk || chunk_prefix(set->members[i].name) > 0;
    if (set->n == 0 || (o->prefix && !has_chunk))
        return pome_fail(err, POME_ERR_IO, "no model in %s is called '%s_chunk1'", set->path, o->prefix ? o->prefix : "");
    for (size_t k = 0; k < o->n_others; k++) {
        size_t len = length_without_ending(o->others[k]);
        bool is_there = false;
        len = len ? len : strlen(o->others[k]);
        if (is_chunk_name(o->others[k], len))
            return pome_fail(err, POME_ERR_ARG, "%s is named as a model beside the chunks, but is one of them", o->others[k]);
        for (uint32_t i = 0; i < set->n; i++)
            is_there = is_there || (strlen(set->members[i].name) == len && strncmp(set->members[i].name, o->others[k], len) == 0);
        if (!is_there)
            return pome_fail(err, POME_ERR_IO, "there is no model %s in %s", o->others[k], set->path);
    }
    return POME_OK;
}

static const char *last_part(const char *path)
{
    const char *at = path;
    for (const char *p = path; *p; p++)
        if (*p == '/' && p[1] && p[1] != '/')
            at = p + 1;
    return at;
}

static pome_status find_models(pome_model_set *set, const pome_model_set_opts *o, pome_error *err)
{
    const char *name = last_part(set->path);
    size_t len = length_without_ending(name);
    if (len == 0 && pome_path_is_dir(set->path))
        POME_TRY(list_models(set, err));
    if (set->n > 1 || (set->n == 1 && (o->others || o->prefix)))
        return choose_members(set, o, err);
    if (set->n > 0)
        return POME_OK;
    if (o->prefix || o->n_others)
        return pome_fail(err, POME_ERR_ARG, "%s is one model: %s '%s' is for folders of chunks", set->path,
                         o->prefix ? "the prefix" : "the model beside the chunks,", o->prefix ? o->prefix : o->others[0]);
    return add(set, name, len ? len : strlen(name), strdup(set->path), err);
}

/* ---- opening ---- */

typedef struct opening {
    pome_model_set *set;
    const pome_model_opts *opts;
} opening;

static void open_some(void *arg, size_t begin, size_t end, int thread)
{
    const opening *o = arg;
    for (size_t i = begin; i < end; i++) {
        member *m = &o->set->members[i];
        struct timespec from, to;
        uint64_t traced = pome_trace_begin();
        clock_gettime(CLOCK_MONOTONIC, &from);
        m->status = pome_model_open_shared(&m->model, m->path, o->opts, o->set->pool, &m->error);
        clock_gettime(CLOCK_MONOTONIC, &to);
        m->open_s = (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec);
        pome_trace_end(traced, "load", m->name, -1, thread);
    }
}

static bool has_weights_of(const member *a, const member *b)
{
    return chunk_prefix(a->name) > 0 && chunk_prefix(b->name) > 0 && pome_model_has_weights_of(a->model, b->model);
}

/* Chunks of layers have equal programs: the weights of one run in another, and nothing but the answers tells. */
static void warn_of_same_weights(const pome_model_set *set)
{
    for (uint32_t i = 1; i < set->n; i++)
        for (uint32_t k = 0; k < i; k++)
            if (has_weights_of(&set->members[k], &set->members[i])) {
                pome_log(POME_LOG_WARN, "%s and %s have the same weights: the file of one was copied to the other?",
                         set->members[k].name, set->members[i].name);
                return;
            }
}

static pome_status open_members(pome_model_set *set, const pome_model_opts *opts, pome_error *err)
{
    opening o = {set, opts};
    if (set->n > 1)
        POME_TRY(pome_pool_create(&set->pool, opts->n_threads, err));
    pome_pool_run(set->pool, set->n, 1, open_some, &o);
    for (uint32_t i = 0; i < set->n; i++) {
        const member *m = &set->members[i];
        bool is_named = set->n == 1 || strstr(m->error.message, m->name);
        if (m->status == POME_OK)
            pome_log(POME_LOG_INFO, "%s opened in %.3f s", m->name, m->open_s);
        else
            return pome_fail(err, m->status, "%s%s%.900s", is_named ? "" : m->name, is_named ? "" : ": ", m->error.message);
    }
    warn_of_same_weights(set);
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
    pome_status status = find_models(set, &o, err);
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
    pome_pool_destroy(&(*set)->pool);
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

double pome_model_set_open_s(const pome_model_set *set, uint32_t index)
{
    return index < set->n ? set->members[index].open_s : 0;
}

const char *pome_model_set_path(const pome_model_set *set)
{
    return set->path;
}
