/* Writing planned weights: a band of rows is in memory at a time, and threads share its rows. */
#include <stdlib.h>

#include "base/log.h"
#include "convert/palette.h"
#include "convert/weight_plan.h"

enum { BAND_ELEMENTS = 1 << 20, CHUNK_ELEMENTS = 1 << 14, WHOLE_BYTES = 8 /* elements that fill bytes, whatever their bits */ };

typedef struct worker {
    float *row;               /* [n_cols] */
    uint16_t *halves;         /* palettes: a row, or a group that is made at once */
    pome_palette_maker maker; /* palettes */
    pome_encode_error worst;
    size_t n_bad;
} worker;

typedef struct band {
    const pome_weight_job *job;
    pome_weight_writing *to;
    int64_t row, n_rows;       /* what is in memory */
    float *values;             /* FLOAT */
    uint16_t *halves;          /* HALF */
    uint8_t *codes, *packed;
    uint16_t *scales;          /* or tables */
    uint16_t *offset_halves;   /* KEPT */
    uint8_t *offset_codes, *offset_packed; /* ASYMMETRIC */
    worker *workers;
    int n_workers;
    bool counts;               /* palettes: count only, write nothing */
} band;

static void free_band(band *b)
{
    for (int i = 0; b->workers && i < b->n_workers; i++) {
        free(b->workers[i].row);
        free(b->workers[i].halves);
        pome_palette_maker_free(&b->workers[i].maker);
    }
    free(b->workers);
    free(b->values);
    free(b->halves);
    free(b->codes);
    free(b->packed);
    free(b->scales);
    free(b->offset_halves);
    free(b->offset_codes);
    free(b->offset_packed);
}

static pome_status make_workers(band *b, size_t n_halves, pome_error *err)
{
    size_t n = (size_t)b->job->weight.n_cols;
    b->n_workers = pome_pool_n_threads(b->to->pool);
    b->workers = calloc((size_t)b->n_workers, sizeof *b->workers);
    if (!b->workers)
        return pome_fail_nomem(err, (size_t)b->n_workers * sizeof *b->workers, "threads' rows");
    for (int i = 0; i < b->n_workers; i++) {
        worker *w = &b->workers[i];
        w->row = malloc((n + 1) * sizeof *w->row);
        w->halves = malloc((n_halves + 1) * sizeof *w->halves);
        if (!w->row || !w->halves)
            return pome_fail_nomem(err, n * 4 + n_halves * 2, "a row of weights");
        if (b->job->form == POME_FORM_PALETTE)
            POME_TRY(pome_palette_maker_init(&w->maker, err));
    }
    return POME_OK;
}

/* Room for n_rows. */
static pome_status make_band(band *b, int64_t n_rows, size_t n_scales, size_t n_halves, pome_error *err)
{
    const pome_weight_job *job = b->job;
    size_t n = (size_t)n_rows * (size_t)job->weight.n_cols;
    bool ok = true;
    POME_TRY(make_workers(b, n_halves, err));
    if (job->form == POME_FORM_FLOAT)
        ok = (b->values = malloc((n + 1) * sizeof *b->values)) != NULL;
    else if (job->form == POME_FORM_HALF)
        ok = (b->halves = malloc((n + 1) * sizeof *b->halves)) != NULL;
    else
        ok = (b->codes = malloc(n + 1)) && (b->packed = malloc(n + 1)) &&
             (b->scales = malloc((n_scales + 1) * sizeof *b->scales));
    if (ok && job->form == POME_FORM_KEPT)
        ok = (b->offset_halves = malloc((n_scales + 1) * sizeof *b->offset_halves)) != NULL;
    if (ok && job->form == POME_FORM_ASYMMETRIC)
        ok = (b->offset_codes = malloc(n_scales + 1)) && (b->offset_packed = malloc(n_scales + 1));
    return ok ? POME_OK : pome_fail_nomem(err, n * 4, "a band of weights");
}

/* A multiple of 8 rows, so that bands of any width begin with a byte. */
static int64_t band_rows_of(const pome_weight *w, int64_t n_rows)
{
    int64_t rows = w->n_cols ? BAND_ELEMENTS / w->n_cols : n_rows;
    rows = rows > WHOLE_BYTES ? rows / WHOLE_BYTES * WHOLE_BYTES : WHOLE_BYTES;
    return rows < n_rows ? rows : n_rows;
}

