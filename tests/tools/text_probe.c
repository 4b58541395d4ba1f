/* Renders templates for tests written in Python: reads lines of {"template": text, "context": object}, answers each
 * with a line of {"text": ...} or {"code": ..., "error": ...}. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja.h"

static json_t *answer(const json_t *request)
{
    const json_t *source = json_object_get(request, "template");
    pome_error err = {0};
    pome_jinja *jinja = NULL;
    char *text = NULL;
    size_t len = 0;
    pome_status status = pome_jinja_compile(&jinja, json_string_value(source), json_string_length(source), &err);
    if (status == POME_OK)
        status = pome_jinja_render(jinja, json_object_get(request, "context"), NULL, &text, &len, &err);
    pome_jinja_destroy(&jinja);
    json_t *reply = status == POME_OK ? json_pack("{s:s%}", "text", text, len)
                                      : json_pack("{s:s, s:s}", "code", pome_status_name(status), "error", err.message);
    free(text);
    return reply;
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, stdin) > 0) {
        json_t *request = json_loads(line, JSON_ALLOW_NUL, NULL);
        if (!request)
            return 1;
        json_t *reply = answer(request);
        char *out = reply ? json_dumps(reply, JSON_COMPACT) : NULL;
        puts(out ? out : "{\"error\":\"no answer\"}");
        fflush(stdout);
        free(out);
        json_decref(reply);
        json_decref(request);
    }
    free(line);
    return 0;
}
