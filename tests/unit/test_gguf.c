#include "text_test.h"

#include "formats/gguf.h"

#define SPACE "\xe2\x96\x81" /* how SentencePiece writes one */

/* ---- writing small files ---- */

static void put(pome_strbuf *b, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        pome_strbuf_putc(b, i < 8 ? (char)(v >> 8 * i & 0xff) : '\0');
}

static void put_str(pome_strbuf *b, const char *s)
{
    put(b, strlen(s), 8);
    pome_strbuf_puts(b, s);
}

static void put_key(pome_strbuf *b, const char *key, uint32_t type)
{
    put_str(b, key);
    put(b, type, 4);
}

static void put_header(pome_strbuf *b, uint32_t version, uint64_t n_tensors, uint64_t n_entries)
{
    pome_strbuf_puts(b, "GGUF");
    put(b, version, 4);
    put(b, n_tensors, 8);
    put(b, n_entries, 8);
}

static void put_string_entry(pome_strbuf *b, const char *key, const char *value)
{
    put_key(b, key, POME_GGUF_STRING);
    put_str(b, value);
}

static void put_array(pome_strbuf *b, const char *key, uint32_t element, uint64_t n)
{
    put_key(b, key, POME_GGUF_ARRAY);
    put(b, element, 4);
    put(b, n, 8);
}

static void put_strings(pome_strbuf *b, const char *key, const char *const *items, size_t n)
{
    put_array(b, key, POME_GGUF_STRING, n);
    for (size_t i = 0; i < n; i++)
        put_str(b, items[i]);
}

static uint32_t float_bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static pome_bytes bytes_of(const pome_strbuf *b)
{
    return (pome_bytes){(const uint8_t *)b->data, b->len};
}

/* ---- the reader ---- */

static void sample(pome_strbuf *b)
{
    put_header(b, 3, 1, 7);
    put_string_entry(b, "general.name", "tiny");
    put_key(b, "a.u8", POME_GGUF_U8);
    put(b, 200, 1);
    put_key(b, "a.i16", POME_GGUF_I16);
    put(b, (uint16_t)-5, 2);
    put_key(b, "a.f32", POME_GGUF_F32);
    put(b, float_bits(1.5f), 4);
    put_key(b, "a.bool", POME_GGUF_BOOL);
    put(b, 1, 1);
    put_strings(b, "a.list", (const char *const[]){"x", "", "yz"}, 3);
    put_array(b, "a.ints", POME_GGUF_I32, 2);
    put(b, 7, 4);
    put(b, (uint32_t)-8, 4);
    put_str(b, "weight");
    put(b, 2, 4);
    put(b, 4, 8);
    put(b, 3, 8);
    put(b, 0, 4);
    put(b, 32, 8);
    while (b->len % 32)
        put(b, 0, 1);
    put(b, 0, 32 + 4 * 3 * 4);
    for (int i = 0; i < 9; i++)
        put(b, 0, 8);
}

static void reads_every_kind(void **state)
{
    (void)state;
    pome_strbuf b = {0};
    pome_gguf g;
    pome_error err = {0};
    sample(&b);
    if (pome_gguf_read(&g, bytes_of(&b), &err) != POME_OK)
        fail_msg("%s", err.message);
    uint64_t u = 0;
    double f = 0;
    bool flag = false;
    pome_str s;
    assert_int_equal(g.version, 3);
    assert_true(pome_gguf_get_str(&g, "general.name", &s) && pome_str_is(s, "tiny"));
    assert_true(pome_gguf_get_uint(&g, "a.u8", &u) && u == 200);
    assert_false(pome_gguf_get_uint(&g, "a.i16", &u)); /* negative */
    assert_true(pome_gguf_get_float(&g, "a.i16", &f) && f == -5);
    assert_true(pome_gguf_get_float(&g, "a.f32", &f) && f == 1.5);
    assert_true(pome_gguf_get_bool(&g, "a.bool", &flag) && flag);
    assert_false(pome_gguf_get_bool(&g, "a.u8", &flag));
    assert_false(pome_gguf_get_str(&g, "missing", &s));
    const pome_gguf_entry *list = pome_gguf_find(&g, "a.list");
    size_t at = 0;
    assert_int_equal(list->count, 3);
    assert_true(pome_str_is(pome_gguf_next_str(list, &at), "x"));
    assert_true(pome_str_is(pome_gguf_next_str(list, &at), ""));
    assert_true(pome_str_is(pome_gguf_next_str(list, &at), "yz"));
    assert_int_equal(at, list->data.len);
    assert_int_equal(pome_gguf_element_int(pome_gguf_find(&g, "a.ints"), 1), -8);
    assert_int_equal(g.n_tensors, 1);
    assert_true(pome_str_is(g.tensors[0].name, "weight"));
    assert_int_equal(g.tensors[0].dims[0], 4);
    assert_int_equal(g.tensors[0].dims[1], 3);
    assert_int_equal(g.tensors[0].dims[3], 1);
    assert_int_equal(g.data_offset % 32, 0);
    assert_int_equal(g.tensors[0].offset, g.data_offset + 32);
    pome_gguf_close(&g);
    /* Cut anywhere before the data section, it is refused. */
    for (size_t n = 0; n < b.len; n++) {
        pome_error cut = {0};
        pome_status status = pome_gguf_read(&g, (pome_bytes){(const uint8_t *)b.data, n}, &cut);
        if (status == POME_OK) {
            assert_true(n >= g.data_offset + 32);
            pome_gguf_close(&g);
            continue;
        }
        assert_int_equal(status, POME_ERR_FORMAT);
        assert_true(cut.message[0]);
    }
    pome_strbuf_reset(&b);
}

