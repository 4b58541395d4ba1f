/* What weights should become, from options: "int4" in blocks of 32, "lut4" with a table per 16 rows, ... */
#ifndef POME_CONVERT_ENCODING_WISH_H
#define POME_CONVERT_ENCODING_WISH_H

#include "base/error.h"
#include "pome/convert.h"
#include "pome/tensor.h"

typedef enum pome_form {
    POME_FORM_HALF = 0,
    POME_FORM_FLOAT,      /* fp32 */
    POME_FORM_SYMMETRIC,  /* int4 or int8, a scale per block */
    POME_FORM_ASYMMETRIC, /* uint4 or uint8, a scale and an offset of the codes' type per block */
    POME_FORM_PALETTE,    /* uint1 to uint8 indices, a table of halves per group of rows */
    POME_FORM_KEPT        /* the codes of a quantized GGUF tensor */
} pome_form;

/* A plan falls back where a wish is not possible. */
typedef struct pome_encoding_wish {
    pome_form form;
    pome_dtype code;    /* of codes or indices */
    int64_t block;      /* 0: the whole row */
    int64_t group_rows; /* rows that share a table; 0: all */
    pome_palette_mode palette;
    bool searches;
} pome_encoding_wish;

/* Errors: ARG (a type that is not known, by name or number). */
pome_status pome_encoding_wish_set(pome_encoding_wish *out, pome_quantize q, const pome_convert_opts *o, pome_error *err);
/* name: "fp16" (or "none"), "int4", "lut6", ..., "keep"; NULL leaves `out` as it is. */
pome_status pome_encoding_wish_named(pome_encoding_wish *out, const char *name, const pome_convert_opts *o,
                                     pome_error *err);
/* Refuses what the target or an fp32 package has no constants for; `kind` begins the message. Errors: ARG, UNSUPPORTED. */
pome_status pome_encoding_wish_check(const char *kind, const pome_encoding_wish *w, const pome_convert_opts *o,
                                     pome_error *err);
/* "int4, blocks of 32"; real: the type of what is not encoded. */
void pome_encoding_wish_describe(char *text, size_t size, const pome_encoding_wish *w, pome_dtype real);

#endif
