#include "set_source.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool set_source_names_model(const set_source *s)
{
    return s->repo_id || s->folder;
}

const char *set_source_check(const set_source *s)
{
    return s->repo_id && s->folder ? "--repo-id and --local-model-directory both name the model: give one of them" : NULL;
}

pome_status set_source_open(pome_model_set **out, const set_source *s, const char *path, const common_args *common,
                            pome_error *err)
{
    const char *others[2] = {s->cache_processor ? s->cache_processor : "cache-processor",
                             s->logit_processor ? s->logit_processor : "logit-processor"};
    pome_model_set_opts opts;
    char *found = NULL;
    set_opts(&opts, common);
    opts.prefix = s->prefix;
    if (strcmp(others[0], others[1]) == 0) {
        *err = (pome_error){.code = POME_ERR_ARG};
        snprintf(err->message, sizeof err->message, "%s is named as cache processor and as logit processor", others[0]);
        return POME_ERR_ARG;
    }
    if (s->cache_processor || s->logit_processor) {
        opts.others = others;
        opts.n_others = 2;
    }
    pome_status status = POME_OK;
    if (!path && s->repo_id)
        status = pome_hub_find(&found, s->repo_id, err);
    if (status == POME_OK)
        status = open_model_set(out, path ? path : found ? found : s->folder, &opts, common, err);
    free(found);
    return status;
}

static pome_status open_from_hub(pome_tokenizer **out, const char *repository, pome_error *err)
{
    char *folder = NULL;
    pome_status status = pome_hub_find(&folder, repository, err);
    if (status == POME_OK)
        status = pome_tokenizer_open(out, folder, err);
    free(folder);
    return status;
}

static bool has_word(const char *text, const char *word)
{
    size_t len = strlen(word);
    for (; text && *text; text++) {
        size_t i = 0;
        while (i < len && tolower((unsigned char)text[i]) == word[i])
            i++;
        if (i == len)
            return true;
    }
    return false;
}

/* The last part of a path that names the set. */
static const char *infer_repository(const set_source *s, const pome_model_set *models)
{
    static const struct {
        const char *word, *repository;
    } known[] = {{"llama-2-7b", "pcuenq/Llama-2-7b-chat-coreml"},
                 {"llama-3.2-1b", "meta-llama/Llama-3.2-1B"},
                 {"llama-3.2-3b", "meta-llama/Llama-3.2-3B"}};
    const char *names[] = {s->repo_id, s->prefix, pome_model_set_path(models), pome_model_set_name(models, 0)};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++)
            if (has_word(names[i], known[k].word))
                return known[k].repository;
    return NULL;
}

pome_status set_source_tokenizer(pome_tokenizer **out, const set_source *s, const pome_model_set *models, const char *path,
                                 pome_error *err)
{
    struct stat st;
    if (!path && s->tokenizer_name && stat(s->tokenizer_name, &st) == 0)
        path = s->tokenizer_name;
    if (!path && s->tokenizer_name)
        return open_from_hub(out, s->tokenizer_name, err);
    pome_status status = pome_tokenizer_locate(out, pome_model_set_model(models, 0), path, err);
    const char *repository = status == POME_ERR_IO && !path ? infer_repository(s, models) : NULL;
    if (repository && open_from_hub(out, repository, NULL) == POME_OK)
        return POME_OK;
    return status;
}
