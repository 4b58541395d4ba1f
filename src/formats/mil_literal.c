/* Types and literals of MIL text. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/checked.h"
#include "base/f16.h"
#include "formats/mil_parser.h"

/* ---- element types ---- */

typedef enum element_kind { INTEGER, REAL, TRUTH, TEXT } element_kind;

typedef struct element_type {
    const char *name;
    int32_t code; /* DataType of the protobuf */
    uint8_t bits;
    bool is_signed;
    element_kind kind;
} element_type;

static const element_type element_types[] = {
    {"bool", 1, 8, false, TRUTH},     {"string", 2, 0, false, TEXT},     {"fp16", 10, 16, true, REAL},
    {"fp32", 11, 32, true, REAL},     {"fp64", 12, 64, true, REAL},      {"bf16", 13, 16, true, REAL},
    {"int8", 21, 8, true, INTEGER},   {"int16", 22, 16, true, INTEGER},  {"int32", 23, 32, true, INTEGER},
    {"int64", 24, 64, true, INTEGER}, {"int4", 25, 4, true, INTEGER},    {"uint8", 31, 8, false, INTEGER},
    {"uint16", 32, 16, false, INTEGER}, {"uint32", 33, 32, false, INTEGER}, {"uint64", 34, 64, false, INTEGER},
    {"uint4", 35, 4, false, INTEGER}, {"uint2", 36, 2, false, INTEGER},  {"uint1", 37, 1, false, INTEGER},
    {"uint6", 38, 6, false, INTEGER}, {"uint3", 39, 3, false, INTEGER},  {"fp8e4m3fn", 40, 8, true, REAL},
    {"fp8e5m2", 41, 8, true, REAL},
};
#define N_ELEMENT_TYPES (sizeof element_types / sizeof element_types[0])

static const element_type *element_type_named(pome_str name)
{
    for (size_t i = 0; i < N_ELEMENT_TYPES; i++)
        if (pome_str_is(name, element_types[i].name))
            return &element_types[i];
    return NULL;
}

static const element_type *element_type_of(int32_t code)
{
    for (size_t i = 0; i < N_ELEMENT_TYPES; i++)
        if (element_types[i].code == code)
            return &element_types[i];
    return NULL;
}

/* ---- types ---- */

/* INTEGER, "?" or, where an axis may stand for any number of them, "*?". */
static pome_status parse_dimension(Pome__Spec__Dimension **out, pome_mil_parser *p, pome_error *err)
{
    POME_MIL_NEW(p, d, Pome__Spec__Dimension, pome__spec__dimension__init);
    bool is_variadic, is_unknown, negative;
    POME_TRY(pome_mil_accept(&is_variadic, p, '*', err));
    POME_TRY(pome_mil_accept(&is_unknown, p, '?', err));
    if (is_variadic || is_unknown) {
        POME_MIL_NEW(p, u, Pome__Spec__UnknownDimension, pome__spec__unknown_dimension__init);
        u->variadic = is_variadic;
        d->dimension_case = POME__SPEC__DIMENSION__DIMENSION_UNKNOWN;
        d->unknown = u;
        *out = d;
        return is_unknown ? POME_OK : pome_mil_unexpected(&p->lexer, "? after *", err);
    }
    POME_MIL_NEW(p, c, Pome__Spec__ConstantDimension, pome__spec__constant_dimension__init);
    if (p->lexer.token.kind != POME_MIL_NUMBER || !pome_mil_integer(p->lexer.token.text, &negative, &c->size) ||
        negative)
        return pome_mil_unexpected(&p->lexer, "a size or ?", err);
    d->dimension_case = POME__SPEC__DIMENSION__DIMENSION_CONSTANT;
    d->constant = c;
    *out = d;
    return pome_mil_lexer_next(&p->lexer, err);
}

static pome_status make_tensor_type(Pome__Spec__ValueType **out, pome_mil_parser *p, int32_t code,
                                    const pome_mil_list *dimensions, pome_error *err)
{
    POME_MIL_NEW(p, v, Pome__Spec__ValueType, pome__spec__value_type__init);
    POME_MIL_NEW(p, t, Pome__Spec__TensorType, pome__spec__tensor_type__init);
    t->datatype = code;
    t->rank = (int64_t)dimensions->n;
    t->dimensions = (Pome__Spec__Dimension **)dimensions->items;
    t->n_dimensions = dimensions->n;
    v->type_case = POME__SPEC__VALUE_TYPE__TYPE_TENSOR_TYPE;
    v->tensortype = t;
    *out = v;
    return POME_OK;
}

