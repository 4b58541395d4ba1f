/* tokenizer.json of Hugging Face tokenizers, model BPE. What the file says and this reader does not know is refused
 * by name: a tokenizer that is nearly right gives wrong ids without a word. */
#include "text/tokenizer_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/strmap.h"
#include "text/json_scan.h"
#include "text/utf8.h"

#define FILE_BYTES_MAX ((size_t)256 << 20)
#define MERGES_MAX (1 << 24)

typedef struct added {
    pome_added_token token;
    bool normalized, in_model;
} added;

typedef struct reading { /* what lives only while the file is read */
    bool has_model;
    pome_str vocab, merges; /* the text of model.vocab and model.merges */
    pome_arena *arena;      /* of pieces that had escapes, and `by_content` */
    pome_str *pieces;       /* [n], views into the file or the arena */
    size_t n, cap;
    added *tokens; /* [n_tokens] */
    size_t n_tokens;
    pome_strmap by_content; /* of the added tokens */
    bool begins_added[256]; /* first bytes of those */
} reading;

static pome_status not_json(pome_error *err, const char *what, const pome_json_scan *s)
{
    if (s->scratch.failed)
        return pome_fail_nomem(err, s->scratch.len, what);
    return pome_fail_at(err, POME_ERR_FORMAT, s->pos, "%s: malformed at its byte %zu", what, s->pos);
}

static pome_status set_piece(reading *r, int64_t id, pome_str piece, pome_error *err)
{
    if (id < 0 || id >= POME_VOCAB_IDS_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "model vocab: %lld is no token id (0 to %d)", (long long)id,
                         POME_VOCAB_IDS_MAX - 1);
    if ((size_t)id >= r->cap) {
        size_t cap = r->cap ? r->cap : 1024;
        while (cap <= (size_t)id)
            cap *= 2;
        pome_str *pieces = realloc(r->pieces, cap * sizeof *pieces);
        if (!pieces)
            return pome_fail_nomem(err, cap * sizeof *pieces, "the vocabulary");
        memset(pieces + r->cap, 0, (cap - r->cap) * sizeof *pieces);
        r->pieces = pieces;
        r->cap = cap;
    }
    if ((size_t)id >= r->n)
        r->n = (size_t)id + 1;
    pome_str *slot = &r->pieces[id];
    if (slot->ptr && !pome_str_eq(*slot, piece))
        return pome_fail(err, POME_ERR_FORMAT, "model vocab: \"%.*s\" and \"%.*s\" both have id %lld",
                         (int)(slot->len < 60 ? slot->len : 60), slot->ptr, (int)(piece.len < 60 ? piece.len : 60),
                         piece.ptr, (long long)id);
    *slot = piece;
    return POME_OK;
}

