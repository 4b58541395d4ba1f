/* Runs CoreML-LLM's chunks, a token at a time. What a chunk gives is the next one's input where it lies; caches have two
 * memories each, one that a pass reads and one that it writes. */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"
#include "llm/contract_coreml_llm.h"
#include "runtime/predictor.h"

typedef struct chunk {
    pome_predictor *predictor;
    pome_state *state;   /* NULL without states */
    pome_tensor *values; /* [n_inputs] what is fed: memory of this runner, but for outputs of other chunks */
    void **next;         /* [n_inputs] of caches: what the next pass writes; else NULL */
} chunk;

typedef struct coreml_llm_runner {
    pome_runner base;
    chunk *chunks; /* [n_links] */
    float *row;    /* the widest row of a table */
    pome_cache_layout layout;
    bool is_fresh, is_spoiled;
} coreml_llm_runner;

static const pome_coreml_llm *parts(const pome_runner *runner)
{
    return runner->contract->own;
}

static void destroy(pome_runner *runner)
{
    coreml_llm_runner *r = (coreml_llm_runner *)runner;
    const pome_coreml_llm *m = parts(runner);
    for (int k = 0; r->chunks && k < m->n_links; k++) {
        chunk *x = &r->chunks[k];
        for (uint32_t i = 0; i < m->links[k].function->n_inputs; i++) {
            if (x->values && m->links[k].inputs[i].source != POME_LINK_OUTPUT)
                free(x->values[i].data);
            if (x->next)
                free(x->next[i]);
        }
        free(x->values);
        free(x->next);
        pome_predictor_destroy(&x->predictor);
        pome_state_destroy(&x->state);
    }
    free(r->chunks);
    free(r->row);
    free(r);
}

static void clear(pome_runner *runner)
{
    coreml_llm_runner *r = (coreml_llm_runner *)runner;
    const pome_coreml_llm *m = parts(runner);
    for (int k = 0; k < m->n_links; k++) {
        if (r->chunks[k].state)
            pome_state_clear(r->chunks[k].state);
        for (uint32_t i = 0; i < m->links[k].function->n_inputs; i++)
            if (m->links[k].inputs[i].source == POME_LINK_CACHE)
                memset(r->chunks[k].values[i].data, 0, pome_tensor_size_bytes(&r->chunks[k].values[i]));
    }
    r->is_fresh = true;
    r->is_spoiled = false;
}

static bool goes_back(const coreml_llm_runner *r)
{
    return r->layout == POME_CACHE_BY_POSITION;
}

static int64_t kept(const pome_runner *runner, int64_t n_cached, int64_t n_keep)
{
    const coreml_llm_runner *r = (const coreml_llm_runner *)runner;
    if (goes_back(r))
        return n_keep < n_cached ? n_keep : n_cached;
    return n_keep >= n_cached && !r->is_spoiled ? n_cached : 0;
}

static void rewind_to(pome_runner *runner, int64_t n_keep)
{
    if (n_keep == 0 && !goes_back((const coreml_llm_runner *)runner))
        clear(runner);
}

static bool can_undo(const pome_runner *runner, pome_pass pass, int64_t n_keep)
{
    (void)pass;
    (void)n_keep;
    return goes_back((const coreml_llm_runner *)runner);
}

/* After the first token: one cache that moves is enough to make going back impossible. */
static void detect_layout(coreml_llm_runner *r)
{
    const pome_coreml_llm *m = parts(&r->base);
    int64_t context = r->base.contract->context, n_rows = 0;
    r->layout = POME_CACHE_BY_POSITION;
    for (int k = 0; k < m->n_links && r->layout == POME_CACHE_BY_POSITION; k++) {
        const pome_function_info *fn = m->links[k].function;
        for (uint32_t i = 0; i < fn->n_states && r->layout == POME_CACHE_BY_POSITION; i++)
            r->layout = pome_cache_detect(pome_state_tensor(r->chunks[k].state, i), 1, context, &n_rows);
        for (uint32_t i = 0; i < fn->n_inputs && r->layout == POME_CACHE_BY_POSITION; i++)
            if (m->links[k].inputs[i].source == POME_LINK_CACHE)
                r->layout = pome_cache_detect(&r->chunks[k].values[i], 1, context, &n_rows);
    }
}

/* ---- a pass ---- */

