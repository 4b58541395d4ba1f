#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[] = {
    "POME_OK",         "POME_ERR_NOMEM", "POME_ERR_IO",    "POME_ERR_FORMAT",    "POME_ERR_UNSUPPORTED",
    "POME_ERR_ARG",    "POME_ERR_LIMIT", "POME_ERR_STATE", "POME_ERR_CANCELLED",
};

const char *pome_status_name(pome_status code)
{
    return (unsigned)code < sizeof names / sizeof names[0] ? names[code] : "POME_ERR_?";
}

const char *pome_version(void)
{
    return POME_VERSION;
}

static void fill(pome_error *err, pome_status code, uint64_t offset, const char *fmt, va_list ap)
{
    if (!err)
        return;
    err->code = code;
    err->offset = offset;
    vsnprintf(err->message, sizeof err->message, fmt, ap);
}

pome_status pome_fail(pome_error *err, pome_status code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(err, code, 0, fmt, ap);
    va_end(ap);
    return code;
}

pome_status pome_fail_at(pome_error *err, pome_status code, uint64_t offset, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fill(err, code, offset, fmt, ap);
    va_end(ap);
    return code;
}

/* Appends to text[0..*used), which stays NUL-terminated; what does not fit is left out. */
static void append(char *text, size_t size, size_t *used, const char *more)
{
    size_t len = strlen(more), room = size - 1 - *used;
    len = len < room ? len : room;
    memcpy(text + *used, more, len);
    *used += len;
    text[*used] = 0;
}

pome_status pome_fail_prefix(pome_error *err, pome_status code, const char *fmt, ...)
{
    if (!err)
        return code;
    char text[sizeof err->message];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return code;
    size_t used = (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    append(text, sizeof text, &used, ": ");
    append(text, sizeof text, &used, err->message);
    memcpy(err->message, text, sizeof text);
    return code;
}

pome_status pome_fail_nomem(pome_error *err, size_t size, const char *what)
{
    return pome_fail(err, POME_ERR_NOMEM, "out of memory (%zu bytes for %s)", size, what);
}
