/* Normalizers, pre-tokenizers, post-processors and decoders of tokenizer.json. */
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

#define DEPTH_MAX 8

pome_status pome_tokenizer_keep(pome_tokenizer *t, pome_str s, pome_str *out, pome_error *err)
{
    char *copy = pome_arena_strndup(t->arena, s.ptr ? s.ptr : "", s.len);
    if (!copy)
        return pome_fail_nomem(err, s.len, "the tokenizer");
    *out = (pome_str){copy, s.len};
    return POME_OK;
}

pome_status pome_tokenizer_add_normalizer(pome_tokenizer *t, pome_normalizer **out, pome_error *err)
{
    if (t->n_normalizers == POME_TOKENIZER_STEPS_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "more than %d normalizers", POME_TOKENIZER_STEPS_MAX);
    *out = &t->normalizers[t->n_normalizers++];
    **out = (pome_normalizer){0};
    return POME_OK;
}

pome_status pome_tokenizer_add_pretokenizer(pome_tokenizer *t, pome_pretokenizer **out, pome_error *err)
{
    if (t->n_pretokenizers == POME_TOKENIZER_STEPS_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "more than %d pre-tokenizers", POME_TOKENIZER_STEPS_MAX);
    *out = &t->pretokenizers[t->n_pretokenizers++];
    **out = (pome_pretokenizer){0};
    return POME_OK;
}

pome_status pome_tokenizer_add_decoder(pome_tokenizer *t, pome_decoder_step **out, pome_error *err)
{
    if (t->decoder.n == POME_DECODER_STEPS_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "more than %d decoders", POME_DECODER_STEPS_MAX);
    *out = &t->decoder.steps[t->decoder.n++];
    **out = (pome_decoder_step){0};
    return POME_OK;
}

typedef pome_status part_reader(pome_tokenizer *t, const json_t *node, int depth, pome_error *err);

static pome_status read_sequence(pome_tokenizer *t, const json_t *node, const char *what, const char *field,
                                 part_reader *read, int depth, pome_error *err)
{
    char known[48];
    const json_t *list;
    snprintf(known, sizeof known, "type %s", field);
    POME_TRY(pome_json_check_fields(node, what, known, err));
    POME_TRY(pome_json_array(node, what, field, &list, err));
    if (depth >= DEPTH_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "%s: nested more than %d deep", what, DEPTH_MAX);
    for (size_t i = 0; i < json_array_size(list); i++)
        POME_TRY(read(t, json_array_get(list, i), depth + 1, err));
    return POME_OK;
}

static pome_status wrong_type(const char *what, const char *type, pome_error *err)
{
    return pome_fail(err, POME_ERR_UNSUPPORTED, "%s \"%.40s\" is not supported", what, type);
}

/* {"String": "..."} or {"Regex": "..."}, in old files just the string. */
static pome_status read_pattern(const json_t *node, const char *what, pome_regex **out, pome_error *err)
{
    const json_t *pattern = json_object_get(node, "pattern"), *literal = pattern, *regex = NULL;
    if (json_is_object(pattern)) {
        POME_TRY(pome_json_check_fields(pattern, what, "String Regex", err));
        literal = json_object_get(pattern, "String");
        regex = json_object_get(pattern, "Regex");
    }
    if (json_is_string(regex))
        return pome_regex_compile(out, json_string_value(regex), json_string_length(regex), err);
    if (!json_is_string(literal) || json_string_length(literal) == 0)
        return pome_fail(err, POME_ERR_FORMAT, "%s: pattern is neither a String nor a Regex", what);
    pome_strbuf escaped = {0};
    pome_regex_append_literal(&escaped, json_string_value(literal), json_string_length(literal));
    pome_status status = escaped.failed ? pome_fail_nomem(err, json_string_length(literal), "a pattern")
                                        : pome_regex_compile(out, escaped.data, escaped.len, err);
    pome_strbuf_reset(&escaped);
    return status;
}

/* ---- normalizers ---- */

