/* coremldata.bin. Its layout is not published. What was seen: a header of about eighty bytes, then a 64-bit length and a
 * serialized ModelDescription of that length, then a few words per function. So the description is looked for: a length
 * with as many bytes behind it that are a description with outputs. */
#include "formats/mlmodelc.h"

enum { CANDIDATES_MAX = 64 };

static uint64_t word_at(const uint8_t *p)
{
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

/* Whether bytes may begin a ModelDescription: the tag of one of its fields. */
static bool begins_description(const uint8_t *p, size_t len)
{
    switch (p[0]) {
    case 0x0a: /* input */
    case 0x52: /* output */
    case 0x5a: /* names of predictions */
    case 0x62:
    case 0x6a: return true; /* state */
    case 0xa2: return len > 1 && (p[1] == 0x01 || p[1] == 0x06); /* functions, metadata */
    default: return false;
    }
}

static bool are_features(Pome__Spec__FeatureDescription *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!list[i]->name[0] || !list[i]->type || list[i]->type->type_case == POME__SPEC__FEATURE_TYPE__TYPE__NOT_SET)
            return false;
    return true;
}

static bool is_description(const Pome__Spec__ModelDescription *d)
{
    bool has_outputs = d->n_output > 0;
    for (size_t i = 0; i < d->n_functions; i++) {
        const Pome__Spec__FunctionDescription *f = d->functions[i];
        has_outputs |= f->n_output > 0;
        if (!are_features(f->input, f->n_input) || !are_features(f->output, f->n_output) ||
            !are_features(f->state, f->n_state))
            return false;
    }
    return has_outputs && are_features(d->input, d->n_input) && are_features(d->output, d->n_output) &&
           are_features(d->state, d->n_state);
}

Pome__Spec__ModelDescription *pome_mlmodelc_find_description(pome_bytes file, pome_arena *arena, uint32_t max_depth)
{
    uint32_t n_tried = 0;
    for (size_t at = 0; at + 9 <= file.len && n_tried < CANDIDATES_MAX; at++) {
        uint64_t len = word_at(file.ptr + at);
        const uint8_t *p = file.ptr + at + 8;
        if (len < 2 || len > file.len - at - 8 || !begins_description(p, (size_t)len))
            continue;
        Pome__Spec__ModelDescription *d = NULL;
        n_tried++;
        pome_status status = pome_coreml_unpack_description(&d, (pome_bytes){p, (size_t)len}, arena, max_depth, NULL);
        if (status == POME_OK && is_description(d))
            return d;
    }
    return NULL;
}

static void put_word(uint8_t *to, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)(v >> 8 * i);
}

uint8_t *pome_mlmodelc_make_binary(size_t *len, pome_bytes description, int32_t specification_version,
                                   uint32_t n_functions, pome_arena *arena)
{
    enum { ML_PROGRAM = 502, KIND = 0, UNKNOWN = 4, TEXT = 28, VERSION = 43, LENGTH = 75, DESCRIPTION = 83, TAIL = 16 };
    static const char generic[7] = {'g', 'e', 'n', 'e', 'r', 'i', 'c'};
    size_t n = DESCRIPTION + description.len + (size_t)n_functions * TAIL;
    uint8_t *bytes = pome_arena_alloc(arena, n);
    if (!bytes)
        return NULL;
    put_word(bytes + KIND, ML_PROGRAM);
    bytes[UNKNOWN] = 5;
    put_word(bytes + TEXT, sizeof generic);
    memcpy(bytes + TEXT + 8, generic, sizeof generic);
    put_word(bytes + VERSION, (uint64_t)specification_version);
    put_word(bytes + LENGTH, description.len);
    if (description.len)
        memcpy(bytes + DESCRIPTION, description.ptr, description.len);
    for (uint32_t i = 0; i < n_functions; i++)
        put_word(bytes + DESCRIPTION + description.len + (size_t)i * TAIL, ML_PROGRAM);
    *len = n;
    return bytes;
}
