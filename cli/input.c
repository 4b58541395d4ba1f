#include "input.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INPUT_BYTES_MAX = 64 << 20 };

char *read_stdin(void)
{
    size_t len = 0, size = 4096;
    char *text = malloc(size);
    while (text) {
        len += fread(text + len, 1, size - len - 1, stdin);
        if (ferror(stdin)) { /* errno is that of the read */
            free(text);
            return NULL;
        }
        if (feof(stdin))
            break;
        if (size >= INPUT_BYTES_MAX) {
            free(text);
            errno = EFBIG;
            return NULL;
        }
        char *grown = realloc(text, 2 * size);
        if (!grown)
            free(text);
        text = grown;
        size *= 2;
    }
    if (!text)
        return NULL;
    if (len > 0 && text[len - 1] == '\n')
        len--;
    text[len] = '\0';
    if (memchr(text, '\0', len)) { /* all behind it would be lost */
        free(text);
        errno = EILSEQ;
        return NULL;
    }
    return text;
}

bool parse_ids(const char *text, int32_t **ids, size_t *n_ids, char *reason, size_t reason_size)
{
    int32_t *list = malloc((strlen(text) / 2 + 1) * sizeof *list);
    size_t n = 0;
    if (!list) {
        snprintf(reason, reason_size, "out of memory");
        return false;
    }
    for (const char *p = text; *p;) {
        char *end;
        errno = 0;
        long long value = strtoll(p, &end, 10);
        if (end == p || errno || value < 0 || value > INT32_MAX) {
            snprintf(reason, reason_size, "'%.20s' is not a token id", p);
            free(list);
            return false;
        }
        list[n++] = (int32_t)value;
        p = end;
        if (*p == ',' && p[1])
            p++;
        else if (*p && !isspace((unsigned char)*p)) {
            snprintf(reason, reason_size, "'%.20s' is not a list of token ids", text);
            free(list);
            return false;
        }
        while (isspace((unsigned char)*p))
            p++;
    }
    if (n == 0) {
        snprintf(reason, reason_size, "there are no ids");
        free(list);
        return false;
    }
    *ids = list;
    *n_ids = n;
    return true;
}
