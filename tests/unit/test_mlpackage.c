/* From a path to an opened package, and the description in it. */
#include "unit/spec_builder.h"

#include "base/log.h"

static char logged[2048];

static void take_log(void *arg, pome_log_level level, const char *message)
{
    (void)arg;
    if (level >= POME_LOG_INFO)
        snprintf(logged, sizeof logged, "%s", message);
}

static pome_status open_at(pome_mlpackage **p, const char *dir, const char *name, pome_error *err)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    memset(err, 0, sizeof *err);
    logged[0] = '\0';
    return pome_mlpackage_open(p, path, NULL, err);
}

/* A package DIR/NAME of the given model file. */
static void put_package(const char *dir, const char *name, pome_bytes model)
{
    char path[256];
    snprintf(path, sizeof path, "%s/Manifest.json", name);
    put_file(dir, path, MANIFEST_TEXT, strlen(MANIFEST_TEXT));
    snprintf(path, sizeof path, "%s/Data/com.apple.CoreML/model.mlmodel", name);
    put_file(dir, path, model.ptr, model.len);
    snprintf(path, sizeof path, "%s/Data/com.apple.CoreML/weights/weight.bin", name);
    put_file(dir, path, "", 0);
}

static void put_tiny(const char *dir, const char *name)
{
    spec_model m = spec_model_create();
    put_package(dir, name, spec_model_pack(&m));
    pome_arena_destroy(&m.arena);
}

/* ---- locating ---- */

static void test_paths_into_a_package(void **state)
{
    (void)state;
    static const char *const inside[] = {"Manifest.json", "Data", "Data/", "Data/com.apple.CoreML",
                                         "Data/com.apple.CoreML/model.mlmodel", "Data/com.apple.CoreML/weights",
                                         "Data/com.apple.CoreML/weights/weight.bin",
                                         "Data/com.apple.CoreML/../../Data/./com.apple.CoreML//model.mlmodel"};
    char dir[64], root[128], path[512];
    pome_mlpackage *p = NULL;
    pome_error err;
    temp_dir(dir);
    put_tiny(dir, "a b.mlpackage");
    snprintf(root, sizeof root, "%s/a b.mlpackage", dir);
    pome_log_set(take_log, NULL);
    for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
        assert_int_equal(open_at(&p, root, inside[i], &err), POME_OK);
        assert_string_equal(p->info.path, root);
        snprintf(path, sizeof path, "taking %s", root);
        assert_non_null(strstr(logged, path));
        pome_mlpackage_close(&p);
        assert_null(p);
    }
    assert_int_equal(open_at(&p, root, "/", &err), POME_OK);
    assert_string_equal(p->info.path, root);
    assert_string_equal(logged, "");
    pome_mlpackage_close(&p);

    char cwd[512]; /* a relative path from within */
    assert_non_null(getcwd(cwd, sizeof cwd));
    snprintf(path, sizeof path, "%s/Data/com.apple.CoreML", root);
    assert_int_equal(chdir(path), 0);
    assert_int_equal(pome_mlpackage_open(&p, "model.mlmodel", NULL, &err), POME_OK);
    assert_string_equal(p->info.path, root);
    assert_int_equal(chdir(cwd), 0);
    pome_mlpackage_close(&p);
    pome_log_set(NULL, NULL);
    temp_remove(dir);
}

/* The Hub cache keeps files as links to elsewhere. */
static void test_links(void **state)
{
    (void)state;
    char dir[64], from[256], to[256];
    pome_mlpackage *p = NULL;
    pome_error err;
    temp_dir(dir);
    put_tiny(dir, "real.mlpackage");
    put_file(dir, "hub/x.mlpackage/Data/com.apple.CoreML/weights/weight.bin", "", 0);
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "Manifest.json" : "Data/com.apple.CoreML/model.mlmodel";
        snprintf(from, sizeof from, "%s/real.mlpackage/%s", dir, name);
        snprintf(to, sizeof to, "%s/hub/x.mlpackage/%s", dir, name);
        assert_int_equal(symlink(from, to), 0);
    }
    assert_int_equal(open_at(&p, dir, "hub/x.mlpackage/Data/com.apple.CoreML/model.mlmodel", &err), POME_OK);
    assert_non_null(strstr(p->info.path, "hub/x.mlpackage"));
    pome_mlpackage_close(&p);
    temp_remove(dir);
}