/* Entries "piece": id. */
static pome_status scan_vocab(reading *r, pome_json_scan *s, pome_error *err)
{
    static const char what[] = "model vocab";
    if (!pome_json_scan_punctuation(s, '{'))
        return not_json(err, what, s);
    while (!pome_json_scan_punctuation(s, '}')) {
        pome_str piece;
        int64_t id;
        if (r->n > 0 && !pome_json_scan_punctuation(s, ','))
            return not_json(err, what, s);
        if (!pome_json_scan_string(s, &piece))
            return not_json(err, what, s);
        bool is_view = piece.ptr >= s->text.ptr && piece.ptr <= s->text.ptr + s->text.len;
        if (!is_view && !(piece.ptr = pome_arena_strndup(r->arena, piece.ptr, piece.len)))
            return pome_fail_nomem(err, piece.len, "the vocabulary");
        if (!pome_json_scan_punctuation(s, ':') || !pome_json_scan_int(s, &id))
            return not_json(err, what, s);
        POME_TRY(set_piece(r, id, piece, err));
        bool may_be_added = piece.len > 0 && r->begins_added[(uint8_t)piece.ptr[0]];
        added *token = may_be_added ? pome_strmap_get(&r->by_content, piece) : NULL;
        if (token) { /* the model's id counts, as in Hugging Face tokenizers */
            token->in_model = true;
            token->token.id = (int32_t)id;
        }
    }
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

static pome_status read_vocab(pome_tokenizer *t, reading *r, pome_error *err)
{
    pome_strmap_init(&r->by_content, r->arena);
    for (size_t i = r->n_tokens; i-- > 0;) {
        if (!pome_strmap_set(&r->by_content, r->tokens[i].token.content, &r->tokens[i]))
            return pome_fail_nomem(err, r->n_tokens, "added tokens");
        r->begins_added[(uint8_t)r->tokens[i].token.content.ptr[0]] = true;
    }
    pome_json_scan s = {.text = r->vocab};
    pome_status status = scan_vocab(r, &s, err);
    pome_strbuf_reset(&s.scratch);
    POME_TRY(status);
    for (size_t i = 0; i < r->n_tokens; i++) {
        added *a = &r->tokens[i];
        const added *first = pome_strmap_get(&r->by_content, a->token.content);
        a->in_model = first->in_model; /* a content may be listed twice */
        a->token.id = first->token.id;
        POME_TRY(set_piece(r, a->token.id, a->token.content, err));
    }
    POME_TRY(pome_vocab_init(&t->vocab, r->pieces, r->n, err));
    for (size_t i = 0; i < r->n_tokens; i++) {
        const added *a = &r->tokens[i];
        t->vocab.flags[a->token.id] |= (a->token.special ? POME_TOKEN_SPECIAL : 0) | (a->in_model ? 0 : POME_TOKEN_ADDED);
    }
    return POME_OK;
}

static int32_t find_in_model(const pome_tokenizer *t, pome_str piece)
{
    int32_t id = pome_vocab_find(&t->vocab, piece);
    return id >= 0 && (t->vocab.flags[id] & POME_TOKEN_ADDED) ? -1 : id;
}

/* Cuts "left right" at its one space. */
static bool cut_merge(pome_str s, pome_str *left, pome_str *right)
{
    const char *space = s.len ? memchr(s.ptr, ' ', s.len) : NULL;
    if (!space)
        return false;
    *left = (pome_str){s.ptr, (size_t)(space - s.ptr)};
    *right = (pome_str){space + 1, s.len - left->len - 1};
    return right->len == 0 || !memchr(right->ptr, ' ', right->len);
}

typedef struct merges_reader {
    pome_tokenizer *t;
    size_t cap, skip; /* skip: bytes of continuing_subword_prefix */
    pome_strbuf joined;
    pome_error *err;
} merges_reader;

static pome_status not_in_vocab(const merges_reader *m, pome_str piece)
{
    return pome_fail(m->err, POME_ERR_FORMAT, "model merges[%zu]: \"%.*s\" is not in the vocabulary",
                     m->t->bpe.n_merges, (int)(piece.len < 60 ? piece.len : 60), piece.ptr);
}

/* The left side is looked up before the right one is read: both may use the scanner's scratch. */
static pome_status find_side(merges_reader *m, pome_str piece, bool is_right, uint32_t *id)
{
    int32_t found = find_in_model(m->t, piece);
    if (found < 0)
        return not_in_vocab(m, piece);
    *id = (uint32_t)found;
    size_t skip = is_right && piece.len >= m->skip ? m->skip : 0;
    pome_strbuf_append(&m->joined, piece.ptr + skip, piece.len - skip);
    return m->joined.failed ? pome_fail_nomem(m->err, m->joined.len, "the merges") : POME_OK;
}

/* Vocabularies list what merges make in the order of the merges: mostly it is the piece after the last one. */
static int32_t find_result(const merges_reader *m, pome_str joined)
{
    const pome_bpe *bpe = &m->t->bpe;
    int32_t next = bpe->n_merges > 0 ? (int32_t)bpe->merges[bpe->n_merges - 1].result + 1 : -1;
    bool is_next = !m->t->vocab.has_twins && pome_vocab_has(&m->t->vocab, next) && !(m->t->vocab.flags[next] & POME_TOKEN_ADDED) &&
                   pome_str_eq(pome_vocab_piece(&m->t->vocab, next), joined);
    return is_next ? next : find_in_model(m->t, joined);
}

static pome_status add_merge(merges_reader *m, pome_bpe_merge merge)
{
    pome_bpe *bpe = &m->t->bpe;
    int32_t result = find_result(m, pome_strbuf_view(&m->joined));
    if (result < 0)
        return not_in_vocab(m, pome_strbuf_view(&m->joined));
    merge.result = (uint32_t)result;
    if (bpe->n_merges == m->cap) {
        m->cap = m->cap ? m->cap * 2 : 1024;
        pome_bpe_merge *merges = m->cap > MERGES_MAX ? NULL : realloc(bpe->merges, m->cap * sizeof *merges);
        if (!merges)
            return pome_fail_nomem(m->err, m->cap * sizeof *merges, "the merges");
        bpe->merges = merges;
    }
    bpe->merges[bpe->n_merges++] = merge;
    return POME_OK;
}

/* "left right", or ["left", "right"]. */
static pome_status scan_merge(merges_reader *m, pome_json_scan *s)
{
    pome_str text, left, right;
    pome_bpe_merge merge = {0};
    m->joined.len = 0;
    if (pome_json_scan_punctuation(s, '[')) {
        if (!pome_json_scan_string(s, &left))
            return not_json(m->err, "model merges", s);
        POME_TRY(find_side(m, left, false, &merge.left));
        if (!pome_json_scan_punctuation(s, ',') || !pome_json_scan_string(s, &right))
            return not_json(m->err, "model merges", s);
        POME_TRY(find_side(m, right, true, &merge.right));
        if (!pome_json_scan_punctuation(s, ']'))
            return not_json(m->err, "model merges", s);
        return add_merge(m, merge);
    }
    if (!pome_json_scan_string(s, &text))
        return not_json(m->err, "model merges", s);
    if (text.len >= 8 && memcmp(text.ptr, "#version", 8) == 0)
        return POME_OK;
    if (!cut_merge(text, &left, &right))
        return pome_fail(m->err, POME_ERR_FORMAT, "model merges[%zu]: \"%.*s\" is not two pieces", m->t->bpe.n_merges,
                         (int)(text.len < 60 ? text.len : 60), text.ptr);
    POME_TRY(find_side(m, left, false, &merge.left));
    POME_TRY(find_side(m, right, true, &merge.right));
    return add_merge(m, merge);
}

static pome_status scan_merges(merges_reader *m, pome_json_scan *s)
{
    if (!pome_json_scan_punctuation(s, '['))
        return not_json(m->err, "model merges", s);
    for (bool first = true; !pome_json_scan_punctuation(s, ']'); first = false) {
        if (!first && !pome_json_scan_punctuation(s, ','))
            return not_json(m->err, "model merges", s);
        POME_TRY(scan_merge(m, s));
    }
    return POME_OK;
}

static pome_status read_merges(pome_tokenizer *t, const reading *r, pome_error *err)
{
    merges_reader m = {.t = t, .skip = t->bpe.prefix ? strlen(t->bpe.prefix) : 0, .err = err};
    pome_json_scan s = {.text = r->merges};
    pome_status status = scan_merges(&m, &s);
    pome_strbuf_reset(&m.joined);
    pome_strbuf_reset(&s.scratch);
    POME_TRY(status);
    if (t->bpe.n_merges > 0) { /* what doubling took too much */
        pome_bpe_merge *merges = realloc(t->bpe.merges, t->bpe.n_merges * sizeof *merges);
        t->bpe.merges = merges ? merges : t->bpe.merges;
    }
    return pome_bpe_index(&t->bpe, err);
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
    const json_t *type = json_object_get(model, "type");
    if (type && json_is_string(type) && strcmp(json_string_value(type), "BPE") != 0)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "tokenizer model \"%.40s\" is not supported (BPE is)",
                         json_string_value(type));
    POME_TRY(pome_json_check_fields(model, "model BPE",
                                    "type dropout unk_token continuing_subword_prefix end_of_word_suffix fuse_unk "
                                    "byte_fallback ignore_merges vocab merges", err));
    const json_t *dropout = json_object_get(model, "dropout");
    if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "model BPE: dropout makes the result random, null is wanted");
    if (!r->vocab.ptr || !r->merges.ptr)
        return pome_fail(err, POME_ERR_FORMAT, "model BPE: %s", r->vocab.ptr ? "merges is not a list"
                                                                             : "vocab is not an object");
    POME_TRY(read_vocab(t, r, err));
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
    return read_merges(t, r, err);
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