static pome_status fill(coreml_llm_runner *r, const pome_link_input *in, pome_tensor *to, int64_t position, int32_t id,
                        pome_error *err)
{
    const pome_coreml_llm *m = parts(&r->base);
    int64_t n = pome_tensor_count(to);
    bool is_half = to->dtype == POME_DTYPE_F16;
    switch (in->source) {
    case POME_LINK_IDS: *(int32_t *)to->data = id; break;
    case POME_LINK_POSITION: *(int32_t *)to->data = (int32_t)position; break;
    case POME_LINK_MASK: pome_fill_mask_row(to->data, is_half, n, 0, position + 1); break;
    case POME_LINK_SLIDING: {
        int64_t n_open = position + 1 < n ? position + 1 : n;
        pome_fill_mask_row(to->data, is_half, n, n - n_open, n_open);
        break;
    }
    case POME_LINK_UPDATE:
        for (int64_t i = 0; i < n; i++)
            ((float *)to->data)[i] = i == position;
        break;
    case POME_LINK_TOKEN:
    case POME_LINK_ROTARY: {
        pome_row_table_read(&m->tables[in->from], in->source == POME_LINK_TOKEN ? id : position, r->row);
        pome_tensor row = pome_tensor_borrow(r->row, POME_DTYPE_F32, to->rank, to->shape);
        return pome_tensor_copy(to, &row, err);
    }
    default: break;
    }
    return POME_OK;
}

static pome_status run_chunk(coreml_llm_runner *r, int k, int64_t position, int32_t id, pome_error *err)
{
    const pome_link *link = &parts(&r->base)->links[k];
    chunk *x = &r->chunks[k];
    for (uint32_t i = 0; i < link->function->n_inputs; i++) {
        const pome_link_input *in = &link->inputs[i];
        const pome_tensor *value = &x->values[i];
        if (in->source == POME_LINK_OUTPUT) {
            value = pome_predictor_output(r->chunks[in->from].predictor, (uint32_t)in->output);
        } else if (in->source == POME_LINK_CACHE) {
            pome_tensor next = pome_tensor_borrow(x->next[i], value->dtype, value->rank, value->shape);
            POME_TRY(pome_predictor_bind_output(x->predictor, (uint32_t)in->output, &next, err));
        } else {
            POME_TRY(fill(r, in, &x->values[i], position, id, err));
        }
        POME_TRY(pome_predictor_set_input(x->predictor, i, value, err));
    }
    POME_TRY(pome_predictor_run(x->predictor, x->state, err));
    return POME_OK;
}

/* All chunks have run: what they wrote is what the next pass reads. */
static void swap_caches(coreml_llm_runner *r)
{
    const pome_coreml_llm *m = parts(&r->base);
    for (int k = 0; k < m->n_links; k++)
        for (uint32_t i = 0; i < m->links[k].function->n_inputs; i++)
            if (m->links[k].inputs[i].source == POME_LINK_CACHE) {
                void *before = r->chunks[k].values[i].data;
                r->chunks[k].values[i].data = r->chunks[k].next[i];
                r->chunks[k].next[i] = before;
            }
}

static pome_status run(pome_runner *runner, pome_pass pass, const int32_t *timeline, pome_want want, pome_rows *rows,
                       pome_error *err)
{
    coreml_llm_runner *r = (coreml_llm_runner *)runner;
    const pome_coreml_llm *m = parts(runner);
    (void)want;
    r->is_spoiled = true;
    for (int k = 0; k < m->n_links; k++)
        POME_TRY(run_chunk(r, k, pass.begin, timeline[pass.begin], err));
    swap_caches(r);
    if (r->is_fresh)
        detect_layout(r);
    r->is_fresh = r->is_spoiled = false;
    *rows = (pome_rows){.n = 1, .n_parts = m->n_logits};
    for (int i = 0; i < m->n_logits; i++)
        rows->parts[i] = pome_predictor_output(r->chunks[m->n_links - 1].predictor, (uint32_t)m->logits[i]);
    return POME_OK;
}

static pome_status reserve_rows(pome_runner *runner, int64_t n_rows, pome_error *err)
{
    (void)runner;
    (void)n_rows;
    (void)err;
    return POME_OK;
}

