#include "convert_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pome/llm.h"
#include "pome/predictor.h"

enum { N_IDS = 32, WINDOW = 64 };

/* Random ids of the whole vocabulary, the same in each run (splitmix64 from seed 1). */
static void fill_ids(int32_t *ids, int64_t n, int64_t n_vocab)
{
    uint64_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        ids[i] = (int32_t)((z ^ z >> 31) % (uint64_t)n_vocab);
    }
}

pome_status check_package(const char *path, const common_args *common, pome_error *err)
{
    int32_t ids[N_IDS];
    pome_model *model = NULL;
    pome_llm *llm = NULL;
    pome_llm_session *session = NULL;
    const float *logits = NULL;
    pome_status status = open_model(&model, path, common, err);
    if (status == POME_OK)
        status = pome_llm_open(&llm, model, NULL, err);
    if (status == POME_OK)
        status = pome_llm_session_create(&session, llm, err);
    int64_t n_vocab = status == POME_OK ? pome_llm_n_vocab(llm) : 1, n = N_IDS;
    if (status == POME_OK && pome_llm_n_context(llm) < n)
        n = pome_llm_n_context(llm);
    fill_ids(ids, N_IDS, n_vocab);
    if (status == POME_OK)
        status = pome_llm_session_feed(session, ids, n, &logits, err);
    for (int64_t i = 0; status == POME_OK && i < n_vocab; i++)
        if (!isfinite(logits[i])) {
            err->code = status = POME_ERR_FORMAT;
            snprintf(err->message, sizeof err->message, "%s: logit %lld of a test run is no number", path, (long long)i);
        }
    pome_llm_session_destroy(&session);
    pome_llm_close(&llm);
    pome_model_close(&model);
    return status;
}

/* ---- sets ---- */

typedef struct named {
    char name[64];
    pome_tensor t;
} named;

/* What the packages of a set gave so far. */
typedef struct store {
    named *items;
    size_t n;
} store;

static pome_tensor *find(const store *s, const char *name)
{
    for (size_t i = 0; i < s->n; i++)
        if (strcmp(s->items[i].name, name) == 0)
            return &s->items[i].t;
    return NULL;
}

static pome_status fail(pome_error *err, pome_status code, const char *path, const char *why)
{
    err->code = code;
    snprintf(err->message, sizeof err->message, "%s: %s", path, why);
    return code;
}

static pome_status keep(store *s, const char *name, const pome_tensor *t, pome_error *err)
{
    pome_tensor *old = find(s, name);
    if (!old) {
        named *more = realloc(s->items, (s->n + 1) * sizeof *more);
        if (!more)
            return fail(err, POME_ERR_NOMEM, name, "out of memory");
        s->items = more;
        s->items[s->n] = (named){{0}, {0}};
        snprintf(s->items[s->n].name, sizeof s->items[s->n].name, "%s", name);
        old = &s->items[s->n++].t;
    }
    pome_tensor_reset(old);
    return pome_tensor_clone(old, t, err);
}

static void forget(store *s)
{
    for (size_t i = 0; i < s->n; i++)
        pome_tensor_reset(&s->items[i].t);
    free(s->items);
}

/* What nothing gave yet: ids, the length of a window, zeros. Ranged axes get N_IDS. */
static pome_status make_input(store *s, const pome_feature *f, int64_t n_vocab, pome_error *err)
{
    pome_tensor t;
    int64_t shape[POME_MAX_RANK];
    for (int32_t i = 0; i < f->rank; i++)
        shape[i] = f->is_ranged && f->range[i].max > N_IDS && f->range[i].min < N_IDS ? N_IDS
                   : f->is_ranged && f->range[i].min < f->range[i].max             ? f->range[i].max
                                                                                   : f->shape[i];
    pome_status status = pome_tensor_init(&t, f->dtype, f->rank, shape, err);
    if (status != POME_OK)
        return status;
    int32_t *ints = t.data;
    if (f->dtype == POME_DTYPE_I32 && f->rank == 2)
        fill_ids(ints, shape[1], n_vocab);
    else if (f->dtype == POME_DTYPE_I32)
        ints[0] = WINDOW;
    status = keep(s, f->name, &t, err);
    pome_tensor_reset(&t);
    return status;
}

static pome_status run_package(store *s, pome_model *model, int64_t n_vocab, pome_error *err)
{
    const pome_function_info *fn = &pome_model_describe(model)->functions[0];
    pome_predictor *predictor = NULL;
    pome_state *state = NULL;
    pome_status status = pome_predictor_create(&predictor, model, NULL, NULL, err);
    if (status == POME_OK && fn->n_states)
        status = pome_state_create(&state, model, NULL, err);
    for (uint32_t i = 0; i < fn->n_inputs && status == POME_OK; i++)
        if (!find(s, fn->inputs[i].name))
            status = make_input(s, &fn->inputs[i], n_vocab, err);
    for (uint32_t i = 0; i < fn->n_inputs && status == POME_OK; i++)
        status = pome_predictor_set_input(predictor, i, find(s, fn->inputs[i].name), err);
    if (status == POME_OK)
        status = pome_predictor_run(predictor, state, err);
    for (uint32_t i = 0; i < fn->n_outputs && status == POME_OK; i++) {
        const char *name = fn->outputs[i].name;
        status = keep(s, strcmp(name, "new_x") == 0 ? "x" : name, pome_predictor_output(predictor, i), err);
    }
    pome_state_destroy(&state);
    pome_predictor_destroy(&predictor);
    return status;
}

static pome_status check_logits(const store *s, const char *folder, pome_error *err)
{
    bool found = false;
    for (size_t i = 0; i < s->n; i++) {
        pome_tensor wide = {0};
        if (strncmp(s->items[i].name, "logits", 6) != 0)
            continue;
        found = true;
        pome_status status = pome_tensor_cast(&wide, &s->items[i].t, POME_DTYPE_F32, err);
        const float *x = wide.data;
        for (int64_t k = 0; status == POME_OK && k < pome_tensor_count(&wide); k++)
            if (!isfinite(x[k]))
                status = fail(err, POME_ERR_FORMAT, folder, "a logit of a test run is no number");
        pome_tensor_reset(&wide);
        if (status != POME_OK)
            return status;
    }
    return found ? POME_OK : fail(err, POME_ERR_FORMAT, folder, "the last package gave no logits");
}

pome_status check_set(const char *folder, uint32_t n_packages, int64_t n_vocab, const common_args *common,
                      pome_error *err)
{
    store s = {NULL, 0};
    size_t len = strlen(folder), room = 2 * len + 64;
    while (len > 1 && folder[len - 1] == '/')
        len--;
    const char *prefix = folder + len;
    while (prefix > folder && prefix[-1] != '/')
        prefix--;
    char *path = malloc(room);
    pome_status status = path ? POME_OK : fail(err, POME_ERR_NOMEM, folder, "out of memory");
    for (uint32_t i = 0; i < n_packages && status == POME_OK; i++) {
        pome_model *model = NULL;
        snprintf(path, room, "%.*s/%.*s_chunk%u.mlpackage", (int)len, folder, (int)(folder + len - prefix), prefix,
                 (unsigned)i + 1);
        status = open_model(&model, path, common, err);
        if (status == POME_OK)
            status = run_package(&s, model, n_vocab, err);
        pome_model_close(&model);
    }
    if (status == POME_OK)
        status = check_logits(&s, folder, err);
    forget(&s);
    free(path);
    return status;
}
