#include "convert/kept.h"

#include <math.h>

#include "base/f16.h"
#include "convert/half_bits.h"

enum { GROUP_MAX = 32, MULTIPLE_MAX = 9, NEIGHBOURS = 1, MORE_NEIGHBOURS = 6 };
#define WANTED_STEPS 0.01f

/* A way to write a group. */
typedef struct form {
    float code[GROUP_MAX]; /* whole numbers */
    float scale, offset;   /* halves */
    float worst;           /* largest difference */
} form;

typedef struct group {
    const pome_gguf_encoding *encoding;
    float code[GROUP_MAX], wanted[GROUP_MAX];
    float scale, shift;    /* the source's */
    float low, high;       /* codes that the package's type has */
    float code_min, code_max, wanted_min, wanted_max; /* of this group */
    float rounding;        /* largest difference of the elements as halves */
    uint32_t n;
} group;

pome_dtype pome_kept_code(const pome_gguf_encoding *e)
{
    if (e->code_min >= 0)
        return e->code_max <= 15 ? POME_DTYPE_U4 : POME_DTYPE_U8;
    return e->code_min >= -8 && e->code_max <= 7 ? POME_DTYPE_I4 : POME_DTYPE_I8;
}

/* ---- differences ---- */

/* Magnitudes as bits order like integers, which makes the search for the largest a vector loop. */
static float worst_of(const float *code, float scale, float offset, const float *wanted, uint32_t n)
{
    uint32_t worst = 0;
    for (uint32_t i = 0; i < n; i++) {
        float product = scale * half_of(code[i] - offset);
        uint32_t a = pome_f32_bits(product) & 0x7fffffffu;
        uint32_t off = pome_f32_bits(half_of(product) - wanted[i]) & 0x7fffffffu;
        off = choose(a >= HALF_TOO_LARGE, 0x7f800000u, off);
        worst = off > worst ? off : worst;
    }
    return pome_f32_from_bits(worst);
}

static float rounding_of(const float *wanted, uint32_t n)
{
    uint32_t worst = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t off = pome_f32_bits(half_of(wanted[i]) - wanted[i]) & 0x7fffffffu;
        worst = off > worst ? off : worst;
    }
    return pome_f32_from_bits(worst);
}

static bool is_good(const group *g, const form *f)
{
    float step = isfinite(g->scale) ? fabsf(g->scale) * WANTED_STEPS : 0;
    return f->worst <= (step > g->rounding ? step : g->rounding);
}

/* Takes a form if it is nearer. */
static void try_form(form *best, form *tried, const group *g)
{
    if (tried->scale == 0 || !isfinite(tried->scale) || !(fabsf(tried->offset) <= HALF_MAX))
        return;
    tried->worst = worst_of(tried->code, tried->scale, tried->offset, g->wanted, g->n);
    if (tried->worst < best->worst)
        *best = *tried;
}

/* ---- forms ---- */

static float half_next(float half, int by)
{
    uint16_t bits = pome_f32_to_f16(half);
    uint16_t moved = (uint16_t)(bits + by);
    return (bits & 0x7fff) == 0 || (moved & 0x7fff) >= 0x7c00 ? half : pome_f16_to_f32(moved);
}

/* The codes times k with a scale k times smaller, and `reach` neighbours of that scale on each side; the offset that makes
 * the middle of the group exact, and its neighbours. */
static void try_multiples(form *best, const group *g, int reach)
{
    form tried;
    bool has_shift = g->encoding->has_shift;
    for (int k = 1; k <= MULTIPLE_MAX && !is_good(g, best); k += 2) {
        if (g->code_min * (float)k < g->low || g->code_max * (float)k > g->high)
            break;
        for (uint32_t i = 0; i < g->n; i++)
            tried.code[i] = g->code[i] * (float)k;
        float scale = pome_f16_round(g->scale / (float)k);
        for (int by = -reach; by <= reach; by++) {
            tried.scale = half_next(scale, by);
            tried.offset = 0;
            if (!has_shift) {
                try_form(best, &tried, g);
                continue;
            }
            float middle = (g->code_min + g->code_max) / 2;
            float exact = middle * (float)k - (g->scale * middle + g->shift) / tried.scale;
            for (int step = -1; step <= 1; step++) {
                tried.offset = half_next(pome_f16_round(exact), step);
                try_form(best, &tried, g);
            }
        }
    }
}

/* Elements far from zero and close together: codes count the halves there. */
static void try_grid(form *best, const group *g)
{
    form tried;
    float most = fabsf(g->wanted_min) > fabsf(g->wanted_max) ? fabsf(g->wanted_min) : fabsf(g->wanted_max);
    int exponent;
    frexpf(most, &exponent);
    tried.scale = ldexpf(1, exponent - 11 > -24 ? exponent - 11 : -24); /* between halves of that size */
    float first = g->encoding->has_shift ? rintf(g->wanted_min / tried.scale) : 0;
    if (rintf(g->wanted_max / tried.scale) - first > g->high || rintf(g->wanted_min / tried.scale) - first < g->low)
        return;
    for (uint32_t i = 0; i < g->n; i++)
        tried.code[i] = rintf(g->wanted[i] / tried.scale) - first;
    tried.offset = 0 - first;
    try_form(best, &tried, g);
}

