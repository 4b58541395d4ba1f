#include "convert/weight_plan.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"

/* Matrices that are smaller stay as they are, as in coremltools. */
enum { QUANTIZED_ELEMENTS_MIN = 2048, BLOCK_MIN = 16 };
/* Elements of the band of rows that is in memory at a time. */
enum { BAND_ELEMENTS = 1 << 20 };

/* ---- planning ---- */

static pome_status add_job(pome_weight_plan *plan, const pome_weight_job *job, pome_error *err)
{
    if (plan->n_jobs == plan->n_room) {
        uint32_t room = plan->n_room ? plan->n_room * 2 : 64;
        pome_weight_job *bigger = POME_NEW_ARRAY(plan->arena, pome_weight_job, room);
        if (!bigger)
            return pome_fail_nomem(err, room * sizeof *bigger, "the plan of weights");
        if (plan->n_jobs)
            memcpy(bigger, plan->jobs, plan->n_jobs * sizeof *bigger);
        plan->jobs = bigger;
        plan->n_room = room;
    }
    plan->jobs[plan->n_jobs++] = *job;
    if (!job->table)
        plan->source_bytes += (uint64_t)job->weight.n_rows * job->weight.row_bytes;
    return POME_OK;
}

/* The largest block that divides the row: the wish, or halves of it down to 16; 0: none. */
static int64_t fitting_block(int64_t n_cols, int64_t wish)
{
    if (wish == 0 || wish >= n_cols)
        return n_cols;
    for (int64_t b = wish; b >= BLOCK_MIN; b /= 2)
        if (n_cols % b == 0)
            return b;
    return 0;
}

static void plan_symmetric(pome_weight_job *job, const pome_encoding_wish *wish)
{
    const pome_weight *w = &job->weight;
    job->form = POME_FORM_SYMMETRIC;
    job->code = wish->code;
    job->searches = wish->searches;
    job->block = fitting_block(w->n_cols, wish->block);
    if (job->block == 0 || (job->code == POME_DTYPE_I4 && w->n_cols % 2 != 0)) {
        job->code = POME_DTYPE_I8;
        job->block = w->n_cols;
        pome_log(POME_LOG_WARN, "%s: rows of %" PRId64 " elements have no blocks of %" PRId64 ": int8, a scale per row",
                 w->name, w->n_cols, wish->block);
    } else if (wish->block && job->block != wish->block && job->block != w->n_cols) {
        pome_log(POME_LOG_WARN, "%s: rows of %" PRId64 " elements have no blocks of %" PRId64 ": blocks of %" PRId64,
                 w->name, w->n_cols, wish->block, job->block);
    }
}

static void plan_kept(pome_weight_job *job)
{
    const pome_gguf_encoding *e = job->weight.encoding;
    job->form = POME_FORM_KEPT;
    job->block = e->group;
    if (e->code_min >= -8 && e->code_max <= 7 && !e->has_shift)
        job->code = POME_DTYPE_I4;
    else if (e->code_min >= 0)
        job->code = e->code_max <= 15 ? POME_DTYPE_U4 : POME_DTYPE_U8;
    else
        job->code = POME_DTYPE_I8;
}

static bool is_dense(const pome_weight_job *job)
{
    return job->form == POME_FORM_HALF || job->form == POME_FORM_FLOAT;
}

static pome_dtype dense_dtype(const pome_weight_job *job)
{
    return job->form == POME_FORM_FLOAT ? POME_DTYPE_F32 : POME_DTYPE_F16;
}

static void choose_form(pome_weight_job *job, const pome_graph *g, const pome_encoding_wish *wish)
{
    const pome_weight *w = &job->weight;
    bool may = w->rank == 2 && w->plus == 0;
    if (g->real == POME_DTYPE_F32)
        job->form = POME_FORM_FLOAT;
    else if (may && wish->form == POME_FORM_KEPT && w->encoding)
        plan_kept(job);
    else if (may && wish->form == POME_FORM_SYMMETRIC && w->n_rows * w->n_cols > QUANTIZED_ELEMENTS_MIN)
        plan_symmetric(job, wish);
    else
        job->form = POME_FORM_HALF;
}

