/* Runs ANEMLL's models: embeddings, then all layers, then the head for the last token. What one model gives is the next
 * one's input where it lies. One state serves all functions. */
#include <stdlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "llm/contract_anemll.h"
#include "runtime/predictor.h"

/* The models of one kind of pass: one row, or a batch. */
typedef struct pipeline {
    const pome_anemll_layers *layers; /* [n_chunks] */
    pome_predictor *embeddings;
    pome_predictor **chunks;          /* [n_chunks] */
} pipeline;

typedef struct anemll_runner {
    pome_runner base;
    pipeline single, batch;
    pome_predictor *head;
    pome_state *state;
    int32_t *ids, *positions; /* [n_batch] */
    void *mask;               /* [n_batch, context] of fp16 or fp32 */
    float *update;            /* [context] */
    int32_t position;
} anemll_runner;

static const pome_anemll *parts(const pome_runner *runner)
{
    return runner->contract->own;
}

static void destroy_pipeline(pipeline *p, int n_chunks)
{
    pome_predictor_destroy(&p->embeddings);
    for (int i = 0; p->chunks && i < n_chunks; i++)
        pome_predictor_destroy(&p->chunks[i]);
    free(p->chunks);
}

static void destroy(pome_runner *runner)
{
    anemll_runner *r = (anemll_runner *)runner;
    destroy_pipeline(&r->single, parts(runner)->n_chunks);
    destroy_pipeline(&r->batch, parts(runner)->n_chunks);
    pome_predictor_destroy(&r->head);
    pome_state_destroy(&r->state);
    free(r->ids);
    free(r->positions);
    free(r->mask);
    free(r->update);
    free(r);
}

static void clear(pome_runner *runner)
{
    pome_state_clear(((anemll_runner *)runner)->state);
}

static void fill(anemll_runner *r, const pome_anemll_layers *l, pome_pass pass, const int32_t *timeline)
{
    bool is_half = l->function->inputs[l->mask].dtype == POME_DTYPE_F16;
    size_t row_bytes = (size_t)l->context * (is_half ? 2 : 4);
    for (int64_t i = 0; i < pass.n_rows; i++) {
        r->ids[i] = i < pass.n_real ? timeline[pass.begin + i] : 0;
        r->positions[i] = (int32_t)(pass.begin + i);
        pome_fill_mask_row((char *)r->mask + (size_t)i * row_bytes, is_half, l->context, 0, pass.begin + i + 1);
    }
    for (int64_t i = 0; r->update && i < l->context; i++)
        r->update[i] = i >= pass.begin && i < pass.begin + pass.n_rows;
    r->position = (int32_t)pass.begin;
}

static pome_status set_input(pome_predictor *predictor, int index, void *data, pome_dtype dtype, int32_t rank,
                             const int64_t *shape, pome_error *err)
{
    pome_tensor t = pome_tensor_borrow(data, dtype, rank, shape);
    return index >= 0 ? pome_predictor_set_input(predictor, (uint32_t)index, &t, err) : POME_OK;
}

static pome_status run_layers(anemll_runner *r, const pome_anemll_layers *l, pome_predictor *predictor,
                              const pome_tensor *hidden, int64_t n, pome_error *err)
{
    pome_dtype mask = l->function->inputs[l->mask].dtype == POME_DTYPE_F16 ? POME_DTYPE_F16 : POME_DTYPE_F32;
    POME_TRY(pome_predictor_set_input(predictor, (uint32_t)l->hidden, hidden, err));
    POME_TRY(set_input(predictor, l->positions, r->positions, POME_DTYPE_I32, 1, (int64_t[]){n}, err));
    POME_TRY(set_input(predictor, l->position, &r->position, POME_DTYPE_I32, 1, (int64_t[]){1}, err));
    POME_TRY(set_input(predictor, l->mask, r->mask, mask, 4, (int64_t[]){1, 1, n, l->context}, err));
    POME_TRY(set_input(predictor, l->update, r->update, POME_DTYPE_F32, 4, (int64_t[]){1, 1, l->context, 1}, err));
    return pome_predictor_run(predictor, r->state, err);
}

static pome_status run_head(anemll_runner *r, const pome_tensor *hidden, pome_rows *rows, pome_error *err)
{
    const pome_anemll *a = parts(&r->base);
    POME_TRY(pome_predictor_set_input(r->head, 0, hidden, err));
    POME_TRY(pome_predictor_run(r->head, NULL, err));
    *rows = (pome_rows){.n = 1, .n_parts = a->n_logits};
    for (int i = 0; i < a->n_logits; i++)
        rows->parts[i] = pome_predictor_output(r->head, (uint32_t)a->logits[i]);
    return POME_OK;
}

