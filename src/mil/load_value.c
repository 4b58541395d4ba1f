#include "mil/load_value.h"

#include <inttypes.h>

#include "base/checked.h"
#include "base/error.h"
#include "formats/blob.h"

#define POOLED_BYTES_MAX 256 /* immediate values up to here are shared by contents */

/* ---- types ---- */

static pome_dtype dtype_of_code(int32_t code)
{
    switch (code) {
    case 1: return POME_DTYPE_BOOL;
    case 2: return POME_DTYPE_STRING;
    case 10: return POME_DTYPE_F16;
    case 11: return POME_DTYPE_F32;
    case 12: return POME_DTYPE_F64;
    case 13: return POME_DTYPE_BF16;
    case 21: return POME_DTYPE_I8;
    case 22: return POME_DTYPE_I16;
    case 23: return POME_DTYPE_I32;
    case 24: return POME_DTYPE_I64;
    case 25: return POME_DTYPE_I4;
    case 31: return POME_DTYPE_U8;
    case 32: return POME_DTYPE_U16;
    case 33: return POME_DTYPE_U32;
    case 34: return POME_DTYPE_U64;
    case 35: return POME_DTYPE_U4;
    case 36: return POME_DTYPE_U2;
    case 37: return POME_DTYPE_U1;
    case 38: return POME_DTYPE_U6;
    case 39: return POME_DTYPE_U3;
    case 40: return POME_DTYPE_F8E4M3FN;
    case 41: return POME_DTYPE_F8E5M2;
    default: return POME_DTYPE_NONE;
    }
}

/* A size >= 0, or a fresh symbol; *is_variadic for "any number of axes". */
static pome_status load_dimension(int64_t *out, bool *is_variadic, const Pome__Spec__Dimension *d,
                                  int64_t *next_symbol, pome_error *err)
{
    if (d && d->dimension_case == POME__SPEC__DIMENSION__DIMENSION_CONSTANT) {
        if (d->constant->size > INT64_MAX)
            return pome_fail(err, POME_ERR_FORMAT, "size %" PRIu64 " of an axis", d->constant->size);
        *out = (int64_t)d->constant->size;
        return POME_OK;
    }
    if (!d || d->dimension_case != POME__SPEC__DIMENSION__DIMENSION_UNKNOWN)
        return pome_fail(err, POME_ERR_FORMAT, "an axis without a size");
    if (d->unknown->variadic)
        *is_variadic = true;
    *out = (*next_symbol)--;
    return POME_OK;
}

static pome_status load_tensor_type(pome_type *out, const Pome__Spec__TensorType *t, int64_t *next_symbol,
                                    pome_error *err)
{
    pome_type type = {.kind = POME_TYPE_TENSOR, .dtype = dtype_of_code(t->datatype), .rank = -1};
    bool is_variadic = false;
    if (type.dtype == POME_DTYPE_NONE)
        return pome_fail(err, POME_ERR_FORMAT, "element type %" PRId32 " is not known", t->datatype);
    if (t->rank < -1 || (t->rank == -1 ? t->n_dimensions != 0 : (uint64_t)t->rank != t->n_dimensions))
        return pome_fail(err, POME_ERR_FORMAT, "rank %" PRId64 " with %zu sizes", t->rank, t->n_dimensions);
    if (t->n_dimensions > POME_MAX_RANK)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "rank %zu, at most %d is possible", t->n_dimensions,
                         POME_MAX_RANK);
    for (size_t i = 0; i < t->n_dimensions; i++)
        POME_TRY(load_dimension(&type.dim[i], &is_variadic, t->dimensions[i], next_symbol, err));
    if (t->rank >= 0 && !is_variadic)
        type.rank = (int32_t)t->rank;
    else
        memset(type.dim, 0, sizeof type.dim);
    *out = type;
    return POME_OK;
}

/* The tensor type within a list or state. */
static pome_status load_inner(pome_type *out, const Pome__Spec__ValueType *spec, pome_type_kind kind,
                              int64_t *next_symbol, pome_error *err)
{
    if (!spec || spec->type_case != POME__SPEC__VALUE_TYPE__TYPE_TENSOR_TYPE)
        return pome_fail(err, POME_ERR_FORMAT, "a list, state or dictionary of something other than tensors");
    POME_TRY(load_tensor_type(out, spec->tensortype, next_symbol, err));
    out->kind = kind;
    return POME_OK;
}