static void test_root_from_the_manifest(void **state)
{
    (void)state;
    static const char manifest[] =
        "{\"fileFormatVersion\": \"1.0.0\", \"rootModelIdentifier\": \"Z\","
        "\"itemInfoEntries\": {\"A\": {\"path\": \"com.apple.CoreML/model.mlmodel\"}, \"Z\": {\"path\": \"x/net\"}}}";
    char dir[64];
    pome_mlpackage *p = NULL;
    pome_error err;
    spec_model m = spec_model_create();
    temp_dir(dir);
    put_package(dir, "m.mlpackage", (pome_bytes){(const uint8_t *)"no model", 8});
    put_file(dir, "m.mlpackage/Manifest.json", manifest, strlen(manifest));
    pome_bytes bytes = spec_model_pack(&m);
    put_file(dir, "m.mlpackage/Data/x/net", bytes.ptr, bytes.len);
    assert_int_equal(open_at(&p, dir, "m.mlpackage", &err), POME_OK);
    assert_non_null(strstr(p->model_file, "m.mlpackage/Data/x/net"));
    assert_non_null(strstr(p->model_dir, "m.mlpackage/Data/x"));
    pome_mlpackage_close(&p);
    pome_arena_destroy(&m.arena);
    temp_remove(dir);
}

/* What a download of a repository leaves. */
static void test_folder_with_one_package(void **state)
{
    (void)state;
    char dir[64];
    pome_mlpackage *p = NULL;
    pome_error err;
    temp_dir(dir);
    put_tiny(dir, "repo/one.mlpackage");
    put_file(dir, "repo/config.json", "{}", 2);
    put_file(dir, "repo/tokenizer.json", "{}", 2);
    pome_log_set(take_log, NULL);
    assert_int_equal(open_at(&p, dir, "repo", &err), POME_OK);
    assert_non_null(strstr(p->info.path, "repo/one.mlpackage"));
    assert_non_null(strstr(logged, "holds one model"));
    pome_mlpackage_close(&p);
    pome_log_set(NULL, NULL);
    put_file(dir, "repo/two.mlpackage/x", "", 0);
    EXPECT_ERROR(open_at(&p, dir, "repo", &err), POME_ERR_ARG, err, "holds 2 models (one.mlpackage, two.mlpackage)");
    temp_remove(dir);
}

/* A bare model file stands for itself. */
static void test_bare_model(void **state)
{
    (void)state;
    char dir[64];
    pome_mlpackage *p = NULL;
    pome_error err;
    spec_model m = spec_model_create();
    temp_dir(dir);
    pome_bytes bytes = spec_model_pack(&m);
    put_file(dir, "bare.mlmodel", bytes.ptr, bytes.len);
    assert_int_equal(open_at(&p, dir, "bare.mlmodel", &err), POME_OK);
    assert_string_equal(p->info.functions[0].name, "main");
    pome_mlpackage_close(&p);
    pome_arena_destroy(&m.arena);
    temp_remove(dir);
}

#define LFS_POINTER                                                                                \
    "version https://git-lfs.github.com/spec/v1\n"                                                 \
    "oid sha256:4665a5ea423c2713d436b5ee50593a9640e0018c1550b5a0002f74190d6caea8\nsize 133\n"

