/* The model description (inputs, outputs, states, functions, metadata) as plain structs. */
#include <inttypes.h>
#include <stdio.h>

#include "base/checked.h"
#include "base/strmap.h"
#include "formats/mlpackage.h"

typedef Pome__Spec__FeatureDescription feature_spec;
typedef Pome__Spec__ArrayFeatureType array_spec;
typedef Pome__Spec__ImageFeatureType image_spec;

typedef enum feature_role { ROLE_INPUT, ROLE_OUTPUT, ROLE_STATE } feature_role;

/* Where we are, for messages: "function main: input x: ..." */
typedef struct describer {
    pome_arena *arena;
    const char *function;
    feature_role role;
    const char *feature;
} describer;

static pome_status bad(const describer *d, pome_error *err, const char *fmt, ...) POME_PRINTF(3, 4);

static pome_status bad(const describer *d, pome_error *err, const char *fmt, ...)
{
    static const char *const roles[] = {"input", "output", "state"};
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return pome_fail(err, POME_ERR_FORMAT, "function %s: %s %s: %s", d->function, roles[d->role], d->feature, text);
}

static const char *copy(pome_arena *arena, const char *s)
{
    return s && s[0] ? pome_arena_strndup(arena, s, strlen(s)) : "";
}

static pome_status no_memory(pome_error *err)
{
    return pome_fail_nomem(err, 0, "the model description");
}

/* ArrayDataType: kind << 16 | bits. */
static pome_dtype array_dtype(int32_t code)
{
    switch (code) {
    case 0x10010: return POME_DTYPE_F16;
    case 0x10020: return POME_DTYPE_F32;
    case 0x10040: return POME_DTYPE_F64;
    case 0x20008: return POME_DTYPE_I8;
    case 0x20020: return POME_DTYPE_I32;
    default: return POME_DTYPE_NONE;
    }
}

static pome_status check_extents(const describer *d, const int64_t *shape, size_t rank, pome_error *err)
{
    int64_t count = 1;
    if (rank > POME_MAX_RANK)
        return bad(d, err, "rank %zu, at most %d is possible", rank, POME_MAX_RANK);
    for (size_t i = 0; i < rank; i++) {
        if (shape[i] < 0)
            return bad(d, err, "size %" PRId64 " of axis %zu", shape[i], i);
        if (!pome_mul_i64(count, shape[i] ? shape[i] : 1, &count))
            return bad(d, err, "its shape has more elements than 64 bits can count");
    }
    return POME_OK;
}

static pome_status set_range(const describer *d, pome_feature *f, int32_t axis, const Pome__Spec__SizeRange *r,
                             pome_error *err)
{
    if (!r || r->lowerbound > INT64_MAX || (r->upperbound >= 0 && (int64_t)r->lowerbound > r->upperbound))
        return bad(d, err, "the range of axis %d is [%" PRIu64 ", %" PRId64 "]", axis, r ? r->lowerbound : 0,
                   r ? r->upperbound : 0);
    f->range[axis] = (pome_axis_range){(int64_t)r->lowerbound, r->upperbound < 0 ? -1 : r->upperbound};
    return POME_OK;
}

/* An output's flexible axes have no default size; an input's default must be one of those allowed. */
static pome_status settle_ranges(const describer *d, pome_feature *f, pome_error *err)
{
    f->is_ranged = true;
    for (int32_t i = 0; i < f->rank; i++) {
        const pome_axis_range r = f->range[i];
        if (d->role == ROLE_OUTPUT) {
            if (r.min != r.max)
                f->shape[i] = -1;
        } else if (f->shape[i] < r.min || (r.max >= 0 && f->shape[i] > r.max)) {
            return bad(d, err, "its default size %" PRId64 " of axis %d is outside of [%" PRId64 ", %" PRId64 "]",
                       f->shape[i], i, r.min, r.max);
        }
    }
    return POME_OK;
}

