#include "formats/model_pipeline.h"

#include "base/strmap.h"

#define MODEL_PATH "@model_path/"
enum { DEPTH_MAX = 100 };

typedef Pome__Spec__Operation op_spec;
typedef Pome__Spec__NamedValueType named_type;

/* A feature that a later stage may take: an input of the pipeline, or an output of a stage. */
typedef struct feature {
    const char *value; /* what it is called in the joined program */
    const Pome__Spec__ValueType *type;
} feature;

typedef struct list {
    void **items;
    size_t n, room;
} list;

typedef struct joiner {
    pome_arena *arena;
    pome_strmap features; /* name -> feature */
    pome_strmap wanted;   /* names of the pipeline's outputs */
    list inputs, ops;
    /* of the stage that is being added */
    size_t stage;
    const char *weights_dir;
    pome_strmap values;   /* its names -> the joined program's */
} joiner;

#define NEW(var, type, init)                                                                                          \
    type *var = POME_NEW(j->arena, type);                                                                             \
    if (!var)                                                                                                         \
        return no_memory(err);                                                                                        \
    init(var)

static pome_status no_memory(pome_error *err)
{
    return pome_fail_nomem(err, 0, "the stages of a pipeline");
}

static pome_status append(joiner *j, list *l, void *item, pome_error *err)
{
    if (l->n == l->room) {
        size_t room = l->room ? l->room * 2 : 16;
        void **bigger = POME_NEW_ARRAY(j->arena, void *, room);
        if (!bigger)
            return no_memory(err);
        if (l->n)
            memcpy(bigger, l->items, l->n * sizeof *bigger);
        l->items = bigger;
        l->room = room;
    }
    l->items[l->n++] = item;
    return POME_OK;
}

/* ---- names ---- */

static pome_status rename_value(char **name, joiner *j, pome_error *err)
{
    char *known = pome_strmap_get(&j->values, pome_str_of(*name));
    if (!known) {
        known = pome_arena_printf(j->arena, "stage%zu_%s", j->stage, *name);
        if (!known || !pome_strmap_set(&j->values, pome_str_of(*name), known))
            return no_memory(err);
    }
    *name = known;
    return POME_OK;
}

static pome_status rename_all(named_type **values, size_t n, joiner *j, pome_error *err)
{
    for (size_t i = 0; i < n; i++)
        POME_TRY(rename_value(&values[i]->name, j, err));
    return POME_OK;
}

static pome_status move_weights(Pome__Spec__Value *v, joiner *j, pome_error *err)
{
    size_t n = strlen(MODEL_PATH);
    if (!v || v->value_case != POME__SPEC__VALUE__VALUE_BLOB_FILE_VALUE || !j->weights_dir[0])
        return POME_OK;
    const char *file = v->blobfilevalue->filename;
    file = strncmp(file, MODEL_PATH, n) == 0 ? file + n : file;
    v->blobfilevalue->filename = pome_arena_printf(j->arena, MODEL_PATH "%s%s", j->weights_dir, file);
    return v->blobfilevalue->filename ? POME_OK : no_memory(err);
}

static pome_status rename_block(Pome__Spec__Block *b, joiner *j, uint32_t depth, pome_error *err);

static pome_status rename_op(op_spec *op, joiner *j, uint32_t depth, pome_error *err)
{
    for (size_t i = 0; i < op->n_inputs; i++) {
        const Pome__Spec__Argument *a = op->inputs[i]->value;
        for (size_t k = 0; a && k < a->n_arguments; k++) {
            Pome__Spec__Binding *b = a->arguments[k];
            if (b->binding_case == POME__SPEC__BINDING__BINDING_NAME)
                POME_TRY(rename_value(&b->name, j, err));
            else if (b->binding_case == POME__SPEC__BINDING__BINDING_VALUE)
                POME_TRY(move_weights(b->value, j, err));
        }
    }
    for (size_t i = 0; i < op->n_attributes; i++)
        POME_TRY(move_weights(op->attributes[i]->value, j, err));
    for (size_t i = 0; i < op->n_blocks; i++)
        POME_TRY(rename_block(op->blocks[i], j, depth + 1, err));
    return rename_all(op->outputs, op->n_outputs, j, err);
}

static pome_status rename_block(Pome__Spec__Block *b, joiner *j, uint32_t depth, pome_error *err)
{
    if (depth > DEPTH_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "blocks are nested more than %d deep", DEPTH_MAX);
    POME_TRY(rename_all(b->inputs, b->n_inputs, j, err));
    for (size_t i = 0; i < b->n_operations; i++)
        POME_TRY(rename_op(b->operations[i], j, depth, err));
    for (size_t i = 0; i < b->n_outputs; i++)
        POME_TRY(rename_value(&b->outputs[i], j, err));
    return POME_OK;
}

/* ---- conversions between stages ---- */

