/* Rotary tables. The frequencies are those of transformers' modeling_rope_utils, in double. */
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/log.h"
#include "convert/lm_config.h"

#define PI 3.14159265358979323846

static void plain(double *inv, double theta, int64_t dim)
{
    for (int64_t i = 0; i < dim / 2; i++)
        inv[i] = pow(theta, -2.0 * (double)i / (double)dim);
}

/* Low frequencies are slowed by `factor`, high ones kept, those between interpolated. */
static void llama3(double *inv, const pome_rope *r)
{
    double low = (double)r->original / r->low_freq_factor, high = (double)r->original / r->high_freq_factor;
    for (int64_t i = 0; i < r->dim / 2; i++) {
        double wavelength = 2 * PI / inv[i];
        double smooth = ((double)r->original / wavelength - r->low_freq_factor) /
                        (r->high_freq_factor - r->low_freq_factor);
        if (wavelength > low)
            inv[i] /= r->factor;
        else if (wavelength >= high)
            inv[i] = (1 - smooth) * inv[i] / r->factor + smooth * inv[i];
    }
}

/* The element whose rotation makes `turns` full turns over the original context. */
static double yarn_element(const pome_rope *r, double theta, double turns)
{
    return (double)r->dim * log((double)r->original / (turns * 2 * PI)) / (2 * log(theta));
}

static void yarn(double *inv, const pome_rope *r, double theta)
{
    double low = yarn_element(r, theta, r->beta_fast), high = yarn_element(r, theta, r->beta_slow);
    if (r->truncate) {
        low = floor(low);
        high = ceil(high);
    }
    low = low < 0 ? 0 : low;
    high = high > (double)(r->dim - 1) ? (double)(r->dim - 1) : high;
    if (low == high)
        high += 0.001;
    for (int64_t i = 0; i < r->dim / 2; i++) {
        double ramp = ((double)i - low) / (high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        inv[i] = inv[i] / r->factor * ramp + inv[i] * (1 - ramp);
    }
}

static double yarn_mscale(double scale, double mscale)
{
    return scale <= 1 ? 1 : 0.1 * mscale * log(scale) + 1;
}

double pome_rope_attention_factor(const pome_rope *r)
{
    if (r->attention_factor > 0 && (r->kind == POME_ROPE_YARN || r->kind == POME_ROPE_LONGROPE))
        return r->attention_factor;
    if (r->kind == POME_ROPE_YARN && r->mscale != 0 && r->mscale_all_dim != 0)
        return yarn_mscale(r->factor, r->mscale) / yarn_mscale(r->factor, r->mscale_all_dim);
    if (r->kind == POME_ROPE_YARN)
        return yarn_mscale(r->factor, 1);
    if (r->kind == POME_ROPE_LONGROPE && r->factor > 1)
        return sqrt(1 + log(r->factor) / log((double)r->original));
    return 1;
}

/* Whether the frequencies depend on the position: each new token is rotated for the length that it makes the text. */
static bool follows_length(const pome_rope *r)
{
    return r->kind == POME_ROPE_DYNAMIC || r->kind == POME_ROPE_LONGROPE;
}

static void divide(double *inv, const pome_rope *r, const double *factors)
{
    for (int64_t i = 0; i < r->dim / 2; i++)
        inv[i] /= factors ? factors[i] : r->factor;
}

void pome_rope_frequencies(double *out, const pome_rope *r, int64_t position)
{
    double theta = r->theta;
    bool is_beyond = position >= r->original;
    if (r->kind == POME_ROPE_DYNAMIC && is_beyond) {
        double stretch = r->factor * (double)(position + 1) / (double)r->original - (r->factor - 1);
        theta *= pow(stretch, (double)r->dim / (double)(r->dim - 2));
    }
    plain(out, theta, r->dim);
    switch (r->kind) {
    case POME_ROPE_PLAIN:
    case POME_ROPE_DYNAMIC: return;
    case POME_ROPE_LINEAR: divide(out, r, NULL); return;
    case POME_ROPE_LLAMA3: llama3(out, r); return;
    case POME_ROPE_YARN: yarn(out, r, theta); return;
    case POME_ROPE_LONGROPE: divide(out, r, is_beyond ? r->long_factor : r->short_factor); return;
    case POME_ROPE_FACTORS: divide(out, r, r->short_factor); return;
    }
}

pome_status pome_rope_tables(float *cos_out, float *sin_out, const pome_rope *rope, int64_t n_positions,
                             pome_error *err)
{
    int64_t half = rope->dim / 2;
    double *inv = malloc((size_t)half * sizeof *inv);
    if (!inv)
        return pome_fail_nomem(err, (size_t)half * sizeof *inv, "rotary tables");
    double factor = pome_rope_attention_factor(rope);
    if (rope->kind == POME_ROPE_LONGROPE && n_positions > rope->original)
        pome_log(POME_LOG_INFO, "positions from %lld on take the long factors of longrope", (long long)rope->original);
    for (int64_t p = 0; p < n_positions; p++) {
        if (p == 0 || (follows_length(rope) && p >= rope->original))
            pome_rope_frequencies(inv, rope, p);
        for (int64_t i = 0; i < half; i++) {
            float c = (float)(cos((double)p * inv[i]) * factor);
            float s = (float)(sin((double)p * inv[i]) * factor);
            cos_out[p * rope->dim + i] = cos_out[p * rope->dim + half + i] = c;
            sin_out[p * rope->dim + i] = sin_out[p * rope->dim + half + i] = s;
        }
    }
    free(inv);
    return POME_OK;
}
