#include "text/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "text/utf8.h"

#define ARENA_LIMIT_BYTES ((size_t)64 << 20)
#define TEXT_LEN_MAX ((size_t)1 << 30)

/* The folder of a file, or the folder itself; NULL when memory is short. */
static char *folder_of(const char *path)
{
    if (pome_path_is_dir(path))
        return strdup(path);
    const char *slash = strrchr(path, '/');
    if (!slash)
        return strdup(".");
    return strndup(path, slash == path ? 1 : (size_t)(slash - path));
}

/* folder NULL: nothing beside the file is read. */
static pome_status read_all(pome_tokenizer *t, pome_bytes bytes, const char *folder, pome_error *err)
{
    if (bytes.len >= 4 && memcmp(bytes.ptr, "GGUF", 4) == 0) {
        POME_TRY(pome_tokenizer_read_gguf(t, bytes, err));
    } else {
        POME_TRY(pome_tokenizer_read_json(t, bytes, err));
        if (folder)
            POME_TRY(pome_tokenizer_read_config(t, folder, err));
    }
    return pome_tokenizer_find_stops(t, err);
}

static pome_status create(pome_tokenizer **out, pome_bytes bytes, const char *name, const char *folder, pome_error *err)
{
    pome_tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return pome_fail_nomem(err, sizeof *t, "a tokenizer");
    t->bos = t->eos = t->unk = t->pad = -1;
    t->arena = pome_arena_create(ARENA_LIMIT_BYTES);
    if (t->arena)
        t->source = pome_arena_strndup(t->arena, name, strlen(name));
    pome_status status = t->source ? read_all(t, bytes, folder, err) : pome_fail_nomem(err, strlen(name), "a tokenizer");
    if (status != POME_OK)
        pome_tokenizer_close(&t);
    else
        *out = t;
    return status;
}

pome_status pome_tokenizer_read(pome_tokenizer **out, pome_bytes bytes, const char *name, pome_error *err)
{
    return create(out, bytes, name, NULL, err);
}

pome_status pome_tokenizer_open(pome_tokenizer **out, const char *path, pome_error *err)
{
    char *folder = folder_of(path);
    char *file = pome_path_is_dir(path) ? pome_path_join(path, "tokenizer.json") : strdup(path);
    pome_mapping *mapping = NULL;
    pome_status status = POME_OK;
    if (!folder || !file)
        status = pome_fail_nomem(err, strlen(path), "a path");
    else if (!pome_path_exists(file))
        status = pome_fail(err, POME_ERR_IO,
                           "%s: no such file (a tokenizer.json, a folder with one, or a GGUF file is wanted)", file);
    if (status == POME_OK)
        status = pome_mapping_open(&mapping, file, err);
    if (status == POME_OK)
        status = create(out, pome_mapping_bytes(mapping), file, folder, err);
    pome_mapping_release(&mapping);
    free(folder);
    free(file);
    return status;
}

void pome_tokenizer_close(pome_tokenizer **tokenizer)
{
    pome_tokenizer *t = *tokenizer;
    if (!t)
        return;
    for (size_t i = 0; i < t->n_normalizers; i++)
        pome_regex_destroy(&t->normalizers[i].regex);
    for (size_t i = 0; i < t->n_pretokenizers; i++)
        pome_regex_destroy(&t->pretokenizers[i].regex);
    pome_decoder_reset(&t->decoder);
    pome_added_tokens_reset(&t->raw_tokens);
    pome_added_tokens_reset(&t->normalized_tokens);
    pome_bpe_reset(&t->bpe);
    pome_vocab_reset(&t->vocab);
    pome_ids_reset(&t->stop_ids);
    pome_arena_destroy(&t->arena);
    free(t);
    *tokenizer = NULL;
}

int32_t pome_tokenizer_n_vocab(const pome_tokenizer *tokenizer)
{
    return (int32_t)tokenizer->vocab.n;
}

const char *pome_tokenizer_source(const pome_tokenizer *tokenizer)
{
    return tokenizer->source;
}

static pome_status encode_pieces(const pome_tokenizer *t, const pome_pieces *pieces, pome_ids *ids, pome_error *err)
{
    pome_bpe_scratch *scratch = pome_bpe_scratch_create();
    if (!scratch)
        return pome_fail_nomem(err, 0, "byte-pair encoding");
    pome_status status = POME_OK;
    for (size_t i = 0; i < pieces->n && status == POME_OK; i++) {
        const pome_piece *piece = &pieces->items[i];
        const char *text = pome_pieces_text(pieces, i);
        if (piece->id >= 0) {
            pome_ids_push(ids, piece->id);
        } else if (!piece->is_raw) {
            status = pome_bpe_encode(&t->bpe, scratch, text, piece->len, ids, err);
        } else {
            for (size_t k = 0; k < piece->len && status == POME_OK; k++) {
                int32_t id = t->bpe.byte_fallback ? t->bpe.byte_ids[(uint8_t)text[k]] : -1;
                if (id >= 0)
                    pome_ids_push(ids, id);
                else
                    status = pome_bpe_encode(&t->bpe, scratch, "\xef\xbf\xbd", 3, ids, err);
            }
        }
    }
    if (status == POME_OK && ids->failed)
        status = pome_fail_nomem(err, ids->cap, "token ids");
    pome_bpe_scratch_destroy(&scratch);
    return status;
}

