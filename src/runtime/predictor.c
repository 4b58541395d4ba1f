/* A predictor: checks and stages inputs, runs the plan, hands out results in their declared types. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "ops/strided.h"
#include "runtime/exec.h"
#include "runtime/image.h"
#include "runtime/predictor.h"
#include "runtime/state.h"

/* Memory that only grows. */
typedef struct staging {
    void *data;
    size_t size;
} staging;

typedef struct input {
    bool is_set;
    pome_tensor given;  /* borrowed from the caller */
    int64_t shape[POME_MAX_RANK]; /* given's, as described: of an image [1, C, H, W] */
    staging memory;     /* the same in the declared dtype, if that differs, or the default */
} input;

struct pome_predictor {
    pome_model *model;
    uint32_t function;
    const pome_function_info *f;
    const pome_model_function *mf;
    const pome_plan *plan;
    pome_exec *exec;
    input *inputs;              /* [n_inputs] */
    pome_tensor *bound;         /* [n_inputs] what the plan gets */
    const pome_tensor **states; /* [n_states] */
    pome_tensor *outputs;       /* [n_outputs] */
    staging *output_memory;     /* [n_outputs] */
    pome_tensor *bound_outputs; /* [n_outputs] the caller's memory; data NULL: none */
    pome_observer *observer;
    void *observer_arg;
    pome_stop stop;
    pome_profile_section *profile; /* NULL: nothing is measured */
};

void pome_predictor_opts_default(pome_predictor_opts *opts)
{
    *opts = (pome_predictor_opts){.size = sizeof *opts, .last_row_output = -1};
}

static bool stage(staging *s, size_t size)
{
    if (s->data && s->size >= size)
        return true;
    void *data = aligned_alloc(64, (size / 64 + 1) * 64);
    if (!data)
        return false;
    free(s->data);
    *s = (staging){data, (size / 64 + 1) * 64};
    return true;
}

static pome_status check_features(const pome_function_info *f, const pome_model_function *mf, pome_error *err)
{
    for (uint32_t i = 0; i < f->n_inputs; i++)
        if (f->inputs[i].kind != POME_FEATURE_TENSOR && f->inputs[i].kind != POME_FEATURE_IMAGE)
            return pome_fail(err, POME_ERR_UNSUPPORTED, "input %s is neither an array nor an image", f->inputs[i].name);
    for (uint32_t i = 0; i < f->n_outputs; i++) {
        pome_feature_kind kind = f->outputs[i].kind;
        if (kind != POME_FEATURE_TENSOR && kind != POME_FEATURE_IMAGE && !mf->classes[i].n)
            return pome_fail(err, POME_ERR_UNSUPPORTED, "output %s is no array, no image and nothing that a classifier "
                             "gives", f->outputs[i].name);
        if (kind == POME_FEATURE_TENSOR && mf->classes[i].n)
            return pome_fail(err, POME_ERR_FORMAT, "output %s is described as an array, the program gives classes",
                             f->outputs[i].name);
    }
    return POME_OK;
}

static pome_status create(pome_predictor *p, const char *function, const pome_predictor_opts *opts, pome_error *err)
{
    int at = pome_model_find_function(p->model, function);
    if (at < 0)
        return pome_fail(err, POME_ERR_ARG, "the model has no function %s", function);
    p->function = (uint32_t)at;
    p->f = &p->model->info.functions[at];
    p->mf = &p->model->functions[at];
    if (opts->last_row_output >= (int)p->f->n_outputs)
        return pome_fail(err, POME_ERR_ARG, "last_row_output %d of %u outputs", opts->last_row_output,
                         p->f->n_outputs);
    POME_TRY(check_features(p->f, p->mf, err));
    POME_TRY(pome_model_get_plan(&p->plan, p->model, p->function, opts->last_row_output, err));
    POME_TRY(pome_exec_create(&p->exec, p->plan, p->model->pool, err));
    pome_exec_stop_by(p->exec, &p->stop);
    p->inputs = calloc(p->f->n_inputs + 1u, sizeof *p->inputs);
    p->bound = calloc(p->f->n_inputs + 1u, sizeof *p->bound);
    p->states = calloc(p->f->n_states + 1u, sizeof *p->states);
    p->outputs = calloc(p->f->n_outputs + 1u, sizeof *p->outputs);
    p->output_memory = calloc(p->f->n_outputs + 1u, sizeof *p->output_memory);
    p->bound_outputs = calloc(p->f->n_outputs + 1u, sizeof *p->bound_outputs);
    if (!p->inputs || !p->bound || !p->states || !p->outputs || !p->output_memory || !p->bound_outputs)
        return pome_fail_nomem(err, p->f->n_inputs * sizeof *p->inputs, "predictor");
    return POME_OK;
}