static pome_status add_ranges(const describer *d, pome_feature *f, const Pome__Spec__ArrayShapeRange *s,
                              pome_error *err)
{
    size_t n = s->n_sizeranges;
    if (n > POME_MAX_RANK || (f->rank >= 0 && n != (size_t)f->rank))
        return bad(d, err, "%zu ranges for rank %d", n, f->rank);
    bool has_shape = f->rank >= 0;
    f->rank = (int32_t)n;
    for (int32_t i = 0; i < f->rank; i++) {
        POME_TRY(set_range(d, f, i, s->sizeranges[i], err));
        if (!has_shape)
            f->shape[i] = f->range[i].min;
    }
    return settle_ranges(d, f, err);
}

/* The default shape becomes the first of the list. */
static pome_status add_enumerated(const describer *d, pome_feature *f, int64_t *list /* [n, rank] */, size_t n,
                                  pome_error *err)
{
    size_t rank = (size_t)f->rank, row_bytes = rank * sizeof *list, at = 0;
    if (d->role == ROLE_OUTPUT) {
        for (size_t i = 1; i < n; i++)
            for (size_t k = 0; k < rank; k++)
                if (list[i * rank + k] != list[k])
                    f->shape[k] = -1;
    } else {
        while (at < n && memcmp(list + at * rank, f->shape, row_bytes) != 0)
            at++;
        if (at == n)
            return bad(d, err, "its default shape is not among the %zu enumerated ones", n);
        memmove(list + rank, list, at * row_bytes);
        memcpy(list, f->shape, row_bytes);
    }
    f->n_enumerated = (uint32_t)n;
    f->enumerated = list;
    return POME_OK;
}

static pome_status add_shape_list(const describer *d, pome_feature *f, const Pome__Spec__ArrayShapeList *s,
                                  pome_error *err)
{
    size_t n = s->n_shapes, cells;
    if (n == 0 || n > UINT32_MAX)
        return bad(d, err, "%zu enumerated shapes", n);
    if (f->rank < 0) {
        POME_TRY(check_extents(d, s->shapes[0]->shape, s->shapes[0]->n_shape, err));
        f->rank = (int32_t)s->shapes[0]->n_shape;
        if (f->rank)
            memcpy(f->shape, s->shapes[0]->shape, (size_t)f->rank * sizeof f->shape[0]);
    }
    size_t rank = (size_t)f->rank;
    int64_t *list = pome_mul_size(n, rank, &cells) ? POME_NEW_ARRAY(d->arena, int64_t, cells) : NULL;
    if (!list)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        if (s->shapes[i]->n_shape != rank)
            return bad(d, err, "enumerated shape %zu has rank %zu, the others %zu", i, s->shapes[i]->n_shape, rank);
        POME_TRY(check_extents(d, s->shapes[i]->shape, rank, err));
        if (rank)
            memcpy(list + i * rank, s->shapes[i]->shape, rank * sizeof *list);
    }
    return add_enumerated(d, f, list, n, err);
}

static void set_default(pome_feature *f, const array_spec *a)
{
    f->has_default = true;
    switch (a->default_optional_value_case) {
    case POME__SPEC__ARRAY_FEATURE_TYPE__DEFAULT_OPTIONAL_VALUE_INT_DEFAULT_VALUE:
        f->default_value = a->intdefaultvalue;
        break;
    case POME__SPEC__ARRAY_FEATURE_TYPE__DEFAULT_OPTIONAL_VALUE_FLOAT_DEFAULT_VALUE:
        f->default_value = (double)a->floatdefaultvalue;
        break;
    case POME__SPEC__ARRAY_FEATURE_TYPE__DEFAULT_OPTIONAL_VALUE_DOUBLE_DEFAULT_VALUE:
        f->default_value = a->doubledefaultvalue;
        break;
    default:
        f->has_default = false;
    }
}

