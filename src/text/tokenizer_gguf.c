/* The vocabulary that a GGUF file carries: "gpt2" (byte-level, ranked merges; what cuts the text is named by
 * tokenizer.ggml.pre) and "llama" (SentencePiece, merged by scores). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "formats/gguf.h"
#include "text/tokenizer_json.h"
#include "text/utf8.h"

#define TEMPLATE_BYTES_MAX ((size_t)1 << 20)
#define PATTERNS_MAX 4

enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER_DEFINED, TYPE_UNUSED, TYPE_BYTE };

#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORDS "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define REST " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3_PATTERN CONTRACTION "|" WORDS "|\\p{N}{1,3}|" REST
#define QWEN2_PATTERN CONTRACTION "|" WORDS "|\\p{N}|" REST
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(end) "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" end
#define REST_SLASH " ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define DEEPSEEK3_PATTERN                                                                                              \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"            \
    " ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define CJK_KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
#define CJK_HANGUL "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}]+"

/* tokenizer.ggml.pre: which patterns cut the text, one after the other. The patterns are those of the models'
 * own tokenizer.json. */
typedef struct pre_rule {
    const char *names; /* separated by spaces */
    bool ignore_merges, adds_bos;
    const char *patterns[PATTERNS_MAX];
} pre_rule;