pome_status pome_json_normalizer(pome_tokenizer *t, const json_t *node, int depth, pome_error *err)
{
    static const struct {
        const char *name;
        pome_normalizer_kind kind;
        const char *fields;
    } plain[] = {
        {"NFC", POME_NORMALIZE_NFC, "type"},
        {"NFD", POME_NORMALIZE_NFD, "type"},
        {"NFKC", POME_NORMALIZE_NFKC, "type"},
        {"NFKD", POME_NORMALIZE_NFKD, "type"},
        {"Lowercase", POME_NORMALIZE_LOWERCASE, "type"},
        {"StripAccents", POME_NORMALIZE_STRIP_ACCENTS, "type"},
        {"ByteLevel", POME_NORMALIZE_BYTE_LEVEL, "type"},
        {"Prepend", POME_NORMALIZE_PREPEND, "type prepend"},
        {"Replace", POME_NORMALIZE_REPLACE, "type pattern content"},
        {"Strip", POME_NORMALIZE_STRIP, "type strip_left strip_right"},
    };
    if (!node || json_is_null(node))
        return POME_OK;
    const char *type;
    POME_TRY(pome_json_type(node, "normalizer", &type, err));
    if (strcmp(type, "Sequence") == 0)
        return read_sequence(t, node, "normalizer Sequence", "normalizers", pome_json_normalizer, depth, err);
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        if (strcmp(type, plain[i].name) != 0)
            continue;
        char what[40];
        snprintf(what, sizeof what, "normalizer %s", type);
        POME_TRY(pome_json_check_fields(node, what, plain[i].fields, err));
        pome_normalizer *step;
        POME_TRY(pome_tokenizer_add_normalizer(t, &step, err));
        step->kind = plain[i].kind;
        step->left = step->right = true;
        pome_str content = {"", 0};
        POME_TRY(pome_json_bool(node, what, "strip_left", &step->left, err));
        POME_TRY(pome_json_bool(node, what, "strip_right", &step->right, err));
        POME_TRY(pome_json_str(node, what, step->kind == POME_NORMALIZE_PREPEND ? "prepend" : "content", &content,
                               err));
        POME_TRY(pome_tokenizer_keep(t, content, &step->content, err));
        if (step->kind == POME_NORMALIZE_REPLACE)
            POME_TRY(read_pattern(node, what, &step->regex, err));
        return POME_OK;
    }
    return wrong_type("normalizer", type, err);
}

/* ---- pre-tokenizers ---- */

static pome_status read_behavior(const json_t *node, const char *what, pome_split_behavior *out, pome_error *err)
{
    static const char *const names[] = {"Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"};
    pome_str name = {NULL, 0};
    POME_TRY(pome_json_str(node, what, "behavior", &name, err));
    if (!name.ptr)
        return POME_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (pome_str_is(name, names[i])) {
            *out = (pome_split_behavior)i;
            return POME_OK;
        }
    }
    return pome_fail(err, POME_ERR_UNSUPPORTED, "%s: behavior \"%.40s\" is not known", what, name.ptr);
}

static pome_status read_split(pome_tokenizer *t, const json_t *node, pome_error *err)
{
    pome_pretokenizer *step;
    POME_TRY(pome_json_check_fields(node, "pre_tokenizer Split", "type pattern behavior invert", err));
    POME_TRY(pome_tokenizer_add_pretokenizer(t, &step, err));
    step->kind = POME_PRETOKENIZE_REGEX;
    POME_TRY(read_behavior(node, "pre_tokenizer Split", &step->behavior, err));
    POME_TRY(pome_json_bool(node, "pre_tokenizer Split", "invert", &step->invert, err));
    return read_pattern(node, "pre_tokenizer Split", &step->regex, err);
}

static pome_status read_byte_level(pome_tokenizer *t, const json_t *node, pome_error *err)
{
    bool use_regex = true;
    pome_pretokenizer *step;
    POME_TRY(pome_json_check_fields(node, "pre_tokenizer ByteLevel", "type add_prefix_space trim_offsets use_regex",
                                    err));
    POME_TRY(pome_tokenizer_add_pretokenizer(t, &step, err));
    step->kind = POME_PRETOKENIZE_BYTE_LEVEL;
    step->add_prefix_space = true;
    POME_TRY(pome_json_bool(node, "pre_tokenizer ByteLevel", "add_prefix_space", &step->add_prefix_space, err));
    POME_TRY(pome_json_bool(node, "pre_tokenizer ByteLevel", "use_regex", &use_regex, err));
    if (use_regex)
        return pome_regex_compile(&step->regex, pome_gpt2_pattern, strlen(pome_gpt2_pattern), err);
    return POME_OK;
}

