/* metadata.json of a compiled model: a list of one object. Numbers and truth values are text but for a few; what is
 * missing or of another type is passed over. */
#include <jansson.h>
#include <stdlib.h>

#include "formats/mlmodelc.h"

typedef Pome__Spec__FeatureDescription feature_spec;

static pome_status no_memory(pome_error *err)
{
    return pome_fail_nomem(err, 0, "the metadata of a compiled model");
}

static pome_status copy_text(char **out, const json_t *v, pome_arena *arena, pome_error *err)
{
    if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
        return POME_OK;
    char *text = pome_arena_strndup(arena, json_string_value(v), json_string_length(v));
    if (!text)
        return no_memory(err);
    *out = text;
    return POME_OK;
}

/* ---- the interface ---- */

static bool is_text(const json_t *v, const char *text)
{
    return json_is_string(v) && strcmp(json_string_value(v), text) == 0;
}

static void apply_feature(feature_spec *f, const json_t *schema)
{
    static const struct {
        const char *name;
        int32_t code;
    } types[] = {
        {"Float16", 0x10010}, {"Float32", 0x10020}, {"Double", 0x10040}, {"Int32", 0x20020}, {"Int8", 0x20008},
    };
    const json_t *type = json_object_get(schema, "dataType");
    if (is_text(json_object_get(schema, "isOptional"), "1"))
        f->type->isoptional = true;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (f->type->type_case == POME__SPEC__FEATURE_TYPE__TYPE_MULTI_ARRAY_TYPE && is_text(type, types[i].name))
            f->type->multiarraytype->datatype = types[i].code;
}

/* Puts features in the order in which the schema names them; the others follow as they were. */
static void apply_schema(feature_spec **list, size_t n, const json_t *schema)
{
    size_t n_placed = 0;
    for (size_t s = 0; s < json_array_size(schema) && n_placed < n; s++) {
        const json_t *entry = json_array_get(schema, s), *name = json_object_get(entry, "name");
        size_t at = n_placed;
        while (at < n && !is_text(name, list[at]->name))
            at++;
        if (at == n)
            continue;
        feature_spec *f = list[at];
        memmove(list + n_placed + 1, list + n_placed, (at - n_placed) * sizeof *list);
        list[n_placed++] = f;
        apply_feature(f, entry);
    }
}

static const json_t *function_named(const json_t *functions, const char *name)
{
    for (size_t i = 0; i < json_array_size(functions); i++)
        if (is_text(json_object_get(json_array_get(functions, i), "name"), name))
            return json_array_get(functions, i);
    return NULL;
}

static pome_status apply_interface(Pome__Spec__ModelDescription *d, const json_t *root, pome_arena *arena,
                                   pome_error *err)
{
    const json_t *functions = json_object_get(root, "functions");
    char *name = NULL;
    if (!d->n_functions) {
        apply_schema(d->input, d->n_input, json_object_get(root, "inputSchema"));
        apply_schema(d->output, d->n_output, json_object_get(root, "outputSchema"));
        apply_schema(d->state, d->n_state, json_object_get(root, "stateSchema"));
    }
    for (size_t i = 0; i < d->n_functions; i++) {
        Pome__Spec__FunctionDescription *f = d->functions[i];
        const json_t *entry = function_named(functions, f->name);
        apply_schema(f->input, f->n_input, json_object_get(entry, "inputSchema"));
        apply_schema(f->output, f->n_output, json_object_get(entry, "outputSchema"));
        apply_schema(f->state, f->n_state, json_object_get(entry, "stateSchema"));
    }
    POME_TRY(copy_text(&name, json_object_get(root, "defaultFunctionName"), arena, err));
    for (size_t i = 0; name && i < d->n_functions; i++)
        if (strcmp(d->functions[i]->name, name) == 0)
            d->defaultfunctionname = d->functions[i]->name;
    return POME_OK;
}

/* ---- texts ---- */

static pome_status apply_user_defined(Pome__Spec__Metadata *m, json_t *object, pome_arena *arena, pome_error *err)
{
    const char *key;
    json_t *value;
    m->userdefined = POME_NEW_ARRAY(arena, Pome__Spec__StringEntry *, json_object_size(object));
    if (!m->userdefined)
        return no_memory(err);
    json_object_foreach (object, key, value) {
        Pome__Spec__StringEntry *e = POME_NEW(arena, Pome__Spec__StringEntry);
        if (!e)
            return no_memory(err);
        pome__spec__string_entry__init(e);
        e->key = pome_arena_strndup(arena, key, strlen(key));
        if (!e->key)
            return no_memory(err);
        POME_TRY(copy_text(&e->value, value, arena, err));
        m->userdefined[m->n_userdefined++] = e;
    }
    return POME_OK;
}

static pome_status apply_texts(Pome__Spec__ModelDescription *d, const json_t *root, pome_arena *arena, pome_error *err)
{
    Pome__Spec__Metadata *m = POME_NEW(arena, Pome__Spec__Metadata);
    if (!m)
        return no_memory(err);
    pome__spec__metadata__init(m);
    POME_TRY(copy_text(&m->author, json_object_get(root, "author"), arena, err));
    POME_TRY(copy_text(&m->versionstring, json_object_get(root, "version"), arena, err));
    POME_TRY(copy_text(&m->license, json_object_get(root, "license"), arena, err));
    POME_TRY(copy_text(&m->shortdescription, json_object_get(root, "shortDescription"), arena, err));
    POME_TRY(apply_user_defined(m, json_object_get(root, "userDefinedMetadata"), arena, err));
    d->metadata = m;
    return POME_OK;
}

static pome_status apply(Pome__Spec__Model *model, bool is_derived, const json_t *root, pome_arena *arena,
                         pome_error *err)
{
    const json_t *version = json_object_get(root, "specificationVersion");
    if (json_is_integer(version) && json_integer_value(version) > 0 && json_integer_value(version) < 1000)
        model->specificationversion = (int32_t)json_integer_value(version);
    if (is_derived)
        POME_TRY(apply_interface(model->description, root, arena, err));
    return model->description->metadata ? POME_OK : apply_texts(model->description, root, arena, err);
}

pome_status pome_mlmodelc_apply_metadata(Pome__Spec__Model *model, bool is_derived, pome_bytes text,
                                         pome_arena *arena, pome_error *err)
{
    json_error_t why;
    json_t *root = json_loadb((const char *)text.ptr, text.len, 0, &why);
    if (!root)
        return pome_fail(err, POME_ERR_FORMAT, "line %d, column %d: %s", why.line, why.column, why.text);
    const json_t *object = json_is_array(root) ? json_array_get(root, 0) : root;
    pome_status status = json_is_object(object)
                             ? apply(model, is_derived, object, arena, err)
                             : pome_fail(err, POME_ERR_FORMAT, "wanted a list of one object");
    json_decref(root);
    return status;
}
