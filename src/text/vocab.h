/* The vocabulary: ids to pieces and back. Built once, then immutable. */
#ifndef POME_TEXT_VOCAB_H
#define POME_TEXT_VOCAB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/span.h"
#include "pome/status.h"

#define POME_VOCAB_IDS_MAX (1 << 22)

enum {
    POME_TOKEN_PRESENT = 1, /* the id has an entry */
    POME_TOKEN_SPECIAL = 2, /* left out when special tokens are skipped */
    POME_TOKEN_ADDED = 4    /* an added token that the model itself does not know */
};

typedef struct pome_vocab { /* zeroed: empty */
    char *text;             /* all pieces, each followed by a NUL */
    uint32_t *offset;       /* [n + 1] into text; a piece's length is the difference minus 1 */
    uint8_t *flags;         /* [n] */
    size_t n;
    struct pome_vocab_slot {
        uint32_t hash, id; /* id + 1; 0: free */
    } *slots;              /* hash table */
    size_t n_slots;        /* a power of two */
    bool has_twins;        /* equal pieces */
} pome_vocab;

/* pieces[n]: views, copied; ptr NULL is an id without an entry. Equal pieces: the last id is found.
 * LIMIT for more than POME_VOCAB_IDS_MAX ids. */
pome_status pome_vocab_init(pome_vocab *vocab, const pome_str *pieces, size_t n, pome_error *err);
void pome_vocab_reset(pome_vocab *vocab);
int32_t pome_vocab_find(const pome_vocab *vocab, pome_str piece); /* -1: none */
/* Valid as long as the vocabulary; ptr NULL if the id has no entry. */
pome_str pome_vocab_piece(const pome_vocab *vocab, int32_t id);

static inline bool pome_vocab_has(const pome_vocab *vocab, int32_t id)
{
    return id >= 0 && (size_t)id < vocab->n && (vocab->flags[id] & POME_TOKEN_PRESENT);
}

uint32_t pome_text_hash(const char *s, size_t len);

#endif