/* The field `replacement` and, in old files, add_prefix_space instead of prepend_scheme. */
static pome_status read_metaspace_fields(const json_t *node, const char *what, pome_str *replacement,
                                         pome_metaspace_prepend *prepend, pome_error *err)
{
    *replacement = pome_str_of("\xe2\x96\x81");
    *prepend = POME_PREPEND_ALWAYS;
    pome_str scheme = {NULL, 0};
    bool add_prefix_space = true;
    POME_TRY(pome_json_check_fields(node, what, "type replacement prepend_scheme add_prefix_space split str_rep", err));
    POME_TRY(pome_json_str(node, what, "replacement", replacement, err));
    if (replacement->len == 0 || replacement->len > 4 || pome_utf8_count(replacement->ptr, replacement->len) != 1)
        return pome_fail(err, POME_ERR_FORMAT, "%s: replacement is not one character", what);
    POME_TRY(pome_json_str(node, what, "prepend_scheme", &scheme, err));
    POME_TRY(pome_json_bool(node, what, "add_prefix_space", &add_prefix_space, err));
    if (!add_prefix_space)
        *prepend = POME_PREPEND_NEVER;
    if (!scheme.ptr)
        return POME_OK;
    if (pome_str_is(scheme, "never"))
        *prepend = POME_PREPEND_NEVER;
    else if (pome_str_is(scheme, "first"))
        *prepend = POME_PREPEND_FIRST;
    else if (!pome_str_is(scheme, "always"))
        return pome_fail(err, POME_ERR_UNSUPPORTED, "%s: prepend_scheme \"%.40s\" is not known", what, scheme.ptr);
    return POME_OK;
}

static pome_status read_metaspace(pome_tokenizer *t, const json_t *node, pome_error *err)
{
    pome_pretokenizer *step;
    pome_str replacement;
    POME_TRY(pome_tokenizer_add_pretokenizer(t, &step, err));
    step->kind = POME_PRETOKENIZE_METASPACE;
    step->behavior = POME_SPLIT_MERGED_WITH_NEXT;
    step->split = true;
    POME_TRY(read_metaspace_fields(node, "pre_tokenizer Metaspace", &replacement, &step->prepend, err));
    memcpy(step->replacement, replacement.ptr, replacement.len);
    return pome_json_bool(node, "pre_tokenizer Metaspace", "split", &step->split, err);
}

static pome_status add_character_split(pome_tokenizer *t, bool (*is_delimiter)(uint32_t), pome_split_behavior behavior,
                                       pome_error *err)
{
    pome_pretokenizer *step;
    POME_TRY(pome_tokenizer_add_pretokenizer(t, &step, err));
    step->kind = POME_PRETOKENIZE_CHARACTERS;
    step->is_delimiter = is_delimiter;
    step->behavior = behavior;
    return POME_OK;
}

static pome_status read_digits(pome_tokenizer *t, const json_t *node, pome_error *err)
{
    bool individual = false;
    POME_TRY(pome_json_check_fields(node, "pre_tokenizer Digits", "type individual_digits", err));
    POME_TRY(pome_json_bool(node, "pre_tokenizer Digits", "individual_digits", &individual, err));
    return add_character_split(t, pome_cp_is_numeric, individual ? POME_SPLIT_ISOLATED : POME_SPLIT_CONTIGUOUS, err);
}

static pome_status read_punctuation(pome_tokenizer *t, const json_t *node, pome_error *err)
{
    pome_split_behavior behavior = POME_SPLIT_ISOLATED;
    POME_TRY(pome_json_check_fields(node, "pre_tokenizer Punctuation", "type behavior", err));
    POME_TRY(read_behavior(node, "pre_tokenizer Punctuation", &behavior, err));
    return add_character_split(t, pome_cp_is_punctuation, behavior, err);
}

