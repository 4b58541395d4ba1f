/* Decoders of tokenizer.json as a pipeline that takes token after token, so that a stream and a whole text go the
 * same way. Its output is bytes; making valid UTF-8 of them is left to the caller, at the very end. */
#ifndef POME_TEXT_DECODER_H
#define POME_TEXT_DECODER_H

#include "text/regex.h"
#include "text/strbuf.h"

#define POME_DECODER_STEPS_MAX 16

typedef enum pome_decoder_kind {
    POME_DECODE_BYTE_LEVEL,    /* characters of the byte-level alphabet to bytes; fuses */
    POME_DECODE_BYTE_FALLBACK, /* <0x41> to a byte */
    POME_DECODE_REPLACE,
    POME_DECODE_STRIP,
    POME_DECODE_METASPACE,
    POME_DECODE_FUSE /* the steps behind see one long token */
} pome_decoder_kind;

typedef struct pome_decoder_step {
    pome_decoder_kind kind;
    pome_regex *regex;  /* REPLACE; owned */
    pome_str content;   /* REPLACE: what is put; STRIP: the character; METASPACE: the replacement; arena */
    size_t start, stop; /* STRIP: how many at most */
    bool drops_first;   /* METASPACE: the first token loses its replacement characters */
    bool is_fused;      /* set by pome_decoder_check */
} pome_decoder_step;

typedef struct pome_decoder {
    pome_decoder_step steps[POME_DECODER_STEPS_MAX];
    size_t n;
    bool joins_with_space; /* there is no decoder at all: tokens are joined by spaces */
} pome_decoder;

/* Marks the fused steps; UNSUPPORTED for a step that cannot follow a fusing one. */
pome_status pome_decoder_check(pome_decoder *decoder, pome_error *err);
void pome_decoder_reset(pome_decoder *decoder);

typedef struct pome_decoder_state { /* zeroed: at the start of a text */
    size_t n_tokens;
    size_t n_stripped[POME_DECODER_STEPS_MAX]; /* fused STRIP: at the start; SIZE_MAX once over */
    size_t n_held[POME_DECODER_STEPS_MAX];     /* fused STRIP: characters that may be the end */
    pome_strbuf a, b;
} pome_decoder_state;

void pome_decoder_state_reset(pome_decoder_state *state);
/* Appends the bytes that `token` gives to out. At the end of a text nothing more comes. */
pome_status pome_decoder_push(const pome_decoder *decoder, pome_decoder_state *state, pome_str token, pome_strbuf *out,
                              pome_error *err);

#endif