static pome_status profile(pome_runner *runner, pome_profile *to, pome_error *err)
{
    coreml_llm_runner *r = (coreml_llm_runner *)runner;
    for (int k = 0; k < parts(runner)->n_links; k++)
        POME_TRY(pome_predictor_profile(r->chunks[k].predictor, to, err));
    return POME_OK;
}

static const pome_runner_ops ops = {destroy, clear, run, kept, rewind_to, can_undo, reserve_rows, profile};

/* ---- creating ---- */

static pome_dtype dtype_of(const pome_link_input *in, const pome_feature *f)
{
    if (in->source == POME_LINK_IDS || in->source == POME_LINK_POSITION)
        return POME_DTYPE_I32;
    if (in->source == POME_LINK_UPDATE)
        return POME_DTYPE_F32;
    return in->source == POME_LINK_CACHE || f->dtype == POME_DTYPE_F16 ? f->dtype : POME_DTYPE_F32;
}

static pome_status create_chunk(coreml_llm_runner *r, int k, pome_error *err)
{
    const pome_link *link = &parts(&r->base)->links[k];
    const pome_function_info *fn = link->function;
    chunk *x = &r->chunks[k];
    x->values = calloc(fn->n_inputs + 1, sizeof *x->values);
    x->next = calloc(fn->n_inputs + 1, sizeof *x->next);
    if (!x->values || !x->next)
        return pome_fail_nomem(err, fn->n_inputs * sizeof *x->values, "session");
    for (uint32_t i = 0; i < fn->n_inputs; i++) {
        if (link->inputs[i].source == POME_LINK_OUTPUT)
            continue;
        x->values[i] = pome_tensor_borrow(NULL, dtype_of(&link->inputs[i], &fn->inputs[i]), fn->inputs[i].rank, fn->inputs[i].shape);
        size_t size = pome_tensor_size_bytes(&x->values[i]);
        x->values[i].data = calloc(1, size + 1);
        if (link->inputs[i].source == POME_LINK_CACHE)
            x->next[i] = calloc(1, size + 1);
        if (!x->values[i].data || (link->inputs[i].source == POME_LINK_CACHE && !x->next[i]))
            return pome_fail_nomem(err, size, "caches");
    }
    if (fn->n_states > 0)
        POME_TRY(pome_state_create(&x->state, link->model, fn->name, err));
    POME_TRY(pome_predictor_create(&x->predictor, link->model, fn->name, NULL, err));
    pome_predictor_stop_by(x->predictor, r->base.stop);
    int64_t(*shapes)[POME_MAX_RANK] = calloc(fn->n_inputs + 1, sizeof *shapes);
    if (!shapes)
        return pome_fail_nomem(err, fn->n_inputs * sizeof *shapes, "shapes");
    for (uint32_t i = 0; i < fn->n_inputs; i++)
        memcpy(shapes[i], fn->inputs[i].shape, sizeof shapes[i]);
    pome_status status = pome_predictor_reserve(x->predictor, (const int64_t(*)[POME_MAX_RANK])shapes, err);
    free(shapes);
    return status;
}

static pome_status init(coreml_llm_runner *r, pome_error *err)
{
    const pome_coreml_llm *m = parts(&r->base);
    int64_t widest = 1;
    for (int i = 0; i < m->n_tables; i++)
        widest = m->tables[i].dim > widest ? m->tables[i].dim : widest;
    r->row = calloc((size_t)widest, sizeof *r->row);
    r->chunks = calloc((size_t)m->n_links, sizeof *r->chunks);
    if (!r->row || !r->chunks)
        return pome_fail_nomem(err, (size_t)widest * sizeof *r->row, "session");
    for (int k = 0; k < m->n_links; k++)
        POME_TRY(create_chunk(r, k, err));
    return POME_OK;
}

pome_status pome_coreml_llm_runner_create(pome_runner **out, const pome_contract *contract, const pome_runner_opts *opts,
                                          pome_error *err)
{
    coreml_llm_runner *r = calloc(1, sizeof *r);
    if (!r)
        return pome_fail_nomem(err, sizeof *r, "session");
    *r = (coreml_llm_runner){.base = {&ops, contract, opts->stop}, .is_fresh = true};
    pome_status status = init(r, err);
    if (status != POME_OK) {
        destroy(&r->base);
        return status;
    }
    *out = &r->base;
    return POME_OK;
}
