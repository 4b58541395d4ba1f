/* The engine: models whose contract is found. */
#include "llm/engine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

enum {
    BLOCK_MAX = 128,         /* rows per pass: enough to reuse weights, small beside them in memory */
    BLOCK_MAX_SMALL = 512,   /* of a small model, whose passes are short: what each costs by itself counts more */
    BLOCK_MIN = 16,
    SMALL_BYTES = 512 << 20, /* of weights */
    SCORES_CONTEXT = 4096    /* up to which a pass has so many rows; beyond, attention scores are bounded by fewer */
};

void pome_llm_opts_default(pome_llm_opts *opts)
{
    *opts = (pome_llm_opts){.size = sizeof *opts};
}

static bool is_small(const pome_llm *llm)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < llm->subject.n_models && bytes <= SMALL_BYTES; i++)
        bytes += pome_model_describe(llm->subject.models[i].model)->weights_bytes;
    return bytes <= SMALL_BYTES;
}

static int64_t choose_block(const pome_llm *llm, int64_t context, int64_t wanted)
{
    int64_t block = wanted;
    if (block <= 0) {
        int64_t most = is_small(llm) ? BLOCK_MAX_SMALL : BLOCK_MAX;
        block = most * SCORES_CONTEXT / context;
        block = block > most ? most : block < BLOCK_MIN ? BLOCK_MIN : block;
    }
    return block > context ? context : block;
}

/* Where neither descriptions nor programs say it, one token is run to see how wide its logits are. */
static pome_status probe_vocabulary(pome_llm *llm, pome_error *err)
{
    const pome_contract *c = &llm->contract;
    pome_runner *runner = NULL;
    pome_rows rows = {0};
    POME_TRY(c->kind->create(&runner, c, &(pome_runner_opts){.context = llm->runner.context, .block = 1}, err));
    pome_status status =
        runner->ops->run(runner, c->kind->plan(c, 0, 1, 1), &(int32_t){0}, POME_WANT_LAST, &rows, err);
    for (int i = 0; status == POME_OK && i < rows.n_parts; i++)
        llm->n_vocab += rows.parts[i]->rank > 0 ? rows.parts[i]->shape[rows.parts[i]->rank - 1] : 0;
    runner->ops->destroy(runner);
    return status;
}

static pome_status find_vocabulary(pome_llm *llm, pome_error *err)
{
    llm->n_vocab = llm->contract.n_vocab;
    if (llm->n_vocab < 1 && !llm->contract.is_argmax)
        POME_TRY(probe_vocabulary(llm, err));
    if (llm->n_vocab < 1 || llm->n_vocab > INT32_MAX)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "the logits have no vocabulary in their last axis (%s)",
                         llm->description);
    return POME_OK;
}

static pome_status check_function(const pome_llm *llm, pome_error *err)
{
    const pome_contract_subject *s = &llm->subject;
    char names[512] = "";
    size_t at = 0;
    if (!s->function)
        return POME_OK;
    for (uint32_t m = 0; m < s->n_models; m++)
        for (uint32_t i = 0; i < s->models[m].n_functions; i++) {
            const char *name = s->models[m].functions[i].name;
            if (strcmp(name, s->function) == 0)
                return POME_OK;
            if (s->n_models == 1 && at < sizeof names)
                at += (size_t)snprintf(names + at, sizeof names - at, "%s%s", i ? ", " : "", name);
        }
    if (s->n_models > 1)
        return pome_fail(err, POME_ERR_ARG, "no function '%s' in any of the %u models", s->function, s->n_models);
    return pome_fail(err, POME_ERR_ARG, "no function '%s' in the model; it has: %s", s->function, names);
}

static pome_status copy_opts(pome_llm *llm, const pome_llm_opts *opts, pome_error *err)
{
    llm->roles = calloc(opts->n_roles + 1, sizeof *llm->roles);
    llm->function = opts->function && opts->function[0] ? strdup(opts->function) : NULL;
    bool is_short = !llm->roles || (opts->function && opts->function[0] && !llm->function);
    for (size_t i = 0; i < opts->n_roles && !is_short; i++) {
        llm->roles[i] = (pome_llm_role){strdup(opts->roles[i].role), strdup(opts->roles[i].name)};
        llm->subject.n_roles++;
        is_short = !llm->roles[i].role || !llm->roles[i].name;
    }
    if (is_short)
        return pome_fail_nomem(err, sizeof *llm->roles, "engine");
    llm->subject.function = llm->function;
    llm->subject.roles = llm->roles;
    return POME_OK;
}