/* "<" DTYPE "," "[" dimensions "]" ">" */
static pome_status parse_tensor_type(Pome__Spec__ValueType **out, pome_mil_parser *p, pome_error *err)
{
    pome_mil_list list = {0};
    bool is_empty, more = true;
    POME_TRY(pome_mil_expect(p, '<', err));
    const element_type *e =
        p->lexer.token.kind == POME_MIL_NAME ? element_type_named(p->lexer.token.text) : NULL;
    if (!e)
        return pome_mil_unexpected(&p->lexer, "an element type such as fp16 or int32", err);
    POME_TRY(pome_mil_lexer_next(&p->lexer, err));
    POME_TRY(pome_mil_expect(p, ',', err));
    POME_TRY(pome_mil_expect(p, '[', err));
    POME_TRY(pome_mil_accept(&is_empty, p, ']', err));
    while (!is_empty && more) {
        Pome__Spec__Dimension *d = NULL;
        POME_TRY(parse_dimension(&d, p, err));
        POME_TRY(pome_mil_append(p, &list, d, err));
        POME_TRY(pome_mil_accept(&more, p, ',', err));
        if (!more)
            POME_TRY(pome_mil_expect(p, ']', err));
    }
    POME_TRY(pome_mil_expect(p, '>', err));
    return make_tensor_type(out, p, e->code, &list, err);
}

static pome_status parse_list_type(Pome__Spec__ValueType *v, pome_mil_parser *p, pome_error *err)
{
    POME_MIL_NEW(p, t, Pome__Spec__ListType, pome__spec__list_type__init);
    POME_TRY(pome_mil_parse_type(&t->type, p, err));
    POME_TRY(pome_mil_expect(p, ',', err));
    POME_TRY(parse_dimension(&t->length, p, err));
    v->type_case = POME__SPEC__VALUE_TYPE__TYPE_LIST_TYPE;
    v->listtype = t;
    return POME_OK;
}

static pome_status parse_dict_type(Pome__Spec__ValueType *v, pome_mil_parser *p, pome_error *err)
{
    POME_MIL_NEW(p, t, Pome__Spec__DictionaryType, pome__spec__dictionary_type__init);
    POME_TRY(pome_mil_parse_type(&t->keytype, p, err));
    POME_TRY(pome_mil_expect(p, ',', err));
    POME_TRY(pome_mil_parse_type(&t->valuetype, p, err));
    v->type_case = POME__SPEC__VALUE_TYPE__TYPE_DICTIONARY_TYPE;
    v->dictionarytype = t;
    return POME_OK;
}

static pome_status parse_state_type(Pome__Spec__ValueType *v, pome_mil_parser *p, pome_error *err)
{
    POME_MIL_NEW(p, t, Pome__Spec__StateType, pome__spec__state_type__init);
    POME_TRY(pome_mil_parse_type(&t->wrappedtype, p, err));
    v->type_case = POME__SPEC__VALUE_TYPE__TYPE_STATE_TYPE;
    v->statetype = t;
    return POME_OK;
}

static pome_status parse_tuple_type(Pome__Spec__ValueType *v, pome_mil_parser *p, pome_error *err)
{
    POME_MIL_NEW(p, t, Pome__Spec__TupleType, pome__spec__tuple_type__init);
    pome_mil_list list = {0};
    bool more = !pome_mil_is_mark(&p->lexer, '>');
    while (more) {
        Pome__Spec__ValueType *item = NULL;
        POME_TRY(pome_mil_parse_type(&item, p, err));
        POME_TRY(pome_mil_append(p, &list, item, err));
        POME_TRY(pome_mil_accept(&more, p, ',', err));
    }
    t->types = (Pome__Spec__ValueType **)list.items;
    t->n_types = list.n;
    v->type_case = POME__SPEC__VALUE_TYPE__TYPE_TUPLE_TYPE;
    v->tupletype = t;
    return POME_OK;
}