pome_status pome_load_type(pome_type *out, const Pome__Spec__ValueType *spec, int64_t *next_symbol, pome_error *err)
{
    pome_type type = {0};
    bool is_variadic = false;
    if (!spec)
        return pome_fail(err, POME_ERR_FORMAT, "a value without a type");
    switch (spec->type_case) {
    case POME__SPEC__VALUE_TYPE__TYPE_TENSOR_TYPE:
        POME_TRY(load_tensor_type(&type, spec->tensortype, next_symbol, err));
        break;
    case POME__SPEC__VALUE_TYPE__TYPE_STATE_TYPE:
        POME_TRY(load_inner(&type, spec->statetype->wrappedtype, POME_TYPE_STATE, next_symbol, err));
        break;
    case POME__SPEC__VALUE_TYPE__TYPE_LIST_TYPE:
        POME_TRY(load_inner(&type, spec->listtype->type, POME_TYPE_LIST, next_symbol, err));
        POME_TRY(load_dimension(&type.list_length, &is_variadic, spec->listtype->length, next_symbol, err));
        if (type.list_length < 0)
            type.list_length = -1;
        break;
    case POME__SPEC__VALUE_TYPE__TYPE_DICTIONARY_TYPE: /* its keys' type */
        POME_TRY(load_inner(&type, spec->dictionarytype->keytype, POME_TYPE_DICT, next_symbol, err));
        break;
    case POME__SPEC__VALUE_TYPE__TYPE_TUPLE_TYPE:
        return pome_fail(err, POME_ERR_UNSUPPORTED, "a value of tuple type");
    default:
        return pome_fail(err, POME_ERR_FORMAT, "a value without a type");
    }
    *out = type;
    return POME_OK;
}

/* ---- the pool ---- */

static pome_status no_memory(pome_error *err)
{
    return pome_fail(err, POME_ERR_NOMEM, "out of memory, or more than the limit, for the program");
}

pome_status pome_load_pooled(const pome_const **out, pome_loader *l, pome_str key, const pome_const *k,
                             pome_error *err)
{
    const pome_const *known = pome_strmap_get(&l->pool, key);
    if (known) {
        *out = known;
        return POME_OK;
    }
    pome_const *made = POME_NEW(l->program->arena, pome_const);
    char *kept = pome_arena_alloc(l->scratch, key.len);
    if (!made || !kept)
        return no_memory(err);
    *made = *k;
    memcpy(kept, key.ptr, key.len);
    if (!pome_strmap_set(&l->pool, (pome_str){kept, key.len}, made))
        return no_memory(err);
    *out = made;
    return POME_OK;
}

/* What makes two constants the same: type, then either place in a file or contents. */
typedef struct pool_key {
    int32_t dtype, rank;
    int64_t dim[POME_MAX_RANK];
    const void *file; /* NULL: `bytes` count */
    uint64_t offset;
    uint8_t bytes[POOLED_BYTES_MAX];
} pool_key;

static pool_key key_of_type(const pome_type *t)
{
    pool_key key;
    memset(&key, 0, sizeof key); /* padding too */
    key.dtype = (int32_t)t->dtype;
    key.rank = t->rank;
    memcpy(key.dim, t->dim, sizeof key.dim);
    return key;
}

/* ---- constants in weight files ---- */

typedef struct weight_file {
    const char *name; /* as the program writes it */
    pome_bytes bytes;
} weight_file;

static pome_status add_mapping(pome_loader *l, pome_mapping *mapping, pome_error *err)
{
    pome_program *p = l->program;
    pome_mapping **list = POME_NEW_ARRAY(p->arena, pome_mapping *, p->n_mappings + 1u);
    if (!list)
        return no_memory(err);
    if (p->n_mappings)
        memcpy(list, p->mappings, p->n_mappings * sizeof *list);
    list[p->n_mappings++] = mapping;
    p->mappings = list;
    p->weights_bytes += pome_mapping_bytes(mapping).len;
    return POME_OK;
}