pome_status pome_predictor_create(pome_predictor **out, pome_model *model, const char *function,
                                  const pome_predictor_opts *opts, pome_error *err)
{
    pome_predictor_opts o;
    pome_predictor_opts_default(&o);
    if (opts)
        memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    pome_predictor *p = calloc(1, sizeof *p);
    if (!p)
        return pome_fail_nomem(err, sizeof *p, "predictor");
    p->model = model;
    pome_stop_init(&p->stop);
    pome_status s = create(p, function, &o, err);
    if (s != POME_OK) {
        pome_predictor_destroy(&p);
        return s;
    }
    *out = p;
    return POME_OK;
}

void pome_predictor_destroy(pome_predictor **predictor)
{
    if (!predictor || !*predictor)
        return;
    pome_predictor *p = *predictor;
    for (uint32_t i = 0; p->inputs && i < p->f->n_inputs; i++)
        free(p->inputs[i].memory.data);
    for (uint32_t i = 0; p->output_memory && i < p->f->n_outputs; i++)
        free(p->output_memory[i].data);
    pome_exec_destroy(&p->exec);
    free(p->inputs);
    free(p->bound);
    free(p->states);
    free(p->outputs);
    free(p->output_memory);
    free(p->bound_outputs);
    free(p);
    *predictor = NULL;
}

/* ---- inputs ---- */

static bool is_shape(const pome_feature *f, const int64_t *shape, const int64_t *want)
{
    return memcmp(shape, want, (size_t)f->rank * sizeof *shape) == 0;
}

static bool is_admissible(const pome_feature *f, const int64_t *shape)
{
    for (uint32_t k = 0; k < f->n_enumerated; k++)
        if (is_shape(f, shape, f->enumerated + (size_t)k * (size_t)f->rank))
            return true;
    if (f->n_enumerated)
        return false;
    if (!f->is_ranged)
        return is_shape(f, shape, f->shape);
    for (int32_t i = 0; i < f->rank; i++)
        if (shape[i] < f->range[i].min || (f->range[i].max >= 0 && shape[i] > f->range[i].max))
            return false;
    return true;
}

