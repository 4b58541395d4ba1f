#include "convert/compile.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/place_file.h"
#include "base/strmap.h"
#include "formats/mlmodelc.h"
#include "formats/mlpackage.h"
#include "formats/mlpackage_writer.h"
#include "mil/load.h"
#include "mil/print.h"
#include "pome/compile.h"

#define SHORT_SPELLING_VERSION 9 /* compilers write models of this specification version and later so */
#define MODEL_PATH "@model_path/"

typedef struct compiler {
    const pome_compile_opts *opts;
    pome_compile_report report;
    pome_arena *arena; /* of paths */
} compiler;

static pome_status no_memory(pome_error *err)
{
    return pome_fail_nomem(err, 0, "compiling");
}

void pome_compile_opts_default(pome_compile_opts *opts)
{
    *opts = (pome_compile_opts){.size = sizeof *opts};
}

/* ---- files ---- */

static pome_status make_folder(const char *path, pome_error *err)
{
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && pome_path_is_dir(path)))
        return POME_OK;
    return pome_fail(err, POME_ERR_IO, "%s: cannot create: %s", path, strerror(errno));
}

static pome_status place(compiler *c, const char *to, const char *from, pome_error *err)
{
    static const pome_placing ways[] = {POME_PLACE_ANY, POME_PLACE_CLONE, POME_PLACE_LINK, POME_PLACE_COPY};
    pome_placing done = POME_PLACE_COPY;
    POME_TRY(pome_file_place(to, from, ways[c->opts->weights], &done, err));
    c->report.n_cloned += done == POME_PLACE_CLONE;
    c->report.n_linked += done == POME_PLACE_LINK;
    c->report.n_copied += done == POME_PLACE_COPY;
    return POME_OK;
}

static bool has_suffix(const char *s, const char *suffix)
{
    size_t a = strlen(s), b = strlen(suffix);
    return a >= b && strcmp(s + a - b, suffix) == 0;
}

static bool is_regular(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* What lies beside a manifest or beside packages: tokenizers, settings, whatever belongs to the model. */
static pome_status carry_files(compiler *c, const char *to, const char *from, pome_error *err)
{
    static const char *const ours[] = {"Manifest.json", "model.mil", "coremldata.bin", "metadata.json"};
    struct dirent **entries;
    int n = scandir(from, &entries, NULL, alphasort);
    pome_status status = n < 0 ? pome_fail(err, POME_ERR_IO, "%s: %s", from, strerror(errno)) : POME_OK;
    for (int i = 0; i < n; i++) {
        const char *name = entries[i]->d_name;
        bool is_ours = name[0] == '.';
        for (size_t k = 0; k < sizeof ours / sizeof ours[0]; k++)
            is_ours |= strcmp(name, ours[k]) == 0;
        const char *source = pome_arena_printf(c->arena, "%s/%s", from, name);
        const char *target = pome_arena_printf(c->arena, "%s/%s", to, name);
        if (status == POME_OK && (!source || !target))
            status = no_memory(err);
        if (status == POME_OK && !is_ours && is_regular(source))
            status = place(c, target, source, err);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
    return status;
}

/* ---- weights ---- */

typedef struct weight_files {
    compiler *c;
    const pome_mlpackage *package;
    const char *folder;
    pome_strmap seen; /* names that programs give them */
} weight_files;

/* Makes the folders that lie between `folder` and the file. */
static pome_status make_folders_of(compiler *c, const char *folder, const char *name, pome_error *err)
{
    for (const char *slash = strchr(name, '/'); slash; slash = strchr(slash + 1, '/')) {
        const char *path = pome_arena_printf(c->arena, "%s/%.*s", folder, (int)(slash - name), name);
        if (!path)
            return no_memory(err);
        POME_TRY(make_folder(path, err));
    }
    return POME_OK;
}

/* Loading has checked that the name stays in the package and that the file is there. */
static pome_status take_weights(weight_files *w, const char *file, pome_error *err)
{
    compiler *c = w->c;
    const char *name = strncmp(file, MODEL_PATH, strlen(MODEL_PATH)) == 0 ? file + strlen(MODEL_PATH) : file;
    if (pome_strmap_get(&w->seen, pome_str_of(file)))
        return POME_OK;
    const char *to = pome_arena_printf(c->arena, "%s/%s", w->folder, name);
    const char *from = pome_arena_printf(c->arena, "%s/%s", w->package->model_dir, name);
    if (!to || !from || !pome_strmap_set(&w->seen, pome_str_of(file), w))
        return no_memory(err);
    POME_TRY(make_folders_of(c, w->folder, name, err));
    return pome_path_exists(to) ? POME_OK : place(c, to, from, err);
}

static pome_status take_values(weight_files *w, pome_value *const *list, uint32_t n, pome_error *err)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i]->konst && list[i]->konst->file)
            POME_TRY(take_weights(w, list[i]->konst->file, err));
    return POME_OK;
}

