/* Building small models as protobuf messages, and temporary packages on disk, for the tests of the readers. */
#ifndef POME_TESTS_SPEC_BUILDER_H
#define POME_TESTS_SPEC_BUILDER_H

#include <ftw.h>
#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "formats/mlpackage.h"
#include "mil/load.h"

/* ---- messages; everything lives in one arena ---- */

#define SPEC_NEW(arena, type, init) (spec_init_##init(POME_NEW(arena, type)))
#define SPEC_INIT(type, name)                                                                      \
    static inline type *spec_init_##name(type *m)                                                  \
    {                                                                                              \
        assert_non_null(m);                                                                        \
        pome__spec__##name##__init(m);                                                             \
        return m;                                                                                  \
    }
SPEC_INIT(Pome__Spec__Model, model)
SPEC_INIT(Pome__Spec__ModelDescription, model_description)
SPEC_INIT(Pome__Spec__FeatureDescription, feature_description)
SPEC_INIT(Pome__Spec__FeatureType, feature_type)
SPEC_INIT(Pome__Spec__ArrayFeatureType, array_feature_type)
SPEC_INIT(Pome__Spec__Program, program)
SPEC_INIT(Pome__Spec__FunctionEntry, function_entry)
SPEC_INIT(Pome__Spec__Function, function)
SPEC_INIT(Pome__Spec__BlockEntry, block_entry)
SPEC_INIT(Pome__Spec__Block, block)
SPEC_INIT(Pome__Spec__Operation, operation)
SPEC_INIT(Pome__Spec__ArgumentEntry, argument_entry)
SPEC_INIT(Pome__Spec__Argument, argument)
SPEC_INIT(Pome__Spec__Binding, binding)
SPEC_INIT(Pome__Spec__ValueEntry, value_entry)
SPEC_INIT(Pome__Spec__NamedValueType, named_value_type)
SPEC_INIT(Pome__Spec__ValueType, value_type)
SPEC_INIT(Pome__Spec__TensorType, tensor_type)
SPEC_INIT(Pome__Spec__ListType, list_type)
SPEC_INIT(Pome__Spec__StateType, state_type)
SPEC_INIT(Pome__Spec__Dimension, dimension)
SPEC_INIT(Pome__Spec__ConstantDimension, constant_dimension)
SPEC_INIT(Pome__Spec__UnknownDimension, unknown_dimension)
SPEC_INIT(Pome__Spec__Value, value)
SPEC_INIT(Pome__Spec__ImmediateValue, immediate_value)
SPEC_INIT(Pome__Spec__BlobFileValue, blob_file_value)
SPEC_INIT(Pome__Spec__TensorValue, tensor_value)
SPEC_INIT(Pome__Spec__ValueList, value_list)
SPEC_INIT(Pome__Spec__Floats, floats)
SPEC_INIT(Pome__Spec__Ints, ints)
SPEC_INIT(Pome__Spec__Strings, strings)
SPEC_INIT(Pome__Spec__Bytes, bytes)