static pome_value *dense_value(pome_graph *g, const char *name, const pome_weight_job *job)
{
    const int64_t dim[2] = {job->weight.n_rows, job->weight.n_cols};
    bool is_vector = job->weight.rank == 1;
    return pome_graph_blob(g, name, g->real, is_vector ? 1 : 2, is_vector ? dim + 1 : dim, job->data.record_offset);
}

/* The form of iOS 16: a scale for each row. */
static pome_value *affine_value(pome_graph *g, const char *name, const pome_weight_job *job)
{
    const int64_t dim[2] = {job->weight.n_rows, job->weight.n_cols};
    return pome_graph_add(
        g, POME_OP_constexpr_affine_dequantize, name,
        POME_ARGS({P_constexpr_affine_dequantize_quantized_data,
                   pome_graph_blob(g, "", job->code, 2, dim, job->data.record_offset)},
                  {P_constexpr_affine_dequantize_zero_point, pome_graph_int8(g, 0)},
                  {P_constexpr_affine_dequantize_scale,
                   pome_graph_blob(g, "", POME_DTYPE_F16, 1, dim, job->scale.record_offset)},
                  {P_constexpr_affine_dequantize_axis, pome_graph_int(g, 0)}));
}

static pome_value *encoded_value(pome_graph *g, const char *name, const pome_weight_job *job)
{
    const int64_t dim[2] = {job->weight.n_rows, job->weight.n_cols}, blocks[2] = {dim[0], dim[1] / job->block};
    if (g->fn->opset < POME_OPSET_IOS18)
        return affine_value(g, name, job);
    pome_graph_arg args[3] = {
        {P_constexpr_blockwise_shift_scale_data, pome_graph_blob(g, "", job->code, 2, dim, job->data.record_offset)},
        {P_constexpr_blockwise_shift_scale_scale,
         pome_graph_blob(g, "", POME_DTYPE_F16, 2, blocks, job->scale.record_offset)},
    };
    size_t n = 2;
    if (job->offset.n_elements)
        args[n++] = (pome_graph_arg){P_constexpr_blockwise_shift_scale_offset,
                                     pome_graph_blob(g, "", POME_DTYPE_F16, 2, blocks, job->offset.record_offset)};
    return pome_graph_add(g, POME_OP_constexpr_blockwise_shift_scale, name, n, args);
}

static pome_status lay_out(pome_weight_plan *plan, pome_weight_job *job, pome_error *err)
{
    uint64_t n = (uint64_t)job->weight.n_rows * (uint64_t)job->weight.n_cols;
    if (is_dense(job))
        return pome_blob_layout_add(&plan->layout, dense_dtype(job), n, &job->data, err);
    uint64_t n_blocks = n / (uint64_t)job->block;
    POME_TRY(pome_blob_layout_add(&plan->layout, job->code, n, &job->data, err));
    POME_TRY(pome_blob_layout_add(&plan->layout, POME_DTYPE_F16, n_blocks, &job->scale, err));
    if (job->form == POME_FORM_KEPT && job->weight.encoding->has_shift)
        POME_TRY(pome_blob_layout_add(&plan->layout, POME_DTYPE_F16, n_blocks, &job->offset, err));
    return POME_OK;
}

pome_value *pome_weight_plan_add(pome_weight_plan *plan, pome_graph *g, const char *name, const pome_weight *w,
                                 const pome_encoding_wish *wish, pome_status *status, pome_error *err)
{
    pome_weight_job job = {.weight = *w};
    if (*status != POME_OK)
        return NULL;
    choose_form(&job, g, wish);
    *status = lay_out(plan, &job, err);
    if (*status == POME_OK)
        *status = add_job(plan, &job, err);
    if (*status != POME_OK)
        return NULL;
    return is_dense(&job) ? dense_value(g, name, &job) : encoded_value(g, name, &job);
}