pome_status pome_mil_parse_type_after(Pome__Spec__ValueType **out, pome_mil_parser *p, const pome_mil_token *word,
                                      pome_error *err)
{
    static const struct {
        const char *name;
        pome_status (*parse)(Pome__Spec__ValueType *v, pome_mil_parser *p, pome_error *err);
    } kinds[] = {
        {"list", parse_list_type}, {"dict", parse_dict_type}, {"state", parse_state_type}, {"tuple", parse_tuple_type},
    };
    const pome_mil_list scalar = {0};
    const element_type *e = element_type_named(word->text);
    if (pome_str_is(word->text, "tensor"))
        return parse_tensor_type(out, p, err);
    if (e)
        return make_tensor_type(out, p, e->code, &scalar, err);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (pome_str_is(word->text, kinds[i].name)) {
            POME_MIL_NEW(p, v, Pome__Spec__ValueType, pome__spec__value_type__init);
            POME_TRY(pome_mil_enter(p, err));
            POME_TRY(pome_mil_expect(p, '<', err));
            POME_TRY(kinds[i].parse(v, p, err));
            pome_mil_leave(p);
            *out = v;
            return pome_mil_expect(p, '>', err);
        }
    return pome_mil_fail(&p->lexer, word->at, err, "found %.*s, wanted a type",
                         (int)(word->text.len < 60 ? word->text.len : 60), word->text.ptr);
}

pome_status pome_mil_parse_type(Pome__Spec__ValueType **out, pome_mil_parser *p, pome_error *err)
{
    pome_mil_token word = p->lexer.token;
    if (word.kind != POME_MIL_NAME)
        return pome_mil_unexpected(&p->lexer, "a type", err);
    POME_TRY(pome_mil_lexer_next(&p->lexer, err));
    return pome_mil_parse_type_after(out, p, &word, err);
}

/* ---- elements ---- */

static pome_status push(pome_mil_parser *p, pome_mil_element element, pome_error *err)
{
    if (p->n_elements == p->room) {
        size_t room = p->room ? p->room * 2 : 64;
        pome_mil_element *bigger = realloc(p->elements, room * sizeof *bigger);
        if (!bigger)
            return pome_mil_no_memory(err);
        p->elements = bigger;
        p->room = room;
    }
    p->elements[p->n_elements++] = element;
    return POME_OK;
}

static bool fits(const element_type *e, bool negative, uint64_t magnitude)
{
    uint32_t bits = e->is_signed ? e->bits - 1u : e->bits;
    uint64_t max = bits == 64 ? UINT64_MAX : (UINT64_C(1) << bits) - 1;
    return negative ? magnitude == 0 || (e->is_signed && magnitude <= max + 1) : magnitude <= max;
}

static pome_status parse_integer(pome_mil_element *out, pome_mil_parser *p, const element_type *e, pome_error *err)
{
    const pome_mil_token *t = &p->lexer.token;
    bool negative;
    uint64_t magnitude;
    char wanted[60];
    snprintf(wanted, sizeof wanted, "an integer of type %s", e->name);
    if (t->kind != POME_MIL_NUMBER || !pome_mil_integer(t->text, &negative, &magnitude) ||
        !fits(e, negative, magnitude))
        return pome_mil_unexpected(&p->lexer, wanted, err);
    out->bits = negative ? 0 - magnitude : magnitude;
    return pome_mil_lexer_next(&p->lexer, err);
}

/* The largest finite value of a type. */
static double max_of(int32_t code)
{
    switch (code) {
    case 10: return 65504;
    case 11: return 0x1.fffffep127;
    case 13: return 0x1.fep127;
    case 40: return 448;
    case 41: return 57344;
    default: return (double)INFINITY;
    }
}

static pome_status parse_real(pome_mil_element *out, pome_mil_parser *p, const element_type *e, pome_error *err)
{
    const pome_mil_token *t = &p->lexer.token;
    char wanted[60];
    snprintf(wanted, sizeof wanted, "a number of type %s", e->name);
    if ((t->kind != POME_MIL_NUMBER && t->kind != POME_MIL_NAME) || !pome_mil_float(t->text, &out->real))
        return pome_mil_unexpected(&p->lexer, wanted, err);
    if (!isinf(out->real) && fabs(out->real) > max_of(e->code))
        return pome_mil_unexpected(&p->lexer, wanted, err);
    return pome_mil_lexer_next(&p->lexer, err);
}

