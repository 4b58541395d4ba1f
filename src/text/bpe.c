/* A pre-token starts as a linked list of characters. A heap holds every adjacent pair that can be merged, the best
 * rank first and the leftmost of equal ones; a merge removes its right symbol and adds the two new pairs. Entries
 * that an earlier merge made stale are recognized when they come up: the pair at that place no longer gives the
 * same result. */
#include "text/bpe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/f16.h"
#include "text/strbuf.h"
#include "text/utf8.h"

#define NONE UINT32_MAX

typedef struct symbol {
    uint32_t begin, len; /* bytes of the pre-token; len 0: merged away */
    uint32_t prev, next; /* NONE: end of the list */
    int32_t id;          /* -1: not in the vocabulary (only with scores) */
} symbol;

typedef struct candidate {
    uint32_t rank, pos, result;
} candidate;

struct pome_bpe_scratch {
    symbol *symbols;
    size_t n_symbols, cap_symbols;
    candidate *heap;
    size_t n_heap, cap_heap;
    bool failed;
};

void pome_ids_push(pome_ids *ids, int32_t id)
{
    if (ids->n == ids->cap && !ids->failed) {
        size_t cap = ids->cap ? ids->cap * 2 : 64;
        int32_t *data = realloc(ids->data, cap * sizeof *data);
        if (data) {
            ids->data = data;
            ids->cap = cap;
        } else {
            ids->failed = true;
        }
    }
    if (!ids->failed)
        ids->data[ids->n++] = id;
}

void pome_ids_reset(pome_ids *ids)
{
    free(ids->data);
    *ids = (pome_ids){0};
}

pome_bpe_scratch *pome_bpe_scratch_create(void)
{
    return calloc(1, sizeof(pome_bpe_scratch));
}

void pome_bpe_scratch_destroy(pome_bpe_scratch **scratch)
{
    if (!*scratch)
        return;
    free((*scratch)->symbols);
    free((*scratch)->heap);
    free(*scratch);
    *scratch = NULL;
}

static size_t pair_hash(uint32_t left, uint32_t right)
{
    uint64_t h = ((uint64_t)left << 32 | right) * 0x9e3779b97f4a7c15u;
    return (size_t)(h >> 32 ^ h >> 15);
}

pome_status pome_bpe_index(pome_bpe *bpe, pome_error *err)
{
    bpe->n_slots = 16;
    while (bpe->n_slots < bpe->n_merges + bpe->n_merges / 2)
        bpe->n_slots *= 2;
    bpe->slots = calloc(bpe->n_slots, sizeof *bpe->slots);
    if (!bpe->slots)
        return pome_fail_nomem(err, bpe->n_slots * sizeof *bpe->slots, "the merges");
    size_t mask = bpe->n_slots - 1;
    for (size_t rank = 0; rank < bpe->n_merges; rank++) {
        const pome_bpe_merge *m = &bpe->merges[rank];
        size_t i = pair_hash(m->left, m->right) & mask;
        while (bpe->slots[i]) {
            const pome_bpe_merge *other = &bpe->merges[bpe->slots[i] - 1];
            if (other->left == m->left && other->right == m->right)
                break;
            i = (i + 1) & mask;
        }
        bpe->slots[i] = (uint32_t)rank + 1;
    }
    return POME_OK;
}

void pome_bpe_reset(pome_bpe *bpe)
{
    free(bpe->merges);
    free(bpe->slots);
    free(bpe->scores);
    free(bpe->prefix);
    free(bpe->suffix);
    *bpe = (pome_bpe){0};
}

/* The higher score is the lower rank. */
static uint32_t score_rank(float score)
{
    uint32_t bits = pome_f32_bits(score);
    uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return ~ascending;
}

/* Added tokens that are not the model's own are out of its reach. */
static int32_t find_piece(const pome_bpe *bpe, const char *text, size_t len)
{
    int32_t id = pome_vocab_find(bpe->vocab, (pome_str){text, len});
    return id >= 0 && (bpe->vocab->flags[id] & POME_TOKEN_ADDED) ? -1 : id;
}