/* Metadata alone, in memory of exactly its size: cut at any byte, it is refused. */
static void refuses_every_cut(void **state)
{
    (void)state;
    pome_strbuf b = {0};
    pome_gguf g;
    put_header(&b, 2, 0, 4);
    put_strings(&b, "l", (const char *const[]){"x", "yz"}, 2);
    put_array(&b, "i", POME_GGUF_U16, 3);
    put(&b, 0, 6);
    put_string_entry(&b, "s", "text");
    put_key(&b, "b", POME_GGUF_BOOL);
    put(&b, 1, 1);
    for (size_t n = 0; n <= b.len; n++) {
        uint8_t *copy = malloc(n + 1);
        memcpy(copy, b.data, n);
        pome_status status = pome_gguf_read(&g, (pome_bytes){copy, n}, NULL);
        assert_int_equal(status, n < b.len ? POME_ERR_FORMAT : POME_OK);
        if (status == POME_OK)
            pome_gguf_close(&g);
        free(copy);
    }
    pome_strbuf_reset(&b);
}

static void expect_refusal(pome_strbuf *b, pome_status code, const char *part)
{
    pome_gguf g;
    pome_error err = {0};
    while (b->len < 400)
        put(b, 0, 1);
    pome_status status = pome_gguf_read(&g, bytes_of(b), &err);
    if (status != code || !strstr(err.message, part))
        fail_msg("status %d, message \"%s\", wanted %d and \"%s\"", (int)status, err.message, (int)code, part);
    pome_strbuf_reset(b);
}

static void refuses_lies(void **state)
{
    (void)state;
    pome_strbuf b = {0};
    put_header(&b, 1, 0, 0);
    expect_refusal(&b, POME_ERR_UNSUPPORTED, "version 1");
    put_header(&b, 0x03000000, 0, 0);
    expect_refusal(&b, POME_ERR_UNSUPPORTED, "big-endian");
    pome_strbuf_puts(&b, "GGML");
    expect_refusal(&b, POME_ERR_FORMAT, "start with");
    put_header(&b, 3, 0, UINT64_MAX);
    expect_refusal(&b, POME_ERR_FORMAT, "entries");
    put_header(&b, 3, UINT64_MAX / 2, 0);
    expect_refusal(&b, POME_ERR_FORMAT, "tensors");
    put_header(&b, 3, 0, 1);
    put(&b, UINT64_MAX, 8); /* the key's length */
    expect_refusal(&b, POME_ERR_FORMAT, "beyond the end");
    put_header(&b, 3, 0, 1);
    put_key(&b, "k", 13);
    expect_refusal(&b, POME_ERR_FORMAT, "type 13");
    put_header(&b, 3, 0, 1);
    put_array(&b, "k", POME_GGUF_ARRAY, 1);
    expect_refusal(&b, POME_ERR_UNSUPPORTED, "array of type 9");
    put_header(&b, 3, 0, 1);
    put_array(&b, "k", POME_GGUF_F64, UINT64_MAX / 4);
    expect_refusal(&b, POME_ERR_FORMAT, "beyond the end");
    put_header(&b, 3, 0, 1);
    put_array(&b, "k", POME_GGUF_STRING, UINT64_MAX);
    expect_refusal(&b, POME_ERR_FORMAT, "beyond the end");
    put_header(&b, 3, 0, 1);
    put_key(&b, "general.alignment", POME_GGUF_U32);
    put(&b, 3, 4);
    expect_refusal(&b, POME_ERR_FORMAT, "power of two");
    put_header(&b, 3, 1, 0);
    put_str(&b, "t");
    put(&b, 5, 4);
    expect_refusal(&b, POME_ERR_FORMAT, "5 dimensions");
    put_header(&b, 3, 1, 0);
    put_str(&b, "t");
    put(&b, 2, 4);
    put(&b, UINT64_MAX / 2, 8);
    put(&b, 3, 8);
    expect_refusal(&b, POME_ERR_FORMAT, "too many elements");
    put_header(&b, 3, 1, 0);
    put_str(&b, "t");
    put(&b, 1, 4);
    put(&b, 1, 8);
    put(&b, 0, 4);
    put(&b, 1u << 20, 8);
    expect_refusal(&b, POME_ERR_FORMAT, "lies at 1048576");
}