static const pre_rule pre_rules[] = {
    {"default", false, false,
     {"[\\p{P}$+<=>^~|]+", GPT2_PATTERN, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {"gpt-2 phi-2 mpt olmo jina-es jina-de jina-v1-en jina-v2-es jina-v2-de jina-v2-code gigachat mellum modern-bert "
     "roberta-bpe exaone4 a.x-4.0 jais trillion granite-docling", false, false, {GPT2_PATTERN}},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b", false, false, {"\\p{N}", GPT2_PATTERN}},
    {"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2", true, true, {LLAMA3_PATTERN}},
    {"dbrx smaug-bpe glm4 chatglm-bpe", false, false, {LLAMA3_PATTERN}},
    {"qwen2 stablelm2 deepseek-r1-qwen kormo hunyuan megrez solar-open grok-2", false, false, {QWEN2_PATTERN}},
    {"qwen35", false, false,
     {CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|"
      "\\s+(?!\\S)|\\s+"}},
    {"gpt-4o llama4 kanana2 minimax-m2", false, false, {CASED(CONTRACTION "?") "|\\p{N}{1,3}|" REST_SLASH}},
    {"tekken", true, true, {CASED("") "|\\p{N}|" REST_SLASH}},
    {"deepseek-v3 hunyuan-dense joyai-llm", false, false, {"\\p{N}{1,3}", CJK_KANA, DEEPSEEK3_PATTERN}},
    {"deepseek-coder", false, false, {"[\\r\\n]", "\\s?\\p{L}+|\\s?\\p{P}+", CJK_HANGUL, "\\p{N}"}},
    {"falcon", false, false, {"[\\p{P}$+<=>^~|`]+", GPT2_PATTERN, "[0-9][0-9][0-9]"}},
    {"bailingmoe bailingmoe2 llada-moe", false, false,
     {"'(?i:[sdmt]|ll|ve|re)|" WORDS "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {"seed-coder", false, false,
     {CONTRACTION "|" WORDS "|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
};

static bool names_one(const char *names, pome_str name)
{
    for (const char *p = names; *p;) {
        size_t n = strcspn(p, " ");
        if (n == name.len && memcmp(p, name.ptr, n) == 0)
            return true;
        p += n + (p[n] == ' ');
    }
    return false;
}

static pome_status find_rule(const pome_gguf *g, const pre_rule **out, pome_error *err)
{
    pome_str name = {"default", 7};
    (void)pome_gguf_get_str(g, "tokenizer.ggml.pre", &name);
    for (size_t i = 0; i < sizeof pre_rules / sizeof *pre_rules; i++) {
        if (names_one(pre_rules[i].names, name)) {
            *out = &pre_rules[i];
            return POME_OK;
        }
    }
    return pome_fail(err, POME_ERR_UNSUPPORTED, "GGUF: tokenizer.ggml.pre \"%.*s\" is not known",
                     (int)(name.len < 60 ? name.len : 60), name.ptr);
}

static pome_status string_array(const pome_gguf *g, const char *key, const pome_gguf_entry **out, pome_error *err)
{
    *out = pome_gguf_find(g, key);
    if (!*out || (*out)->type != POME_GGUF_ARRAY || (*out)->element != POME_GGUF_STRING)
        return pome_fail(err, *out ? POME_ERR_FORMAT : POME_ERR_UNSUPPORTED, "GGUF: %s %s", key,
                         *out ? "is not a list of strings" : "is missing (a file without a vocabulary?)");
    return POME_OK;
}

static pome_status read_vocab(pome_tokenizer *t, const pome_gguf *g, pome_error *err)
{
    const pome_gguf_entry *tokens, *types = pome_gguf_find(g, "tokenizer.ggml.token_type");
    POME_TRY(string_array(g, "tokenizer.ggml.tokens", &tokens, err));
    if (tokens->count > POME_VOCAB_IDS_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "GGUF: %llu tokens, at most %d are allowed",
                         (unsigned long long)tokens->count, POME_VOCAB_IDS_MAX);
    if (types && (types->type != POME_GGUF_ARRAY || types->count != tokens->count ||
                  (types->element != POME_GGUF_I32 && types->element != POME_GGUF_U32)))
        return pome_fail(err, POME_ERR_FORMAT, "GGUF: tokenizer.ggml.token_type is not one integer for each token");
    size_t n = (size_t)tokens->count, at = 0;
    pome_str *pieces = calloc(n + 1, sizeof *pieces);
    if (!pieces)
        return pome_fail_nomem(err, n * sizeof *pieces, "the vocabulary");
    pome_status status = POME_OK;
    for (size_t i = 0; i < n; i++) {
        pieces[i] = pome_gguf_next_str(tokens, &at);
        if (status == POME_OK && !pome_utf8_is_valid(pieces[i].ptr, pieces[i].len))
            status = pome_fail(err, POME_ERR_FORMAT, "GGUF: token %zu is not UTF-8", i);
    }
    if (status == POME_OK)
        status = pome_vocab_init(&t->vocab, pieces, n, err);
    free(pieces);
    POME_TRY(status);
    for (size_t i = 0; i < n; i++) {
        int64_t type = types ? pome_gguf_element_int(types, i) : TYPE_NORMAL;
        if (type == TYPE_CONTROL || type == TYPE_UNKNOWN)
            t->vocab.flags[i] |= POME_TOKEN_SPECIAL;
        if (type != TYPE_CONTROL && type != TYPE_UNKNOWN && type != TYPE_USER_DEFINED)
            continue;
        pome_added_token token = {.content = pome_vocab_piece(&t->vocab, (int32_t)i), .id = (int32_t)i,
                                  .special = type != TYPE_USER_DEFINED};
        POME_TRY(pome_added_tokens_add(&t->raw_tokens, &token, err));
    }
    pome_added_tokens_index(&t->raw_tokens);
    pome_added_tokens_index(&t->normalized_tokens);
    return POME_OK;
}

static pome_status read_merges(pome_tokenizer *t, const pome_gguf *g, pome_error *err)
{
    const pome_gguf_entry *list;
    POME_TRY(string_array(g, "tokenizer.ggml.merges", &list, err));
    size_t n = (size_t)list->count, at = 0;
    pome_bpe_merge *merges = calloc(n + 1, sizeof *merges);
    t->bpe.merges = merges;
    if (!merges)
        return pome_fail_nomem(err, n * sizeof *merges, "the merges");
    pome_strbuf joined = {0};
    pome_status status = POME_OK;
    for (size_t i = 0; i < n && status == POME_OK; i++) {
        pome_str s = pome_gguf_next_str(list, &at);
        /* A piece may itself begin with a space where the vocabulary is not byte-level. */
        const char *space = s.len > 1 ? memchr(s.ptr + 1, ' ', s.len - 1) : NULL;
        pome_str left = {s.ptr, space ? (size_t)(space - s.ptr) : 0};
        pome_str right = {space ? space + 1 : s.ptr, space ? s.len - left.len - 1 : 0};
        joined.len = 0;
        pome_strbuf_append(&joined, left.ptr, left.len);
        pome_strbuf_append(&joined, right.ptr, right.len);
        int32_t a = pome_vocab_find(&t->vocab, left), b = pome_vocab_find(&t->vocab, right);
        int32_t result = pome_vocab_find(&t->vocab, pome_strbuf_view(&joined));
        if (a < 0 || b < 0 || result < 0)
            status = pome_fail(err, POME_ERR_FORMAT, "GGUF: merge %zu \"%.*s\" is not of two known tokens", i,
                               (int)(s.len < 60 ? s.len : 60), s.ptr);
        else
            merges[t->bpe.n_merges++] = (pome_bpe_merge){(uint32_t)a, (uint32_t)b, (uint32_t)result};
    }
    if (joined.failed)
        status = pome_fail_nomem(err, 0, "the merges");
    pome_strbuf_reset(&joined);
    return status == POME_OK ? pome_bpe_index(&t->bpe, err) : status;
}

static pome_status read_gpt2(pome_tokenizer *t, const pome_gguf *g, const pre_rule *rule, pome_error *err)
{
    t->bpe.ignore_merges = rule->ignore_merges;
    POME_TRY(read_merges(t, g, err));
    pome_pretokenizer *step;
    for (size_t i = 0; i < PATTERNS_MAX && rule->patterns[i]; i++) {
        POME_TRY(pome_tokenizer_add_pretokenizer(t, &step, err));
        step->kind = POME_PRETOKENIZE_REGEX;
        POME_TRY(pome_regex_compile(&step->regex, rule->patterns[i], strlen(rule->patterns[i]), err));
    }
    POME_TRY(pome_tokenizer_add_pretokenizer(t, &step, err));
    step->kind = POME_PRETOKENIZE_BYTE_LEVEL;
    (void)pome_gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &step->add_prefix_space);
    pome_decoder_step *decoder;
    POME_TRY(pome_tokenizer_add_decoder(t, &decoder, err));
    decoder->kind = POME_DECODE_BYTE_LEVEL;
    return POME_OK;
}

static pome_status read_scores(pome_tokenizer *t, const pome_gguf *g, pome_error *err)
{
    const pome_gguf_entry *scores = pome_gguf_find(g, "tokenizer.ggml.scores");
    if (!scores || scores->type != POME_GGUF_ARRAY || scores->element != POME_GGUF_F32 ||
        scores->count != t->vocab.n)
        return pome_fail(err, POME_ERR_FORMAT, "GGUF: tokenizer.ggml.scores is not one number for each token");
    t->bpe.scores = malloc((t->vocab.n + 1) * sizeof *t->bpe.scores);
    if (!t->bpe.scores)
        return pome_fail_nomem(err, t->vocab.n * sizeof *t->bpe.scores, "the scores");
    for (size_t i = 0; i < t->vocab.n; i++)
        t->bpe.scores[i] = (float)pome_gguf_element_float(scores, i);
    return POME_OK;
}

/* Spaces are U+2581 in the vocabulary; the text gets one in front, also after a special token. */
static pome_status read_llama(pome_tokenizer *t, const pome_gguf *g, pome_error *err)
{
    static const char space[] = "\xe2\x96\x81";
    bool prefix = true;
    (void)pome_gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", &prefix);
    POME_TRY(read_scores(t, g, err));
    t->bpe.byte_fallback = true;
    pome_pretokenizer *step;
    POME_TRY(pome_tokenizer_add_pretokenizer(t, &step, err));
    step->kind = POME_PRETOKENIZE_METASPACE;
    step->prepend = prefix ? POME_PREPEND_EXTRA : POME_PREPEND_NEVER;
    memcpy(step->replacement, space, sizeof space);
    pome_decoder_step *decoder;
    POME_TRY(pome_tokenizer_add_decoder(t, &decoder, err));
    decoder->kind = POME_DECODE_REPLACE;
    decoder->content = pome_str_of(" ");
    POME_TRY(pome_regex_compile(&decoder->regex, space, sizeof space - 1, err));
    POME_TRY(pome_tokenizer_add_decoder(t, &decoder, err));
    decoder->kind = POME_DECODE_BYTE_FALLBACK;
    POME_TRY(pome_tokenizer_add_decoder(t, &decoder, err));
    decoder->kind = POME_DECODE_FUSE;
    if (!prefix)
        return POME_OK;
    POME_TRY(pome_tokenizer_add_decoder(t, &decoder, err));
    decoder->kind = POME_DECODE_STRIP;
    decoder->content = pome_str_of(" ");
    decoder->start = 1;
    return POME_OK;
}

static int32_t special_id(const pome_tokenizer *t, const pome_gguf *g, const char *name)
{
    char key[64];
    uint64_t id;
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", name);
    if (!pome_gguf_get_uint(g, key, &id) || id >= t->vocab.n)
        return -1;
    return (int32_t)id;
}

static pome_status read_rest(pome_tokenizer *t, const pome_gguf *g, bool adds_bos, pome_error *err)
{
    bool adds_eos = false;
    t->bos = special_id(t, g, "bos");
    t->eos = special_id(t, g, "eos");
    t->pad = special_id(t, g, "padding");
    pome_tokenizer_add_stop(t, t->eos);
    pome_tokenizer_add_stop(t, special_id(t, g, "eot"));
    pome_tokenizer_add_stop(t, special_id(t, g, "eom"));
    (void)pome_gguf_get_bool(g, "tokenizer.ggml.add_bos_token", &adds_bos);
    (void)pome_gguf_get_bool(g, "tokenizer.ggml.add_eos_token", &adds_eos);
    if (adds_bos && t->bos >= 0)
        t->prefix[t->n_prefix++] = t->bos;
    if (adds_eos && t->eos >= 0)
        t->suffix[t->n_suffix++] = t->eos;
    pome_str text;
    if (!pome_gguf_get_str(g, "tokenizer.chat_template", &text))
        return POME_OK;
    if (text.len > TEMPLATE_BYTES_MAX || !pome_utf8_is_valid(text.ptr, text.len) ||
        (text.len && memchr(text.ptr, '\0', text.len)))
        return pome_fail(err, POME_ERR_FORMAT, "GGUF: tokenizer.chat_template is too long or not UTF-8 text");
    t->chat_template = pome_arena_strndup(t->arena, text.ptr, text.len);
    return t->chat_template ? POME_OK : pome_fail_nomem(err, text.len, "the chat template");
}

static pome_status read_tokenizer(pome_tokenizer *t, const pome_gguf *g, pome_error *err)
{
    pome_str model;
    if (!pome_gguf_get_str(g, "tokenizer.ggml.model", &model))
        return pome_fail(err, POME_ERR_UNSUPPORTED, "GGUF: no tokenizer.ggml.model (a file without a vocabulary?)");
    bool is_gpt2 = pome_str_is(model, "gpt2"), is_llama = pome_str_is(model, "llama");
    if (!is_gpt2 && !is_llama)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "GGUF: tokenizer.ggml.model \"%.*s\" is not supported (gpt2 and "
                                                    "llama are)", (int)(model.len < 60 ? model.len : 60), model.ptr);
    const pre_rule *rule = NULL;
    if (is_gpt2)
        POME_TRY(find_rule(g, &rule, err));
    POME_TRY(read_vocab(t, g, err));
    t->bpe.vocab = &t->vocab;
    t->bpe.unk = t->unk = special_id(t, g, "unknown");
    if (is_gpt2)
        t->bpe.unk = -1;
    for (int b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        t->bpe.byte_ids[b] = pome_vocab_find(&t->vocab, pome_str_of(name));
    }
    if (is_gpt2)
        POME_TRY(read_gpt2(t, g, rule, err));
    else
        POME_TRY(read_llama(t, g, err));
    POME_TRY(pome_decoder_check(&t->decoder, err));
    return read_rest(t, g, is_gpt2 ? rule->adds_bos : true, err);
}

pome_status pome_tokenizer_read_gguf(pome_tokenizer *t, pome_bytes bytes, pome_error *err)
{
    pome_gguf g;
    pome_status status = pome_gguf_read(&g, bytes, err);
    if (status == POME_OK) {
        status = read_tokenizer(t, &g, err);
        pome_gguf_close(&g);
    }
    return status == POME_OK ? status : pome_fail_prefix(err, status, "%s", t->source);
}
