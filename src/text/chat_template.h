/* Chat templates with any context, for callers that have tools, documents or contents of several parts. */
#ifndef POME_TEXT_CHAT_TEMPLATE_H
#define POME_TEXT_CHAT_TEMPLATE_H

#include <jansson.h>

#include "pome/tokenizer.h"

/* Renders the tokenizer's template with the members of `context` (messages, tools, add_generation_prompt and what
 * the caller adds; borrowed). tools and documents that are missing are None, and the special tokens (bos_token,
 * eos_token, unk_token, pad_token) are added, as transformers does. *text is malloc'ed.
 * Errors: UNSUPPORTED without a template, otherwise as pome_jinja_render. */
pome_status pome_chat_template_render(const pome_tokenizer *tokenizer, const json_t *context, char **text, size_t *len,
                                      pome_error *err);

#endif