static size_t grain_of(int64_t n_cols)
{
    return n_cols < CHUNK_ELEMENTS && n_cols > 0 ? (size_t)(CHUNK_ELEMENTS / n_cols) : 1;
}

/* ---- putting ---- */

typedef struct packing {
    uint8_t *out;
    const uint8_t *codes;
    size_t n;
    uint32_t bits;
} packing;

static void pack_chunk(void *arg, size_t begin, size_t end, int thread)
{
    const packing *p = arg;
    size_t first = begin * CHUNK_ELEMENTS, last = end * CHUNK_ELEMENTS;
    (void)thread;
    pome_encode_bits(p->out + first / 8 * p->bits, p->codes + first, (last < p->n ? last : p->n) - first, p->bits);
}

/* n codes at element `at`, which begins a byte. */
static pome_status put_codes(const band *b, const pome_blob_slot *slot, uint64_t at, uint8_t *packed, const uint8_t *codes,
                             size_t n, pome_error *err)
{
    packing p = {packed, codes, n, pome_dtype_bits(b->job->code)};
    if (p.bits == 8)
        return pome_blob_writer_put(b->to->writer, slot, at, codes, n, err);
    pome_pool_run(b->to->pool, (n + CHUNK_ELEMENTS - 1) / CHUNK_ELEMENTS, 1, pack_chunk, &p);
    return pome_blob_writer_put(b->to->writer, slot, at * p.bits / 8, packed, (n * p.bits + 7) / 8, err);
}

static pome_status put_halves(const band *b, const pome_blob_slot *slot, uint64_t at, const uint16_t *halves, size_t n,
                              pome_error *err)
{
    return pome_blob_writer_put(b->to->writer, slot, at * 2, halves, n * 2, err);
}

static pome_status put_band(const band *b, pome_error *err)
{
    const pome_weight_job *job = b->job;
    size_t n_cols = (size_t)job->weight.n_cols, n = (size_t)b->n_rows * n_cols;
    uint64_t at = (uint64_t)b->row * n_cols;
    if (job->form == POME_FORM_FLOAT)
        return pome_blob_writer_put(b->to->writer, &job->data, at * 4, b->values, n * 4, err);
    if (job->form == POME_FORM_HALF)
        return put_halves(b, &job->data, at, b->halves, n, err);
    POME_TRY(put_codes(b, &job->data, at, b->packed, b->codes, n, err));
    if (job->form == POME_FORM_PALETTE)
        return POME_OK;
    at /= (uint64_t)job->block;
    n /= (size_t)job->block;
    POME_TRY(put_halves(b, &job->scale, at, b->scales, n, err));
    if (job->form == POME_FORM_ASYMMETRIC)
        return put_codes(b, &job->offset, at, b->offset_packed, b->offset_codes, n, err);
    return job->offset.n_elements ? put_halves(b, &job->offset, at, b->offset_halves, n, err) : POME_OK;
}

/* `passes`: how often the rows are gone through in all. */
static pome_status note_progress(const band *b, int64_t n_rows, int passes, pome_error *err)
{
    pome_weight_writing *to = b->to;
    to->done_bytes += (uint64_t)n_rows * b->job->weight.row_bytes / (uint64_t)passes;
    if (to->progress && !to->progress(to->progress_arg, b->job->weight.name, to->done_bytes, to->total_bytes))
        return pome_fail(err, POME_ERR_CANCELLED, "stopped while writing %s", b->job->weight.name);
    return POME_OK;
}

/* ---- scales per block ---- */

static void encode_row(band *b, worker *t, size_t row)
{
    const pome_weight_job *job = b->job;
    const pome_weight *w = &job->weight;
    size_t n = (size_t)w->n_cols, at = row * n, scale_at = job->block ? at / (size_t)job->block : 0;
    int64_t source_row = b->row + (int64_t)row;
    size_t block = (size_t)job->block;
    if (job->form == POME_FORM_KEPT) {
        t->n_bad += pome_encode_kept((int8_t *)b->codes + at, b->scales + scale_at, b->offset_halves + scale_at,
                                     w->encoding, pome_weight_row(w, source_row), n, &t->worst);
        return;
    }
    float *values = job->form == POME_FORM_FLOAT ? b->values + at : t->row;
    pome_weight_decode(w, source_row, values);
    if (job->form == POME_FORM_FLOAT)
        return;
    if (job->form == POME_FORM_HALF)
        t->n_bad += pome_encode_halves(b->halves + at, values, n);
    else if (job->form == POME_FORM_ASYMMETRIC)
        t->n_bad += pome_encode_asymmetric(b->codes + at, b->scales + scale_at, b->offset_codes + scale_at, values, n, block,
                                           job->code == POME_DTYPE_U4 ? 15 : 255);
    else
        t->n_bad += (job->searches ? pome_encode_search : pome_encode_symmetric)(
            (int8_t *)b->codes + at, b->scales + scale_at, values, n, block, job->code == POME_DTYPE_I4 ? 7 : 127);
}

