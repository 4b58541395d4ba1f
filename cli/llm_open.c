#include "llm_open.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pome_status fail_map(const char *text, pome_error *err)
{
    if (err) {
        *err = (pome_error){.code = POME_ERR_ARG};
        snprintf(err->message, sizeof err->message, "--map %s: ROLE=NAME is wanted, as in ids=inputIds", text);
    }
    return POME_ERR_ARG;
}

/* Splits "role=name" in a copy. */
static pome_status split_map(pome_llm_role *role, char *copy, const char *text, pome_error *err)
{
    char *equals = strchr(copy, '=');
    if (!equals || equals == copy || !equals[1])
        return fail_map(text, err);
    *equals = '\0';
    *role = (pome_llm_role){copy, equals + 1};
    return POME_OK;
}

pome_status open_llm(pome_llm **out, const pome_model_set *models, const llm_args *args, int64_t context,
                     pome_error *err)
{
    pome_llm_opts opts;
    pome_llm_opts_default(&opts);
    opts.function = args->function;
    opts.contract = args->contract;
    opts.context = context;
    opts.whole_windows = args->whole_windows;
    opts.n_roles = args->map.n;
    pome_llm_role *roles = calloc(args->map.n + 1, sizeof *roles);
    char **copies = calloc(args->map.n + 1, sizeof *copies);
    pome_status status = roles && copies ? POME_OK : POME_ERR_NOMEM;
    for (size_t i = 0; i < args->map.n && status == POME_OK; i++) {
        copies[i] = strdup(args->map.items[i]);
        status = copies[i] ? split_map(&roles[i], copies[i], args->map.items[i], err) : POME_ERR_NOMEM;
    }
    opts.roles = roles;
    if (status == POME_OK)
        status = pome_llm_open_set(out, models, &opts, err);
    else if (status == POME_ERR_NOMEM && err)
        *err = (pome_error){.code = status, .message = "out of memory"};
    for (size_t i = 0; copies && i < args->map.n; i++)
        free(copies[i]);
    free(copies);
    free(roles);
    return status;
}