static pome_status parse_element(pome_mil_parser *p, const element_type *e, pome_error *err)
{
    pome_mil_element element = {0};
    const pome_mil_token *t = &p->lexer.token;
    switch (e->kind) {
    case INTEGER: POME_TRY(parse_integer(&element, p, e, err)); break;
    case REAL: POME_TRY(parse_real(&element, p, e, err)); break;
    case TRUTH:
        element.bits = t->kind == POME_MIL_NAME && pome_str_is(t->text, "true");
        if (!element.bits && (t->kind != POME_MIL_NAME || !pome_str_is(t->text, "false")))
            return pome_mil_unexpected(&p->lexer, "true or false", err);
        POME_TRY(pome_mil_lexer_next(&p->lexer, err));
        break;
    case TEXT:
        if (t->kind != POME_MIL_STRING)
            return pome_mil_unexpected(&p->lexer, "a string", err);
        POME_TRY(pome_mil_unquote(&element.text, p, err));
        break;
    }
    return push(p, element, err);
}

/* A tensor's literal is being read: which sizes its type gives, and which were found. */
typedef struct tensor_reader {
    const element_type *element;
    size_t rank;
    int64_t *size; /* [rank] -1: not known yet */
} tensor_reader;

/* Nested lists, as deep as the rank; their lengths are the sizes. */
static pome_status parse_elements(pome_mil_parser *p, tensor_reader *r, size_t axis, pome_error *err)
{
    size_t at = p->lexer.token.at;
    int64_t n = 0;
    bool is_end;
    if (axis == r->rank)
        return parse_element(p, r->element, err);
    POME_TRY(pome_mil_expect(p, '[', err));
    POME_TRY(pome_mil_accept(&is_end, p, ']', err));
    for (; !is_end; n++) {
        bool more;
        POME_TRY(parse_elements(p, r, axis + 1, err));
        POME_TRY(pome_mil_accept(&more, p, ',', err));
        is_end = !more;
        if (is_end)
            POME_TRY(pome_mil_expect(p, ']', err));
    }
    if (r->size[axis] >= 0 && n != r->size[axis])
        return pome_mil_fail(&p->lexer, at, err, "%" PRId64 " values in the list of axis %zu, its type says %" PRId64,
                             n, axis, r->size[axis]);
    r->size[axis] = n;
    return POME_OK;
}

/* "[]" is any tensor without elements. */
static pome_status parse_no_elements(bool *found, pome_mil_parser *p, const tensor_reader *r, pome_error *err)
{
    bool is_empty = false;
    pome_mil_lexer before = p->lexer;
    for (size_t i = 0; i < r->rank; i++)
        is_empty |= r->size[i] == 0;
    *found = false;
    if (!is_empty || r->rank == 0)
        return POME_OK;
    POME_TRY(pome_mil_expect(p, '[', err));
    POME_TRY(pome_mil_accept(found, p, ']', err));
    if (!*found)
        p->lexer = before;
    return POME_OK;
}

/* ---- elements to fields of the protobuf ---- */

static void narrow(uint8_t *to, const pome_mil_element *e, size_t n, int32_t code)
{
    for (size_t i = 0; i < n; i++) {
        float f = (float)e[i].real;
        uint16_t h = code == 13 ? pome_f32_to_bf16(f) : pome_f32_to_f16(f);
        memcpy(to + 2 * i, &h, sizeof h);
    }
}

/* The 8-bit float nearest to v, by trying all: literals of these types are short. */
static uint8_t nearest_f8(double v, int32_t code)
{
    uint8_t best = 0;
    double least = (double)INFINITY;
    for (unsigned b = 0; b < 256; b++) {
        double f = (double)(code == 40 ? pome_f8e4m3fn_to_f32((uint8_t)b) : pome_f8e5m2_to_f32((uint8_t)b));
        double distance = isnan(v) ? (isnan(f) ? 0 : 1) : f == v && signbit(f) == signbit(v) ? -1 : fabs(f - v);
        bool is_even_tie = distance <= least && (b & 1u) == 0;
        if (distance < least || (is_even_tie && (best & 1u))) {
            least = distance;
            best = (uint8_t)b;
        }
    }
    return best;
}