static void test_what_is_no_package(void **state)
{
    (void)state;
    static const struct {
        const char *file, *data; /* what is put there */
        const char *open;
        pome_status code;
        const char *message;
    } cases[] = {
        {"none/x", "", "none/y", POME_ERR_IO, "none/y: no such file or folder"},
        {"empty/x", "", "empty", POME_ERR_FORMAT, "empty is not a Core ML package: it has no Manifest.json"},
        {"text.txt", "hello", "text.txt", POME_ERR_FORMAT, "neither a Core ML package nor a file of one"},
        {"nothing", "", "nothing", POME_ERR_FORMAT, "neither"},
        {"half.mlpackage/Data/com.apple.CoreML/model.mlmodel", "", "half.mlpackage", POME_ERR_FORMAT,
         "Manifest.json is missing (copied or downloaded only in part?)"},
        {"nomodel.mlpackage/Manifest.json", MANIFEST_TEXT, "nomodel.mlpackage", POME_ERR_FORMAT,
         "Data/com.apple.CoreML/model.mlmodel, the model, is missing"},
        {"dirmodel.mlpackage/Data/com.apple.CoreML/model.mlmodel/x", "", "dirmodel.mlpackage", POME_ERR_FORMAT,
         "Manifest.json is missing"},
        {"bad.mlpackage/Manifest.json", "{", "bad.mlpackage", POME_ERR_FORMAT, "bad.mlpackage: Manifest.json: line 1"},
        {"lfs.mlpackage/Manifest.json", LFS_POINTER, "lfs.mlpackage", POME_ERR_FORMAT, "Git LFS pointer"},
        {"lfs.mlmodel", LFS_POINTER, "lfs.mlmodel", POME_ERR_FORMAT, "Git LFS pointer"},
        {"a.mlmodelc/model.mil", "program(1.0)", "a.mlmodelc", POME_ERR_FORMAT,
         "a.mlmodelc/model.mil: line 1, column 13: the text ends (cut short?), wanted {"},
        {"a.mlmodelc/weights/w.bin", "x", "a.mlmodelc/weights", POME_ERR_FORMAT, "a.mlmodelc/model.mil: line 1, column 13"},
        {"b.mlmodelc/coremldata.bin", "x", "b.mlmodelc/coremldata.bin", POME_ERR_FORMAT, "b.mlmodelc: model.mil is missing"},
        {"c.mlmodelc/coremldata.bin", "\xf4\x01", "c.mlmodelc", POME_ERR_FORMAT, "c.mlmodelc: model.mil is missing"},
        {"d.mlmodelc/model.espresso.net", "x", "d.mlmodelc", POME_ERR_UNSUPPORTED, "a compiled neural network"},
        {"e.mlmodelc/model.mil", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "e.mlmodelc",
         POME_ERR_FORMAT, "e.mlmodelc/model.mil: a Git LFS pointer"},
        {"m.gguf", "GGUF\3\0\0\0", "m.gguf", POME_ERR_UNSUPPORTED, "/m.gguf m.mlpackage` first"},
        {"my model.gguf", "GGUF\3\0\0\0", "my model.gguf", POME_ERR_UNSUPPORTED, "/my model.gguf' 'my model.mlpackage'` first"},
        {"it's.gguf", "GGUF\3\0\0\0", "it's.gguf", POME_ERR_UNSUPPORTED, "/it'\\''s.gguf' 'it'\\''s.mlpackage'` first"},
        {"ggufs/q.gguf", "GGUF\3\0\0\0", "ggufs", POME_ERR_UNSUPPORTED, "/ggufs/q.gguf q.mlpackage` first"},
        {"hf/config.json", "{}", "hf", POME_ERR_UNSUPPORTED, "/hf hf.mlpackage` first"},
        {"hf2/model.safetensors", "x", "hf2/", POME_ERR_UNSUPPORTED, "/hf2 hf2.mlpackage` first"},
        {"hf2/config.json", "{}", "hf2/config.json", POME_ERR_UNSUPPORTED, "/hf2 hf2.mlpackage` first"},
        {"hf3/model-00001-of-00002.safetensors", "x", "hf3/model-00001-of-00002.safetensors", POME_ERR_UNSUPPORTED,
         "run `pome convert /"},
        {"x.zip", "PK\3\4", "x.zip", POME_ERR_UNSUPPORTED, "ZIP archive"},
        {"set/b.mlpackage/x", "", "set/b.mlpackage", POME_ERR_FORMAT, "Manifest.json is missing"},
        {"set/a.mlpackage/x", "", "set", POME_ERR_ARG, "holds 2 models (a.mlpackage, b.mlpackage)"},
        {"cut.mlmodel", "\x08", "cut.mlmodel", POME_ERR_FORMAT, "damaged number at byte 1"},
        {"empty.mlmodel", "", "empty.mlmodel", POME_ERR_FORMAT, "no Core ML model, or cut short"},
    };
    char dir[64];
    temp_dir(dir);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pome_mlpackage *p = NULL;
        pome_error err;
        size_t len = strncmp(cases[i].data, "GGUF", 4) == 0 ? 8 : strlen(cases[i].data);
        put_file(dir, cases[i].file, cases[i].data, len);
        EXPECT_ERROR(open_at(&p, dir, cases[i].open, &err), cases[i].code, err, cases[i].message);
        assert_null(p);
    }
    temp_remove(dir);
}

