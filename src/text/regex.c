#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/regex.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/utf8.h"

#define PATTERN_LEN_MAX 65536u
#define HEAP_LIMIT_KIB 65536u
/* A match of a tokenizer's pattern takes some dozens of steps. One that needs more than the first limit is tried
 * again with more, and only those are charged to the budget; the sum is then linear in the text for real patterns
 * and bounded for hostile ones. */
#define FIRST_STEPS 2000u
#define BUDGET_STEPS 20000000u
#define BUDGET_STEPS_PER_BYTE 256u

struct pome_regex {
    pcre2_code *code;
    char *pattern;
};

pome_status pome_regex_compile(pome_regex **out, const char *pattern, size_t len, pome_error *err)
{
    if (len > PATTERN_LEN_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "regular expression has %zu bytes, at most %u are allowed", len,
                         PATTERN_LEN_MAX);
    pome_strbuf translated = {0};
    pome_status status = pome_regex_translate(&translated, pattern, len, err);
    if (status != POME_OK) {
        pome_strbuf_reset(&translated);
        return status;
    }
    pome_regex *regex = calloc(1, sizeof *regex);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (regex)
        regex->pattern = malloc(len + 1);
    if (!context || !regex || !regex->pattern) {
        status = pome_fail_nomem(err, len, "a regular expression");
        goto done;
    }
    memcpy(regex->pattern, pattern, len);
    regex->pattern[len] = '\0';
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int code;
    PCRE2_SIZE at;
    regex->code = pcre2_compile((PCRE2_SPTR)pome_strbuf_view(&translated).ptr, translated.len,
                                PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &at, context);
    if (!regex->code) {
        char message[128] = "";
        pcre2_get_error_message(code, (PCRE2_UCHAR *)message, sizeof message);
        status = pome_fail(err, POME_ERR_FORMAT, "regular expression \"%.200s\": %s", regex->pattern, message);
        goto done;
    }
    *out = regex;
    regex = NULL;
done:
    pcre2_compile_context_free(context);
    pome_strbuf_reset(&translated);
    pome_regex_destroy(&regex);
    return status;
}

void pome_regex_destroy(pome_regex **regex)
{
    if (!*regex)
        return;
    pcre2_code_free((*regex)->code);
    free((*regex)->pattern);
    free(*regex);
    *regex = NULL;
}

const char *pome_regex_pattern(const pome_regex *regex)
{
    return regex->pattern;
}

pome_status pome_regex_scan_init(pome_regex_scan *scan, const pome_regex *regex, pome_error *err)
{
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    if (!data || !context) {
        pcre2_match_data_free(data);
        pcre2_match_context_free(context);
        return pome_fail_nomem(err, 0, "regular expression matching");
    }
    pcre2_set_heap_limit(context, HEAP_LIMIT_KIB);
    *scan = (pome_regex_scan){.regex = regex, .data = data, .context = context, .budget = BUDGET_STEPS};
    return POME_OK;
}

void pome_regex_scan_reset(pome_regex_scan *scan)
{
    pcre2_match_data_free(scan->data);
    pcre2_match_context_free(scan->context);
    *scan = (pome_regex_scan){0};
}

void pome_regex_scan_begin(pome_regex_scan *scan, const char *text, size_t len)
{
    scan->text = text;
    scan->len = len;
    scan->next = scan->last_end = 0;
    scan->has_last = false;
    scan->budget += (uint64_t)len * BUDGET_STEPS_PER_BYTE;
}

static int match_once(pome_regex_scan *scan)
{
    uint32_t steps = FIRST_STEPS;
    for (;;) {
        pcre2_set_match_limit(scan->context, steps);
        int n = pcre2_match(scan->regex->code, (PCRE2_SPTR)scan->text, scan->len, scan->next, PCRE2_NO_UTF_CHECK,
                            scan->data, scan->context);
        if (n != PCRE2_ERROR_MATCHLIMIT || steps > scan->budget)
            return n;
        scan->budget -= steps;
        steps = steps < UINT32_MAX / 8 ? steps * 4 : steps;
    }
}

pome_status pome_regex_scan_next(pome_regex_scan *scan, bool *found, size_t *begin, size_t *end, pome_error *err)
{
    while (scan->next <= scan->len) {
        int n = match_once(scan);
        if (n == PCRE2_ERROR_NOMATCH)
            break;
        if (n < 0 && n != PCRE2_ERROR_NOMEMORY)
            return pome_fail(err, POME_ERR_LIMIT,
                             "regular expression \"%.200s\": too much work on this text of %zu bytes (code %d)",
                             scan->regex->pattern, scan->len, n);
        if (n < 0)
            return pome_fail_nomem(err, 0, "regular expression matching");
        const PCRE2_SIZE *span = pcre2_get_ovector_pointer(scan->data);
        size_t from = span[0], to = span[1];
        if (from > to) /* \K in a lookahead can turn a match around */
            return pome_fail(err, POME_ERR_UNSUPPORTED, "regular expression \"%.200s\": a match ends before it starts",
                             scan->regex->pattern);
        if (from == to && scan->has_last && scan->last_end == to) {
            scan->next += scan->next < scan->len ? pome_utf8_len(scan->text[scan->next]) : 1;
            continue;
        }
        scan->next = scan->last_end = to;
        scan->has_last = true;
        *found = true;
        *begin = from;
        *end = to;
        return POME_OK;
    }
    scan->next = scan->len + 1;
    *found = false;
    return POME_OK;
}
