#include "mil/save_value.h"

#include "base/checked.h"
#include "base/error.h"

void *pome_saver_alloc(pome_saver *s, size_t n, size_t size)
{
    static _Thread_local union {
        uint64_t align;
        char bytes[512];
    } scrap;
    void *p = pome_arena_alloc_array(s->arena, n ? n : 1, size);
    if (!p) {
        s->failed = true;
        return scrap.bytes;
    }
    return p;
}

char *pome_saver_text(pome_saver *s, const char *text)
{
    static char empty[1];
    char *copy = pome_arena_strndup(s->arena, text, strlen(text));
    if (!copy)
        s->failed = true;
    return copy ? copy : empty;
}

/* ---- types ---- */

static int32_t code_of(pome_dtype dtype)
{
    static const int32_t codes[POME_DTYPE_COUNT] = {
        [POME_DTYPE_BOOL] = 1,  [POME_DTYPE_STRING] = 2, [POME_DTYPE_F16] = 10,      [POME_DTYPE_F32] = 11,
        [POME_DTYPE_F64] = 12,  [POME_DTYPE_BF16] = 13,  [POME_DTYPE_I8] = 21,       [POME_DTYPE_I16] = 22,
        [POME_DTYPE_I32] = 23,  [POME_DTYPE_I64] = 24,   [POME_DTYPE_I4] = 25,       [POME_DTYPE_U8] = 31,
        [POME_DTYPE_U16] = 32,  [POME_DTYPE_U32] = 33,   [POME_DTYPE_U64] = 34,      [POME_DTYPE_U4] = 35,
        [POME_DTYPE_U2] = 36,   [POME_DTYPE_U1] = 37,    [POME_DTYPE_U6] = 38,       [POME_DTYPE_U3] = 39,
        [POME_DTYPE_F8E4M3FN] = 40, [POME_DTYPE_F8E5M2] = 41,
    };
    return codes[dtype];
}

static Pome__Spec__Dimension *save_dimension(pome_saver *s, int64_t size)
{
    POME_SAVE_NEW(s, d, Pome__Spec__Dimension, pome__spec__dimension__init);
    if (size >= 0) {
        POME_SAVE_NEW(s, c, Pome__Spec__ConstantDimension, pome__spec__constant_dimension__init);
        c->size = (uint64_t)size;
        d->dimension_case = POME__SPEC__DIMENSION__DIMENSION_CONSTANT;
        d->constant = c;
    } else {
        POME_SAVE_NEW(s, u, Pome__Spec__UnknownDimension, pome__spec__unknown_dimension__init);
        d->dimension_case = POME__SPEC__DIMENSION__DIMENSION_UNKNOWN;
        d->unknown = u;
    }
    return d;
}

static Pome__Spec__ValueType *save_tensor_type(pome_saver *s, const pome_type *type)
{
    POME_SAVE_NEW(s, v, Pome__Spec__ValueType, pome__spec__value_type__init);
    POME_SAVE_NEW(s, t, Pome__Spec__TensorType, pome__spec__tensor_type__init);
    t->datatype = code_of(type->dtype);
    t->rank = type->rank;
    t->n_dimensions = type->rank > 0 ? (size_t)type->rank : 0;
    t->dimensions = pome_saver_alloc(s, t->n_dimensions, sizeof *t->dimensions);
    for (size_t i = 0; i < t->n_dimensions; i++)
        t->dimensions[i] = save_dimension(s, type->dim[i]);
    v->type_case = POME__SPEC__VALUE_TYPE__TYPE_TENSOR_TYPE;
    v->tensortype = t;
    return v;
}

