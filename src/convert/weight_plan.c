#include "convert/weight_plan.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"

/* Matrices that are smaller stay as they are, as in coremltools. */
enum { QUANTIZED_ELEMENTS_MIN = 2048, BLOCK_MIN = 16 };
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

/* Rows without blocks become int8 with a scale each. */
static void plan_blocks(pome_weight_job *job, const pome_encoding_wish *wish)
{
    const pome_weight *w = &job->weight;
    job->form = wish->form;
    job->code = wish->code;
    job->searches = wish->searches;
    job->block = fitting_block(w->n_cols, wish->block);
    if (job->block == 0) {
        job->form = POME_FORM_SYMMETRIC;
        job->code = POME_DTYPE_I8;
        job->block = w->n_cols;
        pome_log(POME_LOG_WARN, "%s: rows of %" PRId64 " elements have no blocks of %" PRId64 ": int8, a scale per row",
                 w->name, w->n_cols, wish->block);
    } else if (wish->block && job->block != wish->block && job->block != w->n_cols) {
        pome_log(POME_LOG_WARN, "%s: rows of %" PRId64 " elements have no blocks of %" PRId64 ": blocks of %" PRId64,
                 w->name, w->n_cols, wish->block, job->block);
    }
}

/* The largest number of rows that divides all of them: the wish, or halves of it. */
static int64_t fitting_group(int64_t n_rows, int64_t wish)
{
    for (int64_t group = wish; group > 0 && group < n_rows; group /= 2)
        if (n_rows % group == 0 && (group > 1 || wish == 1))
            return group;
    return n_rows;
}

static uint64_t bytes_of(const pome_weight_job *job)
{
    uint64_t n = (uint64_t)job->weight.n_rows * (uint64_t)job->weight.n_cols, bits = pome_dtype_bits(job->code);
    if (job->form == POME_FORM_PALETTE)
        return n * bits / 8 + ((uint64_t)(job->weight.n_rows / job->group_rows) << bits) * 2;
    uint64_t n_blocks = n / (uint64_t)job->block;
    return n * bits / 8 + n_blocks * 2 + (job->form == POME_FORM_ASYMMETRIC ? n_blocks * bits / 8 : 0);
}

static void plan_palette(pome_weight_job *job, const pome_encoding_wish *wish)
{
    const pome_weight *w = &job->weight;
    int64_t wanted = wish->group_rows && wish->group_rows < w->n_rows ? wish->group_rows : w->n_rows;
    job->form = POME_FORM_PALETTE;
    job->code = wish->code;
    job->palette = wish->palette;
    job->group_rows = fitting_group(w->n_rows, wanted);
    if (bytes_of(job) >= 2 * (uint64_t)(w->n_rows * w->n_cols)) { /* the tables outweigh the indices */
        pome_log(POME_LOG_WARN, "%s: a table per %" PRId64 " rows of %" PRId64 " elements would be larger than fp16: int8, a "
                 "scale per row", w->name, job->group_rows, w->n_cols);
        job->form = POME_FORM_SYMMETRIC;
        job->code = POME_DTYPE_I8;
        job->block = w->n_cols;
    } else if (job->group_rows != wanted) {
        char text[32];
        snprintf(text, sizeof text, "per %" PRId64 " rows", job->group_rows);
        pome_log(POME_LOG_WARN, "%s: %" PRId64 " rows have no groups of %" PRId64 ": a table %s", w->name, w->n_rows, wanted,
                 job->group_rows == w->n_rows ? "for all" : text);
    }
}

/* What is not smaller than halves becomes halves. */
static void plan_encoded(pome_weight_job *job, const pome_encoding_wish *wish)
{
    const pome_weight *w = &job->weight;
    if (wish->form == POME_FORM_PALETTE)
        plan_palette(job, wish);
    else
        plan_blocks(job, wish);
    if (bytes_of(job) < 2 * (uint64_t)(w->n_rows * w->n_cols))
        return;
    job->form = POME_FORM_HALF;
    pome_log(POME_LOG_WARN, "%s: rows of %" PRId64 " elements with a scale each would be no smaller than fp16: fp16", w->name,
             w->n_cols);
}

static void plan_kept(pome_weight_job *job)
{
    const pome_gguf_encoding *e = job->weight.encoding;
    job->form = POME_FORM_KEPT;
    job->block = e->group;
    job->code = pome_kept_code(e);
}

