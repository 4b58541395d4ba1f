/* The parts of tokenizer.json, one reader each. The steps go into the tokenizer in the order they run. */
#ifndef POME_TEXT_TOKENIZER_JSON_H
#define POME_TEXT_TOKENIZER_JSON_H

#include "text/json_fields.h"
#include "text/tokenizer.h"

pome_status pome_json_normalizer(pome_tokenizer *t, const json_t *node, int depth, pome_error *err);
pome_status pome_json_pretokenizer(pome_tokenizer *t, const json_t *node, int depth, pome_error *err);
pome_status pome_json_post_processor(pome_tokenizer *t, const json_t *node, int depth, pome_error *err);
pome_status pome_json_decoder(pome_tokenizer *t, const json_t *node, int depth, pome_error *err);

/* A new step at the end, zeroed; LIMIT when there are too many. Also for readers of other files. */
pome_status pome_tokenizer_add_normalizer(pome_tokenizer *t, pome_normalizer **out, pome_error *err);
pome_status pome_tokenizer_add_pretokenizer(pome_tokenizer *t, pome_pretokenizer **out, pome_error *err);
pome_status pome_tokenizer_add_decoder(pome_tokenizer *t, pome_decoder_step **out, pome_error *err);
/* A copy in the tokenizer's arena. */
pome_status pome_tokenizer_keep(pome_tokenizer *t, pome_str s, pome_str *out, pome_error *err);

#endif