static pome_status open_weights(const weight_file **out, pome_loader *l, const char *name, pome_error *err)
{
    uint32_t n_blobs;
    const weight_file *known = pome_strmap_get(&l->files, pome_str_of(name));
    if (known) {
        *out = known;
        return POME_OK;
    }
    weight_file *file = POME_NEW(l->scratch, weight_file);
    char *copy = pome_arena_strndup(l->program->arena, name, strlen(name));
    if (!file || !copy)
        return no_memory(err);
    pome_mapping *mapping;
    POME_TRY(pome_mlpackage_map(&mapping, l->package, name, err));
    pome_bytes bytes = pome_mapping_bytes(mapping);
    pome_status status = add_mapping(l, mapping, err);
    if (status != POME_OK) {
        pome_mapping_release(&mapping);
        return status;
    }
    POME_TRY(pome_blob_file_check(&n_blobs, bytes, name, err));
    *file = (weight_file){copy, bytes};
    if (!pome_strmap_set(&l->files, pome_str_of(copy), file))
        return no_memory(err);
    *out = file;
    return POME_OK;
}

static pome_status load_from_file(const pome_const **out, pome_loader *l, const pome_type *type, int64_t count,
                                  const Pome__Spec__BlobFileValue *spec, pome_error *err)
{
    const weight_file *file = NULL;
    pome_blob blob;
    POME_TRY(open_weights(&file, l, spec->filename, err));
    pool_key key = key_of_type(type);
    key.file = file;
    key.offset = spec->offset;
    pome_str text = {(const char *)&key, offsetof(pool_key, bytes)};
    if ((*out = pome_strmap_get(&l->pool, text)))
        return POME_OK;
    POME_TRY(pome_blob_read(&blob, file->bytes, file->name, spec->offset, err));
    if (blob.dtype != type->dtype)
        return pome_fail_at(err, POME_ERR_FORMAT, spec->offset,
                            "%s: blob at 0x%" PRIx64 " holds %s, the program says %s", file->name, spec->offset,
                            pome_dtype_name(blob.dtype), pome_dtype_name(type->dtype));
    if (blob.n_elements != (uint64_t)count)
        return pome_fail_at(err, POME_ERR_FORMAT, spec->offset,
                            "%s: blob at 0x%" PRIx64 " holds %" PRIu64 " elements, the program says %" PRId64,
                            file->name, spec->offset, blob.n_elements, count);
    /* The program never writes to a constant. */
    const pome_const k = {.t = pome_tensor_borrow((void *)(uintptr_t)blob.data.ptr, type->dtype, type->rank, type->dim),
                          .size_bytes = blob.data.len, .file = file->name, .file_offset = spec->offset};
    return pome_load_pooled(out, l, text, &k, err);
}

/* ---- immediate constants ---- */

static const char *const field_names[] = {"no field", "floats",   "ints",    "bools",
                                          "strings",  "longInts", "doubles", "bytes"};

/* Which field of TensorValue holds a type's elements. */
static Pome__Spec__TensorValue__ValueCase field_of(pome_dtype dtype)
{
    switch (dtype) {
    case POME_DTYPE_F32: return POME__SPEC__TENSOR_VALUE__VALUE_FLOATS;
    case POME_DTYPE_F64: return POME__SPEC__TENSOR_VALUE__VALUE_DOUBLES;
    case POME_DTYPE_I32:
    case POME_DTYPE_I16:
    case POME_DTYPE_U16: return POME__SPEC__TENSOR_VALUE__VALUE_INTS;
    case POME_DTYPE_I64:
    case POME_DTYPE_U64: return POME__SPEC__TENSOR_VALUE__VALUE_LONG_INTS;
    case POME_DTYPE_BOOL: return POME__SPEC__TENSOR_VALUE__VALUE_BOOLS;
    case POME_DTYPE_STRING: return POME__SPEC__TENSOR_VALUE__VALUE_STRINGS;
    default: return POME__SPEC__TENSOR_VALUE__VALUE_BYTES;
    }
}

