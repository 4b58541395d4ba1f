#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static pome_log_fn *hook;
static void *hook_arg;

void pome_log_set(pome_log_fn *fn, void *arg)
{
    hook = fn;
    hook_arg = arg;
}

void pome_log(pome_log_level level, const char *fmt, ...)
{
    if (!hook)
        return;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    hook(hook_arg, level, text);
}
