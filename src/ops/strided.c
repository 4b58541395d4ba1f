/* The strided copy. A copy is brought to a normal form first: axes of size 1 dropped, reversed axes of the
 * destination turned round, axes sorted by the destination's stride, neighbours merged. What is left is walked as
 * a grid of two-dimensional pieces over the last two axes, so that the loops that touch elements are of three
 * kinds only: whole rows, strided elements, square tiles (when the source runs fastest along another axis than
 * the destination does). */
#include "ops/strided.h"

#include <string.h>

#include "base/f16.h"

enum { KIND_1, KIND_2, KIND_4, KIND_8, KIND_H2F, KIND_F2H };

/* Elements of one piece: 64 KiB of floats each side stay in a second-level cache. */
enum { PIECE_ROW = 1 << 15, PIECE = 1 << 14, TILE = 32 };

/* ---- two-dimensional pieces ---- */
typedef struct piece {
    int64_t n0, d0, s0; /* outer axis: count, destination and source bytes */
    int64_t n1, d1, s1; /* inner axis */
} piece;

static inline void move_1(char *d, const char *s)
{
    *d = *s;
}
static inline void move_2(char *d, const char *s)
{
    memcpy(d, s, 2);
}
static inline void move_4(char *d, const char *s)
{
    memcpy(d, s, 4);
}
static inline void move_8(char *d, const char *s)
{
    memcpy(d, s, 8);
}
static inline void move_h2f(char *d, const char *s)
{
    uint16_t h;
    memcpy(&h, s, sizeof h);
    float f = pome_f16_to_f32(h);
    memcpy(d, &f, sizeof f);
}
static inline void move_f2h(char *d, const char *s)
{
    float f;
    memcpy(&f, s, sizeof f);
    uint16_t h = pome_f32_to_f16(f);
    memcpy(d, &h, sizeof h);
}

#define DEFINE_STRIDED(name)                                                                        \
    static void strided_##name(const piece *p, char *d, const char *s)                              \
    {                                                                                               \
        for (int64_t i = 0; i < p->n0; i++, d += p->d0, s += p->s0)                                 \
            for (int64_t j = 0; j < p->n1; j++)                                                     \
                move_##name(d + j * p->d1, s + j * p->s1);                                          \
    }
DEFINE_STRIDED(1)
DEFINE_STRIDED(2)
DEFINE_STRIDED(4)
DEFINE_STRIDED(8)
DEFINE_STRIDED(h2f)
DEFINE_STRIDED(f2h)

typedef void strided_fn(const piece *p, char *d, const char *s);
static strided_fn *const strided_fns[] = {strided_1, strided_2, strided_4, strided_8, strided_h2f, strided_f2h};

/* d[i][j] = tile[j][i]: m rows of n elements, rows of d `stride` bytes apart, of the tile TILE elements. */
#define DEFINE_TURN(size)                                                                           \
    static void turn_##size(char *d, int64_t stride, const char *tile, int64_t m, int64_t n)        \
    {                                                                                               \
        for (int64_t i = 0; i < m; i++, d += stride, tile += size)                                  \
            for (int64_t j = 0; j < n; j++)                                                         \
                move_##size(d + j * size, tile + j * TILE * size);                                  \
    }
DEFINE_TURN(1)
DEFINE_TURN(2)
DEFINE_TURN(4)
DEFINE_TURN(8)

/* One element repeated: the copied part doubles until the row is full. */
static void repeat_element(char *d, const char *s, size_t size, size_t len_bytes)
{
    memcpy(d, s, size);
    for (size_t done = size; done < len_bytes; done *= 2)
        memcpy(d + done, d, done < len_bytes - done ? done : len_bytes - done);
}

/* n elements from contiguous to contiguous memory. */
static void copy_run_of(const pome_copy *c, const pome_kernels *k, char *d, const char *s, int64_t n)
{
    piece p = {1, 0, 0, n, c->dst_size, c->src_size};
    if (c->kind < KIND_H2F)
        memcpy(d, s, (size_t)(n * c->dst_size));
    else if (!k)
        strided_fns[c->kind](&p, d, s);
    else if (c->kind == KIND_H2F)
        k->f16_to_f32((float *)(void *)d, (const uint16_t *)(const void *)s, (size_t)n);
    else
        k->f32_to_f16((uint16_t *)(void *)d, (const float *)(const void *)s, (size_t)n);
}

/* A transposition: the source is contiguous along the outer axis, the destination along the inner one. Each square
 * goes through a buffer, so that both sides see whole cache lines and strides that are powers of two do no harm. */
