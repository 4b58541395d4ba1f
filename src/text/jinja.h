/* Jinja templates as chat templates use them: the language of jinja2 with trim_blocks and lstrip_blocks, the
 * additions of Hugging Face transformers (tojson without HTML escapes, raise_exception, strftime_now, break,
 * continue, generation blocks), in a sandbox with limits. docs: a construct that is not known is refused by name.
 *
 *     pome_jinja_compile(&j, source, len, &err);
 *     pome_jinja_render(j, context, NULL, &text, &len, &err);     context: a jansson object                        */
#ifndef POME_TEXT_JINJA_H
#define POME_TEXT_JINJA_H

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "pome/status.h"

typedef struct pome_jinja pome_jinja; /* immutable: may be shared by threads */

/* Copies the source. Errors, with line: FORMAT (syntax), UNSUPPORTED (a statement, filter or test not known). */
pome_status pome_jinja_compile(pome_jinja **out, const char *source, size_t len, pome_error *err);
void pome_jinja_destroy(pome_jinja **jinja);

typedef struct pome_jinja_limits {
    size_t memory_bytes; /* of all values made while rendering */
    size_t output_bytes;
    uint64_t steps; /* evaluations, and work on long strings and lists */
} pome_jinja_limits;

/* The variables are the members of `context`, borrowed. *text is malloc'ed, NUL-terminated, UTF-8. limits NULL: the
 * usual ones. Errors, with line: ARG (the template raised, or a value is of the wrong type or undefined), LIMIT,
 * UNSUPPORTED (a method that is not known). */
pome_status pome_jinja_render(const pome_jinja *jinja, const json_t *context, const pome_jinja_limits *limits,
                              char **text, size_t *len, pome_error *err);

#endif
