/* A model's interface from its program alone: the types of inputs and outputs, and the attribute of functions that
 * compilers write for flexible shapes,
 *
 *     FlexibleShapeInformation = (("DefaultShapes", {{"x", [1, 64]}}), ("RangeDims", {{"x", [[1, 1], [1, 128]]}}))
 *
 * or, in place of RangeDims, ("EnumeratedShapes", {{"KEY", {{"x", [1, 8]}}}, {"KEY", {{"x", [1, 64]}}}}). */
#include <inttypes.h>

#include "base/strmap.h"
#include "formats/mlmodelc.h"

typedef Pome__Spec__FeatureDescription feature_spec;
typedef Pome__Spec__ArrayFeatureType array_spec;
typedef Pome__Spec__DictionaryValue dict_spec;

#define NEW(var, type, init)                                                                                          \
    type *var = POME_NEW(arena, type);                                                                                \
    if (!var)                                                                                                         \
        return no_memory(err);                                                                                        \
    init(var)

static pome_status no_memory(pome_error *err)
{
    return pome_fail_nomem(err, 0, "the interface of a compiled model");
}

/* ---- values of attributes; NULL where they are of another kind ---- */

static const Pome__Spec__ImmediateValue *immediate_of(const Pome__Spec__Value *v)
{
    return v && v->value_case == POME__SPEC__VALUE__VALUE_IMMEDIATE_VALUE ? v->immediatevalue : NULL;
}

static const dict_spec *dict_of(const Pome__Spec__Value *v)
{
    const Pome__Spec__ImmediateValue *i = immediate_of(v);
    return i && i->value_case == POME__SPEC__IMMEDIATE_VALUE__VALUE_DICTIONARY ? i->dictionary : NULL;
}

static const Pome__Spec__ValueList *tuple_of(const Pome__Spec__Value *v)
{
    const Pome__Spec__ImmediateValue *i = immediate_of(v);
    return i && i->value_case == POME__SPEC__IMMEDIATE_VALUE__VALUE_TUPLE ? i->tuple : NULL;
}

static const Pome__Spec__ValueList *list_of(const Pome__Spec__Value *v)
{
    const Pome__Spec__ImmediateValue *i = immediate_of(v);
    return i && i->value_case == POME__SPEC__IMMEDIATE_VALUE__VALUE_LIST ? i->list : NULL;
}

static const Pome__Spec__TensorValue *tensor_of(const Pome__Spec__Value *v)
{
    const Pome__Spec__ImmediateValue *i = immediate_of(v);
    return i && i->value_case == POME__SPEC__IMMEDIATE_VALUE__VALUE_TENSOR ? i->tensor : NULL;
}

static const Pome__Spec__Ints *ints_of(const Pome__Spec__Value *v)
{
    const Pome__Spec__TensorValue *t = tensor_of(v);
    return t && t->value_case == POME__SPEC__TENSOR_VALUE__VALUE_INTS ? t->ints : NULL;
}

static const char *text_of(const Pome__Spec__Value *v)
{
    const Pome__Spec__TensorValue *t = tensor_of(v);
    bool is_text = t && t->value_case == POME__SPEC__TENSOR_VALUE__VALUE_STRINGS && t->strings->n_values == 1;
    return is_text ? t->strings->values[0] : "";
}

static const Pome__Spec__Value *find(const dict_spec *dict, const char *key)
{
    for (size_t i = 0; dict && i < dict->n_values; i++)
        if (strcmp(text_of(dict->values[i]->key), key) == 0)
            return dict->values[i]->value;
    return NULL;
}

/* ---- flexible shapes ---- */

typedef struct flexibility {
    const dict_spec *defaults, *ranges, *enumerated;
} flexibility;

static flexibility flexibility_of(const Pome__Spec__Function *f)
{
    flexibility out = {0};
    const Pome__Spec__ValueList *parts = NULL;
    for (size_t i = 0; i < f->n_attributes && !parts; i++)
        if (strcmp(f->attributes[i]->key, "FlexibleShapeInformation") == 0)
            parts = tuple_of(f->attributes[i]->value);
    for (size_t i = 0; parts && i < parts->n_values; i++) {
        const Pome__Spec__ValueList *pair = tuple_of(parts->values[i]);
        if (!pair || pair->n_values != 2)
            continue;
        const char *name = text_of(pair->values[0]);
        const dict_spec *dict = dict_of(pair->values[1]);
        if (strcmp(name, "DefaultShapes") == 0)
            out.defaults = dict;
        else if (strcmp(name, "RangeDims") == 0)
            out.ranges = dict;
        else if (strcmp(name, "EnumeratedShapes") == 0)
            out.enumerated = dict;
    }
    return out;
}

