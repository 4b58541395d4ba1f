/* Inference of convolution and pooling. Spatial sizes follow
 * https://apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html (conv, max_pool). */
#include <inttypes.h>
#include <string.h>

#include "mil/infer.h"

enum { MAX_SPATIAL = 3 };

typedef struct window {
    int32_t n;                     /* spatial axes */
    int64_t kernel[MAX_SPATIAL];   /* effective: (k - 1) * dilation + 1 */
    int64_t stride[MAX_SPATIAL];
    int64_t dilation[MAX_SPATIAL];
    int64_t pad[2 * MAX_SPATIAL];  /* custom: before, after for each axis */
    const char *pad_type;
    bool ceil_mode;
} window;

/* A vector of `n` positive numbers, default all dflt. */
static pome_status read_vector(pome_infer *c, uint32_t param, int32_t n, int64_t dflt, int64_t lo, int64_t *out,
                               pome_error *err)
{
    int64_t v[POME_MAX_RANK];
    int32_t len = 0;
    bool known;
    const char *name = c->op->def->params[param].name;
    if (!pome_infer_has(c, param)) {
        for (int32_t i = 0; i < n; i++)
            out[i] = dflt;
        return POME_OK;
    }
    POME_TRY(pome_infer_ints(c, param, v, &len, &known, err));
    if (!known)
        return pome_infer_fail(c, err, "'%s' must be a constant", name);
    if (len != n)
        return pome_infer_fail(c, err, "'%s' has %" PRId32 " elements, not %" PRId32, name, len, n);
    for (int32_t i = 0; i < n; i++) {
        if (v[i] < lo || v[i] > INT32_MAX)
            return pome_infer_fail(c, err, "'%s' holds %" PRId64, name, v[i]);
        out[i] = v[i];
    }
    return POME_OK;
}

static pome_status check_pad_type(pome_infer *c, uint32_t param, pome_error *err)
{
    return pome_infer_word(c, param, c->opset >= POME_OPSET_IOS16 ? "valid|same|custom|same_lower" : "valid|same|custom",
                           err);
}

/* The output's size on spatial axis i for an input of size n. */
static pome_status window_size(pome_infer *c, const window *w, int32_t i, int64_t n, int64_t *out, pome_error *err)
{
    int64_t k = w->kernel[i], s = w->stride[i], total = 0, size;
    if (n < 0 || k < 0) {
        *out = s == 1 && w->pad_type[0] == 's' ? n : pome_infer_symbol(c);
        return POME_OK;
    }
    if (w->pad_type[0] == 's') { /* same, same_lower */
        size = (n + s - 1) / s;
        total = s * size - n + k - s;
        total = total > 0 ? total : 0;
    } else if (w->pad_type[0] == 'c') {
        total = w->pad[2 * i] + w->pad[2 * i + 1];
    }
    int64_t room = n + total - k;
    size = room < 0 ? 0 : (room + (w->ceil_mode ? s - 1 : 0)) / s + 1;
    if (w->ceil_mode && total > 0 && 2 * (size - 1) * s >= 2 * n + total)
        size--; /* the last window would lie in the padding */
    if (size <= 0)
        return pome_infer_fail(c, err, "a window of %" PRId64 " does not fit axis %" PRId32 " of size %" PRId64, k, i + 2,
                               n);
    *out = size;
    return POME_OK;
}

static pome_status spatial_rank(pome_infer *c, uint32_t x, int32_t *n, pome_error *err)
{
    POME_TRY(pome_infer_rank(c, x, 3, 2 + MAX_SPATIAL, err));
    *n = pome_infer_type(c, x)->rank - 2;
    return POME_OK;
}

/* ---- pooling: avg_pool has one parameter before the others ---- */