static pome_status take_weights_of(void *arg, pome_function *fn, pome_op *op, pome_error *err)
{
    (void)fn;
    POME_TRY(take_values(arg, op->in, op->n_in, err));
    for (uint32_t i = 0; i < op->n_blocks; i++)
        POME_TRY(take_values(arg, op->blocks[i]->outputs, op->blocks[i]->n_outputs, err));
    return POME_OK;
}

static pome_status write_weights(compiler *c, const pome_mlpackage *package, pome_program *program, const char *folder,
                                 pome_error *err)
{
    weight_files w = {.c = c, .package = package, .folder = folder};
    pome_strmap_init(&w.seen, c->arena);
    for (uint32_t i = 0; i < program->n_functions; i++)
        POME_TRY(take_values(&w, program->functions[i]->body->outputs, program->functions[i]->body->n_outputs, err));
    c->report.weights_bytes += program->weights_bytes;
    return pome_program_list_ops(program, take_weights_of, &w, err);
}

/* ---- one model ---- */

static pome_status write_file(compiler *c, const char *folder, const char *name, const void *data, size_t len,
                              pome_error *err)
{
    const char *path = pome_arena_printf(c->arena, "%s/%s", folder, name);
    return path ? pome_file_write(path, data, len, err) : no_memory(err);
}

static pome_status write_text(compiler *c, const pome_program *program, const pome_model_info *info, const char *folder,
                              pome_error *err)
{
    const char *build_info[] = {"pome-version", pome_version(), NULL};
    const pome_print_opts opts = {.is_long = info->specification_version < SHORT_SPELLING_VERSION, .info = info,
                                  .build_info = build_info};
    char *text = NULL;
    size_t len = 0;
    POME_TRY(pome_program_text_as(&text, &len, program, &opts, err));
    c->report.text_bytes += len;
    pome_status status = write_file(c, folder, "model.mil", text, len, err);
    free(text);
    return status;
}

/* The description goes over as it is, with what this library does not know of it. */
static pome_status write_binary(compiler *c, const pome_mlpackage *package, const char *folder, pome_error *err)
{
    pome_mapping *mapping = NULL;
    pome_coreml_kind kind;
    size_t len = 0;
    POME_TRY(pome_mapping_open(&mapping, package->model_file, err));
    pome_status status = pome_coreml_peek(&kind, pome_mapping_bytes(mapping), err);
    if (status == POME_OK) {
        uint8_t *bytes = pome_mlmodelc_make_binary(&len, kind.description, package->info.specification_version,
                                                   package->info.n_functions, c->arena);
        status = bytes ? write_file(c, folder, "coremldata.bin", bytes, len, err) : no_memory(err);
    }
    pome_mapping_release(&mapping);
    return status;
}

static pome_status write_metadata(compiler *c, const pome_program *program, const pome_model_info *info,
                                  const char *folder, const char *class_name, pome_error *err)
{
    char *text = NULL;
    POME_TRY(pome_compile_metadata(&text, program, info, class_name, err));
    pome_status status = write_file(c, folder, "metadata.json", text, strlen(text), err);
    free(text);
    return status;
}

static pome_status write_model(compiler *c, const pome_mlpackage *package, pome_program *program, const char *folder,
                               const char *class_name, pome_error *err)
{
    POME_TRY(write_text(c, program, &package->info, folder, err));
    POME_TRY(write_weights(c, package, program, folder, err));
    POME_TRY(write_binary(c, package, folder, err));
    POME_TRY(write_metadata(c, program, &package->info, folder, class_name, err));
    if (pome_path_is_dir(package->info.path))
        POME_TRY(carry_files(c, folder, package->info.path, err));
    c->report.n_models++;
    c->report.n_functions += program->n_functions;
    return POME_OK;
}

/* Into a folder that is there. */
static pome_status compile_into(compiler *c, const char *source, const char *folder, const char *class_name,
                                pome_error *err)
{
    pome_mlpackage *package = NULL;
    pome_program *program = NULL;
    POME_TRY(pome_mlpackage_open(&package, source, NULL, err));
    pome_status status =
        has_suffix(package->model_file, "/model.mil")
            ? pome_fail(err, POME_ERR_ARG, "is compiled already: wanted a package")
            : pome_program_load(&program, package, NULL, err);
    if (status == POME_OK)
        status = pome_program_verify(program, err);
    if (status != POME_OK)
        pome_fail_prefix(err, status, "%s", source);
    else
        status = write_model(c, package, program, folder, class_name, err);
    pome_program_destroy(&program);
    pome_mlpackage_close(&package);
    return status;
}

/* ---- sets ---- */

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* "models/llama.mlpackage/" -> "llama" */
static char *class_name_of(compiler *c, const char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    const char *whole = pome_arena_strndup(c->arena, path, len);
    const char *name = whole ? base_name(whole) : NULL;
    return name ? pome_arena_strndup(c->arena, name, strcspn(name, ".")) : NULL;
}

