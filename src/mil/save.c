#include "mil/save.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/strmap.h"
#include "mil/load.h"
#include "mil/save_value.h"

/* The largest protobuf that readers accept. */
#define MODEL_BYTES_MAX ((size_t)INT32_MAX)

typedef Pome__Spec__Operation op_spec;

typedef struct op_list {
    op_spec **ops;
    size_t n, room;
} op_list;

/* One function being saved. */
typedef struct function_saver {
    pome_saver *s;
    pome_opset opset;
    const char **names;  /* [n_values] what each value is called; NULL: not written yet */
    pome_strmap taken;   /* names of the function */
    uint32_t n_made_up;
} function_saver;

static void append(function_saver *f, op_list *list, op_spec *op)
{
    if (list->n == list->room) {
        size_t room = list->room ? list->room * 2 : 64;
        op_spec **bigger = pome_saver_alloc(f->s, room, sizeof *bigger);
        if (f->s->failed)
            return;
        if (list->n)
            memcpy(bigger, list->ops, list->n * sizeof *bigger);
        list->ops = bigger;
        list->room = room;
    }
    list->ops[list->n++] = op;
}

static bool take_name(function_saver *f, const char *name)
{
    if (pome_strmap_get(&f->taken, pome_str_of(name)))
        return false;
    if (!pome_strmap_set(&f->taken, pome_str_of(name), f))
        f->s->failed = true;
    return true;
}

/* A free name for a constant that has none: after the parameter that it is given to. */
static const char *make_name(function_saver *f, const pome_op *op, const pome_param *param, uint32_t i)
{
    const char *base = op->n_out ? op->out[0]->name : op->name;
    const char *name = pome_arena_printf(f->s->arena, "%s_%s_%u", base, param->name, (unsigned)i);
    while (name && !take_name(f, name))
        name = pome_arena_printf(f->s->arena, "const_%u", (unsigned)f->n_made_up++);
    if (!name)
        f->s->failed = true;
    return name ? name : "";
}

static Pome__Spec__ValueEntry *entry(pome_saver *s, const char *key, Pome__Spec__Value *value)
{
    POME_SAVE_NEW(s, e, Pome__Spec__ValueEntry, pome__spec__value_entry__init);
    e->key = pome_saver_text(s, key);
    e->value = value;
    return e;
}

static Pome__Spec__NamedValueType *named_type(pome_saver *s, const char *name, const pome_type *type)
{
    POME_SAVE_NEW(s, n, Pome__Spec__NamedValueType, pome__spec__named_value_type__init);
    n->name = pome_saver_text(s, name);
    n->type = pome_save_type(s, type);
    return n;
}

/* ---- constants ---- */

static pome_status save_const_op(function_saver *f, op_list *list, const pome_value *v, const char *name,
                                 pome_error *err)
{
    pome_saver *s = f->s;
    Pome__Spec__Value *value;
    POME_TRY(pome_save_const(&value, s, v->konst, err));
    POME_SAVE_NEW(s, op, op_spec, pome__spec__operation__init);
    op->type = pome_saver_text(s, "const");
    op->n_attributes = 2;
    op->attributes = pome_saver_alloc(s, 2, sizeof *op->attributes);
    op->n_outputs = 1;
    op->outputs = pome_saver_alloc(s, 1, sizeof *op->outputs);
    if (s->failed)
        return POME_OK;
    op->attributes[0] = entry(s, "name", pome_save_string(s, name));
    op->attributes[1] = entry(s, "val", value);
    op->outputs[0] = named_type(s, name, &v->type);
    append(f, list, op);
    return POME_OK;
}

static bool is_literal(const pome_value *v)
{
    return v->konst && !v->konst->encoded_by && !v->def;
}

static uint32_t param_of(const pome_op *op, uint32_t input)
{
    uint32_t p = 0;
    while (p + 1 < op->def->n_params && !(input >= op->args[p].first && input < op->args[p].first + op->args[p].count))
        p++;
    return p;
}