pome_status pome_infer_pool(pome_infer *c, pome_error *err)
{
    uint32_t p = c->op->def->id == POME_OP_avg_pool ? P_avg_pool_x : P_max_pool_x;
    uint32_t kernel_sizes = p + P_max_pool_kernel_sizes, strides = p + P_max_pool_strides;
    uint32_t pad_type = p + P_max_pool_pad_type, pad = p + P_max_pool_pad, ceil_mode = p + P_max_pool_ceil_mode;
    const pome_type *x = pome_infer_type(c, p);
    window w = {.pad_type = pome_op_str(c->op, pad_type, "valid")};
    POME_TRY(check_pad_type(c, pad_type, err));
    POME_TRY(spatial_rank(c, p, &w.n, err));
    POME_TRY(read_vector(c, kernel_sizes, w.n, 1, 1, w.kernel, err));
    POME_TRY(read_vector(c, strides, w.n, 1, 1, w.stride, err));
    POME_TRY(read_vector(c, pad, 2 * w.n, 0, 0, w.pad, err));
    POME_TRY(pome_infer_bool(c, ceil_mode, false, &w.ceil_mode, err));
    if (c->op->def->id == POME_OP_l2_pool && w.n > 2)
        return pome_infer_fail(c, err, "pools 1 or 2 axes, not %" PRId32, w.n);
    if (w.ceil_mode) {
        if (w.n > 2 || strcmp(w.pad_type, "same") == 0)
            return pome_infer_fail(c, err, "ceil_mode is for 1 or 2 axes without pad_type same");
        for (int32_t i = 0; i < w.n; i++)
            if (w.pad[2 * i] != w.pad[2 * i + 1])
                return pome_infer_fail(c, err, "ceil_mode needs the same pad before and after");
    }
    c->out[0] = *x;
    for (int32_t i = 0; i < w.n; i++)
        POME_TRY(window_size(c, &w, i, x->dim[2 + i], &c->out[0].dim[2 + i], err));
    return POME_OK;
}

/* ---- convolution ---- */

/* Where conv and conv_quantized keep what they share. */
typedef struct conv_params {
    uint32_t x, weight, bias, strides, pad_type, pad, dilations, groups;
} conv_params;

static pome_status read_window(pome_infer *c, const conv_params *p, const pome_type *weight, window *w, pome_error *err)
{
    POME_TRY(check_pad_type(c, p->pad_type, err));
    w->pad_type = pome_op_str(c->op, p->pad_type, "valid");
    POME_TRY(read_vector(c, p->strides, w->n, 1, 1, w->stride, err));
    POME_TRY(read_vector(c, p->dilations, w->n, 1, 1, w->dilation, err));
    if (w->pad_type[0] == 'c')
        POME_TRY(read_vector(c, p->pad, 2 * w->n, 0, 0, w->pad, err));
    if (weight->rank != w->n + 2)
        return pome_infer_fail(c, err, "weight has rank %" PRId32 ", x %" PRId32, weight->rank, w->n + 2);
    for (int32_t i = 0; i < w->n; i++) {
        int64_t k = weight->dim[2 + i];
        if (k == 0)
            return pome_infer_fail(c, err, "the kernel is empty on axis %" PRId32, i + 2);
        w->kernel[i] = -1; /* not known */
        if (k > 0) {
            POME_TRY(pome_infer_mul(c, k - 1, w->dilation[i], &w->kernel[i], err));
            w->kernel[i]++;
        }
    }
    return POME_OK;
}

static pome_status read_groups(pome_infer *c, uint32_t param, int64_t *out, pome_error *err)
{
    POME_TRY(pome_infer_int(c, param, 1, out, err));
    if (*out < 1 || *out > INT32_MAX)
        return pome_infer_fail(c, err, "groups %" PRId64 " is not positive", *out);
    return POME_OK;
}

/* x [N, Cin, *D], weight [Cout, Cin / groups, *K], bias [Cout] */
pome_status pome_infer_conv(pome_infer *c, pome_error *err)
{
    static const conv_params plain = {P_conv_x,        P_conv_weight, P_conv_bias,      P_conv_strides,
                                      P_conv_pad_type, P_conv_pad,    P_conv_dilations, P_conv_groups};
    static const conv_params quantized = {P_conv_quantized_x,         P_conv_quantized_weight,
                                          P_conv_quantized_bias,      P_conv_quantized_strides,
                                          P_conv_quantized_pad_type,  P_conv_quantized_pad,
                                          P_conv_quantized_dilations, P_conv_quantized_groups};
    const conv_params *p = c->op->def->id == POME_OP_conv_quantized ? &quantized : &plain;
    const pome_type *x = pome_infer_type(c, p->x), *weight = pome_infer_type(c, p->weight);
    window w = {0};
    int64_t groups = 1, n_in = 0;
    if (p == &quantized)
        POME_TRY(pome_infer_word(c, P_conv_quantized_quantization_type, "linear|lut", err));
    POME_TRY(spatial_rank(c, p->x, &w.n, err));
    POME_TRY(read_window(c, p, weight, &w, err));
    POME_TRY(read_groups(c, p->groups, &groups, err));
    POME_TRY(pome_infer_mul(c, weight->dim[1], groups, &n_in, err));
    if (!pome_dim_may_equal(n_in, x->dim[1]))
        return pome_infer_fail(c, err, "x has %" PRId64 " channels, weight and groups ask for %" PRId64, x->dim[1], n_in);
    if (weight->dim[0] >= 0 && weight->dim[0] % groups != 0)
        return pome_infer_fail(c, err, "%" PRId64 " output channels do not divide into %" PRId64 " groups",
                               weight->dim[0], groups);
    POME_TRY(pome_infer_vector(c, p->bias, weight->dim[0], err));
    c->out[0] = *x;
    c->out[0].dim[1] = weight->dim[0];
    for (int32_t i = 0; i < w.n; i++)
        POME_TRY(window_size(c, &w, i, x->dim[2 + i], &c->out[0].dim[2 + i], err));
    return POME_OK;
}