static pome_status add_array(const describer *d, pome_feature *f, const array_spec *a, pome_error *err)
{
    f->kind = POME_FEATURE_TENSOR;
    f->dtype = array_dtype(a->datatype);
    if (f->dtype == POME_DTYPE_NONE)
        return bad(d, err, "element type 0x%" PRIx32 " is not known", (uint32_t)a->datatype);
    POME_TRY(check_extents(d, a->shape, a->n_shape, err));
    f->rank = a->n_shape ? (int32_t)a->n_shape : -1;
    if (a->n_shape)
        memcpy(f->shape, a->shape, a->n_shape * sizeof f->shape[0]);
    set_default(f, a);
    switch (a->shape_flexibility_case) {
    case POME__SPEC__ARRAY_FEATURE_TYPE__SHAPE_FLEXIBILITY_SHAPE_RANGE:
        return add_ranges(d, f, a->shaperange, err);
    case POME__SPEC__ARRAY_FEATURE_TYPE__SHAPE_FLEXIBILITY_ENUMERATED_SHAPES:
        return add_shape_list(d, f, a->enumeratedshapes, err);
    default:
        return POME_OK;
    }
}

/* Images are tensors [1, channels, height, width] to the program. */
static pome_status add_image(const describer *d, pome_feature *f, const image_spec *s, pome_error *err)
{
    bool is_gray = s->colorspace == 10 || s->colorspace == 40;
    if (!is_gray && s->colorspace != 20 && s->colorspace != 30)
        return bad(d, err, "color space %" PRId32 " is not known", s->colorspace);
    const int64_t shape[4] = {1, is_gray ? 1 : 3, s->height, s->width};
    f->kind = POME_FEATURE_IMAGE;
    f->color = s->colorspace == 10   ? POME_COLOR_GRAY
               : s->colorspace == 40 ? POME_COLOR_GRAY_F16
               : s->colorspace == 20 ? POME_COLOR_RGB
                                     : POME_COLOR_BGR;
    f->dtype = s->colorspace == 40 ? POME_DTYPE_F16 : POME_DTYPE_U8;
    f->rank = 4;
    POME_TRY(check_extents(d, shape, 4, err));
    memcpy(f->shape, shape, sizeof shape);
    if (s->size_flexibility_case == POME__SPEC__IMAGE_FEATURE_TYPE__SIZE_FLEXIBILITY_IMAGE_SIZE_RANGE) {
        f->range[0] = (pome_axis_range){1, 1};
        f->range[1] = (pome_axis_range){shape[1], shape[1]};
        POME_TRY(set_range(d, f, 2, s->imagesizerange->heightrange, err));
        POME_TRY(set_range(d, f, 3, s->imagesizerange->widthrange, err));
        return settle_ranges(d, f, err);
    }
    if (s->size_flexibility_case != POME__SPEC__IMAGE_FEATURE_TYPE__SIZE_FLEXIBILITY_ENUMERATED_SIZES)
        return POME_OK;
    size_t n = s->enumeratedsizes->n_sizes;
    int64_t *list = n && n < UINT32_MAX ? POME_NEW_ARRAY(d->arena, int64_t, n * 4) : NULL;
    if (!list)
        return n ? no_memory(err) : bad(d, err, "no enumerated size");
    for (size_t i = 0; i < n; i++) {
        const Pome__Spec__ImageSize *size = s->enumeratedsizes->sizes[i];
        if (size->height > INT32_MAX || size->width > INT32_MAX)
            return bad(d, err, "enumerated size %zu is %" PRIu64 " x %" PRIu64, i, size->width, size->height);
        memcpy(list + i * 4, (int64_t[]){1, shape[1], (int64_t)size->height, (int64_t)size->width}, sizeof shape);
    }
    return add_enumerated(d, f, list, n, err);
}