static pome_status read_whitespace(pome_tokenizer *t, const json_t *node, pome_error *err)
{
    /* Written for the Rust regex crate, whose \w also has the two joiners. */
    static const char pattern[] = "[\\w\\x{200c}\\x{200d}]+|[^\\w\\s\\x{200c}\\x{200d}]+";
    pome_pretokenizer *step;
    POME_TRY(pome_json_check_fields(node, "pre_tokenizer Whitespace", "type", err));
    POME_TRY(pome_tokenizer_add_pretokenizer(t, &step, err));
    step->kind = POME_PRETOKENIZE_REGEX;
    step->behavior = POME_SPLIT_REMOVED;
    step->invert = true;
    return pome_regex_compile(&step->regex, pattern, sizeof pattern - 1, err);
}

static pome_status read_char_delimiter(pome_tokenizer *t, const json_t *node, pome_error *err)
{
    pome_str c = {"", 0};
    POME_TRY(pome_json_check_fields(node, "pre_tokenizer CharDelimiterSplit", "type delimiter", err));
    POME_TRY(pome_json_str(node, "pre_tokenizer CharDelimiterSplit", "delimiter", &c, err));
    if (c.len == 0 || c.len > 4 || pome_utf8_count(c.ptr, c.len) != 1)
        return pome_fail(err, POME_ERR_FORMAT, "pre_tokenizer CharDelimiterSplit: delimiter is not one character");
    POME_TRY(add_character_split(t, NULL, POME_SPLIT_REMOVED, err));
    memcpy(t->pretokenizers[t->n_pretokenizers - 1].replacement, c.ptr, c.len);
    return POME_OK;
}

pome_status pome_json_pretokenizer(pome_tokenizer *t, const json_t *node, int depth, pome_error *err)
{
    if (!node || json_is_null(node))
        return POME_OK;
    const char *type;
    POME_TRY(pome_json_type(node, "pre_tokenizer", &type, err));
    if (strcmp(type, "Sequence") == 0)
        return read_sequence(t, node, "pre_tokenizer Sequence", "pretokenizers", pome_json_pretokenizer, depth, err);
    if (strcmp(type, "Split") == 0)
        return read_split(t, node, err);
    if (strcmp(type, "ByteLevel") == 0)
        return read_byte_level(t, node, err);
    if (strcmp(type, "Metaspace") == 0)
        return read_metaspace(t, node, err);
    if (strcmp(type, "Digits") == 0)
        return read_digits(t, node, err);
    if (strcmp(type, "Punctuation") == 0)
        return read_punctuation(t, node, err);
    if (strcmp(type, "Whitespace") == 0)
        return read_whitespace(t, node, err);
    if (strcmp(type, "CharDelimiterSplit") == 0)
        return read_char_delimiter(t, node, err);
    if (strcmp(type, "WhitespaceSplit") == 0) {
        POME_TRY(pome_json_check_fields(node, "pre_tokenizer WhitespaceSplit", "type", err));
        return add_character_split(t, pome_cp_is_space, POME_SPLIT_REMOVED, err);
    }
    if (strcmp(type, "BertPreTokenizer") == 0) {
        POME_TRY(pome_json_check_fields(node, "pre_tokenizer BertPreTokenizer", "type", err));
        POME_TRY(add_character_split(t, pome_cp_is_space, POME_SPLIT_REMOVED, err));
        return add_character_split(t, pome_cp_is_punctuation, POME_SPLIT_ISOLATED, err);
    }
    return wrong_type("pre_tokenizer", type, err);
}

/* ---- post-processors ---- */

static pome_status add_affix(int32_t *list, size_t *n, int32_t id, pome_error *err)
{
    if (*n == POME_TOKENIZER_AFFIX_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "post_processor: adds more than %d tokens on a side",
                         POME_TOKENIZER_AFFIX_MAX);
    list[(*n)++] = id;
    return POME_OK;
}

