/* metadata.json of a compiled model. Numbers and truth values are text there, but for a few. */
#include <ctype.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "convert/compile.h"

enum { TEXT_MAX = 4000 };

typedef struct text {
    char bytes[TEXT_MAX];
    size_t len;
} text;

static void put(text *t, const char *fmt, ...) POME_PRINTF(2, 3);

/* Cut at the size. */
static void put(text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->bytes + t->len, sizeof t->bytes - t->len, fmt, ap);
    va_end(ap);
    if (n > 0)
        t->len += (size_t)n < sizeof t->bytes - t->len ? (size_t)n : sizeof t->bytes - 1 - t->len;
}

static const char *type_name(pome_dtype dtype)
{
    switch (dtype) {
    case POME_DTYPE_F16: return "Float16";
    case POME_DTYPE_F32: return "Float32";
    case POME_DTYPE_F64: return "Double";
    case POME_DTYPE_BF16: return "BFloat16";
    case POME_DTYPE_I4: return "Int4";
    case POME_DTYPE_I8: return "Int8";
    case POME_DTYPE_I16: return "Int16";
    case POME_DTYPE_I32: return "Int32";
    case POME_DTYPE_I64: return "Int64";
    case POME_DTYPE_U8: return "UInt8";
    case POME_DTYPE_U16: return "UInt16";
    case POME_DTYPE_U32: return "UInt32";
    case POME_DTYPE_U64: return "UInt64";
    case POME_DTYPE_BOOL: return "Bool";
    case POME_DTYPE_STRING: return "String";
    default: return pome_dtype_name(dtype);
    }
}

/* ---- features ---- */

static void put_shape(text *t, const int64_t *shape, int32_t rank)
{
    put(t, "[");
    for (int32_t i = 0; i < rank; i++)
        put(t, "%s%" PRId64, i ? ", " : "", shape[i]);
    put(t, "]");
}

static void put_sizes(text *t, const int64_t *shape, int32_t rank)
{
    for (int32_t i = 0; i < rank; i++)
        put(t, "%s%" PRId64, i ? " × " : "", shape[i]);
}

static void set_text(json_t *o, const char *key, const text *t)
{
    json_object_set_new(o, key, json_string(t->bytes));
}

static void add_flexibility(json_t *o, const pome_feature *f)
{
    text people = {0}, list = {0};
    if (f->n_enumerated) {
        put(&list, "[");
        for (uint32_t i = 0; i < f->n_enumerated; i++) {
            const int64_t *shape = f->enumerated + (size_t)i * (size_t)f->rank;
            put(&people, "%s", i ? " | " : "");
            put(&list, "%s", i ? ", " : "");
            put_sizes(&people, shape, f->rank);
            put_shape(&list, shape, f->rank);
        }
        put(&list, "]");
        set_text(o, "shapeFlexibility", &people);
        set_text(o, "enumeratedShapes", &list);
    } else if (f->is_ranged) {
        put(&list, "[");
        for (int32_t i = 0; i < f->rank; i++) {
            const pome_axis_range r = f->range[i];
            put(&people, "%s%" PRId64, i ? " × " : "", r.min);
            if (r.max < 0)
                put(&people, "...");
            else if (r.max != r.min)
                put(&people, "...%" PRId64, r.max);
            put(&list, "%s[%" PRId64 ", %" PRId64 "]", i ? ", " : "", r.min, r.max);
        }
        put(&list, "]");
        set_text(o, "shapeFlexibility", &people);
        set_text(o, "shapeRange", &list);
    }
}

