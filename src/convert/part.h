/* One package of a conversion: what it will hold, and writing it. */
#ifndef POME_CONVERT_PART_H
#define POME_CONVERT_PART_H

#include "convert/lm_graph.h"
#include "formats/mlpackage_writer.h"

typedef struct pome_convert_part {
    const char *name;       /* of the package in its set, without ".mlpackage"; NULL: it is no set */
    pome_lm_graph graph;    /* points into this: a part does not move once it is planned */
    pome_program *program;
    pome_weight_plan plan;
    uint8_t *model;         /* malloc'ed */
    size_t model_len;
} pome_convert_part;

/* Builds the program of graph (its plan and program are set here). `quantize` is for the description. */
pome_status pome_convert_part_plan(pome_convert_part *part, const char *quantize, pome_error *err);
void pome_convert_part_destroy(pome_convert_part *part);

/* Writes weights and model into the package's work folder; what an earlier call with the same fingerprint has written
 * is not written again if `resume`. to->worst grows. Errors: as pome_weight_job_write. */
pome_status pome_convert_part_write(const pome_convert_part *part, const pome_mlpackage_writer *package,
                                    uint64_t fingerprint, bool resume, pome_weight_writing *to, pome_error *err);
/* Counts all of the part as done. */
void pome_convert_part_skip(const pome_convert_part *part, pome_weight_writing *to);

#endif
