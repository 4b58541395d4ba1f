/* Regular expressions as tokenizer files write them (Oniguruma, Ruby flavour), matched by PCRE2. */
#ifndef POME_TEXT_REGEX_H
#define POME_TEXT_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/strbuf.h"

typedef struct pome_regex pome_regex; /* immutable: may be shared by threads */

/* Errors: UNSUPPORTED for a construct that has no equal in PCRE2 (named), FORMAT for a malformed pattern. */
pome_status pome_regex_compile(pome_regex **out, const char *pattern, size_t len, pome_error *err);
void pome_regex_destroy(pome_regex **regex);
const char *pome_regex_pattern(const pome_regex *regex); /* as given to compile */

/* Rewrites an Oniguruma pattern for PCRE2 (with UTF, UCP, MULTILINE). Exposed for its test. */
pome_status pome_regex_translate(pome_strbuf *out, const char *pattern, size_t len, pome_error *err);
void pome_regex_append_literal(pome_strbuf *out, const char *text, size_t len); /* text with specials escaped */

/* One thread's walk over the matches in texts. Its work over its whole life is bounded in proportion to the text
 * seen, so that no pair of pattern and text can hang: LIMIT then. */
typedef struct pome_regex_scan {
    const pome_regex *regex;
    void *data, *context; /* PCRE2's match data and match context */
    const char *text;
    size_t len, next, last_end;
    bool has_last;
    uint64_t budget; /* match steps that expensive matches may still take */
} pome_regex_scan;

pome_status pome_regex_scan_init(pome_regex_scan *scan, const pome_regex *regex, pome_error *err);
void pome_regex_scan_reset(pome_regex_scan *scan);
/* Starts over on text[0..len), which is valid UTF-8 and stays the caller's. */
void pome_regex_scan_begin(pome_regex_scan *scan, const char *text, size_t len);
/* The next match, leftmost first, not overlapping; an empty match right after the last match is passed over.
 * *found false: no more. */
pome_status pome_regex_scan_next(pome_regex_scan *scan, bool *found, size_t *begin, size_t *end, pome_error *err);

#endif