static pome_status check_affix_id(const pome_tokenizer *t, int32_t id, pome_error *err)
{
    if (!pome_vocab_has(&t->vocab, id))
        return pome_fail(err, POME_ERR_FORMAT, "post_processor: token id %d is not in the vocabulary", (int)id);
    return POME_OK;
}

/* A step of an outer processor wraps what inner ones have added. */
static pome_status wrap(pome_tokenizer *t, const int32_t *prefix, size_t n_prefix, const int32_t *suffix,
                        size_t n_suffix, pome_error *err)
{
    int32_t inner[POME_TOKENIZER_AFFIX_MAX];
    size_t n_inner = t->n_prefix;
    memcpy(inner, t->prefix, sizeof inner);
    t->n_prefix = 0;
    for (size_t i = 0; i < n_prefix + n_inner; i++)
        POME_TRY(add_affix(t->prefix, &t->n_prefix, i < n_prefix ? prefix[i] : inner[i - n_prefix], err));
    for (size_t i = 0; i < n_suffix; i++)
        POME_TRY(add_affix(t->suffix, &t->n_suffix, suffix[i], err));
    return POME_OK;
}

static pome_status read_template(pome_tokenizer *t, const json_t *node, pome_error *err)
{
    static const char what[] = "post_processor TemplateProcessing";
    int32_t affix[2][POME_TOKENIZER_AFFIX_MAX];
    size_t n[2] = {0, 0};
    const json_t *single;
    bool seen = false;
    POME_TRY(pome_json_check_fields(node, what, "type single pair special_tokens", err));
    POME_TRY(pome_json_array(node, what, "single", &single, err));
    for (size_t i = 0; i < json_array_size(single); i++) {
        const json_t *piece = json_array_get(single, i), *sequence = json_object_get(piece, "Sequence");
        if (sequence) {
            pome_str id = {"", 0};
            POME_TRY(pome_json_str(sequence, what, "id", &id, err));
            if (seen || !pome_str_is(id, "A"))
                return pome_fail(err, POME_ERR_UNSUPPORTED, "%s: single must contain the sequence A once", what);
            seen = true;
            continue;
        }
        POME_TRY(pome_json_check_fields(piece, what, "SpecialToken", err));
        pome_str name = {"", 0};
        POME_TRY(pome_json_str(json_object_get(piece, "SpecialToken"), what, "id", &name, err));
        const json_t *token = json_object_getn(json_object_get(node, "special_tokens"), name.ptr, name.len);
        const json_t *ids = json_object_get(token, "ids");
        if (!json_is_array(ids))
            return pome_fail(err, POME_ERR_FORMAT, "%s: special token \"%.60s\" has no ids", what, name.ptr);
        for (size_t k = 0; k < json_array_size(ids); k++) {
            int32_t id;
            POME_TRY(pome_json_id(json_array_get(ids, k), what, &id, err));
            POME_TRY(check_affix_id(t, id, err));
            POME_TRY(add_affix(affix[seen], &n[seen], id, err));
        }
    }
    if (!seen)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "%s: single must contain the sequence A once", what);
    return wrap(t, affix[0], n[0], affix[1], n[1], err);
}

static pome_status read_cls_sep(pome_tokenizer *t, const json_t *node, const char *what, pome_error *err)
{
    int32_t ids[2];
    POME_TRY(pome_json_check_fields(node, what, "type sep cls trim_offsets add_prefix_space", err));
    for (int i = 0; i < 2; i++) {
        const json_t *pair = json_object_get(node, i ? "sep" : "cls");
        POME_TRY(pome_json_id(json_array_get(pair, 1), what, &ids[i], err));
        POME_TRY(check_affix_id(t, ids[i], err));
    }
    return wrap(t, &ids[0], 1, &ids[1], 1, err);
}

