/* Unpacking the protobuf of a Core ML model file (coreml.proto) into an arena. */
#ifndef POME_FORMATS_COREML_PROTO_H
#define POME_FORMATS_COREML_PROTO_H

#include "base/arena.h"
#include "base/error.h"
#include "base/span.h"
#include "formats/coreml.pb-c.h"

#define POME_COREML_DEPTH 100 /* nesting of messages allowed by default, as in other protobuf readers */

/* What the outermost message tells without unpacking anything. */
typedef struct pome_coreml_kind {
    int32_t specification_version;
    uint32_t type;         /* field number of the model's kind (502: mlProgram), 0 if there is none */
    const char *type_name; /* "neuralNetwork", ...; NULL if type is 0 or not known */
    pome_bytes payload;    /* the bytes of that kind's message */
    pome_bytes description; /* those of the description */
} pome_coreml_kind;

/* Errors: FORMAT with the byte position. */
pome_status pome_coreml_peek(pome_coreml_kind *out, pome_bytes file, pome_error *err);

/* Writes the stage names of a pipeline's payload, comma-separated and cut at `size`, to dst ("" if none). */
void pome_coreml_stage_names(char *dst, size_t size, pome_bytes payload);

/* Steps through the models in a pipeline's payload: *at starts at 0. False at the end, or where it is damaged. */
bool pome_coreml_next_stage(pome_bytes *out, pome_bytes payload, size_t *at);

/* Walks the wire format along the descriptor: lengths, wire types, text encoding, nesting of at most max_depth,
 * single fields given once. After it the recursion of protobuf-c is bounded. Errors: FORMAT or LIMIT, with the
 * byte position. */
pome_status pome_coreml_check(pome_bytes file, const ProtobufCMessageDescriptor *descriptor, uint32_t max_depth,
                              pome_error *err);

/* Checks, then unpacks a model into the arena (strings and bytes are copied; unknown fields are dropped).
 * Errors: FORMAT, LIMIT (nesting, or the arena's limit), NOMEM. */
pome_status pome_coreml_unpack(const Pome__Spec__Model **out, pome_bytes file, pome_arena *arena,
                               uint32_t max_depth, pome_error *err);
/* The same for the description alone, as compiled models have it. The caller may change it. */
pome_status pome_coreml_unpack_description(Pome__Spec__ModelDescription **out, pome_bytes bytes, pome_arena *arena,
                                           uint32_t max_depth, pome_error *err);

#endif
