#include "convert/chunks.h"

#include <inttypes.h>

/* The last name of a path. */
static pome_str name_of(const char *path)
{
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    size_t begin = len;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    return (pome_str){path + begin, len - begin};
}

static bool set_part(pome_convert_part *part, pome_lm_role role, int64_t first_layer, int64_t n_layers, const char *name)
{
    part->graph.role = role;
    part->graph.first_layer = first_layer;
    part->graph.n_layers = n_layers;
    part->name = name;
    return name != NULL;
}

pome_status pome_chunks_list(pome_convert_part *parts, int64_t n, const char *out, pome_arena *arena, pome_error *err)
{
    int64_t n_layers = parts[0].graph.config->n_layers, layer = 0;
    pome_str prefix = name_of(out);
    bool ok = true, has_window = parts[0].graph.has_window;
    if (prefix.len == 0 || prefix.ptr[0] == '.')
        return pome_fail(err, POME_ERR_ARG, "%s: the packages of a set are called after their folder, which needs a name", out);
    for (int64_t i = 0; i < n + 2; i++) {
        int64_t n_mine = i == 0 || i == n + 1 ? 0 : n_layers / n + (i <= n_layers % n);
        const char *name = pome_arena_printf(arena, "%.*s_chunk%" PRId64, (int)prefix.len, prefix.ptr, i + 1);
        ok = set_part(&parts[i], i == 0 ? POME_LM_FIRST : i == n + 1 ? POME_LM_LAST : POME_LM_GROUP, layer, n_mine, name) && ok;
        layer += n_mine;
    }
    if (has_window)
        ok = set_part(&parts[n + 2], POME_LM_CACHE_PROCESSOR, 0, 0, "cache-processor") &&
             set_part(&parts[n + 3], POME_LM_LOGIT_PROCESSOR, 0, 0, "logit-processor") && ok;
    return ok ? POME_OK : pome_fail_nomem(err, 0, "a name");
}

pome_status pome_chunks_open(pome_mlpackage_writer *set, pome_journal *journal, const char *out, uint64_t needed_bytes,
                             uint64_t fingerprint, uint32_t n_parts, const pome_convert_opts *opts, pome_arena *arena,
                             pome_error *err)
{
    pome_mlpackage_writer w;
    POME_TRY(pome_mlpackage_writer_open_folder(&w, out, needed_bytes, opts->force, opts->resume, arena, err));
    pome_status status = pome_journal_open(journal, w.journal_path, fingerprint, n_parts, opts->resume, err);
    if (status == POME_OK && !journal->goes_on) { /* packages of another conversion must not get into this one */
        pome_journal_close(journal);
        pome_mlpackage_writer_close(&w);
        POME_TRY(pome_mlpackage_writer_open_folder(&w, out, needed_bytes, opts->force, false, arena, err));
        status = pome_journal_open(journal, w.journal_path, fingerprint, n_parts, false, err);
        if (status == POME_OK)
            status = pome_journal_note(journal, 0, 0, err);
    }
    if (status == POME_OK)
        *set = w;
    else
        pome_mlpackage_writer_close(&w);
    return status;
}
