/* A pull scanner over JSON text, for the two members of tokenizer.json that have hundreds of thousands of entries:
 * no tree is built of them. It checks what it walks over as far as it looks at it. */
#ifndef POME_TEXT_JSON_SCAN_H
#define POME_TEXT_JSON_SCAN_H

#include "text/strbuf.h"

typedef struct pome_json_scan {
    pome_str text;
    size_t pos;
    pome_strbuf scratch; /* of the last string that had escapes */
} pome_json_scan;

/* Each skips white space first; false leaves the position anywhere. */
bool pome_json_scan_punctuation(pome_json_scan *s, char c); /* consumes c if it is next; else stays */
/* A view into the text, or into the scratch until the next call. Lone surrogates are refused. */
bool pome_json_scan_string(pome_json_scan *s, pome_str *out);
bool pome_json_scan_int(pome_json_scan *s, int64_t *out);
bool pome_json_scan_skip(pome_json_scan *s); /* any value */
char pome_json_scan_peek(pome_json_scan *s); /* the next character, 0 at the end */

#endif
