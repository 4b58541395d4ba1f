/* Normalizers of tokenizer.json: text in, text out. */
#ifndef POME_TEXT_NORMALIZER_H
#define POME_TEXT_NORMALIZER_H

#include "text/pieces.h"
#include "text/regex.h"

typedef enum pome_normalizer_kind {
    POME_NORMALIZE_NFC,
    POME_NORMALIZE_NFD,
    POME_NORMALIZE_NFKC,
    POME_NORMALIZE_NFKD,
    POME_NORMALIZE_PREPEND,
    POME_NORMALIZE_REPLACE,
    POME_NORMALIZE_LOWERCASE,
    POME_NORMALIZE_STRIP,
    POME_NORMALIZE_STRIP_ACCENTS,
    POME_NORMALIZE_BYTE_LEVEL
} pome_normalizer_kind;

typedef struct pome_normalizer {
    pome_normalizer_kind kind;
    pome_str content;  /* PREPEND, REPLACE; arena */
    pome_regex *regex; /* REPLACE; owned */
    bool left, right;  /* STRIP */
} pome_normalizer;

/* Runs the steps over every text piece of `in` into `out` (cleared first); `in` is overwritten as scratch. */
pome_status pome_normalize_pieces(const pome_normalizer *steps, size_t n_steps, pome_pieces *in, pome_pieces *out,
                                  pome_error *err);
/* One text through all steps, appended to out (for the contents of added tokens). */
pome_status pome_normalize_text(const pome_normalizer *steps, size_t n_steps, pome_str text, pome_strbuf *out,
                                pome_error *err);

/* The byte-level alphabet of GPT-2: a printable character for every byte. */
uint32_t pome_byte_level_char(uint8_t byte);
int pome_byte_level_byte(uint32_t cp); /* -1: not of the alphabet */
void pome_byte_level_append(pome_strbuf *out, const char *bytes, size_t len);

#endif
