#include "text/decoder.h"

#include "base/error.h"
#include "text/normalizer.h"
#include "text/utf8.h"

static const char *kind_name(pome_decoder_kind kind)
{
    static const char *const names[] = {"ByteLevel", "ByteFallback", "Replace", "Strip", "Metaspace", "Fuse"};
    return names[kind];
}

pome_status pome_decoder_check(pome_decoder *decoder, pome_error *err)
{
    bool fused = false;
    for (size_t i = 0; i < decoder->n; i++) {
        pome_decoder_step *step = &decoder->steps[i];
        step->is_fused = fused;
        if (fused && step->kind != POME_DECODE_STRIP && step->kind != POME_DECODE_FUSE)
            return pome_fail(err, POME_ERR_UNSUPPORTED, "decoder %s after one that joins all tokens is not supported",
                             kind_name(step->kind));
        fused |= step->kind == POME_DECODE_BYTE_LEVEL || step->kind == POME_DECODE_FUSE;
    }
    return POME_OK;
}

void pome_decoder_reset(pome_decoder *decoder)
{
    for (size_t i = 0; i < decoder->n; i++)
        pome_regex_destroy(&decoder->steps[i].regex);
    decoder->n = 0;
}

void pome_decoder_state_reset(pome_decoder_state *state)
{
    pome_strbuf_reset(&state->a);
    pome_strbuf_reset(&state->b);
    *state = (pome_decoder_state){0};
}

/* A token with any character outside the alphabet stands for itself. */
static void byte_level(pome_str token, pome_strbuf *out)
{
    size_t start = out->len;
    for (size_t i = 0; i < token.len;) {
        uint32_t cp;
        int n = pome_utf8_decode(token.ptr + i, token.len - i, &cp, NULL);
        int byte = n > 0 ? pome_byte_level_byte(cp) : -1;
        if (byte < 0) {
            out->len = start;
            pome_strbuf_append(out, token.ptr, token.len);
            return;
        }
        pome_strbuf_putc(out, (char)byte);
        i += (size_t)n;
    }
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void byte_fallback(pome_str token, pome_strbuf *out)
{
    const char *t = token.ptr;
    if (token.len == 6 && t[0] == '<' && t[1] == '0' && t[2] == 'x' && t[5] == '>' && hex_digit(t[3]) >= 0 &&
        hex_digit(t[4]) >= 0)
        pome_strbuf_putc(out, (char)(hex_digit(t[3]) << 4 | hex_digit(t[4])));
    else
        pome_strbuf_append(out, t, token.len);
}

static pome_status replace(const pome_decoder_step *step, pome_str token, pome_strbuf *out, pome_error *err)
{
    if (!pome_utf8_is_valid(token.ptr, token.len)) { /* a byte token: nothing in it to find */
        pome_strbuf_append(out, token.ptr, token.len);
        return POME_OK;
    }
    pome_normalizer as_normalizer = {.kind = POME_NORMALIZE_REPLACE, .regex = step->regex, .content = step->content};
    return pome_normalize_text(&as_normalizer, 1, token, out, err);
}

static bool starts_with(pome_str s, pome_str prefix)
{
    return prefix.len > 0 && s.len >= prefix.len && memcmp(s.ptr, prefix.ptr, prefix.len) == 0;
}

static void strip_token(const pome_decoder_step *step, pome_str token, pome_strbuf *out)
{
    pome_str c = step->content;
    for (size_t i = 0; i < step->start && starts_with(token, c); i++) {
        token.ptr += c.len;
        token.len -= c.len;
    }
    for (size_t i = 0; i < step->stop && token.len >= c.len && memcmp(token.ptr + token.len - c.len, c.ptr, c.len) == 0;
         i++)
        token.len -= c.len;
    pome_strbuf_append(out, token.ptr, token.len);
}

/* The whole text is one token that comes in parts: what may turn out to be its end waits. */
static void strip_part(const pome_decoder_step *step, size_t *n_stripped, size_t *n_held, pome_str part,
                       pome_strbuf *out)
{
    pome_str c = step->content;
    while (part.len > 0) {
        bool is_content = starts_with(part, c);
        size_t n = is_content ? c.len : 1;
        if (is_content && *n_stripped < step->start) {
            (*n_stripped)++;
        } else if (is_content && *n_held < step->stop) {
            *n_stripped = SIZE_MAX;
            (*n_held)++;
        } else { /* one more of the content pushes out the first that waited: they are alike */
            *n_stripped = SIZE_MAX;
            for (; !is_content && *n_held > 0; (*n_held)--)
                pome_strbuf_append(out, c.ptr, c.len);
            pome_strbuf_append(out, part.ptr, n);
        }
        part.ptr += n;
        part.len -= n;
    }
}

static void metaspace(const pome_decoder_step *step, bool is_first, pome_str token, pome_strbuf *out)
{
    while (token.len > 0) {
        size_t n = 1;
        if (starts_with(token, step->content)) {
            n = step->content.len;
            if (!is_first || !step->drops_first)
                pome_strbuf_putc(out, ' ');
        } else {
            pome_strbuf_putc(out, token.ptr[0]);
        }
        token.ptr += n;
        token.len -= n;
    }
}

pome_status pome_decoder_push(const pome_decoder *decoder, pome_decoder_state *state, pome_str token, pome_strbuf *out,
                              pome_error *err)
{
    bool is_first = state->n_tokens++ == 0;
    if (decoder->joins_with_space && !is_first)
        pome_strbuf_putc(out, ' ');
    pome_strbuf *now = &state->a, *then = &state->b;
    now->len = 0;
    pome_strbuf_append(now, token.ptr, token.len);
    for (size_t i = 0; i < decoder->n; i++) {
        const pome_decoder_step *step = &decoder->steps[i];
        pome_str in = pome_strbuf_view(now);
        then->len = 0;
        switch (step->kind) {
        case POME_DECODE_BYTE_LEVEL:
            byte_level(in, then);
            break;
        case POME_DECODE_BYTE_FALLBACK:
            byte_fallback(in, then);
            break;
        case POME_DECODE_REPLACE:
            POME_TRY(replace(step, in, then, err));
            break;
        case POME_DECODE_STRIP:
            if (step->is_fused)
                strip_part(step, &state->n_stripped[i], &state->n_held[i], in, then);
            else
                strip_token(step, in, then);
            break;
        case POME_DECODE_METASPACE:
            metaspace(step, is_first, in, then);
            break;
        case POME_DECODE_FUSE:
            continue;
        }
        pome_strbuf *swap = now;
        now = then;
        then = swap;
    }
    pome_strbuf_append(out, now->data, now->len);
    if (now->failed || then->failed || out->failed)
        return pome_fail_nomem(err, token.len, "decoding");
    return POME_OK;
}
