#include "ops/attention_mask.h"

#include <math.h>
#include <string.h>

#include "base/f16.h"

/* -30000 and -infinity as halves: what lies between them, as numbers, is closed. */
enum { CLOSED_LOW = 0xf753, CLOSED_HIGH = 0xfc00, SPAN = 64 };

typedef enum element { OPEN_ZERO, OPEN, CLOSED, NEVER } element;

static int64_t key_stride(const pome_tensor *t)
{
    return t->rank && t->shape[t->rank - 1] != 1 ? t->stride[t->rank - 1] : 0;
}

static element of_float(float v)
{
    return v == 0 ? OPEN_ZERO : v == -INFINITY ? NEVER : v <= POME_MASK_CLOSED ? CLOSED : OPEN;
}

static element element_at(const pome_tensor *t, int64_t offset)
{
    if (t->dtype == POME_DTYPE_F16)
        return of_float(pome_f16_to_f32(((const uint16_t *)t->data)[offset]));
    if (t->dtype == POME_DTYPE_F32)
        return of_float(((const float *)t->data)[offset]);
    return ((const uint8_t *)t->data)[offset] ? OPEN_ZERO : NEVER;
}

static size_t count_closed(const uint16_t *h) /* of SPAN */
{
    uint16_t n = 0;
    for (size_t i = 0; i < SPAN; i++)
        n = (uint16_t)(n + ((uint16_t)(h[i] - CLOSED_LOW) <= CLOSED_HIGH - CLOSED_LOW));
    return n;
}

static uint16_t bits_but_sign(const uint16_t *h) /* of SPAN: 0 if all are zeros */
{
    uint16_t any = 0;
    for (size_t i = 0; i < SPAN; i++)
        any |= h[i];
    return (uint16_t)(any << 1);
}

static pome_mask_row scan_row(const pome_tensor *t, int64_t offset, int64_t stride, size_t keys)
{
    const uint16_t *half = t->dtype == POME_DTYPE_F16 && stride == 1 ? (const uint16_t *)t->data + offset : NULL;
    pome_mask_row r = {.begin = 0, .end = keys, .is_plain = true};
    while (r.end > 0) {
        if (half && r.end >= SPAN && count_closed(half + r.end - SPAN) == SPAN)
            r.end -= SPAN;
        else if (element_at(t, offset + (int64_t)(r.end - 1) * stride) >= CLOSED)
            r.end--;
        else
            break;
    }
    while (r.begin < r.end) {
        if (half && r.begin + SPAN <= r.end && count_closed(half + r.begin) == SPAN)
            r.begin += SPAN;
        else if (element_at(t, offset + (int64_t)r.begin * stride) >= CLOSED)
            r.begin++;
        else
            break;
    }
    for (size_t j = r.begin; j < r.end && r.is_plain;) {
        if (half && j + SPAN <= r.end && bits_but_sign(half + j) == 0)
            j += SPAN;
        else
            r.is_plain = element_at(t, offset + (int64_t)j++ * stride) == OPEN_ZERO;
    }
    if (r.begin < r.end)
        return r;
    for (size_t j = 0; j < keys; j++)
        if (element_at(t, offset + (int64_t)j * stride) == CLOSED)
            return (pome_mask_row){.end = keys, .is_kept = true};
    return (pome_mask_row){0};
}

typedef struct scan_job {
    const pome_tensor *mask;
    size_t keys;
    pome_mask_row *rows;
} scan_job;

static void scan_rows(void *arg, size_t begin, size_t end, int thread)
{
    const scan_job *job = (const scan_job *)arg;
    const pome_tensor *t = job->mask;
    (void)thread;
    for (size_t i = begin; i < end; i++) {
        int64_t offset = 0;
        size_t rest = i;
        for (int32_t d = t->rank - 2; d >= 0; d--) {
            offset += (int64_t)(rest % (size_t)t->shape[d]) * t->stride[d];
            rest /= (size_t)t->shape[d];
        }
        job->rows[i] = scan_row(t, offset, key_stride(t), job->keys);
    }
}

size_t pome_mask_n_rows(const pome_tensor *mask)
{
    size_t n = 1;
    for (int32_t d = 0; d + 1 < mask->rank; d++)
        n *= (size_t)mask->shape[d];
    return n;
}

void pome_mask_scan(const pome_tensor *mask, size_t keys, pome_mask_row *rows, pome_pool *pool)
{
    enum { GRAIN = 1 << 16 }; /* keys: some 10 microseconds */
    scan_job job = {mask, keys, rows};
    pome_pool_run(pool, pome_mask_n_rows(mask), keys < GRAIN ? GRAIN / (keys + 1) + 1 : 1, scan_rows, &job);
}

void pome_mask_load(const pome_tensor *t, int64_t offset, const pome_mask_row *row, size_t first, size_t n,
                    const pome_kernels *kernels, float *dst)
{
    int64_t stride = key_stride(t);
    offset += (int64_t)first * stride;
    if (t->dtype == POME_DTYPE_F16 && stride == 1)
        kernels->f16_to_f32(dst, (const uint16_t *)t->data + offset, n);
    else if (t->dtype == POME_DTYPE_F32 && stride == 1)
        memcpy(dst, (const float *)t->data + offset, n * sizeof *dst);
    else
        for (size_t i = 0; i < n; i++) {
            int64_t at = offset + (int64_t)i * stride;
            if (t->dtype == POME_DTYPE_F16)
                dst[i] = pome_f16_to_f32(((const uint16_t *)t->data)[at]);
            else if (t->dtype == POME_DTYPE_F32)
                dst[i] = ((const float *)t->data)[at];
            else
                dst[i] = ((const uint8_t *)t->data)[at] ? 0.0f : -INFINITY;
        }
    for (size_t i = 0; i < n && !row->is_kept; i++)
        dst[i] = dst[i] <= POME_MASK_CLOSED ? -INFINITY : dst[i];
}
