/* tokenizer.json of Hugging Face tokenizers, model BPE. What the file says and this reader does not know is refused
 * by name: a tokenizer that is nearly right gives wrong ids without a word. */
#include "text/tokenizer_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/utf8.h"

#define FILE_BYTES_MAX ((size_t)256 << 20)
#define MERGES_MAX (1 << 24)

typedef struct added {
    pome_added_token token;
    bool normalized, in_model;
} added;

typedef struct reading { /* what lives only while the file is read */
    pome_str *pieces; /* [n], views into the JSON */
    size_t n;
    added *tokens; /* [n_tokens] */
    size_t n_tokens;
} reading;

static pome_status count_ids(const json_t *vocab, reading *r, pome_error *err)
{
    int32_t id;
    for (void *i = json_object_iter((json_t *)vocab); i; i = json_object_iter_next((json_t *)vocab, i)) {
        POME_TRY(pome_json_id(json_object_iter_value(i), "model vocab: id", &id, err));
        if ((size_t)id >= r->n)
            r->n = (size_t)id + 1;
    }
    for (size_t i = 0; i < r->n_tokens; i++)
        if ((size_t)r->tokens[i].token.id >= r->n)
            r->n = (size_t)r->tokens[i].token.id + 1;
    return POME_OK;
}

static pome_status read_added_tokens(const json_t *list, reading *r, pome_error *err)
{
    if (!list || json_is_null(list))
        return POME_OK;
    if (!json_is_array(list))
        return pome_fail(err, POME_ERR_FORMAT, "added_tokens is not a list");
    r->tokens = calloc(json_array_size(list) + 1, sizeof *r->tokens);
    if (!r->tokens)
        return pome_fail_nomem(err, json_array_size(list) * sizeof *r->tokens, "added tokens");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *node = json_array_get(list, i);
        char what[48];
        snprintf(what, sizeof what, "added_tokens[%zu]", i);
        POME_TRY(pome_json_check_fields(node, what, "id content single_word lstrip rstrip normalized special", err));
        added *a = &r->tokens[r->n_tokens];
        POME_TRY(pome_json_str(node, what, "content", &a->token.content, err));
        POME_TRY(pome_json_id(json_object_get(node, "id"), what, &a->token.id, err));
        POME_TRY(pome_json_bool(node, what, "single_word", &a->token.single_word, err));
        POME_TRY(pome_json_bool(node, what, "lstrip", &a->token.lstrip, err));
        POME_TRY(pome_json_bool(node, what, "rstrip", &a->token.rstrip, err));
        POME_TRY(pome_json_bool(node, what, "special", &a->token.special, err));
        a->normalized = !a->token.special;
        POME_TRY(pome_json_bool(node, what, "normalized", &a->normalized, err));
        if (a->token.content.len > 0)
            r->n_tokens++;
    }
    return POME_OK;
}

static pome_status read_vocab(pome_tokenizer *t, const json_t *vocab, reading *r, pome_error *err)
{
    if (!json_is_object(vocab))
        return pome_fail(err, POME_ERR_FORMAT, "model BPE: vocab is not an object");
    POME_TRY(count_ids(vocab, r, err));
    r->pieces = calloc(r->n + 1, sizeof *r->pieces);
    if (!r->pieces)
        return pome_fail_nomem(err, r->n * sizeof *r->pieces, "the vocabulary");
    for (void *i = json_object_iter((json_t *)vocab); i; i = json_object_iter_next((json_t *)vocab, i)) {
        size_t id = (size_t)json_integer_value(json_object_iter_value(i));
        if (r->pieces[id].ptr)
            return pome_fail(err, POME_ERR_FORMAT, "model vocab: \"%.60s\" and \"%.60s\" both have id %zu",
                             r->pieces[id].ptr, json_object_iter_key(i), id);
        r->pieces[id] = (pome_str){json_object_iter_key(i), json_object_iter_key_len(i)};
    }
    for (size_t i = 0; i < r->n_tokens; i++) {
        added *a = &r->tokens[i];
        const json_t *own = json_object_getn(vocab, a->token.content.ptr, a->token.content.len);
        a->in_model = own != NULL;
        if (own) /* the model's id counts, as in Hugging Face tokenizers */
            a->token.id = (int32_t)json_integer_value(own);
        pome_str *piece = &r->pieces[a->token.id];
        if (piece->ptr && !pome_str_eq(*piece, a->token.content))
            return pome_fail(err, POME_ERR_FORMAT, "added token \"%.60s\" has id %d, which is \"%.60s\" already",
                             a->token.content.ptr, (int)a->token.id, piece->ptr);
        *piece = a->token.content;
    }
    POME_TRY(pome_vocab_init(&t->vocab, r->pieces, r->n, err));
    for (size_t i = 0; i < r->n_tokens; i++) {
        const added *a = &r->tokens[i];
        t->vocab.flags[a->token.id] |= (a->token.special ? POME_TOKEN_SPECIAL : 0) | (a->in_model ? 0 : POME_TOKEN_ADDED);
    }
    return POME_OK;
}