static const char *cast_name(int32_t datatype)
{
    switch (datatype) {
    case 10: return "fp16";
    case 11: return "fp32";
    case 23: return "int32";
    case 1: return "bool";
    default: return NULL;
    }
}

static const Pome__Spec__TensorType *tensor_of(const Pome__Spec__ValueType *type)
{
    return type && type->type_case == POME__SPEC__VALUE_TYPE__TYPE_TENSOR_TYPE ? type->tensortype : NULL;
}

static pome_status make_text(Pome__Spec__Value **out, joiner *j, const char *text, pome_error *err)
{
    NEW(v, Pome__Spec__Value, pome__spec__value__init);
    NEW(i, Pome__Spec__ImmediateValue, pome__spec__immediate_value__init);
    NEW(t, Pome__Spec__TensorValue, pome__spec__tensor_value__init);
    NEW(s, Pome__Spec__Strings, pome__spec__strings__init);
    NEW(type, Pome__Spec__ValueType, pome__spec__value_type__init);
    NEW(tensor, Pome__Spec__TensorType, pome__spec__tensor_type__init);
    tensor->datatype = 2;
    type->type_case = POME__SPEC__VALUE_TYPE__TYPE_TENSOR_TYPE;
    type->tensortype = tensor;
    s->values = POME_NEW_ARRAY(j->arena, char *, 1);
    if (!s->values)
        return no_memory(err);
    s->values[0] = (char *)(uintptr_t)text;
    s->n_values = 1;
    t->value_case = POME__SPEC__TENSOR_VALUE__VALUE_STRINGS;
    t->strings = s;
    i->value_case = POME__SPEC__IMMEDIATE_VALUE__VALUE_TENSOR;
    i->tensor = t;
    v->type = type;
    v->value_case = POME__SPEC__VALUE__VALUE_IMMEDIATE_VALUE;
    v->immediatevalue = i;
    *out = v;
    return POME_OK;
}

static pome_status add_argument(op_spec *op, joiner *j, const char *key, const char *name, const char *text,
                                pome_error *err)
{
    NEW(e, Pome__Spec__ArgumentEntry, pome__spec__argument_entry__init);
    NEW(a, Pome__Spec__Argument, pome__spec__argument__init);
    NEW(b, Pome__Spec__Binding, pome__spec__binding__init);
    a->arguments = POME_NEW_ARRAY(j->arena, Pome__Spec__Binding *, 1);
    if (!a->arguments)
        return no_memory(err);
    if (text)
        POME_TRY(make_text(&b->value, j, text, err));
    else
        b->name = (char *)(uintptr_t)name;
    b->binding_case = text ? POME__SPEC__BINDING__BINDING_VALUE : POME__SPEC__BINDING__BINDING_NAME;
    a->arguments[0] = b;
    a->n_arguments = 1;
    e->key = (char *)(uintptr_t)key;
    e->value = a;
    op->inputs[op->n_inputs++] = e;
    return POME_OK;
}

/* The feature as the stage declares it, where the element types differ. */
static pome_status convert(const char **out, joiner *j, const feature *f, const named_type *input, pome_error *err)
{
    const Pome__Spec__TensorType *from = tensor_of(f->type), *to = tensor_of(input->type);
    const char *wanted = to ? cast_name(to->datatype) : NULL;
    *out = f->value;
    if (!from || !to || from->datatype == to->datatype)
        return POME_OK;
    if (!wanted || !cast_name(from->datatype))
        return pome_fail(err, POME_ERR_UNSUPPORTED,
                         "input %.100s of stage %zu has another element type than the output that it takes", input->name,
                         j->stage);
    NEW(op, op_spec, pome__spec__operation__init);
    NEW(result, named_type, pome__spec__named_value_type__init);
    op->inputs = POME_NEW_ARRAY(j->arena, Pome__Spec__ArgumentEntry *, 2);
    op->outputs = POME_NEW_ARRAY(j->arena, named_type *, 1);
    result->name = pome_arena_printf(j->arena, "stage%zu_input_%s", j->stage, input->name);
    if (!op->inputs || !op->outputs || !result->name)
        return no_memory(err);
    result->type = input->type;
    op->type = (char *)(uintptr_t)"cast";
    op->outputs[0] = result;
    op->n_outputs = 1;
    POME_TRY(add_argument(op, j, "x", f->value, NULL, err));
    POME_TRY(add_argument(op, j, "dtype", NULL, wanted, err));
    *out = result->name;
    return append(j, &j->ops, op, err);
}

/* ---- stages ---- */

static pome_status set_feature(joiner *j, const char *name, const char *value, const Pome__Spec__ValueType *type,
                               pome_error *err)
{
    feature *f = POME_NEW(j->arena, feature);
    if (!f || !pome_strmap_set(&j->features, pome_str_of(name), f))
        return no_memory(err);
    *f = (feature){value, type};
    return POME_OK;
}