static bool is_dense(const pome_weight_job *job)
{
    return job->form == POME_FORM_HALF || job->form == POME_FORM_FLOAT;
}

static pome_dtype dense_dtype(const pome_weight_job *job)
{
    return job->form == POME_FORM_FLOAT ? POME_DTYPE_F32 : POME_DTYPE_F16;
}

static bool is_encoded(pome_form form)
{
    return form == POME_FORM_SYMMETRIC || form == POME_FORM_ASYMMETRIC || form == POME_FORM_PALETTE;
}

static void choose_form(pome_weight_job *job, const pome_graph *g, const pome_encoding_wish *wish)
{
    const pome_weight *w = &job->weight;
    bool may = w->rank == 2 && w->plus == 0;
    if (g->real == POME_DTYPE_F32)
        job->form = POME_FORM_FLOAT;
    else if (may && wish->form == POME_FORM_KEPT && w->encoding)
        plan_kept(job);
    else if (may && is_encoded(wish->form) && w->n_rows * w->n_cols > QUANTIZED_ELEMENTS_MIN)
        plan_encoded(job, wish);
    else
        job->form = POME_FORM_HALF;
}

/* A shape followed by the weight's axes of 1; gives the rank. */
static int32_t with_units(const pome_weight_job *job, int64_t *dim, int32_t rank)
{
    for (int32_t i = 0; i < job->weight.unit_axes; i++)
        dim[rank++] = 1;
    return rank;
}

static pome_value *dense_value(pome_graph *g, const char *name, const pome_weight_job *job)
{
    int64_t dim[POME_MAX_RANK] = {job->weight.n_rows, job->weight.n_cols};
    int32_t rank = with_units(job, dim, 2), is_vector = job->weight.rank == 1;
    return pome_graph_blob(g, name, g->real, rank - is_vector, dim + is_vector, job->data.record_offset);
}

/* The form of iOS 16: a scale for each row. */
static pome_value *affine_value(pome_graph *g, const char *name, const pome_weight_job *job)
{
    int64_t dim[POME_MAX_RANK] = {job->weight.n_rows, job->weight.n_cols};
    int32_t rank = with_units(job, dim, 2);
    pome_value *zero = job->offset.n_elements ? pome_graph_blob(g, "", job->code, 1, dim, job->offset.record_offset)
                                              : pome_graph_int8(g, 0);
    return pome_graph_add(
        g, POME_OP_constexpr_affine_dequantize, name,
        POME_ARGS({P_constexpr_affine_dequantize_quantized_data,
                   pome_graph_blob(g, "", job->code, rank, dim, job->data.record_offset)},
                  {P_constexpr_affine_dequantize_zero_point, zero},
                  {P_constexpr_affine_dequantize_scale,
                   pome_graph_blob(g, "", POME_DTYPE_F16, 1, dim, job->scale.record_offset)},
                  {P_constexpr_affine_dequantize_axis, pome_graph_int(g, 0)}));
}

static pome_value *blocks_value(pome_graph *g, const char *name, const pome_weight_job *job)
{
    int64_t dim[POME_MAX_RANK] = {job->weight.n_rows, job->weight.n_cols};
    int64_t blocks[POME_MAX_RANK] = {dim[0], dim[1] / job->block};
    int32_t rank = with_units(job, dim, 2);
    with_units(job, blocks, 2);
    pome_graph_arg args[3] = {
        {P_constexpr_blockwise_shift_scale_data, pome_graph_blob(g, "", job->code, rank, dim, job->data.record_offset)},
        {P_constexpr_blockwise_shift_scale_scale,
         pome_graph_blob(g, "", POME_DTYPE_F16, rank, blocks, job->scale.record_offset)},
    };
    size_t n = 2;
    if (job->offset.n_elements)
        args[n++] = (pome_graph_arg){P_constexpr_blockwise_shift_scale_offset,
                                     pome_graph_blob(g, "", job->offset.dtype, rank, blocks, job->offset.record_offset)};
    return pome_graph_add(g, POME_OP_constexpr_blockwise_shift_scale, name, n, args);
}