/* Appends to a repeated field: SPEC_ADD(arena, block, operations, op). */
#define SPEC_ADD(arena, message, field, item)                                                      \
    do {                                                                                           \
        void *spec_list_ = POME_NEW_ARRAY(arena, void *, (message)->n_##field + 1);                \
        assert_non_null(spec_list_);                                                               \
        if ((message)->n_##field)                                                                  \
            memcpy(spec_list_, (message)->field, (message)->n_##field * sizeof(void *));           \
        (message)->field = spec_list_;                                                             \
        (message)->field[(message)->n_##field++] = (item);                                         \
    } while (0)

enum { SPEC_BOOL = 1, SPEC_STRING = 2, SPEC_F16 = 10, SPEC_F32 = 11, SPEC_I16 = 22, SPEC_I32 = 23, SPEC_I4 = 25,
       SPEC_U8 = 31, SPEC_U1 = 37 };

/* dim < 0: unknown. */
static inline Pome__Spec__ValueType *spec_tensor_type(pome_arena *a, int32_t code, uint32_t rank, const int64_t *dim)
{
    Pome__Spec__ValueType *t = SPEC_NEW(a, Pome__Spec__ValueType, value_type);
    t->type_case = POME__SPEC__VALUE_TYPE__TYPE_TENSOR_TYPE;
    t->tensortype = SPEC_NEW(a, Pome__Spec__TensorType, tensor_type);
    t->tensortype->datatype = code;
    t->tensortype->rank = rank;
    for (uint32_t i = 0; i < rank; i++) {
        Pome__Spec__Dimension *d = SPEC_NEW(a, Pome__Spec__Dimension, dimension);
        if (dim[i] < 0) {
            d->dimension_case = POME__SPEC__DIMENSION__DIMENSION_UNKNOWN;
            d->unknown = SPEC_NEW(a, Pome__Spec__UnknownDimension, unknown_dimension);
        } else {
            d->dimension_case = POME__SPEC__DIMENSION__DIMENSION_CONSTANT;
            d->constant = SPEC_NEW(a, Pome__Spec__ConstantDimension, constant_dimension);
            d->constant->size = (uint64_t)dim[i];
        }
        SPEC_ADD(a, t->tensortype, dimensions, d);
    }
    return t;
}

static inline Pome__Spec__Value *spec_tensor(pome_arena *a, int32_t code, uint32_t rank, const int64_t *dim)
{
    Pome__Spec__Value *v = SPEC_NEW(a, Pome__Spec__Value, value);
    v->type = spec_tensor_type(a, code, rank, dim);
    v->value_case = POME__SPEC__VALUE__VALUE_IMMEDIATE_VALUE;
    v->immediatevalue = SPEC_NEW(a, Pome__Spec__ImmediateValue, immediate_value);
    v->immediatevalue->value_case = POME__SPEC__IMMEDIATE_VALUE__VALUE_TENSOR;
    v->immediatevalue->tensor = SPEC_NEW(a, Pome__Spec__TensorValue, tensor_value);
    return v;
}

static inline void *spec_copy(pome_arena *a, const void *data, size_t size)
{
    void *copy = pome_arena_alloc(a, size);
    assert_non_null(copy);
    memcpy(copy, data, size);
    return copy;
}

static inline Pome__Spec__Value *spec_ints(pome_arena *a, int32_t code, uint32_t rank, const int64_t *dim, size_t n,
                                           const int32_t *values)
{
    Pome__Spec__Value *v = spec_tensor(a, code, rank, dim);
    v->immediatevalue->tensor->value_case = POME__SPEC__TENSOR_VALUE__VALUE_INTS;
    v->immediatevalue->tensor->ints = SPEC_NEW(a, Pome__Spec__Ints, ints);
    v->immediatevalue->tensor->ints->n_values = n;
    v->immediatevalue->tensor->ints->values = spec_copy(a, values, n * sizeof *values);
    return v;
}

static inline Pome__Spec__Value *spec_floats(pome_arena *a, int32_t code, uint32_t rank, const int64_t *dim, size_t n,
                                             const float *values)
{
    Pome__Spec__Value *v = spec_tensor(a, code, rank, dim);
    v->immediatevalue->tensor->value_case = POME__SPEC__TENSOR_VALUE__VALUE_FLOATS;
    v->immediatevalue->tensor->floats = SPEC_NEW(a, Pome__Spec__Floats, floats);
    v->immediatevalue->tensor->floats->n_values = n;
    v->immediatevalue->tensor->floats->values = spec_copy(a, values, n * sizeof *values);
    return v;
}

static inline Pome__Spec__Value *spec_bytes(pome_arena *a, int32_t code, uint32_t rank, const int64_t *dim, size_t n,
                                            const void *values)
{
    Pome__Spec__Value *v = spec_tensor(a, code, rank, dim);
    v->immediatevalue->tensor->value_case = POME__SPEC__TENSOR_VALUE__VALUE_BYTES;
    v->immediatevalue->tensor->bytes = SPEC_NEW(a, Pome__Spec__Bytes, bytes);
    v->immediatevalue->tensor->bytes->values = (ProtobufCBinaryData){n, spec_copy(a, values, n)};
    return v;
}

static inline Pome__Spec__Value *spec_text(pome_arena *a, const char *text)
{
    Pome__Spec__Value *v = spec_tensor(a, SPEC_STRING, 0, NULL);
    v->immediatevalue->tensor->value_case = POME__SPEC__TENSOR_VALUE__VALUE_STRINGS;
    v->immediatevalue->tensor->strings = SPEC_NEW(a, Pome__Spec__Strings, strings);
    SPEC_ADD(a, v->immediatevalue->tensor->strings, values, (char *)(uintptr_t)text);
    return v;
}

static inline Pome__Spec__Value *spec_blob(pome_arena *a, int32_t code, uint32_t rank, const int64_t *dim,
                                           const char *file, uint64_t offset)
{
    Pome__Spec__Value *v = SPEC_NEW(a, Pome__Spec__Value, value);
    v->type = spec_tensor_type(a, code, rank, dim);
    v->value_case = POME__SPEC__VALUE__VALUE_BLOB_FILE_VALUE;
    v->blobfilevalue = SPEC_NEW(a, Pome__Spec__BlobFileValue, blob_file_value);
    v->blobfilevalue->filename = (char *)(uintptr_t)file;
    v->blobfilevalue->offset = offset;
    return v;
}

static inline Pome__Spec__Operation *spec_op(pome_arena *a, Pome__Spec__Block *block, const char *type)
{
    Pome__Spec__Operation *op = SPEC_NEW(a, Pome__Spec__Operation, operation);
    op->type = (char *)(uintptr_t)type;
    SPEC_ADD(a, block, operations, op);
    return op;
}

static inline void spec_attribute(pome_arena *a, Pome__Spec__Operation *op, const char *key, Pome__Spec__Value *v)
{
    Pome__Spec__ValueEntry *e = SPEC_NEW(a, Pome__Spec__ValueEntry, value_entry);
    e->key = (char *)(uintptr_t)key;
    e->value = v;
    SPEC_ADD(a, op, attributes, e);
}

/* A parameter without bindings yet. */
static inline Pome__Spec__Argument *spec_argument(pome_arena *a, Pome__Spec__Operation *op, const char *key)
{
    Pome__Spec__ArgumentEntry *e = SPEC_NEW(a, Pome__Spec__ArgumentEntry, argument_entry);
    e->key = (char *)(uintptr_t)key;
    e->value = SPEC_NEW(a, Pome__Spec__Argument, argument);
    SPEC_ADD(a, op, inputs, e);
    return e->value;
}

static inline void spec_bind_name(pome_arena *a, Pome__Spec__Argument *arg, const char *name)
{
    Pome__Spec__Binding *b = SPEC_NEW(a, Pome__Spec__Binding, binding);
    b->binding_case = POME__SPEC__BINDING__BINDING_NAME;
    b->name = (char *)(uintptr_t)name;
    SPEC_ADD(a, arg, arguments, b);
}

static inline void spec_bind_value(pome_arena *a, Pome__Spec__Argument *arg, Pome__Spec__Value *v)
{
    Pome__Spec__Binding *b = SPEC_NEW(a, Pome__Spec__Binding, binding);
    b->binding_case = POME__SPEC__BINDING__BINDING_VALUE;
    b->value = v;
    SPEC_ADD(a, arg, arguments, b);
}

static inline Pome__Spec__NamedValueType *spec_named(pome_arena *a, const char *name, Pome__Spec__ValueType *type)
{
    Pome__Spec__NamedValueType *n = SPEC_NEW(a, Pome__Spec__NamedValueType, named_value_type);
    n->name = (char *)(uintptr_t)name;
    n->type = type;
    return n;
}

/* A unary operation x -> out on fp32 [2]. */
static inline Pome__Spec__Operation *spec_unary(pome_arena *a, Pome__Spec__Block *block, const char *type,
                                                const char *x, const char *out)
{
    Pome__Spec__Operation *op = spec_op(a, block, type);
    spec_bind_name(a, spec_argument(a, op, "x"), x);
    SPEC_ADD(a, op, outputs, spec_named(a, out, spec_tensor_type(a, SPEC_F32, 1, (int64_t[]){2})));
    return op;
}

static inline Pome__Spec__Operation *spec_const(pome_arena *a, Pome__Spec__Block *block, const char *name,
                                                Pome__Spec__Value *v)
{
    Pome__Spec__Operation *op = spec_op(a, block, "const");
    spec_attribute(a, op, "val", v);
    SPEC_ADD(a, op, outputs, spec_named(a, name, v->type));
    return op;
}

typedef struct spec_model {
    pome_arena *arena;
    Pome__Spec__Model *model;
    Pome__Spec__Function *function;
    Pome__Spec__Block *block; /* of main, whose input and output is x, fp32 [2] */
} spec_model;

static inline Pome__Spec__FeatureDescription *spec_array_feature(pome_arena *a, const char *name, size_t rank,
                                                                 int64_t *shape)
{
    Pome__Spec__FeatureDescription *f = SPEC_NEW(a, Pome__Spec__FeatureDescription, feature_description);
    f->name = (char *)(uintptr_t)name;
    f->type = SPEC_NEW(a, Pome__Spec__FeatureType, feature_type);
    f->type->type_case = POME__SPEC__FEATURE_TYPE__TYPE_MULTI_ARRAY_TYPE;
    f->type->multiarraytype = SPEC_NEW(a, Pome__Spec__ArrayFeatureType, array_feature_type);
    f->type->multiarraytype->datatype = 0x10020;
    f->type->multiarraytype->n_shape = rank;
    f->type->multiarraytype->shape = shape;
    return f;
}

static inline Pome__Spec__Function *spec_function(spec_model *m, const char *name, const char *opset)
{
    pome_arena *a = m->arena;
    Pome__Spec__FunctionEntry *fe = SPEC_NEW(a, Pome__Spec__FunctionEntry, function_entry);
    Pome__Spec__BlockEntry *be = SPEC_NEW(a, Pome__Spec__BlockEntry, block_entry);
    fe->key = (char *)(uintptr_t)name;
    fe->value = SPEC_NEW(a, Pome__Spec__Function, function);
    fe->value->opset = be->key = (char *)(uintptr_t)opset;
    be->value = SPEC_NEW(a, Pome__Spec__Block, block);
    SPEC_ADD(a, fe->value, block_specializations, be);
    SPEC_ADD(a, m->model->mlprogram, functions, fe);
    return fe->value;
}

static inline spec_model spec_model_create(void)
{
    static int64_t shape[] = {2};
    spec_model m = {.arena = pome_arena_create(0)};
    pome_arena *a = m.arena;
    m.model = SPEC_NEW(a, Pome__Spec__Model, model);
    m.model->specificationversion = 9;
    m.model->description = SPEC_NEW(a, Pome__Spec__ModelDescription, model_description);
    SPEC_ADD(a, m.model->description, input, spec_array_feature(a, "x", 1, shape));
    SPEC_ADD(a, m.model->description, output, spec_array_feature(a, "x", 1, shape));
    m.model->type_case = POME__SPEC__MODEL__TYPE_ML_PROGRAM;
    m.model->mlprogram = SPEC_NEW(a, Pome__Spec__Program, program);
    m.model->mlprogram->version = 1;
    m.function = spec_function(&m, "main", "CoreML8");
    m.block = m.function->block_specializations[0]->value;
    SPEC_ADD(a, m.function, inputs, spec_named(a, "x", spec_tensor_type(a, SPEC_F32, 1, shape)));
    SPEC_ADD(a, m.block, outputs, (char *)(uintptr_t) "x");
    return m;
}

/* The model's bytes, in its arena. */
static inline pome_bytes spec_model_pack(const spec_model *m)
{
    size_t len = pome__spec__model__get_packed_size(m->model);
    uint8_t *bytes = pome_arena_alloc(m->arena, len);
    assert_non_null(bytes);
    assert_int_equal(pome__spec__model__pack(m->model, bytes), len);
    return (pome_bytes){bytes, len};
}

/* Loads what a test built; weight files are in `dir`. */
static inline pome_status load_built(pome_program **out, spec_model *m, const char *dir, const pome_load_limits *limits,
                              pome_error *err)
{
    pome_mlpackage *p = NULL;
    memset(err, 0, sizeof *err);
    pome_status status = pome_mlpackage_open_bytes(&p, spec_model_pack(m), dir, NULL, err);
    if (status == POME_OK)
        status = pome_program_load(out, p, limits, err);
    pome_mlpackage_close(&p);
    pome_arena_destroy(&m->arena);
    return status;
}

static inline Pome__Spec__Value *spec_text_list(pome_arena *a, size_t n, const char *const *texts)
{
    Pome__Spec__Value *v = SPEC_NEW(a, Pome__Spec__Value, value);
    v->type = SPEC_NEW(a, Pome__Spec__ValueType, value_type);
    v->type->type_case = POME__SPEC__VALUE_TYPE__TYPE_LIST_TYPE;
    v->type->listtype = SPEC_NEW(a, Pome__Spec__ListType, list_type);
    v->type->listtype->type = spec_tensor_type(a, SPEC_STRING, 0, NULL);
    v->type->listtype->length = SPEC_NEW(a, Pome__Spec__Dimension, dimension);
    v->type->listtype->length->dimension_case = POME__SPEC__DIMENSION__DIMENSION_CONSTANT;
    v->type->listtype->length->constant = SPEC_NEW(a, Pome__Spec__ConstantDimension, constant_dimension);
    v->type->listtype->length->constant->size = n;
    v->value_case = POME__SPEC__VALUE__VALUE_IMMEDIATE_VALUE;
    v->immediatevalue = SPEC_NEW(a, Pome__Spec__ImmediateValue, immediate_value);
    v->immediatevalue->value_case = POME__SPEC__IMMEDIATE_VALUE__VALUE_LIST;
    v->immediatevalue->list = SPEC_NEW(a, Pome__Spec__ValueList, value_list);
    for (size_t i = 0; i < n; i++)
        SPEC_ADD(a, v->immediatevalue->list, values, spec_text(a, texts[i]));
    return v;
}

static inline void spec_classify(spec_model *m, Pome__Spec__Value *classes)
{
    pome_arena *a = m->arena;
    Pome__Spec__Operation *op = spec_op(a, m->block, "classify");
    spec_bind_name(a, spec_argument(a, op, "probabilities"), "x");
    spec_bind_value(a, spec_argument(a, op, "classes"), classes);
    SPEC_ADD(a, op, outputs, spec_named(a, "label", spec_tensor_type(a, SPEC_STRING, 0, NULL)));
    SPEC_ADD(a, op, outputs, spec_named(a, "rest", spec_tensor_type(a, SPEC_F32, 0, NULL)));
}

/* ---- folders ---- */

static inline void temp_dir(char path[64])
{
    memcpy(path, "/tmp/pome-test-XXXXXX", sizeof "/tmp/pome-test-XXXXXX");
    assert_non_null(mkdtemp(path));
}

static inline int temp_remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static inline void temp_remove(const char *path)
{
    assert_int_equal(nftw(path, temp_remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* Writes a file below `dir`, making the folders on the way. */
static inline void put_file(const char *dir, const char *name, const void *data, size_t len)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    for (char *p = path + strlen(dir) + 1; (p = strchr(p, '/')); p++) {
        *p = '\0';
        mkdir(path, 0777);
        *p = '/';
    }
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

/* A whole file in malloc'ed memory. */
static inline pome_bytes get_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    size_t len = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(len + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, len, f), len);
    fclose(f);
    return (pome_bytes){data, len};
}

#define GOLDEN POME_SOURCE_DIR "/tests/golden/"

#define MANIFEST_TEXT                                                                              \
    "{\"fileFormatVersion\": \"1.0.0\", \"rootModelIdentifier\": \"A\", \"itemInfoEntries\": {"     \
    "\"A\": {\"author\": \"com.apple.CoreML\", \"description\": \"\", \"name\": \"model.mlmodel\", " \
    "\"path\": \"com.apple.CoreML/model.mlmodel\"}, "                                              \
    "\"B\": {\"author\": \"com.apple.CoreML\", \"description\": \"\", \"name\": \"weights\", "       \
    "\"path\": \"com.apple.CoreML/weights\"}}}\n"

/* Fails unless `status` is as wanted and the message holds `text`. */
#define EXPECT_ERROR(status, code_, err, text)                                                     \
    do {                                                                                           \
        pome_status status_ = (status);                                                            \
        if (status_ != (code_) || (err).code != (code_) || !strstr((err).message, (text)))         \
            fail_msg("%s \"%s\", wanted %s \"%s\"", pome_status_name(status_), (err).message,      \
                     pome_status_name(code_), (text));                                             \
    } while (0)

#endif