static void test_other_kinds_of_models(void **state)
{
    (void)state;
    /* specificationVersion 4, then the kind's field with its message. */
    static const uint8_t network[] = {8, 4, 0xa2, 0x1f, 2, 1, 2};                        /* 500 */
    static const uint8_t pipeline[] = {8, 4, 0xd2, 0x0c, 6, 18, 1, 'a', 18, 1, 'b'};     /* 202, names a, b */
    static const uint8_t unknown[] = {8, 4, 0x82, 0x7d, 0};                              /* 2000, made 2000-2006 */
    static const uint8_t trees[] = {8, 4, 0x92, 0x19, 2, 1, 2};                          /* 402 */
    static const uint8_t stranger[] = {8, 4, 0xa2, 0xf7, 2, 0};                          /* 6004: not in the format */
    static const uint8_t nothing[] = {8, 4};
    const struct {
        const uint8_t *bytes;
        size_t len;
        pome_status code;
        const char *message;
    } cases[] = {
        {network, sizeof network, POME_ERR_UNSUPPORTED, "kind neuralNetwork (specification version 4), not an ML Program"},
        {network, sizeof network, POME_ERR_UNSUPPORTED, "coremltools.convert(..., convert_to=\"mlprogram\")"},
        {pipeline, sizeof pipeline, POME_ERR_UNSUPPORTED, "kind pipeline (specification version 4) with the stages a, b,"},
        {unknown, sizeof unknown, POME_ERR_UNSUPPORTED, "kind textClassifier"},
        {unknown, sizeof unknown, POME_ERR_UNSUPPORTED, "only an application or Apple's frameworks have"},
        {trees, sizeof trees, POME_ERR_UNSUPPORTED, "kind treeEnsembleClassifier"},
        {trees, sizeof trees, POME_ERR_UNSUPPORTED, "run it with the library that it came from"},
        {stranger, sizeof stranger, POME_ERR_UNSUPPORTED, "unknown kind 6004"},
        {nothing, sizeof nothing, POME_ERR_FORMAT, "it has no model in it"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pome_mlpackage *p = NULL;
        pome_error err = {0};
        EXPECT_ERROR(pome_mlpackage_open_bytes(&p, (pome_bytes){cases[i].bytes, cases[i].len}, "", NULL, &err),
                     cases[i].code, err, cases[i].message);
    }
}

/* ---- weight files ---- */

static void test_weight_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        pome_status code;
        const char *message;
    } cases[] = {
        {"@model_path/weights/weight.bin", POME_OK, NULL},
        {"weights/weight.bin", POME_OK, NULL},
        {"@model_path/weights/other.bin", POME_ERR_FORMAT, "weights/other.bin: the weight file is missing"},
        {"@model_path/weights", POME_ERR_FORMAT, "is missing"},
        {"@model_path/weights/lfs.bin", POME_ERR_FORMAT, "Git LFS pointer"},
        {"@model_path/../../../secret", POME_ERR_FORMAT, "leaves the package"},
        {"@model_path//etc/passwd", POME_ERR_FORMAT, "leaves the package"},
        {"/etc/passwd", POME_ERR_FORMAT, "leaves the package"},
        {"@model_path/", POME_ERR_FORMAT, "leaves the package"},
        {"@elsewhere/weight.bin", POME_ERR_FORMAT, "leaves the package"},
        {"", POME_ERR_FORMAT, "leaves the package"},
    };
    char dir[64];
    pome_mlpackage *p = NULL;
    pome_error err = {0};
    temp_dir(dir);
    put_tiny(dir, "m.mlpackage");
    put_file(dir, "m.mlpackage/Data/com.apple.CoreML/weights/lfs.bin", LFS_POINTER, strlen(LFS_POINTER));
    assert_int_equal(open_at(&p, dir, "m.mlpackage", &err), POME_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pome_mapping *m = NULL;
        pome_status status = pome_mlpackage_map(&m, p, cases[i].name, &err);
        if (cases[i].code == POME_OK)
            assert_int_equal(status, POME_OK);
        else
            EXPECT_ERROR(status, cases[i].code, err, cases[i].message);
        pome_mapping_release(&m);
    }
    pome_mlpackage_close(&p);
    temp_remove(dir);
}

/* ---- protobuf ---- */

