#ifndef POME_CLI_VERBS_H
#define POME_CLI_VERBS_H

#include "options.h"

extern const verb verb_run, verb_predict, verb_diff, verb_inspect, verb_tokenize, verb_convert, verb_compile, verb_bench, verb_perplexity;

#endif
