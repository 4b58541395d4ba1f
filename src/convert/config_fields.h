/* Reading the fields of a config.json, with an account of which were read. A null field counts as missing. */
#ifndef POME_CONVERT_CONFIG_FIELDS_H
#define POME_CONVERT_CONFIG_FIELDS_H

#include <jansson.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/strmap.h"
#include "convert/lm_config.h"

typedef struct pome_config_fields {
    const json_t *object;
    const char *where;  /* for messages: "" or "rope scaling: " */
    pome_arena *arena;
    pome_strmap *read;  /* names that were asked for; NULL: no account */
} pome_config_fields;

/* NULL: missing or null (or the name is NULL). */
const json_t *pome_config_field(const pome_config_fields *f, const char *name);
/* These leave *out as it is where the field is missing. Errors: FORMAT, a field of another type. */
pome_status pome_config_int(const pome_config_fields *f, const char *name, int64_t *out, pome_error *err);
pome_status pome_config_real(const pome_config_fields *f, const char *name, double *out, pome_error *err);
pome_status pome_config_bool(const pome_config_fields *f, const char *name, bool *out, pome_error *err);
pome_status pome_config_text(const pome_config_fields *f, const char *name, const char **out, pome_error *err);
/* As int; it must be there. */
pome_status pome_config_need_int(const pome_config_fields *f, const char *name, int64_t *out, pome_error *err);
/* A list of n positive numbers; it must be there. */
pome_status pome_config_reals(const pome_config_fields *f, const char *name, int64_t n, const double **out,
                              pome_error *err);
/* A whole number, or a list of one for each layer: then *list is set, and *out is the largest. It must be there. */
pome_status pome_config_sizes(const pome_config_fields *f, const char *name, int64_t n_layers, int64_t *out,
                              const int64_t **list, pome_error *err);

/* Fields that nobody read, though they say something: those that are known to change the model are an error, others get
 * a warning, but for what says nothing about the model (token ids, training). */
pome_status pome_config_check_unread(const pome_config_fields *f, const pome_lm_family *family, pome_error *err);

/* quantization_config: scaled 8-bit floats (quant_method fp8, fbgemm_fp8, compressed-tensors of floats). Errors: UNSUPPORTED,
 * naming any other method. */
pome_status pome_config_read_fp8(pome_lm_config *c, const pome_config_fields *f, pome_error *err);

/* rope_theta, rope_scaling, rope_parameters, partial_rotary_factor and what they hold. */
pome_status pome_config_read_rope(pome_lm_config *c, const pome_config_fields *f, pome_error *err);

#endif