/* The members of an object: calls `found` at each value, which consumes it. */
typedef bool member_fn(pome_json_scan *s, pome_str name, void *arg);

static bool walk_object(pome_json_scan *s, member_fn *found, void *arg)
{
    if (!pome_json_scan_punctuation(s, '{'))
        return false;
    for (bool first = true; !pome_json_scan_punctuation(s, '}'); first = false) {
        pome_str name;
        if ((!first && !pome_json_scan_punctuation(s, ',')) || !pome_json_scan_string(s, &name))
            return false;
        char copy[16] = ""; /* the names that matter are short */
        if (name.len < sizeof copy)
            memcpy(copy, name.ptr, name.len);
        if (!pome_json_scan_punctuation(s, ':') || !found(s, (pome_str){copy, strlen(copy)}, arg))
            return false;
    }
    return true;
}

static bool in_model(pome_json_scan *s, pome_str name, void *arg)
{
    reading *r = arg;
    pome_str *span = pome_str_is(name, "vocab") ? &r->vocab : pome_str_is(name, "merges") ? &r->merges : NULL;
    char opens = pome_json_scan_peek(s);
    size_t begin = s->pos;
    if (!pome_json_scan_skip(s))
        return false;
    if (!span || opens != (span == &r->vocab ? '{' : '['))
        return true;
    if (span->ptr) /* twice */
        return false;
    *span = (pome_str){s->text.ptr + begin, s->pos - begin};
    return true;
}