static pome_status bad(const char *name, const char *what, size_t n, size_t rank, pome_error *err)
{
    return pome_fail(err, POME_ERR_FORMAT, "FlexibleShapeInformation of input %.100s: %s of %zu axes, the input has %zu",
                     name, what, n, rank);
}

static pome_status add_ranges(array_spec *a, const char *name, const Pome__Spec__ValueList *list, pome_arena *arena,
                              pome_error *err)
{
    NEW(range, Pome__Spec__ArrayShapeRange, pome__spec__array_shape_range__init);
    if (list->n_values != a->n_shape)
        return bad(name, "ranges", list->n_values, a->n_shape, err);
    range->sizeranges = POME_NEW_ARRAY(arena, Pome__Spec__SizeRange *, a->n_shape);
    if (!range->sizeranges)
        return no_memory(err);
    for (size_t i = 0; i < a->n_shape; i++) {
        const Pome__Spec__Ints *bounds = ints_of(list->values[i]);
        NEW(r, Pome__Spec__SizeRange, pome__spec__size_range__init);
        if (!bounds || bounds->n_values != 2 || bounds->values[0] < 0)
            return pome_fail(err, POME_ERR_FORMAT,
                             "FlexibleShapeInformation of input %.100s: the range of axis %zu is no pair of sizes", name,
                             i);
        r->lowerbound = (uint64_t)bounds->values[0];
        r->upperbound = bounds->values[1];
        range->sizeranges[range->n_sizeranges++] = r;
    }
    a->shape_flexibility_case = POME__SPEC__ARRAY_FEATURE_TYPE__SHAPE_FLEXIBILITY_SHAPE_RANGE;
    a->shaperange = range;
    return POME_OK;
}

/* One shape per configuration that names the input. */
static pome_status add_enumerated(array_spec *a, const char *name, const dict_spec *configurations, pome_arena *arena,
                                  pome_error *err)
{
    NEW(list, Pome__Spec__ArrayShapeList, pome__spec__array_shape_list__init);
    list->shapes = POME_NEW_ARRAY(arena, Pome__Spec__ArrayShape *, configurations->n_values);
    if (!list->shapes)
        return no_memory(err);
    for (size_t i = 0; i < configurations->n_values; i++) {
        const Pome__Spec__Ints *shape = ints_of(find(dict_of(configurations->values[i]->value), name));
        if (!shape)
            continue;
        NEW(s, Pome__Spec__ArrayShape, pome__spec__array_shape__init);
        if (shape->n_values != a->n_shape)
            return bad(name, "a shape", shape->n_values, a->n_shape, err);
        s->n_shape = a->n_shape;
        s->shape = POME_NEW_ARRAY(arena, int64_t, a->n_shape);
        if (!s->shape)
            return no_memory(err);
        for (size_t k = 0; k < a->n_shape; k++)
            s->shape[k] = shape->values[k];
        list->shapes[list->n_shapes++] = s;
    }
    if (list->n_shapes) {
        a->shape_flexibility_case = POME__SPEC__ARRAY_FEATURE_TYPE__SHAPE_FLEXIBILITY_ENUMERATED_SHAPES;
        a->enumeratedshapes = list;
    }
    return POME_OK;
}

/* Axes of unknown size about which nothing is said take any size from 1. */
static pome_status add_any_size(array_spec *a, const bool *is_open, pome_arena *arena, pome_error *err)
{
    NEW(range, Pome__Spec__ArrayShapeRange, pome__spec__array_shape_range__init);
    range->sizeranges = POME_NEW_ARRAY(arena, Pome__Spec__SizeRange *, a->n_shape);
    if (!range->sizeranges)
        return no_memory(err);
    for (size_t i = 0; i < a->n_shape; i++) {
        NEW(r, Pome__Spec__SizeRange, pome__spec__size_range__init);
        r->lowerbound = is_open[i] ? 1 : (uint64_t)a->shape[i];
        r->upperbound = is_open[i] ? -1 : a->shape[i];
        range->sizeranges[range->n_sizeranges++] = r;
    }
    a->shape_flexibility_case = POME__SPEC__ARRAY_FEATURE_TYPE__SHAPE_FLEXIBILITY_SHAPE_RANGE;
    a->shaperange = range;
    return POME_OK;
}

