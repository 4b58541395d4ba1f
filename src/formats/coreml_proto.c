/* protobuf-c recurses as deep as the file says and reports a fault as one NULL. So the wire format is walked first,
 * guided by the descriptors, and what is wrong is said with its position. */
#include "formats/coreml_proto.h"

#include <assert.h>
#include <limits.h>
#include <utf8proc.h>

enum { WIRE_VARINT = 0, WIRE_64BIT = 1, WIRE_BYTES = 2, WIRE_32BIT = 5 };

/* A position in the file; `end` bounds the message being read. */
typedef struct cursor {
    const uint8_t *base;
    size_t at, end;
} cursor;

typedef struct field {
    uint32_t number, wire;
    size_t start;       /* of the tag */
    uint64_t value;     /* varints */
    size_t data, len;   /* position and size of the contents */
} field;

static bool read_long_varint(cursor *c, uint64_t *out)
{
    uint64_t v = 0;
    for (uint32_t i = 0; i < 10 && c->at < c->end; i++) {
        uint8_t b = c->base[c->at++];
        v |= (uint64_t)(b & 127u) << (7 * i);
        if (b < 128) {
            *out = v;
            return true;
        }
    }
    return false;
}

static inline bool read_varint(cursor *c, uint64_t *out)
{
    if (c->at < c->end && c->base[c->at] < 128) { /* nearly all */
        *out = c->base[c->at++];
        return true;
    }
    return read_long_varint(c, out);
}

static pome_status read_field(cursor *c, field *f, pome_error *err)
{
    uint64_t tag, len;
    f->start = c->at;
    if (!read_varint(c, &tag) || tag > UINT32_MAX || tag < 8 || c->at - f->start > 5)
        return pome_fail_at(err, POME_ERR_FORMAT, f->start, "damaged field tag at byte %zu", f->start);
    f->number = (uint32_t)(tag >> 3);
    f->wire = (uint32_t)(tag & 7u);
    f->data = c->at;
    switch (f->wire) {
    case WIRE_VARINT:
        if (!read_varint(c, &f->value))
            return pome_fail_at(err, POME_ERR_FORMAT, f->start, "damaged number at byte %zu", f->data);
        f->len = c->at - f->data;
        return POME_OK;
    case WIRE_64BIT:
    case WIRE_32BIT:
        f->len = f->wire == WIRE_64BIT ? 8 : 4;
        break;
    case WIRE_BYTES:
        if (!read_varint(c, &len) || len > INT_MAX || c->at - f->data > 5)
            return pome_fail_at(err, POME_ERR_FORMAT, f->start, "damaged length at byte %zu", f->data);
        f->data = c->at;
        f->len = (size_t)len;
        break;
    default:
        return pome_fail_at(err, POME_ERR_FORMAT, f->start, "field %u at byte %zu has wire type %u, which is not used",
                            f->number, f->start, f->wire);
    }
    if (f->len > c->end - c->at)
        return pome_fail_at(err, POME_ERR_FORMAT, f->start,
                            "field %u at byte %zu needs %zu bytes, the message around it ends after %zu", f->number,
                            f->start, f->len, c->end - c->at);
    c->at += f->len;
    return POME_OK;
}

pome_status pome_coreml_peek(pome_coreml_kind *out, pome_bytes file, pome_error *err)
{
    pome_coreml_kind kind = {0};
    cursor c = {file.ptr, 0, file.len};
    while (c.at < c.end) {
        field f;
        POME_TRY(read_field(&c, &f, err));
        if (f.number == 1 && f.wire == WIRE_VARINT)
            kind.specification_version = (int32_t)(uint32_t)f.value;
        if (f.number == 2 && f.wire == WIRE_BYTES)
            kind.description = (pome_bytes){file.ptr + f.data, f.len};
        if (f.number < 200 || f.wire != WIRE_BYTES)
            continue;
        const ProtobufCFieldDescriptor *d =
            protobuf_c_message_descriptor_get_field(&pome__spec__model__descriptor, f.number);
        if (!d && kind.type_name) /* an unknown field after the kind */
            continue;
        kind.type = f.number;
        kind.type_name = d ? d->name : NULL;
        kind.payload = (pome_bytes){file.ptr + f.data, f.len};
    }
    *out = kind;
    return POME_OK;
}