static pome_status encode(const pome_tokenizer *t, pome_str text, bool parse_special, pome_pieces *a, pome_pieces *b,
                          pome_ids *ids, pome_error *err)
{
    pome_pieces_from_text(a, text.ptr, text.len);
    pome_added_tokens_split(&t->raw_tokens, parse_special, a, b);
    if (a->failed || b->failed)
        return pome_fail_nomem(err, text.len, "tokenization");
    if (t->n_normalizers > 0)
        POME_TRY(pome_normalize_pieces(t->normalizers, t->n_normalizers, b, a, err));
    pome_pieces *normalized = t->n_normalizers > 0 ? a : b, *other = t->n_normalizers > 0 ? b : a;
    pome_added_tokens_split(&t->normalized_tokens, parse_special, normalized, other);
    if (a->failed || b->failed)
        return pome_fail_nomem(err, text.len, "tokenization");
    POME_TRY(pome_pretokenize(t->pretokenizers, t->n_pretokenizers, other, normalized, err));
    return encode_pieces(t, other, ids, err);
}

pome_status pome_tokenizer_encode(const pome_tokenizer *tokenizer, const char *text, size_t len, bool add_special,
                                  bool parse_special, int32_t **ids, size_t *n_ids, pome_error *err)
{
    if (len > TEXT_LEN_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "text to encode has %zu bytes, at most %zu are allowed", len,
                         TEXT_LEN_MAX);
    pome_ids list = {0};
    pome_pieces a = {0}, b = {0};
    for (size_t i = 0; add_special && i < tokenizer->n_prefix; i++)
        pome_ids_push(&list, tokenizer->prefix[i]);
    pome_status status = encode(tokenizer, (pome_str){text, len}, parse_special, &a, &b, &list, err);
    for (size_t i = 0; add_special && i < tokenizer->n_suffix; i++)
        pome_ids_push(&list, tokenizer->suffix[i]);
    pome_pieces_reset(&a);
    pome_pieces_reset(&b);
    if (status == POME_OK && (list.failed || (!list.data && !(list.data = malloc(sizeof *list.data)))))
        status = pome_fail_nomem(err, list.cap * sizeof *list.data, "token ids");
    if (status != POME_OK) {
        pome_ids_reset(&list);
        return status;
    }
    *ids = list.data;
    *n_ids = list.n;
    return POME_OK;
}

pome_status pome_tokenizer_decode(const pome_tokenizer *tokenizer, const int32_t *ids, size_t n_ids, bool skip_special,
                                  char **text, size_t *len, pome_error *err)
{
    pome_decoder_state state = {0};
    pome_strbuf bytes = {0}, out = {0};
    pome_status status = POME_OK;
    for (size_t i = 0; i < n_ids && status == POME_OK; i++) {
        pome_str piece = pome_vocab_piece(&tokenizer->vocab, ids[i]);
        if (piece.ptr && !(skip_special && pome_tokenizer_is_special(tokenizer, ids[i])))
            status = pome_decoder_push(&tokenizer->decoder, &state, piece, &bytes, err);
    }
    pome_decoder_state_reset(&state);
    if (status == POME_OK) {
        pome_utf8_append_lossy(&out, bytes.data, bytes.len);
        size_t n;
        char *taken = pome_strbuf_take(&out, &n);
        if (taken) {
            *text = taken;
            *len = n;
        } else {
            status = pome_fail_nomem(err, bytes.len, "decoded text");
        }
    }
    pome_strbuf_reset(&bytes);
    pome_strbuf_reset(&out);
    return status;
}

const char *pome_tokenizer_piece(const pome_tokenizer *tokenizer, int32_t id)
{
    return pome_vocab_piece(&tokenizer->vocab, id).ptr;
}

int32_t pome_tokenizer_find(const pome_tokenizer *tokenizer, const char *piece)
{
    return pome_vocab_find(&tokenizer->vocab, pome_str_of(piece));
}

bool pome_tokenizer_is_special(const pome_tokenizer *tokenizer, int32_t id)
{
    return pome_vocab_has(&tokenizer->vocab, id) && (tokenizer->vocab.flags[id] & POME_TOKEN_SPECIAL);
}

const int32_t *pome_tokenizer_eos(const pome_tokenizer *tokenizer, size_t *n)
{
    *n = tokenizer->stop_ids.n;
    return tokenizer->stop_ids.data;
}

int32_t pome_tokenizer_bos(const pome_tokenizer *tokenizer)
{
    return tokenizer->bos;
}

bool pome_tokenizer_has_chat_template(const pome_tokenizer *tokenizer)
{
    return tokenizer->chat_template != NULL;
}

void pome_tokenizer_add_stop(pome_tokenizer *t, int32_t id)
{
    if (!pome_vocab_has(&t->vocab, id))
        return;
    for (size_t i = 0; i < t->stop_ids.n; i++)
        if (t->stop_ids.data[i] == id)
            return;
    pome_ids_push(&t->stop_ids, id);
}