static pome_status add_flexibility(array_spec *a, const char *name, const bool *is_open, const flexibility *flex,
                                   pome_arena *arena, pome_error *err)
{
    const Pome__Spec__Ints *shape = ints_of(find(flex->defaults, name));
    const Pome__Spec__ValueList *ranges = list_of(find(flex->ranges, name));
    bool any_open = false;
    if (shape && shape->n_values != a->n_shape)
        return bad(name, "a default shape", shape->n_values, a->n_shape, err);
    for (size_t i = 0; i < a->n_shape; i++) {
        any_open |= is_open[i];
        if (shape)
            a->shape[i] = shape->values[i];
    }
    if (ranges)
        return add_ranges(a, name, ranges, arena, err);
    if (flex->enumerated)
        POME_TRY(add_enumerated(a, name, flex->enumerated, arena, err));
    bool is_settled = a->shape_flexibility_case != POME__SPEC__ARRAY_FEATURE_TYPE__SHAPE_FLEXIBILITY__NOT_SET;
    return any_open && !is_settled ? add_any_size(a, is_open, arena, err) : POME_OK;
}

/* ---- features ---- */

/* Programs' element types as those of arrays at the interface, which has but five. */
static int32_t array_type_of(int32_t datatype)
{
    switch (datatype) {
    case 10: return 0x10010;
    case 12: return 0x10040;
    case 11:
    case 13:
    case 40:
    case 41: return 0x10020;
    case 21: return 0x20008;
    default: return 0x20020;
    }
}

/* An array of the program's sizes; *is_open tells which are not known and stand as 1. */
static pome_status make_array(array_spec **out, bool **is_open, const Pome__Spec__TensorType *t, pome_arena *arena,
                              pome_error *err)
{
    NEW(a, array_spec, pome__spec__array_feature_type__init);
    a->datatype = array_type_of(t->datatype);
    a->n_shape = t->n_dimensions;
    a->shape = POME_NEW_ARRAY(arena, int64_t, a->n_shape);
    *is_open = POME_NEW_ARRAY(arena, bool, a->n_shape);
    if (!a->shape || !*is_open)
        return no_memory(err);
    for (size_t i = 0; i < a->n_shape; i++) {
        const Pome__Spec__Dimension *d = t->dimensions[i];
        bool is_known =
            d->dimension_case == POME__SPEC__DIMENSION__DIMENSION_CONSTANT && d->constant->size <= INT64_MAX;
        (*is_open)[i] = !is_known;
        a->shape[i] = is_known ? (int64_t)d->constant->size : 1;
    }
    *out = a;
    return POME_OK;
}

static pome_status make_feature(feature_spec **out, const char *name, pome_arena *arena, pome_error *err)
{
    NEW(f, feature_spec, pome__spec__feature_description__init);
    NEW(type, Pome__Spec__FeatureType, pome__spec__feature_type__init);
    f->name = (char *)(uintptr_t)name;
    f->type = type;
    *out = f;
    return POME_OK;
}

static pome_status make_state(feature_spec *f, const Pome__Spec__StateType *spec, pome_arena *arena, pome_error *err)
{
    NEW(state, Pome__Spec__StateFeatureType, pome__spec__state_feature_type__init);
    bool *is_open = NULL;
    if (!spec->wrappedtype || spec->wrappedtype->type_case != POME__SPEC__VALUE_TYPE__TYPE_TENSOR_TYPE)
        return pome_fail(err, POME_ERR_FORMAT, "state %.100s is no tensor", f->name);
    POME_TRY(make_array(&state->arraytype, &is_open, spec->wrappedtype->tensortype, arena, err));
    for (size_t i = 0; i < state->arraytype->n_shape; i++)
        if (is_open[i])
            return pome_fail(err, POME_ERR_FORMAT, "the size of axis %zu of state %.100s is not given", i, f->name);
    state->type_case = POME__SPEC__STATE_FEATURE_TYPE__TYPE_ARRAY_TYPE;
    f->type->type_case = POME__SPEC__FEATURE_TYPE__TYPE_STATE_TYPE;
    f->type->statetype = state;
    return POME_OK;
}