static pome_status add_feature(const describer *d, pome_feature *f, const feature_spec *s, pome_error *err)
{
    *f = (pome_feature){.name = copy(d->arena, s->name), .description = copy(d->arena, s->shortdescription),
                        .rank = -1};
    if (!f->name || !f->description)
        return no_memory(err);
    if (f->name[0] == '\0')
        return bad(d, err, "its name is empty");
    if (!s->type)
        return bad(d, err, "it has no type");
    f->is_optional = s->type->isoptional;
    switch (s->type->type_case) {
    case POME__SPEC__FEATURE_TYPE__TYPE_MULTI_ARRAY_TYPE:
        return add_array(d, f, s->type->multiarraytype, err);
    case POME__SPEC__FEATURE_TYPE__TYPE_STATE_TYPE:
        if (!s->type->statetype->arraytype)
            return bad(d, err, "a state that is no array");
        return add_array(d, f, s->type->statetype->arraytype, err);
    case POME__SPEC__FEATURE_TYPE__TYPE_IMAGE_TYPE:
        return add_image(d, f, s->type->imagetype, err);
    case POME__SPEC__FEATURE_TYPE__TYPE_INT64_TYPE:
        f->kind = POME_FEATURE_INT64;
        f->dtype = POME_DTYPE_I64;
        return POME_OK;
    case POME__SPEC__FEATURE_TYPE__TYPE_DOUBLE_TYPE:
        f->kind = POME_FEATURE_DOUBLE;
        f->dtype = POME_DTYPE_F64;
        return POME_OK;
    case POME__SPEC__FEATURE_TYPE__TYPE_STRING_TYPE:
        f->kind = POME_FEATURE_STRING;
        f->dtype = POME_DTYPE_STRING;
        return POME_OK;
    case POME__SPEC__FEATURE_TYPE__TYPE_DICTIONARY_TYPE:
        f->kind = POME_FEATURE_DICTIONARY;
        f->dtype = s->type->dictionarytype->key_type_case == POME__SPEC__DICTIONARY_FEATURE_TYPE__KEY_TYPE_INT64_KEY_TYPE
                       ? POME_DTYPE_I64
                       : POME_DTYPE_STRING;
        return POME_OK;
    case POME__SPEC__FEATURE_TYPE__TYPE_SEQUENCE_TYPE:
        f->kind = POME_FEATURE_SEQUENCE;
        return POME_OK;
    default:
        return bad(d, err, "its type is not known");
    }
}

static pome_status add_named(describer *d, pome_strmap *names, pome_feature *f, const feature_spec *s,
                             pome_error *err)
{
    d->feature = s->name ? s->name : "";
    POME_TRY(add_feature(d, f, s, err));
    if (pome_strmap_get(names, pome_str_of(f->name)))
        return bad(d, err, "described twice");
    if (!pome_strmap_set(names, pome_str_of(f->name), f))
        return no_memory(err);
    if (d->role == ROLE_STATE && (f->rank < 0 || f->is_ranged || f->n_enumerated))
        return bad(d, err, "a state needs one fixed shape");
    return POME_OK;
}

/* The three lists of one function, from its own description or from the model's. */
typedef struct function_spec {
    const char *name;
    feature_spec **inputs, **outputs, **states;
    size_t n_inputs, n_outputs, n_states;
    const char *label, *probabilities;
} function_spec;

static bool is_state(const feature_spec *s)
{
    return s->type && s->type->type_case == POME__SPEC__FEATURE_TYPE__TYPE_STATE_TYPE;
}