/* The form of iOS 16: the indices' bytes, one table, and the shape. */
static pome_value *flat_palette_value(pome_graph *g, const char *name, const pome_weight_job *job)
{
    const int64_t n_bytes = (int64_t)job->data.size_bytes, n_entries = (int64_t)1 << pome_dtype_bits(job->code);
    const uint32_t dim[4] = {(uint32_t)job->weight.n_rows, (uint32_t)job->weight.n_cols, 1, 1};
    size_t rank = 2 + (size_t)job->weight.unit_axes;
    return pome_graph_add(
        g, POME_OP_constexpr_lut_to_dense, name,
        POME_ARGS({P_constexpr_lut_to_dense_indices,
                   pome_graph_blob(g, "", POME_DTYPE_U8, 1, &n_bytes, job->data.record_offset)},
                  {P_constexpr_lut_to_dense_lut,
                   pome_graph_blob(g, "", POME_DTYPE_F16, 1, &n_entries, job->scale.record_offset)},
                  {P_constexpr_lut_to_dense_shape, pome_graph_uints(g, rank, dim)}));
}

static pome_value *palette_value(pome_graph *g, const char *name, const pome_weight_job *job)
{
    int64_t dim[POME_MAX_RANK] = {job->weight.n_rows, job->weight.n_cols};
    int64_t tables[POME_MAX_RANK] = {dim[0] / job->group_rows, 1};
    int32_t rank = with_units(job, dim, 2);
    with_units(job, tables, 2);
    tables[rank] = (int64_t)1 << pome_dtype_bits(job->code);
    tables[rank + 1] = 1;
    return pome_graph_add(
        g, POME_OP_constexpr_lut_to_dense, name,
        POME_ARGS({P_constexpr_lut_to_dense_indices,
                   pome_graph_blob(g, "", job->code, rank, dim, job->data.record_offset)},
                  {P_constexpr_lut_to_dense_lut,
                   pome_graph_blob(g, "", POME_DTYPE_F16, rank + 2, tables, job->scale.record_offset)}));
}

static bool is_old(const pome_graph *g) /* constants of iOS 16 */
{
    return !g->fn || g->fn->opset < POME_OPSET_IOS18;
}

static pome_value *encoded_value(pome_graph *g, const char *name, const pome_weight_job *job)
{
    if (job->form == POME_FORM_PALETTE)
        return is_old(g) ? flat_palette_value(g, name, job) : palette_value(g, name, job);
    return is_old(g) ? affine_value(g, name, job) : blocks_value(g, name, job);
}

static pome_status lay_out(pome_weight_plan *plan, pome_weight_job *job, bool is_old, pome_error *err)
{
    uint64_t n = (uint64_t)job->weight.n_rows * (uint64_t)job->weight.n_cols;
    if (is_dense(job))
        return pome_blob_layout_add(&plan->layout, dense_dtype(job), n, &job->data, err);
    if (job->form == POME_FORM_PALETTE) {
        uint64_t n_entries = (uint64_t)(job->weight.n_rows / job->group_rows) << pome_dtype_bits(job->code);
        if (is_old) /* the bytes of the stream of indices */
            POME_TRY(pome_blob_layout_add(&plan->layout, POME_DTYPE_U8, (n * pome_dtype_bits(job->code) + 7) / 8, &job->data,
                                          err));
        else
            POME_TRY(pome_blob_layout_add(&plan->layout, job->code, n, &job->data, err));
        return pome_blob_layout_add(&plan->layout, POME_DTYPE_F16, n_entries, &job->scale, err);
    }
    uint64_t n_blocks = n / (uint64_t)job->block;
    POME_TRY(pome_blob_layout_add(&plan->layout, job->code, n, &job->data, err));
    POME_TRY(pome_blob_layout_add(&plan->layout, POME_DTYPE_F16, n_blocks, &job->scale, err));
    if (job->form == POME_FORM_KEPT && job->weight.encoding->has_shift)
        POME_TRY(pome_blob_layout_add(&plan->layout, POME_DTYPE_F16, n_blocks, &job->offset, err));
    if (job->form == POME_FORM_ASYMMETRIC)
        POME_TRY(pome_blob_layout_add(&plan->layout, job->code, n_blocks, &job->offset, err));
    return POME_OK;
}

pome_value *pome_weight_plan_add(pome_weight_plan *plan, pome_graph *g, const char *name, const pome_weight *w,
                                 const pome_encoding_wish *wish, pome_status *status, pome_error *err)
{
    pome_weight_job job = {.weight = *w};
    if (*status != POME_OK)
        return NULL;
    choose_form(&job, g, wish);
    *status = lay_out(plan, &job, is_old(g), err);
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
    *status = lay_out(plan, &job, is_old(g), err);
    if (*status == POME_OK)
        *status = add_job(plan, &job, err);
    return *status == POME_OK ? dense_value(g, name, &job) : NULL;
}