static void pack_bits(uint8_t *to, const pome_mil_element *e, size_t n, uint32_t bits)
{
    for (size_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < bits; k++) {
            size_t at = i * bits + k;
            to[at / 8] = (uint8_t)(to[at / 8] | ((e[i].bits >> k) & 1u) << (at % 8));
        }
}

static pome_status make_bytes(Pome__Spec__TensorValue *t, pome_mil_parser *p, const element_type *e, pome_error *err)
{
    POME_MIL_NEW(p, m, Pome__Spec__Bytes, pome__spec__bytes__init);
    size_t n = p->n_elements, bits;
    if (!pome_mul_size(n, e->bits, &bits) || !pome_add_size(bits, 7, &bits))
        return pome_mil_no_memory(err);
    uint8_t *data = pome_arena_alloc(p->arena, bits / 8);
    if (!data)
        return pome_mil_no_memory(err);
    if (e->kind == REAL && e->bits == 16)
        narrow(data, p->elements, n, e->code);
    else if (e->kind == REAL)
        for (size_t i = 0; i < n; i++)
            data[i] = nearest_f8(p->elements[i].real, e->code);
    else
        pack_bits(data, p->elements, n, e->bits);
    m->values = (ProtobufCBinaryData){bits / 8, data};
    t->value_case = POME__SPEC__TENSOR_VALUE__VALUE_BYTES;
    t->bytes = m;
    return POME_OK;
}

/* A field that is an array: its message, whose elements are converted one by one. */
#define MAKE_ARRAY(field, message, init, which, type, value)                                                         \
    do {                                                                                                              \
        POME_MIL_NEW(p, m, message, init);                                                                            \
        m->n_values = n;                                                                                              \
        m->values = POME_NEW_ARRAY(p->arena, type, n);                                                                \
        if (!m->values)                                                                                               \
            return pome_mil_no_memory(err);                                                                           \
        for (size_t i = 0; i < n; i++)                                                                                \
            m->values[i] = (value);                                                                                   \
        t->value_case = which;                                                                                        \
        t->field = m;                                                                                                 \
        return POME_OK;                                                                                               \
    } while (0)

static pome_status make_field(Pome__Spec__TensorValue *t, pome_mil_parser *p, const element_type *e, pome_error *err)
{
    const pome_mil_element *from = p->elements;
    size_t n = p->n_elements;
    switch (e->code) {
    case 1:
        MAKE_ARRAY(bools, Pome__Spec__Bools, pome__spec__bools__init, POME__SPEC__TENSOR_VALUE__VALUE_BOOLS,
                   protobuf_c_boolean, from[i].bits != 0);
    case 2:
        MAKE_ARRAY(strings, Pome__Spec__Strings, pome__spec__strings__init, POME__SPEC__TENSOR_VALUE__VALUE_STRINGS,
                   char *, from[i].text);
    case 11:
        MAKE_ARRAY(floats, Pome__Spec__Floats, pome__spec__floats__init, POME__SPEC__TENSOR_VALUE__VALUE_FLOATS, float,
                   (float)from[i].real);
    case 12:
        MAKE_ARRAY(doubles, Pome__Spec__Doubles, pome__spec__doubles__init, POME__SPEC__TENSOR_VALUE__VALUE_DOUBLES,
                   double, from[i].real);
    case 22:
    case 23:
    case 32:
        MAKE_ARRAY(ints, Pome__Spec__Ints, pome__spec__ints__init, POME__SPEC__TENSOR_VALUE__VALUE_INTS, int32_t,
                   (int32_t)(int64_t)from[i].bits);
    case 24:
    case 34:
        MAKE_ARRAY(longints, Pome__Spec__LongInts, pome__spec__long_ints__init,
                   POME__SPEC__TENSOR_VALUE__VALUE_LONG_INTS, int64_t, (int64_t)from[i].bits);
    default:
        return make_bytes(t, p, e, err);
    }
}

/* ---- literals ---- */

static pome_status parse_inner(Pome__Spec__Value **out, pome_mil_parser *p, Pome__Spec__ValueType *type,
                               pome_error *err);

