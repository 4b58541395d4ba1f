/* Rotary tables. The frequencies are those of transformers' modeling_rope_utils, in double. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/error.h"
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

static double attention_factor(const pome_rope *r)
{
    if (r->kind == POME_ROPE_YARN) {
        if (r->attention_factor > 0)
            return r->attention_factor;
        if (r->mscale > 0 && r->mscale_all_dim > 0)
            return yarn_mscale(r->factor, r->mscale) / yarn_mscale(r->factor, r->mscale_all_dim);
        return yarn_mscale(r->factor, 1);
    }
    if (r->kind == POME_ROPE_LONGROPE) {
        if (r->attention_factor > 0)
            return r->attention_factor;
        return r->factor <= 1 ? 1 : sqrt(1 + log(r->factor) / log((double)r->original));
    }
    return 1;
}

/* Frequencies for the token at `position`: they depend on it only with dynamic scaling, where each new token is rotated
 * for the length it has made the sequence. */
static void frequencies(double *inv, const pome_rope *r, int64_t position)
{
    double theta = r->theta;
    if (r->kind == POME_ROPE_DYNAMIC && position + 1 > r->original) {
        double stretch = r->factor * (double)(position + 1) / (double)r->original - (r->factor - 1);
        theta *= pow(stretch, (double)r->dim / (double)(r->dim - 2));
    }
    plain(inv, theta, r->dim);
    if (r->kind == POME_ROPE_LINEAR)
        for (int64_t i = 0; i < r->dim / 2; i++)
            inv[i] /= r->factor;
    if (r->kind == POME_ROPE_LLAMA3)
        llama3(inv, r);
    if (r->kind == POME_ROPE_YARN)
        yarn(inv, r, theta);
    if (r->kind == POME_ROPE_LONGROPE || r->kind == POME_ROPE_FACTORS)
        for (int64_t i = 0; i < r->dim / 2; i++)
            inv[i] /= r->short_factor[i];
}

pome_status pome_rope_tables(float *cos_out, float *sin_out, const pome_rope *rope, int64_t n_positions,
                             pome_error *err)
{
    int64_t half = rope->dim / 2;
    if (rope->kind == POME_ROPE_LONGROPE && n_positions > rope->original)
        return pome_fail(err, POME_ERR_UNSUPPORTED,
                         "longrope beyond %" PRId64 " positions switches its frequencies with the length of the text, "
                         "which a package cannot do: use a context of at most %" PRId64, rope->original, rope->original);
    double *inv = malloc((size_t)half * sizeof *inv);
    if (!inv)
        return pome_fail_nomem(err, (size_t)half * sizeof *inv, "rotary tables");
    double factor = attention_factor(rope);
    frequencies(inv, rope, 0);
    for (int64_t p = 0; p < n_positions; p++) {
        if (rope->kind == POME_ROPE_DYNAMIC)
            frequencies(inv, rope, p);
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