static void encode_rows(void *arg, size_t begin, size_t end, int thread)
{
    band *b = arg;
    for (size_t row = begin; row < end; row++)
        encode_row(b, &b->workers[thread], row);
}

static pome_status write_rows(band *b, pome_error *err)
{
    const pome_weight *w = &b->job->weight;
    int64_t band_rows = band_rows_of(w, w->n_rows);
    size_t n_scales = b->job->block ? (size_t)(band_rows * w->n_cols / b->job->block) : 0;
    POME_TRY(make_band(b, band_rows, n_scales, 0, err));
    for (b->row = 0; b->row < w->n_rows; b->row += b->n_rows) {
        b->n_rows = w->n_rows - b->row < band_rows ? w->n_rows - b->row : band_rows;
        pome_pool_run(b->to->pool, (size_t)b->n_rows, grain_of(w->n_cols), encode_rows, b);
        POME_TRY(put_band(b, err));
        POME_TRY(note_progress(b, b->n_rows, 1, err));
    }
    return POME_OK;
}

/* ---- palettes ---- */

static size_t halves_of_row(const band *b, worker *t, int64_t row, uint16_t *out)
{
    pome_weight_decode(&b->job->weight, row, t->row);
    return pome_encode_halves(out, t->row, (size_t)b->job->weight.n_cols);
}

/* Groups that fit into memory: each thread makes whole groups. */
static void make_groups(void *arg, size_t begin, size_t end, int thread)
{
    band *b = arg;
    const pome_weight_job *job = b->job;
    worker *t = &b->workers[thread];
    size_t n_cols = (size_t)job->weight.n_cols, rows = (size_t)job->group_rows, n = rows * n_cols;
    uint32_t bits = pome_dtype_bits(job->code);
    for (size_t group = begin; group < end; group++) {
        for (size_t i = 0; i < rows; i++)
            t->n_bad += halves_of_row(b, t, b->row + (int64_t)(group * rows + i), t->halves + i * n_cols);
        pome_palette_clear(&t->maker);
        pome_palette_count(&t->maker, t->halves, n);
        pome_palette_make(&t->maker, bits, job->palette);
        pome_palette_indices(&t->maker, b->codes + group * n, t->halves, n);
        memcpy(b->scales + (group << bits), t->maker.table, sizeof *b->scales << bits);
    }
}

static pome_status write_small_groups(band *b, pome_error *err)
{
    const pome_weight_job *job = b->job;
    const pome_weight *w = &job->weight;
    uint32_t bits = pome_dtype_bits(job->code);
    int64_t n = job->group_rows * w->n_cols, n_groups = BAND_ELEMENTS / n / WHOLE_BYTES * WHOLE_BYTES;
    n_groups = n_groups > 2 * WHOLE_BYTES ? n_groups : 2 * WHOLE_BYTES;
    n_groups = n_groups < w->n_rows / job->group_rows ? n_groups : w->n_rows / job->group_rows;
    POME_TRY(make_band(b, n_groups * job->group_rows, (size_t)n_groups << bits, (size_t)n, err));
    for (b->row = 0; b->row < w->n_rows; b->row += b->n_rows) {
        int64_t rows = n_groups * job->group_rows, first = b->row / job->group_rows;
        b->n_rows = w->n_rows - b->row < rows ? w->n_rows - b->row : rows;
        size_t now = (size_t)(b->n_rows / job->group_rows);
        pome_pool_run(b->to->pool, now, 1, make_groups, b);
        POME_TRY(put_band(b, err));
        POME_TRY(put_halves(b, &job->scale, (uint64_t)first << bits, b->scales, now << bits, err));
        POME_TRY(note_progress(b, b->n_rows, 1, err));
    }
    return POME_OK;
}