/* Elements in the field that is set; for `bytes` the number of bytes. */
static size_t field_length(const Pome__Spec__TensorValue *v)
{
    switch (v->value_case) {
    case POME__SPEC__TENSOR_VALUE__VALUE_FLOATS: return v->floats->n_values;
    case POME__SPEC__TENSOR_VALUE__VALUE_INTS: return v->ints->n_values;
    case POME__SPEC__TENSOR_VALUE__VALUE_BOOLS: return v->bools->n_values;
    case POME__SPEC__TENSOR_VALUE__VALUE_STRINGS: return v->strings->n_values;
    case POME__SPEC__TENSOR_VALUE__VALUE_LONG_INTS: return v->longints->n_values;
    case POME__SPEC__TENSOR_VALUE__VALUE_DOUBLES: return v->doubles->n_values;
    case POME__SPEC__TENSOR_VALUE__VALUE_BYTES: return v->bytes->values.len;
    default: return 0;
    }
}

static pome_status check_field(const Pome__Spec__TensorValue *v, pome_dtype dtype, size_t n_wanted, pome_error *err)
{
    size_t n = field_length(v);
    Pome__Spec__TensorValue__ValueCase wanted = field_of(dtype);
    if (v->value_case != wanted && (n || n_wanted))
        return pome_fail(err, POME_ERR_FORMAT, "a %s value in %s, wanted in %s", pome_dtype_name(dtype),
                         field_names[v->value_case], field_names[wanted]);
    if (n != n_wanted)
        return pome_fail(err, POME_ERR_FORMAT, "%zu %s of an immediate %s value, its type needs %zu", n,
                         field_names[wanted], pome_dtype_name(dtype), n_wanted);
    return POME_OK;
}

static pome_status narrow_ints(void *dst, pome_dtype dtype, const int32_t *src, size_t n, pome_error *err)
{
    int32_t min = dtype == POME_DTYPE_I16 ? INT16_MIN : 0, max = dtype == POME_DTYPE_I16 ? INT16_MAX : UINT16_MAX;
    uint16_t *to = dst;
    for (size_t i = 0; i < n; i++) {
        if (src[i] < min || src[i] > max)
            return pome_fail(err, POME_ERR_FORMAT, "%" PRId32 " in an %s value", src[i], pome_dtype_name(dtype));
        to[i] = (uint16_t)src[i];
    }
    return POME_OK;
}

/* Copies n elements (bytes: n bytes) to dst, which has room for them. */
static pome_status copy_elements(void *dst, const Pome__Spec__TensorValue *v, pome_dtype dtype, size_t n,
                                 pome_error *err)
{
    if (n == 0)
        return POME_OK;
    switch (field_of(dtype)) {
    case POME__SPEC__TENSOR_VALUE__VALUE_FLOATS:
        memcpy(dst, v->floats->values, n * sizeof(float));
        return POME_OK;
    case POME__SPEC__TENSOR_VALUE__VALUE_DOUBLES:
        memcpy(dst, v->doubles->values, n * sizeof(double));
        return POME_OK;
    case POME__SPEC__TENSOR_VALUE__VALUE_LONG_INTS:
        memcpy(dst, v->longints->values, n * sizeof(int64_t));
        return POME_OK;
    case POME__SPEC__TENSOR_VALUE__VALUE_BYTES:
        memcpy(dst, v->bytes->values.data, n);
        return POME_OK;
    case POME__SPEC__TENSOR_VALUE__VALUE_BOOLS:
        for (size_t i = 0; i < n; i++)
            ((uint8_t *)dst)[i] = v->bools->values[i] != 0;
        return POME_OK;
    default:
        if (dtype != POME_DTYPE_I32)
            return narrow_ints(dst, dtype, v->ints->values, n, err);
        memcpy(dst, v->ints->values, n * sizeof(int32_t));
        return POME_OK;
    }
}

static pome_status copy_strings(const char ***out, pome_arena *arena, const Pome__Spec__TensorValue *v, size_t n,
                                pome_error *err)
{
    const char **list = POME_NEW_ARRAY(arena, const char *, n);
    if (!list)
        return no_memory(err);
    for (size_t i = 0; i < n; i++)
        if (!(list[i] = pome_arena_strndup(arena, v->strings->values[i], strlen(v->strings->values[i]))))
            return no_memory(err);
    *out = list;
    return POME_OK;
}

static bool size_of(size_t *bytes, pome_dtype dtype, int64_t count)
{
    size_t bits;
    if (!pome_mul_size((size_t)count, pome_dtype_bits(dtype), &bits) || !pome_add_size(bits, 7, &bits))
        return false;
    *bytes = bits / 8;
    return true;
}

