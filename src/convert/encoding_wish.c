#include "convert/encoding_wish.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    pome_quantize quantize;
    pome_form form;
    pome_dtype code;
} types[] = {
    {"fp16", POME_QUANTIZE_NONE, POME_FORM_HALF, POME_DTYPE_F16},
    {"none", POME_QUANTIZE_NONE, POME_FORM_HALF, POME_DTYPE_F16},
    {"int8", POME_QUANTIZE_INT8, POME_FORM_SYMMETRIC, POME_DTYPE_I8},
    {"int4", POME_QUANTIZE_INT4, POME_FORM_SYMMETRIC, POME_DTYPE_I4},
    {"uint8", POME_QUANTIZE_UINT8, POME_FORM_ASYMMETRIC, POME_DTYPE_U8},
    {"uint4", POME_QUANTIZE_UINT4, POME_FORM_ASYMMETRIC, POME_DTYPE_U4},
    {"lut1", POME_QUANTIZE_LUT1, POME_FORM_PALETTE, POME_DTYPE_U1},
    {"lut2", POME_QUANTIZE_LUT2, POME_FORM_PALETTE, POME_DTYPE_U2},
    {"lut3", POME_QUANTIZE_LUT3, POME_FORM_PALETTE, POME_DTYPE_U3},
    {"lut4", POME_QUANTIZE_LUT4, POME_FORM_PALETTE, POME_DTYPE_U4},
    {"lut6", POME_QUANTIZE_LUT6, POME_FORM_PALETTE, POME_DTYPE_U6},
    {"lut8", POME_QUANTIZE_LUT8, POME_FORM_PALETTE, POME_DTYPE_U8},
    {"keep", POME_QUANTIZE_KEEP, POME_FORM_KEPT, POME_DTYPE_NONE},
};
enum { N_TYPES = sizeof types / sizeof types[0] };

static void set(pome_encoding_wish *out, size_t type, const pome_convert_opts *o)
{
    int64_t block = o->block >= 0 ? o->block : o->target == POME_TARGET_IOS16 ? 0 : 32;
    pome_palette_mode palette = o->palette == POME_PALETTE_UNIFORM ? POME_PALETTE_UNIFORM : POME_PALETTE_KMEANS;
    *out = (pome_encoding_wish){.form = types[type].form, .code = types[type].code, .block = block,
                                .group_rows = o->group_rows > 0 ? o->group_rows : 0, .palette = palette, .searches = o->search};
}

pome_status pome_encoding_wish_set(pome_encoding_wish *out, pome_quantize q, const pome_convert_opts *o, pome_error *err)
{
    for (size_t i = 0; i < N_TYPES; i++)
        if (types[i].quantize == q) {
            set(out, i, o);
            return POME_OK;
        }
    return pome_fail(err, POME_ERR_ARG, "quantization %d is not known", (int)q);
}

pome_status pome_encoding_wish_named(pome_encoding_wish *out, const char *name, const pome_convert_opts *o, pome_error *err)
{
    if (!name)
        return POME_OK;
    for (size_t i = 0; i < N_TYPES; i++)
        if (strcmp(name, types[i].name) == 0) {
            set(out, i, o);
            return POME_OK;
        }
    return pome_fail(err, POME_ERR_ARG,
                     "\"%.40s\" is no type of weights: fp16, int4, int8, uint4, uint8, lut1, lut2, lut3, lut4, lut6, lut8 "
                     "and keep are",
                     name);
}

static bool has_ios16_form(const pome_encoding_wish *w)
{
    if (w->form == POME_FORM_PALETTE)
        return w->group_rows == 0 && pome_dtype_bits(w->code) != 3;
    return w->form != POME_FORM_KEPT && w->block == 0 && pome_dtype_bits(w->code) == 8;
}

pome_status pome_encoding_wish_check(const char *kind, const pome_encoding_wish *w, const pome_convert_opts *o,
                                     pome_error *err)
{
    char text[96];
    if (w->form == POME_FORM_HALF)
        return POME_OK;
    if (o->precision == POME_PRECISION_FP32)
        return pome_fail(err, POME_ERR_ARG, "%s: weights of an fp32 package are fp32, they cannot be quantized", kind);
    if (o->target != POME_TARGET_IOS16 || has_ios16_form(w))
        return POME_OK;
    if (w->form == POME_FORM_KEPT)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "%s: iOS 16 has no weights in blocks, so the quantization of a GGUF "
                         "file cannot be kept: int8 with a scale per row, palettes and fp16 are possible", kind);
    pome_encoding_wish_describe(text, sizeof text, w, POME_DTYPE_F16);
    return pome_fail(err, POME_ERR_UNSUPPORTED, "%s: iOS 16 has no weights of this form: %s; int8 and uint8 with a scale per "
                     "row, palettes per tensor (but lut3) and fp16 are possible", kind, text);
}

void pome_encoding_wish_describe(char *text, size_t size, const pome_encoding_wish *w, pome_dtype real)
{
    switch (w->form) {
    case POME_FORM_HALF: snprintf(text, size, "%s", pome_dtype_name(real)); return;
    case POME_FORM_FLOAT: snprintf(text, size, "fp32"); return;
    case POME_FORM_KEPT: snprintf(text, size, "quantization of the source"); return;
    case POME_FORM_PALETTE:
        snprintf(text, size, "lut%u, %s, ", (unsigned)pome_dtype_bits(w->code),
                 w->palette == POME_PALETTE_UNIFORM ? "uniform" : "k-means");
        size_t len = strlen(text);
        if (w->group_rows)
            snprintf(text + len, size - len, "a table per %" PRId64 " rows", w->group_rows);
        else
            snprintf(text + len, size - len, "a table per tensor");
        return;
    default:
        if (w->block)
            snprintf(text, size, "%s, blocks of %" PRId64, pome_dtype_name(w->code), w->block);
        else
            snprintf(text, size, "%s, a scale per row", pome_dtype_name(w->code));
    }
}