/* ---- vocabularies ---- */

static pome_tokenizer *must_open(pome_strbuf *b)
{
    pome_tokenizer *t = NULL;
    pome_error err = {0};
    if (pome_tokenizer_read(&t, bytes_of(b), "test.gguf", &err) != POME_OK)
        fail_msg("%s", err.message);
    pome_strbuf_reset(b);
    return t;
}

static void put_types(pome_strbuf *b, const uint32_t *types, size_t n)
{
    put_array(b, "tokenizer.ggml.token_type", POME_GGUF_I32, n);
    for (size_t i = 0; i < n; i++)
        put(b, types[i], 4);
}

static void gpt2_file(pome_strbuf *b, const char *pre)
{
    put_header(b, 3, 0, 9);
    put_string_entry(b, "tokenizer.ggml.model", "gpt2");
    put_string_entry(b, "tokenizer.ggml.pre", pre);
    put_strings(b, "tokenizer.ggml.tokens",
                (const char *const[]){"a", "b", "ab", "1", "2", "12", "<s>", "<|im_end|>", "\xc4\xa0", "\xc4\xa0" "a"}, 10);
    put_types(b, (const uint32_t[]){1, 1, 1, 1, 1, 1, 3, 3, 1, 1}, 10);
    put_strings(b, "tokenizer.ggml.merges", (const char *const[]){"a b", "1 2", "\xc4\xa0 a"}, 3);
    put_key(b, "tokenizer.ggml.bos_token_id", POME_GGUF_U32);
    put(b, 6, 4);
    put_key(b, "tokenizer.ggml.eos_token_id", POME_GGUF_U32);
    put(b, 7, 4);
    put_key(b, "tokenizer.ggml.add_bos_token", POME_GGUF_BOOL);
    put(b, 1, 1);
    put_string_entry(b, "tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}");
}

static void reads_byte_level_vocabularies(void **state)
{
    (void)state;
    pome_strbuf b = {0};
    gpt2_file(&b, "gpt-2");
    pome_tokenizer *t = must_open(&b);
    expect_ids(t, "ab12 a", 6, false, (int32_t[]){2, 5, 9}, 3);
    expect_ids(t, "ab<|im_end|>", 12, true, (int32_t[]){6, 2, 7}, 3);
    expect_text(t, (int32_t[]){2, 9, 7}, 3, "ab a<|im_end|>");
    size_t n;
    assert_int_equal(pome_tokenizer_eos(t, &n)[0], 7);
    assert_int_equal(n, 1);
    char *text;
    size_t len;
    pome_message m = {"user", "ab"};
    assert_int_equal(pome_tokenizer_apply_chat_template(t, &m, 1, false, &text, &len, NULL), POME_OK);
    assert_string_equal(text, "<s>ab<|im_end|>");
    free(text);
    pome_tokenizer_close(&t);
    gpt2_file(&b, "smollm"); /* digits stand alone */
    t = must_open(&b);
    expect_ids(t, "ab12 a", 6, false, (int32_t[]){2, 3, 4, 9}, 4);
    pome_tokenizer_close(&t);
}