/* "left right", or ["left", "right"]. */
static pome_status merge_sides(const json_t *node, size_t rank, pome_str side[2], pome_error *err)
{
    if (json_is_string(node)) {
        const char *s = json_string_value(node);
        size_t len = json_string_length(node);
        const char *space = memchr(s, ' ', len);
        if (!space || memchr(space + 1, ' ', len - (size_t)(space + 1 - s)))
            return pome_fail(err, POME_ERR_FORMAT, "model merges[%zu]: \"%.60s\" is not two pieces", rank, s);
        side[0] = (pome_str){s, (size_t)(space - s)};
        side[1] = (pome_str){space + 1, len - (size_t)(space + 1 - s)};
        return POME_OK;
    }
    if (!json_is_array(node) || json_array_size(node) != 2 || !json_is_string(json_array_get(node, 0)) ||
        !json_is_string(json_array_get(node, 1)))
        return pome_fail(err, POME_ERR_FORMAT, "model merges[%zu]: neither a string nor two strings", rank);
    for (size_t i = 0; i < 2; i++) {
        const json_t *s = json_array_get(node, i);
        side[i] = (pome_str){json_string_value(s), json_string_length(s)};
    }
    return POME_OK;
}

static int32_t find_in_model(const pome_tokenizer *t, pome_str piece)
{
    int32_t id = pome_vocab_find(&t->vocab, piece);
    return id >= 0 && (t->vocab.flags[id] & POME_TOKEN_ADDED) ? -1 : id;
}

static pome_status read_merges(pome_tokenizer *t, const json_t *list, pome_error *err)
{
    size_t n = json_array_size(list), skip = t->bpe.prefix ? strlen(t->bpe.prefix) : 0;
    if (n > MERGES_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "model merges: %zu, at most %d are allowed", n, MERGES_MAX);
    t->bpe.merges = calloc(n + 1, sizeof *t->bpe.merges);
    if (!t->bpe.merges)
        return pome_fail_nomem(err, n * sizeof *t->bpe.merges, "the merges");
    pome_strbuf joined = {0};
    pome_status status = POME_OK;
    for (size_t i = 0; i < n && status == POME_OK; i++) {
        const json_t *node = json_array_get(list, i);
        if (json_is_string(node) && strncmp(json_string_value(node), "#version", 8) == 0)
            continue;
        pome_str side[2];
        status = merge_sides(node, i, side, err);
        if (status != POME_OK)
            break;
        joined.len = 0;
        pome_strbuf_append(&joined, side[0].ptr, side[0].len);
        if (side[1].len >= skip)
            pome_strbuf_append(&joined, side[1].ptr + skip, side[1].len - skip);
        int32_t left = find_in_model(t, side[0]), right = find_in_model(t, side[1]);
        int32_t result = find_in_model(t, pome_strbuf_view(&joined));
        if (left < 0 || right < 0 || result < 0) {
            pome_str missing = left < 0 ? side[0] : right < 0 ? side[1] : pome_strbuf_view(&joined);
            status = pome_fail(err, POME_ERR_FORMAT, "model merges[%zu]: \"%.*s\" is not in the vocabulary", i,
                               (int)(missing.len < 60 ? missing.len : 60), missing.ptr);
            break;
        }
        t->bpe.merges[t->bpe.n_merges++] = (pome_bpe_merge){(uint32_t)left, (uint32_t)right, (uint32_t)result};
    }
    if (joined.failed)
        status = pome_fail_nomem(err, 0, "the merges");
    pome_strbuf_reset(&joined);
    return status == POME_OK ? pome_bpe_index(&t->bpe, err) : status;
}

static pome_status read_affix(const json_t *model, const char *field, char **out, pome_error *err)
{
    pome_str s = {NULL, 0};
    POME_TRY(pome_json_str(model, "model BPE", field, &s, err));
    if (s.len == 0)
        return POME_OK;
    if (memchr(s.ptr, '\0', s.len))
        return pome_fail(err, POME_ERR_FORMAT, "model BPE: %s contains a NUL", field);
    *out = strndup(s.ptr, s.len);
    return *out ? POME_OK : pome_fail_nomem(err, s.len, field);
}