Pome__Spec__ValueType *pome_save_type(pome_saver *s, const pome_type *type)
{
    Pome__Spec__ValueType *inner = save_tensor_type(s, type);
    POME_SAVE_NEW(s, v, Pome__Spec__ValueType, pome__spec__value_type__init);
    if (type->kind == POME_TYPE_STATE) {
        POME_SAVE_NEW(s, state, Pome__Spec__StateType, pome__spec__state_type__init);
        state->wrappedtype = inner;
        v->type_case = POME__SPEC__VALUE_TYPE__TYPE_STATE_TYPE;
        v->statetype = state;
        return v;
    }
    if (type->kind == POME_TYPE_LIST) {
        POME_SAVE_NEW(s, list, Pome__Spec__ListType, pome__spec__list_type__init);
        list->type = inner;
        list->length = save_dimension(s, type->list_length);
        v->type_case = POME__SPEC__VALUE_TYPE__TYPE_LIST_TYPE;
        v->listtype = list;
        return v;
    }
    if (type->kind == POME_TYPE_DICT) { /* labels to probabilities: only the keys' type is kept */
        const pome_type real = {.kind = POME_TYPE_TENSOR, .dtype = POME_DTYPE_F64};
        POME_SAVE_NEW(s, dict, Pome__Spec__DictionaryType, pome__spec__dictionary_type__init);
        dict->keytype = inner;
        dict->valuetype = save_tensor_type(s, &real);
        v->type_case = POME__SPEC__VALUE_TYPE__TYPE_DICTIONARY_TYPE;
        v->dictionarytype = dict;
        return v;
    }
    return inner;
}

/* ---- values ---- */

static Pome__Spec__Value *immediate(pome_saver *s, const pome_type *type, Pome__Spec__TensorValue *tensor)
{
    POME_SAVE_NEW(s, v, Pome__Spec__Value, pome__spec__value__init);
    POME_SAVE_NEW(s, i, Pome__Spec__ImmediateValue, pome__spec__immediate_value__init);
    i->value_case = POME__SPEC__IMMEDIATE_VALUE__VALUE_TENSOR;
    i->tensor = tensor;
    v->type = pome_save_type(s, type);
    v->value_case = POME__SPEC__VALUE__VALUE_IMMEDIATE_VALUE;
    v->immediatevalue = i;
    return v;
}

static void put_strings(pome_saver *s, Pome__Spec__TensorValue *t, const char *const *strings, size_t n)
{
    POME_SAVE_NEW(s, m, Pome__Spec__Strings, pome__spec__strings__init);
    m->n_values = n;
    m->values = pome_saver_alloc(s, n, sizeof *m->values);
    for (size_t i = 0; i < n && !s->failed; i++)
        m->values[i] = pome_saver_text(s, strings[i]);
    t->value_case = POME__SPEC__TENSOR_VALUE__VALUE_STRINGS;
    t->strings = m;
}

Pome__Spec__Value *pome_save_string(pome_saver *s, const char *text)
{
    const pome_type type = {.kind = POME_TYPE_TENSOR, .dtype = POME_DTYPE_STRING};
    POME_SAVE_NEW(s, t, Pome__Spec__TensorValue, pome__spec__tensor_value__init);
    put_strings(s, t, &text, 1);
    return immediate(s, &type, t);
}

static int32_t int_at(const void *data, pome_dtype dtype, size_t i)
{
    switch (dtype) {
    case POME_DTYPE_I16: return ((const int16_t *)data)[i];
    case POME_DTYPE_U16: return ((const uint16_t *)data)[i];
    default: return ((const int32_t *)data)[i];
    }
}