static void copy_tiles(const pome_copy *c, const pome_kernels *k, const piece *p, char *d, const char *s)
{
    _Alignas(64) char tile[TILE * TILE * 8];
    for (int64_t i0 = 0; i0 < p->n0; i0 += TILE) {
        int64_t m = p->n0 - i0 < TILE ? p->n0 - i0 : TILE;
        for (int64_t j0 = 0; j0 < p->n1; j0 += TILE) {
            int64_t n = p->n1 - j0 < TILE ? p->n1 - j0 : TILE;
            const char *from = s + i0 * p->s0 + j0 * p->s1;
            char *to = d + i0 * p->d0 + j0 * p->d1;
            for (int64_t j = 0; j < n; j++)
                copy_run_of(c, k, tile + j * TILE * c->dst_size, from + j * p->s1, m);
            switch (c->dst_size) {
            case 1:
                turn_1(to, p->d0, tile, m, n);
                break;
            case 2:
                turn_2(to, p->d0, tile, m, n);
                break;
            case 4:
                turn_4(to, p->d0, tile, m, n);
                break;
            default:
                turn_8(to, p->d0, tile, m, n);
                break;
            }
        }
    }
}

static void copy_piece(const pome_copy *c, const pome_kernels *k, const piece *p, char *d, const char *s)
{
    if (c->is_tiled) {
        copy_tiles(c, k, p, d, s);
        return;
    }
    bool is_fill = p->s1 == 0 && c->kind < KIND_H2F;
    if (p->d1 != c->dst_size || (p->s1 != c->src_size && !is_fill)) {
        strided_fns[c->kind](p, d, s);
        return;
    }
    for (int64_t i = 0; i < p->n0; i++, d += p->d0, s += p->s0) {
        if (is_fill)
            repeat_element(d, s, (size_t)c->dst_size, (size_t)(p->n1 * c->dst_size));
        else
            copy_run_of(c, k, d, s, p->n1);
    }
}

/* ---- normal form ---- */
static int32_t copy_kind(pome_dtype dst, pome_dtype src)
{
    if (dst != src)
        return dst == POME_DTYPE_F32 ? KIND_H2F : KIND_F2H;
    switch (pome_elem_size(dst)) {
    case 1:
        return KIND_1;
    case 2:
        return KIND_2;
    case 4:
        return KIND_4;
    default:
        return KIND_8;
    }
}

static void sort_axes(pome_copy *c)
{
    for (int32_t i = 1; i < c->rank; i++) {
        pome_copy_axis a = c->axis[i];
        int32_t j = i;
        for (; j > 0 && c->axis[j - 1].dst < a.dst; j--)
            c->axis[j] = c->axis[j - 1];
        c->axis[j] = a;
    }
}

static void merge_axes(pome_copy *c)
{
    int32_t kept = 0;
    for (int32_t i = 0; i < c->rank; i++) {
        pome_copy_axis a = c->axis[i];
        if (kept > 0) {
            pome_copy_axis *outer = &c->axis[kept - 1];
            if (outer->dst == a.n * a.dst && outer->src == a.n * a.src) {
                a.n *= outer->n;
                *outer = a;
                continue;
            }
        }
        c->axis[kept++] = a;
    }
    c->rank = kept;
}

/* If the source runs along another axis than the destination, that axis comes second to last. */
static void choose_tiles(pome_copy *c)
{
    if (c->rank < 2)
        return;
    pome_copy_axis *inner = &c->axis[c->rank - 1];
    if (inner->dst != c->dst_size || inner->src == c->src_size || inner->src == 0)
        return;
    for (int32_t i = c->rank - 2; i >= 0; i--) {
        if (c->axis[i].src != c->src_size)
            continue;
        pome_copy_axis a = c->axis[i];
        for (int32_t j = i; j < c->rank - 2; j++)
            c->axis[j] = c->axis[j + 1];
        c->axis[c->rank - 2] = a;
        c->is_tiled = true;
        return;
    }
}