static pome_status make_immediate(Pome__Spec__Value **out, Pome__Spec__ImmediateValue **immediate, pome_mil_parser *p,
                                  Pome__Spec__ValueType *type, pome_error *err)
{
    POME_MIL_NEW(p, v, Pome__Spec__Value, pome__spec__value__init);
    POME_MIL_NEW(p, i, Pome__Spec__ImmediateValue, pome__spec__immediate_value__init);
    v->type = type;
    v->value_case = POME__SPEC__VALUE__VALUE_IMMEDIATE_VALUE;
    v->immediatevalue = i;
    *immediate = i;
    *out = v;
    return POME_OK;
}

/* The type with the sizes that were found. */
static pome_status settle_type(Pome__Spec__ValueType **type, pome_mil_parser *p, const tensor_reader *r,
                               pome_error *err)
{
    pome_mil_list list = {0};
    for (size_t i = 0; i < r->rank; i++) {
        POME_MIL_NEW(p, d, Pome__Spec__Dimension, pome__spec__dimension__init);
        POME_MIL_NEW(p, c, Pome__Spec__ConstantDimension, pome__spec__constant_dimension__init);
        c->size = (uint64_t)(r->size[i] < 0 ? 0 : r->size[i]);
        d->dimension_case = POME__SPEC__DIMENSION__DIMENSION_CONSTANT;
        d->constant = c;
        POME_TRY(pome_mil_append(p, &list, d, err));
    }
    return make_tensor_type(type, p, r->element->code, &list, err);
}

static pome_status parse_tensor(Pome__Spec__Value **out, pome_mil_parser *p, Pome__Spec__ValueType *type,
                                pome_error *err)
{
    const Pome__Spec__TensorType *t = type->tensortype;
    tensor_reader r = {element_type_of(t->datatype), t->n_dimensions, POME_NEW_ARRAY(p->arena, int64_t, t->n_dimensions)};
    Pome__Spec__ImmediateValue *immediate = NULL;
    bool is_open = false, is_done;
    if (!r.size)
        return pome_mil_no_memory(err);
    if (r.rank > p->max_depth) /* as many lists lie in each other */
        return pome_mil_unexpected(&p->lexer, "a literal of fewer axes", err);
    for (size_t i = 0; i < r.rank; i++) {
        const Pome__Spec__Dimension *d = t->dimensions[i];
        bool is_known = d->dimension_case == POME__SPEC__DIMENSION__DIMENSION_CONSTANT;
        if (!is_known && d->unknown->variadic)
            return pome_mil_unexpected(&p->lexer, "a type of known rank for a literal", err);
        r.size[i] = is_known && d->constant->size <= INT64_MAX ? (int64_t)d->constant->size : -1;
        is_open |= r.size[i] < 0;
    }
    p->n_elements = 0;
    POME_TRY(parse_no_elements(&is_done, p, &r, err));
    if (!is_done)
        POME_TRY(parse_elements(p, &r, 0, err));
    if (is_open)
        POME_TRY(settle_type(&type, p, &r, err));
    POME_TRY(make_immediate(out, &immediate, p, type, err));
    POME_MIL_NEW(p, v, Pome__Spec__TensorValue, pome__spec__tensor_value__init);
    immediate->value_case = POME__SPEC__IMMEDIATE_VALUE__VALUE_TENSOR;
    immediate->tensor = v;
    return make_field(v, p, r.element, err);
}

static pome_status parse_list(Pome__Spec__Value **out, pome_mil_parser *p, Pome__Spec__ValueType *type,
                              pome_error *err)
{
    POME_MIL_NEW(p, values, Pome__Spec__ValueList, pome__spec__value_list__init);
    Pome__Spec__ImmediateValue *immediate = NULL;
    const Pome__Spec__Dimension *length = type->listtype->length;
    size_t at = p->lexer.token.at;
    pome_mil_list list = {0};
    bool is_empty, more = true;
    POME_TRY(pome_mil_expect(p, '[', err));
    POME_TRY(pome_mil_accept(&is_empty, p, ']', err));
    while (!is_empty && more) {
        Pome__Spec__Value *v = NULL;
        POME_TRY(parse_inner(&v, p, type->listtype->type, err));
        POME_TRY(pome_mil_append(p, &list, v, err));
        POME_TRY(pome_mil_accept(&more, p, ',', err));
        if (!more)
            POME_TRY(pome_mil_expect(p, ']', err));
    }
    if (length->dimension_case == POME__SPEC__DIMENSION__DIMENSION_CONSTANT && length->constant->size != list.n)
        return pome_mil_fail(&p->lexer, at, err, "%zu values in a list, its type says %" PRIu64, list.n,
                             length->constant->size);
    values->values = (Pome__Spec__Value **)list.items;
    values->n_values = list.n;
    POME_TRY(make_immediate(out, &immediate, p, type, err));
    immediate->value_case = POME__SPEC__IMMEDIATE_VALUE__VALUE_LIST;
    immediate->list = values;
    return POME_OK;
}

