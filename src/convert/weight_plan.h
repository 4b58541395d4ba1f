/* Which tensors go into the weight file, in which form, and where; then writing them, a band of rows at a time. The
 * plan depends on shapes and options alone, so sizes are known before anything is written. */
#ifndef POME_CONVERT_WEIGHT_PLAN_H
#define POME_CONVERT_WEIGHT_PLAN_H

#include "base/pool.h"
#include "convert/encoding_wish.h"
#include "convert/graph.h"
#include "convert/kept.h"
#include "convert/quantizer.h"
#include "convert/weight.h"
#include "formats/blob_writer.h"
#include "pome/convert.h"

typedef struct pome_weight_job {
    pome_weight weight;
    const void *table;     /* not NULL: halves or floats made in memory, instead of a weight */
    pome_form form;
    pome_dtype code;       /* of codes or indices */
    int64_t block;         /* elements of a row that share a scale */
    int64_t group_rows;    /* rows that share a palette */
    pome_palette_mode palette;
    bool searches;
    pome_blob_slot data, scale, offset; /* n_elements 0: none; scale: or the palettes */
} pome_weight_job;

typedef struct pome_weight_plan {
    pome_arena *arena;
    pome_blob_layout layout;
    pome_weight_job *jobs;
    uint32_t n_jobs, n_room;
    uint64_t source_bytes; /* that the jobs read */
} pome_weight_plan;

/* Plans a weight and gives the value that stands for it: a constant, or the result of a constexpr operator of the same
 * name. Graphs of fp32 get fp32 constants, whatever the wish; before iOS 18 a scale (and offset) per row or one palette
 * per tensor is all there is. Logs one warning where the wish cannot be met. NULL: g has failed or err is set (*status). */
pome_value *pome_weight_plan_add(pome_weight_plan *plan, pome_graph *g, const char *name, const pome_weight *w,
                                 const pome_encoding_wish *wish, pome_status *status, pome_error *err);
/* A table [rows, cols], rounded to the graph's float type. */
pome_value *pome_weight_plan_add_table(pome_weight_plan *plan, pome_graph *g, const char *name, const float *table,
                                       int64_t n_rows, int64_t n_cols, pome_status *status, pome_error *err);

typedef struct pome_weight_writing {
    const pome_blob_writer *writer;
    pome_pool *pool;       /* NULL: on the caller's thread alone; results do not depend on it */
    pome_convert_progress_fn *progress;
    void *progress_arg;
    uint64_t done_bytes, total_bytes;
    pome_encode_error worst; /* of kept tensors */
} pome_weight_writing;

/* Writes all of one job. Errors: IO, NOMEM, CANCELLED. */
pome_status pome_weight_job_write(const pome_weight_job *job, pome_weight_writing *to, pome_error *err);

#endif