static bool find_merge(const pome_bpe *bpe, const char *text, const symbol *left, const symbol *right,
                       candidate *found)
{
    if (bpe->scores) {
        int32_t id = find_piece(bpe, text + left->begin, left->len + right->len);
        if (id < 0)
            return false;
        found->rank = score_rank(bpe->scores[id]);
        found->result = (uint32_t)id;
        return true;
    }
    size_t mask = bpe->n_slots - 1;
    for (size_t i = pair_hash((uint32_t)left->id, (uint32_t)right->id) & mask; bpe->slots[i]; i = (i + 1) & mask) {
        const pome_bpe_merge *m = &bpe->merges[bpe->slots[i] - 1];
        if (m->left == (uint32_t)left->id && m->right == (uint32_t)right->id) {
            found->rank = bpe->slots[i] - 1;
            found->result = m->result;
            return true;
        }
    }
    return false;
}

static bool before(const candidate *a, const candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->pos < b->pos;
}

static void heap_push(pome_bpe_scratch *s, candidate c)
{
    if (s->n_heap == s->cap_heap) {
        size_t cap = s->cap_heap ? s->cap_heap * 2 : 64;
        candidate *heap = realloc(s->heap, cap * sizeof *heap);
        if (!heap) {
            s->failed = true;
            return;
        }
        s->heap = heap;
        s->cap_heap = cap;
    }
    size_t i = s->n_heap++;
    for (; i > 0 && before(&c, &s->heap[(i - 1) / 2]); i = (i - 1) / 2)
        s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = c;
}

static candidate heap_pop(pome_bpe_scratch *s)
{
    candidate top = s->heap[0], last = s->heap[--s->n_heap];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= s->n_heap)
            break;
        if (child + 1 < s->n_heap && before(&s->heap[child + 1], &s->heap[child]))
            child++;
        if (!before(&s->heap[child], &last))
            break;
        s->heap[i] = s->heap[child];
        i = child;
    }
    s->heap[i] = last;
    return top;
}

static void push_pair(const pome_bpe *bpe, pome_bpe_scratch *s, const char *text, uint32_t left)
{
    candidate c;
    if (left == NONE || s->symbols[left].next == NONE)
        return;
    if (find_merge(bpe, text, &s->symbols[left], &s->symbols[s->symbols[left].next], &c)) {
        c.pos = left;
        heap_push(s, c);
    }
}

static void add_symbol(pome_bpe_scratch *s, size_t begin, size_t len, int32_t id)
{
    if (s->n_symbols == s->cap_symbols && !s->failed) {
        size_t cap = s->cap_symbols ? s->cap_symbols * 2 : 64;
        symbol *symbols = realloc(s->symbols, cap * sizeof *symbols);
        if (symbols) {
            s->symbols = symbols;
            s->cap_symbols = cap;
        } else {
            s->failed = true;
        }
    }
    if (s->failed)
        return;
    uint32_t i = (uint32_t)s->n_symbols++;
    s->symbols[i] = (symbol){(uint32_t)begin, (uint32_t)len, i ? i - 1 : NONE, NONE, id};
    if (i)
        s->symbols[i - 1].next = i;
}

static bool add_bytes(const pome_bpe *bpe, pome_bpe_scratch *s, const char *text, size_t begin, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (bpe->byte_ids[(uint8_t)text[begin + i]] < 0)
            return false;
    for (size_t i = 0; i < len; i++)
        add_symbol(s, begin + i, 1, bpe->byte_ids[(uint8_t)text[begin + i]]);
    return true;
}

/* The vocabulary's id of one character, with the affixes its place asks for. */
static int32_t character_id(const pome_bpe *bpe, const char *text, size_t begin, size_t n, size_t len)
{
    const char *prefix = begin > 0 ? bpe->prefix : NULL, *suffix = begin + n == len ? bpe->suffix : NULL;
    if (!prefix && !suffix)
        return find_piece(bpe, text + begin, n);
    char buffer[256];
    int total = snprintf(buffer, sizeof buffer, "%s%.*s%s", prefix ? prefix : "", (int)n, text + begin,
                         suffix ? suffix : "");
    if (total < 0 || (size_t)total >= sizeof buffer)
        return -1;
    return find_piece(bpe, buffer, (size_t)total);
}