static json_t *feature_json(const pome_feature *f, bool is_state)
{
    static const char *const kinds[] = {"MultiArray", "Image", "Dictionary", "String", "Int64", "Double", "Sequence"};
    bool is_flexible = f->n_enumerated || f->is_ranged;
    json_t *o = json_object();
    text shape = {0}, formatted = {0};
    json_object_set_new(o, "hasShapeFlexibility", json_string(is_flexible ? "1" : "0"));
    json_object_set_new(o, "isOptional", json_string(f->is_optional ? "1" : "0"));
    if (f->kind == POME_FEATURE_TENSOR) {
        bool has_sizes = f->rank >= 0;
        for (int32_t i = 0; i < f->rank; i++)
            has_sizes &= f->shape[i] >= 0;
        put_shape(&shape, f->shape, has_sizes ? f->rank : 0);
        put(&formatted, "%s (%s", is_state ? "State" : kinds[f->kind], type_name(f->dtype));
        put(&formatted, "%s", has_sizes && f->rank ? " " : "");
        put_sizes(&formatted, f->shape, has_sizes ? f->rank : 0);
        put(&formatted, ")%s", is_flexible ? " *" : "");
        json_object_set_new(o, "dataType", json_string(type_name(f->dtype)));
        set_text(o, "shape", &shape);
        add_flexibility(o, f);
    } else {
        put(&formatted, "%s", kinds[f->kind]);
    }
    set_text(o, "formattedType", &formatted);
    json_object_set_new(o, "shortDescription", json_string(f->description));
    json_object_set_new(o, "name", json_string(f->name));
    json_object_set_new(o, "type", json_string(is_state ? "State" : kinds[f->kind]));
    return o;
}

static json_t *schema_json(const pome_feature *list, uint32_t n, bool are_states)
{
    json_t *a = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(a, feature_json(&list[i], are_states));
    return a;
}

/* ---- what the program says ---- */

typedef struct census {
    bool computes[POME_DTYPE_COUNT], stores[POME_DTYPE_COUNT];
    uint32_t n_of[POME_OP_COUNT];
} census;

static void count_stored(census *c, const pome_value *v)
{
    const pome_const *k = v->konst;
    if (k && k->file)
        c->stores[k->t.dtype] = true;
}

static void count_block(census *c, const pome_block *b)
{
    for (uint32_t i = 0; i < b->n_ops; i++) {
        const pome_op *op = b->ops[i];
        bool is_constant = op->def->flags & POME_OP_CONSTEXPR;
        c->n_of[op->def->id]++;
        for (uint32_t k = 0; k < op->n_in; k++)
            count_stored(c, op->in[k]);
        for (uint32_t k = 0; k < op->n_out && !is_constant; k++)
            if (op->out[k]->type.kind == POME_TYPE_TENSOR)
                c->computes[op->out[k]->type.dtype] = true;
        for (uint32_t k = 0; k < op->n_blocks; k++)
            count_block(c, op->blocks[k]);
    }
}

/* "Float16", "Mixed (Float16, Int32)". */
static json_t *precision_json(const bool *has)
{
    text t = {0};
    int n = 0;
    for (int d = 0; d < POME_DTYPE_COUNT; d++)
        if (has[d]) {
            put(&t, "%s%s", n ? ", " : "", type_name((pome_dtype)d));
            n++;
        }
    text whole = {0};
    put(&whole, n > 1 ? "Mixed (%s)" : "%s", t.bytes);
    return json_string(whole.bytes);
}

/* "Ios16.reduceMean"; the operators of iOS 15 without a prefix, "ReduceMean". */
static json_t *histogram_json(const census *c, pome_opset opset)
{
    json_t *o = json_object();
    for (int id = 0; id < POME_OP_COUNT; id++) {
        text t = {0};
        bool is_upper = opset <= POME_OPSET_IOS15;
        if (!c->n_of[id])
            continue;
        if (!is_upper)
            put(&t, "Ios%d.", (int)opset);
        for (const char *p = pome_opdef_get((pome_op_id)id)->name; *p; p++) {
            if (*p == '_' && p[1]) {
                is_upper = true;
                continue;
            }
            put(&t, "%c", is_upper ? toupper((unsigned char)*p) : *p);
            is_upper = false;
        }
        json_object_set_new(o, t.bytes, json_integer(c->n_of[id]));
    }
    return o;
}