static void test_cut_at_every_byte(void **state)
{
    (void)state;
    static const char *const files[] = {
        GOLDEN "loader/control_flow.mlpackage/Data/com.apple.CoreML/model.mlmodel",
        GOLDEN "loader/description.mlpackage/Data/com.apple.CoreML/model.mlmodel",
        GOLDEN "chunks-lut4-split/logit-processor.mlpackage/Data/com.apple.CoreML/model.mlmodel",
    };
    for (size_t k = 0; k < sizeof files / sizeof files[0]; k++) {
        pome_bytes file = get_file(files[k]);
        for (size_t len = 0; len <= file.len; len++) {
            uint8_t *cut = malloc(len + (len == 0));
            pome_mlpackage *p = NULL;
            pome_error err = {0};
            memcpy(cut, file.ptr, len);
            pome_status status = pome_mlpackage_open_bytes(&p, (pome_bytes){cut, len}, "", NULL, &err);
            if (len == file.len) {
                assert_int_equal(status, POME_OK);
                pome_mlpackage_close(&p);
            } else {
                assert_int_equal(status, POME_ERR_FORMAT);
                assert_true(err.message[0] != '\0');
                assert_null(p);
            }
            free(cut);
        }
        free((void *)(uintptr_t)file.ptr);
    }
}

static pome_status check(const uint8_t *bytes, size_t len, pome_error *err)
{
    memset(err, 0, sizeof *err);
    return pome_coreml_check((pome_bytes){bytes, len}, &pome__spec__model__descriptor, 10, err);
}

static void test_wire_format(void **state)
{
    (void)state;
    pome_error err;
    static const uint8_t good[] = {8, 9, 18, 4, 90, 2, 'o', 'k', 80, 1, 0xb8, 0x3e, 5, 0xbd, 0x3e, 1, 2, 3, 4,
                                   0xb9, 0x3e, 1, 2, 3, 4, 5, 6, 7, 8}; /* the last three: fields 999 */
    assert_int_equal(check(good, sizeof good, &err), POME_OK);
    static const uint8_t long_varint[] = {8, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1};
    EXPECT_ERROR(check(long_varint, sizeof long_varint, &err), POME_ERR_FORMAT, err, "damaged number at byte 1");
    static const uint8_t field_zero[] = {0, 1};
    EXPECT_ERROR(check(field_zero, sizeof field_zero, &err), POME_ERR_FORMAT, err, "damaged field tag at byte 0");
    static const uint8_t group[] = {8, 9, 0xb3, 0x3e};
    EXPECT_ERROR(check(group, sizeof group, &err), POME_ERR_FORMAT, err, "wire type 3");
    assert_int_equal(err.offset, 2);
    static const uint8_t too_long[] = {8, 9, 18, 5, 90, 2, 'o', 'k'};
    EXPECT_ERROR(check(too_long, sizeof too_long, &err), POME_ERR_FORMAT, err,
                 "field 2 at byte 2 needs 5 bytes, the message around it ends after 4");
    static const uint8_t inner_lies[] = {18, 4, 90, 3, 'o', 'k', 8, 9};
    EXPECT_ERROR(check(inner_lies, sizeof inner_lies, &err), POME_ERR_FORMAT, err, "field 11 at byte 2 needs 3 bytes");
    static const uint8_t huge[] = {18, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1};
    EXPECT_ERROR(check(huge, sizeof huge, &err), POME_ERR_FORMAT, err, "damaged length at byte 1");
    static const uint8_t not_text[] = {18, 3, 90, 1, 0xff};
    EXPECT_ERROR(check(not_text, sizeof not_text, &err), POME_ERR_FORMAT, err, "not UTF-8");
    static const uint8_t with_nul[] = {18, 3, 90, 1, 0};
    EXPECT_ERROR(check(with_nul, sizeof with_nul, &err), POME_ERR_FORMAT, err, "not UTF-8");
    static const uint8_t wrong_wire[] = {10, 1, 9};
    EXPECT_ERROR(check(wrong_wire, sizeof wrong_wire, &err), POME_ERR_FORMAT, err, "has wire type 2, wanted 0");
    static const uint8_t number_for_message[] = {16, 1};
    EXPECT_ERROR(check(number_for_message, sizeof number_for_message, &err), POME_ERR_FORMAT, err,
                 "field description at byte 0 has wire type 0");
    static const uint8_t twice[] = {18, 0, 18, 0};
    EXPECT_ERROR(check(twice, sizeof twice, &err), POME_ERR_FORMAT, err, "given twice");
}

