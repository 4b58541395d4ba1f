/* What the text tests share: small tokenizers written on the spot. */
#ifndef POME_TESTS_TEXT_TEST_H
#define POME_TESTS_TEXT_TEST_H

#include <stdarg.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "text/normalizer.h"
#include "text/strbuf.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

/* A tokenizer.json with the 256 bytes as ids 0 to 255, `more` as further vocabulary (",\"ab\":256"), merges and the
 * other members as given. */
static inline char *byte_level_json(const char *more, const char *merges, const char *members)
{
    pome_strbuf b = {0};
    pome_strbuf_puts(&b, "{\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int i = 0; i < 256; i++) {
        uint32_t cp = pome_byte_level_char((uint8_t)i);
        pome_strbuf_puts(&b, i ? ",\"" : "\"");
        if (cp == '"' || cp == '\\')
            pome_strbuf_putc(&b, '\\');
        pome_strbuf_put_cp(&b, cp);
        pome_strbuf_printf(&b, "\":%d", i);
    }
    pome_strbuf_printf(&b, "%s},\"merges\":[%s]}%s}", more, merges, members);
    char *text = pome_strbuf_take(&b, NULL);
    assert_non_null(text);
    return text;
}

#define BYTE_LEVEL_STEPS                                                                                               \
    ",\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"decoder\":{\"type\":\"ByteLevel\"}"

static inline pome_status read_text(pome_tokenizer **out, const char *json, pome_error *err)
{
    return pome_tokenizer_read(out, (pome_bytes){(const uint8_t *)json, strlen(json)}, "test", err);
}

static inline pome_tokenizer *must_read(const char *json)
{
    pome_tokenizer *t = NULL;
    pome_error err = {0};
    if (read_text(&t, json, &err) != POME_OK)
        fail_msg("%s", err.message);
    return t;
}

/* Encodes and compares with n ids. */
static inline void expect_ids(const pome_tokenizer *t, const char *text, size_t len, bool add_special,
                              const int32_t *want, size_t n)
{
    int32_t *ids = NULL;
    size_t n_ids = 0;
    pome_error err = {0};
    assert_int_equal(pome_tokenizer_encode(t, text, len, add_special, true, &ids, &n_ids, &err), POME_OK);
    assert_int_equal(n_ids, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ids[i], want[i]);
    free(ids);
}

static inline void expect_text(const pome_tokenizer *t, const int32_t *ids, size_t n, const char *want)
{
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(pome_tokenizer_decode(t, ids, n, false, &text, &len, NULL), POME_OK);
    assert_string_equal(text, want);
    assert_int_equal(len, strlen(want));
    free(text);
}

#endif