/* A state may be listed among the inputs; it is put with the states. */
static pome_status add_inputs_and_states(describer *d, pome_function_info *fn, const function_spec *s,
                                         pome_error *err)
{
    size_t n_both = s->n_inputs + s->n_states; /* of lists in memory: cannot overflow */
    pome_feature *inputs = POME_NEW_ARRAY(d->arena, pome_feature, s->n_inputs);
    pome_feature *states = POME_NEW_ARRAY(d->arena, pome_feature, n_both);
    pome_strmap names;
    pome_strmap_init(&names, d->arena);
    if (!inputs || !states || n_both > UINT32_MAX)
        return no_memory(err);
    fn->inputs = inputs;
    fn->states = states;
    for (size_t i = 0; i < n_both; i++) {
        const feature_spec *f = i < s->n_inputs ? s->inputs[i] : s->states[i - s->n_inputs];
        if (i >= s->n_inputs || is_state(f)) {
            d->role = ROLE_STATE;
            POME_TRY(add_named(d, &names, &states[fn->n_states++], f, err));
        } else {
            d->role = ROLE_INPUT;
            POME_TRY(add_named(d, &names, &inputs[fn->n_inputs++], f, err));
        }
    }
    return POME_OK;
}

/* coremltools lists an output twice where a network returns the same tensor twice. */
static bool is_repeated(pome_strmap *names, const feature_spec *s)
{
    const pome_feature *f = s->name ? pome_strmap_get(names, pome_str_of(s->name)) : NULL;
    return f && f->kind == POME_FEATURE_TENSOR && s->type &&
           s->type->type_case == POME__SPEC__FEATURE_TYPE__TYPE_MULTI_ARRAY_TYPE;
}

static pome_status add_function(pome_arena *arena, pome_function_info *fn, pome_predicted_names *predicted,
                                const function_spec *s, pome_error *err)
{
    describer d = {.arena = arena, .function = s->name, .role = ROLE_OUTPUT, .feature = ""};
    pome_feature *outputs = POME_NEW_ARRAY(arena, pome_feature, s->n_outputs);
    pome_strmap names;
    pome_strmap_init(&names, arena);
    *fn = (pome_function_info){.name = copy(arena, s->name), .n_outputs = (uint32_t)s->n_outputs, .outputs = outputs};
    *predicted = (pome_predicted_names){copy(arena, s->label), copy(arena, s->probabilities)};
    if (!outputs || !fn->name || !predicted->label || !predicted->probabilities || s->n_outputs > UINT32_MAX)
        return no_memory(err);
    POME_TRY(add_inputs_and_states(&d, fn, s, err));
    d.role = ROLE_OUTPUT;
    fn->n_outputs = 0;
    for (size_t i = 0; i < s->n_outputs; i++)
        if (!is_repeated(&names, s->outputs[i]))
            POME_TRY(add_named(&d, &names, &outputs[fn->n_outputs++], s->outputs[i], err));
    return POME_OK;
}

static function_spec model_function(const char *name, const Pome__Spec__ModelDescription *d)
{
    return (function_spec){name, d->input, d->output, d->state, d->n_input, d->n_output, d->n_state,
                           d->predictedfeaturename, d->predictedprobabilitiesname};
}

static function_spec one_function(const Pome__Spec__FunctionDescription *d)
{
    return (function_spec){d->name, d->input, d->output, d->state, d->n_input, d->n_output, d->n_state,
                           d->predictedfeaturename, d->predictedprobabilitiesname};
}

/* A model without a list of functions describes its only one, called main as a rule. */
static pome_status add_only_function(pome_mlpackage *p, pome_function_info *fn, pome_predicted_names *predicted,
                                     pome_error *err)
{
    const Pome__Spec__Program *program = p->spec->mlprogram;
    const char *name = program->functions[0]->key;
    for (size_t i = 0; i < program->n_functions; i++)
        if (strcmp(program->functions[i]->key, "main") == 0)
            name = "main";
    function_spec s = model_function(name, p->spec->description);
    POME_TRY(add_function(p->arena, fn, predicted, &s, err));
    p->info.n_functions = 1;
    return POME_OK;
}

