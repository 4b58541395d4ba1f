#include "text/json_fields.h"

#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "text/vocab.h"

/* Whole numbers that were decoded as reals become integers again; jansson bounds the depth. */
static int restore_integers(json_t *v)
{
    void *i;
    int failed = 0;
    json_t *child;
    for (i = json_object_iter(v); i && !failed; i = json_object_iter_next(v, i)) {
        child = json_object_iter_value(i);
        double x = json_real_value(child);
        if (json_is_real(child) && x >= -9e15 && x <= 9e15 && x == (double)(json_int_t)x)
            failed = json_object_iter_set_new(v, i, json_integer((json_int_t)x));
        else
            failed = restore_integers(child);
    }
    for (size_t k = 0; k < json_array_size(v) && !failed; k++) {
        child = json_array_get(v, k);
        double x = json_real_value(child);
        if (json_is_real(child) && x >= -9e15 && x <= 9e15 && x == (double)(json_int_t)x)
            failed = json_array_set_new(v, k, json_integer((json_int_t)x));
        else
            failed = restore_integers(child);
    }
    return failed;
}

/* tokenizer_config.json says "no limit" as model_max_length: 1000000000000000019884624838656. */
static json_t *load_json(pome_bytes b, json_error_t *why)
{
    const char *text = b.len ? (const char *)b.ptr : "";
    json_t *root = json_loadb(text, b.len, JSON_ALLOW_NUL, why);
    if (root || json_error_code(why) != json_error_numeric_overflow)
        return root;
    root = json_loadb(text, b.len, JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, why);
    if (root && restore_integers(root) != 0) {
        json_decref(root);
        root = NULL;
    }
    return root;
}

pome_status pome_json_parse(json_t **out, pome_bytes bytes, const char *path, size_t max_bytes, pome_error *err)
{
    json_error_t why;
    if (bytes.len > max_bytes)
        return pome_fail(err, POME_ERR_LIMIT, "%s: %zu bytes, at most %zu are allowed", path, bytes.len, max_bytes);
    if (pome_bytes_is_lfs_pointer(bytes))
        return pome_fail(err, POME_ERR_FORMAT, "%s: a Git LFS pointer, not the file itself (download it again)", path);
    json_t *root = load_json(bytes, &why);
    if (!root && !why.text[0]) /* the one failure without a text */
        return pome_fail_nomem(err, bytes.len, path);
    if (!root)
        return pome_fail_at(err, POME_ERR_FORMAT, (uint64_t)(why.position < 0 ? 0 : why.position),
                            "%s:%d:%d: not JSON: %s", path, why.line, why.column, why.text);
    *out = root;
    return POME_OK;
}

pome_status pome_json_read(json_t **out, const char *path, size_t max_bytes, pome_error *err)
{
    pome_mapping *mapping;
    POME_TRY(pome_mapping_open(&mapping, path, err));
    pome_status status = pome_json_parse(out, pome_mapping_bytes(mapping), path, max_bytes, err);
    pome_mapping_release(&mapping);
    return status;
}

static bool in_list(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; n > 0 && (p = strstr(p, name)); p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
}

pome_status pome_json_check_fields(const json_t *object, const char *what, const char *known, pome_error *err)
{
    if (!json_is_object(object))
        return pome_fail(err, POME_ERR_FORMAT, "%s: an object is wanted", what);
    for (void *i = json_object_iter((json_t *)object); i; i = json_object_iter_next((json_t *)object, i))
        if (!in_list(known, json_object_iter_key(i)))
            return pome_fail(err, POME_ERR_UNSUPPORTED, "%s: unknown field \"%.100s\" (known: %s)", what,
                             json_object_iter_key(i), known);
    return POME_OK;
}

pome_status pome_json_bool(const json_t *object, const char *what, const char *field, bool *out, pome_error *err)
{
    const json_t *v = json_object_get(object, field);
    if (!v || json_is_null(v))
        return POME_OK;
    if (!json_is_boolean(v))
        return pome_fail(err, POME_ERR_FORMAT, "%s: %s is not true or false", what, field);
    *out = json_is_true(v);
    return POME_OK;
}

pome_status pome_json_size(const json_t *object, const char *what, const char *field, size_t *out, pome_error *err)
{
    const json_t *v = json_object_get(object, field);
    if (!v || json_is_null(v))
        return POME_OK;
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return pome_fail(err, POME_ERR_FORMAT, "%s: %s is not a count", what, field);
    *out = (size_t)json_integer_value(v);
    return POME_OK;
}

pome_status pome_json_str(const json_t *object, const char *what, const char *field, pome_str *out, pome_error *err)
{
    const json_t *v = json_object_get(object, field);
    if (!v || json_is_null(v))
        return POME_OK;
    if (!json_is_string(v))
        return pome_fail(err, POME_ERR_FORMAT, "%s: %s is not a string", what, field);
    *out = (pome_str){json_string_value(v), json_string_length(v)};
    return POME_OK;
}

pome_status pome_json_id(const json_t *value, const char *what, int32_t *out, pome_error *err)
{
    if (!json_is_integer(value))
        return pome_fail(err, POME_ERR_FORMAT, "%s: not an integer", what);
    json_int_t id = json_integer_value(value);
    if (id < 0 || id >= POME_VOCAB_IDS_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "%s: %lld is no token id (0 to %d)", what, (long long)id,
                         POME_VOCAB_IDS_MAX - 1);
    *out = (int32_t)id;
    return POME_OK;
}

pome_status pome_json_type(const json_t *object, const char *what, const char **out, pome_error *err)
{
    const json_t *v = json_object_get(object, "type");
    if (!json_is_string(v))
        return pome_fail(err, POME_ERR_FORMAT, "%s: no type", what);
    *out = json_string_value(v);
    return POME_OK;
}

pome_status pome_json_array(const json_t *object, const char *what, const char *field, const json_t **out,
                            pome_error *err)
{
    const json_t *v = json_object_get(object, field);
    if (!json_is_array(v))
        return pome_fail(err, POME_ERR_FORMAT, "%s: %s is not a list", what, field);
    *out = v;
    return POME_OK;
}