pome_status pome_json_post_processor(pome_tokenizer *t, const json_t *node, int depth, pome_error *err)
{
    if (!node || json_is_null(node))
        return POME_OK;
    const char *type;
    POME_TRY(pome_json_type(node, "post_processor", &type, err));
    if (strcmp(type, "Sequence") == 0)
        return read_sequence(t, node, "post_processor Sequence", "processors", pome_json_post_processor, depth, err);
    if (strcmp(type, "TemplateProcessing") == 0)
        return read_template(t, node, err);
    if (strcmp(type, "ByteLevel") == 0) /* moves offsets only */
        return pome_json_check_fields(node, "post_processor ByteLevel",
                                      "type add_prefix_space trim_offsets use_regex", err);
    if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0)
        return read_cls_sep(t, node, type, err);
    return wrong_type("post_processor", type, err);
}

/* ---- decoders ---- */

static pome_status read_decoder_strip(pome_tokenizer *t, const json_t *node, pome_decoder_step *step, pome_error *err)
{
    static const char what[] = "decoder Strip";
    pome_str content = {"", 0};
    POME_TRY(pome_json_check_fields(node, what, "type content start stop", err));
    POME_TRY(pome_json_str(node, what, "content", &content, err));
    if (content.len == 0 || pome_utf8_count(content.ptr, content.len) != 1)
        return pome_fail(err, POME_ERR_FORMAT, "%s: content is not one character", what);
    POME_TRY(pome_json_size(node, what, "start", &step->start, err));
    POME_TRY(pome_json_size(node, what, "stop", &step->stop, err));
    return pome_tokenizer_keep(t, content, &step->content, err);
}

static pome_status read_decoder_replace(pome_tokenizer *t, const json_t *node, pome_decoder_step *step, pome_error *err)
{
    static const char what[] = "decoder Replace";
    pome_str content = {"", 0};
    POME_TRY(pome_json_check_fields(node, what, "type pattern content", err));
    POME_TRY(pome_json_str(node, what, "content", &content, err));
    POME_TRY(pome_tokenizer_keep(t, content, &step->content, err));
    return read_pattern(node, what, &step->regex, err);
}

static pome_status read_decoder_metaspace(pome_tokenizer *t, const json_t *node, pome_decoder_step *step,
                                          pome_error *err)
{
    pome_str replacement;
    pome_metaspace_prepend prepend;
    POME_TRY(read_metaspace_fields(node, "decoder Metaspace", &replacement, &prepend, err));
    step->drops_first = prepend != POME_PREPEND_NEVER;
    return pome_tokenizer_keep(t, replacement, &step->content, err);
}

pome_status pome_json_decoder(pome_tokenizer *t, const json_t *node, int depth, pome_error *err)
{
    static const struct {
        const char *name;
        pome_decoder_kind kind;
    } kinds[] = {
        {"ByteLevel", POME_DECODE_BYTE_LEVEL}, {"ByteFallback", POME_DECODE_BYTE_FALLBACK},
        {"Replace", POME_DECODE_REPLACE},      {"Strip", POME_DECODE_STRIP},
        {"Metaspace", POME_DECODE_METASPACE},  {"Fuse", POME_DECODE_FUSE},
    };
    if (!node || json_is_null(node))
        return POME_OK;
    const char *type;
    POME_TRY(pome_json_type(node, "decoder", &type, err));
    if (strcmp(type, "Sequence") == 0)
        return read_sequence(t, node, "decoder Sequence", "decoders", pome_json_decoder, depth, err);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(type, kinds[i].name) != 0)
            continue;
        pome_decoder_step *step;
        POME_TRY(pome_tokenizer_add_decoder(t, &step, err));
        step->kind = kinds[i].kind;
        switch (step->kind) {
        case POME_DECODE_STRIP:
            return read_decoder_strip(t, node, step, err);
        case POME_DECODE_REPLACE:
            return read_decoder_replace(t, node, step, err);
        case POME_DECODE_METASPACE:
            return read_decoder_metaspace(t, node, step, err);
        case POME_DECODE_BYTE_LEVEL:
            return pome_json_check_fields(node, "decoder ByteLevel", "type add_prefix_space trim_offsets use_regex",
                                          err);
        case POME_DECODE_BYTE_FALLBACK:
        case POME_DECODE_FUSE:
            return pome_json_check_fields(node, type, "type", err);
        }
    }
    return wrong_type("decoder", type, err);
}