/* Characters outside the vocabulary become their bytes where all of them have entries, else the unknown token
 * (a run of them only one, if fused), else nothing. The unknown token waits until the next known character, and
 * bytes do not end its wait: so do the Hugging Face tokenizers. */
static void split_characters(const pome_bpe *bpe, pome_bpe_scratch *s, const char *text, size_t len)
{
    size_t unk_begin = 0, unk_len = 0;
    for (size_t i = 0, n; i < len && !s->failed; i += n) {
        n = pome_utf8_len(text[i]);
        if (n > len - i)
            n = len - i;
        int32_t id = character_id(bpe, text, i, n, len);
        if (bpe->scores) {
            add_symbol(s, i, n, id);
            continue;
        }
        if (id >= 0) {
            if (unk_len)
                add_symbol(s, unk_begin, unk_len, bpe->unk);
            unk_len = 0;
            add_symbol(s, i, n, id);
            continue;
        }
        if (bpe->byte_fallback && add_bytes(bpe, s, text, i, n))
            continue;
        if (bpe->unk < 0)
            continue;
        if (unk_len && !bpe->fuse_unk)
            add_symbol(s, unk_begin, unk_len, bpe->unk);
        if (unk_len && bpe->fuse_unk) {
            unk_len += n;
        } else {
            unk_begin = i;
            unk_len = n;
        }
    }
    if (unk_len)
        add_symbol(s, unk_begin, unk_len, bpe->unk);
}

static void merge(const pome_bpe *bpe, pome_bpe_scratch *s, const char *text)
{
    for (uint32_t i = 0; i + 1 < s->n_symbols; i++)
        push_pair(bpe, s, text, i);
    while (s->n_heap > 0 && !s->failed) {
        candidate top = heap_pop(s), now;
        symbol *left = &s->symbols[top.pos];
        if (left->len == 0 || left->next == NONE)
            continue;
        symbol *right = &s->symbols[left->next];
        if (!find_merge(bpe, text, left, right, &now) || now.result != top.result)
            continue;
        left->len += right->len;
        left->id = (int32_t)top.result;
        left->next = right->next;
        right->len = 0;
        if (left->next != NONE)
            s->symbols[left->next].prev = top.pos;
        push_pair(bpe, s, text, left->prev);
        push_pair(bpe, s, text, top.pos);
    }
}

/* A character that is no piece: its bytes if all of them are, else one unknown token. */
static void emit_unknown(const pome_bpe *bpe, const char *text, const symbol *sym, pome_ids *out)
{
    for (uint32_t k = 0; k < sym->len; k++) {
        if (bpe->byte_ids[(uint8_t)text[sym->begin + k]] >= 0)
            continue;
        if (bpe->unk >= 0)
            pome_ids_push(out, bpe->unk);
        return;
    }
    for (uint32_t k = 0; k < sym->len; k++)
        pome_ids_push(out, bpe->byte_ids[(uint8_t)text[sym->begin + k]]);
}

pome_status pome_bpe_encode(const pome_bpe *bpe, pome_bpe_scratch *s, const char *text, size_t len, pome_ids *out,
                            pome_error *err)
{
    if (len == 0)
        return POME_OK;
    if (len >= INT32_MAX)
        return pome_fail(err, POME_ERR_LIMIT, "text to encode has %zu bytes, at most %d are allowed", len,
                         INT32_MAX - 1);
    if (bpe->ignore_merges) {
        int32_t id = find_piece(bpe, text, len);
        if (id >= 0) {
            pome_ids_push(out, id);
            return out->failed ? pome_fail_nomem(err, out->cap, "token ids") : POME_OK;
        }
    }
    s->n_symbols = s->n_heap = 0;
    s->failed = false;
    split_characters(bpe, s, text, len);
    if (!s->failed)
        merge(bpe, s, text);
    if (s->failed)
        return pome_fail_nomem(err, len, "byte-pair encoding");
    for (uint32_t i = 0; s->n_symbols > 0 && i != NONE; i = s->symbols[i].next) {
        if (s->symbols[i].id >= 0)
            pome_ids_push(out, s->symbols[i].id);
        else
            emit_unknown(bpe, text, &s->symbols[i], out);
    }
    return out->failed ? pome_fail_nomem(err, out->cap, "token ids") : POME_OK;
}