/* The names of the packages in a folder, sorted; *n 0: it is none of packages. */
static pome_status list_packages(compiler *c, const char *folder, char ***out, size_t *n_out, pome_error *err)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, NULL, alphasort);
    size_t found = 0;
    char **list = n < 0 ? NULL : POME_NEW_ARRAY(c->arena, char *, (size_t)n);
    for (int i = 0; i < n; i++) {
        size_t len = strlen(entries[i]->d_name);
        if (list && has_suffix(entries[i]->d_name, ".mlpackage") &&
            !(list[found++] = pome_arena_strndup(c->arena, entries[i]->d_name, len)))
            list = NULL;
        free(entries[i]);
    }
    if (n < 0)
        return pome_fail(err, POME_ERR_IO, "%s: %s", folder, strerror(errno));
    free(entries);
    *out = list;
    *n_out = found;
    return list ? POME_OK : no_memory(err);
}

static pome_status compile_set(compiler *c, const char *source, const char *out, char *const *names, size_t n,
                               pome_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const char *from = pome_arena_printf(c->arena, "%s/%s", source, names[i]);
        const char *stem = pome_arena_strndup(c->arena, names[i], strlen(names[i]) - strlen(".mlpackage"));
        const char *to = stem ? pome_arena_printf(c->arena, "%s/%s.mlmodelc", out, stem) : NULL;
        if (!from || !to)
            return no_memory(err);
        POME_TRY(make_folder(to, err));
        POME_TRY(compile_into(c, from, to, stem, err));
    }
    return carry_files(c, out, source, err);
}

/* ---- the call ---- */

/* Whether a path's last name is that of a compiled model. */
static bool is_compiled_name(const char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    return len > 9 && memcmp(path + len - 9, ".mlmodelc", 9) == 0;
}

static pome_status check_names(const char *source, const char *out, bool is_set, size_t n, pome_error *err)
{
    bool is_named = is_compiled_name(out);
    if (is_set && is_named)
        return pome_fail(err, POME_ERR_ARG,
                         "%s holds %zu packages, each of which gets its own compiled model in a folder, whose name does "
                         "not end in .mlmodelc: %s",
                         source, n, out);
    if (!is_set && !is_named)
        return pome_fail(err, POME_ERR_ARG, "%s: a compiled model's name ends in .mlmodelc", out);
    return POME_OK;
}

static bool is_package(const char *folder)
{
    char *manifest = pome_path_join(folder, "Manifest.json");
    bool is = manifest && pome_path_exists(manifest);
    free(manifest);
    return is;
}

/* What lies in a package is part of it. A missing folder is reported where it is written to. */
static pome_status check_outside(const char *out, pome_error *err)
{
    char *parent = strdup(out);
    size_t len = parent ? strlen(parent) : 0;
    while (len > 1 && parent[len - 1] == '/')
        len--;
    while (len > 0 && parent[len - 1] != '/')
        len--;
    if (parent)
        parent[len] = '\0';
    char *at = parent ? realpath(len > 0 ? parent : ".", NULL) : NULL;
    pome_status status = POME_OK;
    for (; status == POME_OK && at && *at; *strrchr(at, '/') = '\0')
        if (is_package(at))
            status = pome_fail(err, POME_ERR_ARG, "%s lies inside the package %s: wanted a place beside it", out, at);
    free(at);
    free(parent);
    return status;
}

static pome_status compile(compiler *c, const char *source, const char *out, pome_error *err)
{
    char **names = NULL;
    size_t n = 0;
    if (!pome_path_exists(source)) { /* what is wrong with it is said there */
        pome_mlpackage_place none;
        return pome_mlpackage_locate(&none, source, c->arena, err);
    }
    if (pome_path_is_dir(source) && !has_suffix(source, ".mlpackage") && !has_suffix(source, ".mlpackage/"))
        POME_TRY(list_packages(c, source, &names, &n, err));
    bool is_set = n > 1 || (n == 1 && !is_compiled_name(out));
    POME_TRY(check_names(source, out, is_set, n, err));
    POME_TRY(check_outside(out, err));
    pome_mlpackage_writer w;
    POME_TRY(pome_mlpackage_writer_open_compiled(&w, out, is_set, c->opts->force, c->arena, err));
    const char *class_name = class_name_of(c, out);
    pome_status status = !class_name ? no_memory(err)
                         : is_set    ? compile_set(c, source, w.work_path, names, n, err)
                                     : compile_into(c, source, w.work_path, class_name, err);
    if (status == POME_OK)
        status = pome_mlpackage_writer_commit(&w, err);
    if (status != POME_OK)
        pome_mlpackage_writer_discard(&w);
    pome_mlpackage_writer_close(&w);
    return status;
}

pome_status pome_compile(const char *source, const char *out, const pome_compile_opts *opts, pome_compile_report *report,
                         pome_error *err)
{
    pome_compile_opts o;
    pome_compile_opts_default(&o);
    if (opts)
        memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    if ((unsigned)o.weights > POME_COMPILE_COPY)
        return pome_fail(err, POME_ERR_ARG, "way %d of placing weights is not known", (int)o.weights);
    compiler c = {.opts = &o, .arena = pome_arena_create(0)};
    if (!c.arena)
        return no_memory(err);
    pome_status status = compile(&c, source, out, err);
    pome_arena_destroy(&c.arena);
    if (status == POME_OK && report)
        *report = c.report;
    return status;
}