/* Every constant that an operator, or what is inside its blocks, needs and that is not there yet. */
static pome_status save_constants(function_saver *f, op_list *list, const pome_op *op, pome_error *err)
{
    for (uint32_t i = 0; i < op->n_in && !(op->def->flags & POME_OP_CONSTEXPR); i++) {
        const pome_value *v = op->in[i];
        if (!is_literal(v) || f->names[v->id])
            continue;
        if (v->type.kind != POME_TYPE_TENSOR)
            return pome_fail(err, POME_ERR_UNSUPPORTED, "%s: a constant list cannot be saved", op->name);
        uint32_t p = param_of(op, i);
        f->names[v->id] = v->name[0] && take_name(f, v->name)
                              ? v->name
                              : make_name(f, op, &op->def->params[p], i - op->args[p].first);
        POME_TRY(save_const_op(f, list, v, f->names[v->id], err));
    }
    for (uint32_t b = 0; b < op->n_blocks; b++)
        for (uint32_t i = 0; i < op->blocks[b]->n_ops; i++)
            POME_TRY(save_constants(f, list, op->blocks[b]->ops[i], err));
    return POME_OK;
}

/* ---- operators ---- */

static pome_status save_binding(Pome__Spec__Binding **out, function_saver *f, const pome_op *op, const pome_value *v,
                                pome_error *err)
{
    POME_SAVE_NEW(f->s, b, Pome__Spec__Binding, pome__spec__binding__init);
    *out = b;
    if (is_literal(v) && (op->def->flags & POME_OP_CONSTEXPR)) {
        b->binding_case = POME__SPEC__BINDING__BINDING_VALUE;
        return pome_save_const(&b->value, f->s, v->konst, err);
    }
    if (!f->names[v->id])
        return pome_fail(err, POME_ERR_ARG, "%s uses %s, which is not defined before it", op->name, v->name);
    b->binding_case = POME__SPEC__BINDING__BINDING_NAME;
    b->name = pome_saver_text(f->s, f->names[v->id]);
    return POME_OK;
}

static pome_status save_argument(op_spec *spec, function_saver *f, const pome_op *op, uint32_t p, pome_error *err)
{
    POME_SAVE_NEW(f->s, e, Pome__Spec__ArgumentEntry, pome__spec__argument_entry__init);
    POME_SAVE_NEW(f->s, a, Pome__Spec__Argument, pome__spec__argument__init);
    a->n_arguments = op->args[p].count;
    a->arguments = pome_saver_alloc(f->s, a->n_arguments, sizeof *a->arguments);
    for (uint32_t i = 0; i < op->args[p].count && !f->s->failed; i++)
        POME_TRY(save_binding(&a->arguments[i], f, op, op->in[op->args[p].first + i], err));
    e->key = pome_saver_text(f->s, op->def->params[p].name);
    e->value = a;
    spec->inputs[spec->n_inputs++] = e;
    return POME_OK;
}

/* The forms before iOS 18 have attributes for parameters. */
static bool has_attributes(const function_saver *f, const pome_op *op)
{
    return (op->def->flags & POME_OP_CONSTEXPR) &&
           (f->opset < POME_OPSET_IOS18 || op->def->id == POME_OP_constexpr_affine_dequantize ||
            op->def->id == POME_OP_constexpr_cast);
}

static pome_status save_arguments(op_spec *spec, function_saver *f, const pome_op *op, pome_error *err)
{
    pome_saver *s = f->s;
    bool attributes = has_attributes(f, op);
    spec->attributes = pome_saver_alloc(s, op->def->n_params + 1u, sizeof *spec->attributes);
    spec->inputs = pome_saver_alloc(s, op->def->n_params, sizeof *spec->inputs);
    if (s->failed)
        return POME_OK;
    spec->attributes[spec->n_attributes++] = entry(s, "name", pome_save_string(s, op->name));
    for (uint32_t p = 0; p < op->def->n_params && !s->failed; p++) {
        if (!op->args[p].count)
            continue;
        const pome_value *v = op->in[op->args[p].first];
        if (!attributes) {
            POME_TRY(save_argument(spec, f, op, p, err));
            continue;
        }
        Pome__Spec__Value *value;
        if (!is_literal(v))
            return pome_fail(err, POME_ERR_UNSUPPORTED, "%s: %s is no literal", op->name, op->def->params[p].name);
        POME_TRY(pome_save_const(&value, s, v->konst, err));
        spec->attributes[spec->n_attributes++] = entry(s, op->def->params[p].name, value);
    }
    return POME_OK;
}