/* Each type has its field (see mil/load_value.c). */
static void put_elements(pome_saver *s, Pome__Spec__TensorValue *t, const pome_const *k, size_t n)
{
    void *data = k->t.data; /* messages want it writable, packing only reads */
    switch (k->t.dtype) {
    case POME_DTYPE_F32: {
        POME_SAVE_NEW(s, m, Pome__Spec__Floats, pome__spec__floats__init);
        m->n_values = n;
        m->values = data;
        t->value_case = POME__SPEC__TENSOR_VALUE__VALUE_FLOATS;
        t->floats = m;
        return;
    }
    case POME_DTYPE_F64: {
        POME_SAVE_NEW(s, m, Pome__Spec__Doubles, pome__spec__doubles__init);
        m->n_values = n;
        m->values = data;
        t->value_case = POME__SPEC__TENSOR_VALUE__VALUE_DOUBLES;
        t->doubles = m;
        return;
    }
    case POME_DTYPE_I32:
    case POME_DTYPE_I16:
    case POME_DTYPE_U16: {
        POME_SAVE_NEW(s, m, Pome__Spec__Ints, pome__spec__ints__init);
        m->n_values = n;
        m->values = pome_saver_alloc(s, n, sizeof *m->values);
        for (size_t i = 0; i < n && !s->failed; i++)
            m->values[i] = int_at(data, k->t.dtype, i);
        t->value_case = POME__SPEC__TENSOR_VALUE__VALUE_INTS;
        t->ints = m;
        return;
    }
    case POME_DTYPE_I64:
    case POME_DTYPE_U64: {
        POME_SAVE_NEW(s, m, Pome__Spec__LongInts, pome__spec__long_ints__init);
        m->n_values = n;
        m->values = data;
        t->value_case = POME__SPEC__TENSOR_VALUE__VALUE_LONG_INTS;
        t->longints = m;
        return;
    }
    case POME_DTYPE_BOOL: {
        POME_SAVE_NEW(s, m, Pome__Spec__Bools, pome__spec__bools__init);
        m->n_values = n;
        m->values = pome_saver_alloc(s, n, sizeof *m->values);
        for (size_t i = 0; i < n && !s->failed; i++)
            m->values[i] = ((const uint8_t *)data)[i] != 0;
        t->value_case = POME__SPEC__TENSOR_VALUE__VALUE_BOOLS;
        t->bools = m;
        return;
    }
    case POME_DTYPE_STRING: put_strings(s, t, k->strings, n); return;
    default: {
        POME_SAVE_NEW(s, m, Pome__Spec__Bytes, pome__spec__bytes__init);
        m->values = (ProtobufCBinaryData){k->size_bytes, data};
        t->value_case = POME__SPEC__TENSOR_VALUE__VALUE_BYTES;
        t->bytes = m;
        return;
    }
    }
}

pome_status pome_save_const(Pome__Spec__Value **out, pome_saver *s, const pome_const *k, pome_error *err)
{
    pome_type type = {.kind = POME_TYPE_TENSOR, .dtype = k->t.dtype, .rank = k->t.rank};
    memcpy(type.dim, k->t.shape, sizeof type.dim);
    if (k->file) {
        POME_SAVE_NEW(s, v, Pome__Spec__Value, pome__spec__value__init);
        POME_SAVE_NEW(s, b, Pome__Spec__BlobFileValue, pome__spec__blob_file_value__init);
        b->filename = pome_saver_text(s, k->file);
        b->offset = k->file_offset;
        v->type = pome_save_type(s, &type);
        v->value_case = POME__SPEC__VALUE__VALUE_BLOB_FILE_VALUE;
        v->blobfilevalue = b;
        *out = v;
        return POME_OK;
    }
    size_t n = (size_t)pome_tensor_count(&k->t);
    if (n && (k->t.dtype == POME_DTYPE_STRING ? !k->strings : !k->t.data))
        return pome_fail(err, POME_ERR_ARG, "a constant without data");
    POME_SAVE_NEW(s, t, Pome__Spec__TensorValue, pome__spec__tensor_value__init);
    put_elements(s, t, k, n);
    *out = immediate(s, &type, t);
    return POME_OK;
}

/* ---- description ---- */

static pome_status array_code(int32_t *out, pome_dtype dtype, pome_error *err)
{
    switch (dtype) {
    case POME_DTYPE_F16: *out = 0x10010; return POME_OK;
    case POME_DTYPE_F32: *out = 0x10020; return POME_OK;
    case POME_DTYPE_F64: *out = 0x10040; return POME_OK;
    case POME_DTYPE_I8: *out = 0x20008; return POME_OK;
    case POME_DTYPE_I32: *out = 0x20020; return POME_OK;
    default:
        return pome_fail(err, POME_ERR_UNSUPPORTED, "inputs and outputs of models cannot be %s", pome_dtype_name(dtype));
    }
}

static int64_t *copy_sizes(pome_saver *s, const int64_t *sizes, int32_t n)
{
    int64_t *copy = pome_saver_alloc(s, (size_t)n, sizeof *copy);
    if (n > 0 && !s->failed)
        memcpy(copy, sizes, (size_t)n * sizeof *copy);
    return copy;
}