static pome_status run(pome_runner *runner, pome_pass pass, const int32_t *timeline, pome_want want, pome_rows *rows,
                       pome_error *err)
{
    anemll_runner *r = (anemll_runner *)runner;
    const pome_anemll *a = parts(runner);
    pipeline *p = pass.n_rows == 1 ? &r->single : &r->batch;
    fill(r, &p->layers[0], pass, timeline);
    POME_TRY(set_input(p->embeddings, 0, r->ids, POME_DTYPE_I32, 2, (int64_t[]){1, pass.n_rows}, err));
    POME_TRY(pome_predictor_run(p->embeddings, NULL, err));
    const pome_tensor *hidden = pome_predictor_output(p->embeddings, 0);
    for (int i = 0; i < a->n_chunks; i++) {
        POME_TRY(run_layers(r, &p->layers[i], p->chunks[i], hidden, pass.n_rows, err));
        hidden = pome_predictor_output(p->chunks[i], 0);
    }
    if (want == POME_WANT_NOTHING)
        return POME_OK;
    if (pass.n_rows > 1)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "the prefill functions give no logits");
    return run_head(r, hidden, rows, err);
}

static pome_status reserve_rows(pome_runner *runner, int64_t n_rows, pome_error *err)
{
    (void)runner;
    (void)n_rows;
    (void)err;
    return POME_OK;
}

static pome_status profile_pipeline(const pipeline *p, int n_chunks, pome_profile *to, pome_error *err)
{
    if (p->embeddings)
        POME_TRY(pome_predictor_profile(p->embeddings, to, err));
    for (int i = 0; p->chunks && i < n_chunks; i++)
        POME_TRY(pome_predictor_profile(p->chunks[i], to, err));
    return POME_OK;
}

static pome_status profile(pome_runner *runner, pome_profile *to, pome_error *err)
{
    anemll_runner *r = (anemll_runner *)runner;
    POME_TRY(profile_pipeline(&r->single, parts(runner)->n_chunks, to, err));
    POME_TRY(profile_pipeline(&r->batch, parts(runner)->n_chunks, to, err));
    return pome_predictor_profile(r->head, to, err);
}

static const pome_runner_ops ops = {destroy, clear, run, pome_rows_kept, pome_rows_rewind,
                                     pome_rows_can_undo, reserve_rows, profile};

/* ---- creating ---- */

/* All inputs of these functions but the ids have fixed shapes. */
static pome_status create_predictor(const anemll_runner *r, pome_predictor **out, pome_model *model,
                                    const pome_function_info *fn, int64_t n_ids, pome_error *err)
{
    int64_t shapes[8][POME_MAX_RANK];
    pome_predictor *predictor = NULL;
    POME_TRY(pome_predictor_create(&predictor, model, fn->name, NULL, err));
    pome_predictor_stop_by(predictor, r->base.stop);
    *out = predictor;
    for (uint32_t i = 0; i < fn->n_inputs && i < 8; i++)
        for (int32_t k = 0; k < POME_MAX_RANK; k++)
            shapes[i][k] = k == 1 && n_ids > 0 ? n_ids : fn->inputs[i].shape[k];
    return fn->n_inputs > 8 ? POME_OK : pome_predictor_reserve(predictor, (const int64_t(*)[POME_MAX_RANK])shapes, err);
}

static pome_status create_pipeline(const anemll_runner *r, pipeline *p, const pome_anemll *a, const pome_anemll_layers *layers, pome_error *err)
{
    p->layers = layers;
    p->chunks = calloc((size_t)a->n_chunks, sizeof *p->chunks);
    if (!p->chunks)
        return pome_fail_nomem(err, (size_t)a->n_chunks * sizeof *p->chunks, "session");
    POME_TRY(create_predictor(r, &p->embeddings, a->embeddings, a->embeddings_function, layers[0].n_rows, err));
    for (int i = 0; i < a->n_chunks; i++)
        POME_TRY(create_predictor(r, &p->chunks[i], layers[i].model, layers[i].function, 0, err));
    return POME_OK;
}

static pome_status init(anemll_runner *r, const pome_anemll *a, pome_error *err)
{
    size_t n = (size_t)a->n_batch, context = (size_t)r->base.contract->context, n_mask = 0;
    if (!pome_mul_size(n, context, &n_mask) || !pome_mul_size(n_mask, sizeof(float), &n_mask))
        return pome_fail(err, POME_ERR_LIMIT, "a mask of %zu x %zu is too large", n, context);
    r->ids = calloc(n, sizeof *r->ids);
    r->positions = calloc(n, sizeof *r->positions);
    r->mask = malloc(n_mask);
    r->update = a->infer[0].update >= 0 ? calloc(context, sizeof *r->update) : NULL;
    if (!r->ids || !r->positions || !r->mask || (a->infer[0].update >= 0 && !r->update))
        return pome_fail_nomem(err, n_mask, "inputs");
    POME_TRY(pome_state_create(&r->state, a->infer[0].model, a->infer[0].function->name, err));
    POME_TRY(create_pipeline(r, &r->single, a, a->infer, err));
    if (a->has_prefill)
        POME_TRY(create_pipeline(r, &r->batch, a, a->prefill, err));
    return create_predictor(r, &r->head, a->head, a->head_function, 0, err);
}

pome_status pome_anemll_runner_create(pome_runner **out, const pome_contract *contract, const pome_runner_opts *opts,
                                      pome_error *err)
{
    anemll_runner *r = calloc(1, sizeof *r);
    if (!r)
        return pome_fail_nomem(err, sizeof *r, "session");
    r->base = (pome_runner){&ops, contract, opts->stop};
    pome_status status = init(r, contract->own, err);
    if (status != POME_OK) {
        destroy(&r->base);
        return status;
    }
    *out = &r->base;
    return POME_OK;
}
