#include "text/chat_template.h"

#include <string.h>

#include "base/error.h"
#include "text/jinja.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

/* False when memory is short. */
static bool add_token(const pome_tokenizer *t, json_t *context, const char *name, int32_t id)
{
    pome_str piece = pome_vocab_piece(&t->vocab, id);
    if (!piece.ptr || json_object_get(context, name))
        return true;
    return json_object_set_new(context, name, json_stringn(piece.ptr, piece.len)) == 0;
}

static bool complete(const pome_tokenizer *t, json_t *context)
{
    bool ok = add_token(t, context, "bos_token", t->bos) && add_token(t, context, "eos_token", t->eos) &&
              add_token(t, context, "unk_token", t->unk) && add_token(t, context, "pad_token", t->pad);
    if (ok && !json_object_get(context, "tools"))
        ok = json_object_set_new(context, "tools", json_null()) == 0;
    if (ok && !json_object_get(context, "documents"))
        ok = json_object_set_new(context, "documents", json_null()) == 0;
    return ok;
}

pome_status pome_chat_template_render(const pome_tokenizer *tokenizer, const json_t *context, char **text, size_t *len,
                                      pome_error *err)
{
    if (!tokenizer->chat_template)
        return pome_fail(err, POME_ERR_UNSUPPORTED, "%s: no chat template", tokenizer->source);
    json_t *whole = json_copy((json_t *)context);
    pome_jinja *jinja = NULL;
    pome_status status = POME_OK;
    if (!whole || !complete(tokenizer, whole))
        status = pome_fail_nomem(err, 0, "a chat template's context");
    if (status == POME_OK)
        status = pome_jinja_compile(&jinja, tokenizer->chat_template, strlen(tokenizer->chat_template), err);
    if (status == POME_OK)
        status = pome_jinja_render(jinja, whole, NULL, text, len, err);
    if (status != POME_OK && status != POME_ERR_NOMEM)
        status = pome_fail_prefix(err, status, "chat template");
    pome_jinja_destroy(&jinja);
    json_decref(whole);
    return status;
}

/* Bytes that are not UTF-8 become U+FFFD: jansson takes no others. */
static json_t *text_value(const char *s)
{
    pome_strbuf b = {0};
    pome_utf8_append_lossy(&b, s, strlen(s));
    json_t *value = b.failed ? NULL : json_stringn(b.data ? b.data : "", b.len);
    pome_strbuf_reset(&b);
    return value;
}

static json_t *message_value(const pome_message *m)
{
    json_t *value = json_object();
    if (value && (json_object_set_new(value, "role", text_value(m->role ? m->role : "")) != 0 ||
                  json_object_set_new(value, "content", text_value(m->content ? m->content : "")) != 0)) {
        json_decref(value);
        return NULL;
    }
    return value;
}

static json_t *context_value(const pome_message *messages, size_t n_messages, bool add_generation_prompt)
{
    json_t *context = json_object(), *list = json_array();
    bool ok = context && list;
    for (size_t i = 0; i < n_messages && ok; i++)
        ok = json_array_append_new(list, message_value(&messages[i])) == 0;
    ok = ok && json_object_set(context, "messages", list) == 0 &&
         json_object_set_new(context, "add_generation_prompt", json_boolean(add_generation_prompt)) == 0;
    json_decref(list);
    if (!ok) {
        json_decref(context);
        return NULL;
    }
    return context;
}

pome_status pome_tokenizer_apply_chat_template(const pome_tokenizer *tokenizer, const pome_message *messages,
                                               size_t n_messages, bool add_generation_prompt, char **text, size_t *len,
                                               pome_error *err)
{
    json_t *context = context_value(messages, n_messages, add_generation_prompt);
    if (!context)
        return pome_fail_nomem(err, 0, "a chat template's context");
    pome_status status = pome_chat_template_render(tokenizer, context, text, len, err);
    json_decref(context);
    return status;
}
