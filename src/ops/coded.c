#include "ops/coded.h"

#include <string.h>

enum { CHUNK_BYTES = 1 << 16, ROWS_MIN = 16, CHUNKS_MIN = 16, ENTRIES = 16 };

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static pome_codes kind_of(const pome_encoded_codes *c)
{
    return c->table_f16                ? (c->code == POME_DTYPE_U6 ? POME_CODES_LUT6 : c->code == POME_DTYPE_U8 ? POME_CODES_LUT8 : POME_CODES_LUT4)
           : c->code == POME_DTYPE_I4 ? POME_CODES_I4
           : c->code == POME_DTYPE_U4 ? POME_CODES_U4
           : c->code == POME_DTYPE_I8 ? POME_CODES_I8
                                      : POME_CODES_U8;
}

bool pome_coded_init(pome_coded *w, const pome_run *r, const pome_encoded *e, size_t first, size_t n, size_t k)
{
    pome_encoded_codes c;
    if (r->numerics != POME_NUMERICS_FAST || !e || k == 0 || k % POME_Q8_BLOCK || first % k ||
        !pome_encoded_as_codes(e, &c))
        return false;
    bool palette = c.table_f16 != NULL;
    size_t first_row = first / k;
    if (palette ? c.block % k || first % c.block : c.block > k || c.block % POME_Q8_BLOCK || k % c.block)
        return false;
    w->codes = kind_of(&c);
    w->kernels = &r->kernels->coded[w->codes];
    w->widen = r->kernels->widen_indices;
    if (!w->kernels->times)
        return false;
    w->n = n;
    w->row_bytes = k * pome_dtype_bits(c.code) / 8;
    w->per_row = palette ? 0 : k / c.block;
    w->table_rows = palette ? c.block / k : n;
    w->rows = (pome_coded_rows){.k = k, .block = palette ? k : c.block};
    w->rows.codes = (const uint8_t *)c.codes + first_row * w->row_bytes;
    w->rows.scale_f16 = palette ? NULL : c.scale_f16 + first_row * w->per_row;
    w->rows.offset_f16 = c.offset_f16 ? c.offset_f16 + first_row * w->per_row : NULL;
    w->index_bits = pome_dtype_bits(c.code);
    w->rows.table_f16 = palette ? c.table_f16 + (first / c.block << w->index_bits) : NULL;
    return true;
}

bool pome_coded_init_dense(pome_coded *w, const pome_run *r, pome_dtype dtype, const void *data, size_t n, size_t k)
{
    if (r->numerics != POME_NUMERICS_FAST || !data || k == 0 || k % POME_Q8_BLOCK ||
        (dtype != POME_DTYPE_F16 && dtype != POME_DTYPE_F32))
        return false;
    *w = (pome_coded){.codes = dtype == POME_DTYPE_F16 ? POME_CODES_F16 : POME_CODES_F32, .n = n, .table_rows = n};
    w->kernels = &r->kernels->coded[w->codes];
    w->row_bytes = pome_codes_bytes(w->codes, k);
    w->rows = (pome_coded_rows){.k = k, .block = k, .codes = data};
    return w->kernels->times != NULL;
}

size_t pome_coded_activation_bytes(const pome_coded *w, size_t m)
{
    return round_up(w->kernels->q8_size(m, w->rows.k), 64);
}

static bool is_narrow(const pome_coded *w)
{
    return w->codes == POME_CODES_LUT4 && w->index_bits < 4;
}

static size_t kernel_bytes(const pome_coded *w, size_t m)
{
    return round_up(w->kernels->scratch(m, w->rows.k), 64);
}

size_t pome_coded_thread_bytes(const pome_coded *w, size_t m)
{
    return kernel_bytes(w, m) + (is_narrow(w) ? round_up(ROWS_MIN * w->rows.k / 2, 64) : 0);
}

typedef struct set_job {
    const pome_coded *w;
    void *q8;
    const float *x;
    size_t ldx, m;
} set_job;

static void set_rows(void *arg, size_t begin, size_t end, int thread)
{
    const set_job *job = (const set_job *)arg;
    (void)thread;
    job->w->kernels->q8_set(job->q8, job->m, job->w->rows.k, begin, end - begin, job->x + begin * job->ldx, job->ldx);
}

void pome_coded_set(const pome_coded *w, pome_pool *pool, void *q8, const float *x, size_t ldx, size_t m)
{
    set_job job = {w, q8, x, ldx, m};
    pome_pool_run(pool, m, POME_Q8_GROUP, set_rows, &job);
}

/* Rows of narrow indices that share a table. */
static void times_narrow(const pome_coded *w, const void *q8, size_t m, const pome_coded_rows *rows, size_t n, float *y,
                         size_t ldy, void *thread_scratch)
{
    uint8_t *nibbles = (uint8_t *)thread_scratch + kernel_bytes(w, m);
    const uint8_t *bits = (const uint8_t *)rows->codes;
    uint16_t table[ENTRIES] = {0};
    memcpy(table, rows->table_f16, sizeof *table << w->index_bits);
    pome_coded_rows part = *rows;
    part.codes = nibbles;
    part.table_f16 = table;
    for (size_t first = 0; first < n; first += ROWS_MIN) {
        size_t len = n - first < ROWS_MIN ? n - first : ROWS_MIN;
        w->widen(nibbles, bits + first * w->row_bytes, w->index_bits, len * w->rows.k);
        w->kernels->times(y + first, ldy, q8, m, &part, len, thread_scratch);
    }
}

void pome_coded_times(const pome_coded *w, const void *q8, size_t m, size_t first, size_t n, float *y, size_t ldy,
                      void *thread_scratch)
{
    for (size_t end = first + n, len; first < end; first += len, y += len) {
        size_t in_table = w->table_rows - first % w->table_rows;
        len = end - first < in_table ? end - first : in_table;
        pome_coded_rows part = w->rows;
        part.codes = (const uint8_t *)w->rows.codes + first * w->row_bytes;
        part.scale_f16 = w->rows.scale_f16 ? w->rows.scale_f16 + first * w->per_row : NULL;
        part.offset_f16 = w->rows.offset_f16 ? w->rows.offset_f16 + first * w->per_row : NULL;
        part.table_f16 = w->rows.table_f16 ? w->rows.table_f16 + (first / w->table_rows << w->index_bits) : NULL;
        if (is_narrow(w))
            times_narrow(w, q8, m, &part, len, y, ldy, thread_scratch);
        else
            w->kernels->times(y, ldy, q8, m, &part, len, thread_scratch);
    }
}

size_t pome_coded_grain(const pome_coded *w, size_t m)
{
    size_t rows = m > 1 ? 2 * ROWS_MIN : round_up(CHUNK_BYTES / w->row_bytes + 1, ROWS_MIN);
    size_t share = round_up(w->n / CHUNKS_MIN + 1, ROWS_MIN);
    return rows < share ? rows : share;
}