void pome_coreml_stage_names(char *dst, size_t size, pome_bytes payload)
{
    size_t used = 0;
    cursor c = {payload.ptr, 0, payload.len};
    field f;
    assert(size > 0);
    dst[0] = '\0';
    while (c.at < c.end && read_field(&c, &f, NULL) == POME_OK) {
        if (f.number != 2 || f.wire != WIRE_BYTES)
            continue;
        size_t sep = used ? 2 : 0;
        if (f.len + sep + 1 > size - used)
            return;
        memcpy(dst + used, ", ", sep);
        memcpy(dst + used + sep, payload.ptr + f.data, f.len);
        used += sep + f.len;
        dst[used] = '\0';
    }
}

bool pome_coreml_next_stage(pome_bytes *out, pome_bytes payload, size_t *at)
{
    cursor c = {payload.ptr, *at, payload.len};
    field f;
    while (c.at < c.end && read_field(&c, &f, NULL) == POME_OK)
        if (f.number == 1 && f.wire == WIRE_BYTES) {
            *out = (pome_bytes){payload.ptr + f.data, f.len};
            *at = c.at;
            return true;
        }
    return false;
}

/* Text without NUL, which would cut the string short. */
static bool is_utf8(const uint8_t *p, size_t len)
{
    const uint64_t ones = UINT64_C(0x0101010101010101);
    size_t i = 0;
    while (i < len) {
        uint64_t w;
        if (len - i >= sizeof w) { /* eight bytes of 1..127 at once */
            memcpy(&w, p + i, sizeof w);
            if (((w | (w - ones)) & (ones << 7)) == 0) {
                i += sizeof w;
                continue;
            }
        }
        if (p[i] - 1u < 127u) {
            i++;
            continue;
        }
        utf8proc_int32_t cp;
        utf8proc_ssize_t n = utf8proc_iterate(p + i, (utf8proc_ssize_t)(len - i), &cp);
        if (n < 1 || cp == 0)
            return false;
        i += (size_t)n;
    }
    return true;
}

/* Bytes per element of a packable type: 4, 8, or 0 for varints; -1 for what cannot be packed. */
static int packed_width(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return 4;
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return -1;
    default:
        return 0;
    }
}

static pome_status check_scalar(const cursor *c, const field *f, const ProtobufCFieldDescriptor *d, pome_error *err)
{
    int width = packed_width(d->type);
    uint32_t wire = width == 0 ? WIRE_VARINT : width == 4 ? WIRE_32BIT : WIRE_64BIT;
    if (f->wire == wire)
        return POME_OK;
    if (f->wire != WIRE_BYTES || d->label != PROTOBUF_C_LABEL_REPEATED)
        return pome_fail_at(err, POME_ERR_FORMAT, f->start, "field %s at byte %zu has wire type %u, wanted %u",
                            d->name, f->start, f->wire, wire);
    bool whole = width ? f->len % (size_t)width == 0
                       : f->len == 0 || c->base[f->data + f->len - 1] < 128;
    if (!whole)
        return pome_fail_at(err, POME_ERR_FORMAT, f->start, "field %s at byte %zu: its last element is cut", d->name,
                            f->start);
    return POME_OK;
}

/* The descriptor of a field; fields mostly come in the order of their numbers, or repeat. */
static const ProtobufCFieldDescriptor *find_field(const ProtobufCMessageDescriptor *m, uint32_t number, unsigned *hint)
{
    for (unsigned i = *hint; i < m->n_fields && i < *hint + 2; i++)
        if (m->fields[i].id == number) {
            *hint = i;
            return &m->fields[i];
        }
    const ProtobufCFieldDescriptor *d = protobuf_c_message_descriptor_get_field(m, number);
    if (d)
        *hint = (unsigned)(d - m->fields);
    return d;
}