static void put_range(pome_saver *s, Pome__Spec__ArrayFeatureType *a, const pome_feature *f)
{
    POME_SAVE_NEW(s, range, Pome__Spec__ArrayShapeRange, pome__spec__array_shape_range__init);
    range->n_sizeranges = (size_t)f->rank;
    range->sizeranges = pome_saver_alloc(s, range->n_sizeranges, sizeof *range->sizeranges);
    for (int32_t i = 0; i < f->rank; i++) {
        POME_SAVE_NEW(s, r, Pome__Spec__SizeRange, pome__spec__size_range__init);
        r->lowerbound = (uint64_t)f->range[i].min;
        r->upperbound = f->range[i].max;
        range->sizeranges[i] = r;
    }
    a->shape_flexibility_case = POME__SPEC__ARRAY_FEATURE_TYPE__SHAPE_FLEXIBILITY_SHAPE_RANGE;
    a->shaperange = range;
}

static void put_enumerated(pome_saver *s, Pome__Spec__ArrayFeatureType *a, const pome_feature *f)
{
    POME_SAVE_NEW(s, list, Pome__Spec__ArrayShapeList, pome__spec__array_shape_list__init);
    list->n_shapes = f->n_enumerated;
    list->shapes = pome_saver_alloc(s, list->n_shapes, sizeof *list->shapes);
    for (uint32_t i = 0; i < f->n_enumerated && !s->failed; i++) {
        POME_SAVE_NEW(s, shape, Pome__Spec__ArrayShape, pome__spec__array_shape__init);
        shape->n_shape = (size_t)f->rank;
        shape->shape = copy_sizes(s, f->enumerated + (size_t)i * (size_t)f->rank, f->rank);
        list->shapes[i] = shape;
    }
    a->shape_flexibility_case = POME__SPEC__ARRAY_FEATURE_TYPE__SHAPE_FLEXIBILITY_ENUMERATED_SHAPES;
    a->enumeratedshapes = list;
}

static bool is_open(const pome_feature *f)
{
    bool open = f->rank < 0;
    for (int32_t i = 0; i < f->rank; i++)
        open |= f->shape[i] < 0;
    return open;
}

static pome_status save_array(Pome__Spec__ArrayFeatureType **out, pome_saver *s, const pome_feature *f, pome_error *err)
{
    POME_SAVE_NEW(s, a, Pome__Spec__ArrayFeatureType, pome__spec__array_feature_type__init);
    if (f->kind != POME_FEATURE_TENSOR)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "%s: only tensors can be saved as inputs and outputs", f->name);
    POME_TRY(array_code(&a->datatype, f->dtype, err));
    if (!is_open(f)) { /* a flexible output has no shape */
        a->n_shape = (size_t)f->rank;
        a->shape = copy_sizes(s, f->shape, f->rank);
    }
    if (f->n_enumerated)
        put_enumerated(s, a, f);
    else if (f->is_ranged)
        put_range(s, a, f);
    if (f->is_optional && f->has_default) {
        a->default_optional_value_case = POME__SPEC__ARRAY_FEATURE_TYPE__DEFAULT_OPTIONAL_VALUE_FLOAT_DEFAULT_VALUE;
        a->floatdefaultvalue = (float)f->default_value;
    }
    *out = a;
    return POME_OK;
}

