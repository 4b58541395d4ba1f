#include "text_test.h"

#include <jansson.h>
#include <stdio.h>
#include <unistd.h>

#include "text/regex.h"

#define GOLDEN POME_SOURCE_DIR "/tests/golden/tokenizer"

static void ids_of(const json_t *list, int32_t *ids, size_t *n)
{
    *n = json_array_size(list);
    for (size_t i = 0; i < *n; i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
}

static void matches_stored_results(void **state)
{
    (void)state;
    pome_tokenizer *t = NULL;
    pome_error err = {0};
    json_t *expected = json_load_file(GOLDEN "/expected.json", 0, NULL);
    assert_non_null(expected);
    assert_int_equal(pome_tokenizer_open(&t, GOLDEN, &err), POME_OK);
    assert_int_equal(pome_tokenizer_n_vocab(t), 512);
    assert_string_equal(pome_tokenizer_source(t), GOLDEN "/tokenizer.json");
    int32_t ids[256];
    size_t n, i;
    json_t *item;
    json_array_foreach(json_object_get(expected, "encode"), i, item) {
        const json_t *text = json_object_get(item, "text");
        ids_of(json_object_get(item, "ids"), ids, &n);
        expect_ids(t, json_string_value(text), json_string_length(text), false, ids, n);
        expect_text(t, ids, n, json_string_value(json_object_get(item, "decoded")));
    }
    const json_t *chat = json_object_get(expected, "chat");
    pome_message messages[4];
    json_array_foreach(json_object_get(chat, "messages"), i, item) {
        messages[i].role = json_string_value(json_object_get(item, "role"));
        messages[i].content = json_string_value(json_object_get(item, "content"));
    }
    char *text = NULL;
    size_t len;
    assert_int_equal(pome_tokenizer_apply_chat_template(t, messages, i, true, &text, &len, &err), POME_OK);
    assert_string_equal(text, json_string_value(json_object_get(chat, "text")));
    ids_of(json_object_get(chat, "ids"), ids, &n);
    expect_ids(t, text, len, false, ids, n);
    free(text);
    json_decref(expected);
    pome_tokenizer_close(&t);
    assert_null(t);
}

static void knows_its_special_tokens(void **state)
{
    (void)state;
    pome_tokenizer *t = NULL;
    assert_int_equal(pome_tokenizer_open(&t, GOLDEN "/tokenizer.json", NULL), POME_OK);
    size_t n;
    const int32_t *eos = pome_tokenizer_eos(t, &n);
    assert_int_equal(n, 2); /* the list of generation_config.json, which has the tokenizer's own */
    assert_int_equal(eos[0], 4);
    assert_int_equal(eos[1], 2);
    assert_int_equal(pome_tokenizer_bos(t), 1);
    assert_true(pome_tokenizer_is_special(t, 3));
    assert_false(pome_tokenizer_is_special(t, 300));
    assert_false(pome_tokenizer_is_special(t, -1));
    assert_string_equal(pome_tokenizer_piece(t, 4), "<|im_end|>");
    assert_null(pome_tokenizer_piece(t, 512));
    assert_null(pome_tokenizer_piece(t, -1));
    assert_int_equal(pome_tokenizer_find(t, "<|im_end|>"), 4);
    assert_int_equal(pome_tokenizer_find(t, "no such piece"), -1);
    /* As plain text the name of a special token is no special token, and skipping leaves it out of the text. */
    int32_t *ids = NULL;
    size_t n_ids;
    assert_int_equal(pome_tokenizer_encode(t, "<|im_end|>", 10, false, false, &ids, &n_ids, NULL), POME_OK);
    assert_true(n_ids > 1);
    free(ids);
    char *text;
    size_t len;
    int32_t mixed[] = {3, 89, 464, 4, 9999, -5};
    assert_int_equal(pome_tokenizer_decode(t, mixed, 6, true, &text, &len, NULL), POME_OK);
    assert_string_equal(text, "user");
    free(text);
    pome_tokenizer_close(&t);
}

static void merges_in_rank_order(void **state)
{
    (void)state;
    char *json = byte_level_json(",\"ab\":256,\"bc\":257,\"abc\":258,\"aa\":259", "\"b c\",[\"a\",\"b\"],\"a bc\",\"a a\"",
                                 BYTE_LEVEL_STEPS);
    pome_tokenizer *t = must_read(json);
    expect_ids(t, "abc", 3, false, (int32_t[]){258}, 1); /* bc first, then a bc */
    expect_ids(t, "ab", 2, false, (int32_t[]){256}, 1);
    expect_ids(t, "aaa", 3, false, (int32_t[]){259, 'a'}, 2); /* the leftmost of equal ranks */
    expect_ids(t, "aab", 3, false, (int32_t[]){'a', 256}, 2);
    expect_ids(t, "", 0, true, NULL, 0);
    pome_tokenizer_close(&t);
    free(json);
}

static void keeps_bytes_that_are_not_utf8(void **state)
{
    (void)state;
    char *json = byte_level_json("", "", BYTE_LEVEL_STEPS);
    pome_tokenizer *t = must_read(json);
    const char text[] = "a\xff\xe6\x97z\xf0\x9f\x99\x82\xc0\x80";
    int32_t want[sizeof text - 1];
    for (size_t i = 0; i < sizeof text - 1; i++)
        want[i] = (uint8_t)text[i];
    expect_ids(t, text, sizeof text - 1, false, want, sizeof text - 1);
    expect_text(t, want, sizeof text - 1, "a\xef\xbf\xbd\xef\xbf\xbdz\xf0\x9f\x99\x82\xef\xbf\xbd\xef\xbf\xbd");
    pome_tokenizer_close(&t);
    free(json);
}

static const char *const added =
    ",\"added_tokens\":[{\"id\":256,\"content\":\"<s>\",\"special\":true},{\"id\":257,\"content\":\"<s>s\",\"special\":"
    "true,\"lstrip\":true,\"rstrip\":true},{\"id\":258,\"content\":\"one\",\"single_word\":true,\"normalized\":false}]"
    BYTE_LEVEL_STEPS;

static void finds_added_tokens(void **state)
{
    (void)state;
    char *json = byte_level_json("", "", added);
    pome_tokenizer *t = must_read(json);
    expect_ids(t, "a<s>b", 5, false, (int32_t[]){'a', 256, 'b'}, 3);
    expect_ids(t, "a \n<s>s b", 9, false, (int32_t[]){'a', 257, 'b'}, 3); /* the longest, with the space around it */
    expect_ids(t, "one,ones", 8, false, (int32_t[]){258, ',', 'o', 'n', 'e', 's'}, 6);
    expect_ids(t, "<s", 2, false, (int32_t[]){'<', 's'}, 2);
    assert_int_equal(pome_tokenizer_n_vocab(t), 259);
    pome_tokenizer_close(&t);
    free(json);
}

/* ---- files beside tokenizer.json ---- */

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
}