static json_t *availability_json(int32_t version)
{
    static const char *const systems[] = {"macOS", "tvOS", "visionOS", "watchOS", "iOS", "macCatalyst"};
    static const char *const first[][6] = {
        {"12.0", "15.0", "1.0", "8.0", "15.0", "15.0"},  {"13.0", "16.0", "1.0", "9.0", "16.0", "16.0"},
        {"14.0", "17.0", "1.0", "10.0", "17.0", "17.0"}, {"15.0", "18.0", "2.0", "11.0", "18.0", "18.0"},
        {"26.0", "26.0", "26.0", "26.0", "26.0", "26.0"},
    };
    int row = version < 7 ? 0 : version > 9 ? 4 : (int)version - 6;
    json_t *o = json_object();
    for (size_t i = 0; i < sizeof systems / sizeof systems[0]; i++)
        json_object_set_new(o, systems[i], json_string(first[row][i]));
    return o;
}

/* ---- the whole ---- */

static void add_function(json_t *o, const pome_program *program, const pome_function_info *f)
{
    const pome_function *fn = pome_program_find(program, f->name);
    census c = {0};
    if (fn)
        count_block(&c, fn->body);
    json_object_set_new(o, "outputSchema", schema_json(f->outputs, f->n_outputs, false));
    json_object_set_new(o, "storagePrecision", precision_json(c.stores));
    json_object_set_new(o, "computePrecision", precision_json(c.computes));
    json_object_set_new(o, "mlProgramOperationTypeHistogram", histogram_json(&c, fn ? fn->opset : POME_OPSET_IOS15));
    json_object_set_new(o, "stateSchema", schema_json(f->states, f->n_states, true));
    json_object_set_new(o, "inputSchema", schema_json(f->inputs, f->n_inputs, false));
}

static json_t *model_json(const pome_program *program, const pome_model_info *info, const char *class_name)
{
    const struct {
        const char *key, *value;
    } texts[] = {{"shortDescription", info->short_description}, {"author", info->author}, {"version", info->version},
                 {"license", info->license}};
    json_t *o = json_object(), *user = json_object();
    json_object_set_new(o, "metadataOutputVersion", json_string("3.0"));
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i].value[0])
            json_object_set_new(o, texts[i].key, json_string(texts[i].value));
    add_function(o, program, &info->functions[info->default_function]);
    json_object_set_new(o, "modelParameters", json_array());
    json_object_set_new(o, "specificationVersion", json_integer(info->specification_version));
    json_object_set_new(o, "isUpdatable", json_string("0"));
    json_object_set_new(o, "availability", availability_json(info->specification_version));
    json_object_set_new(o, "modelType", json_pack("{s:s}", "name", "MLModelType_mlProgram"));
    for (uint32_t i = 0; i < info->n_metadata; i++)
        json_object_set_new(user, info->metadata[i].key, json_string(info->metadata[i].value));
    json_object_set_new(o, "userDefinedMetadata", user);
    json_object_set_new(o, "generatedClassName", json_string(class_name));
    json_object_set_new(o, "method", json_string("predict"));
    if (info->n_functions > 1) {
        json_t *functions = json_array();
        for (uint32_t i = 0; i < info->n_functions; i++) {
            json_t *f = json_object();
            add_function(f, program, &info->functions[i]);
            json_object_set_new(f, "name", json_string(info->functions[i].name));
            json_array_append_new(functions, f);
        }
        json_object_set_new(o, "functions", functions);
        json_object_set_new(o, "defaultFunctionName", json_string(info->functions[info->default_function].name));
    }
    return o;
}

pome_status pome_compile_metadata(char **out, const pome_program *program, const pome_model_info *info,
                                  const char *class_name, pome_error *err)
{
    json_t *list = json_pack("[o]", model_json(program, info, class_name));
    char *written = list ? json_dumps(list, JSON_INDENT(2)) : NULL;
    json_decref(list);
    if (!written)
        return pome_fail_nomem(err, 0, "metadata.json");
    *out = written;
    return POME_OK;
}
