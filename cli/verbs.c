#include "verbs.h"

#include <string.h>

const verb *const verbs[] = {&verb_run, &verb_predict, &verb_diff, &verb_inspect, &verb_tokenize, &verb_convert, &verb_compile, &verb_bench, &verb_perplexity, NULL};

const verb *verb_find(const char *name)
{
    for (const verb *const *v = verbs; *v; v++)
        if (strcmp((*v)->name, name) == 0)
            return *v;
    return NULL;
}