/* New codes that use all that the type has. */
static void try_new_codes(form *best, const group *g)
{
    form tried;
    float most = g->wanted_max > -g->wanted_min ? g->wanted_max : -g->wanted_min;
    if (g->encoding->has_shift) {
        tried.scale = pome_f16_round((g->wanted_max - g->wanted_min) / g->high);
        tried.offset = pome_f16_round(-g->wanted_min / tried.scale);
    } else {
        tried.scale = pome_f16_round(most / g->high);
        tried.offset = 0;
    }
    if (tried.scale == 0 || !isfinite(tried.offset))
        return;
    for (uint32_t i = 0; i < g->n; i++) {
        float code = rintf(g->wanted[i] / tried.scale + tried.offset);
        tried.code[i] = code < g->low ? g->low : code > g->high ? g->high : code;
    }
    try_form(best, &tried, g);
}

/* Scale 0, or so small that no form has a scale: one value for all. */
static void set_constant(form *f, const group *g)
{
    float value = (g->wanted_min + g->wanted_max) / 2;
    f->scale = g->encoding->has_shift || value != 0 ? half_of(value) : 0;
    f->offset = 0;
    for (uint32_t i = 0; i < g->n; i++)
        f->code[i] = f->scale != 0 ? 1 : g->code[i];
    f->worst = worst_of(f->code, f->scale, 0, g->wanted, g->n);
}

static void find_form(form *best, const group *g)
{
    bool has_shift = g->encoding->has_shift;
    set_constant(best, g);
    if (g->scale == 0)
        return;
    form plain = {.scale = pome_f16_round(g->scale)};
    memcpy(plain.code, g->code, g->n * sizeof *plain.code);
    plain.offset = has_shift ? pome_f16_round(-g->shift / plain.scale) : 0;
    best->worst = INFINITY;
    try_form(best, &plain, g);
    if (is_good(g, best))
        return;
    try_multiples(best, g, NEIGHBOURS);
    if (has_shift && !is_good(g, best)) /* without an offset no other scale is nearer */
        try_multiples(best, g, MORE_NEIGHBOURS);
    if (!is_good(g, best))
        try_grid(best, g);
    if (!is_good(g, best))
        try_new_codes(best, g);
    form constant;
    set_constant(&constant, g);
    if (constant.worst < best->worst)
        *best = constant;
}

/* ---- rows ---- */

/* Element values within the range of halves. */
static size_t set_wanted(group *g)
{
    size_t n_bad = 0;
    g->code_min = g->code_max = g->code[0];
    for (uint32_t i = 0; i < g->n; i++) {
        uint32_t u = pome_f32_bits(g->scale * g->code[i] + g->shift), a = u & 0x7fffffffu;
        n_bad += a >= HALF_TOO_LARGE;
        g->wanted[i] = a >= HALF_TOO_LARGE ? pome_f32_from_bits((u & 0x80000000u) | to_range(a)) : pome_f32_from_bits(u);
        g->code_min = g->code[i] < g->code_min ? g->code[i] : g->code_min;
        g->code_max = g->code[i] > g->code_max ? g->code[i] : g->code_max;
    }
    g->wanted_min = g->wanted_max = g->wanted[0];
    for (uint32_t i = 1; i < g->n; i++) {
        g->wanted_min = g->wanted[i] < g->wanted_min ? g->wanted[i] : g->wanted_min;
        g->wanted_max = g->wanted[i] > g->wanted_max ? g->wanted[i] : g->wanted_max;
    }
    g->rounding = rounding_of(g->wanted, g->n);
    return n_bad;
}

static void note_error(pome_encode_error *worst, const group *g, const form *f)
{
    double step = fabs((double)g->scale), off = (double)f->worst;
    worst->absolute = off > worst->absolute ? off : worst->absolute;
    if (!(step > 0) || !isfinite(step))
        return;
    worst->steps = off / step > worst->steps ? off / step : worst->steps;
    if (f->worst > g->rounding)
        worst->beyond = off / step > worst->beyond ? off / step : worst->beyond;
}

size_t pome_encode_kept(int8_t *codes, uint16_t *scales, uint16_t *offsets, const pome_gguf_encoding *e,
                        const uint8_t *row, size_t n, pome_encode_error *worst)
{
    pome_gguf_block b = {.shift = {0}};
    pome_dtype code = pome_kept_code(e);
    int32_t bits = (int32_t)pome_dtype_bits(code), top = 1 << bits;
    bool is_signed = code == POME_DTYPE_I4 || code == POME_DTYPE_I8;
    group g = {.encoding = e, .n = e->group, .low = is_signed ? (float)-(top / 2) : 0,
               .high = (float)(is_signed ? top / 2 - 1 : top - 1)};
    size_t n_bad = 0;
    form best;
    for (size_t at = 0; at < n; at += e->block, row += e->bytes) {
        e->split(&b, row);
        for (uint32_t k = 0; k < e->block / e->group; k++, codes += g.n) {
            for (uint32_t i = 0; i < g.n; i++)
                g.code[i] = (float)b.code[k * g.n + i];
            g.scale = b.scale[k];
            g.shift = b.shift[k];
            n_bad += set_wanted(&g);
            find_form(&best, &g);
            note_error(worst, &g, &best);
            for (uint32_t i = 0; i < g.n; i++)
                codes[i] = (int8_t)(uint8_t)(int)best.code[i];
            *scales++ = pome_f32_to_f16(best.scale);
            if (e->has_shift)
                *offsets++ = pome_f32_to_f16(best.offset);
        }
    }
    return n_bad;
}