/* A copy that lives as long as the plan. */
static const void *kept_table(pome_weight_plan *plan, pome_dtype dtype, const float *table, size_t n)
{
    if (dtype == POME_DTYPE_F32) {
        float *floats = POME_NEW_ARRAY(plan->arena, float, n);
        return floats ? memcpy(floats, table, n * sizeof *floats) : NULL;
    }
    uint16_t *halves = POME_NEW_ARRAY(plan->arena, uint16_t, n);
    if (halves)
        pome_encode_halves(halves, table, n);
    return halves;
}

pome_value *pome_weight_plan_add_table(pome_weight_plan *plan, pome_graph *g, const char *name, const float *table,
                                       int64_t n_rows, int64_t n_cols, pome_status *status, pome_error *err)
{
    pome_weight_job job = {.weight = {.name = name, .rank = 2, .n_rows = n_rows, .n_cols = n_cols},
                           .form = g->real == POME_DTYPE_F32 ? POME_FORM_FLOAT : POME_FORM_HALF};
    size_t n = (size_t)(n_rows * n_cols);
    if (*status != POME_OK)
        return NULL;
    job.table = kept_table(plan, g->real, table, n);
    if (!job.table) {
        *status = pome_fail_nomem(err, n * 4, name);
        return NULL;
    }
    *status = lay_out(plan, &job, err);
    if (*status == POME_OK)
        *status = add_job(plan, &job, err);
    return *status == POME_OK ? dense_value(g, name, &job) : NULL;
}

/* ---- writing ---- */

typedef struct band {
    float *values;
    int8_t *codes;
    uint8_t *packed;             /* nibbles */
    uint16_t *halves, *scales, *offsets;
    size_t n_bad;
} band;

static void free_band(band *b)
{
    free(b->values);
    free(b->codes);
    free(b->packed);
    free(b->halves);
    free(b->scales);
    free(b->offsets);
}

static pome_status make_band(band *b, const pome_weight_job *job, int64_t n_rows, pome_error *err)
{
    size_t n = (size_t)n_rows * (size_t)job->weight.n_cols, n_blocks = job->block ? n / (size_t)job->block : 0;
    *b = (band){0};
    bool ok = (b->values = malloc((n + 1) * sizeof *b->values)) != NULL;
    if (job->form == POME_FORM_FLOAT)
        return ok ? POME_OK : pome_fail_nomem(err, n * 4, "a band of weights");
    if (job->form == POME_FORM_HALF)
        ok = ok && (b->halves = malloc((n + 1) * sizeof *b->halves));
    else
        ok = ok && (b->codes = malloc(n + 1)) && (b->packed = malloc(n / 2 + 1)) &&
             (b->scales = malloc((n_blocks + 1) * sizeof *b->scales)) &&
             (b->offsets = malloc((n_blocks + 1) * sizeof *b->offsets));
    return ok ? POME_OK : pome_fail_nomem(err, n * 8, "a band of weights");
}

static void encode_row(band *b, const pome_weight_job *job, int64_t row, int64_t at, pome_weight_writing *to)
{
    const pome_weight *w = &job->weight;
    size_t n = (size_t)w->n_cols, first = (size_t)at * n, n_blocks = job->block ? n / (size_t)job->block : 0;
    int top = job->code == POME_DTYPE_I4 ? 7 : 127;
    if (job->form == POME_FORM_KEPT) {
        pome_encode_kept(b->codes + first, b->scales + (size_t)at * n_blocks, b->offsets + (size_t)at * n_blocks,
                         w->encoding, pome_weight_row(w, row), n, &to->worst);
        return;
    }
    pome_weight_decode(w, row, b->values + (job->form == POME_FORM_FLOAT ? first : 0));
    if (job->form == POME_FORM_FLOAT)
        return;
    if (job->form == POME_FORM_HALF)
        b->n_bad += pome_encode_halves(b->halves + first, b->values, n);
    else if (job->searches)
        b->n_bad += pome_encode_search(b->codes + first, b->scales + (size_t)at * n_blocks, b->values, n,
                                       (size_t)job->block, top);
    else
        b->n_bad += pome_encode_symmetric(b->codes + first, b->scales + (size_t)at * n_blocks, b->values, n,
                                          (size_t)job->block, top);
}

