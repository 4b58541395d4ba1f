#include "base/error.h"
#include "text/tokenizer.h"

pome_status pome_tokenizer_apply_chat_template(const pome_tokenizer *tokenizer, const pome_message *messages,
                                               size_t n_messages, bool add_generation_prompt, char **text, size_t *len,
                                               pome_error *err)
{
    (void)messages, (void)n_messages, (void)add_generation_prompt, (void)text, (void)len;
    return pome_fail(err, POME_ERR_UNSUPPORTED, "%s: chat templates are not supported yet", tokenizer->source);
}
