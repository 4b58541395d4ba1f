#include "runtime/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mil/load.h"
#include "passes/pass.h"

void pome_model_opts_default(pome_model_opts *opts)
{
    *opts = (pome_model_opts){.size = sizeof *opts, .numerics = POME_NUMERICS_EXACT};
}

/* ---- operators without an implementation: all of them in one message ---- */

typedef struct missing {
    char text[900];
    size_t at;
    uint32_t n;
} missing;

static void note_missing(missing *m, const pome_function *fn, const pome_op *op)
{
    m->n++;
    int room = (int)(sizeof m->text - m->at);
    int n = snprintf(m->text + m->at, (size_t)room, "%s%s (%s, function %s, #%u)", m->at ? ", " : "", op->def->name,
                     pome_opset_name(fn->opset), fn->name, op->position);
    if (n < 0 || n >= room)
        m->text[m->at] = 0; /* the count still says how many */
    else
        m->at += (size_t)n;
}

static void look_for_missing(missing *m, const pome_function *fn, const pome_block *b)
{
    for (uint32_t i = 0; i < b->n_ops; i++) {
        const pome_op *op = b->ops[i];
        bool is_control = op->def->id == POME_OP_cond || op->def->id == POME_OP_while_loop;
        if (!is_control && !pome_op_impl_find(op->def->id))
            note_missing(m, fn, op);
        for (uint32_t k = 0; k < op->n_blocks; k++)
            look_for_missing(m, fn, op->blocks[k]);
    }
}

static pome_status refuse_missing(const pome_program *program, pome_error *err)
{
    missing m = {.n = 0};
    for (uint32_t i = 0; i < program->n_functions; i++)
        look_for_missing(&m, program->functions[i], program->functions[i]->body);
    if (m.n)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "%u operators are not implemented: %s", m.n, m.text);
    return POME_OK;
}

/* ---- description against program ---- */

static int find_output(const pome_function *fn, const char *name)
{
    for (uint32_t i = 0; i < fn->body->n_outputs; i++)
        if (strcmp(fn->body->outputs[i]->name, name) == 0)
            return (int)i;
    return -1;
}

static pome_status check_inputs(const pome_function_info *f, const pome_function *fn, pome_error *err)
{
    if (fn->n_inputs != f->n_inputs + f->n_states)
        return pome_fail(err, POME_ERR_FORMAT, "function %s has %u inputs and states, its description %u", f->name,
                         fn->n_inputs, f->n_inputs + f->n_states);
    for (uint32_t i = 0; i < fn->n_inputs; i++) {
        const pome_feature *d = i < f->n_inputs ? &f->inputs[i] : &f->states[i - f->n_inputs];
        const pome_value *v = fn->inputs[i];
        bool is_state = v->type.kind == POME_TYPE_STATE;
        if (strcmp(v->name, d->name) != 0 || is_state != (i >= f->n_inputs))
            return pome_fail(err, POME_ERR_FORMAT, "function %s: the program's input %u is %s, the description's %s",
                             f->name, i, v->name, d->name);
        if (is_state && (v->type.rank != d->rank || v->type.dtype != d->dtype ||
                         memcmp(v->type.dim, d->shape, (size_t)d->rank * sizeof d->shape[0]) != 0))
            return pome_fail(err, POME_ERR_FORMAT, "function %s: state %s has another type than its description",
                             f->name, d->name);
    }
    return POME_OK;
}

/* Where classes of an integer type narrower than 64 bits are kept; the program's are views of the file. */
static const int64_t *class_ids(pome_model *m, const pome_const *k)
{
    int64_t n = pome_tensor_count(&k->t), *ids = POME_NEW_ARRAY(m->program->arena, int64_t, (size_t)n);
    for (int64_t i = 0; ids && i < n; i++)
        ids[i] = pome_tensor_int_at_any(&k->t, i);
    return ids;
}

static pome_status find_classes(pome_model *m, const pome_value *v, pome_classes *out, pome_error *err)
{
    const pome_op *op = v->def;
    *out = (pome_classes){0};
    if (!op || op->def->id != POME_OP_classify)
        return POME_OK;
    const pome_const *k = pome_op_arg(op, P_classify_classes)->konst;
    out->n = (uint32_t)pome_tensor_count(&k->t);
    out->names = k->strings;
    if (!k->strings && !(out->ids = class_ids(m, k)))
        return pome_fail_nomem(err, out->n * sizeof *out->ids, "classes");
    return POME_OK;
}

pome_classes pome_model_classes(const pome_model *model, uint32_t function, uint32_t output)
{
    bool is_known = function < model->info.n_functions && output < model->info.functions[function].n_outputs;
    return is_known ? model->functions[function].classes[output] : (pome_classes){0};
}

static pome_status map_function(pome_model *m, uint32_t i, pome_error *err)
{
    const pome_function_info *f = &m->info.functions[i];
    pome_model_function *mf = &m->functions[i];
    mf->fn = pome_program_find(m->program, f->name);
    if (!mf->fn)
        return pome_fail(err, POME_ERR_FORMAT, "function %s is described but not in the program", f->name);
    POME_TRY(check_inputs(f, mf->fn, err));
    mf->outputs = POME_NEW_ARRAY(m->program->arena, uint32_t, f->n_outputs);
    mf->classes = POME_NEW_ARRAY(m->program->arena, pome_classes, f->n_outputs);
    if (!mf->outputs || !mf->classes)
        return pome_fail_nomem(err, f->n_outputs * sizeof *mf->outputs, "outputs");
    for (uint32_t k = 0; k < f->n_outputs; k++) {
        int at = find_output(mf->fn, f->outputs[k].name);
        if (at < 0)
            return pome_fail(err, POME_ERR_FORMAT, "function %s: output %s is described but not in the program",
                             f->name, f->outputs[k].name);
        mf->outputs[k] = (uint32_t)at;
        POME_TRY(find_classes(m, mf->fn->body->outputs[at], &mf->classes[k], err));
    }
    return POME_OK;
}

