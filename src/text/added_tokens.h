/* Tokens that are found in the text as they stand, before (or after) normalization and ahead of the model. */
#ifndef POME_TEXT_ADDED_TOKENS_H
#define POME_TEXT_ADDED_TOKENS_H

#include "text/pieces.h"

typedef struct pome_added_token {
    pome_str content; /* borrowed; for normalized tokens already normalized */
    int32_t id;
    bool special;
    bool single_word;    /* only between characters that are no word characters */
    bool lstrip, rstrip; /* takes the white space before, behind */
} pome_added_token;

typedef struct pome_added_tokens { /* zeroed: empty */
    pome_added_token *items;       /* sorted by content after pome_added_tokens_index */
    size_t n, cap;
    uint32_t first[257]; /* items[first[b]..first[b + 1]) begin with byte b */
} pome_added_tokens;

pome_status pome_added_tokens_add(pome_added_tokens *set, const pome_added_token *token, pome_error *err);
void pome_added_tokens_index(pome_added_tokens *set);
void pome_added_tokens_reset(pome_added_tokens *set);
/* Cuts every text piece of `in` at the tokens in it (leftmost, longest) into out, which is cleared first. Special
 * ones are passed over unless parse_special. */
void pome_added_tokens_split(const pome_added_tokens *set, bool parse_special, const pome_pieces *in,
                             pome_pieces *out);

#endif