/* A list type in a list type in a list type ... */
static void test_nesting_is_bounded(void **state)
{
    (void)state;
    enum { N_LEVELS = 100000 };
    static uint8_t bytes[N_LEVELS * 10];
    uint8_t *p = bytes + sizeof bytes;
    size_t len = 0;
    for (int i = 0; i < N_LEVELS; i++) { /* from the inside: ValueType.listType (2), ListType.type (1) */
        uint8_t head[6], n = 0;
        head[n++] = i % 2 ? 18 : 10;
        for (size_t v = len;; v >>= 7) {
            head[n++] = (uint8_t)((v & 127) | (v > 127 ? 128 : 0));
            if (v < 128)
                break;
        }
        p -= n;
        memcpy(p, head, n);
        len += n;
    }
    pome_error err = {0};
    EXPECT_ERROR(pome_coreml_check((pome_bytes){p, len}, &pome__spec__value_type__descriptor, 100, &err),
                 POME_ERR_LIMIT, err, "nested too deep");
}

static void test_memory_is_bounded(void **state)
{
    (void)state;
    enum { N = 50000 };
    static uint8_t bytes[3 * N + 64];
    static const uint8_t head[] = {8, 9, 18, 0};
    size_t at = sizeof head;
    memcpy(bytes, head, sizeof head);
    bytes[at++] = 0xb2; /* mlProgram: empty functions, two bytes each but a struct in memory */
    bytes[at++] = 0x1f;
    for (size_t v = 2 * N;; v >>= 7) {
        bytes[at++] = (uint8_t)((v & 127) | (v > 127 ? 128 : 0));
        if (v < 128)
            break;
    }
    for (int i = 0; i < N; i++, at += 2)
        bytes[at] = 18;
    const pome_mlpackage_limits limits = {.arena_bytes = 1 << 20};
    pome_mlpackage *p = NULL;
    pome_error err = {0};
    EXPECT_ERROR(pome_mlpackage_open_bytes(&p, (pome_bytes){bytes, at}, "", &limits, &err), POME_ERR_LIMIT, err,
                 "takes more than");
}

/* ---- description ---- */

static const pome_feature *feature(const pome_feature *list, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    fail_msg("no feature %s", name);
    return NULL;
}

static void test_description(void **state)
{
    (void)state;
    pome_mlpackage *p = NULL;
    pome_error err = {0};
    assert_int_equal(pome_mlpackage_open(&p, GOLDEN "loader/description.mlpackage", NULL, &err), POME_OK);
    const pome_model_info *info = &p->info;
    assert_int_equal(info->specification_version, 10);
    assert_string_equal(info->short_description, "Every kind of feature");
    assert_string_equal(info->version, "1.5");
    assert_string_equal(info->author, "Nobody");
    assert_string_equal(info->license, "none");
    assert_int_equal(info->n_metadata, 1);
    assert_string_equal(info->metadata[0].key, "com.example.key");
    assert_string_equal(info->metadata[0].value, "a value with \xc3\xbcmlauts");
    assert_int_equal(info->n_functions, 2);
    assert_int_equal(info->default_function, 1);
    assert_string_equal(info->functions[0].name, "first");
    const pome_function_info *fn = &info->functions[1];
    assert_string_equal(fn->name, "second");
    assert_int_equal(fn->n_inputs, 6);
    assert_int_equal(fn->n_states, 1);
    assert_int_equal(fn->n_outputs, 3);
    assert_string_equal(p->predicted[0].label, "");
    assert_string_equal(p->predicted[1].label, "label");
    assert_string_equal(p->predicted[1].probabilities, "probabilities");

    const pome_feature *f = &fn->inputs[0];
    assert_string_equal(f->name, "fixed");
    assert_string_equal(f->description, "a fixed shape");
    assert_int_equal(f->kind, POME_FEATURE_TENSOR);
    assert_int_equal(f->dtype, POME_DTYPE_F32);
    assert_int_equal(f->rank, 2);
    assert_int_equal(f->shape[0], 2);
    assert_int_equal(f->shape[1], 3);
    assert_false(f->is_ranged || f->n_enumerated || f->is_optional || f->has_default);

    f = feature(fn->inputs, fn->n_inputs, "ranged");
    assert_int_equal(f->dtype, POME_DTYPE_F16);
    assert_true(f->is_ranged);
    assert_int_equal(f->range[0].min, 1);
    assert_int_equal(f->range[0].max, 1);
    assert_int_equal(f->range[1].min, 1);
    assert_int_equal(f->range[1].max, -1);
    assert_int_equal(f->shape[1], 5);

    f = feature(fn->inputs, fn->n_inputs, "listed");
    assert_int_equal(f->n_enumerated, 3);
    static const int64_t listed[] = {1, 8, 1, 1, 1, 32}; /* the default first */
    assert_memory_equal(f->enumerated, listed, sizeof listed);

    f = feature(fn->inputs, fn->n_inputs, "optional");
    assert_true(f->is_optional && f->has_default);
    assert_true(f->default_value == -7.0);
    assert_int_equal(f->dtype, POME_DTYPE_I32);
    f = feature(fn->inputs, fn->n_inputs, "bytes");
    assert_true(f->is_optional && f->has_default);
    assert_true(f->default_value == 2.5);
    assert_int_equal(f->dtype, POME_DTYPE_I8);

    f = feature(fn->inputs, fn->n_inputs, "picture");
    assert_int_equal(f->kind, POME_FEATURE_IMAGE);
    static const int64_t picture[] = {1, 3, 20, 10};
    assert_int_equal(f->rank, 4);
    assert_memory_equal(f->shape, picture, sizeof picture);

    f = &fn->states[0];
    assert_string_equal(f->name, "cache");
    assert_int_equal(f->rank, 3);
    assert_int_equal(f->shape[2], 8);

    assert_int_equal(feature(fn->outputs, 3, "label")->kind, POME_FEATURE_STRING);
    assert_int_equal(feature(fn->outputs, 3, "probabilities")->kind, POME_FEATURE_DICTIONARY);
    assert_int_equal(feature(fn->outputs, 3, "ranged")->rank, -1);
    pome_mlpackage_close(&p);
}

