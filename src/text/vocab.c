#include "text/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/error.h"

uint32_t pome_text_hash(const char *s, size_t len) /* FNV-1a with a final mix */
{
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < len; i++)
        h = (h ^ (uint8_t)s[i]) * 16777619u;
    h ^= h >> 15;
    h *= 0x2c1b3c6du;
    return h ^ h >> 13;
}

/* Comparing hashes first spares most looks at other pieces' text, each of which would miss the caches. */
static bool is_piece(const pome_vocab *v, struct pome_vocab_slot slot, uint32_t hash, pome_str piece)
{
    return slot.hash == hash && pome_str_eq(pome_vocab_piece(v, (int32_t)slot.id - 1), piece);
}

static void insert(pome_vocab *v, uint32_t id)
{
    pome_str piece = pome_vocab_piece(v, (int32_t)id);
    uint32_t hash = pome_text_hash(piece.ptr, piece.len);
    size_t mask = v->n_slots - 1, i = hash & mask;
    while (v->slots[i].id && !is_piece(v, v->slots[i], hash, piece))
        i = (i + 1) & mask;
    v->has_twins |= v->slots[i].id != 0;
    v->slots[i] = (struct pome_vocab_slot){hash, id + 1};
}

pome_status pome_vocab_init(pome_vocab *vocab, const pome_str *pieces, size_t n, pome_error *err)
{
    if (n > POME_VOCAB_IDS_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "vocabulary has ids up to %zu, at most %d are allowed", n - 1,
                         POME_VOCAB_IDS_MAX - 1);
    size_t size = 0;
    for (size_t i = 0; i < n; i++)
        if (pieces[i].ptr && !pome_add_size(size, pieces[i].len + 1, &size))
            size = SIZE_MAX;
    if (size > UINT32_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "vocabulary's text is larger than 4 GiB");
    pome_vocab v = {.n = n, .n_slots = 16};
    while (v.n_slots < n + n / 2)
        v.n_slots *= 2;
    v.text = malloc(size ? size : 1);
    v.offset = malloc((n + 1) * sizeof *v.offset);
    v.flags = calloc(n ? n : 1, 1);
    v.slots = calloc(v.n_slots, sizeof *v.slots);
    if (!v.text || !v.offset || !v.flags || !v.slots) {
        pome_vocab_reset(&v);
        return pome_fail_nomem(err, size, "the vocabulary");
    }
    uint32_t at = 0;
    for (size_t i = 0; i < n; i++) {
        v.offset[i] = at;
        if (!pieces[i].ptr)
            continue;
        memcpy(v.text + at, pieces[i].ptr, pieces[i].len);
        v.text[at + pieces[i].len] = '\0';
        at += (uint32_t)pieces[i].len + 1;
        v.flags[i] = POME_TOKEN_PRESENT;
    }
    v.offset[n] = at;
    for (size_t i = 0; i < n; i++)
        if (v.flags[i])
            insert(&v, (uint32_t)i);
    *vocab = v;
    return POME_OK;
}

void pome_vocab_reset(pome_vocab *vocab)
{
    free(vocab->text);
    free(vocab->offset);
    free(vocab->flags);
    free(vocab->slots);
    *vocab = (pome_vocab){0};
}

int32_t pome_vocab_find(const pome_vocab *vocab, pome_str piece)
{
    if (vocab->n_slots == 0)
        return -1;
    uint32_t hash = pome_text_hash(piece.ptr, piece.len);
    size_t mask = vocab->n_slots - 1;
    for (size_t i = hash & mask; vocab->slots[i].id; i = (i + 1) & mask)
        if (is_piece(vocab, vocab->slots[i], hash, piece))
            return (int32_t)vocab->slots[i].id - 1;
    return -1;
}

pome_str pome_vocab_piece(const pome_vocab *vocab, int32_t id)
{
    if (!pome_vocab_has(vocab, id))
        return (pome_str){NULL, 0};
    return (pome_str){vocab->text + vocab->offset[id], vocab->offset[id + 1] - vocab->offset[id] - 1};
}