static pome_status make_input(feature_spec **out, const Pome__Spec__NamedValueType *v, const flexibility *flex,
                              pome_arena *arena, pome_error *err)
{
    bool *is_open = NULL;
    POME_TRY(make_feature(out, v->name, arena, err));
    Pome__Spec__FeatureType *type = (*out)->type;
    if (v->type->type_case == POME__SPEC__VALUE_TYPE__TYPE_STATE_TYPE)
        return make_state(*out, v->type->statetype, arena, err);
    if (v->type->type_case != POME__SPEC__VALUE_TYPE__TYPE_TENSOR_TYPE)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "input %.100s is neither a tensor nor a state", v->name);
    type->type_case = POME__SPEC__FEATURE_TYPE__TYPE_MULTI_ARRAY_TYPE;
    POME_TRY(make_array(&type->multiarraytype, &is_open, v->type->tensortype, arena, err));
    return add_flexibility(type->multiarraytype, v->name, is_open, flex, arena, err);
}

/* What a classifier gives: a label, and a dictionary of probabilities. */
static pome_status make_label(Pome__Spec__FeatureType *type, const Pome__Spec__ValueType *v, pome_arena *arena,
                              pome_error *err)
{
    NEW(empty, Pome__Spec__Empty, pome__spec__empty__init);
    if (v->type_case == POME__SPEC__VALUE_TYPE__TYPE_DICTIONARY_TYPE) {
        const Pome__Spec__ValueType *key = v->dictionarytype->keytype;
        NEW(dict, Pome__Spec__DictionaryFeatureType, pome__spec__dictionary_feature_type__init);
        bool is_int = key->type_case == POME__SPEC__VALUE_TYPE__TYPE_TENSOR_TYPE && key->tensortype->datatype != 2;
        dict->key_type_case = is_int ? POME__SPEC__DICTIONARY_FEATURE_TYPE__KEY_TYPE_INT64_KEY_TYPE
                                     : POME__SPEC__DICTIONARY_FEATURE_TYPE__KEY_TYPE_STRING_KEY_TYPE;
        if (is_int)
            dict->int64keytype = empty;
        else
            dict->stringkeytype = empty;
        type->type_case = POME__SPEC__FEATURE_TYPE__TYPE_DICTIONARY_TYPE;
        type->dictionarytype = dict;
    } else if (v->type_case != POME__SPEC__VALUE_TYPE__TYPE_TENSOR_TYPE) {
        type->type_case = POME__SPEC__FEATURE_TYPE__TYPE_SEQUENCE_TYPE;
        type->sequencetype = empty;
    } else if (v->tensortype->datatype == 2) {
        type->type_case = POME__SPEC__FEATURE_TYPE__TYPE_STRING_TYPE;
        type->stringtype = empty;
    } else {
        type->type_case = POME__SPEC__FEATURE_TYPE__TYPE_INT64_TYPE;
        type->int64type = empty;
    }
    return POME_OK;
}

static pome_status make_output(feature_spec **out, const char *name, const Pome__Spec__ValueType *v, pome_arena *arena,
                               pome_error *err)
{
    bool *is_open = NULL, any_open = false;
    POME_TRY(make_feature(out, name, arena, err));
    Pome__Spec__FeatureType *type = (*out)->type;
    bool is_tensor = v->type_case == POME__SPEC__VALUE_TYPE__TYPE_TENSOR_TYPE;
    if (!is_tensor || v->tensortype->datatype == 2 || (v->tensortype->datatype == 24 && v->tensortype->rank == 0))
        return make_label(type, v, arena, err);
    POME_TRY(make_array(&type->multiarraytype, &is_open, v->tensortype, arena, err));
    type->type_case = POME__SPEC__FEATURE_TYPE__TYPE_MULTI_ARRAY_TYPE;
    for (size_t i = 0; i < type->multiarraytype->n_shape; i++)
        any_open |= is_open[i];
    if (any_open)
        type->multiarraytype->n_shape = 0;
    return POME_OK;
}

/* ---- functions ---- */