/* Each changes one thing of a good model. */
typedef void spoil_fn(spec_model *m);

static Pome__Spec__ArrayFeatureType *input_array(spec_model *m)
{
    return m->model->description->input[0]->type->multiarraytype;
}

static void no_description(spec_model *m) { m->model->description = NULL; }
static void no_type(spec_model *m) { m->model->description->input[0]->type = NULL; }
static void empty_name(spec_model *m) { m->model->description->input[0]->name = (char *)(uintptr_t) ""; }
static void unknown_dtype(spec_model *m) { input_array(m)->datatype = 7; }

static void negative_size(spec_model *m)
{
    static int64_t shape[] = {-1};
    input_array(m)->shape = shape;
}

static void high_rank(spec_model *m)
{
    static int64_t shape[] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    input_array(m)->shape = shape;
    input_array(m)->n_shape = 9;
}

static void oversized(spec_model *m)
{
    static int64_t shape[] = {INT64_C(1) << 40, INT64_C(1) << 40};
    input_array(m)->shape = shape;
    input_array(m)->n_shape = 2;
}

static void twice(spec_model *m)
{
    SPEC_ADD(m->arena, m->model->description, input, m->model->description->input[0]);
}

static Pome__Spec__SizeRange ranges[2];
static Pome__Spec__SizeRange *range_list[2] = {&ranges[0], &ranges[1]};
static Pome__Spec__ArrayShapeRange shape_range;

static void set_range(spec_model *m, size_t n, uint64_t low, int64_t high)
{
    pome__spec__array_shape_range__init(&shape_range);
    pome__spec__size_range__init(&ranges[0]);
    pome__spec__size_range__init(&ranges[1]);
    shape_range.n_sizeranges = n;
    shape_range.sizeranges = range_list;
    ranges[0].lowerbound = low;
    ranges[0].upperbound = high;
    input_array(m)->shape_flexibility_case = POME__SPEC__ARRAY_FEATURE_TYPE__SHAPE_FLEXIBILITY_SHAPE_RANGE;
    input_array(m)->shaperange = &shape_range;
}

static void two_ranges(spec_model *m) { set_range(m, 2, 1, 4); }
static void empty_range(spec_model *m) { set_range(m, 1, 5, 4); }
static void huge_bound(spec_model *m) { set_range(m, 1, UINT64_MAX, -1); }
static void default_outside(spec_model *m) { set_range(m, 1, 3, 4); }

static Pome__Spec__ArrayShape shapes[2];
static Pome__Spec__ArrayShape *shape_list[2] = {&shapes[0], &shapes[1]};
static Pome__Spec__ArrayShapeList enumerated;

