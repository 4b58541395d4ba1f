/* What the decoder gives is held until it is whole: a character's first bytes wait for the rest. Bytes that can no
 * longer become a character are replaced at once, so the parts joined are the text decoded whole. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

struct pome_text_stream {
    const pome_tokenizer *tokenizer;
    bool skip_special;
    pome_decoder_state state;
    pome_strbuf bytes; /* decoded, not given out yet */
    pome_strbuf out;
};

pome_status pome_text_stream_create(pome_text_stream **out, const pome_tokenizer *tokenizer, bool skip_special,
                                    pome_error *err)
{
    pome_text_stream *s = calloc(1, sizeof *s);
    if (!s)
        return pome_fail_nomem(err, sizeof *s, "a text stream");
    s->tokenizer = tokenizer;
    s->skip_special = skip_special;
    *out = s;
    return POME_OK;
}

void pome_text_stream_destroy(pome_text_stream **stream)
{
    if (!*stream)
        return;
    pome_decoder_state_reset(&(*stream)->state);
    pome_strbuf_reset(&(*stream)->bytes);
    pome_strbuf_reset(&(*stream)->out);
    free(*stream);
    *stream = NULL;
}

/* Gives out all but the last n_keep bytes. */
static pome_status give(pome_text_stream *s, size_t n_keep, const char **text, size_t *len, pome_error *err)
{
    size_t n = s->bytes.len - n_keep;
    s->out.len = 0;
    pome_utf8_append_lossy(&s->out, s->bytes.data, n);
    if (s->bytes.failed || s->out.failed)
        return pome_fail_nomem(err, s->bytes.len, "decoded text");
    if (n_keep > 0)
        memmove(s->bytes.data, s->bytes.data + n, n_keep);
    s->bytes.len = n_keep;
    *text = pome_strbuf_view(&s->out).ptr;
    *len = s->out.len;
    return POME_OK;
}

pome_status pome_text_stream_push(pome_text_stream *stream, int32_t id, const char **text, size_t *len, pome_error *err)
{
    pome_str piece = pome_vocab_piece(&stream->tokenizer->vocab, id);
    if (piece.ptr && !(stream->skip_special && pome_tokenizer_is_special(stream->tokenizer, id)))
        POME_TRY(pome_decoder_push(&stream->tokenizer->decoder, &stream->state, piece, &stream->bytes, err));
    size_t tail = stream->bytes.len ? pome_utf8_incomplete_tail(stream->bytes.data, stream->bytes.len) : 0;
    return give(stream, tail, text, len, err);
}

pome_status pome_text_stream_finish(pome_text_stream *stream, const char **text, size_t *len, pome_error *err)
{
    pome_status status = give(stream, 0, text, len, err);
    pome_decoder_state_reset(&stream->state);
    return status;
}