static pome_status load_strings(const pome_const **out, pome_loader *l, const pome_type *type, int64_t count,
                                const Pome__Spec__TensorValue *v, pome_error *err)
{
    const char **strings = NULL;
    pool_key key = key_of_type(type);
    POME_TRY(check_field(v, POME_DTYPE_STRING, (size_t)count, err));
    size_t len = type->rank == 0 ? strlen(v->strings->values[0]) : SIZE_MAX;
    pome_str text = {(const char *)&key, offsetof(pool_key, bytes) + len};
    if (len <= POOLED_BYTES_MAX) {
        memcpy(key.bytes, v->strings->values[0], len);
        if ((*out = pome_strmap_get(&l->pool, text)))
            return POME_OK;
    }
    POME_TRY(copy_strings(&strings, l->program->arena, v, (size_t)count, err));
    pome_const k = {.t = pome_tensor_borrow(strings, POME_DTYPE_STRING, type->rank, type->dim), .strings = strings};
    if (len <= POOLED_BYTES_MAX)
        return pome_load_pooled(out, l, text, &k, err);
    pome_const *made = POME_NEW(l->program->arena, pome_const);
    if (!made)
        return no_memory(err);
    *made = k;
    *out = made;
    return POME_OK;
}

static pome_status load_immediate(const pome_const **out, pome_loader *l, const pome_type *type, int64_t count,
                                  const Pome__Spec__TensorValue *v, pome_error *err)
{
    size_t size;
    if (type->dtype == POME_DTYPE_STRING)
        return load_strings(out, l, type, count, v, err);
    if (!size_of(&size, type->dtype, count))
        return pome_fail(err, POME_ERR_FORMAT, "a value of %" PRId64 " elements", count);
    size_t n = field_of(type->dtype) == POME__SPEC__TENSOR_VALUE__VALUE_BYTES ? size : (size_t)count;
    POME_TRY(check_field(v, type->dtype, n, err)); /* so its size is bounded by that of the model file */
    bool is_pooled = size <= POOLED_BYTES_MAX;
    pool_key key = key_of_type(type);
    pome_str text = {(const char *)&key, offsetof(pool_key, bytes) + size};
    if (is_pooled) {
        POME_TRY(copy_elements(key.bytes, v, type->dtype, n, err));
        if ((*out = pome_strmap_get(&l->pool, text)))
            return POME_OK;
    }
    void *data = pome_arena_alloc(l->program->arena, size);
    pome_const *made = is_pooled ? NULL : POME_NEW(l->program->arena, pome_const);
    if (!data || (!made && !is_pooled))
        return no_memory(err);
    POME_TRY(copy_elements(data, v, type->dtype, n, err));
    const pome_const k = {.t = pome_tensor_borrow(data, type->dtype, type->rank, type->dim), .size_bytes = size};
    if (is_pooled)
        return pome_load_pooled(out, l, text, &k, err);
    *made = k;
    *out = made;
    return POME_OK;
}

/* ---- any constant ---- */

/* The number of elements of a tensor type whose sizes are all known; its strides too fit in 64 bits. */
static pome_status count_elements(int64_t *out, const pome_type *t, pome_error *err)
{
    int64_t extent = 1; /* empty axes counted as 1 */
    bool is_empty = false;
    if (t->rank < 0)
        return pome_fail(err, POME_ERR_FORMAT, "a constant of unknown rank");
    for (int32_t i = 0; i < t->rank; i++) {
        if (t->dim[i] < 0)
            return pome_fail(err, POME_ERR_FORMAT, "a constant with an axis of unknown size");
        is_empty |= t->dim[i] == 0;
        if (!pome_mul_i64(extent, t->dim[i] ? t->dim[i] : 1, &extent))
            return pome_fail(err, POME_ERR_FORMAT, "a constant with more elements than 64 bits can count");
    }
    *out = is_empty ? 0 : extent;
    return POME_OK;
}