pome_status pome_infer_pome_conv(pome_infer *c, pome_error *err)
{
    POME_TRY(pome_infer_conv(c, err));
    if (!pome_infer_has(c, P_pome_conv_addend))
        return POME_OK;
    const pome_type *addend = pome_infer_type(c, P_pome_conv_addend);
    bool fits = addend->rank == c->out[0].rank;
    for (int32_t d = 0; fits && d < addend->rank; d++)
        fits = pome_dim_may_equal(addend->dim[d], c->out[0].dim[d]);
    return fits ? POME_OK : pome_infer_fail(c, err, "addend and result have different shapes");
}

/* The size that axis i of a transposed convolution grows to. */
static pome_status grown_size(pome_infer *c, const window *w, int32_t i, int64_t n, int64_t *out, pome_error *err)
{
    int64_t grown = 0;
    if (n < 0 || w->kernel[i] < 0) {
        *out = w->pad_type[0] == 's' && w->stride[i] == 1 ? n : pome_infer_symbol(c);
        return POME_OK;
    }
    if (w->pad_type[0] == 's')
        return pome_infer_mul(c, n, w->stride[i], out, err);
    POME_TRY(pome_infer_mul(c, n - (n > 0), w->stride[i], &grown, err));
    grown += w->kernel[i] - (w->pad_type[0] == 'c' ? w->pad[2 * i] + w->pad[2 * i + 1] : 0);
    if (n == 0 || grown <= 0)
        return pome_infer_fail(c, err, "axis %" PRId32 " of the result has size %" PRId64, i + 2, n == 0 ? 0 : grown);
    *out = grown;
    return POME_OK;
}

/* x [N, Cin, *D], weight [Cin, Cout / groups, *K], bias [Cout]; output_shape: the whole shape or its spatial part. */
pome_status pome_infer_conv_transpose(pome_infer *c, pome_error *err)
{
    static const conv_params p = {P_conv_transpose_x,        P_conv_transpose_weight,
                                  P_conv_transpose_bias,     P_conv_transpose_strides,
                                  P_conv_transpose_pad_type, P_conv_transpose_pad,
                                  P_conv_transpose_dilations, P_conv_transpose_groups};
    const pome_type *x = pome_infer_type(c, p.x), *weight = pome_infer_type(c, p.weight);
    pome_type *out = &c->out[0];
    window w = {0};
    int64_t groups = 1, shape[POME_MAX_RANK];
    int32_t len = 0;
    bool known = false;
    POME_TRY(spatial_rank(c, p.x, &w.n, err));
    POME_TRY(read_window(c, &p, weight, &w, err));
    POME_TRY(read_groups(c, p.groups, &groups, err));
    *out = *x;
    POME_TRY(pome_infer_mul(c, weight->dim[1], groups, &out->dim[1], err));
    if (!pome_dim_may_equal(x->dim[1], weight->dim[0]) || (x->dim[1] >= 0 && x->dim[1] % groups != 0))
        return pome_infer_fail(c, err, "x has %" PRId64 " channels, weight %" PRId64 " in %" PRId64 " groups", x->dim[1],
                               weight->dim[0], groups);
    POME_TRY(pome_infer_vector(c, p.bias, out->dim[1], err));
    for (int32_t i = 0; i < w.n; i++)
        POME_TRY(grown_size(c, &w, i, x->dim[2 + i], &out->dim[2 + i], err));
    if (!pome_infer_has(c, P_conv_transpose_output_shape))
        return POME_OK;
    POME_TRY(pome_infer_ints(c, P_conv_transpose_output_shape, shape, &len, &known, err));
    if (!known || (len != w.n && len != w.n + 2))
        return pome_infer_fail(c, err, "output_shape must be a constant of %" PRId32 " elements", w.n + 2);
    for (int32_t i = 0; i < w.n; i++) {
        int64_t size = shape[len - w.n + i];
        if (size < 1)
            return pome_infer_fail(c, err, "output_shape holds %" PRId64, size);
        out->dim[2 + i] = size;
    }
    return POME_OK;
}