static void remove_folder(const char *folder)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                                        "generation_config.json", "special_tokens_map.json"};
    char path[300];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
    rmdir(folder);
}

/* Cut down from DeepSeek-R1-Distill-Qwen: its file adds no token, its configuration says that BOS is added. */
static void follows_add_bos_token(void **state)
{
    (void)state;
    char folder[] = "/tmp/pome-text-XXXXXX";
    assert_non_null(mkdtemp(folder));
    char *json = byte_level_json(",\"<BOS>\":256,\"<EOS>\":257,\"<|im_end|>\":258", "",
                                 ",\"added_tokens\":[{\"id\":258,\"content\":\"<|im_end|>\",\"special\":true}],"
                                 "\"post_processor\":{\"type\":\"ByteLevel\"}" BYTE_LEVEL_STEPS);
    write_file(folder, "tokenizer.json", json);
    write_file(folder, "tokenizer_config.json",
               "{\"add_bos_token\":true,\"add_eos_token\":false,\"bos_token\":{\"content\":\"<BOS>\"},\"eos_token\":\"<EOS>\","
               "\"model_max_length\":1000000000000000019884624838656,"
               "\"chat_template\":[{\"name\":\"tools\",\"template\":\"t\"},{\"name\":\"default\",\"template\":"
               "\"{{ bos_token }}{{ messages[0].content }}<|im_end|>\"}]}");
    pome_tokenizer *t = NULL;
    assert_int_equal(pome_tokenizer_open(&t, folder, NULL), POME_OK);
    expect_ids(t, "hi", 2, true, (int32_t[]){256, 'h', 'i'}, 3);
    expect_ids(t, "hi", 2, false, (int32_t[]){'h', 'i'}, 2);
    size_t n;
    const int32_t *eos = pome_tokenizer_eos(t, &n);
    assert_int_equal(n, 2); /* the tokenizer's own, and the end of turn that the template speaks of */
    assert_int_equal(eos[0], 257);
    assert_int_equal(eos[1], 258);
    char *text;
    size_t len;
    pome_message m = {"user", "hi\xff"};
    assert_int_equal(pome_tokenizer_apply_chat_template(t, &m, 1, false, &text, &len, NULL), POME_OK);
    assert_string_equal(text, "<BOS>hi\xef\xbf\xbd<|im_end|>");
    expect_ids(t, text, 5, false, (int32_t[]){256}, 1); /* named in the configuration, so special; and only once */
    free(text);
    pome_tokenizer_close(&t);
    write_file(folder, "chat_template.jinja", "{{ nothing.here }}");
    assert_int_equal(pome_tokenizer_open(&t, folder, NULL), POME_OK);
    pome_error err = {0};
    assert_int_equal(pome_tokenizer_apply_chat_template(t, &m, 1, false, &text, &len, &err), POME_ERR_ARG);
    assert_string_equal(err.message, "chat template: line 1: 'nothing' is undefined");
    pome_tokenizer_close(&t);
    write_file(folder, "generation_config.json", "{\"eos_token_id\": [1");
    assert_int_equal(pome_tokenizer_open(&t, folder, &err), POME_ERR_FORMAT);
    assert_non_null(strstr(err.message, "generation_config.json:1"));
    remove_folder(folder);
    assert_int_equal(pome_tokenizer_open(&t, folder, &err), POME_ERR_IO);
    free(json);
}