void pome_copy_init(pome_copy *c, pome_dtype dst_dtype, pome_dtype src_dtype, int32_t rank, const int64_t *shape,
                    const int64_t *dst_stride, const int64_t *src_stride)
{
    memset(c, 0, sizeof *c);
    c->kind = copy_kind(dst_dtype, src_dtype);
    c->dst_size = (int32_t)pome_elem_size(dst_dtype);
    c->src_size = (int32_t)pome_elem_size(src_dtype);
    c->count = 1;
    for (int32_t i = 0; i < rank; i++) {
        if (shape[i] == 0) {
            c->count = 0;
            return;
        }
    }
    for (int32_t i = 0; i < rank; i++) {
        if (shape[i] == 1)
            continue;
        pome_copy_axis a = {shape[i], dst_stride[i] * c->dst_size, src_stride[i] * c->src_size};
        if (a.dst < 0) {
            c->dst_offset += (a.n - 1) * a.dst;
            c->src_offset += (a.n - 1) * a.src;
            a.dst = -a.dst;
            a.src = -a.src;
        }
        c->count *= a.n;
        c->axis[c->rank++] = a;
    }
    sort_axes(c);
    merge_axes(c);
    choose_tiles(c);
}

/* ---- running ---- */
typedef struct copy_run {
    const pome_copy *c;
    const pome_kernels *kernels;
    char *dst;
    const char *src;
    piece whole;               /* the last two axes */
    int64_t len0, len1;        /* of a piece along each */
    int64_t n_pieces0, n_pieces1;
    int32_t n_outer;           /* axes before the last two */
} copy_run;

static void run_items(void *arg, size_t begin, size_t end, int thread)
{
    (void)thread;
    const copy_run *r = arg;
    int64_t at[POME_COPY_MAX_RANK] = {0}, dst = 0, src = 0;
    int64_t per_outer = r->n_pieces0 * r->n_pieces1;
    int64_t outer = (int64_t)begin / per_outer, inner = (int64_t)begin % per_outer;
    for (int32_t d = r->n_outer - 1; d >= 0; d--) {
        const pome_copy_axis *a = &r->c->axis[d];
        at[d] = outer % a->n;
        outer /= a->n;
        dst += at[d] * a->dst;
        src += at[d] * a->src;
    }
    for (size_t item = begin; item < end; item++) {
        int64_t i0 = inner / r->n_pieces1 * r->len0, i1 = inner % r->n_pieces1 * r->len1;
        piece p = r->whole;
        p.n0 = p.n0 - i0 < r->len0 ? p.n0 - i0 : r->len0;
        p.n1 = p.n1 - i1 < r->len1 ? p.n1 - i1 : r->len1;
        copy_piece(r->c, r->kernels, &p, r->dst + dst + i0 * p.d0 + i1 * p.d1, r->src + src + i0 * p.s0 + i1 * p.s1);
        if (++inner < per_outer)
            continue;
        inner = 0;
        for (int32_t d = r->n_outer - 1; d >= 0; d--) { /* the next outer position */
            const pome_copy_axis *a = &r->c->axis[d];
            dst += a->dst;
            src += a->src;
            if (++at[d] < a->n)
                break;
            at[d] = 0;
            dst -= a->n * a->dst;
            src -= a->n * a->src;
        }
    }
}

void pome_copy_run(const pome_copy *c, void *dst, const void *src, pome_pool *pool, const pome_kernels *kernels)
{
    if (c->count == 0)
        return;
    copy_run r = {.c = c, .kernels = kernels, .whole = {1, 0, 0, 1, c->dst_size, c->src_size}};
    r.dst = (char *)dst + c->dst_offset;
    r.src = (const char *)src + c->src_offset;
    if (c->rank > 0) {
        const pome_copy_axis *a = &c->axis[c->rank - 1];
        r.whole.n1 = a->n, r.whole.d1 = a->dst, r.whole.s1 = a->src;
    }
    if (c->rank > 1) {
        const pome_copy_axis *a = &c->axis[c->rank - 2];
        r.whole.n0 = a->n, r.whole.d0 = a->dst, r.whole.s0 = a->src;
    }
    r.n_outer = c->rank > 2 ? c->rank - 2 : 0;
    int64_t len1_max = c->is_tiled ? PIECE / TILE : PIECE_ROW;
    r.len1 = r.whole.n1 < len1_max ? r.whole.n1 : len1_max;
    r.len0 = PIECE / r.len1;
    r.len0 = r.len0 < 1 ? 1 : r.len0 > r.whole.n0 ? r.whole.n0 : r.len0;
    r.n_pieces0 = (r.whole.n0 + r.len0 - 1) / r.len0;
    r.n_pieces1 = (r.whole.n1 + r.len1 - 1) / r.len1;
    size_t n_items = (size_t)(r.n_pieces0 * r.n_pieces1);
    for (int32_t d = 0; d < r.n_outer; d++)
        n_items *= (size_t)c->axis[d].n;
    size_t grain = (size_t)(PIECE / (r.len0 * r.len1));
    grain = grain < 1 ? 1 : grain;
    if (n_items <= grain)
        run_items(&r, 0, n_items, 0);
    else
        pome_pool_run(pool, n_items, grain, run_items, &r);
}

