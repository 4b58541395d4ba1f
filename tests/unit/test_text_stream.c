#include "text_test.h"

static pome_tokenizer *byte_tokenizer(void)
{
    char *json = byte_level_json(",\"<s>\":256,\"\xe2\x82\xac\":257",
                                 "", ",\"added_tokens\":[{\"id\":256,\"content\":\"<s>\",\"special\":true}]"
                                 BYTE_LEVEL_STEPS);
    pome_tokenizer *t = must_read(json);
    free(json);
    return t;
}

static void push(pome_text_stream *s, int32_t id, const char *want)
{
    const char *text = NULL;
    size_t len = 99;
    assert_int_equal(pome_text_stream_push(s, id, &text, &len, NULL), POME_OK);
    assert_int_equal(len, strlen(want));
    assert_memory_equal(text, want, len);
}

static void finish(pome_text_stream *s, const char *want)
{
    const char *text = NULL;
    size_t len = 99;
    assert_int_equal(pome_text_stream_finish(s, &text, &len, NULL), POME_OK);
    assert_int_equal(len, strlen(want));
    assert_memory_equal(text, want, len);
}

static pome_text_stream *start(const pome_tokenizer *t, bool skip_special)
{
    pome_text_stream *s = NULL;
    assert_int_equal(pome_text_stream_create(&s, t, skip_special, NULL), POME_OK);
    return s;
}

static void holds_incomplete_characters(void **state)
{
    (void)state;
    pome_tokenizer *t = byte_tokenizer();
    pome_text_stream *s = start(t, true);
    push(s, 'a', "a");
    push(s, 0xf0, ""); /* an emoji in four tokens */
    push(s, 0x9f, "");
    push(s, 0x99, "");
    push(s, 0x82, "\xf0\x9f\x99\x82");
    push(s, 0xe6, ""); /* a Chinese character */
    push(s, 256, "");  /* a special token between its bytes gives nothing and changes nothing */
    push(s, 0x97, "");
    push(s, 0xa5, "\xe6\x97\xa5");
    push(s, 0xd7, ""); /* a Hebrew letter */
    push(s, 0xa9, "\xd7\xa9");
    push(s, 257, "\xe2\x82\xac"); /* a token outside the byte-level alphabet is itself */
    push(s, 99999, "");           /* an id without an entry */
    finish(s, "");
    pome_text_stream_destroy(&s);
    assert_null(s);
    pome_text_stream_destroy(&s);
    pome_tokenizer_close(&t);
}

static void replaces_invalid_bytes_once(void **state)
{
    (void)state;
    pome_tokenizer *t = byte_tokenizer();
    pome_text_stream *s = start(t, false);
    push(s, 0xff, "\xef\xbf\xbd");
    push(s, 0xf0, "");
    push(s, 0x9f, "");
    push(s, 'a', "\xef\xbf\xbd" "a"); /* the two bytes are one maximal part */
    push(s, 0xe6, "");
    push(s, 0xe6, "\xef\xbf\xbd"); /* the first cannot go on, the second may */
    push(s, 0x97, "");
    finish(s, "\xef\xbf\xbd"); /* cut off by the end */
    push(s, 'b', "b");         /* and the stream starts afresh */
    push(s, 256, "<s>");
    finish(s, "");
    pome_text_stream_destroy(&s);
    pome_tokenizer_close(&t);
}

static void stream_equals_whole(void **state)
{
    (void)state;
    pome_tokenizer *t = byte_tokenizer();
    uint32_t seed = 12345;
    for (int round = 0; round < 200; round++) {
        int32_t ids[60];
        pome_strbuf joined = {0};
        pome_text_stream *s = start(t, false);
        const char *part;
        size_t len, n = 0;
        for (; n < 60; n++) {
            static const uint8_t bytes[] = {'a', 0xf0, 0x9f, 0x99, 0x82, 0xe6, 0x97, 0xa5, 0xd7, 0xa9, 0xed, 0xa0, 0xff};
            seed = seed * 1664525u + 1013904223u;
            ids[n] = bytes[(seed >> 16) % sizeof bytes];
            assert_int_equal(pome_text_stream_push(s, ids[n], &part, &len, NULL), POME_OK);
            assert_true(pome_utf8_is_valid(part, len));
            pome_strbuf_append(&joined, part, len);
        }
        assert_int_equal(pome_text_stream_finish(s, &part, &len, NULL), POME_OK);
        pome_strbuf_append(&joined, part, len);
        pome_text_stream_destroy(&s);
        expect_text(t, ids, n, joined.data);
        pome_strbuf_reset(&joined);
    }
    pome_tokenizer_close(&t);
}

/* As Llama 2: bytes fall back, the space in front goes, and one at the end waits. */
static void strips_across_tokens(void **state)
{
    (void)state;
    pome_tokenizer *t = must_read(
        "{\"model\":{\"vocab\":{\"\xe2\x96\x81\":0,\"\xe2\x96\x81" "a\":1,\"<0xE2>\":2,\"<0x82>\":3,\"<0xAC>\":4},\"merges\":[]},"
        "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},"
        "\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,"
        "\"stop\":2}]}}");
    pome_text_stream *s = start(t, false);
    push(s, 1, "a");
    push(s, 2, "");
    push(s, 3, "");
    push(s, 4, "\xe2\x82\xac");
    push(s, 0, ""); /* may be the end */
    push(s, 1, "  a");
    push(s, 0, "");
    push(s, 0, "");
    push(s, 0, " "); /* only two are cut */
    finish(s, "");
    pome_text_stream_destroy(&s);
    expect_text(t, (int32_t[]){1, 2, 3, 4, 0, 1, 0, 0, 0}, 9, "a\xe2\x82\xac  a ");
    pome_tokenizer_close(&t);
}

static void joins_without_decoder(void **state)
{
    (void)state;
    pome_tokenizer *t = must_read("{\"model\":{\"vocab\":{\"ab\":0,\"c\":1},\"merges\":[]}}");
    expect_text(t, (int32_t[]){0, 1, 0}, 3, "ab c ab");
    pome_tokenizer_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(holds_incomplete_characters), cmocka_unit_test(replaces_invalid_bytes_once),
        cmocka_unit_test(stream_equals_whole),         cmocka_unit_test(strips_across_tokens),
        cmocka_unit_test(joins_without_decoder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