static pome_status bind_inputs(joiner *j, const Pome__Spec__Function *f, pome_error *err)
{
    for (size_t i = 0; i < f->n_inputs; i++) {
        named_type *input = f->inputs[i];
        const char *value = input->name;
        const feature *known = pome_strmap_get(&j->features, pome_str_of(input->name));
        if (known) {
            POME_TRY(convert(&value, j, known, input, err));
        } else {
            POME_TRY(set_feature(j, input->name, value, input->type, err));
            POME_TRY(append(j, &j->inputs, input, err));
        }
        if (!pome_strmap_set(&j->values, pome_str_of(input->name), (void *)(uintptr_t)value))
            return no_memory(err);
    }
    return POME_OK;
}

/* Outputs of the pipeline keep their names, unless something that stands before them has it. */
static pome_status name_outputs(joiner *j, const Pome__Spec__Block *body, pome_error *err)
{
    for (size_t i = 0; i < body->n_outputs; i++) {
        const char *name = body->outputs[i];
        bool is_free = pome_strmap_get(&j->wanted, pome_str_of(name)) && !pome_strmap_get(&j->features, pome_str_of(name)) &&
                       !pome_strmap_get(&j->values, pome_str_of(name));
        if (is_free && !pome_strmap_set(&j->values, pome_str_of(name), (void *)(uintptr_t)name))
            return no_memory(err);
    }
    return POME_OK;
}

static const Pome__Spec__ValueType *type_of(const Pome__Spec__Block *body, const char *value)
{
    for (size_t i = body->n_operations; i-- > 0;)
        for (size_t k = 0; k < body->operations[i]->n_outputs; k++)
            if (strcmp(body->operations[i]->outputs[k]->name, value) == 0)
                return body->operations[i]->outputs[k]->type;
    return NULL;
}

static pome_status add_stage(joiner *j, const Pome__Spec__Function *f, Pome__Spec__Block *body, pome_error *err)
{
    pome_strmap_init(&j->values, j->arena);
    POME_TRY(bind_inputs(j, f, err));
    POME_TRY(name_outputs(j, body, err));
    const char **names = POME_NEW_ARRAY(j->arena, const char *, body->n_outputs);
    if (!names)
        return no_memory(err);
    for (size_t i = 0; i < body->n_outputs; i++)
        names[i] = body->outputs[i];
    POME_TRY(rename_block(body, j, 0, err));
    for (size_t i = 0; i < body->n_operations; i++)
        POME_TRY(append(j, &j->ops, body->operations[i], err));
    for (size_t i = 0; i < body->n_outputs; i++)
        POME_TRY(set_feature(j, names[i], body->outputs[i], type_of(body, body->outputs[i]), err));
    return POME_OK;
}

static pome_status main_of(const Pome__Spec__Function **out, Pome__Spec__Block **body, const Pome__Spec__Program *program,
                           size_t stage, pome_error *err)
{
    const Pome__Spec__Function *f = program->n_functions == 1 ? program->functions[0]->value : NULL;
    for (size_t i = 0; i < program->n_functions; i++)
        if (strcmp(program->functions[i]->key, "main") == 0)
            f = program->functions[i]->value;
    for (size_t i = 0; f && i < f->n_block_specializations; i++)
        if (strcmp(f->block_specializations[i]->key, f->opset) == 0 && f->block_specializations[i]->value) {
            *body = f->block_specializations[i]->value;
            *out = f;
            return POME_OK;
        }
    return pome_fail(err, POME_ERR_UNSUPPORTED, "stage %zu of the pipeline has %zu functions and none called main", stage,
                     program->n_functions);
}

/* ---- the whole ---- */