static void llama_file(pome_strbuf *b)
{
    static const char *const tokens[] = {"<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", SPACE, "a", "b", "ab", (SPACE "a"),
                                         "ba"};
    static const float scores[] = {0, 0, 0, 0, 0, -9, -8, -7, -3, -2, -1};
    put_header(b, 3, 0, 6);
    put_string_entry(b, "tokenizer.ggml.model", "llama");
    put_strings(b, "tokenizer.ggml.tokens", tokens, 11);
    put_types(b, (const uint32_t[]){2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1}, 11);
    put_array(b, "tokenizer.ggml.scores", POME_GGUF_F32, 11);
    for (size_t i = 0; i < 11; i++)
        put(b, float_bits(scores[i]), 4);
    put_key(b, "tokenizer.ggml.bos_token_id", POME_GGUF_U32);
    put(b, 1, 4);
    put_key(b, "tokenizer.ggml.unknown_token_id", POME_GGUF_U32);
    put(b, 0, 4);
}

static void reads_sentencepiece_vocabularies(void **state)
{
    (void)state;
    pome_strbuf b = {0};
    llama_file(&b);
    pome_tokenizer *t = must_open(&b);
    expect_ids(t, "ab", 2, true, (int32_t[]){1, 9, 7}, 3); /* _a before ab: the better score */
    expect_ids(t, "aba", 3, false, (int32_t[]){9, 10}, 2);  /* ba first, then _a */
    expect_ids(t, "b\xc3\xa9", 3, false, (int32_t[]){5, 7, 3, 4}, 4); /* the bytes of what is not there */
    expect_ids(t, "b\xf0", 2, false, (int32_t[]){5, 7, 0}, 3);        /* the unknown token where they lack too */
    expect_ids(t, "b</s>a", 6, false, (int32_t[]){5, 7, 2, 9}, 4);    /* a space in front after a special token */
    expect_text(t, (int32_t[]){9, 7, 3, 4, 9}, 5, "ab\xc3\xa9 a");
    pome_tokenizer_close(&t);
}

static void refuses_bad_vocabularies(void **state)
{
    (void)state;
    pome_strbuf b = {0};
    pome_tokenizer *t = NULL;
    pome_error err = {0};
    put_header(&b, 3, 0, 0);
    assert_int_equal(pome_tokenizer_read(&t, bytes_of(&b), "x", &err), POME_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "x: GGUF: no tokenizer.ggml.model"));
    pome_strbuf_reset(&b);
    gpt2_file(&b, "no-such-rule");
    assert_int_equal(pome_tokenizer_read(&t, bytes_of(&b), "x", &err), POME_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "\"no-such-rule\" is not known"));
    pome_strbuf_reset(&b);
    put_header(&b, 3, 0, 1);
    put_string_entry(&b, "tokenizer.ggml.model", "bert");
    assert_int_equal(pome_tokenizer_read(&t, bytes_of(&b), "x", &err), POME_ERR_UNSUPPORTED);
    assert_non_null(strstr(err.message, "\"bert\""));
    pome_strbuf_reset(&b);
    put_header(&b, 3, 0, 3);
    put_string_entry(&b, "tokenizer.ggml.model", "gpt2");
    put_strings(&b, "tokenizer.ggml.tokens", (const char *const[]){"a"}, 1);
    put_strings(&b, "tokenizer.ggml.merges", (const char *const[]){"a a"}, 1);
    assert_int_equal(pome_tokenizer_read(&t, bytes_of(&b), "x", &err), POME_ERR_FORMAT);
    assert_non_null(strstr(err.message, "merge 0"));
    pome_strbuf_reset(&b);
    put_header(&b, 3, 0, 2);
    put_string_entry(&b, "tokenizer.ggml.model", "llama");
    put_strings(&b, "tokenizer.ggml.tokens", (const char *const[]){"\xff"}, 1);
    assert_int_equal(pome_tokenizer_read(&t, bytes_of(&b), "x", &err), POME_ERR_FORMAT);
    assert_non_null(strstr(err.message, "token 0 is not UTF-8"));
    pome_strbuf_reset(&b);
    put_header(&b, 3, 0, 2);
    put_string_entry(&b, "tokenizer.ggml.model", "llama");
    put_strings(&b, "tokenizer.ggml.tokens", (const char *const[]){"a"}, 1);
    assert_int_equal(pome_tokenizer_read(&t, bytes_of(&b), "x", &err), POME_ERR_FORMAT);
    assert_non_null(strstr(err.message, "scores"));
    pome_strbuf_reset(&b);
    assert_null(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_kind),
        cmocka_unit_test(refuses_every_cut),
        cmocka_unit_test(refuses_lies),
        cmocka_unit_test(reads_byte_level_vocabularies),
        cmocka_unit_test(reads_sentencepiece_vocabularies),
        cmocka_unit_test(refuses_bad_vocabularies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