static void shape_text(char *text, size_t size, int32_t rank, const int64_t *shape)
{
    size_t at = (size_t)snprintf(text, size, "[");
    for (int32_t i = 0; i < rank && at < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%lld", i ? ", " : "", (long long)shape[i]);
    if (at < size)
        snprintf(text + at, size - at, "]");
}

static pome_status check_shape(const pome_feature *f, int32_t rank, const int64_t *shape, pome_error *err)
{
    char found[256], wanted[512];
    if (rank == f->rank && is_admissible(f, shape))
        return POME_OK;
    shape_text(found, sizeof found, rank, shape);
    return pome_fail(err, POME_ERR_ARG, "input %s: shape %s, wanted %s", f->name, found,
                     pome_feature_format(f, wanted, sizeof wanted));
}

pome_status pome_predictor_set_input(pome_predictor *p, uint32_t index, const pome_tensor *t, pome_error *err)
{
    if (index >= p->f->n_inputs)
        return pome_fail(err, POME_ERR_ARG, "input %u of %u", index, p->f->n_inputs);
    const pome_feature *f = &p->f->inputs[index];
    if (!t) {
        if (!f->is_optional)
            return pome_fail(err, POME_ERR_ARG, "input %s is required", f->name);
        p->inputs[index].is_set = false;
        return POME_OK;
    }
    bool is_number = pome_dtype_bits(t->dtype) >= 8 && t->dtype != POME_DTYPE_F8E4M3FN && t->dtype != POME_DTYPE_F8E5M2;
    if (!is_number || (!t->data && pome_tensor_count(t) > 0))
        return pome_fail(err, POME_ERR_ARG, "input %s: dtype %s, wanted %s", f->name, pome_dtype_name(t->dtype),
                         pome_dtype_name(f->dtype));
    int64_t shape[POME_MAX_RANK];
    memcpy(shape, t->shape, sizeof shape);
    if (f->kind == POME_FEATURE_IMAGE)
        POME_TRY(pome_image_shape(f, t, shape, err));
    POME_TRY(check_shape(f, f->kind == POME_FEATURE_IMAGE ? 4 : t->rank, shape, err));
    memcpy(p->inputs[index].shape, shape, sizeof shape);
    p->inputs[index].given = *t;
    p->inputs[index].is_set = true;
    return POME_OK;
}

/* With several enumerated inputs the shapes belong together: the same place in each list. */
static pome_status check_enumerated(const pome_predictor *p, pome_error *err)
{
    uint64_t places = UINT64_MAX;
    for (uint32_t i = 0; i < p->f->n_inputs; i++) {
        const pome_feature *f = &p->f->inputs[i];
        uint64_t own = 0;
        if (f->n_enumerated < 2 || f->n_enumerated > 64 || !p->inputs[i].is_set)
            continue;
        for (uint32_t k = 0; k < f->n_enumerated; k++)
            if (is_shape(f, p->inputs[i].shape, f->enumerated + (size_t)k * (size_t)f->rank))
                own |= (uint64_t)1 << k;
        places &= own;
        if (!places)
            return pome_fail(err, POME_ERR_ARG, "input %s: its shape does not go with those of the other inputs "
                             "(enumerated shapes are taken from the same place of each list)", f->name);
    }
    return POME_OK;
}

/* The declared type in the program; a scalar there is described as [1]. */
static pome_tensor in_program_shape(const pome_predictor *p, uint32_t i, pome_tensor t)
{
    if (p->mf->fn->inputs[i]->type.rank == 0 && pome_tensor_count(&t) == 1)
        t.rank = 0;
    if (p->f->inputs[i].kind == POME_FEATURE_IMAGE && p->mf->fn->inputs[i]->type.rank == 3 && t.rank == 4) {
        t.rank = 3; /* [C, H, W] */
        memmove(t.shape, t.shape + 1, 3 * sizeof t.shape[0]);
        memmove(t.stride, t.stride + 1, 3 * sizeof t.stride[0]);
    }
    return t;
}

static pome_status stage_default(pome_predictor *p, uint32_t i, pome_error *err)
{
    const pome_feature *f = &p->f->inputs[i];
    input *in = &p->inputs[i];
    if (!f->is_optional && !f->has_default)
        return pome_fail(err, POME_ERR_ARG, "input %s is not set", f->name);
    pome_tensor t = pome_tensor_borrow(NULL, p->mf->fn->inputs[i]->type.dtype, f->rank, f->shape);
    double value = f->has_default ? f->default_value : 0;
    if (!stage(&in->memory, pome_tensor_size_bytes(&t)))
        return pome_fail_nomem(err, pome_tensor_size_bytes(&t), f->name);
    t.data = in->memory.data;
    pome_tensor one = {.dtype = POME_DTYPE_F64, .rank = f->rank, .data = &value};
    memcpy(one.shape, t.shape, sizeof one.shape); /* strides 0: the value everywhere */
    POME_TRY(pome_tensor_copy(&t, &one, err));
    p->bound[i] = in_program_shape(p, i, t);
    return POME_OK;
}

static pome_status stage_input(pome_predictor *p, uint32_t i, pome_error *err)
{
    input *in = &p->inputs[i];
    pome_dtype want = p->mf->fn->inputs[i]->type.dtype;
    if (!in->is_set)
        return stage_default(p, i, err);
    pome_tensor t = in->given;
    if (p->f->inputs[i].kind == POME_FEATURE_IMAGE) {
        t = pome_tensor_borrow(NULL, want, 4, in->shape);
        if (!stage(&in->memory, pome_tensor_size_bytes(&t)))
            return pome_fail_nomem(err, pome_tensor_size_bytes(&t), p->f->inputs[i].name);
        t.data = in->memory.data;
        POME_TRY(pome_image_to_planes(&p->f->inputs[i], &t, &in->given, err));
    } else if (t.dtype != want) {
        t = pome_tensor_borrow(NULL, want, t.rank, t.shape);
        if (!stage(&in->memory, pome_tensor_size_bytes(&t)))
            return pome_fail_nomem(err, pome_tensor_size_bytes(&t), p->f->inputs[i].name);
        t.data = in->memory.data;
        POME_TRY(pome_tensor_copy(&t, &in->given, err));
    }
    p->bound[i] = in_program_shape(p, i, t);
    return POME_OK;
}

/* ---- states ---- */

static pome_status take_states(pome_predictor *p, pome_state *state, pome_error *err)
{
    uint32_t n = p->f->n_states;
    if (n && !state)
        return pome_fail(err, POME_ERR_ARG, "function %s has %u states, none were given", p->f->name, n);
    for (uint32_t i = 0; i < n; i++) {
        const pome_feature *f = &p->f->states[i];
        const pome_tensor *t = pome_state_find(state, f->name);
        if (!t || t->dtype != f->dtype || t->rank != f->rank || !is_shape(f, t->shape, f->shape))
            return pome_fail(err, POME_ERR_ARG, "the given states have no %s that fits function %s", f->name,
                             p->f->name);
        p->states[i] = t;
    }
    return POME_OK;
}

/* ---- outputs ---- */

/* Memory for output i; its data is NULL when it is only reserved. */
static pome_status stage_output(pome_predictor *p, uint32_t i, bool reserve_only, pome_tensor *t, pome_error *err)
{
    size_t size = t->dtype == POME_DTYPE_STRING ? sizeof(const char *) : pome_tensor_size_bytes(t);
    if (!stage(&p->output_memory[i], size))
        return pome_fail_nomem(err, size, p->f->outputs[i].name);
    t->data = reserve_only ? NULL : p->output_memory[i].data;
    return POME_OK;
}

static pome_status take_image(pome_predictor *p, uint32_t i, const pome_tensor *from, bool reserve_only, pome_error *err)
{
    pome_tensor t;
    POME_TRY(pome_image_pixels_shape(&p->f->outputs[i], from, &t, err));
    POME_TRY(stage_output(p, i, reserve_only, &t, err));
    if (reserve_only)
        return POME_OK;
    p->outputs[i] = t;
    return pome_image_from_planes(&p->f->outputs[i], &t, from, err);
}

/* from: the place of the label in the list of classes, or the probabilities. */
static pome_status take_classes(pome_predictor *p, uint32_t i, const pome_tensor *from, bool reserve_only,
                                pome_error *err)
{
    const pome_classes *classes = &p->mf->classes[i];
    bool is_label = from->dtype == POME_DTYPE_I64;
    pome_dtype dtype = !is_label ? POME_DTYPE_F64 : classes->names ? POME_DTYPE_STRING : POME_DTYPE_I64;
    pome_tensor t = pome_tensor_borrow(NULL, dtype, 1, (int64_t[]){is_label ? 1 : classes->n});
    POME_TRY(stage_output(p, i, reserve_only, &t, err));
    if (reserve_only)
        return POME_OK;
    p->outputs[i] = t;
    if (!is_label)
        return pome_tensor_copy(&t, from, err);
    int64_t place = *(const int64_t *)from->data;
    if (classes->names)
        *(const char **)t.data = classes->names[place];
    else
        *(int64_t *)t.data = classes->ids[place];
    return POME_OK;
}

static pome_status take_output(pome_predictor *p, uint32_t i, bool reserve_only, pome_error *err)
{
    const pome_tensor *from = pome_exec_output(p->exec, p->mf->outputs[i]);
    static const int64_t one[1] = {1};
    if (p->f->outputs[i].kind == POME_FEATURE_IMAGE)
        return take_image(p, i, from, reserve_only, err);
    if (p->f->outputs[i].kind != POME_FEATURE_TENSOR)
        return take_classes(p, i, from, reserve_only, err);
    pome_tensor t = from->rank ? pome_tensor_borrow(NULL, p->f->outputs[i].dtype, from->rank, from->shape)
                               : pome_tensor_borrow(NULL, p->f->outputs[i].dtype, 1, one);
    POME_TRY(stage_output(p, i, reserve_only, &t, err));
    if (reserve_only)
        return POME_OK;
    pome_tensor as_computed = t;
    as_computed.rank = from->rank;
    pome_strided_copy(&as_computed, from, p->model->pool, &p->model->kernels);
    p->outputs[i] = t;
    return POME_OK;
}

pome_status pome_predictor_bind_output(pome_predictor *p, uint32_t index, const pome_tensor *t, pome_error *err)
{
    if (index >= p->f->n_outputs)
        return pome_fail(err, POME_ERR_ARG, "output %u of %u", index, p->f->n_outputs);
    const pome_feature *f = &p->f->outputs[index];
    if (t && f->kind != POME_FEATURE_TENSOR)
        return pome_fail(err, POME_ERR_ARG, "output %s is no array: it cannot be bound", f->name);
    bool is_wider = t && f->dtype == POME_DTYPE_F16 && t->dtype == POME_DTYPE_F32;
    if (t && ((t->dtype != f->dtype && !is_wider) || !t->data))
        return pome_fail(err, POME_ERR_ARG, "output %s: dtype %s, bound to %s", f->name, pome_dtype_name(f->dtype),
                         pome_dtype_name(t->dtype));
    p->bound_outputs[index] = t ? *t : (pome_tensor){0};
    return POME_OK;
}

/* What is written first may be what another output still has to be read from. */
static bool is_written_over(const pome_predictor *p, const pome_tensor *from)
{
    for (uint32_t i = 0; i < p->f->n_outputs; i++)
        if (p->bound_outputs[i].data && pome_strided_overlap(&p->bound_outputs[i], from))
            return true;
    return false;
}

/* Outputs that go through memory of the predictor: all but those bound to memory that takes them as they are. */
static bool is_staged(const pome_predictor *p, uint32_t i)
{
    const pome_tensor *to = &p->bound_outputs[i];
    return !to->data || to->dtype != p->f->outputs[i].dtype ||
           is_written_over(p, pome_exec_output(p->exec, p->mf->outputs[i]));
}

static pome_status write_bound(pome_predictor *p, uint32_t i, bool was_staged, pome_error *err)
{
    const pome_tensor *from = pome_exec_output(p->exec, p->mf->outputs[i]);
    pome_tensor to = p->bound_outputs[i];
    char found[256], wanted[256];
    if (from->rank == 0 && pome_tensor_count(&to) == 1)
        to.rank = 0;
    if (to.rank != from->rank || memcmp(to.shape, from->shape, (size_t)to.rank * sizeof to.shape[0]) != 0) {
        shape_text(found, sizeof found, from->rank, from->shape);
        shape_text(wanted, sizeof wanted, to.rank, to.shape);
        return pome_fail(err, POME_ERR_ARG, "output %s has shape %s, it is bound to %s", p->f->outputs[i].name, found, wanted);
    }
    pome_tensor staged = p->outputs[i];
    staged.rank = from->rank;
    pome_strided_copy(&to, was_staged ? &staged : from, p->model->pool, &p->model->kernels);
    p->outputs[i] = p->bound_outputs[i];
    return POME_OK;
}

static pome_status take_outputs(pome_predictor *p, pome_error *err)
{
    for (uint32_t i = 0; i < p->f->n_outputs; i++)
        if (is_staged(p, i))
            POME_TRY(take_output(p, i, false, err));
        else
            p->outputs[i].data = NULL;
    for (uint32_t i = 0; i < p->f->n_outputs; i++)
        if (p->bound_outputs[i].data)
            POME_TRY(write_bound(p, i, p->outputs[i].data != NULL, err));
    return POME_OK;
}

const pome_tensor *pome_predictor_output(const pome_predictor *p, uint32_t index)
{
    return index < p->f->n_outputs ? &p->outputs[index] : NULL;
}

/* ---- running ---- */

pome_status pome_predictor_reserve(pome_predictor *p, const int64_t (*shapes)[POME_MAX_RANK], pome_error *err)
{
    for (uint32_t i = 0; i < p->f->n_inputs; i++) {
        const pome_feature *f = &p->f->inputs[i];
        POME_TRY(check_shape(f, f->rank, shapes[i], err));
        pome_tensor t = pome_tensor_borrow(NULL, p->mf->fn->inputs[i]->type.dtype, f->rank, shapes[i]);
        if (!stage(&p->inputs[i].memory, pome_tensor_size_bytes(&t)))
            return pome_fail_nomem(err, pome_tensor_size_bytes(&t), f->name);
        p->bound[i] = in_program_shape(p, i, t);
    }
    POME_TRY(pome_exec_reserve(p->exec, p->bound, err));
    for (uint32_t i = 0; i < p->f->n_outputs; i++)
        POME_TRY(take_output(p, i, true, err));
    return POME_OK;
}

pome_status pome_predictor_run(pome_predictor *p, pome_state *state, pome_error *err)
{
    if (p->profile)
        pome_profile_begin(p->profile);
    POME_TRY(check_enumerated(p, err));
    for (uint32_t i = 0; i < p->f->n_inputs; i++)
        POME_TRY(stage_input(p, i, err));
    POME_TRY(take_states(p, state, err));
    if (p->profile)
        pome_profile_end_inputs(p->profile);
    POME_TRY(pome_exec_run(p->exec, p->bound, p->states, err));
    POME_TRY(take_outputs(p, err));
    if (p->profile)
        pome_profile_end_outputs(p->profile);
    return POME_OK;
}

void pome_predictor_cancel(pome_predictor *p)
{
    pome_stop_ask(&p->stop);
}

void pome_predictor_poll(pome_predictor *p, pome_poll *poll, void *arg)
{
    pome_stop_set_poll(&p->stop, poll, arg);
}

void pome_predictor_stop_by(pome_predictor *p, pome_stop *stop)
{
    pome_exec_stop_by(p->exec, stop);
}

static void pass_on(void *arg, const pome_op *op, const pome_tensor *out)
{
    const pome_predictor *p = arg;
    for (uint32_t o = 0; o < op->n_out; o++) {
        pome_observed seen = {.op = op->def->name, .name = op->out[o]->name, .value = &out[o]};
        p->observer(p->observer_arg, &seen);
    }
}

void pome_predictor_observe(pome_predictor *p, pome_observer *observer, void *arg)
{
    p->observer = observer;
    p->observer_arg = arg;
    pome_exec_observe(p->exec, observer ? pass_on : NULL, p);
}

pome_status pome_predictor_profile(pome_predictor *p, pome_profile *profile, pome_error *err)
{
    pome_profile_section *section = profile ? pome_profile_section_of(profile, p->plan) : NULL;
    if (profile && !section)
        return pome_fail_nomem(err, p->plan->body->n_steps * sizeof(pome_profile_step), "profile");
    p->profile = section;
    pome_exec_profile(p->exec, section);
    return POME_OK;
}