static void set_enumerated(spec_model *m, size_t n, size_t rank_of_second)
{
    static int64_t sizes[] = {3, 4};
    pome__spec__array_shape_list__init(&enumerated);
    for (int i = 0; i < 2; i++) {
        pome__spec__array_shape__init(&shapes[i]);
        shapes[i].n_shape = i ? rank_of_second : 1;
        shapes[i].shape = sizes;
    }
    enumerated.n_shapes = n;
    enumerated.shapes = shape_list;
    input_array(m)->shape_flexibility_case = POME__SPEC__ARRAY_FEATURE_TYPE__SHAPE_FLEXIBILITY_ENUMERATED_SHAPES;
    input_array(m)->enumeratedshapes = &enumerated;
}

static void no_shapes(spec_model *m) { set_enumerated(m, 0, 1); }
static void mixed_ranks(spec_model *m) { set_enumerated(m, 2, 2); }
static void default_not_listed(spec_model *m) { set_enumerated(m, 2, 1); }

static void default_function(spec_model *m)
{
    static Pome__Spec__FunctionDescription fd;
    pome__spec__function_description__init(&fd);
    fd.name = (char *)(uintptr_t) "main";
    SPEC_ADD(m->arena, m->model->description, functions, &fd);
    m->model->description->defaultfunctionname = (char *)(uintptr_t) "other";
}

static void function_twice(spec_model *m)
{
    default_function(m);
    m->model->description->defaultfunctionname = (char *)(uintptr_t) "";
    SPEC_ADD(m->arena, m->model->description, functions, m->model->description->functions[0]);
}

static void function_missing(spec_model *m)
{
    default_function(m);
    m->model->mlprogram->functions[0]->key = (char *)(uintptr_t) "another";
}

static void no_functions(spec_model *m) { m->model->mlprogram->n_functions = 0; }

static void test_wrong_descriptions(void **state)
{
    (void)state;
    static const struct {
        spoil_fn *spoil;
        const char *message;
    } cases[] = {
        {no_description, "has no description"},
        {no_type, "function main: input x: it has no type"},
        {empty_name, "its name is empty"},
        {unknown_dtype, "element type 0x7 is not known"},
        {negative_size, "size -1 of axis 0"},
        {high_rank, "rank 9, at most 8"},
        {oversized, "more elements than 64 bits"},
        {twice, "input x: described twice"},
        {two_ranges, "2 ranges for rank 1"},
        {empty_range, "the range of axis 0 is [5, 4]"},
        {huge_bound, "the range of axis 0"},
        {default_outside, "default size 2 of axis 0 is outside of [3, 4]"},
        {no_shapes, "0 enumerated shapes"},
        {mixed_ranks, "has rank 2, the others 1"},
        {default_not_listed, "not among the 2 enumerated"},
        {default_function, "the default function other is none of the 1 functions"},
        {function_twice, "function main is described twice"},
        {function_missing, "function main is described, but the program has none"},
        {no_functions, "the program has no function"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        spec_model m = spec_model_create();
        pome_mlpackage *p = NULL;
        pome_error err = {0};
        cases[i].spoil(&m);
        EXPECT_ERROR(pome_mlpackage_open_bytes(&p, spec_model_pack(&m), "", NULL, &err), POME_ERR_FORMAT, err,
                     cases[i].message);
        assert_null(p);
        pome_arena_destroy(&m.arena);
    }
}

/* A shape listed only by its choices or ranges takes the first or the smallest. */
static void test_shape_from_its_choices(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        spec_model m = spec_model_create();
        pome_mlpackage *p = NULL;
        pome_error err = {0};
        input_array(&m)->n_shape = 0;
        if (i)
            set_enumerated(&m, 2, 1);
        else
            set_range(&m, 1, 3, 9);
        assert_int_equal(pome_mlpackage_open_bytes(&p, spec_model_pack(&m), "", NULL, &err), POME_OK);
        assert_int_equal(p->info.functions[0].inputs[0].rank, 1);
        assert_int_equal(p->info.functions[0].inputs[0].shape[0], 3);
        pome_mlpackage_close(&p);
        pome_arena_destroy(&m.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_paths_into_a_package),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_root_from_the_manifest),
        cmocka_unit_test(test_folder_with_one_package),
        cmocka_unit_test(test_bare_model),
        cmocka_unit_test(test_what_is_no_package),
        cmocka_unit_test(test_other_kinds_of_models),
        cmocka_unit_test(test_weight_names),
        cmocka_unit_test(test_cut_at_every_byte),
        cmocka_unit_test(test_wire_format),
        cmocka_unit_test(test_nesting_is_bounded),
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_description),
        cmocka_unit_test(test_wrong_descriptions),
        cmocka_unit_test(test_shape_from_its_choices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
