/* The tokenizer's inside, for the readers that fill it and for those who use it. */
#ifndef POME_TEXT_TOKENIZER_H
#define POME_TEXT_TOKENIZER_H

#include "pome/tokenizer.h"

#include "base/arena.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/vocab.h"

#define POME_TOKENIZER_STEPS_MAX 32
#define POME_TOKENIZER_AFFIX_MAX 16

struct pome_tokenizer {
    pome_arena *arena; /* strings of the steps, the template, the path */
    const char *source;
    pome_vocab vocab;
    pome_bpe bpe;
    pome_added_tokens raw_tokens;        /* found in the text as given */
    pome_added_tokens normalized_tokens; /* found after normalization */
    pome_normalizer normalizers[POME_TOKENIZER_STEPS_MAX];
    size_t n_normalizers;
    pome_pretokenizer pretokenizers[POME_TOKENIZER_STEPS_MAX];
    size_t n_pretokenizers;
    pome_decoder decoder;
    int32_t prefix[POME_TOKENIZER_AFFIX_MAX], suffix[POME_TOKENIZER_AFFIX_MAX]; /* what add_special adds */
    size_t n_prefix, n_suffix;
    int32_t bos, eos, unk, pad; /* -1: none */
    pome_ids stop_ids;          /* see pome_tokenizer_eos */
    const char *chat_template;  /* NULL: none */
};

/* As pome_tokenizer_open, of the bytes of one file called `name` in messages; nothing beside it is read. */
pome_status pome_tokenizer_read(pome_tokenizer **out, pome_bytes bytes, const char *name, pome_error *err);

/* The readers fill a zeroed tokenizer that has its arena and source; on failure the caller closes it. */
pome_status pome_tokenizer_read_json(pome_tokenizer *t, pome_bytes bytes, pome_error *err);
pome_status pome_tokenizer_read_gguf(pome_tokenizer *t, pome_bytes bytes, pome_error *err);
/* What lies beside tokenizer.json: tokenizer_config.json, chat_template.jinja, generation_config.json. All optional. */
pome_status pome_tokenizer_read_config(pome_tokenizer *t, const char *folder, pome_error *err);
/* Completes stop_ids after everything is read. */
pome_status pome_tokenizer_find_stops(pome_tokenizer *t, pome_error *err);

/* Adds an id to stop_ids unless it is there or has no entry. */
void pome_tokenizer_add_stop(pome_tokenizer *t, int32_t id);

#endif