/* Groups that do not: their rows are gone through twice, for the table and for the indices. */
static void palette_rows(void *arg, size_t begin, size_t end, int thread)
{
    band *b = arg;
    worker *t = &b->workers[thread];
    size_t n_cols = (size_t)b->job->weight.n_cols;
    for (size_t row = begin; row < end; row++) {
        size_t n_bad = halves_of_row(b, t, b->row + (int64_t)row, t->halves);
        if (b->counts) {
            pome_palette_count(&t->maker, t->halves, n_cols);
            t->n_bad += n_bad;
        } else {
            pome_palette_indices(&b->workers[0].maker, b->codes + row * n_cols, t->halves, n_cols);
        }
    }
}

static pome_status go_through_group(band *b, int64_t first, int64_t band_rows, bool counts, pome_error *err)
{
    const pome_weight_job *job = b->job;
    b->counts = counts;
    for (b->row = first; b->row < first + job->group_rows; b->row += b->n_rows) {
        int64_t left = first + job->group_rows - b->row;
        b->n_rows = left < band_rows ? left : band_rows;
        pome_pool_run(b->to->pool, (size_t)b->n_rows, grain_of(job->weight.n_cols), palette_rows, b);
        if (!counts)
            POME_TRY(put_band(b, err));
        POME_TRY(note_progress(b, b->n_rows, 2, err));
    }
    return POME_OK;
}

static pome_status write_large_groups(band *b, pome_error *err)
{
    const pome_weight_job *job = b->job;
    const pome_weight *w = &job->weight;
    uint32_t bits = pome_dtype_bits(job->code);
    int64_t band_rows = band_rows_of(w, job->group_rows);
    POME_TRY(make_band(b, band_rows, 0, (size_t)w->n_cols, err));
    for (int64_t first = 0; first < w->n_rows; first += job->group_rows) {
        for (int i = 0; i < b->n_workers; i++)
            pome_palette_clear(&b->workers[i].maker);
        POME_TRY(go_through_group(b, first, band_rows, true, err));
        for (int i = 1; i < b->n_workers; i++)
            pome_palette_merge(&b->workers[0].maker, &b->workers[i].maker);
        pome_palette_make(&b->workers[0].maker, bits, job->palette);
        POME_TRY(put_halves(b, &job->scale, (uint64_t)(first / job->group_rows) << bits, b->workers[0].maker.table,
                            (size_t)1 << bits, err));
        POME_TRY(go_through_group(b, first, band_rows, false, err));
    }
    return POME_OK;
}

static pome_status write_palettes(band *b, pome_error *err)
{
    const pome_weight_job *job = b->job;
    int64_t n = job->group_rows * job->weight.n_cols;
    bool fills_bytes = n % WHOLE_BYTES == 0 || job->group_rows == job->weight.n_rows;
    return n > BAND_ELEMENTS && fills_bytes ? write_large_groups(b, err) : write_small_groups(b, err);
}

/* ---- jobs ---- */

static pome_status write_records(const pome_weight_job *job, const pome_blob_writer *writer, pome_error *err)
{
    POME_TRY(pome_blob_writer_record(writer, &job->data, err));
    if (job->scale.n_elements)
        POME_TRY(pome_blob_writer_record(writer, &job->scale, err));
    if (job->offset.n_elements)
        POME_TRY(pome_blob_writer_record(writer, &job->offset, err));
    return POME_OK;
}

static void gather_results(const band *b)
{
    size_t n_bad = 0;
    pome_encode_error *worst = &b->to->worst;
    for (int i = 0; b->workers && i < b->n_workers; i++) {
        const worker *t = &b->workers[i];
        n_bad += t->n_bad;
        worst->steps = t->worst.steps > worst->steps ? t->worst.steps : worst->steps;
        worst->beyond = t->worst.beyond > worst->beyond ? t->worst.beyond : worst->beyond;
        worst->absolute = t->worst.absolute > worst->absolute ? t->worst.absolute : worst->absolute;
    }
    if (n_bad)
        pome_log(POME_LOG_WARN, "%s: %zu elements are beyond the range of fp16 or no numbers; they become the nearest fp16 "
                 "number, NaN becomes 0", b->job->weight.name, n_bad);
}

pome_status pome_weight_job_write(const pome_weight_job *job, pome_weight_writing *to, pome_error *err)
{
    POME_TRY(write_records(job, to->writer, err));
    if (job->table)
        return pome_blob_writer_put(to->writer, &job->data, 0, job->table, (size_t)job->data.size_bytes, err);
    band b = {.job = job, .to = to};
    pome_status status = job->form == POME_FORM_PALETTE ? write_palettes(&b, err) : write_rows(&b, err);
    if (status == POME_OK)
        gather_results(&b);
    free_band(&b);
    return status;
}
