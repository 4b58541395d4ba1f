#include "unit/spec_builder.h"

#include "formats/manifest.h"

typedef struct fixture {
    pome_arena *arena;
    pome_manifest m;
    pome_error err;
} fixture;

static pome_status parse(fixture *f, const char *text)
{
    memset(&f->err, 0, sizeof f->err);
    return pome_manifest_parse(&f->m, (pome_bytes){(const uint8_t *)text, strlen(text)}, f->arena, &f->err);
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->arena = pome_arena_create(1 << 20);
    *state = f;
    return f->arena ? 0 : -1;
}

static int teardown(void **state)
{
    fixture *f = *state;
    pome_arena_destroy(&f->arena);
    free(f);
    return 0;
}

static void test_written_by_coremltools(void **state)
{
    fixture *f = *state;
    pome_bytes text = get_file(GOLDEN "apple/int4-block32.mlpackage/Manifest.json");
    assert_int_equal(pome_manifest_parse(&f->m, text, f->arena, &f->err), POME_OK);
    assert_int_equal(f->m.n_items, 2);
    assert_string_equal(f->m.root->path, "com.apple.CoreML/model.mlmodel");
    assert_string_equal(f->m.root->name, "model.mlmodel");
    assert_string_equal(f->m.root->author, "com.apple.CoreML");
    free((void *)(uintptr_t)text.ptr);
}

static void test_root_is_named_not_guessed(void **state)
{
    fixture *f = *state;
    assert_int_equal(parse(f, "{\"fileFormatVersion\": \"1.0.0\", \"rootModelIdentifier\": \"two\", \"extra\": [1],"
                              "\"itemInfoEntries\": {\"one\": {\"path\": \"a/model.mlmodel\"},"
                              "\"two\": {\"path\": \"b/net.bin\", \"more\": null}}}"),
                     POME_OK);
    assert_string_equal(f->m.root->path, "b/net.bin");
    assert_string_equal(f->m.root->name, "");
    assert_string_equal(f->m.root->identifier, "two");
}

#define MANIFEST(version, root, entries)                                                           \
    "{\"fileFormatVersion\": " version ", \"rootModelIdentifier\": " root ", \"itemInfoEntries\": " entries "}"

static void test_wrong(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *text;
        pome_status code;
        const char *message;
    } cases[] = {
        {"", POME_ERR_FORMAT, "Manifest.json: line 1"},
        {"{", POME_ERR_FORMAT, "Manifest.json: line 1"},
        {"[]", POME_ERR_FORMAT, "no object"},
        {"{}", POME_ERR_FORMAT, "fileFormatVersion is missing"},
        {MANIFEST("1", "\"A\"", "{}"), POME_ERR_FORMAT, "fileFormatVersion is no text"},
        {MANIFEST("\"one\"", "\"A\"", "{}"), POME_ERR_FORMAT, "three numbers"},
        {MANIFEST("\"1.0\"", "\"A\"", "{}"), POME_ERR_FORMAT, "three numbers"},
        {MANIFEST("\"2.0.0\"", "\"A\"", "{}"), POME_ERR_UNSUPPORTED, "2.0.0"},
        {MANIFEST("\"1.0.1\"", "\"A\"", "{}"), POME_ERR_UNSUPPORTED, "1.0.1"},
        {MANIFEST("\"1.0.0\"", "7", "{}"), POME_ERR_FORMAT, "rootModelIdentifier is no text"},
        {MANIFEST("\"1.0.0\"", "\"A\"", "[]"), POME_ERR_FORMAT, "itemInfoEntries"},
        {MANIFEST("\"1.0.0\"", "\"A\"", "{}"), POME_ERR_FORMAT, "names none of 0 items"},
        {MANIFEST("\"1.0.0\"", "\"a\"", "{\"A\": {\"path\": \"m\"}}"), POME_ERR_FORMAT, "names none of 1 items"},
        {MANIFEST("\"1.0.0\"", "\"A\"", "{\"A\": 1}"), POME_ERR_FORMAT, "item A is no object"},
        {MANIFEST("\"1.0.0\"", "\"A\"", "{\"A\": {}}"), POME_ERR_FORMAT, "path is missing"},
        {MANIFEST("\"1.0.0\"", "\"A\"", "{\"A\": {\"path\": \"m\", \"name\": 1}}"), POME_ERR_FORMAT, "name is no text"},
        {MANIFEST("\"1.0.0\"", "\"A\"", "{\"A\": {\"path\": \"m\"}, \"A\": {\"path\": \"n\"}}"), POME_ERR_FORMAT,
         "duplicate"},
        {MANIFEST("\"1.0.0\"", "\"A\"", "{\"A\": {\"path\": \"\"}}"), POME_ERR_FORMAT, "leaves the package"},
        {MANIFEST("\"1.0.0\"", "\"A\"", "{\"A\": {\"path\": \"/etc/passwd\"}}"), POME_ERR_FORMAT, "leaves the package"},
        {MANIFEST("\"1.0.0\"", "\"A\"", "{\"A\": {\"path\": \"../../x\"}}"), POME_ERR_FORMAT, "leaves the package"},
        {MANIFEST("\"1.0.0\"", "\"A\"", "{\"A\": {\"path\": \"m\"}, \"B\": {\"path\": \"a/..\"}}"), POME_ERR_FORMAT,
         "leaves the package"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const pome_manifest before = f->m;
        EXPECT_ERROR(parse(f, cases[i].text), cases[i].code, f->err, cases[i].message);
        assert_memory_equal(&before, &f->m, sizeof before);
    }
}

static void test_cut_at_every_byte(void **state)
{
    fixture *f = *state;
    const char *text = MANIFEST_TEXT;
    assert_int_equal(parse(f, text), POME_OK);
    for (size_t len = 0; len + 2 < strlen(text); len++) {
        char *cut = malloc(len + 1);
        memcpy(cut, text, len);
        assert_int_equal(pome_manifest_parse(&f->m, (pome_bytes){(const uint8_t *)cut, len}, f->arena, &f->err),
                         POME_ERR_FORMAT);
        free(cut);
    }
}

static void test_paths(void **state)
{
    (void)state;
    static const char *const inside[] = {"a", "a/b", "a/./b", "..a", "a..", "a/...", ".hidden", "./a"};
    static const char *const outside[] = {"", "/", "/a", "..", "../a", "a/..", "a/../b", "a//../b", "a/.."};
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++)
        assert_true(pome_path_is_inside(inside[i]));
    for (size_t i = 0; i < sizeof outside / sizeof outside[0]; i++)
        assert_false(pome_path_is_inside(outside[i]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_written_by_coremltools, setup, teardown),
        cmocka_unit_test_setup_teardown(test_root_is_named_not_guessed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cut_at_every_byte, setup, teardown),
        cmocka_unit_test(test_paths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
