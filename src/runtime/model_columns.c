#include "runtime/model_columns.h"

#include <stdlib.h>
#include <string.h>

static pome_status no_memory(pome_error *err)
{
    return pome_fail_nomem(err, 0, "a narrowed model");
}

static void open_range(pome_feature *f, const pome_columns_input *in, const pome_columns *c)
{
    for (int32_t i = 0; i < f->rank; i++)
        f->range[i] = (pome_axis_range){f->shape[i], f->shape[i]};
    int32_t axis = in->axis + in->is_pair;
    if (in->is_pair)
        f->range[in->axis] = (pome_axis_range){1, 1};
    f->range[axis] = (pome_axis_range){c->n_columns ? c->n_columns : 1, c->n_columns ? c->n_columns : c->n_window};
    f->shape[in->axis] = 1;
    f->shape[axis] = f->range[axis].max;
    f->is_ranged = true;
    f->n_enumerated = 0;
}

static void take_type(pome_feature *f, const pome_value *v)
{
    f->dtype = v->type.dtype;
    f->rank = v->type.rank;
    for (int32_t i = 0; i < v->type.rank; i++)
        f->shape[i] = v->type.dim[i] < 0 ? -1 : v->type.dim[i];
    f->is_ranged = false;
    f->n_enumerated = 0;
}

/* Features as the rewritten function has them. */
static pome_status describe(pome_model *m, const pome_model *from, uint32_t function, const pome_columns *c,
                            pome_error *err)
{
    const pome_function_info *was = &from->info.functions[function];
    pome_arena *arena = m->program->arena;
    pome_function *fn = m->program->functions[0];
    pome_function_info *f = POME_NEW(arena, pome_function_info);
    pome_feature *inputs = POME_NEW_ARRAY(arena, pome_feature, c->n_inputs + 1u);
    pome_feature *states = POME_NEW_ARRAY(arena, pome_feature, c->n_caches);
    pome_feature *outputs = POME_NEW_ARRAY(arena, pome_feature, was->n_outputs);
    if (!f || !inputs || !states || !outputs)
        return no_memory(err);
    *f = (pome_function_info){.name = was->name, .n_inputs = c->n_inputs + (c->n_caches > 0), .n_states = c->n_caches, .inputs = inputs,
                              .outputs = outputs, .states = states};
    for (uint32_t i = 0; i < c->n_inputs; i++) {
        inputs[i] = was->inputs[c->inputs[i].input];
        open_range(&inputs[i], &c->inputs[i], c);
    }
    for (uint32_t i = c->n_inputs; i < f->n_inputs; i++) {
        inputs[i] = (pome_feature){.name = fn->inputs[i]->name, .description = ""};
        take_type(&inputs[i], fn->inputs[i]);
    }
    for (uint32_t i = 0; i < c->n_caches; i++) {
        states[i] = was->inputs[c->caches[i].input];
        take_type(&states[i], fn->inputs[f->n_inputs + i]);
    }
    m->functions = POME_NEW(arena, pome_model_function);
    uint32_t *places = POME_NEW_ARRAY(arena, uint32_t, was->n_outputs);
    pome_classes *classes = POME_NEW_ARRAY(arena, pome_classes, was->n_outputs); /* none */
    if (!m->functions || !places || !classes)
        return no_memory(err);
    for (uint32_t i = 0; i < was->n_outputs; i++)
        for (uint32_t o = 0; o < fn->body->n_outputs; o++)
            if (strcmp(fn->body->outputs[o]->name, was->outputs[i].name) == 0) {
                outputs[f->n_outputs] = was->outputs[i];
                places[f->n_outputs] = o;
                pome_dtype declared = was->outputs[i].dtype;
                take_type(&outputs[f->n_outputs], fn->body->outputs[o]);
                outputs[f->n_outputs++].dtype = declared;
                break;
            }
    *m->functions = (pome_model_function){.fn = fn, .outputs = places, .classes = classes};
    m->info = from->info;
    m->info.n_functions = 1;
    m->info.functions = f;
    m->info.default_function = 0;
    return POME_OK;
}

/* The same with outputs as the program's body counts them. */
static pome_status narrow(pome_function *fn, const pome_model_function *was, const pome_columns *columns, pome_error *err)
{
    pome_columns c = *columns;
    pome_columns_cache *caches = POME_NEW_ARRAY(fn->arena, pome_columns_cache, c.n_caches);
    if (!caches)
        return no_memory(err);
    for (uint32_t i = 0; i < c.n_caches; i++)
        caches[i] = (pome_columns_cache){c.caches[i].input, was->outputs[c.caches[i].output]};
    c.caches = caches;
    return pome_columns_narrow(fn, &c, err);
}

pome_status pome_model_narrow(pome_model **out, const pome_model *model, uint32_t function, const pome_columns *columns,
                              pome_error *err)
{
    pome_model *m = calloc(1, sizeof *m);
    if (!m)
        return no_memory(err);
    pthread_mutex_init(&m->lock, NULL);
    m->numerics = model->numerics;
    m->no_fuse = model->no_fuse;
    m->kernels = model->kernels;
    m->pool = model->pool;
    m->borrows_pool = true;
    m->program = pome_program_create(0);
    pome_function *fn = m->program ? pome_function_clone(model->functions[function].fn, m->program->arena) : NULL;
    pome_status status = POME_OK;
    if (!fn || !(m->program->functions = POME_NEW(m->program->arena, pome_function *)))
        status = no_memory(err);
    if (status == POME_OK) {
        m->program->functions[0] = fn;
        m->program->n_functions = 1;
        fn->program = m->program;
        status = narrow(fn, &model->functions[function], columns, err);
    }
    if (status == POME_OK)
        status = describe(m, model, function, columns, err);
    if (status != POME_OK) {
        pome_model_close(&m);
        return status;
    }
    *out = m;
    return POME_OK;
}