static pome_status parse_tuple(Pome__Spec__Value **out, pome_mil_parser *p, Pome__Spec__ValueType *type,
                               pome_error *err)
{
    POME_MIL_NEW(p, values, Pome__Spec__ValueList, pome__spec__value_list__init);
    Pome__Spec__ImmediateValue *immediate = NULL;
    size_t n = type->tupletype->n_types;
    values->values = POME_NEW_ARRAY(p->arena, Pome__Spec__Value *, n);
    if (!values->values)
        return pome_mil_no_memory(err);
    POME_TRY(pome_mil_expect(p, '(', err));
    for (size_t i = 0; i < n; i++) {
        if (i)
            POME_TRY(pome_mil_expect(p, ',', err));
        POME_TRY(parse_inner(&values->values[i], p, type->tupletype->types[i], err));
        values->n_values++;
    }
    POME_TRY(pome_mil_expect(p, ')', err));
    POME_TRY(make_immediate(out, &immediate, p, type, err));
    immediate->value_case = POME__SPEC__IMMEDIATE_VALUE__VALUE_TUPLE;
    immediate->tuple = values;
    return POME_OK;
}

/* "{" "{" key "," value "}" "," ... "}" */
static pome_status parse_dict(Pome__Spec__Value **out, pome_mil_parser *p, Pome__Spec__ValueType *type,
                              pome_error *err)
{
    POME_MIL_NEW(p, dict, Pome__Spec__DictionaryValue, pome__spec__dictionary_value__init);
    Pome__Spec__ImmediateValue *immediate = NULL;
    pome_mil_list list = {0};
    bool is_empty, more = true;
    POME_TRY(pome_mil_expect(p, '{', err));
    POME_TRY(pome_mil_accept(&is_empty, p, '}', err));
    while (!is_empty && more) {
        POME_MIL_NEW(p, pair, Pome__Spec__KeyValuePair, pome__spec__key_value_pair__init);
        POME_TRY(pome_mil_expect(p, '{', err));
        POME_TRY(parse_inner(&pair->key, p, type->dictionarytype->keytype, err));
        POME_TRY(pome_mil_expect(p, ',', err));
        POME_TRY(parse_inner(&pair->value, p, type->dictionarytype->valuetype, err));
        POME_TRY(pome_mil_expect(p, '}', err));
        POME_TRY(pome_mil_append(p, &list, pair, err));
        POME_TRY(pome_mil_accept(&more, p, ',', err));
        if (!more)
            POME_TRY(pome_mil_expect(p, '}', err));
    }
    dict->values = (Pome__Spec__KeyValuePair **)list.items;
    dict->n_values = list.n;
    POME_TRY(make_immediate(out, &immediate, p, type, err));
    immediate->value_case = POME__SPEC__IMMEDIATE_VALUE__VALUE_DICTIONARY;
    immediate->dictionary = dict;
    return POME_OK;
}