/* ---- life ---- */

static pome_status load(pome_model *m, const char *path, pome_error *err)
{
    POME_TRY(pome_mlpackage_open(&m->package, path, NULL, err));
    POME_TRY(pome_program_load(&m->program, m->package, NULL, err));
    pome_mlpackage_forget_spec(m->package);
    POME_TRY(pome_program_verify(m->program, err));
    POME_TRY(pome_pass_encode(m->program, err));
    POME_TRY(refuse_missing(m->program, err));
    m->info = m->package->info;
    m->info.weights_bytes = m->program->weights_bytes;
    m->functions = POME_NEW_ARRAY(m->program->arena, pome_model_function, m->info.n_functions);
    if (!m->functions)
        return pome_fail_nomem(err, m->info.n_functions * sizeof *m->functions, "functions");
    for (uint32_t i = 0; i < m->info.n_functions; i++)
        POME_TRY(map_function(m, i, err));
    return POME_OK;
}

pome_status pome_model_open(pome_model **out, const char *path, const pome_model_opts *opts, pome_error *err)
{
    return pome_model_open_shared(out, path, opts, NULL, err);
}

pome_status pome_model_open_shared(pome_model **out, const char *path, const pome_model_opts *opts, pome_pool *pool,
                                   pome_error *err)
{
    pome_model_opts o;
    pome_model_opts_default(&o);
    if (opts)
        memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    if ((unsigned)o.numerics > POME_NUMERICS_FP16)
        return pome_fail(err, POME_ERR_ARG, "numerics %d is not known", (int)o.numerics);
    uint32_t no_fuse = 0;
    POME_TRY(pome_fusions_parse(o.no_fuse, &no_fuse, err));
    pome_model *m = calloc(1, sizeof *m);
    if (!m)
        return pome_fail_nomem(err, sizeof *m, "model");
    pthread_mutex_init(&m->lock, NULL);
    m->numerics = o.numerics;
    m->no_fuse = no_fuse;
    pome_kernels_init(&m->kernels, pome_cpu_level_get());
    pome_status s = load(m, path, err);
    m->pool = pool;
    m->borrows_pool = pool != NULL;
    if (s == POME_OK && !pool)
        s = pome_pool_create(&m->pool, o.n_threads, err);
    if (s != POME_OK) {
        pome_model_close(&m);
        return s;
    }
    *out = m;
    return POME_OK;
}

void pome_model_close(pome_model **model)
{
    if (!model || !*model)
        return;
    pome_model *m = *model;
    while (m->plans) {
        pome_model_plan *next = m->plans->next;
        pome_plan_destroy(&m->plans->plan);
        free(m->plans);
        m->plans = next;
    }
    if (!m->borrows_pool)
        pome_pool_destroy(&m->pool);
    pome_program_destroy(&m->program);
    pome_mlpackage_close(&m->package);
    pthread_mutex_destroy(&m->lock);
    free(m);
    *model = NULL;
}

const pome_model_info *pome_model_describe(const pome_model *model)
{
    return &model->info;
}

int pome_model_find_function(const pome_model *model, const char *name)
{
    if (!name || !name[0])
        return (int)model->info.default_function;
    for (uint32_t i = 0; i < model->info.n_functions; i++)
        if (strcmp(model->info.functions[i].name, name) == 0)
            return (int)i;
    return -1;
}

/* ---- plans ---- */

static pome_status compile(pome_model_plan *mp, pome_model *m, pome_error *err)
{
    const pome_model_function *f = &m->functions[mp->function];
    pome_plan_opts opts = {.numerics = m->numerics, .kernels = &m->kernels, .last_row_output = -1,
                           .no_fuse = m->no_fuse};
    if (mp->last_row_output >= 0)
        opts.last_row_output = (int)f->outputs[mp->last_row_output];
    return pome_plan_create(&mp->plan, f->fn, &opts, err);
}

static pome_status get_locked(const pome_plan **out, pome_model *m, uint32_t function, int last_row_output,
                              pome_error *err)
{
    for (pome_model_plan *p = m->plans; p; p = p->next)
        if (p->function == function && p->last_row_output == last_row_output) {
            *out = p->plan;
            return POME_OK;
        }
    pome_model_plan *p = malloc(sizeof *p);
    if (!p)
        return pome_fail_nomem(err, sizeof *p, "plan");
    *p = (pome_model_plan){m->plans, function, last_row_output, NULL};
    pome_status s = compile(p, m, err);
    if (s != POME_OK) {
        free(p);
        return s;
    }
    m->plans = p;
    *out = p->plan;
    return POME_OK;
}

pome_status pome_model_get_plan(const pome_plan **out, pome_model *m, uint32_t function, int last_row_output,
                                pome_error *err)
{
    pthread_mutex_lock(&m->lock);
    pome_status s = get_locked(out, m, function, last_row_output, err);
    pthread_mutex_unlock(&m->lock);
    return s;
}

bool pome_model_has_weights_of(const pome_model *a, const pome_model *b)
{
    static const size_t most = 16 << 20;
    if (a->program->n_mappings != 1 || b->program->n_mappings != 1)
        return false;
    pome_bytes v = pome_mapping_bytes(a->program->mappings[0]), w = pome_mapping_bytes(b->program->mappings[0]);
    size_t n = v.len < most ? v.len : most;
    return v.len == w.len && n > 0 && memcmp(v.ptr, w.ptr, n) == 0 && memcmp(v.ptr + v.len - n, w.ptr + w.len - n, n) == 0;
}