static pome_status put_band(const band *b, const pome_weight_job *job, int64_t first_row, int64_t n_rows,
                            const pome_blob_writer *writer, pome_error *err)
{
    size_t n_cols = (size_t)job->weight.n_cols, n = (size_t)n_rows * n_cols, before = (size_t)first_row * n_cols;
    if (job->form == POME_FORM_FLOAT)
        return pome_blob_writer_put(writer, &job->data, before * 4, b->values, n * 4, err);
    if (job->form == POME_FORM_HALF)
        return pome_blob_writer_put(writer, &job->data, before * 2, b->halves, n * 2, err);
    size_t per_row = n_cols / (size_t)job->block * 2;
    if (pome_dtype_bits(job->code) == 4) {
        pome_encode_nibbles(b->packed, b->codes, n);
        POME_TRY(pome_blob_writer_put(writer, &job->data, before / 2, b->packed, n / 2, err));
    } else {
        POME_TRY(pome_blob_writer_put(writer, &job->data, before, b->codes, n, err));
    }
    POME_TRY(pome_blob_writer_put(writer, &job->scale, (size_t)first_row * per_row, b->scales, (size_t)n_rows * per_row,
                                  err));
    if (job->offset.n_elements)
        POME_TRY(pome_blob_writer_put(writer, &job->offset, (size_t)first_row * per_row, b->offsets,
                                      (size_t)n_rows * per_row, err));
    return POME_OK;
}

static pome_status write_records(const pome_weight_job *job, const pome_blob_writer *writer, pome_error *err)
{
    POME_TRY(pome_blob_writer_record(writer, &job->data, err));
    if (job->scale.n_elements)
        POME_TRY(pome_blob_writer_record(writer, &job->scale, err));
    if (job->offset.n_elements)
        POME_TRY(pome_blob_writer_record(writer, &job->offset, err));
    return POME_OK;
}

static pome_status write_rows(band *b, const pome_weight_job *job, int64_t band_rows, pome_weight_writing *to,
                              pome_error *err)
{
    const pome_weight *w = &job->weight;
    for (int64_t row = 0; row < w->n_rows; row += band_rows) {
        int64_t n = w->n_rows - row < band_rows ? w->n_rows - row : band_rows;
        for (int64_t i = 0; i < n; i++)
            encode_row(b, job, row + i, i, to);
        POME_TRY(put_band(b, job, row, n, to->writer, err));
        to->done_bytes += (uint64_t)n * w->row_bytes;
        if (to->progress && !to->progress(to->progress_arg, w->name, to->done_bytes, to->total_bytes))
            return pome_fail(err, POME_ERR_CANCELLED, "stopped while writing %s", w->name);
    }
    return POME_OK;
}

pome_status pome_weight_job_write(const pome_weight_job *job, pome_weight_writing *to, pome_error *err)
{
    const pome_weight *w = &job->weight;
    POME_TRY(write_records(job, to->writer, err));
    if (job->table)
        return pome_blob_writer_put(to->writer, &job->data, 0, job->table, (size_t)job->data.size_bytes, err);
    int64_t band_rows = w->n_cols && BAND_ELEMENTS / w->n_cols > 1 ? BAND_ELEMENTS / w->n_cols : 1;
    band_rows = band_rows > w->n_rows ? w->n_rows : band_rows;
    band b;
    pome_status status = make_band(&b, job, band_rows ? band_rows : 1, err);
    if (status == POME_OK)
        status = write_rows(&b, job, band_rows, to, err);
    if (status == POME_OK && b.n_bad)
        pome_log(POME_LOG_WARN, "%s: %zu elements are beyond the range of fp16 or no numbers; they become the nearest fp16 "
                 "number, NaN becomes 0", w->name, b.n_bad);
    free_band(&b);
    return status;
}