static pome_status check_message(cursor c, const ProtobufCMessageDescriptor *m, uint32_t depth_left, pome_error *err)
{
    uint64_t seen = 0; /* bit per field of the descriptor */
    unsigned hint = 0;
    assert(m->n_fields <= 64);
    while (c.at < c.end) {
        field f;
        POME_TRY(read_field(&c, &f, err));
        const ProtobufCFieldDescriptor *d = find_field(m, f.number, &hint);
        if (!d)
            continue;
        if (packed_width(d->type) >= 0) {
            POME_TRY(check_scalar(&c, &f, d, err));
            continue;
        }
        if (f.wire != WIRE_BYTES)
            return pome_fail_at(err, POME_ERR_FORMAT, f.start, "field %s at byte %zu has wire type %u, wanted %d",
                                d->name, f.start, f.wire, WIRE_BYTES);
        if (d->type == PROTOBUF_C_TYPE_STRING && !is_utf8(c.base + f.data, f.len))
            return pome_fail_at(err, POME_ERR_FORMAT, f.data, "field %s at byte %zu is not UTF-8 text", d->name,
                                f.start);
        if (d->type != PROTOBUF_C_TYPE_MESSAGE)
            continue;
        uint64_t bit = UINT64_C(1) << (d - m->fields);
        if (d->label != PROTOBUF_C_LABEL_REPEATED && (seen & bit))
            return pome_fail_at(err, POME_ERR_FORMAT, f.start, "field %s is given twice in one message, at byte %zu",
                                d->name, f.start);
        seen |= bit;
        if (depth_left == 0)
            return pome_fail_at(err, POME_ERR_LIMIT, f.start, "messages are nested too deep at byte %zu (field %s)",
                                f.start, d->name);
        cursor inner = {c.base, f.data, f.data + f.len};
        POME_TRY(check_message(inner, (const ProtobufCMessageDescriptor *)d->descriptor, depth_left - 1, err));
    }
    return POME_OK;
}

pome_status pome_coreml_check(pome_bytes file, const ProtobufCMessageDescriptor *descriptor, uint32_t max_depth,
                              pome_error *err)
{
    if (file.len > INT_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "%zu bytes of protobuf, at most %d are possible", file.len, INT_MAX);
    cursor c = {file.ptr, 0, file.len};
    return check_message(c, descriptor, max_depth, err);
}

typedef struct arena_allocator {
    pome_arena *arena;
    bool is_full;
} arena_allocator;

static void *allocate(void *data, size_t size)
{
    arena_allocator *a = data;
    void *p = pome_arena_alloc(a->arena, size);
    a->is_full |= !p;
    return p;
}

static void keep(void *data, void *pointer)
{
    (void)data;
    (void)pointer;
}

static pome_status unpack(const ProtobufCMessage **out, pome_bytes bytes, const ProtobufCMessageDescriptor *descriptor,
                          pome_arena *arena, uint32_t max_depth, pome_error *err)
{
    POME_TRY(pome_coreml_check(bytes, descriptor, max_depth, err));
    arena_allocator a = {arena, false};
    ProtobufCAllocator allocator = {allocate, keep, &a};
    const ProtobufCMessage *message = protobuf_c_message_unpack(descriptor, &allocator, bytes.len, bytes.ptr);
    if (!message && a.is_full)
        return pome_fail(err, POME_ERR_LIMIT, "unpacking %zu bytes of protobuf takes more than %zu bytes, or memory is short", bytes.len,
                         pome_arena_used(arena));
    if (!message)
        return pome_fail(err, POME_ERR_FORMAT, "not a model description that can be unpacked");
    *out = message;
    return POME_OK;
}

pome_status pome_coreml_unpack(const Pome__Spec__Model **out, pome_bytes file, pome_arena *arena,
                               uint32_t max_depth, pome_error *err)
{
    const ProtobufCMessage *message = NULL;
    POME_TRY(unpack(&message, file, &pome__spec__model__descriptor, arena, max_depth, err));
    *out = (const Pome__Spec__Model *)message;
    return POME_OK;
}

pome_status pome_coreml_unpack_description(Pome__Spec__ModelDescription **out, pome_bytes bytes, pome_arena *arena,
                                           uint32_t max_depth, pome_error *err)
{
    const ProtobufCMessage *message = NULL;
    POME_TRY(unpack(&message, bytes, &pome__spec__model_description__descriptor, arena, max_depth, err));
    *out = (Pome__Spec__ModelDescription *)(uintptr_t)message;
    return POME_OK;
}