/* One of the two typed arguments of BLOBFILE; leaves its element in p->elements. */
static pome_status parse_blob_argument(pome_mil_parser *p, Pome__Spec__BlobFileValue *blob, bool *has_path,
                                       bool *has_offset, pome_error *err)
{
    const pome_mil_token name = p->lexer.token;
    Pome__Spec__ValueType *type = NULL;
    Pome__Spec__Value *v = NULL;
    bool is_path = pome_str_is(name.text, "path");
    if (name.kind != POME_MIL_NAME || (!is_path && !pome_str_is(name.text, "offset")))
        return pome_mil_unexpected(&p->lexer, "path or offset", err);
    POME_TRY(pome_mil_lexer_next(&p->lexer, err));
    POME_TRY(pome_mil_expect(p, '=', err));
    size_t at = p->lexer.token.at;
    POME_TRY(pome_mil_parse_type(&type, p, err));
    bool is_tensor = type->type_case == POME__SPEC__VALUE_TYPE__TYPE_TENSOR_TYPE && type->tensortype->rank == 0;
    const element_type *e = is_tensor ? element_type_of(type->tensortype->datatype) : NULL;
    if (!e || (is_path ? e->kind != TEXT : e->kind != INTEGER))
        return pome_mil_fail(&p->lexer, at, err, "wanted %s", is_path ? "a string, the path of a weight file"
                                                                      : "an integer, the offset in a weight file");
    POME_TRY(pome_mil_parse_literal(&v, p, type, err));
    if (v->value_case != POME__SPEC__VALUE__VALUE_IMMEDIATE_VALUE ||
        (!is_path && (int64_t)p->elements[0].bits < 0 && e->is_signed))
        return pome_mil_fail(&p->lexer, at, err, "wanted %s", is_path ? "a path" : "an offset");
    if (is_path)
        blob->filename = p->elements[0].text;
    else
        blob->offset = p->elements[0].bits;
    *(is_path ? has_path : has_offset) = true;
    return POME_OK;
}

/* Behind the word BLOBFILE. */
static pome_status parse_blob(Pome__Spec__Value **out, pome_mil_parser *p, Pome__Spec__ValueType *type,
                              pome_error *err)
{
    POME_MIL_NEW(p, v, Pome__Spec__Value, pome__spec__value__init);
    POME_MIL_NEW(p, blob, Pome__Spec__BlobFileValue, pome__spec__blob_file_value__init);
    bool has_path = false, has_offset = false, more = true;
    POME_TRY(pome_mil_enter(p, err)); /* its arguments are literals, which might be BLOBFILEs */
    POME_TRY(pome_mil_expect(p, '(', err));
    while (more) {
        POME_TRY(parse_blob_argument(p, blob, &has_path, &has_offset, err));
        POME_TRY(pome_mil_accept(&more, p, ',', err));
    }
    pome_mil_leave(p);
    if (!has_path || !has_offset)
        return pome_mil_unexpected(&p->lexer, has_path ? "offset = ... too" : "path = ... too", err);
    v->type = type;
    v->value_case = POME__SPEC__VALUE__VALUE_BLOB_FILE_VALUE;
    v->blobfilevalue = blob;
    *out = v;
    return pome_mil_expect(p, ')', err);
}

static pome_status parse_by_kind(Pome__Spec__Value **out, pome_mil_parser *p, Pome__Spec__ValueType *type,
                                 pome_error *err)
{
    switch (type->type_case) {
    case POME__SPEC__VALUE_TYPE__TYPE_LIST_TYPE: return parse_list(out, p, type, err);
    case POME__SPEC__VALUE_TYPE__TYPE_TUPLE_TYPE: return parse_tuple(out, p, type, err);
    case POME__SPEC__VALUE_TYPE__TYPE_DICTIONARY_TYPE: return parse_dict(out, p, type, err);
    case POME__SPEC__VALUE_TYPE__TYPE_TENSOR_TYPE: break;
    default: return pome_mil_unexpected(&p->lexer, "no value of this type", err);
    }
    if (p->lexer.token.kind != POME_MIL_NAME || !pome_str_is(p->lexer.token.text, "BLOBFILE"))
        return parse_tensor(out, p, type, err);
    POME_TRY(pome_mil_lexer_next(&p->lexer, err));
    return parse_blob(out, p, type, err);
}

static pome_status parse_inner(Pome__Spec__Value **out, pome_mil_parser *p, Pome__Spec__ValueType *type,
                               pome_error *err)
{
    POME_TRY(pome_mil_enter(p, err));
    POME_TRY(parse_by_kind(out, p, type, err));
    pome_mil_leave(p);
    return POME_OK;
}

pome_status pome_mil_parse_literal(Pome__Spec__Value **out, pome_mil_parser *p, Pome__Spec__ValueType *type,
                                   pome_error *err)
{
    POME_TRY(pome_mil_expect(p, '(', err));
    POME_TRY(parse_inner(out, p, type, err));
    return pome_mil_expect(p, ')', err);
}