static bool in_root(pome_json_scan *s, pome_str name, void *arg)
{
    reading *r = arg;
    if (!pome_str_is(name, "model") || pome_json_scan_peek(s) != '{')
        return pome_json_scan_skip(s);
    if (r->has_model) /* twice */
        return false;
    r->has_model = true;
    return walk_object(s, in_model, arg);
}

/* Parses the file without the inside of model.vocab and model.merges, which are left to the scanner: a tree of them
 * would take most of the time and, for large vocabularies, over 100 MB. */
static pome_status parse_rest(json_t **out, pome_bytes bytes, reading *r, const char *source, pome_error *err)
{
    pome_json_scan s = {.text = {(const char *)bytes.ptr, bytes.len}};
    bool found = bytes.len > 0 && bytes.len <= FILE_BYTES_MAX && pome_utf8_is_valid(s.text.ptr, s.text.len) &&
                 walk_object(&s, in_root, r);
    bool has_memory = !s.scratch.failed;
    pome_strbuf_reset(&s.scratch);
    if (!has_memory)
        return pome_fail_nomem(err, bytes.len, source);
    if (!found) { /* it is no JSON, or two members have one name: the parser says what and where */
        POME_TRY(pome_json_parse(out, bytes, source, FILE_BYTES_MAX, err));
        json_decref(*out);
        return pome_fail(err, POME_ERR_FORMAT, "%s: a member appears twice, or the JSON is not an object", source);
    }
    pome_str cut[2] = {r->vocab, r->merges};
    if (cut[1].ptr && (!cut[0].ptr || cut[1].ptr < cut[0].ptr)) {
        cut[0] = r->merges;
        cut[1] = r->vocab;
    }
    pome_strbuf rest = {0};
    const char *from = s.text.ptr, *end = s.text.ptr + s.text.len;
    for (int i = 0; i < 2 && cut[i].ptr; i++) {
        pome_strbuf_append(&rest, from, (size_t)(cut[i].ptr - from) + 1);
        from = cut[i].ptr + cut[i].len - 1;
    }
    pome_strbuf_append(&rest, from, (size_t)(end - from));
    pome_status status = rest.failed ? pome_fail_nomem(err, bytes.len, "tokenizer.json")
                                     : pome_json_parse(out, (pome_bytes){(const uint8_t *)rest.data, rest.len}, source,
                                                       FILE_BYTES_MAX, err);
    pome_strbuf_reset(&rest);
    return status;
}

pome_status pome_tokenizer_read_json(pome_tokenizer *t, pome_bytes bytes, pome_error *err)
{
    json_t *root = NULL;
    reading r = {0};
    POME_TRY(parse_rest(&root, bytes, &r, t->source, err));
    r.arena = pome_arena_create(0);
    pome_status status = r.arena ? read_root(t, root, &r, err) : pome_fail_nomem(err, 0, "the vocabulary");
    if (status != POME_OK)
        status = pome_fail_prefix(err, status, "%s", t->source);
    free(r.pieces);
    free(r.tokens);
    pome_arena_destroy(&r.arena);
    json_decref(root);
    return status;
}
