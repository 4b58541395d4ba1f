/* Rotary frequencies for tests written in Python: reads lines of {"config": path of a config.json, "positions": [...]},
 * answers each with a line of {"factor": of cos and sin, "rows": inverse frequencies for each position} or
 * {"error": ...}. With "local" true in the request, those of layers with a window. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "convert/lm_config.h"

enum { DIM_MAX = 1024 };

static json_t *answer(const json_t *request, pome_arena *arena)
{
    pome_error err = {0};
    pome_lm_config c;
    double row[DIM_MAX / 2];
    const char *path = json_string_value(json_object_get(request, "config"));
    if (!path || pome_lm_config_read(&c, path, arena, &err) != POME_OK)
        return json_pack("{s:s}", "error", err.message);
    const pome_rope *rope = json_is_true(json_object_get(request, "local")) ? &c.local_rope : &c.rope;
    if (rope->dim < 1 || rope->dim > DIM_MAX)
        return json_pack("{s:s}", "error", "no rotary positions, or too many elements");
    json_t *rows = json_array(), *position;
    size_t at;
    json_array_foreach(json_object_get(request, "positions"), at, position)
    {
        json_t *list = json_array();
        pome_rope_frequencies(row, rope, json_integer_value(position));
        for (int64_t i = 0; i < rope->dim / 2; i++)
            json_array_append_new(list, json_real(row[i]));
        json_array_append_new(rows, list);
    }
    return json_pack("{s:f, s:o}", "factor", pome_rope_attention_factor(rope), "rows", rows);
}

int main(void)
{
    char *line = NULL;
    size_t cap = 0;
    while (getline(&line, &cap, stdin) > 0) {
        pome_arena *arena = pome_arena_create(0);
        json_t *request = json_loads(line, 0, NULL);
        json_t *reply = request && arena ? answer(request, arena) : NULL;
        char *out = reply ? json_dumps(reply, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
        puts(out ? out : "{\"error\":\"no answer\"}");
        fflush(stdout);
        free(out);
        json_decref(reply);
        json_decref(request);
        pome_arena_destroy(&arena);
    }
    free(line);
    return 0;
}