/* A list of n equal tensors becomes one tensor with a leading axis for the length. */
static pome_status load_list(const pome_const **out, pome_loader *l, const pome_type *type,
                             const Pome__Spec__ValueList *list, pome_error *err)
{
    size_t n = list->n_values, item_bytes, bytes = 0, n_strings = 0;
    int64_t count, shape[POME_MAX_RANK];
    bool is_text = type->dtype == POME_DTYPE_STRING;
    POME_TRY(count_elements(&count, type, err));
    if (type->rank >= POME_MAX_RANK || (type->list_length >= 0 && (uint64_t)type->list_length != n))
        return pome_fail(err, POME_ERR_FORMAT, "a list of %zu elements of rank %d, its type says %" PRId64, n,
                         type->rank, type->list_length);
    shape[0] = (int64_t)n;
    memcpy(shape + 1, type->dim, (size_t)type->rank * sizeof shape[0]);
    if (!size_of(&item_bytes, type->dtype, count) || (!is_text && pome_dtype_bits(type->dtype) < 8) ||
        !pome_mul_size(item_bytes, n, &bytes) || !pome_mul_size((size_t)count, is_text ? n : 0, &n_strings))
        return pome_fail(err, POME_ERR_FORMAT, "a list of %zu %s elements", n, pome_dtype_name(type->dtype));
    char *data = pome_arena_alloc(l->program->arena, bytes);
    const char **strings = POME_NEW_ARRAY(l->program->arena, const char *, n_strings);
    pome_const *made = POME_NEW(l->program->arena, pome_const);
    if (!data || !strings || !made)
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        const pome_const *item;
        pome_type item_type;
        POME_TRY(pome_load_const(&item, &item_type, l, list->values[i], err));
        if (item_type.kind != POME_TYPE_TENSOR || item_type.dtype != type->dtype || item_type.rank != type->rank ||
            memcmp(item_type.dim, type->dim, sizeof type->dim) != 0)
            return pome_fail(err, POME_ERR_FORMAT, "element %zu of a list has another type than the list says", i);
        if (is_text && count)
            memcpy(strings + i * (size_t)count, item->strings, (size_t)count * sizeof *strings);
        else if (item_bytes)
            memcpy(data + i * item_bytes, item->t.data, item_bytes);
    }
    *made = (pome_const){.t = pome_tensor_borrow(is_text ? (void *)strings : data, type->dtype, type->rank + 1, shape),
                         .size_bytes = bytes, .strings = is_text ? strings : NULL};
    *out = made;
    return POME_OK;
}

pome_status pome_load_const(const pome_const **out, pome_type *type, pome_loader *l, const Pome__Spec__Value *spec,
                            pome_error *err)
{
    int64_t symbol = -2, count;
    if (!spec)
        return pome_fail(err, POME_ERR_FORMAT, "a constant without a value");
    POME_TRY(pome_load_type(type, spec->type, &symbol, err));
    if (type->kind == POME_TYPE_LIST && spec->value_case == POME__SPEC__VALUE__VALUE_IMMEDIATE_VALUE &&
        spec->immediatevalue->value_case == POME__SPEC__IMMEDIATE_VALUE__VALUE_LIST)
        return load_list(out, l, type, spec->immediatevalue->list, err);
    if (type->kind != POME_TYPE_TENSOR)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "a constant that is neither a tensor nor an immediate list");
    POME_TRY(count_elements(&count, type, err));
    if (spec->value_case == POME__SPEC__VALUE__VALUE_BLOB_FILE_VALUE)
        return load_from_file(out, l, type, count, spec->blobfilevalue, err);
    if (spec->value_case != POME__SPEC__VALUE__VALUE_IMMEDIATE_VALUE ||
        spec->immediatevalue->value_case != POME__SPEC__IMMEDIATE_VALUE__VALUE_TENSOR)
        return pome_fail(err, POME_ERR_FORMAT, "a tensor constant without a tensor value");
    return load_immediate(out, l, type, count, spec->immediatevalue->tensor, err);
}

const char *pome_load_text(const Pome__Spec__Value *spec)
{
    if (!spec || spec->value_case != POME__SPEC__VALUE__VALUE_IMMEDIATE_VALUE ||
        spec->immediatevalue->value_case != POME__SPEC__IMMEDIATE_VALUE__VALUE_TENSOR)
        return NULL;
    const Pome__Spec__TensorValue *v = spec->immediatevalue->tensor;
    if (v->value_case != POME__SPEC__TENSOR_VALUE__VALUE_STRINGS || v->strings->n_values != 1)
        return NULL;
    return v->strings->values[0];
}
