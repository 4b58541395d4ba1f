/* The engine's interface: sources in, text out. */
#include "text/jinja.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/jinja_eval.h"

#define SOURCE_BYTES_MAX ((size_t)1 << 20)

/* Newlines become \n and one at the very end is dropped, as jinja2 reads its sources. */
static pome_status normalize_source(pome_arena *arena, const char *source, size_t len, pome_str *out, pome_error *err)
{
    char *copy = pome_arena_strndup(arena, source, len);
    if (!copy)
        return pome_fail_nomem(err, len, "a template");
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (copy[i] == '\r') {
            copy[n++] = '\n';
            i += i + 1 < len && copy[i + 1] == '\n';
        } else {
            copy[n++] = copy[i];
        }
    }
    if (n > 0 && copy[n - 1] == '\n')
        n--;
    copy[n] = '\0';
    *out = (pome_str){copy, n};
    return POME_OK;
}

pome_status pome_jinja_compile(pome_jinja **out, const char *source, size_t len, pome_error *err)
{
    if (len > SOURCE_BYTES_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "template has %zu bytes, at most %zu are allowed", len, SOURCE_BYTES_MAX);
    pome_jinja *jinja = calloc(1, sizeof *jinja);
    pome_str text;
    pome_jinja_token *tokens;
    if (!jinja || !(jinja->arena = pome_arena_create((size_t)256 << 20))) {
        free(jinja);
        return pome_fail_nomem(err, len, "a template");
    }
    pome_status status = normalize_source(jinja->arena, source, len, &text, err);
    if (status == POME_OK)
        status = pome_jinja_lex(jinja->arena, text, &tokens, err);
    if (status == POME_OK)
        status = pome_jinja_parse(jinja, tokens, err);
    if (status != POME_OK)
        pome_jinja_destroy(&jinja);
    else
        *out = jinja;
    return status;
}

void pome_jinja_destroy(pome_jinja **jinja)
{
    if (!*jinja)
        return;
    pome_arena_destroy(&(*jinja)->arena);
    free(*jinja);
    *jinja = NULL;
}

pome_status pome_jinja_render(const pome_jinja *jinja, const json_t *context, const pome_jinja_limits *limits,
                              char **text, size_t *len, pome_error *err)
{
    static const pome_jinja_limits usual = {(size_t)256 << 20, (size_t)64 << 20, 50000000};
    if (!limits)
        limits = &usual;
    pome_strbuf out = {.limit = limits->output_bytes};
    pome_jinja_run run = {.arena = pome_arena_create(limits->memory_bytes), .out = &out, .line = 1,
                          .steps_left = limits->steps, .output_limit = limits->output_bytes, .err = err};
    if (!run.arena)
        return pome_fail_nomem(err, 0, "rendering a template");
    pome_status status = pome_jinja_evaluate(jinja, context, &run);
    size_t n;
    char *taken;
    if (status == POME_OK && !(taken = pome_strbuf_take(&out, &n)))
        status = pome_fail_nomem(err, out.len, "rendered text");
    if (status == POME_OK) {
        *text = taken;
        *len = n;
    }
    pome_strbuf_reset(&out);
    pome_arena_destroy(&run.arena);
    return status;
}