static pome_status save_block(Pome__Spec__Block **out, function_saver *f, const pome_block *block, pome_error *err);

static pome_status save_op(function_saver *f, op_list *list, const pome_op *op, pome_error *err)
{
    pome_saver *s = f->s;
    POME_SAVE_NEW(s, spec, op_spec, pome__spec__operation__init);
    spec->type = pome_saver_text(s, op->def->name);
    POME_TRY(save_arguments(spec, f, op, err));
    spec->n_blocks = op->n_blocks;
    spec->blocks = pome_saver_alloc(s, op->n_blocks, sizeof *spec->blocks);
    for (uint32_t i = 0; i < op->n_blocks && !s->failed; i++)
        POME_TRY(save_block(&spec->blocks[i], f, op->blocks[i], err));
    spec->n_outputs = op->n_out;
    spec->outputs = pome_saver_alloc(s, op->n_out, sizeof *spec->outputs);
    for (uint32_t i = 0; i < op->n_out && !s->failed; i++) {
        const pome_value *v = op->out[i];
        f->names[v->id] = v->name;
        spec->outputs[i] = named_type(s, v->name, &v->type);
    }
    append(f, list, spec);
    return POME_OK;
}

static pome_status save_ops(Pome__Spec__Block *spec, function_saver *f, const pome_block *block, bool is_body,
                            pome_error *err)
{
    op_list list = {0};
    for (uint32_t i = 0; i < block->n_ops && !f->s->failed; i++) {
        if (is_body)
            POME_TRY(save_constants(f, &list, block->ops[i], err));
        POME_TRY(save_op(f, &list, block->ops[i], err));
    }
    spec->n_operations = list.n;
    spec->operations = list.ops;
    spec->n_outputs = block->n_outputs;
    spec->outputs = pome_saver_alloc(f->s, block->n_outputs, sizeof *spec->outputs);
    for (uint32_t i = 0; i < block->n_outputs && !f->s->failed; i++) {
        const pome_value *v = block->outputs[i];
        if (!f->names[v->id])
            return pome_fail(err, POME_ERR_UNSUPPORTED, "output %s of a block is no result of an operator", v->name);
        spec->outputs[i] = pome_saver_text(f->s, f->names[v->id]);
    }
    return POME_OK;
}

static void save_inputs(Pome__Spec__NamedValueType ***out, size_t *n_out, function_saver *f, pome_value *const *inputs,
                        uint32_t n)
{
    Pome__Spec__NamedValueType **list = pome_saver_alloc(f->s, n, sizeof(void *));
    for (uint32_t i = 0; i < n && !f->s->failed; i++) {
        f->names[inputs[i]->id] = inputs[i]->name;
        list[i] = named_type(f->s, inputs[i]->name, &inputs[i]->type);
    }
    *out = list;
    *n_out = n;
}

static pome_status save_block(Pome__Spec__Block **out, function_saver *f, const pome_block *block, pome_error *err)
{
    POME_SAVE_NEW(f->s, b, Pome__Spec__Block, pome__spec__block__init);
    save_inputs(&b->inputs, &b->n_inputs, f, block->inputs, block->n_inputs);
    *out = b;
    return save_ops(b, f, block, false, err);
}

/* ---- functions ---- */