/* ---- what is refused ---- */

static void expect_refusal(const char *json, pome_status code, const char *part)
{
    pome_tokenizer *t = NULL;
    pome_error err = {0};
    pome_status status = read_text(&t, json, &err);
    if (status != code || !strstr(err.message, part))
        fail_msg("status %d, message \"%s\", wanted %d and \"%s\"", (int)status, err.message, (int)code, part);
    assert_null(t);
}

static void refuses_unknown_parts(void **state)
{
    (void)state;
    static const struct {
        const char *members;
        pome_status code;
        const char *part;
    } cases[] = {
        {",\"surprise\":1", POME_ERR_UNSUPPORTED, "unknown field \"surprise\""},
        {",\"\":1", POME_ERR_UNSUPPORTED, "unknown field \"\""},
        {",\"normalizer\":{\"type\":\"Precompiled\"}", POME_ERR_UNSUPPORTED, "normalizer \"Precompiled\""},
        {",\"normalizer\":{\"type\":\"NFC\",\"x\":1}", POME_ERR_UNSUPPORTED, "unknown field \"x\""},
        {",\"normalizer\":{}", POME_ERR_FORMAT, "no type"},
        {",\"normalizer\":{\"type\":\"Replace\",\"content\":\"\"}", POME_ERR_FORMAT, "pattern"},
        {",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}", POME_ERR_UNSUPPORTED, "UnicodeScripts"},
        {",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"}}", POME_ERR_FORMAT, "regular expression"},
        {",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?~a)\"}}", POME_ERR_UNSUPPORTED, "group"},
        {",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Odd\"}",
         POME_ERR_UNSUPPORTED, "Odd"},
        {",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}", POME_ERR_FORMAT, "one character"},
        {",\"pre_tokenizer\":{\"type\":\"Digits\",\"individual_digits\":1}", POME_ERR_FORMAT, "true or false"},
        {",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}", POME_ERR_UNSUPPORTED, "sequence A"},
        {",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}]}",
         POME_ERR_FORMAT, "\"x\" has no ids"},
        {",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}},{\"Sequence\":"
         "{\"id\":\"A\"}}],\"special_tokens\":{\"x\":{\"ids\":[999]}}}", POME_ERR_FORMAT, "999"},
        {",\"decoder\":{\"type\":\"WordPiece\"}", POME_ERR_UNSUPPORTED, "WordPiece"},
        {",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}]}",
         POME_ERR_UNSUPPORTED, "ByteFallback after"},
        {",\"added_tokens\":[{\"id\":5,\"content\":\"<s>\"}]", POME_ERR_FORMAT, "both have id 5"},
        {",\"added_tokens\":[{\"id\":99999999,\"content\":\"<s>\"}]", POME_ERR_LIMIT, "99999999"},
        {",\"added_tokens\":[{\"id\":-1,\"content\":\"<s>\"}]", POME_ERR_LIMIT, "-1"},
        {",\"added_tokens\":[{\"content\":\"<s>\"}]", POME_ERR_FORMAT, "not an integer"},
        {",\"model\":{}", POME_ERR_FORMAT, "twice"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *json = byte_level_json("", "", cases[i].members);
        expect_refusal(json, cases[i].code, cases[i].part);
        free(json);
    }
}

