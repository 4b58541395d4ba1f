/* Pre-tokenizers of tokenizer.json: each cuts the pieces further, some also rewrite them. */
#ifndef POME_TEXT_PRETOKENIZER_H
#define POME_TEXT_PRETOKENIZER_H

#include "text/pieces.h"
#include "text/regex.h"

typedef enum pome_split_behavior {
    POME_SPLIT_ISOLATED, /* the match is a piece of its own */
    POME_SPLIT_REMOVED,
    POME_SPLIT_MERGED_WITH_PREVIOUS,
    POME_SPLIT_MERGED_WITH_NEXT,
    POME_SPLIT_CONTIGUOUS /* neighbouring matches are one piece */
} pome_split_behavior;

typedef enum pome_pretokenizer_kind {
    POME_PRETOKENIZE_REGEX,      /* Split, and what comes down to it */
    POME_PRETOKENIZE_CHARACTERS, /* cut at characters of a class */
    POME_PRETOKENIZE_BYTE_LEVEL, /* optional space in front, bytes to the byte-level alphabet */
    POME_PRETOKENIZE_METASPACE   /* spaces to the replacement, optionally one in front */
} pome_pretokenizer_kind;

typedef enum pome_metaspace_prepend {
    POME_PREPEND_ALWAYS,
    POME_PREPEND_FIRST, /* only at the start of the text */
    POME_PREPEND_NEVER,
    POME_PREPEND_EXTRA /* even where the text has one already (GGUF) */
} pome_metaspace_prepend;

typedef struct pome_pretokenizer {
    pome_pretokenizer_kind kind;
    pome_regex *regex; /* REGEX, BYTE_LEVEL with use_regex; owned */
    bool invert;       /* REGEX: what does not match is the delimiter */
    pome_split_behavior behavior;
    bool (*is_delimiter)(uint32_t cp); /* CHARACTERS */
    bool add_prefix_space;             /* BYTE_LEVEL */
    bool split;                        /* METASPACE: cut before each replacement */
    pome_metaspace_prepend prepend;
    char replacement[5]; /* METASPACE, CHARACTERS without is_delimiter: one character, NUL-terminated */
} pome_pretokenizer;

/* The pattern of the ByteLevel pre-tokenizer (GPT-2's). */
extern const char pome_gpt2_pattern[];

/* Runs the steps over the pieces of a, in turn with b; the result is in a. */
pome_status pome_pretokenize(const pome_pretokenizer *steps, size_t n_steps, pome_pieces *a, pome_pieces *b,
                             pome_error *err);

#endif
