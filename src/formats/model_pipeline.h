/* A pipeline of ML Programs as one: the stages' programs after each other in a function called main, where an input of a
 * stage is the output of an earlier one that has its name, else an input of the pipeline. */
#ifndef POME_FORMATS_MODEL_PIPELINE_H
#define POME_FORMATS_MODEL_PIPELINE_H

#include "base/arena.h"
#include "base/error.h"
#include "formats/coreml_proto.h"

typedef struct pome_pipeline_stage {
    const Pome__Spec__Program *program; /* its function main, or the only one, is taken */
    const char *weights_dir;            /* "model0/" goes behind @model_path/ in the names of its weight files; "": nothing */
} pome_pipeline_stage;

/* The description tells the pipeline's outputs; NULL: they are those of the last stage. Made in the arena, with
 * parts of the stages' messages in it. Errors: UNSUPPORTED (stages of different operator sets; no function that is the
 * one), FORMAT (an output that no stage has), NOMEM. */
pome_status pome_pipeline_join(const Pome__Spec__Program **out, const pome_pipeline_stage *stages, size_t n_stages,
                               const Pome__Spec__ModelDescription *description, pome_arena *arena, pome_error *err);

/* The same for the payload of a package's pipeline: models in order. *out NULL with OK: not all of them are ML Programs,
 * or there is none. The weight files lie together. Errors: also those of pome_coreml_unpack. */
pome_status pome_pipeline_unpack(const Pome__Spec__Program **out, pome_bytes payload,
                                 const Pome__Spec__ModelDescription *description, pome_arena *arena, uint32_t max_depth,
                                 pome_error *err);

#endif