static pome_status make_program(const Pome__Spec__Program **out, joiner *j, const char *opset,
                                const Pome__Spec__Block *last, const char *const *outputs, size_t n_outputs,
                                pome_error *err)
{
    NEW(program, Pome__Spec__Program, pome__spec__program__init);
    NEW(entry, Pome__Spec__FunctionEntry, pome__spec__function_entry__init);
    NEW(f, Pome__Spec__Function, pome__spec__function__init);
    NEW(be, Pome__Spec__BlockEntry, pome__spec__block_entry__init);
    NEW(body, Pome__Spec__Block, pome__spec__block__init);
    size_t n = n_outputs ? n_outputs : last->n_outputs;
    program->functions = POME_NEW_ARRAY(j->arena, Pome__Spec__FunctionEntry *, 1);
    f->block_specializations = POME_NEW_ARRAY(j->arena, Pome__Spec__BlockEntry *, 1);
    body->outputs = POME_NEW_ARRAY(j->arena, char *, n);
    if (!program->functions || !f->block_specializations || !body->outputs)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        const feature *known = n_outputs ? pome_strmap_get(&j->features, pome_str_of(outputs[i])) : NULL;
        const char *value = known ? known->value : n_outputs ? "" : last->outputs[i];
        if (n_outputs && (!known || strcmp(value, outputs[i]) != 0))
            return pome_fail(err, known ? POME_ERR_UNSUPPORTED : POME_ERR_FORMAT,
                             "output %.100s of the pipeline is %s", outputs[i],
                             known ? "an input, too, or an output of several stages" : "no output of a stage");
        body->outputs[body->n_outputs++] = (char *)(uintptr_t)value;
    }
    body->operations = (op_spec **)j->ops.items;
    body->n_operations = j->ops.n;
    f->inputs = (named_type **)j->inputs.items;
    f->n_inputs = j->inputs.n;
    f->opset = be->key = (char *)(uintptr_t)opset;
    f->block_specializations[0] = be;
    f->n_block_specializations = 1;
    be->value = body;
    entry->key = (char *)(uintptr_t)"main";
    entry->value = f;
    program->version = 1;
    program->functions[0] = entry;
    program->n_functions = 1;
    *out = program;
    return POME_OK;
}

static pome_status list_outputs(const char ***out, size_t *n_out, const Pome__Spec__ModelDescription *d, joiner *j,
                                pome_error *err)
{
    size_t n = d ? d->n_output : 0;
    const char **names = POME_NEW_ARRAY(j->arena, const char *, n);
    if (!names)
        return no_memory(err);
    for (size_t i = 0; i < n; i++)
        names[i] = d->output[i]->name;
    *out = names;
    *n_out = n;
    return POME_OK;
}

pome_status pome_pipeline_join(const Pome__Spec__Program **out, const pome_pipeline_stage *stages, size_t n_stages,
                               const Pome__Spec__ModelDescription *description, pome_arena *arena, pome_error *err)
{
    joiner join = {.arena = arena}, *j = &join;
    const char *opset = NULL, **outputs = NULL;
    size_t n_outputs = 0;
    const Pome__Spec__Function *f = NULL;
    Pome__Spec__Block *body = NULL;
    pome_strmap_init(&j->features, arena);
    pome_strmap_init(&j->wanted, arena);
    if (n_stages == 0)
        return pome_fail(err, POME_ERR_FORMAT, "a pipeline without stages");
    POME_TRY(main_of(&f, &body, stages[n_stages - 1].program, n_stages - 1, err));
    POME_TRY(list_outputs(&outputs, &n_outputs, description, j, err));
    for (size_t i = 0; i < (n_outputs ? n_outputs : body->n_outputs); i++)
        if (!pome_strmap_set(&j->wanted, pome_str_of(n_outputs ? outputs[i] : body->outputs[i]), j))
            return no_memory(err);
    for (j->stage = 0; j->stage < n_stages; j->stage++) {
        POME_TRY(main_of(&f, &body, stages[j->stage].program, j->stage, err));
        if (opset && strcmp(opset, f->opset) != 0)
            return pome_fail(err, POME_ERR_UNSUPPORTED,
                             "the stages of the pipeline are for different operator sets, %.40s and %.40s", opset, f->opset);
        opset = f->opset;
        j->weights_dir = stages[j->stage].weights_dir;
        POME_TRY(add_stage(j, f, body, err));
    }
    return make_program(out, j, opset, body, outputs, n_outputs, err);
}

pome_status pome_pipeline_unpack(const Pome__Spec__Program **out, pome_bytes payload,
                                 const Pome__Spec__ModelDescription *description, pome_arena *arena, uint32_t max_depth,
                                 pome_error *err)
{
    enum { STAGES_MAX = 256, ML_PROGRAM = 502 };
    pome_pipeline_stage *stages = POME_NEW_ARRAY(arena, pome_pipeline_stage, STAGES_MAX);
    pome_bytes model;
    size_t n = 0, at = 0;
    *out = NULL;
    if (!stages)
        return no_memory(err);
    while (pome_coreml_next_stage(&model, payload, &at)) {
        pome_coreml_kind kind;
        const Pome__Spec__Model *unpacked = NULL;
        if (n == STAGES_MAX)
            return pome_fail(err, POME_ERR_LIMIT, "a pipeline of more than %d stages", STAGES_MAX);
        POME_TRY(pome_coreml_peek(&kind, model, err));
        if (kind.type != ML_PROGRAM)
            return POME_OK;
        POME_TRY(pome_coreml_unpack(&unpacked, model, arena, max_depth, err));
        if (unpacked->type_case != POME__SPEC__MODEL__TYPE_ML_PROGRAM || !unpacked->mlprogram)
            return POME_OK;
        stages[n++] = (pome_pipeline_stage){unpacked->mlprogram, ""};
    }
    return n ? pome_pipeline_join(out, stages, n, description, arena, err) : POME_OK;
}
