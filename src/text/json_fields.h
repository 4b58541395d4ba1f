/* Reading the fields of JSON objects strictly: wrong types and unknown names are errors that say where. */
#ifndef POME_TEXT_JSON_FIELDS_H
#define POME_TEXT_JSON_FIELDS_H

#include <jansson.h>
#include <stdbool.h>

#include "base/span.h"
#include "pome/status.h"

/* Parses a whole file of at most max_bytes, or bytes that came from the file `path`. FORMAT with line and column if
 * it is not JSON. */
pome_status pome_json_parse(json_t **out, pome_bytes bytes, const char *path, size_t max_bytes, pome_error *err);
pome_status pome_json_read(json_t **out, const char *path, size_t max_bytes, pome_error *err);

/* `what` names the object in messages ("pre_tokenizer Split"). `known` is a list of names separated by spaces. */
pome_status pome_json_check_fields(const json_t *object, const char *what, const char *known, pome_error *err);
/* A missing or null field leaves *out as it is. */
pome_status pome_json_bool(const json_t *object, const char *what, const char *field, bool *out, pome_error *err);
pome_status pome_json_size(const json_t *object, const char *what, const char *field, size_t *out, pome_error *err);
/* A view into the JSON; a missing or null field leaves it as it is. */
pome_status pome_json_str(const json_t *object, const char *what, const char *field, pome_str *out, pome_error *err);
/* An integer that can be a token id. */
pome_status pome_json_id(const json_t *value, const char *what, int32_t *out, pome_error *err);
/* The "type" field; FORMAT if there is none. */
pome_status pome_json_type(const json_t *object, const char *what, const char **out, pome_error *err);
/* A field that must be there and be an array. */
pome_status pome_json_array(const json_t *object, const char *what, const char *field, const json_t **out,
                            pome_error *err);

#endif