/* The declared types of a function's inputs and results by name. */
static pome_status index_types(pome_strmap *types, const Pome__Spec__Function *f, pome_arena *arena, pome_error *err)
{
    const Pome__Spec__Block *b = f->block_specializations[0]->value;
    pome_strmap_init(types, arena);
    for (size_t i = 0; i < f->n_inputs; i++)
        if (!pome_strmap_set(types, pome_str_of(f->inputs[i]->name), f->inputs[i]->type))
            return no_memory(err);
    for (size_t i = 0; i < b->n_operations; i++)
        for (size_t k = 0; k < b->operations[i]->n_outputs; k++) {
            const Pome__Spec__NamedValueType *v = b->operations[i]->outputs[k];
            if (!pome_strmap_set(types, pome_str_of(v->name), v->type))
                return no_memory(err);
        }
    return POME_OK;
}

static pome_status derive_function(Pome__Spec__FunctionDescription **out, const Pome__Spec__FunctionEntry *entry,
                                   pome_arena *arena, pome_error *err)
{
    const Pome__Spec__Function *f = entry->value;
    const Pome__Spec__Block *b = f->block_specializations[0]->value;
    const flexibility flex = flexibility_of(f);
    pome_strmap types;
    NEW(d, Pome__Spec__FunctionDescription, pome__spec__function_description__init);
    d->name = entry->key;
    d->input = POME_NEW_ARRAY(arena, feature_spec *, f->n_inputs);
    d->state = POME_NEW_ARRAY(arena, feature_spec *, f->n_inputs);
    d->output = POME_NEW_ARRAY(arena, feature_spec *, b->n_outputs);
    if (!d->input || !d->state || !d->output)
        return no_memory(err);
    for (size_t i = 0; i < f->n_inputs; i++) {
        feature_spec *feature = NULL;
        POME_TRY(make_input(&feature, f->inputs[i], &flex, arena, err));
        if (feature->type->type_case == POME__SPEC__FEATURE_TYPE__TYPE_STATE_TYPE)
            d->state[d->n_state++] = feature;
        else
            d->input[d->n_input++] = feature;
    }
    POME_TRY(index_types(&types, f, arena, err));
    for (size_t i = 0; i < b->n_outputs; i++) {
        const Pome__Spec__ValueType *type = pome_strmap_get(&types, pome_str_of(b->outputs[i]));
        if (!type)
            return pome_fail(err, POME_ERR_FORMAT, "function %.100s: output %.100s is not defined", entry->key,
                             b->outputs[i]);
        POME_TRY(make_output(&d->output[d->n_output++], b->outputs[i], type, arena, err));
    }
    *out = d;
    return POME_OK;
}

/* One function is described by the model itself, several each by its own part; the default is main, else the first. */
pome_status pome_mlmodelc_derive_description(Pome__Spec__ModelDescription **out, const Pome__Spec__Program *program,
                                             pome_arena *arena, pome_error *err)
{
    NEW(d, Pome__Spec__ModelDescription, pome__spec__model_description__init);
    size_t n = program->n_functions;
    d->functions = POME_NEW_ARRAY(arena, Pome__Spec__FunctionDescription *, n);
    if (!d->functions)
        return no_memory(err);
    if (n == 0)
        return pome_fail(err, POME_ERR_FORMAT, "the program has no function");
    for (size_t i = 0; i < n; i++)
        POME_TRY(derive_function(&d->functions[i], program->functions[i], arena, err));
    if (n == 1) {
        const Pome__Spec__FunctionDescription *f = d->functions[0];
        d->input = f->input;
        d->n_input = f->n_input;
        d->output = f->output;
        d->n_output = f->n_output;
        d->state = f->state;
        d->n_state = f->n_state;
    } else {
        d->n_functions = n;
        d->defaultfunctionname = program->functions[0]->key;
        for (size_t i = 0; i < n; i++)
            if (strcmp(program->functions[i]->key, "main") == 0)
                d->defaultfunctionname = program->functions[i]->key;
    }
    *out = d;
    return POME_OK;
}

int32_t pome_mlmodelc_version_of(const Pome__Spec__Program *program)
{
    int32_t version = 6;
    for (size_t i = 0; i < program->n_functions; i++) {
        const char *opset = program->functions[i]->value->opset; /* CoreML5 came with version 6, and so on */
        if (strncmp(opset, "CoreML", 6) == 0 && opset[6] >= '5' && opset[6] <= '9' && opset[7] == '\0' &&
            opset[6] - '0' + 1 > version)
            version = opset[6] - '0' + 1;
    }
    return version;
}
