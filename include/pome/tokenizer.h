/* Text to token ids and back, as the model's own tokenizer does it, and chat templates. */
#ifndef POME_TOKENIZER_H
#define POME_TOKENIZER_H

#include "pome/status.h"

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct pome_tokenizer pome_tokenizer; /* immutable once open: may be shared by threads */

/* Opens a folder with tokenizer.json (and tokenizer_config.json, chat_template.jinja,
 * generation_config.json beside it), a tokenizer.json, or a GGUF file with an embedded vocabulary. */
POME_API POME_NODISCARD pome_status pome_tokenizer_open(pome_tokenizer **out, const char *path, pome_error *err);
POME_API void pome_tokenizer_close(pome_tokenizer **tokenizer);

POME_API int32_t pome_tokenizer_n_vocab(const pome_tokenizer *tokenizer);
POME_API const char *pome_tokenizer_source(const pome_tokenizer *tokenizer); /* the file it came from */

/* Encodes text[0..len). add_special: also what the tokenizer's post-processor adds (BOS, ...).
 * Names of special tokens in the text become their ids if parse_special is true.
 * Text of a chat template wants add_special false, as it brings its own BOS, and parse_special true.
 * *ids is malloc'ed, the caller frees it. Text need not be valid UTF-8 (bytes are kept if the
 * tokenizer can express them). Errors: LIMIT (over 1 GiB, or a pattern that takes too long on this text). */
POME_API POME_NODISCARD pome_status pome_tokenizer_encode(const pome_tokenizer *tokenizer, const char *text,
                                                          size_t len, bool add_special, bool parse_special,
                                                          int32_t **ids, size_t *n_ids, pome_error *err);
/* Decodes ids to a malloc'ed, NUL-terminated string of *len bytes. Ids without an entry give nothing; each maximal
 * part that is not UTF-8 becomes one U+FFFD. */
POME_API POME_NODISCARD pome_status pome_tokenizer_decode(const pome_tokenizer *tokenizer, const int32_t *ids,
                                                          size_t n_ids, bool skip_special, char **text, size_t *len,
                                                          pome_error *err);
/* The vocabulary's own spelling of one id ("Ġhello"), or NULL for an id without an entry. */
POME_API const char *pome_tokenizer_piece(const pome_tokenizer *tokenizer, int32_t id);
POME_API int32_t pome_tokenizer_find(const pome_tokenizer *tokenizer, const char *piece); /* -1: none */
POME_API bool pome_tokenizer_is_special(const pome_tokenizer *tokenizer, int32_t id);
/* The ids that end a generation: generation_config's list, the tokenizer's eos, the end of turn. */
POME_API const int32_t *pome_tokenizer_eos(const pome_tokenizer *tokenizer, size_t *n);
POME_API int32_t pome_tokenizer_bos(const pome_tokenizer *tokenizer); /* -1: none */

/* Decoding a stream of ids: gives out complete UTF-8 characters only and holds the rest back. */
typedef struct pome_text_stream pome_text_stream;
POME_API POME_NODISCARD pome_status pome_text_stream_create(pome_text_stream **out, const pome_tokenizer *tokenizer,
                                                            bool skip_special, pome_error *err);
POME_API void pome_text_stream_destroy(pome_text_stream **stream);
/* *text is valid until the next call; may be empty. */
POME_API POME_NODISCARD pome_status pome_text_stream_push(pome_text_stream *stream, int32_t id, const char **text,
                                                          size_t *len, pome_error *err);
/* What was held back, invalid bytes replaced; resets the stream. */
POME_API POME_NODISCARD pome_status pome_text_stream_finish(pome_text_stream *stream, const char **text, size_t *len,
                                                            pome_error *err);

typedef struct pome_message {
    const char *role;    /* "system", "user", "assistant", ... */
    const char *content; /* UTF-8 */
} pome_message;

POME_API bool pome_tokenizer_has_chat_template(const pome_tokenizer *tokenizer);
/* Renders the chat template. *text is malloc'ed. Errors: UNSUPPORTED (no template, or a construct that is
 * not known, with line), ARG (the template itself raised: its message). */
POME_API POME_NODISCARD pome_status pome_tokenizer_apply_chat_template(const pome_tokenizer *tokenizer,
                                                                       const pome_message *messages, size_t n_messages,
                                                                       bool add_generation_prompt, char **text,
                                                                       size_t *len, pome_error *err);

#ifdef __cplusplus
}
#endif
#endif
