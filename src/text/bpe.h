/* Byte-pair encoding of one pre-token: by a ranked list of merges (tokenizer.json, GGUF "gpt2") or by the scores of
 * the pieces (SentencePiece, GGUF "llama"). O(n log n) in the length of the pre-token. */
#ifndef POME_TEXT_BPE_H
#define POME_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "text/vocab.h"

typedef struct pome_bpe_merge {
    uint32_t left, right, result; /* ids */
} pome_bpe_merge;

typedef struct pome_bpe {
    const pome_vocab *vocab;
    pome_bpe_merge *merges; /* [n_merges], the rank is the index */
    size_t n_merges;
    uint32_t *slots; /* hash table of rank + 1 by (left, right) */
    size_t n_slots;
    float *scores; /* [vocab->n], NULL: merges decide */
    bool ignore_merges, byte_fallback, fuse_unk;
    int32_t unk;              /* -1: characters that cannot be expressed are dropped */
    char *prefix, *suffix;    /* continuing_subword_prefix, end_of_word_suffix; NULL: none */
    int32_t byte_ids[256];    /* of "<0x00>" ...; -1: none */
} pome_bpe;

/* Fills the hash table; of equal pairs the last one counts. Takes nothing. */
pome_status pome_bpe_index(pome_bpe *bpe, pome_error *err);
void pome_bpe_reset(pome_bpe *bpe); /* frees merges, slots, scores, prefix, suffix */

typedef struct pome_ids { /* a growing list of ids; zeroed: empty */
    int32_t *data;
    size_t n, cap;
    bool failed;
} pome_ids;

void pome_ids_push(pome_ids *ids, int32_t id);
void pome_ids_reset(pome_ids *ids);

typedef struct pome_bpe_scratch pome_bpe_scratch;
pome_bpe_scratch *pome_bpe_scratch_create(void); /* NULL when memory is short */
void pome_bpe_scratch_destroy(pome_bpe_scratch **scratch);

/* Appends the ids of text[0..len), valid UTF-8. */
pome_status pome_bpe_encode(const pome_bpe *bpe, pome_bpe_scratch *scratch, const char *text, size_t len, pome_ids *out,
                            pome_error *err);

#endif
