/* tokenizer.json and GGUF vocabularies: the first line of the input is a text to encode, the rest the file. What is
 * encoded decodes again, whole and as a stream alike. */
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer.h"
#include "text/utf8.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const pome_tokenizer *t, const char *text, size_t len)
{
    int32_t *ids = NULL;
    size_t n = 0, n_whole = 0;
    char *whole = NULL;
    pome_text_stream *stream = NULL;
    pome_strbuf joined = {0};
    if (pome_tokenizer_encode(t, text, len, true, len % 2, &ids, &n, NULL) != POME_OK)
        return;
    pome_status status = pome_tokenizer_decode(t, ids, n, false, &whole, &n_whole, NULL);
    if (status == POME_OK && pome_text_stream_create(&stream, t, false, NULL) == POME_OK) {
        const char *part;
        size_t part_len;
        for (size_t i = 0; i < n && status == POME_OK; i++) {
            if (ids[i] < 0 || ids[i] >= pome_tokenizer_n_vocab(t))
                abort();
            status = pome_text_stream_push(stream, ids[i], &part, &part_len, NULL);
            if (status == POME_OK)
                pome_strbuf_append(&joined, part, part_len);
        }
        if (status == POME_OK && pome_text_stream_finish(stream, &part, &part_len, NULL) == POME_OK) {
            pome_strbuf_append(&joined, part, part_len);
            if (joined.len != n_whole || (n_whole && memcmp(joined.data, whole, n_whole) != 0) ||
                !pome_utf8_is_valid(whole, n_whole))
                abort();
        }
    }
    pome_text_stream_destroy(&stream);
    pome_strbuf_reset(&joined);
    free(whole);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *newline = size ? memchr(data, '\n', size) : NULL;
    if (!newline || size > 1 << 16)
        return 0;
    pome_tokenizer *t = NULL;
    pome_error err = {0};
    pome_bytes file = {newline + 1, size - (size_t)(newline + 1 - data)};
    if (pome_tokenizer_read(&t, file, "fuzz", &err) == POME_OK) {
        use(t, (const char *)data, (size_t)(newline - data));
        pome_tokenizer_close(&t);
    } else if (!err.message[0]) {
        abort();
    }
    return 0;
}
