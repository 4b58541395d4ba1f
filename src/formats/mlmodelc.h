/* A compiled model, NAME.mlmodelc: a folder of
 *
 *     model.mil           the program as text (formats/mil_text.h)
 *     weights/...         weight files (formats/blob.h) as the program names them after @model_path
 *     coremldata.bin      binary; the description of the model's interface is in it, the rest is not known
 *     metadata.json       the same for people: names, types, shapes, versions
 *     model0/ model1/ ... the stages of a pipeline, each a compiled model
 *
 * Only model.mil and the weights are needed: without coremldata.bin the interface follows from the program's types and
 * its FlexibleShapeInformation. */
#ifndef POME_FORMATS_MLMODELC_H
#define POME_FORMATS_MLMODELC_H

#include "base/arena.h"
#include "base/error.h"
#include "base/span.h"
#include "formats/coreml_proto.h"

/* Whether a folder is a compiled model, by its name or by what it holds. */
bool pome_mlmodelc_detect(const char *folder);

/* Reads program and interface into the arena, as if they came from a package. Weight files are not looked at.
 * Errors: FORMAT (a part is missing, cut or damaged; positions in model.mil as line and column), UNSUPPORTED (no ML
 * Program), IO, LIMIT, NOMEM. */
pome_status pome_mlmodelc_read(const Pome__Spec__Model **out, const char *folder, pome_arena *arena,
                               uint32_t max_depth, pome_error *err);

/* The same from the files' bytes; binary and metadata may be empty. Nothing stays a view of them. */
typedef struct pome_mlmodelc_parts {
    pome_bytes text, binary, metadata; /* model.mil, coremldata.bin, metadata.json */
} pome_mlmodelc_parts;
pome_status pome_mlmodelc_assemble(const Pome__Spec__Model **out, const pome_mlmodelc_parts *parts, pome_arena *arena,
                                   uint32_t max_depth, pome_error *err);

/* ---- the parts ---- */

/* The description within coremldata.bin; NULL where none is found. */
Pome__Spec__ModelDescription *pome_mlmodelc_find_description(pome_bytes file, pome_arena *arena, uint32_t max_depth);

/* The bytes of coremldata.bin around a serialized description, as the one published sample has them; in the arena, NULL
 * when memory is short. */
uint8_t *pome_mlmodelc_make_binary(size_t *len, pome_bytes description, int32_t specification_version,
                                   uint32_t n_functions, pome_arena *arena);

/* The interface as far as a program tells it: inputs sorted as they are in the text. */
pome_status pome_mlmodelc_derive_description(Pome__Spec__ModelDescription **out, const Pome__Spec__Program *program,
                                             pome_arena *arena, pome_error *err);

/* The specification version that the operator sets of a program need. */
int32_t pome_mlmodelc_version_of(const Pome__Spec__Program *program);

/* What metadata.json adds: version and texts; with `is_derived` also the order of inputs and outputs, and their element
 * types. Unknown and ill-typed entries are passed over. Errors: FORMAT (no JSON), NOMEM. */
pome_status pome_mlmodelc_apply_metadata(Pome__Spec__Model *model, bool is_derived, pome_bytes text,
                                         pome_arena *arena, pome_error *err);

#endif