static void refuses_bad_models(void **state)
{
    (void)state;
    expect_refusal("", POME_ERR_FORMAT, "not JSON");
    expect_refusal("[]", POME_ERR_FORMAT, "not an object");
    expect_refusal("{}", POME_ERR_FORMAT, "no model");
    expect_refusal("{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", POME_ERR_UNSUPPORTED, "Unigram");
    expect_refusal("{\"model\":{\"type\":\"WordPiece\",\"vocab\":{}}}", POME_ERR_UNSUPPORTED, "WordPiece");
    expect_refusal("{\"model\":{\"vocab\":{}}}", POME_ERR_FORMAT, "merges");
    expect_refusal("{\"model\":{\"vocab\":[],\"merges\":[]}}", POME_ERR_FORMAT, "vocab");
    expect_refusal("{\"model\":{\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", POME_ERR_FORMAT, "both have id 0");
    expect_refusal("{\"model\":{\"vocab\":{\"a\":1.5},\"merges\":[]}}", POME_ERR_FORMAT, "malformed");
    expect_refusal("{\"model\":{\"vocab\":{\"a\":99999999},\"merges\":[]}}", POME_ERR_LIMIT, "99999999");
    expect_refusal("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", POME_ERR_FORMAT, "\"aa\" is not in");
    expect_refusal("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"aa\"]}}", POME_ERR_FORMAT, "not two pieces");
    expect_refusal("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b c\"]}}", POME_ERR_FORMAT, "not two pieces");
    expect_refusal("{\"model\":{\"vocab\":{\"a\":0},\"merges\":[7]}}", POME_ERR_FORMAT, "malformed");
    expect_refusal("{\"model\":{\"vocab\":{},\"merges\":[],\"dropout\":0.5}}", POME_ERR_UNSUPPORTED, "dropout");
    expect_refusal("{\"model\":{\"vocab\":{\"\\ud800\":0},\"merges\":[]}}", POME_ERR_FORMAT, "");
    expect_refusal("{\"model\":{\"vocab\":{\"a\":0},\"vocab\":{},\"merges\":[]}}", POME_ERR_FORMAT, "twice");
    expect_refusal("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", POME_ERR_FORMAT, "LFS");
}