static pome_status save_features(Pome__Spec__FeatureDescription ***out, pome_saver *s, const pome_feature *list,
                                 uint32_t n, bool are_states, pome_error *err)
{
    Pome__Spec__FeatureDescription **made = pome_saver_alloc(s, n, sizeof(void *));
    for (uint32_t i = 0; i < n && !s->failed; i++) {
        Pome__Spec__ArrayFeatureType *array;
        POME_TRY(save_array(&array, s, &list[i], err));
        POME_SAVE_NEW(s, d, Pome__Spec__FeatureDescription, pome__spec__feature_description__init);
        POME_SAVE_NEW(s, type, Pome__Spec__FeatureType, pome__spec__feature_type__init);
        if (are_states) {
            POME_SAVE_NEW(s, state, Pome__Spec__StateFeatureType, pome__spec__state_feature_type__init);
            state->type_case = POME__SPEC__STATE_FEATURE_TYPE__TYPE_ARRAY_TYPE;
            state->arraytype = array;
            type->type_case = POME__SPEC__FEATURE_TYPE__TYPE_STATE_TYPE;
            type->statetype = state;
        } else {
            type->type_case = POME__SPEC__FEATURE_TYPE__TYPE_MULTI_ARRAY_TYPE;
            type->multiarraytype = array;
            type->isoptional = list[i].is_optional;
        }
        d->name = pome_saver_text(s, list[i].name);
        d->shortdescription = pome_saver_text(s, list[i].description ? list[i].description : "");
        d->type = type;
        made[i] = d;
    }
    *out = made;
    return POME_OK;
}

static Pome__Spec__Metadata *save_metadata(pome_saver *s, const pome_model_info *info)
{
    POME_SAVE_NEW(s, m, Pome__Spec__Metadata, pome__spec__metadata__init);
    m->shortdescription = pome_saver_text(s, info->short_description ? info->short_description : "");
    m->versionstring = pome_saver_text(s, info->version ? info->version : "");
    m->author = pome_saver_text(s, info->author ? info->author : "");
    m->license = pome_saver_text(s, info->license ? info->license : "");
    m->n_userdefined = info->n_metadata;
    m->userdefined = pome_saver_alloc(s, info->n_metadata, sizeof *m->userdefined);
    for (uint32_t i = 0; i < info->n_metadata && !s->failed; i++) {
        POME_SAVE_NEW(s, e, Pome__Spec__StringEntry, pome__spec__string_entry__init);
        e->key = pome_saver_text(s, info->metadata[i].key);
        e->value = pome_saver_text(s, info->metadata[i].value);
        m->userdefined[i] = e;
    }
    return m;
}

static pome_status save_functions(Pome__Spec__ModelDescription *d, pome_saver *s, const pome_model_info *info,
                                  pome_error *err)
{
    d->n_functions = info->n_functions;
    d->functions = pome_saver_alloc(s, info->n_functions, sizeof *d->functions);
    for (uint32_t i = 0; i < info->n_functions && !s->failed; i++) {
        const pome_function_info *fn = &info->functions[i];
        POME_SAVE_NEW(s, f, Pome__Spec__FunctionDescription, pome__spec__function_description__init);
        f->name = pome_saver_text(s, fn->name);
        f->n_input = fn->n_inputs;
        f->n_output = fn->n_outputs;
        f->n_state = fn->n_states;
        POME_TRY(save_features(&f->input, s, fn->inputs, fn->n_inputs, false, err));
        POME_TRY(save_features(&f->output, s, fn->outputs, fn->n_outputs, false, err));
        POME_TRY(save_features(&f->state, s, fn->states, fn->n_states, true, err));
        d->functions[i] = f;
    }
    if (info->n_functions > info->default_function)
        d->defaultfunctionname = pome_saver_text(s, info->functions[info->default_function].name);
    return POME_OK;
}

pome_status pome_save_description(Pome__Spec__ModelDescription **out, pome_saver *s, const pome_model_info *info,
                                  pome_error *err)
{
    POME_SAVE_NEW(s, d, Pome__Spec__ModelDescription, pome__spec__model_description__init);
    d->metadata = save_metadata(s, info);
    if (info->n_functions == 1 && strcmp(info->functions[0].name, "main") == 0) {
        const pome_function_info *fn = &info->functions[0];
        d->n_input = fn->n_inputs;
        d->n_output = fn->n_outputs;
        d->n_state = fn->n_states;
        POME_TRY(save_features(&d->input, s, fn->inputs, fn->n_inputs, false, err));
        POME_TRY(save_features(&d->output, s, fn->outputs, fn->n_outputs, false, err));
        POME_TRY(save_features(&d->state, s, fn->states, fn->n_states, true, err));
    } else {
        POME_TRY(save_functions(d, s, info, err));
    }
    *out = d;
    return POME_OK;
}