static pome_status read_model(pome_tokenizer *t, const json_t *model, reading *r, pome_error *err)
{
    const json_t *type = json_object_get(model, "type"), *merges;
    if (type && json_is_string(type) && strcmp(json_string_value(type), "BPE") != 0)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "tokenizer model \"%.40s\" is not supported (BPE is)",
                         json_string_value(type));
    POME_TRY(pome_json_check_fields(model, "model BPE",
                                    "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk "
                                    "byte_fallback ignore_merges vocab merges", err));
    const json_t *dropout = json_object_get(model, "dropout");
    if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "model BPE: dropout makes the result random, null is wanted");
    POME_TRY(pome_json_array(model, "model BPE", "merges", &merges, err));
    POME_TRY(read_vocab(t, json_object_get(model, "vocab"), r, err));
    pome_bpe *bpe = &t->bpe;
    bpe->vocab = &t->vocab;
    POME_TRY(pome_json_bool(model, "model BPE", "fuse_unk", &bpe->fuse_unk, err));
    POME_TRY(pome_json_bool(model, "model BPE", "byte_fallback", &bpe->byte_fallback, err));
    POME_TRY(pome_json_bool(model, "model BPE", "ignore_merges", &bpe->ignore_merges, err));
    POME_TRY(read_affix(model, "continuing_subword_prefix", &bpe->prefix, err));
    POME_TRY(read_affix(model, "end_of_word_suffix", &bpe->suffix, err));
    pome_str unk = {NULL, 0};
    POME_TRY(pome_json_str(model, "model BPE", "unk_token", &unk, err));
    bpe->unk = unk.ptr ? find_in_model(t, unk) : -1;
    t->unk = bpe->unk;
    for (int b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)b);
        bpe->byte_ids[b] = find_in_model(t, pome_str_of(name));
    }
    return read_merges(t, merges, err);
}

static pome_status file_added_tokens(pome_tokenizer *t, const reading *r, pome_error *err)
{
    for (size_t i = 0; i < r->n_tokens; i++) {
        pome_added_token token = r->tokens[i].token;
        token.content = pome_vocab_piece(&t->vocab, token.id);
        if (!r->tokens[i].normalized) {
            POME_TRY(pome_added_tokens_add(&t->raw_tokens, &token, err));
            continue;
        }
        pome_strbuf normalized = {0};
        pome_status status = pome_normalize_text(t->normalizers, t->n_normalizers, token.content, &normalized, err);
        if (status == POME_OK)
            status = pome_tokenizer_keep(t, pome_strbuf_view(&normalized), &token.content, err);
        pome_strbuf_reset(&normalized);
        POME_TRY(status);
        POME_TRY(pome_added_tokens_add(&t->normalized_tokens, &token, err));
    }
    pome_added_tokens_index(&t->raw_tokens);
    pome_added_tokens_index(&t->normalized_tokens);
    return POME_OK;
}

static pome_status read_root(pome_tokenizer *t, const json_t *root, reading *r, pome_error *err)
{
    /* truncation and padding say how batches are cut; a caller of this library gets the whole text. */
    POME_TRY(pome_json_check_fields(root, "tokenizer",
                                    "version truncation padding added_tokens normalizer pre_tokenizer post_processor "
                                    "decoder model", err));
    POME_TRY(read_added_tokens(json_object_get(root, "added_tokens"), r, err));
    const json_t *model = json_object_get(root, "model");
    if (!json_is_object(model))
        return pome_fail(err, POME_ERR_FORMAT, "tokenizer: no model");
    POME_TRY(read_model(t, model, r, err));
    POME_TRY(pome_json_normalizer(t, json_object_get(root, "normalizer"), 0, err));
    POME_TRY(pome_json_pretokenizer(t, json_object_get(root, "pre_tokenizer"), 0, err));
    POME_TRY(pome_json_post_processor(t, json_object_get(root, "post_processor"), 0, err));
    const json_t *decoder = json_object_get(root, "decoder");
    POME_TRY(pome_json_decoder(t, decoder, 0, err));
    t->decoder.joins_with_space = !decoder || json_is_null(decoder);
    POME_TRY(pome_decoder_check(&t->decoder, err));
    return file_added_tokens(t, r, err);
}

pome_status pome_tokenizer_read_json(pome_tokenizer *t, const char *path, pome_error *err)
{
    json_t *root = NULL;
    POME_TRY(pome_json_read(&root, path, FILE_BYTES_MAX, err));
    reading r = {0};
    pome_status status = read_root(t, root, &r, err);
    if (status != POME_OK)
        status = pome_fail_prefix(err, status, "%s", path);
    free(r.pieces);
    free(r.tokens);
    json_decref(root);
    return status;
}