/* What is special in a string, at every place of it: escapes and other alphabets are read, control characters refused. */
static void reads_strings_of_any_length(void **state)
{
    (void)state;
    static const struct {
        const char *written, *read; /* NULL: refused */
    } parts[] = {{"\\n", "\n"}, {"\\\"", "\""}, {"\\\\", "\\"}, {"\\u00e9", "\u00e9"}, {"\u0120", "\u0120"}, {"\u20ac", "\u20ac"}, {"\U0001f600", "\U0001f600"},
                 {" ", " "}, {"!", "!"}, {"#", "#"}, {"[", "["}, {"]", "]"}, {"\x7f", "\x7f"}, {"\x01", NULL}, {"\x1f", NULL}, {"\n", NULL},
                 {"\\x", NULL}, {"\xc1\x81", NULL}, {"\xc3", NULL}, {"\xe2\x82", NULL}};
    for (size_t k = 0; k < sizeof parts / sizeof parts[0]; k++)
        for (int before = 0; before < 19; before++) {
            char json[200], piece[64];
            pome_tokenizer *t = NULL;
            pome_error err = {0};
            const char *filler = "abcdefghijklmnopqrstuvwxyz";
            snprintf(json, sizeof json, "{\"model\":{\"vocab\":{\"%.*s%s%.*s\":0},\"merges\":[]}}", before, filler, parts[k].written,
                     18 - before, filler);
            if (!parts[k].read) {
                assert_int_equal(read_text(&t, json, &err), POME_ERR_FORMAT);
                continue;
            }
            snprintf(piece, sizeof piece, "%.*s%s%.*s", before, filler, parts[k].read, 18 - before, filler);
            t = must_read(json);
            assert_int_equal(pome_tokenizer_find(t, piece), 0);
            pome_tokenizer_close(&t);
        }
}

/* As in Hugging Face tokenizers. */
static void the_models_id_of_an_added_token_counts(void **state)
{
    (void)state;
    pome_tokenizer *t = must_read("{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true},{\"id\":4,\"content\":\"\u00e9t\"}],"
                                  "\"model\":{\"vocab\":{\"a\":0,\"<s>\":1,\"\u00e9t\":2},\"merges\":[]}}");
    assert_int_equal(pome_tokenizer_find(t, "<s>"), 1);
    assert_int_equal(pome_tokenizer_find(t, "\u00e9t"), 2);
    assert_int_equal(pome_tokenizer_n_vocab(t), 3);
    assert_true(pome_tokenizer_is_special(t, 1));
    pome_tokenizer_close(&t);
}

/* A small file cut at every byte is an error, never a tokenizer and never a crash. */
static void survives_truncation(void **state)
{
    (void)state;
    static const char json[] =
        "{\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true}],\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,"
        "\"\\u0061b\":2},\"merges\":[[\"a\",\"b\"]]},\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[^x]\"}}}";
    for (size_t n = 0; n < sizeof json - 1; n++) {
        pome_tokenizer *t = NULL;
        pome_error err = {0};
        assert_int_equal(pome_tokenizer_read(&t, (pome_bytes){(const uint8_t *)json, n}, "cut", &err),
                         POME_ERR_FORMAT);
        assert_null(t);
        assert_true(err.message[0]);
    }
    pome_tokenizer *t = must_read(json);
    expect_ids(t, "ab", 2, false, (int32_t[]){0, 1}, 2); /* the pattern parts them */
    pome_tokenizer_close(&t);
}

/* ---- regular expressions ---- */

static void expect_translation(const char *pattern, const char *want)
{
    pome_strbuf b = {0};
    pome_error err = {0};
    assert_int_equal(pome_regex_translate(&b, pattern, strlen(pattern), &err), POME_OK);
    assert_string_equal(pome_strbuf_view(&b).ptr, want);
    pome_strbuf_reset(&b);
}