static pome_status add_functions(pome_mlpackage *p, pome_error *err)
{
    const Pome__Spec__ModelDescription *d = p->spec->description;
    const Pome__Spec__Program *program = p->spec->mlprogram;
    size_t n = d->n_functions ? d->n_functions : 1;
    pome_function_info *functions = POME_NEW_ARRAY(p->arena, pome_function_info, n);
    pome_predicted_names *predicted = POME_NEW_ARRAY(p->arena, pome_predicted_names, n);
    pome_strmap in_program, seen;
    pome_strmap_init(&in_program, p->arena);
    pome_strmap_init(&seen, p->arena);
    if (!functions || !predicted)
        return no_memory(err);
    p->info.functions = functions;
    p->predicted = predicted;
    if (program->n_functions == 0)
        return pome_fail(err, POME_ERR_FORMAT, "the program has no function");
    if (!d->n_functions)
        return add_only_function(p, &functions[0], &predicted[0], err);
    for (size_t i = 0; i < program->n_functions; i++)
        if (!pome_strmap_set(&in_program, pome_str_of(program->functions[i]->key), program->functions[i]))
            return no_memory(err);
    bool has_default = d->defaultfunctionname[0] == '\0';
    for (size_t i = 0; i < n; i++) {
        const char *name = d->functions[i]->name;
        function_spec s = one_function(d->functions[i]);
        if (!pome_strmap_get(&in_program, pome_str_of(name)))
            return pome_fail(err, POME_ERR_FORMAT, "function %s is described, but the program has none of this name",
                             name);
        POME_TRY(add_function(p->arena, &functions[i], &predicted[i], &s, err));
        if (pome_strmap_get(&seen, pome_str_of(functions[i].name)))
            return pome_fail(err, POME_ERR_FORMAT, "function %s is described twice", name);
        if (!pome_strmap_set(&seen, pome_str_of(functions[i].name), &functions[i]))
            return no_memory(err);
        if (!has_default && strcmp(name, d->defaultfunctionname) == 0) {
            p->info.default_function = (uint32_t)i;
            has_default = true;
        }
    }
    if (!has_default)
        return pome_fail(err, POME_ERR_FORMAT, "the default function %s is none of the %zu functions",
                         d->defaultfunctionname, n);
    p->info.n_functions = (uint32_t)n;
    return POME_OK;
}

static pome_status add_metadata(pome_mlpackage *p, pome_error *err)
{
    const Pome__Spec__Metadata *m = p->spec->description->metadata;
    size_t n = m ? m->n_userdefined : 0;
    pome_metadata_entry *entries = POME_NEW_ARRAY(p->arena, pome_metadata_entry, n);
    if (!entries || n > UINT32_MAX)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        entries[i].key = copy(p->arena, m->userdefined[i]->key);
        entries[i].value = copy(p->arena, m->userdefined[i]->value);
        if (!entries[i].key || !entries[i].value)
            return no_memory(err);
    }
    p->info.metadata = entries;
    p->info.n_metadata = (uint32_t)n;
    p->info.short_description = copy(p->arena, m ? m->shortdescription : NULL);
    p->info.version = copy(p->arena, m ? m->versionstring : NULL);
    p->info.author = copy(p->arena, m ? m->author : NULL);
    p->info.license = copy(p->arena, m ? m->license : NULL);
    if (!p->info.short_description || !p->info.version || !p->info.author || !p->info.license)
        return no_memory(err);
    return POME_OK;
}

pome_status pome_mlpackage_describe(pome_mlpackage *package, pome_error *err)
{
    const Pome__Spec__Model *spec = package->spec;
    if (!spec->description)
        return pome_fail(err, POME_ERR_FORMAT, "the model has no description");
    if (spec->type_case != POME__SPEC__MODEL__TYPE_ML_PROGRAM || !spec->mlprogram)
        return pome_fail(err, POME_ERR_FORMAT, "the model has no program");
    package->info.specification_version = spec->specificationversion;
    POME_TRY(add_metadata(package, err));
    return add_functions(package, err);
}
