#include "ops/coded.h"

enum { CHUNK_BYTES = 1 << 16, ROWS_MIN = 16, CHUNKS_MIN = 16 };

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static bool kind_of(const pome_encoded_blocks *b, pome_codes *codes)
{
    switch (b->code) {
    case POME_DTYPE_I4:
        *codes = POME_CODES_I4;
        return true;
    case POME_DTYPE_U4:
        *codes = POME_CODES_U4;
        return true;
    case POME_DTYPE_I8:
        *codes = POME_CODES_I8;
        return true;
    default:
        return false;
    }
}

bool pome_coded_init(pome_coded *w, const pome_run *r, const pome_encoded *e, size_t first, size_t n, size_t k)
{
    pome_encoded_blocks b;
    if (r->numerics != POME_NUMERICS_FAST || !e || k == 0 || k % POME_Q8_BLOCK || !pome_encoded_as_blocks(e, &b))
        return false;
    size_t block = b.block % k == 0 ? k : b.block; /* a block of whole rows */
    if (!kind_of(&b, &w->codes) || block % POME_Q8_BLOCK || k % block || b.block > k || first % b.block)
        return false;
    w->kernels = &r->kernels->coded[w->codes];
    if (!w->kernels->times)
        return false;
    w->n = n;
    w->row_bytes = b.code == POME_DTYPE_I8 ? k : k / 2;
    w->per_row = k / block;
    w->rows = (pome_coded_rows){.k = k, .block = block};
    w->rows.codes = (const uint8_t *)b.codes + first / k * w->row_bytes;
    w->rows.scale_f16 = b.scale_f16 + first / block;
    w->rows.offset_f16 = b.offset_f16 ? b.offset_f16 + first / block : NULL;
    return first % k == 0;
}

size_t pome_coded_activation_bytes(const pome_coded *w, size_t m)
{
    return round_up(w->kernels->q8_size(m, w->rows.k), 64);
}

size_t pome_coded_thread_bytes(const pome_coded *w, size_t m)
{
    return round_up(w->kernels->scratch(m, w->rows.k), 64);
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

void pome_coded_times(const pome_coded *w, const void *q8, size_t m, size_t first, size_t n, float *y, size_t ldy,
                      void *thread_scratch)
{
    pome_coded_rows part = w->rows;
    part.codes = (const uint8_t *)w->rows.codes + first * w->row_bytes;
    part.scale_f16 = w->rows.scale_f16 + first * w->per_row;
    part.offset_f16 = w->rows.offset_f16 ? w->rows.offset_f16 + first * w->per_row : NULL;
    w->kernels->times(y, ldy, q8, m, &part, n, thread_scratch);
}

size_t pome_coded_grain(const pome_coded *w, size_t m)
{
    size_t rows = m > 1 ? 2 * ROWS_MIN : round_up(CHUNK_BYTES / w->row_bytes + 1, ROWS_MIN);
    size_t share = round_up(w->n / CHUNKS_MIN + 1, ROWS_MIN);
    return rows < share ? rows : share;
}