static void translates_patterns(void **state)
{
    (void)state;
    expect_translation("\\s\\S\\h\\v", "\\p{White_Space}\\P{White_Space}[0-9a-fA-F]\\x0b");
    expect_translation("[\\s\\p{L}]", "[\\p{White_Space}\\p{L}]");
    expect_translation("\\p{Letter}\\P{Lu}\\p{^Nd}", "\\p{L}\\P{Lu}\\P{Nd}");
    expect_translation("\\p{Han}+\\p{Emoji}", "\\p{sc:Han}+\\p{Emoji}");
    expect_translation("(?m:.)(?i:a)", "(?s:.)(?i:a)");
    expect_translation("a{,3}b{2}+c{1,2}?", "a{0,3}(?:b{2})+c{1,2}?");
    expect_translation("{x}[]a]", "\\{x}[\\]a]");
    expect_translation("\\u3042[[:digit:]]", "\\x{3042}[\\p{Nd}]");
    expect_translation("[a-z&&[^aeiou]]", "(?:(?=(?:[a-z]))(?:[^aeiou]))");
    static const char *const refused[] = {"\\Qa", "(?~a)", "a(?i)b", "\\p{NoSuch}", "\\g<1>", "(*FAIL)", "[\\W]", "\\xff",
                                          "\\pL"};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        pome_regex *re = NULL;
        assert_int_equal(pome_regex_compile(&re, refused[i], strlen(refused[i]), NULL), POME_ERR_UNSUPPORTED);
        assert_null(re);
    }
}

/* Exponential on this text without a bound. */
static void hostile_patterns_end(void **state)
{
    (void)state;
    char *json = byte_level_json("", "", ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(?:a|a|aa)*(?:b|c)\"}}");
    pome_tokenizer *t = must_read(json);
    char text[3000];
    memset(text, 'a', sizeof text);
    int32_t *ids = NULL;
    size_t n;
    pome_error err = {0};
    assert_int_equal(pome_tokenizer_encode(t, text, sizeof text, false, true, &ids, &n, &err), POME_ERR_LIMIT);
    assert_non_null(strstr(err.message, "too much work"));
    assert_null(ids);
    pome_tokenizer_close(&t);
    free(json);
}

/* One pre-token of many characters, every pair of which merges. */
static void long_pre_tokens_are_fast(void **state)
{
    (void)state;
    pome_tokenizer *t = must_read("{\"model\":{\"vocab\":{\"a\":0,\"aa\":1,\"aaaa\":2},\"merges\":[\"a a\",\"aa aa\"]}}");
    size_t n = 1 << 19;
    char *text = malloc(n);
    memset(text, 'a', n);
    int32_t *ids = NULL;
    size_t n_ids;
    assert_int_equal(pome_tokenizer_encode(t, text, n, false, true, &ids, &n_ids, NULL), POME_OK);
    assert_int_equal(n_ids, n / 4);
    for (size_t i = 0; i < n_ids; i++)
        assert_int_equal(ids[i], 2);
    free(ids);
    free(text);
    pome_tokenizer_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(matches_stored_results), cmocka_unit_test(knows_its_special_tokens),
        cmocka_unit_test(merges_in_rank_order),   cmocka_unit_test(keeps_bytes_that_are_not_utf8),
        cmocka_unit_test(finds_added_tokens),     cmocka_unit_test(follows_add_bos_token),
        cmocka_unit_test(refuses_unknown_parts),  cmocka_unit_test(refuses_bad_models),
        cmocka_unit_test(reads_strings_of_any_length), cmocka_unit_test(the_models_id_of_an_added_token_counts),
        cmocka_unit_test(survives_truncation),    cmocka_unit_test(translates_patterns),
        cmocka_unit_test(hostile_patterns_end),   cmocka_unit_test(long_pre_tokens_are_fast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
