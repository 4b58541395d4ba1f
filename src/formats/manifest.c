#include "formats/manifest.h"

#include <jansson.h>
#include <stdio.h>

bool pome_path_is_inside(const char *path)
{
    if (path[0] == '\0' || path[0] == '/')
        return false;
    for (const char *p = path; *p;) {
        size_t len = strcspn(p, "/");
        if (len == 2 && p[0] == '.' && p[1] == '.')
            return false;
        p += len + (p[len] == '/');
    }
    return true;
}

/* A copy of a text member; `fallback` where there is none (NULL: it is required). */
static pome_status text_member(const char **out, const json_t *object, const char *key, const char *fallback,
                               pome_arena *arena, pome_error *err)
{
    const json_t *v = json_object_get(object, key);
    if (!v && fallback) {
        *out = fallback;
        return POME_OK;
    }
    if (!json_is_string(v))
        return pome_fail(err, POME_ERR_FORMAT, "Manifest.json: %s is %s, wanted text", key,
                         v ? "no text" : "missing");
    *out = pome_arena_strndup(arena, json_string_value(v), json_string_length(v));
    return *out ? POME_OK : pome_fail_nomem(err, json_string_length(v), "manifest text");
}

static pome_status check_version(const json_t *root, pome_arena *arena, pome_error *err)
{
    const char *text;
    unsigned major, minor, patch;
    POME_TRY(text_member(&text, root, "fileFormatVersion", NULL, arena, err));
    if (sscanf(text, "%5u.%5u.%5u", &major, &minor, &patch) != 3)
        return pome_fail(err, POME_ERR_FORMAT, "Manifest.json: fileFormatVersion is \"%.40s\", wanted three numbers",
                         text);
    if (major > 1 || (major == 1 && (minor || patch)))
        return pome_fail(err, POME_ERR_UNSUPPORTED, "Manifest.json: fileFormatVersion is %.40s, known up to 1.0.0",
                         text);
    return POME_OK;
}

static pome_status read_item(pome_manifest_item *item, const char *identifier, const json_t *entry,
                             pome_arena *arena, pome_error *err)
{
    if (!json_is_object(entry))
        return pome_fail(err, POME_ERR_FORMAT, "Manifest.json: item %.60s is no object", identifier);
    item->identifier = pome_arena_strndup(arena, identifier, strlen(identifier));
    if (!item->identifier)
        return pome_fail_nomem(err, strlen(identifier), "manifest text");
    POME_TRY(text_member(&item->path, entry, "path", NULL, arena, err));
    POME_TRY(text_member(&item->name, entry, "name", "", arena, err));
    POME_TRY(text_member(&item->author, entry, "author", "", arena, err));
    if (!pome_path_is_inside(item->path))
        return pome_fail(err, POME_ERR_FORMAT, "Manifest.json: path \"%.200s\" of item %.60s leaves the package",
                         item->path, identifier);
    return POME_OK;
}

static pome_status read_manifest(pome_manifest *out, json_t *root, pome_arena *arena, pome_error *err)
{
    if (!json_is_object(root))
        return pome_fail(err, POME_ERR_FORMAT, "Manifest.json: no object");
    POME_TRY(check_version(root, arena, err));
    const char *root_id;
    POME_TRY(text_member(&root_id, root, "rootModelIdentifier", NULL, arena, err));
    json_t *entries = json_object_get(root, "itemInfoEntries");
    if (!json_is_object(entries))
        return pome_fail(err, POME_ERR_FORMAT, "Manifest.json: itemInfoEntries is missing or no object");
    size_t n_items = json_object_size(entries), i = 0;
    pome_manifest_item *items = POME_NEW_ARRAY(arena, pome_manifest_item, n_items);
    if (!items)
        return pome_fail_nomem(err, n_items * sizeof *items, "manifest items");
    pome_manifest m = {.items = items, .n_items = n_items};
    const char *key;
    json_t *entry;
    json_object_foreach(entries, key, entry)
    {
        POME_TRY(read_item(&items[i], key, entry, arena, err));
        if (strcmp(key, root_id) == 0)
            m.root = &items[i];
        i++;
    }
    if (!m.root)
        return pome_fail(err, POME_ERR_FORMAT, "Manifest.json: rootModelIdentifier \"%.60s\" names none of %zu items",
                         root_id, n_items);
    *out = m;
    return POME_OK;
}

pome_status pome_manifest_parse(pome_manifest *out, pome_bytes text, pome_arena *arena, pome_error *err)
{
    json_error_t why;
    json_t *root = json_loadb((const char *)text.ptr, text.len, JSON_REJECT_DUPLICATES, &why);
    if (!root && !why.text[0]) /* the one failure without a text */
        return pome_fail_nomem(err, text.len, "Manifest.json");
    if (!root)
        return pome_fail_at(err, POME_ERR_FORMAT, why.position > 0 ? (uint64_t)why.position : 0,
                            "Manifest.json: line %d: %s", why.line, why.text);
    pome_status status = read_manifest(out, root, arena, err);
    json_decref(root);
    return status;
}