static pome_status open_engine(pome_llm *llm, const pome_llm_opts *given, pome_error *err)
{
    pome_llm_opts opts;
    pome_llm_opts_default(&opts);
    if (given)
        memcpy(&opts, given, given->size < sizeof opts ? given->size : sizeof opts);
    const pome_contract *c = &llm->contract;
    POME_TRY(copy_opts(llm, &opts, err));
    POME_TRY(check_function(llm, err));
    POME_TRY(pome_contract_find(&llm->contract, &llm->subject, opts.contract, err));
    if (opts.context < 0 || opts.context > c->context)
        return pome_fail(err, POME_ERR_LIMIT, "context %lld asked for, the model holds %lld", (long long)opts.context,
                         (long long)c->context);
    if (opts.block < 0)
        return pome_fail(err, POME_ERR_ARG, "blocks of %lld tokens, wanted 1 or more, or 0 to have it chosen", (long long)opts.block);
    if (opts.whole_windows && c->kind != &pome_contract_window)
        return pome_fail(err, POME_ERR_ARG, "whole windows are asked for, which contract %s does not have", c->kind->name);
    llm->runner.context = opts.context > 0 ? opts.context : c->context;
    llm->runner.block = choose_block(llm, llm->runner.context, opts.block);
    llm->runner.whole_windows = opts.whole_windows;
    c->kind->describe(c, llm->description, sizeof llm->description);
    snprintf(llm->explanation, sizeof llm->explanation, "%s, because %s", llm->description, c->because);
    return find_vocabulary(llm, err);
}

static void add_model(pome_llm *llm, pome_model *model, const char *name)
{
    const pome_model_info *info = pome_model_describe(model);
    llm->models[llm->subject.n_models++] = (pome_contract_model){name, model, info->functions, info->n_functions,
                                                                 info->default_function};
}

/* Room for n_models models. */
static pome_llm *create_engine(uint32_t n_models)
{
    pome_llm *llm = calloc(1, sizeof *llm);
    if (llm)
        llm->models = calloc(n_models, sizeof *llm->models);
    if (!llm || !llm->models) {
        free(llm);
        return NULL;
    }
    llm->subject = (pome_contract_subject){.path = "", .models = llm->models};
    return llm;
}

static pome_status finish_engine(pome_llm **out, pome_llm *llm, const pome_llm_opts *opts, pome_error *err)
{
    pome_status status = open_engine(llm, opts, err);
    if (status != POME_OK) {
        pome_llm_close(&llm);
        return status;
    }
    *out = llm;
    return POME_OK;
}

pome_status pome_llm_open(pome_llm **out, pome_model *model, const pome_llm_opts *opts, pome_error *err)
{
    pome_llm *llm = create_engine(1);
    if (!llm)
        return pome_fail_nomem(err, sizeof *llm, "engine");
    add_model(llm, model, "");
    return finish_engine(out, llm, opts, err);
}

pome_status pome_llm_open_set(pome_llm **out, const pome_model_set *set, const pome_llm_opts *opts, pome_error *err)
{
    pome_llm *llm = create_engine(pome_model_set_count(set));
    if (!llm)
        return pome_fail_nomem(err, sizeof *llm, "engine");
    llm->subject.path = pome_model_set_path(set);
    for (uint32_t i = 0; i < pome_model_set_count(set); i++)
        add_model(llm, pome_model_set_model(set, i), pome_model_set_name(set, i));
    return finish_engine(out, llm, opts, err);
}

void pome_llm_close(pome_llm **engine)
{
    pome_llm *llm = engine ? *engine : NULL;
    if (!llm)
        return;
    pome_contract_reset(&llm->contract);
    for (uint32_t i = 0; i < llm->subject.n_roles; i++) {
        free((char *)llm->roles[i].role);
        free((char *)llm->roles[i].name);
    }
    free(llm->roles);
    free(llm->function);
    free(llm->models);
    free(llm);
    *engine = NULL;
}

int64_t pome_llm_n_context(const pome_llm *llm)
{
    return llm->runner.context;
}

int64_t pome_llm_n_vocab(const pome_llm *llm)
{
    return llm->n_vocab;
}

const char *pome_llm_describe(const pome_llm *llm)
{
    return llm->description;
}

const char *pome_llm_explain(const pome_llm *llm)
{
    return llm->explanation;
}

bool pome_llm_has_logits(const pome_llm *llm)
{
    return !llm->contract.is_argmax;
}

bool pome_llm_has_cache(const pome_llm *llm)
{
    return !llm->contract.takes_whole;
}