static void take_names(function_saver *f, const pome_block *b)
{
    for (uint32_t i = 0; i < b->n_inputs; i++)
        take_name(f, b->inputs[i]->name);
    for (uint32_t i = 0; i < b->n_ops; i++) {
        for (uint32_t o = 0; o < b->ops[i]->n_out; o++)
            take_name(f, b->ops[i]->out[o]->name);
        for (uint32_t k = 0; k < b->ops[i]->n_blocks; k++)
            take_names(f, b->ops[i]->blocks[k]);
    }
}

static pome_status save_function(Pome__Spec__FunctionEntry **out, pome_saver *s, const pome_function *fn,
                                 pome_error *err)
{
    const char *opset = pome_opset_name(fn->opset);
    function_saver f = {.s = s, .opset = fn->opset, .names = pome_saver_alloc(s, fn->n_values, sizeof(char *))};
    pome_strmap_init(&f.taken, s->arena);
    POME_SAVE_NEW(s, e, Pome__Spec__FunctionEntry, pome__spec__function_entry__init);
    POME_SAVE_NEW(s, spec, Pome__Spec__Function, pome__spec__function__init);
    POME_SAVE_NEW(s, be, Pome__Spec__BlockEntry, pome__spec__block_entry__init);
    POME_SAVE_NEW(s, body, Pome__Spec__Block, pome__spec__block__init);
    spec->block_specializations = pome_saver_alloc(s, 1, sizeof(void *));
    if (s->failed)
        return POME_OK;
    for (uint32_t i = 0; i < fn->n_inputs; i++)
        take_name(&f, fn->inputs[i]->name);
    take_names(&f, fn->body);
    save_inputs(&spec->inputs, &spec->n_inputs, &f, fn->inputs, fn->n_inputs);
    POME_TRY(save_ops(body, &f, fn->body, true, err));
    be->key = pome_saver_text(s, opset);
    be->value = body;
    spec->opset = pome_saver_text(s, opset);
    spec->n_block_specializations = 1;
    spec->block_specializations[0] = be;
    e->key = pome_saver_text(s, fn->name);
    e->value = spec;
    *out = e;
    return POME_OK;
}

static pome_status save_program(Pome__Spec__Model *model, pome_saver *s, const pome_program *program,
                                const pome_model_info *info, pome_error *err)
{
    POME_SAVE_NEW(s, p, Pome__Spec__Program, pome__spec__program__init);
    p->version = 1;
    p->n_functions = program->n_functions;
    p->functions = pome_saver_alloc(s, program->n_functions, sizeof *p->functions);
    for (uint32_t i = 0; i < program->n_functions && !s->failed; i++)
        POME_TRY(save_function(&p->functions[i], s, program->functions[i], err));
    model->specificationversion = info->specification_version;
    POME_TRY(pome_save_description(&model->description, s, info, err));
    model->type_case = POME__SPEC__MODEL__TYPE_ML_PROGRAM;
    model->mlprogram = p;
    return POME_OK;
}

pome_status pome_program_save(uint8_t **out, size_t *len, const pome_program *program, const pome_model_info *info,
                              pome_error *err)
{
    Pome__Spec__Model model;
    pome_saver s = {.arena = pome_arena_create(0)};
    if (!s.arena)
        return pome_fail_nomem(err, 0, "the model file");
    pome__spec__model__init(&model);
    pome_status status = save_program(&model, &s, program, info, err);
    size_t size = 0;
    uint8_t *bytes = NULL;
    if (status == POME_OK && !s.failed) {
        size = pome__spec__model__get_packed_size(&model);
        bytes = malloc(size ? size : 1);
    }
    if (status == POME_OK && !bytes)
        status = pome_fail_nomem(err, size, "the model file");
    else if (status == POME_OK && size > MODEL_BYTES_MAX)
        status = pome_fail(err, POME_ERR_LIMIT, "a model file of %zu bytes, at most %zu can be read", size,
                           MODEL_BYTES_MAX);
    if (status == POME_OK) {
        pome__spec__model__pack(&model, bytes);
        *out = bytes;
        *len = size;
    } else {
        free(bytes);
    }
    pome_arena_destroy(&s.arena);
    return status;
}