static bool is_plain_pair(pome_dtype dst, pome_dtype src)
{
    return dst == src || (dst == POME_DTYPE_F32 && src == POME_DTYPE_F16) ||
           (dst == POME_DTYPE_F16 && src == POME_DTYPE_F32);
}

void pome_strided_copy(const pome_tensor *dst, const pome_tensor *src, pome_pool *pool, const pome_kernels *kernels)
{
    if (!is_plain_pair(dst->dtype, src->dtype)) {
        pome_status status = pome_tensor_copy(dst, src, NULL); /* equal shapes: cannot fail */
        (void)status;
        return;
    }
    pome_copy c;
    pome_copy_init(&c, dst->dtype, src->dtype, dst->rank, dst->shape, dst->stride, src->stride);
    pome_copy_run(&c, dst->data, src->data, pool, kernels);
}

void pome_strided_fill(const pome_tensor *t, const void *value, pome_pool *pool)
{
    static const int64_t none[POME_MAX_RANK];
    pome_copy c;
    pome_copy_init(&c, t->dtype, t->dtype, t->rank, t->shape, t->stride, none);
    pome_copy_run(&c, t->data, value, pool, NULL);
}

/* ---- views ---- */
bool pome_strided_reshape(pome_tensor *out, const pome_tensor *in)
{
    int64_t shape[POME_MAX_RANK], stride[POME_MAX_RANK], result[POME_MAX_RANK] = {0};
    int32_t n = 0, o = 0;
    int64_t count = 1;
    for (int32_t d = 0; d < in->rank; d++) {
        count *= in->shape[d];
        if (in->shape[d] == 1)
            continue;
        shape[n] = in->shape[d];
        stride[n++] = in->stride[d];
    }
    if (count == 0) {
        out->dtype = in->dtype;
        out->data = in->data;
        pome_stride_row_major(out);
        return true;
    }
    /* Groups of input axes and of output axes with equal products; within a group the input must be one run. */
    for (int32_t i = 0; i < n;) {
        int64_t have = shape[i], want = 1;
        int32_t last = i, first_out = o;
        while (want != have) {
            if (want < have) {
                if (o >= out->rank)
                    return false;
                want *= out->shape[o++];
            } else {
                last++;
                if (last >= n || stride[last - 1] != shape[last] * stride[last])
                    return false;
                have *= shape[last];
            }
        }
        int64_t step = stride[last];
        for (int32_t d = o - 1; d >= first_out; d--) {
            result[d] = step;
            step *= out->shape[d];
        }
        i = last + 1;
    }
    for (int32_t d = out->rank - 1; d >= 0; d--) /* size 1: any stride; keep the contiguous look */
        if (out->shape[d] == 1)
            result[d] = d + 1 < out->rank ? result[d + 1] * out->shape[d + 1] : 1;
    out->dtype = in->dtype;
    out->data = in->data;
    memcpy(out->stride, result, sizeof result);
    return true;
}

static void span_of(const pome_tensor *t, uintptr_t *first, uintptr_t *end)
{
    int64_t low = 0, high = 0, size = pome_elem_size(t->dtype);
    for (int32_t d = 0; d < t->rank; d++) {
        int64_t reach = (t->shape[d] - 1) * t->stride[d];
        *(reach < 0 ? &low : &high) += reach;
    }
    *first = (uintptr_t)t->data + (uintptr_t)(low * size);
    *end = (uintptr_t)t->data + (uintptr_t)((high + 1) * size);
}

bool pome_strided_overlap(const pome_tensor *a, const pome_tensor *b)
{
    for (int32_t d = 0; d < a->rank; d++)
        if (a->shape[d] == 0)
            return false;
    for (int32_t d = 0; d < b->rank; d++)
        if (b->shape[d] == 0)
            return false;
    uintptr_t a_first, a_end, b_first, b_end;
    span_of(a, &a_first, &a_end);
    span_of(b, &b_first, &b_end);
    return a_first < b_end && b_first < a_end;
}

bool pome_strided_same(const pome_tensor *a, const pome_tensor *b)
{
    if (a->data != b->data || a->dtype != b->dtype || a->rank != b->rank)
        return false;
    for (int32_t d = 0; d < a->rank; d++)
        if (a->shape[d] != b->shape[d] || (a->shape[d] > 1 && a->stride[d] != b->stride[d]))
            return false;
    return true;
}
